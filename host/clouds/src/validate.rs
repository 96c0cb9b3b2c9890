//! Validates requests against the catalogue, once for all adapters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polity_core::call::CloudRequest;
use polity_core::catalogue::{Catalogue, Credential, Operation, OperationEffect};
use polity_core::contract::{Code, Document, Failure};
use polity_kube_rules::schema::{self, Causes, Dialect, Schema};
use serde_json::Value;

use crate::cloud::no_credentials;

/// A catalogue with compiled schemas.
pub struct CatalogueValidator {
    catalogue: Arc<Catalogue>,
    arguments: BTreeMap<String, Arc<Schema>>,
    credential: Option<Arc<Schema>>,
}

/// A schema of the catalogue does not compile. This is a bug of the adapter.
#[derive(Debug, thiserror::Error)]
#[error("the catalogue's schema of `{what}` does not compile")]
pub struct CatalogueError {
    what: String,
    #[source]
    causes: Causes,
}

/// The way in which an operation is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A read or a change.
    Perform,
    /// The preparation of a create. It has no key yet.
    Prepare,
    /// A create with its key.
    Commit,
}

impl CatalogueValidator {
    /// Compiles the schemas.
    pub fn new(catalogue: Arc<Catalogue>) -> Result<Self, CatalogueError> {
        let arguments = catalogue
            .operations
            .iter()
            .map(|(name, operation)| Ok((name.clone(), compile(name, &operation.arguments)?)))
            .collect::<Result<_, _>>()?;
        let credential = catalogue
            .credential
            .as_ref()
            .map(|credential| compile("credential", &credential.schema))
            .transpose()?;
        Ok(CatalogueValidator {
            catalogue,
            arguments,
            credential,
        })
    }

    /// The catalogue.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// The operation of a request. Checks that the operation exists, that it is called in the right way, and that the
    /// arguments match its schema.
    pub fn validate(&self, request: &CloudRequest, way: Way) -> Result<&Operation, Failure> {
        let name = &request.operation;
        let (Some(operation), Some(validator)) =
            (self.catalogue.operations.get(name), self.arguments.get(name))
        else {
            let message = format!("this cloud has no operation {name:?}");
            return Err(Failure::new(Code::Unimplemented, message));
        };
        let fits = match way {
            Way::Perform => operation.effect != OperationEffect::Create && request.key.is_none(),
            Way::Prepare => operation.effect == OperationEffect::Create && request.key.is_none(),
            Way::Commit => operation.effect == OperationEffect::Create && request.key.is_some(),
        };
        if !fits {
            let message = format!(
                "{name}: a create must be prepared and then committed with a key; any other operation must be performed"
            );
            return Err(Failure::new(Code::Internal, message));
        }
        against(validator, &request.arguments, name)?;
        Ok(operation)
    }

    /// The kind of plan that the cloud accepts, and the tree of this plan. Checks that the cloud has sessions of its
    /// own, and that the plan matches its schema.
    pub fn validate_plan<'a>(&self, plan: &'a Document) -> Result<(&Credential, &'a Value), Failure> {
        let (Some(validator), Some(credential)) = (&self.credential, &self.catalogue.credential) else {
            return Err(no_credentials());
        };
        let plan = plan.tree("credential")?;
        against(validator, plan, "credential")?;
        Ok((credential, plan))
    }
}

/// The first error with its path: `vm.clone: cpus: must be an integer, not a string`. It does not quote the value, which may
/// belong to a tenant.
fn against(schema: &Schema, value: &Value, what: &str) -> Result<(), Failure> {
    match schema.first_error(value) {
        None => Ok(()),
        Some(cause) => Err(Failure::new(Code::InvalidArgument, format!("{what}: {cause}"))),
    }
}

/// The compiled schemas that are in use, by their text. All connections of a driver have the same schemas, and so have a simulated
/// cloud and the gateway before it.
static COMPILED: Mutex<BTreeMap<String, Weak<Schema>>> = Mutex::new(BTreeMap::new());

fn compile(what: &str, schema: &Value) -> Result<Arc<Schema>, CatalogueError> {
    let text = schema.to_string();
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = compiled.get(&text).and_then(Weak::upgrade) {
        return Ok(schema);
    }
    let schema = schema::compile(Dialect::Json, "", schema).map_err(|causes| CatalogueError {
        what: what.to_owned(),
        causes,
    })?;
    let schema = Arc::new(schema);
    compiled.retain(|_, schema| schema.strong_count() > 0);
    compiled.insert(text, Arc::downgrade(&schema));
    Ok(schema)
}
