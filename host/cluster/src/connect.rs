//! Connects to the cluster by a kubeconfig, by a context in it, or by the service account of this process.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use tower::{BoxError, ServiceBuilder};

use crate::Cluster;

/// The interval between HTTP/2 pings, and how long the server has to answer one. A dead connection is noticed
/// by them.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_WITHIN: Duration = Duration::from_secs(5);
/// The longest time that connecting may take. It is well below [`crate::LONGEST`], so that a request which
/// was never sent ends as "not sent" and not as a cut call with an unknown effect.
const CONNECT: Duration = Duration::from_secs(3);

/// Why the host cannot connect to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The named kubeconfig cannot be used.
    #[error("the kubeconfig {0} cannot be used")]
    Kubeconfig(String, #[source] KubeconfigError),
    /// The named context of the default kubeconfig cannot be used.
    #[error("the context {0:?} of the kubeconfig cannot be used")]
    Context(String, #[source] KubeconfigError),
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "no cluster is configured: there is neither a kubeconfig nor a service account; name a kubeconfig with --kubeconfig"
    )]
    Infer(#[source] InferConfigError),
    /// The service account of this process is missing or cannot be used.
    #[error("the service account of this process cannot be used")]
    ServiceAccount(#[source] InClusterError),
    /// The HTTP client could not be built.
    #[error("a client for {0} cannot be made")]
    Client(String, #[source] Box<kube::Error>),
}

impl Cluster {
    /// Connects with `kubeconfig` if it is given, otherwise with `$KUBECONFIG` or the default file. The
    /// context is `context` or the file's current one. If none of these exist, it connects as the service
    /// account of this pod.
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

    /// Connects as the service account of this pod. A kubeconfig is ignored.
    pub fn in_cluster(lease: (&str, &str)) -> Result<Self, ConnectError> {
        let config = Config::incluster().map_err(ConnectError::ServiceAccount)?;
        Cluster::with_config(config, lease)
    }

    fn with_config(config: Config, lease: (&str, &str)) -> Result<Self, ConnectError> {
        let url = config.cluster_url.to_string();
        let host = config
            .cluster_url
            .host()
            .map(|host| host.trim_matches(['[', ']']).to_owned());
        let client = client(as_we_call(config)).map_err(|e| ConnectError::Client(url, Box::new(e)))?;
        Ok(Cluster {
            host,
            ..Cluster::new(client, lease)
        })
    }

    /// The addresses of the API server; none if its name has none now, or if it is in this process.
    pub async fn addresses(&self) -> Vec<IpAddr> {
        let Some(host) = &self.host else {
            return Vec::new();
        };
        let found = tokio::net::lookup_host((host.as_str(), 0)).await;
        found
            .map(|all| all.map(|address| address.ip()).collect())
            .unwrap_or_default()
    }
}

/// Builds a client that makes all its calls, watches included, over one connection if the server speaks
/// HTTP/2. The client that kube builds opens one connection for each call under way. Behind a proxy kube's
/// own client is used, because it knows how to speak to proxies.
fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    // The connector that kube builds here is dropped. It is built only because kube then refuses an invalid
    // server name, which the code below would ignore.
    config.rustls_https_connector()?;
    if let Some(name) = config
        .tls_server_name
        .clone()
        .and_then(|name| name.try_into().ok())
    {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(http));
    connector.set_connect_timeout(config.connect_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_WITHIN)
        .http2_adaptive_window(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
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
