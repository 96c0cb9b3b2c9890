use super::*;
use crate::contract::Resolution;
use crate::contract::{Conclusion, RetryClass, Role, Verdict};
use crate::merge;
use crate::reconcile::fixture::{
    Fixture, at, computed, concluded, conclusion, entry, failure, found, machine, ms, outcome, patches,
    pending, stepped, terms, versions,
};
use crate::reconcile::work::{EntryHistory, Fate, KnownEntry};
use crate::reconcile::{Phase, fixture::stepping};
use crate::shared::terms::NotSent;

/// The reply with the object as another writer left it.
fn stands(version: u64, rest: Value) -> PhaseEvent {
    found(Ok(machine(version, rest)))
}

fn asks_again(commands: &[Command]) -> bool {
    let latest = |c: &Command| matches!(c, Command::Call { call: Call::Read(Question::Object(query)), .. } if query.latest);
    commands.iter().any(latest)
}

#[test]
fn parts_are_written_in_order_and_the_finalizer_goes_last() {
    let mut fixture = Fixture::new();
    let patch = json!({"status": {"phase": "Gone"}, "metadata": {"labels": {"a": "b"}, "finalizers": []}});
    let (flow, commands) = fixture.concludes(patch);
    assert_eq!(patches(&commands)[0]["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(patches(&commands)[0]["metadata"].get("finalizers"), None);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (flow, commands) = fixture.go_on(flow, stands(2, labels));
    assert_eq!(patches(&commands)[0]["status"], json!({"phase": "Gone"}));
    assert_eq!(versions(&commands), ["2"]);
    let all = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Gone"}});
    let (flow, commands) = fixture.go_on(flow, stands(3, all));
    assert_eq!(patches(&commands)[0]["metadata"]["finalizers"], json!([]));
    let (flow, _) = fixture.go_on(flow, found(Err(failure(Code::NotFound))));
    assert_eq!(
        outcome(&flow),
        Some(&Outcome::Published),
        "the object is gone, as it should be"
    );
}

#[test]
fn what_stands_already_is_not_written() {
    let mut fixture = Fixture::of(machine(1, json!({"status": {"phase": "x"}})), &[Role::Lifecycle]);
    let (flow, commands) = fixture.concludes(json!({"status": {"phase": "x"}}));
    assert!(patches(&commands).is_empty());
    assert_eq!(outcome(&flow), Some(&Outcome::Published));
}

#[test]
fn a_write_that_was_not_sent_ends_its_publication() {
    for (why, ended) in [
        (NotSent::LeaseLost, Outcome::LeaseLost),
        (NotSent::Cut, Outcome::Stopped),
    ] {
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.concludes(json!({"status": {"phase": "x"}}));
        assert_eq!(terms(&commands), [&Terms::ANY_TIME]);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::NotSent(why));
        assert_eq!(outcome(&flow), Some(&ended));
        assert_eq!((fixture.work.writes.len(), fixture.work.behind), (0, None));
    }
}

/// A publication of `status.phase` whose write met a conflict.
fn conflicting(acted: bool) -> (Fixture, Flow<Phase>) {
    let mut fixture = Fixture::of(machine(1, json!({"status": {"phase": "a"}})), &[Role::Lifecycle]);
    let (flow, _) = fixture.concludes(json!({"status": {"phase": "b", "more": 1}}));
    fixture.work.acted = acted;
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
    assert!(asks_again(&commands), "{commands:?}");
    (fixture, flow)
}

#[test]
fn after_a_conflict_what_nobody_else_changed_is_written_on_the_new_version() {
    let (mut fixture, flow) = conflicting(false);
    let theirs = json!({"status": {"phase": "a", "theirs": true}});
    let (flow, commands) = fixture.go_on(flow, stands(5, theirs.clone()));
    assert_eq!(versions(&commands), ["5"]);
    assert_eq!(patches(&commands)[0]["status"], json!({"phase": "b", "more": 1}));
    let both = json!({"status": {"phase": "b", "more": 1, "theirs": true}});
    let (flow, _) = fixture.go_on(flow, stands(6, both));
    let Flow::End(ended) = flow else {
        panic!("{flow:?}")
    };
    let unseen = ended.unseen.expect("what stands was seen by no pass");
    assert_eq!(unseen.version().0, 1);
}

#[test]
fn what_stood_before_the_first_of_several_conflicts_was_seen_by_the_pass() {
    let (mut fixture, mut flow) = conflicting(false);
    for version in [5, 6] {
        let theirs = json!({"status": {"phase": "a", "theirs": version}});
        (flow, _) = fixture.go_on(flow, stands(version, theirs));
        (flow, _) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
    }
    let stands_already = json!({"status": {"phase": "b", "more": 1}});
    let (flow, _) = fixture.go_on(flow, stands(7, stands_already));
    let unseen = match flow {
        Flow::End(ended) => ended.unseen.map(|object| object.version().0),
        flow => panic!("{flow:?}"),
    };
    assert_eq!(unseen, Some(1));
}

#[test]
fn an_object_of_which_the_lease_is_lost_is_not_read_to_be_written() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.concludes(json!({"status": {"phase": "b"}}));
    fixture.now = at(20_000);
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
    assert!(!asks_again(&commands), "{commands:?}");
    assert_eq!(outcome(&flow), Some(&Outcome::LeaseLost));
}

