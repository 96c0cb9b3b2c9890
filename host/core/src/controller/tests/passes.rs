//! Tests of the causes of passes, of what a pass leaves to the next one, and of its reports.

use super::*;
use crate::reconcile::panicking;
use crate::worker::StepReply;

#[test]
fn health_counts_what_passes_came_to() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![stop()]));
    let (id, _) = harness.take("act", |call| matches!(call, Call::Cloud(_)));
    harness.reply(id, Reply::Answer(Ok(json!({}))));
    harness.step(conclusion(json!(null), Next::After(1_000), vec![0]));
    harness.pass(1_000);
    harness.fault();
    let health = harness.controller.health("machines").expect("it is bound");
    assert_eq!((health.passes, health.acts, health.faults), (1, 1, 1));
    let (id, _) = harness.patch();
    harness.reply(id, Reply::Objects(Ok(vec![machine("m", 2, json!({}))])));
    harness.pass(1_000);
    harness.step(conclusion(
        json!({"status": {"phase": "x"}}),
        Next::Settled(None),
        vec![],
    ));
    assert_eq!(harness.view("m").map(|view| view.waiting), Some(WaitReason::Call));
    harness.refused(Failure::new(Code::NotFound, "gone"));
    let health = harness.controller.health("machines").expect("it is bound");
    assert_eq!((health.passes, health.discarded), (3, 1));
}

#[test]
fn a_recorded_pass_counts_the_texts_that_it_holds() {
    let bytes = |patch: Value| {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![get()]));
        let (id, _) = harness.take("get", |call| matches!(call, Call::Cloud(_)));
        harness.reply(id, Reply::Answer(Ok(json!({}))));
        harness.step(conclusion(patch, Next::Settled(None), vec![0]));
        harness.refused(Failure::new(Code::NotFound, "gone"));
        harness.records[0].bytes()
    };
    let (short, long) = ("x".repeat(10), "x".repeat(4_010));
    let of = |text: &str| bytes(json!({"status": {"phase": text}}));
    assert!(of(&long) >= of(&short) + 4_000);
    assert!(of(&short) > 1_024);
}

#[test]
fn a_pass_is_told_why_it_runs() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.governs.name = Some("m".into());
    binding.spec.governs.namespace = Some("default".into());
    let scope = primary_scopes(&binding).remove(0);
    let mut harness = Harness::under(binding, vec![]);
    assert_eq!(harness.causes(), [Cause::Resync], "it is absent");
    let request = json!({"metadata": {"annotations": {"request.polity.dev/now": "1"}}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (version, rest, cause) in [
        (1, json!({}), Cause::Created),
        (2, json!({"spec": {"x": 1}}), Cause::Changed),
        (3, request, Cause::Requested),
        (4, deleting, Cause::Deleted),
        (
            5,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {}}}),
            Cause::Changed,
        ),
    ] {
        harness.shown(scope.clone(), machine("m", version, rest));
        assert_eq!(harness.causes(), [cause], "version {version}");
    }
    let event = WatchEvent::Deleted(machine("m", 6, json!({})));
    harness.feed(Input::Watched { scope, event });
    assert_eq!(harness.causes(), [Cause::Deleted], "it is gone");
}

#[test]
fn a_recording_tells_what_its_policies_noted() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let mut step = conclusion(json!(null), Next::Settled(None), vec![]);
    if let Step::Concluded { conclusion, .. } = &mut step {
        conclusion.notes = vec!["A-01".into(), "A-02".into()];
    }
    harness.step(step);
    assert_eq!(harness.records[0].notes().collect::<Vec<_>>(), ["A-01", "A-02"]);
}

#[test]
fn the_times_of_a_recording_are_written_in_milliseconds() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(conclusion(json!(null), Next::After(1_500), vec![]));
    let written = serde_json::to_value(&harness.records[0]).expect("written");
    let started = json!({"boot": 1_000_000, "unix": 1_767_226_600_000_u64});
    assert_eq!((&written["started"], &written["wait"]), (&started, &json!(1_500)));
    let read: PassRecord = serde_json::from_value(written).expect("read");
    assert_eq!(read, harness.records[0]);
}

