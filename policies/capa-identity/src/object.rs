//! The kinds: clusters, machines, and the identities that they use.
//!
//! Their `spec` is closed: an object with an unknown field is refused by the API server, and by this policy
//! if the API server was told otherwise. A dropped misspelt field would change the meaning: everybody could
//! use the identity, or its role would not be restricted. The policy's own check leaves AWSCluster out,
//! because every primary is read as one.

use polity_sdk::LabelSelector;
use polity_sdk::prelude::*;
use serde_json::{Value, json};

/// The API version of every kind of this policy.
pub(crate) const API_VERSION: &str = "capa.polity.dev/v1alpha1";
/// The name of the one [`AwsClusterControllerIdentity`].
pub(crate) const DEFAULT: &str = "default";

/// A cluster on AWS. Any other primary is read as this type too; its `spec` and `status` have few of these
/// fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsCluster {
    #[schemars(skip)]
    api_version: String,
    #[schemars(skip)]
    kind: String,
    /// The metadata. Identities allow the namespace.
    pub metadata: Metadata,
    /// The wanted state.
    pub spec: ClusterSpec,
    /// The observed state.
    pub status: ClusterStatus,
}

/// The wanted state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct ClusterSpec {
    /// The identity whose credentials are used; the controller's own if it is not set. It may be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_ref: Option<IdentityRef>,
    /// The region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    pub region: Option<String>,
    /// The account to which the credentials must belong. If it is not set, it is the account to which they
    /// belonged first.
    #[serde(rename = "accountID", skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// For other primaries: the cluster to which they belong.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    cluster_name: Option<String>,
}

/// The observed state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The account to which the credentials belonged when they were first used. It never changes.
    #[serde(rename = "accountID", skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// `PrincipalUsageAllowed`, `PrincipalCredentialRetrieved`, `AccountMatches`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// A reference to an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct IdentityRef {
    /// The kind of the identity.
    pub kind: String,
    /// The name of the identity.
    pub name: String,
    /// The namespace. Any other than the cluster's is refused.
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
    /// Whether this primary really is a cluster.
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

/// A machine on AWS, with the fields that its identity needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AwsMachine {
    /// The metadata. The label `cluster.x-k8s.io/cluster-name` may name the cluster.
    pub metadata: Metadata,
    /// The wanted state.
    pub spec: AwsMachineSpec,
    /// The observed state.
    pub status: AwsMachineStatus,
}

/// The wanted state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(deny_unknown_fields)]
pub struct AwsMachineSpec {
    /// The AWSCluster in its namespace to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
}

/// The observed state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AwsMachineStatus {
    /// The same conditions as those of an AWSCluster.
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

/// The namespaces that may use an identity. If the field is absent, none may; if it is `{}`, all may. Otherwise
/// the listed and the selected namespaces may. An empty selector selects none, and a value with an unknown field
/// allows none.
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
            /// The metadata. References use the name.
            pub metadata: Metadata,
            /// The credentials, and the namespaces that may use them.
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

/// The namespaces that may use the controller's own credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ControllerIdentitySpec {
    /// The namespaces that may use it.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
}

/// Fixed credentials, and the namespaces that may use them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StaticIdentitySpec {
    /// The namespaces that may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The Secret with `AccessKeyID`, `SecretAccessKey` and optionally `SessionToken`.
    pub secret_ref: SecretReference,
}

/// A Secret in the controller's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretReference {
    /// The name of the Secret.
    pub name: String,
}

/// A role, and the namespaces that may use it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleIdentitySpec {
    /// The namespaces that may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The ARN of the role.
    #[serde(rename = "roleARN")]
    pub role_arn: String,
    /// The name of its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// The lifetime of its credentials in seconds; 900 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 900, max = 43_200))]
    pub duration_seconds: Option<u32>,
    /// A policy document that restricts its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_policy: Option<String>,
    /// Managed policies that restrict its sessions.
    #[serde(default, rename = "policyARNs", skip_serializing_if = "Vec::is_empty")]
    pub policy_arns: Vec<String>,
    /// The external id that the role demands.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The identity that assumes the role; the controller's own credentials if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_identity_ref: Option<IdentityRef>,
}

/// A role that is assumed with a token of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccountIdentitySpec {
    /// The namespaces that may use it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<AllowedNamespaces>")]
    pub allowed_namespaces: Value,
    /// The ARN of the role.
    #[serde(rename = "roleARN")]
    pub role_arn: String,
    /// The audiences of the tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// The lifetime of a token in seconds; 3600 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600))]
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
