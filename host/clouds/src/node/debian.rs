//! Manages the packages of a Debian system with apt and dpkg, and its boots.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polity_core::contract::{Code, Failure};

use super::config::NodeConfig;
use super::memory::{Reason, Versions, WorkError};

/// The most characters of a command's error output that are kept. The end is kept, because it has the reason.
const KEPT: usize = 600;

/// A Debian system: the system of this machine, or a system below another root.
pub(crate) struct Debian {
    root: PathBuf,
    dry_run: bool,
    reboot: Option<Vec<String>>,
    restart_kubelet: Option<Vec<String>>,
}

impl Debian {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Debian {
            root: config.root.clone(),
            dry_run: config.dry_run,
            reboot: config.reboot_command.clone(),
            restart_kubelet: config.kubelet_restart_command.clone(),
        }
    }

    /// The installed packages among these, with dpkg's versions.
    pub(crate) fn installed(&self, packages: &[String]) -> Result<BTreeMap<String, String>, Failure> {
        let mut query = self.dpkg_query();
        query
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

    /// Makes apt and dpkg able to work, and reads the repositories.
    pub(crate) fn refresh(&self) -> Result<(), WorkError> {
        // dpkg may have been interrupted. It must finish before apt can work.
        self.change(self.dpkg().args(["--configure", "-a"]))?;
        self.change(self.apt("apt-get").args(["-q", "update"]))
    }

    /// The versions in the repositories that match the wanted ones.
    pub(crate) fn candidates(&self, versions: &Versions) -> Result<Versions, WorkError> {
        let candidates = versions.iter().map(|(package, wanted)| {
            let candidate = self.candidate(package, wanted)?;
            Ok((package.clone(), candidate))
        });
        candidates.collect()
    }

    /// Installs exactly these versions and holds them. Packages that already have their version stay as they are.
    pub(crate) fn install(&self, candidates: &Versions) -> Result<(), WorkError> {
        if candidates.is_empty() {
            return Ok(());
        }
        self.change(&mut self.installation(self.apt("apt-get"), candidates))?;
        let held: String = candidates
            .keys()
            .map(|package| format!("{package} hold\n"))
            .collect();
        self.select(&held)
    }

    /// This command of apt, with the arguments that install exactly these versions.
    fn installation(&self, mut apt: Command, candidates: &Versions) -> Command {
        apt.args(["-q", "-y", "--no-install-recommends", "--allow-downgrades"])
            .args(["--allow-change-held-packages", "install", "--"])
            .args(
                candidates
                    .iter()
                    .map(|(package, version)| format!("{package}={version}")),
            );
        apt
    }

    /// The changes that an installation of these versions would make. Changes nothing.
    pub(crate) fn plan(&self, candidates: &Versions) -> Result<Plan, WorkError> {
        let mut simulation = self.query("apt-get");
        // apt would write a log of its plan, but a plan must write nothing.
        simulation.args(["--simulate", "-o", "Dir::Log::Planner="]);
        let output = succeeded(&mut self.installation(simulation, candidates))?;
        Ok(Plan::read(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The packages that dpkg holds, for this agent or for anyone else.
    pub(crate) fn held(&self) -> Result<BTreeSet<String>, WorkError> {
        let mut query = self.dpkg_query();
        query.args(["--show", "--showformat=${Package}\t${db:Status-Want}\n"]);
        let output = run(&mut query)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let held = text.lines().filter_map(|line| line.strip_suffix("\thold"));
        Ok(held.map(str::to_owned).collect())
    }

    /// Refuses if there is not enough room for these packages.
    pub(crate) fn has_room_for(&self, packages: &Versions) -> Result<(), WorkError> {
        let mut needed = 0;
        for (package, version) in packages {
            let mut show = self.query("apt-cache");
            let output = succeeded(show.args(["show", "--", &format!("{package}={version}")]))?;
            needed += room(&String::from_utf8_lossy(&output.stdout));
        }
        let place = ["usr", ""].map(|below| self.path(below));
        let place = place.iter().find(|place| place.exists()).unwrap_or(&self.root);
        let mut df = Command::new("df");
        let output = succeeded(df.args(["--output=avail", "-k", "--"]).arg(place))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let free = text
            .lines()
            .last()
            .and_then(|line| line.trim().parse::<u64>().ok());
        if free.is_some_and(|free| free < needed) {
            Err(WorkError::refused(
                Reason::DiskFull,
                format!(
                    "{} has {} MiB left, and the packages need {} MiB: make room, and the agent tries again",
                    place.display(),
                    free.unwrap_or_default() / 1024,
                    needed.div_ceil(1024),
                ),
            ))
        } else {
            Ok(())
        }
    }

    /// The version in a repository that matches the wanted version: exactly this version, or its newest Debian
    /// revision.
    fn candidate(&self, package: &str, wanted: &str) -> Result<String, WorkError> {
        let mut madison = self.query("apt-cache");
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
            None => Err(WorkError::new(
                Code::NotFound,
                match offered.as_slice() {
                    [] => format!("no repository offers {package}"),
                    offered => format!(
                        "no repository offers {package} {wanted}; repositories offer {}",
                        offered.join(", ")
                    ),
                },
            )),
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
        if self.root == Path::new("/") || self.reboot.is_some() || self.dry_run {
            Ok(())
        } else {
            Err(Failure::new(
                Code::FailedPrecondition,
                format!(
                    "{} is not the root of a machine, so it cannot be rebooted: set rebootCommand",
                    self.root.display()
                ),
            ))
        }
    }

    pub(crate) fn reboot(&self) -> Result<(), Failure> {
        let own = ["systemctl", "reboot"].map(str::to_owned).to_vec();
        let command = self.reboot.as_ref().unwrap_or(&own);
        if command.is_empty() {
            return Err(Failure::new(Code::InvalidArgument, "rebootCommand is empty"));
        }
        self.call(command)
            .map_err(|e| Failure::new(Code::Internal, e.message))
    }

    /// Restarts the kubelet, because its package does not.
    pub(crate) fn restart_kubelet(&self) -> Result<(), WorkError> {
        let systemctl = |words: &[&str]| {
            let words = std::iter::once(&"systemctl").chain(words);
            self.call(&words.map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        match &self.restart_kubelet {
            Some(command) => self.call(command),
            // No kubelet of this machine runs from another root.
            None if self.is_below_another_root() => Ok(()),
            None => {
                systemctl(&["daemon-reload"])?;
                systemctl(&["restart", "kubelet"])
            }
        }
    }

    /// Runs a command with its arguments.
    fn call(&self, command: &[String]) -> Result<(), WorkError> {
        match command.split_first() {
            Some((program, arguments)) => self.change(Command::new(program).args(arguments)),
            None => Ok(()),
        }
    }

    /// A path below this system's root.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub(crate) fn is_below_another_root(&self) -> bool {
        self.root != Path::new("/")
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        if self.is_below_another_root() {
            dpkg.arg(format!("--root={}", self.root.display()));
        }
        dpkg
    }

    fn dpkg_query(&self) -> Command {
        let mut query = Command::new("dpkg-query");
        query.arg(format!("--admindir={}", self.path("var/lib/dpkg").display()));
        query
    }

    /// A command of apt that changes nothing.
    fn query(&self, program: &str) -> Command {
        let mut apt = self.apt(program);
        if self.dry_run {
            // In a dry run apt also keeps no cache of what it has read.
            apt.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]);
        }
        apt
    }

    fn apt(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        // Another apt may run: an unattended upgrade, or an apt that a killed agent left behind. Wait for it.
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
        if child.wait().map_err(failed)?.success() {
            Ok(())
        } else {
            Err(internal("dpkg --set-selections failed".to_owned()))
        }
    }

    /// Runs a command that changes the system. In a dry run it only logs the command.
    pub(crate) fn change(&self, command: &mut Command) -> Result<(), WorkError> {
        if self.is_only_said(command) {
            return Ok(());
        }
        succeeded(command).map(|_| ())
    }

    /// Whether this is a dry run. Then the command is logged, and must not be run.
    pub(crate) fn is_only_said(&self, command: &Command) -> bool {
        if self.dry_run {
            tracing::warn!("dry run: {}", spelled(command));
        }
        self.dry_run
    }
}

/// The changes that apt would make.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The packages that would be installed, with their versions.
    pub(crate) installed: Versions,
    /// The packages that would be removed.
    pub(crate) removed: BTreeSet<String>,
}

impl Plan {
    /// Reads the lines of `apt-get --simulate`: `Inst kubelet [1.30.2-1.1] (1.31.1-1.1 repository [amd64])`, and
    /// `Remv name [version]`.
    fn read(text: &str) -> Self {
        let mut plan = Plan::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("Inst"), Some(package)) => {
                    let version = words.find_map(|word| word.strip_prefix('('));
                    let version = version.unwrap_or_default().trim_end_matches(')');
                    plan.installed.insert(package.to_owned(), version.to_owned());
                }
                (Some("Remv"), Some(package)) => _ = plan.removed.insert(package.to_owned()),
                _ => {}
            }
        }
        plan
    }

    /// Whether this package would change.
    pub(crate) fn changes(&self, package: &str) -> bool {
        self.installed.contains_key(package) || self.removed.contains(package)
    }
}

