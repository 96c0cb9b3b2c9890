//! Recordings: each pass as one line of JSON, and the policies that took part.
//!
//! ```text
//! DIR/policies/<sha256>.json    the manifest
//! DIR/policies/<sha256>.wasm    the policy's bytes
//! DIR/bindings/<sha256>.json    the spec of a binding, as it is written
//! DIR/passes/<number>.jsonl     a segment: a header line, then passes in the order in which they ended
//! DIR/passes/<number>.jsonl.gz  a segment that is full, compressed
//! DIR/exchanges/                what drivers exchanged with clouds, in segments too; always a ring
//! DIR/waiting.json              what objects wait for now
//! ```
//!
//! A ring keeps only the newest segments; a full recording keeps all. Each start of a host begins a session: the headers of
//! its segments have its number. Passes that ended in the last moments before a host
//! was killed may be missing: a thread writes them behind the event loop.

mod exchanges;
mod segments;
mod thread;

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use polity_core::binding::BindingSpec;
use polity_core::contract::Manifest;
use polity_core::contract::wit::PACKAGE;
use polity_core::record::PassRecord;
use polity_drivers::Exchanged;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::private;
pub use exchanges::Exchanges;
use segments::Segments;
pub use thread::RecordingThread;

/// The first line of a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    /// The version of the recording's format.
    format: u32,
    /// The version of the contract that the requests and answers follow.
    contract: String,
    /// The version of the host.
    polity: String,
    /// The version of the engine that ran the policies. A replay with the same version gives the same bytes.
    engine: String,
    /// The session, from one start of a host to its end. A later one has a higher number.
    session: u64,
}

/// The version of the format: 2 since contract 0.2.
const FORMAT: u32 = 2;

/// The folders inside a recording's folder.
const FOLDERS: [&str; 4] = ["policies", "bindings", "passes", EXCHANGES];
/// The file that tells what objects wait for.
const WAITING: &str = "waiting.json";
/// The folder of what drivers exchanged.
const EXCHANGES: &str = "exchanges";
/// The most bytes of the passes that a ring keeps, as they lie on the disk.
const RING: u64 = 64 << 20;
/// The most bytes that a binding may allow for the journal of a role in a pass, and for what a step returns.
/// `segments::UNPACKED` follows from it, so a larger limit would make passes that nobody can read again.
pub(crate) const RECORDED: u64 = 32 << 20;

/// Writes a recording. A pass that cannot be written is lost, and the next pass is tried again. If somebody
/// deleted the folder, it is created again.
pub struct Recorder {
    path: PathBuf,
    keep_all: bool,
    header: String,
    /// The policies that take part, by digest. They are written again if the folder is created again.
    policies: BTreeMap<String, Kept>,
    /// The specs of the bindings as they are now, each with its digest, by name.
    bindings: BTreeMap<String, (String, Vec<u8>)>,
    open: Open,
    _temporary: Option<Temporary>,
}

/// The parts of a policy that a recording holds: its manifest as JSON, and its code.
struct Kept {
    manifest: Vec<u8>,
    code: Vec<u8>,
}

impl Recorder {
    /// Records into a folder, after the passes that it holds already. `keep_all` is false for a ring.
    pub fn open(path: &Path, keep_all: bool, engine: &str) -> Result<Self> {
        let header = Header {
            format: FORMAT,
            contract: PACKAGE.into(),
            polity: env!("CARGO_PKG_VERSION").into(),
            engine: engine.into(),
            session: next_session(path),
        };
        let header = serde_json::to_string(&header)?;
        Ok(Recorder {
            open: Open::new(path, &header, keep_all)?,
            path: path.to_owned(),
            keep_all,
            header,
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            _temporary: None,
        })
    }

    /// Records into a new temporary folder. `explain` reads the newest one; older ones are removed.
    pub fn temporary(engine: &str) -> Result<Self> {
        let temporary = Temporary::new()?;
        let recorder = Recorder::open(&temporary.path, false, engine)?;
        Ok(Recorder {
            _temporary: Some(temporary),
            ..recorder
        })
    }

    /// The folder of the recording.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes what drivers exchange, into the same folder.
    pub fn exchanges(&self) -> Exchanges {
        Exchanges::new(&self.path, &self.header)
    }

    /// Records a policy's manifest and bytes, for `edges` and for replay.
    pub fn policy(&mut self, digest: &str, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        let kept = Kept {
            manifest: serde_json::to_vec_pretty(manifest)?,
            code: bytes.to_vec(),
        };
        let written = self.open.policy(digest, &kept);
        self.policies.insert(digest.to_owned(), kept);
        written
    }

    /// Records what a binding says, for replay.
    pub fn binding(&mut self, name: String, digest: String, spec: &BindingSpec) -> Result<()> {
        let spec = serde_json::to_vec(spec)?;
        let written = self.open.binding(&digest, &spec);
        self.bindings.insert(name, (digest, spec));
        written
    }

