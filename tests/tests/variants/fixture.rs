//! A host whose policies can be swapped while it runs, and whose passes are judged by others.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use polity_core::contract::{Act, Request};
use polity_core::record::PassRecord;
use polity_tests::guests;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::Site;
use polity_tests::host_harness::backend::{Backend, Embedded, Soon};
use polity_tests::host_harness::story::Story;
use serde_json::Value;
use tempfile::TempDir;

use super::Variant;

/// Between two looks at something awaited, and how many there are: hours of the world.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOKS: u32 = 100_000;

/// The policy folder of a host, and the recording of its passes.
pub(crate) struct Stage {
    policies: TempDir,
    recording: TempDir,
}

impl Backend for Stage {
    fn site(&self, sim: Value) -> Soon<'_, Site> {
        Box::pin(async {
            let mut site = Embedded { recordings: None }.site(sim).await;
            site.load_from(self.policies.path());
            site.record(self.recording.path());
            site
        })
    }

    fn allow<'a>(&'a self, _: &'a Site, _: &'a [Value]) -> Soon<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn agent<'a>(&'a self, site: &'a Site, _: &'a Value) -> Soon<'a, kube::Client> {
        Box::pin(std::future::ready(site.client()))
    }

    fn patience(&self) -> Duration {
        LOOK_EVERY * LOOKS
    }
}

impl Stage {
    /// A folder with these policies as they are shipped.
    pub(crate) fn of(policies: &[&str]) -> Self {
        let stage = Stage {
            policies: tempfile::tempdir().expect("a folder"),
            recording: tempfile::tempdir().expect("a folder"),
        };
        for policy in policies {
            let file = format!("{}.wasm", policy.replace('-', "_"));
            stage.put(policy, &guests::folder().join(file));
        }
        stage
    }

    /// Puts a component in place of a policy: whole, at once.
    fn put(&self, policy: &str, component: &Path) {
        let file = format!("{}.wasm", policy.replace('-', "_"));
        let new = self.policies.path().join("new");
        std::fs::copy(component, &new).expect("copied");
        std::fs::rename(new, self.policies.path().join(file)).expect("renamed");
    }

    /// The groups that `polity replay` finds in what was recorded so far, each in a line, in the order of their letters.
    pub(crate) fn replayed(&self, variant: &Variant) -> Vec<String> {
        let replayed = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(["replay", "-o", "json", "--recordings"])
            .arg(self.recording.path())
            .arg("--policy")
            .arg(variant.component())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&replayed.stderr);
        assert!(replayed.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&replayed.stdout).expect("one document");
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |group: &Value| {
            let [what, of, was, now] = ["difference", "of", "was", "now"].map(|field| text(&group[field]));
            format!("{what} {of}: {was} → {now}")
        };
        let groups = report["groups"].as_array().expect("groups").iter();
        let mut lines: Vec<String> = groups.map(line).collect();
        lines.sort();
        lines
    }

    /// The host takes a variant over in these bindings, which name its policy in this role.
    pub(crate) async fn swap(&self, story: &Story, variant: &Variant, role: &str, bindings: &[&str]) {
        self.take_over(story, variant.of, &variant.component(), role, bindings)
            .await;
    }

    /// The host takes the shipped version over again.
    pub(crate) async fn swap_back(&self, story: &Story, variant: &Variant, role: &str, bindings: &[&str]) {
        let shipped = guests::folder().join(format!("{}.wasm", variant.of.replace('-', "_")));
        self.take_over(story, variant.of, &shipped, role, bindings).await;
    }

    async fn take_over(&self, story: &Story, policy: &str, new: &Path, role: &str, bindings: &[&str]) {
        let mut before = Vec::new();
        for name in bindings {
            before.push(digest(story, role, name).await);
        }
        self.put(policy, new);
        for (name, before) in bindings.iter().zip(before) {
            let mut looks = 0..LOOKS;
            while digest(story, role, name).await == before {
                assert!(looks.next().is_some(), "{name} keeps {before}");
                story.sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// The digest of a binding's policy in a role.
async fn digest(story: &Story, role: &str, binding: &str) -> Value {
    let at = reference("polity.dev/v1alpha1", "PolicyBinding", None, binding);
    let binding = story.site.get(&at).await.unwrap_or_default();
    binding["status"]["policies"][role]["sha256"].clone()
}

/// No pass of the host was lost, and none ran beside another one of its object. Returns how often the passes of a binding began
/// with another version of the policy in this role.
pub(crate) fn swaps(story: &Story, role: &str, binding: &str) -> usize {
    assert!(!story.host.has_ended(), "it is the one that was started first");
    let records = story.host.records.lock().expect("a lock").clone();
    let mut numbers: Vec<u64> = records.iter().map(|pass| pass.pass.0).collect();
    numbers.sort_unstable();
    assert!(
        numbers.into_iter().eq(1..=records.len() as u64),
        "each pass ended, once"
    );
    let mut of: BTreeMap<_, Vec<&PassRecord>> = BTreeMap::new();
    for pass in &records {
        of.entry(&pass.key).or_default().push(pass);
    }
    for pair in of.values().flat_map(|passes| passes.windows(2)) {
        assert!(pair[0].ended.boot <= pair[1].started.boot, "{pair:#?}");
    }
    let governed = records.iter().filter(|pass| &*pass.key.binding == binding);
    let mut begun: Vec<_> = governed
        .flat_map(|pass| pass.roles.iter().map(move |of| (pass.started.boot, of)))
        .filter(|(_, of)| of.role.as_str() == role)
        .map(|(began, of)| (began, of.policy.clone()))
        .collect();
    begun.sort();
    begun.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
}

/// The acts of an object's passes so far, in order.
pub(crate) fn acts_of(story: &Story, name: &str) -> Vec<String> {
    let passes = story.host.passes_of(name);
    let roles = passes.iter().flat_map(|pass| &pass.roles);
    let entries = roles.flat_map(|role| &role.journal);
    let acts = entries.filter_map(|entry| match &entry.request {
        Request::Act(act @ (Act::Cloud(_) | Act::Evict(_))) => Some(act.operation().to_owned()),
        _ => None,
    });
    acts.collect()
}
