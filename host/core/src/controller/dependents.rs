//! Dependents: a key is enqueued when an answer that its last pass used has changed.
//!
//! Answers are not rendered again to find that out. The digest of an answer is the sum of the digests of its items. A
//! change subtracts the old digest of its item and adds the new one. Both are computed once for all keys that asked
//! the same question through the same grant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Change, Lookup, selects};
use super::keys::{KeyState, Waiting};
use super::passes::Running;
use super::{Controller, Guard};
use crate::binding::KindGrant;
use crate::call::Scope;
use crate::contract::{Cause, ListQuery, Question};
use crate::grants;
use crate::key::{Key, ObjectKey};
use crate::object::Object;
use crate::reconcile::{Dependency, Moved, Questions, Work};
use crate::render::digest_of_item;

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
    keys: BTreeSet<Key>,
}

/// For each grant, the digests of the changed item in an answer, before and after the change.
type Digests = Vec<(Arc<KindGrant>, [Option<u128>; 2])>;

/// A change, with the digests that different questions see of it.
struct Seen<'a> {
    change: &'a Change,
    key: [u8; 16],
    /// Digests before and after the change, by question and grant. The relation that a grant requires is not applied
    /// here, because it depends on the primary of each key.
    digests: BTreeMap<Question, Digests>,
}

impl<'a> Seen<'a> {
    fn new(change: &'a Change, key: [u8; 16]) -> Self {
        Seen {
            change,
            key,
            digests: BTreeMap::new(),
        }
    }

    /// The digests before and after the change for a question through a grant; `None` where the question does not
    /// select the object.
    fn digests(&mut self, question: &Question, grant: &Arc<KindGrant>) -> [Option<u128>; 2] {
        let same = |(known, _): &&(Arc<KindGrant>, _)| Arc::ptr_eq(known, grant) || known == grant;
        let known = self
            .digests
            .get(question)
            .and_then(|known| known.iter().find(same));
        if let Some((_, digests)) = known {
            return *digests;
        }
        let digests = self.digests_of(question, grant);
        let known = self.digests.entry(question.clone()).or_default();
        known.push((grant.clone(), digests));
        digests
    }

    fn digests_of(&self, question: &Question, grant: &KindGrant) -> [Option<u128>; 2] {
        let Change {
            before, after, place, ..
        } = self.change;
        [before, after].map(|object| {
            let object = object.as_ref()?;
            let wanted = match question {
                Question::Object(query) => {
                    (ObjectKey::from(&query.object) == *place).then_some(&query.projection)
                }
                Question::Objects(query) => selects(query, object).then_some(&query.projection),
                _ => None,
            };
            Some(digest_of_item(&self.key, grant, object, wanted?))
        })
    }

