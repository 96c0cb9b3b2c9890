//! Dependents: a key is enqueued when an answer that its last pass used has changed.
//!
//! Answers are not rendered again to find that out. The digest of an answer is the sum of the digests of its items. A
//! change subtracts the old digest of its item and adds the new one. Both are computed once for all questions that see
//! the same part of the item ([`ChangeView`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::change_view::{ChangeView, READ, bytes};
use super::keys::{KeyState, WakeOn};
use super::passes::RunningPass;
use super::{Controller, Guard};
use crate::binding::KindGrant;
use crate::call::Scope;
use crate::contract::{Cause, Kind, ObjectQuery, ObjectRef, Question, Role};
use crate::grants::Reach;
use crate::key::{Key, ObjectKey, PassId};
use crate::object::Object;
use crate::reconcile::{AnswerDelta, Dependency, Frame, Work};
use crate::render::RoleQuestion;
use crate::selection::{self, Selection};
use crate::shared::cache::{Change, Lookup};

/// The keys that depend on a scope.
#[derive(Debug, Default)]
pub(super) struct WakeIndex {
    /// Keys that keep the watch open: their last pass used an object of the scope, or their present pass asks for
    /// one.
    pub(super) keys: BTreeSet<Key>,
    /// The questions whose answers the last passes used, by tenant queue.
    used: BTreeMap<Arc<str>, TenantQuestions>,
}

/// The questions of a tenant queue about one scope.
#[derive(Debug, Default)]
struct TenantQuestions {
    /// For each question, the grants through which it was asked and the keys that used its answer.
    asked: BTreeMap<(Round, Anchor, RoleQuestion), Vec<Askers>>,
    /// The keys, each with the round of its questions.
    keys: BTreeMap<Key, Round>,
    round: Round,
}

/// How often a change was not compared with the questions of a tenant queue, because they are too many. The keys of an
/// earlier round are enqueued already, so nobody looks at their questions any more.
type Round = u64;

/// What an object must have so that a change of it may alter the answer. So a change concerns few of many questions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Anchor {
    /// Nothing: the question is a list that may select any object.
    None,
    /// This place.
    Place(ObjectKey),
    /// This label, before or after the change.
    Label(Box<str>, Box<str>),
}

