//! Tests of the objects that bindings govern, and of changed bindings.

use super::*;

#[test]
fn a_controller_says_what_it_governs_and_what_its_cache_holds() {
    let machines = ["a", "b"].map(|name| machine(name, 1, json!({})));
    let bytes: usize = machines.iter().map(|machine| machine.json().len()).sum();
    let harness = Harness::with(machines.to_vec());
    let names = harness.controller.bindings().map(|binding| binding.name.clone());
    assert_eq!(names.collect::<Vec<_>>(), ["machines"]);
    let figures = harness.controller.cache_figures();
    assert_eq!(
        (figures.objects, figures.bytes, figures.synced, figures.failing),
        (2, bytes, 1, 0)
    );
}

#[test]
fn a_tenant_has_so_many_passes_under_way_and_no_more() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.passes_per_tenant = 2;
    let mut machines = ["a", "b", "c"].map(|name| machine(name, 1, json!({}))).to_vec();
    machines.push(machine("d", 1, json!({"metadata": {"namespace": "another"}})));
    let mut harness = Harness::under(binding, machines);
    assert_eq!((harness.steps(), harness.controller.passes_in_flight()), (3, 3));
    assert_eq!(harness.view("c").map(|view| view.waiting), Some(WaitReason::Turn));
    harness.step_of("a", conclusion(json!(null), Next::Settled(None), vec![]));
    assert_eq!(harness.steps(), 3);
    let waiting = |harness: &Harness| harness.view("c").map(|view| view.waiting);
    assert_eq!(waiting(&harness), Some(WaitReason::Call));
}

#[test]
fn a_binding_is_told_what_it_does_not_grant_and_no_more_than_so_much_of_it() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let lock = |n| {
        Request::Ask(Ask {
            round: 0,
            question: Question::Lock(format!("other-{n}")),
        })
    };
    let ungranted = |harness: &Harness| {
        harness
            .controller
            .health("machines")
            .map(|health| health.ungranted)
    };
    harness.step(pending(vec![lock(1), list("no selector")]));
    let one = BTreeSet::from(["not granted: lock other-1".to_owned()]);
    assert_eq!(
        ungranted(&harness),
        Some(one),
        "a selector that is none is another mistake"
    );
    harness.step(pending((2..100).map(lock).collect()));
    assert_eq!(ungranted(&harness).map(|all| all.len()), Some(16));
}

fn younger(change: fn(&mut Binding)) -> Binding {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    (binding.name, binding.created) = ("younger".into(), 1);
    change(&mut binding);
    binding
}

#[test]
fn a_binding_is_told_of_the_watches_that_it_needs_and_of_no_others() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.feed(Input::Bound(Box::new(younger(|b| {
        b.spec.governs.kind = "Disk".into()
    }))));
    harness.step(pending(vec![list("a=b")]));
    let told = |name: &str| {
        harness
            .controller
            .health(name)
            .map(|health| health.unsynced.len())
    };
    // Both wait for their own objects or for those of a question: the list of Disks, and that of ConfigMaps.
    assert_eq!((told("machines"), told("younger")), (Some(1), Some(1)));
}

#[test]
fn of_bindings_that_meet_the_oldest_governs_and_the_others_are_told() {
    let older = fixture_binding(&[Role::Lifecycle]);
    for (binding, is_overlapped) in [
        (younger(|_| {}), true),
        (younger(|b| b.created = 0), true),
        (
            younger(|b| b.spec.governs.namespace = Some("default".into())),
            true,
        ),
        (younger(|b| b.spec.governs.kind = "Disk".into()), false),
        (younger(|b| b.policies.clear()), false),
    ] {
        let mut harness = Harness::under(older.clone(), vec![machine("m", 1, json!({}))]);
        harness.feed(Input::Bound(Box::new(binding.clone())));
        let told = |name: &str| {
            harness
                .controller
                .health(name)
                .and_then(|health| health.overlapped_by)
        };
        let expected = is_overlapped.then(|| "machines".to_owned());
        assert_eq!(
            (told("machines"), told("younger")),
            (None, expected),
            "{:?}",
            binding.spec.governs
        );
        let governed = |harness: &Harness, name: &str| {
            let keys = harness.controller.keys().filter(|(key, _)| &*key.binding == name);
            keys.count()
        };
        let is_without = binding.policies.is_empty();
        assert_eq!(governed(&harness, "machines"), 1);
        assert_eq!(
            governed(&harness, "younger"),
            usize::from(is_without),
            "it looks on"
        );
        harness.feed(Input::Unbound("machines".into()));
        // Nothing was listed in the other scope.
        let is_shown = binding.spec.governs == older.spec.governs;
        assert_eq!(
            governed(&harness, "younger"),
            usize::from(is_shown),
            "it is the only one"
        );
    }
}

