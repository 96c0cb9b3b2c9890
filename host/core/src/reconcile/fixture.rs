//! Fixture for the tests of the phases: a pass of a Machine, and a view that holds only what a test puts there.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::role::RoleRun;
use super::stepping::Stepping;
use super::{Command, Context, Flow, Frame, LastPass, Phase, PhaseEvent, Work};
use crate::binding::{
    Binding, BindingSpec, CloudRef, Governs, Grant, KindGrant, Limits, LoadedPolicy, Policies, PolicyId,
    Tenant,
};
use crate::call::{Call, LeaseRead, Preparation, Reply, Scope, Site, Write};
use crate::catalogue::{Catalogue, Operation, OperationEffect};
use crate::contract::{
    Act, Answer, Ask, CloudAct, CloudCall, Code, Conclusion, Entry, Failure, Kind, Manifest, Next,
    ObjectQuery, ObjectRef, Origin, Question, Request, RetryClass, RetryRequest, Role, Step, Verdict,
};
use crate::fair::Quota;
use crate::fault::StepOutput;
use crate::key::{Key, PassId};
use crate::object::Object;
use crate::record::Outcome;
use crate::shared::Shared;
use crate::shared::capacity::Capacity;
use crate::shared::lease::Lease;
use crate::shared::terms::Receiver;
use crate::shared::terms::Terms;
use crate::time::{Boot, Now, Unix};
use crate::worker::{StepInput, StepReply};

/// The finalizer of the lifecycle policy.
pub(super) const FINALIZER: &str = "example.com/machine";
/// The time after which a VM that `vm.clone` creates is visible.
pub(super) const VISIBLE_WITHIN: Duration = Duration::from_mins(1);

/// A pass, and the state that its handlers may read.
pub(super) struct Fixture {
    pub(super) frame: Frame,
    pub(super) work: Work,
    shared: Shared,
    /// The input of the last step.
    input: Option<(Arc<StepInput>, Limits)>,
}

impl Deref for Fixture {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }
}

impl Fixture {
    /// A pass of this Machine with these policies. The lease is held.
    pub(super) fn of(object: Value, policies: &[Role]) -> Self {
        let snapshot = Object::new(object);
        let binding = Arc::new(binding(policies));
        let frame = Frame {
            id: PassId(1),
            key: Key {
                binding: "machines".into(),
                namespace: Some("default".into()),
                name: "m".into(),
            },
            tenant: "default".into(),
            tenant_queue: "machines default".into(),
            binding: binding.clone(),
            started: at(0),
            queued: Duration::ZERO,
            causes: Vec::new(),
            attempt: 0,
            faults: 0,
            slowed: false,
            snapshot: Some(snapshot.clone()),
            last: LastPass::default(),
        };
        let mut shared = Shared {
            lease: held(),
            ..Shared::default()
        };
        shared.now = at(0);
        shared.bindings.insert("machines".into(), binding.clone());
        let scope = super::primary_scopes(&binding).remove(0);
        shared.cache.open(&scope);
        let objects = vec![snapshot.clone()];
        let version = snapshot.version();
        shared
            .cache
            .observe(&scope, crate::call::WatchEvent::Listed { objects, version });
        Fixture {
            frame,
            work: Work {
                current: Some(snapshot),
                ..Work::default()
            },
            shared,
            input: None,
        }
    }

    /// A pass of a Machine that holds its finalizer, with a lifecycle policy.
    pub(super) fn new() -> Self {
        Fixture::of(machine(1, json!({})), &[Role::Lifecycle])
    }

    /// Hands an event to a phase. Returns what follows, and the commands.
    pub(super) fn on(&mut self, phase: Phase, event: PhaseEvent) -> (Flow<Phase>, Vec<Command>) {
        self.with(|context| phase.on_event(event, context))
    }

    /// Runs a handler. Returns its result, and the commands.
    pub(super) fn with<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> (T, Vec<Command>) {
        let mut context = Context {
            view: &self.shared,
            frame: &self.frame,
            work: &mut self.work,
            commands: Vec::new(),
        };
        let returned = handler(&mut context);
        let commands = context.commands;
        if let Some((input, limits)) = commands.iter().rev().find_map(input_of) {
            self.input = Some((input.clone(), limits.clone()));
        }
        (returned, commands)
    }

