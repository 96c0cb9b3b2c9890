//! Requests about other objects of the cluster.
//!
//! A request for a namespaced kind goes to the primary's own namespace unless it names another one. A grant
//! reaches no further by default.

use std::marker::PhantomData;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{
    self, Eviction, Failure, ListQuery, Mint, ObjectCreate, ObjectDelete, ObjectPatch, ObjectQuery,
    ObjectRef, Precondition, Question,
};
use crate::request::{self, Act, Ask};
use crate::time::millis;
use crate::{Kind, Metadata};

/// Asks for one object. The answer is the object, or `not-found`.
pub fn object<K: Kind>(name: &str) -> ObjectAsk<K> {
    ObjectAsk {
        query: ObjectQuery {
            object: reference::<K>(None, name),
            projection: projection::<K>(),
            latest: false,
        },
        kind: PhantomData,
    }
}

/// Asks for the objects of a kind, ordered by namespace and name.
pub fn objects<K: Kind>() -> ObjectsAsk<K> {
    ObjectsAsk {
        query: ListQuery {
            cluster: None,
            page: None,
            api_version: K::API_VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            namespace: None,
            label_selector: None,
            field_selector: None,
            projection: projection::<K>(),
            limit: 0,
            latest: false,
        },
        everywhere: false,
        kind: PhantomData,
    }
}

/// Asks whether a Secret in the primary's namespace exists, for its key names, and for a digest. Its values
/// are never answered.
pub fn secret(name: &str) -> SecretAsk {
    SecretAsk(ObjectRef {
        cluster: None,
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: None,
        name: name.to_owned(),
    })
}

/// Creates an object. It needs a fixed `metadata.name`.
pub fn create<K: Kind>(object: &K) -> Write {
    let mut value = serde_json::to_value(object).expect("an object has a JSON form");
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), K::API_VERSION.into());
        fields.insert("kind".to_owned(), K::KIND.into());
    }
    Write(WriteAct::Create(value, K::NAMESPACED))
}

/// Patches another object with a JSON merge patch. `seen` is the object as this pass saw it; the patch fails
/// if it has changed.
pub fn patch<K: Kind>(seen: &K, patch: Value) -> Write {
    Write(WriteAct::Patch(ObjectPatch {
        object: seen_reference(seen),
        precondition: precondition(seen.metadata()),
        subresource: None,
        patch: patch.to_string(),
    }))
}

/// Deletes another object. `seen` is the object as this pass saw it; the deletion fails if it has changed.
pub fn delete<K: Kind>(seen: &K) -> Write {
    Write(WriteAct::Delete(ObjectDelete {
        object: seen_reference(seen),
        precondition: precondition(seen.metadata()),
        grace_period_seconds: None,
        propagation_policy: None,
    }))
}

/// Evicts a Pod. Disruption budgets are respected. A spent budget is `resource-exhausted`, with a
/// `retry_after` only while the budget is not computed yet. Two budgets for one Pod are
/// `failed-precondition`.
pub fn evict<K: Kind>(pod: &K) -> Write {
    Write(WriteAct::Evict(Eviction {
        object: seen_reference(pod),
        precondition: precondition(pod.metadata()),
        grace_period_seconds: None,
    }))
}

/// Mints a token in the host, of a kind that the binding grants. The answer is a sealed reference to it.
pub fn mint(kind: &str, ttl: impl Into<Duration>) -> MintAct {
    MintAct(Mint {
        cluster: None,
        kind: kind.to_owned(),
        ttl: millis(ttl.into()),
    })
}

/// Revokes a token that was minted for this object. A token that is already gone is no failure.
pub fn revoke(token: Sealed) -> RevokeAct {
    RevokeAct(token)
}

/// Asks whether the API server of the primary's cluster answers. If it does not, the answer is `unavailable`
/// with the reason.
pub fn reachable() -> ReachableAsk {
    ReachableAsk(())
}

fn reference<K: Kind>(namespace: Option<String>, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        namespace,
        name: name.to_owned(),
    }
}

fn seen_reference<K: Kind>(seen: &K) -> ObjectRef {
    reference::<K>(seen.metadata().namespace.clone(), &seen.metadata().name)
}

fn precondition(metadata: &Metadata) -> Precondition {
    Precondition {
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
    }
}

fn projection<K: Kind>() -> Vec<String> {
    K::PROJECTION.iter().map(|path| (*path).to_owned()).collect()
}

