//! Scenarios (g) 1 to 5: machines that are created.

use std::time::Duration;

use polity_core::time::millis;
use polity_tests::host_harness::BEGIN;
use polity_tests::host_harness::backend::Backend;
use polity_tests::specified::mcm as specified;
use serde_json::json;

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_01_create,
    scenario_02_a_creation_that_fails_twice_is_tried_again,
    scenario_03_without_quota_a_machine_fails_after_its_time_and_is_replaced,
    scenario_04_a_crash_after_the_creation_makes_no_second_vm,
    scenario_04_the_vm_is_found_where_even_the_pending_entry_is_lost,
    mcm_c13_a_creation_in_doubt_is_waited_for_while_the_cloud_cannot_say,
    mcm_c13_a_creation_that_stays_in_doubt_fails_after_its_time_and_is_replaced,
    mcm_c15_a_creation_that_never_arrived_is_made_once_that_is_certain,
    mcm_x51_a_deletion_waits_for_the_creation_in_doubt,
    mcm_c03_a_driver_that_cannot_be_read_is_asked_again_later,
    mcm_c09_a_driver_that_cannot_be_asked_makes_nothing,
    mcm_c08_what_was_made_is_trusted_and_set_up_where_the_driver_knows_it_no_more,
    mcm_c08_a_vm_that_is_gone_fails_its_machine_in_time,
    mcm_c21_a_vm_is_set_up_as_soon_as_the_cloud_shows_it,
    mcm_c12_a_driver_that_never_names_the_node_is_waited_for,
    mcm_c05_a_vm_with_the_node_name_of_another_is_given_back,
    mcm_c17_a_vm_with_the_node_name_of_another_that_cannot_be_given_back_stays_on_record,
    mcm_c18_what_the_creation_leaves_open_is_set_up_before_the_node_is_waited_for,
    mcm_c19_a_machine_that_cannot_be_set_up_is_not_waited_for,
    mcm_c20_a_driver_that_sets_nothing_up_is_no_obstacle,
    scenario_05_a_machine_that_never_joins_fails,
    erratum_10_a_creation_that_is_not_finished_is_finished;
    short:
    erratum_01_a_machine_with_its_finalizer_is_made,
}

async fn scenario_01_create(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    assert_eq!(
        told(&story),
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C02 C11 Short",
            "R13 H11 H13 R15 S01 R16 after 60 s",
            "R13 H03 H05 H12 Short",
            "R13 H13 R15 S05 S07 R17 Short",
            FINE,
        ]
    );
    assert_eq!(story.acts(), ["machine.create", "revoke"]);
    assert_eq!(node(&story).await["metadata"]["labels"]["pool"], "a");
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_02_a_creation_that_fails_twice_is_tried_again(on: &dyn Backend) {
    let fails = json!({"operation": "machine.create", "count": 2, "then": {"fail": {"code": "unavailable"}}});
    let story = planted(on, json!({"faults": [fails]}), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    story.until_is(PHASE, "Pending").await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..5],
        [
            "R10 R12 Short",
            "R14 C04 C07 Short",
            "R14 C04 C07 Short",
            "R14 C04 C06 C10 Short",
            "R14 C02 C11 Short",
        ]
    );
    assert_eq!(made(&story), 1);
}

