//! Keeps a number of machines of one template, as the MachineSet controller of Gardener's machine-controller-manager does.
//! It creates the machines that are missing, deletes those that failed, so that others take their place, and those that are
//! too many. A change of the template reaches the machines that exist, but for their class.
//!
//! A machine belongs to the set whose uid its controller reference names. A machine without a controller is adopted if the
//! selector of the set selects it. Machines that are being deleted count for nothing: they are replaced before they are
//! gone. The flow is [`reconcile`]; `choose` has the order in which machines are deleted.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod choose;
mod config;
pub mod edges;
mod members;

use std::collections::BTreeSet;

use mcm_api::{Machine, MachineSet, Phase, SET_FINALIZER};
use polity_sdk::prelude::*;

pub use config::Config;
pub use edges::manifest;
use members::{Freshness, Members};

/// A pass of this policy.
pub type Cx = Context<MachineSet, Config>;

/// The most machines that a pass adopts, creates or deletes of each kind. The next pass goes on, so that no pass is longer than its limits.
const BURST: usize = 16;

/// Decides which machines are created and deleted.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut set = cx.object_mut();
    if !set.metadata.deleting() && !is_complete(&set) {
        cx.note("MCM-M09");
        let message = "spec.selector must not be empty and must select the labels of spec.template";
        let failure = Failure::new(Code::InvalidArgument, message);
        return Ok(Next::failed(RetryClass::Long, failure));
    }
    let members = Members::find(&cx, &set, Freshness::Cached).await?;
    count(&mut set, &members.live);
    if set.metadata.deleting() {
        return tear_down(&cx, &mut set, &members).await;
    }
    let changed = members.claim(&cx, &set).await? || members.sync(&cx, &set).await?;
    if changed || keep_count(&cx, &set, &members).await? {
        return Ok(Next::retry(RetryClass::Short));
    }
    cx.note("MCM-M01");
    Ok(Next::settled_for(cx.config().resync))
}

/// Deletes what failed, and makes the number of the others the wanted one. Returns whether there was anything to do.
async fn keep_count(cx: &Cx, set: &MachineSet, members: &Members) -> Result<bool, Failure> {
    let wanted = set.spec.replicas as usize;
    let healthy = members.healthy().len();
    let failed = delete(cx, "MCM-M04", &members.failed()).await?;
    let changed = if healthy > wanted {
        // The cache may not show yet which machine the pass before deleted.
        let latest = Members::find(cx, set, Freshness::Latest).await?;
        delete(cx, "MCM-M06", &choose::surplus(latest.healthy(), wanted)).await?
    } else {
        create(cx, set, &members.names, wanted - healthy).await?
    };
    Ok(failed || changed)
}

/// Whether the selector selects what the template makes. Otherwise machines would be created without end.
fn is_complete(set: &MachineSet) -> bool {
    let selector = &set.spec.selector;
    let is_empty = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
    !is_empty && selector.matches(&set.spec.template.metadata.labels)
}

/// Writes how many machines there are.
fn count(set: &mut MachineSet, live: &[Machine]) {
    let running = live
        .iter()
        .filter(|machine| machine.phase() == Some(Phase::Running));
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    set.status.ready_replicas = number(running.count());
    set.status.replicas = number(live.len());
}

/// Deletes the machines of a set that is being deleted, and releases the set when they are gone.
async fn tear_down(cx: &Cx, set: &mut MachineSet, members: &Members) -> Result<Next, Failure> {
    if members.live.is_empty() && members.ending == 0 {
        cx.note("MCM-M08");
        set.metadata.remove_finalizer(SET_FINALIZER);
        return Ok(Next::settled());
    }
    let live: Vec<&Machine> = members.live.iter().collect();
    if delete(cx, "MCM-M07", &live).await? {
        return Ok(Next::retry(RetryClass::Short));
    }
    // A machine that is gone begins the next pass.
    Ok(Next::after(cx.config().resync))
}

/// Deletes machines. Returns whether there were any.
async fn delete(cx: &Cx, edge: &str, machines: &[&Machine]) -> Result<bool, Failure> {
    let deletions = machines.iter().take(BURST).map(|machine| {
        cx.note(edge);
        cx.act(cluster::delete(*machine))
    });
    all_done(join_all(deletions).await)?;
    Ok(!machines.is_empty())
}

/// The first failure. An object that is gone or has changed since the pass saw it is none: the next pass looks at it again.
fn all_done<A>(acts: impl IntoIterator<Item = Result<A, Failure>>) -> Result<(), Failure> {
    let failed = acts.into_iter().filter_map(Result::err);
    let mut failed = failed.filter(|failure| ![Code::NotFound, Code::Aborted].contains(&failure.code));
    failed.next().map_or(Ok(()), Err)
}

/// Creates so many machines, with the lowest numbers that no machine has. Returns whether there were any.
///
/// The names follow from what is stored, so a pass after a crash creates no machine twice.
async fn create(
    cx: &Cx,
    set: &MachineSet,
    names: &BTreeSet<String>,
    missing: usize,
) -> Result<bool, Failure> {
    let free = (1..).filter(|number| !names.contains(&set.name_of(*number)));
    let creations = free.take(missing.min(BURST)).map(|number| {
        cx.note("MCM-M05");
        cx.act(cluster::create(&set.machine(number)))
    });
    all_done(join_all(creations).await)?;
    Ok(missing > 0)
}
