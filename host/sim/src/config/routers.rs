//! How routers boot, and of what.

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
    /// How long after that, or after it was turned on, it answers.
    pub boot: Between,
    /// How long it takes until it shows a port that was plugged in or out.
    pub plug: Between,
    /// How long it takes to remove it.
    pub stop: Between,
    /// What ports there are. None listed: every network has a port of every MAC address.
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

/// A port that routers can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouterPort {
    /// The network it is in.
    pub network: String,
    /// Its MAC address.
    pub mac: String,
    /// Whose it is; everybody's if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// For which router of that tenant it was made; for any if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

/// Something that routers boot from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// As `router.boot` names it.
    pub id: String,
    /// Who may boot it; none listed: everybody.
    #[serde(default)]
    pub tenants: Vec<String>,
}
