//! The whole life of a router, with a crash of the host right after each of its outputs: it neither makes a second VM
//! nor loses one.

use std::time::Duration;

use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::rug;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::network::*;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many looks at one turn of its life: an hour.
const LOOKS: u32 = 7_200;

/// Waits until this holds of the router; starts another host if the host has ended.
async fn until(story: &mut Story, what: &str, holds: impl Fn(&Value) -> bool) {
    for _ in 0..LOOKS {
        story.supervise().await;
        let router = story.object().await;
        assert!(story.site.vms().len() <= 1, "{:?}", story.site.vms());
        if holds(&router) {
            return;
        }
        story.sleep(LOOK_EVERY).await;
    }
    panic!(
        "{what}: not so: {:#}; its passes took {:?}",
        story.object().await,
        story.edges()
    );
}

/// Its VM is alive and configured, and nothing is left to do but to look again.
fn rests(router: &Value) -> bool {
    let status = &router["status"];
    status["machineState"] == "CALC_ACTION"
        && status["queue"] == json!([])
        && status["vm"] == "C"
        && status["observedGeneration"] == router["metadata"]["generation"]
}

/// Made, plugged, read, rebuilt, lost, and deleted; by a host that crashes right after so many outputs. How many outputs
/// that host made.
async fn lives(on: &dyn Backend, crash: Option<u64>) -> u64 {
    // Another host takes over once the lease of the first one is over: no VM is given up meanwhile.
    let configuration = json!({"healthCheckPeriod": "10s", "hotplugTimeout": "5m"});
    let mut story = begin(on, json!({}), configuration).await;
    let outputs = story.host.wire.outputs().clone();
    outputs.end_after(crash);
    story.create(&router()).await;
    until(&mut story, "it runs", rests).await;
    ports(&story, &[1, 2]).await;
    until(&mut story, "it is plugged", |router| {
        rests(router) && router["status"]["ports"] == json!([mac(1), mac(2)])
    })
    .await;
    request(&story, "read", "1").await;
    until(&mut story, "it is read", |router| {
        router["status"]["trafficTime"].is_string()
    })
    .await;
    request(&story, "rebuild", "1").await;
    let rebuilt = |router: &Value| rests(router) && router["status"]["rebuildRequest"] == "1";
    until(&mut story, "it is rebuilt", rebuilt).await;
    let lost = vm(&story, "r-1");
    rug::remove(&story.site, &lost);
    until(&mut story, "another VM runs", |router| {
        rests(router) && router["status"]["instance"] != *lost.id
    })
    .await;
    story.delete().await;
    until(&mut story, "it is gone", Value::is_null).await;
    assert_eq!(made(&story), 3, "{crash:?}: {:?}", story.edges());
    assert!(
        story.site.vms().is_empty() && taken(&story).is_empty(),
        "nothing is left"
    );
    assert!(crash.is_none_or(|crash| outputs.count() >= crash), "{crash:?}");
    outputs.count()
}

#[test]
fn a_crash_after_any_output_neither_makes_a_second_vm_nor_loses_one() {
    let outputs = std::cell::Cell::new(0);
    crate::scenarios::on_a_paused_runtime(async |on: &dyn Backend| outputs.set(lives(on, None).await), None);
    assert!(outputs.get() > 40, "{}", outputs.get());
    for nth in 1..=outputs.get() {
        crate::scenarios::on_a_paused_runtime(async |on: &dyn Backend| _ = lives(on, Some(nth)).await, None);
    }
}
