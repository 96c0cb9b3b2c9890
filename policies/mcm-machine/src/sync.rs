//! The node's labels, annotations and taints (MCM-S01 to MCM-S09).

use std::ops::ControlFlow::{self, Break, Continue};

use mcm_api::Machine;
use polity_sdk::kube::node::NodeTemplate;
use polity_sdk::prelude::*;

use crate::Cx;
use mcm_api::node::{self, Search};

/// The annotation of a node with the last applied template.
const LAST_APPLIED: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";

/// Makes the node match the template: one write, and then another pass.
pub(crate) async fn sync(cx: &Cx, machine: &Machine) -> ControlFlow<Next> {
    let node = match node::find(cx, machine, node::TEMPLATE).await {
        Ok(Search::Ours(node)) => node,
        Ok(Search::Missing | Search::Foreign { .. }) => {
            cx.note("MCM-S01");
            return Continue(());
        }
        Err(failure) => {
            cx.note("MCM-S02");
            return Break(Next::failed(RetryClass::Short, failure));
        }
    };
    let applied = match NodeTemplate::last_applied(&node, LAST_APPLIED) {
        Ok(applied) => applied,
        Err(failure) => {
            cx.note("MCM-S03");
            return Break(Next::failed(RetryClass::Short, failure));
        }
    };
    let template = &machine.spec.node_template;
    let merge = template.merge(&applied, &node);
    if merge.is_empty() && !node.metadata.annotations.is_empty() {
        cx.note("MCM-S08");
        return Continue(());
    }
    let edges = [
        (merge.removed, "MCM-S04"),
        (merge.set, "MCM-S05"),
        (merge.tainted, "MCM-S06"),
        (true, "MCM-S07"),
    ];
    let patch = cluster::patch(&node, merge.patch(LAST_APPLIED, template));
    Break(match cx.act(patch).await {
        Ok(_) => {
            let taken = edges.iter().filter(|(taken, _)| *taken);
            taken.for_each(|(_, edge)| cx.note(*edge));
            Next::retry(RetryClass::Short)
        }
        Err(failure) => {
            cx.note("MCM-S09");
            Next::failed(failure.retry_class(), failure)
        }
    })
}
