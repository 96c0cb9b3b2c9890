//! The cluster that machines join: its nodes, bootstrap tokens, API server, and kubeadm.
//!
//! It learns of machines from announcements of other services, and of their boots from the hypervisor.

mod api_server;
mod kubeadm;
mod node;
mod token;

use std::time::Duration;

use polity_clouds::catalogue::{Named, cluster};
use polity_core::call::CloudRequest;
use polity_core::contract::Answer;
use serde_json::Value;

use super::{Context, Service};
use crate::config::scenario::{Intervention, Span};
use crate::config::{Machines, PoolDurations, SimConfig};
use crate::event::{Call, Event, Kernel, MachineMade};
use crate::hypervisor::vm::provider_id;
use crate::kernel::call::{TaskError, text};
use crate::kernel::kept::{Note, Table};
use crate::kernel::tasks::Task;
use crate::power::Power;
use api_server::ApiServer;
use kubeadm::Candidate;
use node::Node;
pub use node::{NodeCondition, NodeView};
use token::Tokens;

/// How long the node of a removed machine is still shown. Everybody who looks now and then sees it.
const REMEMBERED: u64 = 600_000;

pub(crate) struct Cluster {
    machines: Machines,
    durations: PoolDurations,
    down: Vec<Span>,
    lag: u64,
    /// The nodes, by the number of their machine's VM.
    nodes: Table<u64, Node>,
    /// The candidates, by the number of their VM.
    candidates: Table<u64, Candidate>,
    /// The machine that created each owner's cluster.
    clusters: Table<String, u64>,
    tokens: Tokens,
}

impl Cluster {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Cluster {
            machines: config.machines.clone(),
            durations: config.pools.clone(),
            down: config.api_server_down.clone(),
            lag: config.lag.0,
            nodes: Table::default(),
            candidates: Table::default(),
            clusters: Table::default(),
            tokens: Tokens::new(config.machines.tokens),
        }
    }

    fn api_server(&self, kernel: &Kernel) -> ApiServer {
        ApiServer::new(kernel, &self.down, self.machines.grace.0)
    }

    /// The nodes that have joined, oldest machine first.
    pub(crate) fn views(&self, kernel: &Kernel) -> Vec<NodeView> {
        let (now, api_server) = (kernel.now(), self.api_server(kernel));
        let nodes = self.nodes.iter();
        nodes
            .filter_map(|(number, node)| node.view(now, *number, &api_server))
            .collect()
    }

    /// Whether the API server answers.
    pub(crate) fn answers(&self, kernel: &Kernel) -> bool {
        self.api_server(kernel).back(kernel.now()).is_none()
    }

    /// The times at which a node changes by itself.
    pub(crate) fn turns(&self, kernel: &Kernel) -> Vec<u64> {
        let joined = self.nodes.values().filter(|node| node.joined.is_some());
        self.api_server(kernel)
            .turns(joined.filter_map(|node| node.silent))
    }

    /// Whether the scenario has further times in which the API server is away.
    pub(crate) fn has_unfinished_faults(&self, kernel: &Kernel) -> bool {
        let elapsed = kernel.elapsed(kernel.now());
        !kernel.is_calm() && self.down.iter().any(|span| elapsed < span.until.0)
    }

    /// A Node was created for the machine that joined.
    pub(crate) fn note_registered(&mut self, kernel: &mut Kernel, id: &str) {
        self.note_node(kernel, id, |node| node.registered = node.joined);
    }

    /// The Node of the machine that left was deleted.
    pub(crate) fn note_deregistered(&mut self, kernel: &mut Kernel, id: &str) {
        self.note_node(kernel, id, |node| node.deregistered = node.left);
    }

    fn note_node(&mut self, kernel: &mut Kernel, id: &str, note: impl FnOnce(&mut Node)) {
        let mut numbers = self.nodes.keys().copied();
        let number = numbers.find(|number| provider_id(*number) == id);
        if let Some(node) = number.and_then(|number| self.nodes.get_mut(&number)) {
            note(node);
            kernel.mark_dirty();
        }
    }

    /// A bootstrap token was made.
    pub(crate) fn admit_token(&mut self, kernel: &mut Kernel, token: &Value, ttl_ms: u64) {
        self.tokens.admit(kernel, token, ttl_ms);
    }

    /// A bootstrap token was revoked.
    pub(crate) fn revoke_token(&mut self, kernel: &mut Kernel, token: &Value) {
        self.tokens.revoke(kernel, token);
    }

    fn on_made(&mut self, made: &MachineMade) {
        if let Some(digest) = &made.token {
            self.tokens.take(digest);
        }
        let node = Node {
            machine: made.name.clone(),
            name: made.node_name.clone(),
            stamp: made.stamp.clone(),
            token: made.token.clone(),
            joins_after: made.joins_after,
            never: made.never_joins,
            ..Node::default()
        };
        self.nodes.insert(made.vm, node);
    }

    /// The machine was turned on or off, or is gone.
    fn on_power(&mut self, cx: &mut Context<'_>, number: u64, power: Option<Power>) {
        let at = cx.at;
        if let Some(candidate) = self.candidates.get_mut(&number) {
            candidate.up = (power == Some(Power::On)).then(|| cx.booted(self.machines.boot, number));
        }
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        match power {
            Some(Power::On) => {
                let uuid = cx.vms.get(number).map(|vm| vm.bios_uuid.as_str());
                let join = cx.kernel.draw("join", uuid.unwrap_or_default(), at);
                let join = self.machines.join.pick(join);
                node.booted = cx.booted(self.machines.boot, number);
                let after = match node.joined {
                    Some(_) => 0,
                    None => node.joins_after.unwrap_or(join),
                };
                cx.kernel
                    .schedule(node.booted + after, Event::Booted { vm: number });
            }
            Some(_) => drop(node.silent.get_or_insert(at)),
            None => {
                node.silent.get_or_insert(at);
                node.gone = Some(at);
                let forgotten = at + self.lag + 1 + REMEMBERED;
                cx.kernel.schedule(forgotten, Event::NodeForgotten { vm: number });
            }
        }
    }

    /// The machine has booted: its node joins or is heard of again.
    fn on_booted(&mut self, cx: &mut Context<'_>, number: u64) {
        let at = cx.at;
        let back = self.api_server(cx.kernel).back(at);
        let Some(node) = self.nodes.get(&number) else {
            return;
        };
        if !runs(cx, number, node) || node.left.is_some() || node.never {
            return;
        }
        if node.joined.is_none() {
            if let Some(back) = back {
                return cx.kernel.schedule(back, Event::Booted { vm: number });
            }
            if !self.tokens.lets_join(at, node.token.as_deref()) {
                return;
            }
        }
        if let Some(node) = self.nodes.get_mut(&number) {
            node.joined.get_or_insert(at);
            node.silent = None;
            node.well = at;
        }
    }

    /// Something happens to the node of a machine. The machine itself runs on.
    fn on_intervention(&mut self, cx: &mut Context<'_>, number: u64, does: Intervention) {
        let at = cx.at;
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        match does {
            Intervention::FallSilent => drop(node.silent.get_or_insert(at)),
            Intervention::NodeProblem(problem) => drop(node.problems.entry(problem).or_insert(at)),
            Intervention::Leave => node.left = node.joined.map(|_| at),
            Intervention::Recover => {
                node.problems.clear();
                node.never = false;
                node.well = at;
                if node.left.take().is_some() {
                    node.joined = Some(at);
                    cx.kernel.announce(Event::NodeJoined { vm: number });
                }
                self.on_booted(cx, number);
            }
            // These concern the VM, pools or routers.
            Intervention::Retire
            | Intervention::Vanish
            | Intervention::PowerOn
            | Intervention::PowerOff
            | Intervention::Suspend
            | Intervention::Hang
            | Intervention::Withdraw => {}
        }
    }

    fn forget(&mut self, cx: &Context<'_>, number: u64) {
        if let Some(token) = self.nodes.remove(&number).and_then(|node| node.token) {
            self.tokens.forget(cx.kernel.now(), &token);
        }
    }
}

