//! The words for what a value breaks.

use serde_json::Value;

use super::cause::shown;
use super::format::Format;
use super::{Cause, Path, Schema, Type};

/// Whose words a check uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Those of a real API server, which quote the value.
    Server,
    /// Words for people, which never quote the value.
    Plain,
}

/// What a value breaks.
pub(super) enum Broken<'a> {
    Never,
    Type(&'a Schema),
    Options(&'a [Value]),
    /// The field is missing, for this reason.
    Required(&'static str),
    /// The field is not known.
    Unknown,
    FewProperties(u64),
    FewItems(u64),
    Many {
        count: u64,
        most: u64,
    },
    /// There is another item with this identity.
    Duplicate(&'a Value),
    Short(u64),
    Long(u64),
    Pattern(&'a str),
    Format(Format),
    Less(f64),
    NotAbove(f64),
    More(f64),
    NotBelow(f64),
    NoMultiple(f64),
    AnyOf(&'a [Schema]),
    OneOf(&'a [Schema]),
    /// More than one schema of `oneOf` allows it.
    ManyOf,
    Not,
}

impl Words {
    pub(super) fn cause(self, path: &Path<'_>, value: &Value, broken: &Broken<'_>) -> Cause {
        match self {
            Words::Server => broken.for_a_server(&path.to_string(), value),
            Words::Plain => Cause {
                reason: broken.reason(),
                field: path.named(),
                message: broken.for_people(value),
            },
        }
    }
}

impl Broken<'_> {
    fn reason(&self) -> &'static str {
        match self {
            Broken::Type(_) => "FieldValueTypeInvalid",
            Broken::Options(_) => "FieldValueNotSupported",
            Broken::Required(_) => "FieldValueRequired",
            Broken::Many { .. } => "FieldValueTooMany",
            Broken::Duplicate(_) => "FieldValueDuplicate",
            Broken::Long(_) => "FieldValueTooLong",
            _ => "FieldValueInvalid",
        }
    }

    /// In the words of go-openapi and of apimachinery.
    fn for_a_server(&self, path: &str, value: &Value) -> Cause {
        let with = |message: String| Cause {
            reason: self.reason(),
            field: path.to_owned(),
            message,
        };
        let should = match self {
            Broken::Type(schema) => {
                let found = found(value);
                let wanted = if schema.int_or_string {
                    "integer,string"
                } else {
                    schema.types.first().map_or("any", |kind| kind.name())
                };
                let why = format!("{path} in body must be of type {wanted}: \"{found}\"");
                // As in a real API server, the type is shown in place of the value.
                return Cause {
                    reason: self.reason(),
                    ..Cause::invalid(path, &Value::from(found), &why)
                };
            }
            Broken::Options(options) => {
                let options: Vec<String> = options.iter().map(Value::to_string).collect();
                return Cause::unsupported(path, value, &options);
            }
            Broken::Required(why) => return Cause::required(path, why),
            Broken::Many { count, most } => {
                return with(format!("Too many: {count}: must have at most {most} items"));
            }
            Broken::Duplicate(identity) => return with(format!("Duplicate value: {identity}")),
            Broken::Long(most) => return with(format!("Too long: may not be more than {most} bytes")),
            Broken::FewProperties(least) => format!("should have at least {least} properties"),
            Broken::FewItems(least) => format!("should have at least {least} items"),
            Broken::Short(least) => format!("should be at least {least} chars long"),
            Broken::Pattern(pattern) => format!("should match '{pattern}'"),
            Broken::Format(format) => format!("must be of type {}: {value}", format.name()),
            Broken::Less(least) => format!("should be greater than or equal to {least}"),
            Broken::NotAbove(least) => format!("should be greater than {least}"),
            Broken::More(most) => format!("should be less than or equal to {most}"),
            Broken::NotBelow(most) => format!("should be less than {most}"),
            Broken::NoMultiple(unit) => format!("should be a multiple of {unit}"),
            Broken::AnyOf(_) => "must validate at least one schema (anyOf)".to_owned(),
            Broken::OneOf(_) | Broken::ManyOf => "must validate one and only one schema (oneOf)".to_owned(),
            Broken::Not => "must not validate the schema (not)".to_owned(),
            // No schema of a CRD says this.
            Broken::Never | Broken::Unknown => "is forbidden".to_owned(),
        };
        Cause::invalid(path, value, &format!("{path} in body {should}"))
    }

    /// Follows a path: `spec.cpus: must be an integer, not a string`. Of the value only its type is said.
    fn for_people(&self, value: &Value) -> String {
        match self {
            Broken::Never => "must not be there".to_owned(),
            Broken::Type(schema) => format!(
                "must be {}, not {}",
                wanted(&schema.types),
                with_article(found(value))
            ),
            Broken::Options(options) => one_of(options.iter().map(shown)),
            Broken::Required(_) => "is missing; it must be there".to_owned(),
            Broken::Unknown => "is not a known field".to_owned(),
            Broken::FewProperties(least) => format!("must have at least {}", some(*least, "field")),
            Broken::FewItems(least) => format!("must have at least {}", some(*least, "item")),
            Broken::Many { count, most } => format!("must not have more than {most}, and has {count}"),
            Broken::Duplicate(_) => "must differ from all items before it".to_owned(),
            Broken::Short(least) => format!("must have at least {}", some(*least, "character")),
            Broken::Long(most) => format!("must have at most {}", some(*most, "character")),
            Broken::Pattern(pattern) => format!("must match the pattern {pattern}"),
            Broken::Format(format) => format!("must have the format {}", format.name()),
            Broken::Less(least) => format!("must be {least} or more"),
            Broken::NotAbove(least) => format!("must be more than {least}"),
            Broken::More(most) => format!("must be {most} or less"),
            Broken::NotBelow(most) => format!("must be less than {most}"),
            Broken::NoMultiple(unit) => format!("must be a multiple of {unit}"),
            Broken::AnyOf(all) | Broken::OneOf(all) => alternatives(all, value),
            Broken::ManyOf => "must match only one of its alternatives".to_owned(),
            Broken::Not => "must not match what its schema excludes".to_owned(),
        }
    }
}

/// What a value must be that no alternative allows.
fn alternatives(all: &[Schema], value: &Value) -> String {
    if !all.iter().any(|schema| schema.has_type(value)) {
        let types: Vec<Type> = all
            .iter()
            .flat_map(|schema| schema.types.iter().copied())
            .collect();
        return format!("must be {}, not {}", wanted(&types), with_article(found(value)));
    }
    match all.iter().map(described).collect::<Option<Vec<_>>>() {
        Some(described) => one_of(described.into_iter().flatten()),
        None => format!("must match one of its {} alternatives", all.len()),
    }
}

/// The values that an alternative allows, if that is short to say: constants, null, and an object by the only field that it
/// must have, which is how a variant of an enum comes.
fn described(schema: &Schema) -> Option<Vec<String>> {
    if let Some(options) = schema.constant.as_ref().or(schema.options.as_ref()) {
        return Some(options.values.iter().take(SHOWN).map(shown).collect());
    }
    match (schema.types.as_slice(), schema.required.as_slice()) {
        ([Type::Null], _) => Some(vec!["null".to_owned()]),
        ([Type::Object], [field]) => Some(vec![format!("{{{}: …}}", shown(&Value::from(field.as_str())))]),
        _ => None,
    }
}

/// The most options that are shown: as many as fit the length of a cause.
const SHOWN: usize = 20;

fn one_of(options: impl Iterator<Item = String>) -> String {
    let options: Vec<String> = options.take(SHOWN).collect();
    match options.as_slice() {
        [only] => format!("must be {only}"),
        all => format!("must be one of {}", all.join(", ")),
    }
}

fn some(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn wanted(types: &[Type]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for kind in types {
        let name = with_article(kind.name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" or ")
}

fn with_article(name: &str) -> &str {
    match name {
        "object" => "an object",
        "array" => "a list",
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a number",
        "boolean" => "a boolean",
        other => other,
    }
}

/// The name of a value's type.
fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
