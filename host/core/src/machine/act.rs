//! Acts: checked, written ahead where they create, then performed one after another.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ask::bad_json;
use super::call::CLUSTER_LONGEST;
use super::pass::{PassState, Purpose, primary_scope};
use super::pending::Pending;
use super::publish::kind_has_conditions;
use super::{Known, Machine};
use crate::binding::{Grant, MintGrant};
use crate::call::{Call, CloudRequest, PendingEntry, Write};
use crate::catalogue::{BEGINS_WITHIN, OperationEffect};
use crate::contract::{
    Act, Answer, CloudAct, Code, Doubt, Effect, Eviction, Failure, Json, ObjectDelete, ObjectPatch,
    ObjectRef, Request,
};
use crate::grants;
use crate::object::{Object, ResourceVersion};
use crate::record::{Outcome, WritePurpose, WriteRecord};
use crate::tree::Tree;

impl Machine {
    /// Begins the acts of a step.
    pub(super) fn act(&mut self, mut pass: Box<PassState>, requests: Vec<Request>) {
        if !pass.acted && self.guards.look_before_the_first_act && !self.primary_stands(&pass) {
            return self.end(
                pass,
                Outcome::Discarded("the object changed before the first act".into()),
            );
        }
        pass.answers = vec![None; requests.len()];
        pass.entered.clear();
        pass.batch = requests;
        for index in 0..pass.batch.len() {
            let Request::Act(act) = &pass.batch[index] else {
                continue;
            };
            let act = act.clone();
            if let Err(failure) = self.check_act(&pass, &act)
                && self.guards.only_what_is_granted
            {
                self.ungranted(&pass.key.binding.clone(), &failure);
                pass.answers[index] = Some(Err(failure));
            } else if let Some(answer) = done_before(&pass, &act)
                .filter(|_| self.guards.nothing_in_doubt_is_done_again)
                .or_else(|| twice(&pass.batch[..index], &act))
            {
                pass.answers[index] = Some(answer);
            }
        }
        self.add_finalizer(pass);
    }

    /// Whether the primary in the cache is still the one this pass read, as far as acts are concerned.
    fn primary_stands(&self, pass: &PassState) -> bool {
        let now = self
            .cache
            .last_known(&primary_scope(&pass.binding), &pass.place());
        match (&pass.snapshot, now) {
            (Some(then), Some(now)) => {
                then.uid() == now.uid()
                    && then.generation() == now.generation()
                    && then.is_deleting() == now.is_deleting()
            }
            (None, None) => true,
            _ => false,
        }
    }

    fn check_act(&self, pass: &PassState, act: &Act) -> Result<(), Failure> {
        let primary = pass.snapshot.as_ref();
        grants::check_act(&pass.binding, primary, act)?;
        if let Act::Patch(act) = act {
            self.leaves_host_conditions(act)?;
        }
        let (object, uid, is): (&ObjectRef, &str, fn(&Grant) -> bool) = match act {
            Act::Patch(act) => (&act.object, &act.precondition.uid, |g| {
                matches!(g, Grant::Patch(_))
            }),
            Act::Delete(act) => (&act.object, &act.precondition.uid, |g| {
                matches!(g, Grant::Delete(_))
            }),
            Act::Evict(act) => (&act.object, &act.precondition.uid, |g| {
                matches!(g, Grant::Evict(_))
            }),
            Act::Cloud(_) | Act::Create(_) | Act::Mint(_) => return self.check_finalizer(pass),
        };
        if grants::is_by_relation(&pass.binding, primary, is, object) {
            let name = &object.name;
            // What nobody has seen, or is another object by now, may stand in any relation.
            let other = self.cache.find(object).ok_or_else(|| {
                let message = format!(
                    "{} {name} was not looked at: nobody knows whose it is",
                    object.kind.kind
                );
                Failure::new(Code::Unavailable, message)
            })?;
            if other.uid() != uid {
                let message = format!("{} {name} is not the one with the uid {uid}", object.kind.kind);
                return Err(Failure::new(Code::Aborted, message));
            }
            grants::check_relation(&pass.binding, primary, is, &other)?;
        }
        self.check_finalizer(pass)
    }

