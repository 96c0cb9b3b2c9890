//! The test kit. It runs a policy's `async fn` natively to the end of a pass, in the way in which the host
//! runs it.
//!
//! A test states facts in a [`World`], runs a pass, and looks at the [`Ended`] pass: the requests of each
//! step, the patch, the events, the notes, and when the policy wants to be called again. A pass also fails
//! the test, with a panic that says why, if the policy breaks the contract:
//!
//! - two runs of the same step differ;
//! - a step ends without requests and without a conclusion (the host's fault `stalled`);
//! - an ask is repeated after an act, but gets the answer from before the act: use
//!   [`Context::ask_again`](crate::Context::ask_again);
//! - a request is made and dropped: it is never awaited, or no longer awaited when its answer comes;
//! - the policy asks for something that no fact of the test answers;
//! - the policy requests, writes or notes something that its [manifest](World::manifest) does not declare;
//! - the configuration does not fit the schema of the manifest.

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
