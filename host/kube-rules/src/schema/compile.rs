//! Compiles the JSON of `openAPIV3Schema` to a `Schema`. Features that this server does not support are
//! refused by name.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::{Additional, Cause, Format, Limits, ListType, Schema, Type, child};

/// The sizes that a compiled pattern may have, in bytes. Everybody who may write CRDs can write patterns.
/// Small sizes are tried first, because the regex crate does not tell how large a pattern became.
const PATTERN_SIZES: [usize; 5] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
/// The limit for all patterns of a schema together. Those of large CRDs in use take a tenth of it.
const PATTERNS: usize = 16 << 20;
/// The limit for the states that one pattern remembers.
const PATTERN_STATES: usize = 1 << 18;
/// The limit for the depth of schemas. A deeper schema would overflow the stack, and no CRD in use comes
/// near.
const DEPTH: usize = 64;

/// Fields that do not constrain the value.
const ANNOTATIONS: [&str; 6] = [
    "description",
    "title",
    "example",
    "externalDocs",
    "x-kubernetes-map-type",
    "$schema",
];

/// Compiles the structural schema at `path` of its CRD. All errors are returned together.
pub fn compile(path: &str, schema: &Value) -> Result<Schema, Vec<Cause>> {
    let mut compiler = Compiler {
        causes: Vec::new(),
        patterns: 0,
    };
    let compiled = compiler.schema(path, schema, Place::Structure, 0);
    if compiler.causes.is_empty() {
        Ok(compiled)
    } else {
        Err(compiler.causes)
    }
}

/// Below `allOf`, `anyOf`, `oneOf` and `not` a schema only adds constraints: it names no types.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Structure,
    Junctor,
}

struct Compiler {
    causes: Vec<Cause>,
    /// Bytes of all patterns so far.
    patterns: usize,
}

impl Compiler {
    fn schema(&mut self, path: &str, json: &Value, place: Place, depth: usize) -> Schema {
        let Some(fields) = json.as_object() else {
            self.causes.push(Cause::invalid(path, json, "must be an object"));
            return Schema::default();
        };
        if depth > DEPTH {
            self.causes.push(Cause::forbidden(
                path,
                &format!("schemas nest at most {DEPTH} deep"),
            ));
            return Schema::default();
        }
        let mut schema = Schema::default();
        for (name, value) in fields {
            self.field(&mut schema, path, (name, value), place, depth);
        }
        self.constraints(&mut schema, path, fields);
        if place == Place::Structure {
            self.structure(&schema, path);
        }
        schema
    }

    fn field(
        &mut self,
        schema: &mut Schema,
        path: &str,
        (name, value): (&String, &Value),
        place: Place,
        depth: usize,
    ) {
        let here = child(path, name);
        let deeper = depth + 1;
        match name.as_str() {
            "type" => schema.kind = self.named_type(&here, value),
            "nullable" => schema.nullable = value == true,
            "x-kubernetes-int-or-string" => schema.int_or_string = value == true,
            "x-kubernetes-preserve-unknown-fields" => schema.preserve_unknown = value == true,
            "x-kubernetes-embedded-resource" => schema.embedded = value == true,
            "properties" => {
                for (key, below) in value.as_object().into_iter().flatten() {
                    let below = self.schema(&format!("{here}[{key}]"), below, place, deeper);
                    schema.properties.insert(key.clone(), below);
                }
            }
            "additionalProperties" => {
                schema.additional = match value {
                    Value::Bool(true) => Additional::Any,
                    Value::Bool(false) => Additional::Unsaid,
                    below => Additional::Each(Box::new(self.schema(&here, below, place, deeper))),
                }
            }
            "items" => schema.items = Some(Box::new(self.schema(&here, value, place, deeper))),
            "required" => {
                let names = value.as_array().into_iter().flatten();
                schema.required = names.filter_map(Value::as_str).map(str::to_owned).collect();
            }
            "default" => schema.default = Some(value.clone()),
            "enum" => schema.options = value.as_array().cloned(),
            "x-kubernetes-list-type" | "x-kubernetes-list-map-keys" => {}
            "allOf" => schema.all_of = self.junctors(&here, value, deeper),
            "anyOf" => schema.any_of = self.junctors(&here, value, deeper),
            "oneOf" => schema.one_of = self.junctors(&here, value, deeper),
            "not" => schema.not = Some(Box::new(self.schema(&here, value, Place::Junctor, deeper))),
            "x-kubernetes-validations" => {
                let why =
                    "x-kubernetes-validations (CEL rules) are not supported by the standalone API server";
                if value.as_array().is_none_or(|rules| !rules.is_empty()) {
                    self.causes.push(Cause::forbidden(&here, why));
                }
            }
            other if LIMITS.contains(&other) || ANNOTATIONS.contains(&other) => {}
            other => {
                let why = format!("{other} is not supported in a structural schema");
                self.causes.push(Cause::forbidden(&here, &why));
            }
        }
    }

