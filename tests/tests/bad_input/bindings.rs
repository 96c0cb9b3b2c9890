//! Bindings with errors, and bindings that overlap.

use polity_core::fault::FaultKind;
use polity_core::record::Outcome;
use polity_tests::host_fixture::{HostFixture, machines, reference, thing, things};
use serde_json::{Value, json};

/// A binding of another name, with a merge patch on its spec.
fn with(mut binding: Value, name: &str, patch: &Value) -> Value {
    fn merge(into: &mut Value, patch: &Value) {
        match patch {
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, field)| merge(&mut into[name], field)),
            other => *into = other.clone(),
        }
    }
    binding["metadata"]["name"] = json!(name);
    merge(&mut binding["spec"], patch);
    binding
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_cannot_be_is_not_loaded_and_says_where() {
    let lifecycle = |more: Value| {
        let mut source = json!({"file": "capv-machine.wasm"});
        source
            .as_object_mut()
            .expect("fields")
            .extend(more.as_object().expect("fields").clone());
        json!({"policies": {"lifecycle": source}})
    };
    let cases = [
        ("field", json!({"polices": {}}), "spec.polices", "unknown field"),
        (
            "field-deep",
            lifecycle(json!({"sha": "0"})),
            "spec.policies.lifecycle.sha",
            "unknown field",
        ),
        (
            "limit",
            json!({"limits": {"stepFule": 1}}),
            "spec.limits.stepFule",
            "unknown field",
        ),
        (
            "limit-type",
            json!({"limits": {"steps": "many"}}),
            "spec.limits.steps",
            "invalid type",
        ),
        (
            "limit-nothing",
            json!({"limits": {"passesPerTenant": 0}}),
            "spec.limits.passesPerTenant",
            "would stop every pass",
        ),
        (
            "grant",
            json!({"grants": [{"clouds": ["vm.*"]}]}),
            "spec.grants[0]",
            "unknown variant",
        ),
        (
            "cloud",
            json!({"cloud": {"name": "moon"}}),
            "spec.cloud",
            "unknown cloud \"moon\"",
        ),
        (
            "cloud-configuration",
            json!({"cloud": {"configuration": {"answers": {"min": "soon", "max": 1}}}}),
            "spec.cloud",
            "answers",
        ),
        (
            "configuration",
            lifecycle(json!({"configuration": {"resync": [1]}})),
            "spec.policies.lifecycle.configuration",
            "resync",
        ),
        (
            "configuration-field",
            lifecycle(json!({"configuration": {"resink": "1m"}})),
            "spec.policies.lifecycle.configuration",
            "resink",
        ),
        (
            "no-policy",
            json!({"policies": {"lifecycle": null}}),
            "spec.policies",
            "name a lifecycle policy",
        ),
        (
            "two-sources",
            lifecycle(json!({"crate": "capv-machine"})),
            "spec.policies.lifecycle",
            "name either",
        ),
        (
            "role",
            json!({"policies": {"retry": {"file": "capv-machine.wasm"}}}),
            "spec.policies.retry",
            "role lifecycle",
        ),
        (
            "not-there",
            lifecycle(json!({"file": "missing.wasm"})),
            "spec.policies.lifecycle",
            "missing.wasm",
        ),
        (
            "not-granted",
            json!({"grants": []}),
            "spec.grants",
            "capv-machine needs cloud vm.clone",
        ),
        (
            "closed",
            json!({"governs": {"apiVersion": "v1", "kind": "Secret"}}),
            "spec.governs",
            "cannot be governed",
        ),
    ];
    let fixture = HostFixture::with(vec![things()]).await;
    let mut refused = Vec::new();
    for (name, patch, path, _) in &cases {
        if let Err(why) = fixture.try_apply(&with(machines(), name, patch)).await {
            assert!(why.contains(path), "{name}: {why}");
            refused.push(*name);
        }
    }
    let by_schema = [
        "field",
        "field-deep",
        "limit",
        "limit-type",
        "limit-nothing",
        "grant",
    ];
    assert_eq!(refused, by_schema);
    // The host finds the same in a cluster whose definition is older than the host.
    fixture.open_bindings().await;
    for (name, patch, ..) in &cases {
        fixture.apply(&with(machines(), name, patch)).await;
    }
    for (name, _, path, words) in &cases {
        let message = fixture.until_said(name, "Loaded", "False", path).await;
        assert!(message.contains(words), "{name}: {message}");
    }
    let view = fixture.host.handle.view().await.expect("it runs");
    assert_eq!(view.unloaded.len(), cases.len());
    // What is mended is loaded, though the others stand.
    fixture
        .apply(&with(machines(), "limit-type", &json!({"limits": {"steps": 64}})))
        .await;
    fixture.until_said("limit-type", "Loaded", "True", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_running_binding_that_is_edited_into_one_that_cannot_be_goes_on_as_it_was() {
    let fixture = HostFixture::with(vec![things()]).await;
    fixture.apply(&thing("one", "behave")).await;
    fixture.until_passed("one", 0, &Outcome::Published).await;
    let edited = with(things(), "things", &json!({"limits": {"steps": -1}}));
    let refused = fixture
        .try_apply(&edited)
        .await
        .expect_err("the schema has a minimum");
    assert!(refused.contains("spec.limits.steps"), "{refused}");
    fixture.open_bindings().await;
    fixture.apply(&edited).await;
    fixture
        .until_said("things", "Loaded", "False", "spec.limits.steps")
        .await;
    fixture.apply(&thing("two", "behave")).await;
    fixture.until_passed("two", 0, &Outcome::Published).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_bindings_of_the_same_objects_the_older_governs_and_the_newer_says_so() {
    let fixture = HostFixture::with(vec![things()]).await;
    // Kubernetes tells ages to the second; the names of those of the same age decide.
    let first = fixture.site.clock.now().unix.0 / 1_000;
    let later = async || (fixture.site.clock.now().unix.0 / 1_000 > first).then_some(());
    fixture.until("another second", later).await;
    // Its name comes first; what counts is that it is newer.
    fixture
        .apply(&with(
            things(),
            "a-newer",
            &json!({"governs": {"namespace": "default"}}),
        ))
        .await;
    let message = fixture.until_said("a-newer", "Overlap", "True", "things").await;
    assert!(message.contains("governed by things"), "{message}");
    fixture.until_said("things", "Overlap", "False", "").await;

    fixture.apply(&thing("one", "behave")).await;
    let pass = fixture.until_passed("one", 0, &Outcome::Published).await;
    assert_eq!(&*pass.key.binding, "things");
    assert_eq!(fixture.host.passes_of("one").len(), 1, "only one of them governs");

    fixture
        .delete(&reference("polity.dev/v1alpha1", "PolicyBinding", None, "things"))
        .await;
    fixture.until_said("a-newer", "Overlap", "False", "").await;
    let passes = fixture.host.passes_of("one");
    let last = passes.last().map(|pass| &*pass.key.binding);
    assert_eq!(last, Some("a-newer"), "who is left takes over");
}

#[tokio::test(start_paused = true)]
async fn two_bindings_of_one_policy_each_keep_to_their_own_limits() {
    let of = |name: &str, fuel: u64| {
        with(
            things(),
            name,
            &json!({"governs": {"name": name, "namespace": "default"}, "limits": {"stepFuel": fuel}}),
        )
    };
    let fixture = HostFixture::with(vec![
        of("a-generous", 5_000_000),
        of("b-scarce", 500),
        of("c-generous", 5_000_000),
    ])
    .await;
    for name in ["a-generous", "b-scarce", "c-generous"] {
        fixture.apply(&thing(name, "behave")).await;
    }
    fixture.until_passed("a-generous", 0, &Outcome::Published).await;
    fixture.until_passed("c-generous", 0, &Outcome::Published).await;
    let pass = fixture.until_passed("b-scarce", 0, &Outcome::Faulted).await;
    assert_eq!(
        pass.roles[0].fault.as_ref().map(|fault| fault.kind),
        Some(FaultKind::OutOfFuel)
    );
    let good = fixture.host.passes_of("a-generous");
    assert!(
        good.iter().all(|pass| pass.outcome == Outcome::Published),
        "{good:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_binding_that_cannot_run_says_of_a_cloud_binds_nobody_else() {
    let fixture = HostFixture::with(vec![things()]).await;
    let other = json!({"cloud": {"configuration": {"lag": "0s"}}, "policies": {"lifecycle": {"file": "missing.wasm"}}});
    fixture.apply(&with(machines(), "broken", &other)).await;
    fixture
        .until_said("broken", "Loaded", "False", "missing.wasm")
        .await;
    fixture.apply(&machines()).await;
    fixture.until_said("machines", "Loaded", "True", "").await;
    // Of two that could run, the second has to agree with the first.
    fixture
        .apply(&with(
            machines(),
            "disagrees",
            &json!({"cloud": {"configuration": {"lag": "0s"}}}),
        ))
        .await;
    fixture
        .until_said("disagrees", "Loaded", "False", "another configuration")
        .await;
}
