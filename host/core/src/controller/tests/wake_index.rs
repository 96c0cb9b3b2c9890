//! Tests of the changes that enqueue a key, and of those that do not.

use super::*;
use crate::contract::{Document, ObjectCreate, ObjectPatch};

/// A question for one of the ConfigMaps.
fn get(name: &str) -> Request {
    let query = crate::contract::ObjectQuery {
        object: map(name, 1, json!({})).reference(),
        projection: vec![],
        latest: false,
    };
    let question = Question::Object(query);
    Request::Ask(Ask { round: 0, question })
}

/// An act that creates this ConfigMap.
fn create(map: &Object) -> Request {
    let object = Document::from(map.json().clone());
    Request::Act(Act::Create(ObjectCreate {
        cluster: None,
        object,
    }))
}

/// A binding with a lifecycle policy and these grants.
fn granting(grants: Value) -> Binding {
    let grants = serde_json::from_value(grants).expect("grants");
    fixture_binding(&[Role::Lifecycle]).with_grants(grants)
}

#[test]
fn what_a_pass_deletes_is_no_news_to_it_and_what_changes_beside_it_is() {
    let held = |data: &str| {
        let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
        map("one", 5, json!({"data": {"x": data}, "metadata": metadata}))
    };
    let other = map("two", 4, json!({"data": {"x": "2"}}));
    for (shown, left, is_news) in [
        (vec![], vec![], false),
        (vec![other.clone()], vec![], true),
        (vec![], vec![held("1")], false),
        (vec![held("1")], vec![held("1")], false),
        (vec![], vec![held("2")], true),
        (vec![other], vec![held("1")], true),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        let one = map("one", 2, json!({"metadata": {"finalizers": ["a/b"]}}));
        harness.listed(config_maps(), vec![one, map("two", 3, json!({}))]);
        harness.step(pending(vec![delete("one")]));
        for shown in &shown {
            harness.shown(config_maps(), shown.clone());
        }
        let (id, _) = harness.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
        harness.reply(id, Reply::Objects(Ok(left.clone())));
        harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
        assert_eq!(harness.steps(), usize::from(is_news), "{shown:?} {left:?}");
    }
}

#[test]
fn what_a_pass_patches_on_the_version_that_it_names_is_no_news_to_it() {
    let one = |version: u64, data: Value| map("one", version, json!({"data": data}));
    let (theirs, ours) = (json!({"x": "2"}), json!({"y": "1"}));
    let both = json!({"x": "2", "y": "1"});
    for (pinned, shown, left, is_news) in [
        (true, vec![], one(3, ours.clone()), false),
        (true, vec![one(3, ours.clone())], one(3, ours.clone()), false),
        // Another one wrote after it.
        (
            true,
            vec![one(3, ours.clone()), one(4, both.clone())],
            one(3, ours.clone()),
            true,
        ),
        // The API server fills a default in.
        (true, vec![], one(3, both.clone()), false),
        (true, vec![one(3, both.clone())], one(3, both.clone()), false),
        // Without a version nobody knows who wrote what.
        (false, vec![], one(3, ours.clone()), true),
        (false, vec![one(3, theirs)], one(4, both), true),
        (false, vec![one(3, ours.clone())], one(3, ours), true),
        // Nothing changes.
        (false, vec![], one(2, json!({})), false),
    ] {
        let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap"}},
            {"patch": {"apiVersion": "v1", "kind": "ConfigMap"}}]);
        let binding = granting(grants);
        let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        harness.listed(config_maps(), vec![one(2, json!({}))]);
        let patch = ObjectPatch {
            object: one(2, json!({})).reference(),
            precondition: Precondition {
                uid: "uid-one".into(),
                resource_version: pinned.then(|| "2".into()),
            },
            subresource: None,
            patch: json!({"data": {"y": "1"}}).to_string().into(),
        };
        harness.step(pending(vec![Request::Act(Act::Patch(patch))]));
        let (id, _) = harness.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
        for shown in &shown {
            harness.shown(config_maps(), shown.clone());
        }
        harness.reply(id, Reply::Objects(Ok(vec![left.clone()])));
        harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
        let case = format!("{pinned} {shown:?} {left:?}");
        assert_eq!(harness.steps(), usize::from(is_news), "{case}");
        if !is_news {
            harness.shown(config_maps(), left);
            assert_eq!(harness.steps(), 0, "{case}");
        }
    }
}

