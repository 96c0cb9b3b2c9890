//! Priorities of threads: whoever computes for long gives way to the event loop and to the threads that answer people.

/// The nice value of a thread whose work is short, or that others wait for some time. The event loop gets about three times
/// its share of a processor.
pub(crate) const SHORT: i32 = 5;
/// The nice value of a thread whose work may take long: a third of the share of the thread for short work.
pub(crate) const LONG: i32 = 10;

/// Gives this thread a lower priority.
pub(crate) fn step_back(nice: i32) {
    if let Err(e) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice) {
        tracing::debug!(%e, "cannot lower the priority of a thread");
    }
}
