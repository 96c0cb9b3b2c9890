//! One request to the API server and its answer.

use std::future::Future;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use polity_core::contract::{Answer, Code, Failure, ObjectRef};
use polity_http::fence;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::error::{self, Verb};
use crate::{Cluster, json};

/// The content type of JSON merge patches.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// The most bytes of an answer that are read. An object has at most 1.5 MiB, because etcd takes no more in
/// one request. A list page that is larger is asked for again with half as many objects.
pub(crate) const LARGEST: usize = 16 << 20;
/// The query parameter that names this host as the writer.
pub(crate) const MANAGER: (&str, &str) = ("fieldManager", "polity");
/// The user agent of all requests.
const AGENT: &str = concat!("polity/", env!("CARGO_PKG_VERSION"));

impl Cluster {
    /// Sends JSON and reads JSON. A PATCH is a merge patch. The caller limits the time.
    pub(crate) async fn call(&self, verb: Verb, what: &str, path: &str, body: Option<String>) -> Answer {
        let response = self.send(verb, what, path, body).await?;
        let status = response.status();
        let text = text_of(verb, what, response).await?;
        let text = text.ok_or_else(|| verb.unknown(too_large(what, LARGEST)))?;
        match self.in_turn(text.len(), move || json::parse(&text)).await {
            Ok(value) => Ok(value),
            Err(_) if status == StatusCode::NO_CONTENT => Ok(Value::Null),
            Err(e) => {
                let message = format!("{what}: the answer is not JSON: {e}");
                Err(verb.unknown(Failure::new(Code::Internal, message)))
            }
        }
    }

    /// Gets a list and reads its text; `None` if that is too long. A semaphore limits how many lists are read at the
    /// same time: when a host starts, those of all kinds arrive together and would fill the memory. The semaphore is
    /// taken after the answer has begun, so that a server which is slow to begin blocks no other list.
    pub(crate) async fn call_list<T: Send + 'static>(
        &self,
        what: &str,
        path: &str,
        read: impl FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let response = self.send(Verb::Get, what, path, None).await?;
        let _turn = self.lists.acquire().await;
        match text_of(Verb::Get, what, response).await? {
            Some(text) => self.in_turn(text.len(), move || read(&text)).await.map(Some),
            None => Ok(None),
        }
    }

    /// The unread body of a successful response.
    pub(crate) async fn open(&self, what: &str, path: &str) -> Result<Body, Failure> {
        self.send(Verb::Get, what, path, None)
            .await
            .map(http::Response::into_body)
    }

    async fn send(
        &self,
        verb: Verb,
        what: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<http::Response<Body>, Failure> {
        let response = self.respond(verb, what, path, body).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refused(verb, what, path, response).await)
        }
    }

    /// The response of the server, whatever its status. The failure says that there was none.
    pub(crate) async fn respond(
        &self,
        verb: Verb,
        what: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<http::Response<Body>, Failure> {
        let mut request = request(verb, path, body)?;
        let fence = fence::current().filter(|_| verb != Verb::Get);
        if let Some(fence) = &fence {
            if !fence.is_open() {
                return Err(fence::late(what));
            }
            // Who writes the request to the wire looks at it again.
            request.extensions_mut().insert(fence.clone());
        }
        let response = self.client.send(request).await;
        response.map_err(|e| {
            if fence.is_some_and(|fence| fence.has_refused()) {
                fence::late(what)
            } else {
                error::from_transport(verb, what, &e)
            }
        })
    }

    /// The failure for a response that is not a success.
    pub(crate) async fn refused(
        &self,
        verb: Verb,
        what: &str,
        path: &str,
        response: http::Response<Body>,
    ) -> Failure {
        let (head, body) = response.into_parts();
        // The status alone makes this a refusal. If its body is cut off, only the reason is missing.
        let bytes = Limited::new(body, LARGEST).collect().await;
        let bytes = bytes.map(http_body_util::Collected::to_bytes);
        let value = json::parse(&bytes.unwrap_or_default()).unwrap_or(Value::Null);
        let failure = error::from_response(verb, what, head.status, retry_after(&head.headers), &value);
        if failure.code == Code::Unimplemented {
            self.discovery.forget(path);
        }
        failure
    }
}

