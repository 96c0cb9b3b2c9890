//! Tests of the rows of [`Asking`], and of single answers.

use std::sync::Arc;

use super::*;
use crate::binding::{Grant, Limits};
use crate::call::Scope;
use crate::call::WatchEvent;
use crate::contract::{ListQuery, ObjectRef};
use crate::key::PassId;
use crate::object::{Object, ResourceVersion};
use crate::reconcile::fixture::{
    Fixture, answer, ask, config_map, config_maps, failure, found, get, pending, stepped,
};
use crate::reconcile::{AnswerDelta, Dependency, Report};
use crate::reconcile::{Phase, fixture::stepping};
use crate::selection::Selection;
use serde_json::{Value, json};

/// The answers in the journal when the policy is called again.
fn journal(commands: &[Command]) -> Option<Vec<Result<Json, Failure>>> {
    let journal = crate::reconcile::fixture::journal(commands)?;
    Some(journal.into_iter().map(|entry| entry.answer).collect())
}

fn code(commands: &[Command]) -> Option<Code> {
    let journal = journal(commands)?;
    journal[0].as_ref().err().map(|failure| failure.code)
}

fn listed(fixture: &mut Fixture, objects: Vec<Value>) {
    fixture.cache.open(&config_maps());
    let objects = objects.into_iter().map(Object::new).collect();
    let version = ResourceVersion(9);
    fixture
        .cache
        .observe(&config_maps(), WatchEvent::Listed { objects, version });
}

fn site(data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": data},
        "metadata": {"namespace": "default", "name": "site", "uid": "s", "resourceVersion": "5"}})
}

#[test]
fn what_a_watch_knows_is_answered_at_once_and_depended_on() {
    let mut fixture = Fixture::new();
    listed(&mut fixture, vec![site("v")]);
    let (_, commands) = fixture.requests(vec![config_map(false)]);
    let journal = journal(&commands).expect("the policy is called again");
    assert!(
        journal[0].as_ref().is_ok_and(|json| json.contains("\"v\"")),
        "{journal:?}"
    );
    assert_eq!(fixture.work.dependencies.len(), 1);
    assert!(fixture.work.looked_at.contains(&config_maps()));
}

#[test]
fn a_pass_that_looks_at_a_watch_says_so_once_and_as_long_as_it_is_not_open_each_time() {
    let watches = |commands: &[Command]| {
        let is_watch = |command: &&Command| matches!(command, Command::Watch(_));
        commands.iter().filter(is_watch).count()
    };
    for (is_open, count) in [(true, 1), (false, 3)] {
        let mut fixture = Fixture::new();
        if is_open {
            listed(&mut fixture, vec![site("v")]);
        }
        let asks = ["b", "c", "d"].map(labelled);
        let (_, commands) = fixture.requests(asks.to_vec());
        assert_eq!(watches(&commands), count, "{commands:?}");
    }
}

#[test]
fn a_watch_that_has_not_listed_is_waited_for_and_not_found_is_said_only_by_one_that_has() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![config_map(false)]);
    let awaits = |command: &Command| matches!(command, Command::AwaitList { slot: 0, .. });
    assert!(commands.iter().any(awaits), "{commands:?}");
    listed(&mut fixture, vec![]);
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Listed(0));
    assert_eq!(code(&commands), Some(Code::NotFound));
    assert_eq!(
        fixture.work.dependencies.len(),
        1,
        "one that comes enqueues the key"
    );
}

#[test]
fn a_watch_that_never_lists_says_why() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![config_map(false)]);
    fixture.cache.open(&config_maps());
    let forbidden = WatchEvent::Failed("configmaps is forbidden".into());
    fixture.cache.observe(&config_maps(), forbidden);
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
    let journal = journal(&commands).expect("the policy is called again");
    let failure = journal[0].as_ref().expect_err("it cannot be said");
    assert_eq!(failure.code, Code::Unavailable);
    assert!(failure.message.ends_with("configmaps is forbidden"), "{failure}");
}

