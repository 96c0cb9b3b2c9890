//! The main example with a real kube-apiserver and etcd, which is killed in the middle and comes back.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use polity::recording::Recording;
use polity_core::contract::{Act, Entry, Request};
use polity_tests::evidence::wrong_notes;
use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};
use polity_tests::simulation::store::merge;
use serde_json::Value;

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

/// What must hold in the end, whatever died meanwhile.
const EXPECTED: &str = "
apiVersion: polity.dev/v1alpha1
kind: Scenario
seed: 7
expect:
  - that: each machine has one VM, and there are no others
    vms: {count: 5, oneForEach: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}}
";

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

/// A folder with everything that `polity run` needs.
fn manifests() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |file: &str, bytes: &[u8]| std::fs::write(folder.path().join(file), bytes).expect("written");
    write("capv-machine.wasm", guests::capv_machine());
    write("a.yaml", BINDING.as_bytes());
    write("b.yaml", machines().as_bytes());
    write("c.yaml", EXPECTED.as_bytes());
    folder
}

/// What became of a machine.
#[derive(Debug, Default, PartialEq)]
struct Fate {
    /// The changes of the cloud that were performed for it, in order. But for the creation, one that is performed again
    /// counts once: what the cloud shows lags behind, and whether it was noticed could not be written down.
    acts: Vec<String>,
    phase: Value,
    /// Type, status and reason of each.
    conditions: Vec<[Value; 3]>,
}

impl Fate {
    fn ends_as(&mut self, machine: &Value) {
        let status = &machine["status"];
        self.phase = status["phase"].clone();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        self.conditions = conditions
            .map(|condition| ["type", "status", "reason"].map(|field| condition[field].clone()))
            .collect();
    }
}

/// What became of each machine, as its passes tell it.
fn fates(recording: &Path) -> BTreeMap<String, Fate> {
    let mut fates = BTreeMap::<String, Fate>::new();
    let recording = Recording::open(recording).expect("a recording");
    let read = recording.passes(|pass| {
        assert_eq!(wrong_notes(&pass), [""; 0]);
        let fate = fates.entry(pass.key.name.to_string()).or_default();
        let mut machine: Value =
            serde_json::from_str(pass.object.as_deref().expect("an object")).expect("JSON");
        for role in &pass.roles {
            for act in role.journal.iter().filter_map(performed) {
                if act == "vm.clone" || fate.acts.last() != Some(&act) {
                    fate.acts.push(act);
                }
            }
            if let Some(patch) = role.conclusion.as_ref().and_then(|end| end.patch.as_ref()) {
                merge(&mut machine, &serde_json::from_str(patch).expect("JSON"));
            }
        }
        fate.ends_as(&machine);
    });
    read.expect("it is whole");
    fates
}

fn performed(entry: &Entry) -> Option<String> {
    match &entry.request {
        Request::Act(Act::Cloud(act)) if entry.answer.is_ok() => Some(act.operation.clone()),
        _ => None,
    }
}

/// What becomes of the machines where nothing breaks.
fn unbroken(folder: &Path) -> BTreeMap<String, Fate> {
    let recording = tempfile::tempdir().expect("a folder");
    let run = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--until-settled", "--speed", "20", "--record"])
        .args([recording.path(), folder])
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    fates(recording.path())
}

#[test]
fn a_real_api_server_that_is_killed_in_the_middle_changes_nothing_of_what_becomes_of_the_machines() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let mut server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let (folder, recording) = (manifests(), tempfile::tempdir().expect("a folder"));
    let mut host = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--until-settled", "--deadline", "5m", "--record"])
        .arg(recording.path())
        .arg("--kubeconfig")
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

    // What the passes tell, and what stands in the server.
    let wanted = unbroken(folder.path());
    assert_eq!(wanted.len(), 5);
    assert_eq!(
        wanted["machine-1"].acts,
        ["vm.clone", "vm.reconfigure", "vm.power-on"]
    );
    let mut broken = fates(recording.path());
    assert_eq!(broken, wanted);
    let shown = server.kubectl(&["get", "machines", "-n", "team-a", "-o", "json"]);
    let stored: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    for machine in stored["items"].as_array().expect("a list") {
        let name = machine["metadata"]["name"].as_str().expect("a name");
        broken.get_mut(name).expect("its passes").ends_as(machine);
    }
    assert_eq!(broken, wanted);
}

#[test]
fn kubectl_shows_the_same_columns_and_conditions_on_both_servers() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let folder = manifests();

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
