//! Publication: the conclusion's patch in ordered writes, rebased where nobody else wrote the same values.

use serde_json::{Value, json};

use super::Machine;
use super::call::CLUSTER_LONGEST;
use super::pass::{Concluded, PassState, Purpose};
use super::pending::Pending;
use crate::call::{Call, Write};
use crate::contract::{
    Answer, Code, Effect, Event, EventType, Failure, Next, ObjectQuery, Question, RetryClass,
};
use crate::grants::{self, HOST_CONDITION};
use crate::object::Object;
use crate::path;
use crate::plan::{self, Edits, Part};
use crate::record::{Outcome, WritePurpose};
use crate::time::rfc3339;
use crate::tree::Tree;

/// Rebases of one publication before it counts as failed: an object that changes faster than it can be written.
const REBASES: u32 = 8;
/// Characters of a message in an Event or a condition.
const MESSAGE: usize = 1_024;
/// Characters of the reason of an Event.
const REASON: usize = 128;

/// A conclusion on its way to the cluster.
pub(super) struct Publication {
    pub(super) outcome: Outcome,
    pub(super) events: Vec<Event>,
    edits: Option<Edits>,
    part: Part,
    rebases: u32,
    /// The primary before it was rebased on what no pass has seen.
    pub(super) unseen: Option<Object>,
    /// Conditions of the host: what stands in the way of this object, by type.
    conditions: Vec<(&'static str, String)>,
    drops_pending: bool,
}

impl Machine {
    /// Publishes what the pass concluded.
    pub(super) fn publish(&mut self, mut pass: Box<PassState>, concluded: Concluded, outcome: Outcome) {
        let Concluded {
            conclusion,
            mut patch,
        } = concluded;
        let mut events = conclusion.events;
        if !self.guards.locks_last_until_published {
            self.permits.release(pass.id);
        }
        if let (Some(judged), Some(snapshot)) = (pass.judged.take(), &pass.snapshot) {
            events = [judged.conclusion.events, events].concat();
            patch = plan::combine(&judged.patch, &patch, snapshot.value());
        }
        events.truncate(pass.binding.spec.limits.events as usize);
        for event in &mut events {
            event.reason = event.reason.chars().take(REASON).collect();
            event.message = event.message.chars().take(MESSAGE).collect();
        }
        if outcome == Outcome::Released {
            patch = released(&pass, patch);
            events.push(Event {
                kind: EventType::Warning,
                reason: "Released".into(),
                message: "let go without its identity: cloud resources of this object may remain".into(),
            });
        }
        let mut next = conclusion.next;
        let keeps = self.guards.doubt_keeps_the_finalizer && outcome != Outcome::Released;
        if keeps && keeps_finalizer(&pass, &mut patch) {
            next = Next::Retry {
                class: RetryClass::Medium,
                failure: None,
            };
        }
        let conditions = host_conditions(&pass, &next);
        pass.next = Some(next);
        pass.publication = Some(Publication {
            drops_pending: outcome == Outcome::Released,
            outcome,
            events,
            edits: pass.snapshot.clone().map(|snapshot| Edits::new(snapshot, patch)),
            part: Part::Main,
            rebases: 0,
            unseen: None,
            conditions,
        });
        self.write_next(pass);
    }

    /// Writes the next part that does not stand yet; ends the pass when all do.
    fn write_next(&mut self, mut pass: Box<PassState>) {
        let unix = self.now.unix;
        while let Some((part, current)) = pass.next_part() {
            let desired = pass.desired(&current, unix);
            let is_futile = self.is_futile(&pass.key, part, &current, &desired);
            if let Some(patch) = plan::write(part, &current, &desired).filter(|_| !is_futile) {
                let mut patch = Tree::new(patch);
                if !self.guards.precondition {
                    patch.remove(&["metadata", "resourceVersion"]);
                }
                let patch = patch.into_value();
                let subresource = (part == Part::Status).then(|| "status".to_owned());
                let write = Write::Patch {
                    object: current.reference(),
                    subresource,
                    patch,
                };
                return self.fenced(pass, Purpose::Publish, Call::Write(write), CLUSTER_LONGEST);
            }
            pass.advance_part(part);
        }
        let outcome = pass
            .publication
            .as_ref()
            .map_or(Outcome::Published, |p| p.outcome.clone());
        self.end(pass, outcome);
    }

