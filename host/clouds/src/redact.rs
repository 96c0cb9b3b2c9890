//! Scrubs secret values from everything that comes back from a cloud.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use polity_core::contract::{Answer, Code, Effect, Failure};
use serde_json::Value;

use crate::digest::{Prefixes, digest, power};

/// Why an answer with a value in it is a failure.
pub const REPEATS: &str = "the cloud repeats a value of a Secret (user data, a token or a password), which the host hides, so its answer has \
                           holes: make that value another one";
/// The mark in place of a value.
pub const REDACTED: &str = "[redacted]";
/// The shortest text that is hidden. A shorter one occurs by chance in other texts, so values of credentials that are shorter are
/// refused where they are read.
pub const SHORTEST: usize = 8;
/// The shortest sealed value. A shorter one could be a word or a number of the cloud's answers.
pub const SHORTEST_SEALED: usize = 16;
/// A spelling is looked up by so many first bytes.
const FIRST: usize = 4;
/// The shortest line of a longer value that counts as a value of its own: clouds quote the line that they
/// refuse.
const SHORTEST_LINE: usize = 20;
/// The most lines of a value, and of all values of a redactor, that count as values of their own. The longest lines of a value
/// count: keys and tokens are long.
const MOST_LINES: usize = 1_000;
const MOST_LINES_IN_ALL: usize = 4_000;
/// A spelling of at least this many bytes is looked up by so many first bytes, a shorter one by its first [`FIRST`].
const HEAD: usize = 20;
/// The most lengths of spellings that begin with the same [`HEAD`] bytes and are told apart.
const MOST_LENGTHS: usize = 64;
/// How many bytes are computed on for a byte that is learned, at most: all spellings, for the value and for its lines.
const SPELLED: usize = 64;

/// Scrubs values in each way in which a cloud may spell them: raw, base64 at each offset in both alphabets,
/// hexadecimal, and escaped as in JSON, in XML, in a Rust string and in a URL.
///
/// # Guarantees
///
/// - To scrub takes time linear in the text, however many values are known and whatever they are: at each byte, a spelling is
///   looked up by its first bytes, and then one digest for each of at most `MOST_LENGTHS` lengths.
/// - Everything that is part of any spelling in the text is hidden, also where spellings overlap.
/// - A spelling takes some 40 bytes of memory, however long it is, and its text is not kept. (An automaton takes several bytes
///   for each byte of each spelling, and what a tenant sent of late is kept for a while.)
/// - A copy costs nothing until either is changed.
///
/// # Caveats
///
/// If more than `MOST_LENGTHS` spellings with the same first bytes have different lengths, then where one of them may begin as
/// much is hidden as the longest has.
#[derive(Clone, Default)]
pub struct Redactor(Arc<Spellings>);

#[derive(Clone, Default)]
struct Spellings {
    /// By the first bytes: the lengths of short spellings with these, as bits; the bit [`IS_LONG`] if there are longer ones.
    first: HashMap<[u8; FIRST], u32>,
    /// By the digest of the first [`HEAD`] bytes: the lengths of spellings with these.
    long: HashMap<u64, Lengths>,
    /// The digests of all spellings.
    digests: HashSet<u64>,
    lines: usize,
}

/// Marks first bytes with which spellings of at least [`HEAD`] bytes begin.
const IS_LONG: u32 = 1;

#[derive(Clone, Default)]
struct Lengths {
    longest: usize,
    /// Each with the power that its digest needs; the longest first. Empty if there are too many.
    each: Vec<(usize, u64)>,
}

impl Redactor {
    /// Scrubs this value and its longer lines from now on.
    pub fn learn(&mut self, value: &str) {
        self.learn_text(value);
        if value.contains('\n') {
            let mut lines: Vec<&str> = value
                .lines()
                .map(str::trim)
                .filter(|line| line.len() >= SHORTEST_LINE)
                .collect();
            lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
            let known = Arc::make_mut(&mut self.0);
            let left = MOST_LINES.min(MOST_LINES_IN_ALL - known.lines);
            for line in lines.into_iter().take(left) {
                known.lines += 1;
                known.add_all(line);
            }
        }
    }

    /// Scrubs this text from now on, but not its lines.
    pub fn learn_text(&mut self, text: &str) {
        if text.len() >= SHORTEST {
            Arc::make_mut(&mut self.0).add_all(text);
        }
    }

    /// How much work it is to learn so many bytes, in bytes.
    pub fn work(bytes: usize) -> usize {
        bytes.saturating_mul(SPELLED)
    }

