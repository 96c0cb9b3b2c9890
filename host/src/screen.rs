//! The terminal of a host that shows a live table: the table stands below everything else that is printed.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the terminal is drawn, at most, a second.
const DRAWN: u8 = 5;

/// The live part of the terminal, if it has one. A process has one terminal, so this is one for the process.
static LIVE: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A live part at the bottom of the terminal. When it is dropped, its last content stays on the screen.
pub(crate) struct Live {
    bar: ProgressBar,
    /// Whether the last content is cleared instead.
    is_cleared: bool,
}

impl Live {
    /// Begins the live part.
    pub(crate) fn begin() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout_with_hz(DRAWN));
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Live {
            bar,
            is_cleared: false,
        }
    }

    /// Begins a live part that leaves nothing behind. `None` without a terminal, or while there is a live part already.
    pub(crate) fn begin_if_free() -> Option<Self> {
        let is_terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        let is_taken = LIVE.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        (is_terminal && !is_taken).then(|| {
            let mut live = Live::begin();
            live.is_cleared = true;
            live
        })
    }

    /// Shows these lines in place of the earlier ones.
    pub(crate) fn show(&self, lines: &[String]) {
        self.bar.set_message(lines.join("\n"));
        self.bar.tick();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.is_cleared {
            self.bar.finish_and_clear();
        } else {
            self.bar.abandon();
        }
    }
}

/// Prints above the live part, or just prints if there is none.
pub(crate) fn above<T>(print: impl FnOnce() -> T) -> T {
    let bar = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Standard error, above the live part. What cannot be written is lost, and no error: `tracing-subscriber` would report it
/// with `eprintln!`, which panics.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        above(|| {
            let _ = io::stderr().lock().write_all(text);
        });
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().lock().flush();
        Ok(())
    }
}
