//! Pools of machines from which kubeadm makes a cluster: the provider's side, and the machines for their
//! agents.
//!
//! The machines are VMs like others. The service `cluster` makes nodes of them.

mod agent;
mod view;

use std::collections::BTreeSet;
use std::time::Duration;

use polity_clouds::catalogue::pool::{ADD, INSTALL};
use polity_clouds::catalogue::{Named, node, pool};
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Context, Service};
use crate::config::scenario::Intervention;
use crate::config::{Machines, Packages, PoolDurations, SimConfig};
use crate::event::{Call, Event};
use crate::guards::Guards;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::vm::{self, Vm, provider_id};
use crate::kernel::call::{TaskError, text};
use crate::kernel::kept::{Note, Table};
use crate::kernel::tasks::Task;
use crate::power::Power;
use agent::Agent;
pub use view::PoolMachine;

pub(crate) struct Pools {
    machines: Machines,
    durations: PoolDurations,
    packages: Packages,
    /// The pools of each owner.
    pools: Table<String, BTreeSet<String>>,
    /// Machines of pools, by the number of their VM.
    members: Table<u64, Member>,
    guards: Guards,
}

/// The state of a pool's machine in addition to that of its VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    pool: String,
    tier: Tier,
    node_name: String,
    /// Whether the pool wants another machine instead.
    replacement_required: bool,
    /// The installed agent.
    agent: Option<Agent>,
    /// How often the machine was turned on.
    boots: u64,
    /// When it has booted after the last power-on; `None` if it is off.
    up: Option<u64>,
    /// Whether it has joined the cluster.
    is_node: bool,
}

/// The tier of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tier {
    ControlPlane,
    Worker,
}

impl Pools {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Pools {
            machines: config.machines.clone(),
            durations: config.pools.clone(),
            packages: config.packages.clone(),
            pools: Table::default(),
            members: Table::default(),
            guards: Guards::default(),
        }
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
    }

    fn list(&self, cx: &Context<'_>, call: &Call) -> Value {
        let owner = &call.caller.owner;
        let address = |pool: &String| {
            let number = cx.kernel.draw("pool", &format!("{owner} {pool}"), 0);
            format!("10.{}.{}.10", number >> 8 & 0xff, number & 0xff)
        };
        let pools = self.pools.get(owner).into_iter().flatten();
        let pools = pools.map(|pool| json!({"pool": pool, "addresses": [address(pool)]}));
        json!({"pools": pools.collect::<Vec<_>>()})
    }

    /// Creates pools at once. Existing pools stay.
    fn ensure(&mut self, cx: &mut Context<'_>, call: &Call) -> Value {
        let wanted = call.arguments["pools"].as_array().into_iter().flatten();
        let pools = self.pools.get_or_default(call.caller.owner.clone());
        pools.extend(wanted.map(|pool| text(pool, "pool").to_owned()));
        cx.kernel.mark_dirty();
        json!({})
    }

    /// Adds a machine to a pool. It exists at once and is turned on. The list may miss it for as long as
    /// `lag`.
    fn add(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let pool = call.text("pool").to_owned();
        if let Some(earlier) = cx.vms.made_earlier(cx.kernel, call) {
            return Ok(self.describe(cx.vms, earlier));
        }
        let pools = self.pools.get(&call.caller.owner);
        if !pools.is_some_and(|pools| pools.contains(&pool)) {
            return Err(Failure::new(Code::NotFound, format!("no pool {pool:?}")));
        }
        let place = cx.vms.place(call, "pool", "machine", true)?;
        let number = cx.vms.create(cx.kernel, cx.at, call, place);
        let node_name = self.machines.node_name_of(call.text("name"), number);
        let member = Member {
            pool,
            tier: Tier::deserialize(&call.arguments["tier"]).unwrap_or(Tier::Worker),
            node_name: node_name.clone(),
            replacement_required: false,
            agent: None,
            boots: 0,
            up: None,
            is_node: false,
        };
        self.members.insert(number, member);
        cx.kernel.announce(Event::MachineAdded {
            vm: number,
            node_name,
        });
        cx.vms.start_created(cx.kernel, cx.at, call, number);
        Ok(self.describe(cx.vms, number))
    }

    /// The machines of all pools of the caller. The list may lag.
    fn list_machines(&self, cx: &mut Context<'_>, call: &Call) -> Value {
        let then = cx.kernel.look(cx.at, &call.caller.owner);
        let own = cx.vms.of_owner(&call.caller.owner);
        let there = own.filter(|vm| {
            let seen = vm.as_of(then).is_some_and(|version| !version.gone);
            self.members.contains_key(&vm.number) && call.caller.sees(&vm.stamp) && seen
        });
        let machines: Vec<Value> = there.map(|vm| self.describe(cx.vms, vm.number)).collect();
        json!({"machines": machines})
    }

    /// The description of a pool's machine.
    fn describe(&self, vms: &Hypervisor, number: u64) -> Value {
        let member = &self.members[&number];
        let agent = match &member.agent {
            None => "absent",
            Some(agent) if agent.initialized => "initialized",
            Some(_) => "running",
        };
        let mut machine = json!({
            "id": vm::id(number), "name": vms.get(number).map(|vm| &vm.name), "pool": member.pool,
            "tier": member.tier, "providerID": provider_id(number), "nodeName": member.node_name, "agent": agent,
            "replacementRequired": member.replacement_required,
        });
        if let Some(release) = member.agent.as_ref().and_then(|agent| agent.release.as_ref()) {
            machine["agentRelease"] = json!(release);
        }
        machine
    }

    /// Starts work on a machine of a pool. If the same work is under way, the call joins it.
    fn submit(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let id = call.text("machine");
        let vm = cx.vms.visible(&call.caller, id)?;
        let number = vm.number;
        if !vm.exists() || !self.members.contains_key(&number) {
            let message = format!("no machine {id:?} in any pool");
            return Err(Failure::new(Code::NotFound, message));
        }
        if let Some(joined) = cx.vms.join(cx.kernel, call, number)? {
            return Ok(joined);
        }
        let work = match call.operation.as_str() {
            INSTALL => (self.durations.install, call.arguments.clone()),
            _ => (self.durations.remove, Value::Null),
        };
        cx.vms.change(cx.kernel, cx.at, call, number, work)
    }

    /// A machine was turned on or off, or is gone: a boot begins or ends.
    fn on_power(&mut self, cx: &mut Context<'_>, number: u64, power: Option<Power>) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        member.up = None;
        if power == Some(Power::On) {
            member.boots += 1;
            member.up = Some(cx.booted(self.machines.boot, number));
        }
        self.end_boot(cx, number);
    }

    /// The machine of this node's name.
    fn member_of(&self, vms: &Hypervisor, node: &str) -> Option<u64> {
        let mut named = self.members.iter().filter(|(_, member)| member.node_name == node);
        let exists = |number: u64| vms.get(number).is_some_and(Vm::exists);
        named
            .find(|(number, _)| exists(**number))
            .map(|(number, _)| *number)
    }
}

