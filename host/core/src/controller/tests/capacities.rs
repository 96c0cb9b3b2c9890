//! Tests of the resources that keys and tenants share.

use super::*;

#[test]
fn one_tenant_cannot_starve_another() {
    let of = |namespace: &str, name: &str, version| {
        machine(name, version, json!({"metadata": {"namespace": namespace}}))
    };
    let big = (0..200).map(|n| of("big", &format!("big-{n}"), n + 1));
    let machines: Vec<Object> = big.chain([of("small", "small", 201)]).collect();
    let mut harness = Harness::with(machines);
    // The large tenant has the most passes in flight that it may have.
    assert_eq!(harness.controller.passes_in_flight(), 65);
    let steps = [pending(vec![get()]), settled()];
    harness.steps_on(&steps);
    let is_small = |record: &PassRecord| &*record.key.name == "small";
    for _ in 0..65 {
        if !harness.records.iter().any(is_small) {
            harness.cloud_answers();
            harness.steps_on(&steps);
        }
    }
    assert!(
        harness.records.iter().any(is_small),
        "after {} others",
        harness.records.len()
    );
}

#[test]
fn a_binding_that_allows_few_passes_holds_no_other_binding_back() {
    let mut narrow = fixture_binding(&[Role::Lifecycle]);
    narrow.spec.limits.passes_per_tenant = 1;
    let mut wide = fixture_binding(&[Role::Lifecycle]);
    (wide.name, wide.spec.governs.kind) = ("wide".into(), "Disk".into());
    let disks = primary_scopes(&wide).remove(0);
    let all = |kind: &str| {
        ["a", "b", "c"]
            .map(|name| machine(name, 1, json!({"kind": kind})))
            .to_vec()
    };
    let mut harness = Harness::under(narrow, all("Machine"));
    harness.feed(Input::Bound(Box::new(wide)));
    harness.listed(disks, all("Disk"));
    assert_eq!(harness.controller.passes_in_flight(), 4);
}

#[test]
fn acts_and_asks_share_the_room_of_their_cloud() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.cloud_calls = 2;
    let machines = ["a", "b", "c", "d", "e"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::under(binding, machines.to_vec());
    let steps = [
        pending(vec![get()]),
        pending(vec![stop()]),
        conclusion(json!(null), Next::Settled(None), vec![0, 1]),
    ];
    harness.steps_on(&steps);
    let mut answered = 0;
    while harness.cloud_calls() > 0 {
        assert!(harness.cloud_calls() <= 2, "{:?}", harness.calls);
        harness.cloud_answers();
        harness.steps_on(&steps);
        answered += 1;
    }
    assert_eq!((answered, harness.records.len()), (10, 5));
    let health = harness.controller.health("machines").expect("it is bound");
    assert_eq!(health.acts, 5);
}

#[test]
fn a_key_that_passes_too_often_is_slowed_and_says_so() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let end = harness.now.boot + ms(30_000);
    let mut said = BTreeSet::new();
    let is_patch = |(_, call): &(CallId, Call)| matches!(call, Call::Write(Write::Patch { .. }));
    for version in 2.. {
        harness.steps_on(&[conclusion(json!(null), Next::After(0), vec![])]);
        if harness.calls.iter().any(is_patch) {
            let (id, patch) = harness.patch();
            let first = &patch["status"]["conditions"][0]["type"];
            said.extend(first.as_str().map(str::to_owned));
            let stands = machine("m", version, json!({"status": patch["status"]}));
            harness.reply(id, Reply::Objects(Ok(vec![stands])));
        } else if harness.now.boot >= end {
            break;
        } else {
            harness.pass(10);
        }
    }
    let passes = harness.records.len();
    assert!(
        (45..=52).contains(&passes),
        "a burst of 20 and one a second: {passes}"
    );
    assert_eq!(said, BTreeSet::from(["polity.dev/Slowed".to_owned()]));
}

#[test]
fn a_write_asks_for_the_lease_only_when_there_is_a_place_for_it() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.cloud_calls = 1;
    let machines = ["a", "b", "c"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::under(binding, machines.to_vec());
    harness.steps_on(&[pending(vec![stop()])]);
    let waiting = |harness: &Harness| {
        let of = |name| harness.view(name).map(|view| view.waiting);
        ["a", "b", "c"].map(of)
    };
    harness.cloud_answers();
    let (second, _) = harness.take("act", |call| matches!(call, Call::Cloud(_)));
    harness.now = harness.now + (lease::DURATION - ms(1));
    harness.reply(second, Reply::Answer(Ok(json!({}))));
    assert_eq!(harness.cloud_calls(), 0, "it could outlast the lease");
    let renewal = Some(WaitReason::Renewal);
    assert!(waiting(&harness).contains(&renewal), "{:?}", waiting(&harness));
    harness.answer_leases();
    assert_eq!(harness.cloud_calls(), 1);
}