#[test]
fn bindings_that_name_different_namespaces_or_objects_do_not_meet() {
    for (a, b, meets) in [
        ((None, Some("x")), (None, Some("y")), false),
        ((None, Some("x")), (Some("t"), Some("x")), true),
        ((Some("t"), None), (Some("u"), None), false),
        ((Some("t"), None), (Some("t"), Some("x")), true),
    ] {
        let governing = |mut binding: Binding, (namespace, name): (Option<&str>, Option<&str>)| {
            let governs = &mut binding.spec.governs;
            (governs.namespace, governs.name) = (namespace.map(str::to_owned), name.map(str::to_owned));
            binding
        };
        let mut harness = Harness::under(governing(younger(|_| {}), b), vec![]);
        harness.feed(Input::Bound(Box::new(governing(
            fixture_binding(&[Role::Lifecycle]),
            a,
        ))));
        let told = harness
            .controller
            .health("younger")
            .and_then(|health| health.overlapped_by);
        assert_eq!(told.is_some(), meets, "{a:?} {b:?}");
    }
}

#[test]
fn a_binding_that_governs_something_else_or_is_gone_forgets_its_keys_when_their_passes_have_ended() {
    let mut other = fixture_binding(&[Role::Lifecycle]);
    other.spec.governs.kind = "Disk".into();
    let disks = primary_scopes(&other).remove(0);
    for (input, passes) in [
        (Input::Bound(Box::new(other)), Some(2)),
        (Input::Unbound("machines".into()), Some(1)),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
        harness.step_of("n", settled());
        let is_unbound = matches!(input, Input::Unbound(_));
        harness.feed(input);
        assert_eq!((harness.forgotten(), harness.controller.keys().count()), (1, 0));
        assert_eq!(harness.controller.health("machines").is_none(), is_unbound);
        assert_eq!(
            harness.others.contains(&Output::Watch(disks.clone())),
            !is_unbound
        );
        harness.step_of("m", settled());
        assert_eq!(harness.forgotten(), 2);
        assert_eq!(
            harness.controller.health("machines").map(|health| health.passes),
            passes
        );
    }
}

#[test]
fn a_tenant_is_what_stands_at_the_path_that_the_binding_names() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.tenant = crate::binding::Tenant::Path("spec.team".into());
    binding.spec.limits.passes_per_tenant = 1;
    let of = |name: &str, team: &str| machine(name, 1, json!({"spec": {"team": team}}));
    let harness = Harness::under(binding, vec![of("a", "x"), of("b", "x"), of("c", "y")]);
    assert_eq!(harness.steps(), 2);
    assert_eq!(harness.view("b").map(|view| view.waiting), Some(WaitReason::Turn));
}

#[test]
fn a_binding_under_which_passes_differ_enqueues_its_keys_within_a_minute() {
    let policy = |binding: &mut Binding, role| {
        binding.policies.get_mut(&role).expect("a policy").id = PolicyId("another".into());
    };
    for (change, enqueues) in [
        (
            &(|binding: &mut Binding| policy(binding, Role::Lifecycle)) as &dyn Fn(&mut Binding),
            true,
        ),
        (&|binding| policy(binding, Role::Identity), true),
        (&|binding| binding.spec.grants.clear(), true),
        (&|binding| policy(binding, Role::Retry), false),
        (&|binding| binding.spec.limits.entries = 7, true),
        (&|binding| binding.spec.cloud = None, true),
        (&|binding| binding.connection = "another".into(), true),
        (&|binding| Arc::make_mut(&mut binding.catalogue).stamp = 7, true),
        (
            &|binding| {
                let source = json!({"file": "f", "writes": ["status.phase"]});
                binding.spec.policies.lifecycle = serde_json::from_value(source).ok();
            },
            true,
        ),
        (&|binding| binding.spec.limits.burst = 7, false),
        (&|binding| binding.spec.limits.longest_wait = ms(7), false),
        (&|_| {}, false),
    ] {
        let binding = fixture_binding(&[Role::Identity, Role::Lifecycle, Role::Retry]);
        let machines = ["m", "n", "o"].map(|name| machine(name, 1, json!({})));
        let mut harness = Harness::under(binding.clone(), machines.to_vec());
        let denied = || {
            let Step::Concluded { conclusion, .. } = settled() else {
                panic!("a conclusion")
            };
            let verdict = Some(crate::contract::Verdict::Denied);
            Step::Concluded { verdict, conclusion }
        };
        harness.step_of("m", denied());
        harness.step_of("n", denied());
        let mut changed = binding;
        change(&mut changed);
        harness.feed(Input::Bound(Box::new(changed)));
        let waits = ["m", "n", "o"].map(|name| harness.wait(name));
        assert_eq!(waits[0].is_some_and(|wait| wait < 60_000), enqueues);
        assert_eq!(waits[0] != waits[1], enqueues, "not all at once: {waits:?}");
        assert_eq!(waits[2], None, "its pass is under way");
        harness.step_of("o", denied());
        assert_eq!(harness.steps(), usize::from(enqueues), "it passes again");
        if enqueues {
            harness.step_of("o", denied());
        }
        harness.pass(60_000);
        assert_eq!(harness.steps(), 2 * usize::from(enqueues));
    }
}

