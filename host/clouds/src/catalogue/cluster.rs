//! Operations that make machines the nodes of a cluster.

use polity_core::catalogue::Operation;
use serde_json::{Value, json};

use super::{Named, of, on_machine, sealed, text, tier};

/// Creates a cluster with its first node.
pub const INIT: &str = "kubeadm.init";
/// Joins a machine to the cluster.
pub const JOIN: &str = "kubeadm.join";

/// The name of the service, with its major version.
const SERVICE: &str = "cluster@1";

/// The operations that make a machine a node.
pub fn operations() -> Vec<Named> {
    let operations = [
        on_machine(
            INIT,
            "Makes a machine the first node of a cluster; already-exists if there is a cluster.",
            registration(),
            &["labels"],
        ),
        join(),
    ];
    of(SERVICE, operations)
}

fn registration() -> Value {
    json!({
        "labels": {"type": "object", "additionalProperties": text()},
        "taints": {"type": "array", "items": {"type": "object"}},
    })
}

fn join() -> Named {
    let mut arguments = registration();
    arguments["role"] = tier();
    arguments["token"] = sealed();
    arguments["certificateKey"] = sealed();
    let description = "Makes a machine a node. If the same join already runs, answers its task; already-exists if the machine is a node.";
    let (name, operation) = on_machine(JOIN, description, arguments, &["labels", "role", "token"]);
    let sealed = vec!["token".to_owned(), "certificateKey".to_owned()];
    (name, Operation { sealed, ..operation })
}
