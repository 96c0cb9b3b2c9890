//! Scenarios: what happens with a seed.

use polity_sim::{AccessKey, Between, IamRole, Millis, Principal, SimConfig};

use super::faults::{faults, inject, outage};
use super::setting::{ACCOUNT, SHIFTY, TRUSTED};
use super::{orb, routers};
use crate::simulation::scenario::{Rates, cloud, rates};
use crate::simulation::seed::Chance;
use crate::simulation::store::Place;

/// A workflow that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workflow {
    /// Machines of `capv-machine`, guarded by `capa-identity`.
    CapvMachines,
    /// Machines of `mcm-machine` with their MachineSafety, guarded by `capa-identity`.
    McmMachines,
    /// AWSClusters of `capa-identity`.
    Clusters,
    /// An Orb of `orbiter`, with its node agents.
    Orb,
    /// Routers of `rug-router`.
    Routers,
}

impl Workflow {
    /// All workflows.
    pub const ALL: [Workflow; 5] = [
        Workflow::CapvMachines,
        Workflow::McmMachines,
        Workflow::Clusters,
        Workflow::Orb,
        Workflow::Routers,
    ];

    /// This workflow alone.
    pub fn alone(self) -> &'static [Workflow] {
        let at = Workflow::ALL.iter().position(|other| *other == self);
        at.map_or(&[], |at| &Workflow::ALL[at..=at])
    }

    /// Whether tenants and their identities take part.
    pub fn has_tenants(self) -> bool {
        !matches!(self, Workflow::Orb | Workflow::Routers)
    }
}

/// The events of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The number of hosts, which compete for the lease.
    pub hosts: usize,
    /// The time at which faults stop, in milliseconds from the start.
    pub quiet_at: u64,
    /// The cloud, its faults and outages.
    pub cloud: SimConfig,
    /// The faults between hosts and the API server, and how soon hosts crash after an output.
    pub rates: Rates,
    /// The actions of people and the random events, with their times.
    pub deeds: Vec<(u64, Deed)>,
}