#[test]
fn the_keys_of_a_changed_binding_are_spread_over_a_minute_and_pass_under_its_new_policy() {
    let machines = (0..20).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut harness = Harness::with(machines.collect());
    harness.steps_on(&[settled()]);
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    let policy = binding.policies.get_mut(&Role::Lifecycle).expect("a policy");
    policy.id = PolicyId("another".into());
    harness.feed(Input::Bound(Box::new(binding)));
    assert!(harness.steps() < 3, "not all at once");
    harness.pass(30_000);
    let halfway = harness.steps();
    assert!((5..16).contains(&halfway), "{halfway}");
    harness.pass(30_000);
    assert_eq!(harness.steps(), 20);
    harness.steps_on(&[settled()]);
    let is_new = |record: &PassRecord| {
        record.causes.contains(&Cause::Binding) && &*record.roles[0].policy.0 == "another"
    };
    assert!(harness.records[20..].iter().all(is_new));
}

#[test]
fn a_binding_that_comes_back_while_a_pass_is_under_way_runs_no_key_twice() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.feed(Input::Unbound("machines".into()));
    harness.feed(Input::Bound(Box::new(fixture_binding(&[Role::Lifecycle]))));
    assert_eq!((harness.steps(), harness.controller.passes_in_flight()), (1, 1));
    harness.step(settled());
    assert_eq!(harness.controller.passes_in_flight(), 1, "now it is its turn");
    harness.step(settled());
    assert_eq!((harness.steps(), harness.records.len()), (0, 2));
}

#[test]
fn a_host_for_some_namespaces_watches_each_of_them_and_governs_nothing_else() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.namespaces = Some(Arc::from(["default".to_owned(), "second".to_owned()]));
    let scopes = primary_scopes(&binding);
    let in_second = machine("n", 1, json!({"metadata": {"namespace": "second"}}));
    let elsewhere = machine("x", 1, json!({"metadata": {"namespace": "elsewhere"}}));

    let mut harness = Harness::under(binding.clone(), vec![machine("m", 1, json!({}))]);
    let namespaces: Vec<_> = scopes.iter().map(|scope| scope.namespace.as_deref()).collect();
    assert_eq!(namespaces, [Some("default"), Some("second")]);
    for scope in &scopes {
        assert!(harness.others.contains(&Output::Watch(scope.clone())));
    }
    assert_eq!(harness.steps(), 1, "what one watch shows waits for no other");
    assert_eq!(harness.controller.unsynced().collect::<Vec<_>>(), ["machines"]);
    harness.listed(scopes[1].clone(), vec![in_second, elsewhere]);
    assert_eq!(harness.controller.unsynced().count(), 0);
    assert_eq!((harness.steps(), harness.controller.keys().count()), (2, 2));

    binding.namespaces = Some(Arc::from(["second".to_owned()]));
    harness.feed(Input::Bound(Box::new(binding)));
    let keys = harness.controller.keys();
    assert_eq!(keys.map(|(key, _)| &*key.name).collect::<Vec<_>>(), ["n"]);
}

#[test]
fn a_watch_that_lists_for_the_first_time_does_not_fail() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let told = |harness: &Harness| {
        let health = harness.controller.health("machines").expect("it is bound");
        let waiting = harness.view("m").map(|view| view.waiting);
        (health.unsynced.len(), health.watch_fails, waiting)
    };
    harness.step(pending(vec![list("a=b")]));
    let lists = Some(WaitReason::Watch(config_maps(), None));
    assert_eq!(told(&harness), (1, false, lists));
    let event = WatchEvent::Failed("forbidden".into());
    harness.feed(Input::Watched {
        scope: config_maps(),
        event,
    });
    let fails = Some(WaitReason::Watch(config_maps(), Some("forbidden".into())));
    assert_eq!(told(&harness), (1, true, fails));
    harness.listed(config_maps(), vec![]);
    assert_eq!(told(&harness), (0, false, Some(WaitReason::Call)));
}
