//! Simulation A: thousands of seeds. Each is a small world with faults, until the faults stop.
//!
//! `POLITY_SEEDS` sets the number of seeds. A seed that fails prints how to run it alone; `POLITY_LINES` then
//! shows more of its trace.

#![allow(clippy::print_stdout, reason = "which seed noticed what is worth knowing")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polity_core::binding::{Limits, PolicyId};
use polity_core::contract::{Pass, Role, Step};
use polity_core::controller::{Guard, Guards};
use polity_core::record::PassRecord;
use polity_sim::{Between, FaultRule, Millis, Outage, Trouble, Unreachable};
use polity_tests::simulation::scenario::{Action, Scenario};
use polity_tests::simulation::{Failed, Options, Rule, Sandboxed, Stepper, run};
use serde_json::json;

/// Seeds of the test command: what a core does in about a minute, on two threads; the guards take another half.
const SEEDS: u64 = 750;
/// Seeds within which everything in [`REACHED`] must be reached.
const REACHED_WITHIN: u64 = 150;
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
        "seed {seed} broke {:?}: {}\n{}\nrun it alone: POLITY_SEED={seed} cargo test -p polity-tests --test all simulation::one_seed",
        failed.violation.rule,
        failed.violation.message,
        failed.trace.join("\n")
    )
}

/// The first of these seeds that fails, on two threads, and what those of the first [`REACHED_WITHIN`] reached that do not.
fn first_failure(seeds: u64) -> (Option<u64>, BTreeSet<&'static str>) {
    let (next, worst) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        let mut reached = BTreeSet::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || worst.load(Ordering::Relaxed) < seed {
                return reached;
            }
            match run(seed, &Options::new(stepper())) {
                Ok(report) if seed < REACHED_WITHIN => reached.extend(report.reached),
                Ok(_) => {}
                Err(_) => drop(worst.fetch_min(seed, Ordering::Relaxed)),
            }
        }
    };
    let reached = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut reached = work();
        reached.extend(other.join().expect("no panic in a simulation"));
        reached
    });
    let worst = worst.into_inner();
    ((worst < seeds).then_some(worst), reached)
}

/// One seed, with its trace, to investigate a failure.
#[test]
fn one_seed() {
    let seed = number("POLITY_SEED").unwrap_or(1);
    let lines = number("POLITY_LINES").and_then(|lines| usize::try_from(lines).ok());
    let options = Options {
        trace: lines.unwrap_or(LINES),
        ..Options::new(stepper())
    };
    if let Err(failed) = run(seed, &options) {
        panic!("{}", explain(seed, &failed));
    }
}

#[test]
fn every_seed_keeps_every_rule_and_settles_and_together_they_reach_what_they_are_meant_for() {
    let seeds = number("POLITY_SEEDS").unwrap_or(SEEDS);
    let (failure, reached) = first_failure(seeds.max(REACHED_WITHIN));
    let Some(seed) = failure else {
        let missing: Vec<_> = REACHED.iter().filter(|aim| !reached.contains(*aim)).collect();
        assert!(missing.is_empty(), "not reached: {missing:?}");
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
    let (mut compared, mut decided) = (BTreeMap::<PolicyId, u64>::new(), 0);
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
                    now: record.started.unix.0,
                    causes: Vec::new(),
                    attempt: record.attempt,
                    config: role.config.clone(),
                    pending: role.pending.clone(),
                    journal: role.journal.clone(),
                };
                let stepped = policy.step(&role.policy, &pass, &Limits::default());
                let Ok(Step::Concluded { conclusion, verdict }) = stepped.outcome else {
                    panic!("{}: {:?}", record.key, stepped.outcome)
                };
                assert_eq!(Some(conclusion), role.conclusion, "{}", record.key);
                assert_eq!(verdict, role.verdict, "{}", record.key);
                *compared.entry(role.policy.clone()).or_default() += 1;
            }
            if let Some(retry) = &record.retry {
                let said = policy.decide(&retry.policy, &retry.request, &Limits::default());
                assert_eq!(said.ok(), retry.answer, "{}", record.key);
                decided += 1;
            }
        }
    }
    let natives = ["site", "guest", "guest-identity", "widget"].map(|name| PolicyId(name.into()));
    let all = natives
        .iter()
        .chain([&policy.machine().id])
        .all(|id| compared.get(id) > Some(&20));
    assert!(all && decided > 20, "{compared:?}, {decided} waits");
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
fn is_noticed(remove: impl Fn(&mut Options<'static>), by: &[Rule]) {
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
                println!(
                    "noticed at seed {seed}: {:?}: {}",
                    failed.violation.rule, failed.violation.message
                );
                let mut whole = without();
                (whole.guards, whole.absent_takes_a_look) = (Guards::default(), true);
                if let Err(failed) = run(seed, &whole) {
                    panic!("with its guard as well: {}", explain(seed, &failed));
                }
                return;
            }
        }
    }
    panic!("not noticed by {by:?} within {NOTICED_WITHIN} seeds; others: {rules:?}");
}

