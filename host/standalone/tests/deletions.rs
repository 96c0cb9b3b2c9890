//! Deletion: finalizers, owners, namespaces, kinds, pods.

use crate::thing_fixture::{create, raw, refusal, thing, thing_resource, things, with_things};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

fn finalizers(names: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": names } })
}

fn owned_by(owner: &DynamicObject, blocks: bool) -> Value {
    json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "example.test/v1", "kind": "Thing", "name": owner.name_any(),
        "uid": owner.uid().unwrap(), "blockOwnerDeletion": blocks,
    }] } })
}

async fn names(api: &Api<DynamicObject>) -> Vec<String> {
    api.list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect()
}

#[tokio::test]
async fn a_finalizer_keeps_an_object_until_it_is_removed() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", finalizers(&["example.test/x"])).await;
    let deleting = api
        .delete("one", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some());
    assert_eq!(deleting.metadata.generation, Some(2));
    assert_eq!(deleting.metadata.deletion_grace_period_seconds, Some(0));

    let again = api
        .delete("one", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(
        again.resource_version(),
        deleting.resource_version(),
        "a second deletion changes nothing"
    );

    let more = finalizers(&["example.test/x", "example.test/y"]);
    let (code, message) = refusal(
        api.patch("one", &PatchParams::default(), &Patch::Merge(&more))
            .await,
    );
    assert_eq!(code, 422);
    assert!(message.contains("no new finalizers can be added"), "{message}");

    api.patch("one", &PatchParams::default(), &Patch::Merge(&finalizers(&[])))
        .await
        .unwrap();
    assert_eq!(refusal(api.get("one").await).0, 404);
}

