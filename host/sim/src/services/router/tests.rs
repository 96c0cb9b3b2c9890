//! Tests of virtual routers: booted, reached, configured, plugged and removed.

use polity_core::contract::Effect as MayHave;

use crate::harness::*;

fn mac(n: u32) -> String {
    format!("fa:16:3e:00:00:{n:02}")
}

fn port(n: u32) -> Value {
    json!({"network": format!("net-{n}"), "mac": mac(n)})
}

fn boot(name: &str, ports: &[Value]) -> Value {
    json!({"name": name, "image": "image-1", "flavor": "small", "ports": ports})
}

fn plug(id: &Value, n: u32) -> Value {
    json!({"id": id, "network": format!("net-{n}"), "mac": mac(n)})
}

fn entry(b: &Bench, name: &str) -> PendingEntry {
    b.entry_of("router.boot", name)
}

impl Bench {
    /// A router of this owner with port 1. Returns the id of its VM.
    fn router(&mut self, owner: &str, name: &str) -> Value {
        let answer = self.call(owner, "router.boot", boot(name, &[port(1)]));
        answer.expect("a router")["id"].clone()
    }

    /// The same, once the router answers.
    fn answering(&mut self, owner: &str, name: &str) -> Value {
        let id = self.router(owner, name);
        self.now += 12_000;
        id
    }

    fn status(&mut self, id: &Value) -> String {
        let found = self
            .call("u", "router.get", json!({"name": "r", "id": id}))
            .expect("a VM");
        found["status"].as_str().expect("a text").to_owned()
    }

    fn shown(&mut self, id: &Value) -> Value {
        self.call("u", "router.interfaces", json!({"id": id}))
            .expect("macs")["macs"]
            .clone()
    }
}

#[test]
fn a_router_is_built_boots_is_configured_and_removed() {
    let mut b = Bench::new(plain());
    let begin = b.now;
    let id = b.router("u", "r");
    let found = b.call("u", "router.get", json!({"name": "r"})).unwrap();
    assert_eq!(
        found,
        json!({"id": id, "status": "BUILD", "createdAt": begin, "managed": false, "ports": [port(1)]})
    );
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": false})
    );
    b.now += 2_000;
    let found = b.call("u", "router.get", json!({"name": "r", "id": id})).unwrap();
    assert_eq!(
        (&found["status"], &found["managed"]),
        (&json!("ACTIVE"), &json!(true))
    );
    for operation in ["router.interfaces", "router.stats"] {
        assert_eq!(
            b.code("u", operation, json!({"id": id})),
            Code::FailedPrecondition
        );
    }
    b.now += 10_000;
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": true})
    );
    assert_eq!(b.shown(&id), json!([mac(1)]));
    let task = b.run(
        "u",
        "config.push",
        json!({"id": id, "config": {"ports": [port(1)]}}),
    );
    assert_eq!(
        (&task["state"], &task["kind"]),
        (&json!("success"), &json!("push"))
    );
    assert_eq!(b.sim.routers(b.now)[0].config, Some(json!({"ports": [port(1)]})));
    let stats = b.call("u", "router.stats", json!({"id": id})).unwrap();
    assert_eq!(stats["traffic"][0]["mac"], json!(mac(1)));
    assert!(stats["traffic"][0]["rxBytes"].as_u64() > Some(0));
    for _ in 0..2 {
        assert_eq!(
            b.call("u", "router.delete", json!({"id": id})).unwrap(),
            json!({})
        );
        assert_eq!(b.status(&id), "DELETING");
        assert_eq!(
            b.call("u", "router.alive", json!({"id": id})).unwrap(),
            json!({"alive": false})
        );
        b.now += 2_000;
    }
    b.now += 1_000;
    assert_eq!(
        b.code("u", "router.get", json!({"name": "r", "id": id})),
        Code::NotFound
    );
    assert_eq!(b.code("u", "router.delete", json!({"id": id})), Code::NotFound);
    assert!(b.sim.vms(b.now).is_empty());
    let told: Vec<_> = b
        .sim
        .effects()
        .iter()
        .map(|effect| effect.operation.as_str())
        .collect();
    let expected = [
        "router.boot",
        "router.boot",
        "config.push",
        "config.push",
        "router.delete",
        "router.delete",
    ];
    assert_eq!(told, expected);
}

