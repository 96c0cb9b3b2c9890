//! A snapshot of the cluster and the cloud.

use std::sync::Arc;

use polity_sim::{PoolMachine, PortView, RouterView, VmView};
use serde_json::Value;

use super::scenario::Workflow;
use crate::host_harness::Site;
use crate::host_harness::capa::CAPA;
use crate::host_harness::mcm::{DEPLOYMENT, MCM};
use crate::host_harness::orbiter::ORBITER;
use crate::host_harness::rug::RUG;
use crate::simulation::bindings::MACHINES as CAPV;

/// The objects and resources at one moment.
pub struct Snapshot {
    /// The VMs in the cloud. They are read first, so that a VM is never seen before its machine.
    pub vms: Vec<VmView>,
    /// The machines of pools.
    pub pool: Vec<PoolMachine>,
    /// The VMs of routers.
    pub router_vms: Vec<RouterView>,
    /// The ports of routers.
    pub router_ports: Vec<PortView>,
    /// The Machines of `capv-machine`.
    pub capv: Arc<Vec<Value>>,
    /// The Machines of `mcm-machine`.
    pub mcm: Arc<Vec<Value>>,
    /// The AWSClusters.
    pub clusters: Arc<Vec<Value>>,
    /// The Orbs.
    pub orbs: Arc<Vec<Value>>,
    /// The Routers.
    pub routers: Arc<Vec<Value>>,
    /// The Nodes.
    pub nodes: Arc<Vec<Value>>,
    /// The Pods.
    pub pods: Arc<Vec<Value>>,
}

impl Snapshot {
    /// Reads everything that these workflows use.
    pub async fn of(site: &Site, workflows: &[Workflow]) -> Self {
        let list = async |of: Workflow, api: &str, kind: &str| {
            if workflows.contains(&of) {
                site.list(api, kind).await
            } else {
                Arc::default()
            }
        };
        Snapshot {
            vms: site.vms(),
            pool: site.pool_machines(),
            router_vms: site.inspect(|sim, now| sim.routers(now)),
            router_ports: site.inspect(|sim, _| sim.router_ports()),
            capv: list(Workflow::CapvMachines, CAPV, "Machine").await,
            mcm: list(Workflow::McmMachines, MCM, "Machine").await,
            clusters: list(Workflow::Clusters, CAPA, "AWSCluster").await,
            orbs: list(Workflow::Orb, ORBITER, "Orb").await,
            routers: list(Workflow::Routers, RUG, "Router").await,
            pods: site.list("v1", "Pod").await,
            nodes: site.list("v1", "Node").await,
        }
    }

    /// The machines of the deployment.
    pub fn workers(&self) -> impl Iterator<Item = &Value> {
        self.mcm.iter().filter(|machine| is_worker(machine))
    }

    /// A node by its name.
    pub fn node(&self, name: &Value) -> Option<&Value> {
        self.nodes.iter().find(|node| node["metadata"]["name"] == *name)
    }
}

/// Whether a machine belongs to the deployment.
pub fn is_worker(machine: &Value) -> bool {
    machine["metadata"]["labels"]["name"] == DEPLOYMENT
}

/// Whether an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The phase of a Machine of `mcm-machine`.
pub fn phase(machine: &Value) -> Option<&str> {
    machine["status"]["currentStatus"]["phase"].as_str()
}
