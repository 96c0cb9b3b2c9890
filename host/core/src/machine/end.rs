//! The end of a pass: what is remembered, when the next one comes, and the recording.

use super::call::{CLUSTER_LONGEST, Redecision, STEP_LONGEST};
use super::pass::{PassState, Purpose};
use super::publish::{kind_has_conditions, set_host_conditions};
use super::{KeyState, Machine, Output, Target, Waiting};
use crate::binding::{Binding, Limits};
use crate::call::{Call, Reply, Write};
use crate::contract::{Event, EventType, Failure, Next, RetryClass, Role, Trial};
use crate::fault::{Fault, FaultKind};
use crate::key::Key;
use crate::object::Object;
use crate::plan::{self, Part};
use crate::record::{Outcome, PassRecord, RetryRecord};
use crate::retry::{default_wait, seed};
use crate::tree::Tree;

impl Machine {
    /// Ends a pass. A retry policy may still have to say how long to wait.
    pub(super) fn end(&mut self, mut pass: Box<PassState>, outcome: Outcome) {
        if !matches!(outcome, Outcome::Published | Outcome::Denied | Outcome::Released) {
            self.cancel_calls(pass.id);
        }
        let (class, failure) = match (&outcome, &pass.next) {
            (
                Outcome::Published | Outcome::Denied | Outcome::Released,
                Some(Next::Retry { class, failure }),
            ) => (*class, failure.clone()),
            (Outcome::Discarded(_), _) => (RetryClass::Conflict, None),
            (Outcome::Failed(failure), _) => (RetryClass::Short, Some(failure.clone())),
            _ => return self.finish(pass, outcome, None),
        };
        let trial = self.trial(&pass, class, failure.as_ref());
        let Some(policy) = pass.binding.policy(Role::Retry).filter(|_| !self.cutting) else {
            let wait = default_wait(&trial);
            return self.finish(pass, outcome, Some((wait, trial)));
        };
        let call = Call::Decide {
            policy: policy.id.clone(),
            trial: trial.clone(),
            limits: pass.binding.spec.limits.clone(),
        };
        pass.publication
            .get_or_insert_with(super::publish::Publication::nothing)
            .outcome = outcome;
        pass.trial = Some(trial);
        self.emit(Target::Pass(pass.id, Purpose::Decide), call, STEP_LONGEST);
        self.suspend(pass);
    }

    /// The retry policy decided.
    pub(super) fn decided(&mut self, mut pass: Box<PassState>, reply: Reply) {
        let Some(trial) = pass.trial.take() else {
            return self.suspend(pass);
        };
        let outcome = pass
            .publication
            .as_ref()
            .map_or(Outcome::Published, |p| p.outcome.clone());
        let said = said(reply);
        if let Some(policy) = pass.binding.policy(Role::Retry) {
            pass.retry = Some(RetryRecord {
                policy: policy.id.clone(),
                trial: trial.clone(),
                answer: said.as_ref().ok().copied(),
                fault: said.as_ref().err().cloned(),
            });
        }
        let wait = match self.guards.retry_policies_decide {
            true => self.taken(&pass.key, &pass.binding.spec.limits, &trial, said),
            false => default_wait(&trial),
        };
        self.finish(pass, outcome, Some((wait, trial)));
    }

    /// How long a key waits after what its retry policy said. What is not taken as it was said is shown on the binding.
    fn taken(&mut self, key: &Key, limits: &Limits, trial: &Trial, said: Result<u64, Fault>) -> u64 {
        let health = self.health.entry(key.binding.clone()).or_default();
        let wait = match said {
            Ok(said) => {
                let (wait, wrong) = bounded(said, limits, trial);
                if let Some(wrong) = wrong {
                    health.clamped = Some((key.clone(), wrong));
                }
                wait
            }
            Err(fault) => {
                health.faults += 1;
                health.last_fault = Some((key.clone(), fault));
                default_wait(trial)
            }
        };
        wait.max(trial.retry_after.unwrap_or(0))
    }

    fn trial(&self, pass: &PassState, class: RetryClass, failure: Option<&Failure>) -> Trial {
        let state = self.keys.get(&pass.key);
        let attempt = failure.map_or(0, |_| state.map_or(0, |s| s.attempt));
        let since = state
            .and_then(|s| s.row_since)
            .map_or(0, |since| self.now.boot - since);
        let policy = pass.binding.policy(Role::Retry);
        Trial {
            class,
            code: failure.map(|f| f.code),
            attempt,
            since: if failure.is_some() { since } else { 0 },
            retry_after: failure.and_then(|f| f.retry_after),
            seed: seed(pass.uid(), attempt),
            config: policy.map_or_else(|| "null".into(), |p| p.config.clone()),
        }
    }

