//! Rules of core, one at a time, on a desk where nothing happens by chance.

use std::sync::Arc;
use std::time::Duration;

use polity_core::binding::{Binding, Grant, LoadedPolicy};
use polity_core::call::{Call, Reply, Write};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{
    Act, Ask, Cause, CloudCall, Code, Conclusion, Failure, Next, ObjectQuery, Pass, Question, Request,
    Requests, Resolution, RetryClass, Role, Step, Verdict,
};
use polity_core::controller::Input;
use polity_core::fault::{Fault, FaultKind, Stepped};
use polity_core::record::Outcome;
use polity_core::time::millis;
use polity_tests::simulation::bindings::{
    self, FINALIZER, MACHINES, WIDGETS, binding, kind, manifest, native,
};
use polity_tests::simulation::core_harness::Desk;
use polity_tests::simulation::native::{Cx, Pending, failed, step, text, widget};
use polity_tests::simulation::store::Place;
use serde_json::{Value, json};

const SETTLED: Next = Next::Settled(None);

fn sim() -> Arc<Catalogue> {
    polity_sim::Sim::new(Default::default(), 0, 0).catalogue().clone()
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, rest: Value) -> Value {
    let mut value =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
    polity_tests::simulation::store::merge(&mut value, &rest);
    value
}

fn a_widget(name: &str) -> Value {
    object(
        WIDGETS,
        "Widget",
        "default",
        name,
        json!({"spec": {"source": "site"}}),
    )
}

fn a_machine(name: &str) -> Value {
    object(
        MACHINES,
        "Machine",
        "default",
        name,
        json!({"spec": {"template": "t"}}),
    )
}

fn at(kind: &str, name: &str) -> Place {
    (kind.to_owned(), "default".to_owned(), name.to_owned())
}

/// A lifecycle policy for Widgets that may do everything a test grants.
fn lifecycle(name: &str) -> LoadedPolicy {
    native(manifest(name, Role::Lifecycle, Vec::new(), &["status"]))
}

fn widgets(name: &str, policies: impl IntoIterator<Item = LoadedPolicy>, grants: Vec<Grant>) -> Binding {
    binding(name, (WIDGETS, "Widget"), policies, grants, sim())
}

fn bound(binding: Binding) -> Input {
    Input::Bound(Box::new(binding))
}

