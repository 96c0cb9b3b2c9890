//! The only event loop: it turns outputs of core into futures, and their results into inputs.

use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use polity_clouds::Cloud;
use polity_cluster::{Cluster, MintLimits, Wanted};
use polity_core::binding::PolicyId;
use polity_core::call::{Call, CallId, Fence, Mint, Reply, Scope, WatchEvent, Write};
use polity_core::catalogue::SecretRef;
use polity_core::contract::{Code, Failure, Kind, Question, Resolution};
use polity_core::controller::lease::LeaseProblem;
use polity_core::controller::{CacheFigures, Controller, Health, Input, KeyView, Output};
use polity_core::key::{Key, PassId};
use polity_core::object::{Object, ResourceVersion};
use polity_core::time::{Boot, Now};
use polity_drivers::metered;
use polity_http::fence;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::bindings::{Bindings, Loaded, Message};
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::config::HostConfig;
use crate::events::Events;
use crate::observer::{Called, Observer, Target};
use crate::polls::Measured;
use crate::said::Said;
use crate::sim;
use crate::workers::{Turn, Workers};

/// The most inputs that the loop takes in at once, before it looks at everything else again. It bounds the
/// length of one round of the loop.
const BATCH: usize = 256;
/// The time between checks for changed statuses of bindings.
const STATUS_EVERY: Duration = Duration::from_secs(2);

/// The wait before a watch that ended is started again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The longest time that an Event may take to be written, and that a host which stops waits for the last ones.
const EVENT_LONGEST: Duration = Duration::from_secs(5);
/// The most inputs that wait for the loop. A sender that has more waits for room.
const INPUTS: usize = 1024;
/// The most messages about bindings, and the most questions, that wait for the loop.
const MESSAGES: usize = 64;

/// The state of a host.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Every key with its state.
    pub keys: Vec<(Key, KeyView)>,
    /// The kind that each binding governs.
    pub kinds: BTreeMap<String, Kind>,
    /// The health of each binding.
    pub health: BTreeMap<String, Health>,
    /// The bindings that could not be loaded, with the reason.
    pub unloaded: BTreeMap<String, String>,
    /// How many of these were refused: they are loaded again only after something has changed.
    pub refused: usize,
    /// The number of bindings that are still being loaded. It is one as long as the watch of bindings has not
    /// listed.
    pub loading: usize,
    /// The bindings whose objects are not all known yet.
    pub unsynced: Vec<String>,
    /// Whether this host holds the lease.
    pub holder: bool,
    /// The reason why this host cannot get or renew the lease, if there is one.
    pub lease: Option<LeaseProblem>,
    /// The number of passes in flight.
    pub passes: usize,
    /// The policies that are kept ready: those of the bindings, and those with which a pass in flight began.
    pub policies: Vec<PolicyId>,
    /// What the cache holds, and how its watches stand.
    pub cache: CacheFigures,
}

impl View {
    /// The time until the next look: at least `least`, and more the more objects there are, because a view of all of them
    /// takes time on the event loop.
    pub(crate) fn pause(&self, least: Duration, for_each: Duration) -> Duration {
        let objects = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        least.max(for_each.saturating_mul(objects))
    }
}

/// How a host is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Passes in flight are finished first.
    Finish,
    /// Passes in flight are cut.
    Cut,
}

/// Reaches a running engine.
#[derive(Clone)]
pub struct Handle {
    questions: mpsc::Sender<oneshot::Sender<View>>,
    stopping: Arc<watch::Sender<Option<Stop>>>,
}

impl Handle {
    /// The state of the host; `None` once it has stopped.
    pub async fn view(&self) -> Option<View> {
        let (answer, view) = oneshot::channel();
        self.questions.send(answer).await.ok()?;
        view.await.ok()
    }

