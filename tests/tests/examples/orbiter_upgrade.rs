//! The example `orbiter-upgrade`.

use std::collections::BTreeSet;
use std::time::Duration;

use polity_core::contract::{Act, Failure, Json, Request};
use polity_core::record::PassRecord;
use polity_core::time::Boot;
use polity_tests::examples;
use polity_tests::passes::{edges_of, explained};
use serde_json::Value;

use crate::resumed::{Point, ends_as_expected, said_until};

const NODES: [&str; 4] = ["demo-cp-0", "demo-w-0", "demo-w-1", "demo-w-2"];
const ALLOWED: &str = "alpha.node.caos.ch/changes-allowed";

/// The agent of this node says that packages are being installed.
const INSTALLS: Point = (&["Node demo-w-0 ", "Packages are told to be installed"], 1);

/// The edges that were taken, in order; of passes that were alike the first alone.
fn took(passes: &[PassRecord]) -> String {
    let all = passes.iter().map(|pass| edges_of(pass, "ORB-"));
    let mut all: Vec<String> = all.filter(|edges| !edges.is_empty()).collect();
    all.dedup();
    all.join(" ")
}

/// What came of it whenever a cloud was told to do this.
fn told<'a>(passes: &'a [PassRecord], operation: &str) -> Vec<&'a Result<Json, Failure>> {
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let entries = roles.flat_map(|role| &role.journal);
    let told =
        |request: &Request| matches!(request, Request::Act(Act::Cloud(act)) if act.operation == operation);
    let told = entries.filter(|entry| told(&entry.request));
    told.map(|entry| &entry.answer).collect()
}

/// How often a cloud was told to do this.
fn acts(passes: &[PassRecord], operation: &str) -> usize {
    told(passes, operation).len()
}

/// How many boots of a machine its agent has seen.
fn boots(passes: &[PassRecord]) -> usize {
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let answers = roles.flat_map(|role| &role.journal).filter_map(|entry| {
        let answer: Value = serde_json::from_str(entry.answer.as_ref().ok()?).expect("JSON");
        answer["bootId"].as_str().map(str::to_owned)
    });
    answers.collect::<BTreeSet<_>>().len()
}

fn object(pass: &PassRecord) -> Value {
    let object = pass.object.as_deref();
    object.map_or(Value::Null, |json| serde_json::from_str(json).expect("JSON"))
}

/// When the node may be changed, as its agent saw it: from and until.
fn allowed(passes: &[PassRecord]) -> (Boot, Boot) {
    let is_allowed = |pass: &PassRecord| object(pass)["metadata"]["annotations"][ALLOWED] == "true";
    let at: Vec<usize> = (0..passes.len()).filter(|i| is_allowed(&passes[*i])).collect();
    let (first, last) = (at[0], at[at.len() - 1]);
    assert_eq!(at.len(), last - first + 1, "once, and without a break");
    (passes[first].started.boot, passes[last].started.boot)
}

#[test]
fn nodes_are_upgraded_one_by_one_and_an_agent_that_is_away_is_waited_for() {
    let ran = super::run("orbiter-upgrade");
    let orb = ran.passes("Orb", "demo");
    let mut changing: Vec<String> = orb
        .iter()
        .filter_map(|pass| {
            object(pass)["status"]["changing"]["node"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    changing.dedup();
    assert_eq!(changing, NODES);
    assert!(took(&orb).contains(" 29 "), "{}", took(&orb));
    assert_eq!(acts(&orb, "pool.add-machine"), 4);
    assert_eq!(acts(&orb, "kubeadm.init"), 1);

    let mut until = Boot::default();
    for node in NODES {
        let passes = ran.passes("Node", node);
        let all = took(&passes);
        assert!(all.ends_with("20 21a 21b 25 32 26 11 12"), "{node}: {all}");
        assert_eq!(
            acts(&passes, "node.reboot"),
            2,
            "{node}: to be prepared, and for the kernel"
        );
        assert_eq!(acts(&passes, "node.ensure"), 2, "{node}");
        let last = object(passes.last().expect("a pass"));
        let annotations = &last["metadata"]["annotations"];
        assert_eq!(annotations["alpha.kubelet.caos.ch/current-version"], "1.31.1");
        assert_eq!(
            annotations["alpha.linux-image-amd64.caos.ch/current-version"],
            "6.1.94-1"
        );
        let (from, to) = allowed(&passes);
        assert!(from > until, "{node} may change before the one before is done");
        until = to;
    }

    // Nobody was there for three minutes.
    let passes = ran.passes("Node", "demo-w-1");
    let pauses = passes
        .windows(2)
        .map(|pair| pair[1].started.boot - pair[0].started.boot);
    assert!(pauses.max() > Some(Duration::from_secs(170)));
    let shown = ran.explained("Orb", "demo");
    assert!(
        shown.contains("the disruption budget shop never allows it"),
        "{shown}"
    );
}

#[test]
fn a_host_that_is_killed_while_packages_are_installed_installs_nothing_twice() {
    // On a busy machine, too, the kill comes while packages are installed: there are six seconds for it.
    let slow = [
        ("speed: 60", "speed: 20"),
        ("takes: {min: 30s, max: 60s}", "takes: {min: 2m, max: 2m}"),
    ];
    let folder = examples::copy_with("orbiter-upgrade", &slow);
    let data = tempfile::tempdir().expect("a folder");
    let said = said_until(folder.path(), data.path(), Some(INSTALLS));
    let last = said.last().expect("it says something");
    assert!(last.contains(INSTALLS.0[1]), "it ended before that: {last}");

    let data_path = data.path().to_owned();
    let ran = super::Ran {
        recording: data_path.join("recordings"),
        _folder: data,
    };
    let before = ran.passes("Node", "demo-w-0");
    ends_as_expected(folder.path(), &data_path);
    // Each start begins a session, and the newest one is read.
    let after = &ran.passes("Node", "demo-w-0")[..];
    let all = [
        "explain",
        "Node",
        "demo-w-0",
        "--all",
        "-o",
        "json",
        "--recordings",
    ];
    assert_eq!(explained(&ran.asked(&all)), [&before, after].concat());
    let took = took(after);
    let reboots = told(after, "node.reboot");
    assert_eq!(reboots.len(), 1, "{took}");
    // The agent notes what it did, and does not know whether it did it while there is no answer.
    let end = match reboots[0] {
        Ok(_) => "25 32 26 11 12",
        Err(_) => "32 26 11 12",
    };
    assert!(took.ends_with(end), "{took}");
    assert_eq!(acts(after, "node.ensure"), 0, "{took}");
    assert_eq!(boots(after), 2, "it rebooted once: {took}");
}
