//! The agent's own Node: the only object it sees and writes.

use orbiter_api::{
    NodeMetadata, PACKAGES_ENSURED, READY, UPGRADE, Versions, current_version, desired_version,
};
use polity_sdk::cloud::agent::Upgrade;
use polity_sdk::kube::node::{NodeCondition, NodeSpec, NodeStatus};
use polity_sdk::prelude::*;

use crate::follow::{ENSURE_FAILED, NO_SUCH_VERSION, REFUSALS};

/// A Node, as its own agent sees it. The agent works before there is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnNode {
    /// The metadata. Orbiter and the agent communicate by its annotations.
    pub metadata: Metadata,
    /// Whether it is cordoned.
    #[serde(default)]
    pub spec: NodeSpec,
    /// The status. The state of the agent is one of its conditions.
    #[serde(default)]
    pub status: NodeStatus,
}

impl Kind for OwnNode {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
    const NAMESPACED: bool = false;
    const RUNS_WHILE_ABSENT: bool = true;

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl OwnNode {
    /// The annotations by which orbiter and the agent communicate.
    pub(crate) fn told(&self) -> NodeMetadata {
        NodeMetadata::read(&self.metadata.annotations)
    }

    /// What kubeadm does on this node, as orbiter has written it; `None` if it has not.
    pub(crate) fn upgrade(&self) -> Result<Option<Upgrade>, Failure> {
        let Some(word) = self.metadata.annotations.get(UPGRADE) else {
            return Ok(None);
        };
        let garbage = || {
            let message = format!("{word:.80?} in {UPGRADE} is neither apply nor node");
            Failure::new(Code::InvalidArgument, message)
        };
        Upgrade::read(word).ok_or_else(garbage).map(Some)
    }

    /// Reports to orbiter whether the agent is done.
    pub(crate) fn set_ready(&mut self, ready: bool) {
        self.annotate(READY.to_owned(), if ready { "true" } else { "false" });
    }

    /// Reports the measured versions of the wanted packages to orbiter.
    pub(crate) fn set_current(&mut self, desired: &Versions, installed: &Versions) {
        for package in desired.keys() {
            match installed.get(package) {
                Some(version) => self.annotate(current_version(package), version),
                None => _ = self.metadata.annotations.remove(&current_version(package)),
            }
        }
    }

    /// Records the versions that orbiter wanted when it installed the agent, if orbiter has not written any since.
    pub(crate) fn begin_with(&mut self, seed: &Versions) {
        for (package, version) in seed {
            let annotations = &mut self.metadata.annotations;
            let wanted = annotations.entry(desired_version(package));
            wanted.or_insert_with(|| version.clone());
        }
    }

    fn annotate(&mut self, name: String, value: &str) {
        self.metadata.annotations.insert(name, value.to_owned());
    }

    /// Whether a failed installation was reported.
    pub(crate) fn has_failed(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        let known = conditions.find(|known| known.kind == PACKAGES_ENSURED);
        let reason = known.and_then(|known| known.reason.as_deref());
        let mut failures = [NO_SUCH_VERSION, ENSURE_FAILED].into_iter().chain(REFUSALS);
        reason.is_some_and(|reason| failures.any(|failure| failure == reason))
    }

    /// Reports the state of the agent to people.
    pub(crate) fn say(&mut self, now: Time, status: &str, reason: &str, message: &str) {
        let conditions = &mut self.status.conditions;
        let known = conditions.iter_mut().find(|known| known.kind == PACKAGES_ENSURED);
        let condition = match known {
            Some(known) => known,
            None => {
                conditions.push(NodeCondition {
                    kind: PACKAGES_ENSURED.to_owned(),
                    ..NodeCondition::default()
                });
                conditions.last_mut().expect("pushed above")
            }
        };
        if condition.status != status {
            status.clone_into(&mut condition.status);
            condition.last_transition_time = Some(now.whole_seconds());
        }
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.to_owned());
    }
}
