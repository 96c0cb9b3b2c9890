//! Structural schemas (apiextensions.k8s.io/v1): compiled once, then used to prune, default and validate.

mod cause;
mod compile;
mod defaults;
mod format;
mod path;
mod prune;
mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

pub use cause::Cause;
pub use compile::compile;
pub use path::{MOST, shortened};

use format::Format;
use path::{Path, child};

/// A compiled schema. `Schema::default()` allows every value.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    kind: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    preserve_unknown: bool,
    /// The value is itself an object with apiVersion, kind and metadata.
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Additional,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    options: Option<Vec<Value>>,
    limits: Limits,
    list: ListType,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// The JSON types that a structural schema can name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
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
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    pattern: Option<Regex>,
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
            kind: Some(Type::String),
            ..Self::default()
        }
    }
}
