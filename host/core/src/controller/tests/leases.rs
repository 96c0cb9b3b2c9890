//! Tests of what starts and ends with the lease.

use super::*;
use crate::reconcile::fixture::seen;

#[test]
fn a_host_that_stops_begins_nothing_more_and_keeps_the_lease_until_what_it_writes_is_answered() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(conclusion(json!({"status": {"a": 1}}), Next::After(0), vec![]));
    harness.feed(Input::Stop);
    harness.pass(2_000);
    assert!(!harness.others.contains(&Output::Stopped));
    harness.accepted(&machine("m", 2, json!({"status": {"a": 1}})));
    assert_eq!(harness.steps(), 0);
    harness.answer_leases();
    assert!(harness.others.contains(&Output::Stopped));
}

#[test]
fn an_act_that_would_outlast_the_lease_waits_for_its_renewal_and_then_for_its_answer() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.now = harness.now + (lease::DURATION - ms(1));
    harness.step(pending(vec![stop()]));
    let waiting = |harness: &Harness| harness.view("m").map(|view| view.waiting);
    assert_eq!(waiting(&harness), Some(WaitReason::Renewal));
    harness.answer_leases();
    assert_eq!(waiting(&harness), Some(WaitReason::Call));
    harness.take("act", |call| matches!(call, Call::Cloud(_)));
}

#[test]
fn a_pass_that_is_cut_waits_for_nothing_any_more() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    assert_eq!(harness.steps(), 1);
    harness.feed(Input::Cut);
    assert_eq!(harness.steps(), 0);
    assert_eq!(harness.records[0].outcome, Outcome::Stopped);
}

#[test]
fn time_is_wanted_when_the_first_of_all_that_waits_is_due() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let after = |harness: &Harness| harness.controller.deadline() - harness.now.boot;
    assert_eq!(after(&harness), lease::RENEW_EVERY);
    harness.step(conclusion(json!(null), Next::After(1_000), vec![]));
    assert_eq!(after(&harness), ms(1_000));
    harness.pass(1_000);
    harness.step(pending(vec![list("a=b")]));
    harness.feed(Input::Cut);
    assert_eq!(
        after(&harness),
        lease::CALL_LONGEST,
        "the lease is being given up"
    );
}

#[test]
fn who_loses_the_lease_ends_its_passes_and_who_gets_it_again_looks_at_everything() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    harness.step_of("n", conclusion(json!(null), Next::After(1_000), vec![]));
    harness.now = harness.now + 2 * lease::DURATION;
    harness.feed(Input::Tick);
    assert_eq!(harness.records[1].outcome, Outcome::LeaseLost);
    assert!(!harness.controller.is_holder());
    assert_eq!(harness.steps(), 0, "nothing begins, although its time has come");
    assert_eq!(
        harness.view("n").map(|view| view.waiting),
        Some(WaitReason::Lease)
    );
    harness.answer_leases();
    assert_eq!(harness.steps(), 2);
    assert!(harness.causes().contains(&Cause::Resync));
}

#[test]
fn an_event_that_would_outlast_the_lease_is_dropped_and_another_begins_while_the_lease_covers_it() {
    for (before_the_end, events) in [(6_000, 1), (4_000, 0)] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.now = harness.now + (lease::DURATION - ms(before_the_end));
        harness.step(says("Started"));
        assert_eq!(harness.events(), events, "{before_the_end}");
        let covered = |output: &Output| match output {
            Output::Event(event) => event.begin_by <= harness.now.boot + ms(1_000),
            _ => true,
        };
        assert!(harness.others.iter().all(covered), "{:?}", harness.others);
    }
}

