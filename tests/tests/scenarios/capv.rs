//! capv-machine: (g) 1 to 15 of its specification, and what (i) adds to them.

use std::time::Duration;

use polity_core::contract::{Code, Next};
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use polity_sdk::{RECONCILE_FAILED, RECONCILED};
use polity_sim::Happened;
use polity_tests::host_fixture::condition_of;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::seeds::binding;
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::specified::capv;
use serde_json::{Value, json};

use crate::scenarios::scenarios;

scenarios! {
    scenario_01_create_to_ready,
    scenario_02_a_crash_between_clone_and_patch_makes_no_second_vm,
    scenario_02_a_clone_in_doubt_whose_task_is_forgotten_is_known_by_its_vm,
    scenario_03_a_crash_while_the_clone_runs_ends_with_one_vm,
    scenario_03_a_second_clone_fails_on_the_name_and_the_first_is_adopted,
    scenario_04_an_expired_task_record_requeues_and_the_next_pass_goes_on,
    scenario_05_a_clone_that_always_fails_is_tried_once_a_minute,
    scenario_05_without_backoff_a_clone_that_always_fails_is_tried_in_every_pass,
    scenario_06_an_unreachable_vcenter_fails_the_pass_and_clears_nothing,
    scenario_07_a_vm_removed_by_hand_is_made_anew_in_the_same_pass,
    scenario_07_a_vm_removed_by_hand_stays_missing_where_the_binding_says_so,
    scenario_07_a_vm_that_was_only_out_of_sight_is_taken_back,
    scenario_08_deleting_a_running_vm_stops_it_destroys_it_and_lets_go,
    scenario_09_deleting_while_the_clone_runs_leaks_no_vm,
    scenario_11_metadata_drift_is_put_right_without_a_power_cycle,
    scenario_12_a_vm_powered_off_by_an_operator_is_started_again,
    scenario_13_a_vm_that_is_on_already_counts_as_started,
    scenario_14_an_unknown_task_state_fails_and_clears_nothing,
    scenario_15_a_stale_watch_starts_no_second_clone,
    capv_40_a_task_that_cannot_be_looked_at_is_asked_for_again,
    capv_38_a_clone_that_never_arrived_is_made_once_that_is_certain,
    capv_42_a_machine_waits_for_the_secret_with_its_user_data,
    capv_45_a_machine_in_maintenance_is_left_alone_until_the_annotation_goes,
    capv_46_a_changed_template_is_shown_and_the_vm_stays,
    capv_47_a_vm_with_another_instance_uuid_is_left_alone_until_it_has_its_own,
    capv_48_a_clone_that_takes_too_long_fails_passes_and_is_still_the_only_one,
    capv_49_a_name_that_another_vm_has_is_tried_again_until_it_is_free,
    capv_50_a_question_that_a_vm_asks_is_shown_until_it_is_answered,
    capv_51_one_address_is_enough_and_the_other_is_waited_for;
    short:
    scenario_10_a_machine_that_never_had_a_vm_is_let_go_in_one_pass,
    capv_41_a_machine_that_somebody_else_holds_is_let_go_of_once,
}

pub(crate) fn machine() -> Value {
    json!({
        "apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"namespace": "default", "name": "m-1"},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
    })
}

/// A cloud that answers at once and hides nothing, so that the passes of a scenario are known one by one. What
/// `overrides` names is put in place of that.
fn cloud(overrides: Value) -> Value {
    let mut cloud = json!({
        "lag": "0ms", "answers": {"min": "10ms", "max": "10ms"}, "queue": {"min": "0ms", "max": "0ms"},
        "dhcp": {"min": "30s", "max": "30s"},
        "tasks": {
            "clone": {"min": "30s", "max": "30s"}, "reconfigure": {"min": "3s", "max": "3s"},
            "powerOn": {"min": "5s", "max": "5s"}, "powerOff": {"min": "5s", "max": "5s"},
            "destroy": {"min": "5s", "max": "5s"},
        },
    });
    polity_tests::simulation::store::merge(&mut cloud, &overrides);
    cloud
}

pub(crate) async fn begin(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let mut binding = binding();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = configuration;
    Story::begin(on, cloud(overrides), vec![binding], &machine()).await
}

