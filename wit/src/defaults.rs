//! Configurations of policies.

use serde_json::{Map, Value};

/// A policy's configuration as the policy gets it: the binding's, with the defaults from the schema in the
/// policy's manifest. A configuration that is not an object stays as it is.
pub fn with_defaults(schema: &Value, given: Option<&Value>) -> Value {
    let mut config = given.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let (Value::Object(config), Some(Value::Object(properties))) = (&mut config, schema.get("properties"))
    {
        for (name, schema) in properties {
            if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
                config.entry(name).or_insert_with(|| default.clone());
            }
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_given_stands_and_what_is_missing_is_the_default() {
        let schema = json!({"properties": {
            "period": {"default": "30s"}, "limit": {"default": 3}, "name": {"default": null}, "other": {},
        }});
        assert_eq!(
            with_defaults(&schema, Some(&json!({"limit": 5}))),
            json!({"limit": 5, "period": "30s"})
        );
        assert_eq!(with_defaults(&schema, None), json!({"limit": 3, "period": "30s"}));
        assert_eq!(with_defaults(&schema, Some(&json!(7))), json!(7));
    }
}
