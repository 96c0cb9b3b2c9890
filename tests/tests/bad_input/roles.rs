//! Identity and retry policies that break their contract: no object is let through, and none waits for ever
//! or not at all.

use std::time::Duration;

use polity_core::contract::{Cause, Code, Failure, Next, RetryClass, Role, Wait};
use polity_core::controller::Input;
use polity_core::fault::FaultKind;
use polity_core::merge::Part;
use polity_core::record::{Outcome, PassRecord, WritePurpose};
use polity_core::retry::default_wait;
use polity_core::time::millis;
use polity_tests::host_fixture::{HostFixture, condition_of, machine, machines, reference, thing, things};
use polity_tests::simulation::bindings::{MACHINES, WIDGETS, binding, manifest, native};
use polity_tests::simulation::core_harness::CoreHarness;
use polity_tests::simulation::native::{failed, step};
use serde_json::{Value, json};

use super::wishes::namespace;

const DAY: u64 = 24 * 3_600_000;

/// A binding of the Things of one namespace, which fail, and wait as a hostile policy says.
fn waiting(mischief: &str) -> Value {
    let mut binding = things();
    binding["metadata"]["name"] = mischief.into();
    let spec = &mut binding["spec"];
    spec["governs"]["namespace"] = mischief.into();
    spec["policies"]["lifecycle"]["configuration"] = json!({"mischief": "fail"});
    spec["policies"]["retry"] =
        json!({"file": "hostile-retry.wasm", "configuration": {"mischief": mischief}});
    binding
}

/// A Thing in the namespace of its name.
fn at_home(name: &str) -> Value {
    let mut thing = thing(name, "fail");
    thing["metadata"]["namespace"] = name.into();
    thing
}

async fn fails(fixture: &HostFixture, mischief: &str) -> PassRecord {
    namespace(fixture, mischief).await;
    fixture.apply(&at_home(mischief)).await;
    let pass = fixture.until_passed(mischief, 0, &Outcome::Published).await;
    let retry = matches!(
        &pass.next,
        Some(Next::Retry {
            class: RetryClass::Short,
            failure: Some(_)
        })
    );
    assert!(retry, "{:?}", pass.next);
    pass
}

/// What the retry policy was asked when a pass ended, and the wait without any policy.
fn without_a_policy(pass: &PassRecord) -> Option<Duration> {
    pass.retry.as_ref().map(|retry| default_wait(&retry.request))
}

