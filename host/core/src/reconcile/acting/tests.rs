use super::*;
use crate::call::{Scope, WatchEvent};
use crate::contract::{Kind, ObjectRef, Precondition, Question, Resolution, Role};
use crate::reconcile::Phase;
use crate::reconcile::fixture::{
    FINALIZER, Fixture, answer, clone_of, config_map, config_maps, entry, failure, found, journal, machine,
    ms, operations, outcome, patches, pending, prepared, ready, stepped, stop, terms, versions,
};
use crate::reconcile::{Work, primary_scopes};
use crate::shared::terms::NotSent;

/// A phase that panics when it gets the answer of an act, because it has none.
pub(crate) fn panicking() -> Phase {
    Phase::Acting(Acting {
        now: ActStep::Performing {
            index: 0,
            is_first: true,
        },
        ..Acting::new(RoleRun::new(Role::Lifecycle), Vec::new())
    })
}

/// The answers that the policy gets when it is called again.
fn answers(commands: &[Command]) -> Vec<Result<Json, Code>> {
    let journal = journal(commands).unwrap_or_default();
    let told = |entry: &crate::contract::Entry| entry.answer.clone().map_err(|failure| failure.code);
    journal.iter().map(told).collect()
}

/// The reply with the object after a write.
fn shown(version: u64, patch: &Value) -> PhaseEvent {
    let mut value = machine(version, json!({}));
    crate::merge::apply(patch, &mut value);
    crate::merge::apply(
        &json!({"metadata": {"resourceVersion": version.to_string()}}),
        &mut value,
    );
    found(Ok(value))
}

/// Changes the primary in the cache.
fn changes(fixture: &mut Fixture, rest: Value) {
    let scope = primary_scopes(&fixture.frame.binding).remove(0);
    fixture
        .cache
        .observe(&scope, WatchEvent::Applied(Object::new(machine(5, rest))));
}

#[test]
fn a_change_is_performed_without_an_entry_and_its_answer_reaches_the_policy() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![stop()]);
    assert_eq!(operations(&commands), ["vm.stop"]);
    assert!(patches(&commands).is_empty());
    assert!(fixture.work.acted);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({"power": "off"}))));
    assert_eq!(answers(&commands), [Ok("{\"power\":\"off\"}".into())]);
}

#[test]
fn an_object_that_changed_before_the_first_act_is_not_acted_for() {
    for rest in [
        json!({"metadata": {"generation": 2}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"uid": "another"}}),
    ] {
        let mut fixture = Fixture::new();
        changes(&mut fixture, rest.clone());
        let (flow, commands) = fixture.requests(vec![stop()]);
        assert_eq!(
            outcome(&flow),
            Some(&Outcome::Discarded(Discard::Changed)),
            "{rest}"
        );
        assert!(operations(&commands).is_empty());
    }
    let mut fixture = Fixture::new();
    changes(&mut fixture, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(operations(&fixture.requests(vec![stop()]).1), ["vm.stop"]);
}

#[test]
fn a_pass_that_has_acted_goes_on_although_its_object_changed() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![stop(), stop()]);
    changes(&mut fixture, json!({"metadata": {"generation": 2}}));
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(operations(&commands), ["vm.stop"]);
}

#[test]
fn the_finalizer_is_written_first_and_has_to_be_seen() {
    let mut without = Fixture::of(
        machine(1, json!({"metadata": {"finalizers": null}})),
        &[Role::Lifecycle],
    );
    let (flow, commands) = without.requests(vec![stop()]);
    assert!(operations(&commands).is_empty());
    let patch = patches(&commands)[0].clone();
    assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(versions(&commands), ["1"]);
    let (_, commands) = without.go_on(flow, shown(2, &patch));
    assert_eq!(operations(&commands), ["vm.stop"]);

    let mut without = Fixture::of(
        machine(1, json!({"metadata": {"finalizers": null}})),
        &[Role::Lifecycle],
    );
    let (flow, _) = without.requests(vec![stop()]);
    let (_, commands) = without.go_on(flow, shown(2, &json!({"metadata": {"finalizers": null}})));
    assert_eq!(answers(&commands), [Err(Code::FailedPrecondition)]);
    assert!(operations(&commands).is_empty());
    assert!(
        commands
            .iter()
            .any(|c| matches!(c, Command::Report(Report::NotKept(path)) if path == "metadata.finalizers"))
    );
}

#[test]
fn a_write_that_fails_before_the_first_act_gives_the_pass_up() {
    let mut without = Fixture::of(
        machine(1, json!({"metadata": {"finalizers": null}})),
        &[Role::Lifecycle],
    );
    let (flow, _) = without.requests(vec![stop()]);
    let (flow, _) = without.go_on(flow, found(Err(failure(Code::Aborted))));
    let given_up =
        |flow: &Flow<Phase>| matches!(outcome(flow), Some(Outcome::Discarded(Discard::NotWritten(_))));
    assert!(given_up(&flow), "{flow:?}");
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![clone_of("m")]);
    let (flow, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
    assert!(given_up(&flow) && operations(&commands).is_empty(), "{flow:?}");
}