#[test]
fn latest_reads_through_and_an_answer_that_does_not_come_in_time_is_said() {
    let mut fixture = Fixture::new();
    listed(&mut fixture, vec![site("old")]);
    let (flow, _) = fixture.requests(vec![config_map(true)]);
    let (_, commands) = fixture.go_on(flow, found(Ok(site("new"))));
    let new = journal(&commands).expect("the policy is called again");
    assert!(
        new[0].as_ref().is_ok_and(|json| json.contains("\"new\"")),
        "{new:?}"
    );
    let (flow, _) = fixture.requests(vec![config_map(true)]);
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(0));
    assert_eq!(code(&commands), Some(Code::DeadlineExceeded));
}

#[test]
fn a_failure_to_look_is_no_not_found_and_nothing_depends_on_it() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![config_map(true)]);
    let (_, commands) = fixture.go_on(flow, found(Err(failure(Code::Unavailable))));
    assert_eq!(code(&commands), Some(Code::Unavailable));
    assert!(fixture.work.dependencies.is_empty());
}

#[test]
fn the_policy_waits_for_every_answer_and_each_question_is_asked_once() {
    let mut fixture = Fixture::new();
    let (flow, commands) = fixture.requests(vec![get(), config_map(true), get()]);
    let asked = commands.iter().filter(|c| {
        matches!(
            c,
            Command::Call {
                call: Call::Cloud(_) | Call::Read(_),
                ..
            }
        )
    });
    assert_eq!(asked.count(), 2, "{commands:?}");
    let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(1, Reply::objects(Ok(site("v")))));
    assert_eq!(journal(&commands), None);
    let (_, commands) = fixture.go_on(flow, answer(Ok(json!({}))));
    assert_eq!(journal(&commands).map(|journal| journal.len()), Some(2));
}

#[test]
fn what_is_not_granted_is_refused_and_said_of_the_binding() {
    let mut fixture = Fixture::new();
    let secret = ask(Question::Secret(ObjectRef {
        cluster: None,
        kind: crate::contract::Kind {
            api_version: "v1".into(),
            kind: "Secret".into(),
        },
        namespace: Some("default".into()),
        name: "s".into(),
    }));
    let (_, commands) = fixture.requests(vec![secret]);
    assert_eq!(code(&commands), Some(Code::PermissionDenied));
    assert!(
        commands
            .iter()
            .any(|c| matches!(c, Command::Report(Report::Ungranted(_))))
    );
    let plan = "{}".into();
    let (_, commands) = fixture.requests(vec![ask(Question::Credential(plan))]);
    assert_eq!(
        code(&commands),
        Some(Code::PermissionDenied),
        "credentials are for identities"
    );
}

#[test]
fn a_pass_asks_for_so_many_locks_and_for_the_same_one_as_often_as_it_likes() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| {
        *binding = binding
            .clone()
            .with_grants(vec![Grant::Lock(vec!["lock-*".into()])])
    });
    let lock = |number: usize, round: u32| {
        let question = Question::Lock(format!("lock-{number}"));
        Request::Ask(Ask { round, question })
    };
    let asks = (0..=LOCKS).map(|number| lock(number, 0)).chain([lock(0, 1)]);
    let (_, commands) = fixture.requests(asks.collect());
    let answers = journal(&commands).expect("a journal");
    let held = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((held, answers.len()), (LOCKS + 1, LOCKS + 2));
    let refused = answers[LOCKS].as_ref().map_err(|failure| failure.code);
    assert_eq!(refused, Err(Code::ResourceExhausted));
}

