//! A simulated cloud that outlives its process.

use serde::{Deserialize, Serialize};

use super::Sim;
use super::config::SimConfig;
use super::world::World;

/// What a snapshot says it is.
const FORMAT: &str = "polity-sim/1";

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

    /// Whether something has changed that a restart must not forget, since this was asked last.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }
}

/// Maps whose keys are no strings, as lists of pairs.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}
