//! Watches through a real client.

use std::sync::Arc;

use crate::thing_fixture::{
    Events, Seconds, client, create, define, empty, raw, thing_crd, things, with_things,
};
use http::Request;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use polity_standalone::Store;
use serde_json::json;

fn from_version() -> WatchParams {
    WatchParams::default().disable_bookmarks()
}

#[tokio::test]
async fn a_watch_continues_where_a_list_ended() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "before", json!({})).await;
    let version = api
        .list(&Default::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    create(&api, "after", json!({})).await;
    api.delete("before", &DeleteParams::default()).await.unwrap();
    let mut events = Events::of(&api, &from_version(), &version).await;
    assert_eq!(events.next().await, "ADDED after");
    assert_eq!(events.next().await, "DELETED before");
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    create(&api, "two", json!({})).await;
    let mut events = Events::of(&api, &from_version(), "0").await;
    assert_eq!(events.next().await, "ADDED one");
    assert_eq!(events.next().await, "ADDED two");
    create(&api, "three", json!({})).await;
    assert_eq!(events.next().await, "ADDED three");
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let mut events = Events::of(&api, &WatchParams::default().initial_events(), "").await;
    assert_eq!(events.next().await, "ADDED one");
    assert_eq!(events.next().await, "BOOKMARK end");
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(events.next().await, "DELETED one");
}

#[tokio::test]
async fn a_streaming_list_says_how_new_it_must_be() {
    let client = with_things().await;
    let path = "/apis/example.test/v1/things?watch=true&allowWatchBookmarks=true&sendInitialEvents=true";
    let (code, status) = raw(&client, "GET", path, &[], "").await;
    assert_eq!(code, 422, "{status}");
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_for_the_watcher() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let mut events = Events::of(&api, &from_version().labels("on=yes"), "0").await;
    let label = |value: serde_json::Value| json!({ "metadata": { "labels": { "on": value } } });
    let merge = PatchParams::default();
    api.patch("one", &merge, &Patch::Merge(&label(json!("yes"))))
        .await
        .unwrap();
    assert_eq!(events.next().await, "ADDED one");
    let left = api
        .patch("one", &merge, &Patch::Merge(&label(json!(null))))
        .await
        .unwrap();
    let WatchEvent::Deleted(last) = events.raw().await else {
        panic!("it left the selection")
    };
    assert_eq!(
        last.labels().get("on").map(String::as_str),
        Some("yes"),
        "as it last matched"
    );
    assert_eq!(
        last.resource_version(),
        left.resource_version(),
        "with the version of the change"
    );
    create(&api, "two", json!({ "metadata": { "labels": { "on": "yes" } } })).await;
    assert_eq!(
        events.next().await,
        "ADDED two",
        "nothing else was shown in between"
    );
}

#[tokio::test]
async fn a_deleted_object_carries_the_version_of_its_deletion() {
    let client = with_things().await;
    let api = things(&client);
    let created = create(&api, "one", json!({})).await;
    let version = created.resource_version().unwrap();
    let mut events = Events::of(&api, &from_version(), &version).await;
    api.delete("one", &DeleteParams::default()).await.unwrap();
    let WatchEvent::Deleted(deleted) = events.raw().await else {
        panic!("it is deleted")
    };
    let number = |version: String| version.parse::<u64>().unwrap();
    assert_eq!(number(deleted.resource_version().unwrap()), number(version) + 1);
}

#[tokio::test]
async fn a_watch_from_before_the_history_is_told_that_it_expired() {
    let store = Store::in_memory(Seconds::default().clock(), [0; 16]).with_history(4);
    let client = client(Arc::new(store));
    define(&client, thing_crd()).await;
    let api = things(&client);
    let first = create(&api, "one", json!({})).await.resource_version().unwrap();
    for size in 2..8 {
        let patch = json!({ "spec": { "size": size } });
        api.patch("one", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
    let mut events = Events::of(&api, &from_version(), &first).await;
    assert_eq!(events.next().await, "ERROR 410");
    assert!(events.ended().await);
}

#[tokio::test]
async fn a_version_from_the_future_is_refused() {
    let client = with_things().await;
    let path = "/apis/example.test/v1/things?watch=true&resourceVersion=1000";
    let (code, status) = raw(&client, "GET", path, &[], "").await;
    assert_eq!(code, 504);
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_with_a_bookmark() {
    let client = with_things().await;
    let api = things(&client);
    let mut events = Events::of(&api, &WatchParams::default().timeout(30), "0").await;
    assert_eq!(events.next().await, "BOOKMARK");
    assert!(events.ended().await);
}

#[tokio::test]
async fn a_watch_that_is_shown_nothing_is_sent_bookmarks() {
    let client = with_things().await;
    let api = things(&client);
    let params = WatchParams::default().fields("metadata.name=other");
    let mut events = Events::of(&api, &params, "0").await;
    for index in 0..600 {
        create(&api, &format!("one-{index}"), json!({})).await;
    }
    assert_eq!(events.next().await, "BOOKMARK");
}

#[tokio::test]
async fn watches_end_when_their_kind_is_no_longer_served() {
    let client = empty();
    define(&client, thing_crd()).await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    let mut events = Events::of(&api, &from_version(), "0").await;
    assert_eq!(events.next().await, "ADDED one");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.test";
    assert_eq!(raw(&client, "DELETE", path, &[], "").await.0, 200);
    assert_eq!(events.next().await, "DELETED one");
    assert!(events.ended().await);
    assert_eq!(
        raw(&client, "GET", "/apis/example.test/v1/things", &[], "")
            .await
            .0,
        404
    );

    define(&client, thing_crd()).await;
    assert!(api.list(&Default::default()).await.unwrap().items.is_empty());
    create(&api, "one", json!({})).await;
}

#[tokio::test]
async fn a_table_watch_names_its_columns_once() {
    let client = with_things().await;
    let api = things(&client);
    create(&api, "one", json!({})).await;
    create(&api, "two", json!({})).await;
    let request = Request::get("/apis/example.test/v1/things?watch=true&timeoutSeconds=1")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(kube::client::Body::empty())
        .unwrap();
    tokio::time::pause();
    let response = client.send(request).await.unwrap();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    let events: Vec<serde_json::Value> = bytes
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!(events.len(), 2);
    assert_eq!(
        events[0]["object"]["columnDefinitions"].as_array().unwrap().len(),
        4
    );
    assert_eq!(events[1]["object"]["columnDefinitions"], json!([]));
    assert_eq!(
        events[1]["object"]["rows"][0]["cells"],
        json!(["two", 1, null, "0s"])
    );
}
