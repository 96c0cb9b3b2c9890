//! The management API of a router's VM, as akanda's appliance has it: `router.alive`, `router.interfaces`,
//! `router.stats`, `config.push`.
//!
//! Its address is the address of the server's port on the management network. The driver reads it from neutron in the same
//! operation.

use polity_driver_sdk::prelude::*;

use crate::compute::{self, Server};
use crate::error::bounded;
use crate::id::mac;
use crate::{Config, network, task};

/// The path of the configuration in the management API.
const CONFIG: [&str; 3] = ["v1", "system", "config"];

/// The server of a router, with the address of its appliance.
struct Appliance<'a> {
    owned: Owned<'a>,
    server: Server,
    /// The address of the management API, if the server has one.
    address: Option<String>,
    /// The MAC addresses that do not belong to the router: the address of the port that nova created for the management.
    hidden: Vec<String>,
}

/// `router.alive`
pub(crate) async fn alive(cx: &Context) -> Result<Value, Failure> {
    let appliance = find(cx).await?;
    let interfaces = appliance.read(cx, &["interfaces.lladdr"]).await?;
    Ok(json!({"alive": interfaces.is_some()}))
}

/// `router.interfaces`
pub(crate) async fn interfaces(cx: &Context) -> Result<Value, Failure> {
    let appliance = find(cx).await?;
    let interfaces = appliance.interfaces(cx, &["interfaces.lladdr"]).await?;
    let macs: Vec<String> = interfaces.into_iter().map(|(mac, _)| mac).collect();
    Ok(json!({"macs": macs}))
}

/// `router.stats`, for the interfaces whose bytes the appliance counts.
pub(crate) async fn stats(cx: &Context) -> Result<Value, Failure> {
    let keep = ["interfaces.lladdr", "interfaces.rx_bytes", "interfaces.tx_bytes"];
    let appliance = find(cx).await?;
    let interfaces = appliance.interfaces(cx, &keep).await?;
    let traffic = |(mac, interface): &(String, Value)| {
        let count = |field: &str| interface[field].as_u64();
        let (received, sent) = (count("rx_bytes")?, count("tx_bytes")?);
        Some(json!({"mac": mac, "rxBytes": received, "txBytes": sent}))
    };
    let counted: Vec<Value> = interfaces.iter().filter_map(traffic).collect();
    if counted.is_empty() && !interfaces.is_empty() {
        let message = format!(
            "the appliance of server {} counts no bytes: its interfaces have no rx_bytes and tx_bytes",
            appliance.server.id
        );
        return Err(failure(Code::Unimplemented, message));
    }
    Ok(json!({"traffic": counted}))
}

/// `config.push`. When the appliance answers, it has accepted the configuration, so the task has ended by then. If the answer
/// was lost, the next push finds the configuration in the appliance.
pub(crate) async fn push(cx: &Context) -> Result<Value, Failure> {
    let appliance = find(cx).await?;
    let address = appliance.address.as_deref().ok_or_else(|| appliance.silent())?;
    let wanted = &cx.arguments()["config"];
    let taken = Ok(json!({"task": task::pushed(cx, &appliance.server.id)}));
    let look = Request::get("appliance").at(address).path(CONFIG);
    let stands = cx.send(look.keep(["configuration"])).await?;
    if stands.is_success() && stands.body["configuration"] == *wanted {
        return taken;
    }
    let request = Request::change("PUT", "appliance", &appliance.owned)
        .at(address)
        .path(CONFIG)
        .keep(["message"])
        .json(wanted);
    let seen = cx.send(request).await?;
    if seen.is_success() {
        return taken;
    }
    let words = seen.body["message"]
        .as_str()
        .or(seen.text.as_deref())
        .unwrap_or("");
    let message = format!(
        "the appliance of server {} answers {} to its configuration: {}",
        appliance.server.id,
        seen.status,
        bounded(words, 400)
    );
    Err(Failure {
        doubtful: seen.status >= 500,
        ..failure(Code::FailedPrecondition, message)
    })
}

async fn find(cx: &Context) -> Result<Appliance<'_>, Failure> {
    let config = Config::of(cx)?;
    let (server, owned) = compute::own(cx, cx.argument("id")).await?;
    let ports = network::of_server(cx, &server.id).await?;
    let hidden = ports.iter().filter(|port| port.is_novas_own(cx, &config));
    Ok(Appliance {
        owned,
        hidden: hidden.map(|port| port.mac.clone()).collect(),
        // A server that is being removed gets no more requests.
        address: network::management_address(&ports, &config).filter(|_| !server.is_leaving()),
        server,
    })
}

impl Appliance<'_> {
    /// The interfaces of the router, by their MAC addresses. Fails if the appliance does not answer.
    async fn interfaces(&self, cx: &Context, keep: &[&str]) -> Result<Vec<(String, Value)>, Failure> {
        let found = self.read(cx, keep).await?.ok_or_else(|| self.silent())?;
        let with_mac = |interface: Value| Some((mac(interface["lladdr"].as_str()?)?, interface));
        let found = found.into_iter().filter_map(with_mac);
        Ok(found.filter(|(mac, _)| !self.hidden.contains(mac)).collect())
    }

    /// All interfaces that the appliance shows; `None` if the appliance does not answer, or does not answer as an appliance
    /// should. A failure means that the host did not send the request, so nothing is known about the appliance.
    async fn read(&self, cx: &Context, keep: &[&str]) -> Result<Option<Vec<Value>>, Failure> {
        let Some(address) = &self.address else {
            return Ok(None);
        };
        let request = Request::get("appliance")
            .at(address)
            .path(["v1", "system", "interfaces"])
            .keep(keep.iter().copied());
        match cx.send(request).await {
            Ok(seen) if seen.status == 200 => Ok(seen.body["interfaces"].as_array().cloned()),
            Ok(_) => Ok(None),
            Err(failure) if was_not_sent(&failure) => Err(failure),
            Err(_) => Ok(None),
        }
    }

    fn silent(&self) -> Failure {
        let message = format!(
            "the management API of server {} does not answer, or the server has no address on the management network",
            self.server.id
        );
        failure(Code::FailedPrecondition, message)
    }
}

/// Whether the host did not send the request.
fn was_not_sent(failure: &Failure) -> bool {
    let by_host = [
        Code::Aborted,
        Code::Cancelled,
        Code::InvalidArgument,
        Code::PermissionDenied,
    ];
    by_host.contains(&failure.code)
}
