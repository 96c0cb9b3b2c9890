//! Conditions of the host: they say what blocks an object, beside the conditions of its policies.

use std::time::Duration;

use polity_kube_rules::conditions::{find, since};
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::binding::Binding;
use crate::call::PendingEntry;
use crate::contract::{Code, Failure, Next, Resolution, RetryClass, Role};
use crate::grants::{self, HOST_CONDITION};
use crate::reconcile::pending::Pending;
use crate::reconcile::work::Fate;
use crate::reconcile::{Frame, Work};
use crate::record::Outcome;
use crate::time::{Unix, millis};
use crate::tree::Tree;

/// The most characters of a condition's message that API servers keep (meta/v1 `Condition`).
const MESSAGE: usize = 32_768;
/// The times in messages are rounded up to this many milliseconds, so that clocks that differ a little tell the same.
const TOLD: u64 = 10_000;

/// A condition of the host on an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HostCondition {
    kind: &'static str,
    status: &'static str,
    reason: String,
    message: String,
    /// A condition with the same reason is written again only if these first bytes of its message are new. The rest may
    /// differ at each try: it can hold the id of a request.
    compared: usize,
}

impl HostCondition {
    /// A condition that is `True`. Its type is `polity.dev/` and the reason.
    pub(super) fn is(kind: &'static str, message: impl Into<String>) -> Self {
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
    pub(super) fn news_of_identity(&self, current: &Value) -> Option<&str> {
        let is_news = || find(current, self.kind).is_none_or(|old| !self.is_said_by(old));
        (self.kind == RECONCILED && is_news()).then_some(&*self.message)
    }

    /// Whether a condition that stands says the same.
    fn is_said_by(&self, old: &Value) -> bool {
        let message = old["message"].as_str().unwrap_or_default();
        let compared = &self.message[..self.compared];
        let is_whole = self.compared == self.message.len();
        let is_same = match is_whole {
            true => message == compared,
            false => message.starts_with(compared),
        };
        is_same && old["status"] == self.status && old["reason"] == *self.reason
    }
}

/// The condition that is `False` while the identity policy fails. The lifecycle policy, which reports its failures
/// itself, is not called then.
const RECONCILED: &str = "polity.dev/Reconciled";

/// Whether the CRD of the governed kind has `status.conditions`.
pub(in crate::reconcile) fn has_conditions(binding: &Binding) -> bool {
    let governed = &binding.spec.governs.kind;
    let mut crds = binding
        .policies
        .values()
        .flat_map(|policy| policy.manifest.crds());
    crds.any(|crd| {
        let named = &crd["spec"]["names"]["kind"];
        let versions = crd["spec"]["versions"].as_array();
        (named.is_null() || *named == **governed)
            && versions.into_iter().flatten().any(|v| {
                let status = &v["schema"]["openAPIV3Schema"]["properties"]["status"];
                status["properties"]["conditions"]["type"] == "array"
            })
    })
}

/// The host's conditions for an object whose pass concluded.
pub(super) fn of_conclusion(
    frame: &Frame,
    work: &Work,
    outcome: &Outcome,
    next: &Next,
) -> Vec<HostCondition> {
    // An object that is released loses its entries with its finalizer.
    let doubt = (*outcome != Outcome::Released).then(|| create_in_doubt(frame, work));
    let mut conditions: Vec<_> = doubt.flatten().into_iter().collect();
    if let Next::Retry {
        class: RetryClass::Long,
        failure: Some(failure),
    } = next
        && failure.code == Code::InvalidArgument
        && read_nothing(work)
    {
        conditions.push(HostCondition::is("polity.dev/Undecodable", &*failure.message));
    } else if let Next::Retry {
        failure: Some(failure),
        ..
    } = next
        && (*outcome == Outcome::Denied || frame.binding.policy(Role::Lifecycle).is_none())
    {
        conditions.push(identity_failed(failure));
    }
    let pending = work.current.as_ref().map(Pending::of);
    if let Some(unreadable) = pending.and_then(|pending| pending.unreadable()) {
        let message =
            format!("this host creates nothing, because it cannot read all entries of creates: {unreadable}");
        conditions.push(HostCondition::is("polity.dev/PendingUnreadable", message));
    }
    let too_new = |stands: &&PendingEntry| !frame.binding.catalogue.finds.contains(&stands.stamp);
    if let Some(entry) = work.in_doubt().find(too_new) {
        let message = format!(
            "the outcome of {} of {} is not known: its result has stamp {}, which the driver of this cloud does not know",
            entry.operation, entry.intent, entry.stamp
        );
        conditions.push(HostCondition::is("polity.dev/DriverTooNew", message));
    }
    if frame.slowed {
        let message = "the policy asks for more passes than spec.limits.burst and spec.limits.refill of its binding allow";
        conditions.push(HostCondition::is("polity.dev/Slowed", message));
    }
    conditions
}

fn identity_failed(failure: &Failure) -> HostCondition {
    let code = failure.code.as_str();
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let at = failure
        .operation
        .as_deref()
        .map_or_else(String::new, |it| format!(" at {it}"));
    let mut message = format!("the identity policy failed{at}: {code}: ");
    let compared = message.len();
    message.push_str(&failure.message);
    HostCondition {
        kind: RECONCILED,
        status: "False",
        reason: code.split('-').map(capital).collect(),
        message,
        compared,
    }
}

/// The condition for creates whose outcome is not known, if there are any: until when the cloud may still show what it
/// created.
pub(super) fn create_in_doubt(frame: &Frame, work: &Work) -> Option<HostCondition> {
    let pending = Pending::of(work.current.as_ref()?);
    let open: Vec<&PendingEntry> = pending
        .entries()
        .filter(|entry| !work.is_resolved(entry))
        .collect();
    let told = open.iter().map(|entry| doubt(entry, frame, work));
    let (texts, reasons): (Vec<String>, Vec<&str>) = told.unzip();
    let reason = (*reasons.first()?).to_owned();
    let mut message = format!(
        "it is not known whether these creates happened: {}",
        texts.join("; ")
    );
    let compared = message.len();
    let whys = open
        .iter()
        .filter_map(|entry| why(entry, work))
        .collect::<Vec<_>>();
    if !whys.is_empty() {
        message.push_str(&format!(" ({})", whys.join("; ")));
    }
    Some(HostCondition {
        kind: "polity.dev/CreateInDoubt",
        status: "True",
        reason,
        message,
        compared,
    })
}

/// What is said of a create in doubt, and why the doubt stands.
fn doubt(entry: &PendingEntry, frame: &Frame, work: &Work) -> (String, &'static str) {
    let create = format!("{} of {}", entry.operation, entry.intent);
    let operation = frame.binding.catalogue.operations.get(&entry.operation);
    let visible_within = operation.map_or(Duration::ZERO, |operation| operation.visible_within);
    let Some(history) = work.histories.get(&entry.key) else {
        let text = format!("{create}, the cloud is asked when the identity policy grants a session");
        return (text, "NotAsked");
    };
    match visible_within.saturating_sub(history.waited(frame.started.boot)) {
        Duration::ZERO => {
            let text = format!(
                "{create}, the cloud does not tell: if that stays so, look there and use `polity resolve`"
            );
            (text, "CloudCannotTell")
        }
        left => {
            let until = (frame.started.unix.0 + millis(left)).next_multiple_of(TOLD);
            let text = format!("{create}, the cloud may still show it until {}", rfc3339(until));
            (text, "MayStillShow")
        }
    }
}

/// What the cloud said when it was asked for a create.
fn why<'a>(entry: &PendingEntry, work: &'a Work) -> Option<&'a str> {
    let found = work.found.iter().find(|found| found.entry.key == entry.key)?;
    match &found.fate {
        Fate::Resolved(Resolution::Unknown(why)) => Some(why),
        _ => None,
    }
}

