//! The table of cases, edge by edge: an object, the state of the cloud, and everything that the policy does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

use polity_sdk::Resolution;
use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words: Sized {
    /// An ordinary failure: `retry(short)`.
    fn failed(self, code: Code, message: &str) -> Self;
    /// The VM has the right metadata and this interface.
    fn configured(self, nics: Value) -> Self;
    /// The name is taken: a retry that waits for the backoff at least.
    fn name_is_taken(self) -> Self;
}

impl Words for Case {
    fn failed(self, code: Code, message: &str) -> Self {
        self.fails_with(RetryClass::Short, code, message)
    }

    fn configured(self, nics: Value) -> Self {
        self.answers("vm.metadata", json!({"metadata": RIGHT}))
            .answers("vm.nics", nics)
    }

    fn name_is_taken(self) -> Self {
        let failure = Failure {
            retry_after: Some(60_000),
            ..Failure::new(Code::AlreadyExists, TAKEN)
        };
        self.event("NameTaken")
            .next(Next::failed(RetryClass::Medium, failure))
    }
}

// What the cases share: one machine, its VM, and the time of the pass.

const EARLIER: &str = "2025-12-31T23:00:00Z";

const TASK: &str = r#"task.get {"id":"task-1"}"#;
const FIND: &str = r#"vm.find {"instanceUuid":"uid-1"}"#;
const GET: &str = r#"vm.get {"id":"vm-1"}"#;
const METADATA: &str = r#"vm.metadata {"id":"vm-1"}"#;
const NICS: &str = r#"vm.nics {"id":"vm-1"}"#;
const POWER: &str = r#"vm.power {"id":"vm-1"}"#;
const POWER_ON: &str = r#"vm.power-on {"id":"vm-1"}"#;
const POWER_OFF: &str = r#"vm.power-off {"id":"vm-1"}"#;
const DESTROY: &str = r#"vm.destroy {"id":"vm-1"}"#;
const CLONE: &str = concat!(
    r#"vm.clone {"name":"m-1","instanceUuid":"uid-1","template":"ubuntu","cpus":2,"coresPerSocket":2,"#,
    r#""memoryMiB":2048,"networks":["prod"]}"#
);

/// The right metadata for a VM with the interface of [`nics`].
const RIGHT: &str = concat!(
    r#"{"instance-id":"m-1","local-hostname":"m-1","network":{"version":2,"ethernets":{"id0":"#,
    r#"{"match":{"macaddress":"00:50:56:00:00:01"},"set-name":"eth0","dhcp4":true,"dhcp6":false}}}}"#
);

/// The right metadata for a VM with the interfaces of [`second_without_address`], of which the second has a fixed address.
const RIGHT_FOR_TWO: &str = concat!(
    r#"{"instance-id":"m-1","local-hostname":"m-1","network":{"version":2,"ethernets":{"id0":"#,
    r#"{"match":{"macaddress":"00:50:56:00:00:01"},"set-name":"eth0","dhcp4":true,"dhcp6":false},"id1":"#,
    r#"{"match":{"macaddress":"00:50:56:00:00:02"},"set-name":"eth1","dhcp4":false,"dhcp6":false,"#,
    r#""addresses":["10.5.0.1/24"]}}}}"#
);

/// The clone of a machine with user data.
const CLONE_WITH_USER_DATA: &str = concat!(
    r#"vm.clone {"name":"m-1","instanceUuid":"uid-1","template":"ubuntu","cpus":2,"coresPerSocket":2,"#,
    r#""memoryMiB":2048,"networks":["prod"],"userData":{"$secret":{"name":"boot","key":"value"}}}"#
);
const SECRET: &str = "Secret team/boot";

const TIMED_OUT: &str = "the task has run for more than 30m: look at it in the cloud, and cancel it there";
const TAKEN: &str =
    "another VM has the name m-1 in the folder, so none can be made before it is renamed or removed";
const UNKNOWN: &str = "task task-1 is in the unknown state \"paused\"";
const COPY: &str = concat!(
    "the VM vm-1 has the instance UUID uid-9, not the machine's uid uid-1, so it may be a copy and is not changed: ",
    "give it that instance UUID, or remove it",
);

fn reconfigure(metadata: &str) -> String {
    format!("vm.reconfigure {}", json!({"id": "vm-1", "metadata": metadata}))
}

/// A machine with this status.
fn machine(status: Value) -> Case {
    let machine = json!({
            "apiVersion": "capv.polity.dev/v1alpha1",
            "kind": "Machine",
            "metadata": {
                "name": "m-1", "namespace": "team", "uid": "uid-1", "resourceVersion": "5", "generation": 1,
                "finalizers": ["capv.polity.dev/machine"],
            },
            "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
            "status": status,
    });
    Case::new("CAPV-", machine)
        .manifest(crate::manifest())
        .step_by_step()
        .creates("vm.clone", "m-1")
}

/// A machine without a VM whose user data stands in a Secret. The binding grants to see Secrets.
fn bootstrapped(status: Value) -> Case {
    machine(status)
        .edited(|object| object["spec"]["bootstrap"] = json!({"dataSecretName": "boot"}))
        .grants([Need::Secrets])
        .lacks("vm.find")
}

/// A machine that is being deleted.
fn deleting(status: Value) -> Case {
    machine(status).edited(|object| object["metadata"]["deletionTimestamp"] = NOW.into())
}

/// A machine whose task is in flight.
fn tasked(kind: &str, task: Value) -> Case {
    machine(json!({"taskRef": "task-1", "taskKind": kind, "taskSince": EARLIER, "phase": "Cloning"}))
        .answers("task.get", task)
}

/// A machine whose VM exists.
fn with_vm(status: Value) -> Case {
    let mut status = status;
    status["machineRef"] = "vm-1".into();
    status["biosUUID"] = "bios-1".into();
    machine(status).answers("vm.get", vm())
}

fn task(state: &str) -> Value {
    json!({"id": "task-1", "state": state, "kind": "clone"})
}

