//! Drivers: components that turn operations of a cloud into HTTP requests.

use std::sync::Arc;

use polity_core::fault::Fault;
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Engine, Store};

use crate::compile::Compiled;
use crate::error::{LoadError, cut};
use crate::load;
use crate::manifest;
use crate::policy::fault;
use crate::state::{HANDLES, State};
use crate::wit::driver;

pub use crate::wit::driver::polity::driver::types::{
    Call, Code, Effect, Entry, Exchange, Failure, Finding, HttpRequest, HttpResponse, Outcome, Part, Piece,
    Replacement, Sealed, Task, Transform,
};

/// The limits of one step of a driver.
#[derive(Clone, Debug)]
pub struct DriverLimits {
    /// The fuel of a step.
    pub fuel: u64,
    /// The memory of a step, in bytes.
    pub memory: u64,
    /// The longest time of a step, in epochs.
    pub epochs: u64,
    /// The most bytes that a step takes in and returns.
    pub exchanged: usize,
}

impl Default for DriverLimits {
    fn default() -> Self {
        DriverLimits {
            // The shipped drivers use some million.
            fuel: 500_000_000,
            memory: 128 << 20,
            epochs: 200,
            exchanged: 32 << 20,
        }
    }
}

/// A loaded driver: compiled, linked, and with its manifest read.
pub struct Driver {
    engine: Engine,
    pre: driver::DriverPre<State>,
    /// The bytes of instances without memories and tables.
    instances: u64,
    digest: Arc<str>,
    manifest: String,
}

/// What one step came to, and the fuel that it used.
pub struct DriverStep {
    /// The outcome, or why there is none.
    pub outcome: Result<Outcome, Fault>,
    /// The fuel that the step used.
    pub fuel: u64,
}

impl Driver {
    /// Links a compiled component and asks it for its manifest.
    pub(crate) fn load(engine: &Engine, digest: Arc<str>, compiled: &Compiled) -> Result<Self, LoadError> {
        for (name, _) in compiled.component.component_type().imports(engine) {
            if !name.starts_with("polity:driver/") {
                return Err(LoadError::Import(cut(name.to_owned())));
            }
        }
        let mut linker: Linker<State> = Linker::new(engine);
        let pre = driver::Driver::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
            .and_then(|()| linker.instantiate_pre(&compiled.component))
            .and_then(driver::DriverPre::new);
        let pre = pre.map_err(|e| LoadError::NotComponent(cut(format!("{e:#}"))))?;
        let instances = compiled.declared.instances;
        let limits = DriverLimits::default();
        let mut store = store(engine, &limits, instances);
        let described = pre
            .instantiate(&mut store)
            .and_then(|driver| driver.polity_driver_driver_info().call_describe(&mut store));
        let manifest =
            described.map_err(|e| LoadError::Describe(cut(fault(&e, store.data(), "").to_string())))?;
        let within = manifest::within_limits(manifest.as_bytes());
        within.map_err(|e| LoadError::Describe(cut(e.to_string())))?;
        Ok(Driver {
            engine: engine.clone(),
            pre,
            instances,
            digest,
            manifest,
        })
    }

    /// The SHA-256 of the bytes from which the driver was loaded, in hexadecimal.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    /// The manifest as the driver answered it: text within the limits of a manifest, which nobody has read yet.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The names of the interfaces whose functions the driver imports.
    pub fn imports(&self) -> Vec<String> {
        load::imports(&self.engine, self.pre.instance_pre().component())
    }

    /// Runs one step in a fresh instance.
    pub fn step(&self, call: &Call, limits: &DriverLimits) -> DriverStep {
        let mut store = store(&self.engine, limits, self.instances);
        let returned = self.pre.instantiate(&mut store).and_then(|driver| {
            let operations = driver.polity_driver_operations();
            operations.call_step(&mut store, call)
        });
        let fuel = limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0));
        DriverStep {
            outcome: returned.map_err(|e| fault(&e, store.data(), "")),
            fuel,
        }
    }
}

fn store(engine: &Engine, limits: &DriverLimits, instances: u64) -> Store<State> {
    let mut store = Store::new(engine, State::new(limits.memory, instances));
    store.limiter(|state| state);
    // Setting fuel fails only if the engine does not count it; this one does.
    let _ = store.set_fuel(limits.fuel);
    store.set_epoch_deadline(limits.epochs);
    store.set_max_component_handles(HANDLES);
    store.set_hostcall_fuel(limits.exchanged);
    store
}

impl driver::polity::driver::types::Host for State {}

impl driver::polity::driver::diagnostics::Host for State {
    fn panicked(&mut self, message: String, location: String) {
        crate::wit::lifecycle::polity::policy::diagnostics::Host::panicked(self, message, location);
    }
}
