//! Filling in defaults.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Brings a value that is stored into the form that this schema gives it.
    pub(crate) fn read(&self, value: &mut Value) {
        self.prune(value);
        self.fill_in(value);
    }

    /// Fills in defaults. A null where the schema allows none counts as absent, as in a real API server.
    pub(crate) fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.values().any(Value::is_null) {
                    fields.retain(|name, field| !field.is_null() || self.allows_null(name));
                }
                for (name, schema) in &self.properties {
                    if let (Some(default), false) = (&schema.default, fields.contains_key(name)) {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                for (name, field) in fields {
                    if let Some(schema) = self.field(name) {
                        schema.fill_in(field);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.fill_in(item));
                }
            }
            _ => {}
        }
    }

    /// A schema that says nothing about its value says nothing about null either.
    fn allows_null(&self, field: &str) -> bool {
        self.field(field)
            .is_none_or(|schema| schema.nullable || schema.kind.is_none())
    }
}
