//! Values of `status` (letters) that the policy itself does not leave behind: a person or another version of the policy
//! wrote them. The router gets out of each of them.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    rug_x07_a_new_vm_that_needs_other_networks_is_replugged,
    rug_x11_there_is_a_vm_that_needs_other_networks,
    rug_x10_a_router_does_not_end_before_its_vm_is_gone,
    erratum_04_what_comes_while_an_error_is_cleared_counts,
    a_vm_that_was_given_up_stays_so_until_somebody_asks;
    short:
    rug_x03_a_vm_that_needs_other_networks_is_looked_at_and_configured,
    rug_x06_a_poll_configures_a_vm_that_is_only_up,
}

/// What becomes of a router in whose status somebody wrote this.
async fn written(on: &dyn Backend, status: Value) -> (Story, Vec<String>) {
    let story = active(on, json!({})).await;
    story.between_passes().await;
    let done = story.passes().len();
    story.edit_status(status).await;
    active_again(&story, done, "21").await;
    story.between_passes().await;
    assert_eq!(made(&story), 1);
    let told = told(&story, done);
    (story, told)
}

async fn rug_x03_a_vm_that_needs_other_networks_is_looked_at_and_configured(on: &dyn Backend) {
    let (_, told) = written(on, json!({"vm": "H", "queue": ["U"]})).await;
    assert_eq!(told, ["X03 at once", "X05 at once", "after 1 s", "21 settled"]);
}

async fn rug_x06_a_poll_configures_a_vm_that_is_only_up(on: &dyn Backend) {
    let (story, told) = written(on, json!({"vm": "U", "queue": ["P"]})).await;
    assert_eq!(told, ["02 at once", "X06 at once", "after 1 s", "21 settled"]);
    assert_eq!(acts(&story, "config.push"), 2);
}

async fn rug_x07_a_new_vm_that_needs_other_networks_is_replugged(on: &dyn Backend) {
    let status = json!({"machineState": "CHECK_BOOT", "action": "U", "vm": "H"});
    let (_, told) = written(on, status).await;
    assert_eq!(
        told,
        [
            "X07 at once",
            "X14 after 1 s",
            "24 at once",
            "after 1 s",
            "21 settled"
        ]
    );
}

async fn rug_x11_there_is_a_vm_that_needs_other_networks(on: &dyn Backend) {
    let status = json!({"machineState": "CREATE_VM", "action": "U", "vm": "H"});
    let (story, told) = written(on, status).await;
    assert_eq!(
        told,
        [
            "X11 at once",
            "X07 at once",
            "X14 after 1 s",
            "24 at once",
            "after 1 s",
            "21 settled",
        ]
    );
    assert_eq!(acts(&story, "router.boot"), 1);
}

/// Literally, `vm:G` and `vm>D` lead to EXIT although the VM is there: nobody would ever find it again.
async fn rug_x10_a_router_does_not_end_before_its_vm_is_gone(on: &dyn Backend) {
    for letter in ["G", "D"] {
        let mut story = active(on, json!({"routers": {"stop": {"min": "5s", "max": "5s"}}})).await;
        let done = story.passes().len();
        let status = json!({"machineState": "STOP_VM", "action": "D", "vm": letter});
        story
            .without_a_host(async |story| {
                story.edit_status(status).await;
                story.delete().await;
            })
            .await;
        until_gone(&story).await;
        assert_eq!(told(&story, done), ["X10 after 1 s", "31 at once", "X12 settled"]);
        assert!(times(&story, "X10") >= 5, "{:?}", story.edges());
        assert!(story.site.vms().is_empty() && taken(&story).is_empty());
    }
}

/// The code goes on where it was when the error is cleared; the drawing looks at the queue once more.
async fn erratum_04_what_comes_while_an_error_is_cleared_counts(on: &dyn Backend) {
    let mut story = active(on, json!({})).await;
    let done = story.passes().len();
    let status = json!({"machineState": "CLEAR_ERROR", "action": "U", "vm": "E", "queue": ["U"]});
    story
        .without_a_host(async |story| {
            story.edit_status(status).await;
            request(story, "rebuild", "1").await;
        })
        .await;
    active_again(&story, done, "29").await;
    let rebuilt = ["27 at once", "05 at once", "28 after 1 s", "29 at once"];
    assert_eq!(told(&story, done), [&rebuilt[..], &COMES_UP].concat());
    assert_eq!(made(&story), 2);
}

/// Literally, the action stays as it was when a VM is given up: a poll that waits in the queue would be taken for that
/// action after the cool-down, and the boots would begin anew, for ever.
async fn a_vm_that_was_given_up_stays_so_until_somebody_asks(on: &dyn Backend) {
    let fails = json!({"operation": "router.boot", "then": {"fail": {"code": "internal"}}});
    let mut story = begin(on, json!({"faults": [fails]}), json!({})).await;
    story.settles().await;
    let status = json!({"machineState": "CREATE_VM", "action": "C", "queue": ["P"], "observedGeneration": 1});
    story
        .without_a_host(async |story| {
            story.create(&router()).await;
            story.edit_status(status).await;
        })
        .await;
    story.until_is("status.vm", "E").await;
    story.sleep(Duration::from_secs(3_600)).await;
    assert_eq!(
        told(&story, 0),
        ["16 retry", "15 at once", "X01 settled", "settled"]
    );
    assert_eq!(story.acts(), ["router.boot"; 5]);
    assert_eq!(story.object().await["status"]["vm"], "E");
}
