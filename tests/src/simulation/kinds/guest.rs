//! Guests: each has a machine in the cloud, made and removed with what an identity policy grants. The ConfigMap `door` of
//! their namespace says whether it grants at all.

use std::sync::Arc;

use polity_core::binding::{Binding, Grant, Limits};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Code, Manifest, Next, Question, Role, Verdict};
use serde_json::{Value, json};

use super::{crd, first, form, is_faulty, is_quarantined, text};
use crate::simulation::bindings::{binding as bound, kind, manifest};
use crate::simulation::native::{Cx, Pending, failed};
use crate::simulation::store::{Place, Store};
use polity_sim::VmView;

/// The `apiVersion` of Guests.
pub const GUESTS: &str = "guests.example.com/v1";
/// The finalizer that their lifecycle names.
pub const FINALIZER: &str = "guests.example.com/guest";
/// The ConfigMap that says whether the identity policy grants.
pub const DOOR: &str = "door";

/// Guests in the first form of their policies. One pass of a tenant at a time: its passes wait for one another, and must
/// not keep those of another tenant waiting.
pub fn binding(catalogue: Arc<Catalogue>) -> Binding {
    let lifecycle = Manifest {
        finalizer: Some(FINALIZER.to_owned()),
        crd: Some(crd(
            &json!({"pending": {"type": "array"}, "conditions": {"type": "array"}}),
        )),
        ..manifest(
            "guest",
            Role::Lifecycle,
            Vec::new(),
            &[
                "metadata.finalizers",
                "status.machine",
                "status.life",
                "status.form",
            ],
        )
    };
    let identity = manifest(
        "guest-identity",
        Role::Identity,
        Vec::new(),
        &["status.allowed", "status.grantedBy"],
    );
    let grants = vec![
        Grant::Ask(kind("v1", "ConfigMap")),
        Grant::Credential(true),
        Grant::Cloud(vec!["machine.*".to_owned()]),
    ];
    let mut guests = bound(
        "guests",
        (GUESTS, "Guest"),
        [first(lifecycle), first(identity)],
        grants,
        catalogue,
    );
    guests.spec.limits = Limits {
        passes_per_tenant: 1,
        ..Limits::default()
    };
    guests
}

/// Whether a door's value lets anybody in: two of three do.
fn is_open(door: &Value) -> bool {
    let number = text(&door["data"]["value"]);
    number
        .trim_start_matches('v')
        .parse::<u64>()
        .is_ok_and(|n| n % 3 != 0)
}

/// The identity policy of Guests.
pub fn identity(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    let namespace = text(&cx.object["metadata"]["namespace"]);
    let door = cx.object("v1", "ConfigMap", &namespace, DOOR)?;
    cx.object["status"]["grantedBy"] = cx.config("form");
    if cx.is_deleting() && cx.object["spec"]["letGo"] == true {
        cx.verdict = Some(Verdict::Released);
        return Ok(Next::Settled(None));
    }
    let open = match door {
        Ok(door) => is_open(&door),
        Err(failure) if failure.code == Code::NotFound => false,
        Err(failure) => {
            cx.verdict = Some(Verdict::Denied);
            return Ok(failed(failure));
        }
    };
    cx.object["status"]["allowed"] = json!(open);
    if !open {
        cx.verdict = Some(Verdict::Denied);
        return Ok(Next::Settled(None));
    }
    let plan = json!({"for": cx.object["metadata"]["name"]}).to_string();
    match cx.ask(Question::Credential(plan.into()))? {
        Ok(credential) => {
            cx.verdict = Some(Verdict::Granted(text(&credential["handle"])));
            Ok(Next::Settled(None))
        }
        Err(failure) => {
            cx.verdict = Some(Verdict::Denied);
            Ok(failed(failure))
        }
    }
}