#[test]
fn after_a_conflict_a_value_that_somebody_else_changed_is_never_overwritten() {
    let theirs = json!({"status": {"phase": "theirs"}});
    let (mut fixture, flow) = conflicting(false);
    let (flow, _) = fixture.go_on(flow, stands(5, theirs.clone()));
    let conflict = Outcome::Discarded(Discard::Conflict(vec!["status.phase".into()]));
    assert_eq!(outcome(&flow), Some(&conflict));
    let (mut fixture, flow) = conflicting(true);
    let (flow, commands) = fixture.go_on(flow, stands(5, theirs));
    assert_eq!(patches(&commands)[0]["status"], json!({"more": 1}));
    let (flow, _) = fixture.go_on(flow, stands(6, json!({"status": {"phase": "theirs", "more": 1}})));
    let Flow::End(ended) = flow else {
        panic!("{flow:?}")
    };
    assert_eq!(ended.events[0].reason, "EditDropped");
}

#[test]
fn a_write_whose_answer_was_lost_is_looked_at_by_another_pass_only_if_the_object_has_another_version() {
    for (version, is_unseen) in [(1, false), (2, true)] {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.concludes(json!({"status": {"phase": "b"}}));
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
        assert!(asks_again(&commands));
        let stands_already = json!({"status": {"phase": "b"}});
        let (flow, commands) = fixture.go_on(flow, stands(version, stands_already));
        assert!(patches(&commands).is_empty(), "it stands");
        let Flow::End(ended) = flow else {
            panic!("{flow:?}")
        };
        assert_eq!(ended.unseen.is_some(), is_unseen, "{version}");
    }
}

#[test]
fn another_object_at_the_same_name_is_left_alone() {
    let (mut fixture, flow) = conflicting(true);
    let (flow, _) = fixture.go_on(flow, stands(5, json!({"metadata": {"uid": "another"}})));
    assert_eq!(outcome(&flow), Some(&Outcome::Discarded(Discard::Replaced)));
}

#[test]
fn an_object_that_is_gone_is_not_written_and_one_that_cannot_be_read_is_a_failure() {
    let (mut fixture, flow) = conflicting(false);
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::NotFound))));
    assert_eq!(outcome(&flow), Some(&Outcome::Discarded(Discard::Gone)));
    assert!(commands.iter().any(|c| matches!(c, Command::Gone { .. })));
    for event in [found(Err(failure(Code::Unavailable))), PhaseEvent::Cut(0)] {
        let (mut fixture, flow) = conflicting(false);
        let (flow, _) = fixture.go_on(flow, event);
        assert!(matches!(outcome(&flow), Some(Outcome::Failed(_))), "{flow:?}");
    }
}