#[test]
fn what_the_api_server_did_not_keep_is_not_written_again_and_again() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let wanted = json!({"status": {"phase": "x", "pruned": 1}});
    harness.step(conclusion(wanted.clone(), Next::After(1_000), vec![]));
    harness.accepted(&machine("m", 2, json!({"status": {"phase": "x"}})));
    harness.pass(1_000);
    harness.step(conclusion(wanted.clone(), Next::After(1_000), vec![]));
    // Now nothing but what is not kept is written, which changes nothing.
    harness.accepted(&machine("m", 2, json!({"status": {"phase": "x"}})));
    harness.pass(1_000);
    harness.step(conclusion(wanted, Next::Settled(None), vec![]));
    assert_eq!(harness.records.len(), 3, "{:?}", harness.calls);
    let health = harness.controller.health("machines").expect("it is bound");
    assert!(health.not_kept.contains_key("status.pruned"));
}

#[test]
fn a_create_that_never_left_the_host_is_not_asked_for_by_the_next_pass() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![Request::Act(Act::Cloud(CloudAct {
        operation: "vm.clone".into(),
        arguments: "{}".into(),
        intent: Some("m".into()),
    }))]));
    let (id, _) = harness.take("read", |call| matches!(call, Call::Prepare(_)));
    harness.reply(id, Reply::Prepared(Ok(crate::reconcile::fixture::ready())));
    let (_, patch) = harness.patch();
    // The write of the entry is not answered. The watch shows that the entry was written.
    harness.pass(5_000);
    assert!(matches!(harness.records[0].outcome, Outcome::Discarded(_)));
    harness.shown(primary(), machine("m", 2, json!({"status": patch["status"]})));
    harness.pass(1_000);
    let (_, call) = harness.take("step", |call| !matches!(call, Call::Lease(_)));
    let Call::Step { input, .. } = call else {
        panic!("{call:?}")
    };
    assert_eq!(
        input.pass.pending[0].resolution,
        crate::contract::Resolution::Absent
    );
}

/// The handler of the next event of this object's pass panics.
fn let_panic(harness: &mut Harness, name: &str) {
    let of_it = |(_, running): &&mut (Phase, Box<RunningPass>)| &*running.frame.key.name == name;
    let pass = harness.controller.passes.in_flight.values_mut().find(of_it);
    pass.expect("a pass is under way").0 = panicking();
}

fn answered() -> Reply {
    Reply::Answer(Ok(json!({})))
}

#[test]
fn a_panic_in_a_handler_costs_its_pass_and_no_other() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    let question = Question::Lock("one".into());
    let lock = Request::Ask(Ask { round: 0, question });
    let Request::Ask(get) = get() else {
        panic!("a question")
    };
    let asks = [0, 1].map(|round| Request::Ask(Ask { round, ..get.clone() }));
    harness.step_of("m", pending([&[lock.clone()][..], &asks].concat()));
    assert_eq!(harness.cloud_calls(), 2);
    let_panic(&mut harness, "m");
    let (id, _) = harness.take("call of a cloud", |call| matches!(call, Call::Cloud(_)));
    harness.reply(id, answered());
    assert_eq!(
        harness.cloud_calls(),
        0,
        "nobody waits for the other answer any more"
    );
    let (id, patch) = harness.patch();
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(condition["type"], "polity.dev/HostDefect");
    let said = condition["message"].as_str().unwrap_or_default();
    assert!(said.starts_with("a panic: index out of bounds"), "{said}");
    let told = machine("m", 2, json!({"status": patch["status"]}));
    harness.reply(id, Reply::Objects(Ok(vec![told])));
    assert!(matches!(&harness.records[0].outcome, Outcome::Bug(what) if what == said));
    let health = harness.controller.health("machines").expect("it is bound");
    assert_eq!(health.faults, 0, "no policy is blamed");

    harness.step_of("n", pending(vec![lock]));
    let (id, call) = harness.take("step", |call| matches!(call, Call::Step { .. }));
    let Call::Step { input, limits, .. } = call else {
        panic!("{call:?}")
    };
    let reply = input.step(&limits, |pass| {
        assert_eq!(pass.journal[0].answer, Ok("\"held\"".into()));
        let outcome = Ok(conclusion(json!(null), Next::Settled(None), vec![0]));
        StepOutput { outcome, fuel: 1 }
    });
    harness.reply(id, Reply::Stepped(reply));
    assert_eq!(harness.records[1].outcome, Outcome::Published);

    assert!(harness.wait("m").is_some_and(|wait| wait <= 1_000));
    harness.pass(1_000);
    harness.step_of("m", settled());
    harness.accepted(&machine("m", 3, json!({})));
    assert_eq!(harness.records[2].outcome, Outcome::Published);
}

