//! Writes: patches of primaries, and acts on other objects. Each is sent at most once.

use std::collections::BTreeMap;

use polity_core::call::Write;
use polity_core::contract::{Act, Answer, Code, Eviction, Failure, ObjectRef, Precondition};
use polity_core::object::reference_of;
use polity_core::time::Unix;
use polity_kube_rules::deletion::{is_deleting, is_ended};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::Verb;
use crate::request::{MANAGER, named, until};
use crate::{Cluster, LONGEST, event, path};

impl Cluster {
    /// Performs a write. The answer is the object after the write; `null` if the object is gone.
    pub async fn write(&self, write: &Write) -> Answer {
        let end = Instant::now() + LONGEST;
        let prepared = prepare(write)?;
        let what = named(&prepared.object);
        // Discovery comes first and counts as a read: if it is cut, nothing was sent, and the effect is not
        // unknown.
        until(end, Verb::Get, &what, self.resource(&prepared.object.kind)).await?;
        until(end, prepared.verb, &what, self.perform(prepared)).await
    }

    async fn perform(&self, prepared: Prepared<'_>) -> Answer {
        let Prepared {
            verb,
            object,
            subresource,
            body,
            precondition,
            counted,
        } = prepared;
        let answer = match verb {
            Verb::Create => self.post(&object, body, &[MANAGER]).await,
            // `prepare` makes no `Get`.
            Verb::Get | Verb::Patch => {
                self.patch(&object, subresource.as_deref(), body, &[MANAGER])
                    .await
            }
            Verb::Delete => self.delete(&object, body).await,
            Verb::Evict => self.evict(&object, body, precondition).await,
        };
        // The name of an Event follows from its content, so an Event that exists is the same one.
        match (answer, counted) {
            (Err(failure), Some(now)) if failure.code == Code::AlreadyExists => {
                self.count(&object, now).await
            }
            (answer, _) => answer,
        }
    }

    pub(crate) async fn create(&self, object: &Value, query: &[(&str, &str)]) -> Answer {
        self.post(&reference_of(object), object.to_string(), query).await
    }

    async fn post(&self, object: &ObjectRef, text: String, query: &[(&str, &str)]) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path = resource.collection(object.namespace.as_deref())? + &path::query(query);
        self.call(Verb::Create, &named(object), &path, Some(text)).await
    }

    /// Sends a JSON merge patch. `metadata.uid` and `metadata.resourceVersion` in the patch are its
    /// precondition.
    pub(crate) async fn merge(&self, object: &ObjectRef, patch: &Value, query: &[(&str, &str)]) -> Answer {
        self.patch(object, None, patch.to_string(), query).await
    }

    async fn patch(
        &self,
        object: &ObjectRef,
        subresource: Option<&str>,
        text: String,
        query: &[(&str, &str)],
    ) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path =
            resource.object(object.namespace.as_deref(), &object.name, subresource)? + &path::query(query);
        self.call(Verb::Patch, &named(object), &path, Some(text)).await
    }

    pub(crate) async fn delete(&self, object: &ObjectRef, options: String) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path = resource.object(object.namespace.as_deref(), &object.name, None)?;
        let answer = self
            .call(Verb::Delete, &named(object), &path, Some(options))
            .await?;
        // The answer to a deletion is the object that waits for its finalizers, the object as it was before
        // its removal, or a Status. Only the first still exists.
        Ok(if is_deleting(&answer) && !is_ended(&answer) {
            answer
        } else {
            Value::Null
        })
    }

    async fn evict(
        &self,
        object: &ObjectRef,
        eviction: String,
        precondition: Option<&Precondition>,
    ) -> Answer {
        let what = named(object);
        // API servers retry an eviction whose precondition fails for ten seconds. This check ends an eviction
        // that cannot succeed at once. The precondition is sent as well, because the Pod can change after the
        // check.
        let before = self.get(object).await?;
        let uid = precondition.map(|precondition| precondition.uid.as_str());
        let version = precondition.and_then(|precondition| precondition.resource_version.as_deref());
        for (field, wanted) in [("uid", uid), ("resourceVersion", version)] {
            if wanted.is_some_and(|wanted| before["metadata"][field] != wanted) {
                let message = format!("{what}: the precondition failed: another {field}");
                return Err(Failure::new(Code::Aborted, message));
            }
        }
        let resource = self.resource(&object.kind).await?;
        let path = resource.object(object.namespace.as_deref(), &object.name, Some("eviction"))?;
        self.call(Verb::Evict, &what, &path, Some(eviction)).await?;
        // The answer to an eviction is a Status and not the Pod, so the Pod is read afterwards. If that read
        // fails, the Pod is evicted all the same: the effect is unknown.
        match self.get(object).await {
            // It is ending: its grace period runs, or a finalizer holds it.
            Ok(pod) if pod["metadata"]["uid"].as_str() == uid => Ok(pod),
            // Another Pod has the name by now, so the evicted one is gone.
            Ok(_) => Ok(Value::Null),
            Err(failure) if failure.code == Code::NotFound => Ok(Value::Null),
            Err(failure) => Err(failure.effect_unknown()),
        }
    }
}