#[test]
fn an_object_that_is_gone_is_as_it_should_be_only_if_its_last_finalizer_was_to_go() {
    let gone = || found(Err(failure(Code::NotFound)));
    let discarded = Outcome::Discarded(Discard::Gone);
    let status = json!({"status": {"phase": "b"}});
    let finalizers = json!({"metadata": {"finalizers": []}});
    for (patch, expected) in [(status, discarded), (finalizers, Outcome::Published)] {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.concludes(patch.clone());
        let (flow, commands) = fixture.go_on(flow, gone());
        assert_eq!(outcome(&flow), Some(&expected), "when {patch} is written");
        assert!(commands.iter().any(|c| matches!(c, Command::Gone { .. })));
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.concludes(patch.clone());
        let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
        assert!(asks_again(&commands), "{commands:?}");
        let (flow, _) = fixture.go_on(flow, gone());
        assert_eq!(outcome(&flow), Some(&expected), "when it is read after {patch}");
    }
}

#[test]
fn a_refused_write_fails_the_publication_at_once() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.concludes(json!({"status": {"phase": "b"}}));
    let (flow, _) = fixture.go_on(flow, found(Err(failure(Code::PermissionDenied))));
    assert!(matches!(outcome(&flow), Some(Outcome::Failed(f)) if f.code == Code::PermissionDenied));
}

#[test]
fn an_object_that_changes_faster_than_it_is_written_is_a_failure_in_the_end() {
    let (mut fixture, mut flow) = conflicting(false);
    for version in 10.. {
        let (next, commands) = fixture.go_on(
            flow,
            stands(version, json!({"status": {"phase": "a", "n": version}})),
        );
        if let Some(outcome) = outcome(&next) {
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
            assert_eq!(version, 10 + u64::from(REBASES));
            return;
        }
        assert_eq!(patches(&commands).len(), 1);
        (flow, _) = fixture.go_on(next, found(Err(failure(Code::Aborted))));
    }
}

#[test]
fn what_the_api_server_did_not_keep_is_said_and_not_written_again_on_the_same_version() {
    let pruned = || json!({"status": {"phase": "b", "pruned": 1}});
    let stand = || json!({"status": {"phase": "b"}});
    let says = |commands: &[Command]| {
        let says =
            |c: &Command| matches!(c, Command::Report(Report::NotKept(path)) if path == "status.pruned");
        commands.iter().any(says)
    };
    let mut fixture = Fixture::of(machine(2, stand()), &[Role::Lifecycle]);
    let (flow, commands) = fixture.concludes(pruned());
    assert_eq!(patches(&commands), [&json!({"status": {"pruned": 1}})]);
    let (flow, _) = fixture.go_on(flow, stands(2, stand()));
    assert_eq!(outcome(&flow), Some(&Outcome::Published));
    let written = std::mem::take(&mut fixture.work.written);
    for (version, patch, writes) in [
        (2, pruned(), 0),
        (2, json!({"status": {"phase": "c", "pruned": 1}}), 1),
        // Whoever changed the object may have changed its definition, too.
        (3, pruned(), 1),
    ] {
        let mut next = Fixture::of(machine(version, stand()), &[Role::Lifecycle]);
        next.work.written = written.clone();
        let (_, commands) = next.concludes(patch);
        assert_eq!(
            (patches(&commands).len(), says(&commands)),
            (writes, writes == 0),
            "{version}"
        );
    }
}

#[test]
fn what_was_written_stands_on_the_versions_of_the_later_writes_of_the_same_pass() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.concludes(json!({"status": {"phase": "x"}, "metadata": {"labels": {"a": "b"}}}));
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let (flow, _) = fixture.go_on(flow, stands(2, labelled));
    let version = |fixture: &Fixture| {
        fixture
            .work
            .written
            .values()
            .map(|it| it.version.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(version(&fixture), [2]);
    fixture.go_on(flow, stands(3, json!({"status": {"phase": "x"}})));
    assert_eq!(version(&fixture), [3, 3]);
}

/// A pass of a deleting object, with an entry of this fate. The lifecycle policy removes its finalizer.
fn removing(fate: Fate, finalizers: &Value) -> (Flow<Phase>, Vec<Command>) {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"pending": [entry("a")]}});
    let mut fixture = Fixture::of(machine(1, deleting), &[Role::Lifecycle]);
    let entry = serde_json::from_value(entry("a")).expect("an entry");
    fixture.work.found = vec![KnownEntry { entry, fate }];
    let (flow, commands) = fixture.concludes(json!({"metadata": {"finalizers": finalizers}}));
    match flow {
        Flow::Wait(_) => fixture.go_on(
            flow,
            stands(
                2,
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
        ),
        flow => (flow, commands),
    }
}

