//! In which fields of a body the sealed values are.
//!
//! The host sees a body as pieces. To know their fields, it puts a mark in the place of each sealed text, reads the body as its
//! server would, and looks where the marks are. A mark is random, so that a driver cannot put one elsewhere. The last
//! transformation of each text must be the one of the body's format: then no value can end its field.

use std::hash::{BuildHasher as _, RandomState};

use polity_clouds::catalogue::SealedPlace;
use polity_sandbox::driver::{HttpRequest, Piece, Transform};
use serde_json::Value;

use crate::seal;

/// Checks that all sealed texts of a body are where this operation may send them.
///
/// # Errors
/// The rule that the driver broke.
pub(crate) fn check(request: &HttpRequest, operation: &str, places: &[SealedPlace]) -> Result<(), String> {
    if seal::sealed(&request.body).next().is_none() {
        return Ok(());
    }
    if places.is_empty() {
        return Err(format!(
            "{operation} sends sealed values to no field of this cloud"
        ));
    }
    let escape = format_of(request)?;
    if seal::sealed(&request.body).any(|sealed| sealed.then.last() != Some(&escape)) {
        return Err(format!(
            "it does not escape a sealed value for its body: the last transformation must be {escape:?}"
        ));
    }
    let random = RandomState::new();
    let (mut text, mut marks) = (String::new(), Vec::new());
    for piece in &request.body {
        match piece {
            Piece::Text(known) => text.push_str(known),
            Piece::Sealed(_) => {
                let (nth, half) = (marks.len(), |part: u8| random.hash_one((marks.len(), part)));
                let mark = format!("sealed-{nth}-{:016x}{:016x}", half(0), half(1));
                text.push_str(&mark);
                marks.push(mark);
            }
        }
    }
    let document = match escape {
        Transform::Form => Document::Form(fields(&text)),
        _ if text.trim_start().starts_with('<') != (escape == Transform::Xml) => {
            return Err("its body is not of the type that its content-type says".to_owned());
        }
        _ => {
            let tree = polity_body::whole(text.as_bytes());
            Document::Tree(tree.ok_or("its body with sealed values cannot be read")?)
        }
    };
    let is_allowed = |mark: &String| places.iter().any(|place| document.has(*place, request, mark));
    if marks.iter().all(is_allowed) {
        Ok(())
    } else {
        Err(format!(
            "it puts a sealed value into a field from which it could come back; {operation} may send it as {}",
            places.iter().map(named).collect::<Vec<String>>().join(", or as ")
        ))
    }
}

/// The transformation with which a text is escaped in this body.
fn format_of(request: &HttpRequest) -> Result<Transform, String> {
    let mut types = request.headers.iter().filter(|(name, _)| name == "content-type");
    let (Some((_, kind)), None) = (types.next(), types.next()) else {
        return Err("it sends a sealed value without a content-type, or with two".to_owned());
    };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "application/json" => Ok(Transform::Json),
        "application/x-www-form-urlencoded" => Ok(Transform::Form),
        "text/xml" | "application/xml" | "application/soap+xml" => Ok(Transform::Xml),
        _ => Err("it sends a sealed value in a body that is neither JSON, XML nor a form".to_owned()),
    }
}

enum Document {
    Form(Vec<(String, String)>),
    /// JSON, or XML as `polity_body` reads it.
    Tree(Value),
}

