//! An embedded Kubernetes API server: a [`tower::Service`] over a store in memory or in one file.
//!
//! **Flow.** [`Api`] reads a request and finds what it is about (`http`), `verbs` do it on the [`Store`] to objects of
//! `kinds` that a `schema` checks, `controllers` do what follows in the same transaction, and `http` shows the result. A
//! watch is a place in the history of its table.
//!
//! Nodes, pods, volumes and their like are objects that somebody else writes; the status of a disruption budget is
//! counted here, in the transaction of the write that changes it, and evictions ask it.
//!
//! **Guarantees.** A write is on the disk before it is answered. What is not done is refused with the `Status` a
//! client expects: server-side apply, strategic merge, dry run, exec, logs, CEL rules, conversion webhooks.
//!
//! **What it never does.** It reads no clock but the one it is given, opens no file, decides nothing about policies,
//! and runs no pods: nodes and pods are objects like any other.

mod controllers;
mod http;
mod kinds;
mod schema;
mod store;
mod verbs;

pub use self::http::{
    access::{Access, AccessError},
    api::{Api, BoxError},
    reply::Body,
    serve::serve,
};
pub use store::{Clock, Store, StoreError};