#[derive(Debug)]
struct Askers {
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
        let Some(dependents) = self.keys.wake_index.get_mut(&change.scope) else {
            return;
        };
        if !self.shared.guards.stand(Guard::ChangesEnqueueDependents) {
            return;
        }
        let Some(object) = change.object() else {
            return;
        };
        let object = object.reference();
        let mut view = ChangeView::new(change, self.digest_key);
        let answered = self.passes.answered.get(&change.scope);
        let answered: Vec<PassId> = answered.into_iter().flatten().copied().collect();
        for pass in &answered {
            if let Some((_, running)) = self.passes.in_flight.get_mut(pass) {
                note(&running.frame, &mut running.work, [Some(&mut view), None], None);
            }
        }
        let all_enqueued = !self.shared.guards.stand(Guard::OnlyWhoUsedItIsEnqueued);
        let mut woken = BTreeSet::new();
        let anchors = anchors_of(&view);
        for (tenant_queue, used) in &mut dependents.used {
            let looked = used.look(
                (tenant_queue, &anchors),
                &mut view,
                &mut self.keys.states,
                &mut woken,
            );
            if looked.is_none() || all_enqueued {
                used.give_up(&change.scope, &mut self.keys.states, &mut woken);
            }
        }
        // Passes that were compared with this change are not compared with the next one: it would take as long.
        for pass in &answered {
            if let Some((_, running)) = self.passes.in_flight.get_mut(pass)
                && view.is_too_much(&running.frame.tenant_queue)
            {
                mark_dirty(&mut running.work, change);
            }
        }
        let is_synced = self.shared.cache.is_synced(&change.scope) || all_enqueued;
        for key in woken {
            let Some(state) = self.keys.states.get_mut(&key) else {
                continue;
            };
            state.changed_by = Some(object.clone());
            if is_synced && state.running.is_none() && state.wakes_on == WakeOn::AnyChange {
                self.enqueue(&key, Cause::Dependency(Some(object.clone())));
            }
        }
    }

    /// Makes a pass known to the changes of the scopes of its new answers.
    pub(super) fn index_answers(&mut self, running: &mut RunningPass) {
        for scope in std::mem::take(&mut running.work.answered) {
            self.passes
                .answered
                .entry(scope)
                .or_default()
                .insert(running.frame.id);
        }
    }

    /// Makes a pass that ended unknown to the changes of these scopes.
    pub(super) fn forget_answers(&mut self, pass: PassId, scopes: &BTreeSet<Scope>) {
        for scope in scopes {
            if let Some(passes) = self.passes.answered.get_mut(scope) {
                passes.remove(&pass);
                if passes.is_empty() {
                    self.passes.answered.remove(scope);
                }
            }
        }
    }

    /// Notes in a pass what it read: all its answers but the one to the question `answers` may be outdated by it.
    pub(super) fn note_read(
        &self,
        running: &mut RunningPass,
        changes: &[Change],
        answers: Option<&RoleQuestion>,
    ) {
        for change in changes {
            let mut view = ChangeView::new(change, self.digest_key);
            note(
                &running.frame,
                &mut running.work,
                [Some(&mut view), None],
                answers,
            );
        }
    }

    /// Notes in a pass what its write showed, without what the write changed by itself. A watch may have shown that before:
    /// then the write changes nothing in the cache any more.
    pub(super) fn note_write(&self, running: &mut RunningPass, changes: &[Change], own: &[Change]) {
        let scopes: BTreeSet<&Scope> = changes.iter().chain(own).map(|change| &change.scope).collect();
        for scope in scopes {
            let of = |all: &'_ [Change]| all.iter().position(|change| change.scope == *scope);
            let [mut change, mut own] =
                [changes, own].map(|all| of(all).map(|at| ChangeView::new(&all[at], self.digest_key)));
            let view = [change.as_mut(), own.as_mut()];
            note(&running.frame, &mut running.work, view, None);
        }
    }

    /// Whether an answer that the last pass of a key used has changed. Answers from an unsynced scope do not count,
    /// because its objects may be outdated.
    pub(super) fn dependency_changed(&self, key: &Key) -> bool {
        let Some(state) = self.keys.states.get(key) else {
            return false;
        };
        let is_other = |(used, delta): (&(RoleQuestion, Dependency), &AnswerDelta)| {
            let (asked, dependency) = used;
            dependency.is_other(&asked.1, *delta) && self.shared.cache.is_synced(&dependency.scope)
        };
        let not_compared = |scope: &Scope| self.shared.cache.is_synced(scope);
        state.dirty.iter().any(not_compared) || state.last.used.iter().zip(&state.deltas).any(is_other)
    }

    /// Which answers changed because the primary changed: the relation of a grant compares objects with a field of the
    /// primary.
    pub(super) fn relations_changed(
        &self,
        used: &[(RoleQuestion, Dependency)],
        before: Option<&Object>,
        now: Option<&Object>,
    ) -> Vec<bool> {
        let mut relations = Relations {
            primaries: [before, now],
            changed: BTreeMap::new(),
            read: 0,
        };
        let is_changed = |(asked, dependency): &(RoleQuestion, Dependency)| {
            relations.changed(&dependency.grant)
                && relations.alter(&asked.1, dependency, || self.asked_of(&asked.1, dependency))
        };
        used.iter().map(is_changed).collect()
    }

    /// The objects that an answer may be about now.
    fn asked_of(&self, question: &Question, dependency: &Dependency) -> Vec<Object> {
        match question {
            Question::Object(query) => {
                let place = ObjectKey::from(&query.object);
                let known = self.shared.cache.last_known(&dependency.scope, &place);
                known.cloned().into_iter().collect()
            }
            Question::Objects(query) => {
                match self
                    .shared
                    .cache
                    .list(&dependency.scope, query.namespace.as_deref())
                {
                    Lookup::Known(found) => found.to_vec(),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Replaces the dependencies `old` of a key by those of its last pass.
    pub(super) fn reindex(&mut self, key: &Key, tenant_queue: &Arc<str>, old: &[(RoleQuestion, Dependency)]) {
        let state = self.keys.states.get(key);
        if state.is_some_and(|state| self.is_indexed(key, state, old)) {
            return;
        }
        for (asked, dependency) in old {
            if let Some(dependents) = self.keys.wake_index.get_mut(&dependency.scope) {
                dependents.keys.remove(key);
                if let Some(used) = dependents.used.get_mut(tenant_queue) {
                    used.forget(asked, dependency, key);
                }
            }
        }
        for (_, dependency) in old {
            if let Some(dependents) = self.keys.wake_index.get_mut(&dependency.scope) {
                dependents.forget(tenant_queue, key);
            }
        }
        let Some(state) = state else { return };
        for (place, used) in state.last.used.iter().enumerate() {
            let scope = &used.1.scope;
            let dependents = self.keys.wake_index.entry(scope.clone()).or_default();
            dependents.keys.insert(key.clone());
            if !state.dirty.contains(scope) {
                let of_queue = dependents.used.entry(tenant_queue.clone()).or_default();
                of_queue.add(used, key, place);
            }
        }
    }

    /// Whether the dependencies of a key are found already by those of the pass before, because they are the same.
    fn is_indexed(&self, key: &Key, state: &KeyState, old: &[(RoleQuestion, Dependency)]) -> bool {
        let used = &state.last.used;
        let is_same =
            |((old, before), (new, now)): (&(RoleQuestion, Dependency), &(RoleQuestion, Dependency))| {
                old == new && before.scope == now.scope && Arc::ptr_eq(&before.grant, &now.grant)
            };
        let is_current = |scope: &Scope| {
            let dependents = self.keys.wake_index.get(scope);
            let of_queue = dependents.and_then(|dependents| dependents.used.get(&state.tenant_queue));
            of_queue.is_some_and(|of_queue| of_queue.keys.get(key) == Some(&of_queue.round))
        };
        let scopes: BTreeSet<&Scope> = used.iter().map(|(_, dependency)| &dependency.scope).collect();
        state.dirty.is_empty()
            && old.len() == used.len()
            && old.iter().zip(used.iter()).all(is_same)
            && scopes.into_iter().all(is_current)
    }

    /// Removes a key from the scopes that its ended pass asked for and whose answers it did not use, so that their
    /// watches can close.
    pub(super) fn depends_no_more(&mut self, key: &Key, asked: &BTreeSet<Scope>) {
        let state = self.keys.states.get(key);
        for scope in asked {
            let depends =
                state.is_some_and(|state| state.last.used.iter().any(|(_, dep)| dep.scope == *scope));
            if !depends && let Some(dependents) = self.keys.wake_index.get_mut(scope) {
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
        let changed = before != now;
        self.changed.insert(relation.ours.clone(), changed);
        changed
    }

    /// Whether an answer is about other objects now. If too much text was read, it may be.
    fn alter(
        &mut self,
        question: &Question,
        dependency: &Dependency,
        asked: impl FnOnce() -> Vec<Object>,
    ) -> bool {
        if self.read >= READ {
            return true;
        }
        let objects = asked();
        self.read = self.read.saturating_add(bytes(&objects));
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
            before.includes(object) != now.includes(object) && is_asked()
        })
    }
}

impl WakeIndex {
    pub(super) fn has_key_of(&self, binding: &str) -> bool {
        self.keys.iter().any(|key| *key.binding == *binding)
    }

    /// Forgets a key whose questions are forgotten.
    fn forget(&mut self, tenant_queue: &Arc<str>, key: &Key) {
        let Some(used) = self.used.get_mut(tenant_queue) else {
            return;
        };
        used.keys.remove(key);
        if used.keys.is_empty() {
            self.used.remove(tenant_queue);
        }
    }
}

impl TenantQuestions {
    /// Counts a change into the answers that it alters, and enters the keys that used them and wait for no turn yet into
    /// `woken`. `None` if that takes looking at too much.
    fn look(
        &self,
        (tenant_queue, anchors): (&Arc<str>, &[Anchor]),
        view: &mut ChangeView<'_>,
        states: &mut BTreeMap<Key, Box<KeyState>>,
        woken: &mut BTreeSet<Key>,
    ) -> Option<()> {
        for anchor in anchors {
            view.look(tenant_queue)?;
            let from = (self.round, anchor.clone(), least());
            let anchored = self.asked.range(from..);
            let anchored = anchored.take_while(|((round, at, _), _)| (*round, at) == (self.round, anchor));
            for ((_, _, asked), all) in anchored {
                for by in all {
                    let sides = view.sides(tenant_queue, (&asked.1, &by.selection), &by.grant)?;
                    let keys = by.keys.iter().filter(|_| sides[0] != sides[1]);
                    for (key, place) in keys {
                        view.look(tenant_queue)?;
                        let Some(state) = states.get_mut(key) else {
                            continue;
                        };
                        let primary = state.seen.as_ref();
                        let delta = view.delta(tenant_queue, &asked.1, &by.grant, sides, primary)?;
                        if state.count(*place, delta) && !state.is_told() {
                            woken.insert(key.clone());
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// Enters all keys of the present round into `woken`, because their answers cannot all be compared with a change of
    /// the scope. Their next passes begin another round.
    fn give_up(
        &mut self,
        scope: &Scope,
        states: &mut BTreeMap<Key, Box<KeyState>>,
        woken: &mut BTreeSet<Key>,
    ) {
        for (key, _) in self.keys.iter().filter(|(_, round)| **round == self.round) {
            if let Some(state) = states.get_mut(key) {
                state.dirty.insert(scope.clone());
                woken.insert(key.clone());
            }
        }
        self.round += 1;
    }

    fn add(&mut self, (asked, dependency): &(RoleQuestion, Dependency), key: &Key, place: usize) {
        self.keys.insert(key.clone(), self.round);
        let anchored = (self.round, anchor(&asked.1, &dependency.selection), asked.clone());
        let by = self.asked.entry(anchored).or_default();
        let same = |asked: &&mut Askers| Arc::ptr_eq(&asked.grant, &dependency.grant);
        match by.iter_mut().find(same) {
            Some(asked) => {
                asked.keys.insert(key.clone(), place);
            }
            None => by.push(Askers {
                grant: dependency.grant.clone(),
                selection: dependency.selection.clone(),
                keys: BTreeMap::from([(key.clone(), place)]),
            }),
        }
    }

    fn forget(&mut self, asked: &RoleQuestion, dependency: &Dependency, key: &Key) {
        let Some(round) = self.keys.get(key) else {
            return;
        };
        let anchored = (*round, anchor(&asked.1, &dependency.selection), asked.clone());
        let Some(by) = self.asked.get_mut(&anchored) else {
            return;
        };
        by.retain_mut(|asked| {
            asked.keys.remove(key);
            !asked.keys.is_empty()
        });
        if by.is_empty() {
            self.asked.remove(&anchored);
        }
    }
}

/// The anchor of a question.
fn anchor(question: &Question, selection: &Selection) -> Anchor {
    match (question, selection.required_label()) {
        (Question::Object(query), _) => Anchor::Place(ObjectKey::from(&query.object)),
        (_, Some((name, value))) => Anchor::Label(name.into(), value.into()),
        (_, None) => Anchor::None,
    }
}

/// The anchors of the questions whose answers a change may alter.
fn anchors_of(view: &ChangeView<'_>) -> Vec<Anchor> {
    let place = Anchor::Place(view.change().place.clone());
    let labels = view.all_labels().into_iter();
    let labels = labels.map(|(name, value)| Anchor::Label(name.into(), value.into()));
    [Anchor::None, place].into_iter().chain(labels).collect()
}

/// The question that stands before all others.
fn least() -> RoleQuestion {
    let kind = Kind {
        api_version: String::new(),
        kind: String::new(),
    };
    let query = ObjectQuery {
        object: ObjectRef {
            cluster: None,
            kind,
            namespace: None,
            name: String::new(),
        },
        projection: Vec::new(),
        latest: false,
    };
    Arc::new((Role::Identity, Question::Object(query)))
}

impl KeyState {
    /// Counts a change into the answer at a place among those that the last pass used, and returns whether that is another
    /// one now.
    fn count(&mut self, place: usize, by: AnswerDelta) -> bool {
        let (used, delta) = (self.last.used.get(place), self.deltas.get_mut(place));
        let Some(((asked, dependency), delta)) = used.zip(delta) else {
            return false;
        };
        delta.add(by);
        dependency.is_other(&asked.1, *delta)
    }

    /// Whether the key waits for its turn already because of such a change. It is not told again: the next change may come long
    /// before thousands of keys had their turns.
    fn is_told(&self) -> bool {
        self.queued.is_some() && self.has_dependency_cause()
    }
}

/// Notes a change of an object in the answers that a pass used, without what the pass did itself: `[change, own]`.
/// Differences add up, so it does not matter which of them is known first.
fn note(
    frame: &Frame,
    work: &mut Work,
    view: [Option<&mut ChangeView<'_>>; 2],
    answers: Option<&RoleQuestion>,
) {
    let [mut change, mut own] = view;
    let mut is_concerned = false;
    let is_compared = |view: &ChangeView<'_>| !work.dirty.contains(&view.change().scope);
    if ![&change, &own]
        .into_iter()
        .flatten()
        .all(|view| is_compared(view))
    {
        return;
    }
    for (asked, dependency) in &mut work.dependencies {
        if answers == Some(asked) {
            continue;
        }
        let (queue, primary) = (&frame.tenant_queue, frame.snapshot.as_ref());
        let by = |view: &mut Option<&mut ChangeView<'_>>| {
            let view = view.as_mut()?;
            if view.change().scope != dependency.scope {
                return Some(AnswerDelta::default());
            }
            let sides = view.sides(queue, (&asked.1, &dependency.selection), &dependency.grant)?;
            view.delta(queue, &asked.1, &dependency.grant, sides, primary)
        };
        let before = dependency.delta;
        let delta = by(&mut change);
        let delta = match (delta, &change) {
            (Some(delta), _) => delta,
            (None, None) => AnswerDelta::default(),
            (None, Some(view)) => return mark_dirty(work, view.change()),
        };
        let own = by(&mut own).unwrap_or_default();
        dependency.change_by([delta, own]);
        is_concerned |= before != dependency.delta;
    }
    if is_concerned {
        let view = [change, own].into_iter().flatten();
        let mut objects = view.filter_map(|view| view.change().object());
        work.changed_by = objects.next().map(Object::reference);
    }
}

/// Notes in a pass that a change may alter any of its answers about the scope.
fn mark_dirty(work: &mut Work, change: &Change) {
    work.dirty.insert(change.scope.clone());
    work.changed_by = change.object().map(Object::reference);
}
