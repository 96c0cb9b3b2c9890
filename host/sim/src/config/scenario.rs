//! The faults and events of a scenario, as they are written in its file.

use polity_clouds::catalogue::{machine, node, router, task, vm};
use polity_core::contract::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::node_problem::NodeProblem;
use crate::kernel::cues::Cue;
use crate::kernel::faults::{Fault, Rule, glob};
use crate::power::Power;
use polity_clouds::Millis;

/// Which calls fail, and how. A rule without `nth`, `count` and `probability` fires each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The operation; `*` stands for any characters. `resolve` is the question about creates in doubt.
    /// `reachable` is the question whether the API server answers that machines join; any fault denies it.
    /// Sessions are opened by `sts.assume-role`, `sts.assume-role-with-web-identity` and, as the last call,
    /// `sts.get-caller-identity`.
    #[serde(default = "anything")]
    pub operation: String,
    /// Only calls on VMs, machines or routers of this name; `*` stands for any characters. For `sts` calls:
    /// the ARN of the role or of the caller.
    #[serde(default = "anything")]
    pub vm: String,
    /// Only calls for the object of this uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only calls for objects of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only calls at or after this time.
    #[serde(default)]
    pub from: Millis,
    /// Only calls before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Only the nth call that matches, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Only this many of the first calls that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Whether `nth` and `count` are counted for each owner separately.
    #[serde(default)]
    pub each: bool,
    /// Only with this probability, drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// How the call fails.
    pub then: Trouble,
}

impl FaultRule {
    /// A rule for every call of an operation. Its other fields restrict it.
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

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Trouble {
    /// The call is refused, and nothing happens.
    #[serde(rename_all = "camelCase")]
    Fail {
        /// The code of the failure.
        #[schemars(with = "String")]
        code: Code,
        /// The message for people. `{userData}`, `{bootstrapToken}` and `{token}` stand for the resolved
        /// arguments, `{session}` for the session's own token, and in an `sts` call `{SecretAccessKey}` and
        /// so on for the values of the plan's Secret. With them the cloud repeats what it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The earliest sensible time of the next try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Millis>,
    },
    /// The effect happens, but the answer is a failure.
    FailAfterwards {
        /// The code of the failure.
        #[schemars(with = "String")]
        code: Code,
    },
    /// The effect happens, and this is the answer instead of the catalogue's: an API that was extended or is
    /// broken.
    AnswerWith(Value),
    /// The request is lost: nothing happens, and there is no answer.
    LoseRequest,
    /// The effect happens, and the answer is lost.
    LoseAnswer,
    /// There is no answer, and the effect happens only after this time. This extends `visible-within`. It
    /// matches no `node.*`, because an agent runs on its machine.
    HappenLate(Millis),
    /// The effect happens at once, and the answer takes this long. If that is too long for the operation,
    /// there is no answer.
    AnswerAfter(Millis),
    /// The task that the call starts ends in this error. Matches only operations that start tasks, and
    /// `node.ensure`.
    FailTask {
        /// The fault, for example `InsufficientResourcesFault`.
        fault: String,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The task that the call starts takes this long. Matches only operations that start tasks, and
    /// `node.ensure`.
    TaskTakes(Millis),
    /// The task is shown in this state, which the catalogue need not know: an API that was extended. Matches
    /// only `task.get`.
    TaskState(String),
    /// The machine's node joins this long after it has booted. Matches only `machine.create`.
    JoinsAfter(Millis),
    /// The machine's node never joins. Matches only `machine.create`.
    NeverJoins,
    /// The cloud shows the machine only this long after its creation: until then it is not found by its id and by its name,
    /// and no list has it, as on EC2. This extends `visible-within`. Matches only `machine.create`.
    ShowsAfter(Millis),
    /// The name of the machine's node. Matches only `machine.create`.
    NodeName(String),
    /// The machine does not come back from this reboot until somebody turns it on. Matches only
    /// `node.reboot`.
    NeverReturns,
    /// The router's VM never answers. Matches only `router.boot`.
    NeverBoots,
    /// The router's VM cannot be built: it ends in ERROR with this fault, as Nova has it. Matches only `router.boot`.
    CannotBuild(String),
    /// The router's VM never shows the change. Matches only `port.attach` and `port.detach`.
    NeverPlugs,
    /// The credentials are valid but belong to this account. Matches only `sts.get-caller-identity`.
    LeadsTo(String),
}

/// A time in which the API server that the machines join does not answer: no machine joins, no node is heard
/// of, and the question whether it is reachable is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The beginning.
    pub from: Millis,
    /// The end.
    pub until: Millis,
}

/// Something that happens to a VM without a request of Polity, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorldEvent {
    /// The name of the VM, machine or router. If there is none, the event waits for it.
    pub vm: String,
    /// The earliest time.
    #[serde(default)]
    pub at: Millis,
    /// The time after a power-on task of the VM has ended, or after the machine was created. Without it the
    /// event happens as early as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_power_on: Option<Millis>,
    /// The time at which the event is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// What happens.
    pub does: Intervention,
}