/// The room that a package needs according to `apt-cache show`, in KiB: its files and the package itself.
fn room(shown: &str) -> u64 {
    let field = |name: &str| {
        let mut values = shown.lines().filter_map(|line| line.strip_prefix(name));
        values.next().and_then(|value| value.trim().parse::<u64>().ok())
    };
    let files = field("Installed-Size:").unwrap_or_default();
    files.saturating_add(field("Size:").unwrap_or_default().div_ceil(1024))
}

/// The upstream part of a Debian version: `1.30.2` of `1:1.30.2-1.1`.
pub(crate) fn upstream(version: &str) -> &str {
    let without_epoch = version.split_once(':').map_or(version, |(_, rest)| rest);
    without_epoch
        .rsplit_once('-')
        .map_or(without_epoch, |(upstream, _)| upstream)
}

/// The installed version in the form of the wanted version: the wanted text itself if the installed version satisfies
/// it, otherwise the upstream part.
pub(crate) fn as_it_was_asked_for<'a>(installed: &'a str, wanted: Option<&'a str>) -> &'a str {
    match wanted {
        Some(wanted) if wanted == installed || wanted == upstream(installed) => wanted,
        _ => upstream(installed),
    }
}

pub(crate) fn internal(message: String) -> WorkError {
    WorkError::new(Code::Internal, message)
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
    let program = command.get_program().to_string_lossy();
    Err(complained(&program, &complaint))
}

