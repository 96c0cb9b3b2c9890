//! An Orb with a control plane and a few workers, and the people who change it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rules::Rules;
use crate::host_fixture::reference;
use crate::host_harness::Site;
use crate::host_harness::orbiter::{self, ORBITER};
use crate::simulation::seed::Chance;

/// The Orb.
pub const NAME: &str = "o";
/// The annotation by which orbiter allows changes of a node.
pub const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
/// The label of the Orb's nodes.
pub const LABEL: &str = "orbiter.polity.dev/orb";
/// The versions that people want, from the oldest to the newest.
pub const VERSIONS: [&str; 5] = ["1.30.2", "1.30.4", "1.30.6", "1.31.1", "1.32.0"];

/// The annotation with the wanted versions of a node.
const DESIRED: &str = "alpha.kubelet.caos.ch/desired-version";

/// An action of people on an Orb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// They want a later version of Kubernetes: this many steps further in the list.
    Version(usize),
    /// They want another version of a package.
    Package,
    /// They want this many workers.
    Workers(u64),
    /// They cordon a node that is not cordoned.
    Cordon,
    /// They uncordon the nodes that they cordoned.
    Uncordon,
    /// They write an invalid value into an annotation of a node.
    Garble,
}

/// The binding of Orbs to `orbiter`.
pub fn orbs() -> Value {
    // Short periods, so that a cluster comes up and changes within minutes.
    let configuration = json!({
        "pause": "10s", "evictionGrace": "20s", "graceAfterEnd": "10s",
        "kubernetesReleases": ["1.30.6", "1.31.1", "1.32.0"],
    });
    orbiter::orbs(configuration, retry())
}

/// The binding of one Node to its agent.
pub fn agent(node: &str) -> Value {
    orbiter::agent(node, retry())
}

fn retry() -> Value {
    json!({"short": "5s", "medium": "20s", "long": "60s"})
}

/// The Orb at the beginning.
pub fn object() -> Value {
    json!({
        "apiVersion": ORBITER, "kind": "Orb", "metadata": {"name": NAME},
        "spec": {
            "controlPlane": {"provider": "static", "pool": "cp", "nodes": 1},
            "workers": workers(2),
            "versions": {"kubernetes": VERSIONS[0], "containerd": "1.7.1"},
        },
    })
}

fn workers(nodes: u64) -> Value {
    json!([{"provider": "static", "pool": "w", "nodes": nodes}])
}

/// Performs an action of people. They accept refusals of the API server.
pub async fn act(site: &Site, rules: &mut Rules, chance: &mut Chance, deed: Deed, nth: u64) {
    match deed {
        Deed::Version(further) => {
            let orb = site.get(&reference(ORBITER, "Orb", None, NAME)).await;
            let has = orb.unwrap_or_default()["spec"]["versions"]["kubernetes"].clone();
            edit(site, json!({"versions": {"kubernetes": wanted(&has, further)}})).await;
        }
        Deed::Package => {
            let version = format!("1.7.{nth}");
            edit(site, json!({"versions": {"containerd": version}})).await;
        }
        Deed::Workers(nodes) => edit(site, json!({"workers": workers(nodes)})).await,
        Deed::Cordon => cordon(site, rules, chance).await,
        Deed::Uncordon => {
            for uid in std::mem::take(rules.cordoned()) {
                uncordon(site, &uid).await;
            }
        }
        Deed::Garble => {
            if let Some(node) = pick(site, chance, |_| true).await {
                let patch = json!({"metadata": {"annotations": {DESIRED: "what?"}}});
                let _ = site.patch(&named(&node), None, patch).await;
            }
        }
    }
}

/// A version from the list, but never one with an older minor version than the present one.
fn wanted(has: &Value, further: usize) -> &'static str {
    let minor = |version: &str| version.split('.').nth(1).map(str::to_owned);
    let at_least = has.as_str().and_then(minor);
    let mut from = VERSIONS.iter().skip_while(|version| minor(version) < at_least);
    let last = VERSIONS[VERSIONS.len() - 1];
    from.nth(further).copied().unwrap_or(last)
}

async fn edit(site: &Site, spec: Value) {
    let orb = reference(ORBITER, "Orb", None, NAME);
    let _ = site.patch(&orb, None, json!({"spec": spec})).await;
}

/// Cordons a node as kubectl does, but with the read version as precondition: the rules must know who cordoned it.
async fn cordon(site: &Site, rules: &mut Rules, chance: &mut Chance) {
    let free = |node: &Value| node["spec"]["unschedulable"] != true;
    let Some(node) = pick(site, chance, free).await else {
        return;
    };
    let metadata = &node["metadata"];
    let patch = json!({
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "spec": {"unschedulable": true},
    });
    if site.patch(&named(&node), None, patch).await.is_ok() {
        let uid = metadata["uid"].as_str().unwrap_or_default();
        rules.cordoned().insert(uid.to_owned());
    }
}

async fn uncordon(site: &Site, uid: &str) {
    let nodes = site.list("v1", "Node").await;
    if let Some(node) = nodes.iter().find(|node| node["metadata"]["uid"] == *uid) {
        let patch = json!({"spec": {"unschedulable": null}});
        let _ = site.patch(&named(node), None, patch).await;
    }
}

async fn pick(site: &Site, chance: &mut Chance, which: impl Fn(&Value) -> bool) -> Option<Value> {
    let nodes = site.list("v1", "Node").await;
    let nodes: Vec<&Value> = nodes.iter().filter(|node| is_node(node) && which(node)).collect();
    (!nodes.is_empty()).then(|| chance.pick(&nodes).clone())
}

fn named(node: &Value) -> polity_core::contract::ObjectRef {
    polity_core::object::Object::new(node.clone()).reference()
}

/// Whether a Node belongs to the Orb.
pub fn is_node(node: &Value) -> bool {
    node["metadata"]["labels"][LABEL] == NAME
}

/// The names of the machines that the Orb wants.
pub fn machines(orb: &Value) -> BTreeSet<String> {
    let pools = orb["spec"]["workers"].as_array().into_iter().flatten();
    pools
        .chain([&orb["spec"]["controlPlane"]])
        .flat_map(|pool| {
            let name = pool["pool"].as_str().unwrap_or_default();
            (0..pool["nodes"].as_u64().unwrap_or_default())
                .map(move |number| format!("{NAME}-{name}-{number}"))
        })
        .collect()
}
