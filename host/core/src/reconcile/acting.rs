//! Acting: checks the acts of a step, prepares the creates, writes their entries ahead, and performs the acts in
//! order.

mod checks;
#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::context::{Command, Context, Report};
use super::flow::{Flow, NextPhase, PhaseEvent};
use super::frame::{CLUSTER_LONGEST, Frame, primary_scope};
use super::own_writes::{ObjectBefore, is_outdated};
use super::pass_end::PassEnd;
use super::role::RoleRun;
use super::work::{EntryHistory, Fate, KnownEntry, Work};
use crate::binding::MintGrant;
use crate::call::{
    Call, CloudRequest, Commit, Mint, PendingEntry, Preparation, ReadResult, Reply, Site, Write,
};
use crate::catalogue::BEGINS_WITHIN;
use crate::contract::{
    Act, Answer, CloudAct, Code, Effect, Eviction, Failure, Json, ObjectDelete, Request, Resolution,
};
use crate::grants;
use crate::object::Object;
use crate::pending::Pending;
use crate::record::{Discard, Outcome, WritePurpose};
use crate::render::fitting;
use crate::shared::guards::Guard;
use crate::shared::terms::{PrimaryCheck, Terms};
use crate::time::Boot;

/// The acts of a step.
#[derive(Debug)]
pub(crate) struct Acting {
    run: RoleRun,
    acts: Vec<ActSlot>,
    /// When the entries of the step's creates were made.
    entered_at: Boot,
    now: ActStep,
}

#[derive(Debug)]
struct ActSlot {
    act: Act,
    /// For a create: what its preparation found.
    prepared: Option<Preparation>,
    /// For a create: the key of its entry in `status.pending`.
    entry: Option<String>,
    /// For an act on another object: the object as it was when the act was asked for.
    before: ObjectBefore,
    answer: Option<Answer>,
}

/// The part of the phase that is in progress.
#[derive(Clone, Copy, Debug)]
enum ActStep {
    /// The acts are checked.
    Checking,
    /// Every create of the step reads what it needs. A create that fails here is answered with the failure, and no
    /// entry is written for it.
    Preparing,
    /// The finalizer is written, if the lifecycle policy names one and the primary lacks it.
    AddFinalizer,
    /// The creates of the step are to be entered.
    Entering,
    /// One write enters them into `status.pending`.
    WriteAhead,
    /// The next act that has no answer is due.
    Due,
    /// The call of this act was asked for. `is_first` if the pass had changed nothing before.
    Performing { index: usize, is_first: bool },
}

impl ActSlot {
    /// Whether this is a create that has not been prepared yet.
    fn lacks_preparation(&self) -> bool {
        self.answer.is_none() && self.prepared.is_none() && checks::create(&self.act).is_some()
    }

    /// Stores in the history of its entry, if it has one, whether the create was sent.
    fn was_sent(&self, sent: bool, work: &mut Work) {
        if let Some(history) = self.entry.as_ref().and_then(|key| work.histories.get_mut(key)) {
            history.sent = sent;
        }
    }
}

