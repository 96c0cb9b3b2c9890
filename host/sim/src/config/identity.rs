//! Identities in the simulated cloud: principals, their credentials, and the roles that they may assume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use polity_clouds::Millis;

/// An account that a credential plan `{"account": name}` can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// As the plan names it.
    pub name: String,
    /// The principal as which the cloud sees the caller.
    pub principal: String,
}

/// An identity provider in the manner of AWS. Credential plans `{"region"?, "chain": [..]}` are resolved by it.
///
/// ```yaml
/// identity:
///   host: {account: "111111111111", arn: "arn:aws:iam::111111111111:role/controller"}
///   accessKeys: [{id: AKIAEXAMPLE, account: "222222222222", arn: "arn:aws:iam::222222222222:user/a"}]
///   roles:
///   - {arn: "arn:aws:iam::333333333333:role/capa", trusts: ["arn:aws:iam::111111111111:role/*"], externalId: x}
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IdentityProvider {
    /// The principal of the host's own credentials: an empty chain uses them, and so does every call without
    /// a session. Without it the host has no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Principal>,
    /// Fixed credentials.
    pub access_keys: Vec<AccessKey>,
    /// The roles that can be assumed.
    pub roles: Vec<IamRole>,
}

/// A principal of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// The account's id.
    pub account: String,
    /// The ARN of the principal.
    pub arn: String,
}

/// Fixed credentials, in a Secret with the keys `AccessKeyID` and `SecretAccessKey`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessKey {
    /// `AccessKeyID`
    pub id: String,
    /// The SHA-256 of `SecretAccessKey` in lower-case hexadecimal; the configuration never holds the key
    /// itself. Without it, every key that is not empty is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_sha256: Option<String>,
    /// The account's id.
    pub account: String,
    /// The ARN of the principal that the key belongs to.
    pub arn: String,
    /// When the key expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Millis>,
}

/// A role, and who may assume it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IamRole {
    /// `arn:aws:iam::ACCOUNT:role/NAME`
    pub arn: String,
    /// The account in which the role acts; by default that of its ARN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The ARNs that may assume it; `*` stands for any characters.
    #[serde(default)]
    pub trusts: Vec<String>,
    /// The external id that a caller must give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The longest session of the role.
    #[serde(default = "an_hour")]
    pub longest: Millis,
    /// The tokens with which the role can be assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_identity: Option<WebIdentity>,
}

/// Tokens of service accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebIdentity {
    /// The namespaces whose tokens are accepted; `*` stands for any characters.
    pub namespaces: Vec<String>,
    /// The audience that the tokens must have.
    pub audience: String,
}

impl IamRole {
    /// The account in which its sessions act.
    pub(crate) fn acts_in(&self) -> String {
        let own = || self.arn.split(':').nth(4).unwrap_or_default().to_owned();
        self.account.clone().unwrap_or_else(own)
    }

    /// The ARN of a session of this role.
    pub(crate) fn assumed(&self, session_name: &str) -> String {
        let name = self.arn.rsplit('/').next().unwrap_or_default();
        format!(
            "arn:aws:sts::{}:assumed-role/{name}/{session_name}",
            self.acts_in()
        )
    }
}

fn an_hour() -> Millis {
    Millis::seconds(3_600)
}
