//! Which cluster a command talks to.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use polity_cluster::Cluster;

use super::LEASE;

/// Which cluster a command talks to.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// Run against the cluster of this kubeconfig.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// Run against the cluster of this context.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
    /// Run against the cluster whose service account this process has.
    #[arg(long, help_heading = "Cluster", conflicts_with_all = ["kubeconfig", "context"])]
    in_cluster: bool,
}

impl Connection {
    /// Whether a cluster was named.
    pub(super) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.in_cluster
    }

    pub(super) async fn connect(&self) -> Result<Cluster> {
        let connected = match self.in_cluster {
            true => Cluster::in_cluster(LEASE),
            false => Cluster::connect(self.kubeconfig.as_deref(), self.context.as_deref(), LEASE).await,
        };
        connected.context("cannot connect to the cluster")
    }
}