#[test]
fn a_lock_is_held_by_the_pass_that_took_it_and_busy_for_every_other() {
    let one = || ask(Question::Lock("one".into()));
    let said = |commands: &[Command]| journal(commands).map(|journal| journal[0].clone());
    let mut fixture = Fixture::new();
    let (_, commands) = fixture.requests(vec![one()]);
    assert_eq!(said(&commands), Some(Ok("\"held\"".into())));
    assert!(
        commands
            .iter()
            .any(|c| matches!(c, Command::Lock(name) if name == "one"))
    );
    let (binding, tenant) = (fixture.frame.key.binding.clone(), fixture.frame.tenant.clone());
    fixture.locks.take(&binding, &tenant, "one", PassId(7));
    let (_, commands) = fixture.requests(vec![one()]);
    assert_eq!(said(&commands), Some(Ok("\"busy\"".into())));
    assert!(!commands.iter().any(|c| matches!(c, Command::Lock(_))));
}

#[test]
fn an_answer_that_is_larger_than_the_room_is_refused() {
    for (limit, refused) in [(16, false), (15, true)] {
        for of_answer in [true, false] {
            let mut fixture = Fixture::new();
            fixture.bind(|binding| {
                let limits = &mut binding.spec.limits;
                *(if of_answer {
                    &mut limits.answer
                } else {
                    &mut limits.journal
                }) = limit + 1_000 * u64::from(!of_answer);
            });
            let (flow, _) = fixture.requests(vec![get()]);
            // `{"a":"xxxxxxxx"}` has 16 bytes.
            let text = "x".repeat(8 + 1_000 * usize::from(!of_answer));
            let (_, commands) = fixture.go_on(flow, answer(Ok(json!({"a": text}))));
            let expected = refused.then_some(Code::ResourceExhausted);
            assert_eq!(code(&commands), expected, "{limit} {of_answer}");
        }
    }
}

/// A list of ConfigMaps that a label selects.
fn labelled(label: &str) -> Request {
    ask(Question::Objects(ListQuery {
        namespace: Some("default".into()),
        label_selector: Some(format!("a={label}")),
        ..ListQuery::all(config_maps().kind)
    }))
}

fn many(fixture: &mut Fixture, count: usize) {
    let objects = (0..count).map(|number| {
        let mut one = site(&format!("s-{number:04}"));
        one["metadata"]["name"] = json!(format!("s-{number:04}"));
        one["metadata"]["labels"] = json!({"a": "b"});
        Object::new(one)
    });
    let version = ResourceVersion(1);
    let listed = WatchEvent::Listed {
        objects: objects.collect(),
        version,
    };
    fixture.cache.open(&config_maps());
    fixture.cache.observe(&config_maps(), listed);
}

#[test]
fn the_lists_of_a_step_share_the_room_that_is_left_in_the_journal() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| binding.spec.limits.journal = 15_000);
    many(&mut fixture, 40);
    let labels = ["b", "b,a!=x", "b,a!=y", "b,a!=z"];
    let (flow, commands) = fixture.requests(labels.map(labelled).to_vec());
    assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
    let journal = journal(&commands).expect("the policy is called again");
    let bytes: usize = journal.iter().flatten().map(|json| json.len()).sum();
    assert!(bytes <= 15_000, "{bytes}");
    let refused = journal.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 2, "two of four fit");
}

#[test]
fn what_there_is_no_room_for_is_not_even_looked_at() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| binding.spec.limits.answer = 0);
    many(&mut fixture, 40);
    let (_, commands) = fixture.requests(vec![labelled("b")]);
    assert_eq!(code(&commands), Some(Code::ResourceExhausted));
}

#[test]
fn a_long_list_that_the_last_pass_used_is_rendered_before_the_first_step() {
    let mut fixture = Fixture::new();
    many(&mut fixture, 40);
    let Request::Ask(asked) = labelled("b") else {
        panic!("a question")
    };
    let grant = fixture
        .frame
        .binding
        .spec
        .grants
        .iter()
        .find_map(|grant| match grant {
            crate::binding::Grant::Ask(grant) if grant.kind == "ConfigMap" => Some(grant.clone()),
            _ => None,
        });
    let selection = Selection::of(&asked.question).expect("selectors");
    let dependency = Dependency::new(grant.expect("a grant").into(), config_maps(), selection);
    fixture.frame.last.used = [(Arc::new((Role::Lifecycle, asked.question)), dependency)].into();
    let (flow, commands) = fixture.enter(stepping(Role::Lifecycle));
    assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
    assert_eq!(journal(&commands).map(|journal| journal.len()), Some(1));
}

