//! What objects wait for now, in a file beside the recording. `explain` shows it, also of an object whose first pass has
//! not ended.
//!
//! The file holds only what the recording does not tell. An object that waits for a change, or for its next pass after
//! one that succeeded, is left out: so the file of a host at rest is empty, however many objects it has.
//!
//! **Guarantees**
//!
//! - The event loop only answers a question, as it does for the live table: at most once a second, and less often the
//!   more objects there are. Everything else happens beside it.
//! - The file is replaced as a whole, and only if something else is in it. Its size is bounded.
//! - The last state before the end of the host stays, so that a person can ask later why nothing settled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use polity_core::contract::Kind;
use polity_core::controller::{KeyView, WaitReason};
use polity_core::key::Key;
use polity_core::time::{Now, Unix};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Speed};
use crate::display::shortened;
use crate::engine::{Handle, View};
use crate::recording::{self, Recording};

/// How often the file is written, at most.
const EVERY: Duration = Duration::from_secs(1);
/// The longer wait of a large host, for each object: a view of all objects takes time on the event loop. With 10,000
/// objects the host looks every five seconds.
const EVERY_FOR_EACH: Duration = Duration::from_micros(500);
/// The most objects in the file: about a megabyte.
const MOST: usize = 4_096;
/// The most characters of what an object waits for.
const WORDS: usize = 512;

/// What objects wait for, as the file holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waiting {
    /// When the host looked.
    pub(crate) at: Unix,
    pub(crate) objects: Vec<WaitingObject>,
    /// The number of objects for which there was no room.
    #[serde(default)]
    pub(crate) left_out: usize,
}

/// An object that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingObject {
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    /// In words.
    pub(crate) waits_for: String,
    /// When the host first saw that the object waits for this.
    pub(crate) since: Unix,
    /// When its timer is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Unix>,
}

impl Waiting {
    /// What the host of a recording last wrote; nothing if it wrote nothing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(recording: &Recording) -> Result<Self> {
        match recording.waiting()? {
            Some(text) => serde_json::from_str(&text).context("what objects wait for is damaged"),
            None => Ok(Waiting::default()),
        }
    }

    /// What objects wait for in this view. What `self` has already keeps its time.
    fn after(&self, view: &View, now: Now) -> Self {
        let before: BTreeMap<&Key, &WaitingObject> =
            self.objects.iter().map(|object| (&object.key, object)).collect();
        let keys = view.keys.iter().filter(|(_, view)| !is_in_recording(view));
        let objects = keys.filter_map(|(key, state)| {
            let kind = view.kinds.get(&*key.binding)?.clone();
            let waits_for = shortened(&state.waiting.to_string(), WORDS);
            let same = before.get(key).filter(|object| object.waits_for == waits_for);
            Some(WaitingObject {
                key: key.clone(),
                kind,
                waits_for,
                since: same.map_or(now.unix, |object| object.since),
                due: state.due.map(|due| now.unix + (due - now.boot)),
            })
        });
        let mut objects: Vec<WaitingObject> = objects.collect();
        let left_out = objects.len().saturating_sub(MOST);
        if left_out > 0 {
            // Those that have waited for longest are the ones that a person asks for.
            objects.sort_by_key(|object| object.since);
            objects.truncate(MOST);
        }
        Waiting {
            at: now.unix,
            objects,
            left_out,
        }
    }

    fn says_the_same(&self, other: &Waiting) -> bool {
        (&self.objects, self.left_out) == (&other.objects, other.left_out)
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)?;
        recording::write_waiting(folder, &text)
    }
}

/// Whether the recording tells what an object waits for.
fn is_in_recording(view: &KeyView) -> bool {
    match view.waiting {
        WaitReason::Change => true,
        WaitReason::Time(_) => view.attempt == 0 && view.faults == 0,
        _ => false,
    }
}

/// Keeps the file of a running host.
pub(crate) struct WaitingFile {
    stop: oneshot::Sender<()>,
    kept: JoinHandle<()>,
}

impl WaitingFile {
    /// Keeps the file in the folder of a recording.
    pub(crate) fn keep(handle: Handle, clock: Arc<Clock>, folder: PathBuf) -> Self {
        let (stop, stopped) = oneshot::channel();
        let kept = tokio::spawn(keep(handle, clock, folder, stopped));
        WaitingFile { stop, kept }
    }

