//! Machines that join a cluster, in the manner of Gardener's drivers.

use std::time::Duration;

use polity_core::catalogue::Operation;
use serde_json::{Value, json};

use super::{Named, change, fields, name, of, read, sealed, text};

/// Creates a machine.
pub const CREATE: &str = "machine.create";
/// Reads a machine.
pub const STATUS: &str = "machine.status";
/// Removes a machine.
pub const DELETE: &str = "machine.delete";
/// Removes a machine of another owner that is gone. Its name has another prefix than the others, so that a grant of
/// `machine.*` does not include it.
pub const DELETE_ORPHAN: &str = "orphan.delete";
/// Does the setup that a machine needs after its creation.
pub const INITIALIZE: &str = "machine.initialize";
/// Lists the machines of a tenant.
pub const LIST: &str = "machine.list";
/// The cloud's ids of volumes.
pub const VOLUMES: &str = "machine.volumes";

/// The operations that a driver may leave out.
///
/// Source: the drivers of Gardener's machine-controller-manager, which answer `Unimplemented` to them. There the controller
/// deletes orphans by the operation with which it deletes machines.
pub const OPTIONAL: [&str; 5] = [STATUS, INITIALIZE, LIST, VOLUMES, DELETE_ORPHAN];

/// The name of the service, with its major version.
const SERVICE: &str = "machine@1";

/// The argument with the user data of a machine. It is sealed.
const USER_DATA: &str = "userData";

/// The operations on machines.
pub fn operations(visible_within: Duration) -> Vec<Named> {
    let initialize = "Does the setup that a machine needs after its creation. It may be repeated.";
    let orphan_deletion = "Removes a machine of the tenant at once, if it still belongs to this owner. The caller has made sure \
                           that the owner is gone.";
    let operations = [
        create(visible_within),
        change(DELETE, "Removes a machine at once.", known(), &[USER_DATA]),
        change(INITIALIZE, initialize, known(), &[USER_DATA]),
        change(DELETE_ORPHAN, orphan_deletion, orphan(), &[]),
        status(),
        list(),
        volumes(),
    ];
    of(SERVICE, operations)
}

fn status() -> Named {
    let description = "A machine, by its provider ID; without a provider ID by its name, and then the answer may lag behind.";
    let (name, operation) = read(STATUS, description, known(), machine());
    let sealed = vec![USER_DATA.to_owned()];
    (name, Operation { sealed, ..operation })
}

/// The arguments that identify a machine, with its class and the Secret of the class. From the class a driver also knows
/// where the machine is, and which setup it needs.
fn known() -> Value {
    let arguments = json!({
        "name": name(),
        "providerID": name(),
        "providerSpec": {"type": "object"},
        "userData": sealed(),
    });
    fields(arguments, &["name"])
}

/// The arguments that identify a machine of another owner.
fn orphan() -> Value {
    fields(
        json!({"providerID": name(), "owner": name()}),
        &["providerID", "owner"],
    )
}

/// Lists machines, so that a policy finds machines without an object.
fn list() -> Named {
    let machine = fields(
        json!({"name": text(), "providerID": name(), "owner": name()}),
        &["name", "providerID", "owner"],
    );
    let answer = fields(
        json!({"machines": {"type": "array", "items": machine}}),
        &["machines"],
    );
    let description = "All machines of the tenant, each with the uid of its owner; with an owner, at least all machines of that \
                       owner. The list may lag behind.";
    read(LIST, description, fields(json!({"owner": name()}), &[]), answer)
}

/// Names the volumes that the cloud attaches to machines. A drain waits until they are detached.
fn volumes() -> Named {
    let volumes = json!({"type": "array", "items": {"type": "object"}});
    let arguments = fields(json!({"volumes": volumes}), &["volumes"]);
    let ids = json!({"type": "array", "items": name()});
    let description = "The cloud's ids of the volumes that these specifications of PersistentVolumes name. \
                       Volumes of another kind are left out.";
    read(
        VOLUMES,
        description,
        arguments,
        fields(json!({"volumeIDs": ids}), &["volumeIDs"]),
    )
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
    let sealed = [USER_DATA, "bootstrapToken"];
    super::create(CREATE, description, arguments, machine(), visible_within, &sealed)
}
