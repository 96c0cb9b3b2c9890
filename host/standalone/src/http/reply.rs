//! Answers on their way out.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, WARNING},
};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;

use crate::http::refusal::Refusal;

/// The body of an answer: whole, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How large the warnings of one answer may be together, in bytes, as in a real API server.
const WARNINGS: usize = 4 << 10;

/// How many they may be: HTTP clients in Rust read an answer with at most 100 headers (hyper).
const WARNING_COUNT: usize = 64;

/// JSON, whole.
pub(crate) fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    whole(code, HeaderValue::from_static("application/json"), bytes.into())
}

/// Plain text.
pub(crate) fn text(text: &'static str) -> Response<Body> {
    whole(
        StatusCode::OK,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        Bytes::from_static(text.as_bytes()),
    )
}

/// JSON with a content type that says more than that.
pub(crate) fn typed(content_type: &'static str, value: &Value) -> Response<Body> {
    whole(
        StatusCode::OK,
        HeaderValue::from_static(content_type),
        value.to_string().into(),
    )
}

/// A refusal's `Status`.
pub(crate) fn refusal(refusal: &Refusal) -> Response<Body> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, refusal.status().to_string());
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Watch events.
pub(crate) fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = events.map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Adds `Warning` headers (RFC 7234 §5.5, code 299), as kubectl shows them: the first of many.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut size = 0;
    for warning in warnings.iter().take(WARNING_COUNT) {
        size += warning.len();
        if size > WARNINGS {
            return;
        }
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

fn whole(code: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