    /// Forgets a policy that takes no further part. Its files stay, but they are not written again if the
    /// folder is created again.
    pub fn policy_forgotten(&mut self, digest: &str) {
        self.policies.remove(digest);
    }

    /// Appends a pass.
    pub fn pass(&mut self, record: &PassRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.open.segments.append(&line).is_ok() {
            return Ok(());
        }
        // A new segment helps whatever the cause was: a deleted file, a deleted folder, a torn line.
        self.open = Open::new(&self.path, &self.header, self.keep_all)?;
        for (digest, kept) in &self.policies {
            self.open.policy(digest, kept)?;
        }
        for (digest, spec) in self.bindings.values() {
            self.open.binding(digest, spec)?;
        }
        self.open.segments.append(&line)
    }
}

/// A recording's folder, opened to be written.
struct Open {
    policies: Dir,
    bindings: Dir,
    segments: Segments,
}

impl Open {
    fn new(path: &Path, header: &str, keep_all: bool) -> Result<Self> {
        let dir = private::folder(path, is_own)?;
        let subfolder = |name: &str| subfolder(path, &dir, name);
        Ok(Open {
            policies: subfolder("policies")?,
            bindings: subfolder("bindings")?,
            segments: Segments::new(subfolder("passes")?, header, (!keep_all).then_some(RING))?,
        })
    }

    fn policy(&self, digest: &str, kept: &Kept) -> Result<()> {
        let (text, code) = (format!("{digest}.json"), format!("{digest}.wasm"));
        if !self.policies.exists(&code) {
            private::replace(&self.policies, &text, &kept.manifest)?;
            private::replace(&self.policies, &code, &kept.code)?;
        }
        Ok(())
    }

    fn binding(&self, digest: &str, spec: &[u8]) -> Result<()> {
        let name = format!("{digest}.json");
        if !self.bindings.exists(&name) {
            private::replace(&self.bindings, &name, spec)?;
        }
        Ok(())
    }
}

/// Whether a name in the folder of a recording is one of its own.
fn is_own(name: &str) -> bool {
    FOLDERS.contains(&name) || name.strip_suffix(".new").unwrap_or(name) == WAITING
}

/// Replaces the file that tells what objects wait for.
pub(crate) fn write_waiting(path: &Path, text: &[u8]) -> Result<()> {
    let dir = private::folder(path, is_own)?;
    private::replace(&dir, WAITING, text).with_context(|| format!("cannot write {WAITING}"))
}

/// Opens a folder inside that of a recording.
fn subfolder(path: &Path, dir: &Dir, name: &str) -> Result<Dir> {
    let opened = private::subfolder(dir, name);
    opened.with_context(|| format!("cannot open {}", path.join(name).display()))
}

/// Refuses a segment of another format. If a crash damaged the header, its format is unknown, and reading its
/// passes is tried.
fn check_format(header: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct Known {
        format: u32,
        polity: String,
    }
    match serde_json::from_slice::<Known>(header) {
        Ok(Known { format, polity }) if format != FORMAT => bail!(
            "the recording has format {format} and was written by polity {polity}, but this host reads format {FORMAT}: \
             read it with polity {polity}"
        ),
        _ => Ok(()),
    }
}

/// Reads a recording.
pub struct Recording {
    dir: Dir,
}

