//! Requests.

use serde_json::Value;

use crate::form::Form;
use crate::xml::Element;
use crate::{Effect, HttpRequest, Owned, Part, Piece, Replacement, Sealed, Transform};

/// A text in a body: a text that the driver knows, or a sealed value that the host puts in.
#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    /// A text that the driver knows.
    Plain(String),
    /// A text that the driver does not see. [`Context::sealed`](crate::Context::sealed) makes one.
    Sealed(Sealed),
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Text::Plain(text.into())
    }
}

impl Text {
    /// The text in base64. The host encodes it, also if the driver knows the text.
    #[must_use]
    pub fn base64(self) -> Self {
        self.then(Transform::Base64)
    }

    /// A sealed text in which each `placeholder` is replaced by the text of another argument, sealed or not. A placeholder is `<<NAME>>`
    /// with capital letters and underscores; the host also replaces it as a URL encodes it. May be called for several placeholders.
    #[must_use]
    pub fn replacing(self, placeholder: &str, by: &str) -> Self {
        let mut sealed = self.sealed();
        for part in &mut sealed.parts {
            match part {
                Part::Text(_) => {}
                Part::Argument(argument) => {
                    *part = Part::Replaced(Replacement {
                        argument: std::mem::take(argument),
                        needle: placeholder.to_owned(),
                        by: by.to_owned(),
                    });
                }
                Part::Replaced(replaced) => {
                    replaced.needle = format!("{} {placeholder}", replaced.needle);
                    replaced.by = format!("{} {by}", replaced.by);
                }
            }
        }
        Text::Sealed(sealed)
    }

    /// This text, followed by another. Neither may be transformed already, because a transformation applies to the whole text.
    #[must_use]
    pub fn and(self, other: Text) -> Self {
        let (mut sealed, other) = (self.sealed(), other.sealed());
        debug_assert!(other.then.is_empty() && sealed.then.is_empty());
        sealed.parts.extend(other.parts);
        Text::Sealed(sealed)
    }

    pub(crate) fn then(self, transform: Transform) -> Self {
        let mut sealed = self.sealed();
        sealed.then.push(transform);
        Text::Sealed(sealed)
    }

    pub(crate) fn sealed(self) -> Sealed {
        match self {
            Text::Sealed(sealed) => sealed,
            Text::Plain(text) => Sealed {
                parts: vec![Part::Text(text)],
                then: Vec::new(),
            },
        }
    }
}

/// The pieces of a body, in order.
#[derive(Default)]
pub(crate) struct Pieces(Vec<Piece>);

impl Pieces {
    pub(crate) fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    /// A text, escaped for its place. The driver escapes a text that it knows; the host escapes a sealed text.
    pub(crate) fn escaped(&mut self, text: &Text, escape: impl Fn(&str) -> String, by_host: Transform) {
        match text {
            Text::Plain(text) => self.text(&escape(text)),
            sealed => self.0.push(Piece::Sealed(sealed.clone().then(by_host).sealed())),
        }
    }
}

/// A request to an endpoint. [`get`](Request::get) and [`search`](Request::search) make requests that read.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Request(HttpRequest);

impl Request {
    fn new(effect: Effect, method: &str, endpoint: &str) -> Self {
        Request(HttpRequest {
            effect,
            endpoint: endpoint.to_owned(),
            address: None,
            method: method.to_owned(),
            path: Vec::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            keep: Vec::new(),
        })
    }

    /// A request that reads.
    pub fn get(endpoint: &str) -> Self {
        Self::new(Effect::Read, "GET", endpoint)
    }

    /// A request that reads by `POST`, as in APIs with one URL. The host lists which do, by login and operation, and refuses others.
    pub fn search(endpoint: &str) -> Self {
        Self::new(Effect::Read, "POST", endpoint)
    }

    /// The request that creates. An operation sends at most one.
    pub fn create(method: &str, endpoint: &str) -> Self {
        Self::new(Effect::Create, method, endpoint)
    }

    /// A request that changes a resource of the owner.
    pub fn change(method: &str, endpoint: &str, _: &Owned<'_>) -> Self {
        Self::new(Effect::Change, method, endpoint)
    }

    /// The IP address, for a dynamic endpoint.
    pub fn at(mut self, address: &str) -> Self {
        self.0.address = Some(address.to_owned());
        self
    }

