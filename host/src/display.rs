//! Texts, times and digests for people: safe on a terminal, and cut to a length that people read.

use std::time::Duration;

use polity_core::contract::Next;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::millis;
use serde_json::Value;

use crate::overview::is_released;

/// The most characters that a line or a cell shows of a text that anybody may have written. The message of an Event has as many.
pub(crate) const SHOWN: usize = 1_024;

/// A document in which each text is cut to what is shown of it.
pub(crate) fn shown(document: Value) -> Value {
    match document {
        Value::String(text) => shortened(&text, SHOWN).into(),
        Value::Array(items) => items.into_iter().map(shown).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(name, value)| (shortened(&name, SHOWN), shown(value)))
                    .collect(),
            )
        }
        other => other,
    }
}

/// JSON without characters that act on a terminal. JSON's own escapes leave some of them in.
pub(crate) fn escaped_json(document: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(document).unwrap_or_default();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if acts_on_terminals(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// A text that is safe to print: characters that act on a terminal are escaped, so that an object's name
/// cannot move the cursor or reverse the text.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts_on_terminals(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
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

/// A text cut to at most `most` characters, after a whole word if possible.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(most) else {
        return text.to_owned();
    };
    let Some((end, _)) = text[..end].char_indices().next_back() else {
        return String::new();
    };
    let whole = text[..end].rfind(' ').filter(|space| *space > end / 2);
    let kept = text[..whole.unwrap_or(end)].trim_end_matches([' ', ',', ';', ':', '.']);
    format!("{kept}…")
}

/// What follows a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Then {
    /// In a few words, for example `retries in 1s`.
    pub(crate) next: String,
    /// What went wrong, if something did.
    pub(crate) why: Option<String>,
}

impl std::fmt::Display for Then {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Some(why) => write!(f, "{} ({why})", self.next),
            None => f.write_str(&self.next),
        }
    }
}

/// What follows a pass, in words.
pub(crate) fn then(record: &PassRecord) -> Then {
    let wait = record.wait;
    let in_time = |what: &str| match &wait {
        Some(wait) if wait.is_zero() => format!("{what} at once"),
        Some(wait) => format!("{what} in {}", duration(*wait)),
        None => what.to_owned(),
    };
    let (next, why) = match (&record.outcome, &record.next) {
        (Outcome::Discarded(why), _) => (in_time("again"), Some(format!("discarded: {why}"))),
        (Outcome::Faulted, _) => {
            let fault = record.roles.iter().find_map(|role| role.fault.as_ref());
            let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
            (in_time("again"), Some(format!("quarantined{fault}")))
        }
        (Outcome::Failed(failure), _) => (in_time("again"), Some(format!("not published: {failure}"))),
        (Outcome::Bug(what), _) => (in_time("again"), Some(format!("a defect of Polity: {what}"))),
        (Outcome::LeaseLost, _) => ("when the lease is held again".into(), None),
        (Outcome::Stopped, _) => ("when a host runs again".into(), None),
        (Outcome::Published | Outcome::Denied | Outcome::Released, _) if is_released(record) => {
            ("released".into(), None)
        }
        (
            outcome @ (Outcome::Denied | Outcome::Published),
            Some(Next::Retry {
                failure: Some(failure),
                ..
            }),
        ) => {
            let retries = match outcome {
                Outcome::Denied => "denied, retries",
                _ => "retries",
            };
            (in_time(retries), Some(failure.to_string()))
        }
        (Outcome::Denied, _) => (in_time("denied, looks again"), None),
        (Outcome::Published, Some(Next::Settled(_))) => (in_time("settled, looks again"), None),
        (Outcome::Published | Outcome::Released, _) => (in_time("next"), None),
    };
    Then { next, why }
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
    use polity_core::contract::{Code, Failure, RetryClass};
    use serde_json::json;

    use super::*;
    use crate::edges::tests::pass;

    #[test]
    fn an_object_that_is_denied_or_let_go_is_not_called_settled() {
        for (outcome, is_deleting, next) in [
            ("published", false, "settled, looks again in 20s"),
            ("published", true, "released"),
            ("released", true, "released"),
            ("denied", false, "denied, looks again in 20s"),
            ("denied", true, "released"),
        ] {
            let then = then(&pass(&[], outcome, is_deleting));
            assert_eq!(then.to_string(), next, "{outcome}");
        }
    }

    #[test]
    fn a_text_is_cut_after_a_word() {
        assert_eq!(cut("The VM is on.", 13), "The VM is on.");
        assert_eq!(cut("The VM is on, and more", 15), "The VM is on…");
        assert_eq!(cut("Übergrößenträger", 6), "Überg…");
        assert_eq!((cut("one", 1), cut("one", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn a_denial_that_is_retried_says_its_failure_as_any_other_retry() {
        for (outcome, told) in [
            ("denied", "denied, retries in 20s (unavailable: STS is away)"),
            ("published", "retries in 20s (unavailable: STS is away)"),
        ] {
            let mut record = pass(&[], outcome, false);
            let failure = Some(Failure::new(Code::Unavailable, "STS is away"));
            let class = RetryClass::Short;
            record.next = Some(Next::Retry { class, failure });
            assert_eq!(then(&record).to_string(), told);
        }
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
