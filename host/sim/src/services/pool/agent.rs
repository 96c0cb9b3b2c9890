//! The machines of pools as their agents see them: the operations of the cloud `node`, for every machine.
//!
//! A caller names its node. Once the node has an object, the machine answers only the agent of that object.

use std::collections::BTreeMap;

use polity_clouds::catalogue::node::{self, ENSURE, REBOOT};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Context, Pools};
use crate::config::scenario::Quirk;
use crate::event::{Call, Event, Kernel};
use crate::guards::Guard;
use crate::hypervisor::effects::Happened;
use crate::power::Power;

/// The time between the answer to a reboot and the reboot, in milliseconds.
const REBOOTS_AFTER: u64 = 10_000;

type Versions = BTreeMap<String, String>;

/// The state that a machine keeps for its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Agent {
    pub(super) release: Option<String>,
    pub(super) seed: Versions,
    pub(super) initialized: bool,
    pub(super) installed: Versions,
    pub(super) work: Option<Work>,
    pub(super) reboot_required: bool,
    /// How this boot is about to end, if it is.
    pub(super) ending: Option<Ending>,
    /// How often its agent has rebooted the machine.
    pub(super) reboots: u64,
    /// The uid of the object whose agent the machine answers.
    pub(super) node_uid: Option<String>,
}

/// How a boot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ending {
    Reboots,
    NeverReturns,
}

/// Packages that are or were brought to these versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Work {
    pub(super) versions: Versions,
    /// What kubeadm does on the node, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upgrade: Option<String>,
    /// The number of the work. An event of its end is ignored if another work has begun.
    nth: u64,
    doomed: Option<String>,
    /// The boot in which it ended, and the result.
    pub(super) ended: Option<(u64, Result<(), Trouble>)>,
}

/// The reason why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trouble {
    code: String,
    message: String,
}

impl Pools {
    /// Performs a call of an agent on its machine.
    pub(super) fn on_agent_call(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let node = call.text("node");
        let number = self.listening(cx, call, node)?;
        let boot_id = boot_id(cx.kernel, number, self.members[&number].boots);
        if call.operation == node::WORK {
            let machine_id = cx.kernel.uuid(&format!("machine-id {number}")).replace('-', "");
            let mut told = json!({"node": node, "bootId": boot_id, "machineId": machine_id});
            if let Some(work) = self.describe_work(cx.kernel, number) {
                told["work"] = work;
            }
            return Ok(told);
        }
        let any_boot = !self.guards.stand(Guard::RebootsNameTheBoot);
        let agent = self.agent(number);
        match call.operation.as_str() {
            node::SEED => Ok(json!({"node": node, "versions": agent.seed, "initialized": agent.initialized})),
            node::VERSIONS => {
                let asked = call.arguments["packages"].as_array().into_iter().flatten();
                let asked = asked.filter_map(Value::as_str);
                let has = |package: &str| Some((package.to_owned(), agent.installed.get(package)?.clone()));
                Ok(json!({"node": node, "versions": asked.filter_map(has).collect::<Versions>()}))
            }
            node::REBOOT_REQUIRED => Ok(json!({"node": node, "required": agent.reboot_required})),
            node::INITIALIZED => {
                agent.initialized = true;
                cx.kernel.announce(Event::Prepared { vm: number });
                cx.kernel.mark_dirty();
                Ok(json!({}))
            }
            ENSURE => self.ensure_versions(cx, call, number),
            REBOOT if call.text("bootId") != boot_id && !any_boot => {
                let message = format!("that boot has ended: this is boot {boot_id}");
                Err(Failure::new(Code::FailedPrecondition, message))
            }
            REBOOT => {
                agent.end_boot_soon(cx, call, number);
                Ok(json!({}))
            }
            _ => Err(call.unknown()),
        }
    }