/// An action of other people on VMs and routers, or a problem of a machine's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Intervention {
    /// The VM is removed, whatever its power is.
    Vanish,
    /// An operator turns it on.
    PowerOn,
    /// An operator turns it off.
    PowerOff,
    /// An operator suspends it.
    Suspend,
    /// The machine's node, if it has joined, falls silent. The machine runs on.
    FallSilent,
    /// The machine's node gets this problem.
    NodeProblem(NodeProblem),
    /// The machine's node is well again and heard of. If it had left, or was never to join, it joins. A
    /// router's VM answers again.
    Recover,
    /// The machine's node, if it has joined, leaves the cluster; the machine runs on.
    Leave,
    /// The pool wants another machine instead of this one.
    Retire,
    /// The router's VM runs on but no longer answers.
    Hang,
    /// The router is removed from the network service; its VM runs on.
    Withdraw,
}

impl Intervention {
    /// The power of the VM afterwards: `Some(None)` if it is gone, `None` if its power does not change.
    pub(crate) fn power(self) -> Option<Option<Power>> {
        match self {
            Intervention::Vanish => Some(None),
            Intervention::PowerOn => Some(Some(Power::On)),
            Intervention::PowerOff => Some(Some(Power::Off)),
            Intervention::Suspend => Some(Some(Power::Suspended)),
            _ => None,
        }
    }

    /// The operation that would have had this effect, or that shows it.
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

/// A fault that only the service that performs the call understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// The machine's node joins this many milliseconds after the machine has booted.
    JoinsAfter(u64),
    NeverJoins,
    NodeName(String),
    /// The cloud shows the machine this many milliseconds after its creation.
    ShowsAfter(u64),
    NeverReturns,
    NeverBoots,
    CannotBuild(String),
    NeverPlugs,
    LeadsTo(String),
}

/// The properties of an operation by which rules tell operations apart.
#[derive(Clone, Debug)]
pub(crate) struct RuleTarget {
    pub(crate) operation: String,
    /// Whether the operation answers a task.
    pub(crate) starts_task: bool,
}

impl FaultRule {
    /// The rule in the kernel's form, for those of these operations that it can match.
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
            Trouble::JoinsAfter(_) | Trouble::NeverJoins | Trouble::NodeName(_) | Trouble::ShowsAfter(_) => {
                operation == machine::CREATE
            }
            // An agent runs on its machine, so no request is on its way.
            Trouble::HappenLate(_) => !operation.starts_with("node."),
            Trouble::NeverReturns => operation == node::REBOOT,
            Trouble::NeverBoots | Trouble::CannotBuild(_) => operation == router::BOOT,
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
            Trouble::ShowsAfter(after) => Fault::Quirk(Quirk::ShowsAfter(after.0)),
            Trouble::NeverReturns => Fault::Quirk(Quirk::NeverReturns),
            Trouble::NeverBoots => Fault::Quirk(Quirk::NeverBoots),
            Trouble::CannotBuild(fault) => Fault::Quirk(Quirk::CannotBuild(fault)),
            Trouble::NeverPlugs => Fault::Quirk(Quirk::NeverPlugs),
            Trouble::LeadsTo(account) => Fault::Quirk(Quirk::LeadsTo(account)),
        }
    }
}

/// The operations that open sessions.
pub(crate) const ASSUME: &str = "sts.assume-role";
pub(crate) const ASSUME_BY_TOKEN: &str = "sts.assume-role-with-web-identity";
/// The last call of every plan: it tells whose the credentials are.
pub(crate) const CALLER: &str = "sts.get-caller-identity";
/// The question about creates in doubt.
pub(crate) const RESOLVE: &str = "resolve";
/// The question whether the API server answers that machines join. Any fault denies it.
pub(crate) const REACHABLE: &str = "reachable";

impl WorldEvent {
    /// The event in the kernel's form.
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
