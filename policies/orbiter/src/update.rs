//! The versions, node by node (ORB-13 to ORB-15n, ORB-37).

use orbiter_api::{Changing, Fleet, Member, Orb, Stop, Versions};
use polity_sdk::kube::node::Node;
use serde_json::json;

use crate::change::{step, write};
use crate::{Cx, drain, version};

/// The most nodes that are noted as being up to date: a pass may have 256 notes.
const NOTED: usize = 100;

/// Finds the first node to change, and records it. The next pass changes it.
pub(crate) async fn next(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let needed = version::needed(orb, cx.config(), fleet)?;
    notes(cx, ["ORB-13", "ORB-14"]);
    for (index, member) in (0u32..).zip(&fleet.members) {
        let Some(node) = &member.node else { continue };
        let metadata = &member.metadata;
        if metadata.ready.is_none() && (metadata.current.is_empty() || has_what_it_needs(member, &needed)) {
            // The report of the agent may also have been removed, and the agent will write it again. That must not
            // hide a node with another version.
            let message = format!(
                "the agent of node {} has not reported anything yet",
                node.metadata.name
            );
            return Err(Stop::wait(cx.config().pause, "WaitingForNodeAgent", message));
        }
        if is_due(member, &needed) {
            begin(cx, orb, member, node, index);
            return Err(step(node, "is changed next"));
        }
        let edge = if is_done(member, &needed) {
            "ORB-15n"
        } else {
            "ORB-37"
        };
        if (index as usize) < NOTED {
            cx.note(edge);
        }
        if drain::is_ours(cx, node) {
            // The node was to be removed or changed, and no longer is.
            write(cx, node, json!({"spec": drain::uncordoned(node)})).await?;
            cx.note("ORB-22");
            return Err(step(node, "is uncordoned"));
        }
    }
    Ok(())
}

/// Whether the node must be changed: its wanted versions differ from the needed versions, its present versions differ from
/// the wanted versions, or its agent began a change and was not allowed to complete it.
pub(crate) fn is_due(member: &Member, needed: &Versions) -> bool {
    !is_done(member, needed) && !member.updates_disabled
}

fn is_done(member: &Member, needed: &Versions) -> bool {
    has_what_it_needs(member, needed) && member.metadata.ready == Some(true)
}

fn has_what_it_needs(member: &Member, needed: &Versions) -> bool {
    member.metadata.wants(needed) && member.metadata.is_current(needed)
}

/// Makes this the one node that is being changed.
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
