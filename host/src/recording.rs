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

use anyhow::{Context, Result};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use polity_core::contract::Manifest;
use polity_core::record::PassRecord;
use serde::{Deserialize, Serialize};

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

/// Writes a recording.
pub struct Recorder {
    dir: Dir,
    header: String,
    segment: u64,
    file: File,
    written: u64,
    keep_all: bool,
}

impl Recorder {
    /// Records into a folder, after what it may hold already. `keep_all` is false for a ring.
    pub fn open(path: &std::path::Path, keep_all: bool, engine: &str) -> Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open {}", path.display()))?;
        for folder in ["policies", "passes"] {
            dir.create_dir_all(folder)
                .with_context(|| format!("cannot create {folder}"))?;
        }
        let header = Header {
            format: 1,
            polity: env!("CARGO_PKG_VERSION").into(),
            engine: engine.into(),
        };
        let header = serde_json::to_string(&header)?;
        let segment = segments(&dir)?.last().map_or(1, |last| last + 1);
        let file = create(&dir, segment, &header)?;
        Ok(Recorder {
            dir,
            written: header.len() as u64,
            header,
            segment,
            file,
            keep_all,
        })
    }

    /// Keeps what a policy says of itself, and its bytes, for `edges` and replay.
    pub fn policy(&mut self, digest: &str, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        let folder = self.dir.open_dir("policies")?;
        if !folder.exists(format!("{digest}.wasm")) {
            folder.write(format!("{digest}.json"), serde_json::to_vec_pretty(manifest)?)?;
            folder.write(format!("{digest}.wasm"), bytes)?;
        }
        Ok(())
    }

    /// Appends a pass.
    pub fn pass(&mut self, record: &PassRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.written + line.len() as u64 > SEGMENT {
            self.segment += 1;
            self.file = create(&self.dir, self.segment, &self.header)?;
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
        for old in segments(&self.dir)?
            .into_iter()
            .filter(|n| n + KEPT <= self.segment)
        {
            self.dir.remove_file(name(old))?;
        }
        Ok(())
    }
}

fn name(segment: u64) -> String {
    format!("passes/{segment:06}.jsonl")
}

fn create(dir: &Dir, segment: u64, header: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    let mut file = dir
        .open_with(name(segment), options.append(true).create_new(true))
        .with_context(|| format!("cannot create {}", name(segment)))?;
    writeln!(file, "{header}")?;
    Ok(file)
}

fn segments(dir: &Dir) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in dir
        .read_dir("passes")
        .context("this folder holds no recording: it has no `passes`")?
    {
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
    pub fn open(path: &std::path::Path) -> Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open the recording {}", path.display()))?;
        Ok(Recording { dir })
    }

    /// Hands every pass to `see`, oldest first. A last line that a crash cut short is left out.
    pub fn passes(&self, mut see: impl FnMut(PassRecord)) -> Result<()> {
        for segment in segments(&self.dir)? {
            let file = self
                .dir
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

/// Where recordings go by default without a data folder, and where `explain` looks for the last one.
pub fn latest_pointer() -> std::path::PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("polity-{user}")).join("latest")
}

/// Remembers the folder of the newest recording for `explain`.
pub fn remember_latest(folder: &std::path::Path) -> Result<()> {
    let pointer = latest_pointer();
    if let Some(parent) = pointer.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&pointer, folder.as_os_str().as_encoded_bytes())
        .with_context(|| format!("cannot write {}", pointer.display()))
}

/// The folder of the newest recording.
pub fn latest() -> Result<std::path::PathBuf> {
    let pointer = latest_pointer();
    let text = std::fs::read_to_string(&pointer).context(
        "no recording is known: name its folder with --recordings DIR, or start `polity run` first",
    )?;
    Ok(text.into())
}