#[test]
fn the_finalizer_stays_while_a_create_may_have_happened_that_nobody_accounted_for() {
    for (fate, finalizers) in [
        (Fate::Resolved(Resolution::Unknown("why".into())), json!([])),
        (Fate::Resolved(Resolution::Done("{}".into())), json!([])),
        (Fate::Resolved(Resolution::Done("{}".into())), json!(null)),
    ] {
        let (flow, commands) = removing(fate.clone(), &finalizers);
        assert!(
            patches(&commands)
                .iter()
                .all(|p| p["metadata"].get("finalizers").is_none()),
            "{fate:?}"
        );
        let Flow::End(ended) = flow else {
            panic!("{flow:?}")
        };
        let medium = Some(Next::Retry {
            class: RetryClass::Medium,
            failure: None,
        });
        assert_eq!(ended.next, medium);
    }
    for fate in [Fate::Resolved(Resolution::Absent), Fate::NeverSent] {
        let (_, commands) = removing(fate, &json!([]));
        assert_eq!(patches(&commands)[0]["metadata"]["finalizers"], json!([]));
    }
    let kept = json!([crate::reconcile::fixture::FINALIZER]);
    let (flow, _) = removing(Fate::Resolved(Resolution::Done("{}".into())), &kept);
    assert!(
        matches!(&flow, Flow::End(ended) if ended.next == Some(Next::Settled(None))),
        "it was not to go: {flow:?}"
    );
}

#[test]
fn entries_whose_outcome_is_known_go_with_the_conclusion_and_no_others() {
    let pending = json!({"status": {"pending": [entry("a"), entry("b")]}});
    let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
    let found = |key: &str, fate| KnownEntry {
        entry: serde_json::from_value(entry(key)).expect("an entry"),
        fate,
    };
    let done = Fate::Resolved(Resolution::Done("{}".into()));
    for gone in [
        Fate::Refused,
        Fate::NeverSent,
        done,
        Fate::Resolved(Resolution::Absent),
    ] {
        fixture.work.found = vec![found("a", gone), found("b", Fate::Open)];
        let (_, commands) = fixture.concludes(json!(null));
        assert_eq!(patches(&commands)[0]["status"]["pending"], json!([entry("b")]));
    }
}

#[test]
fn a_list_of_entries_that_somebody_emptied_is_left_as_it_is() {
    let emptied = json!({"status": {"pending": []}});
    let mut fixture = Fixture::of(machine(1, emptied), &[Role::Lifecycle]);
    assert!(patches(&fixture.concludes(json!(null)).1).is_empty());
}

#[test]
fn the_time_for_which_a_doubt_stands_is_published_in_steps_of_ten_seconds_or_more() {
    for (visible_within, waited, written) in [
        (100_000, 9_999, None),
        (100_000, 10_000, Some(10_000)),
        (100_000, 99_999, Some(90_000)),
        (100_000, 900_000, Some(100_000)),
        (315_000, 11_500, Some(10_000)),
        (3_200_000, 99_999, None),
        (3_200_000, 100_000, Some(100_000)),
        (8_000, 7_999, Some(6_000)),
        (8_000, 8_000, Some(8_000)),
    ] {
        let mut fixture = Fixture::of(
            machine(1, json!({"status": {"pending": [entry("a")]}})),
            &[Role::Lifecycle],
        );
        fixture.bind(|binding| {
            let catalogue = std::sync::Arc::make_mut(&mut binding.catalogue);
            catalogue
                .operations
                .get_mut("vm.clone")
                .expect("it is there")
                .visible_within = ms(visible_within);
        });
        let boot = fixture.frame.started.boot;
        fixture
            .work
            .histories
            .insert("a".into(), EntryHistory::seen(boot, ms(waited)));
        fixture.work.found = vec![KnownEntry {
            entry: serde_json::from_value(entry("a")).expect("an entry"),
            fate: Fate::Resolved(Resolution::Unknown("why".into())),
        }];
        let (_, commands) = fixture.concludes(json!(null));
        let patched = patches(&commands)
            .first()
            .and_then(|patch| patch["status"].get("pending").cloned())
            .map(|pending| pending[0]["waited"].clone());
        assert_eq!(patched, written.map(Value::from), "{waited} of {visible_within}");
    }
}

