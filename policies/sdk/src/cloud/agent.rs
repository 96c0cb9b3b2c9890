//! The operations of a machine for its own agent: packages with fixed versions, and reboots.
//!
//! Every request and every answer names the node: a machine does not answer for another node. The machine
//! remembers the initial versions, the work under way and its result, because it has no object before its node
//! joins. Each boot has an id. So "reboot" means *end this boot*, however often it is requested.

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

/// Asks for the initial versions that were given when the agent was installed.
pub fn seed(node: &str) -> CloudAsk<Seed> {
    cloud::ask("node.seed", &Of { node })
}

/// Asks for the installed versions of these packages.
pub fn versions<'a>(node: &str, packages: impl IntoIterator<Item = &'a String>) -> CloudAsk<Installed> {
    #[derive(Serialize)]
    struct Packages<'a> {
        node: &'a str,
        packages: Vec<&'a String>,
    }
    let packages = packages.into_iter().collect();
    cloud::ask("node.versions", &Packages { node, packages })
}

/// Asks for the work that runs or ended last.
pub fn work(node: &str) -> CloudAsk<Working> {
    cloud::ask("node.work", &Of { node })
}

/// Asks whether the machine needs a reboot.
pub fn reboot_required(node: &str) -> CloudAsk<RebootRequired> {
    cloud::ask("node.reboot-required", &Of { node })
}

/// Starts to install exactly these versions and to hold them. If the same work is under way, the request
/// joins it. With an upgrade the machine installs kernel and kubeadm first, runs `kubeadm upgrade`, and then
/// installs the kubelet and the rest.
pub fn ensure(node: &str, versions: &Versions, upgrade: Option<Upgrade>) -> CloudDo<Empty> {
    #[derive(Serialize)]
    struct Ensure<'a> {
        node: &'a str,
        versions: &'a Versions,
        #[serde(skip_serializing_if = "Option::is_none")]
        upgrade: Option<Upgrade>,
    }
    let ensure = Ensure {
        node,
        versions,
        upgrade,
    };
    cloud::change("node.ensure", &ensure)
}

/// What kubeadm does on a node that gets another version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upgrade {
    /// `kubeadm upgrade apply`, on the first control plane: it upgrades the cluster.
    Apply,
    /// `kubeadm upgrade node`, on every other node, once the cluster is upgraded.
    Node,
}

impl Upgrade {
    /// The word for it, as in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Upgrade::Apply => "apply",
            Upgrade::Node => "node",
        }
    }

    /// Reads the word.
    pub fn read(word: &str) -> Option<Self> {
        let all = [Upgrade::Apply, Upgrade::Node];
        all.into_iter().find(|upgrade| upgrade.as_str() == word)
    }
}

/// Declares the machine ready.
pub fn initialized(node: &str) -> CloudDo<Empty> {
    cloud::change("node.initialized", &Of { node })
}

/// Ends this boot after a short time. If another boot is running, the answer is `failed-precondition`.
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

/// The initial versions that were given when the agent was installed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Seed {
    /// The node that answers.
    pub node: String,
    /// The initial versions.
    pub versions: Versions,
    /// Whether the machine was declared ready.
    #[serde(default)]
    pub initialized: bool,
}

/// The installed packages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Installed {
    /// The node that answers.
    pub node: String,
    /// The versions of the requested packages that are installed.
    pub versions: Versions,
}

/// The present boot, and the work in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Working {
    /// The node that answers.
    pub node: String,
    /// The id of the boot.
    pub boot_id: String,
    /// The operating system's id of the machine.
    #[serde(default)]
    pub machine_id: Option<String>,
    /// The work that runs or ended last; absent if there was none.
    #[serde(default)]
    pub work: Option<Work>,
}

/// An installation of packages in these versions, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// The versions.
    pub versions: Versions,
    /// The progress.
    pub state: WorkState,
    /// The boot in which the work ended.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The reason why it failed.
    #[serde(default)]
    pub error: Option<WorkError>,
}

/// The progress of work.
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

/// The reason why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkError {
    /// The code, for example `not-found` if there is no such version.
    pub code: String,
    /// The message for people.
    pub message: String,
    /// Why the machine refused it, in one word for a condition: `VersionSkew`.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Whether a machine needs a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RebootRequired {
    /// The node that answers.
    pub node: String,
    /// Whether it needs one.
    pub required: bool,
}

impl Working {
    /// Whether something is being installed.
    pub fn is_running(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.state == WorkState::Running)
    }

    /// Whether the work was done in this very boot. If it needs a reboot, the reboot has not happened yet.
    pub fn is_of_this_boot(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.boot_id.as_ref() == Some(&self.boot_id))
    }

    /// The reason why the work with exactly these versions failed; `None` if it did not.
    pub fn failure(&self, versions: &Versions) -> Option<Failure> {
        let error = self.failed(versions)?.error.clone();
        let (code, message) = error.map_or_else(Default::default, |error| (error.code, error.message));
        let known = Code::ALL.into_iter().find(|known| known.as_str() == code);
        Some(Failure::new(known.unwrap_or(Code::Unknown), message))
    }

    /// The reason in one word why the machine refused exactly these versions, if it gave one.
    pub fn refusal(&self, versions: &Versions) -> Option<&str> {
        self.failed(versions)?.error.as_ref()?.reason.as_deref()
    }

    fn failed(&self, versions: &Versions) -> Option<&Work> {
        let failed = |work: &&Work| work.state == WorkState::Failed && work.versions == *versions;
        self.work.as_ref().filter(failed)
    }
}
