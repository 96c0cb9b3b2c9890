//! Scrubs secret values from everything that comes back from a cloud.

use polity_core::contract::{Answer, Failure};
use serde_json::Value;

/// The mark in place of a value.
pub const REDACTED: &str = "[redacted]";
/// The shortest value that is cut out of a text. A shorter value occurs by chance in any text, so a text that
/// contains it is withheld as a whole.
const SHORTEST: usize = 4;
/// The shortest line of a longer value that counts as a value of its own: clouds quote the line that they
/// refuse.
const SHORTEST_LINE: usize = 8;

/// Scrubs values in each way in which a cloud may spell them: raw, base64 at each offset in both alphabets,
/// hexadecimal, and escaped as in JSON, in a Rust string and in a URL.
#[derive(Clone, Default)]
pub struct Redactor {
    /// All spellings, longest first. Otherwise a short spelling could be cut out of a longer one, and leave its rest.
    needles: Vec<String>,
    short: Vec<String>,
}

impl Redactor {
    /// Scrubs this value and each of its longer lines from now on.
    pub fn learn(&mut self, value: &str) {
        self.learn_one(value);
        if value.contains('\n') {
            value
                .lines()
                .map(str::trim)
                .filter(|l| l.len() >= SHORTEST_LINE)
                .for_each(|l| self.learn_one(l));
        }
        self.needles
            .sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.needles.dedup();
    }

    fn learn_one(&mut self, value: &str) {
        if value.is_empty() {
            return;
        }
        if value.len() < SHORTEST {
            self.short.push(value.to_owned());
            return;
        }
        self.needles.extend(spellings(value));
    }

    /// The text without the values.
    pub fn scrub(&self, text: &str) -> String {
        let scrubbed = self.needles.iter().fold(text.to_owned(), |text, needle| {
            if text.contains(needle.as_str()) {
                text.replace(needle.as_str(), REDACTED)
            } else {
                text
            }
        });
        match self.short.iter().any(|s| scrubbed.contains(s.as_str())) {
            true => REDACTED.to_owned(),
            false => scrubbed,
        }
    }

    /// The answer without the values, in its texts and in its field names.
    pub fn answer(&self, answer: Answer) -> Answer {
        if self.needles.is_empty() && self.short.is_empty() {
            return answer;
        }
        match answer {
            Ok(value) => Ok(self.value(value)),
            Err(failure) => Err(Failure {
                message: self.scrub(&failure.message),
                ..failure
            }),
        }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.scrub(&text)),
            Value::Array(items) => items.into_iter().map(|v| self.value(v)).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(k, v)| (self.scrub(&k), self.value(v)))
                .collect(),
            other => other,
        }
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} spellings)", self.needles.len() + self.short.len())
    }
}

fn spellings(value: &str) -> Vec<String> {
    let json = Value::from(value).to_string();
    let rust = format!("{value:?}");
    let mut all = vec![value.to_owned(), inside(&json), inside(&rust), percent(value)];
    all.extend([hex(value, false), hex(value, true)]);
    all.extend(
        (0..3)
            .filter_map(|offset| base64(value.as_bytes(), offset))
            .flatten(),
    );
    all
}

/// The text between the quotes.
fn inside(quoted: &str) -> String {
    quoted[1..quoted.len() - 1].to_owned()
}

fn hex(value: &str, upper: bool) -> String {
    value
        .bytes()
        .map(|b| {
            if upper {
                format!("{b:02X}")
            } else {
                format!("{b:02x}")
            }
        })
        .collect()
}