/// The conditions after a pass that ended at this time, of an object with the create `a` in doubt since `at(0)` and with
/// the conditions that stand. `None` if nothing was written.
fn doubted(now: u64, stands: &Value, why: &str) -> Option<Value> {
    let rest = json!({"status": {"pending": [entry("a")], "conditions": stands}});
    let mut fixture = Fixture::of(machine(1, rest), &[Role::Lifecycle]);
    fixture.frame.started = at(now);
    let history = EntryHistory::seen(at(0).boot, ms(0));
    fixture.work.histories.insert("a".into(), history);
    fixture.work.found = vec![KnownEntry {
        entry: serde_json::from_value(entry("a")).expect("an entry"),
        fate: Fate::Resolved(Resolution::Unknown(why.into())),
    }];
    let (_, commands) = fixture.concludes(json!(null));
    let patches = patches(&commands);
    patches.first()?["status"].get("conditions").cloned()
}

#[test]
fn a_create_in_doubt_is_a_condition_that_says_until_when_and_goes_with_the_doubt() {
    let conditions = doubted(1, &json!([]), "request 1").expect("it is said");
    let condition = &conditions[0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("polity.dev/CreateInDoubt"), &json!("MayStillShow"))
    );
    // It began at 2026-01-01T00:00:00Z, and a VM is visible after a minute.
    assert_eq!(
        condition["message"],
        "it is not known whether these creates happened: vm.clone of m, the cloud may still show it until \
         2026-01-01T00:01:00Z (request 1)"
    );
    // Neither the time that passes nor another request of the cloud is news.
    assert_eq!(doubted(9_000, &conditions, "request 2"), None);
    let later = doubted(60_000, &conditions, "request 3").expect("the time is over");
    assert_eq!(later[0]["reason"], "CloudCannotTell");
    assert_eq!(later[0]["lastTransitionTime"], condition["lastTransitionTime"]);

    let stands = json!({"status": {"conditions": conditions}});
    let mut fixture = Fixture::of(machine(1, stands), &[Role::Lifecycle]);
    let (_, commands) = fixture.concludes(json!(null));
    assert_eq!(patches(&commands)[0]["status"]["conditions"], json!([]));
}

/// The conditions and the Events of a pass whose identity policy failed like this.
fn denied(stands: &Value, failure: Failure) -> (Option<Value>, Vec<Event>) {
    let rest = json!({"status": {"conditions": stands}});
    let mut fixture = Fixture::of(machine(1, rest), &[Role::Identity, Role::Lifecycle]);
    let (flow, _) = fixture.enter(stepping(Role::Identity));
    let conclusion = Conclusion {
        next: Next::Retry {
            class: RetryClass::Short,
            failure: Some(failure),
        },
        ..conclusion(json!(null))
    };
    let (flow, commands) = fixture.go_on(flow, concluded(Some(Verdict::Denied), conclusion));
    let written = patches(&commands)
        .first()
        .map(|patch| patch["status"]["conditions"].clone());
    let flow = match &written {
        None => flow,
        Some(conditions) => {
            let written = json!({"status": {"conditions": conditions}});
            fixture.go_on(flow, self::stands(2, written)).0
        }
    };
    match flow {
        Flow::End(ended) => (written, ended.events),
        flow => panic!("{flow:?}"),
    }
}

