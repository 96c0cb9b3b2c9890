//! What an agent does on its own machine: packages of fixed versions, and reboots.
//!
//! Every request names the node, and every answer says whose it is: a machine answers for no other. What is given at
//! the agent's installation, the work that runs and what came of it is remembered by the machine, which has no object
//! before its node joins. A boot has an id of its own, so that "reboot" means *end this boot*, however often it is said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cloud::pool::Empty;
use crate::cloud::{self, CloudAsk, CloudDo};
use crate::contract::{Code, Failure};

/// All operations of a machine.
pub const OPERATIONS: [&str; 7] = [
    "node.seed",
    "node.versions",
    "node.work",
    "node.reboot-required",
    "node.ensure",
    "node.initialized",
    "node.reboot",
];

/// Versions by package.
pub type Versions = BTreeMap<String, String>;

/// Asks what was given at the agent's installation.
pub fn seed(node: &str) -> CloudAsk<Seed> {
    cloud::ask("node.seed", &Of { node })
}

/// Asks which versions of these packages are installed.
pub fn versions<'a>(node: &str, packages: impl IntoIterator<Item = &'a String>) -> CloudAsk<Installed> {
    #[derive(Serialize)]
    struct Packages<'a> {
        node: &'a str,
        packages: Vec<&'a String>,
    }
    let packages = packages.into_iter().collect();
    cloud::ask("node.versions", &Packages { node, packages })
}

/// Asks for the work that runs, or was done last.
pub fn work(node: &str) -> CloudAsk<Working> {
    cloud::ask("node.work", &Of { node })
}

/// Asks whether what is installed wants another boot.
pub fn reboot_required(node: &str) -> CloudAsk<RebootRequired> {
    cloud::ask("node.reboot-required", &Of { node })
}

/// Begins to install exactly these versions, and to hold them. While the same work runs, it is joined.
pub fn ensure(node: &str, versions: &Versions) -> CloudDo<Empty> {
    #[derive(Serialize)]
    struct Ensure<'a> {
        node: &'a str,
        versions: &'a Versions,
    }
    cloud::change("node.ensure", &Ensure { node, versions })
}

/// Says that the machine is prepared.
pub fn initialized(node: &str) -> CloudDo<Empty> {
    cloud::change("node.initialized", &Of { node })
}

/// Ends this boot, a moment later. Under another boot it is refused: `failed-precondition`.
pub fn reboot(node: &str, boot_id: &str) -> CloudDo<Empty> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Reboot<'a> {
        node: &'a str,
        boot_id: &'a str,
    }
    cloud::change("node.reboot", &Reboot { node, boot_id })
}

#[derive(Serialize)]
struct Of<'a> {
    node: &'a str,
}

/// What was given at the agent's installation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Seed {
    /// Whose it is.
    pub node: String,
    /// The versions to begin with.
    pub versions: Versions,
    /// Whether the machine was said to be prepared.
    #[serde(default)]
    pub initialized: bool,
}

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Installed {
    /// Whose it is.
    pub node: String,
    /// Of the packages that were asked for, those that are installed.
    pub versions: Versions,
}

/// Which boot it is, and what is done in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Working {
    /// Whose it is.
    pub node: String,
    /// The boot.
    pub boot_id: String,
    /// What the operating system calls the machine.
    #[serde(default)]
    pub machine_id: Option<String>,
    /// The work that runs, or was done last; absent while there was none.
    #[serde(default)]
    pub work: Option<Work>,
}

/// Packages that are, or were, brought to their versions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// To which.
    pub versions: Versions,
    /// How far it is.
    pub state: WorkState,
    /// The boot in which it ended.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<WorkError>,
}

/// How far work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkState {
    /// Under way.
    Running,
    /// Everything is installed.
    Done,
    /// Something could not be installed.
    Failed,
}

/// Why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkError {
    /// `not-found`: there is no such version.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Whether another boot is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RebootRequired {
    /// Whose it is.
    pub node: String,
    /// Whether.
    pub required: bool,
}

impl Working {
    /// Whether something is being installed.
    pub fn is_running(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.state == WorkState::Running)
    }

    /// Whether work of this very boot was done: if it wants another boot, that one is still to come.
    pub fn is_of_this_boot(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.boot_id.as_ref() == Some(&self.boot_id))
    }

    /// Why exactly this work failed; none if it did not.
    pub fn failure(&self, versions: &Versions) -> Option<Failure> {
        let failed = |work: &&Work| work.state == WorkState::Failed && work.versions == *versions;
        let error = self.work.as_ref().filter(failed)?.error.clone();
        let (code, message) = error.map_or_else(Default::default, |error| (error.code, error.message));
        let known = Code::ALL.into_iter().find(|known| known.as_str() == code);
        Some(Failure::new(known.unwrap_or(Code::Unknown), message))
    }
}
