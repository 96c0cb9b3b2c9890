//! Scenario (g) 17: while the API server of the cluster cannot be reached, no machine is given up.

use std::time::Duration;

use polity_core::time::millis;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::mcm as specified;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_17_while_frozen_live_machines_rest_and_deletions_go_on,
    scenario_17_after_the_thaw_a_machine_that_was_unknown_has_its_whole_time_again,
    scenario_17_a_short_silence_freezes_nobody,
}

/// The passes of the MachineSafety, as edges: `F02 F03`.
fn probes(story: &Story) -> Vec<String> {
    told_of(story, "default")
}

async fn safety(story: &Story) -> Value {
    let safety = reference(mcm::MCM, "MachineSafety", None, "default");
    story.site.get(&safety).await.unwrap_or_default()
}

async fn until_frozen(story: &Story, frozen: bool) {
    for _ in 0..3_600 {
        if safety(story).await["status"]["frozen"] == frozen {
            return;
        }
        story.sleep(Duration::from_secs(1)).await;
    }
    panic!("frozen is never {frozen}: {:?}", probes(story));
}

/// When the API server goes away in scenario 17; milliseconds.
const DOWN: u64 = 600_000;

async fn scenario_17_while_frozen_live_machines_rest_and_deletions_go_on(on: &dyn Backend) {
    let down = json!([{"from": "10m", "until": "30m"}]);
    let story = running(on, json!({"apiServerDown": down}), json!({})).await;
    another(&story, "m-2").await;
    story.create(&mcm::safety()).await;
    let done = story.passes().len();
    until_frozen(&story, true).await;
    let frozen = story.site.clock.now().boot.0;
    assert!(
        (DOWN + specified::FREEZE..DOWN + specified::FREEZE + 70_000).contains(&frozen),
        "{frozen}"
    );
    let probes = probes(&story);
    let up = probes.iter().take_while(|probe| *probe == "F01 settled").count();
    assert!(up > 5, "{probes:?}");
    let soon = probes[up..]
        .iter()
        .take_while(|probe| *probe == "F02 F03 after 6 s")
        .count();
    // Half a minute is not too long.
    assert_eq!(soon, 6, "{probes:?}");
    assert_eq!(probes[up + soon], "F02 F04 after 6 s");

    let other = reference(mcm::MCM, "Machine", Some("default"), "m-2");
    let gone = told_of(&story, "m-2").len();
    story.site.delete(&other, None).await.expect("it is there");
    while story.site.get(&other).await.is_some() {
        story.sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        told_of(&story, "m-2")[gone..].last().map(String::as_str),
        Some("X40 settled")
    );
    assert_eq!(safety(&story).await["status"]["frozen"], true);
    assert_eq!(story.site.vms().len(), 1);

    until_second(&story, 30 * 60).await;
    let rests = told(&story).split_off(done);
    let rests: Vec<&String> = rests
        .iter()
        .skip_while(|pass| *pass != "R25x after 600 s")
        .collect();
    assert!(
        rests.len() > 1 && rests.iter().all(|pass| *pass == "R25x after 600 s"),
        "{rests:?}"
    );
    until_frozen(&story, false).await;
    story.settles().await;
    // Asked as often while it is frozen, and the first answer thaws.
    let while_down = told_of(&story, "default").split_off(up + soon + 1);
    let silent = while_down
        .iter()
        .take_while(|probe| *probe == "F02 F05 after 6 s")
        .count();
    assert!(silent > 150, "{while_down:?}");
    assert_eq!(while_down[silent], "F01 F06 settled");
    let thawed = told(&story).pop();
    assert_eq!(thawed.as_deref(), Some(FINE));
    assert_eq!(made(&story), 2);
}

async fn scenario_17_after_the_thaw_a_machine_that_was_unknown_has_its_whole_time_again(on: &dyn Backend) {
    let overrides = json!({
        "apiServerDown": [{"from": "13m", "until": "16m"}],
        "events": [{"vm": "m-1", "at": "5m", "does": "fallSilent"}],
    });
    let story = running(on, overrides, json!({})).await;
    story.create(&mcm::safety()).await;
    until_frozen(&story, true).await;
    let done = story.passes().len();
    until_frozen(&story, false).await;
    let thawed = story.site.clock.now().boot;
    story.until_is(PHASE, "Failed").await;
    let told = told(&story).split_off(done);
    let told: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .skip_while(|pass| *pass == "R25x after 600 s")
        .collect();
    assert_eq!(told[..2], ["R26x Short", "R13 H04 H12 Short"]);
    assert_eq!(told.last(), Some(&"R13 H08 Short"));
    let failed = story.passes().pop().expect("a pass").started.boot;
    let silent = millis(failed - thawed);
    assert!(silent > specified::HEALTH, "{silent}");
}

async fn scenario_17_a_short_silence_freezes_nobody(on: &dyn Backend) {
    // A probe a minute: one of them hears nothing, and not for long.
    let down = json!([{"from": "620s", "until": "650s"}]);
    let story = running(on, json!({"apiServerDown": down}), json!({})).await;
    story.create(&mcm::safety()).await;
    until_second(&story, 15 * 60).await;
    let probes = probes(&story);
    assert!(
        probes.iter().any(|probe| probe == "F02 F03 after 6 s"),
        "{probes:?}"
    );
    assert!(probes.iter().all(|probe| !probe.contains("F04")), "{probes:?}");
    assert!(told(&story).iter().all(|pass| !pass.contains("R25x")));
    assert!(safety(&story).await["status"]["downSince"].is_null());
}
