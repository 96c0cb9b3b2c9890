//! Passes in flight: hands each event to the phase of its pass and performs the commands that the phase returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::keys::KeyState;
use super::{Controller, Guard, LastFault, Output};
use crate::binding::Binding;
use crate::call::Scope;
use crate::key::{Key, ObjectKey, PassId};
use crate::object::Object;
use crate::reconcile::{
    Command, Context, Flow, Frame, NextPhase, PassEnd, PassResult, Phase, PhaseEvent, Report, Work, end,
    primary_scope, primary_scopes, start,
};
use crate::record::Outcome;
use crate::shared::cache::{Change, Lookup};
use crate::shared::calls::UnsentCall;
use crate::shared::terms::Receiver;
use crate::time::Now;

/// The largest number of ungranted requests, and of fields that were not kept, in a binding's health. Without a limit
/// a policy could fill the memory with requests that differ.
const TOLD: usize = 16;

/// A pass in flight.
#[derive(Debug)]
pub(super) struct RunningPass {
    pub(super) frame: Frame,
    pub(super) work: Work,
    /// The tenant queue whose turn it has.
    pub(super) turn_of: Arc<str>,
    /// The defects of the host that the pass has met.
    defects: u32,
}

impl RunningPass {
    /// A pass of a key. It takes out of the state of its key what is handed back when it ends.
    fn begin(
        id: PassId,
        (key, turn_of): (&Key, &Arc<str>),
        state: &mut KeyState,
        binding: Arc<Binding>,
        snapshot: Option<Object>,
        now: Now,
    ) -> Self {
        state.running = Some(id);
        state.retry = None;
        let work = Work {
            current: snapshot.clone(),
            histories: std::mem::take(&mut state.histories),
            written: std::mem::take(&mut state.written),
            ..Work::default()
        };
        let frame = Frame {
            id,
            key: key.clone(),
            tenant: state.tenant.clone(),
            tenant_queue: state.tenant_queue.clone(),
            binding,
            started: now,
            queued: now.boot - state.queued.take().unwrap_or(now.boot),
            causes: std::mem::take(&mut state.causes),
            attempt: state.attempt,
            faults: state.faults,
            slowed: std::mem::take(&mut state.slowed),
            snapshot,
            last: state.last.clone(),
        };
        RunningPass {
            frame,
            work,
            turn_of: turn_of.clone(),
            defects: 0,
        }
    }

    pub(super) fn binding(&self) -> &Arc<Binding> {
        &self.frame.binding
    }
}

impl Controller {
    /// The bindings whose primaries are not known yet: their watch has not listed, or has failed since.
    pub fn unsynced(&self) -> impl Iterator<Item = &str> {
        let unsynced = |binding: &&Arc<Binding>| {
            let scopes = primary_scopes(binding);
            scopes.iter().any(|scope| !self.shared.cache.is_synced(scope))
        };
        let bindings = self.shared.bindings.values().filter(unsynced);
        bindings.map(|binding| binding.name.as_str())
    }

    /// Starts a pass of a key from a snapshot of the cache, unless the key has to wait: for its watch, for a read of
    /// a stale primary, or for its rate limit. Returns whether there is a pass that has this turn.
    pub(super) fn start(&mut self, key: &Key, turn_of: &Arc<str>) -> bool {
        let Some(binding) = self.shared.bindings.get(&key.binding).cloned() else {
            return false;
        };
        let place = ObjectKey::from(key);
        let snapshot = match self.shared.cache.get(&primary_scope(&binding, &place), &place) {
            Lookup::Known(object) => object,
            // The key keeps its causes. It is enqueued when the watch lists.
            Lookup::Unsynced | Lookup::Unwatched => return false,
        };
        if snapshot.is_none() && binding.spec.governs.name.is_none() {
            self.forget(key);
            return false;
        }
        if snapshot
            .as_ref()
            .is_some_and(|known| self.refreshes(key, &binding, known))
        {
            return false;
        }
        let limits = &binding.spec.limits;
        let Some(state) = self.keys.states.get_mut(key) else {
            return false;
        };
        if let Err(wait) = state
            .bucket
            .take(limits.burst, limits.refill, self.shared.now.boot)
        {
            // The wait for the bucket is no wait in the queue.
            (state.slowed, state.queued) = (true, None);
            let at = self.shared.now.boot + wait;
            self.keys.queue.push_at(at, key.clone());
            return false;
        }
        self.passes.last += 1;
        let id = PassId(self.passes.last);
        let running = Box::new(RunningPass::begin(
            id,
            (key, turn_of),
            state,
            binding,
            snapshot,
            self.shared.now,
        ));
        self.drive(Flow::Enter(start(&running.frame)), running);
        true
    }