#[test]
fn a_write_that_is_refused_before_the_first_act_is_retried_like_a_failed_publication() {
    let mut without = Fixture::of(
        machine(1, json!({"metadata": {"finalizers": null}})),
        &[Role::Lifecycle],
    );
    let mut creates = Fixture::new();
    let mut refused = failure(Code::ResourceExhausted);
    refused.retry_after = Some(30_000);
    for (fixture, act) in [(&mut without, stop()), (&mut creates, clone_of("m"))] {
        let (flow, _) = fixture.requests(vec![act]);
        let (flow, commands) = fixture.go_on(flow, found(Err(refused.clone())));
        assert!(operations(&commands).is_empty());
        assert_eq!(outcome(&flow), Some(&Outcome::Failed(refused.clone())));
    }
}

#[test]
fn a_write_that_fails_after_the_first_act_refuses_what_needed_it() {
    let mut fixture = Fixture::new();
    fixture.work.acted = true;
    let (flow, _) = fixture.requests(vec![clone_of("m"), stop()]);
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::Unavailable))));
    assert_eq!(operations(&commands), ["vm.stop"]);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(answers(&commands), [Err(Code::Aborted), Ok("{}".into())]);
    assert_eq!(fixture.work.entered[0].fate, Fate::NeverSent);
}

#[test]
fn a_finalizer_that_cannot_be_written_after_the_first_act_refuses_every_act() {
    for event in [
        found(Err(failure(Code::Aborted))),
        found(Err(failure(Code::PermissionDenied))),
        PhaseEvent::Cut(0),
    ] {
        let without = json!({"metadata": {"finalizers": null}});
        let mut fixture = Fixture::of(machine(1, without), &[Role::Lifecycle]);
        fixture.work.acted = true;
        let (flow, _) = fixture.requests(vec![stop(), clone_of("m")]);
        let (_, commands) = fixture.go_on(flow, event);
        assert!(operations(&commands).is_empty() && patches(&commands).is_empty());
        assert_eq!(answers(&commands), [Err(Code::Aborted), Err(Code::Aborted)]);
    }
}

#[test]
fn after_a_write_that_met_another_version_nothing_is_tried_that_needs_one() {
    let behind = |fixture: &mut Fixture| {
        fixture.work.acted = true;
        fixture.work.behind = Some(crate::object::ResourceVersion(1));
    };
    let mut fixture = Fixture::new();
    behind(&mut fixture);
    let (flow, commands) = fixture.requests_unprepared(vec![clone_of("m"), stop()]);
    assert!(preparing(&commands).is_empty() && patches(&commands).is_empty());
    assert_eq!(operations(&commands), ["vm.stop"]);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(answers(&commands), [Err(Code::Aborted), Ok("{}".into())]);

    let without = json!({"metadata": {"finalizers": null}});
    let mut fixture = Fixture::of(machine(1, without), &[Role::Lifecycle]);
    behind(&mut fixture);
    let (_, commands) = fixture.requests(vec![stop()]);
    assert!(patches(&commands).is_empty() && operations(&commands).is_empty());
    assert_eq!(answers(&commands), [Err(Code::Aborted)]);
}

#[test]
fn every_create_of_a_step_is_entered_by_one_write_before_any_is_sent() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![clone_of("a"), clone_of("b")]);
    assert!(operations(&commands).is_empty());
    let patch = patches(&commands)[0].clone();
    let entries = patch["status"]["pending"].as_array().expect("entries").clone();
    assert_eq!(
        entries.iter().map(|e| e["intent"].clone()).collect::<Vec<_>>(),
        [json!("a"), json!("b")]
    );
    let (flow, commands) = fixture.go_on(flow, shown(2, &patch));
    let sent = commands.iter().find_map(|command| match command {
        Command::Call {
            call: Call::Commit(commit),
            ..
        } => commit.request.key.clone(),
        _ => None,
    });
    assert_eq!(sent.map(Value::from), Some(entries[0]["key"].clone()));
    let is_sent = |fixture: &Fixture, entry: &Value| {
        let key = entry["key"].as_str().unwrap_or_default();
        fixture.work.histories[key].sent
    };
    assert!(is_sent(&fixture, &entries[0]) && !is_sent(&fixture, &entries[1]));
    fixture.go_on(flow, answer(Ok(json!({}))));
    assert!(is_sent(&fixture, &entries[1]));
}

/// The slots whose creates are being prepared.
fn preparing(commands: &[Command]) -> Vec<usize> {
    let slot = |command: &Command| match command {
        Command::Call {
            slot,
            call: Call::Prepare(request),
            ..
        } => {
            assert_eq!(request.key, None, "nothing is entered yet");
            Some(*slot)
        }
        _ => None,
    };
    commands.iter().filter_map(slot).collect()
}

