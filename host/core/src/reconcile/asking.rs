//! Asking: the questions of a step, answered from the cache where a watch knows, by a call otherwise.

use serde_json::{Value, json};

use super::frame::Dependency;
use super::role::RoleRun;
use super::stepping::Stepping;
use super::{CLUSTER_LONGEST, Command, Context, Flow, Phase, PhaseEvent, Report};
use crate::binding::{Binding, Grant};
use crate::call::{Call, CloudRequest, Reply, Scope};
use crate::contract::{Answer, Code, Failure, Json, ListQuery, ObjectQuery, Question, Request, Role};
use crate::controller::cache::Lookup;
use crate::object::Object;
use crate::{grants, path};

/// Objects that a list may hold when the policy sets no limit of its own.
const LIST_LIMIT: usize = 10_000;

/// The questions of a step, all at once.
#[derive(Debug)]
pub(crate) struct Asking {
    run: RoleRun,
    asks: Vec<AskSlot>,
}

#[derive(Debug)]
struct AskSlot {
    request: Request,
    state: AskState,
}

/// How far a question has come.
#[derive(Debug)]
enum AskState {
    /// Nobody has looked yet.
    Due,
    /// The watch of a scope has not listed yet.
    Listing(Scope),
    /// A call looks.
    Reading,
    Answered(Answer),
}

impl Asking {
    /// The requests of a step that the journal does not hold yet, each once.
    pub(super) fn new(run: RoleRun, requests: Vec<Request>) -> Self {
        let mut asks: Vec<AskSlot> = Vec::with_capacity(requests.len());
        for request in requests {
            if !run.knows(&request) && !asks.iter().any(|ask| ask.request == request) {
                let state = AskState::Due;
                asks.push(AskSlot { request, state });
            }
        }
        Asking { run, asks }
    }

    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match event {
            PhaseEvent::Entered => (0..self.asks.len()).for_each(|slot| self.look(slot, context)),
            PhaseEvent::Listed(slot) => self.look(slot, context),
            PhaseEvent::Reply(slot, Reply::Answer(answer)) => self.answered(slot, answer, context),
            PhaseEvent::Cut(slot) => self.cut(slot, context),
            event => return Flow::unexpected(&Phase::Asking(self), &event),
        }
        let is_answered = |ask: &AskSlot| matches!(ask.state, AskState::Answered(_));
        match self.asks.iter().all(is_answered) {
            true => self.finish(context),
            false => Flow::Wait(Phase::Asking(self)),
        }
    }

    /// Goes on with the policy once every question has its answer.
    fn finish(mut self, context: &Context<'_>) -> Flow {
        let limits = &context.frame.binding.spec.limits;
        for ask in self.asks {
            let AskState::Answered(answer) = ask.state else {
                continue;
            };
            let answer = answer.map(|value| Json::from(value.to_string()));
            let room = limits.journal.saturating_sub(self.run.journal_bytes);
            self.run.append(ask.request, answer, limits.answer.min(room));
        }
        Stepping::again(self.run)
    }

    /// Answers a question, or says who will.
    fn look(&mut self, slot: usize, context: &mut Context<'_>) {
        let Some(ask) = self.asks.get_mut(slot) else {
            return;
        };
        if let Request::Ask(asked) = &ask.request {
            ask.state = look(slot, self.run.role, &asked.question, context);
        }
    }

    /// An answer of a call came in.
    fn answered(&mut self, slot: usize, answer: Answer, context: &mut Context<'_>) {
        let Some(ask) = self.asks.get_mut(slot) else {
            return;
        };
        let Request::Ask(asked) = &ask.request else { return };
        let role = self.run.role;
        let answer = match (&asked.question, answer) {
            (Question::Object(query), Ok(object)) => {
                looked_up(role, query, Some(Object::new(object)), context)
            }
            (Question::Object(query), Err(failure)) if failure.code == Code::NotFound => {
                looked_up(role, query, None, context)
            }
            (Question::Objects(query), Ok(Value::Array(items))) => {
                let objects = items.into_iter().map(Object::new).collect();
                listed(role, query, objects, context)
            }
            (Question::Credential(_), Ok(credential)) => {
                if let Some(handle) = credential["handle"].as_str() {
                    self.run.handles.insert(handle.to_owned());
                }
                Ok(credential)
            }
            (_, answer) => answer,
        };
        ask.state = AskState::Answered(answer);
    }

    /// Nobody answered in time; a watch may have said why it does not list.
    fn cut(&mut self, slot: usize, context: &Context<'_>) {
        let Some(ask) = self.asks.get_mut(slot) else {
            return;
        };
        let failure = match &ask.state {
            AskState::Listing(scope) => {
                let why = context
                    .view
                    .cache
                    .watch_error(scope)
                    .unwrap_or("no answer in time");
                let message = format!("the watch of {} has not listed: {why}", scope.kind.kind);
                Failure::new(Code::Unavailable, message)
            }
            _ => Failure::new(Code::DeadlineExceeded, "no answer in time"),
        };
        ask.state = AskState::Answered(Err(failure));
    }
}

