//! The host's conditions on an object, as they are written.

use polity_kube_rules::conditions::{find, since};
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::grants::{self, HOST_CONDITION};
use crate::time::Unix;
use crate::tree::Tree;

/// The most characters of a condition's message that API servers keep (meta/v1 `Condition`).
const MESSAGE: usize = 32_768;
/// The condition that is `False` while the identity policy fails. The lifecycle policy, which reports its failures
/// itself, is not called then.
pub(crate) const RECONCILED: &str = "polity.dev/Reconciled";

/// A condition of the host on an object.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCondition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// A condition with the same reason is written again only if these first bytes of its message are new. The rest may
    /// differ at each try: it can hold the id of a request.
    pub(crate) compared: usize,
}

impl HostCondition {
    /// A condition that is `True`. Its type is `polity.dev/` and the reason.
    pub(crate) fn is(kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        HostCondition {
            kind,
            status: "True",
            reason: kind.trim_start_matches(HOST_CONDITION).into(),
            compared: message.len(),
            message,
        }
    }

    /// The message of a failed identity policy, as an Event has it; `None` if this condition says something else, or
    /// the object says it already.
    pub(crate) fn news_of_identity(&self, current: &Value) -> Option<&str> {
        let is_news = || find(current, self.kind).is_none_or(|old| !self.is_said_by(old));
        (self.kind == RECONCILED && is_news()).then_some(&*self.message)
    }

    /// Whether a condition that stands says the same.
    fn is_said_by(&self, old: &Value) -> bool {
        let message = old["message"].as_str().unwrap_or_default();
        let compared = &self.message[..self.compared];
        let is_whole = self.compared == self.message.len();
        let is_same = if is_whole {
            message == compared
        } else {
            message.starts_with(compared)
        };
        is_same && old["status"] == self.status && old["reason"] == *self.reason
    }
}

/// Replaces the host's own conditions. A condition that stands and says the same stays as it is; one whose status is the
/// same keeps its transition time.
pub(super) fn set_host_conditions(desired: &mut Tree, current: &Value, wanted: &[HostCondition], unix: Unix) {
    let old = grants::host_conditions(current);
    if wanted.is_empty() && old.is_empty() {
        return;
    }
    let all = desired.get(&["status", "conditions"]).and_then(Value::as_array);
    let mut list = all.cloned().unwrap_or_default();
    list.retain(|c| !grants::is_host_condition(c));
    for wanted in wanted {
        let standing = old.iter().find(|old| old["type"] == wanted.kind);
        if let Some(standing) = standing.filter(|standing| wanted.is_said_by(standing)) {
            list.push(Value::clone(standing));
            continue;
        }
        let since = since(old.iter().copied(), wanted.kind, wanted.status);
        let since = since.map_or_else(|| rfc3339(unix.0), str::to_owned);
        let message: String = wanted.message.chars().take(MESSAGE).collect();
        list.push(json!({
            "type": wanted.kind, "status": wanted.status, "reason": wanted.reason, "message": message,
            "lastTransitionTime": since
        }));
    }
    desired.set(&["status", "conditions"], list);
}
