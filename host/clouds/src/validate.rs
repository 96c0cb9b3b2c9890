//! Validates requests against the catalogue, once for all adapters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jsonschema::Validator;
use polity_core::call::CloudRequest;
use polity_core::catalogue::{Catalogue, Credential, Operation, OperationEffect};
use polity_core::contract::{Code, Document, Failure};
use serde_json::Value;

use crate::cloud::no_credentials;

/// A catalogue with compiled schemas.
pub struct CatalogueValidator {
    catalogue: Arc<Catalogue>,
    arguments: BTreeMap<String, Arc<Validator>>,
    credential: Option<Arc<Validator>>,
}

/// A schema of the catalogue does not compile. This is a bug of the adapter.
#[derive(Debug, thiserror::Error)]
#[error("the catalogue's schema of `{what}` does not compile: {message}")]
pub struct CatalogueError {
    what: String,
    message: String,
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

/// The first error with its path: `vm.clone: cpus: "two" is not of type "integer"`.
fn against(validator: &Validator, value: &Value, what: &str) -> Result<(), Failure> {
    match first_error(validator, value) {
        None => Ok(()),
        Some((path, message)) => Err(Failure::new(
            Code::InvalidArgument,
            format!("{what}: {path}: {message}"),
        )),
    }
}

/// The path and the message of the first error. Values are left out of the message: they may be long, and
/// they may belong to a tenant.
pub(crate) fn first_error(validator: &Validator, value: &Value) -> Option<(String, String)> {
    validator
        .iter_errors(value)
        .map(|e| (dotted(&e.instance_path().to_string()), e.masked().to_string()))
        .min()
}

/// A JSON pointer as a dotted path: `/networks/0` becomes `networks.0`; the whole document is `(document)`.
fn dotted(pointer: &str) -> String {
    match pointer.trim_start_matches('/') {
        "" => "(document)".to_owned(),
        path => path.replace('/', "."),
    }
}

/// The compiled schemas that are in use, by their text. All connections of a driver have the same schemas, and so have a simulated
/// cloud and the gateway before it.
static COMPILED: Mutex<BTreeMap<String, Weak<Validator>>> = Mutex::new(BTreeMap::new());

fn compile(what: &str, schema: &Value) -> Result<Arc<Validator>, CatalogueError> {
    let text = schema.to_string();
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(validator) = compiled.get(&text).and_then(Weak::upgrade) {
        return Ok(validator);
    }
    let validator = jsonschema::validator_for(schema).map_err(|e| CatalogueError {
        what: what.to_owned(),
        message: e.to_string(),
    })?;
    let validator = Arc::new(validator);
    compiled.retain(|_, validator| validator.strong_count() > 0);
    compiled.insert(text, Arc::downgrade(&validator));
    Ok(validator)
}
