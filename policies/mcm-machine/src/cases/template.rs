//! The node template: MCM-S01 to MCM-S08.

use polity_sdk::{Code, Next, RetryClass};
use serde_json::json;

use super::*;

const FLOW: &str = "R02 R03 R06 R09 R11 R13 H13 R15";

/// A Running machine with this template.
fn templated(template: Value) -> Case {
    known("Running", "True").edited(|object| object["spec"]["nodeTemplate"] = template)
}

/// A node with these labels and annotations, and with this last applied template.
fn node_with(labels: Value, applied: &str) -> Value {
    let mut node = node("True");
    node["metadata"]["labels"] = labels;
    node["metadata"]["annotations"][APPLIED] = applied.into();
    node
}

const AB: &str = r#"{"metadata":{"labels":{"a":"b"}},"spec":{}}"#;
const EMPTY: &str = r#"{"metadata":{},"spec":{}}"#;

fn patch(patch: Value) -> String {
    format!("patch Node node-m {patch}")
}

fn changed(case: Case, edges: &str, by: &Value) -> Case {
    case.acts([&patch(by.clone())])
        .notes(&format!("{FLOW} {edges} S07 R17 R22"))
        .waits(RetryClass::Short)
}

/// Questions for a Node with its labels fail, all others are answered.
fn without_labels(request: &Request) -> Option<Result<Value, Failure>> {
    let with_labels = match request {
        Request::Ask(ask) => match &ask.question {
            Question::Object(query) => query.projection.iter().any(|path| path == "metadata.labels"),
            _ => false,
        },
        Request::Act(_) => false,
    };
    if with_labels {
        Some(Err(Failure::new(Code::Unavailable, "no")))
    } else {
        usual(request)
    }
}

polity_sdk::cases! { $ each_template_case of mcm_machine::cases::template;

mcm_s01_a_machine_without_a_node_has_nothing_to_sync:
    linked("Pending").exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}))
        .notes("R02 R03 R06 R09 R11 R13 H11 H13 R15 S01 R16")
        .next(Next::After(60_000));

mcm_s02_a_node_that_cannot_be_looked_at_any_more:
    templated(json!({})).exists(node("True")).usually(without_labels)
        .notes(&format!("{FLOW} S02 R17 R22"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_s03_what_was_applied_last_cannot_be_read:
    templated(json!({})).exists(node_with(json!({}), "{"))
        .notes(&format!("{FLOW} S03 R17 R22"))
        .fails_with(RetryClass::Short, Code::InvalidArgument, &format!(
            "the annotation {APPLIED} of the node does not decode: EOF while parsing an object at line 1 column 1"
        ));

mcm_s04_a_label_that_is_no_longer_wanted_is_taken_away_even_if_somebody_changed_it:
    changed(
        templated(json!({})).exists(node_with(json!({"a": "theirs", "c": "d"}), AB)),
        "S04",
        &json!({"metadata": {"annotations": {APPLIED: EMPTY}, "labels": {"a": null}}}),
    );

mcm_s05_a_label_that_differs_is_set:
    changed(
        templated(json!({"metadata": {"labels": {"a": "b"}}})).exists(node_with(json!({"a": "x", "c": "d"}), EMPTY)),
        "S05",
        &json!({"metadata": {"annotations": {APPLIED: AB}, "labels": {"a": "b"}}}),
    );

mcm_s05_an_annotation_that_is_missing_is_set:
    changed(
        templated(json!({"metadata": {"annotations": {"x": "y"}}})).exists(node_with(json!({}), EMPTY)),
        "S05",
        &json!({"metadata": {"annotations": {
            APPLIED: r#"{"metadata":{"annotations":{"x":"y"}},"spec":{}}"#, "x": "y",
        }}}),
    );

mcm_s06_a_taint_is_recognised_by_key_and_effect:
    changed(
        templated(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule", "value": "new"}]}})).exists({
            let mut node = node_with(json!({}), EMPTY);
            node["spec"]["taints"] = json!([
                {"key": "k", "effect": "NoExecute", "value": "theirs"},
                {"key": "k", "effect": "NoSchedule", "value": "old"},
            ]);
            node
        }),
        "S06",
        &json!({
            "metadata": {"annotations": {
                APPLIED: r#"{"metadata":{},"spec":{"taints":[{"key":"k","value":"new","effect":"NoSchedule"}]}}"#,
            }},
            "spec": {"taints": [
                {"key": "k", "effect": "NoExecute", "value": "theirs"},
                {"key": "k", "effect": "NoSchedule", "value": "new"},
            ]},
        }),
    );

mcm_s07_a_node_without_annotations_gets_the_template_as_applied:
    changed(
        templated(json!({})).exists({
            let mut node = node("True");
            node["metadata"]["annotations"] = json!({});
            node
        }),
        "",
        &json!({"metadata": {"annotations": {APPLIED: EMPTY}}}),
    );

mcm_s09_a_conflict_is_tried_again_at_once:
    templated(json!({"metadata": {"labels": {"a": "b"}}})).exists(node_with(json!({}), EMPTY))
        .fails("patch Node", Code::Aborted)
        .acts([&patch(json!({"metadata": {"annotations": {APPLIED: AB}, "labels": {"a": "b"}}}))])
        .notes(&format!("{FLOW} S09 R17"))
        .fails_with(RetryClass::Conflict, Code::Aborted, "no");

mcm_s09_another_failure_soon:
    templated(json!({"metadata": {"labels": {"a": "b"}}})).exists(node_with(json!({}), EMPTY))
        .fails("patch Node", Code::Unavailable)
        .acts([&patch(json!({"metadata": {"annotations": {APPLIED: AB}, "labels": {"a": "b"}}}))])
        .notes(&format!("{FLOW} S09 R17 R22"))
        .fails_with(RetryClass::Short, Code::Unavailable, "no");

mcm_s08_what_others_put_on_the_node_is_never_touched:
    templated(json!({"metadata": {"labels": {"a": "b"}}}))
        .exists({
            let mut node = node_with(json!({"a": "b", "theirs": "x"}), AB);
            node["spec"]["taints"] = json!([{"key": "theirs", "effect": "NoExecute"}]);
            node
        })
        .notes(&format!("{FLOW} S08 R16 R21"))
        .next(Next::Settled(Some(600_000)));
}
