//! Runs kubeadm on a machine, and checks first what kubeadm allows.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::debian::{Debian, complained, internal};
use super::memory::{Reason, Role, WorkError};

/// The program, below the root.
const PROGRAM: &str = "usr/bin/kubeadm";
/// The output of the last run, below the root.
const LOG: &str = "var/log/polity-kubeadm.log";
/// Locked while kubeadm runs, below the root.
const LOCK: &str = "run/polity-kubeadm.lock";
/// The static pod that makes a machine a control plane, below the root.
const API_SERVER: &str = "etc/kubernetes/manifests/kube-apiserver.yaml";
/// The kubeconfigs with which kubeadm reaches the cluster, below the root.
const ADMIN: &str = "etc/kubernetes/admin.conf";
const KUBELET: &str = "etc/kubernetes/kubelet.conf";

/// The most minor versions that a control plane goes up or down in one upgrade. Source: kubeadm,
/// `phases/upgrade/policy.go`.
const MOST_OF_A_CONTROL_PLANE: u32 = 1;
/// The most minor versions that a kubelet may be behind. Source: kubeadm, and the version skew policy of Kubernetes.
const MOST_OF_A_KUBELET: u32 = 3;

/// The part of a release of Kubernetes that matters for version skew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Minor {
    major: u32,
    minor: u32,
}

/// kubeadm on a machine.
pub(crate) struct Kubeadm<'a> {
    debian: &'a Debian,
}

impl<'a> Kubeadm<'a> {
    pub(crate) fn of(debian: &'a Debian) -> Self {
        Kubeadm { debian }
    }

    /// Refuses an upgrade that kubeadm or Kubernetes does not allow, before anything is changed.
    pub(crate) fn allows(
        &self,
        role: Role,
        release: &str,
        kubelet: (Option<&str>, Option<&str>),
    ) -> Result<(), WorkError> {
        self.is_joined(role)?;
        let to = minor(release)?;
        let (installed, wanted) = kubelet;
        if let Some(wanted) = wanted {
            fits(wanted, release, to)?;
        }
        let is_control_plane = self.is_control_plane();
        let present = self.control_plane();
        let Some(from) = present.as_deref().or(installed) else {
            return Ok(());
        };
        let (had, up, down) = if is_control_plane {
            ("control plane", MOST_OF_A_CONTROL_PLANE, MOST_OF_A_CONTROL_PLANE)
        } else {
            ("kubelet", MOST_OF_A_KUBELET, MOST_OF_A_CONTROL_PLANE)
        };
        let has = minor(from)?;
        let is_allowed = has.major == to.major && to.minor <= has.minor + up && has.minor <= to.minor + down;
        if is_allowed {
            Ok(())
        } else {
            Err(WorkError::refused(
                Reason::VersionSkew,
                format!(
                    "the {had} of this node is {from}, and {release} is too far from it: at most {up} minor \
                 versions up and {down} down at once. Upgrade to a release in between first"
                ),
            ))
        }
    }

    /// Refuses on a machine that is not part of the cluster in this role.
    fn is_joined(&self, role: Role) -> Result<(), WorkError> {
        let refused = |message: &str| Err(WorkError::refused(Reason::NotJoined, message));
        let is_control_plane = self.is_control_plane();
        if role == Role::Apply && !is_control_plane {
            return refused(
                "this node must apply the upgrade, but has no /etc/kubernetes/manifests/kube-apiserver.yaml: \
                 only a control plane of kubeadm can apply an upgrade",
            );
        }
        if self.debian.path(self.configuration()).is_file() {
            return Ok(());
        }
        if is_control_plane {
            refused(
                "this control plane has no /etc/kubernetes/admin.conf, so kubeadm cannot upgrade it: restore it, \
             for example by `kubeadm init phase kubeconfig admin`",
            )
        } else {
            refused(
                "this machine has no /etc/kubernetes/kubelet.conf, so it is not a node of a kubeadm cluster: \
             join it with `kubeadm join`",
            )
        }
    }

