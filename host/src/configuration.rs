//! Checks the configurations of policies against the schemas that policies bring. A schema is untrusted: it is compiled and
//! evaluated within the limits of [`polity_kube_rules::schema`].

use anyhow::{Result, anyhow};
use polity_core::contract::{Manifest, with_defaults};
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Value, json};

use crate::display::shortened;

/// The most characters of a policy's name in an error.
const NAME: usize = 253;

/// The configuration after the policy's schema has checked it and filled in defaults.
pub(crate) fn configuration(manifest: &Manifest, given: Option<&Value>) -> Result<Value> {
    let config = with_defaults(&manifest.config_schema, given);
    // A manifest without a schema accepts every configuration.
    let every = json!({});
    let schema = match &manifest.config_schema {
        Value::Null => &every,
        schema => schema,
    };
    let schema = compile(Dialect::Json, "configSchema", schema).map_err(|causes| {
        let name = shortened(&manifest.name, NAME);
        anyhow!("the schema of {name} is not valid: {causes}")
    })?;
    schema.check(&config)?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::Role;

    fn checked(schema: &Value, given: &Value) -> Result<Value, String> {
        let manifest =
            json!({"name": "p", "version": "1", "role": Role::Lifecycle.as_str(), "configSchema": schema});
        let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
        configuration(&manifest, Some(given)).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn a_configuration_is_filled_in_and_an_error_has_its_path() {
        let schema = json!({"properties": {
            "a": {"properties": {"b": {"type": "integer"}}},
            "c": {"type": "string", "default": "d"},
        }});
        assert_eq!(
            checked(&schema, &json!({"a": {"b": 1}})),
            Ok(json!({"a": {"b": 1}, "c": "d"}))
        );
        let wrong = checked(&schema, &json!({"a": {"b": "x"}}));
        assert_eq!(wrong, Err("a.b: must be an integer, not a string".to_owned()));
        let wrong = checked(&json!({"type": "object"}), &json!("x"));
        assert_eq!(
            wrong,
            Err("(document): must be an object, not a string".to_owned())
        );
        assert_eq!(checked(&Value::Null, &json!({"a": 1})), Ok(json!({"a": 1})));
    }

    #[test]
    fn a_schema_names_no_file_and_no_address() {
        for reference in [
            "#/$defs/a",
            "file:///etc/passwd",
            "http://127.0.0.1:1/schema",
            "other.json",
        ] {
            let wrong = checked(&json!({"$ref": reference}), &json!({})).expect_err("it names another");
            let why =
                "the schema of p is not valid: configSchema.$ref: Forbidden: references are not followed";
            assert!(wrong.starts_with(why), "{reference}: {wrong}");
        }
    }
}
