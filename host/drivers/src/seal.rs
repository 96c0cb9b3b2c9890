//! Values of sealed arguments: the host takes them out of the arguments before a driver sees those, and puts them into the
//! bodies of the driver's requests.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::catalogue::Operation;
use polity_sandbox::driver::{Part, Piece, Replacement, Sealed, Transform};
use serde_json::{Value, json};

/// The values, by the dotted path of their argument.
pub(crate) type Values = BTreeMap<String, String>;

/// Takes the values out of the arguments, and leaves `{"$sealed": PATH}` in the place of each.
pub(crate) fn take(operation: &Operation, arguments: &mut Value) -> Values {
    let mut values = Values::new();
    for path in &operation.sealed {
        let place = path
            .split('.')
            .try_fold(&mut *arguments, |value, field| value.get_mut(field));
        // An argument without a value has a reference.
        if let Some(place) = place.filter(|place| !place.is_null())
            && let Value::String(value) = std::mem::replace(place, json!({"$sealed": path}))
        {
            values.insert(path.clone(), value);
        }
    }
    values
}

/// The most bytes that a body has, and everything that it becomes on the way, beside the values of sealed arguments.
pub(crate) const LARGEST: usize = 1 << 20;
/// The most texts of a body that contain sealed values. The shipped drivers send one.
const PIECES: usize = 16;
/// The most transformations of a text. The shipped drivers need two.
const TRANSFORMS: usize = 4;
/// How much of a text is transformed between two looks at the limit.
const CHUNK: usize = 4 << 10;

/// Why no body can be made.
#[derive(Debug, PartialEq)]
pub(crate) enum Wrong {
    /// The driver broke this rule.
    Rule(String),
    /// A text with its values is larger than the cloud takes.
    TooLarge(String),
}

impl From<&str> for Wrong {
    fn from(rule: &str) -> Self {
        Wrong::Rule(rule.to_owned())
    }
}

/// What is sent for a sealed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The parts, put together.
    Whole,
    /// The result of a transformation.
    Transformed,
}

/// The bytes that may still be made for a body. Checked before or while anything grows.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), Wrong> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| {
            Wrong::Rule(format!(
                "a body and what it is made of have more than {LARGEST} bytes beside the sealed values"
            ))
        })?;
        Ok(())
    }

    fn push(&mut self, text: &mut String, more: &str) -> Result<(), Wrong> {
        self.take(more.len())?;
        text.push_str(more);
        Ok(())
    }
}

/// The texts of a body that contain sealed values.
pub(crate) fn sealed(pieces: &[Piece]) -> impl Iterator<Item = &Sealed> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Sealed(sealed) => Some(sealed),
        Piece::Text(_) => None,
    })
}

/// What a sealed text is made of.
pub(crate) struct Given<'a> {
    /// The values of sealed arguments.
    pub(crate) values: &'a Values,
    /// The other arguments, which the driver knows. One of them may replace a placeholder.
    pub(crate) arguments: &'a Value,
}

/// A body with the values in it. `largest` is the most bytes that the cloud takes of one text before its transformations. Calls
/// `sent` with each text that is sent for a sealed value.
pub(crate) fn body(
    pieces: &[Piece],
    given: &Given<'_>,
    largest: usize,
    sent: &mut dyn FnMut(&str, Stage),
) -> Result<String, Wrong> {
    if sealed(pieces).count() > PIECES {
        let rule = format!("a body has more than {PIECES} texts with sealed values");
        return Err(Wrong::Rule(rule));
    }
    let once: usize = given.values.values().map(String::len).sum();
    let mut room = Room(LARGEST + once);
    let mut body = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => room.push(&mut body, text)?,
            Piece::Sealed(sealed) => body.push_str(&unsealed(sealed, given, largest, &mut room, sent)?),
        }
    }
    Ok(body)
}