#[test]
fn a_host_that_has_no_time_to_stop_waits_for_what_may_still_be_made_and_gives_the_lease_up() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![stop()]));
    let is_stopped = |harness: &Harness| harness.others.contains(&Output::Stopped);
    for input in [Input::Stop, Input::Cut] {
        harness.feed(input);
        assert_eq!(harness.cloud_calls(), 1, "its act may still be performed");
        assert!(!is_stopped(&harness) && harness.controller.is_holder());
    }
    harness.pass(5_000);
    assert!(is_stopped(&harness) && !harness.controller.is_holder());
    assert_eq!(harness.cloud_calls(), 0, "nobody waits for it any more");
    assert_eq!(harness.records[0].outcome, Outcome::Stopped);
    let request = &harness.records[0].roles[0].journal[0].request;
    assert_eq!(*request, stop(), "what it began is on record");
}

#[test]
fn a_write_that_is_answered_after_the_lease_has_ended_is_the_last_of_its_pass() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![clone_of("n")]));
    let (id, _) = harness.take("read", |call| matches!(call, Call::Prepare(_)));
    harness.reply(id, Reply::Prepared(Ok(ready())));
    let (entry, patch) = harness.patch();
    harness.now = harness.now + 2 * lease::DURATION;
    let stands = machine("m", 2, json!({"status": patch["status"]}));
    harness.reply(entry, Reply::Objects(Ok(vec![stands])));
    assert!(!harness.controller.is_holder());
    assert_eq!(harness.records[0].outcome, Outcome::LeaseLost);
    assert_eq!(harness.cloud_calls(), 0);
}

#[test]
fn a_watch_that_never_lists_closes_although_the_pass_that_waited_for_it_lost_the_lease() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.now = harness.now + (lease::DURATION - ms(3_000));
    harness.step(pending(vec![list("a=b")]));
    assert!(harness.others.contains(&Output::Watch(config_maps())));
    harness.now = harness.now + ms(3_000);
    harness.feed(Input::Tick);
    assert_eq!(harness.records[0].outcome, Outcome::LeaseLost);
    harness.pass(2_000);
    harness.step(settled());
    harness.pass(700_000);
    assert!(harness.others.contains(&Output::Unwatch(config_maps())));
}

#[test]
fn an_object_whose_write_was_in_flight_when_the_lease_was_lost_is_read_before_the_next_pass() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(conclusion(
        json!({"status": {"phase": "x"}}),
        Next::Settled(None),
        vec![],
    ));
    harness.patch();
    harness.now = harness.now + lease::RENEW_EVERY;
    harness.feed(Input::Tick);
    let (renewal, _) = harness.take("renewal", |call| matches!(call, Call::Lease(Some(_))));
    let taken = LeaseRead {
        holder: "another".into(),
        duration: lease::DURATION,
        version: "7".into(),
        transitions: 1,
    };
    harness.reply(renewal, Reply::Lease(Ok(Some(taken))));
    assert_eq!(harness.records[0].outcome, Outcome::LeaseLost);
    harness.pass(2_000);
    let (read, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    assert_eq!(harness.steps(), 0);
    let written = machine("m", 2, json!({"status": {"phase": "x"}}));
    harness.reply(read, Reply::Objects(Ok(vec![written])));
    assert_eq!(harness.steps(), 1);
}

/// A harness whose create is entered and asked for, at a cloud that takes one call at a time.
fn creating(in_the_way: bool) -> Harness {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.cloud_calls = 1;
    let machines = ["m", "n"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::under(binding, machines.to_vec());
    harness.step_of("m", pending(vec![clone_of("n")]));
    let (id, _) = harness.take("read", |call| matches!(call, Call::Prepare(_)));
    harness.reply(id, Reply::Prepared(Ok(ready())));
    if in_the_way {
        harness.step_of("n", pending(vec![stop()]));
    }
    let (id, patch) = harness.patch();
    let stands = machine("m", 2, json!({"status": patch["status"]}));
    harness.reply(id, Reply::Objects(Ok(vec![stands])));
    harness
}

#[test]
fn a_create_is_known_as_sent_when_it_was_and_only_then_wherever_its_pass_is_interrupted() {
    let is_create = |call: &Call| matches!(call, Call::Commit(_));
    for (in_the_way, answered, never_sent) in
        [(true, false, true), (false, false, false), (false, true, false)]
    {
        let mut harness = creating(in_the_way);
        let sent = harness.calls.iter().position(|(_, call)| is_create(call));
        assert_eq!(sent.is_none(), in_the_way);
        if answered {
            let (id, _) = harness.take("create", is_create);
            harness.reply(id, Reply::Answer(Ok(json!({}))));
        }
        harness.now = harness.now + 2 * lease::DURATION;
        harness.feed(Input::Tick);
        assert_eq!(harness.records.len(), 2, "both passes lost the lease");
        harness.answer_leases();
        let asks = harness
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Resolve { .. }));
        assert_eq!(
            asks, !never_sent,
            "in the way: {in_the_way}, answered: {answered}"
        );
    }
}

