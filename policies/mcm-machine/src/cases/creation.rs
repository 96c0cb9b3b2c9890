//! The creation flow: MCM-C01 to MCM-C20.

use polity_sdk::{Code, Effect, Resolution, RetryClass};
use serde_json::json;

use super::*;

/// A VM that is not set up.
fn unfinished() -> Value {
    json!({"providerID": "vm-1", "nodeName": "node-m", "initialized": false})
}

/// A machine that was not created yet.
fn fresh() -> Case {
    machine(json!({}))
}

/// A machine whose ids are written and that has no phase.
fn made() -> Case {
    linked("Pending").edited(|object| {
        object["status"] = json!({"providerID": "vm-1"});
    })
}

/// The status after a VM was recorded.
fn recorded() -> Value {
    json!({"providerID": "vm-1", "createdAt": NOW})
}

/// The same machine, whose VM is old enough to be shown by the cloud.
fn shown(case: Case) -> Case {
    case.edited(|object| object["status"]["createdAt"] = TEN_MINUTES_AGO.into())
}

/// The operation of a machine whose VM the cloud does not show.
fn unseen() -> Value {
    operation(json!({
        "description": "the cloud does not show the new VM vm-1 yet: it is asked again",
        "type": "Create", "state": "Processing", "errorCode": "not-found",
    }))
}

const FLOW: &str = "R02 R03 R06 R09 R11 R14 R19";

fn token() -> Value {
    json!({"bootstrapToken": {"name": "token-1", "key": "token", "expires": "2026-01-01T00:20:00Z"}})
}

fn ids() -> Value {
    json!({
        "labels": {"node": "node-m"}, "annotations": {"machinepriority.machine.sapcloud.io": "3"},
    })
}

fn failed_creation(to: Option<&str>, code: &str) -> Value {
    let operation = operation(json!({
        "description": "no", "type": "Create", "state": "Failed", "errorCode": code,
    }));
    match to {
        Some(to) => and(operation, json!({"currentStatus": phase(to, false)})),
        None => operation,
    }
}

/// A creation that fails with this code.
fn refused(code: Code) -> Case {
    fresh()
        .lacks("machine.status")
        .fails("machine.create", code)
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C07 R20"))
        .event("CreationFailed")
        .status(and(
            token(),
            failed_creation(Some("CrashLoopBackOff"), code.as_str()),
        ))
}

const LOST: &str =
    "the answer to the VM's creation was lost; the cloud is asked whether the VM exists: no answer";
const DOUBT: &str = "nobody knows yet whether the VM was created: the cloud cannot say yet";

/// The status of a machine of whose creation nobody knows whether it was performed.
fn unknown_creation(to: &str, code: &str, message: &str) -> Value {
    let operation = operation(json!({
        "description": message, "type": "Create", "state": "Failed", "errorCode": code,
    }));
    and(operation, json!({"currentStatus": phase(to, false)}))
}

/// The end of a pass whose creation was not answered.
fn lost() -> Next {
    Next::failed(
        RetryClass::Short,
        Failure {
            effect: Effect::Unknown,
            ..Failure::new(Code::DeadlineExceeded, LOST)
        },
    )
}

/// A machine whose creation is in doubt, of which the cloud cannot say.
fn doubtful() -> Case {
    fresh().in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
}

/// A driver that fails with this code when the policy asks for the VM.
fn unanswered(code: Code, class: RetryClass) -> Case {
    fresh()
        .fails("machine.status", code)
        .notes(&format!("{FLOW} C09 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("CrashLoopBackOff"), code.as_str()))
        .fails_with(class, code, "no")
}

fn foreign_node(provider: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-m"}, "spec": {"providerID": provider},
    })
}