/// A native policy from a closure.
fn policy(f: impl Fn(&mut Cx<'_>) -> Result<Next, Pending> + 'static) -> impl Fn(&Pass) -> Stepped {
    move |pass| step(pass, &f)
}

/// A desk with Machines under a policy that clones once and then settles.
fn cloning(f: impl Fn(&mut Cx<'_>) -> Result<Next, Pending> + 'static) -> Desk {
    let mut desk = Desk::new();
    desk.policy("machine", policy(f));
    desk.feed(bound(bindings::machines(bindings::native_machine(), sim())));
    desk
}

fn clone(cx: &mut Cx<'_>) -> Result<polity_core::contract::Answer, Pending> {
    let arguments = json!({"name": "m", "instanceUuid": "u", "template": "t", "cpus": 2, "coresPerSocket": 2,
        "memoryMiB": 2048, "networks": []});
    cx.change("vm.clone", arguments, Some("m"))
}

fn pending() -> Value {
    json!([{"operation": "vm.clone", "intent": "m", "key": "k", "since": 1_767_225_500_000_u64, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"}])
}

/// A Machine that was left with a create in doubt.
fn machine_in_doubt(desk: &mut Desk) {
    let with_finalizer = json!({"metadata": {"finalizers": [FINALIZER]}, "status": {"pending": pending()}});
    let mut value = a_machine("m");
    polity_tests::simulation::store::merge(&mut value, &with_finalizer);
    desk.create(value);
}

#[test]
fn a_lock_is_busy_while_another_pass_holds_it() {
    let mut desk = Desk::new();
    desk.policy(
        "one-at-a-time",
        policy(|cx| {
            let lock = cx.ask(Question::Lock("drain".into()))?;
            cx.notes
                .push(lock.unwrap_or_default().as_str().unwrap_or_default().to_owned());
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    let grants = vec![
        Grant::Lock(vec!["drain".into()]),
        Grant::Cloud(vec!["vm.*".into()]),
    ];
    desk.feed(bound(widgets("w", [lifecycle("one-at-a-time")], grants)));
    desk.create(a_widget("a"));
    desk.create(a_widget("b"));
    desk.release(|_| true);
    desk.release(|_| true);
    let notes: Vec<Vec<&str>> = desk.records.iter().map(|r| r.notes().collect()).collect();
    assert_eq!(notes, [["held"], ["busy"]]);
    desk.create(a_widget("c"));
    desk.release(|_| true);
    assert_eq!(desk.records[2].notes().collect::<Vec<_>>(), ["held"]);
}

fn retry_policy(name: &str) -> LoadedPolicy {
    native(manifest(name, Role::Retry, Vec::new(), &[]))
}

#[test]
fn a_changed_retry_policy_moves_the_deadline_and_starts_no_pass() {
    let mut desk = Desk::new();
    desk.policy(
        "fails",
        policy(|_| Ok(failed(Failure::new(Code::Unavailable, "down")))),
    );
    desk.waits = [("patient".into(), 3_600_000), ("brisk".into(), 30_000)].into();
    desk.feed(bound(widgets(
        "w",
        [lifecycle("fails"), retry_policy("patient")],
        vec![],
    )));
    desk.create(a_widget("a"));
    desk.sleep(10_000);
    assert_eq!(desk.records.len(), 1);
    assert_eq!(desk.records[0].wait, Some(Duration::from_hours(1)));
    desk.feed(bound(widgets(
        "w",
        [lifecycle("fails"), retry_policy("brisk")],
        vec![],
    )));
    desk.sleep(19_000);
    assert_eq!(desk.records.len(), 1, "30 s after the outcome, not at once");
    desk.sleep(1_000);
    assert_eq!(desk.records.len(), 2);
}

#[test]
fn a_changed_lifecycle_wakes_its_keys_spread_over_a_minute() {
    let mut desk = Desk::new();
    desk.policy("old", policy(|_| Ok(SETTLED)));
    desk.policy("new", policy(|_| Ok(SETTLED)));
    desk.feed(bound(widgets("w", [lifecycle("old")], vec![])));
    for n in 0..20 {
        desk.create(a_widget(&format!("w{n}")));
    }
    assert_eq!(desk.records.len(), 20);
    desk.feed(bound(widgets("w", [lifecycle("new")], vec![])));
    let at_once = desk.records.len();
    desk.sleep(30_000);
    let halfway = desk.records.len();
    desk.sleep(30_000);
    assert!(
        at_once < 23 && (25..36).contains(&halfway),
        "{at_once}, {halfway}"
    );
    assert_eq!(desk.records.len(), 40);
    assert!(
        desk.records[20..]
            .iter()
            .all(|r| r.causes.contains(&Cause::Binding) && &*r.roles[0].policy.0 == "new")
    );
}

#[test]
fn of_two_bindings_the_oldest_governs_and_the_other_says_so() {
    let mut desk = Desk::new();
    desk.policy("p", policy(|_| Ok(SETTLED)));
    let young = Binding {
        created: 2,
        ..widgets("a-young", [lifecycle("p")], vec![])
    };
    let old = Binding {
        created: 1,
        ..widgets("z-old", [lifecycle("p")], vec![])
    };
    desk.feed(bound(young));
    desk.create(a_widget("a"));
    desk.feed(bound(old));
    desk.patch(&at("Widget", "a"), None, json!({"spec": {"source": "other"}}));
    let by: Vec<&str> = desk.records.iter().map(|r| &*r.key.binding).collect();
    assert_eq!(by, ["a-young", "z-old", "z-old"]);
    let overlap = |name| desk.machine.health(name).and_then(|h| h.overlapped_by.clone());
    assert_eq!(
        (overlap("a-young"), overlap("z-old")),
        (Some("z-old".into()), None)
    );
    desk.feed(Input::Unbound("z-old".into()));
    assert_eq!(desk.records.last().map(|r| &*r.key.binding), Some("a-young"));
}

#[test]
fn what_is_not_granted_is_refused_and_said_on_the_binding() {
    let mut desk = Desk::new();
    desk.policy(
        "greedy",
        policy(|cx| {
            let answer = cx.change("vm.destroy", json!({"id": "vm-1"}), None)?;
            assert_eq!(answer.expect_err("refused").code, Code::PermissionDenied);
            let answer = cx.object("v1", "Node", "default", "n")?;
            assert_eq!(answer.expect_err("refused").code, Code::PermissionDenied);
            Ok(SETTLED)
        }),
    );
    desk.feed(bound(widgets(
        "w",
        [lifecycle("greedy")],
        vec![Grant::Cloud(vec!["vm.get".into()])],
    )));
    desk.create(a_widget("a"));
    assert_eq!(desk.records[0].outcome, Outcome::Published);
    assert!(desk.performed.is_empty());
    let ungranted = &desk.machine.health("w").expect("bound").ungranted;
    assert_eq!(ungranted.len(), 2, "{ungranted:?}");
}

/// A step that breaks the contract, and how.
type Broken = (fn(&Pass) -> Step, FaultKind);

/// A policy that breaks its contract for the object `bad` and for no other.
fn bad_for_one(break_it: fn(&Pass) -> Step) -> impl Fn(&Pass) -> Stepped {
    move |pass| {
        let object: Value = pass
            .object
            .as_deref()
            .and_then(|o| serde_json::from_str(o).ok())
            .unwrap_or_default();
        match object["metadata"]["name"] == "bad" {
            true => Stepped {
                outcome: Ok(break_it(pass)),
                fuel: 1,
            },
            false => step(pass, |_| Ok(Next::After(5_000))),
        }
    }
}

fn concluded(used: Vec<u32>) -> Step {
    let conclusion = Conclusion {
        patch: None,
        events: vec![],
        notes: vec![],
        next: SETTLED,
        used,
    };
    Step::Concluded {
        verdict: None,
        conclusion,
    }
}

fn power_on() -> Request {
    Request::Act(Act::Cloud(polity_core::contract::CloudAct {
        operation: "vm.power-on".into(),
        arguments: text(&json!({"id": "vm-1"})).into(),
        intent: None,
    }))
}

fn get(id: usize) -> Request {
    let arguments = text(&json!({"id": format!("vm-{id}")}));
    let question = Question::Cloud(CloudCall {
        operation: "vm.get".into(),
        arguments: arguments.into(),
    });
    Request::Ask(Ask { round: 0, question })
}

#[test]
fn a_faulting_object_waits_longer_each_time_and_others_go_on() {
    let broken: [Broken; 3] = [
        (|_| Step::Pending(Requests::from_iter([])), FaultKind::Stalled),
        (
            |pass| match pass.journal.is_empty() {
                true => Step::Pending(Requests::from_iter([power_on()])),
                false => concluded(vec![]),
            },
            FaultKind::JournalMismatch,
        ),
        (
            |pass| Step::Pending(Requests::from_iter([get(pass.journal.len())])),
            FaultKind::TooLong,
        ),
    ];
    for (break_it, kind) in broken {
        let mut desk = Desk::new();
        desk.cloud = Box::new(|_| Ok(json!({})));
        desk.policy("p", bad_for_one(break_it));
        desk.feed(bound(widgets(
            "w",
            [lifecycle("p")],
            vec![Grant::Cloud(vec!["vm.*".into()])],
        )));
        desk.create(a_widget("bad"));
        desk.create(a_widget("good"));
        desk.sleep(60_000);
        let bad = desk.records_of("bad");
        assert!(bad.iter().all(|r| r.outcome == Outcome::Faulted), "{kind:?}");
        assert!(
            bad.iter()
                .all(|r| r.roles[0].fault.as_ref().is_some_and(|f| f.kind == kind)),
            "{:?}",
            bad[0].roles[0].fault
        );
        let waits: Vec<Duration> = bad.iter().filter_map(|r| r.wait).collect();
        assert!(
            waits.len() >= 4 && waits.windows(2).all(|w| w[0] < w[1]),
            "{kind:?}: {waits:?}"
        );
        assert_eq!(desk.records_of("good").len(), 13, "{kind:?}");
        let health = desk.machine.health("w").expect("bound");
        assert_eq!(health.faults, bad.len() as u64);
    }
}

#[test]
fn one_tenant_cannot_starve_another() {
    let mut desk = Desk::new();
    desk.policy(
        "asks",
        policy(|cx| {
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    desk.feed(bound(widgets(
        "w",
        [lifecycle("asks")],
        vec![Grant::Cloud(vec!["vm.*".into()])],
    )));
    for n in 0..200 {
        desk.create(object(WIDGETS, "Widget", "big", &format!("big-{n}"), json!({})));
    }
    desk.create(object(WIDGETS, "Widget", "small", "small", json!({})));
    // The big tenant has as many passes in flight as it may; they take all the room in the cloud.
    assert_eq!(desk.machine.passes_in_flight(), 65);
    for _ in 0..65 {
        if desk.records_of("small").is_empty() {
            desk.release(|_| true);
        }
    }
    assert_eq!(
        desk.records_of("small").len(),
        1,
        "after {} others",
        desk.records.len()
    );
}

#[test]
fn a_binding_that_allows_few_passes_holds_no_other_binding_back() {
    let mut desk = Desk::new();
    desk.policy(
        "asks",
        policy(|cx| {
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    let cloud = || vec![Grant::Cloud(vec!["vm.*".into()])];
    let mut narrow = widgets("narrow", [lifecycle("asks")], cloud());
    narrow.spec.limits.passes_per_tenant = 1;
    desk.feed(bound(narrow));
    let machines = (MACHINES, "Machine");
    desk.feed(bound(binding(
        "wide",
        machines,
        [lifecycle("asks")],
        cloud(),
        sim(),
    )));
    for name in ["a", "b", "c"] {
        desk.create(a_widget(name));
        desk.create(a_machine(name));
    }
    assert_eq!(desk.machine.passes_in_flight(), 4);
}

#[test]
fn acts_and_asks_share_the_room_of_their_cloud() {
    let mut desk = Desk::new();
    desk.policy(
        "stops",
        policy(|cx| {
            let _ = cx.cloud("vm.power", json!({"id": "vm-1"}))?;
            let _ = cx.change("vm.power-off", json!({"id": "vm-1"}), None)?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    let mut narrow = widgets("w", [lifecycle("stops")], vec![Grant::Cloud(vec!["vm.*".into()])]);
    narrow.spec.limits.cloud_calls = 2;
    desk.feed(bound(narrow));
    for name in ["a", "b", "c", "d", "e"] {
        desk.create(a_widget(name));
    }
    let mut released = 0;
    while !desk.held.is_empty() {
        assert!(desk.held.len() <= 2, "{:?}", desk.held);
        let (call, what) = desk.held.remove(0);
        released += 1;
        let (Call::Cloud(_) | Call::Commit(_)) = what else {
            unreachable!("only cloud calls are held")
        };
        let answer = Ok(json!({}));
        desk.feed(Input::Returned {
            call,
            reply: Reply::Answer(answer),
        });
    }
    assert_eq!((released, desk.records.len()), (10, 5));
    assert_eq!(desk.machine.health("w").map(|health| health.acts), Some(5));
}

#[test]
fn the_fuel_of_a_pass_is_that_of_all_its_roles() {
    // A native step takes 1,000 units, and 1,000 more for each entry of its journal.
    for (fuel, outcome) in [(6_000, Outcome::Published), (5_999, Outcome::Faulted)] {
        let mut desk = Desk::new();
        let mut binding = judging(&mut desk, |cx| {
            let credential = cx.ask(Question::Credential(r#"{"a": 1}"#.into()))?;
            let handle = credential.unwrap_or_default()["handle"].clone();
            cx.verdict = Some(Verdict::Granted(handle.as_str().unwrap_or_default().to_owned()));
            Ok(SETTLED)
        });
        binding.spec.limits.pass_fuel = fuel;
        desk.feed(bound(binding));
        desk.create(a_widget("a"));
        assert_eq!(desk.records[0].outcome, outcome, "{fuel}");
    }
}

#[test]
fn a_key_that_passes_too_often_is_slowed_and_says_so() {
    let mut desk = Desk::new();
    desk.policy("hot", policy(|_| Ok(Next::After(0))));
    desk.policy("calm", policy(|_| Ok(SETTLED)));
    desk.feed(bound(widgets(
        "w",
        [LoadedPolicy {
            manifest: bindings::native_machine().manifest,
            ..lifecycle("hot")
        }],
        vec![],
    )));
    desk.create(a_widget("a"));
    desk.sleep(30_000);
    let passes = desk.records.len();
    assert!(
        (45..=52).contains(&passes),
        "a burst of 20 and one a second: {passes}"
    );
    let conditions =
        desk.store.get(&at("Widget", "a")).expect("there").tree()["status"]["conditions"].clone();
    assert_eq!(conditions[0]["type"], "polity.dev/Slowed");
}

fn identity(name: &str) -> LoadedPolicy {
    native(manifest(name, Role::Identity, Vec::new(), &["status.identity"]))
}

/// Widgets under an identity policy, and a lifecycle that needs what it grants.
fn judged(desk: &mut Desk, judge: impl Fn(&mut Cx<'_>) -> Result<Next, Pending> + 'static) {
    let binding = judging(desk, judge);
    desk.feed(bound(binding));
}

fn judging(desk: &mut Desk, judge: impl Fn(&mut Cx<'_>) -> Result<Next, Pending> + 'static) -> Binding {
    desk.policy("judge", policy(judge));
    desk.policy(
        "lifecycle",
        policy(|cx| {
            cx.object["status"]["phase"] = json!("up");
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.cloud = Box::new(|_| Ok(json!({})));
    let policies = [
        identity("judge"),
        LoadedPolicy {
            manifest: Arc::new(polity_core::contract::Manifest {
                writes: vec!["status.phase".into(), "metadata.finalizers".into()],
                finalizer: Some(FINALIZER.into()),
                ..manifest("lifecycle", Role::Lifecycle, vec![], &[])
            }),
            ..lifecycle("lifecycle")
        },
    ];
    let grants = vec![Grant::Cloud(vec!["vm.*".into()]), Grant::Credential(true)];
    widgets("w", policies, grants)
}

#[test]
fn a_denial_is_published_and_the_lifecycle_is_not_asked() {
    let mut desk = Desk::new();
    judged(&mut desk, |cx| {
        cx.verdict = Some(Verdict::Denied);
        cx.object["status"]["identity"] = json!("nobody");
        Ok(Next::After(60_000))
    });
    desk.create(a_widget("a"));
    assert_eq!(desk.records[0].outcome, Outcome::Denied);
    assert_eq!(desk.records[0].roles.len(), 1);
    assert!(desk.performed.is_empty());
    let status = desk.store.get(&at("Widget", "a")).expect("there").tree()["status"].clone();
    assert_eq!(status, json!({"identity": "nobody"}));
    assert_eq!(desk.records[0].wait, Some(Duration::from_mins(1)));
}

#[test]
fn a_granted_handle_reaches_the_cloud_and_both_patches_are_published() {
    let mut desk = Desk::new();
    judged(&mut desk, |cx| {
        let credential = cx.ask(Question::Credential(r#"{"a": 1}"#.into()))?;
        let handle = credential.unwrap_or_default()["handle"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        cx.verdict = Some(Verdict::Granted(handle));
        cx.object["status"]["identity"] = json!("somebody");
        Ok(SETTLED)
    });
    desk.create(a_widget("a"));
    assert_eq!(
        desk.performed[0].session.handle.as_deref(),
        Some(r#"handle of {"a": 1}"#)
    );
    let status = desk.store.get(&at("Widget", "a")).expect("there").tree()["status"].clone();
    assert_eq!(status, json!({"identity": "somebody", "phase": "up"}));
}

#[test]
fn a_plan_that_names_credentials_of_others_is_refused() {
    let secret = |namespace: &str| json!({"chain": [{"secret": {"namespace": namespace, "name": "keys", "digest": "d"}}]});
    let token = |namespace: &str| json!({"chain": [{"webIdentity": {"namespace": namespace, "arn": "a"}}]});
    let granted = Grant::Secrets(polity_core::binding::SecretGrant {
        namespaces: Some(vec!["system".into()]),
        name: None,
    });
    for (plan, grants, fine) in [
        (secret("system"), vec![granted.clone()], true),
        (secret("system"), vec![], false),
        (secret("another"), vec![granted.clone()], false),
        (token("default"), vec![], true),
        (token("another"), vec![granted], false),
    ] {
        let mut desk = Desk::new();
        let asked = plan.to_string();
        let binding = judging(&mut desk, move |cx| {
            let plan = asked.as_str().into();
            let answer = cx.ask(Question::Credential(plan))?;
            cx.verdict = Some(Verdict::Denied);
            let code = answer.err().map(|failure| failure.code);
            cx.object["status"]["identity"] = json!(code.map_or("somebody", |code| code.as_str()));
            Ok(SETTLED)
        });
        let all = [binding.spec.grants.clone(), grants].concat();
        desk.feed(bound(binding.with_grants(all)));
        desk.create(a_widget("a"));
        let identity = &desk.store.get(&at("Widget", "a")).expect("there").tree()["status"]["identity"];
        let expected = if fine { "somebody" } else { "permission-denied" };
        assert_eq!(identity, expected, "{plan}");
    }
}

#[test]
fn a_handle_that_nobody_answered_is_a_fault() {
    let mut desk = Desk::new();
    judged(&mut desk, |cx| {
        cx.verdict = Some(Verdict::Granted("stolen".into()));
        Ok(SETTLED)
    });
    desk.create(a_widget("a"));
    assert_eq!(desk.records[0].outcome, Outcome::Faulted);
    assert!(desk.performed.is_empty());
}

#[test]
fn a_released_object_loses_its_finalizer_and_its_pending_entries() {
    let mut desk = Desk::new();
    judged(&mut desk, |cx| {
        cx.verdict = Some(match cx.object["metadata"]["deletionTimestamp"].is_string() {
            true => Verdict::Released,
            false => Verdict::Denied,
        });
        Ok(SETTLED)
    });
    let kept = json!({"metadata": {"finalizers": [FINALIZER]}, "status": {"pending": pending()}});
    let mut value = a_widget("a");
    polity_tests::simulation::store::merge(&mut value, &kept);
    desk.create(value);
    desk.delete(&at("Widget", "a"));
    assert_eq!(desk.records.last().map(|r| &r.outcome), Some(&Outcome::Released));
    assert!(desk.store.get(&at("Widget", "a")).is_none());
}

#[test]
fn while_a_create_is_in_doubt_the_same_create_is_refused() {
    let mut desk = cloning(|cx| {
        assert!(cx.pass.pending[0].resolution.is_unknown());
        let refused = clone(cx)?.expect_err("refused");
        assert_eq!(
            (refused.code, refused.effect),
            (Code::FailedPrecondition, polity_core::contract::Effect::None)
        );
        Ok(Next::After(20_000))
    });
    machine_in_doubt(&mut desk);
    assert_eq!(desk.records[0].outcome, Outcome::Published);
    assert!(desk.performed.is_empty());
    assert_eq!(
        desk.records[0].next,
        Some(Next::After(20_000)),
        "it removed no finalizer: its wish stands"
    );
    let object = desk.store.get(&at("Machine", "m")).expect("there").tree().clone();
    assert_eq!(object["status"]["pending"][0]["key"], "k");
}

#[test]
fn what_was_done_answers_the_same_create_without_doing_it() {
    let mut desk = cloning(|cx| {
        let task = clone(cx)?.expect("done")["task"].clone();
        cx.object["status"]["taskRef"] = task;
        Ok(Next::After(20_000))
    });
    desk.doubt = Box::new(|_| Resolution::Done(text(&json!({"task": "task-1"}))));
    machine_in_doubt(&mut desk);
    assert!(desk.performed.is_empty());
    let status = desk.store.get(&at("Machine", "m")).expect("there").tree()["status"].clone();
    assert_eq!(status, json!({"taskRef": "task-1"}));
}

#[test]
fn absent_is_believed_only_after_this_host_has_known_the_entry_for_long_enough() {
    let mut desk = cloning(|cx| match cx.pass.pending.first().map(|p| &p.resolution) {
        Some(Resolution::Absent) => {
            let _ = clone(cx)?;
            Ok(SETTLED)
        }
        _ => Ok(Next::After(1_000)),
    });
    desk.cloud = Box::new(|_| Ok(json!({"task": "task-1"})));
    // The cloud counts by a clock that jumped: the entry was written a moment ago.
    desk.doubt = Box::new(|_| Resolution::Absent);
    machine_in_doubt(&mut desk);
    let visible_within = millis(sim().operations["vm.clone"].visible_within);
    desk.sleep(visible_within - 1_000);
    assert!(desk.performed.is_empty());
    desk.sleep(2_000);
    assert_eq!(desk.performed.len(), 1);
}

#[test]
fn the_finalizer_stays_while_anything_is_in_doubt() {
    for (doubt, gone_at_once) in [
        (Resolution::unknown("nobody looked"), false),
        (Resolution::Done(text(&json!({"task": "task-1"}))), false),
        (Resolution::Absent, true),
    ] {
        let mut desk = cloning(|cx| {
            cx.object["status"]["phase"] = json!("Gone");
            cx.object["metadata"]["finalizers"] = json!([]);
            Ok(SETTLED)
        });
        // Maintenance first, so that the host has known of the entry for a while.
        desk.doubt = Box::new(|_| Resolution::unknown("nobody looked"));
        machine_in_doubt(&mut desk);
        desk.sleep(120_000);
        desk.doubt = Box::new(move |_| doubt.clone());
        desk.records.clear();
        desk.delete(&at("Machine", "m"));
        let record = &desk.records[0];
        let object = desk.store.get(&at("Machine", "m"));
        assert_eq!(object.is_none(), gone_at_once);
        if let Some(object) = object {
            assert_eq!(object.tree()["status"]["phase"], "Gone", "the rest is published");
            assert!(matches!(
                record.next,
                Some(Next::Retry {
                    class: RetryClass::Medium,
                    failure: None
                })
            ));
        }
    }
}

#[test]
fn a_host_that_has_no_time_to_stop_ends_its_passes_in_the_middle_and_gives_the_lease_up() {
    let mut desk = cloning(|cx| {
        let _ = clone(cx)?;
        Ok(SETTLED)
    });
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    desk.create(a_machine("m"));
    assert_eq!(desk.held.len(), 1, "its clone is on its way");
    desk.feed(Input::Stop);
    assert!(!desk.stopped && desk.machine.is_holder(), "it has its time");
    desk.feed(Input::Cut);
    assert!(
        !desk.stopped && desk.machine.is_holder(),
        "its clone may still be made"
    );
    desk.sleep(5_000);
    assert!(desk.stopped && !desk.machine.is_holder());
    assert!(desk.held.is_empty(), "nobody waits for it any more");
    assert_eq!(desk.records.last().map(|r| &r.outcome), Some(&Outcome::Stopped));
    let entries = &desk.store.get(&at("Machine", "m")).expect("there").tree()["status"]["pending"];
    assert!(
        entries.is_object() || entries.is_array(),
        "what it began is on record: {entries}"
    );
}

#[test]
fn a_pass_ends_when_the_lease_is_lost() {
    let mut desk = cloning(|cx| {
        let _ = clone(cx)?;
        Ok(SETTLED)
    });
    desk.hold = Box::new(|call| {
        matches!(
            call,
            Call::Write(Write::Patch {
                subresource: Some(_),
                ..
            })
        )
    });
    desk.create(a_machine("m"));
    assert_eq!(desk.held.len(), 1, "its entry is on its way");
    desk.leased = false;
    // Held back longer than any write may take, and than the lease lasts.
    desk.sleep(4_000);
    let (call, _) = desk.held.remove(0);
    desk.now = desk.now + Duration::from_secs(30);
    let written = desk.store.get(&at("Machine", "m")).expect("there").clone();
    desk.feed(Input::Returned {
        call,
        reply: polity_core::call::Reply::Objects(Ok(vec![written])),
    });
    assert!(!desk.machine.is_holder());
    assert_eq!(desk.records.last().map(|r| &r.outcome), Some(&Outcome::LeaseLost));
    assert!(desk.performed.is_empty());
}

#[test]
fn a_binding_that_names_one_object_gets_passes_while_it_is_absent() {
    let mut desk = Desk::new();
    desk.policy(
        "p",
        policy(|cx| {
            cx.notes.push(
                if cx.pass.object.is_some() {
                    "there"
                } else {
                    "absent"
                }
                .into(),
            );
            Ok(SETTLED)
        }),
    );
    let mut binding = widgets("w", [lifecycle("p")], vec![]);
    binding.spec.governs.namespace = Some("default".into());
    binding.spec.governs.name = Some("one".into());
    desk.feed(bound(binding));
    desk.create(a_widget("one"));
    desk.create(a_widget("two"));
    desk.delete(&at("Widget", "one"));
    let notes: Vec<&str> = desk.records.iter().flat_map(|r| r.notes()).collect();
    assert_eq!(notes, ["absent", "there", "absent"]);
}

#[test]
fn a_steady_pass_needs_one_step_less_for_what_a_watch_knows() {
    let mut desk = Desk::new();
    desk.policy("widget", policy(widget));
    desk.feed(bound(bindings::widgets()));
    desk.create(object(
        "v1",
        "ConfigMap",
        "default",
        "site",
        json!({"data": {"value": "1"}}),
    ));
    desk.create(a_widget("a"));
    desk.patch(&at("ConfigMap", "site"), None, json!({"data": {"value": "2"}}));
    let steps: Vec<u32> = desk.records.iter().map(|r| r.roles[0].steps).collect();
    assert_eq!(steps, [2, 1]);
    let causes = &desk.records[1].causes[..];
    assert!(
        matches!(causes, [Cause::Dependency(Some(object))] if object.name == "site"),
        "{causes:?}"
    );
    assert_eq!(
        desk.store.get(&at("Widget", "a")).expect("there").tree()["status"]["seen"],
        "2"
    );
}

#[test]
fn a_binding_that_comes_back_while_a_pass_is_under_way_runs_no_key_twice() {
    let mut desk = Desk::new();
    desk.policy(
        "asks",
        policy(|cx| {
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    let binding = || widgets("w", [lifecycle("asks")], vec![Grant::Cloud(vec!["vm.*".into()])]);
    desk.feed(bound(binding()));
    desk.create(a_widget("a"));
    desk.feed(Input::Unbound("w".into()));
    desk.feed(bound(binding()));
    assert_eq!(desk.machine.passes_in_flight(), 1);
    desk.release(|_| true);
    assert_eq!(desk.machine.passes_in_flight(), 1, "now it is its turn");
    desk.release(|_| true);
    assert_eq!(desk.records.len(), 2);
}

#[test]
fn of_an_object_that_is_gone_nothing_is_remembered_once_its_pass_has_ended() {
    let mut desk = Desk::new();
    desk.policy(
        "asks",
        policy(|cx| {
            let _ = cx.cloud("vm.get", json!({"id": "vm-1"}))?;
            Ok(SETTLED)
        }),
    );
    desk.hold = Box::new(|call| matches!(call, Call::Cloud(_) | Call::Commit(_)));
    desk.feed(bound(widgets(
        "w",
        [lifecycle("asks")],
        vec![Grant::Cloud(vec!["vm.*".into()])],
    )));
    desk.create(a_widget("a"));
    desk.delete(&at("Widget", "a"));
    assert!(
        desk.forgotten.is_empty() && desk.records.is_empty(),
        "its pass is under way"
    );
    desk.release(|_| true);
    assert_eq!(desk.records.len(), 1);
    assert_eq!(desk.forgotten, [desk.records[0].key.clone()]);
}

#[test]
fn latest_reads_through_to_the_api_server() {
    let mut desk = Desk::new();
    desk.policy(
        "fresh",
        policy(|cx| {
            let object = polity_core::contract::ObjectRef {
                cluster: None,
                kind: kind("v1", "ConfigMap").kind(),
                namespace: Some("default".into()),
                name: "site".into(),
            };
            let query = ObjectQuery {
                object,
                projection: vec!["data.value".into()],
                latest: true,
            };
            let seen = cx.ask(Question::Object(query))?.unwrap_or_default();
            cx.object["status"]["seen"] = seen["data"]["value"].clone();
            Ok(SETTLED)
        }),
    );
    desk.create(object(
        "v1",
        "ConfigMap",
        "default",
        "site",
        json!({"data": {"value": "1"}}),
    ));
    desk.feed(bound(widgets(
        "w",
        [lifecycle("fresh")],
        vec![Grant::Ask(kind("v1", "ConfigMap"))],
    )));
    desk.create(a_widget("a"));
    assert_eq!(
        desk.store.get(&at("Widget", "a")).expect("there").tree()["status"]["seen"],
        "1"
    );
}

#[test]
fn a_watch_that_no_conclusion_rests_on_closes_after_ten_minutes() {
    let mut desk = Desk::new();
    desk.policy(
        "looks-once",
        policy(|cx| {
            if cx.object["status"]["looked"].is_null() {
                let _ = cx.object("v1", "ConfigMap", "default", "site")?;
                cx.object["status"]["looked"] = json!(true);
            }
            Ok(Next::After(60_000))
        }),
    );
    let grants = vec![Grant::Ask(kind("v1", "ConfigMap"))];
    desk.feed(bound(widgets("w", [lifecycle("looks-once")], grants)));
    desk.create(a_widget("a"));
    let watched = |desk: &Desk| desk.watches().iter().any(|scope| scope.kind.kind == "ConfigMap");
    assert!(watched(&desk));
    desk.sleep(600_000);
    assert!(watched(&desk));
    desk.sleep(240_000);
    assert!(!watched(&desk));
}

#[test]
fn a_discarded_pass_waits_for_its_next_try_and_loses_no_wake() {
    let mut desk = Desk::new();
    desk.policy("widget", policy(widget));
    desk.feed(bound(bindings::widgets()));
    desk.create(object(
        "v1",
        "ConfigMap",
        "default",
        "site",
        json!({"data": {"value": "1"}}),
    ));
    desk.create(a_widget("a"));
    desk.hold = Box::new(|call| matches!(call, Call::Write(Write::Patch { .. })));
    desk.patch(&at("ConfigMap", "site"), None, json!({"data": {"value": "2"}}));
    desk.blind = true;
    desk.patch(
        &at("Widget", "a"),
        Some("status"),
        json!({"status": {"seen": "x"}}),
    );
    desk.hold = Box::new(|_| false);
    desk.release(|_| true);
    assert!(matches!(
        desk.records.last().map(|r| &r.outcome),
        Some(Outcome::Discarded(_))
    ));
    assert_eq!(desk.records.len(), 2, "not again at once");
    desk.sleep(1_000);
    assert_eq!(desk.records.len(), 3);
    assert_eq!(
        desk.store.get(&at("Widget", "a")).expect("there").tree()["status"]["seen"],
        "2"
    );
}

#[test]
fn a_quarantine_is_said_although_somebody_else_writes_at_the_same_time() {
    let mut desk = Desk::new();
    desk.policy("broken", |_| Stepped {
        outcome: Err(Fault::new(FaultKind::Trap, "a panic")),
        fuel: 1,
    });
    desk.hold = Box::new(|call| matches!(call, Call::Write(Write::Patch { .. })));
    let policy = LoadedPolicy {
        manifest: bindings::native_machine().manifest,
        ..lifecycle("broken")
    };
    desk.feed(bound(widgets("w", [policy], vec![])));
    desk.create(a_widget("a"));
    assert!(desk.records.is_empty(), "the pass ends when its fault is written");
    desk.patch(
        &at("Widget", "a"),
        Some("status"),
        json!({"status": {"seen": "x"}}),
    );
    desk.release(|_| true);
    desk.release(|_| true);
    let widget = desk
        .store
        .get(&at("Widget", "a"))
        .expect("it stands")
        .tree()
        .clone();
    assert_eq!(widget["status"]["seen"], "x");
    assert_eq!(
        widget["status"]["conditions"][0]["type"],
        "polity.dev/Quarantined"
    );
    assert_eq!(desk.records.len(), 1);
    assert_eq!(desk.records[0].outcome, Outcome::Faulted);
}
