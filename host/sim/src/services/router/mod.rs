//! Virtual routers in the manner of Neutron and Nova: VMs that are booted with ports, can be reached for management, are
//! configured, and are plugged while they run.

pub(crate) use polity_clouds::catalogue::router::BOOT;
pub(crate) mod port;
pub(crate) mod view;

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Sim;
use crate::config::scenario::Intervention;
use crate::hypervisor::vm::{Power, Vm};
use crate::kernel::call::{Plan, no_vm, owned, text};
use crate::kernel::draw::draw;
use crate::kernel::tasks::{Task, TaskError, TaskKind};
use crate::services::router::port::Plugged;
use crate::view::Happened;
use crate::world::Due;

/// What a router's VM is, besides a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Router {
    pub(crate) image: String,
    /// From when on it can be reached for management.
    pub(crate) built: u64,
    /// From when on its management API answers, unless it never does.
    pub(crate) answers: u64,
    pub(crate) never: bool,
    pub(crate) hung: bool,
    /// Since when it is being removed.
    pub(crate) leaving: Option<u64>,
    /// What it was told last.
    pub(crate) config: Option<Value>,
    pub(crate) plugged: Vec<Plugged>,
}

impl Sim {
    /// Boots a router's VM. It is there at once, being built; a search may be blind to it for as long as `lag`.
    pub(crate) fn boot_router(&mut self, at: u64, request: &CloudRequest, plan: &Plan) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        let name = text(arguments, "name").to_owned();
        if let Some(earlier) = self.made_earlier(request, |number| self.is_router(number)) {
            return Ok(booted(earlier));
        }
        self.image(session, text(arguments, "image"))?;
        let ports = self.claimable(session, &name, &arguments["ports"])?;
        let place = self.place(session, json!(["router", session.tenant, name]));
        if self.config.unique_names && self.world.names.contains_key(&place) {
            let message = format!("there is a router {name:?} already");
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        let number = self.appear(at, request, &name, place);
        let router = Router {
            image: text(arguments, "image").to_owned(),
            never: plan.never,
            plugged: ports.iter().map(|port| Plugged::at_boot(port, at)).collect(),
            ..Router::default()
        };
        self.world.routers.insert(number, router);
        self.claim(request, &name, ports);
        self.turn_on_at_once(at, BOOT, number);
        Ok(booted(number))
    }

    pub(crate) fn is_router(&self, number: u64) -> bool {
        self.world.routers.contains_key(&number)
    }

