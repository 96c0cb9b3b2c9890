//! Tests of each operation.

use crate::harness::*;

#[test]
fn a_machine_goes_from_nothing_to_running_with_an_address_and_back() {
    let mut b = Bench::new(plain());
    assert_eq!(
        b.code("u", "vm.find", json!({"instanceUuid": "u"})),
        Code::NotFound
    );
    let vm = b.vm("u");
    let found = b.call("u", "vm.find", json!({"instanceUuid": "u"})).unwrap();
    assert_eq!(
        (&found["id"], &found["name"], &found["instanceUuid"]),
        (&vm["id"], &json!("u"), &json!("u"))
    );
    assert_eq!(b.call("u", "vm.get", vm.clone()).unwrap(), found);
    assert_eq!(
        b.call("u", "vm.metadata", vm.clone()).unwrap(),
        json!({"metadata": null})
    );
    let task = b.run("u", "vm.reconfigure", json!({"id": vm["id"], "metadata": "m"}));
    assert_eq!(
        (&task["state"], &task["kind"], &task["vm"]),
        (&json!("success"), &json!("reconfigure"), &vm["id"])
    );
    assert_eq!(
        b.call("u", "vm.metadata", vm.clone()).unwrap(),
        json!({"metadata": "m"})
    );
    assert_eq!(
        b.call("u", "vm.power", vm.clone()).unwrap(),
        json!({"state": "off"})
    );
    assert_eq!(b.run("u", "vm.power-on", vm.clone())["state"], "success");
    assert_eq!(
        b.call("u", "vm.power", vm.clone()).unwrap(),
        json!({"state": "on"})
    );
    b.now += 5_000;
    let nics = b.call("u", "vm.nics", vm.clone()).unwrap();
    assert_eq!(nics["nics"][0]["connected"], true);
    assert_eq!(nics["nics"][0]["network"], "net");
    assert!(
        nics["nics"][0]["ips"][1].as_str().unwrap().starts_with("10."),
        "{nics}"
    );
    assert_eq!(b.run("u", "vm.power-off", vm.clone())["state"], "success");
    assert_eq!(b.run("u", "vm.destroy", vm.clone())["state"], "success");
    assert_eq!(b.code("u", "vm.get", vm), Code::NotFound);
    assert!(b.sim.vms(b.now).is_empty());
}

#[test]
fn a_clone_is_seen_by_nobody_until_it_ends() {
    let mut b = Bench::new(plain());
    let task = b.clone_vm("u", "m").unwrap();
    assert_eq!(
        b.call("u", "task.get", json!({"id": task["task"]})).unwrap()["state"],
        "queued"
    );
    b.now += 1_000;
    let running = b.call("u", "task.get", json!({"id": task["task"]})).unwrap();
    assert_eq!((&running["state"], running.get("vm")), (&json!("running"), None));
    b.now += 9_999;
    assert_eq!(
        b.code("u", "vm.find", json!({"instanceUuid": "u"})),
        Code::NotFound
    );
    let creating = b.sim.vms(b.now);
    assert_eq!(creating.len(), 1);
    assert!(creating[0].creating);
    assert_eq!(
        b.code("u", "vm.get", json!({"id": creating[0].id})),
        Code::NotFound
    );
    b.now += 1;
    assert!(b.call("u", "vm.find", json!({"instanceUuid": "u"})).is_ok());
    assert!(!b.sim.vms(b.now)[0].creating);
}

#[test]
fn the_effect_comes_before_the_answer() {
    let mut b = Bench::new(plain());
    let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
    assert_eq!(reply.after_ms, 10);
    assert_eq!(b.sim.vms(b.now).len(), 1, "before the answer has arrived");
}

#[test]
fn what_another_object_owns_is_refused_by_id_and_not_found_by_search() {
    let mut b = Bench::new(plain());
    let vm = b.vm("victim");
    let task = b.call("victim", "vm.power-on", vm.clone()).unwrap();
    let before = b.sim.snapshot();
    for operation in [
        "vm.get",
        "vm.metadata",
        "vm.nics",
        "vm.power",
        "vm.power-on",
        "vm.power-off",
        "vm.destroy",
    ] {
        assert_eq!(
            b.code("thief", operation, vm.clone()),
            Code::PermissionDenied,
            "{operation}"
        );
    }
    let metadata = json!({"id": vm["id"], "metadata": "x"});
    assert_eq!(
        b.code("thief", "vm.reconfigure", metadata),
        Code::PermissionDenied
    );
    assert_eq!(
        b.code("thief", "task.get", json!({"id": task["task"]})),
        Code::PermissionDenied
    );
    assert_eq!(
        b.code("thief", "vm.find", json!({"instanceUuid": "victim"})),
        Code::NotFound
    );
    let world = |snapshot: &str| serde_json::from_str::<Value>(snapshot).unwrap()["world"]["vms"].clone();
    assert_eq!(
        world(&before),
        world(&b.sim.snapshot()),
        "and nothing was touched"
    );
}

