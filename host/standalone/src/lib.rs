//! An embedded Kubernetes API server: a [`tower::Service`] over a store in memory or in one file.
//!
//! **Flow.** [`Api`] reads a request, `path` and `target` find what it is about, `verbs` do it on the
//! [`Store`], `view` shows the result. A watch is a place in the history of its table.
//!
//! Nodes, pods, volumes and their like are objects that somebody else writes; the status of a disruption budget is
//! counted here, in the transaction of the write that changes it (`budget`), and evictions ask it.
//!
//! **Guarantees.** A write is on the disk before it is answered. What is not done is refused with the `Status` a
//! client expects: server-side apply, strategic merge, dry run, exec, logs, CEL rules, conversion webhooks.
//!
//! **What it never does.** It reads no clock but the one it is given, opens no file, decides nothing about policies,
//! and runs no pods: nodes and pods are objects like any other.

mod access;
mod admission;
mod api;
mod budget;
mod condition;
mod deletion;
mod discovery;
mod fields;
mod json;
mod kinds;
mod metadata;
mod namespaces;
mod openapi;
mod owners;
mod path;
mod query;
mod refusal;
mod reply;
mod schema;
mod selector;
mod serve;
mod store;
mod table;
mod target;
mod time;
mod verbs;
mod view;
mod watch;

pub use access::{Access, AccessError};
pub use api::{Api, BoxError};
pub use reply::Body;
pub use serve::serve;
pub use store::{Store, StoreError};
pub use time::Clock;
