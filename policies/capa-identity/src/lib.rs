//! Which AWS principal may act for an object, decided before anything else happens to it.
//!
//! An AWSCluster names an identity; an identity says which namespaces may use it, and perhaps from which other identity
//! its role is assumed. The policy follows that chain, requires that each link allows the cluster's namespace, describes
//! the credentials to the host by name, and requires that they lead to the same account as ever. Only then is the
//! lifecycle policy of the binding let through, whosever it is. Everything else is a denial; the only contact with the
//! cloud before the verdict is the question whose credentials these are.
//!
//! A pass of an AWSCluster writes down what it found, on that cluster. A pass of any other object (an AWSMachine, another
//! team's Machine) judges the cluster that the object belongs to in the same way, and writes nothing there.
//!
//! The flow is [`judge`]; each stage has a file of its own, and [`edges`] says which arrows of the drawing (CAPA-01 to
//! CAPA-25, N1 to N12, P1 to P9) there are.

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

use polity_sdk::Judgement;
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

/// Which principal may act for this object?
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
