//! What a scenario makes go wrong, as it is written.

use polity_core::contract::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::millis::Millis;
use super::vm::Power;

/// Which calls go wrong, and how. A rule without `nth`, `count` and `probability` fires each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The operation; `*` stands for any characters. `settle` is what the host asks about creates in doubt.
    #[serde(default = "anything")]
    pub operation: String,
    /// Only calls on VMs of this name; `*` stands for any characters.
    #[serde(default = "anything")]
    pub vm: String,
    /// Only calls for the object of this uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only calls for objects of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Not before.
    #[serde(default)]
    pub from: Millis,
    /// Not at or after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Only the nth call that matches, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Only the first so many that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// `nth` and `count` are counted for each owner by itself.
    #[serde(default)]
    pub each: bool,
    /// Only as often as this, drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// What goes wrong.
    pub then: Trouble,
}

impl FaultRule {
    /// Every call of an operation goes wrong like this; the fields narrow it down.
    pub fn new(operation: &str, then: Trouble) -> Self {
        FaultRule {
            operation: operation.to_owned(),
            vm: anything(),
            owner: None,
            tenant: None,
            from: Millis(0),
            until: None,
            nth: None,
            count: None,
            each: false,
            probability: None,
            then,
        }
    }
}

/// How a call goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Trouble {
    /// It is refused and nothing happens.
    #[serde(rename_all = "camelCase")]
    Fail {
        /// `unavailable` and so on.
        #[schemars(with = "String")]
        code: Code,
        /// For people. `{userData}` stands for the resolved argument: a cloud that repeats what it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The earliest sensible next try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Millis>,
    },
    /// It never arrives: nothing happens and nothing is answered.
    LoseRequest,
    /// It happens, and nothing is answered.
    LoseAnswer,
    /// Nothing is answered, and it happens only after this long. Widens `visible-within`.
    HappenLate(Millis),
    /// It happens at once and is answered after this long: not at all if that is too long for the operation.
    AnswerAfter(Millis),
    /// The task that it starts ends in this error. Matches only operations that start tasks.
    FailTask {
        /// `InsufficientResourcesFault` and so on.
        fault: String,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The task that it starts runs this long. Matches only operations that start tasks.
    TaskTakes(Millis),
    /// A task is read in this state, which the catalogue need not know: an API that grew. Matches only `task.get`.
    TaskState(String),
}

/// A time in which the cloud cannot be reached, not even to settle what is in doubt.
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
    /// Nothing.
    Silent,
}

/// Something that happens to a VM without anybody asking Polity; once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorldEvent {
    /// The VM's name. While there is no such VM, the event waits for it.
    pub vm: String,
    /// Not before.
    #[serde(default)]
    pub at: Millis,
    /// This long after a power-on task of the VM ended. Without it: as soon as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_power_on: Option<Millis>,
    /// Given up at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// What happens.
    pub does: Intervention,
}

/// What other people do to VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Intervention {
    /// It is removed, whatever its power.
    Vanish,
    /// An operator turns it on.
    PowerOn,
    /// An operator turns it off.
    PowerOff,
    /// An operator suspends it.
    Suspend,
}

impl Intervention {
    /// The power it leads to; none for a VM that is gone.
    pub(crate) fn power(self) -> Option<Power> {
        match self {
            Intervention::Vanish => None,
            Intervention::PowerOn => Some(Power::On),
            Intervention::PowerOff => Some(Power::Off),
            Intervention::Suspend => Some(Power::Suspended),
        }
    }
}

fn anything() -> String {
    "*".to_owned()
}
