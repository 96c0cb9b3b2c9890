//! Triggers: enqueues a key when something changed that its next pass would see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::keys::{KeyState, WakeOn};
use super::rate_limit::Bucket;
use super::{Controller, Guard, Guards, Output};
use crate::binding::{Binding, Tenant};
use crate::call::{Scope, WatchEvent};
use crate::contract::{Cause, Role};
use crate::key::{Key, ObjectKey};
use crate::object::Object;
use crate::reconcile::{primary_scope, primary_scopes, reaches};
use crate::shared::cache::Change;
use crate::time::millis;

/// The prefix of annotations that request a pass: `request.polity.dev/<name>`. A new value is a new request.
const REQUEST: &str = "request.polity.dev/";
/// The keys of a changed binding are enqueued spread over this time, so that they do not all call the cloud at once.
const SPREAD: Duration = Duration::from_mins(1);
/// A watch without dependents closes after this time, or at the next check where many watches are open.
const IDLE: Duration = Duration::from_mins(10);
/// The interval between checks for idle watches.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

impl Controller {
    /// Adds or replaces a binding. Keys that exist already are enqueued if something changed that a pass sees or needs:
    /// what stood in the way of an object may be gone. If only the retry policy or the bounds of waits changed, the
    /// waits are rescheduled and no pass starts.
    pub(super) fn bind(&mut self, binding: Binding) {
        let name: Arc<str> = shared(&binding.name);
        let binding = Arc::new(binding);
        let old = self.shared.bindings.insert(name.clone(), binding.clone());
        let scopes = primary_scopes(&binding);
        if let Some(old) = &old
            && primary_scopes(old) != scopes
        {
            // It governs other objects now. Objects that it governed before, too, get new keys.
            self.drop_keys(&name);
        }
        for scope in scopes {
            if self.shared.cache.open(&scope) {
                self.out.push(Output::Watch(scope));
            }
        }
        self.assign_keys();
        let Some(old) = old else { return };
        if let Some(health) = self.health.get_mut(&name) {
            health.last_fault = None;
            health.clamped = None;
            health.ungranted.clear();
            health.not_kept.clear();
        }
        let same = |role| old.policy(role) == binding.policy(role);
        if old.acts_like(&binding) {
            let bounds = |binding: &Binding| {
                let limits = &binding.spec.limits;
                (limits.shortest_wait, limits.longest_wait)
            };
            let asks = self.shared.guards.stand(Guard::SwappedRetryPoliciesAreAsked);
            if asks && (!same(Role::Retry) || bounds(&old) != bounds(&binding)) {
                self.reschedule(&binding);
            }
            return;
        }
        let keys: Vec<Key> = self
            .keys
            .states
            .keys()
            .filter(|key| key.binding == name)
            .cloned()
            .collect();
        for key in keys {
            if let Some(state) = self.keys.states.get_mut(&key) {
                state.note(Cause::Binding);
                // The faults were those of another policy, or of the same one with other grants.
                state.faults = 0;
                // The end of a pass in flight finds the cause, and a queued key takes it along.
                if state.running.is_none() && !self.keys.queue.is_queued(&key) {
                    let part = crate::retry::seed(&key.name, 0) % millis(SPREAD);
                    let at = self.shared.now.boot + Duration::from_millis(part);
                    if !self.shared.guards.stand(Guard::EarlierDeadlinesStand) {
                        self.keys.queue.cancel(&key);
                    }
                    self.keys.queue.push_at(at, key);
                }
            }
        }
    }

    /// Removes a binding and its keys. Its passes in flight end under the binding with which they began.
    pub(super) fn unbind(&mut self, name: &str) {
        if self.shared.bindings.remove(name).is_some() {
            self.drop_keys(&shared(name));
            self.health.remove(name);
            self.assign_keys();
        }
    }

    fn drop_keys(&mut self, binding: &Arc<str>) {
        let keys: Vec<Key> = self
            .keys
            .states
            .keys()
            .filter(|key| key.binding == *binding)
            .cloned()
            .collect();
        for key in keys {
            self.forget(&key);
        }
    }

