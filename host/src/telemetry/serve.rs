//! The endpoint: HTTP/1.1 without TLS or login, for probes and Prometheus.

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
use tokio::sync::Semaphore;

use super::Metrics;
use super::health::readiness;
use crate::engine::{Handle, View};

/// How long the event loop may take to say how it stands: a turn of it takes milliseconds.
const WITHIN: Duration = Duration::from_secs(5);
/// How long a client may take for the head of its request.
const HEAD: Duration = Duration::from_secs(10);
/// Connections at a time: a Prometheus or two, the probes, a person.
const CONNECTIONS: usize = 32;
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
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = room.clone().acquire_owned().await;
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let served = served.clone();
            tokio::spawn(async move {
                served.talk(stream).await;
                drop(place);
            });
        }
    }
}

impl Served {
    async fn talk(self, stream: TcpStream) {
        let service = service_fn(move |request| {
            let served = self.clone();
            async move { Ok::<_, Infallible>(served.answer(&request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        // A client that went away in the middle is none of our concern.
        let _ = connection.await;
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
        let code = match readiness.reasons.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
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
