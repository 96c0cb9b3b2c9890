//! A call as a service sees it, and to whom things belong.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tasks::TaskError;

/// Who calls, once the session was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The primary's uid.
    pub(crate) owner: String,
    /// The primary's tenant.
    pub(crate) tenant: String,
    /// The account that the session acts in; none where nobody has one.
    pub(crate) account: Option<String>,
}

/// To whom something belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stamp {
    /// The primary's uid.
    pub(crate) owner: String,
    /// The tenant that the primary belonged to.
    pub(crate) tenant: String,
    /// Creates: the key of the pending entry.
    pub(crate) key: Option<String>,
    /// In which account; none for the cloud's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
}

/// A call that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Call<Q> {
    pub(crate) caller: Caller,
    pub(crate) operation: String,
    pub(crate) arguments: Value,
    /// Creates: the key of the pending entry.
    pub(crate) key: Option<String>,
    pub(crate) plan: Plan<Q>,
}

/// What a scenario wants of a call that is performed.
#[derive(Clone, Debug)]
pub(crate) struct Plan<Q> {
    /// The work that it starts ends in this error.
    pub(crate) doomed: Option<TaskError>,
    /// The work that it starts takes so many milliseconds; none: as the configuration says.
    pub(crate) takes: Option<u64>,
    /// Something that only the service understands.
    pub(crate) quirk: Option<Q>,
}

impl<Q> Default for Plan<Q> {
    fn default() -> Self {
        Plan {
            doomed: None,
            takes: None,
            quirk: None,
        }
    }
}

impl Caller {
    /// Somebody in this account.
    pub(crate) fn new(session: &Session, account: Option<&str>) -> Self {
        Caller {
            owner: session.owner.clone(),
            tenant: session.tenant.clone(),
            account: account.map(str::to_owned),
        }
    }

    /// Whether something is in the account that the caller acts in. Of what is not, nothing is told.
    pub(crate) fn sees(&self, stamp: &Stamp) -> bool {
        self.account == stamp.account
    }

    /// Whether something belongs to the caller, whatever account it is in.
    pub(crate) fn owns(&self, stamp: &Stamp) -> bool {
        stamp.owner == self.owner && stamp.tenant == self.tenant
    }

    /// Refuses what belongs to somebody else.
    pub(crate) fn check_owner(&self, stamp: &Stamp, what: &str) -> Result<(), Failure> {
        match self.owns(stamp) {
            true => Ok(()),
            false => Err(Failure::new(
                Code::PermissionDenied,
                format!("{what} belongs to another object"),
            )),
        }
    }

    /// Where a name is unique: in this place of the caller's account.
    pub(crate) fn place(&self, place: Value) -> String {
        match &self.account {
            None => place.to_string(),
            Some(account) => json!([account, place]).to_string(),
        }
    }
}

impl<Q> Call<Q> {
    pub(crate) fn new(request: &CloudRequest, caller: Caller, plan: Plan<Q>) -> Self {
        Call {
            caller,
            operation: request.operation.clone(),
            arguments: request.arguments.clone(),
            key: request.key.clone(),
            plan,
        }
    }

    /// A text argument; empty if it is not there.
    pub(crate) fn text(&self, field: &str) -> &str {
        text(&self.arguments, field)
    }

    /// What is stamped on what it makes.
    pub(crate) fn stamp(&self) -> Stamp {
        let Caller {
            owner,
            tenant,
            account,
        } = self.caller.clone();
        Stamp {
            owner,
            tenant,
            key: self.key.clone(),
            account,
        }
    }

    /// No service performs it.
    pub(crate) fn unknown(&self) -> Failure {
        let message = format!("no operation {:?}", self.operation);
        Failure::new(Code::Unimplemented, message)
    }
}

/// A text field; empty if it is not there.
pub(crate) fn text<'a>(arguments: &'a Value, field: &str) -> &'a str {
    arguments.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// 7 of `prefix7`, spelled so and not otherwise.
pub(crate) fn number(id: &str, prefix: &str) -> Option<u64> {
    let number = id.strip_prefix(prefix)?.parse().ok()?;
    (format!("{prefix}{number}") == id).then_some(number)
}