#[test]
fn what_a_pass_creates_is_no_news_to_it_and_counts_in_its_list() {
    let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap"}},
        {"create": {"apiVersion": "v1", "kind": "ConfigMap"}}]);
    let binding = granting(grants);
    let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
    let mut asked = list("a=b");
    if let Request::Ask(Ask {
        question: Question::Objects(query),
        ..
    }) = &mut asked
    {
        query.limit = 1;
    }
    harness.step(pending(vec![asked]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    let two = map("two", 3, json!({}));
    harness.step(pending(vec![create(&two)]));
    let (id, _) = harness.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
    harness.reply(id, Reply::Objects(Ok(vec![two.clone()])));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
    harness.shown(config_maps(), two);
    assert_eq!(harness.steps(), 0, "the pass knows what it created");
    harness.shown(config_maps(), map("three", 4, json!({})));
    assert_eq!(harness.steps(), 0, "the list was too long before");
}

#[test]
fn what_a_pass_creates_in_place_of_one_that_a_watch_shows_still_is_no_news_to_it() {
    for gone in [false, true] {
        let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap"}},
            {"create": {"apiVersion": "v1", "kind": "ConfigMap"}}]);
        let binding = granting(grants);
        let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        let old = map("one", 2, json!({}));
        harness.listed(config_maps(), vec![old]);
        let new = map(
            "one",
            4,
            json!({"data": {"x": "2"}, "metadata": {"uid": "another"}}),
        );
        harness.step(pending(vec![create(&new)]));
        let (id, _) = harness.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
        if gone {
            let (scope, event) = (config_maps(), WatchEvent::Deleted(map("one", 3, json!({}))));
            harness.feed(Input::Watched { scope, event });
        }
        harness.reply(id, Reply::Objects(Ok(vec![new.clone()])));
        harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
        harness.shown(config_maps(), new);
        assert_eq!(harness.steps(), 0, "{gone}");
    }
}

#[test]
fn several_changes_of_what_a_pass_used_are_one_cause() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    for version in [3, 4] {
        harness.shown(
            config_maps(),
            map("one", version, json!({"data": {"x": version.to_string()}})),
        );
    }
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    let one = map("one", 4, json!({})).reference();
    assert_eq!(harness.causes(), [Cause::Dependency(Some(one))]);
}

#[test]
fn a_watch_is_open_for_as_long_as_a_conclusion_rests_on_it() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![]);
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    harness.pass(700_000);
    let closed = |harness: &Harness| harness.others.contains(&Output::Unwatch(config_maps()));
    assert!(!closed(&harness));
    harness.shown(primary(), machine("m", 2, json!({"spec": {"x": 1}})));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![]));
    harness.pass(590_000);
    assert!(!closed(&harness), "nobody has used it for less than ten minutes");
    harness.pass(110_000);
    assert!(closed(&harness));
    assert!(!harness.others.contains(&Output::Unwatch(primary())));
}

/// A question for the Pods of this node.
fn pods_of(node: usize) -> Request {
    let kind = crate::contract::Kind {
        api_version: "v1".into(),
        kind: "Pod".into(),
    };
    let query = ListQuery {
        field_selector: Some(format!("spec.nodeName=node-{node}")),
        ..ListQuery::all(kind)
    };
    let question = Question::Objects(query);
    Request::Ask(Ask { round: 0, question })
}

