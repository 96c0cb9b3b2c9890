//! Pools of machines that kubeadm makes a cluster of: the provider's side.
//!
//! Their machines are VMs like others. What an agent does on them is in [`agent`](crate::services::pool::agent), how they become nodes
//! in [`kubeadm`](crate::services::cluster::kubeadm).

pub(crate) use polity_clouds::catalogue::pool::ADD;
pub(crate) mod agent;

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Sim;
use crate::hypervisor::vm::{self, Power};
use crate::kernel::call::{Plan, text};
use crate::kernel::draw::draw;
use crate::kernel::tasks::{Task, TaskKind};
use crate::services::machine::provider_id;
use crate::services::pool::agent::Agent;

/// The operations on one machine that answer a task.
pub(crate) const TASKS: [&str; 4] = [
    "pool.remove-machine",
    "agent.install",
    "kubeadm.init",
    "kubeadm.join",
];

/// What is more of a VM that is a machine of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    pub(crate) pool: String,
    pub(crate) tier: Tier,
    pub(crate) node_name: String,
    /// Somebody wants another one instead.
    pub(crate) replacement_required: bool,
    /// None until it is installed.
    pub(crate) agent: Option<Agent>,
    /// How often it was turned on.
    pub(crate) boots: u64,
    /// When it has booted, the last time that it was turned on; none while it is not.
    pub(crate) up: Option<u64>,
}

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tier {
    ControlPlane,
    Worker,
}

impl Sim {
    pub(crate) fn pools(&mut self, session: &Session) -> Value {
        let pools = self.world.pools.get(&session.owner);
        let address = |pool: &String| {
            let number = draw(
                self.world.head.seed,
                "pool",
                &format!("{} {pool}", session.owner),
                0,
            );
            format!("10.{}.{}.10", number >> 8 & 0xff, number & 0xff)
        };
        let pools = pools
            .into_iter()
            .flatten()
            .map(|pool| json!({"pool": pool, "addresses": [address(pool)]}));
        json!({"pools": pools.collect::<Vec<_>>()})
    }

    /// Makes pools, at once. Those that are there stay.
    pub(crate) fn ensure_pools(&mut self, request: &CloudRequest) -> Answer {
        let wanted = request.arguments["pools"].as_array().into_iter().flatten();
        let pools = self.world.pools.get_or_default(request.session.owner.clone());
        pools.extend(wanted.map(|pool| text(pool, "pool").to_owned()));
        self.dirty = true;
        Ok(json!({}))
    }

    /// Adds a machine to a pool. It is there at once, and turned on; the list may be blind to it for as long as `lag`.
    pub(crate) fn add_machine(&mut self, at: u64, request: &CloudRequest) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        let (name, pool) = (
            text(arguments, "name").to_owned(),
            text(arguments, "pool").to_owned(),
        );
        if let Some(earlier) = self.made_earlier(request, |number| self.world.members.contains_key(&number)) {
            return Ok(self.describe_member(earlier));
        }
        if !self
            .world
            .pools
            .get(&session.owner)
            .is_some_and(|pools| pools.contains(&pool))
        {
            return Err(Failure::new(Code::NotFound, format!("no pool {pool:?}")));
        }
        let place = self.place(session, json!(["pool", session.tenant, name]));
        if self.world.names.contains_key(&place) {
            let message = format!("there is a machine {name:?} already");
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        let number = self.appear(at, request, &name, place);
        let member = Member {
            pool,
            tier: Tier::deserialize(&arguments["tier"]).unwrap_or(Tier::Worker),
            node_name: self.node_name(&name, number),
            replacement_required: false,
            agent: None,
            boots: 0,
            up: None,
        };
        self.world.members.insert(number, member);
        self.turn_on_at_once(at, ADD, number);
        Ok(self.describe_member(number))
    }

    /// The machines of all pools of the caller. May lag behind.
    pub(crate) fn machines(&mut self, at: u64, session: &Session) -> Value {
        let then = self.look(at, &session.owner);
        let own = self.world.owner(&session.owner).vms.clone();
        let there = own.into_iter().filter(|number| {
            let vm = &self.world.vms[number];
            let seen = vm.as_of(then).is_some_and(|version| !version.gone);
            self.world.members.contains_key(number) && self.sees(session, &vm.stamp) && seen
        });
        let machines: Vec<Value> = there.map(|number| self.describe_member(number)).collect();
        json!({"machines": machines})
    }

