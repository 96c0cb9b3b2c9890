//! Threads that render answers, call policies, and check and draft what these conclude. Their queue is that of core: the tenant
//! queue that has spent least comes next, and none has all threads.
//!
//! All threads but one keep off the first processor, and that one works only while all others do. So what one tenant computes
//! delays neither the event loop nor the steps of others by ticks of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polity_clouds::priority;
use polity_core::binding::{Limits, PolicyId};
use polity_core::call::{CallId, Reply};
use polity_core::contract::{Code, Failure, RetryRequest};
use polity_core::controller::Input;
use polity_core::fair::{FairQueue, Quota};
use polity_core::fault::{Fault, FaultKind};
use polity_core::worker::{DraftInput, StepInput, StepProgress, StepReply, StepWork};
use polity_sandbox::Policy;
use tokio::sync::mpsc;

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
    /// Signals work to all threads but the last.
    come: Condvar,
    /// Signals work to the last thread.
    come_last: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: FairQueue<Job>,
    /// Where each stands; `None` while a thread has it.
    places: BTreeMap<CallId, Option<(Arc<str>, u64)>>,
    /// The threads that wait for work, without the last one.
    idle: usize,
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
    Step(Arc<Policy>, Limits, Box<StepWork>),
    Decide(Arc<Policy>, Limits, Box<RetryRequest>),
    Draft(Box<DraftInput>),
    #[cfg(test)]
    Nothing,
}