fn vm() -> Value {
    json!({"id": "vm-1", "name": "m-1", "instanceUuid": "uid-1", "biosUuid": "bios-1"})
}

fn nics(ips: &[&str]) -> Value {
    json!({"nics": [{"network": "prod", "mac": "00:50:56:00:00:01", "connected": true, "ips": ips}]})
}

fn second_without_address() -> Value {
    json!({"nics": [
        {"network": "prod", "mac": "00:50:56:00:00:01", "connected": true, "ips": ["10.0.0.1"]},
        {"network": "other", "mac": "00:50:56:00:00:02", "connected": true, "ips": ["fe80::1"]},
    ]})
}

/// What is written of a VM with the interfaces of [`second_without_address`].
fn first_is_reached() -> Value {
    json!({"status": {
        "phase": "Running", "addresses": ["10.0.0.1"], "conditions": provisioned(NOW),
        "network": [
            {"networkName": "prod", "mac": "00:50:56:00:00:01", "connected": true, "ipAddrs": ["10.0.0.1"]},
            {"networkName": "other", "mac": "00:50:56:00:00:02", "connected": true, "ipAddrs": ["fe80::1"]},
        ],
    }})
}

fn power(state: &str) -> Value {
    json!({"state": state})
}

fn submitted() -> Value {
    json!({"task": "task-2"})
}

/// The interfaces as CAPV-26 writes them, with the addresses of CAPV-29.
fn network(ips: &[&str]) -> Value {
    let mut nic = json!({"networkName": "prod", "mac": "00:50:56:00:00:01", "connected": true});
    if !ips.is_empty() {
        nic["ipAddrs"] = json!(ips);
    }
    json!([nic])
}

fn not_yet(reason: &str, message: &str) -> Value {
    let (kind, status) = ("VMProvisioned", "False");
    json!([{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}])
}

fn provisioned(since: &str) -> Value {
    json!([{"type": "VMProvisioned", "status": "True", "reason": "Provisioned", "lastTransitionTime": since}])
}

/// The status after a change was submitted.
fn in_flight(kind: &str, phase: &str, reason: &str, message: &str) -> Value {
    json!({
        "taskRef": "task-2", "taskKind": kind, "taskSince": NOW, "phase": phase,
        "conditions": not_yet(reason, message),
    })
}

fn cloning() -> Value {
    let mut written = in_flight(
        "clone",
        "Cloning",
        "WaitingForClone",
        "the template is being cloned",
    );
    written["cloned"] = json!({"template": "ubuntu"});
    written
}

fn reconfiguring() -> Value {
    in_flight(
        "reconfigure",
        "Reconfiguring",
        "Reconfiguring",
        "the VM is being given its metadata",
    )
}

fn powering_on() -> Value {
    in_flight("power", "PoweringOn", "PoweringOn", "the VM is being started")
}

fn stopping() -> Value {
    in_flight("delete", "Deleting", "Deleting", "the VM is being stopped")
}

fn destroying() -> Value {
    in_flight("delete", "Deleting", "Deleting", "the VM is being destroyed")
}

fn waiting_for_ip() -> Value {
    not_yet("WaitingForIP", "the VM runs and has no addresses yet")
}

/// A status patch that sets these fields and erases those.
fn status(mut fields: Value, erased: &[&str]) -> Value {
    for field in erased {
        fields[field] = Value::Null;
    }
    json!({"status": fields})
}

const TASK_FIELDS: [&str; 3] = ["taskRef", "taskKind", "taskSince"];

fn requeue() -> Next {
    Next::After(20_000)
}

fn resync() -> Next {
    Next::Settled(Some(600_000))
}

polity_sdk::cases! { $ each_case of capv_machine::cases;

// The task in flight.

capv_02_unreachable_cloud_fails_and_forgets_nothing:
    machine(json!({"taskRef": "task-1", "taskKind": "clone"}))
        .fails("task.get", Code::Unavailable)
        .step([TASK])
        .notes("02 40")
        .failed(Code::Unavailable, "no");

capv_03_without_a_task_the_pass_goes_on:
    machine(json!({}))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 23")
        .patch(status(cloning(), &[]))
        .next(requeue());

capv_05_running_task_requeues:
    tasked("clone", task("running"))
        .step([TASK])
        .notes("02 04 05")
        .next(requeue());

capv_05_queued_task_requeues:
    tasked("clone", task("queued"))
        .step([TASK])
        .notes("02 04 05")
        .next(requeue());

capv_05_waits_as_long_as_the_binding_says:
    tasked("clone", task("queued"))
        .config(json!({"requeuePeriod": "1m30s"}))
        .step([TASK])
        .notes("02 04 05")
        .next(Next::After(90_000));

capv_48_a_task_that_has_timed_out_fails_the_pass_and_is_not_forgotten:
    tasked("clone", task("running"))
        .config(json!({"taskTimeout": "30m"}))
        .step([TASK])
        .notes("02 04 48")
        .event("TaskTimedOut")
        .patch(json!({"status": {"conditions": not_yet("TaskTimedOut", TIMED_OUT)}}))
        .failed(Code::DeadlineExceeded, TIMED_OUT);

capv_05_the_timeout_of_the_machine_comes_first:
    tasked("clone", task("running"))
        .edited(|object| object["spec"]["taskTimeout"] = "2h".into())
        .config(json!({"taskTimeout": "30m"}))
        .step([TASK])
        .notes("02 04 05")
        .next(requeue());

capv_05_deletion_waits_for_the_task_too:
    deleting(json!({"taskRef": "task-1", "taskKind": "clone"}))
        .answers("task.get", task("running"))
        .step([TASK])
        .notes("02 04 05")
        .next(requeue());

capv_06_successful_task_is_forgotten_and_the_pass_goes_on:
    tasked("clone", task("success"))
        .answers("vm.find", vm()).answers("vm.get", vm())
        .answers("vm.metadata", json!({"metadata": null})).answers("vm.nics", nics(&[]))
        .answers("vm.reconfigure", submitted())
        .step([TASK]).step([FIND]).step([GET]).step([METADATA, NICS]).step([&reconfigure(RIGHT)])
        .notes("02 04 06 11 12 13 17 22 24 25")
        .patch({
            let mut written = reconfiguring();
            written["machineRef"] = "vm-1".into();
            written["biosUUID"] = "bios-1".into();
            status(written, &[])
        })
        .next(requeue());

capv_39_what_a_clone_has_just_made_is_known_from_its_task_and_not_searched_for:
    tasked("clone", json!({"id": "task-1", "state": "success", "kind": "clone", "vm": "vm-1"}))
        .answers("vm.get", vm())
        .answers("vm.metadata", json!({"metadata": null})).answers("vm.nics", nics(&[]))
        .answers("vm.reconfigure", submitted())
        .step([TASK]).step([GET]).step([METADATA, NICS]).step([&reconfigure(RIGHT)])
        .notes("02 04 06 11 39 17 22 24 25")
        .patch({
            let mut written = reconfiguring();
            written["machineRef"] = "vm-1".into();
            written["biosUUID"] = "bios-1".into();
            status(written, &[])
        })
        .next(requeue());

capv_06_a_vm_that_is_on_already_counts_as_started:
    with_vm(json!({"taskRef": "task-1", "taskKind": "power", "phase": "PoweringOn"}))
        .answers("task.get", json!({"id": "task-1", "state": "error", "kind": "power-on", "error": {
            "fault": "InvalidPowerState", "message": "it is on", "existing": "on", "requested": "on",
        }}))
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("on"))
        .step([TASK]).step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("02 04 06 11 15 17 22 24 26 28 29")
        .event("Provisioned")
        .patch(status(json!({
            "phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
            "conditions": provisioned(NOW),
        }), &["taskRef", "taskKind"]))
        .next(resync());

