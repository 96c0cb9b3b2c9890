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
        "ipv6PrefixSet.item.ipv6Prefix",
        "tagSet.item.key",
        "tagSet.item.value",
    ],
};

/// The device index of an interface; `None` if it is not attached.
pub(crate) fn index(row: &Value) -> Option<u32> {
    tree::text(row, "attachment/deviceIndex").parse().ok()
}

/// The number of IPv6 prefixes of an interface.
pub(crate) fn prefixes(row: &Value) -> usize {
    tree::all(row, "ipv6PrefixSet/item").len()
}

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
            found.push((Reverse(index(row).unwrap_or(0)), owned));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, owned)| owned).collect())
}

/// The interfaces of the owner that lack IPv6 prefixes, each with the number that it lacks. `wanted` has the numbers by device
/// index.
pub(crate) fn lacking<'a>(
    cx: &Context,
    pages: &'a [Value],
    wanted: &[(u32, u32)],
) -> Vec<(Owned<'a>, usize)> {
    let rows = pages
        .iter()
        .flat_map(|page| tree::all(page, "networkInterfaceSet/item"));
    let lack = |row: &'a Value| {
        let (_, count) = wanted.iter().find(|(at, _)| index(row) == Some(*at))?;
        let lacking = (*count as usize).saturating_sub(prefixes(row));
        let owned = marks::owned(cx, tree::text(row, "networkInterfaceId"), row).ok()?;
        (lacking > 0).then_some((owned, lacking))
    };
    rows.filter_map(lack).collect()
}
