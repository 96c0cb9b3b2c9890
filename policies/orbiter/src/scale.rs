//! Adding machines (ORB-03, ORB-29).

use std::collections::BTreeSet;

use orbiter_api::{Because, Fleet, Orb, Stop};
use polity_sdk::Resolution;
use polity_sdk::cloud::pool::{self, Addition};
use polity_sdk::prelude::*;

use crate::{AT_ONCE, Cx};

/// Counts nothing while it is unknown whether a machine was added, or while the list may not show a new machine yet.
pub(crate) fn doubt(cx: &Cx) -> Result<(), Stop> {
    let open = |state: &Resolution| !matches!(state, Resolution::Absent);
    let mut adds = cx.pending().iter().filter(|act| act.operation == pool::ADD);
    match adds.find(|act| open(&act.resolution)) {
        None => Ok(()),
        Some(act) => {
            cx.note("ORB-29");
            let message = format!(
                "machine {} may exist already: the cloud does not show yet whether it was added",
                act.intent
            );
            Err(Stop::wait(cx.config().pause, "AddInDoubt", message))
        }
    }
}

/// Adds the machines that pools lack. Machines that are to be replaced do not count, so that their successors come
/// first.
pub(crate) async fn add(cx: &Cx, orb: &Orb, fleet: &Fleet) -> Result<(), Stop> {
    let mut missing = Vec::new();
    for (tier, pool) in orb.pools() {
        let stays = |flagged: bool| !(flagged && cx.config().replace_machines);
        let members = fleet.of_pool(&pool.pool);
        let there = members
            .clone()
            .filter(|m| stays(m.machine.replacement_required))
            .count();
        let names: BTreeSet<&str> = members.map(|member| member.machine.name.as_str()).collect();
        let free = (0..).map(|number| orb.machine_name(&pool.pool, number));
        let free = free.filter(|name| !names.contains(name.as_str()));
        let lacking = (pool.nodes as usize).saturating_sub(there);
        missing.extend(free.take(lacking).map(|name| (name, pool.pool.as_str(), tier)));
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.truncate(AT_ONCE);
    let additions = missing.iter().map(|(name, pool, tier)| {
        let (pool, tier) = (*pool, *tier);
        cx.act(pool::add(&Addition { name, pool, tier }))
    });
    for added in join_all(additions).await {
        match added {
            Ok(_) => cx.note("ORB-03"),
            // The machine exists, but the list did not show it yet.
            Err(failure) if failure.code == Code::AlreadyExists => {}
            Err(failure) => return Err(failure).because("AddFailed"),
        }
    }
    let message = format!("{} machines are being added", missing.len());
    Err(Stop::wait(cx.config().pause, "AddingMachines", message))
}
