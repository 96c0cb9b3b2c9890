//! The fields of a body that are ignored, because they occur twice or the schema does not know them. By
//! `fieldValidation` the client chooses whether they are refused, reported as warnings, or dropped silently.

use polity_kube_rules::schema::{MOST, shortened};
use serde_json::{Map, Value};

use crate::http::{
    query::FieldValidation,
    refusal::{Cause, Refusal, Subject},
};

/// The fields of an operation of a JSON patch.
const OPERATION: [&str; 4] = ["op", "path", "from", "value"];

/// The problems with the fields of a body, as far as they are known.
#[derive(Clone)]
pub(crate) struct FieldCheck {
    validation: FieldValidation,
    /// Problems in the words of a real API server: `duplicate field "spec.x"`.
    problems: Vec<String>,
    is_patch: bool,
}

impl FieldCheck {
    /// The problems of a body with these duplicate fields.
    pub(crate) fn new(validation: FieldValidation, duplicates: &[String]) -> Self {
        Self {
            validation,
            problems: told("duplicate", duplicates),
            is_patch: false,
        }
    }

    /// The same for a merge patch.
    pub(crate) fn of_merge_patch(self) -> Self {
        Self {
            is_patch: true,
            ..self
        }
    }

    /// The same for a JSON patch, whose operations have few fields.
    pub(crate) fn of_json_patch(self, patch: &Value) -> Self {
        let operations = patch.as_array().into_iter().flatten().enumerate();
        let fields = operations.flat_map(|(index, operation)| {
            let fields = operation.as_object().into_iter().flat_map(Map::keys);
            fields.map(move |field| (index, field))
        });
        let unknown = fields.filter(|(_, field)| !OPERATION.contains(&field.as_str()));
        let unknown: Vec<String> = unknown
            .take(MOST)
            .map(|(index, field)| shortened(format!("[{index}].{field}")))
            .collect();
        let problems = self.problems.into_iter().chain(told("unknown", &unknown));
        Self {
            problems: problems.map(|problem| format!("json patch {problem}")).collect(),
            is_patch: true,
            ..self
        }
    }

    /// Nothing is wrong with fields that no client has sent.
    pub(crate) fn none() -> Self {
        Self::new(FieldValidation::Ignore, &[])
    }

    /// Returns warnings about these fields and about the unknown fields of `object`, which is of this kind and
    /// version.
    ///
    /// # Errors
    /// 400, or for a patch 422, if the client wants no field to be ignored.
    pub(crate) fn judge(
        mut self,
        of: (&str, &str),
        object: &Value,
        unknown: &[String],
    ) -> Result<Vec<String>, Refusal> {
        self.problems.extend(told("unknown", unknown));
        match self.validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Strict if !self.problems.is_empty() => {
                let why = format!("strict decoding error: {}", self.problems.join(", "));
                Err(self.unreadable(of, object, &why))
            }
            FieldValidation::Strict | FieldValidation::Warn => Ok(self.problems),
        }
    }

    /// The refusal of a body, or of what a patch makes, that is no object of this kind and version.
    pub(crate) fn unreadable(&self, (kind, version): (&str, &str), object: &Value, why: &str) -> Refusal {
        if self.is_patch {
            let nobody = Subject {
                group: "",
                kind: "",
                name: "",
            };
            return Refusal::invalid(nobody, &[Cause::invalid("patch", object, why)]);
        }
        Refusal::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
        ))
    }
}

fn told(what: &str, paths: &[String]) -> Vec<String> {
    let told = paths
        .iter()
        .map(|path| format!("{what} field \"{}\"", path.escape_debug()));
    told.collect()
}