    /// Remembers what the next pass needs, releases what this one held, and records it.
    fn finish(&mut self, mut pass: Box<PassState>, outcome: Outcome, waited: Option<(u64, Trial)>) {
        self.permits.release(pass.id);
        if let Some(count) = self.in_flight.get_mut(&pass.line) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.in_flight.remove(&pass.line);
            }
        }
        let health = self.health.entry(pass.key.binding.clone()).or_default();
        health.passes += 1;
        health.discarded += u64::from(matches!(outcome, Outcome::Discarded(_)));
        let wait = self.schedule(&mut pass, &outcome, waited);
        if !self.guards.recordings_are_whole {
            pass.finished.iter_mut().for_each(|role| drop(role.journal.pop()));
        }
        if outcome == Outcome::Faulted && !self.guards.faults_delay_no_other {
            self.delay_others(&pass.key);
        }
        self.depends_no_more(&pass.key, &pass.asked);
        self.announce(&mut pass, &outcome);
        self.out.push(Output::Recorded(Box::new(PassRecord {
            pass: pass.id,
            kind: pass.binding.spec.governs.kind(),
            uid: pass.uid().to_owned(),
            started: pass.started,
            ended: self.now,
            causes: pass.causes.clone(),
            attempt: pass.attempt,
            object: pass.snapshot.as_ref().map(Object::json),
            roles: std::mem::take(&mut pass.finished),
            outcome: outcome.clone(),
            writes: std::mem::take(&mut pass.writes),
            next: pass.next.take(),
            retry: pass.retry.take(),
            wait,
            key: pass.key.clone(),
        })));
        if !self.keys.contains_key(&pass.key) {
            self.out.push(Output::Forgotten(pass.key.clone()));
        }
        self.look_again(&pass.key, matches!(outcome, Outcome::Discarded(_)));
        self.redecide_what_ended_late(&pass);
    }

    /// When the key passes next, and what ends its wait early.
    fn schedule(
        &mut self,
        pass: &mut PassState,
        outcome: &Outcome,
        waited: Option<(u64, Trial)>,
    ) -> Option<u64> {
        let now = self.now.boot;
        self.orphans.remove(&pass.key);
        let state = self.keys.get_mut(&pass.key)?;
        state.running = None;
        let concluded = matches!(outcome, Outcome::Published | Outcome::Denied | Outcome::Released);
        if matches!(outcome, Outcome::LeaseLost | Outcome::Stopped) {
            return None;
        }
        let unseen = pass.publication.as_mut().and_then(|p| p.unseen.take());
        let own = match self.guards.own_writes_wake_nothing {
            true => &pass.current,
            false => &pass.snapshot,
        };
        state.seen = unseen.or_else(|| own.clone());
        if concluded {
            state.faults = 0;
            let used = std::mem::take(&mut pass.deps).into_iter().collect();
            let old = std::mem::replace(&mut state.deps, used);
            self.reindex(&pass.key, &old);
        }
        let state = self.keys.get_mut(&pass.key)?;
        let failed = waited.as_ref().is_some_and(|(_, trial)| trial.code.is_some());
        if failed {
            state.row_since.get_or_insert(pass.started.boot);
            state.attempt = state.attempt.saturating_add(1);
        } else if concluded {
            (state.attempt, state.row_since) = (0, None);
        }
        state.waiting = match waited.is_some() || *outcome == Outcome::Faulted {
            true => Waiting::ForSomethingNew,
            false => Waiting::ForAnyChange,
        };
        let wait = match (&waited, outcome, &pass.next) {
            (Some((wait, _)), _, _) => Some(*wait),
            (None, Outcome::Faulted, _) => {
                state.faults = state.faults.saturating_add(1);
                match self.guards.faults_back_off {
                    true => Some(quarantine(state, pass.uid())),
                    false => Some(1),
                }
            }
            (None, _, Some(Next::Settled(recheck))) => *recheck,
            (None, _, Some(Next::After(wait))) => Some(*wait),
            _ => None,
        };
        // A discarded pass saw an old world: it does not wait for something new, but for the world to arrive.
        if matches!(outcome, Outcome::Discarded(_)) {
            state.waiting = Waiting::ForAnyChange;
        }
        state.trial = waited.map(|(_, trial)| (now, Box::new(trial)));
        if let Some(wait) = wait {
            // A policy can say any number: a wait past the end of time has no end.
            self.queue.push_at(now.saturating_add(wait), pass.key.clone());
        }
        wait
    }

    /// What a fault must not do, for tests of the simulation: all keys of its binding wait longer.
    fn delay_others(&mut self, faulted: &Key) {
        let of_binding = |key: &&Key| key.binding == faulted.binding && *key != faulted;
        for key in self.keys.keys().filter(of_binding) {
            if let Some(at) = self.queue.deadline(key) {
                self.queue.cancel(key);
                self.queue.push_at(at + 60_000, key.clone());
            }
        }
    }

    /// Events on transitions: those that the last pass of this key did not also have. A fault also becomes a condition.
    fn announce(&mut self, pass: &mut PassState, outcome: &Outcome) {
        let mut events = pass
            .publication
            .as_mut()
            .map(|p| std::mem::take(&mut p.events))
            .unwrap_or_default();
        let fault = pass.finished.iter().find_map(|role| role.fault.clone());
        if let (Outcome::Faulted, Some(fault)) = (outcome, &fault) {
            events = vec![Event {
                kind: EventType::Warning,
                reason: "PolicyFault".into(),
                message: format!("{fault}").chars().take(1_024).collect(),
            }];
        }
        if let Outcome::Failed(failure) = outcome {
            events.push(Event {
                kind: EventType::Warning,
                reason: "PublicationFailed".into(),
                message: failure.to_string().chars().take(1_024).collect(),
            });
        }
        let Some(state) = self.keys.get_mut(&pass.key) else {
            return;
        };
        if !matches!(
            outcome,
            Outcome::Published | Outcome::Denied | Outcome::Released | Outcome::Faulted | Outcome::Failed(_)
        ) {
            return;
        }
        let last = std::mem::replace(&mut state.events, events.clone());
        let Some(current) = pass.current.clone() else {
            return;
        };
        for event in events.into_iter().filter(|event| !last.contains(event)) {
            if self.lease.covers(self.now, CLUSTER_LONGEST) {
                let (object, uid) = (current.reference(), current.uid().to_owned());
                let write = Write::Event {
                    object,
                    uid,
                    event,
                    now: self.now.unix,
                };
                self.emit(Target::Nobody, Call::Write(write), CLUSTER_LONGEST);
            }
        }
        if let (Outcome::Faulted, Some(fault)) = (outcome, fault) {
            self.mark_quarantined(pass, &current, fault.to_string());
        }
    }

    fn mark_quarantined(&mut self, pass: &PassState, current: &Object, message: String) {
        let mut desired = Tree::new(current.value().clone());
        let conditions = [("polity.dev/Quarantined", message)];
        let supported = kind_has_conditions(&pass.binding);
        set_host_conditions(
            &mut desired,
            current.value(),
            &conditions,
            supported,
            self.now.unix,
        );
        if !self.lease.covers(self.now, CLUSTER_LONGEST) {
            return;
        }
        if let Some(patch) = plan::write(Part::Status, current, desired.value()) {
            let subresource = Some("status".to_owned());
            let write = Write::Patch {
                object: current.reference(),
                subresource,
                patch,
            };
            self.emit(
                Target::Condition(pass.key.clone()),
                Call::Write(write),
                CLUSTER_LONGEST,
            );
        }
    }

    /// A condition of the host is written: no news to its key, nor to a pass that began meanwhile.
    pub(super) fn condition_written(&mut self, key: &Key, object: Object) {
        match self.keys.get_mut(key) {
            Some(state) if state.running.is_none() => {
                if let Some(seen) = state.seen.as_mut()
                    && seen.uid() == object.uid()
                    && seen.version() < object.version()
                {
                    *seen = object.clone();
                }
            }
            Some(state) => {
                let pass = state.running.and_then(|id| self.passes.get_mut(&id));
                // It was written on the version that the pass began with, or it would have met a conflict.
                if let Some(current) = pass.and_then(|pass| pass.current.as_mut())
                    && current.uid() == object.uid()
                    && current.version() < object.version()
                {
                    *current = object.clone();
                }
            }
            None => {}
        }
        let changes = self.cache.own_write(&object);
        self.changed(changes, Some(key));
    }

    /// A changed retry policy starts no pass: it is asked again with each waiting key's recorded outcome.
    pub(super) fn redecide(&mut self, binding: &Binding) {
        let of_binding = |key: &Key| *key.binding == *binding.name;
        let keys: Vec<Key> = self.keys.keys().filter(|key| of_binding(key)).cloned().collect();
        for key in keys {
            self.redecide_one(binding, key);
        }
    }

    /// A pass waits as the policy says that it began with. If that is another one by now, its key is one of those that
    /// wait while the policy changes.
    fn redecide_what_ended_late(&mut self, pass: &PassState) {
        let Some(binding) = self.bindings.get(&pass.key.binding).cloned() else {
            return;
        };
        if binding.policy(Role::Retry) != pass.binding.policy(Role::Retry) {
            self.redecide_one(&binding, pass.key.clone());
        }
    }

    fn redecide_one(&mut self, binding: &Binding, key: Key) {
        // A key with a cause has its turn coming for another reason.
        let waits = |state: &&KeyState| state.running.is_none() && state.causes.is_empty();
        let waiting = self.keys.get(&key).filter(waits);
        let Some((since, trial)) = waiting.and_then(|state| state.trial.clone()) else {
            return;
        };
        let Some(policy) = binding.policy(Role::Retry) else {
            return self.wait_instead(&key, since, default_wait(&trial));
        };
        let trial = Trial {
            config: policy.config.clone(),
            ..*trial
        };
        let call = Call::Decide {
            policy: policy.id.clone(),
            trial: trial.clone(),
            limits: binding.spec.limits.clone(),
        };
        let asked = Redecision {
            key,
            since,
            policy: policy.id.clone(),
            trial,
        };
        self.emit(Target::Redecide(Box::new(asked)), call, STEP_LONGEST);
    }

    /// What a retry policy says of a key that waits, unless it was asked about another wait, or is another one by now.
    pub(super) fn redecided(&mut self, asked: &Redecision, reply: Reply) {
        let Some(binding) = self.bindings.get(&asked.key.binding).cloned() else {
            return;
        };
        let policy = binding.policy(Role::Retry);
        let current = policy.is_some_and(|p| (&p.id, &p.config) == (&asked.policy, &asked.trial.config));
        let waits = self.keys.get(&asked.key).is_some_and(|state| {
            let same = |(since, trial): &(u64, Box<Trial>)| {
                (*since, trial.attempt) == (asked.since, asked.trial.attempt)
            };
            let waits = state.running.is_none() && state.causes.is_empty();
            waits && state.trial.as_ref().is_some_and(same)
        });
        if current && waits {
            let wait = self.taken(&asked.key, &binding.spec.limits, &asked.trial, said(reply));
            self.wait_instead(&asked.key, asked.since, wait);
        }
    }

    /// Moves the deadline of a key that waits.
    fn wait_instead(&mut self, key: &Key, since: u64, wait: u64) {
        if !self.queue.is_queued(key) {
            self.queue.cancel(key);
            self.queue.push_at(since.saturating_add(wait), key.clone());
        }
    }
}

