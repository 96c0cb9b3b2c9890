//! The configuration, which a binding sets.

use polity_sdk::prelude::*;

/// The configuration of this policy. The defaults are the specification's constants and recommended choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The time until the next pass after a denial, if nothing changes that the denial depends on; and the time
    /// between passes of a cluster without a lifecycle policy.
    pub resync: Period,
    /// The namespace of the Secrets that static identities name.
    pub controller_namespace: String,
    /// The most identities in a chain.
    pub max_chain_length: usize,
    /// Whether a missing `AWSClusterControllerIdentity/default`, open to every namespace, is created when a
    /// cluster uses it. This needs a grant to create it.
    pub auto_create_controller_identity: bool,
    /// Whether a deleting object whose identity is gone is released; its cloud resources then stay behind.
    /// Otherwise it waits until the identity is back.
    pub orphan_on_missing_identity: bool,
    /// When a cluster gets an owner reference to its identity.
    pub owner_reference: OwnerReferencePolicy,
    /// Whether `AWSServiceAccountIdentity`, which is in the namespace of its cluster, may be used. This needs
    /// a grant to read it.
    pub service_account_identities: bool,
    /// The label with which other objects name their cluster, if `spec.clusterName` does not.
    pub cluster_label: String,
}

/// When a cluster gets an owner reference to its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerReferencePolicy {
    /// If the cluster has another owner: garbage collection deletes an object once all its owners are gone,
    /// and a cluster must not be deleted with its identity.
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
