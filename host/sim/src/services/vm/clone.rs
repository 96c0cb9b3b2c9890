//! The one operation that creates something.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use crate::Sim;
use crate::config::Template;
use crate::hypervisor::vm::{Nic, Stamp, Vm};
use crate::kernel::call::{Plan, text};
use crate::kernel::draw::uuid;
use crate::kernel::tasks::{TaskError, TaskKind};

impl Sim {
    pub(crate) fn clone_vm(&mut self, at: u64, request: &CloudRequest, plan: Plan) -> Answer {
        if let Some(earlier) = self.by_token(request) {
            return earlier;
        }
        let arguments = &request.arguments;
        let template = self.template(&request.session, text(arguments, "template"))?;
        let name = text(arguments, "name").to_owned();
        let (datacenter, folder) = (text(arguments, "datacenter"), text(arguments, "folder"));
        let place = self.place(&request.session, json!([datacenter, folder, name]));
        if self.config.unique_names && self.world.names.contains_key(&place) {
            return self.duplicate(at, request, name);
        }
        let (nics, unfit) = self.hardware(arguments, &template);
        let number = self.world.number();
        let doomed = plan.doomed.or(unfit);
        let task = self.submit(
            at,
            request,
            TaskKind::Clone,
            (number, name.clone()),
            Plan { doomed, ..plan },
            None,
        );
        let bios_uuid = uuid(self.world.head.seed, &format!("{} {task}", request.session.owner));
        let uuids = [text(arguments, "instanceUuid").to_owned(), bios_uuid];
        let mut vm = Vm::new(number, name, place.clone(), uuids, self.stamp(request), at);
        vm.nics = nics;
        vm.busy = Some(task);
        self.world.vms.insert(number, vm);
        self.world.names.insert(place, number);
        self.world.owner(&request.session.owner).vms.insert(number);
        Ok(json!({"task": format!("task-{task}")}))
    }

    /// vSphere says it at once or by a task that fails soon, as it happens to notice.
    fn duplicate(&mut self, at: u64, request: &CloudRequest, name: String) -> Answer {
        let message = format!("DuplicateName: the name {name:?} is taken in its folder");
        if self.world.draw(&request.session.owner).is_multiple_of(2) {
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        let number = self.world.number();
        let plan = Plan {
            doomed: Some(TaskError::new("DuplicateName", message)),
            takes: Some(1_000),
            ..Plan::default()
        };
        let task = self.submit(at, request, TaskKind::Clone, (number, name), plan, None);
        Ok(json!({"task": format!("task-{task}")}))
    }

    /// With client tokens: what the earlier call with this key was answered.
    fn by_token(&mut self, request: &CloudRequest) -> Option<Answer> {
        let key = request.key.as_deref().filter(|_| self.config.tokens)?;
        let owner = self.world.owners.get(&request.session.owner)?;
        let account = self.account(&request.session);
        let made = |stamp: &Stamp| stamp.key.as_deref() == Some(key) && stamp.account.as_deref() == account;
        let task = owner.tasks.iter().find(|t| made(&self.world.tasks[t].stamp));
        if let Some(task) = task {
            return Some(Ok(json!({"task": format!("task-{task}")})));
        }
        let vm = owner.vms.iter().find(|v| made(&self.world.vms[v].stamp))?;
        let message = format!("vm-{vm} was made with this key, and the task's record has expired");
        Some(Err(Failure::new(Code::AlreadyExists, message)))
    }

    fn template(&self, session: &Session, name: &str) -> Result<Template, Failure> {
        if self.config.templates.is_empty() {
            return Ok(Template {
                name: name.to_owned(),
                networks: Vec::new(),
                disks: 1,
                tenants: Vec::new(),
            });
        }
        let template = self.config.templates.iter().find(|t| t.name == name);
        let template =
            template.ok_or_else(|| Failure::new(Code::NotFound, format!("no template {name:?}")))?;
        if !template.tenants.is_empty() && !template.tenants.contains(&session.tenant) {
            let message = format!("tenant {:?} may not clone template {name:?}", session.tenant);
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        Ok(template.clone())
    }

    /// The NICs, and what about the hardware will make the clone fail.
    fn hardware(&self, arguments: &Value, template: &Template) -> (Vec<Nic>, Option<TaskError>) {
        let asked: Vec<String> = arguments["networks"]
            .as_array()
            .map(|names| {
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default();
        let names = if asked.is_empty() {
            &template.networks
        } else {
            &asked
        };
        let mut unfit = None;
        if arguments.get("diskGiB").is_some() && template.disks != 1 {
            let message = format!(
                "template {:?} has {} disks, not one",
                template.name, template.disks
            );
            unfit = Some(TaskError::new("InvalidSpec", message));
        }
        let mut nic = |name: &String| {
            let network = self.config.networks.iter().find(|n| n.name == *name);
            if network.is_none() && !self.config.networks.is_empty() {
                unfit = Some(TaskError::new("InvalidArgument", format!("no network {name:?}")));
            }
            let (dhcp, connected) = network.map_or((true, true), |n| (n.dhcp, n.connected));
            Nic {
                network: name.clone(),
                dhcp,
                connected,
            }
        };
        let nics = names.iter().map(&mut nic).collect();
        (nics, unfit)
    }
}
