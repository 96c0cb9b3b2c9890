//! Validates a value. Each violation becomes a cause with the path of its field.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::words::{Broken, Words};
use super::{Additional, Cause, Causes, ListType, Options, Path, Schema, Type};

/// The steps of a check that do not depend on the value's size: some hundred milliseconds. A schema of ten thousand
/// alternatives would look at each part of the value ten thousand times.
const STEPS: u64 = 1_000_000;
/// The steps for each part of the value. A schema that only describes its values takes two or three.
const STEPS_EACH: u64 = 16;
/// The most causes of one check for people.
pub(super) const CAUSES: usize = 20;

impl Schema {
    /// All errors in `value`, in the order of its fields and in the words of a real API server. A value that stands
    /// unchanged in `old` is not refused by a newer schema (apiextensions-apiserver, ratcheting). Items of a list are
    /// matched by their keys.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut check = Check::new(Words::Server, u64::MAX, usize::MAX);
        self.check_at(&Path::ROOT, value, old, &mut check);
        check.causes
    }

    /// Checks a value, within a limit of steps.
    ///
    /// # Errors
    /// The first 20 errors in `value`, in the order of its fields. They do not quote it. Each has a path; that of the whole is
    /// `(document)`.
    pub fn check(&self, value: &Value) -> Result<(), Causes> {
        let steps = STEPS + STEPS_EACH * weight(value);
        let mut check = Check::new(Words::Plain, steps, CAUSES);
        self.check_at(&Path::ROOT, value, None, &mut check);
        if check.steps == 0 {
            // What was found so far may be wrong: alternatives were not looked at to their end.
            return Err(Causes(vec![Cause {
                reason: "FieldValueInvalid",
                field: Path::ROOT.named(),
                message: format!("is too much to check: the schema takes more than {steps} steps"),
            }]));
        }
        Causes::none_or(check.causes)
    }

    /// The first error in `value`, within the same limits.
    pub fn first_error(&self, value: &Value) -> Option<Cause> {
        self.check(value).err()?.into_iter().next()
    }

    fn check_at(&self, path: &Path<'_>, value: &Value, old: Option<&Value>, check: &mut Check) {
        check.spend(1);
        if check.is_over() || old == Some(value) {
            return;
        }
        let allows_null = self.nullable || (self.types.is_empty() && !self.int_or_string);
        if value.is_null() && allows_null && !self.exact {
            return;
        }
        if self.never {
            check.refuse(path, value, Broken::Never);
            return;
        }
        if !self.has_type(value) {
            check.refuse(path, value, Broken::Type(self));
            return;
        }
        for options in self.options.iter().chain(&self.constant) {
            check.spend(options.steps);
            if !options.values.contains(value) {
                check.refuse(path, value, Broken::Options(&options.values));
            }
        }
        match value {
            Value::Object(fields) => self.check_object(path, value, fields, old, check),
            Value::Array(items) => self.check_list(path, value, items, old, check),
            Value::String(text) => self.check_string(path, value, text, check),
            Value::Number(number) => {
                self.check_number(path, value, number.as_f64().unwrap_or(f64::NAN), check);
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.check_junctors(path, value, check);
    }

    pub(super) fn has_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_string() || is_whole(value);
        }
        let is_one = |kind: &Type| match kind {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => is_whole(value),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
            Type::Null => value.is_null(),
        };
        self.types.is_empty() || self.types.iter().any(is_one)
    }

    fn check_object(
        &self,
        path: &Path<'_>,
        value: &Value,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        check: &mut Check,
    ) {
        check.spend((self.required.len() + fields.len()) as u64);
        for name in &self.required {
            if !fields.contains_key(name) {
                check.refuse(&path.field(name), value, Broken::Required(""));
            }
        }
        let count = fields.len() as u64;
        if let Some(least) = self.limits.min_properties
            && count < least
        {
            check.refuse(path, value, Broken::FewProperties(least));
        }
        if let Some(most) = self.limits.max_properties
            && count > most
        {
            check.refuse(path, value, Broken::Many { count, most });
        }
        for (name, field) in fields {
            if check.is_over() {
                return;
            }
            if let Some(names) = &self.names {
                check.check_name(names, &path.field(name), name);
            }
            let below = match (self.properties.get(name), &self.additional) {
                (Some(schema), _) => schema,
                (None, Additional::Each(schema)) => schema,
                (None, Additional::Refused) => {
                    check.refuse(&path.field(name), field, Broken::Unknown);
                    continue;
                }
                _ => continue,
            };
            let old = old.and_then(|old| old.get(name));
            below.check_at(&path.field(name), field, old, check);
        }
        if self.embedded {
            for name in ["apiVersion", "kind"] {
                if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    check.refuse(&path.field(name), value, Broken::Required("must not be empty"));
                }
            }
        }
    }

    fn check_list(
        &self,
        path: &Path<'_>,
        value: &Value,
        items: &[Value],
        old: Option<&Value>,
        check: &mut Check,
    ) {
        let count = items.len() as u64;
        if let Some(least) = self.limits.min_items
            && count < least
        {
            check.refuse(path, value, Broken::FewItems(least));
        }
        if let Some(most) = self.limits.max_items
            && count > most
        {
            check.refuse(path, value, Broken::Many { count, most });
        }
        let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            if check.is_over() {
                return;
            }
            if let Some(schema) = self.prefix.get(index).or(self.items.as_deref()) {
                schema.check_at(&path.item(index), item, self.of_same_keys(item, old), check);
            }
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let Some(identity) = self.identity(item) else {
                break;
            };
            if check.is_over() {
                return;
            }
            let text = identity.to_string();
            check.spend(text.len() as u64 / 16);
            if !seen.insert(text) {
                check.refuse(&path.item(index), item, Broken::Duplicate(&identity));
            }
        }
    }

    /// The item with the same keys in another list; `None` if items have no keys.
    fn of_same_keys<'a>(&self, item: &Value, others: &'a [Value]) -> Option<&'a Value> {
        let ListType::Map(keys) = &self.list else {
            return None;
        };
        let is_same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
        others.iter().find(is_same)
    }

    /// The value that must differ between all items of this list; `None` if items may be equal.
    fn identity(&self, item: &Value) -> Option<Value> {
        match &self.list {
            ListType::Atomic => self.limits.unique_items.then(|| item.clone()),
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let part = |key: &String| (key.clone(), item.get(key).cloned().unwrap_or_default());
                Some(Value::Object(keys.iter().map(part).collect()))
            }
        }
    }

    fn check_string(&self, path: &Path<'_>, value: &Value, text: &str, check: &mut Check) {
        let limits = &self.limits;
        let bytes = text.len() as u64;
        check.spend(bytes / 64);
        let length = text.chars().count() as u64;
        if let Some(least) = limits.min_length
            && length < least
        {
            check.refuse(path, value, Broken::Short(least));
        }
        if let Some(pattern) = &limits.pattern {
            check.spend(bytes.saturating_mul(pattern.steps_of_64_bytes) / 64);
            if !check.is_over() && !pattern.regex.is_match(text) {
                check.refuse(path, value, Broken::Pattern(pattern.regex.as_str()));
            }
        }
        if let Some(format) = limits.format
            && !format.matches(text)
        {
            check.refuse(path, value, Broken::Format(format));
        }
        if let Some(most) = limits.max_length
            && length > most
        {
            check.refuse(path, value, Broken::Long(most));
        }
    }

    fn check_number(&self, path: &Path<'_>, value: &Value, number: f64, check: &mut Check) {
        let limits = &self.limits;
        if let Some(least) = limits.minimum {
            if limits.exclusive_minimum && number <= least {
                check.refuse(path, value, Broken::NotAbove(least));
            } else if number < least {
                check.refuse(path, value, Broken::Less(least));
            }
        }
        if let Some(least) = limits.above.filter(|least| number <= *least) {
            check.refuse(path, value, Broken::NotAbove(least));
        }
        if let Some(most) = limits.maximum {
            if limits.exclusive_maximum && number >= most {
                check.refuse(path, value, Broken::NotBelow(most));
            } else if number > most {
                check.refuse(path, value, Broken::More(most));
            }
        }
        if let Some(most) = limits.below.filter(|most| number >= *most) {
            check.refuse(path, value, Broken::NotBelow(most));
        }
        if let Some(unit) = limits.multiple_of
            && ((number / unit) - (number / unit).round()).abs() > f64::EPSILON
        {
            check.refuse(path, value, Broken::NoMultiple(unit));
        }
        if let Some(format) = limits.format
            && !format.holds(number)
        {
            check.refuse(path, value, Broken::Format(format));
        }
    }

    fn check_junctors(&self, path: &Path<'_>, value: &Value, check: &mut Check) {
        for schema in &self.all_of {
            schema.check_at(path, value, None, check);
        }
        if !self.any_of.is_empty()
            && !self
                .any_of
                .iter()
                .any(|schema| check.is_valid(schema, path, value))
        {
            check.refuse_all(&self.any_of, path, value, Broken::AnyOf(&self.any_of));
        }
        if !self.one_of.is_empty() {
            let valid = self
                .one_of
                .iter()
                .filter(|schema| check.is_valid(schema, path, value));
            match valid.count() {
                0 => check.refuse_all(&self.one_of, path, value, Broken::OneOf(&self.one_of)),
                1 => {}
                _ => check.refuse(path, value, Broken::ManyOf),
            }
        }
        if let Some(schema) = &self.not
            && check.is_valid(schema, path, value)
        {
            check.refuse(path, value, Broken::Not);
        }
    }

    /// Whether a value that is not valid was meant for this alternative: its type and the fields that tell it from others
    /// are there.
    fn is_meant_by(&self, value: &Value) -> bool {
        let is_tag = |(name, schema): (&String, &Schema)| {
            let tag = schema.constant.as_ref().zip(value.get(name));
            tag.is_none_or(|(tag, said)| tag.values.contains(said))
        };
        !self.never
            && self.has_type(value)
            && self.required.iter().all(|name| value.get(name).is_some())
            && self.properties.iter().all(is_tag)
    }
}