    /// The kubeconfig with which kubeadm reaches the cluster from this machine, below the root.
    fn configuration(&self) -> &'static str {
        if self.is_control_plane() { ADMIN } else { KUBELET }
    }

    fn is_control_plane(&self) -> bool {
        self.debian.path(API_SERVER).exists()
    }

    /// The release of this machine's API server, from the tag of its image.
    fn control_plane(&self) -> Option<String> {
        let manifest = fs::read_to_string(self.debian.path(API_SERVER)).ok()?;
        let mut lines = manifest.lines().map(str::trim);
        let image = lines.find_map(|line| line.trim_start_matches("- ").strip_prefix("image:"))?;
        let image = image.trim().trim_matches(['"', '\'']);
        let (_, tag) = image.split('@').next()?.rsplit_once(":v")?;
        Some(tag.to_owned())
    }

    /// Upgrades this node, and in the role `apply` the cluster. Waits first for an earlier kubeadm that outlived its agent.
    pub(crate) fn upgrade(&self, role: Role, release: &str) -> Result<(), WorkError> {
        let version = format!("v{release}");
        let words = match role {
            Role::Apply => vec!["upgrade", "apply", &version, "--yes"],
            Role::Node => vec!["upgrade", "node"],
        };
        let program = self.program();
        let mut kubeadm = Command::new(&program);
        if self.debian.is_below_another_root() {
            kubeadm.arg(format!("--rootfs={}", self.debian.path("").display()));
        }
        kubeadm
            .args(&words)
            .arg(format!("--kubeconfig=/{}", self.configuration()))
            .env("LC_ALL", "C")
            .env_remove("KUBECONFIG");
        if self.debian.is_only_said(&kubeadm) {
            return Ok(());
        }
        if !program.is_file() {
            return Err(WorkError::refused(
                Reason::KubeadmMissing,
                "the package kubeadm has no /usr/bin/kubeadm: install a kubeadm package of Kubernetes, and the agent tries again",
            ));
        }
        self.run(&mut kubeadm, &words.join(" "))?;
        self.is_reached(release)
    }

    /// Runs kubeadm. kubeadm prints into a file, and holds a lock as its standard input. So if the agent is killed, kubeadm
    /// goes on, and the next agent waits for its end.
    fn run(&self, kubeadm: &mut Command, words: &str) -> Result<(), WorkError> {
        let failed = |e: std::io::Error| internal(format!("kubeadm {words}: {e}"));
        let lock = self.open(LOCK).map_err(failed)?;
        if lock.try_lock().is_err() {
            tracing::warn!("kubeadm of an earlier agent still runs: waiting for its end");
            lock.lock().map_err(failed)?;
        }
        let log = self.open(LOG).map_err(failed)?;
        log.set_len(0).map_err(failed)?;
        let status = kubeadm
            .stdin(Stdio::from(lock))
            .stdout(Stdio::from(log.try_clone().map_err(failed)?))
            .stderr(Stdio::from(log))
            .status()
            .map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let printed = fs::read(self.debian.path(LOG)).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let program = format!("kubeadm {words}: {status}, see /{LOG}");
        let error = complained(&program, &printed);
        Err(match error.reason {
            Some(_) => error,
            None => WorkError {
                reason: Some(Reason::UpgradeFailed),
                ..error
            },
        })
    }

    /// Opens a file below the root for appending.
    fn open(&self, below: &str) -> std::io::Result<File> {
        let path = self.debian.path(below);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        File::options().append(true).create(true).open(path)
    }

    /// Refuses to continue if kubeadm has not brought this control plane to the release, because the cluster itself was not
    /// upgraded before.
    fn is_reached(&self, release: &str) -> Result<(), WorkError> {
        let Some(present) = self.control_plane() else {
            return Ok(());
        };
        if minor(&present)? == minor(release)? {
            Ok(())
        } else {
            Err(WorkError::refused(
                Reason::VersionSkew,
                format!(
                    "the control plane of this node is still {present}, so its kubelet cannot be {release}: \
                 let the first control plane apply the upgrade before this one"
                ),
            ))
        }
    }

    fn program(&self) -> PathBuf {
        self.debian.path(PROGRAM)
    }
}

/// Refuses a kubelet that is newer than its control plane, or too old for it.
fn fits(kubelet: &str, release: &str, to: Minor) -> Result<(), WorkError> {
    let it = minor(kubelet)?;
    let is_allowed = it.major == to.major && it.minor <= to.minor && to.minor <= it.minor + MOST_OF_A_KUBELET;
    if is_allowed {
        Ok(())
    } else {
        Err(WorkError::refused(
            Reason::VersionSkew,
            format!(
                "kubelet {kubelet} does not fit Kubernetes {release}: a kubelet must not be newer, and at most \
             {MOST_OF_A_KUBELET} minor versions older"
            ),
        ))
    }
}

fn minor(version: &str) -> Result<Minor, WorkError> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Ok(Minor { major, minor }),
        _ => Err(WorkError::refused(
            Reason::VersionSkew,
            format!("{version:?} is not a release of Kubernetes like 1.31.1"),
        )),
    }
}

#[cfg(test)]
mod tests;
