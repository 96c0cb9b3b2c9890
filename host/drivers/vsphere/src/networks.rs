//! The networks of the interfaces of a new VM.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::config::{self, Config};
use crate::inventory::{Branch, Datacenter, escaped};
use crate::moid::Moid;
use crate::properties::{self, Property};
use crate::services::Services;
use crate::soap::{flag, typed};

const STANDARD: &str = "Network";
const DISTRIBUTED: &str = "DistributedVirtualPortgroup";

/// The types of networks that a clone can have.
pub(crate) const KINDS: [&str; 2] = [STANDARD, DISTRIBUTED];

const KEY: Property = Property::text("key");
const SWITCH: Property = Property::of("config.distributedVirtualSwitch", &["$text", "@type"]);
const UUID: Property = Property::text("uuid");

/// The path of a network. The name is one segment of the path, whatever characters it contains.
pub(crate) fn path(datacenter: &Datacenter<'_>, config: &Config, name: &str) -> Result<String, Failure> {
    // The path of the folder comes first, because a name that begins with a slash must not count as a complete path.
    let folder = config::or_default("", &config.network_folder).unwrap_or("");
    let folder = datacenter.path(Branch::Network, folder)?;
    Ok(format!("{folder}/{}", escaped(name)))
}

/// The backing of an interface on a network.
pub(crate) enum Backing {
    /// A network of the host's own switch.
    Standard { name: String, network: Moid },
    /// A portgroup of a distributed switch.
    Distributed { switch: String, portgroup: String },
}

/// The backing of an interface on this network.
pub(crate) async fn backing(
    cx: &Context,
    services: &Services,
    name: &str,
    network: &Moid,
) -> Result<Backing, Failure> {
    if network.kind == STANDARD {
        return Ok(Backing::Standard {
            name: name.to_owned(),
            network: network.clone(),
        });
    }
    let portgroup = properties::read(cx, services, network, &[KEY, SWITCH]).await?;
    let unknown = || {
        let message = format!("vCenter does not show to which switch the portgroup {name:?} belongs");
        failure(Code::Unavailable, message)
    };
    let switch = portgroup
        .value(&SWITCH)?
        .and_then(Moid::read)
        .ok_or_else(unknown)?;
    let switch = properties::read(cx, services, &switch, &[UUID]).await?;
    let (switch, portgroup) = (switch.text(&UUID)?, portgroup.text(&KEY)?);
    if switch.is_empty() || portgroup.is_empty() {
        return Err(unknown());
    }
    Ok(Backing::Distributed {
        switch: switch.to_owned(),
        portgroup: portgroup.to_owned(),
    })
}

/// Adds the nth interface of a new VM.
pub(crate) fn added(nth: usize, backing: &Backing) -> Element {
    // The server replaces a negative key. It is different from the key of every device of the template.
    let key = -101 - i64::try_from(nth).unwrap_or(0);
    let connectable = Element::new("connectable").with_all([
        flag("startConnected", true),
        flag("allowGuestControl", true),
        flag("connected", true),
    ]);
    let device = typed("device", "VirtualVmxnet3")
        .with(Element::text("key", key.to_string()))
        .with(backing.element())
        .with(connectable)
        .with(Element::text("addressType", "generated"));
    Element::new("deviceChange")
        .with(Element::text("operation", "add"))
        .with(device)
}

impl Backing {
    fn element(&self) -> Element {
        match self {
            Backing::Standard { name, network } => typed("backing", "VirtualEthernetCardNetworkBackingInfo")
                .with(Element::text("deviceName", name.as_str()))
                .with(network.element("network")),
            Backing::Distributed { switch, portgroup } => {
                let port = Element::new("port")
                    .with(Element::text("switchUuid", switch.as_str()))
                    .with(Element::text("portgroupKey", portgroup.as_str()));
                typed("backing", "VirtualEthernetCardDistributedVirtualPortBackingInfo").with(port)
            }
        }
    }
}
