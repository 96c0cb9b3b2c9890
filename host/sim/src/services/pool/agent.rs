//! What machines of pools do for their own agents: the operations of the `node` cloud, for every machine there is.
//!
//! The caller says whose agent it is by the node's name. Once the node has an object, only that object's agent is
//! listened to.

use std::collections::BTreeMap;

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Sim;
use crate::hypervisor::vm::Power;
use crate::kernel::call::{Plan, text};
use crate::kernel::draw::{draw, uuid};
use crate::services::pool::Member;
use crate::view::Happened;
use crate::world::Due;

/// The operation that installs packages.
pub(crate) const ENSURE: &str = "node.ensure";
/// The operation that ends a boot.
pub(crate) const REBOOT: &str = "node.reboot";
/// Milliseconds between the answer to a reboot and the reboot.
const REBOOTS_AFTER: u64 = 10_000;

type Versions = BTreeMap<String, String>;

/// What a machine remembers for its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Agent {
    pub(crate) release: Option<String>,
    pub(crate) seed: Versions,
    pub(crate) initialized: bool,
    pub(crate) installed: Versions,
    pub(crate) work: Option<Work>,
    pub(crate) reboot_required: bool,
    /// Whether this boot is about to end, and for good.
    pub(crate) ending: Option<Ending>,
    /// How often it was rebooted by its agent.
    pub(crate) reboots: u64,
    /// Of which object the agent is listened to.
    pub(crate) node_uid: Option<String>,
}

/// How a boot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ending {
    Reboots,
    NeverReturns,
}

/// Packages that are, or were, brought to their versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    pub(crate) versions: Versions,
    /// Which one: what is due to end may have been interrupted.
    nth: u64,
    doomed: Option<String>,
    /// In which boot, and how.
    pub(crate) ended: Option<(u64, Result<(), Trouble>)>,
}

/// Why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    code: String,
    message: String,
}

impl Sim {
    /// A call of an agent to its machine.
    pub(crate) fn on_node(&mut self, at: u64, request: &CloudRequest, plan: Plan) -> Answer {
        let CloudRequest {
            session,
            operation,
            arguments,
            ..
        } = request;
        let node = text(arguments, "node");
        let number = self.listening(at, session, node)?;
        let boot_id = self.boot_id(number, self.world.members[&number].boots);
        let (seed, blindly) = (self.world.head.seed, self.reboots_blindly);
        let work = self.describe_work(number);
        let agent = self.agent(number);
        Ok(match operation.as_str() {
            "node.seed" => json!({"node": node, "versions": agent.seed, "initialized": agent.initialized}),
            "node.versions" => {
                let asked = arguments["packages"].as_array().into_iter().flatten();
                let asked = asked.filter_map(Value::as_str);
                let has = |package: &str| Some((package.to_owned(), agent.installed.get(package)?.clone()));
                json!({"node": node, "versions": asked.filter_map(has).collect::<Versions>()})
            }
            "node.work" => {
                let machine_id = uuid(seed, &format!("machine-id {number}")).replace('-', "");
                let mut told = json!({"node": node, "bootId": boot_id, "machineId": machine_id});
                if let Some(work) = work {
                    told["work"] = work;
                }
                told
            }
            "node.reboot-required" => json!({"node": node, "required": agent.reboot_required}),
            "node.initialized" => {
                agent.initialized = true;
                self.dirty = true;
                json!({})
            }
            ENSURE => return self.ensure_versions(at, request, number, plan),
            _ if text(arguments, "bootId") != boot_id && !blindly => {
                let message = format!("that boot has ended: this is boot {boot_id}");
                return Err(Failure::new(Code::FailedPrecondition, message));
            }
            _ => {
                if agent.ending.is_none() {
                    let never = plan.never_returns;
                    agent.ending = Some(if never {
                        Ending::NeverReturns
                    } else {
                        Ending::Reboots
                    });
                    self.world.schedule(at + REBOOTS_AFTER, Due::Reboot(number));
                    self.dirty = true;
                }
                json!({})
            }
        })
    }

    /// Ends whichever boot it is, for tests of the simulation: they must notice.
    #[doc(hidden)]
    pub fn reboot_under_any_boot(&mut self) {
        self.reboots_blindly = true;
    }

    /// The machine of this node, if it runs and listens to whoever asks.
    fn listening(&mut self, at: u64, session: &Session, node: &str) -> Result<u64, Failure> {
        let refuse = |code, message: String| Err(Failure::new(code, message));
        let number = self.member_of(node);
        let number = number.filter(|number| self.sees(session, &self.world.vms[number].stamp));
        let Some(number) = number else {
            return refuse(Code::NotFound, format!("no machine is node {node:?}"));
        };
        let member = self.world.members.get_mut(&number).expect("found above");
        let up = member.up.is_some_and(|up| up <= at);
        let Some(agent) = &mut member.agent else {
            return refuse(Code::NotFound, format!("no agent is installed on node {node:?}"));
        };
        match &agent.node_uid {
            Some(uid) if *uid != session.owner => {
                return refuse(
                    Code::PermissionDenied,
                    format!("node {node:?} listens to another agent"),
                );
            }
            None if !session.owner.is_empty() && self.world.nodes.contains_key(&number) => {
                agent.node_uid = Some(session.owner.clone());
                self.dirty = true;
            }
            _ => {}
        }
        match up {
            true => Ok(number),
            false => refuse(
                Code::Unavailable,
                format!("the machine of node {node:?} does not run"),
            ),
        }
    }