polity_sdk::cases! { $ each_creation_case of mcm_machine::cases::creation;

mcm_c01_without_a_token_nothing_is_made:
    fresh().lacks("machine.status").fails("mint", Code::Unavailable)
        .acts([MINT])
        .notes(&format!("{FLOW} C01 R20"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c02_a_vm_that_is_there_is_adopted:
    fresh().answers("machine.status", vm())
        .notes(&format!("{FLOW} C02 C10 R20"))
        .patch(json!({"metadata": ids(), "status": recorded()}))
        .waits(RetryClass::Short);

mcm_c02_what_the_driver_wants_remembered_is_remembered:
    fresh().answers("machine.status", json!({"providerID": "vm-1", "nodeName": "node-m", "lastKnownState": "s"}))
        .notes(&format!("{FLOW} C02 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(recorded(), json!({"lastKnownState": "s"}))}))
        .waits(RetryClass::Short);

mcm_c03_an_answer_that_does_not_decode_makes_nothing:
    fresh().answers("machine.status", json!({"id": 5}))
        .notes(&format!("{FLOW} C03 R20"))
        .fails_with(
            RetryClass::Medium, Code::Internal, "the driver's answer does not decode: missing field `providerID`",
        );

mcm_c04_a_machine_without_a_vm_is_made:
    fresh().lacks("machine.status").answers("machine.create", vm())
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(token(), recorded())}))
        .waits(RetryClass::Short);

mcm_c04_a_driver_that_cannot_tell_makes_one_too:
    fresh().fails("machine.status", Code::Unimplemented).answers("machine.create", vm())
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(token(), recorded())}))
        .waits(RetryClass::Short);

mcm_c04_a_token_that_is_still_of_use_is_used_again:
    fresh().edited(|object| object["status"] = token())
        .lacks("machine.status").answers("machine.create", vm())
        .acts([CREATE])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": recorded()}))
        .waits(RetryClass::Short);

mcm_c04_a_binding_may_do_without_tokens:
    fresh().config(json!({"bootstrapToken": false}))
        .lacks("machine.status").answers("machine.create", vm())
        .acts([concat!(
            r#"machine.create {"name":"m","providerSpec":{"size":"s"},"#,
            r#""userData":{"$secret":{"name":"user-data","key":"userData"}}}"#
        )])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": recorded()}))
        .waits(RetryClass::Short);

mcm_c05_a_vm_with_the_name_of_an_older_node_is_given_back:
    fresh().lacks("machine.status").answers("machine.create", vm()).answers("machine.delete", json!({}))
        .exists(foreign_node("vm-0"))
        .acts([MINT, CREATE, DELETE])
        .notes(&format!("{FLOW} C04 C05 R20"))
        .event("StaleNode")
        .status(and(and(token(), json!({"currentStatus": phase("Failed", false)})), operation(json!({
            "description": "the node node-m of another VM is still there", "type": "Create", "state": "Failed",
        }))))
        .waits(RetryClass::Short);

mcm_c05_a_node_that_the_grant_does_not_show_is_an_older_one:
    fresh().lacks("machine.status").answers("machine.create", vm()).answers("machine.delete", json!({}))
        .fails("Node node-m", Code::PermissionDenied)
        .acts([MINT, CREATE, DELETE])
        .notes(&format!("{FLOW} C04 C05 R20"))
        .event("StaleNode")
        .status(and(and(token(), json!({"currentStatus": phase("Failed", false)})), operation(json!({
            "description": "the node node-m of another VM is still there", "type": "Create", "state": "Failed",
        }))))
        .waits(RetryClass::Short);

mcm_c17_a_vm_that_could_not_be_given_back_stays_on_record:
    fresh().lacks("machine.status").answers("machine.create", vm()).fails("machine.delete", Code::Unavailable)
        .exists(foreign_node("vm-0"))
        .acts([MINT, CREATE, DELETE])
        .notes(&format!("{FLOW} C04 C17 R20"))
        .event("StaleNode")
        .status(and(
            and(and(token(), recorded()), json!({"currentStatus": phase("Failed", false)})),
            operation(json!({
                "description": "the node node-m of another VM is still there", "type": "Create", "state": "Failed",
            })),
        ))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c17_a_new_vm_that_is_not_found_stays_on_record:
    fresh().lacks("machine.status").answers("machine.create", vm()).lacks("machine.delete")
        .exists(foreign_node("vm-0"))
        .acts([MINT, CREATE, DELETE])
        .notes(&format!("{FLOW} C04 C17 R20"))
        .event("StaleNode")
        .status(and(
            and(and(token(), recorded()), json!({"currentStatus": phase("Failed", false)})),
            operation(json!({
                "description": "the node node-m of another VM is still there", "type": "Create", "state": "Failed",
            })),
        ))
        .fails_with(RetryClass::Short, Code::NotFound, "no");

