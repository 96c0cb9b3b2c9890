//! Letters that the machine does not leave behind by itself, as somebody wrote them into a status or another version of
//! the policy left them: each of them has a way out.

use std::path::Path;

use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios;

scenarios! {
    rug_x03_a_vm_that_needs_other_networks_is_looked_at_and_configured,
    rug_x06_a_poll_configures_a_vm_that_is_only_up,
    rug_x07_a_new_vm_that_needs_other_networks_is_replugged,
    rug_x11_there_is_a_vm_that_needs_other_networks,
}

/// What becomes of a router in whose status somebody wrote this.
async fn written(recording: Option<&Path>, status: Value) -> (Story, Vec<String>) {
    let story = active(recording, json!({})).await;
    let done = story.passes().len();
    story.edit_status(status).await;
    active_again(&story, done, "21").await;
    assert_eq!(made(&story), 1);
    let told = told(&story, done);
    (story, told)
}

async fn rug_x03_a_vm_that_needs_other_networks_is_looked_at_and_configured(recording: Option<&Path>) {
    let (_, told) = written(recording, json!({"vm": "H", "queue": ["U"]})).await;
    assert_eq!(told, ["X03 at once", "X05 at once", "after 1 s", "21 settled"]);
}

async fn rug_x06_a_poll_configures_a_vm_that_is_only_up(recording: Option<&Path>) {
    let (story, told) = written(recording, json!({"vm": "U", "queue": ["P"]})).await;
    assert_eq!(told, ["02 at once", "X06 at once", "after 1 s", "21 settled"]);
    assert_eq!(acts(&story, "config.push"), 2);
}

async fn rug_x07_a_new_vm_that_needs_other_networks_is_replugged(recording: Option<&Path>) {
    let status = json!({"machineState": "CHECK_BOOT", "action": "U", "vm": "H"});
    let (_, told) = written(recording, status).await;
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

async fn rug_x11_there_is_a_vm_that_needs_other_networks(recording: Option<&Path>) {
    let status = json!({"machineState": "CREATE_VM", "action": "U", "vm": "H"});
    let (story, told) = written(recording, status).await;
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
