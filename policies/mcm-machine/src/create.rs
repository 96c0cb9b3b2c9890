//! Creates a machine (MCM-C01 to MCM-C12, MCM-C16 to MCM-C21): a VM, its ids on the machine, its setup, and the wait
//! for its node.

use mcm_api::driver::{self, Seen};
use mcm_api::{
    LastOperation, Machine, MachineClass, NODE, OperationKind, OperationState, Phase, node, token,
};
use polity_sdk::Effect;
use polity_sdk::cloud::machine::{Vm, is_transient};
use polity_sdk::prelude::*;

use crate::{Cx, health, is_hidden, steady};

/// Finds or creates the VM, then writes what is missing, one kind of thing in each pass. `made` is the VM of a
/// creation in doubt.
pub(crate) async fn bring_up(
    cx: &Cx,
    machine: &mut Machine,
    class: Option<&MachineClass>,
    made: Option<Vm>,
) -> Result<Next, Failure> {
    if let Some(vm) = made {
        if node::is_stale(cx, machine, &vm).await {
            return Ok(discard(cx, machine, class, vm).await);
        }
        return Ok(finish(cx, machine, class, vm).await);
    }
    match driver::status(cx, machine, class).await {
        Seen::There(vm) => {
            cx.note("MCM-C02");
            Ok(finish(cx, machine, class, vm).await)
        }
        Seen::Undecodable(failure) => {
            cx.note("MCM-C03");
            Ok(Next::failed(RetryClass::Medium, failure))
        }
        Seen::Failed(failure) if [Code::NotFound, Code::Unimplemented].contains(&failure.code) => {
            match machine.status.provider_id.clone() {
                Some(_) if failure.is_not_found() && is_hidden(cx, machine) => Ok(wait_for_vm(cx, machine)),
                Some(provider_id) => {
                    cx.note("MCM-C08");
                    // Every new VM needs its setup (`machine.go` of machine-controller-manager: `uninitializedMachine`
                    // after each create). It has had it once it waits for its node (C11).
                    let vm = Vm {
                        provider_id,
                        node_name: machine.node_name().map(str::to_owned),
                        initialized: machine.is_unfinished().then_some(false),
                        ..Vm::default()
                    };
                    Ok(finish(cx, machine, class, vm).await)
                }
                None => Ok(create(cx, machine, class).await),
            }
        }
        Seen::Failed(failure) => {
            cx.note("MCM-C09");
            Ok(failed(cx, machine, failure, RetryClass::Medium))
        }
    }
}

async fn create(cx: &Cx, machine: &mut Machine, class: Option<&MachineClass>) -> Next {
    if let Err(failure) = token::prepare(cx, machine).await {
        cx.note("MCM-C01");
        return Next::failed(RetryClass::Short, failure);
    }
    cx.note("MCM-C04");
    match driver::create(cx, machine, class).await {
        Ok(vm) if node::is_stale(cx, machine, &vm).await => discard(cx, machine, class, vm).await,
        Ok(vm) => {
            cx.note("MCM-C06");
            finish(cx, machine, class, vm).await
        }
        // The next pass resolves the creation before anything else.
        Err(failure) if failure.effect == Effect::Unknown => {
            cx.note("MCM-C16");
            let lost = "the answer to the VM's creation was lost; the cloud is asked whether the VM exists";
            failed(cx, machine, failure.context(lost), RetryClass::Short)
        }
        Err(failure) => {
            cx.note("MCM-C07");
            let wait = match failure.code {
                Code::ResourceExhausted => cx.config().resource_exhausted.into(),
                _ => RetryClass::Medium,
            };
            failed(cx, machine, failure, wait)
        }
    }
}

/// Deletes the VM and gives the machine up. Its MachineSet creates another one.
async fn discard(cx: &Cx, machine: &mut Machine, class: Option<&MachineClass>, vm: Vm) -> Next {
    let node = vm.node_name.unwrap_or_default();
    machine.record_vm(cx.now(), &vm.provider_id);
    // A VM that cannot be deleted stays recorded, so that the deletion of the machine finds it. So does a VM that is not
    // found: it is new, so the cloud may not show it yet.
    let failure = driver::delete(cx, machine, class).await.err();
    if failure.is_none() {
        cx.note("MCM-C05");
        machine.forget_vm();
    } else {
        cx.note("MCM-C17");
    }
    let message = format!("the node {node} of another VM is still there");
    cx.event(EventType::Warning, "StaleNode", &message);
    let operation = (OperationKind::Create, OperationState::Failed);
    machine.turn(cx.now(), Phase::Failed, operation, message);
    failure.map_or(Next::retry(RetryClass::Short), |failure| {
        Next::failed(RetryClass::Short, failure)
    })
}

