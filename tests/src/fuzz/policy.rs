//! Fuzzes core with a policy that returns anything, in a simulated world: core, an API server in memory and
//! the simulated cloud, with the simulation's rules at every instant. Nothing may panic, nothing of the host
//! may be changed by the policy, a neighbour with an honest policy settles, and in the end every object still
//! gets its passes.
//!
//! The bytes choose the world (two of them are its seed) and what each step of a Machine's policies returns:
//! an honest step, requests, a conclusion, a fault. When they run out, the policies are honest.

use std::sync::{Arc, Mutex, PoisonError};

use polity_core::binding::{Binding, Grant, Limits, LoadedPolicy, MintGrant, PolicyId};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{
    Act, Ask, CloudAct, CloudCall, Code, Conclusion, Effect, Event, EventType, Eviction, Failure, Kind,
    ListQuery, Manifest, Mint, Next, ObjectCreate, ObjectDelete, ObjectPatch, ObjectQuery, ObjectRef, Pass,
    Precondition, Question, Request, Requests, RetryClass, RetryRequest, Role, Step, Verdict, Wait,
};
use polity_core::fault::{Fault, FaultKind, StepOutput};
use polity_core::grants;
use polity_core::time::millis;
use serde_json::{Value, json};

use super::{Choices, weird};
use crate::simulation::bindings::{self, FINALIZER, MACHINES, WIDGETS, kind, manifest, native};
use crate::simulation::native::{Cx, Pending, failed, step, widget};
use crate::simulation::scenario::{Action, Scenario};
use crate::simulation::stepper::Stepper;
use crate::simulation::world::{Options, Wild, World};

/// Bytes of the world before those of its steps.
const OF_WORLD: usize = 32;
/// The lines of the trace that are shown with a broken rule.
const LINES: usize = 60;

/// Simulates the world of these bytes.
pub fn run(data: &[u8]) {
    if let Err(broken) = simulate(data, 0) {
        let traced = simulate(data, LINES).err().unwrap_or(broken);
        panic!("{traced}");
    }
}

fn simulate(data: &[u8], trace: usize) -> Result<(), String> {
    let (world, steps) = data.split_at(data.len().min(OF_WORLD));
    let mut choices = Choices::new(world);
    let seed = u64::from(choices.short());
    let shape = Shape::of(&mut choices);
    any_manifest(&mut choices);
    let mut scenario = Scenario::small(seed);
    meddle(&mut choices, &mut scenario);
    let said = Said {
        choices: Mutex::new(Choices::new(steps)),
        shape,
    };
    let bindings =
        |_: &dyn Stepper, catalogue: Arc<Catalogue>| vec![machines(shape, catalogue), bindings::widgets()];
    let options = Options {
        bindings: &bindings,
        wild: Some(Wild { schema: shape.schema }),
        trace,
        ..Options::new(&said)
    };
    let mut world = World::new(seed, scenario, &options);
    world.run().map_err(|violation| {
        format!(
            "broke {:?}: {}\n{}",
            violation.rule,
            violation.message,
            world.trace().join("\n")
        )
    })
}

/// The properties of the binding of Machines.
#[derive(Clone, Copy)]
struct Shape {
    identity: bool,
    retry: bool,
    /// Whether the API server knows the schema of Machines.
    schema: bool,
    writes: &'static [&'static str],
    /// Whether the CRD has conditions for the host's own.
    conditions: bool,
}

impl Shape {
    fn of(choices: &mut Choices<'_>) -> Self {
        Shape {
            identity: choices.chance(64),
            retry: choices.chance(64),
            schema: choices.chance(128),
            writes: choices.pick(&[
                &["metadata.finalizers", "status"],
                &["metadata", "spec", "status"],
                &["metadata.labels", "status.conditions[Ready]", "status.phase"],
                &[
                    "metadata.finalizers",
                    "metadata.ownerReferences",
                    "status.conditions",
                    "status.pending",
                ],
            ]),
            conditions: !choices.chance(64),
        }
    }
}

