//! The checks of every written object: type, pruning, defaults, validation.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    controllers::budget,
    http::{
        refusal::{Cause, Refusal},
        target::{Part, Target},
    },
    kinds::{Rules, admit_crd},
    metadata::{NameRule, problems},
    verbs::fields::FieldCheck,
};

/// The limit for the depth of objects. Clients read JSON up to depth 128 (the limit of serde_json), and an
/// object also comes inside lists, watches and patches. An object that nobody can read would stop every watch
/// of its kind. A real API server accepts 10,000.
pub(crate) const DEPTH: usize = 100;

/// The depth of a value, and the number of values in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    pub(crate) depth: usize,
    pub(crate) count: usize,
}

impl Shape {
    /// Measures a value. A parser with a limit has read it, so recursion is safe.
    pub(crate) fn of(value: &Value) -> Self {
        let within = |shape: Self, inner: &Value| {
            let inner = Self::of(inner);
            Self {
                depth: shape.depth.max(inner.depth),
                count: shape.count + inner.count,
            }
        };
        let inner = match value {
            Value::Array(items) => items.iter().fold(Self::default(), within),
            Value::Object(fields) => fields.values().fold(Self::default(), within),
            _ => return Self { depth: 0, count: 1 },
        };
        Self {
            depth: inner.depth + 1,
            count: inner.count + 1,
        }
    }
}

/// 400: no client could read the object.
pub(crate) fn too_deep() -> Refusal {
    Refusal::bad_request(format!("an object nests at most {DEPTH} values deep"))
}

/// Checks that a body is an object of the kind and place in its path, and sets its place from there.
pub(crate) fn check_place(target: &Target, object: &mut Value) -> Result<(), Refusal> {
    let (version, kind) = (target.api_version(), &target.kind.kind);
    let Some(fields) = object.as_object_mut() else {
        return Err(Refusal::bad_request("the body is no JSON object"));
    };
    for (field, wanted) in [("apiVersion", &version), ("kind", kind)] {
        if target.kind.rules == Rules::Custom && !fields.contains_key(field) {
            let message =
                format!("the object provided is unrecognized (must be of type {kind}): {field} is missing");
            return Err(Refusal::bad_request(message));
        }
        let found = fields.entry(field).or_insert_with(|| json!(wanted));
        if found.as_str() != Some(wanted) {
            let message =
                format!("the {field} in the data ({found}) does not match the expected {field} ({wanted})");
            return Err(Refusal::bad_request(message));
        }
    }
    check_identity(target, fields)
}

/// Checks that a body has the place in its path, and sets its place from there.
pub(crate) fn check_identity(target: &Target, fields: &mut Map<String, Value>) -> Result<(), Refusal> {
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Refusal::bad_request("metadata is no JSON object"));
    };
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    check_namespace(metadata, target.namespace.as_deref())?;
    match target.name.as_deref() {
        Some(name) => check_name(metadata, name),
        None => Ok(()),
    }
}

/// Sets the namespace of an object that names none. Removes it from a cluster-scoped object.
fn check_namespace(metadata: &mut Map<String, Value>, wanted: Option<&str>) -> Result<(), Refusal> {
    let found = text(metadata, "namespace");
    let Some(wanted) = wanted else {
        metadata.remove("namespace");
        return Ok(());
    };
    if found.is_empty() {
        metadata.insert("namespace".to_owned(), json!(wanted));
    } else if found != wanted {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Checks that a change names its object (apiserver `checkName`).
fn check_name(metadata: &Map<String, Value>, wanted: &str) -> Result<(), Refusal> {
    let found = text(metadata, "name");
    if found == wanted {
        return Ok(());
    }
    Err(Refusal::bad_request(if found.is_empty() {
        format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({found}) does not match the name on the URL ({wanted})")
    }))
}

fn text<'a>(metadata: &'a Map<String, Value>, field: &str) -> &'a str {
    metadata.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Brings an object into its stored form. `old` is the stored object. Returns warnings about ignored fields.
///
/// # Errors
/// 422 with every violation and its path. For ignored fields that the client refuses: 400, and 422 for a
/// patch.
pub(crate) fn conform(
    target: &Target,
    object: &mut Value,
    old: Option<&Value>,
    fields: FieldCheck,
    now: &str,
) -> Result<Vec<String>, Refusal> {
    if Shape::of(object).depth > DEPTH {
        return Err(too_deep());
    }
    target.kind.to_storage(object);
    let schema = &target.version().schema;
    let unknown = schema.prune(object);
    let of = (target.kind.kind.as_str(), target.version().name.as_str());
    let warnings = fields.judge(of, object, &unknown)?;
    tidy(object);
    schema.fill_in(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut causes = schema.validate(object, old);
    if let Some(scale) = &target.version().scale {
        causes.extend(scale.faults(object, target.part == Part::Status));
    }
    if causes.is_empty() {
        causes = problems(object, target.name_rule());
    }
    if causes.is_empty() {
        causes = builtin_rules(target, object, now).err().unwrap_or_default();
    }
    if !causes.is_empty() {
        return Err(Refusal::invalid(target.kind.invalid_subject(&name), &causes));
    }
    target.kind.keep(target.version(), object);
    Ok(warnings)
}

/// Removes empty metadata, as a real API server does: `finalizers: []`, `creationTimestamp: null`.
fn tidy(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if metadata.values().any(says_nothing) {
        metadata.retain(|_, value| !says_nothing(value));
    }
}

fn builtin_rules(target: &Target, object: &mut Value, now: &str) -> Result<(), Vec<Cause>> {
    match target.kind.rules {
        Rules::Crd => admit_crd(object, now)?,
        Rules::Budget => budget::admit(object)?,
        Rules::Secret => merge_string_data(object),
        Rules::Namespace => {
            let name = object["metadata"]["name"].clone();
            debug_assert_eq!(target.name_rule(), NameRule::Label);
            if !object["metadata"]["labels"].is_object() {
                object["metadata"]["labels"] = json!({});
            }
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        _ => {}
    }
    Ok(())
}

/// Moves `stringData`, which is for writing only, encoded into `data`.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.as_object_mut().and_then(|s| s.remove("stringData")) else {
        return;
    };
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    for (key, text) in texts {
        secret["data"][key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}
