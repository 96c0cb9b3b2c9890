//! Health: MCM-H01 to MCM-H14.

use polity_sdk::{Code, Next, RetryClass};
use serde_json::json;

use super::*;

const FLOW: &str = "R02 R03 R06 R09 R11 R13";
/// The notes of a pass that finds the node healthy and everything in order.
const CLEAN: &str = "R15 S08 R16 R21";

fn conditions(all: &[(&str, &str)]) -> Value {
    all.iter()
        .map(|(kind, status)| json!({"type": kind, "status": status}))
        .collect()
}

/// A node with these conditions.
fn node_with(all: &[(&str, &str)]) -> Value {
    let mut node = node("True");
    node["status"]["conditions"] = conditions(all);
    node
}

fn unknown(why: &str) -> Value {
    and(
        json!({"currentStatus": phase("Unknown", true)}),
        operation(json!({"description": why, "type": "HealthCheck", "state": "Processing"})),
    )
}

/// A Running machine whose last operation was its creation.
fn running() -> Case {
    known("Running", "True").edited(|object| object["status"]["lastOperation"]["type"] = "Create".into())
}

/// A machine that has been Unknown for eleven minutes.
fn lost() -> Case {
    known("Unknown", "Unknown")
        .exists(node("Unknown"))
        .edited(|object| {
            object["status"]["currentStatus"]["lastUpdateTime"] = "2025-12-31T23:49:00Z".into();
        })
}

fn sibling(name: &str, phase: Option<&str>) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": name, "namespace": "shoot", "labels": {"name": "workers"}},
        "spec": {}, "status": {"currentStatus": {"phase": phase}},
    })
}

fn failed() -> Value {
    and(
        json!({"currentStatus": phase("Failed", false)}),
        operation(json!({"description": "the node was unhealthy for too long", "state": "Failed"})),
    )
}

fn given_up(case: Case) -> Case {
    case.notes(&format!("{FLOW} H08 R24x R22"))
        .event("MachineFailed")
        .status(failed())
        .waits(RetryClass::Short)
}

fn held_back(case: Case) -> Case {
    case.notes(&format!("{FLOW} H09 R24x R22")).fails_with(
        RetryClass::Short,
        Code::FailedPrecondition,
        "another machine of the deployment is being replaced",
    )
}

