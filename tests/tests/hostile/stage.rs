//! A host on which rows run: offenders in a namespace of their own, their neighbours, and the things that
//! they might harm.

use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::contract::ObjectRef;
use polity_core::record::PassRecord;
use polity_core::time::Boot;
use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, THINGS, condition_of, reference};
use serde_json::{Value, json};

/// The `apiVersion` of the kinds that hostile policies govern.
pub(crate) const PUPPETS: &str = "hostile.polity.example/v1";
/// The finalizer of the lifecycle policy of Puppets.
const FINALIZER: &str = "hostile.polity.example/puppet";
/// A finalizer of somebody else.
pub(crate) const KEEP: &str = "other.example/keep";
/// Where the offenders stand.
pub(crate) const OFFENDERS: &str = "offenders";
/// Where the neighbours stand: another tenant.
pub(crate) const NEIGHBOURS: &str = "neighbours";
/// A secret that no policy is granted.
pub(crate) const CANARY: &str = "c4nary-of-the-hostile-table";
/// The Pod whose answers fill a journal.
pub(crate) const HUGE: &str = "huge";
/// A Secret of a hundred thousand short lines, and one that is as large as the simulated cloud takes.
pub(crate) const LINES: &str = "lines";
pub(crate) const FITS: &str = "fits";
/// How long a table is played, of the host's time.
pub(crate) const PLAYED: Duration = Duration::from_secs(60);
/// The mark at the place of a manifest in a compiled policy; see `tests/hostile/verbatim/said.rs`.
const MARK: &[u8] = b"verbatim manifest:";
/// How long that place is.
const PLACE: usize = 4_096;

/// A CRD of a kind that has what policies and the host write.
pub(crate) fn crd(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let entry = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let status = json!({"type": "object", "properties": {
        "phase": {"type": "string"},
        "pending": {"type": "array", "items": entry},
        "conditions": {"type": "array", "items": entry},
    }});
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.hostile.polity.example")},
        "spec": {
            "group": "hostile.polity.example", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A manifest that is right: every field of the contract, as the policies of `tests/hostile/verbatim` read it.
pub(crate) fn manifest(role: &str, writes: &[&str]) -> Value {
    json!({"name": "verbatim", "version": "0.1.0", "role": role, "governs": [], "needs": [], "writes": writes,
        "configSchema": {}, "finalizer": null, "crd": null, "edges": []})
}

/// A policy of `tests/hostile/verbatim` that says this of itself.
pub(crate) fn described(policy: &[u8], manifest: &Value) -> Vec<u8> {
    let mut wasm = policy.to_vec();
    let at = wasm
        .windows(MARK.len())
        .position(|bytes| bytes == MARK)
        .expect("a place for a manifest");
    let place = &mut wasm[at + MARK.len()..at + PLACE];
    let text = manifest.to_string();
    assert!(text.len() <= place.len(), "a manifest of {} bytes", text.len());
    place.fill(b' ');
    place[..text.len()].copy_from_slice(text.as_bytes());
    wasm
}

/// A binding.
pub(crate) fn binding(name: &str, governs: Value, policies: Value, grants: Value) -> Value {
    // Bindings that share a cloud agree on it.
    let host = json!({"account": "111111111111", "arn": "arn:aws:iam::111111111111:role/controller"});
    let cloud = json!({"name": "sim", "configuration": {"identity": {"host": host}}});
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": name},
        "spec": {
            "governs": governs, "policies": policies, "grants": grants, "cloud": cloud,
            // Enough for a long script, and a loop ends soon.
            "limits": {"stepFuel": 100_000_000},
        },
    })
}

/// A binding of the Waiters of one namespace, whose retry policy is the file of its name.
pub(crate) fn with_retry(name: &str) -> Value {
    let file = format!("{name}.wasm");
    let governs = json!({"apiVersion": PUPPETS, "kind": "Waiter", "namespace": name});
    let policies = json!({"lifecycle": {"file": "puppets.wasm"}, "retry": {"file": file}});
    binding(name, governs, policies, json!([]))
}

