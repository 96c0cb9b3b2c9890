//! Scenarios (g) 9, 10 and 13 to 15: machines that are deleted.

use std::time::Duration;

use polity_core::time::Boot;
use polity_tests::host_fixture::condition_of;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::mcm as specified;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_09_an_orderly_deletion_is_five_requeues,
    scenario_09_a_deletion_goes_on_after_a_crash_in_any_step,
    scenario_10_a_vm_that_is_gone_needs_no_drain,
    scenario_10_where_the_binding_says_so_the_driver_may_clean_up_after_a_vm_that_is_gone,
    scenario_13_a_driver_without_credentials_keeps_the_machine_until_they_are_right,
    scenario_14_an_answer_that_does_not_decode_starts_the_deletion_again,
    scenario_15_a_deleting_machine_without_its_finalizer_is_left_alone,
    mcm_d21_a_driver_that_is_away_is_asked_again_soon,
    mcm_d20_a_driver_that_cannot_tell_is_no_reason_not_to_drain,
    mcm_x42_a_vm_that_is_not_on_record_is_deleted_before_its_machine_goes,
    mcm_d29_a_machine_that_is_deleted_before_the_cloud_shows_its_vm_leaves_none,
    mcm_d29_a_vm_that_is_gone_is_believed_to_be_gone_after_ten_minutes,
    mcm_d29_the_wait_goes_on_after_a_crash,
    mcm_x25_a_new_vm_that_is_not_found_is_deleted_once_it_is,
    mcm_x33_a_new_vm_that_an_earlier_version_believed_to_be_gone_is_deleted,
    mcm_x43_a_machine_is_kept_while_its_vms_cannot_be_listed,
    mcm_x22_a_driver_that_is_away_for_a_moment_deletes_soon,
    mcm_x32_a_node_that_is_not_the_machines_own_is_left_alone,
    erratum_08_the_description_is_for_people;
    short:
    mcm_x02_a_machine_that_is_not_set_up_yet_can_go,
}

/// From the deletion on, where nothing goes wrong.
const ORDERLY: [&str; 6] = [
    "D05 D06 D07 Short",
    "D09 D12 D13 D14 D24 D26 Short",
    "D10 X13 Short",
    "X20 Short",
    "X30 Short",
    "X40 settled",
];

async fn scenario_09_an_orderly_deletion_is_five_requeues(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    story.delete().await;
    until_gone(&story).await;
    story.settles().await;
    assert_eq!(told(&story)[done..], ORDERLY);
    let pauses = pauses(&story.passes()[done..]);
    assert!(
        pauses
            .iter()
            .all(|pause| (specified::SHORT..specified::SHORT + 500).contains(pause)),
        "{pauses:?}"
    );
    assert_eq!(story.acts()[acted..], ["machine.delete"]);
    assert_eq!(node(&story).await, Value::Null);
    assert!(story.site.vms().is_empty());
}

