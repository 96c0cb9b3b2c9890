//! The recording of a pass: everything that is needed to explain and to replay it.

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

/// The recording of one pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PassRecord {
    /// The number of the pass in the life of this host.
    pub pass: PassId,
    /// The object and the binding.
    pub key: Key,
    /// The object's kind.
    pub kind: Kind,
    /// The digest of the binding's spec; empty in recordings of older versions.
    #[serde(default = "no_text", skip_serializing_if = "is_no_text")]
    pub binding: Json,
    /// The uid of the object; empty if the object was absent.
    pub uid: String,
    /// When it started.
    pub started: Now,
    /// How long the key was queued before the pass.
    #[serde(default, with = "as_millis")]
    pub queued: Duration,
    /// When it ended.
    pub ended: Now,
    /// Why it ran.
    pub causes: Vec<Cause>,
    /// The number of failed passes in a row before this one.
    pub attempt: u32,
    /// The object as the pass read it.
    pub object: Option<Json>,
    /// The steps of each role, in order.
    pub roles: Vec<RoleRecord>,
    /// The outcome of the pass.
    pub outcome: Outcome,
    /// The writes to the object.
    pub writes: Vec<WriteRecord>,
    /// When the pass asked for the next pass; `None` if the pass was discarded.
    pub next: Option<Next>,
    /// The call of the retry policy, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryRecord>,
    /// The wait of the key after the pass, as finally decided.
    #[serde(default, with = "as_optional_millis")]
    pub wait: Option<Duration>,
    /// Whether most texts are missing, because more was said than could be recorded: the object, long requests and answers,
    /// and patches. No policy can be judged by such a pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
}

fn no_text() -> Json {
    "".into()
}

fn is_no_text(text: &Json) -> bool {
    text.is_empty()
}

/// The recording of one role in a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRecord {
    /// The role.
    pub role: Role,
    /// The digest of the policy.
    pub policy: PolicyId,
    /// The configuration of the policy.
    pub config: Json,
    /// The creates in doubt that the policy was told of.
    pub pending: Vec<ActInDoubt>,
    /// The number of steps.
    pub steps: u32,
    /// The fuel that the steps used.
    pub fuel: u64,
    /// The requests of the policy, with their answers.
    pub journal: Vec<Entry>,
    /// How many entries of the journal each step had; empty in recordings of older versions. What a step returned follows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub had: Vec<u32>,
    /// The verdict of an identity policy.
    pub verdict: Option<Verdict>,
    /// The conclusion, if the role concluded.
    pub conclusion: Option<Conclusion>,
    /// The fault, if the policy broke its contract.
    pub fault: Option<Fault>,
}

/// The recording of a call of a retry policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryRecord {
    /// The digest of the policy.
    pub policy: PolicyId,
    /// The request. It contains the configuration of the policy.
    pub request: RetryRequest,
    /// The answer, before the limits of the binding were applied.
    pub answer: Option<Wait>,
    /// The fault, if the policy broke its contract.
    pub fault: Option<Fault>,
}

/// A write to the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteRecord {
    /// The purpose of the write.
    pub purpose: WritePurpose,
    /// The version after the write; `None` if the write failed.
    pub version: Option<u64>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// The purpose of a write to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePurpose {
    /// Adds the finalizer before the first act.
    AddFinalizer,
    /// Writes the pending entries before the creates.
    WriteAhead,
    /// Publishes a part of the conclusion.
    Publish(Part),
}

/// The outcome of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The conclusion is published.
    Published,
    /// The identity policy denied the object. Its conclusion is published.
    Denied,
    /// The identity policy released the object.
    Released,
    /// The pass ended before it had any effect. It will run again.
    Discarded(Discard),
    /// A policy broke its contract.
    Faulted,
    /// The conclusion could not be published.
    Failed(Failure),
    /// The lease was lost during the pass.
    LeaseLost,
    /// The host stopped before the pass ended.
    Stopped,
    /// An event occurred that the rules of the host do not foresee: a defect of Polity, not of a policy.
    Bug(String),
}

impl Outcome {
    /// Whether the conclusion of a policy is published.
    pub fn is_concluded(&self) -> bool {
        matches!(self, Outcome::Published | Outcome::Denied | Outcome::Released)
    }
}

/// Why a pass ended before it had any effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discard {
    /// The object changed before the first act.
    Changed,
    /// A write that must come before the first act failed.
    NotWritten(Failure),
    /// Another writer changed these values, which the pass wanted to write.
    Conflict(Vec<EditPath>),
    /// Another object has its name now.
    Replaced,
    /// The object is gone.
    Gone,
    /// The binding names no policy for the pass.
    NoPolicy,
}

impl std::fmt::Display for Discard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Discard::Changed => f.write_str("the object changed before the first act"),
            Discard::NotWritten(failure) => write!(f, "a write before the first act failed: {failure}"),
            Discard::Conflict(paths) => write!(f, "another writer changed {}", paths.join(", ")),
            Discard::Replaced => f.write_str("another object has its name now"),
            Discard::Gone => f.write_str("the object is gone"),
            Discard::NoPolicy => f.write_str("the binding names no policy for the pass"),
        }
    }
}

impl PassRecord {
    /// About as many bytes as the pass holds in memory.
    pub fn bytes(&self) -> u64 {
        const PLAIN: u64 = 1 << 10;
        let of_role = |role: &RoleRecord| {
            let entries = role.journal.iter().map(bytes_of).sum::<u64>();
            let concluded = role.conclusion.as_ref();
            let patch = concluded.and_then(|concluded| concluded.patch.as_ref());
            entries + patch.map_or(0, |patch| patch.bytes() as u64)
        };
        PLAIN + self.roles.iter().map(of_role).sum::<u64>()
    }

    /// The pass without its long texts: what is left says when it was, why, and what it did.
    pub fn shorten(&mut self) {
        /// The bytes of requests and answers that a role keeps.
        const KEPT: u64 = 8 << 10;
        /// The most bytes of one that is kept.
        const SHORT: u64 = 1 << 10;
        (self.object, self.shortened) = (None, true);
        for role in &mut self.roles {
            let mut left = KEPT;
            role.journal.retain(|entry| {
                let bytes = bytes_of(entry);
                let is_kept = bytes <= SHORT.min(left);
                left -= if is_kept { bytes } else { 0 };
                is_kept
            });
            role.config = "null".into();
            if let Some(conclusion) = &mut role.conclusion {
                (conclusion.patch, conclusion.used) = (None, Vec::new());
            }
        }
    }

    /// The notes of all roles, in order.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.roles
            .iter()
            .filter_map(|role| role.conclusion.as_ref())
            .flat_map(|conclusion| conclusion.notes.iter().map(String::as_str))
    }
}

/// The bytes of a request and its answer.
fn bytes_of(entry: &Entry) -> u64 {
    let answer = entry.answer.as_ref();
    let answer = answer.map_or_else(|failure| failure.message.len(), |json| json.len());
    entry.request.bytes() + answer as u64
}
