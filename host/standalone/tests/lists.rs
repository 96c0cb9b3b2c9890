//! Lists: pages, selectors, tables.

use crate::thing_fixture::{create, raw, refusal, things, with_things};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

#[tokio::test]
async fn pages_show_one_state_whatever_is_written_between_them() {
    let client = with_things().await;
    let api = things(&client);
    for name in ["a", "b", "c", "d"] {
        create(&api, name, json!({})).await;
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    let token = first.metadata.continue_.clone().unwrap();

    api.delete("c", &DeleteParams::default()).await.unwrap();
    create(&api, "bb", json!({})).await;
    let patch = json!({ "spec": { "size": 9 } });
    api.patch("d", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();

    let second = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    let seen: Vec<String> = first
        .iter()
        .chain(second.iter())
        .map(|thing| thing.name_any())
        .collect();
    assert_eq!(seen, ["a", "b", "c", "d"]);
    assert_eq!(second.items[1].data["spec"]["size"], 1);
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(second.metadata.continue_.unwrap_or_default(), "");
}

#[tokio::test]
async fn a_forged_continue_token_is_refused() {
    let client = with_things().await;
    let list = things(&client)
        .list(&ListParams::default().continue_token("nonsense"))
        .await;
    assert_eq!(refusal(list).0, 400);
}

#[tokio::test]
async fn selectors_narrow_a_list() {
    let client = with_things().await;
    let api = things(&client);
    for (name, app) in [("a", "web"), ("b", "api"), ("c", "web")] {
        create(&api, name, json!({ "metadata": { "labels": { "app": app } } })).await;
    }
    let names = |list: kube::api::ObjectList<kube::api::DynamicObject>| -> Vec<String> {
        list.iter().map(ResourceExt::name_any).collect()
    };
    let by = |labels: &str| ListParams::default().labels(labels);
    assert_eq!(names(api.list(&by("app in (web)")).await.unwrap()), ["a", "c"]);
    assert_eq!(names(api.list(&by("app!=web")).await.unwrap()), ["b"]);
    let one = ListParams::default().fields("metadata.name=c");
    assert_eq!(names(api.list(&one).await.unwrap()), ["c"]);
    let unknown = api.list(&ListParams::default().fields("spec.size=1")).await;
    assert_eq!(
        refusal(unknown),
        (400, "field label not supported: spec.size".to_owned())
    );
}

#[tokio::test]
async fn a_selector_that_a_real_api_server_refuses_is_refused() {
    let client = with_things().await;
    let api = things(&client);
    for (labels, why) in [
        (
            "app=web,",
            "unable to parse requirement: found '', expected: identifier",
        ),
        (
            "!app=web",
            "unable to parse requirement: found '=', expected: ',' or 'end of string'",
        ),
        (
            "cores>many",
            "\"many\" is no value for the label \"cores\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        let refused = api.list(&ListParams::default().labels(labels)).await;
        assert_eq!(refusal(refused), (400, why.to_owned()));
    }
    let refused = api.list(&ListParams::default().fields("metadata.name=a=b")).await;
    let why = "invalid selector: 'metadata.name=a=b'; can't understand 'metadata.name=a=b'";
    assert_eq!(refusal(refused), (400, why.to_owned()));
}

#[tokio::test]
async fn pods_are_selected_by_node_and_phase() {
    let client = with_things().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap();
    }
    let found = pods
        .list(&ListParams::default().fields("spec.nodeName=n2,status.phase=Pending"))
        .await;
    assert_eq!(found.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "a", json!({ "metadata": { "labels": { "old": "yes" } } })).await;
    create(
        &api,
        "b",
        json!({ "metadata": { "labels": { "old": "yes" }, "finalizers": ["example.test/x"] } }),
    )
    .await;
    create(&api, "c", json!({})).await;
    let old = ListParams::default().labels("old");
    api.delete_collection(&DeleteParams::default(), &old)
        .await
        .unwrap();
    let left = api.list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(left.items[0].metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn a_table_shows_the_printer_columns() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    api.patch_status("one", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let accept = [(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let (_, table) = raw(&client, "GET", "/apis/example.test/v1/things", &accept, "").await;
    let names: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| &column["name"])
        .collect();
    assert_eq!(names, ["Name", "Size", "Ready", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["one", 1, "True", "0s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, one) = raw(
        &client,
        "GET",
        "/apis/example.test/v1/namespaces/default/things/one",
        &accept,
        "",
    )
    .await;
    assert_eq!(one["kind"], "Table");
}

#[tokio::test]
async fn metadata_alone_can_be_listed() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].name_any(), "one");
}
