//! CRDs, and the checks of objects by their schemas.

use crate::thing_fixture::{create, define, empty, raw, thing_crd, things, with_things};
use serde_json::{Value, json};

const THINGS: &str = "/apis/example.test/v1/namespaces/default/things";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn body(spec: Value) -> String {
    json!({
        "apiVersion": "example.test/v1", "kind": "Thing", "metadata": { "name": "one" }, "spec": spec,
    })
    .to_string()
}

#[tokio::test]
async fn every_violation_is_said_with_its_path() {
    let client = with_things().await;
    let cases = [
        (json!({}), "spec.size", "Required value", "FieldValueRequired"),
        (
            json!({ "size": "big" }),
            "spec.size",
            "must be of type integer: \"string\"",
            "FieldValueTypeInvalid",
        ),
        (
            json!({ "size": 0 }),
            "spec.size",
            "should be greater than or equal to 1",
            "FieldValueInvalid",
        ),
        (
            json!({ "size": 10 }),
            "spec.size",
            "should be less than or equal to 9",
            "FieldValueInvalid",
        ),
        (
            json!({ "size": 1, "color": "blue" }),
            "spec.color",
            "Unsupported value: \"blue\": supported values: \"red\", \"green\"",
            "FieldValueNotSupported",
        ),
        (
            json!({ "size": 1, "disks": [{ "name": "A" }] }),
            "spec.disks[0].name",
            "should match '^[a-z]+$'",
            "FieldValueInvalid",
        ),
        (
            json!({ "size": 1, "disks": [{ "name": "abcdefghi" }] }),
            "spec.disks[0].name",
            "Too long: may not be more than 8 bytes",
            "FieldValueTooLong",
        ),
        (
            json!({ "size": 1, "disks": [{ "name": "a" }, { "name": "b" }, { "name": "c" }] }),
            "spec.disks",
            "Too many: 3: must have at most 2 items",
            "FieldValueTooMany",
        ),
        (
            json!({ "size": 1, "disks": [{ "name": "a" }, { "name": "a" }] }),
            "spec.disks[1]",
            "Duplicate value: {\"name\":\"a\"}",
            "FieldValueDuplicate",
        ),
        (
            json!({ "size": 1, "labels": { "a": 1 } }),
            "spec.labels.a",
            "of type string",
            "FieldValueTypeInvalid",
        ),
        (
            json!({ "size": 1, "port": 1.5 }),
            "spec.port",
            "of type integer,string",
            "FieldValueTypeInvalid",
        ),
    ];
    for (spec, field, message, reason) in cases {
        let (code, status) = raw(&client, "POST", THINGS, &[], &body(spec.clone())).await;
        assert_eq!(
            (code, &status["reason"]),
            (422, &json!("Invalid")),
            "{spec}: {status}"
        );
        let cause = &status["details"]["causes"][0];
        assert_eq!(
            (&cause["field"], &cause["reason"]),
            (&json!(field), &json!(reason)),
            "{status}"
        );
        assert!(cause["message"].as_str().unwrap().contains(message), "{status}");
        let start = "Thing.example.test \"one\" is invalid: ";
        assert!(status["message"].as_str().unwrap().starts_with(start), "{status}");
    }
}

#[tokio::test]
async fn a_patch_cannot_make_an_object_invalid() {
    let client = with_things().await;
    create(&things(&client), "one", json!({})).await;
    let merge = [("content-type", "application/merge-patch+json")];
    let path = format!("{THINGS}/one");
    let (code, status) = raw(&client, "PATCH", &path, &merge, "{\"spec\":{\"size\":99}}").await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("spec.size"))
    );
}

