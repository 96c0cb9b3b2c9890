//! `task.get`.

use polity_driver_sdk::prelude::*;

use crate::moid::{Moid, is_id};
use crate::properties::{self, Property};
use crate::services::Services;
use crate::{fault, power, vm};

/// The description and the state of a task.
pub(crate) const INFO: Property = Property::of(
    "info",
    &[
        "descriptionId",
        "entity",
        "state",
        "error",
        "result",
        "activationId",
    ],
);
/// The question that a VM waits for a person to answer; a task that needs the VM runs until then.
const QUESTION: Property = Property::of("runtime.question", &["text"]);
/// The type of tasks.
pub(crate) const TASK: &str = "Task";

/// The beginning of the id that stands for an ended clone whose VM is known. No id of vCenter has a colon.
const CLONED: &str = "cloned:";

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The task makes a VM.
    Clone,
    /// The task changes its VM. The text is the kind in the catalogue.
    Changes(&'static str),
}

impl Kind {
    /// The kind by the `descriptionId`: the type, a dot, and the operation. In govmomi's simulator some operations end in
    /// `Vm`, unlike in vCenter.
    pub(crate) fn of(description: &str) -> Option<Self> {
        let operation = description.strip_prefix("VirtualMachine.")?;
        Some(match operation {
            "clone" | "cloneVm" => Kind::Clone,
            "reconfigure" | "reconfigVm" => Kind::Changes("reconfigure"),
            "powerOn" => Kind::Changes("power-on"),
            "powerOff" => Kind::Changes("power-off"),
            "destroy" => Kind::Changes("destroy"),
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Clone => "clone",
            Kind::Changes(name) => name,
        }
    }
}

/// The id of a task that stands for an ended clone whose VM exists.
///
/// vCenter keeps the record of a task for minutes, but an entry can be in doubt for much longer. If the driver answered
/// the id of a task whose record is gone, the policy would forget the task and search by the instance UUID. That search
/// may not show the VM yet, or vCenter may have given the VM another UUID. Then the VM would be cloned twice, or a
/// deleted object would go without its VM. So this id names the VM, and `task.get` answers as for a clone that has just
/// ended.
pub(crate) fn of_cloned(vm: &str) -> String {
    format!("{CLONED}{vm}")
}

/// `task.get`.
///
/// vCenter does not show for which owner a task was started. A task about a VM belongs to the owner of the VM, and so does a
/// clone that has made a VM. Of a clone that has made no VM, every owner may see the state.
pub(crate) async fn get(cx: &Context) -> Result<Value, Failure> {
    let id = cx.argument("id");
    let services = Services::of(cx).await?;
    if let Some(vm) = id.strip_prefix(CLONED) {
        let vm = vm::own(cx, &services, vm, &[]).await?;
        return Ok(json!({"id": id, "state": "success", "kind": "clone", "vm": vm.id()}));
    }
    let info = info(cx, &services, id).await?;
    let kind = kind(id, &info)?;
    let state = state(id, &info)?;
    let vm = about(kind, state, &info);
    let question = check_owner(cx, &services, vm.as_ref()).await?;
    let mut answer = json!({"id": id, "state": state, "kind": kind.name()});
    if let Some(question) = question.filter(|_| state == "running") {
        answer["question"] = question.into();
    }
    if let Some(vm) = vm {
        answer["vm"] = vm.id.into();
    }
    if let Some(error) = tree::first(&info, "error").filter(|_| state == "error") {
        answer["error"] = describe_error(error);
    }
    Ok(answer)
}

async fn info(cx: &Context, services: &Services, id: &str) -> Result<Value, Failure> {
    let gone = || failure(Code::NotFound, format!("vCenter has no task {id:?}"));
    if !is_id(id) {
        return Err(gone());
    }
    let task = properties::read(cx, services, &Moid::new(TASK, id), &[INFO]).await;
    let task = task.map_err(|failure| match failure.code {
        Code::NotFound => gone(),
        _ => failure,
    })?;
    let info = task.value(&INFO)?.cloned();
    info.ok_or_else(|| {
        failure(
            Code::Unavailable,
            format!("vCenter does not show the info of task {id} now"),
        )
    })
}

fn kind(id: &str, info: &Value) -> Result<Kind, Failure> {
    let description = tree::text(info, "descriptionId");
    Kind::of(description).ok_or_else(|| {
        // The code is not `not-found`, because the policy would then forget a task that may be its own.
        let message = format!("task {id} is a {description:?}, which this driver never starts");
        failure(Code::Internal, message)
    })
}

fn state(id: &str, info: &Value) -> Result<&'static str, Failure> {
    let said = tree::text(info, "state");
    let known = ["queued", "running", "success", "error"]
        .into_iter()
        .find(|state| *state == said);
    known.ok_or_else(|| {
        failure(
            Code::Internal,
            format!("task {id} is in the unknown state {said:?}"),
        )
    })
}

/// The VM of a task. For a clone it is the result of the task, because the task's entity is the template.
fn about(kind: Kind, state: &str, info: &Value) -> Option<Moid> {
    let element = match kind {
        Kind::Clone if state != "success" => None,
        Kind::Clone => tree::first(info, "result"),
        Kind::Changes(_) => tree::first(info, "entity"),
    };
    element.and_then(Moid::read_vm)
}

/// Refuses a task about a VM of another owner. A VM that is gone has no owner any more. Returns the question that the VM asks.
async fn check_owner(
    cx: &Context,
    services: &Services,
    vm: Option<&Moid>,
) -> Result<Option<String>, Failure> {
    let Some(vm) = vm else {
        return Ok(None);
    };
    match vm::own(cx, services, &vm.id, &[QUESTION]).await {
        Ok(vm) => {
            // A principal that may not see the question still sees the task.
            let question = vm.object.value(&QUESTION).ok().flatten();
            Ok(question.map(|asked| fault::bounded(tree::text(asked, "text"))))
        }
        Err(failure) if failure.code == Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn describe_error(error: &Value) -> Value {
    let fault = tree::first(error, "fault").unwrap_or(&Value::Null);
    let mut described = json!({
        "fault": fault::name(fault),
        "message": fault::bounded(tree::text(error, "localizedMessage")),
    });
    for (field, element) in [("existing", "existingState"), ("requested", "requestedState")] {
        if let Some(state) = power::shown(tree::text(fault, element)) {
            described[field] = state.into();
        }
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_vcenter_and_its_simulator() {
        for (description, kind) in [
            ("VirtualMachine.clone", Some("clone")),
            ("VirtualMachine.cloneVm", Some("clone")),
            ("VirtualMachine.reconfigure", Some("reconfigure")),
            ("VirtualMachine.reconfigVm", Some("reconfigure")),
            ("VirtualMachine.powerOn", Some("power-on")),
            ("VirtualMachine.powerOff", Some("power-off")),
            ("VirtualMachine.destroy", Some("destroy")),
            ("VirtualMachine.migrate", None),
            ("Datastore.destroy", None),
            ("", None),
        ] {
            assert_eq!(Kind::of(description).map(Kind::name), kind, "{description}");
        }
    }
}