impl Acting {
    pub(super) fn new(run: RoleRun, acts: Vec<Act>) -> Self {
        let unanswered = |act| ActSlot {
            act,
            prepared: None,
            entry: None,
            before: ObjectBefore::default(),
            answer: None,
        };
        Acting {
            run,
            acts: acts.into_iter().map(unanswered).collect(),
            entered_at: Boot::default(),
            now: ActStep::Checking,
        }
    }

    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        match (self.now, event) {
            (ActStep::Checking, PhaseEvent::Entered) => self.check(context),
            (ActStep::Preparing, PhaseEvent::Reply(index, Reply::Prepared(prepared)))
                if self.is_preparing(index) =>
            {
                self.on_prepared(index, prepared, context)
            }
            (ActStep::Preparing, PhaseEvent::Cut(index)) if self.is_preparing(index) => {
                let cut = Failure::new(Code::DeadlineExceeded, "no answer in time");
                self.on_prepared(index, Err(cut), context)
            }
            (ActStep::Entering, PhaseEvent::Entered) => self.enter_creates(context),
            (ActStep::Due, PhaseEvent::Entered) => self.perform(context),
            (ActStep::Performing { .. }, PhaseEvent::NotSent(..)) => self.give_up(context),
            (ActStep::AddFinalizer, PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_finalizer_added(found, context)
            }
            (ActStep::AddFinalizer, PhaseEvent::Cut(_)) => self.on_finalizer_added(Err(cut()), context),
            (ActStep::WriteAhead, PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_written_ahead(found, context)
            }
            (ActStep::WriteAhead, PhaseEvent::Cut(_)) => self.on_written_ahead(Err(cut()), context),
            (ActStep::Performing { index, .. }, PhaseEvent::Reply(_, Reply::Answer(answer))) => {
                self.on_performed(index, answer, context)
            }
            (ActStep::Performing { index, .. }, PhaseEvent::Reply(_, Reply::Objects(found))) => {
                self.on_other_written(index, found, context)
            }
            (ActStep::Performing { index, .. }, PhaseEvent::Cut(_)) => {
                if !context.is_guarded(Guard::SentUnlessSaid) {
                    self.take_back(context.work);
                }
                self.on_performed(index, Err(cut()), context)
            }
            (_, event) => Flow::unexpected("Acting", &event),
        }
    }

    pub(super) fn writes_primary(&self) -> bool {
        matches!(self.now, ActStep::AddFinalizer | ActStep::WriteAhead)
    }

    fn wait(mut self, now: ActStep) -> Flow<Self> {
        self.now = now;
        Flow::Wait(self)
    }

    fn enter(mut self, now: ActStep) -> Flow<Self> {
        self.now = now;
        Flow::Again(self)
    }

    /// Refuses the acts that must not be performed, and answers the acts whose answer is known.
    fn check(mut self, context: &mut Context<'_>) -> Flow<Self> {
        if standing(context).is_some_and(|primary| !primary.is_so(&context.view.cache)) {
            return self.discard(Discard::Changed, context);
        }
        for index in 0..self.acts.len() {
            let (earlier, rest) = self.acts.split_at_mut(index);
            let Some(slot) = rest.first_mut() else { continue };
            if let Err(refusal) = checks::check_act(&slot.act, self.run.role, context)
                && context.is_guarded(Guard::OnlyWhatIsGranted)
            {
                slot.answer = Some(Err(context.refuses(refusal)));
                continue;
            }
            let behind = (context.is_behind() && checks::create(&slot.act).is_some())
                .then(|| Err(not_performed(Code::Aborted, BEHIND)));
            let twice = checks::twice(earlier.iter().map(|slot| &slot.act), &slot.act);
            let before = checks::done_before(&slot.act, &self.run.journal, context);
            let before = before.filter(|_| context.is_guarded(Guard::NothingInDoubtIsDoneAgain));
            slot.answer = before.or(twice).or(behind);
        }
        self.prepare(context)
    }

    /// Prepares all creates at the same time.
    fn prepare(self, context: &mut Context<'_>) -> Flow<Self> {
        let frame = context.frame;
        for (index, slot) in self.acts.iter().enumerate() {
            if let Act::Cloud(act) = &slot.act
                && slot.lacks_preparation()
            {
                let longest = frame.longest(&act.operation);
                let request = request_of(act.clone(), None, context);
                context.call(index, Call::Prepare(request), longest);
            }
        }
        self.go_on_when_prepared(context)
    }

    /// Whether the act of this slot is a create that is being prepared.
    fn is_preparing(&self, index: usize) -> bool {
        self.acts.get(index).is_some_and(ActSlot::lacks_preparation)
    }

    /// Handles the result of a preparation. A failed one has no effect, because a preparation only reads.
    fn on_prepared(
        mut self,
        index: usize,
        found: Result<Preparation, Failure>,
        context: &mut Context<'_>,
    ) -> Flow<Self> {
        let slot = &mut self.acts[index];
        match found {
            Ok(prepared) => slot.prepared = Some(prepared),
            Err(failure) => {
                let effect = Effect::None;
                slot.answer = Some(Err(Failure { effect, ..failure }));
            }
        }
        self.go_on_when_prepared(context)
    }

    fn go_on_when_prepared(self, context: &mut Context<'_>) -> Flow<Self> {
        if self.acts.iter().any(ActSlot::lacks_preparation) {
            self.wait(ActStep::Preparing)
        } else {
            self.add_finalizer(context)
        }
    }

    fn unanswered(&self) -> Option<usize> {
        self.acts.iter().position(|slot| slot.answer.is_none())
    }

    /// Writes the finalizer first, if the lifecycle policy names one and the object lacks it.
    fn add_finalizer(self, context: &mut Context<'_>) -> Flow<Self> {
        let may_act = self.unanswered().is_some() && context.is_guarded(Guard::FinalizersComeFirst);
        let lacks_it = |object: &Object, finalizer: &str| may_act && !object.has_finalizer(finalizer);
        let (current, finalizer) = match (context.work.current.clone(), context.frame.finalizer()) {
            (Some(current), Some(finalizer)) if lacks_it(&current, finalizer) => (current, finalizer),
            _ => return self.enter(ActStep::Entering),
        };
        if context.is_behind() {
            return self.without_finalizer(Code::Aborted, BEHIND, context);
        }
        let mut all = current.finalizers();
        all.push(finalizer.to_owned());
        let patch = json!({"metadata": {"finalizers": all}});
        write_primary(&current, None, patch, context);
        self.wait(ActStep::AddFinalizer)
    }

    fn on_finalizer_added(self, found: ReadResult, context: &mut Context<'_>) -> Flow<Self> {
        if let Err(failure) = context.primary_written(WritePurpose::AddFinalizer, found) {
            let all: Vec<usize> = (0..self.acts.len()).collect();
            return self.not_written(failure, &all, context);
        }
        let kept = match (&context.work.current, context.frame.finalizer()) {
            (Some(object), Some(finalizer)) => object.has_finalizer(finalizer),
            _ => true,
        };
        if !kept {
            let path = "metadata.finalizers";
            context.report(Report::NotKept(path.to_owned()));
            let why = format!("the API server did not keep {path}");
            return self.without_finalizer(Code::FailedPrecondition, &why, context);
        }
        self.enter(ActStep::Entering)
    }

    /// Answers all acts as not performed, because the object does not hold the finalizer: without it, the object
    /// could vanish before its cloud resources are removed.
    fn without_finalizer(mut self, code: Code, why: &str, context: &mut Context<'_>) -> Flow<Self> {
        for index in 0..self.acts.len() {
            self.not_begun(index, code, why, context);
        }
        self.enter(ActStep::Entering)
    }

    /// Makes an entry for every create of the step.
    fn enter_creates(mut self, context: &mut Context<'_>) -> Flow<Self> {
        let Some(current) = context.work.current.clone() else {
            // An absent object holds no entries, and the checks have refused its creates.
            return self.enter(ActStep::Due);
        };
        self.entered_at = context.view.now.boot;
        for (index, slot) in self.acts.iter_mut().enumerate() {
            let (None, Some((operation, intent)), Some(prepared)) =
                (&slot.answer, checks::create(&slot.act), &slot.prepared)
            else {
                continue;
            };
            let catalogue = &context.frame.binding.catalogue;
            let Site { place, principal } = prepared.site.clone();
            let entry = PendingEntry {
                key: fresh_key(&current, operation, intent, index),
                service: catalogue.service(operation).to_owned(),
                operation: operation.to_owned(),
                intent: intent.to_owned(),
                stamp: catalogue.stamp,
                place,
                principal,
                since: context.view.now.unix,
                waited: Duration::ZERO,
                resolved: None,
            };
            slot.entry = Some(entry.key.clone());
            let history = EntryHistory::written(self.entered_at);
            context.work.histories.insert(entry.key.clone(), history);
            let fate = Fate::Open;
            context.work.entered.push(KnownEntry { entry, fate });
        }
        let creates = self.acts.iter().any(|slot| slot.entry.is_some());
        if creates && context.is_guarded(Guard::WriteAhead) {
            self.write_ahead(context)
        } else {
            self.enter(ActStep::Due)
        }
    }

    /// Writes the entries of the step. A new entry replaces a resolved one of the same operation and intent.
    fn write_ahead(self, context: &mut Context<'_>) -> Flow<Self> {
        let Some(current) = context.work.current.clone() else {
            return Flow::Bug("Acting has entries for an absent object".into());
        };
        let new: Vec<PendingEntry> = self.entries(context).cloned().collect();
        let keep = |entry: &PendingEntry| {
            let same = |e: &PendingEntry| e.operation == entry.operation && e.intent == entry.intent;
            let is_replaced = context.work.is_resolved(entry) && new.iter().any(same);
            (!is_replaced).then(|| entry.clone())
        };
        let pending = Pending::of(&current).left(keep, &new);
        let patch = json!({"status": {"pending": pending}});
        write_primary(&current, Some("status"), patch, context);
        self.wait(ActStep::WriteAhead)
    }

    /// The entries of this step.
    fn entries<'a>(&'a self, context: &'a Context<'_>) -> impl Iterator<Item = &'a PendingEntry> {
        let of_step = |entry: &&PendingEntry| {
            let key = Some(entry.key.as_str());
            self.acts.iter().any(|slot| slot.entry.as_deref() == key)
        };
        context
            .work
            .entered
            .iter()
            .map(|entered| &entered.entry)
            .filter(of_step)
    }

    fn on_written_ahead(mut self, found: ReadResult, context: &mut Context<'_>) -> Flow<Self> {
        if let Err(failure) = context.primary_written(WritePurpose::WriteAhead, found) {
            let creates: Vec<usize> = self.creates().collect();
            return self.not_written(failure, &creates, context);
        }
        let stands = context.work.current.as_ref().map(Pending::of);
        let kept = |key: &str| {
            let mut entries = stands.iter().flat_map(Pending::entries);
            let mut entered = context.work.entered.iter().map(|entered| &entered.entry);
            let written = entered.find(|entry| entry.key == key);
            written.is_some_and(|written| entries.any(|entry| entry == written))
        };
        let is_lost = |index: &usize| self.acts[*index].entry.as_deref().is_some_and(|key| !kept(key));
        let lost: Vec<usize> = self.creates().filter(is_lost).collect();
        if !lost.is_empty() {
            let path = "status.pending";
            context.report(Report::NotKept(path.to_owned()));
            let why = format!("the API server did not keep {path}: the CRD lacks it");
            for index in lost {
                self.not_begun(index, Code::FailedPrecondition, &why, context);
            }
        }
        self.enter(ActStep::Due)
    }

    fn creates(&self) -> impl Iterator<Item = usize> {
        let has_entry = |index: &usize| self.acts[*index].entry.is_some();
        (0..self.acts.len()).filter(has_entry)
    }

    /// Handles the failure of a write that had to come before these acts: the acts are not begun.
    fn not_written(mut self, failure: Failure, affected: &[usize], context: &mut Context<'_>) -> Flow<Self> {
        if !context.work.acted {
            // The next pass reads the object again. Any other failure lasts longer, and counts like that of a
            // publication.
            if is_outdated(&failure) || failure.code == Code::NotFound {
                return self.discard(Discard::NotWritten(failure), context);
            }
            self.leave(context.frame, context.work);
            return Flow::End(PassEnd::plain(Outcome::Failed(failure)));
        }
        for index in affected {
            self.not_begun(*index, Code::Aborted, &failure.message, context);
        }
        self.enter(ActStep::Due)
    }

    /// Performs the next act that has no answer. Calls the policy again when all have one.
    fn perform(mut self, context: &mut Context<'_>) -> Flow<Self> {
        let Some(index) = self.unanswered() else {
            return self.finish(context);
        };
        let slot = &mut self.acts[index];
        let (call, longest) = call_of(
            slot.act.clone(),
            slot.entry.clone(),
            slot.prepared.clone(),
            context,
        );
        // A host that resolves an old entry may get *absent* from the cloud, so its create must not be sent any more.
        let begin_by = match slot.entry {
            Some(_) => self.entered_at + BEGINS_WITHIN,
            None => Boot::MAX,
        };
        let first = standing(context);
        context.change(index, call, longest, Terms { begin_by, first });
        slot.before = context.before(&slot.act);
        let is_first = !std::mem::replace(&mut context.work.acted, true);
        slot.was_sent(true, context.work);
        self.wait(ActStep::Performing { index, is_first })
    }

    /// The act that was asked for last was not sent.
    fn take_back(&self, work: &mut Work) {
        if let ActStep::Performing { index, is_first } = self.now {
            work.acted &= !is_first;
            self.acts[index].was_sent(false, work);
        }
    }

    /// Answers the acts that may no longer begin: the primary changed before the first act, or the entries of creates are
    /// too old. Their creates were certainly not sent: the policy is told so, and its conclusion removes the entries.
    fn give_up(mut self, context: &mut Context<'_>) -> Flow<Self> {
        self.take_back(context.work);
        if self.creates().next().is_none() {
            return self.discard(Discard::Changed, context);
        }
        let all = !context.work.acted;
        let why = "the object changed, or the entries of the creates are too old";
        for index in 0..self.acts.len() {
            if all || self.acts[index].entry.is_some() {
                self.not_begun(index, Code::Aborted, why, context);
            }
        }
        self.enter(ActStep::Due)
    }

    /// Answers an act that was not begun.
    fn not_begun(&mut self, index: usize, code: Code, why: &str, context: &mut Context<'_>) {
        let Some(slot) = self.acts.get_mut(index).filter(|slot| slot.answer.is_none()) else {
            return;
        };
        slot.answer = Some(Err(not_performed(code, why)));
        if let Some(key) = slot.entry.take() {
            context.work.resolve_entered(&key, Fate::NeverSent);
        }
    }

    /// Ends the pass before any act was performed.
    fn discard(self, why: Discard, context: &mut Context<'_>) -> Flow<Self> {
        self.leave(context.frame, context.work);
        Flow::End(PassEnd::plain(Outcome::Discarded(why)))
    }

    /// Records the acts so far when the pass ends early, including one that may have been performed: its change was asked
    /// for, and is in flight if `was_sent`.
    pub(super) fn interrupt(mut self, was_sent: bool, frame: &Frame, work: &mut Work) {
        match self.now {
            ActStep::Performing { index, .. } if was_sent => {
                self.acts[index].answer.get_or_insert_with(|| Err(cut()));
            }
            ActStep::Performing { .. } => self.take_back(work),
            _ => {}
        }
        self.leave(frame, work);
    }

    fn leave(self, frame: &Frame, work: &mut Work) {
        self.journaled(frame).leave(frame, work);
    }

    /// Handles the answer of an act on another object.
    fn on_other_written(self, index: usize, found: ReadResult, context: &mut Context<'_>) -> Flow<Self> {
        let answer = found.map(|left| {
            let (slot, left) = (&self.acts[index], left.into_iter().next());
            let answer = answer_of(&slot.act, left.as_ref());
            other_written(slot, left, context);
            answer
        });
        self.on_performed(index, answer, context)
    }

    /// Stores the answer of an act. The outcome of a create is known if the answer is a success, or a failure
    /// without effect.
    fn on_performed(mut self, index: usize, answer: Answer, context: &mut Context<'_>) -> Flow<Self> {
        context.report(Report::Acted);
        let slot = &mut self.acts[index];
        let fate = match &answer {
            Ok(made) => Some(Fate::Resolved(Resolution::Done(made.to_string().into()))),
            Err(failure) if failure.effect == Effect::None => Some(Fate::Refused),
            Err(_) => None,
        };
        if let (Some(key), Some(fate)) = (&slot.entry, fate) {
            context.work.resolve_entered(key, fate);
        }
        slot.answer = Some(answer);
        self.enter(ActStep::Due)
    }

    fn finish(self, context: &Context<'_>) -> Flow<Self> {
        Flow::Enter(NextPhase::Stepping(self.journaled(context.frame)))
    }

    /// The role, with all answered acts in its journal.
    fn journaled(self, frame: &Frame) -> RoleRun {
        let Acting { mut run, acts, .. } = self;
        let limit = frame.binding.spec.limits.answer;
        for slot in acts {
            let Some(answer) = slot.answer else { continue };
            let answer = answer.map(|value| Json::from(value.to_string()));
            // The act was performed, although its answer does not fit.
            let answer = answer.and_then(|json| fitting(json, limit).map_err(Failure::effect_unknown));
            run.append(Request::Act(slot.act), answer);
        }
        run
    }
}

