//! The example `two-teams`.

use std::time::Duration;

use polity_core::contract::{Cause, Code, Role, Wait};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::guests;
use polity_tests::passes::{calls, lifecycle_ran};

fn digest(policy: &str) -> String {
    guests::load(policy).id().0.to_string()
}

/// The policies that answered in one role, each as long as it did without another one between.
fn in_turn(passes: &[PassRecord], role: Role) -> Vec<String> {
    let answered = passes.iter().flat_map(|pass| {
        let roles = pass
            .roles
            .iter()
            .filter(|of| of.role == role)
            .map(|of| &of.policy);
        let retry = pass
            .retry
            .iter()
            .filter(|_| role == Role::Retry)
            .map(|retry| &retry.policy);
        roles.chain(retry)
    });
    let mut digests: Vec<String> = answered.map(|id| id.0.to_string()).collect();
    digests.dedup();
    digests
}

#[test]
fn one_team_swaps_its_policy_and_the_others_notice_nothing() {
    let ran = super::run("two-teams");
    let (fixed, growing) = (digest("mcm-retry"), digest("backoff-retry"));
    let mut waits = Vec::new();
    for number in 1..=8 {
        let passes = ran.passes("Machine", &format!("shop/web-{number}"));
        assert_eq!(in_turn(&passes, Role::Identity), [digest("capa-identity")]);
        assert_eq!(in_turn(&passes, Role::Lifecycle), [digest("capv-machine")]);
        let retries = in_turn(&passes, Role::Retry);
        assert!(retries.iter().eq([&fixed, &growing]), "{retries:?}");
        for retry in passes.iter().filter_map(|pass| pass.retry.as_ref()) {
            if *retry.policy.0 == fixed
                && retry
                    .request
                    .failure
                    .as_ref()
                    .is_some_and(|failure| failure.code == Code::Unavailable)
            {
                waits.push(retry.answer);
            }
        }
    }
    let periods = [5_000, 20_000].map(|wait| Some(Wait::After(wait)));
    assert!(
        !waits.is_empty() && waits.iter().all(|wait| periods.contains(wait)),
        "{waits:?}"
    );

    // What met the quota does not wait for the ten minutes of the policy that was swapped away.
    let passes = ran.passes("Machine", "shop/web-8");
    let first = passes
        .iter()
        .position(|pass| pass.wait == Some(Duration::from_mins(10)))
        .expect("ten minutes");
    let (met, then) = (&passes[first], &passes[first + 1]);
    assert_eq!(met.retry.as_ref().map(|retry| &*retry.policy.0), Some(&*fixed));
    assert_eq!(
        (&then.causes[..], then.attempt),
        (&[Cause::Due][..], met.attempt + 1)
    );
    assert!(then.started.boot < met.ended.boot + Duration::from_mins(10));
    let shown = ran.explained("Machine", "shop/web-8");
    for line in ["retry   mcm-retry → 10m", "retry   backoff-retry → "] {
        assert!(shown.contains(line), "{shown}");
    }

    for pass in ran.passes("Machine", "stranger/web-1") {
        assert_eq!(pass.outcome, Outcome::Denied);
        assert!(calls(&pass).is_empty() && !lifecycle_ran(&pass) && pass.retry.is_none());
    }
}
