//! Serving the API on a port: HTTP/1.1 over TLS, with a bearer token.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch},
    task::AbortHandle,
};
use tower::Service as _;

use crate::{
    Access, Api,
    http::{
        path::{Route, parse},
        refusal::Refusal,
        reply::{self, Body},
    },
};

/// How long requests in flight may take after the shutdown began. A write to the disk takes milliseconds.
const GRACE: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take: on loopback it takes milliseconds.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle before it.
const HEAD: Duration = Duration::from_secs(30);
/// The most connections at the same time that have shown the token, watches included. It is far more than people
/// and their tools open. The requests of further ones wait.
const CONNECTIONS: usize = 256;
/// The most connections at the same time that have not shown the token, so that whoever has none takes no place of
/// those who have it. So many can begin at once; both together are less than the usual limit of open files.
const STRANGERS: usize = 256;
/// The pause after `accept` failed, most likely because there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `api` until `shutdown` is ready. Then it ends the watches, waits for requests in flight and
/// returns. All paths but the health checks need the bearer token.
///
/// # Errors
/// The listener has no local address, so it is not a listener.
pub async fn serve(
    listener: TcpListener,
    api: Api,
    access: Access,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.local_addr()?;
    let graceful = GracefulShutdown::new();
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut strangers = Strangers::default();
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let place = Arc::<Place>::default();
                let of_connection = Arc::downgrade(&place);
                let door = Door {
                    api: api.clone(),
                    access: access.clone(),
                    stopping: stopping.clone(),
                    room: room.clone(),
                    place,
                };
                let served = tokio::spawn(door.welcome(stream, graceful.watcher()));
                strangers.add(served.abort_handle(), of_connection);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still in flight when the API server ended");
    }
    Ok(())
}

/// The place of a connection among those that have shown the token; empty until it does.
type Place = OnceCell<OwnedSemaphorePermit>;

/// The connections that have not shown the token, the oldest first.
#[derive(Default)]
struct Strangers(VecDeque<(AbortHandle, Weak<Place>)>);

impl Strangers {
    /// Adds a connection. If there are too many, the oldest one ends: a client with the token shows it at once, so
    /// one that holds its connection without a token keeps no other out.
    fn add(&mut self, connection: AbortHandle, place: Weak<Place>) {
        let is_stranger = |place: &Weak<Place>| place.upgrade().is_some_and(|place| !place.initialized());
        self.0.retain(|(_, place)| is_stranger(place));
        if self.0.len() >= STRANGERS
            && let Some((oldest, _)) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back((connection, place));
    }
}

/// Admits requests that carry the token, and sends their answers until the server stops.
#[derive(Clone)]
struct Door {
    api: Api,
    access: Access,
    stopping: watch::Receiver<bool>,
    room: Arc<Semaphore>,
    place: Arc<Place>,
}

impl Door {
    async fn welcome(self, stream: TcpStream, watcher: Watcher) {
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let handshake = self.access.acceptor().accept(stream);
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await else {
            tracing::debug!("a TLS handshake failed");
            return;
        };
        let service = service_fn(move |request| self.clone().enter(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended badly");
        }
    }

    async fn enter(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let is_health = matches!(parse(request.uri().path()), Ok(Route::Health));
        if self.access.is_granted(request.headers()) {
            let place = || self.room.clone().acquire_owned();
            // It fails only if the semaphore is closed, and nobody closes it.
            let _ = self.place.get_or_try_init(place).await;
        } else if !is_health {
            return Ok(reply::refusal(&Refusal::unauthorized()));
        }
        poll_fn(|cx| tower::Service::<Request<Incoming>>::poll_ready(&mut self.api, cx)).await?;
        let response = self.api.call(request).await?;
        Ok(response.map(|body| until(body, self.stopping)))
    }
}

/// A body that ends between two watch events when the server stops.
fn until(body: Body, mut stopping: watch::Receiver<bool>) -> Body {
    if http_body::Body::size_hint(&body).exact().is_some() {
        return body;
    }
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let frames = BodyStream::new(body).take_until(Box::pin(stopped));
    StreamBody::new(frames).boxed_unsync()
}
