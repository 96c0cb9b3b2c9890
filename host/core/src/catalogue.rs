//! The catalogue of a cloud: its operations by name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Code, Failure, Need};
use crate::entry::PendingEntry;
use crate::time::as_millis;

/// A create must be sent within this time after its pending entry was written. Later it is not sent any more. The
/// `visible_within` of each create must include this time.
pub const BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// The effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationEffect {
    /// Changes nothing.
    Read,
    /// Changes something that exists. A second call is harmless or refused.
    Change,
    /// Creates something. A second call would create another one, so the host writes an entry ahead.
    Create,
}

/// One operation of a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// A description in one sentence.
    pub description: String,
    /// The service of the operation with its major version: `vm@1`.
    pub service: String,
    /// The effect of the operation.
    pub effect: OperationEffect,
    /// JSON Schema of the arguments.
    pub arguments: Value,
    /// JSON Schema of the answer.
    pub answer: Value,
    /// The longest time for a call: longer calls are cut. It is 5 s, or up to `OPERATION_AT_MOST` of the lease for a connection that
    /// says so. An operation that needs more time answers with a task.
    #[serde(with = "as_millis")]
    pub longest: Duration,
    /// For creates: the time after which everybody can see the result.
    #[serde(with = "as_millis")]
    pub visible_within: Duration,
    /// For creates: the dotted path of the argument that must equal the intent of the act. The outcome of a create
    /// is looked up by its intent, so a policy must not create under another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Dotted paths of arguments that take a sealed reference.
    pub sealed: Vec<String>,
}

/// One key of a Secret in the namespace of the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// `metadata.name` of the Secret.
    pub name: String,
    /// A key of its `data`.
    pub key: String,
}

impl SecretRef {
    /// The reference that a value contains; `None` if it is none.
    pub fn read(value: &Value) -> Option<Self> {
        SecretRef::deserialize(value.get("$secret")?).ok()
    }
}

impl Operation {
    /// The sealed references among the arguments, each with the dotted path at which it is used. The check of grants and
    /// the unsealing both use this function, so that they cannot differ.
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

/// The credential plans of a cloud: their schema, and the paths at which they name objects of the cluster.
///
/// Paths are dotted. A step that ends in `[]` means each element of a list: `chain[].secret`. The value at such a path has
/// a `namespace` and, for Secrets, a `name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// JSON Schema of a plan.
    pub schema: Value,
    /// The paths at which a plan names Secrets.
    pub secrets: Vec<String>,
    /// The paths at which a plan names service accounts, for which a token is requested.
    pub service_accounts: Vec<String>,
}

impl Credential {
    /// The Secrets that a plan names. The check of grants and the resolution both use this function, so that they
    /// cannot differ.
    pub fn secrets<'a>(&self, plan: &'a Value) -> Vec<&'a Value> {
        marked(&self.secrets, plan)
    }

    /// The service accounts that a plan names.
    pub fn service_accounts<'a>(&self, plan: &'a Value) -> Vec<&'a Value> {
        marked(&self.service_accounts, plan)
    }
}

/// The values at these paths; for each path in the order of the document.
fn marked<'a>(paths: &[String], plan: &'a Value) -> Vec<&'a Value> {
    paths.iter().flat_map(|path| at(path, plan)).collect()
}

fn at<'a>(path: &str, plan: &'a Value) -> Vec<&'a Value> {
    path.split('.').fold(vec![plan], |found, step| {
        let (name, each) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
        let found = found.into_iter().filter_map(|value| value.get(name));
        if each {
            found.filter_map(Value::as_array).flatten().collect()
        } else {
            found.collect()
        }
    })
}

/// The operations of a cloud by name, and how the cloud marks what it creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalogue {
    /// The version of the marks by which the cloud finds what it created. It changes whenever the marks change, and
    /// each entry contains it.
    pub stamp: u32,
    /// The stamps that this cloud can find. A create with another stamp stays in doubt until a cloud adapter can
    /// find it.
    pub finds: Vec<u32>,
    /// The operations by name, such as `vm.clone`.
    pub operations: BTreeMap<String, Operation>,
    /// The operations that its services need not have, and that it lacks: a policy that needs one is loaded all the
    /// same, and is answered [`Code::Unimplemented`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lacks: BTreeSet<String>,
    /// The credential plans; `None` if the cloud has no sessions of its own.
    pub credential: Option<Credential>,
}

impl Catalogue {
    /// The service of an operation; empty for an unknown operation.
    pub fn service(&self, operation: &str) -> &str {
        self.operations.get(operation).map_or("", |there| &there.service)
    }

    /// The operations that are needed by name and that this cloud would have to have, but has not.
    pub fn missing<'a>(&'a self, needs: &'a [Need]) -> impl Iterator<Item = &'a str> {
        needs.iter().filter_map(|need| match need {
            Need::Cloud(name) if name.ends_with('*') => None,
            Need::Cloud(name) if self.operations.contains_key(name) || self.lacks.contains(name) => None,
            Need::Cloud(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether this cloud can find the outcome of a create.
    ///
    /// # Errors
    /// The reason, in one sentence.
    pub fn can_resolve(&self, entry: &PendingEntry) -> Result<(), String> {
        let PendingEntry {
            operation, service, ..
        } = entry;
        match self.operations.get(operation) {
            None => return Err(format!("this cloud has no operation {operation}")),
            Some(there) if there.service != *service => {
                let has = &there.service;
                return Err(format!(
                    "{operation} was an operation of {service}, but this cloud has {has}"
                ));
            }
            Some(_) => {}
        }
        if self.finds.contains(&entry.stamp) {
            Ok(())
        } else {
            Err(format!(
                "the result has stamp {}, but this cloud finds stamps {:?}",
                entry.stamp, self.finds
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_needed_by_name_and_is_not_there_is_missing() {
        let operation = json!({"description": "", "service": "vm@1", "effect": "read", "arguments": {}, "answer": {},
            "longest": 1_000, "visibleWithin": 0, "sealed": []});
        let catalogue =
            json!({"stamp": 1, "finds": [1], "operations": {"vm.get": operation}, "lacks": ["vm.snapshot"]});
        let catalogue: Catalogue = serde_json::from_value(catalogue).expect("a catalogue");
        let cloud = |name: &str| Need::Cloud(name.to_owned());
        let needs = [
            cloud("vm.get"),
            cloud("vm.clone"),
            cloud("vm.snapshot"),
            cloud("disk.*"),
            Need::Secrets,
        ];
        assert_eq!(catalogue.missing(&needs).collect::<Vec<_>>(), ["vm.clone"]);
        assert_eq!(catalogue.missing(&needs[..1]).next(), None);
    }

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
