//! What the simulated cloud can do.

use polity_clouds::catalogue::{LONGEST, credential_plan, machine, node, pool, router, vm};
use polity_core::catalogue::{BEGINS_WITHIN, Catalogue};

use crate::config::SimConfig;

/// The operations, with a `visible-within` that fits how late this cloud may be.
pub(crate) fn catalogue(config: &SimConfig) -> Catalogue {
    let visible_within = BEGINS_WITHIN + LONGEST + config.latest_effect() + config.lag.0;
    let operations = vm::operations(visible_within)
        .into_iter()
        .chain(machine::operations(visible_within))
        .chain(pool::operations(visible_within))
        .chain(router::operations(visible_within))
        .chain(node::operations());
    Catalogue {
        operations: operations
            .map(|(name, operation)| (name.to_owned(), operation))
            .collect(),
        credential: Some(credential_plan()),
    }
}
