//! The engine: how guests are compiled and where their memory comes from, and the policies compiled so far.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_core::binding::PolicyId;
use sha2::{Digest, Sha256};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::load::{self, LoadError};
use crate::memory::Memories;
use crate::policy::Policy;

/// Real milliseconds between epochs: how exact the wall limit is.
pub(crate) const EPOCH: u64 = 10;
/// Bytes of stack a guest may use: Rust code that decides needs little, and recursion ends early.
const STACK: usize = 256 << 10;

/// Where a step's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// A thread's own, cleared after each step, with explicit bounds checks: scales with threads. Cranelift's mitigations against
    /// Spectre in heap accesses are off with it; a guest has no clock and no threads to measure with.
    #[default]
    OnDemand,
    /// From a pool of reserved slots with guard pages, and with the mitigations.
    Pooling,
}

/// How a sandbox is set up.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// Where memory comes from.
    pub allocation: Allocation,
    /// Bytes of the largest policy taken.
    pub largest: usize,
    /// How long compiling a policy may take.
    pub compile_time: Duration,
    /// Policies kept compiled; beyond that the one used longest ago is dropped.
    pub kept: usize,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        SandboxConfig {
            allocation: Allocation::default(),
            // The shipped policies have some hundred KB.
            largest: 8 << 20,
            compile_time: Duration::from_secs(60),
            kept: 64,
        }
    }
}

/// Loads policies and keeps them compiled, in memory, by digest.
pub struct Sandbox {
    engine: Engine,
    config: SandboxConfig,
    compiled: Mutex<Compiled>,
    ticking: Arc<AtomicBool>,
}

#[derive(Default)]
struct Compiled {
    policies: BTreeMap<PolicyId, (u64, Arc<Policy>)>,
    uses: u64,
}

impl Sandbox {
    /// Sets an engine up and starts the thread that counts its epochs.
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
            ticking,
        })
    }

    /// Loads a core module or a component. What was loaded before is not compiled again.
    pub fn load(&self, bytes: &[u8]) -> Result<Arc<Policy>, LoadError> {
        if bytes.len() > self.config.largest {
            return Err(LoadError::TooLarge {
                size: bytes.len(),
                largest: self.config.largest,
            });
        }
        let id = PolicyId(hex(&Sha256::digest(bytes)).into());
        if let Some(known) = self.compiled().get(&id) {
            return Ok(known);
        }
        let policy = Arc::new(load::load(
            &self.engine,
            id.clone(),
            bytes,
            self.config.compile_time,
        )?);
        self.compiled().insert(id, policy.clone(), self.config.kept);
        Ok(policy)
    }

    /// The engine and how it is set up: a recording of the same version replays to the same bytes.
    pub fn engine_version(&self) -> String {
        let allocation = match self.config.allocation {
            Allocation::OnDemand => "on-demand",
            Allocation::Pooling => "pooling",
        };
        format!("wasmtime {} {allocation}", env!("WASMTIME_VERSION"))
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
        let (used, policy) = self.policies.get_mut(id)?;
        *used = self.uses;
        Some(policy.clone())
    }

    fn insert(&mut self, id: PolicyId, policy: Arc<Policy>, kept: usize) {
        self.uses += 1;
        self.policies.insert(id, (self.uses, policy));
        while self.policies.len() > kept {
            let oldest = self
                .policies
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                self.policies.remove(&oldest);
            }
        }
    }
}

fn engine_config(allocation: Allocation) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // Calls of async functions are not part of the contract; without them a call costs a third.
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .max_wasm_stack(STACK);
    match allocation {
        Allocation::OnDemand => {
            config
                .signals_based_traps(false)
                .memory_guard_size(0)
                .memory_reservation(0)
                .memory_reservation_for_growth(0)
                .memory_init_cow(false)
                .with_host_memory(Arc::new(Memories));
        }
        Allocation::Pooling => {
            let mut pool = PoolingAllocationConfig::default();
            pool.total_component_instances(256)
                .total_core_instances(1_024)
                .total_memories(256)
                .total_tables(1_024)
                .linear_memory_keep_resident(512 << 10)
                .table_keep_resident(16 << 10)
                .pagemap_scan(Enabled::Auto);
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        }
    }
    config
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
