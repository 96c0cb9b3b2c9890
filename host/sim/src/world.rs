//! What there is, and what is due to happen by itself.

use std::collections::BTreeSet;

use polity_core::call::CloudRequest;
use serde::{Deserialize, Serialize};

use crate::Sim;
use crate::config::SimConfig;
use crate::config::scenario::WorldEvent;
use crate::hypervisor::vm::{Power, Version, Vm};
use crate::kernel::call::Plan;
use crate::kernel::draw::draw;
use crate::kernel::kept::{Note, Table};
use crate::kernel::late::Late;
use crate::kernel::tasks::{Task, TaskError, TaskKind};
use crate::services::cluster::node::Node;
use crate::services::cluster::token::Token;
use crate::services::pool::Member;
use crate::services::router::Router;
use crate::services::router::port::Port;
use crate::services::session::Granted;
use crate::view::Happened;

/// All that a snapshot holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct World {
    pub(crate) head: Head,
    pub(crate) vms: Table<u64, Vm>,
    pub(crate) tasks: Table<u64, Task>,
    pub(crate) owners: Table<String, Owner>,
    /// Whose name it is: VMs that exist or are being cloned.
    pub(crate) names: Table<String, u64>,
    /// How often each fault rule matched, for each owner where the rule says so.
    pub(crate) matched: Table<String, u64>,
    /// By the token that callers show.
    pub(crate) sessions: Table<String, Granted>,
    /// By the number of their machine.
    pub(crate) nodes: Table<u64, Node>,
    /// By the number of their VM.
    pub(crate) routers: Table<u64, Router>,
    /// The ports that routers have, by account, network and MAC address.
    pub(crate) ports: Table<String, Port>,
    /// Routers that the network service does not know any more, by account, tenant and name.
    pub(crate) withdrawn: Table<String, ()>,
    /// Bootstrap tokens, by their digest.
    pub(crate) tokens: Table<String, Token>,
    /// Machines of pools, by the number of their VM.
    pub(crate) members: Table<u64, Member>,
    /// The pools of each owner.
    pub(crate) pools: Table<String, BTreeSet<String>>,
    /// The machine that made each owner's cluster.
    pub(crate) clusters: Table<String, u64>,
    /// By when it is due, and its number.
    due: Table<(u64, u64), Due>,
}

/// What there is once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) seed: u64,
    pub(crate) start: u64,
    /// The latest time it was told.
    pub(crate) now: u64,
    pub(crate) events: Vec<EventState>,
    /// No fault from now on.
    pub(crate) calm: bool,
    counter: u64,
}

/// What one primary has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) vms: BTreeSet<u64>,
    pub(crate) tasks: BTreeSet<u64>,
    draws: u64,
}

/// Where a [`WorldEvent`] stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EventState {
    /// For a VM of its name, or for that one's power-on.
    Waiting,
    /// It is due.
    Armed,
    /// It happened.
    Done,
}

/// Something that happens by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Due {
    /// A task ends.
    End(u64),
    /// A task's record expires.
    Expire(u64),
    /// The last trace of a VM is gone.
    Forget(u64),
    /// A call whose effect was late.
    Arrive(Late),
    /// An operator intervenes.
    Intervene(usize),
    /// A machine has booted and its node speaks up.
    Join(u64),
    /// Nobody remembers the node of a machine that is gone.
    Bury(u64),
    /// Packages are installed: on which machine, and which work.
    Installed(u64, u64),
    /// An agent reboots its machine.
    Reboot(u64),
    /// A router's VM that is being removed is gone.
    Leave(u64),
}

impl World {
    pub(crate) fn new(config: &SimConfig, seed: u64, start: u64) -> Self {
        let mut world = World::with(Head {
            seed,
            start,
            now: start,
            events: Vec::new(),
            calm: false,
            counter: 0,
        });
        world.expect(&config.events);
        world
    }

    /// Nothing but this.
    pub(crate) fn with(head: Head) -> Self {
        World {
            head,
            vms: Table::default(),
            tasks: Table::default(),
            owners: Table::default(),
            names: Table::default(),
            matched: Table::default(),
            sessions: Table::default(),
            nodes: Table::default(),
            routers: Table::default(),
            ports: Table::default(),
            withdrawn: Table::default(),
            tokens: Table::default(),
            members: Table::default(),
            pools: Table::default(),
            clusters: Table::default(),
            due: Table::default(),
        }
    }