/// An action of people, or a random event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The shifty tenant becomes trusted, or is no longer trusted.
    Trust(bool),
    /// A person adds a taint of their own to a node.
    Taint,
    /// A person changes the taints and labels that the node of a machine must have.
    Template,
    /// A person deletes a Machine of `mcm-machine`.
    DeleteWorker,
    /// The same, with a forced deletion.
    ForceDelete,
    /// A person deletes the Machine of `capv-machine` in this namespace.
    DeleteVm(&'static str),
    /// A person creates it again.
    CreateVm(&'static str),
    /// The Secret of the access key gets another value.
    Rotate,
    /// A person does something to the Orb.
    Orb(orb::Deed),
    /// A person does something to a router.
    Router(&'static str, routers::Deed),
    /// The watches of a host break.
    CutWatches(usize),
    /// A host crashes.
    Crash(usize),
    /// A host is told to stop.
    Stop(usize),
    /// A node agent crashes.
    CrashAgent(usize),
}

impl Scenario {
    /// The scenario of a seed with these workflows.
    pub fn of(seed: u64, workflows: &[Workflow]) -> Self {
        let mut chance = Chance::new(seed, 11);
        let quiet_at = chance.between(300, 1_200) * 1_000;
        let hosts = chance.pick(&[1, 1, 2]);
        let machines: Vec<Place> = [TRUSTED, SHIFTY]
            .iter()
            .map(|tenant| ("Machine".to_owned(), (*tenant).to_owned(), "vm".to_owned()))
            .collect();
        let mut cloud = cloud(&mut chance, quiet_at, &machines);
        // The names of nodes do not come from machines, because machines of several namespaces have equal names.
        cloud.machines.node_name = "node-{number}".into();
        identities(&mut cloud);
        pace(&mut chance, &mut cloud);
        for workflow in workflows {
            faults(&mut chance, quiet_at, &mut cloud, *workflow);
            inject(&mut chance, quiet_at, &mut cloud, *workflow);
        }
        outage(&mut chance, quiet_at, &mut cloud);
        let mut deeds = crashes(&mut chance, quiet_at, hosts);
        for workflow in workflows {
            deeds.extend(doings(&mut chance, quiet_at, *workflow));
        }
        deeds.sort_by_key(|(at, _)| *at);
        let rates = Rates {
            crash: chance.pick(&[0, 5, 20, 50]),
            ..rates(&mut chance)
        };
        Scenario {
            hosts,
            quiet_at,
            rates,
            cloud,
            deeds,
        }
    }
}

/// The user of the access key, and the role that this user may assume.
pub fn identities(cloud: &mut SimConfig) {
    let user = format!("arn:aws:iam::{ACCOUNT}:user/machines");
    let identity = &mut cloud.identity;
    identity.host = Some(Principal {
        account: "111111111111".into(),
        arn: "arn:aws:iam::111111111111:role/controller".into(),
    });
    identity.access_keys = vec![AccessKey {
        id: "AKIAEXAMPLE".into(),
        secret_sha256: None,
        account: ACCOUNT.into(),
        arn: user.clone(),
        expires: None,
    }];
    identity.roles = vec![IamRole {
        arn: format!("arn:aws:iam::{ACCOUNT}:role/machines"),
        account: None,
        trusts: vec![user],
        external_id: None,
        longest: Millis::seconds(3_600),
        web_identity: None,
    }];
}

/// Short times, so that a cluster comes up within minutes and can then be changed. The seed decides what needs
/// another boot.
fn pace(chance: &mut Chance, cloud: &mut SimConfig) {
    let least = Millis(1_000);
    let mut up_to = |seconds: u64| Between {
        min: least,
        max: Millis(chance.between(2, seconds) * 1_000),
    };
    cloud.machines.boot = up_to(30);
    cloud.pools.install = up_to(10);
    cloud.pools.init = up_to(20);
    cloud.pools.join = up_to(20);
    cloud.pools.remove = up_to(20);
    cloud.packages.takes = up_to(20);
    let reboots_for: &[&str] = chance.pick(&[&["kubelet"], &["kubelet"], &["containerd"], &[]]);
    cloud.packages.reboot_for = reboots_for.iter().map(|package| (*package).to_owned()).collect();
}

/// Crashes and stops of hosts and agents.
fn crashes(chance: &mut Chance, quiet_at: u64, hosts: usize) -> Vec<(u64, Deed)> {
    let mut deeds = Vec::new();
    for _ in 0..chance.between(0, 5) {
        let host = chance.between(0, hosts as u64 - 1) as usize;
        let deed = match chance.between(0, 4) {
            0 | 1 => Deed::CutWatches(host),
            2 | 3 => Deed::Crash(host),
            _ => Deed::Stop(host),
        };
        deeds.push((chance.between(0, quiet_at), deed));
    }
    for _ in 0..chance.between(0, 5) {
        let agent = chance.between(0, 3) as usize;
        deeds.push((chance.between(0, quiet_at), Deed::CrashAgent(agent)));
    }
    deeds
}

/// The actions of people.
fn doings(chance: &mut Chance, quiet_at: u64, workflow: Workflow) -> Vec<(u64, Deed)> {
    let count = match workflow {
        Workflow::CapvMachines => chance.between(0, 3),
        Workflow::McmMachines => chance.between(2, 8),
        Workflow::Clusters => chance.between(1, 5),
        Workflow::Orb => chance.between(3, 9),
        Workflow::Routers => chance.between(1, 8),
    };
    let mut deeds = Vec::new();
    for _ in 0..count {
        let deed = match workflow {
            Workflow::CapvMachines => {
                let tenant = chance.pick(&[TRUSTED, SHIFTY]);
                if chance.one_in(500) {
                    Deed::DeleteVm(tenant)
                } else {
                    Deed::CreateVm(tenant)
                }
            }
            Workflow::McmMachines => match chance.between(0, 7) {
                0..=2 => Deed::Taint,
                3 | 4 => Deed::Template,
                5 | 6 => Deed::DeleteWorker,
                _ => Deed::ForceDelete,
            },
            Workflow::Clusters => match chance.between(0, 3) {
                0..=2 => Deed::Trust(chance.one_in(600)),
                _ => Deed::Rotate,
            },
            Workflow::Orb => Deed::Orb(of_orb(chance)),
            Workflow::Routers => Deed::Router(chance.pick(&routers::NAMES), of_router(chance)),
        };
        // A cluster must come up before people change it.
        let from = if workflow == Workflow::Orb {
            quiet_at / 4
        } else {
            0
        };
        deeds.push((chance.between(from, quiet_at), deed));
    }
    deeds
}

fn of_orb(chance: &mut Chance) -> orb::Deed {
    match chance.between(0, 11) {
        0..=4 => orb::Deed::Version(chance.between(0, 3) as usize),
        5 => orb::Deed::Package,
        6 | 7 => orb::Deed::Workers(chance.between(1, 3)),
        8 => orb::Deed::Cordon,
        9 => orb::Deed::Uncordon,
        _ => orb::Deed::Garble,
    }
}

fn of_router(chance: &mut Chance) -> routers::Deed {
    match chance.between(0, 9) {
        0..=2 => routers::Deed::Ports(chance.between(0, 3)),
        3 => routers::Deed::Flavor,
        4 => routers::Deed::Read,
        5 => routers::Deed::Rebuild,
        6 => routers::Deed::RebuildFrom(chance.pick(&["image-1", "image-2"])),
        7 => routers::Deed::Delete,
        _ => routers::Deed::Create,
    }
}
