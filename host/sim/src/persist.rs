//! Stores a simulated cloud beyond its process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::SimConfig;
use crate::kernel::clock::Head;
use crate::kernel::kept::{Change, Note, Record, RecordKey};
use crate::sim::Sim;

/// The format of a snapshot and of a database.
const FORMAT: &str = "polity-sim/3";
/// The name of the one record that is stored with every change.
const HEAD: &str = "head";

/// The content of that record.
#[derive(Serialize, Deserialize)]
struct Kept<H> {
    format: String,
    head: H,
}

/// All records, and the head.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    #[serde(flatten)]
    head: Kept<Value>,
    records: Vec<(String, String, String)>,
}

/// The reason why a simulated cloud cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot is damaged, or is no snapshot.
    #[error("the snapshot of the simulated cloud cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The snapshot was written by another version of Polity.
    #[error(
        "the snapshot of the simulated cloud has the format {0:?}, but this host reads {FORMAT:?}: start with an empty folder"
    )]
    Format(String),
    /// The database has a record of an unknown table.
    #[error("the database of the simulated cloud has a record in the unknown table {0:?}")]
    Table(String),
    /// The database has records but no head.
    #[error("the database of the simulated cloud is damaged: its head record is missing")]
    Headless,
}

impl Sim {
    /// Everything but the configuration and the log of effects, as JSON. It contains no secrets.
    pub fn snapshot(&mut self) -> String {
        let mut records = Vec::new();
        for (name, table) in self.tables() {
            table.show(&mut |key, value| records.push((name.to_owned(), key, value)));
        }
        let head = Kept {
            format: FORMAT.to_owned(),
            head: serde_json::to_value(self.kernel.head()).expect("a head is JSON"),
        };
        serde_json::to_string(&Snapshot { head, records }).expect("a snapshot is JSON")
    }

    /// Restores a snapshot. Rules and events of the configuration are identified by their position in it.
    pub fn restore(config: SimConfig, snapshot: &str) -> Result<Self, RestoreError> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let format: Format = serde_json::from_str(snapshot).map_err(RestoreError::Unreadable)?;
        if format.format != FORMAT {
            return Err(RestoreError::Format(format.format));
        }
        let Snapshot { head, records } = serde_json::from_str(snapshot).map_err(RestoreError::Unreadable)?;
        let head = serde_json::from_value(head.head).map_err(RestoreError::Unreadable)?;
        let records = records.iter();
        let records = records.map(|(table, key, value)| (table.as_str(), key.as_str(), value.as_bytes()));
        Self::from_head(config, head, records)
    }

    /// Restores the records of a database; `None` if there are none.
    pub(crate) fn from_records(config: SimConfig, records: &[Record]) -> Result<Option<Self>, RestoreError> {
        if records.is_empty() {
            return Ok(None);
        }
        let head = records.iter().find(|(table, _, _)| table == HEAD);
        let (_, _, head) = head.ok_or(RestoreError::Headless)?;
        let head: Kept<Head> = serde_json::from_slice(head).map_err(RestoreError::Unreadable)?;
        if head.format != FORMAT {
            return Err(RestoreError::Format(head.format));
        }
        let others = records.iter().filter(|(table, _, _)| table != HEAD);
        let others = others.map(|(table, key, value)| (table.as_str(), key.as_str(), value.as_slice()));
        Self::from_head(config, head.head, others).map(Some)
    }

    fn from_head<'a>(
        config: SimConfig,
        head: Head,
        records: impl Iterator<Item = (&'a str, &'a str, &'a [u8])>,
    ) -> Result<Self, RestoreError> {
        let mut sim = Self::at(config, head);
        let mut tables: BTreeMap<&str, &mut dyn Note> = sim.tables().into_iter().collect();
        for (name, key, value) in records {
            let table = tables.get_mut(name);
            let table = table.ok_or_else(|| RestoreError::Table(name.to_owned()))?;
            table.restore(key, value).map_err(RestoreError::Unreadable)?;
        }
        sim.kernel.expect_cues();
        Ok(sim)
    }

    /// Whether something changed since the last call that must survive a restart.
    pub fn take_dirty(&mut self) -> bool {
        self.kernel.take_dirty()
    }

    /// Notes changes from now on. At first everything counts as changed.
    pub(crate) fn note_changes(&mut self) {
        for (_, table) in self.tables() {
            table.begin();
        }
    }

    /// The changes since the last call, the clock and the counters included.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let head = Kept {
            format: FORMAT.to_owned(),
            head: self.kernel.head(),
        };
        let mut changes = vec![Change {
            key: RecordKey {
                table: HEAD,
                key: String::new(),
            },
            value: Some(serde_json::to_vec(&head).expect("a head is JSON")),
        }];
        for (name, table) in self.tables() {
            table.hand_over(name, &mut changes);
        }
        changes
    }
}
