//! Tests of nodes: how machines join, and what happens to nodes.

use crate::harness::*;

fn condition(node: &NodeView, kind: &str) -> (&'static str, u64) {
    let found = node
        .conditions
        .iter()
        .find(|condition| condition.kind == kind)
        .unwrap();
    (found.status, found.since)
}

fn event(does: Intervention, after: u64) -> WorldEvent {
    WorldEvent {
        vm: "m".to_owned(),
        at: Millis(0),
        after_power_on: Some(Millis(after)),
        until: None,
        does,
    }
}

fn meeting(events: impl IntoIterator<Item = WorldEvent>) -> Bench {
    Bench::new(SimConfig {
        events: events.into_iter().collect(),
        ..plain()
    })
}

#[test]
fn a_machine_boots_joins_and_is_ready() {
    let mut b = Bench::new(plain());
    let made = b.machine("u", "m");
    assert_eq!(
        b.sim.next_event_after(b.now),
        Some(START + 30_000),
        "booted after 20 s, joined after 10 s more"
    );
    b.now += 29_999;
    assert!(b.sim.nodes(b.now).is_empty());
    b.now += 1;
    let node = b.node();
    assert_eq!(node.name, "node-m");
    assert_eq!(json!(node.provider_id), made["providerID"]);
    assert_eq!(
        (node.machine.as_str(), node.owner.as_str(), node.tenant.as_str()),
        ("m", "u", "ns-u")
    );
    assert_eq!((node.joined, node.since, node.ready), (b.now, b.now, true));
    assert_eq!(
        (condition(&node, "Ready"), condition(&node, "KernelDeadlock")),
        (("True", b.now), ("False", b.now))
    );
    assert_eq!(
        b.sim.next_event_after(b.now),
        None,
        "nothing happens by itself any more"
    );
}

#[test]
fn a_machine_can_join_late_never_and_by_another_name() {
    let own = |vm: &str, then| FaultRule {
        vm: vm.to_owned(),
        ..rule("machine.create", then)
    };
    let mut b = Bench::new(with([
        own("late", Trouble::JoinsAfter(Millis::seconds(600))),
        own("never", Trouble::NeverJoins),
        own("other", Trouble::NodeName("stale".to_owned())),
    ]));
    for name in ["late", "never", "other"] {
        b.machine(name, name);
    }
    b.now += 619_999;
    let names =
        |b: &mut Bench| -> Vec<String> { b.sim.nodes(b.now).into_iter().map(|node| node.name).collect() };
    assert_eq!(names(&mut b), ["stale"]);
    b.now += 1;
    assert_eq!(names(&mut b), ["node-late", "stale"]);
    b.now += 100_000_000;
    assert_eq!(names(&mut b).len(), 2);
}

#[test]
fn the_node_of_a_deleted_machine_is_not_heard_of_and_forgotten_in_the_end() {
    let mut b = Bench::new(plain());
    b.machine("u", "m");
    b.now += 30_000;
    let deleted = b.now + 1_000;
    b.now = deleted;
    b.call("u", "machine.delete", json!({"name": "m"})).unwrap();
    let node = b.node();
    assert_eq!(
        (node.ready, node.heard, node.gone),
        (true, false, Some(deleted)),
        "nobody has noticed yet"
    );
    let noticed = deleted + 40_000;
    b.now = noticed - 1;
    assert!(b.node().ready);
    assert_eq!(b.sim.next_event_after(b.now), Some(noticed));
    b.now = noticed;
    let node = b.node();
    assert_eq!((node.ready, node.since), (false, noticed));
    assert_eq!(
        (condition(&node, "Ready"), condition(&node, "DiskPressure").0),
        (("Unknown", noticed), "Unknown")
    );
    b.now = deleted + 599_000;
    assert_eq!(b.sim.nodes(b.now).len(), 1);
    b.now += 2_000;
    assert!(b.sim.nodes(b.now).is_empty());
}

#[test]
fn a_machine_that_is_deleted_before_it_joins_never_joins() {
    let mut b = Bench::new(plain());
    b.machine("u", "m");
    b.now += 25_000;
    b.call("u", "machine.delete", json!({"name": "m"})).unwrap();
    b.now += 100_000;
    assert!(b.sim.nodes(b.now).is_empty());
}

#[test]
fn a_node_can_have_each_problem_and_recover() {
    for (problem, kind, bad) in [
        (NodeProblem::NotReady, "Ready", "False"),
        (NodeProblem::MemoryPressure, "MemoryPressure", "True"),
        (NodeProblem::DiskPressure, "DiskPressure", "True"),
        (NodeProblem::PidPressure, "PIDPressure", "True"),
        (NodeProblem::NetworkUnavailable, "NetworkUnavailable", "True"),
        (NodeProblem::KernelDeadlock, "KernelDeadlock", "True"),
        (NodeProblem::ReadonlyFilesystem, "ReadonlyFilesystem", "True"),
    ] {
        let mut b = meeting([
            event(Intervention::NodeProblem(problem), 60_000),
            event(Intervention::Recover, 90_000),
        ]);
        b.machine("u", "m");
        b.now += 60_000;
        let node = b.node();
        assert_eq!(
            (condition(&node, kind), node.since),
            ((bad, b.now), b.now),
            "{kind}"
        );
        assert_eq!(node.ready, kind != "Ready");
        let ill = node
            .conditions
            .iter()
            .filter(|condition| condition.since == b.now)
            .count();
        assert_eq!(ill, 1, "{kind}: nothing else changed");
        b.now += 30_000;
        let node = b.node();
        assert!(node.ready);
        assert_ne!(condition(&node, kind).0, bad);
    }
}

