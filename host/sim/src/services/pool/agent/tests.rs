//! Tests of what machines of pools do for their agents.

use crate::harness::*;

const NODE: &str = "node-m";

fn node() -> Value {
    json!({"node": NODE})
}

fn versions(kubelet: &str) -> Value {
    json!({"node": NODE, "versions": {"kubelet": kubelet}})
}

fn kernel(version: &str) -> Value {
    json!({"node": NODE, "versions": {"kernel": version}})
}

/// Asks the machine as the agent of this object.
fn ask(b: &mut Bench, uid: &str, operation: &str) -> Value {
    b.call(uid, operation, node()).unwrap()
}

fn boot_id(b: &mut Bench) -> Value {
    ask(b, "", "node.work")["bootId"].clone()
}

fn reboot(boot_id: &Value) -> Value {
    json!({"node": NODE, "bootId": boot_id})
}

/// A machine whose agent is installed.
fn bench(config: SimConfig) -> Bench {
    let mut b = Bench::new(config);
    b.member("u", "m", json!({"kubelet": "1.30.2"}));
    b
}

#[test]
fn how_kubernetes_is_upgraded_belongs_to_the_work() {
    let mut b = bench(plain());
    let mut applies = versions("1.30.4");
    applies["upgrade"] = json!("apply");
    b.call("", "node.ensure", applies.clone()).unwrap();
    assert_eq!(ask(&mut b, "", "node.work")["work"]["upgrade"], "apply");
    b.call("", "node.ensure", applies).unwrap();
    assert_eq!(
        b.code("", "node.ensure", versions("1.30.4")),
        Code::FailedPrecondition
    );
}

#[test]
fn a_machine_is_prepared_by_its_agent() {
    let mut b = bench(plain());
    let seed = ask(&mut b, "", "node.seed");
    assert_eq!(
        seed,
        json!({"node": NODE, "versions": {"kubelet": "1.30.2"}, "initialized": false})
    );
    assert_eq!(ask(&mut b, "", "node.work")["work"], Value::Null);
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    assert_eq!(ask(&mut b, "", "node.work")["work"]["state"], "running");
    b.now += 30_000;
    let working = ask(&mut b, "", "node.work");
    assert_eq!(
        (&working["work"]["state"], &working["work"]["bootId"]),
        (&json!("done"), &working["bootId"])
    );
    let asked = json!({"node": NODE, "packages": ["kubelet", "kubeadm"]});
    let installed = b.call("", "node.versions", asked).unwrap();
    assert_eq!(installed["versions"], json!({"kubelet": "1.30.2"}));
    b.call("", "node.initialized", node()).unwrap();
    assert_eq!(ask(&mut b, "", "node.seed")["initialized"], true);
    let machine = &b.call("u", "pool.machines", json!({})).unwrap()["machines"][0];
    assert_eq!(machine["agent"], "initialized");
}

#[test]
fn every_answer_of_a_machine_is_what_the_catalogue_of_real_ones_says() {
    let mut b = bench(plain());
    let catalogue = b.sim.catalogue().clone();
    let boot = boot_id(&mut b);
    let own = polity_clouds::catalogue::node::operations();
    let arguments = |operation: &str| match operation {
        "node.versions" => json!({"node": NODE, "packages": ["kubelet"]}),
        "node.ensure" => versions("1.30.2"),
        "node.reboot" => reboot(&boot),
        _ => node(),
    };
    for _ in 0..2 {
        for (operation, described) in &own {
            assert_eq!(catalogue.operations[*operation], *described);
            let answer = b.call("", operation, arguments(operation)).unwrap();
            assert_allows(&described.answer, &answer);
        }
        b.now += 5_000;
    }
}

#[test]
fn the_same_work_is_joined_and_other_work_is_refused() {
    let mut b = bench(plain());
    for _ in 0..2 {
        b.call("", "node.ensure", versions("1.30.2")).unwrap();
    }
    assert_eq!(
        b.code("", "node.ensure", versions("1.30.4")),
        Code::FailedPrecondition
    );
    b.now += 30_000;
    let of = |effect: &&Effect| effect.operation == "node.ensure";
    let told: Vec<Happened> = b
        .sim
        .effects()
        .iter()
        .filter(of)
        .map(|effect| effect.what.clone())
        .collect();
    assert_eq!(told, [Happened::Submitted], "nobody has looked yet");
    b.call("", "node.ensure", versions("1.30.4")).unwrap();
    assert_eq!(b.sim.effects().iter().filter(of).count(), 3);
}

