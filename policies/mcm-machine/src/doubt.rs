//! Creations whose answer was lost (MCM-C13 to MCM-C15). They are resolved before everything else, also while the
//! machine is being deleted.

use std::ops::ControlFlow::{self, Break, Continue};

use mcm_api::{Machine, Phase};
use polity_sdk::Resolution;
use polity_sdk::cloud::machine::{self as machines, Vm};
use polity_sdk::prelude::*;

use crate::{Cx, create, delete};

/// Handles the outcome of the creation in doubt, if there is one. Goes on with the VM that it created.
pub(crate) fn resolve(cx: &Cx, machine: &mut Machine) -> Result<ControlFlow<Next, Option<Vm>>, Failure> {
    let mut made = None;
    for creation in cx
        .pending()
        .iter()
        .filter(|act| act.operation == machines::CREATE)
    {
        match &creation.resolution {
            Resolution::Unknown(why) => {
                cx.note("MCM-C13");
                let message = format!("nobody knows yet whether the VM was created: {why}");
                let failure = Failure::new(Code::Unknown, message);
                if machine.metadata.deleting() {
                    cx.note("MCM-X51");
                    return Ok(Break(Next::failed(RetryClass::Short, failure)));
                }
                return Ok(Break(create::failed(cx, machine, failure, RetryClass::Short)));
            }
            Resolution::Done(answer) => {
                let vm = machines::read(serde_json::from_str(answer).unwrap_or_default())?;
                cx.note("MCM-C14");
                machine.record_vm(cx.now(), &vm.provider_id);
                if machine.metadata.deleting() {
                    if machine.phase() == Some(Phase::Terminating) {
                        delete::start_over(cx, machine);
                    }
                    return Ok(Break(Next::retry(RetryClass::Short)));
                }
                made = Some(vm);
            }
            Resolution::Absent => cx.note("MCM-C15"),
        }
    }
    Ok(Continue(made))
}
