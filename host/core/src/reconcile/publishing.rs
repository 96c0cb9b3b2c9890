//! Publishing: writes the conclusion in parts, and rebases it after a conflict if nobody else wrote the same values.

mod conditions;
mod entries;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::{Command, Context, Report};
use super::flow::{Flow, PhaseEvent};
use super::frame::{CLUSTER_LONGEST, Frame};
use super::own_writes::is_outdated;
use super::pass_end::{PassEnd, PassResult};
use super::work::{CheckedConclusion, Work};
use crate::call::{Call, ReadResult, Reply, Write};
use crate::contract::{Code, Event, EventType, Failure, Next, ObjectQuery, Question, RetryClass};
use crate::grants::HOST_CONDITION;
use crate::merge::{Edits, Part};
use crate::object::{Object, ResourceVersion};
use crate::pending::Pending;
use crate::projection::Digest;
use crate::record::{Discard, Outcome, WritePurpose};
use crate::shared::guards::Guard;
use crate::shared::terms::Terms;
use crate::tree::Tree;
use crate::worker::{Draft, DraftInput, Drops, HostCondition, LastWrite};

pub(super) use conditions::has_conditions;

/// The most rebases of one publication. It limits the work on an object that changes faster than it can be written.
const REBASES: u32 = 8;
/// The most characters in the message of an Event.
pub(crate) const MESSAGE: usize = 1_024;
/// The most characters in the reason of an Event.
const REASON: usize = 128;

/// The state of a publication.
#[derive(Debug)]
pub(crate) struct Publishing {
    what: Publication,
    now: PublishStep,
    /// What is written next, if it is known already.
    draft: Option<Draft>,
    /// The primary as it was known before it was read again, if that showed another version.
    known: Option<Object>,
}

/// The content of a publication.
#[derive(Debug)]
struct Publication {
    ended: PassEnd,
    /// `None` if the primary is absent.
    edits: Option<Edits>,
    /// The host's conditions for this object.
    conditions: Vec<HostCondition>,
    rebases: u32,
    pending: Drops,
}

#[derive(Clone, Copy, Debug)]
enum PublishStep {
    /// A worker drafts the writes of the parts from this one on.
    Drafting(Part),
    /// The parts from this one on are to be written.
    Due(Part),
    /// The write of this part was asked for. The patch has this digest.
    Writing(Part, Digest),
    /// The pass reads the primary again, after a conflict or a write with an unknown effect.
    Rereading(Part),
}

impl Publishing {
    /// Publishes what the pass concluded.
    pub(super) fn conclusion(
        concluded: CheckedConclusion,
        outcome: Outcome,
        context: &mut Context<'_>,
    ) -> Self {
        if !context.is_guarded(Guard::LocksLastUntilPublished) {
            context.command(Command::Unlock);
        }
        let (frame, judged) = (context.frame, context.work.judged.take());
        let CheckedConclusion {
            conclusion,
            mut edits,
        } = concluded;
        let mut events = conclusion.events;
        if let (Some(judged), Some(_)) = (judged, &edits) {
            events = [judged.conclusion.events, events].concat();
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
        let conditions = conditions::of_conclusion(frame, context.work, &outcome, &next);
        events.extend(identity_failed(&events, &conditions, context.work));
        Publishing::begin(Publication {
            ended: PassEnd {
                next: Some(next),
                events,
                ..PassEnd::plain(outcome)
            },
            edits,
            conditions,
            rebases: 0,
            pending: if released { Drops::All } else { Drops::Resolved },
        })
    }

    /// Publishes a fault of a policy as a condition and an Event, and changes nothing else.
    pub(super) fn fault(message: String, context: &Context<'_>) -> Self {
        let event = warning("PolicyFault", message.chars().take(MESSAGE).collect());
        let quarantined = HostCondition::is("polity.dev/Quarantined", message);
        let mut what = Publication::of_host(context.frame, quarantined);
        what.conditions
            .extend(conditions::create_in_doubt(context.frame, context.work));
        what.ended = PassEnd {
            events: vec![event],
            ..PassEnd::plain(Outcome::Faulted)
        };
        Publishing::begin(what)
    }

    /// Publishes a defect of this host as a condition.
    pub(crate) fn bug(message: String, frame: &Frame) -> Self {
        Publishing::begin(Publication {
            ended: PassEnd::plain(Outcome::Bug(message.clone())),
            ..Publication::of_host(frame, HostCondition::is("polity.dev/HostDefect", message))
        })
    }

    fn begin(what: Publication) -> Self {
        let now = PublishStep::Due(Part::Main);
        Publishing {
            what,
            now,
            draft: None,
            known: None,
        }
    }

    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        match (self.now, event) {
            // An earlier write of this pass met a conflict. A write with the known version would meet it again.
            (PublishStep::Due(part), PhaseEvent::Entered) if context.is_behind() => {
                self.read_again(part, context)
            }
            (PublishStep::Due(part), PhaseEvent::Entered) => self.write(part, context),
            (PublishStep::Writing(part, digest), PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_written(part, digest, found, context)
            }
            (PublishStep::Writing(part, digest), PhaseEvent::Cut(_)) => {
                self.on_written(part, digest, Err(no_answer().effect_unknown()), context)
            }
            (PublishStep::Rereading(part), PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_reread(part, found, context)
            }
            (PublishStep::Rereading(_), PhaseEvent::Cut(_)) => self.end(Outcome::Failed(no_answer())),
            (PublishStep::Drafting(part), PhaseEvent::Reply(_, Reply::Drafted(drafted))) => {
                self.on_drafted(part, drafted, context)
            }
            (_, event) => Flow::unexpected("Publishing", &event),
        }
    }

