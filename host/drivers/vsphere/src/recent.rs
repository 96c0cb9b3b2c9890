//! The recent tasks of a vCenter.

use polity_driver_sdk::prelude::*;

use crate::properties::{self, Property, Set};
use crate::services::Services;
use crate::tasks::{INFO, Kind, TASK};

/// The tasks that are queued or running, or that ended in the last minutes.
const RECENT: Property = Property::of("recentTask", &["ManagedObjectReference"]);

/// A recent task.
pub(crate) struct Recent {
    /// The id of the task.
    pub(crate) id: String,
    /// The id of the operation that started it: the key of a create.
    pub(crate) activation_id: String,
    /// The state of the task.
    pub(crate) state: String,
    /// Whether the task creates a VM.
    is_clone: bool,
}

impl Recent {
    /// Whether the task has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        ["queued", "running"].contains(&self.state.as_str())
    }

    /// Whether the task may still create a VM.
    pub(crate) fn may_make_a_vm(&self) -> bool {
        self.is_clone && self.is_under_way()
    }
}

/// The recent tasks. Tasks that the principal may not read were started by another principal, and are left out.
pub(crate) async fn recent(cx: &Context, services: &Services) -> Result<Vec<Recent>, Failure> {
    let manager = &services.task_manager;
    let sets = [
        Set {
            kind: &manager.kind,
            properties: &[RECENT],
        },
        Set {
            kind: TASK,
            properties: &[INFO],
        },
    ];
    let objects = properties::read_through(cx, services, manager, RECENT.path, &sets).await?;
    // If the task manager itself is missing from the answer, the list was not read.
    let listed = objects.iter().find(|object| object.of.id == manager.id);
    let unread = || {
        failure(
            Code::Unavailable,
            "vCenter does not show its list of recent tasks",
        )
    };
    listed.ok_or_else(unread)?.value(&RECENT)?;
    let mut recent = Vec::new();
    for object in objects.iter().filter(|object| object.of.kind == TASK) {
        match object.value(&INFO) {
            Ok(Some(info)) => recent.push(read(&object.of.id, info)),
            Ok(None) => return Err(unread()),
            Err(failure) if [Code::NotFound, Code::PermissionDenied].contains(&failure.code) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(recent)
}

fn read(id: &str, info: &Value) -> Recent {
    let text = |path: &str| tree::text(info, path).to_owned();
    Recent {
        id: id.to_owned(),
        activation_id: text("activationId"),
        state: text("state"),
        is_clone: Kind::of(&text("descriptionId")) == Some(Kind::Clone),
    }
}
