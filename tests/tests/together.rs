//! All workflows, simulated, together and each alone: what must hold does, for every seed, and where a guard is taken
//! away a seed tells.
//!
//! `POLITY_SEEDS` sets how many seeds there are, `POLITY_SEED` runs one alone.

#![allow(clippy::print_stdout, reason = "which seed noticed what is worth knowing")]

use polity_clouds::sim::{Intervention, Millis, WorldEvent};
use polity_core::machine::Guards;
use polity_tests::together::scenario::{Deed, Scenario, Workflow};
use polity_tests::together::{Options, run};

/// Seeds of the test command, of all together and of each alone.
const SEEDS: u64 = 6;
const ALONE: u64 = 3;
/// Seeds within which a guard that is missing must be noticed.
const NOTICED_WITHIN: u64 = 40;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn simulate(seed: u64, options: Options<'_>) -> Result<usize, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(seed, options))
}

/// Simulates seeds, each of which must do something.
fn keeps_every_rule(seeds: u64, test: &str, options: Options<'_>) {
    let alone_seed = number("POLITY_SEED");
    let all = 0..number("POLITY_SEEDS").unwrap_or(seeds);
    for seed in alone_seed.map_or(all, |seed| seed..seed + 1) {
        match simulate(seed, options) {
            Ok(passes) => assert!(passes > 10, "seed {seed} does something: {passes} passes"),
            Err(broken) => panic!(
                "seed {seed}: {broken}\nrun it alone: POLITY_SEED={seed} cargo test -p polity-tests --test together -- {test}"
            ),
        }
    }
}

#[test]
fn every_seed_keeps_every_rule_and_settles() {
    keeps_every_rule(SEEDS, "every_seed", Options::default());
}

/// One workflow, on every seed of which hosts and agents crash right after some output.
fn alone(workflow: Workflow, test: &str) {
    let options = Options {
        workflows: workflow.alone(),
        shape: |scenario| scenario.rates.crash = scenario.rates.crash.max(20),
        ..Options::default()
    };
    keeps_every_rule(ALONE, test, options);
}

#[test]
fn alone_capv_machines_keep_every_rule_and_settle() {
    alone(Workflow::CapvMachines, "alone_capv");
}

#[test]
fn alone_mcm_machines_keep_every_rule_and_settle() {
    alone(Workflow::McmMachines, "alone_mcm");
}

#[test]
fn alone_clusters_keep_every_rule_and_settle() {
    alone(Workflow::Clusters, "alone_clusters");
}

#[test]
fn alone_an_orb_and_its_agents_keep_every_rule_and_settle() {
    alone(Workflow::Orb, "alone_an_orb");
}

#[test]
fn alone_routers_keep_every_rule_and_settle() {
    alone(Workflow::Routers, "alone_routers");
}

/// Takes guards away: within a bounded number of seeds this is noticed; with them, that seed is fine.
fn is_noticed(guards: Guards, shape: fn(&mut Scenario), how: &str) {
    let mut others = Vec::new();
    for seed in 0..NOTICED_WITHIN {
        let whole = Options {
            shape,
            ..Options::default()
        };
        match simulate(seed, Options { guards, ..whole }) {
            Err(broken) if broken.contains(how) => {
                println!("noticed at seed {seed}: {broken}");
                if let Err(broken) = simulate(seed, whole) {
                    panic!("with its guard as well: seed {seed}: {broken}");
                }
                return;
            }
            Err(broken) => others.push(broken),
            Ok(_) => {}
        }
    }
    panic!("not noticed within {NOTICED_WITHIN} seeds; others: {others:#?}");
}

#[test]
fn without_the_permit_two_machines_of_a_deployment_are_given_up_at_once() {
    let guards = Guards {
        permits_exclude: false,
        ..Guards::default()
    };
    is_noticed(
        guards,
        |scenario| {
            // All of them, at the same moment, for good.
            let from = scenario.quiet_at / 2;
            scenario.cloud.faults.clear();
            scenario.cloud.outages.clear();
            scenario.cloud.events = (1..=3)
                .map(|worker| WorldEvent {
                    vm: format!("workers-{worker}"),
                    at: Millis(from),
                    after_power_on: None,
                    until: None,
                    does: Intervention::FallSilent,
                })
                .collect();
            scenario.deeds.clear();
        },
        "machines of one deployment are given up at once",
    );
}

#[test]
fn without_the_precondition_on_a_node_what_people_write_is_overwritten() {
    let guards = Guards {
        acts_have_preconditions: false,
        ..Guards::default()
    };
    is_noticed(
        guards,
        |scenario| {
            scenario.rates.slow = 300;
            scenario.deeds.clear();
            for second in (180..scenario.quiet_at / 1_000).step_by(5) {
                scenario.deeds.push((second * 1_000, Deed::Template));
                scenario.deeds.push((second * 1_000 + 1_000, Deed::Taint));
                scenario.deeds.push((second * 1_000 + 2_000, Deed::Taint));
            }
        },
        "was overwritten",
    );
}

#[test]
fn without_the_verdict_of_the_identity_something_is_done_for_who_is_denied() {
    let guards = Guards {
        a_denial_ends_the_pass: false,
        ..Guards::default()
    };
    is_noticed(guards, |_| {}, "denied");
}
