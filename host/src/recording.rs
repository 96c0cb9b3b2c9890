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
mod limits;
mod segments;
mod thread;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
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
use serde::{Deserialize, Serialize};

use crate::display::{SHOWN, printable, shortened};
use crate::private;
pub use exchanges::Exchanges;
pub(crate) use limits::BEHIND;
use limits::Recorded;
pub use limits::{ReadLimits, Unread};
use segments::{Segment, Segments, Text};
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
/// The most bytes that are read of the header of a segment, which has some hundred.
const HEADER: u64 = 64 << 10;
/// The most bytes that are read of a binding. An API server stores objects of half of it.
const BINDING: u64 = 4 << 20;
/// The most bytes that are read of a manifest. The sandbox takes 2 MiB, and here its JSON is indented.
const MANIFEST: u64 = 8 << 20;
/// The most edges of a manifest. Each pass is compared with all of them; shipped policies have some hundred.
const EDGES: usize = 1_000;
/// The most bytes of the name of a policy, as a host takes it.
const NAME: usize = 253;
/// The most bytes that are read of [`WAITING`]: of its 4,096 objects each has four kibibytes at most.
const WAITS: u64 = 16 << 20;

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
    limits: ReadLimits,
}

impl Recording {
    /// Opens the folder of a recording.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open the recording {}", path.display()))?;
        let limits = ReadLimits::default();
        Ok(Recording { dir, limits })
    }

    /// Reads within these limits.
    pub fn within(self, limits: ReadLimits) -> Self {
        Recording { limits, ..self }
    }

    /// Hands every pass to `see`, oldest first, and returns what is not read. A last line that a crash cut short does not count.
    pub fn passes(&self, see: impl FnMut(PassRecord)) -> Result<Unread> {
        lines(&self.folder()?, None, self.limits, see)
    }

    /// The same of the newest session alone: since the last start of a host on this folder.
    pub fn newest_session(&self, see: impl FnMut(PassRecord)) -> Result<Unread> {
        let folder = self.folder()?;
        lines(&folder, newest_session(&folder)?, self.limits, see)
    }

    /// The passes as lines, which others read: of all sessions or of the newest alone. Returns what of the segments is not read.
    pub fn lines(&self, all: bool, see: impl FnMut(Line)) -> Result<Unread> {
        let folder = self.folder()?;
        let session = if all { None } else { newest_session(&folder)? };
        raw_lines(&folder, session, self.limits, see)
    }

    fn folder(&self) -> Result<Dir> {
        let passes = self.dir.open_dir("passes");
        passes.context("this folder is not a recording: it has no folder `passes`")
    }

    /// The file that tells what objects wait for; `None` if there is none.
    pub(crate) fn waiting(&self) -> Result<Option<String>> {
        self.file(WAITING, WAITS)
    }

    /// The same of what drivers exchanged with clouds.
    pub fn exchanges(&self, see: impl FnMut(Exchanged)) -> Result<Unread> {
        match self.dir.open_dir(EXCHANGES) {
            Ok(exchanges) => lines(&exchanges, None, self.limits, see),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Unread::default()),
            Err(e) => Err(e).with_context(|| format!("cannot open {EXCHANGES}")),
        }
    }

    /// What the binding of this digest said, and what was cut of its limits; `None` if it was not recorded, as in recordings of
    /// older versions.
    pub fn binding(&self, digest: &str) -> Result<Option<(BindingSpec, Vec<String>)>> {
        if digest.is_empty() {
            return Ok(None);
        }
        let name = format!("bindings/{digest}.json");
        let Some(text) = self.file(&name, BINDING)? else {
            return Ok(None);
        };
        let mut spec: BindingSpec =
            serde_json::from_str(&text).with_context(|| format!("{name} is damaged"))?;
        let cut;
        (spec.limits, cut) = self.limits.of_binding(&spec.limits);
        Ok(Some((spec, cut)))
    }

    /// The text of a file of JSON, which normally has at most so many bytes; `None` if there is none.
    fn file(&self, name: &str, normal: u64) -> Result<Option<String>> {
        let most = self.limits.bytes(normal);
        let mut text = String::new();
        let file = private::open_of_others(&self.dir, name);
        match file.and_then(|file| file.take(most + 1).read_to_string(&mut text)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {name}"))?,
        };
        if text.len() as u64 > most || self.limits.is_too_much(text.as_bytes()) {
            let hint = self.limits.hint();
            bail!("{name} is larger than a host writes it, so it is not read{hint}");
        }
        Ok(Some(text))
    }

    /// The manifests of the policies that took part, by digest. Those that cannot be read are logged.
    pub fn manifests(&self) -> Result<BTreeMap<String, Manifest>> {
        let (mut manifests, mut marks_left) = (BTreeMap::new(), limits::MARKS);
        for entry in self
            .dir
            .read_dir("policies")
            .context("this folder is not a recording: it has no folder `policies`")?
        {
            let name = entry?.file_name();
            let Some(digest) = name.to_str().and_then(|n| n.strip_suffix(".json")) else {
                continue;
            };
            match self.manifest(digest, &mut marks_left) {
                Ok(manifest) => manifests.extend(manifest.map(|manifest| (digest.to_owned(), manifest))),
                Err(e) => {
                    let why = shortened(&format!("{e:#}"), SHOWN);
                    tracing::warn!("the manifest of a policy is missing: {}", printable(&why));
                }
            }
        }
        Ok(manifests)
    }

    /// A manifest, if it has no more marks of JSON than all manifests may still have.
    fn manifest(&self, digest: &str, marks_left: &mut usize) -> Result<Option<Manifest>> {
        let name = format!("policies/{digest}.json");
        let Some(text) = self.file(&name, MANIFEST)? else {
            return Ok(None);
        };
        if !self.limits.has_room(marks_left, text.as_bytes()) {
            let hint = self.limits.hint();
            bail!("there are too many manifests to read {name}{hint}");
        }
        let manifest: Manifest = serde_json::from_str(&text).with_context(|| format!("{name} is damaged"))?;
        let is_long = manifest.name.len() > NAME || manifest.edges.len() > EDGES;
        if is_long && self.limits == ReadLimits::Capped {
            let hint = self.limits.hint();
            bail!("{name} has more than {EDGES} edges, or a longer name than a host takes{hint}");
        }
        Ok(Some(manifest))
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
        let header = segment.and_then(|mut segment| segment.line(HEADER).ok()?);
        if let Some(Text::Line(header)) = header
            && let Some(session) = session_of(&header)
        {
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

/// Hands every line of the segments in a folder to `see`, or only those of one session. Returns what is not read. A last line that
/// a crash cut short does not count.
fn lines<T: Recorded>(
    folder: &Dir,
    session: Option<u64>,
    limits: ReadLimits,
    mut see: impl FnMut(T),
) -> Result<Unread> {
    let mut lines = Unread::default();
    let mut unread = raw_lines(folder, session, limits, |line| {
        if let Some(record) = line.read(&mut lines) {
            see(record);
        }
    })?;
    unread.add(lines);
    Ok(unread)
}

/// A line of a segment.
pub struct Line {
    text: Text,
    /// Whether another one follows in the segment.
    is_followed: bool,
    limits: ReadLimits,
}

impl Line {
    /// The bytes of its text.
    pub fn bytes(&self) -> usize {
        match &self.text {
            Text::Line(bytes) => bytes.len(),
            Text::TooLong => 0,
        }
    }

    /// The pass in the line. `None` if it is not read, which `unread` counts, and if it is the last one of its segment, and a crash
    /// cut it short.
    pub fn pass(&self, unread: &mut Unread) -> Option<PassRecord> {
        self.read(unread)
    }

    fn read<T: Recorded>(&self, unread: &mut Unread) -> Option<T> {
        let read = self.limits.read(&self.text);
        match read {
            Ok(Ok(record)) => return Some(record),
            Ok(Err(why)) => unread.leave_out(why),
            Err(e) if self.is_followed => {
                unread.damaged += 1;
                tracing::debug!("{}", printable(&shortened(&e.to_string(), SHOWN)));
            }
            Err(_) => {}
        }
        None
    }
}

/// The lines themselves. Returns what of the segments is not read.
fn raw_lines(
    folder: &Dir,
    session: Option<u64>,
    limits: ReadLimits,
    mut see: impl FnMut(Line),
) -> Result<Unread> {
    let mut unread = Unread::default();
    for number in segments::numbers(folder)? {
        let Some(mut segment) = segments::open(folder, number)? else {
            continue;
        };
        let header = segment.line(HEADER);
        if let Ok(Some(Text::Line(header))) = header {
            check_format(&header).with_context(|| format!("cannot read {}", segment.name))?;
            let others = session.zip(session_of(&header));
            if others.is_some_and(|(wanted, session)| session != wanted) {
                continue;
            }
        }
        let mut last: Option<Text> = None;
        let mut hand = |text: Option<Text>, is_followed: bool| {
            if let Some(text) = text {
                see(Line {
                    text,
                    is_followed,
                    limits,
                });
            }
        };
        while let Some(text) = next(&mut segment, limits, &mut unread)? {
            hand(last.replace(text), true);
        }
        hand(last, false);
        if segment.goes_on() {
            unread.leave_out(BEHIND);
        }
    }
    Ok(unread)
}

/// The next line of a segment. A segment that is damaged ends there.
fn next(segment: &mut Segment, limits: ReadLimits, unread: &mut Unread) -> Result<Option<Text>> {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match segment.line(limits.line()) {
        // Nothing more comes out of a compressed segment that is damaged.
        Err(e) if matches!(e.kind(), InvalidData | UnexpectedEof | InvalidInput) => {
            tracing::warn!("{} is damaged: {e}", segment.name);
            unread.damaged += 1;
            Ok(None)
        }
        line => line.with_context(|| format!("cannot read {}", segment.name)),
    }
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

    fn noted(see: impl FnOnce(&mut dyn FnMut(PassRecord)) -> Result<Unread>) -> Vec<String> {
        let mut notes = Vec::new();
        let damaged = see(&mut |record| notes.extend(record.notes().map(str::to_owned)));
        assert_eq!(damaged.expect("a recording"), Unread::default());
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
