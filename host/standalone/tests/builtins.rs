//! Builtin kinds, discovery, and what is refused.

use crate::thing_fixture::{empty, raw, refusal, things, with_things};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Node, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

async fn make<K>(client: &Client, object: Value) -> Result<K, kube::Error>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
        .await
}

#[tokio::test]
async fn string_data_becomes_data() {
    let client = empty();
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "key": "value" } });
    let secret: Secret = make(&client, secret).await.unwrap();
    assert_eq!(secret.data.unwrap()["key"].0, b"value");
    assert_eq!(secret.string_data, None);
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(
        secret.metadata.generation, None,
        "only kinds with a spec that somebody acts on count"
    );
}

#[tokio::test]
async fn an_immutable_config_map_does_not_change() {
    let client = empty();
    let map = json!({ "metadata": { "name": "m" }, "immutable": true, "data": { "a": "b" } });
    let _: ConfigMap = make(&client, map).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let change = |patch: Value| {
        let api = api.clone();
        async move {
            api.patch("m", &PatchParams::default(), &Patch::Merge(&patch))
                .await
        }
    };
    assert_eq!(refusal(change(json!({ "data": { "a": "c" } })).await).0, 422);
    change(json!({ "metadata": { "labels": { "a": "b" } } }))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_event_is_seen_in_both_groups() {
    let client = empty();
    let event = json!({
        "metadata": { "name": "e" },
        "eventTime": "2026-11-20T08:00:00.000000Z",
        "regarding": { "kind": "Thing", "name": "one", "namespace": "default" },
        "reason": "Cloned", "note": "the VM is there", "type": "Normal", "action": "Clone",
        "reportingController": "polity.dev/host", "reportingInstance": "a",
    });
    let created: Event = make(&client, event).await.unwrap();
    assert_eq!(created.note.as_deref(), Some("the VM is there"));
    let core: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client.clone());
    let by_object = ListParams::default().fields("involvedObject.name=one,involvedObject.kind=Thing");
    let found = core.list(&by_object).await.unwrap();
    assert_eq!(found.items[0].message.as_deref(), Some("the VM is there"));
    let new: Api<Event> = Api::default_namespaced(client);
    let found = new
        .list(&ListParams::default().fields("regarding.name=other"))
        .await
        .unwrap();
    assert!(found.items.is_empty());
}

#[tokio::test]
async fn a_lease_changes_hands_once() {
    let client = empty();
    let lease =
        json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15 } });
    let lease: Lease = make(&client, lease).await.unwrap();
    let api: Api<Lease> = Api::default_namespaced(client);
    let held_by = |holder: &str| {
        let mut taken = lease.clone();
        taken.spec.as_mut().unwrap().holder_identity = Some(holder.to_owned());
        taken
    };
    api.replace("l", &PostParams::default(), &held_by("b"))
        .await
        .unwrap();
    assert_eq!(
        refusal(api.replace("l", &PostParams::default(), &held_by("c")).await).0,
        409
    );
}

#[tokio::test]
async fn a_node_keeps_spec_and_status_apart() {
    let client = empty();
    let api: Api<Node> = Api::all(client);
    let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": "vsphere://1" }, "status": { "phase": "y" } });
    let node = api
        .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
    assert_eq!(
        node.status.unwrap().phase.as_deref(),
        Some("y"),
        "a kubelet creates its node with a status"
    );
    let status = json!({ "status": { "phase": "x" }, "spec": { "unschedulable": true } });
    let node = api
        .patch_status("n", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, None);
    assert_eq!(node.metadata.namespace, None);
}

#[tokio::test]
async fn what_is_not_done_is_refused_with_its_reason() {
    let client = with_things().await;
    crate::thing_fixture::create(&things(&client), "one", json!({})).await;
    let one = "/apis/example.test/v1/namespaces/default/things/one";
    let all = "/apis/example.test/v1/namespaces/default/things";
    let pod = "/api/v1/namespaces/default/pods/p";
    let plain = "application/json";
    for (method, path, content_type, code, reason, message) in [
        (
            "PATCH",
            one,
            "application/apply-patch+yaml",
            415,
            "UnsupportedMediaType",
            "server-side apply",
        ),
        (
            "PATCH",
            one,
            "application/strategic-merge-patch+json",
            415,
            "UnsupportedMediaType",
            "strategic merge",
        ),
        (
            "PATCH",
            one,
            "text/plain",
            415,
            "UnsupportedMediaType",
            "text/plain",
        ),
        (
            "POST",
            all,
            "application/yaml",
            415,
            "UnsupportedMediaType",
            "application/yaml",
        ),
        (
            "POST",
            &format!("{all}?dryRun=All"),
            plain,
            501,
            "NotImplemented",
            "dryRun",
        ),
        (
            "DELETE",
            &format!("{one}?dryRun=All"),
            plain,
            501,
            "NotImplemented",
            "dryRun",
        ),
        (
            "PUT",
            &format!("{one}/scale"),
            plain,
            404,
            "NotFound",
            "could not find",
        ),
        (
            "POST",
            &format!("{pod}/eviction?dryRun=All"),
            plain,
            501,
            "NotImplemented",
            "dryRun",
        ),
        (
            "GET",
            &format!("{pod}/eviction"),
            plain,
            405,
            "MethodNotAllowed",
            "does not allow this method",
        ),
        (
            "GET",
            &format!("{pod}/log"),
            plain,
            501,
            "NotImplemented",
            "pods/log",
        ),
        (
            "POST",
            &format!("{pod}/exec"),
            plain,
            501,
            "NotImplemented",
            "pods/exec",
        ),
        (
            "PUT",
            all,
            plain,
            405,
            "MethodNotAllowed",
            "does not allow this method",
        ),
        (
            "POST",
            one,
            plain,
            405,
            "MethodNotAllowed",
            "does not allow this method",
        ),
        (
            "GET",
            "/apis/apps/v1/deployments",
            plain,
            404,
            "NotFound",
            "could not find",
        ),
        ("GET", "/metrics", plain, 404, "NotFound", "could not find"),
    ] {
        let headers = [("content-type", content_type)];
        let (found, status) = raw(&client, method, path, &headers, "{}").await;
        assert_eq!(
            (found, &status["reason"]),
            (code, &json!(reason)),
            "{method} {path}: {status}"
        );
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(code))
        );
        assert!(status["message"].as_str().unwrap().contains(message), "{status}");
    }
    let options = json!({ "dryRun": ["All"] }).to_string();
    assert_eq!(raw(&client, "DELETE", one, &[], &options).await.0, 501);
    assert_eq!(things(&client).get("one").await.unwrap().name_any(), "one");
}

