//! Manages the packages of a Debian system with apt and dpkg, and its boots.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polity_core::contract::{Code, Failure};

use super::config::NodeConfig;
use super::memory::{Versions, WorkError};

/// The most characters of a command's error output that are kept. Its end has the reason.
const KEPT: usize = 600;

/// A Debian system: that of this machine, or one below another root.
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

    /// The installed packages among these, with dpkg's versions.
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
        // dpkg-query fails if it does not know one of the packages, but still prints the others.
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

    /// Installs exactly these versions and holds them. Packages that are right already stay as they are.
    pub(crate) fn ensure(&self, versions: &Versions) -> Result<(), WorkError> {
        // dpkg may have been interrupted. It must finish before apt can work.
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

    /// The version in a repository that matches the wanted one: exactly that version, or the newest Debian
    /// revision of it.
    fn candidate(&self, package: &str, wanted: &str) -> Result<String, WorkError> {
        let mut madison = self.apt("apt-cache");
        if self.dry_run {
            // In a dry run apt also keeps no cache of what it has read.
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

    /// The id of this boot.
    pub(crate) fn boot_id(&self) -> Result<String, Failure> {
        let file = self.path("proc/sys/kernel/random/boot_id");
        let id = fs::read_to_string(&file)
            .map_err(|e| Failure::new(Code::Internal, format!("cannot read {}: {e}", file.display())))?;
        Ok(id.trim().to_owned())
    }

    /// The machine's id, from `/etc/machine-id`.
    pub(crate) fn machine_id(&self) -> Option<String> {
        let id = fs::read_to_string(self.path("etc/machine-id")).ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }

    /// Whether a package asked for a reboot. Source: Debian Policy 9.12, `/run/reboot-required`.
    pub(crate) fn is_reboot_required(&self) -> bool {
        ["run/reboot-required", "var/run/reboot-required"]
            .iter()
            .any(|file| self.path(file).exists())
    }

    /// Checks that this system can be rebooted.
    pub(crate) fn can_reboot(&self) -> Result<(), Failure> {
        match self.root == Path::new("/") || self.reboot.is_some() || self.dry_run {
            true => Ok(()),
            false => Err(Failure::new(
                Code::FailedPrecondition,
                format!(
                    "{} is not the root of a machine, so it cannot be rebooted: set rebootCommand",
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
        // Another apt may run: an unattended upgrade, or one that a killed process left behind. Wait for it.
        apt.args(["-o", "DPkg::Lock::Timeout=300"])
            .args(["-o", "Dpkg::Options::=--force-confold"]);
        if self.is_below_another_root() {
            let root = self.root.display();
            for option in [
                format!("Dir={root}"),
                format!("Dir::State::status={root}/var/lib/dpkg/status"),
                format!("DPkg::Options::=--root={root}"),
                // apt's user for downloads may not be allowed to read the repositories of this root.
                "APT::Sandbox::User=root".to_owned(),
            ] {
                apt.args(["-o", &option]);
            }
        }
        apt
    }

    /// Sets which packages dpkg holds.
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

    /// Runs a command that changes the system. In a dry run it only logs the command.
    fn change(&self, command: &mut Command) -> Result<(), WorkError> {
        if self.dry_run {
            tracing::warn!("dry run: {}", spelled(command));
            return Ok(());
        }
        succeeded(command).map(|_| ())
    }
}

/// The upstream part of a Debian version: `1.30.2` of `1:1.30.2-1.1`.
fn upstream(version: &str) -> &str {
    let without_epoch = version.split_once(':').map_or(version, |(_, rest)| rest);
    without_epoch
        .rsplit_once('-')
        .map_or(without_epoch, |(upstream, _)| upstream)
}

/// The installed version in the form in which it was asked for: if it satisfies what was asked for, in
/// exactly those words, otherwise the upstream part.
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
