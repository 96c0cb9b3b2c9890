//! `task.get`.

use polity_driver_sdk::prelude::*;

use crate::moid::{Moid, is_id};
use crate::properties::{self, Property};
use crate::services::Services;
use crate::{fault, power, vm};

/// What a task is, and how it stands.
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
/// The type of tasks.
pub(crate) const TASK: &str = "Task";

/// How the id of a clone begins that has ended and whose VM is known. No id of vCenter has a colon.
const CLONED: &str = "cloned:";

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It makes a VM.
    Clone,
    /// It changes the VM that it is about, in the catalogue's word.
    Changes(&'static str),
}

impl Kind {
    /// The kind by the `descriptionId`: the type, a dot, and the operation. Those of the simulator of govmomi end in
    /// `Vm` where those of vCenter do not.
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

/// The task that stands for a clone of which no task has to be asked: its VM is there.
///
/// The record of a task is kept for minutes, an entry in doubt for as long as it takes. A made-up id of a record that
/// is gone would be forgotten by the policy, which would then search by the instance UUID. That search may not show
/// the VM yet, and vCenter may have given it another UUID; then a VM is cloned twice, or an object that is being
/// deleted is let go without its VM. So the id names the VM, and `task.get` answers for it as for a clone that has
/// just ended.
pub(crate) fn of_cloned(vm: &str) -> String {
    format!("{CLONED}{vm}")
}

/// `task.get`.
///
/// vCenter does not say for whom a task was started. A task about a VM, and a clone that has made one, belong to the
/// VM's owner. A clone that has made none tells everybody only how it stands.
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
    check_owner(cx, &services, vm.as_ref()).await?;
    let mut answer = json!({"id": id, "state": state, "kind": kind.name()});
    if let Some(vm) = vm {
        answer["vm"] = vm.id.into();
    }
    if let Some(error) = tree::first(&info, "error").filter(|_| state == "error") {
        answer["error"] = describe_error(error);
    }
    Ok(answer)
}

async fn info(cx: &Context, services: &Services, id: &str) -> Result<Value, Failure> {
    let gone = || failure(Code::NotFound, format!("no task {id:?}"));
    if !is_id(id) {
        return Err(gone());
    }
    let task = properties::read(cx, services, &Moid::new(TASK, id), &[INFO]).await;
    let task = task.map_err(|failure| match failure.code {
        Code::NotFound => gone(),
        _ => failure,
    })?;
    let info = task.value(&INFO)?.cloned();
    info.ok_or_else(|| failure(Code::Unavailable, format!("task {id} says nothing of itself now")))
}

fn kind(id: &str, info: &Value) -> Result<Kind, Failure> {
    let description = tree::text(info, "descriptionId");
    Kind::of(description).ok_or_else(|| {
        // Not `not-found`: the policy would forget a task that may be its own.
        let message = format!("task {id} is {description:?}, which this driver does not start");
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

/// The VM that a task is about. That of a clone is its result; the VM that it names otherwise is the template.
fn about(kind: Kind, state: &str, info: &Value) -> Option<Moid> {
    let element = match kind {
        Kind::Clone if state != "success" => None,
        Kind::Clone => tree::first(info, "result"),
        Kind::Changes(_) => tree::first(info, "entity"),
    };
    element.and_then(Moid::read_vm)
}

/// Refuses a task about a VM of another object. A VM that is gone has no owner any more.
async fn check_owner(cx: &Context, services: &Services, vm: Option<&Moid>) -> Result<(), Failure> {
    let Some(vm) = vm else {
        return Ok(());
    };
    match vm::own(cx, services, &vm.id, &[]).await {
        Err(failure) if failure.code != Code::NotFound => Err(failure),
        _ => Ok(()),
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
