//! All workflows in simulation, together and each alone. The rules hold for every seed, and some seed breaks
//! one if a guard is removed.
//!
//! `POLITY_SEEDS` sets the number of seeds. `POLITY_SEED` sets the first of them, which is then run alone. `POLITY_RECORD`
//! names a folder in which every pass of every seed is recorded.

#![allow(clippy::print_stdout, reason = "which seed noticed what is worth knowing")]

use std::path::Path;

use polity_core::controller::{Guard, Guards};
use polity_sim::{Between, FaultRule, Intervention, Millis, Trouble, WorldEvent};
use polity_tests::all_workflows::orb;
use polity_tests::all_workflows::scenario::{Deed, Scenario, Workflow};
use polity_tests::all_workflows::{Options, run};

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
    let first = number("POLITY_SEED");
    let count = number("POLITY_SEEDS").unwrap_or(first.map_or(seeds, |_| 1));
    let first = first.unwrap_or(0);
    let recording = std::env::var_os("POLITY_RECORD");
    for seed in first..first + count {
        let options = Options {
            recording: recording.as_deref().map(Path::new),
            ..options
        };
        match simulate(seed, options) {
            Ok(passes) => assert!(passes > 10, "seed {seed} does something: {passes} passes"),
            Err(broken) => panic!(
                "seed {seed}: {broken}\nrun it alone: POLITY_SEED={seed} cargo test -p polity-tests --test all all_workflows::{test}"
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

/// Something is missing: within a bounded number of seeds this is noticed; with it, that seed is fine.
fn is_noticed(missing: Options<'_>, how: &str) {
    is_noticed_from(0, missing, how);
}

/// The same from a seed on that is likely to notice it.
fn is_noticed_from(first: u64, missing: Options<'_>, how: &str) {
    let whole = Options {
        guards: Guards::default(),
        reboot_names_its_boot: true,
        ..missing
    };
    let mut others = Vec::new();
    for seed in first..first + NOTICED_WITHIN {
        match simulate(seed, missing) {
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

/// These workflows in this shape, on hosts that have these guards.
fn without(workflows: &'static [Workflow], guards: Guards, shape: fn(&mut Scenario)) -> Options<'static> {
    Options {
        workflows,
        guards,
        shape,
        ..Options::default()
    }
}

#[test]
fn without_the_lock_two_machines_of_a_deployment_are_given_up_at_once() {
    let guards = Guards::without(Guard::LocksExclude);
    let shape = |scenario: &mut Scenario| {
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
    };
    is_noticed(
        without(Workflow::McmMachines.alone(), guards, shape),
        "machines of one deployment are given up at once",
    );
}

#[test]
fn without_the_precondition_on_a_node_what_people_write_is_overwritten() {
    let guards = Guards::without(Guard::ActsHavePreconditions);
    let shape = |scenario: &mut Scenario| {
        scenario.rates.slow = 300;
        scenario.deeds.clear();
        for second in (180..scenario.quiet_at / 1_000).step_by(5) {
            scenario.deeds.push((second * 1_000, Deed::Template));
            scenario.deeds.push((second * 1_000 + 1_000, Deed::Taint));
            scenario.deeds.push((second * 1_000 + 2_000, Deed::Taint));
        }
    };
    is_noticed(
        without(Workflow::McmMachines.alone(), guards, shape),
        "was overwritten",
    );
}

#[test]
fn without_the_verdict_of_the_identity_something_is_done_for_who_is_denied() {
    let guards = Guards::without(Guard::ADenialEndsThePass);
    is_noticed(without(Workflow::CapvMachines.alone(), guards, |_| {}), "denied");
}

/// People want another version of Kubernetes every so many seconds, once the cluster may have come up.
fn versions(scenario: &mut Scenario, every: usize) {
    scenario.deeds.clear();
    for second in (120..scenario.quiet_at / 1_000 - 60).step_by(every) {
        let version = Deed::Orb(orb::Deed::Version(second as usize / every % 3));
        scenario.deeds.push((second * 1_000, version));
    }
}

#[test]
fn a_reboot_that_names_no_boot_ends_the_next_one_as_well() {
    let missing = Options {
        workflows: Workflow::Orb.alone(),
        reboot_names_its_boot: false,
        shape: |scenario| {
            versions(scenario, 90);
            for second in 120..scenario.quiet_at / 1_000 {
                // Whatever happens to its Node lets the agent look again.
                scenario.deeds.push((second * 1_000, Deed::Taint));
            }
            scenario.deeds.sort_by_key(|(at, _)| *at);
            let cloud = &mut scenario.cloud;
            cloud.machines.boot = Between {
                min: Millis(1_000),
                max: Millis(2_000),
            };
            cloud.packages.reboot_for = vec!["kubelet".to_owned()];
            // What is read in one boot is answered in the next.
            let slow = FaultRule {
                until: Some(Millis(scenario.quiet_at)),
                probability: Some(0.5),
                ..FaultRule::new("node.reboot-required", Trouble::AnswerAfter(Millis(4_800)))
            };
            cloud.faults = vec![slow];
            cloud.outages.clear();
            cloud.events.clear();
        },
        ..Options::default()
    };
    is_noticed_from(6, missing, "was rebooted twice for one change");
}

/// Hosts that do not write down what they are about to create, and crash or hear nothing right after it.
fn without_write_ahead(workflow: Workflow, shape: fn(&mut Scenario)) {
    let guards = Guards::without(Guard::WriteAhead);
    is_noticed(without(workflow.alone(), guards, shape), "has the VMs");
}

/// A cloud in which nothing but the entry tells that something was created: names are no obstacle, and who searches may
/// be shown what was there a minute ago: before a host that crashed is replaced.
fn forgets(scenario: &mut Scenario, create: &str) {
    scenario.rates.crash = 50;
    let cloud = &mut scenario.cloud;
    (cloud.unique_names, cloud.tokens, cloud.lag) = (false, false, Millis::seconds(60));
    cloud.faults = vec![FaultRule {
        until: Some(Millis(scenario.quiet_at)),
        probability: Some(0.3),
        ..FaultRule::new(create, Trouble::LoseAnswer)
    }];
}

#[test]
fn without_the_pending_entry_a_router_gets_two_vms() {
    without_write_ahead(Workflow::Routers, |scenario| forgets(scenario, "router.boot"));
}

#[test]
fn without_the_pending_entry_a_machine_gets_two_vms() {
    without_write_ahead(Workflow::McmMachines, |scenario| {
        forgets(scenario, "machine.create");
    });
}
