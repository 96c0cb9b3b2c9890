//! The example `everything`.

use std::collections::BTreeSet;

use polity_core::contract::{Act, Request};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::passes::{calls, edges_of, lifecycle_ran, session};

/// Which edges were taken, whenever that was.
fn edges(passes: &[PassRecord], prefix: &str) -> BTreeSet<String> {
    let all = passes.iter().map(|pass| edges_of(pass, prefix));
    let ids: Vec<String> = all
        .flat_map(|edges| edges.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    ids.into_iter().collect()
}

fn assert_took(passes: &[PassRecord], prefix: &str, ids: &[&str]) {
    let taken = edges(passes, prefix);
    let missing: Vec<_> = ids.iter().filter(|id| !taken.contains(**id)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} of {prefix} were never taken: {taken:?}"
    );
}

/// How often the cloud was told to do this.
fn acts(passes: &[PassRecord], operation: &str) -> usize {
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let entries = roles.flat_map(|role| &role.journal);
    let told =
        |request: &Request| matches!(request, Request::Act(Act::Cloud(act)) if act.operation == operation);
    entries.filter(|entry| told(&entry.request)).count()
}

#[test]
fn five_workflows_run_side_by_side_and_each_keeps_to_its_own() {
    let ran = super::run("everything");

    // Security stood in the way for three minutes: what ran stayed, what was wanted meanwhile came afterwards.
    for name in ["shop/web-1", "shop/web-3"] {
        let passes = ran.passes("Machine.capv.polity.dev", name);
        let denied = passes.iter().filter(|pass| pass.outcome == Outcome::Denied);
        let denied: Vec<&PassRecord> = denied.collect();
        assert!(!denied.is_empty(), "{name}");
        for pass in denied {
            assert!(calls(pass).is_empty() && !lifecycle_ran(pass), "{name}");
        }
        assert_eq!(acts(&passes, "vm.clone"), 1, "{name}");
        let last = passes.last().expect("a pass");
        assert_eq!(session(last)["attributes"]["account"], "222222222222");
        assert_took(&passes, "CAPV-", &["02", "27", "29"]);
    }
    let stranger = ran.passes("Machine.capv.polity.dev", "stranger/web-1");
    assert!(stranger.iter().all(|pass| pass.outcome == Outcome::Denied));
    let cluster = ran.passes("AWSCluster", "shop/main");
    assert_took(&cluster, "CAPA-", &["07b"]);
    // The cluster and its machines act by one session. The first pass opens it.
    let mut shop = cluster;
    for machine in ["web-1", "web-2", "web-3"] {
        shop.extend(ran.passes("Machine.capv.polity.dev", &format!("shop/{machine}")));
    }
    assert_took(&shop, "CAPA-", &["08", "09"]);

    // Nobody heard of any node for three minutes: what was there was left alone, what was to go went.
    assert_took(
        &ran.passes("Machine.mcm.polity.dev", "nodes/batch-1"),
        "MCM-",
        &["R10", "H05", "R25x", "R26x"],
    );
    assert_took(
        &ran.passes("Machine.mcm.polity.dev", "nodes/batch-2"),
        "MCM-",
        &["D05", "X20", "X40"],
    );
    assert_took(
        &ran.passes("MachineSafety", "default"),
        "MCM-",
        &["F01", "F04", "F06"],
    );

    // The Orb was upgraded, its nodes by their agents.
    let orb = ran.passes("Orb", "orb");
    assert_took(
        &orb,
        "ORB-",
        &["03", "09a", "09b", "15", "18", "19", "22", "23", "28", "29"],
    );
    assert_eq!(acts(&orb, "pool.add-machine"), 3);
    for node in ["orb-cp-0", "orb-w-0", "orb-w-1"] {
        let passes = ran.passes("Node", node);
        assert_took(&passes, "ORB-", &["06", "07", "10", "20", "21a", "21b", "26"]);
        assert_eq!(
            (acts(&passes, "node.ensure"), acts(&passes, "node.reboot")),
            (2, 1),
            "{node}"
        );
    }

    // One router was given another network, another one a new VM.
    let (alpha, beta) = (
        ran.passes("Router", "network/alpha"),
        ran.passes("Router", "network/beta"),
    );
    assert_took(&alpha, "RUG-", &["22", "X14", "X15"]);
    assert_took(&beta, "RUG-", &["08", "11"]);
    assert_eq!((acts(&alpha, "router.boot"), acts(&beta, "router.boot")), (1, 2));
}