    fn junctors(&mut self, path: &str, value: &Value, depth: usize) -> Vec<Schema> {
        let schemas = value.as_array().into_iter().flatten().enumerate();
        schemas
            .map(|(index, below)| self.schema(&format!("{path}[{index}]"), below, Place::Junctor, depth))
            .collect()
    }

    fn named_type(&mut self, path: &str, value: &Value) -> Option<Type> {
        Some(match value.as_str() {
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            Some("") => return None,
            _ => {
                let known = ["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned);
                self.causes.push(Cause::unsupported(path, value, &known));
                return None;
            }
        })
    }

    fn constraints(&mut self, schema: &mut Schema, path: &str, fields: &Map<String, Value>) {
        let number = |name: &str| fields.get(name).and_then(Value::as_f64);
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
        schema.limits = Limits {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: fields
                .get("pattern")
                .and_then(|pattern| self.pattern(path, pattern)),
            format: fields
                .get("format")
                .and_then(Value::as_str)
                .and_then(Format::named),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        };
        schema.list = match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned);
                ListType::Map(keys.collect())
            }
            _ => ListType::Atomic,
        };
    }

    fn pattern(&mut self, path: &str, value: &Value) -> Option<Regex> {
        let why = match self.compiled(value.as_str()?) {
            Ok(pattern) => return Some(pattern),
            Err(why) => why,
        };
        self.causes
            .push(Cause::invalid(&child(path, "pattern"), value, &why));
        None
    }

    fn compiled(&mut self, text: &str) -> Result<Regex, String> {
        if self.patterns > PATTERNS {
            return Err(format!(
                "the patterns of a schema take at most {PATTERNS} bytes together"
            ));
        }
        let mut why = String::new();
        for size in PATTERN_SIZES {
            let mut builder = RegexBuilder::new(text);
            match builder.size_limit(size).dfa_size_limit(PATTERN_STATES).build() {
                Ok(pattern) => {
                    self.patterns += size;
                    return Ok(pattern);
                }
                Err(error) => why = format!("must be a valid regular expression: {error}"),
            }
        }
        Err(why)
    }

    /// What makes a schema structural: each level names its type.
    fn structure(&mut self, schema: &Schema, path: &str) {
        if schema.kind.is_none() && !schema.int_or_string && !schema.preserve_unknown {
            let field = child(path, "type");
            self.causes.push(Cause::required(
                &field,
                "must not be empty for specified object fields",
            ));
        }
        if schema.kind == Some(Type::Array) && schema.items.is_none() {
            self.causes
                .push(Cause::required(&child(path, "items"), "must be specified"));
        }
        if schema.limits.unique_items {
            let field = child(path, "uniqueItems");
            self.causes
                .push(Cause::forbidden(&field, "uniqueItems cannot be set to true"));
        }
        if let ListType::Map(keys) = &schema.list
            && keys.is_empty()
        {
            let field = child(path, "x-kubernetes-list-map-keys");
            self.causes.push(Cause::required(
                &field,
                "must not be empty if x-kubernetes-list-type is map",
            ));
        }
        if let Some(default) = &schema.default {
            let mut filled = default.clone();
            schema.fill_in(&mut filled);
            for cause in schema.validate(&filled, None) {
                let field = child(path, "default");
                let field = if cause.field.is_empty() {
                    field
                } else {
                    format!("{field}.{}", cause.field)
                };
                self.causes.push(Cause { field, ..cause });
            }
        }
    }
}

/// Fields that `constraints` reads.
const LIMITS: [&str; 14] = [
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];
