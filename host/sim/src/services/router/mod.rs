//! Virtual routers in the manner of Neutron and Nova. A router is a VM that is booted with ports, can be
//! reached for management, is configured, and is plugged while it runs.

mod port;
mod view;

use std::time::Duration;

use polity_clouds::catalogue::Named;
use polity_clouds::catalogue::router::{self, ATTACH, BOOT, DETACH, PUSH};
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Context, Service};
use crate::config::scenario::{Intervention, Quirk};
use crate::config::{Image, Routers as RouterConfig, SimConfig};
use crate::event::{Call, Event};
use crate::hypervisor::effects::Happened;
use crate::hypervisor::vm::{Vm, id};
use crate::hypervisor::{Hypervisor, no_vm};
use crate::kernel::between::Between;
use crate::kernel::call::{TaskError, text};
use crate::kernel::kept::{Note, Table};
use crate::kernel::tasks::Task;
use crate::power::Power;
use port::{Plugged, Port};
pub use view::{PortView, RouterView};

pub(crate) struct Routers {
    config: RouterConfig,
    images: Vec<Image>,
    push: Between,
    /// The routers, by the number of their VM.
    routers: Table<u64, Router>,
    /// The ports that routers have, by account, network and MAC address.
    ports: Table<String, Port>,
    /// The routers that the network service no longer knows, by account, tenant and name.
    withdrawn: Table<String, ()>,
}

/// The state of a router in addition to that of its VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Router {
    image: String,
    /// From when on it can be reached for management.
    built: u64,
    /// From when on its management API answers; `None` if it never does.
    answers: u64,
    never: bool,
    hung: bool,
    /// In which fault its build ends.
    fault: Option<String>,
    /// Since when it is being removed.
    leaving: Option<u64>,
    /// The last configuration that it was sent.
    config: Option<Value>,
    plugged: Vec<Plugged>,
}

