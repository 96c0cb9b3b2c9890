//! An API server silently drops fields that a CRD does not have. Nothing is done that rests on a dropped
//! value.

use polity_core::record::Outcome;
use polity_sim::Simulated as _;
use polity_tests::guests;
use polity_tests::simulation::bindings::MACHINES;
use polity_tests::stand::{Stand, condition_of, machine, machines, reference};
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
    let stand = Stand::with(vec![machines()]).await;
    stand.until_said("machines", "Loaded", "True", "").await;
    // Somebody replaces the CRD while the binding runs.
    stand.apply(&without("pending")).await;
    stand.apply(&machine("default", "vm")).await;
    stand
        .until_said("machines", "Kept", "False", "status.pending (of default/vm)")
        .await;
    let sims = stand.site.clouds.all();
    let sim = sims[0].simulation().expect("a simulated cloud");
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 0);
    let at = reference(MACHINES, "Machine", Some("default"), "vm");
    assert_eq!(stand.get(&at).await["status"]["pending"], Value::Null);

    // With the field back it goes on: nobody has to touch the object.
    let policy = guests::load("capv-machine");
    stand
        .apply(policy.manifest().crds().next().expect("it has one"))
        .await;
    stand.until_machines_run().await;
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_creates_is_not_loaded_while_the_crd_in_the_cluster_has_no_status_pending() {
    let stand = Stand::with(Vec::new()).await;
    stand.apply(&without("pending")).await;
    // What a person applies with kubectl, while a CRD of their own stands.
    stand.apply(&machines()).await;
    stand
        .until_said(
            "machines",
            "Loaded",
            "False",
            "machines.capv.polity.dev in the cluster",
        )
        .await;
    let policy = guests::load("capv-machine");
    stand
        .apply(policy.manifest().crds().next().expect("it has one"))
        .await;
    stand.until_said("machines", "Loaded", "True", "").await;
    stand.apply(&machine("default", "vm")).await;
    stand.until_machines_run().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_the_crd_lacks_is_reported_and_not_written_in_every_pass() {
    let stand = Stand::with(vec![machines()]).await;
    stand.apply(&without("biosUUID")).await;
    stand.apply(&machine("default", "vm")).await;
    stand
        .until_said("machines", "Kept", "False", "status.biosUUID (of default/vm)")
        .await;
    stand.until_machines_run().await;
    let patches = || {
        let requests = stand.host.wire.requests();
        requests
            .iter()
            .filter(|request| request.contains("/machines/vm/status"))
            .count()
    };
    let passes = stand.host.passes_of("vm").len();
    let before = patches();
    // Ten passes more, each of which finds the field missing.
    let mut asked = machine("default", "vm");
    for nonce in 0..10 {
        asked["metadata"]["annotations"] = json!({"request.polity.dev/look": nonce.to_string()});
        stand.apply(&asked).await;
        stand
            .until_passed("vm", passes + nonce, &Outcome::Published)
            .await;
    }
    assert!(patches() <= before + 1, "{before}, then {}", patches());
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_newer_host_is_kept_and_nothing_is_created_beside_it() {
    let stand = Stand::with(vec![machines()]).await;
    let at = reference(MACHINES, "Machine", Some("default"), "vm");
    let mut object = machine("default", "vm");
    object["spec"]["template"] = "ubuntu".into();
    object["metadata"]["annotations"] = json!({"capv.polity.dev/maintenance": "true"});
    stand.apply(&object).await;
    let newer = json!({"operation": "vm.clone", "intent": "vm", "key": "k", "since": 1, "service": "vm@1", "stamp": 1,
        "place": ["sim"], "principal": "host", "cell": 7});
    stand.write_status(&at, &json!({"pending": [newer]})).await;
    object["metadata"]["annotations"]["capv.polity.dev/maintenance"] = Value::Null;
    stand.apply(&object).await;
    let condition = stand
        .until("the host's condition", async || {
            condition_of(&stand.get(&at).await, "polity.dev/PendingUnreadable").cloned()
        })
        .await;
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("status.pending[0]: unknown field `cell`"),
        "{message}"
    );
    assert_eq!(stand.get(&at).await["status"]["pending"], json!([newer]));
    let sims = stand.site.clouds.all();
    let sim = sims[0].simulation().expect("a simulated cloud");
    assert_eq!(sim.inspect(|sim, now| sim.vms(now).len()), 0);
}
