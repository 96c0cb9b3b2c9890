//! What the curve is for: many objects that fail together, for long.

use std::collections::BTreeSet;

use polity_sdk::contract::RetryRequest;
use polity_sdk::test::retry_request;
use polity_sdk::{Code, Failure, RetryClass, Wait, step};
use serde_json::json;

fn wait(code: Code, attempt: u32, seed: u64) -> u64 {
    let request = RetryRequest {
        failure: Some(Failure::new(code, "said the cloud")),
        attempt,
        seed,
        ..retry_request(RetryClass::Short)
    };
    match step::retry(request, backoff_retry::decide) {
        Wait::After(wait) => wait,
        Wait::OnChange(_) => panic!("it waits for a time"),
    }
}

/// Numbers without a pattern, as the host derives them from uid and attempt.
fn seeds() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1u64), |seed| {
        Some(
            seed.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        )
    })
    .map(|seed| seed ^ (seed >> 33))
}

#[test]
fn objects_that_fail_together_do_not_come_back_together() {
    let waits: Vec<u64> = seeds()
        .take(1_000)
        .map(|seed| wait(Code::Unavailable, 6, seed))
        .collect();
    assert!(waits.iter().all(|wait| (100..=64_000).contains(wait)));
    let seconds: BTreeSet<u64> = waits.iter().map(|wait| wait / 1_000).collect();
    assert!(seconds.len() > 60, "only {} different seconds", seconds.len());
    let mean = waits.iter().sum::<u64>() / 1_000;
    assert!(
        (29_000..=35_000).contains(&mean),
        "full jitter means half of the longest wait, not {mean}"
    );
}

#[test]
fn the_same_seed_waits_as_long() {
    assert_eq!(wait(Code::Internal, 3, 4_711), wait(Code::Internal, 3, 4_711));
}

#[test]
fn a_long_outage_is_asked_after_in_short_rows_with_rests_between() {
    let rests = (0..130).filter(|attempt| wait(Code::Unavailable, *attempt, 0) >= 1_800_000);
    assert_eq!(
        rests.collect::<Vec<_>>(),
        (1..=10).map(|row| row * 13 - 1).collect::<Vec<_>>()
    );
}

#[test]
fn the_hundredth_try_neither_overflows_nor_is_endless() {
    for attempt in [63, 64, 65, 1_000, u32::MAX] {
        assert!(wait(Code::Unavailable, attempt, u64::MAX) <= 1_801_000 + 300_000);
    }
}

/// A curve for a misspelt code would never be used. So the schema, which the host checks, names all codes.
#[test]
fn the_schema_names_every_code() {
    let manifest = backoff_retry::manifest().into_contract();
    let schema = manifest.config_schema;
    let known = Code::ALL.map(Code::as_str);
    assert_eq!(
        schema["properties"]["codes"]["propertyNames"]["enum"],
        json!(known)
    );
}