#[test]
fn a_second_panic_ends_its_pass_at_once_and_the_key_is_tried_again() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let_panic(&mut harness, "m");
    let (id, _) = harness.take("step", |call| matches!(call, Call::Step { .. }));
    harness.reply(id, answered());
    let (id, _) = harness.patch();
    let_panic(&mut harness, "m");
    harness.reply(id, answered());
    assert!(matches!(harness.records[0].outcome, Outcome::Bug(_)));
    let is_write = |call: &Call| matches!(call, Call::Write(_));
    assert!(!harness.calls.iter().any(|(_, call)| is_write(call)));
    assert!(harness.wait("m").is_some_and(|wait| wait <= 1_000));
    harness.pass(1_000);
    harness.step(settled());
    assert_eq!(harness.records[1].outcome, Outcome::Published);
}

/// The wait of `n`, which had to wait for 10 s when `m` faulted.
fn wait_beside_a_fault(guards: Guards) -> Option<u64> {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    harness.controller.shared.guards = guards;
    harness.step_of("n", conclusion(json!(null), Next::After(10_000), vec![]));
    harness.fault();
    harness.refused(Failure::new(Code::PermissionDenied, "forbidden"));
    assert_eq!(harness.records[1].outcome, Outcome::Faulted);
    harness.wait("n")
}

#[test]
fn a_fault_delays_no_other_object() {
    assert_eq!(wait_beside_a_fault(Guards::default()), Some(10_000));
}

#[cfg(feature = "simulation")]
#[test]
fn a_guard_that_is_taken_away_guards_nothing() {
    let delayed = wait_beside_a_fault(Guards::without(Guard::FaultsDelayNoOther));
    assert_eq!(delayed, Some(70_000));
    let machines = (0..40).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut harness = Harness::with(machines.collect());
    harness
        .controller
        .set_guards(Guards::without(Guard::CapacitiesAreBounded));
    while harness.steps() > 0 {
        harness.step(says("Started"));
    }
    assert_eq!(harness.events(), 40);
}

#[test]
fn a_key_whose_time_comes_while_its_watch_cannot_say_passes_when_it_can() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    harness.step_of("n", settled());
    harness.step(conclusion(json!(null), Next::After(1_000), vec![]));
    let event = WatchEvent::Failed("cut".into());
    let scope = primary();
    harness.feed(Input::Watched { scope, event });
    harness.pass(2_000);
    assert_eq!(harness.steps(), 0);
    harness.listed(
        primary(),
        vec![machine("m", 1, json!({})), machine("n", 1, json!({}))],
    );
    assert!(harness.causes().contains(&Cause::Due));
    assert_eq!(harness.steps(), 0, "of the others nothing is new");
}

