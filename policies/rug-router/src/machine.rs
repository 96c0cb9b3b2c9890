//! Transitions between states, and what several states do.

use polity_sdk::cloud::router::{Instance, instance, resource};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::letters::{Action, State, Vm};
use crate::object::Router;

impl Router {
    /// Takes an edge, and forgets what only the old state needed. The new state is executed at once, or, where the
    /// machine yields, when there is something to do.
    pub(crate) fn take(&mut self, cx: &Cx, edge: &str, to: State) -> Next {
        cx.note(edge);
        let status = &mut self.status;
        let from = status.machine_state.replace(to);
        if to != State::Config {
            status.push = None;
        }
        if from != Some(to) {
            status.plugging = false;
            status.plug_since = None;
        }
        if to == State::CreateVm && status.action == Action::Rebuild {
            // The rebuild is complete except for the creation of a VM.
            status.action = Action::Create;
        }
        // In CALC_ACTION the machine yields. Without events in the queue, the next thing to do is the poll.
        if to != State::CalcAction || !self.status.queue.is_empty() {
            return Next::after(Duration::ZERO);
        }
        let period = cx.config().health_check_period.into();
        self.status.next_poll = Some(cx.now() + period);
        Next::settled_for(period)
    }

    /// Takes an edge. The new state is executed after a short time.
    pub(crate) fn take_slowly(&mut self, cx: &Cx, edge: &str, to: State) -> Next {
        let _ = self.take(cx, edge, to);
        Next::after(cx.config().retry_delay)
    }

    /// Takes an edge because of a failure. The retry policy decides when the new state is executed.
    pub(crate) fn take_failed(&mut self, cx: &Cx, edge: &str, to: State, failure: Failure) -> Next {
        let _ = self.take(cx, edge, to);
        Next::failed(RetryClass::Short, failure)
    }

    /// Puts the action back to the front of the queue, because it is not complete.
    pub(crate) fn put_back(&mut self) {
        let (action, queue) = (self.status.action, &mut self.status.queue);
        if action != Action::Delete && queue.first() != Some(&action) {
            queue.insert(0, action);
        }
    }

    /// Looks for the router's VM and records its id. Without a usable VM it returns the letter that says why.
    pub(crate) async fn look(&mut self, cx: &Cx) -> Result<Result<Instance, Vm>, Failure> {
        let name = &self.metadata.name;
        let (resource, instance) = join!(cx.ask(resource(name)), cx.ask(instance(self.named())));
        if resource.found()?.is_none() {
            return Ok(Err(Vm::Gone));
        }
        let instance = instance.found()?;
        self.status.instance = instance.as_ref().map(|instance| instance.id.clone());
        Ok(instance.ok_or(Vm::Down))
    }
}
