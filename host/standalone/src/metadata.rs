//! Validates metadata; each error names its field (apimachinery `ValidateObjectMeta`). The form of names is a
//! rule of `polity_kube_rules::names`.

use std::borrow::Cow;

use polity_kube_rules::names;
use serde_json::{Map, Value};

use crate::http::refusal::Cause;

/// How large all annotations of an object may be together, in bytes (apimachinery `TotalAnnotationSizeLimitB`).
const ANNOTATIONS: usize = 256 << 10;

/// The rule for the name of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NameRule {
    /// A DNS-1123 subdomain: most objects.
    Subdomain,
    /// A DNS-1123 label: namespaces.
    Label,
}

impl NameRule {
    /// The error if `name` cannot be the name of an object.
    fn problem(self, name: &str) -> Option<&'static str> {
        match self {
            Self::Subdomain => names::dns_subdomain_problem(name),
            Self::Label => names::dns_label_problem(name),
        }
    }
}

/// All errors in an object's metadata but wrong types, which the schema has checked.
pub(crate) fn problems(object: &Value, rule: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    if let Some(why) = metadata["name"].as_str().and_then(|name| rule.problem(name)) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], why));
    }
    let prefix = metadata["generateName"]
        .as_str()
        .filter(|prefix| !prefix.is_empty());
    if let Some(why) = prefix.and_then(|prefix| rule.problem(&as_name(prefix))) {
        causes.push(Cause::invalid(
            "metadata.generateName",
            &metadata["generateName"],
            why,
        ));
    }
    causes.extend(label_problems("metadata.labels", metadata["labels"].as_object()));
    annotations(metadata, &mut causes);
    finalizers(metadata, &mut causes);
    owners(metadata, &mut causes);
    causes
}

/// A prefix of names in the place of a name: it may end with a dash (apimachinery `maskTrailingDash`).
fn as_name(prefix: &str) -> Cow<'_, str> {
    let masked = prefix
        .strip_suffix('-')
        .and_then(|before| before.get(..before.len().checked_sub(1)?));
    masked.map_or(Cow::Borrowed(prefix), |before| Cow::Owned(format!("{before}a")))
}

fn fields<'a>(metadata: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    metadata[name].as_object().into_iter().flat_map(Map::iter)
}

/// All errors in the labels at `path`.
pub(crate) fn label_problems(path: &str, labels: Option<&Map<String, Value>>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        if let Some(why) = names::qualified_name_problem(key) {
            causes.push(Cause::invalid(path, &key.as_str().into(), why));
        }
        causes.extend(value_problem(value).map(|why| Cause::invalid(path, value, why)));
    }
    causes
}

/// The error if a value cannot be the value of a label.
pub(crate) fn value_problem(value: &Value) -> Option<&'static str> {
    names::label_value_problem(value.as_str().unwrap_or_default())
}

fn annotations(metadata: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in fields(metadata, "annotations") {
        if let Some(why) = names::annotation_key_problem(key) {
            let key = key.as_str().into();
            causes.push(Cause::invalid("metadata.annotations", &key, why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".to_owned(),
            message: format!("Too long: may not be more than {ANNOTATIONS} bytes"),
        });
    }
}

fn finalizers(metadata: &Value, causes: &mut Vec<Cause>) {
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        let name = finalizer.as_str().unwrap_or_default();
        if let Some(why) = names::qualified_name_problem(name) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, why));
        }
    }
}

fn owners(metadata: &Value, causes: &mut Vec<Cause>) {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    if owners.filter(|owner| owner["controller"] == true).count() > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            why,
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_has_the_form_that_its_kind_wants() {
        let object = json!({ "metadata": { "name": "a.b" } });
        assert_eq!(problems(&object, NameRule::Subdomain), []);
        assert_eq!(problems(&object, NameRule::Label).len(), 1);
    }

    #[test]
    fn a_prefix_of_names_has_their_form_and_may_end_with_a_dash() {
        for (prefix, is_good) in [
            ("", true),
            ("gen", true),
            ("gen-", true),
            ("a.b-", true),
            ("g-", true),
            ("-", false),
            ("gen--", true),
            ("Gen-", false),
            ("gen_", false),
            ("é-", false),
            ("g.-", true),
        ] {
            let object = json!({ "metadata": { "name": "ok", "generateName": prefix } });
            let causes = problems(&object, NameRule::Subdomain);
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            let expected: &[&str] = if is_good { &[] } else { &["metadata.generateName"] };
            assert_eq!(fields, expected, "{prefix}");
        }
    }

    #[test]
    fn labels_annotations_and_finalizers_have_qualified_names() {
        let bad = json!({ "metadata": {
            "name": "a",
            "labels": { "a/b/c": "x", "ok": "not ok" },
            "annotations": { "-": "" },
            "finalizers": ["no spaces"],
        } });
        let fields: Vec<String> = problems(&bad, NameRule::Subdomain)
            .into_iter()
            .map(|cause| cause.field)
            .collect();
        let expected = [
            "metadata.labels",
            "metadata.labels",
            "metadata.annotations",
            "metadata.finalizers",
        ];
        assert_eq!(fields, expected);
        let good = json!({ "metadata": {
            "name": "a",
            "labels": { "polity.dev/x": "A_b", "empty": "" },
            "finalizers": ["capv.polity.dev/machine", "foregroundDeletion"],
        } });
        assert_eq!(problems(&good, NameRule::Subdomain), []);
    }
}
