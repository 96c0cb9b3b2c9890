//! The sandbox: an engine, the way in which policies are compiled, and the compiled policies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use polity_core::binding::PolicyId;
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::compile::{self, Compiler, KeepsCode};
use crate::confined::Bounds;
use crate::driver::Driver;
use crate::error::LoadError;
use crate::hex::hex;
use crate::load;
use crate::policy::Policy;
use crate::settings::{Allocation, EPOCH, engine_config};

/// The settings of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// Where the memory of steps comes from.
    pub allocation: Allocation,
    /// Where policies are compiled.
    pub compiler: Compiler,
    /// The size of the largest policy that is accepted, in bytes.
    pub largest: usize,
    /// The longest time for compiling a policy. It is processor time if a process of its own compiles.
    pub compile_time: Duration,
    /// The most memory of a process that compiles a policy, in bytes.
    pub compile_memory: u64,
    /// The most machine code of one policy, in bytes.
    pub largest_code: u64,
    /// The most machine code that is kept, in bytes. Beyond it, the code that was unused for longest is
    /// dropped as soon as no binding runs it.
    pub kept_code: u64,
    /// Where machine code is kept for the next process, if a process of its own compiles.
    pub keeps: Option<Arc<dyn KeepsCode>>,
}

impl SandboxConfig {
    /// A sandbox whose policies are compiled there, with the default limits.
    pub fn new(compiler: Compiler) -> Self {
        SandboxConfig {
            allocation: Allocation::default(),
            compiler,
            // The shipped policies have some hundred KB.
            largest: 8 << 20,
            compile_time: Duration::from_secs(60),
            compile_memory: 1 << 30,
            largest_code: 64 << 20,
            kept_code: 128 << 20,
            keeps: None,
        }
    }
}

/// Loads policies and keeps them compiled, in memory, by their digest.
pub struct Sandbox {
    engine: Engine,
    config: SandboxConfig,
    compiled: Mutex<Compiled>,
    /// The drivers that are in use, by their digest.
    drivers: Mutex<BTreeMap<String, Weak<Driver>>>,
    ticking: Arc<AtomicBool>,
}

/// The compiled policies, by their digest.
#[derive(Default)]
struct Compiled {
    policies: BTreeMap<PolicyId, Known>,
    uses: u64,
}

/// A compiled policy. It is known as long as it is kept or in use.
struct Known {
    used: u64,
    policy: Weak<Policy>,
    /// `None` once the policy is no longer kept.
    kept: Option<Arc<Policy>>,
}