/// Checks an arbitrary manifest before it governs anything.
fn any_manifest(choices: &mut Choices<'_>) {
    let mut any = manifest(
        "any",
        choices.pick(&[Role::Lifecycle, Role::Identity, Role::Retry]),
        Vec::new(),
        &[],
    );
    any.crd = choices.chance(128).then(|| weird::value(choices, 3));
    any.config_schema = weird::value(choices, 2);
    any.writes = vec![
        choices.text(),
        choices
            .pick(&["status", "", "status.conditions[", "..", "metadata"])
            .to_owned(),
    ];
    any.finalizer = choices.chance(128).then(|| choices.text());
    let binding = bindings::widgets();
    let widget = &binding.policies[&Role::Lifecycle].manifest;
    let _ = grants::check_load(&binding.spec, &binding.catalogue, &any, &[widget]);
    let _ = any.crds().count();
}

/// Adds changes of Machines by people to those of the seed.
fn meddle(choices: &mut Choices<'_>, scenario: &mut Scenario) {
    let created = scenario.actions.iter().filter_map(|(when, action)| match action {
        Action::Create(at) if at.0 == "Machine" => Some((*when, at.clone())),
        _ => None,
    });
    let created: Vec<_> = created.collect();
    for (when, at) in created {
        if choices.chance(100) {
            let held = json!({"metadata": {"finalizers": ["other.example/keep"]}});
            scenario
                .actions
                .push((when + 1, Action::Patch(at.clone(), None, held)));
        }
        if choices.chance(60) {
            let field = choices.pick(&["pending", "conditions", "task", "phase"]);
            let status = json!({"status": {field: weird::value(choices, 2)}});
            let later = when + u64::from(choices.short());
            scenario
                .actions
                .push((later, Action::Patch(at, Some("status"), status)));
        }
    }
}

/// The binding of Machines whose policies return anything, with every possible grant.
fn machines(shape: Shape, catalogue: Arc<Catalogue>) -> Binding {
    let mut grants = vec![
        Grant::Cloud(vec!["*".into()]),
        Grant::Lock(vec!["*".into()]),
        Grant::Credential(true),
        Grant::Mint(vec![MintGrant::Kind("password".into())]),
        Grant::Ask(kind(WIDGETS, "Widget")),
    ];
    for (api_version, name) in [("v1", "ConfigMap"), (MACHINES, "Machine")] {
        grants.push(Grant::Ask(kind(api_version, name)));
        grants.push(Grant::Create(kind(api_version, name)));
        grants.push(Grant::Patch(kind(api_version, name)));
        grants.push(Grant::Delete(kind(api_version, name)));
    }
    let mut policies = vec![lifecycle(shape)];
    if shape.identity {
        policies.push(native(manifest(
            "judge",
            Role::Identity,
            Vec::new(),
            &["metadata.annotations"],
        )));
    }
    if shape.retry {
        policies.push(native(manifest("wait", Role::Retry, Vec::new(), &[])));
    }
    bindings::binding("machines", (MACHINES, "Machine"), policies, grants, catalogue)
}

fn lifecycle(shape: Shape) -> LoadedPolicy {
    let machine = bindings::native_machine();
    let mut crd = machine.manifest.crd.clone();
    if !shape.conditions
        && let Some(status) = crd.as_mut().and_then(|crd| {
            crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties")?
                .as_object_mut()
        })
    {
        status.remove("conditions");
    }
    native(Manifest {
        writes: shape.writes.iter().map(|path| (*path).to_owned()).collect(),
        crd,
        ..(*machine.manifest).clone()
    })
}

/// The policies of a world, whose answers the bytes choose.
struct Said<'a> {
    choices: Mutex<Choices<'a>>,
    shape: Shape,
}

impl Stepper for Said<'_> {
    fn step(&self, policy: &PolicyId, pass: &Pass, limits: &Limits) -> StepOutput {
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let honest = choices.is_empty() || choices.chance(64);
        let stepped = match &*policy.0 {
            "widget" => step(pass, widget),
            "judge" if honest => step(pass, judge),
            "judge" => any_step(&mut choices, pass, limits, Role::Identity),
            _ if honest => step(pass, machine),
            _ => any_step(&mut choices, pass, limits, Role::Lifecycle),
        };
        within(stepped, limits)
    }

    fn decide(&self, _: &PolicyId, request: &RetryRequest, _: &Limits) -> Result<Wait, Fault> {
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        match choices.below(3) {
            0 => Ok(Wait::After(millis(polity_core::retry::default_wait(request)))),
            1 => Ok(Wait::After(choices.number())),
            _ => Err(any_fault(&mut choices)),
        }
    }

    fn machine(&self) -> LoadedPolicy {
        lifecycle(self.shape)
    }
}

