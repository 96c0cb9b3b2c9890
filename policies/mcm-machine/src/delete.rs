//! Deletes a machine (MCM-D01 to MCM-D28, MCM-X01 to MCM-X50): one step in each pass, and each step records the next
//! one.

mod drain;

use mcm_api::driver::{self, Seen};
use mcm_api::{
    FINALIZER, LastOperation, Machine, MachineClass, NextOp, OperationKind, OperationState, Phase,
};
use polity_sdk::cloud::machine::is_transient;
use polity_sdk::prelude::*;

use crate::{Cx, is_hidden, notes};
use mcm_api::node::{self, Search};

/// Performs the recorded step.
pub(crate) async fn tear_down(
    cx: &Cx,
    machine: &mut Machine,
    class: Option<&MachineClass>,
) -> Result<Next, Failure> {
    if !machine.is_held() {
        notes(cx, ["MCM-D02", "MCM-D03"]);
        let message = format!("the machine is being deleted and lacks the finalizer {FINALIZER}");
        let failure = Failure::new(Code::FailedPrecondition, message);
        return Ok(Next::failed(RetryClass::Long, failure));
    }
    notes(cx, ["MCM-D01", "MCM-D04"]);
    if machine.phase() != Some(Phase::Terminating) {
        notes(cx, ["MCM-D05", "MCM-D06", "MCM-D07"]);
        machine.set_phase(cx.now(), Phase::Terminating);
        start_over(cx, machine);
        return Ok(Next::retry(RetryClass::Short));
    }
    cx.note("MCM-D08");
    match machine.next_op() {
        // An earlier version of this policy has believed that the VM is gone.
        Some(NextOp::InitiateNodeDeletion | NextOp::InitiateFinalizerRemoval) if is_hidden(cx, machine) => {
            cx.note("MCM-X33");
            start_over(cx, machine);
            Ok(Next::retry(RetryClass::Short))
        }
        Some(NextOp::GetVMStatus) => Ok(ask_for_vm(cx, machine, class).await),
        Some(NextOp::InitiateDrain) => Ok(drain::drain(cx, machine).await),
        Some(NextOp::DelVolumeAttachments) => Ok(drain::detach(cx, machine).await),
        Some(NextOp::InitiateVMDeletion) => Ok(delete_vm(cx, machine, class).await),
        Some(NextOp::InitiateNodeDeletion) => Ok(delete_node(cx, machine).await),
        Some(NextOp::InitiateFinalizerRemoval) => Ok(let_go(cx, machine).await),
        Some(NextOp::FailedDecode) | None => {
            cx.note("MCM-X50");
            start_over(cx, machine);
            Ok(Next::retry(RetryClass::Short))
        }
    }
}

/// Starts the deletion, which begins with a question for the VM.
pub(crate) fn start_over(cx: &Cx, machine: &mut Machine) {
    let (first, state) = (NextOp::GetVMStatus, OperationState::Processing);
    machine.operate(cx.now(), step(first, state, "the machine is being deleted"));
}

fn step(next: NextOp, state: OperationState, description: &str) -> LastOperation {
    LastOperation::new(OperationKind::Delete, state, description).next(next)
}

/// Ends this step. The next pass performs the next step.
fn go_on(cx: &Cx, machine: &mut Machine, next: NextOp, description: &str) -> Next {
    machine.operate(cx.now(), step(next, OperationState::Processing, description));
    Next::retry(RetryClass::Short)
}

/// Records that this step failed. It is tried again.
fn stay(cx: &Cx, machine: &mut Machine, at: NextOp, wait: RetryClass, failure: Failure) -> Next {
    let operation = LastOperation::failed(OperationKind::Delete, &failure);
    machine.operate(cx.now(), operation.next(at));
    cx.event(EventType::Warning, "DeletionFailed", &failure.message);
    Next::failed(wait, failure)
}

/// Waits until the cloud shows the VM, or until it is so old that it would show it.
fn wait_for_vm(cx: &Cx, machine: &mut Machine, at: NextOp) -> Next {
    let operation = LastOperation::hidden(OperationKind::Delete, machine);
    machine.operate(cx.now(), operation.next(at));
    Next::retry(RetryClass::Short)
}

