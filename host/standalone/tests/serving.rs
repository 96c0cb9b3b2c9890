//! The API on a port: TLS, token, limits, shutdown.

use std::{future::Future, sync::Arc, time::Duration};

use crate::thing_fixture::{Events, Seconds, define, raw, refusal, thing_crd, things};
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::{ListParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use polity_standalone::{Access, Api as Server, Store, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::Instant,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

const TOKEN: &str = "s3cret \"quoted\"";

struct Running {
    kubeconfig: String,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn start() -> Running {
    let store = Arc::new(Store::in_memory(Seconds::default().clock(), [0; 16]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let access = Access::new(TOKEN).unwrap();
    let kubeconfig = access.kubeconfig(listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let shutdown: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(serve(listener, Server::new(store), access, shutdown));
    Running {
        kubeconfig,
        stop,
        server,
    }
}

impl Running {
    async fn client(&self, edit: impl FnOnce(&mut Config)) -> Client {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        edit(&mut config);
        Client::try_from(config).unwrap()
    }

    /// A raw connection, which accepts anything.
    async fn connection(&self) -> TlsStream<TcpStream> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in config.root_cert.unwrap() {
            roots.add(certificate.into()).unwrap();
        }
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let authority = config.cluster_url.authority().unwrap().as_str();
        let stream = TcpStream::connect(authority).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(tls))
            .connect(name, stream)
            .await
            .unwrap()
    }
}

/// Asks for the health of the server over this connection, without the token.
async fn is_well(connection: &mut TlsStream<TcpStream>) -> bool {
    health(connection, "").await
}

/// Asks for the health of the server over this connection, and shows the token.
async fn is_known(connection: &mut TlsStream<TcpStream>) -> bool {
    health(connection, &format!("Authorization: Bearer {TOKEN}\r\n")).await
}

async fn health(connection: &mut TlsStream<TcpStream>, header: &str) -> bool {
    let request = format!("GET /readyz HTTP/1.1\r\nHost: polity\r\n{header}\r\n");
    if connection.write_all(request.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        if connection.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    answer.starts_with(b"HTTP/1.1 200 ")
}

#[tokio::test]
async fn the_kubeconfig_opens_the_server() {
    let running = start().await;
    let client = running.client(|_| ()).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(
        namespaces.list(&ListParams::default()).await.unwrap().items.len(),
        2
    );
    let version = client.apiserver_version().await.unwrap();
    assert!(
        version.git_version.starts_with("v1.36."),
        "{}",
        version.git_version
    );
}

#[tokio::test]
async fn without_the_token_only_health_is_shown() {
    let running = start().await;
    let client = running
        .client(|config| config.auth_info = Default::default())
        .await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(refusal(namespaces.list(&ListParams::default()).await).0, 401);
    let (code, body) = raw(&client, "GET", "/readyz", &[], "").await;
    assert_eq!((code, body.as_str()), (200, Some("ok")));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let running = start().await;
    let client = running.client(|_| ()).await;
    let body = "x".repeat((3 << 20) + 1);
    let (code, status) = raw(&client, "POST", "/api/v1/namespaces", &[], &body).await;
    assert_eq!(
        (code, status["reason"].as_str()),
        (413, Some("RequestEntityTooLarge"))
    );
}

#[tokio::test]
async fn a_shutdown_ends_watches() {
    let running = start().await;
    let client = running.client(|_| ()).await;
    define(&client, thing_crd()).await;
    let mut events = Events::of(&things(&client), &WatchParams::default(), "0").await;
    running.stop.send(()).unwrap();
    assert!(events.ended().await);
    running.server.await.unwrap().unwrap();
}

/// A body that comes a piece at a time, and never ends.
fn endless() -> impl http_body::Body<Data = Bytes, Error = std::io::Error> + Send {
    let pieces = futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b" "))), ()))
    });
    StreamBody::new(pieces)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_cut() {
    let store = Arc::new(Store::in_memory(Seconds::default().clock(), [0; 16]));
    let mut server = Server::new(store);
    let began = Instant::now();
    let request = Request::post("/api/v1/namespaces").body(endless()).unwrap();
    let answer = tower::Service::call(&mut server, request).await.unwrap();
    assert_eq!(answer.status(), 408);
    assert_eq!(began.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut() {
    let running = start().await;
    let mut connection = running.connection().await;
    assert!(is_well(&mut connection).await);
    connection.write_all(b"GET /readyz HT").await.unwrap();
    tokio::time::pause();
    let began = Instant::now();
    let mut rest = Vec::new();
    // A connection that is cut without TLS's closing message counts as cut too.
    let _ = connection.read_to_end(&mut rest).await;
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn a_connection_too_many_waits_until_another_ends() {
    let running = start().await;
    let mut first = running.connection().await;
    assert!(is_known(&mut first).await);
    let mut others = Vec::new();
    for _ in 1..256 {
        let mut other = running.connection().await;
        assert!(is_known(&mut other).await);
        others.push(other);
    }
    let mut late = std::pin::pin!(async { is_known(&mut running.connection().await).await });
    for _ in 0..50 {
        tokio::select! {
            biased;
            _ = &mut late => panic!("there was no place for it"),
            well = is_well(&mut first) => assert!(well),
        }
    }
    others.pop();
    assert!(late.await);
}

#[tokio::test]
async fn whoever_has_the_token_gets_in_however_many_connections_without_it_are_held() {
    let running = start().await;
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(running.connection().await);
    }
    let mut newest = held.pop().unwrap();
    let mut late = std::pin::pin!(async {
        let mut connection = running.connection().await;
        is_known(&mut connection).await.then_some(connection)
    });
    let busy = async {
        for _ in 0..500 {
            assert!(is_well(&mut newest).await);
        }
    };
    let known = tokio::select! {
        biased;
        known = &mut late => known,
        () = busy => panic!("who has the token waits for those who have none"),
    };
    let mut known = known.unwrap();
    // Others that come later do not end it.
    for _ in 0..300 {
        held.push(running.connection().await);
    }
    assert!(is_well(&mut known).await);
    assert!(!is_well(&mut held[0]).await, "the oldest gave way");
}
