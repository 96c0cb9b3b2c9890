//! Conditions: the first thing that a person or another controller reads of an object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;

/// True, False or Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// One condition, as Kubernetes objects have them in `status.conditions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about: `Ready`. Unique in its list.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the condition is true.
    pub status: ConditionStatus,
    /// The reason for the status, in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// `status.conditions`, with at most one condition of each type. They are merged by type when they are
/// published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// The condition of this type.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.kind == kind)
    }

    /// Whether the condition of this type exists and is True.
    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind)
            .is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the condition of this type. `lastTransitionTime` becomes `now` only if `status` changes. If
    /// nothing differs, nothing is written.
    pub fn set(
        &mut self,
        now: Time,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        match self.0.iter_mut().find(|condition| condition.kind == kind) {
            Some(condition) => {
                if condition.status != status {
                    condition.status = status;
                    condition.last_transition_time = Some(now.whole_seconds());
                }
                reason.clone_into(&mut condition.reason);
                condition.message = message;
            }
            None => self.0.push(Condition {
                kind: kind.to_owned(),
                status,
                reason: reason.to_owned(),
                message,
                last_transition_time: Some(now.whole_seconds()),
            }),
        }
    }

    /// Sets the condition of this type, unless it already has this status and reason. So a new message alone
    /// is not written. Returns whether the condition changed.
    pub fn announce(
        &mut self,
        now: Time,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
    ) -> bool {
        let known = self.get(kind);
        let news = known.is_none_or(|known| (known.status, known.reason.as_str()) != (status, reason));
        if news {
            self.set(now, kind, status, reason, message);
        }
        news
    }

    /// Sets a condition to True because the problem that it reported is over. A missing condition never
    /// reported a problem and stays missing. Returns whether the condition changed.
    pub fn heal(&mut self, now: Time, kind: &str, reason: &str) -> bool {
        self.get(kind).is_some() && self.announce(now, kind, ConditionStatus::True, reason, "")
    }

    /// Removes the condition of this type.
    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|condition| condition.kind != kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_said_once_and_its_end_too() {
        let now = Time::from_unix_ms(1_000);
        let mut conditions = Conditions::default();
        assert!(!conditions.heal(now, "Found", "Found"));
        assert!(conditions.is_empty(), "what never failed has no such condition");
        let missing = |conditions: &mut Conditions, message: &str| {
            conditions.announce(now, "Found", ConditionStatus::False, "Missing", message)
        };
        assert!(missing(&mut conditions, "one"));
        assert!(!missing(&mut conditions, "two"));
        assert_eq!(conditions.get("Found").unwrap().message, "one");
        assert!(conditions.heal(now, "Found", "Found"));
        assert!(!conditions.heal(now, "Found", "Found"));
        assert!(conditions.is_true("Found"));
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let (then, now) = (Time::from_unix_ms(1_000), Time::from_unix_ms(9_900));
        let mut conditions = Conditions::default();
        conditions.set(then, "Ready", ConditionStatus::False, "Starting", "one");
        conditions.set(now, "Ready", ConditionStatus::False, "Waiting", "two");
        let ready = conditions.get("Ready").unwrap();
        assert_eq!(
            (ready.reason.as_str(), ready.message.as_str()),
            ("Waiting", "two")
        );
        assert_eq!(ready.last_transition_time, Some(then));
        conditions.set(now, "Ready", ConditionStatus::True, "Done", "");
        assert_eq!(
            conditions.get("Ready").unwrap().last_transition_time,
            Some(Time::from_unix_ms(9_000))
        );
        assert!(conditions.is_true("Ready"));
    }
}
