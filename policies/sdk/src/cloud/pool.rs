//! Pools of machines that kubeadm makes a cluster of: what a provider of pools does.
//!
//! Whatever takes long is submitted and answered with a task ([`vm::task`](crate::cloud::vm::task)). Submitted again
//! while it runs, the same work answers the same task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::vm::{Read, Submit, Wrapped};
use crate::cloud::{self, CloudDo};
use crate::cluster::Sealed;
use crate::kube::node::Taint;

/// Adds a machine: the only operation that creates. Its intent is the machine's name.
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

/// Asks for the pools that are there, with the addresses under which they are reached.
pub fn list() -> Read<PoolsAnswer> {
    Read::of(cloud::ask("pool.list", &Nothing {}))
}

/// Makes the infrastructure of these pools: networks, load balancers, addresses. Those that are there stay.
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

/// Resets what kubeadm made of a machine, and destroys it.
pub fn remove(machine: &str) -> Submit {
    Submit::of(cloud::change("pool.remove-machine", &OnMachine { machine }))
}

/// Installs the node agent on a machine and starts it, with the versions that it begins with.
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

/// Makes a machine the first node of its cluster. A provider refuses to make a cluster twice.
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

/// An answer that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Empty {}

/// A control plane, or workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// It runs the control plane.
    ControlPlane,
    /// It runs everything else.
    Worker,
}

/// A pool that is to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted<'a> {
    /// Its name.
    pub pool: &'a str,
    /// Whose pool it is, for clouds that speak to several providers.
    pub provider: &'a str,
    /// What its machines are for.
    pub tier: Tier,
}

/// A pool that is there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pool {
    /// Its name.
    pub pool: String,
    /// The addresses under which it is reached.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// A machine that is to be.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Addition<'a> {
    /// Its name: the intent.
    pub name: &'a str,
    /// The pool that it belongs to.
    pub pool: &'a str,
    /// What it is for.
    pub tier: Tier,
}

/// A machine of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The cloud's id of it.
    pub id: String,
    /// The name it was added with.
    pub name: String,
    /// The pool it belongs to.
    pub pool: String,
    /// What it is for.
    pub tier: Tier,
    /// What its node will say in `spec.providerID`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// What its node is called, or will be.
    pub node_name: String,
    /// How its node agent is.
    #[serde(default)]
    pub agent: Agent,
    /// Which release of the node agent was installed.
    #[serde(default)]
    pub agent_release: Option<String>,
    /// Somebody wants another one instead.
    #[serde(default)]
    pub replacement_required: bool,
}

/// How the node agent of a machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// Not installed, or not running.
    #[default]
    Absent,
    /// It runs and prepares its machine.
    Running,
    /// It has said that its machine is prepared.
    Initialized,
}

/// What a machine is registered as.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Registration<'a> {
    /// The machine's id.
    pub machine: &'a str,
    /// The labels that its node gets.
    pub labels: &'a BTreeMap<String, String>,
    /// The taints that its node gets.
    #[serde(skip_serializing_if = "<[Taint]>::is_empty")]
    pub taints: &'a [Taint],
}

/// How a machine joins.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Join<'a> {
    /// As what.
    #[serde(flatten)]
    pub node: Registration<'a>,
    /// As control plane or worker.
    pub role: Tier,
    /// With what it joins; sealed.
    pub token: Sealed,
    /// With what the certificates of the control plane are handed over; sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<Sealed>,
}

/// What `pool.list` answers.
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

/// What `pool.machines` answers.
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
