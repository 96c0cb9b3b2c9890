//! What a host tells those who watch it with the tools that they have: `/healthz`, `/readyz`, `/metrics`, and traces
//! over OTLP.
//!
//! ```text
//! engine ─ Observer → watched.rs ┬→ traces.rs → a collector
//!        │                       └→ metrics.rs ┐
//!        └ Handle::view → health.rs ───────────┴→ serve.rs
//! ```
//!
//! Labels are names of bindings, roles, operations, codes and reasons: each comes from a bounded set that an administrator
//! decides on. The name of an object is never one, so that no tenant can make series.

mod health;
mod metrics;
mod serve;
#[cfg_attr(not(feature = "otlp"), path = "no_traces.rs")]
mod traces;
mod watched;

pub use metrics::Metrics;
pub use serve::Endpoint;
pub use traces::{Export, Traces};
pub use watched::Watched;