#[test]
fn every_answer_about_routers_is_what_the_catalogue_says() {
    let mut b = Bench::new(plain());
    let catalogue = b.sim.catalogue().clone();
    let id = b.answering("u", "r");
    for (operation, arguments) in [
        ("router.boot", boot("other", &[])),
        ("image.get", json!({"image": "image-1"})),
        ("port.get", port(1)),
        ("port.get", port(2)),
        ("router.resource", json!({"name": "r"})),
        ("router.get", json!({"name": "r"})),
        ("router.alive", json!({"id": id})),
        ("router.interfaces", json!({"id": id})),
        ("router.stats", json!({"id": id})),
        ("port.attach", plug(&id, 2)),
        ("port.detach", plug(&id, 2)),
        ("config.push", json!({"id": id, "config": {}})),
        ("router.delete-ports", json!({"name": "r"})),
        ("router.delete", json!({"id": id})),
    ] {
        let answer = b.call("u", operation, arguments).unwrap();
        assert_allows(&catalogue.operations[operation].answer, &answer);
    }
    assert_eq!(
        catalogue.operations["router.boot"].intent.as_deref(),
        Some("name")
    );
}

#[test]
fn the_router_of_another_object_or_tenant_is_refused_by_id_and_not_found_by_name() {
    let mut b = Bench::new(plain());
    let id = b.answering("u", "r");
    let by_id = [
        ("router.get", json!({"name": "r", "id": id})),
        ("router.alive", json!({"id": id})),
        ("router.interfaces", json!({"id": id})),
        ("router.stats", json!({"id": id})),
        ("config.push", json!({"id": id, "config": {}})),
        ("router.delete", json!({"id": id})),
        ("port.attach", plug(&id, 2)),
        ("port.detach", plug(&id, 1)),
    ];
    for (operation, arguments) in by_id {
        assert_eq!(
            b.code("thief", operation, arguments.clone()),
            Code::PermissionDenied,
            "{operation}"
        );
        let mut elsewhere = request("u", operation, arguments);
        elsewhere.session.tenant = "another".to_owned();
        let answer = b.sim.perform(b.now, &elsewhere).answer.unwrap();
        assert_eq!(answer.unwrap_err().code, Code::PermissionDenied, "{operation}");
    }
    assert_eq!(
        b.code("thief", "router.get", json!({"name": "r"})),
        Code::NotFound
    );
    assert_eq!(
        b.call("thief", "router.delete-ports", json!({"name": "r"}))
            .unwrap(),
        json!({})
    );
    assert_eq!(b.shown(&id), json!([mac(1)]), "its ports are still there");
    assert_eq!(b.sim.router_ports().len(), 1);
}

#[test]
fn a_vm_that_is_no_router_is_none() {
    let mut b = Bench::new(plain());
    let vm = b.vm("u");
    for operation in [
        "router.alive",
        "router.interfaces",
        "router.stats",
        "router.delete",
    ] {
        assert_eq!(b.code("u", operation, vm.clone()), Code::NotFound, "{operation}");
    }
    let named = json!({"name": "u", "id": vm["id"]});
    assert_eq!(b.code("u", "router.get", named), Code::NotFound);
    assert_eq!(b.code("u", "router.get", json!({"name": "u"})), Code::NotFound);
}

#[test]
fn a_name_is_taken_in_its_tenant_until_the_vm_is_gone() {
    let mut b = Bench::new(plain());
    let id = b.router("u", "r");
    assert_eq!(b.code("u", "router.boot", boot("r", &[])), Code::AlreadyExists);
    b.call("v", "router.boot", boot("r", &[])).unwrap();
    b.call("u", "router.delete", json!({"id": id})).unwrap();
    assert_eq!(b.code("u", "router.boot", boot("r", &[])), Code::AlreadyExists);
    b.now += 5_000;
    b.router("u", "r");
}