fn unsealed(
    sealed: &Sealed,
    given: &Given<'_>,
    largest: usize,
    room: &mut Room,
    sent: &mut dyn FnMut(&str, Stage),
) -> Result<String, Wrong> {
    if sealed.then.len() > TRANSFORMS {
        let rule = format!("it transforms a sealed value more than {TRANSFORMS} times");
        return Err(Wrong::Rule(rule));
    }
    let mut text = String::new();
    for part in &sealed.parts {
        match part {
            Part::Text(known) => room.push(&mut text, known)?,
            Part::Argument(path) => room.push(&mut text, given.value(path)?)?,
            Part::Replaced(replaced) => {
                let mut rest = given.value(&replaced.argument)?;
                let replacements = given.replacements(replaced)?;
                while let Some(at) = rest.find(['<', '%']) {
                    room.push(&mut text, &rest[..at])?;
                    rest = &rest[at..];
                    let is_here = |(placeholder, _): &&(String, String)| rest.starts_with(placeholder);
                    let (from, by) = match replacements.iter().find(is_here) {
                        Some((placeholder, by)) => (placeholder.len(), by.as_str()),
                        None => (1, &rest[..1]),
                    };
                    room.push(&mut text, by)?;
                    rest = &rest[from..];
                }
                room.push(&mut text, rest)?;
            }
        }
    }
    let is_secret = sealed.parts.iter().any(|part| !matches!(part, Part::Text(_)));
    if is_secret && text.len() > largest {
        let message = format!(
            "the user data with the values in it is larger than {largest} bytes, the most that this cloud takes: make it smaller"
        );
        return Err(Wrong::TooLarge(message));
    }
    if is_secret {
        sent(&text, Stage::Whole);
    }
    for transform in &sealed.then {
        text = transformed(&text, *transform, room)?;
        if is_secret {
            sent(&text, Stage::Transformed);
        }
    }
    Ok(text)
}

/// The most placeholders of a replacement.
const PLACEHOLDERS: usize = 8;

impl Given<'_> {
    fn value(&self, path: &str) -> Result<&str, Wrong> {
        let unknown = || Wrong::Rule(format!("it seals {path:?}, which is not a sealed argument"));
        self.values.get(path).map(String::as_str).ok_or_else(unknown)
    }

    /// Each placeholder with what replaces it, and the same as a URL encodes them: the configurations of Ignition have files as
    /// URLs. A driver must not choose any other text: by what was replaced it would learn a value, byte by byte.
    fn replacements(&self, replaced: &Replacement) -> Result<Vec<(String, String)>, Wrong> {
        let mut replacements = Vec::new();
        let mut paths = replaced.by.split(' ');
        for placeholder in replaced.needle.split(' ') {
            let path = paths.next().ok_or("it has more placeholders than values")?;
            if !is_placeholder(placeholder) || replacements.len() >= 2 * PLACEHOLDERS {
                return Err(Wrong::Rule(format!(
                    "it replaces {placeholder:?}; a placeholder is <<NAME>> with capital letters and underscores, and at most \
                     {PLACEHOLDERS} are replaced"
                )));
            }
            let plain = || {
                path.split('.')
                    .try_fold(self.arguments, |value, field| value.get(field))?
                    .as_str()
            };
            let value = self.values.get(path).map(String::as_str).or_else(plain);
            let value = value.ok_or_else(|| {
                Wrong::Rule(format!(
                    "it replaces by {path:?}, which is not an argument with a text"
                ))
            })?;
            replacements.push((placeholder.to_owned(), value.to_owned()));
            replacements.push((form(placeholder), form(value)));
        }
        if paths.next().is_some() {
            return Err("it has more values than placeholders".into());
        }
        Ok(replacements)
    }
}

fn is_placeholder(text: &str) -> bool {
    let name = text.strip_prefix("<<").and_then(|rest| rest.strip_suffix(">>"));
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_part))
}

fn transformed(text: &str, transform: Transform, room: &mut Room) -> Result<String, Wrong> {
    if transform == Transform::Base64 {
        room.take(text.len().div_ceil(3) * 4)?;
        return Ok(STANDARD.encode(text));
    }
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.floor_char_boundary(CHUNK));
        match transform {
            Transform::Base64 => {}
            Transform::Json => {
                let quoted = Value::from(chunk).to_string();
                room.push(&mut out, &quoted[1..quoted.len() - 1])?;
            }
            Transform::Xml => room.push(&mut out, &xml(chunk))?,
            Transform::Form => room.push(&mut out, &form(chunk))?,
        }
        rest = after;
    }
    Ok(out)
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            other => out.push(other),
        }
    }
    out
}

