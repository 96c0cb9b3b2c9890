//! `polity dev`: what each save of a policy changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::policy::in_folder;
use crate::display::duration;
use crate::policies::Policies;
use crate::private;
use crate::progress::{Format, print, say};
use crate::recording::ReadLimits;

/// How often the folders are looked at.
const LOOKS: Duration = Duration::from_millis(200);
/// Folders that hold nothing of a policy's source. Hidden ones are left out, too.
const NOT_SOURCE: [&str; 2] = ["recording", "target"];
/// The ends of the names of files that a source has: others are written by those who build and run it.
const SOURCE: [&str; 6] = ["json", "md", "rs", "toml", "tsv", "yaml"];

/// Build a policy on each save, and show what it would decide otherwise and whether its scenarios hold.
///
/// At each save of a file, the crate is built. Then the passes of the last run are judged by the new version, as by `polity
/// replay`, and the scenarios are played again, as by `polity test`; their passes are those of the next save. A build that fails
/// is shown as cargo says it, and the version before goes on.
///
/// A host that runs with a binding that names the crate (`polity run run --listen 0`) takes the new version by itself. Ends with
/// Ctrl-C.
///
/// Examples:
///
///   polity dev
///
///   polity dev policies/capv-machine --scenarios examples/capv-machine
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Dev {
    /// The folder of the policy's crate.
    #[arg(value_name = "DIR", default_value = ".")]
    krate: PathBuf,
    /// Folders with a Scenario, or folders of such folders. The default is the folder of the crate.
    #[arg(long, value_name = "DIR")]
    scenarios: Vec<PathBuf>,
    /// Judge the passes of this recording at each save, in place of those of the last run.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// The limits within which recordings are read, as of `polity replay`.
    #[arg(long, value_enum, value_name = "LIMITS", default_value_t)]
    limits: ReadLimits,
}

/// What is saved: files with their times and sizes.
type Saved = BTreeMap<PathBuf, (SystemTime, u64)>;

/// The work between saves.
struct Workshop {
    dev: Dev,
    format: Format,
    policies: Policies,
    /// The recordings of the runs.
    place: PathBuf,
    runs: u64,
}

impl Dev {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        if !self.krate.join("Cargo.toml").is_file() {
            bail!(
                "{} has no Cargo.toml; name the folder of a policy's crate, or make one with `polity policy new`",
                self.krate.display()
            );
        }
        let place = private::fresh_folder(&std::env::temp_dir(), "polity-dev");
        let mut workshop = Workshop {
            policies: in_folder(&self.krate, format)?,
            place: place.context("cannot create a folder for recordings")?,
            dev: self,
            format,
            runs: 0,
        };
        let mut built = Saved::new();
        loop {
            let saved = workshop.saved()?;
            if saved == built {
                std::thread::sleep(LOOKS);
                continue;
            }
            workshop.saves(&difference(&built, &saved))?;
            built = saved;
            say(format, "waits for the next save");
        }
    }
}

impl Workshop {
    /// Builds, judges and plays what was saved.
    fn saves(&mut self, changed: &[PathBuf]) -> Result<()> {
        // One screen: what was there is of another save.
        if self.format == Format::Text && stdout().is_terminal() {
            print(&"\x1b[2J\x1b[H");
        }
        match changed {
            _ if self.runs == 0 => {}
            [one] => say(self.format, &format!("{} was saved", one.display())),
            many => say(self.format, &format!("{} files were saved", many.len())),
        }
        let began = Instant::now();
        let built = match self.policies.build(".") {
            Ok(built) => built,
            Err(e) => {
                say(self.format, &format!("{e:#}; the version before goes on"));
                return Ok(());
            }
        };
        let mut took = format!("built in {}", duration(began.elapsed()));
        let (judging, judged) = (Instant::now(), self.recordings());
        for recording in &judged {
            let [policy, recordings] = ["--policy", "--recordings"].map(Path::new);
            let mut words = vec![policy, &built, recordings, recording];
            if self.dev.limits == ReadLimits::Recorded {
                words.extend(["--limits", "recorded"].map(Path::new));
            }
            self.polity("replay", &words)?;
        }
        if !judged.is_empty() {
            took = format!("{took}, judged within {} after it", duration(judging.elapsed()));
        }
        say(self.format, &took);
        self.plays()
    }

