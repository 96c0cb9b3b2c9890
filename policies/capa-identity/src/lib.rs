//! Decides which AWS principal may act for an object, before anything else happens to the object.
//!
//! An AWSCluster names an identity. The identity says which namespaces may use it, and can name the identity from
//! which its role is assumed. The policy follows that chain, requires that each link allows the cluster's namespace,
//! describes the credentials to the host by name, and requires that they always lead to the same account. Only then is
//! the lifecycle policy of the binding called, whichever team wrote it. Everything else is a denial. Before the
//! verdict the cloud gets only one question: which principal the credentials belong to.
//!
//! The pass of an AWSCluster records its findings on that cluster. The pass of any other object (an AWSMachine,
//! another team's Machine) judges the cluster of the object in the same way, and writes nothing on the cluster.
//!
//! The flow is [`judge`]. Each stage has a file of its own. [`edges`] lists the arrows of the drawing (CAPA-01 to
//! CAPA-25, N1 to N12, P1 to P9).

mod account;
mod allowed;
#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod chain;
mod config;
mod controller;
pub mod edges;
mod link;
mod lookup;
mod object;
mod owner;
mod stop;
mod subject;

use polity_sdk::prelude::*;

pub use config::{Config, OwnerReferencePolicy};
pub use edges::manifest;
pub use object::{
    AllowedNamespaces, AwsCluster, AwsClusterControllerIdentity, AwsClusterRoleIdentity,
    AwsClusterStaticIdentity, AwsMachine, AwsMachineSpec, AwsMachineStatus, AwsServiceAccountIdentity,
    ClusterSpec, ClusterStatus, ControllerIdentitySpec, IdentityRef, RoleIdentitySpec, SecretReference,
    ServiceAccountIdentitySpec, StaticIdentitySpec,
};

use stop::Stop;

/// A pass of this policy.
pub type Cx = Context<AwsCluster, Config>;

/// Decides which principal may act for this object.
#[polity_sdk::policy(identity)]
pub async fn judge(cx: Cx) -> Result<Judgement, Failure> {
    Ok(match authorise(&cx).await {
        Ok(handle) => Judgement::granted(handle, Next::settled_for(cx.config().resync)),
        Err(stop) => stop.conclude(&cx),
    })
}

/// The handle of a session that may act, or why there is none.
async fn authorise(cx: &Cx) -> Result<String, Stop> {
    let cluster = subject::cluster(cx).await?;
    let plan = match &cluster.spec.identity_ref {
        Some(reference) => chain::of(cx, &cluster, reference).await?,
        None => chain::default(cx, &cluster).await?,
    };
    let credential = account::open(cx, &cluster, &plan).await?;
    account::check(cx, &cluster, &credential)?;
    cx.note("CAPA-18");
    cx.note("CAPA-19");
    Ok(credential.handle)
}
