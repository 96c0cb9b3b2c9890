//! Finding the cluster: a kubeconfig, a context in it, or the service account of this process.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::Cluster;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {0} cannot be used")]
    Kubeconfig(String, #[source] kube::config::KubeconfigError),
    /// There is neither a kubeconfig nor a service account.
    #[error("there is neither a kubeconfig nor a service account")]
    Infer(#[source] kube::config::InferConfigError),
    /// The client cannot be made.
    #[error("a client for {0} cannot be made")]
    Client(String, #[source] kube::Error),
}

impl Cluster {
    /// Connects by a kubeconfig file, by a context of the default one, or as the service account of this pod.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        lease: (&str, &str),
    ) -> Result<Self, ConnectError> {
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..Default::default()
        };
        let mut config = match (kubeconfig, context) {
            (Some(file), _) => {
                let named = |e| ConnectError::Kubeconfig(file.display().to_string(), e);
                let kubeconfig = Kubeconfig::read_from(file).map_err(named)?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(named)?
            }
            (None, Some(context)) => Config::from_kubeconfig(&options)
                .await
                .map_err(|e| ConnectError::Kubeconfig(format!("with the context {context}"), e))?,
            (None, None) => Config::infer().await.map_err(ConnectError::Infer)?,
        };
        // Watches are silent for minutes; each other call has a limit of its own.
        config.read_timeout = None;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| ConnectError::Client(url, e))?;
        Ok(Cluster::new(client, lease))
    }
}
