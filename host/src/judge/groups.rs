//! Differences of many passes, grouped: what is different in the same way is one line.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::contract::{Kind, Role};
use polity_core::key::{Key, PassId};
use polity_core::record::PassRecord;
use polity_core::time::Unix;

use super::{Difference, Judged, What};

/// The passes that a group shows.
const EXAMPLES: usize = 3;
/// The most groups. Nobody reads as many, and a recording may have one for each pass.
const GROUPS: usize = 10_000;
/// If one path changes in more ways than this, they are one group with the range of values.
const SHAPES: usize = 10;

/// The verdicts on many passes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Groups {
    pub(crate) same: u64,
    pub(crate) differs: u64,
    pub(crate) would_ask: u64,
    pub(crate) faults: u64,
    pub(crate) unfinished: BTreeMap<&'static str, u64>,
    /// The differences for which there was no group.
    pub(crate) left_out: u64,
    groups: BTreeMap<Shared, Group>,
}

/// What the differences of a group share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shared {
    pub(crate) role: Role,
    pub(crate) what: What,
    pub(crate) of: String,
    pub(crate) was: Option<String>,
    pub(crate) now: Option<String>,
}

/// A group of differences.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// The passes that have it.
    pub(crate) passes: u64,
    /// The first of them.
    pub(crate) examples: BTreeSet<Example>,
}

/// A pass of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Example {
    pub(crate) at: Unix,
    pub(crate) pass: PassId,
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    pub(crate) was: Option<String>,
    pub(crate) now: Option<String>,
}

impl Groups {
    /// Counts the verdict on a pass.
    pub(crate) fn add(&mut self, pass: &PassRecord, judged: Judged) {
        let differences = match judged {
            Judged::Same(differences) => {
                self.same += 1;
                differences
            }
            Judged::Differs(differences) => {
                self.differs += 1;
                differences
            }
            Judged::WouldAsk(differences) => {
                self.would_ask += 1;
                differences
            }
            Judged::Fault(differences) => {
                self.faults += 1;
                differences
            }
            Judged::Unfinished(why) => {
                *self.unfinished.entry(why).or_default() += 1;
                return;
            }
        };
        let mut counted = BTreeSet::new();
        for difference in differences {
            let (shared, example) = told(pass, difference);
            if self.groups.len() >= GROUPS && !self.groups.contains_key(&shared) {
                self.left_out += 1;
                continue;
            }
            let group = self.groups.entry(shared.clone()).or_default();
            group.examples.insert(example);
            if counted.insert(shared) {
                group.passes += 1;
            }
            group.keep_first();
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: Groups) {
        self.same += other.same;
        self.differs += other.differs;
        self.would_ask += other.would_ask;
        self.faults += other.faults;
        self.left_out += other.left_out;
        self.not_judged(&other.unfinished);
        for (shared, group) in other.groups {
            self.groups.entry(shared).or_default().merge(group);
        }
    }

    /// Adds passes that are not judged, by the reason.
    pub(crate) fn not_judged(&mut self, passes: &BTreeMap<&'static str, u64>) {
        for (why, count) in passes {
            *self.unfinished.entry(why).or_default() += count;
        }
    }

    /// All passes that were judged.
    pub(crate) fn passes(&self) -> u64 {
        self.same + self.differs + self.would_ask + self.faults + self.unfinished.values().sum::<u64>()
    }

    /// The groups, those that matter most first: a changed intent, then by the number of passes.
    pub(crate) fn groups(&self) -> Vec<(Shared, Group)> {
        let mut ways: BTreeMap<(Role, What, &str), u64> = BTreeMap::new();
        for shared in self.groups.keys() {
            *ways.entry((shared.role, shared.what, &shared.of)).or_default() += 1;
        }
        let mut all: BTreeMap<Shared, Group> = BTreeMap::new();
        let mut ranges: BTreeMap<(Role, What, &str), (Range<'_>, Range<'_>, Group)> = BTreeMap::new();
        for (shared, group) in &self.groups {
            let path = (shared.role, shared.what, &*shared.of);
            if ways[&path] <= SHAPES as u64 {
                all.insert(shared.clone(), group.clone());
                continue;
            }
            let (was, now, merged) = ranges.entry(path).or_default();
            was.add(shared.was.as_deref());
            now.add(shared.now.as_deref());
            merged.merge(group.clone());
        }
        for ((role, what, of), (was, now, group)) in ranges {
            let (of, was, now) = (of.to_owned(), was.text(), now.text());
            let shared = Shared {
                role,
                what,
                of,
                was,
                now,
            };
            all.insert(shared, group);
        }
        let mut all: Vec<(Shared, Group)> = all.into_iter().collect();
        let rank = |(shared, group): &(Shared, Group)| {
            let (is_intent, is_read) = (shared.what == What::Intent, shared.what == What::Reads);
            (is_read, !is_intent, std::cmp::Reverse(group.passes))
        };
        all.sort_by_key(rank);
        all
    }
}

impl Group {
    fn merge(&mut self, other: Group) {
        self.passes += other.passes;
        self.examples.extend(other.examples);
        self.keep_first();
    }

    fn keep_first(&mut self) {
        while self.examples.len() > EXAMPLES {
            self.examples.pop_last();
        }
    }
}

/// The least and the greatest of many values.
#[derive(Default)]
struct Range<'a>(Option<(&'a str, &'a str)>);

impl<'a> Range<'a> {
    fn add(&mut self, text: Option<&'a str>) {
        let Some(text) = text else { return };
        let (least, most) = self.0.unwrap_or((text, text));
        let least = if precedes(text, least) { text } else { least };
        let most = if precedes(most, text) { text } else { most };
        self.0 = Some((least, most));
    }

    fn text(&self) -> Option<String> {
        self.0.map(|(least, most)| {
            if least == most {
                least.to_owned()
            } else {
                format!("various ({least} … {most})")
            }
        })
    }
}

/// Whether one value is less: as a length of time or a number if both are, as texts otherwise.
fn precedes(one: &str, other: &str) -> bool {
    match (size(one), size(other)) {
        (Some(one), Some(other)) => one < other,
        _ => one < other,
    }
}

/// A number, or a length as [`crate::display::duration`] writes it, in milliseconds.
fn size(text: &str) -> Option<f64> {
    let plain = text.parse().ok();
    let unit = |suffix: &str, ms: f64| Some(text.strip_suffix(suffix)?.parse::<f64>().ok()? * ms);
    let parts = || {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60_000.0 + seconds.parse::<f64>().ok()? * 1_000.0)
    };
    plain
        .or_else(|| unit("ms", 1.0))
        .or_else(|| unit("s", 1_000.0))
        .or_else(|| unit("m", 60_000.0))
        .or_else(parts)
}

fn told(pass: &PassRecord, difference: Difference) -> (Shared, Example) {
    let Difference {
        role,
        what,
        of,
        was,
        now,
    } = difference;
    let shape = |seen: &Option<super::difference::Seen>| seen.as_ref().map(|seen| seen.shape.clone());
    let shared = Shared {
        role,
        what,
        of,
        was: shape(&was),
        now: shape(&now),
    };
    let example = Example {
        at: pass.started.unix,
        pass: pass.pass,
        key: pass.key.clone(),
        kind: pass.kind.clone(),
        was: was.map(|seen| seen.text),
        now: now.map(|seen| seen.text),
    };
    (shared, example)
}