    /// The machine of this node, if it runs and answers this caller.
    fn listening(&mut self, cx: &mut Context<'_>, call: &Call, node: &str) -> Result<u64, Failure> {
        let refuse = |code, message: String| Err(Failure::new(code, message));
        let number = self.member_of(cx.vms, node);
        let visible = |number: &u64| cx.vms.get(*number).is_some_and(|vm| call.caller.sees(&vm.stamp));
        let member = number.filter(visible);
        let member = member.and_then(|number| Some((number, self.members.get_mut(&number)?)));
        let Some((number, member)) = member else {
            return refuse(Code::NotFound, format!("no machine is node {node:?}"));
        };
        let Some(agent) = &mut member.agent else {
            return refuse(Code::NotFound, format!("no agent is installed on node {node:?}"));
        };
        let caller = &call.caller.owner;
        match &agent.node_uid {
            Some(uid) if uid != caller => {
                return refuse(
                    Code::PermissionDenied,
                    format!("node {node:?} listens to another agent"),
                );
            }
            None if !caller.is_empty() && member.is_node => {
                agent.node_uid = Some(caller.clone());
                cx.kernel.mark_dirty();
            }
            _ => {}
        }
        if member.up.is_some_and(|up| up <= cx.at) {
            Ok(number)
        } else {
            refuse(
                Code::Unavailable,
                format!("the machine of node {node:?} does not run"),
            )
        }
    }

    fn agent(&mut self, number: u64) -> &mut Agent {
        let member = self.members.get_mut(&number).expect("the caller has found it");
        member.agent.as_mut().expect("the caller has found it")
    }

    fn describe_work(&self, kernel: &Kernel, number: u64) -> Option<Value> {
        let work = self.members[&number].agent.as_ref()?.work.as_ref()?;
        let mut told = json!({"versions": work.versions, "state": "running"});
        if let Some(upgrade) = &work.upgrade {
            told["upgrade"] = json!(upgrade);
        }
        let Some((boots, ended)) = &work.ended else {
            return Some(told);
        };
        told["bootId"] = json!(boot_id(kernel, number, *boots));
        told["state"] = json!(if ended.is_ok() { "done" } else { "failed" });
        if let Err(error) = ended {
            told["error"] = json!(error);
        }
        Some(told)
    }

    /// Starts to install. If the same work is under way, the call joins it.
    fn ensure_versions(&mut self, cx: &mut Context<'_>, call: &Call, number: u64) -> Answer {
        let versions = Versions::deserialize(&call.arguments["versions"]).unwrap_or_default();
        let upgrade = call.arguments["upgrade"].as_str().map(str::to_owned);
        let running = self.agent(number).work.as_ref();
        let running = running.filter(|work| work.ended.is_none());
        match running.map(|work| work.versions == versions && work.upgrade == upgrade) {
            Some(true) => return Ok(json!({})),
            Some(false) => {
                let message = "other versions are being installed";
                return Err(Failure::new(Code::FailedPrecondition, message));
            }
            None => {}
        }
        let nth = cx.kernel.number();
        let takes = cx.kernel.draw(ENSURE, &call.caller.owner, nth);
        let takes = self.packages.takes.pick(takes);
        self.agent(number).work = Some(Work {
            versions,
            upgrade,
            nth,
            doomed: call.plan.doomed.as_ref().map(|error| error.message.clone()),
            ended: None,
        });
        let installed = Event::Installed {
            vm: number,
            work: nth,
        };
        cx.kernel
            .schedule(cx.at + call.plan.takes.unwrap_or(takes), installed);
        cx.vms.note(cx.at, ENSURE, Happened::Submitted, number);
        cx.kernel.mark_dirty();
        Ok(json!({}))
    }

