//! Many seeds: settling is honest, chance is reproducible, restarts change nothing.

use std::collections::BTreeMap;

use crate::harness::*;
use crate::kernel::draw::draw;
use crate::kernel::kept::{Change, Record};

/// Chance for the tests themselves.
struct Dice(u64, u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.1 += 1;
        draw(self.0, "dice", "", self.1) % sides
    }
}

/// Everything bad at once.
fn nasty(dice: &mut Dice) -> SimConfig {
    let mut faults = vec![
        FaultRule {
            probability: Some(0.4),
            ..rule("vm.clone", Trouble::LoseAnswer)
        },
        FaultRule {
            probability: Some(0.2),
            ..rule("vm.clone", Trouble::LoseRequest)
        },
        FaultRule {
            probability: Some(0.2),
            ..rule("resolve", Trouble::LoseAnswer)
        },
        FaultRule {
            probability: Some(0.3),
            ..rule("*", Trouble::AnswerAfter(Millis(dice.roll(8_000))))
        },
        FaultRule {
            probability: Some(0.2),
            ..rule("*", Trouble::TaskTakes(Millis(dice.roll(300_000))))
        },
    ];
    if dice.roll(2) == 0 {
        let late = Trouble::HappenLate(Millis(dice.roll(30_000)));
        faults.insert(
            0,
            FaultRule {
                probability: Some(0.5),
                ..rule("vm.clone", late)
            },
        );
    }
    if dice.roll(3) == 0 {
        let fail = Trouble::FailTask {
            fault: "Broken".to_owned(),
            message: None,
        };
        faults.insert(
            0,
            FaultRule {
                probability: Some(0.3),
                ..rule("vm.*", fail)
            },
        );
    }
    let from = Millis(dice.roll(30_000));
    let outages = vec![Outage {
        from,
        until: Millis(from.0 + 1 + dice.roll(60_000)),
        calls: Unreachable::Refused,
    }];
    let does = [
        Intervention::FallSilent,
        Intervention::PowerOff,
        Intervention::Leave,
        Intervention::Recover,
    ];
    let event = |nth: u64, dice: &mut Dice| WorldEvent {
        vm: format!("n{}", dice.roll(4)),
        at: Millis(dice.roll(600_000)),
        after_power_on: None,
        until: None,
        does: does[nth as usize],
    };
    let events = (0..4).map(|nth| event(nth, dice)).collect();
    let lag = Millis(dice.roll(10_000));
    let task_retention = Millis(dice.roll(60_000));
    SimConfig {
        faults,
        outages,
        events,
        lag,
        task_retention,
        tokens: dice.roll(4) == 0,
        ..SimConfig::default()
    }
}

/// The clones of this owner that were ever submitted, by their tasks.
fn submitted(sim: &Sim, owner: &str) -> Vec<String> {
    let clones = sim
        .effects()
        .iter()
        .filter(|e| e.owner == owner && e.operation == "vm.clone");
    clones
        .filter(|e| e.what == Happened::Submitted)
        .filter_map(|e| e.task.clone())
        .collect()
}

#[test]
fn absent_is_never_followed_by_an_effect_and_done_is_the_effect() {
    let (mut absent, mut by_task, mut by_vm) = (0, 0, 0);
    for seed in 0..600 {
        let mut dice = Dice(seed, 0);
        let mut b = Bench {
            sim: Sim::new(nasty(&mut dice), seed, START),
            now: START,
        };
        b.now += dice.roll(60_000);
        let entry = PendingEntry {
            key: "key-u".to_owned(),
            ..b.entry("m")
        };
        b.now += dice.roll(BEGINS_WITHIN + 1);
        let reply = b.reply("u", "vm.clone", clone_arguments("u", "m"));
        b.now += dice.roll(120_000);
        let doubt = loop {
            match b.resolve("u", &entry) {
                Resolution::Unknown(_) => b.now += dice.roll(5_000),
                said => break said,
            }
            assert!(b.now < START + 3_600_000, "seed {seed}: it can never say");
        };
        let known = submitted(&b.sim, "u");
        let there = b.sim.vms(b.now);
        assert!(known.len() <= 1, "seed {seed}: performed twice");
        b.now += 10_000_000;
        b.sim.advance(b.now);
        assert_eq!(
            submitted(&b.sim, "u"),
            known,
            "seed {seed}: an effect after {doubt:?}"
        );
        match doubt {
            Resolution::Absent => {
                assert!(
                    there.is_empty() && b.sim.vms(b.now).is_empty(),
                    "seed {seed}: absent, and there it is"
                );
                absent += 1;
            }
            Resolution::Done(answer) => {
                let answer: Value = serde_json::from_str(&answer).unwrap();
                match answer.get("task") {
                    Some(task) => assert_eq!(json!(known), json!([task]), "seed {seed}"),
                    None => assert_eq!(answer, json!({"vm": there[0].id}), "seed {seed}"),
                }
                if let Some(Ok(first)) = &reply.answer {
                    assert!(
                        answer.get("vm").is_some() || *first == answer,
                        "seed {seed}: two answers"
                    );
                }
                if answer.get("vm").is_some() {
                    by_vm += 1
                } else {
                    by_task += 1
                }
            }
            Resolution::Unknown(_) => unreachable!(),
        }
    }
    assert!(
        absent > 50 && by_task > 50 && by_vm > 20,
        "{absent} {by_task} {by_vm}"
    );
}

