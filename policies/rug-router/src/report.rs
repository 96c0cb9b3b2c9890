//! What people and the network service are told.

use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{State, Vm};
use crate::object::{NeutronStatus, Router};

/// The condition: the VM is alive and configured.
const READY: &str = "Ready";
/// The reason of what could not be looked at or done in a pass.
pub(crate) const LOOK_FAILED: &str = "LookFailed";
/// The condition, only where it is false: a port is not the router's to have.
pub(crate) const PORTS_PLUGGED: &str = "PortsPlugged";
/// The condition, only where it is false: a rebuild cannot begin.
pub(crate) const REBUILD_TAKEN: &str = "RebuildTaken";
/// The condition, only where it is true: the router is left alone.
pub(crate) const DEBUGGING: &str = "Debugging";

/// Why the router is not ready: more than the letter of its VM can say.
pub(crate) fn not_ready(cx: &Cx, router: &mut Router, reason: &str, message: impl Into<String>) {
    router.status.told = true;
    let conditions = &mut router.status.conditions;
    conditions.set(cx.now(), READY, ConditionStatus::False, reason, message);
}

/// The same, of something that went wrong.
pub(crate) fn trouble(cx: &Cx, router: &mut Router, reason: &str, message: &str) {
    cx.event(EventType::Warning, reason, message);
    not_ready(cx, router, reason, message);
}

/// The state could not be executed. While that goes on nothing more is written, whatever the messages say.
pub(crate) fn stumbled(cx: &Cx, router: &mut Router, failure: &Failure) {
    let message = format!("{}: {}", failure.code.as_str(), failure.message);
    let (conditions, is) = (&mut router.status.conditions, ConditionStatus::Unknown);
    if conditions.announce(cx.now(), READY, is, LOOK_FAILED, &message) {
        cx.event(EventType::Warning, LOOK_FAILED, message);
    }
}

/// Writes down what is believed, for everybody.
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
    // What made it so is said already, now or before.
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
