//! Simulation A: the core, a policy, the simulated cloud and an API server in memory, in one thread, without an
//! executor and without a clock. All chance comes from a seed; the same seed gives the same recording byte for byte.
//!
//! # Flow
//!
//! A [`Scenario`] is drawn from the seed: objects, what people do to them, what goes wrong and how
//! often. The [`World`] delivers replies, watch events and ticks in an order drawn from the seed, to one
//! to three [hosts](host::Host) that compete for one lease, crash, stand still and come back. At a time of the scenario
//! it becomes quiet: nothing goes wrong any more, and everything has to settle.
//!
//! The [`Oracle`](oracle::Oracle) sees everything and says at every instant whether the rules of architecture §9 hold.
//!
//! # Caveats
//!
//! What happens between the emission of a call and its departure is not simulated: a call leaves with the output that
//! emits it, and arrives before its longest duration is over or not at all. That is what fencing assumes.

pub mod bindings;
pub mod core_harness;
pub mod host;
pub mod kinds;
pub mod native;
pub mod oracle;
pub mod scenario;
pub mod seed;
pub mod stepper;
pub mod store;
pub mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_core::binding::Binding;
use polity_core::catalogue::Catalogue;

pub use oracle::{Rule, Violation};
pub use stepper::{Sandboxed, Stepper};
pub use world::Options;

use scenario::Scenario;
use world::World;

/// What came of a seed that broke no rule.
#[derive(Debug)]
pub struct Report {
    /// Passes that ended.
    pub passes: u64,
    /// Virtual milliseconds until everything had settled.
    pub took: u64,
    /// Effects in the cloud.
    pub effects: usize,
    /// What the seeds are meant to reach and this one did.
    pub reached: BTreeSet<&'static str>,
    /// One record a line, where recordings are kept.
    pub recording: Vec<u8>,
}

/// A seed that broke a rule.
#[derive(Debug)]
pub struct Failed {
    /// What it broke.
    pub violation: Violation,
    /// What happened last.
    pub trace: Vec<String>,
}

/// Simulates a seed.
pub fn run(seed: u64, options: &Options<'_>) -> Result<Report, Box<Failed>> {
    let mut scenario = Scenario::of(seed);
    (options.shape)(&mut scenario);
    let mut world = World::new(seed, scenario, options);
    let verdict = world.run();
    assert_eq!(
        world.sim.panics(),
        0,
        "a service of the simulated cloud has panicked"
    );
    match verdict {
        Ok(()) => Ok(Report {
            passes: world.passes(),
            took: world.now(),
            effects: world.sim.effects().len(),
            reached: world.reached(),
            recording: std::mem::take(&mut world.recording),
        }),
        Err(violation) => Err(Box::new(Failed {
            violation,
            trace: world.trace(),
        })),
    }
}

/// Every kind there is.
pub fn bindings(stepper: &dyn Stepper, catalogue: Arc<Catalogue>) -> Vec<Binding> {
    vec![
        kinds::guest::binding(catalogue.clone()),
        bindings::machines(stepper.machine(), catalogue),
        kinds::site::binding(),
        bindings::widgets(),
    ]
}

impl<'a> Options<'a> {
    /// Every guard stands.
    pub fn new(stepper: &'a dyn Stepper) -> Self {
        Options {
            stepper,
            guards: polity_core::controller::Guards::default(),
            absent_takes_a_look: true,
            bindings: &bindings,
            wild: None,
            shape: |_| {},
            trace: 0,
            record: false,
        }
    }
}