    /// Adds a key for every object under the binding that governs it, and removes the keys of objects that an older
    /// binding governs now.
    fn assign_keys(&mut self) {
        let bindings: Vec<Arc<Binding>> = self.shared.bindings.values().cloned().collect();
        for binding in &bindings {
            let name = shared(&binding.name);
            let older = bindings
                .iter()
                .find(|other| outranks(other, binding) && meet(other, binding));
            self.health.entry(name.clone()).or_default().overlapped_by = older.map(|o| o.name.clone());
            let scopes = primary_scopes(binding);
            let mut places: Vec<(ObjectKey, Option<Object>)> = scopes
                .iter()
                .flat_map(|scope| self.shared.cache.all(scope))
                .map(|o| (ObjectKey::from(o), Some(o.clone())))
                .collect();
            // Before its watch has listed, nobody knows that the object is absent.
            if let Some(one) = absent_place(binding)
                && scopes.iter().all(|scope| self.shared.cache.is_synced(scope))
                && !places.iter().any(|(place, _)| *place == one)
            {
                places.push((one, None));
            }
            for (place, object) in places {
                let key = key_at(&name, &place);
                if self.governs(binding, &place) {
                    self.add_key(binding, key, object.as_ref(), Cause::Resync);
                } else {
                    self.forget(&key);
                }
            }
        }
    }

    /// Whether a binding governs the object at a place. If several bindings reach the place, the one that outranks
    /// the others governs it.
    fn governs(&self, binding: &Binding, place: &ObjectKey) -> bool {
        reaches(binding, place)
            && !self
                .shared
                .bindings
                .values()
                .any(|other| outranks(other, binding) && reaches(other, place))
    }

    fn add_key(&mut self, binding: &Binding, key: Key, object: Option<&Object>, cause: Cause) {
        if self.keys.states.contains_key(&key) {
            return;
        }
        let tenant = tenant(binding, &key, object);
        let tenant_queue = format!("{} {tenant}", binding.name).into();
        let bucket = Bucket::full(binding.spec.limits.burst, self.shared.now.boot);
        let state = KeyState::new(tenant, tenant_queue, self.keys.orphans.remove(&key), bucket);
        self.keys.states.insert(key.clone(), Box::new(state));
        self.enqueue(&key, cause);
    }

    /// Removes a key. Its pass in flight, if there is one, goes on to its end under the binding with which it began.
    pub(super) fn forget(&mut self, key: &Key) {
        self.keys.queue.forget(key);
        if let Some(state) = self.keys.states.remove(key) {
            self.leave_lock_queues(key, &state);
            match state.running {
                Some(pass) => drop(self.keys.orphans.insert(key.clone(), pass)),
                None => self.out.push(Output::Forgotten(key.clone())),
            }
            self.reindex(key, &state.tenant_queue, &state.last.used);
        }
    }

    /// Adds a cause to a key and enqueues it. While a pass of the key is in flight, the key is not queued: the end of
    /// that pass checks the causes.
    pub(super) fn enqueue(&mut self, key: &Key, cause: Cause) {
        let Some(state) = self.keys.states.get_mut(key) else {
            return;
        };
        state.note(cause);
        if state.running.is_none() || !self.shared.guards.stand(Guard::OnePassAtATime) {
            state.queued.get_or_insert(self.shared.now.boot);
            let tenant_queue = state.tenant_queue.clone();
            self.keys.queue.push(&tenant_queue, key.clone());
        }
    }

    /// Enqueues a key because an answer that its last pass used has changed.
    pub(super) fn enqueue_by_dependency(&mut self, key: &Key) {
        let changed_by = self
            .keys
            .states
            .get(key)
            .and_then(|state| state.changed_by.clone());
        self.enqueue(key, Cause::Dependency(changed_by));
    }

    /// Enqueues a key after its pass if something changed during the pass. If the pass used no answers, the key keeps
    /// the dependencies of the pass before it. A difference in them does not show a change during this pass, so they
    /// are not compared; the next try is near anyway.
    pub(super) fn requeue_if_changed(&mut self, key: &Key, has_used: bool) {
        let Some(state) = self.keys.states.get(key) else {
            return;
        };
        let Some(binding) = self.shared.bindings.get(&key.binding).cloned() else {
            return self.forget(key);
        };
        let place = ObjectKey::from(key);
        let now = self
            .shared
            .cache
            .last_known(&primary_scope(&binding, &place), &place)
            .cloned();
        let wakes_on = state.wakes_on;
        // A binding that names one object gets passes while the object is absent. Others have no key without an object.
        if now.is_none() && binding.spec.governs.name.is_none() {
            return self.forget(key);
        }
        // The binding changed, or the lease was gained: the key gets a pass whether its object changed or not.
        if state.causes.contains(&Cause::Binding) || state.causes.contains(&Cause::Resync) {
            return self.enqueue(key, Cause::Resync);
        }
        if is_news(state, now.as_ref(), self.shared.guards) {
            let cause = cause_of(state, now.as_ref());
            return self.enqueue(key, cause);
        }
        if wakes_on == WakeOn::AnyChange && has_used && self.dependency_changed(key) {
            return self.enqueue_by_dependency(key);
        }
        // What is left is a lock that came free during the pass: `wait_for_locks` checks the locks.
        if let Some(state) = self.keys.states.get_mut(key) {
            state.causes.clear();
        }
    }

