//! An API server for tests. It answers by a script and remembers the requests.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::{AuthError, Body};
use polity_core::contract::{Kind, ObjectRef};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use crate::Cluster;

/// The body of a response.
type Answered = UnsyncBoxBody<Bytes, BoxError>;

/// The answer to a request.
pub(crate) enum Reply {
    /// A status and a JSON body.
    Json(u16, HeaderMap, Value),
    /// A status and a body that is not JSON.
    Text(u16, String),
    /// A watch: these lines, and how it ends.
    Watch(Vec<Value>, Then),
    /// The connection is refused.
    Refused,
    /// The client has no credentials to send the request with.
    NoCredentials,
    /// The connection ends before the answer.
    Reset,
    /// No answer, ever.
    Silence,
}

/// What follows the last line of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    End,
    Cut,
    Silence,
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Reply::Json(status, HeaderMap::new(), body)
    }

    pub(crate) fn with(self, header: &'static str, value: &'static str) -> Self {
        match self {
            Reply::Json(status, mut headers, body) => {
                headers.insert(header, value.parse().expect("a header"));
                Reply::Json(status, headers, body)
            }
            other => other,
        }
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) at: tokio::time::Instant,
}

/// The server. When its script is used up, it no longer answers.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    discovers: bool,
}

impl Fake {
    /// Answers each request with the next reply of the script.
    pub(crate) fn answering(script: impl IntoIterator<Item = Reply>) -> Self {
        Fake {
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            seen: Arc::default(),
            discovers: false,
        }
    }

    /// The same, but answers discovery by itself and does not remember those requests.
    pub(crate) fn serving(script: impl IntoIterator<Item = Reply>) -> Self {
        Fake {
            discovers: true,
            ..Fake::answering(script)
        }
    }

    /// A cluster that uses this server. Its lease is `polity-system/polity`.
    pub(crate) fn cluster(&self) -> Cluster {
        let fake = self.clone();
        let service = service_fn(move |request| fake.clone().answer(request));
        Cluster::new(kube::Client::new(service, "default"), ("polity-system", "polity"))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("a lock").clone()
    }

    /// `METHOD path?query` of every request.
    pub(crate) fn paths(&self) -> Vec<String> {
        let line = |seen: &Seen| format!("{} {}", seen.method, seen.path);
        self.seen().iter().map(line).collect()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Answered>, BoxError> {
        let (head, body) = request.into_parts();
        if self.discovers
            && let Some(resources) = resources(head.uri.path())
        {
            return answer(Reply::json(200, json!({"resources": resources}))).await;
        }
        let body = body.collect().await?.to_bytes();
        self.seen.lock().expect("a lock").push(Seen {
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers: head.headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            at: tokio::time::Instant::now(),
        });
        let next = self.script.lock().expect("a lock").pop_front();
        answer(next.unwrap_or(Reply::Silence)).await
    }
}

async fn answer(reply: Reply) -> Result<Response<Answered>, BoxError> {
    match reply {
        Reply::Json(status, headers, body) => {
            let mut response = Response::new(whole(body.to_string()));
            *response.status_mut() = status.try_into()?;
            *response.headers_mut() = headers;
            Ok(response)
        }
        Reply::Text(status, body) => {
            let mut response = Response::new(whole(body));
            *response.status_mut() = status.try_into()?;
            Ok(response)
        }
        Reply::Watch(lines, then) => Ok(Response::new(watch_body(&lines, then))),
        Reply::Refused => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        Reply::NoCredentials => Err(AuthError::UnrefreshableTokenResponse.into()),
        Reply::Reset => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        Reply::Silence => std::future::pending().await,
    }
}

fn whole(text: String) -> Answered {
    Full::from(text).map_err(|never| match never {}).boxed_unsync()
}

/// The lines in pieces of seven bytes, so that pieces and lines end at different places.
fn watch_body(lines: &[Value], then: Then) -> Answered {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let pieces = text.as_bytes().chunks(7).map(Bytes::copy_from_slice);
    let mut frames: Vec<Result<Frame<Bytes>, BoxError>> =
        pieces.map(|piece| Ok(Frame::data(piece))).collect();
    if let Then::Cut = then {
        frames.push(Err(io::Error::from(io::ErrorKind::ConnectionReset).into()));
    }
    let frames = futures::stream::iter(frames);
    match then {
        Then::End | Then::Cut => StreamBody::new(frames).boxed_unsync(),
        Then::Silence => StreamBody::new(frames.chain(futures::stream::pending())).boxed_unsync(),
    }
}

/// The kinds that tests use.
fn resources(path: &str) -> Option<Value> {
    let kinds: &[(&str, &str, bool)] = match path {
        "/api/v1" => &[
            ("pods", "Pod", true),
            ("nodes", "Node", false),
            ("secrets", "Secret", true),
            ("configmaps", "ConfigMap", true),
            ("serviceaccounts", "ServiceAccount", true),
        ],
        "/apis/events.k8s.io/v1" => &[("events", "Event", true)],
        "/apis/coordination.k8s.io/v1" => &[("leases", "Lease", true)],
        "/apis/apiextensions.k8s.io/v1" => {
            &[("customresourcedefinitions", "CustomResourceDefinition", false)]
        }
        "/apis/g/v1" => &[("widgets", "Widget", true)],
        _ => return None,
    };
    let resource = |(name, kind, namespaced): &(&str, &str, bool)| json!({"name": name, "kind": kind, "namespaced": namespaced});
    Some(kinds.iter().map(resource).collect())
}

pub(crate) fn kind(api_version: &str, kind: &str) -> Kind {
    Kind {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

pub(crate) fn reference(api_version: &str, of: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: kind(api_version, of),
        namespace: Some(namespace.into()),
        name: name.into(),
    }
}

/// A Widget of this name and version in namespace `a`.
pub(crate) fn widget(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "g/v1", "kind": "Widget",
        "metadata": {"namespace": "a", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()},
    })
}

/// A `Status` with which API servers refuse.
pub(crate) fn refusal(code: u16, reason: &str, name: &str) -> Reply {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} of {name}"), "details": {"name": name},
    });
    Reply::json(code, body)
}

pub(crate) fn not_found(name: &str) -> Reply {
    refusal(404, "NotFound", name)
}

/// The answer of an API server for a path that it does not serve.
pub(crate) fn not_served() -> Reply {
    Reply::Text(404, "404 page not found\n".into())
}
