//! Compiles the JSON of a schema to a `Schema`. Features that a dialect does not have are refused by name.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::validate::CAUSES;
use super::{Additional, Cause, Causes, Dialect, Format, Limits, ListType, Options, Path, Schema, Type};

/// The sizes that a compiled pattern may have, in bytes. Everybody who may write schemas can write patterns.
/// Small sizes are tried first, because the regex crate does not tell how large a pattern became.
const PATTERN_SIZES: [usize; 5] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
/// The limit for the states that one pattern remembers.
const PATTERN_STATES: usize = 1 << 18;
/// The limit for the depth of schemas. A deeper schema would overflow the stack, and no schema in use comes
/// near.
const DEPTH: usize = 64;
/// The limit for the subschemas of a schema in the dialect `Json`. The largest that is shipped, the configuration of the
/// simulation, has some hundred.
const NODES: usize = 10_000;

/// The limits for the patterns of one schema.
struct PatternLimits {
    /// The bytes of all compiled patterns.
    compiled: usize,
    /// The bytes of the text of one pattern.
    text: usize,
    /// The bytes of the text of all patterns.
    texts: usize,
}

impl Dialect {
    fn patterns(self) -> PatternLimits {
        match self {
            // Those of large CRDs in use take a tenth of it.
            Dialect::Structural => PatternLimits {
                compiled: 16 << 20,
                text: usize::MAX,
                texts: usize::MAX,
            },
            // A class of Unicode takes two bytes of text and some microseconds to read. Shipped patterns have some ten bytes.
            Dialect::Json => PatternLimits {
                compiled: 4 << 20,
                text: 1 << 10,
                texts: 16 << 10,
            },
        }
    }
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// What it costs to match 64 bytes of text. A large pattern may need a look at each of its states for each byte.
    pub(super) steps_of_64_bytes: u64,
}

/// Fields that do not constrain the value of a CRD.
const ANNOTATIONS: [&str; 6] = [
    "description",
    "title",
    "example",
    "externalDocs",
    "x-kubernetes-map-type",
    "$schema",
];

/// Keywords of JSON Schema that do not constrain the value.
const JSON_ANNOTATIONS: [&str; 14] = [
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "$schema",
    "$id",
    "$comment",
];

/// Keywords that lead to another schema.
const REFERENCES: [&str; 9] = [
    "$ref",
    "$defs",
    "definitions",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
];

/// Compiles the schema at `path` of the document that holds it. All errors of a structural schema are returned together, and
/// the first 20 of another.
pub fn compile(dialect: Dialect, path: &str, schema: &Value) -> Result<Schema, Causes> {
    let mut compiler = Compiler {
        dialect,
        causes: Vec::new(),
        patterns: 0,
        texts: 0,
        nodes: 0,
    };
    let compiled = compiler.schema(&Path::root(path), schema, Place::Structure, 0);
    Causes::none_or(compiler.causes).map(|()| compiled)
}

/// Below `allOf`, `anyOf`, `oneOf` and `not` a structural schema only adds constraints: it names no types.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Structure,
    Junctor,
}

struct Compiler {
    dialect: Dialect,
    causes: Vec<Cause>,
    /// Bytes of all compiled patterns so far, and of those that were given up.
    patterns: usize,
    /// Bytes of the texts of all patterns so far.
    texts: usize,
    nodes: usize,
}

impl Compiler {
    fn schema(&mut self, path: &Path<'_>, json: &Value, place: Place, depth: usize) -> Schema {
        let is_json = self.dialect == Dialect::Json;
        if is_json && self.causes.len() >= CAUSES {
            return Schema::default();
        }
        if let (true, Value::Bool(allows)) = (is_json, json) {
            return Schema {
                exact: true,
                never: !allows,
                ..Schema::default()
            };
        }
        let Some(fields) = json.as_object() else {
            self.invalid(path, json, "must be an object");
            return Schema::default();
        };
        if depth > DEPTH {
            self.forbidden(path, &format!("schemas nest at most {DEPTH} deep"));
            return Schema::default();
        }
        self.nodes += 1;
        if is_json && self.nodes > NODES {
            // Said once: nothing after it is looked at.
            if self.nodes == NODES + 1 {
                let why = format!("a schema has at most {NODES} subschemas");
                self.forbidden(path, &why);
            }
            return Schema::default();
        }
        let mut schema = Schema {
            exact: is_json,
            ..Schema::default()
        };
        for (name, value) in fields {
            self.field(&mut schema, path, (name, value), place, depth);
        }
        self.constraints(&mut schema, path, fields);
        if place == Place::Structure && !is_json {
            self.structure(&schema, path);
        }
        schema
    }