    /// A handle to no host, whose questions the test answers.
    #[cfg(test)]
    pub(crate) fn answered_by_hand() -> (Self, mpsc::Receiver<oneshot::Sender<View>>) {
        let (questions, asked) = mpsc::channel(MESSAGES);
        let stopping = Arc::new(watch::channel(None).0);
        (Handle { questions, stopping }, asked)
    }

    /// Makes the host finish its passes in flight, give up its lease and stop.
    pub fn stop(&self) {
        self.stopping
            .send_if_modified(|stop| stop.replace(stop.unwrap_or(Stop::Finish)).is_none());
    }

    /// Makes the host cut its passes in flight, give up its lease and stop.
    pub fn cut(&self) {
        self.stopping.send_replace(Some(Stop::Cut));
    }
}

/// A call that may change something.
struct Change {
    id: CallId,
    /// The tenant queue that pays for it.
    tenant_queue: Arc<str>,
    fence: Fence,
}

/// The event loop, and the parts that it drives.
pub(crate) struct Engine {
    controller: Controller,
    clock: Arc<Clock>,
    cluster: Arc<Cluster>,
    clouds: Arc<Clouds>,
    bindings: Bindings,
    workers: Workers,
    observer: Box<dyn Observer>,
    events: Events,
    inputs: mpsc::Receiver<Input>,
    sender: mpsc::Sender<Input>,
    /// Results of calls that the engine made itself. They are taken in before the loop waits for anything
    /// else.
    own: VecDeque<Input>,
    messages: mpsc::Receiver<Message>,
    tells: mpsc::Sender<Message>,
    questions: mpsc::Receiver<oneshot::Sender<View>>,
    stopping: watch::Receiver<Option<Stop>>,
    calls: BTreeMap<CallId, AbortHandle>,
    /// What the calls in flight are of, which passes wait for them, and when they began.
    targets: BTreeMap<CallId, (Target, Option<PassId>, Now)>,
    watches: BTreeMap<Scope, AbortHandle>,
    next_status: Boot,
    /// The present problems of the lease and the watches.
    said: Said,
    /// Bindings of this host alone. They replace those of the cluster.
    local: Option<Vec<Object>>,
}

impl Engine {
    /// An engine of a host with this configuration, and its handle.
    pub(crate) fn new(config: HostConfig) -> (Self, Handle) {
        let (sender, inputs) = mpsc::channel(INPUTS);
        let (tells, messages) = mpsc::channel(MESSAGES);
        let (asks, questions) = mpsc::channel(MESSAGES);
        let (tell_stop, stopping) = watch::channel(None);
        let mut controller = Controller::new(config.identity);
        if config.alone {
            controller = controller.alone();
        }
        let engine = Engine {
            controller,
            bindings: Bindings::new(
                config.cluster.clone(),
                config.policies.clone(),
                config.clouds.clone(),
                tells.clone(),
                config.selection,
            ),
            workers: Workers::start(config.threads, &sender),
            clock: config.clock,
            cluster: config.cluster,
            clouds: config.clouds,
            observer: config.observer,
            events: Events::default(),
            inputs,
            sender,
            own: VecDeque::new(),
            messages,
            tells,
            questions,
            stopping,
            calls: BTreeMap::new(),
            targets: BTreeMap::new(),
            watches: BTreeMap::new(),
            next_status: Boot::default(),
            said: Said::default(),
            local: config.local,
        };
        let handle = Handle {
            questions: asks,
            stopping: Arc::new(tell_stop),
        };
        (engine, handle)
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn set_guards(&mut self, guards: polity_core::controller::Guards) {
        self.controller.set_guards(guards);
    }

    /// Runs until it is told to stop and no pass is in flight any more.
    pub(crate) async fn run(mut self) {
        self.watch_bindings();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let deadline = self.controller.deadline().min(self.next_status);
            tokio::select! {
                biased;
                Ok(()) = self.stopping.changed() => self.told_to_stop(&mut batch),
                Some(question) = self.questions.recv() => {
                    if self.catch_up() {
                        return;
                    }
                    let _ = question.send(self.view());
                }
                Some(message) = self.messages.recv() => self.on_message(message),
                () = ready(()), if !self.own.is_empty() => {
                    batch.extend(self.own.drain(..self.own.len().min(BATCH)));
                }
                _ = self.inputs.recv_many(&mut batch, BATCH) => {}
                () = self.clock.sleep_until(deadline) => batch.push(Input::Tick),
            }
            for input in batch.drain(..) {
                if self.take_in(input) {
                    return self.last_events().await;
                }
            }
            self.write_statuses();
            let trouble = self.controller.lease_problem().map(|trouble| trouble.to_string());
            self.tell("the lease", trouble.as_deref());
        }
    }

