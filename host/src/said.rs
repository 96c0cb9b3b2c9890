//! Reports present problems: once, and again when they change. A person who watches a host must see what is
//! wrong, and not the same line a thousand times.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use polity_core::time::Boot;

/// For this long the same line about one subject is not reported again, even if other lines came between. A
/// problem that comes and goes all the time is no news.
const SILENT: Duration = Duration::from_mins(10);
/// The most different lines that are remembered for one subject.
const KEPT: usize = 8;

/// The lines that were reported for each subject.
#[derive(Debug, Default)]
pub(crate) struct Said {
    topics: BTreeMap<String, Topic>,
}

#[derive(Debug, Default)]
struct Topic {
    now: Option<String>,
    said: VecDeque<(String, Boot)>,
}

impl Said {
    /// Takes in the present problem of a subject, or `None` if it has none, and returns the line to report if
    /// that is news. `now` is the time of a clock that never goes back.
    pub(crate) fn news(&mut self, of: &str, wrong: Option<&str>, now: Boot) -> Option<String> {
        if wrong.is_none() && !self.topics.contains_key(of) {
            return None;
        }
        let topic = self.topics.entry(of.to_owned()).or_default();
        if topic.now.as_deref() == wrong {
            return None;
        }
        topic.now = wrong.map(str::to_owned);
        topic.said.retain(|(_, at)| now - *at < SILENT);
        let line = match wrong {
            Some(wrong) => format!("{of}: {wrong}"),
            None => format!("{of}: it works again"),
        };
        if topic.said.iter().any(|(said, _)| *said == line) {
            return None;
        }
        if topic.said.len() == KEPT {
            topic.said.pop_front();
        }
        topic.said.push_back((line.clone(), now));
        Some(line)
    }

    /// Forgets a subject that no longer exists.
    pub(crate) fn forget(&mut self, of: &str) {
        self.topics.remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_once_and_again_when_it_changes() {
        let mut said = Said::default();
        assert_eq!(said.news("watch of Pod", None, Boot(0)), None);
        let line = said.news("watch of Pod", Some("forbidden"), Boot(0));
        assert_eq!(line.as_deref(), Some("watch of Pod: forbidden"));
        assert_eq!(said.news("watch of Pod", Some("forbidden"), Boot(1)), None);
        let line = said.news("watch of Pod", Some("no answer"), Boot(2));
        assert_eq!(line.as_deref(), Some("watch of Pod: no answer"));
        let line = said.news("watch of Pod", None, Boot(3));
        assert_eq!(line.as_deref(), Some("watch of Pod: it works again"));
    }

    #[test]
    fn what_comes_and_goes_is_said_once_in_a_while() {
        let mut said = Said::default();
        let mut lines = 0;
        for round in 0..1_000 {
            let at = round * 1_000;
            lines += said
                .news("watch of Pod", Some("forbidden"), Boot(at))
                .iter()
                .count();
            lines += said.news("watch of Pod", None, Boot(at + 500)).iter().count();
        }
        assert_eq!(lines, 4, "twice each in a thousand seconds");
    }
}