#[test]
fn an_identity_that_fails_is_said_whole_on_its_object_and_once_for_each_reason() {
    let long = "request 1 ".repeat(2_000);
    let failed = |message: &str| Failure::new(Code::Unavailable, message).of("session.open");
    let (written, events) = denied(&json!([]), failed(&long));
    let conditions = written.expect("it is said");
    let condition = &conditions[0];
    assert_eq!(
        ["type", "status", "reason"].map(|field| condition[field].as_str().unwrap_or_default()),
        ["polity.dev/Reconciled", "False", "Unavailable"]
    );
    let whole = format!("the identity policy failed at session.open: unavailable: {long}");
    assert_eq!(condition["message"], whole);
    assert_eq!(events[0].reason, "IdentityFailed");
    assert_eq!(events[0].message, whole[..MESSAGE]);

    let (written, events) = denied(&conditions, failed("request 2"));
    assert_eq!(
        (written, events),
        (None, Vec::new()),
        "only the request is another"
    );
    for news in [
        Failure::new(Code::PermissionDenied, "request 2").of("session.open"),
        Failure::new(Code::Unavailable, "request 2").of("secret"),
    ] {
        let (written, events) = denied(&conditions, news);
        assert!(written.is_some() && events.len() == 1, "{written:?}");
    }

    let stands = json!({"status": {"conditions": conditions}});
    let mut fixture = Fixture::of(machine(1, stands), &[Role::Identity, Role::Lifecycle]);
    let (_, commands) = fixture.concludes(json!(null));
    assert_eq!(
        patches(&commands)[0]["status"]["conditions"],
        json!([]),
        "it does not fail any more"
    );
}

#[test]
fn a_doubt_that_an_older_driver_cannot_look_for_is_a_condition() {
    let mut entry = entry("a");
    merge::apply(&json!({"stamp": 2}), &mut entry);
    let pending = json!({"status": {"pending": [entry]}});
    let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
    fixture.work.found = vec![KnownEntry {
        entry: serde_json::from_value(entry).expect("an entry"),
        fate: Fate::Resolved(Resolution::Unknown("why".into())),
    }];
    let (_, commands) = fixture.concludes(json!(null));
    let condition = &patches(&commands)[0]["status"]["conditions"][1];
    assert_eq!(condition["type"], "polity.dev/DriverTooNew");
    assert!(
        condition["message"]
            .as_str()
            .is_some_and(|said| said.contains("stamp 2")),
        "{condition}"
    );
}

#[test]
fn a_fault_stays_one_whatever_becomes_of_its_condition() {
    for event in [
        found(Err(failure(Code::PermissionDenied))),
        found(Err(failure(Code::NotFound))),
    ] {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![]);
        let (flow, _) = fixture.go_on(flow, event);
        assert_eq!(outcome(&flow), Some(&Outcome::Faulted));
        let Flow::End(ended) = flow else {
            panic!("{flow:?}")
        };
        assert_eq!(ended.events[0].reason, "PolicyFault");
    }
}

#[test]
fn a_defect_of_the_host_is_said_on_its_object_and_blames_no_policy() {
    let mut fixture = Fixture::new();
    let phase = Publishing::bug("Asking got Opened".into(), &fixture.frame);
    let (flow, commands) = fixture.enter(Phase::Publishing(phase));
    let condition = &patches(&commands)[0]["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["message"]),
        (&json!("polity.dev/HostDefect"), &json!("Asking got Opened"))
    );
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::PermissionDenied))));
    assert_eq!(outcome(&flow), Some(&Outcome::Bug("Asking got Opened".into())));
    assert!(
        !commands
            .iter()
            .any(|c| matches!(c, Command::Report(Report::Faulted(_))))
    );
}

#[test]
fn events_are_few_and_of_a_length_that_api_servers_take() {
    let mut fixture = Fixture::new();
    let event = Event {
        kind: EventType::Normal,
        reason: "R".repeat(1_000),
        message: "m".repeat(10_000),
    };
    let (flow, _) = fixture.enter(stepping(Role::Lifecycle));
    let conclusion = Conclusion {
        events: vec![event; 100],
        ..conclusion(json!(null))
    };
    let (flow, _) = fixture.go_on(flow, concluded(None, conclusion));
    let Flow::End(ended) = flow else {
        panic!("{flow:?}")
    };
    assert_eq!(ended.events.len(), 16);
    assert_eq!(
        (ended.events[0].reason.len(), ended.events[0].message.len()),
        (REASON, MESSAGE)
    );
}

