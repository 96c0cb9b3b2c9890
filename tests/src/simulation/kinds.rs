//! The kinds of the simulated world that have native policies. Each has a file with its binding, its policies, the
//! wishes of people, and when these are fulfilled.

pub mod guest;
pub mod site;

use std::sync::Arc;
use std::time::Duration;

use polity_core::binding::{Binding, Limits, LoadedPolicy, PolicyId};
use polity_core::contract::{Manifest, Pass, RetryRequest, Role, Wait};
use polity_core::fault::{Fault, FaultKind, StepOutput};
use polity_core::retry::default_wait;
use polity_core::time::millis;
use serde_json::{Value, json};

use super::native;

/// Where the objects of the second tenant stand.
pub const OTHER_TENANT: &str = "other";

/// What stands behind the digest of every other form of a policy.
const AGAIN: &str = " again";

/// A policy in its first form.
fn first(manifest: Manifest) -> LoadedPolicy {
    LoadedPolicy {
        config: json!({"form": 0}).to_string().into(),
        ..super::bindings::native(manifest)
    }
}

/// Which form of a policy this is.
pub fn form(policy: &LoadedPolicy) -> u64 {
    let config: Value = serde_json::from_str(&policy.config).unwrap_or_default();
    config["form"].as_u64().unwrap_or(0)
}

/// Swaps the policy of a role for its next form: another configuration, and another digest.
pub fn swap(binding: &mut Binding, role: Role) {
    if let Some(policy) = binding.policies.get_mut(&role) {
        let next = form(policy) + 1;
        let again = if next % 2 == 1 { AGAIN } else { "" };
        policy.id = PolicyId(Arc::from(format!("{}{again}", policy.manifest.name)));
        policy.config = json!({"form": next}).to_string().into();
    }
}

/// One step of a native policy.
pub fn step(policy: &PolicyId, pass: &Pass) -> StepOutput {
    let policy = policy.0.trim_end_matches(AGAIN);
    if policy != "widget" && wants_a_fault(pass) {
        return StepOutput {
            outcome: Err(Fault::new(FaultKind::Trap, "the object wants it")),
            fuel: 1_000,
        };
    }
    match policy {
        "site" => native::step(pass, site::lifecycle),
        "guest" => native::step(pass, guest::lifecycle),
        "guest-identity" => native::step(pass, guest::identity),
        _ => native::step(pass, native::widget),
    }
}

/// What a native retry policy decides.
pub fn decide(policy: &PolicyId, request: &RetryRequest) -> Wait {
    match policy.0.trim_end_matches(AGAIN) {
        "patience" => site::patience(request),
        _ => Wait::After(millis(default_wait(request))),
    }
}

/// After this a key that waits so passes again, whatever else happens.
pub fn at_latest(wait: Wait) -> Duration {
    match wait {
        Wait::After(wait) => Duration::from_millis(wait),
        Wait::OnChange(wait) => wait.map_or(Limits::default().longest_wait, Duration::from_millis),
    }
}

fn wants_a_fault(pass: &Pass) -> bool {
    let object = pass.object.as_deref().unwrap_or_default();
    serde_json::from_str(object).is_ok_and(|object: Value| is_faulty(&object))
}

/// Whether the policies of an object fault on it.
pub fn is_faulty(object: &Value) -> bool {
    object["spec"]["faulty"] == true
}

/// Whether the host says on an object that it is quarantined.
pub fn is_quarantined(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "polity.dev/Quarantined"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A CustomResourceDefinition with these fields in its status.
fn crd(status: &Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"properties": {"status": {"properties": status}}}});
    json!({"spec": {"versions": [{"schema": schema}]}})
}
