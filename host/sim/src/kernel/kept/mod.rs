//! Keeping the world in `redb`: not as a whole, but what changed.
//!
//! A [`Table`] notes which of its records changed. After a call those become [`Change`]s, in the order of calls, and
//! [`Disk`] makes them durable: calls that wait at the same time share one transaction.

mod disk;
mod table;

use std::fs::File;
use std::sync::Arc;

pub(crate) use disk::{Disk, Receipt};
pub(crate) use table::{Note, Table};

/// A record that is another one from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: RecordKey,
    /// JSON; none: it is gone.
    pub(crate) value: Option<Vec<u8>>,
}

/// Which record: the table's name, and the key in it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    pub(crate) table: &'static str,
    pub(crate) key: String,
}

/// A record as it is stored: its table's name, its key in it and its value, both as JSON.
pub(crate) type Record = (String, String, Vec<u8>);

/// Why something is not stored. What waited for it is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// Nothing that is written will ever be found again.
    #[error("the database file was deleted")]
    Deleted,
    /// The next call tries again.
    #[error("the database cannot be written: {0}")]
    Failed(Arc<redb::Error>),
}

/// What is stored cannot be continued from.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file is no database of ours, is damaged, is in use by another process, or cannot be read or written.
    #[error("opening the database of the simulated cloud")]
    Open(#[source] Box<redb::Error>),
    /// The thread that writes cannot be started.
    #[error("starting the thread that stores what the simulated cloud did")]
    Thread(#[source] std::io::Error),
}

/// Opens the file and reads all that is in it.
pub(crate) fn open(file: File) -> Result<(Disk, Vec<Record>), DiskError> {
    Disk::open(file)
}
