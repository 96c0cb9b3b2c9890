//! Clones: what they consist of, and why they fail.

use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use super::{Context, Vms};
use crate::config::Template;
use crate::config::scenario::Quirk;
use crate::event::Call;
use crate::hypervisor::create::Clone as NewClone;
use crate::hypervisor::vm::Nic;
use crate::hypervisor::work::answer;
use crate::kernel::call::{Plan, Stamp, TaskError};
use crate::kernel::tasks::Work;

impl Vms {
    /// Starts a clone.
    pub(super) fn clone_vm(&self, cx: &mut Context<'_>, call: &Call) -> Answer {
        if let Some(earlier) = cloned_earlier(cx, call) {
            return earlier;
        }
        let template = self.template(&call.caller.tenant, call.text("template"))?;
        let name = call.text("name");
        let place = call
            .caller
            .place(json!([call.text("datacenter"), call.text("folder"), name]));
        if cx.vms.unique_names && cx.vms.is_taken(&place) {
            return self.duplicate(cx, call);
        }
        let (nics, unfit) = self.hardware(&call.arguments, &template);
        let number = cx.kernel.number();
        let task = self.submit(cx, call, number, |plan| {
            plan.doomed = plan.doomed.take().or(unfit)
        });
        let bios_uuid = cx.kernel.uuid(&format!("{} {task}", call.caller.owner));
        let clone = NewClone {
            number,
            task,
            place,
            uuids: [call.text("instanceUuid").to_owned(), bios_uuid],
            nics,
        };
        cx.vms.begin_clone(cx.at, call, clone);
        Ok(answer(task))
    }

    /// Starts the task of a clone with a changed plan.
    fn submit(
        &self,
        cx: &mut Context<'_>,
        call: &Call,
        about: u64,
        change: impl FnOnce(&mut Plan<Quirk>),
    ) -> u64 {
        let mut call = call.clone();
        change(&mut call.plan);
        let work = Work {
            about,
            name: call.text("name").to_owned(),
            takes: self.durations.clone,
            told: Value::Null,
        };
        cx.vms.submit(cx.kernel, cx.at, &call, work)
    }

    /// A taken name. vSphere reports it at once, or by a task that fails soon; both happen.
    fn duplicate(&self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let name = call.text("name");
        let message = format!("DuplicateName: the name {name:?} is taken in its folder");
        if cx.kernel.draw_for(&call.caller.owner).is_multiple_of(2) {
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        let number = cx.kernel.number();
        let task = self.submit(cx, call, number, |plan| {
            plan.doomed = Some(TaskError::new("DuplicateName", message));
            plan.takes = Some(1_000);
        });
        Ok(answer(task))
    }

    fn template(&self, tenant: &String, name: &str) -> Result<Template, Failure> {
        if self.templates.is_empty() {
            return Ok(Template {
                name: name.to_owned(),
                networks: Vec::new(),
                disks: 1,
                tenants: Vec::new(),
            });
        }
        let template = self.templates.iter().find(|t| t.name == name);
        let template =
            template.ok_or_else(|| Failure::new(Code::NotFound, format!("no template {name:?}")))?;
        if !template.tenants.is_empty() && !template.tenants.contains(tenant) {
            let message = format!("tenant {tenant:?} may not clone template {name:?}");
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        Ok(template.clone())
    }

    /// The NICs, and the hardware error in which the clone will end, if any.
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
            let network = self.networks.iter().find(|n| n.name == *name);
            if network.is_none() && !self.networks.is_empty() {
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

/// With client tokens: the answer to the earlier call with this key.
fn cloned_earlier(cx: &Context<'_>, call: &Call) -> Option<Answer> {
    let settings = cx.kernel.settings();
    let key = call.key.as_deref().filter(|_| settings.client_tokens)?;
    let owner = &call.caller.owner;
    let made = |stamp: &Stamp| stamp.key.as_deref() == Some(key) && call.caller.sees(stamp);
    if let Some(task) = cx.kernel.tasks_of(owner).find(|task| made(&task.stamp)) {
        return Some(Ok(answer(task.number)));
    }
    let vm = cx.vms.of_owner(owner).find(|vm| made(&vm.stamp))?;
    let message = format!(
        "{} was made with this key, and the task's record has expired",
        vm.id()
    );
    Some(Err(Failure::new(Code::AlreadyExists, message)))
}
