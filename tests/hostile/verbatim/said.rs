//! What a policy of this folder says: JSON that a test wrote down, with a few words for what is too long, too deep, or
//! not known to the test.
//!
//! | word | becomes |
//! |---|---|
//! | `{"$text": ["a", ["b", 3]]}` | the text `abbb` |
//! | `{"$times": [value, 3]}` in a list | the value three times; `{n}` in its texts is 0, 1, 2 |
//! | `{"$own": "metadata.uid"}` | a value of the primary |
//! | `{"$answer": [0, "metadata.uid"]}` | a value of an answer in the journal |
//! | `{"$used": true}` | the indices of all entries of the journal |
//! | `{"$do": "panic"}` | nothing: the policy panics, or `loop`s, `recurse`s, `allocate`s |
//! | `{"$burn": 1000}` | null, after so many rounds of a loop, each of about eleven units of fuel |

use std::collections::BTreeSet;
use std::hint::black_box;

use serde_json::{Map, Value, json};

/// What the words mean in this step.
#[derive(Default)]
pub(crate) struct Snapshot<'a> {
    /// The primary; null if there is none.
    pub(crate) object: Value,
    /// The answers of the journal as text; none for a failure. A full journal as trees would not fit into a step's memory.
    pub(crate) answers: Vec<Option<&'a str>>,
}

impl<'a> Snapshot<'a> {
    /// Of a pass: its object, and the answers of its journal as text.
    #[allow(dead_code, reason = "a retry policy has no pass")]
    pub(crate) fn of(object: Option<&str>, answers: impl Iterator<Item = Option<&'a str>>) -> Self {
        Snapshot {
            object: parsed(object),
            answers: answers.collect(),
        }
    }

    /// The step that is due: of those that are written down, the first that wants something that the journal does not
    /// hold, otherwise the last.
    #[allow(dead_code, reason = "a retry policy has no pass")]
    pub(crate) fn step(&self, config: &str) -> Value {
        let written = self.object["metadata"]["annotations"]["answer"].as_str();
        let config: Value = serde_json::from_str(config).unwrap_or_default();
        let script: Value = match written {
            Some(text) => serde_json::from_str(text).expect("the answer is JSON"),
            None => config["answer"].clone(),
        };
        let (mut wanted, mut asked) = (0, BTreeSet::new());
        let mut last = Value::Null;
        for (step, nth) in steps(&script) {
            let step = self.expand(step, nth);
            let requests = step["Pending"].as_array().cloned().unwrap_or_default();
            let step = said(step, &requests);
            if requests.is_empty() {
                return step;
            }
            for request in &requests {
                // Equal asks have one answer.
                if request.get("Ask").is_none() || asked.insert(request.to_string()) {
                    wanted += 1;
                }
            }
            if self.answers.len() < wanted {
                return step;
            }
            last = step;
        }
        last
    }

    /// A value with its words replaced.
    pub(crate) fn expand(&self, value: &Value, nth: u64) -> Value {
        match value {
            Value::String(text) => text.replace("{n}", &nth.to_string()).into(),
            Value::Array(items) => {
                let mut all = Vec::new();
                for item in items {
                    match item.get("$times") {
                        Some(times) => {
                            let count = times[1].as_u64().unwrap_or_default();
                            all.extend((0..count).map(|n| self.expand(&times[0], n)));
                        }
                        None => all.push(self.expand(item, nth)),
                    }
                }
                Value::Array(all)
            }
            Value::Object(fields) => self.word(fields, nth).unwrap_or_else(|| {
                let expanded = |(name, field): (&String, &Value)| (name.clone(), self.expand(field, nth));
                Value::Object(fields.iter().map(expanded).collect())
            }),
            other => other.clone(),
        }
    }

    fn word(&self, fields: &Map<String, Value>, nth: u64) -> Option<Value> {
        let (name, value) = fields.iter().next().filter(|_| fields.len() == 1)?;
        Some(match name.as_str() {
            "$text" => text(value, nth).into(),
            "$own" => at(&self.object, value),
            "$answer" => {
                let index = usize::try_from(value[0].as_u64()?).ok()?;
                at(&parsed(self.answers.get(index).copied().flatten()), &value[1])
            }
            "$used" => json!((0..self.answers.len()).collect::<Vec<_>>()),
            "$do" => misbehave(value.as_str().unwrap_or_default()),
            "$burn" => burn(value.as_u64().unwrap_or_default()),
            _ => return None,
        })
    }
}

