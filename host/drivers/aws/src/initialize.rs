//! Sets up what the creation of a machine leaves open: the source/destination check. It is on in every new instance,
//! and must be off where pods have addresses of their own. `RunInstances` has no field for it.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::look;
use crate::manifest;
use crate::query::Query;
use crate::spec::Spec;

const ACTION: &str = "ModifyInstanceAttribute";

pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    let spec = Spec::given(cx)?.unwrap_or_default();
    manifest::check_region(cx, &spec.region)?;
    let seen = look::machine(cx).await?;
    let (instance, owned) = look::meant(cx, &seen)?;
    if !spec.drops_source_dest_check() || instance.source_dest_check() == Some(false) {
        return Ok(json!({}));
    }
    let query = Query::new(ACTION)
        .field("InstanceId", owned.id())
        .field("SourceDestCheck.Value", "false");
    let root = query.keep("", &["return"]).change(cx, &owned).await?;
    match tree::text(&root, "return") {
        "true" => Ok(json!({})),
        _ => Err(error::unreadable(
            ACTION,
            "it does not say that it is done",
            Effect::Change,
        )),
    }
}