#[tokio::test]
async fn an_empty_list_of_finalizers_is_none() {
    let client = with_things().await;
    let mut object = finalizers(&[]);
    object["metadata"]["annotations"] = json!({});
    create(&things(&client), "one", object).await;
    let path = "/apis/example.test/v1/namespaces/default/things/one";
    let (_, stored) = raw(&client, "GET", path, &[], "").await;
    let fields: Vec<&str> = stored["metadata"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = [
        "creationTimestamp",
        "generation",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn dependents_go_with_their_last_owner() {
    let client = with_things().await;
    let api = things(&client);
    let first = create(&api, "first", json!({})).await;
    let second = create(&api, "second", json!({})).await;
    create(&api, "child", owned_by(&first, false)).await;
    let child = api.get("child").await.unwrap();
    create(&api, "grandchild", owned_by(&child, false)).await;
    let mut both = owned_by(&first, false);
    let other = owned_by(&second, false)["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(other);
    create(&api, "shared", both).await;

    api.delete("first", &DeleteParams::background()).await.unwrap();
    assert_eq!(names(&api).await, ["second", "shared"]);
    let shared = api.get("shared").await.unwrap();
    assert_eq!(
        shared.owner_references().len(),
        1,
        "the reference to the owner that is gone is dropped"
    );
    api.delete("second", &DeleteParams::background()).await.unwrap();
    assert_eq!(names(&api).await, Vec::<String>::new());
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let client = with_things().await;
    let api = things(&client);
    let owner = create(&api, "owner", json!({})).await;
    create(&api, "child", owned_by(&owner, false)).await;
    api.delete("owner", &DeleteParams::orphan()).await.unwrap();
    assert_eq!(names(&api).await, ["child"]);
    assert!(api.get("child").await.unwrap().owner_references().is_empty());
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_blocking_dependents() {
    let client = with_things().await;
    let api = things(&client);
    let owner = create(&api, "owner", json!({})).await;
    let mut child = owned_by(&owner, true);
    child["metadata"]["finalizers"] = json!(["example.test/x"]);
    create(&api, "child", child).await;
    let deleting = api
        .delete("owner", &DeleteParams::foreground())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(deleting.finalizers(), ["foregroundDeletion"]);
    assert!(
        api.get("child")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    api.patch("child", &PatchParams::default(), &Patch::Merge(&finalizers(&[])))
        .await
        .unwrap();
    assert_eq!(names(&api).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_foreground_deletion_leaves_alone_what_another_owner_keeps() {
    let client = with_things().await;
    let api = things(&client);
    let keeper = create(&api, "keeper", json!({})).await;
    let owner = create(&api, "owner", json!({})).await;
    let mut both = owned_by(&keeper, true);
    let other = owned_by(&owner, true)["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(other);
    create(&api, "shared", both).await;
    create(&api, "own", owned_by(&owner, false)).await;

    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    assert_eq!(names(&api).await, ["keeper", "shared"]);
    let shared = api.get("shared").await.unwrap();
    assert_eq!(shared.metadata.deletion_timestamp, None);
    let owners: Vec<String> = shared
        .owner_references()
        .iter()
        .map(|owner| owner.name.clone())
        .collect();
    assert_eq!(owners, ["keeper"], "the other one no longer waits for it");
}

#[tokio::test]
async fn a_dependent_of_nobody_is_collected_and_one_of_an_unknown_kind_is_not() {
    let client = with_things().await;
    let api = things(&client);
    let owner = create(&api, "owner", json!({})).await;
    api.delete("owner", &DeleteParams::default()).await.unwrap();
    create(&api, "late", owned_by(&owner, false)).await;
    assert_eq!(refusal(api.get("late").await).0, 404);

    let mut foreign = owned_by(&owner, false);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = json!("elsewhere.test/v1");
    create(&api, "foreign", foreign).await;
    api.get("foreign").await.unwrap();
}

#[tokio::test]
async fn a_long_chain_of_owners_goes_at_once() {
    let client = with_things().await;
    let api = things(&client);
    let mut last = create(&api, "link-0", json!({})).await;
    for index in 1..2_000 {
        last = create(&api, &format!("link-{index}"), owned_by(&last, false)).await;
    }
    api.delete("link-0", &DeleteParams::default()).await.unwrap();
    assert_eq!(names(&api).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_goes_after_its_content() {
    let client = with_things().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } });
    let namespace = serde_json::from_value(namespace).unwrap();
    let created = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    assert_eq!(created.labels()["kubernetes.io/metadata.name"], "team");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "team", &thing_resource());
    create(&api, "plain", json!({})).await;
    create(&api, "kept", finalizers(&["example.test/x"])).await;

    let deleting = namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(deleting.status.unwrap().phase.as_deref(), Some("Terminating"));
    assert_eq!(names(&api).await, ["kept"]);
    let (code, message) = refusal(api.create(&PostParams::default(), &thing("new", json!({}))).await);
    assert_eq!(code, 403);
    assert!(message.contains("being terminated"), "{message}");

    api.patch("kept", &PatchParams::default(), &Patch::Merge(&finalizers(&[])))
        .await
        .unwrap();
    assert_eq!(refusal(namespaces.get("team").await).0, 404);
    assert_eq!(
        refusal(namespaces.delete("default", &DeleteParams::default()).await).0,
        403
    );
}

#[tokio::test]
async fn a_crd_waits_for_its_instances() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "plain", json!({})).await;
    create(&api, "kept", finalizers(&["example.test/x"])).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.test";
    raw(&client, "DELETE", path, &[], "").await;
    assert_eq!(names(&api).await, ["kept"]);
    api.patch("kept", &PatchParams::default(), &Patch::Merge(&finalizers(&[])))
        .await
        .unwrap();
    assert_eq!(raw(&client, "GET", path, &[], "").await.0, 404);
    assert_eq!(refusal(api.list(&ListParams::default()).await).0, 404);
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];

/// Status and reason of the condition `Terminating`.
fn terminating(crd: &Value) -> (&Value, &Value) {
    let conditions = crd["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|c| c["type"] == "Terminating").unwrap();
    (&found["status"], &found["reason"])
}

#[tokio::test]
async fn nothing_is_created_of_a_kind_whose_crd_is_being_deleted() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "kept", finalizers(&["example.test/x"])).await;
    let path = format!("{CRDS}/things.example.test");
    let own = finalizers(&["example.test/own"]).to_string();
    raw(&client, "PATCH", &path, &MERGE, &own).await;

    let (_, crd) = raw(&client, "DELETE", &path, &[], "").await;
    assert_eq!(
        terminating(&crd),
        (&json!("True"), &json!("InstanceDeletionInProgress"))
    );
    let kept = json!({ "metadata": { "labels": { "a": "b" } } });
    api.patch("kept", &PatchParams::default(), &Patch::Merge(&kept))
        .await
        .unwrap();
    let why = "things.example.test \"new\" is forbidden: create not allowed while custom resource definition is terminating";
    let created = api.create(&PostParams::default(), &thing("new", json!({}))).await;
    assert_eq!(refusal(created), (403, why.to_owned()));
    let mut unnamed = thing("", json!({ "metadata": { "generateName": "gen-" } }));
    unnamed.metadata.name = None;
    assert_eq!(refusal(api.create(&PostParams::default(), &unnamed).await).0, 403);
    let (_, resources) = raw(&client, "GET", "/apis/example.test/v1", &[], "").await;
    let verbs = json!(["delete", "deletecollection", "get", "list", "watch"]);
    assert_eq!(resources["resources"][0]["verbs"], verbs);

    api.patch("kept", &PatchParams::default(), &Patch::Merge(&finalizers(&[])))
        .await
        .unwrap();
    let (_, crd) = raw(&client, "GET", &path, &[], "").await;
    assert_eq!(
        terminating(&crd),
        (&json!("False"), &json!("InstanceDeletionCompleted"))
    );
    assert_eq!(crd["metadata"]["finalizers"], json!(["example.test/own"]));
    let created = api.create(&PostParams::default(), &thing("new", json!({}))).await;
    assert_eq!(refusal(created).0, 403);
    raw(&client, "PATCH", &path, &MERGE, &finalizers(&[]).to_string()).await;
    assert_eq!(raw(&client, "GET", &path, &[], "").await.0, 404);
}

#[tokio::test]
async fn a_crd_without_instances_does_not_wait_for_their_cleanup() {
    let client = with_things().await;
    let path = format!("{CRDS}/things.example.test");
    raw(
        &client,
        "PATCH",
        &path,
        &MERGE,
        &finalizers(&[CLEANUP]).to_string(),
    )
    .await;
    raw(&client, "DELETE", &path, &[], "").await;
    assert_eq!(raw(&client, "GET", &path, &[], "").await.0, 404);
}

#[tokio::test]
async fn a_collection_is_created_in_and_deleted_in_one_namespace() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let things = "/apis/example.test/v1/things";
    let body = json!({ "apiVersion": "example.test/v1", "kind": "Thing", "metadata": { "name": "two" } });
    // As in a real API server: a custom kind has no such path, a builtin kind has no such verb.
    for (path, code) in [(things, 404), ("/api/v1/configmaps", 405)] {
        assert_eq!(raw(&client, "DELETE", path, &[], "").await.0, code, "{path}");
        let (created, _) = raw(&client, "POST", path, &[], &body.to_string()).await;
        assert_eq!(created, code, "{path}");
    }
    assert_eq!(names(&api).await, ["one"]);
}

#[tokio::test]
async fn delete_options_that_make_no_sense_are_refused() {
    let client = with_things().await;
    let api = things(&client);
    let owner = create(&api, "owner", json!({})).await;
    create(&api, "child", owned_by(&owner, false)).await;
    let path = "/apis/example.test/v1/namespaces/default/things/owner";
    for (options, code, why) in [
        (
            json!({ "kind": "Thing", "apiVersion": "example.test/v1" }),
            400,
            "no kind \"Thing\"",
        ),
        (json!({ "gracePeriodSeconds": "soon" }), 400, "DeleteOptions"),
        (json!([]), 400, "DeleteOptions"),
        (
            json!({ "propagationPolicy": "Sideways" }),
            422,
            "propagationPolicy: Unsupported value",
        ),
        (
            json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": \
             orphanDependents and deletionPropagation cannot be both set",
        ),
    ] {
        for path in [path, "/apis/example.test/v1/namespaces/default/things"] {
            let (found, status) = raw(&client, "DELETE", path, &[], &options.to_string()).await;
            assert_eq!(found, code, "{options}: {status}");
            assert!(status["message"].as_str().unwrap().contains(why), "{status}");
        }
    }
    let both = format!("{path}?propagationPolicy=Orphan&orphanDependents=true");
    assert_eq!(raw(&client, "DELETE", &both, &[], "").await.0, 422);

    // As in a real API server: if there is a body, the options are read from it alone.
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "example.test/v1" });
    let orphan = format!("{path}?propagationPolicy=Orphan");
    assert_eq!(
        raw(&client, "DELETE", &orphan, &[], &options.to_string()).await.0,
        200
    );
    assert_eq!(names(&api).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_on_a_node_ends_gracefully() {
    let client = with_things().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = |name: &str, node: Value| -> Pod {
        let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    };
    pods.create(&PostParams::default(), &pod("pending", json!(null)))
        .await
        .unwrap();
    assert!(
        pods.delete("pending", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );

    pods.create(&PostParams::default(), &pod("running", json!("n1")))
        .await
        .unwrap();
    let ending = pods
        .delete("running", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    assert_eq!(
        ending.metadata.deletion_timestamp.unwrap().0.to_string(),
        "1970-01-01T00:00:30Z"
    );
    pods.delete("running", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(refusal(pods.get("running").await).0, 404);
}

#[tokio::test]
async fn a_grace_period_that_runs_is_only_ever_shortened() {
    let seconds = crate::thing_fixture::Seconds::default();
    let store = polity_standalone::Store::in_memory(seconds.clock(), [7; 16]);
    let client = crate::thing_fixture::client(std::sync::Arc::new(store));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let spec = json!({ "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] });
    let pod = json!({ "metadata": { "name": "p" }, "spec": spec });
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let ended = json!({ "status": { "phase": "Failed" } });
    let path = "/api/v1/namespaces/default/pods/p";
    // As in a real API server: the first deletion decides what a missing grace period means.
    for (wait, options, grace, end) in [
        (0, json!({ "gracePeriodSeconds": 60 }), 60, "1970-01-01T00:01:00Z"),
        (5, json!({}), 60, "1970-01-01T00:01:00Z"),
        (0, json!({ "gracePeriodSeconds": 90 }), 60, "1970-01-01T00:01:00Z"),
        (0, json!({ "gracePeriodSeconds": 20 }), 20, "1970-01-01T00:00:20Z"),
        (0, json!({}), 20, "1970-01-01T00:00:20Z"),
        (5, json!({ "gracePeriodSeconds": 3 }), 1, "1970-01-01T00:00:10Z"),
        (0, json!({ "gracePeriodSeconds": -5 }), 1, "1970-01-01T00:00:10Z"),
    ] {
        seconds.advance(wait);
        let (code, pod) = raw(&client, "DELETE", path, &[], &options.to_string()).await;
        let metadata = &pod["metadata"];
        assert_eq!(
            (
                code,
                &metadata["deletionGracePeriodSeconds"],
                &metadata["deletionTimestamp"]
            ),
            (200, &json!(grace), &json!(end)),
            "{options}"
        );
        pods.patch_status("p", &PatchParams::default(), &Patch::Merge(&ended))
            .await
            .unwrap();
    }
    raw(
        &client,
        "DELETE",
        path,
        &[],
        &json!({ "gracePeriodSeconds": 0 }).to_string(),
    )
    .await;
    assert_eq!(refusal(pods.get("p").await).0, 404);
}
