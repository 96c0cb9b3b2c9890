//! Publishing: writes the conclusion in parts, and rebases it after a conflict if nobody else wrote the same values.

mod conditions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::own::with_metadata;
use super::pending::Pending;
use super::work::{Concluded, EntryHistory, Work, is_outdated};
use super::{CLUSTER_LONGEST, Command, Context, Finished, Flow, Frame, Gate, Phase, PhaseEvent, Report};
use crate::call::{Call, Found, PendingEntry, Reply, Write};
use crate::contract::{Code, Event, EventType, Failure, Next, ObjectQuery, Question, RetryClass};
use crate::controller::Guard;
use crate::grants::HOST_CONDITION;
use crate::merge::{self, Edits, Part};
use crate::object::Object;
use crate::projection;
use crate::record::{Discard, Outcome, WritePurpose};
use crate::time::{Unix, millis};
use crate::tree::Tree;

pub(super) use conditions::has_conditions;
use conditions::{HostCondition, set_host_conditions};

/// The most rebases of one publication. It limits the work on an object that changes faster than it can be written.
const REBASES: u32 = 8;
/// The most characters in the message of an Event or a condition.
pub(crate) const MESSAGE: usize = 1_024;
/// The most characters in the reason of an Event.
const REASON: usize = 128;

/// The state of a publication.
#[derive(Debug)]
pub(crate) struct Publishing {
    what: Publication,
    now: PublishStep,
    /// What the next write starts from, if it is known already.
    draft: Option<Draft>,
}

/// The primary before and after a publication.
#[derive(Debug)]
struct Draft {
    now: Arc<Value>,
    desired: Value,
}

/// The content of a publication.
#[derive(Debug)]
struct Publication {
    ended: Ended,
    /// `None` if the primary is absent.
    edits: Option<Edits>,
    /// The host's conditions for this object.
    conditions: Vec<HostCondition>,
    rebases: u32,
    pending: Drops,
}

/// The entries that a publication removes from `status.pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drops {
    /// A pass without a conclusion leaves all entries to the next pass.
    None,
    Resolved,
    All,
}

#[derive(Clone, Copy, Debug)]
enum PublishStep {
    Writing(Part, Gate),
    /// The pass reads the primary again, after a conflict or a write with an unknown effect.
    Rereading(Part),
}

/// How a pass ends.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) next: Option<Next>,
    pub(crate) events: Vec<Event>,
    /// The primary before this publication was rebased on a change that no pass has seen.
    pub(crate) unseen: Option<Object>,
}

impl Ended {
    /// An ended pass without Events and without a wish for its next pass.
    pub(crate) fn plain(outcome: Outcome) -> Self {
        Ended {
            outcome,
            next: None,
            events: Vec::new(),
            unseen: None,
        }
    }

    /// Changes the outcome of the pass. A fault remains a fault, even if its condition could not be written.
    fn instead(self, outcome: Outcome) -> Self {
        match self.outcome {
            Outcome::Faulted | Outcome::Bug(_) => self,
            _ => Ended { outcome, ..self },
        }
    }
}

