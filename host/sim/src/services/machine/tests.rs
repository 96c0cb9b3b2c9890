//! Tests of machines in the manner of Gardener's drivers.

use polity_core::contract::Effect as MayHave;

use crate::harness::*;

/// All codes of the contract.
const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

fn entry(b: &Bench, name: &str) -> PendingEntry {
    b.entry_of("machine.create", name)
}

#[test]
fn a_machine_is_made_found_and_deleted() {
    let mut b = Bench::new(plain());
    let status = json!({"name": "m"});
    assert_eq!(b.code("u", "machine.status", status.clone()), Code::NotFound);
    let made = b.machine("u", "m");
    assert_eq!(made["nodeName"], "node-m");
    let known = json!({"name": "m", "providerID": made["providerID"]});
    for arguments in [&status, &known] {
        let found = b.call("u", "machine.status", arguments.clone()).unwrap();
        assert_eq!(
            (&found["providerID"], &found["nodeName"], &found["initialized"]),
            (&made["providerID"], &json!("node-m"), &json!(true))
        );
    }
    assert_eq!(b.call("u", "machine.delete", known.clone()).unwrap(), json!({}));
    for arguments in [status, known] {
        assert_eq!(b.code("u", "machine.status", arguments.clone()), Code::NotFound);
        assert_eq!(b.code("u", "machine.delete", arguments), Code::NotFound);
    }
    assert!(b.sim.vms(b.now).is_empty());
    let told: Vec<_> = b
        .sim
        .effects()
        .iter()
        .map(|effect| (effect.operation.as_str(), &effect.what))
        .collect();
    assert_eq!(
        told,
        [
            ("machine.create", &Happened::Submitted),
            ("machine.create", &Happened::Done),
            ("machine.delete", &Happened::Done)
        ]
    );
}

#[test]
fn a_machine_that_needs_it_is_set_up_once_and_others_of_the_tenant_are_listed() {
    let mut config = plain();
    config.machines.needs_initialization = true;
    let mut b = Bench::new(config);
    let made = b.machine("u", "m");
    let mut neighbour = request("v", "machine.create", json!({"name": "n"}));
    neighbour.session.tenant = request("u", "machine.list", json!({})).session.tenant;
    let other = b.sim.perform(b.now, &neighbour).answer.unwrap().unwrap();
    b.machine("w", "o");
    let known = json!({"name": "m", "providerID": made["providerID"]});
    let initialized =
        |b: &mut Bench| b.call("u", "machine.status", known.clone()).unwrap()["initialized"].clone();
    assert_eq!(initialized(&mut b), false);
    assert_eq!(
        b.code("thief", "machine.initialize", known.clone()),
        Code::PermissionDenied
    );
    assert_eq!(initialized(&mut b), false);
    for _ in 0..2 {
        assert_eq!(
            b.call("u", "machine.initialize", known.clone()).unwrap(),
            json!({})
        );
        assert_eq!(initialized(&mut b), true);
    }
    let row = |name: &str, made: &Value, owner: &str| json!({"name": name, "providerID": made["providerID"], "owner": owner});
    let all = json!({"machines": [row("m", &made, "u"), row("n", &other, "v")]});
    assert_eq!(b.call("u", "machine.list", json!({})).unwrap(), all);
    assert_eq!(
        b.call("u", "machine.list", json!({"owner": "v"})).unwrap(),
        json!({"machines": [row("n", &other, "v")]})
    );
    b.reconfigure(|config| config.machines.longest_list = Some(1));
    assert_eq!(b.code("u", "machine.list", json!({})), Code::ResourceExhausted);
    assert!(b.call("u", "machine.list", json!({"owner": "v"})).is_ok());
    b.reconfigure(|config| config.machines.longest_list = None);
    let mut elsewhere = request("u", "machine.list", json!({}));
    elsewhere.session.tenant = "another".to_owned();
    let answer = b.sim.perform(b.now, &elsewhere).answer.unwrap();
    assert_eq!(answer.unwrap(), json!({"machines": []}));
    b.call("u", "machine.delete", known.clone()).unwrap();
    assert_eq!(b.code("u", "machine.initialize", known), Code::NotFound);
    assert_eq!(
        b.call("u", "machine.list", json!({})).unwrap(),
        json!({"machines": [row("n", &other, "v")]})
    );
}