/// A machine that is running with addresses.
async fn running(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let story = begin(on, overrides, configuration).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    story
}

async fn scenario_01_create_to_ready(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&machine()).await;
    let object = story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(
        story.edges(),
        [
            "03 11 12 14 18 22 23",
            "02 04 05",
            "02 04 06 11 39 17 22 24 25",
            "02 04 06 11 15 17 22 24 26 27",
            "02 04 06 11 15 17 22 24 26 28 30",
            "03 11 15 17 22 24 26 28 29",
        ]
    );
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
    assert_eq!(object["status"]["conditions"][0]["status"], "True");
    assert_eq!(object["status"]["addresses"].as_array().map(Vec::len), Some(1));
}

async fn scenario_02_a_crash_between_clone_and_patch_makes_no_second_vm(on: &dyn Backend) {
    let slow = json!({"operation": "vm.clone", "nth": 1, "then": {"answerAfter": "4s"}});
    let mut story = begin(on, json!({"faults": [slow]}), json!({})).await;
    story.create(&machine()).await;
    let first = story.until_vms(|vms| vms.len() == 1).await;
    story.crash().await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(story.site.vms().len(), 1);
    assert_eq!(story.site.vms()[0].id, first[0].id);
    assert!(
        story.edges().iter().any(|edges| edges.starts_with("37 ")),
        "{:?}",
        story.edges()
    );
}

async fn scenario_02_a_clone_in_doubt_whose_task_is_forgotten_is_known_by_its_vm(on: &dyn Backend) {
    let overrides = json!({
        "faults": [{"operation": "vm.clone", "nth": 1, "then": "loseAnswer"}],
        "taskRetention": "1s", "tasks": {"clone": {"min": "1s", "max": "1s"}},
    });
    let mut story = begin(on, overrides, json!({})).await;
    story.create(&machine()).await;
    let first = story.until_vms(|vms| vms.len() == 1).await;
    story
        .without_a_host(async |story| story.sleep(Duration::from_secs(60)).await)
        .await;
    story.until_is("status.phase", "Running").await;
    assert_eq!(story.edges()[0], "37 03 11 15 17 22 24 25");
    assert_eq!((clones(&story), &story.site.vms()[0].id), (1, &first[0].id));
}

async fn scenario_03_a_crash_while_the_clone_runs_ends_with_one_vm(on: &dyn Backend) {
    // For a while nobody can say what became of the clone.
    let faults = json!([
        {"operation": "vm.clone", "nth": 1, "then": "loseAnswer"},
        {"operation": "resolve", "count": 3, "then": {"fail": {"code": "unavailable"}}},
    ]);
    let mut story = begin(on, json!({"faults": faults, "lag": "3s"}), json!({})).await;
    story.create(&machine()).await;
    story.until_vms(|vms| vms.len() == 1).await;
    story.crash().await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(story.site.vms().len(), 1);
    assert!(
        story.edges().iter().any(|edges| edges == "36"),
        "{:?}",
        story.edges()
    );
}

async fn scenario_03_a_second_clone_fails_on_the_name_and_the_first_is_adopted(on: &dyn Backend) {
    let lost = json!({"operation": "vm.clone", "nth": 1, "then": "loseAnswer"});
    let mut story = begin(on, json!({"faults": [lost]}), json!({})).await;
    story.create(&machine()).await;
    let first = story.until_vms(|vms| vms.len() == 1).await;
    // As if the pending entry had been lost as well: somebody removed it.
    story
        .without_a_host(async |story| story.edit_status(json!({"pending": null})).await)
        .await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(story.site.vms().len(), 1);
    assert_eq!(story.site.vms()[0].id, first[0].id);
    // The cloud refuses the second at once, and the first cannot be seen until it has ended.
    let edges = story.edges();
    assert_eq!(edges[0], "03 11 12 14 18 22 49");
    assert!(edges[1].starts_with("03 11 12 13"), "{edges:?}");
}

