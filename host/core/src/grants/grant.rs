//! The grants, as a binding names them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::Kind;
use crate::time::as_millis;

/// Something that the binding allows. Unless a grant names namespaces, it reaches only the primary's own namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// Look at objects.
    Ask(KindGrant),
    /// See that Secrets exist.
    Secrets(SecretGrant),
    /// Call these cloud operations: exact names, or a prefix that ends in `.*`.
    Cloud(Vec<String>),
    /// Take these locks: exact names, or a prefix that ends in `*`.
    Lock(Vec<String>),
    /// Describe credential plans.
    Credential(bool),
    /// Take tokens of these service accounts of the primary's own namespace in credential plans: exact names, or a
    /// prefix that ends in `*`.
    ServiceAccounts(Vec<String>),
    /// Create objects.
    Create(KindGrant),
    /// Patch objects.
    Patch(KindGrant),
    /// Delete objects.
    Delete(KindGrant),
    /// Evict Pods.
    Evict(KindGrant),
    /// Mint tokens of these kinds, and revoke minted tokens.
    Mint(Vec<MintGrant>),
    /// Ask whether the API server answers.
    Reachable(bool),
    /// Write these guarded paths of the primary: `metadata.ownerReferences`, and `metadata.finalizers[NAME]` for
    /// finalizers of others. The manifest of the policy must name them too.
    Write(Vec<String>),
}

/// A kind of token that may be minted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MintGrant {
    /// A kind with the default limits.
    Kind(String),
    /// A kind with its own limits.
    Bounded(BoundedMint),
}

/// A kind of token, how long each token is valid, and how many are valid at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundedMint {
    /// `bootstrap-token`, with which a node joins this cluster, or `password`, a random text.
    pub kind: String,
    /// For bootstrap tokens: the groups of a joining node, in addition to `system:bootstrappers`. The signer of node
    /// certificates checks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The longest validity of a token.
    #[serde(default = "longest_ttl", with = "as_millis")]
    pub longest_ttl: Duration,
    /// The most tokens of one object that are valid at the same time.
    #[serde(default = "minted_count")]
    pub count: u32,
}

/// One day.
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

    /// The groups of a node that joins with a bootstrap token.
    pub fn groups(&self) -> &[String] {
        match self {
            MintGrant::Kind(_) => &[],
            MintGrant::Bounded(mint) => &mint.groups,
        }
    }

    /// The longest validity of a token.
    pub fn longest_ttl(&self) -> Duration {
        match self {
            MintGrant::Kind(_) => longest_ttl(),
            MintGrant::Bounded(mint) => mint.longest_ttl,
        }
    }

    /// The most tokens of one object that are valid at the same time.
    pub fn count(&self) -> u32 {
        match self {
            MintGrant::Kind(_) => minted_count(),
            MintGrant::Bounded(mint) => mint.count,
        }
    }
}

/// A kind, and the objects of it that the grant reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindGrant {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespaces that the grant reaches: `None` is the primary's own, `["*"]` is all of them. For
    /// cluster-scoped objects a grant needs a name, a relation, or `["*"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// If given, only the object of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// If given, only objects with this relation to the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    /// Dotted paths that policies may see; `None` allows everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// For patches: subresources that may be patched, in addition to `status` and `scale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresources: Option<Vec<String>>,
    /// For patches and creates: which of `finalizers` and `ownerReferences` may be written. An owner reference can
    /// make Kubernetes delete the object, and finalizers can keep it for ever or let it vanish too early.
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

/// The value at `theirs` of the other object equals the value at `ours` of the primary. Both are dotted paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Relation {
    /// `spec.providerID`
    pub theirs: String,
    /// `status.providerID`
    pub ours: String,
}

/// The Secrets that policies may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretGrant {
    /// As in [`KindGrant`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// If given, only the Secret of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What a request does with an object of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read it.
    Ask,
    /// Create it.
    Create,
    /// Patch it.
    Patch,
    /// Delete it.
    Delete,
    /// Evict it.
    Evict,
}