#[test]
fn creates_read_what_they_need_before_anything_is_written_and_what_they_found_goes_with_the_request() {
    let without = json!({"metadata": {"finalizers": null}});
    let mut fixture = Fixture::of(machine(1, without), &[Role::Lifecycle]);
    let (flow, commands) = fixture.requests_unprepared(vec![clone_of("a"), stop(), clone_of("b")]);
    assert_eq!(preparing(&commands), [0, 2]);
    let (flow, commands) = fixture.go_on(flow, prepared(2, Ok(ready())));
    assert!(commands.is_empty(), "the other one is under way: {commands:?}");
    let mut elsewhere = ready();
    elsewhere.site.place.push("folder".into());
    elsewhere.ready = "[1]".into();
    let (flow, commands) = fixture.go_on(flow, prepared(0, Ok(elsewhere.clone())));
    let finalizer = patches(&commands)[0].clone();
    assert_eq!(finalizer["metadata"]["finalizers"], json!([FINALIZER]));
    let (flow, commands) = fixture.go_on(flow, shown(2, &finalizer));
    let patch = patches(&commands)[0].clone();
    let entry = &patch["status"]["pending"][0];
    let written = json!([
        entry["service"],
        entry["stamp"],
        entry["place"],
        entry["principal"]
    ]);
    assert_eq!(written, json!(["vm@1", 1, ["sim", "folder"], "host"]));
    assert_eq!(entry.get("waited"), None);
    let (_, commands) = fixture.go_on(flow, shown(3, &patch));
    let sent = commands.iter().find_map(|command| match command {
        Command::Call {
            call: Call::Commit(commit),
            ..
        } => Some(commit.clone()),
        _ => None,
    });
    let sent = sent.expect("the first create is sent");
    assert_eq!(sent.prepared, elsewhere);
    assert_eq!(sent.request.key.as_deref(), entry["key"].as_str());
}

#[test]
fn a_create_that_cannot_read_what_it_needs_costs_no_write_and_is_not_in_doubt() {
    let lying = failure(Code::NotFound).effect_unknown();
    for (event, code) in [
        (prepared(0, Err(lying)), Code::NotFound),
        (PhaseEvent::Cut(0), Code::DeadlineExceeded),
    ] {
        let without = json!({"metadata": {"finalizers": null}});
        let mut fixture = Fixture::of(machine(1, without), &[Role::Lifecycle]);
        let (flow, _) = fixture.requests_unprepared(vec![clone_of("m")]);
        let (_, commands) = fixture.go_on(flow, event);
        assert!(patches(&commands).is_empty() && fixture.work.entered.is_empty());
        assert_eq!(answers(&commands), [Err(code)]);
        let told = journal(&commands).and_then(|journal| journal[0].answer.clone().err());
        assert_eq!(told.map(|failure| failure.effect), Some(Effect::None));
        assert!(!fixture.work.acted);
    }
}

#[test]
fn an_object_that_changed_while_its_create_was_prepared_is_not_acted_for() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests_unprepared(vec![clone_of("m"), stop()]);
    changes(&mut fixture, json!({"metadata": {"generation": 2}}));
    let (flow, commands) = fixture.go_on(flow, prepared(0, Ok(ready())));
    let patch = patches(&commands).first().map(|patch| (*patch).clone());
    let patch = patch.expect("its version is the precondition of the entry");
    let (flow, commands) = fixture.go_on(flow, shown(2, &patch));
    let first = terms(&commands)[0].first.as_ref().expect("a condition");
    assert!(!first.is_so(&fixture.cache));
    let (_, commands) = fixture.go_on(flow, PhaseEvent::NotSent(NotSent::PrimaryChanged));
    assert!(operations(&commands).is_empty());
    assert_eq!(answers(&commands), [Err(Code::Aborted), Err(Code::Aborted)]);
}

#[test]
fn an_entry_that_the_api_server_drops_refuses_its_create_and_no_other_act() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![clone_of("m"), stop()]);
    let (flow, commands) = fixture.go_on(flow, shown(2, &json!({})));
    assert_eq!(operations(&commands), ["vm.stop"]);
    assert!(
        commands
            .iter()
            .any(|c| matches!(c, Command::Report(Report::NotKept(path)) if path == "status.pending"))
    );
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(
        answers(&commands),
        [Err(Code::FailedPrecondition), Ok("{}".into())]
    );
}

/// A pass whose create is entered and sent.
fn cloning() -> (Fixture, Flow<Phase>) {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![clone_of("m")]);
    let patch = patches(&commands)[0].clone();
    let (flow, _) = fixture.go_on(flow, shown(2, &patch));
    (fixture, flow)
}

#[test]
fn an_answer_may_have_as_many_bytes_as_the_binding_allows_and_no_more() {
    for (more, fits) in [(0, true), (1, false)] {
        let mut fixture = Fixture::new();
        fixture.grow();
        let most = usize::try_from(fixture.frame.binding.spec.limits.answer).expect("some MiB") - 2;
        let (flow, _) = fixture.requests(vec![stop()]);
        let (_, commands) = fixture.go_on(flow, answer(Ok(json!("x".repeat(most + more)))));
        let told = answers(&commands).remove(0).map(|_| ());
        assert_eq!(
            told,
            if fits {
                Ok(())
            } else {
                Err(Code::ResourceExhausted)
            }
        );
    }
}

