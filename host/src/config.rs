//! What a host is made of.

use std::sync::Arc;

use polity_cluster::Cluster;
use polity_core::object::Object;

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::observer::Observer;
use crate::policies::Policies;

/// What a host is made of.
pub struct Config {
    /// Differs between processes.
    pub identity: String,
    /// Its clock; one that stands still begins to run with the host.
    pub clock: Arc<Clock>,
    /// Its cluster.
    pub cluster: Arc<Cluster>,
    /// Its clouds.
    pub clouds: Arc<Clouds>,
    /// Loads policies.
    pub policies: Arc<Policies>,
    /// Threads that call policies; 0: the engine's own, in order, as a simulation needs it.
    pub threads: usize,
    /// Sees every pass.
    pub observer: Box<dyn Observer>,
    /// Bindings of this host alone: the cluster's are left alone, their status is written nowhere, and there is no lease.
    /// Whoever starts it sees to it that nobody else acts on what they govern.
    pub local: Option<Vec<Object>>,
    /// Whether it plays the kubelets of simulated machines.
    pub kubelets: bool,
}
