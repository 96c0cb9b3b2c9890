//! The data folder of standalone: everything that outlives the process, opened through a capability.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use cap_std::fs::{Dir, OpenOptions};

use crate::private;

/// The file of the database of the embedded API.
pub(crate) const OBJECTS: &str = "objects.redb";
/// What the names of the files of clouds begin with.
const CLOUD: &str = "cloud-";

/// The data folder, this user's alone. No name in it is taken from an object, and none can leave it.
pub struct Data {
    path: PathBuf,
    dir: Dir,
    /// Who replaces a file: two of them would write it aside under the same name.
    replaces: Mutex<()>,
    _lock: cap_std::fs::File,
}

impl Data {
    /// Opens or creates the folder, for this process alone.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = private::folder(path, is_own)?;
        let mut options = OpenOptions::new();
        let lock = private::open(&dir, "lock", options.create(true).write(true));
        let lock = lock.with_context(|| format!("cannot open {}", path.join("lock").display()))?;
        // Held until the process ends, however it ends.
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{} is in use by another process", path.display());
        }
        Ok(Data {
            path: path.to_owned(),
            dir,
            replaces: Mutex::default(),
            _lock: lock,
        })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file of the embedded API.
    pub fn database(&self) -> Result<std::fs::File> {
        let file = self.open_database(OBJECTS);
        file.with_context(|| format!("cannot open {}", self.path.join(OBJECTS).display()))
    }

    /// Opens a file for a database to read and write, and creates it if it is not there.
    pub(crate) fn open_database(&self, name: &str) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).write(true);
        Ok(private::open(&self.dir, name, options)?.into_std())
    }

    /// Whether there is a database, and the files of which clouds there are.
    pub fn holds(&self) -> Result<(bool, Vec<String>)> {
        let at = || format!("cannot read {}", self.path.display());
        let mut clouds = Vec::new();
        for entry in self.dir.entries().with_context(at)? {
            let name = entry.with_context(at)?.file_name().to_string_lossy().into_owned();
            if name.starts_with(CLOUD) && !name.ends_with(".new") {
                clouds.push(name);
            }
        }
        Ok((self.dir.exists(OBJECTS), clouds))
    }

    /// Reads a whole file; none if it does not exist.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        private::read(&self.dir, name)
    }

    /// Replaces a whole file: afterwards either the old or the new content is there, whenever the process dies.
    pub fn replace(&self, name: &str, content: &str) -> io::Result<()> {
        let _one = self.replaces.lock().unwrap_or_else(PoisonError::into_inner);
        private::replace(&self.dir, name, content.as_bytes())
    }
}

/// Whether a name in the folder is one that is written here.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    matches!(
        name,
        "lock" | OBJECTS | "time" | "scenario" | "applied" | "recordings"
    ) || name.starts_with(CLOUD)
}