fn form(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |digit: u8| char::from(DIGITS[usize::from(digit)]);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_clouds::Redactor;
    use polity_clouds::catalogue::machine;
    use std::time::Duration;

    fn values() -> Values {
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        [
            pair("userData", "join <<TOKEN>> \"now\"\n"),
            pair("bootstrapToken", "abc.def&"),
        ]
        .into()
    }

    fn given(values: &Values) -> Given<'_> {
        Given {
            values,
            arguments: &Value::Null,
        }
    }

    #[test]
    fn values_are_taken_out_of_the_arguments_of_an_operation() {
        let operations = machine::operations(Duration::ZERO);
        let (_, create) = operations
            .iter()
            .find(|(name, _)| *name == machine::CREATE)
            .expect("it is there");
        let mut arguments = json!({"name": "m", "userData": "secret"});
        let taken = take(create, &mut arguments);
        assert_eq!(
            arguments,
            json!({"name": "m", "userData": {"$sealed": "userData"}})
        );
        assert_eq!(taken["userData"], "secret");
        let mut prepared = json!({"name": "m", "userData": {"$secret": {"name": "s", "key": "k"}}});
        assert!(take(create, &mut prepared).is_empty());
        assert_eq!(
            prepared, arguments,
            "a create looks the same before its values are known"
        );
    }

    #[test]
    fn a_text_is_put_together_and_transformed_in_order_and_nothing_of_it_is_told() {
        let sealed = Sealed {
            parts: vec![
                Part::Text("#!".into()),
                Part::Replaced(Replacement {
                    argument: "userData".into(),
                    needle: "<<TOKEN>>".into(),
                    by: "bootstrapToken".into(),
                }),
            ],
            then: vec![Transform::Base64, Transform::Form],
        };
        let mut redactor = Redactor::default();
        values().values().for_each(|value| redactor.learn(value));
        let text = body(
            &[Piece::Text("UserData=".into()), Piece::Sealed(sealed)],
            &given(&values()),
            1_000,
            &mut |text, _| redactor.learn(text),
        )
        .expect("it has all");
        let encoded = STANDARD.encode("#!join abc.def& \"now\"\n");
        assert_eq!(text, format!("UserData={}", encoded.replace('=', "%3D")));
        let told = redactor.scrub(&format!("bad user data {encoded}: join abc.def& \"now\""));
        assert!(!told.contains(&encoded) && !told.contains("abc.def"), "{told}");
    }

    fn replaced(data: &str, needle: &str, by: &str) -> Result<String, Wrong> {
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        let values = [
            pair("userData", data),
            pair("bootstrapToken", "abc.d<<MACHINE_NAME>>"),
        ]
        .into();
        let part = Part::Replaced(Replacement {
            argument: "userData".into(),
            needle: needle.into(),
            by: by.into(),
        });
        let sealed = Sealed {
            parts: vec![part],
            then: Vec::new(),
        };
        let arguments = json!({"name": "web 1", "userData": {"$sealed": "userData"}});
        let given = Given {
            values: &values,
            arguments: &arguments,
        };
        body(&[Piece::Sealed(sealed)], &given, 1_000, &mut |_, _| {})
    }

    #[test]
    fn placeholders_are_replaced_by_values_and_by_plain_arguments_also_within_a_url() {
        let (needles, by) = ("<<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>", "bootstrapToken name");
        assert_eq!(
            replaced("<<MACHINE_NAME>> 10% <<BOOTSTRAP_TOKEN>><", needles, by).as_deref(),
            Ok("web 1 10% abc.d<<MACHINE_NAME>><"),
            "what was put in is not looked at again"
        );
        assert_eq!(
            replaced(
                "data:,%3C%3CMACHINE_NAME%3E%3E%0A%3C%3CBOOTSTRAP_TOKEN%3E%3E",
                needles,
                by
            )
            .as_deref(),
            Ok("data:,web%201%0Aabc.d%3C%3CMACHINE_NAME%3E%3E")
        );
    }

    #[test]
    fn a_driver_learns_nothing_of_a_value_by_what_it_replaces() {
        for (needle, by) in [
            ("", "name"),
            ("s", "name"),
            ("<<", "name"),
            ("<<>>", "name"),
            ("<<a>>", "name"),
            ("<<A>>b", "name"),
            ("<<A>> ", "name name"),
            ("<<A>>", "name name"),
            ("<<A>> <<B>>", "name"),
            ("<<A>>", "userData.$sealed.x"),
            ("<<A>>", "none"),
            (&["<<A>>"; 9].join(" "), &["name"; 9].join(" ")),
        ] {
            let refused = replaced("secret", needle, by);
            assert!(
                matches!(refused, Err(Wrong::Rule(_))),
                "{needle} {by}: {refused:?}"
            );
        }
        assert!(replaced("secret", &["<<A>>"; 8].join(" "), &["name"; 8].join(" ")).is_ok());
    }

    #[test]
    fn a_value_that_is_no_sealed_argument_is_refused() {
        let sealed = |path: &str| Sealed {
            parts: vec![Part::Argument(path.into())],
            then: vec![Transform::Xml],
        };
        let put = |path| {
            body(
                &[Piece::Sealed(sealed(path))],
                &given(&values()),
                1_000,
                &mut |_, _| {},
            )
        };
        assert_eq!(put("bootstrapToken"), Ok("abc.def&amp;".to_owned()));
        assert_eq!(
            put("name"),
            Err("it seals \"name\", which is not a sealed argument".into())
        );
    }

    /// Each of these took gigabytes, also after its call was cut.
    #[test]
    fn what_a_body_becomes_is_limited_while_it_grows() {
        let (large, holes) = ("\\".repeat(60_000), "<<P>>".repeat(12_000));
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        let values: Values = [
            pair("tiny", "\\\\\\\\\\\\\\\\"),
            pair("large", &large),
            pair("holes", &holes),
            pair("other", &"x".repeat(60_000)),
        ]
        .into();
        let argument = |path: &str| Part::Argument(path.into());
        let replaced = Part::Replaced(Replacement {
            argument: "holes".into(),
            needle: "<<P>>".into(),
            by: "other".into(),
        });
        let piece = |parts: &[Part], then: &[Transform]| {
            Piece::Sealed(Sealed {
                parts: parts.to_vec(),
                then: then.to_vec(),
            })
        };
        let (json, base64) = (Transform::Json, Transform::Base64);
        for pieces in [
            vec![piece(&[argument("tiny")], &[json; 40])],
            vec![piece(&[argument("tiny")], &[base64; 90])],
            vec![piece(&[argument("large")], &[json; 4])],
            vec![piece(std::slice::from_ref(&replaced), &[])],
            vec![piece(&vec![argument("large"); 4_000], &[])],
            vec![piece(&[argument("large")], &[]); 4_000],
            vec![piece(&[argument("large")], &[json; 2]); 16],
            vec![Piece::Text("x".repeat(LARGEST)), Piece::Text("x".repeat(200_000))],
        ] {
            let mut sent = 0;
            let refused = body(&pieces, &given(&values), usize::MAX, &mut |text, _| {
                sent += text.len()
            });
            assert!(matches!(refused, Err(Wrong::Rule(_))), "{refused:?}");
            assert!(sent <= LARGEST + 130_000, "{sent}");
        }
        let fits = piece(&[argument("large")], &[base64, Transform::Form]);
        assert!(
            body(
                std::slice::from_ref(&fits),
                &given(&values),
                60_000,
                &mut |_, _| {}
            )
            .is_ok()
        );
        let refused = body(&[fits], &given(&values), 59_999, &mut |_, _| {});
        assert!(
            matches!(&refused, Err(Wrong::TooLarge(why)) if !why.contains("60000") && why.contains("59999")),
            "{refused:?}"
        );
    }
}
