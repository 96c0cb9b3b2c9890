//! How much of a recording is read. Somebody else may have written it, to take the reader's time and memory.
//!
//! The limits in recorded bindings and the size of a pass are at most ten times what is normal. `--limits recorded` takes them as
//! they are recorded: it is for recordings of hosts that the reader trusts.

use std::collections::BTreeMap;
use std::time::Duration;

use polity_core::binding::Limits;
use polity_core::record::PassRecord;
use polity_core::time::millis;
use polity_drivers::Exchanged;
use serde::de::DeserializeOwned;

use super::segments::{Text, UNPACKED};
use crate::display::shortened;

/// So many times the default of a limit is the most that is taken of a recording.
const TIMES: u32 = 10;
/// The most bytes of a line. The journals of two roles by the default limits, as text in JSON, take half of it.
const LINE: u64 = 64 << 20;
/// The most marks of JSON in a line or file: `,`, `[` and `{`. An empty object in a list takes two of them, some bytes of text and
/// some hundred bytes of memory.
pub(super) const MARKS: usize = 1 << 20;
/// The most characters of a name of a pass. Kubernetes takes 253.
const NAME: usize = 256;
/// The most characters of a note. A host takes 1,024 bytes.
const NOTE: usize = 1_024;
/// The roles of a pass: identity and lifecycle.
const ROLES: usize = 2;

const LONG: &str = "it has more than 64 MiB";
const MANY: &str = "it has more than 1048576 values";
const STEPS: &str = "it took more than ten times the default of steps";
const ENTRIES: &str = "it made more than ten times the default of requests";
const NOTES: &str = "it has more than ten times the default of notes";
const MORE_ROLES: &str = "it has more than two roles";
pub(crate) const BEHIND: &str = "it is behind the first 512 MiB of its segment";

/// The limits within which a recording is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ReadLimits {
    /// Ten times the defaults at most.
    #[default]
    Capped,
    /// As they are recorded. Only for a recording whose author you trust: it may take hours and all memory.
    Recorded,
}

impl ReadLimits {
    /// What to do about what is left out, behind a sentence.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            ReadLimits::Capped => "; --limits recorded reads it",
            ReadLimits::Recorded => "",
        }
    }

    /// The most bytes of a line.
    pub(super) fn line(self) -> u64 {
        self.bytes(LINE)
    }

    /// The most bytes of a file that normally has at most so many.
    pub(super) fn bytes(self, normal: u64) -> u64 {
        match self {
            ReadLimits::Capped => normal,
            ReadLimits::Recorded => UNPACKED,
        }
    }

    /// What a line holds, or why it is left out.
    pub(super) fn read<T: Recorded>(self, line: &Text) -> serde_json::Result<Result<T, &'static str>> {
        let bytes = match line {
            Text::TooLong => return Ok(Err(LONG)),
            Text::Line(bytes) if self.is_too_much(bytes) => return Ok(Err(MANY)),
            Text::Line(bytes) => bytes,
        };
        let record: T = serde_json::from_slice(bytes)?;
        Ok(match self {
            ReadLimits::Capped => record.capped(),
            ReadLimits::Recorded => Ok(record),
        })
    }

    /// Takes the marks of a JSON text away from those that may still be read, and says whether there were enough.
    pub(super) fn has_room(self, marks_left: &mut usize, json: &[u8]) -> bool {
        let left = marks_left.checked_sub(marks(json));
        *marks_left = left.unwrap_or_default();
        self == ReadLimits::Recorded || left.is_some()
    }

    /// Whether a JSON text would take too much memory when it is read.
    pub(super) fn is_too_much(self, json: &[u8]) -> bool {
        !self.has_room(&mut { MARKS }, json)
    }

    /// What is taken of the limits of a binding, and in words what was cut of them.
    pub(crate) fn of_binding(self, recorded: &Limits) -> (Limits, Vec<String>) {
        let (mut limits, mut cut) = (recorded.clone(), Vec::new());
        if self == ReadLimits::Recorded {
            return (limits, cut);
        }
        let most = Limits::default();
        let mut cap = |name: &str, limit: u64, most: u64| {
            let most = most.saturating_mul(TIMES.into());
            if limit > most {
                cut.push(format!("{name} from {limit} to {most}"));
            }
            limit.min(most)
        };
        limits.step_fuel = cap("stepFuel", limits.step_fuel, most.step_fuel);
        limits.pass_fuel = cap("passFuel", limits.pass_fuel, most.pass_fuel);
        limits.memory = cap("memory", limits.memory, most.memory);
        limits.output = cap("output", limits.output, most.output);
        limits.step_wall =
            Duration::from_millis(cap("stepWall", millis(limits.step_wall), millis(most.step_wall)));
        let steps = cap("steps", limits.steps.into(), most.steps.into());
        limits.steps = u32::try_from(steps).unwrap_or(u32::MAX);
        (limits, cut)
    }
}