#[tokio::test(start_paused = true)]
async fn whatever_a_retry_policy_says_is_held_within_the_limits_of_the_binding() {
    let cases = [
        ("zero", 0, 100, "said 0 ms; spec.limits.shortestWait is 100 ms"),
        (
            "century",
            3_153_600_000_000,
            DAY,
            "said 3153600000000 ms; spec.limits.longestWait is 86400000 ms",
        ),
        (
            "end",
            u64::MAX >> 1,
            DAY,
            "said 9223372036854775807 ms; spec.limits.longestWait is 86400000 ms",
        ),
    ];
    let fixture = HostFixture::with(cases.iter().map(|(mischief, ..)| waiting(mischief)).collect()).await;
    for (mischief, said, wait, words) in cases {
        let pass = fails(&fixture, mischief).await;
        assert_eq!(
            pass.retry.and_then(|retry| retry.answer),
            Some(Wait::After(said)),
            "{mischief}"
        );
        assert_eq!(pass.wait, Some(Duration::from_millis(wait)), "{mischief}");
        let message = fixture.until_said(mischief, "WaitClamped", "True", words).await;
        assert!(
            message.starts_with(&format!("on {mischief}/{mischief}: ")),
            "{message}"
        );
        fixture.until_said(mischief, "Healthy", "True", "").await;
    }
    // At once and at once again is as much as any key may pass: a burst of 20, and one each second.
    let before = fixture.host.passes_of("zero").len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let after = fixture.host.passes_of("zero").len();
    assert!(after - before <= 20 + 61, "{before}, {after}");
    let slowed = fixture
        .get(&reference(
            polity_tests::host_fixture::THINGS,
            "Thing",
            Some("zero"),
            "zero",
        ))
        .await;
    assert!(condition_of(&slowed, "polity.dev/Slowed").is_some(), "{slowed}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_policy_that_says_a_negative_number_is_as_none() {
    let fixture = HostFixture::with(vec![waiting("negative"), waiting("behave")]).await;
    let pass = fails(&fixture, "negative").await;
    assert_eq!(pass.wait, without_a_policy(&pass));
    assert!(
        (750..=1_000).contains(&pass.wait.map_or(0, millis)),
        "{:?}",
        pass.wait
    );
    fixture
        .until_said("negative", "WaitClamped", "True", "said -5000 ms; the host waits")
        .await;
    // As without one, the waits grow.
    fixture
        .until("waits that grow", async || {
            let passes = fixture.host.passes_of("negative");
            passes
                .iter()
                .any(|pass| pass.wait > Some(Duration::from_mins(1)))
                .then_some(())
        })
        .await;

    let good = fails(&fixture, "behave").await;
    assert_eq!(good.wait, Some(Duration::from_secs(7)));
    fixture
        .until_said(
            "behave",
            "WaitClamped",
            "False",
            "of the retry policy was within the limits",
        )
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_policy_that_faults_is_as_none() {
    let cases = [
        ("panic", FaultKind::Trap, "out of time"),
        ("loop", FaultKind::OutOfFuel, ""),
        ("allocate", FaultKind::OutOfMemory, ""),
    ];
    let fixture = HostFixture::with(cases.iter().map(|(mischief, ..)| waiting(mischief)).collect()).await;
    for (mischief, kind, words) in cases {
        let pass = fails(&fixture, mischief).await;
        assert_eq!(pass.wait, without_a_policy(&pass), "{mischief}");
        let fault = pass.retry.and_then(|retry| retry.fault).expect("a fault");
        assert_eq!(fault.kind, kind, "{fault}");
        let said = format!("on {mischief}/{mischief}: {kind:?}");
        let message = fixture.until_said(mischief, "Healthy", "False", &said).await;
        assert!(message.contains(words), "{message}");
        // The object itself did nothing wrong.
        let object = fixture
            .get(&reference(
                polity_tests::host_fixture::THINGS,
                "Thing",
                Some(mischief),
                mischief,
            ))
            .await;
        assert_eq!(condition_of(&object, "polity.dev/Quarantined"), None, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_wait_are_the_bindings() {
    let mut bound = waiting("behave");
    bound["spec"]["limits"]["longestWait"] = json!(5_000);
    let mut wrong = waiting("zero");
    wrong["spec"]["limits"] = json!({"shortestWait": 5_000, "longestWait": 1_000});
    let mut never = waiting("century");
    never["spec"]["limits"]["longestWait"] = json!(0);
    let fixture = HostFixture::with(vec![bound.clone()]).await;
    fixture.open_bindings().await;
    assert_eq!(fails(&fixture, "behave").await.wait, Some(Duration::from_secs(5)));
    fixture
        .until_said(
            "behave",
            "WaitClamped",
            "True",
            "spec.limits.longestWait is 5000 ms",
        )
        .await;
    // The next wait begins under other limits, and what is said of it is said anew.
    bound["spec"]["limits"] = json!({"shortestWait": 9_000, "longestWait": 60_000});
    fixture.apply(&bound).await;
    fixture
        .until_said(
            "behave",
            "WaitClamped",
            "True",
            "spec.limits.shortestWait is 9000 ms",
        )
        .await;

    fixture.apply(&wrong).await;
    fixture
        .until_said(
            "zero",
            "Loaded",
            "False",
            "spec.limits.shortestWait: 5000 ms is more than",
        )
        .await;
    fixture.apply(&never).await;
    fixture
        .until_said("century", "Loaded", "False", "spec.limits.longestWait: 0 would")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_a_century_is_freed_by_another_policy() {
    let fixture = HostFixture::with(vec![waiting("century")]).await;
    let first = fails(&fixture, "century").await;
    let mut mended = waiting("century");
    mended["spec"]["policies"]["retry"]["configuration"]["mischief"] = "behave".into();
    fixture.apply(&mended).await;
    let second = fixture.until_passed("century", 1, &Outcome::Published).await;
    assert_eq!(second.causes, [Cause::Due]);
    assert!(second.started.boot - first.ended.boot < Duration::from_secs(10));
    assert_eq!(second.wait, Some(Duration::from_secs(7)));
    fixture.until_said("century", "WaitClamped", "False", "").await;
    // And by none at all.
    fixture.apply(&waiting("century")).await;
    let far = fixture.site.clock.now().boot + Duration::from_hours(12);
    fixture
        .until("a long wait", async || {
            let view = fixture.host.handle.view().await?;
            view.keys.iter().any(|(_, key)| key.due > Some(far)).then_some(())
        })
        .await;
    let mut alone = waiting("century");
    alone["spec"]["policies"]["retry"] = Value::Null;
    let passes = fixture.host.passes_of("century").len();
    fixture.apply(&alone).await;
    let last = fixture.until_passed("century", passes, &Outcome::Published).await;
    assert!(last.started.boot < far);
    assert_eq!(last.retry, None);
}

/// Whatever a policy says of time, the host goes on. In the harness of core, where an overflow is a panic of the test.
#[test]
fn a_wait_past_the_end_of_time_harms_nobody() {
    let far = |wish| Failure {
        retry_after: Some(wish),
        ..Failure::new(Code::Unavailable, "later")
    };
    for next in [
        Next::After(u64::MAX),
        Next::Settled(Some(u64::MAX)),
        failed(far(u64::MAX)),
    ] {
        let mut harness = CoreHarness::new();
        let said = next.clone();
        harness.policy("far", move |pass| {
            let next = said.clone();
            step(pass, move |_| Ok(next))
        });
        let policy = native(manifest("far", Role::Lifecycle, Vec::new(), &["status"]));
        let widgets = binding("w", (WIDGETS, "Widget"), [policy], Vec::new(), Default::default());
        harness.feed(Input::Bound(Box::new(widgets)));
        harness.create(json!({
            "apiVersion": WIDGETS, "kind": "Widget", "metadata": {"namespace": "default", "name": "a"},
        }));
        harness.sleep(DAY / 24);
        assert_eq!(harness.records.len(), 1, "{next:?}");
        let ever = Duration::from_millis(u64::MAX);
        assert_eq!(harness.records[0].wait, Some(ever), "{next:?}");
        harness.patch(
            &("Widget".into(), "default".into(), "a".into()),
            None,
            json!({"metadata": {"annotations": {"request.polity.dev/look": "1"}}}),
        );
        assert_eq!(harness.records.len(), 2, "{next:?}: a request ends it");
    }
}

/// Machines of `capv-machine`, guarded by an identity policy that misbehaves with some of them.
fn guarded() -> Value {
    let mut binding = machines();
    let spec = &mut binding["spec"];
    spec["policies"]["identity"] = json!({"file": "hostile-identity.wasm"});
    let host = json!({"account": "111111111111", "arn": "arn:aws:iam::111111111111:role/controller"});
    spec["cloud"]["configuration"] = json!({"identity": {"host": host}});
    spec["grants"] = json!([{"cloud": ["vm.*", "task.get"]}, {"credential": true}]);
    // Enough for a good one, and a loop ends soon.
    spec["limits"] = json!({"stepFuel": 20_000_000});
    binding
}

/// A Machine that the identity policy judges in this way.
fn judged(name: &str, mischief: &str) -> Value {
    let mut machine = machine("default", name);
    machine["metadata"]["annotations"] = json!({"identity": mischief});
    machine
}

fn of_machine(name: &str) -> polity_core::contract::ObjectRef {
    reference(MACHINES, "Machine", Some("default"), name)
}

fn fault(pass: &PassRecord) -> Option<FaultKind> {
    pass.roles.iter().find_map(|role| Some(role.fault.as_ref()?.kind))
}

/// Whether nothing came of a pass but its fault.
fn let_nothing_through(pass: &PassRecord) {
    assert_eq!(pass.outcome, Outcome::Faulted);
    assert_eq!(pass.roles.len(), 1, "the lifecycle was not asked");
    assert_eq!(pass.roles[0].role, Role::Identity);
    let says_so = WritePurpose::Publish(Part::Status);
    assert!(
        pass.writes.iter().all(|write| write.purpose == says_so),
        "{:?}",
        pass.writes
    );
}

#[tokio::test(start_paused = true)]
async fn an_identity_policy_that_faults_lets_nothing_through() {
    let cases = [
        ("panic", FaultKind::Trap),
        ("loop", FaultKind::OutOfFuel),
        ("stall", FaultKind::Stalled),
        ("garbage", FaultKind::BadOutput),
        ("ask-for-ever", FaultKind::TooLong),
        ("invent", FaultKind::BadOutput),
        ("release", FaultKind::BadOutput),
    ];
    let fixture = HostFixture::with(vec![guarded()]).await;
    for (mischief, _) in cases {
        fixture.apply(&judged(mischief, mischief)).await;
    }
    fixture.apply(&judged("good", "behave")).await;
    for (mischief, kind) in cases {
        let pass = fixture
            .until(&format!("a second fault of {mischief}"), async || {
                fixture.host.passes_of(mischief).into_iter().nth(1)
            })
            .await;
        assert_eq!(fault(&pass), Some(kind), "{mischief}: {:?}", pass.roles[0].fault);
        let quarantined = fixture
            .until(&format!("the condition of {mischief}"), async || {
                let object = fixture.get(&of_machine(mischief)).await;
                condition_of(&object, "polity.dev/Quarantined").cloned()
            })
            .await;
        let message = quarantined["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(&format!("{kind:?}: ")), "{message}");
        let events = fixture.events_of(mischief).await;
        assert!(
            events
                .iter()
                .any(|(reason, said)| reason == "PolicyFault" && said == message),
            "{events:?}"
        );
        let object = fixture.get(&of_machine(mischief)).await;
        assert_eq!(object["metadata"]["finalizers"], Value::Null);
        assert_eq!(object["status"]["phase"], Value::Null);
    }
    fixture
        .until_said("machines", "Healthy", "False", "default/")
        .await;
    // The same policy lets through whom it judges well, and nobody else has a VM.
    fixture
        .until("the good one runs", async || {
            (fixture.get(&of_machine("good")).await["status"]["phase"] == "Running").then_some(())
        })
        .await;
    for (mischief, _) in cases {
        fixture
            .host
            .passes_of(mischief)
            .iter()
            .for_each(let_nothing_through);
    }
    let vms = fixture.site.vms();
    assert_eq!(vms.len(), 1, "{vms:?}");
    assert_eq!(vms[0].account.as_deref(), Some("111111111111"));

    let mut mended = judged("panic", "behave");
    mended["metadata"]["annotations"]["request.polity.dev/look"] = "1".into();
    fixture.apply(&mended).await;
    fixture
        .until("the mended one runs", async || {
            let object = fixture.get(&of_machine("panic")).await;
            let clear = condition_of(&object, "polity.dev/Quarantined").is_none();
            (clear && object["status"]["phase"] == "Running").then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ran_is_left_as_it_is_while_its_identity_policy_faults() {
    let fixture = HostFixture::with(vec![guarded()]).await;
    fixture.apply(&judged("vm", "behave")).await;
    fixture.until_machines_run().await;
    let vms = fixture.site.vms();
    let runs = fixture.get(&of_machine("vm")).await;
    let mut bad = judged("vm", "panic");
    bad["spec"]["numCPUs"] = 8.into();
    let passes = fixture.host.passes_of("vm").len();
    fixture.apply(&bad).await;
    fixture.delete(&of_machine("vm")).await;
    fixture
        .until("faults", async || {
            (fixture.host.passes_of("vm").len() > passes + 4).then_some(())
        })
        .await;
    fixture.host.passes_of("vm")[passes..]
        .iter()
        .for_each(let_nothing_through);
    let held = fixture.get(&of_machine("vm")).await;
    assert_eq!(held["metadata"]["finalizers"], runs["metadata"]["finalizers"]);
    assert_eq!(fixture.site.vms(), vms);

    bad["metadata"]["annotations"] = json!({"identity": "behave", "request.polity.dev/look": "1"});
    fixture.apply(&bad).await;
    fixture
        .until("it is gone", async || {
            fixture.get(&of_machine("vm")).await.is_null().then_some(())
        })
        .await;
    assert!(fixture.site.vms().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_pass_is_granted_to_nobody() {
    let fixture = HostFixture::with(vec![guarded()]).await;
    fixture.apply(&judged("rich", "behave")).await;
    fixture.until_machines_run().await;
    let pass = fixture.host.passes_of("rich").remove(0);
    let credential = super::wishes::answers(&pass).remove(0).expect("a session");
    let handle = credential["handle"].as_str().expect("a handle");

    let mut thief = judged("thief", "steal");
    thief["metadata"]["annotations"]["handle"] = handle.into();
    fixture.apply(&thief).await;
    let pass = fixture.until_passed("thief", 0, &Outcome::Faulted).await;
    let_nothing_through(&pass);
    let message = pass.roles[0].fault.as_ref().map(|fault| fault.message.clone());
    assert_eq!(
        message.as_deref(),
        Some("the policy granted a handle that no ask of this pass returned")
    );
    assert_eq!(fixture.site.vms().len(), 1);
}
