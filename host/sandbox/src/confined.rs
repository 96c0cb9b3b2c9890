//! Work on untrusted bytes in a process of its own: this program again, with limits of processor time and
//! memory that the kernel enforces.
//!
//! ```text
//! Confined::run(task, input) ── stdin ──▶ answer(bounds, work) ── stdout ──▶ the result, a refusal, or why it was stopped
//! ```
//!
//! # Guarantees
//!
//! - The work always ends, and of its memory only the answer reaches the caller.
//! - The process has ended when [`Confined::run`] returns. It also ends when the thread that waits for it
//!   ends.
//! - The process inherits no environment and opens no file.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};

/// This very program, even if another file has its path by now.
const ITSELF: &str = "/proc/self/exe";
/// The limit of real time, as a multiple of the processor time: the machine may be busy, and the work has a
/// low priority.
const REAL: u32 = 10;
/// The nice value of the process, so that the threads of the host come first.
const NICE: i32 = 10;
/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;
/// The first byte of an answer: a result or a refusal.
const MADE: u8 = 0;
const REFUSED: u8 = 1;
/// The bytes before an answer's text: its first byte and its length.
const HEAD: usize = 9;

/// The limits of a confined process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The limit of processor time, in whole seconds.
    pub processor: Duration,
    /// The limit of address space in bytes.
    pub memory: u64,
    /// The limit of the answer in bytes.
    pub answer: u64,
}

/// How to start this program as a confined process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    program: PathBuf,
}

/// The limit that stopped a confined process. The same work may succeed later: with more time, or on a
/// machine that is less busy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The limit of processor time, or ten times as much real time.
    #[error("it took more than {} s", .0.as_secs())]
    Time(Duration),
    /// The limit of memory, or the stack.
    #[error("it took more than {} MiB of memory", .0 >> 20)]
    Memory(u64),
    /// The tools panicked: the bytes are damaged, or there was no memory.
    #[error("the tools that read it panicked: it is damaged, or it needs more than {} MiB of memory", .0 >> 20)]
    Panicked(u64),
    /// Any other failure.
    #[error("the confined process failed: {0}")]
    Failed(String),
}

impl Confined {
    /// Starts the program that runs now.
    pub fn itself() -> std::io::Result<Self> {
        let program = PathBuf::from(ITSELF);
        if program.exists() {
            Ok(Confined { program })
        } else {
            std::env::current_exe().map(|program| Confined { program })
        }
    }

    /// Starts another program that knows the same tasks.
    pub fn program(program: impl Into<PathBuf>) -> Self {
        Confined {
            program: program.into(),
        }
    }

    /// Hands `input` to a process that runs `task`. Returns the result, or the text of a refusal.
    pub fn run(
        &self,
        task: &[&str],
        input: &[u8],
        bounds: Bounds,
    ) -> Result<Result<Vec<u8>, String>, Stopped> {
        let failed = |e: std::io::Error| Stopped::Failed(e.to_string());
        let mut child = Command::new(&self.program)
            .args(["confined"])
            .args(["--processor", &bounds.processor.as_secs().to_string()])
            .args(["--memory", &bounds.memory.to_string()])
            .args(["--answer", &bounds.answer.to_string()])
            .args(task)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let answer = exchange(&mut child, input, bounds);
        let status = child.wait().map_err(failed)?;
        match read(&answer.map_err(failed)?.ok_or(Stopped::Time(bounds.processor))?) {
            Some((MADE, made)) => Ok(Ok(made.to_vec())),
            Some((_, words)) => Ok(Err(String::from_utf8_lossy(words).into_owned())),
            None => Err(stopped_by(status, bounds)),
        }
    }
}