/// A write in the form in which it is sent.
#[derive(Debug)]
struct Prepared<'a> {
    verb: Verb,
    object: ObjectRef,
    subresource: Option<String>,
    body: String,
    /// Of an eviction.
    precondition: Option<&'a Precondition>,
    /// Set for an Event: if the Event object exists, it is counted up with this time.
    counted: Option<Unix>,
}

fn prepare(write: &Write) -> Result<Prepared<'_>, Failure> {
    let prepared = |verb, object: &ObjectRef, body| Prepared {
        verb,
        object: object.clone(),
        subresource: None,
        body,
        precondition: None,
        counted: None,
    };
    match write {
        Write::Patch {
            object,
            subresource,
            precondition,
            patch,
        } => Ok(Prepared {
            subresource: subresource.clone(),
            ..prepared(Verb::Patch, object, guarded(patch, precondition.as_ref())?)
        }),
        Write::Act(Act::Create(act)) => {
            let body = act.object.object("create")?;
            Ok(prepared(Verb::Create, &reference_of(body), body.to_string()))
        }
        Write::Act(Act::Patch(act)) => Ok(Prepared {
            subresource: act.subresource.clone(),
            ..prepared(
                Verb::Patch,
                &act.object,
                guarded(act.patch.object("patch")?, Some(&act.precondition))?,
            )
        }),
        Write::Act(Act::Delete(act)) => {
            let mut options = options(&act.precondition, act.grace_period_seconds);
            if let Some(policy) = &act.propagation_policy {
                options["propagationPolicy"] = json!(policy);
            }
            Ok(prepared(Verb::Delete, &act.object, options.to_string()))
        }
        Write::Act(Act::Evict(act)) => Ok(Prepared {
            precondition: Some(&act.precondition),
            ..prepared(Verb::Evict, &act.object, eviction(act).to_string())
        }),
        Write::Act(Act::Cloud(_) | Act::Mint(_) | Act::Revoke(_)) => Err(Failure::new(
            Code::Unimplemented,
            "the API server does not perform acts of this kind",
        )),
        Write::Event {
            object,
            uid,
            event,
            now,
        } => {
            let body = event::fresh(object, uid, event, *now);
            Ok(Prepared {
                counted: Some(*now),
                ..prepared(Verb::Create, &reference_of(&body), body.to_string())
            })
        }
    }
}