    /// A part is written, or is not.
    pub(super) fn published(&mut self, mut pass: Box<PassState>, answer: Answer) {
        let Some(part) = pass.publication.as_ref().map(|p| p.part) else {
            return self.suspend(pass);
        };
        match self.primary_written(&mut pass, WritePurpose::Publish(part), answer) {
            Ok(()) => {
                self.compare(&pass, part);
                pass.advance_part(part);
                self.write_next(pass);
            }
            Err(failure) if failure.code == Code::NotFound => self.vanished(pass, part),
            Err(failure) if failure.code == Code::Aborted || failure.effect == Effect::Unknown => {
                let Some(current) = pass.current.clone() else {
                    return self.suspend(pass);
                };
                let query = ObjectQuery {
                    object: current.reference(),
                    projection: Vec::new(),
                    latest: true,
                };
                // What is not this host's any more is not looked at to be written either.
                if !self.is_holder() && self.guards.fencing {
                    return self.end(pass, Outcome::LeaseLost);
                }
                let read = Call::Read(Question::Object(query));
                self.emit(
                    super::Target::Pass(pass.id, Purpose::Reread),
                    read,
                    CLUSTER_LONGEST,
                );
                self.suspend(pass);
            }
            Err(failure) => self.end(pass, Outcome::Failed(failure)),
        }
    }

    /// Compares what was written with what the API server answered. What it did not keep is shown on the binding once, and
    /// just that is not written again.
    fn compare(&mut self, pass: &PassState, part: Part) {
        let Some(answer) = &pass.current else { return };
        let desired = pass.desired(answer, self.now.unix);
        for path in plan::not_kept(part, answer, &desired) {
            self.not_kept(&pass.key, path);
        }
        let left = plan::change(part, answer.value(), &desired).map(|change| path::digest(&change));
        if let Some(state) = self.keys.get_mut(&pass.key) {
            match left {
                Some(left) => state.futile.insert(part, left),
                None => state.futile.remove(&part),
            };
        }
    }

    /// Whether a part needs nothing but what the API server did not keep the last time.
    fn is_futile(&self, key: &crate::key::Key, part: Part, current: &Object, desired: &Value) -> bool {
        let left = self.keys.get(key).and_then(|state| state.futile.get(&part));
        left.is_some_and(|left| {
            plan::change(part, current.value(), desired).is_some_and(|change| path::digest(&change) == *left)
        })
    }

    /// After a conflict: what stands now decides whether the publication is rebased, thinned or given up.
    pub(super) fn reread(&mut self, mut pass: Box<PassState>, answer: Answer) {
        let fresh = match answer {
            Ok(object) => Object::new(object),
            Err(failure) if failure.code == Code::NotFound => {
                let part = pass.publication.as_ref().map_or(Part::Main, |p| p.part);
                return self.vanished(pass, part);
            }
            Err(failure) => return self.end(pass, Outcome::Failed(failure)),
        };
        if fresh.uid() != pass.uid() {
            return self.end(
                pass,
                Outcome::Discarded("another object stands at its name".into()),
            );
        }
        let acted = pass.acted;
        let news = pass.is_news(&fresh, self.now.unix);
        // What was read here is newer than what the watch showed: no pass may see less.
        let changes = self.cache.own_write(&fresh);
        self.changed(changes, Some(&pass.key));
        let before = pass.current.replace(fresh.clone());
        let Some(publication) = pass.publication.as_mut() else {
            return self.suspend(pass);
        };
        publication.rebases += 1;
        if publication.rebases > REBASES {
            let message = format!("the object changed {REBASES} times while it was published");
            return self.end(pass, Outcome::Failed(Failure::new(Code::Aborted, message)));
        }
        let conflicts = match &publication.edits {
            Some(edits) if self.guards.rebase_only_what_nobody_changed => edits.conflicts(fresh.value()),
            _ => Vec::new(),
        };
        if !conflicts.is_empty() && !acted {
            let message = format!("somebody else changed {}", conflicts.join(", "));
            return self.end(pass, Outcome::Discarded(message));
        }
        if !conflicts.is_empty() {
            publication.edits = publication.edits.take().map(|edits| edits.without(&conflicts));
            publication.events.push(Event {
                kind: EventType::Warning,
                reason: "EditDropped".into(),
                message: format!(
                    "somebody else changed {}: their value stands",
                    conflicts.join(", ")
                ),
            });
        }
        if news && publication.unseen.is_none() && self.guards.unseen_changes_wake {
            publication.unseen = before;
        }
        self.write_next(pass);
    }

