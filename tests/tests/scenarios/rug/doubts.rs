//! The additions of section (i): boots and attaches whose answer was lost, and hosts that crash.

use polity_core::record::PassRecord;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    rug_x15_a_crash_between_boot_and_answer_makes_no_second_vm,
    rug_x13_a_boot_in_doubt_is_waited_for_while_the_cloud_cannot_say,
    rug_x13_a_deletion_waits_for_the_boot_in_doubt,
    rug_x16_a_boot_that_never_arrived_is_made_once_that_is_certain,
    rug_x14_an_attach_that_was_cut_is_looked_for_before_anything_is_rebuilt,
    rug_x14_an_attach_that_a_crash_cut_is_looked_for_before_anything_is_rebuilt,
    a_restart_goes_on_where_the_machine_was,
    a_router_whose_status_was_lost_takes_its_vm_over,
}

async fn rug_x15_a_crash_between_boot_and_answer_makes_no_second_vm(on: &dyn Backend) {
    let slow = json!({"operation": "router.boot", "nth": 1, "then": {"answerAfter": "4s"}});
    let mut story = planted(on, json!({"faults": [slow]})).await;
    let first = story.until_vms(|vms| vms.len() == 1).await;
    story.crash().await;
    let router = until_active(&story).await;
    story.settles().await;
    let told = told(&story, 0);
    assert_eq!(told[..3], ["01 at once", "03 at once", "X15 at once"]);
    assert_eq!(told.last().map(String::as_str), Some("21 settled"));
    assert_eq!((made(&story), &story.site.vms()[0].id), (1, &first[0].id));
    assert_eq!(router["status"]["instance"], *first[0].id);
    assert_eq!(router["status"]["bootAttempts"], 1);
}

async fn rug_x13_a_boot_in_doubt_is_waited_for_while_the_cloud_cannot_say(on: &dyn Backend) {
    let faults = json!([
        {"operation": "router.boot", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "count": 3, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = planted(on, json!({"faults": faults})).await;
    let doubted = story
        .until("it is in doubt", |router| reason(router) == "BootInDoubt")
        .await;
    assert_eq!(doubted["status"]["machineState"], "CREATE_VM");
    assert_eq!(doubted["status"]["pending"].as_array().map(Vec::len), Some(1));
    until_active(&story).await;
    assert_eq!(
        told(&story, 0),
        [
            "01 at once",
            "03 at once",
            "retry",
            "X13 after 1 s",
            "X15 at once",
            "17 at once",
            "after 1 s",
            "21 settled",
        ]
    );
    assert_eq!(
        (times(&story, "X13"), acts(&story, "router.boot"), made(&story)),
        (3, 1, 1)
    );
}

async fn rug_x13_a_deletion_waits_for_the_boot_in_doubt(on: &dyn Backend) {
    let faults = json!([
        {"operation": "router.boot", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "until": "1m", "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = planted(on, json!({"faults": faults})).await;
    let doubted = |passes: &[PassRecord]| passes.last().is_some_and(|pass| tell(pass) == "X13 after 1 s");
    story.until_passes(doubted).await;
    let done = story.passes().len();
    story.delete().await;
    until_second(&story, 59).await;
    assert_eq!(told(&story, done), ["X13 after 1 s"]);
    assert_eq!(story.site.vms().len(), 1);
    until_gone(&story).await;
    // By now it answers, and it is taken down in the end.
    assert_eq!(
        told(&story, done),
        [
            "X13 after 1 s",
            "X15 at once",
            "17 at once",
            "after 1 s",
            "21 at once",
            "06 at once",
            "X10 after 1 s",
            "31 at once",
            "X12 settled",
        ]
    );
    assert!(story.site.vms().is_empty() && taken(&story).is_empty());
    assert_eq!(made(&story), 1);
}

async fn rug_x16_a_boot_that_never_arrived_is_made_once_that_is_certain(on: &dyn Backend) {
    let lost = json!({"operation": "router.boot", "nth": 1, "then": "loseRequest"});
    let story = planted(on, json!({"faults": [lost]})).await;
    let router = until_active(&story).await;
    let waits = [
        "01 at once",
        "03 at once",
        "retry",
        "X13 after 1 s",
        "X16 after 1 s",
    ];
    assert_eq!(told(&story, 0), [&waits[..], &COMES_UP].concat());
    assert_eq!((acts(&story, "router.boot"), made(&story)), (2, 1));
    assert_eq!(router["status"]["bootAttempts"], 2);
}

/// Nova gives the port to the server first (`device_id`), and answers when the hypervisor has plugged it in:
/// `_attach_interface` of `nova/compute/manager.py`.
async fn with_slow_attaches(on: &dyn Backend) -> Story {
    let plug = json!({"min": "40s", "max": "40s"});
    let late = json!({"operation": "port.attach", "then": {"answerAfter": "40s"}});
    active(on, json!({"routers": {"plug": plug}, "faults": [late]})).await
}

/// The VM ran on, and got its second port.
async fn was_plugged_in(story: &Story, done: usize) {
    let router = active_again(story, done, "21").await;
    assert_eq!((times(story, "25"), times(story, "24"), made(story)), (0, 1, 1));
    assert_eq!(vm(story, "r-1").macs, [mac(1), mac(2)]);
    assert_eq!(router["status"]["ports"], json!([mac(1), mac(2)]));
}

async fn rug_x14_an_attach_that_was_cut_is_looked_for_before_anything_is_rebuilt(on: &dyn Backend) {
    let story = with_slow_attaches(on).await;
    let done = story.passes().len();
    ports(&story, &[1, 2]).await;
    was_plugged_in(&story, done).await;
    assert_eq!(acts(&story, "port.attach"), 1, "it is not sent again");
}

async fn rug_x14_an_attach_that_a_crash_cut_is_looked_for_before_anything_is_rebuilt(on: &dyn Backend) {
    let mut story = with_slow_attaches(on).await;
    let done = story.passes().len();
    ports(&story, &[1, 2]).await;
    story.until_vms(|_| taken(&story).len() == 2).await;
    story.crash().await;
    was_plugged_in(&story, done).await;
}

async fn a_restart_goes_on_where_the_machine_was(on: &dyn Backend) {
    let mut story = active(on, json!({})).await;
    let done = story.passes().len();
    ports(&story, &[1, 2]).await;
    // Half plugged: the cloud knows the port, the VM does not show it yet.
    let attached = |passes: &[PassRecord]| {
        passes[done..]
            .iter()
            .filter(|pass| tell(pass) == "X14 after 1 s")
            .count()
            == 2
    };
    story.until_passes(attached).await;
    story.crash().await;
    let resumed = story.passes().len();
    active_again(&story, done, "24").await;
    let told = told(&story, resumed);
    assert_eq!(told[told.len() - 3..], ["24 at once", "after 1 s", "21 settled"]);
    assert_eq!(acts(&story, "port.attach"), 1);
    assert_eq!((made(&story), vm(&story, "r-1").macs), (1, vec![mac(1), mac(2)]));
}

async fn a_router_whose_status_was_lost_takes_its_vm_over(on: &dyn Backend) {
    let mut story = active(on, json!({})).await;
    let (done, before) = (story.passes().len(), story.object().await);
    story
        .without_a_host(async |story| story.edit_status(Value::Null).await)
        .await;
    let router = active_again(&story, done, "21").await;
    assert_eq!(
        told(&story, done),
        [
            "01 at once",
            "02 at once",
            "09 at once",
            "after 1 s",
            "21 settled"
        ]
    );
    assert_eq!(router["status"]["instance"], before["status"]["instance"]);
    assert_eq!(made(&story), 1);
}