#[test]
fn the_entry_of_a_create_stands_while_that_of_another_is_written() {
    let (mut fixture, flow) = cloning();
    let (flow, _) = fixture.go_on(flow, answer(Ok(json!({}))));
    let (flow, _) = fixture.go_on(flow, stepped(pending(vec![clone_of("n")])));
    let (_, commands) = fixture.go_on(flow, prepared(0, Ok(ready())));
    let written = patches(&commands)[0]["status"]["pending"].clone();
    let intents: Vec<&Value> = written
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry["intent"])
        .collect();
    assert_eq!(intents, ["m", "n"], "what came of the first is not published yet");
}

#[test]
fn what_came_of_a_create_is_known_unless_it_may_have_been_performed() {
    let unknown = failure(Code::Unavailable).effect_unknown();
    for (event, fate, code) in [
        (
            answer(Ok(json!({}))),
            Fate::Resolved(Resolution::Done("{}".into())),
            None,
        ),
        (
            answer(Err(failure(Code::ResourceExhausted))),
            Fate::Refused,
            Some(Code::ResourceExhausted),
        ),
        (answer(Err(unknown)), Fate::Open, Some(Code::Unavailable)),
        (PhaseEvent::Cut(0), Fate::Open, Some(Code::DeadlineExceeded)),
    ] {
        let (mut fixture, flow) = cloning();
        let (_, commands) = fixture.go_on(flow, event);
        assert_eq!(fixture.work.entered[0].fate, fate);
        assert_eq!(answers(&commands)[0].as_ref().err(), code.as_ref());
    }
}

#[test]
fn the_same_create_twice_is_refused_in_a_step_and_in_a_pass_that_does_not_know_of_the_first() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![clone_of("m"), clone_of("m")]);
    let patch = patches(&commands)[0].clone();
    assert_eq!(patch["status"]["pending"].as_array().map(Vec::len), Some(1));
    let (flow, _) = fixture.go_on(flow, shown(2, &patch));
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
    assert_eq!(
        answers(&commands),
        [Err(Code::DeadlineExceeded), Err(Code::FailedPrecondition)]
    );
    let (_, commands) = fixture.requests(vec![clone_of("m")]);
    assert_eq!(answers(&commands), [Err(Code::FailedPrecondition)]);
}

/// What a pass whose create was answered so does with the next act: its answer, if it is not performed, and the writes for it.
fn after_a_create(answered: Answer, next: Request) -> (Option<Result<Json, Code>>, usize) {
    let (mut fixture, flow) = cloning();
    let (flow, _) = fixture.go_on(flow, answer(answered));
    let (flow, commands) = fixture.go_on(flow, stepped(pending(vec![next])));
    let told = answers(&commands).into_iter().nth(1);
    if told.is_some() {
        assert!(patches(&commands).is_empty() && operations(&commands).is_empty());
        return (told, 0);
    }
    let (_, commands) = fixture.go_on(flow, prepared(0, Ok(ready())));
    (None, patches(&commands).len())
}

#[test]
fn a_create_that_this_pass_has_performed_is_answered_with_its_result_and_not_sent_again() {
    let made = || Ok(json!({"task": "task-2"}));
    let same = after_a_create(made(), clone_of("m"));
    assert_eq!(same, (Some(Ok("{\"task\":\"task-2\"}".into())), 0));
    let mut other = clone_of("m");
    if let Request::Act(Act::Cloud(act)) = &mut other {
        act.arguments = "{\"cpus\": 64}".into();
    }
    let other = after_a_create(made(), other);
    assert_eq!(other, (Some(Err(Code::FailedPrecondition)), 0));
    let another = after_a_create(made(), clone_of("n"));
    assert_eq!(another, (None, 1), "with another intent");
    let refused = after_a_create(Err(failure(Code::ResourceExhausted)), clone_of("m"));
    assert_eq!(refused, (None, 1), "nothing was made");
}

#[test]
fn nothing_in_doubt_is_performed_again() {
    let found = |fate| {
        let pending = json!({"status": {"pending": [entry("a")]}});
        let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
        let entry = serde_json::from_value(entry("a")).expect("an entry");
        fixture.work.found = vec![KnownEntry { entry, fate }];
        let (_, commands) = fixture.requests(vec![clone_of("m")]);
        (answers(&commands), patches(&commands).len())
    };
    let done = Fate::Resolved(Resolution::Done("{\"id\":\"vm-1\"}".into()));
    assert_eq!(found(done), (vec![Ok("{\"id\":\"vm-1\"}".into())], 0));
    assert_eq!(
        found(Fate::Resolved(Resolution::Unknown("why".into()))),
        (vec![Err(Code::FailedPrecondition)], 0)
    );
    assert_eq!(found(Fate::Resolved(Resolution::Absent)), (vec![], 1));
    assert_eq!(found(Fate::NeverSent), (vec![], 1));
}

#[test]
fn what_is_absent_makes_room_for_its_successor() {
    let pending = json!({"status": {"pending": [entry("a")]}});
    let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
    let old = serde_json::from_value(entry("a")).expect("an entry");
    fixture.work.found = vec![KnownEntry {
        entry: old,
        fate: Fate::Resolved(Resolution::Absent),
    }];
    let (_, commands) = fixture.requests(vec![clone_of("m")]);
    let pending = patches(&commands)[0]["status"]["pending"].clone();
    assert_eq!(pending.as_array().map(Vec::len), Some(1));
    assert_ne!(pending[0]["key"], "a");
}

