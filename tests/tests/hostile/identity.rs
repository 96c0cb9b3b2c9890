//! Errors of an identity policy: no object is let through, and the lifecycle policy is not called.

use polity_core::fault::FaultKind;
use serde_json::{Value, json};

use crate::hostile::row::{
    BAD_OUTPUT, Before, Expect, REFUSED, Row, UNGRANTED, WRONG_OR_UNGRANTED, asking, looks_at, object, row,
};
use crate::hostile::stage::OFFENDERS;

/// A denial with a conclusion.
fn denies(conclusion: Value) -> Value {
    json!({"Concluded": {"verdict": "Denied", "conclusion": conclusion}})
}

fn patch(text: &str) -> Value {
    denies(json!({"patch": text}))
}

fn asks(question: Value) -> Value {
    json!([{"Pending": [asking(question)]}, denies(json!({}))])
}

fn verdict(verdict: Value) -> Value {
    json!({"Concluded": {"verdict": verdict, "conclusion": {}}})
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = faults();
    rows.extend(plans());
    for (path, text) in [
        ("metadata", r#"{"metadata":5}"#),
        ("finalizers", r#"{"metadata":{"finalizers":5}}"#),
        ("annotations", r#"{"metadata":{"annotations":[]}}"#),
        ("status", r#"{"status":5}"#),
        ("conditions", r#"{"status":{"conditions":5}}"#),
        (
            "conditions that are texts",
            r#"{"status":{"conditions":["Ready"]}}"#,
        ),
        ("pending entries", r#"{"status":{"pending":[]}}"#),
        ("everything", "5"),
        ("what is the lifecycle's", r#"{"status":{"phase":"x"}}"#),
        ("what nobody declares", r#"{"spec":{"x":2}}"#),
    ] {
        for (before, word) in [
            (Before::New, "new"),
            (Before::Quarantined, "quarantined"),
            (Before::Deleting, "deleting"),
        ] {
            rows.push(row(format!("judges {path} {word}"), patch(text), Expect::NotTaken).with(before));
        }
    }
    for (name, text) in [
        (
            "judges a condition of the host",
            r#"{"status":{"conditions":[{"type":"polity.dev/Forged","status":"True"}]}}"#,
        ),
        (
            "judges the finalizers of others",
            r#"{"metadata":{"finalizers":[]}}"#,
        ),
        (
            "judges an owner",
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}"#,
        ),
    ] {
        rows.push(row(name, patch(text), Expect::Ends));
    }
    rows
}

fn faults() -> Vec<Row> {
    let does = |how: &str, kind: &'static [FaultKind]| {
        row(
            format!("judges by a {how}"),
            verdict(json!({"$do": how})),
            Expect::Faulted(kind),
        )
    };
    let web = object("v1", "Pod", Some(OFFENDERS), "web");
    let released = json!({"Concluded": {"verdict": "Released", "conclusion": {"patch": "{\"metadata\":{\"finalizers\":5}}"}}});
    vec![
        does("panic", &[FaultKind::Trap]),
        does("loop", &[FaultKind::OutOfFuel]),
        does("recurse", &[FaultKind::Trap]),
        does("allocate", &[FaultKind::OutOfMemory]),
        row(
            "judges by nothing",
            json!({"Pending": []}),
            Expect::Faulted(&[FaultKind::Stalled]),
        ),
        row(
            "grants a session of its own",
            verdict(json!({"Granted": "mine"})),
            BAD_OUTPUT,
        ),
        row("grants no session", verdict(json!({"Granted": ""})), BAD_OUTPUT),
        row(
            "releases what is not deleted",
            verdict(json!("Released")),
            BAD_OUTPUT,
        ),
        row("releases with a broken patch", released, Expect::NotTaken).with(Before::Deleting),
        row(
            "asks without end who may",
            json!([{"$times": [{"Pending": [asking(json!({"Credential":
            "{\"chain\":[{\"n\":{n}}]}"}))]}, 80]}]),
            Expect::Faulted(&[FaultKind::TooLong]),
        ),
        row(
            "judges by acts",
            json!([{"Pending": [{"Act": {"Create": {"object": "{}"}}}]}, denies(json!({}))]),
            Expect::Ends,
        ),
        row("looks where it may not", asks(looks_at(&web)), UNGRANTED),
        row("denies", denies(json!({})), Expect::Denied),
        row(
            "denies after all time",
            denies(json!({"next": {"After": u64::MAX}})),
            Expect::Denied,
        ),
        row(
            "denies with notes by the thousand",
            denies(json!({"notes": [{"$times": ["n", 1_000]}]})),
            BAD_OUTPUT,
        ),
    ]
}

/// Credential plans that name what is not theirs.
fn plans() -> Vec<Row> {
    let plan = |name: &str, plan: Value, expect: Expect| row(name, asks(json!({"Credential": plan})), expect);
    vec![
        plan("a plan that is no JSON", json!("{"), WRONG_OR_UNGRANTED),
        plan("a plan that is a number", json!("5"), REFUSED),
        plan(
            "a plan with a chain that is a number",
            json!(r#"{"chain":5}"#),
            REFUSED,
        ),
        plan(
            "a plan with links that are numbers",
            json!(r#"{"chain":[5,null,[]]}"#),
            REFUSED,
        ),
        plan(
            "a plan of a Secret",
            json!(r#"{"chain":[{"secret":{"namespace":"offenders","name":"canary"}}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a Secret escaped",
            json!(r#"{"ch\u0061in":[{"s\u0065cret":{"namespace":"offenders","name":"canary"}}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a Secret twice",
            json!(r#"{"chain":[],"chain":[{"secret":{"namespace":"offenders","name":"canary"}}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a Secret elsewhere",
            json!(r#"{"chain":[{"secret":{"namespace":"kube-system","name":"x"}}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a Secret that is a number",
            json!(r#"{"chain":[{"secret":5}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a token elsewhere",
            json!(r#"{"chain":[{"webIdentity":{"namespace":"neighbours","serviceAccount":"x"}}]}"#),
            WRONG_OR_UNGRANTED,
        ),
        plan(
            "a plan of a role by the thousand",
            json!({"$text": ["{\"chain\":[", ["{\"role\":\"r\"},", 1_000], "{\"role\":\"r\"}]}"]}),
            REFUSED,
        ),
        plan(
            "a plan that is too deep",
            json!({"$text": ["{\"chain\":", ["[", 10_000], ["]", 10_000], "}"]}),
            WRONG_OR_UNGRANTED,
        ),
    ]
}