impl Document {
    /// Whether the mark is at this place, and alone.
    fn has(&self, place: SealedPlace, request: &HttpRequest, mark: &str) -> bool {
        match (self, place) {
            (Document::Form(fields), SealedPlace::Form { action, field }) => {
                let mut actions = fields.iter().filter(|(name, _)| name == "Action");
                let is_it = actions.next().is_some_and(|(_, named)| named == action);
                is_it && actions.next().is_none() && is_in(fields, mark, |name| name == field)
            }
            (Document::Form(fields), SealedPlace::Named(field)) => {
                is_in(fields, mark, |name| name.eq_ignore_ascii_case(field))
            }
            (Document::Tree(tree), SealedPlace::Json { path, field }) => {
                let found = field.split('.').try_fold(tree, |value, field| value.get(field));
                let is_posted =
                    request.method == "POST" && request.path.last().is_some_and(|last| last == path);
                is_posted && found.is_some_and(|found| found == mark)
            }
            (Document::Tree(tree), SealedPlace::Option { elements, keys }) => {
                let mut found = vec![tree];
                for name in elements.split('.') {
                    let all = found.into_iter().filter_map(|element| element[name].as_array());
                    found = all.flatten().collect();
                }
                found.into_iter().any(|option| {
                    let key = only(option, "key").map(str::to_ascii_lowercase);
                    key.is_some_and(|key| keys.contains(&&*key)) && only(option, "value") == Some(mark)
                })
            }
            (Document::Tree(tree), SealedPlace::Named(field)) => has_named(tree, field, mark),
            _ => false,
        }
    }
}

fn is_in(fields: &[(String, String)], mark: &str, is_field: impl Fn(&str) -> bool) -> bool {
    fields.iter().any(|(name, value)| value == mark && is_field(name))
}

/// The text of the only element of this name.
fn only<'a>(element: &'a Value, name: &str) -> Option<&'a str> {
    match element[name].as_array()?.as_slice() {
        [one] => one["$text"].as_str(),
        _ => None,
    }
}

fn has_named(value: &Value, field: &str, mark: &str) -> bool {
    match value {
        Value::Array(elements) => elements.iter().any(|element| has_named(element, field, mark)),
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            (name.eq_ignore_ascii_case(field) && value == mark) || has_named(value, field, mark)
        }),
        _ => false,
    }
}