    /// The first phase of the pass.
    pub(super) fn started(&mut self) -> Phase {
        let first = super::start(&self.frame);
        self.with(|context| Phase::of(first, context)).0
    }

    /// Enters a phase, and all phases that it enters. Returns all commands.
    pub(super) fn enter(&mut self, phase: Phase) -> (Flow<Phase>, Vec<Command>) {
        let (flow, commands) = self.on(phase, PhaseEvent::Entered);
        self.settle(flow, commands)
    }

    /// Hands an event to a waiting phase, and goes on until a phase waits again or the pass ends.
    pub(super) fn go_on(&mut self, flow: Flow<Phase>, event: PhaseEvent) -> (Flow<Phase>, Vec<Command>) {
        let Flow::Wait(phase) = flow else {
            panic!("nothing waits: {flow:?}")
        };
        let event = match event {
            // What the worker renders before it calls the policy.
            PhaseEvent::Reply(slot, Reply::Stepped(reply)) => {
                let input = self.input.as_ref().zip(reply.stepped.clone());
                let reply = input.map_or(reply, |((input, limits), stepped)| {
                    input.step(limits, |_| stepped)
                });
                PhaseEvent::Reply(slot, Reply::Stepped(reply))
            }
            event => event,
        };
        let (flow, commands) = self.on(phase, event);
        self.settle(flow, commands)
    }

    /// Enters phases, and answers what they compute and render, until a phase waits for something else.
    fn settle(&mut self, mut flow: Flow<Phase>, mut commands: Vec<Command>) -> (Flow<Phase>, Vec<Command>) {
        let computes = |command: &Command| {
            let Command::Call { call, .. } = command else {
                return false;
            };
            matches!(call, Call::Draft(_))
        };
        loop {
            let renders = |command: &Command| {
                let (input, limits) = input_of(command)?;
                Some(input.step(limits, |_| nothing())).filter(|reply| reply.stepped.is_none())
            };
            if let Some((at, reply)) = commands
                .iter()
                .enumerate()
                .find_map(|(at, it)| Some((at, renders(it)?)))
            {
                commands.remove(at);
                let Flow::Wait(phase) = flow else {
                    panic!("it renders and does not wait: {flow:?}")
                };
                let (next, more) = self.on(phase, PhaseEvent::Reply(0, Reply::Stepped(reply)));
                flow = next;
                commands.extend(more);
                continue;
            }
            let computation = commands.iter().position(computes);
            let (phase, event) = match (flow, computation) {
                (Flow::Again(phase), None) => (phase, PhaseEvent::Entered),
                (Flow::Enter(next), None) => {
                    let (phase, more) = self.with(|context| Phase::of(next, context));
                    commands.extend(more);
                    (phase, PhaseEvent::Entered)
                }
                (Flow::Wait(phase), Some(index)) => (phase, computed(commands.remove(index))),
                (flow, None) => return (flow, commands),
                (flow, Some(_)) => panic!("it computes and does not wait: {flow:?}"),
            };
            let (next, more) = self.on(phase, event);
            flow = next;
            commands.extend(more);
        }
    }

    /// The lifecycle policy returns these requests, and the creates among them are prepared.
    pub(super) fn requests(&mut self, requests: Vec<Request>) -> (Flow<Phase>, Vec<Command>) {
        let (mut flow, mut commands) = self.requests_unprepared(requests);
        let prepares = |command: &Command| match command {
            Command::Call {
                slot,
                call: Call::Prepare(_),
                ..
            } => Some(*slot),
            _ => None,
        };
        for slot in commands.iter().filter_map(prepares).collect::<Vec<_>>() {
            let (next, more) = self.go_on(flow, prepared(slot, Ok(ready())));
            flow = next;
            commands.extend(more);
        }
        (flow, commands)
    }

    /// The lifecycle policy returns these requests.
    pub(super) fn requests_unprepared(&mut self, requests: Vec<Request>) -> (Flow<Phase>, Vec<Command>) {
        let (flow, _) = self.enter(stepping(Role::Lifecycle));
        self.go_on(flow, stepped(pending(requests)))
    }

