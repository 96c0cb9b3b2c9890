//! Entries of `status.pending`: creates that were, or may have been, performed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::{Unix, as_millis};

/// The place and the principal of a create. A result may be invisible to another principal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// First the identity that the server itself reports, never an address or a configured name; then the place
    /// within the server.
    pub place: Vec<String>,
    /// The principal, in the words of the server.
    pub principal: String,
}

impl Site {
    /// Whether a create that was entered for this site is visible from `other`: the same server and principal. The
    /// place within the server is known only for the entry.
    pub fn is_at(&self, other: &Site) -> bool {
        self.who() == other.who() && self.place.starts_with(&other.place)
    }

    /// The principal without the name of its session. AWS names who has assumed a role
    /// `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION` ("IAM identifiers"). The session is the instance under the
    /// metadata service, and the pod under EKS Pod Identity, so the host that takes over has another one.
    pub fn who(&self) -> &str {
        let session = || {
            let (before, role) = self.principal.split_once(":assumed-role/")?;
            let (_, session) = role.split_once('/')?;
            before.starts_with("arn:").then_some(session.len() + 1)
        };
        &self.principal[..self.principal.len() - session().unwrap_or(0)]
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in {} by {}", self.place.join("/"), self.principal)
    }
}

/// A create that was or may have been performed: an element of the primary's `status.pending`. An entry with an
/// unknown field comes from a newer host. It is unreadable here, because the field may change its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PendingEntry {
    /// `vm.clone`
    pub operation: String,
    /// The service of the operation with its major version: `vm@1`.
    pub service: String,
    /// The intent of the create: what it creates.
    pub intent: String,
    /// The key of this entry, made when the entry was written.
    pub key: String,
    /// The version of the cloud's marks: [`Catalogue::stamp`](crate::catalogue::Catalogue::stamp).
    pub stamp: u32,
    /// Where the resource is created: [`Site::place`].
    pub place: Vec<String>,
    /// The principal that creates it: [`Site::principal`].
    pub principal: String,
    /// When the entry was written.
    pub since: Unix,
    /// How long hosts have known of the entry, measured by a clock that does not jump. So the next host does not
    /// have to wait again until the result is visible to everybody.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "as_millis")]
    pub waited: Duration,
    /// What a person says became of the create, who has looked where no host can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ManualResolution>,
}

/// What a person says became of a create: `polity resolve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ManualResolution {
    /// Nothing was created, and nothing will be.
    Absent,
    /// It was created: the answer of the create.
    Done(Value),
}

impl PendingEntry {
    /// The place and the principal of the create.
    pub fn site(&self) -> Site {
        Site {
            place: self.place.clone(),
            principal: self.principal.clone(),
        }
    }
}