#[test]
fn where_many_watches_are_open_those_that_nobody_uses_close_within_a_minute() {
    for (count, closed) in [(8, 0), (255, 0), (256, 1), (400, 145)] {
        let grants = json!([{"ask": {"apiVersion": "v1", "kind": "Pod", "namespaces": ["*"]}}]);
        let binding = granting(grants);
        let machines = ["m", "n"].map(|name| machine(name, 1, json!({})));
        let mut harness = Harness::under(binding, machines.to_vec());
        harness.step_of("m", pending((0..count / 2).map(pods_of).collect()));
        harness.step_of("n", pending((count / 2..count).map(pods_of).collect()));
        let is_opened = |output: &&Output| matches!(output, Output::Watch(scope) if scope.node.is_some());
        assert_eq!(harness.others.iter().filter(is_opened).count(), count);
        // No watch lists in time, and the conclusions use no answer.
        harness.pass(5_000);
        harness.step(settled());
        harness.step(settled());
        harness.pass(60_000);
        let is_closed = |output: &&Output| matches!(output, Output::Unwatch(_));
        assert_eq!(
            harness.others.iter().filter(is_closed).count(),
            closed,
            "of {count}"
        );
    }
}

#[test]
fn of_two_keys_with_the_same_question_one_is_enqueued_after_the_other_stops_asking() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    let rests = conclusion(json!(null), Next::Settled(None), vec![0]);
    harness.step_of("m", pending(vec![list("a=b")]));
    harness.step_of("n", pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.step_of("m", rests.clone());
    harness.step_of("n", rests.clone());
    harness.shown(primary(), machine("n", 2, json!({"spec": {"x": 1}})));
    harness.step_of("n", conclusion(json!(null), Next::Settled(None), vec![]));
    harness.shown(config_maps(), map("one", 3, json!({"data": {"x": "2"}})));
    harness.step_of("m", rests);
    assert_eq!(harness.steps(), 0, "the other one is left alone");
}

#[test]
fn a_key_that_waits_for_its_turn_says_that_an_answer_changed_and_names_the_first_change() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.passes_per_tenant = 1;
    let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    // Whose pass takes the only place.
    harness.shown(primary(), machine("n", 2, json!({})));
    harness.shown(primary(), machine("m", 3, json!({"metadata": {"generation": 2}})));
    let first = map("two", 4, json!({}));
    harness.shown(config_maps(), first.clone());
    harness.shown(config_maps(), map("three", 5, json!({})));
    harness.step_of("n", settled());
    harness.step_of("m", settled());
    let changed = Cause::Dependency(Some(first.reference()));
    assert_eq!(harness.records[2].causes, [Cause::Changed, changed]);
    assert_eq!(harness.steps(), 0, "one pass for all of it");
}

#[test]
fn what_a_pass_writes_of_its_object_may_relate_it_to_what_it_asked_for() {
    let object = get("one");
    for ask in [object, list("a=b")] {
        for (site, is_related) in [("b", true), ("c", false)] {
            let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap",
                "relation": {"ours": "status.site", "theirs": "metadata.labels.a"}}}]);
            let binding = granting(grants);
            let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
            harness.step(pending(vec![ask.clone()]));
            harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
            let status = json!({"status": {"site": site}});
            harness.step(conclusion(status.clone(), Next::Settled(None), vec![0]));
            harness.accepted(&machine("m", 3, status));
            assert_eq!(harness.steps(), usize::from(is_related), "{site} {ask:?}");
        }
    }
}

#[test]
fn a_relation_that_a_pass_changes_alters_only_lists_that_select_what_it_relates() {
    let large = |name: &str| map(name, 2, json!({"data": {"large": "x".repeat(1 << 20)}}));
    // Each list may be about a MiB: beyond eight of them nobody compares.
    for (label, lists, changes, is_enqueued) in [
        ("a=b", 1, true, true),
        ("a=c", 1, true, false),
        ("a=c", 12, true, true),
        ("a=c", 12, false, false),
    ] {
        let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap",
            "relation": {"ours": "status.site", "theirs": "metadata.labels.a"}}}]);
        let mut harness = Harness::under(granting(grants), vec![machine("m", 1, json!({}))]);
        let asks = (0..lists).map(|n| list(&format!("{label},a!=none-{n}")));
        harness.step(pending(asks.collect()));
        harness.listed(config_maps(), vec![large("one")]);
        let status = if changes {
            json!({"status": {"site": "b"}})
        } else {
            json!({"status": {"other": "b"}})
        };
        harness.step(conclusion(
            status.clone(),
            Next::Settled(None),
            (0..lists).collect(),
        ));
        harness.accepted(&machine("m", 3, status));
        assert_eq!(
            harness.controller.passes_in_flight(),
            usize::from(is_enqueued),
            "{label} {lists} {changes}"
        );
    }
}

