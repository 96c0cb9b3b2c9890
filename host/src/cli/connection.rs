//! The cluster that a command connects to.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use polity_cluster::Cluster;

/// The cluster that a command connects to.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// Connect to the cluster of this kubeconfig.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// Connect to the cluster of this context of the default kubeconfig.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
    /// Connect to the cluster of this process's own service account.
    #[arg(long, help_heading = "Cluster", conflicts_with_all = ["kubeconfig", "context"])]
    in_cluster: bool,
}

impl Connection {
    /// Whether a cluster was named.
    pub(super) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.in_cluster
    }

    pub(super) async fn connect(&self, lease: (&str, &str)) -> Result<Cluster> {
        let connected = if self.in_cluster {
            Cluster::in_cluster(lease)
        } else {
            Cluster::connect(self.kubeconfig.as_deref(), self.context.as_deref(), lease).await
        };
        connected.context("cannot connect to the cluster")
    }
}
