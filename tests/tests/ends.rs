//! The end of a host: how it stops, how the next host goes on, and when its recordings are removed.

use std::fs;
use std::io::{BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use polity_tests::guests;
use polity_tests::host_fixture::{thing, things};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

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
---
apiVersion: capv.polity.dev/v1alpha1
kind: Machine
metadata: {name: machine-1, namespace: default}
spec: {template: ubuntu, network: {devices: [{networkName: net, dhcp4: true}]}}
"#;

/// A world in which each answer of the cloud takes so long, at this speed.
fn scenario(speed: u32, answer: &str) -> String {
    format!(
        "apiVersion: polity.dev/v1alpha1\nkind: Scenario\nspeed: {speed}\ndeadline: 3h\n\
         cloud: {{answers: {{min: {answer}, max: {answer}}}}}\n\
         expect:\n- that: there is one VM\n  vms: {{count: 1}}\n"
    )
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(scenario: &str) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("given")).expect("created");
        fs::create_dir(folder.path().join("tmp")).expect("created");
        let place = Place { folder };
        place.give("binding.yaml", BINDING);
        place.give("scenario.yaml", scenario);
        fs::write(place.at("given/capv-machine.wasm"), guests::capv_machine()).expect("written");
        place
    }

    fn give(&self, file: &str, text: &str) {
        fs::write(self.at("given").join(file), text).expect("written");
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Under `nohup` the tests ignore a hangup, and what they start would, too.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("TMPDIR", self.at("tmp"));
        command
    }

    fn polity(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it runs")
    }

    /// What the folders of recordings that nobody named are called.
    fn temporary(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.at("tmp")).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| path.display().to_string().contains("polity-recordings"))
            .collect()
    }
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn tell(host: &Child, signal: Signal) {
    let pid = i32::try_from(host.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), signal).expect("it is there");
}

/// Reads what the host says until a line has this in it.
fn until(says: &mut impl std::io::BufRead, what: &str) {
    let mut said = String::new();
    while !said.contains(what) {
        let before = said.len();
        assert!(
            says.read_line(&mut said).expect("text") > 0,
            "never {what:?}: {said}"
        );
        assert!(said.len() > before);
    }
}

/// The rest of what it says, and its exit code.
fn end(mut host: Child, mut says: impl std::io::Read) -> (Option<i32>, String) {
    // What it prints is not wanted, and must not keep it waiting.
    drop(host.stdout.take());
    let mut rest = String::new();
    says.read_to_string(&mut rest).expect("text");
    (host.wait().expect("it ended").code(), rest)
}

/// Every pass of a recording.
fn passes(recording: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> = fs::read_dir(recording.join("passes"))
        .expect("a recording")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("text"));
    texts
        .flat_map(|text| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).expect("a pass"))
        .collect()
}

/// Waits until the machine has its finalizer: then a pass of it is under way, which waits for the cloud.
async fn until_held(config: &Path) {
    let kubeconfig = Kubeconfig::read_from(config).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = Client::try_from(config.await.expect("a configuration")).expect("a client");
    let kind = GroupVersionKind::gvk("capv.polity.dev", "v1alpha1", "Machine");
    let machines: Api<DynamicObject> = Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    loop {
        if let Ok(machine) = machines.get("machine-1").await
            && !machine.finalizers().is_empty()
        {
            return;
        }
    }
}

#[tokio::test]
async fn what_takes_longer_than_its_grace_is_cut_recorded_and_settled_by_the_next_start() {
    // Each answer of the cloud takes four seconds, in real time.
    let place = Place::new(&scenario(1, "4s"));
    let arguments = [
        "run", "given", "--data", "data", "--record", "first", "--grace", "0s", "--listen", "0",
    ];
    let mut host = place.start(&[&arguments[..], &["--write-kubeconfig", "config"]].concat());
    let mut says = BufReader::new(host.stderr.take().expect("its words"));
    until(&mut says, "is loaded");
    until_held(&place.at("config")).await;
    tell(&host, Signal::TERM);
    let (code, rest) = end(host, says);
    assert_eq!(code, Some(0), "{rest}");
    assert!(
        rest.contains("cutting the passes that are still in flight after 0ms"),
        "{rest}"
    );
    assert!(!rest.contains("without giving up the lease"), "{rest}");
    let first = passes(&place.at("first"));
    assert_eq!(first.last().expect("a pass")["outcome"], "stopped");

    place.give("scenario.yaml", &scenario(100, "10ms"));
    let next = place.polity(&["run", "given", "--data", "data", "--until-settled"]);
    assert!(next.status.success(), "{}", shown(&next));
    assert!(!shown(&next).contains("holds it"), "{}", shown(&next));
}