    /// The lifecycle policy concludes with this patch, and is settled.
    pub(super) fn concludes(&mut self, patch: Value) -> (Flow<Phase>, Vec<Command>) {
        let (flow, _) = self.enter(stepping(Role::Lifecycle));
        self.go_on(flow, concluded(None, conclusion(patch)))
    }

    /// The pass may hold texts of any size.
    pub(super) fn grow(&mut self) {
        let (pass, queue) = (self.frame.id, self.frame.tenant_queue.clone());
        let places = (Capacity::Large, Quota::UNBOUNDED);
        self.calls.wait(Receiver::Pass(pass, 0), places, &queue, None);
        self.calls.next(&Capacity::Large).expect("a place");
    }

    /// Changes the binding of the pass.
    pub(super) fn bind(&mut self, change: impl FnOnce(&mut Binding)) {
        let mut binding = (*self.frame.binding).clone();
        change(&mut binding);
        self.frame.binding = Arc::new(binding);
    }
}

/// The first step of a role.
pub(super) fn stepping(role: Role) -> Phase {
    Phase::Stepping(Stepping::of(RoleRun::new(role)))
}

/// The reply of a worker that drafts.
pub(super) fn computed(command: Command) -> PhaseEvent {
    match command {
        Command::Call {
            slot,
            call: Call::Draft(draft),
            ..
        } => PhaseEvent::Reply(slot, Reply::Drafted(Ok(draft.run()))),
        command => panic!("{command:?}"),
    }
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn at(boot: u64) -> Now {
    Now {
        boot: Boot(boot),
        unix: Unix(1_767_225_600_000 + boot),
    }
}

/// A lease that is held until 20 s, whatever its duration.
fn held() -> Lease {
    use crate::{controller::lease, time::millis};

    let mut lease = Lease::new("me".into());
    let read = |holder: &str, version: &str| LeaseRead {
        holder: holder.into(),
        duration: lease::DURATION,
        version: version.into(),
        transitions: 0,
    };
    let sent = at(20_000 - millis(lease::DURATION));
    lease.poll(sent);
    lease.answered(sent, false, Ok(None));
    lease.poll(sent);
    lease.answered(sent, true, Ok(Some(read("me", "1"))));
    lease
}

/// A Machine with this version and the finalizer. `rest` is merged into it.
pub(super) fn machine(version: u64, rest: Value) -> Value {
    let mut value = json!({"apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"namespace": "default",
        "name": "m", "uid": "u", "resourceVersion": version.to_string(), "generation": 1, "finalizers": [FINALIZER]}});
    crate::merge::apply(&rest, &mut value);
    value
}

/// An entry of `status.pending`.
pub(super) fn entry(key: &str) -> Value {
    json!({"operation": "vm.clone", "service": "vm@1", "intent": "m", "key": key, "stamp": 1, "place": ["sim"],
        "principal": "host", "since": 1})
}

fn policy(role: Role) -> LoadedPolicy {
    let conditions = json!({"properties": {"conditions": {"type": "array"}, "pending": {"type": "array"}}});
    let schema = json!({"openAPIV3Schema": {"properties": {"status": conditions}}});
    LoadedPolicy {
        id: PolicyId(role.as_str().into()),
        manifest: Arc::new(Manifest {
            name: role.as_str().into(),
            version: "1".into(),
            role,
            governs: Vec::new(),
            needs: Vec::new(),
            writes: vec!["status".into(), "metadata.labels".into()],
            config_schema: json!({}),
            finalizer: (role == Role::Lifecycle).then(|| FINALIZER.into()),
            crd: Some(json!({"spec": {"versions": [{"schema": schema}]}})),
            edges: Vec::new(),
        }),
        config: "{}".into(),
    }
}