impl Recording {
    /// Opens the folder of a recording.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open the recording {}", path.display()))?;
        Ok(Recording { dir })
    }

    /// Hands every pass to `see`, oldest first, and returns how many lines cannot be read. A last line that a
    /// crash cut short does not count.
    pub fn passes(&self, see: impl FnMut(PassRecord)) -> Result<u64> {
        lines(&self.folder()?, None, see)
    }

    /// The same of the newest session alone: since the last start of a host on this folder.
    pub fn newest_session(&self, see: impl FnMut(PassRecord)) -> Result<u64> {
        let folder = self.folder()?;
        lines(&folder, newest_session(&folder)?, see)
    }

    /// The passes as lines, which others read: of all sessions or of the newest alone. Returns how many segments are damaged.
    pub fn lines(&self, all: bool, see: impl FnMut(Line)) -> Result<u64> {
        let folder = self.folder()?;
        let session = if all { None } else { newest_session(&folder)? };
        raw_lines(&folder, session, see)
    }

    fn folder(&self) -> Result<Dir> {
        let passes = self.dir.open_dir("passes");
        passes.context("this folder is not a recording: it has no folder `passes`")
    }

    /// The file that tells what objects wait for; `None` if there is none.
    pub(crate) fn waiting(&self) -> Result<Option<String>> {
        self.file(WAITING)
    }

    /// The same of what drivers exchanged with clouds.
    pub fn exchanges(&self, see: impl FnMut(Exchanged)) -> Result<u64> {
        match self.dir.open_dir(EXCHANGES) {
            Ok(exchanges) => lines(&exchanges, None, see),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(e).with_context(|| format!("cannot open {EXCHANGES}")),
        }
    }

    /// What the binding of this digest said; `None` if it was not recorded, as in recordings of older versions.
    pub fn binding(&self, digest: &str) -> Result<Option<BindingSpec>> {
        if digest.is_empty() {
            return Ok(None);
        }
        let name = format!("bindings/{digest}.json");
        let Some(text) = self.file(&name)? else {
            return Ok(None);
        };
        let spec = serde_json::from_str(&text).with_context(|| format!("{name} is damaged"))?;
        Ok(Some(spec))
    }

    /// The text of a file; `None` if there is none.
    fn file(&self, name: &str) -> Result<Option<String>> {
        match private::open_of_others(&self.dir, name).and_then(io::read_to_string) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {name}")),
        }
    }

    /// The manifests of the policies that took part, by digest.
    pub fn manifests(&self) -> Result<BTreeMap<String, Manifest>> {
        let mut manifests = BTreeMap::new();
        for entry in self
            .dir
            .read_dir("policies")
            .context("this folder is not a recording: it has no folder `policies`")?
        {
            let name = entry?.file_name();
            let Some(digest) = name.to_str().and_then(|n| n.strip_suffix(".json")) else {
                continue;
            };
            let at = format!("policies/{digest}.json");
            let text = private::open_of_others(&self.dir, &at).and_then(io::read_to_string);
            let text = text.with_context(|| format!("cannot read {at}"))?;
            match serde_json::from_str(&text) {
                Ok(manifest) => {
                    manifests.insert(digest.to_owned(), manifest);
                }
                Err(e) => {
                    tracing::warn!("{at} is damaged, so the policy's manifest is missing: {e}")
                }
            }
        }
        Ok(manifests)
    }
}

/// The session of a segment; 0 in recordings of older versions, which have none. `None` if a crash damaged the header.
fn session_of(header: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Known {
        #[serde(default)]
        session: u64,
    }
    let known = serde_json::from_slice::<Known>(header).ok()?;
    Some(known.session)
}

/// The session of the newest segment whose header can be read.
fn newest_session(folder: &Dir) -> Result<Option<u64>> {
    for number in segments::numbers(folder)?.into_iter().rev() {
        let segment = segments::open(folder, number)?;
        let header = segment.and_then(|(_, segment)| segment.split(b'\n').next()?.ok());
        if let Some(session) = header.and_then(|header| session_of(&header)) {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// The number of the session that begins in the folder of a recording: higher than all that it holds. Numbers of segments
/// count, too, because those of a deleted folder begin anew.
fn next_session(path: &Path) -> u64 {
    let sessions = || {
        let folder = Recording::open(path)?.folder()?;
        let newest = newest_session(&folder)?.unwrap_or_default();
        let segments = segments::numbers(&folder)?;
        anyhow::Ok(newest.max(segments.last().copied().unwrap_or_default()))
    };
    // Without a folder there is no earlier session.
    sessions().unwrap_or_default().saturating_add(1)
}

/// Hands every line of the segments in a folder to `see`, or only those of one session. Returns how many cannot be read. A last
/// line that a crash cut short does not count.
fn lines<T: DeserializeOwned>(folder: &Dir, session: Option<u64>, mut see: impl FnMut(T)) -> Result<u64> {
    let mut unread = 0;
    let damaged = raw_lines(folder, session, |line| match line.read() {
        Ok(Some(record)) => see(record),
        Ok(None) => {}
        Err(e) => {
            unread += 1;
            tracing::debug!("{e}");
        }
    })?;
    Ok(damaged + unread)
}

/// A line of a segment.
pub struct Line {
    bytes: Vec<u8>,
    /// Whether another one follows in the segment.
    is_followed: bool,
}

impl Line {
    /// The bytes of its text.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What the line holds; `None` if it is the last one of its segment, and a crash cut it short.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        match serde_json::from_slice(&self.bytes) {
            Err(_) if !self.is_followed => Ok(None),
            read => read.map(Some),
        }
    }
}

/// The lines themselves. Returns how many segments are damaged.
fn raw_lines(folder: &Dir, session: Option<u64>, mut see: impl FnMut(Line)) -> Result<u64> {
    let mut damaged = 0;
    for number in segments::numbers(folder)? {
        let Some((name, segment)) = segments::open(folder, number)? else {
            continue;
        };
        let mut lines = segment.split(b'\n');
        if let Some(Ok(header)) = lines.next() {
            check_format(&header).with_context(|| format!("cannot read {name}"))?;
            let others = session.zip(session_of(&header));
            if others.is_some_and(|(wanted, session)| session != wanted) {
                continue;
            }
        }
        let mut last: Option<Vec<u8>> = None;
        for line in lines {
            let line = match line {
                Ok(line) => line,
                // Nothing more comes out of a compressed segment that is damaged.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::InvalidData
                            | io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::InvalidInput
                    ) =>
                {
                    tracing::warn!("{name} is damaged: {e}");
                    damaged += 1;
                    break;
                }
                Err(e) => return Err(e).with_context(|| format!("cannot read {name}")),
            };
            if let Some(bytes) = last.replace(line) {
                let is_followed = true;
                see(Line { bytes, is_followed });
            }
        }
        if let Some(bytes) = last {
            let is_followed = false;
            see(Line { bytes, is_followed });
        }
    }
    Ok(damaged)
}