capv_07_failed_task_is_written_down_and_holds_changes_back:
    tasked("clone", json!({"id": "task-1", "state": "error", "kind": "clone", "error": {
            "fault": "FileNotFound", "message": "no such template",
        }}))
        .lacks("vm.find")
        .step([TASK]).step([FIND])
        .notes("02 04 07 11 12 14 18 22 43")
        .event("TaskFailed")
        .patch(status(json!({
            "phase": "BackingOff", "retryAfter": "2026-01-01T00:01:00Z",
            "conditions": not_yet("TaskFailed", "FileNotFound: no such template"),
        }), &TASK_FIELDS))
        .next(Next::After(60_000));

capv_07_another_power_state_than_the_requested_is_a_failure:
    with_vm(json!({"taskRef": "task-1", "taskKind": "power", "phase": "PoweringOn"}))
        .answers("task.get", json!({"id": "task-1", "state": "error", "kind": "power-on", "error": {
            "fault": "InvalidPowerState", "existing": "suspended", "requested": "on",
        }}))
        .configured(nics(&[]))
        .answers("vm.power", power("suspended"))
        .step([TASK]).step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("02 04 07 11 15 17 22 24 26 43")
        .event("TaskFailed")
        .patch(status(json!({
            "phase": "BackingOff", "retryAfter": "2026-01-01T00:01:00Z", "network": network(&[]),
            "conditions": not_yet("TaskFailed", "InvalidPowerState"),
        }), &["taskRef", "taskKind"]))
        .next(Next::After(60_000));

capv_43_a_clock_that_was_set_back_makes_nobody_wait_longer_than_the_backoff:
    machine(json!({"retryAfter": "2036-01-01T00:00:00Z", "phase": "BackingOff"}))
        .lacks("vm.find")
        .step([FIND])
        .notes("03 11 12 14 18 22 43")
        .patch(json!({"status": {"retryAfter": "2026-01-01T00:01:00Z"}}))
        .next(Next::After(60_000));

// f-2: the configuration as the original has it.
capv_07_without_backoff_the_same_pass_tries_again:
    tasked("clone", json!({"id": "task-1", "state": "error", "error": {"fault": "FileNotFound"}}))
        .config(json!({"failureBackoff": "0"}))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([TASK]).step([FIND]).step([CLONE])
        .notes("02 04 07 11 12 14 18 22 23")
        .event("TaskFailed")
        .patch(json!({"status": {
            "taskRef": "task-2", "taskSince": NOW, "cloned": {"template": "ubuntu"},
            "conditions": not_yet("WaitingForClone", "the template is being cloned"),
        }}))
        .next(requeue());

capv_07_the_vm_of_a_failed_clone_is_adopted:
    tasked("clone", json!({"id": "task-1", "state": "error", "error": {"fault": "DuplicateName"}}))
        .answers("vm.find", vm()).answers("vm.get", vm())
        .answers("vm.metadata", json!({"metadata": null})).answers("vm.nics", nics(&[]))
        .step([TASK]).step([FIND]).step([GET]).step([METADATA, NICS])
        .notes("02 04 07 11 12 13 17 22 24 43")
        .event("TaskFailed")
        .patch(status(json!({
            "phase": "BackingOff", "retryAfter": "2026-01-01T00:01:00Z", "machineRef": "vm-1", "biosUUID": "bios-1",
            "conditions": not_yet("TaskFailed", "DuplicateName"),
        }), &TASK_FIELDS))
        .next(Next::After(60_000));

// A name that another VM has.

capv_49_a_clone_that_fails_on_its_name_is_tried_again_later:
    tasked("clone", json!({"id": "task-1", "state": "error", "error": {"fault": "DuplicateName"}}))
        .lacks("vm.find")
        .step([TASK]).step([FIND])
        .notes("02 04 07 11 12 14 18 22 49")
        .event("TaskFailed")
        .patch(status(json!({"phase": "NameTaken", "conditions": not_yet("NameTaken", TAKEN)}), &TASK_FIELDS))
        .name_is_taken();