    fn field(
        &mut self,
        schema: &mut Schema,
        path: &Path<'_>,
        (name, value): (&String, &Value),
        place: Place,
        depth: usize,
    ) {
        let here = path.field(name);
        let deeper = depth + 1;
        match name.as_str() {
            "type" => schema.types = self.types(&here, value),
            "properties" => {
                self.expect(value.is_object(), &here, value, "must be an object");
                for (key, below) in value.as_object().into_iter().flatten() {
                    let below = self.schema(&here.key(key), below, place, deeper);
                    schema.properties.insert(key.clone(), below);
                }
            }
            "additionalProperties" => {
                schema.additional = match (value, self.dialect) {
                    (Value::Bool(true), _) => Additional::Any,
                    (Value::Bool(false), Dialect::Structural) => Additional::Unsaid,
                    (Value::Bool(false), Dialect::Json) => Additional::Refused,
                    (below, _) => Additional::Each(Box::new(self.schema(&here, below, place, deeper))),
                }
            }
            "items" => schema.items = Some(Box::new(self.schema(&here, value, place, deeper))),
            "required" => {
                let names = value.as_array().into_iter().flatten();
                schema.required = names.filter_map(Value::as_str).map(str::to_owned).collect();
                let are_all = value.as_array().map(Vec::len) == Some(schema.required.len());
                self.expect(are_all, &here, value, "must be a list of names");
            }
            "enum" => {
                self.expect(value.is_array(), &here, value, "must be a list");
                schema.options = value.as_array().cloned().map(Options::new);
            }
            "allOf" => schema.all_of = self.junctors(&here, value, deeper),
            "anyOf" => schema.any_of = self.junctors(&here, value, deeper),
            "oneOf" => schema.one_of = self.junctors(&here, value, deeper),
            "not" => schema.not = Some(Box::new(self.schema(&here, value, Place::Junctor, deeper))),
            other if LIMITS.contains(&other) => {}
            _ => match self.dialect {
                Dialect::Structural => self.structural_field(schema, &here, name, value),
                Dialect::Json => self.json_field(schema, &here, (name, value), deeper),
            },
        }
    }

    /// A field that only the schemas of CRDs have.
    fn structural_field(&mut self, schema: &mut Schema, here: &Path<'_>, name: &str, value: &Value) {
        match name {
            "nullable" => schema.nullable = value == true,
            "default" => schema.default = Some(value.clone()),
            "x-kubernetes-int-or-string" => schema.int_or_string = value == true,
            "x-kubernetes-preserve-unknown-fields" => schema.preserve_unknown = value == true,
            "x-kubernetes-embedded-resource" => schema.embedded = value == true,
            "x-kubernetes-list-type" | "x-kubernetes-list-map-keys" => {}
            "x-kubernetes-validations" => {
                let why =
                    "x-kubernetes-validations (CEL rules) are not supported by the standalone API server";
                if value.as_array().is_none_or(|rules| !rules.is_empty()) {
                    self.forbidden(here, why);
                }
            }
            other if ANNOTATIONS.contains(&other) => {}
            other => self.forbidden(here, &format!("{other} is not supported in a structural schema")),
        }
    }

    /// A field that the schemas of CRDs do not have, or that constrains nothing elsewhere.
    fn json_field(
        &mut self,
        schema: &mut Schema,
        here: &Path<'_>,
        (name, value): (&String, &Value),
        deeper: usize,
    ) {
        match name.as_str() {
            "const" => schema.constant = Some(Options::new(vec![value.clone()])),
            "propertyNames" => {
                schema.names = Some(Box::new(self.schema(here, value, Place::Structure, deeper)));
            }
            "prefixItems" => schema.prefix = self.junctors(here, value, deeper),
            other if JSON_ANNOTATIONS.contains(&other) || other.starts_with("x-") => {}
            other if REFERENCES.contains(&other) => self.forbidden(
                here,
                "references are not followed: a schema inlines what it is made of, as the SDK's Manifest::config does, so a \
                 type cannot contain itself",
            ),
            other => self.forbidden(here, &format!("the keyword {} is not known", cut(other))),
        }
    }