async fn scenario_03_without_quota_a_machine_fails_after_its_time_and_is_replaced(on: &dyn Backend) {
    let quota = json!({"fail": {"code": "resource-exhausted"}});
    let fails = json!({"operation": "machine.create", "until": "21m", "then": quota});
    let story = planted(on, json!({"faults": [fails]}), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    story.until_is(PHASE, "Failed").await;
    let passes = story.passes();
    assert_eq!(
        told(&story),
        [
            "R10 R12 Short",
            "R14 C04 C07 Long",
            "R14 C04 C07 Long",
            "R14 C04 C07 Long",
        ]
    );
    assert!(
        pauses(&passes)[1..].iter().all(|pause| *pause >= 600_000),
        "{:?}",
        pauses(&passes)
    );

    machine_set(&story, 1).await;
    until_gone(&story).await;
    assert_eq!(
        told(&story)[4..],
        [
            "D05 D06 D07 Short",
            "D09 D12 D13 D15 D16 D17 D22 D25 D26 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    story.settles().await;
    assert_eq!(told_of(&story, "r-1").last().map(String::as_str), Some(FINE));
    assert_eq!(made(&story), 1);
}

async fn scenario_04_a_crash_after_the_creation_makes_no_second_vm(on: &dyn Backend) {
    let slow = json!({"operation": "machine.create", "nth": 1, "then": {"answerAfter": "4s"}});
    let mut story = planted(on, json!({"faults": [slow]}), json!({})).await;
    let first = story.until_vms(|vms| vms.len() == 1).await;
    story.crash().await;
    story.until_is(PHASE, "Running").await;
    story.settles().await;
    assert_eq!(
        told(&story)[..3],
        ["R10 R12 Short", "C14 R14 C10 Short", "R14 C02 C11 Short"]
    );
    assert_eq!(made(&story), 1);
    assert_eq!(story.site.vms()[0].id, first[0].id);
}

async fn scenario_04_the_vm_is_found_where_even_the_pending_entry_is_lost(on: &dyn Backend) {
    let slow = json!({"operation": "machine.create", "nth": 1, "then": {"answerAfter": "4s"}});
    let mut story = planted(on, json!({"faults": [slow]}), json!({})).await;
    story.until_vms(|vms| vms.len() == 1).await;
    story
        .without_a_host(async |story| story.edit_status(json!({"pending": null})).await)
        .await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..3],
        ["R10 R12 Short", "R14 C02 C10 Short", "R14 C02 C11 Short"]
    );
    assert_eq!(made(&story), 1);
}

async fn mcm_c13_a_creation_in_doubt_is_waited_for_while_the_cloud_cannot_say(on: &dyn Backend) {
    let faults = json!([
        {"operation": "machine.create", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "count": 2, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = planted(on, json!({"faults": faults}), json!({})).await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..5],
        [
            "R10 R12 Short",
            "R14 C04 C16 Short",
            "C13 Short",
            "C13 Short",
            "C14 R14 C10 Short",
        ]
    );
    assert_eq!(made(&story), 1);
}

async fn mcm_c13_a_creation_that_stays_in_doubt_fails_after_its_time_and_is_replaced(on: &dyn Backend) {
    let faults = json!([
        {"operation": "machine.create", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "until": "30m", "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = planted(on, json!({"faults": faults}), json!({})).await;
    let machine = story.until_is(PHASE, "CrashLoopBackOff").await;
    let last = &machine["status"]["lastOperation"];
    assert_eq!(
        (&last["type"], &last["state"]),
        (&json!("Create"), &json!("Failed"))
    );
    story.until_is(PHASE, "Failed").await;
    let failed = story.passes().pop().expect("a pass");
    assert_eq!(tell(&failed), "C13 Short");
    let age = millis(failed.started.unix - BEGIN);
    assert!(
        (specified::CREATION..specified::CREATION + 60_000).contains(&age),
        "{age}"
    );

    machine_set(&story, 1).await;
    until_gone(&story).await;
    story.settles().await;
    let told = told(&story);
    assert!(told.iter().any(|pass| pass == "C13 X51 Short"), "{told:?}");
    assert_eq!(told_of(&story, "r-1").last().map(String::as_str), Some(FINE));
    // The deletion waited until the cloud could say, and found the VM.
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn mcm_c15_a_creation_that_never_arrived_is_made_once_that_is_certain(on: &dyn Backend) {
    let lost = json!({"operation": "machine.create", "nth": 1, "then": "loseRequest"});
    let story = planted(on, json!({"faults": [lost]}), json!({})).await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..4],
        [
            "R10 R12 Short",
            "R14 C04 C16 Short",
            "C13 Short",
            "C15 R14 C04 C06 C10 Short",
        ]
    );
    assert_eq!(made(&story), 1);
}

async fn mcm_x51_a_deletion_waits_for_the_creation_in_doubt(on: &dyn Backend) {
    let faults = json!([
        {"operation": "machine.create", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "until": "1m", "then": {"fail": {"code": "unavailable"}}},
    ]);
    let story = planted(on, json!({"faults": faults}), json!({})).await;
    story
        .until_passes(|passes| passes.last().is_some_and(|last| tell(last) == "C13 Short"))
        .await;
    let done = story.passes().len();
    story.delete().await;
    until_gone(&story).await;
    let told = told(&story).split_off(done);
    let waits = told.iter().take_while(|pass| *pass == "C13 X51 Short").count();
    assert!(waits > 5, "{told:?}");
    assert_eq!(
        told[waits..],
        [
            "C14 Short",
            "D05 D06 D07 Short",
            "D09 D12 D13 D14 D24 D26 Short",
            "D10 X10 Short",
            "X20 Short",
            "X30 Short",
            "X40 settled",
        ]
    );
    assert!(story.site.vms().is_empty());
}

async fn mcm_c03_a_driver_that_cannot_be_read_is_asked_again_later(on: &dyn Backend) {
    let odd = json!({"operation": "machine.status", "nth": 2, "then": {"answerWith": {"id": 5}}});
    let story = planted(on, json!({"faults": [odd]}), json!({})).await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..4],
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C03 Medium",
            "R14 C02 C11 Short"
        ]
    );
    assert!(pauses(&story.passes())[2] >= specified::MEDIUM);
}

async fn mcm_c09_a_driver_that_cannot_be_asked_makes_nothing(on: &dyn Backend) {
    let fails =
        |code: &str| json!({"operation": "machine.status", "count": 1, "then": {"fail": {"code": code}}});
    let faults = [fails("unavailable"), fails("internal")];
    let story = planted(on, json!({"faults": faults}), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    assert!(story.site.vms().is_empty());
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        told(&story)[..4],
        [
            "R10 R12 Short",
            "R14 C09 Short",
            "R14 C09 Medium",
            "R14 C04 C06 C10 Short"
        ]
    );
    assert_eq!(made(&story), 1);
}

async fn mcm_c08_what_was_made_is_trusted_and_set_up_where_the_driver_knows_it_no_more(on: &dyn Backend) {
    let unknown =
        json!({"operation": "machine.status", "from": "8s", "then": {"fail": {"code": "not-found"}}});
    let story = planted(on, unfinished(json!([unknown])), json!({})).await;
    let created = story.until("it has a VM", has_vm).await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(
        once(told(&story))[..4],
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C21 Short",
            "R14 C08 C18 C11 Short"
        ]
    );
    assert_eq!(story.acts(), ["machine.create", "machine.initialize", "revoke"]);
    assert_eq!(
        created["status"]["createdAt"],
        story.object().await["status"]["createdAt"]
    );
}