capv_49_a_name_that_is_refused_at_once_is_tried_again_later_too:
    machine(json!({}))
        .lacks("vm.find")
        .fails("vm.clone", Code::AlreadyExists)
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 49")
        .event("NotAccepted")
        .patch(json!({"status": {"phase": "NameTaken", "conditions": not_yet("NameTaken", TAKEN)}}))
        .name_is_taken();

capv_23_a_machine_whose_name_was_taken_is_cloned_again:
    machine(json!({"phase": "NameTaken", "conditions": not_yet("NameTaken", TAKEN)}))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 23")
        .patch(status(cloning(), &[]))
        .next(requeue());

capv_08_missing_task_is_forgotten_and_requeues:
    machine(json!({"taskRef": "task-1", "taskKind": "clone"}))
        .lacks("task.get")
        .step([TASK])
        .notes("02 08")
        .patch(status(json!({}), &["taskRef", "taskKind"]))
        .next(requeue());

capv_09_unknown_state_of_a_task_fails_and_forgets_nothing:
    tasked("clone", task("paused"))
        .step([TASK])
        .notes("02 04 09")
        .event("TaskStateUnknown")
        .patch(json!({"status": {"conditions": not_yet("TaskStateUnknown", UNKNOWN)}}))
        .failed(Code::Internal, UNKNOWN);

capv_50_a_question_of_the_vm_is_shown:
    with_vm(json!({"taskRef": "task-1", "taskKind": "power", "taskSince": EARLIER, "phase": "PoweringOn"}))
        .answers("task.get", json!({
            "id": "task-1", "state": "running", "kind": "power-on", "vm": "vm-1", "question": "moved or copied?",
        }))
        .step([TASK])
        .notes("02 04 05 50")
        .event("QuestionPending")
        .patch(json!({"status": {"conditions": not_yet(
            "QuestionPending",
            "the VM waits until a person answers in the cloud: moved or copied?",
        )}}))
        .next(requeue());

// Which VM?

capv_12_unreachable_cloud_fails_and_clones_nothing:
    machine(json!({}))
        .fails("vm.find", Code::Unavailable)
        .step([FIND])
        .notes("03 11 12")
        .failed(Code::Unavailable, "no");

capv_13_a_vm_with_the_machines_uid_is_adopted:
    machine(json!({}))
        .answers("vm.find", vm()).answers("vm.get", vm())
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("on"))
        .step([FIND]).step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 12 13 17 22 24 26 28 29")
        .event("Provisioned")
        .patch(json!({"status": {
            "machineRef": "vm-1", "biosUUID": "bios-1", "phase": "Running",
            "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"], "conditions": provisioned(NOW),
        }}))
        .next(resync());

capv_16_a_vanished_vm_is_made_anew_in_the_same_pass:
    with_vm(json!({"network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"]}))
        .lacks("vm.get")
        .answers("vm.clone", submitted())
        .step([GET]).step([CLONE])
        .notes("03 11 15 16 22 23")
        .event("VMNotFound")
        .patch(status(cloning(), &["machineRef", "biosUUID", "network", "addresses"]))
        .next(requeue());

// f-7
capv_16_a_vanished_vm_is_not_made_anew_where_the_binding_says_so:
    with_vm(json!({"phase": "Running"}))
        .lacks("vm.get")
        .config(json!({"recreateMissing": false}))
        .step([GET])
        .notes("03 11 15 16 22 44")
        .event("VMNotFound")
        .patch(status(
            json!({"phase": "Missing", "conditions": not_yet("NotFound", "the VM vm-1 is gone")}),
            &["machineRef", "biosUUID"],
        ))
        .next(resync());

capv_44_a_missing_vm_stays_missing_where_the_binding_says_so:
    machine(json!({"phase": "Missing"}))
        .config(json!({"recreateMissing": false}))
        .lacks("vm.find")
        .step([FIND])
        .notes("03 11 12 14 18 22 44")
        .next(resync());

capv_23_the_first_vm_is_made_whatever_the_binding_says_of_missing_ones:
    machine(json!({}))
        .config(json!({"recreateMissing": false}))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 23")
        .patch(status(cloning(), &[]))
        .next(requeue());

capv_13_a_missing_vm_that_is_seen_again_is_adopted:
    machine(json!({"phase": "Missing"}))
        .config(json!({"recreateMissing": false}))
        .answers("vm.find", vm()).answers("vm.get", vm())
        .configured(nics(&[])).answers("vm.power", power("on"))
        .step([FIND]).step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 12 13 17 22 24 26 28 30")
        .patch(json!({"status": {
            "machineRef": "vm-1", "biosUUID": "bios-1", "phase": "WaitingForAddresses",
            "network": network(&[]), "conditions": waiting_for_ip(),
        }}))
        .next(requeue());

// f-4
capv_15_a_failure_to_look_is_not_a_missing_vm:
    machine(json!({"machineRef": "vm-1"}))
        .fails("vm.get", Code::DeadlineExceeded)
        .step([GET])
        .notes("03 11 15")
        .failed(Code::DeadlineExceeded, "no");

capv_15_a_vm_of_somebody_else_is_not_touched:
    machine(json!({"machineRef": "vm-1"}))
        .fails("vm.get", Code::PermissionDenied)
        .step([GET])
        .notes("03 11 15")
        .failed(Code::PermissionDenied, "no");

// f-1: the drawing says "no" here, which would ask for a VM without an id.
capv_18_without_a_reference_no_vm_is_asked_for:
    deleting(json!({}))
        .lacks("vm.find")
        .step([FIND])
        .notes("03 11 12 14 18 19 21")
        .patch(json!({"metadata": {"finalizers": []}}))
        .next(Next::settled());

// A copy of the VM has its marks, but not its instance UUID.

capv_47_a_vm_with_another_instance_uuid_is_not_changed:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1"}))
        .answers("vm.get", json!({"id": "vm-1", "name": "m-1", "instanceUuid": "uid-9", "biosUuid": "bios-1"}))
        .step([GET])
        .notes("03 11 15 47")
        .event("OtherInstanceUUID")
        .patch(json!({"status": {"conditions": not_yet("OtherInstanceUUID", COPY)}}))
        .failed(Code::FailedPrecondition, COPY);

