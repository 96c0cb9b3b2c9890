//! A whole host for tests of bad input. It has a policy folder of its own, and a test reads what a person would see of
//! it: conditions, Events and passes. It runs on a paused runtime: minutes pass in an instant.

use std::path::PathBuf;
use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ObjectDelete, ObjectRef, Precondition};
use polity_core::object::Object;
use polity_core::record::{Outcome, PassRecord};
use serde_json::{Value, json};

use crate::guests;
use crate::host_harness::{Host, Site};
use crate::simulation::bindings::MACHINES;

/// The `apiVersion` of the misbehaving policy's kind.
pub const THINGS: &str = "test.polity.example/v1";

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What is not seen by then is not coming: an hour of the host's clock.
const LOOKS: u32 = 4 * 3_600;

/// A host that runs.
pub struct HostFixture {
    /// Its cluster and cloud.
    pub site: Site,
    /// The host.
    pub host: Host,
    policies: tempfile::TempDir,
}

impl HostFixture {
    /// A host with these bindings, whose folder holds `capv-machine.wasm`, `hostile.wasm` and its kin.
    ///
    /// # Panics
    /// If one of the bindings does not load.
    pub async fn with(bindings: Vec<Value>) -> Self {
        let policies = tempfile::tempdir().expect("a folder");
        let mut site = Site::new(1, None);
        site.load_from(policies.path());
        site.connect();
        let fixture = HostFixture {
            host: site.start(),
            site,
            policies,
        };
        fixture.put("capv-machine.wasm", guests::capv_machine());
        fixture.put("hostile.wasm", guests::hostile());
        fixture.put("hostile-identity.wasm", guests::hostile_identity());
        fixture.put("hostile-retry.wasm", guests::hostile_retry());
        fixture.put("hostile-driver.wasm", guests::hostile_driver());
        fixture
            .site
            .apply(&Manifests {
                bindings,
                ..Manifests::default()
            })
            .await;
        fixture
    }

    /// Where a file of the policy folder lies.
    pub fn path(&self, file: &str) -> PathBuf {
        self.policies.path().join(file)
    }

