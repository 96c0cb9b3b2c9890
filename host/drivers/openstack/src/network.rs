//! Ports of neutron.

use std::net::IpAddr;

use polity_driver_sdk::prelude::*;

use crate::Config;
use crate::api::Service;
use crate::compute::{Server, own};
use crate::id::{is_id, mac};
use crate::list::List;

/// The fields of a port that are read.
const FIELDS: [&str; 7] = [
    "id",
    "network_id",
    "mac_address",
    "device_id",
    "device_owner",
    "tags",
    "fixed_ips",
];
/// The same as dotted paths.
const KEEP: [&str; 7] = [
    "id",
    "network_id",
    "mac_address",
    "device_id",
    "device_owner",
    "tags",
    "fixed_ips.ip_address",
];

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) network: String,
    /// The MAC address in lower case.
    pub(crate) mac: String,
    /// The id of the server into which it is plugged; empty if it is plugged into nothing.
    pub(crate) device: String,
    device_owner: String,
    tags: Vec<String>,
    /// Its IP addresses.
    pub(crate) addresses: Vec<String>,
}

/// The holder of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A server of the operation's owner, into which the port is plugged.
    Server(Box<Server>),
    /// The port is not plugged in. It is assigned to the router of this name, of the operation's tenant.
    Router(String),
}

impl Holder {
    /// The name of the router.
    pub(crate) fn router(&self) -> &str {
        match self {
            Holder::Server(server) => &server.name,
            Holder::Router(name) => name,
        }
    }
}

impl Port {
    /// The router of the operation's tenant to which the tags assign the port. Tags of two tenants or of two routers assign it
    /// to none.
    pub(crate) fn made_for(&self, cx: &Context, config: &Config) -> Option<&str> {
        let only = |prefix: &str| {
            let mut tags = self.tags.iter().filter_map(|tag| tag.strip_prefix(prefix));
            tags.next().filter(|_| tags.next().is_none())
        };
        only(&config.tenant_tags()).filter(|tenant| *tenant == cx.tenant())?;
        only(&config.router_tags()).filter(|router| !router.is_empty())
    }

    /// Whether nova created the port for the management of a server, because the boot named none.
    pub(crate) fn is_novas_own(&self, cx: &Context, config: &Config) -> bool {
        self.network == config.management_network && self.made_for(cx, config).is_none()
    }

    /// The port in the form of the catalogue.
    pub(crate) fn shown(&self) -> Value {
        json!({"network": self.network, "mac": self.mac})
    }
}

/// The port with this MAC address on a network. MAC addresses are unique only within a network.
pub(crate) async fn find(cx: &Context, network: &str, address: &str) -> Result<Port, Failure> {
    let missing = || {
        failure(
            Code::NotFound,
            format!("network {network:?} has no port {address}"),
        )
    };
    let address = mac(address).ok_or_else(missing)?;
    let found = ports(cx, &[("network_id", network), ("mac_address", &address)]).await?;
    let is_it = |port: &Port| port.network == network && port.mac == address;
    let mut found = found.into_iter().filter(is_it);
    let port = found.next().ok_or_else(missing)?;
    match found.next() {
        None => Ok(port),
        Some(_) => {
            let message = format!(
                "network {network:?} has several ports with the MAC address {address}: remove the others"
            );
            Err(failure(Code::FailedPrecondition, message))
        }
    }
}

/// The ports that are plugged into a server.
pub(crate) async fn of_server(cx: &Context, server: &str) -> Result<Vec<Port>, Failure> {
    let mut found = ports(cx, &[("device_id", server)]).await?;
    found.retain(|port| port.device == server);
    Ok(found)
}

/// The holder of a port. Fails if the port belongs to another owner or tenant, or if no router is assigned to it.
pub(crate) async fn holder(cx: &Context, config: &Config, port: &Port) -> Result<Holder, Failure> {
    if port.device.is_empty() {
        let router = port
            .made_for(cx, config)
            .ok_or_else(|| unmarked(cx, config, port))?;
        return Ok(Holder::Router(router.to_owned()));
    }
    let is_of_a_server = port.device_owner.is_empty() || port.device_owner.starts_with("compute:");
    if !is_of_a_server {
        return Err(anothers(port));
    }
    match own(cx, &port.device).await {
        Ok((server, _)) => Ok(Holder::Server(Box::new(server))),
        Err(hidden) if [Code::NotFound, Code::PermissionDenied].contains(&hidden.code) => Err(anothers(port)),
        Err(failure) => Err(failure),
    }
}

async fn ports(cx: &Context, filters: &[(&str, &str)]) -> Result<Vec<Port>, Failure> {
    let fields = FIELDS.map(|field| ("fields", field));
    let query: Vec<(&str, &str)> = filters.iter().copied().chain(fields).collect();
    let rows = List {
        service: Service::Network,
        path: &["v2.0", "ports"],
        rows: "ports",
        query: &query,
        keep: &KEEP,
    }
    .read(cx)
    .await?;
    let unreadable = || {
        failure(
            Code::Internal,
            "neutron lists a port without an id, a network, a MAC address or another required field",
        )
    };
    rows.iter().map(|row| port(row).ok_or_else(unreadable)).collect()
}

/// A port, if the row has all fields that every port has. `null` means that there is no device.
fn port(row: &Value) -> Option<Port> {
    let text = |field: &str| row.get(field)?.as_str().map(str::to_owned);
    let text_or_null = |field: &str| match row.get(field)? {
        Value::Null => Some(String::new()),
        _ => text(field),
    };
    let texts = |values: &Value| -> Option<Vec<String>> {
        let values = values.as_array()?.iter();
        values.map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let addresses = row.get("fixed_ips")?.as_array()?.iter();
    let addresses = addresses.filter_map(|fixed| fixed["ip_address"].as_str().map(str::to_owned));
    Some(Port {
        id: text("id").filter(|id| is_id(id))?,
        network: text("network_id")?,
        mac: mac(row.get("mac_address")?.as_str()?)?,
        device: text_or_null("device_id")?,
        device_owner: text_or_null("device_owner")?,
        tags: row.get("tags").map_or(Some(Vec::new()), texts)?,
        addresses: addresses.collect(),
    })
}

fn anothers(port: &Port) -> Failure {
    let message = format!(
        "the port {} on network {:?} is plugged into a device that does not belong to this router: unplug it there, or name \
         another port",
        port.mac, port.network
    );
    failure(Code::PermissionDenied, message)
}

/// Names the tags that are missing, but not the tags that are there: those may name another tenant.
fn unmarked(cx: &Context, config: &Config, port: &Port) -> Failure {
    let (tenant, router) = (config.tenant_tag(cx.tenant()), config.router_tags());
    let message = format!(
        "the port {} is not assigned to exactly one router of this tenant: it needs the tags {tenant:?} and {router:?} \
         followed by the router's name",
        port.mac
    );
    failure(Code::PermissionDenied, message)
}

/// The address of the management API of a server with these ports.
pub(crate) fn management_address(ports: &[Port], config: &Config) -> Option<String> {
    let managed = ports
        .iter()
        .filter(|port| port.network == config.management_network);
    let mut addresses = managed.flat_map(|port| &port.addresses);
    addresses
        .find(|address| address.parse::<IpAddr>().is_ok())
        .cloned()
}