capv_47_a_vm_with_another_instance_uuid_is_not_adopted:
    machine(json!({}))
        .answers("vm.find", json!({"id": "vm-1", "name": "m-1", "instanceUuid": "uid-9", "biosUuid": "bios-1"}))
        .step([FIND])
        .notes("03 11 12 47")
        .event("OtherInstanceUUID")
        .patch(json!({"status": {"conditions": not_yet("OtherInstanceUUID", COPY)}}))
        .failed(Code::FailedPrecondition, COPY);

// Deleting.

capv_20a_a_vm_that_is_on_is_stopped:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1"}))
        .answers("vm.get", vm()).answers("vm.power", power("on")).answers("vm.power-off", submitted())
        .step([GET]).step([POWER]).step([POWER_OFF])
        .notes("03 11 15 17 19 20a")
        .patch(status(stopping(), &[]))
        .next(requeue());

capv_20a_a_suspended_vm_is_stopped:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1"}))
        .answers("vm.get", vm()).answers("vm.power", power("suspended")).answers("vm.power-off", submitted())
        .step([GET]).step([POWER]).step([POWER_OFF])
        .notes("03 11 15 17 19 20a")
        .patch(status(stopping(), &[]))
        .next(requeue());

capv_20b_a_vm_that_is_off_is_destroyed:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1"}))
        .answers("vm.get", vm()).answers("vm.power", power("off")).answers("vm.destroy", submitted())
        .step([GET]).step([POWER]).step([DESTROY])
        .notes("03 11 15 17 19 20b")
        .patch(status(destroying(), &[]))
        .next(requeue());

capv_20b_the_vm_of_a_clone_that_ended_during_deletion_is_destroyed:
    deleting(json!({"taskRef": "task-1", "taskKind": "clone"}))
        .answers("task.get", task("success"))
        .answers("vm.find", vm()).answers("vm.get", vm())
        .answers("vm.power", power("off")).answers("vm.destroy", submitted())
        .step([TASK]).step([FIND]).step([GET]).step([POWER]).step([DESTROY])
        .notes("02 04 06 11 12 13 17 19 20b")
        .patch({
            let mut written = destroying();
            written["machineRef"] = "vm-1".into();
            written["biosUUID"] = "bios-1".into();
            status(written, &[])
        })
        .next(requeue());

capv_19_unknown_power_of_a_vm_stops_nothing:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1"}))
        .answers("vm.get", vm()).fails("vm.power", Code::Unavailable)
        .step([GET]).step([POWER])
        .notes("03 11 15 17 19")
        .failed(Code::Unavailable, "no");

capv_43_deletion_waits_after_a_failed_task_too:
    deleting(json!({"machineRef": "vm-1", "biosUUID": "bios-1", "retryAfter": "2026-01-01T00:00:12.500Z"}))
        .answers("vm.get", vm()).answers("vm.power", power("on"))
        .step([GET]).step([POWER])
        .notes("03 11 15 17 19 43")
        .patch(json!({"status": {"phase": "BackingOff"}}))
        .next(Next::After(12_500));

capv_21_the_finalizer_is_removed_once_the_vm_is_gone:
    deleting(json!({"taskRef": "task-1", "taskKind": "delete", "machineRef": "vm-1", "phase": "Deleting"}))
        .edited(|object| object["metadata"]["finalizers"] = json!(["capv.polity.dev/machine", "example.com/theirs"]))
        .answers("task.get", json!({"id": "task-1", "state": "success", "kind": "destroy"}))
        .lacks("vm.get")
        .step([TASK]).step([GET])
        .notes("02 04 06 11 15 16 19 21")
        .patch(json!({
            "metadata": {"finalizers": ["example.com/theirs"]},
            "status": {"taskRef": null, "taskKind": null, "machineRef": null},
        }))
        .next(Next::settled());

capv_41_a_machine_that_somebody_else_still_holds_is_let_go_of_once:
    deleting(json!({}))
        .edited(|object| object["metadata"]["finalizers"] = json!(["example.com/theirs"]))
        .lacks("vm.find")
        .step([FIND])
        .notes("03 11 12 14 18 19 41")
        .next(Next::settled());

// Bringing up.

capv_23_a_clone_takes_what_the_spec_says:
    machine(json!({}))
        .edited(|object| {
            object["spec"] = json!({
                "template": "ubuntu", "datacenter": "dc", "folder": "f", "datastore": "ds", "resourcePool": "rp",
                "numCPUs": 1, "numCoresPerSocket": 4, "memoryMiB": 512, "diskGiB": 20,
            });
        })
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND])
        .step([concat!(
            r#"vm.clone {"name":"m-1","instanceUuid":"uid-1","template":"ubuntu","datacenter":"dc","folder":"f","#,
            r#""datastore":"ds","resourcePool":"rp","cpus":2,"coresPerSocket":4,"memoryMiB":512,"diskGiB":20,"#,
            r#""networks":[]}"#
        )])
        .notes("03 11 12 14 18 22 23")
        .patch({
            let mut written = cloning();
            written["cloned"] = json!({
                "template": "ubuntu", "datacenter": "dc", "folder": "f", "datastore": "ds", "resourcePool": "rp",
                "numCPUs": 1, "numCoresPerSocket": 4, "memoryMiB": 512, "diskGiB": 20,
            });
            status(written, &[])
        })
        .next(requeue());

capv_22_a_clone_that_is_not_accepted_fails_and_tracks_no_task:
    machine(json!({}))
        .lacks("vm.find")
        .fails("vm.clone", Code::ResourceExhausted)
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22")
        .event("NotAccepted")
        .failed(Code::ResourceExhausted, "no");

capv_23_an_expired_backoff_holds_nothing_back:
    machine(json!({"retryAfter": NOW, "phase": "BackingOff"}))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 23")
        .patch(status(cloning(), &["retryAfter"]))
        .next(requeue());