    pub(super) fn writes_primary(&self) -> bool {
        matches!(self.now, PublishStep::Writing(..))
    }

    /// Ends the pass with another outcome.
    fn end(self, outcome: Outcome) -> Flow<Self> {
        Flow::End(self.what.ended.instead(outcome))
    }

    fn enter(mut self, part: Part) -> Flow<Self> {
        self.now = PublishStep::Due(part);
        Flow::Again(self)
    }

    /// Writes the next part that is not written yet. Ends the pass when all parts are written.
    fn write(mut self, part: Part, context: &mut Context<'_>) -> Flow<Self> {
        let (Some(current), Some(edits)) = (&context.work.current, &self.what.edits) else {
            return Flow::End(self.what.ended);
        };
        if self.what.is_nothing(edits, current) {
            return Flow::End(self.what.ended);
        }
        let Some(draft) = &mut self.draft else {
            return self.draft(part, context);
        };
        let Some((part, patch, digest)) = draft.take_next(part) else {
            return Flow::End(self.what.ended);
        };
        let write = Write::Patch {
            object: current.reference(),
            subresource: (part == Part::Status).then(|| "status".to_owned()),
            precondition: Some(context.precondition(current)),
            patch,
        };
        context.change(0, Call::Write(write), CLUSTER_LONGEST, Terms::ANY_TIME);
        self.now = PublishStep::Writing(part, digest);
        Flow::Wait(self)
    }

    /// Drafts the writes, from the primary as the pass knows it now.
    fn draft(mut self, part: Part, context: &mut Context<'_>) -> Flow<Self> {
        let (Some(current), Some(edits)) = (&context.work.current, &self.what.edits) else {
            return Flow::End(self.what.ended);
        };
        let (frame, work) = (context.frame, &*context.work);
        let draft = DraftInput {
            current: current.clone(),
            edits: edits.clone(),
            entries: entries::of(self.what.pending, frame, work),
            conditions: has_conditions(&frame.binding).then(|| self.what.conditions.clone()),
            written: work.written.clone(),
            unix: context.view.now.unix,
            rebases: self.what.rebases > 0 && context.is_guarded(Guard::RebaseOnlyWhatNobodyChanged),
        };
        context.work(Call::Draft(Box::new(draft)));
        self.now = PublishStep::Drafting(part);
        Flow::Wait(self)
    }

    /// After a conflict, the publication loses the edits of values that another writer changed, or is discarded.
    fn on_drafted(
        mut self,
        part: Part,
        drafted: Result<Draft, Failure>,
        context: &mut Context<'_>,
    ) -> Flow<Self> {
        let mut drafted = match drafted {
            Ok(drafted) => drafted,
            Err(failure) => return self.end(Outcome::Failed(failure)),
        };
        for path in std::mem::take(&mut drafted.not_kept) {
            context.report(Report::NotKept(path));
        }
        let conflicts = std::mem::take(&mut drafted.conflicts);
        if !conflicts.is_empty() {
            if !context.work.acted {
                return self.end(Outcome::Discarded(Discard::Conflict(conflicts)));
            }
            let edits = self.what.edits.take();
            self.what.edits = edits.map(|edits| edits.without(&conflicts));
            let changed = conflicts.join(", ");
            let message = format!("another writer changed {changed}: this pass did not overwrite that");
            self.what.ended.events.push(warning("EditDropped", message));
        }
        if let Some(known) = self.known.take()
            && context.is_guarded(Guard::UnseenChangesEnqueue)
        {
            self.what.ended.unseen.get_or_insert(known);
        }
        self.draft = Some(drafted);
        self.write(part, context)
    }

