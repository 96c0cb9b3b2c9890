//! Kubernetes Events: one object for each reason and message of an object, counted when it comes again.

use polity_core::contract::{Answer, Code, Event, EventType, Kind, ObjectRef};
use polity_core::time::rfc3339;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Cluster;

/// Characters of a message that an API server takes.
const MESSAGE: usize = 1_024;
/// Characters of an object's name in the name of its Event: with the hash it stays below 253.
const NAME: usize = 200;

impl Cluster {
    pub(crate) async fn event(&self, object: &ObjectRef, uid: &str, event: &Event, now: u64) -> Answer {
        let fresh = fresh(object, uid, event, now);
        match self.create(&fresh, &[]).await {
            Err(failure) if failure.code == Code::AlreadyExists => self.count(&fresh, now).await,
            other => other,
        }
    }

    async fn count(&self, event: &Value, now: u64) -> Answer {
        let reference = ObjectRef {
            kind: Kind {
                api_version: "v1".into(),
                kind: "Event".into(),
            },
            namespace: event["metadata"]["namespace"].as_str().map(str::to_owned),
            name: event["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        };
        let known = self.get(&reference).await?;
        let count = known["count"].as_u64().unwrap_or(1) + 1;
        let patch = json!({"count": count, "lastTimestamp": rfc3339(now)});
        self.merge(&reference, None, &patch, &[]).await
    }
}

fn fresh(object: &ObjectRef, uid: &str, event: &Event, now: u64) -> Value {
    let hash = Sha256::new_with_prefix(uid)
        .chain_update([0])
        .chain_update(&event.reason)
        .chain_update([0])
        .chain_update(&event.message)
        .finalize();
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name: String = object.name.chars().take(NAME).collect();
    // Events of cluster-scoped objects stand in `default`, as everywhere in Kubernetes.
    let namespace = object.namespace.as_deref().unwrap_or("default");
    let message: String = event.message.chars().take(MESSAGE).collect();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{hash}"), "namespace": namespace},
        "involvedObject": {
            "apiVersion": object.kind.api_version, "kind": object.kind.kind,
            "namespace": object.namespace, "name": object.name, "uid": uid,
        },
        "type": match event.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": event.reason, "message": message, "count": 1,
        "firstTimestamp": rfc3339(now), "lastTimestamp": rfc3339(now),
        "source": {"component": "polity"}, "reportingComponent": "polity", "reportingInstance": "",
    })
}
