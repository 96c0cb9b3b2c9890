//! Sessions of a cloud in the manner of AWS. A plan names the parts of a session and never contains a value.
//!
//! An identity policy describes a [`Plan`]. The host resolves it, asks the cloud which principal the credentials
//! belong to, and answers a handle. Equal plans share a session. So a plan contains everything that makes a session
//! different (uids, digests, roles, region), and nothing that changes without need, such as a resourceVersion.

use serde::{Deserialize, Serialize};

use crate::cloud::{self, CredentialAsk};

/// Asks for a session by its plan. The answer also says as which principal it acts. For the identity role
/// only.
pub fn open(plan: &Plan) -> CredentialAsk<Attributes> {
    cloud::credential(plan)
}

/// The cloud's description of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The principal as which it acts.
    pub principal: String,
    /// The account in which it acts; empty if the cloud has none.
    #[serde(default)]
    pub account: String,
}

/// The parts of a session: the host's own credentials, or the credentials of the first link. Each further link is
/// taken with the credentials of the link before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The region in which the session is used; the default is the cloud's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The links from the source to the principal that acts. Without links, the host's own credentials are used.
    pub chain: Vec<Link>,
}

/// One link on the way to the principal that acts.
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

/// The identity object that a link comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid: an identity that was deleted and created again is another identity.
    pub uid: String,
}

/// Fixed credentials in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretLink {
    /// The identity object of this link.
    pub identity: Identity,
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// The digest of the Secret from the answer to the policy. Other values of the Secret make another session.
    pub digest: String,
}

/// A role that is assumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleLink {
    /// The identity object of this link.
    pub identity: Identity,
    /// The role's ARN.
    pub arn: String,
    /// The name of the session in the records of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// The lifetime of the credentials.
    pub duration_seconds: u32,
    /// The external id that the role demands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A policy document that restricts the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_policy: Option<String>,
    /// Managed policies that restrict the session.
    #[serde(default, rename = "policyARNs", skip_serializing_if = "Vec::is_empty")]
    pub policy_arns: Vec<String>,
}

/// A role that is assumed with a token of a service account of the primary's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebIdentityLink {
    /// The identity object of this link.
    pub identity: Identity,
    /// The namespace of the service account.
    pub namespace: String,
    /// The name of the service account.
    pub name: String,
    /// The role's ARN.
    pub arn: String,
    /// The audiences of the token.
    pub audiences: Vec<String>,
    /// The lifetime of the token.
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
