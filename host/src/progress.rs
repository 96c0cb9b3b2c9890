//! What a person sees while a host runs: one line for each change of an object.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use polity_core::binding::{Binding, PolicyId};
use polity_core::contract::Manifest;
use polity_core::key::Key;
use polity_core::record::PassRecord;
use polity_core::time::{Boot, millis};
use serde_json::{Value, json};

use crate::display::{cut, escaped_json, printable, shortened};
use crate::edges;
use crate::observer::Observer;
use crate::overview::{Overview, Standing};
use crate::recording::RecordingThread;
use crate::said::Said;
use crate::screen::{Stderr, above};

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// One JSON document per line.
    Json,
}

/// Prints the progress and records every pass.
pub struct Progress {
    format: Format,
    started: Boot,
    overview: Arc<Overview>,
    recording: Option<RecordingThread>,
    said: Said,
    manifests: BTreeMap<String, Manifest>,
    last: BTreeMap<Key, String>,
    bold: bool,
    ids: bool,
    /// The width of the column with the objects.
    width: usize,
    /// Whether changes of objects are printed. A live table shows them in another way.
    lines: bool,
}

impl Progress {
    /// `started` is the time from which the printed times count.
    pub fn new(
        format: Format,
        started: Boot,
        overview: Arc<Overview>,
        recording: Option<RecordingThread>,
    ) -> Self {
        let bold = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Progress {
            format,
            started,
            overview,
            recording,
            said: Said::default(),
            manifests: BTreeMap::new(),
            last: BTreeMap::new(),
            bold,
            ids: false,
            width: 0,
            lines: true,
        }
    }

    /// The same without a line for each change, for a host whose objects are shown in a live table.
    pub(crate) fn without_lines(mut self) -> Self {
        self.lines = false;
        self
    }

    /// Adds the ids of the edges that each pass took to its line.
    pub(crate) fn with_ids(mut self, ids: bool) -> Self {
        self.ids = ids;
        self
    }

    fn line(&mut self, record: &PassRecord, standing: &Standing) {
        let edges = edges::taken(record, &self.manifests);
        let Standing { phase, then, .. } = standing;
        // A pass with the same result as the one before is no news.
        let news = match self.format {
            Format::Text if !self.ids => format!("{phase} {} {then}", standing.event),
            _ => format!("{phase} {} {then}", edges.join(" ")),
        };
        if self.last.insert(record.key.clone(), news.clone()) == Some(news) {
            return;
        }
        let at = millis(record.ended.boot - self.started);
        let kind = &record.kind.kind;
        match self.format {
            Format::Json => print_json(&json!({
                "at": at, "kind": kind, "object": record.key.to_string(), "phase": phase, "event": standing.event,
                "edges": edges, "next": then.to_string(), "pass": record.pass,
            })),
            Format::Text => {
                let object = format!("{kind} {}", record.key);
                let wide = printable(&object).chars().count();
                self.width = self.width.max(wide).min(OBJECT);
                let mut line = line(at, &object, self.width, standing);
                if self.bold {
                    let object = printable(&object);
                    line = line.replacen(&object, &format!("\x1b[1m{object}\x1b[0m"), 1);
                }
                if self.ids {
                    line = format!("{line}  [{}]", printable(&edges.join(" ")));
                }
                print(&line);
            }
        }
    }
}

/// The most characters of a line, so that a log of them can be read.
const LINE: usize = 140;
/// The most characters of an object's kind and name for which the columns after it line up.
const OBJECT: usize = 28;
/// The width of the column with the phases. A longer phase moves the columns after it.
const PHASE: usize = 13;
/// The most characters of a phase, which whoever may write a status chooses.
const LONGEST_PHASE: usize = 32;

/// The line of a change: its time, the object, its phase, what happened, and what comes next. What happened and the reason for
/// what comes next are cut so that the line has at most [`LINE`] characters; the name and what comes next never are.
fn line(at: u64, object: &str, width: usize, standing: &Standing) -> String {
    let (object, phase) = (printable(object), cut(&printable(&standing.phase), LONGEST_PHASE));
    let (event, next) = (printable(&standing.event), printable(&standing.then.next));
    let head = format!(
        "{:>8.1}s  {object:<width$}  {phase:<PHASE$}  ",
        at as f64 / 1_000.0
    );
    let why = standing.then.why.as_deref().map(printable);
    let fixed = [&*head, "  → ", &next, if why.is_some() { " ()" } else { "" }];
    let room = LINE.saturating_sub(fixed.iter().map(|part| part.chars().count()).sum());
    // Neither text takes more than half of the room if the other one needs it.
    let of_why = room.saturating_sub(event.chars().count()).max(room / 2);
    let why = why.map_or_else(String::new, |why| format!(" ({})", cut(&why, of_why)));
    let event = cut(&event, room.saturating_sub(why.chars().count().saturating_sub(3)));
    let gap = if event.is_empty() { "" } else { "  " };
    format!("{head}{event}{gap}→ {next}{why}")
}

