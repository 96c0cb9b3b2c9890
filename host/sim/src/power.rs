//! A VM's power.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A VM's power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Power {
    On,
    Off,
    Suspended,
}
