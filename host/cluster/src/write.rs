//! Writes: patches of primaries, acts on other objects.

use polity_core::call::Write;
use polity_core::contract::{Act, Answer, Code, Failure, ObjectRef, Precondition};
use polity_core::object::Object;
use serde_json::{Value, json};

use crate::Cluster;
use crate::error::Verb;
use crate::path;

/// How a write names its writer.
pub(crate) const MANAGER: (&str, &str) = ("fieldManager", "polity");

impl Cluster {
    /// Writes. The answer is the object as it stands then, `null` if it is gone.
    pub async fn write(&self, write: &Write) -> Answer {
        match write {
            Write::Patch {
                object,
                subresource,
                patch,
            } => {
                self.merge(object, subresource.as_deref(), patch, &[MANAGER])
                    .await
            }
            Write::Act(act) => self.act(act).await,
            Write::Event {
                object,
                uid,
                event,
                now,
            } => self.event(object, uid, event, *now).await,
        }
    }

    /// A JSON merge patch; `metadata.uid` and `metadata.resourceVersion` in it are the precondition.
    pub(crate) async fn merge(
        &self,
        object: &ObjectRef,
        subresource: Option<&str>,
        patch: &Value,
        query: &[(&str, &str)],
    ) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path =
            resource.object(object.namespace.as_deref(), &object.name, subresource) + &path::query(query);
        self.call(Verb::Write, &named(object), "PATCH", &path, Some(patch))
            .await
    }

    async fn act(&self, act: &Act) -> Answer {
        match act {
            Act::Create(text) => {
                let object: Value = serde_json::from_str(text)
                    .map_err(|e| Failure::new(Code::InvalidArgument, format!("create: not JSON: {e}")))?;
                self.create(&object, &[MANAGER]).await
            }
            Act::Patch(act) => {
                let mut patch: Value = serde_json::from_str(&act.patch)
                    .map_err(|e| Failure::new(Code::InvalidArgument, format!("patch: not JSON: {e}")))?;
                if !patch.is_object() {
                    return Err(Failure::new(Code::InvalidArgument, "patch: not a JSON object"));
                }
                let Precondition {
                    uid,
                    resource_version,
                } = &act.precondition;
                patch["metadata"]["uid"] = json!(uid);
                if let Some(version) = resource_version {
                    patch["metadata"]["resourceVersion"] = json!(version);
                }
                self.merge(&act.object, act.subresource.as_deref(), &patch, &[MANAGER])
                    .await
            }
            Act::Delete(act) => {
                let mut options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions(&act.precondition)
                });
                if let Some(seconds) = act.grace_period_seconds {
                    options["gracePeriodSeconds"] = json!(seconds);
                }
                if let Some(policy) = &act.propagation_policy {
                    options["propagationPolicy"] = json!(policy);
                }
                self.delete(&act.object, &options).await
            }
            Act::Evict(act) => {
                let resource = self.resource(&act.object.kind).await?;
                let path = resource.object(
                    act.object.namespace.as_deref(),
                    &act.object.name,
                    Some("eviction"),
                );
                let mut options = json!({"preconditions": preconditions(&act.precondition)});
                if let Some(seconds) = act.grace_period_seconds {
                    options["gracePeriodSeconds"] = json!(seconds);
                }
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": act.object.name, "namespace": act.object.namespace},
                    "deleteOptions": options,
                });
                self.call(Verb::Evict, &named(&act.object), "POST", &path, Some(&eviction))
                    .await
            }
            Act::Cloud(_) | Act::Mint(_) => {
                Err(Failure::new(Code::Unimplemented, "not a write of the cluster"))
            }
        }
    }

    pub(crate) async fn create(&self, object: &Value, query: &[(&str, &str)]) -> Answer {
        let reference = Object::new(object.clone()).reference();
        let resource = self.resource(&reference.kind).await?;
        let path = resource.collection(reference.namespace.as_deref()) + &path::query(query);
        self.call(Verb::Create, &named(&reference), "POST", &path, Some(object))
            .await
    }

    /// Deletes; the answer is the object if finalizers keep it.
    async fn delete(&self, object: &ObjectRef, options: &Value) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path = resource.object(object.namespace.as_deref(), &object.name, None);
        let answer = self
            .call(Verb::Write, &named(object), "DELETE", &path, Some(options))
            .await?;
        let stands = answer["metadata"]["deletionTimestamp"].is_string()
            && answer["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|f| !f.is_empty());
        Ok(if stands { answer } else { Value::Null })
    }
}

fn preconditions(precondition: &Precondition) -> Value {
    match &precondition.resource_version {
        Some(version) => json!({"uid": precondition.uid, "resourceVersion": version}),
        None => json!({"uid": precondition.uid}),
    }
}

/// An object as messages name it.
pub(crate) fn named(object: &ObjectRef) -> String {
    match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{}", object.kind.kind, object.name),
        None => format!("{} {}", object.kind.kind, object.name),
    }
}
