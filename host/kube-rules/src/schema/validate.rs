//! Validates a value. Each violation becomes a cause with the path of its field, in the words of a real API
//! server.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Additional, Cause, ListType, Path, Schema, Type};

impl Schema {
    /// All errors in `value`, in the order of its fields. A value that stands unchanged in `old` is not
    /// refused by a newer schema (apiextensions-apiserver, ratcheting). Items of a list are matched by their
    /// keys.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.check(&Path::ROOT, value, old, &mut causes);
        causes
    }

    fn check(&self, path: &Path<'_>, value: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        if old == Some(value) {
            return;
        }
        if value.is_null() && (self.nullable || (self.kind.is_none() && !self.int_or_string)) {
            return;
        }
        if !self.has_type(value) {
            causes.push(self.wrong_type(path, value));
            return;
        }
        if let Some(options) = &self.options
            && !options.contains(value)
        {
            let options: Vec<String> = options.iter().map(Value::to_string).collect();
            causes.push(Cause::unsupported(&path.to_string(), value, &options));
        }
        match value {
            Value::Object(fields) => self.check_object(path, value, fields, old, causes),
            Value::Array(items) => self.check_list(path, value, items, old, causes),
            Value::String(text) => self.check_string(path, value, text, causes),
            Value::Number(number) => {
                self.check_number(path, value, number.as_f64().unwrap_or(f64::NAN), causes);
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.check_junctors(path, value, causes);
    }

    fn has_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_string() || is_whole(value);
        }
        match self.kind {
            None => true,
            Some(Type::Object) => value.is_object(),
            Some(Type::Array) => value.is_array(),
            Some(Type::String) => value.is_string(),
            Some(Type::Integer) => is_whole(value),
            Some(Type::Number) => value.is_number(),
            Some(Type::Boolean) => value.is_boolean(),
        }
    }

    fn wrong_type(&self, path: &Path<'_>, value: &Value) -> Cause {
        let wanted = if self.int_or_string {
            "integer,string"
        } else {
            self.kind.map_or("any", Type::name)
        };
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let why = format!("{path} in body must be of type {wanted}: \"{found}\"");
        // As in a real API server, the type is shown in place of the value.
        let value = &Value::from(found);
        Cause {
            reason: "FieldValueTypeInvalid",
            ..Cause::invalid(&path.to_string(), value, &why)
        }
    }

    fn check_object(
        &self,
        path: &Path<'_>,
        value: &Value,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        causes: &mut Vec<Cause>,
    ) {
        for name in &self.required {
            if !fields.contains_key(name) {
                causes.push(Cause::required(&path.field(name).to_string(), ""));
            }
        }
        let count = fields.len() as u64;
        if let Some(least) = self.limits.min_properties
            && count < least
        {
            let why = format!("{path} in body should have at least {least} properties");
            causes.push(Cause::invalid(&path.to_string(), value, &why));
        }
        if let Some(most) = self.limits.max_properties
            && count > most
        {
            causes.push(too_many(path, count, most));
        }
        for (name, field) in fields {
            let below = match (self.properties.get(name), &self.additional) {
                (Some(schema), _) => schema,
                (None, Additional::Each(schema)) => schema,
                _ => continue,
            };
            let old = old.and_then(|old| old.get(name));
            below.check(&path.field(name), field, old, causes);
        }
        if self.embedded {
            for name in ["apiVersion", "kind"] {
                if fields.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    causes.push(Cause::required(
                        &path.field(name).to_string(),
                        "must not be empty",
                    ));
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
        causes: &mut Vec<Cause>,
    ) {
        let count = items.len() as u64;
        if let Some(least) = self.limits.min_items
            && count < least
        {
            let why = format!("{path} in body should have at least {least} items");
            causes.push(Cause::invalid(&path.to_string(), value, &why));
        }
        if let Some(most) = self.limits.max_items
            && count > most
        {
            causes.push(too_many(path, count, most));
        }
        if let Some(schema) = &self.items {
            let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (index, item) in items.iter().enumerate() {
                schema.check(&path.item(index), item, self.of_same_keys(item, old), causes);
            }
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let Some(identity) = self.identity(item) else {
                continue;
            };
            if !seen.insert(identity.to_string()) {
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    field: format!("{path}[{index}]"),
                    message: format!("Duplicate value: {identity}"),
                });
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

    /// The value that must differ between all items of this list.
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

    fn check_string(&self, path: &Path<'_>, value: &Value, text: &str, causes: &mut Vec<Cause>) {
        let limits = &self.limits;
        let mut refuse = |why: String| causes.push(Cause::invalid(&path.to_string(), value, &why));
        let length = text.chars().count() as u64;
        if let Some(least) = limits.min_length
            && length < least
        {
            refuse(format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(pattern) = &limits.pattern
            && !pattern.is_match(text)
        {
            refuse(format!("{path} in body should match '{pattern}'"));
        }
        if let Some(format) = limits.format
            && !format.matches(text)
        {
            refuse(format!(
                "{path} in body must be of type {}: {value}",
                format.name()
            ));
        }
        if let Some(most) = limits.max_length
            && length > most
        {
            causes.push(Cause {
                reason: "FieldValueTooLong",
                field: path.to_string(),
                message: format!("Too long: may not be more than {most} bytes"),
            });
        }
    }

    fn check_number(&self, path: &Path<'_>, value: &Value, number: f64, causes: &mut Vec<Cause>) {
        let limits = &self.limits;
        let mut refuse = |why: String| causes.push(Cause::invalid(&path.to_string(), value, &why));
        if let Some(least) = limits.minimum {
            if limits.exclusive_minimum && number <= least {
                refuse(format!("{path} in body should be greater than {least}"));
            } else if number < least {
                refuse(format!(
                    "{path} in body should be greater than or equal to {least}"
                ));
            }
        }
        if let Some(most) = limits.maximum {
            if limits.exclusive_maximum && number >= most {
                refuse(format!("{path} in body should be less than {most}"));
            } else if number > most {
                refuse(format!("{path} in body should be less than or equal to {most}"));
            }
        }
        if let Some(unit) = limits.multiple_of
            && ((number / unit) - (number / unit).round()).abs() > f64::EPSILON
        {
            refuse(format!("{path} in body should be a multiple of {unit}"));
        }
        if let Some(format) = limits.format
            && !format.holds(number)
        {
            refuse(format!(
                "{path} in body must be of type {}: {value}",
                format.name()
            ));
        }
    }

    fn check_junctors(&self, path: &Path<'_>, value: &Value, causes: &mut Vec<Cause>) {
        let satisfies = |schema: &Schema| {
            let mut found = Vec::new();
            schema.check(path, value, None, &mut found);
            found.is_empty()
        };
        for schema in &self.all_of {
            schema.check(path, value, None, causes);
        }
        if !self.any_of.is_empty() && !self.any_of.iter().any(satisfies) {
            let why = format!("{path} in body must validate at least one schema (anyOf)");
            causes.push(Cause::invalid(&path.to_string(), value, &why));
        }
        if !self.one_of.is_empty() && self.one_of.iter().filter(|schema| satisfies(schema)).count() != 1 {
            let why = format!("{path} in body must validate one and only one schema (oneOf)");
            causes.push(Cause::invalid(&path.to_string(), value, &why));
        }
        if self.not.as_ref().is_some_and(|schema| satisfies(schema)) {
            let why = format!("{path} in body must not validate the schema (not)");
            causes.push(Cause::invalid(&path.to_string(), value, &why));
        }
    }
}

fn too_many(path: &Path<'_>, count: u64, most: u64) -> Cause {
    Cause {
        reason: "FieldValueTooMany",
        field: path.to_string(),
        message: format!("Too many: {count}: must have at most {most} items"),
    }
}

/// Whether a number is integral. `3.0` is, because JSON does not distinguish it from `3`.
fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}
