//! Tests of what starts and ends with the lease.

use super::*;

#[test]
fn a_host_that_stops_begins_nothing_more_and_keeps_the_lease_until_what_it_writes_is_answered() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(says("Started"));
    desk.feed(Input::Stop);
    desk.pass(2_000);
    assert_eq!(desk.steps(), 0);
    assert!(!desk.others.contains(&Output::Stopped));
    let (id, _) = desk.take("Event", |call| matches!(call, Call::Write(Write::Event { .. })));
    desk.reply(id, Reply::Objects(Ok(vec![])));
    desk.answer_leases();
    assert!(desk.others.contains(&Output::Stopped));
}

#[test]
fn an_act_that_would_outlast_the_lease_waits_for_its_renewal_and_then_for_its_answer() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.now = desk.now + (lease::DURATION - ms(1));
    desk.step(pending(vec![stop()]));
    let waiting = |desk: &Desk| desk.view("m").map(|view| view.waiting);
    assert_eq!(waiting(&desk), Some(WaitsFor::Renewal));
    desk.answer_leases();
    assert_eq!(waiting(&desk), Some(WaitsFor::Call));
    desk.take("act", |call| matches!(call, Call::Cloud(_)));
}

#[test]
fn a_pass_that_is_cut_waits_for_nothing_any_more() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    assert_eq!(desk.steps(), 1);
    desk.feed(Input::Cut);
    assert_eq!(desk.steps(), 0);
    assert_eq!(desk.records[0].outcome, Outcome::Stopped);
}

#[test]
fn time_is_wanted_when_the_first_of_all_that_waits_is_due() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let after = |desk: &Desk| desk.controller.deadline() - desk.now.boot;
    assert_eq!(after(&desk), lease::RENEW_EVERY);
    desk.step(conclusion(json!(null), Next::After(1_000), vec![]));
    assert_eq!(after(&desk), ms(1_000));
    desk.pass(1_000);
    desk.step(pending(vec![list("a=b")]));
    desk.feed(Input::Cut);
    assert_eq!(after(&desk), lease::CALL_LONGEST, "the lease is being given up");
}

#[test]
fn who_loses_the_lease_ends_its_passes_and_who_gets_it_again_looks_at_everything() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    desk.step_of("n", conclusion(json!(null), Next::After(1_000), vec![]));
    desk.now = desk.now + 2 * lease::DURATION;
    desk.feed(Input::Tick);
    assert_eq!(desk.records[1].outcome, Outcome::LeaseLost);
    assert!(!desk.controller.is_holder());
    assert_eq!(desk.steps(), 0, "nothing begins, although its time has come");
    assert_eq!(desk.view("n").map(|view| view.waiting), Some(WaitsFor::Lease));
    desk.answer_leases();
    assert_eq!(desk.steps(), 2);
    assert!(desk.causes().contains(&Cause::Resync));
}

#[test]
fn an_event_that_would_outlast_the_lease_is_dropped_when_its_turn_comes() {
    let machines = (0..20).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut desk = Desk::with(machines.collect());
    while desk.steps() > 0 {
        desk.step(says("Started"));
    }
    let waiting = desk.events();
    assert!(waiting < 20, "{waiting}");
    let reply = |desk: &mut Desk| {
        let (id, _) = desk.take("Event", |call| matches!(call, Call::Write(Write::Event { .. })));
        desk.reply(id, Reply::Objects(Ok(vec![])));
    };
    reply(&mut desk);
    assert_eq!(desk.events(), waiting, "the next one has its turn");
    desk.now = desk.now + (lease::DURATION - ms(4_000));
    desk.calls
        .retain(|(_, call)| matches!(call, Call::Write(Write::Event { .. }) | Call::Lease(_)));
    desk.feed(Input::Tick);
    assert_eq!(desk.events(), 0, "those under way are cut, and no other begins");
}

#[test]
fn a_host_that_has_no_time_to_stop_waits_for_what_may_still_be_made_and_gives_the_lease_up() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![stop()]));
    let is_stopped = |desk: &Desk| desk.others.contains(&Output::Stopped);
    for input in [Input::Stop, Input::Cut] {
        desk.feed(input);
        assert_eq!(desk.cloud_calls(), 1, "its act may still be performed");
        assert!(!is_stopped(&desk) && desk.controller.is_holder());
    }
    desk.pass(5_000);
    assert!(is_stopped(&desk) && !desk.controller.is_holder());
    assert_eq!(desk.cloud_calls(), 0, "nobody waits for it any more");
    assert_eq!(desk.records[0].outcome, Outcome::Stopped);
    let request = &desk.records[0].roles[0].journal[0].request;
    assert_eq!(*request, stop(), "what it began is on record");
}

#[test]
fn a_write_that_is_answered_after_the_lease_has_ended_is_the_last_of_its_pass() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![clone_of("n")]));
    let (id, _) = desk.take("read", |call| matches!(call, Call::Prepare(_)));
    desk.reply(id, Reply::Prepared(Ok(ready())));
    let (entry, patch) = desk.patch();
    desk.now = desk.now + 2 * lease::DURATION;
    let stands = machine("m", 2, json!({"status": patch["status"]}));
    desk.reply(entry, Reply::Objects(Ok(vec![stands])));
    assert!(!desk.controller.is_holder());
    assert_eq!(desk.records[0].outcome, Outcome::LeaseLost);
    assert_eq!(desk.cloud_calls(), 0);
}
