//! Which clouds this build has.

use std::io;
use std::sync::Arc;

use serde_json::Value;

use crate::check::CatalogueError;
use crate::clock::Clock;
use crate::cloud::Cloud;
use crate::front::Front;
#[cfg(feature = "node")]
use crate::node::{NodeCloud, NodeConfig};
use crate::sealed::SecretResolver;
use crate::sessions::Sessions;
use crate::sim::{ConfigError, RestoreError, Sim, SimCloud, SimConfig};

/// Stores a snapshot durably, or says why it could not.
pub type Persist = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// A cloud that can be named in a binding.
pub struct Adapter {
    /// `sim`
    pub name: &'static str,
    /// The JSON Schema of its configuration.
    pub schema: fn() -> Value,
    /// Checks a configuration without opening anything.
    pub check: fn(Option<&Value>) -> Result<(), OpenError>,
    open: fn(Opening) -> Result<Arc<dyn Cloud>, OpenError>,
}

/// What an adapter is opened with.
pub struct Opening {
    /// From the binding; checked against the adapter's schema.
    pub configuration: Option<Value>,
    /// For whatever is drawn by chance, the handles of sessions included: a host that is no simulation draws it anew.
    pub seed: u64,
    /// The driver's clock.
    pub clock: Arc<dyn Clock>,
    /// Resolves sealed arguments.
    pub secrets: Arc<dyn SecretResolver>,
    /// What was persisted last, to go on from. The seed and the start of `sim` are then those of the snapshot.
    pub saved: Option<String>,
    /// Where snapshots go.
    pub persist: Option<Persist>,
}

/// Why there is no such cloud.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No adapter has this name.
    #[error("unknown cloud {name:?}; this host has: {known}")]
    Unknown {
        /// As asked for.
        name: String,
        /// All there are, with commas.
        known: String,
    },
    /// The configuration is not what the adapter's schema says.
    #[error("the configuration of cloud {cloud:?} is not valid")]
    Configuration {
        /// The adapter.
        cloud: &'static str,
        /// Where and why.
        #[source]
        source: ConfigError,
    },
    /// What was stored cannot be continued from.
    #[error("cloud {cloud:?} cannot be restored")]
    Saved {
        /// The adapter.
        cloud: &'static str,
        /// Why.
        #[source]
        source: RestoreError,
    },
    /// What a node remembers cannot be read.
    #[cfg(feature = "node")]
    #[error(transparent)]
    Memory(#[from] crate::node::MemoryError),
    /// A defect of the adapter.
    #[error("cloud {cloud:?} has a defect")]
    Catalogue {
        /// The adapter.
        cloud: &'static str,
        /// Which.
        #[source]
        source: CatalogueError,
    },
}

/// All adapters of this build.
pub fn adapters() -> &'static [Adapter] {
    const ADAPTERS: &[Adapter] = &[
        Adapter {
            name: SIM,
            schema: SimConfig::schema,
            check: |c| sim_config(c).map(|_| ()),
            open: open_sim,
        },
        #[cfg(feature = "node")]
        Adapter {
            name: NODE,
            schema: crate::node::schema,
            check: |c| node_config(c).map(|_| ()),
            open: open_node,
        },
    ];
    ADAPTERS
}

/// Opens a cloud by name.
pub fn open(name: &str, opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    (adapter(name)?.open)(opening)
}

/// The adapter of this name.
pub fn adapter(name: &str) -> Result<&'static Adapter, OpenError> {
    adapters()
        .iter()
        .find(|adapter| adapter.name == name)
        .ok_or_else(|| {
            let known = adapters()
                .iter()
                .map(|adapter| adapter.name)
                .collect::<Vec<_>>()
                .join(", ");
            OpenError::Unknown {
                name: name.to_owned(),
                known,
            }
        })
}

const SIM: &str = "sim";
/// The machine that the host runs on. Only a host that is the agent of its node opens it.
pub const NODE: &str = "node";

fn sim_config(configuration: Option<&Value>) -> Result<SimConfig, OpenError> {
    configuration
        .map_or_else(|| Ok(SimConfig::default()), SimConfig::from_value)
        .map_err(|source| OpenError::Configuration { cloud: SIM, source })
}

fn open_sim(opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    let config = sim_config(opening.configuration.as_ref())?;
    let sim = match &opening.saved {
        None => Sim::new(config, opening.seed, opening.clock.now_ms()),
        Some(saved) => {
            Sim::restore(config, saved).map_err(|source| OpenError::Saved { cloud: SIM, source })?
        }
    };
    let cloud = SimCloud::new(sim, opening.clock.clone(), opening.persist);
    let sessions = Sessions::new(opening.seed);
    let front = Front::new(cloud, opening.secrets, opening.clock, sessions)
        .map_err(|source| OpenError::Catalogue { cloud: SIM, source })?;
    Ok(Arc::new(front))
}

#[cfg(feature = "node")]
fn node_config(configuration: Option<&Value>) -> Result<NodeConfig, OpenError> {
    let configuration = configuration.cloned().unwrap_or_else(|| serde_json::json!({}));
    let validator =
        jsonschema::validator_for(&crate::node::schema()).expect("schemars makes schemas that compile");
    let wrong = |path, message| OpenError::Configuration {
        cloud: NODE,
        source: ConfigError { path, message },
    };
    if let Some((path, message)) = crate::check::first_error(&validator, &configuration) {
        return Err(wrong(path, message));
    }
    serde_json::from_value(configuration).map_err(|e| wrong("(document)".to_owned(), e.to_string()))
}

#[cfg(feature = "node")]
fn open_node(opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    let config = node_config(opening.configuration.as_ref())?;
    let clock = opening.clock.clone();
    let cloud = NodeCloud::open(config, opening.saved.as_deref(), opening.persist, clock)?;
    let front = Front::new(cloud, opening.secrets, opening.clock, Sessions::new(opening.seed))
        .map_err(|source| OpenError::Catalogue { cloud: NODE, source })?;
    Ok(Arc::new(front))
}
