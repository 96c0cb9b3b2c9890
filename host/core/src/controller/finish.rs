//! The end of a pass: stores the state for the next pass, sets its time, and records this one.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{KeyState, WakeOn};
use super::passes::RunningPass;
use super::{Controller, EventWrite, Guard, Output};
use crate::call::{Scope, Write};
use crate::contract::{Event, EventType, Next};
#[cfg(feature = "simulation")]
use crate::key::Key;
use crate::reconcile::{AnswerDelta, CLUSTER_LONGEST, Frame, MESSAGE, PassResult};
use crate::record::{Outcome, PassRecord};
use crate::time::Boot;

/// The wait of a key whose pass ended in a defect of the host.
const AFTER_DEFECT: Duration = Duration::from_mins(1);

impl Controller {
    /// Stores what the next pass needs, releases the locks and the memory of this pass, and records it.
    pub(super) fn finish(&mut self, mut running: RunningPass, finished: PassResult) {
        let frame = &running.frame;
        let (key, outcome) = (frame.key.clone(), finished.ended.outcome.clone());
        let busy = running.work.busy_locks();
        self.unlock(frame.id);
        self.cancel_calls(frame.id);
        self.keys.queue.passed(&running.turn_of);
        let health = self.health.entry(key.binding.clone()).or_default();
        health.passes += 1;
        health.discarded += u64::from(matches!(outcome, Outcome::Discarded(_)));
        let looked_at = std::mem::take(&mut running.work.looked_at);
        self.forget_answers(running.frame.id, &looked_at);
        let wait = self.schedule(&mut running, &finished);
        #[cfg(feature = "simulation")]
        self.misbehave(&mut running, &outcome);
        self.depends_no_more(&key, &looked_at);
        self.announce(&running, &finished);
        let RunningPass { frame, work, .. } = running;
        self.out.push(Output::Recorded(Box::new(PassRecord {
            pass: frame.id,
            kind: frame.binding.spec.governs.kind(),
            binding: frame.binding.digest.clone(),
            uid: frame.uid().to_owned(),
            started: frame.started,
            queued: frame.queued,
            ended: self.shared.now,
            object: frame.snapshot.as_ref().map(|object| object.json().clone()),
            causes: frame.causes,
            attempt: frame.attempt,
            roles: work.roles,
            outcome: outcome.clone(),
            writes: work.writes,
            next: finished.ended.next,
            retry: finished.retry,
            wait,
            shortened: false,
            key: frame.key,
        })));
        if !self.keys.states.contains_key(&key) {
            self.out.push(Output::Forgotten(key.clone()));
        }
        self.requeue_if_changed(&key, uses_answers(&outcome));
        self.reschedule_what_ended_late(&key, &frame.binding);
        self.wait_for_locks(&key, busy);
    }

    /// Sets the time of the next pass and which changes end the wait early. Returns the wait, if there is one.
    fn schedule(&mut self, running: &mut RunningPass, finished: &PassResult) -> Option<Duration> {
        let RunningPass { frame, work, .. } = running;
        let outcome = &finished.ended.outcome;
        self.keys.orphans.remove(&frame.key);
        let state = self.keys.states.get_mut(&frame.key)?;
        state.running = None;
        // The pass took these two out of the state of its key when it started. They go back whatever the outcome is.
        state.histories = std::mem::take(&mut work.histories);
        state.written = std::mem::take(&mut work.written);
        state.freshness.note(work);
        if matches!(outcome, Outcome::LeaseLost | Outcome::Stopped) {
            return None;
        }
        let own = if self.shared.guards.stand(Guard::OwnWritesEnqueueNothing) {
            &work.current
        } else {
            &frame.snapshot
        };
        state.seen = finished.ended.unseen.clone().or_else(|| own.clone());
        if outcome.is_concluded() {
            state.faults = 0;
        }
        if uses_answers(outcome) {
            let used: Arc<[_]> = std::mem::take(&mut work.dependencies).into_iter().collect();
            state.deltas = used.iter().map(|(_, dependency)| dependency.delta).collect();
            state.dirty = std::mem::take(&mut work.dirty);
            let is_used = |scope: &Scope| used.iter().any(|(_, dependency)| dependency.scope == *scope);
            state.dirty.retain(is_used);
            state.changed_by = work.changed_by.take();
            let old = std::mem::replace(&mut state.last.used, used);
            // A key that came back during its pass may be of another tenant now.
            let tenant_queue = state.tenant_queue.clone();
            self.reindex(&frame.key, &tenant_queue, &old);
        }
        self.follow_relations(frame);
        let state = self.keys.states.get_mut(&frame.key)?;
        let mut wait = state.ends(finished, frame.started.boot);
        let is_ladder = *outcome == Outcome::Faulted && finished.retry.is_none();
        if is_ladder && !self.shared.guards.stand(Guard::FaultsBackOff) {
            wait = Some(Duration::from_millis(1));
        }
        state.retry = finished
            .waited
            .as_ref()
            .map(|(_, request)| (self.shared.now.boot, Box::new(request.clone())));
        if let Some(wait) = wait {
            // A policy may return any number. The addition saturates, so a huge wait becomes a timer that is never
            // due.
            let until = if self.shared.guards.stand(Guard::WaitsLastTheirTime) {
                wait
            } else {
                wait / 2
            };
            self.keys
                .queue
                .push_at(self.shared.now.boot + until, frame.key.clone());
        }
        wait
    }

