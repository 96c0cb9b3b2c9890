//! Classes of machines: a class stays for as long as a machine uses it.

use std::time::Duration;

use polity_core::contract::ObjectRef;
use polity_core::record::PassRecord;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    mcm_k03_a_class_that_is_deleted_stays_until_its_last_machine_was_deleted_by_it,
    mcm_k05_a_class_that_no_machine_uses_any_more_goes_at_once_though_a_set_names_it,
}

const FINALIZER: &str = "mcm.polity.dev/machineclass";

/// A class that is governed, with machines that wait for its finalizer, and sets. The story is about the class.
async fn begun(on: &dyn Backend) -> Story {
    let machines = mcm::machines(json!({"classFinalizer": FINALIZER}));
    let bindings = vec![mcm::safeties(), machines, mcm::classes(), mcm::sets()];
    let story = begin_among(on, json!({}), bindings, &mcm::class()).await;
    until_told(&story, "K05 settled").await;
    story
}

/// Waits until the last pass of the class was this.
async fn until_told(story: &Story, pass: &str) {
    let told = |passes: &[PassRecord]| passes.last().is_some_and(|last| tell(last) == pass);
    story.until_passes(told).await;
}

fn named(kind: &str, name: &str) -> ObjectRef {
    reference(mcm::MCM, kind, Some("default"), name)
}

/// Somebody deletes a machine, and waits until it is gone.
async fn delete(story: &Story, name: &str) {
    let machine = named("Machine", name);
    story.site.delete(&machine, None).await.expect("it is there");
    for _ in 0..3_600 {
        if story.site.get(&machine).await.is_none() {
            return;
        }
        story.sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} stays: {:?}", told_of(story, name));
}

async fn scale(story: &Story, replicas: u32) {
    let replicas = json!({"spec": {"replicas": replicas}});
    let scaled = story
        .site
        .patch(&named("MachineSet", "web"), None, replicas)
        .await;
    scaled.expect("the set is there");
}

async fn mcm_k03_a_class_that_is_deleted_stays_until_its_last_machine_was_deleted_by_it(on: &dyn Backend) {
    let story = begun(on).await;
    another(&story, "m-1").await;
    another(&story, "m-2").await;
    let done = told_of(&story, "m-2").len();
    story.delete().await;
    until_told(&story, "K03 settled").await;

    delete(&story, "m-1").await;
    story.between_passes().await;
    assert_eq!(story.object().await["metadata"]["finalizers"], json!([FINALIZER]));
    delete(&story, "m-2").await;
    until_gone(&story).await;
    story.settles().await;
    let all = [
        "K05 settled",
        "K01 settled",
        "K02 settled",
        "K03 settled",
        "K04 settled",
    ];
    assert_eq!(once(told(&story)), all);

    // Each step of the deletion had the class and its Secret.
    let machine = told_of(&story, "m-2");
    let lacks = |pass: &&String| ["R05", "R27x"].iter().any(|edge| pass.contains(*edge));
    assert_eq!(machine[done..].iter().find(lacks), None);
    assert_eq!(machine.last().map(String::as_str), Some("X40 settled"));
    assert!(story.site.vms().is_empty());
}

async fn mcm_k05_a_class_that_no_machine_uses_any_more_goes_at_once_though_a_set_names_it(on: &dyn Backend) {
    let story = begun(on).await;
    story.create(&mcm::set("web", 0)).await;
    scale(&story, 1).await;
    until_told(&story, "K01 settled").await;
    scale(&story, 0).await;
    until_told(&story, "K04 settled").await;
    story.between_passes().await;
    story.delete().await;
    assert_eq!(story.object().await, Value::Null);
    story.settles().await;
    let all = ["K05 settled", "K01 settled", "K04 settled"];
    assert_eq!(once(told(&story)), all);
    assert!(story.site.vms().is_empty());
}
