//! The Router: the fields that people write, and those that this policy writes.
//!
//! The state machine is in `status`, which no tenant can write.

use polity_sdk::cloud::router::{Named, Port, Traffic};
use polity_sdk::prelude::*;

use crate::letters::{Action, State, Vm};

/// The finalizer that keeps a Router until its VM is gone.
pub(crate) const FINALIZER: &str = "rug.polity.dev/router";

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Router {
    /// The metadata. The VM, and the router in the network service, have the same name.
    pub metadata: Metadata,
    /// The wanted state.
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

/// The wanted state of a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// The image from which its VM boots. A change is used from the next boot on; request a rebuild to use it
    /// now.
    #[serde(rename = "imageUUID")]
    pub image_uuid: String,
    /// The flavor of its VM, which is its size.
    pub flavor: String,
    /// The ports, by which it connects networks.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mac"]))]
    pub ports: Vec<Port>,
    /// Whether a person works on the router. Then the policy makes no requests.
    #[serde(default)]
    pub debug: bool,
    /// The reason for debugging, for people.
    #[serde(default)]
    pub debug_reason: Option<String>,
}

/// The observed state of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouterStatus {
    /// The state that the next pass executes.
    pub machine_state: Option<State>,
    /// The present action (ACT in the drawing).
    pub action: Action,
    /// The believed state of the VM.
    pub vm: Vm,
    /// Events that wait, oldest first.
    pub queue: Vec<Action>,
    /// Boots since the VM was last seen alive and configured.
    pub boot_attempts: u32,
    /// When the VM was given up.
    pub last_error_time: Option<Time>,
    /// The state of the router in the network service.
    pub neutron_status: Option<NeutronStatus>,
    /// The image of the last request for a rebuild.
    #[serde(rename = "rebuildImageUUID")]
    pub rebuild_image_uuid: Option<String>,
    /// The generation whose change is in the queue or handled.
    pub observed_generation: Option<i64>,
    /// The last read request that was handled.
    pub read_request: Option<String>,
    /// The last rebuild request that was handled.
    pub rebuild_request: Option<String>,
    /// When the router is polled next.
    pub next_poll: Option<Time>,
    /// The cloud's id of the VM; absent while there is none.
    pub instance: Option<String>,
    /// The MAC addresses of the ports that were plugged in and must be given back.
    pub ports: Vec<String>,
    /// The MAC addresses of wanted ports that the router must not have.
    pub withheld: Vec<String>,
    /// The configuration that is being pushed.
    pub push: Option<Push>,
    /// From when on the VM has the hotplug timeout to show its networks: from the pass after the first answer to plugging.
    /// Without an answer it is when the cloud has ended what may be in doubt.
    pub plug_since: Option<Time>,
    /// Whether the plugged ports were those that the cloud knows. From then on ports are attached and
    /// detached.
    pub plugging: bool,
    /// The traffic that was last read.
    pub traffic: Vec<Traffic>,
    /// When traffic was last seen.
    pub traffic_time: Option<Time>,
    /// `Ready`, `PortsPlugged`, `RebuildTaken` and `Debugging`.
    pub conditions: Conditions,
    /// Whether this pass has already reported why the router is not ready.
    #[serde(skip)]
    pub(crate) told: bool,
}

/// The state of a router in the network service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are the network service's")]
pub enum NeutronStatus {
    Down,
    Build,
    Active,
    Error,
}

/// A configuration that is being pushed to the VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Push {
    /// The task in flight.
    pub task: Option<String>,
    /// When it was submitted.
    pub since: Option<Time>,
    /// How often the VM has refused it.
    pub failures: u32,
}

impl Router {
    /// The image from which its VM boots.
    pub(crate) fn image(&self) -> &str {
        let rebuilt = self.status.rebuild_image_uuid.as_ref();
        rebuilt.unwrap_or(&self.spec.image_uuid)
    }

    /// The names by which its VM is asked for.
    pub(crate) fn named(&self) -> Named<'_> {
        Named {
            name: &self.metadata.name,
            id: self.status.instance.as_deref(),
        }
    }
}
