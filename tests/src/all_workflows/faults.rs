//! Faults of the cloud, by workflow.

use polity_core::contract::Code;
use polity_sim::{FaultRule, Intervention, Millis, SimConfig, Span, Trouble, WorldEvent};

use super::routers;
use super::scenario::Workflow;
use super::setting::WORKERS;
use crate::simulation::seed::Chance;

/// A machine that does not come back from its reboot is turned on again this long before the faults stop.
const TURNED_ON: u64 = 20_000;

/// Makes calls of a workflow fail some of the time.
pub(super) fn faults(chance: &mut Chance, quiet_at: u64, cloud: &mut SimConfig, workflow: Workflow) {
    let operations: &[&str] = match workflow {
        // These machines have no faults beyond those of all scenarios.
        Workflow::CapvMachines => &[],
        Workflow::McmMachines => &[
            "machine.*",
            "machine.create",
            "machine.create",
            "machine.delete",
            "machine.get",
            "token.*",
        ],
        Workflow::Clusters => &["sts.*"],
        Workflow::Orb => &[
            "pool.*",
            "pool.add-machine",
            "pool.add-machine",
            "pool.remove-machine",
            "agent.install",
            "kubeadm.*",
            "node.*",
            "node.ensure",
            "node.reboot",
            "node.work",
        ],
        Workflow::Routers => &[
            "router.*",
            "router.boot",
            "router.boot",
            "router.alive",
            "router.delete",
            "port.*",
            "config.push",
        ],
    };
    if operations.is_empty() {
        return;
    }
    for _ in 0..chance.between(0, 3) {
        let operation = chance.pick(operations);
        let trouble = match chance.between(0, 5) {
            0 => Trouble::Fail {
                code: chance.pick(&[Code::Unavailable, Code::ResourceExhausted, Code::Internal]),
                message: None,
                retry_after: None,
            },
            1 => Trouble::LoseRequest,
            2 => Trouble::AnswerAfter(Millis(chance.between(1_000, 8_000))),
            3 => special(chance, operation),
            _ => Trouble::LoseAnswer,
        };
        cloud.faults.push(FaultRule {
            until: Some(Millis(quiet_at)),
            probability: Some(chance.pick(&[0.05, 0.2, 0.5])),
            ..FaultRule::new(operation, trouble)
        });
    }
}

/// A fault that only this operation can have.
fn special(chance: &mut Chance, operation: &str) -> Trouble {
    match operation {
        "machine.create" => Trouble::NeverJoins,
        "router.boot" => Trouble::NeverBoots,
        "port.*" => Trouble::NeverPlugs,
        "pool.remove-machine" | "agent.install" | "kubeadm.*" | "node.ensure" | "config.push" => {
            Trouble::FailTask {
                fault: "InsufficientResourcesFault".to_owned(),
                message: None,
            }
        }
        operation if operation.starts_with("node.") => Trouble::LoseAnswer,
        _ => Trouble::HappenLate(Millis(chance.between(1_000, 40_000))),
    }
}

/// Events of machines and routers.
pub(super) fn inject(chance: &mut Chance, quiet_at: u64, cloud: &mut SimConfig, workflow: Workflow) {
    let until = Some(Millis(quiet_at));
    let mut event = |vm: &str, at: u64, does: Intervention| {
        cloud.events.push(WorldEvent {
            vm: vm.to_owned(),
            at: Millis(at),
            after_power_on: None,
            until,
            does,
        });
    };
    match workflow {
        Workflow::Orb => {
            if chance.one_in(250) {
                let at = chance.between(quiet_at / 3, quiet_at);
                let worker = chance.pick(&["o-w-0", "o-w-1"]);
                event(
                    worker,
                    at,
                    chance.pick(&[Intervention::Retire, Intervention::Vanish]),
                );
            }
            if chance.one_in(200) {
                let at = chance.between(quiet_at / 3, quiet_at - TURNED_ON);
                event("o-w-0", at, Intervention::FallSilent);
                event("o-w-0", chance.between(at, quiet_at - 1), Intervention::Recover);
            }
            if chance.one_in(200) {
                event("o-cp-0", quiet_at - TURNED_ON / 4, Intervention::PowerOn);
                cloud.faults.push(FaultRule {
                    vm: "o-cp-0".to_owned(),
                    until: Some(Millis(quiet_at - TURNED_ON)),
                    probability: Some(0.5),
                    ..FaultRule::new("node.reboot", Trouble::NeverReturns)
                });
            }
        }
        Workflow::Routers => {
            for name in routers::NAMES {
                if chance.one_in(400) {
                    let at = chance.between(0, quiet_at);
                    let does = [
                        Intervention::Vanish,
                        Intervention::Vanish,
                        Intervention::PowerOff,
                        Intervention::Hang,
                        Intervention::Withdraw,
                    ];
                    event(name, at, chance.pick(&does));
                }
            }
        }
        Workflow::McmMachines if chance.one_in(200) => {
            let from = chance.between(0, quiet_at - 130_000);
            cloud.api_server_down.push(Span {
                from: Millis(from),
                until: Millis(from + chance.between(10_000, 120_000)),
            });
        }
        _ => {}
    }
}

/// All nodes of a deployment stop reporting within seconds, and may come back.
pub(super) fn outage(chance: &mut Chance, quiet_at: u64, cloud: &mut SimConfig) {
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
