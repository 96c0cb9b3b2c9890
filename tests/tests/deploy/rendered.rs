//! The objects that Helm and kustomize render.

use std::path::Path;
use std::process::Output;

use polity_tests::kubernetes::Assets;
use polity_tests::tools::Tools;
use serde_json::Value;

use crate::deploy::site::succeeded;

pub const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/deploy/base");
pub const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/deploy/monitoring");
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/deploy/chart");

/// Everything that watches a host.
pub const WATCHED: &str = "monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,\
                           monitoring.dashboard.enabled=true";

/// `helm template`; it may fail, which is for the test to judge.
pub fn template(tools: &Tools, release: &str, namespace: &str, settings: &[&str]) -> Output {
    let home = tempfile::tempdir().expect("a folder");
    let mut helm = tools.helm(home.path(), None);
    helm.args(["template", release, CHART, "-n", namespace]);
    for set in settings {
        helm.args(["--set", set]);
    }
    helm.output().expect("helm runs")
}

/// The objects of the chart.
pub fn chart(tools: &Tools, release: &str, namespace: &str, settings: &[&str]) -> Vec<Value> {
    objects(&succeeded(template(tools, release, namespace, settings)))
}

/// The objects of the base and of what watches it.
pub fn kustomized(assets: &Assets) -> Vec<Value> {
    // Kustomize takes folders by relative paths: the overlay stands beside them, in a copy.
    let folder = tempfile::tempdir().expect("a folder");
    for (name, source) in [("base", BASE), ("monitoring", MONITORING)] {
        copy(source, &folder.path().join(name));
    }
    let overlay = "resources: [base]\ncomponents: [monitoring]\n";
    std::fs::write(folder.path().join("kustomization.yaml"), overlay).expect("written");
    let mut kubectl = assets.kubectl("/dev/null".as_ref(), folder.path());
    kubectl.arg("kustomize").arg(folder.path());
    objects(&succeeded(kubectl.output().expect("kubectl runs")))
}

/// Copies the files of a folder into a new one.
pub fn copy(source: &str, copied: &Path) {
    std::fs::create_dir_all(copied).expect("a folder");
    for file in std::fs::read_dir(source).expect("a folder") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), copied.join(file.file_name())).expect("copied");
    }
}

pub fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("YAML")
}

/// The one object of a kind.
pub fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("there is no {kind}"));
    assert!(found.next().is_none(), "one {kind}");
    first
}
