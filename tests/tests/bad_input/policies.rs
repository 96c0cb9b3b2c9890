//! Policies that are swapped while they run, and files that are not policies.

use std::collections::BTreeSet;

use polity_core::contract::{Cause, Question, Request};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, THINGS, machine, machines, reference, thing, things};
use serde_json::{Value, json};

/// Objects that have a pass in flight when the policy is swapped.
const THINGS_AT_ONCE: usize = 20;
const EDITIONS: [&str; 2] = ["this-is-edition-one", "this-is-edition-two"];

/// The misbehaving policy with another name of its edition in it.
fn edition(name: &str) -> Vec<u8> {
    let (mut bytes, old) = (guests::hostile().to_vec(), EDITIONS[0].as_bytes());
    assert_eq!(old.len(), name.len());
    let places: Vec<usize> = (0..bytes.len() - old.len())
        .filter(|at| bytes[*at..].starts_with(old))
        .collect();
    assert!(
        !places.is_empty(),
        "the compiled policy holds the name of its edition"
    );
    for at in places {
        bytes[at..at + old.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

/// The same policy with other bytes: a custom section that nobody reads.
fn variant(number: u8) -> Vec<u8> {
    let mut bytes = guests::hostile().to_vec();
    bytes.extend([0, 3, 1, b'n', number]);
    bytes
}

/// A binding by which each Thing asks a cloud that takes its time, and notes which edition of the policy asked.
fn editions(file: &str) -> Value {
    let mut binding = things();
    binding["spec"]["policies"]["lifecycle"] =
        json!({"file": file, "configuration": {"mischief": "edition"}});
    binding["spec"]["cloud"] =
        json!({"name": "sim", "configuration": {"answers": {"min": "4s", "max": "4s"}}});
    binding["spec"]["grants"] = json!([{"cloud": ["vm.power"]}]);
    binding
}

/// The edition that made a pass: all of it.
fn edition_of(pass: &PassRecord) -> &'static str {
    let asked = pass.roles[0].journal.iter().map(|entry| match &entry.request {
        Request::Ask(ask) => match &ask.question {
            Question::Cloud(call) => call.arguments.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    let said: Vec<String> = asked.chain(pass.notes().map(str::to_owned)).collect();
    let by = |edition: &&str| said.len() == 2 && said.iter().all(|one| one.contains(*edition));
    EDITIONS
        .into_iter()
        .find(by)
        .unwrap_or_else(|| panic!("half one, half another: {said:?}"))
}

async fn loaded_digest(fixture: &HostFixture, binding: &str) -> Value {
    let binding = fixture
        .get(&reference("polity.dev/v1alpha1", "PolicyBinding", None, binding))
        .await;
    binding["status"]["policies"]["lifecycle"]["sha256"].clone()
}

/// Swaps the policy while every object has a pass in flight, and looks at the recording.
async fn swapped_in_the_middle(swap: impl AsyncFnOnce(&HostFixture)) {
    let fixture = HostFixture::with(vec![editions("hostile.wasm")]).await;
    let names: Vec<String> = (0..THINGS_AT_ONCE).map(|n| format!("thing-{n}")).collect();
    for name in &names {
        fixture.apply(&thing(name, "edition")).await;
    }
    let in_flight = async || Some(fixture.host.handle.view().await?.passes).filter(|n| *n == THINGS_AT_ONCE);
    fixture.until("passes in flight", in_flight).await;
    let before = loaded_digest(&fixture, "things").await;
    swap(&fixture).await;
    let mut after = Value::Null;
    fixture
        .until("another policy", async || {
            let digest = loaded_digest(&fixture, "things").await;
            after = digest.clone();
            (!digest.is_null() && digest != before).then_some(())
        })
        .await;
    for name in &names {
        fixture
            .until(&format!("two passes of {name}"), async || {
                (fixture.host.passes_of(name).len() > 1).then_some(())
            })
            .await;
        let passes = fixture.host.passes_of(name);
        let [old, new] = &passes[..] else {
            panic!("one pass of each policy: {passes:#?}")
        };
        assert_eq!(
            (&old.outcome, &new.outcome),
            (&Outcome::Published, &Outcome::Published)
        );
        assert_eq!([edition_of(old), edition_of(new)], EDITIONS, "{name}");
        assert_eq!(json!(new.roles[0].policy), after);
        assert_ne!(old.roles[0].policy, new.roles[0].policy);
        assert!(
            new.causes.contains(&Cause::Binding),
            "enqueued by the binding: {:?}",
            new.causes
        );
    }
    let digests: BTreeSet<_> = fixture
        .host
        .handle
        .view()
        .await
        .expect("it runs")
        .policies
        .into_iter()
        .collect();
    assert!(digests.iter().any(|id| json!(id) == after));
}

#[tokio::test(start_paused = true)]
async fn a_policy_whose_file_is_replaced_is_swapped_between_passes() {
    swapped_in_the_middle(async |fixture| fixture.put("hostile.wasm", &edition(EDITIONS[1]))).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_another_is_named_instead_of_is_swapped_between_passes() {
    swapped_in_the_middle(async |fixture| {
        fixture.put("other.wasm", &edition(EDITIONS[1]));
        fixture.apply(&editions("other.wasm")).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_configuration_enqueues_objects_that_are_settled() {
    let fixture = HostFixture::with(vec![things()]).await;
    fixture.apply(&json!({"apiVersion": THINGS, "kind": "Thing", "metadata": {"name": "one", "namespace": "default"}})).await;
    let first = fixture.until_passed("one", 0, &Outcome::Published).await;
    assert_eq!(first.wait, None, "settled");
    let mut binding = things();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = json!({"mischief": "ask-ungranted"});
    fixture.apply(&binding).await;
    let second = fixture.until_passed("one", 1, &Outcome::Published).await;
    assert!(second.causes.contains(&Cause::Binding), "{:?}", second.causes);
    assert_eq!(second.notes().collect::<Vec<_>>(), ["refused"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_was_swapped_away_is_let_go() {
    let fixture = HostFixture::with(vec![things()]).await;
    let mut seen = BTreeSet::new();
    for number in 0..3 {
        fixture.put("hostile.wasm", &variant(number));
        let digest = fixture
            .until("another policy", async || {
                let digest = loaded_digest(&fixture, "things").await.as_str()?.to_owned();
                (!seen.contains(&digest)).then_some(digest)
            })
            .await;
        seen.insert(digest);
        let held = fixture.host.handle.view().await.expect("it runs").policies;
        assert_eq!(held.len(), 1, "after {number} swaps: {held:?}");
    }
    fixture
        .delete(&reference("polity.dev/v1alpha1", "PolicyBinding", None, "things"))
        .await;
    let let_go = async || {
        fixture
            .host
            .handle
            .view()
            .await
            .filter(|view| view.policies.is_empty())
    };
    fixture.until("no policy", let_go).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_no_policy_is_named_with_its_cause_while_the_one_before_goes_on() {
    let contract = r#"(component (instance $i) (export "polity:policy/lifecycle@9.0.0" (instance $i)))"#;
    let import = r#"(component (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64))))))"#;
    let whole = guests::capv_machine();
    let large = [whole, &vec![0; 8 << 20]].concat();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("empty", Vec::new(), "the file is empty"),
        (
            "truncated",
            whole[..whole.len() / 2].to_vec(),
            "capv-machine.wasm",
        ),
        ("not wasm", b"#!/bin/sh\n".to_vec(), "not WebAssembly"),
        (
            "another contract",
            wat::parse_str(contract).expect("a component"),
            "polity:policy/lifecycle@9.0.0",
        ),
        (
            "a forbidden import",
            wat::parse_str(import).expect("a component"),
            "wasi:clocks/monotonic-clock@0.2.0",
        ),
        ("too large", large, "the limit is 8388608"),
    ];
    let fixture = HostFixture::with(vec![machines()]).await;
    fixture.apply(&machine("default", "vm")).await;
    fixture.until_passed("vm", 0, &Outcome::Published).await;
    let running = fixture
        .until("a digest", async || {
            loaded_digest(&fixture, "machines")
                .await
                .as_str()
                .map(str::to_owned)
        })
        .await;
    let goes_on = async |what: &str| {
        let passes = fixture.host.passes_of("vm").len();
        let next = fixture.until_passed("vm", passes, &Outcome::Published).await;
        assert_eq!(
            *next.roles[0].policy.0, *running,
            "{what}: the policy before goes on"
        );
        assert_eq!(
            loaded_digest(&fixture, "machines").await,
            *running,
            "{what}: and the status says so"
        );
    };
    for (what, bytes, words) in &cases {
        fixture.put("capv-machine.wasm", whole);
        fixture.until_said("machines", "Loaded", "True", "").await;
        fixture.put("capv-machine.wasm", bytes);
        let message = fixture.until_said("machines", "Loaded", "False", words).await;
        assert!(message.contains("spec.policies.lifecycle"), "{what}: {message}");
        goes_on(what).await;
    }
    std::fs::remove_file(fixture.path("capv-machine.wasm")).expect("it was there");
    fixture
        .until_said("machines", "Loaded", "False", "cannot open")
        .await;
    goes_on("no file").await;
    // Larger than is read at all, and it takes no room.
    let sparse = std::fs::File::create(fixture.path("capv-machine.wasm")).expect("created");
    sparse.set_len(65 << 20).expect("a hole");
    fixture
        .until_said(
            "machines",
            "Loaded",
            "False",
            "is not a file, or is larger than 16 MiB",
        )
        .await;
    goes_on("much too large").await;

    let mut binding = machines();
    binding["spec"]["policies"]["lifecycle"]["sha256"] = json!("0".repeat(64));
    fixture.put("capv-machine.wasm", whole);
    fixture.apply(&binding).await;
    let message = fixture
        .until_said("machines", "Loaded", "False", "but the binding demands \"0000")
        .await;
    assert!(message.contains(&running), "{message}");
    fixture.until_machines_run().await;
    goes_on("a wrong sha256").await;

    binding["spec"]["policies"]["lifecycle"]["sha256"] = json!(running);
    fixture.apply(&binding).await;
    fixture.until_said("machines", "Loaded", "True", "").await;
}
