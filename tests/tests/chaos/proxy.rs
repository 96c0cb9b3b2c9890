//! A proxy between the host and the servers of a cloud. It injects the faults of networks and servers: lost, cut and
//! slow answers, refusals, ended sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::{SignedDuration, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// What is done to the first request of each kind that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// A create is done, and its connection ends without an answer. This is done to all of them.
    LostAnswer,
    /// The same, and then the cloud answers nothing any more.
    Outage,
    /// Every login leads to another account. This is done to all requests.
    OtherAccount,
    /// A request is done, and its answer breaks off in the middle.
    Cut,
    /// A change is done, and answered with an internal error.
    FailsAfterwards,
    /// The session of a request is no longer known.
    SessionEnded,
    /// The answer to a read lacks its second half, and looks whole.
    Truncated,
    /// The server has too much to do. It says so before it has done anything.
    Throttled,
    /// The server has no capacity for what is to be created. It says so before it has done anything.
    NoCapacity,
    /// The server's clock is an hour ahead. This is done to all requests.
    WrongClock,
    /// A create is done, and its answer comes later. This is done to all of them.
    Late,
    /// What was created is not seen for this long: not by its id, and in no list; and some requests for it fail. This is done
    /// to all of them, as EC2 does: <https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html>.
    Unseen(Duration),
}

/// How late an answer is that comes late.
const LATE: Duration = Duration::from_millis(700);

/// The time by a clock that is an hour ahead.
pub(super) fn server_time() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    LogIn,
    Read,
    Change,
    Create,
}

/// A response that is there as a whole.
pub(super) type Answer = Response<Full<Bytes>>;
type Body = BoxBody<Bytes, io::Error>;

/// How requests of a cloud look.
pub(super) trait Dialect: Send + Sync + 'static {
    /// What this kind of request is called, and what it does.
    fn kind(&self, request: &Parts, body: &str) -> (String, Does);

    /// Makes of a request one in another account; or names the server on which that is.
    fn move_away(&self, request: &mut Parts, body: &mut Bytes) -> Option<String>;

    /// Takes the session out of a request; or the answer to one whose session has ended.
    fn end_session(&self, request: &mut Parts) -> Option<Answer>;

    /// The answer of a server that has too much to do.
    fn throttled(&self) -> Answer;

    /// Whether that answer to a create says that nothing was made. Otherwise the host is sure only when nothing of it has come
    /// for minutes.
    fn refuses_when_throttled(&self) -> bool {
        false
    }

    /// The answer of a server that has no capacity for what is to be created, if its API has one.
    fn no_capacity(&self) -> Option<Answer> {
        None
    }

    /// The ids of what an answer to a create has created.
    fn created(&self, _answer: &str) -> Vec<String> {
        Vec::new()
    }

    /// The answer to this request of a server that does not see these ids yet. It is the `nth` that it answers so.
    fn unseeing(&self, _request: &str, _answer: &str, _ids: &[String], _nth: usize) -> Option<Answer> {
        None
    }

    /// The answer of a server whose clock is ahead, if it does not take the request.
    fn refuse_time(&self, _: &Parts) -> Option<Answer> {
        None
    }
}

/// Stands between the host and the servers, until it is dropped.
pub(super) struct Proxy {
    state: Arc<State>,
    runtime: Option<Runtime>,
    /// The addresses of the servers, with those of the proxy for them.
    addresses: Vec<(String, String)>,
}

struct State {
    dialect: Box<dyn Dialect>,
    now: Mutex<Now>,
    client: Client<HttpConnector, Full<Bytes>>,
}

struct Now {
    fault: Fault,
    /// Whether the session that the host has is still known.
    has_session: bool,
    /// The kinds of requests that it was done to.
    struck: BTreeSet<String>,
    /// How often it was done.
    strikes: usize,
    /// Since when there is what was created.
    created: BTreeMap<String, Instant>,
}

impl Now {
    fn begin(fault: Fault, has_session: bool) -> Self {
        Now {
            fault,
            has_session,
            struck: BTreeSet::new(),
            strikes: 0,
            created: BTreeMap::new(),
        }
    }
}

