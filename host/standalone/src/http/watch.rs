//! Watches: the initial objects, if they are asked for, and then every change as it happens.
//!
//! A watch is a position in the history of its table, so a slow reader costs only that. When the history has
//! moved past the position, the watch is answered 410, and the client lists again.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::{sync::watch::Receiver, time::Instant};

use crate::{
    http::{
        query::Query,
        refusal::Refusal,
        view::{Presenter, View},
    },
    store::{Change, Object, Store},
    verbs::Selection,
};

/// The most objects or changes that become bytes at once, and the bytes after which no further one does.
const BATCH: usize = 256;
const BYTES: usize = 1 << 20;
/// After this many changes that a watch does not select, the watch gets a bookmark, well before the history
/// forgets them.
const QUIET: usize = 512;
/// The annotation that ends the initial events of a streaming list (meta/v1 `InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A running watch.
pub(crate) struct Watch {
    store: Arc<Store>,
    presenter: Presenter,
    selection: Selection,
    changed: Receiver<u64>,
    /// Objects to show before anything else.
    initial: VecDeque<Object>,
    /// Whether a bookmark is due at the end of the initial events.
    closing_bookmark: bool,
    /// The last revision that was shown.
    revision: u64,
    bookmarks: bool,
    /// The changes that were skipped since something was sent.
    quiet: usize,
    /// Whether the columns of a table were sent. They are sent once.
    headed: bool,
    deadline: Option<Instant>,
    /// Whether the watch has ended.
    over: bool,
}

/// Starts a watch.
///
/// # Errors
/// The parameters contradict each other. A resourceVersion that is too old is no error here: the stream tells
/// the client.
pub(crate) fn watch(
    store: &Arc<Store>,
    presenter: Presenter,
    selection: Selection,
    query: &Query,
) -> Result<Watch, Refusal> {
    let asked = query.resource_version()?.unwrap_or(0);
    let initial_events = query.flag("sendInitialEvents");
    check_parameters(query, initial_events)?;
    let deadline = query.number("timeoutSeconds")?.filter(|&seconds| seconds > 0);
    let deadline = deadline.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let state = store.read();
    let table = state
        .table(&presenter.target.kind.storage)
        .ok_or_else(Refusal::no_such_path)?;
    if asked > state.revision {
        return Err(Refusal::too_new(asked, state.revision));
    }
    let from_now = initial_events.unwrap_or(asked == 0);
    let initial = if from_now {
        let objects = table
            .of_namespace(selection.namespace.as_deref())
            .map(|(_, object)| object);
        objects
            .filter(|object| selection.matches(object))
            .cloned()
            .collect()
    } else {
        VecDeque::new()
    };
    let bookmarks = query.flag("allowWatchBookmarks") == Some(true);
    let revision = if from_now || asked == 0 {
        state.revision
    } else {
        asked
    };
    let changed = table.subscribe();
    drop(state);
    Ok(Watch {
        store: store.clone(),
        presenter,
        selection,
        changed,
        initial,
        closing_bookmark: initial_events == Some(true) && bookmarks,
        revision,
        bookmarks,
        quiet: 0,
        headed: false,
        deadline,
        over: false,
    })
}

/// A streaming list must name the version that it accepts.
fn check_parameters(query: &Query, initial_events: Option<bool>) -> Result<(), Refusal> {
    let version_match = query.get("resourceVersionMatch");
    match (initial_events, version_match) {
        (Some(_), Some("NotOlderThan")) | (None, None) => {}
        (Some(_), _) => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(Refusal::list_option("resourceVersionMatch", why));
        }
        (None, Some(_)) => {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return Err(Refusal::list_option("resourceVersionMatch", why));
        }
    }
    Ok(())
}

