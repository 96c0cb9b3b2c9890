//! The guest metadata for cloud-init in the VM.

use std::collections::BTreeMap;

use polity_sdk::cloud::vm::Nic;
use polity_sdk::prelude::*;

use crate::object::{Device, Machine, Route};

/// Computes the metadata from the spec and from the MAC addresses that the VM *reports*. The addresses in `status`
/// are written only after the metadata is right. cloud-init accepts JSON as YAML. The order of the fields is fixed,
/// so that equal metadata is equal text.
pub(crate) fn of(machine: &Machine, nics: &[Nic]) -> String {
    let name = &machine.metadata.name;
    let devices = &machine.spec.network.devices;
    let macs = interfaces(devices, nics)
        .into_iter()
        .map(|nic| nic.map(|nic| nic.mac.as_str()));
    let ethernets = devices.iter().zip(macs).enumerate();
    let guest = Guest {
        instance_id: name,
        local_hostname: name,
        network: Network {
            version: 2,
            ethernets: ethernets
                .map(|(n, (device, mac))| (format!("id{n}"), ethernet(n, device, mac)))
                .collect(),
        },
    };
    serde_json::to_string(&guest).expect("metadata has a JSON form")
}

/// The interface of each device: the nth device on a network is the VM's nth interface on that network.
pub(crate) fn interfaces<'a>(devices: &[Device], nics: &'a [Nic]) -> Vec<Option<&'a Nic>> {
    let mut free: Vec<&Nic> = nics.iter().collect();
    devices
        .iter()
        .map(|device| {
            let at = free.iter().position(|nic| nic.network == device.network_name)?;
            Some(free.remove(at))
        })
        .collect()
}

fn ethernet<'a>(n: usize, device: &'a Device, mac: Option<&'a str>) -> Ethernet<'a> {
    let resolver = Nameservers {
        addresses: &device.nameservers,
        search: &device.search_domains,
    };
    Ethernet {
        r#match: mac.map(|macaddress| Match { macaddress }),
        set_name: mac.map(|_| format!("eth{n}")),
        dhcp4: device.dhcp4,
        dhcp6: device.dhcp6,
        addresses: &device.ip_addrs,
        mtu: device.mtu,
        routes: routes(device),
        nameservers: (!resolver.addresses.is_empty() || !resolver.search.is_empty()).then_some(resolver),
    }
}

/// The routes of a device; first those to its gateways. netplan has deprecated `gateway4` and `gateway6` ("Default routes" of its
/// reference), and cloud-init warns of them. `default` instead of the networks is known to netplan since 0.103 only.
fn routes(device: &Device) -> Vec<Route> {
    let gateways = [("0.0.0.0/0", &device.gateway4), ("::/0", &device.gateway6)];
    let default = gateways.into_iter().filter_map(|(to, gateway)| {
        Some(Route {
            to: to.to_owned(),
            via: gateway.clone()?,
            metric: None,
        })
    });
    default.chain(device.routes.iter().cloned()).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Guest<'a> {
    instance_id: &'a str,
    local_hostname: &'a str,
    network: Network<'a>,
}

/// Version 2 of cloud-init's network configuration.
#[derive(Serialize)]
struct Network<'a> {
    version: u8,
    ethernets: BTreeMap<String, Ethernet<'a>>,
}

#[derive(Serialize)]
struct Ethernet<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#match: Option<Match<'a>>,
    #[serde(rename = "set-name", skip_serializing_if = "Option::is_none")]
    set_name: Option<String>,
    dhcp4: bool,
    dhcp6: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    addresses: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Nameservers<'a>>,
}

#[derive(Serialize)]
struct Match<'a> {
    macaddress: &'a str,
}

#[derive(Serialize)]
struct Nameservers<'a> {
    addresses: &'a [String],
    search: &'a [String],
}
