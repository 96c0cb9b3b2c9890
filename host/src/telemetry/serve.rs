//! The endpoint: HTTP/1.1 without TLS or login, for probes and Prometheus.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::Metrics;
use super::health::readiness;
use crate::engine::{Handle, View};

/// How long the event loop may take to say how it stands: a turn of it takes milliseconds.
const WITHIN: Duration = Duration::from_secs(5);
/// How long a connection lasts: one request and its response.
const EXCHANGE: Duration = Duration::from_secs(10);
/// Connections at a time: a Prometheus or two, the probes, a person.
const CONNECTIONS: usize = 64;
/// How long `accept` is left alone after it failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a host tells how it stands.
pub struct Endpoint {
    listener: TcpListener,
}

#[derive(Clone)]
struct Served {
    metrics: Arc<Metrics>,
    handle: Handle,
    has_begun: Arc<AtomicBool>,
}

impl Endpoint {
    /// Takes the address; before anything else begins, so that a port that is taken is said at once.
    ///
    /// # Errors
    /// The address cannot be had.
    pub async fn bind(address: SocketAddr) -> Result<Endpoint> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!("--metrics-listen {address} cannot be had; name another address or a free port")
        })?;
        Ok(Endpoint { listener })
    }

    /// Where it is; a port that was 0 is known now.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .context("the address of --metrics-listen")
    }

    /// Answers for a host, until the future is dropped.
    pub async fn serve(self, handle: Handle, metrics: Arc<Metrics>) {
        let served = Served {
            metrics,
            handle,
            has_begun: Arc::default(),
        };
        let mut open = Open::default();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let is_probe = Arc::<AtomicBool>::default();
            let talk = served.clone().talk(stream, is_probe.clone());
            open.add(tokio::spawn(talk).abort_handle(), is_probe);
        }
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Open(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Open {
    /// Adds a connection. If there is no room, the oldest one ends that is no probe's: clients that read nothing, or ask for
    /// nothing, must not make the kubelet believe that the host is dead.
    fn add(&mut self, connection: AbortHandle, is_probe: Arc<AtomicBool>) {
        self.0.retain(|(other, _)| !other.is_finished());
        if self.0.len() >= CONNECTIONS {
            let no_probe = |(_, is_probe): &(AbortHandle, Arc<AtomicBool>)| !is_probe.load(Ordering::Relaxed);
            let oldest = self.0.iter().position(no_probe).unwrap_or(0);
            if let Some((oldest, _)) = self.0.remove(oldest) {
                oldest.abort();
            }
        }
        self.0.push_back((connection, is_probe));
    }
}

impl Served {
    /// Answers one request, and ends the connection.
    async fn talk(self, stream: TcpStream, is_probe: Arc<AtomicBool>) {
        let service = service_fn(move |request: Request<Incoming>| {
            let served = self.clone();
            is_probe.store(request.uri().path() != "/metrics", Ordering::Relaxed);
            async move { Ok::<_, Infallible>(served.answer(&request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // A client that went away in the middle is none of our concern.
        let _ = tokio::time::timeout(EXCHANGE, connection).await;
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "GET is what there is\n".to_owned(),
            );
        }
        match request.uri().path() {
            "/healthz" => match self.view().await {
                Some(_) => plain(StatusCode::OK, "ok\n".to_owned()),
                None => not_answering(),
            },
            "/readyz" => match self.view().await {
                Some(view) => self.ready(&view),
                None => not_answering(),
            },
            "/metrics" => match self.metrics.text(self.view().await.as_ref()) {
                Ok(text) => plain(StatusCode::OK, text),
                Err(e) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{e:#}\n")),
            },
            _ => plain(
                StatusCode::NOT_FOUND,
                "there are /healthz, /readyz and /metrics\n".to_owned(),
            ),
        }
    }

    fn ready(&self, view: &View) -> Response<Full<Bytes>> {
        if view.loading == 0 {
            self.has_begun.store(true, Ordering::Relaxed);
        }
        let readiness = readiness(view, self.has_begun.load(Ordering::Relaxed));
        let code = if readiness.reasons.is_empty() {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        plain(code, readiness.to_string())
    }

    /// How the host stands; none if its event loop does not say.
    async fn view(&self) -> Option<View> {
        let view = tokio::time::timeout(WITHIN, self.handle.view());
        view.await.ok().flatten()
    }
}

fn not_answering() -> Response<Full<Bytes>> {
    let text = format!("the event loop did not answer within {} s\n", WITHIN.as_secs());
    plain(StatusCode::SERVICE_UNAVAILABLE, text)
}

fn plain(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
