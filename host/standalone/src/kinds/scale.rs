//! The subresource `scale` of custom kinds: where an object has its numbers, and the `Scale` (autoscaling/v1)
//! that shows them.
//!
//! As in apiextensions-apiserver: `scaleFromCustomResource` and `scaleUpdatedObjectInfo` in
//! `pkg/registry/customresource/etcd.go`, `ValidateScaleSpec` and `ValidateScaleStatus` in `validator.go` beside
//! it, `ValidateCustomResourceDefinitionSubresources` in `pkg/apis/apiextensions/validation`.

use std::sync::OnceLock;

use polity_kube_rules::schema::{Dialect, Schema, compile};
use serde_json::{Map, Value, json};

use super::meta;
use crate::http::refusal::Cause;

/// The paths of an object's numbers, such as `.spec.replicas`.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The wanted number.
    pub(crate) spec_replicas: String,
    /// The observed one.
    status_replicas: String,
    /// A label selector in text form.
    label_selector: Option<String>,
}

impl Scale {
    /// What a `Scale` has in place of a wanted number that the object lacks (`invalidSpecReplicas`): a change
    /// must replace it.
    pub(crate) const UNSET: i64 = -2_147_483_648;

    /// The type of a `Scale`: its kind and version, for refusals.
    pub(crate) const TYPE: (&'static str, &'static str) = ("Scale", "v1");

    /// What a version of a CRD declares; `None` if its objects have no scale. `path` is that of the version.
    pub(super) fn declared(path: &str, version: &Value, causes: &mut Vec<Cause>) -> Option<Self> {
        let scale = &version["subresources"]["scale"];
        if scale.is_null() {
            return None;
        }
        let path = format!("{path}.subresources.scale");
        let mut field = |name: &str, parts: &[&str], said: &str| {
            let field = format!("{path}.{name}");
            causes.extend(fault(&field, &scale[name], parts, said));
            scale[name].as_str().unwrap_or_default().to_owned()
        };
        let spec_replicas = field("specReplicasPath", &[".spec."], ".spec");
        let status_replicas = field("statusReplicasPath", &[".status."], ".status");
        let selector = scale["labelSelectorPath"].as_str();
        let has_one = selector.is_some_and(|path| !path.is_empty());
        let either = "either .spec or .status";
        let label_selector = has_one.then(|| field("labelSelectorPath", &[".spec.", ".status."], either));
        Some(Self {
            spec_replicas,
            status_replicas,
            label_selector,
        })
    }

    /// The `Scale` of an object.
    ///
    /// # Errors
    /// A field of the object is not what its path promises.
    pub(crate) fn of(&self, object: &Value) -> Result<Value, String> {
        let wanted = number(object, &self.spec_replicas)?.unwrap_or(Self::UNSET);
        let observed = number(object, &self.status_replicas)?.unwrap_or(0);
        let mut scale = json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": identity(&object["metadata"]),
            "spec": {},
            "status": { "replicas": observed },
        });
        if wanted != 0 {
            scale["spec"]["replicas"] = json!(wanted);
        }
        if let Some(selector) = self.selector(object)?.filter(|selector| !selector.is_empty()) {
            scale["status"]["selector"] = json!(selector);
        }
        Ok(scale)
    }

    /// Writes the wanted number and the resourceVersion of a `Scale` into its object.
    ///
    /// # Errors
    /// Something on the way to the number is no object.
    pub(crate) fn put(&self, scale: &Value, object: &mut Value) -> Result<(), String> {
        let version = &scale["metadata"]["resourceVersion"];
        if version.as_str().is_some_and(|version| !version.is_empty()) {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        let mut at = object;
        for name in names(&self.spec_replicas) {
            let Some(fields) = at.as_object_mut() else {
                let path = &self.spec_replicas;
                return Err(format!("{path} cannot be set: it does not lie in objects"));
            };
            at = fields.entry(name).or_insert_with(|| json!({}));
        }
        *at = json!(scale["spec"]["replicas"].as_i64().unwrap_or(0));
        Ok(())
    }

    /// What is wrong with the numbers of an object, in a change of the whole or of the status alone.
    pub(crate) fn faults(&self, object: &Value, of_status: bool) -> Vec<Cause> {
        let range = |path: &str| {
            let why = match number(object, path) {
                Ok(Some(small)) if small < 0 => "should be a non-negative integer".to_owned(),
                Ok(Some(large)) if large > i64::from(i32::MAX) => {
                    format!("should be less than or equal to {}", i32::MAX)
                }
                Ok(_) => return None,
                Err(why) => why,
            };
            Some(Cause::invalid(path, at(object, path)?, &why))
        };
        let paths = [&self.spec_replicas, &self.status_replicas];
        let mut faults: Vec<Cause> = paths[usize::from(of_status)..]
            .iter()
            .filter_map(|path| range(path))
            .collect();
        if let (Err(why), Some(path)) = (self.selector(object), &self.label_selector) {
            faults.extend(at(object, path).map(|value| Cause::invalid(path, value, &why)));
        }
        faults
    }

    fn selector<'a>(&self, object: &'a Value) -> Result<Option<&'a str>, String> {
        let Some(path) = &self.label_selector else {
            return Ok(None);
        };
        let text = |value: &'a Value| {
            let text = value.as_str();
            text.ok_or_else(|| format!("{path} accessor error: expected a string"))
        };
        at(object, path).map(text).transpose()
    }

    /// The schema of a `Scale`.
    pub(crate) fn schema() -> &'static Schema {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(|| {
            let number = json!({ "type": "integer", "format": "int32", "nullable": true });
            let text = json!({ "type": "string", "nullable": true });
            let part = |fields: Value| json!({ "type": "object", "nullable": true, "properties": fields });
            let schema = json!({
                "type": "object",
                "properties": {
                    "spec": part(json!({ "replicas": number })),
                    "status": part(json!({ "replicas": number, "selector": text })),
                },
            });
            let schema = compile(Dialect::Structural, "", &schema).expect("the schema of a scale is our own");
            meta::rooted(schema)
        })
    }
}

/// What is wrong with a path that a CRD names, if anything.
fn fault(field: &str, path: &Value, parts: &[&str], said: &str) -> Option<Cause> {
    let text = path.as_str().unwrap_or_default();
    if text.is_empty() {
        return Some(Cause::required(field, ""));
    }
    if !text.starts_with('.') {
        let why = "must be a simple json path starting with .";
        return Some(Cause::invalid(field, path, why));
    }
    let lies_in_one = parts.iter().any(|part| text.starts_with(part));
    (!lies_in_one).then(|| Cause::invalid(field, path, &format!("should be a json path under {said}")))
}

/// The metadata of an object that its `Scale` shows.
fn identity(metadata: &Value) -> Map<String, Value> {
    let shown = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    shown
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), metadata.get(field)?.clone())))
        .collect()
}

/// The names in a path: `spec`, `replicas`.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    names(path).try_fold(object, |value, name| value.get(name))
}

/// The number at a path; `None` if there is nothing.
fn number(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let number = |value: &Value| {
        let number = value.as_i64();
        number.ok_or_else(|| format!("{path} accessor error: expected an integer"))
    };
    at(object, path).map(number).transpose()
}
