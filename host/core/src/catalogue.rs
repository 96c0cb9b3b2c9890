//! What a cloud can do: its operations, by name.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::PendingEntry;
use crate::contract::{Code, Failure};
use crate::time::as_millis;

/// Within this the call of a create begins, counted from when its pending entry was written: what begins
/// later is not performed. The `visible_within` of a catalogue rests on it.
pub const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// What an operation does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationEffect {
    /// It changes nothing.
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
    /// The service that it belongs to, with its major version: `vm@1`.
    pub service: String,
    /// What it does to the world.
    pub effect: OperationEffect,
    /// JSON Schema of the arguments.
    pub arguments: Value,
    /// JSON Schema of the answer.
    pub answer: Value,
    /// After this a call is cut; at most 5 s. Longer work answers a task.
    #[serde(with = "as_millis")]
    pub longest: Duration,
    /// Creates: after this what was created is seen by everybody who looks.
    #[serde(with = "as_millis")]
    pub visible_within: Duration,
    /// Creates: the dotted path of the argument that must equal the act's intent. What is settled is looked for by the
    /// intent, so a policy must not create under another name than it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Dotted paths of arguments that take a sealed reference.
    pub sealed: Vec<String>,
}

/// One key of a Secret, in the primary's own reach: the host knows which namespace that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// `metadata.name` of the Secret.
    pub name: String,
    /// A key of its `data`.
    pub key: String,
}

impl SecretRef {
    /// What a sealed reference names; none for anything else.
    pub fn read(value: &Value) -> Option<Self> {
        SecretRef::deserialize(value.get("$secret")?).ok()
    }
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
                let reference = SecretRef::read(value).ok_or_else(|| {
                    let message = format!("{path}: expected {{\"$secret\": {{\"name\": .., \"key\": ..}}}}");
                    Failure::new(Code::InvalidArgument, message)
                })?;
                Ok((path.as_str(), reference))
            })
            .collect()
    }
}

/// Credential plans of a cloud: their schema, and where in them something of the cluster is named.
///
/// Paths are dotted; a step that ends in `[]` means each element of a list: `chain[].secret`. What stands at a marked place
/// has a `namespace` and, for Secrets, a `name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// JSON Schema of a plan.
    pub schema: Value,
    /// Where a plan names Secrets.
    pub secrets: Vec<String>,
    /// Where a plan names service accounts, on whose behalf a token is asked for.
    pub service_accounts: Vec<String>,
}

impl Credential {
    /// What a plan names as Secrets. What must be granted and what is resolved are both read here, so that they cannot
    /// differ.
    pub fn secrets<'a>(&self, plan: &'a Value) -> Vec<&'a Value> {
        marked(&self.secrets, plan)
    }

    /// What a plan names as service accounts.
    pub fn service_accounts<'a>(&self, plan: &'a Value) -> Vec<&'a Value> {
        marked(&self.service_accounts, plan)
    }
}

/// What stands at marked places, in the order of the document for each path.
fn marked<'a>(paths: &[String], plan: &'a Value) -> Vec<&'a Value> {
    paths.iter().flat_map(|path| at(path, plan)).collect()
}

fn at<'a>(path: &str, plan: &'a Value) -> Vec<&'a Value> {
    path.split('.').fold(vec![plan], |found, step| {
        let (name, each) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
        let found = found.into_iter().filter_map(|value| value.get(name));
        match each {
            false => found.collect(),
            true => found.filter_map(Value::as_array).flatten().collect(),
        }
    })
}

/// A cloud's operations by name, and how it marks what it creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalogue {
    /// How it marks what it creates, and finds it: another number whenever that changes. It is entered with each create.
    pub stamp: u32,
    /// The stamps that it can find: what was entered with another is in doubt until a cloud comes that can.
    pub finds: Vec<u32>,
    /// `vm.clone` and so on.
    pub operations: BTreeMap<String, Operation>,
    /// Its credential plans; none where the cloud has no sessions of its own.
    pub credential: Option<Credential>,
}

impl Catalogue {
    /// The service of an operation; empty for one that there is not.
    pub fn service(&self, operation: &str) -> &str {
        self.operations.get(operation).map_or("", |there| &there.service)
    }

    /// Whether this cloud can say what came of a create; why not, if it cannot.
    ///
    /// # Errors
    /// In one sentence.
    pub fn can_resolve(&self, entry: &PendingEntry) -> Result<(), String> {
        let PendingEntry {
            operation, service, ..
        } = entry;
        match self.operations.get(operation) {
            None => return Err(format!("this cloud has no operation {operation}")),
            Some(there) if there.service != *service => {
                let has = &there.service;
                return Err(format!(
                    "{operation} was one of {service}, and this cloud has {has}"
                ));
            }
            Some(_) => {}
        }
        match self.finds.contains(&entry.stamp) {
            true => Ok(()),
            false => Err(format!(
                "what was created bears stamp {}, and this cloud finds {:?}",
                entry.stamp, self.finds
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_plan_names_is_found_where_the_cloud_says() {
        let credential = Credential {
            schema: Value::Null,
            secrets: vec!["chain[].secret".into(), "root".into()],
            service_accounts: vec!["chain[].token.account".into()],
        };
        let plan = json!({
            "chain": [{"secret": {"name": "a"}}, {"role": 1}, {"token": {"account": {"name": "sa"}}}, {"secret": {"name": "b"}}],
            "root": {"name": "r"},
        });
        let names = |found: Vec<&Value>| -> Vec<String> {
            found
                .iter()
                .map(|v| v["name"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(names(credential.secrets(&plan)), ["a", "b", "r"]);
        assert_eq!(names(credential.service_accounts(&plan)), ["sa"]);
        assert_eq!(
            credential.secrets(&json!({"chain": {"secret": 1}, "root": null})),
            [&Value::Null]
        );
        assert!(credential.secrets(&json!("chain")).is_empty());
    }
}
