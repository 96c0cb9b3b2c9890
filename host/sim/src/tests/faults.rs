//! What a scenario makes go wrong.

use polity_core::contract::Effect as MayHave;

use crate::harness::*;

#[test]
fn a_lost_answer_leaves_its_effect_and_a_lost_request_none() {
    for (trouble, vms) in [(Trouble::LoseAnswer, 1), (Trouble::LoseRequest, 0)] {
        let mut b = Bench::new(with([rule("vm.clone", trouble)]));
        let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
        assert_eq!(
            reply,
            Reply {
                after_ms: LONGEST,
                answer: None
            }
        );
        assert_eq!(b.sim.vms(b.now).len(), vms);
    }
    assert_eq!(lost("vm.clone", false).effect, MayHave::Unknown);
    assert_eq!(
        (lost("vm.get", true).effect, lost("vm.get", true).code),
        (MayHave::None, Code::DeadlineExceeded)
    );
}

#[test]
fn a_refused_call_has_no_effect_and_says_when_to_come_back() {
    let trouble = Trouble::Fail {
        code: Code::Unavailable,
        message: None,
        retry_after: Some(Millis::seconds(9)),
    };
    let mut b = Bench::new(with([rule("vm.*", trouble)]));
    let failure = b.clone_vm("u", "m").unwrap_err();
    assert_eq!(
        (failure.code, failure.effect, failure.retry_after),
        (Code::Unavailable, MayHave::None, Some(9_000))
    );
    assert!(b.sim.vms(b.now).is_empty());
    assert_eq!(
        b.code("u", "task.get", json!({"id": "task-1"})),
        Code::NotFound,
        "another operation"
    );
}

#[test]
fn a_late_effect_happens_after_everybody_has_given_up() {
    let mut b = Bench::new(with([rule("vm.clone", Trouble::HappenLate(Millis::seconds(8)))]));
    let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
    assert_eq!(reply.answer, None);
    b.now += 7_999;
    assert!(b.sim.vms(b.now).is_empty() && b.sim.has_unfinished_faults(b.now));
    assert_eq!(b.sim.next_event_after(b.now), Some(START + 8_000));
    b.now += 1;
    assert_eq!(b.sim.vms(b.now).len(), 1);
    assert_eq!(b.sim.effects()[0].at, START + 8_000);
}

#[test]
fn an_answer_that_takes_too_long_is_lost() {
    for (after, lost) in [(4_999, false), (5_000, true)] {
        let mut b = Bench::new(with([rule("vm.clone", Trouble::AnswerAfter(Millis(after)))]));
        let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
        assert_eq!((reply.after_ms, reply.answer.is_none()), (after, lost));
        assert_eq!(b.sim.vms(b.now).len(), 1);
    }
}

#[test]
fn a_task_can_be_made_to_fail_or_to_last() {
    let fail = Trouble::FailTask {
        fault: "InsufficientResourcesFault".to_owned(),
        message: None,
    };
    let rules = [
        FaultRule {
            count: Some(2),
            ..rule("vm.clone", fail)
        },
        FaultRule {
            vm: "m*".to_owned(),
            ..rule("*", Trouble::TaskTakes(Millis::seconds(600)))
        },
    ];
    let mut b = Bench::new(with(rules));
    for _ in 0..2 {
        let task = b.run("u", "vm.clone", clone_arguments("u", "m"));
        assert_eq!(task["error"]["fault"], "InsufficientResourcesFault");
        assert!(b.sim.vms(b.now).is_empty(), "and the name is free again");
    }
    let task = b.run("u", "vm.clone", clone_arguments("u", "m"));
    assert_eq!(task["state"], "running");
    b.now += 600_000;
    assert_eq!(
        b.call("u", "task.get", json!({"id": task["id"]})).unwrap()["state"],
        "success"
    );
}

