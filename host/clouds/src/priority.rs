//! Threads that compute give way to the event loop and to the threads that answer people.

use std::sync::LazyLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The nice value of a thread that computes for the host. The event loop gets about three times its share of a processor.
pub const WORK: i32 = 5;

/// Gives this thread a lower priority. It stays so: what else the thread is given later takes its time, too.
pub fn step_back(nice: i32) {
    // A system that does not allow it has no lower priorities.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
}

/// Keeps this thread off the first processor, if there are others. A thread that wakes where another one computes waits for the
/// next tick of the kernel (4 ms at 250 Hz), even if another processor is idle: so there is one on which nobody computes while
/// the others suffice. `neighbours` measures it (`tests/benches/README.md`). Processes that the thread starts keep off it, too.
pub fn leave_a_processor() {
    static OTHERS: LazyLock<Option<CpuSet>> = LazyLock::new(|| {
        let mut all = sched_getaffinity(None).ok()?;
        let first = (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor))?;
        all.unset(first);
        (all.count() > 0).then_some(all)
    });
    if let Some(others) = &*OTHERS {
        // A system that does not allow it runs the thread where it likes.
        let _ = sched_setaffinity(None, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_leaves_one_processor_and_keeps_all_others() {
        let all = sched_getaffinity(None).expect("Linux says it");
        let on = |set: &CpuSet| {
            (0..CpuSet::MAX_CPU)
                .filter(|n| set.is_set(*n))
                .collect::<Vec<_>>()
        };
        let computing = std::thread::spawn(|| {
            leave_a_processor();
            leave_a_processor();
            sched_getaffinity(None).expect("Linux says it")
        });
        let left = computing.join().expect("it ends");
        let others = if all.count() > 1 {
            on(&all)[1..].to_vec()
        } else {
            on(&all)
        };
        assert_eq!(on(&left), others);
        assert_eq!(
            sched_getaffinity(None).expect("Linux says it"),
            all,
            "no other thread"
        );
    }
}
