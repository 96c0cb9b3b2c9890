//! A cluster that cannot be reached.

use std::process::Command;

#[test]
fn in_cluster_means_the_service_account_whatever_kubeconfig_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("config");
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
                  users: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n";
    std::fs::write(&kubeconfig, config).expect("written");
    let run = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        // Should it reach for that cluster after all, it must come to an end.
        .args(["run", "--in-cluster", "--until-settled", "--deadline", "5s"])
        .env("KUBECONFIG", kubeconfig)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{shown}");
    assert!(shown.contains("service account"), "{shown}");
}