/// A temporary folder for a recording. When its host has ended, only the newest such folder stays.
struct Temporary {
    path: PathBuf,
    /// Locked while the host runs, so that no other process removes the folder.
    _lock: std::fs::File,
}

/// The prefix of the names of temporary folders.
const TEMPORARY: &str = "polity-recordings";
/// Folders younger than this are not removed: their process may not have locked them yet.
const YOUNG: Duration = Duration::from_secs(60);

impl Temporary {
    fn new() -> Result<Self> {
        let place = std::env::temp_dir();
        // The last recording was kept for `explain`. The new one replaces it.
        if let Ok(last) = latest() {
            remove(&place, &last);
        }
        sweep(&place);
        let path = private::fresh_folder(&place, TEMPORARY);
        let path =
            path.with_context(|| format!("cannot create a folder for recordings in {}", place.display()))?;
        let lock = lock(&path).with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Temporary { path, _lock: lock })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The newest recording stays for `explain`.
        if latest().is_ok_and(|latest| latest != self.path) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the temporary folders of hosts that have ended.
fn sweep(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG)) {
            remove(place, &entry.path());
        }
    }
}

/// Removes one temporary folder, unless its host still runs.
fn remove(place: &Path, folder: &Path) {
    let name = folder.file_name().and_then(|name| name.to_str());
    let is_one = folder.parent() == Some(place) && name.is_some_and(|name| name.starts_with(TEMPORARY));
    if is_one && private::is_own_folder(folder) && lock(folder).is_ok() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Locks a folder as long as the returned file is open. The system unlocks it when the process ends.
fn lock(folder: &Path) -> io::Result<std::fs::File> {
    let folder = std::fs::File::open(folder)?;
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// The folder that says which recording is the latest. It lies where every user may write, so it is used only
/// if it belongs to this user.
fn pointers() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("polity-{user}"))
}

const LATEST: &str = "latest";

/// Notes that this is the newest recording, for `explain`.
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
    let unknown =
        || "no recording found: name its folder with --recordings DIR, or use `polity run` first".to_owned();
    let text = if pointers.exists() {
        private::folder_among_others(&pointers)
            .and_then(|dir| private::read(&dir, LATEST))
            .with_context(|| format!("cannot read {}", pointers.join(LATEST).display()))
            .with_context(unknown)?
    } else {
        None
    };
    Ok(text.with_context(unknown)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::tests::pass;

    fn noted(see: impl FnOnce(&mut dyn FnMut(PassRecord)) -> Result<u64>) -> Vec<String> {
        let mut notes = Vec::new();
        let damaged = see(&mut |record| notes.extend(record.notes().map(str::to_owned)));
        assert_eq!(damaged.expect("a recording"), 0);
        notes
    }

    #[test]
    fn each_start_begins_a_session_and_an_old_recording_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = |note: &str| {
            let mut recorder = Recorder::open(folder.path(), true, "test").expect("a recorder");
            recorder.pass(&pass(&[note], "published", false)).expect("room");
            recorder
        };
        let read = || {
            let recording = Recording::open(folder.path()).expect("a recording");
            let newest = noted(|see| recording.newest_session(see));
            (newest, noted(|see| recording.passes(see)))
        };
        let first = folder.path().join("passes/000001.jsonl");
        record("A");
        record("B");
        for number in [1, 2] {
            // As versions wrote it that knew no sessions.
            let file = first.with_file_name(format!("{number:06}.jsonl"));
            let text = std::fs::read_to_string(&file).expect("a segment");
            let old = text.replacen(&format!(",\"session\":{number}"), "", 1);
            assert_ne!(old, text);
            std::fs::write(&file, old).expect("room");
        }
        let notes = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(read(), (notes("A B"), notes("A B")));
        let mut recorder = record("C");
        recorder.open = Open::new(folder.path(), &recorder.header, true).expect("another segment");
        recorder.pass(&pass(&["D"], "published", false)).expect("room");
        assert_eq!(read(), (notes("C D"), notes("A B C D")));
        record("E");
        assert_eq!(read(), (notes("E"), notes("A B C D E")));
    }
}
