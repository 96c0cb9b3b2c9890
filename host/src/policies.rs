//! The sources of policies: files in the policy folder, and for development crates that cargo builds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use polity_core::binding::{PolicyId, PolicySource};
use polity_sandbox::driver::Driver;
use polity_sandbox::{LoadError, Policy, Sandbox};
use sha2::{Digest, Sha256};

use crate::display::hex;
use crate::packed::unpacked;
use crate::single_flight::{Ended, SingleFlight, Try};
use crate::slow::{self, Report, Slow};

/// The Rust target of policies.
const TARGET: &str = "wasm32-unknown-unknown";
/// How policies are built: small modules compile and start fast. These flags are the compiler's, for WebAssembly alone, so
/// what runs while cargo builds (macros, build scripts) has the profile `dev`, and is there already where the host itself was
/// built. Cargo's own profile comes before them and has no effect.
const FLAGS: &str = "target.wasm32-unknown-unknown.rustflags=['-Copt-level=3', '-Ccodegen-units=1', '-Cpanic=abort', \
    '-Cdebug-assertions=off', '-Coverflow-checks=off', '-Cdebuginfo=0', '-Cstrip=debuginfo']";
/// Flags of the environment are for native code, and cargo would take them in place of these.
const NOT_FOR_POLICIES: [&str; 2] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
/// The most bytes of a policy file that are read, and of what such a file unpacks to. The sandbox has a lower limit of its
/// own.
const LARGEST: u64 = 16 << 20;
/// The time limit of the first compilation of a policy or driver. New ones may have to wait this long for it. A later
/// try has more time.
const FIRST_TRY: Duration = Duration::from_secs(20);
/// How long compiling may take before people are told. What is kept from an earlier start takes less.
const COMPILES: Duration = Duration::from_secs(1);
/// How long cargo may be silent before people are told. It tells itself what it does in the first build of a crate.
const BUILDS: Duration = Duration::from_secs(5);

/// Identifies a file and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    length: u64,
    modified: std::time::SystemTime,
}

/// What every driver has in its bytes, and no policy: the beginning of the names of its interfaces.
const DRIVER: &[u8] = b"polity:driver/";

/// A policy or a driver.
pub(crate) enum Loaded {
    Policy(Arc<Policy>),
    Driver(Arc<Driver>),
}

/// Loads policies.
pub struct Policies {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    folder: Option<Dir>,
    single_flight: SingleFlight,
    builds_crates: bool,
    /// The wasm files of the crates that were built, by the folders of the crates. The first build of one is reported.
    built: Mutex<BTreeMap<PathBuf, Option<PathBuf>>>,
    compiling: Arc<Slow>,
    report: Report,
}

impl Policies {
    /// Loads files from `folder` and from nowhere else. `builds_crates` allows bindings to name crates by
    /// paths relative to `folder`. Building runs the crate's build scripts, so this is for development only.
    pub fn new(
        sandbox: Arc<Sandbox>,
        folder: &Path,
        builds_crates: bool,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        let report: Report = Arc::from(report);
        let opened = Dir::open_ambient_dir(folder, ambient_authority()).ok();
        Policies {
            sandbox,
            path: folder.to_owned(),
            folder: opened,
            single_flight: SingleFlight::default(),
            builds_crates,
            built: Mutex::default(),
            compiling: Slow::new("compiling", COMPILES, report.clone()),
            report,
        }
    }

    /// Loads the policy that a binding names, and its bytes.
    pub fn load(&self, source: &PolicySource) -> Result<(Arc<Policy>, Arc<[u8]>)> {
        let (name, found, bytes) = self.bytes(source)?;
        let policy = self
            .compiled(name, found, &bytes)
            .with_context(|| format!("cannot load {name:?}"))?;
        Ok((policy, bytes.into()))
    }

    /// Loads the driver that a connection names.
    pub(crate) fn driver(&self, source: &PolicySource) -> Result<Arc<Driver>> {
        let (name, digest, bytes) = self.bytes(source)?;
        self.compiled_driver(name, &digest, &bytes)
            .with_context(|| format!("cannot load {name:?}"))
    }