impl Proxy {
    /// Stands in front of these servers, `127.0.0.1:PORT` each.
    pub(super) fn start(dialect: impl Dialect, servers: &[&str]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let state = Arc::new(State {
            dialect: Box::new(dialect),
            now: Mutex::new(Now::begin(Fault::None, true)),
            // Servers close connections that are idle, each after another time.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
        });
        let listeners: Vec<_> = servers.iter().map(|server| (server, listen())).collect();
        let addresses: Vec<_> = listeners
            .iter()
            .map(|(server, (_, address))| ((**server).to_owned(), address.to_string()))
            .collect();
        for (server, (listener, _)) in listeners {
            let serving = serve(listener, (*server).to_owned(), state.clone(), addresses.clone());
            runtime.spawn(serving);
        }
        Proxy {
            state,
            runtime: Some(runtime),
            addresses,
        }
    }

    /// The address that stands for a server.
    pub(super) fn address(&self, server: &str) -> &str {
        let found = self.addresses.iter().find(|(known, _)| known == server);
        &found.expect("it stands in front of it").1
    }

    /// Does this from now on, and forgets what it has done. First the host has to log in again, so that it is done to
    /// logins too.
    pub(super) fn strike(&self, fault: Fault) {
        *self.state.now() = Now::begin(fault, false);
    }

    /// How many requests were struck.
    pub(super) fn strikes(&self) -> usize {
        self.state.now().strikes
    }

    /// The kinds of requests that were struck.
    pub(super) fn struck(&self) -> BTreeSet<String> {
        self.state.now().struck.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn serve(
    listener: std::net::TcpListener,
    server: String,
    state: Arc<State>,
    addresses: Vec<(String, String)>,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    while let Ok((stream, _)) = listener.accept().await {
        let (server, state, addresses) = (server.clone(), state.clone(), addresses.clone());
        tokio::spawn(async move { converse(stream, &server, &state, &addresses).await });
    }
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, server: &str, state: &State, addresses: &[(String, String)]) {
    let service = service_fn(async |request| state.pass(request, server, addresses).await);
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An end in the middle is what it is there for.
    let _ = served.await;
}

impl State {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for a request.
    fn fault(&self, kind: &str, does: Does) -> Fault {
        let mut now = self.now();
        if does != Does::LogIn && !std::mem::replace(&mut now.has_session, true) {
            return Fault::SessionEnded;
        }
        let fits = match now.fault {
            // Whether a request is about what is not seen only its answer tells.
            Fault::Unseen(_) if does != Does::LogIn => return now.fault,
            Fault::None | Fault::Unseen(_) => false,
            Fault::LostAnswer | Fault::Late | Fault::NoCapacity => does == Does::Create,
            Fault::Outage => does == Does::Create || now.strikes > 0,
            Fault::Cut | Fault::WrongClock | Fault::OtherAccount => true,
            Fault::FailsAfterwards => matches!(does, Does::Change | Does::Create),
            Fault::SessionEnded => does != Does::LogIn,
            Fault::Truncated => matches!(does, Does::Read | Does::LogIn),
            Fault::Throttled => does != Does::Create || self.dialect.refuses_when_throttled(),
        };
        let is_first = fits && now.struck.insert(kind.to_owned());
        let is_once = !matches!(
            now.fault,
            Fault::LostAnswer | Fault::Late | Fault::Outage | Fault::OtherAccount | Fault::WrongClock
        );
        if !fits || (is_once && !is_first) {
            return Fault::None;
        }
        now.strikes += 1;
        now.fault
    }

    /// Passes a request on, and its answer back. An error ends the connection.
    async fn pass(
        &self,
        request: Request<Incoming>,
        server: &str,
        addresses: &[(String, String)],
    ) -> io::Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        let mut body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let (kind, does) = self.dialect.kind(&head, &String::from_utf8_lossy(&body));
        let fault = self.fault(&kind, does);
        let moved = match fault {
            Fault::OtherAccount => self.dialect.move_away(&mut head, &mut body),
            _ => None,
        };
        let server = moved.as_deref().unwrap_or(server);
        let asked = String::from_utf8_lossy(&body).into_owned();
        let at_once = match fault {
            Fault::Outage if does != Does::Create => return Err(io::Error::other("an outage")),
            Fault::SessionEnded => self.dialect.end_session(&mut head),
            Fault::Throttled => Some(self.dialect.throttled()),
            Fault::NoCapacity => self.dialect.no_capacity(),
            Fault::WrongClock => self.dialect.refuse_time(&head),
            _ => None,
        };
        let mut answer = match at_once {
            Some(answer) => answer,
            None => self.ask(head, body, server, addresses).await?,
        };
        match fault {
            Fault::LostAnswer | Fault::Outage => Err(io::Error::other("lost")),
            Fault::Late => {
                tokio::time::sleep(LATE).await;
                Ok(whole(answer))
            }
            Fault::Cut => Ok(broken_off(answer).await),
            Fault::FailsAfterwards => Ok(whole(refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error",
            ))),
            Fault::Truncated => {
                let body = bytes(&mut answer).await;
                Ok(whole(with_body(answer, body.slice(..body.len() / 2))))
            }
            Fault::WrongClock => {
                answer.headers_mut().insert(header::DATE, date(server_time()));
                Ok(whole(answer))
            }
            Fault::Unseen(time) => {
                let text = bytes(&mut answer).await;
                let answer = with_body(answer, text.clone());
                let unseeing = self.unseeing(&kind, does, &asked, &String::from_utf8_lossy(&text), time);
                Ok(whole(unseeing.unwrap_or(answer)))
            }
            Fault::None
            | Fault::OtherAccount
            | Fault::SessionEnded
            | Fault::Throttled
            | Fault::NoCapacity => Ok(whole(answer)),
        }
    }

