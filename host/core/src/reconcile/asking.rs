//! Asking: answers the questions of a step, from the cache where a watch has the answer, otherwise by a call.
//!
//! The journal has a limited size. Once it is used up, further answers are `resource-exhausted`. Lists may be long,
//! so a pass handles one list at a time. `looking.rs` answers a single question about objects of the cluster.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::json;

use super::frame::Frame;
use super::looking::Look;
use super::role::{RoleRun, size_of};
use super::stepping::Stepping;
use super::work::Work;
use super::{Awaited, CLUSTER_LONGEST, Command, Context, Flow, Phase, PhaseEvent};
use crate::call::{Call, CloudRequest, Found, Reply, Scope};
use crate::contract::{Answer, Ask, Code, Failure, Json, NO_SESSION, Question, Request, Role};
use crate::grants::{self, Admitted};
use crate::render::{Rendered, too_large};
use crate::shared::guards::Guard;
use crate::shared::locks::{LOCKS, LockAnswer};

/// The questions of a step.
#[derive(Debug)]
pub(crate) struct Asking {
    run: RoleRun,
    asks: Vec<AskSlot>,
    /// The bytes of the answers so far.
    bytes: u64,
    /// Whether a list did not fit any more. Later lists of the step are then refused without being rendered.
    is_full: bool,
    tally: Tally,
}

#[derive(Debug)]
struct AskSlot {
    ask: Ask,
    state: AskState,
}

/// The questions of a step by their states, so that no event has to look at all of them.
#[derive(Debug, Default)]
struct Tally {
    /// The slots of the questions that are queued.
    queued: BTreeSet<usize>,
    answered: usize,
    /// The number of questions about objects that are neither due nor answered.
    under_way: usize,
    /// The number of questions whose answer may fill the room that is left, and whose objects are held until then.
    busy: usize,
}

impl Tally {
    /// Counts a question that has entered a state.
    fn enter(&mut self, slot: usize, ask: &AskSlot) {
        if matches!(ask.state, AskState::Queued(_)) {
            self.queued.insert(slot);
        }
        self.answered += usize::from(ask.is_answered());
        self.under_way += usize::from(ask.is_under_way());
        self.busy += usize::from(ask.is_busy());
    }

    /// Counts a question that leaves a state.
    fn leave(&mut self, slot: usize, ask: &AskSlot) {
        self.queued.remove(&slot);
        self.answered -= usize::from(ask.is_answered());
        self.under_way -= usize::from(ask.is_under_way());
        self.busy -= usize::from(ask.is_busy());
    }
}

impl AskSlot {
    fn is_answered(&self) -> bool {
        matches!(self.state, AskState::Answered(_))
    }

    fn is_under_way(&self) -> bool {
        let is_open = !matches!(self.state, AskState::Due | AskState::Answered(_));
        is_open && is_of_cluster(&self.ask.question)
    }

    fn is_busy(&self) -> bool {
        match self.state {
            AskState::Rendering => true,
            AskState::Reading => is_list(&self.ask.question),
            _ => false,
        }
    }
}

/// The state of a question.
#[derive(Debug)]
pub(super) enum AskState {
    /// The question was not looked at yet.
    Due,
    /// The watch of a scope has not listed yet.
    Listing(Scope),
    /// The question waits until it may be answered from the cache or by a list. These questions are answered one
    /// after another.
    Queued(Box<Look>),
    /// A call reads the answer.
    Reading,
    /// A thread renders the answer.
    Rendering,
    Answered(Result<Json, Failure>),
}

impl Asking {
    /// Records the role when the pass ends while questions are open.
    pub(super) fn leave(self, frame: &Frame, work: &mut Work) {
        self.run.leave(frame, work);
    }