impl Service for Cluster {
    fn operations(&self, _: Duration) -> Vec<Named> {
        cluster::operations()
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![
            ("nodes", &mut self.nodes),
            ("candidates", &mut self.candidates),
            ("clusters", &mut self.clusters),
            ("tokens", &mut self.tokens.known),
        ]
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        cx.vms.name_of(text(&request.arguments, "machine"))
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        match call.operation.as_str() {
            cluster::INIT | cluster::JOIN => self.submit(cx, call),
            _ => Err(call.unknown()),
        }
    }

    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        self.register(cx, task)
    }

    fn on_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        match event {
            Event::MachineMade(made) => self.on_made(made),
            Event::MachineAdded { vm, node_name } => {
                let candidate = Candidate {
                    node_name: node_name.clone(),
                    prepared: false,
                    up: None,
                };
                self.candidates.insert(*vm, candidate);
            }
            Event::Prepared { vm } => {
                if let Some(candidate) = self.candidates.get_mut(vm) {
                    candidate.prepared = true;
                }
            }
            Event::PowerChanged { vm, power } => self.on_power(cx, *vm, *power),
            Event::Booted { vm } => self.on_booted(cx, *vm),
            Event::Intervened { vm, does } => self.on_intervention(cx, *vm, *does),
            Event::Forgotten { vm } => drop(self.candidates.remove(vm)),
            Event::NodeForgotten { vm } => self.forget(cx, *vm),
            _ => {}
        }
    }
}

/// Whether the machine is on and has booted.
fn runs(cx: &Context<'_>, number: u64, node: &Node) -> bool {
    cx.vms.is_on(number) && cx.at >= node.booted
}
