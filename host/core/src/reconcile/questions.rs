//! Asking: answers the questions of a step. What a watch knows is only named: the next step renders it. The rest is read by
//! calls.
//!
//! The journal has a limited size. Once it is used up, further answers are `resource-exhausted`. Lists that are read may be
//! long, so a pass reads one at a time. `object_questions.rs` answers a single question about objects of the cluster.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::json;

use super::context::{Command, Context};
use super::flow::{Flow, NextPhase, PhaseEvent, PhaseWait};
use super::frame::{CLUSTER_LONGEST, Frame};
use super::object_questions::{AnswerSource, AskState, ObjectQuestion, is_of_cluster};
use super::role::RoleRun;
use super::work::Work;
use crate::call::{Call, CloudRequest, ReadResult, Reply};
use crate::contract::{Answer, Ask, Code, Failure, Json, NO_SESSION, Question, Request, Role};
use crate::grants::{self, Answerer};
use crate::render::{fitting, too_large};
use crate::shared::guards::Guard;
use crate::shared::locks::{LOCKS, LockAnswer};
use crate::worker::size_of;

/// The questions of a step.
#[derive(Debug)]
pub(crate) struct Asking {
    run: RoleRun,
    asks: Vec<AskSlot>,
    /// The number of questions without an answer.
    open: usize,
    /// The lists that are to be read, one after another.
    lists: VecDeque<(usize, Box<ObjectQuestion>)>,
    /// Whether a list is being read.
    reads_list: bool,
    /// The bytes of the answers so far.
    bytes: u64,
    /// The bytes of the objects that were read for answers that are not rendered yet.
    read: u64,
    /// Whether the pass has asked to hold texts of any size.
    grows: bool,
}

