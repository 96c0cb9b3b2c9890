//! Volumes, claims and attachments: stored, selected, and kept as a drain expects them.

use crate::thing_fixture::{empty, raw, refusal};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttachment,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

fn attachment(name: &str, source: Value) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "attacher": "csi.example.test", "nodeName": "n1", "source": source },
        "status": { "attached": true },
    })
}

#[tokio::test]
async fn an_attachment_is_attached_by_its_status_and_never_changes_otherwise() {
    let api: Api<VolumeAttachment> = Api::all(empty());
    let object = attachment("a", json!({ "persistentVolumeName": "v" }));
    let object = serde_json::from_value(object).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    assert!(
        !created.status.unwrap().attached,
        "a creation says nothing about the status"
    );
    assert_eq!(created.metadata.generation, None);

    let merge = |patch: Value| Patch::Merge(patch);
    let status = merge(json!({ "status": { "attached": true } }));
    let attached = api
        .patch_status("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert!(attached.status.unwrap().attached);

    let moved = merge(json!({ "spec": { "nodeName": "n2" } }));
    let (code, message) = refusal(api.patch("a", &PatchParams::default(), &moved).await);
    assert_eq!(code, 422);
    assert!(message.contains("field is immutable"), "{message}");
    let labelled = merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    api.patch("a", &PatchParams::default(), &labelled).await.unwrap();

    assert!(
        api.delete("a", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
}

#[tokio::test]
async fn an_attachment_has_exactly_one_source() {
    let client = empty();
    let path = "/apis/storage.k8s.io/v1/volumeattachments";
    for (source, expected) in [
        (json!({}), 422),
        (
            json!({ "persistentVolumeName": "v", "inlineVolumeSpec": {} }),
            422,
        ),
        (json!({ "persistentVolumeName": "" }), 422),
        (json!({ "inlineVolumeSpec": { "nfs": {} } }), 201),
    ] {
        let body = attachment("a", source).to_string();
        let (code, status) = raw(&client, "POST", path, &[], &body).await;
        assert_eq!(code, expected, "{status}");
    }
    let empty = json!({ "metadata": { "name": "b" } }).to_string();
    assert_eq!(raw(&client, "POST", path, &[], &empty).await.0, 422);
    let selected = format!("{path}?fieldSelector=spec.nodeName=n1");
    assert_eq!(
        raw(&client, "GET", &selected, &[], "").await.0,
        400,
        "a real API server does not select attachments by node either"
    );
}

#[tokio::test]
async fn volumes_and_claims_wait_for_somebody_to_bind_them() {
    let client = empty();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = json!({ "metadata": { "name": "v" }, "spec": { "capacity": { "storage": "1Gi" } } });
    let volume = serde_json::from_value(volume).unwrap();
    let volume = volumes.create(&PostParams::default(), &volume).await.unwrap();
    assert_eq!(volume.status.unwrap().phase.as_deref(), Some("Pending"));

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "volumeName": "v" } });
    let claim = serde_json::from_value(claim).unwrap();
    let claim = claims.create(&PostParams::default(), &claim).await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Pending"));
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
    let claim = claims
        .patch_status("c", &PatchParams::default(), &bound)
        .await
        .unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
    assert!(
        claims
            .delete("c", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
}

#[tokio::test]
async fn the_pods_of_a_node_are_selected_by_its_name() {
    let client = empty();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, node) in [("a", json!("n1")), ("b", json!("n2")), ("c", Value::Null)] {
        let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let everywhere: Api<Pod> = Api::all(client);
    for (selector, expected) in [
        ("spec.nodeName=n1", vec!["a"]),
        ("spec.nodeName=", vec!["c"]),
        ("spec.nodeName!=n1", vec!["b", "c"]),
    ] {
        let found = everywhere
            .list(&ListParams::default().fields(selector))
            .await
            .unwrap();
        let names: Vec<String> = found.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, expected, "{selector}");
    }
}
