//! The CustomResourceDefinitions that a host needs: its own, and those that policies carry.
//!
//! What a policy carries comes out of a sandbox, and may say anything. A definition reaches a cluster only if
//!
//! - it is a CustomResourceDefinition, called `PLURAL.GROUP`, of an open group, without conversion: otherwise its policy
//!   does not load;
//! - the binding governs its kind, names it in a grant, or lists it in `spec.crds`;
//! - nobody else defined that kind: what this host installs carries the name of its binding in an annotation, and only
//!   that binding changes it.

use polity_core::binding::{Binding, BindingSpec, Grant};
use polity_core::contract::{Kind, Manifest};
use polity_core::grants::is_closed;
use polity_core::object::Object;
use serde_json::{Map, Value, json};

use crate::display::shortened;

/// The annotation of a definition that names the binding for which it was installed.
pub const BINDING: &str = "polity.dev/binding";
/// The annotation of a binding that says which definitions of its policies are not in the cluster, and why.
pub const NOT_INSTALLED: &str = "polity.dev/crds-not-installed";

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";
/// Versions of one definition: each is looked up. Those in use have three or four.
const VERSIONS: usize = 16;
/// Characters of what a manifest says that are shown.
const SHOWN: usize = 300;
/// Characters of all that is wrong with the definitions of a binding: well below what a condition takes.
const PROBLEMS: usize = 4_000;

/// The CRD of PolicyBinding.
pub fn policy_binding() -> Value {
    // The file is part of this source and covered by a test.
    serde_yaml_ng::from_str(include_str!("policybinding.yaml")).unwrap_or_default()
}

/// Whether an object is a CustomResourceDefinition.
pub fn is_crd(object: &Value) -> bool {
    object["kind"] == KIND
}

/// The definitions that a manifest carries, and nothing but what defines their kinds: no labels, annotations, owners or
/// finalizers, by which others would be told to do something with them.
///
/// # Errors
/// What no manifest may carry, with the name of it.
pub fn carried(manifest: &Manifest) -> Result<Vec<Value>, String> {
    if let Some(list) = manifest.crd.as_ref().filter(|crd| crd["kind"] == "List")
        && !list["items"].is_array()
    {
        return Err("the manifest's crd is a List without items".to_owned());
    }
    let mut carried = Vec::<Value>::new();
    for crd in manifest.crds() {
        let definition = checked(crd)?;
        if carried.iter().any(|known| defined(known) == defined(&definition)) {
            let (_, kind) = defined(&definition);
            return Err(format!("the manifest defines {} twice", shown(&json!(kind))));
        }
        carried.push(definition);
    }
    Ok(carried)
}

fn checked(crd: &Value) -> Result<Value, String> {
    if crd["apiVersion"] != API_VERSION || !is_crd(crd) {
        let (kind, version) = (shown(&crd["kind"]), shown(&crd["apiVersion"]));
        return Err(format!(
            "the manifest's crd is {kind} of {version}; a policy may bring nothing but a {KIND} of {API_VERSION}"
        ));
    }
    let name = shown(&crd["metadata"]["name"]);
    let refused = |why: String| Err(format!("the {KIND} {name} of the manifest {why}"));
    let text = |at: &str| crd.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let wanted = format!("{}.{group}", text("/spec/names/plural"));
    if group.is_empty() || kind.is_empty() || text("/metadata/name") != wanted {
        let wanted = shortened(&format!("{wanted:?}"), SHOWN);
        return refused(format!("must be called {wanted}, and name a group and a kind"));
    }
    if !is_open(group, kind) {
        let group = shortened(&format!("{group:?}"), SHOWN);
        return refused(format!("is of the group {group}, which is closed to policies"));
    }
    let versions = crd["spec"]["versions"].as_array();
    if versions.is_none_or(|versions| versions.len() > VERSIONS) {
        return refused(format!("must have a list of at most {VERSIONS} versions"));
    }
    let conversion = &crd["spec"]["conversion"];
    if !conversion.is_null() && *conversion != json!({"strategy": "None"}) {
        return refused("brings a conversion; only the strategy None is taken".to_owned());
    }
    Ok(json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": wanted}, "spec": crd["spec"],
    }))
}

/// Whether a policy may define kinds of this group. Those of Kubernetes itself are its own, whatever is not served yet.
fn is_open(group: &str, kind: &str) -> bool {
    let group = group.to_ascii_lowercase();
    let of_kubernetes = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let kind = Kind {
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
    };
    group.contains('.') && !of_kubernetes("k8s.io") && !of_kubernetes("kubernetes.io") && !is_closed(&kind)
}

