//! Bodies of `application/x-www-form-urlencoded`.

use std::fmt::Write as _;

use crate::Transform;
use crate::request::{Pieces, Text};

/// The fields of a form, in order.
#[derive(Default)]
pub struct Form(Vec<(String, Text)>);

impl Form {
    /// A form without fields.
    pub fn new() -> Self {
        Form::default()
    }

    /// With one more field.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Text>) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a field.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Text>) {
        self.0.push((name.into(), value.into()));
    }

    pub(crate) fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::default();
        for (index, (name, value)) in self.0.iter().enumerate() {
            let joint = if index == 0 { "" } else { "&" };
            pieces.text(&format!("{joint}{}=", encoded(name)));
            pieces.escaped(value, encoded, Transform::Form);
        }
        pieces
    }
}

/// Encodes every byte except letters, digits and `-_.~` as `%XX`, which all servers read in the same way.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;
    use crate::request::Request;

    #[test]
    fn fields_are_encoded() {
        let form = Form::new().field("Action", "Run").field("Tag.1", "a b&ä=+");
        let request = Request::search("ec2").form(form).done();
        assert_eq!(
            request.body,
            [Piece::Text("Action=Run&Tag.1=a%20b%26%C3%A4%3D%2B".into())]
        );
    }
}
