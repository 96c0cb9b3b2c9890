//! Makes HTTP answers.

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

/// The most bytes of all warnings in one answer, as in a real API server.
const WARNINGS: usize = 4 << 10;

/// The most warnings of one answer: HTTP clients in Rust (hyper) read at most 100 headers.
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

/// JSON with a more specific content type.
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

/// Adds `Warning` headers (RFC 7234 §5.5, code 299), which kubectl shows. Of too many warnings only the first
/// are sent.
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