impl Publishing {
    /// Publishes what the pass concluded.
    pub(super) fn conclusion(concluded: Concluded, outcome: Outcome, context: &mut Context<'_>) -> Phase {
        if !context.is_guarded(Guard::LocksLastUntilPublished) {
            context.command(Command::Unlock);
        }
        let (frame, judged) = (context.frame, context.work.judged.take());
        let Concluded {
            conclusion,
            mut edits,
        } = concluded;
        let mut events = conclusion.events;
        if let (Some(judged), Some(own)) = (judged, &mut edits) {
            events = [judged.conclusion.events, events].concat();
            if let Some(first) = judged.edits {
                *own = first.and(own);
            }
        }
        let patch = edits.as_mut().map(Edits::patch_mut);
        events.truncate(frame.binding.spec.limits.events as usize);
        for event in &mut events {
            event.reason = event.reason.chars().take(REASON).collect();
            event.message = event.message.chars().take(MESSAGE).collect();
        }
        let mut next = conclusion.next;
        let released = outcome == Outcome::Released;
        if released {
            if let Some(patch) = patch {
                remove_finalizer(frame, patch);
            }
            let message = "the identity policy released this object: cloud resources of it may remain";
            events.push(warning("Released", message.into()));
        } else if context.is_guarded(Guard::DoubtKeepsTheFinalizer)
            && patch.is_some_and(|patch| keeps_finalizer(frame, context.work, patch))
        {
            let class = RetryClass::Medium;
            next = Next::Retry { class, failure: None };
        }
        let conditions = conditions::of_conclusion(frame, context.work, &next);
        Publishing::begin(Publication {
            ended: Ended {
                next: Some(next),
                events,
                ..Ended::plain(outcome)
            },
            edits,
            conditions,
            rebases: 0,
            pending: if released { Drops::All } else { Drops::Resolved },
        })
    }

    /// Publishes a fault of a policy as a condition and an Event, and changes nothing else.
    pub(super) fn fault(message: String, context: &Context<'_>) -> Phase {
        Publishing::begin(Publication {
            ended: Ended {
                events: vec![warning("PolicyFault", message.chars().take(MESSAGE).collect())],
                ..Ended::plain(Outcome::Faulted)
            },
            ..Publication::of_host(context.frame, ("polity.dev/Quarantined", message))
        })
    }

    /// Publishes a defect of this host as a condition.
    pub(crate) fn bug(message: String, frame: &Frame) -> Phase {
        Publishing::begin(Publication {
            ended: Ended::plain(Outcome::Bug(message.clone())),
            ..Publication::of_host(frame, ("polity.dev/HostDefect", message))
        })
    }

