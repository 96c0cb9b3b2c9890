//! The packages of a Debian system, by apt and dpkg, and its boots.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polity_core::contract::{Code, Failure};

use super::config::NodeConfig;
use super::memory::{Versions, WorkError};

/// Characters of a command's complaint that are kept: its end says why.
const KEPT: usize = 600;

/// A Debian system: this machine's own, or one below another root.
pub(crate) struct Debian {
    root: PathBuf,
    dry_run: bool,
    reboot: Option<Vec<String>>,
}

impl Debian {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Debian {
            root: config.root.clone(),
            dry_run: config.dry_run,
            reboot: config.reboot_command.clone(),
        }
    }

    /// Which of these packages are installed, as dpkg names their versions.
    pub(crate) fn installed(&self, packages: &[String]) -> Result<BTreeMap<String, String>, Failure> {
        let mut query = Command::new("dpkg-query");
        query
            .arg(format!("--admindir={}", self.path("var/lib/dpkg").display()))
            .args([
                "--show",
                "--showformat=${Package}\t${db:Status-Status}\t${Version}\n",
                "--",
            ])
            .args(packages);
        let output = run(&mut query).map_err(|e| Failure::new(Code::Internal, e.message))?;
        // It fails if one of them is not known, and tells of the others.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| {
            let mut fields = line.split('\t');
            match (fields.next(), fields.next(), fields.next()) {
                (Some(package), Some("installed"), Some(version)) => {
                    Some((package.to_owned(), version.to_owned()))
                }
                _ => None,
            }
        });
        Ok(lines.collect())
    }

    /// Installs exactly these versions and holds them. What is as it should be is left as it is.
    pub(crate) fn ensure(&self, versions: &Versions) -> Result<(), WorkError> {
        // What was interrupted is finished first.
        self.change(self.dpkg().args(["--configure", "-a"]))?;
        self.change(self.apt("apt-get").args(["-q", "update"]))?;
        let mut pinned = Vec::new();
        for (package, wanted) in versions {
            pinned.push(format!("{package}={}", self.candidate(package, wanted)?));
        }
        let mut install = self.apt("apt-get");
        install
            .args(["-q", "-y", "--no-install-recommends", "--allow-downgrades"])
            .args(["--allow-change-held-packages", "install", "--"])
            .args(&pinned);
        self.change(&mut install)?;
        let held: String = versions
            .keys()
            .map(|package| format!("{package} hold\n"))
            .collect();
        self.select(&held)
    }

    /// The version by which a repository offers what is wanted: exactly that, or the newest that was made of it.
    fn candidate(&self, package: &str, wanted: &str) -> Result<String, WorkError> {
        let mut madison = self.apt("apt-cache");
        if self.dry_run {
            // Nor is what it has read kept.
            madison.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]);
        }
        let output = succeeded(madison.args(["madison", "--", package]))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let offered: Vec<&str> = text
            .lines()
            .filter_map(|line| Some(line.split('|').nth(1)?.trim()))
            .collect();
        let exact = offered.iter().find(|offered| **offered == wanted);
        let made_of_it = offered.iter().find(|offered| upstream(offered) == wanted);
        match exact.or(made_of_it) {
            Some(version) => Ok((*version).to_owned()),
            None => Err(WorkError {
                code: Code::NotFound.as_str().to_owned(),
                message: match offered.as_slice() {
                    [] => format!("no repository offers {package}"),
                    offered => format!(
                        "no repository offers {package} {wanted}, but {}",
                        offered.join(", ")
                    ),
                },
            }),
        }
    }

    /// Which boot this is.
    pub(crate) fn boot_id(&self) -> Result<String, Failure> {
        let file = self.path("proc/sys/kernel/random/boot_id");
        let id = fs::read_to_string(&file)
            .map_err(|e| Failure::new(Code::Internal, format!("cannot read {}: {e}", file.display())))?;
        Ok(id.trim().to_owned())
    }

    /// What the system calls this machine.
    pub(crate) fn machine_id(&self) -> Option<String> {
        let id = fs::read_to_string(self.path("etc/machine-id")).ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }

    /// Whether a package said that it wants another boot. Source: Debian Policy 9.12, `/run/reboot-required`.
    pub(crate) fn is_reboot_required(&self) -> bool {
        ["run/reboot-required", "var/run/reboot-required"]
            .iter()
            .any(|file| self.path(file).exists())
    }

    /// Whether there is a way to reboot it.
    pub(crate) fn can_reboot(&self) -> Result<(), Failure> {
        match self.root == Path::new("/") || self.reboot.is_some() || self.dry_run {
            true => Ok(()),
            false => Err(Failure::new(
                Code::FailedPrecondition,
                format!(
                    "{} is no machine of its own: it is not rebooted",
                    self.root.display()
                ),
            )),
        }
    }

    pub(crate) fn reboot(&self) -> Result<(), Failure> {
        let own = ["systemctl", "reboot"].map(str::to_owned).to_vec();
        let command = self.reboot.clone().unwrap_or(own);
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::new(Code::InvalidArgument, "rebootCommand is empty"));
        };
        self.change(Command::new(program).args(arguments))
            .map_err(|e| Failure::new(Code::Internal, e.message))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    fn is_below_another_root(&self) -> bool {
        self.root != Path::new("/")
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        if self.is_below_another_root() {
            dpkg.arg(format!("--root={}", self.root.display()));
        }
        dpkg
    }

    fn apt(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        // Somebody else's run is waited for: an unattended upgrade, or what a killed process left.
        apt.args(["-o", "DPkg::Lock::Timeout=300"])
            .args(["-o", "Dpkg::Options::=--force-confold"]);
        if self.is_below_another_root() {
            let root = self.root.display();
            for option in [
                format!("Dir={root}"),
                format!("Dir::State::status={root}/var/lib/dpkg/status"),
                format!("DPkg::Options::=--root={root}"),
                // Its repositories may be where the user of downloads cannot look.
                "APT::Sandbox::User=root".to_owned(),
            ] {
                apt.args(["-o", &option]);
            }
        }
        apt
    }

    /// Sets what dpkg is to do with packages.
    fn select(&self, selections: &str) -> Result<(), WorkError> {
        let mut dpkg = self.dpkg();
        dpkg.arg("--set-selections").stdin(Stdio::piped());
        if self.dry_run {
            return self.change(&mut dpkg);
        }
        let failed = |e: std::io::Error| internal(format!("dpkg --set-selections: {e}"));
        let mut child = dpkg.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(selections.as_bytes()).map_err(failed)?;
        }
        match child.wait().map_err(failed)?.success() {
            true => Ok(()),
            false => Err(internal("dpkg --set-selections failed".to_owned())),
        }
    }

    /// Runs what changes something, or only says so.
    fn change(&self, command: &mut Command) -> Result<(), WorkError> {
        if self.dry_run {
            tracing::warn!("dry run: {}", spelled(command));
            return Ok(());
        }
        succeeded(command).map(|_| ())
    }
}

