//! Why a value or a schema is invalid, as the causes in a `Status` (meta/v1 `StatusCause`).

use serde_json::Value;

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

/// A value for an error message, cut if it is long.
fn shown(value: &Value) -> String {
    const MOST: usize = 256;
    let mut text = value.to_string();
    if text.len() > MOST {
        let cut = (0..=MOST).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}