/// The fields of a form.
pub(crate) fn fields(text: &str) -> Vec<(String, String)> {
    let pairs = text
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = match byte {
            b'%' => digit(bytes.get(at + 1)).zip(digit(bytes.get(at + 2))),
            _ => None,
        };
        match escaped {
            Some((high, low)) => out.push(high << 4 | low),
            None => out.push(if *byte == b'+' { b' ' } else { *byte }),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn named(place: &SealedPlace) -> String {
    match place {
        SealedPlace::Form { action, field } => format!("{field} of {action}"),
        SealedPlace::Json { path, field } => format!("{field} of POST /{path}"),
        SealedPlace::Option { elements, keys } => format!("{} of {elements}", keys.join(" or ")),
        SealedPlace::Named(field) => format!("a field {field:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_clouds::catalogue::sealed_places;
    use polity_core::contract::driver::Login;
    use polity_sandbox::driver::{Effect, Part, Sealed};

    const JSON: &str = "application/json";
    const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
    const XML: &str = "text/xml; charset=utf-8";

    /// A request with a sealed text in the place of each `$`.
    fn request(kind: &str, path: &str, body: &str, then: &[Transform]) -> HttpRequest {
        let mut pieces = Vec::new();
        for (nth, text) in body.split('$').enumerate() {
            if nth > 0 {
                pieces.push(Piece::Sealed(Sealed {
                    parts: vec![Part::Argument("userData".into())],
                    then: then.to_vec(),
                }));
            }
            pieces.push(Piece::Text(text.to_owned()));
        }
        HttpRequest {
            effect: Effect::Create,
            endpoint: "api".to_owned(),
            address: None,
            method: "POST".to_owned(),
            path: vec!["v2".to_owned(), path.to_owned()],
            query: Vec::new(),
            headers: vec![("content-type".to_owned(), kind.to_owned())],
            body: pieces,
            keep: Vec::new(),
        }
    }

    fn is_allowed(login: Login, operation: &str, request: &HttpRequest) -> bool {
        check(request, operation, sealed_places(login, operation)).is_ok()
    }

    #[test]
    fn a_form_takes_user_data_and_nothing_else() {
        let then = [Transform::Base64, Transform::Form];
        let run = "Action=RunInstances&Tag.1.Value=a&UserData=$";
        let ec2 = |body: &str, then: &[Transform]| {
            is_allowed(Login::AwsSigv4, "machine.create", &request(FORM, "", body, then))
        };
        assert!(ec2(run, &then));
        for body in [
            "Action=RunInstances&TagSpecification.1.Tag.1.Value=$",
            "Action=RunInstances&UserData=$&TagSpecification.1.Tag.1.Value=$",
            "Action=CreateTags&UserData=$",
            "Action=RunInstances&Action=CreateTags&UserData=$",
            "Action=RunInstances&UserData=$x",
            "Action=RunInstances&UserData=x%26Tag=$",
            "Action=RunInstances&UserData=a&$=b",
            "$",
        ] {
            assert!(!ec2(body, &then), "{body}");
        }
        for then in [
            &[][..],
            &[Transform::Base64],
            &[Transform::Form, Transform::Base64],
        ] {
            assert!(!ec2(run, then), "a value could end its field: {then:?}");
        }
        assert!(!is_allowed(
            Login::AwsSigv4,
            "machine.status",
            &request(FORM, "", run, &then)
        ));
        assert!(!is_allowed(
            Login::AwsSigv4,
            "machine.create",
            &request(JSON, "", run, &then)
        ));
        let mut two = request(FORM, "", run, &then);
        two.headers.push(("content-type".to_owned(), JSON.to_owned()));
        assert!(!is_allowed(Login::AwsSigv4, "machine.create", &two));
    }

    #[test]
    fn json_takes_user_data_of_a_server_and_nothing_else() {
        let nova = |path: &str, body: &str| {
            let then = [Transform::Base64, Transform::Json];
            is_allowed(
                Login::Keystone,
                "machine.create",
                &request(JSON, path, body, &then),
            )
        };
        assert!(nova("servers", r#"{"server": {"name": "n", "user_data": "$"}}"#));
        for (path, body) in [
            ("servers", r#"{"server": {"name": "$"}}"#),
            ("servers", r#"{"server": {"metadata": {"user_data": "$"}}}"#),
            ("servers", r#"{"server": {"user_data": "$", "name": "$"}}"#),
            (
                "servers",
                r#"{"server": {"name": "$", "name": "n", "user_data": "x"}}"#,
            ),
            ("servers", r#"{"server": {"user_data": $}}"#),
            ("servers", r#"{"server": {"user_data": "$ "}}"#),
            ("keypairs", r#"{"server": {"user_data": "$"}}"#),
        ] {
            assert!(!nova(path, body), "{body}");
        }
    }

    #[test]
    fn xml_takes_the_options_of_a_guest_and_nothing_else() {
        let clone = |config: &str| {
            let body = format!(
                "<e:Envelope xmlns:e='e'><e:Body><CloneVM_Task><spec><config>{config}</config></spec></CloneVM_Task></e:Body></e:Envelope>"
            );
            let then = [Transform::Base64, Transform::Xml];
            is_allowed(
                Login::VsphereSession,
                "vm.clone",
                &request(XML, "sdk", &body, &then),
            )
        };
        let option = |key: &str, value: &str| {
            format!("<extraConfig><key>{key}</key><value>{value}</value></extraConfig>")
        };
        assert!(clone(
            &(option("polity.owner", "u") + &option("guestinfo.userdata", "$"))
        ));
        for config in [
            option("guestinfo.metadata", "$"),
            option("polity.owner", "$"),
            option("guestinfo.userdata", "<!--$-->"),
            option("guestinfo.userdata</key><key>x", "$"),
            option("guestinfo.userdata", "$") + &option("x", "$"),
            "<annotation>$</annotation>".to_owned(),
            "<annotation a='$'/>".to_owned(),
        ] {
            assert!(!clone(&config), "{config}");
        }
    }

    #[test]
    fn a_cloud_that_no_login_names_takes_what_is_never_kept() {
        let then = [Transform::Json];
        for (body, expected) in [
            (r#"{"a": [{"userData": "$"}]}"#, true),
            (r#"{"user_data": "$"}"#, true),
            (r#"{"label": "$"}"#, false),
        ] {
            let request = request(JSON, "", body, &then);
            assert_eq!(
                is_allowed(Login::Bearer, "machine.create", &request),
                expected,
                "{body}"
            );
        }
        let form = request(FORM, "", "user_data=$", &[Transform::Form]);
        assert!(is_allowed(Login::None, "machine.create", &form));
    }
}
