//! The table of cases, edge by edge: a `MachineSafety`, the answer of its API server, and what the policy does.
//!
//! The cases are data. The tests of this crate run them natively, those of the host as a component.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words {
    fn status(self, status: Value) -> Self;
    fn settled(self, seconds: u64) -> Self;
    fn after(self, seconds: u64) -> Self;
    /// The driver lists these VMs, each with its owner.
    fn lists(self, vms: &[(&str, &str)]) -> Self;
}

impl Words for Case {
    fn status(self, status: Value) -> Self {
        self.patch(json!({ "status": status }))
    }

    fn settled(self, seconds: u64) -> Self {
        self.next(Next::Settled(Some(seconds * 1000)))
    }

    fn after(self, seconds: u64) -> Self {
        self.next(Next::After(seconds * 1000))
    }

    fn lists(self, vms: &[(&str, &str)]) -> Self {
        let row = |(id, owner): &(&str, &str)| json!({"name": id.replace("vm", "m"), "providerID": id, "owner": owner});
        let rows: Vec<Value> = vms.iter().map(row).collect();
        self.answers("machine.list", json!({"machines": rows}))
    }
}

const EARLIER: &str = "2025-12-31T23:59:00Z";
const PROBE: &str = "reachable home";

fn safety(status: Value) -> Case {
    let safety = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety",
        "metadata": {"name": "default", "uid": "uid-s"}, "status": status,
    });
    Case::new("MCM-", safety)
        .manifest(crate::manifest())
        .step_by_step()
        .step([PROBE])
}

fn up(status: Value) -> Case {
    safety(status).answers(PROBE, json!(true))
}

fn down(status: Value) -> Case {
    safety(status).responds(PROBE, Err(Failure::new(Code::Unavailable, "connection refused")))
}

fn reachable(since: &str) -> Value {
    json!([{"type": "Reachable", "status": "True", "reason": "Answers", "lastTransitionTime": since}])
}

fn unreachable(since: &str, message: &str) -> Value {
    json!([{
        "type": "Reachable", "status": "False", "reason": "DoesNotAnswer", "message": message,
        "lastTransitionTime": since,
    }])
}

/// Two hours before the pass.
const LONG_AGO: &str = "2025-12-31T22:00:00Z";
const DELETE: &str = r#"orphan.delete {"owner":"uid-gone","providerID":"vm-2"}"#;

/// A `MachineSafety` that looks for orphans, in a namespace with one machine.
fn sweeping(status: Value) -> Case {
    let mut whole = json!({"conditions": reachable(EARLIER)});
    for (field, value) in status.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    let machine = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "shoot", "uid": "uid-m"},
        "status": {"providerID": "vm-1", "currentStatus": {"phase": "Running"}},
    });
    up(whole)
        .edited(|object| object["spec"] = json!({"namespace": "shoot"}))
        .acts([])
        .exists(machine)
        .grants([
            Need::Cloud("machine.list".to_owned()),
            Need::Cloud("orphan.delete".to_owned()),
            Need::objects_of::<mcm_api::Machine>(),
        ])
}

/// Another machine of the namespace.
fn other(status: Value) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "n", "namespace": "shoot", "uid": "uid-n"}, "status": status,
    })
}

fn orphan(since: &str) -> Value {
    json!({"name": "m-2", "providerID": "vm-2", "since": since})
}

/// The VM without a machine has been known since then.
fn known(since: &str) -> Value {
    json!({"orphans": [orphan(since)]})
}

fn swept(status: &str, reason: &str, message: &str) -> Value {
    let mut condition =
        json!({"type": "Swept", "status": status, "reason": reason, "lastTransitionTime": NOW});
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

polity_sdk::cases! { $ each_case of mcm_safety::cases;

mcm_f01_an_api_server_that_answers_is_asked_every_minute:
    up(json!({"conditions": reachable(EARLIER)}))
        .notes("F01")
        .settled(60);

mcm_f01_the_first_answer_is_written_down:
    up(json!({}))
        .notes("F01")
        .status(json!({"conditions": reachable(NOW)}))
        .settled(60);

mcm_f01_a_short_silence_is_forgotten:
    up(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .notes("F01")
        .status(json!({"downSince": null, "conditions": reachable(NOW)}))
        .settled(60);

mcm_f02_a_host_that_cannot_tell_counts_as_no:
    safety(json!({})).fails(PROBE, Code::Unavailable)
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "no")}))
        .after(6);

