//! How wasmtime is set up: what guests may use of its features, and where their memory comes from.

use std::sync::Arc;

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::memory::Memories;
use crate::state::{INSTANCES, MEMORIES, TABLES};

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

impl Allocation {
    /// As the command line and recordings name it.
    pub fn name(self) -> &'static str {
        match self {
            Allocation::OnDemand => "on-demand",
            Allocation::Pooling => "pooling",
        }
    }
}

/// What both the machine code and the memory of guests depend on.
fn common_config(allocation: Allocation) -> Config {
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
    if allocation == Allocation::OnDemand {
        config
            .signals_based_traps(false)
            .memory_guard_size(0)
            .memory_reservation(0)
            .memory_reservation_for_growth(0)
            .memory_init_cow(false);
    }
    config
}

/// An engine that only compiles: it reserves no address space for guests.
pub(crate) fn compiling_config(allocation: Allocation) -> Config {
    common_config(allocation)
}

/// An engine that runs guests.
pub(crate) fn engine_config(allocation: Allocation) -> Config {
    let mut config = common_config(allocation);
    match allocation {
        Allocation::OnDemand => {
            config.with_host_memory(Arc::new(Memories));
        }
        Allocation::Pooling => {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        }
    }
    config
}

/// Room for every step that can run at once, whatever it makes of its limits: no step takes another's.
fn pool() -> PoolingAllocationConfig {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    // A step for each thread that calls policies, and for each that loads one.
    let steps = count(2 * threads + 8);
    let (instances, tables, memories) = (count(INSTANCES), count(TABLES), count(MEMORIES));
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(steps)
        .total_core_instances(steps * instances)
        .total_memories(steps * memories)
        .total_tables(steps * tables)
        .max_core_instances_per_component(instances)
        .max_memories_per_component(memories)
        .max_memories_per_module(memories)
        .max_tables_per_component(tables)
        .max_tables_per_module(tables)
        .linear_memory_keep_resident(512 << 10)
        .table_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// No machine has so many threads that this is cut.
fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(1 << 12)
}
