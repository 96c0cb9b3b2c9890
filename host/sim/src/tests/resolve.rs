//! What came of creates in doubt.

use crate::harness::*;

const VISIBLE_WITHIN: u64 = BEGINS_WITHIN + LONGEST;

#[test]
fn a_clone_whose_answer_was_lost_is_done_with_its_task() {
    let mut b = Bench::new(with([rule("vm.clone", Trouble::LoseAnswer)]));
    let entry = b.entry("m");
    b.reply("u", "vm.clone", clone_arguments("u", "m"));
    let task = b.sim.effects()[0].task.clone().unwrap();
    assert_eq!(
        b.resolve("u", &entry),
        done(json!({"task": task})),
        "while it runs"
    );
    b.now += 11_000;
    assert_eq!(
        b.resolve("u", &entry),
        done(json!({"task": task})),
        "after it has ended"
    );
}

#[test]
fn where_the_task_record_has_expired_it_is_done_with_its_vm() {
    let mut b = Bench::new(plain());
    let entry = b.entry("u");
    let vm = b.vm("u");
    b.now += 600_000;
    assert_eq!(b.resolve("u", &entry), done(json!({"vm": vm["id"]})));
}

#[test]
fn a_clone_that_failed_was_done_so_that_its_failure_is_seen() {
    let fail = Trouble::FailTask {
        fault: "InsufficientResourcesFault".to_owned(),
        message: None,
    };
    let mut b = Bench::new(with([rule("vm.clone", fail)]));
    let entry = b.entry("m");
    let task = b.run("u", "vm.clone", clone_arguments("u", "m"));
    b.now += VISIBLE_WITHIN + 1;
    assert_eq!(b.resolve("u", &entry), done(json!({"task": task["id"]})));
}

#[test]
fn absent_takes_a_look_later_than_visible_within() {
    let mut b = Bench::new(plain());
    assert_eq!(
        b.sim.catalogue().operations["vm.clone"].visible_within,
        Duration::from_millis(VISIBLE_WITHIN)
    );
    let entry = b.entry("m");
    b.now += VISIBLE_WITHIN;
    assert!(b.resolve("u", &entry).is_unknown());
    b.now += 1;
    assert_eq!(b.resolve("u", &entry), Resolution::Absent);
}

#[test]
fn visible_within_grows_with_lag_and_late_effects() {
    let late = rule("vm.clone", Trouble::HappenLate(Millis::seconds(40)));
    let config = SimConfig {
        lag: Millis::seconds(7),
        ..with([late])
    };
    let b = Bench::new(config);
    assert_eq!(
        b.sim.catalogue().operations["vm.clone"].visible_within,
        Duration::from_millis(VISIBLE_WITHIN + 47_000)
    );
}

#[test]
fn what_others_made_under_that_name_settles_nothing() {
    let mut b = Bench::new(plain());
    let entry = b.entry("m");
    b.clone_vm("other", "m").unwrap();
    b.now += VISIBLE_WITHIN + 1;
    assert_eq!(b.resolve("u", &entry), Resolution::Absent);
}

#[test]
fn an_earlier_clone_of_that_name_settles_nothing() {
    let fail = Trouble::FailTask {
        fault: "Broken".to_owned(),
        message: None,
    };
    let mut b = Bench::new(with([FaultRule {
        nth: Some(1),
        ..rule("vm.clone", fail)
    }]));
    b.run("u", "vm.clone", clone_arguments("u", "m"));
    let entry = b.entry("m");
    b.now += 5_000;
    assert!(b.resolve("u", &entry).is_unknown());
    let task = b.clone_vm("u", "m").unwrap();
    assert_eq!(b.resolve("u", &entry), done(task));
}

#[test]
fn a_failed_look_settles_nothing() {
    let blind = Trouble::Fail {
        code: Code::Unavailable,
        message: None,
        retry_after: None,
    };
    let mut b = Bench::new(with([FaultRule {
        count: Some(1),
        ..rule("resolve", blind)
    }]));
    let entry = b.entry("m");
    b.now += VISIBLE_WITHIN + 1;
    assert!(b.resolve("u", &entry).is_unknown());
    let mut stranger = session("u");
    stranger.handle = Some("made-up".to_owned());
    assert!(
        b.sim.resolve(b.now, &stranger, &entry).is_unknown(),
        "not with that session"
    );
    assert_eq!(b.resolve("u", &entry), Resolution::Absent);
}

#[test]
fn of_what_this_cloud_does_not_create_it_can_say_nothing() {
    let mut b = Bench::new(plain());
    for operation in ["disk.create", "vm.power-on"] {
        let entry = PendingEntry {
            operation: operation.to_owned(),
            ..b.entry("m")
        };
        b.now += 1_000_000;
        assert!(b.resolve("u", &entry).is_unknown(), "{operation}");
    }
}

#[test]
fn with_tokens_the_key_tells_and_the_name_does_not() {
    let mut b = Bench::new(SimConfig {
        tokens: true,
        ..plain()
    });
    let entry = PendingEntry {
        key: "key-u".to_owned(),
        ..b.entry("whatever")
    };
    let task = b.clone_vm("u", "m").unwrap();
    assert_eq!(b.resolve("u", &entry), done(task));
    let other = PendingEntry {
        key: "another".to_owned(),
        ..b.entry("m")
    };
    b.now += VISIBLE_WITHIN + 1;
    assert_eq!(b.resolve("u", &other), Resolution::Absent);
}

#[test]
fn between_the_end_of_a_task_record_and_the_first_sight_of_its_vm_nothing_is_absent() {
    for seed in 0..50 {
        let config = SimConfig {
            lag: Millis::seconds(10),
            task_retention: Millis(0),
            ..plain()
        };
        let slow = FaultRule::new("vm.clone", Trouble::TaskTakes(Millis::seconds(60)));
        let config = SimConfig {
            faults: vec![slow],
            ..config
        };
        let mut b = Bench {
            sim: Sim::new(config, seed, START),
            now: START,
        };
        let entry = b.entry("m");
        b.clone_vm("u", "m").unwrap();
        b.now += 61_000;
        for _ in 0..24 {
            let said = b.resolve("u", &entry);
            assert!(
                matches!(said, Resolution::Done(_)),
                "seed {seed}, {} ms after the end: {said:?}",
                b.now - START
            );
            b.now += 500;
        }
    }
}
