//! The manifest, and the arrows of the drawing.

use polity_sdk::prelude::*;

use crate::config::Config;
use crate::object::{
    AwsCluster, AwsClusterControllerIdentity, AwsClusterRoleIdentity, AwsClusterStaticIdentity, AwsMachine,
    AwsServiceAccountIdentity, Namespace,
};

/// What the policy is, needs and writes. It governs any kind: what belongs to an AWSCluster may be another team's.
pub fn manifest() -> Manifest {
    Manifest::identity(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .crds(crds())
        .config::<Config>()
        .needs(Need::Credential)
        .needs(Need::Secrets)
        .needs(Need::objects_of::<Namespace>())
        .needs(Need::objects_of::<AwsCluster>())
        .needs(Need::objects_of::<AwsClusterControllerIdentity>())
        .needs(Need::objects_of::<AwsClusterStaticIdentity>())
        .needs(Need::objects_of::<AwsClusterRoleIdentity>())
        .writes(["metadata.ownerReferences", "spec.identityRef", "status.accountID"])
        .writes([
            "status.conditions[PrincipalUsageAllowed]",
            "status.conditions[PrincipalCredentialRetrieved]",
            "status.conditions[AccountMatches]",
        ])
        .edges(EDGES.map(|(id, meaning)| match id {
            "CAPA-20" => Edge::derived(id, meaning, "CAPA-10 CAPA-12"),
            _ => Edge::noted(id, meaning),
        }))
}

fn crds() -> [Crd; 6] {
    [
        Crd::of::<AwsCluster>("awsclusters")
            .column("Identity", ".spec.identityRef.name")
            .column("Account", ".status.accountID")
            .age_column("Age", ".metadata.creationTimestamp"),
        Crd::of::<AwsMachine>("awsmachines").column("Cluster", ".spec.clusterName"),
        Crd::of::<AwsClusterControllerIdentity>("awsclustercontrolleridentities"),
        Crd::of::<AwsClusterStaticIdentity>("awsclusterstaticidentities"),
        Crd::of::<AwsClusterRoleIdentity>("awsclusterroleidentities").column("Role", ".spec.roleARN"),
        Crd::of::<AwsServiceAccountIdentity>("awsserviceaccountidentities").column("Role", ".spec.roleARN"),
    ]
}

/// Each edge: its id, and what it means.
const EDGES: [(&str, &str); 44] = [
    (
        "CAPA-01",
        "A pass begins: the cluster is the primary, or looked up for it.",
    ),
    ("CAPA-02", "The cluster has an identityRef."),
    ("CAPA-03", "The identity's kind is cluster-scoped."),
    (
        "CAPA-04",
        "The identity's kind is not cluster-scoped: it is in the cluster's namespace, or unknown.",
    ),
    ("CAPA-05", "The identity is an owner of the cluster."),
    (
        "CAPA-06",
        "An identity, or what it needs, cannot be had: stop, without a call to the cloud.",
    ),
    (
        "CAPA-07",
        "The identity was fetched: its provider is constructed.",
    ),
    ("CAPA-07a", "The identity allows the cluster's namespace."),
    (
        "CAPA-07b",
        "The identity does not allow the cluster's namespace: denied.",
    ),
    ("CAPA-08", "The host had no such session and made one."),
    ("CAPA-09", "The host had such a session."),
    ("CAPA-10", "The session is the host's cached one."),
    (
        "CAPA-11",
        "The cluster has no identityRef: it is the controller's, and the cluster's own pass writes that down.",
    ),
    (
        "CAPA-12",
        "The controller's identity allows the cluster's namespace: its credentials are used.",
    ),
    (
        "CAPA-13",
        "The controller's identity does not allow the cluster's namespace: denied.",
    ),
    ("CAPA-14", "The cloud has said whose session it is."),
    (
        "CAPA-15",
        "The session leads to another account than the cluster's: denied.",
    ),
    (
        "CAPA-16",
        "The session leads to the cluster's account, or the cluster has none yet.",
    ),
    ("CAPA-17", "The account is written down, once."),
    ("CAPA-18", "The session serves the lifecycle's calls."),
    ("CAPA-19", "The lifecycle is let through."),
    ("CAPA-20", "Both branches meet: there is a session to be checked."),
    (
        "CAPA-21",
        "There is no session, or nobody knows whose: denied, and tried again.",
    ),
    (
        "CAPA-22",
        "The identity of a deleting object is gone: the object is let go.",
    ),
    (
        "CAPA-23",
        "The controller's identity was missing and has been made.",
    ),
    ("CAPA-N1", "No allowedNamespaces: nobody is allowed."),
    ("CAPA-N2", "Empty allowedNamespaces: everybody is allowed."),
    ("CAPA-N3", "The list has the namespace: allowed."),
    (
        "CAPA-N4",
        "The list has other namespaces, and there is no selector: not allowed.",
    ),
    (
        "CAPA-N5",
        "An empty list or an empty selector, and nothing else: not allowed.",
    ),
    ("CAPA-N6", "A selector of empty parts: not allowed."),
    ("CAPA-N7", "The selector matches the namespace's labels: allowed."),
    (
        "CAPA-N8",
        "The selector does not match the namespace's labels: not allowed.",
    ),
    ("CAPA-N9", "allowedNamespaces cannot be understood: an error."),
    (
        "CAPA-N10",
        "The list does not have the namespace, and there is a selector as well: it decides.",
    ),
    (
        "CAPA-N11",
        "What lives in no namespace is allowed only where everybody is.",
    ),
    ("CAPA-P1", "The controller's own credentials."),
    ("CAPA-P2", "The fixed credentials of a Secret."),
    ("CAPA-P3", "A role, assumed from another identity."),
    (
        "CAPA-P4",
        "A role, assumed from the controller's own credentials.",
    ),
    ("CAPA-P5", "An unknown kind of identity: an error."),
    (
        "CAPA-P6",
        "A source does not allow the cluster's namespace: denied.",
    ),
    (
        "CAPA-P7",
        "The chain of identities comes back to one that it has, or is too long: an error.",
    ),
    (
        "CAPA-P8",
        "A source is checked against the cluster's namespace as well.",
    ),
];
