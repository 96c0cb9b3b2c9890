//! An embedded Kubernetes API server: a [`tower::Service`] over a store in memory or in one file.
//!
//! **Flow.** [`Api`] reads a request and finds what it is about (`http`). `verbs` perform it on the
//! [`Store`], with objects of `kinds` that a [`Schema`](polity_kube_rules::schema::Schema) checks. `controllers` do what
//! follows in the same transaction. `http` shows the result. A watch is a position in the history of its table.
//!
//! The subresources are `status`, the `eviction` of pods, and the `scale` of custom kinds that declare one.
//!
//! Nodes, pods, volumes and similar objects are written by others. The status of a disruption budget is
//! computed here, in the transaction of the write that changes it, and evictions use it.
//!
//! **Guarantees.** A write is on the disk before it is answered. A feature that is missing is refused with
//! the `Status` that a client expects: server-side apply, strategic merge, dry run, exec, logs, CEL rules,
//! conversion webhooks.
//!
//! **Not here.** The server reads only the clock that it is given, opens no file, makes no decision about
//! policies, and runs no pods: nodes and pods are objects like any other.

mod controllers;
mod http;
mod kinds;
mod metadata;
mod store;
mod verbs;

pub use self::http::{
    access::{Access, AccessError},
    api::{Api, BoxError},
    reply::Body,
    serve::serve,
};
pub use store::{Clock, Store, StoreError};
