//! The adapter for the machine on which the host runs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{NodeCloud, NodeConfig, Persist};
use crate::adapters::{Adapter, OpenError, Opening, configuration, schema};
use crate::cloud::Cloud;
use crate::gateway::Gateway;
use crate::sessions::Sessions;

const NODE: &str = "node";

/// The machine on which the host runs. Only a host that is the agent of its node can open it.
pub const ADAPTER: Adapter = Adapter {
    name: NODE,
    schema: schema::<NodeConfig>,
    check: |c| config(c).map(|_| ()),
    open,
};

fn config(value: Option<&Value>) -> Result<NodeConfig, OpenError> {
    configuration(value.unwrap_or(&json!({})))
        .map_err(|source| OpenError::Configuration { cloud: NODE, source })
}

fn open(opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    let config = config(opening.configuration.as_ref())?;
    let clock = opening.clock.clone();
    let remembered = opening.storage.as_ref().map(|storage| storage.read());
    let remembered = remembered.transpose().map_err(saved)?.flatten();
    let persist = opening.storage.map(|storage| {
        let persist: Persist = Box::new(move |document| storage.replace(document));
        persist
    });
    let cloud = NodeCloud::open(config, remembered.as_deref(), persist, clock).map_err(saved)?;
    let gateway = Gateway::new(cloud, opening.secrets, opening.clock, Sessions::new(opening.seed))
        .map_err(|source| OpenError::Catalogue { cloud: NODE, source })?;
    Ok(Arc::new(gateway))
}

fn saved(source: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::Saved {
        cloud: NODE,
        source: Box::new(source),
    }
}
