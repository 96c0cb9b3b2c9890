//! Keeps the simulation's state in `redb`. Only changes are written, never the whole state.
//!
//! A [`Table`] notes which of its records changed. After a call these become [`Change`]s, in the order of
//! calls, and [`Disk`] stores them. Calls that wait at the same time share one transaction.

mod disk;
mod hold;
mod table;

use std::fs::File;
use std::sync::Arc;

pub(crate) use disk::{Disk, Receipt};
pub(crate) use table::{Note, Table};

/// A record that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: RecordKey,
    /// The new value as JSON; `None` if the record was removed.
    pub(crate) value: Option<Vec<u8>>,
}

/// The name of a record: its table, and its key as JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    pub(crate) table: &'static str,
    pub(crate) key: String,
}

/// A stored record: its table, its key and its value, the latter two as JSON.
pub(crate) type Record = (String, String, Vec<u8>);

/// The reason why changes are not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// The database file was deleted, so nothing that is written can be found again.
    #[error("the database file was deleted")]
    Deleted,
    /// A write failed. The next call tries again.
    #[error("the database cannot be written: {0}")]
    Failed(Arc<redb::Error>),
}

/// The reason why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file is not a database of this program, is damaged, is in use by another process, or cannot be
    /// read or written.
    #[error("opening the database of the simulated cloud")]
    Open(#[source] Box<redb::Error>),
    /// The writing thread cannot be started.
    #[error("starting the thread that stores what the simulated cloud did")]
    Thread(#[source] std::io::Error),
}

/// Opens the file and reads all its records.
pub(crate) fn open(file: File) -> Result<(Disk, Vec<Record>), DiskError> {
    Disk::open(file)
}
