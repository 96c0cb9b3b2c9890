//! CustomResourceDefinitions: their validation, and the kinds that they define.

use std::cmp::Reverse;

use polity_kube_rules::{
    conditions,
    deletion::is_deleting,
    schema::{Dialect, Schema, compile},
};
use serde_json::{Value, json};

use super::{Kind, Rules, Scale, Version, api_version, meta};
use crate::http::{
    refusal::Cause,
    table::{Column, JsonPath},
};

/// The resource under which CRDs are stored.
pub(crate) const CRD_RESOURCE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Groups whose kinds are builtin: a CRD must not shadow them.
const BUILTIN_GROUPS: [&str; 6] = [
    "",
    "events.k8s.io",
    "coordination.k8s.io",
    "apiextensions.k8s.io",
    "policy",
    "storage.k8s.io",
];

/// Fills in optional fields of a CRD, validates it, and sets the status of an accepted one. `now` is RFC
/// 3339, for the conditions.
pub(crate) fn admit(crd: &mut Value, now: &str) -> Result<(), Vec<Cause>> {
    let kind = crd["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let names = &mut crd["spec"]["names"];
    if names.is_object() {
        fill(names, "singular", json!(kind.to_lowercase()));
        fill(names, "listKind", json!(format!("{kind}List")));
    }
    if crd["spec"].is_object() {
        fill(&mut crd["spec"], "conversion", json!({ "strategy": "None" }));
    }
    kind_of(crd)?;
    let accepted = crd["spec"]["names"].clone();
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> = versions
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .collect();
    let status = &mut crd["status"];
    if !status.is_object() {
        *status = json!({});
    }
    status["acceptedNames"] = accepted;
    let known = status["storedVersions"].as_array().cloned().unwrap_or_default();
    let added = stored.into_iter().filter(|version| !known.contains(version));
    status["storedVersions"] = known.iter().cloned().chain(added).collect();
    fill(
        status,
        "conditions",
        json!([
            condition(
                ("NamesAccepted", "True"),
                "NoConflicts",
                "no conflicts found",
                now
            ),
            condition(
                ("Established", "True"),
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now
            ),
        ]),
    );
    Ok(())
}

/// Sets the condition `Terminating` of a CRD that is being deleted: whether instances are left. The words are
/// those of the finalizer controller of a real API server.
pub(crate) fn set_terminating(crd: &mut Value, has_instances: bool, now: &str) {
    let (status, reason, message) = if has_instances {
        (
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        )
    } else {
        ("False", "InstanceDeletionCompleted", "removed all instances")
    };
    conditions::set(
        &mut crd["status"],
        condition(("Terminating", status), reason, message, now),
    );
}

fn condition((kind, status): (&str, &str), reason: &str, message: &str, now: &str) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    })
}

fn fill(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

/// The kind that a CRD defines, or all errors in the CRD.
pub(crate) fn kind_of(crd: &Value) -> Result<Kind, Vec<Cause>> {
    let mut causes = Vec::new();
    let spec = &crd["spec"];
    let group = required(spec, "spec", "group", &mut causes);
    let names = &spec["names"];
    let plural = required(names, "spec.names", "plural", &mut causes);
    let kind = required(names, "spec.names", "kind", &mut causes);
    let namespaced = match spec["scope"].as_str() {
        Some("Namespaced") => true,
        Some("Cluster") => false,
        _ => {
            let known = ["\"Cluster\"", "\"Namespaced\""].map(str::to_owned);
            causes.push(Cause::unsupported("spec.scope", &spec["scope"], &known));
            false
        }
    };
    check_identity(crd, &group, &plural, &mut causes);
    let (mut versions, mut unserved) = (Vec::new(), Vec::new());
    let mut stored = Vec::new();
    for (index, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.versions[{index}]");
        let compiled = compile_version(&path, version, &mut causes);
        if version["storage"] == true {
            stored.push(compiled.name.clone());
        }
        if version["served"] == true {
            versions.push(compiled);
        } else {
            unserved.push(compiled);
        }
    }
    if stored.len() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(stored), why));
    }
    if !causes.is_empty() {
        return Err(causes);
    }
    versions.sort_by_key(|version| Reverse(priority(&version.name)));
    Ok(Kind {
        singular: names["singular"]
            .as_str()
            .map_or_else(|| kind.to_lowercase(), str::to_owned),
        list_kind: names["listKind"]
            .as_str()
            .map_or_else(|| format!("{kind}List"), str::to_owned),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced,
        versions,
        unserved,
        storage: super::resource_name(&group, &plural).into(),
        storage_version: api_version(&group, &stored[0]),
        selectable: selectable(spec),
        rules: Rules::Custom,
        terminating: is_deleting(crd),
        group,
        plural,
        kind,
    })
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn required(object: &Value, path: &str, field: &str, causes: &mut Vec<Cause>) -> String {
    let text = object[field].as_str().unwrap_or_default();
    if text.is_empty() {
        causes.push(Cause::required(&format!("{path}.{field}"), ""));
    }
    text.to_owned()
}

