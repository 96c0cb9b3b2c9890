//! Asks the retry policy about keys that wait already: after it changed, and after a failed read. No pass starts: the
//! policy gets the stored request of each key.

use super::Controller;
use super::keys::{KeyState, WakeOn};
use crate::binding::Binding;
use crate::call::{Call, Reply};
use crate::contract::{Cause, RetryRequest, Role};
use crate::key::Key;
use crate::reconcile::delay_of;
use crate::retry::{Delay, default_wait};
use crate::shared::calls::UnsentCall;
use crate::shared::terms::{Receiver, RescheduleQuestion};
use crate::time::Boot;

impl Controller {
    /// Asks the retry policy of a binding about each key that waits.
    pub(super) fn reschedule(&mut self, binding: &Binding) {
        let of_binding = |key: &&Key| *key.binding == *binding.name;
        let keys: Vec<Key> = self.keys.states.keys().filter(of_binding).cloned().collect();
        for key in keys {
            self.reschedule_one(binding, key);
        }
    }

    /// Asks the present retry policy about a pass that began under an earlier one. Such a pass ended after
    /// [`Self::reschedule`] had asked about all waiting keys, so that call missed its key.
    pub(super) fn reschedule_what_ended_late(&mut self, key: &Key, began_with: &Binding) {
        let Some(binding) = self.shared.bindings.get(&key.binding).cloned() else {
            return;
        };
        if binding.policy(Role::Retry) != began_with.policy(Role::Retry) {
            self.reschedule_one(&binding, key.clone());
        }
    }

    /// Asks the retry policy about a key, if the key only waits.
    pub(super) fn reschedule_one(&mut self, binding: &Binding, key: Key) {
        let waiting = self.keys.states.get(&key).filter(|state| waits(state));
        let known = waiting.and_then(|state| Some((state.tenant_queue.clone(), state.retry.clone()?)));
        let Some((tenant_queue, (since, request))) = known else {
            return;
        };
        let Some(policy) = binding.policy(Role::Retry) else {
            return self.wait_instead(&key, since, Delay::After(default_wait(&request)));
        };
        let request = RetryRequest {
            config: policy.config.clone(),
            ..*request
        };
        let call = Call::Decide {
            policy: policy.id.clone(),
            request: request.clone(),
            limits: binding.spec.limits.clone(),
        };
        let asked = RescheduleQuestion {
            key,
            since,
            policy: policy.id.clone(),
            request,
        };
        let decide = UnsentCall {
            call,
            longest: None,
            terms: None,
        };
        let receiver = Receiver::Reschedule(Box::new(asked));
        self.call(receiver, (&tenant_queue, binding), decide);
    }

    /// Handles the answer of a retry policy about a waiting key. The answer is dropped if the key has begun another
    /// wait, or if the policy or its configuration has changed again.
    pub(super) fn on_rescheduled(&mut self, asked: &RescheduleQuestion, reply: Reply) {
        let Some(binding) = self.shared.bindings.get(&asked.key.binding).cloned() else {
            return;
        };
        let is_current = binding
            .policy(Role::Retry)
            .is_some_and(|p| (&p.id, &p.config) == (&asked.policy, &asked.request.config));
        let is_same = self.keys.states.get(&asked.key).is_some_and(|state| {
            let before = state.retry.as_ref();
            let same = before.is_some_and(|(since, request)| {
                (*since, request.attempt) == (asked.since, asked.request.attempt)
            });
            waits(state) && same
        });
        if let (true, true, Reply::Decided(said)) = (is_current, is_same, reply) {
            let (delay, report) = delay_of(said, &binding.spec.limits, &asked.request);
            if let Some(report) = report {
                self.report(&asked.key, report);
            }
            self.wait_instead(&asked.key, asked.since, delay);
        }
    }

    /// Replaces the wait of a key. One that waits for its part of the time in which a changed binding enqueues its keys waits no
    /// longer than for that. One that any change may enqueue from now on may have ignored one during the old wait, so its used
    /// answers are checked at once. Which changes end the wait for a read early, the pass before it said: no answer tells
    /// whether the API server can be reached again.
    fn wait_instead(&mut self, key: &Key, since: Boot, delay: Delay) {
        let Some(state) = self.keys.states.get_mut(key) else {
            return;
        };
        if self.keys.queue.is_queued(key) {
            return;
        }
        let waiting = WakeOn::during(delay);
        let is_of_read = state.freshness.has_failed();
        if !is_of_read {
            state.wakes_on = waiting;
        }
        state.last.waited = Some(delay.longest());
        if !state.causes.contains(&Cause::Binding) {
            self.keys.queue.cancel(key);
        }
        self.keys.queue.push_at(since + delay.longest(), key.clone());
        if !is_of_read && waiting == WakeOn::AnyChange && self.dependency_changed(key) {
            self.enqueue_by_dependency(key);
        }
    }
}

/// Whether a key only waits. A key with another cause than a changed binding is about to start a pass, and that pass sets a new
/// wait. One whose read failed has its causes still.
fn waits(state: &KeyState) -> bool {
    let is_idle = || state.causes.iter().all(|cause| *cause == Cause::Binding);
    state.running.is_none() && (state.freshness.has_failed() || is_idle())
}
