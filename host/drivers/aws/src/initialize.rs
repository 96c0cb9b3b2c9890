//! Does the setup for which `RunInstances` has no field.
//!
//! Switches off the source/destination check of a new machine, if its class says so. The check is on in every new instance, and
//! must be off if pods have addresses of their own. Assigns the IPv6 prefixes that an interface gets beside addresses.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::instance::Instance;
use crate::interfaces;
use crate::look;
use crate::manifest;
use crate::query::Query;
use crate::spec::Spec;

/// Switches the check off, if the class says so and it is on, and assigns prefixes.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    let spec = Spec::given(cx)?.unwrap_or_default();
    manifest::check_region(cx, &spec.region)?;
    let seen = look::machine(cx).await?;
    let (instance, owned) = look::meant(cx, &seen)?;
    if spec.drops_source_dest_check() && instance.source_dest_check() != Some(false) {
        drop_checks(cx, instance, &owned).await?;
    }
    let wanted = spec.later_prefixes();
    if wanted
        .iter()
        .any(|(index, count)| !instance.has_prefixes(*index, *count as usize))
    {
        let pages = interfaces::look(cx, instance).await?;
        for (interface, lacking) in interfaces::lacking(cx, &pages, &wanted) {
            assign(cx, &interface, lacking).await?;
        }
    }
    Ok(json!({}))
}

/// Switches off the check of an instance, or of each of its interfaces.
async fn drop_checks(cx: &Context, instance: Instance<'_>, owned: &Owned<'_>) -> Result<(), Failure> {
    if instance.interfaces() < 2 {
        return switch_off(cx, "ModifyInstanceAttribute", "InstanceId", owned).await;
    }
    let pages = interfaces::look(cx, instance).await?;
    for interface in interfaces::checked(cx, &pages)? {
        let action = "ModifyNetworkInterfaceAttribute";
        switch_off(cx, action, "NetworkInterfaceId", &interface).await?;
    }
    Ok(())
}

/// Assigns so many IPv6 prefixes to a network interface.
async fn assign(cx: &Context, interface: &Owned<'_>, count: usize) -> Result<(), Failure> {
    const ACTION: &str = "AssignIpv6Addresses";
    let query = Query::new(ACTION)
        .field("NetworkInterfaceId", interface.id())
        .field("Ipv6PrefixCount", count.to_string());
    let root = query
        .keep("", &["networkInterfaceId"])
        .change(cx, interface)
        .await?;
    if tree::text(&root, "networkInterfaceId") == interface.id() {
        Ok(())
    } else {
        let what = format!("it does not name {interface}");
        Err(error::unreadable(ACTION, &what, Effect::Change))
    }
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
