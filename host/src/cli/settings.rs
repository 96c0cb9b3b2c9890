//! What one host of several in a cluster is told: its lease, its namespaces, its bindings.

use clap::Args;
use polity_kube_rules::labels::LabelSelector;
use polity_kube_rules::names;

use crate::selection::Selection;

/// A lease, and the namespaces that are governed under it.
#[derive(Debug, Args)]
pub(super) struct Domain {
    /// The Lease of the host: of the hosts with the same one, one acts at a time. The host's own Secret stands beside it.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_parser = namespace_and_name,
        default_value = "kube-system/polity",
        help_heading = "Cluster"
    )]
    lease: (String, String),
    /// Watch and govern the objects of this namespace, and not those of others. May be given several times.
    #[arg(long = "namespace", value_name = "NAMESPACE", value_parser = namespace, help_heading = "Cluster")]
    namespaces: Vec<String>,
}

impl Domain {
    pub(super) fn lease(&self) -> (&str, &str) {
        (&self.lease.0, &self.lease.1)
    }

    /// The namespaces and these bindings.
    pub(super) fn selection(&self, bindings: LabelSelector) -> Selection {
        let mut namespaces = self.namespaces.clone();
        namespaces.sort_unstable();
        namespaces.dedup();
        Selection {
            namespaces: (!namespaces.is_empty()).then(|| namespaces.into()),
            bindings,
        }
    }

    /// Whether something else than the default was given.
    pub(super) fn is_given(&self) -> bool {
        self.lease() != super::LEASE || !self.namespaces.is_empty()
    }
}

/// A label selector, as `kubectl -l` takes one.
pub(super) fn label_selector(text: &str) -> Result<LabelSelector, String> {
    text.parse()
        .map_err(|wrong: polity_kube_rules::labels::NotALabelSelector| wrong.to_string())
}

fn namespace(text: &str) -> Result<String, String> {
    match names::dns_label_problem(text) {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("no name of a namespace: {why}")),
    }
}

fn namespace_and_name(text: &str) -> Result<(String, String), String> {
    let Some((of, name)) = text.split_once('/') else {
        return Err("NAMESPACE/NAME is needed".to_owned());
    };
    match names::dns_subdomain_problem(name) {
        None => Ok((namespace(of)?, name.to_owned())),
        Some(why) => Err(format!("{name:?} is no name of a Lease: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        let fine = namespace_and_name("polity-system/polity");
        assert_eq!(fine, Ok(("polity-system".to_owned(), "polity".to_owned())));
        for wrong in ["polity", "/polity", "polity-system/", "a.b/c", "a/B", "a/b/c"] {
            assert!(namespace_and_name(wrong).is_err(), "{wrong}");
        }
    }
}