pub(crate) fn binding(policies: &[Role]) -> Binding {
    let operation = |effect| Operation {
        description: String::new(),
        service: "vm@1".into(),
        effect,
        arguments: json!({}),
        answer: json!({}),
        longest: Duration::from_secs(5),
        visible_within: VISIBLE_WITHIN,
        intent: None,
        sealed: Vec::new(),
    };
    let operations = [
        ("vm.get", OperationEffect::Read),
        ("vm.stop", OperationEffect::Change),
        ("vm.clone", OperationEffect::Create),
    ];
    let mut catalogue = Catalogue {
        stamp: 1,
        finds: vec![1],
        ..Catalogue::default()
    };
    for (name, effect) in operations {
        catalogue.operations.insert(name.into(), operation(effect));
    }
    let binding = Binding {
        name: "machines".into(),
        digest: "".into(),
        created: 0,
        grants: Arc::default(),
        namespaces: None,
        connection: "".into(),
        spec: BindingSpec {
            governs: Governs {
                api_version: "example.com/v1".into(),
                kind: "Machine".into(),
                namespace: None,
                name: None,
            },
            policies: Policies::default(),
            cloud: Some(CloudRef {
                name: "sim".into(),
                configuration: None,
            }),
            tenant: Tenant::Namespace,
            grants: Vec::new(),
            crds: Vec::new(),
            limits: Limits::default(),
        },
        policies: policies.iter().map(|role| (*role, policy(*role))).collect(),
        catalogue: Arc::new(catalogue),
    };
    binding.with_grants(vec![
        Grant::Cloud(vec!["vm.*".into()]),
        Grant::Lock(vec!["one".into()]),
        Grant::Credential(true),
        Grant::Ask(grant_of_config_maps()),
        Grant::Delete(grant_of_config_maps()),
    ])
}

fn grant_of_config_maps() -> KindGrant {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap"})).expect("a grant")
}

/// The scope of the ConfigMaps in the namespace `default`.
pub(crate) fn config_maps() -> Scope {
    Scope {
        kind: Kind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        },
        namespace: Some("default".into()),
        name: None,
        node: None,
        fields: Vec::new(),
    }
}

/// A question for the ConfigMap `site` in the namespace of the Machine.
pub(super) fn config_map(latest: bool) -> Request {
    ask(Question::Object(ObjectQuery {
        object: ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            },
            namespace: Some("default".into()),
            name: "site".into(),
        },
        projection: Vec::new(),
        latest,
    }))
}

pub(super) fn ask(question: Question) -> Request {
    Request::Ask(Ask { round: 0, question })
}

/// A question for a VM of the cloud.
pub(crate) fn get() -> Request {
    ask(Question::Cloud(CloudCall {
        operation: "vm.get".into(),
        arguments: "{}".into(),
    }))
}

/// An act that clones a VM, with this intent.
pub(crate) fn clone_of(intent: &str) -> Request {
    cloud_act("vm.clone", Some(intent))
}

/// An act that stops a VM.
pub(crate) fn stop() -> Request {
    cloud_act("vm.stop", None)
}

fn cloud_act(operation: &str, intent: Option<&str>) -> Request {
    Request::Act(Act::Cloud(CloudAct {
        operation: operation.into(),
        arguments: "{}".into(),
        intent: intent.map(str::to_owned),
    }))
}

/// The request for a retry policy after this many failures in a row.
pub(crate) fn retry_request(class: RetryClass, attempt: u32) -> RetryRequest {
    RetryRequest {
        kind: machine_kind(),
        namespace: Some("default".into()),
        origin: Origin::Lifecycle,
        class,
        failure: None,
        attempt,
        failing_for: 0,
        previous_wait: None,
        seed: crate::retry::seed("u", attempt),
        config: "null".into(),
    }
}

fn machine_kind() -> Kind {
    Kind {
        api_version: "example.com/v1".into(),
        kind: "Machine".into(),
    }
}

/// A step that returns these requests.
pub(crate) fn pending(requests: Vec<Request>) -> Step {
    Step::Pending(requests.into_iter().collect())
}

/// The reply with this step.
pub(super) fn stepped(step: Step) -> PhaseEvent {
    let outcome = Ok(step);
    PhaseEvent::Reply(
        0,
        Reply::Stepped(StepReply {
            stepped: Some(StepOutput { outcome, fuel: 1 }),
            ..StepReply::default()
        }),
    )
}

fn nothing() -> StepOutput {
    StepOutput {
        outcome: Ok(pending(Vec::new())),
        fuel: 0,
    }
}

