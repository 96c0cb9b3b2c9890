//! Credential plans: the name of an account, or a chain of links.

use polity_core::catalogue::Credential;
use serde_json::{Value, json};

use super::{fields, name, text};

/// The most links of a chain. Policies allow fewer.
const LONGEST_CHAIN: usize = 16;

/// The entries of a Secret with credentials that say who or where, and prove nothing. Clouds repeat them in answers.
const NAMES: [&str; 5] = [
    "username",
    "userDomainName",
    "projectName",
    "projectDomainName",
    "region",
];

/// Whether an entry of a Secret with credentials is to be hidden.
pub(crate) fn is_secret(entry: &str) -> bool {
    !NAMES.iter().any(|name| name.eq_ignore_ascii_case(entry))
}

/// The schema of a credential plan.
pub fn plan() -> Credential {
    let account = fields(json!({"account": text()}), &["account"]);
    let link =
        json!({"oneOf": [one("secret", secret()), one("role", role()), one("webIdentity", web_identity())]});
    let chain = json!({"type": "array", "items": link, "maxItems": LONGEST_CHAIN});
    let chain = fields(json!({"region": text(), "chain": chain}), &["chain"]);
    Credential {
        schema: json!({"oneOf": [account, chain]}),
        secrets: vec!["chain[].secret".to_owned()],
        service_accounts: vec!["chain[].webIdentity".to_owned()],
    }
}

fn one(kind: &str, link: Value) -> Value {
    fields(json!({kind: link}), &[kind])
}

/// The identity object that a link comes from. The cloud does not see it, but plans of different identities differ.
fn identity() -> Value {
    let identity = json!({"kind": text(), "name": text(), "uid": text()});
    fields(identity, &["kind", "name", "uid"])
}

fn secret() -> Value {
    let link = json!({"identity": identity(), "namespace": name(), "name": name(), "digest": name()});
    fields(link, &["namespace", "name", "digest"])
}

fn role() -> Value {
    let link = json!({
        "identity": identity(),
        "arn": name(),
        "sessionName": text(),
        "durationSeconds": {"type": "integer", "minimum": 0},
        "externalId": text(),
        "inlinePolicy": text(),
        "policyARNs": {"type": "array", "items": text()},
    });
    fields(link, &["arn", "durationSeconds"])
}

fn web_identity() -> Value {
    let link = json!({
        "identity": identity(),
        "namespace": name(),
        "name": name(),
        "arn": name(),
        "audiences": {"type": "array", "items": text()},
        "expirationSeconds": {"type": "integer", "minimum": 0},
    });
    fields(
        link,
        &["namespace", "name", "arn", "audiences", "expirationSeconds"],
    )
}
