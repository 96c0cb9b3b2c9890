//! The query parameters of a request.

use std::collections::BTreeMap;

use crate::http::{refusal::Refusal, table::Include};

/// The query parameters by name. Of a repeated one the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

/// What happens to fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FieldValidation {
    Ignore,
    /// They are dropped, and a `Warning` header says so. This is the default.
    Warn,
    Strict,
}

impl Query {
    /// Parses what follows the question mark.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            parameters.entry(name.into_owned()).or_insert(value.into_owned());
        }
        Self(parameters)
    }

    /// A parameter; `None` if it is missing or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A parameter that is true or false.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(value, "true" | "1" | "True"))
    }

    /// A parameter that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let wrong = |value| Refusal::bad_request(format!("invalid {name}: {value:?} is no number"));
        self.get(name)
            .map(|value| value.parse().map_err(|_| wrong(value)))
            .transpose()
    }

    /// `resourceVersion`. `None` for 0 and if it is missing: the client accepts any version.
    pub(crate) fn resource_version(&self) -> Result<Option<u64>, Refusal> {
        self.number("resourceVersion")
    }

    /// `fieldValidation`
    pub(crate) fn field_validation(&self) -> Result<FieldValidation, Refusal> {
        match self.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => Err(Refusal::bad_request(format!(
                "invalid fieldValidation {other:?}: must be Ignore, Warn or Strict"
            ))),
        }
    }

    /// `includeObject`, for tables.
    pub(crate) fn include(&self) -> Result<Include, Refusal> {
        match self.get("includeObject") {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::None),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(Refusal::bad_request(format!("invalid includeObject {other:?}"))),
        }
    }

    /// Refuses a dry run. This server would perform it.
    pub(crate) fn refuse_dry_run(&self) -> Result<(), Refusal> {
        if self.get("dryRun").is_some() {
            Err(Refusal::not_implemented("dryRun"))
        } else {
            Ok(())
        }
    }
}
