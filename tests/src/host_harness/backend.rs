//! Backends of scenarios: an API server, a clock, and the rights that a host has there.
//!
//! # Flow
//!
//! A scenario is a function of a [`Backend`]. [`Embedded`] is the API server of standalone on a paused runtime: hours
//! pass in an instant, and passes can be counted. [`RealServer`] is a kube-apiserver with etcd and
//! kube-controller-manager beside it, where time is real and a host is allowed what `polity rbac` derives from its
//! bindings and no more. The host, the policies and the simulated cloud are the same on both.

mod real;

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use super::Site;

pub use real::{RealServer, account_of, allow_agent, node_of};

/// Clouds are drawn from it.
const SEED: u64 = 1;
/// How long something is awaited that does not come: of virtual time, hours.
const PATIENCE: Duration = Duration::from_secs(2 * 3_600);

/// What takes a while, on the thread of the scenario.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An API server and a time.
pub trait Backend {
    /// A cluster with nothing in it, and a cloud as `sim` configures it.
    fn site(&self, sim: Value) -> Soon<'_, Site>;

    /// Lets hosts do what these bindings need, whose kinds are served by now. Called before the first host starts.
    fn allow<'a>(&'a self, site: &'a Site, bindings: &'a [Value]) -> Soon<'a, ()>;

    /// Who speaks for the agent of a node: somebody who may do what this binding needs.
    fn agent<'a>(&'a self, site: &'a Site, binding: &'a Value) -> Soon<'a, kube::Client>;

    /// How long something is awaited that does not come.
    fn patience(&self) -> Duration;
}

/// The API server of standalone, in the time of a paused runtime.
pub struct Embedded<'a> {
    /// Hosts record their passes into this folder.
    pub recordings: Option<&'a Path>,
}

impl Backend for Embedded<'_> {
    fn site(&self, sim: Value) -> Soon<'_, Site> {
        let mut site = Site::new(SEED, Some(sim));
        if let Some(folder) = self.recordings {
            site.record(folder);
        }
        Box::pin(std::future::ready(site))
    }

    fn allow<'a>(&'a self, _: &'a Site, _: &'a [Value]) -> Soon<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn agent<'a>(&'a self, site: &'a Site, _: &'a Value) -> Soon<'a, kube::Client> {
        Box::pin(std::future::ready(site.client()))
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}
