//! Removing machines and Nodes (ORB-04, ORB-33, ORB-34).

use std::collections::BTreeMap;

use orbiter_api::{Because, FINALIZER, Fleet, Member, Orb, Stop, TaskKind};
use polity_sdk::cloud::pool::{self, Tier};
use polity_sdk::prelude::*;

use crate::{AT_ONCE, Cx, drain, scale, task};

/// Deletes Nodes of this Orb whose machine is gone.
pub(crate) async fn orphans(cx: &Cx, fleet: &Fleet) -> Result<(), Stop> {
    const REASON: &str = "NodeWithoutMachine";
    if let Some(node) = fleet.orphans.iter().find(|node| node.is_ready()) {
        let message = format!(
            "node {} is ready, but has no machine: delete the Node if its machine is gone",
            node.metadata.name
        );
        return Err(Stop::refuse(REASON, message));
    }
    let orphans = fleet.orphans.iter().take(AT_ONCE);
    // The uids are enough as preconditions: others may write to the Nodes all the time.
    let deletions = orphans.map(|node| cx.act(cluster::delete(node).any_version()));
    for deleted in join_all(deletions.filter(|_| cx.config().delete_orphans)).await {
        deleted.found().because(REASON)?;
    }
    Ok(())
}

/// Drains and removes the surplus machines of a pool, one after the other.
pub(crate) async fn surplus(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let Some(victim) = victim(cx, orb, fleet) else {
        return Ok(());
    };
    let node = match &victim.node {
        Some(node) => orbiter_api::whole(cx, orb, node).await?,
        None => None,
    };
    if let Some(mut node) = node {
        drain::empty(cx, orb, fleet, victim, &mut node, "ORB-34").await?;
    }
    dismiss(cx, orb, &[victim]).await?;
    cx.note("ORB-04");
    let message = format!("machine {} is being removed", victim.machine.name);
    Err(Stop::wait(cx.config().pause, "RemovingMachines", message))
}

async fn dismiss(cx: &Cx, orb: &mut Orb, victims: &[&Member]) -> Result<(), Stop> {
    let removals = victims
        .iter()
        .map(|victim| cx.act(pool::remove(&victim.machine.id)));
    let mut failed = None;
    for (victim, removed) in victims.iter().zip(join_all(removals).await) {
        match removed.found() {
            Ok(Some(id)) => _ = task::track(cx, orb, id, TaskKind::Remove, &victim.machine, None),
            Ok(None) => {}
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(()), Err).because("RemoveFailed")
}

/// The machines of a pool.
#[derive(Default)]
struct Pool {
    wanted: usize,
    all: usize,
    /// The number of machines that need no replacement.
    others: usize,
    /// The number of these machines that are nodes.
    joined: usize,
}

/// The next machine to remove: workers before control planes, machines that are to be replaced before others, then
/// the highest number. A pool that no longer exists has only surplus machines.
fn victim<'a>(cx: &Cx, orb: &Orb, fleet: &'a Fleet) -> Option<&'a Member> {
    let flagged = |member: &Member| member.machine.replacement_required && cx.config().replace_machines;
    let mut pools: BTreeMap<&str, Pool> = BTreeMap::new();
    for (_, pool) in orb.pools() {
        pools.entry(&pool.pool).or_default().wanted = pool.nodes as usize;
    }
    for member in &fleet.members {
        let pool = pools.entry(&member.machine.pool).or_default();
        pool.all += 1;
        if !flagged(member) {
            pool.others += 1;
            pool.joined += usize::from(member.node.is_some());
        }
    }
    let leaves = |member: &&Member| {
        let pool = &pools[member.machine.pool.as_str()];
        let surplus = if flagged(member) {
            pool.all > pool.wanted && pool.joined >= pool.wanted
        } else {
            pool.others > pool.wanted
        };
        surplus && is_spared_by(fleet, member)
    };
    let order = |member: &&Member| (member.machine.tier, flagged(member), member.number);
    fleet.members.iter().filter(leaves).max_by_key(order)
}

/// Whether the cluster has a control plane without this machine.
fn is_spared_by(fleet: &Fleet, victim: &Member) -> bool {
    let other = |member: &Member| member.machine.id != victim.machine.id && member.is_control_plane();
    victim.machine.tier == Tier::Worker || fleet.members.iter().any(other)
}

/// Deletes an Orb: first its machines, with the control plane last, then the Orb.
pub(crate) async fn destroy(cx: &Cx, orb: &mut Orb) -> Next {
    match tear_down(cx, orb).await {
        Err(stop) => crate::conclude(cx, orb, Err(stop)),
        Ok(()) => {
            orb.metadata.remove_finalizer(FINALIZER);
            Next::settled()
        }
    }
}

async fn tear_down(cx: &Cx, orb: &mut Orb) -> Result<(), Stop> {
    scale::doubt(cx)?;
    let fleet = Fleet::look(cx, orb).await?;
    task::follow(cx, orb, &fleet).await?;
    let Some(last) = fleet.members.last() else {
        return Ok(());
    };
    let leaves = |member: &&Member| member.machine.tier == last.machine.tier;
    let victims: Vec<&Member> = fleet.members.iter().filter(leaves).take(AT_ONCE).collect();
    dismiss(cx, orb, &victims).await?;
    cx.note("ORB-33");
    let message = format!("{} machines are left", fleet.members.len());
    Err(Stop::wait(cx.config().pause, "Destroying", message))
}