#[test]
fn a_pass_asks_so_many_questions_about_objects_and_no_more() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| binding.spec.limits.dependencies = 2);
    many(&mut fixture, 1);
    let labels = ["b", "b,a!=x", "b,a!=y"];
    let mut requests = labels.map(labelled).to_vec();
    requests.push(config_map(false));
    let (_, commands) = fixture.requests(requests);
    let journal = journal(&commands).expect("the policy is called again");
    let refused = |answer: &Result<Json, Failure>| {
        answer
            .as_ref()
            .is_err_and(|failure| failure.code == Code::ResourceExhausted)
    };
    let refused = journal.iter().filter(|answer| refused(answer)).count();
    assert_eq!(refused, 2, "{journal:?}");
}

#[test]
fn questions_whose_watches_have_not_listed_count_among_those_of_their_pass() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| binding.spec.limits.dependencies = 2);
    let labels = ["b", "b,a!=x", "b,a!=y"];
    let (flow, _) = fixture.requests(labels.map(labelled).to_vec());
    many(&mut fixture, 1);
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Listed(0));
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Listed(1));
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Listed(2));
    let journal = journal(&commands).expect("the policy is called again");
    let codes = journal
        .iter()
        .map(|answer| answer.as_ref().err().map(|failure| failure.code));
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [None, None, Some(Code::ResourceExhausted)]
    );
}

#[test]
fn a_tenant_that_has_as_many_watches_as_it_may_opens_no_more() {
    let pods_of = |node: usize| {
        let kind = crate::contract::Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        };
        ask(Question::Objects(ListQuery {
            field_selector: Some(format!("spec.nodeName=node-{node}")),
            ..ListQuery::all(kind)
        }))
    };
    let mut fixture = Fixture::new();
    let grants = json!([{"ask": {"apiVersion": "v1", "kind": "Pod", "namespaces": ["*"]}}]);
    let grants = serde_json::from_value(grants).expect("grants");
    fixture.bind(|binding| *binding = binding.clone().with_grants(grants));
    let queue = fixture.frame.tenant_queue.clone();
    let scope = |node: usize| Scope {
        node: Some(format!("node-{node}")),
        kind: crate::contract::Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        namespace: None,
        ..config_maps()
    };
    let mut node = 0;
    while fixture.watches.has_room(&queue, 2) {
        fixture.cache.open(&scope(node));
        fixture.watches.open(&scope(node), &queue);
        node += 1;
    }
    let requests = [0, 9_001, 9_002, 9_003].map(pods_of);
    let (flow, commands) = fixture.requests(requests.to_vec());
    let watched = |command: &Command| match command {
        Command::Watch(scope) => scope.node.clone(),
        _ => None,
    };
    let watched: Vec<String> = commands.iter().filter_map(watched).collect();
    assert_eq!(watched, ["node-0", "node-9001", "node-9002"]);
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Cut(0));
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Cut(1));
    let (_, commands) = fixture.go_on(flow, PhaseEvent::Cut(2));
    let journal = journal(&commands).expect("the policy is called again");
    let failure = journal[3].as_ref().expect_err("it is one too many");
    assert_eq!(failure.code, Code::ResourceExhausted);
    assert!(failure.message.starts_with("Pod on node-9003: "), "{failure}");
}

