//! The CustomResourceDefinitions that a host installs: its own, and those that policies carry.
//!
//! A policy is untrusted, so its definitions may say anything. One of them is installed only if
//!
//! - it is a CustomResourceDefinition called `PLURAL.GROUP`, its group is open to policies, and it has no
//!   conversion; otherwise the policy does not load;
//! - the binding governs its kind, names the kind in a grant, or lists it in `spec.crds`;
//! - nobody else defined the kind. A definition that the host installs names its binding in an annotation,
//!   and only that binding changes it.

use polity_core::binding::{Binding, BindingSpec, Grant};
use polity_core::contract::{Kind, Manifest};
use polity_core::grants::is_closed;
use polity_core::object::Object;
use serde_json::{Map, Value, json};

use crate::display::shortened;

/// The annotation of a definition that names the binding for which the host installed it.
pub const BINDING: &str = "polity.dev/binding";
/// The annotation of a binding that says which of its policies' definitions are not installed, and why.
pub const NOT_INSTALLED: &str = "polity.dev/crds-not-installed";

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";
/// The most versions of one definition. Each is looked up; definitions in use have three or four.
const VERSIONS: usize = 16;
/// The most characters of a manifest's text that a message shows.
const SHOWN: usize = 300;
/// The most characters of all problems with the definitions of one binding. A condition's message may have
/// 32,768.
const PROBLEMS: usize = 4_000;

/// The CRD of PolicyBinding.
pub fn policy_binding() -> Value {
    // The file is part of this source and covered by a test.
    serde_saphyr::from_str(include_str!("policybinding.yaml")).unwrap_or_default()
}

/// The CRD of CloudConnection.
pub fn cloud_connection() -> Value {
    // As above.
    serde_saphyr::from_str(include_str!("cloudconnection.yaml")).unwrap_or_default()
}

/// Whether an object is a CustomResourceDefinition.
pub fn is_crd(object: &Value) -> bool {
    object["kind"] == KIND
}

/// The definitions that a manifest carries, reduced to the fields that define their kinds. Labels,
/// annotations, owners and finalizers are dropped, because other controllers act on them.
///
/// # Errors
/// The manifest carries something that no manifest may carry. The message names it.
pub fn carried(manifest: &Manifest) -> Result<Vec<Value>, String> {
    if let Some(list) = manifest.crd.as_ref().filter(|crd| crd["kind"] == "List")
        && !list["items"].is_array()
    {
        return Err("crd in the manifest is a List without items".to_owned());
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
            "crd in the manifest is {kind} of {version}; expected a {KIND} of {API_VERSION}"
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

/// Whether a policy may define kinds of this group. Groups of Kubernetes are closed, also for kinds that
/// Kubernetes does not serve yet.
pub(crate) fn is_open(group: &str, kind: &str) -> bool {
    let group = group.to_ascii_lowercase();
    let of_kubernetes = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let kind = Kind {
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
    };
    group.contains('.') && !of_kubernetes("k8s.io") && !of_kubernetes("kubernetes.io") && !is_closed(&kind)
}

/// A definition that a policy carries and that its binding allows.
pub(crate) struct Brought {
    /// The name of the binding.
    pub(crate) binding: String,
    /// Whether the binding governs the kind. Its definition is preferred to that of a binding which is only
    /// granted access to the kind.
    pub(crate) governed: bool,
    /// The definition to apply, annotated with the binding.
    pub(crate) definition: Value,
}

/// A definition that a policy carries and that its binding does not allow.
pub(crate) struct LeftOut {
    /// Group and kind.
    pub(crate) kind: (String, String),
    /// The reason.
    pub(crate) why: String,
}

/// The definitions that a binding's policies carry: those that the binding allows, and the others.
pub(crate) fn brought(binding: &Binding) -> (Vec<Brought>, Vec<LeftOut>) {
    let (mut brought, mut left_out) = (Vec::<Brought>::new(), Vec::<LeftOut>::new());
    for policy in binding.policies.values() {
        // An error here keeps the binding from loading, where it is reported.
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

/// The group and kind of a definition.
pub(crate) fn defined(definition: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    (text(&spec["group"]), text(&spec["names"]["kind"]))
}

/// The binding for which a definition was installed; `None` if a person installed it.
pub(crate) fn installed_for(definition: &Value) -> Option<&str> {
    definition["metadata"]["annotations"][BINDING].as_str()
}

/// Whether the standing object has all that is wanted. Fields that a server filled in are ignored. So are
/// wanted fields with an empty value, which servers leave out.
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

/// The binding with an annotation that lists the problems of its definitions. If there are none, the
/// annotation that an earlier start left on the standing binding is removed.
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

/// The message about definitions that are not installed; `None` if all are.
pub(crate) fn problems(binding: &Object) -> Option<String> {
    let annotations = binding.at("metadata.annotations")?;
    annotations.get(NOT_INSTALLED)?.as_str().map(str::to_owned)
}

fn shown(value: &Value) -> String {
    shortened(&value.to_string(), SHOWN)
}