fn percent(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    value
        .bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// The base64 characters that depend only on the value if it begins at this offset (mod 3) in a larger text.
fn base64(value: &[u8], offset: usize) -> Option<[String; 2]> {
    const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = value.len() * 8;
    // The first bit of the first character that belongs wholly to the value, counted from the value's start.
    let start = (6 - (offset * 8) % 6) % 6;
    let bit = |i: usize| (value[i / 8] >> (7 - i % 8)) & 1;
    let sextet = |at: usize| (at..at + 6).fold(0u8, |n, i| (n << 1) | bit(i));
    let text: String = (start..(bits + 1).saturating_sub(6))
        .step_by(6)
        .map(|at| char::from(STANDARD[sextet(at) as usize]))
        .collect();
    let url = text.replace('+', "-").replace('/', "_");
    (text.len() >= SHORTEST).then_some([text, url])
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::Code;

    const SECRET: &str = "p\"ss wörd/\\+\u{fb}\u{ff}~>?9";

    fn knowing(value: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.learn(value);
        redactor
    }

    /// A simple encoder, written independently of the tested one.
    fn encode(bytes: &[u8], alphabet: &[u8; 64]) -> String {
        let mut out = String::new();
        for chunk in bytes.chunks(3) {
            let n = chunk
                .iter()
                .chain([&0, &0])
                .take(3)
                .fold(0u32, |n, b| (n << 8) | u32::from(*b));
            for i in 0..=chunk.len() {
                out.push(char::from(alphabet[(n >> (18 - 6 * i)) as usize & 63]));
            }
        }
        out
    }

    #[test]
    fn values_are_scrubbed_raw_and_escaped() {
        let r = knowing(SECRET);
        for text in [
            SECRET.to_owned(),
            Value::from(SECRET).to_string(),
            format!("{SECRET:?}"),
            percent(SECRET),
        ] {
            let scrubbed = r.scrub(&format!("bad value: <{text}>"));
            assert!(
                scrubbed.contains(REDACTED) && !scrubbed.contains(text.as_str()),
                "{scrubbed}"
            );
            assert!(
                !scrubbed.contains("wörd") && !scrubbed.contains("w%C3"),
                "{scrubbed}"
            );
        }
    }

    #[test]
    fn values_are_scrubbed_from_base64_at_every_offset_in_both_alphabets() {
        let r = knowing(SECRET);
        let standard = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let url = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        for before in ["", "x", "xy", "xyz", "wxyz{"] {
            for after in ["", "}", "ab"] {
                for alphabet in [standard, url] {
                    let text = encode(format!("{before}{SECRET}{after}").as_bytes(), alphabet);
                    let left = r.scrub(&text);
                    assert!(
                        left.contains(REDACTED),
                        "{before:?} {after:?}: {text} stayed {left}"
                    );
                    // At most one character on each side mixes bits of the value with bits of its neighbours.
                    let kept = left.replace(REDACTED, "").len();
                    assert!(
                        kept <= (before.len() * 8).div_ceil(6) + (after.len() * 8).div_ceil(6) + 2,
                        "{left}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_quoted_line_of_a_longer_value_is_scrubbed() {
        let r = knowing("-----BEGIN-----\nMIIBVwIBADANBgkq\nx\n");
        assert_eq!(r.scrub("line 2: MIIBVwIBADANBgkq?"), "line 2: [redacted]?");
        assert_eq!(
            r.scrub("x marks"),
            "x marks",
            "a short line does not count as a value"
        );
    }

    #[test]
    fn a_text_with_a_very_short_value_is_withheld_whole() {
        assert_eq!(knowing("ab").scrub("grab it"), REDACTED);
        assert_eq!(knowing("ab").scrub("nothing here"), "nothing here");
    }

    #[test]
    fn answers_are_scrubbed_in_failures_strings_and_field_names() {
        let r = knowing("hunter22");
        let failure = r
            .answer(Err(Failure::new(Code::Internal, "no hunter22")))
            .unwrap_err();
        assert_eq!(failure.message, "no [redacted]");
        let value = r
            .answer(Ok(serde_json::json!({"hunter22": ["is hunter22", 7]})))
            .unwrap();
        assert_eq!(value, serde_json::json!({"[redacted]": ["is [redacted]", 7]}));
    }

    #[test]
    fn a_redactor_does_not_tell_what_it_knows() {
        assert!(!format!("{:?}", knowing("hunter22")).contains("hunter"));
    }
}
