//! A component does not have `polity-kube-rules`, so the SDK has label selectors, conditions and times of its own. Both
//! must follow Kubernetes in the same way: one table for each, played through both.

use std::collections::BTreeMap;

use polity_kube_rules::{conditions, labels, time};
use polity_sdk::{ConditionStatus, Conditions, LabelSelector, Time};
use serde_json::{Value, json};

/// A selector of one requirement.
fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    let mut expression = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        expression["values"] = json!(values);
    }
    json!({"matchExpressions": [expression]})
}

#[test]
fn a_selector_selects_the_same_as_for_the_host() {
    let all: [BTreeMap<String, String>; 4] = [
        BTreeMap::new(),
        BTreeMap::from([("app".into(), "web".into())]),
        BTreeMap::from([
            ("app".into(), "".into()),
            ("example.com/tier".into(), "a_B.c".into()),
        ]),
        BTreeMap::from([("app".into(), "db".into()), ("tier".into(), "back".into())]),
    ];
    let both = json!({"matchLabels": {"app": "db", "tier": "back"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]});
    let mut results = Vec::new();
    for selector in [
        json!({}),
        json!({"matchLabels": {}, "matchExpressions": []}),
        json!({"matchLabels": {"app": "web"}}),
        json!({"matchLabels": {"app": ""}}),
        json!({"matchLabels": {"app": "web", "tier": "back"}}),
        expression("app", "In", &["web", "db"]),
        expression("app", "In", &[""]),
        expression("app", "NotIn", &["web"]),
        expression("app", "NotIn", &["", "db"]),
        expression("example.com/tier", "Exists", &[]),
        expression("tier", "DoesNotExist", &[]),
        both,
    ] {
        let sdk = LabelSelector::read(&selector).expect("a selector of the SDK");
        let host = labels::LabelSelector::of_object(&selector);
        let host = host.expect("a selector of the host").expect("not null");
        for labels in &all {
            let selects = sdk.matches(labels);
            assert_eq!(
                selects,
                host.matches_labels(&json!(labels)),
                "{selector} of {labels:?}"
            );
            results.push(selects);
        }
    }
    assert!(results.contains(&true) && results.contains(&false));
}

#[test]
fn what_is_no_selector_for_the_host_is_none_for_the_sdk() {
    for selector in [
        json!("app=web"),
        json!({"matchLabels": ["app"]}),
        json!({"matchLabels": {"app": 7}}),
        json!({"matchExpressions": {}}),
        json!({"matchExpressions": [{"key": "app"}]}),
        expression("app", "Is", &["web"]),
        expression("app", "Gt", &["7"]),
        expression("app", "In", &[]),
        expression("app", "NotIn", &[]),
        expression("app", "Exists", &["web"]),
        expression("app", "DoesNotExist", &["web"]),
        expression("", "Exists", &[]),
    ] {
        assert!(labels::LabelSelector::of_object(&selector).is_err(), "{selector}");
        assert!(LabelSelector::read(&selector).is_err(), "{selector}");
    }
}

/// A condition as the SDK writes it.
fn condition(kind: &str, status: &str, reason: &str, message: &str, at: &str) -> Value {
    let mut condition = json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": at});
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    condition
}

#[test]
fn conditions_are_set_as_the_host_sets_them() {
    let other = condition("Other", "True", "Fine", "", "2026-01-01T00:00:00Z");
    let mut host = json!({"conditions": [other]});
    let mut sdk: Conditions = serde_json::from_value(host["conditions"].clone()).expect("conditions");
    for (minute, kind, status, reason, message) in [
        (1, "Ready", ConditionStatus::False, "Starting", "one"),
        (2, "Ready", ConditionStatus::False, "Waiting", "two"),
        (3, "Ready", ConditionStatus::Unknown, "Waiting", "two"),
        (4, "Ready", ConditionStatus::True, "Done", ""),
        (5, "Ready", ConditionStatus::True, "Done", ""),
        (6, "Other", ConditionStatus::True, "Better", "three"),
        (7, "Other", ConditionStatus::False, "Worse", ""),
    ] {
        let at = format!("2026-01-01T00:0{minute}:00Z");
        sdk.set(at.parse().expect("a time"), kind, status, reason, message);
        let status = format!("{status:?}");
        conditions::set(&mut host, condition(kind, &status, reason, message, &at));
        assert_eq!(json!(sdk), host["conditions"], "minute {minute}");
        assert_eq!(
            sdk.is_true(kind),
            conditions::is(&json!({"status": host}), kind, "True")
        );
    }
}

#[test]
fn a_time_is_the_same_for_the_host() {
    for text in [
        "1970-01-01T00:00:00Z",
        "2000-02-29T23:59:59Z",
        "2026-01-01T01:30:00.5+01:30",
        "2026-01-01t00:00:00.123456z",
        "2026-01-01 00:00:00-23:59",
        "2016-12-31T23:59:60Z",
        "9999-12-30T00:00:00.999Z",
    ] {
        let sdk = text.parse::<Time>().expect("a time of the SDK").unix_ms();
        assert_eq!(Some(sdk), time::unix_ms_of(text), "{text}");
    }
    for text in [
        "",
        "noon",
        "2026",
        "1969-12-31T23:59:59Z",
        "2026-13-01T00:00:00Z",
        "2026-00-10T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-01T24:00:01Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00+00:60",
        "2026-01-01T00:00:00Z ",
    ] {
        assert_eq!(time::unix_ms_of(text), None, "{text}");
        assert!(text.parse::<Time>().is_err(), "{text}");
    }
}

#[test]
fn every_time_until_the_year_9999_is_written_as_the_host_writes_it() {
    // A prime number of milliseconds, a little over 36 days: every month and every time of a day occurs.
    const STEP: u64 = 3_162_277_669;
    let last = time::unix_ms_of("9999-12-30T00:00:00Z").expect("a time");
    for ms in (0..last).step_by(STEP as usize) {
        let sdk = Time::from_unix_ms(ms);
        assert_eq!(sdk.whole_seconds().to_string(), time::rfc3339(ms));
        assert_eq!(time::unix_ms_of(&sdk.to_string()), Some(ms));
        assert_eq!(sdk.to_string().parse(), Ok(sdk));
    }
}