fn input_of(command: &Command) -> Option<(&Arc<StepInput>, &Limits)> {
    match command {
        Command::Call {
            call: Call::Step { input, limits, .. },
            ..
        } => Some((input, limits)),
        _ => None,
    }
}

/// The journal as the policy sees it in the step among these commands.
pub(super) fn journal(commands: &[Command]) -> Option<Vec<Entry>> {
    let (input, limits) = commands.iter().find_map(input_of)?;
    Some(seen(input, limits))
}

/// The journal as the policy sees it.
pub(crate) fn seen(input: &StepInput, limits: &Limits) -> Vec<Entry> {
    let mut journal = None;
    input.step(limits, |pass| {
        journal = Some(pass.journal.clone());
        nothing()
    });
    journal.expect("all of it is rendered")
}

pub(super) fn concluded(verdict: Option<Verdict>, conclusion: Conclusion) -> PhaseEvent {
    stepped(Step::Concluded { verdict, conclusion })
}

/// A conclusion with this patch that uses no journal entry and is settled.
pub(crate) fn conclusion(patch: Value) -> Conclusion {
    Conclusion {
        patch: (!patch.is_null()).then(|| patch.to_string().as_str().into()),
        events: Vec::new(),
        notes: Vec::new(),
        next: Next::Settled(None),
        used: Vec::new(),
    }
}

pub(super) fn answer(answer: Answer) -> PhaseEvent {
    PhaseEvent::Reply(0, Reply::Answer(answer))
}

/// The reply of the API server with this answer.
pub(super) fn found(answer: Answer) -> PhaseEvent {
    PhaseEvent::Reply(0, Reply::objects(answer))
}

pub(super) fn failure(code: Code) -> Failure {
    Failure::new(code, "said the other side")
}

/// The patches of the primary among these commands.
pub(super) fn patches(commands: &[Command]) -> Vec<&Value> {
    calls(commands).filter_map(patch).collect()
}

/// The versions in the preconditions of these patches.
pub(super) fn versions(commands: &[Command]) -> Vec<&str> {
    calls(commands).filter_map(version).collect()
}

fn version(call: &Call) -> Option<&str> {
    match call {
        Call::Write(Write::Patch { precondition, .. }) => precondition.as_ref()?.resource_version.as_deref(),
        _ => None,
    }
}

fn patch(call: &Call) -> Option<&Value> {
    match call {
        Call::Write(Write::Patch { patch, .. }) => Some(patch),
        _ => None,
    }
}

fn operation(call: &Call) -> Option<&str> {
    match call {
        Call::Cloud(request) => Some(&request.operation),
        Call::Commit(commit) => Some(&commit.request.operation),
        _ => None,
    }
}

/// The reply with the result of a preparation.
pub(super) fn prepared(slot: usize, found: Result<Preparation, Failure>) -> PhaseEvent {
    PhaseEvent::Reply(slot, Reply::Prepared(found))
}

/// The result of a preparation that succeeded.
pub(crate) fn ready() -> Preparation {
    Preparation {
        site: Site {
            place: vec!["sim".into()],
            principal: "host".into(),
        },
        ready: "{}".into(),
    }
}

/// The cloud operations among these commands.
pub(super) fn operations(commands: &[Command]) -> Vec<&str> {
    calls(commands).filter_map(operation).collect()
}

/// The terms of the changes among these commands.
pub(super) fn terms(commands: &[Command]) -> Vec<&Terms> {
    let calls = commands.iter().filter_map(|command| match command {
        Command::Call { terms, .. } => terms.as_ref(),
        _ => None,
    });
    calls.collect()
}

fn calls(commands: &[Command]) -> impl Iterator<Item = &Call> {
    commands.iter().filter_map(|command| match command {
        Command::Call { call, .. } => Some(call),
        _ => None,
    })
}

/// The outcome of an ended pass.
pub(super) fn outcome(flow: &Flow<Phase>) -> Option<&Outcome> {
    match flow {
        Flow::End(ended) => Some(&ended.outcome),
        Flow::Finish(finished) => Some(&finished.ended.outcome),
        _ => None,
    }
}
