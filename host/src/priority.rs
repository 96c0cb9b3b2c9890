//! Priorities of threads: whoever computes gives way to the event loop and to the threads that answer people.

/// The nice value of a thread that computes. The event loop gets about three times its share of a processor.
pub(crate) const WORK: i32 = 5;

/// Gives this thread a lower priority.
pub(crate) fn step_back(nice: i32) {
    if let Err(e) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice) {
        tracing::debug!(%e, "cannot lower the priority of a thread");
    }
}
