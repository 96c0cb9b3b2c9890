//! Why a value or a schema is invalid, as the causes in a `Status` (meta/v1 `StatusCause`).

use std::{fmt, io};

use serde_json::Value;

/// The most characters of one cause for people.
const SHOWN: usize = 500;

/// One reason why an object is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The reason for programs: one of the `CauseType`s of meta/v1.
    pub reason: &'static str,
    /// The path of the field, as `spec.disks[0].size`.
    pub field: String,
    /// The error without the path.
    pub message: String,
}

impl Cause {
    /// The value does not satisfy its schema.
    pub fn invalid(field: &str, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {}: {why}", shown(value));
        Self {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message,
        }
    }

    /// The field is missing.
    pub fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.to_owned(),
            message,
        }
    }

    /// The field is not allowed, or must not change in this way.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {why}"),
        }
    }

    /// The value is not in a fixed set.
    pub fn unsupported(field: &str, value: &Value, supported: &[String]) -> Self {
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            supported.join(", ")
        );
        Self {
            reason: "FieldValueNotSupported",
            field: field.to_owned(),
            message,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.field, self.message);
        match text.char_indices().nth(SHOWN) {
            None => f.write_str(&text),
            Some((end, _)) => write!(f, "{}…", &text[..end]),
        }
    }
}

/// Why a schema or a value is refused: one cause or more.
#[derive(Clone, Debug, PartialEq)]
pub struct Causes(pub(super) Vec<Cause>);

impl Causes {
    /// Without causes nothing is refused.
    pub(super) fn none_or(causes: Vec<Cause>) -> Result<(), Causes> {
        if causes.is_empty() {
            Ok(())
        } else {
            Err(Causes(causes))
        }
    }
}

impl std::error::Error for Causes {}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{cause}")?;
        }
        Ok(())
    }
}

impl IntoIterator for Causes {
    type Item = Cause;
    type IntoIter = std::vec::IntoIter<Cause>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A value for an error message, cut if it is long.
pub(super) fn shown(value: &Value) -> String {
    const MOST: usize = 256;
    let mut beginning = Beginning(Vec::new());
    // The only error is that there is enough.
    let _ = serde_json::to_writer(&mut beginning, value);
    let mut text = String::from_utf8_lossy(&beginning.0).into_owned();
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

/// Takes in a little more text than is shown, so that a large value is not written as a whole.
struct Beginning(Vec<u8>);

impl io::Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const ENOUGH: usize = 512;
        if self.0.len() > ENOUGH {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = bytes.len().min(ENOUGH);
        self.0.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
