//! Records on a thread of its own: a pass may hold megabytes, and the event loop waits for no file.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use polity_core::contract::Manifest;
use polity_core::record::{PassRecord, RoleRecord};
use tokio::sync::watch;

use super::Recorder;
use crate::priority;

/// The most bytes of passes that wait to be written. The host goes on without a file, but not without a recording: while
/// more bytes wait, it waits too. Before that, core lets the passes wait that say the most (`core/shared/journals.rs`).
const MOST: u64 = 192 << 20;
/// The bytes that a pass counts, beside those of its journals.
const PASS: u64 = 1 << 10;

/// A [`Recorder`] on its thread. What it was given is written when it is dropped.
pub struct RecordingThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How many passes are written, or cannot be.
    recorded: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    /// The bytes of the passes that are not written yet.
    bytes: u64,
    ends: bool,
    /// Whether the thread has ended, also by a panic.
    ended: bool,
    /// Why the last pass was not written.
    problem: Option<String>,
}

enum Work {
    /// A pass, and the bytes that it counts.
    Pass(Arc<PassRecord>, u64),
    Policy(String, Box<Manifest>, Vec<u8>),
    Forgotten(String),
}

impl RecordingThread {
    /// Starts the thread of a recorder.
    ///
    /// # Errors
    /// If there can be no further thread.
    pub fn start(recorder: Recorder) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("recording".into())
            .spawn(move || {
                priority::step_back(priority::SHORT);
                own.run(recorder);
            })
            .context("there is no thread for the recording")?;
        Ok(RecordingThread {
            shared,
            thread: Some(thread),
        })
    }

    /// Records a pass. Returns why an earlier one was not written, if that is how it stands.
    pub fn pass(&self, record: Arc<PassRecord>) -> Option<String> {
        let bytes = bytes_of(&record);
        let mut state = self.shared.lock();
        while state.bytes > MOST && !state.ended {
            state = self.shared.wait(state);
        }
        if state.ended {
            return Some("the thread that records has ended; this is a bug of Polity".into());
        }
        state.bytes += bytes;
        state.queue.push_back(Work::Pass(record, bytes));
        self.shared.changed.notify_all();
        state.problem.clone()
    }

    /// How many passes are recorded.
    pub fn recorded(&self) -> watch::Receiver<u64> {
        self.shared.recorded.subscribe()
    }

    /// Records a policy's manifest and bytes, for `edges` and for replay.
    pub fn policy(&self, digest: &str, manifest: &Manifest, bytes: &[u8]) {
        self.push(Work::Policy(
            digest.to_owned(),
            Box::new(manifest.clone()),
            bytes.to_vec(),
        ));
    }

    /// Forgets a policy that takes no further part.
    pub fn policy_forgotten(&self, digest: &str) {
        self.push(Work::Forgotten(digest.to_owned()));
    }

    fn push(&self, work: Work) {
        self.shared.lock().queue.push_back(work);
        self.shared.changed.notify_all();
    }
}

impl Drop for RecordingThread {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done next; `None` if nothing more will come.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            match state.queue.pop_front() {
                Some(work) => return Some(work),
                None if state.ends => return None,
                None => state = self.wait(state),
            }
        }
    }

    fn run(&self, mut recorder: Recorder) {
        let _ended = Ended(self);
        while let Some(work) = self.next() {
            match work {
                Work::Pass(record, bytes) => {
                    let written = recorder.pass(&record);
                    let mut state = self.lock();
                    state.problem = written.err().map(|error| format!("{error:#}"));
                    state.bytes -= bytes;
                    self.changed.notify_all();
                    drop(state);
                    drop(record);
                    self.recorded.send_modify(|count| *count += 1);
                }
                Work::Policy(digest, manifest, bytes) => {
                    if let Err(error) = recorder.policy(&digest, &manifest, &bytes) {
                        tracing::error!("the policy is not recorded: {error:#}");
                    }
                }
                Work::Forgotten(digest) => recorder.policy_forgotten(&digest),
            }
        }
    }
}

/// Tells that the thread has ended, so that nobody waits for it.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
        self.0.recorded.send_replace(u64::MAX);
    }
}

/// About as many bytes as a pass holds in memory until it is written.
fn bytes_of(record: &PassRecord) -> u64 {
    let of_role = |role: &RoleRecord| {
        let entries = role.journal.iter().map(|entry| {
            let answer = entry.answer.as_ref().map_or(0, |json| json.len() as u64);
            entry.request.bytes() + answer
        });
        let concluded = role.conclusion.as_ref();
        let patch = concluded.and_then(|concluded| concluded.patch.as_ref());
        entries.sum::<u64>() + patch.map_or(0, |patch| patch.bytes() as u64)
    };
    PASS + record.roles.iter().map(of_role).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use polity_core::contract::{Ask, Entry, Kind, Question, Request};
    use polity_core::key::{Key, PassId};
    use polity_core::record::Outcome;
    use polity_core::time::Now;
    use serde_json::json;

    use super::*;
    use crate::recording::Recording;

    /// A pass that holds an answer of so many bytes.
    fn pass(number: u64, bytes: usize) -> Arc<PassRecord> {
        let role = json!({
            "role": "lifecycle", "policy": "", "config": "{}", "pending": [], "steps": 1, "fuel": 0, "journal": [],
            "verdict": null, "conclusion": null, "fault": null,
        });
        let mut role: RoleRecord = serde_json::from_value(role).expect("a role");
        let question = Question::Lock("one".into());
        role.journal.push(Entry {
            request: Request::Ask(Ask { round: 0, question }),
            answer: Ok(format!("\"{}\"", "x".repeat(bytes)).into()),
        });
        Arc::new(PassRecord {
            pass: PassId(number),
            key: Key {
                binding: "b".into(),
                namespace: None,
                name: "m".into(),
            },
            kind: Kind {
                api_version: "v1".into(),
                kind: "Machine".into(),
            },
            uid: String::new(),
            started: Now::default(),
            queued: std::time::Duration::ZERO,
            ended: Now::default(),
            causes: Vec::new(),
            attempt: 0,
            object: None,
            roles: vec![role],
            outcome: Outcome::Published,
            writes: Vec::new(),
            next: None,
            retry: None,
            wait: None,
        })
    }

    #[test]
    fn what_was_given_is_written_in_its_order_when_it_ends_however_much_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Recorder::open(folder.path(), true, "test").expect("a recording");
        let thread = RecordingThread::start(recorder).expect("a thread");
        // More than may wait at once.
        let large = usize::try_from(MOST / 4).expect("a length");
        for number in 0..8 {
            assert_eq!(thread.pass(pass(number, large)), None);
        }
        for number in 8..40 {
            assert_eq!(thread.pass(pass(number, 1)), None);
        }
        drop(thread);
        let (recording, mut found) = (Recording::open(folder.path()).expect("it is there"), Vec::new());
        let unread = recording
            .passes(|record| found.push(record.pass.0))
            .expect("passes");
        assert_eq!((unread, found), (0, (0..40).collect()));
    }

    #[test]
    fn a_thread_that_has_ended_holds_nobody_up() {
        let shared = Arc::new(Shared::default());
        drop(Ended(&shared));
        shared.lock().bytes = MOST + 1;
        let thread = RecordingThread { shared, thread: None };
        assert!(
            thread
                .pass(pass(1, 1))
                .is_some_and(|why| why.contains("has ended"))
        );
    }
}