/// Handles a VM that could not be created, read or set up, or of which nobody knows whether it was created. Only a machine
/// that is still being created changes its phase.
pub(crate) fn failed(cx: &Cx, machine: &mut Machine, failure: Failure, otherwise: RetryClass) -> Next {
    if is_late(cx, machine) {
        machine.set_phase(cx.now(), Phase::Failed);
    }
    try_again(cx, machine, failure, otherwise)
}

/// Reports the failure, and tries again.
fn try_again(cx: &Cx, machine: &mut Machine, failure: Failure, otherwise: RetryClass) -> Next {
    if machine.phase().is_none() {
        machine.set_phase(cx.now(), Phase::CrashLoopBackOff);
    }
    machine.operate(cx.now(), LastOperation::failed(OperationKind::Create, &failure));
    cx.event(EventType::Warning, "CreationFailed", &failure.message);
    let wait = if is_transient(&failure) {
        RetryClass::Short
    } else {
        otherwise
    };
    Next::failed(wait, failure)
}

/// Whether the machine is being created for too long.
fn is_late(cx: &Cx, machine: &Machine) -> bool {
    let is_created = !machine.is_unfinished() && machine.phase() != Some(Phase::Pending);
    !is_created && machine.age(cx.now()) > cx.config().creation_timeout(machine)
}

/// Waits until the cloud shows the VM, or until it is so old that it would show it.
fn wait_for_vm(cx: &Cx, machine: &mut Machine) -> Next {
    cx.note("MCM-C21");
    if is_late(cx, machine) {
        machine.set_phase(cx.now(), Phase::Failed);
    }
    machine.operate(cx.now(), LastOperation::hidden(OperationKind::Create, machine));
    Next::retry(RetryClass::Short)
}

async fn finish(cx: &Cx, machine: &mut Machine, class: Option<&MachineClass>, vm: Vm) -> Next {
    let node = vm.node_name.or_else(|| machine.node_name().map(str::to_owned));
    if write_ids(cx, machine, &vm.provider_id, node.as_ref()) {
        cx.note("MCM-C10");
        if let Some(state) = vm.last_known_state {
            machine.status.last_known_state = Some(state);
        }
        return Next::retry(RetryClass::Short);
    }
    if vm.initialized == Some(false) {
        match driver::initialize(cx, machine, class).await {
            Ok(done) => cx.note(if done { "MCM-C18" } else { "MCM-C20" }),
            Err(failure) if failure.is_not_found() && is_hidden(cx, machine) => {
                return wait_for_vm(cx, machine);
            }
            Err(failure) => {
                cx.note("MCM-C19");
                return match failure.code {
                    // A right is missing, which the next machine would lack too: this one is not given up.
                    Code::PermissionDenied => try_again(cx, machine, failure, RetryClass::Medium),
                    Code::NotFound => failed(cx, machine, failure, RetryClass::Short),
                    _ => failed(cx, machine, failure, RetryClass::Medium),
                };
            }
        }
    }
    let fresh = machine.is_unfinished();
    if machine.status.node != node || fresh {
        cx.note("MCM-C11");
        machine.status.node = node;
        if fresh {
            machine.set_phase(cx.now(), Phase::Pending);
        }
        let (kind, state) = (OperationKind::Create, OperationState::Processing);
        let joins = "the VM exists; its node has yet to join";
        machine.operate(cx.now(), LastOperation::new(kind, state, joins));
        return Next::retry(RetryClass::Short);
    }
    cx.note("MCM-C12");
    health::time_out_creation(cx, machine);
    steady(cx, machine)
}

/// Writes the node's label, the priority and the provider's id. Returns whether one of them was not stored before
/// this pass.
fn write_ids(cx: &Cx, machine: &mut Machine, provider_id: &str, node: Option<&String>) -> bool {
    let metadata = &mut machine.metadata;
    if let Some(node) = node {
        metadata.labels.insert(NODE.to_owned(), node.clone());
    }
    metadata
        .annotations
        .entry(mcm_api::PRIORITY.to_owned())
        .or_insert_with(|| mcm_api::DEFAULT_PRIORITY.to_string());
    machine.record_vm(cx.now(), provider_id);
    let stored = cx.object();
    stored.metadata != machine.metadata || stored.status.provider_id != machine.status.provider_id
}
