//! The machines of a set: found by their controller reference, adopted and released by the selector.

use std::collections::BTreeSet;

use mcm_api::{Machine, MachineSet, Phase};
use polity_sdk::OwnerReference;
use polity_sdk::prelude::*;
use serde_json::{Map, Value, json};

use crate::{BURST, Cx, all_done};

/// The fields of machines that decide.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.labels",
    "metadata.ownerReferences",
    "spec",
    "status.currentStatus",
];

/// Where the machines are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// From the watch cache.
    Cached,
    /// From the API server.
    Latest,
}

/// The machines of a set, and those that may become or cease to be its machines.
#[derive(Default)]
pub(crate) struct Members {
    /// Those of the set that are not being deleted.
    pub(crate) live: Vec<Machine>,
    /// How many of the set are being deleted.
    pub(crate) ending: usize,
    /// The names of all machines of the namespace, of any set.
    pub(crate) names: BTreeSet<String>,
    /// Those that nobody controls and the selector selects.
    strays: Vec<Machine>,
}

impl Members {
    /// Finds the machines of the set by their controller reference.
    pub(crate) async fn find(cx: &Cx, set: &MachineSet, freshness: Freshness) -> Result<Members, Failure> {
        let machines = cluster::objects::<Machine>().keep(FIELDS);
        let all = cx.ask(match freshness {
            Freshness::Cached => machines,
            Freshness::Latest => machines.latest(),
        });
        let mut members = Members::default();
        for machine in all.await? {
            members.names.insert(machine.metadata.name.clone());
            let deleting = machine.metadata.deleting();
            match controller(&machine) {
                Some(controller) if controller.uid == set.metadata.uid && deleting => members.ending += 1,
                Some(controller) if controller.uid == set.metadata.uid => members.live.push(machine),
                None if !deleting && is_selected(set, &machine) => members.strays.push(machine),
                _ => {}
            }
        }
        Ok(members)
    }

    /// The machines that failed.
    pub(crate) fn failed(&self) -> Vec<&Machine> {
        self.live.iter().filter(|machine| has_failed(machine)).collect()
    }

    /// The machines that did not fail.
    pub(crate) fn healthy(&self) -> Vec<&Machine> {
        self.live.iter().filter(|machine| !has_failed(machine)).collect()
    }

    /// Adopts the machines that nobody controls, and releases those that the selector no longer selects. Returns whether there
    /// were any.
    ///
    /// Source: `ClaimObject` of machine-controller-manager (`pkg/controller/controller_ref_manager.go`).
    pub(crate) async fn claim(&self, cx: &Cx, set: &MachineSet) -> Result<bool, Failure> {
        let released = self.live.iter().filter(|machine| !is_selected(set, machine));
        let released = released.map(|machine| ("MCM-M03", machine, owners(set, machine, false)));
        let adopted = self
            .strays
            .iter()
            .map(|machine| ("MCM-M02", machine, owners(set, machine, true)));
        let claims: Vec<_> = adopted.chain(released).take(BURST).collect();
        patch(cx, &claims).await
    }

    /// Carries the template of the set over to the machines that did not fail. Returns whether one of them differed.
    pub(crate) async fn sync(&self, cx: &Cx, set: &MachineSet) -> Result<bool, Failure> {
        let stale = self.live.iter().filter(|machine| !has_failed(machine));
        let stale = stale.filter_map(|machine| Some(("MCM-M10", machine, carried_over(set, machine)?)));
        let changes: Vec<_> = stale.take(BURST).collect();
        patch(cx, &changes).await
    }
}

/// Patches machines, each for its edge. Returns whether there were any.
async fn patch(cx: &Cx, changes: &[(&str, &Machine, Value)]) -> Result<bool, Failure> {
    let patches = changes.iter().map(|(edge, machine, patch)| {
        cx.note(*edge);
        cx.act(cluster::patch(*machine, patch.clone()))
    });
    all_done(join_all(patches).await)?;
    Ok(!changes.is_empty())
}

/// What the template of the set changes in a machine: its node template, its timeouts and the kind of its class. The machine
/// keeps its class: another class makes another VM.
///
/// Source: `syncMachinesNodeTemplates`, `syncMachinesConfig` and `syncMachinesClassKind` of machine-controller-manager
/// (`pkg/controller/machineset_util.go`).
fn carried_over(set: &MachineSet, machine: &Machine) -> Option<Value> {
    let mut wanted = set.spec.template.spec.clone();
    wanted.class.name.clone_from(&machine.spec.class.name);
    let json = |spec| serde_json::to_value(spec).expect("a specification has a JSON form");
    let change = difference(&json(&machine.spec), &json(&wanted))?;
    Some(json!({"spec": change}))
}

/// The merge patch from one value to another; `None` if they are equal.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(was), Value::Object(fields)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let gone = was.keys().filter(|key| !fields.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let changed = fields.iter().filter_map(|(key, value)| {
        let change = difference(was.get(key).unwrap_or(&Value::Null), value);
        change.map(|change| (key.clone(), change))
    });
    let patch: Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn has_failed(machine: &Machine) -> bool {
    machine.phase() == Some(Phase::Failed)
}

fn is_selected(set: &MachineSet, machine: &Machine) -> bool {
    set.spec.selector.matches(&machine.metadata.labels)
}

/// The controller of a machine.
fn controller(machine: &Machine) -> Option<&OwnerReference> {
    let owners = &machine.metadata.owner_references;
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The owners of a machine with the set, or without it.
fn owners(set: &MachineSet, machine: &Machine, is_own: bool) -> Value {
    let mut owners = machine.metadata.owner_references.clone();
    owners.retain(|owner| owner.uid != set.metadata.uid);
    if is_own {
        owners.push(set.reference());
    }
    json!({"metadata": {"ownerReferences": owners}})
}
