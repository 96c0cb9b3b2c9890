//! What is read of the Nodes. An answer holds a MiB at most, so only a small fleet is read whole and at once.
//!
//! Of a large one every Node is read by name and machine alone, which says who is there. What the agents and orbiter
//! have told each other comes in pages, by a label that each node joins with. Everything else is read of the one node
//! that it is about.

use std::collections::{BTreeMap, BTreeSet};

use polity_sdk::cloud::pool::{self, Machine};
use polity_sdk::kube::node::{Node, NodeCondition};
use polity_sdk::prelude::*;

use crate::fleet::PARTS;
use crate::{AT_ONCE, Because, Cx, ORB, Orb, PAGE, POOL, Stop};

/// Machines of a fleet that is read at once: a Node takes some 4 KB.
const SMALL: usize = 200;
/// Machines of a pool whose Nodes are one page: of each, some 1 KB is read.
const PAGE_SIZE: u32 = 200;
/// What tells whose Node it is.
const WHOSE: &[&str] = &["spec.providerID"];
/// What a page shows.
const TOLD: &[&str] = &["metadata.annotations", "spec.unschedulable", "spec.taints"];
/// What is read of a Node that belongs to no machine.
const LEFT: &[&str] = &["metadata.labels", "status.conditions"];

/// The page of a machine's Node, by the number in the machine's name.
pub fn page(number: u32) -> String {
    (number / PAGE_SIZE).to_string()
}

/// Whether the fleet is read in pages. The pass before has counted it.
pub(crate) fn is_large(orb: &Orb) -> bool {
    let wanted: usize = orb.pools().map(|(_, pool)| pool.nodes as usize).sum();
    wanted.max(orb.status.machines.len()) > SMALL
}

/// All machines, and all Nodes. What could not be looked at is never taken for missing.
pub(crate) async fn look(cx: &Cx, orb: &Orb) -> Result<(Vec<Machine>, Vec<Node>), Stop> {
    let large = is_large(orb);
    let nodes = cluster::objects::<Node>().keep(if large { WHOSE } else { PARTS });
    let (machines, nodes) = join!(cx.ask(pool::machines()), cx.ask(nodes));
    let machines = machines.because("MachinesUnknown")?;
    let nodes = nodes.because("NodesUnknown")?;
    match large {
        false => Ok((machines, nodes)),
        true => {
            let nodes = complete(cx, orb, &machines, nodes)
                .await
                .because("NodesUnknown")?;
            Ok((machines, nodes))
        }
    }
}

/// A node with all that is read of one.
pub async fn whole(cx: &Cx, orb: &Orb, node: &Node) -> Result<Option<Node>, Stop> {
    if !is_large(orb) {
        return Ok(Some(node.clone()));
    }
    let query = cluster::object::<Node>(&node.metadata.name).keep(PARTS);
    let found = cx.ask(query).await.found().because("NodesUnknown")?;
    Ok(found.filter(|found| found.metadata.uid == node.metadata.uid))
}

/// Adds what decisions need of each Node: of those that have a machine what was told, of the others whose they are.
async fn complete(cx: &Cx, orb: &Orb, machines: &[Machine], nodes: Vec<Node>) -> Result<Vec<Node>, Failure> {
    let mut told = pages(cx, orb, machines).await?;
    let ids: BTreeSet<&str> = machines.iter().map(|m| m.provider_id.as_str()).collect();
    let names: BTreeSet<&str> = machines.iter().map(|m| m.node_name.as_str()).collect();
    let has_machine = |node: &Node| match &node.spec.provider_id {
        Some(id) => ids.contains(id.as_str()),
        None => names.contains(node.metadata.name.as_str()),
    };
    let (of_machines, mut left): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(has_machine);
    let (mut all, mut strays) = (Vec::with_capacity(of_machines.len()), Vec::new());
    for node in of_machines {
        match told.remove(&node.metadata.uid) {
            Some(told) => all.push(merge(node, told)),
            None => strays.push(node),
        }
    }
    all.extend(one_by_one(cx, strays, TOLD, merge).await?);
    if !left.is_empty() {
        let ours = format!("{ORB}={}", orb.metadata.name);
        let ours = cx
            .ask(cluster::objects::<Node>().keep(WHOSE).labels(&ours))
            .await?;
        let ours: BTreeSet<String> = ours.into_iter().map(|node| node.metadata.uid).collect();
        let (orphans, foreign): (Vec<Node>, Vec<Node>) =
            left.drain(..).partition(|node| ours.contains(&node.metadata.uid));
        let orphans = orphans.into_iter().take(AT_ONCE).collect();
        all.extend(one_by_one(cx, orphans, LEFT, |_, found| found).await?);
        all.extend(foreign);
    }
    Ok(all)
}

/// What was told, by uid: a page for each group of machines, and one for Nodes that carry no page.
async fn pages(cx: &Cx, orb: &Orb, machines: &[Machine]) -> Result<BTreeMap<String, Node>, Failure> {
    let numbered = machines.iter().filter_map(|machine| {
        let number = orb.number(&machine.pool, &machine.name)?;
        Some(format!("{POOL}={},{PAGE}={}", machine.pool, page(number)))
    });
    let mut selectors: BTreeSet<String> = numbered.collect();
    selectors.insert(format!("!{PAGE}"));
    let asks = selectors
        .iter()
        .map(|selector| cx.ask(cluster::objects::<Node>().keep(TOLD).labels(selector)));
    let mut told = BTreeMap::new();
    for page in join_all(asks).await {
        told.extend(page?.into_iter().map(|node| (node.metadata.uid.clone(), node)));
    }
    Ok(told)
}

/// Nodes whose label somebody has changed, and those that have lost their machine: some, and only for a while.
async fn one_by_one(
    cx: &Cx,
    nodes: Vec<Node>,
    parts: &[&str],
    merge: impl Fn(Node, Node) -> Node,
) -> Result<Vec<Node>, Failure> {
    if nodes.len() > AT_ONCE {
        let message = format!(
            "{} nodes lack the label {PAGE} that they joined with: more than can be read one by one",
            nodes.len()
        );
        return Err(Failure::new(Code::FailedPrecondition, message));
    }
    let asks = nodes
        .iter()
        .map(|node| cx.ask(cluster::object::<Node>(&node.metadata.name).keep(parts)));
    let found = join_all(asks).await;
    let mut merged = Vec::new();
    for (node, found) in nodes.into_iter().zip(found) {
        // Gone meanwhile, and perhaps another one by now: the next pass sees.
        if let Some(found) = found
            .found()?
            .filter(|found| found.metadata.uid == node.metadata.uid)
        {
            merged.push(merge(node, found));
        }
    }
    Ok(merged)
}

/// A Node of a large fleet. Whether it is ready its taints say, which the node lifecycle controller keeps.
fn merge(node: Node, told: Node) -> Node {
    let mut node = Node {
        spec: polity_sdk::kube::node::NodeSpec {
            provider_id: node.spec.provider_id,
            ..told.spec
        },
        ..told
    };
    let tainted = |key: &str| node.spec.taints.iter().any(|taint| taint.key == key);
    let status = match () {
        () if tainted("node.kubernetes.io/unreachable") => "Unknown",
        () if tainted("node.kubernetes.io/not-ready") => "False",
        () => "True",
    };
    node.status.conditions = vec![NodeCondition {
        kind: "Ready".to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    }];
    node
}
