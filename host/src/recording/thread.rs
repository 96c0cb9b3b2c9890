//! Records on a thread of its own: a pass may hold megabytes, and the event loop waits for no file.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use polity_clouds::priority;
use polity_core::binding::{Binding, BindingSpec};
use polity_core::contract::Manifest;
use polity_core::record::PassRecord;

use super::Recorder;

/// The most bytes of passes that wait to be written, and a tenant's share of them. Of what does not fit the long texts are lost,
/// and nobody waits.
const MOST: u64 = 32 << 20;
const OF_ONE: u64 = MOST / 2;

/// A [`Recorder`] on its thread. What it was given is written when it is dropped.
pub struct RecordingThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Whose passes share room: those of a binding in a namespace.
type Share = (Arc<str>, Option<Arc<str>>);

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    /// The bytes of the passes that are not written yet, all and by whose they are.
    bytes: u64,
    shares: BTreeMap<Share, u64>,
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
    /// The name and the spec of a binding, with its digest.
    Binding(String, String, Box<BindingSpec>),
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
                priority::step_back(priority::WORK);
                priority::leave_a_processor();
                own.run(recorder);
            })
            .context("there is no thread for the recording")?;
        Ok(RecordingThread {
            shared,
            thread: Some(thread),
        })
    }

    /// Records a pass. Returns what is wrong with the recording, if something is.
    pub fn pass(&self, mut record: Arc<PassRecord>) -> Option<String> {
        let mut bytes = record.bytes();
        let mut state = self.shared.lock();
        if state.ended {
            return Some("passes are not recorded: the thread has ended; this is a bug of Polity".into());
        }
        let held = state.shares.get(&share(&record)).copied().unwrap_or_default();
        // A pass larger than all that may wait is recorded if nothing waits.
        let of_all = state.bytes > 0 && state.bytes + bytes > MOST;
        if of_all || (held > 0 && held + bytes > OF_ONE) {
            Arc::make_mut(&mut record).shorten();
            bytes = record.bytes();
        }
        state.bytes += bytes;
        *state.shares.entry(share(&record)).or_default() += bytes;
        let shortened = record.shortened;
        state.queue.push_back(Work::Pass(record, bytes));
        self.shared.changed.notify_all();
        let problem = state.problem.as_ref();
        match problem {
            Some(problem) => Some(format!("passes are not recorded: {problem}")),
            None => shortened.then(|| {
                "passes are recorded without their long texts: more is said than can be written".into()
            }),
        }
    }

    /// Records a policy's manifest and bytes, for `edges` and for replay.
    pub fn policy(&self, digest: &str, manifest: &Manifest, bytes: &[u8]) {
        self.push(Work::Policy(
            digest.to_owned(),
            Box::new(manifest.clone()),
            bytes.to_vec(),
        ));
    }

    /// Records what a binding says, for replay.
    pub fn binding(&self, binding: &Binding) {
        self.push(Work::Binding(
            binding.name.clone(),
            binding.digest.to_string(),
            Box::new(binding.spec.clone()),
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
                    let share = share(&record);
                    let held = state.shares.get_mut(&share);
                    if held.is_some_and(|held| {
                        *held -= bytes;
                        *held == 0
                    }) {
                        state.shares.remove(&share);
                    }
                }
                Work::Policy(digest, manifest, bytes) => {
                    if let Err(error) = recorder.policy(&digest, &manifest, &bytes) {
                        tracing::error!("the policy is not recorded: {error:#}");
                    }
                }
                Work::Binding(name, digest, spec) => {
                    if let Err(error) = recorder.binding(name, digest, &spec) {
                        tracing::error!("the binding is not recorded: {error:#}");
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
    }
}

fn share(record: &PassRecord) -> Share {
    (record.key.binding.clone(), record.key.namespace.clone())
}

#[cfg(test)]
mod tests {
    use polity_core::contract::{Ask, Entry, Kind, Question, Request};
    use polity_core::key::{Key, PassId};
    use polity_core::record::{Outcome, RoleRecord};
    use polity_core::time::Now;
    use serde_json::json;

    use super::*;
    use crate::recording::{Recording, Unread};

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
            binding: "".into(),
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
            shortened: false,
        })
    }

    #[test]
    fn what_was_given_is_written_in_its_order_when_it_ends_and_what_is_too_much_loses_its_texts() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = Recorder::open(folder.path(), true, "test").expect("a recording");
        let thread = RecordingThread::start(recorder).expect("a thread");
        let large = usize::try_from(OF_ONE).expect("a length");
        let mut shortened = Vec::new();
        // While this is held, the thread takes nothing.
        let mut state = thread.shared.lock();
        state.shares.insert(("b".into(), None), 1);
        state.bytes = 1;
        drop(state);
        for number in 0..4 {
            shortened.push(thread.pass(pass(number, large)).is_some());
        }
        for number in 4..40 {
            assert_eq!(thread.pass(pass(number, 1)), None);
        }
        assert_eq!(shortened, [true; 4]);
        drop(thread);
        let (recording, mut found) = (Recording::open(folder.path()).expect("it is there"), Vec::new());
        let unread = recording
            .passes(|record| found.push((record.pass.0, record.shortened, record.roles[0].journal.len())))
            .expect("passes");
        let expected = (0..40).map(|number| (number, number < 4, usize::from(number >= 4)));
        assert_eq!((unread, found), (Unread::default(), expected.collect()));
    }

    #[test]
    fn a_thread_that_has_ended_holds_nobody_up() {
        let shared = Arc::new(Shared::default());
        drop(Ended(&shared));
        let thread = RecordingThread { shared, thread: None };
        assert!(
            thread
                .pass(pass(1, 1))
                .is_some_and(|why| why.contains("has ended"))
        );
    }
}
