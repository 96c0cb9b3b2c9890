//! The fields of a body that are ignored, because they occur twice or the schema does not know them. By
//! `fieldValidation` the client chooses whether they are refused, reported as warnings, or dropped silently.

use polity_kube_rules::schema::{MOST, shortened};
use serde_json::{Map, Value};

use crate::http::{
    query::FieldValidation,
    refusal::{Cause, Refusal, Subject},
    target::Target,
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

    /// Returns warnings about these fields and about the unknown fields of `object`.
    ///
    /// # Errors
    /// 400, or for a patch 422, if the client wants no field to be ignored.
    pub(crate) fn judge(
        mut self,
        target: &Target,
        object: &Value,
        unknown: &[String],
    ) -> Result<Vec<String>, Refusal> {
        self.problems.extend(told("unknown", unknown));
        if self.is_patch {
            let nobody = Subject {
                group: "",
                kind: "",
                name: "",
            };
            return self.warnings(|why| Refusal::invalid(nobody, &[Cause::invalid("patch", object, why)]));
        }
        self.warnings_of(&target.kind.kind, &target.version().name)
    }

    /// Returns warnings about a body without a schema here; 400 if the client wants no field to be ignored.
    pub(crate) fn warnings_of(self, kind: &str, version: &str) -> Result<Vec<String>, Refusal> {
        self.warnings(|why| {
            Refusal::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
            ))
        })
    }

    fn warnings(self, refusal: impl FnOnce(&str) -> Refusal) -> Result<Vec<String>, Refusal> {
        match self.validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Strict if !self.problems.is_empty() => {
                let why = format!("strict decoding error: {}", self.problems.join(", "));
                Err(refusal(&why))
            }
            FieldValidation::Strict | FieldValidation::Warn => Ok(self.problems),
        }
    }
}

fn told(what: &str, paths: &[String]) -> Vec<String> {
    let told = paths
        .iter()
        .map(|path| format!("{what} field \"{}\"", path.escape_debug()));
    told.collect()
}
