//! `PolicyBinding`: which policies govern which kind, with which grants, limits and cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Json, Kind, Manifest, Role};
use crate::grants::Grants;
use crate::time::as_millis;

/// The `apiVersion` of bindings.
pub const API_VERSION: &str = "polity.dev/v1alpha1";
/// The `kind` of bindings.
pub const KIND: &str = "PolicyBinding";

/// The sha256 of a policy's bytes, in hexadecimal: what a policy *is*.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyId(pub std::sync::Arc<str>);

/// `spec` of a PolicyBinding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BindingSpec {
    /// The kind governed.
    pub governs: Governs,
    /// A policy for each role.
    pub policies: Policies,
    /// The cloud its policies ask and act in; none for policies without cloud operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudRef>,
    /// What a tenant is. Default: the namespace.
    #[serde(default)]
    pub tenant: Tenant,
    /// What its policies may ask and do. Everything else is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Kinds whose CustomResourceDefinitions its policies may bring, beside the kind governed and those of the grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crds: Vec<GroupKind>,
    /// Bounds, each with a default.
    #[serde(default)]
    pub limits: Limits,
}

/// The objects that a binding governs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Governs {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Only objects of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only the object of this name, which gets passes while it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Governs {
    /// The kind alone.
    pub fn kind(&self) -> Kind {
        Kind {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        }
    }
}

/// A kind in all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupKind {
    /// `example.com`
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// A policy for each role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the roles are documented in wit/policy.wit")]
pub struct Policies {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PolicySource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<PolicySource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<PolicySource>,
}

impl Policies {
    /// Where the policy of a role comes from.
    pub fn source(&self, role: Role) -> Option<&PolicySource> {
        match role {
            Role::Identity => self.identity.as_ref(),
            Role::Lifecycle => self.lifecycle.as_ref(),
            Role::Retry => self.retry.as_ref(),
        }
    }
}

/// Where a policy comes from, and how it is configured. Exactly one of `file` and `crate` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySource {
    /// A file in the policy folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// For development: the folder of a policy crate, built with cargo.
    #[serde(default, rename = "crate", skip_serializing_if = "Option::is_none")]
    pub krate: Option<String>,
    /// What the file's bytes must hash to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// As the manifest's schema says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Value>,
    /// Dotted paths of the primary: of what its manifest says it writes only these. None is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Vec<String>>,
}

/// A cloud by name, and what its adapter needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudRef {
    /// `sim`
    pub name: String,
    /// As the adapter's schema says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Value>,
}

/// What a tenant is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tenant {
    /// Its namespace.
    #[default]
    Namespace,
    /// The value at this dotted path of the object.
    Path(String),
}

/// Something that the binding allows. A grant reaches the primary's own namespace unless it says more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// Look at objects.
    Ask(KindGrant),
    /// See that Secrets exist.
    Secrets(SecretGrant),
    /// Call these operations: exact names, or a prefix that ends in `.*`.
    Cloud(Vec<String>),
    /// Take these locks: exact names, or a prefix that ends in `*`.
    Lock(Vec<String>),
    /// Describe credential plans.
    Credential(bool),
    /// Create objects.
    Create(KindGrant),
    /// Patch objects.
    Patch(KindGrant),
    /// Delete objects.
    Delete(KindGrant),
    /// Evict Pods.
    Evict(KindGrant),
    /// Mint these kinds of token, and make useless what was minted.
    Mint(Vec<MintGrant>),
    /// Ask whether the API server answers.
    Reachable(bool),
    /// Write these guarded paths of the primary: `metadata.ownerReferences`, and `metadata.finalizers[NAME]` of others.
    /// The policy's manifest names them too.
    Write(Vec<String>),
}

/// A kind of token that may be minted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MintGrant {
    /// With the default bounds.
    Kind(String),
    /// With bounds of its own.
    Bounded(BoundedMint),
}