#[tokio::test]
async fn defaults_are_filled_in_and_unknown_fields_dropped() {
    let client = with_things().await;
    let spec = json!({
        "size": 1, "disks": [{ "name": "a" }], "raw": { "any": { "thing": 1 } }, "port": "http",
        "note": null, "color": null, "nope": { "deep": 1 },
    });
    let (code, created) = raw(&client, "POST", THINGS, &[], &body(spec)).await;
    assert_eq!(code, 201, "{created}");
    let expected = json!({
        "size": 1, "color": "red", "disks": [{ "name": "a", "gib": 10 }], "raw": { "any": { "thing": 1 } },
        "port": "http", "note": null,
    });
    assert_eq!(created["spec"], expected);
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_ignored_as_asked() {
    let client = with_things().await;
    let spec = || body(json!({ "size": 1, "nope": 1 }));
    let strict = format!("{THINGS}?fieldValidation=Strict");
    let (code, status) = raw(&client, "POST", &strict, &[], &spec()).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with("strict decoding error: unknown field \"spec.nope\""),
        "{message}"
    );

    for (path, warned) in [
        (THINGS.to_owned(), true),
        (format!("{THINGS}?fieldValidation=Ignore"), false),
    ] {
        let request = http::Request::post(path)
            .body(kube::client::Body::from(spec().into_bytes()))
            .unwrap();
        let response = client.send(request).await.unwrap();
        let warning = response
            .headers()
            .get("warning")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            warning,
            warned.then(|| "299 - \"unknown field \\\"spec.nope\\\"\"".to_owned())
        );
        raw(&client, "DELETE", &format!("{THINGS}/one"), &[], "").await;
    }
}

/// The code, message and warnings of an answer.
async fn told(client: &kube::Client, request: (&str, &str, &str), body: &str) -> (u16, String, Vec<String>) {
    let (method, path, content_type) = request;
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type);
    let body = kube::client::Body::from(body.as_bytes().to_vec());
    let response = client.send(request.body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
        warnings,
    )
}

