//! Scenarios (g) 9, 10, 15 and 16: routers that are deleted.

use std::time::Duration;

use polity_core::record::PassRecord;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::rug;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_09_a_deletion_ends_everything,
    scenario_10_a_router_that_was_removed_from_the_network_service_ends,
    rug_14_a_router_that_is_removed_before_another_vm_is_made_gets_none,
    rug_x09_a_router_that_is_removed_during_its_rebuild_ends,
    scenario_15_a_deletion_while_the_vm_boots_does_not_wait_for_it,
    scenario_16_a_cloud_that_cannot_delete_is_asked_every_second,
    a_deletion_does_not_wait_for_the_cooldown,
}

/// The VM goes, and the router with it.
const ENDS: [&str; 3] = ["X10 after 1 s", "31 at once", "X12 settled"];

fn nothing_is_left(story: &Story) {
    assert!(story.site.vms().is_empty() && taken(story).is_empty());
}

async fn scenario_09_a_deletion_ends_everything(on: &dyn Backend) {
    let mut story = active(on, json!({})).await;
    let done = story.passes().len();
    story
        .without_a_host(async |story| {
            update(story, "large").await;
            story.delete().await;
        })
        .await;
    until_gone(&story).await;
    story.settles().await;
    assert_eq!(told(&story, done), [&["06 at once"][..], &ENDS].concat());
    let last = story.passes().pop().expect("a pass");
    assert_eq!(object(&last)["status"]["queue"], json!(["U", "D"]));
    nothing_is_left(&story);
    // Nobody hears of it any more.
    let all = story.passes().len();
    story.sleep(Duration::from_secs(600)).await;
    assert_eq!(story.passes().len(), all);
}

fn object(pass: &PassRecord) -> Value {
    serde_json::from_str(pass.object.as_deref().expect("an object")).expect("JSON")
}

async fn scenario_10_a_router_that_was_removed_from_the_network_service_ends(on: &dyn Backend) {
    let withdrawn = json!({"vm": "r-1", "at": "100s", "does": "withdraw"});
    let story = active_at(on, json!({"events": [withdrawn]}), 99).await;
    let done = story.passes().len();
    let router = story
        .until("nothing holds it", |router| {
            router["metadata"]["finalizers"]
                .as_array()
                .is_none_or(Vec::is_empty)
        })
        .await;
    let ends = ["02 at once", "12 at once"];
    assert_eq!(told(&story, done), [&ends[..], &ENDS].concat());
    let status = &router["status"];
    assert_eq!(
        (&status["machineState"], &status["action"], &status["vm"]),
        (&json!("EXIT"), &json!("D"), &json!("G"))
    );
    assert_eq!(status["neutronStatus"], "DOWN");
    nothing_is_left(&story);

    // Whatever comes now: the machine has ended.
    let done = story.passes().len();
    update(&story, "large").await;
    request(&story, "rebuild", "1").await;
    story.sleep(Duration::from_secs(600)).await;
    assert_eq!(told(&story, done), ["X12 settled"]);
    assert_eq!(calls(&story.passes()[done..]), Vec::<String>::new());
    assert_eq!(story.object().await["status"], *status);
    story.delete().await;
    assert_eq!(story.object().await, Value::Null);
}

async fn rug_14_a_router_that_is_removed_before_another_vm_is_made_gets_none(on: &dyn Backend) {
    // The VM hangs and has to go first; meanwhile the network service forgets the router.
    let overrides = json!({"events": [
        {"vm": "r-1", "at": "30s", "does": "hang"}, {"vm": "r-1", "at": "41500ms", "does": "withdraw"},
    ]});
    let story = active_at(on, overrides, 40).await;
    let done = story.passes().len();
    update(&story, "large").await;
    story.until_is("status.machineState", "EXIT").await;
    story.settles().await;
    let finds = ["02 at once", "08 at once", "16 after 1 s", "14 at once"];
    assert_eq!(told(&story, done), [&finds[..], &ENDS].concat());
    assert_eq!(made(&story), 1);
    nothing_is_left(&story);
}

async fn rug_x09_a_router_that_is_removed_during_its_rebuild_ends(on: &dyn Backend) {
    let withdrawn = json!({"vm": "r-1", "at": "31500ms", "does": "withdraw"});
    let story = active_at(on, json!({"events": [withdrawn]}), 30).await;
    let done = story.passes().len();
    request(&story, "rebuild", "1").await;
    story.until_is("status.machineState", "EXIT").await;
    story.settles().await;
    assert_eq!(
        told(&story, done),
        ["05 at once", "28 after 1 s", "X09 at once", "X12 settled"]
    );
    assert_eq!(made(&story), 1);
    nothing_is_left(&story);
}

async fn scenario_15_a_deletion_while_the_vm_boots_does_not_wait_for_it(on: &dyn Backend) {
    let never = json!({"operation": "router.boot", "then": "neverBoots"});
    let story = planted(on, json!({"faults": [never]})).await;
    let boots = |passes: &[PassRecord]| passes.last().is_some_and(|pass| tell(pass) == "18 after 1 s");
    story.until_passes(boots).await;
    assert_eq!(story.object().await["status"]["queue"], json!(["C"]), "put back");
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(told(&story, done), [&["06 at once"][..], &ENDS].concat());
    let begin = story.passes()[done].started.boot;
    assert!(story.site.clock.now().boot - begin < Duration::from_secs(6));
    assert_eq!(made(&story), 1);
    nothing_is_left(&story);
}

async fn scenario_16_a_cloud_that_cannot_delete_is_asked_every_second(on: &dyn Backend) {
    let fails = json!({"operation": "router.delete", "until": "5m", "then": {"fail": {"code": "internal"}}});
    let story = active(on, json!({"faults": [fails]})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    story.delete().await;
    until_second(&story, 299).await;
    assert_eq!(told(&story, done), ["06 at once", "X10 retry"]);
    let router = story.object().await;
    assert_eq!(reason(&router), "DeleteFailed");
    let pauses = pauses(&story.passes()[done + 1..]);
    assert!(pauses.len() > 250, "{}", pauses.len());
    assert!(
        pauses
            .iter()
            .all(|pause| (rug::RETRY..rug::RETRY + 200).contains(pause)),
        "{pauses:?}"
    );
    let acts = story.acts().split_off(acted);
    assert_eq!(acts[0], "router.delete-ports");
    assert!(acts[1..].iter().all(|act| act == "router.delete"), "{acts:?}");
    assert_eq!(story.site.vms().len(), 1);

    until_gone(&story).await;
    assert_eq!(
        told(&story, done),
        [&["06 at once", "X10 retry"][..], &ENDS].concat()
    );
    nothing_is_left(&story);
}

async fn a_deletion_does_not_wait_for_the_cooldown(on: &dyn Backend) {
    let story = given_up(on).await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(
        told(&story, done),
        [
            "07 at once",
            "27 at once",
            "06 at once",
            "31 at once",
            "X12 settled"
        ]
    );
    let passes = story.passes();
    assert!(passes[passes.len() - 1].started.boot - passes[done - 1].started.boot < Duration::from_secs(2));
    nothing_is_left(&story);
}
