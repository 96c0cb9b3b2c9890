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
    let found = all().find(|adapter| adapter.name == name);
    found.ok_or_else(|| match name {
        SIM => anyhow!(
            "this build has no simulated cloud, only {}: {}",
            names(),
            WITH_SIM
        ),
        _ => anyhow!("unknown cloud {name:?}; this host has: {}", names()),
    })
}

fn all() -> impl Iterator<Item = &'static Adapter> {
    ADAPTERS.iter().copied()
}

fn names() -> String {
    let names: Vec<&str> = all().map(|adapter| adapter.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> Option<String> {
        adapter(name).err().map(|e| e.to_string())
    }

    #[test]
    fn an_unknown_cloud_is_refused_with_the_names_of_those_there_are() {
        let wanted = format!(r#"unknown cloud "foo"; this host has: {}"#, names());
        assert_eq!(refused("foo"), Some(wanted));
    }

    #[cfg(not(feature = "sim"))]
    #[test]
    fn a_build_without_the_simulated_cloud_says_so_when_one_is_asked_for() {
        assert_eq!(names(), "node");
        let said = refused("sim").unwrap_or_default();
        assert!(said.contains("this build has no simulated cloud"), "{said}");
    }
}
