//! Retry policies that are swapped while they are in use: a pass ends with the policy with which it began,
//! and the new policy sets the waits of objects that wait already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::binding::{Binding, Limits, LoadedPolicy};
use polity_core::call::Call;
use polity_core::contract::{Cause, Code, Failure, Next, RetryClass, RetryRequest, Role};
use polity_core::controller::Input;
use polity_core::record::{Outcome, PassRecord};
use polity_core::retry::default_wait;
use polity_core::time::{Boot, millis};
use polity_tests::guests;
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::{Host, Site};
use polity_tests::simulation::bindings::{self, MACHINES, WIDGETS, manifest, native};
use polity_tests::simulation::core_harness::CoreHarness;
use polity_tests::simulation::native::{failed, step};
use serde_json::{Value, json};

const SWAPS: usize = 100;
const MACHINES_IN_FLIGHT: usize = 200;
const TENANTS: usize = 4;
/// A key whose time has come starts within this: milliseconds.
const PROMPTLY: Duration = Duration::from_secs(1);

/// A retry policy and its configuration, and when the host took it over.
#[derive(Debug)]
struct Version {
    /// Its digest.
    policy: String,
    config: Value,
    /// Not before.
    from: Boot,
    /// Not later.
    by: Boot,
}

/// A world in which a retry policy is swapped.
struct Swapped {
    site: Site,
    host: Host,
    folder: tempfile::TempDir,
    versions: Vec<Version>,
}

/// What the binding says of its retry policy: merged, so that what another one was configured with has to go.
fn retry(file: &str, configuration: Value) -> Value {
    let mut all = json!({"short": null, "floor": null});
    polity_tests::simulation::store::merge(&mut all, &configuration);
    json!({"file": file, "configuration": all})
}

fn binding(retry: Value) -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "machines"},
        "spec": {
            "governs": {"apiVersion": MACHINES, "kind": "Machine"},
            "policies": {"lifecycle": {"file": "capv_machine.wasm"}, "retry": retry},
            "cloud": {"name": "sim"},
            "grants": [{"cloud": ["vm.*", "task.get"]}],
        },
    })
}

/// A cloud in which half of all calls fail for a quarter of an hour.
fn cloud() -> Value {
    let fault = |code: &str, probability: f64| {
        let then = json!({"fail": {"code": code, "message": "no"}});
        json!({"operation": "*", "until": "15m", "probability": probability, "then": then})
    };
    json!({"faults": [fault("unavailable", 0.4), fault("resource-exhausted", 0.1)]})
}

