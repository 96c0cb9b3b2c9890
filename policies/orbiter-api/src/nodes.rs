//! Reads the Nodes. An answer has at most one MiB, so only a small fleet is read completely and at once.
//!
//! For a large fleet, the first read contains only the name and the machine of every Node, which shows which Nodes exist.
//! The annotations of orbiter and the agents come in pages, by a label that each node gets when it joins. All other
//! fields are read of a single node when a decision needs them.

use std::collections::{BTreeMap, BTreeSet};

use polity_sdk::cloud::pool::{self, Machine};
use polity_sdk::kube::node::{Node, NodeCondition};
use polity_sdk::prelude::*;

use crate::fleet::PARTS;
use crate::{AT_ONCE, Because, Cx, ORB, Orb, PAGE, POOL, Stop};

/// The most machines of a fleet that is read at once. A Node takes about 4 KB.
const SMALL: usize = 200;
/// The machines of a pool whose Nodes form a page. About 1 KB is read of each.
const PAGE_SIZE: u32 = 200;
/// The field that names the machine of a Node.
const WHOSE: &[&str] = &["spec.providerID"];
/// The fields in a page.
const TOLD: &[&str] = &["metadata.annotations", "spec.unschedulable", "spec.taints"];
/// The fields that are read of a Node without a machine.
const LEFT: &[&str] = &["metadata.labels", "status.conditions"];

/// The page of a machine's Node, from the number in the machine's name.
pub fn page(number: u32) -> String {
    (number / PAGE_SIZE).to_string()
}

/// Whether the fleet is read in pages. The previous pass has counted it.
pub(crate) fn is_large(orb: &Orb) -> bool {
    let wanted: usize = orb.pools().map(|(_, pool)| pool.nodes as usize).sum();
    wanted.max(orb.status.machines.len()) > SMALL
}

/// Reads all machines and all Nodes. After a failed read, nothing is taken for missing.
pub(crate) async fn look(cx: &Cx, orb: &Orb) -> Result<(Vec<Machine>, Vec<Node>), Stop> {
    let large = is_large(orb);
    let nodes = cluster::objects::<Node>().keep(if large { WHOSE } else { PARTS });
    let (machines, nodes) = join!(cx.ask(pool::machines()), cx.ask(nodes));
    let machines = machines.because("MachinesUnknown")?;
    let nodes = nodes.because("NodesUnknown")?;
    if large {
        let nodes = complete(cx, orb, &machines, nodes)
            .await
            .because("NodesUnknown")?;
        Ok((machines, nodes))
    } else {
        Ok((machines, nodes))
    }
}

/// A node with all fields that are ever read.
pub async fn whole(cx: &Cx, orb: &Orb, node: &Node) -> Result<Option<Node>, Stop> {
    if !is_large(orb) {
        return Ok(Some(node.clone()));
    }
    let query = cluster::object::<Node>(&node.metadata.name).keep(PARTS);
    let found = cx.ask(query).await.found().because("NodesUnknown")?;
    Ok(found.filter(|found| found.metadata.uid == node.metadata.uid))
}

/// Adds what decisions need of each Node: for Nodes with a machine the annotations, for the others their owner.
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

/// The annotations, by uid: one page for each group of machines, and one page for Nodes without a page label.
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

/// Reads one by one the Nodes whose page label was changed, and the Nodes that have lost their machine. There are few such
/// Nodes, and only for a while.
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
        // The Node is gone, or was replaced by another Node. The next pass sees that.
        if let Some(found) = found
            .found()?
            .filter(|found| found.metadata.uid == node.metadata.uid)
        {
            merged.push(merge(node, found));
        }
    }
    Ok(merged)
}

/// A Node of a large fleet. Its taints show whether it is ready: the node lifecycle controller maintains them.
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
