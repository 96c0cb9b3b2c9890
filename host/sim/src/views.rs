//! The state that only a simulation can show: all things that exist, and all that happened.

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
    /// The name, which is also the intent of its clone.
    pub name: String,
    /// The instance UUID. The shipped policy sets it to the primary's uid.
    pub instance_uuid: String,
    /// The primary's uid, as the host gave it.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// The account; `None` for the cloud's own.
    pub account: Option<String>,
    /// The key of the pending entry.
    pub key: Option<String>,
    /// Off while it is being cloned.
    pub power: Power,
    /// Whether its clone is running.
    pub creating: bool,
    /// Guest metadata.
    pub metadata: Option<String>,
    /// The addresses that others can use, in the order of its NICs.
    pub ips: Vec<String>,
    /// When its clone was submitted, in Unix milliseconds.
    pub submitted: u64,
}

impl Sim {
    /// All VMs at this moment, oldest first. Clones under way are among them.
    pub fn vms(&mut self, now_ms: u64) -> Vec<VmView> {
        let now = self.advance(now_ms);
        let there = self.vms.all().filter(|vm| vm.creating() || vm.exists());
        there.map(|vm| VmView::new(vm, now)).collect()
    }

    /// The nodes that have joined, oldest machine first. A removed machine is shown for ten minutes more.
    /// [`Sim::next_event_after`] tells when to look again.
    pub fn nodes(&mut self, now_ms: u64) -> Vec<NodeView> {
        self.advance(now_ms);
        self.service::<Cluster>().views(&self.kernel)
    }

    /// All machines of pools at this moment, oldest first.
    pub fn pool_machines(&mut self, now_ms: u64) -> Vec<PoolMachine> {
        let now = self.advance(now_ms);
        self.service::<Pools>().views(&self.vms, now)
    }

    /// The VMs of routers at this moment, oldest first.
    pub fn routers(&mut self, now_ms: u64) -> Vec<RouterView> {
        let now = self.advance(now_ms);
        self.service::<Routers>().views(&self.vms, now)
    }

    /// The ports that routers have.
    pub fn router_ports(&self) -> Vec<PortView> {
        self.service::<Routers>().port_views()
    }

    /// The tokens of the sessions that have not expired.
    pub fn session_tokens(&self) -> impl Iterator<Item = &str> {
        self.service::<Sessions>().tokens()
    }

    /// Whether the scenario lets the API server answer that machines join.
    pub fn api_server_answers(&mut self, now_ms: u64) -> bool {
        self.advance(now_ms);
        self.service::<Cluster>().answers(&self.kernel)
    }

    /// Everything that happened up to the last call, in order.
    pub fn effects(&self) -> &[Effect] {
        self.vms.effects()
    }

    /// Stops logging effects, for simulations without end.
    pub fn forget_effects(&mut self) {
        self.vms.remember_effects(false);
    }

    /// Logs effects from now on.
    pub fn remember_effects(&mut self) {
        self.vms.remember_effects(true);
    }

    /// When something happens by itself next: a task ends, an outage begins or ends, an operator intervenes,
    /// a node joins or is given up.
    pub fn next_event_after(&mut self, now_ms: u64) -> Option<u64> {
        let now = self.advance(now_ms);
        let turns = self.service::<Cluster>().turns(&self.kernel);
        let edges = self.kernel.outage_turns().chain(turns).filter(|at| *at > now);
        edges.chain(self.kernel.next_due()).min()
    }

    /// Stops all faults. What has begun continues: tasks that are to fail do fail, and late effects arrive.
    pub fn stop_faults(&mut self) {
        self.kernel.stop_faults();
    }

    /// Whether the scenario still has something to do: an outage or an event to come, a late effect, a rule
    /// with `until` before that time, a rule with `nth` or `count` that has not fired as often. Rules with
    /// `each` or `probability` do not count: nobody can say when they are done.
    pub fn has_unfinished_faults(&mut self, now_ms: u64) -> bool {
        let now = self.advance(now_ms);
        self.kernel.has_unfinished_faults(now)
            || self.service::<Cluster>().has_unfinished_faults(&self.kernel)
    }

    /// Notes that a Node was created for the machine that joined.
    pub fn note_registered(&mut self, provider_id: &str) {
        let now = self.now();
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.note_registered(cx.kernel, provider_id)
        });
    }

    /// Notes that the Node of the machine that left was deleted.
    pub fn note_deregistered(&mut self, provider_id: &str) {
        let now = self.now();
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.note_deregistered(cx.kernel, provider_id)
        });
    }

    /// Makes a minted bootstrap token known. `token` is as it will be in `machine.create`: the value, or the
    /// reference where nothing unseals it. `ttl_ms` is its lifetime. A revoked token becomes valid again.
    pub fn admit_token(&mut self, now_ms: u64, token: &Value, ttl_ms: u64) {
        let now = self.advance(now_ms);
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.admit_token(cx.kernel, token, ttl_ms)
        });
    }

    /// Makes a bootstrap token invalid, which is named as in [`Sim::admit_token`]. No machine can join with
    /// it any more.
    pub fn revoke_token(&mut self, now_ms: u64, token: &Value) {
        let now = self.advance(now_ms);
        self.with(now, |cluster: &mut Cluster, cx| {
            cluster.revoke_token(cx.kernel, token)
        });
    }

    /// The answer to the question whether the API server is reachable: it answers, and no rule of the
    /// scenario denies it.
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
