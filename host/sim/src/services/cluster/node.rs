//! Nodes: what a machine is in the cluster that it joins, as data. Whoever plays the cluster makes objects of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Sim;
use crate::config::ailment::Ailment;
use crate::config::scenario::{Intervention, Span};
use crate::hypervisor::vm::{Power, Stamp};
use crate::kernel::draw::draw;
use crate::services::machine::provider_id;
use crate::world::Due;

/// How long the node of a machine that is gone is told of: long enough for everybody who looks now and then.
const REMEMBERED: u64 = 600_000;

/// The node of a machine, from the machine's creation on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    /// The machine's name.
    pub(crate) machine: String,
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    /// The digest of the token it joins with.
    pub(crate) token: Option<String>,
    /// Milliseconds after it has booted; none: as the configuration says.
    pub(crate) joins_after: Option<u64>,
    pub(crate) never: bool,
    /// When the machine has booted, the last time that it was turned on.
    pub(crate) booted: u64,
    pub(crate) joined: Option<u64>,
    pub(crate) left: Option<u64>,
    /// When the machine was removed.
    pub(crate) gone: Option<u64>,
    /// Since when it is not heard of.
    pub(crate) silent: Option<u64>,
    /// Since when it is heard of, and has no other ailments than these.
    pub(crate) well: u64,
    pub(crate) ailments: BTreeMap<Ailment, u64>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) taints: Vec<Value>,
    /// For which joining there is, or was, a Node.
    #[serde(default)]
    pub(crate) registered: Option<u64>,
    /// For which leaving the Node was deleted.
    #[serde(default)]
    pub(crate) deregistered: Option<u64>,
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// `metadata.name`; two machines may share one if the scenario says so.
    pub name: String,
    /// `spec.providerID`
    pub provider_id: String,
    /// The machine's name.
    pub machine: String,
    /// The uid of the object that the machine was made for.
    pub owner: String,
    /// The tenant of that object.
    pub tenant: String,
    /// The labels with which it joined.
    pub labels: BTreeMap<String, String>,
    /// The taints with which it joined.
    pub taints: Vec<Value>,
    /// When it joined, the last time; Unix milliseconds. This is the moment to create a Node: one that somebody
    /// deletes later is not made again by a kubelet that runs on.
    pub joined: u64,
    /// When it left the cluster: the moment to delete its Node. The machine runs on.
    pub left: Option<u64>,
    /// When its machine was removed. Its Node stays, and is not heard of any more.
    pub gone: Option<u64>,
    /// There is, or was, a Node since it joined: [`Sim::note_registered`].
    pub registered: bool,
    /// It was deleted since the machine left: [`Sim::note_deregistered`].
    pub deregistered: bool,
    /// The condition `Ready` is true.
    pub ready: bool,
    /// Its kubelet is at work, whatever anybody believes of it: it ends the pods that are to end.
    pub heard: bool,
    /// `Ready` first, then what can be wrong.
    pub conditions: Vec<NodeCondition>,
    /// When the last of the conditions came about; Unix milliseconds.
    pub since: u64,
}

/// One condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// `Ready`, `DiskPressure` and so on.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// Unix milliseconds.
    pub since: u64,
}

impl Sim {
    /// The nodes that have joined, at this moment, the oldest machine first. A machine that is gone is told of for ten
    /// minutes more. [`Sim::next_event_after`] says when to look again.
    pub fn nodes(&mut self, now_ms: u64) -> Vec<NodeView> {
        let now = self.advance(now_ms);
        let nodes = self.world.nodes.iter();
        nodes
            .filter_map(|(number, node)| self.view(now, *number, node))
            .collect()
    }

    /// Whoever plays the cluster has made a Node for the machine that joined.
    pub fn note_registered(&mut self, provider_id: &str) {
        self.note_node(provider_id, |node| node.registered = node.joined);
    }

    /// Whoever plays the cluster has deleted the Node of the machine that left.
    pub fn note_deregistered(&mut self, provider_id: &str) {
        self.note_node(provider_id, |node| node.deregistered = node.left);
    }

