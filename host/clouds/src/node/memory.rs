//! The state of a node that outlives boots and processes. No object could hold it before the node joins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Versions by package.
pub(crate) type Versions = BTreeMap<String, String>;

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Memory {
    /// The versions that were given when the agent was installed. After the first work, the configuration's
    /// are no longer read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<Versions>,
    /// Whether the machine was declared ready.
    pub(crate) initialized: bool,
    /// The work that runs or ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<Work>,
    /// The boot that this process is about to end.
    #[serde(skip)]
    pub(crate) ending: Option<String>,
}

/// Packages that are or were brought to these versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    pub(crate) versions: Versions,
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

/// The reason why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkError {
    /// `not-found`: there is no such version. `unavailable`: a repository cannot be reached. `internal`:
    /// anything else.
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Work {
    pub(crate) fn running(versions: Versions) -> Self {
        Work {
            versions,
            state: WorkState::Running,
            boot_id: None,
            error: None,
        }
    }

    pub(crate) fn ended(versions: Versions, boot_id: Option<String>, error: Option<WorkError>) -> Self {
        Work {
            versions,
            state: if error.is_none() {
                WorkState::Done
            } else {
                WorkState::Failed
            },
            boot_id,
            error,
        }
    }
}
