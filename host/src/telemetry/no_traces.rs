//! In place of `traces.rs` in a build without the feature `otlp`: there are no traces, and whoever wants some is told.

use anyhow::{Result, bail};
use polity_core::record::PassRecord;

use crate::observer::Called;
use crate::progress::Format;

/// Makes spans of passes: none in this build.
pub enum Traces {}

impl Traces {
    /// Refuses: this build sends no traces.
    ///
    /// # Errors
    /// Always.
    pub fn to(endpoint: &str, _: Format) -> Result<(Self, Export)> {
        bail!(
            "traces cannot be sent to {endpoint}: this build of polity has no OTLP. Build it with `--features otlp`, or give no \
             --otlp-endpoint and no OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    }

    pub(super) fn called(&mut self, _: &Called) {
        match *self {}
    }

    pub(super) fn passed(&mut self, _: &PassRecord) {
        match *self {}
    }
}

/// What sends spans.
pub enum Export {}

impl Export {
    /// Sends what is left.
    pub async fn end(self) {
        match self {}
    }
}
