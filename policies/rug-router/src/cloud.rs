//! The cloud's operations on routers. They take ids and names, never addresses: the adapter knows those.

use polity_sdk::cloud::{CloudAsk, CloudDo};
use polity_sdk::prelude::*;

use crate::object::{Port, Router, Traffic};

/// Makes a router's VM: the only operation that creates. Its intent is the router's name.
pub(crate) const BOOT: &str = "router.boot";
/// All operations that this policy uses.
pub(crate) const OPERATIONS: [&str; 14] = [
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

/// A router's VM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instance {
    /// The cloud's id of it.
    pub(crate) id: String,
    /// `BUILD`, `ACTIVE`, `DELETING` and so on.
    pub(crate) status: String,
    /// When the cloud began to make it, in milliseconds since 1970.
    pub(crate) created_at: u64,
    /// Whether it can be reached for management.
    pub(crate) managed: bool,
    /// What is plugged in, as the cloud knows it.
    pub(crate) ports: Vec<Port>,
}

/// A VM that was made.
#[derive(Debug, Deserialize)]
pub(crate) struct Booted {
    pub(crate) id: String,
}

/// Whether a VM answers.
#[derive(Debug, Deserialize)]
pub(crate) struct Alive {
    pub(crate) alive: bool,
}

/// What a VM itself says is plugged in.
#[derive(Debug, Deserialize)]
pub(crate) struct Interfaces {
    pub(crate) macs: Vec<String>,
}

/// A port, and whose it is.
#[derive(Debug, Deserialize)]
pub(crate) struct KnownPort {
    /// The name of the router that it belongs to.
    #[serde(default)]
    pub(crate) router: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Read {
    pub(crate) traffic: Vec<Traffic>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Submitted {
    pub(crate) task: String,
}

/// An answer that says nothing but that there is one.
#[derive(Debug, Deserialize)]
pub(crate) struct Nothing {}

#[derive(Serialize)]
struct ByName<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct ById<'a> {
    id: &'a str,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

#[derive(Serialize)]
struct Creation<'a> {
    name: &'a str,
    image: &'a str,
    flavor: &'a str,
    ports: &'a [Port],
}

#[derive(Serialize)]
struct Plug<'a> {
    id: &'a str,
    #[serde(flatten)]
    port: &'a Port,
}

#[derive(Serialize)]
struct Pushed<'a> {
    id: &'a str,
    config: Configuration<'a>,
}

/// What a VM is told.
#[derive(Serialize)]
struct Configuration<'a> {
    ports: &'a [Port],
}

/// Whether the network service knows the router: `not-found` once it was removed there.
pub(crate) fn resource(router: &Router) -> CloudAsk<Nothing> {
    let name = &router.metadata.name;
    cloud::ask("router.resource", &ByName { name })
}

/// Its VM: by id where that is known, which never denies what exists.
pub(crate) fn instance(router: &Router) -> CloudAsk<Instance> {
    let (name, id) = (&router.metadata.name, router.status.instance.as_deref());
    cloud::ask("router.get", &Named { name, id })
}

/// Whether the VM answers.
pub(crate) fn alive(id: &str) -> CloudAsk<Alive> {
    cloud::ask("router.alive", &ById { id })
}

/// What the VM itself says is plugged in.
pub(crate) fn interfaces(id: &str) -> CloudAsk<Interfaces> {
    cloud::ask("router.interfaces", &ById { id })
}

/// How much traffic there was.
pub(crate) fn stats(id: &str) -> CloudAsk<Read> {
    cloud::ask("router.stats", &ById { id })
}

/// An image, or `not-found`.
pub(crate) fn image(image: &str) -> CloudAsk<Nothing> {
    #[derive(Serialize)]
    struct Image<'a> {
        image: &'a str,
    }
    cloud::ask("image.get", &Image { image })
}

/// A port; `permission-denied` if it belongs to somebody else.
pub(crate) fn port(port: &Port) -> CloudAsk<KnownPort> {
    cloud::ask("port.get", port)
}

/// Makes the VM with these ports plugged in.
pub(crate) fn boot(router: &Router, ports: &[Port]) -> CloudDo<Booted> {
    let name = router.metadata.name.as_str();
    let creation = Creation {
        name,
        image: router.image(),
        flavor: &router.spec.flavor,
        ports,
    };
    cloud::create(BOOT, name, &creation)
}

/// Takes the VM down, which takes a while.
pub(crate) fn delete(id: &str) -> CloudDo<Nothing> {
    cloud::change("router.delete", &ById { id })
}

/// Gives back the ports that the router has.
pub(crate) fn delete_ports(router: &Router) -> CloudDo<Nothing> {
    let name = &router.metadata.name;
    cloud::change("router.delete-ports", &ByName { name })
}

/// Tells the VM what to be: a task.
pub(crate) fn push(id: &str, ports: &[Port]) -> CloudDo<Submitted> {
    let config = Configuration { ports };
    cloud::change("config.push", &Pushed { id, config })
}

/// Plugs a port in while the VM runs.
pub(crate) fn attach(id: &str, port: &Port) -> CloudDo<Nothing> {
    cloud::change("port.attach", &Plug { id, port })
}

/// Unplugs a port while the VM runs.
pub(crate) fn detach(id: &str, port: &Port) -> CloudDo<Nothing> {
    cloud::change("port.detach", &Plug { id, port })
}