/// A text as JSON; null if there is none, or it is no JSON.
fn parsed(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The steps of a script, each with the number that `{n}` is in it.
#[allow(dead_code, reason = "a retry policy has no pass")]
fn steps(script: &Value) -> impl Iterator<Item = (&Value, u64)> {
    let all = script
        .as_array()
        .map_or(std::slice::from_ref(script), Vec::as_slice);
    all.iter().flat_map(|step| {
        let (step, times) = match step.get("$times") {
            Some(times) => (&times[0], times[1].as_u64().unwrap_or_default()),
            None => (step, 1),
        };
        (0..times).map(move |nth| (step, nth))
    })
}

/// A step as the contract has it: requests, which are written down as the journal has them, are all asks or all acts.
#[allow(dead_code, reason = "a retry policy has no pass")]
fn said(mut step: Value, requests: &[Value]) -> Value {
    if step["Pending"].is_array() {
        let of =
            |sort: &str| -> Vec<&Value> { requests.iter().filter_map(|request| request.get(sort)).collect() };
        step["Pending"] = match of("Ask") {
            none if none.is_empty() => json!({"Acts": of("Act")}),
            asks => json!({"Asks": asks}),
        };
    }
    step
}

/// Texts one after another, some of them several times.
fn text(parts: &Value, nth: u64) -> String {
    let part = |part: &Value| match part {
        Value::Array(times) => {
            let count = usize::try_from(times[1].as_u64().unwrap_or_default()).unwrap_or_default();
            times[0].as_str().unwrap_or_default().repeat(count)
        }
        one => one.as_str().unwrap_or_default().replace("{n}", &nth.to_string()),
    };
    parts.as_array().into_iter().flatten().map(part).collect()
}

/// The value at a dotted path.
fn at(value: &Value, path: &Value) -> Value {
    let path = path.as_str().unwrap_or_default();
    let found = path
        .split('.')
        .try_fold(value, |value, part| match part.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(part),
        });
    found.cloned().unwrap_or_default()
}

fn burn(rounds: u64) -> Value {
    let mut n = 0u64;
    for _ in 0..rounds {
        n = black_box(n.wrapping_add(1));
    }
    black_box(n);
    Value::Null
}

fn misbehave(how: &str) -> Value {
    match how {
        "loop" => {
            let mut n = 0u64;
            loop {
                n = black_box(n.wrapping_add(1));
            }
        }
        "recurse" => json!(recurse(1)),
        "allocate" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(black_box(vec![1; 1 << 16]));
            }
        }
        _ => panic!("as it was told"),
    }
}

#[allow(unconditional_recursion, reason = "this is what it is for")]
fn recurse(n: u64) -> u64 {
    let frame = black_box([n; 32]);
    recurse(frame[0] + 1) + frame[31]
}

/// Fills in what a test did not write down: of a conclusion, that there is nothing to say.
#[allow(dead_code, reason = "a retry policy concludes nothing")]
pub(crate) fn fill(conclusion: &mut Value, used: usize) {
    let whole = json!({"patch": null, "events": [], "notes": [], "next": {"Settled": null},
        "used": (0..used).collect::<Vec<_>>()});
    if let (Value::Object(fields), Value::Object(whole)) = (conclusion, whole) {
        for (name, value) in whole {
            fields.entry(name).or_insert(value);
        }
    }
}

/// Bytes of the place where a test writes the manifest of a policy of its own into the compiled one.
const PLACE: usize = 4_096;
/// What they begin with.
const MARK: &[u8] = b"verbatim manifest:";

/// The place, with a manifest that is right: every field of the contract.
pub(crate) const fn place(manifest: &str) -> [u8; PLACE] {
    let (mut bytes, manifest) = ([b' '; PLACE], manifest.as_bytes());
    let mut at = 0;
    while at < MARK.len() {
        bytes[at] = MARK[at];
        at += 1;
    }
    while at < MARK.len() + manifest.len() {
        bytes[at] = manifest[at - MARK.len()];
        at += 1;
    }
    bytes
}

/// The manifest that stands in the place by now, as text: a text stands for itself.
pub(crate) fn manifest(place: &'static [u8; PLACE]) -> String {
    let bytes = &black_box(place)[MARK.len()..];
    let written = std::str::from_utf8(bytes).expect("a manifest is text");
    let written = serde_json::from_str(written).expect("a manifest is JSON");
    match Snapshot::default().expand(&written, 0) {
        Value::String(text) => text,
        manifest => manifest.to_string(),
    }
}
