//! Tells people what takes long, so that nobody takes a host that works for one that hangs.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::screen::Live;

/// How often a terminal shows how far the work is.
const EVERY: Duration = Duration::from_millis(200);

/// Where messages for people go.
pub(crate) type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Ends a wait when it is dropped.
pub(crate) struct Waits {
    _ends: Sender<()>,
}

/// Runs `tell` on a thread of its own, unless the returned value is dropped within this time. Its argument disconnects when
/// the value is dropped.
pub(crate) fn after(time: Duration, tell: impl FnOnce(&Receiver<()>) + Send + 'static) -> Waits {
    let (ends, ended) = channel();
    let wait = move || {
        if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
            tell(&ended);
        }
    };
    // Without a thread nothing is told, and the work goes on.
    let _ = std::thread::Builder::new().name("slow".to_owned()).spawn(wait);
    Waits { _ends: ends }
}

/// Work of one sort that is under way at the same time, for example the compilation of policies. All of it is told in one
/// line.
pub(crate) struct Slow {
    /// For example `compiling`.
    verb: &'static str,
    /// How long the work may take before it is told.
    time: Duration,
    report: Report,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The names of what is under way, each as often as it is.
    names: BTreeMap<String, usize>,
    ended: usize,
    waits: Option<Waits>,
}

impl Slow {
    /// Nothing is under way yet.
    pub(crate) fn new(verb: &'static str, time: Duration, report: Report) -> Arc<Self> {
        Arc::new(Slow {
            verb,
            time,
            report,
            state: Mutex::default(),
        })
    }

    /// Takes in a piece of work. It ends when the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, name: &str) -> Under {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.names.entry(name.to_owned()).or_default() += 1;
        if state.waits.is_none() {
            let slow = self.clone();
            state.waits = Some(after(self.time, move |ended| slow.tell(ended)));
        }
        Under {
            slow: self.clone(),
            name: name.to_owned(),
        }
    }

    fn tell(&self, ended: &Receiver<()>) {
        let names: Vec<String> = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.names.keys().cloned().collect()
        };
        (self.report)(&format!("{} {}", self.verb, names.join(", ")));
        let Some(live) = Live::begin_if_free() else {
            return;
        };
        let began = Instant::now();
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let (done, left) = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                (state.ended, state.names.len())
            };
            let took = began.elapsed().as_secs();
            live.show(&[format!("{}: {done} of {}, {took}s", self.verb, done + left)]);
        }
    }
}

/// A piece of work that is under way.
pub(crate) struct Under {
    slow: Arc<Slow>,
    name: String,
}

impl Drop for Under {
    fn drop(&mut self) {
        let mut state = self.slow.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let Some(count) = state.names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                state.names.remove(&self.name);
                state.ended += 1;
            }
        }
        if state.names.is_empty() {
            (state.waits, state.ended) = (None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_told_once_with_all_names_and_other_work_is_not() {
        let (says, said) = channel();
        let says = Mutex::new(says);
        let report: Report = Arc::new(move |text: &str| {
            let _ = says.lock().expect("a lock").send(text.to_owned());
        });
        let quick = Slow::new("compiling", Duration::from_hours(1), report.clone());
        drop(quick.begin("none"));
        let slow = Slow::new("compiling", Duration::ZERO, report.clone());
        let state = slow.state.lock().expect("a lock");
        let (one, other) = (slow.clone(), slow.clone());
        // Both begin before the thread that tells them can look.
        let begun = std::thread::spawn(move || (one.begin("b"), other.begin("a")));
        drop(state);
        let begun = begun.join().expect("begun");
        let first = said.recv().expect("told");
        assert!(["compiling a, b", "compiling b"].contains(&&*first), "{first}");
        drop(begun);
        assert!(slow.state.lock().expect("a lock").waits.is_none());
        drop((quick, slow, report));
        assert_eq!(said.recv().ok(), None, "nothing else is told");
    }
}