    /// Marks an answer as changed if the pass changed the relation of its primary to the objects in that answer. The
    /// next check then requeues the key.
    fn follow_relations(&mut self, frame: &Frame) {
        let Some(state) = self.keys.states.get(&frame.key) else {
            return;
        };
        let changed = self.relations_changed(&state.last.used, frame.snapshot.as_ref(), state.seen.as_ref());
        if let Some(state) = self.keys.states.get_mut(&frame.key) {
            let all = state
                .deltas
                .iter_mut()
                .zip(changed)
                .filter(|(_, changed)| *changed);
            all.for_each(|(known, _)| *known = AnswerDelta::UNKNOWN);
        }
    }

    /// Breaks a rule at the end of a pass whose guard the simulation took away.
    #[cfg(feature = "simulation")]
    fn misbehave(&mut self, running: &mut RunningPass, outcome: &Outcome) {
        if !self.shared.guards.stand(Guard::RecordingsAreWhole) {
            let roles = running.work.roles.iter_mut();
            roles.for_each(|role| drop(role.journal.pop()));
        }
        if *outcome == Outcome::Faulted && !self.shared.guards.stand(Guard::FaultsDelayNoOther) {
            let faulted = &running.frame.key;
            let of_binding = |key: &&Key| key.binding == faulted.binding && *key != faulted;
            for key in self.keys.states.keys().filter(of_binding) {
                if let Some(at) = self.keys.queue.deadline(key) {
                    self.keys.queue.cancel(key);
                    self.keys.queue.push_at(at + AFTER_DEFECT, key.clone());
                }
            }
        }
    }

    /// Has the Events of a pass written, without those that the last pass of this key also had. So an Event is written when a
    /// state begins, and not once a pass. One that the lease does not cover any more is not worth a wait.
    fn announce(&mut self, running: &RunningPass, finished: &PassResult) {
        let RunningPass { frame, work, .. } = running;
        let mut events = finished.ended.events.clone();
        match &finished.ended.outcome {
            Outcome::Published | Outcome::Denied | Outcome::Released | Outcome::Faulted => {}
            Outcome::Failed(failure) => events.push(Event {
                kind: EventType::Warning,
                reason: "PublicationFailed".into(),
                message: failure.to_string().chars().take(MESSAGE).collect(),
            }),
            _ => return,
        }
        let Some(state) = self.keys.states.get_mut(&frame.key) else {
            return;
        };
        let last = std::mem::replace(&mut state.events, events.clone());
        let covered = self.shared.lease.begin_by(self.shared.now, CLUSTER_LONGEST);
        let Some((current, begin_by)) = work.current.as_ref().zip(covered) else {
            return;
        };
        for event in events.into_iter().filter(|event| !last.contains(event)) {
            self.out.push(Output::Event(Box::new(EventWrite {
                tenant_queue: frame.tenant_queue.clone(),
                binding: frame.key.binding.clone(),
                begin_by,
                write: Write::Event {
                    object: current.reference(),
                    uid: current.uid().to_owned(),
                    event,
                    now: self.shared.now.unix,
                },
            })));
        }
    }
}

/// Whether the key depends on the answers of a pass that ended like this. Those of a conclusion that could not be
/// written count, too: a change of one of them must requeue the key.
fn uses_answers(outcome: &Outcome) -> bool {
    outcome.is_concluded() || matches!(outcome, Outcome::Failed(_))
}

