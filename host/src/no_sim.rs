//! Stands in for the feature `sim` in builds without it: no cloud is simulated, and no scenario can be read.

use std::sync::Arc;

use anyhow::{Result, bail};
use polity_clouds::{BoxFuture, Cloud, Millis};
use polity_cluster::Cluster;
use polity_core::binding::BindingSpec;
use polity_core::contract::{Answer, Failure};
use polity_core::time::Unix;
use serde_json::Value;

use crate::adapters::WITH_SIM;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::data::Data;
use crate::install::Target;

pub(crate) fn is_outdated(_: &str) -> bool {
    false
}

pub(crate) fn notice(_: &str, _: &dyn Cloud, _: Option<&Data>) -> Option<String> {
    None
}

pub(crate) fn unfinished(_: Option<&Running>, _: &Clouds) -> Vec<String> {
    Vec::new()
}

pub(crate) fn rights(_: &BindingSpec) -> &'static [(&'static str, &'static [&'static str])] {
    &[]
}

pub(crate) fn begin(_: &Clouds, _: Unix) {}

pub(crate) fn reachable(_: &Clouds) -> Option<Answer> {
    None
}

#[allow(clippy::unused_async, reason = "a simulation stores it")]
pub(crate) async fn revoke(_: &Clouds, _: &str) -> Result<(), Failure> {
    Ok(())
}

/// No scenario can be read, so this type has no values.
#[derive(Clone)]
pub enum Scenario {}

impl Scenario {
    /// Refuses a manifest that is a scenario.
    pub(crate) fn read(_: Value, _: &str) -> Result<Self> {
        bail!(
            "this build has no simulated cloud, so it cannot play a scenario: {WITH_SIM}, or remove the scenario"
        )
    }

    pub(crate) fn bindings(&self) -> std::iter::Empty<&Value> {
        match *self {}
    }

    pub(crate) fn seed(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn speed(&self) -> Option<f64> {
        match *self {}
    }

    pub(crate) fn deadline(&self) -> Option<Millis> {
        match *self {}
    }

    pub(crate) fn cloud(&self) -> Option<&Value> {
        match *self {}
    }

    pub(crate) fn position(&self, _: Option<&Data>, _: Unix) -> Result<Position> {
        match *self {}
    }

    pub(crate) async fn go_on(
        &self,
        _: Position,
        _: (&Arc<Clock>, &Arc<Cluster>),
        _: Target,
        _: Arc<dyn Fn(&str) + Send + Sync>,
        _: Option<Arc<Data>>,
    ) -> Running {
        match *self {}
    }

    pub(crate) async fn verdicts(&self, _: &Cluster, _: &Clouds) -> Result<Vec<Verdict>> {
        match *self {}
    }
}

/// There is no scenario, so there is no position in it.
pub enum Position {}

impl Position {
    pub(crate) fn start(&self) -> Unix {
        match *self {}
    }
}

/// There is no scenario, so there are no expectations.
pub enum Verdict {}

impl Verdict {
    pub(crate) fn that(&self) -> &str {
        match *self {}
    }

    pub(crate) fn wrong(&self) -> &[String] {
        match *self {}
    }
}

/// There is no scenario, so none is under way.
pub enum Running {}

impl Running {
    pub(crate) fn may_mend_bindings(&self) -> bool {
        match *self {}
    }

    pub(crate) fn steps_failed(&self) -> usize {
        match *self {}
    }
}

pub(crate) fn kubelets(_: &Arc<Clock>, _: &Arc<Cluster>, _: &Arc<Clouds>) -> Option<BoxFuture<'static, ()>> {
    None
}