mcm_c05_a_creation_in_doubt_with_the_name_of_an_older_node_is_given_back:
    fresh().in_doubt(Resolution::Done(vm().to_string())).answers("machine.delete", json!({}))
        .exists(foreign_node("vm-0"))
        .acts([DELETE])
        .notes(&format!("C14 {FLOW} C05 R20"))
        .event("StaleNode")
        .status(and(json!({"currentStatus": phase("Failed", false)}), operation(json!({
            "description": "the node node-m of another VM is still there", "type": "Create", "state": "Failed",
        }))))
        .waits(RetryClass::Short);

mcm_c06_a_node_that_carries_the_machines_name_is_never_stale:
    fresh().edited(|object| object["metadata"]["name"] = "node-m".into())
        .lacks("machine.status").answers("machine.create", vm())
        .exists(foreign_node("vm-0"))
        .acts([MINT, &CREATE.replace(r#""name":"m""#, r#""name":"node-m""#)])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(token(), recorded())}))
        .waits(RetryClass::Short);

mcm_c06_a_node_that_joined_at_once_is_its_own:
    fresh().lacks("machine.status").answers("machine.create", vm())
        .exists(foreign_node("vm-1"))
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(token(), recorded())}))
        .waits(RetryClass::Short);

// Every row of the table of codes:
mcm_c07_cancelled: refused(Code::Cancelled).fails_with(RetryClass::Medium, Code::Cancelled, "no");
mcm_c07_unknown: refused(Code::Unknown).fails_with(RetryClass::Short, Code::Unknown, "no");
mcm_c07_invalid_argument: refused(Code::InvalidArgument).fails_with(RetryClass::Medium, Code::InvalidArgument, "no");
mcm_c07_deadline_exceeded: refused(Code::DeadlineExceeded).fails_with(RetryClass::Short, Code::DeadlineExceeded, "no");
mcm_c07_not_found: refused(Code::NotFound).fails_with(RetryClass::Medium, Code::NotFound, "no");
mcm_c07_already_exists: refused(Code::AlreadyExists).fails_with(RetryClass::Medium, Code::AlreadyExists, "no");
mcm_c07_permission_denied: refused(Code::PermissionDenied).fails_with(RetryClass::Medium, Code::PermissionDenied, "no");
mcm_c07_resource_exhausted: refused(Code::ResourceExhausted).fails_with(RetryClass::Long, Code::ResourceExhausted, "no");
mcm_c07_failed_precondition:
    refused(Code::FailedPrecondition).fails_with(RetryClass::Medium, Code::FailedPrecondition, "no");
mcm_c07_aborted: refused(Code::Aborted).fails_with(RetryClass::Short, Code::Aborted, "no");
mcm_c07_out_of_range: refused(Code::OutOfRange).fails_with(RetryClass::Medium, Code::OutOfRange, "no");
mcm_c07_unimplemented: refused(Code::Unimplemented).fails_with(RetryClass::Medium, Code::Unimplemented, "no");
mcm_c07_internal: refused(Code::Internal).fails_with(RetryClass::Medium, Code::Internal, "no");
mcm_c07_unavailable: refused(Code::Unavailable).fails_with(RetryClass::Short, Code::Unavailable, "no");
mcm_c07_data_loss: refused(Code::DataLoss).fails_with(RetryClass::Medium, Code::DataLoss, "no");
mcm_c07_unauthenticated: refused(Code::Unauthenticated).fails_with(RetryClass::Medium, Code::Unauthenticated, "no");

mcm_c07_the_wait_for_resources_is_the_bindings:
    refused(Code::ResourceExhausted)
        .config(json!({"resourceExhausted": "Medium"}))
        .fails_with(RetryClass::Medium, Code::ResourceExhausted, "no");

