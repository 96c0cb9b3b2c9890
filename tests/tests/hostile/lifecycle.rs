//! Errors of a lifecycle policy: patches, acts, asks, conclusions.

use polity_core::contract::Code;
use polity_core::fault::FaultKind;
use serde_json::{Value, json};

use crate::hostile::row::{
    BAD_OUTPUT, Before, Expect, REFUSED, Row, UNGRANTED, WRONG, WRONG_OR_UNGRANTED, act, ask, asking,
    concludes, looks_at, object, patch, patches, requests, row,
};
use crate::hostile::stage::{FITS, HUGE, LINES, OFFENDERS, PUPPETS};

/// Patches that put something else where an object or a list stands.
pub(crate) fn shapes() -> Vec<Row> {
    let mut rows = Vec::new();
    let wrong = |path: &str, value: &str| {
        let parts: Vec<&str> = path.split('.').collect();
        let open: String = parts.iter().map(|part| format!(r#"{{"{part}":"#)).collect();
        format!("{open}{value}{}", "}".repeat(parts.len()))
    };
    // The host itself reads and writes these.
    for (path, values) in [
        ("metadata", &["5", "[]", "true"][..]),
        ("metadata.finalizers", &["5", "\"x\"", "{}", "[5]", "[{}]"]),
        ("status", &["5", "\"x\"", "[]", "[[1]]"]),
        (
            "status.conditions",
            &["5", "\"x\"", "{}", "[5]", "[{\"type\":5}]", "[[]]", "[null]"],
        ),
        ("status.pending", &["5", "\"x\"", "{}", "[5]"]),
    ] {
        for value in values {
            let expect = Expect::NotTaken;
            rows.push(row(
                format!("{path} becomes {value}"),
                patch(wrong(path, value)),
                expect,
            ));
        }
    }
    for (path, value) in [
        ("metadata.labels", "5"),
        ("metadata.labels", "[\"a\"]"),
        ("metadata.annotations", "\"x\""),
        ("metadata.ownerReferences", "5"),
        ("spec", "[]"),
        ("status.phase", "{}"),
    ] {
        rows.push(row(
            format!("{path} becomes {value}"),
            patch(wrong(path, value)),
            Expect::NotTaken,
        ));
    }
    for path in [
        "metadata",
        "metadata.finalizers",
        "status",
        "status.conditions",
        "status.pending",
        "spec",
    ] {
        rows.push(row(
            format!("{path} becomes nothing"),
            patch(wrong(path, "null")),
            Expect::Ends,
        ));
    }
    for (before, word) in [
        (Before::Pending, "in doubt"),
        (Before::Quarantined, "quarantined"),
        (Before::Deleting, "deleting"),
    ] {
        for (path, value) in [
            ("metadata", "5"),
            ("metadata.finalizers", "\"x\""),
            ("status", "[]"),
            ("status.conditions", "5"),
            ("status.pending", "true"),
        ] {
            let name = format!("{path} becomes {value} {word}");
            rows.push(row(name, patch(wrong(path, value)), Expect::NotTaken).with(before));
        }
        for path in ["status", "metadata.finalizers", "metadata"] {
            rows.push(
                row(
                    format!("{path} goes {word}"),
                    patch(wrong(path, "null")),
                    Expect::Ends,
                )
                .with(before),
            );
        }
    }
    for (name, text) in [
        ("a patch that is a number", json!("5")),
        ("a patch that is a list", json!("[]")),
        ("a patch that is a text", json!("\"status\"")),
        ("a patch that is null", json!("null")),
        ("a patch that is no JSON", json!("{\"status\": ")),
        ("a patch that is empty", json!("")),
        ("a patch with more after it", json!("{} {}")),
        (
            "a patch that is too deep",
            json!({"$text": [["{\"spec\":", 10_000], "1", ["}", 10_000]]}),
        ),
        (
            "a patch of lists that is too deep",
            json!({"$text": ["{\"spec\":", ["[", 10_000], ["]", 10_000], "}"]}),
        ),
        (
            "a patch that is too large",
            json!({"$text": ["{\"spec\":{\"x\":\"", ["y", 2_000_000], "\"}}"]}),
        ),
        ("a number that is too large", json!("{\"spec\":{\"x\":1e999}}")),
    ] {
        rows.push(row(name, json!({"Concluded": {"patch": text}}), BAD_OUTPUT));
    }
    let deep = json!({"$text": ["{\"spec\":", ["{\"a\":", 100], "1", ["}", 100], "}"]});
    rows.push(row(
        "a patch that is almost too deep",
        json!({"Concluded": {"patch": deep}}),
        Expect::Ends,
    ));
    let twice = patch(r#"{"status":{"phase":"a"},"status":{"phase":"b"},"spec":{"x":1,"x":2}}"#);
    rows.push(row("a patch with keys twice", twice, Expect::Ends));
    let hidden = patch(r#"{"status":{"phase":"a"},"status":{"pending":[{"operation":"forged"}]}}"#);
    rows.push(row("a pending entry behind a key twice", hidden, BAD_OUTPUT));
    rows
}

/// Patches of the primary that write what is not the policy's.
pub(crate) fn writes() -> Vec<Row> {
    let forged = r#"[{"operation":"forged","intent":"m","key":"k","since":1,"service":"vm@1","stamp":1,"place":["sim"],"principal":"host"}]"#;
    let mut rows = Vec::new();
    for (name, text, expect) in [
        (
            "pending entries forged",
            format!(r#"{{"status":{{"pending":{forged}}}}}"#),
            BAD_OUTPUT,
        ),
        (
            "pending entries emptied",
            r#"{"status":{"pending":[]}}"#.to_owned(),
            BAD_OUTPUT,
        ),
        (
            "pending entries escaped",
            format!(r#"{{"status":{{"pen\u0064ing":{forged}}}}}"#),
            BAD_OUTPUT,
        ),
        (
            "pending entries as an object",
            r#"{"status":{"pending":{"0":{"operation":"forged"}}}}"#.to_owned(),
            BAD_OUTPUT,
        ),
        ("another kind", r#"{"kind":"Ward"}"#.to_owned(), BAD_OUTPUT),
        (
            "another apiVersion",
            r#"{"apiVersion":"v1"}"#.to_owned(),
            BAD_OUTPUT,
        ),
        (
            "what is not declared",
            r#"{"data":{"a":"b"}}"#.to_owned(),
            BAD_OUTPUT,
        ),
        ("an empty key", r#"{"":1}"#.to_owned(), BAD_OUTPUT),
        (
            "a key with a dot",
            r#"{"status.phase":1,"metadata.finalizers":[]}"#.to_owned(),
            BAD_OUTPUT,
        ),
    ] {
        rows.push(row(name, patch(text), expect));
    }
    // These end somehow; that nothing of it stands is what is looked at.
    for (name, text) in [
        (
            "a condition of the host",
            r#"{"status":{"conditions":[{"type":"polity.dev/Forged","status":"True"}]}}"#,
        ),
        (
            "a quarantine of its own",
            r#"{"status":{"conditions":[{"type":"polity.dev/Forged","status":"True"},
            {"type":"polity.dev/Quarantined","status":"True"}]}}"#,
        ),
        (
            "finalizers without those of others",
            r#"{"metadata":{"finalizers":["mine"]}}"#,
        ),
        ("no finalizers", r#"{"metadata":{"finalizers":[]}}"#),
        (
            "finalizers with an escape",
            r#"{"metadata":{"fin\u0061lizers":null}}"#,
        ),
        (
            "an owner",
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}"#,
        ),
        ("another name", r#"{"metadata":{"name":"other"}}"#),
        ("another namespace", r#"{"metadata":{"namespace":"neighbours"}}"#),
        ("another uid", r#"{"metadata":{"uid":"other"}}"#),
        ("another version", r#"{"metadata":{"resourceVersion":"1"}}"#),
        (
            "a version that is no number",
            r#"{"metadata":{"resourceVersion":{}}}"#,
        ),
        (
            "another generation",
            r#"{"metadata":{"generation":18446744073709551615}}"#,
        ),
        (
            "a time of deletion",
            r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}"#,
        ),
        (
            "managed fields",
            r#"{"metadata":{"managedFields":[{"manager":"me"}]}}"#,
        ),
        (
            "a creation in the future",
            r#"{"metadata":{"creationTimestamp":"2999-01-01T00:00:00Z"}}"#,
        ),
        (
            "conditions twice",
            r#"{"status":{"conditions":[{"type":"A","status":"True"},{"type":"A","status":"False"}]}}"#,
        ),
    ] {
        rows.push(row(name, patch(text), Expect::Ends));
    }
    let nonce = r#"{"metadata":{"annotations":{"request.polity.dev/look":"{n}"}}}"#;
    rows.push(row("requests of its own", patch(nonce), Expect::Paced(24)));
    let many = json!({"$text": ["{\"metadata\":{\"finalizers\":[", ["\"a.example/a\",", 5_000], "\"b.example/b\"]}}"]});
    rows.push(row(
        "finalizers by the thousand",
        json!({"Concluded": {"patch": many}}),
        Expect::Ends,
    ));
    let more = json!({"$text": ["{\"status\":{\"conditions\":[", ["{},", 50_000], "{}]}}"]});
    rows.push(row(
        "more values than a patch may name",
        json!({"Concluded": {"patch": more}}),
        Expect::Ends,
    ));
    let long = json!({"$text": ["{\"metadata\":{\"labels\":{\"a\":\"", ["x", 100_000], "\"}}}"]});
    rows.push(row(
        "a label that is too long",
        json!({"Concluded": {"patch": long}}),
        Expect::Ends,
    ));
    for (before, word) in [(Before::Deleting, "deleting"), (Before::Pending, "in doubt")] {
        for (name, text) in [
            ("finalizers taken", r#"{"metadata":{"finalizers":null}}"#),
            ("status taken", r#"{"status":null}"#),
            (
                "deletion taken back",
                r#"{"metadata":{"deletionTimestamp":null}}"#,
            ),
        ] {
            rows.push(row(format!("{name} {word}"), patch(text), Expect::Ends).with(before));
        }
    }
    rows
}

fn mine(kind: &str, api_version: &str, name: &str) -> Value {
    object(api_version, kind, Some(OFFENDERS), name)
}

fn victim() -> Value {
    mine("Puppet", PUPPETS, "victim")
}

/// A change of a cloud.
fn cloud(operation: &str, arguments: impl Into<Value>, intent: Option<&str>) -> Value {
    json!({"Cloud": {"operation": operation, "arguments": arguments.into(), "intent": intent}})
}

/// Arguments of a clone that are right, with more of them.
fn clone(more: &str) -> String {
    format!(
        r#"{{"name":"m","instanceUuid":"u","template":"t","cpus":2,"coresPerSocket":2,"memoryMiB":2048,"networks":[]{more}}}"#
    )
}

/// A patch, deletion or eviction of something nobody looked at.
fn change(act: &str, object: &Value, uid: &str, more: Value) -> Value {
    let mut change = json!({"object": object, "precondition": {"uid": uid, "resource_version": null}});
    if let (Value::Object(fields), Value::Object(more)) = (&mut change, more) {
        fields.extend(more);
    }
    json!({act: change})
}

/// Acts on other objects and on the cloud.
pub(crate) fn acts() -> Vec<Row> {
    let mut rows = host_owned();
    rows.extend(subresources());
    rows.extend(closed_kinds());
    rows.extend(creates());
    rows.extend(secrets());
    rows.extend(calls());
    rows.extend(minted());
    rows
}

/// What is the host's on another object that the policy may patch.
fn host_owned() -> Vec<Row> {
    let forged = r#"{"status":{"pending":[{"operation":"forged","intent":"m","key":"k","since":1,"service":"vm@1","stamp":1,"place":["sim"],"principal":"host"}]}}"#;
    let condition = r#"{"status":{"conditions":[{"type":"polity.dev/Forged","status":"True"}]}}"#;
    let owner =
        r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}"#;
    let on_victim = |name: &str, part: Option<&str>, text: &str| {
        row(name, patches(&victim(), part, text), WRONG_OR_UNGRANTED)
    };
    vec![
        on_victim("pending entries of another", Some("status"), forged),
        on_victim(
            "pending entries of another taken",
            Some("status"),
            r#"{"status":{"pending":null}}"#,
        ),
        on_victim("status of another taken", Some("status"), r#"{"status":null}"#),
        on_victim("conditions of the host on another", Some("status"), condition),
        on_victim(
            "conditions of another as a number",
            Some("status"),
            r#"{"status":{"conditions":5}}"#,
        ),
        on_victim("finalizers of another", None, r#"{"metadata":{"finalizers":[]}}"#),
        on_victim(
            "finalizers of another taken",
            None,
            r#"{"metadata":{"finalizers":null}}"#,
        ),
        on_victim(
            "finalizers of another escaped",
            None,
            r#"{"metadata":{"finaliz\u0065rs":null}}"#,
        ),
        on_victim("an owner of another", None, owner),
        on_victim("a patch of another that is a list", None, "[]"),
        on_victim("a patch of another that is no JSON", None, "{"),
        row(
            "metadata of another as a number",
            patches(&victim(), None, r#"{"metadata":5}"#),
            Expect::Ends,
        ),
        row(
            "a patch of another that is too deep",
            act(change(
                "Patch",
                &victim(),
                "u",
                json!({"subresource": null,
                "patch": {"$text": [["{\"spec\":", 10_000], "1", ["}", 10_000]]}}),
            )),
            REFUSED,
        ),
    ]
}

/// Parts of an object that do more than they look like.
fn subresources() -> Vec<Row> {
    let runs = r#"{"spec":{"ephemeralContainers":[{"name":"e","image":"evil"}]}}"#;
    let web = mine("Pod", "v1", "web");
    [
        "ephemeralcontainers",
        "binding",
        "eviction",
        "token",
        "exec",
        "log",
        "proxy",
        "finalize",
        "approval",
        "attach",
        "",
        "status/../ephemeralcontainers",
        "status%2f..",
        "resize",
    ]
    .into_iter()
    .map(|part| {
        row(
            format!("subresource {part}"),
            patches(&web, Some(part), runs),
            WRONG_OR_UNGRANTED,
        )
    })
    .collect()
}

fn closed_kinds() -> Vec<Row> {
    let mut rows = Vec::new();
    for (api_version, kind) in [
        ("v1", "Secret"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("polity.dev/v1alpha1", "PolicyBinding"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
        ),
        ("authentication.k8s.io/v1", "TokenReview"),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"),
        ("rbac.authorization/v1", "Role"),
        ("V1", "Secret"),
    ] {
        let of = format!("{kind} of {api_version}");
        let text = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": OFFENDERS}});
        let there = mine(kind, api_version, "canary");
        rows.push(row(
            format!("creates a {of}"),
            act(json!({"Create": {"object": text.to_string()}})),
            UNGRANTED,
        ));
        let patched = act(change(
            "Patch",
            &there,
            "u",
            json!({"subresource": null, "patch": "{}"}),
        ));
        rows.push(row(format!("patches a {of}"), patched, UNGRANTED));
    }
    let deleted = act(change(
        "Delete",
        &mine("Secret", "v1", "canary"),
        "u",
        json!({"grace_period_seconds": null,
        "propagation_policy": null}),
    ));
    rows.push(row("deletes a Secret", deleted, UNGRANTED));
    rows
}

fn creates() -> Vec<Row> {
    let made =
        |name: &str, text: &str, expect: Expect| row(name, act(json!({"Create": {"object": text}})), expect);
    let map = |metadata: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#);
    let deep = json!({"$text": [r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":"#,
        ["[", 10_000], ["]", 10_000], "}"]});
    vec![
        made("a create without a name", &map(r#"{"namespace":"offenders"}"#), WRONG_OR_UNGRANTED),
        made("a create with a name to be made", &map(r#"{"namespace":"offenders","generateName":"x-"}"#), WRONG_OR_UNGRANTED),
        made("a create with an empty name", &map(r#"{"namespace":"offenders","name":""}"#), WRONG_OR_UNGRANTED),
        made("a create with a number for a name", &map(r#"{"namespace":"offenders","name":5}"#), WRONG_OR_UNGRANTED),
        made("a create with a path for a name", &map(r#"{"namespace":"offenders","name":"../x"}"#), WRONG_OR_UNGRANTED),
        made("a create with metadata that is a number", &map("5"), WRONG_OR_UNGRANTED),
        made("a create without metadata", r#"{"apiVersion":"v1","kind":"ConfigMap"}"#, WRONG_OR_UNGRANTED),
        made("a create in another namespace", &map(r#"{"namespace":"neighbours","name":"x"}"#), UNGRANTED),
        made("a create in no namespace", &map(r#"{"name":"x"}"#), REFUSED),
        made("a create in a namespace that is twice there", &map(r#"{"namespace":"offenders","name":"x","namespace":"neighbours"}"#), UNGRANTED),
        made("a create of a Pod", r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"offenders"},"spec":{"containers":[]}}"#, UNGRANTED),
        made("a create of a kind twice there", r#"{"apiVersion":"v1","kind":"ConfigMap","kind":"Secret","metadata":{"name":"p","namespace":"offenders"}}"#, UNGRANTED),
        made("a create that is a list", "[]", WRONG_OR_UNGRANTED),
        made("a create that is null", "null", WRONG_OR_UNGRANTED),
        made("a create that is no JSON", "{", WRONG),
        made("a create of a List", r#"{"apiVersion":"v1","kind":"List","items":[]}"#, WRONG_OR_UNGRANTED),
        row("a create that is too deep", act(json!({"Create": {"object": deep}})), WRONG),
        made("a create of a Puppet with a forged entry", &json!({"apiVersion": PUPPETS, "kind": "Puppet",
            "metadata": {"name": "made", "namespace": OFFENDERS, "annotations": {"answer": "{\"Concluded\": {}}"}},
            "status": {"pending": [{"operation": "forged", "intent": "m", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"}]}}).to_string(), Expect::Ends),
    ]
}

/// Secrets that no grant names, spelled in every way.
fn secrets() -> Vec<Row> {
    let sealed = r#"{"$secret":{"name":"canary","key":"k"}}"#;
    let unsealed = |name: &str, arguments: String| {
        row(
            name,
            act(cloud("vm.clone", arguments, Some("m"))),
            WRONG_OR_UNGRANTED,
        )
    };
    let of_lines = |name: &str, secret: &str, expect: Expect| {
        let user_data = format!(r#","userData":{{"$secret":{{"name":"{secret}","key":"k"}}}}"#);
        row(name, act(cloud("vm.clone", clone(&user_data), Some("m"))), expect)
    };
    vec![
        unsealed("a Secret", clone(&format!(r#","userData":{sealed}"#))),
        of_lines("a Secret of many lines", LINES, WRONG),
        of_lines("a Secret of many lines, once more", LINES, WRONG),
        of_lines("a Secret of many lines, three times", LINES, WRONG),
        of_lines("a Secret of many lines, four times", LINES, WRONG),
        of_lines("a Secret that is as large as may be", FITS, Expect::Ends),
        unsealed(
            "a Secret escaped",
            clone(r#","userData":{"\u0024secret":{"name":"canary","key":"k"}}"#),
        ),
        unsealed(
            "a Secret escaped in the middle",
            clone(r#","userData":{"$s\u0065cret":{"name":"canary","key":"k"}}"#),
        ),
        unsealed(
            "a Secret with its name escaped",
            clone(r#","userData":{"\u0024secret":{"n\u0061me":"can\u0061ry","key":"k"}}"#),
        ),
        unsealed(
            "a Secret with its name twice",
            clone(r#","userData":{"$secret":{"name":"minted:x","key":"k","name":"canary"}}"#),
        ),
        unsealed(
            "a Secret behind a minted one",
            clone(
                r#","userData":{"$secret":{"name":"minted:x","key":"k"},"$secret":{"name":"canary","key":"k"}}"#,
            ),
        ),
        unsealed(
            "a Secret in an argument that is not sealed",
            clone(&format!(r#","folder":{sealed}"#)),
        ),
        unsealed("a Secret in a list", clone(&format!(r#","networks":[{sealed}]"#))),
        unsealed(
            "a Secret in place of a name",
            clone(&format!(r#","name":{sealed}"#)),
        ),
        unsealed(
            "a Secret deep inside",
            clone(&format!(r#","userData":{{"a":{{"b":[{sealed}]}}}}"#)),
        ),
        unsealed(
            "a Secret escaped deep inside",
            clone(r#","userData":{"a":[{"\u0024\u0073ecret":{"name":"canary","key":"k"}}]}"#),
        ),
        unsealed(
            "a Secret of another namespace",
            clone(r#","userData":{"$secret":{"name":"neighbours/canary","key":"k"}}"#),
        ),
        unsealed(
            "a Secret with more fields",
            clone(r#","userData":{"$secret":{"name":"canary","key":"k"},"also":1}"#),
        ),
        row(
            "a minted token that nobody minted",
            act(cloud(
                "vm.clone",
                clone(r#","userData":{"$secret":{"name":"minted:x","key":"k"}}"#),
                Some("m"),
            )),
            Expect::Refused(&[Code::FailedPrecondition]),
        ),
        row(
            "a Secret in a question",
            ask(json!({"Cloud": {"operation": "vm.get",
            "arguments": format!(r#"{{"id":{sealed}}}"#)}})),
            REFUSED,
        ),
        row(
            "a Secret escaped in a question",
            ask(json!({"Cloud": {"operation": "vm.get",
            "arguments": r#"{"id":{"\u0024secret":{"name":"canary","key":"k"}}}"#}})),
            REFUSED,
        ),
        row(
            "a look at a Secret",
            ask(json!({"Secret": mine("Secret", "v1", "canary")})),
            UNGRANTED,
        ),
        row(
            "a look at the content of a Secret",
            ask(looks_at(&mine("Secret", "v1", "canary"))),
            UNGRANTED,
        ),
        row(
            "a token revoked by a Secret",
            act(json!({"Revoke": r#"{"\u0024secret":{"name":"canary","key":"k"}}"#})),
            WRONG_OR_UNGRANTED,
        ),
        row(
            "user data of a machine",
            act(cloud(
                "machine.create",
                r#"{"name":"m","userData":{"\u0024secret":{"name":"canary","key":"k"}}}"#,
                Some("m"),
            )),
            WRONG_OR_UNGRANTED,
        ),
    ]
}

/// Calls of the cloud that are none.
fn calls() -> Vec<Row> {
    let calls = |name: &str, operation: &str, arguments: Value, intent: Option<&str>, expect: Expect| {
        row(name, act(cloud(operation, arguments, intent)), expect)
    };
    let right = || json!(clone(""));
    // A name that no other row takes.
    let again = |more: &str| clone(more).replace(r#""name":"m""#, r#""name":"again""#);
    let twice = json!({"Act": cloud("vm.clone", clone(""), Some("m"))});
    let other = object("v1", "ConfigMap", Some(OFFENDERS), "plan");
    let gone = |act: &str, more: Value, uid: &str| self::act(change(act, &other, uid, more));
    let delete = |policy: Option<&str>| json!({"grace_period_seconds": null, "propagation_policy": policy});
    vec![
        calls(
            "an operation that nobody grants",
            "pool.scale",
            json!("{}"),
            None,
            UNGRANTED,
        ),
        calls(
            "an operation that there is not",
            "vm.explode",
            json!("{}"),
            None,
            REFUSED,
        ),
        calls("an operation without a name", "", json!("{}"), None, UNGRANTED),
        calls(
            "an operation that is a pattern",
            "vm.*",
            json!("{}"),
            None,
            REFUSED,
        ),
        calls(
            "a question as an act",
            "vm.get",
            json!(r#"{"id":"vm-1"}"#),
            None,
            WRONG,
        ),
        calls("a create without intent", "vm.clone", right(), None, WRONG),
        calls(
            "a create with another intent",
            "vm.clone",
            right(),
            Some("other"),
            WRONG,
        ),
        calls(
            "a create with an empty intent",
            "vm.clone",
            right(),
            Some(""),
            WRONG,
        ),
        calls(
            "a change with an intent",
            "vm.power-on",
            json!(r#"{"id":"vm-1"}"#),
            Some("m"),
            WRONG,
        ),
        calls(
            "a change of nobody's VM",
            "vm.destroy",
            json!(r#"{"id":"vm-1"}"#),
            None,
            REFUSED,
        ),
        calls(
            "arguments that are no JSON",
            "vm.clone",
            json!("{"),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments that are a list",
            "vm.clone",
            json!("[]"),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments that are null",
            "vm.clone",
            json!("null"),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments with a name twice",
            "vm.clone",
            json!(clone(r#","name":"other""#)),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments with a number past all",
            "vm.clone",
            json!(clone(r#","diskGiB":1e999"#)),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments with a large number",
            "vm.clone",
            json!(clone(r#","diskGiB":18446744073709551616"#)),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments with a negative number",
            "vm.clone",
            json!(clone(r#","diskGiB":-1"#)),
            Some("m"),
            WRONG,
        ),
        calls(
            "arguments that are too deep",
            "vm.clone",
            json!({"$text": [["[", 10_000], ["]", 10_000]]}),
            Some("m"),
            WRONG,
        ),
        row(
            "the same create twice in a step",
            requests(json!([twice, twice])),
            Expect::Refused(&[Code::FailedPrecondition]),
        ),
        row(
            "the same create in two steps with other arguments",
            json!([
                {"Pending": [{"Act": cloud("vm.clone", again(""), Some("again"))}]},
                {"Pending": [{"Act": cloud("vm.clone", again(r#","folder":"other""#), Some("again"))}]},
                {"Concluded": {}},
            ]),
            Expect::Refused(&[Code::FailedPrecondition]),
        ),
        row(
            "a thousand creates in a step",
            requests(json!([{"$times": [twice, 1_000]}])),
            Expect::Refused(&[Code::FailedPrecondition]),
        ),
        row(
            "a thousand acts in a step",
            requests(json!([{"$times": [{"Act": {"Create": {"object": "{}"}}}, 1_000]}])),
            REFUSED,
        ),
        row(
            "a thousand acts that are granted",
            requests(json!([{"$times": [{"Act": cloud("vm.power-on", r#"{"id":"vm-{n}"}"#, None)}, 300]}])),
            REFUSED,
        ),
        row(
            "more acts than entries",
            requests(json!([{"$times": [{"Act": {"Create": {"object": "{}"}}}, 1_025]}])),
            Expect::Faulted(&[FaultKind::TooLong]),
        ),
        row(
            "a delete of another uid",
            gone("Delete", delete(None), "other"),
            Expect::Refused(&[Code::Aborted]),
        ),
        row(
            "a delete without a uid",
            gone("Delete", delete(None), ""),
            REFUSED,
        ),
        row(
            "a delete with a policy that is none",
            gone("Delete", delete(Some("Nonsense")), "other"),
            REFUSED,
        ),
        row(
            "an eviction of what is no Pod",
            gone("Evict", json!({"grace_period_seconds": null}), "u"),
            UNGRANTED,
        ),
        row(
            "a patch of another uid",
            gone(
                "Patch",
                json!({"subresource": null, "patch": "{\"data\":{\"a\":\"x\"}}"}),
                "other",
            ),
            Expect::Refused(&[Code::Aborted]),
        ),
        row(
            "a patch outside of its namespace",
            act(change(
                "Patch",
                &object("v1", "ConfigMap", Some("neighbours"), "x"),
                "u",
                json!({"subresource": null, "patch": "{}"}),
            )),
            UNGRANTED,
        ),
        row(
            "a patch of a name that is a path",
            act(change(
                "Patch",
                &mine("ConfigMap", "v1", "../secrets/canary"),
                "u",
                json!({"subresource": null, "patch": "{}"}),
            )),
            WRONG,
        ),
        row(
            "a patch of a namespace that is a path",
            act(change(
                "Patch",
                &object("v1", "ConfigMap", Some(".."), "x"),
                "u",
                json!({"subresource": null, "patch": "{}"}),
            )),
            WRONG_OR_UNGRANTED,
        ),
        row(
            "an act that its conclusion does not use",
            json!([{"Pending": [twice]}, {"Concluded": {"used": []}}]),
            Expect::Faulted(&[FaultKind::JournalMismatch]),
        ),
    ]
}

fn minted() -> Vec<Row> {
    let mint = |kind: &str, ttl: Value| json!({"Mint": {"kind": kind, "ttl": ttl}});
    vec![
        row(
            "a token for centuries",
            act(mint("password", json!(3_153_600_000_000_u64))),
            WRONG_OR_UNGRANTED,
        ),
        row(
            "a token until numbers end",
            act(mint("password", json!(u64::MAX))),
            WRONG_OR_UNGRANTED,
        ),
        row(
            "a token until half of numbers end",
            act(mint("bootstrap-token", json!(u64::MAX >> 1))),
            WRONG_OR_UNGRANTED,
        ),
        row(
            "a token of a kind that there is not",
            act(mint("golden-ticket", json!(1_000))),
            UNGRANTED,
        ),
        row("a token of no kind", act(mint("", json!(1_000))), UNGRANTED),
        row(
            "tokens by the hundred",
            requests(json!([{"$times": [{"Act": mint("password", json!(60_000))}, 500]}])),
            WRONG_OR_UNGRANTED,
        ),
    ]
}

/// Questions without end, sense or bounds.
pub(crate) fn asks() -> Vec<Row> {
    let vm = |name: &str| json!({"Cloud": {"operation": "vm.find", "arguments": format!(r#"{{"name":"{name}"}}"#)}});
    let list = |label: &str, field: Value, limit: u32| {
        ask(
            json!({"Objects": {"api_version": "v1", "kind": "ConfigMap", "namespace": OFFENDERS,
            "label_selector": label, "field_selector": field, "projection": [], "limit": limit, "latest": false}}),
        )
    };
    let projected = |paths: Value| {
        ask(
            json!({"Object": {"object": mine("ConfigMap", "v1", "plan"), "projection": paths, "latest": false}}),
        )
    };
    let round = |round: u32| json!({"Ask": {"round": round, "question": {"Lock": "p-a"}}});
    vec![
        row(
            "more asks than entries",
            requests(json!([{"$times": [asking(vm("{n}")), 1_025]}])),
            Expect::Faulted(&[FaultKind::TooLong]),
        ),
        row(
            "the same ask a thousand times",
            requests(json!([{"$times": [asking(json!({"Lock": "p-a"})), 1_000]}])),
            Expect::Published,
        ),
        row(
            "asks without end",
            json!([{"$times": [{"Pending": [asking(json!({"Lock": "p-{n}"}))]}, 80]}]),
            Expect::Faulted(&[FaultKind::TooLong]),
        ),
        row(
            "the same ask without end",
            json!({"Pending": [asking(json!({"Lock": "p-b"}))]}),
            Expect::Faulted(&[FaultKind::Stalled]),
        ),
        row(
            "nothing",
            json!({"Pending": []}),
            Expect::Faulted(&[FaultKind::Stalled]),
        ),
        row(
            "the last round",
            requests(json!([round(u32::MAX), round(0), round(u32::MAX - 1)])),
            Expect::Published,
        ),
        row(
            "a list without end",
            list("", Value::Null, u32::MAX),
            Expect::Answered,
        ),
        row("a list of one", list("", Value::Null, 1), Expect::Ends),
        row("a selector of brackets", list("((((((((", Value::Null, 0), WRONG),
        row(
            "a selector of commas",
            list(",,,,,,,,", Value::Null, 0),
            Expect::Ends,
        ),
        row(
            "a selector without a value",
            list("a in ()", Value::Null, 0),
            Expect::Ends,
        ),
        row(
            "a selector that is long",
            ask(json!({"Objects": {"api_version": "v1", "kind": "ConfigMap",
            "namespace": OFFENDERS, "label_selector": {"$text": [["a!=b,", 50_000], "c"]}, "field_selector": null,
            "projection": [], "limit": 0, "latest": true}})),
            Expect::Ends,
        ),
        row(
            "a field that nobody selects by",
            list("", json!("data.a=b"), 0),
            Expect::Ends,
        ),
        row(
            "a field selector of equals signs",
            list("", json!("====="), 0),
            Expect::Ends,
        ),
        row(
            "a projection of dots",
            projected(json!([".", "..", "...", ""])),
            Expect::Answered,
        ),
        row(
            "a projection by the thousand",
            projected(json!([{"$times": ["metadata.labels.{n}", 5_000]}])),
            Expect::Ends,
        ),
        row(
            "a projection that is deep",
            projected(json!([{"$text": [["a.", 20_000], "b"]}])),
            WRONG,
        ),
        row(
            "a look at another namespace",
            ask(looks_at(&object("v1", "ConfigMap", Some("neighbours"), "x"))),
            UNGRANTED,
        ),
        row(
            "a look at no namespace",
            ask(looks_at(&object("v1", "ConfigMap", None, "x"))),
            REFUSED,
        ),
        row(
            "a look at all namespaces",
            ask(
                json!({"Objects": {"api_version": "v1", "kind": "Pod", "namespace": null,
            "label_selector": null, "field_selector": null, "projection": [], "limit": 0, "latest": true}}),
            ),
            Expect::Ends,
        ),
        row(
            "a look at a kind that there is not",
            ask(looks_at(&mine("Nothing", "v1", "x"))),
            UNGRANTED,
        ),
        row(
            "a look at a name that is a path",
            ask(looks_at(&mine("ConfigMap", "v1", "plan/status"))),
            WRONG,
        ),
        row(
            "a look at a name with a query",
            ask(looks_at(&mine("ConfigMap", "v1", "plan?watch=1"))),
            WRONG,
        ),
        row(
            "a look at a name that is long",
            ask(
                json!({"Object": {"object": {"api_version": "v1", "kind": "ConfigMap",
            "namespace": OFFENDERS, "name": {"$text": [["x", 100_000]]}}, "projection": [], "latest": true}}),
            ),
            WRONG,
        ),
        row("a lock that nobody grants", ask(json!({"Lock": "q"})), UNGRANTED),
        row(
            "a lock with a long name",
            ask(json!({"Lock": {"$text": ["p-", ["x", 200_000]]}})),
            Expect::Ends,
        ),
        row(
            "locks by the thousand",
            requests(json!([{"$times": [asking(json!({"Lock": "p-{n}"})), 1_000]}])),
            Expect::Published,
        ),
        row("credentials", ask(json!({"Credential": "{}"})), UNGRANTED),
        row(
            "a change as a question",
            ask(json!({"Cloud": {"operation": "vm.destroy", "arguments": "{\"id\":\"vm-1\"}"}})),
            WRONG,
        ),
        row(
            "a question that is no JSON",
            ask(json!({"Cloud": {"operation": "vm.find", "arguments": "{"}})),
            WRONG,
        ),
        row(
            "a question that is too deep",
            ask(
                json!({"Cloud": {"operation": "vm.find", "arguments": {"$text": [["[", 10_000], ["]", 10_000]]}}}),
            ),
            WRONG,
        ),
        row(
            "questions to the cloud by the thousand",
            requests(json!([{"$times": [asking(vm("{n}")), 1_000]}])),
            Expect::Ends,
        ),
    ]
}

/// As much as the rules let one pass take, and more.
pub(crate) fn greed() -> Vec<Row> {
    let lists = |latest: bool| {
        json!({"Objects": {"api_version": "v1", "kind": "ConfigMap", "namespace": OFFENDERS, "label_selector": "a!=x{n}",
            "field_selector": null, "projection": [], "limit": 0, "latest": latest}})
    };
    let objects = |latest: bool| json!({"Object": {"object": mine("ConfigMap", "v1", "map-{n}"), "projection": [], "latest": latest}});
    // Each of them would be a watch of its own.
    let pods = json!({"Objects": {"api_version": "v1", "kind": "Pod", "namespace": OFFENDERS, "label_selector": null,
        "field_selector": "spec.nodeName=node-{n}", "projection": [], "limit": 0, "latest": false}});
    let times = |question: Value, count: u64| requests(json!([{"$times": [asking(question), count]}]));
    let many = |question: Value| times(question, 900);
    let some = |question: Value| times(question, 300);
    // To find the part, all of the object is read.
    let parts = |latest: bool| json!({"Object": {"object": mine("Pod", "v1", HUGE), "projection": ["status.x{n}"], "latest": latest}});
    let by_field = json!({"Objects": {"api_version": "v1", "kind": "Pod", "namespace": OFFENDERS, "label_selector": null,
        "field_selector": "status.x{n}!=y", "projection": ["metadata"], "limit": 0, "latest": false}});
    let too_many = Expect::Refused(&[Code::ResourceExhausted]);
    let asks = |name: &str, question: Value| row(name, many(question), too_many.clone());
    let computes = |name: &str, rounds: u64, expect: Expect| {
        let says = json!({"patch": {"$burn": rounds}, "next": {"After": 10_000}});
        row(name, concludes(says), expect)
    };
    vec![
        asks("nine hundred lists in one step", lists(false)),
        asks("nine hundred lists that read through", lists(true)),
        asks("nine hundred objects in one step", objects(false)),
        asks("nine hundred objects that read through", objects(true)),
        asks("the Pods of nine hundred nodes", pods),
        row(
            "three hundred parts of a large object",
            some(parts(false)),
            too_many.clone(),
        ),
        row(
            "three hundred parts of a large object that read through",
            some(parts(true)),
            too_many.clone(),
        ),
        asks(
            "nine hundred lists that select by a field of a large object",
            by_field,
        ),
        row("a journal full of huge answers", huge_answers(), too_many.clone()),
        row("ten steps a pass", ten_steps(), Expect::Paced(20 + 62)),
        // The second one shows that the first one is more than half of the limit.
        computes("fuel under the limit", 8_500_000, Expect::Paced(7)),
        computes(
            "fuel over the limit",
            16_000_000,
            Expect::Faulted(&[FaultKind::OutOfFuel]),
        ),
    ]
}

/// Forty questions whose answers hold half a MiB each: a journal takes sixteen of them.
fn huge_answers() -> Value {
    let read = json!({"Object": {"object": mine("Pod", "v1", HUGE), "projection": ["spec", "status.x{n}"], "latest": true}});
    requests(json!([{"$times": [asking(read), 40]}]))
}

/// Nine questions one after another, then a conclusion that wants the next pass at once.
fn ten_steps() -> Value {
    let step = json!({"Pending": [asking(json!({"Lock": "p-ten-{n}"}))]});
    json!([{"$times": [step, 9]}, {"Concluded": {"next": {"After": 0}}}])
}

/// Conclusions without bounds.
pub(crate) fn conclusions() -> Vec<Row> {
    let event =
        |reason: Value, message: Value| json!({"kind": "Warning", "reason": reason, "message": message});
    let said = |name: &str, reason: Value, message: Value| {
        row(
            name,
            concludes(json!({"events": [event(reason, message)]})),
            Expect::Published,
        )
    };
    let next = |name: &str, next: Value, expect: Expect| row(name, concludes(json!({"next": next})), expect);
    let retries = |after: Value| {
        json!({"Retry": {"class": "Short", "failure": {"code": "Unavailable", "message": "m", "effect": "None",
            "retry_after": after}}})
    };
    let does = |name: &str, how: &str, kind: &'static [FaultKind]| {
        row(
            name,
            json!({"Concluded": {"patch": {"$do": how}}}),
            Expect::Faulted(kind),
        )
    };
    vec![
        does("a panic", "panic", &[FaultKind::Trap]),
        does("a loop", "loop", &[FaultKind::OutOfFuel]),
        does("a recursion", "recurse", &[FaultKind::Trap]),
        does("an allocation", "allocate", &[FaultKind::OutOfMemory]),
        row(
            "notes by the thousand",
            concludes(json!({"notes": [{"$times": ["n{n}", 1_000]}]})),
            BAD_OUTPUT,
        ),
        row(
            "a note that is too large",
            concludes(json!({"notes": [{"$text": [["x", 2_000_000]]}]})),
            BAD_OUTPUT,
        ),
        row(
            "a note that is long",
            concludes(json!({"notes": [{"$text": [["x", 100_000]]}]})),
            Expect::Ends,
        ),
        row(
            "a note of controls",
            concludes(json!({"notes": ["\u{1b}[2J\u{202e}\u{0}\n"]})),
            Expect::Published,
        ),
        row(
            "events by the thousand",
            concludes(json!({"events": [{"$times": [event(json!("R{n}"), json!("m{n}")), 1_000]}]})),
            Expect::Published,
        ),
        said(
            "a reason that is long",
            json!({"$text": [["Reason", 10_000]]}),
            json!("m"),
        ),
        said("a reason of controls", json!("\u{1b}[2J\u{202e}\n"), json!("m")),
        said("a reason that is empty", json!(""), json!("m")),
        said("a reason of spaces", json!("not one word"), json!("m")),
        said(
            "a message that is long",
            json!("Reason"),
            json!({"$text": [["message ", 50_000]]}),
        ),
        said(
            "a message of controls",
            json!("Reason"),
            json!("\u{1b}]0;title\u{7}\u{202e}\u{0}"),
        ),
        said(
            "a message of wide letters",
            json!("Reason"),
            json!({"$text": [["\u{1f41b}", 20_000]]}),
        ),
        next("after all time", json!({"After": u64::MAX}), Expect::Published),
        next(
            "settled until after all time",
            json!({"Settled": u64::MAX}),
            Expect::Published,
        ),
        next(
            "settled for half of all time",
            json!({"Settled": u64::MAX >> 1}),
            Expect::Published,
        ),
        next(
            "a retry after all time",
            retries(json!(u64::MAX)),
            Expect::Published,
        ),
        next(
            "a retry after half of all time",
            retries(json!(u64::MAX >> 1)),
            Expect::Published,
        ),
        // A burst of 20, and one each second.
        next("at once", json!({"After": 0}), Expect::Paced(20 + 62)),
        next(
            "settled for nothing",
            json!({"Settled": 0}),
            Expect::Paced(20 + 62),
        ),
        next("a retry at once", retries(json!(0)), Expect::Paced(20 + 62)),
        next(
            "a conflict that is none",
            json!({"Retry": {"class": "Conflict", "failure": null}}),
            Expect::Paced(20 + 62),
        ),
        row(
            "uses what is not there",
            concludes(json!({"used": [0, 1, u32::MAX]})),
            Expect::Ends,
        ),
        row(
            "uses by the thousand",
            concludes(json!({"used": [{"$times": [0, 100_000]}]})),
            Expect::Ends,
        ),
        row(
            "uses one thing twice",
            json!([{"Pending": [asking(json!({"Lock": "p-a"}))]},
            {"Concluded": {"used": [0, 0, 0]}}]),
            Expect::Published,
        ),
        row(
            "an undecodable object that it can decode",
            concludes(json!({"next": {"Retry": {"class": "Long",
            "failure": {"code": "InvalidArgument", "message": {"$text": [["x", 100_000]]}, "effect": "None",
            "retry_after": null}}}})),
            Expect::Published,
        ),
    ]
}
