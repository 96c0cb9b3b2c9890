//! The sweep of orphans (MCM-O01 to MCM-O07): VMs that carry our marks and belong to no Machine. A Machine whose finalizer
//! somebody removed leaves its VM behind, and so does one that was lost with the cluster's own data. Of two VMs of a Machine,
//! the one that it does not have on record is an orphan, too.
//!
//! Source: `checkMachineClass` of machine-controller-manager (`pkg/util/provider/machinecontroller/machine_safety.go`), which
//! deletes at once. It has deleted VMs that were being created (its issue 583), so here a VM must be an orphan for a while, is
//! reported first, and is deleted only where the configuration and the grants of the binding say so.

use std::collections::BTreeMap;

use mcm_api::{Machine, MachineSafety, Orphan};
use polity_sdk::cloud::machine::{self as machines, Row};
use polity_sdk::prelude::*;

use crate::Cx;

/// The condition: the VMs could be listed, and compared with the Machines.
const SWEPT: &str = "Swept";

/// Looks for orphans if it is time to.
pub(crate) async fn sweep(cx: &Cx, safety: &mut MachineSafety) {
    let Some(namespace) = safety.spec.namespace.clone() else {
        safety.status.orphans.clear();
        return;
    };
    let period = Duration::from(cx.config().sweep_period);
    if safety
        .status
        .swept_at
        .is_some_and(|last| cx.now().since(last) < period)
    {
        return;
    }
    safety.status.swept_at = Some(cx.now());
    match find(cx, &namespace).await {
        Ok(found) => {
            safety.status.conditions.heal(cx.now(), SWEPT, "Listed");
            let known = std::mem::take(&mut safety.status.orphans);
            safety.status.orphans = judge(cx, found, &known).await;
        }
        Err(failure) => {
            cx.note("MCM-O06");
            let (conditions, status) = (&mut safety.status.conditions, ConditionStatus::False);
            if conditions.announce(cx.now(), SWEPT, status, "ListFailed", &failure.message) {
                cx.event(EventType::Warning, "SweepFailed", &failure.message);
            }
        }
    }
}

/// The annotation of a Machine that no one may touch. Machine-controller-manager puts it on Nodes that it does not manage.
const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";

/// The fields of a Machine by which its VMs are recognised.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.deletionTimestamp",
    "metadata.uid",
    "status.currentStatus",
    "status.providerID",
];

/// The VMs of the tenant whose owners are not among the Machines of the namespace, or have another VM.
///
/// A Machine exists before its VM. So the VMs are listed first, and the Machines then from the API server: an owner that is
/// not among them is gone.
async fn find(cx: &Cx, namespace: &str) -> Result<Vec<Row>, Failure> {
    let listed = cx.ask(machines::list()).await?.machines;
    let owners = cluster::objects::<Machine>().namespace(namespace).keep(FIELDS);
    let owners = cx.ask(owners.latest()).await?;
    let owners: BTreeMap<&str, &Machine> = owners
        .iter()
        .map(|machine| (&*machine.metadata.uid, machine))
        .collect();
    let orphans = listed.into_iter().filter(|vm| match owners.get(&*vm.owner) {
        Some(owner) => is_second(cx, owner, vm),
        None => true,
    });
    Ok(orphans.collect())
}

/// Whether the Machine has another VM on record. A Machine that is being created or deleted looks for its VMs itself.
fn is_second(cx: &Cx, owner: &Machine, vm: &Row) -> bool {
    let is_stable = !owner.is_unfinished() && !owner.metadata.deleting();
    let recorded = owner.status.provider_id.as_ref();
    let is_second = is_stable && recorded.is_some_and(|recorded| *recorded != vm.provider_id);
    let is_touched = is_second && !owner.metadata.annotations.contains_key(NOT_MANAGED);
    if is_touched {
        cx.note("MCM-O07");
    }
    is_touched
}

/// Remembers, reports and deletes orphans, by how long they have been known. Returns those that are left.
async fn judge(cx: &Cx, found: Vec<Row>, known: &[Orphan]) -> Vec<Orphan> {
    let mut left = Vec::new();
    if found.is_empty() {
        cx.note("MCM-O01");
    }
    for vm in found {
        let known = known.iter().find(|known| known.provider_id == vm.provider_id);
        let since = known.map_or(cx.now(), |known| known.since);
        if cx.now().since(since) < cx.config().orphan_after.into() {
            cx.note("MCM-O02");
        } else {
            cx.note("MCM-O03");
            let message = format!("no Machine has the VM {} ({}) on record", vm.provider_id, vm.name);
            cx.event(EventType::Warning, "OrphanFound", message);
            if is_to_be_deleted(cx, since) && delete(cx, &vm).await {
                continue;
            }
        }
        left.push(Orphan {
            name: vm.name,
            provider_id: vm.provider_id,
            since,
        });
    }
    left
}

fn is_to_be_deleted(cx: &Cx, since: Time) -> bool {
    let after = cx.config().delete_orphans_after;
    after.is_some_and(|after| cx.now().since(since) >= after.into())
}

/// Deletes an orphan. Returns whether it is gone.
async fn delete(cx: &Cx, vm: &Row) -> bool {
    match cx.act(machines::delete_orphan(vm)).await.found() {
        Ok(_) => {
            cx.note("MCM-O04");
            cx.event(
                EventType::Normal,
                "OrphanDeleted",
                format!("the VM {} is deleted", vm.provider_id),
            );
            true
        }
        Err(failure) => {
            cx.note("MCM-O05");
            let message = format!("the VM {}: {}", vm.provider_id, failure.message);
            cx.event(EventType::Warning, "OrphanNotDeleted", message);
            false
        }
    }
}