impl Swapped {
    async fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut site = Site::new(1, Some(cloud()));
        site.load_from(folder.path());
        let mut all = Swapped {
            host: site.start(),
            site,
            folder,
            versions: Vec::new(),
        };
        for file in ["capv_machine.wasm", "mcm_retry.wasm", "backoff_retry.wasm"] {
            all.put(file, file);
        }
        let manifests = Manifests {
            bindings: vec![binding(json!({"file": "mcm_retry.wasm", "configuration": {}}))],
            ..Manifests::default()
        };
        let from = all.now();
        all.site.apply(&manifests).await;
        all.taken_over(from, |_| true).await;
        all
    }

    fn now(&self) -> Boot {
        self.site.clock.now().boot
    }

    /// Puts a compiled policy into the policy folder under this name: whole, at once.
    fn put(&self, name: &str, policy: &str) {
        let new = self.folder.path().join("new");
        std::fs::copy(guests::folder().join(policy), &new).expect("copied");
        std::fs::rename(new, self.folder.path().join(name)).expect("renamed");
    }

    async fn edit(&self, retry: Value) {
        self.site.cluster.apply(&binding(retry)).await.expect("applied");
    }

    async fn binding(&self) -> Value {
        let at = reference("polity.dev/v1alpha1", "PolicyBinding", None, "machines");
        self.site.get(&at).await.unwrap_or_default()
    }

    /// Waits until the host has taken over what the binding says now, and of which this holds; notes the version.
    async fn taken_over(&mut self, from: Boot, holds: impl Fn(&Value) -> bool) {
        loop {
            let binding = self.binding().await;
            let status = &binding["status"];
            let loaded = status["conditions"][0]["status"] == "True";
            if loaded && status["observedGeneration"] == binding["metadata"]["generation"] && holds(status) {
                let policy = status["policies"]["retry"]["sha256"].as_str().expect("a digest");
                let mut config = binding["spec"]["policies"]["retry"]["configuration"].clone();
                config
                    .as_object_mut()
                    .expect("fields")
                    .retain(|_, value| !value.is_null());
                self.versions.push(Version {
                    policy: policy.to_owned(),
                    config,
                    from,
                    by: self.now(),
                });
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Swaps the policy once, in one of the ways in which people do.
    async fn swap(&mut self, number: usize) {
        let from = self.now();
        let before = self.versions.last().expect("a version").policy.clone();
        match number % 5 {
            0 => self.edit(retry("backoff_retry.wasm", json!({}))).await,
            1 => {
                self.edit(retry("backoff_retry.wasm", json!({"floor": "2s"})))
                    .await
            }
            2 => {
                self.put("retry.wasm", "mcm_retry.wasm");
                self.edit(retry("retry.wasm", json!({}))).await;
            }
            3 => {
                self.put("retry.wasm", "backoff_retry.wasm");
                return self
                    .taken_over(from, |status| status["policies"]["retry"]["sha256"] != *before)
                    .await;
            }
            _ => self.edit(retry("mcm_retry.wasm", json!({"short": "9s"}))).await,
        }
        self.taken_over(from, |_| true).await;
    }

    async fn running(&self) -> usize {
        let machines = self.site.list(MACHINES, "Machine").await;
        machines
            .iter()
            .filter(|machine| machine["status"]["phase"] == "Running")
            .count()
    }

    /// The versions that may have been in force at a time: two while one of them was being taken over.
    fn at(&self, time: Boot) -> impl Iterator<Item = &Version> {
        let ends = self.versions[1..].iter().map(|next| next.by).chain([Boot::MAX]);
        let versions = self.versions.iter().zip(ends);
        versions
            .filter(move |(version, end)| (version.from..=*end).contains(&time))
            .map(|(version, _)| version)
    }
}

/// What the policies of the source answer, without any sandbox or host.
struct Native {
    mcm: String,
    backoff: String,
}

impl Native {
    fn new() -> Self {
        let digest = |name: &str| guests::load(name).id().0.to_string();
        Native {
            mcm: digest("mcm-retry"),
            backoff: digest("backoff-retry"),
        }
    }

    /// Whether a pass was answered by this version: what a configuration does not say has its default.
    fn answered(&self, version: &Version, pass: &PassRecord) -> bool {
        let Some(retry) = pass
            .retry
            .as_ref()
            .filter(|retry| *retry.policy.0 == version.policy)
        else {
            return false;
        };
        let recorded = serde_json::from_str(&retry.request.config).expect("JSON");
        self.whole(&version.policy, &recorded) == self.whole(&version.policy, &version.config)
    }

    /// A configuration with its defaults.
    fn whole(&self, policy: &str, config: &Value) -> Value {
        let config = config.clone();
        let whole = if policy == self.mcm {
            serde_json::from_value(config).map(|config: mcm_retry::Config| json!(config))
        } else {
            serde_json::from_value(config).map(|config: backoff_retry::Config| json!(config))
        };
        whole.expect("a configuration of this policy")
    }

    /// Milliseconds, for this request under this configuration.
    fn wait(&self, policy: &str, request: &RetryRequest, config: &Value) -> Duration {
        fn asked<C: serde::de::DeserializeOwned>(
            request: &RetryRequest,
            config: &Value,
        ) -> polity_sdk::RetryRequest<C> {
            let failure = request.failure.as_ref().map(|failure| {
                let named = |known: &polity_sdk::Code| known.as_str() == failure.code.as_str();
                let code = polity_sdk::Code::ALL.into_iter().find(named).expect("a code");
                polity_sdk::Failure {
                    retry_after: failure.retry_after,
                    ..polity_sdk::Failure::new(code, failure.message.clone())
                }
            });
            polity_sdk::RetryRequest {
                api_version: request.kind.api_version.clone(),
                kind: request.kind.kind.clone(),
                namespace: request.namespace.clone(),
                origin: polity_sdk::Origin::Lifecycle,
                class: match request.class {
                    RetryClass::Conflict => polity_sdk::RetryClass::Conflict,
                    RetryClass::Short => polity_sdk::RetryClass::Short,
                    RetryClass::Medium => polity_sdk::RetryClass::Medium,
                    RetryClass::Long => polity_sdk::RetryClass::Long,
                },
                failure,
                attempt: request.attempt,
                failing_for: Duration::from_millis(request.failing_for),
                previous_wait: request.previous_wait.map(Duration::from_millis),
                seed: request.seed,
                config: serde_json::from_value(config.clone()).expect("a configuration"),
            }
        }
        let wait = if policy == self.mcm {
            match mcm_retry::decide(asked(request, config)) {
                polity_sdk::Wait::After(ms) | polity_sdk::Wait::OnChange(Some(ms)) => {
                    Duration::from_millis(ms)
                }
                polity_sdk::Wait::OnChange(None) => panic!("it names a time"),
            }
        } else {
            assert_eq!(policy, self.backoff);
            backoff_retry::decide(asked(request, config))
        };
        let limits = Limits::default();
        wait.clamp(limits.shortest_wait, limits.longest_wait)
    }
}

fn by_object(passes: &[PassRecord]) -> BTreeMap<&str, Vec<&PassRecord>> {
    let mut of: BTreeMap<&str, Vec<&PassRecord>> = BTreeMap::new();
    for pass in passes {
        of.entry(&pass.key.name).or_default().push(pass);
    }
    of
}

/// Each pass ran on one version, which was in force when it began, and waits as that one says.
fn ran_on_one_version(world: &Swapped, native: &Native, passes: &[PassRecord]) {
    let lifecycles: BTreeSet<_> = passes
        .iter()
        .flat_map(|pass| &pass.roles)
        .map(|role| &role.policy)
        .collect();
    assert_eq!(lifecycles.len(), 1, "the lifecycle was never swapped");
    let (mut asked, mut outlived) = (BTreeMap::<&str, usize>::new(), 0);
    for pass in passes {
        let tried_again =
            matches!(pass.next, Some(Next::Retry { .. })) || matches!(pass.outcome, Outcome::Discarded(_));
        assert_eq!(pass.retry.is_some(), tried_again, "{pass:#?}");
        let Some(retry) = &pass.retry else { continue };
        let version = world
            .at(pass.started.boot)
            .find(|version| native.answered(version, pass));
        let version = version.unwrap_or_else(|| panic!("no version of its time: {:?}", pass.retry));
        let waits = native.wait(&version.policy, &retry.request, &version.config);
        assert_eq!(pass.wait, Some(waits), "{retry:?}");
        *asked.entry(&version.policy).or_default() += 1;
        let current = |other: &&Version| std::ptr::eq(*other, version);
        outlived += usize::from(!world.at(pass.ended.boot).any(|other| current(&other)));
    }
    assert!(
        asked.len() == 2 && asked.values().all(|times| *times > 200),
        "{asked:?}"
    );
    assert!(
        outlived > 20,
        "passes that ended under another version: {outlived}"
    );
}

/// No pass is missing, none ran beside another of its object, and each began when the policy that was in force by then
/// had said.
fn none_was_lost(world: &Swapped, native: &Native, passes: &[PassRecord]) {
    let mut numbers: Vec<u64> = passes.iter().map(|pass| pass.pass.0).collect();
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(1..=passes.len() as u64),
        "each pass ended, once"
    );
    let of = by_object(passes);
    assert_eq!(of.len(), MACHINES_IN_FLIGHT);
    let mut moved = 0;
    for pair in of.values().flat_map(|passes| passes.windows(2)) {
        let [before, after] = pair else { continue };
        assert!(before.ended.boot <= after.started.boot, "{before:#?} {after:#?}");
        let (Some(retry), [Cause::Due]) = (&before.retry, &after.causes[..]) else {
            continue;
        };
        let began = after.started.boot;
        let in_force: Vec<&Version> = world.at(began).collect();
        let due = |version: &&Version| {
            let due = before.ended.boot + native.wait(&version.policy, &retry.request, &version.config);
            // A key that learns only now that its time was over long ago begins now.
            (due..=due.max(version.by).max(before.ended.boot) + PROMPTLY).contains(&began)
        };
        assert!(
            in_force.iter().any(due),
            "began at {began:?}: {before:#?} {in_force:?}"
        );
        moved += usize::from(!in_force.iter().any(|version| native.answered(version, before)));
    }
    assert!(moved > 50, "keys that waited while the policy changed: {moved}");
}

#[tokio::test(start_paused = true)]
async fn swapping_the_retry_policy_100_times_while_200_machines_are_in_flight_loses_no_pass() {
    let (mut world, native) = (Swapped::begin().await, Native::new());
    for tenant in 0..TENANTS {
        let name = format!("team-{tenant}");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.site.cluster.apply(&namespace).await.expect("applied");
    }
    for number in 0..MACHINES_IN_FLIGHT {
        let namespace = format!("team-{}", number % TENANTS);
        let devices = json!([{"networkName": "net", "dhcp4": true}]);
        let machine = json!({
            "apiVersion": MACHINES, "kind": "Machine",
            "metadata": {"name": format!("m-{number}"), "namespace": namespace},
            "spec": {"template": "ubuntu", "network": {"devices": devices}},
        });
        world.site.cluster.apply(&machine).await.expect("applied");
    }
    for number in 0..SWAPS {
        while world.host.handle.view().await.expect("it runs").passes == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.swap(number).await;
        tokio::time::sleep(Duration::from_millis(700 + 370 * (number as u64 % 7))).await;
    }
    assert!(
        world.running().await < MACHINES_IN_FLIGHT,
        "they are still in flight"
    );
    assert_eq!(world.versions.len(), SWAPS + 1);
    while world.running().await < MACHINES_IN_FLIGHT {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    while world.host.handle.view().await.expect("it runs").passes > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let vms = world.site.vms();
    let owners: BTreeSet<&str> = vms.iter().map(|vm| &*vm.owner).collect();
    assert_eq!(
        (vms.len(), owners.len()),
        (MACHINES_IN_FLIGHT, MACHINES_IN_FLIGHT)
    );
    let passes = world.host.news();
    ran_on_one_version(&world, &native, &passes);
    none_was_lost(&world, &native, &passes);
    let status = world.binding().await["status"].clone();
    let (healthy, clamped) = (&status["conditions"][1], &status["conditions"][3]);
    assert_eq!(
        (&healthy["status"], &clamped["status"]),
        (&json!("True"), &json!("False"))
    );
}

/// Widgets whose passes fail, with these retry policies: the last one waits as the harness says.
fn widgets(retry: Option<&str>) -> Binding {
    let lifecycle = |name: &str| native(manifest(name, Role::Lifecycle, Vec::new(), &["status"]));
    let retry = retry.map(|name| native(manifest(name, Role::Retry, Vec::new(), &[])));
    let policies = [Some(lifecycle("fails")), retry].into_iter().flatten();
    bindings::binding("w", (WIDGETS, "Widget"), policies, Vec::new(), Default::default())
}

fn bound(binding: Binding) -> Input {
    Input::Bound(Box::new(binding))
}

/// A harness with a widget that failed, and policies that would have it wait for so many seconds.
fn harness(waits: &[(&str, u64)], first: &str) -> CoreHarness {
    let mut harness = CoreHarness::new();
    harness.policy("fails", |pass| {
        step(pass, |_| Ok(failed(Failure::new(Code::Unavailable, "down"))))
    });
    harness.waits = waits
        .iter()
        .map(|(name, seconds)| ((*name).to_owned(), seconds * 1_000))
        .collect();
    harness.feed(bound(widgets(Some(first))));
    harness.create(json!({
        "apiVersion": WIDGETS, "kind": "Widget", "metadata": {"namespace": "default", "name": "a"},
    }));
    harness
}

fn decides(policy: &'static str) -> impl Fn(&Call) -> bool {
    move |call| matches!(call, Call::Decide { policy: asked, .. } if *asked.0 == *policy)
}

#[test]
fn what_a_policy_says_after_it_was_swapped_away_moves_no_deadline() {
    let mut harness = harness(&[("first", 3_600), ("late", 10), ("last", 1_800)], "first");
    harness.hold = Box::new(decides("late"));
    harness.feed(bound(widgets(Some("late"))));
    harness.feed(bound(widgets(Some("last"))));
    harness.release(decides("late"));
    harness.sleep(1_799_000);
    assert_eq!(harness.records.len(), 1);
    harness.sleep(1_000);
    assert_eq!(harness.records.len(), 2, "as the last one says");
}

#[test]
fn what_a_policy_says_of_a_wait_that_is_over_moves_no_deadline() {
    let mut harness = harness(&[("first", 30), ("slow", 10)], "first");
    harness.hold = Box::new(decides("slow"));
    harness.feed(bound(widgets(Some("slow"))));
    // The first wait ends meanwhile, and the next pass asks for itself.
    harness.sleep(30_000);
    assert_eq!(harness.held.len(), 2, "{:?}", harness.held);
    let (old, new) = (harness.held.remove(0), harness.held.remove(0));
    harness.held = vec![new];
    harness.release(decides("slow"));
    assert_eq!(harness.records.len(), 2);
    harness.waits.insert("slow".into(), 1_000);
    harness.held = vec![old];
    harness.hold = Box::new(|_| false);
    harness.release(decides("slow"));
    harness.sleep(9_000);
    assert_eq!(harness.records.len(), 2, "ten seconds, not one");
    harness.sleep(1_000);
    assert_eq!(harness.records.len(), 3);
}

#[test]
fn without_a_policy_those_who_wait_wait_as_the_host_says() {
    let mut harness = harness(&[("patient", 3_600)], "patient");
    let waits = default_wait(&harness.records[0].retry.as_ref().expect("asked").request);
    harness.feed(bound(widgets(None)));
    harness.sleep(millis(waits));
    assert_eq!(harness.records.len(), 2);
    assert_eq!(harness.records[1].retry, None);
}

#[test]
fn a_pass_that_outlives_its_policy_waits_as_that_one_says_until_the_new_one_has() {
    let mut harness = harness(&[("old", 3_600), ("new", 30)], "old");
    harness.hold = Box::new(|call| matches!(call, Call::Step { .. }));
    harness.sleep(3_600_000);
    harness.feed(bound(widgets(Some("new"))));
    harness.hold = Box::new(|_| false);
    harness.release(|call| matches!(call, Call::Step { .. }));
    let ended = &harness.records[1];
    assert_eq!(
        (&*ended.retry.as_ref().expect("asked").policy.0, ended.wait),
        ("old", Some(Duration::from_hours(1)))
    );
    harness.sleep(29_000);
    assert_eq!(harness.records.len(), 2);
    harness.sleep(1_000);
    assert_eq!(harness.records.len(), 3, "the new one was asked as well");
}

#[test]
fn a_wake_that_is_due_for_another_reason_is_not_put_off() {
    let mut harness = harness(&[("old", 3_600), ("new", 3_600)], "old");
    let mut other = widgets(Some("old"));
    let configured = |policy: &mut LoadedPolicy| policy.config = "{\"other\": true}".into();
    other
        .policies
        .get_mut(&Role::Lifecycle)
        .into_iter()
        .for_each(configured);
    harness.feed(bound(other.clone()));
    let retry = native(manifest("new", Role::Retry, Vec::new(), &[]));
    other.policies.insert(Role::Retry, retry);
    harness.feed(bound(other));
    harness.sleep(60_000);
    assert_eq!(
        harness.records.len(),
        2,
        "the changed lifecycle woke it within a minute"
    );
    assert!(harness.records[1].causes.contains(&Cause::Binding));
}

#[test]
fn other_limits_are_another_answer() {
    let mut harness = harness(&[("patient", 3_600)], "patient");
    let mut limited = widgets(Some("patient"));
    limited.spec.limits.longest_wait = Duration::from_secs(20);
    harness.feed(bound(limited));
    harness.sleep(20_000);
    assert_eq!(harness.records.len(), 2);
    let clamped = harness
        .controller
        .health("w")
        .and_then(|health| health.clamped.clone());
    assert!(clamped.is_some(), "and it is said");
}
