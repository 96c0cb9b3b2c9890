//! Work whose size somebody else chooses: the server of a cloud, a driver, or the author of a Secret.
//!
//! # Flow
//!
//! a call on a thread of the runtime → a place of its tenant queue → a blocking thread → the result
//!
//! # Guarantees
//!
//! - A thread of the runtime does no more than [`AT_ONCE`] bytes of such work between two turns of other tasks. No deadline
//!   cuts what runs on these threads: a task that computes there stops all others.
//! - One tenant queue has at most one thread less than the machine has processors. So its work delays others by their share
//!   of a processor, and no more.
//! - A call that is cut keeps its place until its work has ended. Otherwise a tenant could start work and give it up, again and
//!   again, and have any number of threads.
//! - The processor time is charged to the call like the fuel of a policy ([`metered`]).
//!
//! # Caveats
//!
//! Work that has begun is not cut. So each caller limits the size of its work: [`Redactor`](crate::Redactor) is linear in
//! the text, a body is read within limits of nodes, and a request is put together within a limit of bytes.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use polity_core::contract::Answer;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;

use crate::priority;

/// Work on at most this many bytes is done at once. All of it is linear: in the build of the tests, which is fifty times slower
/// than the image's, so many bytes take less than 10 ms.
pub const AT_ONCE: usize = 8 << 10;

/// The nice value of a thread that computes for a tenant queue: it gets a tenth of the share of the event loop.
const NICE: i32 = 10;

/// The places in use, by runtime and tenant queue. An entry without work goes when the next tenant queue comes.
static PLACES: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);

type Places = HashMap<(Id, Box<str>), Weak<Semaphore>>;

tokio::task_local! {
    static SPENT: Cell<u64>;
}

/// Does work on about this many bytes for a tenant queue, on a thread that no task of the runtime waits for.
pub async fn offload<T: Send + 'static>(
    queue: &str,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= AT_ONCE {
        return work();
    }
    let measured = move || {
        let began = processor_time();
        let done = work();
        (done, processor_time().saturating_sub(began))
    };
    let (done, took) = compute(queue, measured).await;
    spend(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    done
}

/// Does work of any size for a tenant queue, on a thread that no task of the runtime waits for. The caller knows its costs.
pub async fn compute<T: Send + 'static>(queue: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    // Nothing closes the semaphore. Without a place the work would still be done.
    let place = places(queue).acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _place = place;
        priority::step_back(NICE);
        priority::leave_a_processor();
        work()
    });
    match done.await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is ending, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

fn places(queue: &str) -> Arc<Semaphore> {
    let key = (Handle::current().id(), Box::from(queue));
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = places.get(&key).and_then(Weak::upgrade) {
        return known;
    }
    places.retain(|_, known| known.strong_count() > 0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let new = Arc::new(Semaphore::new(processors.saturating_sub(1).max(1)));
    places.insert(key, Arc::downgrade(&new));
    new
}

/// The processor time of this thread so far.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Makes a call of a cloud. Returns its result, and the fuel that was spent on it: the fuel of drivers, and a unit for each
/// nanosecond of [`offload`], which is about the time of a unit in a driver.
pub async fn metered<F: Future>(call: F) -> (F::Output, u64) {
    SPENT
        .scope(Cell::new(0), async {
            let answer = call.await;
            (answer, SPENT.with(Cell::get))
        })
        .await
}

/// Adds fuel that was spent. Outside of [`metered`] it is charged to no tenant queue.
pub fn spend(fuel: u64) {
    let add = |spent: &Cell<u64>| spent.set(spent.get().saturating_add(fuel));
    let _ = SPENT.try_with(add);
}

/// About how many bytes a value has. Counts no further than [`AT_ONCE`], because then it is large.
pub fn weight(value: &Value) -> usize {
    fn add(value: &Value, sum: &mut usize) {
        /// A number, or the marks around a value.
        const PLAIN: usize = 8;
        *sum += PLAIN;
        if *sum > AT_ONCE {
            return;
        }
        match value {
            Value::String(text) => *sum += text.len(),
            Value::Array(elements) => elements
                .iter()
                .take(AT_ONCE)
                .for_each(|element| add(element, sum)),
            Value::Object(fields) => fields.iter().take(AT_ONCE).for_each(|(name, field)| {
                *sum += name.len();
                add(field, sum);
            }),
            _ => {}
        }
    }
    let mut sum = 0;
    add(value, &mut sum);
    sum
}

/// About how many bytes an answer has.
pub(crate) fn weight_of_answer(answer: &Answer) -> usize {
    match answer {
        Ok(value) => weight(value),
        Err(failure) => failure.message.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().expect("a runtime")
    }

    /// Computes until this thread had so much processor time, however many others want it.
    fn compute(time: Duration) {
        let began = processor_time();
        while processor_time() - began < time {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn small_work_needs_no_runtime_and_large_work_no_thread_of_it() {
        let here = std::thread::current().id();
        let thread = || std::thread::current().id();
        let small = futures::executor::block_on(offload("a", AT_ONCE, thread));
        assert_eq!(small, here);
        assert_ne!(runtime().block_on(offload("a", AT_ONCE + 1, thread)), here);
    }

    #[test]
    fn a_tenant_queue_leaves_a_processor_to_others_also_if_its_calls_are_cut() {
        static BUSY: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let runtime = runtime();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        runtime.block_on(async {
            let work = || {
                let busy = BUSY.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(busy, Ordering::SeqCst);
                compute(Duration::from_millis(5));
                BUSY.fetch_sub(1, Ordering::SeqCst);
            };
            for _ in 0..16 {
                let cut = offload("greedy", usize::MAX, work);
                let _ = tokio::time::timeout(Duration::from_millis(1), cut).await;
            }
            offload("greedy", usize::MAX, work).await;
        });
        let most = MOST.load(Ordering::SeqCst);
        assert!(most <= (processors - 1).max(1), "{most} of {processors}");
        runtime.block_on(offload("another", usize::MAX, || ()));
        assert!(PLACES.lock().unwrap().len() <= 4, "entries without work go");
    }

    #[test]
    fn each_call_pays_for_its_own_work() {
        runtime().block_on(async {
            let call = async |fuel| {
                spend(fuel);
                tokio::task::yield_now().await;
                spend(fuel);
            };
            let ((_, one), (_, other)) = tokio::join!(metered(call(2)), metered(call(30)));
            assert_eq!((one, other), (4, 60));
            let long = || compute(Duration::from_millis(20));
            let (_, paid) = metered(offload("a", usize::MAX, long)).await;
            assert!(paid > 1_000_000, "{paid}");
        });
    }

    #[test]
    fn a_value_is_weighed_no_further_than_it_matters() {
        assert!(weight(&serde_json::json!({"a": ["b", 1, null]})) < 100);
        for large in [
            serde_json::json!("x".repeat(AT_ONCE)),
            vec![0; AT_ONCE].into(),
            vec![vec![0; 100]; 100].into(),
        ] {
            assert!(weight(&large) > AT_ONCE);
        }
    }
}
