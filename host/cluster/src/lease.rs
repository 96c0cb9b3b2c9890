//! The lease: one object, always written with the version that was read.

use std::time::Duration;

use polity_core::call::{LeaseRead, LeaseWrite};
use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_core::controller::lease::CALL_LONGEST;
use polity_core::time::millis;
use polity_kube_rules::time::{micro_time, of_unix_ms};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Cluster;
use crate::error::Verb;
use crate::request::{MANAGER, named, until};

impl Cluster {
    /// Reads the lease if `write` is `None`, otherwise writes it. The answer is `None` if the lease does not
    /// exist. A write is acknowledged, or it fails. The failure is `aborted` if somebody else wrote first;
    /// the host must not read that other write as a renewal of its own.
    pub async fn lease(&self, write: Option<&LeaseWrite>) -> Result<Option<LeaseRead>, Failure> {
        let end = Instant::now() + CALL_LONGEST;
        let reference = self.lease_reference();
        let what = named(&reference);
        until(end, Verb::Get, &what, self.resource(&reference.kind)).await?;
        let Some(write) = write else {
            return match until(end, Verb::Get, &what, self.get(&reference)).await {
                Err(failure) if failure.code == Code::NotFound => Ok(None),
                other => read(&what, &other?).map(Some),
            };
        };
        match until(end, Verb::Patch, &what, self.write_lease(&reference, write)).await {
            Err(failure) if failure.code == Code::AlreadyExists => Err(Failure {
                code: Code::Aborted,
                ..failure
            }),
            other => read(&what, &other?).map(Some).map_err(Failure::effect_unknown),
        }
    }

    async fn write_lease(&self, reference: &ObjectRef, write: &LeaseWrite) -> Result<Value, Failure> {
        // `micro_time` keeps the milliseconds. If two renewals wrote the same time, the second would change
        // nothing, and other hosts would count the lease's duration from the first.
        let now = micro_time(of_unix_ms(write.now.0));
        let mut lease = json!({
            "metadata": {},
            "spec": {
                "holderIdentity": write.holder, "leaseDurationSeconds": millis(write.duration).div_ceil(1_000).max(1),
                "renewTime": now, "leaseTransitions": write.transitions,
            },
        });
        match &write.version {
            Some(version) => {
                lease["metadata"]["resourceVersion"] = json!(version);
                self.merge(reference, &lease, &[MANAGER]).await
            }
            None => {
                lease["apiVersion"] = json!(reference.kind.api_version);
                lease["kind"] = json!(reference.kind.kind);
                lease["metadata"]["name"] = json!(reference.name);
                lease["metadata"]["namespace"] = json!(reference.namespace);
                lease["spec"]["acquireTime"] = json!(now);
                self.create(&lease, &[MANAGER]).await
            }
        }
    }

    fn lease_reference(&self) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: "coordination.k8s.io/v1".into(),
                kind: "Lease".into(),
            },
            namespace: Some(self.lease.0.clone()),
            name: self.lease.1.clone(),
        }
    }
}

/// Reads an answer. Without a version it is no lease. Taken for one, it would be a lease without a holder, and a write
/// without a version has no precondition: two hosts could then hold the lease.
fn read(what: &str, lease: &Value) -> Result<LeaseRead, Failure> {
    let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() {
        let message = format!("{what}: the answer is not a Lease with a resourceVersion");
        return Err(Failure::new(Code::Internal, message));
    }
    Ok(LeaseRead {
        holder: lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        duration: Duration::from_secs(number(&lease["spec"]["leaseDurationSeconds"])),
        version: version.to_owned(),
        transitions: number(&lease["spec"]["leaseTransitions"]),
    })
}

