//! What there is at one moment, as everybody who looks sees it.

use polity_clouds::sim::VmView;
use serde_json::Value;

use crate::simulation::bindings::MACHINES as CAPV;
use crate::whole::Site;
use crate::whole::capa::CAPA;
use crate::whole::mcm::{DEPLOYMENT, MCM};

/// What there is.
pub struct Sight {
    /// In the cloud; looked at first, so that a VM is never seen before its machine.
    pub vms: Vec<VmView>,
    /// Of `capv-machine`.
    pub capv: Vec<Value>,
    /// Of `mcm-machine`.
    pub mcm: Vec<Value>,
    /// AWSClusters.
    pub clusters: Vec<Value>,
    /// Nodes.
    pub nodes: Vec<Value>,
    /// Pods.
    pub pods: Vec<Value>,
}

impl Sight {
    /// Looks.
    pub async fn of(site: &Site) -> Self {
        Sight {
            vms: site.vms(),
            capv: site.list(CAPV, "Machine").await,
            mcm: site.list(MCM, "Machine").await,
            clusters: site.list(CAPA, "AWSCluster").await,
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

/// Whether it belongs to the deployment.
pub fn is_worker(machine: &Value) -> bool {
    machine["metadata"]["labels"]["name"] == DEPLOYMENT
}

/// Whether it is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The phase of a Machine of `mcm-machine`.
pub fn phase(machine: &Value) -> Option<&str> {
    machine["status"]["currentStatus"]["phase"].as_str()
}