    /// The operations on routers that are done at once and answer at once.
    pub(crate) fn router_call(&mut self, at: u64, request: &CloudRequest, plan: &Plan) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        match request.operation.as_str() {
            "image.get" => self.image(session, text(arguments, "image")),
            "port.get" => self.port(session, arguments),
            "router.resource" => self.resource(session, text(arguments, "name")),
            "router.get" => self.router(at, session, arguments),
            "router.delete-ports" => Ok(self.release(session, text(arguments, "name"))),
            "router.alive" => {
                let number = self.router_by_id(session, text(arguments, "id"))?;
                Ok(json!({"alive": self.answers(at, number)}))
            }
            "router.delete" => self.delete_router(at, request),
            "router.interfaces" => {
                let router = self.answering(at, session, text(arguments, "id"))?;
                let shown = router.plugged.iter().filter(|port| port.is_shown(at));
                Ok(json!({"macs": shown.map(|port| &port.mac).collect::<Vec<_>>()}))
            }
            "router.stats" => {
                let router = self.answering(at, session, text(arguments, "id"))?;
                let up = at - router.answers;
                let shown = router.plugged.iter().filter(|port| port.is_shown(at));
                // A kilobyte a second, and half of that back.
                let traffic = |port: &Plugged| json!({"mac": port.mac, "rxBytes": up, "txBytes": up / 2});
                Ok(json!({"traffic": shown.map(traffic).collect::<Vec<_>>()}))
            }
            "port.attach" => self.attach(at, request, plan),
            "port.detach" => self.detach(at, request, plan),
            other => {
                let message = format!("no operation {other:?}");
                Err(Failure::new(Code::Unimplemented, message))
            }
        }
    }

    /// Tells a router what to be. Whether it listens is seen when the task ends.
    pub(crate) fn push_config(&mut self, at: u64, request: &CloudRequest, plan: Plan) -> Answer {
        let id = text(&request.arguments, "id");
        let number = self.router_by_id(&request.session, id)?;
        let vm = &self.world.vms[&number];
        if let Some(busy) = vm.busy {
            let message = format!("TaskInProgress: task-{busy} is changing {id}");
            return Err(Failure::new(Code::FailedPrecondition, message));
        }
        let subject = (number, vm.name.clone());
        let config = Some(request.arguments["config"].to_string());
        let task = self.submit(at, request, TaskKind::Push, subject, plan, config);
        self.world.vms.get_mut(&number).expect("found above").busy = Some(task);
        Ok(json!({"task": format!("task-{task}")}))
    }

    /// What a push was for.
    pub(crate) fn configured(&mut self, at: u64, task: &Task) -> Result<(), TaskError> {
        if !self.answers(at, task.vm) {
            let message = format!("the management API of {:?} does not answer", task.name);
            return Err(TaskError::new("HostConnectFault", message));
        }
        let config = task.metadata.as_deref().unwrap_or("null");
        let router = self.world.routers.get_mut(&task.vm).expect("it answers");
        router.config = serde_json::from_str(config).ok();
        Ok(())
    }

    /// Begins to remove a router's VM, which takes a while. Telling it again changes nothing.
    fn delete_router(&mut self, at: u64, request: &CloudRequest) -> Answer {
        let number = self.router_by_id(&request.session, text(&request.arguments, "id"))?;
        let router = self.world.routers.get_mut(&number).expect("found above");
        if router.leaving.is_none() {
            router.leaving = Some(at);
            let takes = self.world.draw(&request.session.owner);
            let gone = at + self.config.routers.stop.pick(takes);
            self.world.schedule(gone, Due::Leave(number));
            self.note_at_once(at, "router.delete", Happened::Submitted, number);
            self.dirty = true;
        }
        Ok(json!({}))
    }

    /// The router's VM is removed.
    pub(crate) fn leave(&mut self, at: u64, number: u64) {
        if self.world.vms.get(&number).is_some_and(Vm::exists) {
            self.note_at_once(at, "router.delete", Happened::Done, number);
            self.set_power(at, number, None);
        }
    }

    /// The power of a router's VM has changed.
    pub(crate) fn repower_router(&mut self, at: u64, number: u64, power: Option<Power>) {
        let (routers, seed) = (&self.config.routers, self.world.head.seed);
        let (Some(router), Some(vm)) = (self.world.routers.get_mut(&number), self.world.vms.get(&number))
        else {
            return;
        };
        if power == Some(Power::On) {
            if router.built == 0 {
                router.built = at + routers.build.pick(draw(seed, "build", &vm.bios_uuid, at));
            }
            router.answers = router.built.max(at) + routers.boot.pick(draw(seed, "boot", &vm.bios_uuid, at));
        }
    }

    /// What befalls a router's VM or the router itself.
    pub(crate) fn befall_router(&mut self, number: u64, what: Intervention) {
        let Some(router) = self.world.routers.get_mut(&number) else {
            return;
        };
        match what {
            Intervention::Hang => router.hung = true,
            Intervention::Recover => (router.hung, router.never) = (false, false),
            Intervention::Withdraw => {
                let vm = &self.world.vms[&number];
                let known = withdrawn(vm.stamp.account.as_deref(), &vm.stamp.tenant, &vm.name);
                self.world.withdrawn.insert(known, ());
            }
            _ => {}
        }
    }

    /// Does its management API answer?
    fn answers(&self, at: u64, number: u64) -> bool {
        let on = self.world.vms.get(&number).and_then(Vm::current);
        let on = on.is_some_and(|version| !version.gone && version.power == Power::On);
        let router = self.world.routers.get(&number).filter(|_| on);
        router.is_some_and(|router| {
            !router.never && !router.hung && router.leaving.is_none() && router.answers <= at
        })
    }

    fn answering(&self, at: u64, session: &Session, id: &str) -> Result<&Router, Failure> {
        let number = self.router_by_id(session, id)?;
        match self.answers(at, number) {
            true => Ok(&self.world.routers[&number]),
            false => {
                let message = format!("the management API of {id} does not answer");
                Err(Failure::new(Code::FailedPrecondition, message))
            }
        }
    }

    /// The router's own VM of this id, which is there.
    pub(crate) fn router_by_id(&self, session: &Session, id: &str) -> Result<u64, Failure> {
        let vm = self.vm(session, id)?;
        match self.is_router(vm.number) && vm.exists() {
            true => Ok(vm.number),
            false => Err(no_vm(id)),
        }
    }

    /// By the cloud's id where the caller knows it, which never denies what exists; otherwise by name, which may. What
    /// is plugged in is told as it is.
    fn router(&mut self, at: u64, session: &Session, arguments: &Value) -> Answer {
        let then = self.look(at, &session.owner);
        let (name, id) = (text(arguments, "name"), text(arguments, "id"));
        let missing = || match id {
            "" => Failure::new(Code::NotFound, format!("no router {name:?}")),
            id => no_vm(id),
        };
        let number = match id {
            "" => self.router_by_name(session, name, then).ok_or_else(missing)?,
            id => self.vm(session, id)?.number,
        };
        let (vm, router) = (&self.world.vms[&number], self.world.routers.get(&number));
        let router = router.ok_or_else(missing)?;
        let version = vm.at_least_first(then).filter(|version| !version.gone);
        let version = version.ok_or_else(missing)?;
        let status = match version.power {
            _ if router.leaving.is_some_and(|since| since <= then) => "DELETING",
            _ if then < router.built => "BUILD",
            Power::On => "ACTIVE",
            Power::Off => "SHUTOFF",
            Power::Suspended => "SUSPENDED",
        };
        let attached = router.plugged.iter().filter(|port| port.attached);
        let ports: Vec<Value> = attached
            .map(|port| json!({"network": port.network, "mac": port.mac}))
            .collect();
        Ok(json!({
            "id": vm.id(), "status": status, "createdAt": vm.submitted, "managed": then >= router.built,
            "ports": ports,
        }))
    }

    /// The caller's own router of this name.
    fn router_by_name(&self, session: &Session, name: &str, then: u64) -> Option<u64> {
        let own = &self.world.owners.get(&session.owner)?.vms;
        own.iter()
            .map(|number| &self.world.vms[number])
            .filter(|vm| vm.name == name && self.is_router(vm.number) && self.sees(session, &vm.stamp))
            .filter(|vm| owned(&vm.stamp, session, name).is_ok())
            .find(|vm| vm.as_of(then).is_some_and(|version| !version.gone))
            .map(|vm| vm.number)
    }

    /// Whether the network service knows the caller's router of this name.
    fn resource(&self, session: &Session, name: &str) -> Answer {
        let known = withdrawn(self.account(session), &session.tenant, name);
        match self.world.withdrawn.contains_key(&known) {
            false => Ok(json!({})),
            true => {
                let message = format!("the network service knows no router {name:?}");
                Err(Failure::new(Code::NotFound, message))
            }
        }
    }

    /// An image that the caller may boot.
    fn image(&self, session: &Session, id: &str) -> Answer {
        let images = &self.config.images;
        let image = images.iter().find(|image| image.id == id);
        match image {
            None if images.is_empty() => Ok(json!({})),
            None => Err(Failure::new(Code::NotFound, format!("no image {id:?}"))),
            Some(image) if image.tenants.is_empty() || image.tenants.contains(&session.tenant) => {
                Ok(json!({}))
            }
            Some(_) => {
                let message = format!("tenant {:?} may not boot image {id:?}", session.tenant);
                Err(Failure::new(Code::PermissionDenied, message))
            }
        }
    }
}

/// Whether this is an operation on routers, or on what they are made of.
pub(crate) fn concerns(operation: &str) -> bool {
    let kinds = ["router.", "port.", "image."];
    kinds.iter().any(|kind| operation.starts_with(kind))
}

/// What [`BOOT`] answers.
pub(crate) fn booted(number: u64) -> Value {
    json!({"id": crate::hypervisor::vm::id(number)})
}

fn withdrawn(account: Option<&str>, tenant: &str, name: &str) -> String {
    json!([account, tenant, name]).to_string()
}