#[test]
fn rules_count_calls_all_together_or_for_each_owner() {
    let refused =
        |b: &mut Bench, owner: &str| b.code(owner, "vm.get", json!({"id": "vm-1"})) == Code::Internal;
    let trouble = || Trouble::Fail {
        code: Code::Internal,
        message: None,
        retry_after: None,
    };
    let pattern = |rule: FaultRule| -> Vec<bool> {
        let mut b = Bench::new(with([rule]));
        ["a", "b", "a", "b", "a"]
            .map(|owner| refused(&mut b, owner))
            .to_vec()
    };
    let base = rule("vm.get", trouble());
    assert_eq!(
        pattern(FaultRule {
            nth: Some(2),
            ..base.clone()
        }),
        [false, true, false, false, false]
    );
    assert_eq!(
        pattern(FaultRule {
            count: Some(3),
            ..base.clone()
        }),
        [true, true, true, false, false]
    );
    assert_eq!(
        pattern(FaultRule {
            nth: Some(2),
            each: true,
            ..base.clone()
        }),
        [false, false, true, true, false]
    );
    assert_eq!(
        pattern(FaultRule {
            owner: Some("b".to_owned()),
            ..base.clone()
        }),
        [false, true, false, true, false]
    );
    assert_eq!(
        pattern(FaultRule {
            tenant: Some("ns-a".to_owned()),
            ..base.clone()
        }),
        [true, false, true, false, true]
    );
    assert_eq!(
        pattern(FaultRule {
            probability: Some(0.0),
            ..base.clone()
        }),
        [false; 5]
    );
    assert_eq!(
        pattern(FaultRule {
            probability: Some(1.0),
            ..base
        }),
        [true; 5]
    );
}

#[test]
fn a_rule_for_one_vm_meets_every_call_about_it_and_no_other() {
    let trouble = Trouble::Fail {
        code: Code::Internal,
        message: None,
        retry_after: None,
    };
    let mut b = Bench::new(with([FaultRule {
        vm: "bad".to_owned(),
        ..rule("*", trouble)
    }]));
    let good = b.vm("good");
    assert_eq!(
        b.code("bad", "vm.clone", clone_arguments("bad", "bad")),
        Code::Internal
    );
    assert!(b.call("good", "vm.get", good).is_ok());
    b.sim.stop_faults();
    let bad = b.vm("bad");
    let task = b.call("bad", "vm.power-on", bad.clone()).unwrap();
    let again = b.sim.snapshot().replace("\"calm\":true", "\"calm\":false");
    b.sim = Sim::restore(b.sim.config.clone(), &again).unwrap();
    assert_eq!(b.code("bad", "vm.power", bad), Code::Internal);
    assert_eq!(
        b.code("bad", "task.get", json!({"id": task["task"]})),
        Code::Internal
    );
    assert_eq!(
        b.code("bad", "vm.find", json!({"instanceUuid": "bad"})),
        Code::Internal
    );
}

#[test]
fn a_rule_holds_in_its_time_only() {
    let trouble = Trouble::Fail {
        code: Code::Internal,
        message: None,
        retry_after: None,
    };
    let window = FaultRule {
        from: Millis(100),
        until: Some(Millis(200)),
        ..rule("vm.get", trouble)
    };
    let mut b = Bench::new(with([window]));
    for (at, code) in [
        (99, Code::NotFound),
        (100, Code::Internal),
        (199, Code::Internal),
        (200, Code::NotFound),
    ] {
        b.now = START + at;
        assert_eq!(b.sim.has_unfinished_faults(b.now), at < 200);
        assert_eq!(b.code("u", "vm.get", json!({"id": "vm-1"})), code, "{at}");
    }
}

#[test]
fn in_an_outage_nothing_is_answered_and_nothing_settled() {
    for (calls, refused) in [(Unreachable::Refused, true), (Unreachable::Silent, false)] {
        let outages = vec![Outage {
            from: Millis(0),
            until: Millis::seconds(100),
            calls,
        }];
        let mut b = Bench::new(SimConfig { outages, ..plain() });
        let entry = b.entry("m");
        let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
        assert_eq!(
            reply.answer.map(|a| a.unwrap_err().code),
            refused.then_some(Code::Unavailable)
        );
        assert!(b.sim.vms(b.now).is_empty());
        b.now += 99_999;
        assert!(b.resolve("u", &entry).is_unknown(), "long after visible-within");
        assert!(b.sim.has_unfinished_faults(b.now));
        assert_eq!(b.sim.next_event_after(b.now), Some(START + 100_000));
        b.now += 1;
        assert_eq!(b.resolve("u", &entry), Resolution::Absent);
        assert!(!b.sim.has_unfinished_faults(b.now));
    }
}