    fn begin(what: Publication) -> Phase {
        let now = PublishStep::Writing(Part::Main, Gate::Due);
        Phase::Publishing(Publishing {
            what,
            now,
            draft: None,
        })
    }

    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match (self.now, event) {
            // An earlier write of this pass met a conflict. A write with the known version would meet it again.
            (PublishStep::Writing(part, Gate::Due), PhaseEvent::Entered) if context.is_behind() => {
                self.read_again(part, context)
            }
            (PublishStep::Writing(part, Gate::Due), PhaseEvent::Entered)
            | (PublishStep::Writing(part, Gate::Waiting), PhaseEvent::Opened) => self.write(part, context),
            (PublishStep::Writing(part, Gate::Sent), PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_written(part, found, context)
            }
            (PublishStep::Writing(part, Gate::Sent), PhaseEvent::Cut(_)) => {
                self.on_written(part, Err(no_answer().effect_unknown()), context)
            }
            (PublishStep::Rereading(part), PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_reread(part, found, context)
            }
            (PublishStep::Rereading(_), PhaseEvent::Cut(_)) => self.end(Outcome::Failed(no_answer())),
            (_, event) => Flow::unexpected(&Phase::Publishing(self), &event),
        }
    }

    pub(super) fn has_effect_in_flight(&self) -> bool {
        matches!(self.now, PublishStep::Writing(_, Gate::Sent))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.now, PublishStep::Writing(_, Gate::Waiting))
    }

    /// Ends the pass with another outcome.
    fn end(self, outcome: Outcome) -> Flow {
        Flow::End(self.what.ended.instead(outcome))
    }

    fn enter(mut self, part: Part) -> Flow {
        self.now = PublishStep::Writing(part, Gate::Due);
        Flow::Enter(Phase::Publishing(self))
    }

    /// Writes the next part that is not written yet. Ends the pass when all parts are written.
    fn write(mut self, part: Part, context: &mut Context<'_>) -> Flow {
        let (Some(current), Some(_)) = (&context.work.current, &self.what.edits) else {
            return Flow::End(self.what.ended);
        };
        if self.what.is_nothing(current) {
            return Flow::End(self.what.ended);
        }
        let (object, precondition) = (current.reference(), context.precondition(current));
        let draft = self.draft.take();
        let Draft { now, desired } = draft.unwrap_or_else(|| self.what.draft(current, context));
        let parts = [Part::Main, Part::Status, Part::Finalizer];
        for part in parts.into_iter().filter(|later| *later >= part) {
            if is_futile(part, &now, &desired, context.work) {
                continue;
            }
            let Some(patch) = merge::change(part, &now, &desired) else {
                continue;
            };
            let write = Write::Patch {
                object,
                subresource: (part == Part::Status).then(|| "status".to_owned()),
                precondition: Some(precondition),
                patch,
            };
            return match context.change(0, Call::Write(write), CLUSTER_LONGEST) {
                Ok(gate) => {
                    self.now = PublishStep::Writing(part, gate);
                    Flow::Wait(Phase::Publishing(self))
                }
                Err(outcome) => Flow::Finish(Finished::plain(outcome)),
            };
        }
        Flow::End(self.what.ended)
    }

    /// Handles the result of a write.
    fn on_written(mut self, part: Part, found: Found, context: &mut Context<'_>) -> Flow {
        match context.primary_written(WritePurpose::Publish(part), found) {
            Ok(()) => {
                self.compare(part, context);
                match part {
                    Part::Main => self.enter(Part::Status),
                    Part::Status => self.enter(Part::Finalizer),
                    Part::Finalizer => Flow::End(self.what.ended),
                }
            }
            Err(failure) if failure.code == Code::NotFound => self.on_gone(part, context),
            Err(failure) if is_outdated(&failure) => self.read_again(part, context),
            Err(failure) => self.end(Outcome::Failed(failure)),
        }
    }

    fn read_again(mut self, part: Part, context: &mut Context<'_>) -> Flow {
        let Some(current) = &context.work.current else {
            return self.end(Outcome::Discarded(Discard::Gone));
        };
        // Without the lease the host must not write, so it does not read either.
        if !context.view.lease.is_held(context.view.now) && context.is_guarded(Guard::Fencing) {
            return Flow::Finish(Finished::plain(Outcome::LeaseLost));
        }
        let query = ObjectQuery {
            object: current.reference(),
            projection: Vec::new(),
            latest: true,
        };
        context.call(0, Call::Read(Question::Object(query)), CLUSTER_LONGEST);
        self.now = PublishStep::Rereading(part);
        Flow::Wait(Phase::Publishing(self))
    }

    /// Compares the answer of the API server with the written object. Values that the API server did not keep are
    /// reported on the binding, and exactly these values are not written again.
    fn compare(&mut self, part: Part, context: &mut Context<'_>) {
        let Some(answer) = &context.work.current else {
            return;
        };
        let draft = self.what.draft(answer, context);
        let Draft { now, desired } = &draft;
        match merge::change(part, now, desired) {
            Some(left) => {
                for path in merge::not_kept(&left, now) {
                    context.report(Report::NotKept(path));
                }
                context.work.futile.insert(part, projection::digest(&left));
            }
            None => {
                context.work.futile.remove(&part);
            }
        }
        self.draft = Some(draft);
    }

    /// After a conflict, compares the edits with the present object. The publication is rebased, loses the edits
    /// that conflict, or is discarded.
    fn on_reread(mut self, part: Part, found: Found, context: &mut Context<'_>) -> Flow {
        let fresh = match found.map(|mut found| found.pop()) {
            Ok(Some(fresh)) => fresh,
            Ok(None) => return self.on_gone(part, context),
            Err(failure) if failure.code == Code::NotFound => return self.on_gone(part, context),
            Err(failure) => return self.end(Outcome::Failed(failure)),
        };
        if fresh.uid() != context.frame.uid() {
            return self.end(Outcome::Discarded(Discard::Replaced));
        }
        let is_news = self.is_news(part, &fresh, context);
        // This object may be newer than the watch. A later pass must not see an older one.
        context.command(Command::Saw {
            objects: vec![fresh.clone()],
            answers: None,
        });
        let before = context.work.current.replace(fresh.clone());
        context.work.behind = None;
        self.what.rebases += 1;
        if self.what.rebases > REBASES {
            let message = format!("the object changed {REBASES} times while it was published");
            return self.end(Outcome::Failed(Failure::new(Code::Aborted, message)));
        }
        let conflicts = match &self.what.edits {
            Some(edits) if context.is_guarded(Guard::RebaseOnlyWhatNobodyChanged) => {
                edits.conflicts(&fresh.tree())
            }
            _ => Vec::new(),
        };
        if !conflicts.is_empty() {
            if !context.work.acted {
                return self.end(Outcome::Discarded(Discard::Conflict(conflicts)));
            }
            let edits = self.what.edits.take();
            self.what.edits = edits.map(|edits| edits.without(&conflicts));
            let message = format!(
                "another writer changed {}: this pass did not overwrite that",
                conflicts.join(", ")
            );
            self.what.ended.events.push(warning("EditDropped", message));
        }
        let enqueues = is_news && context.is_guarded(Guard::UnseenChangesEnqueue);
        if enqueues && self.what.ended.unseen.is_none() {
            self.what.ended.unseen = before;
        }
        self.enter(part)
    }

    /// Whether the object contains changes beyond the failed write. That write may have been performed.
    fn is_news(&self, part: Part, fresh: &Object, context: &Context<'_>) -> bool {
        let Some(current) = &context.work.current else {
            return true;
        };
        let Draft { now, desired } = self.what.draft(current, context);
        let mut written = Arc::unwrap_or_clone(now);
        if let Some(patch) = merge::change(part, &written, &desired) {
            merge::apply(&patch, &mut written);
        }
        let written = with_metadata(written, fresh, &["generation"]);
        fresh.version() != current.version() && !written.says_the_same(fresh)
    }

    /// Handles a missing object. After the removal of the last finalizer, that is success.
    fn on_gone(self, part: Part, context: &mut Context<'_>) -> Flow {
        if let Some(current) = &context.work.current {
            let (object, uid) = (current.reference(), current.uid().to_owned());
            let own = Vec::new();
            context.command(Command::Gone { object, uid, own });
        }
        match part {
            Part::Finalizer => Flow::End(self.what.ended),
            _ => self.end(Outcome::Discarded(Discard::Gone)),
        }
    }
}