    fn note_node(&mut self, id: &str, note: impl FnOnce(&mut Node)) {
        let number = self.world.nodes.keys().copied();
        let number = number.into_iter().find(|number| provider_id(*number) == id);
        if let Some(node) = number.and_then(|number| self.world.nodes.get_mut(&number)) {
            note(node);
            self.dirty = true;
        }
    }

    /// What `api-server.probe` answers.
    pub(crate) fn probe(&self, at: u64) -> Value {
        match self.api_server_back(at) {
            None => json!({"answers": true}),
            Some(_) => json!({"answers": false, "message": "the API server does not answer"}),
        }
    }

    /// When the API server answers again, if it does not.
    pub(crate) fn api_server_back(&self, at: u64) -> Option<u64> {
        let down = self
            .down()
            .find(|span| (span.from.0..span.until.0).contains(&self.world.elapsed(at)));
        down.map(|span| self.world.head.start + span.until.0)
    }

    fn down(&self) -> impl Iterator<Item = &Span> {
        let calm = self.world.head.calm;
        self.config.api_server_down.iter().filter(move |_| !calm)
    }

    /// When a node changes by nothing but time.
    pub(crate) fn node_turns(&self) -> Vec<u64> {
        let grace = self.config.machines.grace.0;
        let silent = self.world.nodes.values().filter(|node| node.joined.is_some());
        let silent = silent.filter_map(|node| node.silent).map(|since| since + grace);
        let spans = self
            .down()
            .flat_map(|span| [span.from.0, span.from.0 + grace, span.until.0]);
        silent.chain(spans.map(|at| self.world.head.start + at)).collect()
    }

    /// The machine was turned on or off, or is gone.
    pub(crate) fn repower(&mut self, at: u64, number: u64, power: Option<Power>) {
        let (machines, seed) = (&self.config.machines, self.world.head.seed);
        let (Some(node), Some(vm)) = (self.world.nodes.get_mut(&number), self.world.vms.get(&number)) else {
            return;
        };
        if power != Some(Power::On) {
            node.silent.get_or_insert(at);
        }
        match power {
            Some(Power::On) => {
                node.booted = at + machines.boot.pick(draw(seed, "boot", &vm.bios_uuid, at));
                let join = machines.join.pick(draw(seed, "join", &vm.bios_uuid, at));
                let after = match node.joined {
                    Some(_) => 0,
                    None => node.joins_after.unwrap_or(join),
                };
                let speaks = node.booted + after;
                self.world.schedule(speaks, Due::Join(number));
            }
            Some(_) => {}
            None => {
                node.gone = Some(at);
                let forgotten = at + self.config.lag.0 + 1 + REMEMBERED;
                self.world.schedule(forgotten, Due::Bury(number));
            }
        }
    }

    /// The machine has booted: its node joins, or is heard of again.
    pub(crate) fn join(&mut self, at: u64, number: u64) {
        let back = self.api_server_back(at);
        let Some(node) = self.world.nodes.get(&number) else {
            return;
        };
        if !self.runs(at, number) || node.left.is_some() || node.never {
            return;
        }
        if node.joined.is_none() {
            if let Some(back) = back {
                return self.world.schedule(back, Due::Join(number));
            }
            if !self.lets_join(at, node.token.as_deref()) {
                return;
            }
        }
        let node = self.world.nodes.get_mut(&number).expect("found above");
        node.joined.get_or_insert(at);
        node.silent = None;
        node.well = at;
    }

    /// It is on, and was not turned on a moment ago.
    fn runs(&self, at: u64, number: u64) -> bool {
        let version = self.world.vms.get(&number).and_then(|vm| vm.current());
        let on = version.is_some_and(|version| !version.gone && version.power == Power::On);
        on && self
            .world
            .nodes
            .get(&number)
            .is_some_and(|node| at >= node.booted)
    }

