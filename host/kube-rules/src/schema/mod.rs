//! Schemas: compiled once, then used to validate, and those of CRDs to prune and to default.
//!
//! A schema is read in one of two dialects. `Structural` is that of CRDs (apiextensions.k8s.io/v1), with the words of a real
//! API server. `Json` is the part of JSON Schema (2020-12) that schemars makes with inlined subschemas: for the
//! configurations of policies and drivers, and for the arguments and answers of clouds.
//!
//! # What the dialect `Json` understands
//!
//! | of | keywords |
//! |---|---|
//! | any value | `type` (a name or a list of names), `enum`, `const`, `allOf`, `anyOf`, `oneOf`, `not`, `true` and `false` as schemas |
//! | numbers | `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf` |
//! | strings | `minLength`, `maxLength`, `pattern` (of the crate [`regex`](https://docs.rs/regex), which never tracks back) |
//! | lists | `items`, `prefixItems`, `minItems`, `maxItems`, `uniqueItems` |
//! | objects | `properties`, `required`, `additionalProperties`, `propertyNames`, `minProperties`, `maxProperties` |
//! | `format` | `int8` to `int64`, `uint8` to `uint64`, `byte`, `date`, `date-time`, `uuid`, `ipv4`, `ipv6`, `cidr`; another format is no constraint |
//! | people | `title`, `description`, `default`, `example`, `examples`, `deprecated`, `readOnly`, `writeOnly`, `$schema`, `$id`, `$comment`, `content…`, `x-…`: no constraints |
//!
//! Another keyword is refused by name, and so is a reference: a schema inlines what it is made of.
//!
//! # Guarantees
//!
//! In the dialect `Json` neither the schema nor the value is trusted. A schema has limits for its depth, its subschemas and
//! its patterns. To check a value takes at most [a million steps](Schema::check) and some for each part of the value, whatever
//! the schema is. Messages quote the schema and never the value, which may be a tenant's.

mod cause;
mod compile;
mod defaults;
mod format;
mod path;
mod prune;
#[cfg(test)]
mod tests;
mod validate;
mod words;

use std::collections::BTreeMap;

use serde_json::Value;

pub use cause::{Cause, Causes};
pub use compile::compile;
pub use path::{MOST, shortened};

use compile::Pattern;
use format::Format;
use path::Path;

/// How a schema is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The structural schema of a CRD.
    Structural,
    /// JSON Schema without references.
    Json,
}

/// A compiled schema. `Schema::default()` allows every value.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The types that the value may have; every type if there are none.
    types: Vec<Type>,
    /// Null is a value like any other (`Dialect::Json`). Otherwise a schema without a type allows it.
    exact: bool,
    /// No value is valid: the schema `false`.
    never: bool,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    /// The value is itself an object with apiVersion, kind and metadata.
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Additional,
    /// The schema of the names of fields.
    names: Option<Box<Schema>>,
    /// The schemas of the first items.
    prefix: Vec<Schema>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    options: Option<Options>,
    constant: Option<Options>,
    limits: Limits,
    list: ListType,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// The values that a schema allows, and what it costs to compare with all of them.
#[derive(Clone, Debug)]
struct Options {
    values: Vec<Value>,
    steps: u64,
}

/// The JSON types that a schema can name; `null` only in the dialect `Json`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }
}

/// The fields that an object may have beside its `properties`.
#[derive(Clone, Debug, Default)]
enum Additional {
    /// Not said: they are pruned, unless unknown fields are preserved.
    #[default]
    Unsaid,
    /// `additionalProperties: true`
    Any,
    /// None: `additionalProperties: false` in the dialect `Json`.
    Refused,
    /// `additionalProperties: {...}`
    Each(Box<Schema>),
}

/// `x-kubernetes-list-type`
#[derive(Clone, Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    /// With `x-kubernetes-list-map-keys`.
    Map(Vec<String>),
}

/// Bounds on a value; which of them apply depends on its type.
#[derive(Clone, Debug, Default)]
struct Limits {
    minimum: Option<f64>,
    exclusive_minimum: bool,
    maximum: Option<f64>,
    exclusive_maximum: bool,
    /// A number that must be exceeded (`exclusiveMinimum` in the dialect `Json`).
    above: Option<f64>,
    below: Option<f64>,
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    pattern: Option<Pattern>,
    format: Option<Format>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    unique_items: bool,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
}

impl Schema {
    /// The same, with a property added or replaced.
    pub fn with(mut self, name: &str, schema: Schema) -> Self {
        self.properties.insert(name.to_owned(), schema);
        self
    }

    /// A string.
    pub fn string() -> Self {
        Self {
            types: vec![Type::String],
            ..Self::default()
        }
    }
}
