//! What there is: pools, machines and their nodes (ORB-01, ORB-02).

use orbiter_api::{Because, MachineStatus, NodeMetadata, ORB, Orb, Stop, TaskKind};
use polity_sdk::node::Node;
use polity_sdk::pool::{self, Agent, Machine, Tier, Wanted};
use polity_sdk::prelude::*;

use crate::Cx;

/// What is read of a node.
pub(crate) const PARTS: &[&str] = &[
    "metadata.labels",
    "metadata.annotations",
    "spec.providerID",
    "spec.unschedulable",
    "spec.taints",
    "status.conditions",
    "status.volumesAttached",
];

/// All machines, the control plane first, then by pool and number; and Nodes of this Orb that have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    pub(crate) orphans: Vec<Node>,
    /// The names of Nodes that are somebody else's.
    pub(crate) foreign: Vec<String>,
}

/// A machine and its node.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) machine: Machine,
    /// The number in its name.
    pub(crate) number: Option<u32>,
    pub(crate) node: Option<Node>,
    pub(crate) metadata: NodeMetadata,
    /// No version is changed on it.
    pub(crate) updates_disabled: bool,
}

/// Makes sure of the infrastructure, and looks at everything.
pub(crate) async fn look(cx: &Cx, orb: &mut Orb) -> Result<Fleet, Stop> {
    infrastructure(cx, orb).await?;
    let nodes = cluster::objects::<Node>().keep(PARTS);
    let (machines, nodes) = join!(cx.ask(pool::machines()), cx.ask(nodes));
    // Nodes that could not be looked at are never taken for missing ones.
    let fleet = muster(
        orb,
        machines.because("MachinesUnknown")?,
        nodes.because("NodesUnknown")?,
    )?;
    orb.status.machines = fleet.members.iter().map(Member::status).collect();
    let mut control_planes = fleet.members.iter().filter(|member| member.is_control_plane());
    if let Some(Member { machine, .. }) = control_planes.next() {
        orb.status.initialized.get_or_insert_with(|| machine.name.clone());
    }
    Ok(fleet)
}

/// Asks first, and acts only where something is missing.
async fn infrastructure(cx: &Cx, orb: &mut Orb) -> Result<(), Stop> {
    const FAILED: &str = "InfrastructureFailed";
    cx.note("ORB-01");
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
            let message = "the pools are being made";
            return Err(Stop::wait(cx.config().pause, "EnsuringInfrastructure", message));
        }
    }
    cx.note("ORB-02");
    let there = there.into_iter();
    orb.status.pools = there.map(|pool| (pool.pool, pool.addresses)).collect();
    Ok(())
}

/// Brings machines and nodes together. A Node is a machine's only if it names that machine.
fn muster(orb: &Orb, machines: Vec<Machine>, mut nodes: Vec<Node>) -> Result<Fleet, Stop> {
    let mut fleet = Fleet::default();
    for machine in machines {
        let Machine {
            name,
            pool,
            node_name,
            ..
        } = &machine;
        let mut others = fleet.members.iter().map(|member| &member.machine);
        if let Some(twin) = others.find(|other| other.node_name == *node_name) {
            let message = format!(
                "the machines {} and {name} both answer for node {node_name}",
                twin.name
            );
            return Err(Stop::refuse("DuplicateNode", message));
        }
        let at = nodes.iter().position(|node| is_of(node, &machine));
        let node = at.map(|at| nodes.swap_remove(at));
        let number = name.strip_prefix(&format!("{}-{pool}-", orb.metadata.name));
        fleet.members.push(Member {
            number: number.and_then(|number| number.parse().ok()),
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
    for node in nodes {
        let ours = node.metadata.labels.get(ORB) == Some(&orb.metadata.name);
        match ours && !leaving(&node) {
            true => fleet.orphans.push(node),
            false => fleet.foreign.push(node.metadata.name),
        }
    }
    Ok(fleet)
}

fn is_of(node: &Node, machine: &Machine) -> bool {
    match &node.spec.provider_id {
        Some(id) => *id == machine.provider_id,
        None => node.metadata.name == machine.node_name,
    }
}

/// What orbiter and the agent have said to each other.
pub(crate) fn read(node: &Node) -> NodeMetadata {
    NodeMetadata::read(&node.metadata.annotations)
}

impl Fleet {
    /// The members of a pool.
    pub(crate) fn of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Member> + Clone {
        self.members
            .iter()
            .filter(move |member| member.machine.pool == pool)
    }

    /// How many nodes have joined.
    pub(crate) fn nodes(&self) -> usize {
        self.members.iter().filter(|member| member.node.is_some()).count()
    }
}

impl Member {
    /// The control plane comes first, then each pool by number; what has no number of ours comes last.
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

    /// Whether it is a node that runs the control plane.
    pub(crate) fn is_control_plane(&self) -> bool {
        self.machine.tier == Tier::ControlPlane && self.node.is_some()
    }

    /// Whether its agent has prepared it.
    pub(crate) fn is_initialized(&self) -> bool {
        self.machine.agent == Agent::Initialized
    }
}