    /// Takes in all inputs that wait now, so that a caller who asks for the state sees the effect of what it
    /// did before. What is due now comes before the answer, too: who asks all the time must not keep the lease from being
    /// renewed. `true` once core has stopped.
    fn catch_up(&mut self) -> bool {
        for _ in 0..self.messages.len() {
            if let Ok(message) = self.messages.try_recv() {
                self.on_message(message);
            }
        }
        for _ in 0..self.inputs.len() {
            if self.inputs.try_recv().is_ok_and(|input| self.take_in(input)) {
                return true;
            }
        }
        while let Some(input) = self.own.pop_front() {
            if self.take_in(input) {
                return true;
            }
        }
        self.controller.deadline() <= self.clock.now().boot && self.take_in(Input::Tick)
    }

    fn told_to_stop(&mut self, batch: &mut Vec<Input>) {
        let told = *self.stopping.borrow_and_update();
        batch.push(Input::Stop);
        batch.extend((told == Some(Stop::Cut)).then_some(Input::Cut));
    }

    /// Reports a problem, or its end, if that is news.
    fn tell(&mut self, of: &str, wrong: Option<&str>) {
        if let Some(news) = self.said.news(of, wrong, self.clock.now().boot) {
            self.observer.report(&news);
        }
    }

    fn tell_watch(&mut self, scope: &Scope, event: &WatchEvent) {
        match event {
            WatchEvent::Failed(why) => self.tell(&watch_of(scope), Some(why)),
            WatchEvent::Listed { .. } => self.tell(&watch_of(scope), None),
            WatchEvent::Applied(_) | WatchEvent::Deleted(_) => {}
        }
    }

    /// Tells the observer of a call that ended.
    fn tell_call(&mut self, call: CallId, failure: Option<Code>) {
        if let Some((target, pass, began)) = self.targets.remove(&call) {
            let took = self.clock.now().boot - began.boot;
            self.observer.called(&Called {
                target,
                pass,
                began: began.unix,
                failure,
                took,
            });
        }
    }

    /// Takes in one input. `true` once core has stopped.
    fn take_in(&mut self, input: Input) -> bool {
        match &input {
            Input::Returned { call, reply } => {
                self.calls.remove(call);
                self.tell_call(*call, failure_of(reply));
            }
            Input::Watched { scope, event } => self.tell_watch(scope, event),
            _ => {}
        }
        self.step(input)
    }

    /// Takes in a message about bindings.
    fn on_message(&mut self, message: Message) {
        match message {
            Message::Watched(event) => {
                self.tell_watch(&crate::bindings::scope(), &event);
                for name in self.bindings.observe(event) {
                    self.observer.report(&format!("binding {name} is gone"));
                    self.said.forget(&status_of(&name));
                    self.step(Input::Unbound(name));
                    self.forget_policies();
                }
            }
            Message::Loaded(loaded) => self.loaded(*loaded),
            Message::FilesMayHaveChanged => self.bindings.reload_changed(),
            Message::StatusWritten { binding, result } => self.on_status_written(&binding, result),
            Message::EventWritten {
                tenant_queue,
                began,
                failure,
            } => {
                self.events.written(&tenant_queue);
                self.observer.called(&Called {
                    target: Target::Api("event"),
                    pass: None,
                    began: began.unix,
                    failure,
                    took: self.clock.now().boot - began.boot,
                });
                self.write_events();
            }
        }
    }

