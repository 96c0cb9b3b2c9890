//! Pools of machines from which kubeadm makes a cluster: the operations of a provider of pools.
//!
//! Long work is answered with a task ([`vm::task`](crate::cloud::vm::task)). If the same work is submitted
//! while it runs, the answer is the same task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::vm::{Read, Submit, Wrapped};
use crate::cloud::{self, CloudDo};
use crate::cluster::Sealed;
use crate::kube::node::Taint;

/// Adds a machine. It is the only operation that creates something. Its intent is the machine's name.
pub const ADD: &str = "pool.add-machine";
/// All operations of a provider.
pub const OPERATIONS: [&str; 9] = [
    "pool.list",
    "pool.ensure",
    "pool.machines",
    ADD,
    "pool.remove-machine",
    "agent.install",
    "kubeadm.init",
    "kubeadm.join",
    "task.get",
];

/// Asks for the pools that exist, with the addresses at which they are reached.
pub fn list() -> Read<PoolsAnswer> {
    Read::of(cloud::ask("pool.list", &Nothing {}))
}

/// Creates the infrastructure of these pools: networks, load balancers, addresses. Existing pools stay.
pub fn ensure(pools: &[Wanted<'_>]) -> CloudDo<Empty> {
    #[derive(Serialize)]
    struct All<'a> {
        pools: &'a [Wanted<'a>],
    }
    cloud::change("pool.ensure", &All { pools })
}

/// Asks for the machines of all pools.
pub fn machines() -> Read<MachinesAnswer> {
    Read::of(cloud::ask("pool.machines", &Nothing {}))
}

/// Adds a machine to a pool.
pub fn add(machine: &Addition<'_>) -> CloudDo<Machine> {
    cloud::create(ADD, machine.name, machine)
}

/// Resets a machine with kubeadm and destroys it.
pub fn remove(machine: &str) -> Submit {
    Submit::of(cloud::change("pool.remove-machine", &OnMachine { machine }))
}

/// Installs the node agent on a machine and starts it with these initial versions.
pub fn install_agent(machine: &str, versions: &BTreeMap<String, String>, release: Option<&str>) -> Submit {
    #[derive(Serialize)]
    struct Installation<'a> {
        machine: &'a str,
        versions: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        release: Option<&'a str>,
    }
    let installation = Installation {
        machine,
        versions,
        release,
    };
    Submit::of(cloud::change("agent.install", &installation))
}

/// Makes a machine the first node of its cluster. A provider refuses to create a cluster twice.
pub fn init(node: &Registration<'_>) -> Submit {
    Submit::of(cloud::change("kubeadm.init", node))
}

/// Makes a machine a node of its cluster.
pub fn join(join: &Join<'_>) -> Submit {
    Submit::of(cloud::change("kubeadm.join", join))
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
struct OnMachine<'a> {
    machine: &'a str,
}

/// An empty answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Empty {}

/// The tier of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The machine runs the control plane.
    ControlPlane,
    /// The machine runs the workloads.
    Worker,
}

/// A wanted pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    /// The provider of the pool, for clouds with several providers.
    pub provider: &'a str,
    /// The tier of its machines.
    pub tier: Tier,
}

/// An existing pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pool {
    /// The name of the pool.
    pub pool: String,
    /// The addresses at which it is reached.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// A machine to add.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Addition<'a> {
    /// The name of the machine, which is the intent.
    pub name: &'a str,
    /// The pool of the machine.
    pub pool: &'a str,
    /// The tier of the machine.
    pub tier: Tier,
}

/// A machine of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The cloud's id of the machine.
    pub id: String,
    /// The name with which it was added.
    pub name: String,
    /// The pool of the machine.
    pub pool: String,
    /// The tier of the machine.
    pub tier: Tier,
    /// The `spec.providerID` of its node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The name of its node, also before the node exists.
    pub node_name: String,
    /// The state of its node agent.
    #[serde(default)]
    pub agent: Agent,
    /// The release of the node agent that was installed.
    #[serde(default)]
    pub agent_release: Option<String>,
    /// Whether the machine should be replaced.
    #[serde(default)]
    pub replacement_required: bool,
}

/// The state of a machine's node agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// The agent is not installed, or not running.
    #[default]
    Absent,
    /// The agent runs and prepares its machine.
    Running,
    /// The agent has prepared its machine.
    Initialized,
}

/// The registration of a machine as a node.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Registration<'a> {
    /// The machine's id.
    pub machine: &'a str,
    /// The labels of its node.
    pub labels: &'a BTreeMap<String, String>,
    /// The taints of its node.
    #[serde(skip_serializing_if = "<[Taint]>::is_empty")]
    pub taints: &'a [Taint],
}

/// The way in which a machine joins.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Join<'a> {
    /// The registration of the node.
    #[serde(flatten)]
    pub node: Registration<'a>,
    /// The tier as which it joins.
    pub role: Tier,
    /// The token with which it joins; sealed.
    pub token: Sealed,
    /// The key that decrypts the certificates of the control plane; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<Sealed>,
}

/// The answer of `pool.list`.
#[derive(Clone, Debug, Deserialize)]
pub struct PoolsAnswer {
    pools: Vec<Pool>,
}

impl Wrapped for PoolsAnswer {
    type Value = Vec<Pool>;
    fn unwrapped(self) -> Vec<Pool> {
        self.pools
    }
}

/// The answer of `pool.machines`.
#[derive(Clone, Debug, Deserialize)]
pub struct MachinesAnswer {
    machines: Vec<Machine>,
}

impl Wrapped for MachinesAnswer {
    type Value = Vec<Machine>;
    fn unwrapped(self) -> Vec<Machine> {
        self.machines
    }
}