#[tokio::test]
async fn a_host_that_is_killed_keeps_the_next_one_in_its_folder_from_nothing() {
    let place = Place::new(&scenario(1, "4s"));
    let arguments = [
        "run",
        "given",
        "--data",
        "data",
        "--listen",
        "0",
        "--write-kubeconfig",
        "config",
    ];
    let mut host = place.start(&arguments);
    let mut says = BufReader::new(host.stderr.take().expect("its words"));
    until(&mut says, "is loaded");
    until_held(&place.at("config")).await;
    tell(&host, Signal::KILL);
    assert_eq!(end(host, says).0, None, "it was killed");

    place.give("scenario.yaml", &scenario(100, "10ms"));
    let next = place.polity(&["run", "given", "--data", "data", "--until-settled"]);
    assert!(next.status.success(), "{}", shown(&next));
    assert!(
        !shown(&next).contains("holds it"),
        "the dead one does not: {}",
        shown(&next)
    );
}

#[test]
fn signals_stop_it_before_it_began_as_well_and_a_hangup_is_one() {
    for signal in [Signal::HUP, Signal::TERM, Signal::INT] {
        let place = Place::new(&scenario(1, "10ms"));
        let arguments = ["run", "given", "--listen", "0", "--write-kubeconfig", "config"];
        let mut host = place.start(&arguments);
        let mut says = BufReader::new(host.stderr.take().expect("its words"));
        // Long before its policy is compiled.
        until(&mut says, "serving");
        tell(&host, signal);
        let (code, rest) = end(host, says);
        assert_eq!(code, Some(0), "{signal:?}: {rest}");
    }
}

#[test]
fn a_host_that_waits_for_the_lease_or_cannot_reach_it_says_why() {
    let place = Place::new(&scenario(1, "10ms"));
    let arguments = ["run", "given", "--listen", "0", "--write-kubeconfig", "config"];
    let mut first = place.start(&arguments);
    let mut says = BufReader::new(first.stderr.take().expect("its words"));
    until(&mut says, "is loaded");
    let mut second = place.start(&["run", "--kubeconfig", "config", "--grace", "0s"]);
    let mut second_says = BufReader::new(second.stderr.take().expect("its words"));
    until(&mut second_says, "holds it, and this host waits for it");
    // The API server goes with the first.
    tell(&first, Signal::TERM);
    assert_eq!(end(first, says).0, Some(0));
    until(&mut second_says, "the lease: it cannot be read or renewed");
    tell(&second, Signal::TERM);
    let (code, rest) = end(second, second_says);
    assert_eq!(code, Some(0), "{rest}");
    assert!(
        rest.matches("the lease: ").count() < 3,
        "not again and again: {rest}"
    );
}

#[test]
fn a_host_whose_data_folder_is_deleted_ends_with_an_error() {
    let place = Place::new(&scenario(100, "10ms"));
    let mut host = place.start(&["run", "given", "--data", "data", "--record", "kept"]);
    let mut says = BufReader::new(host.stderr.take().expect("its words"));
    until(&mut says, "is loaded");
    remove(&place, "data");
    let (code, rest) = end(host, says);
    assert_eq!(code, Some(2), "{rest}");
    assert!(
        rest.contains("the database file was deleted: objects can no longer be stored"),
        "{rest}"
    );
    assert!(rest.lines().count() < 20, "said once: {rest}");
}

#[test]
fn a_cloud_without_its_objects_is_refused() {
    let place = Place::new(&scenario(100, "10ms"));
    let ran = place.polity(&["run", "given", "--data", "data", "--until-settled"]);
    assert!(ran.status.success(), "{}", shown(&ran));
    fs::remove_file(place.at("data/objects.redb")).expect("removed");
    let again = place.polity(&["run", "given", "--data", "data", "--until-settled"]);
    assert_eq!(again.status.code(), Some(2));
    let said = shown(&again);
    assert!(
        said.contains("cloud-sim.redb but not objects.redb") && said.contains("put"),
        "{said}"
    );
}

