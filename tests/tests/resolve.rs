//! A create in doubt that no look at the cloud can resolve: a person resolves it with `polity resolve`.

use polity_core::call::Write;
use polity_core::object::Object;
use serde_json::{Value, json};

use crate::ec2::{MCM, ON_SIM, kind};
use crate::process::Process;

/// A process on the simulated cloud, in which a machine has an entry of a driver that is not there any more, and that machine.
async fn in_doubt() -> (Process, Value) {
    let mut host = Process::begin("aws-machines", &[ON_SIM]).await;
    let made = |all: &[Value]| {
        let machine = all.iter().find(|machine| machine["metadata"]["name"] == "web-1");
        machine.is_some_and(|machine| machine["status"]["providerID"].is_string())
    };
    let machines = host.until(&kind(MCM, "Machine"), made).await;
    let machine = machines
        .into_iter()
        .find(|machine| machine["metadata"]["name"] == "web-1");
    let machine = machine.expect("it was made");
    let entry = json!({
        "operation": "machine.create", "service": "machine@1", "intent": "web-1", "key": "k-9", "stamp": 99,
        "place": ["elsewhere"], "principal": "somebody", "since": 1_767_225_600_000_u64,
    });
    let doubt = Write::Patch {
        object: Object::new(machine.clone()).reference(),
        subresource: Some("status".into()),
        precondition: None,
        patch: json!({"status": {"pending": [entry]}}),
    };
    host.cluster.write(&doubt).await.expect("it is written");
    (host, machine)
}

fn pending(all: &[Value]) -> Option<&Value> {
    let machine = all
        .iter()
        .find(|machine| machine["metadata"]["name"] == "web-1")?;
    machine["status"]["pending"].get(0)
}

/// What a person says, and what they are told: whether it was taken, and the words.
fn said(host: &Process, arguments: &[&str]) -> (bool, String) {
    let told = host.asked(&[&["resolve", "machines", "team-a/web-1"], arguments].concat());
    let words = String::from_utf8_lossy(&told.stderr).into_owned();
    (told.status.success(), words)
}

#[tokio::test]
async fn what_no_look_at_the_cloud_tells_a_person_says_and_the_next_pass_takes_it() {
    let (mut host, machine) = in_doubt().await;
    // No driver finds it, so the host waits.
    let waited = |all: &[Value]| pending(all).is_some_and(|entry| entry["waited"].as_u64() > Some(0));
    host.until(&kind(MCM, "Machine"), waited).await;

    for (arguments, words) in [
        (
            &["k-8", "--absent"][..],
            "has no entry \"k-8\" in status.pending; it has k-9",
        ),
        (&["k-9"], "--absent"),
        (&["k-9", "--done", "{"], "--done is not JSON"),
        (
            &["k-9", "--done", r#"{"id": 7}"#],
            "--done is not what machine.create answers",
        ),
        (&["k-9", "--absent", "--done", "{}"], "cannot be used with"),
    ] {
        let (is_taken, told) = said(&host, arguments);
        assert!(!is_taken && told.contains(words), "{arguments:?}: {told}");
    }
    let (is_taken, told) = said(&host, &["k-9", "--absent"]);
    assert!(is_taken, "{told}");
    assert!(
        told.contains("machine.create of web-1 (key k-9) is absent"),
        "{told}"
    );
    host.until(&kind(MCM, "Machine"), |all| pending(all).is_none())
        .await;
    let (is_taken, told) = said(&host, &["k-9", "--absent"]);
    assert!(!is_taken && told.contains("nothing is in doubt"), "{told}");

    let uid = machine["metadata"]["uid"].clone();
    let events = host.objects(&kind("events.k8s.io/v1", "Event")).await;
    let resolved = |event: &&Value| event["reason"] == "Resolved" && event["regarding"]["uid"] == uid;
    let event = events
        .iter()
        .find(resolved)
        .expect("everybody sees that a person said it");
    assert_eq!(
        event["note"],
        "a person says that machine.create of web-1 (key k-9) is absent"
    );
    let passes = host.recorded();
    assert!(passes.contains(r#""resolution":"absent""#), "{passes}");
}