mcm_f03_one_silence_freezes_nobody:
    down(json!({"conditions": reachable(EARLIER)}))
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "connection refused")}))
        .after(6);

mcm_f03_thirty_seconds_are_not_too_long:
    down(json!({
            "downSince": "2025-12-31T23:59:30Z", "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .notes("F02 F03")
        .after(6);

mcm_f03_how_long_is_too_long_the_object_says_first:
    down(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .edited(|object| object["spec"] = json!({"freezeAfter": "5m"}))
        .notes("F02 F03")
        .after(6);

mcm_f04_a_long_silence_freezes:
    down(json!({"downSince": EARLIER, "conditions": unreachable(EARLIER, "connection refused")}))
        .notes("F02 F04")
        .event("Frozen")
        .status(json!({"frozen": true, "since": NOW, "reason": "connection refused"}))
        .after(6);

mcm_f05_a_frozen_one_is_asked_as_often_as_the_binding_says:
    down(json!({
            "frozen": true, "since": EARLIER, "reason": "connection refused", "downSince": EARLIER,
            "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .config(json!({"probePeriodWhileDown": "2s"}))
        .notes("F02 F05")
        .after(2);

mcm_f06_the_first_answer_thaws:
    up(json!({
            "frozen": true, "since": EARLIER, "reason": "connection refused", "downSince": EARLIER,
            "conditions": unreachable(EARLIER, "connection refused"),
        }))
        .notes("F01 F06")
        .event("Thawed")
        .status(json!({
            "frozen": false, "since": NOW, "reason": null, "downSince": null, "conditions": reachable(NOW),
        }))
        .settled(60);

mcm_o01_where_every_vm_belongs_to_a_machine_that_is_all:
    sweeping(json!({})).lists(&[("vm-1", "uid-m")])
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o01_between_two_sweeps_nothing_is_asked:
    sweeping(json!({"sweptAt": "2025-12-31T23:46:00Z"}))
        .notes("F01")
        .settled(60);

mcm_o01_an_orphan_that_is_gone_is_forgotten:
    sweeping(known(EARLIER)).lists(&[("vm-1", "uid-m")])
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW, "orphans": null}))
        .settled(60);

mcm_o02_a_vm_whose_machine_is_gone_is_remembered:
    sweeping(json!({})).lists(&[("vm-1", "uid-m"), ("vm-2", "uid-gone")])
        .notes("F01 O02")
        .status(json!({"sweptAt": NOW, "orphans": [orphan(NOW)]}))
        .settled(60);

mcm_o02_the_machines_are_listed_after_the_vms:
    sweeping(json!({})).lists(&[])
        .step_by_step()
        .step([PROBE]).step(["machine.list {}"]).step(["list Machine namespace=shoot (latest)"])
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o03_an_orphan_that_is_older_than_a_creation_is_reported_and_stays:
    sweeping(known(LONG_AGO)).lists(&[("vm-2", "uid-gone")])
        .notes("F01 O03")
        .event("OrphanFound")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o03_it_is_not_deleted_before_its_time:
    sweeping(known("2025-12-31T23:35:00Z")).lists(&[("vm-2", "uid-gone")])
        .config(json!({"deleteOrphansAfter": "30m"}))
        .notes("F01 O03")
        .event("OrphanFound")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o04_it_is_deleted_where_the_binding_says_when:
    sweeping(known(LONG_AGO)).lists(&[("vm-2", "uid-gone")])
        .config(json!({"deleteOrphansAfter": "30m"}))
        .answers("orphan.delete", json!({}))
        .acts([DELETE])
        .notes("F01 O03 O04")
        .event("OrphanFound").event("OrphanDeleted")
        .status(json!({"sweptAt": NOW, "orphans": null}))
        .settled(60);

mcm_o04_one_that_has_gone_by_itself_counts_as_deleted:
    sweeping(known(LONG_AGO)).lists(&[("vm-2", "uid-gone")])
        .config(json!({"deleteOrphansAfter": "30m"}))
        .lacks("orphan.delete")
        .acts([DELETE])
        .notes("F01 O03 O04")
        .event("OrphanFound").event("OrphanDeleted")
        .status(json!({"sweptAt": NOW, "orphans": null}))
        .settled(60);

mcm_o05_what_the_binding_does_not_grant_is_not_deleted:
    sweeping(known(LONG_AGO)).lists(&[("vm-2", "uid-gone")])
        .config(json!({"deleteOrphansAfter": "30m"}))
        .fails("orphan.delete", Code::PermissionDenied)
        .acts([DELETE])
        .notes("F01 O03 O05")
        .event("OrphanFound").event("OrphanNotDeleted")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o07_a_second_vm_of_a_machine_is_an_orphan:
    sweeping(json!({})).lists(&[("vm-1", "uid-m"), ("vm-2", "uid-m")])
        .notes("F01 O07 O02")
        .status(json!({"sweptAt": NOW, "orphans": [orphan(NOW)]}))
        .settled(60);

mcm_o07_it_is_deleted_as_any_other_orphan:
    sweeping(known(LONG_AGO)).lists(&[("vm-1", "uid-m"), ("vm-2", "uid-m")])
        .config(json!({"deleteOrphansAfter": "30m"}))
        .answers("orphan.delete", json!({}))
        .acts([r#"orphan.delete {"owner":"uid-m","providerID":"vm-2"}"#])
        .notes("F01 O07 O03 O04")
        .event("OrphanFound").event("OrphanDeleted")
        .status(json!({"sweptAt": NOW, "orphans": null}))
        .settled(60);

mcm_o01_a_machine_that_is_being_created_may_have_any_vm:
    sweeping(json!({})).lists(&[("vm-1", "uid-n"), ("vm-2", "uid-n")]).exists(other(json!({"providerID": "vm-1"})))
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o01_a_machine_that_is_not_managed_may_have_any_vm:
    sweeping(json!({})).lists(&[("vm-1", "uid-n"), ("vm-2", "uid-n")])
        .exists({
            let mut machine = other(json!({"providerID": "vm-1", "currentStatus": {"phase": "Running"}}));
            machine["metadata"]["annotations"] = json!({"node.machine.sapcloud.io/not-managed-by-mcm": "1"});
            machine
        })
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW}))
        .settled(60);

mcm_o06_vms_that_cannot_be_listed_are_told:
    sweeping(known(LONG_AGO)).fails("machine.list", Code::Unavailable)
        .notes("F01 O06")
        .event("SweepFailed")
        .status(json!({"sweptAt": NOW, "conditions": [reachable(EARLIER)[0], swept("False", "ListFailed", "no")]}))
        .settled(60);

mcm_o06_an_orphan_is_none_while_the_machines_cannot_be_listed:
    sweeping(json!({})).lists(&[("vm-2", "uid-gone")]).fails("list Machine", Code::Unavailable)
        .notes("F01 O06")
        .event("SweepFailed")
        .status(json!({"sweptAt": NOW, "conditions": [reachable(EARLIER)[0], swept("False", "ListFailed", "no")]}))
        .settled(60);

mcm_o01_a_sweep_that_works_again_is_told_too:
    sweeping(json!({"conditions": [reachable(EARLIER)[0], swept("False", "ListFailed", "no")]})).lists(&[])
        .notes("F01 O01")
        .status(json!({"sweptAt": NOW, "conditions": [reachable(EARLIER)[0], swept("True", "Listed", "")]}))
        .settled(60);

while_the_api_server_is_away_no_orphan_is_looked_for:
    down(json!({"conditions": reachable(EARLIER)}))
        .edited(|object| object["spec"] = json!({"namespace": "shoot"}))
        .notes("F02 F03")
        .status(json!({"downSince": NOW, "conditions": unreachable(NOW, "connection refused")}))
        .after(6);

one_that_is_being_deleted_asks_nobody:
    up(json!({"frozen": true}))
        .edited(|object| object["metadata"]["deletionTimestamp"] = NOW.into())
        .step_by_step();
}
