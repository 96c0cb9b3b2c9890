//! Cordon, drain, uncordon. A taint of orbiter marks the nodes that it cordoned, and it uncordons no other node.

use orbiter_api::{Because, Draining, Fleet, Member, Orb, Stop, UPDATING};
use polity_sdk::cloud::pool::Tier;
use polity_sdk::kube::drain::Progress;
use polity_sdk::kube::node::{self, Node, Taint};
use polity_sdk::prelude::*;
use serde_json::Value;

use crate::Cx;

/// `unschedulable` keeps pods away. The taint only shows who cordoned the node. With `NoSchedule` it would also keep
/// the pods of DaemonSets away, because they tolerate only `unschedulable`.
const EFFECT: &str = "PreferNoSchedule";
const FAILED: &str = "DrainFailed";

/// Cordons a node, then drains it. A pass of the drain takes this edge. The only node of a cluster is only cordoned,
/// because its pods have no other node.
pub(crate) async fn empty(
    cx: &Cx,
    orb: &mut Orb,
    fleet: &Fleet,
    member: &Member,
    node: &mut Node,
    edge: &str,
) -> Result<(), Stop> {
    let blocked = |stop| Stop {
        draining: true,
        ..stop
    };
    pass(cx, orb, fleet, member, node, edge).await.map_err(blocked)
}

async fn pass(
    cx: &Cx,
    orb: &mut Orb,
    fleet: &Fleet,
    member: &Member,
    node: &mut Node,
    edge: &str,
) -> Result<(), Stop> {
    if member.machine.tier == Tier::ControlPlane && !cx.config().drain_control_plane {
        cx.note("ORB-36");
        return Ok(());
    }
    if !node.spec.unschedulable {
        let written = cx.act(node::cordon_marked(node, mark())).await.because(FAILED)?;
        node.written(written);
    }
    if fleet.nodes() == 1 {
        cx.note("ORB-35");
        return Ok(());
    }
    let uid = node.metadata.uid.clone();
    let known = orb.status.draining.take().filter(|known| known.uid == uid);
    let mut drain = known.map(|known| known.drain).unwrap_or_default();
    let progress = drain.pass(cx, node, &cx.config().drain()).await;
    orb.status.draining = Some(Draining { uid, drain });
    let (mut length, mut reason) = (cx.config().drain_retry, "Draining");
    let progress = progress.because(FAILED)?;
    cx.note(edge);
    let left = match progress {
        Progress::Done => {
            orb.status.draining = None;
            return Ok(());
        }
        Progress::Failed(failure) => return Err(Stop::failed(FAILED, failure)),
        Progress::Ending { left } => format!("{left} pods are left"),
        Progress::Volumes => "volumes have yet to leave the node".to_owned(),
        Progress::Refused { left, failure } => {
            length = length.max(Period::from_millis(failure.retry_after.unwrap_or(0)));
            reason = "DrainRefused";
            format!("{left} pods are left: {}", failure.message)
        }
    };
    let message = format!("node {}: {left}", node.metadata.name);
    Err(Stop::wait(length, reason, message))
}

/// Whether orbiter cordoned the node, so that it may uncordon it.
pub(crate) fn is_ours(cx: &Cx, node: &Node) -> bool {
    node.has_taint(UPDATING, EFFECT) || (node.spec.unschedulable && cx.config().uncordon_foreign)
}

/// The patch of `spec` that uncordons a node.
pub(crate) fn uncordoned(node: &Node) -> Value {
    node::uncordoned(node, &mark())
}

fn mark() -> Taint {
    Taint {
        key: UPDATING.to_owned(),
        effect: EFFECT.to_owned(),
        ..Taint::default()
    }
}
