//! Connections to the API server: as many as the requests under way need.
//!
//! A client of hyper-util keeps one connection to a server that speaks HTTP/2, and never opens a second one. A server
//! takes a limited number of requests on a connection, and a watch is a request for as long as it is open. At the limit
//! each further request waits within the client until another one ends. So with enough watches no call is sent, that of
//! the lease included.
//!
//! # Flow
//!
//! A request goes to the first client that has fewer than [`MOST`] requests under way. If there is none, another client
//! is made, with a connection of its own. A request is under way until the body of its response has ended or was
//! dropped.
//!
//! # Caveats
//!
//! - If a server takes fewer than [`MOST`] requests on a connection, requests wait as before.
//! - A client counts connections that speak HTTP/1.1 in the same way. They carry one request each, so nothing waits.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tower::{Service, ServiceExt as _};

/// The most requests that are under way on one client. It is half of what kube-apiserver takes on a connection by
/// default: `MaxConcurrentStreams` is 100 in `pkg/server/secure_serving.go` of k8s.io/apiserver. A request that is over
/// for this host may still count at the server, and its operator may have lowered the limit
/// (`--http2-max-streams-per-connection`).
const MOST: usize = 50;
/// A client with nothing under way is kept as long as those before it have room for no more requests than this.
/// Otherwise each call beside clients that are full of watches would have to connect first.
const SPARE: usize = MOST / 2;

/// Sends each request on a client that has room for it.
pub(crate) struct Pool<S> {
    /// Makes a client that shares no connection with the others.
    make: Arc<dyn Fn() -> S + Send + Sync>,
    clients: Arc<Mutex<Vec<Client<S>>>>,
}

struct Client<S> {
    service: S,
    /// Each request under way holds a clone.
    requests: Arc<()>,
}

impl<S> Client<S> {
    fn room(&self) -> usize {
        MOST.saturating_sub(Arc::strong_count(&self.requests) - 1)
    }
}

impl<S> Pool<S> {
    pub(crate) fn new(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Pool {
            make: Arc::new(make),
            clients: Arc::default(),
        }
    }
}

impl<S: Clone> Pool<S> {
    /// A client for one more request, and what that request holds while it is under way. Drops the clients that are no
    /// longer needed.
    fn client(&self) -> (S, Arc<()>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = 0;
        clients.retain(|client| {
            let stays = room <= SPARE || client.room() < MOST;
            room += if stays { client.room() } else { 0 };
            stays
        });
        let first = match clients.iter().position(|client| client.room() > 0) {
            Some(first) => first,
            None => {
                clients.push(Client {
                    service: (self.make)(),
                    requests: Arc::default(),
                });
                clients.len() - 1
            }
        };
        (clients[first].service.clone(), clients[first].requests.clone())
    }
}

impl<S> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Pool {
            make: self.make.clone(),
            clients: self.clients.clone(),
        }
    }
}

impl<S, B> Service<Request<Body>> for Pool<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
{
    type Response = Response<Counted<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (service, under_way) = self.client();
        Box::pin(async move {
            let response = service.oneshot(request).await?;
            Ok(response.map(|body| Counted {
                body,
                under_way: Some(under_way),
            }))
        })
    }
}

/// The body of a response. Until it has ended or is dropped, its request is under way.
pub(crate) struct Counted<B> {
    body: B,
    under_way: Option<Arc<()>>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.under_way = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{self, Either};
    use http_body_util::{BodyExt as _, Full};
    use tower::service_fn;
    use tower::util::BoxCloneService;

    type Answer = Response<Counted<Full<Bytes>>>;

    /// Clients that answer all but `/silent`. They count how many of them were made, and which one a request went to.
    struct Clients {
        pool: Pool<BoxCloneService<Request<Body>, Response<Full<Bytes>>, Infallible>>,
        made: Arc<AtomicUsize>,
    }