    /// Handles an event of a watch. After a list, questions that waited for it are answered, and keys are enqueued
    /// that missed a change while the watch was not synced.
    pub(super) fn on_watch_event(&mut self, scope: &Scope, event: WatchEvent) {
        let listed = matches!(event, WatchEvent::Listed { .. });
        let changes = self.shared.cache.observe(scope, event);
        self.on_changes(&changes);
        if !listed {
            return;
        }
        self.on_listed(scope);
        // While the watch was not synced, writes of this host entered the cache but enqueued no dependent key. The
        // list does not show them as changes either, so the dependents are checked here.
        let dependents = self.keys.wake_index.get(scope).into_iter().flat_map(|d| &d.keys);
        let waits = |key: &&Key| {
            let state = self.keys.states.get(key);
            state.is_some_and(|s| s.running.is_none() && s.wakes_on == WakeOn::AnyChange)
        };
        let missed: Vec<Key> = dependents
            .filter(waits)
            .filter(|key| self.dependency_changed(key))
            .cloned()
            .collect();
        for key in missed {
            self.enqueue_by_dependency(&key);
        }
        let bindings: Vec<Arc<Binding>> = self.shared.bindings.values().cloned().collect();
        for binding in bindings
            .iter()
            .filter(|binding| primary_scopes(binding).contains(scope))
        {
            if let Some(place) = absent_place(binding) {
                let key = key_at(&shared(&binding.name), &place);
                self.add_key(binding, key, None, Cause::Resync);
            }
            // Keys whose turn came while the watch was not synced. They kept their causes and started no pass.
            let stranded: Vec<Key> = self
                .keys
                .states
                .iter()
                .filter(|(key, s)| {
                    *key.binding == *binding.name && s.running.is_none() && !s.causes.is_empty()
                })
                .map(|(key, _)| key.clone())
                .collect();
            for key in stranded {
                self.enqueue(&key, Cause::Resync);
            }
        }
    }

    /// Enqueues the keys that see one of these changes and have no pass in flight.
    pub(super) fn on_changes(&mut self, changes: &[Change]) {
        for change in changes {
            self.enqueue_primary(change);
            self.enqueue_dependents(change);
        }
    }

    fn enqueue_primary(&mut self, change: &Change) {
        let bindings: Vec<Arc<Binding>> = self
            .shared
            .bindings
            .values()
            .filter(|b| primary_scope(b, &change.place) == change.scope && self.governs(b, &change.place))
            .cloned()
            .collect();
        for binding in bindings {
            let key = key_at(&shared(&binding.name), &change.place);
            let Some(state) = self.keys.states.get(&key) else {
                if change.after.is_some() {
                    self.add_key(&binding, key, change.after.as_ref(), Cause::Created);
                }
                continue;
            };
            if state.running.is_some() {
                continue;
            }
            match &change.after {
                // As at the end of a pass: only a binding that names one object has a key for an absent one.
                None if binding.spec.governs.name.is_none() => self.forget(&key),
                after if is_news(state, after.as_ref(), self.shared.guards) => {
                    let cause = cause_of(state, after.as_ref());
                    self.enqueue(&key, cause);
                }
                _ => {}
            }
        }
    }