#[test]
fn nothing_is_created_while_an_entry_cannot_be_read() {
    let mut fixture = Fixture::new();
    fixture.work.unreadable = Some("status.pending[0]: of another version".into());
    let (flow, commands) = fixture.requests(vec![clone_of("m"), stop()]);
    assert_eq!(operations(&commands), ["vm.stop"]);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(answers(&commands)[0], Err(Code::FailedPrecondition));
}

#[test]
fn on_a_deleting_object_without_its_finalizer_nothing_is_done() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["another"]}});
    let mut fixture = Fixture::of(machine(1, gone), &[Role::Lifecycle]);
    let (_, commands) = fixture.requests(vec![stop()]);
    assert_eq!(answers(&commands), [Err(Code::FailedPrecondition)]);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut fixture = Fixture::of(machine(1, deleting), &[Role::Lifecycle]);
    assert_eq!(operations(&fixture.requests(vec![stop()]).1), ["vm.stop"]);
}

#[test]
fn what_is_absent_and_stays_so_is_acted_for() {
    let mut fixture = Fixture::new();
    let scope = primary_scopes(&fixture.frame.binding).remove(0);
    let gone = WatchEvent::Deleted(Object::new(machine(5, json!({}))));
    fixture.cache.observe(&scope, gone);
    let (flow, _) = fixture.requests(vec![stop()]);
    assert_eq!(
        outcome(&flow),
        Some(&Outcome::Discarded(Discard::Changed)),
        "it was there"
    );
    fixture.frame.snapshot = None;
    fixture.work.current = None;
    let (_, commands) = fixture.requests(vec![stop()]);
    assert_eq!(operations(&commands), ["vm.stop"]);
}

#[test]
fn for_an_absent_object_nothing_is_created_because_it_cannot_hold_an_entry() {
    let mut fixture = Fixture::new();
    let scope = primary_scopes(&fixture.frame.binding).remove(0);
    let gone = WatchEvent::Deleted(Object::new(machine(5, json!({}))));
    fixture.cache.observe(&scope, gone);
    fixture.frame.snapshot = None;
    fixture.work.current = None;
    let (flow, commands) = fixture.requests(vec![clone_of("m"), stop()]);
    assert!(preparing(&commands).is_empty() && patches(&commands).is_empty());
    assert_eq!(operations(&commands), ["vm.stop"]);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(
        answers(&commands),
        [Err(Code::FailedPrecondition), Ok("{}".into())]
    );
}

#[test]
fn a_change_that_another_watch_showed_first_counts_before_the_first_act() {
    let mut fixture = Fixture::new();
    let narrower = Scope {
        namespace: Some("default".into()),
        ..primary_scopes(&fixture.frame.binding).remove(0)
    };
    fixture.cache.open(&narrower);
    let newer = machine(9, json!({"metadata": {"generation": 2}}));
    let event = WatchEvent::Applied(Object::new(newer));
    fixture.cache.observe(&narrower, event);
    let (flow, _) = fixture.requests(vec![stop()]);
    assert_eq!(outcome(&flow), Some(&Outcome::Discarded(Discard::Changed)));
}

#[test]
fn the_first_act_of_a_pass_needs_its_object_as_it_was_and_a_later_one_does_not() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![stop(), stop()]);
    let first = terms(&commands)[0].first.as_ref().expect("a condition");
    assert!(first.is_so(&fixture.cache));
    changes(&mut fixture, json!({"metadata": {"generation": 2}}));
    assert!(!first.is_so(&fixture.cache));
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(terms(&commands), [&Terms::ANY_TIME]);
}

#[test]
fn a_first_act_that_was_not_sent_changed_nothing() {
    for (why, ended) in [
        (NotSent::PrimaryChanged, Outcome::Discarded(Discard::Changed)),
        (NotSent::LeaseLost, Outcome::LeaseLost),
        (NotSent::Cut, Outcome::Stopped),
    ] {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![stop()]);
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::NotSent(why));
        assert_eq!(outcome(&flow), Some(&ended));
        let acted = |command: &Command| matches!(command, Command::Report(Report::Acted));
        assert!(!fixture.work.acted && !commands.iter().any(acted));
        assert!(fixture.work.roles[0].journal.is_empty(), "{why:?}");
    }
}

#[test]
fn a_later_act_that_was_not_sent_leaves_what_the_first_one_did() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![stop(), stop()]);
    let (flow, _) = fixture.go_on(flow, answer(Ok(json!({}))));
    fixture.go_on(flow, PhaseEvent::NotSent(NotSent::LeaseLost));
    assert!(fixture.work.acted);
    assert_eq!(fixture.work.roles[0].journal.len(), 1);
}

#[test]
fn a_write_before_the_acts_that_was_not_sent_leaves_nothing_behind() {
    let without = json!({"metadata": {"finalizers": null}});
    let mut without = Fixture::of(machine(1, without), &[Role::Lifecycle]);
    for (fixture, act) in [(&mut without, stop()), (&mut Fixture::new(), clone_of("m"))] {
        let (flow, commands) = fixture.requests(vec![act]);
        assert_eq!(
            (patches(&commands).len(), terms(&commands)),
            (1, vec![&Terms::ANY_TIME])
        );
        let (flow, _) = fixture.go_on(flow, PhaseEvent::NotSent(NotSent::LeaseLost));
        assert_eq!(outcome(&flow), Some(&Outcome::LeaseLost));
        assert_eq!((fixture.work.behind, fixture.work.writes.len()), (None, 0));
    }
}

