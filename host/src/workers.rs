//! Threads that render answers, call policies, and check and draft what these conclude. Tenant queues take turns, and the work of
//! each is done in the order in which it arrives. So a tenant whose steps take longer than those before holds up its own
//! steps alone.
//!
//! One thread takes only short work, and the others have a lower priority. The machine's scheduler gives a
//! processor at once to a thread that wakes if the thread that computes there has a lower priority. Otherwise
//! a short step would wait for a time slice of a long one on the same processor, which is several times as
//! long as the short step itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polity_core::binding::{Limits, PolicyId};
use polity_core::call::{CallId, Reply};
use polity_core::contract::{Code, Failure, RetryRequest};
use polity_core::controller::Input;
use polity_core::fault::{Fault, FaultKind};
use polity_core::worker::{Draft, StepInput, StepReply};
use polity_sandbox::Policy;
use tokio::sync::mpsc;

use crate::priority;

/// The threads that call policies.
pub(crate) struct Workers {
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    queue: Arc<Queue>,
    /// Whether there are no threads, so that the caller does the work itself.
    inline: bool,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    /// Signals work for a thread that takes everything.
    any: Condvar,
    /// Signals work for the thread that takes only short work.
    short: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: Turns,
    /// Whether the thread for short work waits and has not been signalled since.
    is_idle: bool,
    closed: bool,
}

struct Job {
    turn: Turn,
    work: Work,
}

/// When a call has its turn.
pub(crate) struct Turn {
    pub(crate) id: CallId,
    pub(crate) tenant_queue: Arc<str>,
    /// Whether the call is expected to take long.
    pub(crate) is_long: bool,
}

/// The jobs that wait.
#[derive(Default)]
struct Turns {
    /// The tenant queues that have jobs, the next one first.
    queues: VecDeque<VecDeque<Job>>,
}

impl Turns {
    fn push(&mut self, job: Job) {
        let is_same = |queue: &&mut VecDeque<Job>| {
            queue
                .front()
                .is_some_and(|first| first.turn.tenant_queue == job.turn.tenant_queue)
        };
        match self.queues.iter_mut().find(is_same) {
            Some(queue) => queue.push_back(job),
            None => self.queues.push_back(VecDeque::from([job])),
        }
    }

    /// Removes and returns the next job that `fits`.
    fn pop(&mut self, fits: impl Fn(&Job) -> bool) -> Option<Job> {
        let place = |(at, queue): (usize, &VecDeque<Job>)| Some((at, queue.iter().position(&fits)?));
        let (at, first) = self.queues.iter().enumerate().find_map(place)?;
        let mut queue = self.queues.remove(at)?;
        let job = queue.remove(first);
        if !queue.is_empty() {
            self.queues.push_back(queue);
        }
        job
    }
}

/// The work that a thread takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Everything,
    WhatIsShort,
}

enum Work {
    Step(Arc<Policy>, Limits, Arc<StepInput>),
    Decide(Arc<Policy>, Limits, Box<RetryRequest>),
    Draft(Box<Draft>),
    #[cfg(test)]
    Nothing,
}

impl Workers {
    /// Starts the threads, which send the result of each call. With zero threads the caller does the work
    /// itself, at once. A simulation needs that: nothing may happen beside it.
    pub(crate) fn start(threads: usize, replies: &mpsc::Sender<Input>) -> Self {
        let queue = Arc::<Queue>::default();
        for number in 0..threads {
            let (queue, replies) = (queue.clone(), replies.clone());
            // With a lower priority than this, passes would be slower when all work is short, because a thread may wait
            // for a processor while it holds the lock of the queue (`neighbours` and `host` of `tests/benches`).
            let (takes, nice) = match number {
                0 if threads > 1 => (Takes::WhatIsShort, priority::SHORT),
                _ if threads > 1 => (Takes::Everything, priority::LONG),
                _ => (Takes::Everything, priority::SHORT),
            };
            let named = std::thread::Builder::new().name(format!("policy-{number}"));
            let started = named.spawn(move || {
                priority::step_back(nice);
                while let Some(job) = queue.next(takes) {
                    if replies.blocking_send(job.done()).is_err() {
                        return;
                    }
                }
            });
            if let Err(e) = started {
                tracing::error!(%e, "cannot start a thread for policies");
            }
        }
        Workers {
            policies: BTreeMap::new(),
            queue,
            inline: threads == 0,
        }
    }

    /// Adds a policy.
    pub(crate) fn policy(&mut self, policy: Arc<Policy>) {
        self.policies.insert(policy.id().clone(), policy);
    }

    /// Forgets the policies that are not in `used`, and returns them.
    pub(crate) fn keep(&mut self, used: &BTreeSet<&PolicyId>) -> Vec<PolicyId> {
        let gone: Vec<PolicyId> = self
            .policies
            .keys()
            .filter(|id| !used.contains(id))
            .cloned()
            .collect();
        gone.iter().for_each(|id| {
            self.policies.remove(id);
        });
        gone
    }

