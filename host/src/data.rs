//! The data folder of standalone: everything that outlives the process, opened through a capability.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

/// The data folder. No name in it is taken from an object, and none can leave it.
pub struct Data {
    path: PathBuf,
    dir: Dir,
    _lock: cap_std::fs::File,
}

impl Data {
    /// Opens or creates the folder, for this process alone.
    pub fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("cannot open {}", path.display()))?;
        let mut options = OpenOptions::new();
        let lock = dir
            .open_with("lock", options.create(true).write(true))
            .context("cannot open its lock file")?;
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
        let file = self
            .dir
            .open_with("objects.redb", options.create(true).read(true).write(true))
            .context("cannot open objects.redb")?;
        Ok(file.into_std())
    }

    /// Reads a whole file; none if it does not exist.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        match self.dir.read_to_string(name) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Replaces a whole file: afterwards either the old or the new content is there, whenever the process dies.
    pub fn replace(&self, name: &str, content: &str) -> io::Result<()> {
        let new = format!("{name}.new");
        let mut file = self.dir.create(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_data()?;
        self.dir.rename(&new, &self.dir, name)
    }
}
