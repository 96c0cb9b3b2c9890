//! Compares what a policy did with its manifest. A host refuses anything beyond it.

use polity_contract::merge::{declares, edits};
use polity_contract::{Kind, Manifest};
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::Value;

use crate::Need;
use crate::contract::{Act, ObjectRef, Question, Request};

use super::describe;

/// Fields of an object that belong to the API server. The host never publishes a conclusion that edits them.
/// The list is the host's.
const SERVER_OWNED: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.generateName",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.managedFields",
];
/// The beginning of the types of the host's own conditions.
const HOST_CONDITIONS: &str = "status.conditions[polity.dev/";

/// The most notes of a pass (the default of `spec.limits.notes`), and the most bytes of one.
const NOTES: usize = 256;
const NOTE: usize = 1_024;

/// Why the host refuses a configuration; `None` if it fits the schema.
pub(super) fn misconfigured(schema: &Value, config: &Value) -> Option<String> {
    let schema = compile(Dialect::Json, "configSchema", schema);
    let schema = schema.unwrap_or_else(|e| panic!("the host refuses the schema of the configuration: {e}"));
    schema.check(config).err().map(|causes| causes.to_string())
}

/// Why notes are wrong; `None` if each is an edge of the manifest, or the manifest has no edges.
pub(super) fn bad_note(manifest: &Manifest, notes: &[String]) -> Option<String> {
    if notes.len() > NOTES {
        return Some(format!(
            "the conclusion has {} notes; the limit is {NOTES}",
            notes.len()
        ));
    }
    let edges = &manifest.edges;
    let is_edge = |note: &String| edges.is_empty() || edges.iter().any(|edge| edge.id == *note);
    let wrong = notes.iter().find(|note| note.len() > NOTE || !is_edge(note))?;
    let wrong: String = wrong.chars().take(80).collect();
    Some(format!(
        "the note {wrong:?} is no edge of the manifest: add it to Manifest::edges"
    ))
}

/// A path that a patch of the primary must not write; `None` if there is none.
pub(super) fn undeclared_write(manifest: &Manifest, snapshot: &Value, patch: &Value) -> Option<String> {
    let finalizer = manifest.finalizer.as_ref();
    let own = finalizer.map(|name| format!("metadata.finalizers[{name}]"));
    edits(snapshot, patch).into_iter().find_map(|edit| {
        let path = edit.path;
        if declares("status.pending", &path) {
            return Some(format!("{path}, which is the host's"));
        }
        if path.starts_with(HOST_CONDITIONS) {
            // A policy that replaces the whole list leaves the host's conditions out. The host puts them
            // back, so this is no fault.
            return (!edit.removes).then(|| format!("{path}, which is the host's"));
        }
        if SERVER_OWNED.iter().any(|owned| declares(owned, &path)) {
            return Some(format!("{path}, which is the API server's"));
        }
        let is_declared =
            own.as_ref() == Some(&path) || manifest.writes.iter().any(|declared| declares(declared, &path));
        (!is_declared)
            .then(|| format!("{path}, which its manifest does not declare: add it to Manifest::writes"))
    })
}

/// A description of a request that is neither a need of the manifest nor granted beyond it; `None` if it is
/// one of them.
pub(super) fn undeclared_need(needs: &[Need], grants: &[Need], request: &Request) -> Option<String> {
    let need = need_of(request)?;
    let is_covered = needs.iter().chain(grants).any(|known| covers(known, &need));
    (!is_covered).then(|| {
        let request = describe(request);
        format!(
            "{request}, which its manifest does not declare: add Need::{need:?} to Manifest::needs, or to World::grants where \
             the policy can do without it"
        )
    })
}

/// The need that a policy must declare for a request.
fn need_of(request: &Request) -> Option<Need> {
    Some(match request {
        Request::Ask(ask) => match &ask.question {
            Question::Object(query) => Need::Objects(kind(&query.object)),
            Question::Objects(query) => Need::Objects(Kind {
                api_version: query.api_version.clone(),
                kind: query.kind.clone(),
            }),
            Question::Secret(_) => Need::Secrets,
            Question::Cloud(call) => Need::Cloud(call.operation.clone()),
            Question::Lock(name) => Need::Lock(name.clone()),
            Question::Credential(plan) if plan == "null" => return None,
            Question::Credential(_) => Need::Credential,
            Question::Reachable(_) => Need::Reachable,
        },
        Request::Act(act) => match act {
            Act::Cloud(act) => Need::Cloud(act.operation.clone()),
            Act::Create(create) => Need::Create(kind_of(&create.object)),
            Act::Patch(patch) => Need::Patch(kind(&patch.object)),
            Act::Delete(delete) => Need::Delete(kind(&delete.object)),
            Act::Evict(_) => Need::Evict,
            Act::Mint(mint) => Need::Mint(mint.kind.clone()),
            // A policy that may mint may also revoke.
            Act::Revoke(_) => return None,
        },
    })
}

/// Whether a declared need covers another one. A name may end in `*`.
fn covers(declared: &Need, need: &Need) -> bool {
    match (declared, need) {
        (Need::Cloud(declared), Need::Cloud(name)) | (Need::Lock(declared), Need::Lock(name)) => {
            match declared.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => declared == name,
            }
        }
        (declared, need) => declared == need,
    }
}

fn kind(object: &ObjectRef) -> Kind {
    Kind {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
    }
}

/// The kind of an object that is created.
fn kind_of(object: &str) -> Kind {
    let object: Value = serde_json::from_str(object).unwrap_or_default();
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    Kind {
        api_version: text("apiVersion"),
        kind: text("kind"),
    }
}
