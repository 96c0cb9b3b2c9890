//! The fleet: pools, machines and their nodes (ORB-01, ORB-02).

use std::collections::BTreeMap;

use polity_sdk::cloud::pool::{self, Agent, Machine, Tier, Wanted};
use polity_sdk::kube::node::Node;

use crate::{Because, Cx, MachineStatus, NodeMetadata, ORB, Orb, Stop, TaskKind, nodes};

/// The fields of a node that are read.
pub const PARTS: &[&str] = &[
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.unschedulable",
    "spec.taints",
    "status.conditions",
    "status.volumesAttached",
];

/// All machines, the control plane first, then by pool and number; and Nodes of this Orb that have no machine.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The machines.
    pub members: Vec<Member>,
    /// Nodes of this Orb that have no machine.
    pub orphans: Vec<Node>,
    /// The names of Nodes that belong to another owner.
    pub foreign: Vec<String>,
}

/// A machine and its node.
#[derive(Clone, Debug)]
pub struct Member {
    /// The machine, as its provider shows it.
    pub machine: Machine,
    /// The number in the name of the machine.
    pub number: Option<u32>,
    /// The Node of the machine; `None` before it has joined.
    pub node: Option<Node>,
    /// The annotations by which orbiter and the agent communicate.
    pub metadata: NodeMetadata,
    /// Whether no version may be changed on this machine.
    pub updates_disabled: bool,
}

impl Fleet {
    /// Creates missing infrastructure, and reads the fleet.
    pub async fn look(cx: &Cx, orb: &mut Orb) -> Result<Fleet, Stop> {
        infrastructure(cx, orb).await?;
        let (machines, nodes) = nodes::look(cx, orb).await?;
        let fleet = muster(orb, machines, nodes)?;
        orb.status.machines = fleet.members.iter().map(Member::status).collect();
        let mut control_planes = fleet.members.iter().filter(|member| member.is_control_plane());
        if let Some(Member { machine, .. }) = control_planes.next() {
            orb.status.initialized.get_or_insert_with(|| machine.name.clone());
        }
        Ok(fleet)
    }
}

/// Asks for the infrastructure, and acts only if something is missing.
async fn infrastructure(cx: &Cx, orb: &mut Orb) -> Result<(), Stop> {
    const FAILED: &str = "InfrastructureFailed";
    let mut there = cx.ask(pool::list()).await.because(FAILED)?;
    let wanted: Vec<Wanted<'_>> = orb
        .pools()
        .map(|(tier, pool)| Wanted {
            pool: &pool.pool,
            provider: &pool.provider,
            tier,
        })
        .collect();
    let has = |there: &[pool::Pool], name: &str| there.iter().any(|pool| pool.pool == name);
    let missing = |there: &[pool::Pool]| wanted.iter().any(|wanted| !has(there, wanted.pool));
    if missing(&there) && !orb.metadata.deleting() {
        cx.act(pool::ensure(&wanted)).await.because(FAILED)?;
        there = cx.ask_again(1, pool::list()).await.because(FAILED)?;
        if missing(&there) {
            cx.note("ORB-01");
            let message = "the pools are being made";
            return Err(Stop::wait(cx.config().pause, "EnsuringInfrastructure", message));
        }
    }
    cx.note("ORB-01");
    cx.note("ORB-02");
    let there = there.into_iter();
    orb.status.pools = there.map(|pool| (pool.pool, pool.addresses)).collect();
    Ok(())
}

/// Matches machines and nodes. A Node belongs to a machine only if it names that machine.
fn muster(orb: &Orb, machines: Vec<Machine>, nodes: Vec<Node>) -> Result<Fleet, Stop> {
    let mut fleet = Fleet::default();
    let mut nodes = Unclaimed::of(nodes);
    let mut claimed: BTreeMap<String, String> = BTreeMap::new();
    for machine in machines {
        let Machine {
            name,
            pool,
            node_name,
            ..
        } = &machine;
        if let Some(twin) = claimed.insert(node_name.clone(), name.clone()) {
            let message = format!("the machines {twin} and {name} have the same node name {node_name}");
            return Err(Stop::refuse("DuplicateNode", message));
        }
        let node = nodes.claim(&machine);
        fleet.members.push(Member {
            number: orb.number(pool, name),
            metadata: node.as_ref().map(read).unwrap_or_default(),
            updates_disabled: orb
                .pools()
                .any(|(_, spec)| spec.pool == *pool && spec.updates_disabled),
            node,
            machine,
        });
    }
    fleet.members.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let leaving = |node: &Node| {
        let mut tasks = orb.status.tasks.iter();
        tasks.any(|task| task.kind == TaskKind::Remove && task.node == node.metadata.name)
    };
    for node in nodes.rest() {
        let ours = node.metadata.labels.get(ORB) == Some(&orb.metadata.name);
        if ours && !leaving(&node) {
            fleet.orphans.push(node);
        } else {
            fleet.foreign.push(node.metadata.name);
        }
    }
    Ok(fleet)
}

/// Nodes without a known machine.
struct Unclaimed {
    nodes: Vec<Option<Node>>,
    /// The positions of the Nodes that name their machine.
    by_machine: BTreeMap<String, usize>,
    /// The positions of the other Nodes, by their own names.
    by_name: BTreeMap<String, usize>,
}

impl Unclaimed {
    fn of(nodes: Vec<Node>) -> Self {
        let (mut by_machine, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        for (at, node) in nodes.iter().enumerate() {
            match &node.spec.provider_id {
                Some(id) => _ = by_machine.entry(id.clone()).or_insert(at),
                None => _ = by_name.insert(node.metadata.name.clone(), at),
            }
        }
        Unclaimed {
            nodes: nodes.into_iter().map(Some).collect(),
            by_machine,
            by_name,
        }
    }

    /// Takes the Node of a machine.
    fn claim(&mut self, machine: &Machine) -> Option<Node> {
        let by_machine = self.by_machine.get(&machine.provider_id);
        let at = by_machine.or_else(|| self.by_name.get(&machine.node_name))?;
        self.nodes[*at].take()
    }

    /// The Nodes that no machine has claimed.
    fn rest(self) -> impl Iterator<Item = Node> {
        self.nodes.into_iter().flatten()
    }
}

/// Reads the annotations by which orbiter and the agent communicate.
pub fn read(node: &Node) -> NodeMetadata {
    NodeMetadata::read(&node.metadata.annotations)
}

impl Fleet {
    /// The members of a pool.
    pub fn of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Member> + Clone {
        self.members
            .iter()
            .filter(move |member| member.machine.pool == pool)
    }

    /// The number of nodes that have joined.
    pub fn nodes(&self) -> usize {
        self.members.iter().filter(|member| member.node.is_some()).count()
    }
}

impl Member {
    /// The order: the control plane first, then each pool by number. Machines without a valid number come last.
    fn rank(&self) -> (Tier, &str, bool, Option<u32>, &str) {
        let machine = &self.machine;
        (
            machine.tier,
            &machine.pool,
            self.number.is_none(),
            self.number,
            &machine.name,
        )
    }

    fn status(&self) -> (String, MachineStatus) {
        let Machine { name, pool, tier, .. } = &self.machine;
        let status = MachineStatus::of(pool, *tier, self.node.as_ref(), &self.metadata);
        (name.clone(), status)
    }

    /// Whether the member is a node of the control plane.
    pub fn is_control_plane(&self) -> bool {
        self.machine.tier == Tier::ControlPlane && self.node.is_some()
    }

    /// Whether the agent has prepared the machine.
    pub fn is_initialized(&self) -> bool {
        self.machine.agent == Agent::Initialized
    }
}
