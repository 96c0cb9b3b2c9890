//! Publication: the conclusion's patch in ordered writes, rebased where nobody else wrote the same values.

use serde_json::{Value, json};

use super::Machine;
use super::call::CLUSTER_LONGEST;
use super::pass::{PassState, Purpose, pending_entries};
use crate::call::{Call, Write};
use crate::contract::{
    Answer, Code, Conclusion, Effect, Event, EventType, Failure, Next, ObjectQuery, Question, RetryClass,
    Role,
};
use crate::object::Object;
use crate::plan::{self, Edits, Part};
use crate::record::{Outcome, WritePurpose};
use crate::time::rfc3339;

/// Rebases of one publication before it counts as failed: an object that changes faster than it can be written.
const REBASES: u32 = 8;
/// Characters of a message in an Event or a condition.
const MESSAGE: usize = 1_024;

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

/// The type prefix of conditions that the host itself writes.
const HOST_CONDITION: &str = "polity.dev/";

impl Machine {
    /// Publishes what the pass concluded.
    pub(super) fn publish(&mut self, mut pass: Box<PassState>, conclusion: Conclusion, outcome: Outcome) {
        let judged = pass.judged.take();
        let (mut events, mut patch) = (Vec::new(), json!({}));
        let roles = [judged.as_ref(), Some(&conclusion)];
        for (conclusion, record) in roles.into_iter().flatten().zip(&pass.finished) {
            events.extend(conclusion.events.iter().cloned());
            let part = match conclusion.patch.as_deref().map(serde_json::from_str::<Value>) {
                None => continue,
                Some(Ok(Value::Object(part))) => Value::Object(part),
                Some(_) => return self.refault(pass, "its patch is not a JSON object"),
            };
            let Some(snapshot) = &pass.snapshot else {
                return self.refault(pass, "it patches an object that is absent");
            };
            if let Err(message) = check_writes(&pass, record.role, snapshot, &part) {
                return self.refault(pass, &message);
            }
            patch = plan::combine(patch, part, snapshot.value());
        }
        let limits = pass.binding.spec.limits.clone();
        events.truncate(limits.events as usize);
        for event in &mut events {
            event.message = event.message.chars().take(MESSAGE).collect();
        }
        if conclusion.notes.len() > limits.notes as usize {
            return self.refault(pass, &format!("more than {} notes", limits.notes));
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
        if outcome != Outcome::Released && keeps_finalizer(&pass, &mut patch) {
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
            if let Some(mut patch) = plan::write(part, &current, &desired) {
                if !self.guards.precondition {
                    patch["metadata"]
                        .as_object_mut()
                        .map(|m| m.remove("resourceVersion"));
                }
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
        if news && publication.unseen.is_none() {
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
        written["metadata"]["generation"] = fresh.value()["metadata"]["generation"].clone();
        fresh.version() != current.version() && !crate::path::same_content(&written, fresh.value())
    }

    /// What the primary shall look like: the policies' edits, the pending entries that stand, the host's conditions.
    fn desired(&self, current: &Object, unix: u64) -> Value {
        let Some(publication) = &self.publication else {
            return current.value().clone();
        };
        let mut desired = match &publication.edits {
            Some(edits) => edits.onto(current.value()),
            None => current.value().clone(),
        };
        if current.value()["status"]["pending"].is_array() {
            let mut standing = pending_entries(current.value());
            standing.retain(|e| !publication.drops_pending && !self.resolved.contains(&e.key));
            match standing.is_empty() {
                true => {
                    desired["status"]
                        .as_object_mut()
                        .map(|status| status.remove("pending"));
                }
                false => desired["status"]["pending"] = json!(standing),
            }
        }
        set_host_conditions(
            &mut desired,
            current.value(),
            &publication.conditions,
            has_conditions(self),
            unix,
        );
        desired
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
                v["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"].is_object()
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
    desired: &mut Value,
    current: &Value,
    wanted: &[(&'static str, String)],
    supported: bool,
    unix: u64,
) {
    let old = current["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let is_host = |c: &Value| c["type"].as_str().is_some_and(|t| t.starts_with(HOST_CONDITION));
    if !supported || (wanted.is_empty() && !old.iter().any(is_host)) {
        return;
    }
    let mut list = desired["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    list.retain(|c| !is_host(c));
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
    desired["status"]["conditions"] = Value::Array(list);
}

/// Whether a patch stays within what its policy declared to write.
fn check_writes(pass: &PassState, role: Role, snapshot: &Object, patch: &Value) -> Result<(), String> {
    let Some(policy) = pass.binding.policy(role) else {
        return Ok(());
    };
    let finalizer = policy
        .manifest
        .finalizer
        .as_ref()
        .map(|f| format!("metadata.finalizers[{f}]"));
    for path in Edits::new(snapshot.clone(), patch.clone()).paths() {
        if path == "status.pending" || path.starts_with("status.pending.") {
            return Err("it writes status.pending, which is the host's".into());
        }
        let declared = policy
            .manifest
            .writes
            .iter()
            .any(|declared| plan::declares(declared, &path));
        if !declared && finalizer.as_ref() != Some(&path) {
            return Err(format!("it writes {path}, which its manifest does not declare"));
        }
    }
    Ok(())
}

/// Keeps the lifecycle's finalizer while a create may have happened that nobody accounted for: says if it had to.
fn keeps_finalizer(pass: &PassState, patch: &mut Value) -> bool {
    let (Some(snapshot), Some(current), Some(finalizer)) = (&pass.snapshot, &pass.current, pass.finalizer())
    else {
        return false;
    };
    let standing = pending_entries(current.value())
        .iter()
        .any(|e| !pass.resolved.contains(&e.key));
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
fn released(pass: &PassState, mut patch: Value) -> Value {
    if let (Some(snapshot), Some(finalizer)) = (&pass.snapshot, pass.finalizer()) {
        let held = patch["metadata"]["finalizers"]
            .as_array()
            .or_else(|| snapshot.value()["metadata"]["finalizers"].as_array())
            .cloned()
            .unwrap_or_default();
        let kept: Vec<Value> = held.into_iter().filter(|f| f != finalizer).collect();
        if !patch["metadata"].is_object() {
            patch["metadata"] = json!({});
        }
        patch["metadata"]["finalizers"] = Value::Array(kept);
    }
    patch
}
