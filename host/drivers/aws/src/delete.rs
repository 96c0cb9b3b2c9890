//! Removes a machine.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::look;
use crate::manifest;
use crate::query::Query;

/// The action that removes instances.
const ACTION: &str = "TerminateInstances";

/// Removes the machine. An instance that EC2 shows as terminated is removed already; if EC2 shows none, the answer is
/// `not-found`, because EC2 does not show each new instance at once.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    // Only the region of the class is checked here. A class that has become invalid must not block a deletion.
    manifest::check_region(cx, cx.argument("providerSpec.region"))?;
    let seen = look::machine(cx).await?;
    let (instance, owned) = look::known(cx, &seen)?;
    if instance.is_gone() {
        return Ok(json!({}));
    }
    terminate(cx, &owned).await
}

/// Removes the machine of another owner of the tenant. If it is gone already, the answer is `not-found`.
pub(crate) async fn orphan(cx: &Context) -> Result<Value, Failure> {
    manifest::check_region(cx, "")?;
    let seen = look::machine(cx).await?;
    terminate(cx, &look::orphan(cx, &seen)?).await
}

async fn terminate(cx: &Context, owned: &Owned<'_>) -> Result<Value, Failure> {
    let query = Query::new(ACTION).field("InstanceId.1", owned.id());
    let root = query
        .keep("instancesSet.item.", &["instanceId"])
        .change(cx, owned)
        .await?;
    let terminated = tree::all(&root, "instancesSet/item");
    if terminated
        .iter()
        .any(|row| tree::text(row, "instanceId") == owned.id())
    {
        Ok(json!({}))
    } else {
        let what = format!("it does not name {owned}");
        Err(error::unreadable(ACTION, &what, Effect::Change))
    }
}
