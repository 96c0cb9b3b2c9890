//! The node agents of a simulated world: a host process for each machine, as `polity node-agent` is one.
//!
//! An agent here outlives the boot of its machine, as one does that is restored together with it. So what it decided in
//! one boot may reach the machine in the next.

use std::collections::BTreeMap;

use polity_core::record::PassRecord;
use polity_sim::Millis;
use serde_json::Value;

use super::hosts::{calm, inject_faults};
use super::{Host, Site};
use crate::simulation::scenario::Rates;
use crate::simulation::seed::Chance;

/// An agent crashes after so many times fewer outputs than a host: it has fewer of them.
const FEWER: u64 = 10;

/// Agents, by node, and their supervisors.
pub struct Agents {
    running: BTreeMap<String, Host>,
    binding: fn(&str) -> Value,
    rates: Option<Rates>,
    chance: Chance,
    /// Of processes that ended.
    news: Vec<PassRecord>,
}

impl Agents {
    /// None runs yet. Each will have the binding for its node, on a connection that fails as often as this.
    pub fn new(binding: fn(&str) -> Value, rates: Rates, chance: Chance) -> Self {
        let crash = rates.crash * FEWER;
        Agents {
            running: BTreeMap::new(),
            binding,
            rates: Some(Rates { crash, ..rates }),
            chance,
            news: Vec::new(),
        }
    }

    /// Starts those of machines that do not run, and ends those without a machine.
    pub async fn supervise(&mut self, site: &Site) {
        let nodes: Vec<String> = site
            .pool_machines()
            .into_iter()
            .map(|machine| machine.node)
            .collect();
        let gone = |node: &String, host: &Host| host.has_ended() || !nodes.contains(node);
        let ended: Vec<String> = self
            .running
            .iter()
            .filter(|(node, host)| gone(node, host))
            .map(|(node, _)| node.clone())
            .collect();
        for node in ended {
            self.crash(&node).await;
        }
        for node in nodes {
            if !self.running.contains_key(&node) {
                let host = site.start_agent((self.binding)(&node));
                if let Some(rates) = self.rates {
                    inject_faults(&host, rates, &mut self.chance);
                }
                self.running.insert(node, host);
            }
        }
    }

    /// The agent of this node crashes.
    pub async fn crash(&mut self, node: &str) {
        if let Some(host) = self.running.remove(node) {
            self.news.extend(host.news());
            host.crash().await;
        }
    }

    /// The nodes whose agents run.
    pub fn nodes(&self) -> Vec<String> {
        self.running.keys().cloned().collect()
    }

    /// Nothing goes wrong with them any more.
    pub fn calm(&mut self) {
        self.rates = None;
        self.running.values().for_each(calm);
    }

    /// What is not settled.
    pub async fn stuck(&self, site: &Site) -> Vec<String> {
        let mut stuck = Vec::new();
        for host in self.running.values() {
            stuck.extend(site.settles(host, None, Millis(0)).await);
        }
        stuck
    }

    /// The passes that ended since this was asked last, of all of them.
    pub fn news(&mut self) -> Vec<PassRecord> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.running.values().flat_map(Host::news));
        news
    }
}