    /// The recordings whose passes are judged.
    fn recordings(&self) -> Vec<PathBuf> {
        if let Some(recording) = &self.dev.recordings {
            return vec![recording.clone()];
        }
        let last = self.place.join(self.runs.to_string());
        let found = std::fs::read_dir(last).into_iter().flatten();
        let mut found: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.sort();
        found
    }

    /// Plays the scenarios. Their recordings take the place of those before.
    fn plays(&mut self) -> Result<()> {
        let (old, new) = (self.runs, self.runs + 1);
        let at = |run: u64| self.place.join(run.to_string());
        let record = at(new);
        let mut words = vec![Path::new("--record"), &record];
        words.extend(self.dev.scenarios.iter().map(PathBuf::as_path));
        if self.dev.scenarios.is_empty() {
            words.push(&self.dev.krate);
        }
        self.polity("test", &words)?;
        if record.is_dir() {
            // It is swept with the folder, if not now.
            let _ = std::fs::remove_dir_all(at(old));
            self.runs = new;
        }
        Ok(())
    }

    /// Runs another command of this program. What it finds it prints.
    fn polity(&self, command: &str, words: &[&Path]) -> Result<()> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut polity = Command::new(program);
        polity.arg(command).args(words);
        if self.format == Format::Json {
            polity.args(["--output", "json"]);
        }
        let ended = polity.status();
        ended.with_context(|| format!("cannot start polity {command}"))?;
        Ok(())
    }

    /// The files of the crate and of the scenarios.
    fn saved(&self) -> Result<Saved> {
        let mut saved = Saved::new();
        for folder in self.dev.scenarios.iter().chain([&self.dev.krate]) {
            collect(folder, &mut saved)?;
        }
        Ok(saved)
    }
}

/// The source files of a folder.
fn collect(folder: &Path, saved: &mut Saved) -> Result<()> {
    let at = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(at)? {
        let entry = entry.with_context(at)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') || NOT_SOURCE.contains(&&*name) {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, saved)?;
        }
        let is_source = path
            .extension()
            .is_some_and(|extension| SOURCE.iter().any(|known| extension == *known));
        // A file may go while one looks, as editors write.
        let found = std::fs::metadata(&path)
            .ok()
            .filter(|found| found.is_file() && is_source);
        if let Some((modified, length)) = found.and_then(|found| Some((found.modified().ok()?, found.len())))
        {
            saved.insert(path, (modified, length));
        }
    }
    Ok(())
}

/// The files that are new, gone or other.
fn difference(old: &Saved, new: &Saved) -> Vec<PathBuf> {
    let names = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)));
    let changed = names.filter(|name| old.get(*name) != new.get(*name));
    changed.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_seen_and_what_a_build_writes_is_not() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        for folder in ["src", "target", ".git"] {
            std::fs::create_dir(at(folder)).expect("created");
        }
        let saved = || {
            let mut saved = Saved::new();
            collect(place.path(), &mut saved).expect("it can be read");
            saved
        };
        std::fs::write(at("src/lib.rs"), "1").expect("written");
        let before = saved();
        assert_eq!(before.len(), 1);
        for built in ["target/out.rs", ".git/a.toml", "lamp.wasm", "lamp.wasm.gz"] {
            std::fs::write(at(built), "2").expect("written");
        }
        assert_eq!(saved(), before);
        std::fs::write(at("src/lib.rs"), "22").expect("written");
        std::fs::write(at("src/new.rs"), "").expect("written");
        assert_eq!(
            difference(&before, &saved()),
            [at("src/lib.rs"), at("src/new.rs")]
        );
    }
}
