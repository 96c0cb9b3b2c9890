//! The table of cases, edge by edge: a `MachineSet`, the machines of its namespace, and what the policy does.
//!
//! The cases are data. The tests of this crate run them natively, those of the host as a component.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::prelude::*;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words: Sized {
    /// These machines exist.
    fn machines<const N: usize>(self, machines: [Value; N]) -> Self;
    /// The set has counted so many machines, of which so many run.
    fn counted(self, replicas: u32, ready: u32) -> Self;
    /// The pass writes that.
    fn counts(self, fields: Value) -> Self;
    /// Something was done: the next pass goes on.
    fn goes_on(self) -> Self;
    fn settled(self) -> Self;
}

impl Words for Case {
    fn machines<const N: usize>(self, machines: [Value; N]) -> Self {
        machines.into_iter().fold(self, Case::exists)
    }

    fn counted(self, replicas: u32, ready: u32) -> Self {
        self.edited(|object| object["status"] = json!({"replicas": replicas, "readyReplicas": ready}))
    }

    fn counts(self, fields: Value) -> Self {
        self.patch(json!({"status": fields}))
    }

    fn goes_on(self) -> Self {
        self.next(Next::retry(RetryClass::Short))
    }

    fn settled(self) -> Self {
        self.notes("M01").next(Next::Settled(Some(600_000)))
    }
}

fn reference(uid: &str) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSet", "name": "web", "uid": uid, "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A set of two machines.
fn set() -> Case {
    let set = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSet",
        "metadata": {
            "name": "web", "namespace": "shoot", "uid": "uid-set", "finalizers": ["mcm.polity.dev/machineset"],
        },
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"name": "web"}},
            "template": {
                "metadata": {"labels": {"name": "web"}},
                "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            },
        },
        "status": {"replicas": 0, "readyReplicas": 0},
    });
    // A namespace has other machines, too.
    let mut other = machine("other", "Running");
    other["metadata"]["ownerReferences"] = json!([reference("uid-other")]);
    Case::new("MCM-", set).manifest(crate::manifest()).exists(other)
}

/// A machine of the set in this phase.
fn machine(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "shoot", "uid": format!("uid-{name}"), "labels": {"name": "web"},
            "creationTimestamp": "2025-12-31T12:00:00Z", "ownerReferences": [reference("uid-set")],
        },
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
        "status": {"currentStatus": {"phase": phase}},
    })
}

fn running(name: &str) -> Value {
    machine(name, "Running")
}

fn ending(name: &str) -> Value {
    let mut machine = machine(name, "Terminating");
    machine["metadata"]["deletionTimestamp"] = "2025-12-31T23:59:00Z".into();
    machine["metadata"]["finalizers"] = json!(["mcm.polity.dev/machine"]);
    machine
}

fn aged(name: &str, created: &str) -> Value {
    let mut machine = running(name);
    machine["metadata"]["creationTimestamp"] = created.into();
    machine
}

fn prioritized(name: &str, priority: &str) -> Value {
    let mut machine = running(name);
    machine["metadata"]["annotations"] = json!({"machinepriority.machine.sapcloud.io": priority});
    machine
}

/// A machine that nobody controls.
fn stray(name: &str) -> Value {
    let mut machine = running(name);
    machine["metadata"]["ownerReferences"] = json!([]);
    machine
}

/// A machine of the set whose label names another deployment.
fn relabelled(name: &str) -> Value {
    let mut machine = running(name);
    machine["metadata"]["labels"] = json!({"name": "db"});
    machine
}

/// The creation of a machine with this name.
macro_rules! create {
    ($name:literal) => {
        concat!(
            r#"create {"apiVersion":"mcm.polity.dev/v1alpha1","kind":"Machine","metadata":{"finalizers":[],"#,
            r#""labels":{"name":"web"},"name":""#,
            $name,
            r#"","namespace":"shoot","ownerReferences":[{"apiVersion":"mcm.polity.dev/v1alpha1","blockOwnerDeletion":true,"#,
            r#""controller":true,"kind":"MachineSet","name":"web","uid":"uid-set"}]},"#,
            r#""spec":{"class":{"kind":"MachineClass","name":"small"},"disableHealthTimeout":false,"#,
            r#""nodeTemplate":{"metadata":{},"spec":{}}},"status":{"currentStatus":{}}}"#
        )
    };
}

const ADOPT: &str = concat!(
    r#"patch Machine web-9 {"metadata":{"ownerReferences":[{"apiVersion":"mcm.polity.dev/v1alpha1","#,
    r#""blockOwnerDeletion":true,"controller":true,"kind":"MachineSet","name":"web","uid":"uid-set"}]}}"#
);
const RELEASE: &str = r#"patch Machine web-2 {"metadata":{"ownerReferences":[]}}"#;