    /// Scrubs also what another redactor scrubs.
    pub fn join(&mut self, other: &Redactor) {
        if self.is_empty() {
            *self = other.clone();
        } else if !other.is_empty() {
            Arc::make_mut(&mut self.0).add_others(&other.0);
        }
    }

    /// How many spellings it knows.
    pub fn spellings(&self) -> usize {
        self.0.digests.len()
    }

    /// Whether it scrubs nothing.
    pub fn is_empty(&self) -> bool {
        self.spellings() == 0
    }

    /// The text without the values.
    pub fn scrub(&self, text: &str) -> String {
        let mut scrubbed = String::with_capacity(text.len());
        let mut end = 0;
        for (from, to) in self.0.found(text) {
            scrubbed.push_str(&text[end..from]);
            scrubbed.push_str(REDACTED);
            end = to;
        }
        scrubbed.push_str(&text[end..]);
        scrubbed
    }

    /// The answer, if none of the values is in it. A hole in an answer would be taken for what the cloud said, such as the id of a
    /// machine. From the message of a failure the values are taken out.
    pub fn answer(&self, answer: Answer) -> Answer {
        match answer {
            Ok(value) => match self.value(value) {
                (value, false) => Ok(value),
                (_, true) => Err(Failure {
                    effect: Effect::Unknown,
                    ..Failure::new(Code::Unavailable, REPEATS)
                }),
            },
            Err(failure) if self.is_empty() => Err(failure),
            Err(failure) => Err(Failure {
                message: self.scrub(&failure.message),
                ..failure
            }),
        }
    }

    /// The value without the values in its texts, and whether anything is missing. A name of a field is never changed, because
    /// whoever reads the value looks for it. A field in whose name a longer value is, is left out.
    pub fn value(&self, value: Value) -> (Value, bool) {
        let mut is_missing = false;
        let value = if self.is_empty() {
            value
        } else {
            self.scrubbed(value, &mut is_missing)
        };
        (value, is_missing)
    }

    fn scrubbed(&self, value: Value, is_missing: &mut bool) -> Value {
        match value {
            Value::String(text) => {
                let scrubbed = self.scrub(&text);
                *is_missing |= scrubbed != text;
                Value::String(scrubbed)
            }
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.scrubbed(item, is_missing));
                items.collect()
            }
            Value::Object(fields) => {
                let mut left = serde_json::Map::new();
                for (name, value) in fields {
                    if self.is_in_name(&name) {
                        *is_missing = true;
                    } else {
                        left.insert(name, self.scrubbed(value, is_missing));
                    }
                }
                Value::Object(left)
            }
            other => other,
        }
    }

    fn is_in_name(&self, name: &str) -> bool {
        let mut found = self.0.found(name).into_iter();
        found.any(|(from, to)| to - from >= SHORTEST_SEALED)
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} spellings)", self.spellings())
    }
}

impl Spellings {
    /// Adds all spellings of a text.
    fn add_all(&mut self, text: &str) {
        each_spelling(text, &mut |spelling| self.add(spelling.as_bytes()));
    }

    fn add(&mut self, spelling: &[u8]) {
        let length = spelling.len();
        let Some(first) = spelling.first_chunk().filter(|_| length >= SHORTEST) else {
            return;
        };
        self.digests.insert(digest(spelling));
        let bits = self.first.entry(*first).or_default();
        if length < HEAD {
            *bits |= 1 << length;
            return;
        }
        *bits |= IS_LONG;
        let lengths = self.long.entry(digest(&spelling[..HEAD])).or_default();
        lengths.add(length, power(length));
    }

    /// Adds the spellings that others know.
    fn add_others(&mut self, others: &Spellings) {
        for (first, bits) in &others.first {
            *self.first.entry(*first).or_default() |= bits;
        }
        for (head, lengths) in &others.long {
            self.long.entry(*head).or_default().add_others(lengths);
        }
        self.digests.extend(&others.digests);
    }