    /// The object is gone: for the removal of its last finalizer that is success.
    fn vanished(&mut self, pass: Box<PassState>, part: Part) {
        if let (Some(current), uid) = (&pass.current, pass.uid().to_owned()) {
            let changes = self.cache.own_delete(&current.reference(), &uid);
            self.changed(changes, Some(&pass.key));
        }
        match part {
            Part::Finalizer => {
                let outcome = pass
                    .publication
                    .as_ref()
                    .map_or(Outcome::Published, |p| p.outcome.clone());
                self.end(pass, outcome);
            }
            _ => self.end(pass, Outcome::Discarded("the object is gone".into())),
        }
    }
}

impl Publication {
    /// Nothing to write: of a pass that ended before it concluded.
    pub(super) fn nothing() -> Self {
        Publication {
            outcome: Outcome::Published,
            events: Vec::new(),
            edits: None,
            part: Part::Finalizer,
            rebases: 0,
            unseen: None,
            conditions: Vec::new(),
            drops_pending: false,
        }
    }
}

impl PassState {
    fn next_part(&self) -> Option<(Part, Object)> {
        let publication = self.publication.as_ref()?;
        publication.edits.as_ref()?;
        Some((publication.part, self.current.clone()?))
    }

    /// The part after this one; after the last, there is nothing left to write.
    fn advance_part(&mut self, part: Part) {
        if let Some(publication) = self.publication.as_mut() {
            match part {
                Part::Main => publication.part = Part::Status,
                Part::Status => publication.part = Part::Finalizer,
                Part::Finalizer => publication.edits = None,
            }
        }
    }

    /// Whether a version that was read after a failed write holds more than that write, which may have been performed.
    fn is_news(&self, fresh: &Object, unix: u64) -> bool {
        let Some((part, current)) = self.next_part() else {
            return true;
        };
        let mut written = current.value().clone();
        if let Some(patch) = plan::write(part, &current, &self.desired(&current, unix)) {
            plan::apply(&patch, &mut written);
        }
        let mut written = Tree::new(written);
        written.set(
            &["metadata", "generation"],
            fresh.value()["metadata"]["generation"].clone(),
        );
        fresh.version() != current.version() && !path::same_content(written.value(), fresh.value())
    }

