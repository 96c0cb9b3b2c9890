//! Simulation A: thousands of seeds, each a small world in which things go wrong until it is quiet.
//!
//! `POLITY_SEEDS` sets how many; a seed that fails says how to run it alone.

#![allow(clippy::print_stdout, reason = "which seed noticed what is worth knowing")]

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polity_clouds::sim::{Between, FaultRule, Millis, Outage, Trouble, Unreachable};
use polity_core::binding::Limits;
use polity_core::contract::{Pass, Step};
use polity_core::controller::Guards;
use polity_core::record::PassRecord;
use polity_tests::simulation::{Failed, Options, Rule, Sandboxed, Stepper, run};

/// Seeds of the test command: what a core does in about a minute, on two threads.
const SEEDS: u64 = 2_500;
/// Seeds within which a guard that is missing must be noticed.
const NOTICED_WITHIN: u64 = 2_000;
/// Lines of the trace that a failure shows.
const LINES: usize = 40;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The policy as the host runs it.
fn stepper() -> &'static dyn Stepper {
    static POLICY: LazyLock<Sandboxed> =
        LazyLock::new(|| Sandboxed::load(polity_tests::guests::capv_machine()).expect("capv-machine loads"));
    &*POLICY
}

fn explain(seed: u64, failed: &Failed) -> String {
    format!(
        "seed {seed} broke {:?}: {}\n{}\nrun it alone: POLITY_SEED={seed} cargo test -p polity-tests --test simulation -- one_seed",
        failed.violation.rule,
        failed.violation.message,
        failed.trace.join("\n")
    )
}

/// The first of these seeds that fails, on two threads.
fn first_failure(seeds: u64, options: &(dyn Fn() -> Options<'static> + Sync)) -> Option<(u64, Rule)> {
    let (next, worst) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        let mut found = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || worst.load(Ordering::Relaxed) < seed {
                return found;
            }
            if let Err(failed) = run(seed, &options()) {
                worst.fetch_min(seed, Ordering::Relaxed);
                found = Some((seed, failed.violation.rule));
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        let other = other.join().expect("no panic in a simulation");
        [mine, other].into_iter().flatten().min()
    })
}

/// One seed, with its trace: for whoever looks into a failure.
#[test]
fn one_seed() {
    let seed = number("POLITY_SEED").unwrap_or(1);
    let options = Options {
        trace: LINES,
        ..Options::new(stepper())
    };
    if let Err(failed) = run(seed, &options) {
        panic!("{}", explain(seed, &failed));
    }
}

#[test]
fn every_seed_keeps_every_rule_and_settles() {
    let seeds = number("POLITY_SEEDS").unwrap_or(SEEDS);
    let Some((seed, _)) = first_failure(seeds, &|| Options::new(stepper())) else {
        return;
    };
    let options = Options {
        trace: LINES,
        ..Options::new(stepper())
    };
    let failed = run(seed, &options).expect_err("the same seed fails again");
    panic!("{}", explain(seed, &failed));
}

#[test]
fn the_same_seed_gives_the_same_recording_byte_for_byte() {
    let mut passes = 0;
    for seed in 0..40 {
        let recorded = || {
            let options = Options {
                record: true,
                ..Options::new(stepper())
            };
            run(seed, &options)
                .unwrap_or_else(|failed| panic!("{}", explain(seed, &failed)))
                .recording
        };
        let (first, second) = (recorded(), recorded());
        assert!(first == second, "seed {seed}");
        passes += first.iter().filter(|byte| **byte == b'\n').count();
    }
    assert!(passes > 400, "the seeds do something: {passes} passes");
}

