//! `PolicyBinding`: which policies govern which kind, with which grants, limits and cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Json, Kind, Manifest, Role};
use crate::grants::Grants;
pub use crate::grants::{BoundedMint, Grant, KindGrant, MintGrant, Relation, SecretGrant};
use crate::time::as_millis;

/// The `apiVersion` of bindings.
pub const API_VERSION: &str = "polity.dev/v1alpha1";
/// The `kind` of bindings.
pub const KIND: &str = "PolicyBinding";

/// The sha256 of a policy's bytes, in hexadecimal. It identifies a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyId(pub std::sync::Arc<str>);

/// `spec` of a PolicyBinding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BindingSpec {
    /// The governed kind.
    pub governs: Governs,
    /// The policy of each role.
    pub policies: Policies,
    /// The cloud that the policies use; `None` for policies without cloud operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudRef>,
    /// What the tenant of an object is. Default: its namespace.
    #[serde(default)]
    pub tenant: Tenant,
    /// What the policies may ask and do. Everything else is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Kinds whose CustomResourceDefinitions the policies may bring, in addition to the governed kind and the kinds
    /// of the grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crds: Vec<GroupKind>,
    /// The limits, each with a default.
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
    /// If given, only objects of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// If given, only the object of this name. It gets passes even while it is absent.
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

/// A kind, in all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupKind {
    /// `example.com`
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// The policy of each role.
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
    /// The source of the policy of a role.
    pub fn source(&self, role: Role) -> Option<&PolicySource> {
        match role {
            Role::Identity => self.identity.as_ref(),
            Role::Lifecycle => self.lifecycle.as_ref(),
            Role::Retry => self.retry.as_ref(),
        }
    }
}

/// The source and the configuration of a policy. Exactly one of `file` and `crate` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySource {
    /// A file in the policy folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// For development: the folder of a policy crate. The host builds the crate with cargo.
    #[serde(default, rename = "crate", skip_serializing_if = "Option::is_none")]
    pub krate: Option<String>,
    /// The expected sha256 of the WebAssembly, unpacked if gzip has packed its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The configuration, as the schema of the manifest requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Value>,
    /// Dotted paths of the primary. The policy may write only these of the paths in its manifest; `None` allows all
    /// of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Vec<String>>,
}

/// A cloud and its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudRef {
    /// `sim`
    pub name: String,
    /// The configuration, as the schema of the adapter requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Value>,
}

/// What the tenant of an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tenant {
    /// The namespace of the object.
    #[default]
    Namespace,
    /// The value at this dotted path of the object.
    Path(String),
}

/// Limits for the policies of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// The fuel of one step. One unit is about one instruction. The default is some hundred times what a shipped
    /// policy needs.
    pub step_fuel: u64,
    /// The fuel of one pass.
    pub pass_fuel: u64,
    /// The bytes of all linear memories and tables of one step.
    pub memory: u64,
    /// The wall time of one step. Fuel normally ends a step much earlier.
    #[serde(with = "as_millis")]
    pub step_wall: Duration,
    /// The steps of one pass.
    pub steps: u32,
    /// The journal entries of one pass.
    pub entries: u32,
    /// The questions of one pass about objects of the cluster. Each answer is watched as long as it is used.
    pub dependencies: u32,
    /// The bytes in the journal of one pass.
    pub journal: u64,
    /// The bytes of one answer. A larger one is `resource-exhausted`.
    pub answer: u64,
    /// The bytes that one step may return.
    pub output: u64,
    /// The passes of one tenant in flight.
    pub passes_per_tenant: u32,
    /// The passes that a key may start in a burst.
    pub burst: u32,
    /// The time after which a key may start one more pass.
    #[serde(with = "as_millis")]
    pub refill: Duration,
    /// The Events of one pass.
    pub events: u32,
    /// The notes of one pass.
    pub notes: u32,
    /// The cloud calls of this binding in flight.
    pub cloud_calls: u32,
    /// The shortest wait that a retry policy can ask for, whatever pause a driver names: that is a hint. Without this floor a key
    /// could be retried as fast as the host can.
    #[serde(with = "as_millis")]
    pub shortest_wait: Duration,
    /// The longest wait that a retry policy can ask for. A longer wait is probably a mistake.
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

