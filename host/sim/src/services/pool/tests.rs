//! Tests of pools of machines, and of how the machines become nodes.

use crate::harness::*;

fn entry(b: &Bench, name: &str) -> PendingEntry {
    PendingEntry {
        operation: "pool.add-machine".to_owned(),
        key: "key-u".to_owned(),
        ..b.entry(name)
    }
}

fn addition(name: &str) -> Value {
    json!({"name": name, "pool": "w", "tier": "worker"})
}

fn pool() -> Value {
    json!({"pools": [{"pool": "w", "provider": "static", "tier": "worker"}]})
}

fn joining(machine: &Value, token: &str) -> Value {
    let sealed = |name: &str| json!({"$secret": {"name": name, "key": "k"}});
    json!({
        "machine": machine, "labels": {"pool": "w"}, "role": "worker", "token": sealed(token),
        "certificateKey": sealed("certificate"), "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    })
}

fn machines(b: &mut Bench, owner: &str) -> Vec<Value> {
    let listed = b.call(owner, "pool.machines", json!({})).unwrap();
    listed["machines"].as_array().unwrap().clone()
}

#[test]
fn a_machine_is_added_to_a_pool_that_is_there_and_listed() {
    let mut b = Bench::new(plain());
    assert_eq!(b.call("u", "pool.list", json!({})).unwrap(), json!({"pools": []}));
    assert_eq!(b.code("u", "pool.add-machine", addition("m")), Code::NotFound);
    for _ in 0..2 {
        b.call("u", "pool.ensure", pool()).unwrap();
    }
    let pools = b.call("u", "pool.list", json!({})).unwrap();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 1);
    let made = b.call("u", "pool.add-machine", addition("m")).unwrap();
    assert_eq!(
        (&made["nodeName"], &made["agent"]),
        (&json!("node-m"), &json!("absent"))
    );
    assert_eq!(machines(&mut b, "u"), [made]);
    assert_eq!(
        b.code("u", "pool.add-machine", addition("m")),
        Code::AlreadyExists
    );
    assert!(machines(&mut b, "other").is_empty());
    assert_eq!(
        b.call("other", "pool.list", json!({})).unwrap(),
        json!({"pools": []})
    );
}

#[test]
fn every_answer_about_pools_is_what_the_catalogue_says() {
    let mut b = Bench::new(plain());
    let catalogue = b.sim.catalogue().clone();
    let check = |b: &mut Bench, operation: &str, arguments: Value| {
        let answer = b.call("u", operation, arguments).unwrap();
        assert_allows(&catalogue.operations[operation].answer, &answer);
        b.now += 21_000;
        answer
    };
    check(&mut b, "pool.ensure", pool());
    check(&mut b, "pool.list", json!({}));
    let id = check(&mut b, "pool.add-machine", addition("m"))["id"].clone();
    let task = check(
        &mut b,
        "agent.install",
        json!({"machine": id, "versions": {"kubelet": "1.30.2"}, "release": "1"}),
    );
    check(&mut b, "task.get", json!({"id": task["task"]}));
    check(&mut b, "pool.machines", json!({}));
    b.call("", "node.initialized", json!({"node": "node-m"})).unwrap();
    check(&mut b, "kubeadm.init", json!({"machine": id, "labels": {}}));
    check(&mut b, "pool.remove-machine", json!({"machine": id}));
    assert_eq!(
        catalogue.operations["pool.add-machine"].intent.as_deref(),
        Some("name")
    );
    assert_eq!(
        catalogue.operations["kubeadm.join"].sealed,
        ["token", "certificateKey"]
    );
}

#[test]
fn a_machine_that_is_prepared_makes_the_cluster_and_another_one_joins_it() {
    let mut b = Bench::new(plain());
    let first = b.first_node("u", "m");
    let node = b.node();
    assert_eq!(
        (node.name.as_str(), node.ready, node.labels["pool"].as_str()),
        ("node-m", true, "w")
    );
    assert_eq!(node.provider_id, format!("sim:///{}", first.as_str().unwrap()));
    let second = b.prepared("u", "n");
    let task = b.run("u", "kubeadm.join", joining(&second, "token"));
    assert_eq!(
        (&task["state"], &task["kind"]),
        (&json!("success"), &json!("join"))
    );
    let nodes = b.sim.nodes(b.now);
    assert_eq!(nodes.len(), 2);
    assert_eq!(nodes[1].taints, [json!({"key": "gpu", "effect": "NoSchedule"})]);
    assert_eq!(
        b.code("u", "kubeadm.join", joining(&second, "token")),
        Code::AlreadyExists
    );
}

#[test]
fn a_cluster_is_made_once_and_by_a_machine_that_is_prepared() {
    let mut b = Bench::new(plain());
    let raw = b.member("u", "raw", json!({}));
    let init = |machine: &Value| json!({"machine": machine, "labels": {}});
    assert_eq!(b.code("u", "kubeadm.init", init(&raw)), Code::FailedPrecondition);
    let (first, second) = (b.prepared("u", "m"), b.prepared("u", "n"));
    assert_eq!(
        b.code("u", "kubeadm.join", joining(&second, "token")),
        Code::FailedPrecondition
    );
    let task = b.call("u", "kubeadm.init", init(&first)).unwrap();
    assert_eq!(
        b.call("u", "kubeadm.init", init(&first)).unwrap(),
        task,
        "the same work is joined"
    );
    assert_eq!(
        b.code("u", "kubeadm.init", init(&second)),
        Code::FailedPrecondition
    );
    assert_eq!(
        b.code("u", "agent.install", json!({"machine": first, "versions": {}})),
        Code::FailedPrecondition
    );
    b.now += 11_000;
    for machine in [first, second] {
        assert_eq!(b.code("u", "kubeadm.init", init(&machine)), Code::AlreadyExists);
    }
}

#[test]
fn the_machine_of_another_object_is_refused() {
    let mut b = Bench::new(plain());
    let id = b.prepared("u", "m");
    for (operation, arguments) in [
        ("pool.remove-machine", json!({"machine": id})),
        ("agent.install", json!({"machine": id, "versions": {}})),
        ("kubeadm.init", json!({"machine": id, "labels": {}})),
        ("kubeadm.join", joining(&id, "token")),
    ] {
        assert_eq!(
            b.code("thief", operation, arguments.clone()),
            Code::PermissionDenied,
            "{operation}"
        );
        let mut elsewhere = request("u", operation, arguments.clone());
        elsewhere.session.tenant = "another".to_owned();
        let answer = b.sim.perform(b.now, &elsewhere).answer.unwrap();
        assert_eq!(answer.unwrap_err().code, Code::PermissionDenied, "{operation}");
        let mut unknown = arguments;
        unknown["machine"] = "vm-999".into();
        assert_eq!(b.code("u", operation, unknown), Code::NotFound, "{operation}");
    }
    let vm = b.vm("u");
    assert_eq!(
        b.code("u", "pool.remove-machine", json!({"machine": vm["id"]})),
        Code::NotFound
    );
    let provider_id = format!("sim:///{}", id.as_str().unwrap());
    assert_eq!(
        b.code(
            "u",
            "machine.status",
            json!({"name": "m", "providerID": provider_id})
        ),
        Code::NotFound
    );
    assert_eq!(machines(&mut b, "u").len(), 1);
}

#[test]
fn a_token_that_was_revoked_lets_nobody_join() {
    let mut b = Bench::new(plain());
    b.first_node("u", "m");
    let second = b.prepared("u", "n");
    let token = json!({"$secret": {"name": "token", "key": "k"}});
    let task = b.call("u", "kubeadm.join", joining(&second, "token")).unwrap();
    b.sim.revoke_token(b.now, &token);
    b.now += 11_000;
    let task = b.call("u", "task.get", json!({"id": task["task"]})).unwrap();
    assert_eq!(task["error"]["fault"], "Unauthorized");
    let task = b.run("u", "kubeadm.join", joining(&second, "another"));
    assert_eq!(task["state"], "success");
}

#[test]
fn nobody_joins_while_the_api_server_does_not_answer() {
    let down = Span {
        from: Millis(60_000),
        until: Millis(120_000),
    };
    let mut b = Bench::new(SimConfig {
        api_server_down: vec![down],
        ..plain()
    });
    let id = b.prepared("u", "m");
    b.now = START + 60_000;
    let task = b.run("u", "kubeadm.init", json!({"machine": id, "labels": {}}));
    assert_eq!(task["error"]["fault"], "Timeout");
    b.now = START + 120_000;
    let task = b.run("u", "kubeadm.init", json!({"machine": id, "labels": {}}));
    assert_eq!(task["state"], "success", "what failed did not make the cluster");
}

#[test]
fn a_machine_that_is_removed_leaves_its_name() {
    let mut b = Bench::new(plain());
    let id = b.first_node("u", "m");
    let task = b.run("u", "pool.remove-machine", json!({"machine": id}));
    assert_eq!(task["state"], "success");
    assert!(machines(&mut b, "u").is_empty());
    assert!(b.node().gone.is_some());
    assert_eq!(
        b.code("u", "pool.remove-machine", json!({"machine": id})),
        Code::NotFound
    );
    assert_eq!(b.code("", "node.seed", json!({"node": "node-m"})), Code::NotFound);
    let again = b.call("u", "pool.add-machine", addition("m")).unwrap();
    assert_ne!(again["id"], id);
}

#[test]
fn what_came_of_an_addition_is_settled() {
    let mut b = Bench::new(with([rule("pool.add-machine", Trouble::LoseAnswer)]));
    b.call("u", "pool.ensure", pool()).unwrap();
    let pending = entry(&b, "m");
    assert!(b.resolve("u", &pending).is_unknown(), "too early to tell");
    assert!(b.reply("u", "pool.add-machine", addition("m")).answer.is_none());
    let made = machines(&mut b, "u").remove(0);
    assert_eq!(b.resolve("u", &pending), done(made));
    b.now += 60_000;
    assert!(b.resolve("u", &entry(&b, "n")).is_unknown());
    let old = PendingEntry {
        since: Unix(START),
        ..entry(&b, "n")
    };
    assert_eq!(b.resolve("u", &old), Resolution::Absent);
    assert_eq!(
        b.resolve(
            "thief",
            &PendingEntry {
                since: Unix(START),
                ..entry(&b, "m")
            }
        ),
        Resolution::Absent
    );
    // A machine of a pool is neither a cloned VM nor a machine of Gardener.
    for operation in ["vm.clone", "machine.create"] {
        let other = PendingEntry {
            operation: operation.to_owned(),
            since: Unix(START),
            ..entry(&b, "m")
        };
        assert_eq!(b.resolve("u", &other), Resolution::Absent);
    }
}

#[test]
fn with_client_tokens_a_key_adds_one_machine() {
    let mut b = Bench::new(SimConfig {
        tokens: true,
        ..plain()
    });
    b.call("u", "pool.ensure", pool()).unwrap();
    let made = b.call("u", "pool.add-machine", addition("m")).unwrap();
    assert_eq!(b.call("u", "pool.add-machine", addition("m")).unwrap(), made);
    assert_eq!(machines(&mut b, "u").len(), 1);
}

#[test]
fn somebody_wants_another_machine_instead() {
    let retires = WorldEvent {
        vm: "m".to_owned(),
        at: Millis(0),
        after_power_on: Some(Millis(60_000)),
        until: None,
        does: Intervention::Retire,
    };
    let mut b = Bench::new(SimConfig {
        events: vec![retires],
        ..plain()
    });
    b.prepared("u", "m");
    assert_eq!(machines(&mut b, "u")[0]["replacementRequired"], false);
    b.now += 60_000;
    assert_eq!(machines(&mut b, "u")[0]["replacementRequired"], true);
}

#[test]
fn the_list_may_lag_and_a_task_never_does() {
    let mut b = Bench::new(SimConfig {
        lag: Millis(5_000),
        ..plain()
    });
    b.call("u", "pool.ensure", pool()).unwrap();
    b.now += 10_000;
    b.call("u", "pool.add-machine", addition("m")).unwrap();
    let seen: Vec<usize> = (0..20).map(|_| machines(&mut b, "u").len()).collect();
    assert!(seen.contains(&0), "{seen:?}");
    b.now += 5_001;
    assert!((0..20).all(|_| machines(&mut b, "u").len() == 1));
}

#[test]
fn a_restart_goes_on_with_everything_and_keeps_no_secret() {
    let late = rule("kubeadm.join", Trouble::HappenLate(Millis(5_000)));
    let config = with([late]);
    let mut b = Bench::new(config.clone());
    b.first_node("u", "m");
    let second = b.prepared("u", "n");
    let mut arguments = joining(&second, "token");
    // The arguments are unsealed, as they reach an adapter.
    arguments["token"] = "abcdef.0123456789abcdef".into();
    arguments["certificateKey"] = "0badc0ffee".into();
    let late = request("u", "kubeadm.join", arguments);
    assert!(b.sim.perform_checked(b.now, &late).answer.is_none());
    for seconds in [0, 6, 60] {
        let snapshot = b.sim.snapshot();
        for secret in ["abcdef", "0badc0ffee"] {
            assert!(!snapshot.contains(secret), "after {seconds} s");
        }
        b.sim = Sim::restore(config.clone(), &snapshot).unwrap();
        b.now += seconds * 1_000;
        b.sim.advance(b.now);
    }
    assert_eq!(b.sim.nodes(b.now).len(), 2);
}
