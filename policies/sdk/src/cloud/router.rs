//! Virtual routers: the operations of a cloud in the manner of Neutron and Nova.
//!
//! They take ids and names, never addresses: the adapter knows those, and asks a VM as often as it takes. What takes
//! long is a [task](crate::cloud::vm::task).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::vm::Submitted;
use crate::cloud::{self, CloudAsk, CloudDo};
use crate::contract::{Code, Failure};
use crate::join::join_all;
use crate::{Context, Kind};

/// Makes a router's VM: the only operation that creates. Its intent is the router's name.
pub const BOOT: &str = "router.boot";
/// All operations on routers, and what they need besides.
pub const OPERATIONS: [&str; 14] = [
    "router.resource",
    "router.get",
    "router.alive",
    "router.interfaces",
    "router.stats",
    "image.get",
    "port.get",
    "task.get",
    BOOT,
    "router.delete",
    "router.delete-ports",
    "config.push",
    "port.attach",
    "port.detach",
];

/// A port of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// The network.
    pub network: String,
    /// The port's MAC address in lower case, by which it is known.
    #[schemars(extend("pattern" = "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"))]
    pub mac: String,
}

/// How a router's VM is asked for: by the router's name, and by the VM's id once that is known.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Named<'a> {
    /// The router's name.
    pub name: &'a str,
    /// The cloud's id of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
}

/// What a router's VM is made of.
#[derive(Clone, Debug, Serialize)]
pub struct Creation<'a> {
    /// The router's name: the intent.
    pub name: &'a str,
    /// What it boots from.
    pub image: &'a str,
    /// How large it is.
    pub flavor: &'a str,
    /// What is plugged in.
    pub ports: &'a [Port],
}

/// A router's VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The cloud's id of it.
    pub id: String,
    /// `BUILD`, `ACTIVE`, `DELETING` and so on.
    pub status: String,
    /// When the cloud began to make it, in milliseconds since 1970.
    pub created_at: u64,
    /// Whether it has an address by which it can be managed.
    pub managed: bool,
    /// What is plugged in, as the cloud knows it.
    pub ports: Vec<Port>,
}

impl Instance {
    /// Whether it is being made.
    pub fn is_built(&self) -> bool {
        self.status == "BUILD"
    }

    /// Whether it is being removed.
    pub fn is_leaving(&self) -> bool {
        self.status == "DELETING"
    }
}

/// A VM that was made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Booted {
    /// The cloud's id of it.
    pub id: String,
}

/// Whether a VM answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Alive {
    /// It does.
    pub alive: bool,
}

/// What a VM itself says is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Interfaces {
    /// The MAC addresses, in lower case.
    pub macs: Vec<String>,
}

/// A port, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct KnownPort {
    /// The name of the router that has it, or that it was made for.
    #[serde(default)]
    pub router: Option<String>,
}

/// What has passed through a VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Stats {
    /// By port.
    pub traffic: Vec<Traffic>,
}

/// How much has passed through a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// The port's MAC address.
    pub mac: String,
    /// Bytes that were received.
    pub rx_bytes: u64,
    /// Bytes that were sent.
    pub tx_bytes: u64,
}

/// An answer that says nothing but that there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Nothing {}

#[derive(Serialize)]
struct ByName<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct ById<'a> {
    id: &'a str,
}

#[derive(Serialize)]
struct Plug<'a> {
    id: &'a str,
    #[serde(flatten)]
    port: &'a Port,
}

/// Whether the network service knows the router: `not-found` once it was removed there.
pub fn resource(name: &str) -> CloudAsk<Nothing> {
    cloud::ask("router.resource", &ByName { name })
}

/// A router's VM. By id, one that exists is never denied; by name it may be, for a while.
pub fn instance(router: Named<'_>) -> CloudAsk<Instance> {
    cloud::ask("router.get", &router)
}

/// Whether a VM answers.
pub fn alive(id: &str) -> CloudAsk<Alive> {
    cloud::ask("router.alive", &ById { id })
}

/// What a VM itself says is plugged in.
pub fn interfaces(id: &str) -> CloudAsk<Interfaces> {
    cloud::ask("router.interfaces", &ById { id })
}

/// How much has passed through a VM.
pub fn stats(id: &str) -> CloudAsk<Stats> {
    cloud::ask("router.stats", &ById { id })
}

/// An image that the caller may boot, or `not-found`.
pub fn image(image: &str) -> CloudAsk<Nothing> {
    #[derive(Serialize)]
    struct ByImage<'a> {
        image: &'a str,
    }
    cloud::ask("image.get", &ByImage { image })
}

/// What a failed look at an image says of it: why nothing boots from it.
pub fn no_image(failure: &Failure) -> Option<&'static str> {
    match failure.code {
        Code::NotFound => Some("ImageNotFound"),
        Code::PermissionDenied => Some("ImageDenied"),
        _ => None,
    }
}