#[test]
fn what_this_host_wrote_while_a_watch_could_not_say_enqueues_when_it_lists_again() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    harness.step_of("m", pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.step_of("m", conclusion(json!(null), Next::Settled(None), vec![0]));
    harness.step_of("n", pending(vec![delete("one")]));
    let event = WatchEvent::Failed("cut".into());
    let scope = config_maps();
    harness.feed(Input::Watched { scope, event });
    let (id, _) = harness.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
    harness.reply(id, Reply::Objects(Ok(vec![])));
    harness.step_of("n", conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(harness.steps(), 0, "nobody can say what the list is now");
    harness.listed(config_maps(), vec![]);
    harness.step_of("m", settled());
}

#[test]
fn a_question_that_is_cut_leaves_others_to_the_list_that_they_wait_for() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    harness.step_of("m", pending(vec![list("a=b")]));
    harness.pass(3_000);
    harness.step_of("n", pending(vec![list("a=b")]));
    assert!(matches!(
        harness.view("n").map(|view| view.waiting),
        Some(WaitReason::Watch(..))
    ));
    harness.pass(2_000);
    harness.step_of("m", settled());
    assert_eq!(harness.steps(), 0);
    harness.listed(config_maps(), vec![]);
    harness.step_of("n", settled());
}

#[test]
fn an_answer_changes_by_what_its_grant_relates_and_by_a_refusal_that_ends() {
    let object = get("one");
    let mut all = list("x");
    if let Request::Ask(Ask {
        question: Question::Objects(query),
        ..
    }) = &mut all
    {
        query.label_selector = None;
    }
    let shows = |rest: Value| WatchEvent::Applied(map("one", 3, rest));
    for (event, of_object, of_list) in [
        (shows(json!({"data": {"x": "2"}})), 0, 0),
        (shows(json!({"metadata": {"labels": {"a": "m"}}})), 1, 1),
        (WatchEvent::Deleted(map("one", 3, json!({}))), 1, 0),
    ] {
        for (ask, steps) in [(&object, of_object), (&all, of_list)] {
            let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap",
                "relation": {"ours": "metadata.name", "theirs": "metadata.labels.a"}}}]);
            let binding = granting(grants);
            let mut harness = Harness::under(binding, vec![machine("m", 1, json!({}))]);
            harness.step(pending(vec![ask.clone()]));
            harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
            harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
            let (scope, event) = (config_maps(), event.clone());
            harness.feed(Input::Watched { scope, event });
            assert_eq!(harness.steps(), steps, "{ask:?}");
        }
    }
}

#[test]
fn several_locks_that_came_free_are_one_cause() {
    let asks = |names: &[&str]| {
        let ask = |name: &&str| {
            let question = Question::Lock((*name).to_owned());
            Request::Ask(Ask { round: 0, question })
        };
        pending(names.iter().map(ask).collect())
    };
    let grants = json!([{"lock": ["*"]}]);
    let binding = granting(grants);
    let mut harness = Harness::under(
        binding,
        vec![machine("m", 1, json!({})), machine("n", 1, json!({}))],
    );
    harness.step_of("m", asks(&["one", "two"]));
    harness.step_of("n", asks(&["one", "two"]));
    harness.step_of("n", conclusion(json!(null), Next::Settled(None), vec![0, 1]));
    harness.step_of("m", settled());
    assert_eq!(harness.causes(), [Cause::Lock("one".into())]);
}