    /// The answer to a request of a server that does not see for this time what was created.
    fn unseeing(
        &self,
        kind: &str,
        does: Does,
        request: &str,
        answer: &str,
        time: Duration,
    ) -> Option<Answer> {
        let mut now = self.now();
        if does == Does::Create {
            let ids = self.dialect.created(answer);
            now.created.extend(ids.into_iter().map(|id| (id, Instant::now())));
            return None;
        }
        now.created.retain(|_, since| since.elapsed() < time);
        let ids: Vec<String> = now.created.keys().cloned().collect();
        let unseeing = self.dialect.unseeing(request, answer, &ids, now.strikes)?;
        now.strikes += 1;
        now.struck.insert(kind.to_owned());
        Some(unseeing)
    }

    /// The server's answer. Where it names a server, it names the proxy for it.
    async fn ask(
        &self,
        mut head: Parts,
        body: Bytes,
        server: &str,
        addresses: &[(String, String)],
    ) -> io::Result<Answer> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("http://{server}{path}");
        head.uri = uri.parse().map_err(io::Error::other)?;
        // What is read as text must not be packed.
        head.headers.remove(header::ACCEPT_ENCODING);
        head.headers.remove(header::CONTENT_LENGTH);
        let request = Request::from_parts(head, Full::new(body));
        let (head, body) = self
            .client
            .request(request)
            .await
            .map_err(io::Error::other)?
            .into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let body = match std::str::from_utf8(&body) {
            Err(_) => body,
            Ok(text) => addresses
                .iter()
                .fold(text.to_owned(), |text, (server, proxy)| {
                    text.replace(server, proxy)
                })
                .into(),
        };
        Ok(with_body(Response::from_parts(head, Full::default()), body))
    }
}

/// An answer of a server that did nothing.
pub(super) fn refusal(status: StatusCode, body: &str) -> Answer {
    let mut answer = Response::new(Full::from(body.to_owned()));
    *answer.status_mut() = status;
    answer
}

fn date(time: Timestamp) -> HeaderValue {
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
    HeaderValue::from_str(&text.expect("a date")).expect("a header")
}

async fn bytes(answer: &mut Answer) -> Bytes {
    let Ok(body) = answer.body_mut().collect().await;
    body.to_bytes()
}

fn with_body(answer: Answer, body: Bytes) -> Answer {
    let (mut head, _) = answer.into_parts();
    for framing in [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
    ] {
        head.headers.remove(framing);
    }
    Response::from_parts(head, Full::new(body))
}

fn whole(answer: Answer) -> Response<Body> {
    answer.map(|body| body.map_err(|never| match never {}).boxed())
}

/// An answer whose second half does not come.
async fn broken_off(mut answer: Answer) -> Response<Body> {
    let body = bytes(&mut answer).await;
    let half = Frame::data(body.slice(..body.len() / 2));
    let parts = stream::iter([Ok(half), Err(io::Error::other("cut"))]);
    answer
        .headers_mut()
        .insert(header::CONTENT_LENGTH, body.len().into());
    answer.map(|_| StreamBody::new(parts).boxed())
}