    /// Enters the change into the difference of one answer.
    fn count_in(
        &mut self,
        moved: &mut Moved,
        question: &Question,
        grant: &Arc<KindGrant>,
        primary: Option<&Object>,
    ) {
        let [before, after] = self.digests(question, grant);
        if before == after {
            return;
        }
        let related = |object: &Option<Object>, digest: Option<u128>| {
            let is_related = |object: &Object| grants::check_relation(grant, primary, object).is_ok();
            match (object, question) {
                (Some(object), _) if is_related(object) => digest,
                // A single object that is not related is refused. A refusal is another answer than "not found", so it
                // has a digest of its own.
                (Some(_), Question::Object(_)) => digest.map(|_| 0),
                _ => None,
            }
        };
        let Change {
            before: old,
            after: new,
            ..
        } = self.change;
        moved.by(related(old, before), related(new, after));
    }
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
        let mut seen = Seen::new(change, self.digest_key);
        for key in &dependents.keys {
            let running = self.keys.get(key).and_then(|state| state.running);
            if let Some((_, pass)) = running.and_then(|id| self.passes.get_mut(&id)) {
                note(
                    &mut pass.work,
                    pass.frame.snapshot.as_ref(),
                    [Some(&mut seen), None],
                    None,
                );
            }
        }
        let is_synced = self.cache.is_synced(&change.scope);
        let by = change.after.as_ref().or(change.before.as_ref());
        let moved_by = by.map(Object::reference);
        let mut concerned = BTreeSet::new();
        for (asked, all) in &dependents.asked {
            for Asked { grant, keys } in all {
                let [before, after] = seen.digests(&asked.1, grant);
                let is_concerned = before != after || !self.guards.stand(Guard::OnlyWhoUsedItIsEnqueued);
                for key in keys.iter().filter(|_| is_concerned) {
                    let state = self.keys.get_mut(key);
                    let is_other = state.is_some_and(|state| {
                        let is_other = state.count_in(asked, &mut seen);
                        if is_other {
                            state.moved_by.clone_from(&moved_by);
                        }
                        is_other
                    });
                    if (is_other && is_synced) || !self.guards.stand(Guard::OnlyWhoUsedItIsEnqueued) {
                        concerned.insert(key.clone());
                    }
                }
            }
        }
        for key in concerned {
            let waits = |state: &KeyState| state.running.is_none() && state.waiting == Waiting::ForAnyChange;
            if self.keys.get(&key).is_some_and(|state| waits(state)) {
                self.enqueue(&key, Cause::Dependency(moved_by.clone()));
            }
        }
    }

    /// Notes in a pass what it read: all its answers but the one to the question `answers` may be outdated by it.
    pub(super) fn note_read(&self, running: &mut Running, changes: &[Change], answers: Option<&Questions>) {
        for change in changes {
            let mut seen = Seen::new(change, self.digest_key);
            let primary = running.frame.snapshot.as_ref();
            note(&mut running.work, primary, [Some(&mut seen), None], answers);
        }
    }

    /// Notes in a pass what its write showed, without what the write changed by itself.
    pub(super) fn note_write(&self, running: &mut Running, changes: &[Change], own: &[Change]) {
        let seen = |change| Seen::new(change, self.digest_key);
        for own in own {
            // A watch may have shown the write before. Then the write changes nothing in the cache any more.
            let change = changes.iter().find(|change| change.scope == own.scope);
            let (mut change, mut own) = (change.map(seen), seen(own));
            let primary = running.frame.snapshot.as_ref();
            note(
                &mut running.work,
                primary,
                [change.as_mut(), Some(&mut own)],
                None,
            );
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

    /// Whether an answer changed because the primary changed: the relation of a grant compares objects with a field
    /// of the primary.
    pub(super) fn relation_moved(
        &self,
        used: &(Questions, Dependency),
        before: Option<&Object>,
        now: Option<&Object>,
    ) -> bool {
        let ((_, question), dependency) = used;
        let Some(relation) = &dependency.grant.relation else {
            return false;
        };
        let ours = |primary: Option<&'_ Object>| primary?.text_at(&relation.ours).map(str::to_owned);
        if ours(before) == ours(now) {
            return false;
        }
        let related = |primary: Option<&Object>| -> Vec<Object> {
            let found = match question {
                Question::Object(query) => {
                    let known = self
                        .cache
                        .last_known(&dependency.scope, &ObjectKey::from(&query.object));
                    known.cloned().into_iter().collect()
                }
                Question::Objects(query) => self.list_now(&dependency.scope, query),
                _ => Vec::new(),
            };
            let is_related =
                |object: &Object| grants::check_relation(&dependency.grant, primary, object).is_ok();
            found.into_iter().filter(is_related).collect()
        };
        related(before) != related(now)
    }

    fn list_now(&self, scope: &Scope, query: &ListQuery) -> Vec<Object> {
        match self.cache.list(scope, query) {
            Lookup::Known(found) => found,
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
        for (asked, dependency) in new.iter().flat_map(|used| used.iter()) {
            let dependents = self.dependents.entry(dependency.scope.clone()).or_default();
            dependents.keys.insert(key.clone());
            dependents.add(asked, &dependency.grant, key);
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

impl Dependents {
    pub(super) fn has_key_of(&self, binding: &str) -> bool {
        self.keys.iter().any(|key| *key.binding == *binding)
    }

    fn add(&mut self, asked: &Questions, grant: &Arc<KindGrant>, key: &Key) {
        let by = self.asked.entry(asked.clone()).or_default();
        let same = |asked: &&mut Asked| Arc::ptr_eq(&asked.grant, grant);
        match by.iter_mut().find(same) {
            Some(asked) => {
                asked.keys.insert(key.clone());
            }
            None => by.push(Asked {
                grant: grant.clone(),
                keys: BTreeSet::from([key.clone()]),
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
    /// Counts a change into an answer that the last pass used; whether that is another one now.
    fn count_in(&mut self, asked: &Questions, seen: &mut Seen<'_>) -> bool {
        // They come from a map, and stand in its order.
        let place = self.last.used.binary_search_by(|(used, _)| used.cmp(asked));
        let Some(((_, dependency), moved)) = place
            .ok()
            .and_then(|place| Some((self.last.used.get(place)?, self.moved.get_mut(place)?)))
        else {
            return false;
        };
        seen.count_in(moved, &asked.1, &dependency.grant, self.seen.as_ref());
        dependency.is_other(&asked.1, *moved)
    }
}

/// Notes a change of an object in the answers that a pass used, without what the pass did itself: `[change, own]`.
/// Differences add up, so it does not matter which of them is known first.
fn note(
    work: &mut Work,
    primary: Option<&Object>,
    mut seen: [Option<&mut Seen<'_>>; 2],
    answers: Option<&Questions>,
) {
    let mut is_concerned = false;
    for (asked, dependency) in work
        .dependencies
        .iter_mut()
        .filter(|(asked, _)| answers != Some(*asked))
    {
        let before = dependency.moved;
        let mut moved = [Moved::default(); 2];
        for (seen, moved) in seen.iter_mut().zip(&mut moved) {
            if let Some(seen) = seen.as_mut().filter(|seen| seen.change.scope == dependency.scope) {
                seen.count_in(moved, &asked.1, &dependency.grant, primary);
            }
        }
        dependency.moves(moved);
        is_concerned |= before != dependency.moved;
    }
    if is_concerned {
        let objects = seen
            .iter()
            .flatten()
            .flat_map(|seen| [&seen.change.after, &seen.change.before]);
        work.moved_by = objects.flatten().next().map(Object::reference);
    }
}
