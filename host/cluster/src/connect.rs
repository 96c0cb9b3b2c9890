//! Finding the cluster: a kubeconfig, a context in it, or the service account of this process.

use std::path::Path;
use std::time::Duration;

use kube::config::{InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::Cluster;

/// How long connecting may take: well below the longest call, so that what was not sent is known not to have been.
const CONNECT: Duration = Duration::from_secs(3);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// This file cannot be used.
    #[error("the kubeconfig {0} cannot be used")]
    Kubeconfig(String, #[source] KubeconfigError),
    /// This context of the default kubeconfig cannot be used.
    #[error("the context {0:?} of the kubeconfig cannot be used")]
    Context(String, #[source] KubeconfigError),
    /// There is neither a kubeconfig nor a service account.
    #[error("there is neither a kubeconfig nor a service account")]
    Infer(#[source] InferConfigError),
    /// This process has no service account.
    #[error("the service account of this process cannot be used")]
    ServiceAccount(#[source] InClusterError),
    /// The client cannot be made.
    #[error("a client for {0} cannot be made")]
    Client(String, #[source] Box<kube::Error>),
}

impl Cluster {
    /// Connects by this kubeconfig, otherwise by `$KUBECONFIG` or the default file, in the context given or the
    /// current one. Without all of them it connects as the service account of this pod.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        lease: (&str, &str),
    ) -> Result<Self, ConnectError> {
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..Default::default()
        };
        let config = match (kubeconfig, context) {
            (Some(file), _) => {
                let unusable = |e| ConnectError::Kubeconfig(file.display().to_string(), e);
                let kubeconfig = Kubeconfig::read_from(file).map_err(unusable)?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options);
                config.await.map_err(unusable)?
            }
            (None, Some(context)) => {
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|e| ConnectError::Context(context.to_owned(), e))?
            }
            (None, None) => Config::infer().await.map_err(ConnectError::Infer)?,
        };
        Cluster::with_config(config, lease)
    }

    /// Connects as the service account of this pod, whatever kubeconfig there is.
    pub fn in_cluster(lease: (&str, &str)) -> Result<Self, ConnectError> {
        let config = Config::incluster().map_err(ConnectError::ServiceAccount)?;
        Cluster::with_config(config, lease)
    }

    fn with_config(config: Config, lease: (&str, &str)) -> Result<Self, ConnectError> {
        let url = config.cluster_url.to_string();
        let client = Client::try_from(as_we_call(config));
        let client = client.map_err(|e| ConnectError::Client(url, Box::new(e)))?;
        Ok(Cluster::new(client, lease))
    }
}

fn as_we_call(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT);
    // Watches are silent for minutes; each other call has a limit of its own.
    config.read_timeout = None;
    // A repeated write could meet its own effect, and core would not know. Core retries.
    config.default_retry = false;
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io::Write as _;

    #[test]
    fn the_client_repeats_nothing_by_itself_and_connects_within_a_call() {
        let config = as_we_call(Config::new("https://127.0.0.1:6443".parse().expect("a URL")));
        assert!(!config.default_retry);
        assert!(config.connect_timeout.is_some_and(|limit| limit < crate::LONGEST));
        assert_eq!(config.read_timeout, None);
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let absent = Path::new("/nowhere/kubeconfig");
        let error = Cluster::connect(Some(absent), None, ("default", "polity")).await;
        let error = error.err().expect("no such file");
        assert!(error.to_string().contains("/nowhere/kubeconfig"));
        assert!(error.source().is_some());

        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"apiVersion: v1\nkind: Config\ncontexts: []\n")
            .expect("written");
        let error = Cluster::connect(Some(file.path()), Some("absent"), ("default", "polity")).await;
        assert!(matches!(error.err(), Some(ConnectError::Kubeconfig(..))));
    }
}
