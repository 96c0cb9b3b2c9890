//! Rules about an Orb and its nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Verdicts;
use crate::all_workflows::orb;
use crate::all_workflows::snapshot::Snapshot;

/// The taint with which orbiter marks what it cordoned itself.
const UPDATING: &str = "orbiter.polity.dev/updating";

/// What was seen so far.
#[derive(Default)]
pub struct Rules {
    /// Nodes that people have cordoned, by uid.
    pub cordoned: BTreeSet<String>,
    /// By id.
    machines: BTreeMap<String, Machine>,
}

/// What was seen of a machine.
#[derive(Default)]
struct Machine {
    installed: BTreeMap<String, String>,
    /// Something else is installed than when it was rebooted last.
    changed: bool,
    reboots: u64,
}

impl Rules {
    /// Looks at everything.
    pub fn look(&mut self, snapshot: &Snapshot) -> Verdicts {
        Self::changing(snapshot)?;
        self.reboots(snapshot)?;
        self.cordons(snapshot)
    }

    /// No second node may be changed, is changed, or is cordoned for that.
    fn changing(snapshot: &Snapshot) -> Verdicts {
        let ours = |node: &&Value| {
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let mut keys = taints.map(|taint| &taint["key"]);
            is_allowed(node) || keys.any(|key| key == UPDATING)
        };
        let names = snapshot.nodes.iter().filter(ours);
        let names = names.filter_map(|node| node["metadata"]["name"].as_str());
        let mut changing: BTreeSet<&str> = names.collect();
        let at_work = snapshot.pool.iter();
        let at_work = at_work.filter(|machine| machine.initialized && machine.at_work);
        changing.extend(at_work.map(|machine| machine.node.as_str()));
        match changing.len() {
            0 | 1 => Ok(()),
            _ => Err(format!("two nodes are changed at once: {changing:?}")),
        }
    }

    /// A machine is rebooted once after what is installed on it has changed.
    fn reboots(&mut self, snapshot: &Snapshot) -> Verdicts {
        for machine in snapshot.pool.iter() {
            let seen = self.machines.entry(machine.id.clone()).or_default();
            if seen.installed != machine.installed {
                seen.installed.clone_from(&machine.installed);
                seen.changed = true;
            }
            let before = std::mem::replace(&mut seen.reboots, machine.reboots);
            if before == machine.reboots {
                continue;
            }
            if machine.reboots > before + 1 || !seen.changed {
                let name = &machine.name;
                return Err(format!("{name} was rebooted twice for one change"));
            }
            seen.changed = false;
        }
        Ok(())
    }

    /// What people have cordoned stays cordoned.
    fn cordons(&self, snapshot: &Snapshot) -> Verdicts {
        for node in snapshot.nodes.iter() {
            let metadata = &node["metadata"];
            let by_people = metadata["uid"]
                .as_str()
                .is_some_and(|uid| self.cordoned.contains(uid));
            if by_people && node["spec"]["unschedulable"] != true {
                let name = &metadata["name"];
                return Err(format!("{name}, which people have cordoned, was uncordoned"));
            }
        }
        Ok(())
    }

    /// Once everything is settled: as many machines as are wanted, all of which are known, and nodes with the versions
    /// that are wanted.
    pub fn compare(&self, snapshot: &Snapshot) -> Verdicts {
        for orb in snapshot.orbs.iter() {
            let wanted = orb::machines(orb);
            let there: BTreeSet<String> = snapshot.pool.iter().map(|machine| machine.name.clone()).collect();
            let known = orb["status"]["machines"].as_object();
            let known: BTreeSet<String> = known.into_iter().flat_map(|all| all.keys().cloned()).collect();
            if there.len() != snapshot.pool.len() || there.len() != wanted.len() || known != there {
                return Err(format!(
                    "machines {wanted:?} are wanted, {known:?} known, {there:?} there"
                ));
            }
            if orb["status"]["phase"] != "running" || !orb["status"]["changing"].is_null() {
                return Err(format!("the Orb settled at {}", orb["status"]));
            }
            let versions = &orb["spec"]["versions"];
            for machine in snapshot.pool.iter() {
                let has = |package: &str, of: &str| {
                    versions[of] == *machine.installed.get(package).map_or("", |v| v)
                };
                if !has("kubelet", "kubernetes") || !has("containerd", "containerd") {
                    let (name, installed) = (&machine.name, &machine.installed);
                    return Err(format!("{name} settled with {installed:?}, wanted is {versions}"));
                }
            }
        }
        let nodes: Vec<&Value> = snapshot.nodes.iter().filter(|node| orb::is_node(node)).collect();
        if nodes.len() != snapshot.pool.len() {
            return Err(format!(
                "{} machines are {} nodes",
                snapshot.pool.len(),
                nodes.len()
            ));
        }
        match nodes.iter().find(|node| is_allowed(node)) {
            None => Ok(()),
            Some(node) => Err(format!("{} may still be changed", node["metadata"]["name"])),
        }
    }
}

fn is_allowed(node: &Value) -> bool {
    node["metadata"]["annotations"][orb::ALLOWED] == "true"
}