#[test]
fn with_tokens_a_boot_with_the_same_key_is_the_same_router() {
    let mut b = Bench::new(SimConfig {
        tokens: true,
        ..plain()
    });
    let id = b.router("u", "r");
    assert_eq!(b.router("u", "r"), id);
    assert_eq!(b.sim.vms(b.now).len(), 1);
}

#[test]
fn a_port_is_of_the_router_that_has_it_until_it_is_given_back() {
    let mut b = Bench::new(plain());
    let id = b.answering("u", "r");
    assert_eq!(b.call("u", "port.get", port(1)).unwrap()["router"], "r");
    assert_eq!(b.call("u", "port.get", port(2)).unwrap()["router"], json!(null));
    let upper = json!({"network": "net-1", "mac": mac(1).to_uppercase()});
    for port in [port(1), upper] {
        assert_eq!(b.code("v", "port.get", port.clone()), Code::PermissionDenied);
        assert_eq!(
            b.code("v", "router.boot", boot("s", &[port])),
            Code::PermissionDenied
        );
    }
    assert_eq!(b.sim.vms(b.now).len(), 1, "nothing was booted");
    let other = b.call("v", "router.boot", boot("s", &[])).unwrap()["id"].clone();
    assert_eq!(
        b.code("v", "port.attach", plug(&other, 1)),
        Code::PermissionDenied
    );
    // A VM that vanishes leaves its ports to its router.
    b.call("u", "router.delete", json!({"id": id})).unwrap();
    b.now += 5_000;
    assert_eq!(b.code("v", "port.get", port(1)), Code::PermissionDenied);
    b.call("u", "router.delete-ports", json!({"name": "r"})).unwrap();
    assert!(b.sim.router_ports().is_empty());
    b.call("v", "port.attach", plug(&other, 1)).unwrap();
    assert_eq!(b.code("u", "port.get", port(1)), Code::PermissionDenied);
}

#[test]
fn two_routers_of_one_owner_do_not_share_a_port() {
    let mut b = Bench::new(plain());
    b.router("u", "r");
    assert_eq!(
        b.code("u", "router.boot", boot("s", &[port(1)])),
        Code::PermissionDenied
    );
}

#[test]
fn where_ports_are_listed_there_are_no_others_and_some_are_made_for_somebody() {
    let listed = |n: u32, tenant: Option<&str>, router: Option<&str>| RouterPort {
        network: format!("net-{n}"),
        mac: mac(n),
        tenant: tenant.map(str::to_owned),
        router: router.map(str::to_owned),
    };
    let ports = vec![
        listed(1, None, None),
        listed(2, Some("ns-v"), None),
        listed(3, Some("ns-u"), Some("s")),
    ];
    let routers = Routers {
        ports,
        ..plain().routers
    };
    let mut b = Bench::new(SimConfig { routers, ..plain() });
    assert_eq!(b.call("u", "port.get", port(3)).unwrap()["router"], "s");
    for (n, code) in [
        (2, Code::PermissionDenied),
        (3, Code::PermissionDenied),
        (4, Code::NotFound),
    ] {
        assert_eq!(b.code("u", "router.boot", boot("r", &[port(n)])), code);
    }
    assert_eq!(b.code("u", "port.get", port(2)), Code::PermissionDenied);
    assert_eq!(b.code("u", "port.get", port(4)), Code::NotFound);
    b.router("u", "r");
    b.call("u", "router.boot", boot("s", &[port(3)])).unwrap();
}

#[test]
fn where_images_are_listed_only_those_boot_and_some_only_for_their_tenants() {
    let image = |id: &str, tenants: &[&str]| Image {
        id: id.to_owned(),
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
    };
    let images = vec![image("image-1", &[]), image("image-2", &["ns-v"])];
    let mut b = Bench::new(SimConfig { images, ..plain() });
    assert_eq!(
        b.call("u", "image.get", json!({"image": "image-1"})).unwrap(),
        json!({})
    );
    for (image, code) in [("image-2", Code::PermissionDenied), ("image-3", Code::NotFound)] {
        assert_eq!(b.code("u", "image.get", json!({"image": image})), code);
        let mut arguments = boot("r", &[]);
        arguments["image"] = image.into();
        assert_eq!(b.code("u", "router.boot", arguments), code);
    }
    b.router("u", "r");
}