#[test]
fn objects_without_their_cloud_are_refused() {
    let place = Place::new(&scenario(100, "10ms"));
    let run = || place.polity(&["run", "given", "--data", "data", "--until-settled"]);
    let ran = run();
    assert!(ran.status.success(), "{}", shown(&ran));
    let cloud = place.at("data/cloud-sim.redb");
    let whole = fs::read(&cloud).expect("it is kept");
    fs::write(&cloud, "").expect("emptied");
    for _ in ["empty", "missing"] {
        let again = run();
        assert_eq!(again.status.code(), Some(2));
        let said = shown(&again);
        assert!(
            said.contains("put cloud-sim.redb back, or start with an empty folder"),
            "{said}"
        );
        let _ = fs::remove_file(&cloud);
    }
    fs::write(&cloud, whole).expect("put back");
    let again = run();
    assert!(again.status.success(), "{}", shown(&again));
}

/// The lease would last for 13 ms.
#[test]
fn the_highest_speed_needs_no_lease() {
    let place = Place::new(&scenario(1_000, "1s"));
    let ran = place.polity(&["run", "given", "--until-settled", "--deadline", "48h"]);
    assert!(ran.status.success(), "{}", shown(&ran));
    let served = place.polity(&["run", "given", "--until-settled", "--listen", "0"]);
    assert_eq!(served.status.code(), Some(2), "{}", shown(&served));
    assert!(
        shown(&served).contains("--listen goes with a speed of at most 100"),
        "{}",
        shown(&served)
    );
}

#[test]
fn a_restart_says_which_manifests_are_not_applied_again_and_that_its_scenario_is_not_given() {
    let place = Place::new(
        "apiVersion: polity.dev/v1alpha1\nkind: Scenario\nspeed: 100\ndeadline: 3h\nsteps:\n\
         - when: {object: &m {apiVersion: capv.polity.dev/v1alpha1, kind: Machine, namespace: default, name: machine-1},\n    \
         path: status.phase, equals: Running}\n  delete: *m\n",
    );
    let run = |given: &[&str]| {
        let ran = place.polity(&[given, &["--data", "data", "--until-settled"][..]].concat());
        assert!(ran.status.success(), "{}", shown(&ran));
        shown(&ran)
    };
    let said = run(&["run", "given"]);
    assert!(!said.contains("did not change"), "{said}");
    let said = run(&["run", "given"]);
    assert!(
        said.contains("2 manifests did not change since they were applied"),
        "{said}"
    );
    assert!(
        said.contains("so they stay away: Machine machine-1 (change"),
        "{said}"
    );
    assert!(!said.contains("PolicyBinding"), "{said}");
    let said = run(&["run", "--policies", "given"]);
    assert!(
        said.contains("the scenario of this data folder does not go on"),
        "{said}"
    );
}

#[test]
fn a_clock_that_is_no_time_is_refused() {
    let place = Place::new(&scenario(100, "10ms"));
    fs::create_dir(place.at("data")).expect("created");
    for garbage in ["", "soon", "-1", "99999999999999999999999", "\u{0}"] {
        fs::write(place.at("data/time"), garbage).expect("written");
        let ran = place.polity(&["run", "given", "--data", "data"]);
        assert_eq!(ran.status.code(), Some(2), "{garbage:?}");
        assert!(
            shown(&ran).contains("time in the data folder is not a time"),
            "{}",
            shown(&ran)
        );
    }
}

#[test]
fn a_host_without_bindings_says_so_and_what_to_do() {
    let place = Place::new("");
    for (arguments, advice) in [
        (&["run"][..], "name a DIR or FILE with manifests"),
        (
            &["run", "--listen", "0"],
            "waiting for one to be applied with kubectl",
        ),
    ] {
        let mut host = place.start(arguments);
        let mut says = BufReader::new(host.stderr.take().expect("its words"));
        until(&mut says, advice);
        tell(&host, Signal::TERM);
        assert_eq!(end(host, says).0, Some(0));
    }
}

/// Removes a folder under a host that writes to it. First it leaves its place in one step: otherwise the host may make a
/// file in it after its files were listed, and it cannot be removed.
fn remove(place: &Place, folder: &str) {
    fs::rename(place.at(folder), place.at("gone")).expect("moved away");
    fs::remove_dir_all(place.at("gone")).expect("removed");
}