    /// Every table, and the name that it is stored under.
    pub(crate) fn tables(&mut self) -> [(&'static str, &mut dyn Note); 15] {
        [
            ("vms", &mut self.vms),
            ("tasks", &mut self.tasks),
            ("owners", &mut self.owners),
            ("names", &mut self.names),
            ("matched", &mut self.matched),
            ("sessions", &mut self.sessions),
            ("nodes", &mut self.nodes),
            ("routers", &mut self.routers),
            ("ports", &mut self.ports),
            ("withdrawn", &mut self.withdrawn),
            ("tokens", &mut self.tokens),
            ("members", &mut self.members),
            ("pools", &mut self.pools),
            ("clusters", &mut self.clusters),
            ("due", &mut self.due),
        ]
    }

    /// Whether nobody has called it since it was as `new` is.
    pub(crate) fn is_untouched(&self, new: &World) -> bool {
        let nobody = self.owners.is_empty() && self.sessions.is_empty() && self.tokens.is_empty();
        nobody && self.head.counter == new.head.counter
    }

    /// Becomes another one that nobody has called, and notes that as it notes everything.
    pub(crate) fn begin_again(&mut self, new: World) {
        for (_, table) in self.tables() {
            table.clear();
        }
        self.head = new.head;
        for (at, due) in new.due.iter() {
            self.due.insert(*at, due.clone());
        }
    }

    /// Schedules the events it does not know yet.
    pub(crate) fn expect(&mut self, events: &[WorldEvent]) {
        for (index, event) in events.iter().enumerate().skip(self.head.events.len()) {
            let armed = event.after_power_on.is_none();
            self.head.events.push(if armed {
                EventState::Armed
            } else {
                EventState::Waiting
            });
            if armed {
                self.schedule(self.head.start + event.at.0, Due::Intervene(index));
            }
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, what: Due) {
        let nth = self.number();
        self.due.insert((at, nth), what);
    }

    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.head.counter += 1;
        self.head.counter
    }

    /// The owner's next number from the seed.
    pub(crate) fn draw(&mut self, owner: &str) -> u64 {
        let record = self.owner(owner);
        record.draws += 1;
        let nth = record.draws;
        draw(self.head.seed, "call", owner, nth)
    }

    pub(crate) fn owner(&mut self, owner: &str) -> &mut Owner {
        self.owners.get_or_default(owner.to_owned())
    }

    /// Since the start: the time of scenarios.
    pub(crate) fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.head.start)
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// A call is still on its way.
    pub(crate) fn expects_late_effects(&self) -> bool {
        self.due.values().any(|due| matches!(due, Due::Arrive(_)))
    }

    pub(crate) fn remove_vm(&mut self, number: u64) {
        let Some(vm) = self.vms.remove(&number) else {
            return;
        };
        self.routers.remove(&number);
        self.free_name(&vm.place, number);
        self.members.remove(&number);
        self.owner(&vm.stamp.owner).vms.remove(&number);
    }

    fn free_name(&mut self, place: &str, number: u64) {
        if self.names.get(place) == Some(&number) {
            self.names.remove(place);
        }
    }

    /// The VM of this name that exists, the oldest if there are more.
    fn named(&self, name: &str) -> Option<u64> {
        self.vms
            .values()
            .find(|vm| vm.exists() && vm.name == name)
            .map(|vm| vm.number)
    }

    fn take_due(&mut self, now: u64) -> Option<(u64, Due)> {
        let ((at, _), due) = self.due.pop_first_if(|(at, _)| *at <= now)?;
        Some((at, due))
    }
}

impl Sim {
    /// Lets everything happen that is due by now. Time never goes back: an earlier `now` is taken for the latest one.
    pub fn advance(&mut self, now_ms: u64) -> u64 {
        self.world.head.now = self.world.head.now.max(now_ms);
        while let Some((at, due)) = self.world.take_due(self.world.head.now) {
            self.happen(at, due);
        }
        self.world.head.now
    }

    fn happen(&mut self, at: u64, due: Due) {
        match due {
            Due::End(task) => self.end(at, task),
            Due::Expire(task) => self.expire(task),
            Due::Forget(vm) => self.world.remove_vm(vm),
            Due::Arrive(late) => {
                let request: CloudRequest = late.into();
                // Nobody waits for the answer.
                let _ = self.execute(at, &request, Plan::default());
            }
            Due::Intervene(event) => self.intervene(at, event),
            Due::Join(machine) => self.join(at, machine),
            Due::Bury(machine) => self.bury(machine),
            Due::Installed(machine, nth) => self.installed(at, machine, nth),
            Due::Reboot(machine) => self.reboot(at, machine),
            Due::Leave(router) => self.leave(at, router),
        }
    }

    fn end(&mut self, at: u64, number: u64) {
        let Some(mut task) = self.world.tasks.remove(&number) else {
            return;
        };
        let ended = self.work(at, &task);
        let what = match &ended {
            Ok(()) => Happened::Done,
            Err(error) => Happened::Failed(error.fault.clone()),
        };
        self.note_task(at, &task, what);
        task.ended = Some(ended.clone());
        let (kind, vm) = (task.kind, task.vm);
        self.world.tasks.insert(number, task);
        self.world
            .schedule(at + self.config.retention(), Due::Expire(number));
        if ended.is_ok() {
            self.wake_events(at, kind, vm);
        }
    }

