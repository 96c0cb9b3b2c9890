//! Pools of machines, which kubeadm makes a cluster.

use std::time::Duration;

use polity_core::catalogue::OperationEffect;
use serde_json::{Value, json};

use super::{Named, create, fields, name, of, on_machine, operation, read, text, tier};

/// Adds a machine to a pool.
pub const ADD: &str = "pool.add-machine";
/// Lists pools.
pub const LIST: &str = "pool.list";
/// Creates the infrastructure of pools.
pub const ENSURE: &str = "pool.ensure";
/// Lists the machines of pools.
pub const MACHINES: &str = "pool.machines";
/// Removes a machine.
pub const REMOVE: &str = "pool.remove-machine";
/// Installs the node agent on a machine.
pub const INSTALL: &str = "agent.install";

/// The name of the service, with its major version.
const SERVICE: &str = "pool@1";

/// The operations on pools, and the operation that installs agents on their machines.
pub fn operations(visible_within: Duration) -> Vec<Named> {
    let pools = fields(json!({"pools": {"type": "array", "items": pool()}}), &["pools"]);
    let machines = fields(
        json!({"machines": {"type": "array", "items": machine()}}),
        &["machines"],
    );
    let operations = [
        read(
            LIST,
            "The caller's pools, with their addresses.",
            nothing(),
            pools,
        ),
        ensure(),
        read(
            MACHINES,
            "The machines of the caller's pools. The list may lag behind.",
            nothing(),
            machines,
        ),
        add(visible_within),
        on_machine(
            REMOVE,
            "Undoes the changes of kubeadm on a machine, and destroys the machine.",
            json!({}),
            &[],
        ),
        on_machine(
            INSTALL,
            "Installs the node agent with the initial versions. If the same installation already runs, answers its task.",
            json!({"versions": versions(), "release": name()}),
            &["versions"],
        ),
    ];
    of(SERVICE, operations)
}

fn nothing() -> Value {
    fields(json!({}), &[])
}

fn pool() -> Value {
    fields(
        json!({"pool": name(), "addresses": {"type": "array", "items": text()}}),
        &["pool"],
    )
}

fn machine() -> Value {
    let machine = json!({
        "id": name(), "name": name(), "pool": name(), "tier": tier(), "providerID": name(), "nodeName": name(),
        "agent": {"enum": ["absent", "running", "initialized"]}, "agentRelease": text(),
        "replacementRequired": {"type": "boolean"},
    });
    fields(
        machine,
        &["id", "name", "pool", "tier", "providerID", "nodeName", "agent"],
    )
}

fn ensure() -> Named {
    let wanted = fields(
        json!({"pool": name(), "provider": text(), "tier": tier()}),
        &["pool", "tier"],
    );
    let arguments = fields(json!({"pools": {"type": "array", "items": wanted}}), &["pools"]);
    let description = "Creates the infrastructure of pools. Existing pools stay as they are.";
    let operation = operation(
        description,
        OperationEffect::Change,
        arguments,
        nothing(),
        super::SEEN_AT_ONCE,
    );
    (ENSURE, operation)
}

fn add(visible_within: Duration) -> Named {
    let arguments = fields(
        json!({"name": name(), "pool": name(), "tier": tier()}),
        &["name", "pool", "tier"],
    );
    let description = "Adds a machine to a pool, stamped with its owner. The intent is its name.";
    create(ADD, description, arguments, machine(), visible_within, &[])
}

/// Versions by package.
fn versions() -> Value {
    json!({"type": "object", "additionalProperties": name()})
}
