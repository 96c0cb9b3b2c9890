//! VMs in the manner of vSphere.

use std::time::Duration;

use serde_json::json;

use super::{Named, create, fields, id, name, of, power, read, sealed, started, task, text};

/// Creates a VM.
pub const CLONE: &str = "vm.clone";
/// Finds a VM by its instance UUID.
pub const FIND: &str = "vm.find";
/// Reads a VM.
pub const GET: &str = "vm.get";
/// Reads the guest metadata of a VM.
pub const METADATA: &str = "vm.metadata";
/// Reads the NICs of a VM.
pub const NICS: &str = "vm.nics";
/// Reads the power state of a VM.
pub const POWER: &str = "vm.power";
/// Sets the guest metadata of a VM.
pub const RECONFIGURE: &str = "vm.reconfigure";
/// Turns a VM on.
pub const POWER_ON: &str = "vm.power-on";
/// Turns a VM off.
pub const POWER_OFF: &str = "vm.power-off";
/// Removes a VM.
pub const DESTROY: &str = "vm.destroy";

/// The name of the service, with its major version.
const SERVICE: &str = "vm@1";

/// The operations on VMs.
pub fn operations(visible_within: Duration) -> Vec<Named> {
    let all = reads().into_iter().chain(changes());
    of(SERVICE, all.chain([clone(visible_within)]))
}

fn reads() -> [Named; 5] {
    let power = power();
    let vm = || {
        let vm = json!({"id": text(), "name": text(), "instanceUuid": text(), "biosUuid": text()});
        fields(vm, &["id", "name", "instanceUuid", "biosUuid"])
    };
    let nic = json!({
        "network": text(),
        "mac": text(),
        "connected": {"type": "boolean"},
        "ips": {"type": "array", "items": text()},
    });
    let nics =
        json!({"nics": {"type": "array", "items": fields(nic, &["network", "mac", "connected", "ips"])}});
    let uuid = fields(json!({"instanceUuid": name()}), &["instanceUuid"]);
    [
        read(
            FIND,
            "The caller's own VM with this instance UUID. The answer may lag behind.",
            uuid,
            vm(),
        ),
        read(GET, "A VM.", id(), vm()),
        read(
            METADATA,
            "A VM's guest metadata; null if it never had any.",
            id(),
            fields(json!({"metadata": {"type": ["string", "null"]}}), &["metadata"]),
        ),
        read(
            NICS,
            "A VM's NICs in order, with the addresses that the guest reports.",
            id(),
            fields(nics, &["nics"]),
        ),
        read(
            POWER,
            "A VM's power state.",
            id(),
            fields(json!({"state": power}), &["state"]),
        ),
    ]
}

fn changes() -> [Named; 4] {
    let metadata = fields(json!({"id": name(), "metadata": text()}), &["id", "metadata"]);
    [
        task(
            RECONFIGURE,
            "Sets a VM's guest metadata, in any power state.",
            metadata,
        ),
        task(POWER_ON, "Turns a VM on.", id()),
        task(POWER_OFF, "Turns a VM off, without asking its guest.", id()),
        task(DESTROY, "Removes a VM that is not on.", id()),
    ]
}

fn clone(visible_within: Duration) -> Named {
    let count = json!({"type": "integer", "minimum": 1, "maximum": 1 << 30});
    let arguments = json!({
        "name": name(),
        "instanceUuid": name(),
        "template": name(),
        "datacenter": text(),
        "folder": text(),
        "datastore": text(),
        "resourcePool": text(),
        "cpus": count,
        "coresPerSocket": count,
        "memoryMiB": count,
        "diskGiB": count,
        // vSphere allows at most ten.
        "networks": {"type": "array", "items": name(), "maxItems": 10},
        "userData": sealed(),
    });
    let required = [
        "name",
        "instanceUuid",
        "template",
        "cpus",
        "coresPerSocket",
        "memoryMiB",
        "networks",
    ];
    let description =
        "Makes a VM from a template, powered off, stamped with its owner. The intent is its name.";
    create(
        CLONE,
        description,
        fields(arguments, &required),
        started(),
        visible_within,
        &["userData"],
    )
}
