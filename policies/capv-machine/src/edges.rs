//! The manifest, and the arrows of the drawing.

use polity_sdk::prelude::*;

use crate::config::Config;
use crate::object::{FINALIZER, Machine};

/// What the policy is, needs and writes.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .governs::<Machine>()
        .crd(crd())
        .finalizer(FINALIZER)
        .config::<Config>()
        .needs_cloud([
            "task.get",
            "vm.find",
            "vm.get",
            "vm.metadata",
            "vm.nics",
            "vm.power",
        ])
        .needs_cloud([
            "vm.clone",
            "vm.reconfigure",
            "vm.power-on",
            "vm.power-off",
            "vm.destroy",
        ])
        .writes([
            "metadata.finalizers",
            "status.phase",
            "status.machineRef",
            "status.biosUUID",
        ])
        .writes([
            "status.taskRef",
            "status.taskKind",
            "status.taskSince",
            "status.retryAfter",
        ])
        .writes([
            "status.network",
            "status.addresses",
            "status.conditions[VMProvisioned]",
        ])
        .edges(EDGES.map(|(id, meaning, from)| match from {
            "" => Edge::noted(id, meaning),
            from => Edge::derived(id, meaning, from),
        }))
}

fn crd() -> Crd {
    Crd::of::<Machine>("machines")
        .short_name("vm")
        .column("Phase", ".status.phase")
        .column("VM", ".status.machineRef")
        .column("Task", ".status.taskKind")
        .column("Addresses", ".status.addresses")
        .age_column("Age", ".metadata.creationTimestamp")
}

/// Each edge: its id, what it means, and what the host derives it from; empty for those that the policy notes.
const EDGES: [(&str, &str, &str); 40] = [
    (
        "CAPV-01",
        "A pass begins with a fresh read of the object.",
        "started",
    ),
    ("CAPV-02", "A task is in flight: the cloud is asked for it.", ""),
    ("CAPV-03", "No task is in flight.", ""),
    ("CAPV-04", "The task exists.", ""),
    ("CAPV-05", "The task is queued or running: look again later.", ""),
    (
        "CAPV-06",
        "The task succeeded and is forgotten; the pass goes on.",
        "",
    ),
    (
        "CAPV-07",
        "The task failed: the failure is written down, the task forgotten; the pass goes on.",
        "",
    ),
    (
        "CAPV-08",
        "The task does not exist: it is forgotten; look again later.",
        "",
    ),
    (
        "CAPV-09",
        "The task is in a state that nobody knows: the pass fails.",
        "",
    ),
    (
        "CAPV-10",
        "The task decides the pass: everything else is skipped.",
        "CAPV-05 CAPV-08 CAPV-09",
    ),
    ("CAPV-11", "No task stands in the way: the VM is looked up.", ""),
    (
        "CAPV-12",
        "No VM is known: one with the machine's uid is asked for.",
        "",
    ),
    (
        "CAPV-13",
        "A VM with the machine's uid exists and is adopted.",
        "",
    ),
    ("CAPV-14", "No VM with the machine's uid exists.", ""),
    ("CAPV-15", "A VM is known.", ""),
    (
        "CAPV-16",
        "The known VM does not exist (any more): it is forgotten.",
        "",
    ),
    ("CAPV-17", "The known VM exists.", ""),
    ("CAPV-18", "No VM is known, so none is verified.", ""),
    ("CAPV-19", "The machine is being deleted.", ""),
    (
        "CAPV-20",
        "The machine is being deleted and has a VM: it is taken down.",
        "CAPV-20a CAPV-20b",
    ),
    ("CAPV-20a", "The VM is on or suspended: it is stopped.", ""),
    ("CAPV-20b", "The VM is off: it is destroyed.", ""),
    (
        "CAPV-21",
        "The machine is being deleted and has no VM: its finalizer is removed.",
        "",
    ),
    ("CAPV-22", "The machine is not being deleted.", ""),
    ("CAPV-23", "The machine has no VM: the template is cloned.", ""),
    (
        "CAPV-24",
        "The machine has a VM: its metadata is compared with what it should be.",
        "",
    ),
    ("CAPV-25", "The metadata differs: the VM is reconfigured.", ""),
    (
        "CAPV-26",
        "The metadata is right: the VM's interfaces are written down.",
        "",
    ),
    ("CAPV-27", "The VM is not on: it is started.", ""),
    ("CAPV-28", "The VM is on.", ""),
    (
        "CAPV-29",
        "The VM has addresses: they are written down; the machine is as it should be.",
        "",
    ),
    ("CAPV-30", "The VM has no addresses yet: look again later.", ""),
    ("CAPV-31", "What changed is written once.", "published"),
    ("CAPV-32", "The pass asked for another one.", "requeued"),
    (
        "CAPV-33",
        "The pass did not ask for another one.",
        "failed succeeded",
    ),
    ("CAPV-34", "The pass failed.", "failed"),
    ("CAPV-35", "The pass succeeded.", "succeeded"),
    (
        "CAPV-36",
        "A clone is in doubt and the cloud cannot say: nothing is changed; look again later.",
        "",
    ),
    (
        "CAPV-37",
        "A clone in doubt was performed: its task, or its VM, is the machine's.",
        "",
    ),
    (
        "CAPV-38",
        "A clone in doubt was not performed: the pass goes on as usual.",
        "",
    ),
];