#[test]
fn what_changes_of_an_object_during_its_pass_is_looked_at_afterwards_and_what_the_pass_wrote_is_not() {
    let status = json!({"status": {"phase": "x"}});
    for theirs in [None, Some(json!({"status": {"phase": "x"}, "spec": {"x": 1}}))] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(conclusion(status.clone(), Next::Settled(None), vec![]));
        // The watch shows the write before it is answered.
        harness.shown(primary(), machine("m", 2, status.clone()));
        if let Some(theirs) = &theirs {
            harness.shown(primary(), machine("m", 3, theirs.clone()));
        }
        assert_eq!(harness.steps(), 0, "one pass at a time");
        harness.accepted(&machine("m", 2, status.clone()));
        assert_eq!(harness.steps(), usize::from(theirs.is_some()));
    }
}

#[test]
fn an_object_that_is_made_anew_while_a_pass_of_the_old_one_is_under_way_waits_for_its_end() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let event = WatchEvent::Deleted(machine("m", 2, json!({})));
    let scope = primary();
    harness.feed(Input::Watched { scope, event });
    harness.shown(
        primary(),
        machine("m", 3, json!({"metadata": {"uid": "another"}})),
    );
    assert_eq!((harness.steps(), harness.controller.keys().count()), (1, 1));
    harness.step(settled());
    assert_eq!(harness.steps(), 1);
    assert_eq!(
        harness.causes(),
        [Cause::Changed],
        "there is another one of this name"
    );
    assert_eq!(harness.forgotten(), 0);
}

#[test]
fn a_stale_object_that_is_gone_is_forgotten() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.reply(id, Reply::Objects(Err(Failure::new(Code::NotFound, "gone"))));
    assert_eq!((harness.steps(), harness.forgotten()), (0, 1));
}