impl Watch {
    /// The events as they are sent: JSON with a newline after each, several at a time.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut watch| async move {
            let bytes = watch.next().await?;
            Some((bytes, watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.is_empty() {
            if self.over {
                return None;
            }
            if !self.show_initial(&mut out) && !self.show_changes(&mut out) && out.is_empty() {
                self.wait(&mut out).await;
            }
        }
        Some(out.into())
    }

    /// Shows initial objects. `false` if none are left.
    fn show_initial(&mut self, out: &mut Vec<u8>) -> bool {
        let mut count = 0;
        while count < BATCH
            && out.len() < BYTES
            && let Some(object) = self.initial.pop_front()
        {
            self.event("ADDED", &object, out);
            count += 1;
        }
        if self.initial.is_empty() && self.closing_bookmark {
            self.closing_bookmark = false;
            self.bookmark(json!({ INITIAL_EVENTS_END: "true" }), out);
        }
        count > 0
    }

    /// Shows further changes. `false` if there are none.
    fn show_changes(&mut self, out: &mut Vec<u8>) -> bool {
        let batch = match self.batch() {
            Ok(batch) => batch,
            Err(refusal) => {
                self.end_with(&refusal, out);
                return true;
            }
        };
        for change in &batch {
            // The rest comes with the next bytes: it is after this revision.
            if out.len() >= BYTES {
                break;
            }
            self.revision = change.revision;
            match self.shown(change) {
                Some((kind, object)) => self.event(kind, &object, out),
                None => self.quiet += 1,
            }
        }
        if self.bookmarks && self.quiet >= QUIET {
            self.bookmark(Value::Null, out);
        }
        !batch.is_empty()
    }

    fn batch(&mut self) -> Result<Vec<Arc<Change>>, Refusal> {
        let state = self.store.read();
        let table = state
            .table(&self.presenter.target.kind.storage)
            .ok_or_else(Refusal::no_such_path)?;
        // Mark the version as seen before looking, so that a change after the look is noticed.
        self.changed.borrow_and_update();
        let batch: Vec<Arc<Change>> = table.since(self.revision)?.take(BATCH).cloned().collect();
        if batch.is_empty() && table.closed {
            self.over = true;
        }
        Ok(batch)
    }

    /// A change as the selection sees it.
    fn shown(&self, change: &Change) -> Option<(&'static str, Object)> {
        let matches = |object: &Object| self.selection.matches(object);
        let before = change.previous.as_ref().filter(|previous| matches(previous));
        let after = !change.deleted && matches(&change.object);
        match (before, after) {
            (None, true) => Some(("ADDED", change.object.clone())),
            (Some(_), true) => Some(("MODIFIED", change.object.clone())),
            (Some(_), false) if change.deleted => Some(("DELETED", change.object.clone())),
            // It left the selection: its last state that matched, at the resourceVersion of the change.
            (Some(previous), false) => Some(("DELETED", previous.at_revision(change.revision))),
            (None, false) => None,
        }
    }

    async fn wait(&mut self, out: &mut Vec<u8>) {
        if self.over {
            return;
        }
        let Some(deadline) = self.deadline else {
            self.over = self.changed.changed().await.is_err();
            return;
        };
        match tokio::time::timeout_at(deadline, self.changed.changed()).await {
            Ok(changed) => self.over = changed.is_err(),
            Err(_elapsed) => {
                self.over = true;
                if self.bookmarks {
                    self.bookmark(Value::Null, out);
                }
            }
        }
    }

    fn event(&mut self, kind: &str, object: &Object, out: &mut Vec<u8>) {
        self.quiet = 0;
        let header = !std::mem::replace(&mut self.headed, true);
        self.presenter.now = self.store.now();
        wrap(kind, out, |out| self.presenter.write_one(object, header, out));
    }

    fn bookmark(&mut self, annotations: Value, out: &mut Vec<u8>) {
        self.quiet = 0;
        let target = &self.presenter.target;
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if !annotations.is_null() {
            metadata["annotations"] = annotations;
        }
        let bare =
            json!({ "kind": target.kind.kind, "apiVersion": target.api_version(), "metadata": metadata });
        let object = match self.presenter.view {
            View::Plain => bare,
            View::Partial => crate::http::table::partial(&bare),
            View::Table(_) => json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": self.revision.to_string() },
                "columnDefinitions": [],
                "rows": [{ "cells": [], "object": crate::http::table::partial(&bare) }],
            }),
        };
        wrap("BOOKMARK", out, |out| {
            out.extend_from_slice(object.to_string().as_bytes())
        });
    }

    fn end_with(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        self.over = true;
        wrap("ERROR", out, |out| {
            out.extend_from_slice(refusal.status().to_string().as_bytes())
        });
    }
}

fn wrap(kind: &str, out: &mut Vec<u8>, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(out);
    out.extend_from_slice(b"}\n");
}