#[test]
fn conditions_of_the_host_keep_the_time_of_their_transition_and_those_of_others_stay() {
    let conditions = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "polity.dev/Quarantined", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}});
    let mut fixture = Fixture::of(machine(1, conditions), &[Role::Lifecycle]);
    let (flow, _) = fixture.enter(stepping(Role::Lifecycle));
    let (_, commands) = fixture.go_on(flow, stepped(pending(vec![])));
    let written = &patches(&commands)[0]["status"]["conditions"];
    assert_eq!(written[0], json!({"type": "Ready", "status": "True"}));
    assert_eq!(written[1]["lastTransitionTime"], "2025-01-01T00:00:00Z");
    // The conditions are removed when nothing blocks the object any more.
    let (_, commands) = fixture.concludes(json!(null));
    assert_eq!(
        patches(&commands)[0]["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}])
    );
}

#[test]
fn an_event_that_fits_no_row_is_a_defect() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.concludes(json!({"status": {"phase": "x"}}));
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Listed(0));
    assert!(
        matches!(&flow, Flow::Bug(what) if what.starts_with("Publishing got Listed")),
        "{flow:?}"
    );
}

#[test]
fn after_a_write_ahead_that_met_a_conflict_the_object_is_read_before_it_is_written() {
    let mut fixture = Fixture::new();
    fixture.work.behind = Some(crate::object::ResourceVersion(1));
    let (flow, commands) = fixture.concludes(json!({"status": {"phase": "x"}}));
    assert!(
        asks_again(&commands) && patches(&commands).is_empty(),
        "{commands:?}"
    );
    let (_, commands) = fixture.go_on(flow, stands(5, json!({})));
    assert_eq!(versions(&commands), ["5"]);
}

#[test]
fn only_the_status_is_written_as_a_subresource_and_a_write_on_its_way_may_land() {
    let mut fixture = Fixture::new();
    let patch = json!({"status": {"phase": "x"}, "metadata": {"labels": {"a": "b"}}});
    let subresource = |commands: &[Command]| {
        commands.iter().find_map(|command| match command {
            Command::Call {
                call: Call::Write(Write::Patch { subresource, .. }),
                ..
            } => Some(subresource.clone()),
            _ => None,
        })
    };
    let in_flight = |flow: &Flow<Phase>| matches!(flow, Flow::Wait(phase) if phase.writes_primary());
    let (flow, commands) = fixture.concludes(patch);
    assert_eq!(subresource(&commands), Some(None));
    assert!(in_flight(&flow));
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (flow, commands) = fixture.go_on(flow, stands(2, labels));
    assert_eq!(subresource(&commands), Some(Some("status".into())));
    let (flow, _) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
    assert!(!in_flight(&flow), "it is read");
}

#[test]
fn an_object_that_its_policy_cannot_read_says_so() {
    let undecodable = |class, code, notes: Vec<String>| {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.enter(stepping(Role::Lifecycle));
        let next = Next::Retry {
            class,
            failure: Some(failure(code)),
        };
        let conclusion = Conclusion {
            next,
            notes,
            ..conclusion(json!(null))
        };
        let (_, commands) = fixture.go_on(flow, concluded(None, conclusion));
        let patch = patches(&commands)
            .first()
            .map(|patch| patch["status"]["conditions"][0]["type"].clone());
        patch.is_some_and(|kind| kind == "polity.dev/Undecodable")
    };
    let wrong = Code::InvalidArgument;
    assert!(undecodable(RetryClass::Long, wrong, vec![]));
    assert!(
        !undecodable(RetryClass::Long, wrong, vec!["A-01".into()]),
        "it has read something"
    );
    assert!(!undecodable(RetryClass::Short, wrong, vec![]));
    assert!(!undecodable(RetryClass::Long, Code::Unavailable, vec![]));
}