#[test]
fn a_host_that_has_no_time_to_stop_waits_for_no_change_that_was_not_sent() {
    let mut harness = creating(true);
    harness.feed(Input::Cut);
    let ended: Vec<&str> = harness.records.iter().map(|record| &*record.key.name).collect();
    assert_eq!(ended, ["m"], "the act of the other one may still be performed");
}

#[test]
fn a_create_that_waits_too_long_for_its_cloud_is_not_sent() {
    let mut harness = creating(true);
    harness.now = harness.now + crate::catalogue::BEGINS_WITHIN;
    harness.feed(Input::Tick);
    harness.answer_leases();
    let told = harness.calls.iter().find_map(|(_, call)| match call {
        Call::Step { input, limits, .. } => {
            let journal = seen(input, limits);
            journal.into_iter().find(|entry| entry.request == clone_of("n"))
        }
        Call::Commit(_) => panic!("it is sent"),
        _ => None,
    });
    let code = told.map(|entry| entry.answer.map_err(|failure| failure.code));
    assert_eq!(code, Some(Err(Code::Aborted)));
}

#[test]
fn an_act_that_waits_for_its_cloud_is_not_sent_for_an_object_that_changed_meanwhile() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.cloud_calls = 1;
    let scope = primary_scopes(&binding).remove(0);
    let machines = ["m", "n"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::under(binding, machines.to_vec());
    harness.step_of("n", pending(vec![stop()]));
    harness.step_of("m", pending(vec![stop()]));
    harness.shown(scope, machine("m", 3, json!({"metadata": {"generation": 2}})));
    let (id, _) = harness.take("act", |call| matches!(call, Call::Cloud(_)));
    harness.reply(id, Reply::Answer(Ok(json!({}))));
    assert_eq!(harness.cloud_calls(), 0);
    let discarded = Outcome::Discarded(crate::record::Discard::Changed);
    assert_eq!(
        (&*harness.records[0].key.name, &harness.records[0].outcome),
        ("m", &discarded)
    );
}

#[test]
fn a_change_that_waits_for_the_renewal_holds_no_place_and_comes_first_after_it() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.cloud_calls = 1;
    let machines = ["a", "b", "c"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::under(binding, machines.to_vec());
    harness.now = harness.now + (lease::DURATION - ms(1));
    harness.step_of("a", pending(vec![stop()]));
    assert_eq!(
        harness.view("a").map(|view| view.waiting),
        Some(WaitReason::Renewal)
    );
    harness.step_of("b", pending(vec![get()]));
    harness.step_of("c", pending(vec![get()]));
    let operation = |harness: &mut Harness| {
        let (id, call) = harness.take("call", |call| matches!(call, Call::Cloud(_)));
        let Call::Cloud(request) = call else {
            panic!("{call:?}")
        };
        harness.reply(id, Reply::Answer(Ok(json!({}))));
        request.operation
    };
    harness.answer_leases();
    let order = [(); 3].map(|()| operation(&mut harness));
    assert_eq!(order, ["vm.get", "vm.stop", "vm.get"]);
}
