//! Applies manifests: creates an object, or merges into the one that exists. Unknown fields are refused and
//! not dropped.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_core::object::reference_of;
use polity_kube_rules::conditions;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::Cluster;
use crate::error::Verb;
use crate::request::{MANAGER, named, until};

/// The longest time that applying one object may take. Admission webhooks may take 30 s. No lease depends on
/// this time.
const LONGEST: Duration = Duration::from_secs(40);
/// The longest time until a new CRD is served.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// The interval between looks at discovery for an established kind. Servers send no event for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STRICT: (&str, &str) = ("fieldValidation", "Strict");

/// How often a merge is tried when other writes come first.
const TRIES: u32 = 5;

/// The result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object did not exist.
    Created,
    /// The object existed, and the merge changed it.
    Changed,
    /// The object existed, and the merge changed nothing.
    Unchanged,
}

/// The result of applying an object that the caller may leave as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Stands {
    /// The object was created or merged.
    Applied(Applied),
    /// The object was left alone. This is its present state.
    Kept(Value),
}

impl Cluster {
    /// Creates an object, or merges it into the object that has its name. Lists are replaced, and fields that
    /// the manifest does not name stay. A namespaced object without a namespace goes to the client's default
    /// namespace.
    pub async fn apply(&self, object: &Value) -> Result<Applied, Failure> {
        match self.apply_in_time(object, |_| Some(object.clone())).await? {
            Stands::Applied(applied) => Ok(applied),
            Stands::Kept(_) => Ok(Applied::Unchanged),
        }
    }

