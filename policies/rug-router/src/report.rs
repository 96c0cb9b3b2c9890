//! Reports the state to people and to the network service.

use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{State, Vm};
use crate::object::{NeutronStatus, Router};

/// The condition: the VM is alive and configured.
const READY: &str = "Ready";
/// The reason when a pass could not read or do something.
pub(crate) const LOOK_FAILED: &str = "LookFailed";
/// The condition, present only while false: a port does not belong to the router.
pub(crate) const PORTS_PLUGGED: &str = "PortsPlugged";
/// The condition, present only while false: a rebuild cannot begin.
pub(crate) const REBUILD_TAKEN: &str = "RebuildTaken";
/// The condition, present only while true: the router is left alone.
pub(crate) const DEBUGGING: &str = "Debugging";

/// Reports why the router is not ready, if the letter of its VM does not say enough.
pub(crate) fn not_ready(cx: &Cx, router: &mut Router, reason: &str, message: impl Into<String>) {
    router.status.told = true;
    let conditions = &mut router.status.conditions;
    conditions.set(cx.now(), READY, ConditionStatus::False, reason, message);
}

/// Reports why the router is not ready because of an error, with a warning Event.
pub(crate) fn not_ready_with_event(cx: &Cx, router: &mut Router, reason: &str, message: &str) {
    cx.event(EventType::Warning, reason, message);
    not_ready(cx, router, reason, message);
}

/// Reports that the state could not be executed. While that continues nothing more is written, even if the messages
/// differ.
pub(crate) fn stumbled(cx: &Cx, router: &mut Router, failure: &Failure) {
    let message = format!("{}: {}", failure.code.as_str(), failure.message);
    let (conditions, is) = (&mut router.status.conditions, ConditionStatus::Unknown);
    if conditions.announce(cx.now(), READY, is, LOOK_FAILED, &message) {
        cx.event(EventType::Warning, LOOK_FAILED, message);
    }
}

/// Publishes what the policy believes of the VM.
pub(crate) fn conclude(cx: &Cx, router: &mut Router) {
    let status = &mut router.status;
    let Some(state) = status.machine_state else { return };
    status.neutron_status = Some(match status.vm {
        Vm::Down | Vm::Gone => NeutronStatus::Down,
        Vm::Booting | Vm::Up | Vm::RestartNeeded | Vm::HotplugNeeded => NeutronStatus::Build,
        Vm::Configured => NeutronStatus::Active,
        Vm::Error => NeutronStatus::Error,
    });
    let lost = matches!(status.vm, Vm::Down | Vm::RestartNeeded | Vm::Error);
    let says_why = |ready: &Condition| ready.status == ConditionStatus::False && !ready.message.is_empty();
    let explained = status.conditions.get(READY).is_some_and(says_why);
    // The reason was already reported, in this pass or before.
    if std::mem::take(&mut status.told) || (lost && explained) {
        return;
    }
    let (is, reason) = match (state, status.vm) {
        (State::StopVm | State::RebuildVm, _) => (ConditionStatus::False, "Stopping".to_owned()),
        (_, Vm::Configured) => (ConditionStatus::True, "Configured".to_owned()),
        (_, vm) => (ConditionStatus::False, format!("{vm:?}")),
    };
    status.conditions.set(cx.now(), READY, is, &reason, "");
}
