//! The manifest, and the arrows of the drawing.

use polity_sdk::prelude::*;

use crate::config::Config;
use crate::object::{
    AwsCluster, AwsClusterControllerIdentity, AwsClusterRoleIdentity, AwsClusterStaticIdentity, AwsMachine,
    AwsServiceAccountIdentity, Namespace,
};

/// The manifest: name, needs, writes and edges of the policy. It governs any kind, because the objects of an
/// AWSCluster may belong to other teams.
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
        .needs(Need::objects_of::<AwsServiceAccountIdentity>())
        .writes(["metadata.ownerReferences", "spec.identityRef", "status.accountID"])
        .writes([
            "status.conditions[PrincipalUsageAllowed]",
            "status.conditions[PrincipalCredentialRetrieved]",
            "status.conditions[AccountMatches]",
        ])
        .edges(Edge::table(EDGES))
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

/// One line for each edge.
const EDGES: &str = include_str!("edges.tsv");
