//! The body of a watch: one JSON document a line.

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

/// Bytes of one event: an object is at most 3 MiB in etcd.
const LARGEST: usize = 8 << 20;

/// The lines of one watch, as they come in.
pub(super) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no end of a line.
    scanned: usize,
    pub(super) opened: Instant,
    /// The version that the watch was opened at.
    pub(super) began_at: String,
    /// Whether the server sends bookmarks.
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

    /// The next line; none at the end.
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
                return Err(Failure::new(Code::Internal, "an event is too large"));
            }
            let frame = timeout_at(end, self.body.frame()).await;
            match frame.map_err(|_| Failure::new(Code::Unavailable, "it fell silent"))? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(e)) => return Err(Failure::new(Code::Unavailable, format!("it was cut: {e}"))),
            }
        }
    }
}

/// What a line says.
pub(super) struct Line {
    /// The version that it brings; empty for none.
    pub(super) version: String,
    /// None for a bookmark.
    pub(super) event: Option<WatchEvent>,
}

/// Reads a line. One that tells of an error is that failure.
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
        _ => {
            let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let status = code.and_then(|code| http::StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            return Err(error::from_response(Verb::Get, &what, status, None, &object));
        }
    };
    Ok(Line { version, event })
}