/// A step's result after the sandbox has measured it.
fn within(stepped: StepOutput, limits: &Limits) -> StepOutput {
    let large =
        |step: &Step| serde_json::to_vec(step).map_or(u64::MAX, |bytes| bytes.len() as u64) > limits.output;
    match &stepped.outcome {
        Ok(step) if large(step) => StepOutput {
            outcome: Err(Fault::new(FaultKind::BadOutput, "too large")),
            ..stepped
        },
        _ => stepped,
    }
}

/// Clones a VM, and releases the object when it is deleted.
fn machine(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    if !cx.object["metadata"]["deletionTimestamp"].is_null() {
        let held = cx.object["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let kept: Vec<Value> = held.into_iter().filter(|f| f != FINALIZER).collect();
        weird::put(&mut cx.object, "metadata.finalizers", json!(kept));
        return Ok(Next::Settled(None));
    }
    if cx.object["status"]["task"].is_null() {
        let arguments = json!({"name": cx.object["metadata"]["name"], "instanceUuid": cx.object["metadata"]["uid"],
            "template": "ubuntu", "cpus": 2, "coresPerSocket": 2, "memoryMiB": 2048, "networks": []});
        let intent = arguments["name"].as_str().unwrap_or_default().to_owned();
        match cx.change("vm.clone", arguments, Some(&intent))? {
            Ok(answer) => weird::put(&mut cx.object, "status.task", answer),
            Err(failure) => return Ok(failed(failure)),
        }
    }
    Ok(Next::Settled(None))
}

/// Grants the session that it is answered.
fn judge(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    match cx.ask(Question::Credential("{}".into()))? {
        Ok(credential) => {
            let handle = credential["handle"].as_str().unwrap_or_default();
            cx.verdict = Some(Verdict::Granted(handle.to_owned()));
            Ok(Next::Settled(None))
        }
        Err(failure) => {
            cx.verdict = Some(Verdict::Denied);
            Ok(failed(failure))
        }
    }
}

fn any_step(choices: &mut Choices<'_>, pass: &Pass, limits: &Limits, role: Role) -> StepOutput {
    let outcome = match choices.below(16) {
        0 => Err(any_fault(choices)),
        1..=3 => Ok(Step::Pending(Requests::from_iter(requests(choices, pass, 0)))),
        4..=6 => Ok(Step::Pending(Requests::from_iter(requests(choices, pass, 1)))),
        7 => Ok(Step::Pending(Requests::from_iter(requests(choices, pass, 2)))),
        _ => Ok(Step::Concluded {
            verdict: verdict(choices, pass, role),
            conclusion: conclusion(choices, pass),
        }),
    };
    let fuel = if choices.chance(4) {
        // The fuel is measured, and is never more than the limit.
        choices.number().min(limits.step_fuel)
    } else {
        1_000
    };
    StepOutput { outcome, fuel }
}

fn any_fault(choices: &mut Choices<'_>) -> Fault {
    let kind = choices.pick(&[
        FaultKind::Trap,
        FaultKind::OutOfFuel,
        FaultKind::OutOfMemory,
        FaultKind::WallTime,
        FaultKind::BadOutput,
    ]);
    Fault {
        kind,
        message: choices.text(),
        deterministic: choices.chance(200),
    }
}

/// Asks, acts, or both; then only the asks count.
fn requests(choices: &mut Choices<'_>, pass: &Pass, which: u8) -> Vec<Request> {
    let mut requests = Vec::new();
    for _ in 0..choices.below(5) {
        let act = which == 1 || (which == 2 && choices.chance(128));
        let request = if act {
            Request::Act(act_of(choices, pass))
        } else {
            Request::Ask(Ask {
                round: choices.pick(&[0, 0, 0, 1, u32::MAX]),
                question: question(choices, pass),
            })
        };
        let times = if choices.chance(6) {
            4 << choices.below(9)
        } else {
            1
        };
        requests.extend(std::iter::repeat_n(request, times));
    }
    requests
}

fn question(choices: &mut Choices<'_>, pass: &Pass) -> Question {
    match choices.below(6) {
        0 => Question::Object(ObjectQuery {
            object: reference(choices),
            projection: projection(choices),
            latest: choices.chance(128),
        }),
        1 => {
            let object = reference(choices);
            let selectors = [
                None,
                Some("app=web"),
                Some("a in (b"),
                Some("metadata.name=site"),
                Some(",,"),
                Some("!"),
            ];
            Question::Objects(ListQuery {
                cluster: None,
                page: None,
                kind: object.kind,
                namespace: object.namespace,
                label_selector: choices.pick(&selectors).map(str::to_owned),
                field_selector: choices.pick(&selectors).map(str::to_owned),
                projection: projection(choices),
                limit: choices.pick(&[0, 1, u32::MAX]),
                latest: choices.chance(128),
            })
        }
        2 => Question::Secret(reference(choices)),
        3 => Question::Cloud(CloudCall {
            operation: operation(choices),
            arguments: arguments(choices, pass).into(),
        }),
        4 => Question::Lock(choices.text()),
        _ => {
            let plan = json!({"chain": weird::value(choices, 2)});
            Question::Credential(weird::text(choices, &plan).into())
        }
    }
}

fn projection(choices: &mut Choices<'_>) -> Vec<String> {
    let len = choices.below(3);
    let path =
        |choices: &mut Choices<'_>| choices.pick(&["metadata", "data", "status.phase", "", ".", "a..b"]);
    (0..len).map(|_| path(choices).to_owned()).collect()
}

fn act_of(choices: &mut Choices<'_>, pass: &Pass) -> Act {
    match choices.below(9) {
        0..=2 => Act::Cloud(CloudAct {
            operation: operation(choices),
            arguments: arguments(choices, pass).into(),
            intent: choices
                .pick(&[Some("m0"), Some("m1"), None, Some(""), Some("forged.")])
                .map(str::to_owned),
        }),
        3 => {
            let (api_version, kind) =
                choices.pick(&[("v1", "ConfigMap"), (MACHINES, "Machine"), ("v1", "Pod")]);
            let name = choices.pick(&["made", "site", "m0", ""]);
            let object = weird::object(choices, api_version, kind, name);
            Act::Create(ObjectCreate {
                cluster: None,
                object: weird::text(choices, &object).into(),
            })
        }
        4..=5 => {
            let patch = weird::patch(choices);
            Act::Patch(ObjectPatch {
                object: reference(choices),
                precondition: precondition(choices, pass),
                subresource: choices
                    .pick(&[
                        None,
                        Some("status"),
                        Some("scale"),
                        Some("ephemeralcontainers"),
                        Some(""),
                    ])
                    .map(str::to_owned),
                patch: weird::text(choices, &patch).into(),
            })
        }
        6 => Act::Delete(ObjectDelete {
            object: reference(choices),
            precondition: precondition(choices, pass),
            grace_period_seconds: choices.pick(&[None, Some(0), Some(u32::MAX)]),
            propagation_policy: choices
                .pick(&[None, Some("Orphan"), Some("nonsense")])
                .map(str::to_owned),
        }),
        7 => Act::Evict(Eviction {
            object: reference(choices),
            precondition: precondition(choices, pass),
            grace_period_seconds: choices.pick(&[None, Some(u32::MAX)]),
        }),
        _ => Act::Mint(Mint {
            cluster: None,
            kind: choices.pick(&["password", "bootstrap-token", ""]).to_owned(),
            ttl: choices.number(),
        }),
    }
}

fn operation(choices: &mut Choices<'_>) -> String {
    let known = [
        "vm.clone",
        "vm.clone",
        "vm.power-on",
        "vm.destroy",
        "vm.get",
        "vm.find",
        "task.get",
        "pool.create",
        "machine.create",
        "forged.create",
        "*",
        "",
    ];
    choices.pick(&known).to_owned()
}

fn arguments(choices: &mut Choices<'_>, pass: &Pass) -> String {
    let mut arguments = json!({"name": choices.pick(&["m0", "m1"]), "instanceUuid": uid(pass), "template": "ubuntu",
        "cpus": 2, "coresPerSocket": 2, "memoryMiB": 2048, "networks": []});
    if choices.chance(128) {
        arguments = json!({"id": choices.pick(&["vm-1", "vm-2", "task-1", ".."])});
    }
    if choices.chance(40) {
        let sealed = json!({"$secret": {"name": choices.pick(&["minted:x", "s", ".."]), "key": "k"}});
        weird::put(
            &mut arguments,
            choices.pick(&["metadata", "userData", "name", "networks.a"]),
            sealed,
        );
    }
    if choices.chance(30) {
        arguments = weird::value(choices, 3);
    }
    weird::text(choices, &arguments)
}

fn reference(choices: &mut Choices<'_>) -> ObjectRef {
    let (api_version, kind) = choices.pick(&[
        ("v1", "ConfigMap"),
        ("v1", "ConfigMap"),
        (MACHINES, "Machine"),
        (MACHINES, "Machine"),
        (WIDGETS, "Widget"),
        ("v1", "Secret"),
        ("v1", "Pod"),
        ("v1", "Node"),
        ("polity.dev/v1alpha1", "PolicyBinding"),
        ("", ""),
    ]);
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        },
        namespace: choices
            .pick(&[
                Some("default"),
                Some("default"),
                Some("default"),
                None,
                Some("other"),
                Some(".."),
            ])
            .map(str::to_owned),
        name: choices
            .pick(&["site", "other", "made", "m0", "m1", "w0", "", ".."])
            .to_owned(),
    }
}

