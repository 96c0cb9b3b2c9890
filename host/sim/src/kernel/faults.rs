//! The faults of a scenario: outages of the whole cloud, and faults of single calls.

use std::collections::BTreeSet;

use polity_clouds::Millis;
use polity_core::contract::{Code, Failure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Kernel;
use super::draw::chance;

/// A time in which the cloud cannot be reached. Creates in doubt cannot be resolved either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outage {
    /// The beginning.
    pub from: Millis,
    /// The end.
    pub until: Millis,
    /// What callers see.
    #[serde(default)]
    pub calls: Unreachable,
}

/// What callers see during an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Unreachable {
    /// A failure `unavailable` at once, with effect none.
    #[default]
    Refused,
    /// The call gets no answer.
    Silent,
}

/// Which calls fail, and how. Times are in milliseconds since the start.
#[derive(Clone, Debug)]
pub(crate) struct Rule<Q> {
    /// The operations that the rule can match.
    pub(crate) operations: BTreeSet<String>,
    /// The name of the thing that the call is about; `*` stands for any characters.
    pub(crate) about: String,
    pub(crate) owner: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) from: u64,
    pub(crate) until: Option<u64>,
    /// Only the nth call that matches, counted from 1.
    pub(crate) nth: Option<u64>,
    /// Only this many of the first calls that match.
    pub(crate) count: Option<u64>,
    /// Whether calls are counted for each owner separately.
    pub(crate) each: bool,
    pub(crate) probability: Option<f64>,
    pub(crate) then: Fault<Q>,
}

/// How a call fails. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Fault<Q> {
    /// The call is refused, and nothing happens.
    Fail {
        code: Code,
        /// The message. `{name}` stands for the value of that sealed argument, `{session}` for the session's
        /// own token.
        message: Option<String>,
        retry_after: Option<u64>,
    },
    /// The effect happens, but the answer is a failure.
    FailAfterwards(Code),
    /// The effect happens, and this is the answer.
    AnswerWith(Value),
    /// The request is lost.
    LoseRequest,
    /// The effect happens, and the answer is lost.
    LoseAnswer,
    /// There is no answer, and the effect happens only after this time.
    HappenLate(u64),
    /// The effect happens at once, and the answer takes this long.
    AnswerAfter(u64),
    /// The task of the call ends in this error.
    FailTask { fault: String, message: Option<String> },
    /// The task of the call takes this long.
    TaskTakes(u64),
    /// The thing that the call reads is shown in this state.
    TaskState(String),
    /// A fault that only the service understands.
    Quirk(Q),
}

/// What a call is about, for rules to match.
pub(crate) struct Subject<'a> {
    pub(crate) operation: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) tenant: &'a str,
    /// The name of the thing, if there is one.
    pub(crate) about: Option<&'a str>,
}

impl<Q> Rule<Q> {
    fn matches(&self, elapsed: u64, subject: &Subject<'_>) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        self.from <= elapsed
            && self.until.is_none_or(|until| elapsed < until)
            && self.operations.contains(subject.operation)
            && (self.about == "*" || subject.about.is_some_and(|name| glob(&self.about, name)))
            && is(&self.owner, subject.owner)
            && is(&self.tenant, subject.tenant)
    }
}

impl<E, Q: Clone> Kernel<E, Q> {
    /// The fault of this call. The first rule that fires decides; the rules after it do not count the call.
    pub(crate) fn fault(&mut self, now: u64, subject: &Subject<'_>) -> Option<Fault<Q>> {
        if self.head.calm {
            return None;
        }
        let elapsed = self.elapsed(now);
        (0..self.settings.rules.len()).find_map(|index| {
            let matches = self.settings.rules[index].matches(elapsed, subject);
            (matches && self.fires(index, subject.owner)).then(|| self.settings.rules[index].then.clone())
        })
    }

    fn fires(&mut self, index: usize, owner: &str) -> bool {
        let rule = &self.settings.rules[index];
        let (nth, count, probability) = (rule.nth, rule.count, rule.probability);
        if nth.is_some() || count.is_some() {
            let counter = if rule.each {
                format!("{index} {owner}")
            } else {
                index.to_string()
            };
            let matched = self.matched.get_or_default(counter);
            *matched += 1;
            self.dirty = true;
            if nth.is_some_and(|nth| *matched != nth) || count.is_some_and(|count| *matched > count) {
                return false;
            }
        }
        probability.is_none_or(|p| chance(self.draw_for(owner), p))
    }
}

impl<E, Q> Kernel<E, Q> {
    /// Whether there is an outage now: then the failure that callers get, or `None` in it if they get no
    /// answer.
    pub(crate) fn unreachable(&self, now: u64) -> Option<Option<Failure>> {
        let elapsed = self.elapsed(now);
        let mut outages = self.settings.outages.iter();
        let outage = outages.find(|outage| (outage.from.0..outage.until.0).contains(&elapsed));
        let outage = outage.filter(|_| !self.head.calm)?;
        Some(match outage.calls {
            Unreachable::Refused => Some(Failure::new(Code::Unavailable, "the cloud refuses connections")),
            Unreachable::Silent => None,
        })
    }

    /// The times at which outages begin and end.
    pub(crate) fn outage_turns(&self) -> impl Iterator<Item = u64> {
        let outages = self.settings.outages.iter().filter(|_| !self.head.calm);
        let edges = outages.flat_map(|outage| [outage.from.0, outage.until.0]);
        edges.map(|at| self.head.start + at)
    }

    /// Stops all faults. What has begun continues: tasks that are to fail do fail, and late effects arrive.
    pub(crate) fn stop_faults(&mut self) {
        self.head.calm = true;
        self.dirty = true;
    }

    /// Whether faults were stopped.
    pub(crate) fn is_calm(&self) -> bool {
        self.head.calm
    }

    /// Whether the scenario still has something to do: an outage or a cue to come, a late effect, a rule with
    /// `until` before that time, a rule with `nth` or `count` that has not fired as often. Rules with `each`
    /// or `probability` do not count: nobody can say when they are done.
    pub(crate) fn has_unfinished_faults(&self, now: u64) -> bool {
        let elapsed = self.elapsed(now);
        let outage = || {
            self.settings
                .outages
                .iter()
                .any(|outage| elapsed < outage.until.0)
        };
        let rule = || (0..self.settings.rules.len()).any(|index| self.is_unfinished(index, elapsed));
        let to_come = || outage() || self.has_open_cues(elapsed) || rule();
        self.expects_late_effects() || (!self.head.calm && to_come())
    }

    fn is_unfinished(&self, index: usize, elapsed: u64) -> bool {
        let rule = &self.settings.rules[index];
        let open = rule.until.is_none_or(|until| elapsed < until);
        let target = rule
            .nth
            .max(rule.count)
            .filter(|_| !rule.each && rule.probability.is_none());
        match target {
            Some(target) => open && self.matched.get(&index.to_string()).copied().unwrap_or(0) < target,
            None => open && rule.until.is_some(),
        }
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = rest
        .rsplit_once('*')
        .map_or(("", rest), |(middle, tail)| (middle, tail));
    let Some(mut text) = text.strip_suffix(tail) else {
        return false;
    };
    for part in middle.split('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "x"),
            ("thing.*", "thing.make"),
            ("*.get", "task.get"),
            ("a*b*c", "aXbbXc"),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("thing.*", "task.get"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("x", "xy"),
            ("*b*", "ac"),
        ] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }
}
