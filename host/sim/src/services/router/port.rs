//! The ports of routers: which router has a port, and into which VM it is plugged.

use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Context, Router, Routers};
use crate::config::scenario::Quirk;
use crate::event::Call;
use crate::hypervisor::effects::Happened;
use crate::kernel::call::{Stamp, text};

/// A port that a router has, from the first time it is plugged in until it is given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    pub(super) network: String,
    pub(super) mac: String,
    /// The router's name.
    pub(super) router: String,
    pub(super) stamp: Stamp,
}

/// A port that is plugged into a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plugged {
    pub(super) network: String,
    pub(super) mac: String,
    /// Whether it is plugged in, as the cloud knows it.
    pub(super) attached: bool,
    /// From when on the VM shows it; `None`: never.
    from: Option<u64>,
    /// Until when the VM shows it; `None`: without end.
    until: Option<u64>,
}

/// A port as a caller names it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    network: String,
    /// The MAC address in lower case.
    mac: String,
}

impl Asked {
    fn of(value: &Value) -> Self {
        Asked {
            network: text(value, "network").to_owned(),
            mac: text(value, "mac").to_ascii_lowercase(),
        }
    }
}

impl Plugged {
    pub(super) fn at_boot(port: &Asked, at: u64) -> Self {
        Plugged::from(port, Some(at))
    }

    fn from(port: &Asked, from: Option<u64>) -> Self {
        Plugged {
            network: port.network.clone(),
            mac: port.mac.clone(),
            attached: true,
            from,
            until: None,
        }
    }

    fn is(&self, port: &Asked) -> bool {
        (&self.network, &self.mac) == (&port.network, &port.mac)
    }

    /// Whether the VM shows it.
    pub(super) fn is_shown(&self, at: u64) -> bool {
        self.from.is_some_and(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }
}

impl Routers {
    /// Reads a port, with the name of the router that has it or for which it was made. Ports of other tenants
    /// are not shown.
    pub(super) fn port(&self, call: &Call) -> Answer {
        let arguments = &call.arguments;
        let router = self.router_of(call, &Asked::of(arguments))?;
        Ok(json!({"network": arguments["network"], "mac": arguments["mac"], "router": router}))
    }

    /// The router that has the port or for which it was made; `None` if any router of this tenant may have
    /// it.
    fn router_of(&self, call: &Call, port: &Asked) -> Result<Option<String>, Failure> {
        let id = format!("the port {} of network {}", port.mac, port.network);
        let listed = &self.config.ports;
        let made = listed
            .iter()
            .find(|made| made.network == port.network && made.mac.eq_ignore_ascii_case(&port.mac));
        if made.is_none() && !listed.is_empty() {
            return Err(Failure::new(Code::NotFound, format!("{id} does not exist")));
        }
        if made
            .and_then(|made| made.tenant.as_ref())
            .is_some_and(|tenant| *tenant != call.caller.tenant)
        {
            return Err(Failure::new(
                Code::PermissionDenied,
                format!("{id} belongs to another tenant"),
            ));
        }
        let taken = self.ports.get(&port_key(call, port));
        if let Some(taken) = taken {
            call.caller.check_owner(&taken.stamp, &id)?;
        }
        let for_whom = made.and_then(|made| made.router.clone());
        Ok(taken.map(|taken| taken.router.clone()).or(for_whom))
    }

    /// The ports, if this router may have all of them.
    pub(super) fn claimable(&self, call: &Call, router: &str, ports: &Value) -> Result<Vec<Asked>, Failure> {
        let ports = ports.as_array().into_iter().flatten().map(Asked::of);
        ports
            .map(|port| match self.router_of(call, &port)? {
                Some(other) if other != router => {
                    let message = format!("the port {} belongs to router {other:?}", port.mac);
                    Err(Failure::new(Code::PermissionDenied, message))
                }
                _ => Ok(port),
            })
            .collect()
    }

    /// Gives these ports to the router until it gives them back.
    pub(super) fn claim(&mut self, call: &Call, router: &str, ports: Vec<Asked>) {
        for port in ports {
            let key = port_key(call, &port);
            let Asked { network, mac } = port;
            let port = Port {
                network,
                mac,
                router: router.to_owned(),
                stamp: call.stamp(),
            };
            self.ports.insert(key, port);
        }
    }

    /// Gives the caller's ports of a router back. All that are plugged in are unplugged.
    pub(super) fn release(&mut self, cx: &mut Context<'_>, call: &Call) -> Value {
        let (caller, router) = (&call.caller, call.text("name"));
        self.ports.retain(|port| {
            let own = caller.owns(&port.stamp) && caller.sees(&port.stamp);
            !(own && port.router == router)
        });
        for vm in cx.vms.own(caller).filter(|vm| vm.name == router) {
            if let Some(router) = self.routers.get_mut(&vm.number) {
                router.plugged.clear();
            }
        }
        cx.kernel.mark_dirty();
        json!({})
    }

    /// Plugs a port in. The cloud knows it at once; the VM shows it a while later.
    pub(super) fn attach(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.by_id(cx, call)?;
        let name = cx.vms.get(number).map(|vm| vm.name.clone()).unwrap_or_default();
        let ports = self.claimable(call, &name, &json!([call.arguments]))?;
        let shows = self.plugs(cx, call);
        let router = self.routers.get_mut(&number).expect("found above");
        if ports.iter().any(|port| attached(router, port).is_some()) {
            let message = format!("the port {} is plugged in already", call.text("mac"));
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        router
            .plugged
            .extend(ports.iter().map(|port| Plugged::from(port, shows)));
        self.claim(call, &name, ports);
        cx.vms.note(cx.at, &call.operation, Happened::Done, number);
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// Unplugs a port and gives it back. The VM still shows it for a while.
    pub(super) fn detach(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let number = self.by_id(cx, call)?;
        let port = Asked::of(&call.arguments);
        let until = self.plugs(cx, call);
        let router = self.routers.get_mut(&number).expect("found above");
        let Some(plugged) = attached(router, &port) else {
            let message = format!("the port {} is not plugged in", port.mac);
            return Err(Failure::new(Code::NotFound, message));
        };
        (plugged.attached, plugged.until) = (false, until);
        self.ports.remove(&port_key(call, &port));
        cx.vms.note(cx.at, &call.operation, Happened::Done, number);
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// When the VM shows a change; `None` if it never does.
    fn plugs(&self, cx: &mut Context<'_>, call: &Call) -> Option<u64> {
        let takes = cx.kernel.draw_for(&call.caller.owner);
        let never = call.plan.quirk == Some(Quirk::NeverPlugs);
        (!never).then(|| cx.at + self.config.plug.pick(takes))
    }
}

fn port_key(call: &Call, port: &Asked) -> String {
    call.caller.place(json!(["port", port.network, port.mac]))
}

fn attached<'a>(router: &'a mut Router, port: &Asked) -> Option<&'a mut Plugged> {
    router
        .plugged
        .iter_mut()
        .find(|plugged| plugged.attached && plugged.is(port))
}
