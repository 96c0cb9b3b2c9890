//! What a scenario makes go wrong, as it is written.

use polity_clouds::catalogue::{machine, node, router, task, vm};
use polity_core::contract::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::ailment::Ailment;
use crate::kernel::cues::Cue;
use crate::kernel::faults::{Fault, Rule, glob};
use crate::power::Power;
use polity_clouds::Millis;

/// Which calls go wrong, and how. A rule without `nth`, `count` and `probability` fires each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The operation; `*` stands for any characters. `resolve` is what the host asks about creates in doubt,
    /// `reachable` whether the API server answers that machines join, which any trouble denies. Sessions
    /// are opened by `sts.assume-role`, `sts.assume-role-with-web-identity` and at last `sts.get-caller-identity`.
    #[serde(default = "anything")]
    pub operation: String,
    /// Only calls on VMs, machines or routers of this name; `*` stands for any characters. Of the `sts` calls: the ARN
    /// of the role, or of the caller.
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
        /// For people. `{userData}`, `{bootstrapToken}` and `{token}` stand for the resolved arguments, `{session}` for
        /// the session's own token, and in an `sts` call `{SecretAccessKey}` and so on for the values of the plan's
        /// Secret: a cloud that repeats what it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The earliest sensible next try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Millis>,
    },
    /// It happens, and is said to have failed.
    FailAfterwards {
        /// `unknown` and so on.
        #[schemars(with = "String")]
        code: Code,
    },
    /// It happens, and this is answered instead of what the catalogue says: an API that grew, or broke.
    AnswerWith(Value),
    /// It never arrives: nothing happens and nothing is answered.
    LoseRequest,
    /// It happens, and nothing is answered.
    LoseAnswer,
    /// Nothing is answered, and it happens only after this long. Widens `visible-within`. Matches no `node.*`: an agent
    /// stands on its machine.
    HappenLate(Millis),
    /// It happens at once and is answered after this long: not at all if that is too long for the operation.
    AnswerAfter(Millis),
    /// The task that it starts ends in this error. Matches only operations that start tasks, and `node.ensure`.
    FailTask {
        /// `InsufficientResourcesFault` and so on.
        fault: String,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The task that it starts runs this long. Matches only operations that start tasks, and `node.ensure`.
    TaskTakes(Millis),
    /// A task is read in this state, which the catalogue need not know: an API that grew. Matches only `task.get`.
    TaskState(String),
    /// The machine's node joins this long after it has booted. Matches only `machine.create`.
    JoinsAfter(Millis),
    /// The machine's node never joins. Matches only `machine.create`.
    NeverJoins,
    /// The machine's node is called like this. Matches only `machine.create`.
    NodeName(String),
    /// The machine does not come back from this reboot until somebody turns it on. Matches only `node.reboot`.
    NeverReturns,
    /// The router's VM never answers. Matches only `router.boot`.
    NeverBoots,
    /// The router's VM never shows the change. Matches only `port.attach` and `port.detach`.
    NeverPlugs,
    /// The credentials are valid, and lead to this account. Matches only `sts.get-caller-identity`.
    LeadsTo(String),
}

/// A time in which the API server that the machines join does not answer: nobody joins, no node is heard of, and
/// Whoever asks whether it is reachable is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// When it begins.
    pub from: Millis,
    /// When it is over.
    pub until: Millis,
}

/// Something that happens to a VM without anybody asking Polity; once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorldEvent {
    /// The name of the VM, machine or router. While there is none, the event waits for it.
    pub vm: String,
    /// Not before.
    #[serde(default)]
    pub at: Millis,
    /// This long after a power-on task of the VM ended, or after a machine was made. Without it: as soon as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_power_on: Option<Millis>,
    /// Given up at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// What happens.
    pub does: Intervention,
}

/// What other people do to VMs and routers, or what befalls the nodes of machines.
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
    /// The machine's node, if it has joined, is not heard of any more; the machine runs on.
    FallSilent,
    /// The machine's node has something.
    Ail(Ailment),
    /// The machine's node is well and heard of again; if it had left, or was never to join, it joins. A router's VM
    /// answers again.
    Recover,
    /// The machine's node, if it has joined, leaves the cluster; the machine runs on.
    Leave,
    /// Somebody wants another machine instead of this one of a pool.
    Retire,
    /// The router's VM runs on and answers no more.
    Hang,
    /// The router is removed from the network service; its VM runs on.
    Withdraw,
}

impl Intervention {
    /// The power that the VM has from then on, none if it is gone. Nothing where its power is not concerned.
    pub(crate) fn power(self) -> Option<Option<Power>> {
        match self {
            Intervention::Vanish => Some(None),
            Intervention::PowerOn => Some(Some(Power::On)),
            Intervention::PowerOff => Some(Some(Power::Off)),
            Intervention::Suspend => Some(Some(Power::Suspended)),
            _ => None,
        }
    }