/// The marks of a JSON text, also within its texts: those are documents, too. Each value but the first stands behind a mark, or
/// behind an escape that may be one.
fn marks(json: &[u8]) -> usize {
    let plain = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    plain.count() + json.windows(2).filter(|two| two == b"\\u").count()
}

/// What a line of a recording holds.
pub(super) trait Recorded: DeserializeOwned {
    /// Takes it within the limits of a reader.
    ///
    /// # Errors
    /// Why it is not taken.
    fn capped(self) -> Result<Self, &'static str>;
}

impl Recorded for Exchanged {
    fn capped(self) -> Result<Self, &'static str> {
        Ok(self)
    }
}

impl Recorded for PassRecord {
    fn capped(mut self) -> Result<Self, &'static str> {
        let most = Limits::default();
        let is_above = |count: usize, most: u32| count > (most * TIMES) as usize;
        if self.roles.len() > ROLES {
            return Err(MORE_ROLES);
        }
        for role in &self.roles {
            let conclusion = role.conclusion.as_ref();
            let [notes, used] = conclusion.map_or([0; 2], |conclusion| {
                [conclusion.notes.len(), conclusion.used.len()]
            });
            let above = [
                (is_above(role.had.len(), most.steps), STEPS),
                (is_above(role.journal.len().max(used), most.entries), ENTRIES),
                (is_above(notes, most.notes), NOTES),
            ];
            if let Some((_, why)) = above.into_iter().find(|(is_above, _)| *is_above) {
                return Err(why);
            }
        }
        cut_names(&mut self);
        Ok(self)
    }
}

/// Cuts names that no object, kind or edge has.
fn cut_names(pass: &mut PassRecord) {
    let is_long = |name: &str| name.len() > NAME;
    let key = &mut pass.key;
    let shared = [&mut key.binding, &mut key.name]
        .into_iter()
        .chain(&mut key.namespace);
    for name in shared.filter(|name| is_long(name)) {
        *name = shortened(name, NAME).into();
    }
    let names = [&mut pass.kind.kind, &mut pass.kind.api_version, &mut pass.uid];
    for name in names.into_iter().filter(|name| is_long(name)) {
        *name = shortened(name, NAME);
    }
    let conclusions = pass.roles.iter_mut().filter_map(|role| role.conclusion.as_mut());
    let notes = conclusions.flat_map(|conclusion| &mut conclusion.notes);
    for note in notes.filter(|note| note.len() > NOTE) {
        *note = shortened(note, NOTE);
    }
}