fn look(slot: usize, role: Role, question: &Question, context: &mut Context<'_>) -> AskState {
    let frame = context.frame;
    let primary = frame.snapshot.as_ref();
    let scope = match grants::check_question(&frame.binding, role, primary, question) {
        Ok(scope) => scope,
        Err(failure) => {
            context.report(Report::Ungranted(failure.clone()));
            return AskState::Answered(Err(failure));
        }
    };
    match (question, scope) {
        (
            Question::Object(ObjectQuery { latest, .. }) | Question::Objects(ListQuery { latest, .. }),
            Some(scope),
        ) => {
            context.work.looked_at.insert(scope.clone());
            context.command(Command::Watch(scope.clone()));
            if *latest {
                context.call(slot, Call::Read(question.clone()), CLUSTER_LONGEST);
                return AskState::Reading;
            }
            match known(role, question, &scope, context) {
                Some(answer) => AskState::Answered(answer),
                None => {
                    let awaited = scope.clone();
                    context.command(Command::AwaitList { slot, scope });
                    AskState::Listing(awaited)
                }
            }
        }
        (Question::Permit(name), _) => {
            let holder = context.view.locks.holder(&frame.key.binding, &frame.tenant, name);
            let free = holder.is_none_or(|pass| pass == frame.id);
            if free {
                context.command(Command::Lock(name.clone()));
            }
            let held = free || !context.view.guards.permits_exclude;
            AskState::Answered(Ok(json!(if held { "held" } else { "busy" })))
        }
        (question, _) => read(slot, question, context),
    }
}

/// Asks whom no watch shows: the API server, or the cloud.
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
            context.ask_cloud(slot, Call::Cloud(request), longest);
        }
        Question::Credential(plan) => {
            let call = Call::Credential {
                cloud: session.cloud,
                owner: session.owner,
                plan: plan.clone(),
            };
            context.ask_cloud(slot, call, CLUSTER_LONGEST);
        }
        question => context.call(slot, Call::Read(question.clone()), CLUSTER_LONGEST),
    }
    AskState::Reading
}

/// What a watch knows of a question; its digest becomes a dependency. None if it has not listed.
fn known(role: Role, question: &Question, scope: &Scope, context: &mut Context<'_>) -> Option<Answer> {
    match question {
        Question::Object(query) => {
            let place = (query.object.namespace.clone(), query.object.name.clone());
            let found = match context.view.cache.get(scope, &place) {
                Lookup::Known(object) => object,
                _ if !context.view.guards.not_found_needs_a_synced_watch => None,
                _ => return None,
            };
            Some(looked_up(role, query, found, context))
        }
        Question::Objects(query) => match context.view.cache.list(scope, query) {
            Lookup::Known(found) => Some(listed(role, query, found, context)),
            _ => None,
        },
        _ => None,
    }
}

/// What a watch knows now of a question that an earlier pass used; none if it does not.
pub(super) fn answer_from_watch(
    role: Role,
    question: &Question,
    context: &mut Context<'_>,
) -> Option<Result<Json, Failure>> {
    let primary = context.frame.snapshot.as_ref();
    let scope = grants::check_question(&context.frame.binding, role, primary, question).ok()??;
    let answer = known(role, question, &scope, context)?;
    Some(answer.map(|value| value.to_string().into()))
}

fn looked_up(role: Role, query: &ObjectQuery, found: Option<Object>, context: &mut Context<'_>) -> Answer {
    let frame = context.frame;
    let answer = answer_of_object(&frame.binding, frame.snapshot.as_ref(), query, found.as_ref());
    depend(role, Question::Object(query.clone()), &answer, context);
    answer
}

fn listed(role: Role, query: &ListQuery, found: Vec<Object>, context: &mut Context<'_>) -> Answer {
    let frame = context.frame;
    let answer = answer_of_list(&frame.binding, frame.snapshot.as_ref(), query, &found);
    depend(role, Question::Objects(query.clone()), &answer, context);
    answer
}

fn depend(role: Role, question: Question, answer: &Answer, context: &mut Context<'_>) {
    let frame = context.frame;
    let checked = grants::check_question(&frame.binding, role, frame.snapshot.as_ref(), &question);
    if let Ok(Some(scope)) = checked {
        let digest = digest_of(answer);
        let dependency = Dependency { scope, digest };
        context.work.dependencies.insert((role, question), dependency);
    }
}

/// The answer that a primary of a binding gets about one object.
pub(crate) fn answer_of_object(
    binding: &Binding,
    primary: Option<&Object>,
    query: &ObjectQuery,
    found: Option<&Object>,
) -> Answer {
    let Some(found) = found else {
        let object = &query.object;
        let message = format!("{} {} not found", object.kind.kind, object.name);
        return Err(Failure::new(Code::NotFound, message));
    };
    grants::check_relation(binding, primary, |grant| matches!(grant, Grant::Ask(_)), found)?;
    Ok(path::project(found.value(), &query.projection))
}

/// The answer that a primary of a binding gets about a list.
pub(crate) fn answer_of_list(
    binding: &Binding,
    primary: Option<&Object>,
    query: &ListQuery,
    found: &[Object],
) -> Answer {
    let limit = match query.limit {
        0 => LIST_LIMIT,
        limit => limit as usize,
    };
    let is_ask: fn(&Grant) -> bool = |grant| matches!(grant, Grant::Ask(_));
    let related = |object: &&Object| grants::check_relation(binding, primary, is_ask, object).is_ok();
    let related: Vec<&Object> = found.iter().filter(related).collect();
    if related.len() > limit {
        let (count, kind) = (related.len(), &query.kind.kind);
        let message = format!("{count} {kind} objects, at most {limit} were asked for");
        return Err(Failure::new(Code::ResourceExhausted, message));
    }
    let project = |object: &&Object| path::project(object.value(), &query.projection);
    Ok(related.iter().map(project).collect())
}

/// The digest of an answer; of a failure, its code.
pub(crate) fn digest_of(answer: &Answer) -> path::Digest {
    match answer {
        Ok(value) => path::digest(value),
        Err(failure) => path::digest(&json!(failure.code.as_str())),
    }
}