/// A number of a lease. The field has 32 bits, and somebody else wrote it. One less than the largest value is
/// returned at most, so that the caller can add one.
fn number(value: &Value) -> u64 {
    const MOST: u64 = i32::MAX as u64 - 1;
    value.as_u64().unwrap_or(0).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, not_found, refusal};
    use polity_core::contract::Effect;
    use polity_core::time::Unix;

    fn lease(holder: &str, version: &str) -> Value {
        json!({
            "metadata": {"name": "polity", "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 20, "leaseTransitions": 2},
        })
    }

    fn write(version: Option<&str>) -> LeaseWrite {
        LeaseWrite {
            holder: "me".into(),
            duration: Duration::from_millis(19_500),
            version: version.map(str::to_owned),
            transitions: 3,
            now: Unix(951_782_400_012),
        }
    }

    #[tokio::test]
    async fn a_lease_is_read_and_may_be_absent() {
        let fake = Fake::serving([Reply::json(200, lease("you", "7")), not_found("polity")]);
        let cluster = fake.cluster();
        let expected = LeaseRead {
            holder: "you".into(),
            duration: Duration::from_secs(20),
            version: "7".into(),
            transitions: 2,
        };
        assert_eq!(cluster.lease(None).await, Ok(Some(expected)));
        assert_eq!(cluster.lease(None).await, Ok(None));
        assert_eq!(
            fake.paths()[0],
            "GET /apis/coordination.k8s.io/v1/namespaces/polity-system/leases/polity"
        );
    }

    #[tokio::test]
    async fn numbers_past_all_bounds_are_read_as_large_ones() {
        let mut endless = lease("you", "7");
        endless["spec"]["leaseDurationSeconds"] = json!(u64::MAX);
        endless["spec"]["leaseTransitions"] = json!(u64::MAX);
        let fake = Fake::serving([Reply::json(200, endless)]);
        let read = fake.cluster().lease(None).await.expect("read").expect("a lease");
        assert_eq!(
            read.duration,
            Duration::from_secs(u64::from(i32::MAX.unsigned_abs() - 1))
        );
        assert_eq!(read.transitions, u64::from(i32::MAX.unsigned_abs() - 1));
    }

    #[tokio::test]
    async fn an_answer_that_is_no_lease_is_not_taken_for_a_free_one() {
        for written in [None, Some(write(Some("1")))] {
            let fake = Fake::serving([Reply::json(200, json!({}))]);
            let failure = fake
                .cluster()
                .lease(written.as_ref())
                .await
                .expect_err("no lease");
            let effect = match written {
                None => Effect::None,
                Some(_) => Effect::Unknown,
            };
            assert_eq!((failure.code, failure.effect), (Code::Internal, effect));
        }
    }

    #[tokio::test]
    async fn a_lease_is_written_on_the_version_that_was_read() {
        let fake = Fake::serving([
            Reply::json(201, lease("me", "1")),
            Reply::json(200, lease("me", "2")),
        ]);
        let cluster = fake.cluster();
        let first = cluster
            .lease(Some(&write(None)))
            .await
            .expect("written")
            .expect("a lease");
        assert_eq!((first.holder.as_str(), first.version.as_str()), ("me", "1"));
        assert!(cluster.lease(Some(&write(Some("1")))).await.is_ok());
        let seen = fake.seen();
        assert_eq!(
            (seen[0].method.as_str(), seen[1].method.as_str()),
            ("POST", "PATCH")
        );
        assert_eq!(seen[1].body["metadata"], json!({"resourceVersion": "1"}));
        assert_eq!(
            seen[1].body["spec"],
            json!({
                "holderIdentity": "me", "leaseDurationSeconds": 20, "leaseTransitions": 3,
                "renewTime": "2000-02-29T00:00:00.012000Z",
            })
        );
    }

    #[tokio::test]
    async fn a_write_that_met_another_is_no_renewal_even_if_the_lease_is_ours() {
        for (reply, version) in [
            (refusal(409, "Conflict", "polity"), Some("1")),
            (refusal(409, "AlreadyExists", "polity"), None),
        ] {
            let fake = Fake::serving([reply, Reply::json(200, lease("me", "2"))]);
            let failure = fake
                .cluster()
                .lease(Some(&write(version)))
                .await
                .expect_err("a conflict");
            assert_eq!((failure.code, failure.effect), (Code::Aborted, Effect::None));
        }
        let fake = Fake::serving([not_found("polity")]);
        assert!(fake.cluster().lease(Some(&write(Some("1")))).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_call_is_cut_when_core_no_longer_waits_for_it() {
        for write in [None, Some(write(None))] {
            let fake = Fake::answering([]);
            let began = Instant::now();
            let failure = fake.cluster().lease(write.as_ref()).await.expect_err("no answer");
            assert_eq!(failure.code, Code::DeadlineExceeded);
            assert!(began.elapsed() <= CALL_LONGEST + Duration::from_millis(1));
        }
    }
}
