//! Shows the state of tasks of all services. It never lags.

use std::time::Duration;

use polity_clouds::catalogue::{Named, task, vm};
use polity_core::call::CloudRequest;
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use super::{Context, Service};
use crate::event::Call;
use crate::hypervisor::vm::id;
use crate::kernel::call::text;
use crate::kernel::tasks::Task;

pub(crate) struct Tasks;

impl Service for Tasks {
    fn operations(&self, _: Duration) -> Vec<Named> {
        task::operations()
    }

    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        let task = cx.kernel.task_by_id(text(&request.arguments, "id"))?;
        Some(task.name.clone())
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let id = call.text("id");
        let task = cx.kernel.task_by_id(id);
        let task = task.filter(|task| call.caller.sees(&task.stamp));
        let task = task.ok_or_else(|| Failure::new(Code::NotFound, format!("no task {id:?}")))?;
        call.caller.check_owner(&task.stamp, id)?;
        Ok(describe(task, cx.at))
    }
}

fn describe(task: &Task, now: u64) -> Value {
    let mut told = json!({"id": task.id(), "state": task.state(now), "kind": kind(&task.operation)});
    // A clone has no VM until it has succeeded.
    if task.operation != vm::CLONE || matches!(task.ended, Some(Ok(()))) {
        told["vm"] = Value::from(id(task.about));
    }
    if let Some(Err(error)) = &task.ended {
        told["error"] = json!(error);
    }
    told
}

/// The kind of a task: `clone` of `vm.clone`, `remove` of `pool.remove-machine`.
fn kind(operation: &str) -> &str {
    let (_, kind) = operation.split_once('.').unwrap_or(("", operation));
    kind.strip_suffix("-machine").unwrap_or(kind)
}
