//! Adapters: how a cloud that a binding names is checked and opened. The host decides which adapters a build
//! has.

use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::Arc;

use polity_kube_rules::schema::{Dialect, compile};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clock::Clock;
use crate::cloud::Cloud;
use crate::sealed::SecretResolver;
use crate::validate::CatalogueError;

/// The storage of an adapter's state that outlives the process: one document that is written as a whole, or a
/// database.
pub trait Storage: Send + Sync {
    /// The document that was written last.
    fn read(&self) -> io::Result<Option<String>>;

    /// Writes the document. When this returns, the document survives the end of the process and of the
    /// machine.
    fn replace(&self, document: &str) -> io::Result<()>;

    /// The database file, which belongs to this adapter alone. It is empty if it is new.
    fn database(&self) -> io::Result<File>;
}

/// A cloud that a binding can name.
pub struct Adapter {
    /// The name in bindings, for example `node`.
    pub name: &'static str,
    /// The JSON Schema of the configuration.
    pub schema: fn() -> Value,
    /// Checks a configuration without opening anything.
    pub check: fn(Option<&Value>) -> Result<(), OpenError>,
    /// Opens the cloud behind a [`Gateway`](crate::Gateway).
    pub open: fn(Opening) -> Result<Arc<dyn Cloud>, OpenError>,
}

/// The values with which an adapter is opened.
pub struct Opening {
    /// The binding's configuration, checked against the adapter's schema.
    pub configuration: Option<Value>,
    /// The seed for everything random, the handles of sessions included. Outside of a simulation, the host draws a
    /// new seed at each start.
    pub seed: u64,
    /// The host's clock.
    pub clock: Arc<dyn Clock>,
    /// Resolves sealed arguments.
    pub secrets: Arc<dyn SecretResolver>,
    /// The adapter's storage; without one all state ends with the process.
    pub storage: Option<Arc<dyn Storage>>,
}

/// The error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// The dotted path of the error.
    pub path: String,
    /// The error at that path.
    pub message: String,
}

/// The reason why a cloud cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration does not match the adapter's schema.
    #[error("the configuration of cloud {cloud:?} is not valid")]
    Configuration {
        /// The name of the adapter.
        cloud: &'static str,
        /// The path and the error.
        #[source]
        source: ConfigError,
    },
    /// The stored state cannot be used.
    #[error("the stored state of cloud {cloud:?} cannot be used")]
    Saved {
        /// The name of the adapter.
        cloud: &'static str,
        /// The adapter's error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The adapter has a bug.
    #[error("the catalogue of cloud {cloud:?} is broken; this is a bug of Polity")]
    Catalogue {
        /// The name of the adapter.
        cloud: &'static str,
        /// The error in its catalogue.
        #[source]
        source: CatalogueError,
    },
}

/// The schema of a configuration, without references.
pub fn schema<C: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<C>().to_value()
}

/// Reads a configuration after checking it against its schema, so that an error names its path.
pub fn configuration<C: DeserializeOwned + JsonSchema>(value: &Value) -> Result<C, ConfigError> {
    let schema = compile(Dialect::Json, "", &schema::<C>()).expect("tests read each configuration");
    if let Some(cause) = schema.first_error(value) {
        return Err(ConfigError {
            path: cause.field,
            message: cause.message,
        });
    }
    C::deserialize(value).map_err(|e| ConfigError {
        path: "(document)".to_owned(),
        message: e.to_string(),
    })
}
