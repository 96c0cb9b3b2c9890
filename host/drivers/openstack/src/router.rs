//! `router.resource`, `router.get`, `router.delete`.

use std::cmp::Reverse;

use polity_driver_sdk::prelude::*;

use crate::api::{COMPUTE, Service, change};
use crate::compute::{self, Server};
use crate::error::bounded;
use crate::id::missing;
use crate::list::List;
use crate::{Config, Routers, network};

/// The most characters of a fault.
const FAULT: usize = 400;

/// `router.resource`
pub(crate) async fn resource(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    match config.routers {
        Routers::Objects => Ok(json!({})),
        Routers::Neutron => in_neutron(cx, &config).await,
    }
}

/// Whether neutron has the router. After the answer `not-found` the VM is removed. So this answer needs a list that was read to
/// its end, in which every router of this name has the tag of another tenant.
async fn in_neutron(cx: &Context, config: &Config) -> Result<Value, Failure> {
    let name = cx.argument("name");
    let rows = List {
        service: Service::Network,
        path: &["v2.0", "routers"],
        rows: "routers",
        query: &[
            ("name", name),
            ("fields", "id"),
            ("fields", "name"),
            ("fields", "tags"),
        ],
        keep: &["id", "name", "tags"],
    }
    .read(cx)
    .await?;
    let mut is_unmarked = false;
    for row in &rows {
        let known = row["name"].as_str().ok_or_else(unreadable_row)?;
        if known != name {
            continue;
        }
        let tags = row["tags"].as_array().ok_or_else(unreadable_row)?;
        if tags.iter().any(|tag| *tag == config.tenant_tag(cx.tenant())) {
            return Ok(json!({}));
        }
        let is_mark = |tag: &Value| {
            tag.as_str()
                .is_some_and(|tag| tag.starts_with(&config.tenant_tags()))
        };
        is_unmarked |= !tags.iter().any(is_mark);
    }
    if is_unmarked {
        let tag = config.tenant_tag(cx.tenant());
        let message = format!(
            "neutron has a router {name:?} without the tag of a tenant: set a tag such as {tag:?} on it"
        );
        Err(failure(Code::FailedPrecondition, message))
    } else {
        Err(missing("router", name))
    }
}

fn unreadable_row() -> Failure {
    failure(Code::Internal, "neutron lists a router without a name or tags")
}

/// `router.get`
pub(crate) async fn get(cx: &Context) -> Result<Value, Failure> {
    let config = Config::of(cx)?;
    let server = match cx.argument("id") {
        "" => by_name(cx, cx.argument("name")).await?,
        id => compute::own(cx, id).await?.0,
    };
    let ports = network::of_server(cx, &server.id).await?;
    let status = status(&server)?;
    let created = server.created.ok_or_else(|| {
        let message = format!("nova does not say when server {} was created", server.id);
        failure(Code::Internal, message)
    })?;
    let is_reachable = network::management_address(&ports, &config).is_some();
    let shown = ports.iter().filter(|port| !port.is_novas_own(cx, &config));
    let shown: Vec<Value> = shown.map(network::Port::shown).collect();
    let mut answer = json!({
        "id": server.id,
        "status": status,
        "createdAt": created,
        // While a server is built or rebuilt, it has addresses already, but does not answer yet.
        "managed": is_reachable && status != "BUILD",
        "ports": shown,
    });
    if let Some(fault) = server.fault.filter(|_| status == "ERROR") {
        answer["fault"] = bounded(&fault, FAULT).into();
    }
    Ok(answer)
}

/// The router's server. If there are several, a server that works comes first, then the oldest.
async fn by_name(cx: &Context, name: &str) -> Result<Server, Failure> {
    let servers = compute::of_name(cx, name, |server| server.is_own(cx)).await?;
    let own = servers.into_iter().filter(|server| server.is_own(cx));
    let best = own.min_by_key(|server| {
        let works = !server.is_leaving() && server.status != "ERROR";
        (
            Reverse(works),
            server.is_leaving(),
            server.created,
            server.id.clone(),
        )
    });
    best.ok_or_else(|| missing("router", name))
}

/// The status in the words of the catalogue.
fn status(server: &Server) -> Result<&'static str, Failure> {
    if server.is_leaving() {
        return Ok("DELETING");
    }
    Ok(match server.status.as_str() {
        "BUILD" | "REBUILD" => "BUILD",
        "ACTIVE" | "HARD_REBOOT" | "MIGRATING" | "PASSWORD" | "REBOOT" | "RESIZE" | "REVERT_RESIZE"
        | "VERIFY_RESIZE" => "ACTIVE",
        "PAUSED" | "SUSPENDED" => "SUSPENDED",
        "ERROR" => "ERROR",
        "RESCUE" | "SHELVED" | "SHELVED_OFFLOADED" | "SHUTOFF" => "SHUTOFF",
        other => {
            let message = format!(
                "server {} has the unknown status {:?}",
                server.id,
                bounded(other, 40)
            );
            return Err(failure(Code::Internal, message));
        }
    })
}

/// `router.delete`
pub(crate) async fn delete(cx: &Context) -> Result<Value, Failure> {
    let (server, owned) = compute::own(cx, cx.argument("id")).await?;
    if !server.is_leaving() {
        let request = Request::change("DELETE", "compute", &owned).path([COMPUTE, "servers", owned.id()]);
        change(cx, Service::Compute, request, &[]).await?;
    }
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(status: &str, task_state: &str) -> Server {
        Server {
            id: "s".to_owned(),
            name: "edge".to_owned(),
            status: status.to_owned(),
            task_state: task_state.to_owned(),
            created: None,
            fault: None,
            owner: None,
            tenant: None,
            key: None,
        }
    }

    #[test]
    fn every_status_of_nova_is_one_of_the_catalogue() {
        for (ours, theirs) in [
            ("BUILD", "BUILD REBUILD"),
            (
                "ACTIVE",
                "ACTIVE HARD_REBOOT MIGRATING PASSWORD REBOOT RESIZE REVERT_RESIZE VERIFY_RESIZE",
            ),
            ("SUSPENDED", "PAUSED SUSPENDED"),
            ("SHUTOFF", "RESCUE SHELVED SHELVED_OFFLOADED SHUTOFF"),
            ("ERROR", "ERROR"),
            ("DELETING", "DELETED SOFT_DELETED"),
        ] {
            for status_of_nova in theirs.split(' ') {
                assert_eq!(
                    status(&server(status_of_nova, "")).unwrap(),
                    ours,
                    "{status_of_nova}"
                );
            }
        }
        assert_eq!(
            status(&server("<b>new</b>", "")).unwrap_err().code,
            Code::Internal
        );
    }

    #[test]
    fn a_server_that_is_being_removed_is_leaving_whatever_its_status_is() {
        for (now, task_state) in [
            ("ACTIVE", "deleting"),
            ("ERROR", "deleting"),
            ("ACTIVE", "soft-deleting"),
        ] {
            assert_eq!(status(&server(now, task_state)).unwrap(), "DELETING");
        }
        assert_eq!(status(&server("ACTIVE", "powering-off")).unwrap(), "ACTIVE");
    }
}