/// A port; `permission-denied` if it belongs to somebody else.
pub fn port(port: &Port) -> CloudAsk<KnownPort> {
    cloud::ask("port.get", port)
}

/// Makes a router's VM.
pub fn boot(router: &Creation<'_>) -> CloudDo<Booted> {
    cloud::create(BOOT, router.name, router)
}

/// Removes a VM, which takes a while.
pub fn delete(id: &str) -> CloudDo<Nothing> {
    cloud::change("router.delete", &ById { id })
}

/// Gives back the ports that a router has.
pub fn delete_ports(name: &str) -> CloudDo<Nothing> {
    cloud::change("router.delete-ports", &ByName { name })
}

/// Tells a VM what to be: a task.
pub fn push(id: &str, ports: &[Port]) -> CloudDo<Submitted> {
    #[derive(Serialize)]
    struct Push<'a> {
        id: &'a str,
        config: Config<'a>,
    }
    #[derive(Serialize)]
    struct Config<'a> {
        ports: &'a [Port],
    }
    let config = Config { ports };
    cloud::change("config.push", &Push { id, config })
}

/// Plugs a port in while the VM runs.
pub fn attach(id: &str, port: &Port) -> CloudDo<Nothing> {
    cloud::change("port.attach", &Plug { id, port })
}

/// Plugs a port out while the VM runs.
pub fn detach(id: &str, port: &Port) -> CloudDo<Nothing> {
    cloud::change("port.detach", &Plug { id, port })
}

/// Ports, by whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The router may have them.
    pub own: Vec<Port>,
    /// It must not, and why.
    pub denied: Vec<(Port, &'static str)>,
}

/// Which of these ports the router of this name may have. A failure that is not about whose a port is, is one.
pub async fn judge<T: Kind, C>(cx: &Context<T, C>, name: &str, ports: &[Port]) -> Result<Judged, Failure> {
    let looks = join_all(ports.iter().map(|it| cx.ask(port(it)))).await;
    let mut judged = Judged::default();
    for (port, seen) in ports.iter().zip(looks) {
        let denied = match seen {
            Ok(known) => known
                .router
                .is_some_and(|other| other != name)
                .then_some(ANOTHERS),
            Err(failure) => Some(denial(&failure).ok_or(failure)?),
        };
        match denied {
            None => judged.own.push(port.clone()),
            Some(reason) => judged.denied.push((port.clone(), reason)),
        }
    }
    Ok(judged)
}

const ANOTHERS: &str = "PortOfAnotherRouter";

/// What a refusal says of a port, if it is about whose the port is.
fn denial(failure: &Failure) -> Option<&'static str> {
    match failure.code {
        Code::PermissionDenied => Some(ANOTHERS),
        Code::NotFound => Some("PortNotFound"),
        _ => None,
    }
}

/// What became of plugging ports in and out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugged {
    /// Something was plugged in or out: the VM will show it later.
    pub changed: bool,
    /// Ports that were left out, and why.
    pub denied: Vec<(Port, &'static str)>,
    /// A port could not be plugged in or out.
    pub failure: Option<Failure>,
}

/// Plugs in what the cloud knows to be missing of these ports, and plugs out what it knows beside them, while the VM
/// runs. A port that belongs to another router is left out.
pub async fn plug<T: Kind, C>(
    cx: &Context<T, C>,
    name: &str,
    vm: &Instance,
    ports: &[Port],
) -> Result<Plugged, Failure> {
    let differ = |these: &[Port], those: &[Port]| -> Vec<Port> {
        let among = |port: &&Port| !those.iter().any(|other| other.mac == port.mac);
        these.iter().filter(among).cloned().collect()
    };
    let Judged { own, denied } = judge(cx, name, &differ(ports, &vm.ports)).await?;
    let extra = differ(&vm.ports, ports);
    let attached = join_all(own.iter().map(|port| cx.act(attach(&vm.id, port))));
    let detached = join_all(extra.iter().map(|port| cx.act(detach(&vm.id, port))));
    let (attached, detached) = crate::join::join!(attached, detached);
    let mut plugged = Plugged {
        denied,
        ..Plugged::default()
    };
    for (port, answer) in own.into_iter().zip(attached) {
        match answer {
            Ok(_) => plugged.changed = true,
            Err(failure) if failure.code == Code::AlreadyExists => {}
            Err(failure) => match denial(&failure) {
                Some(reason) => plugged.denied.push((port, reason)),
                None => plugged.failure = Some(failure),
            },
        }
    }
    for answer in detached {
        match answer {
            Ok(_) => plugged.changed = true,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => plugged.failure = Some(failure),
        }
    }
    Ok(plugged)
}