    /// Whether a patch of another object leaves the conditions of hosts as they are. Lists are replaced whole by it: so
    /// it must hold them, on the version that it was compared with; none where no host writes conditions.
    fn leaves_host_conditions(&self, act: &ObjectPatch) -> Result<Option<ResourceVersion>, Failure> {
        let patch = act.patch.object("patch")?;
        if patch["status"].get("conditions").is_none() {
            return Ok(None);
        }
        let ObjectRef {
            kind,
            namespace,
            name,
        } = &act.object;
        let governing = |binding: &&std::sync::Arc<crate::binding::Binding>| {
            binding.spec.governs.kind() == *kind && kind_has_conditions(binding)
        };
        let governing: Vec<_> = self.bindings.values().filter(governing).collect();
        let wanted = grants::host_conditions(patch);
        if governing.is_empty() && wanted.is_empty() {
            return Ok(None);
        }
        let place = (namespace.clone(), name.clone());
        let mut shown = governing
            .iter()
            .filter_map(|binding| self.cache.last_known(&primary_scope(binding), &place));
        let Some(now) = shown.next() else {
            let message = format!("{} {name}: its conditions are not known here", kind.kind);
            return Err(Failure::new(Code::Unavailable, message));
        };
        match grants::host_conditions(now.value()) == wanted {
            true => Ok(Some(now.version())),
            false => Err(Failure::new(
                Code::PermissionDenied,
                format!(
                    "not granted: write conditions of the host on {} {name}: a list of conditions keeps them as they are",
                    kind.kind
                ),
            )),
        }
    }