#[test]
fn ids_are_known_in_one_spelling_only() {
    let mut b = Bench::new(plain());
    let vm = b.vm("u");
    let id = vm["id"].as_str().unwrap();
    for id in [
        id.replace("vm-", "vm-0"),
        id.replace("vm-", "vm-+"),
        id.replace("vm-", ""),
        format!("{id} "),
    ] {
        assert_eq!(b.code("u", "vm.get", json!({"id": id})), Code::NotFound, "{id}");
    }
}

#[test]
fn arguments_are_refused_with_their_path() {
    let mut b = Bench::new(plain());
    let mut arguments = clone_arguments("u", "m");
    arguments["networks"] = json!(["a", 7]);
    let failure = b.call("u", "vm.clone", arguments).unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(
        failure.message.starts_with("vm.clone: networks[1]: "),
        "{failure}"
    );
    let failure = b
        .call("u", "vm.get", json!({"id": "vm-1", "host": "evil"}))
        .unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(failure.message.contains("host"), "{failure}");
    assert_eq!(b.code("u", "vm.explode", json!({})), Code::Unimplemented);
    assert!(b.sim.effects().is_empty());
}

#[test]
fn creates_have_a_key_and_nothing_else_has() {
    let mut b = Bench::new(plain());
    let keyless = CloudRequest {
        key: None,
        ..clone_of("u", "m")
    };
    let keyed = CloudRequest {
        key: Some("k".to_owned()),
        ..request("u", "vm.get", json!({"id": "vm-1"}))
    };
    for request in [keyless, keyed] {
        let answer = b.sim.perform(b.now, &request).answer.unwrap();
        assert_eq!(answer.unwrap_err().code, Code::Internal);
    }
}

#[test]
fn a_name_is_taken_from_the_submission_of_its_clone_until_the_vm_is_gone() {
    let (mut at_once, mut by_task) = (0, 0);
    for seed in 0..50 {
        let mut b = Bench {
            sim: Sim::new(plain(), seed, START),
            now: START,
        };
        b.clone_vm("u", "m").unwrap();
        match b.clone_vm("u2", "m") {
            Err(failure) => {
                assert_eq!(
                    (failure.code, failure.effect),
                    (Code::AlreadyExists, polity_core::contract::Effect::None)
                );
                at_once += 1;
            }
            Ok(task) => {
                assert_eq!(
                    b.sim.vms(b.now).len(),
                    1,
                    "the second clone makes nothing, not even for a moment"
                );
                b.now += 11_000;
                let task = b.call("u2", "task.get", json!({"id": task["task"]})).unwrap();
                assert_eq!(
                    (&task["state"], &task["error"]["fault"]),
                    (&json!("error"), &json!("DuplicateName"))
                );
                by_task += 1;
            }
        }
    }
    assert!(at_once > 5 && by_task > 5, "{at_once} {by_task}");
    let mut b = Bench::new(plain());
    let vm = b.vm("m");
    b.run("m", "vm.destroy", vm);
    assert!(b.clone_vm("u2", "m").is_ok(), "the name is free again");
    let elsewhere = json!({"folder": "elsewhere"});
    let mut arguments = clone_arguments("u3", "m");
    arguments["folder"] = elsewhere["folder"].clone();
    assert!(
        b.call("u3", "vm.clone", arguments).is_ok(),
        "names are unique in a folder"
    );
}

#[test]
fn without_unique_names_two_vms_share_one() {
    let mut b = Bench::new(SimConfig {
        unique_names: false,
        ..plain()
    });
    b.clone_vm("u", "m").unwrap();
    b.clone_vm("u", "m").unwrap();
    assert_eq!(b.sim.vms(b.now).len(), 2);
}

#[test]
fn one_task_at_a_time_changes_a_vm() {
    let mut b = Bench::new(plain());
    let vm = b.vm("u");
    b.call("u", "vm.power-on", vm.clone()).unwrap();
    let failure = b.call("u", "vm.destroy", vm.clone()).unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition);
    assert!(failure.message.starts_with("TaskInProgress"), "{failure}");
    b.now += 11_000;
    assert!(b.call("u", "vm.power-off", vm).is_ok());
}