/// EC2 is eventually consistent: <https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html>.
#[test]
fn a_machine_that_the_cloud_does_not_show_yet_is_not_found_by_anybody() {
    let mut b = Bench::new(with([rule(
        "machine.create",
        Trouble::ShowsAfter(Millis::seconds(90)),
    )]));
    let made = b.machine("u", "m");
    let known = json!({"name": "m", "providerID": made["providerID"]});
    let entry = entry(&b, "m");
    let orphan = json!({"providerID": made["providerID"], "owner": "u"});
    b.now += 89_000;
    for operation in ["machine.status", "machine.initialize", "machine.delete"] {
        for arguments in [json!({"name": "m"}), known.clone()] {
            assert_eq!(b.code("u", operation, arguments), Code::NotFound, "{operation}");
        }
    }
    assert_eq!(b.code("u", "orphan.delete", orphan), Code::NotFound);
    assert_eq!(
        b.call("u", "machine.list", json!({})).unwrap(),
        json!({"machines": []})
    );
    assert!(b.resolve("u", &entry).is_unknown());
    b.now += 1_000;
    assert_eq!(
        b.call("u", "machine.status", known.clone()).unwrap()["providerID"],
        made["providerID"]
    );
    assert_eq!(b.call("u", "machine.delete", known).unwrap(), json!({}));
}

#[test]
fn an_orphan_is_deleted_by_another_object_of_its_tenant_that_names_its_owner() {
    let mut b = Bench::new(plain());
    let made = b.machine("u", "m");
    let mut delete = |owner: &str, tenant: Option<&str>| {
        let arguments = json!({"providerID": made["providerID"], "owner": owner});
        let mut sweep = request("sweeper", "orphan.delete", arguments);
        let of_owner = request("u", "machine.list", json!({})).session.tenant;
        sweep.session.tenant = tenant.map_or(of_owner, str::to_owned);
        let answer = b.sim.perform(b.now, &sweep).answer.unwrap();
        answer.map_err(|failure| failure.code)
    };
    assert_eq!(delete("v", None), Err(Code::NotFound));
    assert_eq!(delete("u", Some("another")), Err(Code::NotFound));
    assert_eq!(delete("u", None), Ok(json!({})));
    assert_eq!(delete("u", None), Err(Code::NotFound));
    assert!(b.sim.vms(b.now).is_empty());
}

#[test]
fn the_ids_of_volumes_are_those_of_csi() {
    let mut b = Bench::new(plain());
    let csi = json!({"csi": {"driver": "csi.example.com", "volumeHandle": "vol-1"}});
    let nfs = json!({"nfs": {"server": "nfs.example", "path": "/"}});
    assert_eq!(
        b.call("u", "machine.volumes", json!({"volumes": [csi, nfs]}))
            .unwrap(),
        json!({"volumeIDs": ["vol-1"]})
    );
}

#[test]
fn every_answer_about_machines_is_what_the_catalogue_says() {
    let mut b = Bench::new(plain());
    let catalogue = b.sim.catalogue().clone();
    let token = json!({"$secret": {"name": "t", "key": "k"}});
    for (operation, arguments) in [
        (
            "machine.create",
            json!({"name": "m", "providerSpec": {"size": 1}, "bootstrapToken": token, "userData": token}),
        ),
        (
            "machine.status",
            json!({"name": "m", "providerSpec": {"size": 1}, "userData": token}),
        ),
        ("machine.initialize", json!({"name": "m"})),
        ("machine.list", json!({})),
        ("machine.volumes", json!({"volumes": []})),
        ("machine.delete", json!({"name": "m"})),
    ] {
        let answer = b.call("u", operation, arguments).unwrap();
        assert_allows(&catalogue.operations[operation].answer, &answer);
    }
    assert_eq!(
        catalogue.operations["machine.create"].intent.as_deref(),
        Some("name")
    );
}