/// Whether the policy ended before it did anything, which means that it could not read its own object.
fn read_nothing(work: &Work) -> bool {
    let last = work.roles.last().and_then(|role| role.conclusion.as_ref());
    last.is_some_and(|last| last.used.is_empty() && last.notes.is_empty() && last.patch.is_none())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Role;
    use crate::reconcile::fixture_binding;

    #[test]
    fn the_host_has_conditions_where_the_definition_of_the_governed_kind_has_a_list_of_them() {
        let version = |conditions: Value| {
            let status = json!({"properties": {"conditions": conditions}});
            json!({"schema": {"openAPIV3Schema": {"properties": {"status": status}}}})
        };
        let list = || version(json!({"type": "array"}));
        let crd =
            |kind: Value, versions: Value| json!({"spec": {"names": {"kind": kind}, "versions": versions}});
        let machine = || json!("Machine");
        for (crd, has) in [
            (Some(crd(machine(), json!([list()]))), true),
            (Some(crd(Value::Null, json!([list()]))), true),
            (
                Some(crd(
                    machine(),
                    json!([version(json!({"type": "object"})), list()]),
                )),
                true,
            ),
            (Some(crd(machine(), json!([version(Value::Null)]))), false),
            (Some(crd(json!("Disk"), json!([list()]))), false),
            (None, false),
        ] {
            let mut binding = fixture_binding(&[Role::Lifecycle]);
            let policy = binding.policies.get_mut(&Role::Lifecycle).expect("a policy");
            std::sync::Arc::make_mut(&mut policy.manifest).crd = crd.clone();
            assert_eq!(has_conditions(&binding), has, "{crd:?}");
        }
    }
}