#[test]
fn a_version_that_does_not_exist_is_not_found() {
    let mut config = plain();
    config
        .packages
        .known
        .insert("kubelet".to_owned(), vec!["1.30.2".to_owned()]);
    let mut b = bench(config);
    for (version, state) in [("1.31.99", "failed"), ("1.30.2", "done")] {
        b.call("", "node.ensure", versions(version)).unwrap();
        b.now += 30_000;
        let work = ask(&mut b, "", "node.work")["work"].clone();
        assert_eq!(work["state"], state, "{work}");
        if state == "failed" {
            assert_eq!(work["error"]["code"], "not-found");
        }
    }
    let asked = json!({"node": NODE, "packages": ["kubelet"]});
    assert_eq!(
        b.call("", "node.versions", asked).unwrap()["versions"]["kubelet"],
        "1.30.2"
    );
}

#[test]
fn a_reboot_ends_one_boot_once_and_the_machine_comes_back() {
    let mut b = Bench::new(plain());
    b.first_node("u", "m");
    let first = boot_id(&mut b);
    for _ in 0..2 {
        b.call("", "node.reboot", reboot(&first)).unwrap();
    }
    b.now += 9_999;
    assert_eq!(boot_id(&mut b), first);
    b.now += 1;
    assert_eq!(b.code("", "node.work", node()), Code::Unavailable);
    b.now += 20_000;
    let second = boot_id(&mut b);
    assert_ne!(second, first);
    assert_eq!(
        b.code("", "node.reboot", reboot(&first)),
        Code::FailedPrecondition
    );
    b.now += 60_000;
    assert_eq!(boot_id(&mut b), second, "it was rebooted once");
    assert_eq!(b.sim.pool_machines(b.now)[0].reboots, 1);
}

#[test]
fn a_node_is_not_heard_of_while_its_machine_reboots() {
    let config = SimConfig {
        machines: Machines {
            boot: Between::exactly(60_000),
            ..plain().machines
        },
        ..plain()
    };
    let mut b = Bench::new(config);
    b.now += 60_000;
    let id = b.call(
        "u",
        "pool.ensure",
        json!({"pools": [{"pool": "w", "tier": "worker"}]}),
    );
    id.unwrap();
    let arguments = json!({"name": "m", "pool": "w", "tier": "worker"});
    let id = b.call("u", "pool.add-machine", arguments).unwrap()["id"].clone();
    b.now += 60_000;
    b.run("u", "agent.install", json!({"machine": id, "versions": {}}));
    b.call("", "node.initialized", node()).unwrap();
    b.run("u", "kubeadm.init", json!({"machine": id, "labels": {}}));
    assert!(b.node().ready && b.node().heard);
    let boot = boot_id(&mut b);
    b.call("", "node.reboot", reboot(&boot)).unwrap();
    b.now += 10_000;
    assert!(!b.node().heard);
    b.now += 40_000;
    assert!(!b.node().ready, "its grace is over");
    b.now += 20_000;
    assert!(b.node().ready && b.node().heard);
}

#[test]
fn some_packages_want_a_reboot_until_there_was_one() {
    let mut b = bench(plain());
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    b.now += 30_000;
    assert_eq!(ask(&mut b, "", "node.reboot-required")["required"], false);
    b.call("", "node.ensure", kernel("6.1.2")).unwrap();
    b.now += 30_000;
    assert_eq!(ask(&mut b, "", "node.reboot-required")["required"], true);
    let boot = boot_id(&mut b);
    b.call("", "node.reboot", reboot(&boot)).unwrap();
    b.now += 30_000;
    assert_eq!(ask(&mut b, "", "node.reboot-required")["required"], false);
    let working = ask(&mut b, "", "node.work");
    assert_eq!(
        (&working["work"]["state"], &working["work"]["bootId"]),
        (&json!("done"), &boot)
    );
    b.call("", "node.ensure", kernel("6.1.2")).unwrap();
    b.now += 30_000;
    assert_eq!(
        ask(&mut b, "", "node.reboot-required")["required"],
        false,
        "nothing has changed"
    );
}