    /// Closes watches on which no key has depended for a while.
    pub(super) fn sweep(&mut self) {
        if self.shared.now.boot < self.next_sweep {
            return;
        }
        self.next_sweep = self.shared.now.boot + SWEEP_EVERY;
        let bindings = &self.shared.bindings;
        self.shared.calls.tidy(|binding| bindings.contains_key(binding));
        let primaries: BTreeSet<Scope> = self
            .shared
            .bindings
            .values()
            .flat_map(|b| primary_scopes(b))
            .collect();
        let scopes: Vec<Scope> = self.shared.cache.scopes().cloned().collect();
        for scope in scopes {
            let depended = primaries.contains(&scope)
                || self.shared.calls.await_list_of(&scope)
                || self
                    .keys
                    .wake_index
                    .get(&scope)
                    .is_some_and(|d| !d.keys.is_empty());
            let unused_for = if self.shared.watches.is_crowded(&scope) {
                Duration::ZERO
            } else {
                IDLE
            };
            let idle = self.shared.cache.idle(&scope, self.shared.now.boot, depended);
            if !depended && idle >= unused_for {
                self.shared.cache.close(&scope);
                self.shared.watches.close(&scope);
                self.keys.wake_index.remove(&scope);
                self.out.push(Output::Unwatch(scope));
            }
        }
    }
}

/// Whether the primary differs from the one that the last pass saw. The key's wait decides which differences count.
fn is_news(state: &KeyState, now: Option<&Object>, guards: Guards) -> bool {
    let wakes_on = if guards.stand(Guard::OnlyNewsEndsARetry) {
        state.wakes_on
    } else {
        WakeOn::AnyChange
    };
    match (&state.seen, now, wakes_on) {
        (None, None, _) => false,
        (Some(seen), Some(now), WakeOn::AnyChange) => {
            seen.version() != now.version() && !seen.says_the_same(now)
        }
        (Some(seen), Some(now), WakeOn::News) => {
            seen.uid() != now.uid()
                || !seen.has_spec_of(now)
                || seen.is_deleting() != now.is_deleting()
                || requests(seen) != requests(now)
        }
        _ => true,
    }
}

fn requests(object: &Object) -> BTreeMap<String, Value> {
    let annotations = object.text_at("metadata.annotations");
    let all: Option<BTreeMap<String, Value>> = annotations.and_then(|text| serde_json::from_str(text).ok());
    let mut all = all.unwrap_or_default();
    all.retain(|name, _| name.starts_with(REQUEST));
    all
}

fn cause_of(state: &KeyState, now: Option<&Object>) -> Cause {
    match (&state.seen, now) {
        (None, _) => Cause::Created,
        (Some(_), None) => Cause::Deleted,
        (Some(seen), Some(now)) if now.is_deleting() && !seen.is_deleting() => Cause::Deleted,
        (Some(seen), Some(now)) if requests(seen) != requests(now) => Cause::Requested,
        _ => Cause::Changed,
    }
}

/// Whether `other` comes before `binding` where both name a lifecycle.
fn outranks(other: &Binding, binding: &Binding) -> bool {
    let both = other.policy(Role::Lifecycle).is_some() && binding.policy(Role::Lifecycle).is_some();
    both && (other.created, &other.name) < (binding.created, &binding.name)
        && other.spec.governs.kind() == binding.spec.governs.kind()
}

/// Whether two bindings of one kind can govern one object.
fn meet(a: &Binding, b: &Binding) -> bool {
    let (a, b) = (&a.spec.governs, &b.spec.governs);
    let apart = |x: &Option<String>, y: &Option<String>| matches!((x, y), (Some(x), Some(y)) if x != y);
    !apart(&a.namespace, &b.namespace) && !apart(&a.name, &b.name)
}

/// Where the one object that a binding names would stand.
fn absent_place(binding: &Binding) -> Option<ObjectKey> {
    let governs = &binding.spec.governs;
    let name = governs.name.as_deref()?;
    let is_one = governs.namespace.is_some() || binding.namespaces.is_none();
    is_one.then(|| ObjectKey::new(governs.namespace.as_deref(), name))
}

/// Shares a name as the maps of the controller hold it.
fn shared(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn key_at(binding: &Arc<str>, place: &ObjectKey) -> Key {
    Key {
        binding: binding.clone(),
        namespace: place.namespace.clone(),
        name: place.name.clone(),
    }
}

fn tenant(binding: &Binding, key: &Key, object: Option<&Object>) -> Arc<str> {
    match &binding.spec.tenant {
        Tenant::Namespace => key.namespace.clone().unwrap_or_else(|| shared("")),
        Tenant::Path(path) => object
            .and_then(|o| o.str_at(path))
            .map_or_else(|| shared(""), |tenant| shared(&tenant)),
    }
}
