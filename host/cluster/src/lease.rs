//! The lease: one object, written on the version that was read.

use polity_core::call::{LeaseRead, LeaseWrite};
use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_core::time::rfc3339;
use serde_json::{Value, json};

use crate::Cluster;

impl Cluster {
    /// Reads the lease (none), or writes it. A write that met another's answers with the lease as it stands.
    pub async fn lease(&self, write: Option<&LeaseWrite>) -> Result<Option<LeaseRead>, Failure> {
        let reference = self.lease_reference();
        let written = match write {
            None => self.get(&reference).await,
            Some(write) => self.write_lease(&reference, write).await,
        };
        let conflict = |f: &Failure| matches!(f.code, Code::Aborted | Code::AlreadyExists);
        match written {
            Err(failure) if write.is_some() && conflict(&failure) => match self.get(&reference).await {
                Err(failure) if failure.code == Code::NotFound => Ok(None),
                other => other.map(|lease| Some(read(&lease))),
            },
            Err(failure) if failure.code == Code::NotFound => Ok(None),
            other => other.map(|lease| Some(read(&lease))),
        }
    }

    async fn write_lease(&self, reference: &ObjectRef, write: &LeaseWrite) -> Result<Value, Failure> {
        // MicroTime, as the schema of Lease wants it.
        let now = rfc3339(write.now).replace('Z', ".000000Z");
        let mut lease = json!({
            "metadata": {},
            "spec": {
                "holderIdentity": write.holder, "leaseDurationSeconds": write.duration.div_ceil(1_000).max(1),
                "renewTime": now, "leaseTransitions": write.transitions,
            },
        });
        match &write.version {
            Some(version) => {
                lease["metadata"]["resourceVersion"] = json!(version);
                self.merge(reference, None, &lease, &[]).await
            }
            None => {
                lease["apiVersion"] = json!(reference.kind.api_version);
                lease["kind"] = json!(reference.kind.kind);
                lease["metadata"]["name"] = json!(reference.name);
                lease["metadata"]["namespace"] = json!(reference.namespace);
                lease["spec"]["acquireTime"] = json!(now);
                self.create(&lease, &[]).await
            }
        }
    }

    fn lease_reference(&self) -> ObjectRef {
        ObjectRef {
            kind: Kind {
                api_version: "coordination.k8s.io/v1".into(),
                kind: "Lease".into(),
            },
            namespace: Some(self.lease.0.clone()),
            name: self.lease.1.clone(),
        }
    }
}

fn read(lease: &Value) -> LeaseRead {
    LeaseRead {
        holder: lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        duration: lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0) * 1_000,
        version: lease["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        transitions: lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0),
    }
}
