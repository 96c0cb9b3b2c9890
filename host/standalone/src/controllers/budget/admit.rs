//! Validates a budget beyond its schema (kube-apiserver, `ValidatePodDisruptionBudget`).

use serde_json::{Value, json};

use super::status::Amount;
use crate::{
    http::refusal::Cause,
    metadata::{label_problems, value_problem},
};

/// Numbers of pods are 32 bits wide.
const MOST_PODS: i64 = i32::MAX as i64;

/// All errors in a budget's spec.
pub(crate) fn admit(budget: &Value) -> Result<(), Vec<Cause>> {
    let spec = &budget["spec"];
    let mut causes = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        causes.push(Cause::invalid("spec", spec, why));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        causes.extend(amount_problem(&spec[field]).map(|why| Cause::invalid(&path, &spec[field], why)));
    }
    selector(&spec["selector"], &mut causes);
    if causes.is_empty() { Ok(()) } else { Err(causes) }
}

fn amount_problem(amount: &Value) -> Option<&'static str> {
    match Amount::read(amount) {
        None if amount.is_null() => None,
        None => Some(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%', regex \
             used for validation is '[0-9]+%')",
        ),
        Some(Amount::Percent(percent)) => (percent > 100).then_some("must not be greater than 100%"),
        Some(Amount::Pods(pods)) if pods < 0 => Some("must be greater than or equal to 0"),
        Some(Amount::Pods(pods)) => (pods > MOST_PODS).then_some("must be less than or equal to 2147483647"),
    }
}

fn selector(selector: &Value, causes: &mut Vec<Cause>) {
    let labels = selector["matchLabels"].as_object();
    causes.extend(label_problems("spec.selector.matchLabels", labels));
    let expressions = selector["matchExpressions"].as_array();
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        requirement(
            &format!("spec.selector.matchExpressions[{index}]"),
            expression,
            causes,
        );
    }
}

fn requirement(path: &str, requirement: &Value, causes: &mut Vec<Cause>) {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if values.is_empty() => causes.push(Cause::required(
            &format!("{path}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => causes.push(Cause::forbidden(
            &format!("{path}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => causes.push(Cause::invalid(
            &format!("{path}.operator"),
            &requirement["operator"],
            "not a valid selector operator",
        )),
    }
    let key = requirement["key"].as_str().unwrap_or_default();
    let key = [(key.to_owned(), json!(""))].into_iter().collect();
    causes.extend(label_problems(&format!("{path}.key"), Some(&key)));
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}.values[{index}]");
        causes.extend(value_problem(value).map(|why| Cause::invalid(&path, value, why)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(spec: Value) -> Vec<String> {
        let causes = admit(&json!({ "spec": spec })).err().unwrap_or_default();
        causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn a_budget_is_refused_with_every_field_that_is_wrong() {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        let at = "spec.selector.matchExpressions[0]";
        for (spec, expected) in [
            (json!({}), vec![]),
            (json!({ "minAvailable": "100%", "selector": {} }), vec![]),
            (
                json!({ "minAvailable": 1, "maxUnavailable": 1 }),
                vec!["spec".to_owned()],
            ),
            (
                json!({ "minAvailable": -1 }),
                vec!["spec.minAvailable".to_owned()],
            ),
            (
                json!({ "minAvailable": "7" }),
                vec!["spec.minAvailable".to_owned()],
            ),
            (
                json!({ "maxUnavailable": "101%" }),
                vec!["spec.maxUnavailable".to_owned()],
            ),
            (
                json!({ "maxUnavailable": 2_147_483_648_i64 }),
                vec!["spec.maxUnavailable".to_owned()],
            ),
            (
                json!({ "selector": { "matchLabels": { "a b": "c", "d": "e f" } } }),
                vec!["spec.selector.matchLabels".to_owned(); 2],
            ),
            (
                json!({ "selector": requirement("a", "In", &[]) }),
                vec![format!("{at}.values")],
            ),
            (
                json!({ "selector": requirement("a", "Exists", &["b"]) }),
                vec![format!("{at}.values")],
            ),
            (
                json!({ "selector": requirement("", "Is", &["-"]) }),
                vec![
                    format!("{at}.operator"),
                    format!("{at}.key"),
                    format!("{at}.values[0]"),
                ],
            ),
        ] {
            assert_eq!(fields(spec.clone()), expected, "{spec}");
        }
    }
}
