//! What a cloud can do: its operations, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Code, Failure};

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
    pub arguments: Value,
    /// JSON Schema of the answer.
    pub answer: Value,
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

/// One key of a Secret, in the primary's own reach: the host knows which namespace that is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// `metadata.name` of the Secret.
    pub name: String,
    /// A key of its `data`.
    pub key: String,
}

impl Operation {
    /// The sealed references among the arguments, each with the dotted path at which it is used. What must be granted
    /// and what is unsealed are both read here, so that they cannot differ.
    ///
    /// # Errors
    /// `invalid-argument` where something else stands at a sealed path.
    pub fn sealed_references(&self, arguments: &Value) -> Result<Vec<(&str, SecretRef)>, Failure> {
        let at = |path: &str| {
            path.split('.')
                .try_fold(arguments, |value, field| value.get(field))
        };
        let present = self.sealed.iter().filter_map(|path| Some((path, at(path)?)));
        present
            .map(|(path, value)| {
                let reference = value.get("$secret").cloned().unwrap_or_default();
                let reference = serde_json::from_value(reference).map_err(|_| {
                    let message = format!("{path}: expected {{\"$secret\": {{\"name\": .., \"key\": ..}}}}");
                    Failure::new(Code::InvalidArgument, message)
                })?;
                Ok((path.as_str(), reference))
            })
            .collect()
    }
}

/// A cloud's operations by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalogue {
    /// `vm.clone` and so on.
    pub operations: BTreeMap<String, Operation>,
    /// JSON Schema of a credential plan; none where the cloud has no sessions of its own.
    pub credential: Option<Value>,
}
