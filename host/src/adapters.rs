//! The clouds of this build.

use anyhow::{Result, anyhow};
use polity_clouds::{Adapter, node};

/// The name that bindings use for the simulated cloud, also in a build without it.
pub(crate) const SIM: &str = "sim";
/// The advice in errors of a build without the simulated cloud.
pub(crate) const WITH_SIM: &str = "build polity with its feature `sim`";

/// Every cloud that a binding can name in this build.
const ADAPTERS: &[&Adapter] = &[
    #[cfg(feature = "sim")]
    &polity_sim::ADAPTER,
    &node::ADAPTER,
];

/// Finds an adapter by its name.
pub(crate) fn adapter(name: &str) -> Result<&'static Adapter> {
    among(ADAPTERS, name)
}

fn among(adapters: &[&'static Adapter], name: &str) -> Result<&'static Adapter> {
    let found = adapters.iter().find(|adapter| adapter.name == name);
    found.copied().ok_or_else(|| match name {
        SIM => anyhow!(
            "this build has no simulated cloud, only {}: {WITH_SIM}",
            names(adapters)
        ),
        _ => anyhow!("unknown cloud {name:?}; this host has: {}", names(adapters)),
    })
}

fn names(adapters: &[&Adapter]) -> String {
    let names: Vec<&str> = adapters.iter().map(|adapter| adapter.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cloud_is_refused_with_the_names_of_those_there_are() {
        let refused = adapter("foo").err().map(|e| e.to_string());
        let wanted = format!(r#"unknown cloud "foo"; this host has: {}"#, names(ADAPTERS));
        assert_eq!(refused, Some(wanted));
    }

    #[test]
    fn a_build_without_the_simulated_cloud_says_so_when_one_is_asked_for() {
        let refused = among(&[&node::ADAPTER], "sim").err().map(|e| e.to_string());
        let wanted = "this build has no simulated cloud, only node: build polity with its feature `sim`";
        assert_eq!(refused.as_deref(), Some(wanted));
    }
}
