//! Asking: answers the questions of a step, from the cache where a watch has the answer, otherwise by a call.
//!
//! The journal has a limited size. Once it is used up, further answers are `resource-exhausted`. Lists may be long,
//! so a pass handles one list at a time. `looking.rs` answers a single question about objects of the cluster.

use std::collections::BTreeSet;

use super::frame::Frame;
use super::looking::Look;
use super::role::{RoleRun, size_of};
use super::stepping::Stepping;
use super::work::Work;
use super::{Awaited, CLUSTER_LONGEST, Command, Context, Flow, Phase, PhaseEvent};
use crate::call::{Call, CloudRequest, Found, Reply, Scope};
use crate::contract::{Answer, Ask, Code, Failure, Json, Question, Request, Role};
use crate::controller::Guard;
use crate::controller::locks::LockAnswer;
use crate::grants::{self, Admitted};
use crate::render::{Rendered, too_large};

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
        let bytes = self.run.journal_bytes.saturating_add(self.bytes);
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
        let look = Look::of(self.run.role, &asked.question, context);
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

fn is_of_cluster(question: &Question) -> bool {
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
        (Question::Lock(name), Admitted::Call) => {
            let holder = context.view.locks.holder(&frame.key.binding, &frame.tenant, name);
            let free = holder.is_none_or(|pass| pass == frame.id);
            if free {
                context.command(Command::Lock(name.clone()));
            }
            let answer = match free || !context.is_guarded(Guard::LocksExclude) {
                true => LockAnswer::Held,
                false => LockAnswer::Busy,
            };
            AskState::Answered(Ok(answer.json().into()))
        }
        (question, Admitted::Call) => read(slot, question, context),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::WatchEvent;
    use crate::contract::{ListQuery, ObjectRef};
    use crate::key::PassId;
    use crate::object::{Object, ResourceVersion};
    use crate::reconcile::fixture::{Fixture, answer, ask, config_map, failure, found, get};
    use crate::reconcile::{Dependency, Moved, Report};
    use crate::render::Render;
    use crate::selection::Selection;
    use serde_json::{Value, json};

    /// The answers in the journal when the policy is called again.
    fn journal(commands: &[Command]) -> Option<Vec<Result<Json, Failure>>> {
        commands.iter().find_map(|command| match command {
            Command::Call {
                call: Call::Step { pass, .. },
                ..
            } => Some(pass.journal.iter().map(|entry| entry.answer.clone()).collect()),
            _ => None,
        })
    }

    fn code(commands: &[Command]) -> Option<Code> {
        let journal = journal(commands)?;
        journal[0].as_ref().err().map(|failure| failure.code)
    }

    fn config_maps() -> Scope {
        Scope {
            kind: crate::contract::Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            },
            namespace: Some("default".into()),
            name: None,
            node: None,
            fields: Vec::new(),
        }
    }

    fn listed(fixture: &mut Fixture, objects: Vec<Value>) {
        fixture.cache.open(&config_maps());
        let objects = objects.into_iter().map(Object::new).collect();
        let version = ResourceVersion(9);
        fixture
            .cache
            .observe(&config_maps(), WatchEvent::Listed { objects, version });
    }

    fn site(data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": data},
            "metadata": {"namespace": "default", "name": "site", "uid": "s", "resourceVersion": "5"}})
    }

    #[test]
    fn what_a_watch_knows_is_answered_at_once_and_depended_on() {
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site("v")]);
        let (_, commands) = fixture.requests(vec![config_map(false)]);
        let journal = journal(&commands).expect("the policy is called again");
        assert!(
            journal[0].as_ref().is_ok_and(|json| json.contains("\"v\"")),
            "{journal:?}"
        );
        assert_eq!(fixture.work.dependencies.len(), 1);
        assert!(fixture.work.looked_at.contains(&config_maps()));
    }

    #[test]
    fn a_pass_that_looks_at_a_watch_says_so_once_and_as_long_as_it_is_not_open_each_time() {
        let watches = |commands: &[Command]| {
            let is_watch = |command: &&Command| matches!(command, Command::Watch(_));
            commands.iter().filter(is_watch).count()
        };
        for (is_open, count) in [(true, 1), (false, 3)] {
            let mut fixture = Fixture::new();
            if is_open {
                listed(&mut fixture, vec![site("v")]);
            }
            let asks = ["b", "c", "d"].map(labelled);
            let (_, commands) = fixture.requests(asks.to_vec());
            assert_eq!(watches(&commands), count, "{commands:?}");
        }
    }

    #[test]
    fn a_watch_that_has_not_listed_is_waited_for_and_not_found_is_said_only_by_one_that_has() {
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.requests(vec![config_map(false)]);
        let awaits = |command: &Command| matches!(command, Command::AwaitList { slot: 0, .. });
        assert!(commands.iter().any(awaits), "{commands:?}");
        listed(&mut fixture, vec![]);
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Listed(0));
        assert_eq!(code(&commands), Some(Code::NotFound));
        assert_eq!(
            fixture.work.dependencies.len(),
            1,
            "one that comes enqueues the key"
        );
    }

    #[test]
    fn a_watch_that_never_lists_says_why() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![config_map(false)]);
        fixture.cache.open(&config_maps());
        let forbidden = WatchEvent::Failed("configmaps is forbidden".into());
        fixture.cache.observe(&config_maps(), forbidden);
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
        let journal = journal(&commands).expect("the policy is called again");
        let failure = journal[0].as_ref().expect_err("it cannot be said");
        assert_eq!(failure.code, Code::Unavailable);
        assert!(failure.message.ends_with("configmaps is forbidden"), "{failure}");
    }

    #[test]
    fn latest_reads_through_and_an_answer_that_does_not_come_in_time_is_said() {
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site("old")]);
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let (_, commands) = fixture.go_on(flow, found(Ok(site("new"))));
        let new = journal(&commands).expect("the policy is called again");
        assert!(
            new[0].as_ref().is_ok_and(|json| json.contains("\"new\"")),
            "{new:?}"
        );
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
        assert_eq!(code(&commands), Some(Code::DeadlineExceeded));
    }

    #[test]
    fn a_failure_to_look_is_no_not_found_and_nothing_depends_on_it() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let (_, commands) = fixture.go_on(flow, found(Err(failure(Code::Unavailable))));
        assert_eq!(code(&commands), Some(Code::Unavailable));
        assert!(fixture.work.dependencies.is_empty());
    }

    #[test]
    fn the_policy_waits_for_every_answer_and_each_question_is_asked_once() {
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.requests(vec![get(), config_map(true), get()]);
        let asked = commands.iter().filter(|c| {
            matches!(
                c,
                Command::Call {
                    call: Call::Cloud(_) | Call::Read(_),
                    ..
                }
            )
        });
        assert_eq!(asked.count(), 2, "{commands:?}");
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(1, Reply::objects(Ok(site("v")))));
        assert_eq!(journal(&commands), None);
        let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
        assert_eq!(journal(&commands).map(|journal| journal.len()), Some(2));
    }

    #[test]
    fn what_is_not_granted_is_refused_and_said_of_the_binding() {
        let mut fixture = Fixture::new();
        let secret = ask(Question::Secret(ObjectRef {
            cluster: None,
            kind: crate::contract::Kind {
                api_version: "v1".into(),
                kind: "Secret".into(),
            },
            namespace: Some("default".into()),
            name: "s".into(),
        }));
        let (_, commands) = fixture.requests(vec![secret]);
        assert_eq!(code(&commands), Some(Code::PermissionDenied));
        assert!(
            commands
                .iter()
                .any(|c| matches!(c, Command::Report(Report::Ungranted(_))))
        );
        let plan = "{}".into();
        let (_, commands) = fixture.requests(vec![ask(Question::Credential(plan))]);
        assert_eq!(
            code(&commands),
            Some(Code::PermissionDenied),
            "credentials are for identities"
        );
    }

    #[test]
    fn a_lock_is_held_by_the_pass_that_took_it_and_busy_for_every_other() {
        let one = || ask(Question::Lock("one".into()));
        let said = |commands: &[Command]| journal(commands).map(|journal| journal[0].clone());
        let mut fixture = Fixture::new();
        let (_, commands) = fixture.requests(vec![one()]);
        assert_eq!(said(&commands), Some(Ok("\"held\"".into())));
        assert!(
            commands
                .iter()
                .any(|c| matches!(c, Command::Lock(name) if name == "one"))
        );
        let (binding, tenant) = (fixture.frame.key.binding.clone(), fixture.frame.tenant.clone());
        fixture.locks.take(&binding, &tenant, "one", PassId(7));
        let (_, commands) = fixture.requests(vec![one()]);
        assert_eq!(said(&commands), Some(Ok("\"busy\"".into())));
        assert!(!commands.iter().any(|c| matches!(c, Command::Lock(_))));
    }

    #[test]
    fn an_answer_that_is_larger_than_the_room_is_refused() {
        for (limit, refused) in [(16, false), (15, true)] {
            for of_answer in [true, false] {
                let mut fixture = Fixture::new();
                fixture.bind(|binding| {
                    let limits = &mut binding.spec.limits;
                    *(if of_answer {
                        &mut limits.answer
                    } else {
                        &mut limits.journal
                    }) = limit + 1_000 * u64::from(!of_answer);
                });
                let (flow, _) = fixture.requests(vec![get()]);
                // `{"a":"xxxxxxxx"}` has 16 bytes.
                let text = "x".repeat(8 + 1_000 * usize::from(!of_answer));
                let (_, commands) = fixture.go_on(flow, answer(Ok(json!({"a": text}))));
                let expected = refused.then_some(Code::ResourceExhausted);
                assert_eq!(code(&commands), expected, "{limit} {of_answer}");
            }
        }
    }

    /// A list of ConfigMaps that a label selects.
    fn labelled(label: &str) -> Request {
        ask(Question::Objects(ListQuery {
            namespace: Some("default".into()),
            label_selector: Some(format!("a={label}")),
            ..ListQuery::all(config_maps().kind)
        }))
    }

    fn many(fixture: &mut Fixture, count: usize) {
        let objects = (0..count).map(|number| {
            let mut one = site(&format!("s-{number:04}"));
            one["metadata"]["name"] = json!(format!("s-{number:04}"));
            one["metadata"]["labels"] = json!({"a": "b"});
            Object::new(one)
        });
        let version = ResourceVersion(1);
        let listed = WatchEvent::Listed {
            objects: objects.collect(),
            version,
        };
        fixture.cache.open(&config_maps());
        fixture.cache.observe(&config_maps(), listed);
    }

    fn renders(commands: &[Command]) -> Vec<(usize, &Render)> {
        let calls = commands.iter().filter_map(|command| match command {
            Command::Call {
                slot,
                call: Call::Render(render),
                ..
            } => Some((*slot, &**render)),
            _ => None,
        });
        calls.collect()
    }

    #[test]
    fn a_long_list_is_rendered_by_a_thread_and_a_short_one_at_once() {
        for (count, by_thread) in [(16, 0), (17, 1)] {
            let mut fixture = Fixture::new();
            many(&mut fixture, count);
            let (_, commands) = fixture.requests(vec![labelled("b")]);
            assert_eq!(renders(&commands).len(), by_thread, "{count}");
        }
    }

    /// A question for a part of the ConfigMap.
    fn part(latest: bool, path: &str) -> Request {
        let Request::Ask(mut asked) = config_map(latest) else {
            panic!("a question")
        };
        if let Question::Object(query) = &mut asked.question {
            query.projection = vec![path.into()];
        }
        Request::Ask(asked)
    }

    #[test]
    fn a_part_of_a_large_object_is_rendered_by_a_thread_and_the_whole_of_it_is_shared() {
        let (large, whole) = ("x".repeat(100_000), config_map(false));
        for (asked, data, by_thread) in [
            (part(false, "data.none"), "v", 0),
            (part(false, "data.none"), &large, 1),
            (whole, &large, 0),
            (part(true, "data.none"), "v", 0),
            (part(true, "data.none"), &large, 1),
            // The cache does not hold it, so it would be held for the thread alone.
            (part(true, "data.newer"), &large, 0),
        ] {
            let mut fixture = Fixture::new();
            listed(&mut fixture, vec![site(data)]);
            let (mut flow, mut commands) = fixture.requests(vec![asked.clone()]);
            if commands.iter().any(|command| {
                matches!(
                    command,
                    Command::Call {
                        call: Call::Read(_),
                        ..
                    }
                )
            }) {
                let mut read = site(data);
                if asked == part(true, "data.newer") {
                    crate::merge::apply(&json!({"metadata": {"resourceVersion": "6"}}), &mut read);
                }
                (flow, commands) = fixture.go_on(flow, found(Ok(read)));
            }
            let rendered: Vec<Rendered> = renders(&commands)
                .iter()
                .map(|(_, render)| render.run())
                .collect();
            assert_eq!(rendered.len(), by_thread, "{asked:?}");
            if let Some(rendered) = rendered.into_iter().next() {
                (_, commands) = fixture.go_on(flow, PhaseEvent::Reply(0, Reply::Rendered(rendered)));
            }
            let journal = journal(&commands).expect("the policy is called again");
            assert!(
                journal[0].as_ref().is_ok_and(|json| json.contains("site")),
                "{journal:?}"
            );
            assert_eq!(fixture.work.dependencies.len(), 1);
        }
    }

    #[test]
    fn of_many_parts_of_an_object_the_event_loop_renders_few_and_a_thread_the_others() {
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site(&"x".repeat(10_000))]);
        let parts: Vec<Request> = (0..20).map(|n| part(false, &format!("data.part-{n}"))).collect();
        let (mut flow, mut commands) = fixture.requests(parts.clone());
        let mut by_thread = 0;
        while let [(slot, render)] = renders(&commands)[..] {
            by_thread += 1;
            let rendered = PhaseEvent::Reply(slot, Reply::Rendered(render.run()));
            (flow, commands) = fixture.go_on(flow, rendered);
        }
        assert_eq!(
            journal(&commands).map(|journal| journal.len()),
            Some(20),
            "{flow:?}"
        );
        // Six at once, and six after each that a thread renders.
        assert_eq!(by_thread, 2);
        // So it is when the next pass is prepared with them.
        fixture.frame.last.used = fixture.work.dependencies.clone().into_iter().collect();
        let (_, commands) = fixture.enter(Stepping::begin(Role::Lifecycle));
        assert_eq!(renders(&commands).len(), 1);
    }

    #[test]
    fn a_list_that_no_thread_renders_in_time_is_said_to_be_late() {
        let mut fixture = Fixture::new();
        many(&mut fixture, 40);
        let (flow, commands) = fixture.requests(vec![labelled("b")]);
        assert_eq!(renders(&commands).len(), 1);
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
        assert_eq!(code(&commands), Some(Code::DeadlineExceeded));
    }

    #[test]
    fn long_lists_of_a_step_are_rendered_one_after_another_in_the_room_that_is_left() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.journal = 15_000);
        many(&mut fixture, 40);
        let labels = ["b", "b,a!=x", "b,a!=y", "b,a!=z"];
        let (mut flow, mut commands) = fixture.requests(labels.map(labelled).to_vec());
        let mut rooms = Vec::new();
        while let [(slot, render)] = renders(&commands)[..] {
            rooms.push(render.limit);
            let rendered = PhaseEvent::Reply(slot, Reply::Rendered(render.run()));
            (flow, commands) = fixture.go_on(flow, rendered);
        }
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert!(rooms.is_sorted_by(|a, b| a > b || *a < 4_000), "{rooms:?}");
        let journal = journal(&commands).expect("the policy is called again");
        let bytes: usize = journal.iter().flatten().map(|json| json.len()).sum();
        assert!(bytes <= 15_000, "{bytes}");
        let refused = journal.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(refused, 2, "two of four fit");
    }

    #[test]
    fn what_there_is_no_room_for_is_not_even_looked_at() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.answer = 0);
        many(&mut fixture, 40);
        let (_, commands) = fixture.requests(vec![labelled("b")]);
        assert!(renders(&commands).is_empty(), "{commands:?}");
        assert_eq!(code(&commands), Some(Code::ResourceExhausted));
    }

    #[test]
    fn a_long_list_that_the_last_pass_used_is_rendered_before_the_first_step() {
        let mut fixture = Fixture::new();
        many(&mut fixture, 40);
        let Request::Ask(asked) = labelled("b") else {
            panic!("a question")
        };
        let grant = fixture
            .frame
            .binding
            .spec
            .grants
            .iter()
            .find_map(|grant| match grant {
                crate::binding::Grant::Ask(grant) if grant.kind == "ConfigMap" => Some(grant.clone()),
                _ => None,
            });
        let selection = Selection::of(&asked.question).expect("selectors");
        let dependency = Dependency::new(grant.expect("a grant").into(), config_maps(), selection);
        fixture.frame.last.used = [((Role::Lifecycle, asked.question), dependency)].into();
        let (flow, commands) = fixture.enter(Stepping::begin(Role::Lifecycle));
        let [(slot, render)] = renders(&commands)[..] else {
            panic!("{commands:?}")
        };
        let rendered = PhaseEvent::Reply(slot, Reply::Rendered(render.run()));
        let (flow, commands) = fixture.go_on(flow, rendered);
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert_eq!(journal(&commands).map(|journal| journal.len()), Some(1));
    }

    #[test]
    fn a_pass_asks_so_many_questions_about_objects_and_no_more() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.dependencies = 2);
        many(&mut fixture, 1);
        let labels = ["b", "b,a!=x", "b,a!=y"];
        let mut requests = labels.map(labelled).to_vec();
        requests.push(config_map(false));
        let (_, commands) = fixture.requests(requests);
        let journal = journal(&commands).expect("the policy is called again");
        let refused = |answer: &Result<Json, Failure>| {
            answer
                .as_ref()
                .is_err_and(|failure| failure.code == Code::ResourceExhausted)
        };
        let refused = journal.iter().filter(|answer| refused(answer)).count();
        assert_eq!(refused, 2, "{journal:?}");
    }

    #[test]
    fn questions_whose_watches_have_not_listed_count_among_those_of_their_pass() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.dependencies = 2);
        let labels = ["b", "b,a!=x", "b,a!=y"];
        let (flow, _) = fixture.requests(labels.map(labelled).to_vec());
        many(&mut fixture, 1);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Listed(0));
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Listed(1));
        let journal = journal(&commands).expect("the policy is called again");
        let codes = journal
            .iter()
            .map(|answer| answer.as_ref().err().map(|failure| failure.code));
        assert_eq!(
            codes.collect::<Vec<_>>(),
            [None, None, Some(Code::ResourceExhausted)]
        );
    }

    #[test]
    fn a_tenant_that_has_as_many_watches_as_it_may_opens_no_more() {
        let pods_of = |node: usize| {
            let kind = crate::contract::Kind {
                api_version: "v1".into(),
                kind: "Pod".into(),
            };
            ask(Question::Objects(ListQuery {
                field_selector: Some(format!("spec.nodeName=node-{node}")),
                ..ListQuery::all(kind)
            }))
        };
        let mut fixture = Fixture::new();
        let grants = json!([{"ask": {"apiVersion": "v1", "kind": "Pod", "namespaces": ["*"]}}]);
        let grants = serde_json::from_value(grants).expect("grants");
        fixture.bind(|binding| *binding = binding.clone().with_grants(grants));
        let queue = fixture.frame.tenant_queue.clone();
        let scope = |node: usize| Scope {
            node: Some(format!("node-{node}")),
            kind: crate::contract::Kind {
                api_version: "v1".into(),
                kind: "Pod".into(),
            },
            namespace: None,
            ..config_maps()
        };
        let mut node = 0;
        while fixture.watches.has_room(&queue, 2) {
            fixture.cache.open(&scope(node));
            fixture.watches.open(&scope(node), &queue);
            node += 1;
        }
        let requests = [0, 9_001, 9_002, 9_003].map(pods_of);
        let (flow, commands) = fixture.requests(requests.to_vec());
        let watched = |command: &Command| match command {
            Command::Watch(scope) => scope.node.clone(),
            _ => None,
        };
        let watched: Vec<String> = commands.iter().filter_map(watched).collect();
        assert_eq!(watched, ["node-0", "node-9001", "node-9002"]);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Cut(0));
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Cut(1));
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(2));
        let journal = journal(&commands).expect("the policy is called again");
        let failure = journal[3].as_ref().expect_err("it is one too many");
        assert_eq!(failure.code, Code::ResourceExhausted);
        assert!(failure.message.starts_with("Pod on node-9003: "), "{failure}");
    }

    #[test]
    fn after_a_list_that_does_not_fit_the_next_ones_are_not_rendered() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.journal = 9_000);
        many(&mut fixture, 40);
        let requests = (0..12).map(|n| labelled(&format!("b,a!=x{n}"))).collect();
        let (mut flow, mut commands) = fixture.requests(requests);
        let mut rendered = 0;
        while let [(slot, render)] = renders(&commands)[..] {
            rendered += 1;
            let reply = PhaseEvent::Reply(slot, Reply::Rendered(render.run()));
            (flow, commands) = fixture.go_on(flow, reply);
        }
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert!(rendered < 5, "{rendered} lists were rendered");
    }

    #[test]
    fn a_pass_of_a_tenant_that_holds_too_much_waits_until_others_hold_less() {
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site("v")]);
        let tenant_queue = fixture.frame.tenant_queue.clone();
        for pass in [PassId(0), fixture.frame.id] {
            fixture.journals.begin(&tenant_queue, pass);
        }
        fixture.journals.hold(&tenant_queue, PassId(0), 64 << 20, false);
        let (flow, commands) = fixture.requests(vec![config_map(false)]);
        let waits = |command: &Command| matches!(command, Command::Hold { waits: true, .. });
        assert!(commands.iter().any(waits), "{commands:?}");
        fixture.journals.end(&tenant_queue, PassId(0));
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Opened);
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert!(!commands.iter().any(waits), "{commands:?}");
    }

    #[test]
    fn an_answer_that_read_through_enters_the_cache() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let (_, commands) = fixture.go_on(flow, found(Ok(site("s"))));
        assert!(
            commands
                .iter()
                .any(|command| matches!(command, Command::Saw { .. })),
            "{commands:?}"
        );
    }

    #[test]
    fn a_list_that_reads_through_is_asked_for_no_more_than_the_grant_reaches() {
        let mut fixture = Fixture::new();
        let query = ListQuery {
            label_selector: Some("a=b".into()),
            limit: 1,
            latest: true,
            ..ListQuery::all(config_maps().kind)
        };
        let (flow, commands) = fixture.requests(vec![ask(Question::Objects(query))]);
        let read = commands.iter().find_map(|command| match command {
            Command::Call {
                call: Call::Read(Question::Objects(query)),
                ..
            } => Some((query.namespace.as_deref(), query.limit)),
            _ => None,
        });
        assert_eq!(read, Some((Some("default"), 0)));
        let labelled = |name: &str| {
            let mut object = site(name);
            object["metadata"]["labels"] = json!({"a": "b"});
            object
        };
        let mut elsewhere = labelled("b");
        elsewhere["metadata"]["namespace"] = json!("other");
        let (_, commands) = fixture.go_on(flow, found(Ok(json!([labelled("a"), elsewhere]))));
        let journal = journal(&commands).expect("the policy is called again");
        let text = journal[0].as_ref().expect("one is no more than one");
        assert!(text.contains("default") && !text.contains("other"), "{text}");
    }

    #[test]
    fn an_event_that_no_question_waits_for_is_a_defect() {
        let answered = |slot| PhaseEvent::Reply(slot, Reply::Answer(Ok(json!({}))));
        let read = |slot| PhaseEvent::Reply(slot, Reply::objects(Ok(json!([]))));
        let rendered =
            |slot| PhaseEvent::Reply(slot, Reply::Rendered(Rendered::failed(failure(Code::Internal))));
        // The first question is answered, the second is read, and the third waits for its watch.
        for (event, fits) in [
            (answered(1), true),
            (PhaseEvent::Cut(1), true),
            (PhaseEvent::Listed(2), true),
            (PhaseEvent::Cut(2), true),
            (answered(0), false),
            (answered(2), false),
            (answered(3), false),
            (read(0), false),
            (read(2), false),
            (rendered(1), false),
            (rendered(3), false),
            (PhaseEvent::Listed(0), false),
            (PhaseEvent::Listed(1), false),
            (PhaseEvent::Listed(3), false),
            (PhaseEvent::Cut(0), false),
            (PhaseEvent::Cut(3), false),
            (PhaseEvent::Opened, false),
        ] {
            let mut fixture = Fixture::new();
            let lock = ask(Question::Lock("one".into()));
            let (flow, _) = fixture.requests(vec![lock, get(), labelled("b")]);
            let told = format!("{event:?}");
            let (flow, _) = fixture.go_on(flow, event);
            assert_eq!(matches!(flow, Flow::Bug(_)), !fits, "{told}: {flow:?}");
        }
    }

    #[test]
    fn an_event_that_fits_no_row_is_a_defect() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![get()]);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Opened);
        assert!(
            matches!(&flow, Flow::Bug(what) if what.starts_with("Asking got Opened")),
            "{flow:?}"
        );
    }

    #[test]
    fn a_read_that_is_older_than_what_a_watch_showed_is_looked_at_again() {
        for (read, is_news) in [("4", true), ("5", false), ("6", false)] {
            let mut fixture = Fixture::new();
            listed(&mut fixture, vec![site("v")]);
            let (flow, _) = fixture.requests(vec![config_map(true)]);
            let mut older = site("v");
            crate::merge::apply(&json!({"metadata": {"resourceVersion": read}}), &mut older);
            fixture.go_on(flow, found(Ok(older)));
            let moved = fixture
                .work
                .dependencies
                .values()
                .map(|dependency| dependency.moved);
            let expected = if is_news { Moved::SOMEHOW } else { Moved::default() };
            assert_eq!(moved.collect::<Vec<_>>(), [expected], "version {read}");
        }
    }

    #[test]
    fn what_the_last_pass_used_and_does_not_fit_any_more_is_left_to_be_asked_for() {
        let Request::Ask(asked) = config_map(false) else {
            panic!("a question")
        };
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site("v")]);
        let look = fixture
            .with(|context| Look::of(Role::Lifecycle, &asked.question, context))
            .0;
        let Look {
            asked,
            grant,
            scope,
            selection,
        } = look.expect("it is granted");
        let dependency = Dependency::new(grant, scope, selection);
        let Request::Ask(latest) = config_map(true) else {
            panic!("a question")
        };
        // Questions for the latest object, and questions of another role, are not prefetched.
        fixture.frame.last.used = [
            ((Role::Identity, asked.1.clone()), dependency.clone()),
            (asked, dependency.clone()),
            ((Role::Lifecycle, latest.question), dependency),
        ]
        .into();
        let bytes = Object::new(site("v")).json().len() as u64;
        for (limit, known) in [(bytes, 1), (bytes - 1, 0)] {
            fixture.bind(|binding| binding.spec.limits.answer = limit);
            let (_, commands) = fixture.enter(Stepping::begin(Role::Lifecycle));
            assert_eq!(
                journal(&commands).map(|journal| journal.len()),
                Some(known),
                "{limit}"
            );
        }
    }

    #[test]
    fn what_an_api_server_does_not_have_is_not_found_and_depended_on() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let (_, commands) = fixture.go_on(flow, found(Err(failure(Code::NotFound))));
        assert_eq!(code(&commands), Some(Code::NotFound));
        assert_eq!(
            fixture.work.dependencies.len(),
            1,
            "one that comes enqueues the key"
        );
    }

    #[test]
    fn while_one_list_is_read_no_other_is_looked_at() {
        let mut fixture = Fixture::new();
        many(&mut fixture, 40);
        let Request::Ask(mut latest) = labelled("b") else {
            panic!("a question")
        };
        if let Question::Objects(query) = &mut latest.question {
            query.latest = true;
        }
        let (flow, _) = fixture.requests(vec![Request::Ask(latest), labelled("b"), get()]);
        let cloud = PhaseEvent::Reply(2, Reply::Answer(Ok(json!({}))));
        let (flow, commands) = fixture.go_on(flow, cloud);
        assert!(renders(&commands).is_empty(), "{commands:?}");
        let (_, commands) = fixture.go_on(flow, found(Ok(json!([]))));
        assert_eq!(renders(&commands).len(), 1);
    }

    #[test]
    fn while_one_list_is_rendered_no_other_is_looked_at() {
        let mut fixture = Fixture::new();
        many(&mut fixture, 40);
        let (flow, commands) = fixture.requests(vec![labelled("b"), labelled("b,a!=x"), get()]);
        let [(slot, render)] = renders(&commands)[..] else {
            panic!("{commands:?}")
        };
        let rendered = PhaseEvent::Reply(slot, Reply::Rendered(render.run()));
        let cloud = PhaseEvent::Reply(2, Reply::Answer(Ok(json!({}))));
        let (flow, commands) = fixture.go_on(flow, cloud);
        assert!(renders(&commands).is_empty(), "{commands:?}");
        let (_, commands) = fixture.go_on(flow, rendered);
        assert_eq!(renders(&commands).len(), 1);
    }

    #[test]
    fn a_question_that_is_being_read_counts_among_those_of_its_pass() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.dependencies = 1);
        many(&mut fixture, 1);
        let (flow, _) = fixture.requests(vec![config_map(true), labelled("b")]);
        let (_, commands) = fixture.go_on(flow, found(Ok(site("v"))));
        let journal = journal(&commands).expect("the policy is called again");
        let refused = journal[1].as_ref().err().map(|failure| failure.code);
        assert_eq!(
            (journal[0].is_ok(), refused),
            (true, Some(Code::ResourceExhausted))
        );
    }
}
