//! Policies whose compilation takes all time or memory that there is: they are stopped and tried again later. A policy whose
//! schema of the configuration would take it is refused. Nothing else waits for them.

use std::sync::Arc;

use polity::install::Target;
use polity::manifests::Manifests;
use polity_sandbox::{Compiler, Confined, Sandbox, SandboxConfig};
use polity_tests::guests;
use polity_tests::host_fixture::{condition_of, machine, machines, reference, things};
use polity_tests::host_harness::{Host, Site};
use polity_tests::simulation::bindings::MACHINES;
use serde_json::{Value, json};

/// Enough for the shipped policies, and little for a bomb.
const COMPILE_MEMORY: u64 = 300 << 20;

/// A host whose policies are compiled by processes of their own, and its folder of policies.
struct Confining {
    site: Site,
    folder: tempfile::TempDir,
}

impl Confining {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sandbox = Sandbox::new(SandboxConfig {
            compile_memory: COMPILE_MEMORY,
            ..SandboxConfig::new(Compiler::Child(Confined::program(env!(
                "CARGO_BIN_EXE_polity-under-test"
            ))))
        });
        let mut site = Site::new(1, None);
        site.load_with(Arc::new(sandbox.expect("an engine")), folder.path());
        let confining = Confining { site, folder };
        confining.put("capv-machine.wasm", guests::capv_machine());
        confining.put("hostile.wasm", guests::hostile());
        confining.put("bomb.wasm", &guests::component_of(&[guests::bomb(600_000)]));
        confining.put("schema.wasm", &guests::hostile_schema(&exploding()));
        confining
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, bytes).expect("written");
        std::fs::rename(new, self.folder.path().join(file)).expect("renamed");
    }

    /// Waits until a binding says this of itself; all of what it says.
    async fn until_said(&self, host: &Host, binding: &str, loaded: &str, words: &str) -> String {
        let name = reference("polity.dev/v1alpha1", "PolicyBinding", None, binding);
        let mut last = Value::Null;
        for _ in 0..4_000 {
            let object = self.site.get(&name).await.unwrap_or_default();
            last = condition_of(&object, "Loaded").cloned().unwrap_or_default();
            let message = last["message"].as_str().unwrap_or_default();
            if last["status"] == loaded && message.contains(words) {
                return message.to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        panic!(
            "{binding} never said {words:?}, but {last}: {:?}",
            host.handle.view().await
        );
    }

    async fn until_runs(&self, vm: &str) {
        for _ in 0..4_000 {
            let machines = self.site.list(MACHINES, "Machine").await;
            let runs = |machine: &Value| {
                machine["metadata"]["name"] == vm && machine["status"]["phase"] == "Running"
            };
            if machines.iter().any(runs) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        panic!("{vm} never runs");
    }
}

/// A small schema whose default value is compared with each of very many alternatives.
fn exploding() -> Value {
    let alternatives = std::iter::repeat_n(json!({"const": 1}), 250).chain([json!({})]);
    let items = json!({"anyOf": alternatives.collect::<Value>()});
    json!({"properties": {"a": {"default": vec![0; 4_000], "items": items}}})
}

/// Governs ConfigMaps by this file.
fn binding(name: &str, file: &str) -> Value {
    let mut binding = things();
    binding["metadata"]["name"] = name.into();
    binding["spec"]["policies"]["lifecycle"]["file"] = file.into();
    binding["spec"]["governs"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    binding
}

#[tokio::test(start_paused = true)]
async fn bombs_hold_up_neither_the_start_nor_others_and_are_tried_again_later_each_time() {
    let confining = Confining::new();
    let said = confining
        .site
        .try_apply(
            &Manifests {
                bindings: vec![
                    binding("bomb", "bomb.wasm"),
                    binding("schema", "schema.wasm"),
                    machines(),
                ],
                objects: vec![machine("default", "vm")],
                ..Manifests::default()
            },
            Target::Standalone,
        )
        .await
        .expect("the manifests are applied");
    assert_eq!(said, [""; 0], "the host says it when it loads them");

    let host = confining.site.start();
    for (binding, why) in [
        (
            "bomb",
            "the policy was not compiled: it took more than 300 MiB of memory",
        ),
        (
            "schema",
            "spec.policies.lifecycle.configuration: (document): is too much to check: the schema takes more than",
        ),
        ("bomb", "the next try is in 20s"),
    ] {
        confining.until_said(&host, binding, "False", why).await;
    }
    confining.until_runs("vm").await;
    // A corrected file is loaded at once.
    confining.put("bomb.wasm", guests::hostile());
    confining.until_said(&host, "bomb", "True", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_changed_while_it_is_loaded_is_loaded_as_it_is_then() {
    let confining = Confining::new();
    confining
        .site
        .apply(&Manifests {
            bindings: vec![machines()],
            ..Manifests::default()
        })
        .await;
    let host = confining.site.start();
    for file in ["bomb.wasm", "schema.wasm", "nothing.wasm", "hostile.wasm"] {
        let applied = confining.site.cluster.apply(&binding("changing", file)).await;
        applied.expect("it is applied");
        tokio::task::yield_now().await;
    }
    confining.until_said(&host, "changing", "True", "").await;
    let name = reference("polity.dev/v1alpha1", "PolicyBinding", None, "changing");
    let changing = confining.site.get(&name).await.expect("it is there");
    let lifecycle = &changing["status"]["policies"]["lifecycle"];
    assert_eq!(lifecycle["name"], "hostile");
    let memory = lifecycle["memory"].as_u64().expect("bytes");
    assert!((64 << 10..1 << 20).contains(&memory), "{memory}");
}

#[tokio::test(start_paused = true)]
async fn limits_as_large_as_numbers_go_are_limits() {
    let mut binding = machines();
    binding["spec"]["limits"] = json!({
        "stepFuel": u64::MAX, "passFuel": u64::MAX, "memory": u64::MAX, "stepWall": u64::MAX, "steps": u32::MAX,
        "entries": u32::MAX, "journal": 32 << 20, "answer": u64::MAX, "output": 32 << 20,
        "passesPerTenant": u32::MAX, "burst": u32::MAX, "refill": u64::MAX, "events": u32::MAX, "notes": u32::MAX,
        "cloudCalls": u32::MAX, "shortestWait": 0, "longestWait": u64::MAX,
    });
    let confining = Confining::new();
    let manifests = Manifests {
        bindings: vec![binding],
        objects: vec![machine("default", "vm")],
        ..Manifests::default()
    };
    confining.site.apply(&manifests).await;
    let _host = confining.site.start();
    confining.until_runs("vm").await;
}