    /// Hands an event to a pass. Events of a pass that has ended are dropped.
    pub(super) fn on_event(&mut self, pass: PassId, event: PhaseEvent) {
        if let Some((phase, mut running)) = self.passes.in_flight.remove(&pass) {
            let flow = self.handle(&mut running, |context| phase.on_event(event, context));
            self.drive(flow, running);
        }
    }

    /// Enters the phases that follow, until the pass waits or ends.
    fn drive(&mut self, mut flow: Flow<Phase>, mut running: Box<RunningPass>) {
        loop {
            flow = match flow {
                Flow::Wait(phase) => {
                    self.passes.in_flight.insert(running.frame.id, (phase, running));
                    return;
                }
                Flow::Again(phase) => self.handle(&mut running, |context| {
                    phase.on_event(PhaseEvent::Entered, context)
                }),
                Flow::Enter(next) => {
                    self.handle(&mut running, |context| Flow::Again(Phase::of(next, context)))
                }
                Flow::End(ended) => {
                    self.cancel_calls(running.frame.id);
                    self.handle(&mut running, |context| end(ended, context))
                }
                Flow::Bug(what) => self.defect(&mut running, what),
                Flow::Finish(finished) => return self.finish(*running, finished),
            };
        }
    }

    /// Breaks the rule that a pass keeps its binding, if the simulation took its guard away.
    #[cfg(feature = "simulation")]
    fn rebind(&self, running: &mut RunningPass) {
        if !self.shared.guards.stand(Guard::PassesKeepTheirBinding)
            && let Some(binding) = self.shared.bindings.get(&running.frame.key.binding)
        {
            running.frame.binding = binding.clone();
        }
    }

