//! `router.boot`.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use polity_driver_sdk::prelude::*;
use serde::Deserialize;

use crate::Config;
use crate::api::{COMPUTE, Service, change};
use crate::compute::{self, KEY, OWNER, TENANT};
use crate::error::{Does, unreadable};
use crate::id::{is_id, mac};
use crate::{image, network, port};

/// The arguments.
#[derive(Debug, Deserialize)]
struct Boot {
    name: String,
    image: String,
    flavor: String,
    ports: Vec<Wanted>,
}

/// A port that the server must have.
#[derive(Debug, Deserialize)]
struct Wanted {
    network: String,
    mac: String,
}

/// A look before the boot. It returns the id of a port, or nothing.
type Look<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Failure>> + 'a>>;

/// Checks that the image exists, that the ports exist and are free, and that the name is free. Then boots the server.
pub(crate) async fn boot(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    let wanted: Boot = cx.read()?;
    let ports = look(cx, &config, &wanted).await?;
    let request = Request::create("POST", "compute")
        .path([COMPUTE, "servers"])
        .json(&body(cx, &config, &wanted, &ports));
    let seen = change(cx, Service::Compute, request, &["server.id"]).await?;
    match seen.body["server"]["id"].as_str().filter(|id| is_id(id)) {
        Some(id) => Ok(json!({"id": id})),
        None => Err(unreadable(Service::Compute, Does::Change, &seen, "it has no id")),
    }
}

/// The ids of the ports, in order. All looks are made together.
async fn look(cx: &Context, config: &Config, wanted: &Boot) -> Result<Vec<String>, Failure> {
    no_port_twice(&wanted.ports)?;
    let mut looks: Vec<Look<'_>> = vec![Box::pin(async {
        image::bootable(cx, &wanted.image).await?;
        Ok(None)
    })];
    for port in &wanted.ports {
        looks.push(Box::pin(port_of(cx, config, &wanted.name, port)));
    }
    looks.push(Box::pin(async {
        name_is_free(cx, &wanted.name).await?;
        Ok(None)
    }));
    let seen: Result<Vec<Option<String>>, Failure> = join_all(looks).await.into_iter().collect();
    Ok(seen?.into_iter().flatten().collect())
}

fn no_port_twice(ports: &[Wanted]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for port in ports {
        if !seen.insert((&port.network, mac(&port.mac))) {
            let message = format!("the port {} is named twice in ports: name it once", port.mac);
            return Err(failure(Code::InvalidArgument, message));
        }
    }
    Ok(())
}

/// The id of a port that the router may have, and that is not plugged in.
async fn port_of(
    cx: &Context,
    config: &Config,
    router: &str,
    wanted: &Wanted,
) -> Result<Option<String>, Failure> {
    let found = network::find(cx, &wanted.network, &wanted.mac).await?;
    port::free(cx, config, &found, router).await?;
    Ok(Some(found.id))
}

/// Checks that no server of the tenant has this name. Nova itself would boot a second server with the same name, also while the
/// first one is being removed.
async fn name_is_free(cx: &Context, name: &str) -> Result<(), Failure> {
    let servers = compute::of_unused_name(cx, name, |server| server.is_of_tenant(cx)).await?;
    match servers.iter().find(|server| server.is_of_tenant(cx)) {
        None => Ok(()),
        Some(server) => {
            let message = format!("router {name:?} already has server {}", server.id);
            Err(failure(Code::AlreadyExists, message))
        }
    }
}

fn body(cx: &Context, config: &Config, wanted: &Boot, ports: &[String]) -> Value {
    let is_managed = |port: &Wanted| port.network == config.management_network;
    let mut networks: Vec<Value> = ports.iter().map(|id| json!({"port": id})).collect();
    if !wanted.ports.iter().any(is_managed) {
        // The appliance uses its first interface for its management.
        networks.insert(0, json!({"uuid": config.management_network}));
    }
    json!({"server": {
        "name": wanted.name,
        "imageRef": wanted.image,
        "flavorRef": wanted.flavor,
        "networks": networks,
        "metadata": {OWNER: cx.owner(), TENANT: cx.tenant(), KEY: cx.key()},
    }})
}