    impl Clients {
        fn new() -> Self {
            let made = Arc::new(AtomicUsize::new(0));
            let count = made.clone();
            let pool = Pool::new(move || {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                BoxCloneService::new(service_fn(move |request: Request<Body>| {
                    let answer = future::ready(Ok(Response::new(Full::from(number.to_string()))));
                    match request.uri().path() {
                        "/silent" => Either::Left(future::pending()),
                        _ => Either::Right(answer),
                    }
                }))
            });
            Clients { pool, made }
        }

        fn made(&self) -> usize {
            self.made.load(Ordering::SeqCst)
        }

        fn kept(&self) -> usize {
            self.pool.clients.lock().expect("a lock").len()
        }

        fn send(&self, path: &str) -> BoxFuture<'static, Result<Answer, Infallible>> {
            let request = Request::get(path).body(Body::empty()).expect("a request");
            self.pool.clone().call(request)
        }

        async fn open(&self) -> Answer {
            self.send("/").await.expect("answered")
        }

        async fn open_all(&self, count: usize) -> Vec<Answer> {
            future::join_all((0..count).map(|_| self.open())).await
        }

        /// The client that one more call goes to.
        async fn next(&self) -> String {
            let body = self.open().await.into_body();
            let bytes = body.collect().await.expect("a body").to_bytes();
            String::from_utf8(bytes.to_vec()).expect("a number")
        }
    }

    #[tokio::test]
    async fn a_client_is_made_when_all_others_are_full() {
        let clients = Clients::new();
        let mut open = clients.open_all(MOST - 1).await;
        assert_eq!((clients.next().await.as_str(), clients.made()), ("1", 1));
        open.push(clients.open().await);
        assert_eq!((clients.next().await.as_str(), clients.made()), ("2", 2));
        open.extend(clients.open_all(2 * MOST).await);
        assert_eq!((clients.next().await.as_str(), clients.made()), ("4", 4));
    }

    #[tokio::test]
    async fn a_request_is_under_way_until_its_body_has_ended_or_was_dropped() {
        let clients = Clients::new();
        let mut open = clients.open_all(MOST).await;
        assert_eq!(clients.next().await, "2");
        drop(open.pop());
        assert_eq!(clients.next().await, "1", "dropped");
        open.push(clients.open().await);
        assert_eq!(clients.next().await, "2");
        let mut body = open.pop().expect("an answer").into_body();
        while body.frame().await.is_some() {}
        assert_eq!(clients.next().await, "1", "ended, and not dropped");
    }

    #[tokio::test]
    async fn a_request_that_is_not_answered_yet_is_under_way_until_it_is_given_up() {
        let clients = Clients::new();
        let mut waiting: Vec<_> = (0..MOST).map(|_| clients.send("/silent")).collect();
        assert_eq!(clients.next().await, "2");
        waiting.pop();
        assert_eq!(clients.next().await, "1");
    }

    #[tokio::test]
    async fn clients_with_nothing_under_way_are_dropped_when_the_others_have_room() {
        let clients = Clients::new();
        let mut open = clients.open_all(3 * MOST).await;
        open.truncate(MOST);
        assert_eq!(clients.next().await, "2", "the first one is full");
        assert_eq!(clients.kept(), 2, "one is enough for what comes next");
        open.truncate(MOST - SPARE);
        assert_eq!(clients.next().await, "1");
        assert_eq!(clients.kept(), 2, "the first one may soon be full");
        open.truncate(MOST - SPARE - 1);
        assert_eq!(clients.next().await, "1");
        assert_eq!(clients.kept(), 1);
        drop(open);
        assert_eq!(clients.next().await, "1");
        assert_eq!((clients.kept(), clients.made()), (1, 3), "the first one stays");
    }

    #[tokio::test]
    async fn calls_beside_clients_full_of_watches_share_a_client() {
        let clients = Clients::new();
        let _watches = clients.open_all(2 * MOST).await;
        for _ in 0..5 {
            assert_eq!(clients.next().await, "3");
        }
        assert_eq!(clients.made(), 3);
    }
}
