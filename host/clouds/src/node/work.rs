//! Installs packages in their versions, and upgrades Kubernetes in this order: kernel, kubeadm, `kubeadm upgrade`, the rest.
//!
//! Each step is stored before it begins, and can be done again: an installed version is not installed again, and kubeadm
//! may be run again until its success is stored. So if this process is killed, the next process continues its work.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::debian::{self, Plan};
use super::kubeadm::Kubeadm;
use super::memory::{Memory, Reason, Role, Step, Upgrade, Versions, Work, WorkError};

/// The package with which Kubernetes is upgraded. Its version is the release of Kubernetes.
const KUBEADM: &str = "kubeadm";
/// The package that is not upgraded before kubeadm has run.
const KUBELET: &str = "kubelet";
/// The prefix of kernel packages on Debian.
const KERNELS: &str = "linux-";

impl Machine {
    /// Does the work, or the part that is left.
    pub(super) fn carry_out(&self, work: &Work) -> Result<(), WorkError> {
        let debian = &self.debian;
        debian.refresh()?;
        let candidates = debian.candidates(&work.versions)?;
        let upgrade = match work.upgrade {
            Some(role) => self.due(role, &work.versions)?,
            None => None,
        };
        let plan = debian.plan(&candidates)?;
        self.is_held_by_nobody_else(&plan, candidates.keys())?;
        debian.has_room_for(&plan.installed)?;
        match upgrade {
            None => debian.install(&candidates),
            Some(upgrade) => self.upgrade(upgrade, &candidates),
        }
    }

    /// The upgrade that these versions need, with the step that comes next; `None` if Kubernetes stays as it is.
    fn due(&self, role: Role, versions: &Versions) -> Result<Option<Upgrade>, WorkError> {
        let Some(wanted) = versions.get(KUBEADM) else {
            return Err(WorkError::refused(
                Reason::KubeadmMissing,
                "an upgrade of Kubernetes needs a version of the package kubeadm: add kubeadm to the versions",
            ));
        };
        let release = debian::upstream(wanted);
        let installed = self.debian.installed(&[KUBEADM.to_owned(), KUBELET.to_owned()])?;
        let has = upstreams(&installed);
        let kubelet = versions.get(KUBELET).map(|wanted| debian::upstream(wanted));
        let is_other = has.get(KUBEADM) != Some(&release);
        let lags = kubelet.is_some() && has.get(KUBELET) != kubelet.as_ref();
        let step = match &self.remembered().upgrade {
            Some(begun) if begun.release == release && (begun.role == role || begun.role == Role::Apply) => {
                match begun.step {
                    _ if is_other => Some(Step::Kubeadm),
                    Step::Done => None,
                    step => Some(step),
                }
            }
            Some(begun) if begun.step != Step::Done => Some(Step::Kubeadm),
            _ => (is_other || lags).then_some(Step::Kubeadm),
        };
        let Some(step) = step else { return Ok(None) };
        let kubelets = (has.get(KUBELET).copied(), kubelet);
        Kubeadm::of(&self.debian).allows(role, release, kubelets)?;
        Ok(Some(Upgrade {
            release: release.to_owned(),
            role,
            step,
        }))
    }

    /// Does the steps of an upgrade that are left.
    fn upgrade(&self, upgrade: Upgrade, candidates: &Versions) -> Result<(), WorkError> {
        let debian = &self.debian;
        if upgrade.step == Step::Kubeadm {
            debian.install(&those(candidates, |package| package.starts_with(KERNELS)))?;
            self.reached(&upgrade, Step::Kubeadm)?;
            debian.install(&those(candidates, |package| package == KUBEADM))?;
            Kubeadm::of(debian).upgrade(upgrade.role, &upgrade.release)?;
            self.reached(&upgrade, Step::Rest)?;
        }
        debian.install(candidates)?;
        debian.restart_kubelet()?;
        self.reached(&upgrade, Step::Done)
    }

    fn reached(&self, upgrade: &Upgrade, step: Step) -> Result<(), WorkError> {
        self.note(|memory| {
            memory.upgrade = Some(Upgrade {
                step,
                ..upgrade.clone()
            });
        })
    }

    /// Refuses to change a package that is held, but not by this agent. Notes that the agent holds the other packages.
    fn is_held_by_nobody_else<'a>(
        &self,
        plan: &Plan,
        packages: impl Iterator<Item = &'a String>,
    ) -> Result<(), WorkError> {
        let mut others = self.debian.held()?;
        let (own, is_preparing) = {
            let memory = self.remembered();
            (memory.own_holds(), memory.seed.is_some() && !memory.initialized)
        };
        // While a machine is being prepared, its holds come from its image. They do not count.
        if is_preparing {
            others.clear();
        } else {
            others.retain(|package| !own.contains(package));
        }
        let changed: Vec<&str> = others
            .iter()
            .map(String::as_str)
            .filter(|p| plan.changes(p))
            .collect();
        if !changed.is_empty() {
            let packages = changed.join(" ");
            return Err(WorkError::refused(
                Reason::PackageHeld,
                format!(
                    "the work would change packages that are held, but not by this agent: {packages}. Release them with `apt-mark unhold {packages}`"
                ),
            ));
        }
        let new: BTreeSet<String> = packages
            .filter(|package| !others.contains(*package))
            .cloned()
            .collect();
        if new.is_subset(&own) {
            Ok(())
        } else {
            self.note(|memory| memory.held = Some(&own | &new))
        }
    }

    /// Stores progress. A dry run makes no progress, so it stores nothing.
    fn note(&self, change: impl FnOnce(&mut Memory)) -> Result<(), WorkError> {
        if self.config.dry_run {
            return Ok(());
        }
        let mut memory = self.remembered();
        Ok(self.remember(&mut memory, change)?)
    }
}

/// The candidates whose package fulfils a condition.
fn those(candidates: &Versions, is_one: fn(&str) -> bool) -> Versions {
    let mut those = candidates.clone();
    those.retain(|package, _| is_one(package));
    those
}

fn upstreams(installed: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let upstreams = installed
        .iter()
        .map(|(package, version)| (package.as_str(), debian::upstream(version)));
    upstreams.collect()
}
