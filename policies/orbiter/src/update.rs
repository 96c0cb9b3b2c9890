//! The versions, node by node (ORB-13 to ORB-15n).

use orbiter_api::{Changing, Orb, Stop, Versions};
use polity_sdk::node::Node;
use serde_json::json;

use crate::change::{step, write};
use crate::fleet::{Fleet, Member};
use crate::{Cx, drain, version};

/// Finds the first node that is to be changed, and writes that down: the next pass changes it.
pub(crate) async fn next(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let needed = version::needed(orb, cx.config(), fleet)?;
    notes(cx, ["ORB-13", "ORB-14"]);
    for (index, member) in (0u32..).zip(&fleet.members) {
        let Some(node) = &member.node else { continue };
        let name = &node.metadata.name;
        if member.metadata.ready.is_none() {
            let message = format!("the agent of node {name} has not said anything yet");
            return Err(Stop::wait(cx.config().pause, "WaitingForNodeAgent", message));
        }
        if is_due(member, &needed) {
            begin(cx, orb, member, node, index);
            return Err(step(node, "is changed next"));
        }
        if drain::is_ours(cx, node) {
            // It was to be removed, or changed, and no longer is.
            write(cx, node, json!({"spec": drain::uncordoned(node)})).await?;
            cx.note("ORB-22");
            return Err(step(node, "is uncordoned"));
        }
    }
    cx.note("ORB-15n");
    Ok(())
}

/// Whether the node is to be changed: it does not want what it needs, or is not what it wants, or its agent has begun
/// something and was not allowed to end it.
pub(crate) fn is_due(member: &Member, needed: &Versions) -> bool {
    let metadata = &member.metadata;
    let done = metadata.wants(needed) && metadata.is_current(needed) && metadata.ready == Some(true);
    !done && !member.updates_disabled
}

/// From now on this is the one node that is being changed.
pub(crate) fn begin(cx: &Cx, orb: &mut Orb, member: &Member, node: &Node, index: u32) {
    orb.status.changing = Some(Changing {
        node: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        since: cx.now(),
        from: member.metadata.current.get(version::KUBELET).cloned(),
    });
    orb.status.cursor = Some(index);
}

pub(crate) fn notes<const N: usize>(cx: &Cx, ids: [&str; N]) {
    ids.into_iter().for_each(|id| cx.note(id));
}
