//! Recordings: every pass as one line of JSON, and the policies that took part.
//!
//! ```text
//! DIR/policies/<sha256>.json    the manifest
//! DIR/policies/<sha256>.wasm    the policy's bytes
//! DIR/passes/<number>.jsonl     a header line, then passes in the order they ended
//! ```
//!
//! The ring keeps the newest segments; a full recording keeps all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use polity_core::contract::Manifest;
use polity_core::record::PassRecord;
use serde::{Deserialize, Serialize};

use crate::private;

/// Bytes of one segment before the next one is begun.
const SEGMENT: u64 = 4 << 20;
/// Segments that a ring keeps: 64 MiB in all.
const KEPT: u64 = 16;

/// The first line of a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    /// The version of this format.
    format: u32,
    /// The host's version.
    polity: String,
    /// The engine that ran the policies: the same version gives the same bytes.
    engine: String,
}

/// What a recording's folder holds.
const FOLDERS: [&str; 2] = ["policies", "passes"];

/// Writes a recording.
pub struct Recorder {
    policies: Dir,
    passes: Dir,
    header: String,
    segment: u64,
    file: File,
    written: u64,
    keep_all: bool,
}

impl Recorder {
    /// Records into a folder, after what it may hold already. `keep_all` is false for a ring.
    pub fn open(path: &Path, keep_all: bool, engine: &str) -> Result<Self> {
        let dir = private::folder(path, |name| FOLDERS.contains(&name))?;
        let [policies, passes] = FOLDERS.map(|folder| {
            let opened = private::subfolder(&dir, folder);
            opened.with_context(|| format!("cannot open {}", path.join(folder).display()))
        });
        let (policies, passes) = (policies?, passes?);
        let header = Header {
            format: 1,
            polity: env!("CARGO_PKG_VERSION").into(),
            engine: engine.into(),
        };
        let header = serde_json::to_string(&header)?;
        let segment = segments(&passes)?.last().map_or(1, |last| last.saturating_add(1));
        let file = create(&passes, segment, &header)?;
        Ok(Recorder {
            policies,
            passes,
            written: header.len() as u64,
            header,
            segment,
            file,
            keep_all,
        })
    }

    /// Keeps what a policy says of itself, and its bytes, for `edges` and replay.
    pub fn policy(&mut self, digest: &str, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        let (text, code) = (format!("{digest}.json"), format!("{digest}.wasm"));
        if !self.policies.exists(&code) {
            private::replace(&self.policies, &text, &serde_json::to_vec_pretty(manifest)?)?;
            private::replace(&self.policies, &code, bytes)?;
        }
        Ok(())
    }

    /// Appends a pass.
    pub fn pass(&mut self, record: &PassRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.written + line.len() as u64 > SEGMENT {
            self.segment = self.segment.saturating_add(1);
            self.file = create(&self.passes, self.segment, &self.header)?;
            self.written = self.header.len() as u64;
            if !self.keep_all {
                self.drop_old()?;
            }
        }
        self.file.write_all(&line).context("cannot write the recording")?;
        self.written += line.len() as u64;
        Ok(())
    }

    fn drop_old(&self) -> Result<()> {
        for old in segments(&self.passes)?
            .into_iter()
            .filter(|n| n.saturating_add(KEPT) <= self.segment)
        {
            self.passes.remove_file(name(old))?;
        }
        Ok(())
    }
}

fn name(segment: u64) -> String {
    format!("{segment:06}.jsonl")
}

fn create(passes: &Dir, segment: u64, header: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    let mut file = private::open(passes, &name(segment), options.append(true).create_new(true))
        .with_context(|| format!("cannot create passes/{}", name(segment)))?;
    writeln!(file, "{header}")?;
    Ok(file)
}

fn segments(passes: &Dir) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in passes.entries().context("cannot read passes")? {
        let name = entry?.file_name();
        if let Some(number) = name
            .to_str()
            .and_then(|n| n.strip_suffix(".jsonl"))
            .and_then(|n| n.parse().ok())
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a recording.
pub struct Recording {
    dir: Dir,
}

impl Recording {
    /// Opens a recording's folder.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open the recording {}", path.display()))?;
        Ok(Recording { dir })
    }

    /// Hands every pass to `see`, oldest first. A last line that a crash cut short is left out.
    pub fn passes(&self, mut see: impl FnMut(PassRecord)) -> Result<()> {
        let passes = self
            .dir
            .open_dir("passes")
            .context("this folder holds no recording: it has no `passes`")?;
        for segment in segments(&passes)? {
            let file = passes
                .open(name(segment))
                .with_context(|| format!("cannot open {}", name(segment)))?;
            let mut lines = BufReader::new(file).lines().skip(1).enumerate().peekable();
            while let Some((number, line)) = lines.next() {
                let line = line.with_context(|| format!("cannot read {}", name(segment)))?;
                match serde_json::from_str(&line) {
                    Ok(record) => see(record),
                    Err(_) if lines.peek().is_none() => {}
                    Err(e) => {
                        return Err(e).with_context(|| format!("{} line {}", name(segment), number + 2));
                    }
                }
            }
        }
        Ok(())
    }

    /// The manifests of the policies that took part, by digest.
    pub fn manifests(&self) -> Result<BTreeMap<String, Manifest>> {
        let mut manifests = BTreeMap::new();
        for entry in self
            .dir
            .read_dir("policies")
            .context("this folder holds no recording: it has no `policies`")?
        {
            let name = entry?.file_name();
            let Some(digest) = name.to_str().and_then(|n| n.strip_suffix(".json")) else {
                continue;
            };
            let text = self.dir.read(format!("policies/{digest}.json"))?;
            let manifest =
                serde_json::from_slice(&text).with_context(|| format!("policies/{digest}.json"))?;
            manifests.insert(digest.to_owned(), manifest);
        }
        Ok(manifests)
    }
}

/// Makes a folder for a recording that nobody named.
pub fn temporary() -> Result<PathBuf> {
    let place = std::env::temp_dir();
    private::fresh_folder(&place, "polity-recordings")
        .with_context(|| format!("cannot create a folder for recordings in {}", place.display()))
}

/// Where `explain` looks for the last recording: in a place that everybody may write to, so what stands there is taken
/// only if it is this user's.
fn pointers() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("polity-{user}"))
}

const LATEST: &str = "latest";

/// Remembers the folder of the newest recording for `explain`.
pub fn remember_latest(folder: &Path) -> Result<()> {
    let pointers = pointers();
    let text = folder.as_os_str().as_encoded_bytes();
    let written =
        private::folder_among_others(&pointers).and_then(|dir| private::replace(&dir, LATEST, text));
    written.with_context(|| format!("cannot write {}", pointers.join(LATEST).display()))
}

/// The folder of the newest recording.
pub fn latest() -> Result<PathBuf> {
    let pointers = pointers();
    let unknown = || {
        "no recording is known: name its folder with --recordings DIR, or start `polity run` first".to_owned()
    };
    let text = match pointers.exists() {
        true => private::folder_among_others(&pointers)
            .and_then(|dir| private::read(&dir, LATEST))
            .with_context(|| format!("cannot read {}", pointers.join(LATEST).display()))
            .with_context(unknown)?,
        false => None,
    };
    Ok(text.with_context(unknown)?.into())
}
