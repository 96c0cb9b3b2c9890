//! Tests of the wait before a retry.

use super::*;

/// A key that has to wait for 10 s by its retry policy and has waited for 4 s.
fn waiting() -> Desk {
    let mut desk = Desk::under(retrying(), vec![machine("m", 1, json!({}))]);
    desk.step(conclusion(json!(null), retry(), vec![]));
    let (id, ..) = desk.asked();
    desk.decides(id, Wait::After(10_000));
    desk.pass(4_000);
    assert_eq!(desk.wait("m"), Some(6_000));
    desk
}

#[test]
fn a_changed_retry_policy_says_anew_how_long_a_key_waits_that_waits_already() {
    let mut desk = waiting();
    desk.swaps_retry("second");
    let (second, policy, request) = desk.asked();
    assert_eq!(
        (policy, &*request.config),
        (PolicyId("second".into()), "\"second\"")
    );
    desk.swaps_retry("third");
    let (third, ..) = desk.asked();
    desk.decides(second, Wait::After(1_000_000));
    assert_eq!(desk.wait("m"), Some(6_000), "it is not the policy any more");
    desk.decides(third, Wait::After(30_000));
    assert_eq!(desk.wait("m"), Some(26_000), "what it has waited counts");
    desk.swaps_retry("fourth");
    let (fourth, ..) = desk.asked();
    desk.decides(fourth, Wait::OnChange(Some(40_000)));
    assert_eq!(desk.wait("m"), Some(36_000), "nothing has changed meanwhile");
    desk.swaps_retry("third");
    let (third, ..) = desk.asked();
    desk.decides(third, Wait::After(30_000));
    desk.swaps_retry("third");
    assert!(
        !desk
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. })),
        "it is the same"
    );
    let without = fixture_binding(&[Role::Lifecycle]);
    desk.feed(Input::Bound(Box::new(without)));
    desk.pass(1);
    assert_eq!(desk.steps(), 1, "the ladder's first rung is over");
}

#[test]
fn what_a_retry_policy_says_of_a_wait_that_has_ended_is_dropped() {
    let mut desk = waiting();
    desk.swaps_retry("second");
    let (late, ..) = desk.asked();
    desk.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    desk.pass(60_000);
    desk.decides(late, Wait::After(1));
    desk.step(conclusion(json!(null), Next::Settled(None), vec![]));
    desk.decides(late, Wait::After(1));
    assert_eq!(desk.wait("m"), None);
}

#[test]
fn a_key_whose_turn_is_coming_anyway_is_no_business_of_a_changed_retry_policy() {
    let mut desk = waiting();
    desk.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    let turn = desk.wait("m");
    assert!(turn > Some(50_000), "its bucket is empty: {turn:?}");
    desk.swaps_retry("second");
    assert!(
        !desk
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. }))
    );
    assert_eq!(desk.wait("m"), turn);
}

#[test]
fn a_retry_after_a_time_is_not_ended_early_by_what_the_pass_used() {
    for (wait, steps) in [(Wait::After(50_000), 0), (Wait::OnChange(None), 1)] {
        let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
        let mut desk = Desk::under(binding, vec![machine("m", 1, json!({}))]);
        desk.step(pending(vec![list("a=b")]));
        desk.listed(maps(), vec![map("one", 2, json!({}))]);
        desk.step(conclusion(json!(null), retry(), vec![0]));
        let (id, ..) = desk.asked();
        desk.decides(id, wait);
        let changed = map("one", 3, json!({"data": {"x": "2"}}));
        desk.shown(maps(), changed.clone());
        desk.listed(maps(), vec![changed]);
        assert_eq!(desk.steps(), steps, "{wait:?}");
    }
}

#[test]
fn a_pass_that_ends_after_its_retry_policy_was_swapped_waits_as_the_new_one_says() {
    let mut desk = Desk::under(retrying(), vec![machine("m", 1, json!({}))]);
    desk.swaps_retry("second");
    desk.step(conclusion(json!(null), retry(), vec![]));
    let (first, policy, _) = desk.asked();
    assert_eq!(policy, PolicyId("retry".into()), "with which it began");
    desk.decides(first, Wait::After(10_000));
    let (second, policy, _) = desk.asked();
    assert_eq!(policy, PolicyId("second".into()));
    desk.decides(second, Wait::After(20_000));
    assert_eq!(desk.wait("m"), Some(20_000));
}
