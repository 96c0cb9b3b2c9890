//! The parts of which a host is made.

use std::sync::Arc;

use polity_clouds::BoxFuture;
use polity_cluster::Cluster;
use polity_core::object::Object;

use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::observer::Observer;
use crate::policies::Policies;
use crate::selection::Selection;

/// The parts of a host.
pub struct HostConfig {
    /// A name that no other process has.
    pub identity: String,
    /// The clock. If it stands still, it starts with the host.
    pub clock: Arc<Clock>,
    /// The cluster to watch and to write to.
    pub cluster: Arc<Cluster>,
    /// The clouds that bindings can name.
    pub clouds: Arc<Clouds>,
    /// Loads the policies that bindings name.
    pub policies: Arc<Policies>,
    /// The number of threads that call policies. With 0 the event loop calls them itself, in order, as a
    /// simulation needs it.
    pub threads: usize,
    /// Sees every pass.
    pub observer: Box<dyn Observer>,
    /// Bindings of this host alone. Those of the cluster are ignored, and no status is written.
    pub local: Option<Vec<Object>>,
    /// There is no lease. The caller must make sure that no other host acts on the same objects.
    pub alone: bool,
    /// The bindings and namespaces that the host is for.
    pub selection: Selection,
    /// What goes on beside the event loop, from the start of the host to its end.
    pub beside: Option<BoxFuture<'static, ()>>,
}