#[test]
fn what_the_last_pass_used_and_a_watch_knows_takes_the_next_one_no_step() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let used = conclusion(json!(null), Next::Settled(None), vec![0]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.step(used.clone());
    let changed = map("one", 3, json!({"data": {"x": "2"}}));
    harness.shown(config_maps(), changed.clone());
    harness.step(used);
    let steps: Vec<u32> = harness
        .records
        .iter()
        .map(|record| record.roles[0].steps)
        .collect();
    assert_eq!(steps, [2, 1]);
    let causes = &harness.records[1].causes;
    assert_eq!(*causes, [Cause::Dependency(Some(changed.reference()))]);
}

#[test]
fn what_changes_under_a_pass_that_uses_a_remembered_answer_enqueues_its_key_again() {
    for (shown, is_news) in [
        (json!({"data": {"x": "3"}}), true),
        (json!({"metadata": {"labels": {"c": "d"}}}), false),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        let used = conclusion(json!(null), Next::Settled(None), vec![0]);
        harness.step(pending(vec![list("a=b")]));
        harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
        harness.step(used.clone());
        harness.shown(config_maps(), map("one", 3, json!({"data": {"x": "2"}})));
        let (id, second) = harness.take("the second pass", |call| matches!(call, Call::Step { .. }));
        let mut newest = map("one", 4, json!({"data": {"x": "2"}})).tree();
        crate::merge::apply(&shown, &mut newest);
        harness.shown(config_maps(), Object::new(newest));
        let Call::Step { input, limits, .. } = second else {
            panic!("{second:?}")
        };
        let reply = input.step(&limits, |_| StepOutput {
            outcome: Ok(used),
            fuel: 0,
        });
        harness.reply(id, Reply::Stepped(reply));
        assert_eq!(harness.steps(), usize::from(is_news), "{shown}");
    }
}

#[test]
fn a_read_of_the_api_server_that_shows_an_older_answer_of_its_pass_to_be_outdated_enqueues_its_key() {
    for (projection, newer, steps) in [
        ("metadata.name", json!({"data": {"x": "2"}}), 1),
        ("data", json!({"data": {"x": "2"}}), 1),
        ("data", json!({"metadata": {"annotations": {"other": "x"}}}), 0),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("a=b")]));
        harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
        let query = crate::contract::ObjectQuery {
            object: map("one", 1, json!({})).reference(),
            projection: vec![projection.into()],
            latest: true,
        };
        let question = Question::Object(query);
        harness.step(pending(vec![Request::Ask(Ask { round: 0, question })]));
        let newer = map("one", 3, newer);
        let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
        harness.reply(id, Reply::Objects(Ok(vec![newer.clone()])));
        harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
        harness.shown(config_maps(), newer);
        assert_eq!(harness.steps(), steps, "{projection}");
    }
}

/// A question for a part of the ConfigMap `one`.
fn part(path: &str) -> Request {
    let mut asked = get("one");
    if let Request::Ask(Ask {
        question: Question::Object(query),
        ..
    }) = &mut asked
    {
        query.projection = vec![path.into()];
    }
    asked
}

#[test]
fn what_is_too_much_to_compare_enqueues_and_what_can_be_compared_does_so_only_if_it_changed() {
    let large = |version: u64, rest: Value| {
        let mut object = map("one", version, json!({"data": {"large": "x".repeat(1 << 20)}})).tree();
        crate::merge::apply(&rest, &mut object);
        Object::new(object)
    };
    for (parts, is_enqueued) in [(3, false), (10, true)] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        let asks = (0..parts).map(|n| part(&format!("data.part-{n}")));
        harness.step(pending(asks.collect()));
        harness.listed(config_maps(), vec![large(2, json!({}))]);
        // While the pass is in flight, and after it.
        harness.shown(config_maps(), large(3, json!({"data": {"another": "1"}})));
        harness.step(conclusion(json!(null), Next::Settled(None), (0..parts).collect()));
        assert_eq!(
            harness.calls.len(),
            usize::from(is_enqueued),
            "{parts}: {:?}",
            harness.calls
        );
        if !is_enqueued {
            harness.shown(config_maps(), large(4, json!({"data": {"another": "2"}})));
            assert_eq!(harness.calls.len(), 0, "{parts}");
            harness.shown(config_maps(), large(5, json!({"data": {"part-2": "2"}})));
            assert_eq!(harness.calls.len(), 1, "{parts}");
        }
    }
}