#[test]
fn a_node_that_falls_silent_is_unknown_after_a_while_and_heard_of_again() {
    let mut b = meeting([
        event(Intervention::FallSilent, 60_000),
        event(Intervention::Recover, 200_000),
    ]);
    b.machine("u", "m");
    b.now += 99_999;
    assert!(b.node().ready);
    b.now += 1;
    assert_eq!(condition(&b.node(), "Ready"), ("Unknown", START + 100_000));
    assert_eq!(b.sim.vms(b.now).len(), 1, "the machine runs on");
    b.now += 100_000;
    assert_eq!(condition(&b.node(), "Ready"), ("True", START + 200_000));
}

#[test]
fn a_machine_that_is_turned_off_is_silent_until_it_has_booted_again() {
    let again = WorldEvent {
        at: Millis(200_000),
        after_power_on: None,
        ..event(Intervention::PowerOn, 0)
    };
    let mut b = meeting([event(Intervention::PowerOff, 60_000), again]);
    b.machine("u", "m");
    b.now += 60_000;
    assert!(b.node().ready);
    b.now += 40_000;
    assert!(!b.node().ready);
    b.now = START + 219_999;
    assert!(!b.node().ready);
    b.now += 1;
    let node = b.node();
    assert_eq!(
        (condition(&node, "Ready"), node.joined),
        (("True", b.now), START + 30_000)
    );
}

#[test]
fn a_node_that_leaves_says_when_and_recovering_it_joins_again() {
    let mut b = meeting([
        event(Intervention::Leave, 60_000),
        event(Intervention::Recover, 90_000),
    ]);
    b.machine("u", "m");
    b.now += 60_000;
    let node = b.node();
    assert_eq!((node.left, node.gone, node.heard), (Some(b.now), None, false));
    b.now += 30_000;
    let node = b.node();
    assert_eq!((node.left, node.joined, node.ready), (None, b.now, true));
}

#[test]
fn a_node_is_registered_once_each_time_it_joins_and_a_restart_knows() {
    let mut b = meeting([
        event(Intervention::Leave, 60_000),
        event(Intervention::Recover, 90_000),
    ]);
    b.machine("u", "m");
    b.now += 30_000;
    let id = b.node().provider_id;
    assert!(!b.node().registered);
    b.sim.note_registered(&id);
    b.sim = Sim::restore(b.sim.config.clone(), &b.sim.snapshot()).unwrap();
    assert!(b.node().registered);
    b.now += 40_000;
    assert!(b.node().left.is_some() && !b.node().deregistered);
    b.sim.note_deregistered(&id);
    b.sim = Sim::restore(b.sim.config.clone(), &b.sim.snapshot()).unwrap();
    assert!(b.node().deregistered);
    b.now += 60_000;
    assert!(
        b.node().left.is_none() && !b.node().registered,
        "it has joined again"
    );
}

#[test]
fn while_the_api_server_is_down_nobody_joins_and_nobody_is_heard_of() {
    let span = Span {
        from: Millis(40_000),
        until: Millis(140_000),
    };
    let mut b = Bench::new(SimConfig {
        api_server_down: vec![span],
        ..plain()
    });
    b.machine("u", "m");
    b.now += 35_000;
    b.machine("v", "n");
    b.now = START + 79_999;
    let node = b.node();
    assert!(node.ready && !node.heard);
    assert_eq!(b.sim.next_event_after(b.now), Some(START + 80_000));
    b.now += 1;
    assert_eq!(condition(&b.node(), "Ready"), ("Unknown", b.now));
    b.now = START + 140_000;
    let ready: Vec<_> = b
        .sim
        .nodes(b.now)
        .iter()
        .map(|node| (node.ready, node.since))
        .collect();
    assert_eq!(ready, [(true, b.now), (true, b.now)]);
}

#[test]
fn an_unfinished_scenario_waits_for_the_api_server_and_a_calm_one_does_not() {
    let span = Span {
        from: Millis(0),
        until: Millis(140_000),
    };
    let mut b = Bench::new(SimConfig {
        api_server_down: vec![span],
        ..plain()
    });
    b.machine("u", "m");
    assert!(b.sim.has_unfinished_faults(b.now) && !b.sim.api_server_answers(b.now));
    b.sim.stop_faults();
    assert!(!b.sim.has_unfinished_faults(b.now) && b.sim.api_server_answers(b.now));
    b.now += 30_000;
    assert!(b.node().ready);
}