/// The text of a patch with its precondition in `metadata`. Only the metadata is copied, because a patch may be large.
fn guarded(patch: &Value, precondition: Option<&Precondition>) -> Result<String, Failure> {
    let Some(precondition) = precondition else {
        return Ok(patch.to_string());
    };
    let invalid = |what| Failure::new(Code::InvalidArgument, format!("the {what} is not a JSON object"));
    let fields = patch.as_object().ok_or_else(|| invalid("patch"))?;
    let mut metadata = match fields.get("metadata") {
        // In a merge patch `null` deletes, and no object can be without metadata.
        None | Some(Value::Null) => serde_json::Map::new(),
        Some(Value::Object(fields)) => fields.clone(),
        Some(_) => return Err(invalid("metadata of the patch")),
    };
    // They replace what the patch says itself: a policy does not choose its own precondition.
    metadata.insert("uid".to_owned(), json!(precondition.uid));
    if let Some(version) = &precondition.resource_version {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    let metadata = Value::Object(metadata);
    let mut guarded: BTreeMap<&str, &Value> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    guarded.insert("metadata", &metadata);
    // Writing a tree never fails.
    Ok(serde_json::to_string(&guarded).unwrap_or_default())
}

fn options(precondition: &Precondition, grace: Option<u32>) -> Value {
    let mut preconditions = json!({"uid": precondition.uid});
    if let Some(version) = &precondition.resource_version {
        preconditions["resourceVersion"] = json!(version);
    }
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

fn eviction(act: &Eviction) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": act.object.name, "namespace": act.object.namespace},
        "deleteOptions": options(&act.precondition, act.grace_period_seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, not_found, not_served, reference, refusal, widget};
    use polity_core::contract::{Effect, ObjectCreate, ObjectDelete, ObjectPatch};

    fn patch() -> Write {
        Write::Patch {
            object: reference("g/v1", "Widget", "a", "x"),
            subresource: Some("status".into()),
            precondition: Some(precondition(Some("7"))),
            patch: json!({"status": {"phase": "Ready"}}),
        }
    }

    fn precondition(version: Option<&str>) -> Precondition {
        Precondition {
            uid: "u".into(),
            resource_version: version.map(str::to_owned),
        }
    }

    fn delete() -> Write {
        Write::Act(Act::Delete(ObjectDelete {
            object: reference("g/v1", "Widget", "a", "x"),
            precondition: precondition(Some("7")),
            grace_period_seconds: Some(3),
            propagation_policy: Some("Foreground".into()),
        }))
    }

    fn evict() -> Write {
        Write::Act(Act::Evict(Eviction {
            object: reference("v1", "Pod", "a", "p"),
            precondition: precondition(None),
            grace_period_seconds: Some(5),
        }))
    }

    fn create(text: &str) -> Write {
        Write::Act(Act::Create(ObjectCreate {
            cluster: None,
            object: text.into(),
        }))
    }

    #[tokio::test]
    async fn a_patch_of_a_primary_carries_its_precondition_and_answers_the_object() {
        let fake = Fake::serving([Reply::json(200, widget("x", 8))]);
        assert_eq!(fake.cluster().write(&patch()).await, Ok(widget("x", 8)));
        let seen = &fake.seen()[0];
        assert_eq!(seen.method, "PATCH");
        assert_eq!(
            seen.path,
            "/apis/g/v1/namespaces/a/widgets/x/status?fieldManager=polity"
        );
        assert_eq!(seen.body["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    }

    #[tokio::test]
    async fn a_conflict_aborts_and_changes_nothing() {
        for write in [patch(), delete()] {
            let fake = Fake::serving([refusal(409, "Conflict", "x")]);
            let failure = fake.cluster().write(&write).await.expect_err("a conflict");
            assert_eq!((failure.code, failure.effect), (Code::Aborted, Effect::None));
            assert_eq!(failure.message, "Widget a/x: Conflict of x");
        }
    }

    #[tokio::test]
    async fn a_patch_of_another_object_is_given_its_precondition_whatever_it_says_itself() {
        let act = |text: &str, version| {
            Write::Act(Act::Patch(ObjectPatch {
                object: reference("g/v1", "Widget", "a", "x"),
                precondition: precondition(version),
                subresource: None,
                patch: text.into(),
            }))
        };
        let replies = (0..3).map(|_| Reply::json(200, widget("x", 8)));
        let fake = Fake::serving(replies.collect::<Vec<_>>());
        let cluster = fake.cluster();
        for (text, version) in [
            (r#"{"spec": 1}"#, Some("7")),
            (r#"{"metadata": {"uid": "other", "labels": {}}}"#, None),
            (r#"{"metadata": null}"#, None),
        ] {
            assert!(cluster.write(&act(text, version)).await.is_ok());
        }
        let sent: Vec<Value> = fake.seen().into_iter().map(|seen| seen.body).collect();
        assert_eq!(
            sent[0],
            json!({"spec": 1, "metadata": {"uid": "u", "resourceVersion": "7"}})
        );
        assert_eq!(sent[1], json!({"metadata": {"uid": "u", "labels": {}}}));
        assert_eq!(sent[2], json!({"metadata": {"uid": "u"}}));
        for garbage in [
            "",
            "[]",
            "null",
            "{",
            r#"{"metadata": "x"}"#,
            r#"{"metadata": [1]}"#,
        ] {
            let failure = cluster.write(&act(garbage, None)).await.expect_err(garbage);
            assert_eq!(
                (failure.code, failure.effect),
                (Code::InvalidArgument, Effect::None)
            );
        }
    }

    #[tokio::test]
    async fn a_create_answers_the_object_or_that_it_exists() {
        let fake = Fake::serving([
            Reply::json(201, widget("x", 8)),
            refusal(409, "AlreadyExists", "x"),
        ]);
        let cluster = fake.cluster();
        let write = create(&widget("x", 0).to_string());
        assert_eq!(cluster.write(&write).await, Ok(widget("x", 8)));
        let failure = cluster.write(&write).await.expect_err("it exists");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::AlreadyExists, Effect::None)
        );
        assert_eq!(
            fake.paths()[0],
            "POST /apis/g/v1/namespaces/a/widgets?fieldManager=polity"
        );
        assert!(cluster.write(&create("nonsense")).await.is_err());
    }

    #[tokio::test]
    async fn a_delete_carries_its_options_and_answers_what_stands() {
        let deleting = |more: Value| {
            let mut object = widget("x", 8);
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            for (name, value) in more.as_object().into_iter().flatten() {
                object["metadata"][name] = value.clone();
            }
            object
        };
        let held = deleting(json!({"finalizers": ["f"]}));
        let graceful = deleting(json!({"deletionGracePeriodSeconds": 30}));
        let gone = deleting(json!({"deletionGracePeriodSeconds": 0, "finalizers": []}));
        let success = json!({"kind": "Status", "status": "Success"});
        for (answer, expected) in [
            (held.clone(), held),
            (graceful.clone(), graceful),
            (gone, Value::Null),
            (success, Value::Null),
        ] {
            let fake = Fake::serving([Reply::json(200, answer)]);
            assert_eq!(fake.cluster().write(&delete()).await, Ok(expected));
            let seen = &fake.seen()[0];
            assert_eq!(
                (seen.method.as_str(), seen.path.as_str()),
                ("DELETE", "/apis/g/v1/namespaces/a/widgets/x")
            );
            assert_eq!(
                seen.body,
                json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 3,
                    "propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "7"},
                })
            );
        }
    }

    fn pod(uid: &str) -> Value {
        json!({"kind": "Pod", "metadata": {"name": "p", "uid": uid, "resourceVersion": "7"}})
    }

    #[tokio::test]
    async fn an_eviction_answers_how_the_pod_stands() {
        let before = || Reply::json(200, pod("u"));
        let success = || {
            Reply::json(
                201,
                json!({"kind": "Status", "metadata": {}, "status": "Success"}),
            )
        };
        for (after, expected) in [
            (Reply::json(200, pod("u")), Ok(pod("u"))),
            (Reply::json(200, pod("another")), Ok(Value::Null)),
            (not_found("p"), Ok(Value::Null)),
        ] {
            let fake = Fake::serving([before(), success(), after]);
            assert_eq!(fake.cluster().write(&evict()).await, expected);
            let seen = &fake.seen()[1];
            assert_eq!(seen.path, "/api/v1/namespaces/a/pods/p/eviction");
            assert_eq!(seen.body["deleteOptions"]["preconditions"], json!({"uid": "u"}));
            assert_eq!(seen.body["deleteOptions"]["gracePeriodSeconds"], 5);
        }
        let fake = Fake::serving([before(), success(), Reply::Reset]);
        let failure = fake.cluster().write(&evict()).await.expect_err("cannot say");
        assert_eq!(failure.effect, Effect::Unknown);
    }

    #[tokio::test]
    async fn an_eviction_that_cannot_succeed_is_not_begun() {
        for (pod, code) in [
            (Reply::json(200, pod("another")), Code::Aborted),
            (not_found("p"), Code::NotFound),
        ] {
            let fake = Fake::serving([pod]);
            let failure = fake.cluster().write(&evict()).await.expect_err("not begun");
            assert_eq!((failure.code, failure.effect), (code, Effect::None));
            assert_eq!(fake.paths(), ["GET /api/v1/namespaces/a/pods/p"]);
        }
    }

    #[tokio::test]
    async fn a_disruption_budget_says_when_to_come_back() {
        let mut body = json!({"kind": "Status", "reason": "TooManyRequests", "message": "budget"});
        body["details"] = json!({"name": "p", "retryAfterSeconds": 10});
        let fake = Fake::serving([Reply::json(200, pod("u")), Reply::json(429, body)]);
        let failure = fake.cluster().write(&evict()).await.expect_err("a budget");
        assert_eq!((failure.code, failure.effect), (Code::Unavailable, Effect::None));
        assert_eq!(failure.retry_after, Some(10_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_may_have_been_performed() {
        for reply in [Reply::Silence, Reply::Reset] {
            let fake = Fake::serving([reply]);
            let began = Instant::now();
            let failure = fake.cluster().write(&patch()).await.expect_err("no answer");
            assert_eq!(
                (failure.code, failure.effect),
                (Code::DeadlineExceeded, Effect::Unknown)
            );
            assert!(began.elapsed() <= std::time::Duration::from_millis(5_001));
            assert_eq!(fake.paths().len(), 1, "sent once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_not_sent_was_not_performed() {
        for script in [vec![Reply::Silence], vec![Reply::Refused], vec![not_served()]] {
            let fake = Fake::answering(script);
            let failure = fake.cluster().write(&patch()).await.expect_err("no discovery");
            assert_eq!(failure.effect, Effect::None, "{failure}");
            assert_eq!(fake.paths(), ["GET /apis/g/v1"]);
        }
        let fake = Fake::serving([Reply::Refused]);
        let failure = fake.cluster().write(&patch()).await.expect_err("refused");
        assert_eq!((failure.code, failure.effect), (Code::Unavailable, Effect::None));
    }

    #[tokio::test]
    async fn a_delete_of_no_name_does_not_delete_all() {
        let fake = Fake::serving([Reply::json(200, json!({}))]);
        let write = Write::Act(Act::Delete(ObjectDelete {
            object: reference("g/v1", "Widget", "a", ""),
            precondition: precondition(None),
            grace_period_seconds: None,
            propagation_policy: None,
        }));
        let failure = fake.cluster().write(&write).await.expect_err("no name");
        assert_eq!(failure.code, Code::InvalidArgument);
        assert!(fake.paths().is_empty());
    }
}
