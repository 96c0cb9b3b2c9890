//! Threads that render answers, call policies, and check and draft what these conclude. Their queue is that of core: the tenant
//! queue that has spent least comes next, and none has all threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polity_core::binding::{Limits, PolicyId};
use polity_core::call::{CallId, Reply};
use polity_core::contract::{Code, Failure, RetryRequest};
use polity_core::controller::Input;
use polity_core::fair::{FairQueue, Places};
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

/// The jobs that wait for a thread.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    /// Signals work.
    come: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: FairQueue<Job>,
    /// Where each stands.
    places: BTreeMap<CallId, (Arc<str>, u64)>,
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
        let places = Places::new(threads as u64);
        for number in 0..threads {
            let (queue, replies) = (queue.clone(), replies.clone());
            let named = std::thread::Builder::new().name(format!("policy-{number}"));
            let started = named.spawn(move || {
                priority::step_back(priority::WORK);
                while let Some(job) = queue.next(places) {
                    let (reply, cost) = job.done();
                    queue.end(&job.turn.tenant_queue, cost);
                    if replies.blocking_send(job.returned(reply)).is_err() {
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

    /// Forgets a call that nobody waits for any more, if no thread has begun it.
    pub(crate) fn forget(&self, id: CallId) {
        self.queue.forget(id);
    }

    /// The queue, for those whose work the tenant queues pay, too.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    fn push(&self, turn: Turn, work: Work) -> Option<Input> {
        let job = Job { turn, work };
        if self.inline {
            return Some(job.returned(job.done().0));
        }
        self.queue.push(job);
        None
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.jobs().closed = true;
        self.queue.come.notify_all();
    }
}

impl Queue {
    /// Charges a tenant queue with fuel that others than its policies have spent for it: its next steps come later.
    pub(crate) fn charge(&self, tenant_queue: &Arc<str>, fuel: u64) {
        self.jobs().waiting.charge(tenant_queue, fuel);
    }

    fn push(&self, job: Job) {
        let mut jobs = self.jobs();
        let (id, tenant_queue) = (job.turn.id, job.turn.tenant_queue.clone());
        let place = jobs.waiting.push(&tenant_queue, job);
        jobs.places.insert(id, (tenant_queue, place));
        drop(jobs);
        self.come.notify_one();
    }

    fn forget(&self, id: CallId) {
        let mut jobs = self.jobs();
        if let Some((tenant_queue, place)) = jobs.places.remove(&id) {
            jobs.waiting.remove(&tenant_queue, place);
        }
    }

    fn next(&self, places: Places) -> Option<Job> {
        let mut jobs = self.jobs();
        loop {
            if jobs.closed {
                return None;
            }
            if let Some((_, _, job)) = jobs.waiting.next(places) {
                jobs.places.remove(&job.turn.id);
                return Some(job);
            }
            jobs = self.come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread has done a job. It takes the next one itself, so no other thread need look.
    fn end(&self, tenant_queue: &Arc<str>, cost: u64) {
        self.jobs().waiting.end(tenant_queue, cost);
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn returned(&self, reply: Reply) -> Input {
        Input::Returned {
            call: self.turn.id,
            reply,
        }
    }

    /// Does the work. Returns the result, and what it cost in fuel. A panic of the host inside a step is a bug of Polity and must
    /// not stop other objects.
    fn done(&self) -> (Reply, u64) {
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &self.work {
            Work::Step(policy, limits, input) => {
                let stepped = input.step(limits, |pass| policy.step(pass, limits));
                let cost = stepped.cost;
                (Reply::Stepped(stepped), cost)
            }
            Work::Decide(policy, limits, request) => {
                let (decided, fuel) = policy.decide(request, limits);
                (Reply::Decided(decided), fuel)
            }
            Work::Draft(draft) => {
                let drafted = draft.run();
                let cost = drafted.cost;
                (Reply::Drafted(Ok(drafted)), cost)
            }
            #[cfg(test)]
            Work::Nothing => (Reply::Objects(Ok(Vec::new())), 1),
        }));
        called.unwrap_or_else(|_| (self.panicked(), 0))
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

    fn job(id: u64, tenant_queue: &str) -> Job {
        Job {
            turn: Turn {
                id: CallId(id),
                tenant_queue: tenant_queue.into(),
            },
            work: Work::Nothing,
        }
    }

    #[test]
    fn no_tenant_queue_has_all_threads_and_whoever_spent_least_comes_next() {
        let queue = Queue::default();
        let places = Places::new(3);
        for id in 1..=5 {
            queue.push(job(id, "many"));
        }
        let next = || queue.next(places).map(|job| job.turn.id.0);
        assert_eq!((next(), next()), (Some(1), Some(2)));
        queue.push(job(6, "few"));
        queue.push(job(7, "few"));
        assert_eq!(next(), Some(6), "the third thread is for others");
        queue.end(&"few".into(), 10);
        queue.end(&"many".into(), 1_000);
        assert_eq!(next(), Some(7));
        queue.end(&"few".into(), 10);
        queue.charge(&"few".into(), 5_000);
        queue.push(job(8, "few"));
        assert_eq!(next(), Some(3), "a driver's work counts, too");
        queue.forget(CallId(4));
        queue.end(&"many".into(), 0);
        assert_eq!(next(), Some(5), "the fourth is forgotten");
        queue.jobs().closed = true;
        assert_eq!(next(), None);
    }

    #[test]
    fn everything_is_done_whoever_is_told_of_it() {
        for threads in 1..4 {
            let (replies, mut done) = mpsc::channel(256);
            let workers = Workers::start(threads, &replies);
            for id in 0..200 {
                workers.queue.push(job(id, ["a", "b"][id as usize % 2]));
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
