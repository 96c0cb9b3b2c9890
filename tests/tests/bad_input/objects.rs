//! Objects with errors, and objects that name things of others.

use std::time::Duration;

use polity_core::contract::Code;
use polity_core::record::{Outcome, PassRecord};
use polity_sim::VmView;
use polity_tests::simulation::bindings::MACHINES;
use polity_tests::stand::{Stand, condition_of, machine, machines, reference};
use serde_json::{Value, json};

async fn get(stand: &Stand, namespace: &str, name: &str) -> Value {
    stand
        .get(&reference(MACHINES, "Machine", Some(namespace), name))
        .await
}

async fn namespace(stand: &Stand, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    stand.apply(&namespace).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_satisfy_its_schema_is_rejected_with_the_path() {
    let stand = Stand::with(vec![machines()]).await;
    let device = |device: Value| json!({"template": "ubuntu", "network": {"devices": [device]}});
    let cases = [
        ("spec.numCPUs", json!({"template": "ubuntu", "numCPUs": "two"})),
        ("spec.template", json!({"numCPUs": 2})),
        (
            "spec.tempalte",
            json!({"template": "ubuntu", "tempalte": "ubuntu"}),
        ),
        (
            "spec.network.devices[0].networkName",
            device(json!({"networkName": 7})),
        ),
        (
            "spec.network.devices[0].mtu",
            device(json!({"networkName": "net", "mtu": -1})),
        ),
    ];
    for (path, spec) in cases {
        let mut bad = machine("default", "bad");
        bad["spec"] = spec;
        let refused = stand.try_apply(&bad).await.expect_err(path);
        assert!(refused.contains(path), "{path}: {refused}");
        assert_eq!(get(&stand, "default", "bad").await, Value::Null, "{path}");
    }
    assert!(stand.host.passes_of("bad").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_policy_cannot_decode_says_so_itself_and_is_no_crash_loop() {
    let stand = Stand::with(vec![machines()]).await;
    // A definition that is laxer than the policy: another version of it, say, or edited by hand.
    let crd = reference(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "machines.capv.polity.dev",
    );
    let mut lax = stand.get(&crd).await;
    let spec = &mut lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["numCPUs"] = json!({"type": "string"});
    stand.apply(&json!({
        "apiVersion": lax["apiVersion"], "kind": lax["kind"], "metadata": {"name": "machines.capv.polity.dev"},
        "spec": lax["spec"],
    })).await;
    let mut odd = machine("default", "odd");
    odd["spec"]["numCPUs"] = json!("many");
    stand.apply(&odd).await;
    stand.apply(&machine("default", "even")).await;

    let said = stand
        .until("the condition", async || {
            condition_of(&get(&stand, "default", "odd").await, "polity.dev/Undecodable").cloned()
        })
        .await;
    assert_eq!(said["status"], "True");
    let message = said["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.numCPUs"), "{message}");
    stand.until_machines_run_but("odd").await;

    let passes = stand.host.passes_of("odd");
    assert!(
        passes.iter().all(|pass| pass.outcome == Outcome::Published),
        "no fault: {passes:#?}"
    );
    let waits: Vec<Duration> = passes.iter().filter_map(|pass| pass.wait).collect();
    assert!(
        waits.is_sorted() && waits.last() >= Some(&Duration::from_mins(1)),
        "it is tried less and less: {waits:?}"
    );
    stand.until_said("machines", "Healthy", "True", "").await;

    // Mended, it goes its way and the condition is gone.
    odd["spec"]["numCPUs"] = Value::Null;
    stand.apply(&odd).await;
    stand.until_machines_run().await;
    let mended = get(&stand, "default", "odd").await;
    assert_eq!(condition_of(&mended, "polity.dev/Undecodable"), None, "{mended}");
}

/// Whether the cloud told a pass that something is not its own.
fn was_refused(pass: &PassRecord) -> bool {
    let refused = |answer: &Result<_, polity_core::contract::Failure>| matches!(answer, Err(failure) if failure.code == Code::PermissionDenied);
    pass.roles
        .iter()
        .flat_map(|role| &role.journal)
        .any(|entry| refused(&entry.answer))
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_names_the_vm_of_another_tenant_is_refused_and_that_vm_is_untouched() {
    let stand = Stand::with(vec![machines()]).await;
    namespace(&stand, "owner").await;
    namespace(&stand, "thief").await;
    stand.apply(&machine("owner", "web")).await;
    stand.until_machines_run().await;
    let [vm]: [VmView; 1] = stand.site.vms().try_into().expect("one VM");
    let owner = get(&stand, "owner", "web").await;
    let (uid, task) = (owner["metadata"]["uid"].clone(), json!("task-1"));

    // By everything that a tenant writes: the name, labels, annotations, and a field that no Machine has.
    let mut thief = machine("thief", "web");
    thief["metadata"]["labels"] = json!({"capv.polity.dev/vm": vm.id, "capv.polity.dev/uid": uid});
    thief["metadata"]["annotations"] =
        json!({"capv.polity.dev/vm": vm.id, "capv.polity.dev/instance-uuid": uid});
    let mut with_field = thief.clone();
    with_field["spec"]["machineRef"] = json!(vm.id);
    let refused = stand.try_apply(&with_field).await.expect_err("no such field");
    assert!(refused.contains("spec.machineRef"), "{refused}");
    stand.apply(&thief).await;
    let refused = stand
        .until("the failure of the clone", async || {
            let thief = get(&stand, "thief", "web").await;
            let condition = condition_of(&thief, "VMProvisioned")?;
            (condition["reason"] == "TaskFailed").then(|| condition["message"].to_string())
        })
        .await;
    assert!(refused.contains("web"), "the name is taken: {refused}");
    assert_eq!(
        get(&stand, "thief", "web").await["status"]["machineRef"],
        Value::Null
    );

    // Even whoever may write the status gets nowhere.
    for status in [
        json!({"machineRef": vm.id}),
        json!({"taskRef": task, "taskKind": "clone"}),
    ] {
        let before = stand.host.passes_of("web").len();
        stand
            .write_status(&reference(MACHINES, "Machine", Some("thief"), "web"), &status)
            .await;
        stand
            .until("a refusal", async || {
                let passes = stand.host.passes_of("web").into_iter().skip(before);
                passes
                    .into_iter()
                    .find(|pass| pass.key.namespace.as_deref() == Some("thief") && was_refused(pass))
            })
            .await;
    }
    let back = json!({"machineRef": vm.id, "taskRef": null, "taskKind": null});
    stand
        .write_status(&reference(MACHINES, "Machine", Some("thief"), "web"), &back)
        .await;
    let before = stand.host.passes_of("web").len();
    stand
        .delete(&reference(MACHINES, "Machine", Some("thief"), "web"))
        .await;
    stand
        .until("a refusal to tear it down", async || {
            let passes = stand.host.passes_of("web").into_iter().skip(before);
            passes
                .into_iter()
                .find(|pass| pass.key.namespace.as_deref() == Some("thief") && was_refused(pass))
        })
        .await;

    assert_eq!(stand.site.vms(), [vm], "untouched");
    let seen = get(&stand, "owner", "web").await;
    assert_eq!(seen["status"]["phase"], "Running");
    assert_eq!(seen["metadata"]["uid"], owner["metadata"]["uid"]);
}