impl Routers {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Routers {
            config: config.routers.clone(),
            images: config.images.clone(),
            push: config.tasks.push,
            routers: Table::default(),
            ports: Table::default(),
            withdrawn: Table::default(),
        }
    }

    /// Boots a router's VM. It exists at once and is being built. A search may miss it for as long as `lag`.
    fn boot(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        if let Some(earlier) = cx.vms.made_earlier(cx.kernel, call) {
            return Ok(self.created(cx.vms, earlier));
        }
        self.image(call)?;
        let ports = self.claimable(call, call.text("name"), &call.arguments["ports"])?;
        let place = cx.vms.place(call, "router", "router", cx.vms.unique_names)?;
        let number = cx.vms.create(cx.kernel, cx.at, call, place);
        let router = Router {
            image: call.text("image").to_owned(),
            never: call.plan.quirk == Some(Quirk::NeverBoots),
            fault: match &call.plan.quirk {
                Some(Quirk::CannotBuild(fault)) => Some(fault.clone()),
                _ => None,
            },
            plugged: ports.iter().map(|port| Plugged::at_boot(port, cx.at)).collect(),
            ..Router::default()
        };
        self.routers.insert(number, router);
        self.claim(call, call.text("name"), ports);
        cx.vms.start_created(cx.kernel, cx.at, call, number);
        Ok(self.created(cx.vms, number))
    }

    /// Whether its management API answers.
    fn alive(&self, cx: &Context<'_>, call: &Call) -> Answer {
        let number = self.by_id(cx, call)?;
        Ok(json!({"alive": self.answers(cx, number)}))
    }

    /// The MAC addresses that a router's VM shows, if it answers.
    fn interfaces(&self, cx: &Context<'_>, call: &Call) -> Answer {
        let router = self.answering(cx, call)?;
        let shown = router.plugged.iter().filter(|port| port.is_shown(cx.at));
        Ok(json!({"macs": shown.map(|port| &port.mac).collect::<Vec<_>>()}))
    }

    /// The traffic through the ports that a router's VM shows, if it answers.
    fn stats(&self, cx: &Context<'_>, call: &Call) -> Answer {
        let router = self.answering(cx, call)?;
        let up = cx.at - router.answers;
        let shown = router.plugged.iter().filter(|port| port.is_shown(cx.at));
        // A kilobyte a second in one direction, and half of that in the other.
        let traffic = |port: &Plugged| json!({"mac": port.mac, "rxBytes": up, "txBytes": up / 2});
        Ok(json!({"traffic": shown.map(traffic).collect::<Vec<_>>()}))
    }

    /// Sends a router its configuration. Whether the router listens is seen when the task ends.
    fn push(&self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.by_id(cx, call)?;
        let config = call.arguments["config"].clone();
        cx.vms.change(cx.kernel, cx.at, call, number, (self.push, config))
    }

    /// Starts to remove a router's VM, which takes a while. A second request changes nothing.
    fn delete(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.by_id(cx, call)?;
        let router = self
            .routers
            .get_mut(&number)
            .filter(|router| router.leaving.is_none());
        if let Some(router) = router {
            router.leaving = Some(cx.at);
            let takes = cx.kernel.draw_for(&call.caller.owner);
            let gone = cx.at + self.config.stop.pick(takes);
            cx.kernel.schedule(gone, Event::RouterGone { vm: number });
            cx.vms.note(cx.at, &call.operation, Happened::Submitted, number);
            cx.kernel.mark_dirty();
        }
        Ok(json!({}))
    }

    /// The removal of a router's VM has ended.
    fn on_gone(&self, cx: &mut Context<'_>, number: u64) {
        if cx.vms.get(number).is_some_and(Vm::exists) {
            cx.vms.note(cx.at, router::DELETE, Happened::Done, number);
            cx.vms.set_power(cx.kernel, cx.at, number, None);
        }
    }

    /// A router's VM was turned on.
    fn on_power_on(&mut self, cx: &Context<'_>, number: u64) {
        let (Some(router), Some(vm)) = (self.routers.get_mut(&number), cx.vms.get(number)) else {
            return;
        };
        let draw = |purpose| cx.kernel.draw(purpose, &vm.bios_uuid, cx.at);
        if router.built == 0 {
            router.built = cx.at + self.config.build.pick(draw("build"));
        }
        router.answers = router.built.max(cx.at) + self.config.boot.pick(draw("boot"));
    }

    /// Something happens to a router's VM or to the router itself.
    fn on_intervention(&mut self, cx: &Context<'_>, number: u64, does: Intervention) {
        let (Some(router), Some(vm)) = (self.routers.get_mut(&number), cx.vms.get(number)) else {
            return;
        };
        match does {
            Intervention::Hang => router.hung = true,
            Intervention::Recover => (router.hung, router.never) = (false, false),
            Intervention::Withdraw => {
                let known = withdrawn(vm.stamp.account.as_deref(), &vm.stamp.tenant, &vm.name);
                self.withdrawn.insert(known, ());
            }
            _ => {}
        }
    }

    /// Whether the router's management API answers.
    fn answers(&self, cx: &Context<'_>, number: u64) -> bool {
        let router = self.routers.get(&number).filter(|_| cx.vms.is_on(number));
        router.is_some_and(|router| {
            let runs = !router.never && !router.hung && router.fault.is_none();
            runs && router.leaving.is_none() && router.answers <= cx.at
        })
    }

    fn answering(&self, cx: &Context<'_>, call: &Call) -> Result<&Router, Failure> {
        let number = self.by_id(cx, call)?;
        if self.answers(cx, number) {
            Ok(&self.routers[&number])
        } else {
            let message = format!("the management API of {} does not answer", id(number));
            Err(Failure::new(Code::FailedPrecondition, message))
        }
    }

    /// The caller's router whose VM exists and has the id in the arguments.
    fn by_id(&self, cx: &Context<'_>, call: &Call) -> Result<u64, Failure> {
        let id = call.text("id");
        let vm = cx.vms.visible(&call.caller, id)?;
        if self.routers.contains_key(&vm.number) && vm.exists() {
            Ok(vm.number)
        } else {
            Err(no_vm(id))
        }
    }

    /// Reads a router's VM: by the cloud's id if the caller knows it, which never misses it, otherwise by
    /// name, which may. Ports are shown without lag.
    fn get(&self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let then = cx.kernel.look(cx.at, &call.caller.owner);
        let (name, id) = (call.text("name"), call.text("id"));
        let missing = || match id {
            "" => Failure::new(Code::NotFound, format!("no router {name:?}")),
            id => no_vm(id),
        };
        let vm = match id {
            "" => self.by_name(cx, call, then).ok_or_else(missing)?,
            id => cx.vms.visible(&call.caller, id)?,
        };
        let router = self.routers.get(&vm.number).ok_or_else(missing)?;
        let version = vm.at_least_first(then).filter(|version| !version.gone);
        let version = version.ok_or_else(missing)?;
        let status = match version.power {
            _ if router.leaving.is_some_and(|since| since <= then) => "DELETING",
            _ if then < router.built => "BUILD",
            _ if router.fault.is_some() => "ERROR",
            Power::On => "ACTIVE",
            Power::Off => "SHUTOFF",
            Power::Suspended => "SUSPENDED",
        };
        // Nova takes the ports from a server that it could not build.
        let attached = router
            .plugged
            .iter()
            .filter(|port| port.attached && status != "ERROR");
        let ports: Vec<Value> = attached
            .map(|port| json!({"network": port.network, "mac": port.mac}))
            .collect();
        let mut shown = json!({
            "id": vm.id(), "status": status, "createdAt": vm.submitted,
            "managed": then >= router.built && status != "ERROR", "ports": ports,
        });
        if let Some(fault) = router.fault.as_ref().filter(|_| status == "ERROR") {
            shown["fault"] = fault.clone().into();
        }
        Ok(shown)
    }

    /// The caller's own router of this name.
    fn by_name<'a>(&self, cx: &'a Context<'_>, call: &'a Call, then: u64) -> Option<&'a Vm> {
        let name = call.text("name");
        let mut own = cx.vms.own(&call.caller);
        own.find(|vm| {
            let seen = vm.as_of(then).is_some_and(|version| !version.gone);
            vm.name == name && self.routers.contains_key(&vm.number) && seen
        })
    }

    /// Whether the network service knows the caller's router of this name.
    fn resource(&self, call: &Call) -> Answer {
        let name = call.text("name");
        let known = withdrawn(call.caller.account.as_deref(), &call.caller.tenant, name);
        if self.withdrawn.contains_key(&known) {
            let message = format!("the network service knows no router {name:?}");
            Err(Failure::new(Code::NotFound, message))
        } else {
            Ok(json!({}))
        }
    }

    /// An image that the caller may boot.
    fn image(&self, call: &Call) -> Answer {
        let (id, tenant) = (call.text("image"), &call.caller.tenant);
        match self.images.iter().find(|image| image.id == id) {
            None if self.images.is_empty() => Ok(json!({})),
            None => Err(Failure::new(Code::NotFound, format!("no image {id:?}"))),
            Some(image) if image.tenants.is_empty() || image.tenants.contains(tenant) => Ok(json!({})),
            Some(_) => {
                let message = format!("tenant {tenant:?} may not boot image {id:?}");
                Err(Failure::new(Code::PermissionDenied, message))
            }
        }
    }
}