/// Three machines, of which this one is too many.
fn surplus(first: &'static str, machines: [Value; 3]) -> Case {
    set()
        .machines(machines)
        .counted(3, 3)
        .acts([first])
        .notes("M06")
        .goes_on()
}

polity_sdk::cases! { $ each_case of mcm_machineset::cases;

mcm_m01_a_set_that_has_its_machines_is_settled:
    set().machines([running("web-1"), running("web-2")]).counted(2, 2).settled();

mcm_m01_a_machine_that_does_not_run_yet_is_one_and_is_counted:
    set().machines([running("web-1"), machine("web-2", "Unknown")]).counted(2, 2)
        .counts(json!({"readyReplicas": 1}))
        .settled();

mcm_m02_a_machine_that_nobody_controls_is_adopted_before_one_is_created:
    set().machines([running("web-1"), stray("web-9")]).counted(1, 1)
        .acts([ADOPT])
        .notes("M02")
        .goes_on();

mcm_m02_a_machine_that_is_being_deleted_is_not_adopted:
    set().machines([running("web-1"), running("web-2")]).counted(2, 2)
        .exists({
            let mut stray = ending("web-9");
            stray["metadata"]["ownerReferences"] = json!([]);
            stray
        })
        .settled();

mcm_m03_a_machine_whose_labels_left_the_selector_is_released:
    set().machines([running("web-1"), relabelled("web-2")]).counted(2, 2)
        .acts([RELEASE])
        .notes("M03")
        .goes_on();

mcm_m10_a_change_of_the_template_reaches_the_machines_but_for_their_class:
    set().machines([running("web-1"), {
            let mut old = running("web-2");
            old["spec"] = json!({
                "class": {"kind": "OldClass", "name": "old"}, "drainTimeout": "5m", "healthTimeout": "5m",
                "nodeTemplate": {
                    "metadata": {"labels": {"pool": "a", "old": "x"}},
                    "spec": {"taints": [{"key": "old", "effect": "NoSchedule"}]},
                },
            });
            old
        }])
        .counted(2, 2)
        .edited(|object| {
            let spec = &mut object["spec"]["template"]["spec"];
            spec["drainTimeout"] = "1m".into();
            spec["nodeTemplate"] = json!({
                "metadata": {"labels": {"pool": "b"}, "annotations": {"owner": "team-a"}},
                "spec": {"taints": [{"key": "new", "effect": "NoSchedule"}]},
            });
        })
        .acts([
            concat!(
                r#"patch Machine web-1 {"spec":{"drainTimeout":"1m","nodeTemplate":{"metadata":"#,
                r#"{"annotations":{"owner":"team-a"},"labels":{"pool":"b"}},"#,
                r#""spec":{"taints":[{"effect":"NoSchedule","key":"new"}]}}}}"#
            ),
            concat!(
                r#"patch Machine web-2 {"spec":{"class":{"kind":"MachineClass"},"drainTimeout":"1m","healthTimeout":null,"#,
                r#""nodeTemplate":{"metadata":{"annotations":{"owner":"team-a"},"labels":{"old":null,"pool":"b"}},"#,
                r#""spec":{"taints":[{"effect":"NoSchedule","key":"new"}]}}}}"#
            ),
        ])
        .notes("M10 M10")
        .goes_on();

mcm_m10_a_failed_machine_and_one_that_is_being_deleted_stay_as_they_are:
    set().machines([running("web-1"), ending("web-2"), machine("web-3", "Failed")]).counted(2, 1)
        .edited(|object| object["spec"]["replicas"] = 1.into())
        .acts(["delete Machine web-3"])
        .notes("M04")
        .goes_on();

mcm_m10_a_machine_that_was_just_changed_by_somebody_is_looked_at_again:
    set().machines([running("web-1"), running("web-2")]).counted(2, 2)
        .edited(|object| object["spec"]["template"]["spec"]["drainTimeout"] = "1m".into())
        .fails("patch Machine web-1", Code::Aborted)
        .acts([
            r#"patch Machine web-1 {"spec":{"drainTimeout":"1m"}}"#,
            r#"patch Machine web-2 {"spec":{"drainTimeout":"1m"}}"#,
        ])
        .notes("M10 M10")
        .goes_on();

mcm_m04_a_failed_machine_is_deleted_and_replaced_at_once:
    set().machines([running("web-1"), machine("web-2", "Failed")]).counted(2, 1)
        .acts(["delete Machine web-2", create!("web-3")])
        .notes("M04 M05")
        .goes_on();

mcm_m04_a_machine_that_is_just_being_changed_is_looked_at_again:
    set().machines([running("web-1"), running("web-2"), machine("web-3", "Failed")]).counted(3, 2)
        .fails("delete Machine web-3", Code::Aborted)
        .acts(["delete Machine web-3"])
        .notes("M04")
        .goes_on();

mcm_m05_missing_machines_are_created:
    set().acts([create!("web-1"), create!("web-2")]).notes("M05 M05").goes_on();

mcm_m05_a_machine_that_is_being_deleted_is_replaced_before_it_is_gone:
    set().machines([running("web-1"), ending("web-2")]).counted(1, 1)
        .acts([create!("web-3")])
        .notes("M05")
        .goes_on();

mcm_m05_a_name_that_has_become_free_is_used_again:
    set().machines([running("web-2")]).counted(1, 1)
        .acts([create!("web-1")])
        .notes("M05")
        .goes_on();

mcm_m05_a_creation_that_is_refused_fails_the_pass:
    set().machines([running("web-1")]).counted(1, 1)
        .fails("create", Code::PermissionDenied)
        .acts([create!("web-2")])
        .notes("M05")
        .fails_with(RetryClass::Short, Code::PermissionDenied, "no");

mcm_m05_no_pass_creates_without_end:
    set().edited(|object| object["spec"]["replicas"] = 100.into())
        .acts([
            create!("web-1"), create!("web-2"), create!("web-3"), create!("web-4"), create!("web-5"), create!("web-6"),
            create!("web-7"), create!("web-8"), create!("web-9"), create!("web-10"), create!("web-11"),
            create!("web-12"), create!("web-13"), create!("web-14"), create!("web-15"), create!("web-16"),
        ])
        .notes("M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05 M05")
        .goes_on();

mcm_m06_the_lowest_priority_goes_first:
    surplus("delete Machine web-3", [running("web-1"), running("web-2"), prioritized("web-3", "1")]);

mcm_m06_a_high_priority_goes_last:
    surplus("delete Machine web-2", [
        prioritized("web-1", "10"), aged("web-2", "2025-12-31T13:00:00Z"), prioritized("web-3", "4"),
    ]);

mcm_m06_a_priority_that_is_no_number_is_the_middle_one:
    surplus("delete Machine web-1", [running("web-1"), prioritized("web-2", "high"), prioritized("web-3", "4")]);

mcm_m06_of_equal_priority_the_earlier_phase_goes_first:
    set().machines([running("web-1"), machine("web-2", "Pending"), machine("web-3", "CrashLoopBackOff")])
        .counted(3, 1)
        .acts(["delete Machine web-3"])
        .notes("M06")
        .goes_on();

mcm_m06_of_the_same_phase_the_oldest_goes_first:
    surplus("delete Machine web-2", [running("web-1"), aged("web-2", "2025-12-30T00:00:00Z"), running("web-3")]);

mcm_m06_which_one_goes_the_api_server_says:
    set().machines([running("web-1"), running("web-2"), running("web-3")]).counted(3, 3)
        .step_by_step()
        .step(["list Machine namespace=shoot"])
        .step(["list Machine namespace=shoot (latest)"])
        .step(["delete Machine web-1"])
        .notes("M06")
        .goes_on();

mcm_m07_the_machines_of_a_set_that_is_being_deleted_are_deleted:
    deleted().machines([running("web-1"), ending("web-2"), stray("web-9")]).counted(1, 1)
        .acts(["delete Machine web-1"])
        .notes("M07")
        .goes_on();

mcm_m07_their_end_is_waited_for:
    deleted().machines([ending("web-2")])
        .next(Next::After(600_000));

mcm_m08_a_set_without_machines_is_released:
    deleted().machines([stray("web-9")])
        .notes("M08")
        .patch(json!({"metadata": {"finalizers": []}}));

mcm_m08_whatever_its_selector_says:
    deleted().edited(|object| object["spec"]["selector"] = json!({}))
        .notes("M08")
        .patch(json!({"metadata": {"finalizers": []}}));

mcm_m09_a_selector_that_selects_everything_is_refused:
    set().edited(|object| object["spec"]["selector"] = json!({}))
        .notes("M09")
        .fails_with(RetryClass::Long, Code::InvalidArgument, INCOMPLETE);

mcm_m09_a_template_that_the_selector_does_not_select_is_refused:
    set().edited(|object| object["spec"]["template"]["metadata"]["labels"]["name"] = "db".into())
        .notes("M09")
        .fails_with(RetryClass::Long, Code::InvalidArgument, INCOMPLETE);
}

const INCOMPLETE: &str = "spec.selector must not be empty and must select the labels of spec.template";

fn deleted() -> Case {
    set().edited(|object| object["metadata"]["deletionTimestamp"] = "2025-12-31T23:59:00Z".into())
}
