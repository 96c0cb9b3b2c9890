//! Answers of a retry policy: the limits of its binding hold, and no object waits for ever or not at all.

use polity_core::fault::FaultKind;
use polity_core::record::Outcome;
use polity_core::time::millis;
use polity_tests::host_fixture::condition_of;
use serde_json::{Value, json};

use crate::hostile::row::Wait;
use crate::hostile::stage::{PUPPETS, Stage, binding};

const DAY: u64 = 24 * 3_600_000;

pub(crate) fn rows() -> Vec<Wait> {
    let wait = |name, says: Value, waits| Wait {
        name,
        says,
        waits,
        fault: None,
    };
    let faults = |name, says: Value, kind| Wait {
        name,
        says,
        waits: 750..=1_000,
        fault: Some(kind),
    };
    vec![
        wait("at-once", json!(0), 100..=100),
        wait("almost-at-once", json!(1), 100..=100),
        wait("as-it-should", json!(5_000), 5_000..=5_000),
        wait("a-century", json!(3_153_600_000_000_u64), DAY..=DAY),
        wait("half-of-numbers", json!(u64::MAX >> 1), DAY..=DAY),
        // Negative where they were made: as without a policy.
        wait("all-numbers", json!(u64::MAX), 750..=1_000),
        wait("less-than-nothing", json!(1_u64 << 63), 750..=1_000),
        faults("a-panic", json!({"$do": "panic"}), FaultKind::Trap),
        faults("a-loop", json!({"$do": "loop"}), FaultKind::OutOfFuel),
        faults("a-recursion", json!({"$do": "recurse"}), FaultKind::Trap),
        faults(
            "an-allocation",
            json!({"$do": "allocate"}),
            FaultKind::OutOfMemory,
        ),
        faults("no-number", json!("soon"), FaultKind::Trap),
    ]
}

/// A binding of the Puppets of one namespace, which fail and wait as its retry policy says.
fn waiting(row: &Wait) -> Value {
    let fails = json!({"Concluded": {"next": {"Retry": {"class": "Short",
        "failure": {"code": "Unavailable", "message": "down", "effect": "None", "retry_after": null}}}}});
    let policies = json!({
        "lifecycle": {"file": "puppets.wasm", "configuration": {"answer": fails}},
        "retry": {"file": "retry.wasm", "configuration": {"answer": row.says}},
    });
    let governs = json!({"apiVersion": PUPPETS, "kind": "Waiter", "namespace": row.name});
    binding(row.name, governs, policies, json!([]))
}

#[tokio::test(start_paused = true)]
async fn whatever_a_retry_policy_says_its_object_waits_within_bounds() {
    let stage = Stage::with(rows().iter().map(waiting).collect()).await;
    let fixture = &stage.fixture;
    fixture.apply(&crate::hostile::stage::crd("Waiter")).await;
    for row in rows() {
        fixture
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": row.name}}))
            .await;
        let object = json!({"apiVersion": PUPPETS, "kind": "Waiter",
            "metadata": {"namespace": row.name, "name": row.name}});
        fixture.apply(&object).await;
    }
    stage.play().await;
    for row in rows() {
        let passes = stage.passes(row.name);
        let first = passes
            .first()
            .unwrap_or_else(|| panic!("no pass of {}", row.name));
        assert_eq!(first.outcome, Outcome::Published, "{}", row.name);
        assert!(
            first.wait.is_some_and(|wait| row.waits.contains(&millis(wait))),
            "{}: {:?}",
            row.name,
            first.wait
        );
        let fault = first.retry.as_ref().and_then(|retry| retry.fault.as_ref());
        assert_eq!(
            fault.map(|fault| fault.kind),
            row.fault,
            "{}: {fault:?}",
            row.name
        );
        // A burst of 20, and one each second.
        assert!(passes.len() <= 20 + 62, "{}: {} passes", row.name, passes.len());
        let named = polity_tests::host_fixture::reference(PUPPETS, "Waiter", Some(row.name), row.name);
        let object = fixture.get(&named).await;
        assert_eq!(
            condition_of(&object, "polity.dev/Quarantined"),
            None,
            "{}",
            row.name
        );
    }
    let without = crate::hostile::undisturbed().await;
    assert_eq!(stage.passes_of_neighbours(), without);
}
