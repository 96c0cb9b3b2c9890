//! CALC_ACTION and CLEAR_ERROR (RUG-02 to RUG-07, RUG-27, RUG-X01 to RUG-X03).

use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};
use crate::object::Router;
use crate::queue::coalesce;
use crate::{Cx, events};

/// Makes one action of the events in the queue, and goes to the state that performs it.
pub(crate) fn choose(cx: &Cx, router: &mut Router) -> Next {
    let status = &mut router.status;
    if status.queue.is_empty() {
        // Nothing happened: the pass has another cause, such as a restart.
        return Next::settled_for(events::remaining(cx, router));
    }
    status.action = coalesce(status.action, &mut status.queue);
    if status.vm == Vm::Error {
        return given_up(cx, router);
    }
    let (edge, to) = match (router.status.action, router.status.vm) {
        (_, Vm::Gone) | (Action::Delete, _) => ("RUG-06", State::StopVm),
        (Action::Rebuild, _) => ("RUG-05", State::RebuildVm),
        (_, Vm::Booting) => ("RUG-04", State::CheckBoot),
        (_, Vm::Down) => ("RUG-03", State::CreateVm),
        (_, Vm::Up | Vm::Configured) => ("RUG-02", State::Alive),
        (_, Vm::RestartNeeded | Vm::HotplugNeeded | Vm::Error) => ("RUG-X03", State::Alive),
    };
    router.take(cx, edge, to)
}

/// Handles a VM that was booted too often. A poll does nothing. Other actions wait for the cool-down, except for a
/// deletion, which boots nothing.
fn given_up(cx: &Cx, router: &mut Router) -> Next {
    let action = router.status.action;
    if action == Action::Poll {
        return router.take(cx, "RUG-X01", State::CalcAction);
    }
    let cooldown = cx.config().error_state_cooldown.into();
    let until = router.status.last_error_time.unwrap_or_default() + cooldown;
    let remaining = until.since(cx.now()).min(cooldown);
    if action != Action::Delete && !remaining.is_zero() {
        router.put_back();
        let _ = router.take(cx, "RUG-X02", State::CalcAction);
        return Next::after(remaining);
    }
    router.take(cx, "RUG-07", State::ClearError)
}

/// Forgets the error. The machine continues without a pause: the action is in the queue again.
pub(crate) fn clear_error(cx: &Cx, router: &mut Router) -> Next {
    router.status.boot_attempts = 0;
    router.status.vm = Vm::Down;
    router.put_back();
    router.take(cx, "RUG-27", State::CalcAction)
}
