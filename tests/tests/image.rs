//! What a host reaches from the root of its image, which holds nothing but the program: no authorities of the system, no
//! resolver's file, no shell.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use polity_core::contract::Kind;
use polity_tests::empty_root::EmptyRoot;
use polity_tests::examples;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::process::{connected, until};
use crate::vcenter::certified;

/// Who the host is, by the cloud.
const ROLE: &str = "arn:aws:sts::111111111111:assumed-role/the-role";
/// What the metadata service of a machine hands out: the keys of its role.
const KEYS: &str = r#"{"AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "of-the-machine", "Token": "session",
    "Expiration": "2126-01-01T00:00:00Z"}"#;

/// The metadata service of EC2, and STS, in one server.
fn answer(request: &Request<Incoming>) -> String {
    match request.uri().path() {
        "/latest/api/token" => "token".to_owned(),
        "/latest/meta-data/iam/security-credentials/" => "the-role".to_owned(),
        "/latest/meta-data/iam/security-credentials/the-role" => KEYS.to_owned(),
        _ => format!(
            r#"<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
            <Arn>{ROLE}/i-1</Arn><UserId>AROA:i-1</UserId><Account>111111111111</Account>
            </GetCallerIdentityResult></GetCallerIdentityResponse>"#
        ),
    }
}

async fn served(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let answer = Full::new(Bytes::from(answer(&request)));
        std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(answer)))
    });
    // A client that does not trust this server goes away.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Serves, with this certificate and key if any. Returns the address.
async fn serve(certificate: Option<(&str, &str)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let acceptor = certificate.map(|(certificate, key)| {
        let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key);
        TlsAcceptor::from(Arc::new(config.expect("they fit")))
    });
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => served(stream).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            served(stream).await;
                        }
                    }
                }
            });
        }
    });
    format!("{scheme}://{address}")
}

/// The host in its root, ended when dropped.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a host in the root whose connection has no credentials, and waits until the connection is as wanted. The host's own
/// identity goes to the servers that its environment names.
async fn until_connection(
    root: &EmptyRoot,
    endpoint: &str,
    environment: &[(&str, &str)],
    is_so: impl Fn(&Value) -> bool,
) {
    let credentials = "  credentials: {namespace: polity-system, name: aws}\n";
    let example = examples::copy_with("aws-machines", &[(credentials, "")]);
    let inside = root.path("/example");
    let _ = fs::remove_dir_all(&inside);
    fs::create_dir(&inside).expect("a folder");
    for file in fs::read_dir(example.path()).expect("the example") {
        let file = file.expect("a file");
        fs::copy(file.path(), inside.join(file.file_name())).expect("copied");
    }
    let kubeconfig = root.path("/tmp/kubeconfig");
    let _ = fs::remove_file(&kubeconfig);
    let mut command = root.command();
    command
        .args(["run", "--listen", "0", "--write-kubeconfig", "/tmp/kubeconfig"])
        .args(["/example/bindings.yaml", "/example/connection.yaml"])
        // The next host in this root compiles nothing.
        .env("POLITY_COMPILED", "/compiled")
        .env("AWS_ENDPOINT_URL_STS", endpoint)
        .env("AWS_ENDPOINT_URL_EC2", endpoint)
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut host = Host(command.spawn().expect("it starts"));
    let cluster = connected(&mut host.0, &kubeconfig).await;
    let connection = Kind {
        api_version: "polity.dev/v1alpha1".into(),
        kind: "CloudConnection".into(),
    };
    until(&mut host.0, &cluster, &connection, |all| all.iter().any(&is_so)).await;
}

fn is_reached(connection: &Value) -> bool {
    connection["status"]["principal"] == ROLE
}

fn is_unknown_issuer(connection: &Value) -> bool {
    let conditions = connection["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter_map(|condition| condition["message"].as_str())
        .any(|message| message.contains("UnknownIssuer"))
}

#[tokio::test]
async fn a_host_in_an_empty_root_reaches_http_and_the_metadata_service_and_trusts_whom_it_is_told_to() {
    let root = EmptyRoot::of(Path::new(env!("CARGO_BIN_EXE_polity-under-test")));
    let [authority, certificate, key] = certified();
    fs::write(root.path("/ca.pem"), authority).expect("written");
    let plain = serve(None).await;
    let secure = serve(Some((&certificate, &key))).await;
    let metadata = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*plain);

    until_connection(&root, &plain, &[metadata], is_reached).await;
    until_connection(&root, &secure, &[metadata], is_unknown_issuer).await;
    let trusted = ("SSL_CERT_FILE", "/ca.pem");
    until_connection(&root, &secure, &[metadata, trusted], is_reached).await;
}