#[tokio::test]
async fn duplicate_fields_are_refused_warned_of_or_ignored_as_asked() {
    let client = with_things().await;
    create(&things(&client), "one", json!({})).await;
    let head = r#""apiVersion":"example.test/v1","kind":"Thing""#;
    let spec = r#""spec":{"size":1,"size":2,"disks":[{"name":"a"},{"name":"b","gib":1,"gib":2}],"nope":1}"#;
    let named = format!(r#"{{{head},"metadata":{{"name":"one"}},{spec}}}"#);
    let new = format!(r#"{{{head},"metadata":{{"generateName":"gen-"}},{spec}}}"#);
    let merge = format!("{{{spec}}}");
    let patch = r#"[{"op":"add","op":"replace","path":"/spec/size","value":2}]"#;
    let one = format!("{THINGS}/one");
    let fields = [
        "duplicate field \"spec.size\"",
        "duplicate field \"spec.disks[1].gib\"",
        "unknown field \"spec.nope\"",
    ];
    let operation = ["json patch duplicate field \"[0].op\""];
    for (method, path, kind, body, refused, wanted) in [
        ("POST", THINGS, "json", &new, 400, &fields[..]),
        ("PUT", &one, "json", &named, 400, &fields),
        ("PATCH", &one, "merge-patch+json", &merge, 422, &fields),
        (
            "PATCH",
            &one,
            "json-patch+json",
            &patch.to_owned(),
            422,
            &operation,
        ),
    ] {
        let kind = format!("application/{kind}");
        let (_, stored) = raw(&client, "GET", &one, &[], "").await;
        let version = stored["metadata"]["resourceVersion"].as_str().unwrap();
        let versioned = format!(r#""name":"one","resourceVersion":"{version}""#);
        let body = &body.replace(r#""name":"one""#, &versioned);

        let strict = format!("{path}?fieldValidation=Strict");
        let (code, message, _) = told(&client, (method, &strict, &kind), body).await;
        assert_eq!(code, refused, "{message}");
        let why = format!("strict decoding error: {}", wanted.join(", "));
        assert!(message.ends_with(&why), "{message}");

        let (code, _, warnings) = told(&client, (method, path, &kind), body).await;
        assert!(code < 300, "{method} {path}: {code}");
        let headers: Vec<String> = wanted
            .iter()
            .map(|text| format!("299 - \"{}\"", text.replace('"', "\\\"")))
            .collect();
        assert_eq!(warnings, headers);

        let silent = format!("{path}?fieldValidation=Ignore");
        let body = &body.replace(&versioned, r#""name":"one""#);
        let (_, _, warnings) = told(&client, (method, &silent, &kind), body).await;
        assert_eq!(warnings, Vec::<String>::new());
    }
}

#[tokio::test]
async fn warnings_are_no_more_than_an_answer_holds() {
    let client = with_things().await;
    let mut spec: serde_json::Map<String, Value> = (0..40_000).map(|n| (format!("f{n}"), json!(0))).collect();
    spec.insert("size".to_owned(), json!(1));
    let wide = body(json!(spec));
    let (code, message, warnings) = told(&client, ("POST", THINGS, "application/json"), &wide).await;
    assert_eq!(code, 201, "{message}");
    let size: usize = warnings.iter().map(String::len).sum();
    assert!(
        !warnings.is_empty() && size < 8192,
        "{} warnings, {size} bytes",
        warnings.len()
    );
}

#[tokio::test]
async fn a_crd_that_this_server_cannot_honour_is_refused_by_name() {
    let client = empty();
    let refused = |change: Value, what: &'static str| {
        let client = client.clone();
        let mut crd = thing_crd();
        json_patch::merge(&mut crd, &change);
        async move {
            let (code, status) = raw(&client, "POST", CRDS, &[], &crd.to_string()).await;
            assert_eq!(code, 422, "{status}");
            assert!(status["message"].as_str().unwrap().contains(what), "{status}");
        }
    };
    let webhook = json!({ "strategy": "Webhook", "webhook": {} });
    refused(
        json!({ "spec": { "conversion": webhook } }),
        "strategy Webhook is not supported",
    )
    .await;
    refused(
        json!({ "metadata": { "name": "other.example.test" } }),
        "metadata.name",
    )
    .await;
    refused(json!({ "spec": { "scope": "Galaxy" } }), "spec.scope").await;
    refused(json!({ "spec": { "group": "nodots" } }), "spec.group").await;
    refused(json!({ "spec": { "versions": [] } }), "exactly one version").await;

    let mut crd = thing_crd();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{ "rule": "true" }]);
    let (code, status) = raw(&client, "POST", CRDS, &[], &crd.to_string()).await;
    assert_eq!(code, 422);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("x-kubernetes-validations (CEL rules)"),
        "{status}"
    );
}

#[tokio::test]
async fn versions_of_a_kind_show_the_same_objects() {
    let client = empty();
    let mut crd = thing_crd();
    let mut beta = crd["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(beta);
    define(&client, crd).await;
    create(&things(&client), "one", json!({})).await;
    let (_, beta) = raw(&client, "GET", &THINGS.replace("/v1/", "/v1beta1/"), &[], "").await;
    assert_eq!(beta["apiVersion"], "example.test/v1beta1");
    assert_eq!(beta["items"][0]["apiVersion"], "example.test/v1beta1");
    let (_, group) = raw(&client, "GET", "/apis/example.test", &[], "").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn a_changed_crd_governs_the_next_write() {
    let client = with_things().await;
    let path = format!("{CRDS}/things.example.test");
    let patch = json!([{
        "op": "replace",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
        "value": 99,
    }]);
    let json_patch = [("content-type", "application/json-patch+json")];
    assert_eq!(
        raw(&client, "PATCH", &path, &json_patch, &patch.to_string())
            .await
            .0,
        200
    );
    assert_eq!(
        raw(&client, "POST", THINGS, &[], &body(json!({ "size": 50 })))
            .await
            .0,
        201
    );
    let (_, crd) = raw(&client, "GET", &path, &[], "").await;
    assert_eq!(crd["metadata"]["generation"], 2);
    assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
}

#[tokio::test]
async fn patterns_that_would_fill_the_memory_together_are_refused() {
    let client = empty();
    let properties: serde_json::Map<String, Value> = (0..600)
        .map(|n| {
            let pattern = format!("^[a-z{n}]{{1000}}$");
            (
                format!("field{n}"),
                json!({ "type": "string", "pattern": pattern }),
            )
        })
        .collect();
    let mut crd = thing_crd();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!(properties);
    let (code, status) = raw(&client, "POST", CRDS, &[], &crd.to_string()).await;
    let message = status["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422);
    assert!(message.contains("bytes together"), "{:.500}", message);
}

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
const ONE: &str = "/apis/example.test/v1/namespaces/default/things/one";

/// Changes a CRD.
async fn redefine(client: &kube::Client, operations: Value) {
    let path = format!("{CRDS}/things.example.test");
    let json_patch = [("content-type", "application/json-patch+json")];
    let (code, answer) = raw(client, "PATCH", &path, &json_patch, &operations.to_string()).await;
    assert_eq!(code, 200, "{answer}");
}

async fn patch(client: &kube::Client, patch: Value) -> (u16, Value) {
    let merge_patch = [("content-type", "application/merge-patch+json")];
    raw(client, "PATCH", ONE, &merge_patch, &patch.to_string()).await
}

#[tokio::test]
async fn what_is_stored_is_read_by_the_schema_that_its_kind_has_now() {
    let client = with_things().await;
    create(&things(&client), "one", json!({"spec": {"labels": {"a": "b"}}})).await;
    let (_, before) = raw(&client, "GET", ONE, &[], "").await;
    redefine(
        &client,
        json!([
            {"op": "remove", "path": format!("{SPEC}/labels")},
            {"op": "add", "path": format!("{SPEC}/zone"), "value": {"type": "string", "default": "north"}},
        ]),
    )
    .await;
    let (_, read) = raw(&client, "GET", ONE, &[], "").await;
    assert_eq!(read["spec"], json!({"size": 1, "color": "red", "zone": "north"}));
    assert_eq!(read["metadata"], before["metadata"], "nobody wrote it");
    let (_, list) = raw(&client, "GET", THINGS, &[], "").await;
    assert_eq!(list["items"][0]["spec"], read["spec"]);
    // A change of one field leaves the others as they are.
    let (code, labelled) = patch(&client, json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!((code, &labelled["metadata"]["generation"]), (200, &json!(1)));
    assert_eq!(labelled["spec"], read["spec"]);
}

#[tokio::test]
async fn what_a_later_schema_makes_invalid_is_refused_only_where_it_is_changed() {
    let client = with_things().await;
    let spec = json!({"size": 9, "disks": [{"name": "a", "gib": 90}, {"name": "b", "gib": 1}]});
    create(&things(&client), "one", json!({"spec": spec})).await;
    redefine(
        &client,
        json!([
            {"op": "replace", "path": format!("{SPEC}/size/maximum"), "value": 5},
            {"op": "add", "path": format!("{SPEC}/disks/items/properties/gib/maximum"), "value": 50},
        ]),
    )
    .await;
    for (change, code) in [
        (json!({"metadata": {"labels": {"x": "y"}}}), 200),
        (json!({"spec": {"color": "green"}}), 200),
        (
            json!({"spec": {"disks": [{"name": "b", "gib": 2}, {"name": "a", "gib": 90}]}}),
            200,
        ),
        (json!({"spec": {"size": 8}}), 422),
        (json!({"spec": {"disks": [{"name": "a", "gib": 91}]}}), 422),
        (json!({"spec": {"disks": [{"name": "c", "gib": 90}]}}), 422),
        (json!({"spec": {"size": 5}}), 200),
        (json!({"spec": {"size": 9}}), 422),
    ] {
        let (answered, answer) = patch(&client, change.clone()).await;
        assert_eq!(answered, code, "{change}: {answer}");
    }
}

#[tokio::test]
async fn a_version_shows_what_it_knows_and_what_is_written_through_it_is_kept_as_the_stored_one_knows_it() {
    let client = empty();
    let mut crd = thing_crd();
    let mut beta = crd["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    let properties = &mut beta["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["labels"].take();
    properties.as_object_mut().unwrap().remove("labels");
    properties["extra"] = json!({"type": "string"});
    crd["spec"]["versions"].as_array_mut().unwrap().push(beta);
    define(&client, crd).await;
    create(&things(&client), "one", json!({"spec": {"labels": {"a": "b"}}})).await;
    let path = ONE.replace("/v1/", "/v1beta1/");
    let (_, read) = raw(&client, "GET", &path, &[], "").await;
    assert_eq!(read["spec"], json!({"size": 1, "color": "red"}));
    let merge_patch = [("content-type", "application/merge-patch+json")];
    let change = json!({"spec": {"extra": "x", "size": 2}}).to_string();
    let (code, written) = raw(&client, "PATCH", &path, &merge_patch, &change).await;
    assert_eq!(
        (code, &written["spec"]),
        (200, &json!({"size": 2, "color": "red"}))
    );
    let (_, stored) = raw(&client, "GET", ONE, &[], "").await;
    assert_eq!(stored["spec"], json!({"size": 2, "color": "red"}));
}
