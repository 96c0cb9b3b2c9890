//! Lists the machines of the owner's tenant, so that a policy finds machines without an object.

use polity_driver_sdk::prelude::*;

use crate::instance::{Instance, LIVE};
use crate::look;
use crate::manifest;
use crate::marks;

/// Lists the machines: all of the tenant, or those of one owner. EC2 filters: the list of a large tenant has many pages.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    manifest::check_region(cx, "")?;
    let (tenant, owner) = (look::tag(marks::TENANT), look::tag(marks::OWNER));
    let of_owner = [cx.argument("owner")];
    let owned = if cx.has("owner") {
        (&*owner, &of_owner[..])
    } else {
        ("tag-key", &[marks::OWNER][..])
    };
    let filters = [
        (&*tenant, &[cx.tenant()][..]),
        owned,
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
    let is_meant = !cx.has("owner") || owner == cx.argument("owner");
    let is_here = instance.tag(marks::TENANT) == Some(cx.tenant()) && is_meant && !instance.is_gone();
    is_here.then(|| {
        json!({
            "name": instance.tag(marks::NAME).unwrap_or_default(),
            "providerID": instance.provider_id().to_string(),
            "owner": owner,
        })
    })
}