fn at_home(namespace: Option<String>, home: Option<&str>) -> Option<String> {
    namespace.or_else(|| home.map(str::to_owned))
}

/// A question for one object. See [`object`].
#[derive(Clone, Debug)]
pub struct ObjectAsk<K> {
    query: ObjectQuery,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> ObjectAsk<K> {
    /// Looks in this namespace instead of the primary's.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.query.object.namespace = Some(namespace.to_owned());
        self
    }

    /// Keeps the fields at these dotted paths instead of the kind's own projection.
    pub fn keep(mut self, paths: &[&str]) -> Self {
        self.query.projection = paths.iter().map(|path| (*path).to_owned()).collect();
        self
    }

    /// Reads from the API server and not from the watch cache.
    pub fn latest(mut self) -> Self {
        self.query.latest = true;
        self
    }
}

impl<K: Kind> Ask for ObjectAsk<K> {
    type Answer = K;

    fn question(mut self, home: Option<&str>) -> Question {
        if K::NAMESPACED {
            self.query.object.namespace = at_home(self.query.object.namespace, home);
        }
        Question::Object(self.query)
    }

    fn read(json: &str) -> Result<K, Failure> {
        request::read(json)
    }
}

/// A question for the objects of a kind. See [`objects`].
#[derive(Clone, Debug)]
pub struct ObjectsAsk<K> {
    query: ListQuery,
    everywhere: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> ObjectsAsk<K> {
    /// Looks in this namespace instead of the primary's.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.query.namespace = Some(namespace.to_owned());
        self
    }

    /// Looks in every namespace. The grant must cover all of them (`namespaces: ["*"]`), or relate the objects to
    /// the primary. Under a grant that lists some namespaces, ask for each with [`namespace`](Self::namespace).
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Selects by labels: `app=web,tier in (a,b)`.
    pub fn labels(mut self, selector: &str) -> Self {
        self.query.label_selector = Some(selector.to_owned());
        self
    }

    /// Selects by fields: `metadata.name=…`, and `spec.nodeName=…` for Pods.
    pub fn fields(mut self, selector: &str) -> Self {
        self.query.field_selector = Some(selector.to_owned());
        self
    }

    /// Keeps the fields at these dotted paths instead of the kind's own projection.
    pub fn keep(mut self, paths: &[&str]) -> Self {
        self.query.projection = paths.iter().map(|path| (*path).to_owned()).collect();
        self
    }

    /// The most objects. If there are more, the answer is `resource-exhausted`.
    pub fn limit(mut self, objects: u32) -> Self {
        self.query.limit = objects;
        self
    }

    /// Reads from the API server and not from the watch cache.
    pub fn latest(mut self) -> Self {
        self.query.latest = true;
        self
    }
}

impl<K: Kind> Ask for ObjectsAsk<K> {
    type Answer = Vec<K>;

    fn question(mut self, home: Option<&str>) -> Question {
        if K::NAMESPACED && !self.everywhere {
            self.query.namespace = at_home(self.query.namespace, home);
        }
        Question::Objects(self.query)
    }

    fn read(json: &str) -> Result<Vec<K>, Failure> {
        request::read(json)
    }
}

/// A question about a Secret. See [`secret`].
#[derive(Clone, Debug)]
pub struct SecretAsk(ObjectRef);

impl SecretAsk {
    /// Looks in this namespace instead of the primary's.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.namespace = Some(namespace.to_owned());
        self
    }
}

impl Ask for SecretAsk {
    type Answer = SecretFacts;

    fn question(mut self, home: Option<&str>) -> Question {
        self.0.namespace = at_home(self.0.namespace, home);
        Question::Secret(self.0)
    }

    fn read(json: &str) -> Result<SecretFacts, Failure> {
        request::read(json)
    }
}

/// The facts about a Secret that a policy may know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SecretFacts {
    /// Whether it exists.
    pub exists: bool,
    /// The names of its keys.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A digest of the values, which changes when a value does. Its key belongs to the installation, so the
    /// digest tells nothing about the values.
    #[serde(default)]
    pub digest: Option<String>,
}

/// A write to another object. See [`create()`], [`patch()`], [`delete`] and [`evict`].
#[derive(Clone, Debug)]
pub struct Write(WriteAct);

#[derive(Clone, Debug)]
enum WriteAct {
    /// The object, and whether its kind is namespaced.
    Create(Value, bool),
    Patch(ObjectPatch),
    Delete(ObjectDelete),
    Evict(Eviction),
}

