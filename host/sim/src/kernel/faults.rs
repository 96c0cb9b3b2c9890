//! What a scenario makes go wrong: outages of everything, and faults of single calls.

use std::collections::BTreeSet;

use polity_clouds::Millis;
use polity_core::contract::{Code, Failure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Kernel;
use super::draw::chance;

/// A time in which the cloud cannot be reached, not even to resolve what is in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outage {
    /// When it begins.
    pub from: Millis,
    /// When it is over.
    pub until: Millis,
    /// What callers see.
    #[serde(default)]
    pub calls: Unreachable,
}

/// What callers see of a cloud that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Unreachable {
    /// `unavailable` at once, effect none.
    #[default]
    Refused,
    /// The call gets no answer.
    Silent,
}

/// Which calls go wrong, and how. Times are milliseconds since the start.
#[derive(Clone, Debug)]
pub(crate) struct Rule<Q> {
    /// The operations that it can meet.
    pub(crate) operations: BTreeSet<String>,
    /// The name of what the call is about; `*` stands for any characters.
    pub(crate) about: String,
    pub(crate) owner: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) from: u64,
    pub(crate) until: Option<u64>,
    /// Only the nth call that matches, counted from 1.
    pub(crate) nth: Option<u64>,
    /// Only the first so many that match.
    pub(crate) count: Option<u64>,
    /// They are counted for each owner by itself.
    pub(crate) each: bool,
    pub(crate) probability: Option<f64>,
    pub(crate) then: Fault<Q>,
}

/// How a call goes wrong. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Fault<Q> {
    /// It is refused and nothing happens.
    Fail {
        code: Code,
        /// `{name}` stands for the value of that sealed argument, `{session}` for the session's own token.
        message: Option<String>,
        retry_after: Option<u64>,
    },
    /// It happens, and is said to have failed.
    FailAfterwards(Code),
    /// It happens, and this is answered.
    AnswerWith(Value),
    /// It never arrives.
    LoseRequest,
    /// It happens, and nothing is answered.
    LoseAnswer,
    /// Nothing is answered, and it happens only after this long.
    HappenLate(u64),
    /// It happens at once and is answered after this long.
    AnswerAfter(u64),
    /// The work that it starts ends in this error.
    FailTask { fault: String, message: Option<String> },
    /// The work that it starts takes this long.
    TaskTakes(u64),
    /// What it reads is in this state.
    TaskState(String),
    /// Something that only the service understands.
    Quirk(Q),
}

/// What a call is about, for rules to match.
pub(crate) struct Subject<'a> {
    pub(crate) operation: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) tenant: &'a str,
    /// The name of the thing, where there is one.
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
    /// What goes wrong with this call. The first rule that fires decides; those after it do not count the call.
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
            let counter = match rule.each {
                true => format!("{index} {owner}"),
                false => index.to_string(),
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
    /// Is everything away? Then with which failure; without one, callers hear nothing.
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

    /// When outages begin and end.
    pub(crate) fn outage_turns(&self) -> impl Iterator<Item = u64> {
        let outages = self.settings.outages.iter().filter(|_| !self.head.calm);
        let edges = outages.flat_map(|outage| [outage.from.0, outage.until.0]);
        edges.map(|at| self.head.start + at)
    }

    /// From now on nothing goes wrong any more. What has begun goes on: doomed tasks fail, late effects arrive.
    pub(crate) fn stop_faults(&mut self) {
        self.head.calm = true;
        self.dirty = true;
    }

    /// Whether nothing goes wrong any more.
    pub(crate) fn is_calm(&self) -> bool {
        self.head.calm
    }

    /// Whether the scenario has something left to do: an outage or a cue to come, an effect that is late, a rule with
    /// `until` before that time, a rule with `nth` or `count` that has not fired so often (`each` and `probability`
    /// aside: nobody can say when those are done).
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

/// Does the text match the pattern, in which `*` stands for any characters?
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