impl Sandbox {
    /// Sets up an engine and starts the thread that counts its epochs.
    pub fn new(config: SandboxConfig) -> Result<Self, LoadError> {
        let engine = Engine::new(&engine_config(config.allocation)).map_err(LoadError::engine)?;
        let ticking = Arc::new(AtomicBool::new(true));
        let (weak, on) = (engine.weak(), ticking.clone());
        std::thread::Builder::new()
            .name("epochs".into())
            .spawn(move || {
                while on.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(EPOCH));
                    match weak.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })
            .map_err(|e| LoadError::engine(e.into()))?;
        Ok(Sandbox {
            engine,
            config,
            compiled: Mutex::default(),
            drivers: Mutex::default(),
            ticking,
        })
    }

    /// Loads a core module or a component. A policy that is already known is not compiled again.
    pub fn load(&self, bytes: &[u8]) -> Result<Arc<Policy>, LoadError> {
        self.load_within(bytes, self.config.compile_time)
    }

    /// Loads a core module or a component that must compile within `time` and within the limit of this
    /// sandbox.
    pub fn load_within(&self, bytes: &[u8], time: Duration) -> Result<Arc<Policy>, LoadError> {
        self.check_size(bytes)?;
        let id = PolicyId(hex(&Sha256::digest(bytes)).into());
        if let Some(known) = self.known(&id) {
            return Ok(known);
        }
        let compiled = self.compile(bytes, time)?;
        let policy = Arc::new(load::load(&self.engine, id, &compiled)?);
        self.compiled().insert(&policy, self.config.kept_code);
        Ok(policy)
    }

    /// Loads the component of a driver. One that is in use is not compiled again: connections share it.
    pub fn load_driver(&self, bytes: &[u8]) -> Result<Arc<Driver>, LoadError> {
        self.load_driver_within(bytes, self.config.compile_time)
    }

    /// Loads the component of a driver that must compile within `time` and within the limit of this sandbox.
    pub fn load_driver_within(&self, bytes: &[u8], time: Duration) -> Result<Arc<Driver>, LoadError> {
        self.check_size(bytes)?;
        let digest = hex(&Sha256::digest(bytes));
        if let Some(driver) = self.known_driver(&digest) {
            return Ok(driver);
        }
        let compiled = self.compile(bytes, time)?;
        let driver = Arc::new(Driver::load(&self.engine, digest.as_str().into(), &compiled)?);
        let mut drivers = self.drivers();
        drivers.retain(|_, driver| driver.strong_count() > 0);
        drivers.insert(digest, Arc::downgrade(&driver));
        Ok(driver)
    }

    /// A driver with this digest that is in use.
    pub fn known_driver(&self, digest: &str) -> Option<Arc<Driver>> {
        self.drivers().get(digest).and_then(Weak::upgrade)
    }

    fn drivers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Weak<Driver>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_size(&self, bytes: &[u8]) -> Result<(), LoadError> {
        if bytes.len() > self.config.largest {
            Err(LoadError::TooLarge {
                size: bytes.len(),
                largest: self.config.largest,
            })
        } else {
            Ok(())
        }
    }

    fn compile(&self, bytes: &[u8], time: Duration) -> Result<compile::Compiled, LoadError> {
        let bounds = Bounds {
            processor: match self.config.compiler {
                // There the limit is real time, so the shorter one would fail on a busy machine.
                #[cfg(feature = "simulation")]
                Compiler::InProcess => self.config.compile_time,
                Compiler::Child(_) => time.min(self.config.compile_time),
            },
            memory: compile_memory(bytes.len()).min(self.config.compile_memory),
            answer: self.config.largest_code,
        };
        let (compiler, allocation) = (&self.config.compiler, self.config.allocation);
        compiler.compile(
            &self.engine,
            allocation,
            bytes,
            bounds,
            self.config.keeps.as_deref(),
        )
    }

    /// A policy that is already loaded.
    pub fn known(&self, id: &PolicyId) -> Option<Arc<Policy>> {
        self.compiled().get(id)
    }

    /// The version of the engine and its settings. A recording made with the same version replays to the same
    /// bytes.
    pub fn engine_version(&self) -> String {
        format!(
            "wasmtime {} {}",
            env!("WASMTIME_VERSION"),
            self.config.allocation.name()
        )
    }

    fn compiled(&self) -> std::sync::MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.ticking.store(false, Ordering::Relaxed);
    }
}

impl Compiled {
    fn get(&mut self, id: &PolicyId) -> Option<Arc<Policy>> {
        self.uses += 1;
        let known = self.policies.get_mut(id)?;
        known.used = self.uses;
        known.policy.upgrade()
    }

    fn insert(&mut self, policy: &Arc<Policy>, most: u64) {
        self.uses += 1;
        let known = Known {
            used: self.uses,
            policy: Arc::downgrade(policy),
            kept: Some(policy.clone()),
        };
        self.policies.insert(policy.id().clone(), known);
        while self.kept() > most && self.drop_oldest() {}
        // Forget the policies that nobody runs any more.
        self.policies.retain(|_, known| known.policy.strong_count() > 0);
    }

    /// The size of the machine code that is kept, in bytes.
    fn kept(&self) -> u64 {
        let kept = self.policies.values().filter_map(|known| known.kept.as_ref());
        kept.map(|policy| policy.code() as u64).sum()
    }

    fn drop_oldest(&mut self) -> bool {
        let kept = self.policies.values_mut().filter(|known| known.kept.is_some());
        let oldest = kept.min_by_key(|known| known.used);
        oldest.is_some_and(|known| known.kept.take().is_some())
    }
}

/// The address space for compiling a policy of this size: two to five times as much as the shipped policies
/// and drivers need.
fn compile_memory(size: usize) -> u64 {
    (384 << 20) + 128 * size as u64
}