capv_25_other_metadata_is_put_right_without_a_power_cycle:
    with_vm(json!({"phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"]}))
        .answers("vm.metadata", json!({"metadata": "{}"})).answers("vm.nics", nics(&["10.0.0.1"]))
        .answers("vm.reconfigure", submitted())
        .step([GET]).step([METADATA, NICS]).step([&reconfigure(RIGHT)])
        .notes("03 11 15 17 22 24 25")
        .patch(status(reconfiguring(), &[]))
        .next(requeue());

// f-8: metadata that is computed from status would be reconfigured for ever.
capv_26_metadata_is_computed_from_what_the_vm_reports_not_from_status:
    with_vm(json!({"network": [{"networkName": "prod", "mac": "00:50:56:ff:ff:ff", "connected": true}]}))
        .configured(nics(&[]))
        .answers("vm.power", power("off")).answers("vm.power-on", submitted())
        .step([GET]).step([METADATA, NICS]).step([POWER]).step([POWER_ON])
        .notes("03 11 15 17 22 24 26 27")
        .patch({
            let mut written = powering_on();
            written["network"] = network(&[]);
            status(written, &[])
        })
        .next(requeue());

// The order of the VM's interfaces is not that of the spec's devices.
capv_25_each_device_is_matched_to_an_interface_on_its_network:
    with_vm(json!({}))
        .edited(|object| {
            object["spec"]["network"]["devices"] = json!([
                {"networkName": "storage", "ipAddrs": ["10.9.0.1/24"], "mtu": 9000,
                 "routes": [{"to": "10.8.0.0/16", "via": "10.9.0.254", "metric": 3}]},
                {"networkName": "prod", "dhcp4": true, "nameservers": ["10.0.0.2"], "searchDomains": ["example.com"]},
                {"networkName": "storage", "gateway4": "10.9.0.254", "gateway6": "fd00::1", "dhcp6": true},
            ]);
        })
        .answers("vm.metadata", json!({"metadata": null}))
        .answers("vm.nics", json!({"nics": [
            {"network": "prod", "mac": "p", "connected": true, "ips": []},
            {"network": "storage", "mac": "s1", "connected": true, "ips": []},
        ]}))
        .answers("vm.reconfigure", submitted())
        .step([GET]).step([METADATA, NICS])
        .step([&reconfigure(concat!(
            r#"{"instance-id":"m-1","local-hostname":"m-1","network":{"version":2,"ethernets":{"#,
            r#""id0":{"match":{"macaddress":"s1"},"set-name":"eth0","dhcp4":false,"dhcp6":false,"#,
            r#""addresses":["10.9.0.1/24"],"mtu":9000,"routes":[{"to":"10.8.0.0/16","via":"10.9.0.254","metric":3}]},"#,
            r#""id1":{"match":{"macaddress":"p"},"set-name":"eth1","dhcp4":true,"dhcp6":false,"#,
            r#""nameservers":{"addresses":["10.0.0.2"],"search":["example.com"]}},"#,
            r#""id2":{"dhcp4":false,"dhcp6":true,"#,
            r#""routes":[{"to":"0.0.0.0/0","via":"10.9.0.254"},{"to":"::/0","via":"fd00::1"}]}}}}"#
        ))])
        .notes("03 11 15 17 22 24 25")
        .patch(status(reconfiguring(), &[]))
        .next(requeue());

capv_22_unknown_interfaces_reconfigure_nothing:
    with_vm(json!({}))
        .answers("vm.metadata", json!({"metadata": null})).fails("vm.nics", Code::Unavailable)
        .step([GET]).step([METADATA, NICS])
        .notes("03 11 15 17 22")
        .failed(Code::Unavailable, "no");

capv_27_a_suspended_vm_is_started:
    with_vm(json!({"network": network(&[])}))
        .configured(nics(&[]))
        .answers("vm.power", power("suspended")).answers("vm.power-on", submitted())
        .step([GET]).step([METADATA, NICS]).step([POWER]).step([POWER_ON])
        .notes("03 11 15 17 22 24 26 27")
        .patch(status(powering_on(), &[]))
        .next(requeue());

capv_27_a_vm_that_is_off_has_no_addresses:
    with_vm(json!({"phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"]}))
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("off")).answers("vm.power-on", submitted())
        .step([GET]).step([METADATA, NICS]).step([POWER]).step([POWER_ON])
        .notes("03 11 15 17 22 24 26 27")
        .patch({
            let mut written = powering_on();
            written["network"] = network(&[]);
            status(written, &["addresses"])
        })
        .next(requeue());

capv_20b_a_vm_that_was_stopped_has_no_addresses:
    deleting(json!({
            "machineRef": "vm-1", "biosUUID": "bios-1", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
        }))
        .answers("vm.get", vm()).answers("vm.power", power("off")).answers("vm.destroy", submitted())
        .step([GET]).step([POWER]).step([DESTROY])
        .notes("03 11 15 17 19 20b")
        .patch({
            let mut written = destroying();
            written["network"] = network(&[]);
            status(written, &["addresses"])
        })
        .next(requeue());

capv_30_addresses_that_the_guest_no_longer_reports_are_forgotten:
    with_vm(json!({"network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"]}))
        .configured(nics(&["fe80::1"]))
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 30")
        .patch(json!({"status": {
            "phase": "WaitingForAddresses", "conditions": waiting_for_ip(), "addresses": null,
            "network": network(&["fe80::1"]),
        }}))
        .next(requeue());

capv_29_a_machine_that_is_as_it_should_be_changes_nothing:
    with_vm(json!({
            "phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
            "conditions": provisioned(EARLIER),
        }))
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 29")
        .next(resync());