#[test]
fn a_call_that_begins_too_late_can_make_absent_a_lie() {
    let lies = (0..50).any(|seed| {
        let mut b = Bench {
            sim: Sim::new(plain(), seed, START),
            now: START,
        };
        let entry = b.entry("m");
        b.now += BEGINS_WITHIN + LONGEST + 1;
        let said = b.resolve("u", &entry);
        b.now += 1;
        b.clone_vm("u", "m").unwrap();
        said == Resolution::Absent
    });
    assert!(lies, "BEGINS_WITHIN is a rule for callers");
}

/// A random walk of three owners through all operations; what each call was answered.
fn walk(
    sim: &mut Sim,
    seed: u64,
    steps: std::ops::Range<u64>,
    mut between: impl FnMut(&mut Sim),
) -> Vec<String> {
    let mut said = Vec::new();
    for step in steps {
        let mut dice = Dice(seed ^ 0x5eed, step * 1_000);
        let now = sim.now() + dice.roll(20_000);
        let owner = ["a", "b", "c"][dice.roll(3) as usize];
        let vms: Vec<String> = sim.vms(now).into_iter().map(|vm| vm.id).collect();
        let id = vms
            .get(dice.roll(vms.len().max(1) as u64) as usize)
            .cloned()
            .unwrap_or("vm-1".to_owned());
        let operations = [
            "vm.get",
            "vm.power",
            "vm.nics",
            "vm.metadata",
            "vm.power-on",
            "vm.power-off",
            "vm.destroy",
        ];
        let machine = json!({"name": format!("n{}", dice.roll(4))});
        let token = json!({"$secret": {"name": owner, "key": "token"}});
        let (router, nth) = (format!("r{}", dice.roll(3)), dice.roll(3));
        let port = json!({"network": "net", "mac": format!("fa:16:3e:00:00:0{nth}")});
        let plug = json!({"id": id, "network": "net", "mac": port["mac"]});
        let request = match dice.roll(21) {
            15..=16 => {
                let arguments = json!({"name": router, "image": "i", "flavor": "f", "ports": [port]});
                request(owner, "router.boot", arguments)
            }
            17 => request(owner, ["port.attach", "port.detach"][dice.roll(2) as usize], plug),
            18 => request(
                owner,
                ["router.delete", "router.alive"][dice.roll(2) as usize],
                json!({"id": id}),
            ),
            19 => request(owner, "config.push", json!({"id": id, "config": {"nth": nth}})),
            20 => request(
                owner,
                ["router.get", "router.delete-ports"][dice.roll(2) as usize],
                json!({"name": router}),
            ),
            11..=12 => request(
                owner,
                "machine.create",
                json!({"name": machine["name"], "bootstrapToken": token}),
            ),
            13 => request(
                owner,
                ["machine.status", "machine.delete"][dice.roll(2) as usize],
                machine,
            ),
            14 => request(owner, "pool.list", json!({})),
            0..=1 => clone_of(owner, &format!("m{}", dice.roll(4))),
            2 => request(owner, "vm.find", json!({"instanceUuid": owner})),
            3 => request(
                owner,
                "task.get",
                json!({"id": format!("task-{}", dice.roll(40))}),
            ),
            n => request(owner, operations[n as usize - 4], json!({"id": id})),
        };
        said.push(format!("{:?}", sim.perform(now, &request)));
        let entry = pending("vm.clone", "m1", "", now);
        said.push(format!("{:?}", sim.resolve(now, &session(owner), &entry)));
        between(sim);
    }
    said
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let run = |seed| {
        let mut sim = Sim::new(nasty(&mut Dice(3, 0)), seed, START);
        let said = walk(&mut sim, 1, 0..200, |_| ());
        (said, sim.snapshot(), sim.effects().to_vec())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

#[test]
fn a_restart_at_any_moment_changes_nothing() {
    for seed in 0..20 {
        let config = nasty(&mut Dice(seed, 0));
        let mut unbroken = Sim::new(config.clone(), seed, START);
        let mut broken = Sim::new(config.clone(), seed, START);
        let restart = |sim: &mut Sim| *sim = Sim::restore(config.clone(), &sim.snapshot()).unwrap();
        let expected = walk(&mut unbroken, seed, 0..100, |_| ());
        assert_eq!(walk(&mut broken, seed, 0..100, restart), expected, "seed {seed}");
        assert_eq!(broken.snapshot(), unbroken.snapshot());
    }
}

#[test]
fn a_snapshot_that_is_older_than_the_last_reads_knows_every_effect() {
    for seed in 0..20 {
        let config = nasty(&mut Dice(seed, 0));
        let mut sim = Sim::new(config.clone(), seed, START);
        let mut saved = sim.snapshot();
        walk(&mut sim, seed, 0..100, |sim| {
            if sim.take_dirty() {
                saved = sim.snapshot();
            }
            let mut restored = Sim::restore(config.clone(), &saved).unwrap();
            let now = sim.now();
            assert_eq!(restored.vms(now), sim.vms(now), "seed {seed}");
            assert_eq!(restored.nodes(now), sim.nodes(now), "seed {seed}");
            assert_eq!(restored.routers(now), sim.routers(now), "seed {seed}");
            assert_eq!(restored.router_ports(), sim.router_ports(), "seed {seed}");
        });
    }
}

/// What a database holds after these changes.
#[derive(Default)]
struct Records(BTreeMap<(String, String), Vec<u8>>);

impl Records {
    fn take(&mut self, changes: Vec<Change>) {
        for Change { key, value } in changes {
            let key = (key.table.to_owned(), key.key);
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }

    fn restored(&self, config: &SimConfig) -> Sim {
        let records = self.0.iter();
        let records = records.map(|((table, key), value)| (table.clone(), key.clone(), value.clone()));
        let records: Vec<Record> = records.collect();
        Sim::from_records(config.clone(), &records).unwrap().unwrap()
    }
}

#[test]
fn the_changes_of_all_calls_together_are_the_world() {
    for seed in 0..10 {
        let config = nasty(&mut Dice(seed, 0));
        let mut sim = Sim::new(config.clone(), seed, START);
        let mut records = Records::default();
        sim.note_changes();
        walk(&mut sim, seed, 0..100, |sim| {
            records.take(sim.changes());
            assert_eq!(
                records.restored(&config).snapshot(),
                sim.snapshot(),
                "seed {seed}"
            );
        });
    }
}

#[test]
fn a_world_that_begins_later_is_kept_as_well() {
    let config = nasty(&mut Dice(1, 0));
    let mut sim = Sim::new(config.clone(), 1, START - 5_000);
    let mut records = Records::default();
    sim.note_changes();
    records.take(sim.changes());
    sim.begin(START);
    assert_eq!(sim.snapshot(), Sim::new(config.clone(), 1, START).snapshot());
    walk(&mut sim, 1, 0..30, |sim| {
        records.take(sim.changes());
        assert_eq!(records.restored(&config).snapshot(), sim.snapshot());
    });
}

#[test]
fn a_database_that_is_older_than_the_last_reads_knows_every_effect() {
    for seed in 0..20 {
        let config = nasty(&mut Dice(seed, 0));
        let mut sim = Sim::new(config.clone(), seed, START);
        let mut records = Records::default();
        sim.note_changes();
        records.take(sim.changes());
        walk(&mut sim, seed, 0..100, |sim| {
            if sim.take_dirty() {
                records.take(sim.changes());
            }
            let mut restored = records.restored(&config);
            let now = sim.now();
            assert_eq!(restored.vms(now), sim.vms(now), "seed {seed}");
            assert_eq!(restored.nodes(now), sim.nodes(now), "seed {seed}");
            assert_eq!(restored.routers(now), sim.routers(now), "seed {seed}");
            assert_eq!(restored.router_ports(), sim.router_ports(), "seed {seed}");
        });
    }
}

#[test]
fn records_that_are_not_those_of_this_version_are_refused() {
    let mut sim = Sim::new(plain(), 0, START);
    sim.note_changes();
    let mut records = Records::default();
    records.take(sim.changes());
    let refused = |records: Vec<Record>| Sim::from_records(plain(), &records).err();
    let record = |table: &str, value: &str| (table.to_owned(), "1".to_owned(), value.as_bytes().to_vec());
    assert!(matches!(
        refused(vec![record("vms", "{}")]),
        Some(RestoreError::Headless)
    ));
    let head = records.0.remove(&("head".to_owned(), String::new())).unwrap();
    let head = ("head".to_owned(), String::new(), head);
    for (record, wanted) in [
        (record("moons", "{}"), "moons"),
        (record("vms", "{}"), "cannot be read"),
    ] {
        let said = refused(vec![head.clone(), record]).unwrap().to_string();
        assert!(said.contains(wanted), "{said}");
    }
    assert!(Sim::from_records(plain(), &[]).unwrap().is_none());
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    assert!(matches!(
        Sim::restore(plain(), "nonsense"),
        Err(RestoreError::Unreadable(_))
    ));
    let other = json!({"format": "polity-sim/1", "world": {}}).to_string();
    assert!(matches!(
        Sim::restore(plain(), &other),
        Err(RestoreError::Format(_))
    ));
}

#[test]
fn what_happens_to_one_machine_does_not_depend_on_the_calls_of_others() {
    let alone = |others: bool| {
        let mut b = Bench::new(SimConfig::default());
        if others {
            (0..7).for_each(|i| drop(b.clone_vm(&format!("other-{i}"), &format!("other-{i}"))));
        }
        let task = b.clone_vm("u", "m").unwrap();
        let number = task["task"]
            .as_str()
            .unwrap()
            .strip_prefix("task-")
            .unwrap()
            .parse::<u64>()
            .unwrap();
        b.sim.kernel.task(number).unwrap().ends
    };
    assert_eq!(alone(false), alone(true));
}
