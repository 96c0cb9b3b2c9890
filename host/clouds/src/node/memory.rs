//! The state of a node that outlives boots and processes. It is stored on the machine, because there is no object for it
//! before the node joins.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::contract::{Code, Failure};
use serde::{Deserialize, Serialize};

/// Versions by package.
pub(crate) type Versions = BTreeMap<String, String>;

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Memory {
    /// The versions that the agent was installed with. After the first work, the versions in the configuration are no
    /// longer read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<Versions>,
    /// Whether the machine was declared ready.
    pub(crate) initialized: bool,
    /// The work that runs or ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<Work>,
    /// The last upgrade that was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upgrade: Option<Upgrade>,
    /// The packages that this agent holds. `None` in the state of an older agent, which did not note its holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<BTreeSet<String>>,
    /// The boot that this process is about to end.
    #[serde(skip)]
    pub(crate) ending: Option<String>,
}

impl Memory {
    /// Begins a work.
    pub(crate) fn begin(&mut self, work: Work) {
        // An older agent, which did not note its holds, held every package that it had installed.
        let before = self.work.replace(work).map(|before| before.versions);
        let before = before.unwrap_or_default().into_keys().collect();
        self.held.get_or_insert(before);
    }

    /// The packages that this agent holds.
    pub(crate) fn own_holds(&self) -> BTreeSet<String> {
        self.held.clone().unwrap_or_default()
    }
}

/// An installation of packages in these versions, running or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    pub(crate) versions: Versions,
    /// The role of this node in an upgrade of Kubernetes; `None` if only packages are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upgrade: Option<Role>,
    pub(crate) state: WorkState,
    /// The boot in which the work ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<WorkError>,
}

/// The progress of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkState {
    Running,
    Done,
    Failed,
}

/// What kubeadm does on a node. The policy decides this; the machine only performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// `kubeadm upgrade apply`: it upgrades the cluster, and this node with it.
    Apply,
    /// `kubeadm upgrade node`: it upgrades this node to the cluster's version.
    Node,
}

/// An upgrade by kubeadm. It is stored before each step, so that the next process knows what may have run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upgrade {
    /// The release of Kubernetes: `1.31.1`.
    pub(crate) release: String,
    pub(crate) role: Role,
    pub(crate) step: Step,
}

/// The progress of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// kubeadm is being installed and run. It may have run in part, so it is run again, as its documentation allows.
    Kubeadm,
    /// kubeadm has succeeded, and is not run again. The kubelet and the remaining packages are being installed.
    Rest,
    /// Everything is done.
    Done,
}

/// The reason why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkError {
    /// `not-found`: there is no such version. `unavailable`: a repository cannot be reached.
    /// `failed-precondition`: refused. `resource-exhausted`: there is no room. `internal`: anything else.
    pub(crate) code: String,
    pub(crate) message: String,
    /// Why the work cannot be done, in one word for a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
}

/// Why work cannot be done, or did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// There is no kubeadm to upgrade with.
    KubeadmMissing,
    /// The machine is not a node of a kubeadm cluster, or must apply the upgrade and is not a control plane.
    NotJoined,
    /// Kubernetes does not allow this step between versions, or these versions together.
    VersionSkew,
    /// A package is held, but not by this agent.
    PackageHeld,
    /// The disk has too little room for the packages.
    DiskFull,
    /// kubeadm has failed.
    UpgradeFailed,
}

impl WorkError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        WorkError {
            code: code.as_str().to_owned(),
            message: message.into(),
            reason: None,
        }
    }

    /// A refusal. The refused step has changed nothing.
    pub(crate) fn refused(reason: Reason, message: impl Into<String>) -> Self {
        let code = match reason {
            Reason::DiskFull => Code::ResourceExhausted,
            Reason::UpgradeFailed => Code::Internal,
            _ => Code::FailedPrecondition,
        };
        WorkError {
            reason: Some(reason),
            ..WorkError::new(code, message)
        }
    }
}

impl From<Failure> for WorkError {
    fn from(failure: Failure) -> Self {
        WorkError::new(failure.code, failure.message)
    }
}

impl Work {
    pub(crate) fn running(versions: Versions, upgrade: Option<Role>) -> Self {
        Work {
            versions,
            upgrade,
            state: WorkState::Running,
            boot_id: None,
            error: None,
        }
    }

    pub(crate) fn ended(self, boot_id: Option<String>, error: Option<WorkError>) -> Self {
        Work {
            state: if error.is_none() {
                WorkState::Done
            } else {
                WorkState::Failed
            },
            boot_id,
            error,
            ..self
        }
    }
}