async fn mcm_c08_a_vm_that_is_gone_fails_its_machine_in_time(on: &dyn Backend) {
    let vanishes = json!({"vm": "m-1", "afterPowerOn": "1s", "does": "vanish"});
    let story = planted(on, json!({"events": [vanishes]}), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    assert_eq!(
        once(told(&story)),
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C21 Short",
            "R14 C08 C19 Short"
        ]
    );
    story.until_is(PHASE, "Failed").await;
    assert_eq!(made(&story), 1);
}

async fn mcm_c21_a_vm_is_set_up_as_soon_as_the_cloud_shows_it(on: &dyn Backend) {
    let late = json!({"operation": "machine.create", "then": {"showsAfter": "1m"}});
    let story = running(on, unfinished(json!([late])), json!({})).await;
    assert_eq!(
        once(told(&story))[..4],
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C21 Short",
            "R14 C02 C18 C11 Short"
        ]
    );
    assert_eq!(story.acts(), ["machine.create", "machine.initialize", "revoke"]);
}

async fn mcm_c12_a_driver_that_never_names_the_node_is_waited_for(on: &dyn Backend) {
    let nameless = json!({"answerWith": {"providerID": "sim:///vm-1"}});
    let faults = [
        json!({"operation": "machine.create", "then": nameless}),
        json!({"operation": "machine.status", "from": "8s", "then": nameless}),
    ];
    let story = planted(on, json!({"faults": faults}), json!({})).await;
    story.until_is(PHASE, "Pending").await;
    story.until_is(PHASE, "Failed").await;
    assert_eq!(
        told(&story),
        [
            "R10 R12 Short",
            "R14 C04 C06 C10 Short",
            "R14 C02 C11 Short",
            "R14 C02 C12 Long",
            "R14 C02 C12 Long",
            "R14 C02 C12 H07 Long",
        ]
    );
}

async fn mcm_c05_a_vm_with_the_node_name_of_another_is_given_back(on: &dyn Backend) {
    let stale = json!({"operation": "machine.create", "vm": "m-1", "then": {"nodeName": "node-n-1"}});
    let story = begin(on, json!({"faults": [stale]}), json!({})).await;
    another(&story, "n-1").await;
    story.create(&machine()).await;
    story.until_is(PHASE, "Failed").await;
    assert_eq!(told(&story), ["R10 R12 Short", "R14 C04 C05 Short"]);
    assert_eq!(story.acts(), ["machine.create", "machine.delete"]);
    assert_eq!(story.site.vms().len(), 1);
}

