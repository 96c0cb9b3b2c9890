//! The Router: what a person writes, and what this policy writes.
//!
//! The state machine stands in `status`, where no tenant can write.

use polity_sdk::cloud::router::{Named, Port, Traffic};
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
    /// The observed state.
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
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mac"]))]
    pub ports: Vec<Port>,
    /// Somebody works on the router by hand: nothing is asked and nothing is done.
    #[serde(default)]
    pub debug: bool,
    /// The reason, for people.
    #[serde(default)]
    pub debug_reason: Option<String>,
}

/// What is known of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterStatus {
    /// The state that the next pass executes.
    pub machine_state: Option<State>,
    /// ACT
    pub action: Action,
    /// What is believed of the VM.
    pub vm: Vm,
    /// Events that wait, the oldest first.
    pub queue: Vec<Action>,
    /// Boots since the VM was last seen alive and configured.
    pub boot_attempts: u32,
    /// When the VM was given up.
    pub last_error_time: Option<Time>,
    /// As the network service shows it.
    pub neutron_status: Option<NeutronStatus>,
    /// The image that the last request for a rebuild named.
    #[serde(rename = "rebuildImageUUID")]
    pub rebuild_image_uuid: Option<String>,
    /// The generation whose change is in the queue or dealt with.
    pub observed_generation: Option<i64>,
    /// The read request that was taken last.
    pub read_request: Option<String>,
    /// The rebuild request that was taken last.
    pub rebuild_request: Option<String>,
    /// When the router is looked at next.
    pub next_poll: Option<Time>,
    /// The cloud's id of the VM; absent while there is none.
    pub instance: Option<String>,
    /// The MAC addresses of the ports that were plugged in, to be given back.
    pub ports: Vec<String>,
    /// The MAC addresses of ports that are wanted and not the router's to have.
    pub withheld: Vec<String>,
    /// The configuration that is under way.
    pub push: Option<Push>,
    /// Since when networks are being plugged.
    pub plug_since: Option<Time>,
    /// What was plugged was as the cloud knew it: from now on ports are attached and detached.
    pub plugging: bool,
    /// The traffic that was read last.
    pub traffic: Vec<Traffic>,
    /// When traffic was seen last.
    pub traffic_time: Option<Time>,
    /// `Ready`, `PortsPlugged`, `RebuildTaken` and `Debugging`.
    pub conditions: Conditions,
    /// Why the router is not ready was said in this pass.
    #[serde(skip)]
    pub(crate) told: bool,
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
#[serde(default)]
pub struct Push {
    /// The task in flight.
    pub task: Option<String>,
    /// When it was submitted.
    pub since: Option<Time>,
    /// How often the VM refused it.
    pub failures: u32,
}

impl Router {
    /// What its VM boots from.
    pub(crate) fn image(&self) -> &str {
        let rebuilt = self.status.rebuild_image_uuid.as_ref();
        rebuilt.unwrap_or(&self.spec.image_uuid)
    }

    /// How its VM is asked for.
    pub(crate) fn named(&self) -> Named<'_> {
        Named {
            name: &self.metadata.name,
            id: self.status.instance.as_deref(),
        }
    }
}
