//! Which bindings and namespaces a host is for. Hosts with other leases may stand beside it, for the others.

use std::sync::Arc;

use polity_cluster::Cluster;
use polity_core::binding::{BindingSpec, Grant};
use polity_core::contract::Kind;
use polity_core::object::Object;
use polity_kube_rules::labels::LabelSelector;

/// Which bindings and namespaces a host is for. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Objects of these namespaces are watched and governed; none: of all.
    pub namespaces: Option<Arc<[String]>>,
    /// Bindings with these labels.
    pub bindings: LabelSelector,
}

impl Selection {
    /// Whether a binding is for this host. One that is not is left alone: its status too.
    pub(crate) fn takes(&self, binding: &Object) -> bool {
        let labels = binding.at("metadata.labels").unwrap_or_default();
        let own = binding.str_at("spec.governs.namespace");
        self.bindings.matches_labels(&labels) && own.is_none_or(|own| self.covers(&own))
    }

    /// Why a binding reaches beyond the namespaces of this host; `None` if it does not. What the cluster does not show now is
    /// found out later, when it is read.
    pub(crate) async fn problem(&self, cluster: &Cluster, spec: &BindingSpec) -> Option<String> {
        let namespaces = self.namespaces.as_ref()?.join(", ");
        let here = format!("this host is for the namespaces {namespaces} (--namespace)");
        let governs = spec.governs.kind();
        if is_namespaced(cluster, &governs).await == Some(false) {
            let kind = governs.kind;
            return Some(format!("spec.governs: {kind} lives in no namespace, and {here}"));
        }
        for (index, grant) in spec.grants.iter().enumerate() {
            let (kind, named) = match grant {
                Grant::Ask(of)
                | Grant::Create(of)
                | Grant::Patch(of)
                | Grant::Delete(of)
                | Grant::Evict(of) => (Some(of.kind()), of.namespaces.as_deref()),
                Grant::Secrets(of) => (None, of.namespaces.as_deref()),
                _ => (None, None),
            };
            let beside = named.into_iter().flatten().find(|name| !self.covers(name));
            let Some(beside) = beside else { continue };
            // What lives in no namespace is granted with `*`.
            let is_elsewhere = match kind {
                Some(kind) => is_namespaced(cluster, &kind).await == Some(true),
                None => true,
            };
            if is_elsewhere {
                return Some(format!(
                    "spec.grants[{index}].namespaces: {beside:?} is not covered: {here}"
                ));
            }
        }
        None
    }

    fn covers(&self, namespace: &str) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|all| all.iter().any(|one| one == namespace))
    }
}

async fn is_namespaced(cluster: &Cluster, kind: &Kind) -> Option<bool> {
    cluster.served(kind).await.ok().map(|(_, namespaced)| namespaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn binding(labels: Value, namespace: Option<&str>) -> Object {
        Object::new(json!({
            "metadata": {"name": "b", "labels": labels},
            "spec": {"governs": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace}},
        }))
    }

    #[test]
    fn a_host_takes_the_bindings_with_its_labels_and_in_its_namespaces() {
        let everything = Selection::default();
        assert!(everything.takes(&binding(Value::Null, Some("c"))));
        let selection = Selection {
            namespaces: Some(Arc::from(["a".to_owned(), "b".to_owned()])),
            bindings: "team=red".parse().expect("a selector"),
        };
        assert!(selection.takes(&binding(json!({"team": "red"}), None)));
        assert!(selection.takes(&binding(json!({"team": "red"}), Some("b"))));
        assert!(!selection.takes(&binding(json!({"team": "red"}), Some("c"))));
        assert!(!selection.takes(&binding(json!({"team": "blue"}), None)));
        assert!(!selection.takes(&binding(Value::Null, None)));
    }
}