mcm_c07_after_its_time_the_machine_is_failed:
    refused(Code::Unavailable)
        .edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .status(and(token(), failed_creation(Some("Failed"), "unavailable")))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c07_the_timeout_of_the_machine_comes_first:
    refused(Code::Unavailable)
        .edited(|object| object["spec"]["creationTimeout"] = "1m".into())
        .acts(["mint bootstrap-token for 60000 ms", CREATE])
        .status(and(
            json!({"bootstrapToken": {"name": "token-1", "key": "token", "expires": "2026-01-01T00:01:00Z"}}),
            failed_creation(Some("Failed"), "unavailable"),
        ))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c07_the_same_failure_is_not_written_again:
    fresh()
        .edited(|object| object["status"] = and(token(), json!({
            "currentStatus": {"phase": "CrashLoopBackOff", "lastUpdateTime": EARLIER},
            "lastOperation": {
                "description": "no", "type": "Create", "state": "Failed", "errorCode": "unavailable",
                "lastUpdateTime": EARLIER,
            },
        })))
        .lacks("machine.status").fails("machine.create", Code::Unavailable)
        .acts([CREATE])
        .notes(&format!("{FLOW} C04 C07 R20"))
        .event("CreationFailed")
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c07_the_same_failure_is_written_again_after_half_an_hour:
    fresh()
        .edited(|object| {
            object["status"] = and(token(), json!({
                "currentStatus": {"phase": "Failed", "lastUpdateTime": LONG_AGO},
                "lastOperation": {
                    "description": "no", "type": "Create", "state": "Failed", "errorCode": "unavailable",
                    "lastUpdateTime": LONG_AGO,
                },
            }));
        })
        .lacks("machine.status").fails("machine.create", Code::Unavailable)
        .acts([CREATE])
        .notes(&format!("{FLOW} C04 C07 R20"))
        .event("CreationFailed")
        .status(operation(json!({})))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c16_a_creation_whose_answer_is_lost_is_shown_as_one_that_failed:
    fresh().lacks("machine.status").loses("machine.create")
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C16 R20"))
        .event("CreationFailed")
        .status(and(token(), unknown_creation("CrashLoopBackOff", "deadline-exceeded", LOST)))
        .next(lost());

mcm_c16_after_its_time_the_machine_is_failed:
    fresh().lacks("machine.status").loses("machine.create")
        .edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .acts([MINT, CREATE])
        .notes(&format!("{FLOW} C04 C16 R20"))
        .event("CreationFailed")
        .status(and(token(), unknown_creation("Failed", "deadline-exceeded", LOST)))
        .next(lost());

mcm_c08_ids_on_record_are_trusted_and_the_vm_is_set_up:
    shown(made()).lacks("machine.status").answers("machine.initialize", json!({}))
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C08 C18 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c08_where_the_driver_cannot_tell_too:
    made().fails("machine.status", Code::Unimplemented).answers("machine.initialize", json!({}))
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C08 C18 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c08_a_vm_that_was_set_up_is_not_set_up_again:
    shown(nameless()).lacks("machine.status")
        .notes(&format!("{FLOW} C08 C12 R20"))
        .waits(RetryClass::Long);

