//! Kubernetes Events, of `events.k8s.io/v1`. Each pair of reason and message of an object is one Event object;
//! when it happens again the object gets a series, which is counted up.

use polity_core::contract::{Answer, Event, EventType, ObjectRef};
use polity_core::time::Unix;
use polity_kube_rules::time::{micro_time, of_unix_ms};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Cluster;
use crate::request::MANAGER;

/// The most bytes of a message (`note`) and of a reason that an API server accepts: `NoteLengthLimit` and
/// `ReasonLengthLimit` of Kubernetes 1.36.3 (`pkg/apis/core/validation/events.go`).
const MESSAGE: usize = 1_024;
const REASON: usize = 128;
/// The highest count of a series: the field has 32 bits.
const COUNT: u64 = i32::MAX as u64;
/// What is done when an Event is made. An Event without an action is refused.
const ACTION: &str = "Reconcile";
/// The controller that Events name. The instance is the host's own name.
const CONTROLLER: &str = "polity";
/// The most characters of the object's name in the name of its Event. With the hash the whole stays below the
/// 253 that a name may have.
const NAME: usize = 200;

impl Cluster {
    /// Counts up an Event object that exists already. Of an Event, a server lets only the series change.
    pub(crate) async fn count(&self, event: &ObjectRef, now: Unix) -> Answer {
        let known = self.get(event).await?;
        // An older host counted in the fields of core/v1.
        let counted = known["series"]["count"].as_u64();
        let counted = counted.or_else(|| known["deprecatedCount"].as_u64());
        let count = counted.unwrap_or(1).max(1).saturating_add(1).min(COUNT);
        let series = json!({"count": count, "lastObservedTime": micro_time(of_unix_ms(now.0))});
        self.merge(event, &json!({"series": series}), &[MANAGER]).await
    }
}

/// The Event object for a first occurrence. Its name is a hash of its content, so that the next occurrence
/// finds the same object.
pub(crate) fn fresh(object: &ObjectRef, uid: &str, event: &Event, now: Unix) -> Value {
    let (reason, message) = (reason(&event.reason), cut(&event.message, MESSAGE));
    let hash = Sha256::new_with_prefix(uid)
        .chain_update([0])
        .chain_update(&reason)
        .chain_update([0])
        .chain_update(message)
        .finalize();
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name: String = object.name.chars().take(NAME).collect();
    let name = name.trim_end_matches(['.', '-']);
    // Kubernetes puts Events of cluster-scoped objects into the namespace `default`.
    let namespace = object.namespace.as_deref().unwrap_or("default");
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{hash}"), "namespace": namespace},
        "regarding": {
            "apiVersion": object.kind.api_version, "kind": object.kind.kind,
            "namespace": object.namespace, "name": object.name, "uid": uid,
        },
        "type": match event.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": reason, "note": message, "action": ACTION, "eventTime": micro_time(of_unix_ms(now.0)),
        "reportingController": CONTROLLER, "reportingInstance": instance(),
    })
}

/// The name of this host: in a cluster that of its Pod. An instance has 128 bytes at most
/// (`ReportingInstanceLengthLimit`); a host's name has 64.
fn instance() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Turns a text into a valid reason: one word of letters, digits and `-_.:/`.
fn reason(said: &str) -> String {
    let joins = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    let word: String = said.chars().filter(joins).take(REASON).collect();
    if word.is_empty() {
        "Unspecified".to_owned()
    } else {
        word
    }
}