/// Governs Puppets by what their annotations say, with many grants.
pub(crate) fn puppets() -> Value {
    let of = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let (puppets, maps, pods) = (of(PUPPETS, "Puppet"), of("v1", "ConfigMap"), of("v1", "Pod"));
    let grants = json!([
        {"cloud": ["vm.*", "task.get", "machine.*"]},
        {"lock": ["p-*"]},
        {"mint": ["password", "bootstrap-token"]},
        {"secrets": {"name": LINES}}, {"secrets": {"name": FITS}},
        {"ask": maps}, {"create": maps}, {"patch": maps}, {"delete": maps},
        {"ask": pods}, {"create": pods}, {"patch": pods}, {"delete": pods}, {"evict": pods},
        {"ask": puppets}, {"create": puppets}, {"patch": puppets}, {"delete": puppets},
    ]);
    binding(
        "puppets",
        json!({"apiVersion": PUPPETS, "kind": "Puppet"}),
        json!({"lifecycle": {"file": "puppets.wasm"}}),
        grants,
    )
}

/// Governs Wards: the annotation `identity` says who may act.
pub(crate) fn wards() -> Value {
    binding(
        "wards",
        json!({"apiVersion": PUPPETS, "kind": "Ward"}),
        json!({"identity": {"file": "judge.wasm"}, "lifecycle": {"file": "wards.wasm"}}),
        json!([{"cloud": ["vm.*"]}, {"credential": true}]),
    )
}

/// Things of a policy that has nothing to do with the others; they fail, and try again every 7 s.
fn things() -> Value {
    let mut binding = polity_tests::host_fixture::things();
    let policies = &mut binding["spec"]["policies"];
    policies["lifecycle"]["configuration"] = json!({"mischief": "fail"});
    policies["retry"] = json!({"file": "hostile-retry.wasm", "configuration": {"mischief": "behave"}});
    binding
}

