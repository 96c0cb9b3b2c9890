//! Which clouds this build has.

use anyhow::{Result, anyhow};
use polity_clouds::{Adapter, node};

/// Every cloud that a binding can name here.
const ADAPTERS: &[Adapter] = &[polity_sim::ADAPTER, node::ADAPTER];

/// The adapter of this name.
pub(crate) fn adapter(name: &str) -> Result<&'static Adapter> {
    let found = ADAPTERS.iter().find(|adapter| adapter.name == name);
    found.ok_or_else(|| anyhow!("unknown cloud {name:?}; this host has: {}", names()))
}

fn names() -> String {
    let names: Vec<&str> = ADAPTERS.iter().map(|adapter| adapter.name).collect();
    names.join(", ")
}

#[test]
fn an_unknown_cloud_is_refused_with_the_names_of_those_there_are() {
    let error = adapter("foo").err().map(|e| e.to_string());
    assert_eq!(
        error.as_deref(),
        Some(r#"unknown cloud "foo"; this host has: sim, node"#)
    );
}
