//! The settings of wasmtime: which features guests may use, and where their memory comes from.

use std::sync::Arc;

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::memory::Memories;
use crate::state::{INSTANCES, MEMORIES, TABLES};

/// The real time between two epochs, in milliseconds. The limit of real time is exact to this.
pub(crate) const EPOCH: u64 = 10;
/// The stack of a guest in bytes. Rust code that decides needs little, and an endless recursion ends early.
const STACK: usize = 256 << 10;

/// Where the memory of a step comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Each thread keeps memory of its own and clears it after each step. Every access to memory has an explicit bounds
    /// check. This scales with the number of threads.
    #[default]
    OnDemand,
    /// A pool of reserved slots with guard pages.
    Pooling,
}

impl Allocation {
    /// The name on the command line and in recordings.
    pub fn name(self) -> &'static str {
        match self {
            Allocation::OnDemand => "on-demand",
            Allocation::Pooling => "pooling",
        }
    }
}

/// The settings on which both the machine code and the memory of guests depend.
fn common_config(allocation: Allocation) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // The contract has no async functions. Without support for them a call costs a third.
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .max_wasm_stack(STACK);
    if allocation == Allocation::OnDemand {
        // Other traps, such as a division by zero, are signals with both: explicit checks of them make a fifth more code.
        config
            .memory_guard_size(0)
            .memory_reservation(0)
            .memory_reservation_for_growth(0)
            .memory_init_cow(false);
    }
    config
}

/// The settings of an engine that only compiles. It reserves no address space for guests.
pub(crate) fn compiling_config(allocation: Allocation) -> Config {
    common_config(allocation)
}

/// The settings of an engine that runs guests.
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

/// Slots for every step that can run at the same time, each with all that its limits allow. So no step takes
/// the slot of another.
fn pool() -> PoolingAllocationConfig {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    // One step for each thread that calls policies, and one for each thread that loads a policy.
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

/// Converts to 32 bits. No machine has so many threads that the number does not fit.
fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(1 << 12)
}