/// The message for an act that needs a write of the primary after such a write has failed.
const BEHIND: &str = "the object may have changed since this pass read it";

/// The answer for an act that was not begun.
fn not_performed(code: Code, why: &str) -> Failure {
    Failure::new(code, format!("not performed: {why}"))
}

/// For the first act: the primary as this pass read it. It must still be so when the act begins.
fn standing(context: &Context<'_>) -> Option<PrimaryCheck> {
    if context.work.acted || !context.is_guarded(Guard::LookBeforeTheFirstAct) {
        return None;
    }
    let place = context.frame.place();
    Some(PrimaryCheck {
        scope: primary_scope(&context.frame.binding, &place),
        place,
        snapshot: context.frame.snapshot.clone(),
    })
}

/// The cloud request of an act.
fn request_of(act: CloudAct, key: Option<String>, context: &Context<'_>) -> CloudRequest {
    CloudRequest {
        session: context.frame.session(context.work.handle.as_deref()),
        // `check_act` has already refused arguments that are not JSON.
        arguments: act.arguments.tree(&act.operation).cloned().unwrap_or_default(),
        operation: act.operation,
        key,
    }
}

/// The call that performs an act, and the longest time that it takes.
fn call_of(
    act: Act,
    key: Option<String>,
    prepared: Option<Preparation>,
    context: &Context<'_>,
) -> (Call, Duration) {
    let frame = context.frame;
    match act {
        Act::Cloud(act) => {
            let longest = frame.longest(&act.operation);
            let request = request_of(act, key, context);
            let call = match prepared {
                Some(prepared) => Call::Commit(Commit { request, prepared }),
                None => Call::Cloud(request),
            };
            (call, longest)
        }
        Act::Mint(mint) => {
            let grant = grants::minted(&frame.binding.grants, &mint.kind);
            let call = Call::Mint(Mint {
                count: grant.map_or(0, MintGrant::count),
                groups: grant.map_or(&[][..], MintGrant::groups).to_vec(),
                kind: mint.kind,
                ttl: Duration::from_millis(mint.ttl),
                owner: frame.uid().to_owned(),
            });
            (call, CLUSTER_LONGEST)
        }
        Act::Revoke(token) => {
            let call = Call::Revoke {
                // `check_act` has already refused anything that is no token.
                token: grants::minted_token(&token).unwrap_or_default(),
                owner: frame.uid().to_owned(),
            };
            (call, CLUSTER_LONGEST)
        }
        Act::Patch(mut patch) => {
            checks::pin(&mut patch, context);
            (Call::Write(Write::Act(Act::Patch(patch))), CLUSTER_LONGEST)
        }
        mut act => {
            checks::drop_precondition(&mut act, context);
            (Call::Write(Write::Act(act)), CLUSTER_LONGEST)
        }
    }
}

