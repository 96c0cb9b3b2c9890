//! SIGKILL at any moment: after the next start the work goes on, no VM was created twice, and none is lost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use polity_tests::guests;

const BINDING: &str = r#"
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: capv-machine}
spec:
  governs: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}
  policies:
    lifecycle: {file: capv-machine.wasm}
  cloud: {name: sim}
  grants:
    - cloud: ["vm.*", "task.get"]
"#;

const SCENARIO: &str = r#"
apiVersion: polity.dev/v1alpha1
kind: Scenario
seed: 3
speed: 40
deadline: 2h
expect:
  - that: every machine runs
    objects:
      apiVersion: capv.polity.dev/v1alpha1
      kind: Machine
      count: 4
      each: [{path: status.phase, equals: Running}, {path: status.pending, present: false}]
  - that: each has one VM
    vms: {count: 4, oneForEach: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}}
"#;

fn manifests(folder: &Path) {
    let mut machines = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n".to_owned();
    for n in 1..=4 {
        machines += &format!(
            "---\napiVersion: capv.polity.dev/v1alpha1\nkind: Machine\nmetadata: {{name: machine-{n}, namespace: team-a}}\n\
             spec: {{template: ubuntu, network: {{devices: [{{networkName: net, dhcp4: true}}]}}}}\n"
        );
    }
    for (file, text) in [("a.yaml", BINDING), ("b.yaml", &*machines), ("c.yaml", SCENARIO)] {
        std::fs::write(folder.join(file), text).expect("written");
    }
    std::fs::write(folder.join("capv-machine.wasm"), guests::capv_machine()).expect("written");
}

fn host(folder: &Path, data: &Path) -> Command {
    let mut host = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    host.args(["run", "--until-settled", "--data"])
        .arg(data)
        .arg(folder);
    host
}

#[test]
fn killed_again_and_again_it_makes_no_vm_twice_and_loses_none() {
    let (folder, data) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    manifests(folder.path());
    // At the start, in the middle of the clones, between their ends, and late.
    for lines in [0, 1, 3, 6, 9] {
        let mut host = host(folder.path(), data.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output = BufReader::new(host.stdout.take().expect("its output")).lines();
        let _ = output.map_while(Result::ok).take(lines).count();
        host.kill().expect("killed");
        host.wait().expect("ended");
    }
    let last = host(folder.path(), data.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&last.stderr);
    assert!(last.status.success(), "{said}");
    assert!(said.contains("as expected: each has one VM"), "{said}");
}
