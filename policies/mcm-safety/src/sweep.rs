//! The sweep of orphans (MCM-O01 to MCM-O06): VMs that carry our marks and belong to no Machine. A Machine whose finalizer
//! somebody removed leaves its VM behind, and so does one that was lost with the cluster's own data.
//!
//! Source: `checkMachineClass` of machine-controller-manager (`pkg/util/provider/machinecontroller/machine_safety.go`), which
//! deletes at once. It has deleted VMs that were being created (its issue 583), so here a VM must be an orphan for a while, is
//! reported first, and is deleted only where the configuration and the grants of the binding say so.

use std::collections::BTreeSet;

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

/// The VMs of the tenant whose owners are not among the Machines of the namespace.
///
/// A Machine exists before its VM. So the VMs are listed first, and the Machines then from the API server: an owner that is
/// not among them is gone.
async fn find(cx: &Cx, namespace: &str) -> Result<Vec<Row>, Failure> {
    let listed = cx.ask(machines::list()).await?.machines;
    let owners = cluster::objects::<Machine>()
        .namespace(namespace)
        .keep(&["metadata.uid"]);
    let owners = cx.ask(owners.latest()).await?;
    let owners: BTreeSet<&str> = owners.iter().map(|machine| &*machine.metadata.uid).collect();
    let orphans = listed.into_iter().filter(|vm| !owners.contains(&*vm.owner));
    Ok(orphans.collect())
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
            let message = format!("the VM {} ({}) belongs to no Machine", vm.provider_id, vm.name);
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
