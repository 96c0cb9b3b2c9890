//! The annotations of a Node by which orbiter and the node agent communicate. They communicate in no other way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::is_package;

/// Written by orbiter: `true` while the agent may change its machine.
pub const CHANGES_ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";
/// Written by the agent: `false` from before its first change until after its last change and the reboot.
pub const READY: &str = "alpha.node.caos.ch/ready";
/// Written by orbiter with the wanted versions: what kubeadm does on this node, `apply` or `node`.
pub const UPGRADE: &str = "alpha.node.caos.ch/upgrade";
/// The condition with which an agent reports its state to people. Orbiter does not read it.
pub const PACKAGES_ENSURED: &str = "PackagesEnsured";

const PREFIX: &str = "alpha.";
const DESIRED: &str = ".caos.ch/desired-version";
const CURRENT: &str = ".caos.ch/current-version";

/// Versions by package.
pub type Versions = BTreeMap<String, String>;

/// The annotation with the version of a package that orbiter wants.
pub fn desired_version(package: &str) -> String {
    format!("{PREFIX}{package}{DESIRED}")
}

/// The annotation with the version of a package that the agent measured.
pub fn current_version(package: &str) -> String {
    format!("{PREFIX}{package}{CURRENT}")
}

/// The annotations of a Node for orbiter and the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMetadata {
    /// Whether the agent may change its machine. Every value except `true` means no.
    pub changes_allowed: bool,
    /// Whether the agent is done; `None` until it has written anything. Every value except `true` means no.
    pub ready: Option<bool>,
    /// The wanted versions.
    pub desired: Versions,
    /// The measured versions.
    pub current: Versions,
}

impl NodeMetadata {
    /// Reads the annotations.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut metadata = NodeMetadata {
            changes_allowed: annotations.get(CHANGES_ALLOWED).is_some_and(|it| it == "true"),
            ready: annotations.get(READY).map(|it| it == "true"),
            ..NodeMetadata::default()
        };
        for (name, value) in annotations {
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let (package, versions) = match (rest.strip_suffix(DESIRED), rest.strip_suffix(CURRENT)) {
                (Some(package), _) => (package, &mut metadata.desired),
                (None, Some(package)) => (package, &mut metadata.current),
                (None, None) => continue,
            };
            if is_package(package) {
                versions.insert(package.to_owned(), value.clone());
            }
        }
        metadata
    }

    /// Whether the Node wants all needed versions.
    pub fn wants(&self, needed: &Versions) -> bool {
        has(&self.desired, needed)
    }

    /// Whether the wanted versions of all needed packages were measured.
    pub fn is_current(&self, needed: &Versions) -> bool {
        needed
            .keys()
            .all(|package| self.desired.get(package) == self.current.get(package))
    }
}

/// Whether `versions` contains `these`.
fn has(versions: &Versions, these: &Versions) -> bool {
    these
        .iter()
        .all(|(package, version)| versions.get(package) == Some(version))
}

impl NodeMetadata {
    /// The annotations that change the wanted versions to exactly these; empty if nothing changes.
    pub fn want(&self, needed: &Versions) -> Map<String, Value> {
        let gone = self
            .desired
            .keys()
            .filter(|package| !needed.contains_key(*package));
        let gone = gone.map(|package| (desired_version(package), Value::Null));
        let new = needed
            .iter()
            .map(|(package, version)| (desired_version(package), version.as_str().into()));
        gone.chain(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(all: &[(&str, &str)]) -> NodeMetadata {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        NodeMetadata::read(&all.iter().map(own).collect())
    }

    #[test]
    fn the_names_are_those_of_the_drawing() {
        let metadata = annotations(&[
            ("alpha.node.caos.ch/changes-allowed", "true"),
            ("alpha.node.caos.ch/ready", "false"),
            ("alpha.kubelet.caos.ch/desired-version", "1.30.2"),
            ("alpha.containerd.io.caos.ch/current-version", "1.7.1"),
            ("alpha.kubelet.caos.ch/other", "x"),
            ("alpha.No Package.caos.ch/desired-version", "1"),
            ("node.alpha.kubernetes.io/ttl", "0"),
        ]);
        assert!(metadata.changes_allowed);
        assert_eq!(metadata.ready, Some(false));
        assert_eq!(
            metadata.desired,
            Versions::from([("kubelet".into(), "1.30.2".into())])
        );
        assert_eq!(
            metadata.current,
            Versions::from([("containerd.io".into(), "1.7.1".into())])
        );
    }

    #[test]
    fn garbage_allows_nothing_and_is_not_ready() {
        for garbage in ["", "True", "yes", "true ", "1", "\u{0}"] {
            let metadata = annotations(&[(CHANGES_ALLOWED, garbage), (READY, garbage)]);
            assert!(!metadata.changes_allowed, "{garbage:?}");
            assert_eq!(metadata.ready, Some(false), "{garbage:?}");
        }
        assert_eq!(annotations(&[]).ready, None);
    }

    #[test]
    fn what_nobody_needs_any_more_is_no_longer_wanted() {
        let metadata = annotations(&[("alpha.old.caos.ch/desired-version", "1")]);
        let needed = Versions::from([("kubelet".into(), "1.30.2".into())]);
        assert!(!metadata.wants(&needed));
        assert_eq!(
            Value::Object(metadata.want(&needed)),
            serde_json::json!({"alpha.old.caos.ch/desired-version": null, "alpha.kubelet.caos.ch/desired-version": "1.30.2"})
        );
    }
}
