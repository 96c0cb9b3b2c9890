//! Fuzzes files: manifests and scenarios, which are read and played, and recordings, which are read.
//!
//! A file that cannot be read is an error that names the place. Nothing may panic. A scenario that can be
//! read can be played against an API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polity::edges;
use polity::manifests::Manifests;
use polity::recording::Recording;
use polity::scenario::{Scenario, Step};
use polity_core::binding::BindingSpec;
use polity_core::record::PassRecord;
use polity_sim::{Sim, SimConfig};

use super::Choices;
use crate::host_harness::{BEGIN, Site};

/// How long a scenario is played, by the runtime's time.
const PLAYED: Duration = Duration::from_secs(3_600);
/// The most steps and expectations of a scenario that are played.
const MOST: usize = 16;

/// Reads these bytes as manifests or as a recording.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let recording = choices.byte() == b'#';
    let folder = tempfile::tempdir().expect("a folder");
    if recording {
        read_recording(folder.path(), choices.rest());
    } else {
        read_manifests(folder.path(), data);
    }
}

fn read_manifests(folder: &Path, text: &[u8]) {
    let path = folder.join("manifests.yaml");
    std::fs::write(&path, text).expect("written");
    let (whole, alone) = (Manifests::read(&[folder.to_owned()]), Manifests::read(&[path]));
    assert_eq!(whole.is_ok(), alone.is_ok(), "a folder is its files");
    let Ok(manifests) = whole else {
        return;
    };
    for binding in &manifests.bindings {
        let _ = serde_json::from_value::<BindingSpec>(binding["spec"].clone());
    }
    if let Some(scenario) = manifests.scenario {
        play(scenario, &manifests.objects);
    }
}

/// Plays a scenario in a cluster with the objects that stand beside it.
fn play(mut scenario: Scenario, objects: &[serde_json::Value]) {
    scenario.steps.truncate(MOST);
    scenario.expect.truncate(MOST);
    if let Some(Ok(config)) = scenario.cloud.clone().map(serde_json::from_value::<SimConfig>) {
        let mut sim = Sim::new(config, scenario.seed, BEGIN.0);
        sim.begin(BEGIN.0 + 1_000);
        sim.advance(BEGIN.0 + 60_000);
        let _ = sim.vms(BEGIN.0 + 60_000);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let site = Site::new(scenario.seed, scenario.cloud.clone());
        for object in objects.iter().take(MOST) {
            let _ = site.cluster.apply(object).await;
        }
        let running = site.play(&scenario).await;
        tokio::time::sleep(PLAYED).await;
        let may_wait = scenario.steps.iter().filter(|step| !is_due(step)).count();
        let left = running.steps_left();
        assert!(
            left.len() <= may_wait,
            "{left:?} are left, and {may_wait} may wait"
        );
        for expectation in &scenario.expect {
            let _ = expectation.check(&site.cluster, &site.clouds).await;
        }
    });
}

/// Whether a step must be taken or have failed when the time played is over. A step with a condition may wait for ever. Steps
/// are taken one after another, so a step may be taken late; it has half of the time for that.
fn is_due(step: &Step) -> bool {
    let [at, after] = [step.at, step.after].map(|time| Duration::from(time.unwrap_or_default()));
    step.when.is_none() && at.saturating_add(after) <= PLAYED / 2
}

/// A recording: the manifest of a policy, and after a zero its passes.
fn read_recording(folder: &Path, bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let write = |name: &str, bytes: &[u8]| {
        let path: PathBuf = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    };
    write("policies/0.json", part());
    write("passes/000001.jsonl", part());
    write("passes/x.jsonl", b"");
    let recording = Recording::open(folder).expect("a folder opens");
    let manifests = recording.manifests();
    let mut seen = Vec::new();
    let _ = recording.passes(|record| seen.push(record));
    for record in &seen {
        let text = serde_json::to_string(record).expect("a record is JSON");
        let again: PassRecord = serde_json::from_str(&text).expect("what was written is read");
        assert_eq!(again, *record, "{text}");
        if let Ok(manifests) = &manifests {
            let _ = edges::taken(record, manifests);
        }
    }
}