    fn agent(&mut self, number: u64) -> &mut Agent {
        let member = self
            .world
            .members
            .get_mut(&number)
            .expect("the caller has found it");
        member.agent.as_mut().expect("the caller has found it")
    }

    fn boot_id(&self, number: u64, boots: u64) -> String {
        uuid(self.world.head.seed, &format!("boot {number} {boots}"))
    }

    fn describe_work(&self, number: u64) -> Option<Value> {
        let work = self.world.members[&number].agent.as_ref()?.work.as_ref()?;
        let Some((boots, ended)) = &work.ended else {
            return Some(json!({"versions": work.versions, "state": "running"}));
        };
        let boot_id = self.boot_id(number, *boots);
        Some(match ended {
            Ok(()) => json!({"versions": work.versions, "state": "done", "bootId": boot_id}),
            Err(error) => {
                json!({"versions": work.versions, "state": "failed", "bootId": boot_id, "error": error})
            }
        })
    }

    /// Begins to install. The same work that runs is joined.
    fn ensure_versions(&mut self, at: u64, request: &CloudRequest, number: u64, plan: Plan) -> Answer {
        let versions = Versions::deserialize(&request.arguments["versions"]).unwrap_or_default();
        let running = self
            .agent(number)
            .work
            .as_ref()
            .filter(|work| work.ended.is_none());
        match running.map(|work| work.versions == versions) {
            Some(true) => return Ok(json!({})),
            Some(false) => {
                let message = "other versions are being installed";
                return Err(Failure::new(Code::FailedPrecondition, message));
            }
            None => {}
        }
        let nth = self.world.number();
        let takes =
            self.config
                .packages
                .takes
                .pick(draw(self.world.head.seed, ENSURE, &request.session.owner, nth));
        self.agent(number).work = Some(Work {
            versions,
            nth,
            doomed: plan.doomed.map(|error| error.message),
            ended: None,
        });
        self.world
            .schedule(at + plan.takes.unwrap_or(takes), Due::Installed(number, nth));
        self.note_at_once(at, ENSURE, Happened::Submitted, number);
        self.dirty = true;
        Ok(json!({}))
    }

    /// The work is done, unless it was interrupted.
    pub(crate) fn installed(&mut self, at: u64, number: u64, nth: u64) {
        let known = &self.config.packages.known;
        let reboot_for = &self.config.packages.reboot_for;
        let Some(Member {
            agent: Some(agent),
            boots,
            ..
        }) = self.world.members.get_mut(&number)
        else {
            return;
        };
        let Some(work) = agent
            .work
            .as_mut()
            .filter(|work| work.nth == nth && work.ended.is_none())
        else {
            return;
        };
        let exists =
            |package: &String, version: &String| known.get(package).is_none_or(|all| all.contains(version));
        let missing = work
            .versions
            .iter()
            .find(|(package, version)| !exists(package, version));
        let ended = match (&work.doomed, missing) {
            (Some(message), _) => Err(Trouble::new(Code::Unavailable, message.clone())),
            (None, Some((package, version))) => Err(Trouble::new(
                Code::NotFound,
                format!("no repository offers {package} {version}"),
            )),
            (None, None) => {
                let differs = |package: &String| agent.installed.get(package) != work.versions.get(package);
                agent.reboot_required |= reboot_for
                    .iter()
                    .any(|p| work.versions.contains_key(p) && differs(p));
                agent.installed.extend(work.versions.clone());
                Ok(())
            }
        };
        let what = match &ended {
            Ok(()) => Happened::Done,
            Err(error) => Happened::Failed(error.message.clone()),
        };
        work.ended = Some((*boots, ended));
        self.note_at_once(at, ENSURE, what, number);
        self.dirty = true;
    }

    /// The boot that an agent has ended is over.
    pub(crate) fn reboot(&mut self, at: u64, number: u64) {
        let Some(Member {
            agent: Some(agent), ..
        }) = self.world.members.get_mut(&number)
        else {
            return;
        };
        let Some(ending) = agent.ending else { return };
        agent.reboots += 1;
        self.note_at_once(at, REBOOT, Happened::Done, number);
        self.set_power(at, number, Some(Power::Off));
        if ending == Ending::Reboots {
            self.set_power(at, number, Some(Power::On));
        }
        self.dirty = true;
    }

    /// A boot has ended, however: with it what was under way.
    pub(crate) fn end_boot(&mut self, at: u64, number: u64) {
        let Some(Member {
            agent: Some(agent),
            boots,
            ..
        }) = self.world.members.get_mut(&number)
        else {
            return;
        };
        agent.ending = None;
        agent.reboot_required = false;
        if let Some(work) = agent.work.as_mut().filter(|work| work.ended.is_none()) {
            let error = Trouble::new(Code::Aborted, "the machine rebooted in the middle".to_owned());
            work.ended = Some((*boots, Err(error)));
            self.note_at_once(at, ENSURE, Happened::Failed("aborted".to_owned()), number);
        }
    }

    /// The node gets another object: its agent is another one.
    pub(crate) fn forget_agent(&mut self, number: u64) {
        if let Some(Member {
            agent: Some(agent), ..
        }) = self.world.members.get_mut(&number)
        {
            agent.node_uid = None;
        }
    }

    /// Installs an agent, or another release of it.
    pub(crate) fn install_agent(&mut self, number: u64, told: &Value) {
        let Some(member) = self.world.members.get_mut(&number) else {
            return;
        };
        let agent = member.agent.get_or_insert_with(Agent::default);
        agent.seed = Versions::deserialize(&told["versions"]).unwrap_or_default();
        agent.release = told["release"].as_str().map(str::to_owned);
    }
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
