//! Switches off the source/destination check of a new machine, if its class says so. The check is on in every new instance, and
//! must be off if pods have addresses of their own. `RunInstances` has no field for it.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::interfaces;
use crate::look;
use crate::manifest;
use crate::query::Query;
use crate::spec::Spec;

/// Switches the check off, if the class says so and it is on.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    let spec = Spec::given(cx)?.unwrap_or_default();
    manifest::check_region(cx, &spec.region)?;
    let seen = look::machine(cx).await?;
    let (instance, owned) = look::meant(cx, &seen)?;
    if !spec.drops_source_dest_check() || instance.source_dest_check() == Some(false) {
        return Ok(json!({}));
    }
    if instance.interfaces() < 2 {
        switch_off(cx, "ModifyInstanceAttribute", "InstanceId", &owned).await?;
        return Ok(json!({}));
    }
    let pages = interfaces::look(cx, instance).await?;
    for interface in interfaces::checked(cx, &pages)? {
        switch_off(
            cx,
            "ModifyNetworkInterfaceAttribute",
            "NetworkInterfaceId",
            &interface,
        )
        .await?;
    }
    Ok(json!({}))
}

/// Switches off the check of an instance or of a network interface.
async fn switch_off(cx: &Context, action: &'static str, field: &str, id: &Owned<'_>) -> Result<(), Failure> {
    let query = Query::new(action)
        .field(field, id.id())
        .field("SourceDestCheck.Value", "false");
    let root = query.keep("", &["return"]).change(cx, id).await?;
    // AWS's own SDKs do not read this element, so an answer without it is a success.
    match tree::text(&root, "return") {
        "" | "true" => Ok(()),
        other => {
            let what = format!("it returns {other}");
            Err(error::unreadable(action, &what, Effect::Change))
        }
    }
}