    /// Takes the questions of a step that the journal does not answer yet, each once.
    pub(super) fn new(run: RoleRun, asks: Vec<Ask>) -> Self {
        let mut known: BTreeSet<&Ask> = run.asked().collect();
        let is_new: Vec<bool> = asks.iter().map(|ask| known.insert(ask)).collect();
        let due = |ask| AskSlot {
            ask,
            state: AskState::Due,
        };
        let asks = asks.into_iter().zip(is_new).filter(|(_, is_new)| *is_new);
        Asking {
            asks: asks.map(|(ask, _)| due(ask)).collect(),
            run,
            bytes: 0,
            is_full: false,
            tally: Tally::default(),
        }
    }

    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        if !self.awaits(&event) {
            return Flow::unexpected(&Phase::Asking(self), &event);
        }
        match event {
            PhaseEvent::Entered => (0..self.asks.len()).for_each(|slot| self.look(slot, context)),
            PhaseEvent::Listed(slot) => self.look(slot, context),
            PhaseEvent::Reply(slot, Reply::Answer(answer)) => self.on_answer(slot, answer, context),
            PhaseEvent::Reply(slot, Reply::Objects(found)) => self.on_objects(slot, found, context),
            PhaseEvent::Reply(slot, Reply::Rendered(rendered)) => self.on_rendered(slot, rendered, context),
            PhaseEvent::Cut(slot) => self.on_cut(slot, context),
            PhaseEvent::Opened => {}
            event => return Flow::unexpected(&Phase::Asking(self), &event),
        }
        let waits = self.look_on(context);
        let bytes = context.held_with(&self.run).saturating_add(self.bytes);
        context.command(Command::Hold { bytes, waits });
        match self.tally.answered == self.asks.len() {
            true => self.finish(),
            false => Flow::Wait(Phase::Asking(self)),
        }
    }

    /// Whether a question is in the state that the event ends. A reply to a call that was cut or cancelled never gets
    /// here: the controller drops it.
    fn awaits(&self, event: &PhaseEvent) -> bool {
        let state = |slot: &usize| self.asks.get(*slot).map(|ask| &ask.state);
        match event {
            PhaseEvent::Entered => true,
            PhaseEvent::Listed(slot) => matches!(state(slot), Some(AskState::Listing(_))),
            PhaseEvent::Reply(slot, Reply::Rendered(_)) => matches!(state(slot), Some(AskState::Rendering)),
            PhaseEvent::Reply(slot, _) => matches!(state(slot), Some(AskState::Reading)),
            PhaseEvent::Cut(slot) => matches!(
                state(slot),
                Some(AskState::Listing(_) | AskState::Reading | AskState::Rendering)
            ),
            PhaseEvent::Opened => !self.tally.queued.is_empty(),
            PhaseEvent::NotSent(..) => false,
        }
    }

    pub(super) fn awaited(&self) -> Awaited<'_> {
        let listing = self.asks.iter().find_map(|ask| match &ask.state {
            AskState::Listing(scope) => Some(scope),
            _ => None,
        });
        listing.map_or(Awaited::Call, Awaited::Watch)
    }

    /// Calls the policy again, with all answers in its journal.
    fn finish(mut self) -> Flow {
        for ask in self.asks {
            if let AskState::Answered(answer) = ask.state {
                self.run.append(Request::Ask(ask.ask), answer);
            }
        }
        Stepping::again(self.run)
    }

    /// The bytes that the next answer may have.
    fn room(&self, context: &Context<'_>) -> u64 {
        let limits = &context.frame.binding.spec.limits;
        let used = self.run.journal_bytes.saturating_add(self.bytes);
        limits.answer.min(limits.journal.saturating_sub(used))
    }

    /// The bytes that the next list may have.
    fn room_for_list(&self, context: &Context<'_>) -> u64 {
        match self.is_full {
            true => 0,
            false => self.room(context),
        }
    }

    /// Keeps an answer if it fits, and a failure otherwise.
    fn answer(&mut self, slot: usize, answer: Result<Json, Failure>, context: &Context<'_>) {
        let room = self.room(context);
        let answer = answer.and_then(|json| match json.len() as u64 > room {
            true => Err(too_large(room)),
            false => Ok(json),
        });
        self.bytes += size_of(&answer);
        self.set(slot, AskState::Answered(answer));
    }

    /// Changes the state of a question, and returns the old one.
    fn set(&mut self, slot: usize, state: AskState) -> AskState {
        let ask = &mut self.asks[slot];
        self.tally.leave(slot, ask);
        let old = std::mem::replace(&mut ask.state, state);
        self.tally.enter(slot, ask);
        old
    }

    /// Answers a question, or keeps its new state.
    fn enter(&mut self, slot: usize, state: AskState, context: &Context<'_>) {
        match state {
            AskState::Answered(answer) => self.answer(slot, answer, context),
            state => drop(self.set(slot, state)),
        }
    }

    /// Answers a question, or starts what will answer it.
    fn look(&mut self, slot: usize, context: &mut Context<'_>) {
        let (role, ask) = (self.run.role, &self.asks[slot]);
        let question = &ask.ask.question;
        if let Question::Credential(plan) = question
            && grants::is_no_session(plan)
        {
            self.run.handles.insert(NO_SESSION.to_owned());
        }
        // A question becomes a dependency only when it is answered, so those that are under way are counted here.
        let under_way = self.tally.under_way - usize::from(ask.is_under_way());
        let state = match is_of_cluster(question) && context.has_looked_enough(role, question, under_way) {
            true => AskState::Answered(Err(context.too_many_questions())),
            false => look(slot, role, question, context),
        };
        self.enter(slot, state, context);
    }

    /// Answers the queued questions in order, until one of them needs a call. Returns whether the pass waits because
    /// the journals of its tenant queue hold too much.
    fn look_on(&mut self, context: &mut Context<'_>) -> bool {
        // A list may fill the room that is left, and its objects are held until it is rendered. So the room of the next
        // list is known only when this one is answered. Every other answer is measured when it arrives.
        while let Some(slot) = self
            .tally
            .queued
            .first()
            .copied()
            .filter(|_| self.tally.busy == 0)
        {
            if !context.may_hold_more() {
                return true;
            }
            let AskState::Queued(look) = self.set(slot, AskState::Due) else {
                continue;
            };
            let state = look.answer(slot, self.room_for_list(context), context);
            self.enter(slot, state, context);
        }
        false
    }

    /// Handles the answer of a cloud or of a credential call.
    fn on_answer(&mut self, slot: usize, answer: Answer, context: &mut Context<'_>) {
        let asked = &self.asks[slot].ask;
        let answer = match (&asked.question, answer) {
            (Question::Credential(_), Ok(credential)) => {
                if let Some(handle) = credential["handle"].as_str() {
                    self.run.handles.insert(handle.to_owned());
                }
                Ok(credential.to_string().into())
            }
            (_, answer) => answer.map(|value| value.to_string().into()),
        };
        self.answer(slot, answer, context);
    }

    /// Handles the answer of the API server.
    fn on_objects(&mut self, slot: usize, found: Found, context: &mut Context<'_>) {
        let asked = &self.asks[slot].ask;
        let is_list = is_list(&asked.question);
        let look = Look::of(self.run.role, &asked.question, None, context);
        let found = match found {
            // For a list this code means that the API server does not serve the kind, not that there is no object.
            Err(failure) if !is_list && failure.code == Code::NotFound => Ok(Vec::new()),
            found => found,
        };
        let (look, objects) = match (look, found) {
            (Ok(look), Ok(objects)) => (look, objects),
            (_, Err(failure)) | (Err(failure), _) => return self.answer(slot, Err(failure), context),
        };
        let state = look.read(slot, objects, self.room(context), context);
        self.enter(slot, state, context);
    }

    /// Handles a rendered answer.
    fn on_rendered(&mut self, slot: usize, rendered: Rendered, context: &mut Context<'_>) {
        let asked = (self.run.role, self.asks[slot].ask.question.clone());
        context.counted(&asked, rendered.count);
        // A list that is too long for any answer says nothing about the next one. A list that is too long for the rest of
        // the journal shows that the rest is small: rendering more lists for it would take a thread in vain.
        let limit = context.frame.binding.spec.limits.answer;
        let is_too_large = |failure: &Failure| failure.code == Code::ResourceExhausted;
        self.is_full |= is_list(&asked.1)
            && self.room(context) < limit
            && rendered.answer.as_ref().is_err_and(is_too_large);
        self.answer(slot, rendered.answer, context);
    }

    /// Answers a question whose call or watch took too long. The error of the watch is part of the answer, if there
    /// is one.
    fn on_cut(&mut self, slot: usize, context: &Context<'_>) {
        let failure = match &self.asks[slot].state {
            AskState::Listing(scope) => {
                let why = context.view.cache.watch_error(scope);
                let why = why.unwrap_or("no answer in time");
                let message = format!("the watch of {} has not listed: {why}", scope.kind.kind);
                Failure::new(Code::Unavailable, message)
            }
            _ => Failure::new(Code::DeadlineExceeded, "no answer in time"),
        };
        self.answer(slot, Err(failure), context);
    }
}