async fn scenario_09_a_deletion_goes_on_after_a_crash_in_any_step(on: &dyn Backend) {
    let mut story = running(on, json!({}), json!({})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    story.delete().await;
    for step in 1..ORDERLY.len() {
        story.until_passes(|passes| passes.len() == done + step).await;
        story.crash().await;
    }
    until_gone(&story).await;
    assert_eq!(told(&story)[done..], ORDERLY);
    assert_eq!(story.acts()[acted..], ["machine.delete"]);
    assert!(story.site.vms().is_empty());
}

/// A machine whose VM somebody removed a moment ago, and which is being deleted.
async fn without_its_vm(on: &dyn Backend, configuration: Value) -> (Story, usize) {
    let vanishes = json!({"vm": "m-1", "at": "15m", "does": "vanish"});
    let story = running(on, json!({"events": [vanishes]}), configuration).await;
    story.until_vms(<[_]>::is_empty).await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    story.settles().await;
    (story, done)
}

async fn scenario_10_a_vm_that_is_gone_needs_no_drain(on: &dyn Backend) {
    let (story, done) = without_its_vm(on, json!({})).await;
    assert_eq!(
        told(&story)[done..],
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 D22 D25 D26 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert_eq!(story.acts(), ["machine.create", "revoke"]);
    assert_eq!(node(&story).await, Value::Null);
}

async fn scenario_10_where_the_binding_says_so_the_driver_may_clean_up_after_a_vm_that_is_gone(
    on: &dyn Backend,
) {
    let (story, done) = without_its_vm(on, json!({"notFoundStillDeletes": true})).await;
    assert_eq!(
        told(&story)[done..],
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 X03 D24 D26 Short",
            "D10 X13 Short",
            "X21 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert_eq!(story.acts(), ["machine.create", "revoke", "machine.delete"]);
}

async fn scenario_13_a_driver_without_credentials_keeps_the_machine_until_they_are_right(on: &dyn Backend) {
    let fails =
        json!({"operation": "machine.delete", "count": 3, "then": {"fail": {"code": "unauthenticated"}}});
    let story = running(on, json!({"faults": [fails]}), json!({})).await;
    let done = story.passes().len();
    story.delete().await;
    story
        .until_passes(|passes| passes.last().is_some_and(|last| tell(last) == "X23 Long"))
        .await;
    for _ in 0..2 {
        let status = &story.object().await["status"];
        assert_eq!(status["currentStatus"]["phase"], "Terminating");
        assert_eq!(status["lastOperation"]["state"], "Failed");
        assert_eq!(status["lastOperation"]["errorCode"], "unauthenticated");
        assert_eq!(story.site.vms().len(), 1);
        story.sleep(Duration::from_secs(600)).await;
    }
    until_gone(&story).await;
    let told = told(&story);
    assert_eq!(told[done + 3..done + 6], ["X23 Long", "X23 Long", "X23 Long"]);
    assert_eq!(told[done + 6..], ["X20 Short", "X30 Short", "X40 settled"]);
    let pauses = pauses(&story.passes()[done + 3..done + 7]);
    assert!(pauses.iter().all(|pause| *pause >= 600_000), "{pauses:?}");
}

async fn scenario_14_an_answer_that_does_not_decode_starts_the_deletion_again(on: &dyn Backend) {
    let odd =
        json!({"operation": "machine.status", "from": "5m", "nth": 1, "then": {"answerWith": {"id": 5}}});
    let story = running(on, json!({"faults": [odd]}), json!({})).await;
    until_second(&story, 300).await;
    let done = story.passes().len();
    story.delete().await;
    let stuck = story
        .until_is("status.lastOperation.nextOp", "FailedDecode")
        .await;
    assert_eq!(stuck["status"]["lastOperation"]["state"], "Processing");
    until_gone(&story).await;
    let told = told(&story).split_off(done);
    assert_eq!(
        told[..3],
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D18 D19 D27 Long",
            "X50 Short"
        ]
    );
    assert_eq!(told[3..], ORDERLY[1..]);
    assert!(pauses(&story.passes()[done..])[1] >= specified::LONG);
}

async fn scenario_15_a_deleting_machine_without_its_finalizer_is_left_alone(on: &dyn Backend) {
    let mut story = running(on, json!({}), json!({})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    story
        .without_a_host(async |story| {
            story
                .edit(json!({"metadata": {"finalizers": ["example.com/theirs"]}}))
                .await;
            story.delete().await;
        })
        .await;
    story.until_passes(|passes| passes.len() > done).await;
    let before = story.object().await;
    let told_of = condition_of(&before, "Reconciled").expect("that it is left alone");
    assert_eq!(told_of["reason"], "FailedPrecondition");
    story.until_passes(|passes| passes.len() > done + 1).await;
    assert_eq!(told(&story)[done..], ["D02 D03 Long", "D02 D03 Long"]);
    assert_eq!(story.object().await, before);
    assert_eq!(story.acts().len(), acted);
    assert_eq!(story.site.vms().len(), 1);
}

async fn mcm_d21_a_driver_that_is_away_is_asked_again_soon(on: &dyn Backend) {
    let away = |code: &str| {
        let fail = json!({"fail": {"code": code}});
        json!({"operation": "machine.status", "from": "5m", "count": 1, "then": fail})
    };
    let faults = [
        "unknown",
        "deadline-exceeded",
        "aborted",
        "unavailable",
        "internal",
    ]
    .map(away);
    let story = running(on, json!({"faults": faults}), json!({})).await;
    until_second(&story, 300).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(
        told[1..5],
        ["D09 D12 D13 D15 D16 D17 D21 D23 D26 Short"; 4],
        "{told:?}"
    );
    assert_eq!(told[5], "D09 D12 D13 D15 D16 D17 X01 Medium");
    assert_eq!(told[6..], ORDERLY[1..]);
}

async fn mcm_d20_a_driver_that_cannot_tell_is_no_reason_not_to_drain(on: &dyn Backend) {
    let cannot = json!({"fail": {"code": "unimplemented"}});
    let fault = json!({"operation": "machine.status", "from": "5m", "then": cannot});
    let story = running(on, json!({"faults": [fault]}), json!({})).await;
    until_second(&story, 300).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(told[1], "D09 D12 D13 D15 D16 D17 D20 D24 D26 Short");
    assert_eq!(told[2..], ORDERLY[2..]);
}

/// Deletes the machine, waits until it is gone, and tells the passes since then.
async fn told_of_its_end(story: &Story) -> Vec<String> {
    story.between_passes().await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(story).await;
    story.between_passes().await;
    told(story).split_off(done)
}

async fn mcm_x02_a_machine_that_is_not_set_up_yet_can_go(on: &dyn Backend) {
    let machines = json!({"boot": {"min": "5m", "max": "5m"}, "needsInitialization": true});
    let fails = json!({"operation": "machine.initialize", "then": {"fail": {"code": "permission-denied"}}});
    let story = planted(on, json!({"machines": machines, "faults": [fails]}), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    let told = told_of_its_end(&story).await;
    assert_eq!(
        told,
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 X02 D24 D26 Short",
            "D10 X10 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
}

async fn mcm_x42_a_vm_that_is_not_on_record_is_deleted_before_its_machine_goes(on: &dyn Backend) {
    // The driver does not find the VM, so the drawing goes on with the node.
    let gone = json!({"operation": "machine.status", "from": "15m", "then": {"fail": {"code": "not-found"}}});
    let story = running(on, json!({"faults": [gone]}), json!({})).await;
    until_second(&story, 900).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(
        told,
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 D22 D25 D26 Short",
            "X30 Short",
            "X42 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert!(story.site.vms().is_empty());
}

/// A cloud that shows no machine before this time after its creation.
fn shows_after(time: &str) -> Value {
    json!({"faults": [{"operation": "machine.create", "then": {"showsAfter": time}}]})
}

/// The passes of a machine that is deleted before the cloud shows its VM.
const UNSEEN: [&str; 2] = ["D05 D06 D07 Short", "D09 D12 D13 D15 D16 D17 D29 Short"];

async fn mcm_d29_a_machine_that_is_deleted_before_the_cloud_shows_its_vm_leaves_none(on: &dyn Backend) {
    let story = planted(on, shows_after("2m"), json!({})).await;
    story.until("it has a VM", has_vm).await;
    let told = once(told_of_its_end(&story).await);
    assert_eq!(told[..2], UNSEEN);
    assert_eq!(told[2..], ORDERLY[1..]);
    assert!(story.site.vms().is_empty());
    // After the cloud has accepted the deletion nothing is waited for.
    assert!(story.site.clock.now().boot < Boot(180_000));
}

async fn mcm_d29_a_vm_that_is_gone_is_believed_to_be_gone_after_ten_minutes(on: &dyn Backend) {
    let vanishes = json!({"vm": "m-1", "at": "5m", "does": "vanish"});
    let story = running(on, json!({"events": [vanishes]}), json!({})).await;
    story.until_vms(<[_]>::is_empty).await;
    let begun = story.passes().len();
    story.delete().await;
    let waits = story.until("it says so", |machine| {
        machine["status"]["lastOperation"]["errorCode"] == "not-found"
    });
    let said = &waits.await["status"]["lastOperation"];
    assert_eq!(said["nextOp"], "GetVMStatus");
    let words = said["description"].as_str().unwrap_or_default();
    assert!(
        words.starts_with("the cloud does not show the new VM sim:///vm-"),
        "{words}"
    );
    until_gone(&story).await;
    story.settles().await;
    assert_eq!(
        once(told(&story).split_off(begun)),
        [
            UNSEEN[0],
            UNSEEN[1],
            "D09 D12 D13 D15 D16 D17 D22 D25 D26 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert!((Boot(600_000)..Boot(640_000)).contains(&story.site.clock.now().boot));
}

async fn mcm_d29_the_wait_goes_on_after_a_crash(on: &dyn Backend) {
    let mut story = planted(on, shows_after("2m"), json!({})).await;
    story.until("it has a VM", has_vm).await;
    story.delete().await;
    for _ in 0..5 {
        let passes = story.passes().len();
        story.until_passes(|now| now.len() > passes).await;
        story.crash().await;
    }
    until_gone(&story).await;
    assert!(story.site.vms().is_empty());
}

async fn mcm_x25_a_new_vm_that_is_not_found_is_deleted_once_it_is(on: &dyn Backend) {
    let fails = json!({"operation": "machine.delete", "count": 2, "then": {"fail": {"code": "not-found"}}});
    let story = running(on, json!({"faults": [fails]}), json!({})).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(told[3..5], ["X25 Short", "X25 Short"]);
    assert_eq!(told[5..], ORDERLY[3..]);
    assert!(story.site.vms().is_empty());
}

async fn mcm_x33_a_new_vm_that_an_earlier_version_believed_to_be_gone_is_deleted(on: &dyn Backend) {
    for step in ["InitiateNodeDeletion", "InitiateFinalizerRemoval"] {
        let mut story = running(on, json!({}), json!({})).await;
        let begun = story.passes().len();
        story
            .without_a_host(async |story| {
                story.delete().await;
                let last = json!({"type": "Delete", "state": "Processing", "nextOp": step});
                let phase = json!({"phase": "Terminating"});
                story
                    .edit_status(json!({"lastOperation": last, "currentStatus": phase}))
                    .await;
            })
            .await;
        until_gone(&story).await;
        story.settles().await;
        let told = told(&story).split_off(begun);
        assert_eq!(told[0], "X33 Short");
        assert_eq!(told[1..], ORDERLY[1..]);
        assert!(story.site.vms().is_empty());
    }
}

async fn mcm_x43_a_machine_is_kept_while_its_vms_cannot_be_listed(on: &dyn Backend) {
    let fails =
        |code: &str| json!({"operation": "machine.list", "count": 1, "then": {"fail": {"code": code}}});
    let faults = ["unavailable", "permission-denied", "unimplemented"].map(fails);
    let story = running(on, json!({"faults": faults}), json!({})).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(told[..5], ORDERLY[..5]);
    assert_eq!(told[5..], ["X43 Short", "X43 Long", "X40 settled"]);
}

async fn mcm_x22_a_driver_that_is_away_for_a_moment_deletes_soon(on: &dyn Backend) {
    let fails = json!({"operation": "machine.delete", "count": 2, "then": {"fail": {"code": "unavailable"}}});
    let story = running(on, json!({"faults": [fails]}), json!({})).await;
    let told = told_of_its_end(&story).await;
    assert_eq!(told[3..5], ["X22 Short", "X22 Short"]);
    assert_eq!(told[5..], ORDERLY[3..]);
}

async fn mcm_x32_a_node_that_is_not_the_machines_own_is_left_alone(on: &dyn Backend) {
    let mut story = running(on, json!({}), json!({})).await;
    another(&story, "m-2").await;
    let other = polity_tests::host_fixture::reference("v1", "Node", None, "node-m-2");
    let before = story.site.get(&other).await;
    let done = story.passes().len();
    story
        .without_a_host(async |story| {
            story
                .edit(json!({"metadata": {"labels": {"node": "node-m-2"}}}))
                .await;
            story.delete().await;
        })
        .await;
    until_gone(&story).await;
    let told = told(&story).split_off(done);
    assert_eq!(
        told[2..],
        ["D10 X32 Short", "X20 Short", "X32 Short", "X40 settled"]
    );
    assert!(before.is_some());
    assert_eq!(story.site.get(&other).await, before);
}

/// Literally, the first constant that occurs in the description is the next step: a failure's text could name one.
async fn erratum_08_the_description_is_for_people(on: &dyn Backend) {
    let mut story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    story.delete().await;
    story.until_passes(|passes| passes.len() > done).await;
    let text = "InitiateFinalizerRemoval, said the cloud";
    story
        .without_a_host(async |story| {
            let said = json!({"lastOperation": {"description": text}});
            story.edit_status(said).await;
        })
        .await;
    until_gone(&story).await;
    assert_eq!(told(&story)[done..], ORDERLY);
    assert!(story.site.vms().is_empty());
}