    /// Writes the file for the last time.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.kept.await;
    }
}

async fn keep(handle: Handle, clock: Arc<Clock>, folder: PathBuf, mut stopped: oneshot::Receiver<()>) {
    let mut waiting = Arc::new(Waiting::default());
    let mut written = waiting.clone();
    let (mut is_written, mut is_last, mut wait) = (false, false, EVERY);
    while !is_last {
        is_last = match clock.speed() {
            // Nobody reads along while a clock jumps, and each look would take real time.
            Speed::Max => {
                let _ = (&mut stopped).await;
                true
            }
            Speed::Times(_) => tokio::time::timeout(wait, &mut stopped).await.is_ok(),
        };
        let Some(view) = handle.view().await else { return };
        wait = view.pause(EVERY, EVERY_FOR_EACH);
        waiting = Arc::new(waiting.after(&view, clock.now()));
        if is_written && waiting.says_the_same(&written) {
            continue;
        }
        let (next, folder) = (waiting.clone(), folder.clone());
        let done = tokio::task::spawn_blocking(move || next.write(&folder)).await;
        match done.context("stopped").flatten() {
            Ok(()) => (is_written, written) = (true, waiting.clone()),
            // It is tried again with the next look. Only `explain` needs the file, so the host goes on.
            Err(e) => tracing::debug!("what objects wait for is not written: {e:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use polity_core::time::Boot;

    use super::*;

    fn now(seconds: u64) -> Now {
        Now {
            boot: Boot(seconds * 1_000),
            unix: Unix(1_000_000 + seconds * 1_000),
        }
    }

    fn key(name: &str) -> Key {
        Key {
            binding: "machines".into(),
            namespace: Some("a".into()),
            name: name.into(),
        }
    }

    fn state(waiting: WaitReason, attempt: u32) -> KeyView {
        KeyView {
            running: false,
            queued: false,
            due: Some(Boot(60_000)),
            attempt,
            faults: 0,
            waiting,
        }
    }

    fn view(keys: Vec<(Key, KeyView)>) -> View {
        let kind = Kind {
            api_version: "example.org/v1".into(),
            kind: "Machine".into(),
        };
        View {
            keys,
            kinds: BTreeMap::from([("machines".to_owned(), kind)]),
            ..View::default()
        }
    }

    #[test]
    fn what_the_recording_tells_is_left_out() {
        let time = WaitReason::Time(Boot(60_000));
        let view = view(vec![
            (key("settled"), state(WaitReason::Change, 0)),
            (key("due"), state(time.clone(), 0)),
            (key("failing"), state(time, 1)),
            (key("locked"), state(WaitReason::Lock("x".into(), None), 0)),
        ]);
        let waiting = Waiting::default().after(&view, now(10));
        let names: Vec<&str> = waiting.objects.iter().map(|object| &*object.key.name).collect();
        assert_eq!(names, ["failing", "locked"]);
        assert_eq!(waiting.objects[0].due, Some(now(60).unix));
    }

    #[test]
    fn an_object_keeps_the_time_since_which_it_waits_until_it_waits_for_something_else() {
        let locked = view(vec![(key("m"), state(WaitReason::Lock("x".into(), None), 0))]);
        let first = Waiting::default().after(&locked, now(1));
        let later = first.after(&locked, now(2));
        assert!(later.says_the_same(&first));
        assert_eq!((later.at, later.objects[0].since), (now(2).unix, now(1).unix));
        let leased = view(vec![(key("m"), state(WaitReason::Lease, 0))]);
        let other = later.after(&leased, now(3));
        assert_eq!(other.objects[0].since, now(3).unix);
    }

    #[test]
    fn of_very_many_objects_those_that_wait_for_longest_are_kept() {
        let last = (key("z"), state(WaitReason::Lease, 0));
        let first = Waiting::default().after(&view(vec![last.clone()]), now(1));
        let mut all: Vec<(Key, KeyView)> = (0..MOST)
            .map(|n| (key(&format!("m-{n}")), state(WaitReason::Lease, 0)))
            .collect();
        all.push(last);
        let waiting = first.after(&view(all), now(2));
        assert_eq!((waiting.objects.len(), waiting.left_out), (MOST, 1));
        assert_eq!(&*waiting.objects[0].key.name, "z");
    }
}
