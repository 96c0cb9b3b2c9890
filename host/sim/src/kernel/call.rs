//! A call as a service sees it, and ownership of things.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The caller, after its session was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The primary's uid.
    pub(crate) owner: String,
    /// The primary's tenant.
    pub(crate) tenant: String,
    /// The account in which the session acts; `None` in a cloud without accounts.
    pub(crate) account: Option<String>,
}

/// The ownership of a thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stamp {
    /// The primary's uid.
    pub(crate) owner: String,
    /// The tenant that the primary belonged to.
    pub(crate) tenant: String,
    /// For creates: the key of the pending entry.
    pub(crate) key: Option<String>,
    /// The account; `None` for the cloud's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
}

/// A call that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Call<Q> {
    pub(crate) caller: Caller,
    pub(crate) operation: String,
    pub(crate) arguments: Value,
    /// For creates: the key of the pending entry.
    pub(crate) key: Option<String>,
    pub(crate) plan: Plan<Q>,
}

/// What a scenario does to a call that is performed.
#[derive(Clone, Debug)]
pub(crate) struct Plan<Q> {
    /// The error in which the task of the call ends.
    pub(crate) doomed: Option<TaskError>,
    /// How many milliseconds the task takes; `None`: as configured.
    pub(crate) takes: Option<u64>,
    /// A fault that only the service understands.
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
    /// The caller of a session in this account.
    pub(crate) fn new(session: &Session, account: Option<&str>) -> Self {
        Caller {
            owner: session.owner.clone(),
            tenant: session.tenant.clone(),
            account: account.map(str::to_owned),
        }
    }

    /// Whether a thing is in the account in which the caller acts. Things of other accounts are not shown.
    pub(crate) fn sees(&self, stamp: &Stamp) -> bool {
        self.account == stamp.account
    }

    /// Whether a thing belongs to the caller, in any account.
    pub(crate) fn owns(&self, stamp: &Stamp) -> bool {
        stamp.owner == self.owner && stamp.tenant == self.tenant
    }

    /// Refuses a thing that belongs to another object.
    pub(crate) fn check_owner(&self, stamp: &Stamp, what: &str) -> Result<(), Failure> {
        if self.owns(stamp) {
            Ok(())
        } else {
            Err(Failure::new(
                Code::PermissionDenied,
                format!("{what} belongs to another object"),
            ))
        }
    }

    /// The scope in which a name is unique: this place in the caller's account.
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

    /// A text argument; empty if it is missing.
    pub(crate) fn text(&self, field: &str) -> &str {
        text(&self.arguments, field)
    }

    /// The ownership of things that the call creates.
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

    /// The failure of an operation that no service performs.
    pub(crate) fn unknown(&self) -> Failure {
        let message = format!("no operation {:?}", self.operation);
        Failure::new(Code::Unimplemented, message)
    }
}

/// A text field; empty if it is missing.
pub(crate) fn text<'a>(arguments: &'a Value, field: &str) -> &'a str {
    arguments.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The number 7 of `prefix7`. Other spellings of the number do not count.
pub(crate) fn number(id: &str, prefix: &str) -> Option<u64> {
    let number = id.strip_prefix(prefix)?.parse().ok()?;
    (format!("{prefix}{number}") == id).then_some(number)
}

/// The reason why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskError {
    /// The fault, for example `DuplicateName`.
    pub(crate) fault: String,
    pub(crate) message: String,
    /// Further details of the error.
    #[serde(flatten)]
    pub(crate) details: Map<String, Value>,
}

impl TaskError {
    pub(crate) fn new(fault: &str, message: impl Into<String>) -> Self {
        TaskError {
            fault: fault.to_owned(),
            message: message.into(),
            details: Map::new(),
        }
    }
}
