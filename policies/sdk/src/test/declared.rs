//! What a manifest declares, and what the policy did: a host falls out with a policy that does more.

use polity_contract::merge::{declares, edits};
use polity_contract::{Kind, Manifest};
use serde_json::Value;

use crate::Need;
use crate::contract::{Act, ObjectRef, Question, Request};

use super::describe;

/// Fields of an object that are the API server's: a conclusion that edits them is never published. As the host has them.
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
/// What the types of the host's own conditions begin with.
const HOST_CONDITIONS: &str = "status.conditions[polity.dev/";

/// What a patch of the primary writes and must not; none if nothing.
pub(super) fn undeclared_write(manifest: &Manifest, snapshot: &Value, patch: &Value) -> Option<String> {
    let finalizer = manifest.finalizer.as_ref();
    let own = finalizer.map(|name| format!("metadata.finalizers[{name}]"));
    edits(snapshot, patch).into_iter().find_map(|edit| {
        let path = edit.path;
        if declares("status.pending", &path) {
            return Some(format!("{path}, which is the host's"));
        }
        if path.starts_with(HOST_CONDITIONS) {
            // Whoever replaces the whole list leaves them out; the host puts them back.
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

/// A request that is neither among what a manifest needs nor granted beyond that, in words; none if it is.
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

/// What a policy has to declare for a request.
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
            // Whoever may mint may.
            Act::Revoke(_) => return None,
        },
    })
}

/// Whether what is declared covers what is needed: names may end in `*`.
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