/// At most `most` bytes of a text, cut between two characters.
fn cut(text: &str, most: usize) -> &str {
    let end = text.floor_char_boundary(most);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, reference, refusal};
    use polity_core::call::Write;

    fn write(message: &str, now: Unix) -> Write {
        Write::Event {
            object: reference("g/v1", "Widget", "a", "x"),
            uid: "u".into(),
            event: Event {
                kind: EventType::Warning,
                reason: "CloneFailed".into(),
                message: message.into(),
            },
            now,
        }
    }

    #[tokio::test]
    async fn an_event_says_what_happened_to_what() {
        let fake = Fake::serving([Reply::json(201, json!({}))]);
        let wrote = fake
            .cluster()
            .write(&write("no room", Unix(951_782_400_000)))
            .await;
        assert!(wrote.is_ok());
        let event = &fake.seen()[0].body;
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["regarding"]["kind"], "Widget");
        assert_eq!(event["reportingController"], "polity");
        assert_ne!(event["reportingInstance"], "");
        assert_eq!(
            (&event["type"], &event["series"]),
            (&json!("Warning"), &Value::Null)
        );
        assert_eq!(event["eventTime"], "2000-02-29T00:00:00.000000Z");
        assert_eq!(event["note"], "no room");
        assert!(
            event["metadata"]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("x."))
        );
    }

    #[tokio::test]
    async fn the_same_event_again_is_counted_and_another_is_not() {
        let known = json!({"series": {"count": 4}});
        let fake = Fake::serving([
            refusal(409, "AlreadyExists", "x.1"),
            Reply::json(200, known),
            Reply::json(200, json!({})),
            Reply::json(201, json!({})),
        ]);
        let cluster = fake.cluster();
        assert!(
            cluster
                .write(&write("no room", Unix(951_782_400_000)))
                .await
                .is_ok()
        );
        assert!(
            cluster
                .write(&write("no host", Unix(951_782_400_000)))
                .await
                .is_ok()
        );
        let seen = fake.seen();
        let name = |n: usize| {
            seen[n].body["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            seen[2].path,
            format!(
                "/apis/events.k8s.io/v1/namespaces/a/events/{}?fieldManager=polity",
                name(0)
            )
        );
        assert_eq!(
            seen[2].body,
            json!({"series": {"count": 5, "lastObservedTime": "2000-02-29T00:00:00.000000Z"}})
        );
        assert_ne!(name(0), name(3));
    }

    #[test]
    fn names_and_messages_are_as_long_as_a_server_takes() {
        let event = Event {
            kind: EventType::Normal,
            reason: "R".into(),
            message: "ä".repeat(2_000),
        };
        let mut object = reference(
            "v1",
            "Node",
            "a",
            &format!("{}-.{}", "n".repeat(198), "m".repeat(50)),
        );
        object.namespace = None;
        let event = fresh(&object, "u", &event, Unix(0));
        let name = event["metadata"]["name"].as_str().unwrap_or_default();
        assert!(
            name.len() <= 253 && !name.contains("-.") && !name.contains(".."),
            "{name}"
        );
        assert_eq!(event["note"].as_str().map(str::len), Some(1_024));
        assert_eq!(event["metadata"]["namespace"], "default");
    }

    #[test]
    fn a_reason_is_a_word_of_128_bytes_at_most() {
        for (said, word) in [
            ("CloneFailed", "CloneFailed"),
            ("a b\u{1b}[2J\u{202e}c", "ab2Jc"),
            ("\n", "Unspecified"),
            ("", "Unspecified"),
            (&"x".repeat(5_000), &"x".repeat(128)),
        ] {
            assert_eq!(reason(said), word);
        }
        assert_eq!(cut(&"a€".repeat(1_000), 1_024).len(), 1_024);
        assert_eq!(cut(&"€".repeat(1_000), 1_024).len(), 1_023);
    }

    #[tokio::test]
    async fn what_was_counted_past_all_bounds_is_counted_no_further() {
        let known = json!({"series": {"count": u64::MAX}});
        let fake = Fake::serving([
            refusal(409, "AlreadyExists", "x.1"),
            Reply::json(200, known),
            Reply::json(200, json!({})),
        ]);
        assert!(fake.cluster().write(&write("no room", Unix(0))).await.is_ok());
        assert_eq!(fake.seen()[2].body["series"]["count"], i32::MAX);
    }

    #[tokio::test]
    async fn the_second_time_of_an_event_begins_its_series_where_an_older_host_had_counted_to() {
        for (known, count) in [
            (json!({}), 2),
            (json!({"deprecatedCount": 7}), 8),
            (json!({"deprecatedCount": 0}), 2),
        ] {
            let fake = Fake::serving([
                refusal(409, "AlreadyExists", "x.1"),
                Reply::json(200, known),
                Reply::json(200, json!({})),
            ]);
            assert!(fake.cluster().write(&write("no room", Unix(0))).await.is_ok());
            assert_eq!(fake.seen()[2].body["series"]["count"], count);
        }
    }
}
