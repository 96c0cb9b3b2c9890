//! The drain: MCM-D10, MCM-D11, MCM-X10 to MCM-X18, MCM-X32.

use polity_sdk::{Code, Failure, Next, RetryClass};
use serde_json::json;

use super::*;

const FLOW: &str = "R02 R03 R06 R07 R08 D01 D04 D08 D10 D11";

fn notes(edges: &str) -> String {
    format!("{FLOW} {edges} R18")
}

/// The node, cordoned and marked as ending.
fn ending(ready: &str) -> Value {
    let mut node = node(ready);
    node["spec"]["unschedulable"] = true.into();
    let told = json!({"type": "Terminating", "status": "True", "reason": "ScaleDown"});
    let conditions = node["status"]["conditions"].as_array_mut();
    conditions.into_iter().for_each(|all| all.push(told.clone()));
    node
}

/// A machine that is being drained and whose node is marked as ending.
fn draining() -> Case {
    deleting("InitiateDrain").exists(ending("True"))
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"}, "spec": {"nodeName": "node-m"},
    })
}

fn ending_pod(since: &str) -> Value {
    let mut pod = pod();
    pod["metadata"]["deletionTimestamp"] = since.into();
    pod["metadata"]["finalizers"] = json!(["example.com/never"]);
    pod
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let mut condition = json!({
        "type": "Drained", "status": status, "reason": reason, "lastTransitionTime": NOW,
    });
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    json!({"conditions": [condition]})
}

fn next(description: &str, step: &str) -> Value {
    operation(json!({"description": description, "nextOp": step}))
}

fn drained(step: &str) -> Value {
    and(
        condition("True", "Drained", ""),
        next("the node is drained", step),
    )
}

fn failed(description: &str, code: Code) -> Value {
    and(
        condition("False", "DrainFailed", description),
        operation(json!({"description": description, "state": "Failed", "errorCode": code.as_str()})),
    )
}

fn forced(case: Case) -> Case {
    case.edited(|object| object["metadata"]["labels"]["force-deletion"] = "True".into())
}

fn skipped(case: Case, edge: &str) -> Case {
    case.notes(&notes(edge))
        .status(next("there is no node to drain", "InitiateVMDeletion"))
        .waits(RetryClass::Short)
}

const TELL: &str = concat!(
    r#"patch Node node-m {"status":{"conditions":[{"status":"True","type":"Ready"},"#,
    r#"{"lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","#,
    r#""reason":"ScaleDown","status":"True","type":"Terminating"}]}}"#
);
const CORDON: &str = r#"patch Node node-m {"spec":{"unschedulable":true}}"#;

/// A node that has not been ready for this long.
fn unhealthy(since: &str) -> Value {
    let mut node = ending("Unknown");
    node["status"]["conditions"][0]["lastTransitionTime"] = since.into();
    node
}

/// A node that joined at this time and does not report whether it is ready.
fn silent(since: &str) -> Value {
    let mut node = ending("True");
    node["metadata"]["creationTimestamp"] = since.into();
    let conditions = node["status"]["conditions"].as_array_mut();
    conditions
        .into_iter()
        .for_each(|all| all.retain(|known| known["type"] != "Ready"));
    node
}

fn attachment() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a-1"},
        "spec": {"nodeName": "node-m", "source": {"persistentVolumeName": "pv-1"}}, "status": {"attached": true},
    })
}

/// The node with a volume.
fn loaded() -> Value {
    let mut node = ending("True");
    node["status"]["volumesAttached"] = json!([{"name": "pv-1", "devicePath": "/dev/sdb"}]);
    node
}

/// A minute before the pass.
const EARLIER_BY_A_MINUTE: &str = "2025-12-31T23:59:00Z";

fn volume() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
        "spec": {"csi": {"driver": "d", "volumeHandle": "vol-1"}},
    })
}

/// A pod with a volume is ending.
fn leaving() -> Case {
    let mut pod = ending_pod(NOW);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    draining().exists(pod).exists(attachment()).edited(|object| {
        object["status"]["drain"] = json!({"moving": {
            "pod": "shop/web", "uid": "uid-web", "volumes": ["pv-1"], "stage": "Terminating", "since": EARLIER,
        }});
    })
}

const DETACH: &str = "R02 R03 R06 R07 R08 D01 D04 D08 X16 R18";

fn detached(case: Case) -> Case {
    case.notes(DETACH)
        .status(next("no volume is attached", "InitiateVMDeletion"))
        .waits(RetryClass::Short)
}