#[test]
fn an_object_that_is_released_loses_every_entry_and_the_finalizer_of_its_lifecycle_alone() {
    let finalizers = json!([crate::reconcile::fixture::FINALIZER, "other/x"]);
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
    let object = json!({"metadata": deleting, "status": {"pending": [entry("a")]}});
    let mut fixture = Fixture::of(machine(1, object), &[Role::Identity, Role::Lifecycle]);
    let (flow, _) = fixture.enter(stepping(Role::Identity));
    let released = Some(crate::contract::Verdict::Released);
    let (flow, commands) = fixture.go_on(flow, concluded(released, conclusion(json!(null))));
    assert_eq!(patches(&commands)[0]["status"], json!({"pending": null}));
    let (flow, commands) = fixture.go_on(flow, stands(2, json!({"metadata": deleting})));
    assert_eq!(
        patches(&commands)[0]["metadata"]["finalizers"],
        json!(["other/x"])
    );
    let left = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other/x"]}});
    let (flow, _) = fixture.go_on(flow, stands(3, left));
    let Flow::End(ended) = flow else {
        panic!("{flow:?}")
    };
    assert_eq!(
        (ended.outcome, ended.events[0].reason.as_str()),
        (Outcome::Released, "Released")
    );
}

#[test]
fn what_stands_in_the_way_of_an_object_is_said_on_it() {
    let kinds = |fixture: &mut Fixture| -> Vec<Value> {
        let (_, commands) = fixture.concludes(json!(null));
        let written = patches(&commands)
            .first()
            .map(|patch| patch["status"]["conditions"].clone());
        let all = written
            .and_then(|all| all.as_array().cloned())
            .unwrap_or_default();
        all.iter().map(|condition| condition["type"].clone()).collect()
    };
    let mut fixture = Fixture::new();
    assert!(kinds(&mut fixture).is_empty());
    fixture.frame.slowed = true;
    assert_eq!(kinds(&mut fixture), [json!("polity.dev/Slowed")]);
    let unreadable = json!({"status": {"pending": ["x"]}});
    let mut fixture = Fixture::of(machine(1, unreadable), &[Role::Lifecycle]);
    assert_eq!(kinds(&mut fixture), [json!("polity.dev/PendingUnreadable")]);
}

#[test]
fn a_quarantine_is_said_although_somebody_else_writes_at_the_same_time() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![]);
    let said = patches(&commands)[0]["status"]["conditions"].clone();
    assert_eq!(said[0]["type"], "polity.dev/Quarantined");
    let (flow, commands) = fixture.go_on(flow, found(Err(failure(Code::Aborted))));
    assert!(asks_again(&commands), "{commands:?}");
    let theirs = json!({"status": {"seen": "x"}});
    let (flow, commands) = fixture.go_on(flow, stands(5, theirs));
    assert_eq!(versions(&commands), ["5"]);
    assert_eq!(patches(&commands)[0]["status"], json!({"conditions": said}));
    let both = json!({"status": {"seen": "x", "conditions": said}});
    let (flow, _) = fixture.go_on(flow, stands(6, both));
    assert_eq!(outcome(&flow), Some(&Outcome::Faulted));
}

/// A publication of `status.phase` whose writes a worker drafts.
fn drafting() -> (Fixture, Phase, Command) {
    let mut fixture = Fixture::new();
    let phase = Publishing::begin(Publication {
        edits: edits(&fixture.frame, json!({"status": {"phase": "b"}})),
        ..Publication::of_host(&fixture.frame, HostCondition::is("polity.dev/Quarantined", ""))
    });
    let (flow, mut commands) = fixture.on(Phase::Publishing(phase), PhaseEvent::Entered);
    let Flow::Wait(phase) = flow else {
        panic!("{flow:?}")
    };
    let command = commands.pop().expect("a draft");
    assert!(!phase.writes_primary(), "nothing is under way");
    (fixture, phase, command)
}

#[test]
fn a_worker_drafts_the_writes_and_a_publication_without_them_fails() {
    let (mut fixture, phase, command) = drafting();
    let (_, commands) = fixture.go_on(Flow::Wait(phase), computed(command));
    assert_eq!(patches(&commands)[0]["status"]["phase"], "b");
    let (mut fixture, phase, _) = drafting();
    let none = PhaseEvent::Reply(0, Reply::Drafted(Err(failure(Code::Internal))));
    let (flow, _) = fixture.go_on(Flow::Wait(phase), none);
    assert!(matches!(outcome(&flow), Some(Outcome::Failed(failure)) if failure.code == Code::Internal));
}