#[test]
fn a_port_is_plugged_at_once_and_shown_later() {
    let mut b = Bench::new(plain());
    let id = b.answering("u", "r");
    b.call("u", "port.attach", plug(&id, 2)).unwrap();
    assert_eq!(b.code("u", "port.attach", plug(&id, 2)), Code::AlreadyExists);
    b.call("u", "port.detach", plug(&id, 1)).unwrap();
    assert_eq!(b.code("u", "port.detach", plug(&id, 1)), Code::NotFound);
    let found = b.call("u", "router.get", json!({"name": "r", "id": id})).unwrap();
    assert_eq!(found["ports"], json!([port(2)]));
    assert_eq!(b.shown(&id), json!([mac(1)]));
    b.now += 2_000;
    assert_eq!(b.shown(&id), json!([mac(2)]));
    // The port can be plugged in again.
    b.call("u", "port.attach", plug(&id, 1)).unwrap();
    b.now += 2_000;
    assert_eq!(b.shown(&id), json!([mac(2), mac(1)]));
}

#[test]
fn a_vm_may_never_show_what_is_plugged() {
    let mut b = Bench::new(with([rule("port.*", Trouble::NeverPlugs)]));
    let id = b.answering("u", "r");
    b.call("u", "port.attach", plug(&id, 2)).unwrap();
    b.call("u", "port.detach", plug(&id, 1)).unwrap();
    b.now += 3_600_000;
    assert_eq!(b.shown(&id), json!([mac(1)]));
}

/// As in Nova: a server that cannot be built stays, in error, without its ports, until somebody deletes it.
#[test]
fn a_vm_that_cannot_be_built_is_in_error_and_says_why() {
    let fault = "No valid host was found.".to_owned();
    let mut b = Bench::new(with([rule("router.boot", Trouble::CannotBuild(fault.clone()))]));
    let id = b.router("u", "r");
    b.now += 60_000;
    let found = b.call("u", "router.get", json!({"name": "r", "id": id})).unwrap();
    assert_eq!(
        (
            &found["status"],
            &found["managed"],
            &found["ports"],
            &found["fault"]
        ),
        (&json!("ERROR"), &json!(false), &json!([]), &json!(fault))
    );
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": false})
    );
}

#[test]
fn a_vm_may_never_boot_until_somebody_helps() {
    let recover = WorldEvent {
        vm: "r".to_owned(),
        at: Millis(3_600_000),
        after_power_on: None,
        until: None,
        does: Intervention::Recover,
    };
    let mut b = Bench::new(SimConfig {
        events: vec![recover],
        ..with([rule("router.boot", Trouble::NeverBoots)])
    });
    let id = b.router("u", "r");
    b.now += 3_599_999;
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": false})
    );
    assert_eq!(b.status(&id), "ACTIVE");
    b.now += 1;
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": true})
    );
}

/// A router to which this happens once it answers.
fn router_after(does: Intervention) -> (Bench, Value) {
    let event = WorldEvent {
        vm: "r".to_owned(),
        at: Millis(0),
        after_power_on: Some(Millis(15_000)),
        until: None,
        does,
    };
    let mut b = Bench::new(SimConfig {
        events: vec![event],
        ..plain()
    });
    let id = b.answering("u", "r");
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": true})
    );
    b.now += 3_000;
    (b, id)
}

