//! Rules about rooms, the resources that all passes share: how much of them is in use, and which work is done in vain.

use polity_core::call::Write;
use polity_core::contract::{Answer, Code};

use super::{Oracle, Rule, Verdict, ensure};

impl Oracle {
    /// A process of a host sends a call.
    pub fn fills(&self, overfills: bool, host: &str) -> Verdict {
        ensure(!overfills, Rule::Rooms, || {
            format!("{host} has more calls under way than a room holds")
        })
    }

    /// A pass may hold texts of any size.
    pub fn grows(&mut self) {
        self.reached.insert("a pass became large");
    }

    /// A write reaches the API server.
    pub fn tries(&self, host: &str, write: &Write, what: impl FnOnce() -> String) -> Verdict {
        let met = precondition(host, write).is_some_and(|met| self.conflicts.contains(&met));
        ensure(!met, Rule::Hopeless, || {
            format!("{host} tries what met a conflict before: {}", what())
        })
    }

    /// What came of it.
    pub fn tried(&mut self, host: &str, write: &Write, answer: &Answer) {
        if matches!(answer, Err(failure) if failure.code == Code::Aborted) {
            self.conflicts.extend(precondition(host, write));
        }
    }
}

fn precondition(host: &str, write: &Write) -> Option<(String, String, String)> {
    let Write::Patch { precondition, .. } = write else {
        return None;
    };
    let held = precondition.clone()?;
    Some((host.to_owned(), held.uid, held.resource_version?))
}
