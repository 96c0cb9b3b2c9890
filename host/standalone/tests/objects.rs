//! Objects through a real client: create, read, update, patch, delete.

use crate::thing_fixture::{Events, create, raw, refusal, thing, things, with_things};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams},
};
use serde_json::json;

#[tokio::test]
async fn a_custom_object_lives_from_create_to_delete() {
    let client = with_things().await;
    let api = things(&client);
    let created = create(&api, "one", json!({})).await;
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.data["spec"]["color"], "red", "defaults are filled in");
    assert_eq!(
        created
            .metadata
            .creation_timestamp
            .as_ref()
            .unwrap()
            .0
            .to_string(),
        "1970-01-01T00:00:00Z"
    );

    let listed = api.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.clone().unwrap();
    let mut events = Events::of(&api, &WatchParams::default(), &version).await;

    let patch = json!({ "spec": { "size": 2 } });
    let patched = api
        .patch("one", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(patched.metadata.generation, Some(2));
    assert_eq!(events.next().await, "MODIFIED one");

    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(events.next().await, "DELETED one");
    let (code, message) = refusal(api.get("one").await);
    assert_eq!(
        (code, message.as_str()),
        (404, "things.example.test \"one\" not found")
    );
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_resource_version() {
    let client = with_things().await;
    let api = things(&client);
    let created = create(&api, "one", json!({})).await;
    let patch = json!({ "spec": { "size": 1 } });
    let same = api
        .patch("one", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(same.metadata.resource_version, created.metadata.resource_version);
    let same = api
        .replace("one", &PostParams::default(), &created)
        .await
        .unwrap();
    assert_eq!(same.metadata.resource_version, created.metadata.resource_version);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let client = with_things().await;
    let api = things(&client);
    let created = create(&api, "one", json!({ "status": { "phase": "Forged" } })).await;
    assert_eq!(created.data.get("status"), None, "a new object has no status");

    let patch = json!({ "status": { "phase": "Ready" }, "spec": { "size": 9 } });
    let patched = api
        .patch_status("one", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(patched.data["status"]["phase"], "Ready");
    assert_eq!(patched.data["spec"]["size"], 1);
    assert_eq!(
        patched.metadata.generation,
        Some(1),
        "the generation counts changes of the spec"
    );

    let patched = api
        .patch(
            "one",
            &PatchParams::default(),
            &Patch::Merge(&json!({ "status": null })),
        )
        .await;
    assert_eq!(patched.unwrap().data["status"]["phase"], "Ready");
    assert_eq!(
        api.get_status("one").await.unwrap().data["status"]["phase"],
        "Ready"
    );
}

#[tokio::test]
async fn a_write_based_on_an_old_version_conflicts() {
    let client = with_things().await;
    let api = things(&client);
    let old = create(&api, "one", json!({})).await;
    let size = |n: i32| json!({ "spec": { "size": n } });
    api.patch("one", &PatchParams::default(), &Patch::Merge(&size(2)))
        .await
        .unwrap();

    let (code, message) = refusal(api.replace("one", &PostParams::default(), &old).await);
    assert_eq!(code, 409);
    assert!(message.contains("the object has been modified"), "{message}");
    let mut stale = size(3);
    stale["metadata"] = json!({ "resourceVersion": old.resource_version() });
    assert_eq!(
        refusal(
            api.patch("one", &PatchParams::default(), &Patch::Merge(&stale))
                .await
        )
        .0,
        409
    );
    let other = json!({ "metadata": { "uid": "someone-else" }, "spec": { "size": 3 } });
    let (code, message) = refusal(
        api.patch("one", &PatchParams::default(), &Patch::Merge(&other))
            .await,
    );
    assert_eq!(code, 422, "a patch cannot change a uid, as in a real API server");
    assert!(message.contains("metadata.uid"), "{message}");
    let mut other = api.get("one").await.unwrap();
    other.metadata.uid = Some("someone-else".to_owned());
    let (code, message) = refusal(api.replace("one", &PostParams::default(), &other).await);
    assert_eq!(code, 409, "in a replacement it is a precondition");
    assert!(message.contains("UID in precondition: someone-else"), "{message}");

    let mut unversioned = old.clone();
    unversioned.metadata.resource_version = None;
    let (code, message) = refusal(api.replace("one", &PostParams::default(), &unversioned).await);
    assert_eq!(code, 422);
    assert!(message.contains("metadata.resourceVersion"), "{message}");
}

const THINGS: &str = "/apis/example.test/v1/namespaces/default/things";
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];
const JSON_PATCH: [(&str, &str); 1] = [("content-type", "application/json-patch+json")];

#[tokio::test]
async fn a_change_keeps_the_name_of_its_object() {
    let client = with_things().await;
    create(&things(&client), "one", json!({})).await;
    let one = format!("{THINGS}/one");
    let (_, stored) = raw(&client, "GET", &one, &[], "").await;
    let missing = "the name of the object (one based on URL) was undeterminable: name must be provided";
    let other = "the name of the object (two) does not match the name on the URL (one)";
    for (name, why) in [
        (json!(null), missing),
        (json!(""), missing),
        (json!("two"), other),
    ] {
        let mut changed = stored.clone();
        changed["metadata"]["name"] = name.clone();
        let merge = json!({ "metadata": { "name": name } });
        let patch = json!([{ "op": "replace", "path": "/metadata/name", "value": name }]);
        for path in [one.clone(), format!("{one}/status")] {
            for (method, headers, body) in [
                ("PUT", &[][..], &changed),
                ("PATCH", &MERGE, &merge),
                ("PATCH", &JSON_PATCH, &patch),
            ] {
                let (code, status) = raw(&client, method, &path, headers, &body.to_string()).await;
                assert_eq!(
                    (code, &status["message"]),
                    (400, &json!(why)),
                    "{method} {path} {body}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_object_is_in_the_namespace_of_its_request() {
    let client = with_things().await;
    let body = |kind: &str, namespace: &str| {
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a", "namespace": namespace } })
            .to_string()
    };
    let (code, node) = raw(&client, "POST", "/api/v1/nodes", &[], &body("Node", "other")).await;
    assert_eq!((code, &node["metadata"]["namespace"]), (201, &json!(null)));
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, map) = raw(&client, "POST", maps, &[], &body("ConfigMap", "")).await;
    assert_eq!((code, &map["metadata"]["namespace"]), (201, &json!("default")));
    let (code, status) = raw(&client, "POST", maps, &[], &body("ConfigMap", "other")).await;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((code, &status["message"]), (400, &json!(why)));
}

#[tokio::test]
async fn only_a_deletion_sets_the_time_of_deletion() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let one = format!("{THINGS}/one");
    let ending = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let grace = json!({ "metadata": { "deletionGracePeriodSeconds": 7 } });
    let (_, stored) = raw(&client, "GET", &one, &[], "").await;
    for (change, why) in [
        (
            &ending,
            "metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable",
        ),
        (
            &grace,
            "metadata.deletionGracePeriodSeconds: Invalid value: 7: field is immutable",
        ),
    ] {
        let mut changed = stored.clone();
        json_patch::merge(&mut changed, change);
        for (method, headers, body) in [("PUT", &[][..], &changed), ("PATCH", &MERGE, change)] {
            let (code, status) = raw(&client, method, &one, headers, &body.to_string()).await;
            let message = status["message"].as_str().unwrap();
            assert_eq!(code, 422, "{status}");
            assert!(message.ends_with(why), "{message}");
        }
    }

    // The time of a deletion that has begun stays, whatever a change says. Its grace period may be left out.
    let kept = json!({ "metadata": { "finalizers": ["example.test/x"] } }).to_string();
    raw(&client, "PATCH", &one, &MERGE, &kept).await;
    let (_, deleting) = raw(&client, "DELETE", &one, &[], "").await;
    let free = json!({ "metadata": { "deletionTimestamp": null, "deletionGracePeriodSeconds": null } });
    for change in [&ending, &free] {
        let (code, changed) = raw(&client, "PATCH", &one, &MERGE, &change.to_string()).await;
        assert_eq!((code, &changed["metadata"]), (200, &deleting["metadata"]));
    }
    assert_eq!(
        raw(&client, "PATCH", &one, &MERGE, &grace.to_string()).await.0,
        422
    );
}

#[tokio::test]
async fn a_delete_heeds_its_preconditions() {
    let client = with_things().await;
    let api = things(&client);
    let created = create(&api, "one", json!({})).await;
    let with = |uid: Option<&str>, version: Option<&str>| DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    };
    assert_eq!(
        refusal(api.delete("one", &with(Some("other"), None)).await).0,
        409
    );
    assert_eq!(refusal(api.delete("one", &with(None, Some("1"))).await).0, 409);
    let (uid, version) = (created.uid().unwrap(), created.resource_version().unwrap());
    api.delete("one", &with(Some(&uid), Some(&version)))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_json_patch_is_applied_whole_or_not_at_all() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let path = "/apis/example.test/v1/namespaces/default/things/one";
    let headers = [("content-type", "application/json-patch+json")];
    let patch = |size: i32| {
        json!([
            { "op": "replace", "path": "/spec/size", "value": 3 },
            { "op": "test", "path": "/spec/size", "value": size },
        ])
        .to_string()
    };
    assert_eq!(raw(&client, "PATCH", path, &headers, &patch(4)).await.0, 422);
    assert_eq!(api.get("one").await.unwrap().data["spec"]["size"], 1);
    assert_eq!(raw(&client, "PATCH", path, &headers, &patch(3)).await.0, 200);
    assert_eq!(api.get("one").await.unwrap().data["spec"]["size"], 3);
}

#[tokio::test]
async fn copies_cannot_blow_an_object_up() {
    let client = with_things().await;
    let api = things(&client);
    create(
        &api,
        "one",
        json!({ "spec": { "raw": { "a": "x".repeat(1000) } } }),
    )
    .await;
    let path = "/apis/example.test/v1/namespaces/default/things/one";
    let headers = [("content-type", "application/json-patch+json")];
    let double = |n: usize| json!({ "op": "copy", "from": "/spec/raw", "path": format!("/spec/raw/{n}") });
    let patch: Vec<serde_json::Value> = (0..64).map(double).collect();
    assert_eq!(
        raw(&client, "PATCH", path, &headers, &json!(patch).to_string())
            .await
            .0,
        413
    );

    let half = json!({ "spec": { "raw": { "b": "x".repeat(1 << 20) } } });
    api.patch("one", &PatchParams::default(), &Patch::Merge(&half))
        .await
        .unwrap();
    let half = json!({ "spec": { "raw": { "c": "x".repeat(1 << 20) } } });
    assert_eq!(
        refusal(
            api.patch("one", &PatchParams::default(), &Patch::Merge(&half))
                .await
        )
        .0,
        413
    );
}

#[tokio::test]
async fn generated_names_differ() {
    let client = with_things().await;
    let api = things(&client);
    let mut object = thing("", json!({ "metadata": { "generateName": "gen-" } }));
    object.metadata.name = None;
    let first = api
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
        .name_any();
    let second = api
        .create(&PostParams::default(), &object)
        .await
        .unwrap()
        .name_any();
    assert!(
        first.starts_with("gen-") && first.len() == "gen-".len() + 5,
        "{first}"
    );
    assert_ne!(first, second);
}

#[tokio::test]
async fn names_that_could_leave_their_place_are_refused() {
    let client = with_things().await;
    for name in ["..", "a/b", "a\u{0}b", "A", "\u{1b}[2J", &"a".repeat(254)] {
        let object = json!({
            "apiVersion": "example.test/v1", "kind": "Thing",
            "metadata": { "name": name }, "spec": { "size": 1 },
        });
        let path = "/apis/example.test/v1/namespaces/default/things";
        let (code, status) = raw(&client, "POST", path, &[], &object.to_string()).await;
        assert_eq!(
            (code, status["reason"].as_str()),
            (422, Some("Invalid")),
            "{name:?}: {status}"
        );
    }
}

#[tokio::test]
async fn an_object_needs_its_namespace() {
    let client = with_things().await;
    let api = kube::Api::<kube::api::DynamicObject>::namespaced_with(
        client.clone(),
        "nowhere",
        &crate::thing_fixture::thing_resource(),
    );
    let (code, message) = refusal(api.create(&PostParams::default(), &thing("one", json!({}))).await);
    assert_eq!(
        (code, message.as_str()),
        (404, "namespaces \"nowhere\" not found")
    );
}
