//! The recording that a command reads, and how its objects stand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use polity_core::contract::Manifest;
use polity_core::key::Key;
use polity_core::record::PassRecord;

use crate::overview::{Overview, Standing};
use crate::progress::{Format, say};
use crate::recording::{self, Recording};
use crate::waiting::Waiting;

/// The recording that a command reads.
#[derive(Debug, Args)]
pub(super) struct Recorded {
    /// The folder of the recording. The default is the recording of the last `polity run`.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
}

/// The passes of the recording that a command reads.
#[derive(Debug, Args)]
pub(super) struct RecordedPasses {
    #[command(flatten)]
    recorded: Recorded,
    #[command(flatten)]
    sessions: Sessions,
}

/// The sessions that a command reads.
#[derive(Debug, Args)]
pub(super) struct Sessions {
    /// Read all sessions. Each start of a host on the folder of a recording begins a new session; without this option only
    /// the newest is read. An object that had no pass since the last start is only in an earlier one.
    #[arg(long)]
    pub(super) all: bool,
}

impl Sessions {
    /// Hands every pass of these sessions to `see`. Returns how many lines cannot be read.
    pub(super) fn passes(&self, of: &Recording, see: impl FnMut(PassRecord)) -> Result<u64> {
        if self.all {
            of.passes(see)
        } else {
            of.newest_session(see)
        }
    }

    /// What else can be read, for the error that something is not found.
    pub(super) fn hint(&self) -> &'static str {
        if self.all {
            ""
        } else {
            " since the last start of a host; --all also reads the sessions before"
        }
    }
}

impl Recorded {
    /// Opens the recording.
    pub(super) fn open(&self) -> Result<(PathBuf, Recording)> {
        let folder = self.recordings.clone().map_or_else(recording::latest, Ok)?;
        let recording = Recording::open(&folder)?;
        Ok((folder, recording))
    }

    /// What objects wait for now, or waited for when their host ended. Warns if that cannot be read.
    pub(super) fn waiting(format: Format, folder: &Path) -> Waiting {
        let waiting = Recording::open(folder).and_then(|recording| Waiting::read(&recording));
        waiting.unwrap_or_else(|e| {
            say(format, &format!("{e:#}"));
            Waiting::default()
        })
    }
}

impl RecordedPasses {
    /// How each object stood after its last recorded pass.
    pub(super) fn objects(&self, format: Format) -> Result<Vec<(Key, Standing)>> {
        let overview = Overview::default();
        self.passes(format, |record, manifests| {
            overview.passed(&record, manifests);
        })?;
        Ok(overview.objects())
    }

    /// See [`Sessions::hint`].
    pub(super) fn hint(&self) -> &'static str {
        self.sessions.hint()
    }

    /// Hands every recorded pass to `see`, with the manifests of all policies. Warns if passes cannot be read.
    /// Returns the folder and the manifests.
    pub(super) fn passes(
        &self,
        format: Format,
        mut see: impl FnMut(PassRecord, &BTreeMap<String, Manifest>),
    ) -> Result<(PathBuf, BTreeMap<String, Manifest>)> {
        let (folder, recording) = self.recorded.open()?;
        let manifests = recording.manifests()?;
        let damaged = self
            .sessions
            .passes(&recording, |record| see(record, &manifests))?;
        warn_of_damage(format, &folder, damaged);
        Ok((folder, manifests))
    }
}

/// A kind as people write it: `Machine`, `machines`, or with its group `machine.capv.polity.dev`.
pub(super) struct KindName<'a> {
    name: &'a str,
    group: Option<&'a str>,
}

impl<'a> KindName<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        match text.split_once('.') {
            Some((name, group)) => KindName {
                name,
                group: Some(group),
            },
            None => KindName {
                name: text,
                group: None,
            },
        }
    }

    /// Whether this names a kind.
    pub(super) fn fits(&self, kind: &str, group: &str) -> bool {
        let plural = format!("{kind}s");
        (kind.eq_ignore_ascii_case(self.name) || plural.eq_ignore_ascii_case(self.name))
            && self.group.is_none_or(|wanted| wanted.eq_ignore_ascii_case(group))
    }
}

/// Warns that a part of the recording cannot be read, so that passes may be missing.
pub(super) fn warn_of_damage(format: Format, folder: &Path, damaged: u64) {
    if damaged > 0 {
        let lines = if damaged == 1 { "line" } else { "lines" };
        let folder = folder.display();
        say(
            format,
            &format!("{damaged} damaged {lines} of the recording {folder} cannot be read"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_named_in_the_singular_or_plural_and_with_its_group_if_wanted() {
        let fits = |name: &str| KindName::new(name).fits("Machine", "capv.polity.dev");
        for name in ["Machine", "machines", "MACHINE.capv.polity.dev"] {
            assert!(fits(name), "{name}");
        }
        for name in ["Machin", "machiness", "machine.mcm.polity.dev", ""] {
            assert!(!fits(name), "{name}");
        }
    }
}
