//! How routers boot, and from which images and ports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::between::Between;

/// How routers boot and are plugged.
///
/// ```yaml
/// routers:
///   boot: {min: 10s, max: 40s}
///   ports:
///   - {network: net-1, mac: "fa:16:3e:00:00:01"}
///   - {network: net-2, mac: "fa:16:3e:00:00:02", tenant: team-b, router: r-2}
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Routers {
    /// How long it takes until a router's VM can be reached.
    pub build: Between,
    /// How long after that, or after power-on, the router answers.
    pub boot: Between,
    /// How long it takes until the VM shows that a port was plugged in or unplugged.
    pub plug: Between,
    /// How long it takes to remove the VM.
    pub stop: Between,
    /// The ports that exist. With an empty list, every network has a port of every MAC address.
    pub ports: Vec<RouterPort>,
}

impl Default for Routers {
    fn default() -> Self {
        Routers {
            build: Between::new(1_000, 5_000),
            boot: Between::new(10_000, 40_000),
            plug: Between::new(500, 4_000),
            stop: Between::new(500, 8_000),
            ports: Vec::new(),
        }
    }
}

/// A port that a router can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouterPort {
    /// The network of the port.
    pub network: String,
    /// Its MAC address.
    pub mac: String,
    /// The tenant that the port belongs to; without one it belongs to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The router of that tenant for which the port was made; without one any router may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

/// An image that routers boot from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// The id by which `router.boot` names it.
    pub id: String,
    /// The tenants that may boot it. An empty list allows all.
    #[serde(default)]
    pub tenants: Vec<String>,
}
