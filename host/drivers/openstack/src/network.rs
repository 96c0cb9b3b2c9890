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

/// What has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A server of the operation's object, into which the port is plugged.
    Server(Box<Server>),
    /// Nothing yet. It was made for the router of this name, of the operation's tenant.
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
    /// The router of the operation's tenant for which it was made, as its tags say. Tags of two tenants or of two
    /// routers say nothing.
    pub(crate) fn made_for(&self, cx: &Context, config: &Config) -> Option<&str> {
        let only = |prefix: &str| {
            let mut tags = self.tags.iter().filter_map(|tag| tag.strip_prefix(prefix));
            tags.next().filter(|_| tags.next().is_none())
        };
        only(&config.tenant_tags()).filter(|tenant| *tenant == cx.tenant())?;
        only(&config.router_tags()).filter(|router| !router.is_empty())
    }

    /// Whether nova made it for the management of a server: it was not given to the boot.
    pub(crate) fn is_novas_own(&self, cx: &Context, config: &Config) -> bool {
        self.network == config.management_network && self.made_for(cx, config).is_none()
    }

    /// As the catalogue shows a port.
    pub(crate) fn shown(&self) -> Value {
        json!({"network": self.network, "mac": self.mac})
    }
}

/// The port with this MAC address on a network. MAC addresses are unique on a network only.
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
            let message = format!("network {network:?} has several ports {address}");
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

/// What has a port. That of another object or tenant, and that which is made for no router, is refused.
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
    let unreadable = || failure(Code::Internal, "neutron lists a port without what every port has");
    rows.iter().map(|row| port(row).ok_or_else(unreadable)).collect()
}

/// A port, if the row has all that every port has. `null` stands for no device.
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
    let message = format!("the port {} belongs to somebody else", port.mac);
    failure(Code::PermissionDenied, message)
}

/// Says which tags are missing, but not which are there: they may be of another tenant.
fn unmarked(cx: &Context, config: &Config, port: &Port) -> Failure {
    let (tenant, router) = (config.tenant_tag(cx.tenant()), config.router_tags());
    let message = format!(
        "the port {} is not for one router of this tenant: it needs the tags {tenant:?} and {router:?} with the \
         router's name",
        port.mac
    );
    failure(Code::PermissionDenied, message)
}

/// The address at which a server with these ports is managed.
pub(crate) fn management_address(ports: &[Port], config: &Config) -> Option<String> {
    let managed = ports
        .iter()
        .filter(|port| port.network == config.management_network);
    let mut addresses = managed.flat_map(|port| &port.addresses);
    addresses
        .find(|address| address.parse::<IpAddr>().is_ok())
        .cloned()
}