async fn ask_for_vm(cx: &Cx, machine: &mut Machine, class: Option<&MachineClass>) -> Next {
    let seen = driver::status(cx, machine, class).await;
    notes(cx, ["MCM-D09", "MCM-D12", "MCM-D13"]);
    let failure = match seen {
        Seen::There(vm) if vm.initialized == Some(false) => return start_drain(cx, machine, "MCM-X02"),
        Seen::There(_) => return start_drain(cx, machine, "MCM-D14"),
        Seen::Undecodable(failure) => {
            notes(cx, ["MCM-D15", "MCM-D16", "MCM-D18", "MCM-D19", "MCM-D27"]);
            let state = if cx.config().decode_failure_is_failed {
                OperationState::Failed
            } else {
                OperationState::Processing
            };
            machine.operate(cx.now(), step(NextOp::FailedDecode, state, &failure.message));
            return Next::failed(RetryClass::Long, failure);
        }
        Seen::Failed(failure) => failure,
    };
    notes(cx, ["MCM-D15", "MCM-D16", "MCM-D17"]);
    match failure.code {
        Code::Unimplemented => start_drain(cx, machine, "MCM-D20"),
        Code::NotFound if cx.config().not_found_still_deletes => start_drain(cx, machine, "MCM-X03"),
        Code::NotFound if is_hidden(cx, machine) => {
            cx.note("MCM-D29");
            wait_for_vm(cx, machine, NextOp::GetVMStatus)
        }
        Code::NotFound => {
            notes(cx, ["MCM-D22", "MCM-D25", "MCM-D26"]);
            go_on(cx, machine, NextOp::InitiateNodeDeletion, "the VM is gone")
        }
        _ if is_transient(&failure) => {
            notes(cx, ["MCM-D21", "MCM-D23"]);
            let before = machine.status.last_operation.clone();
            let next = stay(cx, machine, NextOp::GetVMStatus, RetryClass::Short, failure);
            // MCM-D26 is noted only if the operation changed: an equal one is not written again.
            if machine.status.last_operation != before {
                cx.note("MCM-D26");
            }
            next
        }
        _ => {
            cx.note("MCM-X01");
            stay(cx, machine, NextOp::GetVMStatus, RetryClass::Medium, failure)
        }
    }
}

fn start_drain(cx: &Cx, machine: &mut Machine, edge: &str) -> Next {
    notes(cx, [edge, "MCM-D24", "MCM-D26"]);
    go_on(cx, machine, NextOp::InitiateDrain, "the node is drained next")
}

async fn delete_vm(cx: &Cx, machine: &mut Machine, class: Option<&MachineClass>) -> Next {
    let edge = match driver::delete(cx, machine, class).await {
        Ok(()) => {
            machine.status.deleted_provider_id = machine.status.provider_id.clone();
            "MCM-X20"
        }
        Err(failure) if failure.is_not_found() && is_hidden(cx, machine) => {
            cx.note("MCM-X25");
            return wait_for_vm(cx, machine, NextOp::InitiateVMDeletion);
        }
        Err(failure) if failure.is_not_found() => "MCM-X21",
        Err(failure) => {
            let (edge, wait) = if is_transient(&failure) {
                ("MCM-X22", RetryClass::Short)
            } else {
                ("MCM-X23", RetryClass::Long)
            };
            cx.note(edge);
            return stay(cx, machine, NextOp::InitiateVMDeletion, wait, failure);
        }
    };
    cx.note(edge);
    go_on(cx, machine, NextOp::InitiateNodeDeletion, "the VM is deleted")
}

async fn delete_node(cx: &Cx, machine: &mut Machine) -> Next {
    let deleted = match node::find(cx, machine, node::ALL).await {
        // The uid is enough as precondition: the kubelet's heartbeats write new versions all the time.
        Ok(Search::Ours(node)) => {
            let deletion = cx.act(cluster::delete(&node).any_version()).await;
            deletion.found().map(|_| "MCM-X30")
        }
        Ok(Search::Missing) => Ok("MCM-X30"),
        Ok(Search::Foreign { .. }) => Ok("MCM-X32"),
        Err(failure) => Err(failure),
    };
    match deleted {
        Ok(edge) => {
            cx.note(edge);
            go_on(cx, machine, NextOp::InitiateFinalizerRemoval, "the node is gone")
        }
        Err(failure) => {
            cx.note("MCM-X31");
            let at = NextOp::InitiateNodeDeletion;
            stay(cx, machine, at, RetryClass::Short, failure)
        }
    }
}

/// Releases the machine. The beginning of this step is written first: a machine in this state lost the race for its
/// finalizer. After the release no policy can delete a VM of the machine any more, so the driver's list is read before.
async fn let_go(cx: &Cx, machine: &mut Machine) -> Next {
    match driver::left(cx, machine).await {
        Ok(None) => {}
        Ok(Some(left)) => {
            cx.note("MCM-X42");
            cx.event(
                EventType::Warning,
                "OrphanFound",
                format!("the VM {left} is still there"),
            );
            machine.record_vm(cx.now(), &left);
            return go_on(cx, machine, NextOp::InitiateVMDeletion, "a VM is left");
        }
        Err(failure) => {
            cx.note("MCM-X43");
            let wait = if is_transient(&failure) {
                RetryClass::Short
            } else {
                RetryClass::Long
            };
            return stay(cx, machine, NextOp::InitiateFinalizerRemoval, wait, failure);
        }
    }
    let last = machine.status.last_operation.as_ref();
    let again = last.is_some_and(|last| last.state == OperationState::Successful);
    cx.note(if again { "MCM-X41" } else { "MCM-X40" });
    let (next, done) = (NextOp::InitiateFinalizerRemoval, OperationState::Successful);
    machine.operate(cx.now(), step(next, done, "the VM and the node are gone"));
    machine.metadata.remove_finalizer(FINALIZER);
    if again {
        return Next::retry(RetryClass::Short);
    }
    Next::settled()
}