    /// Creates an object. If an object of this name exists, `merged` decides from it which patch is merged;
    /// `None` leaves the object alone. The patch carries the uid and version that `merged` saw. If somebody
    /// else writes in between, the patch fails and `merged` decides again.
    pub async fn apply_where(
        &self,
        object: &Value,
        merged: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Stands, Failure> {
        let of_this_version = |standing: &Value| {
            let mut patch = merged(standing)?;
            let metadata = metadata_of(&mut patch).ok()?;
            for field in ["uid", "resourceVersion"] {
                *field_of(metadata, field) = standing["metadata"][field].clone();
            }
            Some(patch)
        };
        self.apply_in_time(object, of_this_version).await
    }

    async fn apply_in_time(
        &self,
        object: &Value,
        merged: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Stands, Failure> {
        let end = Instant::now() + LONGEST;
        let what = named(&reference_of(object));
        until(end, Verb::Patch, &what, self.apply_now(object, merged)).await
    }

    async fn apply_now(
        &self,
        object: &Value,
        merged: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Stands, Failure> {
        let mut object = object.clone();
        let reference = self.placed(reference_of(&object)).await?;
        if let Some(namespace) = &reference.namespace {
            *field_of(metadata_of(&mut object)?, "namespace") = json!(namespace);
        }
        // No look comes first: another writer could create the object between the look and the create.
        match self.create(&object, &[MANAGER, STRICT]).await {
            Err(failure) if failure.code == Code::AlreadyExists => {}
            other => return other.map(|_| Stands::Applied(Applied::Created)),
        }
        let mut tries = 0;
        loop {
            let before = self.get(&reference).await?;
            let Some(patch) = merged(&before) else {
                return Ok(Stands::Kept(before));
            };
            tries += 1;
            // After a conflict the patch is made anew, from what another writer has made of the object meanwhile.
            match self.merge(&reference, &patch, &[MANAGER, STRICT]).await {
                Err(failure) if failure.code == Code::Aborted && tries < TRIES => {}
                after => return Ok(Stands::Applied(change(&before, &after?))),
            }
        }
    }

    /// Whether there is an object of the kind and name of a manifest.
    pub async fn exists(&self, manifest: &Value) -> Result<bool, Failure> {
        let reference = self.placed(reference_of(manifest)).await?;
        match self.get(&reference).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == Code::NotFound => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// The reference with the client's default namespace, if it names none and its kind is namespaced.
    async fn placed(&self, mut reference: ObjectRef) -> Result<ObjectRef, Failure> {
        if reference.namespace.is_none() && self.resource(&reference.kind).await?.namespaced {
            reference.namespace = Some(self.client.default_namespace().to_owned());
        }
        Ok(ObjectRef {
            cluster: None,
            ..reference
        })
    }

    /// Waits until a CustomResourceDefinition is established and its kinds are served.
    pub async fn wait_established(&self, name: &str) -> Result<(), Failure> {
        let end = Instant::now() + ESTABLISHED;
        let mut trouble = String::new();
        let waited = timeout_at(end, async {
            for kind in self.established(name, &mut trouble).await? {
                while let Err(failure) = self.resource(&kind).await {
                    trouble = failure.to_string();
                    sleep(LOOK_EVERY).await;
                }
            }
            Ok(())
        });
        match waited.await {
            Ok(done) => done,
            Err(_) => {
                let seconds = ESTABLISHED.as_secs();
                let message =
                    format!("the CustomResourceDefinition {name} is not served after {seconds} s: {trouble}");
                Err(Failure::new(Code::DeadlineExceeded, message))
            }
        }
    }

    /// The kinds that a CRD serves, once it is established. Meanwhile `trouble` says why it is not.
    async fn established(&self, name: &str, trouble: &mut String) -> Result<Vec<Kind>, Failure> {
        let kind = Kind {
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
        };
        let scope = Scope {
            kind,
            namespace: None,
            name: Some(name.to_owned()),
            node: None,
            fields: Vec::new(),
        };
        let mut events = pin!(self.watch(scope));
        while let Some(event) = events.next().await {
            let crd = match event {
                WatchEvent::Applied(object) => Some(object),
                // The scope names one object, so a list has one or none.
                WatchEvent::Listed { objects, .. } => objects.into_iter().next(),
                WatchEvent::Deleted(_) => None,
                WatchEvent::Failed(message) => {
                    *trouble = message;
                    continue;
                }
            };
            let Some(crd) = crd else {
                *trouble = "it does not exist".to_owned();
                continue;
            };
            let crd = crd.tree();
            if conditions::is(&crd, "Established", "True") {
                return Ok(kinds(&crd));
            }
            *trouble = "it is not established yet".to_owned();
            // Another definition has these names. Until somebody deletes it or renames this one, waiting is no use.
            if let Some(refused) = conditions::find(&crd, "NamesAccepted").filter(|c| c["status"] == "False")
            {
                let why = refused["message"].as_str().unwrap_or_default();
                let message = format!("the names of the CustomResourceDefinition {name} are refused: {why}");
                return Err(Failure::new(Code::FailedPrecondition, message));
            }
        }
        Ok(Vec::new())
    }
}

fn change(before: &Value, after: &Value) -> Applied {
    // The merge does not say whether it changed something. But a server gives a new version only to what has changed.
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    if version(before) == version(after) {
        Applied::Unchanged
    } else {
        Applied::Changed
    }
}

/// The metadata of the object to apply. The object comes from outside, so it may have any shape.
fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, Failure> {
    let fields = object.as_object_mut();
    let metadata = fields.map(|fields| field_of(fields, "metadata"));
    metadata.and_then(Value::as_object_mut).ok_or_else(|| {
        let message = "the manifest is not an object with metadata";
        Failure::new(Code::InvalidArgument, message)
    })
}

fn field_of<'a>(fields: &'a mut Map<String, Value>, name: &str) -> &'a mut Value {
    fields.entry(name).or_insert(Value::Null)
}

fn kinds(crd: &Value) -> Vec<Kind> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| Kind {
            api_version: format!("{group}/{}", text(&version["name"])),
            kind: kind.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, Then, not_served, refusal, widget};

    fn crd(conditions: Value) -> Value {
        let versions = json!([{"name": "v1", "served": true}, {"name": "v0", "served": false}]);
        json!({
            "metadata": {"name": "widgets.g", "resourceVersion": "5"},
            "spec": {"group": "g", "names": {"kind": "Widget"}, "versions": versions},
            "status": {"conditions": conditions},
        })
    }

    fn list(crd: Value) -> Reply {
        Reply::json(200, json!({"metadata": {"resourceVersion": "5"}, "items": [crd]}))
    }

    fn discovery(name: &str, kind: &str) -> Reply {
        Reply::json(
            200,
            json!({"resources": [{"name": name, "kind": kind, "namespaced": false}]}),
        )
    }

    #[tokio::test]
    async fn what_is_not_there_is_created_strictly() {
        let fake = Fake::serving([Reply::json(201, widget("x", 1))]);
        assert_eq!(fake.cluster().apply(&widget("x", 0)).await, Ok(Applied::Created));
        assert_eq!(
            fake.paths(),
            ["POST /apis/g/v1/namespaces/a/widgets?fieldManager=polity&fieldValidation=Strict"]
        );
    }

    #[tokio::test]
    async fn what_is_there_is_merged_into() {
        for (after, expected) in [(2, Applied::Changed), (1, Applied::Unchanged)] {
            let fake = Fake::serving([
                refusal(409, "AlreadyExists", "x"),
                Reply::json(200, widget("x", 1)),
                Reply::json(200, widget("x", after)),
            ]);
            assert_eq!(fake.cluster().apply(&widget("x", 0)).await, Ok(expected));
            assert_eq!(
                fake.paths()[2],
                "PATCH /apis/g/v1/namespaces/a/widgets/x?fieldManager=polity&fieldValidation=Strict"
            );
        }
    }

    #[tokio::test]
    async fn a_namespaced_object_without_a_namespace_goes_to_the_default_one() {
        let mut object = widget("x", 0);
        object["metadata"] = json!({"name": "x"});
        let fake = Fake::serving([Reply::json(201, json!({}))]);
        assert!(fake.cluster().apply(&object).await.is_ok());
        let seen = &fake.seen()[0];
        assert!(seen.path.starts_with("/apis/g/v1/namespaces/default/widgets?"));
        assert_eq!(seen.body["metadata"]["namespace"], "default");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_is_waited_for_until_its_kind_is_served() {
        let established = crd(json!([{"type": "Established", "status": "True"}]));
        let modified = json!({"type": "MODIFIED", "object": established});
        let fake = Fake::answering([
            discovery("customresourcedefinitions", "CustomResourceDefinition"),
            list(crd(json!([]))),
            Reply::Watch(vec![modified], Then::Silence),
            not_served(),
            discovery("widgets", "Widget"),
        ]);
        assert_eq!(fake.cluster().wait_established("widgets.g").await, Ok(()));
        assert_eq!(fake.paths()[3..], ["GET /apis/g/v1", "GET /apis/g/v1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_that_never_serves_says_why() {
        let fake = Fake::answering([
            discovery("customresourcedefinitions", "CustomResourceDefinition"),
            list(crd(json!([]))),
        ]);
        let failure = fake
            .cluster()
            .wait_established("widgets.g")
            .await
            .expect_err("never");
        assert_eq!(failure.code, Code::DeadlineExceeded);
        assert!(failure.message.contains("widgets.g"), "{failure}");

        let refused = json!([{"type": "NamesAccepted", "status": "False", "message": "taken"}]);
        let fake = Fake::serving([list(crd(refused))]);
        let failure = fake
            .cluster()
            .wait_established("widgets.g")
            .await
            .expect_err("refused");
        assert_eq!(failure.code, Code::FailedPrecondition);
        assert!(failure.message.ends_with("taken"), "{failure}");
    }
}