#[test]
fn a_router_can_hang_be_turned_off_vanish_and_be_withdrawn() {
    let (mut b, id) = router_after(Intervention::Hang);
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": false})
    );
    assert_eq!(b.status(&id), "ACTIVE");
    let (mut b, id) = router_after(Intervention::PowerOff);
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": false})
    );
    assert_eq!(b.status(&id), "SHUTOFF");
    let task = b.run("u", "vm.power-on", json!({"id": id}));
    assert_eq!(task["state"], "success");
    b.now += 10_000;
    assert_eq!(
        b.call("u", "router.alive", json!({"id": id})).unwrap(),
        json!({"alive": true})
    );
    let (mut b, id) = router_after(Intervention::Vanish);
    assert_eq!(
        b.code("u", "router.get", json!({"name": "r", "id": id})),
        Code::NotFound
    );
    let (mut b, id) = router_after(Intervention::Withdraw);
    assert_eq!(
        b.code("u", "router.resource", json!({"name": "r"})),
        Code::NotFound
    );
    assert_eq!(
        b.call("u", "router.resource", json!({"name": "s"})).unwrap(),
        json!({})
    );
    let mut elsewhere = request("u", "router.resource", json!({"name": "r"}));
    elsewhere.session.tenant = "another".to_owned();
    assert!(
        b.sim.perform(b.now, &elsewhere).answer.unwrap().is_ok(),
        "another tenant's is another router"
    );
    assert_eq!(b.status(&id), "ACTIVE", "its VM runs on");
}

#[test]
fn a_configuration_is_refused_by_the_scenario_or_by_a_vm_that_does_not_answer() {
    let fail = Trouble::FailTask {
        fault: "InvalidConfig".to_owned(),
        message: None,
    };
    let first = FaultRule {
        count: Some(1),
        ..rule("config.push", fail)
    };
    let mut b = Bench::new(with([first]));
    let id = b.router("u", "r");
    let push = json!({"id": id, "config": {}});
    assert_eq!(
        b.run("u", "config.push", push.clone())["error"]["fault"],
        "InvalidConfig"
    );
    let answer = b.call("u", "config.push", push.clone()).unwrap();
    assert_eq!(
        b.code("u", "config.push", push.clone()),
        Code::FailedPrecondition,
        "one at a time"
    );
    b.call("u", "router.delete", json!({"id": id})).unwrap();
    b.now += 4_000;
    let task = b.call("u", "task.get", json!({"id": answer["task"]})).unwrap();
    assert_eq!(task["error"]["fault"], "HostConnectFault");
    assert_eq!(b.sim.routers(b.now)[0].config, None);
}

#[test]
fn a_search_by_name_lags_and_a_look_by_id_does_not_deny_what_exists() {
    let mut blind = 0;
    for seed in 0..50 {
        let config = SimConfig {
            lag: Millis::seconds(10),
            ..plain()
        };
        let mut b = Bench {
            sim: Sim::new(config, seed, START),
            now: START,
        };
        let id = b.router("u", "r");
        assert!(b.call("u", "router.get", json!({"name": "r", "id": id})).is_ok());
        assert!(b.call("u", "router.alive", json!({"id": id})).is_ok());
        b.now += 1_000;
        blind += u32::from(b.call("u", "router.get", json!({"name": "r"})).is_err());
        assert!(b.call("u", "router.delete", json!({"id": id})).is_ok());
    }
    assert!((10..50).contains(&blind), "{blind}");
}

#[test]
fn a_boot_in_doubt_is_done_with_what_it_would_have_answered() {
    let mut b = Bench::new(with([rule("router.boot", Trouble::LoseAnswer)]));
    let doubted = entry(&b, "r");
    assert_eq!(b.reply("u", "router.boot", boot("r", &[])).answer, None);
    let found = b.call("u", "router.get", json!({"name": "r"})).unwrap();
    assert_eq!(b.resolve("u", &doubted), done(json!({"id": found["id"]})));
    for operation in ["vm.clone", "machine.create"] {
        let other = PendingEntry {
            operation: operation.to_owned(),
            ..doubted.clone()
        };
        assert!(b.resolve("u", &other).is_unknown(), "a router is no other thing");
    }
    assert!(b.resolve("thief", &doubted).is_unknown());
}

#[test]
fn a_router_is_absent_only_after_everybody_would_see_it() {
    absent_only_after_everybody_would_see_it("router.boot", &boot("r", &[]));
}

#[test]
fn of_routers_too_absent_is_never_followed_by_an_effect() {
    absent_never_followed_by_an_effect("router.boot", &boot("r", &[port(1)]));
}