impl Workers {
    /// Starts the threads, which send the result of each call. With zero threads the caller does the work
    /// itself, at once. A simulation needs that: nothing may happen beside it.
    pub(crate) fn start(threads: usize, replies: &mpsc::Sender<Input>) -> Self {
        let queue = Arc::<Queue>::default();
        let places = Quota::new(threads as u64);
        for number in 0..threads {
            let (queue, replies) = (queue.clone(), replies.clone());
            let named = std::thread::Builder::new().name(format!("policy-{number}"));
            let started = named.spawn(move || {
                priority::step_back(priority::WORK);
                let is_last = number == 0;
                if !is_last {
                    priority::leave_a_processor();
                }
                while let Some(mut job) = queue.next(places, is_last) {
                    let (reply, cost) = job.part();
                    let Some(reply) = reply else {
                        queue.again(job, cost);
                        continue;
                    };
                    queue.end(&job.turn, cost);
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
        self.push(turn, Work::Step(policy, limits, StepWork::new(input).into()))
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
    pub(crate) fn draft(&self, turn: Turn, draft: Box<DraftInput>) -> Option<Input> {
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
        let mut job = Job { turn, work };
        if !self.inline {
            self.queue.push(job);
            return None;
        }
        loop {
            if let Some(reply) = job.part().0 {
                return Some(job.returned(reply));
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.jobs().closed = true;
        self.queue.come.notify_all();
        self.queue.come_last.notify_all();
    }
}

impl Queue {
    /// Charges a tenant queue with fuel that others than its policies have spent for it: its next steps come later.
    pub(crate) fn charge(&self, tenant_queue: &Arc<str>, fuel: u64) {
        self.jobs().waiting.charge(tenant_queue, fuel);
    }

    fn push(&self, job: Job) {
        let mut jobs = self.jobs();
        jobs.push(job);
        self.wake(&jobs);
    }

    /// Wakes a thread: the last one only if no other waits for work.
    fn wake(&self, jobs: &Jobs) {
        match jobs.idle {
            0 => self.come_last.notify_one(),
            _ => self.come.notify_one(),
        }
    }

    /// A thread has done a part of a job. The rest waits for its turn, unless nobody waits for it any more.
    fn again(&self, job: Job, cost: u64) {
        let mut jobs = self.jobs();
        jobs.waiting.end(&job.turn.tenant_queue, cost);
        if jobs.places.contains_key(&job.turn.id) {
            jobs.push(job);
        }
    }

    fn forget(&self, id: CallId) {
        let mut jobs = self.jobs();
        if let Some((tenant_queue, place)) = jobs.places.remove(&id).flatten() {
            jobs.waiting.remove(&tenant_queue, place);
        }
    }

    /// Waits for a job. The last thread gets one only while no other waits for work.
    fn next(&self, places: Quota, is_last: bool) -> Option<Job> {
        let come = if is_last { &self.come_last } else { &self.come };
        let mut jobs = self.jobs();
        while !jobs.closed {
            if is_last && jobs.idle > 0 {
                if jobs.waiting.has_next(places) {
                    self.wake(&jobs);
                }
            } else if let Some((_, _, job)) = jobs.waiting.next(places) {
                jobs.places.insert(job.turn.id, None);
                if jobs.waiting.has_next(places) {
                    self.wake(&jobs);
                }
                return Some(job);
            }
            jobs.idle += usize::from(!is_last);
            jobs = come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= usize::from(!is_last);
        }
        None
    }

    /// A thread has done a job. It takes the next one itself, so no other thread need look.
    fn end(&self, turn: &Turn, cost: u64) {
        let mut jobs = self.jobs();
        jobs.places.remove(&turn.id);
        jobs.waiting.end(&turn.tenant_queue, cost);
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    fn push(&mut self, job: Job) {
        let (id, tenant_queue) = (job.turn.id, job.turn.tenant_queue.clone());
        let place = self.waiting.push(&tenant_queue, job);
        self.places.insert(id, Some((tenant_queue, place)));
    }
}

impl Job {
    fn returned(&self, reply: Reply) -> Input {
        Input::Returned {
            call: self.turn.id,
            reply,
        }
    }

    /// Does the work, or a part of it. Returns the result, if all is done, and what it cost in fuel. A panic of the host inside a
    /// step is a bug of Polity and must not stop other objects.
    fn part(&mut self) -> (Option<Reply>, u64) {
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &mut self.work {
            Work::Step(policy, limits, work) => {
                let before = work.cost();
                let reply = match work.render(limits) {
                    StepProgress::More => return (None, work.cost() - before),
                    StepProgress::TooLarge(reply) => *reply,
                    StepProgress::Ready(pass) => work.end(policy.step(&pass, limits)),
                };
                let cost = reply.cost - before;
                (Some(Reply::Stepped(reply)), cost)
            }
            Work::Decide(policy, limits, request) => {
                let (decided, fuel) = policy.decide(request, limits);
                (Some(Reply::Decided(decided)), fuel)
            }
            Work::Draft(draft) => {
                let drafted = draft.run();
                let cost = drafted.cost;
                (Some(Reply::Drafted(Ok(drafted))), cost)
            }
            #[cfg(test)]
            Work::Nothing => (Some(Reply::Objects(Ok(Vec::new()))), 1),
        }));
        called.unwrap_or_else(|_| (Some(self.panicked()), 0))
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

    fn turn(id: u64, tenant_queue: &str) -> Turn {
        Turn {
            id: CallId(id),
            tenant_queue: tenant_queue.into(),
        }
    }

    fn job(id: u64, tenant_queue: &str) -> Job {
        Job {
            turn: turn(id, tenant_queue),
            work: Work::Nothing,
        }
    }

    #[test]
    fn the_rest_of_a_job_waits_for_its_turn_unless_it_is_forgotten() {
        let queue = Queue::default();
        let places = Quota::new(1);
        queue.push(job(1, "long"));
        let long = queue.next(places, false).expect("it waits");
        queue.push(job(2, "short"));
        queue.again(long, 1_000);
        let next = || queue.next(places, false).expect("one waits");
        assert_eq!(next().turn.id, CallId(2));
        queue.end(&turn(2, "short"), 1);
        let long = next();
        assert_eq!(long.turn.id, CallId(1));
        queue.forget(CallId(1));
        queue.again(long, 1_000);
        queue.push(job(3, "long"));
        assert_eq!(next().turn.id, CallId(3), "nobody waits for the rest");
    }

    #[test]
    fn no_tenant_queue_has_all_threads_and_whoever_spent_least_comes_next() {
        let queue = Queue::default();
        let places = Quota::new(3);
        for id in 1..=5 {
            queue.push(job(id, "many"));
        }
        let next = || queue.next(places, false).map(|job| job.turn.id.0);
        assert_eq!((next(), next()), (Some(1), Some(2)));
        queue.push(job(6, "few"));
        queue.push(job(7, "few"));
        assert_eq!(next(), Some(6), "the third thread is for others");
        queue.end(&turn(6, "few"), 10);
        queue.end(&turn(1, "many"), 1_000);
        assert_eq!(next(), Some(7));
        queue.end(&turn(7, "few"), 10);
        queue.charge(&"few".into(), 5_000);
        queue.push(job(8, "few"));
        assert_eq!(next(), Some(3), "a driver's work counts, too");
        queue.forget(CallId(4));
        queue.end(&turn(2, "many"), 0);
        assert_eq!(next(), Some(5), "the fourth is forgotten");
        queue.jobs().closed = true;
        assert_eq!(next(), None);
    }

    #[test]
    fn the_last_thread_leaves_work_to_those_that_wait_for_it() {
        let (queue, places) = (Queue::default(), Quota::new(4));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let first = queue.next(places, false).expect("a job");
                queue.push(job(2, "b"));
                first.turn.id.0
            });
            while queue.jobs().idle == 0 {
                std::thread::yield_now();
            }
            // Nobody is told of it.
            queue.jobs().push(job(1, "a"));
            let last = queue.next(places, true).expect("a job");
            assert_eq!((other.join().expect("it ends"), last.turn.id.0), (1, 2));
        });
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