impl Service for Pools {
    fn operations(&self, visible_within: Duration) -> Vec<Named> {
        let pools = pool::operations(visible_within).into_iter();
        pools.chain(node::operations()).collect()
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![("pools", &mut self.pools), ("members", &mut self.members)]
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        let arguments = &request.arguments;
        let named = match text(arguments, "node") {
            "" => cx.vms.name_of(text(arguments, "machine")),
            node => {
                let number = self.member_of(cx.vms, node);
                number
                    .and_then(|number| cx.vms.get(number))
                    .map(|vm| vm.name.clone())
            }
        };
        named.or_else(|| arguments.get("name").and_then(Value::as_str).map(str::to_owned))
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        match call.operation.as_str() {
            pool::LIST => Ok(self.list(cx, call)),
            pool::ENSURE => Ok(self.ensure(cx, call)),
            pool::MACHINES => Ok(self.list_machines(cx, call)),
            ADD => self.add(cx, call),
            pool::REMOVE | INSTALL => self.submit(cx, call),
            _ => self.on_agent_call(cx, call),
        }
    }

    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        match task.operation.as_str() {
            INSTALL => self.install_agent(task.about, &task.told),
            _ => cx.vms.set_power(cx.kernel, cx.at, task.about, None),
        }
        Ok(())
    }

    fn on_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        match event {
            Event::PowerChanged { vm, power } => self.on_power(cx, *vm, *power),
            Event::Installed { vm, work } => self.on_installed(cx, *vm, *work),
            Event::Rebooted { vm } => self.on_rebooted(cx, *vm),
            Event::NodeJoined { vm } => self.on_joined(*vm),
            Event::Intervened {
                vm,
                does: Intervention::Retire,
            } => {
                if let Some(member) = self.members.get_mut(vm) {
                    member.replacement_required = true;
                }
            }
            Event::Forgotten { vm } => drop(self.members.remove(vm)),
            _ => {}
        }
    }

    fn created(&self, vms: &Hypervisor, vm: u64) -> Value {
        self.describe(vms, vm)
    }
}

#[cfg(test)]
mod tests;
