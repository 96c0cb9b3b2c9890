//! What a cloud can do: its operations, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Milliseconds within which the call of a create begins, counted from when its pending entry was written: what begins
/// later is not performed. The `visible_within` of a catalogue rests on it.
pub const BEGINS_WITHIN: u64 = 10_000;

/// What an operation does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationEffect {
    /// Nothing.
    Read,
    /// Changes something that exists; doing it twice is harmless or refused.
    Change,
    /// Brings something into being; doing it twice makes two. Written ahead.
    Create,
}

/// One operation of a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// One sentence.
    pub description: String,
    /// What it does to the world.
    pub effect: OperationEffect,
    /// JSON Schema of the arguments.
    pub arguments: serde_json::Value,
    /// JSON Schema of the answer.
    pub answer: serde_json::Value,
    /// Milliseconds after which a call is cut; at most 5,000. Longer work answers a task.
    pub longest: u64,
    /// Creates: milliseconds after which what was created is seen by everybody who looks.
    pub visible_within: u64,
    /// Creates: the dotted path of the argument that must equal the act's intent. What is settled is looked for by the
    /// intent, so a policy must not create under another name than it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Dotted paths of arguments that take a sealed reference.
    pub sealed: Vec<String>,
}

/// A cloud's operations by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalogue {
    /// `vm.clone` and so on.
    pub operations: BTreeMap<String, Operation>,
    /// JSON Schema of a credential plan; none where the cloud has no sessions of its own.
    pub credential: Option<serde_json::Value>,
}