mcm_c21_a_new_vm_that_is_not_found_is_not_gone:
    made().edited(|object| object["status"]["createdAt"] = EARLIER.into())
        .lacks("machine.status")
        .notes(&format!("{FLOW} C21 R20"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_c21_without_the_time_of_the_vm_that_of_the_machine_counts:
    made().lacks("machine.status")
        .notes(&format!("{FLOW} C21 R20"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_c21_the_time_is_the_bindings:
    made().config(json!({"visibleWithin": "4m"})).lacks("machine.status").answers("machine.initialize", json!({}))
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C08 C18 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c21_a_new_vm_that_is_not_found_when_it_is_set_up_is_asked_for_again:
    made().answers("machine.status", unfinished()).lacks("machine.initialize")
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C21 R20"))
        .status(unseen())
        .waits(RetryClass::Short);

mcm_c21_after_the_time_of_a_creation_the_machine_is_failed:
    made().edited(|object| {
            object["status"]["createdAt"] = EARLIER.into();
            object["metadata"]["creationTimestamp"] = LONG_AGO.into();
        })
        .lacks("machine.status")
        .notes(&format!("{FLOW} C21 R20"))
        .status(and(unseen(), json!({"currentStatus": phase("Failed", false)})))
        .waits(RetryClass::Short);

mcm_c09_cancelled: unanswered(Code::Cancelled, RetryClass::Medium);
mcm_c09_unknown: unanswered(Code::Unknown, RetryClass::Short);
mcm_c09_invalid_argument: unanswered(Code::InvalidArgument, RetryClass::Medium);
mcm_c09_deadline_exceeded: unanswered(Code::DeadlineExceeded, RetryClass::Short);
mcm_c09_already_exists: unanswered(Code::AlreadyExists, RetryClass::Medium);
mcm_c09_permission_denied: unanswered(Code::PermissionDenied, RetryClass::Medium);
mcm_c09_resource_exhausted: unanswered(Code::ResourceExhausted, RetryClass::Medium);
mcm_c09_failed_precondition: unanswered(Code::FailedPrecondition, RetryClass::Medium);
mcm_c09_aborted: unanswered(Code::Aborted, RetryClass::Short);
mcm_c09_out_of_range: unanswered(Code::OutOfRange, RetryClass::Medium);
mcm_c09_internal: unanswered(Code::Internal, RetryClass::Medium);
mcm_c09_unavailable: unanswered(Code::Unavailable, RetryClass::Short);
mcm_c09_data_loss: unanswered(Code::DataLoss, RetryClass::Medium);
mcm_c09_unauthenticated: unanswered(Code::Unauthenticated, RetryClass::Medium);

mcm_c09_a_running_machine_stays_so:
    known("Running", "True")
        .edited(|object| object["metadata"]["labels"] = json!({"name": "workers"}))
        .fails("machine.status", Code::Unavailable)
        .notes(&format!("{FLOW} C09 R20"))
        .event("CreationFailed")
        .status(failed_creation(None, "unavailable"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c10_only_what_is_missing_is_written:
    fresh().edited(|object| {
            object["metadata"]["annotations"] = json!({"machinepriority.machine.sapcloud.io": "1"});
            object["status"]["providerID"] = "vm-1".into();
        })
        .answers("machine.status", vm())
        .notes(&format!("{FLOW} C02 C10 R20"))
        .patch(json!({"metadata": {"labels": {"node": "node-m"}}}))
        .waits(RetryClass::Short);

mcm_c11_a_machine_that_is_made_waits_for_its_node:
    made().answers("machine.status", vm())
        .notes(&format!("{FLOW} C02 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c11_a_creation_that_failed_before_is_pending:
    made().edited(|object| object["status"]["currentStatus"] = json!({"phase": "CrashLoopBackOff"}))
        .answers("machine.status", vm())
        .notes(&format!("{FLOW} C02 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c11_a_failed_machine_stays_failed:
    made().edited(|object| object["status"]["currentStatus"] = json!({"phase": "Failed"}))
        .answers("machine.status", vm())
        .notes(&format!("{FLOW} C02 C11 R20"))
        .status(and(
            json!({"node": "node-m"}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c18_a_vm_that_is_not_set_up_is_set_up_before_its_node_is_waited_for:
    made().answers("machine.status", unfinished()).answers("machine.initialize", json!({}))
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C18 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c18_the_ids_are_written_first:
    fresh().answers("machine.status", unfinished())
        .notes(&format!("{FLOW} C02 C10 R20"))
        .patch(json!({"metadata": ids(), "status": recorded()}))
        .waits(RetryClass::Short);

mcm_c19_a_vm_that_cannot_be_set_up_soon_is_tried_again:
    made().answers("machine.status", unfinished()).fails("machine.initialize", Code::Unavailable)
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C19 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("CrashLoopBackOff"), "unavailable"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_c19_a_vm_that_may_not_be_set_up_waits_for_a_person:
    made().answers("machine.status", unfinished()).fails("machine.initialize", Code::PermissionDenied)
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C19 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("CrashLoopBackOff"), "permission-denied"))
        .fails_with(RetryClass::Medium, Code::PermissionDenied, "no");

mcm_c19_a_right_that_is_missing_for_long_does_not_replace_the_machine:
    made().edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .answers("machine.status", unfinished()).fails("machine.initialize", Code::PermissionDenied)
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C19 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("CrashLoopBackOff"), "permission-denied"))
        .fails_with(RetryClass::Medium, Code::PermissionDenied, "no");

mcm_c19_another_failure_for_long_does:
    made().edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .answers("machine.status", unfinished()).fails("machine.initialize", Code::FailedPrecondition)
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C19 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("Failed"), "failed-precondition"))
        .fails_with(RetryClass::Medium, Code::FailedPrecondition, "no");

mcm_c19_a_vm_that_is_gone_is_asked_for_again_soon:
    shown(made()).answers("machine.status", unfinished()).lacks("machine.initialize")
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C19 R20"))
        .event("CreationFailed")
        .status(failed_creation(Some("CrashLoopBackOff"), "not-found"))
        .fails_with(RetryClass::Short, Code::NotFound, "no");

mcm_c20_a_driver_that_sets_nothing_up_is_no_obstacle:
    made().answers("machine.status", unfinished()).fails("machine.initialize", Code::Unimplemented)
        .acts([INITIALIZE])
        .notes(&format!("{FLOW} C02 C20 C11 R20"))
        .status(and(
            json!({"node": "node-m", "currentStatus": phase("Pending", true)}),
            operation(json!({
                "description": "the VM exists; its node has yet to join", "type": "Create", "state": "Processing",
            })),
        ))
        .waits(RetryClass::Short);

mcm_c12_a_node_whose_name_the_driver_does_not_know_is_waited_for:
    nameless().answers("machine.status", json!({"providerID": "vm-1"}))
        .notes(&format!("{FLOW} C02 C12 R20"))
        .waits(RetryClass::Long);

// #1110
mcm_h07_a_node_whose_name_never_becomes_known_fails_in_time_too:
    nameless().edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .answers("machine.status", json!({"providerID": "vm-1"}))
        .notes(&format!("{FLOW} C02 C12 H07 R20"))
        .event("MachineFailed")
        .status(and(
            json!({"currentStatus": phase("Failed", false)}),
            operation(json!({"description": "the node did not join in time", "state": "Failed"})),
        ))
        .waits(RetryClass::Long);

mcm_c13_a_creation_that_the_cloud_knows_nothing_of_yet_stops_everything:
    doubtful()
        .notes("C13")
        .event("CreationFailed")
        .status(unknown_creation("CrashLoopBackOff", "unknown", DOUBT))
        .fails_with(RetryClass::Short, Code::Unknown, DOUBT);

mcm_c13_after_its_time_the_machine_is_failed:
    doubtful()
        .edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .notes("C13")
        .event("CreationFailed")
        .status(unknown_creation("Failed", "unknown", DOUBT))
        .fails_with(RetryClass::Short, Code::Unknown, DOUBT);

mcm_r25x_while_frozen_a_creation_in_doubt_is_not_judged:
    doubtful()
        .exists(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "default"},
            "status": {"frozen": true, "since": EARLIER},
        }))
        .notes("R25x")
        .next(Next::After(600_000));

mcm_x51_a_creation_in_doubt_stops_the_deletion_too:
    deleting("InitiateFinalizerRemoval").in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("C13 X51")
        .fails_with(RetryClass::Short, Code::Unknown, DOUBT);

mcm_c14_what_a_creation_in_doubt_has_made_is_the_machines:
    fresh().in_doubt(Resolution::Done(vm().to_string()))
        .exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
        .notes(&format!("C14 {FLOW} C10 R20"))
        .patch(json!({"metadata": ids(), "status": recorded()}))
        .waits(RetryClass::Short);

mcm_c14_is_recorded_even_where_the_class_is_gone:
    fresh().in_doubt(Resolution::Done(vm().to_string())).without("MachineClass").exists(node("True"))
        .notes("C14 R02 R03 R05 R29x")
        .status(and(
            recorded(),
            class_condition("ClassMissing", "MachineClass small does not exist"),
        ))
        .next(Next::After(20_000));

mcm_c14_in_a_deletion_starts_it_again:
    deleting("InitiateFinalizerRemoval").in_doubt(Resolution::Done(vm().to_string()))
        .edited(|object| object["status"]["providerID"] = json!(null))
        .notes("C14")
        .status(and(
            recorded(),
            operation(json!({"description": "the machine is being deleted", "nextOp": "GetVMStatus"})),
        ))
        .waits(RetryClass::Short);

mcm_c14_an_answer_that_does_not_decode_fails_the_pass:
    fresh().in_doubt(Resolution::Done("{}".into()))
        .fails_with(
            RetryClass::Short, Code::Internal, "the driver's answer does not decode: missing field `providerID`",
        );

mcm_c15_a_creation_that_was_not_performed_is_made_as_usual:
    fresh().in_doubt(Resolution::Absent).lacks("machine.status").answers("machine.create", vm())
        .acts([MINT, CREATE])
        .notes(&format!("C15 {FLOW} C04 C06 C10 R20"))
        .patch(json!({"metadata": ids(), "status": and(token(), recorded())}))
        .waits(RetryClass::Short);
}

/// A Pending machine whose driver does not report the node's name.
fn nameless() -> Case {
    made().edited(|object| {
        object["metadata"]["labels"] = json!({"name": "workers"});
        object["status"] = json!({
            "providerID": "vm-1", "currentStatus": {"phase": "Pending", "lastUpdateTime": EARLIER},
            "lastOperation": {"description": "", "type": "Create", "state": "Processing", "lastUpdateTime": EARLIER},
        });
    })
}