/// Takes a guard away from worlds of this shape.
fn guard(guard: Guard, shape: fn(&mut Scenario), by: &[Rule]) {
    let without = |options: &mut Options<'static>| {
        options.guards = Guards::without(guard);
        options.shape = shape;
    };
    is_noticed(without, by);
}

/// Machines are most of the work, because theirs is the sandbox: these worlds have none.
fn of_natives(scenario: &mut Scenario) {
    scenario.without("Machine");
}

fn of_sites(scenario: &mut Scenario) {
    of_natives(scenario);
    scenario.without("Guest");
}

fn of_guests(scenario: &mut Scenario) {
    of_natives(scenario);
    scenario.without("Site");
}

fn of_all(_: &mut Scenario) {}

#[test]
fn without_write_ahead_a_create_has_no_entry() {
    guard(Guard::WriteAhead, of_all, &[Rule::WriteAhead]);
}

#[test]
fn an_outage_longer_than_visible_within_taken_for_a_look_makes_two_or_leaks_one() {
    is_noticed(
        |o| {
            o.absent_takes_a_look = false;
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
    guard(Guard::Precondition, of_all, &[Rule::Overwritten]);
}

#[test]
fn without_their_guard_own_writes_wake() {
    guard(Guard::OwnWritesEnqueueNothing, of_all, &[Rule::OwnWrite]);
}

#[test]
fn a_write_onto_any_version_taken_for_all_of_a_change_hides_what_somebody_else_wrote() {
    guard(
        Guard::OwnByBothVersions,
        |scenario| {
            of_sites(scenario);
            let creates = scenario.actions.iter().filter_map(|(_, action)| match action {
                Action::Create(site) if site.0 == "Site" => Some(site.clone()),
                _ => None,
            });
            let sites: Vec<_> = creates.collect();
            for site in sites {
                let map = ("ConfigMap".to_owned(), site.1.clone(), format!("{}-0", site.2));
                for when in (6_000..scenario.quiet_at).step_by(1_500) {
                    // The Site notes that it was looked at, while others write.
                    let looked =
                        Action::Patch(site.clone(), None, json!({"spec": {"maps": 1, "looked": when}}));
                    scenario.actions.push((when, looked));
                    let theirs = Action::Patch(map.clone(), None, json!({"data": {"value": "theirs"}}));
                    let soon = (1..6).map(|nth| (when + nth * 15, theirs.clone()));
                    scenario.actions.extend(soon);
                }
            }
            scenario.actions.sort_by_key(|(at, _)| *at);
        },
        &[Rule::Settles],
    );
}

#[test]
fn without_a_look_before_the_first_act_a_deleted_object_is_acted_for() {
    guard(Guard::LookBeforeTheFirstAct, of_all, &[Rule::Looked]);
}

#[test]
fn a_rebase_onto_what_somebody_else_wrote_overwrites_it() {
    guard(Guard::RebaseOnlyWhatNobodyChanged, of_all, &[Rule::Overwritten]);
}

#[test]
fn a_watch_that_has_not_listed_taken_for_an_empty_one_says_not_found() {
    guard(Guard::NotFoundNeedsASyncedWatch, of_all, &[Rule::NotFound]);
}

#[test]
fn without_fencing_a_host_acts_after_its_lease() {
    guard(Guard::Fencing, of_all, &[Rule::Fencing]);
}

#[test]
fn a_change_that_stood_still_and_may_begin_at_any_time_lands_after_its_lease() {
    guard(Guard::ChangesBeginInTime, of_guests, &[Rule::Fencing]);
}

#[test]
fn a_create_that_nobody_answered_taken_for_unsent_makes_two_machines() {
    guard(Guard::SentUnlessSaid, of_guests, &[Rule::OneVm, Rule::NoLeak]);
}

/// What the seeds have to reach: what they never come to they cannot find anything wrong with.
const REACHED: [&str; 37] = [
    "a change was held back",
    "a pass became large",
    "a list was longer than its limit",
    "a list was read through",
    "a list was selected by field",
    "a list was selected by label",
    "a lock was busy",
    "a lock was held",
    "a pass faulted",
    "a pass was denied",
    "a pass was discarded",
    "a pass was published",
    "a Pod was evicted",
    "a publication failed",
    "a retry policy decided",
    "a retry policy was swapped",
    "a watch could not say",
    "a watch listed anew in the middle of a pass",
    "a watch listed what is older than a write of its own host",
    "an act came too late",
    "an act in a cloud was done",
    "an act was refused that is not granted",
    "an identity was granted",
    "an object was deleted",
    "an object was made",
    "an object was patched",
    "an object was released",
    "the answer to a finalizer was lost",
    "the answer to a publication of a status was lost",
    "the answer to a publication of metadata was lost",
    "the answer to a creation was lost",
    "the answer to a patch of another object was lost",
    "the answer to an entry was lost",
    "the answer to the end of a finalizer was lost",
    "the lease was lost in a pass",
    "a host stopped in a pass",
    "a binding was gone while passes were under way",
];

#[test]
fn a_key_that_may_run_twice_at_once_does() {
    guard(Guard::OnePassAtATime, of_natives, &[Rule::Twice]);
}

#[test]
fn a_later_deadline_that_replaces_an_earlier_one_makes_keys_late() {
    guard(Guard::EarlierDeadlinesStand, of_sites, &[Rule::Late]);
}

#[test]
fn without_room_of_its_own_one_tenant_waits_for_another() {
    guard(Guard::TenantsHaveTurnsOfTheirOwn, of_guests, &[Rule::Starved]);
}

#[test]
fn a_change_that_enqueues_nothing_is_never_seen() {
    guard(Guard::ChangesEnqueueDependents, of_natives, &[Rule::Settles]);
}

#[test]
fn a_change_that_enqueues_every_key_enqueues_some_for_nothing() {
    guard(Guard::OnlyWhoUsedItIsEnqueued, of_sites, &[Rule::Enqueued]);
}

#[test]
fn an_own_write_that_does_not_enter_the_cache_is_not_seen_by_the_next_pass() {
    guard(Guard::OwnWritesEnterTheCache, of_natives, &[Rule::Stale]);
}

#[test]
fn what_is_in_doubt_and_done_again_is_there_twice() {
    guard(Guard::NothingInDoubtIsDoneAgain, of_guests, &[Rule::OneVm]);
}

#[test]
fn a_finalizer_that_goes_while_a_create_is_in_doubt_leaves_a_machine() {
    guard(
        Guard::DoubtKeepsTheFinalizer,
        |scenario| {
            of_guests(scenario);
            // Each guest is deleted soon after it is created, and its machine is created only after that.
            let deleted = scenario.actions.iter().filter_map(|(at, action)| match action {
                Action::Create(place) if place.0 == "Guest" => {
                    Some((at + 3_000, Action::Delete(place.clone())))
                }
                _ => None,
            });
            let deleted: Vec<_> = deleted.collect();
            scenario.actions.extend(deleted);
            scenario.actions.sort_by_key(|(at, _)| *at);
            scenario.cloud.faults = vec![FaultRule {
                until: Some(Millis(scenario.quiet_at)),
                probability: Some(0.6),
                ..FaultRule::new("machine.create", Trouble::HappenLate(Millis(20_000)))
            }];
        },
        &[Rule::NoLeak],
    );
}

#[test]
fn an_entry_of_another_process_taken_for_unsent_makes_two_machines() {
    guard(
        Guard::EntriesOfOthersAreAskedFor,
        of_guests,
        &[Rule::OneVm, Rule::NoLeak],
    );
}

#[test]
fn an_absence_believed_too_early_makes_two_machines() {
    guard(
        Guard::AbsentTakesTime,
        |scenario| {
            of_guests(scenario);
            // The entry looks old to the cloud, and what it announces is still to come.
            let hosts = 0..scenario.hosts;
            let behind = hosts.map(|host| (0, Action::Skew(host, -600_000)));
            scenario.actions.splice(0..0, behind);
            scenario.cloud.tokens = true;
            scenario.cloud.faults = vec![FaultRule {
                until: Some(Millis(scenario.quiet_at)),
                probability: Some(0.6),
                ..FaultRule::new("machine.create", Trouble::HappenLate(Millis(40_000)))
            }];
        },
        &[Rule::OneVm],
    );
}

#[test]
fn an_identity_that_was_granted_and_is_not_used_is_noticed() {
    guard(Guard::ActsAsGranted, of_guests, &[Rule::Identity]);
}

#[test]
fn a_denial_that_ends_no_pass_lets_it_act() {
    guard(Guard::ADenialEndsThePass, of_guests, &[Rule::Identity]);
}

#[test]
fn what_is_not_granted_and_not_refused_happens() {
    guard(Guard::OnlyWhatIsGranted, of_sites, &[Rule::Ungranted]);
}

#[test]
fn without_preconditions_acts_meet_other_objects_than_their_policies_saw() {
    guard(Guard::ActsHavePreconditions, of_sites, &[Rule::Others]);
}

#[test]
fn without_exclusion_two_sites_have_their_turn_at_once() {
    guard(Guard::LocksExclude, of_sites, &[Rule::Lock]);
}

#[test]
fn a_lock_that_ends_before_the_publication_lets_two_have_their_turn() {
    guard(Guard::LocksLastUntilPublished, of_sites, &[Rule::Lock]);
}

#[test]
fn a_faulting_object_that_does_not_back_off_is_tried_too_often() {
    guard(Guard::FaultsBackOff, of_natives, &[Rule::Quarantine]);
}

#[test]
fn a_fault_that_delays_others_makes_them_late() {
    guard(Guard::FaultsDelayNoOther, of_sites, &[Rule::Late]);
}

#[test]
fn a_pass_that_takes_what_is_bound_by_now_mixes_two_bindings() {
    guard(Guard::PassesKeepTheirBinding, of_guests, &[Rule::OneBinding]);
}

#[test]
fn a_recording_that_lacks_an_answer_does_not_replay() {
    guard(Guard::RecordingsAreWhole, of_natives, &[Rule::Replay]);
}

#[test]
fn a_retry_policy_that_is_not_heeded_is_noticed() {
    guard(Guard::RetryPoliciesDecide, of_sites, &[Rule::Replay]);
}

#[test]
fn a_swapped_retry_policy_that_is_not_asked_makes_keys_late() {
    guard(
        Guard::SwappedRetryPoliciesAreAsked,
        |scenario| {
            of_sites(scenario);
            scenario.rates.refused = 200;
            for when in (0..scenario.quiet_at).step_by(9_000) {
                scenario.actions.push((when, Action::Swap("sites", Role::Retry)));
            }
        },
        &[Rule::Late],
    );
}

#[test]
fn a_rebased_write_that_enqueues_nothing_hides_what_somebody_else_wrote() {
    guard(Guard::UnseenChangesEnqueue, of_natives, &[Rule::Settles]);
}

#[test]
fn a_room_without_bounds_is_overfilled() {
    guard(Guard::CapacitiesAreBounded, of_all, &[Rule::Rooms]);
}

#[test]
fn passes_that_hold_what_they_like_are_too_many() {
    guard(Guard::LargePassesAreFew, of_all, &[Rule::Rooms]);
}

#[test]
fn a_retry_that_anything_ends_is_ended_by_nothing_new() {
    guard(
        Guard::OnlyNewsEndsARetry,
        |scenario| {
            of_guests(scenario);
            // Whoever waits because its cloud fails is written to by somebody else meanwhile.
            let guests = scenario.actions.iter().filter_map(|(at, action)| match action {
                Action::Create(place) if place.0 == "Guest" => Some((*at, place.clone())),
                _ => None,
            });
            let noise = guests.flat_map(|(at, place)| {
                let moments = (1..20).map(move |nth| at + nth * 1_500);
                moments.map(move |at| (at, Action::Label(place.clone())))
            });
            let noise: Vec<_> = noise.filter(|(at, _)| *at < scenario.quiet_at).collect();
            scenario.actions.extend(noise);
            scenario.actions.sort_by_key(|(at, _)| *at);
            scenario.cloud.faults = vec![FaultRule {
                until: Some(Millis(scenario.quiet_at)),
                probability: Some(0.6),
                ..FaultRule::new("machine.*", Trouble::LoseRequest)
            }];
        },
        &[Rule::Heartbeat],
    );
}

#[test]
fn a_wait_that_does_not_last_its_time_makes_keys_early() {
    guard(Guard::WaitsLastTheirTime, of_natives, &[Rule::Early]);
}

#[test]
fn without_its_finalizer_an_object_is_acted_for_that_nothing_holds() {
    guard(Guard::FinalizersComeFirst, of_guests, &[Rule::Finalizer]);
}

#[test]
fn a_stale_key_that_is_not_read_first_tries_in_vain() {
    guard(Guard::StaleKeysReadFirst, of_natives, &[Rule::Hopeless]);
}