/// Whether a question is about objects of the cluster: its answer can be a dependency.
pub(super) fn is_of_cluster(question: &Question) -> bool {
    matches!(question, Question::Object(_) | Question::Objects(_))
}

pub(super) fn is_list(question: &Question) -> bool {
    matches!(question, Question::Objects(_))
}

fn look(slot: usize, role: Role, question: &Question, context: &mut Context<'_>) -> AskState {
    let frame = context.frame;
    let primary = frame.snapshot.as_ref();
    let admitted = match grants::check_question(&frame.binding, role, primary, question) {
        Ok(admitted) => admitted,
        Err(refusal) => return AskState::Answered(Err(context.refuses(refusal))),
    };
    match (question, admitted) {
        (_, Admitted::Watch(grant, scope, selection)) => {
            let asked = (role, question.clone());
            let look = Look {
                asked,
                grant,
                scope,
                selection,
            };
            look.begin(slot, context)
        }
        (Question::Lock(name), Admitted::Call) => AskState::Answered(lock(name, context)),
        (Question::Credential(plan), Admitted::Call) if grants::is_no_session(plan) => {
            let answer = json!({"handle": NO_SESSION, "reused": false, "attributes": null});
            AskState::Answered(Ok(answer.to_string().into()))
        }
        (question, Admitted::Call) => read(slot, question, context),
    }
}