    /// The operation that would have done it, or that tells of it.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Intervention::Vanish => vm::DESTROY,
            Intervention::PowerOn => vm::POWER_ON,
            Intervention::PowerOff | Intervention::Suspend => vm::POWER_OFF,
            Intervention::Hang | Intervention::Withdraw => router::RESOURCE,
            _ => "machine.node",
        }
    }
}

/// A fault that only the service understands that performs the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// The machine's node joins so many milliseconds after it has booted.
    JoinsAfter(u64),
    NeverJoins,
    NodeName(String),
    NeverReturns,
    NeverBoots,
    NeverPlugs,
    LeadsTo(String),
}

/// An operation as far as rules can tell operations apart.
#[derive(Clone, Debug)]
pub(crate) struct RuleTarget {
    pub(crate) operation: String,
    /// It answers a task.
    pub(crate) starts_task: bool,
}

impl FaultRule {
    /// The rule as the kernel applies it, to those of these operations that it can meet.
    pub(crate) fn compile(&self, operations: &[RuleTarget]) -> Rule<Quirk> {
        let met = operations.iter().filter(|met| self.then.can_meet(met));
        let met = met.map(|met| met.operation.clone());
        Rule {
            operations: met.filter(|operation| glob(&self.operation, operation)).collect(),
            about: self.vm.clone(),
            owner: self.owner.clone(),
            tenant: self.tenant.clone(),
            from: self.from.0,
            until: self.until.map(|until| until.0),
            nth: self.nth,
            count: self.count,
            each: self.each,
            probability: self.probability,
            then: self.then.compile(),
        }
    }
}

impl Trouble {
    fn can_meet(&self, target: &RuleTarget) -> bool {
        let operation = target.operation.as_str();
        match self {
            Trouble::FailTask { .. } | Trouble::TaskTakes(_) => {
                target.starts_task || operation == node::ENSURE
            }
            Trouble::TaskState(_) => operation == task::GET,
            Trouble::JoinsAfter(_) | Trouble::NeverJoins | Trouble::NodeName(_) => {
                operation == machine::CREATE
            }
            // An agent stands on its machine: nothing is on its way there.
            Trouble::HappenLate(_) => !operation.starts_with("node."),
            Trouble::NeverReturns => operation == node::REBOOT,
            Trouble::NeverBoots => operation == router::BOOT,
            Trouble::NeverPlugs => [router::ATTACH, router::DETACH].contains(&operation),
            Trouble::LeadsTo(_) => operation == CALLER,
            _ => true,
        }
    }

    fn compile(&self) -> Fault<Quirk> {
        match self.clone() {
            Trouble::Fail {
                code,
                message,
                retry_after,
            } => Fault::Fail {
                code,
                message,
                retry_after: retry_after.map(|after| after.0),
            },
            Trouble::FailAfterwards { code } => Fault::FailAfterwards(code),
            Trouble::AnswerWith(answer) => Fault::AnswerWith(answer),
            Trouble::LoseRequest => Fault::LoseRequest,
            Trouble::LoseAnswer => Fault::LoseAnswer,
            Trouble::HappenLate(by) => Fault::HappenLate(by.0),
            Trouble::AnswerAfter(after) => Fault::AnswerAfter(after.0),
            Trouble::FailTask { fault, message } => Fault::FailTask { fault, message },
            Trouble::TaskTakes(takes) => Fault::TaskTakes(takes.0),
            Trouble::TaskState(state) => Fault::TaskState(state),
            Trouble::JoinsAfter(after) => Fault::Quirk(Quirk::JoinsAfter(after.0)),
            Trouble::NeverJoins => Fault::Quirk(Quirk::NeverJoins),
            Trouble::NodeName(name) => Fault::Quirk(Quirk::NodeName(name)),
            Trouble::NeverReturns => Fault::Quirk(Quirk::NeverReturns),
            Trouble::NeverBoots => Fault::Quirk(Quirk::NeverBoots),
            Trouble::NeverPlugs => Fault::Quirk(Quirk::NeverPlugs),
            Trouble::LeadsTo(account) => Fault::Quirk(Quirk::LeadsTo(account)),
        }
    }
}

/// The calls by which sessions are opened.
pub(crate) const ASSUME: &str = "sts.assume-role";
pub(crate) const ASSUME_BY_TOKEN: &str = "sts.assume-role-with-web-identity";
/// The last call of every plan: whose the credentials are.
pub(crate) const CALLER: &str = "sts.get-caller-identity";
/// What the host asks about creates in doubt.
pub(crate) const RESOLVE: &str = "resolve";
/// Whether the API server answers that machines join; any trouble says that it does not.
pub(crate) const REACHABLE: &str = "reachable";

impl WorldEvent {
    /// When it happens, as the kernel keeps it.
    pub(crate) fn cue(&self) -> Cue {
        Cue {
            about: self.vm.clone(),
            at: self.at.0,
            after_start: self.after_power_on.map(|after| after.0),
            until: self.until.map(|until| until.0),
        }
    }
}

fn anything() -> String {
    "*".to_owned()
}
