//! Checks of an Orb that the schema cannot express.

use std::collections::BTreeSet;

use crate::{Orb, Release, is_package, is_version};

/// The name of Kubernetes in `spec.versions`.
pub const KUBERNETES: &str = "kubernetes";

impl Orb {
    /// Returns an error if the Orb contradicts itself.
    pub fn check(&self) -> Result<(), String> {
        let nodes = self.spec.control_plane.nodes;
        if ![1, 3, 5].contains(&nodes) {
            return Err(format!(
                "spec.controlPlane.nodes is {nodes}: a control plane has 1, 3 or 5"
            ));
        }
        let mut names = BTreeSet::new();
        for (_, pool) in self.pools() {
            if pool.pool.is_empty() || pool.nodes > 1000 {
                return Err(format!(
                    "pool {:?} has no name, or more than 1000 nodes",
                    pool.pool
                ));
            }
            if !names.insert(&pool.pool) {
                return Err(format!("there are two pools {:?}", pool.pool));
            }
        }
        let kubernetes = self.kubernetes();
        if kubernetes.parse::<Release>().is_err() {
            return Err(format!(
                "spec.versions.{KUBERNETES} is {kubernetes:?}, which is not a release such as 1.30.2"
            ));
        }
        let wrong = |(package, version): &(&String, &String)| !is_package(package) || !is_version(version);
        if self.spec.versions.len() > 32 {
            return Err("spec.versions names more than 32 packages".to_owned());
        }
        match self.spec.versions.iter().find(wrong) {
            None => Ok(()),
            Some((package, version)) => Err(format!(
                "spec.versions: {version:?} of {package:?} is not a version"
            )),
        }
    }

    /// The version of Kubernetes that is wanted in the end; empty if there is none.
    pub fn kubernetes(&self) -> &str {
        self.spec
            .versions
            .get(KUBERNETES)
            .map(String::as_str)
            .unwrap_or_default()
    }

    /// The wanted version of each package, if Kubernetes has this version.
    pub fn packages(&self, config: &crate::Config, kubernetes: &str) -> crate::Versions {
        let others = self.spec.versions.iter().filter(|(name, _)| *name != KUBERNETES);
        let others = others.map(|(name, version)| (name.clone(), version.clone()));
        others.chain(config.of_kubernetes(kubernetes)).collect()
    }
}
