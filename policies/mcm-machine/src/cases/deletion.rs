//! The deletion flow without the drain: MCM-D01 to MCM-D28, MCM-X01 to MCM-X03, MCM-X20 to MCM-X50.

use polity_sdk::{Code, Next, RetryClass};
use serde_json::json;

use super::*;

const FLOW: &str = "R02 R03 R06 R07 R08 D01 D04 D08";

fn asked(edges: &str) -> String {
    format!("{FLOW} D09 D12 D13 {edges} R18")
}

fn next(description: &str, step: &str) -> Value {
    operation(json!({"description": description, "nextOp": step}))
}

/// The status after a failure.
fn wrong(code: Code) -> Value {
    operation(json!({"description": "no", "state": "Failed", "errorCode": code.as_str()}))
}

/// The driver fails with this code when the policy asks for the VM.
fn unanswered(code: Code) -> Case {
    deleting("GetVMStatus").fails("machine.status", code)
}

fn again(code: Code) -> Case {
    unanswered(code)
        .notes(&asked("D15 D16 D17 D21 D23 D26"))
        .event("DeletionFailed")
        .status(wrong(code))
        .fails_with(RetryClass::Short, code, "no")
}

fn other(code: Code) -> Case {
    unanswered(code)
        .notes(&asked("D15 D16 D17 X01"))
        .event("DeletionFailed")
        .status(wrong(code))
        .fails_with(RetryClass::Medium, code, "no")
}

/// The driver fails with this code when the policy deletes the VM.
fn undeleted(code: Code, edge: &str, class: RetryClass) -> Case {
    deleting("InitiateVMDeletion")
        .fails("machine.delete", code)
        .acts([DELETE])
        .notes(&format!("{FLOW} {edge} R18"))
        .event("DeletionFailed")
        .status(wrong(code))
        .fails_with(class, code, "no")
}

/// A list with a VM of the machine with this uid.
fn listed(owner: &str) -> Value {
    json!({"machines": [{"name": "m", "providerID": "vm-2", "owner": owner}]})
}

/// The driver fails with this code when the policy asks for what is left.
fn unlisted(code: Code, class: RetryClass) -> Case {
    deleting("InitiateFinalizerRemoval")
        .fails("machine.list", code)
        .notes(&format!("{FLOW} X43 R18"))
        .event("DeletionFailed")
        .status(wrong(code))
        .fails_with(class, code, "no")
}

fn node_gone(case: Case, edges: &str) -> Case {
    case.notes(&format!("{FLOW} {edges} R18"))
        .status(next("the node is gone", "InitiateFinalizerRemoval"))
        .waits(RetryClass::Short)
}

fn node_stays(case: Case, code: Code) -> Case {
    case.notes(&format!("{FLOW} X31 R18"))
        .event("DeletionFailed")
        .status(wrong(code))
        .fails_with(RetryClass::Short, code, "no")
}

fn other_node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
}

/// A machine at this step whose VM is five minutes old.
fn new(step: &str) -> Case {
    deleting(step).edited(|object| object["status"]["createdAt"] = EARLIER.into())
}

/// The same machine after the cloud has accepted the deletion of its VM.
fn deleted(step: &str) -> Case {
    new(step).edited(|object| object["status"]["deletedProviderID"] = "vm-1".into())
}

/// The operation of a machine whose VM the cloud does not show. The step is the same.
fn unseen() -> Value {
    operation(json!({
        "description": "the cloud does not show the new VM vm-1 yet: it is asked again", "errorCode": "not-found",
    }))
}

fn restarts(case: Case) -> Case {
    case.notes(&format!("{FLOW} X33 R18"))
        .status(next("the machine is being deleted", "GetVMStatus"))
        .waits(RetryClass::Short)
}

fn restarted(case: Case) -> Case {
    case.notes(&format!("{FLOW} X50 R18")).waits(RetryClass::Short)
}

