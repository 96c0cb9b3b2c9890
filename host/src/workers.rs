//! Threads that call policies and render long answers, fed in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use polity_core::binding::{Limits, PolicyId};
use polity_core::call::{CallId, Reply};
use polity_core::contract::{Code, Failure, Pass, RetryRequest};
use polity_core::controller::Input;
use polity_core::fault::{Fault, FaultKind, Stepped};
use polity_core::render::{Render, Rendered};
use polity_sandbox::Policy;
use tokio::sync::mpsc;

/// How far the threads for policies step back: the others get about three times their share of a processor.
const NICE: i32 = 5;

/// The threads that call policies.
pub(crate) struct Workers {
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    line: Arc<Line>,
    /// Whether the caller makes its calls itself.
    inline: bool,
}

struct Line {
    jobs: Mutex<Jobs>,
    come: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: std::collections::VecDeque<Job>,
    closed: bool,
}

struct Job {
    id: CallId,
    work: Work,
}

enum Work {
    Step(Arc<Policy>, Limits, Arc<Pass>),
    Decide(Arc<Policy>, Limits, Box<RetryRequest>),
    Render(Box<Render>),
}

impl Workers {
    /// Starts threads, which send what comes of each call. Without any thread the caller makes it itself, at once: in a
    /// simulation nothing happens beside it.
    pub(crate) fn start(threads: usize, replies: &mpsc::Sender<Input>) -> Self {
        let line = Arc::new(Line {
            jobs: Mutex::default(),
            come: Condvar::new(),
        });
        for number in 0..threads {
            let (line, replies) = (line.clone(), replies.clone());
            let named = std::thread::Builder::new().name(format!("policy-{number}"));
            let started = named.spawn(move || {
                step_back();
                while let Some(job) = line.next() {
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
            line,
            inline: threads == 0,
        }
    }

    /// Makes a policy known.
    pub(crate) fn policy(&mut self, policy: Arc<Policy>) {
        self.policies.insert(policy.id().clone(), policy);
    }

    /// Forgets the policies that nobody calls any more, and says which they were.
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

    /// The policies that are known.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyId> {
        self.policies.keys()
    }

    /// Has a policy called. What came of it, where nobody else calls it.
    pub(crate) fn step(
        &self,
        id: CallId,
        policy: &PolicyId,
        pass: Arc<Pass>,
        limits: Limits,
    ) -> Option<Input> {
        let policy = self.known(policy)?;
        self.push(id, Work::Step(policy, limits, pass))
    }

    /// The same of a retry policy.
    pub(crate) fn decide(
        &self,
        id: CallId,
        policy: &PolicyId,
        request: RetryRequest,
        limits: Limits,
    ) -> Option<Input> {
        let policy = self.known(policy)?;
        self.push(id, Work::Decide(policy, limits, Box::new(request)))
    }

    /// The same of a long list.
    pub(crate) fn render(&self, id: CallId, render: Box<Render>) -> Option<Input> {
        self.push(id, Work::Render(render))
    }

    /// A binding reaches the controller only after its policies were made known here.
    fn known(&self, policy: &PolicyId) -> Option<Arc<Policy>> {
        self.policies.get(policy).cloned()
    }

    fn push(&self, id: CallId, work: Work) -> Option<Input> {
        let job = Job { id, work };
        if self.inline {
            return Some(job.done());
        }
        let mut jobs = self.line.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.waiting.push_back(job);
        self.line.come.notify_one();
        None
    }
}

/// The event loop and what answers people come before policies, which may compute for as long as they are let.
fn step_back() {
    if let Err(e) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        tracing::debug!(%e, "a thread for policies does not step back");
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.line
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.line.come.notify_all();
    }
}

impl Line {
    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if jobs.closed {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            jobs = self.come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Job {
    /// Calls the policy; what came of it.
    fn done(&self) -> Input {
        Input::Returned {
            call: self.id,
            reply: self.run(),
        }
    }

    /// A panic of the host inside a step is a bug of ours; it must not take the other objects down with it.
    fn run(&self) -> Reply {
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &self.work {
            Work::Step(policy, limits, pass) => Reply::Stepped(policy.step(pass, limits)),
            Work::Decide(policy, limits, request) => Reply::Decided(policy.decide(request, limits).0),
            Work::Render(render) => Reply::Rendered(render.run()),
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
            Work::Step(..) => Reply::Stepped(Stepped {
                outcome: Err(fault()),
                fuel: 0,
            }),
            Work::Decide(..) => Reply::Decided(Err(fault())),
            Work::Render(_) => {
                let message = "the list could not be rendered; this is a bug of Polity";
                let answer = Err(Failure::new(Code::Internal, message));
                Reply::Rendered(Rendered { answer, count: 0 })
            }
        }
    }
}
