//! A simulated cloud that outlives its process.

use polity_clouds::OpenError;
use serde::{Deserialize, Serialize};

use crate::Sim;
use crate::config::SimConfig;
use crate::kernel::kept::{Change, Record, RecordKey};
use crate::world::{Head, World};

/// What a snapshot says it is, and a database.
const FORMAT: &str = "polity-sim/2";
/// The name under which there is one record, which every change brings with it.
const HEAD: &str = "head";

#[derive(Serialize, Deserialize)]
struct Snapshot<W> {
    format: String,
    world: W,
}

/// A snapshot that cannot be continued from.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It is damaged, or no snapshot at all.
    #[error("the snapshot of the simulated cloud cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// Another version of Polity wrote it.
    #[error("the snapshot of the simulated cloud has format {0:?}, this host reads {FORMAT:?}")]
    Format(String),
    /// A record is of no sort that is known here.
    #[error("the database of the simulated cloud has a record in {0:?}, of which this host knows nothing")]
    Table(String),
    /// What everything else rests on is missing.
    #[error("the database of the simulated cloud has records without a beginning")]
    Headless,
}

impl From<RestoreError> for OpenError {
    fn from(source: RestoreError) -> Self {
        crate::adapter::saved(source)
    }
}

impl Sim {
    /// Everything but the configuration and the log of effects, as JSON. No secret is in it.
    pub fn snapshot(&self) -> String {
        let snapshot = Snapshot {
            format: FORMAT.to_owned(),
            world: &self.world,
        };
        serde_json::to_string(&snapshot).expect("a world is JSON")
    }

    /// Goes on from a snapshot. Rules and events of the configuration are known by their place in it.
    pub fn restore(config: SimConfig, snapshot: &str) -> Result<Self, RestoreError> {
        let format: Snapshot<serde::de::IgnoredAny> =
            serde_json::from_str(snapshot).map_err(RestoreError::Unreadable)?;
        if format.format != FORMAT {
            return Err(RestoreError::Format(format.format));
        }
        let mut snapshot: Snapshot<World> =
            serde_json::from_str(snapshot).map_err(RestoreError::Unreadable)?;
        snapshot.world.expect(&config.events);
        Ok(Self::with_world(config, snapshot.world))
    }

    /// Goes on from the records of a database; none if there are none.
    pub(crate) fn from_records(config: SimConfig, records: &[Record]) -> Result<Option<Self>, RestoreError> {
        if records.is_empty() {
            return Ok(None);
        }
        let head = records.iter().find(|(table, _, _)| table == HEAD);
        let (_, _, head) = head.ok_or(RestoreError::Headless)?;
        let head: Snapshot<Head> = serde_json::from_slice(head).map_err(RestoreError::Unreadable)?;
        if head.format != FORMAT {
            return Err(RestoreError::Format(head.format));
        }
        let mut world = World::with(head.world);
        for (name, key, value) in records.iter().filter(|(table, _, _)| table != HEAD) {
            let mut tables = world.tables();
            let table = tables.iter_mut().find(|(known, _)| known == name);
            let (_, table) = table.ok_or_else(|| RestoreError::Table(name.clone()))?;
            table.restore(key, value).map_err(RestoreError::Unreadable)?;
        }
        world.expect(&config.events);
        Ok(Some(Self::with_world(config, world)))
    }

    /// Whether something has changed that a restart must not forget, since this was asked last.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Notes what changes from now on: at first, all that there is.
    pub(crate) fn note_changes(&mut self) {
        for (_, table) in self.world.tables() {
            table.begin();
        }
    }

    /// What changed since it was asked last, the clock and the counters included.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let head = Snapshot {
            format: FORMAT.to_owned(),
            world: &self.world.head,
        };
        let mut changes = vec![Change {
            key: RecordKey {
                table: HEAD,
                key: String::new(),
            },
            value: Some(serde_json::to_vec(&head).expect("a head is JSON")),
        }];
        for (name, table) in self.world.tables() {
            table.hand_over(name, &mut changes);
        }
        changes
    }
}
