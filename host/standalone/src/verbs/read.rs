//! Reading one object, or a page of many.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, selection::Selection};
use crate::{
    http::{query::Query, refusal::Refusal},
    store::{Object, Place, State},
};

/// A page of a list.
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// The list's own metadata.
    pub(crate) metadata: Value,
}

/// A continue token: the next page begins after this object, in the state of this revision.
#[derive(Serialize, Deserialize)]
struct Continue {
    revision: u64,
    namespace: String,
    name: String,
}

/// One object.
pub(crate) fn get(call: &Call<'_>) -> Result<Object, Refusal> {
    let (key, name) = call.target.named()?;
    let state = call.store.read();
    if let Some(asked) = call.query.resource_version()? {
        check_not_newer(&state, asked)?;
    }
    state
        .get(&key)
        .cloned()
        .ok_or_else(|| Refusal::not_found(call.target.subject(name)))
}

/// The selected objects, sorted by name.
pub(crate) fn list(call: &Call<'_>) -> Result<Page, Refusal> {
    let selection = Selection::of(call.target, call.query)?;
    let state = call.store.read();
    let Some(table) = state.table(&call.target.kind.storage) else {
        return Err(Refusal::no_such_path());
    };
    let (revision, after) = start(call.query, &state)?;
    let past;
    let objects = if revision == state.revision {
        &table.objects
    } else {
        past = table.at(revision)?;
        &past
    };
    let first = (
        Arc::from(selection.namespace.as_deref().unwrap_or_default()),
        Arc::from(""),
    );
    let in_scope = |namespace: &str| {
        selection
            .namespace
            .as_deref()
            .is_none_or(|wanted| wanted == namespace)
    };
    let mut selected = objects
        .range(first..)
        .take_while(|((namespace, _), _)| in_scope(namespace))
        .filter(|(place, _)| after.as_ref().is_none_or(|after| *place > after))
        .filter(|(_, object)| selection.matches(object));
    let limit = call.query.number("limit")?.filter(|&limit| limit > 0);
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    let mut page = Vec::new();
    let mut last = None;
    for (place, object) in selected.by_ref().take(limit) {
        page.push(object.clone());
        last = Some(place);
    }
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let (Some((namespace, name)), Some(_)) = (last, selected.next()) {
        let next = Continue {
            revision,
            namespace: namespace.to_string(),
            name: name.to_string(),
        };
        metadata["continue"] = json!(next.encode());
        if !selection.is_narrow() {
            metadata["remainingItemCount"] = json!(selected.count() + 1);
        }
    }
    Ok(Page {
        objects: page,
        metadata,
    })
}

/// The revision to list at, and the object after which the page begins.
fn start(query: &Query, state: &State) -> Result<(u64, Option<Place>), Refusal> {
    if let Some(token) = query.get("continue") {
        let token = Continue::decode(token)?;
        check_not_newer(state, token.revision)?;
        return Ok((token.revision, Some((token.namespace.into(), token.name.into()))));
    }
    let asked = query.resource_version()?;
    check_not_newer(state, asked.unwrap_or(0))?;
    match (query.get("resourceVersionMatch"), asked) {
        (None | Some("NotOlderThan"), _) => Ok((state.revision, None)),
        (Some("Exact"), Some(revision)) if revision > 0 => Ok((revision, None)),
        (Some("Exact"), _) => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            Err(Refusal::list_option("resourceVersionMatch", why))
        }
        (Some(other), _) => Err(Refusal::bad_request(format!(
            "invalid resourceVersionMatch {other:?}"
        ))),
    }
}

fn check_not_newer(state: &State, asked: u64) -> Result<(), Refusal> {
    if asked > state.revision {
        Err(Refusal::too_new(asked, state.revision))
    } else {
        Ok(())
    }
}

impl Continue {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn decode(token: &str) -> Result<Self, Refusal> {
        let json = URL_SAFE_NO_PAD.decode(token).ok();
        json.and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| Refusal::bad_request("continue key is not valid"))
    }
}
