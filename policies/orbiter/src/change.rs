//! The one node that is being changed (ORB-15 to ORB-19, ORB-22 to ORB-24, ORB-27).
//!
//! It comes before everything else that could affect a node. Until it is done, no other node is drained or removed.

use orbiter_api::{
    Because, CHANGES_ALLOWED, Changing, Fleet, Member, NodeMetadata, Orb, PARTS, SOON, Stop, Versions,
};
use polity_sdk::kube::node::Node;
use polity_sdk::prelude::*;
use serde_json::{Value, json};

use crate::update::{begin, is_due, notes};
use crate::{Cx, drain, version};

/// Continues with the node that is being changed, if there is one. That includes a node that is found with the flag.
pub(crate) async fn resume(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let Some(changing) = orb.status.changing.clone() else {
        return adopt(cx, orb, fleet);
    };
    let query = cluster::object::<Node>(&changing.node).keep(PARTS);
    let node = cx.ask(query.latest()).await.found().because("NodesUnknown")?;
    let is_it = |node: &Node| node.metadata.uid == changing.uid;
    let Some(mut node) = node.filter(is_it) else {
        // The node is gone, so the change ends.
        return leave(orb);
    };
    withdraw(cx, fleet, &changing).await?;
    let metadata = NodeMetadata::read(&node.metadata.annotations);
    let mut members = fleet.members.iter();
    let member = members.find(|member| member.node.as_ref().is_some_and(is_it));
    let stays = |member: &&Member| !(member.machine.replacement_required && cx.config().replace_machines);
    let Some(member) = member.filter(stays) else {
        // The machine is gone or is being removed, so the wanted versions of its node no longer matter.
        if metadata.changes_allowed {
            write(cx, &node, flag(false)).await?;
            return Err(step(&node, "is given up"));
        }
        return leave(orb);
    };
    let member = Member {
        metadata,
        ..member.clone()
    };
    let needed = version::needed(orb, cx.config(), fleet)?;
    if !member.metadata.changes_allowed {
        notes(cx, ["ORB-13", "ORB-14"]);
        if is_due(&member, &needed) {
            write(cx, &node, flag(true)).await?;
            cx.note("ORB-15");
            return Err(step(&node, "may change"));
        }
        cx.note("ORB-27");
        return leave(orb);
    }
    notes(cx, ["ORB-16", "ORB-17"]);
    if !member.metadata.wants(&needed) {
        drain::empty(cx, orb, fleet, &member, &mut node, "ORB-18").await?;
        // One write contains all packages.
        let mut wants = member.metadata.want(&needed);
        wants.extend(version::upgrade(fleet, &member, &needed));
        write(cx, &node, annotated(wants.into())).await?;
        cx.note("ORB-19");
        let next = Next::after(cx.config().pause);
        return Err(Stop {
            next,
            ..step(&node, "gets the annotations with its wanted versions")
        });
    }
    if member.metadata.ready == Some(true) && member.metadata.is_current(&needed) && node.is_ready() {
        return end(cx, &node).await;
    }
    cx.note("ORB-24");
    Err(still(cx, &changing, &member, &node, &needed))
}

/// Continues with a node that may change although no change is recorded.
fn adopt(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let mut members = (0u32..).zip(&fleet.members);
    let Some((index, member)) = members.find(|(_, member)| member.metadata.changes_allowed) else {
        return Ok(());
    };
    let Some(node) = &member.node else { return Ok(()) };
    begin(cx, orb, member, node, index);
    Err(step(node, "has the annotation changes-allowed already"))
}

/// Takes the flag from every other node: only orbiter may write it.
async fn withdraw(cx: &Cx, fleet: &Fleet, changing: &Changing) -> Result<(), Stop> {
    let others = fleet
        .members
        .iter()
        .filter(|member| member.metadata.changes_allowed);
    let others = others.filter_map(|member| member.node.as_ref());
    for node in others.filter(|node| node.metadata.uid != changing.uid).take(10) {
        let (name, first) = (&node.metadata.name, &changing.node);
        let message = format!("node {name} may not change while {first} does");
        cx.event(EventType::Warning, "ChangeWithdrawn", message);
        write(cx, node, flag(false)).await?;
    }
    Ok(())
}

fn leave(orb: &mut Orb) -> Result<(), Stop> {
    orb.status.changing = None;
    orb.status.cursor = None;
    orb.status.draining = None;
    Ok(())
}

/// Uncordons the node and removes the flag, in one write.
async fn end(cx: &Cx, node: &Node) -> Result<(), Stop> {
    let mut patch = flag(false);
    let cordoned = drain::is_ours(cx, node);
    if cordoned {
        patch["spec"] = drain::uncordoned(node);
    }
    write(cx, node, patch).await?;
    if cordoned {
        cx.note("ORB-22");
    }
    cx.note("ORB-23");
    Err(step(node, "is done"))
}

/// Why the node is not done yet.
fn still(cx: &Cx, changing: &Changing, member: &Member, node: &Node, needed: &Versions) -> Stop {
    let (name, metadata) = (&node.metadata.name, &member.metadata);
    let lacks = |package: &&String| metadata.current.get(*package) != metadata.desired.get(*package);
    let (mut reason, mut message) = match needed.keys().find(lacks) {
        _ if !node.is_ready() => (
            "NodeNotReady",
            format!("node {name} is not ready while it is being changed"),
        ),
        Some(package) => (
            "WaitingForNodeAgent",
            format!("node {name} lacks its version of {package}: see its condition PackagesEnsured"),
        ),
        None => (
            "WaitingForNodeAgent",
            format!("the agent of node {name} is not done yet"),
        ),
    };
    let timeout = cx.config().update_timeout.map(Duration::from);
    let degraded = timeout.is_some_and(|timeout| cx.now().since(changing.since) > timeout);
    if degraded {
        (reason, message) = ("UpdateTimeout", format!("{message}, since {}", changing.since));
    }
    let stop = Stop::wait(cx.config().pause, reason, message);
    Stop { degraded, ..stop }
}

/// Ends the pass after a write from which the next pass goes on.
pub(crate) fn step(node: &Node, what: &str) -> Stop {
    Stop::wait(SOON, "Updating", format!("node {} {what}", node.metadata.name))
}

pub(crate) async fn write(cx: &Cx, node: &Node, patch: Value) -> Result<(), Stop> {
    let written = cx.act(cluster::patch(node, patch)).await;
    written.because("UpdateFailed").map(|_| ())
}

fn flag(allowed: bool) -> Value {
    let value = if allowed { "true" } else { "false" };
    annotated(json!({CHANGES_ALLOWED: value}))
}

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}
