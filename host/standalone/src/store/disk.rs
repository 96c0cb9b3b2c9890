//! Stores objects in `redb`. All changes of a request are one transaction, which is on the disk before the
//! answer.

use std::fs::File;

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::{
    StoreError,
    state::{Change, Key, State, Stored},
};
use crate::kinds::CRD_RESOURCE;

/// `resource`, `namespace`, `name` → the JSON of the object.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// The key `revision` holds the last resourceVersion that was given out.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// The page cache of the database in bytes. All objects are in memory, so little is read from the database.
const CACHE: usize = 16 << 20;

/// A database. It is opened again after a failure.
pub(super) struct Disk {
    opens: Box<Opens>,
    /// The file, to check that it still has a name.
    file: Option<File>,
    database: Option<Database>,
    /// The changes that were being stored when the database failed. They may be stored or not.
    doubt: Vec<Change>,
    /// The last failure that was reported.
    said: String,
}

type Opens = dyn Fn() -> Result<Database, DatabaseError> + Send;

/// The reason why changes are not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    /// The database file was deleted, so nothing that is written can be found again.
    #[error("the database file was deleted")]
    Deleted,
    /// A write failed. The next write tries again.
    #[error("the database cannot be written: {0}")]
    Failed(#[from] redb::Error),
}

impl Disk {
    pub(super) fn open(file: File) -> Result<Self, StoreError> {
        let again = file.try_clone().map_err(redb::StorageError::from);
        let again = again.map_err(redb::DatabaseError::from)?;
        let opens = move || {
            let file = again.try_clone().map_err(redb::StorageError::from)?;
            Builder::new().set_cache_size(CACHE).create_file(file)
        };
        Self::over(Box::new(opens), Some(file))
    }

    fn over(opens: Box<Opens>, file: Option<File>) -> Result<Self, StoreError> {
        Ok(Self {
            database: Some(opens()?),
            opens,
            file,
            doubt: Vec::new(),
            said: String::new(),
        })
    }

    /// Opens the database again if it failed. Returns the changes in doubt that turn out to be stored.
    /// `revision` is the last one that is known to be stored.
    pub(super) fn recover(&mut self, revision: u64) -> Result<Vec<Change>, NotKept> {
        if self.database.is_some() {
            return Ok(Vec::new());
        }
        self.check_name()?;
        let database = (self.opens)().map_err(redb::Error::from)?;
        let kept = last_revision(&database)?;
        self.database = Some(database);
        let mut doubt = std::mem::take(&mut self.doubt);
        doubt.retain(|change| revision < change.revision && change.revision <= kept);
        Ok(doubt)
    }

    /// Checks that the file still has a name. Writing to a deleted file succeeds, but the objects would be
    /// lost.
    fn check_name(&self) -> Result<(), NotKept> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = self.file.as_ref().map(File::metadata).transpose();
        match metadata.map_err(redb::Error::Io)? {
            Some(metadata) if metadata.nlink() == 0 => Err(NotKept::Deleted),
            _ => Ok(()),
        }
    }

    /// Whether this failure was not the last one reported.
    pub(super) fn is_news(&mut self, said: &str) -> bool {
        let is_news = self.said != said;
        said.clone_into(&mut self.said);
        is_news
    }

    /// Reads everything that is stored.
    pub(super) fn load(&self, history: usize) -> Result<State, StoreError> {
        let database = self.database.as_ref().ok_or_else(closed)?;
        make_tables(database)?;
        let read = database.begin_read().map_err(redb::Error::from)?;
        let mut state = State::new(last_revision(database)?, history);
        let objects = read.open_table(OBJECTS).map_err(redb::Error::from)?;
        let mut kinds = Vec::new();
        for entry in objects.iter().map_err(redb::Error::from)? {
            let (key, json) = entry.map_err(redb::Error::from)?;
            let (resource, namespace, name) = key.value();
            let value = serde_json::from_slice(json.value()).map_err(|error| StoreError::Object {
                key: format!("{resource} {namespace}/{name}"),
                why: error.to_string(),
            })?;
            let key = Key {
                resource: resource.into(),
                namespace: namespace.into(),
                name: name.into(),
            };
            // A definition reads the objects of its kind by its schema, so these come first.
            if resource == CRD_RESOURCE {
                kinds.push((key, Stored::new(value)));
            } else {
                state.restore(key, Stored::new(value));
            }
        }
        for (key, definition) in kinds {
            state.restore(key, definition);
        }
        Ok(state)
    }

    /// Stores changes. When this returns, they survive the end of the process and of the machine.
    pub(super) fn commit(&mut self, changes: &[Change]) -> Result<(), NotKept> {
        let database = self.database.as_ref().ok_or_else(closed)?;
        let written = write(database, changes).map_err(NotKept::from);
        let written = written.and_then(|()| self.check_name());
        match &written {
            Ok(()) => self.said.clear(),
            Err(_) => {
                // After a failure the database accepts nothing until it is opened again.
                self.database = None;
                self.doubt = changes.to_vec();
            }
        }
        written
    }
}