async fn mcm_c17_a_vm_with_the_node_name_of_another_that_cannot_be_given_back_stays_on_record(
    on: &dyn Backend,
) {
    let faults = json!([
        {"operation": "machine.create", "vm": "m-1", "then": {"nodeName": "node-n-1"}},
        {"operation": "machine.delete", "nth": 1, "then": {"fail": {"code": "internal"}}},
    ]);
    let story = begin(on, json!({"faults": faults}), json!({})).await;
    another(&story, "n-1").await;
    story.create(&machine()).await;
    let failed = story.until_is(PHASE, "Failed").await;
    assert!(failed["status"]["providerID"].is_string(), "{failed}");
    assert_eq!(told(&story)[..2], ["R10 R12 Short", "R14 C04 C17 Short"]);
    assert_eq!(story.site.vms().len(), 2);
    // Deleting the machine removes the VM too.
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(story.site.vms().len(), 1);
}

/// A cloud whose machines must be set up, with these faults.
fn unfinished(faults: serde_json::Value) -> serde_json::Value {
    json!({"machines": {"needsInitialization": true}, "faults": faults})
}

async fn mcm_c18_what_the_creation_leaves_open_is_set_up_before_the_node_is_waited_for(on: &dyn Backend) {
    let story = running(on, unfinished(json!([])), json!({})).await;
    assert_eq!(
        told(&story)[..3],
        ["R10 R12 Short", "R14 C04 C06 C10 Short", "R14 C02 C18 C11 Short"]
    );
    assert_eq!(story.acts(), ["machine.create", "machine.initialize", "revoke"]);
}

async fn mcm_c19_a_machine_that_cannot_be_set_up_is_not_waited_for(on: &dyn Backend) {
    let fails =
        |code: &str| json!({"operation": "machine.initialize", "count": 1, "then": {"fail": {"code": code}}});
    let faults = ["unavailable", "permission-denied"].map(fails);
    let story = planted(on, unfinished(json!(faults)), json!({})).await;
    story.until_is(PHASE, "CrashLoopBackOff").await;
    story.until_is(PHASE, "Running").await;
    let told = told(&story);
    let from = told
        .iter()
        .position(|pass| pass.contains("C19"))
        .expect("it failed");
    assert_eq!(
        told[from..from + 3],
        ["R14 C02 C19 Short", "R14 C02 C19 Medium", "R14 C02 C18 C11 Short"]
    );
    assert_eq!(made(&story), 1);
}

async fn mcm_c20_a_driver_that_sets_nothing_up_is_no_obstacle(on: &dyn Backend) {
    let cannot = json!({"operation": "machine.initialize", "then": {"fail": {"code": "unimplemented"}}});
    let story = running(on, unfinished(json!([cannot])), json!({})).await;
    assert_eq!(told(&story)[2], "R14 C02 C20 C11 Short");
}

async fn scenario_05_a_machine_that_never_joins_fails(on: &dyn Backend) {
    let never = json!({"operation": "machine.create", "then": "neverJoins"});
    let story = planted(on, json!({"faults": [never]}), json!({})).await;
    story.until_is(PHASE, "Pending").await;
    story.sleep(Duration::from_secs(19 * 60)).await;
    assert_eq!(
        told(&story).last().map(String::as_str),
        Some("R13 H11 H13 R15 S01 R16 after 60 s")
    );
    let object = story.until_is(PHASE, "Failed").await;
    assert_eq!(object["status"]["lastOperation"]["state"], "Failed");
    assert_eq!(object["status"]["lastOperation"]["type"], "Create");
    let last = story.passes().pop().expect("a pass");
    assert_eq!(tell(&last), "R13 H07 H12 Short");
    let age = millis(last.started.unix - BEGIN);
    assert!(
        (specified::CREATION..specified::CREATION + 120_000).contains(&age),
        "{age}"
    );
}

/// Literally, a machine that has its finalizer waits at the short period and nothing else: it is never made.
async fn erratum_01_a_machine_with_its_finalizer_is_made(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let mut machine = machine();
    machine["metadata"]["finalizers"] = json!(["mcm.polity.dev/machine"]);
    story.create(&machine).await;
    story.until_is(PHASE, "Running").await;
    assert_eq!(told(&story)[..2], ["R14 C04 C06 C10 Short", "R14 C02 C11 Short"]);
    assert_eq!(made(&story), 1);
}

/// Literally, a machine with a node never comes back to its creation.
async fn erratum_10_a_creation_that_is_not_finished_is_finished(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let (done, before) = (story.passes().len(), story.object().await);
    story.edit_status(json!({"providerID": null})).await;
    story.until_passes(|passes| passes.len() > done).await;
    until_fine(&story).await;
    assert_eq!(told(&story)[done..], ["R14 C02 C10 Short", FINE]);
    assert_eq!(
        story.object().await["status"]["providerID"],
        before["status"]["providerID"]
    );
    assert_eq!(made(&story), 1);
}
