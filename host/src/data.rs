//! The data folder: all state that outlives the process. It is opened through a capability.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use cap_std::fs::{Dir, OpenOptions};

use crate::private;

/// The database file of the embedded API.
pub(crate) const OBJECTS: &str = "objects.redb";
/// The file with the name under which processes hold the lease that is among the objects.
pub(crate) const HOLDER: &str = "holder";
/// The file with the names of the databases of clouds that the folder kept once, one a line.
const CLOUDS: &str = "clouds";
/// The prefix of the files in which clouds keep their state.
const CLOUD: &str = "cloud-";

/// The data folder, which belongs to this user alone. No file name in it comes from an object, and no name
/// can lead out of it.
pub struct Data {
    path: PathBuf,
    dir: Dir,
    /// Held while a file is replaced: two writers would use the same name for the new file.
    replaces: Mutex<()>,
    _lock: cap_std::fs::File,
}

impl Data {
    /// Opens or creates the folder and locks it for this process.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = private::folder(path, is_own)?;
        let mut options = OpenOptions::new();
        let lock = private::open(&dir, "lock", options.create(true).write(true));
        let lock = lock.with_context(|| format!("cannot open {}", path.join("lock").display()))?;
        // The lock is held until the process ends, however it ends.
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "{} is in use by another process: stop that process or name another folder",
                path.display()
            );
        }
        let data = Data {
            path: path.to_owned(),
            dir,
            replaces: Mutex::default(),
            _lock: lock,
        };
        data.refuse_a_lost_cloud()?;
        Ok(data)
    }

    /// Refuses a folder that kept a cloud and has it no more. The cloud would begin anew, and every machine of the
    /// objects would be created again.
    fn refuse_a_lost_cloud(&self) -> Result<()> {
        let kept = self
            .read(CLOUDS)
            .with_context(|| format!("cannot read {CLOUDS} in the data folder"))?;
        let is_lost = |cloud: &&str| !self.has(cloud);
        if let Some(lost) = kept.as_deref().and_then(|kept| kept.lines().find(is_lost)) {
            bail!(
                "{} kept {lost}, which is missing or empty now: put {lost} back, or start with an empty folder",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Remembers that the folder keeps the database of a cloud.
    pub(crate) fn keeps_cloud(&self, database: &str) -> io::Result<()> {
        let kept = self.read(CLOUDS)?.unwrap_or_default();
        if kept.lines().any(|known| known == database) {
            return Ok(());
        }
        self.replace(CLOUDS, &format!("{kept}{database}\n"))
    }

    /// Whether there is a file of this name that is not empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.dir.symlink_metadata(name).is_ok_and(|file| file.len() > 0)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file of the embedded API.
    pub fn database(&self) -> Result<std::fs::File> {
        let file = self.open_database(OBJECTS);
        file.with_context(|| format!("cannot open {}", self.path.join(OBJECTS).display()))
    }

    /// Opens a database file for reading and writing, and creates it if it is missing.
    pub(crate) fn open_database(&self, name: &str) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).write(true);
        Ok(private::open(&self.dir, name, options)?.into_std())
    }

    /// Whether there is a database of objects that is not empty, and for which clouds there are files.
    pub fn holds(&self) -> Result<(bool, Vec<String>)> {
        let at = || format!("cannot read {}", self.path.display());
        let mut clouds = Vec::new();
        for entry in self.dir.entries().with_context(at)? {
            let name = entry.with_context(at)?.file_name().to_string_lossy().into_owned();
            if name.starts_with(CLOUD) && !name.ends_with(".new") {
                clouds.push(name);
            }
        }
        Ok((self.has(OBJECTS), clouds))
    }

    /// Reads a file; `None` if it does not exist.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        private::read(&self.dir, name)
    }

    /// Replaces a file as a whole: whenever the process dies, the file has either the old or the new content.
    pub fn replace(&self, name: &str, content: &str) -> io::Result<()> {
        let _one = self.replaces.lock().unwrap_or_else(PoisonError::into_inner);
        private::replace(&self.dir, name, content.as_bytes())
    }
}

/// Whether this program writes a file of this name.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    matches!(
        name,
        "lock" | OBJECTS | HOLDER | CLOUDS | "time" | "scenario" | "applied" | "recordings"
    ) || name.starts_with(CLOUD)
}