impl Service for Routers {
    fn operations(&self, visible_within: Duration) -> Vec<Named> {
        router::operations(visible_within)
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![
            ("routers", &mut self.routers),
            ("ports", &mut self.ports),
            ("withdrawn", &mut self.withdrawn),
        ]
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        let name = || Some(text(&request.arguments, "name").to_owned());
        match (request.operation.as_str(), text(&request.arguments, "id")) {
            (BOOT | router::RESOURCE | router::DELETE_PORTS, _) | (router::GET, "") => name(),
            (_, id) => cx.vms.name_of(id),
        }
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        match call.operation.as_str() {
            BOOT => self.boot(cx, call),
            PUSH => self.push(cx, call),
            ATTACH => self.attach(cx, call),
            DETACH => self.detach(cx, call),
            router::IMAGE => self.image(call),
            router::PORT => self.port(call),
            router::RESOURCE => self.resource(call),
            router::GET => self.get(cx, call),
            router::DELETE_PORTS => Ok(self.release(cx, call)),
            router::ALIVE => self.alive(cx, call),
            router::DELETE => self.delete(cx, call),
            router::INTERFACES => self.interfaces(cx, call),
            router::STATS => self.stats(cx, call),
            _ => Err(call.unknown()),
        }
    }

    /// Ends a push: the router gets its configuration if it answers.
    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        if !self.answers(cx, task.about) {
            let message = format!("the management API of {:?} does not answer", task.name);
            return Err(TaskError::new("HostConnectFault", message));
        }
        if let Some(router) = self.routers.get_mut(&task.about) {
            router.config = Some(task.told.clone());
        }
        Ok(())
    }

    fn on_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        match event {
            Event::PowerChanged {
                vm,
                power: Some(Power::On),
            } => self.on_power_on(cx, *vm),
            Event::Intervened { vm, does } => self.on_intervention(cx, *vm, *does),
            Event::RouterGone { vm } => self.on_gone(cx, *vm),
            Event::Forgotten { vm } => drop(self.routers.remove(vm)),
            _ => {}
        }
    }

    fn created(&self, _: &Hypervisor, vm: u64) -> Value {
        json!({"id": id(vm)})
    }
}

fn withdrawn(account: Option<&str>, tenant: &str, name: &str) -> String {
    json!([account, tenant, name]).to_string()
}

#[cfg(test)]
mod tests;
