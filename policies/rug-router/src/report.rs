//! What people and the network service are told.

use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{State, Vm};
use crate::object::{NeutronStatus, Router};

/// The condition: the VM is alive and configured.
const READY: &str = "Ready";
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

/// The state could not be executed.
pub(crate) fn stumbled(cx: &Cx, router: &mut Router, failure: &Failure) {
    let message = format!("{}: {}", failure.code.as_str(), failure.message);
    let conditions = &mut router.status.conditions;
    conditions.set(cx.now(), READY, ConditionStatus::Unknown, "LookFailed", message);
}

/// Writes down what is believed, for everybody.
pub(crate) fn conclude(cx: &Cx, router: &mut Router) {
    let status = &mut router.status;
    let Some(state) = status.machine_state else {
        return;
    };
    status.neutron_status = Some(match status.vm {
        Vm::Down | Vm::Gone => NeutronStatus::Down,
        Vm::Booting | Vm::Up | Vm::RestartNeeded | Vm::HotplugNeeded => NeutronStatus::Build,
        Vm::Configured => NeutronStatus::Active,
        Vm::Error => NeutronStatus::Error,
    });
    if std::mem::take(&mut status.told) {
        return;
    }
    let stopping = matches!(state, State::StopVm | State::RebuildVm);
    let before = status.conditions.get(READY);
    let explained =
        before.is_some_and(|ready| ready.status == ConditionStatus::False && !ready.message.is_empty());
    let (is, reason) = match status.vm {
        // What made it so is said already.
        Vm::Down | Vm::RestartNeeded | Vm::Error if explained => return,
        _ if stopping => (ConditionStatus::False, "Stopping"),
        Vm::Configured => (ConditionStatus::True, "Configured"),
        Vm::Down => (ConditionStatus::False, "Down"),
        Vm::Booting => (ConditionStatus::False, "Booting"),
        Vm::Up => (ConditionStatus::False, "Up"),
        Vm::RestartNeeded => (ConditionStatus::False, "RestartNeeded"),
        Vm::HotplugNeeded => (ConditionStatus::False, "HotplugNeeded"),
        Vm::Gone => (ConditionStatus::False, "Gone"),
        Vm::Error => (ConditionStatus::False, "Error"),
    };
    status.conditions.set(cx.now(), READY, is, reason, "");
}
