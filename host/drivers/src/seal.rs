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
        // While a create is prepared, the arguments have references instead of values.
        if let Some(place) = place.filter(|place| !place.is_null())
            && let Value::String(value) = std::mem::replace(place, json!({"$sealed": path}))
        {
            values.insert(path.clone(), value);
        }
    }
    values
}

/// A body with the values in it. Calls `sent` with each text that is sent for a sealed value.
pub(crate) fn body(pieces: &[Piece], values: &Values, sent: &mut dyn FnMut(&str)) -> Result<String, String> {
    let mut body = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => body.push_str(text),
            Piece::Sealed(sealed) => body.push_str(&unsealed(sealed, values, sent)?),
        }
    }
    Ok(body)
}

fn unsealed(sealed: &Sealed, values: &Values, sent: &mut dyn FnMut(&str)) -> Result<String, String> {
    let value = |path: &String| {
        values
            .get(path)
            .ok_or_else(|| format!("it seals {path:?}, which is not a sealed argument"))
    };
    let mut text = String::new();
    let mut is_secret = false;
    for part in &sealed.parts {
        match part {
            Part::Text(known) => text.push_str(known),
            Part::Argument(path) => {
                is_secret = true;
                text.push_str(value(path)?);
            }
            Part::Replaced(replaced) => {
                is_secret = true;
                let (within, by) = (value(&replaced.argument)?, value(&replaced.by)?);
                match replaced.needle.is_empty() {
                    true => return Err("it replaces an empty text".to_owned()),
                    false => text.push_str(&within.replace(&replaced.needle, by)),
                }
            }
        }
    }
    for transform in &sealed.then {
        if is_secret {
            sent(&text);
        }
        text = transformed(&text, *transform);
    }
    if is_secret {
        sent(&text);
    }
    Ok(text)
}

fn transformed(text: &str, transform: Transform) -> String {
    match transform {
        Transform::Base64 => STANDARD.encode(text),
        Transform::Json => {
            let quoted = Value::from(text).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
        Transform::Xml => text
            .chars()
            .fold(String::with_capacity(text.len()), |mut out, character| {
                match character {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str("&gt;"),
                    '"' => out.push_str("&quot;"),
                    '\r' => out.push_str("&#13;"),
                    other => out.push(other),
                }
                out
            }),
        Transform::Form => text
            .bytes()
            .fold(String::with_capacity(text.len()), |mut out, byte| {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                        out.push(char::from(byte))
                    }
                    _ => out.push_str(&format!("%{byte:02X}")),
                }
                out
            }),
    }
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
            &mut |text| redactor.learn(text),
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
        let put = |path| body(&[Piece::Sealed(sealed(path))], &values(), &mut |_| {});
        assert_eq!(put("bootstrapToken").as_deref(), Ok("abc.def&amp;"));
        assert_eq!(
            put("name"),
            Err("it seals \"name\", which is not a sealed argument".to_owned())
        );
    }
}