/// One check of a value.
struct Check {
    words: Words,
    causes: Vec<Cause>,
    /// The most causes.
    most: usize,
    /// The steps that are left. At zero the result is unknown.
    steps: u64,
    /// Only whether there is an error matters, not which.
    quiet: bool,
    /// Whether there is an error, when quiet.
    failed: bool,
}

impl Check {
    fn new(words: Words, steps: u64, most: usize) -> Self {
        Check {
            words,
            causes: Vec::new(),
            most,
            steps,
            quiet: false,
            failed: false,
        }
    }

    fn spend(&mut self, steps: u64) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Whether to look at more of the value changes nothing.
    fn is_over(&self) -> bool {
        self.steps == 0 || (self.quiet && self.failed) || self.causes.len() >= self.most
    }

    fn refuse(&mut self, path: &Path<'_>, value: &Value, broken: Broken<'_>) {
        if self.quiet {
            self.failed = true;
        } else if !self.is_over() {
            self.causes.push(self.words.cause(path, value, &broken));
        }
    }

    /// Refuses a value that none of these alternatives allows. People are told what is wrong with the only one that is meant.
    fn refuse_all(&mut self, all: &[Schema], path: &Path<'_>, value: &Value, broken: Broken<'_>) {
        if self.words == Words::Plain && !self.quiet {
            let mut meant = all.iter().filter(|schema| schema.is_meant_by(value));
            if let (Some(schema), None) = (meant.next(), meant.next()) {
                schema.check_at(path, value, None, self);
                return;
            }
        }
        self.refuse(path, value, broken);
    }