#[test]
fn every_trouble_can_meet_every_operation_of_routers() {
    let mut b = Bench::new(plain());
    let id = b.answering("u", "r");
    let calls = [
        ("router.boot", boot("s", &[])),
        ("image.get", json!({"image": "image-1"})),
        ("port.get", port(1)),
        ("router.resource", json!({"name": "r"})),
        ("router.get", json!({"name": "r", "id": id})),
        ("router.alive", json!({"id": id})),
        ("router.interfaces", json!({"id": id})),
        ("router.stats", json!({"id": id})),
        ("config.push", json!({"id": id, "config": {}})),
        ("port.attach", plug(&id, 2)),
        ("port.detach", plug(&id, 1)),
        ("router.delete-ports", json!({"name": "r"})),
        ("router.delete", json!({"id": id})),
    ];
    for (operation, arguments) in calls {
        let refused = Trouble::Fail {
            code: Code::Unavailable,
            message: None,
            retry_after: None,
        };
        b.reconfigure(|config| config.faults = vec![rule(operation, refused)]);
        let failure = b.call("u", operation, arguments.clone()).unwrap_err();
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Unavailable, MayHave::None),
            "{operation}"
        );
        b.reconfigure(|config| config.faults = vec![rule(operation, Trouble::LoseRequest)]);
        assert_eq!(b.reply("u", operation, arguments).answer, None, "{operation}");
    }
    let named = FaultRule {
        vm: "r".to_owned(),
        ..rule("*", Trouble::LoseRequest)
    };
    b.reconfigure(|config| config.faults = vec![named]);
    for (operation, arguments) in [
        ("router.resource", json!({"name": "r"})),
        ("router.get", json!({"name": "r"})),
        ("router.alive", json!({"id": id})),
        ("port.attach", plug(&id, 2)),
        ("router.delete-ports", json!({"name": "r"})),
    ] {
        assert_eq!(
            b.reply("u", operation, arguments).answer,
            None,
            "{operation} is about r"
        );
    }
    assert!(
        b.call("u", "router.resource", json!({"name": "s"})).is_ok(),
        "and this about another one"
    );
}

#[test]
fn a_router_outlives_a_restart() {
    let late = FaultRule {
        vm: "late".to_owned(),
        ..rule("router.boot", Trouble::HappenLate(Millis::seconds(5)))
    };
    let config = with([late]);
    let mut b = Bench::new(config.clone());
    let id = b.answering("u", "r");
    b.call("u", "port.attach", plug(&id, 2)).unwrap();
    b.call("u", "config.push", json!({"id": id, "config": {"a": 1}}))
        .unwrap();
    assert_eq!(b.reply("u", "router.boot", boot("late", &[port(3)])).answer, None);
    assert!(b.sim.take_dirty());
    let mut restored = Sim::restore(config, &b.sim.snapshot()).unwrap();
    b.now += 60_000;
    assert_eq!(restored.routers(b.now), b.sim.routers(b.now));
    assert_eq!(restored.router_ports(), b.sim.router_ports());
    assert_eq!(restored.routers(b.now).len(), 2);
    assert_eq!(restored.snapshot(), b.sim.snapshot());
}

#[test]
fn a_configuration_of_routers_is_written_as_people_write() {
    let written = json!({
        "images": [{"id": "image-1"}, {"id": "image-2", "tenants": ["team-b"]}],
        "routers": {
            "boot": {"min": "10s", "max": "40s"},
            "ports": [{"network": "net-2", "mac": "fa:16:3e:00:00:02", "tenant": "team-b", "router": "r-2"}],
        },
        "tasks": {"push": {"min": "1s", "max": "2s"}},
        "faults": [
            {"operation": "router.boot", "vm": "r-1", "then": "neverBoots"},
            {"operation": "port.attach", "nth": 1, "then": "neverPlugs"},
        ],
        "events": [
            {"vm": "r-3", "afterPowerOn": "1m", "does": "hang"},
            {"vm": "r-4", "afterPowerOn": "1m", "does": "withdraw"},
        ],
    });
    let config = SimConfig::from_value(&written).unwrap();
    assert_eq!(config.images[1].tenants, ["team-b"]);
    let error = SimConfig::from_value(&json!({"routers": {"plug": {"min": "2s", "max": "1s"}}})).unwrap_err();
    assert_eq!(error.path, "routers.plug");
}
