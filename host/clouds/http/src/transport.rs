//! One request to a server, and its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use polity_core::call::Fence;
use polity_core::contract::{Code, Failure};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::address::{Address, query};
use crate::breaker::Breaker;
use crate::fence::{Fenced, late};
use crate::reach::{Reach, Resolver, refused};
use crate::roots::DefaultRoots;

/// The most bytes of a response's body.
const LARGEST: usize = 4 << 20;
/// The most bytes of a response to a login. It is read at once, on a thread of the runtime.
const LARGEST_OF_LOGIN: usize = 512 << 10;
/// How long an idle connection stays open.
const IDLE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, PartialEq)]
pub struct Outgoing {
    /// The endpoint to which it goes.
    pub address: Address,
    /// The method, such as `GET`.
    pub method: Method,
    /// The segments of the path below the address, not encoded.
    pub path: Vec<String>,
    /// The pairs of the query, not encoded.
    pub query: Vec<(String, String)>,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body, with the values of sealed arguments in it.
    pub body: Bytes,
}

/// Prints neither the body nor the headers, because they contain secrets.
impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.address.path(&self.path);
        write!(f, "Outgoing({} {}{path})", self.method, self.address.host())
    }
}

impl Outgoing {
    /// The path as it is sent.
    pub fn encoded_path(&self) -> String {
        self.address.path(&self.path)
    }

    /// The query as it is sent.
    pub fn encoded_query(&self) -> String {
        query(&self.query)
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The status.
    pub status: u16,
    /// Names in small letters. A value that is not text is left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Incoming {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The time of the response by the server's clock, in Unix milliseconds.
    pub fn date(&self) -> Option<u64> {
        self.header("date").and_then(unix_of)
    }
}

/// The Unix milliseconds of an HTTP date.
pub fn unix_of(date: &str) -> Option<u64> {
    let time = jiff::fmt::rfc2822::parse(date).ok()?;
    u64::try_from(time.timestamp().as_millisecond()).ok()
}

/// A request without a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Why there is no response.
    pub failure: Failure,
    /// Whether any part of the request may have reached the server.
    pub sent: bool,
}

/// The authorities that a connection trusts, and the certificate by which servers know the host.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The certificates of the trusted authorities, in PEM; `None` trusts those of [`crate::roots`].
    pub authorities: Option<Vec<u8>>,
    /// The host's own certificate chain and key, in PEM.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// The bytes that the responses of an operation may have together. All requests of the operation share it, and each takes from
/// it while its response arrives: responses that are too large together are never in memory together.
#[derive(Debug)]
pub struct Budget(AtomicUsize);

impl Budget {
    /// So many bytes.
    pub fn new(bytes: usize) -> Self {
        Budget(AtomicUsize::new(bytes))
    }

    /// Whether a response had more than was left. Then nothing is left.
    pub fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) -> bool {
        let took = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(bytes))
        });
        took.is_ok_and(|left| left > bytes)
    }
}

/// Why certificates or a proxy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    /// The certificates of the authorities cannot be read.
    #[error("the CA bundle: {0}")]
    Authorities(String),
    /// The host's own certificate or key cannot be read.
    #[error("the client certificate: {0}")]
    Client(String),
    /// The proxy's address is not an address.
    #[error("the proxy {0:?} is not http://HOST:PORT")]
    Proxy(String),
}

/// The connections to the servers of one cloud.
#[derive(Clone)]
pub struct Transport {
    client: Way,
    from: Arc<str>,
    breaker: Arc<Breaker>,
    reach: Option<Arc<Reach>>,
}

/// Directly, or through the tunnel of a proxy.
#[derive(Clone)]
enum Way {
    Direct(Client<HttpsConnector<HttpConnector<Resolver>>, Fenced<Full<Bytes>>>),
    Proxy(Client<HttpsConnector<Tunnel<HttpConnector<Resolver>>>, Fenced<Full<Bytes>>>),
}

