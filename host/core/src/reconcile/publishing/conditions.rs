//! Conditions of the host: they say what blocks an object, beside the conditions of its policies.

use std::time::Duration;

use polity_kube_rules::time::rfc3339;

use crate::binding::Binding;
use crate::call::PendingEntry;
use crate::contract::{Code, Failure, Next, Resolution, RetryClass, Role};
use crate::pending::Pending;
use crate::reconcile::frame::Frame;
use crate::reconcile::work::{Fate, Work};
use crate::record::Outcome;
use crate::time::millis;
use crate::worker::{HostCondition, RECONCILED};

/// The times in messages are rounded up to this many milliseconds, so that clocks that differ a little tell the same.
const TOLD: u64 = 10_000;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Role;
    use crate::reconcile::fixture_binding;
    use serde_json::{Value, json};

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