    /// What is told of a machine of a pool.
    pub(crate) fn describe_member(&self, number: u64) -> Value {
        let (vm, member) = (&self.world.vms[&number], &self.world.members[&number]);
        let agent = match &member.agent {
            None => "absent",
            Some(agent) if agent.initialized => "initialized",
            Some(_) => "running",
        };
        let mut machine = json!({
            "id": vm.id(), "name": vm.name, "pool": member.pool, "tier": member.tier,
            "providerID": provider_id(number), "nodeName": member.node_name, "agent": agent,
            "replacementRequired": member.replacement_required,
        });
        if let Some(release) = member.agent.as_ref().and_then(|agent| agent.release.as_ref()) {
            machine["agentRelease"] = json!(release);
        }
        machine
    }

    /// Submits work on a machine of a pool. The same work that is under way is joined.
    pub(crate) fn submit_on_member(&mut self, at: u64, request: &CloudRequest, plan: Plan) -> Answer {
        let id = text(&request.arguments, "machine");
        let kind =
            TaskKind::of_operation(&request.operation).expect("one of the operations that answer a task");
        let vm = self.vm(&request.session, id)?;
        let number = vm.number;
        if !vm.exists() || !self.world.members.contains_key(&number) {
            return Err(Failure::new(
                Code::NotFound,
                format!("no machine {id:?} in any pool"),
            ));
        }
        let (name, busy) = (vm.name.clone(), vm.busy);
        if let Some(task) = busy {
            return match self.world.tasks[&task].kind == kind {
                true => Ok(json!({"task": format!("task-{task}")})),
                false => {
                    let message = format!("TaskInProgress: task-{task} is changing {id}");
                    Err(Failure::new(Code::FailedPrecondition, message))
                }
            };
        }
        let told = self.may_begin(request, kind, number)?;
        let task = self.submit(at, request, kind, (number, name), plan, told);
        self.world.vms.get_mut(&number).expect("found above").busy = Some(task);
        Ok(json!({"task": format!("task-{task}")}))
    }

    /// What a task has to know of its request, without what is secret; or why it cannot begin.
    fn may_begin(
        &mut self,
        request: &CloudRequest,
        kind: TaskKind,
        number: u64,
    ) -> Result<Option<String>, Failure> {
        match kind {
            TaskKind::Init | TaskKind::Join => self.may_register(request, kind, number).map(Some),
            TaskKind::Install => Ok(Some(request.arguments.to_string())),
            _ => Ok(None),
        }
    }

    /// Does what a task on a machine of a pool was for.
    pub(crate) fn work_on_member(
        &mut self,
        at: u64,
        task: &Task,
    ) -> Result<(), crate::kernel::tasks::TaskError> {
        let told: Value = serde_json::from_str(task.metadata.as_deref().unwrap_or("{}")).unwrap_or_default();
        match task.kind {
            TaskKind::Install => self.install_agent(task.vm, &told),
            TaskKind::Init | TaskKind::Join => return self.register(at, task, &told),
            _ => self.set_power(at, task.vm, None),
        }
        Ok(())
    }

    /// A machine of a pool was turned on or off, or is gone: a boot has begun, or ended.
    pub(crate) fn reboot_member(&mut self, at: u64, number: u64, power: Option<Power>) {
        let (boot, seed) = (self.config.machines.boot, self.world.head.seed);
        let (Some(member), Some(vm)) = (self.world.members.get_mut(&number), self.world.vms.get(&number))
        else {
            return;
        };
        member.up = None;
        if power == Some(Power::On) {
            member.boots += 1;
            member.up = Some(at + boot.pick(draw(seed, "boot", &vm.bios_uuid, at)));
        }
        self.end_boot(at, number);
    }

    /// The machine of this node's name.
    pub(crate) fn member_of(&self, node: &str) -> Option<u64> {
        let mut named = self
            .world
            .members
            .iter()
            .filter(|(_, member)| member.node_name == node);
        named
            .find(|(number, _)| self.world.vms[number].exists())
            .map(|(number, _)| *number)
    }

    /// What a call on pools is about, for rules to match.
    pub(crate) fn subject_of_pools(&self, request: &CloudRequest) -> Option<String> {
        let arguments = &request.arguments;
        let number = match text(arguments, "node") {
            "" => vm::number(text(arguments, "machine")),
            node => self.member_of(node),
        };
        let named = number
            .and_then(|number| self.world.vms.get(&number))
            .map(|vm| vm.name.clone());
        named.or_else(|| arguments.get("name").and_then(Value::as_str).map(str::to_owned))
    }
}