/// The text of an answer; `None` if it is too long.
async fn text_of(verb: Verb, what: &str, response: http::Response<Body>) -> Result<Option<Bytes>, Failure> {
    match Limited::new(response.into_body(), LARGEST).collect().await {
        Ok(body) => Ok(Some(body.to_bytes())),
        Err(e) if e.is::<LengthLimitError>() => Ok(None),
        Err(e) => Err(error::cut(verb, what, &*e)),
    }
}

/// The failure for an answer that is longer than the host reads.
pub(crate) fn too_large(what: &str, most: usize) -> Failure {
    let message = format!("{what}: the answer has more than {} MiB", most >> 20);
    Failure::new(Code::ResourceExhausted, message)
}

/// Runs a call and cuts it at `end`.
pub(crate) async fn until<T>(
    end: Instant,
    verb: Verb,
    what: &str,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout_at(end, call).await {
        Ok(answer) => answer,
        Err(_) => Err(error::too_long(verb, what)),
    }
}

/// The name of an object as messages show it.
pub(crate) fn named(object: &ObjectRef) -> String {
    match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{}", object.kind.kind, object.name),
        None => format!("{} {}", object.kind.kind, object.name),
    }
}

fn retry_after(headers: &http::HeaderMap) -> Option<u64> {
    let seconds = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok()
}

fn request(verb: Verb, path: &str, body: Option<String>) -> Result<Request<Body>, Failure> {
    let mut request = Request::builder()
        .method(verb.method())
        .uri(path)
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::USER_AGENT, AGENT);
    if body.is_some() {
        let content = if verb == Verb::Patch {
            MERGE_PATCH
        } else {
            "application/json"
        };
        request = request.header(http::header::CONTENT_TYPE, content);
    }
    let body = body.unwrap_or_default().into_bytes();
    request.body(Body::from(body)).map_err(|e| {
        Failure::new(
            Code::InvalidArgument,
            format!("{path:?} is no valid request: {e}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply};
    use serde_json::json;

    #[tokio::test]
    async fn requests_say_what_they_carry() {
        let fake = Fake::answering([Reply::json(200, json!({})), Reply::json(200, json!({}))]);
        let cluster = fake.cluster();
        let body = json!({"a": 1});
        for verb in [Verb::Patch, Verb::Create] {
            cluster
                .call(verb, "x", "/p", Some(body.to_string()))
                .await
                .expect("answered");
        }
        let seen = fake.seen();
        assert_eq!(seen[0].headers["content-type"], MERGE_PATCH);
        assert_eq!(seen[1].headers["content-type"], "application/json");
        assert_eq!(seen[1].headers["user-agent"], AGENT);
        assert_eq!(seen[1].body, body);
    }

    #[tokio::test]
    async fn a_refusal_in_the_header_s_seconds_is_kept() {
        let fake = Fake::answering([Reply::json(429, json!({})).with("retry-after", "3")]);
        let failure = fake.cluster().call(Verb::Get, "x", "/p", None).await;
        assert_eq!(failure.expect_err("busy").retry_after, Some(3_000));
    }

    #[tokio::test]
    async fn an_answer_that_is_no_json_leaves_the_effect_of_a_write_unknown() {
        for (verb, effect) in [
            (Verb::Get, polity_core::contract::Effect::None),
            (Verb::Create, polity_core::contract::Effect::Unknown),
        ] {
            let fake = Fake::answering([Reply::Text(200, "<html>".into())]);
            let failure = fake
                .cluster()
                .call(verb, "x", "/p", None)
                .await
                .expect_err("html");
            assert_eq!((failure.code, failure.effect), (Code::Internal, effect));
        }
    }
}
