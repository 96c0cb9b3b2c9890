//! Keeping objects in `redb`: one transaction for all that a request changes, on the disk before the answer.

use std::fs::File;

use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::{
    StoreError,
    state::{Change, Key, State, Stored},
};

/// `resource`, `namespace`, `name` → the JSON of the object.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// `revision` → the last resourceVersion given out.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// The page cache of the database, in bytes: everything is in memory anyway, so little is read from it.
const CACHE: usize = 16 << 20;

/// An open database.
pub(super) struct Disk {
    database: Database,
}

impl Disk {
    pub(super) fn open(file: File) -> Result<Self, StoreError> {
        Ok(Self {
            database: Builder::new().set_cache_size(CACHE).create_file(file)?,
        })
    }

    /// Everything that is kept.
    pub(super) fn load(&self, history: usize) -> Result<State, StoreError> {
        self.make_tables()?;
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let counters = read.open_table(COUNTERS).map_err(redb::Error::from)?;
        let revision = counters
            .get(REVISION)
            .map_err(redb::Error::from)?
            .map_or(0, |found| found.value());
        let mut state = State::new(revision, history);
        let objects = read.open_table(OBJECTS).map_err(redb::Error::from)?;
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
            state.restore(key, Stored::new(value));
        }
        Ok(state)
    }

    fn make_tables(&self) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        write.open_table(OBJECTS)?;
        write.open_table(COUNTERS)?;
        write.commit()?;
        Ok(())
    }

    /// Keeps changes: when this returns, they survive the end of the process and of the machine.
    pub(super) fn commit(&mut self, changes: &[Change]) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut objects = write.open_table(OBJECTS)?;
            let mut counters = write.open_table(COUNTERS)?;
            for change in changes {
                let key = (&*change.key.resource, &*change.key.namespace, &*change.key.name);
                if change.deleted {
                    objects.remove(key)?;
                } else {
                    objects.insert(key, &change.object.json()[..])?;
                }
                counters.insert(REVISION, change.revision)?;
            }
        }
        write.commit()?;
        Ok(())
    }
}