fn event(vm: &str, does: Intervention) -> WorldEvent {
    WorldEvent {
        vm: vm.to_owned(),
        at: Millis(0),
        after_power_on: None,
        until: None,
        does,
    }
}

#[test]
fn an_event_waits_for_its_vm() {
    let events = vec![WorldEvent {
        at: Millis(500),
        ..event("u", Intervention::Vanish)
    }];
    let mut b = Bench::new(SimConfig { events, ..plain() });
    b.now += 5_000;
    assert!(b.sim.has_unfinished_faults(b.now));
    let task = b.run("u", "vm.clone", clone_arguments("u", "u"));
    assert_eq!(task["state"], "success");
    assert!(b.sim.vms(b.now).is_empty(), "gone as soon as it was there");
    assert!(!b.sim.has_unfinished_faults(b.now));
    assert_eq!(
        b.sim.effects().last().unwrap().what,
        Happened::Intervened(Intervention::Vanish)
    );
}

#[test]
fn an_event_can_follow_a_power_on() {
    let after = WorldEvent {
        after_power_on: Some(Millis::seconds(60)),
        ..event("u", Intervention::PowerOff)
    };
    let mut b = Bench::new(SimConfig {
        events: vec![after],
        ..plain()
    });
    let vm = b.vm("u");
    b.run("u", "vm.power-on", vm.clone());
    b.now += 59_000;
    assert_eq!(b.call("u", "vm.power", vm.clone()).unwrap()["state"], "on");
    b.now += 1_000;
    assert_eq!(b.call("u", "vm.power", vm.clone()).unwrap()["state"], "off");
    b.run("u", "vm.power-on", vm.clone());
    b.now += 120_000;
    assert_eq!(
        b.call("u", "vm.power", vm).unwrap()["state"],
        "on",
        "it happens once"
    );
}

#[test]
fn an_event_that_misses_its_vm_waits_for_the_next_power_on() {
    let after = WorldEvent {
        after_power_on: Some(Millis::seconds(60)),
        ..event("u", Intervention::Vanish)
    };
    let mut b = Bench::new(SimConfig {
        events: vec![after],
        ..plain()
    });
    let vm = b.vm("u");
    b.run("u", "vm.power-on", vm.clone());
    b.run("u", "vm.power-off", vm.clone());
    b.now += 120_000;
    assert_eq!(b.sim.vms(b.now).len(), 1);
    b.run("u", "vm.power-on", vm);
    b.now += 60_000;
    assert!(b.sim.vms(b.now).is_empty());
}

#[test]
fn an_event_is_given_up_at_its_end() {
    let events = vec![WorldEvent {
        until: Some(Millis::seconds(5)),
        ..event("u", Intervention::Vanish)
    }];
    let mut b = Bench::new(SimConfig { events, ..plain() });
    b.vm("u");
    assert_eq!(b.sim.vms(b.now).len(), 1);
    assert!(!b.sim.has_unfinished_faults(b.now));
}

#[test]
fn a_task_on_a_vm_that_vanished_fails() {
    let events = vec![WorldEvent {
        at: Millis::seconds(15),
        ..event("u", Intervention::Vanish)
    }];
    let mut b = Bench::new(SimConfig { events, ..plain() });
    let vm = b.vm("u");
    let task = b.run("u", "vm.power-on", vm);
    assert_eq!(task["error"]["fault"], "ManagedObjectNotFound", "{task}");
}

#[test]
fn once_faults_are_stopped_nothing_goes_wrong() {
    let events = vec![WorldEvent {
        at: Millis::seconds(50),
        ..event("u", Intervention::Vanish)
    }];
    let outages = vec![Outage {
        from: Millis::seconds(20),
        until: Millis::seconds(90),
        calls: Unreachable::Silent,
    }];
    let trouble = rule("*", Trouble::LoseRequest);
    let mut b = Bench::new(SimConfig {
        events,
        outages,
        faults: vec![trouble],
        ..plain()
    });
    assert!(b.sim.has_unfinished_faults(b.now));
    b.sim.stop_faults();
    assert!(!b.sim.has_unfinished_faults(b.now));
    b.vm("u");
    b.now += 60_000;
    assert!(b.call("u", "vm.find", json!({"instanceUuid": "u"})).is_ok());
}

