//! The main job against a real kube-apiserver with etcd, which dies in the middle and comes back.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};

/// The workflow's constants shortened: against a real server time cannot be.
const BINDING: &str = r#"
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: capv-machine}
spec:
  governs: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}
  policies:
    lifecycle:
      file: capv-machine.wasm
      configuration: {requeuePeriod: 1s, failureBackoff: 2s}
  cloud:
    name: sim
    configuration:
      lag: 1s
      queue: {min: 0s, max: 1s}
      tasks:
        clone: {min: 1s, max: 2s}
        reconfigure: {min: 1s, max: 1s}
        powerOn: {min: 1s, max: 1s}
      dhcp: {min: 1s, max: 2s}
  grants:
    - cloud: ["vm.*", "task.get"]
"#;

fn machines() -> String {
    let mut text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n".to_owned();
    for n in 1..=5 {
        text += &format!(
            "---\napiVersion: capv.polity.dev/v1alpha1\nkind: Machine\nmetadata: {{name: machine-{n}, namespace: team-a}}\n\
             spec: {{template: ubuntu, network: {{devices: [{{networkName: net, dhcp4: true}}]}}}}\n"
        );
    }
    text
}

#[test]
fn machines_converge_against_a_real_api_server_that_is_killed_in_the_middle() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let mut server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("capv-machine.wasm"), guests::capv_machine()).expect("written");
    std::fs::write(folder.path().join("a.yaml"), BINDING).expect("written");
    std::fs::write(folder.path().join("b.yaml"), machines()).expect("written");

    let mut host = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--until-settled", "--deadline", "5m", "--kubeconfig"])
        .arg(server.kubeconfig())
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(host.stdout.take().expect("its output")).lines();
    // The first line of a machine being cloned: the server dies in the middle of the work.
    let cloning = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("Cloning"));
    assert!(cloning, "no machine was cloned");
    server.kill_apiserver();
    server.restart_apiserver();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let ended = host.wait().expect("it ends");
    assert!(ended.success(), "{rest:#?}");

    let shown = server.kubectl(&["get", "machines", "-n", "team-a"]);
    let table = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(table.matches("Running").count(), 5, "{table}");
}

#[test]
fn kubectl_shows_the_same_columns_and_conditions_on_both_servers() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("capv-machine.wasm"), guests::capv_machine()).expect("written");
    std::fs::write(folder.path().join("a.yaml"), BINDING).expect("written");
    std::fs::write(folder.path().join("b.yaml"), machines()).expect("written");

    let real = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--until-settled", "--deadline", "5m", "--kubeconfig"])
        .arg(server.kubeconfig())
        .arg(folder.path())
        .output()
        .expect("it runs");
    assert!(real.status.success(), "{}", String::from_utf8_lossy(&real.stderr));

    let kubeconfig = folder.path().join("polity.kubeconfig");
    let mut embedded = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--listen", "0", "--write-kubeconfig"])
        .arg(&kubeconfig)
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(embedded.stdout.take().expect("its output")).lines();
    let running = lines
        .map_while(Result::ok)
        .filter(|line| line.contains("  Running "))
        .take(5)
        .count();
    assert_eq!(running, 5);

    let queries: [&[&str]; 2] = [
        &["get", "machines", "-n", "team-a", "--sort-by", ".metadata.name"],
        &[
            "get",
            "machines",
            "-n",
            "team-a",
            "-o",
            "jsonpath={.items[*].status.conditions[*]['type','status','reason']}",
        ],
    ];
    for query in queries {
        let ours = assets
            .kubectl(&kubeconfig, folder.path())
            .args(query)
            .output()
            .expect("kubectl runs");
        let theirs = server.kubectl(query);
        let shape = |output: &std::process::Output| -> Vec<String> {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The header, or for conditions everything: ids, addresses and ages differ.
            let lines = if query.contains(&"jsonpath") {
                text.lines().count()
            } else {
                1
            };
            text.lines()
                .take(lines)
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(shape(&ours), shape(&theirs), "{query:?}");
        assert!(
            !shape(&ours).is_empty(),
            "{}",
            String::from_utf8_lossy(&ours.stderr)
        );
    }
    embedded.kill().expect("killed");
    embedded.wait().expect("ended");
}
