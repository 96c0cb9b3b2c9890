//! One request to the API server and its answer, cut at [`LONGEST`].

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use polity_core::contract::{Code, Failure};
use serde_json::Value;

use crate::error::{self, Verb};
use crate::{Cluster, LONGEST};

/// The content type of JSON merge patches.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

impl Cluster {
    /// Sends JSON and reads JSON; a PATCH is a merge patch.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        what: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        match tokio::time::timeout(LONGEST, self.exchange(verb, what, method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(error::too_long(verb, what)),
        }
    }

    async fn exchange(
        &self,
        verb: Verb,
        what: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let response = self
            .client
            .send(request(method, path, body)?)
            .await
            .map_err(|e| error::from_transport(verb, what, &e))?;
        let (head, body) = response.into_parts();
        let cut = |_| {
            let failure = Failure::new(
                Code::DeadlineExceeded,
                format!("{what}: the answer was cut short"),
            );
            if verb == Verb::Read {
                failure
            } else {
                failure.effect_unknown()
            }
        };
        let bytes = body.collect().await.map_err(cut)?.to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if !head.status.is_success() {
            return Err(error::from_response(
                verb,
                what,
                head.status,
                retry_after(&head.headers),
                &value,
            ));
        }
        if value.is_null() && head.status != StatusCode::NO_CONTENT {
            let failure = Failure::new(Code::Internal, format!("{what}: the answer is not JSON"));
            return Err(if verb == Verb::Read {
                failure
            } else {
                failure.effect_unknown()
            });
        }
        Ok(value)
    }

    /// Starts a watch: its body, one JSON document a line. The wait for its first byte is not limited here.
    pub(crate) async fn open_watch(&self, what: &str, path: &str) -> Result<Body, Failure> {
        let response = tokio::time::timeout(LONGEST, self.client.send(request("GET", path, None)?))
            .await
            .map_err(|_| error::too_long(Verb::Read, what))?
            .map_err(|e| error::from_transport(Verb::Read, what, &e))?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Err(error::from_response(
            Verb::Read,
            what,
            head.status,
            retry_after(&head.headers),
            &value,
        ))
    }
}

fn retry_after(headers: &http::HeaderMap) -> Option<u64> {
    headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

fn request(method: &str, path: &str, body: Option<&Value>) -> Result<Request<Body>, Failure> {
    let invalid = |e: http::Error| Failure::new(Code::InvalidArgument, format!("no valid request: {e}"));
    let method = Method::from_bytes(method.as_bytes()).map_err(|e| invalid(e.into()))?;
    let content = if method == Method::PATCH {
        MERGE_PATCH
    } else {
        "application/json"
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, "application/json");
    if body.is_some() {
        request = request.header(http::header::CONTENT_TYPE, content);
    }
    let body = body
        .map(|value| value.to_string().into_bytes())
        .unwrap_or_default();
    request.body(Body::from(body)).map_err(invalid)
}