#[test]
fn a_pass_without_its_causes_concludes_the_same() {
    let policy = stepper();
    let mut compared = 0;
    for seed in 0..10 {
        let options = Options {
            record: true,
            ..Options::new(policy)
        };
        let report = run(seed, &options).unwrap_or_else(|failed| panic!("{}", explain(seed, &failed)));
        for record in records(&report.recording) {
            for role in record.roles.iter().filter(|role| role.conclusion.is_some()) {
                let pass = Pass {
                    object: record.object.clone(),
                    now: record.started.unix,
                    causes: Vec::new(),
                    attempt: record.attempt,
                    config: role.config.clone(),
                    pending: role.pending.clone(),
                    journal: role.journal.clone(),
                };
                let stepped = policy.step(&role.policy, &pass, &Limits::default());
                let Ok(Step::Concluded { conclusion, .. }) = stepped.outcome else {
                    panic!("{}: {:?}", record.key, stepped.outcome)
                };
                assert_eq!(Some(conclusion), role.conclusion, "{}", record.key);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared} passes");
}

/// The records of a recording: each line is a host and a record.
fn records(recording: &[u8]) -> Vec<PassRecord> {
    recording
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.iter().position(|byte| *byte == b' ').map(|at| &line[at..]))
        .map(|record| serde_json::from_slice(record).expect("a record reads as it was written"))
        .collect()
}

/// Takes a guard away: within a bounded number of seeds one of these oracles notices; with the guard, none does.
fn is_noticed(remove: fn(&mut Options<'static>), by: &[Rule]) {
    let without = || {
        let mut options = Options::new(stepper());
        remove(&mut options);
        options
    };
    let mut rules: BTreeMap<Rule, u64> = BTreeMap::new();
    for seed in 0..NOTICED_WITHIN {
        if let Err(failed) = run(seed, &without()) {
            *rules.entry(failed.violation.rule).or_default() += 1;
            if by.contains(&failed.violation.rule) {
                println!("noticed at seed {seed}: {}", failed.violation.message);
                let mut whole = without();
                (whole.guards, whole.settle_needs_a_look) = (Guards::default(), true);
                if let Err(failed) = run(seed, &whole) {
                    panic!("with its guard as well: {}", explain(seed, &failed));
                }
                return;
            }
        }
    }
    panic!("not noticed by {by:?} within {NOTICED_WITHIN} seeds; others: {rules:?}");
}

fn guard(options: &mut Options<'static>, remove: fn(&mut Guards)) {
    remove(&mut options.guards);
}

#[test]
fn without_write_ahead_a_create_has_no_entry() {
    is_noticed(|o| guard(o, |g| g.write_ahead = false), &[Rule::WriteAhead]);
}

#[test]
fn an_outage_longer_than_visible_within_taken_for_a_look_makes_two_or_leaks_one() {
    is_noticed(
        |o| {
            o.settle_needs_a_look = false;
            o.shape = |scenario| {
                let cloud = &mut scenario.cloud;
                let lost = FaultRule {
                    until: Some(Millis(scenario.quiet_at)),
                    probability: Some(0.5),
                    ..FaultRule::new("vm.clone", Trouble::LoseAnswer)
                };
                (cloud.faults, cloud.events) = (vec![lost], Vec::new());
                // The clone is still under way, and cannot be seen, when the cloud is back.
                cloud.tasks.clone = Between {
                    min: Millis(60_000),
                    max: Millis(90_000),
                };
                cloud.outages = vec![Outage {
                    from: Millis(10_000),
                    until: Millis(50_000),
                    calls: Unreachable::Refused,
                }];
            };
        },
        &[Rule::OneVm, Rule::NoLeak],
    );
}

#[test]
fn without_preconditions_newer_writes_are_overwritten() {
    is_noticed(|o| guard(o, |g| g.precondition = false), &[Rule::Overwritten]);
}

#[test]
fn without_their_guard_own_writes_wake() {
    is_noticed(
        |o| guard(o, |g| g.own_writes_wake_nothing = false),
        &[Rule::OwnWrite],
    );
}

#[test]
fn without_a_look_before_the_first_act_a_deleted_object_is_acted_for() {
    is_noticed(
        |o| guard(o, |g| g.look_before_the_first_act = false),
        &[Rule::Looked],
    );
}

#[test]
fn a_rebase_onto_what_somebody_else_wrote_overwrites_it() {
    is_noticed(
        |o| guard(o, |g| g.rebase_only_what_nobody_changed = false),
        &[Rule::Overwritten],
    );
}

#[test]
fn a_watch_that_has_not_listed_taken_for_an_empty_one_says_not_found() {
    is_noticed(
        |o| guard(o, |g| g.not_found_needs_a_synced_watch = false),
        &[Rule::NotFound],
    );
}

#[test]
fn without_fencing_a_host_acts_after_its_lease() {
    is_noticed(|o| guard(o, |g| g.fencing = false), &[Rule::Fencing]);
}