    /// The policies that can be called.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyId> {
        self.policies.keys()
    }

    /// Calls a policy. Returns the result if there are no threads.
    pub(crate) fn step(
        &self,
        turn: Turn,
        policy: &PolicyId,
        input: Arc<StepInput>,
        limits: Limits,
    ) -> Option<Input> {
        let policy = self.known(policy)?;
        self.push(turn, Work::Step(policy, limits, input))
    }

    /// Calls a retry policy. Returns the result if there are no threads.
    pub(crate) fn decide(
        &self,
        turn: Turn,
        policy: &PolicyId,
        request: RetryRequest,
        limits: Limits,
    ) -> Option<Input> {
        let policy = self.known(policy)?;
        self.push(turn, Work::Decide(policy, limits, Box::new(request)))
    }

    /// Drafts the writes of a publication. Returns the result if there are no threads.
    pub(crate) fn draft(&self, turn: Turn, draft: Box<Draft>) -> Option<Input> {
        self.push(turn, Work::Draft(draft))
    }

    /// The policy of this id. The policies of a binding are added here before core learns of the binding, so
    /// it is never missing.
    fn known(&self, policy: &PolicyId) -> Option<Arc<Policy>> {
        self.policies.get(policy).cloned()
    }

    fn push(&self, turn: Turn, work: Work) -> Option<Input> {
        let job = Job { turn, work };
        if self.inline {
            return Some(job.done());
        }
        self.queue.push(job);
        None
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.jobs().closed = true;
        self.queue.any.notify_all();
        self.queue.short.notify_all();
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut jobs = self.jobs();
        // A thread that was signalled and has not woken yet counts as busy, so the next work goes to the
        // others.
        let is_for_it = !job.turn.is_long && std::mem::take(&mut jobs.is_idle);
        jobs.waiting.push(job);
        match is_for_it {
            true => self.short.notify_one(),
            false => self.any.notify_one(),
        }
    }

    fn next(&self, takes: Takes) -> Option<Job> {
        let mut jobs = self.jobs();
        loop {
            if jobs.closed {
                return None;
            }
            let fits = |job: &Job| takes == Takes::Everything || !job.turn.is_long;
            if let Some(job) = jobs.waiting.pop(fits) {
                return Some(job);
            }
            let come = match takes {
                Takes::Everything => &self.any,
                Takes::WhatIsShort => {
                    jobs.is_idle = true;
                    &self.short
                }
            };
            jobs = come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Does the work and returns the result.
    fn done(&self) -> Input {
        Input::Returned {
            call: self.turn.id,
            reply: self.run(),
        }
    }

    /// Calls the policy and catches panics. A panic of the host inside a step is a bug of Polity and must not
    /// stop other objects.
    fn run(&self) -> Reply {
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &self.work {
            Work::Step(policy, limits, input) => {
                Reply::Stepped(input.step(limits, |pass| policy.step(pass, limits)))
            }
            Work::Decide(policy, limits, request) => Reply::Decided(policy.decide(request, limits).0),
            Work::Draft(draft) => Reply::Drafted(Ok(draft.run())),
            #[cfg(test)]
            Work::Nothing => Reply::Objects(Ok(Vec::new())),
        }));
        called.unwrap_or_else(|_| self.panicked())
    }

    fn panicked(&self) -> Reply {
        let fault = || Fault {
            kind: FaultKind::Trap,
            message: "the sandbox itself failed; this is a bug of Polity".into(),
            deterministic: false,
        };
        match self.work {
            Work::Step(..) => Reply::Stepped(StepReply::failed(fault())),
            Work::Decide(..) => Reply::Decided(Err(fault())),
            Work::Draft(_) => {
                let message = "the writes of the pass could not be drafted; this is a bug of Polity";
                Reply::Drafted(Err(Failure::new(Code::Internal, message)))
            }
            #[cfg(test)]
            Work::Nothing => Reply::Objects(Ok(Vec::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, tenant_queue: &str, is_long: bool) -> Job {
        Job {
            turn: Turn {
                id: CallId(id),
                tenant_queue: tenant_queue.into(),
                is_long,
            },
            work: Work::Nothing,
        }
    }

    #[test]
    fn the_thread_for_what_is_short_passes_over_what_is_long_and_the_others_pass_over_nothing() {
        let queue = Queue::default();
        for (id, is_long) in [(1, true), (2, true), (3, false), (4, false)] {
            queue.push(job(id, "q", is_long));
        }
        let next = |takes| queue.next(takes).map(|job| job.turn.id.0);
        assert_eq!(next(Takes::WhatIsShort), Some(3));
        assert_eq!(next(Takes::Everything), Some(1));
        assert_eq!(next(Takes::Everything), Some(2));
        assert_eq!(next(Takes::Everything), Some(4));
        queue.jobs().closed = true;
        assert_eq!(next(Takes::WhatIsShort), None);
    }

    #[test]
    fn tenant_queues_take_turns_whatever_waits_in_each() {
        let queue = Queue::default();
        let many = (1..=5).map(|id| job(id, "many", id == 2));
        for job in many.chain([job(6, "few", false), job(7, "few", false)]) {
            queue.push(job);
        }
        let ids = |takes, count: usize| -> Vec<u64> {
            let taken = (0..count).filter_map(|_| queue.next(takes));
            taken.map(|job| job.turn.id.0).collect()
        };
        assert_eq!(ids(Takes::WhatIsShort, 4), [1, 6, 3, 7]);
        assert_eq!(ids(Takes::Everything, 3), [2, 4, 5]);
    }

    #[test]
    fn everything_is_done_whoever_is_told_of_it() {
        for threads in 1..4 {
            let (replies, mut done) = mpsc::channel(256);
            let workers = Workers::start(threads, &replies);
            for id in 0..200 {
                workers
                    .queue
                    .push(job(id, ["a", "b"][id as usize % 2], id % 3 == 0));
            }
            let mut calls: Vec<u64> = (0..200)
                .map(|_| match done.blocking_recv() {
                    Some(Input::Returned { call, .. }) => call.0,
                    other => panic!("{other:?}"),
                })
                .collect();
            calls.sort_unstable();
            assert_eq!(calls, (0..200).collect::<Vec<_>>(), "{threads} threads");
        }
    }
}
