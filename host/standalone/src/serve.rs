//! Serving the API on a port: HTTP/1.1 on loopback, with a bearer token.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use futures::StreamExt as _;
use http::{Request, Response, header::AUTHORIZATION};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{net::TcpListener, sync::watch};
use tower::Service as _;

use crate::{
    Api,
    path::{Route, parse},
    refusal::Refusal,
    reply::{self, Body},
};

/// How long requests in flight may take after shutdown began: a write to the disk takes milliseconds.
const GRACE: Duration = Duration::from_secs(5);
/// How long `accept` is left alone after it failed (no file descriptors left, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `api` until `shutdown` is ready, then ends the watches, waits for requests in flight and returns.
/// All paths but the health checks want `Authorization: Bearer TOKEN`.
///
/// # Errors
/// When the listener has no local address, that is, is no listener.
pub async fn serve(
    listener: TcpListener,
    api: Api,
    token: String,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.local_addr()?;
    let graceful = GracefulShutdown::new();
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let door = Door {
            api: api.clone(),
            token: token.clone(),
            stopping: stopping.clone(),
        };
        let service = service_fn(move |request| door.clone().enter(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(listener);
    stop.send_replace(true);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still in flight when the API server ended");
    }
    Ok(())
}

/// Lets requests in that carry the token, and their answers out until the server stops.
#[derive(Clone)]
struct Door {
    api: Api,
    token: String,
    stopping: watch::Receiver<bool>,
}

impl Door {
    async fn enter(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if !self.is_open_to(&request) {
            return Ok(reply::refusal(&Refusal::unauthorized()));
        }
        poll_fn(|cx| tower::Service::<Request<Incoming>>::poll_ready(&mut self.api, cx)).await?;
        let response = self.api.call(request).await?;
        Ok(response.map(|body| until(body, self.stopping)))
    }

    fn is_open_to(&self, request: &Request<Incoming>) -> bool {
        if matches!(parse(request.uri().path()), Ok(Route::Health)) {
            return true;
        }
        let header = request
            .headers()
            .get(AUTHORIZATION)
            .map_or(&b""[..], |value| value.as_bytes());
        header
            .strip_prefix(b"Bearer ")
            .is_some_and(|token| same(token, self.token.as_bytes()))
    }
}

/// Compares without telling by its duration how much is right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

/// A body that ends, between two watch events, when the server stops.
fn until(body: Body, mut stopping: watch::Receiver<bool>) -> Body {
    if http_body::Body::size_hint(&body).exact().is_some() {
        return body;
    }
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let frames = http_body_util::BodyStream::new(body).take_until(Box::pin(stopped));
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

/// A kubeconfig with one context, for a server at `address` that wants `token`.
pub fn kubeconfig(address: SocketAddr, token: &str) -> String {
    let token = serde_json::Value::from(token);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: polity\n  \
           cluster:\n    \
             server: http://{address}\n\
         users:\n\
         - name: polity\n  \
           user:\n    \
             token: {token}\n\
         contexts:\n\
         - name: polity\n  \
           context:\n    \
             cluster: polity\n    \
             user: polity\n    \
             namespace: default\n\
         current-context: polity\n"
    )
}
