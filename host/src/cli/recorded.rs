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
use crate::recording::{self, BEHIND, ReadLimits, Recording, Unread};

/// The most objects of a recording that are kept in memory.
pub(super) const OBJECTS: usize = 50_000;

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

/// What a command reads of a recording.
#[derive(Debug, Args)]
pub(super) struct Sessions {
    /// Read all sessions. Each start of a host on the folder of a recording begins a new session; without this option only
    /// the newest is read. An object that had no pass since the last start is only in an earlier one.
    #[arg(long)]
    pub(super) all: bool,
    /// The limits within which the recording is read: those of its bindings, and the sizes of its passes and files. Somebody
    /// else may have written it.
    #[arg(long, value_enum, value_name = "LIMITS", default_value_t)]
    pub(super) limits: ReadLimits,
}

impl Sessions {
    /// Opens a recording.
    pub(super) fn open(&self, folder: &Path) -> Result<Recording> {
        Ok(Recording::open(folder)?.within(self.limits))
    }

    /// Hands every pass of these sessions to `see`. Returns what is not read.
    pub(super) fn passes(&self, of: &Recording, see: impl FnMut(PassRecord)) -> Result<Unread> {
        if self.all {
            of.passes(see)
        } else {
            of.newest_session(see)
        }
    }

    /// Warns that a part of the recording is not read, so that passes may be missing.
    pub(super) fn warn_of(&self, format: Format, folder: &Path, unread: &Unread) {
        let folder = folder.display();
        let lines = |count: u64| if count == 1 { "line" } else { "lines" };
        if unread.damaged > 0 {
            let (damaged, lines) = (unread.damaged, lines(unread.damaged));
            say(
                format,
                &format!("{damaged} damaged {lines} of the recording {folder} cannot be read"),
            );
        }
        for (why, count) in &unread.left_out {
            // Of a segment, nobody reads more.
            let hint = if *why == BEHIND { "" } else { self.limits.hint() };
            let lines = lines(*count);
            say(
                format,
                &format!("{count} {lines} of the recording {folder} left out: {why}{hint}"),
            );
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
    pub(super) fn open(&self, sessions: &Sessions) -> Result<(PathBuf, Recording)> {
        let folder = self.recordings.clone().map_or_else(recording::latest, Ok)?;
        let recording = sessions.open(&folder)?;
        Ok((folder, recording))
    }
}

impl RecordedPasses {
    /// How each object stood after its last recorded pass. Hands each pass to `see`, too, whose object is among them.
    pub(super) fn objects(
        &self,
        format: Format,
        mut see: impl FnMut(&PassRecord, &BTreeMap<String, Manifest>),
    ) -> Result<Vec<(Key, Standing)>> {
        let (overview, mut left_out) = (Overview::default(), 0_u64);
        self.passes(format, |record, manifests| {
            if self.sessions.limits == ReadLimits::Capped && !overview.has_room(&record.key, OBJECTS) {
                left_out += 1;
                return;
            }
            see(&record, manifests);
            overview.passed(&record, manifests);
        })?;
        if left_out > 0 {
            let hint = self.sessions.limits.hint();
            say(
                format,
                &format!("{left_out} passes left out: there are more than {OBJECTS} objects{hint}"),
            );
        }
        Ok(overview.objects())
    }

    /// Opens the recording.
    pub(super) fn open(&self) -> Result<(PathBuf, Recording)> {
        self.recorded.open(&self.sessions)
    }

    /// See [`Sessions::hint`].
    pub(super) fn hint(&self) -> &'static str {
        self.sessions.hint()
    }

    /// Hands every recorded pass to `see`, with the manifests of all policies. Warns if passes are not read. Returns the
    /// manifests.
    pub(super) fn passes(
        &self,
        format: Format,
        mut see: impl FnMut(PassRecord, &BTreeMap<String, Manifest>),
    ) -> Result<BTreeMap<String, Manifest>> {
        let (folder, recording) = self.open()?;
        let manifests = recording.manifests()?;
        let unread = self
            .sessions
            .passes(&recording, |record| see(record, &manifests))?;
        self.sessions.warn_of(format, &folder, &unread);
        Ok(manifests)
    }
}

/// What was cut of the limits of a binding, for people.
pub(super) fn cut_limits(binding: &str, cut: &[String]) -> String {
    let cut = cut.join(", ");
    format!("limits of binding {binding} are cut: {cut}; --limits recorded takes them as they are recorded")
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
