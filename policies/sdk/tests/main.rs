//! The tests of the SDK.

mod as_a_host;
mod drain;
mod journal;
mod kit;
mod kube_rules;
mod report;
mod router;
#[allow(
    unreachable_pub,
    missing_docs,
    reason = "shared by the modules of this program"
)]
mod thing;