/// The failure of a program that printed this text. The end of the text is kept, because it has the reason.
pub(crate) fn complained(program: &str, complaint: &str) -> WorkError {
    let complaint = complaint.trim();
    let skipped = complaint.chars().count().saturating_sub(KEPT);
    let complaint: String = complaint.chars().skip(skipped).collect();
    let has = |any: &[&str]| any.iter().any(|words| complaint.contains(words));
    let message = format!("{program}: {complaint}");
    if has(&["No space left on device", "enough free space in"]) {
        let message = format!("{message} (make room, and the agent tries again)");
        return WorkError::refused(Reason::DiskFull, message);
    }
    let unreachable = [
        "Failed to fetch",
        "Could not resolve",
        "Unable to connect",
        "Could not get lock",
    ];
    if has(&unreachable) {
        WorkError::new(Code::Unavailable, message)
    } else {
        WorkError::new(Code::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_do_is_read_line_by_line() {
        let plan = Plan::read(
            "NOTE: This is only a simulation!\nInst kubelet [1.30.2-1.1] (1.31.1-1.1 repository [amd64])\n\
             Inst new (2.0)\nRemv old [1.0]\nConf kubelet (1.31.1-1.1 repository [amd64])\n",
        );
        let installed = [("kubelet", "1.31.1-1.1"), ("new", "2.0")];
        let installed = installed.map(|(package, version)| (package.to_owned(), version.to_owned()));
        assert_eq!(plan.installed, Versions::from(installed));
        assert!(plan.changes("old") && !plan.changes("other"));
    }

    #[test]
    fn a_package_needs_room_for_its_files_and_for_itself() {
        assert_eq!(room("Package: a\nInstalled-Size: 100\nSize: 1025\n"), 102);
        assert_eq!(room("Package: a\n"), 0);
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let failed = |complaint: &str| complained("dpkg", complaint);
        assert_eq!(
            failed("cannot copy: No space left on device").reason,
            Some(Reason::DiskFull)
        );
        assert_eq!(failed("E: Could not get lock").code, "unavailable");
        assert_eq!(failed("what").code, "internal");
    }

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
