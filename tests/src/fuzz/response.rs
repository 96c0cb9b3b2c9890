//! Bodies of responses: read, kept in part, and scrubbed, as the host does before a driver sees them.
//!
//! What is kept is what the definition of paths says, within the limits of values, and contains no secret.

use polity_body::{MOST_VALUES, read, whole};
use polity_clouds::{REDACTED, Redactor};
use serde_json::{Value, json};

use super::{Choices, weird};

/// Parts of paths, and names of fields: with dots, empty, and those of secrets.
const NAMES: [&str; 12] = [
    "a",
    "b",
    "a.b",
    "",
    ".",
    "*",
    "key",
    "value",
    "$text",
    "adminPass",
    "user_data",
    "c",
];
/// The largest body that the host takes in.
const LARGEST: usize = 4 << 20;

/// Reads the body of these bytes.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let paths = paths(&mut choices);
    let secret = secret(&mut choices);
    let mut body = match choices.below(5) {
        0 => Vec::new(),
        1 => weird::value(&mut choices, 5).to_string().into_bytes(),
        2 => named(&mut choices, 5, &secret).to_string().into_bytes(),
        3 => element(&mut choices, 5, &secret).into_bytes(),
        _ => many(&mut choices),
    };
    body.extend_from_slice(choices.rest());
    body.truncate(LARGEST);
    let seen = read(&body, &paths);
    match whole(&body) {
        Some(tree) => {
            assert!(count(&tree) <= 2 * MOST_VALUES, "{} values", count(&tree));
            assert_eq!(seen.text, None);
            // The definition compares each path with each field.
            if body.len() < 10_000 {
                let rests: Vec<Option<&str>> = paths
                    .iter()
                    .map(|path| Some(path.as_str()).filter(|path| *path != "*"))
                    .collect();
                assert_eq!(seen.kept, kept(&tree, &rests), "{paths:?} of {tree}");
            }
        }
        None => {
            assert_eq!(seen.kept, Value::Null);
            assert!(seen.text.as_ref().is_none_or(|text| text.len() <= 512));
        }
    }
    let mut redactor = Redactor::default();
    redactor.learn(&secret);
    let (scrubbed, is_missing) = redactor.value(seen.kept.clone());
    assert_eq!(is_missing, scrubbed != seen.kept);
    let text = seen.text.map(|text| redactor.scrub(&text)).unwrap_or_default();
    // A mark beside other text could look like such a secret.
    if secret.len() >= 8 && !REDACTED.contains(&secret) && !secret.contains(['[', ']']) {
        has_no(&scrubbed, &secret);
        assert!(!text.contains(&secret), "{secret:?} in {text:?}");
    }
}

fn paths(choices: &mut Choices<'_>) -> Vec<String> {
    let path = |choices: &mut Choices<'_>| {
        let parts: Vec<&str> = (0..=choices.below(4)).map(|_| choices.pick(&NAMES)).collect();
        parts.join(".")
    };
    (0..choices.below(6)).map(|_| path(choices)).collect()
}

fn secret(choices: &mut Choices<'_>) -> String {
    match choices.below(4) {
        0 => "hunter22".to_owned(),
        1 => "a line of a secret\nand one of more than twenty bytes".to_owned(),
        2 => "aaaa".repeat(choices.below(20) + 1),
        _ => String::from_utf8_lossy(choices.bytes(40)).into_owned(),
    }
}

/// A value with names that paths have, and texts with the secret.
fn named(choices: &mut Choices<'_>, depth: usize, secret: &str) -> Value {
    match choices.below(if depth == 0 { 2 } else { 4 }) {
        0 => json!(choices.byte()),
        1 => json!(format!(
            "{}{secret}{}",
            choices.pick(&NAMES),
            choices.pick(&["", "a", "aaaa"])
        )),
        2 => (0..choices.below(4))
            .map(|_| named(choices, depth - 1, secret))
            .collect(),
        _ => {
            let field = |choices: &mut Choices<'_>| {
                let name = choices.pick(&NAMES).to_owned();
                (name, named(choices, depth - 1, secret))
            };
            (0..choices.below(5)).map(|_| field(choices)).collect()
        }
    }
}

fn element(choices: &mut Choices<'_>, depth: usize, secret: &str) -> String {
    let name = choices.pick(&["a", "b", "key", "value", "a.b"]);
    let content: String = match depth {
        0 => secret.replace('&', "&amp;").replace('<', "&lt;"),
        _ => (0..choices.below(4))
            .map(|_| element(choices, depth - 1, secret))
            .collect(),
    };
    format!(
        "<{name} a='{}'>{content}guestinfo.userdata</{name}>",
        choices.byte()
    )
}

/// Many small values, or a deep one.
fn many(choices: &mut Choices<'_>) -> Vec<u8> {
    let part = choices.pick(&[
        "[",
        "{\"a\":",
        "0,",
        "[],",
        "\"a\",",
        "<a>",
        "<a/>",
        "<a b=''/>",
        " a=''",
        "\\\"",
        "&lt;",
    ]);
    let begin = choices.pick(&["", "[", "<a>", "<a", "\""]);
    let end = choices.pick(&["", "0]", "</a>", "/>", "\""]);
    let times = usize::from(choices.short()) << choices.below(6);
    format!("{begin}{}{end}", part.repeat(times.min(LARGEST / part.len()))).into_bytes()
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(elements) => elements.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn has_no(value: &Value, secret: &str) {
    match value {
        Value::String(text) => assert!(!text.contains(secret), "{secret:?} in {text:?}"),
        Value::Array(elements) => elements.iter().for_each(|element| has_no(element, secret)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            // A name is never changed for a short secret.
            assert!(
                secret.len() < 16 || !name.contains(secret),
                "{secret:?} in {name:?}"
            );
            has_no(field, secret);
        }),
        _ => {}
    }
}

/// What is kept, by the definition: each path is followed for itself. `None` is a path that ends here.
fn kept(value: &Value, paths: &[Option<&str>]) -> Value {
    let is_all = paths.contains(&None);
    match value {
        Value::Object(fields) => {
            let is_secret = fields.get("key").is_some_and(is_secret_key);
            let mut all = serde_json::Map::new();
            for (name, field) in fields {
                if is_secret_name(name) || is_secret && name == "value" {
                    continue;
                }
                let deeper: Vec<Option<&str>> = if is_all {
                    vec![None]
                } else {
                    paths.iter().filter_map(|path| beyond((*path)?, name)).collect()
                };
                if !deeper.is_empty() {
                    all.insert(name.clone(), kept(field, &deeper));
                }
            }
            all.into()
        }
        Value::Array(elements) => elements.iter().map(|element| kept(element, paths)).collect(),
        other if is_all => other.clone(),
        _ => Value::Null,
    }
}

fn beyond<'a>(path: &'a str, field: &str) -> Option<Option<&'a str>> {
    let rest = path.strip_prefix(field)?;
    if rest.is_empty() {
        Some(None)
    } else {
        rest.strip_prefix('.').map(Some)
    }
}

fn is_secret_name(name: &str) -> bool {
    ["adminpass", "user_data"].contains(&&*name.to_ascii_lowercase())
}

fn is_secret_key(key: &Value) -> bool {
    let text = key.as_str().or_else(|| key.get(0)?.get("$text")?.as_str());
    text.is_some_and(|text| text.to_ascii_lowercase().starts_with("guestinfo.userdata"))
}