polity_sdk::cases! { $ each_deletion_case of mcm_machine::cases::deletion;

mcm_d02_a_machine_without_its_finalizer_is_left_alone:
    deleting("InitiateVMDeletion")
        .edited(|object| object["metadata"]["finalizers"] = json!(["example.com/theirs"]))
        .notes("R02 R03 R06 R07 R08 D02 D03 R18")
        .fails_with(
            RetryClass::Long, Code::FailedPrecondition,
            "the machine is being deleted and lacks the finalizer mcm.polity.dev/machine",
        );

mcm_d05_a_machine_becomes_terminating_first:
    known("Running", "True").edited(|object| object["metadata"]["deletionTimestamp"] = EARLIER.into())
        .notes("R02 R03 R06 R07 R08 D01 D04 D05 D06 D07 R18")
        .status(and(
            json!({"currentStatus": phase("Terminating", false)}),
            operation(json!({
                "description": "the machine is being deleted", "type": "Delete", "nextOp": "GetVMStatus",
            })),
        ))
        .waits(RetryClass::Short);

// #363: a machine without a phase can be deleted.
mcm_d05_a_machine_that_never_had_a_phase_too:
    machine(json!({})).edited(|object| object["metadata"]["deletionTimestamp"] = EARLIER.into())
        .notes("R02 R03 R06 R07 R08 D01 D04 D05 D06 D07 R18")
        .status(and(
            json!({"currentStatus": phase("Terminating", false)}),
            operation(json!({
                "description": "the machine is being deleted", "type": "Delete", "state": "Processing",
                "nextOp": "GetVMStatus",
            })),
        ))
        .waits(RetryClass::Short);

mcm_d14_a_vm_that_is_there_is_drained_next:
    deleting("GetVMStatus").answers("machine.status", vm())
        .notes(&asked("D14 D24 D26"))
        .status(next("the node is drained next", "InitiateDrain"))
        .waits(RetryClass::Short);

mcm_d12_the_driver_is_asked_with_the_class_and_its_secret:
    deleting("GetVMStatus").answers(STATUS, vm())
        .notes(&asked("D14 D24 D26"))
        .status(next("the node is drained next", "InitiateDrain"))
        .waits(RetryClass::Short);

// f-5: literally Processing.
mcm_d18_an_answer_that_does_not_decode_is_written_down:
    deleting("GetVMStatus").answers("machine.status", json!([]))
        .notes(&asked("D15 D16 D18 D19 D27"))
        .status(next("the driver's answer does not decode: invalid length 0, expected struct Vm with 4 elements", "FailedDecode"))
        .fails_with(
            RetryClass::Long, Code::Internal,
            "the driver's answer does not decode: invalid length 0, expected struct Vm with 4 elements",
        );

// f-5
mcm_d18_is_a_failure_where_the_binding_says_so:
    deleting("GetVMStatus").answers("machine.status", json!({"providerID": 5}))
        .config(json!({"decodeFailureIsFailed": true}))
        .notes(&asked("D15 D16 D18 D19 D27"))
        .status(operation(json!({
            "description": "the driver's answer does not decode: invalid type: integer `5`, expected a string",
            "nextOp": "FailedDecode", "state": "Failed",
        })))
        .fails_with(
            RetryClass::Long, Code::Internal,
            "the driver's answer does not decode: invalid type: integer `5`, expected a string",
        );

// Every row of the table of codes:
mcm_d20_unimplemented:
    unanswered(Code::Unimplemented)
        .notes(&asked("D15 D16 D17 D20 D24 D26"))
        .status(next("the node is drained next", "InitiateDrain"))
        .waits(RetryClass::Short);

mcm_d21_unknown: again(Code::Unknown);
mcm_d21_deadline_exceeded: again(Code::DeadlineExceeded);
mcm_d21_aborted: again(Code::Aborted);
mcm_d21_unavailable: again(Code::Unavailable);

// f-6: the drawing continues with the Node, and what the VM left behind remains.
mcm_d22_not_found:
    unanswered(Code::NotFound)
        .notes(&asked("D15 D16 D17 D22 D25 D26"))
        .status(next("the VM is gone", "InitiateNodeDeletion"))
        .waits(RetryClass::Short);

mcm_d29_a_new_vm_that_is_not_found_is_not_gone:
    new("GetVMStatus").lacks("machine.status")
        .notes(&asked("D15 D16 D17 D29"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_d29_without_the_time_of_the_vm_that_of_the_machine_counts:
    deleting("GetVMStatus").edited(|object| object["metadata"]["creationTimestamp"] = EARLIER.into())
        .lacks("machine.status")
        .notes(&asked("D15 D16 D17 D29"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_d22_after_ten_minutes_it_is:
    new("GetVMStatus").edited(|object| object["status"]["createdAt"] = TEN_MINUTES_AGO.into())
        .lacks("machine.status")
        .notes(&asked("D15 D16 D17 D22 D25 D26"))
        .status(next("the VM is gone", "InitiateNodeDeletion"))
        .waits(RetryClass::Short);

mcm_d22_a_machine_that_never_had_a_vm_has_none:
    deleting("GetVMStatus").edited(|object| {
            object["metadata"]["creationTimestamp"] = EARLIER.into();
            object["status"]["providerID"] = json!(null);
        })
        .lacks("machine.status")
        .notes(&asked("D15 D16 D17 D22 D25 D26"))
        .status(next("the VM is gone", "InitiateNodeDeletion"))
        .waits(RetryClass::Short);

mcm_x01_cancelled: other(Code::Cancelled);
mcm_x01_invalid_argument: other(Code::InvalidArgument);
mcm_x01_already_exists: other(Code::AlreadyExists);
mcm_x01_permission_denied: other(Code::PermissionDenied);
mcm_x01_resource_exhausted: other(Code::ResourceExhausted);
mcm_x01_failed_precondition: other(Code::FailedPrecondition);
mcm_x01_out_of_range: other(Code::OutOfRange);
mcm_x01_internal: other(Code::Internal);
mcm_x01_data_loss: other(Code::DataLoss);
mcm_x01_unauthenticated: other(Code::Unauthenticated);

mcm_d23_the_same_failure_is_not_written_again:
    unanswered(Code::Unavailable)
        .edited(|object| {
            let last = &mut object["status"]["lastOperation"];
            last["state"] = "Failed".into();
            last["errorCode"] = "unavailable".into();
        })
        .notes(&asked("D15 D16 D17 D21 D23"))
        .event("DeletionFailed")
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x02_a_vm_that_is_not_set_up_is_drained_all_the_same:
    deleting("GetVMStatus").answers("machine.status", json!({"providerID": "vm-1", "initialized": false}))
        .notes(&asked("X02 D24 D26"))
        .status(next("the node is drained next", "InitiateDrain"))
        .waits(RetryClass::Short);

// f-6
mcm_x03_a_vm_that_is_gone_is_deleted_all_the_same_where_the_binding_says_so:
    unanswered(Code::NotFound).config(json!({"notFoundStillDeletes": true}))
        .notes(&asked("D15 D16 D17 X03 D24 D26"))
        .status(next("the node is drained next", "InitiateDrain"))
        .waits(RetryClass::Short);

mcm_x20_the_vm_is_deleted:
    deleting("InitiateVMDeletion").answers("machine.delete", json!({}))
        .acts([DELETE])
        .notes(&format!("{FLOW} X20 R18"))
        .status(and(json!({"deletedProviderID": "vm-1"}), next("the VM is deleted", "InitiateNodeDeletion")))
        .waits(RetryClass::Short);

mcm_x21_not_found:
    deleting("InitiateVMDeletion").lacks("machine.delete")
        .acts([DELETE])
        .notes(&format!("{FLOW} X21 R18"))
        .status(next("the VM is deleted", "InitiateNodeDeletion"))
        .waits(RetryClass::Short);

mcm_x21_a_new_vm_whose_deletion_the_cloud_has_accepted_is_gone:
    deleted("InitiateVMDeletion").lacks("machine.delete")
        .acts([DELETE])
        .notes(&format!("{FLOW} X21 R18"))
        .status(next("the VM is deleted", "InitiateNodeDeletion"))
        .waits(RetryClass::Short);

mcm_x25_a_new_vm_that_is_not_found_is_not_gone:
    new("InitiateVMDeletion").lacks("machine.delete")
        .acts([DELETE])
        .notes(&format!("{FLOW} X25 R18"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_x25_the_deletion_of_another_vm_says_nothing:
    deleted("InitiateVMDeletion").edited(|object| object["status"]["deletedProviderID"] = "vm-0".into())
        .lacks("machine.delete")
        .acts([DELETE])
        .notes(&format!("{FLOW} X25 R18"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_x22_unknown: undeleted(Code::Unknown, "X22", RetryClass::Short);
mcm_x22_deadline_exceeded: undeleted(Code::DeadlineExceeded, "X22", RetryClass::Short);
mcm_x22_aborted: undeleted(Code::Aborted, "X22", RetryClass::Short);
mcm_x22_unavailable: undeleted(Code::Unavailable, "X22", RetryClass::Short);
mcm_x23_cancelled: undeleted(Code::Cancelled, "X23", RetryClass::Long);
mcm_x23_invalid_argument: undeleted(Code::InvalidArgument, "X23", RetryClass::Long);
mcm_x23_already_exists: undeleted(Code::AlreadyExists, "X23", RetryClass::Long);
mcm_x23_permission_denied: undeleted(Code::PermissionDenied, "X23", RetryClass::Long);
mcm_x23_resource_exhausted: undeleted(Code::ResourceExhausted, "X23", RetryClass::Long);
mcm_x23_failed_precondition: undeleted(Code::FailedPrecondition, "X23", RetryClass::Long);
mcm_x23_out_of_range: undeleted(Code::OutOfRange, "X23", RetryClass::Long);
mcm_x23_unimplemented: undeleted(Code::Unimplemented, "X23", RetryClass::Long);
mcm_x23_internal: undeleted(Code::Internal, "X23", RetryClass::Long);
mcm_x23_data_loss: undeleted(Code::DataLoss, "X23", RetryClass::Long);
mcm_x23_unauthenticated: undeleted(Code::Unauthenticated, "X23", RetryClass::Long);

mcm_x23_an_answer_that_does_not_decode:
    deleting("InitiateVMDeletion").answers("machine.delete", json!("gone"))
        .acts([DELETE])
        .notes(&format!("{FLOW} X23 R18"))
        .event("DeletionFailed")
        .status(operation(json!({
            "description": "the answer is not what this policy expects: invalid type: string \"gone\", expected a map at line 1 column 6",
            "state": "Failed", "errorCode": "internal",
        })))
        .fails_with(
            RetryClass::Long, Code::Internal,
            "the answer is not what this policy expects: invalid type: string \"gone\", expected a map at line 1 column 6",
        );

mcm_x30_the_node_is_deleted:
    node_gone(deleting("InitiateNodeDeletion").exists(node("True")).acts(["delete Node node-m"]), "X30");

mcm_x30_a_node_that_is_gone_needs_no_deletion:
    node_gone(deleting("InitiateNodeDeletion").exists(other_node()), "X30");

mcm_x30_a_node_that_goes_meanwhile_is_gone:
    node_gone(
        deleting("InitiateNodeDeletion").exists(node("True")).lacks("delete Node").acts(["delete Node node-m"]), "X30",
    );

mcm_x30_a_machine_that_never_had_a_node_has_none_to_delete:
    node_gone(
        deleting("InitiateNodeDeletion").exists(node("True")).edited(|object| {
            object["metadata"]["labels"] = json!({});
            object["status"]["node"] = json!(null);
        }),
        "X30",
    );

// #874: the label was lost.
mcm_x30_a_node_whose_label_was_lost_is_deleted_all_the_same:
    node_gone(
        deleting("InitiateNodeDeletion").exists(node("True"))
            .edited(|object| object["metadata"]["labels"] = json!({}))
            .acts(["delete Node node-m"]),
        "X30",
    );

mcm_x31_a_node_that_cannot_be_deleted_stays:
    node_stays(
        deleting("InitiateNodeDeletion").exists(node("True"))
            .fails("delete Node", Code::Unavailable).acts(["delete Node node-m"]),
        Code::Unavailable,
    );

mcm_x31_a_node_that_cannot_be_looked_at_stays:
    node_stays(deleting("InitiateNodeDeletion").fails("Node", Code::Unavailable), Code::Unavailable);

mcm_x32_the_node_of_another_vm_is_not_deleted:
    node_gone(
        deleting("InitiateNodeDeletion").exists({
            let mut theirs = node("True");
            theirs["spec"]["providerID"] = "vm-2".into();
            theirs
        }),
        "X32",
    );

mcm_x32_a_node_that_the_grant_does_not_show_is_not_deleted:
    node_gone(deleting("InitiateNodeDeletion").fails("Node", Code::PermissionDenied), "X32");

// By a version of the policy that believed at once that a VM is gone.
mcm_x33_a_new_vm_that_counted_as_gone_is_asked_for_again:
    restarts(new("InitiateNodeDeletion").exists(node("True")));

mcm_x33_no_list_is_believed_of_a_new_vm:
    restarts(new("InitiateFinalizerRemoval"));

mcm_x40_the_finalizer_is_removed_at_once_after_the_cloud_has_accepted_the_deletion:
    deleted("InitiateFinalizerRemoval")
        .notes(&format!("{FLOW} X40"))
        .patch(json!({
            "metadata": {"finalizers": []},
            "status": operation(json!({"description": "the VM and the node are gone", "state": "Successful"})),
        }))
        .next(Next::settled());

mcm_x40_the_finalizer_is_removed:
    deleting("InitiateFinalizerRemoval")
        .edited(|object| object["metadata"]["finalizers"] = json!(["mcm.polity.dev/machine", "example.com/theirs"]))
        .notes(&format!("{FLOW} X40"))
        .patch(json!({
            "metadata": {"finalizers": ["example.com/theirs"]},
            "status": operation(json!({"description": "the VM and the node are gone", "state": "Successful"})),
        }))
        .next(Next::settled());

mcm_x40_the_vms_of_others_are_no_reason_to_stay:
    deleting("InitiateFinalizerRemoval").answers("machine.list", listed("uid-n"))
        .notes(&format!("{FLOW} X40"))
        .patch(json!({
            "metadata": {"finalizers": []},
            "status": operation(json!({"description": "the VM and the node are gone", "state": "Successful"})),
        }))
        .next(Next::settled());

mcm_x40_a_driver_that_cannot_list_is_no_reason_to_stay:
    deleting("InitiateFinalizerRemoval").fails("machine.list", Code::Unimplemented)
        .notes(&format!("{FLOW} X40"))
        .patch(json!({
            "metadata": {"finalizers": []},
            "status": operation(json!({"description": "the VM and the node are gone", "state": "Successful"})),
        }))
        .next(Next::settled());

mcm_x42_a_vm_of_the_machine_that_is_not_on_record_is_deleted_first:
    deleting("InitiateFinalizerRemoval").answers("machine.list", listed("uid-m"))
        .notes(&format!("{FLOW} X42 R18"))
        .event("OrphanFound")
        .status(and(json!({"providerID": "vm-2", "createdAt": NOW}), next("a VM is left", "InitiateVMDeletion")))
        .waits(RetryClass::Short);

mcm_x43_a_list_that_fails_for_now_keeps_the_machine: unlisted(Code::Unavailable, RetryClass::Short);
mcm_x43_a_list_that_is_refused_keeps_the_machine: unlisted(Code::PermissionDenied, RetryClass::Long);

mcm_x41_a_finalizer_whose_removal_did_not_arrive_is_removed_again:
    deleting("InitiateFinalizerRemoval")
        .edited(|object| object["status"]["lastOperation"]["state"] = "Successful".into())
        .notes(&format!("{FLOW} X41 R18"))
        .patch(json!({"metadata": {"finalizers": []}}))
        .waits(RetryClass::Short);

// f-4: the drawing has no default.
mcm_x50_after_an_answer_that_did_not_decode_the_deletion_starts_again:
    restarted(deleting("FailedDecode").status(next("the machine is being deleted", "GetVMStatus")));

mcm_x50_an_operation_that_is_left_from_the_creation_starts_it_too:
    restarted(
        deleting("GetVMStatus")
            .edited(|object| object["status"]["lastOperation"]["type"] = "Create".into())
            .status(operation(json!({"description": "the machine is being deleted", "type": "Delete"}))),
    );

mcm_x50_no_operation_at_all_too:
    restarted(
        deleting("GetVMStatus")
            .edited(|object| object["status"]["lastOperation"] = json!(null))
            .status(operation(json!({
                "description": "the machine is being deleted", "type": "Delete", "state": "Processing",
                "nextOp": "GetVMStatus",
            }))),
    );
}
