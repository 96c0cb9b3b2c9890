//! `polity test`: plays the scenarios of folders, and says which hold.

mod report;
mod timeline;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use polity_core::key::Key;

use super::edges::Counted;
use crate::overview::{Overview, Standing};
use crate::private;
use crate::progress::{Format, say};
use crate::recording::{ReadLimits, Recording};

use timeline::Timeline;

/// The most lines and objects that are shown of a scenario that failed.
const SHOWN: usize = 12;

/// Play scenarios, and say which hold.
///
/// Each folder with a Scenario is run by itself, standalone and in a clock that jumps, until everything is settled: as with `polity
/// run --until-settled --speed max`. As many run at a time as there are processors. Of one that fails, what is not as expected is
/// printed, how its objects stand, and where its recording is.
///
/// A file timeline.txt in the folder tells what each object did, in sentences: --update writes it, and what then happens otherwise
/// is told. The clock that jumps and the seed of the scenario make runs alike.
///
/// Exits 1 if a scenario fails.
///
/// Examples:
///
///   polity test examples
///
///   polity test ./my-policy/scenarios --junit report.xml --record recordings
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Test {
    /// Folders with a Scenario, or folders of such folders.
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Write a report for CI, in the format of JUnit.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write what each object did into the file timeline.txt of the scenario's folder. Without this, such a file is compared.
    #[arg(long)]
    update: bool,
    /// Keep the recordings in this new folder, in one for each scenario: `1`, `2` and so on.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// A scenario that was played.
struct Played {
    folder: PathBuf,
    took: Duration,
    passes: u64,
    /// What is wrong; nothing if it holds.
    wrong: Vec<String>,
    /// The line of it that says what failed.
    failure: String,
    counted: Counted,
}

impl Test {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let mut folders = Vec::new();
        for folder in &self.folders {
            let found = scenarios(folder)?;
            if found.is_empty() {
                bail!(
                    "{} has no Scenario, and none is in the folders in it: a manifest of kind Scenario says what is expected",
                    folder.display()
                );
            }
            folders.extend(found);
        }
        if let Some(record) = &self.record {
            std::fs::create_dir(record)
                .with_context(|| format!("cannot make the folder {}", record.display()))?;
        }
        let played = self.play(&folders, format)?;
        let mut counted = Counted::default();
        for one in &played {
            counted.add(&one.counted);
        }
        let failed = played.iter().filter(|one| !one.wrong.is_empty()).count();
        report::print_end(format, played.len(), failed, &counted.missing());
        if let Some(path) = &self.junit {
            let written = std::fs::write(path, report::junit(&played));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(ExitCode::from(u8::from(failed > 0)))
    }

    /// Plays scenarios, as many at a time as there are processors, and prints each when it has ended. In the order of the folders.
    fn play(&self, folders: &[PathBuf], format: Format) -> Result<Vec<Played>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (next, played) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((index, folder)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                folders.get(index).map(|folder| (index, folder))
            } {
                let kept = self.record.as_ref();
                let kept = kept.map(|record| record.join((index + 1).to_string()));
                let one = self.one(folder, kept)?;
                report::print_one(format, &one);
                played
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((index, one));
            }
            anyhow::Ok(())
        };
        if folders.len() > 1 {
            say(
                format,
                &format!(
                    "{} scenarios, {} at a time",
                    folders.len(),
                    threads.min(folders.len())
                ),
            );
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(_) => bail!("a thread of the tests ended; this is a bug of Polity"),
                }
            }
            Ok(())
        })?;
        let mut played = played.into_inner().unwrap_or_else(PoisonError::into_inner);
        played.sort_by_key(|(index, _)| *index);
        Ok(played.into_iter().map(|(_, one)| one).collect())
    }

    /// Plays a scenario in a process of its own, and records it in a folder, if one is given. The recording of one that fails stays.
    fn one(&self, folder: &Path, record: Option<PathBuf>) -> Result<Played> {
        let began = Instant::now();
        let place = private::fresh_folder(&std::env::temp_dir(), "polity-test")
            .context("cannot create a folder for the recording of a scenario")?;
        let is_kept = record.is_some();
        let recordings = record.unwrap_or_else(|| place.join("recording"));
        let program = std::env::current_exe().context("cannot find this program")?;
        let run = Command::new(program)
            .args(["run", "--until-settled", "--speed", "max", "--record"])
            .arg(&recordings)
            .arg(folder)
            // What it remembers as the latest recording is of no interest to `explain` without a name.
            .env("TMPDIR", &place)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot play {}", folder.display()))?;
        let mut one = Played {
            folder: folder.to_owned(),
            took: Duration::ZERO,
            passes: 0,
            wrong: Vec::new(),
            failure: String::new(),
            counted: Counted::default(),
        };
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        if !run.status.success() {
            (one.wrong, one.failure) = wrong_of(&said);
            if one.wrong.is_empty() {
                one.failure = format!("the run ended with {}", run.status);
                one.wrong = vec![one.failure.clone()];
            }
        }
        let is_recorded = recordings.exists();
        if is_recorded {
            // The run above wrote it.
            let recording = Recording::open(&recordings)?.within(ReadLimits::Recorded);
            let (manifests, overview, mut timeline) =
                (recording.manifests()?, Overview::default(), Timeline::default());
            one.counted.tables_of(&manifests);
            recording.passes(|record| {
                one.passes += 1;
                one.counted.passed(&record, &manifests, &manifests);
                timeline.passed(&record.key, &overview.passed(&record, &manifests));
            })?;
            if one.wrong.is_empty() {
                one.wrong = timeline.compared_in(folder, self.update)?;
                one.failure = one.wrong.first().cloned().unwrap_or_default();
            }
            if !one.wrong.is_empty() {
                one.wrong.extend(unsettled(&overview));
                one.wrong
                    .push(format!("its recording is {}", recordings.display()));
            }
        }
        one.took = began.elapsed();
        if one.wrong.is_empty() || is_kept || !is_recorded {
            // What cannot be removed is swept by the system.
            let _ = std::fs::remove_dir_all(&place);
        }
        Ok(one)
    }
}