#[test]
fn a_pass_that_is_interrupted_records_what_it_did_and_what_it_may_have_done() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![stop(), stop(), stop()]);
    let (flow, _) = fixture.go_on(flow, answer(Ok(json!({"power": "off"}))));
    let Flow::Wait(phase) = flow else {
        panic!("{flow:?}")
    };
    phase.interrupt(Outcome::LeaseLost, true, &fixture.frame, &mut fixture.work);
    let role = &fixture.work.roles[0];
    assert_eq!((role.conclusion.as_ref(), role.fault.as_ref()), (None, None));
    let told = |entry: &crate::contract::Entry| match &entry.answer {
        Ok(_) => None,
        Err(failure) => Some((failure.code, failure.effect)),
    };
    let told: Vec<_> = role.journal.iter().map(told).collect();
    assert_eq!(told, [None, Some((Code::DeadlineExceeded, Effect::Unknown))]);
}

#[test]
fn a_create_that_could_not_begin_in_time_is_not_begun_and_its_entry_may_go() {
    let (mut fixture, flow) = cloning();
    let is_sent = |fixture: &Fixture| fixture.work.histories.values().any(|history| history.sent);
    assert!(is_sent(&fixture));
    let (_, commands) = fixture.go_on(flow, PhaseEvent::NotSent(NotSent::Late));
    assert!(operations(&commands).is_empty() && !is_sent(&fixture) && !fixture.work.acted);
    assert_eq!(answers(&commands), [Err(Code::Aborted)]);
    assert_eq!(fixture.work.entered[0].fate, Fate::NeverSent);
}

#[test]
fn a_create_begins_soon_after_its_entry_was_made() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![clone_of("m")]);
    let (patch, entered) = (patches(&commands)[0].clone(), fixture.now.boot);
    fixture.now = fixture.now + ms(100);
    let (_, commands) = fixture.go_on(flow, shown(2, &patch));
    assert_eq!(terms(&commands)[0].begin_by, entered + BEGINS_WITHIN);
}

#[test]
fn a_create_that_is_interrupted_before_it_was_sent_is_known_as_never_sent() {
    for was_sent in [false, true] {
        let (mut fixture, flow) = cloning();
        let Flow::Wait(phase) = flow else {
            panic!("{flow:?}")
        };
        phase.interrupt(Outcome::LeaseLost, was_sent, &fixture.frame, &mut fixture.work);
        let never_sent: Vec<bool> = fixture
            .work
            .histories
            .values()
            .map(|it| it.never_sent())
            .collect();
        assert_eq!(never_sent, [!was_sent]);
        assert_eq!(fixture.work.roles[0].journal.len(), usize::from(was_sent));
    }
}

fn delete(uid: &str) -> Request {
    Request::Act(Act::Delete(ObjectDelete {
        object: ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            },
            namespace: Some("default".into()),
            name: "site".into(),
        },
        precondition: Precondition {
            uid: uid.into(),
            resource_version: None,
        },
        grace_period_seconds: None,
        propagation_policy: None,
    }))
}

#[test]
fn an_act_on_another_object_answers_its_identity_and_never_its_content() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![delete("s")]);
    let deleting = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"secret": "x"}, "metadata":
        {"namespace": "default", "name": "site", "uid": "s", "resourceVersion": "7", "generation": 3}});
    let (_, commands) = fixture.go_on(flow, found(Ok(deleting)));
    let told = answers(&commands).remove(0).expect("it was performed");
    assert_eq!(&*told, r#"{"generation":3,"resourceVersion":"7","uid":"s"}"#);
    assert!(commands.iter().any(|c| matches!(c, Command::Wrote { .. })));
    let (flow, _) = fixture.requests(vec![delete("s")]);
    let (_, commands) = fixture.go_on(flow, found(Ok(Value::Null)));
    let told = answers(&commands)
        .pop()
        .expect("an answer")
        .expect("it was performed");
    assert_eq!(
        &*told, r#"{"generation":null,"resourceVersion":null,"uid":"s"}"#,
        "it is gone"
    );
    assert!(
        commands.iter().any(|c| matches!(c, Command::Gone { .. })),
        "{commands:?}"
    );
}

#[test]
fn a_write_changes_what_a_pass_looked_at_where_the_scope_shows_the_object() {
    let (mut fixture, _, site) = looking();
    let [before, after] = ["5", "6"].map(|version| {
        let after = json!({"metadata": {"resourceVersion": version}});
        Object::new(site(after))
    });
    let (own, _) = fixture.with(|context| context.own_change(Some(&before), &after));
    let shown: Vec<_> = own.iter().map(|change| (&change.before, &change.after)).collect();
    assert_eq!(shown, [(&Some(before), &Some(after))]);
    let elsewhere = Object::new(site(json!({"metadata": {"namespace": "other"}})));
    let (own, _) = fixture.with(|context| context.own_change(None, &elsewhere));
    assert_eq!(own, []);
}