#[test]
fn the_machine_of_another_object_or_tenant_is_refused_by_id_and_not_found_by_name() {
    let mut b = Bench::new(plain());
    let made = b.machine("u", "m");
    let known = json!({"name": "m", "providerID": made["providerID"]});
    for operation in ["machine.status", "machine.delete"] {
        assert_eq!(b.code("thief", operation, known.clone()), Code::PermissionDenied);
        assert_eq!(b.code("thief", operation, json!({"name": "m"})), Code::NotFound);
        let mut elsewhere = request("u", operation, known.clone());
        elsewhere.session.tenant = "another".to_owned();
        let answer = b.sim.perform(b.now, &elsewhere).answer.unwrap();
        assert_eq!(answer.unwrap_err().code, Code::PermissionDenied);
        elsewhere.arguments = json!({"name": "m"});
        let answer = b.sim.perform(b.now, &elsewhere).answer.unwrap();
        assert_eq!(answer.unwrap_err().code, Code::NotFound);
    }
    assert_eq!(b.sim.vms(b.now).len(), 1, "it is still there");
}

#[test]
fn a_vm_that_is_no_machine_is_none_and_ids_have_one_spelling() {
    let mut b = Bench::new(plain());
    let vm = b.vm("u");
    let id = vm["id"].as_str().unwrap();
    let number = id.strip_prefix("vm-").unwrap();
    for id in [
        format!("sim:///{id}"),
        id.to_owned(),
        format!("sim:///vm-0{number}"),
        "sim:///".to_owned(),
    ] {
        let arguments = json!({"name": "u", "providerID": id});
        assert_eq!(b.code("u", "machine.status", arguments.clone()), Code::NotFound);
        assert_eq!(b.code("u", "machine.delete", arguments), Code::NotFound);
    }
    assert_eq!(
        b.code("u", "machine.status", json!({"name": "u"})),
        Code::NotFound
    );
}

#[test]
fn a_name_is_taken_in_its_tenant_until_the_machine_is_gone() {
    let mut b = Bench::new(plain());
    b.machine("u", "m");
    assert_eq!(
        b.code("u", "machine.create", json!({"name": "m"})),
        Code::AlreadyExists
    );
    b.machine("v", "m");
    b.call("u", "machine.delete", json!({"name": "m"})).unwrap();
    b.machine("u", "m");
}

#[test]
fn with_tokens_a_machine_with_the_same_key_is_the_same_machine() {
    let mut b = Bench::new(SimConfig {
        tokens: true,
        ..plain()
    });
    let made = b.machine("u", "m");
    assert_eq!(b.machine("u", "m"), made);
    assert_eq!(b.sim.vms(b.now).len(), 1);
}

#[test]
fn a_search_by_name_lags_and_a_look_by_id_and_a_deletion_do_not_deny_what_exists() {
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
        let made = b.machine("u", "m");
        let known = json!({"name": "m", "providerID": made["providerID"]});
        assert!(b.call("u", "machine.status", known).is_ok());
        b.now += 1_000;
        blind += u32::from(b.call("u", "machine.status", json!({"name": "m"})).is_err());
        assert!(b.call("u", "machine.delete", json!({"name": "m"})).is_ok());
    }
    assert!((10..50).contains(&blind), "{blind}");
}

#[test]
fn every_code_can_be_answered_to_every_operation_of_machines() {
    for code in CODES {
        let refused = Trouble::Fail {
            code,
            message: None,
            retry_after: None,
        };
        let mut b = Bench::new(with([rule("*", refused)]));
        for (operation, arguments) in [
            ("machine.create", json!({"name": "m"})),
            ("machine.status", json!({"name": "m"})),
            ("machine.delete", json!({"name": "m"})),
        ] {
            let failure = b.call("u", operation, arguments).unwrap_err();
            assert_eq!(
                (failure.code, failure.effect),
                (code, MayHave::None),
                "{operation}"
            );
        }
        assert!(b.sim.vms(b.now).is_empty());
        let mut b = Bench::new(with([rule("machine.create", Trouble::FailAfterwards { code })]));
        let failure = b.call("u", "machine.create", json!({"name": "m"})).unwrap_err();
        assert_eq!((failure.code, failure.effect), (code, MayHave::Unknown));
        assert_eq!(b.sim.vms(b.now).len(), 1);
    }
}

