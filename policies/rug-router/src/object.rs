//! The Router: what a person writes, and what this policy writes.
//!
//! The state machine stands in `status`, where no tenant can write.

use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};

/// The finalizer that keeps a Router until its VM is gone.
pub(crate) const FINALIZER: &str = "rug.polity.dev/router";

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Router {
    /// Its name is the VM's, and that of the router in the network service.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: RouterSpec,
    /// What is.
    #[serde(default)]
    pub status: RouterStatus,
}

impl Kind for Router {
    const API_VERSION: &'static str = "rug.polity.dev/v1alpha1";
    const KIND: &'static str = "Router";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// What is wanted of a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// What its VM boots from. Another one is used from the next boot on: ask for a rebuild.
    #[serde(rename = "imageUUID")]
    pub image_uuid: String,
    /// How large its VM is.
    pub flavor: String,
    /// The networks that it connects.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Somebody works on the router by hand: nothing is asked and nothing is done.
    #[serde(default)]
    pub debug: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_reason: Option<String>,
}

/// A port of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// The network.
    pub network: String,
    /// The port's MAC address, by which it is known.
    pub mac: String,
}

/// What is known of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterStatus {
    /// The state that the next pass executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_state: Option<State>,
    /// ACT
    pub action: Action,
    /// What is believed of the VM.
    pub vm: Vm,
    /// Events that wait, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<Action>,
    /// Boots since the VM was last seen alive and configured.
    #[serde(skip_serializing_if = "is_zero")]
    pub boot_attempts: u32,
    /// When the VM was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_time: Option<Time>,
    /// As the network service shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neutron_status: Option<NeutronStatus>,
    /// The image that the last request for a rebuild named.
    #[serde(rename = "rebuildImageUUID", skip_serializing_if = "Option::is_none")]
    pub rebuild_image_uuid: Option<String>,
    /// The generation whose change is in the queue or dealt with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The read request that was taken last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_request: Option<String>,
    /// The rebuild request that was taken last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_request: Option<String>,
    /// When the router is looked at next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_poll: Option<Time>,
    /// The cloud's id of the VM; absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The MAC addresses of the ports that were plugged in, to be given back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The MAC addresses of ports that are wanted and not the router's to have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// The configuration that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// Since when networks are being plugged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plug_since: Option<Time>,
    /// What was plugged was as the cloud knew it: from now on ports are attached and detached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plugging: bool,
    /// The traffic that was read last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_time: Option<Time>,
    /// `Ready`, `PortsPlugged`, `RebuildTaken` and `Debugging`.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
    /// Why the router is not ready was said in this pass.
    #[serde(skip)]
    pub(crate) told: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How the network service shows a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are the network service's")]
pub enum NeutronStatus {
    Down,
    Build,
    Active,
    Error,
}

/// A configuration on its way to the VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Push {
    /// The task in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// When it was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How often the VM refused it.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
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

impl Router {
    /// What its VM boots from.
    pub(crate) fn image(&self) -> &str {
        let rebuilt = self.status.rebuild_image_uuid.as_ref();
        rebuilt.unwrap_or(&self.spec.image_uuid)
    }
}
