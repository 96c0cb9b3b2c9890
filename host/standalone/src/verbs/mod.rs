//! The verbs: what can be done with objects.

mod admission;
mod create;
mod delete;
mod evict;
mod fields;
mod patch;
mod read;
pub(crate) mod scale;
mod selection;
mod update;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use create::create;
pub(crate) use delete::{Answer, delete, delete_collection};
pub(crate) use evict::evict;
pub(crate) use patch::{PatchKind, patch};
pub(crate) use read::{get, list};
pub(crate) use selection::Selection;
pub(crate) use update::update;

use crate::{
    http::{json, query::Query, refusal::Refusal, target::Target},
    store::{Object, Store},
    verbs::fields::FieldCheck,
};

/// A parsed request for objects.
pub(crate) struct Call<'a> {
    pub(crate) store: &'a Store,
    pub(crate) target: &'a Target,
    pub(crate) query: &'a Query,
    pub(crate) body: &'a Bytes,
}

/// An object that was written.
pub(crate) struct Written {
    pub(crate) object: Object,
    /// Warnings for the `Warning` header.
    pub(crate) warnings: Vec<String>,
}

impl Call<'_> {
    /// The body as JSON.
    fn json(&self) -> Result<Value, Refusal> {
        Ok(self.json_and_duplicates()?.0)
    }

    fn json_and_duplicates(&self) -> Result<(Value, Vec<String>), Refusal> {
        json::parse(self.body).map_err(|error| Refusal::bad_request(format!("the body is no JSON: {error}")))
    }

    /// Reads and checks what every write needs first.
    fn begin_write(&self) -> Result<(Value, FieldCheck), Refusal> {
        self.query.refuse_dry_run()?;
        let validation = self.query.field_validation()?;
        let (body, duplicates) = self.json_and_duplicates()?;
        Ok((body, FieldCheck::new(validation, &duplicates)))
    }
}