#[test]
fn a_wrong_power_state_fails_the_task_and_says_which_was_asked_for() {
    let mut b = Bench::new(plain());
    let vm = b.vm("u");
    let check = |task: &Value, existing: &str, requested: &str| {
        let error = &task["error"];
        assert_eq!(error["fault"], "InvalidPowerState", "{task}");
        assert_eq!(
            (&error["existing"], &error["requested"]),
            (&json!(existing), &json!(requested))
        );
    };
    check(&b.run("u", "vm.power-off", vm.clone()), "off", "off");
    assert_eq!(b.run("u", "vm.power-on", vm.clone())["state"], "success");
    check(&b.run("u", "vm.power-on", vm.clone()), "on", "on");
    check(&b.run("u", "vm.destroy", vm.clone()), "on", "off");
    let task = b.run(
        "u",
        "vm.reconfigure",
        json!({"id": vm["id"], "metadata": "while on"}),
    );
    assert_eq!(task["state"], "success");
    assert_eq!(b.call("u", "vm.power", vm).unwrap(), json!({"state": "on"}));
}

#[test]
fn an_address_comes_some_time_after_power_on_and_goes_with_it() {
    let networks = vec![
        Network {
            name: "net".to_owned(),
            dhcp: true,
            connected: true,
        },
        Network {
            name: "silent".to_owned(),
            dhcp: false,
            connected: true,
        },
        Network {
            name: "unplugged".to_owned(),
            dhcp: true,
            connected: false,
        },
    ];
    let mut b = Bench::new(SimConfig { networks, ..plain() });
    let mut arguments = clone_arguments("u", "u");
    arguments["networks"] = json!(["net", "silent", "unplugged"]);
    let task = b.run("u", "vm.clone", arguments);
    let vm = json!({"id": task["vm"]});
    let ips = |b: &mut Bench| -> Vec<usize> {
        let nics = b.call("u", "vm.nics", vm.clone()).unwrap();
        nics["nics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|nic| nic["ips"].as_array().unwrap().len())
            .collect()
    };
    assert_eq!(ips(&mut b), [0, 0, 0]);
    b.call("u", "vm.power-on", vm.clone()).unwrap();
    b.now += 11_000 + 4_999;
    assert_eq!(ips(&mut b), [1, 1, 0], "link-local addresses are there at once");
    b.now += 1;
    assert_eq!(ips(&mut b), [2, 1, 0]);
    assert_eq!(b.sim.vms(b.now)[0].ips.len(), 1);
    b.run("u", "vm.power-off", vm.clone());
    assert_eq!(ips(&mut b), [0, 0, 0]);
}

#[test]
fn templates_are_limited_to_tenants_and_have_hardware() {
    let template = |name: &str, disks, tenants: &[&str]| Template {
        name: name.to_owned(),
        networks: vec!["inherited".to_owned()],
        disks,
        tenants: tenants.iter().map(|t| (*t).to_owned()).collect(),
    };
    let templates = vec![
        template("ubuntu", 1, &[]),
        template("two-disks", 2, &[]),
        template("gold", 1, &["ns-vip"]),
    ];
    let mut b = Bench::new(SimConfig { templates, ..plain() });
    let of = |owner: &str, template: &str| {
        let mut arguments = clone_arguments(owner, &format!("{owner}-{template}"));
        arguments["template"] = json!(template);
        arguments["networks"] = json!([]);
        arguments
    };
    assert_eq!(b.code("u", "vm.clone", of("u", "none")), Code::NotFound);
    assert_eq!(b.code("u", "vm.clone", of("u", "gold")), Code::PermissionDenied);
    assert_eq!(b.run("vip", "vm.clone", of("vip", "gold"))["state"], "success");
    let mut two = of("u", "two-disks");
    two["diskGiB"] = json!(20);
    assert_eq!(b.run("u", "vm.clone", two)["error"]["fault"], "InvalidSpec");
    let task = b.run("u", "vm.clone", of("u", "ubuntu"));
    let nics = b.call("u", "vm.nics", json!({"id": task["vm"]})).unwrap();
    assert_eq!(nics["nics"][0]["network"], "inherited");
}

#[test]
fn a_network_that_is_not_there_fails_the_clone_and_leaves_nothing() {
    let networks = vec![Network {
        name: "other".to_owned(),
        dhcp: true,
        connected: true,
    }];
    let mut b = Bench::new(SimConfig { networks, ..plain() });
    let task = b.run("u", "vm.clone", clone_arguments("u", "m"));
    assert_eq!(task["error"]["fault"], "InvalidArgument");
    assert!(b.sim.vms(b.now).is_empty());
}

#[test]
fn a_task_record_expires() {
    let mut b = Bench::new(plain());
    let task = b.clone_vm("u", "m").unwrap();
    let get = json!({"id": task["task"]});
    b.now += 11_000 + 599_999;
    assert_eq!(b.call("u", "task.get", get.clone()).unwrap()["state"], "success");
    b.now += 1;
    assert_eq!(b.code("u", "task.get", get), Code::NotFound);
}

#[test]
fn reads_lag_for_a_bounded_time_and_never_deny_what_exists() {
    let mut stale = [0; 3];
    for seed in 0..200 {
        let config = SimConfig {
            lag: Millis(3_000),
            ..plain()
        };
        let mut b = Bench {
            sim: Sim::new(config, seed, START),
            now: START,
        };
        let vm = b.vm("u");
        let find = json!({"instanceUuid": "u"});
        b.now += 1_000;
        stale[0] += usize::from(b.call("u", "vm.find", find.clone()).is_err());
        assert!(b.call("u", "vm.get", vm.clone()).is_ok(), "a read by id");
        b.now += 3_000;
        assert!(b.call("u", "vm.find", find).is_ok(), "a search, after the lag");
        let task = b.run("u", "vm.power-on", vm.clone());
        assert_eq!(task["state"], "success", "task.get does not lag");
        b.now += 1_000;
        stale[1] += usize::from(b.call("u", "vm.power", vm.clone()).unwrap()["state"] == "off");
        b.now += 3_000;
        assert_eq!(b.call("u", "vm.power", vm.clone()).unwrap()["state"], "on");
        b.run("u", "vm.power-off", vm.clone());
        b.run("u", "vm.destroy", vm.clone());
        b.now += 1_000;
        stale[2] += usize::from(b.call("u", "vm.get", vm.clone()).is_ok());
        b.now += 3_000;
        assert_eq!(b.code("u", "vm.get", vm), Code::NotFound);
    }
    assert!(stale.iter().all(|n| (20..200).contains(n)), "{stale:?}");
}

#[test]
fn with_tokens_a_create_with_the_same_key_is_the_same_create() {
    let mut b = Bench::new(SimConfig {
        tokens: true,
        ..plain()
    });
    let first = b.clone_vm("u", "m").unwrap();
    assert_eq!(b.clone_vm("u", "m").unwrap(), first);
    assert_eq!(b.sim.vms(b.now).len(), 1);
    b.now += 11_000 + 600_000;
    assert_eq!(
        b.code("u", "vm.clone", clone_arguments("u", "m")),
        Code::AlreadyExists
    );
}

#[test]
fn every_answer_is_what_the_catalogue_says() {
    let mut b = Bench::new(SimConfig {
        queue: Between::exactly(0),
        ..plain()
    });
    let catalogue = b.sim.catalogue().clone();
    let check = |operation: &str, answer: &Value| {
        assert_allows(&catalogue.operations[operation].answer, answer);
    };
    let vm = b.vm("u");
    for operation in ["vm.get", "vm.metadata", "vm.nics", "vm.power"] {
        check(operation, &b.call("u", operation, vm.clone()).unwrap());
    }
    check(
        "vm.find",
        &b.call("u", "vm.find", json!({"instanceUuid": "u"})).unwrap(),
    );
    for operation in [
        "vm.power-off",
        "vm.power-on",
        "vm.destroy",
        "vm.power-off",
        "vm.destroy",
    ] {
        let task = b.call("u", operation, vm.clone()).unwrap();
        check(operation, &task);
        check(
            "task.get",
            &b.call("u", "task.get", json!({"id": task["task"]})).unwrap(),
        );
        b.now += 11_000;
        check(
            "task.get",
            &b.call("u", "task.get", json!({"id": task["task"]})).unwrap(),
        );
    }
    assert!(
        catalogue
            .operations
            .values()
            .all(|o| o.longest <= Duration::from_secs(5))
    );
}

#[test]
fn every_operation_has_one_service_which_performs_it() {
    let services = crate::sim::services(&plain());
    let all = services
        .iter()
        .flat_map(|service| service.operations(Duration::ZERO));
    let mut names: Vec<_> = all.map(|(name, _)| name).collect();
    names.sort_unstable();
    let mut b = Bench::new(plain());
    let catalogue = b.sim.catalogue().clone();
    assert_eq!(
        names,
        catalogue.operations.keys().collect::<Vec<_>>(),
        "none twice"
    );
    for operation in names {
        let request = request("u", operation, json!({"instanceUuid": "u"}));
        let answer = b.sim.perform_checked(b.now, &request).answer.expect("an answer");
        let code = answer.err().map(|failure| failure.code);
        assert!(
            ![Some(Code::Unimplemented), Some(Code::Internal)].contains(&code),
            "{operation}: {code:?}"
        );
    }
}