    /// The parts of a text that are spellings, in order and apart.
    fn found(&self, text: &str) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        if self.first.is_empty() {
            return found;
        }
        let bytes = text.as_bytes();
        let mut prefixes = None;
        for (from, window) in bytes.windows(FIRST).enumerate() {
            let Some(bits) = window.first_chunk().and_then(|first| self.first.get(first)) else {
                continue;
            };
            let prefixes = prefixes.get_or_insert_with(|| Prefixes::of(bytes));
            let length = self.longest(prefixes, from, bytes.len() - from, *bits);
            if length == 0 {
                continue;
            }
            let to = text.ceil_char_boundary(from + length);
            match found.last_mut() {
                Some((_, end)) if from < *end => *end = to.max(*end),
                // Only where too much is hidden, a part may begin within a character.
                _ => found.push((text.floor_char_boundary(from), to)),
            }
        }
        found
    }

    /// The length of the longest spelling that begins here; 0 if none does.
    fn longest(&self, prefixes: &Prefixes<'_>, from: usize, left: usize, bits: u32) -> usize {
        let is_known = |length: usize, power| self.digests.contains(&prefixes.digest(from, length, power));
        if bits & IS_LONG != 0
            && left >= HEAD
            && let Some(lengths) = self.long.get(&prefixes.digest(from, HEAD, power(HEAD)))
        {
            if lengths.each.is_empty() {
                return lengths.longest.min(left);
            }
            let mut each = lengths.each.iter().filter(|(length, _)| *length <= left);
            if let Some((length, _)) = each.find(|(length, power)| is_known(*length, *power)) {
                return *length;
            }
        }
        let mut short = (SHORTEST..HEAD.min(left + 1)).rev();
        short
            .find(|length| bits & (1 << length) != 0 && is_known(*length, power(*length)))
            .unwrap_or(0)
    }
}

impl Lengths {
    fn add(&mut self, length: usize, power: u64) {
        let are_too_many = self.longest > 0 && self.each.is_empty();
        self.longest = self.longest.max(length);
        let at = self.each.partition_point(|(known, _)| *known > length);
        if are_too_many || self.each.get(at).is_some_and(|(known, _)| *known == length) {
            return;
        }
        self.each.insert(at, (length, power));
        if self.each.len() > MOST_LENGTHS {
            self.each = Vec::new();
        }
    }

    fn add_others(&mut self, others: &Lengths) {
        if others.each.is_empty() {
            self.longest = self.longest.max(others.longest);
            self.each = Vec::new();
        }
        others
            .each
            .iter()
            .for_each(|(length, power)| self.add(*length, *power));
    }
}

/// Calls `each` with each way to spell a text.
fn each_spelling(text: &str, each: &mut dyn FnMut(&str)) {
    each(text);
    each(inside(&Value::from(text).to_string()));
    each(inside(&format!("{text:?}")));
    each(&escaped(text, |byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => None,
        _ => Some(['%', upper(byte >> 4), upper(byte & 15)]),
    }));
    each(&xml(text));
    let digits = |byte: u8| [upper(byte >> 4), upper(byte & 15)];
    let hex: String = text.bytes().flat_map(digits).collect();
    each(&hex.to_ascii_lowercase());
    each(&hex);
    for offset in 0..3 {
        let [standard, url] = base64(text.as_bytes(), offset);
        each(&standard);
        each(&url);
    }
}

/// The text between the quotes.
fn inside(quoted: &str) -> &str {
    &quoted[1..quoted.len() - 1]
}

fn upper(digit: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(digit)])
}

fn escaped(text: &str, escape: impl Fn(u8) -> Option<[char; 3]>) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match escape(byte) {
            Some(characters) => out.extend(characters),
            None => out.push(char::from(byte)),
        }
    }
    out
}