impl Transport {
    /// A transport without an open connection. `reach` says where its requests may go; `None` is anywhere. A proxy resolves
    /// names by itself.
    pub fn new(tls: &Tls, proxy: Option<&str>, reach: Option<Arc<Reach>>) -> Result<Self, BadTls> {
        let config = client_config(tls)?;
        let resolves = reach.clone().filter(|_| proxy.is_none());
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(resolves));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder = || {
            HttpsConnectorBuilder::new()
                .with_tls_config(config.clone())
                .https_or_http()
        };
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // A request may have reached the server although its connection ended, so it is never written again.
            .retry_canceled_requests(false);
        let client = match proxy {
            None => Way::Direct(pool.build(builder().enable_all_versions().wrap_connector(tcp))),
            Some(proxy) => {
                let uri: Uri = proxy.parse().map_err(|_| BadTls::Proxy(proxy.to_owned()))?;
                if uri.scheme_str() != Some("http") || uri.host().is_none() {
                    return Err(BadTls::Proxy(proxy.to_owned()));
                }
                let tunnel = Tunnel::new(uri, tcp);
                Way::Proxy(pool.build(builder().enable_all_versions().wrap_connector(tunnel)))
            }
        };
        Ok(Transport {
            client,
            from: format!("polity/{}", env!("CARGO_PKG_VERSION")).into(),
            breaker: Arc::default(),
            reach,
        })
    }

    /// Sends a request of a login once, and waits for its response until this moment.
    pub async fn send(&self, request: &Outgoing, until: Instant) -> Result<Incoming, Lost> {
        let all = Budget::new(LARGEST + 1);
        self.exchange_within(request, until, LARGEST_OF_LOGIN, &all, None)
            .await
    }

    /// Sends a request of an operation once, and waits for its response until this moment. The response takes from the budget
    /// of the operation. With a fence, the request is sent only while the fence is open.
    pub async fn send_within(
        &self,
        request: &Outgoing,
        until: Instant,
        budget: &Budget,
        fence: Option<Fence>,
    ) -> Result<Incoming, Lost> {
        self.exchange_within(request, until, LARGEST, budget, fence).await
    }

    async fn exchange_within(
        &self,
        request: &Outgoing,
        until: Instant,
        largest: usize,
        budget: &Budget,
        fence: Option<Fence>,
    ) -> Result<Incoming, Lost> {
        let host = request.address.host();
        let what = format!("{} {host}", request.method);
        let unsent = |code, why: &str| Lost {
            failure: Failure::new(code, format!("{what}: {why}")),
            sent: false,
        };
        let held_back = fence.clone();
        let ready = self.request(request, fence);
        let mut ready = ready.map_err(|why| unsent(Code::InvalidArgument, &why))?;
        if self
            .reach
            .as_ref()
            .is_some_and(|reach| !reach.allows(&request.address))
        {
            return Err(unsent(Code::PermissionDenied, &refused(host)));
        }
        if !self.breaker.lets_through(host) {
            let message = "not sent, because the last requests did not reach this server; the host tries it again within seconds. \
                           Check the endpoint, the network and the proxy";
            return Err(unsent(Code::Unavailable, message));
        }
        let connection = capture_connection(&mut ready);
        let exchanged = self.exchange(ready, largest, budget);
        let answered = tokio::time::timeout_at(until, exchanged).await;
        let is_connected = connection.connection_metadata().is_some();
        // A server that is connected to and says nothing is there: it may be slow for one tenant alone.
        self.breaker.found(host, is_connected);
        let in_time = || {
            let what = if is_connected {
                "no response in time"
            } else {
                "no connection in time"
            };
            Failure::new(Code::DeadlineExceeded, what)
        };
        let answered = answered.unwrap_or_else(|_| Err(in_time()));
        answered.map_err(|failure| {
            if held_back.is_some_and(|fence| fence.has_refused()) {
                Lost {
                    failure: late(&what),
                    sent: false,
                }
            } else {
                Lost {
                    failure: Failure {
                        message: format!("{what}: {}", failure.message),
                        ..failure
                    },
                    sent: is_connected,
                }
            }
        })
    }

    fn request(
        &self,
        request: &Outgoing,
        fence: Option<Fence>,
    ) -> Result<Request<Fenced<Full<Bytes>>>, String> {
        let path = request.encoded_path();
        let uri = request
            .address
            .uri(&path, &request.encoded_query())
            .map_err(|e| e.to_string())?;
        let mut ready = Request::new(Fenced::new(Full::new(request.body.clone()), fence));
        *ready.method_mut() = request.method.clone();
        *ready.uri_mut() = uri;
        let headers = ready.headers_mut();
        for (name, value) in &request.headers {
            let known =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("the header {name:?}"))?;
            let value =
                HeaderValue::from_str(value).map_err(|_| format!("the value of the header {name}"))?;
            headers.append(known, value);
        }
        let from = HeaderValue::from_str(&self.from).map_err(|e| e.to_string())?;
        headers.entry(http::header::USER_AGENT).or_insert(from);
        Ok(ready)
    }

    async fn exchange(
        &self,
        request: Request<Fenced<Full<Bytes>>>,
        largest: usize,
        budget: &Budget,
    ) -> Result<Incoming, Failure> {
        let answered = match &self.client {
            Way::Direct(client) => client.request(request).await,
            Way::Proxy(client) => client.request(request).await,
        };
        let answer = answered.map_err(|e| Failure::new(Code::Unavailable, causes(&e)))?;
        let (head, body) = answer.into_parts();
        let body = collect(body, largest, budget).await?;
        let headers = head
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        Ok(Incoming {
            status: head.status.as_u16(),
            headers: headers.collect(),
            body,
        })
    }
}

