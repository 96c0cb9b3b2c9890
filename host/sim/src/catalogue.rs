//! What the simulated cloud can do.

mod credential;
mod machine;
mod pool;
mod router;

use std::collections::BTreeMap;

use polity_core::catalogue::{Catalogue, Operation, OperationEffect};
use serde_json::{Value, json};

use super::config::SimConfig;

/// Milliseconds after which a call is cut: what the design allows at most.
pub const LONGEST: u64 = 5_000;

/// A call that begins later than this may have its effect after [`Absent`](polity_core::contract::Doubt::Absent).
pub use polity_core::catalogue::BEGINS_WITHIN;

/// The operations, with a `visible-within` that fits how late this cloud may be.
pub(crate) fn catalogue(config: &SimConfig) -> Catalogue {
    let visible_within = BEGINS_WITHIN + LONGEST + config.latest_effect() + config.lag.0;
    let operations = reads()
        .into_iter()
        .chain(changes())
        .chain([clone(visible_within)])
        .chain(machine::operations(visible_within))
        .chain(pool::operations(visible_within))
        .chain(router::operations(visible_within))
        .chain(polity_clouds::node_catalogue::operations());
    Catalogue {
        operations: operations
            .map(|(name, operation)| (name.to_owned(), operation))
            .collect::<BTreeMap<_, _>>(),
        credential: Some(credential::plan()),
    }
}

type Named = (&'static str, Operation);

fn reads() -> [Named; 6] {
    let power = json!({"enum": ["on", "off", "suspended"]});
    let error = json!({"fault": text(), "message": text(), "existing": power, "requested": power});
    let task = json!({
        "id": text(),
        "state": {"enum": ["queued", "running", "success", "error"]},
        "kind": {"enum": [
            "clone", "reconfigure", "power-on", "power-off", "destroy", "install", "init", "join", "remove", "push",
        ]},
        "vm": text(),
        "error": fields(error, &["fault", "message"]),
    });
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
            "task.get",
            "How a task stands; not-found once its record has expired.",
            id(),
            fields(task, &["id", "state", "kind"]),
        ),
        read(
            "vm.find",
            "The caller's own VM with this instance UUID. May lag behind.",
            uuid,
            vm(),
        ),
        read("vm.get", "A VM.", id(), vm()),
        read(
            "vm.metadata",
            "A VM's guest metadata; null if it never had any.",
            id(),
            fields(json!({"metadata": {"type": ["string", "null"]}}), &["metadata"]),
        ),
        read(
            "vm.nics",
            "A VM's NICs in order, with the addresses that the guest reports.",
            id(),
            fields(nics, &["nics"]),
        ),
        read(
            "vm.power",
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
            "vm.reconfigure",
            "Sets a VM's guest metadata, whatever its power.",
            OperationEffect::Change,
            metadata,
            0,
        ),
        task("vm.power-on", "Turns a VM on.", OperationEffect::Change, id(), 0),
        task(
            "vm.power-off",
            "Turns a VM off, without asking its guest.",
            OperationEffect::Change,
            id(),
            0,
        ),
        task(
            "vm.destroy",
            "Removes a VM that is not on.",
            OperationEffect::Change,
            id(),
            0,
        ),
    ]
}

fn clone(visible_within: u64) -> Named {
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
        // vSphere allows ten.
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
    let (name, operation) = task(
        "vm.clone",
        description,
        OperationEffect::Create,
        fields(arguments, &required),
        visible_within,
    );
    (
        name,
        Operation {
            intent: Some("name".to_owned()),
            sealed: vec!["userData".to_owned()],
            ..operation
        },
    )
}

fn read(name: &'static str, description: &str, arguments: Value, answer: Value) -> Named {
    (
        name,
        operation(description, OperationEffect::Read, arguments, answer, 0),
    )
}

fn task(
    name: &'static str,
    description: &str,
    effect: OperationEffect,
    arguments: Value,
    visible_within: u64,
) -> Named {
    let answer = fields(json!({"task": text()}), &["task"]);
    (
        name,
        operation(description, effect, arguments, answer, visible_within),
    )
}

fn operation(
    description: &str,
    effect: OperationEffect,
    arguments: Value,
    answer: Value,
    visible_within: u64,
) -> Operation {
    let description = description.to_owned();
    Operation {
        description,
        effect,
        arguments,
        answer,
        longest: LONGEST,
        visible_within,
        intent: None,
        sealed: Vec::new(),
    }
}

fn fields(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A reference to a value that policies do not see.
fn sealed() -> Value {
    let place = fields(json!({"name": name(), "key": name()}), &["name", "key"]);
    fields(json!({"$secret": place}), &["$secret"])
}

fn id() -> Value {
    fields(json!({"id": name()}), &["id"])
}

fn text() -> Value {
    json!({"type": "string"})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1})
}