    /// On a deleting object whose finalizer is gone nothing is done any more.
    fn check_finalizer(&self, pass: &PassState) -> Result<(), Failure> {
        match (&pass.current, pass.finalizer()) {
            (Some(object), Some(finalizer)) if object.is_deleting() && !object.has_finalizer(finalizer) => {
                Err(Failure::new(
                    Code::FailedPrecondition,
                    format!("{} is being deleted and no longer holds {finalizer}", pass.key),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Writes the finalizer first, where the lifecycle names one and the object lacks it.
    fn add_finalizer(&mut self, pass: Box<PassState>) {
        let unanswered = pass.answers.iter().any(Option::is_none);
        let missing = match (&pass.current, pass.finalizer()) {
            (Some(object), Some(finalizer)) if unanswered && !object.has_finalizer(finalizer) => {
                let mut all = object.value()["metadata"]["finalizers"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                all.push(json!(finalizer));
                Some(json!({"metadata": {"finalizers": all}}))
            }
            _ => None,
        };
        match missing {
            None => self.write_ahead(pass),
            Some(patch) => self.write_primary(pass, Purpose::AddFinalizer, None, patch),
        }
    }

    pub(super) fn finalizer_added(&mut self, mut pass: Box<PassState>, answer: Answer) {
        match self.primary_written(&mut pass, WritePurpose::AddFinalizer, answer) {
            Ok(()) => {
                let kept = match (&pass.current, pass.finalizer()) {
                    (Some(object), Some(finalizer)) => object.has_finalizer(finalizer),
                    _ => true,
                };
                if !kept {
                    let path = "metadata.finalizers";
                    self.not_kept(&pass.key.clone(), path.to_owned());
                    pass.refuse(|_| true, &format!("the API server did not keep {path}"));
                }
                self.write_ahead(pass);
            }
            Err(failure) => self.not_written(pass, failure, |_| true),
        }
    }

    /// Enters every create of the step into `status.pending`, by one status patch.
    fn write_ahead(&mut self, mut pass: Box<PassState>) {
        let creates: Vec<(usize, CloudAct)> = pass
            .batch
            .iter()
            .enumerate()
            .filter(|(index, _)| pass.answers[*index].is_none())
            .filter_map(|(index, request)| match request {
                Request::Act(Act::Cloud(act)) if act.intent.is_some() => Some((index, act.clone())),
                _ => None,
            })
            .collect();
        let Some(current) = pass.current.clone() else {
            return self.perform(pass);
        };
        if creates.is_empty() {
            return self.perform(pass);
        }
        let mut replaced = std::collections::BTreeSet::new();
        pass.entered_at = self.now.boot;
        for (index, act) in creates {
            let intent = act.intent.unwrap_or_default();
            let entry = PendingEntry {
                key: fresh_key(&current, &act.operation, &intent, index),
                operation: act.operation,
                intent,
                since: self.now.unix,
            };
            replaced.insert((entry.operation.clone(), entry.intent.clone()));
            if let Some(state) = self.keys.get_mut(&pass.key) {
                let known = Known {
                    written_here: true,
                    ..Known::seen(self.now.boot)
                };
                state.known.insert(entry.key.clone(), known);
            }
            pass.entered.insert(index, entry);
        }
        if !self.guards.write_ahead {
            return self.perform(pass);
        }
        let new: Vec<PendingEntry> = pass.entered.values().cloned().collect();
        // What the cloud said is absent makes room for its successor.
        let makes_room = |entry: &PendingEntry| {
            pass.resolved.contains(&entry.key)
                && replaced.contains(&(entry.operation.clone(), entry.intent.clone()))
        };
        let pending = Pending::of(current.value()).without(makes_room, &new);
        let patch = json!({"status": {"pending": pending}});
        self.write_primary(pass, Purpose::WriteAhead, Some("status"), patch);
    }

    pub(super) fn written_ahead(&mut self, mut pass: Box<PassState>, answer: Answer) {
        match self.primary_written(&mut pass, WritePurpose::WriteAhead, answer) {
            Ok(()) => {
                let stands = pass.current.as_ref().map(|object| Pending::of(object.value()));
                let kept =
                    |entry: &PendingEntry| stands.iter().flat_map(Pending::entries).any(|e| e == entry);
                let missing = |(_, entry): &(&usize, &PendingEntry)| !kept(entry);
                let lost: Vec<usize> = pass
                    .entered
                    .iter()
                    .filter(missing)
                    .map(|(index, _)| *index)
                    .collect();
                if !lost.is_empty() {
                    let path = "status.pending";
                    self.not_kept(&pass.key.clone(), path.to_owned());
                    let why = format!("the API server did not keep {path}: the CRD lacks it");
                    pass.refuse(|index| lost.contains(&index), &why);
                    pass.entered.retain(|index, _| !lost.contains(index));
                }
                self.perform(pass);
            }
            Err(failure) => {
                let creates: Vec<usize> = pass.entered.keys().copied().collect();
                self.not_written(pass, failure, |index| creates.contains(&index));
            }
        }
    }

    /// A write that had to come before an act failed: nothing was done.
    fn not_written(&mut self, mut pass: Box<PassState>, failure: Failure, affected: impl Fn(usize) -> bool) {
        if !pass.acted {
            return self.end(
                pass,
                Outcome::Discarded(format!("before the first act: {failure}")),
            );
        }
        for index in 0..pass.batch.len() {
            if affected(index) {
                pass.abort(index, &failure.message);
            }
        }
        pass.entered.clear();
        self.perform(pass);
    }

    /// Performs the next act that has no answer; goes on with the policy when there is none.
    pub(super) fn perform(&mut self, pass: Box<PassState>) {
        if self.is_too_late(&pass) {
            return self.give_up_entered(pass);
        }
        let Some(index) = pass.answers.iter().position(Option::is_none) else {
            return self.acts_answered(pass);
        };
        let Request::Act(act) = pass.batch[index].clone() else {
            return self.suspend(pass);
        };
        let purpose = Purpose::Answer {
            index,
            act: true,
            synced: true,
        };
        let (call, longest) = match act {
            Act::Cloud(act) => {
                // They are JSON: an act whose arguments are none was answered when it was checked.
                let arguments = act.arguments.tree(&act.operation).cloned().unwrap_or_default();
                let longest = pass
                    .binding
                    .catalogue
                    .operations
                    .get(&act.operation)
                    .map(|o| o.longest);
                let request = CloudRequest {
                    session: pass.session(),
                    operation: act.operation,
                    arguments,
                    key: pass.entered.get(&index).map(|entry| entry.key.clone()),
                };
                (Call::Cloud(request), longest.unwrap_or(CLUSTER_LONGEST))
            }
            Act::Mint(mint) => {
                let grant = grants::minted(&pass.binding, &mint.kind);
                let call = Call::Mint {
                    count: grant.map_or(0, MintGrant::count),
                    kind: mint.kind,
                    ttl: mint.ttl,
                    owner: pass.uid().to_owned(),
                };
                (call, CLUSTER_LONGEST)
            }
            mut act => {
                match &mut act {
                    Act::Patch(patch) => self.pin(patch),
                    Act::Delete(ObjectDelete { precondition, .. })
                    | Act::Evict(Eviction { precondition, .. })
                        if !self.guards.acts_have_preconditions =>
                    {
                        precondition.uid.clear();
                        precondition.resource_version = None;
                    }
                    _ => {}
                }
                (Call::Write(Write::Act(act)), CLUSTER_LONGEST)
            }
        };
        self.fenced(pass, purpose, call, longest);
    }

    /// A patch that holds conditions of the host goes to the version that they were compared with.
    fn pin(&self, patch: &mut ObjectPatch) {
        let version = &mut patch.precondition.resource_version;
        if !self.guards.acts_have_preconditions {
            *version = None;
        } else if version.is_none() {
            // It was compared when the acts of the step were checked; if that fails now, no version fits.
            let compared = self
                .leaves_host_conditions(patch)
                .unwrap_or(Some(ResourceVersion(0)));
            patch.precondition.resource_version = compared.map(|version| version.0.to_string());
        }
    }

    /// Whether acts that are left may not begin any more: the primary changed before the first, or the entries of
    /// creates were made so long ago that the cloud would call absent what they bring into being.
    fn is_too_late(&self, pass: &PassState) -> bool {
        let left = |index: &usize| pass.answers[*index].is_none();
        let changed = !pass.acted && self.guards.look_before_the_first_act && !self.primary_stands(pass);
        let old = self.now.boot > pass.entered_at + BEGINS_WITHIN && pass.entered.keys().any(left);
        (changed && (0..pass.answers.len()).any(|index| left(&index))) || old
    }

    /// Gives up acts that may not begin any more. What was written ahead of them is known not to have happened: the
    /// policy is told so, and its conclusion takes the entries away again.
    fn give_up_entered(&mut self, mut pass: Box<PassState>) {
        if pass.entered.is_empty() {
            let why = "the object changed before the first act";
            return self.end(pass, Outcome::Discarded(why.into()));
        }
        let all = !pass.acted;
        for index in 0..pass.batch.len() {
            if all || pass.entered.contains_key(&index) {
                pass.abort(index, "the object changed, or it took too long to begin");
            }
        }
        self.perform(pass);
    }

    /// An act has its answer.
    pub(super) fn performed(&mut self, mut pass: Box<PassState>, index: usize, answer: Answer) {
        let definite = answer
            .as_ref()
            .map_or_else(|failure| failure.effect == Effect::None, |_| true);
        if definite && let Some(entry) = pass.entered.get(&index) {
            pass.resolved.insert(entry.key.clone());
        }
        let answer = match (&pass.batch[index], answer) {
            (Request::Act(Act::Cloud(_) | Act::Mint(_)), answer) => answer,
            (Request::Act(act), Ok(object)) => {
                let act = act.clone();
                self.other_written(&mut pass, &act, object)
            }
            (_, answer) => answer,
        };
        pass.answers[index] = Some(answer);
        self.perform(pass);
    }

    /// Enters what an act left behind into the cache: it wakes others, not this key.
    /// The policy gets uid, version and generation, never content.
    fn other_written(&mut self, pass: &mut PassState, act: &Act, object: Value) -> Answer {
        let changes = match act {
            Act::Delete(act) if object.is_null() => self.cache.own_delete(&act.object, &act.precondition.uid),
            _ if !self.guards.own_writes_enter_the_cache => Vec::new(),
            _ if object["metadata"].is_object() => self.cache.own_write(&Object::new(object.clone())),
            _ => Vec::new(),
        };
        // A watch may have shown it before it was answered: then it changes nothing here, and is no news all the same.
        let (kind, uid, version) = match act {
            Act::Delete(ObjectDelete {
                object, precondition, ..
            })
            | Act::Evict(Eviction {
                object, precondition, ..
            }) => (object.kind.clone(), precondition.uid.clone(), u64::MAX),
            _ => {
                let object = Object::new(object.clone());
                (object.kind(), object.uid().to_owned(), object.version().0)
            }
        };
        let own = self.guards.own_writes_wake_nothing.then(|| pass.key.clone());
        self.changed(changes, own.as_ref());
        self.absorb_own_write(pass, &kind, &uid, version);
        // What is gone was what the act named.
        let named = match act {
            Act::Delete(ObjectDelete { precondition, .. }) | Act::Evict(Eviction { precondition, .. }) => {
                json!(precondition.uid)
            }
            _ => Value::Null,
        };
        let metadata = &object["metadata"];
        let left = |field: &str| metadata.get(field).cloned().unwrap_or_default();
        let uid = metadata.get("uid").cloned().unwrap_or(named);
        Ok(json!({
            "uid": uid, "resourceVersion": left("resourceVersion"), "generation": left("generation")
        }))
    }

    fn acts_answered(&mut self, mut pass: Box<PassState>) {
        let limit = pass.binding.spec.limits.answer;
        let answers = std::mem::take(&mut pass.answers);
        for (request, answer) in std::mem::take(&mut pass.batch)
            .into_iter()
            .zip(answers.into_iter().flatten())
        {
            pass.run
                .append(request, answer.map(|value| Json::from(value.to_string())), limit);
        }
        self.call_policy(pass);
    }

    /// Writes the primary before an act, on the version that this pass knows.
    fn write_primary(
        &mut self,
        pass: Box<PassState>,
        purpose: Purpose,
        subresource: Option<&str>,
        patch: Value,
    ) {
        let Some(current) = pass.current.clone() else {
            return self.perform(pass);
        };
        let mut patch = Tree::new(patch);
        if self.guards.precondition {
            patch.set(&["metadata", "uid"], current.uid());
            patch.set(&["metadata", "resourceVersion"], current.version().0.to_string());
        }
        let write = Write::Patch {
            object: current.reference(),
            subresource: subresource.map(str::to_owned),
            patch: patch.into_value(),
        };
        self.fenced(pass, purpose, Call::Write(write), CLUSTER_LONGEST);
    }

    /// Takes in what a write of the primary left: into the cache first, so that its echo is no news.
    pub(super) fn primary_written(
        &mut self,
        pass: &mut PassState,
        purpose: WritePurpose,
        answer: Answer,
    ) -> Result<(), Failure> {
        match answer {
            Ok(object) => {
                let object = Object::new(object);
                let version = Some(object.version().0);
                pass.writes.push(WriteRecord {
                    purpose,
                    version,
                    failure: None,
                });
                let changes = match self.guards.own_writes_enter_the_cache {
                    true => self.cache.own_write(&object),
                    false => Vec::new(),
                };
                pass.current = Some(object.clone());
                let own = self.guards.own_writes_wake_nothing.then(|| pass.key.clone());
                self.changed(changes, own.as_ref());
                self.absorb_own_write(pass, &object.kind(), object.uid(), object.version().0);
                Ok(())
            }
            Err(failure) => {
                pass.writes.push(WriteRecord {
                    purpose,
                    version: None,
                    failure: Some(failure.clone()),
                });
                Err(failure)
            }
        }
    }
}

impl PassState {
    /// Answers an act that was not begun, and may be the next time.
    fn abort(&mut self, index: usize, why: &str) {
        self.not_begun(index, Code::Aborted, why);
    }

    /// Answers acts that cannot begin until somebody changes the world.
    fn refuse(&mut self, affected: impl Fn(usize) -> bool, why: &str) {
        for index in (0..self.answers.len()).filter(|index| affected(*index)) {
            self.not_begun(index, Code::FailedPrecondition, why);
        }
    }

    fn not_begun(&mut self, index: usize, code: Code, why: &str) {
        if self.answers[index].is_none() {
            let failure = Failure::new(code, format!("not performed: {why}"));
            self.answers[index] = Some(Err(failure));
            self.resolved
                .extend(self.entered.get(&index).map(|entry| entry.key.clone()));
        }
    }
}

/// Nothing in doubt is performed again: what the cloud said was done is answered with that,
/// and what it cannot tell is refused.
fn done_before(pass: &PassState, act: &Act) -> Option<Answer> {
    let Act::Cloud(CloudAct {
        operation,
        intent: Some(intent),
        ..
    }) = act
    else {
        return None;
    };
    let effect = pass.binding.catalogue.operations.get(operation)?.effect;
    if effect != OperationEffect::Create {
        return None;
    }
    if let Some(unreadable) = &pass.unreadable {
        let message = format!("{operation} of {intent}: something of it may be in doubt: {unreadable}");
        return Some(Err(Failure::new(Code::FailedPrecondition, message)));
    }
    for (entry, doubt) in pass.found.iter().zip(&pass.doubts) {
        if entry.operation != *operation || entry.intent != *intent {
            continue;
        }
        match doubt {
            Some(Doubt::Done(answer)) => {
                return Some(serde_json::from_str(answer).map_err(|e| bad_json(operation, &e)));
            }
            Some(Doubt::Absent) => {}
            Some(Doubt::Unknown) | None => {
                let message = format!("{operation} of {intent} is in doubt: the cloud cannot say yet");
                return Some(Err(Failure::new(Code::FailedPrecondition, message)));
            }
        }
    }
    let again = pass.current.as_ref().is_some_and(|object| {
        Pending::of(object.value())
            .entries()
            .any(|e| e.operation == *operation && e.intent == *intent && !pass.resolved.contains(&e.key))
    });
    again.then(|| {
        let message = format!(
            "{operation} of {intent} was requested before in this pass, and its outcome is not known"
        );
        Err(Failure::new(Code::FailedPrecondition, message))
    })
}

/// The same create twice in one step.
fn twice(earlier: &[Request], act: &Act) -> Option<Answer> {
    let Act::Cloud(CloudAct {
        operation,
        intent: Some(intent),
        ..
    }) = act
    else {
        return None;
    };
    let same = |request: &Request| match request {
        Request::Act(Act::Cloud(other)) => {
            other.operation == *operation && other.intent.as_ref() == Some(intent)
        }
        _ => false,
    };
    earlier.iter().any(same).then(|| {
        let message = format!("{operation} of {intent} is requested twice in one step");
        Err(Failure::new(Code::FailedPrecondition, message))
    })
}

/// A key that no other write of a pending entry makes: the version it is written on is part of it.
fn fresh_key(current: &Object, operation: &str, intent: &str, index: usize) -> String {
    let hash = Sha256::new_with_prefix(current.uid().as_bytes())
        .chain_update(current.version().0.to_le_bytes())
        .chain_update(operation.as_bytes())
        .chain_update([0])
        .chain_update(intent.as_bytes())
        .chain_update(index.to_le_bytes())
        .finalize();
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
