//! Tests of the wait before a retry.

use super::*;
use crate::contract::Origin;

/// A key that has to wait for 10 s by its retry policy and has waited for 4 s.
fn waiting() -> Harness {
    let mut harness = Harness::under(retrying(), vec![machine("m", 1, json!({}))]);
    harness.step(conclusion(json!(null), retry(), vec![]));
    let (id, ..) = harness.asked();
    harness.decides(id, Wait::After(10_000));
    harness.pass(4_000);
    assert_eq!(harness.wait("m"), Some(6_000));
    harness
}

#[test]
fn a_changed_retry_policy_says_anew_how_long_a_key_waits_that_waits_already() {
    let mut harness = waiting();
    harness.swaps_retry("second");
    let (second, policy, request) = harness.asked();
    assert_eq!(
        (policy, &*request.config),
        (PolicyId("second".into()), "\"second\"")
    );
    harness.swaps_retry("third");
    let (third, ..) = harness.asked();
    harness.decides(second, Wait::After(1_000_000));
    assert_eq!(harness.wait("m"), Some(6_000), "it is not the policy any more");
    harness.decides(third, Wait::After(30_000));
    assert_eq!(harness.wait("m"), Some(26_000), "what it has waited counts");
    harness.swaps_retry("fourth");
    let (fourth, ..) = harness.asked();
    harness.decides(fourth, Wait::OnChange(Some(40_000)));
    assert_eq!(harness.wait("m"), Some(36_000), "nothing has changed meanwhile");
    harness.swaps_retry("third");
    let (third, ..) = harness.asked();
    harness.decides(third, Wait::After(30_000));
    harness.swaps_retry("third");
    assert!(
        !harness
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. })),
        "it is the same"
    );
    let without = fixture_binding(&[Role::Lifecycle]);
    harness.feed(Input::Bound(Box::new(without)));
    harness.pass(1);
    assert_eq!(harness.steps(), 1, "the ladder's first rung is over");
}

#[test]
fn what_a_retry_policy_says_of_a_wait_that_has_ended_is_dropped() {
    let mut harness = waiting();
    harness.swaps_retry("second");
    let (late, ..) = harness.asked();
    harness.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    harness.pass(60_000);
    harness.decides(late, Wait::After(1));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![]));
    harness.decides(late, Wait::After(1));
    assert_eq!(harness.wait("m"), None);
}

#[test]
fn a_key_whose_turn_is_coming_anyway_is_no_business_of_a_changed_retry_policy() {
    let mut harness = waiting();
    harness.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    let turn = harness.wait("m");
    assert!(turn > Some(50_000), "its bucket is empty: {turn:?}");
    harness.swaps_retry("second");
    assert!(
        !harness
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. }))
    );
    assert_eq!(harness.wait("m"), turn);
}

#[test]
fn a_key_that_waits_for_its_part_of_a_changed_binding_waits_no_longer_than_a_changed_retry_policy_says() {
    for (says, wait) in [(4_500, Some(500)), (60_000, Some(6_000))] {
        let mut harness = waiting();
        let mut binding = retrying();
        for (role, asked) in [(Role::Lifecycle, false), (Role::Retry, true)] {
            let policy = binding.policies.get_mut(&role).expect("a policy");
            policy.id = PolicyId("another".into());
            harness.feed(Input::Bound(Box::new(binding.clone())));
            assert!(
                harness.wait("m").is_some_and(|wait| wait > 500),
                "its part is later"
            );
            let is_asked = |(_, call): &(CallId, Call)| matches!(call, Call::Decide { .. });
            assert_eq!(harness.calls.iter().any(is_asked), asked);
        }
        let (id, ..) = harness.asked();
        let before = harness.wait("m");
        harness.decides(id, Wait::After(says));
        assert_eq!(harness.wait("m"), wait.min(before), "{says}");
    }
}

#[test]
fn a_retry_after_a_time_is_not_ended_early_by_what_the_pass_used() {
    for (wait, steps) in [(Wait::After(50_000), 0), (Wait::OnChange(None), 1)] {
        let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
        let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
        harness.step(conclusion(json!(null), retry(), vec![0]));
        let (id, ..) = harness.asked();
        harness.decides(id, wait);
        let changed = map("one", 3, json!({"data": {"x": "2"}}));
        harness.shown(config_maps(), changed.clone());
        harness.listed(config_maps(), vec![changed]);
        assert_eq!(harness.steps(), steps, "{wait:?}");
    }
}