#[test]
fn an_event_of_a_node_does_nothing_to_a_vm_that_is_none() {
    let mut b = meeting([WorldEvent {
        vm: "m".to_owned(),
        after_power_on: None,
        ..event(Intervention::FallSilent, 0)
    }]);
    let vm = b.vm("m");
    assert!(b.sim.nodes(b.now).is_empty());
    let last = &b.sim.effects().last().unwrap().what;
    assert_eq!(*last, Happened::Intervened(Intervention::FallSilent));
    assert!(b.call("m", "vm.get", vm).is_ok());
}

#[test]
fn the_same_seed_makes_the_same_nodes_and_another_seed_others() {
    let run = |seed| {
        let mut sim = Sim::new(SimConfig::default(), seed, START);
        for i in 0..5 {
            let name = format!("m{i}");
            sim.perform(
                START + i,
                &request(&name, "machine.create", json!({"name": name})),
            );
        }
        sim.nodes(START + 100_000)
    };
    assert_eq!(run(1).len(), 5);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn an_event_waits_for_its_machine() {
    let does = Intervention::NodeProblem(NodeProblem::DiskPressure);
    let early = WorldEvent {
        after_power_on: None,
        ..event(does, 0)
    };
    let mut b = meeting([early]);
    b.now += 50_000;
    b.sim.advance(b.now);
    assert!(b.sim.has_unfinished_faults(b.now));
    b.machine("u", "m");
    b.now += 30_000;
    assert_eq!(condition(&b.node(), "DiskPressure").0, "True");
    assert!(!b.sim.has_unfinished_faults(b.now));
    let told = b.sim.effects().last().unwrap();
    assert_eq!(
        (&told.what, told.operation.as_str()),
        (&Happened::Intervened(does), "machine.node")
    );
}

#[test]
fn events_of_machines_are_written_as_people_write() {
    let config = json!({
        "machines": {"boot": {"min": "1s", "max": "2s"}, "nodeName": "ip-{number}", "grace": "50s", "tokens": "minted"},
        "apiServerDown": [{"from": "3m", "until": "5m"}],
        "faults": [
            {"operation": "machine.create", "then": {"joinsAfter": "5m"}},
            {"operation": "machine.create", "then": "neverJoins"},
            {"operation": "machine.create", "then": {"nodeName": "stale"}},
            {"operation": "machine.create", "then": {"failAfterwards": {"code": "unknown"}}},
            {"operation": "machine.status", "then": {"answerWith": {"providerID": 7}}},
            {"operation": "sts.*", "then": {"leadsTo": "222222222222"}},
        ],
        "events": [
            {"vm": "m", "does": {"nodeProblem": "readonlyFilesystem"}},
            {"vm": "m", "does": "fallSilent"},
            {"vm": "m", "does": "recover"},
            {"vm": "m", "does": "leave"},
        ],
    });
    let read = SimConfig::from_value(&config).unwrap();
    let then: Vec<_> = read.faults.into_iter().map(|rule| rule.then).collect();
    assert_eq!(
        then,
        [
            Trouble::JoinsAfter(Millis::seconds(300)),
            Trouble::NeverJoins,
            Trouble::NodeName("stale".to_owned()),
            Trouble::FailAfterwards { code: Code::Unknown },
            Trouble::AnswerWith(json!({"providerID": 7})),
            Trouble::LeadsTo("222222222222".to_owned()),
        ]
    );
    assert_eq!(
        read.events[0].does,
        Intervention::NodeProblem(NodeProblem::ReadonlyFilesystem)
    );
    assert_eq!(
        (read.machines.tokens, read.machines.grace),
        (Tokens::Minted, Millis::seconds(50))
    );
    for (wrong, path) in [
        (
            json!({"apiServerDown": [{"from": 5, "until": 5}]}),
            "apiServerDown[0].until",
        ),
        (
            json!({"machines": {"boot": {"min": 2, "max": 1}}}),
            "machines.boot",
        ),
        (
            json!({"events": [{"vm": "m", "does": {"nodeProblem": "gout"}}]}),
            "events[0].does.nodeProblem",
        ),
    ] {
        assert_eq!(SimConfig::from_value(&wrong).unwrap_err().path, path);
    }
}

#[test]
fn nodes_are_called_as_the_configuration_says() {
    let mut config = plain();
    config.machines.node_name = "ip-{number}-{name}".to_owned();
    let mut b = Bench::new(config);
    let made = b.machine("u", "m");
    let number = made["providerID"]
        .as_str()
        .unwrap()
        .strip_prefix("sim:///vm-")
        .unwrap();
    assert_eq!(made["nodeName"], format!("ip-{number}-m"));
}

#[test]
fn a_machine_that_was_never_to_join_can_be_mended() {
    let mut config = with([rule("machine.create", Trouble::NeverJoins)]);
    config.events = vec![event(Intervention::Recover, 90_000)];
    let mut b = Bench::new(config);
    b.machine("u", "m");
    b.now += 89_999;
    assert!(b.sim.nodes(b.now).is_empty());
    b.now += 1;
    assert_eq!(b.node().joined, b.now);
}
