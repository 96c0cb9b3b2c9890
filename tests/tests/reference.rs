//! The schema of PolicyBinding against the type that the host reads, and the reference page of the host's own kinds.

use std::collections::BTreeSet;

use polity::crds;
use polity::scenario::Scenario;
use polity_core::binding::{BindingSpec, Limits};
use serde_json::{Map, Value, json};

/// The reference page. The variable makes the test write the page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/deploy/REFERENCE.md");
const WRITE: &str = "POLITY_WRITE_REFERENCE";

/// A field that no type has.
const UNKNOWN: &str = "noSuchField";

fn schema() -> Value {
    crds::policy_binding()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// A value that has every field of a schema. Where an object may have one field at most, a list has an item for each.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => match schema["properties"].as_object() {
            Some(fields) => fields
                .iter()
                .map(|(field, schema)| (field.clone(), sample(schema)))
                .collect::<Map<_, _>>()
                .into(),
            None => json!({}),
        },
        Some("array") if schema["items"]["maxProperties"] == 1 => {
            let kinds = schema["items"]["properties"].as_object();
            let item = |(field, schema): (&String, &Value)| json!({ field: sample(schema) });
            kinds.into_iter().flatten().map(item).collect()
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        Some("string") => json!("x"),
        // A kind of token, and a tenant: each has a short and a long form.
        _ => json!("namespace"),
    }
}

/// The pointers to all objects of a sample whose fields the schema names, each with these names.
fn objects(schema: &Value, at: &str, found: &mut Vec<(String, BTreeSet<String>)>) {
    if let Some(fields) = schema["properties"].as_object() {
        found.push((at.to_owned(), fields.keys().cloned().collect()));
        for (field, schema) in fields {
            objects(schema, &format!("{at}/{field}"), found);
        }
    }
    let kinds = schema["items"]["properties"].as_object();
    match schema["items"]["maxProperties"] == 1 {
        true => {
            let kinds = kinds.expect("the kinds of items");
            for (index, (field, schema)) in kinds.iter().enumerate() {
                objects(schema, &format!("{at}/{index}/{field}"), found);
            }
        }
        false if !schema["items"].is_null() => objects(&schema["items"], &format!("{at}/0"), found),
        false => {}
    }
}

/// The names that an error of serde offers in place of an unknown one.
fn offered(error: &str) -> BTreeSet<String> {
    let (_, offered) = error.split_once("expected").unwrap_or_default();
    let odd = offered.split('`').skip(1).step_by(2);
    odd.map(str::to_owned).collect()
}

fn refusal(spec: &Value) -> String {
    let read = serde_json::from_value::<BindingSpec>(spec.clone());
    read.expect_err("a field that nobody knows").to_string()
}

#[test]
fn the_schema_of_a_binding_has_the_fields_that_the_host_reads_and_no_others() {
    let schema = &schema()["properties"]["spec"];
    let whole = sample(schema);
    serde_json::from_value::<BindingSpec>(whole.clone()).expect("the host reads every field of the schema");
    let mut all = Vec::new();
    objects(schema, "", &mut all);
    assert!(all.len() > 15, "{all:?}");
    for (at, fields) in all {
        let mut spec = whole.clone();
        spec.pointer_mut(&at).expect("it is in the sample")[UNKNOWN] = json!(1);
        assert_eq!(offered(&refusal(&spec)), fields, "the fields of spec{at}");
    }
    let mut spec = whole.clone();
    spec["grants"] = json!([{UNKNOWN: 1}]);
    let kinds = schema["properties"]["grants"]["items"]["properties"]
        .as_object()
        .expect("kinds");
    assert_eq!(offered(&refusal(&spec)), kinds.keys().cloned().collect());
}

/// A number as descriptions write it.
fn written(number: u64) -> String {
    match number {
        86_400_000 => "a day".to_owned(),
        _ if number >= 1 << 20 && number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
        _ if number >= 1_000_000 => format!("{} million", number / 1_000_000),
        _ if number >= 1_000 => format!("{},{:03}", number / 1_000, number % 1_000),
        _ => number.to_string(),
    }
}

#[test]
fn the_schema_tells_the_default_of_every_limit() {
    let schema = schema();
    let described = &schema["properties"]["spec"]["properties"]["limits"]["properties"];
    let limits = serde_json::to_value(Limits::default()).expect("they are JSON");
    for (limit, default) in limits.as_object().expect("limits") {
        let description = described[limit]["description"].as_str().expect("a description");
        let default = written(default.as_u64().expect("a number"));
        let told = format!("The default is {default}.");
        assert!(
            description.ends_with(&told),
            "{limit}: {description:?}, not {told:?}"
        );
    }
}

/// The type of a schema; of a value that may be left out, that of the value.
fn kind_of(schema: &Value) -> Option<&str> {
    let listed = schema["type"].as_array().into_iter().flatten();
    let said = schema["type"]
        .as_str()
        .or_else(|| listed.filter_map(Value::as_str).find(|kind| *kind != "null"));
    let mut of = alternatives(schema).filter_map(kind_of);
    said.or_else(|| of.next().filter(|first| of.all(|other| other == *first)))
}