fn precondition(choices: &mut Choices<'_>, pass: &Pass) -> Precondition {
    let own = uid(pass);
    let uid = choices.pick(&["uid-1", "uid-2", "uid-3", "uid-4", own.as_str(), ""]);
    Precondition {
        uid: uid.to_owned(),
        resource_version: choices
            .pick(&[None, None, None, Some("1"), Some("x")])
            .map(str::to_owned),
    }
}

/// The uid of the primary.
fn uid(pass: &Pass) -> String {
    let object: Value = pass
        .object
        .as_deref()
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn verdict(choices: &mut Choices<'_>, pass: &Pass, role: Role) -> Option<Verdict> {
    let answered = pass.journal.iter().find_map(|entry| {
        let answer: Value = serde_json::from_str(entry.answer.as_ref().ok()?).ok()?;
        Some(answer["handle"].as_str()?.to_owned())
    });
    let any = match choices.below(6) {
        0 => Some(Verdict::Denied),
        1 => Some(Verdict::Released),
        2 => Some(Verdict::Granted(choices.text())),
        3 => None,
        _ => Some(Verdict::Granted(answered.unwrap_or_default())),
    };
    match role {
        Role::Identity => any,
        _ if choices.chance(8) => any,
        _ => None,
    }
}

fn conclusion(choices: &mut Choices<'_>, pass: &Pass) -> Conclusion {
    let patch = choices.chance(220).then(|| {
        let patch = weird::patch(choices);
        weird::text(choices, &patch).into()
    });
    let entries = u32::try_from(pass.journal.len()).unwrap_or(u32::MAX);
    let used = match choices.below(8) {
        0 => vec![choices.pick(&[0, 1, u32::MAX, entries])],
        1 => (0..entries).chain(0..entries).collect(),
        _ => (0..entries).collect(),
    };
    Conclusion {
        patch,
        events: events(choices),
        notes: notes(choices),
        next: next(choices),
        used,
    }
}

fn events(choices: &mut Choices<'_>) -> Vec<Event> {
    // Many or long values; both would be more than a step may return.
    let (len, long) = match choices.byte() {
        255 => (3_000, 1),
        248..255 => (1, 4_096),
        few => (usize::from(few) % 3, 1),
    };
    let event = Event {
        kind: choices.pick(&[EventType::Normal, EventType::Warning]),
        reason: choices.text().repeat(long),
        message: choices.text().repeat(long),
    };
    vec![event; len]
}

fn notes(choices: &mut Choices<'_>) -> Vec<String> {
    let len = if choices.chance(4) {
        3_000
    } else {
        choices.below(3)
    };
    vec![choices.text(); len]
}

fn next(choices: &mut Choices<'_>) -> Next {
    match choices.below(5) {
        0 => Next::Settled(None),
        1 => Next::Settled(Some(choices.number())),
        2 => Next::After(choices.number()),
        _ => Next::Retry {
            class: choices.pick(&[
                RetryClass::Conflict,
                RetryClass::Short,
                RetryClass::Medium,
                RetryClass::Long,
            ]),
            failure: choices.chance(128).then(|| Failure {
                code: choices.pick(&[
                    Code::InvalidArgument,
                    Code::Unavailable,
                    Code::PermissionDenied,
                    Code::Internal,
                ]),
                message: choices.text(),
                effect: choices.pick(&[Effect::None, Effect::Unknown]),
                retry_after: choices.chance(64).then(|| choices.number()),
                operation: None,
                detail: None,
            }),
        },
    }
}
