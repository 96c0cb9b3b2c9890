//! Dependents: a key is enqueued when an answer that its last pass used has changed.
//!
//! Answers are not rendered again to find that out. The digest of an answer is the sum of the digests of its items. A
//! change subtracts the old digest of its item and adds the new one. Both are computed once for all questions that see
//! the same part of the item ([`Seen`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Change, Lookup};
use super::keys::{KeyState, Waiting};
use super::passes::Running;
use super::seen::{READ, Seen, Sides};
use super::{Controller, Guard};
use crate::binding::KindGrant;
use crate::call::Scope;
use crate::contract::{Cause, ListQuery, ObjectQuery, ObjectRef, Question, Role};
use crate::grants::Reach;
use crate::key::{Key, ObjectKey};
use crate::object::Object;
use crate::reconcile::{Dependency, Frame, Moved, Questions, Work};
use crate::selection::{self, Selection};

/// The keys that depend on a scope.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// Keys that keep the watch open: their last pass used an object of the scope, or their present pass asks for
    /// one.
    pub(super) keys: BTreeSet<Key>,
    /// For each question, the grants through which it was asked and the keys that used its answer.
    asked: BTreeMap<Questions, Vec<Asked>>,
}

#[derive(Debug)]
struct Asked {
    grant: Arc<KindGrant>,
    /// The selectors of the question.
    selection: Selection,
    /// The keys, each with the place of the question among the answers that its last pass used.
    keys: BTreeMap<Key, usize>,
}

impl Controller {
    /// Enqueues the keys whose last pass used an answer that the change alters. A key whose pass is in flight is
    /// enqueued at the end of that pass, if the change was news to it.
    pub(super) fn enqueue_dependents(&mut self, change: &Change) {
        let Some(dependents) = self.dependents.get(&change.scope) else {
            return;
        };
        if !self.guards.stand(Guard::ChangesEnqueueDependents) {
            return;
        }
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let object = object.reference();
        let mut seen = Seen::new(change, self.digest_key);
        for (_, running) in self.passes.values_mut() {
            if running.work.looked_at.contains(&change.scope) {
                note(&running.frame, &mut running.work, [Some(&mut seen), None], None);
            }
        }
        let all_enqueued = !self.guards.stand(Guard::OnlyWhoUsedItIsEnqueued);
        let mut concerned = BTreeSet::new();
        for (asked, by) in dependents.concerned_by(change) {
            // The same for all keys, unless too much was compared for the tenant queue of some of them.
            let mut compared = None;
            for (key, place) in &by.keys {
                let Some(state) = self.keys.get_mut(key) else {
                    continue;
                };
                compared = compared
                    .or_else(|| seen.sides(&state.tenant_queue, (&asked.1, &by.selection), &by.grant));
                if compared.is_some_and(|[before, after]| before == after) && !all_enqueued {
                    break;
                }
                if state.count_in(*place, compared, &mut seen) || all_enqueued {
                    concerned.insert(key.clone());
                }
            }
        }
        let is_synced = self.cache.is_synced(&change.scope) || all_enqueued;
        for key in concerned {
            let Some(state) = self.keys.get_mut(&key) else {
                continue;
            };
            state.moved_by = Some(object.clone());
            if is_synced && state.running.is_none() && state.waiting == Waiting::ForAnyChange {
                self.enqueue(&key, Cause::Dependency(Some(object.clone())));
            }
        }
    }

    /// Notes in a pass what it read: all its answers but the one to the question `answers` may be outdated by it.
    pub(super) fn note_read(&self, running: &mut Running, changes: &[Change], answers: Option<&Questions>) {
        for change in changes {
            let mut seen = Seen::new(change, self.digest_key);
            note(
                &running.frame,
                &mut running.work,
                [Some(&mut seen), None],
                answers,
            );
        }
    }

    /// Notes in a pass what its write showed, without what the write changed by itself.
    pub(super) fn note_write(&self, running: &mut Running, changes: &[Change], own: &[Change]) {
        let seen = |change| Seen::new(change, self.digest_key);
        for own in own {
            // A watch may have shown the write before. Then the write changes nothing in the cache any more.
            let change = changes.iter().find(|change| change.scope == own.scope);
            let (mut change, mut own) = (change.map(seen), seen(own));
            let seen = [change.as_mut(), Some(&mut own)];
            note(&running.frame, &mut running.work, seen, None);
        }
    }

