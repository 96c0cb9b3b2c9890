//! The kustomize base.

use std::fs;
use std::path::PathBuf;

use polity_tests::kubernetes::Assets;

use crate::deploy::rendered::{BASE, copy};
use crate::deploy::site::{CONFIG_MAP, POLICY, Place, Site};

/// The overlay of the README, beside the policy and a copy of the base: kustomize takes folders by relative paths.
fn overlay(site: &Site) -> PathBuf {
    let folder = site.folder.path().join("overlay");
    copy(BASE, &folder.join("base"));
    fs::copy(site.policy(), folder.join(POLICY)).expect("copied");
    let overlay = format!(
        "resources: [base]
images: [{{name: polity, newName: registry.example.com/polity, newTag: 0.1.0}}]
configMapGenerator: [{{name: {CONFIG_MAP}, namespace: polity-system, files: [{POLICY}]}}]
generatorOptions: {{disableNameSuffixHash: true}}
patches:
  - target: {{kind: Deployment, name: polity}}
    patch: |
      - {{op: add, path: /spec/template/spec/volumes/0/projected/sources/-, value: {{configMap: {{name: {CONFIG_MAP}}}}}}}
"
    );
    fs::write(folder.join("kustomization.yaml"), overlay).expect("written");
    folder
}

#[test]
fn the_kustomize_base_runs_a_host_with_its_own_account_and_goes_without_a_trace() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let site = Site::start(&assets);
    let overlay = overlay(&site);
    let overlay = overlay.to_str().expect("text");

    // Namespaced objects are checked in their namespace, which a dry run does not make.
    let namespace = fs::read_to_string(format!("{BASE}/namespace.yaml")).expect("read");
    site.apply(&namespace, &["--server-side"]);
    site.kubectl(&["apply", "--server-side", "--dry-run=server", "-k", overlay]);
    let applied = site.kubectl(&["apply", "--server-side", "-k", overlay]);
    assert!(!applied.contains("Warning"), "{applied}");
    let at = Place {
        namespace: "polity-system",
        name: "polity",
    };
    site.allow(at);
    site.runs_machines(at);

    site.kubectl(&["delete", "-k", overlay, "--wait=false"]);
    // The objects that the bindings needed were applied beside the base, so deleting the overlay leaves them.
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
