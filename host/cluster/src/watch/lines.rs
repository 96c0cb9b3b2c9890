//! The body of a watch: one JSON document in each line.

use std::borrow::Cow;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure};
use polity_core::object::Object;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::{LASTS, LATE, SILENT};
use crate::error::{self, Verb};
use crate::json;

/// The most bytes of one event. An object has at most 3 MiB in etcd.
const LARGEST: usize = 8 << 20;

/// The lines of one watch, in the order in which they arrive.
pub(super) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// The bytes at the buffer's start that are known to hold no line end.
    scanned: usize,
    pub(super) opened: Instant,
    /// The version at which the watch was opened.
    pub(super) began_at: String,
    /// Whether the server has sent a bookmark.
    pub(super) bookmarks: bool,
}

impl Lines {
    pub(super) fn new(body: Body, began_at: String) -> Self {
        Lines {
            body,
            buffer: BytesMut::new(),
            scanned: 0,
            opened: Instant::now(),
            began_at,
            bookmarks: false,
        }
    }

    /// The next line; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let end = self.opened + LASTS + LATE;
        let end = if self.bookmarks {
            end.min(Instant::now() + SILENT)
        } else {
            end
        };
        loop {
            if let Some(length) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + length).freeze();
                self.buffer.advance(1);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > LARGEST {
                return Err(Failure::new(Code::Internal, "an event is larger than 8 MiB"));
            }
            let frame = timeout_at(end, self.body.frame()).await;
            match frame.map_err(|_| Failure::new(Code::Unavailable, "the server sent nothing in time"))? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(e)) => {
                    return Err(Failure::new(
                        Code::Unavailable,
                        format!("the connection was cut: {e}"),
                    ));
                }
            }
        }
    }
}

/// The content of a line.
pub(super) struct Line {
    /// The version that the line brings; empty if it brings none.
    pub(super) version: String,
    /// `None` for a bookmark.
    pub(super) event: Option<WatchEvent>,
}

/// A line as a server writes it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Reads a line. A line that holds an error becomes that failure.
pub(super) fn decode(line: &[u8], scope: &Scope) -> Result<Line, Failure> {
    let what = format!("watch of {}", scope.kind.kind);
    let no_json = |e| Failure::new(Code::Internal, format!("{what}: an event is not JSON: {e}"));
    let written: Written<'_> = serde_json::from_slice(line).map_err(no_json)?;
    let object = written.object.map_or("null", RawValue::get).as_bytes();
    let event: Option<fn(Object) -> WatchEvent> = match &*written.kind {
        "ADDED" | "MODIFIED" => Some(WatchEvent::Applied),
        "DELETED" => Some(WatchEvent::Deleted),
        "BOOKMARK" => None,
        // An `ERROR`, whose object is a Status. A forgotten version (410) comes this way once the watch is open.
        _ => {
            let status = json::parse(object).map_err(no_json)?;
            let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let code = code.and_then(|code| http::StatusCode::from_u16(code).ok());
            let code = code.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            return Err(error::from_response(Verb::Get, &what, code, None, &status));
        }
    };
    let object = Object::read(object, json::DEPTH).map_err(no_json)?;
    let version = object.str_at("metadata.resourceVersion").unwrap_or_default();
    Ok(Line {
        version: version.into_owned(),
        event: event.map(|event| event(scope.trimmed(&object))),
    })
}
