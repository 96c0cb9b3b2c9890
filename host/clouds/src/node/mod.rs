//! The machine on which this host runs: its Debian packages and its boots.
//!
//! # Flow
//!
//! `node.ensure` stores the work and starts it on a thread of its own. `node.work` reads its progress. If the process
//! ends while work runs, the next process starts the work again. Installing an installed version changes nothing, so
//! work continues where a killed process left it.
//!
//! Work that upgrades Kubernetes has steps: kernel, kubeadm, `kubeadm upgrade`, and the rest. Each step is stored
//! before it begins. An upgrade that cannot be done is refused with a reason, before anything is changed.
//!
//! # Guarantees
//!
//! - Exactly the wanted version of a package is installed, and it is held. A package that is held, but not by this
//!   agent, is not changed.
//! - `kubeadm upgrade` is not run again once it has succeeded, and never twice at the same time.
//! - A request that names another node is refused: a machine answers only for itself.
//! - A boot is ended once: a request to end another boot is refused.
//!
//! # Caveats
//!
//! Only one process may run for a node. The caller that passes `persist` must make sure of that, for example by
//! locking the folder.

mod adapter;
mod config;
mod debian;
mod kubeadm;
mod memory;
#[cfg(test)]
mod tests;
mod work;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_core::call::{CloudRequest, PendingEntry, Session};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, Code, Failure, Resolution};
use serde::Deserialize;
use serde_json::json;

use crate::catalogue;
use crate::clock::Clock;
use crate::cloud::{BoxFuture, Cloud};

pub use adapter::ADAPTER;
pub use config::NodeConfig;
use debian::Debian;
use memory::{Memory, Role, Versions, Work, WorkState};

/// The time between the answer to `node.reboot` and the reboot, in milliseconds. The host needs it to write
/// the results of that answer.
const REBOOTS_AFTER: u64 = 10_000;

/// Stores the node's state durably.
type Persist = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// The stored state cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the stored state of this node cannot be read: {0}")]
pub struct MemoryError(#[from] serde_json::Error);

/// The machine as a cloud.
pub struct NodeCloud {
    catalogue: Arc<Catalogue>,
    machine: Arc<Machine>,
}

/// The state that requests share with the thread that installs.
struct Machine {
    config: NodeConfig,
    debian: Debian,
    memory: Mutex<Memory>,
    persist: Option<Persist>,
    clock: Arc<dyn Clock>,
}

impl NodeCloud {
    /// Continues from the stored state, with the work that was under way.
    pub fn open(
        config: NodeConfig,
        saved: Option<&str>,
        persist: Option<Persist>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, MemoryError> {
        let memory = saved.map_or_else(|| Ok(Memory::default()), serde_json::from_str)?;
        let machine = Arc::new(Machine {
            debian: Debian::new(&config),
            memory: Mutex::new(memory),
            config,
            persist,
            clock,
        });
        let left = machine.remembered().work.clone();
        if let Some(work) = left.filter(|work| work.state == WorkState::Running) {
            machine.clone().install(work);
        }
        Ok(NodeCloud {
            catalogue: Arc::new(catalogue::node::catalogue()),
            machine,
        })
    }
}

impl Cloud for NodeCloud {
    fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        let machine = self.machine.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || machine.perform(&request));
            done.await.unwrap_or_else(|e| {
                let message = format!("the operation ended before it had an answer: {e}");
                Err(Failure::new(Code::Internal, message).effect_unknown())
            })
        })
    }

    fn resolve<'a>(&'a self, _: &'a Session, _: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        // No operation of this cloud creates anything.
        Box::pin(std::future::ready(Resolution::unknown("a node creates nothing")))
    }
}

/// The arguments of all operations together.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    node: String,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    versions: Versions,
    #[serde(default)]
    upgrade: Option<Role>,
    #[serde(default)]
    boot_id: String,
}