fn closed() -> redb::Error {
    redb::Error::DatabaseClosed
}

fn make_tables(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(OBJECTS)?;
    write.open_table(COUNTERS)?;
    write.commit()?;
    Ok(())
}

/// The last resourceVersion that was given out.
fn last_revision(database: &Database) -> Result<u64, redb::Error> {
    let counters = database.begin_read()?.open_table(COUNTERS)?;
    Ok(counters.get(REVISION)?.map_or(0, |found| found.value()))
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        let mut counters = write.open_table(COUNTERS)?;
        for change in changes {
            let key = (&*change.key.resource, &*change.key.namespace, &*change.key.name);
            if change.deleted {
                objects.remove(key)?;
            } else {
                objects.insert(key, change.object.json().as_bytes())?;
            }
            counters.insert(REVISION, change.revision)?;
        }
    }
    write.commit()?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::json;

    use super::*;

    /// A disk in memory that can be full: then nothing more is written, or even that is not told in time.
    #[derive(Clone, Debug, Default)]
    pub(in crate::store) struct Full {
        bytes: Arc<Mutex<Vec<u8>>>,
        is_full: Arc<Mutex<bool>>,
        syncs: Arc<std::sync::atomic::AtomicU64>,
    }

    impl Full {
        pub(in crate::store) fn set(&self, is_full: bool) {
            *self.is_full.lock().unwrap() = is_full;
        }

        fn room(&self) -> io::Result<()> {
            if *self.is_full.lock().unwrap() {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            } else {
                Ok(())
            }
        }

        /// How often it was synchronised.
        pub(in crate::store) fn syncs(&self) -> u64 {
            self.syncs.load(std::sync::atomic::Ordering::Relaxed)
        }

        pub(in crate::store) fn disk(&self) -> Disk {
            let backend = self.clone();
            let opens = move || Builder::new().create_with_backend(backend.clone());
            let disk = Disk::over(Box::new(opens), None).unwrap();
            disk.load(8).unwrap();
            disk
        }
    }

    impl redb::StorageBackend for Full {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let at = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.bytes.lock().unwrap()[at..at + out.len()]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.bytes
                .lock()
                .unwrap()
                .resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.room()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            let at = usize::try_from(offset).unwrap();
            self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn change(revision: u64) -> Change {
        Change {
            revision,
            key: Key {
                resource: "configmaps".into(),
                namespace: "default".into(),
                name: format!("c-{revision}").into(),
            },
            previous: None,
            object: Stored::new(json!({"metadata": {"resourceVersion": revision.to_string()}})),
            deleted: false,
        }
    }

    #[test]
    fn a_disk_that_has_room_again_is_written_again() {
        let full = Full::default();
        let mut disk = full.disk();
        disk.commit(&[change(1)]).unwrap();
        full.set(true);
        for _ in 0..3 {
            assert!(disk.recover(1).and_then(|_| disk.commit(&[change(2)])).is_err());
        }
        full.set(false);
        assert!(disk.recover(1).unwrap().is_empty(), "it was not kept");
        disk.commit(&[change(2)]).unwrap();
        drop(disk);
        assert_eq!(full.disk().load(8).unwrap().revision, 2);
    }

    #[test]
    fn what_was_kept_although_it_failed_is_shown_once_that_is_known() {
        let full = Full::default();
        let mut disk = full.disk();
        disk.commit(&[change(1)]).unwrap();
        // As if the answer alone was lost.
        disk.commit(&[change(2)]).unwrap();
        disk.database = None;
        disk.doubt = vec![change(2)];
        let kept = disk.recover(1).unwrap();
        assert_eq!(kept.iter().map(|change| change.revision).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_file_without_a_name_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.redb");
        let options = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let mut disk = Disk::open(options.unwrap()).unwrap();
        disk.load(8).unwrap();
        disk.commit(&[change(1)]).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(disk.commit(&[change(2)]), Err(NotKept::Deleted)));
        assert!(matches!(disk.recover(1), Err(NotKept::Deleted)));
    }
}