#[test]
fn a_list_is_read_only_by_a_pass_that_may_hold_it() {
    let grows = |commands: &[Command]| commands.iter().any(|command| matches!(command, Command::Grow));
    let reads = |commands: &[Command]| {
        let reads = |command: &&Command| {
            matches!(
                command,
                Command::Call {
                    call: Call::Read(_),
                    ..
                }
            )
        };
        commands.iter().filter(reads).count()
    };
    let mut fixture = Fixture::new();
    let latest = ask(Question::Objects(ListQuery {
        namespace: Some("default".into()),
        latest: true,
        ..ListQuery::all(config_maps().kind)
    }));
    let (flow, commands) = fixture.requests(vec![latest]);
    assert_eq!((grows(&commands), reads(&commands)), (false, 1));
    let large = Object::new(site(&"x".repeat(1 << 20)));
    let (flow, commands) = fixture.go_on(
        flow,
        PhaseEvent::Reply(0, Reply::Objects(Ok(vec![large.clone()]))),
    );
    assert_eq!((grows(&commands), reads(&commands)), (true, 0), "it is dropped");
    fixture.grow();
    let (flow, commands) = fixture.go_on(flow, PhaseEvent::Grown);
    assert_eq!((grows(&commands), reads(&commands)), (false, 1), "and read again");
    let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(0, Reply::Objects(Ok(vec![large]))));
    assert!(
        !grows(&commands) && matches!(flow, Flow::Wait(Phase::Stepping(_))),
        "{flow:?}"
    );
}

#[test]
fn an_answer_that_read_through_enters_the_cache() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![config_map(true)]);
    let (_, commands) = fixture.go_on(flow, found(Ok(site("s"))));
    assert!(
        commands
            .iter()
            .any(|command| matches!(command, Command::Saw { .. })),
        "{commands:?}"
    );
}

#[test]
fn a_list_that_reads_through_is_asked_for_no_more_than_the_grant_reaches() {
    let mut fixture = Fixture::new();
    let query = ListQuery {
        label_selector: Some("a=b".into()),
        limit: 1,
        latest: true,
        ..ListQuery::all(config_maps().kind)
    };
    let (flow, commands) = fixture.requests(vec![ask(Question::Objects(query))]);
    let read = commands.iter().find_map(|command| match command {
        Command::Call {
            call: Call::Read(Question::Objects(query)),
            ..
        } => Some((query.namespace.as_deref(), query.limit)),
        _ => None,
    });
    assert_eq!(read, Some((Some("default"), 0)));
    let labelled = |name: &str| {
        let mut object = site(name);
        object["metadata"]["labels"] = json!({"a": "b"});
        object
    };
    let mut elsewhere = labelled("b");
    elsewhere["metadata"]["namespace"] = json!("other");
    let (_, commands) = fixture.go_on(flow, found(Ok(json!([labelled("a"), elsewhere]))));
    let journal = journal(&commands).expect("the policy is called again");
    let text = journal[0].as_ref().expect("one is no more than one");
    assert!(text.contains("default") && !text.contains("other"), "{text}");
}

#[test]
fn an_event_that_no_question_waits_for_is_a_defect() {
    let answered = |slot| PhaseEvent::Reply(slot, Reply::Answer(Ok(json!({}))));
    let read = |slot| PhaseEvent::Reply(slot, Reply::objects(Ok(json!([]))));
    // The first question is answered, the second is read, and the third waits for its watch.
    for (event, fits) in [
        (answered(1), true),
        (PhaseEvent::Cut(1), true),
        (PhaseEvent::Listed(2), true),
        (PhaseEvent::Cut(2), true),
        (answered(0), false),
        (answered(2), false),
        (answered(3), false),
        (read(0), false),
        (read(2), false),
        (PhaseEvent::Listed(0), false),
        (PhaseEvent::Listed(1), false),
        (PhaseEvent::Listed(3), false),
        (PhaseEvent::Cut(0), false),
        (PhaseEvent::Cut(3), false),
        (PhaseEvent::Grown, false),
    ] {
        let mut fixture = Fixture::new();
        let lock = ask(Question::Lock("one".into()));
        let (flow, _) = fixture.requests(vec![lock, get(), labelled("b")]);
        let told = format!("{event:?}");
        let (flow, _) = fixture.go_on(flow, event);
        assert_eq!(matches!(flow, Flow::Bug(_)), !fits, "{told}: {flow:?}");
    }
}

