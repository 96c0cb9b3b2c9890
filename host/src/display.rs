//! Texts, times and digests for people: safe on a terminal, and cut to a length that people read.

use std::time::Duration;

use polity_core::contract::Next;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::millis;

/// JSON without characters that act on a terminal. JSON's own escapes leave some of them in.
pub(crate) fn escaped_json(document: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(document).unwrap_or_default();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match acts_on_terminals(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

/// A text that is safe to print: characters that act on a terminal are escaped, so that an object's name
/// cannot move the cursor or reverse the text.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match acts_on_terminals(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether a character is a control character or changes the direction of text.
fn acts_on_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// At most `most` characters of a text, with a mark if it was cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What follows a pass, in words.
pub fn then(record: &PassRecord) -> String {
    let wait = record.wait.map(duration);
    let in_time = |what: &str| {
        wait.as_ref()
            .map_or_else(|| what.to_owned(), |wait| format!("{what} in {wait}"))
    };
    match (&record.outcome, &record.next) {
        (Outcome::Discarded(why), _) => format!("{} (discarded: {why})", in_time("again")),
        (Outcome::Faulted, _) => {
            let fault = record.roles.iter().find_map(|role| role.fault.as_ref());
            let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
            format!("{} (quarantined{fault})", in_time("again"))
        }
        (Outcome::Failed(failure), _) => format!("{} (not published: {failure})", in_time("again")),
        (Outcome::Bug(what), _) => format!("{} (a defect of Polity: {what})", in_time("again")),
        (Outcome::LeaseLost, _) => "when the lease is held again".into(),
        (Outcome::Stopped, _) => "when a host runs again".into(),
        (
            outcome @ (Outcome::Denied | Outcome::Published),
            Some(Next::Retry {
                failure: Some(failure),
                ..
            }),
        ) => {
            let retries = if *outcome == Outcome::Denied {
                "denied, retries"
            } else {
                "retries"
            };
            format!("{} ({failure})", in_time(retries))
        }
        (Outcome::Denied, _) => in_time("denied, looks again"),
        (Outcome::Released, _) => "released".into(),
        (Outcome::Published, Some(Next::Settled(_))) => in_time("settled, looks again"),
        (Outcome::Published, _) => in_time("next"),
    }
}

/// A length in words: `20s`, `1m30s`, `250ms`.
pub fn duration(length: Duration) -> String {
    let ms = millis(length);
    match (ms / 60_000, ms % 60_000) {
        (0, ms) if ms < 1_000 => format!("{ms}ms"),
        (0, ms) if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        (0, ms) => format!("{:.1}s", ms as f64 / 1_000.0),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, ms) => format!("{minutes}m{}s", ms / 1_000),
    }
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use polity_core::contract::{Code, Failure, Kind, RetryClass};
    use polity_core::key::{Key, PassId};
    use polity_core::time::Now;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_denial_that_is_retried_says_its_failure_as_any_other_retry() {
        let told = |outcome: Outcome| {
            let now = Now::default();
            let failure = Failure::new(Code::Unavailable, "STS is away");
            then(&PassRecord {
                pass: PassId(1),
                key: Key {
                    binding: "b".into(),
                    namespace: None,
                    name: "m".into(),
                },
                kind: Kind {
                    api_version: "v1".into(),
                    kind: "Machine".into(),
                },
                uid: String::new(),
                started: now,
                queued: Duration::ZERO,
                ended: now,
                causes: Vec::new(),
                attempt: 0,
                object: None,
                roles: Vec::new(),
                outcome,
                writes: Vec::new(),
                next: Some(Next::Retry {
                    class: RetryClass::Short,
                    failure: Some(failure),
                }),
                retry: None,
                wait: Some(Duration::from_secs(5)),
            })
        };
        assert_eq!(
            told(Outcome::Denied),
            "denied, retries in 5s (unavailable: STS is away)"
        );
        assert_eq!(
            told(Outcome::Published),
            "retries in 5s (unavailable: STS is away)"
        );
    }

    #[test]
    fn what_terminals_act_on_is_escaped_in_text_and_in_json() {
        let evil = "a\u{1b}[2J\u{9b}31m\0\n\u{202e}é";
        assert_eq!(printable(evil), "a\\u{1b}[2J\\u{9b}31m\\u{0}\\n\\u{202e}é");
        let document = json!({ "name": evil });
        let line = escaped_json(&document);
        assert!(!line.chars().any(acts_on_terminals), "{line}");
        let read: Value = serde_json::from_str(&line).expect("it is still JSON");
        assert_eq!(read, document);
    }
}
