//! The cluster that machines join: its API server, its bootstrap tokens, and kubeadm.

use polity_core::catalogue::Operation;
use serde_json::{Value, json};

use super::{Named, change, fields, of, on_machine, read, sealed, text, tier};

/// The operation that makes a cluster.
pub const INIT: &str = "kubeadm.init";
/// The operation by which a machine joins it.
pub const JOIN: &str = "kubeadm.join";
/// The operation that asks for the API server.
pub const PROBE: &str = "api-server.probe";
/// The operation that ends a bootstrap token.
pub const REVOKE: &str = "token.revoke";

/// The service, and its major version.
const SERVICE: &str = "cluster@1";

/// Everything about the cluster.
pub fn operations() -> Vec<Named> {
    let probed = json!({"answers": {"type": "boolean"}, "message": text()});
    let operations = [
        read(
            PROBE,
            "Whether the API server of the machines' cluster answers.",
            fields(json!({}), &[]),
            fields(probed, &["answers"]),
        ),
        change(
            REVOKE,
            "No machine joins with this bootstrap token any more.",
            fields(json!({"token": sealed()}), &["token"]),
            &["token"],
        ),
        on_machine(
            INIT,
            "Makes a machine the first node; already-exists where there is a cluster.",
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
    let description =
        "Makes a machine a node; joins the same work that runs; already-exists where it is one.";
    let (name, operation) = on_machine(JOIN, description, arguments, &["labels", "role", "token"]);
    let sealed = vec!["token".to_owned(), "certificateKey".to_owned()];
    (name, Operation { sealed, ..operation })
}
