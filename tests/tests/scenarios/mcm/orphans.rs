//! The sweep of orphans: VMs that belong to no machine.

use std::time::Duration;

use polity_core::call::{CloudRequest, Session};
use polity_core::time::millis;
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::mcm as specified;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    mcm_o03_an_orphan_is_reported_and_stays,
    mcm_o04_an_orphan_is_deleted_after_its_time_where_the_binding_says_so,
    mcm_o05_an_orphan_is_not_deleted_where_the_binding_does_not_grant_it,
    mcm_o06_vms_that_cannot_be_listed_are_told,
    mcm_o07_a_second_vm_of_a_machine_is_deleted_and_the_first_stays,
    mcm_o01_a_machine_that_is_being_created_is_no_orphan,
}

/// A MachineSafety that looks for orphans.
fn safety() -> Value {
    let mut safety = mcm::safety();
    safety["spec"]["namespace"] = "default".into();
    safety
}

/// A machine that runs, and a story about the MachineSafety.
async fn begun(on: &dyn Backend, overrides: Value, sweeps: Value) -> Story {
    let bindings = vec![sweeps, mcm::machines(json!({}))];
    let story = begin_among(on, overrides, bindings, &safety()).await;
    another(&story, "m-2").await;
    story.create(&safety()).await;
    story
}

/// A machine that runs, and the VM of another one, whose finalizer somebody removed.
async fn abandoned(on: &dyn Backend, sweeps: Value) -> Story {
    let mut story = begun(on, json!({}), sweeps).await;
    another(&story, "m-3").await;
    let machine = reference(mcm::MCM, "Machine", Some("default"), "m-3");
    // A host that sees the machine without its finalizer adds it again.
    story
        .without_a_host(async |story| {
            let freed = json!({"metadata": {"finalizers": []}});
            story
                .site
                .patch(&machine, None, freed)
                .await
                .expect("it is there");
            story.site.delete(&machine, None).await.expect("it is there");
        })
        .await;
    assert!(story.site.get(&machine).await.is_none());
    assert_eq!(story.site.vms().len(), 2);
    story
}

fn is_known(safety: &Value) -> bool {
    safety["status"]["orphans"][0].is_object()
}

async fn until_noted(story: &Story, edge: &str) {
    let noted = |pass: &polity_core::record::PassRecord| tell(pass).split(' ').any(|id| id == edge);
    story.until_passes(|passes| passes.iter().any(noted)).await;
}

async fn mcm_o03_an_orphan_is_reported_and_stays(on: &dyn Backend) {
    let story = abandoned(on, mcm::sweeps(json!({}))).await;
    let seen = story.until("an orphan is known", is_known).await;
    assert_eq!(seen["status"]["orphans"][0]["name"], "m-3");
    assert_eq!(story.events(), [""; 0]);
    let known = story.site.clock.now().boot;
    until_noted(&story, "O03").await;
    // It is reported by the first sweep after the longest time of a creation.
    let waited = millis(story.site.clock.now().boot - known);
    let reported = specified::CREATION.next_multiple_of(specified::SWEEP);
    assert!((reported..reported + 120_000).contains(&waited), "{waited}");
    assert_eq!(story.events(), ["OrphanFound"]);
    story.sleep(Duration::from_secs(3_600)).await;
    assert_eq!(story.site.vms().len(), 2, "nobody deletes it");
}

async fn mcm_o04_an_orphan_is_deleted_after_its_time_where_the_binding_says_so(on: &dyn Backend) {
    let sweeps = mcm::sweeps(json!({"deleteOrphansAfter": "30m"}));
    let story = abandoned(on, sweeps).await;
    story.until("an orphan is known", is_known).await;
    let left = story.until_vms(|vms| vms.len() == 1).await;
    assert_eq!(left[0].name, "m-2");
    story
        .until("no orphan is known", |safety| !is_known(safety))
        .await;
    assert_eq!(story.acts(), ["orphan.delete"]);
    assert_eq!(story.events().last().map(String::as_str), Some("OrphanDeleted"));
}

async fn mcm_o05_an_orphan_is_not_deleted_where_the_binding_does_not_grant_it(on: &dyn Backend) {
    let mut sweeps = mcm::sweeps(json!({"deleteOrphansAfter": "30m"}));
    sweeps["spec"]["grants"][2] = json!({"cloud": ["machine.*"]});
    let story = abandoned(on, sweeps).await;
    until_noted(&story, "O05").await;
    assert!(story.events().iter().any(|reason| reason == "OrphanNotDeleted"));
    assert_eq!(story.site.vms().len(), 2);
}

async fn mcm_o07_a_second_vm_of_a_machine_is_deleted_and_the_first_stays(on: &dyn Backend) {
    let sweeps = mcm::sweeps(json!({"deleteOrphansAfter": "30m"}));
    let story = begun(on, json!({}), sweeps).await;
    let machine = reference(mcm::MCM, "Machine", Some("default"), "m-2");
    let machine = story.site.get(&machine).await.expect("it is there");
    let second = CloudRequest {
        session: Session {
            cloud: "sim".to_owned(),
            handle: None,
            owner: machine["metadata"]["uid"].as_str().expect("a uid").to_owned(),
            tenant: "default".to_owned(),
            tenant_queue: "".into(),
            namespace: Some("default".to_owned()),
        },
        operation: "machine.create".to_owned(),
        arguments: json!({"name": "second"}),
        key: Some("key-second".to_owned()),
    };
    let made = story.site.inspect(|sim, now| sim.perform(now, &second).answer);
    assert!(matches!(made, Some(Ok(_))), "{made:?}");
    assert_eq!(story.site.vms().len(), 2);
    let left = story.until_vms(|vms| vms.len() == 1).await;
    assert_eq!(left[0].name, "m-2");
    until_noted(&story, "O07").await;
}

async fn mcm_o06_vms_that_cannot_be_listed_are_told(on: &dyn Backend) {
    let fails = json!({"operation": "machine.list", "count": 1, "then": {"fail": {"code": "unavailable"}}});
    let story = begun(on, json!({"faults": [fails]}), mcm::sweeps(json!({}))).await;
    let is = |status: &'static str| {
        move |safety: &Value| condition_of(safety, "Swept").is_some_and(|swept| swept["status"] == status)
    };
    story.until("the look failed", is("False")).await;
    story.until("the next look does not", is("True")).await;
}

async fn mcm_o01_a_machine_that_is_being_created_is_no_orphan(on: &dyn Backend) {
    let slow = json!({"operation": "machine.create", "vm": "m-3", "then": {"answerAfter": "4s"}});
    let sweeps = mcm::sweeps(json!({"sweepPeriod": "1s", "probePeriod": "1s"}));
    let story = begun(on, json!({"faults": [slow]}), sweeps).await;
    another(&story, "m-3").await;
    let told = told(&story);
    let sweeps: Vec<&String> = told.iter().filter(|pass| pass.contains('O')).collect();
    assert!(sweeps.len() > 5, "{told:?}");
    assert!(sweeps.iter().all(|pass| pass.contains("O01")), "{told:?}");
}