#[test]
fn an_answer_can_be_one_that_nobody_can_read() {
    let odd = json!({"providerID": 7});
    let rules = [FaultRule {
        vm: "m".to_owned(),
        ..rule("machine.status", Trouble::AnswerWith(odd.clone()))
    }];
    let mut b = Bench::new(with(rules));
    assert_eq!(
        b.code("u", "machine.status", json!({"name": "m"})),
        Code::NotFound,
        "failures stay"
    );
    let made = b.machine("u", "m");
    assert_eq!(b.call("u", "machine.status", json!({"name": "m"})).unwrap(), odd);
    let known = json!({"name": "m", "providerID": made["providerID"]});
    assert_eq!(
        b.call("u", "machine.status", known).unwrap(),
        odd,
        "by id as well"
    );
}

#[test]
fn the_api_server_answers_unless_the_scenario_says_otherwise() {
    let span = Span {
        from: Millis(1_000),
        until: Millis(2_000),
    };
    let mut b = Bench::new(SimConfig {
        api_server_down: vec![span],
        ..plain()
    });
    let said: Vec<_> = [0, 999, 1_000, 1_999, 2_000]
        .map(|elapsed| {
            b.now = START + elapsed;
            b.sim.reachable(b.now)
        })
        .to_vec();
    assert_eq!(said, [true, true, false, false, true]);
}

#[test]
fn a_create_in_doubt_is_done_with_what_it_would_have_answered() {
    let mut b = Bench::new(with([rule("machine.create", Trouble::LoseAnswer)]));
    let doubted = entry(&b, "m");
    assert_eq!(b.reply("u", "machine.create", json!({"name": "m"})).answer, None);
    let found = b.call("u", "machine.status", json!({"name": "m"})).unwrap();
    let Resolution::Done(answer) = b.resolve("u", &doubted) else {
        panic!("it is there")
    };
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (&answer["providerID"], &answer["nodeName"]),
        (&found["providerID"], &found["nodeName"])
    );
    let clone = PendingEntry {
        operation: "vm.clone".to_owned(),
        ..doubted
    };
    assert!(b.resolve("u", &clone).is_unknown(), "a machine is no clone");
}

#[test]
fn a_machine_is_absent_only_after_everybody_would_see_it() {
    absent_only_after_everybody_would_see_it("machine.create", &json!({"name": "m"}));
}

#[test]
fn of_machines_too_absent_is_never_followed_by_an_effect() {
    absent_never_followed_by_an_effect("machine.create", &json!({"name": "m"}));
}

#[test]
fn a_machine_outlives_a_restart_and_no_secret_is_stored() {
    let late = FaultRule {
        vm: "late".to_owned(),
        ..rule("machine.create", Trouble::HappenLate(Millis::seconds(5)))
    };
    let config = with([late]);
    let mut b = Bench::new(config.clone());
    let make = |b: &mut Bench, name: &str| {
        let arguments = json!({"name": name, "userData": "hunter22", "bootstrapToken": "hunter23"});
        b.sim
            .perform_checked(b.now, &request("u", "machine.create", arguments))
    };
    assert!(make(&mut b, "m").answer.is_some());
    assert_eq!(make(&mut b, "late").answer, None);
    let snapshot = b.sim.snapshot();
    assert!(!snapshot.contains("hunter2"), "{snapshot}");
    let mut restored = Sim::restore(config, &snapshot).unwrap();
    b.now += 60_000;
    assert_eq!(restored.nodes(b.now), b.sim.nodes(b.now));
    assert_eq!(restored.nodes(b.now).len(), 2);
    assert_eq!(restored.vms(b.now), b.sim.vms(b.now));
}
