//! Sessions of an AWS-style cloud: what credentials are made from, by name and never by value.
//!
//! An identity policy describes a [`Plan`]; the host resolves it, asks the cloud whose credentials they are, and answers
//! a handle. Equal plans are one session: a plan holds what makes it another one (uids, digests, roles, region), and
//! nothing that changes without need, such as a resourceVersion.

use serde::{Deserialize, Serialize};

use crate::cloud::{self, CredentialAsk};

/// Asks for a session by its plan, and as whom it acts; identity role only.
pub fn open(plan: &Plan) -> CredentialAsk<Attributes> {
    cloud::credential(plan)
}

/// What the cloud says of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// As whom it acts.
    pub principal: String,
    /// The account it acts in.
    pub account: String,
}

/// What a session is made from: the host's own credentials, or the first link's; each further link is taken with the
/// credentials of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Where the session is used; the cloud's default if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// From the source to the principal that acts. Empty: the host's own credentials.
    pub chain: Vec<Link>,
}

/// One step towards the principal that acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// Fixed credentials in a Secret.
    Secret(SecretLink),
    /// A role that is assumed.
    Role(RoleLink),
    /// A role that is assumed with a token of the primary's namespace, which the host makes.
    WebIdentity(WebIdentityLink),
}

/// The object that a link was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid: an identity that was made anew is another one.
    pub uid: String,
}

/// Fixed credentials in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretLink {
    /// Who says so.
    pub identity: Identity,
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// What the policy was answered for it: other values are another session.
    pub digest: String,
}

/// A role that is assumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleLink {
    /// Who says so.
    pub identity: Identity,
    /// The role's ARN.
    pub arn: String,
    /// How the session is called in the account's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// How long the credentials live.
    pub duration_seconds: u32,
    /// What the role's owner wants to hear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A policy document that narrows the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_policy: Option<String>,
    /// Managed policies that narrow the session.
    #[serde(default, rename = "policyARNs", skip_serializing_if = "Vec::is_empty")]
    pub policy_arns: Vec<String>,
}

/// A role that is assumed with a token of the primary's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebIdentityLink {
    /// Who says so.
    pub identity: Identity,
    /// The namespace that the token speaks for.
    pub namespace: String,
    /// The role's ARN.
    pub arn: String,
    /// Whom the token is meant for.
    pub audiences: Vec<String>,
    /// How long the token lives.
    pub expiration_seconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ask;
    use crate::contract::Question;
    use serde_json::{Value, json};

    #[test]
    fn a_plan_is_written_as_the_host_reads_it() {
        let identity = |kind: &str| Identity {
            kind: kind.into(),
            name: "a".into(),
            uid: "u".into(),
        };
        let plan = Plan {
            region: Some("eu-central-1".into()),
            chain: vec![
                Link::Secret(SecretLink {
                    identity: identity("S"),
                    namespace: "system".into(),
                    name: "keys".into(),
                    digest: "d".into(),
                }),
                Link::Role(RoleLink {
                    identity: identity("R"),
                    arn: "arn:r".into(),
                    session_name: None,
                    duration_seconds: 900,
                    external_id: Some("x".into()),
                    inline_policy: None,
                    policy_arns: Vec::new(),
                }),
            ],
        };
        let Question::Credential(asked) = open(&plan).question(None) else {
            panic!("not a credential plan")
        };
        assert_eq!(
            serde_json::from_str::<Value>(&asked).unwrap(),
            json!({"region": "eu-central-1", "chain": [
                {"secret": {"identity": {"kind": "S", "name": "a", "uid": "u"},
                    "namespace": "system", "name": "keys", "digest": "d"}},
                {"role": {"identity": {"kind": "R", "name": "a", "uid": "u"},
                    "arn": "arn:r", "durationSeconds": 900, "externalId": "x"}},
            ]})
        );
        assert_eq!(serde_json::from_str::<Plan>(&asked).unwrap(), plan);
    }
}
