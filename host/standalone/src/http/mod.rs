//! From an HTTP request to an answer: what a request names, and in which form objects are shown.
//!
//! **Flow.** `serve` listens on a port, and `api` takes each request. `path` and `target` find what the
//! request is about, and `query` what it asks for. [`crate::verbs`] perform it. `view` shows the result,
//! `reply` sends it, and `refusal` holds all errors.
//!
//! **Not here.** Nothing is stored or changed here.

pub(crate) mod access;
pub(crate) mod api;
mod discovery;
pub(crate) mod json;
mod openapi;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod serve;
pub(crate) mod table;
pub(crate) mod target;
mod view;
mod watch;
