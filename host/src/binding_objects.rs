//! PolicyBindings as objects of the cluster, before anything that they name is loaded.

use polity_cluster::Cluster;
use polity_core::binding::{API_VERSION, KIND};
use polity_core::contract::{Failure, Kind, ListQuery, Question};
use serde_json::Value;

/// The kind of bindings.
pub(crate) fn kind() -> Kind {
    Kind {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
    }
}

/// Whether a manifest is a PolicyBinding.
pub(crate) fn is_binding(object: &Value) -> bool {
    object["apiVersion"] == API_VERSION && object["kind"] == KIND
}

/// The bindings in the cluster.
///
/// # Errors
/// They cannot be read.
pub(crate) async fn standing(cluster: &Cluster) -> Result<Vec<Value>, Failure> {
    let query = ListQuery {
        latest: true,
        ..ListQuery::all(kind())
    };
    match cluster.read(&Question::Objects(query)).await? {
        Value::Array(bindings) => Ok(bindings),
        _ => Ok(Vec::new()),
    }
}
