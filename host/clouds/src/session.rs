//! Credential plans and sessions. A plan names Secrets and never contains their values, which are passed beside it.

use std::collections::BTreeMap;
use std::fmt;

use polity_core::catalogue::Credential;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The name of a Secret in any namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct PlanSecret {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
}

/// A token of a service account that a plan names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanToken {
    /// The namespace of the service account.
    pub namespace: String,
    /// The name of the service account.
    pub name: String,
    /// The audiences of the token.
    pub audiences: Vec<String>,
    /// How many seconds the token is valid.
    pub expiration_seconds: u64,
}

/// The content of a Secret at this moment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    /// The digest that a `secret` question about it is answered with.
    pub digest: String,
    /// The decoded `data`.
    pub values: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretContent({} values)", self.values.len())
    }
}

/// The values with which an adapter opens a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The plan, checked against the catalogue's schema.
    pub plan: Value,
    /// The values of the Secrets that the plan names, in the plan's order.
    pub secrets: Vec<BTreeMap<String, String>>,
    /// The tokens that the plan names, in the plan's order; empty if the cloud does not log in with tokens.
    pub tokens: Vec<String>,
    /// The uid of the primary whose pass needs the session. The session itself belongs to no object.
    pub owner: String,
}

impl fmt::Debug for SessionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SessionRequest({} with {} Secrets)",
            self.plan,
            self.secrets.len()
        )
    }
}

/// A session of a cloud.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    /// The value that the adapter gets in [`Session::handle`](polity_core::call::Session). It never leaves the host.
    pub token: String,
    /// The facts about the session that policies see: its principal and its place.
    pub attributes: Value,
    /// When the session ends, in Unix milliseconds; `None` if it does not end by itself.
    pub expires: Option<u64>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({})", self.attributes)
    }
}

/// A plan, with the parts that all adapters have in common: where the catalogue marks a Secret, the plan has
/// `{namespace, name, digest, ..}`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPlan {
    value: Value,
    secrets: Vec<(PlanSecret, String)>,
    tokens: Vec<PlanToken>,
    digest: [u8; 32],
}

impl SessionPlan {
    /// Reads a plan that matches the catalogue's schema.
    pub fn new(credential: &Credential, value: Value) -> Self {
        let named = credential.secrets(&value).into_iter();
        let secrets = named.filter_map(|secret| {
            let digest = secret["digest"].as_str()?.to_owned();
            Some((PlanSecret::deserialize(secret).ok()?, digest))
        });
        let tokens = credential.service_accounts(&value).into_iter();
        let tokens = tokens.filter_map(|token| PlanToken::deserialize(token).ok());
        SessionPlan {
            tokens: tokens.collect(),
            secrets: secrets.collect(),
            digest: digest(&value),
            value,
        }
    }

    /// The plan as it was given.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The Secrets that the plan names, in its order, each with the digest in the plan.
    pub fn secrets(&self) -> &[(PlanSecret, String)] {
        &self.secrets
    }

    /// The tokens that the plan names, in its order.
    pub fn tokens(&self) -> &[PlanToken] {
        &self.tokens
    }

    /// The digest of the plan. Plans with the same content have the same digest, however they are spelled.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

fn digest(plan: &Value) -> [u8; 32] {
    let mut canonical = String::new();
    write(plan, &mut canonical);
    Sha256::digest(canonical.as_bytes()).into()
}

/// Writes JSON with sorted field names. The order in serde_json's maps depends on a feature that any crate may
/// enable.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            out.push('{');
            for (name, value) in sorted {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for element in elements {
                write(element, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plans_that_say_the_same_have_one_digest() {
        let read = |text: &str| {
            SessionPlan::new(&Credential::default(), serde_json::from_str(text).unwrap()).digest()
        };
        assert_eq!(read(r#"{"a": 1, "b": [2, 3]}"#), read(r#"{"b":[2,3],"a":1}"#));
        assert_ne!(read(r#"{"b": [2, 3]}"#), read(r#"{"b": [3, 2]}"#));
        assert_ne!(read(r#"{"a": "1"}"#), read(r#"{"a": 1}"#));
    }

    #[test]
    fn nothing_that_holds_values_prints_them() {
        let values = BTreeMap::from([("k".to_owned(), b"hunter22".to_vec())]);
        let content = SecretContent {
            digest: "d".to_owned(),
            values,
        };
        let request = SessionRequest {
            plan: json!({}),
            secrets: vec![BTreeMap::from([("k".to_owned(), "hunter22".to_owned())])],
            tokens: Vec::new(),
            owner: "u".to_owned(),
        };
        let opened = Opened {
            token: "hunter22".to_owned(),
            attributes: json!({"principal": "p"}),
            expires: None,
        };
        let printed = format!("{content:?} {request:?} {opened:?}");
        assert!(
            !printed.contains("hunter22") && !printed.contains("104"),
            "{printed}"
        );
    }
}
