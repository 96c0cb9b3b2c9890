//! Decides whether a namespace may use an identity (CAPA-N1 to CAPA-N12).
//!
//! The decision uses `allowedNamespaces` as it is stored: a field that is present and empty differs from a missing one.

use polity_sdk::LabelSelector;
use polity_sdk::prelude::*;
use serde_json::Value;

use crate::object::Namespace;
use crate::stop::{ALLOWED, Stop};
use crate::{Cx, lookup};

/// The known fields of `allowedNamespaces`.
const FIELDS: [&str; 2] = ["list", "selector"];

/// The decision of an identity about a namespace.
pub(crate) enum Answer {
    /// The namespace may use the identity.
    Allowed,
    /// The namespace may not use it.
    Denied,
    /// The namespace may not use it, because of this unknown field. Without the field, every namespace might be
    /// allowed.
    Unknown(String),
}

/// Whether `allowedNamespaces` allows this namespace; `of` names the identity.
pub(crate) async fn namespace(
    cx: &Cx,
    allowed: &Value,
    namespace: Option<&str>,
    of: &str,
) -> Result<Answer, Stop> {
    let given = |key: &str| allowed.get(key).filter(|value| !value.is_null());
    let (list, selector) = (given("list"), given("selector"));
    if allowed.is_null() {
        return Ok(decided(cx, "CAPA-N1", false));
    }
    let Some(fields) = allowed.as_object() else {
        return Err(invalid(cx, of, "it is not an object"));
    };
    if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        cx.note("CAPA-N12");
        return Ok(Answer::Unknown(unknown.clone()));
    }
    if list.is_none() && selector.is_none() {
        return Ok(decided(cx, "CAPA-N2", true));
    }
    let Some(namespace) = namespace else {
        return Ok(decided(cx, "CAPA-N11", false));
    };
    let names = match list {
        None => &[],
        Some(Value::Array(names)) => names.as_slice(),
        Some(_) => return Err(invalid(cx, of, "its list is not a list")),
    };
    if names.iter().any(|name| name == namespace) {
        return Ok(decided(cx, "CAPA-N3", true));
    }
    match selector {
        None | Some(Value::Object(_)) => {}
        Some(_) => return Err(invalid(cx, of, "its selector is not an object")),
    }
    let Some(selector) = selector.filter(|selector| !is_empty(selector)) else {
        let id = if names.is_empty() { "CAPA-N5" } else { "CAPA-N4" };
        return Ok(decided(cx, id, false));
    };
    let parts = selector.as_object().into_iter().flat_map(|parts| parts.values());
    if parts.clone().all(|part| part.is_null() || is_empty(part)) {
        return Ok(decided(cx, "CAPA-N6", false));
    }
    if !names.is_empty() {
        cx.note("CAPA-N10");
    }
    let selector = LabelSelector::read(selector).map_err(|wrong| invalid(cx, of, &wrong))?;
    let found = cx.ask(cluster::object::<Namespace>(namespace)).await;
    let found = found.map_err(|failure| lookup::failed(cx, Namespace::KIND, namespace, failure))?;
    Ok(if selector.matches(&found.metadata.labels) {
        decided(cx, "CAPA-N7", true)
    } else {
        decided(cx, "CAPA-N8", false)
    })
}

/// Notes the row of the table that decided.
fn decided(cx: &Cx, id: &str, allowed: bool) -> Answer {
    cx.note(id);
    if allowed { Answer::Allowed } else { Answer::Denied }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.is_empty())
        || value.as_array().is_some_and(|elements| elements.is_empty())
}

/// The value has no clear meaning, so the namespace is neither allowed nor denied.
fn invalid(cx: &Cx, of: &str, wrong: &str) -> Stop {
    cx.note("CAPA-N9");
    let message = format!("allowedNamespaces of {of} cannot be understood: {wrong}");
    Stop::new(
        ALLOWED,
        ConditionStatus::Unknown,
        "AllowedNamespacesInvalid",
        message,
    )
}
