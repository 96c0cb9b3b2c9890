//! How a host opens the simulated cloud.

use std::sync::Arc;

use serde_json::Value;

use super::config::SimConfig;
use super::{Sim, SimCloud};
use polity_clouds::Cloud;
use polity_clouds::Front;
use polity_clouds::Sessions;
use polity_clouds::{Adapter, OpenError, Opening};

const SIM: &str = "sim";

/// The simulated cloud, as a binding names it. What it goes on from has its own seed and start.
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
    let sim = match &opening.saved {
        None => Sim::new(config, opening.seed, opening.clock.now_ms()),
        Some(saved) => Sim::restore(config, saved).map_err(|source| OpenError::Saved {
            cloud: SIM,
            source: Box::new(source),
        })?,
    };
    let cloud = SimCloud::new(sim, opening.clock.clone(), opening.persist);
    let sessions = Sessions::new(opening.seed);
    let front = Front::new(cloud, opening.secrets, opening.clock, sessions)
        .map_err(|source| OpenError::Catalogue { cloud: SIM, source })?;
    Ok(Arc::new(front))
}
