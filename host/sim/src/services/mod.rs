//! The services of the simulated cloud, each with its own state, behind one trait.
//!
//! No service sees the state of another. A service works on VMs of the hypervisor, announces what others may have to
//! react to, and reacts to what they announce.

pub(crate) mod cluster;
pub(crate) mod machine;
pub(crate) mod pool;
pub(crate) mod router;
pub(crate) mod session;
pub(crate) mod task;
pub(crate) mod vm;

use std::any::Any;
use std::time::Duration;

use polity_clouds::catalogue::Named;
use polity_core::call::CloudRequest;
use polity_core::contract::Answer;
use serde_json::{Value, json};

use crate::event::{Call, Event, Kernel};
use crate::hypervisor::Hypervisor;
use crate::hypervisor::vm::id;
use crate::kernel::between::Between;
use crate::kernel::call::text;
use crate::kernel::kept::Note;
use crate::kernel::tasks::{Task, TaskError};

/// What a service stands on, at one moment.
pub(crate) struct Context<'a> {
    /// The moment, in Unix milliseconds: of something that was due, when it was due.
    pub(crate) at: u64,
    pub(crate) kernel: &'a mut Kernel,
    pub(crate) vms: &'a mut Hypervisor,
}

impl Context<'_> {
    /// When a VM that is turned on now has booted.
    pub(crate) fn booted(&self, boot: Between, vm: u64) -> u64 {
        let uuid = self.vms.get(vm).map(|vm| vm.bios_uuid.as_str());
        let draw = self.kernel.draw("boot", uuid.unwrap_or_default(), self.at);
        self.at + boot.pick(draw)
    }
}

/// One service of the cloud.
pub(crate) trait Service: Any + Send {
    /// What it performs, as the catalogue has it. What a create has made is seen by everybody after `visible_within`.
    fn operations(&self, visible_within: Duration) -> Vec<Named>;

    /// Its state, each table with the name that it is stored under.
    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        Vec::new()
    }

    /// The name of what a call is about, for fault rules to match, as far as can be told before it is performed.
    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        cx.vms.name_of(text(&request.arguments, "id"))
    }

    /// Performs one of its operations.
    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer;

    /// Does what a task of its operations was for, now that the task ends.
    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        let _ = (cx, task);
        Ok(())
    }

    /// Reacts to what it or another service has announced, or scheduled for now.
    fn on_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        let _ = (cx, event);
    }

    /// Creates: what the call was or would have been answered that has made this VM.
    fn created(&self, vms: &Hypervisor, vm: u64) -> Value {
        let _ = vms;
        json!({"vm": id(vm)})
    }
}