    /// Puts a file into the policy folder, in place of what may stand there: whole, at once.
    pub fn put(&self, file: &str, bytes: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, bytes).expect("written");
        std::fs::rename(new, self.path(file)).expect("renamed");
    }

    /// Applies an object; what the API server has against it.
    ///
    /// # Errors
    /// The API server's words.
    pub async fn try_apply(&self, object: &Value) -> Result<(), String> {
        let applied = self.site.cluster.apply(object).await;
        applied.map(|_| ()).map_err(|failure| failure.message)
    }

    /// Applies an object.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn apply(&self, object: &Value) {
        if let Err(why) = self.try_apply(object).await {
            panic!("{why}: {object}");
        }
    }

    /// Opens the definition of PolicyBinding, so that its schema refuses nothing: as in a cluster whose definition is
    /// older than its host.
    pub async fn open_bindings(&self) {
        let mut definition = polity::crds::policy_binding();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": null, "required": null,
        });
        self.apply(&definition).await;
    }

    /// Looks again and again until there is something to see.
    ///
    /// # Panics
    /// If there is nothing for an hour of the host's clock.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        for _ in 0..LOOKS {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let bindings = self.site.list("polity.dev/v1alpha1", "PolicyBinding").await;
        let statuses: Vec<&Value> = bindings.iter().map(|binding| &binding["status"]).collect();
        panic!(
            "never seen: {what}\n{:#?}\n{statuses:#?}",
            self.host.handle.view().await
        );
    }

    /// An object as it stands; null if there is none.
    pub async fn get(&self, object: &ObjectRef) -> Value {
        self.site.get(object).await.unwrap_or_default()
    }

    /// Waits until a binding has this condition with these words in its message; the message.
    ///
    /// # Panics
    /// If that never comes.
    pub async fn until_said(&self, binding: &str, condition: &str, status: &str, words: &str) -> String {
        let what = format!("{condition}={status} with {words:?} on {binding}");
        self.until(&what, async || {
            let object = self
                .get(&reference("polity.dev/v1alpha1", "PolicyBinding", None, binding))
                .await;
            let condition = condition_of(&object, condition)?;
            let message = condition["message"].as_str().unwrap_or_default();
            (condition["status"] == status && message.contains(words)).then(|| message.to_owned())
        })
        .await
    }

    /// Waits until an object has a pass that came to this, beside its first `after` ones; the pass.
    ///
    /// # Panics
    /// If that never comes.
    pub async fn until_passed(&self, name: &str, after: usize, outcome: &Outcome) -> PassRecord {
        self.until(&format!("a pass of {name} that is {outcome:?}"), async || {
            let passes = self.host.passes_of(name);
            passes
                .into_iter()
                .skip(after)
                .find(|pass| pass.outcome == *outcome)
        })
        .await
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn delete(&self, object: &ObjectRef) {
        let delete = ObjectDelete {
            object: object.clone(),
            precondition: Precondition {
                uid: Object::new(self.get(object).await).uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        let deleted = self.site.cluster.write(&Write::Act(Act::Delete(delete))).await;
        deleted.expect("it is there");
    }

    /// Waits until every Machine runs and has addresses.
    ///
    /// # Panics
    /// If that never comes.
    pub async fn until_machines_run(&self) {
        self.until_machines_run_but("").await;
    }

    /// Waits until every Machine but one runs and has addresses.
    ///
    /// # Panics
    /// If that never comes.
    pub async fn until_machines_run_but(&self, one: &str) {
        self.until("every Machine runs", async || {
            let machines = self.site.list(MACHINES, "Machine").await;
            let mut others = machines
                .iter()
                .filter(|machine| machine["metadata"]["name"] != one)
                .peekable();
            others.peek()?;
            let runs = |machine: &Value| {
                machine["status"]["phase"] == "Running" && machine["status"]["addresses"].is_array()
            };
            others.all(runs).then_some(())
        })
        .await;
    }

    /// Merges into the status of an object, as nobody but its policy should.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn write_status(&self, object: &ObjectRef, status: &Value) {
        let write = Write::Patch {
            object: object.clone(),
            subresource: Some("status".into()),
            precondition: None,
            patch: json!({"status": status}),
        };
        self.site.cluster.write(&write).await.expect("it is there");
    }

    /// The reasons and messages of the Events on an object.
    pub async fn events_of(&self, name: &str) -> Vec<(String, String)> {
        let events = self.site.list("v1", "Event").await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == name);
        of.map(|event| (text(&event["reason"]), text(&event["message"])))
            .collect()
    }
}

/// Names an object.
pub fn reference(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        },
        namespace: namespace.map(str::to_owned),
        name: name.into(),
    }
}

/// A condition of an object.
pub fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Governs Machines by `capv-machine.wasm`.
pub fn machines() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "machines"},
        "spec": {
            "governs": {"apiVersion": MACHINES, "kind": "Machine"},
            "policies": {"lifecycle": {"file": "capv-machine.wasm"}},
            "cloud": {"name": "sim"},
            "grants": [{"cloud": ["vm.*", "task.get"]}],
        },
    })
}

/// Governs Things by `hostile.wasm`, which it grants nothing.
pub fn things() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "things"},
        "spec": {
            "governs": {"apiVersion": THINGS, "kind": "Thing"},
            "policies": {"lifecycle": {"file": "hostile.wasm"}},
            // Enough to use up the memory, and a loop ends soon.
            "limits": {"stepFuel": 20_000_000},
        },
    })
}

/// A Machine.
pub fn machine(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": MACHINES, "kind": "Machine", "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "net", "dhcp4": true}]}},
    })
}

/// A Thing, with which the policy does what this says.
pub fn thing(name: &str, mischief: &str) -> Value {
    json!({
        "apiVersion": THINGS, "kind": "Thing",
        "metadata": {"name": name, "namespace": "default", "annotations": {"mischief": mischief}},
    })
}