impl Observer for Progress {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        let standing = self.overview.passed(record, &self.manifests);
        if self.lines {
            self.line(record, &standing);
        }
        if let Some(recording) = &self.recording {
            let wrong = recording.pass(record.clone());
            let news = self
                .said
                .news("the recording", wrong.as_deref(), record.ended.boot);
            if let Some(news) = news {
                say(self.format, &news);
            }
        }
    }

    fn forgotten(&mut self, key: &Key) {
        self.overview.forgotten(key);
        self.last.remove(key);
    }

    fn bound(&mut self, binding: &Binding) {
        if let Some(recording) = &self.recording {
            recording.binding(binding);
        }
    }

    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]) {
        let manifest = policy.manifest();
        let known = self.manifests.insert(id.0.to_string(), (**manifest).clone());
        if let Some(recording) = &self.recording {
            recording.policy(&id.0, manifest, bytes);
        }
        // A changed binding names its other policies again.
        if known.is_some() {
            return;
        }
        self.report(&format!(
            "{} policy {} {} is loaded ({:.12}); {}",
            manifest.role.as_str(),
            manifest.name,
            manifest.version,
            id.0,
            memory(policy.memory())
        ));
    }

    fn policy_forgotten(&mut self, id: &PolicyId) {
        self.manifests.remove(&*id.0);
        if let Some(recording) = &self.recording {
            recording.policy_forgotten(&id.0);
        }
    }

    fn report(&mut self, message: &str) {
        say(self.format, message);
    }
}

/// The memory use of a policy in words. Each step begins with fresh memory, and all of it is cleared or
/// checked each time. Most of it is the stack, whose size the linker chooses.
fn memory(bytes: u64) -> String {
    const STACK: u64 = 1 << 20;
    let begins = format!("a step begins with {} KiB of memory", bytes.div_ceil(1 << 10));
    if bytes > STACK {
        format!(
            "{begins}, which costs processor time: a policy built with the default stack of 1 MiB is better linked with \
         -zstack-size=65536"
        )
    } else {
        begins
    }
}

/// The most characters of one message: an object's name can be very long.
const MESSAGE: usize = 4_096;

/// Prints a message on standard error, so that standard output is only a list of changes. If it cannot be written,
/// because the reader went away or a disk is full, it is lost: that must not end a host.
pub fn say(format: Format, message: &str) {
    let message = shortened(message, MESSAGE);
    let line = match format {
        Format::Text => format!("polity: {}\n", printable(&message)),
        Format::Json => format!("{}\n", escaped_json(&json!({ "message": message }))),
    };
    let _ = Stderr.write_all(line.as_bytes());
}

/// Prints a line on standard output. If it cannot be written, it is lost, as for [`say`].
pub fn print(line: &dyn std::fmt::Display) {
    above(|| {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    });
}

/// Prints a JSON document as one line on standard output.
pub fn print_json(document: &impl serde::Serialize) {
    print(&escaped_json(document));
}

/// Prints a manifest on standard output, ready for `kubectl apply -f -`.
pub fn show(manifest: &Value, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => print_json(manifest),
        Format::Text => print(&format_args!(
            "---\n{}",
            serde_saphyr::to_string(manifest)?.trim_end()
        )),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::Then;
    use crate::overview::{Costs, State};

    #[test]
    fn a_line_is_as_long_as_a_log_shows_and_keeps_the_name_and_what_comes_next() {
        let text = |length: usize| "long w\u{f6}rds ".repeat(length / 10);
        for (event, why, phase) in [
            (0, 0, 0),
            (500, 0, 9),
            (0, 500, 9),
            (70, 500, 9),
            (500, 40, 500),
            (500, 500, 40),
        ] {
            let standing = Standing {
                kind: "Machine".into(),
                group: "example.org".into(),
                phase: text(phase),
                state: State::Retrying,
                event: text(event),
                then: Then {
                    next: "retries in 1m30s".to_owned(),
                    why: (why > 0).then(|| text(why)),
                },
                ended: polity_core::time::Now::default(),
                costs: Costs::default(),
            };
            let line = line(123_456_789, "Machine team-a/machine-03", 28, &standing);
            assert!(line.chars().count() <= LINE, "{line}");
            assert!(
                line.contains("Machine team-a/machine-03 ") && line.contains("\u{2192} retries in 1m30s"),
                "{line}"
            );
            assert!(
                event < 500 || why > 0 || line.chars().count() > LINE - 10,
                "{line}"
            );
            assert!(why < 500 || line.ends_with("\u{2026})"), "{line}");
        }
    }

    #[test]
    fn a_policy_with_the_default_stack_is_told_how_to_do_with_less() {
        assert_eq!(memory(192 << 10), "a step begins with 192 KiB of memory");
        let much = memory(17 << 16);
        assert!(
            much.starts_with("a step begins with 1088 KiB of memory, "),
            "{much}"
        );
        assert!(much.ends_with("linked with -zstack-size=65536"), "{much}");
    }

    /// Set where this program runs as the process whose standard error is a full disk.
    const IS_CHILD: &str = "POLITY_TEST_FULL_STDERR";

    #[test]
    fn a_message_that_cannot_be_written_is_lost_and_ends_nothing() {
        if std::env::var_os(IS_CHILD).is_some() {
            say(Format::Text, "a message");
            say(Format::Json, "a message");
            let log = tracing_subscriber::fmt().with_writer(|| Stderr).finish();
            tracing::subscriber::with_default(log, || tracing::warn!("a message"));
            return;
        }
        let name = "progress::tests::a_message_that_cannot_be_written_is_lost_and_ends_nothing";
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let child = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", name])
            .env(IS_CHILD, "1")
            .stderr(full.expect("it opens"))
            .output();
        let child = child.expect("it runs");
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    fn a_message_longer_than_anybody_reads_is_cut() {
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}
