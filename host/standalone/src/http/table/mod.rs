//! The `Table` form (meta/v1) in which kubectl shows objects.

mod jsonpath;

use jiff::Timestamp;
use polity_kube_rules::time::age;
use serde_json::{Value, json};

pub(crate) use jsonpath::JsonPath;

/// A column beside the name.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// string, integer, number, boolean or date
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// Columns with a priority above 0 are shown by `-o wide` only.
    pub(crate) priority: i64,
    pub(crate) path: JsonPath,
    /// The cell of an object without a value.
    pub(crate) absent: Value,
}

impl Column {
    /// A column of a builtin kind.
    ///
    /// # Panics
    /// The path does not parse.
    pub(crate) fn new(name: &str, kind: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            path: path.parse().expect("the paths of builtin columns are our own"),
            absent: Value::Null,
        }
    }

    /// A column with the age of the object.
    pub(crate) fn age() -> Self {
        Self::new("Age", "date", ".metadata.creationTimestamp")
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// The cell of an object. Null is shown as `<none>`. A value that has another type than the column
    /// becomes null.
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object);
        let Some(&first) = found.first() else {
            return self.absent.clone();
        };
        match self.kind.as_str() {
            "integer" => first.as_i64().or_else(|| first.as_f64().map(|f| f as i64)).into(),
            "number" => first.as_f64().into(),
            "boolean" => first.as_bool().into(),
            "date" => since(first, now),
            _ if found.len() > 1 => found
                .iter()
                .map(|v| plain(v))
                .collect::<Vec<_>>()
                .join(",")
                .into(),
            _ if first.is_null() => Value::Null,
            _ => plain(first).into(),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn since(value: &Value, now: Timestamp) -> Value {
    let Some(text) = value.as_str() else {
        return Value::Null;
    };
    text.parse::<Timestamp>()
        .map_or_else(|_| json!("<invalid>"), |time| json!(age(time, now)))
}

/// How much of each object a row contains: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

/// The definitions of all columns, the name first.
pub(crate) fn definitions(columns: &[Column]) -> Vec<Value> {
    let name = json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "The name, unique within its namespace.",
        "priority": 0,
    });
    std::iter::once(name)
        .chain(columns.iter().map(Column::definition))
        .collect()
}

/// The row of an object.
pub(crate) fn row(columns: &[Column], object: &Value, include: Include, now: Timestamp) -> Value {
    let name = object["metadata"]["name"].clone();
    let cells: Vec<Value> = std::iter::once(name)
        .chain(columns.iter().map(|column| column.cell(object, now)))
        .collect();
    match include {
        Include::None => json!({ "cells": cells }),
        Include::Metadata => json!({ "cells": cells, "object": partial(object) }),
        Include::Object => json!({ "cells": cells, "object": object }),
    }
}

/// The metadata of an object alone.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_type_of_its_column() {
        let object = json!({
            "metadata": { "creationTimestamp": "1970-01-01T00:00:00Z" },
            "spec": { "n": 3, "text": "three", "on": true, "list": ["a", "b"] },
        });
        let now = Timestamp::from_second(90).unwrap();
        let cell = |kind: &str, path: &str| Column::new("c", kind, path).cell(&object, now);
        assert_eq!(cell("integer", ".spec.n"), json!(3));
        assert_eq!(cell("integer", ".spec.text"), Value::Null);
        assert_eq!(cell("boolean", ".spec.on"), json!(true));
        assert_eq!(cell("string", ".spec.n"), json!("3"));
        assert_eq!(cell("string", ".spec.list[*]"), json!("a,b"));
        assert_eq!(cell("date", ".metadata.creationTimestamp"), json!("90s"));
        assert_eq!(cell("string", ".spec.none"), Value::Null);
    }
}
