//! What each object did, in sentences: a file beside a scenario, which tells what a change of a policy makes otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::Path;

use anyhow::{Context as _, Result};
use polity_core::key::Key;

use crate::overview::{Standing, State};
use crate::private::write_for_all;

/// The name of the file.
const FILE: &str = "timeline.txt";
/// The most objects of which it is told that they did something else.
const SHOWN: usize = 4;

/// The lines of each object. Times, versions and waits are left out.
#[derive(Default)]
pub(super) struct Timeline {
    objects: BTreeMap<String, Vec<String>>,
}

impl Timeline {
    /// Takes in how an object stands after a pass. Passes after which it stands as before are left out.
    pub(super) fn passed(&mut self, key: &Key, standing: &Standing) {
        let Standing {
            kind, phase, event, ..
        } = standing;
        let state = match standing.state {
            State::Working => "",
            state => state.as_str(),
        };
        // An object without a phase is shown with a dash.
        let words = [phase.trim_matches('-'), event, state]
            .into_iter()
            .filter(|word| !word.is_empty());
        let line = words.collect::<Vec<_>>().join(" · ");
        let lines = self.objects.entry(format!("{kind} {key}")).or_default();
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }

    /// Compares it with the file in a scenario's folder, if there is one, and says what is otherwise; or writes the file.
    pub(super) fn compared_in(&self, folder: &Path, update: bool) -> Result<Vec<String>> {
        let path = folder.join(FILE);
        if update {
            // Whoever wrote the folder may have made a link of this name.
            let written = write_for_all(&path, self.to_string().as_bytes());
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        if !path.exists() {
            return Ok(Vec::new());
        }
        let told =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.otherwise(&read(&told)))
    }

    /// What objects did otherwise than it is told.
    fn otherwise(&self, told: &BTreeMap<String, Vec<String>>) -> Vec<String> {
        let names: BTreeSet<&String> = self.objects.keys().chain(told.keys()).collect();
        let mut wrong = Vec::new();
        for name in names {
            let none = Vec::new();
            let [was, now] = [told, &self.objects].map(|of| of.get(name).unwrap_or(&none));
            let Some(first) = (0..was.len().max(now.len())).find(|at| was.get(*at) != now.get(*at)) else {
                continue;
            };
            let [was, now] = [was, now].map(|lines| lines.get(first).map_or("nothing more", String::as_str));
            wrong.push(format!(
                "{name} does otherwise than {FILE} tells, at {}: was: {was}; now: {now}",
                first + 1
            ));
        }
        let more = wrong.len().saturating_sub(SHOWN);
        wrong.truncate(SHOWN);
        if more > 0 {
            wrong.push(format!("and {more} other objects"));
        }
        wrong
    }
}

impl Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lines) in &self.objects {
            writeln!(f, "{name}")?;
            lines.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
    }
}

fn read(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut objects = BTreeMap::<String, Vec<String>>::new();
    let mut name = String::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(line) => objects.entry(name.clone()).or_default().push(line.to_owned()),
            None => name = line.to_owned(),
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(of: &[(&str, &[&str])]) -> Timeline {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Timeline {
            objects: of
                .iter()
                .map(|(name, of)| ((*name).to_owned(), lines(of)))
                .collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_what_is_otherwise_is_told_with_its_object() {
        let told = timeline(&[
            ("Lamp home/hall", &["dark", "lit · settled"]),
            ("Lamp home/shed", &["dark"]),
        ]);
        let file = told.to_string();
        assert_eq!(
            file,
            "Lamp home/hall\n    dark\n    lit · settled\nLamp home/shed\n    dark\n"
        );
        assert!(told.otherwise(&read(&file)).is_empty());
        let now = timeline(&[
            ("Lamp home/hall", &["dark", "broken", "lit · settled"]),
            ("Lamp home/attic", &["lit"]),
        ]);
        assert_eq!(
            now.otherwise(&read(&file)),
            [
                "Lamp home/attic does otherwise than timeline.txt tells, at 1: was: nothing more; now: lit",
                "Lamp home/hall does otherwise than timeline.txt tells, at 2: was: lit · settled; now: broken",
                "Lamp home/shed does otherwise than timeline.txt tells, at 1: was: dark; now: nothing more",
            ]
        );
    }

    #[test]
    fn a_link_of_the_name_of_the_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, folder.path().join(FILE)).expect("linked");
        let told = timeline(&[("Lamp home/hall", &["dark"])]);
        assert_eq!(told.compared_in(folder.path(), true).expect("written"), [""; 0]);
        assert_eq!(std::fs::read_to_string(victim).expect("read"), "precious");
    }
}
