//! What the binding can set.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants and recommended choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How long a denial stands before it is judged anew without a change of anything that it rests on, and how long a
    /// cluster without a lifecycle policy is left alone.
    pub resync: Period,
    /// The namespace of the Secrets that static identities name.
    pub controller_namespace: String,
    /// How many identities a chain may have.
    pub max_chain_length: usize,
    /// Whether `AWSClusterControllerIdentity/default` is made, open to every namespace, when a cluster uses it and it
    /// is missing. Needs a grant to create it.
    pub auto_create_controller_identity: bool,
    /// Whether a deleting object whose identity is gone is let go, and with it what it has in the cloud. Otherwise it
    /// waits until the identity is back.
    pub orphan_on_missing_identity: bool,
    /// When a cluster is given an owner reference to its identity.
    pub owner_reference: OwnerReferencePolicy,
    /// Whether `AWSServiceAccountIdentity`, which lives beside its cluster, may be used. Needs a grant to look at it.
    pub service_account_identities: bool,
    /// The label by which other objects name the cluster they belong to, where `spec.clusterName` does not.
    pub cluster_label: String,
}

/// When a cluster is given an owner reference to its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerReferencePolicy {
    /// When it has another owner as well: garbage collection deletes an object once all its owners are gone, and a
    /// cluster must not go with its identity.
    WithOtherOwner,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            resync: Period::from_secs(600),
            controller_namespace: "capa-system".to_owned(),
            max_chain_length: 8,
            auto_create_controller_identity: true,
            orphan_on_missing_identity: false,
            owner_reference: OwnerReferencePolicy::WithOtherOwner,
            service_account_identities: false,
            cluster_label: "cluster.x-k8s.io/cluster-name".to_owned(),
        }
    }
}
