//! Conditions of the host: they say what blocks an object, beside the conditions of its policies.

use polity_kube_rules::conditions::since;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use super::MESSAGE;
use crate::binding::Binding;
use crate::call::PendingEntry;
use crate::contract::{Code, Next, RetryClass};
use crate::grants::{self, HOST_CONDITION};
use crate::reconcile::pending::Pending;
use crate::reconcile::{Frame, Work};
use crate::time::Unix;
use crate::tree::Tree;

/// The type of a condition that is `True`, and its message.
pub(super) type HostCondition = (&'static str, String);

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
pub(super) fn of_conclusion(frame: &Frame, work: &Work, next: &Next) -> Vec<HostCondition> {
    let mut conditions = Vec::new();
    if let Next::Retry {
        class: RetryClass::Long,
        failure: Some(failure),
    } = next
        && failure.code == Code::InvalidArgument
        && read_nothing(work)
    {
        conditions.push(("polity.dev/Undecodable", failure.message.clone()));
    }
    let pending = work.current.as_ref().map(Pending::of);
    if let Some(unreadable) = pending.and_then(|pending| pending.unreadable()) {
        let message =
            format!("this host creates nothing, because it cannot read all entries of creates: {unreadable}");
        conditions.push(("polity.dev/PendingUnreadable", message));
    }
    let too_new = |stands: &&PendingEntry| !frame.binding.catalogue.finds.contains(&stands.stamp);
    if let Some(entry) = work.in_doubt().find(too_new) {
        let message = format!(
            "the outcome of {} of {} is not known: its result has stamp {}, which the driver of this cloud does not know",
            entry.operation, entry.intent, entry.stamp
        );
        conditions.push(("polity.dev/DriverTooNew", message));
    }
    if frame.slowed {
        let message = "the policy asks for more passes than spec.limits.burst and spec.limits.refill of its binding allow";
        conditions.push(("polity.dev/Slowed", message.into()));
    }
    conditions
}

/// Whether the policy ended before it did anything, which means that it could not read its own object.
fn read_nothing(work: &Work) -> bool {
    let last = work.roles.last().and_then(|role| role.conclusion.as_ref());
    last.is_some_and(|last| last.used.is_empty() && last.notes.is_empty() && last.patch.is_none())
}

/// Replaces the host's own conditions. A condition that was already `True` keeps its transition time.
pub(super) fn set_host_conditions(desired: &mut Tree, current: &Value, wanted: &[HostCondition], unix: Unix) {
    let old = grants::host_conditions(current);
    if wanted.is_empty() && old.is_empty() {
        return;
    }
    let all = desired.get(&["status", "conditions"]).and_then(Value::as_array);
    let mut list = all.cloned().unwrap_or_default();
    list.retain(|c| !grants::is_host_condition(c));
    for (kind, message) in wanted {
        let since = since(old.iter().copied(), kind, "True");
        let since = since.map_or_else(|| rfc3339(unix.0), str::to_owned);
        let message: String = message.chars().take(MESSAGE).collect();
        let reason = kind.trim_start_matches(HOST_CONDITION);
        list.push(json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since
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