impl Machine {
    fn perform(self: &Arc<Self>, request: &CloudRequest) -> Answer {
        let arguments = Arguments::deserialize(&request.arguments)
            .map_err(|e| Failure::new(Code::InvalidArgument, e.to_string()))?;
        let node = &self.config.node;
        if arguments.node != *node {
            let message = format!("this machine is node {node}: it does not answer for other nodes");
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        match request.operation.as_str() {
            "node.seed" => self.seed(),
            "node.versions" => self.versions(&arguments.packages),
            "node.work" => self.work(),
            "node.reboot-required" => Ok(json!({"node": node, "required": self.debian.is_reboot_required()})),
            "node.ensure" => self.ensure(arguments.versions, arguments.upgrade),
            "node.initialized" => self.initialized(),
            "node.reboot" => self.reboot(&arguments.boot_id),
            other => Err(Failure::new(Code::Unimplemented, format!("no operation {other}"))),
        }
    }

    fn seed(&self) -> Answer {
        let memory = self.remembered();
        let versions = memory.seed.as_ref().or(self.config.seed.as_ref());
        let versions = versions.ok_or_else(|| {
            let message = "this agent was installed without initial versions";
            Failure::new(Code::NotFound, message)
        })?;
        Ok(json!({"node": self.config.node, "versions": versions, "initialized": memory.initialized}))
    }

    fn versions(&self, packages: &[String]) -> Answer {
        let installed = self.debian.installed(packages)?;
        let memory = self.remembered();
        let wanted = memory.work.as_ref().map(|work| &work.versions);
        let told: Versions = installed
            .into_iter()
            .map(|(package, version)| {
                let wanted = wanted.and_then(|wanted| wanted.get(&package));
                let told = debian::as_it_was_asked_for(&version, wanted.map(String::as_str));
                (package, told.to_owned())
            })
            .collect();
        Ok(json!({"node": self.config.node, "versions": told}))
    }

    fn work(&self) -> Answer {
        let boot_id = self.debian.boot_id()?;
        let mut told = json!({"node": self.config.node, "bootId": boot_id});
        if let Some(id) = self.debian.machine_id() {
            told["machineId"] = json!(id);
        }
        if let Some(work) = &self.remembered().work {
            told["work"] = json!(work);
        }
        Ok(told)
    }

    /// Starts to install. If the same work is under way, the request joins it.
    fn ensure(self: &Arc<Self>, versions: Versions, upgrade: Option<Role>) -> Answer {
        let work = Work::running(versions, upgrade);
        {
            let mut memory = self.remembered();
            if let Some(running) = memory
                .work
                .as_ref()
                .filter(|work| work.state == WorkState::Running)
            {
                return if *running == work {
                    Ok(json!({}))
                } else {
                    Err(Failure::new(
                        Code::FailedPrecondition,
                        "other versions are being installed: wait until node.work has ended",
                    ))
                };
            }
            self.remember(&mut memory, |memory| {
                memory.seed = memory.seed.take().or_else(|| self.config.seed.clone());
                memory.begin(work.clone());
            })?;
        }
        self.clone().install(work);
        Ok(json!({}))
    }

    /// Installs on a thread of its own and stores the result.
    fn install(self: Arc<Self>, work: Work) {
        std::thread::spawn(move || {
            let done = self.carry_out(&work);
            let boot_id = self.debian.boot_id().ok();
            let ended = work.ended(boot_id, done.err());
            let mut memory = self.remembered();
            let kept = self.remember(&mut memory, |memory| memory.work = Some(ended.clone()));
            if let Err(failure) = kept {
                tracing::error!("{failure}");
                // This process must not wait for work that has ended. The next process does the work once more.
                memory.work = Some(ended);
            }
        });
    }

    fn initialized(&self) -> Answer {
        let mut memory = self.remembered();
        self.remember(&mut memory, |memory| memory.initialized = true)?;
        Ok(json!({}))
    }

    /// Ends this boot after a short time.
    fn reboot(self: &Arc<Self>, boot_id: &str) -> Answer {
        let present = self.debian.boot_id()?;
        if boot_id != present {
            let message = format!("boot {boot_id} has ended: this is boot {present}");
            return Err(Failure::new(Code::FailedPrecondition, message));
        }
        self.debian.can_reboot()?;
        let mut memory = self.remembered();
        if memory.ending.as_ref() == Some(&present) {
            return Ok(json!({}));
        }
        // This is not stored: if the process ends before the reboot, no reboot is scheduled any more.
        memory.ending = Some(present);
        let (machine, runtime) = (self.clone(), tokio::runtime::Handle::current());
        runtime.spawn(async move {
            machine.clock.sleep_ms(REBOOTS_AFTER).await;
            let failed = tokio::task::spawn_blocking({
                let machine = machine.clone();
                move || machine.debian.reboot().err()
            });
            if let Ok(Some(failure)) = failed.await {
                tracing::error!("{failure}");
                machine.remembered().ending = None;
            }
        });
        Ok(json!({}))
    }

    fn remembered(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and stores it. If it cannot be stored, nothing has changed: work that is noted but not begun
    /// would be waited for without end. A dry run stores nothing, because it does nothing of its work.
    fn remember(&self, memory: &mut Memory, change: impl FnOnce(&mut Memory)) -> Result<(), Failure> {
        let mut changed = memory.clone();
        change(&mut changed);
        if let Some(persist) = self.persist.as_ref().filter(|_| !self.config.dry_run) {
            let snapshot = serde_json::to_string(&changed).expect("a memory is JSON");
            persist(&snapshot).map_err(|e| {
                let message = format!("the state of this node cannot be stored: {e}");
                Failure::new(Code::Internal, message).effect_unknown()
            })?;
        }
        *memory = changed;
        Ok(())
    }
}