    /// Loads what a source names, whether it is a policy or a driver, and its bytes.
    pub(crate) fn policy_or_driver(&self, source: &PolicySource) -> Result<(Loaded, Vec<u8>)> {
        let (name, digest, bytes) = self.bytes(source)?;
        let loaded = if bytes.windows(DRIVER.len()).any(|part| part == DRIVER) {
            self.compiled_driver(name, &digest, &bytes).map(Loaded::Driver)
        } else {
            self.compiled(name, digest, &bytes).map(Loaded::Policy)
        };
        Ok((loaded.with_context(|| format!("cannot load {name:?}"))?, bytes))
    }

    /// The name, the digest and the bytes of what a source names. The digest is of the WebAssembly, however its file is
    /// packed.
    fn bytes<'a>(&self, source: &'a PolicySource) -> Result<(&'a str, String, Vec<u8>)> {
        let (name, bytes) = match (&source.file, &source.krate) {
            (Some(file), None) => (file, self.read(file)?),
            (None, Some(krate)) => {
                let built = self.build(krate)?;
                let bytes = std::fs::read(&built);
                (
                    krate,
                    bytes.with_context(|| format!("cannot read {}", built.display()))?,
                )
            }
            _ => bail!("name either `file` or `crate`"),
        };
        let found = hex(&Sha256::digest(&bytes));
        if let Some(wanted) = source
            .sha256
            .as_ref()
            .filter(|wanted| !wanted.eq_ignore_ascii_case(&found))
        {
            bail!(
                "{name:?} has the sha256 {found} (of the WebAssembly, unpacked), but the binding demands {wanted:?}"
            );
        }
        Ok((name, found, bytes))
    }

    /// Compiles a policy. If the same policy is already being compiled, this waits for the result.
    fn compiled(&self, name: &str, digest: String, bytes: &[u8]) -> Result<Arc<Policy>> {
        let id = PolicyId(digest.as_str().into());
        if let Some(known) = self.sandbox.known(&id) {
            return Ok(known);
        }
        let _told = self.compiling.begin(last_part(name));
        self.single_flight.run(&format!("policy {digest}"), |tried| {
            let loaded = match tried {
                Try::First => self.sandbox.load_within(bytes, FIRST_TRY),
                Try::Again => self.sandbox.load(bytes),
            };
            loaded.map_err(ended)
        })
    }

    /// The same for a driver.
    fn compiled_driver(&self, name: &str, digest: &str, bytes: &[u8]) -> Result<Arc<Driver>> {
        if let Some(known) = self.sandbox.known_driver(digest) {
            return Ok(known);
        }
        let _told = self.compiling.begin(last_part(name));
        self.single_flight.run(&format!("driver {digest}"), |tried| {
            let loaded = match tried {
                Try::First => self.sandbox.load_driver_within(bytes, FIRST_TRY),
                Try::Again => self.sandbox.load_driver(bytes),
            };
            loaded.map_err(ended)
        })
    }

    /// The state of a policy's file, or of what a crate was built into. It changes when the file is replaced or written to:
    /// whoever builds the crate again has the new version loaded. `None` for what is not there.
    pub(crate) fn stamp(&self, source: &PolicySource) -> Option<Stamp> {
        let metadata = match (&source.file, &source.krate) {
            (Some(file), _) => self.folder.as_ref()?.metadata(file).ok()?,
            (None, Some(krate)) => {
                let folder = self.path.join(krate).canonicalize().ok()?;
                let built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
                Metadata::from_just_metadata(std::fs::metadata(built.get(&folder)?.as_ref()?).ok()?)
            }
            (None, None) => return None,
        };
        let modified = metadata.modified().ok()?.into_std();
        Some(Stamp {
            inode: metadata.ino(),
            length: metadata.len(),
            modified,
        })
    }

    fn read(&self, file: &str) -> Result<Vec<u8>> {
        let folder = self
            .folder
            .as_ref()
            .ok_or_else(|| anyhow!("the policy folder {} cannot be opened", self.path.display()))?;
        let shown = || format!("{:?} in the policy folder {}", file, self.path.display());
        let metadata = folder
            .metadata(file)
            .with_context(|| format!("cannot open {}", shown()))?;
        if !metadata.is_file() || metadata.len() > LARGEST {
            bail!(
                "{} is not a file, or is larger than {} MiB",
                shown(),
                LARGEST >> 20
            );
        }
        let open = folder
            .open(file)
            .with_context(|| format!("cannot open {}", shown()))?;
        let mut bytes = Vec::new();
        // The file may have grown since its size was read.
        let read = open.take(LARGEST).read_to_end(&mut bytes);
        read.with_context(|| format!("cannot read {}", shown()))?;
        unpacked(bytes, LARGEST).with_context(shown)
    }

    /// Builds a crate. Returns the path of its wasm file.
    pub(crate) fn build(&self, krate: &str) -> Result<PathBuf> {
        if !self.builds_crates {
            bail!("policies from crates are for development: build {krate:?} and name its wasm file instead");
        }
        let folder = self.path.join(krate);
        if !folder.join("Cargo.toml").is_file() {
            bail!(
                "no policy crate found at {}: the folder has no Cargo.toml",
                folder.display()
            );
        }
        let folder = folder.canonicalize().unwrap_or(folder);
        let built = || self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !built().contains_key(&folder);
        built().entry(folder.clone()).or_default();
        if is_first {
            self.add_target(&folder)?;
            (self.report)(&format!("building {} for {TARGET}", shown_from_here(&folder)));
        }
        let _told = (!is_first).then(|| {
            let (report, krate) = (self.report.clone(), shown_from_here(&folder));
            slow::after(BUILDS, move |_| {
                report(&format!(
                    "waiting for cargo, which builds {krate}; another cargo may hold the lock of its build folder"
                ));
            })
        });
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        for name in NOT_FOR_POLICIES {
            cargo.env_remove(name);
        }
        let mut cargo = cargo
            .args(["build", "--lib", "--target", TARGET, "--config", FLAGS])
            .args((!is_first).then_some("--quiet"))
            .args(["--message-format", "json-render-diagnostics"])
            // Pieces that are compiled one by one would make other bytes of the same source.
            .env("CARGO_INCREMENTAL", "0")
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start cargo, which builds policies: install Rust with https://rustup.rs, then run `rustup toolchain install`")?;
        let stdout = cargo.stdout.take().context("cargo has no output")?;
        let mut artifact = None;
        for line in BufReader::new(stdout).lines() {
            let message: serde_json::Value = serde_json::from_str(&line?).unwrap_or_default();
            // Cargo reports the artifacts of dependencies too. The policy's own comes last.
            let files = message["filenames"].as_array().into_iter().flatten();
            for file in files.filter_map(|f| f.as_str()).filter(|f| f.ends_with(".wasm")) {
                artifact = Some(PathBuf::from(file));
            }
        }
        if !cargo.wait()?.success() {
            bail!("cargo cannot build {}; its errors are above", folder.display());
        }
        let artifact = artifact.ok_or_else(|| {
            anyhow!(
                "{} builds no wasm file: add crate-type = [\"cdylib\", \"rlib\"] to its [lib]",
                folder.display()
            )
        })?;
        built().insert(folder, Some(artifact.clone()));
        Ok(artifact)
    }

    /// Installs the wasm target if it is missing and rustup can install it.
    fn add_target(&self, folder: &Path) -> Result<()> {
        let sysroot = Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(folder)
            .output();
        let Ok(sysroot) = sysroot else { return Ok(()) };
        let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
        if Path::new(&sysroot).join("lib/rustlib").join(TARGET).is_dir() {
            return Ok(());
        }
        (self.report)(&format!("installing the Rust target {TARGET}"));
        let added = Command::new("rustup")
            .args(["target", "add", TARGET])
            .current_dir(folder)
            .status();
        match added {
            Ok(status) if status.success() => Ok(()),
            _ => bail!(
                "the Rust target {TARGET} is missing and rustup could not add it; policies/sdk/README.md says how to build without rustup"
            ),
        }
    }
}