    /// Something happens to the node of a machine; the machine itself goes on.
    pub(crate) fn befall(&mut self, at: u64, number: u64, what: Intervention) {
        let runs = self.runs(at, number);
        if let (Intervention::Retire, Some(member)) = (what, self.world.members.get_mut(&number)) {
            member.replacement_required = true;
        }
        let Some(node) = self.world.nodes.get_mut(&number) else {
            return self.befall_router(number, what);
        };
        match what {
            Intervention::FallSilent => {
                node.silent.get_or_insert(at);
            }
            Intervention::Ail(ailment) => {
                node.ailments.entry(ailment).or_insert(at);
            }
            Intervention::Leave => node.left = node.joined.map(|_| at),
            Intervention::Recover => {
                node.ailments.clear();
                node.never = false;
                node.well = at;
                if node.left.take().is_some() {
                    node.joined = Some(at);
                    self.forget_agent(number);
                }
                if runs {
                    self.join(at, number);
                }
            }
            // Matters of the VM, and of routers.
            Intervention::Retire
            | Intervention::Vanish
            | Intervention::PowerOn
            | Intervention::PowerOff
            | Intervention::Suspend
            | Intervention::Hang
            | Intervention::Withdraw => {}
        }
    }

    pub(crate) fn bury(&mut self, number: u64) {
        if let Some(token) = self.world.nodes.remove(&number).and_then(|node| node.token) {
            self.forget_token(&token);
        }
    }

    fn view(&self, now: u64, number: u64, node: &Node) -> Option<NodeView> {
        let joined = node.joined?;
        let conditions = self.conditions(now, node, joined);
        Some(NodeView {
            name: node.name.clone(),
            provider_id: provider_id(number),
            machine: node.machine.clone(),
            owner: node.stamp.owner.clone(),
            tenant: node.stamp.tenant.clone(),
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            joined,
            left: node.left,
            gone: node.gone,
            registered: node.registered == node.joined,
            deregistered: node.deregistered == node.left,
            ready: conditions[0].status == "True",
            heard: node.silent.is_none() && node.left.is_none() && self.api_server_back(now).is_none(),
            since: conditions
                .iter()
                .map(|condition| condition.since)
                .max()
                .unwrap_or(joined),
            conditions,
        })
    }

    fn conditions(&self, now: u64, node: &Node, joined: u64) -> Vec<NodeCondition> {
        let unknown = self.unheard(now, node);
        let well = node.well.max(self.heard_again(now));
        let one = |kind, ailment, bad: &'static str, good: &'static str| match (
            unknown,
            node.ailments.get(&ailment),
        ) {
            (Some(since), _) => NodeCondition {
                kind,
                status: "Unknown",
                reason: "NodeStatusUnknown",
                since,
            },
            (None, Some(since)) => NodeCondition {
                kind,
                status: bad,
                reason: "Ails",
                since: *since,
            },
            (None, None) => NodeCondition {
                kind,
                status: good,
                reason: "Well",
                since: well.max(joined),
            },
        };
        let ready = one("Ready", Ailment::NotReady, "False", "True");
        let others = Ailment::CONDITIONS.into_iter();
        let others = others.map(|(ailment, kind)| one(kind, ailment, "True", "False"));
        std::iter::once(ready).chain(others).collect()
    }

    /// Since when nobody knows how the node is: it was silent for too long, or could not be heard.
    fn unheard(&self, now: u64, node: &Node) -> Option<u64> {
        let elapsed = self.world.elapsed(now);
        let down = self
            .down()
            .find(|span| (span.from.0..span.until.0).contains(&elapsed));
        let down = down.map(|span| self.world.head.start + span.from.0);
        let last = [node.silent, down].into_iter().flatten().min()?;
        let unknown = last + self.config.machines.grace.0;
        (now >= unknown).then_some(unknown)
    }

    /// When the nodes were heard again after they could not be for too long, the last time.
    fn heard_again(&self, now: u64) -> u64 {
        let elapsed = self.world.elapsed(now);
        let grace = self.config.machines.grace.0;
        let long = self
            .down()
            .filter(|span| span.until.0 <= elapsed && span.until.0 - span.from.0 > grace);
        long.map(|span| self.world.head.start + span.until.0)
            .max()
            .unwrap_or(0)
    }
}
