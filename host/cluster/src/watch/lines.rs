//! The body of a watch: one JSON document in each line.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure};
use polity_core::object::Object;
use serde_json::Value;
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
        let end = match self.bookmarks {
            true => end.min(Instant::now() + SILENT),
            false => end,
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

/// Reads a line. A line that holds an error becomes that failure.
pub(super) fn decode(line: &[u8], scope: &Scope) -> Result<Line, Failure> {
    let what = format!("watch of {}", scope.kind.kind);
    let mut event = json::parse(line, 1)
        .map_err(|e| Failure::new(Code::Internal, format!("{what}: an event is not JSON: {e}")))?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    let version = object["metadata"]["resourceVersion"].as_str();
    let version = version.unwrap_or_default().to_owned();
    let event = match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Some(WatchEvent::Applied(scope.trimmed(&Object::new(object)))),
        Some("DELETED") => Some(WatchEvent::Deleted(scope.trimmed(&Object::new(object)))),
        Some("BOOKMARK") => None,
        // An `ERROR`, whose object is a Status. A forgotten version (410) comes this way once the watch is open.
        _ => {
            let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let status = code.and_then(|code| http::StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            return Err(error::from_response(Verb::Get, &what, status, None, &object));
        }
    };
    Ok(Line { version, event })
}