/// The types of a value that has several forms.
fn forms(schema: &Value) -> String {
    let mut kinds = BTreeSet::new();
    leaves(schema, &mut kinds);
    match kinds.is_empty() {
        // Such a field of a CustomResourceDefinition has a short and a long form.
        true if schema["x-kubernetes-preserve-unknown-fields"] == true => "string or object".to_owned(),
        true => "any".to_owned(),
        false => kinds.into_iter().collect::<Vec<_>>().join(" or "),
    }
}

fn leaves<'a>(schema: &'a Value, kinds: &mut BTreeSet<&'a str>) {
    for one in alternatives(schema) {
        match kind_of(one) {
            Some(kind) => _ = kinds.insert(kind),
            None => leaves(one, kinds),
        }
    }
}

/// The schemas of which one must fit, but for that of nothing.
fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let all = [&schema["anyOf"], &schema["oneOf"]].into_iter();
    let all = all.filter_map(Value::as_array).flatten();
    all.filter(|schema| schema["type"] != "null")
}

/// The rows of the page for the fields of a schema.
fn rows(schema: &Value, at: &str, page: &mut String) {
    for one in alternatives(schema) {
        if let (Some(value), Some(description)) = (one["const"].as_str(), one["description"].as_str()) {
            let at = at.trim_end_matches('.');
            page.push_str(&format!(
                "| `{at}: {value}` | | {} |\n",
                description.replace('\n', " ")
            ));
        }
        rows(one, at, page);
    }
    let whole = schema;
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let items = &schema["items"];
        let list = if kind_of(schema) == Some("array") {
            "[]"
        } else {
            ""
        };
        let path = format!("{at}{field}{list}");
        let kind = match (kind_of(schema), kind_of(items)) {
            (Some("array"), Some(of)) => format!("list of {of}s"),
            (Some("array"), None) => "list".to_owned(),
            (Some(kind), _) => kind.to_owned(),
            (None, _) => forms(schema),
        };
        // A variant of an enum is described as a whole.
        let described = [schema, whole].map(|schema| schema["description"].as_str());
        let description = described.into_iter().flatten().next();
        let description = description.unwrap_or_else(|| panic!("{path} has no description"));
        let description = description.replace('\n', " ");
        page.push_str(&format!("| `{path}` | {kind} | {description} |\n"));
        rows(schema, &format!("{path}."), page);
        rows(items, &format!("{path}."), page);
        let values = &schema["additionalProperties"];
        rows(values, &format!("{path}.*."), page);
    }
}

/// The chapter of a kind.
fn chapter(crd: &Value, page: &mut String) {
    let names = &crd["spec"]["names"];
    let name = |field: &str| names[field].as_str().expect("a name");
    let (kind, singular, plural) = (name("kind"), name("singular"), name("plural"));
    let version = &crd["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let description = schema["description"].as_str().expect("a description");
    page.push_str(&format!(
        "\n# {kind}\n\n`polity.dev/v1alpha1`, cluster-scoped. {description} `kubectl explain {singular}.spec` shows the same \
         texts.\n\n## Fields of {kind}\n\n| field | type | meaning |\n|---|---|---|\n"
    ));
    rows(schema, "", page);
    page.push_str(&format!(
        "\n## Columns of `kubectl get {plural}`\n\n| column | meaning |\n|---|---|\n"
    ));
    let columns = &version["additionalPrinterColumns"];
    for column in columns.as_array().into_iter().flatten() {
        let text = |field: &str| column[field].as_str().expect("a text").to_owned();
        let wide = if column["priority"] == 1 {
            " (`-o wide`)"
        } else {
            ""
        };
        page.push_str(&format!("| {}{wide} | {} |\n", text("name"), text("description")));
    }
}

/// The chapter of scenario files, which no API server keeps.
fn scenarios(page: &mut String) {
    let schema = Scenario::schema();
    let description = schema["description"]
        .as_str()
        .expect("a description")
        .replace('\n', " ");
    page.push_str(&format!(
        "\n# Scenario\n\n`polity.dev/v1alpha1`, in a file beside the manifests. {description} A time is a number and a unit: \
         `90s`, `5m`.\n\n## Fields of Scenario\n\n| field | type | meaning |\n|---|---|---|\n"
    ));
    rows(&schema, "", page);
}

fn page() -> String {
    let mut page = format!(
        "This page is made from the CustomResourceDefinitions and the schema of scenarios: `{WRITE}=1 cargo test -p polity-tests --test all reference::`.\n"
    );
    for crd in [crds::policy_binding(), crds::cloud_connection()] {
        chapter(&crd, &mut page);
    }
    scenarios(&mut page);
    page
}

#[test]
fn the_reference_page_is_that_of_the_schema() {
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &page).expect("the page is written");
    }
    let stands = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        stands == page,
        "host/deploy/REFERENCE.md is not that of the schema; write it with {WRITE}=1"
    );
}