/// What came back from a retry policy.
fn said(reply: Reply) -> Result<u64, Fault> {
    match reply {
        Reply::Decided(said) => said,
        _ => Err(Fault {
            kind: FaultKind::WallTime,
            message: "the retry policy did not return".into(),
            deterministic: false,
        }),
    }
}

/// What a retry policy said as it is taken, and what is wrong with it if that is something else: a number that is
/// negative where it was made says nothing at all, any other one is held within the limits of the binding.
fn bounded(said: u64, limits: &Limits, trial: &Trial) -> (u64, Option<String>) {
    let (shortest, longest) = (limits.shortest_wait, limits.longest_wait);
    let signed = said.cast_signed();
    if signed < 0 {
        let wait = default_wait(trial);
        let wrong =
            format!("the retry policy said {signed} ms; the host waits {wait} ms as it does without one");
        return (wait, Some(wrong));
    }
    let (wait, limit) = match said {
        said if said < shortest => (shortest, "shortestWait"),
        said if said > longest => (longest, "longestWait"),
        said => return (said, None),
    };
    let wrong = format!("the retry policy said {said} ms; spec.limits.{limit} is {wait} ms");
    (wait, Some(wrong))
}

/// Milliseconds until a faulting object is tried again: as a failure that keeps coming back.
fn quarantine(state: &KeyState, uid: &str) -> u64 {
    default_wait(&Trial {
        class: RetryClass::Short,
        code: None,
        attempt: state.faults.saturating_sub(1),
        since: 0,
        retry_after: None,
        seed: seed(uid, state.faults),
        config: "null".into(),
    })
}