    /// Takes in the end of a write of a binding's status. One failure is no news: the binding may just be gone.
    fn on_status_written(&mut self, binding: &str, result: Result<(), Failure>) {
        let now = self.clock.now().boot;
        let of = status_of(binding);
        match self.bindings.status_written(binding, result.is_ok(), now) {
            None => self.said.forget(&of),
            Some(times) => {
                let wrong = result
                    .err()
                    .map(|failure| format!("it cannot be written: {failure}"));
                if times != 1 {
                    self.tell(&of, wrong.as_deref());
                }
            }
        }
    }

    fn loaded(&mut self, loaded: Loaded) {
        let name = loaded.name.clone();
        match self.bindings.loaded(loaded) {
            None => {}
            Some(Ok(ready)) => {
                for (policy, bytes) in &ready.policies {
                    self.workers.policy(policy.clone());
                    self.observer.policy_loaded(policy.id(), policy, bytes);
                }
                self.observer.bound(&ready.binding);
                self.step(Input::Bound(Box::new(ready.binding)));
                self.forget_policies();
            }
            Some(Err(problem)) => self
                .observer
                .report(&format!("binding {name} is not loaded: {problem}")),
        }
        self.next_status = Boot::default();
    }

    /// Forgets the policies that no binding names any more. A policy with which a pass in flight began is
    /// kept until bindings change the next time.
    fn forget_policies(&mut self) {
        for id in self.workers.keep(&self.controller.policies()) {
            self.observer.policy_forgotten(&id);
        }
    }

    fn step(&mut self, input: Input) -> bool {
        let outputs = self.controller.step(self.clock.now(), input);
        let mut stopped = false;
        for output in outputs {
            match output {
                Output::Call {
                    id,
                    call,
                    tenant_queue,
                    pass,
                    begin_by,
                } => {
                    let began = self.clock.now();
                    self.targets.insert(id, (target_of(&call), pass, began));
                    let turn = Turn {
                        id,
                        tenant_queue: tenant_queue.unwrap_or_default(),
                    };
                    self.call(turn, call, begin_by);
                }
                Output::Event(event) => {
                    self.events.push(event);
                    self.write_events();
                }
                Output::Cancel(id) => {
                    // A call that is cut has taken too long: a slow server must show in the counts.
                    self.tell_call(id, Some(Code::DeadlineExceeded));
                    match self.calls.remove(&id) {
                        Some(call) => call.abort(),
                        None => self.workers.forget(id),
                    }
                }
                Output::Watch(scope) => self.watch(scope),
                Output::Unwatch(scope) => {
                    if let Some(watch) = self.watches.remove(&scope) {
                        watch.abort();
                    }
                    self.said.forget(&watch_of(&scope));
                }
                Output::Recorded(record) => {
                    self.observer.passed(&record.into());
                }
                Output::Forgotten(key) => self.observer.forgotten(&key),
                Output::Stopped => stopped = true,
            }
        }
        stopped
    }

    /// Writes the Events that have their turn.
    fn write_events(&mut self) {
        while let Some(event) = self.events.next() {
            let (cluster, tells, clock) = (self.cluster.clone(), self.tells.clone(), self.clock.clone());
            let began = clock.now();
            let fence = Fence::new(event.begin_by, move || clock.now().boot);
            tokio::spawn(async move {
                let write = fence::within(fence, cluster.write(&event.write));
                let written = tokio::time::timeout(EVENT_LONGEST, write).await;
                let failure = match written {
                    Ok(Ok(_)) => None,
                    Ok(Err(failure)) => Some(failure.code),
                    Err(_) => Some(Code::DeadlineExceeded),
                };
                let tenant_queue = event.tenant_queue;
                // When the engine has ended, nobody counts it.
                let _ = tells
                    .send(Message::EventWritten {
                        tenant_queue,
                        began,
                        failure,
                    })
                    .await;
            });
        }
    }

