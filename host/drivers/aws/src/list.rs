//! Lists the machines of the owner's tenant, so that a policy finds machines without an object.

use polity_driver_sdk::prelude::*;

use crate::instance::{Instance, LIVE};
use crate::look;
use crate::manifest;
use crate::marks;

/// Lists the machines.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    manifest::check_region(cx, "")?;
    let tenant = look::tag(marks::TENANT);
    let filters = [
        (&*tenant, &[cx.tenant()][..]),
        ("tag-key", &[marks::OWNER][..]),
        ("instance-state-name", &LIVE[..]),
    ];
    let seen = look::all(cx, &filters).await?;
    let machines: Vec<Value> = seen
        .instances()
        .filter_map(|instance| machine(cx, instance))
        .collect();
    Ok(json!({"machines": machines}))
}

/// A row of the list; `None` if it is not a machine of this tenant, or if its marks name no owner.
fn machine(cx: &Context, instance: Instance<'_>) -> Option<Value> {
    let owner = instance.tag(marks::OWNER).filter(|owner| !owner.is_empty())?;
    let is_here = instance.tag(marks::TENANT) == Some(cx.tenant()) && !instance.is_gone();
    is_here.then(|| {
        json!({
            "name": instance.tag(marks::NAME).unwrap_or_default(),
            "providerID": instance.provider_id().to_string(),
            "owner": owner,
        })
    })
}