    /// Handles the result of a write.
    fn on_written(
        self,
        part: Part,
        digest: Digest,
        found: ReadResult,
        context: &mut Context<'_>,
    ) -> Flow<Self> {
        let before = context.work.current.as_ref().map(Object::version);
        match context.primary_written(WritePurpose::Publish(part), found) {
            Ok(()) => {
                note_written(part, digest, before, context.work);
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

    fn read_again(mut self, part: Part, context: &mut Context<'_>) -> Flow<Self> {
        let Some(current) = &context.work.current else {
            return self.end(Outcome::Discarded(Discard::Gone));
        };
        // Without the lease the host must not write, so it does not read either.
        if !context.view.lease.is_held(context.view.now) && context.is_guarded(Guard::Fencing) {
            return Flow::Finish(PassResult::plain(Outcome::LeaseLost));
        }
        let query = ObjectQuery {
            object: current.reference(),
            projection: Vec::new(),
            latest: true,
        };
        context.call(0, Call::Read(Question::Object(query)), CLUSTER_LONGEST);
        self.now = PublishStep::Rereading(part);
        Flow::Wait(self)
    }

    /// After a conflict, compares the edits with the present object.
    fn on_reread(mut self, part: Part, found: ReadResult, context: &mut Context<'_>) -> Flow<Self> {
        let fresh = match found.map(|mut found| found.pop()) {
            Ok(Some(fresh)) => fresh,
            Ok(None) => return self.on_gone(part, context),
            Err(failure) if failure.code == Code::NotFound => return self.on_gone(part, context),
            Err(failure) => return self.end(Outcome::Failed(failure)),
        };
        if fresh.uid() != context.frame.uid() {
            return self.end(Outcome::Discarded(Discard::Replaced));
        }
        // This object may be newer than the watch. A later pass must not see an older one.
        context.command(Command::Saw {
            objects: vec![fresh.clone()],
            answers: None,
        });
        // A write whose answer was lost may have made this version itself. That is not found out: another pass may look.
        let is_other = |known: &Object| known.version() != fresh.version();
        self.known = context.work.current.take().filter(is_other);
        context.work.current = Some(fresh);
        context.work.behind = None;
        self.what.rebases += 1;
        if self.what.rebases > REBASES {
            let message = format!("the object changed {REBASES} times while it was published");
            return self.end(Outcome::Failed(Failure::new(Code::Aborted, message)));
        }
        self.draft(part, context)
    }

    /// Handles a missing object. After the removal of the last finalizer, that is success.
    fn on_gone(self, part: Part, context: &mut Context<'_>) -> Flow<Self> {
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
            ended: PassEnd::plain(Outcome::Published),
            edits: edits(frame, json!({})),
            conditions: vec![condition],
            rebases: 0,
            pending: Drops::None,
        }
    }

    /// Whether nothing is to be written, as after most passes. The object is not read for this.
    fn is_nothing(&self, edits: &Edits, current: &Object) -> bool {
        let conditions = || current.text_at("status.conditions");
        edits.is_empty()
            && self.conditions.is_empty()
            && conditions().is_none_or(|all| !all.contains(HOST_CONDITION))
            && current.text_at("status.pending").is_none()
    }
}

/// Notes what was written of a part, and that what was written before stands on the new version as it did on the one before.
fn note_written(part: Part, digest: Digest, before: Option<ResourceVersion>, work: &mut Work) {
    let Some(version) = work.current.as_ref().map(Object::version) else {
        return;
    };
    let standing = work
        .written
        .values_mut()
        .filter(|written| Some(written.version) == before);
    standing.for_each(|written| written.version = version);
    work.written.insert(part, LastWrite { digest, version });
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

/// The Event for an identity policy that began to fail, unless a policy reports the failure itself.
fn identity_failed(events: &[Event], conditions: &[HostCondition], work: &Work) -> Option<Event> {
    if events.iter().any(|event| event.kind == EventType::Warning) {
        return None;
    }
    let stands = json!({"status": {"conditions": work.current.as_ref()?.at("status.conditions")}});
    let message = conditions
        .iter()
        .find_map(|condition| condition.news_of_identity(&stands))?;
    Some(warning("IdentityFailed", message.chars().take(MESSAGE).collect()))
}

/// The edits of a patch; `None` if the object is absent.
fn edits(frame: &Frame, patch: Value) -> Option<Edits> {
    let snapshot = frame.snapshot.as_ref()?;
    Some(Edits::of(snapshot, Arc::new(patch), 0))
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
