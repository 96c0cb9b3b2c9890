//! Dropping fields that the schema does not know.

use serde_json::Value;

use super::{Additional, MOST, Path, Schema, shortened};

impl Schema {
    /// Drops unknown fields from `value`, and says the paths of the first.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        self.prune_at(&Path::ROOT, value, &mut unknown);
        unknown
    }

    fn prune_at(&self, path: &Path<'_>, value: &mut Value, unknown: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if fields.keys().any(|name| !self.knows(name)) {
                    let room = MOST.saturating_sub(unknown.len());
                    let strange = fields.keys().filter(|name| !self.knows(name)).take(room);
                    unknown.extend(strange.map(|name| shortened(path.field(name).to_string())));
                    fields.retain(|name, _| self.knows(name));
                }
                for (name, field) in fields {
                    if let Some(schema) = self.field(name) {
                        schema.prune_at(&path.field(name), field, unknown);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter_mut().enumerate() {
                        schema.prune_at(&path.item(index), item, unknown);
                    }
                }
            }
            _ => {}
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.preserve_unknown
            || self.properties.contains_key(name)
            || !matches!(self.additional, Additional::Unsaid)
            || (self.embedded && matches!(name, "apiVersion" | "kind" | "metadata"))
    }

    /// The schema of a field, where there is one.
    pub(super) fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Each(schema) => Some(schema),
            _ => None,
        })
    }
}
