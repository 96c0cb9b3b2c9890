//! The real API server behaves as other tests assume.

use std::process::Output;

use polity_tests::kubernetes::{Assets, KubeServer};

#[test]
fn a_config_map_survives_a_killed_api_server() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let mut server = KubeServer::start(&assets, tempfile::tempdir().unwrap());

    let versions = stdout(&server.kubectl(&["version"]));
    assert!(versions.contains("Client Version: v1."), "{versions}");
    assert!(versions.contains("Server Version: v1."), "{versions}");

    stdout(&server.kubectl(&["create", "configmap", "kept", "--from-literal=word=stone"]));
    let kubeconfig = std::fs::read(server.kubeconfig()).unwrap();

    server.kill_apiserver();
    let refused = server.kubectl(&["get", "configmap", "kept"]);
    assert!(!refused.status.success(), "a killed server answered: {refused:?}");

    server.restart_apiserver();
    assert_eq!(std::fs::read(server.kubeconfig()).unwrap(), kubeconfig);
    assert_eq!(
        stdout(&server.kubectl(&["get", "configmap", "kept", "-o=jsonpath={.data.word}"])),
        "stone"
    );
}

#[test]
fn nothing_runs_once_a_server_is_dropped() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().unwrap());
    let data = server.data().to_owned();
    let address = stdout(&server.kubectl(&["config", "view", "-o=jsonpath={.clusters[0].cluster.server}"]));
    let address = address.strip_prefix("https://").unwrap();
    assert!(std::net::TcpStream::connect(address).is_ok());

    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
    assert!(!data.exists());
}

#[test]
fn the_controllers_count_a_budget_and_empty_a_namespace() {
    let assets = match Assets::find_with_controllers() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let mut server = KubeServer::start(&assets, tempfile::tempdir().unwrap());
    server.start_controllers();

    stdout(&server.kubectl(&["create", "namespace", "team"]));
    stdout(&server.kubectl(&[
        "create",
        "pdb",
        "web",
        "-n=team",
        "--selector=app=web",
        "--min-available=1",
    ]));
    let counted = "--for=jsonpath={.status.observedGeneration}=1";
    stdout(&server.kubectl(&["wait", counted, "pdb/web", "-n=team", "--timeout=120s"]));
    // Waits until it is gone.
    stdout(&server.kubectl(&["delete", "namespace", "team", "--timeout=120s"]));
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "kubectl failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}
