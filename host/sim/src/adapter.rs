//! The adapter of the simulated cloud.

use std::sync::Arc;

use serde_json::Value;

use crate::config::SimConfig;
use crate::kernel::kept;
use crate::persist::RestoreError;
use crate::{Sim, SimCloud};
use polity_clouds::{Adapter, Cloud, Gateway, OpenError, Opening, Sessions};

const SIM: &str = "sim";

/// The simulated cloud, as a binding names it. A restored cloud keeps its own seed and start.
pub const ADAPTER: Adapter = Adapter {
    name: SIM,
    schema: SimConfig::schema,
    check: |c| config(c).map(|_| ()),
    open,
};

fn config(configuration: Option<&Value>) -> Result<SimConfig, OpenError> {
    configuration
        .map_or_else(|| Ok(SimConfig::default()), SimConfig::from_value)
        .map_err(|source| OpenError::Configuration { cloud: SIM, source })
}

fn open(opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    let config = config(opening.configuration.as_ref())?;
    let (seed, clock) = (opening.seed, opening.clock.clone());
    let new = |config| Sim::new(config, seed, clock.now_ms());
    let cloud = match &opening.storage {
        None => SimCloud::new(new(config), clock.clone()),
        Some(storage) => {
            let file = storage.database().map_err(saved)?;
            let (disk, records) = kept::open(file).map_err(saved)?;
            let sim = Sim::from_records(config.clone(), &records)?;
            SimCloud::kept(sim.unwrap_or_else(|| new(config)), clock.clone(), disk)
        }
    };
    let sessions = Sessions::new(opening.seed);
    let gateway = Gateway::new(cloud, opening.secrets, opening.clock, sessions)
        .map_err(|source| OpenError::Catalogue { cloud: SIM, source })?;
    Ok(Arc::new(gateway))
}

impl From<RestoreError> for OpenError {
    fn from(source: RestoreError) -> Self {
        saved(source)
    }
}

fn saved(source: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::Saved {
        cloud: SIM,
        source: Box::new(source),
    }
}
