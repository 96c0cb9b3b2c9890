//! The connection between a host and its API server, with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use tokio::sync::watch;
use tower::service_fn;

use super::outputs::{Heard, Outputs};
use crate::simulation::scenario::Rates;
use crate::simulation::seed::Chance;

/// Why a connection broke.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// What is left of an answer.
pub type Frames = Pin<Box<dyn Stream<Item = Result<http_body::Frame<bytes::Bytes>, BoxError>> + Send>>;

/// Events of a watch that lag behind at one time: more than any world here has.
const LAGGING: usize = 1 << 14;

/// A connection that loses requests and answers, refuses, dawdles, lags behind and cuts watches: as often as its rates
/// say.
#[derive(Clone)]
pub struct Wire {
    to: kube::Client,
    faults: Arc<Mutex<Option<(Rates, Chance)>>>,
    cut: watch::Sender<u64>,
    held: watch::Sender<bool>,
    requests: Arc<Mutex<BTreeMap<String, usize>>>,
    outputs: Outputs,
}

/// What becomes of a request.
enum Fate {
    Passes,
    Lost,
    Refused,
    AnswerLost,
}

impl Wire {
    /// A connection on which nothing goes wrong.
    pub fn new(to: kube::Client) -> Self {
        Wire {
            to,
            faults: Arc::default(),
            cut: watch::Sender::new(0),
            held: watch::Sender::new(false),
            requests: Arc::default(),
            outputs: Outputs::default(),
        }
    }

    /// Everything that was ever requested: `GET /api/v1/nodes`, without queries.
    pub fn requests(&self) -> BTreeSet<String> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.keys().cloned().collect()
    }

    /// How often this was requested.
    pub fn times(&self, requested: &str) -> usize {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.get(requested).copied().unwrap_or_default()
    }

    /// Counts what the process on this connection puts out.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// From now on so much goes wrong; none: nothing.
    pub fn inject(&self, faults: Option<(Rates, Chance)>) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Cuts every answer that is not complete: the watches.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Whether watches stand still: what they have to say comes later.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    fn count(&self, requested: String) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(requested).or_default() += 1;
    }

    /// A client on it.
    pub fn client(&self) -> kube::Client {
        let wire = self.clone();
        kube::Client::new(service_fn(move |request| wire.clone().pass(request)), "default")
    }

    /// What becomes of a request, and how many milliseconds it takes.
    fn fate(&self) -> (Fate, u64) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((rates, chance)) = &mut *faults else {
            return (Fate::Passes, 0);
        };
        let slow = if chance.one_in(rates.slow) {
            chance.between(100, 4_000)
        } else {
            chance.between(0, 20)
        };
        let fate = if chance.one_in(rates.lost_request) {
            Fate::Lost
        } else if chance.one_in(rates.refused) {
            Fate::Refused
        } else if chance.one_in(rates.lost_answer) {
            Fate::AnswerLost
        } else {
            Fate::Passes
        };
        (fate, slow)
    }

    /// How far behind a watch is, for as long as it lasts.
    fn lag(&self) -> Duration {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = faults
            .as_mut()
            .map_or(0, |(rates, chance)| chance.between(0, rates.watch_lag));
        Duration::from_millis(lag)
    }

    async fn pass(self, request: Request<Body>) -> Result<Response<StreamBody<Frames>>, BoxError> {
        let requested = format!("{} {}", request.method(), request.uri().path());
        self.count(requested);
        let (fate, slow) = self.fate();
        tokio::time::sleep(Duration::from_millis(slow)).await;
        match fate {
            Fate::Lost => return Err(broken()),
            Fate::Refused => return Ok(refusal()),
            Fate::Passes | Fate::AnswerLost => {}
        }
        let (cuts, held) = (self.cut.subscribe(), self.held.subscribe());
        let watches = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let lag = if watches { self.lag() } else { Duration::ZERO };
        let counts = is_output(&request);
        let response = self.to.send(request).await?;
        let heard = if counts { self.outputs.made() } else { Heard::Yes };
        if matches!(fate, Fate::AnswerLost) || heard == Heard::No {
            return Err(broken());
        }
        Ok(response.map(|body| {
            if watches {
                until_cut(
                    body.into_data_stream()
                        .map(move |data| late(data, lag))
                        .buffered(LAGGING)
                        .then(move |data| once_let(data, held.clone())),
                    cuts,
                )
            } else {
                until_cut(body.into_data_stream(), cuts)
            }
        }))
    }
}

/// Whether this changes an object. That a host holds its lease, and what it tells people, nobody goes by.
fn is_output(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    request.method() != http::Method::GET && !path.contains("/leases") && !path.contains("/events")
}

async fn late<T>(data: T, lag: Duration) -> T {
    tokio::time::sleep(lag).await;
    data
}

async fn once_let<T>(data: T, mut held: watch::Receiver<bool>) -> T {
    let _ = held.wait_for(|held| !held).await;
    data
}

/// What an answer consists of until the next cut: that comes as an error, an answer that ends first ends as it would.
pub fn until_cut(
    data: impl Stream<Item = Result<bytes::Bytes, kube::Error>> + Send + 'static,
    mut cuts: watch::Receiver<u64>,
) -> StreamBody<Frames> {
    let cut = async move {
        let _ = cuts.changed().await;
        Err(broken())
    };
    let frames = data.map(|data| Ok(http_body::Frame::data(data?)));
    let whole = frames.map(Some).chain(futures::stream::iter([None]));
    let frames = futures::stream::select(whole, futures::stream::once(cut).map(Some));
    StreamBody::new(Box::pin(
        frames
            .take_while(|f| std::future::ready(f.is_some()))
            .filter_map(std::future::ready),
    ))
}

fn broken() -> BoxError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// What an overloaded API server says: nothing happened.
fn refusal() -> Response<StreamBody<Frames>> {
    let status = serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
        "message": "the server is overloaded",
    });
    let frame = http_body::Frame::data(bytes::Bytes::from(status.to_string()));
    let frames: Frames = Box::pin(futures::stream::iter([Ok(frame)]));
    let mut response = Response::new(StreamBody::new(frames));
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    response
}
