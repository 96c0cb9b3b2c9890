//! Objects with errors, and objects that name things of others.

use std::time::Duration;

use polity_core::contract::Code;
use polity_core::record::{Outcome, PassRecord};
use polity_sim::VmView;
use polity_tests::host_fixture::{HostFixture, condition_of, machine, machines, reference};
use polity_tests::simulation::bindings::MACHINES;
use serde_json::{Value, json};

async fn get(fixture: &HostFixture, namespace: &str, name: &str) -> Value {
    fixture
        .get(&reference(MACHINES, "Machine", Some(namespace), name))
        .await
}

async fn namespace(fixture: &HostFixture, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    fixture.apply(&namespace).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_satisfy_its_schema_is_rejected_with_the_path() {
    let fixture = HostFixture::with(vec![machines()]).await;
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
        let refused = fixture.try_apply(&bad).await.expect_err(path);
        assert!(refused.contains(path), "{path}: {refused}");
        assert_eq!(get(&fixture, "default", "bad").await, Value::Null, "{path}");
    }
    assert!(fixture.host.passes_of("bad").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_policy_cannot_decode_says_so_itself_and_is_no_crash_loop() {
    let fixture = HostFixture::with(vec![machines()]).await;
    // A definition that is laxer than the policy: another version of it, say, or edited by hand.
    let crd = reference(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "machines.capv.polity.dev",
    );
    let mut lax = fixture.get(&crd).await;
    let spec = &mut lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["numCPUs"] = json!({"type": "string"});
    fixture.apply(&json!({
        "apiVersion": lax["apiVersion"], "kind": lax["kind"], "metadata": {"name": "machines.capv.polity.dev"},
        "spec": lax["spec"],
    })).await;
    let mut odd = machine("default", "odd");
    odd["spec"]["numCPUs"] = json!("many");
    fixture.apply(&odd).await;
    fixture.apply(&machine("default", "even")).await;

    let said = fixture
        .until("the condition", async || {
            condition_of(&get(&fixture, "default", "odd").await, "polity.dev/Undecodable").cloned()
        })
        .await;
    assert_eq!(said["status"], "True");
    let message = said["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.numCPUs"), "{message}");
    fixture.until_machines_run_but("odd").await;

    let passes = fixture.host.passes_of("odd");
    assert!(
        passes.iter().all(|pass| pass.outcome == Outcome::Published),
        "no fault: {passes:#?}"
    );
    let waits: Vec<Duration> = passes.iter().filter_map(|pass| pass.wait).collect();
    assert!(
        waits.is_sorted() && waits.last() >= Some(&Duration::from_mins(1)),
        "it is tried less and less: {waits:?}"
    );
    fixture.until_said("machines", "Healthy", "True", "").await;

    // Mended, it goes its way and the condition is gone.
    odd["spec"]["numCPUs"] = Value::Null;
    fixture.apply(&odd).await;
    fixture.until_machines_run().await;
    let mended = get(&fixture, "default", "odd").await;
    assert_eq!(condition_of(&mended, "polity.dev/Undecodable"), None, "{mended}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_name_is_taken_gets_its_vm_once_the_other_is_gone() {
    let fixture = HostFixture::with(vec![machines()]).await;
    namespace(&fixture, "first").await;
    namespace(&fixture, "second").await;
    fixture.apply(&machine("first", "web")).await;
    fixture.until_machines_run().await;
    fixture.apply(&machine("second", "web")).await;
    fixture
        .until("the name is taken", async || {
            let second = get(&fixture, "second", "web").await;
            (second["status"]["phase"] == "NameTaken").then_some(())
        })
        .await;
    fixture
        .delete(&reference(MACHINES, "Machine", Some("first"), "web"))
        .await;
    fixture
        .until("the second one runs", async || {
            let second = get(&fixture, "second", "web").await;
            (second["status"]["phase"] == "Running").then_some(())
        })
        .await;
    assert_eq!(fixture.site.vms().len(), 1);
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
    let fixture = HostFixture::with(vec![machines()]).await;
    namespace(&fixture, "owner").await;
    namespace(&fixture, "thief").await;
    fixture.apply(&machine("owner", "web")).await;
    fixture.until_machines_run().await;
    let [vm]: [VmView; 1] = fixture.site.vms().try_into().expect("one VM");
    let owner = get(&fixture, "owner", "web").await;
    let (uid, task) = (owner["metadata"]["uid"].clone(), json!("task-1"));

    // By everything that a tenant writes: the name, labels, annotations, and a field that no Machine has.
    let mut thief = machine("thief", "web");
    thief["metadata"]["labels"] = json!({"capv.polity.dev/vm": vm.id, "capv.polity.dev/uid": uid});
    thief["metadata"]["annotations"] =
        json!({"capv.polity.dev/vm": vm.id, "capv.polity.dev/instance-uuid": uid});
    let mut with_field = thief.clone();
    with_field["spec"]["machineRef"] = json!(vm.id);
    let refused = fixture.try_apply(&with_field).await.expect_err("no such field");
    assert!(refused.contains("spec.machineRef"), "{refused}");
    fixture.apply(&thief).await;
    let refused = fixture
        .until("the failure of the clone", async || {
            let thief = get(&fixture, "thief", "web").await;
            let condition = condition_of(&thief, "VMProvisioned")?;
            (condition["reason"] == "NameTaken").then(|| condition["message"].to_string())
        })
        .await;
    assert!(refused.contains("web"), "the name is taken: {refused}");
    assert_eq!(
        get(&fixture, "thief", "web").await["status"]["machineRef"],
        Value::Null
    );

    // A tenant who may write the status gets no further.
    for status in [
        json!({"machineRef": vm.id}),
        json!({"taskRef": task, "taskKind": "clone"}),
    ] {
        let before = fixture.host.passes_of("web").len();
        fixture
            .write_status(&reference(MACHINES, "Machine", Some("thief"), "web"), &status)
            .await;
        fixture
            .until("a refusal", async || {
                let passes = fixture.host.passes_of("web").into_iter().skip(before);
                passes
                    .into_iter()
                    .find(|pass| pass.key.namespace.as_deref() == Some("thief") && was_refused(pass))
            })
            .await;
    }
    let back = json!({"machineRef": vm.id, "taskRef": null, "taskKind": null});
    fixture
        .write_status(&reference(MACHINES, "Machine", Some("thief"), "web"), &back)
        .await;
    let before = fixture.host.passes_of("web").len();
    fixture
        .delete(&reference(MACHINES, "Machine", Some("thief"), "web"))
        .await;
    fixture
        .until("a refusal to tear it down", async || {
            let passes = fixture.host.passes_of("web").into_iter().skip(before);
            passes
                .into_iter()
                .find(|pass| pass.key.namespace.as_deref() == Some("thief") && was_refused(pass))
        })
        .await;

    assert_eq!(fixture.site.vms(), [vm], "untouched");
    let seen = get(&fixture, "owner", "web").await;
    assert_eq!(seen["status"]["phase"], "Running");
    assert_eq!(seen["metadata"]["uid"], owner["metadata"]["uid"]);
}
