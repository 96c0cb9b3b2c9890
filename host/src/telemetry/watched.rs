//! An observer that counts and traces, in front of another one.

use std::sync::Arc;

use polity_core::binding::{Binding, PolicyId};
use polity_core::key::Key;
use polity_core::record::PassRecord;
use polity_sandbox::Policy;

use super::{Metrics, Traces};
use crate::observer::{Called, Observer};

/// An observer that counts and traces, in front of another one.
pub struct Watched<O> {
    inner: O,
    metrics: Arc<Metrics>,
    traces: Option<Traces>,
}

impl<O: Observer> Watched<O> {
    /// Counts what this observer is told, and makes traces of it.
    pub fn new(inner: O, metrics: Arc<Metrics>, traces: Option<Traces>) -> Self {
        Watched {
            inner,
            metrics,
            traces,
        }
    }
}

impl<O: Observer> Observer for Watched<O> {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        self.metrics.passed(record);
        if let Some(traces) = &mut self.traces {
            traces.passed(record);
        }
        self.inner.passed(record);
    }

    fn called(&mut self, call: &Called) {
        self.metrics.called(call);
        if let Some(traces) = &mut self.traces {
            traces.called(call);
        }
        self.inner.called(call);
    }

    fn forgotten(&mut self, key: &Key) {
        self.inner.forgotten(key);
    }

    fn bound(&mut self, binding: &Binding) {
        self.inner.bound(binding);
    }

    fn policy_loaded(&mut self, id: &PolicyId, policy: &Policy, bytes: &[u8]) {
        self.inner.policy_loaded(id, policy, bytes);
    }

    fn policy_forgotten(&mut self, id: &PolicyId) {
        self.inner.policy_forgotten(id);
    }

    fn report(&mut self, message: &str) {
        self.inner.report(message);
    }
}
