//! The services of the simulated cloud. Each has its own state behind one trait.
//!
//! No service sees the state of another. A service works on VMs of the hypervisor, announces what others may
//! need to know, and reacts to what they announce.

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
use crate::kernel::call::{TaskError, text};
use crate::kernel::kept::Note;
use crate::kernel::tasks::Task;

/// What a service works with at one moment.
pub(crate) struct Context<'a> {
    /// The moment in Unix milliseconds. For something that was due, it is the time at which that was due.
    pub(crate) at: u64,
    pub(crate) kernel: &'a mut Kernel,
    pub(crate) vms: &'a mut Hypervisor,
}

impl Context<'_> {
    /// When a VM that is turned on now will have booted.
    pub(crate) fn booted(&self, boot: Between, vm: u64) -> u64 {
        let uuid = self.vms.get(vm).map(|vm| vm.bios_uuid.as_str());
        let draw = self.kernel.draw("boot", uuid.unwrap_or_default(), self.at);
        self.at + boot.pick(draw)
    }
}

/// One service of the cloud.
pub(crate) trait Service: Any + Send {
    /// The operations of the service, as in the catalogue. After `visible_within`, every look sees what a
    /// create has made.
    fn operations(&self, visible_within: Duration) -> Vec<Named>;

    /// The tables of the service's state, with the names under which they are stored.
    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        Vec::new()
    }

    /// The name of the thing that a call is about, for fault rules to match, if it is known before the call
    /// is performed.
    fn subject(&self, cx: &Context<'_>, request: &CloudRequest) -> Option<String> {
        cx.vms.name_of(text(&request.arguments, "id"))
    }

    /// Performs one of the service's operations.
    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer;

    /// Does what a task was started for, now that the task ends.
    fn on_task_end(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        let _ = (cx, task);
        Ok(())
    }

    /// Reacts to an event that a service has announced, or has scheduled for now.
    fn on_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        let _ = (cx, event);
    }

    /// Whether the cloud shows this VM now.
    fn shows(&self, vm: u64, now: u64) -> bool {
        let _ = (vm, now);
        true
    }

    /// The answer that the create which made this VM got, or would have got.
    fn created(&self, vms: &Hypervisor, vm: u64) -> Value {
        let _ = vms;
        json!({"vm": id(vm)})
    }
}
