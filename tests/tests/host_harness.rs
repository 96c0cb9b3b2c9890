//! Simulation B: the whole host, with its kube client, its API server and its sandbox, in a world with
//! faults, until the faults stop. Only invariants are checked: a runtime takes part, so nothing is compared
//! byte for byte.
//!
//! `POLITY_SEEDS` sets the number of seeds. `POLITY_SEED` runs a single one.

use polity_tests::host_harness::seeds;

/// Seeds of the test command: what a core does in some ten seconds.
const SEEDS: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn the_whole_host_makes_one_vm_for_each_machine_and_settles() {
    let all = 0..number("POLITY_SEEDS").unwrap_or(SEEDS);
    let seeds = number("POLITY_SEED").map_or(all, |seed| seed..seed + 1);
    let mut passes = 0;
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        match runtime.block_on(seeds::run(seed)) {
            Ok(count) => passes += count,
            Err(broken) => panic!(
                "seed {seed}: {broken}\nrun it alone: POLITY_SEED={seed} cargo test -p polity-tests --test all host_harness::"
            ),
        }
    }
    assert!(passes > 0, "nothing was simulated");
}
