//! Adapters: how a cloud that a binding names is checked and opened. Which ones a build has, its host says.

use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::check::{CatalogueError, first_error};
use crate::clock::Clock;
use crate::cloud::Cloud;
use crate::sealed::SecretResolver;

/// Where an adapter keeps what must outlive the process: a document that is written as a whole, or a database.
pub trait Storage: Send + Sync {
    /// The document that was written last.
    fn read(&self) -> io::Result<Option<String>>;

    /// Writes the document: when this returns, it survives the end of the process and of the machine.
    fn replace(&self, document: &str) -> io::Result<()>;

    /// The file of the database, this adapter's alone; empty if there was none.
    fn database(&self) -> io::Result<File>;
}

/// A cloud that can be named in a binding.
pub struct Adapter {
    /// `node`
    pub name: &'static str,
    /// The JSON Schema of its configuration.
    pub schema: fn() -> Value,
    /// Checks a configuration without opening anything.
    pub check: fn(Option<&Value>) -> Result<(), OpenError>,
    /// Opens it, behind a [`Gateway`](crate::Gateway).
    pub open: fn(Opening) -> Result<Arc<dyn Cloud>, OpenError>,
}

/// What an adapter is opened with.
pub struct Opening {
    /// From the binding; checked against the adapter's schema.
    pub configuration: Option<Value>,
    /// For whatever is drawn by chance, the handles of sessions included: a host that is no simulation draws it anew.
    pub seed: u64,
    /// The host's clock.
    pub clock: Arc<dyn Clock>,
    /// Resolves sealed arguments.
    pub secrets: Arc<dyn SecretResolver>,
    /// What it goes on from, and keeps what it does in; none: all is forgotten with the process.
    pub storage: Option<Arc<dyn Storage>>,
}

/// A configuration that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// Dotted.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// Why there is no such cloud.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration is not what the adapter's schema says.
    #[error("the configuration of cloud {cloud:?} is not valid")]
    Configuration {
        /// The adapter.
        cloud: &'static str,
        /// Where and why.
        #[source]
        source: ConfigError,
    },
    /// What was stored cannot be continued from.
    #[error("cloud {cloud:?} cannot be restored")]
    Saved {
        /// The adapter.
        cloud: &'static str,
        /// What the adapter said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A defect of the adapter.
    #[error("cloud {cloud:?} has a defect")]
    Catalogue {
        /// The adapter.
        cloud: &'static str,
        /// The violations of its schema.
        #[source]
        source: CatalogueError,
    },
}

/// Reads a configuration, checked against its schema, so that an error names its path.
pub fn configuration<C: DeserializeOwned + JsonSchema>(value: &Value) -> Result<C, ConfigError> {
    let schema = schemars::schema_for!(C).to_value();
    let validator = jsonschema::validator_for(&schema).expect("schemars makes schemas that compile");
    if let Some((path, message)) = first_error(&validator, value) {
        return Err(ConfigError { path, message });
    }
    C::deserialize(value).map_err(|e| ConfigError {
        path: "(document)".to_owned(),
        message: e.to_string(),
    })
}