capv_29_other_addresses_are_written_down:
    with_vm(json!({
            "phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
            "conditions": provisioned(EARLIER),
        }))
        .configured(nics(&["fe80::1", "10.0.0.2", "fd00::2"]))
        .answers("vm.power", power("on"))
        .config(json!({"resync": "1h"}))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 29")
        .patch(json!({"status": {
            "network": network(&["fe80::1", "10.0.0.2", "fd00::2"]), "addresses": ["10.0.0.2", "fd00::2"],
        }}))
        .next(Next::Settled(Some(3_600_000)));

capv_29_an_interface_that_is_not_plugged_in_needs_no_address:
    with_vm(json!({}))
        .configured(json!({"nics": [
            {"network": "prod", "mac": "00:50:56:00:00:01", "connected": true, "ips": ["10.0.0.1"]},
            {"network": "spare", "mac": "00:50:56:00:00:02", "connected": false, "ips": ["10.5.0.1"]},
        ]}))
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 29")
        .event("Provisioned")
        .patch(json!({"status": {
            "phase": "Running", "addresses": ["10.0.0.1"], "conditions": provisioned(NOW),
            "network": [
                {"networkName": "prod", "mac": "00:50:56:00:00:01", "connected": true, "ipAddrs": ["10.0.0.1"]},
                {"networkName": "spare", "mac": "00:50:56:00:00:02", "connected": false, "ipAddrs": ["10.5.0.1"]},
            ],
        }}))
        .next(resync());

// f-9
capv_51_one_address_is_enough_and_the_others_are_waited_for:
    with_vm(json!({}))
        .edited(|object| {
            object["spec"]["network"]["devices"] = json!([
                {"networkName": "prod", "dhcp4": true}, {"networkName": "other", "ipAddrs": ["10.5.0.1/24"]},
            ]);
        })
        .answers("vm.metadata", json!({"metadata": RIGHT_FOR_TWO})).answers("vm.nics", second_without_address())
        .answers("vm.power", power("on"))
        .config(json!({"ipWait": "10s"}))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 51")
        .event("Provisioned")
        .patch(first_is_reached())
        .next(Next::After(10_000));

capv_29_an_interface_whose_device_asks_for_no_address_is_not_waited_for:
    with_vm(json!({}))
        .configured(second_without_address())
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 29")
        .event("Provisioned")
        .patch(first_is_reached())
        .next(resync());

capv_30_loopback_and_link_local_addresses_do_not_count:
    with_vm(json!({"network": network(&[])}))
        .configured(nics(&["127.0.0.1", "169.254.7.7", "fe80::1", "::1", "nonsense"]))
        .answers("vm.power", power("on"))
        .config(json!({"ipWait": "10s"}))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 30")
        .patch(json!({"status": {
            "phase": "WaitingForAddresses", "conditions": waiting_for_ip(),
            "network": network(&["127.0.0.1", "169.254.7.7", "fe80::1", "::1", "nonsense"]),
        }}))
        .next(Next::After(10_000));

// The VM is older than the spec.

capv_46_a_spec_that_differs_from_what_was_cloned_is_shown_and_the_vm_stays:
    with_vm(json!({
            "phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
            "conditions": provisioned(EARLIER), "cloned": {"template": "debian"},
        }))
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 46 24 26 28 29")
        .event("SpecChanged")
        .patch({
            let mut conditions = provisioned(EARLIER);
            conditions.as_array_mut().expect("a list").push(json!({
                "type": "UpToDate", "status": "False", "reason": "SpecChanged", "lastTransitionTime": NOW,
                "message": concat!(
                    "the spec has changed since the VM was cloned, and the VM keeps what status.cloned says: ",
                    "set the spec back, or delete the Machine and create it again",
                ),
            }));
            json!({"status": {"conditions": conditions}})
        })
        .next(resync());

capv_24_a_spec_that_was_set_back_is_up_to_date:
    with_vm(json!({
            "phase": "Running", "network": network(&["10.0.0.1"]), "addresses": ["10.0.0.1"],
            "cloned": {"template": "ubuntu"}, "conditions": [
                {"type": "VMProvisioned", "status": "True", "reason": "Provisioned", "lastTransitionTime": EARLIER},
                {"type": "UpToDate", "status": "False", "reason": "SpecChanged", "lastTransitionTime": EARLIER},
            ],
        }))
        .configured(nics(&["10.0.0.1"]))
        .answers("vm.power", power("on"))
        .step([GET]).step([METADATA, NICS]).step([POWER])
        .notes("03 11 15 17 22 24 26 28 29")
        .patch(json!({"status": {"conditions": [
            {"type": "VMProvisioned", "status": "True", "reason": "Provisioned", "lastTransitionTime": EARLIER},
            {"type": "UpToDate", "status": "True", "reason": "UpToDate", "lastTransitionTime": NOW},
        ]}}))
        .next(resync());

// User data.

capv_23_a_clone_takes_its_user_data_from_the_secret:
    bootstrapped(json!({}))
        .answers(SECRET, json!({"exists": true, "keys": ["format", "value"], "digest": "d"}))
        .answers("vm.clone", submitted())
        .step([FIND]).step([SECRET]).step([CLONE_WITH_USER_DATA])
        .notes("03 11 12 14 18 22 23")
        .patch(status(cloning(), &[]))
        .next(requeue());

capv_42_without_its_secret_a_machine_waits_and_clones_nothing:
    bootstrapped(json!({}))
        .answers(SECRET, json!({"exists": false, "keys": [], "digest": ""}))
        .step([FIND]).step([SECRET])
        .notes("03 11 12 14 18 22 42")
        .patch(json!({"status": {
            "phase": "WaitingForBootstrapData",
            "conditions": not_yet("WaitingForBootstrapData", "Secret boot does not exist"),
        }}))
        .next(requeue());

capv_42_a_secret_without_the_key_is_waited_for_too:
    bootstrapped(json!({}))
        .answers(SECRET, json!({"exists": true, "keys": ["userData"], "digest": "d"}))
        .step([FIND]).step([SECRET])
        .notes("03 11 12 14 18 22 42")
        .patch(json!({"status": {
            "phase": "WaitingForBootstrapData",
            "conditions": not_yet("WaitingForBootstrapData", "Secret boot lacks the key \"value\""),
        }}))
        .next(requeue());

