//! Bad input leads to a condition with a clear reason and a wait, without a call to the cloud.

use std::time::Duration;

use polity_core::contract::{Question, Request};
use polity_core::time::millis;
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    mcm_r04_a_machine_that_names_no_class_is_left_alone,
    mcm_r05_a_class_that_is_not_there_is_said_and_waited_for,
    mcm_r05_a_secret_without_its_key_is_said_and_waited_for,
    mcm_r29x_a_secret_that_appears_is_seen_within_half_a_minute_with_every_retry_policy,
    mcm_r05_a_missing_class_stops_a_deletion,
    mcm_r05_unless_the_binding_says_that_it_does_not,
}

/// A pass of a machine whose class cannot be used.
const LOOKS: &str = "R05 R29x after 20 s";

/// Nobody asked the cloud for anything, nor changed anything there.
fn assert_no_call(story: &Story) {
    for pass in story.passes() {
        for entry in pass.roles.iter().flat_map(|role| &role.journal) {
            let called = match &entry.request {
                Request::Ask(ask) => matches!(ask.question, Question::Cloud(_)),
                Request::Act(_) => true,
            };
            assert!(!called, "{:?}", entry.request);
        }
    }
}

fn problem(machine: &Value) -> (Value, Value, Value) {
    let condition = condition_of(machine, "ClassValid").cloned().unwrap_or_default();
    let part = |name: &str| condition[name].clone();
    (part("status"), part("reason"), part("message"))
}

async fn delete_class(story: &Story) {
    let class = reference(mcm::MCM, "MachineClass", Some("default"), "small");
    story.site.delete(&class, None).await.expect("it is there");
}

async fn mcm_r04_a_machine_that_names_no_class_is_left_alone(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let mut machine = machine();
    machine["spec"]["class"] = json!({});
    story.create(&machine).await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!(told(&story), ["R04 Long", "R04 Long"]);
    let status = story.object().await["status"].clone();
    assert_eq!(
        status.as_object().map(|status| status.len()),
        Some(1),
        "conditions alone: {status}"
    );
    assert_no_call(&story);
}

async fn mcm_r05_a_class_that_is_not_there_is_said_and_waited_for(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    delete_class(&story).await;
    story.create(&machine()).await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!(told(&story), [LOOKS, LOOKS]);
    let said = (
        json!("False"),
        json!("ClassMissing"),
        json!("MachineClass small does not exist"),
    );
    assert_eq!(problem(&story.object().await), said);
    assert_no_call(&story);

    // The class wakes the machine.
    let before = story.site.clock.now().boot;
    story.create(&mcm::class()).await;
    let valid = story.until("the class is seen", |machine| problem(machine).0 == "True");
    valid.await;
    assert!(millis(story.site.clock.now().boot - before) < 2_000);
    story.until_is(PHASE, "Running").await;
}

async fn mcm_r05_a_secret_without_its_key_is_said_and_waited_for(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let mut secret = mcm::user_data("");
    (secret["metadata"]["name"], secret["stringData"]) = (json!("other"), json!({"key": "x"}));
    story.create(&secret).await;
    let mut class = mcm::class();
    class["spec"]["secretRef"] = json!({"name": "other"});
    story.create(&class).await;
    story.create(&machine()).await;
    story.until_passes(|passes| passes.len() > 1).await;
    assert_eq!(told(&story), [LOOKS, LOOKS]);
    let said = (
        json!("False"),
        json!("SecretInvalid"),
        json!("Secret other lacks userData"),
    );
    assert_eq!(problem(&story.object().await), said);
    assert_no_call(&story);

    secret["stringData"] = json!({"userData": "#cloud-config\nruncmd: []"});
    story.create(&secret).await;
    story.until_is(PHASE, "Running").await;
}

async fn mcm_r29x_a_secret_that_appears_is_seen_within_half_a_minute_with_every_retry_policy(
    on: &dyn Backend,
) {
    for retry in [
        json!(null),
        json!({"file": "mcm_retry.wasm"}),
        json!({"file": "backoff_retry.wasm"}),
    ] {
        let mut machines = mcm::machines(json!({}));
        machines["spec"]["policies"]["retry"] = retry.clone();
        if retry.is_null() {
            let policies = machines["spec"]["policies"].as_object_mut().expect("policies");
            policies.remove("retry");
        }
        let story = begin_among(on, json!({}), vec![mcm::safeties(), machines], &machine()).await;
        let mut class = mcm::class();
        class["spec"]["secretRef"] = json!({"name": "later"});
        story.create(&class).await;
        story.create(&machine()).await;
        // Long enough for every retry policy to wait for minutes.
        story.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(problem(&story.object().await).2, "Secret later does not exist");
        let appears = story.site.clock.now().boot;
        let mut secret = mcm::user_data("#cloud-config");
        secret["metadata"]["name"] = "later".into();
        story.create(&secret).await;
        let seen = story.until("the Secret is seen", |machine| problem(machine).0 == "True");
        seen.await;
        let waited = millis(story.site.clock.now().boot - appears);
        assert!(waited < 30_000, "{retry}: {waited} ms");
    }
}

async fn mcm_r05_a_missing_class_stops_a_deletion(on: &dyn Backend) {
    let story = running(on, json!({}), json!({})).await;
    delete_class(&story).await;
    story
        .until("the class is missed", |machine| {
            problem(machine).1 == "ClassMissing"
        })
        .await;
    let done = story.passes().len();
    story.delete().await;
    story.until_passes(|passes| passes.len() > done + 1).await;
    assert_eq!(told(&story)[done..], [LOOKS, LOOKS]);
    assert_eq!(story.site.vms().len(), 1);
    story.create(&mcm::class()).await;
    until_gone(&story).await;
    assert!(story.site.vms().is_empty());
}

async fn mcm_r05_unless_the_binding_says_that_it_does_not(on: &dyn Backend) {
    let story = running(on, json!({}), json!({"deleteWithoutClass": true})).await;
    delete_class(&story).await;
    story.delete().await;
    until_gone(&story).await;
    assert_eq!(told(&story).last().map(String::as_str), Some("R27x X40 settled"));
    assert!(story.site.vms().is_empty());
}
