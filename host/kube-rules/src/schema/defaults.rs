//! Filling in defaults.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Brings a stored value into the form that this schema gives it.
    pub fn read(&self, value: &mut Value) {
        self.prune(value);
        self.fill_in(value);
    }

    /// Fills in defaults. As in a real API server, a null counts as absent unless the schema allows null.
    pub fn fill_in(&self, value: &mut Value) {
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

    /// Whether a field may be null. A schema without constraints allows it.
    fn allows_null(&self, field: &str) -> bool {
        self.field(field)
            .is_none_or(|schema| schema.nullable || schema.types.is_empty())
    }
}