impl Publication {
    /// A publication that only sets a condition of the host.
    fn of_host(frame: &Frame, condition: HostCondition) -> Self {
        Publication {
            ended: Ended::plain(Outcome::Published),
            edits: edits(frame, json!({})),
            conditions: vec![condition],
            rebases: 0,
            pending: Drops::None,
        }
    }

    /// Whether nothing is to be written, as after most passes. The object is not read for this.
    fn is_nothing(&self, current: &Object) -> bool {
        let conditions = || current.text_at("status.conditions");
        self.edits.as_ref().is_none_or(Edits::is_empty)
            && self.conditions.is_empty()
            && conditions().is_none_or(|all| !all.contains(HOST_CONDITION))
            && current.text_at("status.pending").is_none()
    }

    /// The present object, and the object after the publication.
    fn draft(&self, current: &Object, context: &Context<'_>) -> Draft {
        let Context { frame, work, .. } = context;
        let seen = self.edits.as_ref().map(Edits::snapshot);
        let now = match seen {
            Some(seen) if frame.snapshot.as_ref() == Some(current) => seen.clone(),
            _ => Arc::new(current.tree()),
        };
        let desired = self.desired(&now, frame, work, context.view.now.unix);
        Draft { now, desired }
    }

    /// The object after the publication: the edits of the policies, the remaining entries, and the host's
    /// conditions.
    fn desired(&self, now: &Value, frame: &Frame, work: &Work, unix: Unix) -> Value {
        let mut desired = Tree::new(match &self.edits {
            Some(edits) => edits.onto(now),
            None => now.clone(),
        });
        let pending = Pending::standing(projection::get(now, "status.pending").cloned());
        // Entries that another writer removed stay removed.
        if self.pending != Drops::None && pending.entries().next().is_some() {
            let keep = |entry: &PendingEntry| {
                let gone = self.pending == Drops::All || work.is_resolved(entry);
                (!gone).then(|| with_time_waited(entry, frame, work))
            };
            match pending.left(keep, &[]) {
                Value::Null => desired.remove(&["status", "pending"]),
                left => desired.set(&["status", "pending"], left),
            }
        }
        if has_conditions(&frame.binding) {
            set_host_conditions(&mut desired, now, &self.conditions, unix);
        }
        desired.into_value()
    }
}