/// Takes a lock unless another pass holds it.
fn lock(name: &str, context: &mut Context<'_>) -> Result<Json, Failure> {
    let (frame, asked) = (context.frame, &mut context.work.locks);
    if asked.len() >= LOCKS && !asked.contains(name) {
        let message = format!("more than {LOCKS} locks in one pass");
        return Err(Failure::new(Code::ResourceExhausted, message));
    }
    asked.insert(name.to_owned());
    let holder = context.view.locks.holder(&frame.key.binding, &frame.tenant, name);
    let free = holder.is_none_or(|pass| pass == frame.id);
    if free {
        context.command(Command::Lock(name.to_owned()));
    }
    let answer = match free || !context.is_guarded(Guard::LocksExclude) {
        true => LockAnswer::Held,
        false => LockAnswer::Busy,
    };
    Ok(answer.json().into())
}

/// Reads an answer that no watch has, from the API server or the cloud.
fn read(slot: usize, question: &Question, context: &mut Context<'_>) -> AskState {
    let session = context.frame.session(context.work.handle.as_deref());
    match question {
        Question::Cloud(cloud) => {
            let arguments = match cloud.arguments.tree(&cloud.operation) {
                Ok(arguments) => arguments.clone(),
                Err(failure) => return AskState::Answered(Err(failure)),
            };
            let longest = context.frame.longest(&cloud.operation);
            let request = CloudRequest {
                session,
                operation: cloud.operation.clone(),
                arguments,
                key: None,
            };
            context.call(slot, Call::Cloud(request), longest);
        }
        Question::Credential(plan) => {
            let call = Call::Credential {
                cloud: session.cloud,
                owner: session.owner,
                plan: plan.clone(),
            };
            context.call(slot, call, CLUSTER_LONGEST);
        }
        question => context.call(slot, Call::Read(question.clone()), CLUSTER_LONGEST),
    }
    AskState::Reading
}
