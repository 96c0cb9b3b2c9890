//! What names, labels, annotations, finalizers and owner references may be (meta/v1, apimachinery validation).

use serde_json::{Map, Value};

use crate::http::refusal::Cause;

/// How long a name may be: DNS-1123 subdomains have 253 bytes, labels 63.
const SUBDOMAIN: usize = 253;
const LABEL: usize = 63;
/// How large all annotations of an object may be together, in bytes (apimachinery `TotalAnnotationSizeLimitB`).
const ANNOTATIONS: usize = 256 << 10;

/// What a name may look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NameRule {
    /// A DNS-1123 subdomain: most objects.
    Subdomain,
    /// A DNS-1123 label: namespaces.
    Label,
}

/// Why `name` cannot name an object; none where it can.
pub(crate) fn name_problem(name: &str, rule: NameRule) -> Option<String> {
    let labels_ok = |text: &str| text.split('.').all(is_dns_label);
    match rule {
        NameRule::Subdomain if name.len() > SUBDOMAIN => {
            Some(format!("must be no more than {SUBDOMAIN} bytes"))
        }
        NameRule::Label if name.len() > LABEL => Some(format!("must be no more than {LABEL} bytes")),
        NameRule::Subdomain if labels_ok(name) => None,
        NameRule::Label if is_dns_label(name) => None,
        NameRule::Subdomain => Some(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character"
                .to_owned(),
        ),
        NameRule::Label => Some(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character"
                .to_owned(),
        ),
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Everything that is wrong with an object's metadata, its types aside: the schema has checked those.
pub(crate) fn problems(object: &Value, rule: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    if let Some(why) = metadata["name"]
        .as_str()
        .and_then(|name| name_problem(name, rule))
    {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], &why));
    }
    causes.extend(label_problems("metadata.labels", metadata["labels"].as_object()));
    annotations(metadata, &mut causes);
    finalizers(metadata, &mut causes);
    owners(metadata, &mut causes);
    causes
}

fn fields<'a>(metadata: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    metadata[name].as_object().into_iter().flat_map(Map::iter)
}

/// Everything that is wrong with a set of labels that stands at `path`.
pub(crate) fn label_problems(path: &str, labels: Option<&Map<String, Value>>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        if !is_qualified(key) {
            causes.push(Cause::invalid(path, &key.as_str().into(), NOT_QUALIFIED));
        }
        causes.extend(value_problem(value).map(|why| Cause::invalid(path, value, why)));
    }
    causes
}

/// Why this cannot be the value of a label; none where it can.
pub(crate) fn value_problem(value: &Value) -> Option<&'static str> {
    let text = value.as_str().unwrap_or_default();
    (text.len() > LABEL || !(text.is_empty() || is_name_part(text))).then_some(
        "a valid label must be an empty string or at most 63 alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character",
    )
}

fn annotations(metadata: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in fields(metadata, "annotations") {
        if !is_qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                NOT_QUALIFIED,
            ));
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
        if !finalizer.as_str().is_some_and(is_qualified) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, NOT_QUALIFIED));
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

const NOT_QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                             end with an alphanumeric character, with an optional DNS subdomain prefix and '/'";

/// `[prefix/]name`
fn is_qualified(text: &str) -> bool {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    name.len() <= LABEL
        && is_name_part(name)
        && prefix.is_none_or(|prefix| name_problem(prefix, NameRule::Subdomain).is_none())
}

fn is_name_part(text: &str) -> bool {
    let edge = |c: u8| c.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.iter().all(|&c| edge(c) || b"-_.".contains(&c))
        && bytes.first().is_some_and(|&c| edge(c))
        && bytes.last().is_some_and(|&c| edge(c))
}

/// The finalizers of an object.
pub(crate) fn finalizers_of(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether an object's deletion has begun.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_a_dns_subdomain() {
        for good in ["a", "a-b.c", "0a", &"a".repeat(253)] {
            assert_eq!(name_problem(good, NameRule::Subdomain), None, "{good}");
        }
        for bad in [
            "",
            "..",
            "a/b",
            "A",
            "-a",
            "a-",
            "a..b",
            "a\0",
            "a\u{1b}[2J",
            &"a".repeat(254),
        ] {
            assert!(name_problem(bad, NameRule::Subdomain).is_some(), "{bad:?}");
        }
        assert!(name_problem("a.b", NameRule::Label).is_some());
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