/// A definition that a policy of a binding brings, and that the binding lets in.
pub(crate) struct Brought {
    /// The name of the binding.
    pub(crate) binding: String,
    /// Whether the binding governs its kind. It has more to say of it than who is merely granted something.
    pub(crate) governed: bool,
    /// What is applied, with the mark of the binding.
    pub(crate) definition: Value,
}

/// A definition that a policy brings, and that its binding does not let in.
pub(crate) struct LeftOut {
    /// Group and kind.
    pub(crate) kind: (String, String),
    /// What is said of it.
    pub(crate) why: String,
}

/// The definitions that the policies of a binding bring: what the binding lets in, and what it does not.
pub(crate) fn brought(binding: &Binding) -> (Vec<Brought>, Vec<LeftOut>) {
    let (mut brought, mut left_out) = (Vec::<Brought>::new(), Vec::<LeftOut>::new());
    for policy in binding.policies.values() {
        // What no manifest may carry keeps the binding from loading.
        for mut definition in carried(&policy.manifest).unwrap_or_default() {
            let (group, kind) = defined(&definition);
            let governed = is_of(&binding.spec.governs.kind(), &group, &kind);
            if !governed && !is_listed(&binding.spec, &group, &kind) {
                let why = format!(
                    "{}: {} brings it, and the binding neither governs the kind nor grants anything of it nor lists it \
                     in spec.crds",
                    shown(&definition["metadata"]["name"]),
                    shortened(&policy.manifest.name, SHOWN)
                );
                if !left_out.iter().any(|known| known.why == why) {
                    left_out.push(LeftOut {
                        kind: (group, kind),
                        why,
                    });
                }
                continue;
            }
            definition["metadata"]["annotations"] = json!({BINDING: binding.name});
            if !brought.iter().any(|known| known.definition == definition) {
                brought.push(Brought {
                    binding: binding.name.clone(),
                    governed,
                    definition,
                });
            }
        }
    }
    (brought, left_out)
}

/// Whether a binding lists a kind, or names it in a grant.
fn is_listed(spec: &BindingSpec, group: &str, kind: &str) -> bool {
    let listed = spec.crds.iter().any(|of| of.group == group && of.kind == kind);
    listed
        || spec.grants.iter().any(|grant| match grant {
            Grant::Ask(of) | Grant::Create(of) | Grant::Patch(of) | Grant::Delete(of) | Grant::Evict(of) => {
                is_of(&of.kind(), group, kind)
            }
            _ => false,
        })
}

fn is_of(of: &Kind, group: &str, kind: &str) -> bool {
    of.kind == kind && of.api_version.split_once('/').is_some_and(|(of, _)| of == group)
}

/// The group and the kind that a definition defines.
pub(crate) fn defined(definition: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    (text(&spec["group"]), text(&spec["names"]["kind"]))
}

/// The binding for which a definition was installed; none for what a person installed.
pub(crate) fn installed_for(definition: &Value) -> Option<&str> {
    definition["metadata"]["annotations"][BINDING].as_str()
}

/// Whether what stands says all that is wanted. What a server fills in beside that counts as little as the fields
/// that say nothing, which it leaves out.
pub(crate) fn says_all(standing: &Value, wanted: &Value) -> bool {
    match (standing, wanted) {
        (Value::Object(standing), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            let found = standing.get(field);
            found.map_or(says_nothing(wanted), |found| says_all(found, wanted))
        }),
        (Value::Array(standing), Value::Array(wanted)) => {
            standing.len() == wanted.len() && standing.iter().zip(wanted).all(|(s, w)| says_all(s, w))
        }
        (Value::Number(standing), Value::Number(wanted)) => standing.as_f64() == wanted.as_f64(),
        _ => standing == wanted,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The binding with what is wrong with the definitions of its policies. Where nothing is, what was said of it at its
/// last start is taken back from the one that stands.
pub(crate) fn with_problems(binding: &Value, problems: &[String], standing: Option<&Value>) -> Value {
    let mut object = binding.clone();
    let was_said =
        standing.is_some_and(|standing| !standing["metadata"]["annotations"][NOT_INSTALLED].is_null());
    if problems.is_empty() && !was_said {
        return object;
    }
    let said = (!problems.is_empty()).then(|| shortened(&problems.join("; "), PROBLEMS));
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations =
        metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| Map::new().into()));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(NOT_INSTALLED.to_owned(), json!(said));
    }
    object
}

/// What a condition says of the definitions that are not installed.
pub(crate) fn problems(binding: &Object) -> Option<String> {
    let annotations = binding.at("metadata.annotations")?;
    annotations.get(NOT_INSTALLED)?.as_str().map(str::to_owned)
}

fn shown(value: &Value) -> String {
    shortened(&value.to_string(), SHOWN)
}