/// As the text of an element of XML.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The base64 characters, in both alphabets, that depend only on the value if it begins at this offset (mod 3) in a larger text.
fn base64(value: &[u8], offset: usize) -> [String; 2] {
    let within = [&[0; 2][..offset], value].concat();
    let (from, to) = ((offset * 8).div_ceil(6), within.len() * 8 / 6);
    [
        STANDARD_NO_PAD.encode(&within)[from..to].to_owned(),
        URL_SAFE_NO_PAD.encode(&within)[from..to].to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::Code;

    use crate::offload::processor_time;

    const SECRET: &str = "p\"ss wörd/\\+\u{fb}\u{ff}~>?9";

    fn knowing(value: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.learn(value);
        redactor
    }

    fn percent(value: &str) -> String {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        let one = |b: u8| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        };
        value.bytes().map(one).collect()
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
            xml(SECRET),
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
        let r = knowing("-----BEGIN-----\nMIIBVwIBADANBgkqhkiG9w0BAQEFAAS\nx\n");
        assert_eq!(
            r.scrub("line 2: MIIBVwIBADANBgkqhkiG9w0BAQEFAAS?"),
            "line 2: [redacted]?"
        );
        assert_eq!(
            r.scrub("x marks"),
            "x marks",
            "a short line does not count as a value"
        );
    }

    #[test]
    fn a_short_value_hides_nothing() {
        assert_eq!(knowing("m").scrub("machine-01"), "machine-01");
        assert_eq!(knowing("running").scrub("running"), "running");
        assert_eq!(knowing("running!").scrub("is running!"), "is [redacted]");
    }

    #[test]
    fn an_answer_with_a_value_in_it_is_a_failure_and_the_message_of_a_failure_is_scrubbed() {
        let r = knowing("hunter22");
        let failure = r
            .answer(Err(Failure::new(Code::Internal, "no hunter22")))
            .unwrap_err();
        assert_eq!(failure.message, "no [redacted]");
        let answer = serde_json::json!({"machines": [7]});
        assert_eq!(r.answer(Ok(answer.clone())), Ok(answer));
        let refused = r.answer(Ok(serde_json::json!({"id": "i-hunter22"}))).unwrap_err();
        assert_eq!(
            (refused.code, refused.effect),
            (Code::Unavailable, Effect::Unknown)
        );
    }

    #[test]
    fn a_name_of_a_field_is_never_changed_and_a_field_with_a_long_value_in_its_name_is_left_out() {
        let mut r = knowing("instances");
        r.learn("a value of more than twenty bytes");
        let (value, is_missing) = r.value(serde_json::json!({"instancesSet": [{"instances": "on"}]}));
        assert_eq!(
            (value, is_missing),
            (serde_json::json!({"instancesSet": [{"instances": "on"}]}), false)
        );
        let value = serde_json::json!({"a value of more than twenty bytes": 1, "instances": "instances"});
        assert_eq!(
            r.value(value),
            (serde_json::json!({"instances": "[redacted]"}), true)
        );
    }

    #[test]
    fn nothing_of_a_spelling_stays_where_others_overlap_it() {
        let mut r = knowing("beginning-of-the-secret-and-more");
        r.learn("and-more-that-is-a-secret-of-its-own");
        r.learn("the-secret");
        let text = "<beginning-of-the-secret-and-more-that-is-a-secret-of-its-own> <the-secret>";
        assert_eq!(r.scrub(text), "<[redacted]> <[redacted]>");
    }

    #[test]
    fn lines_that_begin_alike_are_told_apart_and_hidden_if_they_are_too_many() {
        let line = |n: usize| format!("all-lines-begin-like-this-{}", "x".repeat(n));
        let few: Vec<String> = (1..20).map(|n| line(n * 3)).collect();
        let r = knowing(&few.join("\n"));
        assert_eq!(r.scrub(&format!("<{}>", line(12))), "<[redacted]>");
        assert_eq!(
            r.scrub(&format!("<{}y>", line(12))),
            "<[redacted]y>",
            "no longer than the longest"
        );
        assert_eq!(
            r.scrub("<all-lines-begin-like-this>"),
            "<all-lines-begin-like-this>"
        );
        let many: Vec<String> = (1..100).map(line).collect();
        let r = knowing(&many.join("\n"));
        for n in [1, 50, 99] {
            assert_eq!(r.scrub(&format!("<ä{}", line(n))), "<ä[redacted]");
        }
    }

    /// The Secret that stopped the host: to learn it and to scrub a small answer took minutes, and its spellings 100 MB.
    #[test]
    fn a_secret_of_many_lines_and_a_text_that_nearly_matches_take_linear_time() {
        let began = processor_time();
        let line = |n: usize| format!("{n:08}");
        let short: Vec<String> = (0..100_000).map(line).collect();
        let mut r = knowing(&short.join("\n"));
        r.learn(&"a".repeat(1 << 16));
        let alike: Vec<String> = (0..3_000).map(|n| "a".repeat(20 + n % 60)).collect();
        r.learn(&alike.join("\n"));
        assert!(r.spellings() < 100_000, "{r:?}");
        for text in [
            "a".repeat(1 << 20),
            format!("{}b", "a".repeat(79)).repeat(10_000),
            "0".repeat(1 << 20),
            short.join(" "),
        ] {
            let scrubbed = r.scrub(&text);
            assert!(!scrubbed.contains("aaaaaaaaaaaaaaaaaaaa"));
        }
        let took = processor_time() - began;
        assert!(took.as_secs() < 20, "{took:?}");
    }

    #[test]
    fn a_redactor_does_not_tell_what_it_knows() {
        assert!(!format!("{:?}", knowing("hunter22")).contains("hunter"));
    }
}