/// Enters the result of an act into the cache, which enqueues other keys but not this one.
fn other_written(slot: &ActSlot, left: Option<Object>, context: &mut Context<'_>) {
    let own = context.own_changes(&slot.act, &slot.before, left.as_ref());
    match (&slot.act, left) {
        (_, Some(object)) => context.command(Command::Wrote { object, own }),
        (Act::Delete(act), None) => {
            let (object, uid) = (act.object.clone(), act.precondition.uid.clone());
            context.command(Command::Gone { object, uid, own });
        }
        _ => {}
    }
}

/// The answer of an act on another object. The policy gets uid, version and generation, but never content.
fn answer_of(act: &Act, left: Option<&Object>) -> Value {
    // The answer for a removed object names the uid that the act named.
    let named = match act {
        Act::Delete(ObjectDelete { precondition, .. }) | Act::Evict(Eviction { precondition, .. }) => {
            json!(precondition.uid)
        }
        _ => Value::Null,
    };
    let at = |path: &str| left.and_then(|object| object.at(path));
    let uid = at("metadata.uid").unwrap_or(named);
    json!({"uid": uid, "resourceVersion": at("metadata.resourceVersion"), "generation": at("metadata.generation")})
}

/// Writes the primary before an act, with the version that this pass knows as precondition.
fn write_primary(current: &Object, subresource: Option<&str>, patch: Value, context: &mut Context<'_>) {
    let write = Write::Patch {
        object: current.reference(),
        subresource: subresource.map(str::to_owned),
        precondition: Some(context.precondition(current)),
        patch,
    };
    context.change(0, Call::Write(write), CLUSTER_LONGEST, Terms::ANY_TIME);
}

/// The answer for a change that was cut: its effect is unknown.
fn cut() -> Failure {
    Failure::new(Code::DeadlineExceeded, "no answer in time").effect_unknown()
}

/// A key that no other write of an entry uses. It includes the version of the primary before the write, so that each
/// write makes new keys.
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
