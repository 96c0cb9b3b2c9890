//! Machines of a cluster: VMs that are made, set up and turned on by one call, and whose nodes join by themselves.

pub(crate) use polity_clouds::catalogue::machine::CREATE;
use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use crate::Sim;
use crate::config::scenario::Trouble;
use crate::hypervisor::vm::Vm;
use crate::kernel::call::{no_vm, owned, text};
use crate::services::cluster::node::Node;
use crate::view::Happened;

/// What stands before a VM's id in the id by which its node names it.
const SCHEME: &str = "sim:///";

/// How the node of a machine that is about to be made will join.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joining {
    /// Milliseconds after it has booted; none: as the configuration says.
    after: Option<u64>,
    never: bool,
    name: Option<String>,
}

impl From<Trouble> for Joining {
    fn from(trouble: Trouble) -> Self {
        let mut joining = Joining::default();
        match trouble {
            Trouble::JoinsAfter(after) => joining.after = Some(after.0),
            Trouble::NeverJoins => joining.never = true,
            Trouble::NodeName(name) => joining.name = Some(name),
            _ => {}
        }
        joining
    }
}

impl Sim {
    /// Makes a machine. It is there at once, and turned on; a search may be blind to it for as long as `lag`.
    pub(crate) fn create_machine(&mut self, at: u64, request: &CloudRequest, joining: Joining) -> Answer {
        let session = &request.session;
        let name = text(&request.arguments, "name").to_owned();
        if let Some(earlier) = self.made_earlier(request, |number| self.is_machine(number)) {
            return Ok(self.made(earlier));
        }
        let place = self.place(session, json!(["machine", session.tenant, name]));
        if self.config.unique_names && self.world.names.contains_key(&place) {
            let message = format!("there is a machine {name:?} already");
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        let number = self.appear(at, request, &name, place);
        let node = Node {
            machine: name.clone(),
            name: joining.name.unwrap_or_else(|| self.node_name(&name, number)),
            stamp: self.world.vms[&number].stamp.clone(),
            token: self.take_token(request),
            joins_after: joining.after,
            never: joining.never,
            ..Node::default()
        };
        self.world.nodes.insert(number, node);
        self.turn_on_at_once(at, CREATE, number);
        Ok(self.made(number))
    }

    pub(crate) fn node_name(&self, name: &str, number: u64) -> String {
        let pattern = self.config.machines.node_name.replace("{name}", name);
        pattern.replace("{number}", &number.to_string())
    }

    pub(crate) fn is_machine(&self, number: u64) -> bool {
        self.world.nodes.contains_key(&number) && !self.world.members.contains_key(&number)
    }

    /// What `machine.create` answers.
    pub(crate) fn made(&self, number: u64) -> Value {
        let node = &self.world.nodes[&number].name;
        json!({"providerID": provider_id(number), "nodeName": node, "lastKnownState": format!("made as vm-{number}")})
    }

    /// By the cloud's id where the caller knows it, which never denies what exists; otherwise by name, which may.
    pub(crate) fn machine_status(&mut self, at: u64, session: &Session, arguments: &Value) -> Answer {
        let then = self.look(at, &session.owner);
        let number = match machine_id(arguments) {
            Some(_) => self.machine_by_id(session, arguments)?,
            None => self.machine_by_name(session, arguments, |vm| vm.as_of(then).is_some_and(|v| !v.gone))?,
        };
        let node = &self.world.nodes[&number];
        let vm = self.world.vms[&number].at_least_first(then).filter(|v| !v.gone);
        vm.ok_or_else(|| no_machine(arguments))?;
        Ok(json!({
            "providerID": provider_id(number),
            "nodeName": node.name,
            "initialized": then >= node.booted,
        }))
    }

    /// Removes a machine at once. Whoever deletes sees what there is: no lag.
    pub(crate) fn delete_machine(&mut self, at: u64, request: &CloudRequest) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        let number = match machine_id(arguments) {
            Some(_) => self.machine_by_id(session, arguments)?,
            None => self.machine_by_name(session, arguments, Vm::exists)?,
        };
        if !self.world.vms[&number].exists() {
            return Err(no_machine(arguments));
        }
        self.note_at_once(at, "machine.delete", Happened::Done, number);
        self.set_power(at, number, None);
        self.dirty = true;
        Ok(json!({}))
    }

    fn machine_by_id(&self, session: &Session, arguments: &Value) -> Result<u64, Failure> {
        let vm = self.vm(session, id(arguments))?;
        match self.is_machine(vm.number) {
            true => Ok(vm.number),
            false => Err(no_machine(arguments)),
        }
    }

    /// The caller's own machine of this name.
    fn machine_by_name(
        &self,
        session: &Session,
        arguments: &Value,
        there: impl Fn(&Vm) -> bool,
    ) -> Result<u64, Failure> {
        let name = text(arguments, "name");
        let own = self
            .world
            .owners
            .get(&session.owner)
            .into_iter()
            .flat_map(|owner| &owner.vms);
        own.map(|number| &self.world.vms[number])
            .filter(|vm| vm.name == name && self.is_machine(vm.number) && self.sees(session, &vm.stamp))
            .filter(|vm| owned(&vm.stamp, session, name).is_ok())
            .find(|vm| there(vm))
            .map(|vm| vm.number)
            .ok_or_else(|| no_machine(arguments))
    }
}

/// `sim:///vm-7`
pub(crate) fn provider_id(number: u64) -> String {
    format!("{SCHEME}vm-{number}")
}

/// `vm-7` of the provider's id in the arguments; empty where there is none, or none of this cloud.
pub(crate) fn id(arguments: &Value) -> &str {
    let id = machine_id(arguments).unwrap_or_default();
    id.strip_prefix(SCHEME).unwrap_or_default()
}

fn machine_id(arguments: &Value) -> Option<&str> {
    arguments.get("providerID").and_then(Value::as_str)
}

fn no_machine(arguments: &Value) -> Failure {
    match machine_id(arguments) {
        Some(id) => no_vm(id),
        None => {
            let message = format!("no machine {:?}", text(arguments, "name"));
            Failure::new(Code::NotFound, message)
        }
    }
}