#[test]
fn a_deleted_recording_is_begun_anew() {
    let place = Place::new(&scenario(100, "10ms"));
    let mut host = place.start(&["run", "given", "--record", "kept"]);
    let mut lines = BufReader::new(host.stdout.take().expect("its lines"));
    until(&mut lines, "machine-1");
    remove(&place, "kept");
    until(&mut lines, "Running");
    tell(&host, Signal::TERM);
    drop(lines);
    let mut says = host.stderr.take().expect("its words");
    let mut said = String::new();
    says.read_to_string(&mut said).expect("text");
    assert!(host.wait().expect("it ended").success(), "{said}");
    assert!(!passes(&place.at("kept")).is_empty(), "{said}");
    let explained = place.polity(&["explain", "Machine", "default/machine-1"]);
    assert!(explained.status.success(), "{}", shown(&explained));
    assert!(
        String::from_utf8_lossy(&explained.stdout)
            .contains("The VM has addresses: the machine is as it should be."),
        "with its policy"
    );
}

/// A clock so slow that the first pass of a Thing does not end before the test does: the pass waits for the watch of a kind
/// that nothing serves.
#[test]
fn explain_shows_what_an_object_waits_for_whose_first_pass_has_not_ended() {
    let place = Place::new(&scenario(1, "10ms"));
    let gadgets = json!({"apiVersion": "test.polity.example/v1", "kind": "Gadget"});
    let mut binding = things();
    binding["spec"]["grants"] = json!([{"ask": gadgets}]);
    let mut thing = thing("one", "wish");
    let wishes = json!([{"objects": gadgets}]).to_string();
    thing["metadata"]["annotations"]["wishes"] = wishes.into();
    place.give("binding.yaml", &format!("{binding}\n---\n{thing}"));
    fs::write(place.at("given/hostile.wasm"), guests::hostile()).expect("written");
    let mut host = place.start(&["run", "given", "--record", "kept", "--speed", "0.1"]);
    let explain = |name: &str, format: &str| {
        place.polity(&["explain", "Thing", name, "--recordings", "kept", "-o", format])
    };
    let explained = loop {
        let explained = explain("default/one", "text");
        let ended = host.try_wait().expect("a process");
        assert!(ended.is_none(), "{}", shown(&explained));
        if explained.status.success() {
            break String::from_utf8_lossy(&explained.stdout).into_owned();
        }
    };
    assert!(explained.contains("  waits for "), "{explained}");
    assert!(!explained.contains("  because: "), "{explained}");
    // What it waited for first may have been its turn.
    let watch = "waits for the watch of Gadget";
    while !String::from_utf8_lossy(&explain("default/one", "text").stdout).contains(watch) {
        assert!(passes(&place.at("kept")).is_empty(), "never {watch:?}");
    }
    let document = explain("default/one", "json");
    let document: Value = serde_json::from_slice(&document.stdout).expect("one document");
    assert_eq!(document["waiting"]["kind"]["kind"], "Thing", "{document}");
    let unknown = explain("default/two", "text");
    assert!(shown(&unknown).contains("holds no pass of Thing default/two"));
    tell(&host, Signal::KILL);
    host.wait().expect("it ended");
}

#[test]
fn a_damaged_byte_costs_its_pass_and_no_other() {
    let place = Place::new(&scenario(100, "10ms"));
    let ran = place.polity(&["run", "given", "--record", "kept", "--until-settled"]);
    assert!(ran.status.success(), "{}", shown(&ran));
    let all = passes(&place.at("kept"));
    let file = place.at("kept/passes/000001.jsonl");
    let mut bytes = fs::read(&file).expect("a recording");
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let second = ends.nth(1).expect("a line").0 + 10;
    bytes[second] = 0xff;
    fs::write(&file, bytes).expect("written");
    let explained = place.polity(&["explain", "Machine", "default/machine-1", "-o", "json"]);
    assert!(explained.status.success(), "{}", shown(&explained));
    assert_eq!(
        explained.stdout.split(|byte| *byte == b'\n').count() - 1,
        all.len() - 1
    );
    assert!(
        shown(&explained).contains("1 damaged line"),
        "{}",
        shown(&explained)
    );
}

