//! The example `capa-tenancy`.

use polity_core::record::{Outcome, PassRecord};
use polity_tests::passes::{calls, edges_of, lifecycle_ran, session};
use serde_json::Value;

fn principals(passes: &[PassRecord]) -> Vec<String> {
    let mut all: Vec<String> = passes
        .iter()
        .map(|pass| session(pass)["attributes"]["principal"].clone())
        .filter_map(|principal: Value| principal.as_str().map(str::to_owned))
        .collect();
    all.dedup();
    all
}

#[test]
fn tenants_act_in_their_own_accounts_or_not_at_all() {
    let ran = super::run("capa-tenancy");

    // Red helped itself to green's identity.
    let red = [
        ran.passes("AWSCluster", "team-red/main"),
        ran.passes("Machine", "team-red/red-1"),
    ]
    .concat();
    for pass in &red {
        assert_eq!(pass.outcome, Outcome::Denied);
        assert!(calls(pass).is_empty() && !lifecycle_ran(pass));
    }
    let why = ran.explained("AWSCluster", "team-red/main");
    assert!(why.contains("IdentityInOtherNamespace"), "{why}");

    // Blue's key was rotated: another session, and the machine did not notice.
    let user = |name: &str| format!("arn:aws:iam::222222222222:user/{name}");
    let blue = ran.passes("Machine", "team-blue/blue-1");
    assert_eq!(principals(&blue), [user("polity-1"), user("polity-2")]);
    let with_second = |pass: &&PassRecord| session(pass)["attributes"]["principal"] == user("polity-2");
    let rotated = blue.iter().find(with_second).expect("a pass with the new key");
    // The first pass opened the session, and the others share it.
    let others = [
        ran.passes("AWSCluster", "team-blue/main"),
        ran.passes("Machine", "team-blue/blue-2"),
    ]
    .concat();
    let mut all = blue.iter().chain(&others).filter(with_second);
    assert!(all.any(|pass| edges_of(pass, "CAPA-").contains("P2 07 08 10")));
    assert!(edges_of(rotated, "CAPV-").ends_with("28 29"));

    // Green lost its label: what was deleted meanwhile stayed, what was wanted meanwhile was not made.
    for (machine, then) in [("green-2", "20a"), ("green-3", "23")] {
        let passes = ran.passes("Machine", &format!("team-green/{machine}"));
        let denied: Vec<usize> = (0..passes.len())
            .filter(|index| passes[*index].outcome == Outcome::Denied)
            .collect();
        let last = *denied.last().expect("it was denied");
        for pass in denied.iter().map(|index| &passes[*index]) {
            assert!(edges_of(pass, "CAPA-").ends_with("N8 P8 P6"));
            assert!(calls(pass).is_empty() && !lifecycle_ran(pass));
        }
        assert!(edges_of(&passes[last + 1], "CAPV-").ends_with(then), "{machine}");
    }
    let hub = "arn:aws:sts::333333333333:assumed-role/clusters/polity";
    assert_eq!(principals(&ran.passes("AWSCluster", "team-green/main")), [hub]);

    let table = ran.edges("capa-identity");
    assert!(table.contains("CAPA-12"), "{table}");
}
