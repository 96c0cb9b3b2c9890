//! Machines become nodes (ORB-09a, ORB-09b).

use std::collections::BTreeMap;

use orbiter_api::{Because, Fleet, ORB, Orb, PAGE, POOL, Stop, TaskKind, page};
use polity_sdk::cloud::pool::{self, Join, Machine, Registration, Tier};
use polity_sdk::cluster::Sealed;
use polity_sdk::kube::node::Taint;
use polity_sdk::prelude::*;

use crate::{AT_ONCE, Cx, task};

/// Makes the first node, or lets machines join: control planes one at a time, and before workers.
pub(crate) async fn join(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let missing = fleet.members.iter().filter(|member| member.node.is_none());
    let missing: Vec<&Machine> = missing.map(|member| &member.machine).collect();
    let Some(first) = missing.first() else {
        return Ok(());
    };
    if let Some(machine) = missing
        .iter()
        .find(|machine| fleet.foreign.contains(&machine.node_name))
    {
        let message = format!(
            "node {} exists, but is not the node of machine {}",
            machine.node_name, machine.name
        );
        return Err(Stop::refuse("ForeignNode", message));
    }
    let one =
        orb.status.initialized.is_none() || first.tier == Tier::ControlPlane || cx.config().serial_joins;
    let next: Vec<&Machine> = missing.into_iter().take(if one { 1 } else { AT_ONCE }).collect();
    let registrations = join_all(next.iter().map(|machine| register(cx, orb, machine))).await;
    let mut failed = None;
    for (machine, registered) in next.iter().zip(registrations) {
        match registered {
            Ok((kind, id, token)) => {
                let task = task::track(cx, orb, id.unwrap_or_default(), kind, machine, token.as_ref());
                // The work was done without a task. Its node is still to appear.
                task.done = task.id.is_empty().then_some(cx.now());
            }
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(()), Err).because("JoinFailed")?;
    let names: Vec<&str> = next
        .iter()
        .map(|machine| machine.name.as_str())
        .take(10)
        .collect();
    let message = format!("becoming nodes: {}", names.join(", "));
    Err(Stop::wait(cx.config().pause, "Joining", message))
}

/// Submits the work that makes a machine a node. Work that is already done has no task.
async fn register(
    cx: &Cx,
    orb: &Orb,
    machine: &Machine,
) -> Result<(TaskKind, Option<String>, Option<Sealed>), Failure> {
    let (labels, taints) = (labels(orb, machine), taints(orb, machine));
    let node = Registration {
        machine: &machine.id,
        labels: &labels,
        taints: &taints,
    };
    let (edge, kind, token, submitted) = match orb.status.initialized {
        None => ("ORB-09a", TaskKind::Init, None, cx.act(pool::init(&node)).await),
        Some(_) => {
            let ttl = cx.config().token_ttl;
            let token = cx.act(cluster::mint("bootstrap-token", ttl)).await?;
            let certificate_key = match machine.tier {
                Tier::ControlPlane => Some(cx.act(cluster::mint("password", ttl)).await?),
                Tier::Worker => None,
            };
            let join = Join {
                node,
                role: machine.tier,
                token: token.clone(),
                certificate_key,
            };
            (
                "ORB-09b",
                TaskKind::Join,
                Some(token),
                cx.act(pool::join(&join)).await,
            )
        }
    };
    match submitted {
        Ok(id) => {
            cx.note(edge);
            Ok((kind, Some(id), token))
        }
        Err(failure) if failure.code == Code::AlreadyExists => Ok((kind, None, token)),
        Err(failure) => Err(failure),
    }
}

fn labels(orb: &Orb, machine: &Machine) -> BTreeMap<String, String> {
    let own = [(ORB, &orb.metadata.name), (POOL, &machine.pool)];
    let own = own.map(|(name, value)| (name.to_owned(), value.clone()));
    let page = orb.number(&machine.pool, &machine.name).map(page);
    own.into_iter()
        .chain(page.map(|page| (PAGE.to_owned(), page)))
        .collect()
}

fn taints(orb: &Orb, machine: &Machine) -> Vec<Taint> {
    let mut pools = orb.pools();
    let pool = pools.find(|(_, pool)| pool.pool == machine.pool);
    pool.map(|(_, pool)| pool.taints.clone()).unwrap_or_default()
}