#[derive(Debug)]
struct AskSlot {
    ask: Ask,
    state: AskState,
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
        let asks: Vec<AskSlot> = asks.map(|(ask, _)| due(ask)).collect();
        Asking {
            open: asks.len(),
            asks,
            run,
            lists: VecDeque::new(),
            reads_list: false,
            bytes: 0,
            read: 0,
            grows: false,
        }
    }

    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        if !self.awaits(&event) {
            return Flow::unexpected("Asking", &event);
        }
        match event {
            PhaseEvent::Entered => (0..self.asks.len()).for_each(|slot| self.look(slot, context)),
            PhaseEvent::Listed(slot) => self.look(slot, context),
            PhaseEvent::Reply(slot, Reply::Answer(answer)) => self.on_answer(slot, answer, context),
            PhaseEvent::Reply(slot, Reply::Objects(found)) => self.on_objects(slot, found, context),
            PhaseEvent::Cut(slot) => self.on_cut(slot, context),
            PhaseEvent::Grown => {}
            event => return Flow::unexpected("Asking", &event),
        }
        self.read_lists(context);
        match self.open {
            0 => self.finish(),
            _ => Flow::Wait(self),
        }
    }

    /// Whether a question is in the state that the event ends. A reply to a call that was cut or cancelled never gets
    /// here: the controller drops it.
    fn awaits(&self, event: &PhaseEvent) -> bool {
        let state = |slot: &usize| self.asks.get(*slot).map(|ask| &ask.state);
        match event {
            PhaseEvent::Entered => true,
            PhaseEvent::Listed(slot) => matches!(state(slot), Some(AskState::Listing(_))),
            PhaseEvent::Reply(slot, _) => matches!(state(slot), Some(AskState::Reading)),
            PhaseEvent::Cut(slot) => matches!(state(slot), Some(AskState::Listing(_) | AskState::Reading)),
            PhaseEvent::Grown => self.grows,
            PhaseEvent::NotSent(..) => false,
        }
    }

    pub(super) fn awaited(&self) -> PhaseWait<'_> {
        let listing = self.asks.iter().find_map(|ask| match &ask.state {
            AskState::Listing(scope) => Some(scope),
            _ => None,
        });
        listing.map_or(PhaseWait::Call, PhaseWait::Watch)
    }

    /// Calls the policy again, with all answers in its journal.
    fn finish(mut self) -> Flow<Self> {
        for AskSlot { ask, state } in self.asks {
            match state {
                AskState::Answered(answer) => self.run.append(Request::Ask(ask), answer),
                AskState::Named(render) => self.run.name(ask, render),
                _ => {}
            }
        }
        Flow::Enter(NextPhase::Stepping(self.run))
    }

    /// The bytes that the next answer may have.
    fn room(&self, context: &Context<'_>) -> u64 {
        let limits = &context.frame.binding.spec.limits;
        let used = self.run.journal_bytes.saturating_add(self.bytes);
        limits.answer.min(limits.journal.saturating_sub(used))
    }

    /// Keeps an answer if it fits, and a failure otherwise.
    fn answer(&mut self, slot: usize, answer: Result<Json, Failure>, context: &Context<'_>) {
        let room = self.room(context);
        let answer = answer.and_then(|json| fitting(json, room));
        self.bytes += size_of(&answer);
        self.enter(slot, AskState::Answered(answer));
    }

    /// Enters the new state of a question.
    fn enter(&mut self, slot: usize, state: AskState) {
        let ask = &mut self.asks[slot];
        let was_open = ask.state.is_open();
        ask.state = state;
        self.open -= usize::from(was_open && !ask.state.is_open());
    }

    /// Answers a question, or starts what will answer it.
    fn look(&mut self, slot: usize, context: &mut Context<'_>) {
        let (role, question) = (self.run.role, &self.asks[slot].ask.question);
        if let Question::Credential(plan) = question
            && grants::is_no_session(plan)
        {
            self.run.handles.insert(NO_SESSION.to_owned());
        }
        match look(slot, role, question, context) {
            AnswerSource::State(AskState::Answered(answer)) => self.answer(slot, answer, context),
            AnswerSource::State(state) => self.enter(slot, state),
            AnswerSource::List(look) => self.lists.push_back((slot, look)),
        }
    }

    /// Reads the next list, unless one is being read. A pass that holds much already waits until it may.
    fn read_lists(&mut self, context: &mut Context<'_>) {
        while !self.reads_list {
            let Some((slot, _)) = self.lists.front() else {
                return;
            };
            let (slot, room) = (*slot, self.room(context));
            if room == 0 {
                self.lists.pop_front();
                self.answer(slot, Err(too_large(room)), context);
                continue;
            }
            if !self.has_room_for(0, context) {
                return self.grow(context);
            }
            if let Some((slot, look)) = self.lists.pop_front() {
                look.read_list(slot, context);
                self.reads_list = true;
                self.enter(slot, AskState::Reading);
            }
        }
    }

    fn grow(&mut self, context: &mut Context<'_>) {
        if !std::mem::replace(&mut self.grows, true) {
            context.command(Command::Grow);
        }
    }

    /// Whether the pass may take in objects of so many bytes beside what it holds.
    fn has_room_for(&self, bytes: u64, context: &Context<'_>) -> bool {
        let held = self.bytes.saturating_add(self.read).saturating_add(bytes);
        held < context.may_hold(&self.run) && (!self.grows || context.is_large())
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
    fn on_objects(&mut self, slot: usize, found: ReadResult, context: &mut Context<'_>) {
        let asked = &self.asks[slot].ask;
        let is_list = is_list(&asked.question);
        self.reads_list &= !is_list;
        let look = ObjectQuestion::of(Arc::new((self.run.role, asked.question.clone())), None, context);
        let found = match found {
            // For a list this code means that the API server does not serve the kind, not that there is no object.
            Err(failure) if !is_list && failure.code == Code::NotFound => Ok(Vec::new()),
            found => found,
        };
        let render = look.and_then(|look| look.read(found?, context));
        match render {
            // It is read again once the pass may hold it.
            Ok(render) if is_list && !self.has_room_for(render.bytes(), context) => {
                self.grow(context);
                self.look(slot, context);
            }
            Ok(render) => {
                self.read = self.read.saturating_add(render.bytes());
                self.enter(slot, AskState::Named(render.into()));
            }
            Err(failure) => self.answer(slot, Err(failure), context),
        }
    }

    /// Answers a question whose call or watch took too long. The error of the watch is part of the answer, if there
    /// is one.
    fn on_cut(&mut self, slot: usize, context: &Context<'_>) {
        let AskSlot { ask, state } = &self.asks[slot];
        let failure = match state {
            AskState::Listing(scope) => {
                let why = context.view.cache.watch_error(scope);
                let why = why.unwrap_or("no answer in time");
                let message = format!("the watch of {} has not listed: {why}", scope.kind.kind);
                Failure::new(Code::Unavailable, message)
            }
            _ => {
                self.reads_list &= !is_list(&ask.question);
                Failure::new(Code::DeadlineExceeded, "no answer in time")
            }
        };
        self.answer(slot, Err(failure), context);
    }
}

pub(super) fn is_list(question: &Question) -> bool {
    matches!(question, Question::Objects(_))
}

fn look(slot: usize, role: Role, question: &Question, context: &mut Context<'_>) -> AnswerSource {
    let frame = context.frame;
    let primary = frame.snapshot.as_ref();
    let asked = Arc::new((role, question.clone()));
    // Before its selectors are parsed: of nine hundred questions most go no further.
    if is_of_cluster(question) && context.has_looked_enough(&asked) {
        return AnswerSource::State(AskState::Answered(Err(context.too_many_questions())));
    }
    let admitted = match grants::check_question(&frame.binding, role, primary, question) {
        Ok(admitted) => admitted,
        Err(refusal) => return AnswerSource::State(AskState::Answered(Err(context.refuses(refusal)))),
    };
    AnswerSource::State(match (question, admitted) {
        (_, Answerer::Watch(grant, scope, selection)) => {
            let look = ObjectQuestion {
                asked,
                grant,
                scope,
                selection,
            };
            return look.begin(slot, context);
        }
        (Question::Lock(name), Answerer::Call) => AskState::Answered(lock(name, context)),
        (Question::Credential(plan), Answerer::Call) if grants::is_no_session(plan) => {
            let answer = json!({"handle": NO_SESSION, "reused": false, "attributes": null});
            AskState::Answered(Ok(answer.to_string().into()))
        }
        (question, Answerer::Call) => read(slot, question, context),
    })
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
    let answer = if free || !context.is_guarded(Guard::LocksExclude) {
        LockAnswer::Held
    } else {
        LockAnswer::Busy
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
