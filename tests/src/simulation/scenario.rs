//! The scenario of a seed: the size of the world, its faults, and the actions of people.

use polity_core::contract::{Code, Role};
use polity_sim::{
    Between, FaultRule, Intervention, Millis, Outage, SimConfig, Trouble, Unreachable, WorldEvent,
};

mod wider;

use super::seed::Chance;
use super::store::Place;

/// Where the objects of the first tenant stand.
pub const NAMESPACE: &str = "default";

/// What a seed makes happen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Hosts that compete for the lease.
    pub hosts: usize,
    /// When faults stop; milliseconds from the start.
    pub quiet_at: u64,
    /// The cloud, its faults and outages.
    pub cloud: SimConfig,
    /// What goes wrong between hosts, the API server and the cloud.
    pub rates: Rates,
    /// What people and chance do, and when.
    pub actions: Vec<(u64, Action)>,
    /// How old what the API server shows may be.
    pub views: Views,
}

/// How old what the API server shows may be, until it is quiet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Views {
    /// A watch lists anew while a pass is under way; in thousandths of the steps.
    pub relist: u64,
    /// A list comes from a watch cache that is behind by at most so many milliseconds.
    pub behind: u64,
}

/// How often something goes wrong, in thousandths, until it is quiet.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// A request never arrives.
    pub lost_request: u64,
    /// An answer never arrives.
    pub lost_answer: u64,
    /// The server refuses: nothing happens.
    pub refused: u64,
    /// A request or an answer takes up to seconds.
    pub slow: u64,
    /// A change stands still before its first byte, longer than its lease lasts: its process is suspended, or logs in.
    pub held: u64,
    /// A host crashes after one of the outputs of a step.
    pub crash: u64,
    /// The longest that a watch lags; milliseconds.
    pub watch_lag: u64,
}

