//! The main flow: MCM-R01 to MCM-R28x.

use polity_sdk::{Code, Next, RetryClass};
use serde_json::json;

use super::*;

polity_sdk::cases! { $ each_main_flow_case of mcm_machine::cases::main_flow;

mcm_r04_a_machine_without_a_class_is_left_untouched:
    machine(json!({}))
        .edited(|object| object["spec"]["class"]["name"] = "".into())
        .notes("R02 R04 R21")
        .event("InvalidMachine")
        .fails_with(RetryClass::Long, Code::InvalidArgument, "spec.class lacks a kind or a name");

mcm_r04_a_machine_without_the_kind_of_its_class_too:
    machine(json!({}))
        .edited(|object| object["spec"]["class"]["kind"] = "".into())
        .notes("R02 R04 R21")
        .event("InvalidMachine")
        .fails_with(RetryClass::Long, Code::InvalidArgument, "spec.class lacks a kind or a name");

mcm_r05_a_missing_class_is_said_on_the_machine:
    machine(json!({}))
        .without("MachineClass").exists(node("True"))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("ClassMissing", "MachineClass small does not exist"))
        .next(Next::After(20_000));

mcm_r05_a_class_of_another_kind_is_missing:
    machine(json!({}))
        .edited(|object| object["spec"]["class"]["kind"] = "OtherClass".into())
        .notes("R02 R03 R05 R29x")
        .status(class_condition("ClassMissing", "OtherClass small does not exist"))
        .next(Next::After(20_000));

// f-11
mcm_r05_a_class_that_merely_lacks_its_finalizer_is_looked_at_soon:
    machine(json!({}))
        .config(json!({"classFinalizer": "example.com/class"}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("ClassNotReady", "MachineClass small does not have the finalizer example.com/class yet"))
        .next(Next::After(20_000));

// f-11
mcm_r05_a_node_template_that_is_not_complete_waits_for_a_person:
    machine(json!({}))
        .without("MachineClass")
        .exists(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": "small", "namespace": "shoot"},
            "spec": {"nodeTemplate": {
                "capacity": {"cpu": "2"}, "instanceType": "s", "region": "eu", "zone": "eu-1",
            }},
        }))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("NodeTemplateInvalid", "the node template of MachineClass small is not complete"))
        .next(Next::After(20_000));

