//! Objects in a file: what was answered exists after any end.

use std::{fs::File, path::Path, sync::Arc};

use crate::thing_fixture::{Events, Seconds, client, create, define, raw, refusal, thing_crd, things};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchParams},
};
use polity_standalone::Store;
use serde_json::json;

fn file(path: &Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

fn open(path: &Path) -> Client {
    client(Arc::new(
        Store::open(file(path), Seconds::default().clock(), [3; 16]).unwrap(),
    ))
}

/// Lets a client end. Its worker task drops the store when it next runs.
async fn close(client: Client) {
    drop(client);
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn objects_kinds_and_versions_continue_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let first = open(&path);
    define(&first, thing_crd()).await;
    let api = things(&first);
    let kept = create(&api, "kept", json!({})).await;
    create(&api, "deleted", json!({})).await;
    api.delete("deleted", &DeleteParams::default()).await.unwrap();
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    drop(api);
    close(first).await;

    let second = open(&path);
    let api = things(&second);
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.metadata.resource_version.as_ref(), Some(&version));
    assert_eq!(
        list.iter().map(|thing| thing.name_any()).collect::<Vec<_>>(),
        ["kept"]
    );
    assert_eq!(list.items[0], kept);

    let mut events = Events::of(&api, &WatchParams::default(), &version).await;
    let mut expired = Events::of(&api, &WatchParams::default(), "3").await;
    assert_eq!(
        expired.next().await,
        "ERROR 410",
        "what happened before the restart is not remembered"
    );
    let patch = json!({ "spec": { "size": 2 } });
    let patched = api
        .patch("kept", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(events.next().await, "MODIFIED kept");
    let number = |version: &str| version.parse::<u64>().unwrap();
    assert_eq!(number(&patched.resource_version().unwrap()), number(&version) + 1);
    let created = create(&api, "new", json!({})).await;
    assert_ne!(created.uid(), kept.uid());
}

#[tokio::test]
async fn what_is_on_the_disk_is_read_by_the_schema_that_its_kind_has_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let first = open(&path);
    define(&first, thing_crd()).await;
    create(&things(&first), "old", json!({ "spec": { "note": "goes" } })).await;
    let mut crd = thing_crd();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields = spec["properties"].as_object_mut().unwrap();
    fields.remove("note");
    fields.insert("added".into(), json!({ "type": "integer", "default": 7 }));
    let crds: Api<CustomResourceDefinition> = Api::all(first.clone());
    let versions = json!({ "spec": { "versions": crd["spec"]["versions"] } });
    crds.patch(
        "things.example.test",
        &PatchParams::default(),
        &Patch::Merge(&versions),
    )
    .await
    .unwrap();
    drop(crds);
    let before = things(&first).get("old").await.unwrap();
    assert_eq!(before.data["spec"]["added"], 7);
    close(first).await;

    let after = things(&open(&path)).get("old").await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn what_was_answered_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let running = open(&path);
    define(&running, thing_crd()).await;
    let api = things(&running);
    for index in 0..5 {
        create(&api, &format!("thing-{index}"), json!({})).await;
        // The state after a SIGKILL: a copy of the file as it is now, with nothing closed.
        let copy = folder.path().join(format!("copy-{index}.redb"));
        std::fs::copy(&path, &copy).unwrap();
        let after = open(&copy);
        assert_eq!(
            things(&after)
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
            index + 1
        );
    }
}

#[tokio::test]
async fn owners_are_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let first = open(&path);
    define(&first, thing_crd()).await;
    let owner = create(&things(&first), "owner", json!({})).await;
    let reference = json!({
        "apiVersion": "example.test/v1", "kind": "Thing", "name": "owner", "uid": owner.uid().unwrap(),
    });
    create(
        &things(&first),
        "child",
        json!({ "metadata": { "ownerReferences": [reference] } }),
    )
    .await;
    close(first).await;

    let second = open(&path);
    things(&second)
        .delete("owner", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(refusal(things(&second).get("child").await).0, 404);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    std::fs::write(
        &path,
        "not a database, and long enough to be looked at".repeat(100),
    )
    .unwrap();
    let error = Store::open(file(&path), Seconds::default().clock(), [3; 16]).unwrap_err();
    assert!(error.to_string().contains("opening the database"), "{error}");
}

#[test]
fn a_file_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let _open = Store::open(file(&path), Seconds::default().clock(), [3; 16]).unwrap();
    assert!(Store::open(file(&path), Seconds::default().clock(), [3; 16]).is_err());
}

#[tokio::test]
async fn a_budget_remembers_whom_it_let_go_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.redb");
    let merge = [("content-type", "application/merge-patch+json")];
    let pods = "/api/v1/namespaces/default/pods";
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let first = open(&path);
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let disrupted = json!({ "status": { "disruptedPods": { "p": "1970-01-01T00:00:00Z" } } });
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 0, "selector": {} } });
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n" } });
    for (method, path, body) in [
        ("POST", pods.to_owned(), pod),
        ("PATCH", format!("{pods}/p/status"), ready),
        ("POST", budgets.to_owned(), budget),
        ("PATCH", format!("{budgets}/b/status"), disrupted),
    ] {
        let headers = if method == "PATCH" { &merge[..] } else { &[] };
        let (code, answer) = raw(&first, method, &path, headers, &body.to_string()).await;
        assert!(code < 300, "{answer}");
    }
    close(first).await;

    let seconds = Seconds::default();
    seconds.advance(60);
    let second = client(Arc::new(
        Store::open(file(&path), seconds.clock(), [3; 16]).unwrap(),
    ));
    for (wait, allowed) in [(0, 0), (61, 1)] {
        seconds.advance(wait);
        let (_, budget) = raw(&second, "GET", &format!("{budgets}/b"), &[], "").await;
        assert_eq!(budget["status"]["disruptionsAllowed"], allowed, "{wait}");
    }
}
