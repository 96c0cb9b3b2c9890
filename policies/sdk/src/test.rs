//! The test kit: a policy's own `async fn`, run natively to the end of a pass as the host runs it.
//!
//! A test states facts in a [`World`], runs a pass, and looks at the [`Ended`] pass: what was requested in which step,
//! the patch, the events, the notes and when the policy wants to be called again. Beyond what the test looks at, each
//! pass fails the test (it panics with a sentence) when the policy breaks the contract:
//!
//! - two runs of the same step differ;
//! - a step ends without requests and without a conclusion (the host's fault `stalled`);
//! - an ask is repeated after an act and answered from before it: say [`Context::ask_again`](crate::Context::ask_again);
//! - a request is made and dropped: never awaited, or no longer awaited when its answer comes;
//! - it asks for what no fact of the test answers;
//! - it requests or writes what its [manifest](World::manifest) does not declare.

mod case;
mod cluster;
mod declared;
mod drive;
mod facts;
mod watch;
mod world;

pub use case::{Case, NOW, NOW_MS, RetryCase, check_edges, retry_request};
pub use cluster::Cluster;
pub use drive::{Driven, STEPS, describe, drive};
pub use facts::{Answer, Facts};
pub(crate) use watch::Watch;
pub use world::{Ended, World};
