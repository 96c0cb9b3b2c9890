//! The server as a `tower::Service`: from an HTTP request to an answer.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    thread::available_parallelism,
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};
use tower::Service;

use crate::{
    http::{
        discovery, openapi,
        path::{self, Location, Route},
        query::Query,
        refusal::Refusal,
        reply::{self, Body},
        target::{Part, Target},
        view::{Presenter, View},
        watch,
    },
    store::{Object, Store},
    verbs::{self, Answer, Call, PatchKind, Selection, Written},
};

/// The most bytes of a request body: the limit of a real API server.
const MOST: usize = 3 << 20;

/// The most bytes of an object that takes no noticeable time: some hundreds of microseconds.
const SMALL: usize = 32 << 10;

/// The longest time for a request body: the time that a real API server gives a request.
const BODY: Duration = Duration::from_secs(60);

/// The error of a request body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The Kubernetes API of one store. Cheap to clone; clones share the store.
#[derive(Clone, Debug)]
pub struct Api {
    store: Arc<Store>,
    /// Large writes take turns, so that small ones wait for few of them.
    turns: Arc<Semaphore>,
}

impl Api {
    /// Serves what is in `store`.
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            turns: Arc::new(Semaphore::new(turns())),
        }
    }

    /// Waits until objects can never be stored again, and returns the reason. What is read from then on may
    /// be lost with the process.
    pub async fn lost(&self) -> String {
        self.store.lost().await
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let answer = match read(&parts.method, body).await {
            Ok(body) => self.dispatch(parts, body).await,
            Err(refusal) => Err(refusal),
        };
        answer.unwrap_or_else(|refusal| {
            tracing::debug!(code = refusal.code, %refusal, "refused");
            reply::refusal(&refusal)
        })
    }

    /// Performs a request. A write that waits for the disk, that is large, or that waits for large ones runs on a
    /// thread for blocking work.
    async fn dispatch(self, parts: Parts, body: Bytes) -> Result<Response<Body>, Refusal> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if reads && !self.store.is_late() {
            return self.route_or_say(&parts, &body);
        }
        let is_large = self.is_large(&parts, &body);
        let waits = self.store.is_durable() || is_large || self.turns.available_permits() < turns();
        // On a runtime with one thread, writes in memory keep their order: with a clock that jumps, equal runs
        // write equal histories.
        let one_thread = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        if !waits || (one_thread && !self.store.is_durable()) {
            return self.route_or_say(&parts, &body);
        }
        let turns = self.turns.clone();
        let _turn = if is_large {
            Some(turns.acquire().await)
        } else {
            None
        };
        let work = tokio::task::spawn_blocking(move || self.route_or_say(&parts, &body));
        work.await
            .unwrap_or_else(|_| Err(Refusal::internal("the request was abandoned")))
    }

    /// Whether the request or the object that it names is large.
    fn is_large(&self, parts: &Parts, body: &Bytes) -> bool {
        let stored = || {
            let Route::Resource(location) = path::parse(parts.uri.path()).ok()? else {
                return None;
            };
            let state = self.store.read();
            let (key, _) = Target::find(&state.registry, location).ok()?.named().ok()?;
            Some(state.get(&key)?.json().len())
        };
        body.len() > SMALL || stored().is_some_and(|stored| stored > SMALL)
    }

    /// Performs a request and catches panics. A panic is a bug of Polity. Without an answer the client, which
    /// may be the host itself, would wait for ever. Nothing has changed then: changes are stored after all of
    /// them are worked out.
    fn route_or_say(&self, parts: &Parts, body: &Bytes) -> Result<Response<Body>, Refusal> {
        let routed = std::panic::catch_unwind(AssertUnwindSafe(|| self.route(parts, body)));
        routed.unwrap_or_else(|_| {
            let why = "the standalone API server failed at this request; this is a bug of Polity";
            Err(Refusal::internal(why))
        })
    }

    fn route(&self, parts: &Parts, body: &Bytes) -> Result<Response<Body>, Refusal> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = path::parse(parts.uri.path())?;
        let location = match route {
            Route::Resource(location) => location,
            _ if !matches!(parts.method, Method::GET | Method::HEAD) => {
                return Err(Refusal::method_not_allowed("only GET is allowed here"));
            }
            Route::Health => return Ok(reply::text("ok")),
            other => {
                let registry = self.store.read().registry.clone();
                let openapi = openapi::answer(&registry, &other);
                return openapi.map_or_else(|| discovery::answer(&registry, &other, accept(parts)), Ok);
            }
        };
        self.resource(parts, &query, location, body)
    }

    fn resource(
        &self,
        parts: &Parts,
        query: &Query,
        location: Location,
        body: &Bytes,
    ) -> Result<Response<Body>, Refusal> {
        self.store.catch_up()?;
        let registry = self.store.read().registry.clone();
        let target = Target::find(&registry, location)?;
        let view = View::negotiate(accept(parts), query)?;
        let presenter = Presenter {
            target: target.clone(),
            view,
            now: self.store.now(),
        };
        let call = Call {
            store: &self.store,
            target: &target,
            query,
            body,
        };
        let content_type = header(&parts.headers, CONTENT_TYPE);
        if target.part == Part::Eviction {
            return evict(&parts.method, content_type, &call);
        }
        if target.part == Part::Scale {
            return scale(&parts.method, content_type, &call);
        }
        match (&parts.method, target.name.is_some()) {
            (&Method::GET | &Method::HEAD, _) => self.look(presenter, &call),
            (&Method::POST, false) => {
                check_json(content_type)?;
                Ok(written(&presenter, StatusCode::CREATED, &verbs::create(&call)?))
            }
            (&Method::PUT, true) => {
                check_json(content_type)?;
                Ok(written(&presenter, StatusCode::OK, &verbs::update(&call)?))
            }
            (&Method::PATCH, true) => {
                let kind = PatchKind::of(content_type)?;
                Ok(written(&presenter, StatusCode::OK, &verbs::patch(&call, kind)?))
            }
            (&Method::DELETE, _) => {
                if !body.is_empty() {
                    check_json(content_type)?;
                }
                delete(&presenter, &call)
            }
            _ => Err(target.verb_refused()),
        }
    }

    /// Gets, lists or watches.
    fn look(&self, presenter: Presenter, call: &Call<'_>) -> Result<Response<Body>, Refusal> {
        let watches = call.query.flag("watch") == Some(true);
        match (call.target.name.is_some(), watches) {
            (true, false) => Ok(one(&presenter, StatusCode::OK, &verbs::get(call)?)),
            (true, true) => Err(call.target.verb_refused()),
            (false, true) => {
                let selection = Selection::of(call.target, call.query)?;
                let watch = watch::watch(&self.store, presenter, selection, call.query)?;
                Ok(reply::stream(watch.into_stream()))
            }
            (false, false) => {
                let page = verbs::list(call)?;
                Ok(many(&presenter, &page.objects, &page.metadata))
            }
        }
    }
}