polity_sdk::cases! { $ each_draining_case of mcm_machine::cases::draining;

mcm_d10_the_node_is_told_and_cordoned_first:
    deleting("InitiateDrain").exists(node("True"))
        .acts([TELL, CORDON])
        .notes(&notes("X13"))
        .status(drained("InitiateVMDeletion"))
        .waits(RetryClass::Short);

mcm_x10_a_machine_that_never_had_a_node_has_none_to_drain:
    skipped(
        deleting("InitiateDrain").exists(node("True")).edited(|object| {
            object["metadata"]["labels"] = json!({});
            object["status"]["node"] = json!(null);
        }),
        "X10",
    );

mcm_x10_a_node_that_never_joined_is_not_drained:
    skipped(
        deleting("InitiateDrain").exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})),
        "X10",
    );

mcm_x11_an_unhealthy_node_is_drained_by_force:
    deleting("InitiateDrain").exists(unhealthy(LONG_AGO)).exists(pod())
        .acts(["delete Pod web"])
        .notes(&notes("X11 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x11_an_unhealthy_node_is_not_drained_where_the_binding_says_so:
    deleting("InitiateDrain").exists(unhealthy(LONG_AGO)).exists(pod())
        .config(json!({"unhealthyNode": "Skip"}))
        .notes(&notes("X11"))
        .status(next("the node cannot be drained", "InitiateVMDeletion"))
        .waits(RetryClass::Short);

mcm_x11_a_node_that_cannot_write_is_unhealthy_too:
    deleting("InitiateDrain").exists({
            let mut node = ending("True");
            node["status"]["conditions"][0] = json!({
                "type": "ReadonlyFilesystem", "status": "True", "lastTransitionTime": LONG_AGO,
            });
            node
        })
        .notes(&notes("X11 X13"))
        .status(drained("DelVolumeAttachments"))
        .waits(RetryClass::Short);

// f-12: no Ready is not ready.
mcm_x11_a_node_that_never_said_that_it_is_ready_is_unhealthy_too:
    deleting("InitiateDrain").exists(silent(LONG_AGO)).exists(pod())
        .acts(["delete Pod web"])
        .notes(&notes("X11 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x11_a_node_that_has_just_joined_may_yet_say_it:
    deleting("InitiateDrain").exists(silent(EARLIER))
        .notes(&notes("X13"))
        .status(drained("InitiateVMDeletion"))
        .waits(RetryClass::Short);

mcm_x11_five_minutes_are_not_too_long:
    deleting("InitiateDrain").exists(unhealthy(EARLIER))
        .notes(&notes("X13"))
        .status(drained("InitiateVMDeletion"))
        .waits(RetryClass::Short);

// f-13: a forced deletion forces the drain. It does not skip the drain, as the FAQ says.
mcm_x12_the_label_forces_the_drain:
    forced(draining()).exists(pod())
        .acts(["delete Pod web"])
        .notes(&notes("X12 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x12_a_label_that_says_no_forces_nothing:
    draining().edited(|object| object["metadata"]["labels"]["force-deletion"] = "False".into())
        .notes(&notes("X13"))
        .status(drained("InitiateVMDeletion"))
        .waits(RetryClass::Short);

// #547: the time counts from the deletion, not from the last change of phase.
mcm_x12_the_timeout_counts_from_the_deletion:
    draining().exists(pod())
        .edited(|object| {
            object["spec"]["drainTimeout"] = "30m".into();
            object["metadata"]["deletionTimestamp"] = LONG_AGO.into();
        })
        .acts(["delete Pod web"])
        .notes(&notes("X12 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x12_evictions_that_were_refused_too_often_force_the_drain:
    draining().exists(pod())
        .edited(|object| {
            object["spec"]["maxEvictRetries"] = 3.into();
            object["status"]["drain"] = json!({"refused": {"uid-web": 3}});
        })
        .acts(["delete Pod web"])
        .notes(&notes("X12 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x12_no_more_retries_than_fit_into_the_timeout:
    draining().exists(pod())
        .edited(|object| {
            object["spec"]["drainTimeout"] = "10m".into();
            object["status"]["drain"] = json!({"refused": {"uid-web": 30}});
        })
        .acts(["delete Pod web"])
        .notes(&notes("X12 X17"))
        .status(and(
            json!({"drain": {"forcedSince": NOW}}),
            condition("False", "ForcedDrain", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x13_a_node_without_pods_is_drained:
    draining()
        .notes(&notes("X13"))
        .status(drained("InitiateVMDeletion"))
        .waits(RetryClass::Short);

mcm_x13_after_a_forced_drain_volumes_come_next:
    forced(draining())
        .notes(&notes("X12 X13"))
        .status(drained("DelVolumeAttachments"))
        .waits(RetryClass::Short);

mcm_x14_a_forced_drain_that_takes_too_long_is_over:
    forced(draining()).exists(ending_pod(LONG_AGO))
        .edited(|object| object["status"]["drain"] = json!({"forcedSince": EARLIER}))
        .notes(&notes("X12 X14"))
        .status(and(
            and(
                json!({"drain": null}),
                condition("True", "ForcedDrainFailed", "1 pods are left"),
            ),
            next("the node is drained", "DelVolumeAttachments"),
        ))
        .waits(RetryClass::Short);

mcm_x14_a_pod_that_cannot_even_be_deleted_does_not_stop_it:
    forced(draining()).exists(pod()).fails("delete Pod", Code::Internal)
        .acts(["delete Pod web"])
        .notes(&notes("X12 X14"))
        .status(and(
            condition("True", "ForcedDrainFailed", "no"),
            next("the node is drained", "DelVolumeAttachments"),
        ))
        .waits(RetryClass::Short);

mcm_x14_nor_does_a_node_that_cannot_be_told:
    forced(deleting("InitiateDrain")).exists({
            let mut node = node("True");
            node["spec"]["unschedulable"] = true.into();
            node
        })
        .fails(r#"patch Node node-m {"status""#, Code::Internal)
        .acts([TELL])
        .notes(&notes("X12 X13"))
        .status(drained("DelVolumeAttachments"))
        .waits(RetryClass::Short);

mcm_x15_a_node_that_cannot_be_looked_at_is_tried_again:
    deleting("InitiateDrain").fails("Node", Code::Unavailable)
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(failed("no", Code::Unavailable))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x15_a_node_that_cannot_be_told_is_tried_again:
    deleting("InitiateDrain").exists(node("True")).fails("patch Node", Code::Unavailable)
        .acts([TELL])
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(and(json!({"drain": {}}), failed("no", Code::Unavailable)))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x15_a_conflict_on_the_node_is_tried_again_at_once:
    deleting("InitiateDrain").exists(node("True")).fails("patch Node", Code::Aborted)
        .acts([TELL])
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(and(json!({"drain": {}}), failed("no", Code::Aborted)))
        .fails_with(RetryClass::Conflict, Code::Aborted, "no");

mcm_x15_a_pod_that_does_not_end_fails_the_drain:
    draining().exists(ending_pod(EARLIER))
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(and(json!({"drain": {}}), failed("pod shop/web does not end", Code::DeadlineExceeded)))
        .fails_with(RetryClass::Short, Code::DeadlineExceeded, "pod shop/web does not end");

mcm_x15_an_eviction_that_fails_otherwise_fails_the_drain:
    draining().exists(pod()).fails("evict", Code::PermissionDenied)
        .acts(["evict web"])
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(and(json!({"drain": {}}), failed("no", Code::PermissionDenied)))
        .fails_with(RetryClass::Short, Code::PermissionDenied, "no");

mcm_x15_a_server_that_cannot_evict_just_now_is_no_budget_that_refuses:
    draining().exists(pod()).fails("evict", Code::Unavailable)
        .acts(["evict web"])
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(and(json!({"drain": {}}), failed("no", Code::Unavailable)))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x16_live_attachments_are_deleted:
    deleting("DelVolumeAttachments").exists(loaded()).exists(attachment())
        .acts(["delete VolumeAttachment a-1"])
        .notes(DETACH)
        .waits(RetryClass::Short);

mcm_x16_attachments_that_are_being_deleted_are_not_waited_for:
    detached(deleting("DelVolumeAttachments").exists(loaded()).exists({
        let mut attachment = attachment();
        attachment["metadata"]["deletionTimestamp"] = EARLIER.into();
        attachment
    }));

mcm_x16_a_node_without_volumes_goes_on:
    detached(deleting("DelVolumeAttachments").exists(ending("True")).exists(attachment()));

mcm_x16_a_node_that_is_gone_goes_on:
    detached(deleting("DelVolumeAttachments").exists(attachment()));

mcm_x24_attachments_that_cannot_be_listed_are_tried_again:
    deleting("DelVolumeAttachments").exists(loaded()).fails("list VolumeAttachment", Code::Unavailable)
        .notes("R02 R03 R06 R07 R08 D01 D04 D08 X24 R18")
        .event("DeletionFailed")
        .status(operation(json!({"description": "no", "state": "Failed", "errorCode": "unavailable"})))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x24_nor_can_the_volumes_of_a_node_that_cannot_be_looked_at:
    deleting("DelVolumeAttachments").fails("Node node-m", Code::Unavailable)
        .notes("R02 R03 R06 R07 R08 D01 D04 D08 X24 R18")
        .event("DeletionFailed")
        .status(operation(json!({"description": "no", "state": "Failed", "errorCode": "unavailable"})))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x17_pods_are_evicted_and_waited_for:
    draining().exists(pod())
        .acts(["evict web"])
        .notes(&notes("X17"))
        .status(and(json!({"drain": {}}), condition("False", "Evicting", "1 pods are left")))
        .waits(RetryClass::Short);

mcm_x17_a_budget_that_refuses_is_asked_again_after_its_period:
    draining().exists(pod()).fails("evict", Code::ResourceExhausted)
        .acts(["evict web"])
        .notes(&notes("X17"))
        .status(and(
            json!({"drain": {"refused": {"uid-web": 1}}}),
            condition("False", "EvictionRefused", "1 pods are left: no"),
        ))
        .next(Next::failed(RetryClass::Short, Failure {
            retry_after: Some(20_000), ..Failure::new(Code::Unavailable, "no")
        }));

mcm_x18_volumes_on_their_way_are_waited_for:
    draining().exists(attachment())
        .edited(|object| object["status"]["drain"] = json!({"moving": {
            "pod": "shop/db", "uid": "uid-db", "volumes": ["pv-1"], "stage": "Terminating", "since": EARLIER,
        }}))
        .notes(&notes("X18"))
        .status(and(
            json!({"drain": {"moving": {"stage": "Detaching", "since": NOW}}}),
            condition("False", "WaitingForVolumes", "volumes have yet to leave the node"),
        ))
        .waits(RetryClass::Short);

mcm_x19_the_ids_of_volumes_are_asked_for_before_they_leave:
    leaving().exists(volume()).answers("machine.volumes", json!({"volumeIDs": ["vol-1"]}))
        .notes(&notes("X19 X17"))
        .status(and(
            json!({"drain": {"moving": {"ids": ["vol-1"]}}}),
            condition("False", "Evicting", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x19_a_driver_that_cannot_tell_names_none:
    leaving().exists(volume()).fails("machine.volumes", Code::Unimplemented)
        .notes(&notes("X19 X17"))
        .status(and(
            json!({"drain": {"moving": {"ids": []}}}),
            condition("False", "Evicting", "1 pods are left"),
        ))
        .waits(RetryClass::Short);

mcm_x15_a_driver_that_fails_to_name_the_volumes_fails_the_drain:
    leaving().exists(volume()).fails("machine.volumes", Code::Unavailable)
        .notes(&notes("X15"))
        .event("DeletionFailed")
        .status(failed("no", Code::Unavailable))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_x18_a_volume_that_the_cloud_has_not_detached_is_waited_for:
    deleting("InitiateDrain").exists({
            let mut node = ending("True");
            node["status"]["volumesAttached"] = json!([{"name": "kubernetes.io/csi/d^vol-1", "devicePath": ""}]);
            node
        })
        .exists({
            let mut elsewhere = attachment();
            elsewhere["spec"]["nodeName"] = "node-n".into();
            elsewhere
        })
        .edited(|object| object["status"]["drain"] = json!({"moving": {
            "pod": "shop/db", "uid": "uid-db", "volumes": ["pv-1"], "ids": ["vol-1"], "stage": "Detaching",
            "since": EARLIER_BY_A_MINUTE,
        }}))
        .notes(&notes("X18"))
        .status(condition("False", "WaitingForVolumes", "volumes have yet to leave the node"))
        .waits(RetryClass::Short);

mcm_x32_the_node_of_another_vm_is_not_drained:
    skipped(
        deleting("InitiateDrain").exists(pod()).exists({
            let mut theirs = node("True");
            theirs["spec"]["providerID"] = "vm-2".into();
            theirs
        }),
        "X32",
    );

mcm_x32_a_node_that_the_grant_does_not_show_is_not_drained:
    skipped(deleting("InitiateDrain").fails("Node", Code::PermissionDenied), "X32");
}
