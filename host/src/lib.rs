//! The Polity host. It only connects parts: policies make decisions, and `polity-core` makes sure that they
//! are carried out.
//!
//! ```text
//! cli/run.rs ─ standalone.rs or a kubeconfig ─ engine.rs ─┬─ bindings.rs, policies.rs   which policies run
//!                                                         ├─ workers.rs                 steps
//!                                                         ├─ clouds.rs                  cloud calls
//!                                                         └─ progress.rs, recording.rs  what is shown and kept
//! ```

mod adapters;
pub mod applied;
mod binding_objects;
mod bindings;
pub mod cli;
pub mod clock;
pub mod clouds;
mod compiled;
pub mod config;
mod configuration;
pub mod connections;
pub mod crds;
mod data;
pub mod display;
pub mod edges;
pub mod engine;
mod events;
pub mod host;
pub mod install;
mod judge;
mod live;
pub mod manifests;
pub mod observer;
pub mod overview;
pub mod packed;
pub mod policies;
pub mod polls;
mod private;
pub mod progress;
pub mod rbac;
pub mod recording;
mod said;
#[cfg(feature = "sim")]
pub mod scenario;
mod screen;
pub mod secrets;
pub mod selection;
pub mod settled;
#[cfg_attr(not(feature = "sim"), path = "no_sim.rs")]
pub mod sim;
mod single_flight;
mod slow;
pub mod standalone;
mod table;
pub mod telemetry;
mod timekeeping;
mod waiting;
mod workers;

pub use data::Data;