/// A kind of token, how long each is of use, and how many are at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundedMint {
    /// `bootstrap-token`, with which a node joins this cluster, or `password`, random letters for whatever takes one.
    pub kind: String,
    /// Bootstrap tokens: the groups that whoever joins is of, beside `system:bootstrappers`. What signs certificates of
    /// nodes looks at them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// How long a token is of use at most.
    #[serde(default = "longest_ttl", with = "as_millis")]
    pub longest_ttl: Duration,
    /// Tokens that are of use at a time for one object.
    #[serde(default = "minted_count")]
    pub count: u32,
}

/// A day.
fn longest_ttl() -> Duration {
    Duration::from_hours(24)
}

fn minted_count() -> u32 {
    16
}

impl MintGrant {
    /// The kind of token.
    pub fn kind(&self) -> &str {
        match self {
            MintGrant::Kind(kind) => kind,
            MintGrant::Bounded(mint) => &mint.kind,
        }
    }

    /// The groups of whoever joins with a bootstrap token.
    pub fn groups(&self) -> &[String] {
        match self {
            MintGrant::Kind(_) => &[],
            MintGrant::Bounded(mint) => &mint.groups,
        }
    }

    /// How long a token is of use at most.
    pub fn longest_ttl(&self) -> Duration {
        match self {
            MintGrant::Kind(_) => longest_ttl(),
            MintGrant::Bounded(mint) => mint.longest_ttl,
        }
    }

    /// Tokens that are of use at a time for one object.
    pub fn count(&self) -> u32 {
        match self {
            MintGrant::Kind(_) => minted_count(),
            MintGrant::Bounded(mint) => mint.count,
        }
    }
}

/// A kind and how far the grant reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindGrant {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Namespaces reached: none is the primary's own; `["*"]` is all of them. What lives in no namespace takes a name, a
    /// relation, or `["*"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Only the object of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only objects that stand in this relation to the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    /// Dotted paths that policies may see; none is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// Patches: subresources that may be patched beside `status` and `scale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresources: Option<Vec<String>>,
    /// Patches and creations: `finalizers` and `ownerReferences`, where they may be written. Whoever writes an owner
    /// reference can have the object collected, whoever writes finalizers can keep it for ever or end it early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Vec<String>>,
}

impl KindGrant {
    /// The kind alone.
    pub fn kind(&self) -> Kind {
        Kind {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        }
    }
}

/// `theirs` of the other object equals `ours` of the primary: dotted paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Relation {
    /// `spec.providerID`
    pub theirs: String,
    /// `status.providerID`
    pub ours: String,
}

/// Which Secrets may be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretGrant {
    /// As in [`KindGrant`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Only the Secret of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Bounds on what a policy may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// Fuel of one step: about instructions. The default is some hundred times what a shipped policy uses.
    pub step_fuel: u64,
    /// Fuel of a pass.
    pub pass_fuel: u64,
    /// Bytes of one step in all its linear memories and tables.
    pub memory: u64,
    /// Wall time of one step: a seat belt.
    #[serde(with = "as_millis")]
    pub step_wall: Duration,
    /// Steps of a pass.
    pub steps: u32,
    /// Journal entries of a pass.
    pub entries: u32,
    /// Questions of a pass about objects of the cluster: each is watched for as long as its answer is used.
    pub dependencies: u32,
    /// Bytes of journal of a pass.
    pub journal: u64,
    /// Bytes of one answer; more is `resource-exhausted`.
    pub answer: u64,
    /// Bytes that one step may return.
    pub output: u64,
    /// Passes of one tenant in flight.
    pub passes_per_tenant: u32,
    /// Passes that a key may start in a burst.
    pub burst: u32,
    /// In this time a key earns one more pass.
    #[serde(with = "as_millis")]
    pub refill: Duration,
    /// Events of one pass.
    pub events: u32,
    /// Notes of one pass.
    pub notes: u32,
    /// Cloud calls of this binding in flight.
    pub cloud_calls: u32,
    /// A retry policy can make a key wait so long at least: less is as fast as the host can go.
    #[serde(with = "as_millis")]
    pub shortest_wait: Duration,
    /// A retry policy can make a key wait so long at most: longer is taken for a mistake.
    #[serde(with = "as_millis")]
    pub longest_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            step_fuel: 10_000_000,
            pass_fuel: 500_000_000,
            memory: 16 << 20,
            step_wall: Duration::from_secs(1),
            steps: 64,
            entries: 1_024,
            dependencies: 256,
            journal: 8 << 20,
            answer: 1 << 20,
            output: 1 << 20,
            passes_per_tenant: 64,
            burst: 20,
            refill: Duration::from_secs(1),
            events: 16,
            notes: 256,
            cloud_calls: 64,
            shortest_wait: Duration::from_millis(100),
            longest_wait: Duration::from_hours(24),
        }
    }
}

