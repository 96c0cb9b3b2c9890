//! What the scenario makes go wrong.

use polity_core::call::Session;
use polity_core::contract::{Code, Failure};

use crate::Sim;
use crate::config::scenario::{FaultRule, Trouble, Unreachable};
use crate::kernel::draw::chance;
use crate::kernel::tasks::TaskKind;
use crate::services::machine;
use crate::services::pool::agent;
use crate::services::router;
use crate::services::session;
use crate::world::EventState;

/// What a call is about, for rules to match.
pub(crate) struct Subject<'a> {
    pub(crate) operation: &'a str,
    pub(crate) session: &'a Session,
    /// The VM's name, where there is one.
    pub(crate) vm: Option<String>,
}

impl Sim {
    /// Is the cloud away? Then with which failure; without one, callers hear nothing.
    pub(crate) fn unreachable(&self, now: u64) -> Option<Option<Failure>> {
        let elapsed = self.world.elapsed(now);
        let outage = self
            .config
            .outages
            .iter()
            .find(|o| (o.from.0..o.until.0).contains(&elapsed));
        let outage = outage.filter(|_| !self.world.head.calm)?;
        Some(match outage.calls {
            Unreachable::Refused => Some(Failure::new(Code::Unavailable, "the cloud refuses connections")),
            Unreachable::Silent => None,
        })
    }

    /// What goes wrong with this call. The first rule that fires decides; those after it do not count the call.
    pub(crate) fn trouble(&mut self, now: u64, subject: &Subject<'_>) -> Option<Trouble> {
        if self.world.head.calm {
            return None;
        }
        let elapsed = self.world.elapsed(now);
        (0..self.config.faults.len()).find_map(|index| {
            let rule = &self.config.faults[index];
            (matches(rule, elapsed, subject) && self.fires(index, &subject.session.owner))
                .then(|| self.config.faults[index].then.clone())
        })
    }

    fn fires(&mut self, index: usize, owner: &str) -> bool {
        let rule = &self.config.faults[index];
        let (nth, count, probability) = (rule.nth, rule.count, rule.probability);
        if nth.is_some() || count.is_some() {
            let counter = if rule.each {
                format!("{index} {owner}")
            } else {
                index.to_string()
            };
            let matched = self.world.matched.get_or_default(counter);
            *matched += 1;
            self.dirty = true;
            if nth.is_some_and(|nth| *matched != nth) || count.is_some_and(|count| *matched > count) {
                return false;
            }
        }
        probability.is_none_or(|p| chance(self.world.draw(owner), p))
    }

    /// From now on nothing goes wrong any more. What has begun goes on: doomed tasks fail, late effects arrive.
    pub fn stop_faults(&mut self) {
        self.world.head.calm = true;
        self.dirty = true;
    }

    /// Whether the scenario has something left to do: an outage or an event to come, an effect that is late, a rule
    /// with `until` before that time, a rule with `nth` or `count` that has not fired so often (`each` and
    /// `probability` aside: nobody can say when those are done).
    pub fn has_unfinished_faults(&mut self, now_ms: u64) -> bool {
        let now = self.advance(now_ms);
        let elapsed = self.world.elapsed(now);
        if self.world.expects_late_effects() {
            return true;
        }
        let outage = || {
            let away = self.config.outages.iter().map(|o| o.until);
            let down = self.config.api_server_down.iter().map(|span| span.until);
            away.chain(down).any(|until| elapsed < until.0)
        };
        let event = || {
            let states = self.config.events.iter().zip(&self.world.head.events);
            states
                .into_iter()
                .any(|(e, s)| *s != EventState::Done && e.until.is_none_or(|u| elapsed < u.0))
        };
        let rule = || (0..self.config.faults.len()).any(|index| self.unfinished(index, elapsed));
        !self.world.head.calm && (outage() || event() || rule())
    }

    fn unfinished(&self, index: usize, elapsed: u64) -> bool {
        let rule = &self.config.faults[index];
        let open = rule.until.is_none_or(|until| elapsed < until.0);
        let target = rule
            .nth
            .max(rule.count)
            .filter(|_| !rule.each && rule.probability.is_none());
        match target {
            Some(target) => open && self.world.matched.get(&index.to_string()).copied().unwrap_or(0) < target,
            None => open && rule.until.is_some(),
        }
    }
}

fn matches(rule: &FaultRule, elapsed: u64, subject: &Subject<'_>) -> bool {
    let meant = match rule.then {
        Trouble::FailTask { .. } | Trouble::TaskTakes(_) => {
            TaskKind::of_operation(subject.operation).is_some() || subject.operation == agent::ENSURE
        }
        Trouble::TaskState(_) => subject.operation == "task.get",
        Trouble::JoinsAfter(_) | Trouble::NeverJoins | Trouble::NodeName(_) => {
            subject.operation == machine::CREATE
        }
        // An agent stands on its machine: nothing is on its way there.
        Trouble::HappenLate(_) => !subject.operation.starts_with("node."),
        Trouble::NeverReturns => subject.operation == agent::REBOOT,
        Trouble::NeverBoots => subject.operation == router::BOOT,
        Trouble::NeverPlugs => ["port.attach", "port.detach"].contains(&subject.operation),
        Trouble::LeadsTo(_) => subject.operation == session::CALLER,
        _ => true,
    };
    rule.from.0 <= elapsed
        && rule.until.is_none_or(|until| elapsed < until.0)
        && glob(&rule.operation, subject.operation)
        && (rule.vm == "*" || subject.vm.as_deref().is_some_and(|vm| glob(&rule.vm, vm)))
        && rule
            .owner
            .as_ref()
            .is_none_or(|owner| *owner == subject.session.owner)
        && rule
            .tenant
            .as_ref()
            .is_none_or(|tenant| *tenant == subject.session.tenant)
        && meant
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
            ("vm.*", "vm.clone"),
            ("*.get", "task.get"),
            ("a*b*c", "aXbbXc"),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("vm.*", "task.get"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("x", "xy"),
            ("*b*", "ac"),
        ] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }
}
