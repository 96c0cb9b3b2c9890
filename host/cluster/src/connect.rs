//! Connects to the cluster by a kubeconfig, by a context in it, or by the service account of this process.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::Request;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use polity_http::fence::Fenced;

use tower::{BoxError, ServiceBuilder};

use crate::Cluster;
use crate::pool::Pool;

/// How long a connection may be silent until the host pings the server, and how long the server has to answer. A
/// connection that died in silence is given up after both. That leaves time to renew the lease on another one.
const PING_EVERY: Duration = Duration::from_secs(3);
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

/// Builds a client that makes many calls and watches over one connection if the server speaks HTTP/2, and opens
/// further connections before the server's limit is reached. The client that kube builds opens one connection
/// for each call under way. Behind a proxy kube's own client is used, because it knows how to speak to proxies.
fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
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
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp()));
    connector.set_connect_timeout(config.connect_timeout);
    let http = Pool::new(move || {
        let client: HttpClient<_, Fenced<Body>> = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_WITHIN)
            .http2_adaptive_window(true)
            .build(connector.clone());
        let fenced: fn(Request<Body>) -> Request<Fenced<Body>> = Fenced::of;
        ServiceBuilder::new().map_request(fenced).service(client)
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Connects by TCP. A request in HTTP/2 is two small writes, its header and its body. Without `nodelay` the second one waits
/// until the server has acknowledged the first, which Linux puts off for 40 ms.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
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
    use std::convert::Infallible;
    use std::error::Error as _;
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::StreamExt as _;
    use futures::stream;
    use http::Response;
    use http_body::Frame;
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt as _, StreamBody};
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use polity_core::call::Fence;
    use polity_core::contract::{Code, Effect};
    use polity_core::controller::lease;
    use polity_core::time::Boot;
    use polity_http::fence;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
    use tower::ServiceExt as _;

    use crate::LONGEST;
    use crate::error::Verb;
    use crate::request::until;

    #[test]
    fn the_client_repeats_nothing_by_itself_and_connects_within_a_call() {
        let config = as_we_call(Config::new("https://127.0.0.1:6443".parse().expect("a URL")));
        assert!(!config.default_retry);
        assert!(config.connect_timeout.is_some_and(|limit| limit < crate::LONGEST));
        assert_eq!(config.read_timeout, None);
    }

    #[test]
    fn a_connection_that_died_in_silence_does_not_cost_the_lease() {
        // The connection dies after a renewal. When it is given up, the lease is read and written over another one.
        let renewed = PING_EVERY + PING_WITHIN + 2 * lease::CALL_LONGEST;
        assert!(renewed < lease::DURATION, "{renewed:?}");
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

    /// The requests that kube-apiserver takes at the same time on a connection.
    const STREAMS: u32 = 100;
    const WATCH: &str = "/watch";

    /// An API server that speaks HTTP/2 over TLS. A watch of it never ends, and every call is answered with `{}`.
    struct Server {
        config: Config,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let (acceptor, certificate) = tls();
            let mut config = Config::new(format!("https://{address}").parse().expect("a URL"));
            config.root_cert = Some(vec![certificate]);
            let connections = Arc::new(AtomicUsize::new(0));
            let count = connections.clone();
            tokio::spawn(async move {
                while let Ok((tcp, _)) = listener.accept().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    let accepted = acceptor.accept(tcp);
                    tokio::spawn(async move {
                        http2::Builder::new(TokioExecutor::new())
                            .max_concurrent_streams(STREAMS)
                            .serve_connection(TokioIo::new(accepted.await.expect("TLS")), service_fn(answer))
                            .await
                    });
                }
            });
            Server { config, connections }
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    /// TLS for the loopback interface, and its certificate.
    fn tls() -> (TlsAcceptor, Vec<u8>) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .expect("TLS takes the certificate");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        (TlsAcceptor::from(Arc::new(tls)), cert.der().to_vec())
    }

    async fn answer(
        request: Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}")))]);
        let body = match request.uri().path() {
            WATCH => StreamBody::new(first.chain(stream::pending())).boxed_unsync(),
            _ => StreamBody::new(first).boxed_unsync(),
        };
        Ok(Response::new(body))
    }

    #[tokio::test]
    async fn a_small_write_does_not_wait_for_the_one_before_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let uri = format!("https://{address}").parse().expect("a URL");
        let connection = tcp().oneshot(uri).await.expect("a connection");
        assert!(connection.inner().nodelay().expect("an option of the socket"));
    }

    /// Takes connections, each of which is made when the clock stands at `then`, and counts the requests that arrive whole.
    async fn slow_to_connect(clock: Arc<AtomicU64>, then: u64) -> (Config, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (acceptor, certificate) = tls();
        let mut config = Config::new(format!("https://{address}").parse().expect("a URL"));
        config.root_cert = Some(vec![certificate]);
        let whole = Arc::new(AtomicUsize::new(0));
        let count = whole.clone();
        tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.expect("a connection");
            clock.store(then, Ordering::SeqCst);
            let take = service_fn(move |request: Request<Incoming>| {
                let count = count.clone();
                async move {
                    if request.into_body().collect().await.is_ok() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(
                        Bytes::from_static(b"{}"),
                    )))
                }
            });
            let tls = acceptor.accept(tcp).await.expect("TLS");
            let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), take);
            served.await
        });
        (config, whole)
    }

    #[tokio::test]
    async fn a_change_that_became_late_while_it_was_connected_is_not_sent() {
        for verb in [Verb::Create, Verb::Patch, Verb::Delete, Verb::Evict] {
            for (then, expected) in [(9, 1), (10, 0)] {
                let clock = Arc::new(AtomicU64::new(0));
                let (config, whole) = slow_to_connect(clock.clone(), then).await;
                let cluster = Cluster::with_config(config, ("default", "polity")).expect("a client");
                let fence = Fence::new(Boot(10), move || Boot(clock.load(Ordering::SeqCst)));
                let call = cluster.call(verb, "a change", "/", Some("{}".to_owned()));
                let called = fence::within(fence, call).await;
                match called {
                    Ok(_) => assert_eq!(expected, 1),
                    Err(failure) => {
                        assert_eq!(expected, 0, "{failure}");
                        assert_eq!(failure.code, Code::Aborted, "{failure}");
                        assert_eq!(failure.effect, Effect::None);
                    }
                }
                assert_eq!(whole.load(Ordering::SeqCst), expected);
            }
        }
    }

    #[tokio::test]
    async fn calls_are_answered_beside_more_watches_than_a_connection_takes() {
        let server = Server::start().await;
        let cluster = Cluster::with_config(server.config.clone(), ("default", "polity")).expect("a client");
        let end = || Instant::now() + LONGEST;
        let mut watches = Vec::new();
        for _ in 0..150 {
            let watch = until(end(), Verb::Get, WATCH, cluster.open(WATCH, WATCH)).await;
            watches.push(watch.expect("a watch is opened"));
        }
        for _ in 0..3 {
            let call = until(
                end(),
                Verb::Get,
                "a call",
                cluster.call(Verb::Get, "a call", "/", None),
            )
            .await;
            assert_eq!(call, Ok(serde_json::json!({})));
        }
        assert_eq!(
            server.connections(),
            4,
            "three are full of watches, and calls share one"
        );
    }
}