/// An entry in doubt, with the time for which hosts have known of it. The time is rounded down to quarters of the
/// time after which the create is visible: so it costs at most four writes, and saves the next host most of the wait.
fn with_time_waited(entry: &PendingEntry, frame: &Frame, work: &Work) -> PendingEntry {
    let operation = frame.binding.catalogue.operations.get(&entry.operation);
    let quarter = operation.map_or(0, |operation| millis(operation.visible_within).div_ceil(4));
    // The time is measured at the beginning of the pass, so that every part of the publication computes the same
    // value.
    let waited = |history: &EntryHistory| millis(history.waited(frame.started.boot));
    let waited = work.histories.get(&entry.key).map_or(0, waited);
    let quarters = waited.checked_div(quarter).unwrap_or(0).min(4);
    PendingEntry {
        waited: entry
            .waited
            .max(Duration::from_millis(quarters.saturating_mul(quarter))),
        ..entry.clone()
    }
}

fn no_answer() -> Failure {
    Failure::new(Code::DeadlineExceeded, "no answer in time")
}

fn warning(reason: &str, message: String) -> Event {
    Event {
        kind: EventType::Warning,
        reason: reason.into(),
        message,
    }
}

/// Whether a part consists only of changes that the API server did not keep the last time.
fn is_futile(part: Part, now: &Value, desired: &Value, work: &Work) -> bool {
    work.futile.get(&part).is_some_and(|left| {
        merge::change(part, now, desired).is_some_and(|change| projection::digest(&change) == *left)
    })
}

/// The edits of a patch; `None` if the object is absent.
fn edits(frame: &Frame, patch: Value) -> Option<Edits> {
    let snapshot = frame.snapshot.as_ref()?;
    Some(Edits::of(snapshot, patch))
}

/// Keeps the finalizer of the lifecycle policy while a create may have happened whose outcome is unknown. Returns
/// whether it changed the patch.
fn keeps_finalizer(frame: &Frame, work: &Work, patch: &mut Value) -> bool {
    let (Some(snapshot), Some(current), Some(finalizer)) =
        (&frame.snapshot, &work.current, frame.finalizer())
    else {
        return false;
    };
    let is_open = Pending::of(current).is_open(|entry| work.is_resolved(entry));
    if !is_open && !work.was_in_doubt() {
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
            *wanted = snapshot.finalizers().into();
            true
        }
        _ => false,
    }
}

/// Makes the patch of the identity policy remove the lifecycle's finalizer.
fn remove_finalizer(frame: &Frame, patch: &mut Value) {
    if let (Some(snapshot), Some(finalizer)) = (&frame.snapshot, frame.finalizer()) {
        let path = ["metadata", "finalizers"];
        let mut tree = Tree::new(patch.take());
        let held = match tree.get(&path) {
            Some(held) => held.as_array().cloned().unwrap_or_default(),
            None => snapshot.finalizers().into_iter().map(Value::from).collect(),
        };
        let kept: Vec<Value> = held.into_iter().filter(|f| f != finalizer).collect();
        tree.set(&path, kept);
        *patch = tree.into_value();
    }
}