fn check_identity(crd: &Value, group: &str, plural: &str, causes: &mut Vec<Cause>) {
    let wanted = format!("{plural}.{group}");
    let name = &crd["metadata"]["name"];
    if name != wanted.as_str() {
        let why = format!("must be spec.names.plural+\".\"+spec.group, here {wanted}");
        causes.push(Cause::invalid("metadata.name", name, &why));
    }
    if BUILTIN_GROUPS.contains(&group) || !group.contains('.') {
        let why = "should be a domain with at least one dot, and none of the builtin groups";
        causes.push(Cause::invalid("spec.group", &json!(group), why));
    }
    let spec = &crd["spec"];
    if let Some(strategy) = spec["conversion"]["strategy"]
        .as_str()
        .filter(|&strategy| strategy != "None")
    {
        let why = format!("conversion strategy {strategy} is not supported by the standalone API server");
        causes.push(Cause::forbidden("spec.conversion.strategy", &why));
    }
    if spec["preserveUnknownFields"] == true {
        let why = "must be false in order to use apiextensions.k8s.io/v1";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
}

fn compile_version(path: &str, version: &Value, causes: &mut Vec<Cause>) -> Version {
    let name = required(version, path, "name", causes);
    let source = version["schema"]["openAPIV3Schema"].clone();
    let schema_path = format!("{path}.schema.openAPIV3Schema");
    let schema = match &source {
        Value::Null => {
            causes.push(Cause::required(&schema_path, "schemas are required"));
            Schema::default()
        }
        source => compile(Dialect::Structural, &schema_path, source).unwrap_or_else(|found| {
            causes.extend(found);
            Schema::default()
        }),
    };
    if source["type"] != "object" && !source.is_null() {
        let field = format!("{schema_path}.type");
        causes.push(Cause::invalid(
            &field,
            &source["type"],
            "must be object at the root",
        ));
    }
    if !source["properties"]["metadata"]["properties"].is_null() {
        let field = format!("{schema_path}.properties[metadata].properties");
        let why = "rules for metadata are not supported by the standalone API server";
        causes.push(Cause::forbidden(&field, why));
    }
    Version {
        schema: meta::rooted(schema),
        source,
        status: version["subresources"]["status"].is_object(),
        scale: Scale::declared(path, version, causes),
        columns: columns(path, version, causes),
        name,
    }
}

/// The printer columns; a version that names none shows its age.
fn columns(path: &str, version: &Value, causes: &mut Vec<Cause>) -> Vec<Column> {
    let Some(columns) = version["additionalPrinterColumns"]
        .as_array()
        .filter(|c| !c.is_empty())
    else {
        return vec![Column::age()];
    };
    let mut shown = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        let name = required(column, &path, "name", causes);
        let kind = required(column, &path, "type", causes);
        match column["jsonPath"]
            .as_str()
            .unwrap_or_default()
            .parse::<JsonPath>()
        {
            Ok(path) => shown.push(Column {
                absent: serde_json::Value::Null,
                name,
                kind,
                format: column["format"].as_str().unwrap_or_default().to_owned(),
                description: column["description"].as_str().unwrap_or_default().to_owned(),
                priority: column["priority"].as_i64().unwrap_or(0),
                path,
            }),
            Err(why) => {
                let field = format!("{path}.jsonPath");
                causes.push(Cause::invalid(&field, &column["jsonPath"], &why));
            }
        }
    }
    shown
}

/// `selectableFields` of the served versions, as field selectors write them.
fn selectable(spec: &Value) -> Vec<String> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    let fields = versions.flat_map(|version| version["selectableFields"].as_array().into_iter().flatten());
    let mut paths: Vec<String> = fields
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Orders version names as Kubernetes does: v2 before v1 before v1beta2 before v1alpha1 before anything else.
pub(super) fn priority(name: &str) -> (u8, u64, u64, Reverse<String>) {
    let other = || (0, 0, 0, Reverse(name.to_owned()));
    let Some(rest) = name.strip_prefix('v') else {
        return other();
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let Ok(major) = major.parse() else { return other() };
    let (level, minor) = match rest {
        "" => return (3, major, 0, Reverse(String::new())),
        _ if rest.starts_with("beta") => (2, &rest[4..]),
        _ if rest.starts_with("alpha") => (1, &rest[5..]),
        _ => return other(),
    };
    let Ok(minor) = minor.parse() else { return other() };
    (level, major, minor, Reverse(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(schema: Value) -> Value {
        json!({
            "metadata": { "name": "things.example.test" },
            "spec": {
                "group": "example.test",
                "scope": "Namespaced",
                "names": { "plural": "things", "kind": "Thing" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        })
    }

    #[test]
    fn cel_rules_are_refused_by_name() {
        let rule = json!([{ "rule": "self.a > 1" }]);
        let spec = json!({ "type": "object", "x-kubernetes-validations": rule });
        let causes = kind_of(&crd(json!({ "type": "object", "properties": { "spec": spec } }))).unwrap_err();
        assert_eq!(
            causes[0].field,
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations"
        );
        assert!(causes[0].message.contains("not supported"));
    }

    #[test]
    fn a_schema_without_types_is_refused() {
        let causes = kind_of(&crd(json!({ "properties": { "spec": {} } }))).unwrap_err();
        assert!(
            causes
                .iter()
                .any(|cause| cause.field.ends_with("properties[spec].type"))
        );
    }

    #[test]
    fn an_accepted_crd_says_so() {
        let mut crd = crd(json!({ "type": "object" }));
        admit(&mut crd, "2026-11-20T08:00:00Z").unwrap();
        assert_eq!(crd["spec"]["names"]["listKind"], "ThingList");
        assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut names = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2"];
        names.sort_by_key(|name| Reverse(priority(name)));
        assert_eq!(names, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}