capv_22_a_secret_that_the_binding_does_not_grant_fails_the_pass:
    bootstrapped(json!({}))
        .fails(SECRET, Code::PermissionDenied)
        .step([FIND]).step([SECRET])
        .notes("03 11 12 14 18 22")
        .failed(Code::PermissionDenied, "no");

// The user data is for a new VM only.
capv_25_a_machine_with_a_vm_asks_for_no_secret:
    with_vm(json!({}))
        .edited(|object| object["spec"]["bootstrap"] = json!({"dataSecretName": "boot"}))
        .answers("vm.metadata", json!({"metadata": null})).answers("vm.nics", nics(&[]))
        .answers("vm.reconfigure", submitted())
        .step([GET]).step([METADATA, NICS]).step([&reconfigure(RIGHT)])
        .notes("03 11 15 17 22 24 25")
        .patch(status(reconfiguring(), &[]))
        .next(requeue());

// A clone in doubt.

capv_36_a_clone_that_the_cloud_knows_nothing_of_yet_stops_everything:
    machine(json!({}))
        .in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("36")
        .patch(json!({"status": {
            "phase": "Cloning",
            "conditions": not_yet("WaitingForClone", "the answer to the clone was lost, and the cloud cannot yet tell whether the clone runs"),
        }}))
        .next(requeue());

capv_36_a_clone_in_doubt_stops_deletion_too:
    deleting(json!({"phase": "Cloning"}))
        .in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("36")
        .patch(json!({"status": {
            "conditions": not_yet("WaitingForClone", "the answer to the clone was lost, and the cloud cannot yet tell whether the clone runs"),
        }}))
        .next(requeue());

capv_37_the_task_of_a_clone_in_doubt_is_tracked:
    machine(json!({}))
        .in_doubt(Resolution::Done(r#"{"task":"task-1"}"#.into()))
        .answers("task.get", task("running"))
        .step([TASK])
        .notes("37 02 04 05")
        .patch(json!({"status": {"taskRef": "task-1", "taskKind": "clone", "taskSince": "2025-12-31T23:58:30Z"}}))
        .next(requeue());

// The pass that sent the clone found that the old VM was gone, but it could not record that.
capv_37_the_task_of_a_clone_in_doubt_takes_the_place_of_the_vm_that_is_gone:
    with_vm(json!({}))
        .in_doubt(Resolution::Done(r#"{"task":"task-1"}"#.into()))
        .answers("task.get", task("running"))
        .step([TASK])
        .notes("37 02 04 05")
        .patch(json!({"status": {
            "machineRef": null, "biosUUID": null,
            "taskRef": "task-1", "taskKind": "clone", "taskSince": "2025-12-31T23:58:30Z",
        }}))
        .next(requeue());

capv_37_the_vm_of_a_clone_whose_task_is_forgotten_is_adopted:
    machine(json!({}))
        .in_doubt(Resolution::Done(r#"{"vm":"vm-1"}"#.into()))
        .answers("vm.get", vm())
        .configured(nics(&[])).answers("vm.power", power("off")).answers("vm.power-on", submitted())
        .step([GET]).step([METADATA, NICS]).step([POWER]).step([POWER_ON])
        .notes("37 03 11 15 17 22 24 26 27")
        .patch({
            let mut written = powering_on();
            written["machineRef"] = "vm-1".into();
            written["biosUUID"] = "bios-1".into();
            written["network"] = network(&[]);
            status(written, &[])
        })
        .next(requeue());

capv_37_the_vm_of_a_clone_in_doubt_is_destroyed_with_the_machine:
    deleting(json!({}))
        .in_doubt(Resolution::Done(r#"{"vm":"vm-1"}"#.into()))
        .answers("vm.get", vm()).answers("vm.power", power("off")).answers("vm.destroy", submitted())
        .step([GET]).step([POWER]).step([DESTROY])
        .notes("37 03 11 15 17 19 20b")
        .patch({
            let mut written = destroying();
            written["machineRef"] = "vm-1".into();
            written["biosUUID"] = "bios-1".into();
            status(written, &[])
        })
        .next(requeue());

capv_38_a_clone_that_was_not_made_is_made_as_usual:
    machine(json!({}))
        .in_doubt(Resolution::Absent)
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("38 03 11 12 14 18 22 23")
        .patch(status(cloning(), &[]))
        .next(requeue());

capv_38_a_clone_that_was_not_made_lets_go_of_the_machine:
    deleting(json!({}))
        .in_doubt(Resolution::Absent)
        .lacks("vm.find")
        .step([FIND])
        .notes("38 03 11 12 14 18 19 21")
        .patch(json!({"metadata": {"finalizers": []}}))
        .next(Next::settled());

// What is not in the drawing.

capv_45_maintenance_skips_everything_and_requeues:
    deleting(json!({"taskRef": "task-1", "taskKind": "clone"}))
        .edited(|object| object["metadata"]["annotations"] = json!({"capv.polity.dev/maintenance": ""}))
        .in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("45")
        .next(requeue());

what_others_wrote_is_left_alone:
    machine(json!({"foreign": {"a": 1}, "pending": [], "conditions": [
            {"type": "polity.dev/Slowed", "status": "False", "reason": "R", "observedGeneration": 3},
        ]}))
        .edited(|object| object["spec"]["unknown"] = json!([1]))
        .lacks("vm.find")
        .answers("vm.clone", submitted())
        .step([FIND]).step([CLONE])
        .notes("03 11 12 14 18 22 23")
        .patch({
            let mut written = cloning();
            let ours = written["conditions"][0].clone();
            written["conditions"] = json!([
                {"type": "polity.dev/Slowed", "status": "False", "reason": "R", "observedGeneration": 3},
                ours,
            ]);
            status(written, &[])
        })
        .next(requeue());
}