/// A policy as loaded: what it is, says of itself and is configured with.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedPolicy {
    /// The digest of its bytes.
    pub id: PolicyId,
    /// What it says of itself.
    pub manifest: std::sync::Arc<Manifest>,
    /// Its configuration with defaults filled in.
    pub config: Json,
}

/// A binding whose policies are loaded and whose needs are granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// `metadata.name` of the PolicyBinding.
    pub name: String,
    /// Its place in the order of creation: the oldest match governs an object.
    pub created: u64,
    /// What was asked for.
    pub spec: BindingSpec,
    /// What [`BindingSpec::grants`] allow.
    pub grants: std::sync::Arc<Grants>,
    /// Its policies by role.
    pub policies: BTreeMap<Role, LoadedPolicy>,
    /// What its cloud can do; empty without a cloud.
    pub catalogue: std::sync::Arc<crate::catalogue::Catalogue>,
    /// The namespaces that the host was started for; none: all. They narrow a binding that names no namespace itself.
    pub namespaces: Option<std::sync::Arc<[String]>>,
}

impl Binding {
    /// The same binding with these grants.
    pub fn with_grants(mut self, grants: Vec<Grant>) -> Self {
        self.grants = Grants::compile(&grants).into();
        self.spec.grants = grants;
        self
    }

    /// The policy of a role.
    pub fn policy(&self, role: Role) -> Option<&LoadedPolicy> {
        self.policies.get(&role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_role_has_a_policy_of_its_own() {
        let source = |file: &str| json!({"file": file});
        let policies: Policies = serde_json::from_value(
            json!({"identity": source("identity"), "lifecycle": source("lifecycle"), "retry": source("retry")}),
        )
        .expect("policies");
        for role in [Role::Identity, Role::Lifecycle, Role::Retry] {
            let file = policies.source(role).and_then(|source| source.file.as_deref());
            assert_eq!(file, Some(role.as_str()));
        }
        assert_eq!(Policies::default().source(Role::Retry), None);
    }

    #[test]
    fn a_grant_to_mint_has_its_own_bounds_or_those_of_everybody() {
        let plain: MintGrant = serde_json::from_value(json!("password")).expect("a grant");
        let all = (
            plain.kind(),
            plain.groups().len(),
            plain.longest_ttl(),
            plain.count(),
        );
        assert_eq!(all, ("password", 0, Duration::from_hours(24), 16));
        let bounds = json!({"kind": "bootstrap-token", "groups": ["g"], "longestTtl": 5, "count": 3});
        let bounded: MintGrant = serde_json::from_value(bounds).expect("a grant");
        let all = (
            bounded.kind(),
            bounded.groups(),
            bounded.longest_ttl(),
            bounded.count(),
        );
        assert_eq!(
            all,
            (
                "bootstrap-token",
                &["g".to_owned()][..],
                Duration::from_millis(5),
                3
            )
        );
    }

    #[test]
    fn the_lengths_of_a_binding_are_written_in_milliseconds() {
        let limits = Limits {
            step_wall: Duration::from_millis(u64::MAX),
            ..Limits::default()
        };
        let written = serde_json::to_value(&limits).expect("written");
        for (name, milliseconds) in [
            ("stepWall", u64::MAX),
            ("refill", 1_000),
            ("shortestWait", 100),
            ("longestWait", 86_400_000),
        ] {
            assert_eq!(written[name], milliseconds, "{name}");
        }
        assert_eq!(serde_json::from_value::<Limits>(written).expect("read"), limits);
        for wrong in [
            json!({"stepWall": "1s"}),
            json!({"refill": -1}),
            json!({"longestWait": 1.5}),
        ] {
            assert!(
                serde_json::from_value::<Limits>(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
    }
}
