//! The network interfaces of an instance with several interfaces. EC2 then refuses to change the source/destination check of
//! the instance, and changes it only for each interface.

use std::cmp::Reverse;

use polity_driver_sdk::prelude::*;

use crate::instance::Instance;
use crate::marks;
use crate::pages::List;

/// The list of network interfaces.
const INTERFACES: List = List {
    action: "DescribeNetworkInterfaces",
    element: "networkInterfaceSet",
    row: "networkInterfaceSet.item.",
    fields: &[
        "networkInterfaceId",
        "sourceDestCheck",
        "attachment.deviceIndex",
        "tagSet.item.key",
        "tagSet.item.value",
    ],
};

/// The answers about the interfaces of an instance.
pub(crate) async fn look(cx: &Context, instance: Instance<'_>) -> Result<Vec<Value>, Failure> {
    let filters = [("attachment.instance-id", &[instance.id()][..])];
    INTERFACES.read(cx, &filters).await
}

/// The interfaces that the instance was created with and whose check is on. The primary interface is the last: the instance
/// shows its check as its own, so it must not be off before all other checks are off.
///
/// Interfaces that a network plugin has attached later carry no marks of the owner. They are left to the plugin.
pub(crate) fn checked<'a>(cx: &Context, pages: &'a [Value]) -> Result<Vec<Owned<'a>>, Failure> {
    let mut found = Vec::new();
    for row in pages
        .iter()
        .flat_map(|page| tree::all(page, "networkInterfaceSet/item"))
    {
        let id = tree::text(row, "networkInterfaceId");
        if !id.starts_with("eni-") {
            return Err(INTERFACES.unreadable("a network interface without an id"));
        }
        let is_checked = tree::text(row, "sourceDestCheck") != "false";
        if let (Ok(owned), true) = (marks::owned(cx, id, row), is_checked) {
            let index: u32 = tree::text(row, "attachment/deviceIndex").parse().unwrap_or(0);
            found.push((Reverse(index), owned));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, owned)| owned).collect())
}