/// Deletes an object, or all of a collection.
fn delete(presenter: &Presenter, call: &Call<'_>) -> Result<Response<Body>, Refusal> {
    if call.target.name.is_none() {
        let (objects, revision) = verbs::delete_collection(call)?;
        let metadata = serde_json::json!({ "resourceVersion": revision.to_string() });
        return Ok(many(presenter, &objects, &metadata));
    }
    Ok(match verbs::delete(call)? {
        Answer::Object(object) => one(presenter, StatusCode::OK, &object),
        Answer::Status(status) => reply::json(StatusCode::OK, status.to_string()),
    })
}

impl<B> Service<Request<B>> for Api
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.answer(request).await) })
    }
}

/// As many as there are processors but one, which is left for the small ones. `neighbours` measures it
/// (`tests/benches/README.md`).
fn turns() -> usize {
    static TURNS: LazyLock<usize> =
        LazyLock::new(|| available_parallelism().map_or(1, |all| (usize::from(all) - 1).max(1)));
    *TURNS
}

async fn read<B>(method: &Method, body: B) -> Result<Bytes, Refusal>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    let read = tokio::time::timeout(BODY, Limited::new(body, MOST).collect());
    match read.await.map_err(|_| Refusal::too_slow(BODY))? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large(MOST)),
        Err(error) => Err(Refusal::bad_request(format!(
            "the body could not be read: {error}"
        ))),
    }
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn accept(parts: &Parts) -> Option<&str> {
    header(&parts.headers, ACCEPT)
}

/// Checks the content type of a body. As in a real API server, a body without one counts as JSON.
fn check_json(content_type: Option<&str>) -> Result<(), Refusal> {
    let media = content_type
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media.is_empty() || media == "application/json" {
        return Ok(());
    }
    let hint = if media == "application/vnd.kubernetes.protobuf" {
        " (kubectl sends JSON where it is given files: `create -f`, `apply -f`)"
    } else {
        ""
    };
    Err(Refusal::unsupported_media(format!(
        "bodies of type {media:?} are not supported by the standalone API server, application/json is{hint}"
    )))
}

fn one(presenter: &Presenter, code: StatusCode, object: &Object) -> Response<Body> {
    let mut out = Vec::new();
    presenter.write_one(object, true, &mut out);
    reply::json(code, out)
}

fn many(presenter: &Presenter, objects: &[Object], metadata: &serde_json::Value) -> Response<Body> {
    let mut out = Vec::new();
    presenter.write_list(objects, metadata, &mut out);
    reply::json(StatusCode::OK, out)
}

fn evict(method: &Method, content_type: Option<&str>, call: &Call<'_>) -> Result<Response<Body>, Refusal> {
    if method != Method::POST {
        return Err(call.target.verb_refused());
    }
    check_json(content_type)?;
    let (status, warnings) = verbs::evict(call)?;
    let mut response = reply::json(StatusCode::CREATED, status.to_string());
    reply::warn(&mut response, &warnings);
    Ok(response)
}

fn scale(method: &Method, content_type: Option<&str>, call: &Call<'_>) -> Result<Response<Body>, Refusal> {
    let (scale, warnings) = match *method {
        Method::GET | Method::HEAD if call.query.flag("watch") != Some(true) => {
            (verbs::scale::get(call)?, Vec::new())
        }
        Method::PUT => {
            check_json(content_type)?;
            verbs::scale::update(call)?
        }
        Method::PATCH => verbs::scale::patch(call, PatchKind::of(content_type)?)?,
        _ => return Err(call.target.verb_refused()),
    };
    let mut response = reply::json(StatusCode::OK, scale.to_string());
    reply::warn(&mut response, &warnings);
    Ok(response)
}

fn written(presenter: &Presenter, code: StatusCode, written: &Written) -> Response<Body> {
    let mut response = one(presenter, code, &written.object);
    reply::warn(&mut response, &written.warnings);
    response
}