polity_sdk::cases! { $ each_health_case of mcm_machine::cases::health;

mcm_h01_a_node_that_cannot_be_looked_at_changes_nothing:
    running().fails("Node", Code::Unavailable)
        .notes(&format!("{FLOW} H01 R24x R22"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_h02_a_node_that_is_gone_makes_the_machine_unknown:
    running()
        .notes(&format!("{FLOW} H02 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(unknown_from_create("the node is gone"))
        .waits(RetryClass::Short);

mcm_h02_the_node_of_another_vm_counts_as_gone:
    running().exists({
            let mut other = node("True");
            other["spec"]["providerID"] = "vm-2".into();
            other
        })
        .notes(&format!("{FLOW} H02 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(unknown_from_create("the node is gone"))
        .waits(RetryClass::Short);

mcm_h02_a_node_that_the_grant_does_not_show_counts_as_gone:
    running().fails("Node", Code::PermissionDenied)
        .notes(&format!("{FLOW} H02 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(unknown_from_create("the node is gone"))
        .waits(RetryClass::Short);

mcm_h02_a_node_without_a_providers_id_counts_as_not_there:
    linked("Pending").exists({
            let mut bare = node("True");
            bare["spec"] = json!({});
            bare
        })
        .notes(&format!("{FLOW} H11 H13 R15 S01 R16"))
        .next(Next::After(60_000));

mcm_h03_conditions_are_copied_without_their_heartbeats:
    running().exists({
            let mut node = node_with(&[("Ready", "True"), ("DiskPressure", "False")]);
            node["status"]["conditions"][1]["reason"] = "Enough".into();
            node["status"]["conditions"][1]["lastHeartbeatTime"] = NOW.into();
            node
        })
        .notes(&format!("{FLOW} H03 H12 R24x R22"))
        .status(json!({"nodeConditions": [
            {"type": "DiskPressure", "status": "False", "reason": "Enough"}, {"type": "Ready", "status": "True"},
        ]}))
        .waits(RetryClass::Short);

mcm_h03_a_heartbeat_changes_nothing:
    running().exists({
            let mut node = node("True");
            node["status"]["conditions"][0]["lastHeartbeatTime"] = NOW.into();
            node
        })
        .notes(&format!("{FLOW} H13 {CLEAN}"))
        .next(Next::Settled(Some(600_000)));

mcm_h04_a_node_that_is_not_ready_makes_the_machine_unknown:
    running().exists(node("False"))
        .notes(&format!("{FLOW} H03 H04 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(and(
            json!({"nodeConditions": conditions(&[("Ready", "False")])}),
            unknown_from_create("the node's Ready is False"),
        ))
        .waits(RetryClass::Short);

mcm_h04_a_watched_condition_makes_the_machine_unknown:
    running().exists(node_with(&[("KernelDeadlock", "True"), ("Ready", "True")]))
        .notes(&format!("{FLOW} H03 H04 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(and(
            json!({"nodeConditions": conditions(&[("KernelDeadlock", "True"), ("Ready", "True")])}),
            unknown_from_create("the node's KernelDeadlock is True"),
        ))
        .waits(RetryClass::Short);

mcm_h04_which_conditions_are_watched_the_machine_says_first:
    running().exists(node_with(&[("KernelDeadlock", "True"), ("Ready", "True")]))
        .edited(|object| object["spec"]["nodeConditions"] = json!(["DiskPressure"]))
        .notes(&format!("{FLOW} H03 H12 R24x R22"))
        .status(json!({"nodeConditions": conditions(&[("KernelDeadlock", "True"), ("Ready", "True")])}))
        .waits(RetryClass::Short);

// f-12: literally, a node that says nothing of Ready would be healthy.
mcm_h04_a_node_that_does_not_say_whether_it_is_ready_is_not:
    running().exists(node_with(&[("DiskPressure", "False")]))
        .notes(&format!("{FLOW} H03 H04 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(and(
            json!({"nodeConditions": conditions(&[("DiskPressure", "False")])}),
            unknown_from_create("the node's Ready is missing"),
        ))
        .waits(RetryClass::Short);

mcm_h05_a_node_that_joined_makes_the_machine_running_and_ends_its_token:
    linked("Pending").exists(node("True")).answers("revoke", json!({}))
        .edited(|object| object["status"]["bootstrapToken"] = json!({
            "name": "token-1", "key": "token", "expires": NOW,
        }))
        .acts([REVOKE])
        .notes(&format!("{FLOW} H03 H05 H12 R24x R22"))
        .event("Running")
        .status(joined(json!({"bootstrapToken": null})))
        .waits(RetryClass::Short);

mcm_h05_a_token_that_cannot_be_ended_is_only_reported:
    linked("Pending").exists(node("True")).fails("revoke", Code::Unavailable)
        .edited(|object| object["status"]["bootstrapToken"] = json!({
            "name": "token-1", "key": "token", "expires": NOW,
        }))
        .acts([REVOKE])
        .notes(&format!("{FLOW} H03 H05 H12 R24x R22"))
        .event("TokenNotRevoked").event("Running")
        .status(joined(json!({"bootstrapToken": null})))
        .waits(RetryClass::Short);

mcm_h05_a_creation_that_failed_before_is_running_too:
    linked("CrashLoopBackOff").exists(node("True"))
        .notes(&format!("{FLOW} H03 H05 H12 R24x R22"))
        .event("Running")
        .status(joined(json!({})))
        .waits(RetryClass::Short);

mcm_h05_waits_for_the_critical_components_of_the_node:
    linked("Pending").exists({
            let mut node = node("True");
            let key = "node.gardener.cloud/critical-components-not-ready";
            node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}]);
            node
        })
        .edited(|object| object["status"]["nodeConditions"] = conditions(&[("Ready", "True")]))
        .notes(&format!("{FLOW} H11 H13 R15 S08 R16"))
        .next(Next::After(60_000));

mcm_h06_a_node_that_is_healthy_again_makes_the_machine_running:
    known("Unknown", "Unknown").exists(node("True"))
        .notes(&format!("{FLOW} H03 H06 H12 R24x R22"))
        .event("Running")
        .status(and(
            json!({"nodeConditions": conditions(&[("Ready", "True")]), "currentStatus": phase("Running", false)}),
            operation(json!({"description": "the node is healthy", "state": "Successful"})),
        ))
        .waits(RetryClass::Short);

mcm_h06_a_failed_machine_whose_node_recovers_before_it_is_deleted_is_running:
    known("Failed", "True").exists(node("True"))
        .notes(&format!("{FLOW} H06 H12 R24x R22"))
        .event("Running")
        .status(and(
            json!({"currentStatus": phase("Running", false)}),
            operation(json!({"description": "the node is healthy", "state": "Successful"})),
        ))
        .waits(RetryClass::Short);

mcm_h07_a_node_that_did_not_join_in_time_fails_the_machine:
    linked("Pending").exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
        .edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .notes(&format!("{FLOW} H07 H12 R24x R22"))
        .event("MachineFailed")
        .status(and(
            json!({"currentStatus": phase("Failed", false)}),
            operation(json!({"description": "the node did not join in time", "state": "Failed"})),
        ))
        .waits(RetryClass::Short);

mcm_h07_counts_from_the_moment_it_was_pending_where_the_binding_says_so:
    linked("Pending").exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
        .config(json!({"creationTimeoutSince": "Pending"}))
        .edited(|object| object["metadata"]["creationTimestamp"] = LONG_AGO.into())
        .notes(&format!("{FLOW} H11 H13 R15 S01 R16"))
        .next(Next::After(60_000));

mcm_h08_a_machine_that_is_unknown_for_too_long_is_failed:
    given_up(lost().exists(sibling("a", Some("Running"))).exists(sibling("b", Some("Unknown"))));

mcm_h08_a_machine_without_a_deployment_has_no_others:
    given_up(lost()
        .edited(|object| object["metadata"]["labels"] = json!({"node": "node-m"}))
        .fails("lock", Code::Internal));

mcm_h08_more_at_once_where_the_binding_says_so:
    given_up(lost().exists(sibling("a", Some("Failed"))).config(json!({"maxReplacements": 2})));

mcm_h08_a_machine_of_another_deployment_does_not_count:
    given_up(lost().exists({
        let mut other = sibling("a", Some("Failed"));
        other["metadata"]["labels"]["name"] = "others".into();
        other
    }));

mcm_h09_while_another_one_is_failed_nobody_else_is:
    held_back(lost().exists(sibling("a", Some("Failed"))));

mcm_h09_a_replacement_that_is_on_its_way_counts:
    held_back(lost().exists(sibling("a", None)));

mcm_h09_a_terminating_one_counts_twice:
    held_back(lost().exists(sibling("a", Some("Terminating"))).config(json!({"maxReplacements": 2})));

mcm_h10_while_another_one_is_judged_nobody_else_is:
    lost().answers("lock deployment/workers", json!("busy"))
        .notes(&format!("{FLOW} H10 R24x R22"))
        .fails_with(RetryClass::Short, Code::Aborted, "another machine of the deployment is being judged");

mcm_h10_siblings_that_cannot_be_listed_fail_nobody:
    lost().fails("list Machine", Code::Unavailable)
        .notes(&format!("{FLOW} R24x R22"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_h11_an_unknown_machine_is_looked_at_in_a_minute:
    known("Unknown", "Unknown").exists(node("Unknown"))
        .notes(&format!("{FLOW} H11 H13 R15 S08 R16"))
        .next(Next::After(60_000));

mcm_h11_the_timeout_of_the_machine_comes_first:
    lost().edited(|object| object["spec"]["healthTimeout"] = "1h".into())
        .notes(&format!("{FLOW} H11 H13 R15 S08 R16"))
        .next(Next::After(60_000));

mcm_h12_is_one_write_and_the_template_waits:
    running().exists(node("False"))
        .edited(|object| object["spec"]["nodeTemplate"] = json!({"metadata": {"labels": {"a": "b"}}}))
        .notes(&format!("{FLOW} H03 H04 H12 R24x R22"))
        .event("NodeUnhealthy")
        .status(and(
            json!({"nodeConditions": conditions(&[("Ready", "False")])}),
            unknown_from_create("the node's Ready is False"),
        ))
        .waits(RetryClass::Short);

mcm_h14_a_machine_without_a_health_timeout_stays_unknown:
    lost().edited(|object| object["spec"]["disableHealthTimeout"] = true.into())
        .notes(&format!("{FLOW} H14 H13 {CLEAN}"))
        .waits(RetryClass::Long);
}

/// The status of an Unknown machine whose last operation is its creation.
fn unknown_from_create(why: &str) -> Value {
    let mut status = unknown(why);
    status["lastOperation"]
        .as_object_mut()
        .map(|fields| fields.remove("state"));
    status
}

fn joined(more: Value) -> Value {
    let joined = and(
        json!({"nodeConditions": conditions(&[("Ready", "True")]), "currentStatus": phase("Running", false)}),
        operation(json!({"description": "the node is healthy", "state": "Successful"})),
    );
    and(joined, more)
}