impl KeyState {
    /// Counts failures and faults. Returns the wait until the next pass, or `None` if only a change starts one.
    fn ends(&mut self, finished: &PassResult, started: Boot) -> Option<Duration> {
        let PassResult { ended, waited, .. } = finished;
        if waited
            .as_ref()
            .is_some_and(|(_, request)| request.failure.is_some())
        {
            self.last.failing_since.get_or_insert(started);
            let row = match ended.outcome {
                Outcome::Faulted => &mut self.faults,
                _ => &mut self.attempt,
            };
            *row = row.saturating_add(1);
        } else if ended.outcome.is_concluded() {
            (self.attempt, self.last.failing_since) = (0, None);
        }
        self.wakes_on = match (&ended.outcome, waited) {
            // A discarded pass worked from an outdated snapshot. Any change may bring the current state, so any
            // change requeues the key.
            (Outcome::Discarded(_), _) => WakeOn::AnyChange,
            (_, Some((delay, _))) => WakeOn::during(*delay),
            _ => WakeOn::AnyChange,
        };
        self.last.waited = waited.as_ref().map(|(delay, _)| delay.longest());
        match (waited, &ended.outcome, &ended.next) {
            (Some((delay, _)), _, _) => Some(delay.longest()),
            (None, Outcome::Bug(_), _) => Some(AFTER_DEFECT),
            (None, _, Some(Next::Settled(recheck))) => recheck.map(Duration::from_millis),
            (None, _, Some(Next::After(wait))) => Some(Duration::from_millis(*wait)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Code, Failure, RetryClass};
    use crate::controller::rate_limit::Bucket;
    use crate::reconcile::{
        PassEnd,
        fixture::{ms, retry_request},
    };
    use crate::record::Discard;
    use crate::retry::Delay;

    fn key() -> KeyState {
        KeyState::new("t".into(), "l".into(), None, Bucket::full(1, Boot(0)))
    }

    fn ended(next: Next) -> PassResult {
        PassResult {
            ended: PassEnd {
                next: Some(next),
                ..PassEnd::plain(Outcome::Published)
            },
            ..PassResult::plain(Outcome::Published)
        }
    }

    fn waited(delay: Delay, outcome: Outcome) -> PassResult {
        let failure = matches!(outcome, Outcome::Failed(_) | Outcome::Faulted);
        let mut request = retry_request(RetryClass::Short, 0);
        request.failure = failure.then(|| Failure::new(Code::Unavailable, "cut"));
        PassResult {
            waited: Some((delay, request)),
            ..PassResult::plain(outcome)
        }
    }

    #[test]
    fn the_end_of_a_pass_says_when_the_next_one_comes_and_what_brings_it_earlier() {
        use WakeOn::{AnyChange, News};
        let failed = || Outcome::Failed(Failure::new(Code::Unavailable, "cut"));
        let discarded = Outcome::Discarded(Discard::Changed);
        for (finished, next, waiting) in [
            (ended(Next::Settled(None)), None, AnyChange),
            (ended(Next::Settled(Some(7))), Some(ms(7)), AnyChange),
            (ended(Next::After(8)), Some(ms(8)), AnyChange),
            (
                PassResult::plain(Outcome::Bug("x".into())),
                Some(AFTER_DEFECT),
                AnyChange,
            ),
            (waited(Delay::After(ms(9)), Outcome::Faulted), Some(ms(9)), News),
            (waited(Delay::After(ms(9)), failed()), Some(ms(9)), News),
            (waited(Delay::OnChange(ms(9)), failed()), Some(ms(9)), AnyChange),
            (waited(Delay::After(ms(9)), discarded), Some(ms(9)), AnyChange),
        ] {
            let mut state = key();
            assert_eq!(state.ends(&finished, Boot(5)), next, "{finished:?}");
            assert_eq!(state.wakes_on, waiting, "{finished:?}");
        }
    }

    #[test]
    fn failures_in_a_row_are_counted_until_a_pass_concludes() {
        let mut state = key();
        let failed = Outcome::Failed(Failure::new(Code::Unavailable, "cut"));
        for started in [5, 6] {
            state.ends(&waited(Delay::After(ms(9)), failed.clone()), Boot(started));
        }
        let counts = |state: &KeyState| (state.attempt, state.last.failing_since, state.last.waited);
        assert_eq!(counts(&state), (2, Some(Boot(5)), Some(ms(9))));
        for started in [7, 8] {
            state.ends(&waited(Delay::After(ms(9)), Outcome::Faulted), Boot(started));
        }
        assert_eq!((state.attempt, state.faults), (2, 2), "a fault is another matter");
        assert_eq!(state.last.failing_since, Some(Boot(5)));
        state.ends(&ended(Next::Settled(None)), Boot(9));
        assert_eq!(counts(&state), (0, None, None));
    }
}