/// The policy of Guests: it relies on the host alone for that no machine is made twice.
pub fn lifecycle(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    let name = format!(
        "{}-{}",
        text(&cx.object["metadata"]["name"]),
        text(&cx.object["metadata"]["uid"])
    );
    let made = cx.object["status"]["machine"].clone();
    let mut arguments = json!({"name": name});
    if made.is_string() {
        arguments["providerID"] = made.clone();
    }
    let is_new_life = cx.object["status"]["life"] != cx.object["spec"]["life"];
    cx.object["status"]["form"] = cx.config("form");
    if cx.is_deleting() || (made.is_string() && is_new_life) {
        if let Err(failure) = cx.change("machine.delete", arguments, None)?
            && failure.code != Code::NotFound
        {
            return Ok(failed(failure));
        }
        cx.object["status"]["machine"] = Value::Null;
        if cx.is_deleting() {
            cx.remove_finalizer(FINALIZER);
            return Ok(Next::Settled(None));
        }
        return Ok(Next::After(100));
    }
    if !made.is_string() {
        cx.object["status"]["life"] = cx.object["spec"]["life"].clone();
        return match cx.change("machine.create", arguments, Some(&name))? {
            Ok(answer) => {
                cx.object["status"]["machine"] = answer["providerID"].clone();
                Ok(Next::After(1_000))
            }
            Err(failure) => Ok(failed(failure)),
        };
    }
    match cx.cloud("machine.status", arguments)? {
        Ok(_) => Ok(Next::Settled(Some(30_000))),
        Err(failure) if failure.code == Code::NotFound => {
            cx.object["status"]["machine"] = Value::Null;
            Ok(Next::After(100))
        }
        Err(failure) => Ok(failed(failure)),
    }
}

/// A Guest as a person would create it.
pub fn new_object(nth: u64) -> Value {
    json!({"spec": {"life": nth}})
}

/// What a person changes of what is wanted.
pub fn edit(nth: u64) -> Value {
    let spec = match nth % 6 {
        0..=2 => json!({"life": nth}),
        3 => json!({"letGo": true}),
        4 => json!({"faulty": true}),
        _ => json!({"faulty": null}),
    };
    json!({"spec": spec})
}

/// Whether the machines of a Guest may outlive it: its identity lets go of it.
pub fn may_leave_machines(guest: &Value) -> bool {
    guest["spec"]["letGo"] == true
}

/// Why a Guest is not as it is wanted, under this binding; none if it is.
pub fn unsettled(
    store: &Store,
    vms: &[VmView],
    at: &Place,
    guest: &Value,
    binding: &Binding,
) -> Option<&'static str> {
    let door = store.get(&("ConfigMap".to_owned(), at.1.clone(), DOOR.to_owned()));
    let open = door.is_some_and(|door| is_open(&door.tree()));
    let status = &guest["status"];
    if is_faulty(guest) {
        return (!is_quarantined(guest)).then_some("faults and is not quarantined");
    }
    let identity = binding.policy(Role::Identity).map(form);
    if status["grantedBy"].as_u64() != identity {
        return Some("had no pass under the form of its identity policy that is bound");
    }
    if status["allowed"] != open {
        return Some("does not say whether it is allowed to act");
    }
    if !open {
        return None;
    }
    let of_it = vms
        .iter()
        .filter(|vm| guest["metadata"]["uid"] == *vm.owner)
        .count();
    let is_deleting = !guest["metadata"]["deletionTimestamp"].is_null();
    let lifecycle = binding.policy(Role::Lifecycle).map(form);
    match of_it {
        _ if is_deleting => Some("is still being deleted"),
        _ if status["pending"].is_array() => Some("has pending entries"),
        _ if status["form"].as_u64() != lifecycle => {
            Some("had no pass under the form of its policy that is bound")
        }
        _ if status["life"] != guest["spec"]["life"] => Some("has a machine of an older life"),
        1 => is_quarantined(guest).then_some("is quarantined and does not fault"),
        _ => Some("has no machine"),
    }
}
