//! Virtual routers in the manner of Neutron and Nova.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Named, change, create, fields, id, name, of, read, task, text};

/// Creates the VM of a router.
pub const BOOT: &str = "router.boot";
/// Plugs a port into a router.
pub const ATTACH: &str = "port.attach";
/// Unplugs a port from a router.
pub const DETACH: &str = "port.detach";
/// Configures a router.
pub const PUSH: &str = "config.push";
/// Reads an image.
pub const IMAGE: &str = "image.get";
/// Reads a port.
pub const PORT: &str = "port.get";
/// Reads whether the network service knows a router.
pub const RESOURCE: &str = "router.resource";
/// Reads the VM of a router.
pub const GET: &str = "router.get";
/// Reads whether a router's management API answers.
pub const ALIVE: &str = "router.alive";
/// Reads the MAC addresses of a router's VM.
pub const INTERFACES: &str = "router.interfaces";
/// Reads the traffic of a router's ports.
pub const STATS: &str = "router.stats";
/// Removes the VM of a router.
pub const DELETE: &str = "router.delete";
/// Releases the ports of a router.
pub const DELETE_PORTS: &str = "router.delete-ports";
/// The most ports of a router: a VM has this many slots.
const PORTS: u64 = 26;

/// The name of the service, with its major version.
const SERVICE: &str = "router@1";

/// The operations on routers, and on their images and ports.
pub fn operations(visible_within: Duration) -> Vec<Named> {
    let all = [boot(visible_within)].into_iter();
    of(SERVICE, all.chain(reads()).chain(changes()))
}

fn by_name() -> Value {
    fields(json!({"name": name()}), &["name"])
}

fn reads() -> [Named; 7] {
    let image = fields(json!({"image": name()}), &["image"]);
    let nothing = || fields(json!({}), &[]);
    let traffic = json!({"mac": text(), "rxBytes": count(), "txBytes": count()});
    let traffic = fields(traffic, &["mac", "rxBytes", "txBytes"]);
    [
        read(IMAGE, "An image that the caller may boot.", image, nothing()),
        read(
            PORT,
            "A port, and which of the caller's routers it belongs to. The answer names no router of another owner.",
            port(),
            known_port(),
        ),
        read(
            RESOURCE,
            "Whether the network service knows the caller's router of this name.",
            by_name(),
            nothing(),
        ),
        read(
            GET,
            "A router's VM, by its id; without an id by its name, and then the answer may lag behind.",
            fields(json!({"name": name(), "id": name()}), &["name"]),
            instance(),
        ),
        read(
            ALIVE,
            "Whether the management API of a router's VM answers. It is tried several times.",
            id(),
            fields(json!({"alive": {"type": "boolean"}}), &["alive"]),
        ),
        read(
            INTERFACES,
            "The MAC addresses that a router's VM reports. Its management API must answer.",
            id(),
            fields(json!({"macs": {"type": "array", "items": text()}}), &["macs"]),
        ),
        read(
            STATS,
            "The traffic of a router's ports. The management API of its VM must answer.",
            id(),
            fields(
                json!({"traffic": {"type": "array", "items": traffic}}),
                &["traffic"],
            ),
        ),
    ]
}

fn changes() -> [Named; 5] {
    [
        task(
            PUSH,
            "Configures a router's VM.",
            fields(
                json!({"id": name(), "config": {"type": "object"}}),
                &["id", "config"],
            ),
        ),
        change(DELETE, "Begins to remove a router's VM.", id(), &[]),
        change(DELETE_PORTS, "Releases the ports of a router.", by_name(), &[]),
        change(
            ATTACH,
            "Plugs a port into a router's VM while it runs.",
            plug(),
            &[],
        ),
        change(
            DETACH,
            "Unplugs a port from a router's VM and releases the port.",
            plug(),
            &[],
        ),
    ]
}

fn boot(visible_within: Duration) -> Named {
    let arguments = json!({
        "name": name(),
        "image": name(),
        "flavor": name(),
        "ports": {"type": "array", "items": port(), "maxItems": PORTS},
    });
    let description =
        "Boots a router's VM with its ports, stamped with its owner. The intent is the router's name.";
    let arguments = fields(arguments, &["name", "image", "flavor", "ports"]);
    let answer = fields(json!({"id": text()}), &["id"]);
    create(BOOT, description, arguments, answer, visible_within, &[])
}

fn instance() -> Value {
    let instance = json!({
        "id": text(),
        "status": {"enum": ["BUILD", "ACTIVE", "SHUTOFF", "SUSPENDED", "ERROR", "DELETING"]},
        // Of a VM in error: what failed.
        "fault": text(),
        // Milliseconds since 1970.
        "createdAt": count(),
        "managed": {"type": "boolean"},
        "ports": {"type": "array", "items": port()},
    });
    fields(instance, &["id", "status", "createdAt", "managed", "ports"])
}

fn port() -> Value {
    fields(json!({"network": name(), "mac": mac()}), &["network", "mac"])
}

fn known_port() -> Value {
    let router = json!({"type": ["string", "null"]});
    fields(
        json!({"network": name(), "mac": mac(), "router": router}),
        &["network", "mac"],
    )
}

fn plug() -> Value {
    fields(
        json!({"id": name(), "network": name(), "mac": mac()}),
        &["id", "network", "mac"],
    )
}

fn mac() -> Value {
    json!({"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}