    /// Waits for the Events of the last passes, for some time.
    async fn last_events(&mut self) {
        let written = async {
            while !self.events.is_idle() {
                if let Some(message) = self.messages.recv().await {
                    self.on_message(message);
                }
            }
        };
        // What is left then is lost.
        let _ = tokio::time::timeout(EVENT_LONGEST, written).await;
    }

    fn call(&mut self, turn: Turn, call: Call, begin_by: Boot) {
        let (id, tenant_queue) = (turn.id, turn.tenant_queue.clone());
        let clock = self.clock.clone();
        let change = Change {
            id,
            tenant_queue,
            fence: Fence::new(begin_by, move || clock.now().boot),
        };
        match call {
            Call::Step {
                policy,
                role: _,
                input,
                limits,
            } => {
                let done = self.workers.step(turn, &policy, input, limits);
                self.own.extend(done);
            }
            Call::Decide {
                policy,
                request,
                limits,
            } => {
                let done = self.workers.decide(turn, &policy, request, limits);
                self.own.extend(done);
            }
            Call::Draft(draft) => {
                let done = self.workers.draft(turn, draft);
                self.own.extend(done);
            }
            Call::Cloud(request) => {
                let name = request.session.cloud.clone();
                self.ask_cloud(change, &name, refused, |cloud| async move {
                    Reply::Answer(cloud.perform(request).await)
                });
            }
            Call::Prepare(request) => {
                let name = request.session.cloud.clone();
                let refused = |failure| Reply::Prepared(Err(failure));
                self.ask_cloud(change, &name, refused, |cloud| async move {
                    Reply::Prepared(cloud.prepare(request).await)
                });
            }
            Call::Commit(commit) => {
                let name = commit.request.session.cloud.clone();
                self.ask_cloud(change, &name, refused, |cloud| async move {
                    Reply::Answer(cloud.commit(commit).await)
                });
            }
            Call::Resolve { session, entry } => {
                let name = session.cloud.clone();
                let refused = |_| Reply::Resolved(Resolution::unknown("the binding has no cloud"));
                self.ask_cloud(change, &name, refused, |cloud| async move {
                    Reply::Resolved(cloud.resolve(&session, &entry).await)
                });
            }
            Call::Credential { cloud, owner, plan } => {
                self.ask_cloud(change, &cloud, refused, |cloud| async move {
                    Reply::Answer(cloud.credential(&plan, &owner).await)
                });
            }
            Call::Mint(token) => self.mint(change, token),
            Call::Revoke { token, owner } => self.revoke(change, token, owner),
            Call::Read(question) => self.read(id, question),
            Call::Write(write) => {
                let cluster = self.cluster.clone();
                self.change(
                    change,
                    async move { cluster.reply(cluster.write(&write).await).await },
                );
            }
            Call::Lease(write) => {
                let cluster = self.cluster.clone();
                self.spawn(
                    id,
                    async move { Reply::Lease(cluster.lease(write.as_ref()).await) },
                );
            }
        }
    }

    fn mint(&mut self, change: Change, token: Mint) {
        let (cluster, unix) = (self.cluster.clone(), self.clock.now().unix);
        let limits = MintLimits {
            count: token.count as usize,
            ..MintLimits::default()
        };
        self.change(change, async move {
            let wanted = Wanted {
                kind: &token.kind,
                groups: &token.groups,
                ttl: token.ttl,
                owner: &token.owner,
            };
            Reply::Answer(cluster.mint(wanted, unix, limits).await)
        });
    }

    /// Revokes a token, in the cluster and in the clouds.
    fn revoke(&mut self, change: Change, token: SecretRef, owner: String) {
        let (cluster, clouds) = (self.cluster.clone(), self.clouds.clone());
        let revoke = async move {
            if let Some(value) = cluster.revoke(&token.name, &owner).await? {
                sim::revoke(&clouds, &value).await?;
            }
            Ok(json!({}))
        };
        self.change(change, async move { Reply::Answer(revoke.await) });
    }

