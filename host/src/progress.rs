//! What a person sees while a host runs: a line for each change of an object.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use polity_core::binding::PolicyId;
use polity_core::contract::{Manifest, Next};
use polity_core::key::Key;
use polity_core::record::{Outcome, PassRecord};
use serde_json::{Value, json};

use crate::driver::Observer;
use crate::edges;
use crate::recording::Recorder;
use crate::settled::Ends;

/// How output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

/// Prints what happens and records every pass.
pub struct Progress {
    format: Format,
    started: u64,
    ends: Arc<Ends>,
    recorder: Option<Recorder>,
    manifests: BTreeMap<String, Manifest>,
    last: BTreeMap<Key, String>,
    bold: bool,
}

impl Progress {
    /// `started` in boot milliseconds: lines count from there.
    pub fn new(format: Format, started: u64, ends: Arc<Ends>, recorder: Option<Recorder>) -> Self {
        let bold = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Progress {
            format,
            started,
            ends,
            recorder,
            manifests: BTreeMap::new(),
            last: BTreeMap::new(),
            bold,
        }
    }

    fn line(&mut self, record: &PassRecord) {
        let phase = phase(record);
        let edges = edges::taken(record, &self.manifests);
        let then = then(record);
        // A pass that found everything as the one before it is no news.
        let news = format!("{phase} {} {then}", edges.join(" "));
        if self.last.insert(record.key.clone(), news.clone()) == Some(news) {
            return;
        }
        let at = record.ended.boot.saturating_sub(self.started);
        let kind = &record.kind.kind;
        match self.format {
            Format::Json => print(&json!({
                "at": at, "kind": kind, "object": record.key.to_string(), "phase": phase,
                "edges": edges, "next": then, "pass": record.pass,
            })),
            Format::Text => {
                let (on, off) = if self.bold {
                    ("\x1b[1m", "\x1b[0m")
                } else {
                    ("", "")
                };
                let object = printable(&record.key.to_string());
                print(&format_args!(
                    "{:>8.1}s  {kind} {on}{object}{off}  {:<20} {}  → {then}",
                    at as f64 / 1_000.0,
                    printable(&phase),
                    edges.join(" "),
                ));
            }
        }
    }
}

impl Observer for Progress {
    fn passed(&mut self, record: &PassRecord) {
        self.ends.passed(record);
        self.line(record);
        if let Some(recorder) = &mut self.recorder
            && let Err(e) = recorder.pass(record)
        {
            tracing::error!("recording stops: {e:#}");
            self.recorder = None;
        }
    }

    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]) {
        let manifest = policy.manifest();
        self.manifests.insert(id.0.to_string(), (**manifest).clone());
        if let Some(recorder) = &mut self.recorder
            && let Err(e) = recorder.policy(&id.0, manifest, bytes)
        {
            tracing::error!("the policy is not recorded: {e:#}");
        }
        self.says(&format!(
            "policy {} {} is loaded ({:.12})",
            manifest.name, manifest.version, id.0
        ));
    }

    fn says(&mut self, message: &str) {
        say(self.format, message);
    }
}

/// Says something to whoever watches: on standard error, so that standard output stays a list of changes.
pub fn say(format: Format, message: &str) {
    match format {
        Format::Text => eprintln!("polity: {}", printable(message)),
        Format::Json => eprintln!("{}", json!({ "message": message })),
    }
}

/// Writes a line to standard output; a reader that went away is no error.
pub fn print(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// What comes of an object's text on a terminal: control characters are escaped, so that no name can move the cursor.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect()
}

/// The object's phase after a pass.
pub fn phase(record: &PassRecord) -> String {
    let patched = record.roles.iter().rev().find_map(|role| {
        let patch: Value = serde_json::from_str(role.conclusion.as_ref()?.patch.as_deref()?).ok()?;
        patch["status"]["phase"].as_str().map(str::to_owned)
    });
    let before = || {
        let object: Value = serde_json::from_str(record.object.as_deref()?).ok()?;
        object["status"]["phase"].as_str().map(str::to_owned)
    };
    patched.or_else(before).unwrap_or_else(|| "-".into())
}

/// What comes after a pass, in words.
pub fn then(record: &PassRecord) -> String {
    let wait = record.wait.map(duration);
    let in_time = |what: &str| {
        wait.as_ref()
            .map_or_else(|| what.to_owned(), |wait| format!("{what} in {wait}"))
    };
    match (&record.outcome, &record.next) {
        (Outcome::Discarded(why), _) => format!("{} (discarded: {why})", in_time("again")),
        (Outcome::Faulted, _) => {
            let fault = record.roles.iter().find_map(|role| role.fault.as_ref());
            let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
            format!("{} (quarantined{fault})", in_time("again"))
        }
        (Outcome::Failed(failure), _) => format!("{} (not published: {failure})", in_time("again")),
        (Outcome::LeaseLost, _) => "when the lease is held again".into(),
        (Outcome::Denied, _) => in_time("denied, looks again"),
        (Outcome::Released, _) => "released".into(),
        (Outcome::Published, Some(Next::Settled(_))) => in_time("settled, looks again"),
        (
            Outcome::Published,
            Some(Next::Retry {
                failure: Some(failure),
                ..
            }),
        ) => {
            format!("{} ({failure})", in_time("retries"))
        }
        (Outcome::Published, _) => in_time("next"),
    }
}

/// Milliseconds in words: `20s`, `1m30s`, `250ms`.
pub fn duration(ms: u64) -> String {
    match (ms / 60_000, ms % 60_000) {
        (0, ms) if ms < 1_000 => format!("{ms}ms"),
        (0, ms) if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        (0, ms) => format!("{:.1}s", ms as f64 / 1_000.0),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, ms) => format!("{minutes}m{}s", ms / 1_000),
    }
}
