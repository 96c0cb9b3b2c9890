//! A policy that breaks its contract for one object: only that object waits.

use std::time::Duration;

use polity_core::fault::FaultKind;
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_fixture::{
    HostFixture, THINGS, condition_of, machine, machines, reference, thing, things,
};
use serde_json::{Value, json};

const QUARANTINED: &str = "polity.dev/Quarantined";

/// What the policy does, and what that is called.
const FAULTS: [(&str, FaultKind); 9] = [
    ("loop", FaultKind::OutOfFuel),
    ("recurse", FaultKind::Trap),
    ("allocate", FaultKind::OutOfMemory),
    ("garbage", FaultKind::BadOutput),
    ("huge", FaultKind::BadOutput),
    ("panic", FaultKind::Trap),
    ("ask-for-ever", FaultKind::TooLong),
    ("drop-act", FaultKind::JournalMismatch),
    ("stall", FaultKind::Stalled),
];
/// Faults of each object that the test waits for: enough to see that the waits grow.
const TIMES: usize = 4;

fn fault(pass: &PassRecord) -> Option<FaultKind> {
    pass.roles.iter().find_map(|role| Some(role.fault.as_ref()?.kind))
}

async fn get(fixture: &HostFixture, name: &str) -> Value {
    fixture
        .get(&reference(THINGS, "Thing", Some("default"), name))
        .await
}

/// Asks for a pass, as a person does with an annotation.
async fn ask_for_a_look(fixture: &HostFixture, thing: &Value, nonce: &str) {
    let mut thing = thing.clone();
    thing["metadata"]["annotations"]["request.polity.dev/look"] = json!(nonce);
    fixture.apply(&thing).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_a_policy_does_only_the_object_waits_with_which_it_did() {
    let fixture = HostFixture::with(vec![things(), machines()]).await;
    for (mischief, _) in FAULTS {
        fixture.apply(&thing(mischief, mischief)).await;
    }
    fixture.apply(&thing("good", "behave")).await;
    fixture.apply(&machine("default", "vm")).await;

    for (mischief, kind) in FAULTS {
        let passes = fixture
            .until(&format!("{TIMES} faults of {mischief}"), async || {
                Some(fixture.host.passes_of(mischief)).filter(|passes| passes.len() >= TIMES)
            })
            .await;
        for pass in &passes {
            assert_eq!(pass.outcome, Outcome::Faulted, "{mischief}");
            assert_eq!(fault(pass), Some(kind), "{mischief}: {:?}", pass.roles[0].fault);
        }
        // Each wait is about twice the one before: the seed takes at most a quarter off.
        let waits: Vec<Duration> = passes.iter().filter_map(|pass| pass.wait).collect();
        assert!(
            waits.is_sorted() && waits[TIMES - 1] > 4 * waits[0],
            "{mischief}: {waits:?}"
        );

        let quarantined = fixture
            .until(&format!("the quarantine of {mischief}"), async || {
                condition_of(&get(&fixture, mischief).await, QUARANTINED).cloned()
            })
            .await;
        let message = quarantined["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(&format!("{kind:?}: ")),
            "{mischief}: {message}"
        );
        let events = fixture.events_of(mischief).await;
        let told = |(reason, said): &(String, String)| reason == "PolicyFault" && said == message;
        assert!(events.iter().any(told), "{mischief}: {events:?}");
    }
    let healthy = fixture.until_said("things", "Healthy", "False", "default/").await;
    assert!(
        FAULTS.iter().any(|(mischief, _)| healthy.contains(mischief)),
        "{healthy}"
    );

    // The same policy goes on with its other object, at once, and another policy with its own.
    let before = fixture.host.passes_of("good");
    assert!(
        before.iter().all(|pass| pass.outcome == Outcome::Published),
        "{before:#?}"
    );
    ask_for_a_look(&fixture, &thing("good", "behave"), "1").await;
    fixture
        .until_passed("good", before.len(), &Outcome::Published)
        .await;
    fixture.until_machines_run().await;
    fixture.until_said("machines", "Healthy", "True", "").await;

    // When the cause is removed, the object leaves quarantine.
    ask_for_a_look(&fixture, &thing("panic", "behave"), "1").await;
    fixture.until_passed("panic", 0, &Outcome::Published).await;
    let mended = get(&fixture, "panic").await;
    assert_eq!(condition_of(&mended, QUARANTINED), None, "{mended}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_megabytes_are_no_answer_even_where_the_policy_has_the_memory_for_them() {
    let mut binding = things();
    binding["spec"]["limits"] =
        json!({"memory": 256 << 20, "stepFuel": 5_000_000_000_u64, "stepWall": 60_000});
    let fixture = HostFixture::with(vec![binding]).await;
    fixture.apply(&thing("flood", "flood")).await;
    fixture.apply(&thing("good", "behave")).await;
    let pass = fixture.until_passed("flood", 0, &Outcome::Faulted).await;
    assert_eq!(
        fault(&pass),
        Some(FaultKind::BadOutput),
        "{:?}",
        pass.roles[0].fault
    );
    fixture.until_passed("good", 0, &Outcome::Published).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_granted_is_refused_recorded_and_said_on_the_binding() {
    let fixture = HostFixture::with(vec![things()]).await;
    fixture.apply(&thing("curious", "ask-ungranted")).await;
    let pass = fixture.until_passed("curious", 0, &Outcome::Published).await;
    assert_eq!(pass.notes().collect::<Vec<_>>(), ["refused"]);
    let refusal = pass.roles[0].journal[0].answer.as_ref().expect_err("a refusal");
    assert_eq!(refusal.message, "not granted: cloud operation vm.power");
    fixture
        .until_said("things", "Ungranted", "True", "cloud operation vm.power")
        .await;
    fixture.until_said("things", "Healthy", "True", "").await;
}
