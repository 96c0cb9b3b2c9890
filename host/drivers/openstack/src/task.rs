//! `task.get`. The only tasks are configurations that an appliance has accepted. The id of such a task contains everything
//! about it.

use polity_driver_sdk::prelude::*;

use crate::id::{is_id, missing};

/// The beginning of the id of such a task.
const PUSHED: &str = "pushed";

/// The id of the task of a configuration that a server has accepted: `pushed:SERVER:OWNER`.
pub(crate) fn pushed(cx: &Context, server: &str) -> String {
    format!("{PUSHED}:{server}:{}", cx.owner())
}

/// `task.get`
pub(crate) fn get(cx: &Context) -> Result<Value, Failure> {
    let id = cx.argument("id");
    let missing = || missing("task", id);
    let parts: Vec<&str> = id.splitn(3, ':').collect();
    let [PUSHED, server, owner] = parts[..] else {
        return Err(missing());
    };
    if !is_id(server) || !is_id(owner) {
        return Err(missing());
    }
    let owned = cx.owned(server, Some(owner))?;
    Ok(json!({"id": id, "state": "success", "kind": "push", "vm": owned.id()}))
}
