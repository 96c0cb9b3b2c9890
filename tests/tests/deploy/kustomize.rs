//! The kustomize base.

use std::fs;

use polity_tests::kubernetes::Assets;

use crate::deploy::rendered::BASE;
use crate::deploy::site::{Place, Site};

#[test]
fn the_kustomize_base_runs_a_host_with_its_own_account_and_goes_without_a_trace() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let site = Site::start(&assets);
    let rendered = site.kubectl(&["kustomize", BASE]);

    // Namespaced objects are checked in their namespace, which a dry run does not make.
    let namespace = fs::read_to_string(format!("{BASE}/namespace.yaml")).expect("read");
    site.apply(&namespace, &[]);
    site.apply(&rendered, &["--dry-run=server"]);
    let applied = site.apply(&rendered, &[]);
    assert!(!applied.contains("Warning"), "{applied}");
    let at = Place {
        namespace: "polity-system",
        name: "polity",
    };
    site.allow(at);
    site.runs_a_machine(at);

    site.kubectl(&["delete", "-k", BASE, "--wait=false"]);
    // What the bindings needed came beside the base, and stays for whoever applied it.
    let kinds =
        "deployments,poddisruptionbudgets,networkpolicies,serviceaccounts,configmaps,roles,rolebindings";
    let left = site.kubectl(&["get", kinds, "-n", "polity-system", "-o", "name"]);
    let left: Vec<&str> = left
        .lines()
        .map(|line| line.rsplit('/').next().unwrap_or(line))
        .collect();
    assert_eq!(left, ["polity-bindings", "polity-bindings"]);
    let machine = ["get", "machine", "machine-01", "-n", "team-a", "-o", "name"];
    assert!(site.kubectl(&machine).contains("machine-01"));
}