#[test]
fn a_machine_may_never_come_back_until_somebody_turns_it_on() {
    let turned_on = WorldEvent {
        vm: "m".to_owned(),
        at: Millis(3_600_000),
        after_power_on: None,
        until: None,
        does: Intervention::PowerOn,
    };
    let mut b = bench(SimConfig {
        events: vec![turned_on],
        ..with([rule("node.reboot", Trouble::NeverReturns)])
    });
    let boot = boot_id(&mut b);
    b.call("", "node.reboot", reboot(&boot)).unwrap();
    b.now += 1_800_000;
    assert_eq!(b.code("", "node.work", node()), Code::Unavailable);
    assert!(b.sim.pool_machines(b.now)[0].changing);
    b.now = START + 3_620_000;
    assert_ne!(boot_id(&mut b), boot);
}

#[test]
fn a_reboot_interrupts_what_is_being_installed() {
    let mut b = bench(plain());
    let boot = boot_id(&mut b);
    b.call("", "node.reboot", reboot(&boot)).unwrap();
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    b.now += 60_000;
    let work = ask(&mut b, "", "node.work")["work"].clone();
    assert_eq!(
        (&work["state"], &work["error"]["code"]),
        (&json!("failed"), &json!("aborted"))
    );
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    b.now += 30_000;
    assert_eq!(ask(&mut b, "", "node.work")["work"]["state"], "done");
}

#[test]
fn a_machine_answers_for_itself_and_to_its_own_agent_only() {
    let mut b = Bench::new(plain());
    b.first_node("u", "m");
    assert_eq!(b.code("", "node.work", json!({"node": "node-n"})), Code::NotFound);
    // Before the Node's agent has called, the machine knows no object.
    ask(&mut b, "", "node.work");
    ask(&mut b, "uid-node", "node.work");
    for thief in ["", "uid-other"] {
        for (operation, arguments) in [
            ("node.work", node()),
            ("node.ensure", versions("1.30.2")),
            ("node.reboot", reboot(&json!("x"))),
        ] {
            assert_eq!(
                b.code(thief, operation, arguments),
                Code::PermissionDenied,
                "{thief:?} {operation}"
            );
        }
    }
    ask(&mut b, "uid-node", "node.seed");
}

#[test]
fn installing_can_fail_and_take_its_time() {
    let fails = FaultRule {
        nth: Some(1),
        ..rule(
            "node.ensure",
            Trouble::FailTask {
                fault: "NoMirror".to_owned(),
                message: None,
            },
        )
    };
    let takes = rule("node.ensure", Trouble::TaskTakes(Millis(300_000)));
    let mut b = bench(with([fails, takes]));
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    b.now += 30_000;
    assert_eq!(
        ask(&mut b, "", "node.work")["work"]["error"]["code"],
        "unavailable"
    );
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    b.now += 299_000;
    assert_eq!(ask(&mut b, "", "node.work")["work"]["state"], "running");
    b.now += 1_000;
    assert_eq!(ask(&mut b, "", "node.work")["work"]["state"], "done");
}

#[test]
fn nothing_is_on_its_way_between_an_agent_and_its_machine() {
    let mut b = bench(with([rule("node.*", Trouble::HappenLate(Millis(60_000)))]));
    b.call("", "node.ensure", versions("1.30.2")).unwrap();
    assert_eq!(ask(&mut b, "", "node.work")["work"]["state"], "running");
}

#[test]
fn another_release_of_an_agent_remembers_what_the_machine_remembers() {
    let mut b = Bench::new(plain());
    let id = b.first_node("u", "m");
    let task = b.run(
        "u",
        "agent.install",
        json!({"machine": id, "versions": {"kubelet": "1.30.4"}, "release": "2"}),
    );
    assert_eq!(task["state"], "success");
    let seed = ask(&mut b, "", "node.seed");
    assert_eq!(
        (&seed["versions"]["kubelet"], &seed["initialized"]),
        (&json!("1.30.4"), &json!(true))
    );
    let machine = &b.call("u", "pool.machines", json!({})).unwrap()["machines"][0];
    assert_eq!(machine["agentRelease"], "2");
}
