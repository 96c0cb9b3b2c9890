//! Ports of routers: `port.get`, `port.attach`, `port.detach`, `router.delete-ports`.

use polity_driver_sdk::prelude::*;

use crate::Config;
use crate::api::{COMPUTE, Service, change};
use crate::compute;
use crate::id::given;
use crate::network::{self, Holder, Port};

/// The most ports that one operation releases. Each port takes a step, and an operation has 32 steps.
const GIVEN_BACK: usize = 20;

/// `port.get`
pub(crate) async fn get(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    let port = network::find(cx, cx.argument("network"), cx.argument("mac")).await?;
    let holder = network::holder(cx, &config, &port).await?;
    let mut shown = port.shown();
    shown["router"] = holder.router().into();
    Ok(shown)
}

/// `port.attach`: nova answers when its compute host has plugged the port in, perhaps after this host has cut the request. It
/// gives the port to the server first (`_attach_interface` of nova/compute/manager.py), so reads show that it has begun.
pub(crate) async fn attach(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    let server = given(cx.argument("id"), "server")?;
    let find = network::find(cx, cx.argument("network"), cx.argument("mac"));
    let (own, port) = join(compute::own(cx, server), find).await;
    let ((server, owned), port) = (own?, port?);
    free(cx, &config, &port, &server.name).await?;
    let request = Request::change("POST", "compute", &owned)
        .path([COMPUTE, "servers", owned.id(), "os-interface"])
        .json(&json!({"interfaceAttachment": {"port_id": port.id}}));
    match change(cx, Service::Compute, request, &[]).await {
        Ok(_) => Ok(json!({})),
        // The port was plugged in meanwhile. The next read shows into which server.
        Err(refusal) if refusal.code == Code::FailedPrecondition && refusal.message.contains("in use") => {
            Err(Failure {
                code: Code::AlreadyExists,
                ..refusal
            })
        }
        Err(failure) => Err(failure),
    }
}

/// Succeeds if the router of this name may have the port, and the port is not plugged in.
pub(crate) async fn free(cx: &Context, config: &Config, port: &Port, router: &str) -> Result<(), Failure> {
    match network::holder(cx, config, port).await? {
        holder if holder.router() != router => {
            let message = format!("the port {} belongs to router {:?}", port.mac, holder.router());
            Err(failure(Code::PermissionDenied, message))
        }
        // If a second server got this port, nova would remove it from the first server.
        Holder::Server(_) => Err(plugged_in(port)),
        Holder::Router(_) => Ok(()),
    }
}

fn plugged_in(port: &Port) -> Failure {
    let message = format!("the port {} is plugged in already", port.mac);
    failure(Code::AlreadyExists, message)
}

/// `port.detach`
pub(crate) async fn detach(cx: &Context) -> Result<Value, Failure> {
    let server = given(cx.argument("id"), "server")?;
    let find = network::find(cx, cx.argument("network"), cx.argument("mac"));
    let (own, port) = join(compute::own(cx, server), find).await;
    let ((server, owned), port) = (own?, port?);
    if port.device != server.id {
        let message = format!("the port {} is not plugged in", port.mac);
        return Err(failure(Code::NotFound, message));
    }
    // A port that is plugged into a server of the owner belongs to the owner.
    let port = cx.owned(&port.id, server.owner.as_deref())?;
    let request = Request::change("DELETE", "compute", &port).path([
        COMPUTE,
        "servers",
        owned.id(),
        "os-interface",
        port.id(),
    ]);
    change(cx, Service::Compute, request, &[]).await?;
    Ok(json!({}))
}

/// `router.delete-ports`: unplugs the router's own ports from its servers. This is done in neutron, because nova does not unplug
/// ports from a server that is being built or has failed. The port that nova created for the management stays, and is removed
/// with the server.
pub(crate) async fn give_back(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    let name = cx.argument("name");
    let mut servers = compute::of_name(cx, name, |server| server.is_own(cx)).await?;
    servers.retain(|server| server.is_own(cx));
    let looks = servers.iter().map(|server| network::of_server(cx, &server.id));
    let looks = join_all(looks).await;
    let mut left = GIVEN_BACK;
    for (server, ports) in servers.iter().zip(looks) {
        for port in ports? {
            if port.made_for(cx, &config) != Some(name) {
                continue;
            }
            left = left.checked_sub(1).ok_or_else(too_many)?;
            unplug(cx, &cx.owned(&port.id, server.owner.as_deref())?).await?;
        }
    }
    Ok(json!({}))
}

async fn unplug(cx: &Context, port: &Owned<'_>) -> Result<(), Failure> {
    let request = Request::change("PUT", "network", port)
        .path(["v2.0", "ports", port.id()])
        .json(&json!({"port": {"device_id": "", "device_owner": ""}}));
    match change(cx, Service::Network, request, &[]).await {
        Err(failure) if failure.code != Code::NotFound => Err(failure),
        _ => Ok(()),
    }
}

fn too_many() -> Failure {
    let message = format!(
        "{GIVEN_BACK} ports are released, the most of one operation, and more are left: the next try goes on"
    );
    failure(Code::Unavailable, message)
}
