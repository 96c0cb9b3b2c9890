//! Rules about the nodes of machines, and about the pods on all nodes.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::record::{Outcome, PassRecord};
use serde_json::Value;

use super::{Verdicts, text};
use crate::all_workflows::orb;
use crate::all_workflows::setting::HEALTHY;
use crate::all_workflows::snapshot::{Snapshot, is_deleting, phase};

/// What was seen so far.
#[derive(Default)]
pub struct Rules {
    /// Machines of the deployment that were given up because they were unknown for too long.
    given_up: BTreeSet<String>,
    /// Machines whose drain was forced.
    forced: BTreeSet<String>,
    /// Pods that are alive, by uid: the node.
    pods: BTreeMap<String, Value>,
    /// Machines that evicted a pod when the budget did not allow it, unless their drain turns out to be forced.
    suspects: BTreeSet<String>,
    /// Taints of people, by the node's uid.
    taints: BTreeMap<String, Vec<String>>,
}

impl Rules {
    /// Somebody put this taint on the node of this uid.
    pub fn tainted(&mut self, uid: &Value, key: &str) {
        self.taints.entry(text(uid)).or_default().push(key.to_owned());
    }

    /// Looks at everything.
    pub fn look(&mut self, snapshot: &Snapshot) -> Verdicts {
        self.given_up(snapshot)?;
        self.pods(snapshot)?;
        self.taints(snapshot)
    }

    /// A pass that took these edges has ended.
    pub fn passed(&mut self, pass: &PassRecord, notes: &BTreeSet<&str>) -> Verdicts {
        if notes.contains("MCM-H08") && pass.outcome == Outcome::Published {
            self.given_up.insert(pass.uid.clone());
        }
        if notes.contains("MCM-X11") || notes.contains("MCM-X12") {
            self.forced.insert(pass.uid.clone());
        }
        if notes.contains("MCM-D10") && self.suspects.remove(&pass.uid) && !self.forced.contains(&pass.uid) {
            return Err(format!("{} evicted a pod past its disruption budget", pass.key));
        }
        Ok(())
    }

    /// One machine of the deployment at a time is given up for what may be an outage of many.
    fn given_up(&mut self, snapshot: &Snapshot) -> Verdicts {
        let lost = |uid: &String| {
            let worker = snapshot
                .workers()
                .find(|worker| worker["metadata"]["uid"] == **uid);
            matches!(worker.and_then(phase), Some("Failed" | "Terminating"))
        };
        self.given_up.retain(lost);
        match self.given_up.len() {
            0 | 1 => Ok(()),
            many => Err(format!("{many} machines of one deployment are given up at once")),
        }
    }

    /// No pod is evicted that its budget protects, but by a drain that is forced: whether it is, its pass says. Those of
    /// an Orb never are.
    fn pods(&mut self, snapshot: &Snapshot) -> Verdicts {
        let living = snapshot.pods.iter().filter(|pod| !is_deleting(pod));
        let alive: BTreeMap<String, Value> = living
            .map(|pod| (text(&pod["metadata"]["uid"]), pod["spec"]["nodeName"].clone()))
            .collect();
        let ended = self.pods.iter().filter(|(uid, _)| !alive.contains_key(*uid));
        // With its node a pod is gone, whatever its budget says.
        let (evicted, lost): (Vec<_>, Vec<_>) =
            ended.map(|(_, on)| snapshot.node(on)).partition(Option::is_some);
        let evicted: Vec<&Value> = evicted.into_iter().flatten().collect();
        if alive.len() + lost.len() < HEALTHY {
            if let Some(node) = evicted.first()
                && evicted.iter().all(|node| orb::is_node(node))
            {
                let name = &node["metadata"]["name"];
                return Err(format!("a pod of {name} was evicted past its disruption budget"));
            }
            for node in evicted {
                let provider = &node["spec"]["providerID"];
                let by = snapshot
                    .mcm
                    .iter()
                    .find(|m| m["status"]["providerID"] == *provider);
                self.suspects.extend(by.map(|m| text(&m["metadata"]["uid"])));
            }
        }
        self.pods = alive;
        Ok(())
    }

    /// What people put on a node stays there.
    fn taints(&self, snapshot: &Snapshot) -> Verdicts {
        for node in snapshot.nodes.iter() {
            let wanted = self.taints.get(&text(&node["metadata"]["uid"]));
            for key in wanted.into_iter().flatten() {
                let taints = node["spec"]["taints"].as_array();
                if !taints.into_iter().flatten().any(|taint| taint["key"] == **key) {
                    let name = &node["metadata"]["name"];
                    return Err(format!("the taint {key} of {name} was overwritten"));
                }
            }
        }
        Ok(())
    }
}