#[test]
fn machine_code_is_kept_in_the_user_s_cache_unless_a_variable_says_otherwise() {
    let place = Place::new(&scenario(100, "10ms"));
    let ran = |compiled: Option<&str>| {
        let mut command = place.command(&["run", "given", "--until-settled"]);
        command
            .env("XDG_CACHE_HOME", place.at("cache"))
            .env_remove("POLITY_COMPILED");
        if let Some(compiled) = compiled {
            command.env("POLITY_COMPILED", compiled);
        }
        let ran = command.output().expect("it runs");
        assert!(ran.status.success(), "{}", shown(&ran));
    };
    // What a start compiles anew is a new file.
    let kept = |folder: &str| -> Vec<u64> {
        let entries = fs::read_dir(place.at(folder)).into_iter().flatten();
        entries
            .map(|entry| entry.and_then(|entry| entry.metadata()).expect("a file").ino())
            .collect()
    };
    ran(Some(""));
    assert!(!place.at("cache").exists(), "an empty variable keeps none");
    ran(None);
    let first = kept("cache/polity/compiled");
    assert_eq!(first.len(), 1);
    ran(None);
    assert_eq!(kept("cache/polity/compiled"), first, "it was compiled once more");
    ran(Some("named"));
    assert_eq!(kept("named").len(), 1);
}

#[test]
fn a_named_pipe_in_a_recording_holds_up_no_reader() {
    let place = Place::new(&scenario(100, "10ms"));
    let pipe = |name: &str| {
        let path = place.at(name);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        );
        made.expect("a pipe");
        path
    };
    for folder in ["kept/passes", "kept/policies"] {
        fs::create_dir_all(place.at(folder)).expect("a folder");
    }
    for name in [
        "kept/policies/0.json",
        "kept/passes/000001.jsonl",
        "kept/passes/000001.jsonl.gz",
        "kept/waiting.json",
    ] {
        let path = pipe(name);
        for reader in ["explain", "get", "top", "edges"] {
            let arguments: &[&str] = match reader {
                "explain" => &["explain", "Machine", "default/machine-1", "--recordings", "kept"],
                "edges" => &["edges", "kept"],
                _ => &[reader, "--recordings", "kept"],
            };
            let read = place.polity(arguments);
            assert!(read.status.code().is_some(), "{name}: {}", shown(&read));
        }
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn of_recordings_that_nobody_named_only_the_newest_is_kept() {
    let place = Place::new(&scenario(100, "10ms"));
    let ran = || {
        let ran = place.polity(&["run", "given", "--until-settled"]);
        assert!(ran.status.success(), "{}", shown(&ran));
        place.temporary()
    };
    let first = ran();
    assert_eq!(first.len(), 1);
    let explained = place.polity(&["explain", "Machine", "default/machine-1"]);
    assert!(explained.status.success(), "{}", shown(&explained));
    let second = ran();
    assert_eq!(second.len(), 1);
    assert_ne!(first, second);
    // One whose host still runs stays, and is removed by that host if it is not the newest any more.
    let mut host = place.start(&["run", "given"]);
    let mut says = BufReader::new(host.stderr.take().expect("its words"));
    until(&mut says, "is loaded");
    let third = place.temporary();
    assert_eq!(ran().len(), 2);
    tell(&host, Signal::TERM);
    let (code, rest) = end(host, says);
    assert_eq!(code, Some(0), "{rest}");
    assert_eq!(place.temporary().len(), 1);
    assert_ne!(place.temporary(), third);
}

#[test]
fn what_cannot_go_with_a_cluster_is_said_before_anything_is_applied() {
    let place = Place::new(&scenario(40, "10ms"));
    let run = |paths: &[&str], more: &[&str]| {
        let output = place.polity(&[&["run", "--kubeconfig", "nowhere"][..], more, paths].concat());
        assert_eq!(output.status.code(), Some(2));
        shown(&output)
    };
    let said = run(&["given"], &[]);
    assert!(
        said.contains("the scenario's `speed: 40` is for standalone"),
        "{said}"
    );
    place.give(
        "binding.yaml",
        &BINDING.replace("file: capv-machine.wasm", "crate: ../policy"),
    );
    let said = run(&["given/binding.yaml"], &[]);
    assert!(
        said.contains("names the policy crate ../policy: add --build-crates"),
        "{said}"
    );
    let said = run(&["given/binding.yaml"], &["--build-crates"]);
    assert!(said.contains("cannot connect to the cluster"), "{said}");
}
