//! The cluster: watches, reads, writes and the lease, over kube. No decision is made here.
//!
//! ```text
//! Scope → path.rs ← discovery.rs          Write → write.rs, event.rs ┐
//!   └ watch.rs → WatchEvent → core        Question → read.rs         ├→ Answer → core
//!                                         LeaseWrite → lease.rs      ┘
//! ```
//!
//! Objects are JSON values throughout: the host knows their kinds only by name. Standalone's embedded API is a service
//! behind the same client, and nothing here can tell.
//!
//! # Guarantees
//!
//! - A watch shows everything in scope, in the order of versions, from one full list to the next; while it cannot, it
//!   says so.
//! - [`Cluster::read`] and [`Cluster::write`] end within [`LONGEST`], and [`Cluster::lease`] within
//!   [`CALL_LONGEST`](polity_core::controller::lease::CALL_LONGEST). A write is sent at most once; what one that was cut
//!   may have done is `effect: unknown`.
//! - The content of a Secret leaves neither [`Cluster::read`] nor [`Cluster::watch`].
//! - A name, whatever is in it, names one object or nothing.

mod apply;
mod connect;
mod discovery;
mod error;
mod event;
#[cfg(test)]
mod fake;
mod json;
mod large;
mod lease;
mod path;
mod pool;
mod read;
mod request;
mod secret;
mod token;
mod watch;
mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};

pub use apply::{Applied, Stands};
pub use connect::ConnectError;
pub use secret::{MintLimits, SecretValues, Wanted};

use discovery::Discovery;

/// How many list answers the host reads at the same time. A list answer is large, and at a start all kinds
/// are listed at once.
const LISTS: usize = 4;
/// The longest time that a read or a write may take. The host cuts it then.
pub const LONGEST: Duration = Duration::from_secs(5);

/// A Kubernetes API server, or the embedded API of standalone.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    /// The name or address of the API server; `None` if it is in this process.
    host: Option<String>,
    discovery: Arc<Discovery>,
    lease: (String, String),
    /// The key for digests of Secrets, so that a digest means nothing outside this installation. Read on
    /// first use.
    installation: Arc<OnceCell<Vec<u8>>>,
    /// The audiences of tokens that the API server accepts. Asked for on first use.
    api_audiences: Arc<OnceCell<Vec<String>>>,
    /// The `continue` token at which the next sweep for expired tokens begins; `None` begins at the first
    /// token.
    swept: Arc<Mutex<Option<String>>>,
    /// Limits how many list answers are read at the same time.
    lists: Arc<Semaphore>,
    /// Limits how many large texts are worked on at the same time.
    turns: Arc<Semaphore>,
}

impl Cluster {
    /// Uses this client, which must not repeat requests by itself: core retries. `lease` is the namespace and
    /// name of the lease. The Secret `NAME-installation` stands beside the lease.
    pub fn new(client: kube::Client, lease: (&str, &str)) -> Self {
        Cluster {
            client,
            host: None,
            discovery: Arc::default(),
            lease: (lease.0.to_owned(), lease.1.to_owned()),
            installation: Arc::default(),
            api_audiences: Arc::default(),
            swept: Arc::default(),
            lists: Arc::new(Semaphore::new(LISTS)),
            turns: Arc::new(large::turns()),
        }
    }

    /// The namespace and name of the lease.
    pub fn lease_name(&self) -> (&str, &str) {
        (&self.lease.0, &self.lease.1)
    }
}