    /// Ends the work, unless it was interrupted.
    pub(super) fn on_installed(&mut self, cx: &mut Context<'_>, number: u64, nth: u64) {
        let packages = &self.packages;
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        let (Some(agent), boots) = (&mut member.agent, member.boots) else {
            return;
        };
        let running = agent.work.as_mut();
        let Some(work) = running.filter(|work| work.nth == nth && work.ended.is_none()) else {
            return;
        };
        let is_known = |package: &String, version: &String| {
            let known = packages.known.get(package);
            known.is_none_or(|all| all.contains(version))
        };
        let mut missing = work.versions.iter();
        let missing = missing.find(|(package, version)| !is_known(package, version));
        let ended = match (&work.doomed, missing) {
            (Some(message), _) => Err(Trouble::new(Code::Unavailable, message.clone())),
            (None, Some((package, version))) => Err(Trouble::new(
                Code::NotFound,
                format!("no repository offers {package} {version}"),
            )),
            (None, None) => {
                let differs = |package: &String| agent.installed.get(package) != work.versions.get(package);
                let mut wants = packages.reboot_for.iter();
                agent.reboot_required |= wants.any(|p| work.versions.contains_key(p) && differs(p));
                agent.installed.extend(work.versions.clone());
                Ok(())
            }
        };
        let what = match &ended {
            Ok(()) => Happened::Done,
            Err(error) => Happened::Failed(error.message.clone()),
        };
        work.ended = Some((boots, ended));
        cx.vms.note(cx.at, ENSURE, what, number);
        cx.kernel.mark_dirty();
    }

    /// Ends the boot that an agent wanted to end.
    pub(super) fn on_rebooted(&mut self, cx: &mut Context<'_>, number: u64) {
        let member = self.members.get_mut(&number);
        let Some(agent) = member.and_then(|member| member.agent.as_mut()) else {
            return;
        };
        let Some(ending) = agent.ending else { return };
        agent.reboots += 1;
        cx.vms.note(cx.at, REBOOT, Happened::Done, number);
        cx.vms.set_power(cx.kernel, cx.at, number, Some(Power::Off));
        if ending == Ending::Reboots {
            cx.vms.set_power(cx.kernel, cx.at, number, Some(Power::On));
        }
        cx.kernel.mark_dirty();
    }

    /// A boot has ended, whatever the reason. Work under way ends with it.
    pub(super) fn end_boot(&mut self, cx: &mut Context<'_>, number: u64) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        let (Some(agent), boots) = (&mut member.agent, member.boots) else {
            return;
        };
        agent.ending = None;
        agent.reboot_required = false;
        if let Some(work) = agent.work.as_mut().filter(|work| work.ended.is_none()) {
            let error = Trouble::new(Code::Aborted, "the machine rebooted in the middle".to_owned());
            work.ended = Some((boots, Err(error)));
            let what = Happened::Failed("aborted".to_owned());
            cx.vms.note(cx.at, ENSURE, what, number);
        }
    }

    /// The node gets a new object, which has another agent.
    pub(super) fn on_joined(&mut self, number: u64) {
        if let Some(member) = self.members.get_mut(&number) {
            member.is_node = true;
            if let Some(agent) = &mut member.agent {
                agent.node_uid = None;
            }
        }
    }

    /// Installs an agent, or another release of it.
    pub(super) fn install_agent(&mut self, number: u64, told: &Value) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        let agent = member.agent.get_or_insert_with(Agent::default);
        agent.seed = Versions::deserialize(&told["versions"]).unwrap_or_default();
        agent.release = told["release"].as_str().map(str::to_owned);
    }
}

impl Agent {
    /// Schedules the end of this boot, unless that is already scheduled.
    fn end_boot_soon(&mut self, cx: &mut Context<'_>, call: &Call, vm: u64) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(match call.plan.quirk {
            Some(Quirk::NeverReturns) => Ending::NeverReturns,
            _ => Ending::Reboots,
        });
        cx.kernel.schedule(cx.at + REBOOTS_AFTER, Event::Rebooted { vm });
        cx.kernel.mark_dirty();
    }
}

fn boot_id(kernel: &Kernel, number: u64, boots: u64) -> String {
    kernel.uuid(&format!("boot {number} {boots}"))
}

impl Trouble {
    fn new(code: Code, message: String) -> Self {
        let code = serde_json::to_value(code)
            .ok()
            .and_then(|code| code.as_str().map(str::to_owned));
        Trouble {
            code: code.unwrap_or_default(),
            message,
        }
    }
}

#[cfg(test)]
mod tests;
