//! The grants of `capa-identity`, as its README lists them.

use serde_json::{Value, json};

/// The `apiVersion` of its kinds.
pub const CAPA: &str = "capa.polity.dev/v1alpha1";

/// What its README asks for.
pub fn grants() -> Vec<Value> {
    let everywhere = |kind: &str| json!({"apiVersion": CAPA, "kind": kind, "namespaces": ["*"]});
    let mut default = everywhere("AWSClusterControllerIdentity");
    default["name"] = "default".into();
    vec![
        json!({"credential": true}),
        json!({"serviceAccounts": ["*"]}),
        json!({"secrets": {"namespaces": ["capa-system"]}}),
        json!({"ask": {"apiVersion": "v1", "kind": "Namespace", "namespaces": ["*"], "fields": ["metadata.labels"]}}),
        json!({"ask": {"apiVersion": CAPA, "kind": "AWSCluster"}}),
        json!({"ask": {"apiVersion": CAPA, "kind": "AWSServiceAccountIdentity"}}),
        json!({"ask": everywhere("AWSClusterControllerIdentity")}),
        json!({"ask": everywhere("AWSClusterStaticIdentity")}),
        json!({"ask": everywhere("AWSClusterRoleIdentity")}),
        json!({"create": default}),
        json!({"write": ["metadata.ownerReferences"]}),
    ]
}