/// What was not read of a recording.
#[derive(Debug, Default, PartialEq)]
pub struct Unread {
    /// Lines that are damaged.
    pub damaged: u64,
    /// Lines that were left out, by the reason.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Unread {
    pub(super) fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Adds what was not read elsewhere.
    pub fn add(&mut self, other: Unread) {
        self.damaged += other.damaged;
        for (why, count) in other.left_out {
            *self.left_out.entry(why).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use polity_core::contract::Entry;
    use serde_json::json;

    use super::*;
    use crate::edges::tests::pass;

    #[test]
    fn the_limits_of_a_binding_are_ten_times_the_defaults_at_most_unless_the_reader_believes_them() {
        let recorded = Limits {
            step_fuel: 1 << 62,
            pass_fuel: 1 << 62,
            memory: u64::MAX,
            step_wall: Duration::from_millis(u64::MAX),
            steps: u32::MAX,
            output: u64::MAX,
            ..Limits::default()
        };
        let (limits, cut) = ReadLimits::Capped.of_binding(&recorded);
        assert_eq!((limits.step_fuel, limits.pass_fuel), (100_000_000, 5_000_000_000));
        assert_eq!((limits.memory, limits.output), (160 << 20, 10 << 20));
        assert_eq!((limits.step_wall, limits.steps), (Duration::from_secs(10), 640));
        assert_eq!(cut.len(), 6, "{cut:?}");
        assert!(
            cut.contains(&"steps from 4294967295 to 640".to_owned()),
            "{cut:?}"
        );
        assert_eq!(ReadLimits::Recorded.of_binding(&recorded), (recorded, Vec::new()));
        let fine = Limits {
            step_fuel: 100_000_000,
            ..Limits::default()
        };
        assert_eq!(ReadLimits::Capped.of_binding(&fine), (fine, Vec::new()));
    }

    #[test]
    fn a_pass_above_a_limit_is_left_out_with_the_reason_and_long_names_are_cut() {
        let entry =
            json!({"request": {"ask": {"round": 0, "question": {"lock": "a"}}}, "answer": {"Ok": "true"}});
        let entry: Entry = serde_json::from_value(entry).expect("an entry");
        let why = |change: &dyn Fn(&mut PassRecord)| {
            let mut record = pass(&["A"], "published", false);
            change(&mut record);
            record.capped().err()
        };
        assert_eq!(why(&|_| {}), None);
        assert_eq!(why(&|pass| pass.roles[0].had = vec![0; 640]), None);
        assert_eq!(why(&|pass| pass.roles[0].had = vec![0; 641]), Some(STEPS));
        assert_eq!(
            why(&|pass| pass.roles[0].journal = vec![entry.clone(); 10_241]),
            Some(ENTRIES)
        );
        assert_eq!(
            why(&|pass| pass.roles = vec![pass.roles[0].clone(); 3]),
            Some(MORE_ROLES)
        );
        let conclude = |pass: &mut PassRecord, notes: usize, used: usize| {
            let conclusion = pass.roles[0].conclusion.as_mut().expect("a conclusion");
            (conclusion.notes, conclusion.used) = (vec![String::new(); notes], vec![0; used]);
        };
        assert_eq!(why(&|pass| conclude(pass, 2_560, 10_240)), None);
        assert_eq!(why(&|pass| conclude(pass, 2_561, 0)), Some(NOTES));
        assert_eq!(why(&|pass| conclude(pass, 0, 10_241)), Some(ENTRIES));

        let long = "\u{e4}".repeat(5_000);
        let mut record = pass(&[&long], "published", false);
        record.key.name = long.as_str().into();
        record.kind.kind = long.clone();
        let record = record.capped().expect("it is within the limits");
        assert_eq!(record.key.name.chars().count(), NAME + 1);
        assert_eq!(record.kind.kind.chars().count(), NAME + 1);
        assert!(record.notes().all(|note| note.chars().count() == NOTE + 1));
    }

    #[test]
    fn a_text_of_many_values_is_left_out_also_if_they_stand_in_a_document_within_it() {
        let line = |text: &str| Text::Line(format!("{text:?}").into_bytes());
        for (json, is_read) in [
            ("[0]".repeat(1 << 20), true),
            ("{\"\":0},".repeat(1 << 20), false),
            ("[".repeat((1 << 20) + 1), false),
            ("\\u007b".repeat((1 << 20) + 1), false),
        ] {
            assert_eq!(
                !ReadLimits::Capped.is_too_much(json.as_bytes()),
                is_read,
                "{json:.20}"
            );
            assert!(!ReadLimits::Recorded.is_too_much(json.as_bytes()));
            let Text::Line(within) = line(&json) else { continue };
            assert_eq!(!ReadLimits::Capped.is_too_much(&within), is_read, "{json:.20}");
        }
    }
}