/// A pass that looks at the ConfigMap `site`, which the function makes.
fn looking() -> (Fixture, Flow<Phase>, impl Fn(Value) -> Value) {
    let mut fixture = Fixture::new();
    let scope = config_maps();
    fixture.cache.open(&scope);
    let site = |rest: Value| {
        let mut site = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata":
            {"namespace": "default", "name": "site", "uid": "s", "resourceVersion": "5"}});
        crate::merge::apply(&rest, &mut site);
        site
    };
    let objects = vec![Object::new(site(json!({})))];
    let version = objects[0].version();
    fixture
        .cache
        .observe(&scope, crate::call::WatchEvent::Listed { objects, version });
    let (flow, _) = fixture.requests(vec![config_map(false)]);
    (fixture, flow, site)
}

#[test]
fn a_relation_is_looked_at_before_an_act_and_not_only_before_an_ask() {
    let by_relation = json!({"apiVersion": "v1", "kind": "ConfigMap", "relation": {"ours": "metadata.name",
        "theirs": "metadata.labels.machine"}});
    let mut fixture = Fixture::new();
    let grant = serde_json::from_value(by_relation).expect("a grant");
    fixture.bind(|binding| {
        *binding = binding
            .clone()
            .with_grants(vec![crate::binding::Grant::Delete(grant)])
    });
    let (_, commands) = fixture.requests(vec![delete("s")]);
    assert_eq!(
        answers(&commands),
        [Err(Code::Unavailable)],
        "nobody has seen whose it is"
    );
    let of = |machine: &str, version: &str| {
        Object::new(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default",
            "name": "site", "uid": "s", "resourceVersion": version, "labels": {"machine": machine}}}),
        )
    };
    let Request::Ask(asked) = config_map(false) else {
        panic!("an ask")
    };
    let Question::Object(query) = asked.question else {
        panic!("of one object")
    };
    let scope = crate::call::Scope {
        kind: query.object.kind,
        namespace: None,
        name: None,
        node: None,
        fields: Vec::new(),
    };
    fixture.cache.open(&scope);
    fixture
        .cache
        .observe(&scope, WatchEvent::Applied(of("another", "3")));
    let (_, commands) = fixture.requests(vec![delete("s")]);
    assert_eq!(answers(&commands), [Err(Code::PermissionDenied)]);
    fixture.cache.observe(&scope, WatchEvent::Applied(of("m", "4")));
    let (_, commands) = fixture.requests(vec![delete("of another")]);
    assert_eq!(answers(&commands), [Err(Code::Aborted)]);
    let (_, commands) = fixture.requests(vec![delete("s")]);
    assert!(commands.iter().any(|c| matches!(
        c,
        Command::Call {
            call: Call::Write(Write::Act(_)),
            ..
        }
    )));
}

#[test]
fn what_an_interrupted_pass_knows_of_its_entries_is_kept() {
    let (fixture, _) = cloning();
    let Work { histories, .. } = fixture.work;
    assert_eq!(
        histories.values().map(|history| history.sent).collect::<Vec<_>>(),
        [true]
    );
}

#[test]
fn a_preparation_that_no_act_waits_for_is_a_defect() {
    for again in [
        prepared(0, Ok(ready())),
        prepared(1, Ok(ready())),
        prepared(3, Ok(ready())),
        PhaseEvent::Cut(0),
        PhaseEvent::Cut(3),
    ] {
        let mut fixture = Fixture::new();
        let requests = vec![clone_of("a"), stop(), clone_of("b")];
        let (flow, _) = fixture.requests_unprepared(requests);
        let (flow, _) = fixture.go_on(flow, prepared(0, Ok(ready())));
        let told = format!("{again:?}");
        let (flow, _) = fixture.go_on(flow, again);
        assert!(matches!(flow, Flow::Bug(_)), "{told}: {flow:?}");
    }
}

#[test]
fn an_event_that_fits_no_row_is_a_defect() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![stop()]);
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Listed(0));
    assert!(
        matches!(&flow, Flow::Bug(what) if what.starts_with("Acting got Listed")),
        "{flow:?}"
    );
}

#[test]
fn an_identity_policy_changes_nothing_in_a_cloud() {
    let mut fixture = Fixture::of(machine(1, json!({})), &[Role::Identity, Role::Lifecycle]);
    let phase = fixture.started();
    let (flow, _) = fixture.enter(phase);
    let (_, commands) = fixture.go_on(flow, stepped(pending(vec![stop()])));
    assert!(operations(&commands).is_empty(), "{commands:?}");
    assert_eq!(answers(&commands), [Err(Code::PermissionDenied)]);
    let ungranted = |command: &Command| matches!(command, Command::Report(Report::Ungranted(_)));
    assert!(!commands.iter().any(ungranted), "no grant would help");
}

