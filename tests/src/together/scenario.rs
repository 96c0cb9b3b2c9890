//! What a seed makes happen.

use polity_clouds::sim::{
    AccessKey, FaultRule, IamRole, Intervention, Millis, Principal, SimConfig, Span, Trouble, WorldEvent,
};
use polity_core::contract::Code;

use super::setting::{ACCOUNT, SHIFTY, TRUSTED, WORKERS};
use crate::simulation::scenario::{Rates, cloud, rates};
use crate::simulation::seed::Chance;
use crate::simulation::store::Place;

/// What a seed makes happen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Hosts that compete for the lease.
    pub hosts: usize,
    /// When faults stop; milliseconds from the start.
    pub quiet_at: u64,
    /// The cloud, its faults and outages.
    pub cloud: SimConfig,
    /// What goes wrong between hosts and the API server.
    pub rates: Rates,
    /// What people and chance do, and when.
    pub deeds: Vec<(u64, Deed)>,
}

/// Something that people or chance do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The shifty tenant is trusted from now on, or not any more.
    Trust(bool),
    /// Somebody puts a taint of their own on a node.
    Taint,
    /// Somebody changes the taints and labels that a machine's node is to have.
    Template,
    /// Somebody deletes a Machine of `mcm-machine`.
    DeleteWorker,
    /// The same, and it may not take long.
    ForceDelete,
    /// Somebody deletes the Machine of `capv-machine` in this namespace.
    DeleteVm(&'static str),
    /// Somebody creates it.
    CreateVm(&'static str),
    /// The access key's Secret gets another value.
    Rotate,
    /// The watches of a host break.
    CutWatches(usize),
    /// A host crashes.
    Crash(usize),
    /// A host is told to stop.
    Stop(usize),
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 11);
        let quiet_at = chance.between(300, 900) * 1_000;
        let hosts = chance.pick(&[1, 1, 2]);
        let machines: Vec<Place> = [TRUSTED, SHIFTY]
            .iter()
            .map(|tenant| ("Machine".to_owned(), (*tenant).to_owned(), "vm".to_owned()))
            .collect();
        let mut cloud = cloud(&mut chance, quiet_at, &machines);
        // Machines of several namespaces have one name.
        cloud.machines.node_name = "node-{number}".into();
        identities(&mut cloud);
        faults(&mut chance, quiet_at, &mut cloud);
        outage(&mut chance, quiet_at, &mut cloud);
        let mut deeds = deeds(&mut chance, quiet_at, hosts);
        deeds.sort_by_key(|(at, _)| *at);
        Scenario {
            hosts,
            quiet_at,
            rates: rates(&mut chance),
            cloud,
            deeds,
        }
    }
}

/// Who is who: the key's user, and the role that it may assume.
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

fn faults(chance: &mut Chance, quiet_at: u64, cloud: &mut SimConfig) {
    for _ in 0..chance.between(0, 4) {
        let operation = chance.pick(&[
            "machine.*",
            "machine.create",
            "machine.create",
            "machine.delete",
            "machine.get",
            "sts.*",
            "token.*",
        ]);
        let trouble = match chance.between(0, 5) {
            0 => Trouble::Fail {
                code: chance.pick(&[Code::Unavailable, Code::ResourceExhausted, Code::Internal]),
                message: None,
                retry_after: None,
            },
            1 => Trouble::LoseRequest,
            2 => Trouble::AnswerAfter(Millis(chance.between(1_000, 8_000))),
            3 if operation == "machine.create" => Trouble::NeverJoins,
            _ => Trouble::LoseAnswer,
        };
        cloud.faults.push(FaultRule {
            until: Some(Millis(quiet_at)),
            probability: Some(chance.pick(&[0.05, 0.2, 0.5])),
            ..FaultRule::new(operation, trouble)
        });
    }
    if chance.one_in(200) {
        let from = chance.between(0, quiet_at - 130_000);
        cloud.api_server_down.push(Span {
            from: Millis(from),
            until: Millis(from + chance.between(10_000, 120_000)),
        });
    }
}

/// The nodes of a deployment are not heard of any more, all of them within seconds, and perhaps they come back.
fn outage(chance: &mut Chance, quiet_at: u64, cloud: &mut SimConfig) {
    if !chance.one_in(500) {
        return;
    }
    let from = chance.between(120_000, quiet_at - 60_000);
    let back = chance.one_in(600).then(|| from + chance.between(20_000, 240_000));
    for worker in 1..=WORKERS {
        let mut event = |at: u64, does: Intervention| {
            cloud.events.push(WorldEvent {
                vm: format!("workers-{worker}"),
                at: Millis(at + chance.between(0, 2_000)),
                after_power_on: None,
                until: Some(Millis(quiet_at)),
                does,
            });
        };
        event(from, Intervention::FallSilent);
        if let Some(back) = back.filter(|back| *back < quiet_at) {
            event(back, Intervention::Recover);
        }
    }
}

fn deeds(chance: &mut Chance, quiet_at: u64, hosts: usize) -> Vec<(u64, Deed)> {
    let mut deeds = Vec::new();
    for _ in 0..chance.between(3, 16) {
        let deed = match chance.between(0, 13) {
            0..=2 => Deed::Trust(chance.one_in(600)),
            3..=5 => Deed::Taint,
            6 | 7 => Deed::Template,
            8 | 9 => Deed::DeleteWorker,
            10 => Deed::ForceDelete,
            11 => Deed::DeleteVm(chance.pick(&[TRUSTED, SHIFTY])),
            12 => Deed::CreateVm(chance.pick(&[TRUSTED, SHIFTY])),
            _ => Deed::Rotate,
        };
        deeds.push((chance.between(0, quiet_at), deed));
    }
    for _ in 0..chance.between(0, 5) {
        let host = chance.between(0, hosts as u64 - 1) as usize;
        let deed = match chance.between(0, 4) {
            0 | 1 => Deed::CutWatches(host),
            2 | 3 => Deed::Crash(host),
            _ => Deed::Stop(host),
        };
        deeds.push((chance.between(0, quiet_at), deed));
    }
    deeds
}