#[test]
fn a_list_by_a_label_concerns_what_has_it_gains_it_and_loses_it_and_nothing_else() {
    let labelled = |value: &str| json!({"metadata": {"labels": {"a": value}}});
    let with_data = |value: &str| json!({"metadata": {"labels": {"a": value}}, "data": {"x": "2"}});
    for (before, after, is_news) in [
        (labelled("b"), with_data("b"), true),
        (labelled("c"), labelled("b"), true),
        (labelled("b"), labelled("c"), true),
        (labelled("b"), labelled("b"), false),
        (labelled("c"), with_data("c"), false),
        (labelled("c"), with_data("d"), false),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(pending(vec![list("x!=y,a=b")]));
        harness.listed(config_maps(), vec![map("one", 2, before.clone())]);
        harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
        harness.shown(config_maps(), map("one", 3, after.clone()));
        assert_eq!(harness.steps(), usize::from(is_news), "{before} {after}");
        // The next pass asks something else, so this list does not concern the key any more.
        if is_news {
            harness.step(pending(vec![list("q=r")]));
            harness.step(conclusion(json!(null), Next::Settled(None), vec![1]));
            harness.shown(config_maps(), map("one", 4, json!({"data": {"x": "4"}})));
            assert_eq!(harness.steps(), 0, "{before} {after}");
        }
    }
}

/// So many machines, each of which used two hundred lists that no other one asks for. Those of forty are too many to compare
/// them with a change.
fn with_many_lists(machines: usize) -> Harness {
    let names: Vec<String> = (0..machines).map(|n| format!("m-{n}")).collect();
    let all = names
        .iter()
        .zip(1..)
        .map(|(name, version)| machine(name, version, json!({})));
    let mut harness = Harness::with(all.collect());
    for name in &names {
        let lists = (0..200).map(|n| list(&format!("a!=none-{name}-{n}")));
        harness.step_of(name, pending(lists.collect()));
        if *name == names[0] {
            harness.listed(config_maps(), vec![changed(99)]);
        }
        let used = (0..200).collect();
        harness.step_of(name, conclusion(json!(null), Next::Settled(None), used));
    }
    harness
}

/// The ConfigMap `one` with what was written at a version.
fn changed(version: u64) -> Object {
    map("one", version, json!({"data": {"x": version.to_string()}}))
}

/// The next version of it, with a change that no list shows.
fn annotated(version: u64) -> Object {
    let metadata = json!({"annotations": {"no": "list shows it"}});
    map(
        "one",
        version + 1,
        json!({"data": {"x": version.to_string()}, "metadata": metadata}),
    )
}

#[test]
fn a_tenant_with_too_many_lists_to_look_at_has_a_pass_for_each_change_of_an_object_that_they_may_be_about() {
    for (machines, are_looked_at) in [(4, true), (40, false)] {
        let mut harness = with_many_lists(machines);
        harness.shown(config_maps(), annotated(99));
        let enqueued = if are_looked_at { 0 } else { machines };
        assert_eq!(harness.controller.passes_in_flight(), enqueued, "{machines}");
    }
}

/// The passes in flight conclude, and their conclusion used these answers.
fn conclude(harness: &mut Harness, used: &[u32]) {
    for _ in 0..harness.controller.passes_in_flight() {
        harness.step(conclusion(json!(null), Next::Settled(None), used.to_vec()));
    }
}

#[test]
fn a_pass_that_cannot_be_compared_with_a_change_is_followed_by_one_other_however_many_changes_come() {
    let mut harness = with_many_lists(40);
    harness.shown(config_maps(), changed(100));
    assert_eq!(harness.controller.passes_in_flight(), 40);
    // All are in flight now, and the answers of the last passes are in their journals.
    harness.shown(config_maps(), changed(101));
    harness.shown(config_maps(), changed(102));
    conclude(&mut harness, &(0..200).collect::<Vec<_>>());
    assert_eq!(
        harness.controller.passes_in_flight(),
        40,
        "each of them has another pass"
    );
    conclude(&mut harness, &[0]);
    assert_eq!(harness.controller.passes_in_flight(), 0);
    // One list each can be compared.
    harness.shown(config_maps(), annotated(102));
    assert_eq!(harness.controller.passes_in_flight(), 0);
    harness.shown(config_maps(), changed(104));
    assert_eq!(harness.controller.passes_in_flight(), 40);
}