#[test]
fn a_read_that_finds_a_stale_object_as_it_was_lets_its_pass_begin() {
    let same = || machine("m", 1, json!({"metadata": {"finalizers": []}}));
    let mut harness = Harness::with(vec![same()]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.reply(id, Reply::Objects(Ok(vec![same()])));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn a_stale_object_that_another_one_replaced_leaves_the_pass_to_its_successor() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    let successor = machine("m", 7, json!({"metadata": {"uid": "of a successor"}}));
    harness.reply(id, Reply::Objects(Ok(vec![successor])));
    let (_, call) = harness.take("step", |call| matches!(call, Call::Step { .. }));
    let Call::Step { input, .. } = call else {
        panic!("{call:?}")
    };
    let is_successor = |object: &crate::contract::Json| object.contains("of a successor");
    assert!(input.pass.object.as_ref().is_some_and(is_successor));
    assert_eq!((harness.steps(), harness.controller.keys().count()), (0, 1));
}

#[test]
fn a_read_of_a_stale_object_that_nobody_answers_is_cut_and_comes_again() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let is_read = |call: &Call| matches!(call, Call::Read(_));
    assert!(harness.calls.iter().any(|(_, call)| is_read(call)));
    harness.pass(4_300);
    assert!(!harness.calls.iter().any(|(_, call)| is_read(call)), "it is cut");
    assert_eq!(harness.steps(), 0);
    harness.pass(1_000);
    let (id, _) = harness.take("read", is_read);
    harness.reply(id, Reply::Objects(Ok(vec![machine("m", 7, json!({}))])));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn a_late_read_of_an_object_that_has_become_stale_again_since_is_not_taken_for_the_one_that_is_waited_for() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (late, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.shown(
        primary(),
        machine(
            "m",
            5,
            json!({"metadata": {"finalizers": []}, "status": {"news": 1}}),
        ),
    );
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (read, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.reply(late, Reply::Objects(Ok(vec![machine("m", 4, json!({}))])));
    assert_eq!(harness.steps(), 0, "it is stale");
    harness.reply(read, Reply::Objects(Ok(vec![machine("m", 7, json!({}))])));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn a_binding_that_names_one_object_gets_passes_while_it_is_absent() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    let governs = &mut binding.spec.governs;
    (governs.namespace, governs.name) = (Some("default".into()), Some("m".into()));
    let scope = primary_scopes(&binding).remove(0);
    let mut harness = Harness::under(binding, vec![]);
    harness.step(settled());
    harness.shown(scope.clone(), machine("m", 1, json!({})));
    harness.step(settled());
    let event = WatchEvent::Deleted(machine("m", 2, json!({})));
    harness.feed(Input::Watched { scope, event });
    harness.step(settled());
    let is_there = harness.records.iter().map(|record| record.object.is_some());
    assert_eq!(is_there.collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn of_an_object_that_is_gone_nothing_is_remembered_once_its_pass_has_ended() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let event = WatchEvent::Deleted(machine("m", 2, json!({})));
    let scope = primary();
    harness.feed(Input::Watched { scope, event });
    assert_eq!(
        (harness.forgotten(), harness.records.len()),
        (0, 0),
        "its pass is under way"
    );
    harness.step(settled());
    assert_eq!(harness.records.len(), 1);
    let forgotten = Output::Forgotten(harness.records[0].key.clone());
    assert!(harness.others.contains(&forgotten), "{:?}", harness.others);
}

#[test]
fn a_discarded_pass_waits_for_its_next_try_and_loses_no_change() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let seen = |value: &str| conclusion(json!({"status": {"seen": value}}), Next::Settled(None), vec![0]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.step(seen("1"));
    harness.accepted(&machine("m", 3, json!({"status": {"seen": "1"}})));
    harness.shown(config_maps(), map("one", 4, json!({"data": {"x": "2"}})));
    harness.step(seen("2"));
    // Another writer wrote the same value, and no watch has shown it yet.
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    let theirs = machine("m", 5, json!({"status": {"seen": "x"}}));
    harness.reply(id, Reply::Objects(Ok(vec![theirs])));
    assert!(matches!(harness.records[1].outcome, Outcome::Discarded(_)));
    assert_eq!(harness.steps(), 0, "not again at once");
    harness.pass(1_000);
    harness.step(seen("2"));
    harness.accepted(&machine("m", 6, json!({"status": {"seen": "2"}})));
    assert_eq!(harness.records[2].outcome, Outcome::Published);
    assert_eq!(harness.records.len(), 3);
}

/// A step whose output its pass may not hold yet.
fn too_large() -> Reply {
    Reply::Stepped(StepReply::default())
}

#[test]
fn so_many_passes_hold_much_at_a_time_and_a_place_is_kept_for_others() {
    let mut machines: Vec<Object> = (0..9)
        .map(|n| machine(&format!("m-{n}"), n + 1, json!({})))
        .collect();
    machines.push(machine("other", 20, json!({"metadata": {"namespace": "other"}})));
    let mut harness = Harness::with(machines);
    while harness.steps() > 0 {
        let (id, _) = harness.take("step", |call| matches!(call, Call::Step { .. }));
        harness.reply(id, too_large());
        if harness.steps() > 10 {
            break;
        }
        let begun = harness.calls.iter().filter(|(_, call)| match call {
            Call::Step { input, .. } => input.may_hold == u64::MAX,
            _ => false,
        });
        if begun.count() == harness.steps() {
            break;
        }
    }
    let waits = |harness: &Harness| {
        let waits = |view: &KeyView| view.waiting == WaitReason::Capacity(Capacity::Large);
        harness.controller.keys().filter(|(_, view)| waits(view)).count()
    };
    assert_eq!(
        (harness.steps(), waits(&harness)),
        (7, 3),
        "six of one tenant and one of another"
    );
    harness.step_of("m-0", settled());
    assert_eq!(
        (harness.steps(), waits(&harness)),
        (7, 2),
        "whoever ends gives its place to the next"
    );
    harness.feed(Input::Cut);
    assert_eq!(harness.controller.passes_in_flight(), 0);
}