    fn check_name(&mut self, names: &Schema, path: &Path<'_>, name: &str) {
        let before = self.causes.len();
        names.check_at(path, &Value::from(name), None, self);
        for cause in &mut self.causes[before..] {
            cause.message.insert_str(0, "its name ");
        }
    }

    /// Whether a schema allows a value.
    fn is_valid(&mut self, schema: &Schema, path: &Path<'_>, value: &Value) -> bool {
        let outer = (self.quiet, self.failed);
        (self.quiet, self.failed) = (true, false);
        schema.check_at(path, value, None, self);
        let is_valid = !self.failed;
        (self.quiet, self.failed) = outer;
        is_valid
    }
}

/// How many parts a value has. A long text counts as many.
pub(super) fn weight(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len() as u64 / 16,
        Value::Array(items) => 1 + items.iter().map(weight).sum::<u64>(),
        Value::Object(fields) => {
            let fields = fields.iter();
            1 + fields
                .map(|(name, field)| 1 + name.len() as u64 / 16 + weight(field))
                .sum::<u64>()
        }
    }
}

impl Options {
    pub(super) fn new(values: Vec<Value>) -> Self {
        let steps = values.iter().map(weight).sum();
        Options { values, steps }
    }
}

/// Whether a number is integral. `3.0` is, because JSON does not distinguish it from `3`.
fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}
