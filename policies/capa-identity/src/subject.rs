//! Selects the cluster whose identity counts: everything that belongs to a cluster uses the cluster's identity
//! (CAPA-01).

use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup;
use crate::object::AwsCluster;
use crate::stop::Stop;

/// The cluster that is judged: the primary itself, or the cluster in its namespace to which it belongs. A
/// cluster-scoped object belongs to no cluster, so it is judged by itself.
pub(crate) async fn cluster(cx: &Cx) -> Result<AwsCluster, Stop> {
    cx.note("CAPA-01");
    let primary = cx.object();
    if primary.is_cluster() || primary.metadata.namespace.is_none() {
        return Ok(primary.clone());
    }
    let Some(name) = primary.cluster_name(&cx.config().cluster_label) else {
        let label = &cx.config().cluster_label;
        let message =
            format!("neither spec.clusterName nor the label {label} names the AWSCluster of this object");
        return Err(Stop::done("ClusterUnknown", message));
    };
    match cx.ask(cluster::object::<AwsCluster>(name)).await.found() {
        Ok(Some(cluster)) => Ok(cluster),
        Ok(None) => {
            let message = format!("AWSCluster {name} does not exist in this namespace");
            Err(Stop::done("ClusterNotFound", message))
        }
        Err(failure) => Err(lookup::failed(cx, "AWSCluster", name, failure)),
    }
}
