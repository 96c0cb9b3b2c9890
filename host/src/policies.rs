//! Where policies come from: files of the policy folder, and for development crates that cargo builds.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};
use polity_core::binding::{PolicyId, PolicySource};
use polity_sandbox::{Compiler, Policy, Sandbox};
use sha2::{Digest, Sha256};

use crate::display::hex;
use crate::turns::{Ended, Try, Turns};

/// The target that policies are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";
/// How policies are built: small modules compile and instantiate fast. Said to cargo itself, because a crate outside of
/// this workspace has no such profile; in it, `Cargo.toml` says the same.
const PROFILE: [&str; 7] = [
    "inherits='release'",
    "opt-level=3",
    "lto=true",
    "codegen-units=1",
    "panic='abort'",
    "debug=false",
    "strip='debuginfo'",
];
/// Bytes of a policy file: the sandbox's own limit is lower, this one bounds what is read at all.
const LARGEST: u64 = 16 << 20;
/// How long a policy may compile that was not stopped before: so long do others wait for it at most. It gets more later.
const FIRST_TRY: Duration = Duration::from_secs(20);

/// Which file stands at a name, and in which state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    length: u64,
    modified: std::time::SystemTime,
}

/// Loads policies.
pub struct Policies {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    folder: Option<Dir>,
    turns: Turns,
    builds_crates: bool,
    /// The crates that were built before: several bindings may name one, and it is said once.
    built: Mutex<BTreeSet<PathBuf>>,
    says: Box<dyn Fn(&str) + Send + Sync>,
}

impl Policies {
    /// Loads files from `folder`, and from nowhere else. `builds_crates` allows bindings to name crates by paths
    /// relative to it, which run their build scripts: for development only.
    pub fn new(
        sandbox: Arc<Sandbox>,
        folder: &Path,
        builds_crates: bool,
        says: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Self {
        let opened = Dir::open_ambient_dir(folder, ambient_authority()).ok();
        Policies {
            sandbox,
            path: folder.to_owned(),
            folder: opened,
            turns: Turns::default(),
            builds_crates,
            built: Mutex::default(),
            says,
        }
    }

    /// Loads what a binding names: the policy and its bytes.
    pub fn load(&self, source: &PolicySource) -> Result<(Arc<Policy>, Arc<[u8]>)> {
        let (name, bytes) = match (&source.file, &source.krate) {
            (Some(file), None) => (file, self.read(file)?),
            (None, Some(krate)) => (krate, self.build(krate)?),
            _ => bail!("exactly one of `file` and `crate` is needed"),
        };
        let found = hex(&Sha256::digest(&bytes));
        if let Some(wanted) = source
            .sha256
            .as_ref()
            .filter(|wanted| !wanted.eq_ignore_ascii_case(&found))
        {
            bail!("{name:?} has sha256 {found}, the binding wants {wanted:?}");
        }
        let policy = self
            .compiled(found, &bytes)
            .with_context(|| format!("cannot load {name:?}"))?;
        Ok((policy, bytes.into()))
    }

    /// Compiles; whoever wants the same policy meanwhile waits for it rather than compile it too.
    fn compiled(&self, digest: String, bytes: &[u8]) -> Result<Arc<Policy>> {
        let id = PolicyId(digest.as_str().into());
        if let Some(known) = self.sandbox.known(&id) {
            return Ok(known);
        }
        self.turns.take(&format!("policy {digest}"), |tried| {
            let loaded = match tried {
                Try::First => self.sandbox.load_within(bytes, FIRST_TRY),
                Try::Again => self.sandbox.load(bytes),
            };
            loaded.map_err(|e| match e.may_pass() {
                true => Ended::Stopped(e.to_string()),
                false => Ended::Refused(e.into()),
            })
        })
    }

    /// Who compiles policies and checks their configurations.
    pub(crate) fn compiler(&self) -> &Compiler {
        self.sandbox.compiler()
    }

    /// Who has work done on what policies bring.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// What changes when a policy's file is replaced or written to. None for crates and missing files.
    pub(crate) fn stamp(&self, source: &PolicySource) -> Option<Stamp> {
        let metadata = self.folder.as_ref()?.metadata(source.file.as_ref()?).ok()?;
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
            bail!("{} is no file of at most {LARGEST} bytes", shown());
        }
        let open = folder
            .open(file)
            .with_context(|| format!("cannot open {}", shown()))?;
        let mut bytes = Vec::new();
        // It may have become longer meanwhile.
        let read = open.take(LARGEST).read_to_end(&mut bytes);
        read.with_context(|| format!("cannot read {}", shown()))?;
        Ok(bytes)
    }

    fn build(&self, krate: &str) -> Result<Vec<u8>> {
        if !self.builds_crates {
            bail!("policies from crates are for development: build {krate:?} and name its wasm file instead");
        }
        let folder = self.path.join(krate);
        if !folder.join("Cargo.toml").is_file() {
            bail!("there is no policy crate at {}", folder.display());
        }
        let folder = folder.canonicalize().unwrap_or(folder);
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = built.insert(folder.clone());
        drop(built);
        if is_first {
            self.add_target(&folder)?;
            (self.says)(&format!("building {} for {TARGET}", shown_from_here(&folder)));
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
            .args(["build", "--lib", "--target", TARGET, "--profile", "wasm"])
            .args(PROFILE.map(|setting| format!("--config=profile.wasm.{setting}")))
            .args((!is_first).then_some("--quiet"))
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start cargo")?;
        let stdout = cargo.stdout.take().context("cargo has no output")?;
        let mut artifact = None;
        for line in BufReader::new(stdout).lines() {
            let message: serde_json::Value = serde_json::from_str(&line?).unwrap_or_default();
            // Dependencies report artifacts of their own; the policy's comes last.
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
                "{} makes no wasm file: its [lib] needs crate-type = [\"cdylib\", \"rlib\"]",
                folder.display()
            )
        })?;
        std::fs::read(&artifact).with_context(|| format!("cannot read {}", artifact.display()))
    }

    /// Brings the wasm target where rustup can and it is missing.
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
        (self.says)(&format!("installing the Rust target {TARGET}"));
        let added = Command::new("rustup")
            .args(["target", "add", TARGET])
            .current_dir(folder)
            .status();
        match added {
            Ok(status) if status.success() => Ok(()),
            _ => bail!(
                "the Rust target {TARGET} is missing and rustup could not add it; the README says how to go without rustup"
            ),
        }
    }
}

/// A path as people who stand in the current folder write it.
fn shown_from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}
