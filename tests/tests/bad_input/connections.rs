//! Connections whose driver does not fit, and those that are deleted while they are needed.

use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, condition_of, machines, reference};
use polity_tests::host_harness::mcm;
use serde_json::{Value, json};

/// Reaches a cloud through the misbehaving driver, which has `machine.*` and nothing else.
fn connection() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "CloudConnection", "metadata": {"name": "away"},
        "spec": {
            "driver": {"file": "hostile-driver.wasm", "configuration": {"steps": []}},
            "endpoints": {"api": "http://127.0.0.1:9"},
            "credentials": {"namespace": "default", "name": "none"},
        },
    })
}

/// Governs Machines of Gardener through it.
fn gardened() -> Value {
    let mut binding = mcm::machines(json!({}));
    binding["metadata"]["name"] = json!("gardened");
    binding["spec"]["cloud"] = json!({"name": "away"});
    binding["spec"]["policies"] = json!({"lifecycle": {"file": "mcm-machine.wasm"}});
    binding
}

/// A host with the connection and this binding.
async fn gardening() -> HostFixture {
    let fixture = HostFixture::with(vec![machines()]).await;
    let policy = std::fs::read(guests::folder().join("mcm_machine.wasm"));
    fixture.put("mcm-machine.wasm", &policy.expect("it is compiled"));
    for crd in guests::load("mcm_machine").manifest().crds() {
        fixture.apply(crd).await;
    }
    fixture.apply(&connection()).await;
    fixture.apply(&gardened()).await;
    loaded(&fixture, "gardened", "True", "Loaded").await;
    fixture
}

async fn loaded(fixture: &HostFixture, binding: &str, status: &str, reason: &str) -> String {
    let what = reference("polity.dev/v1alpha1", "PolicyBinding", None, binding);
    fixture
        .until(&format!("{binding} is {reason}"), async || {
            let binding = fixture.get(&what).await;
            let loaded = condition_of(&binding, "Loaded")?;
            let message = loaded["message"].as_str().unwrap_or_default().to_owned();
            (loaded["status"] == status && loaded["reason"] == reason).then_some(message)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_not_loaded_if_a_driver_lacks_what_it_needs_but_for_what_drivers_may_leave_out() {
    let fixture = gardening().await;
    let mut binding = machines();
    binding["spec"]["cloud"] = json!({"name": "away"});
    fixture.apply(&binding).await;
    let message = loaded(&fixture, "machines", "False", "Incompatible").await;
    assert_eq!(
        message,
        "spec.cloud: capv-machine needs task.get, vm.find, vm.get, vm.metadata, vm.nics, vm.power, vm.clone, vm.reconfigure, \
         vm.power-on, vm.power-off, vm.destroy, which the cloud away does not have"
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_waits_while_it_would_not_find_what_the_one_before_it_created() {
    let fixture = gardening().await;
    let name = reference(mcm::MCM, "Machine", Some("default"), "doubtful");
    fixture.apply(&mcm::machine("doubtful")).await;
    let entry = json!({
        "operation": "machine.create", "service": "machine@1", "intent": "doubtful", "key": "k-1", "stamp": 1,
        "place": ["elsewhere"], "principal": "somebody", "since": 1_767_225_600_000_u64,
    });
    fixture.write_status(&name, &json!({"pending": [entry]})).await;
    fixture.put(
        "hostile-driver.wasm",
        &guests::hostile_driver_with(&json!({"stamp": 2, "stamps": [2]})),
    );
    let message = loaded(&fixture, "gardened", "False", "CannotLoad").await;
    assert_eq!(
        message,
        "spec.cloud: CloudConnection away: spec.driver: the driver does not find stamp 1, which entries in status.pending have: \
         the driver before it goes on until these entries are resolved"
    );
    fixture.write_status(&name, &json!({"pending": null})).await;
    loaded(&fixture, "gardened", "True", "Loaded").await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_deleted_is_there_until_nobody_needs_it() {
    let fixture = gardening().await;
    let away = reference("polity.dev/v1alpha1", "CloudConnection", None, "away");
    let name = reference(mcm::MCM, "Machine", Some("default"), "doubtful");
    fixture.apply(&mcm::machine("doubtful")).await;
    let entry = json!({
        "operation": "machine.create", "service": "machine@1", "intent": "doubtful", "key": "k-1", "stamp": 1,
        "place": ["hostile", "x"], "principal": "somebody", "since": 1_767_225_600_000_u64,
    });
    fixture.write_status(&name, &json!({"pending": [entry]})).await;
    fixture.write_status(&away, &json!({"place": "hostile"})).await;
    // A second binding of Machines, of another cloud, goes on when the first one is gone.
    let mut beside = gardened();
    beside["metadata"]["name"] = json!("beside");
    beside["spec"]["cloud"] = json!({"name": "sim"});
    fixture.apply(&beside).await;
    loaded(&fixture, "beside", "True", "Loaded").await;

    fixture.delete(&away).await;
    let needed = async |words: &str| {
        let what = format!("it is kept because {words}");
        fixture
            .until(&what, async || {
                let connection = fixture.get(&away).await;
                let needs = condition_of(&connection, "InUse")?;
                needs["message"].as_str()?.contains(words).then_some(())
            })
            .await;
    };
    needed("PolicyBinding gardened names it").await;
    // What uses it goes on with it.
    loaded(&fixture, "gardened", "True", "Loaded").await;
    let binding = reference("polity.dev/v1alpha1", "PolicyBinding", None, "gardened");
    fixture.delete(&binding).await;
    needed("an entry in status.pending of Machine default/doubtful").await;
    fixture.write_status(&name, &json!({"pending": null})).await;
    fixture
        .until("it is gone", async || {
            fixture.get(&away).await.is_null().then_some(())
        })
        .await;
}