    /// Does what the task was for.
    fn work(&mut self, at: u64, task: &Task) -> Result<(), TaskError> {
        if let Some(error) = &task.doomed {
            self.abandon(task);
            return Err(error.clone());
        }
        let vm = self
            .world
            .vms
            .get_mut(&task.vm)
            .filter(|vm| vm.creating() || vm.exists());
        let Some(vm) = vm else {
            return Err(TaskError::new(
                "ManagedObjectNotFound",
                format!("VM {:?} is gone", task.name),
            ));
        };
        vm.busy = None;
        task.permitted(vm)?;
        match task.kind {
            TaskKind::Clone => vm.appear(at),
            TaskKind::Reconfigure => vm.change(at, self.config.lag.0, |v| v.metadata = task.metadata.clone()),
            TaskKind::PowerOn => self.set_power(at, task.vm, Some(Power::On)),
            TaskKind::PowerOff => self.set_power(at, task.vm, Some(Power::Off)),
            TaskKind::Destroy => self.set_power(at, task.vm, None),
            TaskKind::Install | TaskKind::Init | TaskKind::Join | TaskKind::Remove => {
                return self.work_on_member(at, task);
            }
            TaskKind::Push => return self.configured(at, task),
        }
        Ok(())
    }

    /// A failed clone leaves nothing; any other failed task leaves the VM as it was.
    fn abandon(&mut self, task: &Task) {
        if task.kind == TaskKind::Clone {
            self.world.remove_vm(task.vm);
        } else if let Some(vm) = self.world.vms.get_mut(&task.vm) {
            vm.busy = None;
        }
    }

    /// Gives the VM this power; none removes it.
    pub(crate) fn set_power(&mut self, at: u64, number: u64, power: Option<Power>) {
        let (seed, dhcp, lag) = (self.world.head.seed, self.config.dhcp, self.config.lag.0);
        let Some(vm) = self.world.vms.get_mut(&number) else {
            return;
        };
        let lease =
            |nth: usize| at + dhcp.pick(draw(seed, "dhcp", &vm.bios_uuid, at.wrapping_add(nth as u64)));
        let leases: Vec<_> = vm
            .nics
            .iter()
            .enumerate()
            .map(|(i, nic)| (nic.dhcp && nic.connected).then(|| lease(i)))
            .collect();
        let edit = |version: &mut Version| match power {
            Some(Power::On) => {
                version.power = Power::On;
                version.leases = leases;
            }
            other => {
                version.gone = other.is_none();
                version.power = other.unwrap_or(Power::Off);
                version.leases.clear();
            }
        };
        vm.change(at, lag, edit);
        self.repower(at, number, power);
        self.reboot_member(at, number, power);
        self.repower_router(at, number, power);
        if power.is_none() {
            let place = self.world.vms[&number].place.clone();
            self.world.free_name(&place, number);
            self.world.schedule(at + lag + 1, Due::Forget(number));
        }
    }

    fn expire(&mut self, number: u64) {
        let Some(task) = self.world.tasks.remove(&number) else {
            return;
        };
        self.world.owner(&task.stamp.owner).tasks.remove(&number);
    }

    /// Events that waited for this VM, or for its power-on.
    pub(crate) fn wake_events(&mut self, at: u64, kind: TaskKind, vm: u64) {
        let Some(name) = self.world.vms.get(&vm).map(|vm| vm.name.clone()) else {
            return;
        };
        for index in 0..self.config.events.len() {
            let event = &self.config.events[index];
            if event.vm != name || self.world.head.events[index] != EventState::Waiting {
                continue;
            }
            let earliest = self.world.head.start + event.at.0;
            let due = match (kind, event.after_power_on) {
                (TaskKind::Clone, None) => at,
                (TaskKind::PowerOn, Some(after)) => at + after.0,
                _ => continue,
            };
            self.world.head.events[index] = EventState::Armed;
            self.world.schedule(due.max(earliest), Due::Intervene(index));
        }
    }

    fn intervene(&mut self, at: u64, index: usize) {
        let Some(event) = self.config.events.get(index).cloned() else {
            return;
        };
        if self.world.head.calm || event.until.is_some_and(|until| self.world.elapsed(at) >= until.0) {
            return;
        }
        let on = |vm: &u64| self.world.vms[vm].current().is_some_and(|v| v.power == Power::On);
        let target = self
            .world
            .named(&event.vm)
            .filter(|vm| event.after_power_on.is_none() || on(vm));
        let Some(number) = target else {
            self.world.head.events[index] = EventState::Waiting;
            return;
        };
        self.world.head.events[index] = EventState::Done;
        match event.does.power() {
            Ok(power) => self.set_power(at, number, power),
            Err(ill) => self.befall(at, number, ill),
        }
        self.dirty = true;
        self.note_intervention(at, number, event.does);
    }
}
