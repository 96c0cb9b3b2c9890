//! The data folder of standalone: everything that outlives the process, opened through a capability.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cap_std::fs::{Dir, OpenOptions};

use crate::private;

/// The data folder, this user's alone. No name in it is taken from an object, and none can leave it.
pub struct Data {
    path: PathBuf,
    dir: Dir,
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
            _lock: lock,
        })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file of the embedded API.
    pub fn database(&self) -> Result<std::fs::File> {
        let mut options = OpenOptions::new();
        let file = private::open(
            &self.dir,
            "objects.redb",
            options.create(true).read(true).write(true),
        );
        let file =
            file.with_context(|| format!("cannot open {}", self.path.join("objects.redb").display()))?;
        Ok(file.into_std())
    }

    /// Reads a whole file; none if it does not exist.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        private::read(&self.dir, name)
    }

    /// Replaces a whole file: afterwards either the old or the new content is there, whenever the process dies.
    pub fn replace(&self, name: &str, content: &str) -> io::Result<()> {
        private::replace(&self.dir, name, content.as_bytes())
    }
}

/// Whether a name in the folder is one that is written here.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    matches!(name, "lock" | "objects.redb" | "time" | "recordings") || name.starts_with("cloud-")
}
