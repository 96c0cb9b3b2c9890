//! Asking: the questions of a step, answered from the cache where a watch knows, by a call otherwise.

use std::sync::Arc;

use serde_json::{Value, json};

use super::frame::{Dependency, Questions};
use super::role::RoleRun;
use super::stepping::Stepping;
use super::{Awaited, CLUSTER_LONGEST, Command, Context, Flow, Phase, PhaseEvent, Report};
use crate::binding::KindGrant;
use crate::call::{Call, CloudRequest, Reply, Scope};
use crate::contract::{Answer, Code, Failure, Json, ListQuery, ObjectQuery, Question, Request, Role};
use crate::controller::Guard;
use crate::controller::cache::Lookup;
use crate::grants::{self, Admitted};
use crate::object::Object;
use crate::path;

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

    pub(super) fn awaited(&self) -> Awaited<'_> {
        let listing = self.asks.iter().find_map(|ask| match &ask.state {
            AskState::Listing(scope) => Some(scope),
            _ => None,
        });
        listing.map_or(Awaited::Call, Awaited::Watch)
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
        let look = || Look::of(self.run.role, &asked.question, context);
        let answer = match (&asked.question, answer) {
            (Question::Object(_), Ok(object)) => {
                look().and_then(|look| look.object(Some(Object::new(object)), context))
            }
            (Question::Object(_), Err(failure)) if failure.code == Code::NotFound => {
                look().and_then(|look| look.object(None, context))
            }
            (Question::Objects(_), Ok(Value::Array(items))) => {
                let objects = items.into_iter().map(Object::new).collect();
                look().and_then(|look| look.list(objects, context))
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
    let admitted = match grants::check_question(&frame.binding, role, primary, question) {
        Ok(admitted) => admitted,
        Err(failure) => {
            context.report(Report::Ungranted(failure.clone()));
            return AskState::Answered(Err(failure));
        }
    };
    match (question, admitted) {
        (_, Admitted::Watch(grant, scope)) => {
            let asked = (role, question.clone());
            Look { asked, grant, scope }.begin(slot, context)
        }
        (Question::Permit(name), Admitted::Call) => {
            let holder = context.view.locks.holder(&frame.key.binding, &frame.tenant, name);
            let free = holder.is_none_or(|pass| pass == frame.id);
            if free {
                context.command(Command::Lock(name.clone()));
            }
            let held = free || !context.is_guarded(Guard::LocksExclude);
            AskState::Answered(Ok(json!(if held { "held" } else { "busy" })))
        }
        (question, Admitted::Call) => read(slot, question, context),
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

/// A question about objects of the cluster that is granted.
struct Look {
    asked: Questions,
    grant: Arc<KindGrant>,
    scope: Scope,
}

impl Look {
    fn of(role: Role, question: &Question, context: &Context<'_>) -> Result<Self, Failure> {
        let (binding, primary) = (&context.frame.binding, context.frame.snapshot.as_ref());
        match grants::check_question(binding, role, primary, question)? {
            Admitted::Watch(grant, scope) => Ok(Look {
                asked: (role, question.clone()),
                grant,
                scope,
            }),
            Admitted::Call => Err(Failure::new(Code::Internal, "no watch answers this")),
        }
    }

    /// Answers from the watch, or says who will answer.
    fn begin(self, slot: usize, context: &mut Context<'_>) -> AskState {
        context.work.looked_at.insert(self.scope.clone());
        context.command(Command::Watch(self.scope.clone()));
        if let Some(latest) = self.latest() {
            context.call(slot, Call::Read(latest), CLUSTER_LONGEST);
            return AskState::Reading;
        }
        let scope = self.scope.clone();
        match self.known(context) {
            Some(answer) => AskState::Answered(answer),
            None => {
                let awaited = scope.clone();
                context.command(Command::AwaitList { slot, scope });
                AskState::Listing(awaited)
            }
        }
    }

    /// What the API server is asked in place of the watch: nothing that the grant does not reach, and of a list no limit,
    /// which would count what its relation leaves out.
    fn latest(&self) -> Option<Question> {
        match &self.asked.1 {
            Question::Object(query) if query.latest => Some(Question::Object(query.clone())),
            Question::Objects(query) if query.latest => Some(Question::Objects(ListQuery {
                namespace: self.scope.namespace.clone(),
                limit: 0,
                ..query.clone()
            })),
            _ => None,
        }
    }

    /// What a watch knows of it. None if it has not listed.
    fn known(self, context: &mut Context<'_>) -> Option<Answer> {
        match &self.asked.1 {
            Question::Object(query) => {
                let place = (query.object.namespace.clone(), query.object.name.clone());
                let found = match context.view.cache.get(&self.scope, &place) {
                    Lookup::Known(object) => object,
                    _ if !context.is_guarded(Guard::NotFoundNeedsASyncedWatch) => None,
                    _ => return None,
                };
                Some(self.object(found, context))
            }
            Question::Objects(query) => match context.view.cache.list(&self.scope, query) {
                Lookup::Known(found) => Some(self.list(found, context)),
                _ => None,
            },
            _ => None,
        }
    }

    fn object(self, found: Option<Object>, context: &mut Context<'_>) -> Answer {
        let Question::Object(query) = &self.asked.1 else {
            return Err(Failure::new(
                Code::Internal,
                "one object answers a question for several",
            ));
        };
        let primary = context.frame.snapshot.as_ref();
        let answer = answer_of_object(&self.grant, primary, query, found.as_ref());
        self.depend(answer, context)
    }

    fn list(self, found: Vec<Object>, context: &mut Context<'_>) -> Answer {
        let Question::Objects(query) = &self.asked.1 else {
            return Err(Failure::new(
                Code::Internal,
                "several objects answer a question for one",
            ));
        };
        let answer = answer_of_list(&self.grant, context.frame.snapshot.as_ref(), query, &found);
        self.depend(answer, context)
    }

    /// Its digest is a dependency of the pass.
    fn depend(self, answer: Answer, context: &mut Context<'_>) -> Answer {
        let Look { asked, grant, scope } = self;
        let digest = digest_of(&answer);
        let dependency = Dependency { grant, scope, digest };
        context.work.dependencies.insert(asked, dependency);
        answer
    }
}

/// What a watch knows now of a question that an earlier pass used; none if it does not.
pub(super) fn answer_from_watch(
    role: Role,
    question: &Question,
    context: &mut Context<'_>,
) -> Option<Result<Json, Failure>> {
    let answer = Look::of(role, question, context).ok()?.known(context)?;
    Some(answer.map(|value| value.to_string().into()))
}

/// The answer that a primary gets about one object through the grant that let it ask.
pub(crate) fn answer_of_object(
    grant: &KindGrant,
    primary: Option<&Object>,
    query: &ObjectQuery,
    found: Option<&Object>,
) -> Answer {
    let Some(found) = found else {
        let object = &query.object;
        let message = format!("{} {} not found", object.kind.kind, object.name);
        return Err(Failure::new(Code::NotFound, message));
    };
    grants::check_relation(grant, primary, found)?;
    Ok(project(grant, found, &query.projection))
}

/// The answer that a primary gets about a list through the grant that let it ask.
pub(crate) fn answer_of_list(
    grant: &KindGrant,
    primary: Option<&Object>,
    query: &ListQuery,
    found: &[Object],
) -> Answer {
    let limit = match query.limit {
        0 => LIST_LIMIT,
        limit => limit as usize,
    };
    let related = |object: &&Object| grants::check_relation(grant, primary, object).is_ok();
    let related: Vec<&Object> = found.iter().filter(related).collect();
    if related.len() > limit {
        let (count, kind) = (related.len(), &query.kind.kind);
        let message = format!("{count} {kind} objects, at most {limit} were asked for");
        return Err(Failure::new(Code::ResourceExhausted, message));
    }
    let project = |object: &&Object| project(grant, object, &query.projection);
    Ok(related.iter().map(project).collect())
}

/// What of an object is answered: what its grant shows, and of that what was asked for.
fn project(grant: &KindGrant, object: &Object, wanted: &[String]) -> Value {
    match &grant.fields {
        None => path::project(object.value(), wanted),
        Some(_) => path::project(&grants::shown(grant, object.value()), wanted),
    }
}

/// The digest of an answer; of a failure, its code.
pub(crate) fn digest_of(answer: &Answer) -> path::Digest {
    match answer {
        Ok(value) => path::digest(value),
        Err(failure) => path::digest(&json!(failure.code.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::WatchEvent;
    use crate::contract::{CredentialPlan, ObjectRef};
    use crate::key::PassId;
    use crate::object::ResourceVersion;
    use crate::reconcile::fixture::{Fixture, answer, ask, config_map, failure, get};

    /// What the journal holds when the policy is called again.
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
    fn a_watch_that_has_not_listed_is_waited_for_and_not_found_is_said_only_by_one_that_has() {
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.requests(vec![config_map(false)]);
        assert!(
            matches!(commands.last(), Some(Command::AwaitList { slot: 0, .. })),
            "{commands:?}"
        );
        listed(&mut fixture, vec![]);
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Listed(0));
        assert_eq!(code(&commands), Some(Code::NotFound));
        assert_eq!(fixture.work.dependencies.len(), 1, "it wakes when there is one");
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
        let (_, commands) = fixture.go_on(flow, answer(Ok(site("new"))));
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
        let (_, commands) = fixture.go_on(flow, answer(Err(failure(Code::Unavailable))));
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
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(1, Reply::Answer(Ok(site("v")))));
        assert_eq!(journal(&commands), None);
        let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
        assert_eq!(journal(&commands).map(|journal| journal.len()), Some(2));
    }

    #[test]
    fn what_is_not_granted_is_refused_and_said_of_the_binding() {
        let mut fixture = Fixture::new();
        let secret = ask(Question::Secret(ObjectRef {
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
        let plan = CredentialPlan { plan: "{}".into() };
        let (_, commands) = fixture.requests(vec![ask(Question::Credential(plan))]);
        assert_eq!(
            code(&commands),
            Some(Code::PermissionDenied),
            "credentials are for identities"
        );
    }

    #[test]
    fn a_lock_is_held_by_the_pass_that_took_it_and_busy_for_every_other() {
        let one = || ask(Question::Permit("one".into()));
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
                    }) = limit + 200 * u64::from(!of_answer);
                });
                let (flow, _) = fixture.requests(vec![get()]);
                // `{"a":"xxxxxxxx"}` has 16 bytes.
                let text = "x".repeat(8 + 200 * usize::from(!of_answer));
                let (_, commands) = fixture.go_on(flow, answer(Ok(json!({"a": text}))));
                let expected = refused.then_some(Code::ResourceExhausted);
                assert_eq!(code(&commands), expected, "{limit} {of_answer}");
            }
        }
    }

    #[test]
    fn a_list_that_is_longer_than_its_limit_is_refused_whole() {
        let query = |limit| ListQuery {
            kind: config_maps().kind,
            namespace: Some("default".into()),
            label_selector: None,
            field_selector: None,
            projection: Vec::new(),
            limit,
            latest: false,
        };
        let grant: KindGrant =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap"})).expect("a grant");
        let primary = Object::new(crate::reconcile::fixture::machine(1, json!({})));
        let found = [Object::new(site("a")), Object::new(site("b"))];
        let code = |limit| {
            answer_of_list(&grant, Some(&primary), &query(limit), &found)
                .err()
                .map(|f| f.code)
        };
        assert_eq!(code(2), None);
        assert_eq!(code(0), None);
        assert_eq!(code(1), Some(Code::ResourceExhausted));
    }

    #[test]
    fn a_list_that_reads_through_is_asked_for_no_more_than_the_grant_reaches() {
        let mut fixture = Fixture::new();
        let query = ListQuery {
            kind: config_maps().kind,
            namespace: None,
            label_selector: Some("a=b".into()),
            field_selector: None,
            projection: Vec::new(),
            limit: 1,
            latest: true,
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
        let mut elsewhere = site("b");
        elsewhere["metadata"]["namespace"] = json!("other");
        let (_, commands) = fixture.go_on(flow, answer(Ok(json!([site("a"), elsewhere]))));
        let journal = journal(&commands).expect("the policy is called again");
        let text = journal[0].as_ref().expect("one is no more than one");
        assert!(text.contains("default") && !text.contains("other"), "{text}");
    }

    #[test]
    fn an_event_that_fits_no_row_is_a_defect() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![get()]);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Opened);
        assert!(matches!(flow, Flow::Bug(_)), "{flow:?}");
    }
}