/// A version without what Debian adds to it: `1.30.2` of `1:1.30.2-1.1`.
fn upstream(version: &str) -> &str {
    let without_epoch = version.split_once(':').map_or(version, |(_, rest)| rest);
    without_epoch
        .rsplit_once('-')
        .map_or(without_epoch, |(upstream, _)| upstream)
}

/// How the installed version of a package is told: as it was asked for, if it is what was asked for, otherwise without
/// what Debian adds to it.
pub(crate) fn as_it_was_asked_for<'a>(installed: &'a str, wanted: Option<&'a str>) -> &'a str {
    match wanted {
        Some(wanted) if wanted == installed || wanted == upstream(installed) => wanted,
        _ => upstream(installed),
    }
}

fn internal(message: String) -> WorkError {
    WorkError {
        code: Code::Internal.as_str().to_owned(),
        message,
    }
}

fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn run(command: &mut Command) -> Result<Output, WorkError> {
    command
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| internal(format!("{}: {e}", command.get_program().to_string_lossy())))
}

fn succeeded(command: &mut Command) -> Result<Output, WorkError> {
    let output = run(command)?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim();
    let skipped = complaint.chars().count().saturating_sub(KEPT);
    let complaint: String = complaint.chars().skip(skipped).collect();
    let unreachable = [
        "Failed to fetch",
        "Could not resolve",
        "Unable to connect",
        "Could not get lock",
    ];
    let code = match unreachable.iter().any(|words| complaint.contains(words)) {
        true => Code::Unavailable,
        false => Code::Internal,
    };
    Err(WorkError {
        code: code.as_str().to_owned(),
        message: format!("{}: {complaint}", command.get_program().to_string_lossy()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_as_it_was_asked_for() {
        assert_eq!(as_it_was_asked_for("1.30.2-1.1", Some("1.30.2")), "1.30.2");
        assert_eq!(
            as_it_was_asked_for("1.30.2-1.1", Some("1.30.2-1.1")),
            "1.30.2-1.1"
        );
        assert_eq!(as_it_was_asked_for("1:1.30.2-1.1", Some("1.29.0-1.1")), "1.30.2");
        assert_eq!(as_it_was_asked_for("2.0~rc1-3-2", None), "2.0~rc1-3");
    }
}
