//! The interfaces of a VM, with the addresses that its guest reports.

use std::net::IpAddr;

use polity_driver_sdk::prelude::*;

use crate::devices::{self, DEVICES, Device};
use crate::inventory::unescaped;
use crate::properties::{Object, Property, Set};
use crate::services::Services;
use crate::vm;

/// The guest's report about each interface.
const GUEST: Property = Property::of(
    "guest.net",
    &[
        "GuestNicInfo.macAddress",
        "GuestNicInfo.ipAddress",
        "GuestNicInfo.network",
    ],
);

const NAME: Property = Property::text("name");
const KEY: Property = Property::text("key");
/// The type of the networks that a VM names by a key.
const PORTGROUP: &str = "DistributedVirtualPortgroup";

/// The name of each portgroup, by its key.
type Portgroups = Vec<(String, String)>;

/// `vm.nics`.
pub(crate) async fn nics(cx: &Context) -> Result<Value, Failure> {
    let services = Services::of(cx).await?;
    let listed = Set {
        kind: PORTGROUP,
        properties: &[KEY, NAME],
    };
    let id = cx.argument("id");
    let (vm, networks) = vm::own_through(cx, &services, id, &[DEVICES, GUEST], ("network", listed)).await?;
    let portgroups = portgroups(&networks)?;
    let guest = vm.object.value(&GUEST)?.unwrap_or(&Value::Null);
    let devices = devices::read(&vm.object)?;
    let cards = devices.iter().filter(|device| device.is_card());
    let nics: Vec<Value> = cards.map(|card| describe(card, guest, &portgroups)).collect();
    Ok(json!({"nics": nics}))
}

fn portgroups(networks: &[Object]) -> Result<Portgroups, Failure> {
    let all = networks.iter().filter(|network| network.of.kind == PORTGROUP);
    all.map(|network| {
        let name = unescaped(network.text(&NAME)?);
        Ok((network.text(&KEY)?.to_owned(), name))
    })
    .collect()
}

fn describe(card: &Device<'_>, guest: &Value, portgroups: &Portgroups) -> Value {
    let mac = card.text("macAddress");
    let all = tree::all(guest, "GuestNicInfo");
    let reported = all
        .into_iter()
        .find(|nic| tree::text(nic, "macAddress").eq_ignore_ascii_case(mac));
    let connected = card.text("connectable/connected") == "true";
    // Addresses that a guest reported before its interface was disconnected are outdated.
    let ips = if connected { reported.map(addresses) } else { None };
    json!({
        "network": network(card, reported, portgroups),
        "mac": mac,
        "connected": connected,
        "ips": ips.unwrap_or_default(),
    })
}

/// The name of a card's network. If the VM does not list the portgroup, the principal may not see it; then the name in the
/// guest's report is used, or else the key.
fn network(card: &Device<'_>, reported: Option<&Value>, portgroups: &Portgroups) -> String {
    let key = card.text("backing/port/portgroupKey");
    if key.is_empty() {
        return unescaped(card.text("backing/deviceName"));
    }
    let known = portgroups.iter().find(|(known, _)| known == key);
    let reported = reported
        .map(|nic| tree::text(nic, "network"))
        .filter(|name| !name.is_empty());
    match (known, reported) {
        (Some((_, name)), _) => name.clone(),
        (None, Some(name)) => unescaped(name),
        (None, None) => key.to_owned(),
    }
}

/// The addresses that a guest reports. A guest can write any text, so texts that are not IP addresses are left out.
fn addresses(nic: &Value) -> Vec<String> {
    let all = tree::all(nic, "ipAddress").into_iter().map(tree::own_text);
    all.filter_map(|text| text.parse::<IpAddr>().ok())
        .map(|address| address.to_string())
        .collect()
}