#[test]
fn an_event_that_fits_no_row_is_a_defect() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![get()]);
    let (flow, _) = fixture.go_on(flow, PhaseEvent::Grown);
    assert!(
        matches!(&flow, Flow::Bug(what) if what.starts_with("Asking got Grown")),
        "{flow:?}"
    );
}

#[test]
fn a_read_that_is_older_than_what_a_watch_showed_is_looked_at_again() {
    for (read, is_news) in [("4", true), ("5", false), ("6", false)] {
        let mut fixture = Fixture::new();
        listed(&mut fixture, vec![site("v")]);
        let (flow, _) = fixture.requests(vec![config_map(true)]);
        let mut older = site("v");
        crate::merge::apply(&json!({"metadata": {"resourceVersion": read}}), &mut older);
        fixture.go_on(flow, found(Ok(older)));
        let delta = fixture
            .work
            .dependencies
            .values()
            .map(|dependency| dependency.delta);
        let expected = if is_news {
            AnswerDelta::UNKNOWN
        } else {
            AnswerDelta::default()
        };
        assert_eq!(delta.collect::<Vec<_>>(), [expected], "version {read}");
    }
}

#[test]
fn what_the_last_pass_used_and_does_not_fit_any_more_is_left_to_be_asked_for() {
    let Request::Ask(asked) = config_map(false) else {
        panic!("a question")
    };
    let mut fixture = Fixture::new();
    listed(&mut fixture, vec![site("v")]);
    let look = fixture
        .with(|context| {
            ObjectQuestion::of(Arc::new((Role::Lifecycle, asked.question.clone())), None, context)
        })
        .0;
    let ObjectQuestion {
        asked,
        grant,
        scope,
        selection,
    } = look.expect("it is granted");
    let dependency = Dependency::new(grant, scope, selection);
    let Request::Ask(latest) = config_map(true) else {
        panic!("a question")
    };
    // Questions for the latest object, and questions of another role, are not prefetched.
    fixture.frame.last.used = [
        (Arc::new((Role::Identity, asked.1.clone())), dependency.clone()),
        (asked, dependency.clone()),
        (Arc::new((Role::Lifecycle, latest.question)), dependency),
    ]
    .into();
    let bytes = Object::new(site("v")).json().len() as u64;
    for (limit, known) in [(bytes, 1), (bytes - 1, 0)] {
        fixture.bind(|binding| binding.spec.limits.answer = limit);
        let (_, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert_eq!(
            journal(&commands).map(|journal| journal.len()),
            Some(known),
            "{limit}"
        );
    }
}

/// A pass whose last pass used these parts of an object of the cluster. Returns what the first step knows.
fn begun(limits: impl Fn(&mut Limits), parts: &[&str]) -> (Fixture, Flow<Phase>, usize) {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| limits(&mut binding.spec.limits));
    listed(&mut fixture, vec![site("v")]);
    let used = parts.iter().map(|part| {
        let Request::Ask(mut asked) = config_map(false) else {
            panic!("a question")
        };
        if let Question::Object(query) = &mut asked.question {
            query.projection = part.split_whitespace().map(str::to_owned).collect();
        }
        let look = fixture.with(|context| {
            ObjectQuestion::of(Arc::new((Role::Lifecycle, asked.question.clone())), None, context)
        });
        let ObjectQuestion {
            asked,
            grant,
            scope,
            selection,
        } = look.0.expect("it is granted");
        (asked, Dependency::new(grant, scope, selection))
    });
    fixture.frame.last.used = used.collect::<Vec<_>>().into();
    let (flow, commands) = fixture.enter(stepping(Role::Lifecycle));
    let known = journal(&commands).map_or(0, |journal| journal.len());
    (fixture, flow, known)
}