mcm_r05_a_missing_secret:
    machine(json!({}))
        .answers("Secret", json!({"exists": false}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("SecretInvalid", "Secret user-data does not exist"))
        .next(Next::After(20_000));

mcm_r05_a_secret_that_lacks_a_key:
    machine(json!({}))
        .answers("Secret", json!({"exists": true, "keys": ["other"]}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("SecretInvalid", "Secret user-data lacks userData"))
        .next(Next::After(20_000));

mcm_r05_a_missing_secret_with_credentials:
    with_credentials(machine(json!({}))).answers("Secret shoot/keys", json!({"exists": false}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("SecretInvalid", "Secret keys does not exist"))
        .next(Next::After(20_000));

mcm_r05_a_secret_with_credentials_that_lacks_a_key:
    with_credentials(machine(json!({})))
        .answers("Secret shoot/keys", json!({"exists": true, "keys": ["accessKeyID"]}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("SecretInvalid", "Secret keys lacks secretAccessKey"))
        .next(Next::After(20_000));

mcm_r05_a_class_that_could_not_be_looked_at_is_neither_there_nor_missing:
    machine(json!({}))
        .fails("MachineClass", Code::Unavailable)
        .notes("R02 R03 R05 R22")
        .status(unknown_class("no"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_r05_nor_is_a_secret_that_could_not_be_looked_at:
    machine(json!({}))
        .fails("Secret", Code::PermissionDenied)
        .notes("R02 R03 R05 R21")
        .status(unknown_class("no"))
        .fails_with(RetryClass::Long, Code::PermissionDenied, "no");

mcm_r05_a_class_that_still_cannot_be_looked_at_is_written_once:
    machine(unknown_class("another request"))
        .fails("MachineClass", Code::Unavailable)
        .notes("R02 R03 R05 R22")
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_r05_a_class_that_cannot_be_looked_at_is_not_missing_to_a_deletion:
    deleting("InitiateVMDeletion").exists(node("True"))
        .config(json!({"deleteWithoutClass": true}))
        .fails("MachineClass", Code::Unavailable)
        .notes("R02 R03 R05 R22")
        .status(unknown_class("no"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_r06_a_class_that_is_complete_again_is_said_too:
    known("Running", "True").exists(node("True"))
        .edited(|object| object["status"]["conditions"] = json!([
            {"type": "ClassValid", "status": "False", "reason": "ClassMissing", "lastTransitionTime": EARLIER},
        ]))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .status(json!({"conditions": [
            {"type": "ClassValid", "status": "True", "reason": "Valid", "lastTransitionTime": NOW},
        ]}))
        .next(Next::Settled(Some(600_000)));

// f-14
mcm_r07_a_missing_class_stops_the_deletion:
    deleting("InitiateVMDeletion").without("MachineClass").exists(node("True"))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("ClassMissing", "MachineClass small does not exist"))
        .next(Next::After(20_000));

// f-14
mcm_r27x_a_missing_class_does_not_stop_the_deletion_where_the_binding_says_so:
    deleting("InitiateVMDeletion").without("MachineClass").exists(node("True"))
        .config(json!({"deleteWithoutClass": true}))
        .answers("machine.delete", json!({}))
        .acts([r#"machine.delete {"name":"m","providerID":"vm-1"}"#])
        .notes("R02 R03 R27x R07 R08 D01 D04 D08 X20 R18")
        .status(and(
            json!({"deletedProviderID": "vm-1"}),
            operation(json!({"description": "the VM is deleted", "nextOp": "InitiateNodeDeletion"})),
        ))
        .waits(RetryClass::Short);

mcm_r05_missing_credentials_stop_the_deletion:
    with_credentials(deleting("InitiateVMDeletion")).exists(node("True"))
        .answers("Secret shoot/keys", json!({"exists": false}))
        .notes("R02 R03 R05 R29x")
        .status(class_condition("SecretInvalid", "Secret keys does not exist"))
        .next(Next::After(20_000));

// The session of a machine without credentials is one that every cloud refuses.
mcm_r27x_without_its_credentials_a_deletion_goes_on_to_the_cloud_where_the_binding_says_so:
    with_credentials(deleting("InitiateVMDeletion")).exists(node("True"))
        .config(json!({"deleteWithoutClass": true}))
        .answers("Secret shoot/keys", json!({"exists": false}))
        .fails("machine.delete", Code::PermissionDenied)
        .acts([r#"machine.delete {"name":"m","providerID":"vm-1"}"#])
        .notes("R02 R03 R27x R07 R08 D01 D04 D08 X23 R18")
        .event("DeletionFailed")
        .status(operation(json!({"description": "no", "state": "Failed", "errorCode": "permission-denied"})))
        .fails_with(RetryClass::Long, Code::PermissionDenied, "no");

mcm_r10_the_finalizer_is_added_before_anything_is_made:
    machine(json!({}))
        .edited(|object| object["metadata"]["finalizers"] = json!(["example.com/theirs"]))
        .notes("R02 R03 R06 R09 R10 R12 R22")
        .patch(json!({"metadata": {"finalizers": ["example.com/theirs", "mcm.polity.dev/machine"]}}))
        .waits(RetryClass::Short);

// f-1: literally, a machine with its finalizer would stop here for ever.
mcm_r11_a_machine_with_its_finalizer_goes_on:
    known("Running", "True").exists(node("True"))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .next(Next::Settled(Some(600_000)));

// f-10: literally, a machine with a node would never get the missing id.
mcm_r14_a_creation_that_is_not_finished_is_finished:
    known("Running", "True").exists(node("True"))
        .edited(|object| object["status"]["providerID"] = json!(null))
        .answers("machine.status", vm())
        .notes(&format!("{LIVE} R14 R19 C02 C10 R20"))
        .status(json!({"providerID": "vm-1", "createdAt": NOW}))
        .waits(RetryClass::Short);

mcm_r14_a_lost_phase_is_written_again:
    linked("Pending").exists(node("True"))
        .edited(|object| object["status"]["currentStatus"] = json!({}))
        .without("Node").exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
        .answers("machine.status", vm())
        .notes(&format!("{LIVE} R13 H13 R15 S01 R14 R19 C02 C11 R20"))
        .status(and(
            operation(json!({"description": "the VM exists; its node has yet to join"})),
            json!({"currentStatus": phase("Pending", true)}),
        ))
        .waits(RetryClass::Short);

mcm_r14_a_label_that_was_taken_away_comes_back:
    known("Running", "True").exists(node("True"))
        .edited(|object| object["metadata"]["labels"] = json!({"name": "workers"}))
        .answers("machine.status", vm())
        .notes(&format!("{LIVE} R14 R19 C02 C10 R20"))
        .patch(json!({"metadata": {"labels": {"node": "node-m"}}}))
        .waits(RetryClass::Short);

mcm_r14_a_label_that_names_another_node_is_put_right:
    known("Running", "True").exists(node("True"))
        .edited(|object| object["metadata"]["labels"]["node"] = "node-x".into())
        .answers("machine.status", vm())
        .notes(&format!("{LIVE} R14 R19 C02 C10 R20"))
        .patch(json!({"metadata": {"labels": {"node": "node-m"}}}))
        .waits(RetryClass::Short);

mcm_r16_a_failed_machine_waits_to_be_replaced:
    known("Failed", "False").exists(node("False"))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .waits(RetryClass::Long);

mcm_r25x_while_frozen_nothing_is_done_to_a_live_machine:
    known("Running", "True").exists(node("Unknown")).exists(safety(true, EARLIER))
        .notes("R25x")
        .next(Next::After(600_000));

mcm_r25x_another_freeze_is_none_of_this_machines_business:
    known("Running", "True").exists(node("True")).exists(safety(true, EARLIER))
        .exists(json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "other"},
        }))
        .config(json!({"safety": "other"}))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .next(Next::Settled(Some(600_000)));

a_machine_safety_that_is_missing_is_told_once:
    known("Running", "True").without("MachineSafety").exists(node("True"))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .event("MachineSafetyMissing")
        .status(json!({"conditions": [safety_found("False", NOW)]}))
        .next(Next::Settled(Some(600_000)));

a_machine_safety_that_is_still_missing_is_told_no_more:
    known("Running", "True").without("MachineSafety").exists(node("True"))
        .edited(|object| object["status"]["conditions"] = json!([safety_found("False", EARLIER)]))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .next(Next::Settled(Some(600_000)));

a_machine_safety_that_is_there_again_is_told_too:
    known("Running", "True").exists(node("True"))
        .edited(|object| object["status"]["conditions"] = json!([safety_found("False", EARLIER)]))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .status(json!({"conditions": [safety_found("True", NOW)]}))
        .next(Next::Settled(Some(600_000)));

a_binding_may_do_without_a_machine_safety:
    known("Running", "True").without("MachineSafety").exists(node("True"))
        .config(json!({"safety": ""}))
        .notes(&format!("{LIVE} R13 H13 R15 S08 R16 R21"))
        .next(Next::Settled(Some(600_000)));

mcm_r28x_a_machine_rests_while_nobody_can_tell_whether_it_is_frozen:
    known("Running", "True").fails("MachineSafety", Code::Unavailable)
        .notes("R28x")
        .status(json!({"conditions": [{
            "type": "SafetyFound", "status": "Unknown", "reason": "LookFailed",
            "message": "MachineSafety default cannot be read, so nothing is done: no", "lastTransitionTime": NOW,
        }]}))
        .fails_with(RetryClass::Short, Code::Unavailable, "MachineSafety default cannot be read, so nothing is done: no");

mcm_r25x_a_deletion_does_not_ask:
    deleting("InitiateVMDeletion").exists(safety(true, EARLIER))
        .answers("machine.delete", json!({}))
        .acts([DELETE])
        .notes("R02 R03 R06 R07 R08 D01 D04 D08 X20 R18")
        .status(and(
            json!({"deletedProviderID": "vm-1"}),
            operation(json!({"description": "the VM is deleted", "nextOp": "InitiateNodeDeletion"})),
        ))
        .waits(RetryClass::Short);

mcm_r26x_after_the_thaw_an_unknown_machine_is_running:
    known("Unknown", "Unknown").exists(node("Unknown")).exists(safety(false, NOW))
        .notes("R26x")
        .status(and(
            operation(json!({"description": "the freeze is over"})),
            json!({"currentStatus": phase("Running", false)}),
        ))
        .waits(RetryClass::Short);

mcm_r26x_a_machine_that_became_unknown_after_the_thaw_stays_so:
    known("Unknown", "Unknown").exists(node("Unknown")).exists(safety(false, LONG_AGO))
        .notes(&format!("{LIVE} R13 H11 H13 R15 S08 R16"))
        .next(Next::After(60_000));
}

/// The class names a Secret with credentials too.
fn with_credentials(case: Case) -> Case {
    case.without("MachineClass").exists(json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "small", "namespace": "shoot"},
        "spec": {"secretRef": {"name": "user-data"}, "credentialsSecretRef": {"name": "keys"}},
    }))
}

fn safety(frozen: bool, since: &str) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "metadata": {"name": "default"},
        "status": {"frozen": frozen, "since": since},
    })
}

fn unknown_class(message: &str) -> Value {
    json!({"conditions": [{
        "type": "ClassValid", "status": "Unknown", "reason": "LookFailed", "message": message, "lastTransitionTime": NOW,
    }]})
}

fn safety_found(status: &str, since: &str) -> Value {
    match status {
        "True" => json!({
            "type": "SafetyFound", "status": "True", "reason": "Found", "lastTransitionTime": since,
        }),
        _ => json!({
            "type": "SafetyFound", "status": "False", "reason": "MachineSafetyMissing",
            "message": "MachineSafety default does not exist: machines are replaced while the API server is away. \
                Create it, and bind mcm-safety to it, or set the parameter safety to \"\"",
            "lastTransitionTime": since,
        }),
    }
}