/// An object of a hostile kind.
pub(crate) fn puppet(kind: &str, namespace: &str, name: &str, annotations: Value) -> Value {
    json!({"apiVersion": PUPPETS, "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "annotations": annotations}, "spec": {"x": 1}})
}

/// A conclusion that says nothing, as text.
pub(crate) fn nothing() -> String {
    json!({"Concluded": {}}).to_string()
}

/// A host with neighbours that pass all the time, and what offenders might harm.
pub(crate) struct Stage {
    /// The host.
    pub(crate) fixture: HostFixture,
    /// When the neighbours began, by the host's clock.
    began: Boot,
}

impl Stage {
    /// A host with these bindings beside that of the neighbours.
    pub(crate) async fn with(bindings: Vec<Value>) -> Self {
        let fixture = HostFixture::with(Vec::new()).await;
        let puppet = json!({"crd": crd("Puppet"), "finalizer": FINALIZER});
        let ward = json!({"crd": crd("Ward")});
        for (file, policy, role, writes, more) in [
            (
                "puppets.wasm",
                guests::verbatim(),
                "lifecycle",
                &["metadata", "spec", "status"][..],
                puppet,
            ),
            (
                "wards.wasm",
                guests::verbatim(),
                "lifecycle",
                &["status.phase"],
                json!({}),
            ),
            (
                "judge.wasm",
                guests::verbatim_identity(),
                "identity",
                &["metadata", "status.conditions"],
                ward,
            ),
        ] {
            let mut manifest = manifest(role, writes);
            for (field, value) in more.as_object().into_iter().flatten() {
                manifest[field] = value.clone();
            }
            fixture.put(file, &described(policy, &manifest));
        }
        fixture.put("retry.wasm", guests::verbatim_retry());
        let bindings = [vec![puppets(), things()], bindings].concat();
        let manifests = Manifests {
            bindings,
            ..Manifests::default()
        };
        fixture.site.apply(&manifests).await;
        for namespace in [OFFENDERS, NEIGHBOURS] {
            let metadata = json!({"name": namespace});
            fixture
                .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
                .await;
        }
        fixture.until_said("puppets", "Loaded", "True", "").await;
        fixture.until_said("things", "Loaded", "True", "").await;
        let mut stage = Stage {
            fixture,
            began: Boot::default(),
        };
        stage.victims().await;
        stage.neighbours().await;
        stage
    }

    /// What is theirs alone: a Secret, a Pod, a ConfigMap, and a Puppet with a create under way; and a Pod of half a MiB.
    async fn victims(&self) {
        let fixture = &self.fixture;
        let metadata = |name: &str| json!({"namespace": OFFENDERS, "name": name});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("canary"),
            "stringData": {"k": CANARY}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("web"),
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("plan"), "data": {"a": "b"}});
        let filled = json!([{"name": "FILLED", "value": "x".repeat(500_000)}]);
        let huge = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(HUGE),
            "spec": {"containers": [{"name": "c", "image": "i", "env": filled}]}});
        let lines = |name: &str, count: usize| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(name),
            "stringData": {"k": "12345678\n".repeat(count)}})
        };
        let (many, fits) = (lines(LINES, 100_000), lines(FITS, 7_000));
        for object in [secret, pod, map, huge, many, fits] {
            fixture.apply(&object).await;
        }
        let mut victim = puppet("Puppet", OFFENDERS, "victim", json!({"answer": nothing()}));
        victim["metadata"]["finalizers"] = json!([FINALIZER, KEEP]);
        fixture.apply(&victim).await;
        let pending = json!({"pending": [pending_entry()]});
        fixture.write_status(&self.puppet("victim"), &pending).await;
    }

    async fn neighbours(&mut self) {
        let looks = json!({"Concluded": {"next": {"After": 2_000}}}).to_string();
        let neighbour = puppet("Puppet", NEIGHBOURS, "same-policy", json!({"answer": looks}));
        let thing = json!({"apiVersion": THINGS, "kind": "Thing",
            "metadata": {"namespace": NEIGHBOURS, "name": "other-policy"}});
        self.began = self.fixture.site.clock.now().boot;
        self.fixture.apply(&neighbour).await;
        self.fixture.apply(&thing).await;
    }

    /// Names a Puppet of the offenders.
    pub(crate) fn puppet(&self, name: &str) -> ObjectRef {
        reference(PUPPETS, "Puppet", Some(OFFENDERS), name)
    }

    /// Lets the rest of the time pass. The host must be there all the while.
    ///
    /// # Panics
    /// If the host ends.
    pub(crate) async fn play(&self) {
        let end = self.began + PLAYED;
        loop {
            let now = self.fixture.site.clock.now().boot;
            assert!(
                !self.fixture.host.has_ended(),
                "the host ended after {:?}",
                now - self.began
            );
            if now >= end {
                return;
            }
            tokio::time::sleep((end - now).min(Duration::from_millis(500))).await;
        }
    }

    /// What a binding says of whether it is loaded; null if it says nothing for a minute.
    pub(crate) async fn loaded(&self, name: &str) -> Value {
        self.said_loaded(&reference("polity.dev/v1alpha1", "PolicyBinding", None, name))
            .await
    }

    /// The same of any object of the host's.
    pub(crate) async fn said_loaded(&self, named: &ObjectRef) -> Value {
        for _ in 0..120 {
            let object = self.fixture.get(named).await;
            if let Some(loaded) = condition_of(&object, "Loaded") {
                return loaded.clone();
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Value::Null
    }

    /// How many passes each neighbour had while the table was played.
    pub(crate) fn passes_of_neighbours(&self) -> [usize; 2] {
        let end = self.began + PLAYED;
        ["same-policy", "other-policy"].map(|name| {
            let passes = self.fixture.host.passes_of(name);
            passes.iter().filter(|pass| pass.started.boot < end).count()
        })
    }

    /// The passes of an offender.
    pub(crate) fn passes(&self, name: &str) -> Vec<PassRecord> {
        self.fixture.host.passes_of(name)
    }
}

/// An entry of a create that was begun when the world was.
pub(crate) fn pending_entry() -> Value {
    json!({"operation": "vm.clone", "intent": "begun", "key": "k", "since": polity_tests::host_harness::BEGIN.0, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"})
}