    /// Calls a handler and performs its commands. A panic in the handler becomes a defect of this pass, so it harms
    /// no other pass. The commands of a handler that panicked are dropped.
    fn handle(
        &mut self,
        running: &mut RunningPass,
        handler: impl FnOnce(&mut Context<'_>) -> Flow<Phase>,
    ) -> Flow<Phase> {
        #[cfg(feature = "simulation")]
        self.rebind(running);
        let mut context = Context {
            view: &self.shared,
            frame: &running.frame,
            work: &mut running.work,
            commands: Vec::new(),
        };
        let handled = catch_unwind(AssertUnwindSafe(|| handler(&mut context)));
        let commands = context.commands;
        self.index_answers(running);
        match handled {
            Ok(flow) => {
                for command in commands {
                    self.perform(running, command);
                }
                flow
            }
            Err(panic) => Flow::Bug(format!("a panic: {}", message_of(&*panic))),
        }
    }

    /// Ends a pass that met a defect of the host. The first time, the pass publishes the defect on its object. A defect
    /// during that publication ends the pass, and one at its end ends it without a handler, so no defect is met forever.
    fn defect(&mut self, running: &mut RunningPass, what: String) -> Flow<Phase> {
        self.cancel_calls(running.frame.id);
        running.defects += 1;
        match running.defects {
            1 => Flow::Enter(NextPhase::PublishingDefect(what)),
            2 => Flow::End(PassEnd::plain(Outcome::Bug(what))),
            _ => Flow::Finish(PassResult::plain(Outcome::Bug(what))),
        }
    }

    /// Ends passes without a conclusion: those that `which` selects by whether a change of theirs is in flight.
    pub(super) fn interrupt_passes(&mut self, outcome: &Outcome, which: impl Fn(bool) -> bool) {
        let calls = &self.shared.calls;
        let ids = self.passes.in_flight.keys().copied();
        let ids = ids.map(|id| (id, calls.change_in_flight(id)));
        for (id, in_flight) in ids.filter(|(_, in_flight)| which(*in_flight)).collect::<Vec<_>>() {
            if let Some((phase, mut running)) = self.passes.in_flight.remove(&id) {
                self.cancel_calls(id);
                let RunningPass { frame, work, .. } = &mut *running;
                let finished = phase.interrupt(outcome.clone(), in_flight, frame, work);
                self.finish(*running, finished);
            }
        }
    }

    /// Performs one command of a handler.
    fn perform(&mut self, running: &mut RunningPass, command: Command) {
        let (id, binding) = (running.frame.id, &running.frame.key.binding);
        match command {
            Command::Call {
                slot,
                call,
                longest,
                terms,
            } => {
                let unsent = UnsentCall { call, longest, terms };
                let frame = &running.frame;
                self.call(
                    Receiver::Pass(id, slot),
                    (&frame.tenant_queue, &frame.binding),
                    unsent,
                );
            }
            Command::Watch(scope) => self.depend(&running.frame, scope),
            Command::AwaitList { slot, scope } => self.await_list(id, slot, scope),
            Command::Grow => self.grow(id, &running.frame.tenant_queue, &running.frame.binding),
            Command::Lock(name) => {
                self.shared.locks.take(binding, &running.frame.tenant, &name, id);
            }
            Command::Saw { objects, answers } => {
                let changes = objects
                    .iter()
                    .flat_map(|object| self.shared.cache.own_write(object));
                let changes: Vec<Change> = changes.collect();
                self.on_changes(&changes);
                self.note_read(running, &changes, answers.as_ref());
            }
            Command::Wrote { object, own } => {
                let changes = self.enter(&object);
                self.on_changes(&changes);
                self.note_write(running, &changes, &own);
            }
            Command::Gone { object, uid, own } => {
                let changes = self.shared.cache.own_delete(&object, &uid);
                self.on_changes(&changes);
                self.note_write(running, &changes, &own);
            }
            Command::Unlock => self.unlock(id),
            Command::Report(report) => self.report(&running.frame.key.clone(), report),
        }
    }

    fn enter(&mut self, object: &Object) -> Vec<Change> {
        if self.shared.guards.stand(Guard::OwnWritesEnterTheCache) {
            self.shared.cache.own_write(object)
        } else {
            Vec::new()
        }
    }

    fn depend(&mut self, frame: &Frame, scope: Scope) {
        if self.shared.cache.open(&scope) {
            self.shared.watches.open(&scope, &frame.tenant_queue);
            self.out.push(Output::Watch(scope.clone()));
        }
        let dependents = self.keys.wake_index.entry(scope).or_default();
        dependents.keys.insert(frame.key.clone());
    }

    /// Enters a report of a pass into the health of its binding.
    pub(super) fn report(&mut self, key: &Key, report: Report) {
        let health = self.health.entry(key.binding.clone()).or_default();
        match report {
            Report::Acted => health.acts += 1,
            Report::Faulted(fault) => {
                health.faults += 1;
                health.last_fault = Some(LastFault {
                    key: key.clone(),
                    fault,
                    at: self.shared.now.unix,
                });
            }
            Report::Clamped(what) => health.clamped = Some((key.clone(), what)),
            Report::NotKept(path) if health.not_kept.len() < TOLD => {
                health.not_kept.entry(path).or_insert_with(|| key.clone());
            }
            Report::Ungranted(what) if health.ungranted.len() < TOLD => {
                health.ungranted.insert(what.to_string());
            }
            Report::NotKept(_) | Report::Ungranted(_) => {}
        }
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_what_it_was_told() {
        assert_eq!(message_of(&"a text"), "a text");
        assert_eq!(message_of(&String::from("a longer one")), "a longer one");
        assert_eq!(message_of(&7), "without a message");
    }
}