#[test]
fn a_rule_is_unfinished_until_it_has_fired_as_often_as_it_says() {
    let mut b = Bench::new(with([FaultRule {
        count: Some(2),
        ..rule("vm.get", Trouble::LoseRequest)
    }]));
    for unfinished in [true, true, false] {
        assert_eq!(b.sim.has_unfinished_faults(b.now), unfinished);
        b.reply("u", "vm.get", json!({"id": "vm-1"}));
    }
}

#[test]
fn a_scenario_is_written_as_people_write() {
    let scenario = json!({
        "lag": "500ms",
        "templates": [{"name": "ubuntu-24.04", "tenants": ["team-a"]}],
        "tasks": {"clone": {"min": "20s", "max": 40_000}},
        "faults": [
            {"operation": "vm.clone", "vm": "machine-3", "count": 2,
             "then": {"failTask": {"fault": "InsufficientResourcesFault"}}},
            {"operation": "vm.clone", "vm": "machine-4", "nth": 1, "then": "loseAnswer"},
            {"operation": "vm.*", "from": "1m", "until": "2m", "probability": 0.2, "then": {"answerAfter": "4s"}},
            {"operation": "resolve", "until": "30s", "then": {"fail": {"code": "unavailable", "retryAfter": "5s"}}},
        ],
        "outages": [{"from": "3m", "until": "4m", "calls": "silent"}],
        "events": [{"vm": "machine-5", "afterPowerOn": "30s", "does": "vanish"}],
    });
    let config = SimConfig::from_value(&scenario).unwrap();
    assert_eq!(
        config.tasks.clone,
        Between {
            min: Millis(20_000),
            max: Millis(40_000)
        }
    );
    assert_eq!(
        config.faults[1],
        FaultRule {
            vm: "machine-4".to_owned(),
            nth: Some(1),
            ..rule("vm.clone", Trouble::LoseAnswer)
        }
    );
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(
        SimConfig::from_value(&written).unwrap(),
        config,
        "and reads back what it writes"
    );
}

#[test]
fn a_scenario_that_is_none_is_refused_with_its_path() {
    for (config, path) in [
        (json!({"lagg": 1}), "lagg"),
        (json!({"lag": "soon"}), "lag"),
        (
            json!({"faults": [{"then": "loseAnswer", "probability": 2}]}),
            "faults[0].probability",
        ),
        (
            json!({"faults": [{"then": "loseAnswer"}, {"then": "explode"}]}),
            "faults[1].then",
        ),
        (
            json!({"faults": [{"then": {"fail": {"code": "unavailable", "nth": 1}}}]}),
            "faults[0].then.fail.nth",
        ),
        (
            json!({"events": [{"vm": "m", "does": "vanish", "when": 3}]}),
            "events[0].when",
        ),
        (
            json!({"outages": [{"from": "2m", "until": "1m"}]}),
            "outages[0].until",
        ),
        (json!({"dhcp": {"min": 2, "max": 1}}), "dhcp"),
        (json!({"lag": 18_446_744_073_709_551_615u64}), "lag"),
    ] {
        assert_eq!(SimConfig::from_value(&config).unwrap_err().path, path, "{config}");
    }
}

#[test]
fn times_count_from_the_beginning_which_comes_before_the_first_call() {
    let outage = Outage {
        from: Millis::seconds(60),
        until: Millis::seconds(90),
        calls: Unreachable::default(),
    };
    let config = SimConfig {
        outages: vec![outage],
        ..plain()
    };
    let mut b = Bench::new(config);
    b.now += 60_000;
    b.sim.begin(b.now);
    b.clone_vm("u", "m").expect("the outage is a minute away");
    b.now += 60_000;
    b.sim.begin(b.now);
    assert_eq!(b.clone_vm("v", "n").unwrap_err().code, Code::Unavailable);
    assert_eq!(b.sim.vms(b.now).len(), 1, "what was done stays");
}