#[test]
fn what_is_asked_for_and_may_land_changes_the_primary_or_something_else() {
    let writes_primary = |flow: &Flow<Phase>| match flow {
        Flow::Wait(phase) => phase.writes_primary(),
        flow => panic!("{flow:?}"),
    };
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests_unprepared(vec![clone_of("m")]);
    assert!(
        !writes_primary(&flow) && terms(&commands).is_empty(),
        "it is prepared"
    );
    let (flow, commands) = fixture.go_on(flow, prepared(0, Ok(ready())));
    assert!(
        writes_primary(&flow) && terms(&commands).len() == 1,
        "its entry is written"
    );
    let patch = patches(&commands)[0].clone();
    let (flow, commands) = fixture.go_on(flow, shown(2, &patch));
    assert!(
        !writes_primary(&flow) && terms(&commands).len() == 1,
        "it is sent"
    );
}

#[test]
fn a_patch_of_another_object_keeps_the_conditions_of_hosts_on_the_version_that_holds_them() {
    let theirs = json!({"type": "polity.dev/Slowed", "status": "True"});
    let ready = json!({"type": "Ready", "status": "True"});
    let patched_of = |kind: &str, patch: Value, shows: bool| {
        let mut fixture = Fixture::new();
        let kinds = json!({"apiVersion": "example.com/v1", "kind": kind});
        let grant = crate::binding::Grant::Patch(serde_json::from_value(kinds).expect("a grant"));
        fixture.bind(|binding| *binding = binding.clone().with_grants(vec![grant]));
        let rest = json!({"kind": kind, "metadata": {"name": "n"}, "status": {"conditions": [theirs]}});
        let other = Object::new(machine(7, rest));
        if shows {
            let scope = primary_scopes(&fixture.frame.binding).remove(0);
            fixture.cache.observe(&scope, WatchEvent::Applied(other.clone()));
        }
        let (_, commands) = fixture.requests(vec![Request::Act(Act::Patch(crate::contract::ObjectPatch {
            object: other.reference(),
            precondition: Precondition {
                uid: "u".into(),
                resource_version: None,
            },
            subresource: None,
            patch: patch.to_string().into(),
        }))]);
        let sent = commands.iter().find_map(|command| match command {
            Command::Call {
                call: Call::Write(Write::Act(Act::Patch(patch))),
                ..
            } => Some(patch.precondition.resource_version.clone()),
            _ => None,
        });
        sent.ok_or_else(|| {
            let code = answers(&commands)[0].clone().expect_err("it is refused");
            let told = commands.iter().find_map(|command| match command {
                Command::Report(Report::Ungranted(what)) => Some(what.to_string()),
                _ => None,
            });
            let said = (code == Code::PermissionDenied).then_some(
                "not granted: write conditions of the host on Machine n: a patch of the conditions must keep them",
            );
            assert_eq!(told.as_deref(), said);
            code
        })
    };
    let patched = |patch: Value, shows: bool| patched_of("Machine", patch, shows);
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    let kept = conditions(json!([theirs, ready]));
    assert_eq!(patched(kept.clone(), true), Ok(Some("7".into())));
    assert_eq!(patched(kept, false), Err(Code::Unavailable));
    assert_eq!(
        patched(conditions(json!([ready])), true),
        Err(Code::PermissionDenied)
    );
    assert_eq!(patched(conditions(json!([])), true), Err(Code::PermissionDenied));
    assert_eq!(patched(json!({"spec": {"x": 1}}), false), Ok(None));
    assert_eq!(
        patched_of("Disk", conditions(json!([ready])), false),
        Ok(None),
        "no host governs it"
    );
}

#[test]
fn a_doubt_holds_up_the_same_create_and_no_other() {
    let pending = json!({"status": {"pending": [entry("a")]}});
    let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
    let doubted = serde_json::from_value(entry("a")).expect("an entry");
    let unknown = Fate::Resolved(Resolution::Unknown("why".into()));
    fixture.work.found = vec![KnownEntry {
        entry: doubted,
        fate: unknown,
    }];
    let (_, commands) = fixture.requests(vec![clone_of("m"), clone_of("other")]);
    let written = &patches(&commands)[0]["status"]["pending"];
    let intents = [&written[0]["intent"], &written[1]["intent"], &written[2]];
    assert_eq!(intents, [&json!("m"), &json!("other"), &Value::Null]);
}

#[test]
fn an_act_that_is_not_granted_is_refused_and_said_of_the_binding() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| *binding = binding.clone().with_grants(Vec::new()));
    let (_, commands) = fixture.requests(vec![stop()]);
    assert_eq!(answers(&commands), [Err(Code::PermissionDenied)]);
    assert!(operations(&commands).is_empty());
    let ungranted = |command: &Command| matches!(command, Command::Report(Report::Ungranted(_)));
    assert!(commands.iter().any(ungranted), "{commands:?}");
}

#[test]
fn a_create_that_is_refused_for_a_doubt_changed_nothing() {
    let pending = json!({"status": {"pending": [entry("a")]}});
    let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
    let entry = serde_json::from_value(entry("a")).expect("an entry");
    let fate = Fate::Resolved(Resolution::Unknown("why".into()));
    fixture.work.found = vec![KnownEntry { entry, fate }];
    let (_, commands) = fixture.requests(vec![clone_of("m")]);
    let told = journal(&commands).and_then(|journal| journal[0].answer.clone().err());
    let effect = told.map(|failure| failure.effect);
    assert_eq!(effect, Some(Effect::None));
}
