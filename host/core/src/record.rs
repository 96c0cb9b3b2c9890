//! The recording of a pass: all that is needed to explain it and to replay it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::binding::PolicyId;
use crate::contract::{
    ActInDoubt, Cause, Conclusion, Entry, Failure, Json, Kind, Next, RetryRequest, Role, Verdict, Wait,
};
use crate::fault::Fault;
use crate::key::{Key, PassId};
use crate::merge::{EditPath, Part};
use crate::time::{Now, as_millis, as_optional_millis};

/// One pass, as it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PassRecord {
    /// Its number in this host's life.
    pub pass: PassId,
    /// Which object, under which binding.
    pub key: Key,
    /// The object's kind.
    pub kind: Kind,
    /// The object's uid; empty while it is absent.
    pub uid: String,
    /// When it started.
    pub started: Now,
    /// How long its key was queued before.
    #[serde(default, with = "as_millis")]
    pub queued: Duration,
    /// When it ended.
    pub ended: Now,
    /// Why it ran.
    pub causes: Vec<Cause>,
    /// Passes in a row before it that ended in a failure.
    pub attempt: u32,
    /// The object as it was read.
    pub object: Option<Json>,
    /// The steps of each role, in order.
    pub roles: Vec<RoleRecord>,
    /// What came of it.
    pub outcome: Outcome,
    /// What was written to the object.
    pub writes: Vec<WriteRecord>,
    /// What the pass asked for next; none if it was dropped.
    pub next: Option<Next>,
    /// What the retry policy said, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryRecord>,
    /// How long until the next try, as it was decided in the end.
    #[serde(default, with = "as_optional_millis")]
    pub wait: Option<Duration>,
}

/// What one role did in a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRecord {
    /// Which role.
    pub role: Role,
    /// The policy's digest.
    pub policy: PolicyId,
    /// Its configuration.
    pub config: Json,
    /// What it was handed as in doubt.
    pub pending: Vec<ActInDoubt>,
    /// Calls into the policy.
    pub steps: u32,
    /// Fuel used by them.
    pub fuel: u64,
    /// What it asked and did.
    pub journal: Vec<Entry>,
    /// How it ended.
    pub verdict: Option<Verdict>,
    /// How it ended.
    pub conclusion: Option<Conclusion>,
    /// How it broke its contract.
    pub fault: Option<Fault>,
}

/// What a retry policy was asked, and what it said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryRecord {
    /// The policy's digest.
    pub policy: PolicyId,
    /// What it was asked; its configuration is part of that.
    pub request: RetryRequest,
    /// What it said, before the limits of the binding.
    pub answer: Option<Wait>,
    /// How it broke its contract.
    pub fault: Option<Fault>,
}

/// One write to the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteRecord {
    /// What it was for.
    pub purpose: WritePurpose,
    /// The version it left; none if it failed.
    pub version: Option<u64>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// Why the host wrote to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePurpose {
    /// The finalizer before the first act.
    AddFinalizer,
    /// Pending entries before creates.
    WriteAhead,
    /// The conclusion.
    Publish(Part),
}

/// What came of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its conclusion is published.
    Published,
    /// Its identity was denied; what the identity policy concluded is published.
    Denied,
    /// Its identity let go of the object.
    Released,
    /// It was given up before any effect: it will run again.
    Discarded(Discard),
    /// A policy broke its contract.
    Faulted,
    /// Its conclusion could not be published.
    Failed(Failure),
    /// The lease was lost in the middle.
    LeaseLost,
    /// The host was to stop, and had no time left for it.
    Stopped,
    /// The host met an event that its own rules do not foresee: a defect of Polity, not of a policy.
    Bug(String),
}

impl Outcome {
    /// Whether what a policy concluded is published.
    pub fn is_concluded(&self) -> bool {
        matches!(self, Outcome::Published | Outcome::Denied | Outcome::Released)
    }
}

/// Why a pass was given up before any effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discard {
    /// The object changed before the first act.
    Changed,
    /// A write that had to come before the first act failed.
    NotWritten(Failure),
    /// Somebody else changed these values, which the pass wanted to write.
    Conflict(Vec<EditPath>),
    /// Another object stands at its name.
    Replaced,
    /// The object is gone.
    Gone,
    /// The binding names no policy to ask.
    NoPolicy,
}

impl std::fmt::Display for Discard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Discard::Changed => f.write_str("the object changed before the first act"),
            Discard::NotWritten(failure) => write!(f, "before the first act: {failure}"),
            Discard::Conflict(paths) => write!(f, "somebody else changed {}", paths.join(", ")),
            Discard::Replaced => f.write_str("another object stands at its name"),
            Discard::Gone => f.write_str("the object is gone"),
            Discard::NoPolicy => f.write_str("the binding names no policy to ask"),
        }
    }
}

impl PassRecord {
    /// The notes of all roles, in order.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.roles
            .iter()
            .filter_map(|role| role.conclusion.as_ref())
            .flat_map(|conclusion| conclusion.notes.iter().map(String::as_str))
    }
}
