//! The ports of routers: whose they are, and in which VM they are plugged in.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Sim;
use crate::hypervisor::vm::Stamp;
use crate::kernel::call::{Plan, owned, text};
use crate::services::router::Router;
use crate::view::Happened;

/// A port that a router has: from when it was first plugged in until it is given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    pub(crate) network: String,
    pub(crate) mac: String,
    /// The router's name.
    pub(crate) router: String,
    pub(crate) stamp: Stamp,
}

/// A port in a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plugged {
    pub(crate) network: String,
    pub(crate) mac: String,
    /// As the cloud knows it.
    pub(crate) attached: bool,
    /// From when on the VM shows it; none: never.
    from: Option<u64>,
    /// Until when; none: for ever.
    until: Option<u64>,
}

/// A port as it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    network: String,
    /// In lower case.
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
    pub(crate) fn at_boot(port: &Asked, at: u64) -> Self {
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
    pub(crate) fn is_shown(&self, at: u64) -> bool {
        self.from.is_some_and(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }
}

impl Sim {
    /// A port, with the name of the router that has it or is to have it. Of those of others nothing is told.
    pub(crate) fn port(&self, session: &Session, arguments: &Value) -> Answer {
        let router = self.router_of(session, &Asked::of(arguments))?;
        Ok(json!({"network": arguments["network"], "mac": arguments["mac"], "router": router}))
    }

    /// The router that has the port, or that it was made for; none if anybody of this tenant may have it.
    fn router_of(&self, session: &Session, port: &Asked) -> Result<Option<String>, Failure> {
        let id = format!("the port {} of network {}", port.mac, port.network);
        let listed = &self.config.routers.ports;
        let made = listed
            .iter()
            .find(|made| made.network == port.network && made.mac.eq_ignore_ascii_case(&port.mac));
        if made.is_none() && !listed.is_empty() {
            return Err(Failure::new(Code::NotFound, format!("{id} does not exist")));
        }
        if made
            .and_then(|made| made.tenant.as_ref())
            .is_some_and(|tenant| *tenant != session.tenant)
        {
            return Err(Failure::new(
                Code::PermissionDenied,
                format!("{id} belongs to another tenant"),
            ));
        }
        let taken = self.world.ports.get(&self.port_key(session, port));
        if let Some(taken) = taken {
            owned(&taken.stamp, session, &id)?;
        }
        let for_whom = made.and_then(|made| made.router.clone());
        Ok(taken.map(|taken| taken.router.clone()).or(for_whom))
    }

    fn port_key(&self, session: &Session, port: &Asked) -> String {
        self.place(session, json!(["port", port.network, port.mac]))
    }

    /// The ports, if this router may have each of them.
    pub(crate) fn claimable(
        &self,
        session: &Session,
        router: &str,
        ports: &Value,
    ) -> Result<Vec<Asked>, Failure> {
        let ports = ports.as_array().into_iter().flatten().map(Asked::of);
        ports
            .map(|port| match self.router_of(session, &port)? {
                Some(other) if other != router => {
                    let message = format!("the port {} belongs to router {other:?}", port.mac);
                    Err(Failure::new(Code::PermissionDenied, message))
                }
                _ => Ok(port),
            })
            .collect()
    }

    /// The router has these ports from now on, until they are given back.
    pub(crate) fn claim(&mut self, request: &CloudRequest, router: &str, ports: Vec<Asked>) {
        for port in ports {
            let key = self.port_key(&request.session, &port);
            let stamp = self.stamp(request);
            let Asked { network, mac } = port;
            let router = router.to_owned();
            let port = Port {
                network,
                mac,
                router,
                stamp,
            };
            self.world.ports.insert(key, port);
        }
    }

    /// Gives the caller's ports of this router back: all that are plugged in are plugged out.
    pub(crate) fn release(&mut self, session: &Session, router: &str) -> Value {
        let account = self.account(session).map(str::to_owned);
        self.world.ports.retain(|port| {
            let own = owned(&port.stamp, session, "").is_ok() && port.stamp.account == account;
            !(own && port.router == router)
        });
        let vms = self
            .world
            .owners
            .get(&session.owner)
            .map(|owner| owner.vms.clone());
        for number in vms.into_iter().flatten() {
            let vm = &self.world.vms[&number];
            let own =
                vm.name == router && owned(&vm.stamp, session, "").is_ok() && self.sees(session, &vm.stamp);
            if let Some(router) = self.world.routers.get_mut(&number).filter(|_| own) {
                router.plugged.clear();
            }
        }
        self.dirty = true;
        json!({})
    }

    /// Plugs a port in. The cloud knows it at once, the VM shows it a while later.
    pub(crate) fn attach(&mut self, at: u64, request: &CloudRequest, plan: &Plan) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        let number = self.router_by_id(session, text(arguments, "id"))?;
        let name = self.world.vms[&number].name.clone();
        let ports = self.claimable(session, &name, &json!([arguments]))?;
        let shows = self.plugs(at, session, plan);
        let router = self.world.routers.get_mut(&number).expect("found above");
        if ports.iter().any(|port| attached(router, port).is_some()) {
            let message = format!("the port {} is plugged in already", text(arguments, "mac"));
            return Err(Failure::new(Code::AlreadyExists, message));
        }
        router
            .plugged
            .extend(ports.iter().map(|port| Plugged::from(port, shows)));
        self.claim(request, &name, ports);
        self.note_at_once(at, "port.attach", Happened::Done, number);
        self.dirty = true;
        Ok(json!({}))
    }

    /// Plugs a port out and gives it back. The VM shows it for a while.
    pub(crate) fn detach(&mut self, at: u64, request: &CloudRequest, plan: &Plan) -> Answer {
        let (session, arguments) = (&request.session, &request.arguments);
        let number = self.router_by_id(session, text(arguments, "id"))?;
        let port = Asked::of(arguments);
        let until = self.plugs(at, session, plan);
        let router = self.world.routers.get_mut(&number).expect("found above");
        let Some(plugged) = attached(router, &port) else {
            let message = format!("the port {} is not plugged in", port.mac);
            return Err(Failure::new(Code::NotFound, message));
        };
        (plugged.attached, plugged.until) = (false, until);
        let key = self.port_key(session, &port);
        self.world.ports.remove(&key);
        self.note_at_once(at, "port.detach", Happened::Done, number);
        self.dirty = true;
        Ok(json!({}))
    }

    /// When the VM shows a change; none if it never does.
    fn plugs(&mut self, at: u64, session: &Session, plan: &Plan) -> Option<u64> {
        let takes = self.world.draw(&session.owner);
        (!plan.never).then(|| at + self.config.routers.plug.pick(takes))
    }
}

fn attached<'a>(router: &'a mut Router, port: &Asked) -> Option<&'a mut Plugged> {
    router
        .plugged
        .iter_mut()
        .find(|plugged| plugged.attached && plugged.is(port))
}
