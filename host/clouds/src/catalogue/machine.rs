//! Machines that join a cluster, in the manner of Gardener's drivers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Named, change, fields, name, of, read, sealed, text};

/// Creates a machine.
pub const CREATE: &str = "machine.create";
/// Reads a machine.
pub const STATUS: &str = "machine.status";
/// Removes a machine.
pub const DELETE: &str = "machine.delete";

/// The name of the service, with its major version.
const SERVICE: &str = "machine@1";

/// The operations on machines.
pub fn operations(visible_within: Duration) -> Vec<Named> {
    let named = || fields(json!({"name": name(), "providerID": name()}), &["name"]);
    let operations = [
        create(visible_within),
        change(DELETE, "Removes a machine, at once.", named(), &[]),
        read(
            STATUS,
            "A machine, by the provider's id; without one, by name, which may lag behind.",
            named(),
            machine(),
        ),
    ];
    of(SERVICE, operations)
}

fn machine() -> Value {
    let machine = json!({
        "providerID": text(),
        "nodeName": text(),
        "lastKnownState": text(),
        "initialized": {"type": "boolean"},
    });
    fields(machine, &["providerID"])
}

fn create(visible_within: Duration) -> Named {
    let arguments = json!({
        "name": name(),
        "providerSpec": {"type": "object"},
        "userData": sealed(),
        "bootstrapToken": sealed(),
    });
    let description =
        "Makes a machine, stamped with its owner, whose node joins by itself. The intent is its name.";
    let arguments = fields(arguments, &["name"]);
    let sealed = ["userData", "bootstrapToken"];
    super::create(CREATE, description, arguments, machine(), visible_within, &sealed)
}