    /// What the primary shall look like: the policies' edits, the pending entries that stand, the host's conditions.
    fn desired(&self, current: &Object, unix: u64) -> Value {
        let Some(publication) = &self.publication else {
            return current.value().clone();
        };
        let mut desired = Tree::new(match &publication.edits {
            Some(edits) => edits.onto(current.value()),
            None => current.value().clone(),
        });
        if current.value()["status"].get("pending").is_some() {
            let gone = |key: &String| publication.drops_pending || self.resolved.contains(key);
            match Pending::of(current.value()).without(|entry| gone(&entry.key), &[]) {
                Value::Null => desired.remove(&["status", "pending"]),
                left => desired.set(&["status", "pending"], left),
            }
        }
        set_host_conditions(
            &mut desired,
            current.value(),
            &publication.conditions,
            has_conditions(self),
            unix,
        );
        desired.into_value()
    }
}

/// Whether the kind's CRD has `status.conditions`.
pub(super) fn has_conditions(pass: &PassState) -> bool {
    kind_has_conditions(&pass.binding)
}

pub(super) fn kind_has_conditions(binding: &crate::binding::Binding) -> bool {
    let governed = &binding.spec.governs.kind;
    let mut crds = binding
        .policies
        .values()
        .flat_map(|policy| policy.manifest.crds());
    crds.any(|crd| {
        let named = &crd["spec"]["names"]["kind"];
        let versions = crd["spec"]["versions"].as_array();
        (named.is_null() || *named == **governed)
            && versions.into_iter().flatten().any(|v| {
                let status = &v["schema"]["openAPIV3Schema"]["properties"]["status"];
                status["properties"]["conditions"]["type"] == "array"
            })
    })
}

/// Whether the policy ended before it did anything: it could not read its own object.
fn read_nothing(pass: &PassState) -> bool {
    let last = pass.finished.last().and_then(|role| role.conclusion.as_ref());
    last.is_some_and(|last| last.used.is_empty() && last.notes.is_empty() && last.patch.is_none())
}

/// What the host has to say of an object beside what its policies say.
fn host_conditions(pass: &PassState, next: &Next) -> Vec<(&'static str, String)> {
    let mut conditions = Vec::new();
    if let Next::Retry {
        class: RetryClass::Long,
        failure: Some(failure),
    } = next
        && failure.code == Code::InvalidArgument
        && read_nothing(pass)
    {
        conditions.push(("polity.dev/Undecodable", failure.message.clone()));
    }
    let pending = pass.current.as_ref().map(|object| Pending::of(object.value()));
    if let Some(unreadable) = pending.and_then(|pending| pending.unreadable()) {
        let message =
            format!("nothing is created while this host cannot read what is in doubt: {unreadable}");
        conditions.push(("polity.dev/PendingUnreadable", message));
    }
    if pass.slowed {
        conditions.push((
            "polity.dev/Slowed",
            "its policy asks for passes faster than its limit".into(),
        ));
    }
    conditions
}

/// Replaces the host's own conditions; a condition whose status did not change keeps its transition time.
pub(super) fn set_host_conditions(
    desired: &mut Tree,
    current: &Value,
    wanted: &[(&'static str, String)],
    supported: bool,
    unix: u64,
) {
    let old = grants::host_conditions(current);
    if !supported || (wanted.is_empty() && old.is_empty()) {
        return;
    }
    let all = desired.get(&["status", "conditions"]).and_then(Value::as_array);
    let mut list = all.cloned().unwrap_or_default();
    list.retain(|c| !grants::is_host_condition(c));
    for (kind, message) in wanted {
        let since = old
            .iter()
            .find(|c| c["type"] == *kind)
            .and_then(|c| c["lastTransitionTime"].as_str().map(str::to_owned))
            .unwrap_or_else(|| rfc3339(unix));
        let message: String = message.chars().take(MESSAGE).collect();
        let reason = kind.trim_start_matches(HOST_CONDITION);
        list.push(json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since
        }));
    }
    desired.set(&["status", "conditions"], list);
}

/// Keeps the lifecycle's finalizer while a create may have happened that nobody accounted for: says if it had to.
fn keeps_finalizer(pass: &PassState, patch: &mut Value) -> bool {
    let (Some(snapshot), Some(current), Some(finalizer)) = (&pass.snapshot, &pass.current, pass.finalizer())
    else {
        return false;
    };
    let standing = Pending::of(current.value()).is_open(&pass.resolved);
    if !standing && !pass.is_in_doubt() {
        return false;
    }
    let Some(wanted) = patch.pointer_mut("/metadata/finalizers") else {
        return false;
    };
    match wanted {
        Value::Array(wanted) if snapshot.has_finalizer(finalizer) => {
            let removes = !wanted.iter().any(|f| f == finalizer);
            if removes {
                wanted.push(json!(finalizer));
            }
            removes
        }
        Value::Null => {
            *wanted = snapshot.value()["metadata"]["finalizers"].clone();
            true
        }
        _ => false,
    }
}

/// The identity's patch, and the lifecycle's finalizer removed.
fn released(pass: &PassState, patch: Value) -> Value {
    let mut patch = Tree::new(patch);
    if let (Some(snapshot), Some(finalizer)) = (&pass.snapshot, pass.finalizer()) {
        let path = ["metadata", "finalizers"];
        let snapshot = &snapshot.value()["metadata"]["finalizers"];
        let held = patch.get(&path).unwrap_or(snapshot).as_array().cloned();
        let kept = held.unwrap_or_default().into_iter().filter(|f| f != finalizer);
        let kept: Vec<Value> = kept.collect();
        patch.set(&path, kept);
    }
    patch.into_value()
}
