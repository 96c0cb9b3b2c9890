//! An API server silently drops fields that a CRD does not have. Nothing is done that rests on a dropped
//! value.

use polity_core::record::Outcome;
use polity_sim::Simulated as _;
use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, condition_of, machine, machines, reference};
use polity_tests::simulation::bindings::MACHINES;
use serde_json::{Value, json};

/// The CRD of Machines, its status without a field.
fn without(field: &str) -> Value {
    let policy = guests::load("capv-machine");
    let mut crd = policy.manifest().crds().next().expect("it has one").clone();
    let versions = crd["spec"]["versions"].as_array_mut().expect("versions");
    for version in versions {
        let status = &mut version["schema"]["openAPIV3Schema"]["properties"]["status"];
        let fields = status["properties"].as_object_mut().expect("fields");
        fields.remove(field).expect("it is there");
        if let Some(required) = status.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name != field);
        }
    }
    crd
}

#[tokio::test(start_paused = true)]
async fn without_status_pending_in_the_cluster_nothing_is_created_and_the_binding_says_why() {
    let fixture = HostFixture::with(vec![machines()]).await;
    fixture.until_said("machines", "Loaded", "True", "").await;
    // Somebody replaces the CRD while the binding runs.
    fixture.apply(&without("pending")).await;
    fixture.apply(&machine("default", "vm")).await;
    fixture
        .until_said("machines", "Kept", "False", "status.pending (of default/vm)")
        .await;
    let sims = fixture.site.clouds.all();
    let sim = sims[0].simulation().expect("a simulated cloud");
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 0);
    let at = reference(MACHINES, "Machine", Some("default"), "vm");
    assert_eq!(fixture.get(&at).await["status"]["pending"], Value::Null);

    // With the field back it goes on: nobody has to touch the object.
    let policy = guests::load("capv-machine");
    fixture
        .apply(policy.manifest().crds().next().expect("it has one"))
        .await;
    fixture.until_machines_run().await;
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_creates_is_not_loaded_while_the_crd_in_the_cluster_has_no_status_pending() {
    let fixture = HostFixture::with(Vec::new()).await;
    fixture.apply(&without("pending")).await;
    // What a person applies with kubectl, while a CRD of their own stands.
    fixture.apply(&machines()).await;
    fixture
        .until_said(
            "machines",
            "Loaded",
            "False",
            "machines.capv.polity.dev in the cluster",
        )
        .await;
    let policy = guests::load("capv-machine");
    fixture
        .apply(policy.manifest().crds().next().expect("it has one"))
        .await;
    fixture.until_said("machines", "Loaded", "True", "").await;
    fixture.apply(&machine("default", "vm")).await;
    fixture.until_machines_run().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_the_crd_lacks_is_reported_and_not_written_in_every_pass() {
    let fixture = HostFixture::with(vec![machines()]).await;
    fixture.apply(&without("biosUUID")).await;
    fixture.apply(&machine("default", "vm")).await;
    fixture
        .until_said("machines", "Kept", "False", "status.biosUUID (of default/vm)")
        .await;
    fixture.until_machines_run().await;
    let patches = || {
        let requests = fixture.host.wire.requests();
        requests
            .iter()
            .filter(|request| request.contains("/machines/vm/status"))
            .count()
    };
    let passes = fixture.host.passes_of("vm").len();
    let before = patches();
    // Ten passes more, each of which finds the field missing.
    let mut asked = machine("default", "vm");
    for nonce in 0..10 {
        asked["metadata"]["annotations"] = json!({"request.polity.dev/look": nonce.to_string()});
        fixture.apply(&asked).await;
        fixture
            .until_passed("vm", passes + nonce, &Outcome::Published)
            .await;
    }
    assert!(patches() <= before + 1, "{before}, then {}", patches());
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_newer_host_is_kept_and_nothing_is_created_beside_it() {
    let fixture = HostFixture::with(vec![machines()]).await;
    let at = reference(MACHINES, "Machine", Some("default"), "vm");
    let mut object = machine("default", "vm");
    object["spec"]["template"] = "ubuntu".into();
    object["metadata"]["annotations"] = json!({"capv.polity.dev/maintenance": "true"});
    fixture.apply(&object).await;
    let newer = json!({"operation": "vm.clone", "intent": "vm", "key": "k", "since": 1, "service": "vm@1", "stamp": 1,
        "place": ["sim"], "principal": "host", "cell": 7});
    fixture.write_status(&at, &json!({"pending": [newer]})).await;
    object["metadata"]["annotations"]["capv.polity.dev/maintenance"] = Value::Null;
    fixture.apply(&object).await;
    let condition = fixture
        .until("the host's condition", async || {
            condition_of(&fixture.get(&at).await, "polity.dev/PendingUnreadable").cloned()
        })
        .await;
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("status.pending[0]: unknown field `cell`"),
        "{message}"
    );
    assert_eq!(fixture.get(&at).await["status"]["pending"], json!([newer]));
    let sims = fixture.site.clouds.all();
    let sim = sims[0].simulation().expect("a simulated cloud");
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 0);
}