    fn junctors(&mut self, path: &Path<'_>, value: &Value, depth: usize) -> Vec<Schema> {
        let is_list = value.as_array().is_some_and(|all| !all.is_empty());
        self.expect(is_list, path, value, "must be a list of schemas");
        let schemas = value.as_array().into_iter().flatten().enumerate();
        schemas
            .map(|(index, below)| self.schema(&path.item(index), below, Place::Junctor, depth))
            .collect()
    }

    fn types(&mut self, path: &Path<'_>, value: &Value) -> Vec<Type> {
        match (self.dialect, value) {
            (Dialect::Json, Value::Array(names)) if !names.is_empty() => {
                let mut types: Vec<Type> = Vec::new();
                for kind in names.iter().filter_map(|name| self.named_type(path, name)) {
                    if !types.contains(&kind) {
                        types.push(kind);
                    }
                }
                types
            }
            _ => self.named_type(path, value).into_iter().collect(),
        }
    }

    fn named_type(&mut self, path: &Path<'_>, value: &Value) -> Option<Type> {
        Some(match (value.as_str(), self.dialect) {
            (Some("object"), _) => Type::Object,
            (Some("array"), _) => Type::Array,
            (Some("string"), _) => Type::String,
            (Some("integer"), _) => Type::Integer,
            (Some("number"), _) => Type::Number,
            (Some("boolean"), _) => Type::Boolean,
            (Some("null"), Dialect::Json) => Type::Null,
            (Some(""), Dialect::Structural) => return None,
            _ => {
                let known = ["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned);
                let at = self.text_of(path);
                self.refuse(Cause::unsupported(&at, value, &known));
                return None;
            }
        })
    }

    fn constraints(&mut self, schema: &mut Schema, path: &Path<'_>, fields: &Map<String, Value>) {
        let is_json = self.dialect == Dialect::Json;
        let format = fields.get("format").and_then(Value::as_str);
        schema.limits = Limits {
            minimum: self.number(path, fields, "minimum"),
            // A flag of OpenAPI, and a number of JSON Schema.
            exclusive_minimum: !is_json && self.flag(path, fields, "exclusiveMinimum"),
            maximum: self.number(path, fields, "maximum"),
            exclusive_maximum: !is_json && self.flag(path, fields, "exclusiveMaximum"),
            above: is_json
                .then(|| self.number(path, fields, "exclusiveMinimum"))
                .flatten(),
            below: is_json
                .then(|| self.number(path, fields, "exclusiveMaximum"))
                .flatten(),
            multiple_of: self.number(path, fields, "multipleOf"),
            min_length: self.count(path, fields, "minLength"),
            max_length: self.count(path, fields, "maxLength"),
            pattern: fields
                .get("pattern")
                .and_then(|pattern| self.pattern(path, pattern)),
            format: format.and_then(|name| Format::named(self.dialect, name)),
            min_items: self.count(path, fields, "minItems"),
            max_items: self.count(path, fields, "maxItems"),
            unique_items: self.flag(path, fields, "uniqueItems"),
            min_properties: self.count(path, fields, "minProperties"),
            max_properties: self.count(path, fields, "maxProperties"),
        };
        if is_json {
            return;
        }
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

    fn number(&mut self, path: &Path<'_>, fields: &Map<String, Value>, name: &str) -> Option<f64> {
        let value = fields.get(name)?;
        self.expect(value.is_number(), &path.field(name), value, "must be a number");
        value.as_f64()
    }

    fn count(&mut self, path: &Path<'_>, fields: &Map<String, Value>, name: &str) -> Option<u64> {
        let value = fields.get(name)?;
        self.expect(value.is_u64(), &path.field(name), value, "must be a whole number");
        value.as_u64()
    }

    fn flag(&mut self, path: &Path<'_>, fields: &Map<String, Value>, name: &str) -> bool {
        let Some(value) = fields.get(name) else {
            return false;
        };
        self.expect(
            value.is_boolean(),
            &path.field(name),
            value,
            "must be true or false",
        );
        value == true
    }

    fn pattern(&mut self, path: &Path<'_>, value: &Value) -> Option<Pattern> {
        let Some(text) = value.as_str() else {
            self.expect(false, &path.field("pattern"), value, "must be a string");
            return None;
        };
        match self.compiled(text) {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                self.invalid(&path.field("pattern"), value, &why);
                None
            }
        }
    }

    fn compiled(&mut self, text: &str) -> Result<Pattern, String> {
        let limits = self.dialect.patterns();
        self.texts = self.texts.saturating_add(text.len());
        if text.len() > limits.text {
            let bytes = text.len();
            return Err(format!(
                "a pattern has at most {} bytes, and this has {bytes}",
                limits.text
            ));
        }
        if self.texts > limits.texts {
            return Err(format!(
                "the patterns of a schema have at most {} bytes together",
                limits.texts
            ));
        }
        if self.patterns > limits.compiled {
            let most = limits.compiled;
            return Err(format!(
                "the patterns of a schema take at most {most} bytes together"
            ));
        }
        let mut why = String::new();
        for size in PATTERN_SIZES {
            let mut builder = RegexBuilder::new(text);
            match builder.size_limit(size).dfa_size_limit(PATTERN_STATES).build() {
                Ok(regex) => {
                    self.patterns += size;
                    return Ok(Pattern {
                        regex,
                        steps_of_64_bytes: size as u64 >> 7,
                    });
                }
                Err(error) => {
                    why = format!("must be a valid regular expression: {error}");
                    if !matches!(error, regex::Error::CompiledTooBig(_)) {
                        return Err(why);
                    }
                }
            }
        }
        // What is too large took the time of the largest.
        self.patterns += PATTERN_SIZES[PATTERN_SIZES.len() - 1];
        Err(why)
    }

    /// What makes a schema structural: each level names its type.
    fn structure(&mut self, schema: &Schema, path: &Path<'_>) {
        if schema.types.is_empty() && !schema.int_or_string && !schema.preserve_unknown {
            self.required(path, "type", "must not be empty for specified object fields");
        }
        if schema.types.contains(&Type::Array) && schema.items.is_none() {
            self.required(path, "items", "must be specified");
        }
        if schema.limits.unique_items {
            self.forbidden(&path.field("uniqueItems"), "uniqueItems cannot be set to true");
        }
        if let ListType::Map(keys) = &schema.list
            && keys.is_empty()
        {
            let why = "must not be empty if x-kubernetes-list-type is map";
            self.required(path, "x-kubernetes-list-map-keys", why);
        }
        if let Some(default) = &schema.default {
            let mut filled = default.clone();
            schema.fill_in(&mut filled);
            for cause in schema.validate(&filled, None) {
                let field = path.field("default").to_string();
                let field = match cause.field.as_str() {
                    "" => field,
                    below => format!("{field}.{below}"),
                };
                self.refuse(Cause { field, ..cause });
            }
        }
    }

    /// Refuses a keyword of JSON Schema whose value has the wrong form. An API server reads over such a keyword of a CRD.
    fn expect(&mut self, is_good: bool, path: &Path<'_>, value: &Value, why: &str) {
        if !is_good && self.dialect == Dialect::Json {
            self.invalid(path, value, why);
        }
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, why: &str) {
        let at = self.text_of(path);
        self.refuse(Cause::invalid(&at, value, why));
    }

    fn forbidden(&mut self, path: &Path<'_>, why: &str) {
        let at = self.text_of(path);
        self.refuse(Cause::forbidden(&at, why));
    }

    fn required(&mut self, path: &Path<'_>, field: &str, why: &str) {
        self.refuse(Cause::required(&path.field(field).to_string(), why));
    }

    fn text_of(&self, path: &Path<'_>) -> String {
        match self.dialect {
            Dialect::Structural => path.to_string(),
            Dialect::Json => path.named(),
        }
    }

    fn refuse(&mut self, cause: Cause) {
        if self.dialect == Dialect::Structural || self.causes.len() < CAUSES {
            self.causes.push(cause);
        }
    }
}

/// A name for a message.
fn cut(name: &str) -> String {
    const SHOWN: usize = 80;
    name.chars().take(SHOWN).collect()
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