#[tokio::test]
async fn bodies_that_make_no_sense_are_refused() {
    let client = with_things().await;
    let all = "/apis/example.test/v1/namespaces/default/things";
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        "",
        "nonsense",
        "[]",
        "{\"metadata\": 1}",
        "{\"metadata\": []}",
        "{\"kind\": \"Other\", \"metadata\": {\"name\": \"a\"}}",
        "{\"metadata\": {\"name\": \"a\", \"namespace\": \"other\"}}",
        "{\"metadata\": {\"name\": \"a\", \"resourceVersion\": \"1\"}}",
        &nested,
    ] {
        let (code, status) = raw(&client, "POST", all, &[], body).await;
        assert!(matches!(code, 400 | 422), "{code} {status}");
    }
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for spec in [
        json!("text"),
        json!({ "names": "text" }),
        json!({ "versions": "text" }),
        json!({}),
    ] {
        let crd = json!({ "metadata": { "name": "a.b.c" }, "spec": spec });
        assert_eq!(raw(&client, "POST", crds, &[], &crd.to_string()).await.0, 422);
    }
    let patch = [("content-type", "application/merge-patch+json")];
    crate::thing_fixture::create(&things(&client), "one", json!({})).await;
    for body in [
        "[]",
        "{\"metadata\": null}",
        "{\"metadata\": {\"name\": \"two\"}}",
        "{\"kind\": null, \"apiVersion\": 3}",
    ] {
        let (code, status) = raw(&client, "PATCH", &format!("{all}/one"), &patch, body).await;
        assert!(matches!(code, 400 | 200), "{code} {status}");
    }
    assert_eq!(things(&client).get("one").await.unwrap().data["spec"]["size"], 1);
}

#[tokio::test]
async fn discovery_shows_every_kind_in_both_forms() {
    let client = with_things().await;
    let found = kube::discovery::Discovery::new(client.clone())
        .run_aggregated()
        .await
        .unwrap();
    let plain = kube::discovery::Discovery::new(client.clone())
        .run()
        .await
        .unwrap();
    for discovery in [found, plain] {
        let group = discovery.get("example.test").unwrap();
        let (resource, capabilities) = group.recommended_kind("Thing").unwrap();
        assert_eq!(resource.plural, "things");
        assert!(capabilities.supports_operation(kube::discovery::verbs::WATCH));
        assert_eq!(capabilities.subresources.len(), 1);
    }
}

#[tokio::test]
async fn openapi_tells_kubectl_that_unknown_fields_are_checked() {
    let client = with_things().await;
    let (_, index) = raw(&client, "GET", "/openapi/v3", &[], "").await;
    let url = index["paths"]["apis/example.test/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, document) = raw(&client, "GET", &url, &[], "").await;
    let patch = &document["paths"]["/apis/example.test/v1/namespaces/{namespace}/things/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Thing");
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(
        parameters
            .iter()
            .any(|parameter| parameter["name"] == "fieldValidation")
    );
    assert_eq!(
        document["components"]["schemas"]["test.example.v1.Thing"]["type"],
        "object"
    );
}

#[tokio::test]
async fn openapi_describes_the_fields_of_custom_kinds_alone() {
    let client = with_things().await;
    let (_, core) = raw(&client, "GET", "/openapi/v3/api/v1", &[], "").await;
    assert_eq!(
        core["components"]["schemas"],
        json!({}),
        "no field is said to be missing"
    );
    // What kubectl still learns from it: fields are validated by the server, so kubectl need not do that.
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
    assert!(!core.to_string().contains("$ref"));

    let (_, custom) = raw(&client, "GET", "/openapi/v3/apis/example.test/v1", &[], "").await;
    let properties = &custom["components"]["schemas"]["test.example.v1.Thing"]["properties"];
    for field in ["apiVersion", "kind", "metadata", "spec", "status"] {
        assert!(properties[field].is_object(), "{field}");
    }
    assert_eq!(properties["metadata"]["properties"]["name"]["type"], "string");
    assert_eq!(properties["spec"]["properties"]["size"]["type"], "integer");
}