/// Returns what the process writes until it ends; `None` if that takes too long. The process is dead
/// afterwards.
fn exchange(child: &mut Child, input: &[u8], bounds: Bounds) -> std::io::Result<Option<Vec<u8>>> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (sender, receiver) = mpsc::channel();
    let most = bounds.answer.saturating_add(HEAD as u64);
    std::thread::scope(|scope| {
        let feeds = std::thread::Builder::new().spawn_scoped(scope, move || {
            // If the process ends without reading, its exit status tells why.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        let reads = std::thread::Builder::new().spawn_scoped(scope, move || {
            let mut answer = Vec::new();
            let _ = stdout.map(|stdout| stdout.take(most).read_to_end(&mut answer));
            let _ = sender.send(answer);
        });
        let answer = match feeds.and(reads) {
            Ok(_) => Ok(receiver.recv_timeout(bounds.processor.saturating_mul(REAL)).ok()),
            Err(e) => Err(e),
        };
        // The process is killed even if it has answered: nothing that it still does is wanted. The two
        // threads end with it.
        let _ = child.kill();
        answer
    })
}

/// Reads an answer: a first byte, the length, and that many bytes. `None` if it is cut off.
fn read(answer: &[u8]) -> Option<(u8, &[u8])> {
    let (head, bytes) = answer.split_at_checked(HEAD)?;
    let (kind, length) = head.split_first()?;
    let length = u64::from_le_bytes(length.try_into().ok()?);
    (length == bytes.len() as u64).then_some((*kind, bytes))
}

fn stopped_by(status: ExitStatus, bounds: Bounds) -> Stopped {
    let is = |signal: Signal| status.signal() == Some(signal.as_raw());
    match status.signal() {
        Some(_) if is(Signal::XCPU) => Stopped::Time(bounds.processor),
        // The process aborts when memory runs out, traps at the end of its stack, and is killed by a machine
        // without memory.
        Some(_) if is(Signal::ABORT) || is(Signal::SEGV) || is(Signal::BUS) || is(Signal::KILL) => {
            Stopped::Memory(bounds.memory)
        }
        None if status.code() == Some(PANICKED) => Stopped::Panicked(bounds.memory),
        _ => Stopped::Failed(status.to_string()),
    }
}

/// The confined process itself: sets its limits, reads its input, does the work, and writes the result.
pub fn answer(bounds: Bounds, work: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, String>) -> ExitCode {
    match confine(bounds).and_then(|()| work_and_write(work)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Sets limits that this process cannot raise again, as far as the kernel allows that.
fn confine(bounds: Bounds) -> std::io::Result<()> {
    let limit = |resource, most: u64| {
        let new = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, new)
    };
    // The process must not outlive the thread that waits for it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let seconds = bounds.processor.as_secs().max(1);
    let processor = Rlimit {
        // At the soft limit the kernel sends a signal of its own (SIGXCPU), which tells which limit it was.
        // At the hard limit it sends SIGKILL, which does not.
        current: Some(seconds),
        maximum: Some(seconds.saturating_add(1)),
    };
    setrlimit(Resource::Cpu, processor)?;
    limit(Resource::As, bounds.memory)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nofile, 3)?;
    rustix::process::nice(NICE)?;
    Ok(())
}

fn work_and_write(work: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, String>) -> std::io::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input)?;
    let (kind, bytes) = match work(input) {
        Ok(made) => (MADE, made),
        Err(words) => (REFUSED, words.into_bytes()),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&[kind])?;
    stdout.write_all(&(bytes.len() as u64).to_le_bytes())?;
    stdout.write_all(&bytes)?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        processor: Duration::from_secs(1),
        memory: 1 << 30,
        answer: 1 << 10,
    };

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let whole = [&[MADE][..], &3_u64.to_le_bytes(), b"abc"].concat();
        assert_eq!(read(&whole), Some((MADE, &b"abc"[..])));
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error() {
        let none = Confined::program("/nowhere/polity");
        assert!(matches!(
            none.run(&["compile"], b"", BOUNDS),
            Err(Stopped::Failed(_))
        ));
    }

    #[test]
    fn a_program_that_says_nothing_has_failed_and_is_no_answer() {
        let other = Confined::program("/bin/false");
        assert!(matches!(
            other.run(&["compile"], &[0; 1 << 20], BOUNDS),
            Err(Stopped::Failed(_))
        ));
    }
}