impl Write {
    /// Patches this subresource, for example `status`. For [`patch()`] only.
    pub fn subresource(mut self, name: &str) -> Self {
        if let WriteAct::Patch(patch) = &mut self.0 {
            patch.subresource = Some(name.to_owned());
        }
        self
    }

    /// Sets the grace period. For [`delete`] and [`evict`] only.
    pub fn grace_period_seconds(mut self, seconds: u32) -> Self {
        match &mut self.0 {
            WriteAct::Delete(delete) => delete.grace_period_seconds = Some(seconds),
            WriteAct::Evict(eviction) => eviction.grace_period_seconds = Some(seconds),
            WriteAct::Create(..) | WriteAct::Patch(_) => {}
        }
        self
    }

    /// `Background`, `Foreground` or `Orphan`. For [`delete`] only.
    pub fn propagation_policy(mut self, policy: &str) -> Self {
        if let WriteAct::Delete(delete) = &mut self.0 {
            delete.propagation_policy = Some(policy.to_owned());
        }
        self
    }

    /// Accepts any version of the object. For writes that are right whatever the version is, such as taints
    /// that merge by key.
    pub fn any_version(mut self) -> Self {
        match &mut self.0 {
            WriteAct::Patch(patch) => patch.precondition.resource_version = None,
            WriteAct::Delete(delete) => delete.precondition.resource_version = None,
            WriteAct::Evict(eviction) => eviction.precondition.resource_version = None,
            WriteAct::Create(..) => {}
        }
        self
    }
}

/// The answer to a write. It never has the object's content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The object's uid.
    pub uid: String,
    /// Its version after the write.
    #[serde(default)]
    pub resource_version: Option<String>,
    /// Its generation after the write.
    #[serde(default)]
    pub generation: Option<i64>,
}

impl Act for Write {
    type Answer = Written;

    fn act(self, home: Option<&str>) -> contract::Act {
        match self.0 {
            WriteAct::Create(mut object, namespaced) => {
                let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
                if let (true, Some(metadata), Some(home)) = (namespaced, metadata, home) {
                    metadata.entry("namespace").or_insert_with(|| home.into());
                }
                contract::Act::Create(ObjectCreate {
                    cluster: None,
                    object: object.to_string(),
                })
            }
            WriteAct::Patch(patch) => contract::Act::Patch(patch),
            WriteAct::Delete(delete) => contract::Act::Delete(delete),
            WriteAct::Evict(eviction) => contract::Act::Evict(eviction),
        }
    }

    fn read(json: &str) -> Result<Written, Failure> {
        request::read(json)
    }
}

/// Mints a token. See [`mint`].
#[derive(Clone, Debug)]
pub struct MintAct(Mint);

impl Act for MintAct {
    type Answer = Sealed;

    fn act(self, _: Option<&str>) -> contract::Act {
        contract::Act::Mint(self.0)
    }

    fn read(json: &str) -> Result<Sealed, Failure> {
        request::read(json)
    }
}

/// Revokes a token. See [`revoke`].
#[derive(Clone, Debug)]
pub struct RevokeAct(Sealed);

impl Act for RevokeAct {
    type Answer = ();

    fn act(self, _: Option<&str>) -> contract::Act {
        contract::Act::Revoke(serde_json::to_string(&self.0).expect("a reference has a JSON form"))
    }

    fn read(_: &str) -> Result<(), Failure> {
        Ok(())
    }
}

/// A question about an API server. See [`reachable`].
#[derive(Clone, Debug)]
pub struct ReachableAsk(());

impl Ask for ReachableAsk {
    type Answer = ();

    fn question(self, _: Option<&str>) -> Question {
        Question::Reachable(None)
    }

    fn read(_: &str) -> Result<(), Failure> {
        Ok(())
    }
}

/// A sealed value. The host inserts the value when it performs an operation; the policy has only its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    #[serde(rename = "$secret")]
    secret: SecretKey,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SecretKey {
    name: String,
    key: String,
}

impl Sealed {
    /// The name under which the host keeps the value, and the key in it.
    pub fn parts(&self) -> (&str, &str) {
        (&self.secret.name, &self.secret.key)
    }
}

/// The value of a Secret's key, for an argument that the catalogue marks as sealed.
pub fn sealed(secret: &str, key: &str) -> Sealed {
    Sealed {
        secret: SecretKey {
            name: secret.to_owned(),
            key: key.to_owned(),
        },
    }
}
