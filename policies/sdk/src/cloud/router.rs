//! Virtual routers: the operations of a cloud in the manner of Neutron and Nova.
//!
//! Requests name ids and names, never addresses: the cloud knows the addresses, and tries a VM as often as needed.
//! Long work is a [task](crate::cloud::vm::task).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::vm::Submitted;
use crate::cloud::{self, CloudAsk, CloudDo};
use crate::contract::{Code, Effect, Failure};
use crate::join::join_all;
use crate::{Context, Kind};

/// Creates a router's VM. It is the only operation that creates something. Its intent is the router's name.
pub const BOOT: &str = "router.boot";
/// All operations on routers, and the operations that these need.
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
    /// The name of the network.
    pub network: String,
    /// The port's MAC address in lower case, which identifies it.
    #[schemars(extend("pattern" = "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"))]
    pub mac: String,
}

/// The names of a router's VM: the router's name, and the VM's id once that is known.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Named<'a> {
    /// The router's name.
    pub name: &'a str,
    /// The cloud's id of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
}

/// The parts of a router's VM.
#[derive(Clone, Debug, Serialize)]
pub struct Creation<'a> {
    /// The router's name, which is the intent.
    pub name: &'a str,
    /// The image from which it boots.
    pub image: &'a str,
    /// The flavor, which is its size.
    pub flavor: &'a str,
    /// The ports to plug in.
    pub ports: &'a [Port],
}

/// A router's VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The cloud's id of the VM.
    pub id: String,
    /// The state: `BUILD`, `ACTIVE`, `ERROR`, `DELETING` and so on.
    pub status: String,
    /// What failed, if the state is `ERROR`.
    #[serde(default)]
    pub fault: Option<String>,
    /// When the cloud began to create it, in milliseconds since 1970.
    pub created_at: u64,
    /// Whether it has an address by which it can be managed.
    pub managed: bool,
    /// The ports that are plugged in, as the cloud knows them.
    pub ports: Vec<Port>,
}

impl Instance {
    /// Whether it is being built.
    pub fn is_built(&self) -> bool {
        self.status == "BUILD"
    }

    /// Whether the cloud has given it up: it could not be built, or an action on it failed.
    pub fn is_failed(&self) -> bool {
        self.status == "ERROR"
    }

    /// What failed, in the words of the cloud.
    pub fn what_failed(&self) -> &str {
        self.fault
            .as_deref()
            .unwrap_or("the cloud does not say what failed")
    }

    /// Whether it is being removed.
    pub fn is_leaving(&self) -> bool {
        self.status == "DELETING"
    }
}

/// A VM that was booted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Booted {
    /// The cloud's id of the VM.
    pub id: String,
}

/// Whether a router answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Alive {
    /// Whether its management API answers.
    pub alive: bool,
}

/// The ports that a VM itself shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Interfaces {
    /// The MAC addresses, in lower case.
    pub macs: Vec<String>,
}

/// A port, and the router that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct KnownPort {
    /// The router that has the port, or to which the port is assigned.
    #[serde(default)]
    pub router: Option<String>,
}

/// The traffic of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Stats {
    /// The traffic by port.
    pub traffic: Vec<Traffic>,
}

/// The traffic of a port.
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

/// An empty answer.
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

/// Asks whether the network service knows the router. After its removal there the answer is `not-found`.
pub fn resource(name: &str) -> CloudAsk<Nothing> {
    cloud::ask("router.resource", &ByName { name })
}

/// Asks for a router's VM. By id an existing VM is always found; by name it may be missed for a while.
pub fn instance(router: Named<'_>) -> CloudAsk<Instance> {
    cloud::ask("router.get", &router)
}

/// Asks whether a router's management API answers.
pub fn alive(id: &str) -> CloudAsk<Alive> {
    cloud::ask("router.alive", &ById { id })
}

/// Asks for the ports that a VM itself shows.
pub fn interfaces(id: &str) -> CloudAsk<Interfaces> {
    cloud::ask("router.interfaces", &ById { id })
}

/// Asks for the traffic of a VM.
pub fn stats(id: &str) -> CloudAsk<Stats> {
    cloud::ask("router.stats", &ById { id })
}

/// Asks for an image that the caller may boot; `not-found` if there is none.
pub fn image(image: &str) -> CloudAsk<Nothing> {
    #[derive(Serialize)]
    struct ByImage<'a> {
        image: &'a str,
    }
    cloud::ask("image.get", &ByImage { image })
}

/// The reason why nothing can boot from an image, from the failure of reading the image.
pub fn no_image(failure: &Failure) -> Option<&'static str> {
    match failure.code {
        Code::NotFound => Some("ImageNotFound"),
        Code::PermissionDenied => Some("ImageDenied"),
        _ => None,
    }
}

/// Asks for a port; `permission-denied` if it belongs to another owner.
pub fn port(port: &Port) -> CloudAsk<KnownPort> {
    cloud::ask("port.get", port)
}

/// Boots a router's VM.
pub fn boot(router: &Creation<'_>) -> CloudDo<Booted> {
    cloud::create(BOOT, router.name, router)
}

/// Begins to remove a VM.
pub fn delete(id: &str) -> CloudDo<Nothing> {
    cloud::change("router.delete", &ById { id })
}

/// Releases the ports of a router.
pub fn delete_ports(name: &str) -> CloudDo<Nothing> {
    cloud::change("router.delete-ports", &ByName { name })
}

/// Configures a router, by a task.
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

/// Unplugs a port while the VM runs.
pub fn detach(id: &str, port: &Port) -> CloudDo<Nothing> {
    cloud::change("port.detach", &Plug { id, port })
}

/// Ports, sorted by whether the router may have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The ports that the router may have.
    pub own: Vec<Port>,
    /// The ports that the router must not have, with the reasons.
    pub denied: Vec<(Port, &'static str)>,
}

/// Sorts ports by whether the router of this name may have them. A failure that is not about the ownership of
/// a port is returned as a failure.
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

/// The reason why the router must not have a port, if the failure is about the port's ownership.
fn denial(failure: &Failure) -> Option<&'static str> {
    match failure.code {
        Code::PermissionDenied => Some(ANOTHERS),
        Code::NotFound => Some("PortNotFound"),
        _ => None,
    }
}

/// The result of plugging ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugged {
    /// Whether something was plugged in or unplugged. The VM shows it later.
    pub changed: bool,
    /// The ports that were left out, with the reasons.
    pub denied: Vec<(Port, &'static str)>,
    /// The failure, if a port could not be plugged in or unplugged. One that leaves the effect unknown comes before others.
    pub failure: Option<Failure>,
}

impl Plugged {
    fn fail(&mut self, failure: Failure) {
        if self
            .failure
            .as_ref()
            .is_none_or(|earlier| earlier.effect == Effect::None)
        {
            self.failure = Some(failure);
        }
    }
}

/// Plugs in the ports that the cloud knows to be missing, and unplugs those that are too many, while the VM
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
                None => plugged.fail(failure),
            },
        }
    }
    for answer in detached {
        match answer {
            Ok(_) => plugged.changed = true,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => plugged.fail(failure),
        }
    }
    Ok(plugged)
}