#[test]
fn of_too_many_passes_those_that_were_compared_with_a_change_have_another_one_too() {
    let mut harness = with_many_lists(40);
    harness.shown(config_maps(), changed(100));
    harness.shown(config_maps(), annotated(100));
    conclude(&mut harness, &(0..200).collect::<Vec<_>>());
    assert_eq!(harness.controller.passes_in_flight(), 40);
}

#[test]
fn a_change_that_is_not_compared_concerns_no_pass_that_uses_nothing_of_its_scope() {
    let mut harness = with_many_lists(40);
    harness.shown(config_maps(), changed(100));
    harness.shown(config_maps(), changed(101));
    conclude(&mut harness, &[]);
    assert_eq!(harness.controller.passes_in_flight(), 0);
    harness.shown(config_maps(), changed(102));
    assert_eq!(harness.controller.passes_in_flight(), 0);
}

#[test]
fn a_pass_that_asks_the_same_after_a_change_that_was_not_compared_is_found_again() {
    let mut harness = with_many_lists(40);
    for version in 100..103 {
        harness.shown(config_maps(), changed(version));
        assert_eq!(harness.controller.passes_in_flight(), 40, "{version}");
        conclude(&mut harness, &(0..200).collect::<Vec<_>>());
        assert_eq!(harness.controller.passes_in_flight(), 0, "{version}");
    }
}

#[test]
fn a_pass_that_asks_something_else_is_found_by_that_and_no_more_by_what_the_last_one_asked() {
    let labelled = |name: &str, version: u64, label: &str| {
        let labels = json!({"metadata": {"labels": {"a": label}}, "data": {"x": version.to_string()}});
        map(name, version, labels)
    };
    let both = ["m", "n"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::with(both.to_vec());
    for (name, asked) in [("m", "a=one"), ("n", "a=three")] {
        harness.step_of(name, pending(vec![list(asked)]));
        if name == "m" {
            harness.listed(
                config_maps(),
                vec![labelled("one", 2, "one"), labelled("two", 3, "two")],
            );
        }
        harness.step_of(name, conclusion(json!(null), Next::Settled(None), vec![0]));
    }
    harness.shown(config_maps(), labelled("one", 4, "one"));
    harness.step(pending(vec![list("a=two")]));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![1]));
    harness.shown(config_maps(), labelled("one", 5, "one"));
    assert_eq!(harness.steps(), 0);
    harness.shown(config_maps(), labelled("two", 6, "two"));
    assert_eq!(harness.steps(), 1);
    // One more question after the same one.
    harness.step(pending(vec![list("a=zero")]));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
    harness.shown(config_maps(), labelled("zero", 7, "zero"));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn a_change_looks_only_at_passes_that_have_an_answer_about_its_scope() {
    let both = ["m", "n"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::with(both.to_vec());
    for name in ["m", "n"] {
        harness.step_of(name, pending(vec![list("a=b")]));
    }
    assert!(
        harness.controller.passes.answered.is_empty(),
        "they wait for the list"
    );
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    assert_eq!(harness.controller.passes.answered[&config_maps()].len(), 2);
    for name in ["m", "n"] {
        harness.step_of(name, conclusion(json!(null), Next::Settled(None), vec![0]));
    }
    assert!(harness.controller.passes.answered.is_empty(), "they have ended");
    harness.shown(primary(), machine("m", 2, json!({"spec": {"x": 1}})));
    let prefetched = &harness.controller.passes.answered[&config_maps()];
    assert_eq!(prefetched.len(), 1, "it has the answer from its beginning");
}