/// Why loading ended without a result.
fn ended(e: LoadError) -> Ended {
    if e.may_pass() {
        Ended::Stopped(e.to_string())
    } else {
        Ended::Refused(e.into())
    }
}

/// The name of a file or crate without the folders before it.
fn last_part(name: &str) -> &str {
    name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name)
}

/// A path relative to the current folder if it lies within.
fn shown_from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let within = path
        .strip_prefix(here)
        .ok()
        .filter(|within| *within != Path::new(""));
    within.unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use polity_sandbox::{Compiler, Confined, SandboxConfig};

    use super::*;
    use crate::single_flight::Later;

    #[test]
    fn the_current_folder_is_shown_by_its_name() {
        let here = std::env::current_dir().expect("a folder");
        assert_eq!(shown_from_here(&here), here.display().to_string());
        assert_eq!(shown_from_here(&here.join("lamp")), "lamp");
        assert_eq!(shown_from_here(Path::new("/lamp")), "/lamp");
    }

    /// Policies whose compiler notes each of its starts in the file `starts`, and then fails as a process does that the
    /// machine ended.
    fn stopped_each_time(folder: &Path) -> Policies {
        let compiler = folder.join("compiler");
        // A process of its own writes the program: while this process has it open to write, it cannot be started.
        let written = Command::new("/bin/sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\necho >> %s/starts\nexit 1\n' "$1" > "$2" && chmod 700 "$2""#,
            ])
            .args([Path::new("sh"), folder, &compiler])
            .status();
        assert!(written.expect("a shell").success());
        std::fs::write(folder.join("driver.wasm"), b"\0asm").expect("written");
        let config = SandboxConfig::new(Compiler::Child(Confined::program(compiler)));
        let sandbox = Arc::new(Sandbox::new(config).expect("a sandbox"));
        Policies::new(sandbox, folder, false, Box::new(|_| {}))
    }

    /// Shows a file as the volume of a ConfigMap does: as a link into a folder that one rename swaps.
    fn show(volume: &Path, version: &str, file: &str, content: &[u8]) {
        std::fs::create_dir(volume.join(version)).expect("a folder");
        std::fs::write(volume.join(version).join(file), content).expect("written");
        symlink(version, volume.join("..data_tmp")).expect("a link");
        std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("swapped");
        let _ = symlink(Path::new("..data").join(file), volume.join(file));
    }

    #[test]
    fn a_policy_that_gzip_packed_is_read_from_a_config_map_and_has_the_digest_of_its_webassembly() {
        let volume = tempfile::tempdir().expect("a folder");
        let policies = stopped_each_time(volume.path());
        let packed = |wasm: &[u8]| crate::packed::packed(wasm).expect("packed");
        let mut source = PolicySource {
            file: Some("p.wasm.gz".to_owned()),
            krate: None,
            sha256: Some(hex(&Sha256::digest(b"\0asm1"))),
            configuration: None,
            writes: None,
        };
        show(volume.path(), "..1", "p.wasm.gz", &packed(b"\0asm1"));
        let (_, digest, bytes) = policies.bytes(&source).expect("it is read");
        assert_eq!(
            (bytes.as_slice(), Some(&digest)),
            (&b"\0asm1"[..], source.sha256.as_ref())
        );
        let before = policies.stamp(&source);
        assert!(before.is_some());

        show(volume.path(), "..2", "p.wasm.gz", &packed(b"\0asm2"));
        assert_ne!(policies.stamp(&source), before);
        let refused = policies
            .bytes(&source)
            .expect_err("it has another digest")
            .to_string();
        assert!(refused.contains("the binding demands"), "{refused}");
        source.sha256 = None;
        let (_, other, bytes) = policies.bytes(&source).expect("it is read");
        assert!(bytes == b"\0asm2" && other != digest);
    }

    #[test]
    fn a_driver_is_compiled_once_at_a_time_and_tried_again_later_if_that_was_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let policies = stopped_each_time(folder.path());
        let source = PolicySource {
            file: Some("driver.wasm".to_owned()),
            krate: None,
            sha256: None,
            configuration: None,
            writes: None,
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let refused = policies.driver(&source).map(|_| ()).expect_err("it was stopped");
                    assert!(refused.is::<Later>(), "{refused:#}");
                });
            }
        });
        let starts = std::fs::read_to_string(folder.path().join("starts")).expect("it was started");
        assert_eq!(starts.lines().count(), 1);
    }
}