async fn scenario_04_an_expired_task_record_requeues_and_the_next_pass_goes_on(on: &dyn Backend) {
    let clone = json!({"min": "3s", "max": "3s"});
    let overrides = json!({"taskRetention": "1s", "tasks": {"clone": clone}});
    let story = begin(on, overrides, json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    let passes = story.passes();
    let edges = story.edges();
    assert_eq!(
        edges[..3],
        ["03 11 12 14 18 22 23", "02 08", "03 11 12 13 17 22 24 25"]
    );
    assert_eq!(passes[1].next, Some(Next::After(capv::REQUEUE)));
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_05_a_clone_that_always_fails_is_tried_once_a_minute(on: &dyn Backend) {
    let fails =
        json!({"operation": "vm.clone", "then": {"failTask": {"fault": "FileNotFound", "message": "no"}}});
    let story = begin(on, json!({"faults": [fails]}), json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "BackingOff").await;
    assert_eq!(
        story.object().await["status"]["conditions"][0]["message"],
        "FileNotFound: no"
    );
    story.sleep(Duration::from_secs(600)).await;
    let cloned: Vec<Boot> = story
        .passes()
        .iter()
        .filter(|pass| edges(pass).ends_with(" 23"))
        .map(|pass| pass.started.boot)
        .collect();
    assert!(cloned.len() >= 5, "{cloned:?}");
    assert!(
        cloned
            .windows(2)
            .all(|pair| millis(pair[1] - pair[0]) >= capv::AFTER_A_FAILURE),
        "{cloned:?}"
    );
}

async fn scenario_05_without_backoff_a_clone_that_always_fails_is_tried_in_every_pass(on: &dyn Backend) {
    let fails = json!({"operation": "vm.clone", "count": 5, "then": {"failTask": {"fault": "FileNotFound"}}});
    let story = begin(on, json!({"faults": [fails]}), json!({"failureBackoff": "0"})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    let again = |edges: &&String| *edges == "02 04 07 11 12 14 18 22 23";
    assert_eq!(story.edges().iter().filter(again).count(), 5);
    assert_eq!(story.acts().iter().filter(|act| *act == "vm.clone").count(), 6);
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_06_an_unreachable_vcenter_fails_the_pass_and_clears_nothing(on: &dyn Backend) {
    let overrides = json!({"outages": [{"from": "20m", "until": "40m"}]});
    let story = running_at(on, overrides, 25 * 60).await;
    let before = story.object().await;
    story.request("1").await;
    let failed = |pass: &polity_core::record::PassRecord| matches!(&pass.next, Some(Next::Retry { failure: Some(f), .. }) if f.code == Code::Unavailable);
    story
        .until_passes(|passes| passes.last().is_some_and(failed))
        .await;
    let after = story.object().await;
    assert_eq!(
        condition_of(&after, RECONCILED).expect("it is told")["status"],
        "False"
    );
    assert_eq!(without_report(after), without_report(before));
    story.sleep(Duration::from_secs(30 * 60)).await;
    story.settles().await;
    let back = story.object().await;
    assert_eq!(back["status"]["phase"], "Running");
    assert_eq!(
        condition_of(&back, RECONCILED).expect("it is told")["status"],
        "True"
    );
    let said = story.events();
    let failed = said.iter().filter(|reason| *reason == RECONCILE_FAILED);
    assert_eq!(failed.count(), 1, "said once: {said:?}");
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_07_a_vm_removed_by_hand_is_made_anew_in_the_same_pass(on: &dyn Backend) {
    let overrides = json!({"events": [{"vm": "m-1", "at": "20m", "does": "vanish"}]});
    let story = running(on, overrides, json!({})).await;
    let first = story.site.vms()[0].id.clone();
    story.until_vms(<[_]>::is_empty).await;
    story.request("1").await;
    let again = story.until_vms(|vms| !vms.is_empty()).await;
    assert_ne!(again[0].id, first);
    assert_eq!(
        story.edges().last().map(String::as_str),
        Some("03 11 15 16 22 23")
    );
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_07_a_vm_removed_by_hand_stays_missing_where_the_binding_says_so(on: &dyn Backend) {
    let overrides = json!({"events": [{"vm": "m-1", "at": "20m", "does": "vanish"}]});
    let story = running(on, overrides, json!({"recreateMissing": false})).await;
    story.until_vms(<[_]>::is_empty).await;
    story.request("1").await;
    story
        .until("it is missing", |machine| {
            machine["status"]["conditions"][0]["reason"] == "NotFound"
        })
        .await;
    story.sleep(Duration::from_secs(3_600)).await;
    assert_eq!(
        story.edges().last().map(String::as_str),
        Some("03 11 12 14 18 22 44")
    );
    assert_eq!(story.acts().iter().filter(|act| *act == "vm.clone").count(), 1);
}

async fn scenario_07_a_vm_that_was_only_out_of_sight_is_taken_back(on: &dyn Backend) {
    let hidden = |operation: &str| {
        let fail = json!({"fail": {"code": "not-found"}});
        json!({"operation": operation, "from": "20m", "until": "40m", "then": fail})
    };
    let faults = [hidden("vm.get"), hidden("vm.find")];
    let story = running(on, json!({"faults": faults}), json!({"recreateMissing": false})).await;
    let id = story.site.vms()[0].id.clone();
    story
        .until("it is missing", |machine| {
            machine["status"]["conditions"][0]["reason"] == "NotFound"
        })
        .await;
    let missed = story.passes().len();
    assert_eq!(story.edges()[missed - 1], "03 11 15 16 22 44");
    story.until_is("status.phase", "Running").await;
    let edges = story.edges().split_off(missed);
    let (back, before) = edges.split_last().expect("a pass");
    assert!(
        before.iter().all(|edges| edges == "03 11 12 14 18 22 44"),
        "{before:?}"
    );
    assert_eq!(back, "03 11 12 13 17 22 24 26 28 29");
    assert_eq!((clones(&story), &story.site.vms()[0].id), (1, &id));
}

async fn scenario_08_deleting_a_running_vm_stops_it_destroys_it_and_lets_go(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let done = story.passes().len();
    story.delete().await;
    story.until("it is gone", Value::is_null).await;
    story.settles().await;
    assert_eq!(
        story.edges()[done..],
        [
            "03 11 15 17 19 20a",
            "02 04 06 11 15 17 19 20b",
            "02 04 06 11 15 16 19 21"
        ]
    );
    assert!(story.site.vms().is_empty());
}

async fn scenario_09_deleting_while_the_clone_runs_leaks_no_vm(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Cloning").await;
    story.delete().await;
    story.until("it is gone", Value::is_null).await;
    story.settles().await;
    assert_eq!(story.acts(), ["vm.clone", "vm.destroy"]);
    assert!(story.site.vms().is_empty());
}

async fn scenario_10_a_machine_that_never_had_a_vm_is_let_go_in_one_pass(on: &dyn Backend) {
    let mut story = begin(on, json!({}), json!({})).await;
    story.settles().await;
    let mut machine = machine();
    machine["metadata"]["finalizers"] = json!(["capv.polity.dev/machine"]);
    story
        .without_a_host(async |story| {
            story.create(&machine).await;
            story.delete().await;
        })
        .await;
    story.until("it is gone", Value::is_null).await;
    story.settles().await;
    assert_eq!(story.edges(), ["03 11 12 14 18 19 21"]);
    assert!(story.acts().is_empty());
}

async fn scenario_11_metadata_drift_is_put_right_without_a_power_cycle(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    let device = json!({"networkName": "prod", "dhcp4": true, "nameservers": ["198.51.100.1"]});
    story
        .edit(json!({"spec": {"network": {"devices": [device]}}}))
        .await;
    story.until_passes(|passes| passes.len() > done + 1).await;
    story.settles().await;
    assert_eq!(
        story.edges()[done..],
        ["03 11 15 17 22 24 25", "02 04 06 11 15 17 22 24 26 28 29"]
    );
    assert_eq!(story.acts()[acted..], ["vm.reconfigure"]);
}

async fn scenario_12_a_vm_powered_off_by_an_operator_is_started_again(on: &dyn Backend) {
    let overrides = json!({"events": [{"vm": "m-1", "at": "15m", "does": "powerOff"}]});
    let story = running_at(on, overrides, 16 * 60).await;
    let done = story.passes().len();
    story.request("1").await;
    story.until_passes(|passes| passes.len() > done).await;
    let off = story.until_is("status.phase", "PoweringOn").await;
    assert_eq!(off["status"]["addresses"], Value::Null);
    story.until_passes(|passes| passes.len() > done + 2).await;
    story.settles().await;
    assert_eq!(
        story.edges()[done..],
        [
            "03 11 15 17 22 24 26 27",
            "02 04 06 11 15 17 22 24 26 28 30",
            "03 11 15 17 22 24 26 28 29"
        ]
    );
}

async fn scenario_13_a_vm_that_is_on_already_counts_as_started(on: &dyn Backend) {
    // An operator turns it off, and is faster than the task that turns it on again.
    let overrides = json!({
        "events": [{"vm": "m-1", "at": "15m", "does": "powerOff"}, {"vm": "m-1", "at": "963s", "does": "powerOn"}],
        "faults": [{"operation": "vm.power-on", "nth": 2, "then": {"taskTakes": "10s"}}],
    });
    let story = running_at(on, overrides, 16 * 60).await;
    let done = story.passes().len();
    story.request("1").await;
    story.until_passes(|passes| passes.len() > done + 1).await;
    story.settles().await;
    let edges = story.edges();
    assert_eq!(edges[done], "03 11 15 17 22 24 26 27");
    assert!(edges[done + 1].starts_with("02 04 06 11"), "{edges:?}");
    assert_eq!(story.acts().iter().filter(|act| *act == "vm.power-on").count(), 2);
}

async fn scenario_14_an_unknown_task_state_fails_and_clears_nothing(on: &dyn Backend) {
    let odd = json!({"operation": "task.get", "nth": 1, "then": {"taskState": "paused"}});
    let story = begin(on, json!({"faults": [odd]}), json!({})).await;
    story.create(&machine()).await;
    let before = story
        .until("a task is under way", |object| {
            object["status"]["taskRef"].is_string()
        })
        .await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!(story.edges()[1], "02 04 09");
    assert!(matches!(story.passes()[1].next, Some(Next::Retry { .. })));
    let after = story.object().await;
    let shown = condition_of(&after, "VMProvisioned").expect("it is told");
    assert_eq!(shown["reason"], "TaskStateUnknown");
    for field in ["taskRef", "taskKind", "taskSince"] {
        assert_eq!(after["status"][field], before["status"][field]);
    }
    story.until_is("status.phase", "Running").await;
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_15_a_stale_watch_starts_no_second_clone(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.settles().await;
    story.create(&machine()).await;
    story.until_passes(|passes| passes.len() == 1).await;
    // From now on the host hears nothing of what it wrote, and its own timer makes the next pass.
    story.host.wire.hold(true);
    story.until_passes(|passes| passes.len() > 2).await;
    for pass in &story.passes()[1..] {
        let object: Value = serde_json::from_str(pass.object.as_deref().expect("an object")).expect("JSON");
        assert!(
            object["status"]["taskRef"].is_string() || object["status"]["machineRef"].is_string(),
            "{object}"
        );
    }
    story.host.wire.hold(false);
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
    assert_eq!(story.site.vms().len(), 1);
}

async fn capv_40_a_task_that_cannot_be_looked_at_is_asked_for_again(on: &dyn Backend) {
    let fails = json!({"operation": "task.get", "nth": 1, "then": {"fail": {"code": "unavailable"}}});
    let story = begin(on, json!({"faults": [fails]}), json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    assert_eq!(story.edges()[..3], ["03 11 12 14 18 22 23", "02 40", "02 04 05"]);
    assert_eq!(story.site.vms().len(), 1);
}

async fn capv_41_a_machine_that_somebody_else_holds_is_let_go_of_once(on: &dyn Backend) {
    let mut story = begin(on, json!({}), json!({})).await;
    story.settles().await;
    let mut machine = machine();
    machine["metadata"]["finalizers"] = json!(["capv.polity.dev/machine", "example.com/other"]);
    story
        .without_a_host(async |story| {
            story.create(&machine).await;
            story.delete().await;
        })
        .await;
    story.until_passes(|passes| passes.len() == 1).await;
    story.settles().await;
    story.request("1").await;
    story.until_passes(|passes| passes.len() == 2).await;
    assert_eq!(story.edges(), ["03 11 12 14 18 19 21", "03 11 12 14 18 19 41"]);
    assert_eq!(
        story.object().await["metadata"]["finalizers"],
        json!(["example.com/other"])
    );
    assert!(story.acts().is_empty());
}

async fn capv_38_a_clone_that_never_arrived_is_made_once_that_is_certain(on: &dyn Backend) {
    let lost = json!({"operation": "vm.clone", "nth": 1, "then": "loseRequest"});
    let story = begin(on, json!({"faults": [lost]}), json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    let edges = story.edges();
    assert!(edges.contains(&"38 03 11 12 14 18 22 23".to_owned()), "{edges:?}");
    assert_eq!(story.acts().iter().filter(|act| *act == "vm.clone").count(), 2);
    assert_eq!(story.site.vms().len(), 1);
}

async fn capv_42_a_machine_waits_for_the_secret_with_its_user_data(on: &dyn Backend) {
    let mut binding = binding();
    let grants = binding["spec"]["grants"].as_array_mut().expect("a list");
    grants.push(json!({"secrets": {}}));
    let mut machine = machine();
    machine["spec"]["bootstrap"] = json!({"dataSecretName": "boot"});
    let story = Story::begin(on, cloud(json!({})), vec![binding], &machine).await;
    story.create(&machine).await;
    let waiting = story.until_is("status.phase", "WaitingForBootstrapData").await;
    let condition = condition_of(&waiting, "VMProvisioned").expect("it says why");
    assert_eq!(condition["message"], "Secret boot does not exist");
    assert_eq!(story.acts(), [""; 0]);

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "boot"},
        "stringData": {"value": "#cloud-config\nruncmd: []"},
    });
    story.create(&secret).await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    let edges = story.edges();
    assert_eq!(edges[0], "03 11 12 14 18 22 42");
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
}

async fn capv_45_a_machine_in_maintenance_is_left_alone_until_the_annotation_goes(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let mut machine = machine();
    machine["metadata"]["annotations"] = json!({"capv.polity.dev/maintenance": ""});
    story.create(&machine).await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!((&*story.edges()[1], story.acts().len()), ("45", 0));
    let none = json!({"capv.polity.dev/maintenance": null});
    story.edit(json!({"metadata": {"annotations": none}})).await;
    story.until_is("status.phase", "Running").await;
}

async fn capv_46_a_changed_template_is_shown_and_the_vm_stays(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    let is = |machine: &Value, status: &str| {
        condition_of(machine, "UpToDate").is_some_and(|shown| shown["status"] == status)
    };
    story.edit(json!({"spec": {"template": "debian"}})).await;
    story.until("it is shown", |machine| is(machine, "False")).await;
    story.edit(json!({"spec": {"template": "ubuntu"}})).await;
    story
        .until("it is as it was", |machine| is(machine, "True"))
        .await;
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
}

async fn capv_47_a_vm_with_another_instance_uuid_is_left_alone_until_it_has_its_own(on: &dyn Backend) {
    let copy = json!({"id": "vm-1", "name": "m-1", "instanceUuid": "other", "biosUuid": "other"});
    let copied = json!({"operation": "vm.get", "nth": 1, "then": {"answerWith": copy}});
    let story = begin(on, json!({"faults": [copied]}), json!({})).await;
    story.create(&machine()).await;
    story.until_is("status.phase", "Running").await;
    story.settles().await;
    let edges = story.edges();
    assert_eq!(edges[2..4], ["02 04 06 11 39 47", "03 11 15 17 22 24 25"]);
    assert!(story.events().contains(&"OtherInstanceUUID".to_owned()));
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
}

async fn capv_48_a_clone_that_takes_too_long_fails_passes_and_is_still_the_only_one(on: &dyn Backend) {
    let slow = json!({"operation": "vm.clone", "nth": 1, "then": {"taskTakes": "30m"}});
    let story = begin(on, json!({"faults": [slow]}), json!({"taskTimeout": "10m"})).await;
    story.create(&machine()).await;
    let failed = |machine: &Value| {
        condition_of(machine, RECONCILED).is_some_and(|passes| passes["reason"] == "DeadlineExceeded")
    };
    let late = story.until("passes fail", failed).await;
    let shown = condition_of(&late, "VMProvisioned").expect("it says why");
    assert_eq!(shown["reason"], "TaskTimedOut");
    assert!(late["status"]["taskRef"].is_string());
    story.until_is("status.phase", "Running").await;
    assert_eq!(story.acts(), ["vm.clone", "vm.reconfigure", "vm.power-on"]);
    assert!(story.edges().contains(&"02 04 48".to_owned()));
}

async fn capv_49_a_name_that_another_vm_has_is_tried_again_until_it_is_free(on: &dyn Backend) {
    let taken =
        json!({"operation": "vm.clone", "count": 2, "then": {"failTask": {"fault": "DuplicateName"}}});
    let story = begin(on, json!({"faults": [taken]}), json!({})).await;
    story.create(&machine()).await;
    let shown = story.until_is("status.phase", "NameTaken").await;
    assert_eq!(
        condition_of(&shown, "VMProvisioned").expect("it says why")["reason"],
        "NameTaken"
    );
    story.until_is("status.phase", "Running").await;
    assert_eq!((clones(&story), story.site.vms().len()), (3, 1));
    let passes = story.passes();
    let waits: Vec<u64> = passes
        .windows(2)
        .filter(|pair| edges(&pair[0]).ends_with(" 49"))
        .map(|pair| millis(pair[1].started.boot - pair[0].started.boot))
        .collect();
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert!(
        waits.iter().all(|wait| *wait >= capv::AFTER_A_FAILURE),
        "{waits:?}"
    );
}

async fn capv_50_a_question_that_a_vm_asks_is_shown_until_it_is_answered(on: &dyn Backend) {
    let task = json!({
        "id": "task-1", "state": "running", "kind": "clone", "question": "Was it moved or copied?",
    });
    let asks = json!({"operation": "task.get", "nth": 1, "then": {"answerWith": task}});
    let story = begin(on, json!({"faults": [asks]}), json!({})).await;
    story.create(&machine()).await;
    let asked = |machine: &Value| {
        condition_of(machine, "VMProvisioned").is_some_and(|shown| shown["reason"] == "QuestionPending")
    };
    story.until("the question is shown", asked).await;
    assert_eq!(story.edges()[1], "02 04 05 50");
    story.until_is("status.phase", "Running").await;
}

async fn capv_51_one_address_is_enough_and_the_other_is_waited_for(on: &dyn Backend) {
    let networks = json!([{"name": "prod"}, {"name": "silent", "dhcp": false}]);
    let story = begin(on, json!({"networks": networks}), json!({})).await;
    let mut machine = machine();
    machine["spec"]["network"]["devices"] = json!([
        {"networkName": "silent", "dhcp4": true}, {"networkName": "prod", "dhcp4": true},
    ]);
    story.create(&machine).await;
    let running = story.until_is("status.phase", "Running").await;
    assert_eq!(running["status"]["addresses"].as_array().map(Vec::len), Some(1));
    let again = |passes: &[PassRecord]| {
        let last = passes.iter().rev().take(2);
        last.filter(|pass| edges(pass).ends_with(" 28 51")).count() == 2
    };
    story.until_passes(again).await;
}

/// An object without the condition that tells of its passes, and what differs with it.
fn without_report(mut object: Value) -> Value {
    let conditions = object["status"]["conditions"].as_array_mut();
    conditions
        .into_iter()
        .for_each(|all| all.retain(|condition| condition["type"] != RECONCILED));
    for other in ["resourceVersion", "annotations", "managedFields"] {
        object["metadata"][other] = Value::Null;
    }
    object
}

/// How often the cloud was told to clone, including clones whose answer was lost.
fn clones(story: &Story) -> usize {
    let effects = story.site.effects();
    let begun = effects.iter().filter(|effect| effect.what == Happened::Submitted);
    begun.filter(|effect| effect.operation == "vm.clone").count()
}

/// A machine that runs, so many seconds after the world began.
async fn running_at(on: &dyn Backend, overrides: Value, seconds: u64) -> Story {
    let story = running(on, overrides, json!({})).await;
    let then = Boot(seconds * 1_000);
    story.sleep(then - story.site.clock.now().boot).await;
    story
}