/// Something that happens to objects, hosts or clocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Somebody creates a Machine, a Widget or a ConfigMap.
    Create(Place),
    /// Somebody deletes it.
    Delete(Place),
    /// Somebody edits what is wanted of it.
    Edit(Place),
    /// Somebody puts a label on it.
    Label(Place),
    /// Another controller writes a condition of its own, so many times in a row.
    Heartbeat(Place, u64),
    /// Another controller writes what the policy writes.
    Meddle(Place),
    /// Somebody merges this into it, or into its subresource.
    Patch(Place, Option<&'static str>, serde_json::Value),
    /// Somebody asks for a pass.
    Request(Place),
    /// The watches of a host break.
    CutWatches(usize),
    /// A host crashes.
    Crash(usize),
    /// A host is told to stop.
    Stop(usize),
    /// A host stands still, so many milliseconds.
    Pause(usize, u64),
    /// A host's unix clock jumps by so many milliseconds, ahead or back.
    Skew(usize, i64),
    /// Another form of a policy is bound.
    Swap(&'static str, Role),
    /// A binding is gone.
    Unbind(&'static str),
    /// It is back.
    Bind(&'static str),
    /// The unix clock of everybody jumps ahead by so many milliseconds.
    JumpAhead(u64),
}

impl Action {
    /// The object that it happens to, if it is one.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Action::Create(at) | Action::Delete(at) | Action::Edit(at) | Action::Label(at) => Some(at),
            Action::Heartbeat(at, _) | Action::Meddle(at) | Action::Patch(at, ..) | Action::Request(at) => {
                Some(at)
            }
            _ => None,
        }
    }
}

impl Scenario {
    /// Leaves out what happens to objects of this kind: it is not there then.
    pub fn without(&mut self, kind: &str) {
        self.actions
            .retain(|(_, action)| action.place().is_none_or(|at| at.0 != kind));
    }

    /// The scenario of a seed: Machines and Widgets, and what goes on beside them.
    pub fn of(seed: u64) -> Self {
        let mut scenario = Scenario::small(seed);
        wider::widen(&mut scenario, &mut Chance::new(seed, 3));
        scenario.actions.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Machines and Widgets alone: what fuzzing plays its policies in, so that its seeds stay what they are.
    pub fn small(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let quiet_at = chance.between(60, 300) * 1_000;
        let machines: Vec<Place> = (0..chance.between(1, 3))
            .map(|n| at("Machine", &format!("m{n}")))
            .collect();
        let hosts = chance.pick(&[1, 1, 2, 2, 3]);
        let cloud = cloud(&mut chance, quiet_at, &machines);
        let mut actions = objects(&mut chance, quiet_at, &machines);
        actions.extend(host_faults(&mut chance, quiet_at, hosts, cloud.tokens));
        actions.sort_by_key(|(at, _)| *at);
        Scenario {
            hosts,
            quiet_at,
            rates: rates(&mut chance),
            cloud,
            actions,
            views: Views::default(),
        }
    }
}

fn at(kind: &str, name: &str) -> Place {
    (kind.to_owned(), NAMESPACE.to_owned(), name.to_owned())
}

/// How often something goes wrong.
pub fn rates(chance: &mut Chance) -> Rates {
    Rates {
        lost_request: chance.pick(&[0, 0, 10, 50]),
        lost_answer: chance.pick(&[0, 10, 50, 150]),
        refused: chance.pick(&[0, 0, 20, 100]),
        slow: chance.pick(&[0, 20, 100]),
        crash: chance.pick(&[0, 0, 2, 5, 20]),
        watch_lag: chance.pick(&[0, 20, 500, 5_000]),
        held: chance.pick(&[0, 0, 5, 20]),
    }
}

/// A cloud with its faults, outages, and what befalls the VMs of these machines.
pub fn cloud(chance: &mut Chance, quiet_at: u64, machines: &[Place]) -> SimConfig {
    // Without unique names only a cloud without lag protects who searches before cloning.
    let unique_names = chance.one_in(600);
    let mut config = SimConfig {
        tokens: chance.one_in(250),
        unique_names,
        lag: Millis(if unique_names {
            chance.pick(&[0, 500, 3_000])
        } else {
            0
        }),
        ..SimConfig::default()
    };
    if chance.one_in(500) {
        config.tasks.clone = Between {
            min: Millis(2_000),
            max: Millis(30_000),
        };
    }
    if chance.one_in(200) {
        config.task_retention = Millis(chance.between(5_000, 60_000));
    }
    let until = Some(Millis(quiet_at));
    for _ in 0..chance.between(0, 4) {
        let operation = chance.pick(&[
            "*",
            "vm.*",
            "vm.clone",
            "vm.clone",
            "task.get",
            "vm.find",
            "vm.power*",
        ]);
        let rule = FaultRule {
            until,
            probability: Some(chance.pick(&[0.05, 0.2, 0.6])),
            ..FaultRule::new(operation, trouble(chance))
        };
        config.faults.push(rule);
    }
    if chance.one_in(400) {
        let from = chance.between(0, quiet_at - 10_000);
        config.outages.push(Outage {
            from: Millis(from),
            until: Millis(from + chance.between(1_000, 90_000)),
            calls: chance.pick(&[Unreachable::Refused, Unreachable::Silent]),
        });
    }
    for (_, _, name) in machines {
        if chance.one_in(150) {
            config.events.push(WorldEvent {
                vm: name.clone(),
                at: Millis(chance.between(0, quiet_at)),
                after_power_on: None,
                until,
                does: chance.pick(&[
                    Intervention::Vanish,
                    Intervention::PowerOff,
                    Intervention::Suspend,
                    Intervention::PowerOn,
                ]),
            });
        }
    }
    config
}

fn trouble(chance: &mut Chance) -> Trouble {
    match chance.between(0, 7) {
        0 => Trouble::Fail {
            code: chance.pick(&[Code::Unavailable, Code::ResourceExhausted, Code::Internal]),
            message: None,
            retry_after: chance.one_in(300).then_some(Millis(7_000)),
        },
        1 => Trouble::LoseRequest,
        2 | 3 => Trouble::LoseAnswer,
        4 => Trouble::HappenLate(Millis(chance.between(1_000, 40_000))),
        5 => Trouble::AnswerAfter(Millis(chance.between(1_000, 8_000))),
        6 => Trouble::FailTask {
            fault: "InsufficientResourcesFault".to_owned(),
            message: None,
        },
        _ => Trouble::TaskTakes(Millis(chance.between(1_000, 200_000))),
    }
}

fn objects(chance: &mut Chance, quiet_at: u64, machines: &[Place]) -> Vec<(u64, Action)> {
    let map = at("ConfigMap", "site");
    let mut actions = vec![(0, Action::Create(map.clone()))];
    let moment = |chance: &mut Chance| chance.between(0, quiet_at);
    let other = at("ConfigMap", "other");
    for _ in 0..chance.between(0, 2) {
        actions.push((moment(chance), Action::Edit(map.clone())));
        actions.push((moment(chance), Action::Create(other.clone())));
        actions.push((moment(chance), Action::Delete(other.clone())));
        actions.push((moment(chance), Action::Edit(other.clone())));
    }
    let widgets = [at("Widget", "w0"), at("Widget", "w1")];
    for place in machines.iter().chain(&widgets[..chance.between(1, 2) as usize]) {
        let created = if chance.one_in(700) { 0 } else { moment(chance) };
        actions.push((created, Action::Create(place.clone())));
        for _ in 0..chance.between(0, 5) {
            let action = match chance.between(0, 9) {
                0..=2 => Action::Edit(place.clone()),
                3 | 4 => Action::Label(place.clone()),
                5 => Action::Heartbeat(place.clone(), chance.between(1, 12)),
                6 => Action::Meddle(place.clone()),
                7 => Action::Request(place.clone()),
                8 => Action::Delete(place.clone()),
                _ => Action::Create(place.clone()),
            };
            let when = created + chance.between(0, quiet_at - created.min(quiet_at));
            actions.push((when, action));
        }
        if chance.one_in(400) {
            // Soon after it was created, while its clone is under way.
            let when = created + chance.between(100, 60_000);
            actions.push((when.min(quiet_at), Action::Delete(place.clone())));
        }
    }
    actions
}

fn host_faults(chance: &mut Chance, quiet_at: u64, hosts: usize, tokens: bool) -> Vec<(u64, Action)> {
    let mut actions = Vec::new();
    for _ in 0..chance.between(0, 8) {
        let host = chance.between(0, hosts as u64 - 1) as usize;
        let action = match chance.between(0, 9) {
            0..=2 => Action::CutWatches(host),
            3 | 4 => Action::Crash(host),
            5 => Action::Stop(host),
            6 | 7 => Action::Pause(host, chance.between(100, 40_000)),
            // Without client tokens a cloud knows its clones by when they began: it has the clock of its hosts.
            8 if tokens => Action::Skew(host, -chance.between(1_000, 600_000).cast_signed()),
            _ => Action::JumpAhead(chance.between(1_000, 60_000)),
        };
        actions.push((chance.between(0, quiet_at), action));
    }
    actions
}
