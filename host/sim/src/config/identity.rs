//! Who is who in the simulated cloud, as it is configured: principals, their credentials, and who may become whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use polity_clouds::Millis;

/// Someone whom a credential plan `{"account": name}` can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// As the plan names it.
    pub name: String,
    /// Whom the cloud believes to talk to.
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
    /// Whose the host's own credentials are: an empty chain, and every call without a session. None: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Principal>,
    /// Fixed credentials.
    pub access_keys: Vec<AccessKey>,
    /// Who can be become.
    pub roles: Vec<IamRole>,
}

/// Somebody in an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// The account's id.
    pub account: String,
    /// Who it is.
    pub arn: String,
}

/// Fixed credentials, in a Secret with the keys `AccessKeyID` and `SecretAccessKey`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessKey {
    /// `AccessKeyID`
    pub id: String,
    /// SHA-256 of `SecretAccessKey`, in lower-case hexadecimal: the key itself is nobody's business here. Without it
    /// every one that is not empty is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_sha256: Option<String>,
    /// The account's id.
    pub account: String,
    /// Whose it is.
    pub arn: String,
    /// Expired from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Millis>,
}

/// A role, and who may assume it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IamRole {
    /// `arn:aws:iam::ACCOUNT:role/NAME`
    pub arn: String,
    /// The account it acts in; that of its ARN if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The ARNs that may assume it; `*` stands for any characters.
    #[serde(default)]
    pub trusts: Vec<String>,
    /// What who assumes it has to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The longest a session may last.
    #[serde(default = "an_hour")]
    pub longest: Millis,
    /// Whose tokens it may be assumed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_identity: Option<WebIdentity>,
}

/// Tokens of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebIdentity {
    /// Whose; `*` stands for any characters.
    pub namespaces: Vec<String>,
    /// For whom they must be meant.
    pub audience: String,
}

impl IamRole {
    /// The account that its sessions act in.
    pub(crate) fn acts_in(&self) -> String {
        let own = || self.arn.split(':').nth(4).unwrap_or_default().to_owned();
        self.account.clone().unwrap_or_else(own)
    }

    /// Who has assumed it.
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