#[test]
fn what_the_last_pass_used_makes_room_for_what_this_one_asks() {
    for (entries, dependencies, left) in [(1, 9, 1), (9, 1, 1), (2, 2, 2)] {
        let limits = |limits: &mut Limits| (limits.entries, limits.dependencies) = (entries, dependencies);
        let (mut fixture, flow, known) = begun(limits, &["data"]);
        assert_eq!(known, 1);
        let (_, commands) = fixture.go_on(flow, stepped(pending(vec![labelled("b")])));
        let answers = journal(&commands).expect("the policy is called again");
        assert_eq!(answers.len(), left, "{entries} {dependencies}");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(fixture.work.dependencies.len(), left);
    }
}

#[test]
fn a_limit_that_is_lower_than_what_the_last_pass_used_is_no_fault_of_this_one() {
    for (entries, dependencies) in [(2, 9), (9, 2)] {
        let limits = |limits: &mut Limits| (limits.entries, limits.dependencies) = (entries, dependencies);
        let (_, flow, known) = begun(limits, &["data", "kind", "metadata"]);
        assert_eq!(known, 2);
        assert!(matches!(flow, Flow::Wait(_)), "{flow:?}");
    }
}

#[test]
fn what_the_last_pass_used_leaves_half_of_the_journal_to_this_one() {
    let one = Object::new(site("v")).json().len() as u64;
    for (journal, known) in [(2 * one, 1), (2 * one - 2, 0)] {
        let (_, _, found) = begun(|limits| limits.journal = journal, &[""]);
        assert_eq!(found, known, "{journal}");
    }
}

#[test]
fn what_an_api_server_does_not_have_is_not_found_and_depended_on() {
    let mut fixture = Fixture::new();
    let (flow, _) = fixture.requests(vec![config_map(true)]);
    let (_, commands) = fixture.go_on(flow, found(Err(failure(Code::NotFound))));
    assert_eq!(code(&commands), Some(Code::NotFound));
    assert_eq!(
        fixture.work.dependencies.len(),
        1,
        "one that comes enqueues the key"
    );
}

#[test]
fn while_one_list_is_read_no_other_is() {
    let latest = |label: &str| {
        let Request::Ask(mut asked) = labelled(label) else {
            panic!("a question")
        };
        if let Question::Objects(query) = &mut asked.question {
            query.latest = true;
        }
        Request::Ask(asked)
    };
    let reads = |commands: &[Command]| {
        let is_read = |command: &&Command| {
            matches!(
                command,
                Command::Call {
                    call: Call::Read(_),
                    ..
                }
            )
        };
        commands.iter().filter(is_read).count()
    };
    for second in [found(Ok(json!([]))), PhaseEvent::Cut(0)] {
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.requests(vec![latest("b"), latest("c"), get()]);
        assert_eq!(reads(&commands), 1);
        let cloud = PhaseEvent::Reply(2, Reply::Answer(Ok(json!({}))));
        let (flow, commands) = fixture.go_on(flow, cloud);
        assert_eq!(reads(&commands), 0);
        let (_, commands) = fixture.go_on(flow, second);
        assert_eq!(reads(&commands), 1);
    }
}

#[test]
fn a_question_that_was_read_when_all_that_a_pass_may_ask_was_answered_is_refused() {
    let mut fixture = Fixture::new();
    fixture.bind(|binding| binding.spec.limits.dependencies = 1);
    many(&mut fixture, 1);
    let (flow, _) = fixture.requests(vec![config_map(true), labelled("b")]);
    let (_, commands) = fixture.go_on(flow, found(Ok(site("v"))));
    let journal = journal(&commands).expect("the policy is called again");
    let refused = journal[0].as_ref().err().map(|failure| failure.code);
    assert_eq!(
        (refused, journal[1].is_ok()),
        (Some(Code::ResourceExhausted), true)
    );
}