    /// The segments of the path, below the path of the endpoint. The host encodes them.
    pub fn path<S: Into<String>>(mut self, segments: impl IntoIterator<Item = S>) -> Self {
        self.0.path.extend(segments.into_iter().map(Into::into));
        self
    }

    /// A pair of the query. The host encodes it.
    pub fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.query.push((name.to_owned(), value.into()));
        self
    }

    /// A header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The parts of the response that are kept, as dotted paths that go through lists. Nothing else reaches the driver or a
    /// recording.
    pub fn keep<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.0.keep.extend(paths.into_iter().map(Into::into));
        self
    }

    /// A JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.json_with(body, &[])
    }

    /// A JSON body with these texts at these dotted paths. The body must contain the object at the beginning of each path.
    pub fn json_with(self, body: &Value, texts: &[(&str, Text)]) -> Self {
        let mut pieces = Pieces::default();
        write(body, "", texts, &mut pieces);
        self.header("content-type", "application/json").pieces(pieces)
    }

    /// A body of `application/x-www-form-urlencoded`.
    pub fn form(self, form: Form) -> Self {
        self.header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .pieces(form.pieces())
    }

    /// A body of XML.
    pub fn xml(self, content_type: &str, root: &Element) -> Self {
        self.header("content-type", content_type).pieces(root.document())
    }

    fn pieces(mut self, Pieces(pieces): Pieces) -> Self {
        self.0.body = pieces;
        self
    }

    pub(crate) fn done(self) -> HttpRequest {
        self.0
    }
}

/// Writes JSON with the texts at their paths.
fn write(value: &Value, at: &str, texts: &[(&str, Text)], out: &mut Pieces) {
    let below = |field: &str| match at {
        "" => field.to_owned(),
        at => format!("{at}.{field}"),
    };
    match value {
        Value::Object(fields) => {
            let put = texts.iter().filter_map(|(path, text)| {
                let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
                (parent == at).then_some((field, text))
            });
            let put: Vec<(&str, &Text)> = put.collect();
            let mut first = true;
            let mut comma = |out: &mut Pieces| {
                if !std::mem::replace(&mut first, false) {
                    out.text(",");
                }
            };
            out.text("{");
            for (field, value) in fields
                .iter()
                .filter(|(field, _)| put.iter().all(|(known, _)| known != field))
            {
                comma(out);
                out.text(&format!("{}:", quoted(field)));
                write(value, &below(field), texts, out);
            }
            for (field, text) in put {
                comma(out);
                out.text(&format!("{}:\"", quoted(field)));
                let inside = |text: &str| {
                    let quoted = quoted(text);
                    quoted[1..quoted.len() - 1].to_owned()
                };
                out.escaped(text, inside, Transform::Json);
                out.text("\"");
            }
            out.text("}");
        }
        Value::Array(elements) => {
            out.text("[");
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.text(",");
                }
                write(element, &below(&index.to_string()), texts, out);
            }
            out.text("]");
        }
        plain => out.text(&plain.to_string()),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sealed(argument: &str) -> Text {
        Text::Sealed(Sealed {
            parts: vec![Part::Argument(argument.to_owned())],
            then: Vec::new(),
        })
    }

    #[test]
    fn a_sealed_text_of_a_json_body_is_a_piece_of_its_own() {
        let body = json!({"server": {"name": "a\"b", "tags": [1, {"x": null}]}});
        let request = Request::create("POST", "compute")
            .json_with(&body, &[("server.user_data", sealed("userData").base64())])
            .done();
        let [Piece::Text(before), Piece::Sealed(secret), Piece::Text(after)] = &request.body[..] else {
            panic!("{:?}", request.body);
        };
        assert_eq!(
            before,
            r#"{"server":{"name":"a\"b","tags":[1,{"x":null}],"user_data":""#
        );
        assert_eq!(after, "\"}}");
        assert_eq!(secret.then, [Transform::Base64, Transform::Json]);
    }

    #[test]
    fn a_text_that_the_driver_knows_is_written_into_the_body() {
        let request = Request::create("POST", "c")
            .json_with(&json!({}), &[("a", "x\n\"".into())])
            .done();
        assert_eq!(request.body, [Piece::Text(r#"{"a":"x\n\""}"#.into())]);
    }
}