/// Takes in a body, and counts it while it arrives.
async fn collect(
    mut body: impl Body<Data = Bytes, Error: std::error::Error> + Unpin,
    largest: usize,
    budget: &Budget,
) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| {
            let message = format!("the response is cut off: {}", causes(&e));
            Failure::new(Code::Unavailable, message)
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if all.len() + data.len() > largest {
            let message = match largest >> 20 {
                0 => format!("the response has more than {} KiB", largest >> 10),
                mib => format!("the response has more than {mib} MiB"),
            };
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        if !budget.take(data.len()) {
            let message = "the responses to one operation are too large together";
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// An error with all its causes. Only the causes tell a certificate that does not fit from a port that is closed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.contains(&words) {
            said = format!("{said}: {words}");
        }
        next = cause.source();
    }
    said
}

fn client_config(tls: &Tls) -> Result<ClientConfig, BadTls> {
    let builder = ClientConfig::builder();
    let builder = match &tls.authorities {
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(DefaultRoots::default())),
        Some(pem) => {
            let bad = |e: String| BadTls::Authorities(e);
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| bad(format!("{e:?}")))?;
                roots.add(certificate).map_err(|e| bad(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("it contains no certificate".to_owned()));
            }
            builder.with_root_certificates(roots)
        }
    };
    let Some((chain, key)) = &tls.client else {
        return Ok(builder.with_no_client_auth());
    };
    let bad = |e: String| BadTls::Client(e);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|e| bad(format!("{e:?}")))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| bad(format!("{e:?}")))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// A server that answers only requests for `/quick`, and its address.
    fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut head = [0; 512];
                let length = stream.read(&mut head).unwrap_or(0);
                if String::from_utf8_lossy(&head[..length]).contains("/quick") {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                }
                open.push(stream);
            }
        });
        format!("http://{address}")
    }

    fn get(address: &str, path: &str) -> Outgoing {
        Outgoing {
            address: Address::read(address).expect("an address"),
            method: Method::GET,
            path: vec![path.to_owned()],
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sixty_requests_that_nobody_answers_refuse_no_other_request() {
        let address = server();
        let transport = Transport::new(&Tls::default(), None, None).expect("a transport");
        for _ in 0..60 {
            let until = Instant::now() + Duration::from_secs(1);
            let lost = transport.send(&get(&address, "slow"), until).await;
            let lost = lost.expect_err("no answer");
            assert!(lost.sent, "{lost:?}");
            assert_eq!(lost.failure.code, Code::DeadlineExceeded);
        }
        tokio::time::resume();
        let until = Instant::now() + Duration::from_secs(60);
        let answered = transport.send(&get(&address, "quick"), until).await;
        assert_eq!(answered.map(|answer| answer.status), Ok(200));
    }

    #[tokio::test]
    async fn failed_connects_in_a_row_refuse_further_requests_and_sent_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        drop(listener);
        let transport = Transport::new(&Tls::default(), None, None).expect("a transport");
        let mut last = String::new();
        for _ in 0..6 {
            let until = Instant::now() + Duration::from_secs(60);
            let lost = transport.send(&get(&address, "any"), until).await;
            let lost = lost.expect_err("nobody listens");
            assert!(!lost.sent, "{lost:?}");
            last = lost.failure.message;
        }
        assert!(last.contains("not sent"), "{last}");
    }

    #[tokio::test]
    async fn what_arrives_is_counted_while_it_arrives_over_all_responses_of_an_operation() {
        let budget = Budget::new(1_000);
        let endless = || {
            let frame = || Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(&[0; 100])));
            StreamBody::new(futures::stream::iter(std::iter::repeat_with(frame)))
        };
        let few = |count: usize| {
            let frame = || Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(&[0; 100])));
            StreamBody::new(futures::stream::iter(std::iter::repeat_with(frame).take(count)))
        };
        let large = collect(endless(), 200, &budget).await.expect_err("one response");
        assert!(large.message.contains("more than 0 KiB"), "{large}");
        assert_eq!(
            collect(few(3), 500, &budget).await.map(|body| body.len()),
            Ok(300)
        );
        assert!(!budget.is_spent());
        let large = collect(endless(), 10_000, &budget)
            .await
            .expect_err("all together");
        assert!(large.message.contains("together"), "{large}");
        assert!(budget.is_spent());
        assert!(collect(few(1), 500, &budget).await.is_err());
    }
}
