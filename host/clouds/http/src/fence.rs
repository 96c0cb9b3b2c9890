//! The fence at the wire: a change whose time to begin has passed is not sent.
//!
//! Core decides until when a change may begin, so that it ends while this host holds the lease. Between that decision and the
//! first byte on the wire a request may wait for a connection, and the machine may be suspended, while another host takes the
//! lease and does the same work. So the body of a request looks at the clock when hyper takes it: with HTTP/1.1 that is after
//! the connection was made, and before a byte of the request is written.
//!
//! # Caveats
//!
//! With HTTP/2 the head of a request is written before its body is taken. A late request is then reset without its body. The API
//! server reads the body of each change, and does nothing with a part of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::{Body, Frame, SizeHint};
use polity_core::call::Fence;
use polity_core::contract::{Code, Failure};
use tower::BoxError;

tokio::task_local! {
    static CURRENT: Fence;
}

/// Makes a call whose changes must begin before the fence closes.
pub async fn within<F: Future>(fence: Fence, call: F) -> F::Output {
    CURRENT.scope(fence, call).await
}

/// The fence of the present call for one request; `None` if the call has none.
pub fn current() -> Option<Fence> {
    CURRENT.try_with(Fence::of_request).ok()
}

/// The error of a body that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent, because too little time was left to begin")]
struct Late;

/// The failure of a change that was not sent.
pub fn late(what: &str) -> Failure {
    Failure::new(Code::Aborted, format!("{what}: {Late}"))
}

/// The body of a request that is sent only while its fence is open.
#[derive(Debug)]
pub struct Fenced<B> {
    body: B,
    fence: Option<Fence>,
}

impl<B> Fenced<B> {
    /// A body with a fence, if there is one.
    pub fn new(body: B, fence: Option<Fence>) -> Self {
        Fenced { body, fence }
    }

    /// A request with the fence that stands in its extensions, if one does.
    pub fn of(request: Request<B>) -> Request<Self> {
        let fence = request.extensions().get::<Fence>().cloned();
        request.map(|body| Fenced::new(body, fence))
    }

    fn is_late(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| !fence.is_open())
    }
}

impl<B: Body + Unpin> Body for Fenced<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        // What has begun may end.
        if let Some(fence) = self.fence.take()
            && !fence.is_open()
        {
            fence.refuse();
            return Poll::Ready(Some(Err(Late.into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        // An empty body that is late has an error to give, so that it is taken before the head is on the wire.
        self.body.is_end_stream() && !self.is_late()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_late() {
            SizeHint::with_exact(self.body.size_hint().lower().max(1))
        } else {
            self.body.size_hint()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Budget, Lost, Outgoing, Tls, Transport};
    use bytes::Bytes;
    use http::Method;
    use polity_core::time::Boot;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;
    use tokio::time::Instant;

    /// A proxy that takes its time: when it lets a tunnel through, the clock stands at `then`. Its address, and the bytes that
    /// came through the tunnel.
    fn proxy(clock: Arc<AtomicU64>, then: u64) -> (String, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serves = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 1_024];
            assert!(stream.read(&mut bytes).expect("a request for a tunnel") > 0);
            clock.store(then, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("written");
            let mut got = Vec::new();
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                got.extend_from_slice(&bytes[..count]);
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
            got
        });
        (format!("http://{address}"), serves)
    }

    /// What becomes of a change whose fence closes at 10, and whether a byte of it was written.
    async fn sent(body: &'static str, then: u64) -> (Result<u16, Lost>, bool) {
        let clock = Arc::new(AtomicU64::new(0));
        let (proxy, got) = proxy(clock.clone(), then);
        let fence = Fence::new(Boot(10), move || Boot(clock.load(Ordering::SeqCst)));
        let request = Outgoing {
            address: Address::read("http://cloud.example").expect("an address"),
            method: Method::DELETE,
            path: Vec::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let transport = Transport::new(&Tls::default(), Some(&proxy), None).expect("a transport");
        let until = Instant::now() + Duration::from_secs(60);
        let budget = Budget::new(1 << 20);
        let answered = transport.send_within(&request, until, &budget, Some(fence)).await;
        drop(transport);
        let got = got.join().expect("it ends");
        (answered.map(|answer| answer.status), !got.is_empty())
    }

    #[tokio::test]
    async fn a_change_that_became_late_while_it_was_connected_writes_no_byte() {
        for body in ["", "{}"] {
            assert_eq!(sent(body, 9).await, (Ok(200), true), "{body:?}");
            let (refused, has_arrived) = sent(body, 10).await;
            let refused = refused.expect_err("it is late");
            assert_eq!(refused.failure.code, Code::Aborted, "{refused:?}");
            assert!(!refused.sent && !has_arrived, "{body:?}");
        }
    }
}