/// How the objects stand that are not at rest, a few of them.
fn unsettled(overview: &Overview) -> Vec<String> {
    let objects = overview.objects().into_iter();
    let unsettled = objects.filter(|(_, standing)| !standing.state.is_at_rest());
    let line = |(key, standing): (Key, Standing)| {
        let Standing {
            kind,
            phase,
            event,
            then,
            ..
        } = standing;
        format!("{kind} {key}  {phase}  {event}  → {then}")
    };
    unsettled.take(SHOWN).map(line).collect()
}

/// The folders with a scenario: this one, or those in it.
fn scenarios(folder: &Path) -> Result<Vec<PathBuf>> {
    let at = || format!("cannot read {}", folder.display());
    if has_scenario(folder).with_context(at)? {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(at)? {
        let path = entry.with_context(at)?.path();
        if path.is_dir() && has_scenario(&path).with_context(|| format!("cannot read {}", path.display()))? {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn has_scenario(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_manifest = path
            .extension()
            .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        if is_manifest && path.is_file() {
            let text = std::fs::read_to_string(&path)?;
            let says = |line: &str| line.trim().trim_end_matches(',').replace('"', "") == "kind: Scenario";
            if text.lines().any(says) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// How lines of a run begin that say what failed.
const FAILURES: [&str; 2] = ["not as expected: ", "not settled"];

/// What a run says is wrong: all from the line that says what failed, or its last lines. And that line; it is the last one if a
/// run ended with an error.
fn wrong_of(said: &str) -> (Vec<String>, String) {
    let lines: Vec<&str> = said
        .lines()
        .map(|line| line.strip_prefix("polity: ").unwrap_or(line).trim_end())
        .filter(|line| !line.trim_start().starts_with("as expected"))
        .collect();
    let is_failure = |line: &&str| FAILURES.iter().any(|words| line.trim_start().starts_with(words));
    let first = lines.iter().position(is_failure);
    let from = first.unwrap_or_else(|| lines.len().saturating_sub(SHOWN));
    let failure = first.map_or(lines.last(), |first| lines.get(first));
    let shown = lines[from..].iter().take(SHOWN);
    (
        shown.map(|line| (*line).to_owned()).collect(),
        failure.map_or_else(String::new, |line| line.trim().to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_without_what_is_as_expected() {
        let said = "polity: building it\npolity: everything is settled\npolity:   as expected: a\n\
            polity:   not as expected: b\npolity:     because\npolity:   as expected: c\n";
        let wrong = |said: &str| {
            let (wrong, failure) = wrong_of(said);
            (wrong.join("|"), failure)
        };
        assert_eq!(
            wrong(said),
            (
                "  not as expected: b|    because".into(),
                "not as expected: b".into()
            )
        );
        // An error is what a run says last.
        assert_eq!(
            wrong("polity: building it\n WARN it is slow\npolity: there is no such file\n"),
            (
                "building it| WARN it is slow|there is no such file".into(),
                "there is no such file".into()
            )
        );
        assert_eq!(
            wrong("polity: building it\npolity: not settled after 5m:\npolity:   Machine a waits\n"),
            (
                "not settled after 5m:|  Machine a waits".into(),
                "not settled after 5m:".into()
            )
        );
    }

    #[test]
    fn folders_with_a_scenario_are_found_one_level_deep() {
        let place = tempfile::tempdir().expect("a folder");
        for (folder, text) in [
            ("b", "a: 1\nkind: Scenario\n"),
            ("a", "{\n  \"kind\": \"Scenario\",\n}"),
            ("c", "kind: Machine"),
        ] {
            let folder = place.path().join(folder);
            std::fs::create_dir(&folder).expect("created");
            std::fs::write(folder.join("it.yaml"), text).expect("written");
        }
        let found = scenarios(place.path()).expect("they can be read");
        assert_eq!(found, [place.path().join("a"), place.path().join("b")]);
        assert_eq!(scenarios(&found[0]).expect("it can be read"), [found[0].clone()]);
        assert!(
            scenarios(&place.path().join("c"))
                .expect("it can be read")
                .is_empty()
        );
    }
}