impl Limits {
    /// Only those that a pass can meet. The others are zero.
    fn of_a_pass(&self) -> Limits {
        Limits {
            passes_per_tenant: 0,
            burst: 0,
            refill: Duration::ZERO,
            cloud_calls: 0,
            shortest_wait: Duration::ZERO,
            longest_wait: Duration::ZERO,
            ..self.clone()
        }
    }
}

/// A loaded policy with its manifest and configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedPolicy {
    /// The digest of the policy's bytes.
    pub id: PolicyId,
    /// The manifest of the policy.
    pub manifest: std::sync::Arc<Manifest>,
    /// The configuration, with defaults filled in.
    pub config: Json,
}

/// A binding whose policies are loaded and whose needs are granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// `metadata.name` of the PolicyBinding.
    pub name: String,
    /// The sha256 of the spec as JSON, in hexadecimal. Recordings name the spec by it.
    pub digest: Json,
    /// The position in the order of creation. If several bindings match an object, the oldest governs it.
    pub created: u64,
    /// The spec of the PolicyBinding.
    pub spec: BindingSpec,
    /// The compiled [`BindingSpec::grants`].
    pub grants: std::sync::Arc<Grants>,
    /// The policies by role.
    pub policies: BTreeMap<Role, LoadedPolicy>,
    /// The catalogue of the binding's cloud; empty without a cloud.
    pub catalogue: std::sync::Arc<crate::catalogue::Catalogue>,
    /// The spec of the connection to the binding's cloud, as text; empty without one.
    pub connection: Json,
    /// The namespaces that the host was started for; `None` means all. They apply to a binding that names no
    /// namespace itself.
    pub namespaces: Option<std::sync::Arc<[String]>>,
}

impl Binding {
    /// The same binding with these grants.
    #[cfg(test)]
    pub(crate) fn with_grants(mut self, grants: Vec<Grant>) -> Self {
        self.grants = Grants::compile(&grants).into();
        self.spec.grants = grants;
        self
    }

    /// Whether a pass under the other binding would see, ask and do the same. The retry policy and some limits decide
    /// only when passes come, and how many at once.
    pub(crate) fn acts_like(&self, other: &Binding) -> bool {
        let of_passes = |binding: &Binding| BindingSpec {
            policies: Policies::default(),
            crds: Vec::new(),
            limits: binding.spec.limits.of_a_pass(),
            ..binding.spec.clone()
        };
        let roles = [Role::Identity, Role::Lifecycle];
        let writes = |binding: &Binding, role| {
            let source = binding.spec.policies.source(role);
            source.and_then(|source| source.writes.clone())
        };
        roles
            .into_iter()
            .all(|role| self.policy(role) == other.policy(role) && writes(self, role) == writes(other, role))
            && of_passes(self) == of_passes(other)
            && self.catalogue == other.catalogue
            && self.connection == other.connection
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
    fn passes_are_the_same_under_other_retries_files_and_limits_that_no_pass_meets() {
        let one = crate::reconcile::fixture_binding(&[]);
        let alike = |change: fn(&mut BindingSpec)| {
            let mut other = one.clone();
            change(&mut other.spec);
            assert_ne!(other.spec, one.spec);
            one.acts_like(&other)
        };
        fn source() -> Option<PolicySource> {
            serde_json::from_value(json!({"file": "another"})).ok()
        }
        let same: [fn(&mut BindingSpec); 9] = [
            |spec| spec.limits.passes_per_tenant += 1,
            |spec| spec.limits.burst += 1,
            |spec| spec.limits.refill *= 2,
            |spec| spec.limits.cloud_calls += 1,
            |spec| spec.limits.shortest_wait *= 2,
            |spec| spec.limits.longest_wait *= 2,
            |spec| spec.policies.retry = source(),
            |spec| spec.policies.lifecycle = source(),
            |spec| {
                spec.crds.extend(serde_json::from_value::<GroupKind>(
                    json!({"group": "g", "kind": "K"}),
                ))
            },
        ];
        for (number, change) in same.into_iter().enumerate() {
            assert!(alike(change), "{number}");
        }
        let others: [fn(&mut BindingSpec); 4] = [
            |spec| spec.limits.answer += 1,
            |spec| spec.limits.notes += 1,
            |spec| spec.grants.clear(),
            |spec| spec.cloud = None,
        ];
        for (number, change) in others.into_iter().enumerate() {
            assert!(!alike(change), "{number}");
        }
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
