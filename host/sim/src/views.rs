//! What only a simulation can tell: all there is, and all that happened.

use crate::config::scenario::REACHABLE;
use crate::kernel::faults::Subject;
use serde_json::Value;

use crate::hypervisor::effects::Effect;
use crate::hypervisor::vm::Vm;
use crate::power::Power;
use crate::services::cluster::{Cluster, NodeView};
use crate::services::pool::{PoolMachine, Pools};
use crate::services::router::{PortView, RouterView, Routers};
use crate::services::session::Sessions;
use crate::sim::Sim;

/// A VM that exists or is being cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmView {
    /// `vm-7`
    pub id: String,
    /// Which is the intent of its clone as well.
    pub name: String,
    /// The primary's uid, in the shipped policy.
    pub instance_uuid: String,
    /// The primary's uid, as the host said.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// The account that it is in; none for the cloud's own.
    pub account: Option<String>,
    /// The key of the pending entry.
    pub key: Option<String>,
    /// Off while it is being cloned.
    pub power: Power,
    /// Its clone is running.
    pub creating: bool,
    /// Guest metadata.
    pub metadata: Option<String>,
    /// Addresses that anybody can use, in the order of its NICs.
    pub ips: Vec<String>,
    /// When its clone was submitted; Unix milliseconds.
    pub submitted: u64,
}

impl Sim {
    /// All VMs at this moment, clones in progress among them, the oldest first.
    pub fn vms(&mut self, now_ms: u64) -> Vec<VmView> {
        let now = self.advance(now_ms);
        let there = self.vms.all().filter(|vm| vm.creating() || vm.exists());
        there.map(|vm| VmView::new(vm, now)).collect()
    }

    /// The nodes that have joined, at this moment, the oldest machine first. A machine that is gone is told of for ten
    /// minutes more. [`Sim::next_event_after`] says when to look again.
    pub fn nodes(&mut self, now_ms: u64) -> Vec<NodeView> {
        self.advance(now_ms);
        self.service::<Cluster>().views(&self.kernel)
    }

    /// All machines of pools at this moment, the oldest first.
    pub fn pool_machines(&mut self, now_ms: u64) -> Vec<PoolMachine> {
        let now = self.advance(now_ms);
        self.service::<Pools>().views(&self.vms, now)
    }

    /// The routers' VMs at this moment, the oldest first.
    pub fn routers(&mut self, now_ms: u64) -> Vec<RouterView> {
        let now = self.advance(now_ms);
        self.service::<Routers>().views(&self.vms, now)
    }

    /// The ports that routers have.
    pub fn router_ports(&self) -> Vec<PortView> {
        self.service::<Routers>().port_views()
    }

    /// What the sessions that have not expired are known by.
    pub fn session_tokens(&self) -> impl Iterator<Item = &str> {
        self.service::<Sessions>().tokens()
    }

    /// Whether the scenario lets the API server of the machines' cluster answer.
    pub fn api_server_answers(&mut self, now_ms: u64) -> bool {
        self.advance(now_ms);
        self.service::<Cluster>().answers(&self.kernel)
    }

    /// Everything that happened up to the last call, in order.
    pub fn effects(&self) -> &[Effect] {
        self.vms.effects()
    }

    /// Stops remembering effects, for simulations without end.
    pub fn forget_effects(&mut self) {
        self.vms.remember_effects(false);
    }

    /// Remembers effects from now on, where they were forgotten.
    pub fn remember_effects(&mut self) {
        self.vms.remember_effects(true);
    }

    /// When something happens by itself next: a task ends, an outage begins or is over, an operator intervenes, a
    /// node joins or is given up.
    pub fn next_event_after(&mut self, now_ms: u64) -> Option<u64> {
        let now = self.advance(now_ms);
        let turns = self.service::<Cluster>().turns(&self.kernel);
        let edges = self.kernel.outage_turns().chain(turns).filter(|at| *at > now);
        edges.chain(self.kernel.next_due()).min()
    }

    /// From now on nothing goes wrong any more. What has begun goes on: doomed tasks fail, late effects arrive.
    pub fn stop_faults(&mut self) {
        self.kernel.stop_faults();
    }

    /// Whether the scenario has something left to do: an outage or an event to come, an effect that is late, a rule
    /// with `until` before that time, a rule with `nth` or `count` that has not fired so often (`each` and
    /// `probability` aside: nobody can say when those are done).
    pub fn has_unfinished_faults(&mut self, now_ms: u64) -> bool {
        let now = self.advance(now_ms);
        self.kernel.has_unfinished_faults(now)
            || self.service::<Cluster>().has_unfinished_faults(&self.kernel)
    }

    /// Whoever plays the cluster has made a Node for the machine that joined.
    pub fn note_registered(&mut self, provider_id: &str) {
        let now = self.now();
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.note_registered(cx.kernel, provider_id)
        });
    }

    /// Whoever plays the cluster has deleted the Node of the machine that left.
    pub fn note_deregistered(&mut self, provider_id: &str) {
        let now = self.now();
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.note_deregistered(cx.kernel, provider_id)
        });
    }

    /// Tells of a bootstrap token that was made, as it will be in `machine.create`: the value, or where nothing
    /// unseals, the reference. `ttl_ms` is how long it is valid. Made anew, it is valid again.
    pub fn admit_token(&mut self, now_ms: u64, token: &Value, ttl_ms: u64) {
        let now = self.advance(now_ms);
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.admit_token(cx.kernel, token, ttl_ms)
        });
    }

    /// Tells of a bootstrap token that was taken back, as [`Sim::admit_token`] would of one that was made: no machine
    /// joins with it any more.
    pub fn revoke_token(&mut self, now_ms: u64, token: &Value) {
        let now = self.advance(now_ms);
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.revoke_token(cx.kernel, token)
        });
    }

    /// What whoever asks is told: whether the API server answers, unless a rule of the scenario denies it.
    pub fn reachable(&mut self, now_ms: u64) -> bool {
        let now = self.advance(now_ms);
        let subject = Subject {
            operation: REACHABLE,
            owner: "",
            tenant: "",
            about: None,
        };
        self.kernel.fault(now, &subject).is_none() && self.api_server_answers(now)
    }
}

impl VmView {
    fn new(vm: &Vm, now: u64) -> Self {
        VmView {
            id: vm.id(),
            name: vm.name.clone(),
            instance_uuid: vm.instance_uuid.clone(),
            owner: vm.stamp.owner.clone(),
            tenant: vm.stamp.tenant.clone(),
            account: vm.stamp.account.clone(),
            key: vm.stamp.key.clone(),
            power: vm.current().map_or(Power::Off, |version| version.power),
            creating: vm.creating(),
            metadata: vm.current().and_then(|version| version.metadata.clone()),
            ips: vm.leased(now),
            submitted: vm.submitted,
        }
    }
}
