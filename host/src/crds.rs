//! The CustomResourceDefinitions that a host needs: its own, and those that policies carry.

use serde_json::Value;

/// The CRD of PolicyBinding.
pub fn policy_binding() -> Value {
    // The file is part of this source and covered by a test.
    serde_yaml_ng::from_str(include_str!("policybinding.yaml")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_of_bindings_is_one() {
        let crd = super::policy_binding();
        assert_eq!(crd["metadata"]["name"], "policybindings.polity.dev");
        assert!(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].is_object());
    }
}