    /// Whether an answer that the last pass of a key used has changed. Answers from an unsynced scope do not count,
    /// because its objects may be outdated.
    pub(super) fn dependency_changed(&self, key: &Key) -> bool {
        let Some(state) = self.keys.get(key) else {
            return false;
        };
        let is_other = |(used, moved): (&(Questions, Dependency), &Moved)| {
            let ((_, question), dependency) = used;
            dependency.is_other(question, *moved) && self.cache.is_synced(&dependency.scope)
        };
        state.last.used.iter().zip(&state.moved).any(is_other)
    }

    /// Which answers changed because the primary changed: the relation of a grant compares objects with a field of the
    /// primary.
    pub(super) fn relations_moved(
        &self,
        used: &[(Questions, Dependency)],
        before: Option<&Object>,
        now: Option<&Object>,
    ) -> Vec<bool> {
        let mut relations = Relations {
            primaries: [before, now],
            changed: BTreeMap::new(),
            read: 0,
        };
        let moved = |((_, question), dependency): &(Questions, Dependency)| {
            relations.changed(&dependency.grant)
                && relations.moved(question, dependency, || self.asked_of(question, dependency))
        };
        used.iter().map(moved).collect()
    }

    /// The objects that an answer may be about now.
    fn asked_of(&self, question: &Question, dependency: &Dependency) -> Vec<Object> {
        match question {
            Question::Object(query) => {
                let place = ObjectKey::from(&query.object);
                let known = self.cache.last_known(&dependency.scope, &place);
                known.cloned().into_iter().collect()
            }
            Question::Objects(query) => {
                match self.cache.list(&dependency.scope, query.namespace.as_deref()) {
                    Lookup::Known(found) => found,
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Replaces the dependencies `old` of a key by those of its last pass.
    pub(super) fn reindex(&mut self, key: &Key, old: &[(Questions, Dependency)]) {
        for (asked, dependency) in old {
            if let Some(dependents) = self.dependents.get_mut(&dependency.scope) {
                dependents.keys.remove(key);
                dependents.forget(asked, key);
            }
        }
        let new = self.keys.get(key).map(|state| state.last.used.clone());
        for (place, used) in new.iter().flat_map(|used| used.iter()).enumerate() {
            let dependents = self.dependents.entry(used.1.scope.clone()).or_default();
            dependents.keys.insert(key.clone());
            dependents.add(used, key, place);
        }
    }

    /// Removes a key from the scopes that its ended pass asked for and whose answers it did not use, so that their
    /// watches can close.
    pub(super) fn depends_no_more(&mut self, key: &Key, asked: &BTreeSet<Scope>) {
        let state = self.keys.get(key);
        for scope in asked {
            let depends =
                state.is_some_and(|state| state.last.used.iter().any(|(_, dep)| dep.scope == *scope));
            if !depends && let Some(dependents) = self.dependents.get_mut(scope) {
                dependents.keys.remove(key);
            }
        }
    }
}

/// The relations of grants to a primary that a pass changed.
struct Relations<'a> {
    /// The primary before and after the pass.
    primaries: [Option<&'a Object>; 2],
    /// Whether the primary's side of a relation changed, by its path.
    changed: BTreeMap<String, bool>,
    /// The bytes of text that were read.
    read: u64,
}

impl Relations<'_> {
    fn changed(&mut self, grant: &KindGrant) -> bool {
        let Some(relation) = &grant.relation else {
            return false;
        };
        if let Some(changed) = self.changed.get(&relation.ours) {
            return *changed;
        }
        let [before, now] = self.primaries.map(|primary| primary?.text_at(&relation.ours));
        self.changed.insert(relation.ours.clone(), before != now);
        before != now
    }

    /// Whether an answer is about other objects now. If too much text was read, it may be.
    fn moved(
        &mut self,
        question: &Question,
        dependency: &Dependency,
        asked: impl FnOnce() -> Vec<Object>,
    ) -> bool {
        if self.read >= READ {
            return true;
        }
        let objects = asked();
        let bytes = objects.iter().map(|object| object.json().len() as u64);
        self.read = bytes.fold(self.read, u64::saturating_add);
        let [before, now] = self
            .primaries
            .map(|primary| Reach::of(&dependency.grant, primary));
        objects.iter().any(|object| {
            let is_asked = || match question {
                Question::Objects(query) => {
                    let selection = &dependency.selection;
                    selection.selects(query, object, || selection::labels(object))
                }
                _ => true,
            };
            before.check(object).is_ok() != now.check(object).is_ok() && is_asked()
        })
    }
}

impl Dependents {
    pub(super) fn has_key_of(&self, binding: &str) -> bool {
        self.keys.iter().any(|key| *key.binding == *binding)
    }

    /// The questions whose answers a change may alter: those about the changed object, and all lists.
    fn concerned_by<'a>(&'a self, change: &Change) -> impl Iterator<Item = (&'a Questions, &'a Asked)> {
        let (kind, place) = (&change.scope.kind, &change.place);
        let object = ObjectRef {
            cluster: None,
            kind: kind.clone(),
            namespace: place.namespace.as_deref().map(str::to_owned),
            name: place.name.to_string(),
        };
        let mut found = Vec::new();
        for role in [Role::Identity, Role::Lifecycle, Role::Retry] {
            // The questions about one object stand side by side, and so do the lists of one kind. These come first.
            let about_it = Question::Object(ObjectQuery {
                object: object.clone(),
                projection: Vec::new(),
                latest: false,
            });
            let list = Question::Objects(ListQuery::all(kind.clone()));
            let is_about_it =
                |question: &Question| matches!(question, Question::Object(query) if query.object == object);
            let is_list = |question: &Question| matches!(question, Question::Objects(_));
            let from = |first: Question| self.asked.range((role, first)..);
            found.extend(
                from(about_it).take_while(|((by, question), _)| *by == role && is_about_it(question)),
            );
            found.extend(from(list).take_while(|((by, question), _)| *by == role && is_list(question)));
        }
        let through = |(asked, all): (&'a Questions, &'a Vec<Asked>)| all.iter().map(move |by| (asked, by));
        found.into_iter().flat_map(through)
    }

    fn add(&mut self, (asked, dependency): &(Questions, Dependency), key: &Key, place: usize) {
        let by = self.asked.entry(asked.clone()).or_default();
        let same = |asked: &&mut Asked| Arc::ptr_eq(&asked.grant, &dependency.grant);
        match by.iter_mut().find(same) {
            Some(asked) => {
                asked.keys.insert(key.clone(), place);
            }
            None => by.push(Asked {
                grant: dependency.grant.clone(),
                selection: dependency.selection.clone(),
                keys: BTreeMap::from([(key.clone(), place)]),
            }),
        }
    }

    fn forget(&mut self, asked: &Questions, key: &Key) {
        let Some(by) = self.asked.get_mut(asked) else {
            return;
        };
        by.retain_mut(|asked| {
            asked.keys.remove(key);
            !asked.keys.is_empty()
        });
        if by.is_empty() {
            self.asked.remove(asked);
        }
    }
}

impl KeyState {
    /// Counts a change into the answer at a place among those that the last pass used, and returns whether that is another
    /// one now. `compared` are the digests of the changed item; `None` if they were not computed.
    fn count_in(&mut self, place: usize, compared: Option<Sides>, seen: &mut Seen<'_>) -> bool {
        let (used, moved) = (self.last.used.get(place), self.moved.get_mut(place));
        let Some((((_, question), dependency), moved)) = used.zip(moved) else {
            return false;
        };
        let by = compared.and_then(|sides| {
            let (queue, primary) = (&self.tenant_queue, self.seen.as_ref());
            seen.moved(queue, question, &dependency.grant, sides, primary)
        });
        moved.add(by.unwrap_or(Moved::SOMEHOW));
        dependency.is_other(question, *moved)
    }
}

/// Notes a change of an object in the answers that a pass used, without what the pass did itself: `[change, own]`.
/// Differences add up, so it does not matter which of them is known first.
fn note(frame: &Frame, work: &mut Work, seen: [Option<&mut Seen<'_>>; 2], answers: Option<&Questions>) {
    let [mut change, mut own] = seen;
    let mut is_concerned = false;
    for (asked, dependency) in &mut work.dependencies {
        if answers == Some(asked) {
            continue;
        }
        let (queue, primary) = (&frame.tenant_queue, frame.snapshot.as_ref());
        let by = |seen: &mut Option<&mut Seen<'_>>| {
            let seen = seen.as_mut()?;
            if seen.change().scope != dependency.scope {
                return Some(Moved::default());
            }
            let sides = seen.sides(queue, (&asked.1, &dependency.selection), &dependency.grant)?;
            seen.moved(queue, &asked.1, &dependency.grant, sides, primary)
        };
        let before = dependency.moved;
        let moved = match change {
            // What is not compared may have changed.
            Some(_) => by(&mut change).unwrap_or(Moved::SOMEHOW),
            None => Moved::default(),
        };
        let own = by(&mut own).unwrap_or_default();
        dependency.moves([moved, own]);
        is_concerned |= before != dependency.moved;
    }
    if is_concerned {
        let seen = [change, own].into_iter().flatten();
        let objects = seen.flat_map(|seen| [&seen.change().after, &seen.change().before]);
        work.moved_by = objects.flatten().next().map(Object::reference);
    }
}
