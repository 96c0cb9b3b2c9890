//! The kinds: clusters, machines, and the identities that they use.
//!
//! What a person writes in them is closed: a field that there is not is refused, by the API server and where that was
//! told otherwise by this policy. A misspelt field that is dropped says something else than was meant: everybody may use
//! the identity, or its role is not narrowed. An AWSCluster is the exception to the second: every primary is read as one.

use polity_sdk::LabelSelector;
use polity_sdk::prelude::*;
use serde_json::{Value, json};

/// The API version of every kind of this policy.
pub(crate) const API_VERSION: &str = "capa.polity.dev/v1alpha1";
/// The name of the one [`AwsClusterControllerIdentity`].
pub(crate) const DEFAULT: &str = "default";

/// A cluster on AWS, and what is read of any other primary: there, `spec` and `status` hold little of this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsCluster {
    #[schemars(skip)]
    api_version: String,
    #[schemars(skip)]
    kind: String,
    /// Its namespace is what identities allow.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: ClusterSpec,
    /// The observed state.
    pub status: ClusterStatus,
}

/// What is wanted of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct ClusterSpec {
    /// Whose credentials are used; the controller's own if it is not set. May be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_ref: Option<IdentityRef>,
    /// The region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    pub region: Option<String>,
    /// The account that the credentials must lead to; whichever they lead to first if it is not set.
    #[serde(rename = "accountID", skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Of other primaries: the cluster that they belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    cluster_name: Option<String>,
}

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The account that the credentials led to when they were first used. Never changed.
    #[serde(rename = "accountID", skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// `PrincipalUsageAllowed`, `PrincipalCredentialRetrieved`, `AccountMatches`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// Refers to an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct IdentityRef {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Refused if it is another one than the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Kind for AwsCluster {
    const API_VERSION: &'static str = API_VERSION;
    const KIND: &'static str = "AWSCluster";
    const PROJECTION: &'static [&'static str] = &[
        "spec.identityRef",
        "spec.region",
        "spec.accountID",
        "status.accountID",
    ];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl AwsCluster {
    /// Whether this primary is a cluster indeed.
    pub(crate) fn is_cluster(&self) -> bool {
        (self.api_version.as_str(), self.kind.as_str()) == (API_VERSION, AwsCluster::KIND)
    }

    /// The name of the cluster that this primary belongs to.
    pub(crate) fn cluster_name(&self, label: &str) -> Option<&str> {
        let labelled = || self.metadata.labels.get(label);
        self.spec
            .cluster_name
            .as_ref()
            .or_else(labelled)
            .map(String::as_str)
    }
}

/// A machine on AWS: as much of it as its identity needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AwsMachine {
    /// The label `cluster.x-k8s.io/cluster-name` may name its cluster as well.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: AwsMachineSpec,
    /// The observed state.
    pub status: AwsMachineStatus,
}

/// What is wanted of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct AwsMachineSpec {
    /// The AWSCluster of its namespace that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
}

/// What is known of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AwsMachineStatus {
    /// As those of an AWSCluster.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

impl Kind for AwsMachine {
    const API_VERSION: &'static str = API_VERSION;
    const KIND: &'static str = "AWSMachine";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Which namespaces may use an identity: absent, none; `{}`, every one; otherwise those that are listed, and those that
/// the selector chooses. A selector that is empty chooses none, and so does whatever has a field that is none of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AllowedNamespaces {
    /// Namespaces by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<String>>,
    /// Namespaces by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A kind of identity.
pub(crate) trait IdentityKind: Kind {
    /// `spec.allowedNamespaces`, as it is stored.
    fn allowed(&self) -> &Value;
}

macro_rules! identities {
    ($($(#[$doc:meta])* $type:ident, $spec:ident, $kind:literal, namespaced: $namespaced:literal;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub struct $type {
            /// Its name is what is referred to.
            pub metadata: Metadata,
            /// What it stands for.
            #[serde(default)]
            pub spec: $spec,
        }

        impl Kind for $type {
            const API_VERSION: &'static str = API_VERSION;
            const KIND: &'static str = $kind;
            const NAMESPACED: bool = $namespaced;
            const PROJECTION: &'static [&'static str] = &["spec"];

            fn metadata(&self) -> &Metadata {
                &self.metadata
            }
        }

        impl IdentityKind for $type {
            fn allowed(&self) -> &Value {
                &self.spec.allowed_namespaces
            }
        }
    )+ };
}

identities! {
    /// The controller's own credentials. There is one, and it is called `default`.
    AwsClusterControllerIdentity, ControllerIdentitySpec, "AWSClusterControllerIdentity", namespaced: false;
    /// Credentials in a Secret of the controller's namespace.
    AwsClusterStaticIdentity, StaticIdentitySpec, "AWSClusterStaticIdentity", namespaced: false;
    /// A role that is assumed.
    AwsClusterRoleIdentity, RoleIdentitySpec, "AWSClusterRoleIdentity", namespaced: false;
    /// A role that is assumed with a token of the namespace in which this lies.
    AwsServiceAccountIdentity, ServiceAccountIdentitySpec, "AWSServiceAccountIdentity", namespaced: true;
}

/// Who may use the controller's own credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ControllerIdentitySpec {
    /// Who may use it.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
}

/// Where fixed credentials are, and who may use them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StaticIdentitySpec {
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The Secret: `AccessKeyID`, `SecretAccessKey`, and perhaps `SessionToken`.
    pub secret_ref: SecretReference,
}

/// A Secret of the controller's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretReference {
    /// Its name.
    pub name: String,
}

/// A role, and who may assume it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleIdentitySpec {
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The role.
    #[serde(rename = "roleARN")]
    pub role_arn: String,
    /// How its sessions are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// How long its credentials live; 900 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 900, max = 43_200))]
    pub duration_seconds: Option<u32>,
    /// A policy document that narrows its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_policy: Option<String>,
    /// Managed policies that narrow its sessions.
    #[serde(default, rename = "policyARNs", skip_serializing_if = "Vec::is_empty")]
    pub policy_arns: Vec<String>,
    /// What the role's owner wants to hear.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The identity that assumes it; the controller's own credentials if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_identity_ref: Option<IdentityRef>,
}

/// A role that is assumed with a token of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccountIdentitySpec {
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The role.
    #[serde(rename = "roleARN")]
    pub role_arn: String,
    /// Whom the tokens are meant for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// How long a token lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<u32>,
}

impl AwsClusterControllerIdentity {
    /// The one that every namespace may use.
    pub(crate) fn open_to_all() -> Self {
        let mut identity = AwsClusterControllerIdentity::default();
        DEFAULT.clone_into(&mut identity.metadata.name);
        identity.spec.allowed_namespaces = json!({});
        identity
    }
}

/// A namespace, for its labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    /// The labels that selectors choose by.
    pub(crate) metadata: Metadata,
}

impl Kind for Namespace {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Namespace";
    const NAMESPACED: bool = false;
    const PROJECTION: &'static [&'static str] = &["metadata.labels"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