    fn read(&mut self, id: CallId, question: Question) {
        let simulated = match &question {
            Question::Reachable(_) => sim::reachable(&self.clouds),
            _ => None,
        };
        if let Some(answer) = simulated {
            return self.reply(id, Reply::Answer(answer));
        }
        let cluster = self.cluster.clone();
        // Objects are converted to text outside the event loop, because converting a large list takes long.
        self.spawn(id, async move {
            let answer = cluster.read(&question).await;
            match question {
                Question::Object(_) | Question::Objects(_) => cluster.reply(answer).await,
                _ => Reply::Answer(answer),
            }
        });
    }

    /// Calls the cloud of a binding, or answers that the cloud is not open.
    fn ask_cloud<F: Future<Output = Reply> + Send + 'static>(
        &mut self,
        change: Change,
        name: &str,
        refused: impl FnOnce(Failure) -> Reply,
        ask: impl FnOnce(Arc<dyn Cloud>) -> F,
    ) {
        match self.clouds.get(name) {
            Some(cloud) => {
                let call = Measured::new("a call of a cloud", ask(cloud));
                let (workers, tenant_queue) = (self.workers.queue(), change.tenant_queue.clone());
                self.change(change, async move {
                    let (reply, fuel) = metered(call).await;
                    workers.charge(&tenant_queue, fuel);
                    reply
                });
            }
            None => self.reply(change.id, refused(no_cloud(name))),
        }
    }

    /// Makes a call that may change something. Its requests that change are sent only while its fence is open.
    fn change(&mut self, change: Change, future: impl Future<Output = Reply> + Send + 'static) {
        self.spawn(change.id, fence::within(change.fence, future));
    }

    fn spawn(&mut self, id: CallId, future: impl Future<Output = Reply> + Send + 'static) {
        let sender = self.sender.clone();
        let task = tokio::spawn(async move {
            let reply = future.await;
            let _ = sender.send(Input::Returned { call: id, reply }).await;
        });
        self.calls.insert(id, task.abort_handle());
    }

    fn reply(&mut self, id: CallId, reply: Reply) {
        self.own.push_back(Input::Returned { call: id, reply });
    }

    fn watch(&mut self, scope: Scope) {
        let of = scope.clone();
        let input = move |event| {
            let scope = of.clone();
            Input::Watched { scope, event }
        };
        self.watch_into(scope, self.sender.clone(), input);
    }

    /// Watches a scope as long as the engine lives. A watch should have no end. If one ends all the same, for
    /// example by a panic, core is told `Failed` and the watch starts again. Otherwise nobody would notice
    /// that it is silent.
    fn watch_into<T: Send + 'static>(
        &mut self,
        scope: Scope,
        sender: mpsc::Sender<T>,
        said: impl Fn(WatchEvent) -> T + Send + Sync + 'static,
    ) {
        let cluster = self.cluster.clone();
        let watched = scope.clone();
        let task = tokio::spawn(async move {
            loop {
                let all = async {
                    let mut events = std::pin::pin!(cluster.watch(watched.clone()));
                    while let Some(event) = events.next().await {
                        if sender.send(said(event)).await.is_err() {
                            return;
                        }
                    }
                };
                let panicked = AssertUnwindSafe(all).catch_unwind().await.is_err();
                let why = if panicked {
                    "the watch failed; this is a bug of Polity"
                } else {
                    "the watch ended"
                };
                let failed = said(WatchEvent::Failed(why.into()));
                if sender.send(failed).await.is_err() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        self.watches.insert(scope, task.abort_handle());
    }

    fn watch_bindings(&mut self) {
        self.bindings.watch_files();
        match self.local.clone() {
            Some(objects) => {
                let version = ResourceVersion::default();
                self.on_message(Message::Watched(WatchEvent::Listed { objects, version }));
            }
            None => self.watch_into(crate::bindings::scope(), self.tells.clone(), Message::Watched),
        }
    }

    fn view(&self) -> View {
        View {
            keys: self
                .controller
                .keys()
                .map(|(key, view)| (key.clone(), view))
                .collect(),
            kinds: self
                .controller
                .bindings()
                .map(|binding| (binding.name.clone(), binding.spec.governs.kind()))
                .collect(),
            health: self
                .controller
                .bindings()
                .filter_map(|b| Some((b.name.clone(), self.controller.health(&b.name)?)))
                .collect(),
            unloaded: self.bindings.problems(),
            refused: self.bindings.refused(),
            loading: self.bindings.loading(),
            unsynced: self.controller.unsynced().map(str::to_owned).collect(),
            holder: self.controller.is_holder(),
            lease: self.controller.lease_problem(),
            passes: self.controller.passes_in_flight(),
            policies: self.workers.policies().cloned().collect(),
            cache: self.controller.cache_figures(),
        }
    }

    /// Writes the statuses of bindings that changed. Only the lease holder does this, so that two hosts do
    /// not overwrite each other's.
    fn write_statuses(&mut self) {
        let now = self.clock.now();
        if !self.controller.is_holder() {
            self.bindings.on_lease_lost();
        }
        if now.boot < self.next_status {
            return;
        }
        self.next_status = now.boot + STATUS_EVERY;
        if !self.controller.is_holder() || self.local.is_some() {
            return;
        }
        let (controller, events) = (&self.controller, &self.events);
        let health = |name: &str| {
            let events_dropped = events.dropped(name);
            let known = controller.health(name);
            known.map(|known| Health {
                events_dropped,
                ..known
            })
        };
        for (binding, write) in self.bindings.statuses(health, now) {
            let (cluster, tells) = (self.cluster.clone(), self.tells.clone());
            tokio::spawn(async move {
                let result = cluster.write(&write).await.map(|_| ());
                // When the engine has ended, nobody writes it again.
                let _ = tells.send(Message::StatusWritten { binding, result }).await;
            });
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for task in self.calls.values().chain(self.watches.values()) {
            task.abort();
        }
    }
}

/// What a call is of.
fn target_of(call: &Call) -> Target {
    let cloud = |operation: &str| Target::Cloud(operation.to_owned());
    match call {
        Call::Step { role, .. } => Target::Step(*role),
        Call::Decide { .. } => Target::Retry,
        Call::Draft(_) => Target::Draft,
        Call::Cloud(request) => cloud(&request.operation),
        // The looks before a create, which is counted by itself.
        Call::Prepare(_) => cloud("prepare"),
        Call::Commit(commit) => cloud(&commit.request.operation),
        Call::Resolve { .. } => cloud("resolve"),
        Call::Credential { .. } => cloud("credential"),
        Call::Mint(_) => Target::Api("mint"),
        Call::Revoke { .. } => Target::Api("revoke"),
        Call::Read(Question::Objects(_)) => Target::Api("list"),
        Call::Read(_) => Target::Api("get"),
        Call::Write(Write::Patch { .. }) => Target::Api("patch"),
        Call::Write(Write::Act(_)) => Target::Api("act"),
        // Nobody waits for an Event, so it is no call of core.
        Call::Write(Write::Event { .. }) => Target::Api("event"),
        Call::Lease(_) => Target::Api("lease"),
    }
}

fn failure_of(reply: &Reply) -> Option<Code> {
    match reply {
        Reply::Answer(Err(failure))
        | Reply::Objects(Err(failure))
        | Reply::Prepared(Err(failure))
        | Reply::Lease(Err(failure)) => Some(failure.code),
        _ => None,
    }
}

fn status_of(binding: &str) -> String {
    format!("the status of binding {binding}")
}

fn watch_of(scope: &Scope) -> String {
    format!("the watch of {scope}")
}

fn refused(failure: Failure) -> Reply {
    Reply::Answer(Err(failure))
}

fn no_cloud(name: &str) -> Failure {
    let message = match name {
        "" => "this binding names no cloud".to_owned(),
        name => format!("cloud {name:?} is not open"),
    };
    Failure::new(Code::Unimplemented, message)
}

#[cfg(test)]
mod tests {
    use polity_core::record::PassRecord;
    use polity_core::time::Unix;
    use polity_sandbox::{Allocation, Compiler, Confined, Policy, Sandbox, SandboxConfig};

    use super::*;
    use crate::policies::Policies;
    use crate::secrets::ClusterSecrets;
    use crate::selection::Selection;

    struct Unseen;

    impl Observer for Unseen {
        fn passed(&mut self, _: &Arc<PassRecord>) {}
        fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}
        fn report(&mut self, _: &str) {}
    }

    /// An engine without bindings, on the embedded API.
    fn engine() -> Engine {
        let clock = Arc::new(Clock::real());
        let api = crate::standalone::open(&clock, None, None).expect("the embedded API");
        let cluster = Cluster::new(kube::Client::new(api, "default"), ("polity-system", "polity"));
        let cluster = Arc::new(cluster);
        let secrets = Arc::new(ClusterSecrets::new(cluster.clone()));
        let sandbox = Sandbox::new(SandboxConfig {
            allocation: Allocation::OnDemand,
            ..SandboxConfig::new(Compiler::Child(Confined::program("/bin/false")))
        });
        let sandbox = Arc::new(sandbox.expect("a sandbox"));
        let config = HostConfig {
            identity: "host".to_owned(),
            clock: clock.clone(),
            cluster,
            clouds: Arc::new(Clouds::new(clock, secrets, None, 0, None)),
            policies: Arc::new(Policies::new(sandbox, ".".as_ref(), false, Box::new(|_| {}))),
            threads: 0,
            observer: Box::new(Unseen),
            local: None,
            alone: false,
            selection: Selection::default(),
            beside: None,
        };
        Engine::new(config).0
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_the_state_all_the_time_does_not_keep_the_lease_from_being_read() {
        let mut engine = engine();
        assert!(!engine.catch_up(), "it goes on");
        let is_lease = |(target, ..): &(Target, Option<PassId>, Now)| *target == Target::Api("lease");
        assert!(engine.targets.values().any(is_lease), "it was due at once");
    }

    /// The number of statuses that are to be written at this time.
    fn writes(engine: &mut Engine, at: u64) -> usize {
        let now = Now {
            boot: Boot(at),
            unix: Unix(at),
        };
        engine.bindings.statuses(|_| None, now).len()
    }

    #[tokio::test]
    async fn a_status_is_written_again_after_a_failure_and_after_the_lease_was_lost() {
        let mut engine = engine();
        let binding = json!({"apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding",
            "metadata": {"name": "a", "uid": "u"}, "spec": {}});
        let objects = vec![Object::new(binding)];
        let version = ResourceVersion::default();
        engine.on_message(Message::Watched(WatchEvent::Listed { objects, version }));
        let loaded = engine.messages.recv().await.expect("it is loaded");
        engine.on_message(loaded);

        assert_eq!(writes(&mut engine, 0), 1);
        assert_eq!(writes(&mut engine, 0), 0, "it is being written");
        assert_eq!(engine.bindings.status_written("a", false, Boot(0)), Some(1));
        assert_eq!(writes(&mut engine, 1_999), 0, "it waits");
        assert_eq!(writes(&mut engine, 2_000), 1, "the write failed");
        assert_eq!(engine.bindings.status_written("a", true, Boot(2_000)), Some(0));
        assert_eq!(writes(&mut engine, 4_000), 0, "it is written");
        engine.bindings.on_lease_lost();
        assert_eq!(
            writes(&mut engine, 6_000),
            1,
            "another holder may have written its own"
        );
    }
}
