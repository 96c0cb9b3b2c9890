//! Watches: a full list, then every change; again from the start when the server forgot where we were.
//!
//! # Flow
//!
//! `list → Listed → watch → Applied, Deleted …`; the watch ends after some minutes and goes on from the last version.
//! After `410 Gone`, and after any failure, it lists again: core takes `Failed` to mean that the cache may be old.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use futures::Stream;
use http_body_util::BodyExt as _;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure};
use polity_core::object::{Object, ResourceVersion};
use polity_core::path as json_path;
use serde_json::Value;

use crate::Cluster;
use crate::error::Verb;
use crate::path::{self, Resource};
use crate::read::{PAGE, items};

/// Seconds that a watch lasts before it is begun anew: below the five minutes after which load balancers cut.
const LASTS: &str = "290";
/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// Metadata that is kept whatever the scope's fields.
const KEPT: [&str; 4] = [
    "metadata.generation",
    "metadata.deletionTimestamp",
    "metadata.labels",
    "metadata.finalizers",
];
/// Bytes of one event: an object is at most 3 MiB in etcd.
const LARGEST: usize = 8 << 20;

impl Cluster {
    /// Shows what is in scope, for ever.
    pub fn watch(&self, scope: Scope) -> impl Stream<Item = WatchEvent> + Send + use<> {
        let cluster = self.clone();
        async_stream::stream! {
            let mut failures = 0u32;
            loop {
                let mut version = match cluster.list_scope(&scope).await {
                    Ok((objects, version)) => {
                        failures = 0;
                        let listed = ResourceVersion(version.parse().unwrap_or_default());
                        yield WatchEvent::Listed { objects, version: listed };
                        version
                    }
                    Err(failure) => {
                        if failures == 0 {
                            yield WatchEvent::Failed(failure.to_string());
                        }
                        failures += 1;
                        tokio::time::sleep(backoff(failures, &scope)).await;
                        continue;
                    }
                };
                let ended = loop {
                    let mut body = match cluster.open_scope(&scope, &version).await {
                        Ok(body) => body,
                        Err(failure) => break failure,
                    };
                    let mut buffer = BytesMut::new();
                    let end = loop {
                        let line = match next_line(&mut body, &mut buffer).await {
                            Ok(Some(line)) => line,
                            // The server ends each watch after a while: it goes on from the last version.
                            Ok(None) => break None,
                            Err(failure) => break Some(failure),
                        };
                        match decode(&line, &scope) {
                            Ok((seen, event)) => {
                                if !seen.is_empty() {
                                    version = seen;
                                }
                                if let Some(event) = event {
                                    yield event;
                                }
                            }
                            Err(failure) => break Some(failure),
                        }
                    };
                    if let Some(failure) = end {
                        break failure;
                    }
                };
                // A version that the server forgot is no failure: the next list tells all.
                if ended.code != Code::OutOfRange {
                    yield WatchEvent::Failed(ended.to_string());
                    failures = 1;
                    tokio::time::sleep(backoff(failures, &scope)).await;
                }
            }
        }
    }

    async fn list_scope(&self, scope: &Scope) -> Result<(Vec<Object>, String), Failure> {
        let resource = self.resource(&scope.kind).await?;
        let what = format!("list of {}", scope.kind.kind);
        let (mut objects, mut next): (Vec<Object>, Option<String>) = (Vec::new(), None);
        loop {
            let selector = selector(scope);
            let mut pairs = vec![("limit", PAGE)];
            pairs.extend(selector.as_deref().map(|s| ("fieldSelector", s)));
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let path = collection(&resource, scope) + &path::query(&pairs);
            let mut page = self.call(Verb::Read, &what, "GET", &path, None).await?;
            objects.extend(
                items(&mut page, &scope.kind)
                    .into_iter()
                    .map(|object| trimmed(scope, object)),
            );
            next = page["metadata"]["continue"]
                .as_str()
                .filter(|t| !t.is_empty())
                .map(str::to_owned);
            if next.is_none() {
                let version = page["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                return Ok((objects, version));
            }
        }
    }

    async fn open_scope(&self, scope: &Scope, version: &str) -> Result<kube::client::Body, Failure> {
        let resource = self.resource(&scope.kind).await?;
        let selector = selector(scope);
        let mut pairs = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", LASTS),
            ("resourceVersion", version),
        ];
        pairs.extend(selector.as_deref().map(|s| ("fieldSelector", s)));
        let path = collection(&resource, scope) + &path::query(&pairs);
        self.open_watch(&format!("watch of {}", scope.kind.kind), &path)
            .await
    }
}

fn collection(resource: &Resource, scope: &Scope) -> String {
    resource.collection(scope.namespace.as_deref())
}

fn selector(scope: &Scope) -> Option<String> {
    let name = scope.name.as_ref().map(|name| format!("metadata.name={name}"));
    let node = scope.node.as_ref().map(|node| format!("spec.nodeName={node}"));
    let terms: Vec<String> = name.into_iter().chain(node).collect();
    (!terms.is_empty()).then(|| terms.join(","))
}

fn trimmed(scope: &Scope, object: Value) -> Object {
    if scope.fields.is_empty() {
        return Object::new(object);
    }
    let fields: Vec<String> = scope
        .fields
        .iter()
        .cloned()
        .chain(KEPT.iter().map(|field| (*field).to_owned()))
        .collect();
    Object::new(json_path::project(&object, &fields))
}

/// The wait after so many failures in a row: doubled each time, up to a third shorter by the scope's name so that
/// not every watch comes back at once.
fn backoff(failures: u32, scope: &Scope) -> Duration {
    let full = (BACKOFF.0 * 2u32.pow(failures.saturating_sub(1).min(6))).min(BACKOFF.1);
    let spread = scope
        .kind
        .kind
        .bytes()
        .chain(scope.namespace.iter().flat_map(|n| n.bytes()))
        .map(u32::from)
        .sum::<u32>();
    full - full / 3 * (spread % 100) / 100
}

/// The next line of a watch; none at its end.
async fn next_line(
    body: &mut kube::client::Body,
    buffer: &mut BytesMut,
) -> Result<Option<BytesMut>, Failure> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end);
            buffer.advance(1);
            return Ok(Some(line));
        }
        if buffer.len() > LARGEST {
            return Err(Failure::new(Code::Internal, "an event of a watch is too large"));
        }
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    buffer.extend_from_slice(data);
                }
            }
            Some(Err(e)) => return Err(Failure::new(Code::Unavailable, format!("a watch was cut: {e}"))),
        }
    }
}

/// The version that a line brings (empty for none), and its event unless it is only a bookmark.
fn decode(line: &[u8], scope: &Scope) -> Result<(String, Option<WatchEvent>), Failure> {
    let mut event: Value = serde_json::from_slice(line)
        .map_err(|e| Failure::new(Code::Internal, format!("an event of a watch is not JSON: {e}")))?;
    let object = event["object"].take();
    let version = object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok((version, Some(WatchEvent::Applied(trimmed(scope, object))))),
        Some("DELETED") => Ok((version, Some(WatchEvent::Deleted(trimmed(scope, object))))),
        Some("BOOKMARK") => Ok((version, None)),
        _ => {
            let status = http::StatusCode::from_u16(object["code"].as_u64().unwrap_or(500) as u16)
                .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            let what = format!("watch of {}", scope.kind.kind);
            Err(crate::error::from_response(
                Verb::Read,
                &what,
                status,
                None,
                &object,
            ))
        }
    }
}