#[test]
fn a_pass_that_ends_after_its_retry_policy_was_swapped_waits_as_the_new_one_says() {
    let mut harness = Harness::under(retrying(), vec![machine("m", 1, json!({}))]);
    harness.swaps_retry("second");
    harness.step(conclusion(json!(null), retry(), vec![]));
    let (first, policy, _) = harness.asked();
    assert_eq!(policy, PolicyId("retry".into()), "with which it began");
    harness.decides(first, Wait::After(10_000));
    let (second, policy, _) = harness.asked();
    assert_eq!(policy, PolicyId("second".into()));
    harness.decides(second, Wait::After(20_000));
    assert_eq!(harness.wait("m"), Some(20_000));
}

#[test]
fn a_change_that_was_ignored_during_a_wait_counts_at_once_where_any_change_ends_the_new_one() {
    for (wait, steps) in [(Wait::After(200_000), 0), (Wait::OnChange(None), 1)] {
        let mut harness = Harness::under(retrying(), vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
        harness.step(conclusion(json!(null), retry(), vec![0]));
        let (id, ..) = harness.asked();
        harness.decides(id, Wait::After(300_000));
        harness.shown(config_maps(), map("one", 3, json!({"data": {"x": "2"}})));
        harness.pass(100_000);
        assert_eq!(harness.steps(), 0);
        harness.swaps_retry("second");
        let (second, ..) = harness.asked();
        harness.decides(second, wait);
        assert_eq!(harness.steps(), steps, "{wait:?}");
    }
}

#[test]
fn the_retry_policy_says_when_a_quarantine_ends() {
    let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
    let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
    harness.fault();
    let (id, patch) = harness.patch();
    let quarantined = machine("m", 2, json!({"status": patch["status"]}));
    harness.reply(id, Reply::Objects(Ok(vec![quarantined])));
    for (attempt, wait) in [(0, 40_000), (1, 7_000)] {
        let (id, _, request) = harness.asked();
        assert_eq!((request.origin, request.attempt), (Origin::Lifecycle, attempt));
        let operation = request.failure.and_then(|failure| failure.operation);
        assert_eq!(operation.as_deref(), Some("quarantine"));
        harness.decides(id, Wait::After(wait));
        assert_eq!(harness.wait("m"), Some(wait));
        let record = harness.records.last().expect("a record");
        let answer = record.retry.as_ref().and_then(|retry| retry.answer);
        assert_eq!(
            (&record.outcome, answer),
            (&Outcome::Faulted, Some(Wait::After(wait)))
        );
        harness.pass(wait);
        harness.fault();
    }
    let (third, ..) = harness.asked();
    harness.decides(third, Wait::After(60_000));
    harness.swaps_retry("second");
    let (second, ..) = harness.asked();
    harness.decides(second, Wait::After(10_000));
    assert_eq!(harness.wait("m"), Some(10_000));
}

#[test]
fn the_retry_policy_says_when_a_failed_read_is_tried_again() {
    let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
    let machines = vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))];
    let mut harness = Harness::under(binding, machines);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Unavailable, "cut").effect_unknown());
    let (id, ..) = harness.asked();
    harness.decides(id, Wait::After(1_000));
    harness.pass(1_000);
    let mut before = 1_000;
    for (attempt, said, wait) in [
        (0, Wait::After(40_000), 40_000),
        (1, Wait::OnChange(Some(300)), 300),
        (2, Wait::After(1), 100),
    ] {
        let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
        let busy = Failure {
            retry_after: Some(5_000),
            ..Failure::new(Code::Unavailable, "not now")
        };
        harness.reply(id, Reply::Objects(Err(busy)));
        assert_eq!(harness.wait("m"), Some(5_000), "until the policy has answered");
        let (id, _, request) = harness.asked();
        assert_eq!((request.origin, request.attempt), (Origin::Publication, attempt));
        assert_eq!(
            (request.previous_wait, request.retry_after()),
            (Some(before), Some(5_000))
        );
        let operation = request.failure.and_then(|failure| failure.operation);
        assert_eq!(operation.as_deref(), Some("read"));
        harness.decides(id, said);
        assert_eq!(harness.wait("m"), Some(wait), "{said:?}");
        harness.pass(wait);
        before = wait;
    }
}

#[test]
fn what_a_retry_policy_says_of_a_read_that_is_tried_again_already_is_dropped() {
    let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
    let machines = vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))];
    let mut harness = Harness::under(binding, machines);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Unavailable, "cut").effect_unknown());
    let (id, ..) = harness.asked();
    harness.decides(id, Wait::After(1_000));
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.reply(
        id,
        Reply::Objects(Err(Failure::new(Code::Unavailable, "not now"))),
    );
    let (late, ..) = harness.asked();
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.decides(late, Wait::After(600_000));
    assert_eq!(harness.wait("m"), None);
    harness.reply(id, Reply::Objects(Ok(vec![machine("m", 7, json!({}))])));
    assert_eq!(harness.steps(), 1);
}
