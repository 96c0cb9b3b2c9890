//! Values of sealed arguments: the host takes them out of the arguments before a driver sees those, and puts them into the
//! bodies of the driver's requests.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::catalogue::Operation;
use polity_sandbox::driver::{Part, Piece, Sealed, Transform};
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

/// A body with the values in it. `largest` is the most bytes that the cloud takes of one text before its transformations. Calls
/// `sent` with each text that is sent for a sealed value.
pub(crate) fn body(
    pieces: &[Piece],
    values: &Values,
    largest: usize,
    sent: &mut dyn FnMut(&str, Stage),
) -> Result<String, Wrong> {
    if sealed(pieces).count() > PIECES {
        let rule = format!("a body has more than {PIECES} texts with sealed values");
        return Err(Wrong::Rule(rule));
    }
    let once: usize = values.values().map(String::len).sum();
    let mut room = Room(LARGEST + once);
    let mut body = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => room.push(&mut body, text)?,
            Piece::Sealed(sealed) => body.push_str(&unsealed(sealed, values, largest, &mut room, sent)?),
        }
    }
    Ok(body)
}

fn unsealed(
    sealed: &Sealed,
    values: &Values,
    largest: usize,
    room: &mut Room,
    sent: &mut dyn FnMut(&str, Stage),
) -> Result<String, Wrong> {
    let value = |path: &String| {
        let unknown = || Wrong::Rule(format!("it seals {path:?}, which is not a sealed argument"));
        values.get(path).ok_or_else(unknown)
    };
    if sealed.then.len() > TRANSFORMS {
        let rule = format!("it transforms a sealed value more than {TRANSFORMS} times");
        return Err(Wrong::Rule(rule));
    }
    let mut text = String::new();
    for part in &sealed.parts {
        match part {
            Part::Text(known) => room.push(&mut text, known)?,
            Part::Argument(path) => room.push(&mut text, value(path)?)?,
            Part::Replaced(replaced) => {
                let (within, by) = (value(&replaced.argument)?, value(&replaced.by)?);
                if replaced.needle.is_empty() {
                    return Err("it replaces an empty text".into());
                }
                for (nth, rest) in within.split(&*replaced.needle).enumerate() {
                    if nth > 0 {
                        room.push(&mut text, by)?;
                    }
                    room.push(&mut text, rest)?;
                }
            }
        }
    }
    let is_secret = sealed.parts.iter().any(|part| !matches!(part, Part::Text(_)));
    if is_secret && text.len() > largest {
        let message = format!(
            "the user data with the values in it has {} bytes; this cloud takes at most {largest}: make it smaller",
            text.len()
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
    use polity_sandbox::driver::Replacement;
    use std::time::Duration;

    fn values() -> Values {
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        [
            pair("userData", "join <<TOKEN>> \"now\"\n"),
            pair("bootstrapToken", "abc.def&"),
        ]
        .into()
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
            &values(),
            1_000,
            &mut |text, _| redactor.learn(text),
        )
        .expect("it has all");
        let encoded = STANDARD.encode("#!join abc.def& \"now\"\n");
        assert_eq!(text, format!("UserData={}", encoded.replace('=', "%3D")));
        let told = redactor.scrub(&format!("bad user data {encoded}: join abc.def& \"now\""));
        assert!(!told.contains(&encoded) && !told.contains("abc.def"), "{told}");
    }

    #[test]
    fn a_value_that_is_no_sealed_argument_is_refused() {
        let sealed = |path: &str| Sealed {
            parts: vec![Part::Argument(path.into())],
            then: vec![Transform::Xml],
        };
        let put = |path| body(&[Piece::Sealed(sealed(path))], &values(), 1_000, &mut |_, _| {});
        assert_eq!(put("bootstrapToken"), Ok("abc.def&amp;".to_owned()));
        assert_eq!(
            put("name"),
            Err("it seals \"name\", which is not a sealed argument".into())
        );
    }

    /// Each of these took gigabytes, also after its call was cut.
    #[test]
    fn what_a_body_becomes_is_limited_while_it_grows() {
        let large = "\\".repeat(60_000);
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        let values: Values = [
            pair("tiny", "\\\\\\\\\\\\\\\\"),
            pair("large", &large),
            pair("other", &"x".repeat(60_000)),
        ]
        .into();
        let argument = |path: &str| Part::Argument(path.into());
        let replaced = Part::Replaced(Replacement {
            argument: "large".into(),
            needle: "\\".into(),
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
            let refused = body(&pieces, &values, usize::MAX, &mut |text, _| sent += text.len());
            assert!(matches!(refused, Err(Wrong::Rule(_))), "{refused:?}");
            assert!(sent <= LARGEST + 130_000, "{sent}");
        }
        let fits = piece(&[argument("large")], &[base64, Transform::Form]);
        assert!(body(std::slice::from_ref(&fits), &values, 60_000, &mut |_, _| {}).is_ok());
        let refused = body(&[fits], &values, 59_999, &mut |_, _| {});
        assert!(
            matches!(&refused, Err(Wrong::TooLarge(why)) if why.contains("60000 bytes") && why.contains("59999")),
            "{refused:?}"
        );
    }
}
