//! The event loop: what happens next, in an order drawn from the seed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polity_clouds::sim::Sim;
use polity_core::binding::Binding;
use polity_core::call::{Call, CallId, Reply, Scope, WatchEvent, Write};
use polity_core::catalogue::OperationEffect;
use polity_core::contract::{Answer, Code, Failure, Question};
use polity_core::machine::{Guards, Input, Output};
use polity_core::object::Object;
use polity_core::record::PassRecord;
use serde_json::{Value, json};

use super::host::Host;
use super::oracle::{Instant, Oracle, Rule, Verdict, ensure};
use super::scenario::{NAMESPACE, Rates, Scenario};
use super::seed::Chance;
use super::stepper::Stepper;
use super::store::{Place, Store, place};

/// Unix milliseconds at which every world begins: 2026-01-01.
const BEGIN: u64 = 1_767_225_600_000;
/// Milliseconds after the last fault within which everything must have settled: resyncs take 10 min, retries wait up to
/// 5 min, tasks that were slowed down take a few more.
const SETTLES_WITHIN: u64 = 45 * 60_000;
/// Milliseconds between looks at whether everything has settled.
const LOOK_EVERY: u64 = 500;

/// Something that happens at a time.
enum Happening {
    /// An input reaches a process.
    Deliver(usize, u32, Input),
    /// A watch says something, unless its connection broke since.
    Said(usize, u32, u64, Scope, WatchEvent),
    /// A watch lists.
    List(usize, u32, u64, Scope),
    /// A call reaches the API server or the cloud.
    Arrive(Box<Arrival>),
    /// The time that a machine asked to be woken at.
    Tick(usize, u32),
    /// A process starts.
    Start(usize),
    /// A process that stood still goes on.
    Resume(usize, u32),
    /// An action of the scenario, by its place.
    Act(usize),
    /// Faults stop.
    Quiet,
    /// Has everything settled?
    Look,
}

/// A call on its way.
struct Arrival {
    host: usize,
    life: u32,
    identity: String,
    id: CallId,
    call: Call,
    fate: Fate,
    longest: u64,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    LostRequest,
    LostAnswer,
    Refused,
}

/// What is simulated with what.
pub struct Options<'a> {
    /// Calls the policies.
    pub stepper: &'a dyn Stepper,
    /// The guards that stand.
    pub guards: Guards,
    /// Whether the cloud knows that it cannot tell while it cannot be reached.
    pub settle_needs_a_look: bool,
    /// The bindings, for a cloud with this catalogue.
    pub bindings: fn(&dyn Stepper, Arc<polity_core::catalogue::Catalogue>) -> Vec<Binding>,
    /// Makes scenarios out of those of the seeds, for tests that look for something.
    pub shape: fn(&mut Scenario),
    /// Lines of the trace that are kept.
    pub trace: usize,
    /// Whether recordings are kept.
    pub record: bool,
}

/// A simulated world.
pub struct World<'a> {
    options: &'a Options<'a>,
    now: u64,
    jumped: u64,
    store: Store,
    shown: usize,
    pub(super) sim: Sim,
    effects: usize,
    hosts: Vec<Host>,
    queue: BTreeMap<(u64, u64, u64), Happening>,
    sequence: u64,
    chance: Chance,
    scenario: Scenario,
    bindings: Vec<Binding>,
    oracle: Oracle,
    calm: bool,
    settled: bool,
    edits: u64,
    trace: VecDeque<String>,
    /// One record a line, as JSON, with the host before it.
    pub(super) recording: Vec<u8>,
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.options.trace > 0 {
            $world.note(format!($($text)*));
        }
    };
}

impl<'a> World<'a> {
    /// The world of a scenario.
    pub fn new(seed: u64, scenario: Scenario, options: &'a Options<'a>) -> Self {
        let mut sim = Sim::new(scenario.cloud.clone(), seed, BEGIN);
        if !options.settle_needs_a_look {
            sim.settle_without_a_look();
        }
        let bindings = (options.bindings)(options.stepper, sim.catalogue().clone());
        let mut world = World {
            options,
            now: 0,
            jumped: 0,
            store: Store::default(),
            shown: 0,
            sim,
            effects: 0,
            hosts: (0..scenario.hosts).map(|_| Host::new()).collect(),
            queue: BTreeMap::new(),
            sequence: 0,
            chance: Chance::new(seed, 2),
            bindings,
            oracle: Oracle::default(),
            calm: false,
            settled: false,
            edits: 0,
            trace: VecDeque::new(),
            recording: Vec::new(),
            scenario,
        };
        for (index, (at, _)) in world.scenario.actions.clone().into_iter().enumerate() {
            world.schedule(at, Happening::Act(index));
        }
        for host in 0..world.hosts.len() {
            let at = world.chance.between(0, 3_000);
            world.schedule(at, Happening::Start(host));
        }
        world.schedule(world.scenario.quiet_at, Happening::Quiet);
        world
    }

    /// Runs until everything has settled or a rule is broken.
    pub fn run(&mut self) -> Verdict {
        let deadline = self.scenario.quiet_at + SETTLES_WITHIN;
        let (mut at, mut turns) = (0, 0u32);
        while !self.settled {
            let Some(((now, _, _), happening)) = self.queue.pop_first() else {
                break;
            };
            turns = if now == at { turns + 1 } else { 0 };
            (at, self.now) = (now, now);
            ensure(turns < 10_000, Rule::Progress, || {
                format!("no end of what happens at {now} ms")
            })?;
            ensure(now < deadline, Rule::Settles, || {
                self.unsettled().unwrap_or_default()
            })?;
            self.happen(happening)?;
            self.observe()?;
        }
        Ok(())
    }

    /// Passes that ended.
    pub fn passes(&self) -> u64 {
        self.oracle.passes
    }

    /// Virtual milliseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The last lines of what happened.
    pub fn trace(&self) -> Vec<String> {
        self.trace.iter().cloned().collect()
    }

    fn note(&mut self, line: String) {
        if self.trace.len() == self.options.trace {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>9} {line}", self.now));
    }

    fn schedule(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        let tie = self.chance.draw();
        self.queue
            .insert((at.max(self.now), tie, self.sequence), happening);
    }

    fn unix(&self) -> u64 {
        BEGIN + self.now + self.jumped
    }

    fn happens(&mut self, rate: impl Fn(&Rates) -> u64) -> bool {
        let rate = rate(&self.scenario.rates);
        !self.calm && rate > 0 && self.chance.one_in(rate)
    }

    /// How long something takes on its way, at most `longest`.
    fn way(&mut self, longest: u64) -> u64 {
        match self.happens(|r| r.slow) {
            true => self.chance.between(1, longest),
            false => self.chance.between(1, 40),
        }
    }

    fn happen(&mut self, happening: Happening) -> Verdict {
        match happening {
            Happening::Deliver(host, life, input) => self.feed(host, life, input),
            Happening::Said(host, life, connection, scope, event) => {
                let open = self.hosts[host].watches.get(&scope);
                match self.hosts[host].life == life && open.is_some_and(|w| w.connection == connection) {
                    true => self.feed(host, life, Input::Watched { scope, event }),
                    false => Ok(()),
                }
            }
            Happening::List(host, life, connection, scope) => {
                self.list(host, life, connection, scope);
                Ok(())
            }
            Happening::Arrive(arrival) => self.arrive(*arrival),
            Happening::Tick(host, life) => match self.hosts[host].tick_at == self.now {
                true => {
                    self.hosts[host].tick_at = u64::MAX;
                    self.feed(host, life, Input::Tick)
                }
                false => Ok(()),
            },
            Happening::Start(host) => self.start(host),
            Happening::Resume(host, life) => self.resume(host, life),
            Happening::Act(index) => self.act(index),
            Happening::Quiet => self.quiet(),
            Happening::Look => {
                self.settled = self.unsettled().is_none();
                self.schedule(self.now + LOOK_EVERY, Happening::Look);
                Ok(())
            }
        }
    }

    fn start(&mut self, host: usize) -> Verdict {
        if self.hosts[host].machine.is_some() {
            return Ok(());
        }
        let boot = self.chance.between(0, 1_000_000);
        self.hosts[host].start(host, boot, self.options.guards);
        trace!(self, "{} starts", self.hosts[host].identity);
        let life = self.hosts[host].life;
        for binding in self.bindings.clone() {
            let at = self.now + self.chance.between(1, 500);
            let input = Input::Bound(Box::new(binding));
            self.schedule(at, Happening::Deliver(host, life, input));
        }
        self.feed(host, life, Input::Tick)
    }

    fn crash(&mut self, host: usize) {
        if self.hosts[host].machine.is_none() {
            return;
        }
        trace!(self, "{} is gone", self.hosts[host].identity);
        self.hosts[host].crash();
        let at = self.now + self.chance.between(100, 20_000);
        self.schedule(at, Happening::Start(host));
    }

    fn resume(&mut self, host: usize, life: u32) -> Verdict {
        if self.hosts[host].life != life || !self.hosts[host].paused {
            return Ok(());
        }
        trace!(self, "{} goes on", self.hosts[host].identity);
        self.hosts[host].paused = false;
        while let Some(input) = self.hosts[host].inbox.pop_front() {
            self.feed(host, life, input)?;
        }
        self.feed(host, life, Input::Tick)
    }

    fn quiet(&mut self) -> Verdict {
        trace!(self, "it is quiet from now on");
        self.calm = true;
        self.sim.stop_faults();
        for host in 0..self.hosts.len() {
            let life = self.hosts[host].life;
            self.resume(host, life)?;
        }
        self.schedule(self.now, Happening::Look);
        Ok(())
    }

    /// Feeds an input to a process, and does what it says.
    fn feed(&mut self, host: usize, life: u32, input: Input) -> Verdict {
        let unix = self.unix();
        let process = &mut self.hosts[host];
        if process.life != life {
            return Ok(());
        }
        if process.paused {
            process.inbox.push_back(input);
            return Ok(());
        }
        let clocks = process.clocks(self.now, unix);
        let Some(machine) = &mut process.machine else {
            return Ok(());
        };
        let identity = process.identity.clone();
        match &input {
            Input::Watched { event, .. } => shown(&mut self.oracle, self.now, &identity, event),
            Input::Returned { call, reply } => match process.calls.remove(call) {
                None => return Ok(()),
                Some(writes) => {
                    if let Some(object) = writes.then(|| written(reply)).flatten() {
                        self.oracle.acknowledges(self.now, &identity, &object);
                    }
                }
            },
            _ => {}
        }
        let outputs = machine.step(clocks, input);
        let crash = self.happens(|r| r.crash) && !outputs.is_empty();
        let until = match crash {
            true => self.chance.between(0, outputs.len() as u64) as usize,
            false => outputs.len(),
        };
        for output in outputs.into_iter().take(until) {
            self.output(host, &identity, output)?;
        }
        if crash {
            self.crash(host);
        }
        self.plan_tick(host);
        Ok(())
    }

    fn plan_tick(&mut self, host: usize) {
        let process = &self.hosts[host];
        let Some(machine) = &process.machine else { return };
        let at = machine
            .deadline()
            .saturating_sub(process.boot_offset)
            .max(self.now);
        if at < process.tick_at {
            let life = process.life;
            self.hosts[host].tick_at = at;
            self.schedule(at, Happening::Tick(host, life));
        }
    }

    fn output(&mut self, host: usize, identity: &str, output: Output) -> Verdict {
        match output {
            Output::Call { id, call } => self.call(host, identity, id, call),
            Output::Cancel(id) => {
                self.hosts[host].calls.remove(&id);
                Ok(())
            }
            Output::Watch(scope) => {
                let life = self.hosts[host].life;
                self.hosts[host].watches.entry(scope.clone()).or_default();
                let at = self.now + self.way(2_000);
                self.schedule(at, Happening::List(host, life, 0, scope));
                Ok(())
            }
            Output::Unwatch(scope) => {
                self.hosts[host].watches.remove(&scope);
                Ok(())
            }
            Output::Recorded(record) => self.recorded(host, identity, &record),
            Output::Stopped => {
                self.crash(host);
                Ok(())
            }
        }
    }

    fn recorded(&mut self, _: usize, identity: &str, record: &PassRecord) -> Verdict {
        trace!(
            self,
            "{identity} {}: {:?} because {:?}, attempt {}, notes {:?}, next {:?} in {:?}, wrote {:?}",
            record.key,
            record.outcome,
            record.causes,
            record.attempt,
            record.notes().collect::<Vec<_>>(),
            record.next,
            record.wait,
            record
                .writes
                .iter()
                .map(|w| (w.purpose, w.version))
                .collect::<Vec<_>>()
        );
        if self.options.record {
            self.recording.extend_from_slice(identity.as_bytes());
            self.recording.push(b' ');
            serde_json::to_writer(&mut self.recording, record).expect("records are JSON");
            self.recording.push(b'\n');
        }
        let instant = Instant {
            now: self.now,
            store: &self.store,
        };
        self.oracle.recorded(&instant, identity, record)
    }

    /// A call leaves a process.
    fn call(&mut self, host: usize, identity: &str, id: CallId, call: Call) -> Verdict {
        let life = self.hosts[host].life;
        self.hosts[host]
            .calls
            .insert(id, matches!(call, Call::Write(Write::Patch { .. })));
        let limits = polity_core::binding::Limits::default();
        let reply = match &call {
            Call::Step { policy, pass, .. } => {
                self.oracle.steps(identity, pass)?;
                Reply::Stepped(self.options.stepper.step(policy, pass, &limits))
            }
            Call::Decide { policy, trial } => {
                Reply::Decided(self.options.stepper.decide(policy, trial, &limits))
            }
            _ => return self.send(host, identity, id, call),
        };
        let at = self.now + self.chance.between(0, 5);
        self.schedule(
            at,
            Happening::Deliver(host, life, Input::Returned { call: id, reply }),
        );
        Ok(())
    }

    fn send(&mut self, host: usize, identity: &str, id: CallId, call: Call) -> Verdict {
        let mut longest = 5_000;
        if let Call::Cloud(request) = &call
            && let Some(operation) = self.sim.catalogue().operations.get(&request.operation)
        {
            longest = operation.longest;
            if operation.effect != OperationEffect::Read {
                let (owner, what) = (&request.session.owner, &request.operation);
                self.oracle.acts(identity, owner, what, &request.arguments)?;
            }
        }
        let fate = if self.happens(|r| r.lost_request) {
            Fate::LostRequest
        } else if self.happens(|r| r.lost_answer) {
            Fate::LostAnswer
        } else if self.happens(|r| r.refused) {
            Fate::Refused
        } else {
            Fate::Answered
        };
        // A call is cut at its longest duration: it does not arrive later.
        let at = self.now + self.way(longest - 1);
        let arrival = Arrival {
            host,
            life: self.hosts[host].life,
            identity: identity.to_owned(),
            id,
            call,
            fate,
            longest,
        };
        self.schedule(at, Happening::Arrive(Box::new(arrival)));
        Ok(())
    }

    /// A call reaches the other side, if it was not cut before: half of those whose sender is gone arrive all the same.
    fn arrive(&mut self, arrival: Arrival) -> Verdict {
        let Arrival {
            host,
            life,
            identity,
            id,
            call,
            fate,
            longest,
        } = arrival;
        let waited_for = self.hosts[host].life == life && self.hosts[host].calls.contains_key(&id);
        let cut = !waited_for && self.chance.one_in(500);
        if fate == Fate::LostRequest || cut {
            trace!(self, "{identity} {}: lost before it arrived", describe(&call));
            return Ok(());
        }
        if fate == Fate::Refused {
            let failure = Failure::new(Code::Unavailable, "refused");
            let reply = match call {
                Call::Lease(_) => Reply::Lease(Err(failure)),
                Call::Settle { .. } => Reply::Settled(polity_core::contract::Doubt::Unknown),
                _ => Reply::Answer(Err(failure)),
            };
            self.answer(host, life, id, reply, 1);
            return Ok(());
        }
        let holder = self.store.holder().to_owned();
        let (reply, after) = self.perform(&identity, &call)?;
        // Renewals, and looks at a lease that somebody holds, say nothing new.
        if !matches!(call, Call::Lease(_)) || holder != self.store.holder() {
            trace!(self, "{identity} {}: {}", describe(&call), told(&reply));
        }
        if let Some(reply) = reply.filter(|_| fate != Fate::LostAnswer) {
            let after = after + self.way(longest / 2);
            self.answer(host, life, id, reply, after);
        }
        Ok(())
    }

    fn answer(&mut self, host: usize, life: u32, id: CallId, reply: Reply, after: u64) {
        let input = Input::Returned { call: id, reply };
        self.schedule(self.now + after, Happening::Deliver(host, life, input));
    }

    /// Does what a call asks for: the reply, if there is one, and how long it takes.
    fn perform(&mut self, identity: &str, call: &Call) -> Result<(Option<Reply>, u64), super::Violation> {
        let unix = self.unix();
        let instant = Instant {
            now: self.now,
            store: &self.store,
        };
        Ok(match call {
            Call::Cloud(request) => {
                let operation = self.sim.catalogue().operations.get(&request.operation);
                if operation.is_some_and(|o| o.effect != OperationEffect::Read) {
                    self.oracle.changes(&instant, identity, || describe(call))?;
                }
                let reply = self.sim.perform(unix, request);
                (reply.answer.map(Reply::Answer), reply.after_ms)
            }
            Call::Settle { session, entry } => {
                (Some(Reply::Settled(self.sim.settle(unix, session, entry))), 20)
            }
            Call::Read(Question::Object(query)) => {
                let namespace = query.object.namespace.clone().unwrap_or_default();
                let at = (
                    query.object.kind.kind.clone(),
                    namespace,
                    query.object.name.clone(),
                );
                let found = self.store.get(&at).map(|object| object.value().clone());
                let missing = || Failure::new(Code::NotFound, format!("{at:?} not found"));
                (Some(Reply::Answer(found.ok_or_else(missing))), 0)
            }
            Call::Write(write) => {
                self.oracle.changes(&instant, identity, || describe(call))?;
                (Some(Reply::Answer(self.write(identity, write))), 0)
            }
            Call::Lease(write) => (Some(Reply::Lease(self.store.lease(write.as_ref()))), 0),
            other => {
                let message = format!("nothing here uses {}", describe(other));
                (
                    Some(Reply::Answer(Err(Failure::new(Code::Unimplemented, message)))),
                    0,
                )
            }
        })
    }

    fn write(&mut self, identity: &str, write: &Write) -> Answer {
        match write {
            Write::Patch {
                object,
                subresource,
                patch,
            } => {
                let at = (
                    object.kind.kind.clone(),
                    object.namespace.clone().unwrap_or_default(),
                    object.name.clone(),
                );
                let written = self.store.patch(identity, &at, subresource.as_deref(), patch)?;
                Ok(written.value().clone())
            }
            Write::Event { .. } => Ok(Value::Null),
            Write::Act(_) => Err(Failure::new(Code::Unimplemented, "no policy here does that")),
        }
    }

    /// A watch lists, and follows what happens from then on.
    fn list(&mut self, host: usize, life: u32, connection: u64, scope: Scope) {
        let lag = self.lag();
        let process = &mut self.hosts[host];
        let Some(watch) = process.watches.get_mut(&scope).filter(|_| process.life == life) else {
            return;
        };
        if watch.connection != connection {
            return;
        }
        let objects = self
            .store
            .all()
            .filter(|(at, _)| covers(&scope, at))
            .map(|(_, object)| object.clone())
            .collect();
        let version = self.store.version();
        watch.live = true;
        watch.said = (watch.said + 1).max(self.now + lag);
        let at = watch.said;
        let event = WatchEvent::Listed { objects, version };
        self.schedule(at, Happening::Said(host, life, connection, scope, event));
    }

    fn lag(&mut self) -> u64 {
        let most = if self.calm {
            20
        } else {
            self.scenario.rates.watch_lag
        };
        self.chance.between(0, most)
    }

    /// Shows what changed to whoever watches, and to the oracle.
    fn observe(&mut self) -> Verdict {
        while let Some(change) = self.store.log().get(self.shown).cloned() {
            self.shown += 1;
            let by_host = change.author.starts_with("host-");
            self.oracle
                .changed(self.now, &change, by_host, self.store.log())?;
            if change.after.is_none() {
                let unix = self.unix();
                let vms = self.sim.vms(unix);
                let instant = Instant {
                    now: self.now,
                    store: &self.store,
                };
                self.oracle.no_leak(&instant, &vms)?;
            }
            for host in 0..self.hosts.len() {
                let life = self.hosts[host].life;
                let scopes: Vec<Scope> = self.hosts[host]
                    .watches
                    .iter()
                    .filter(|(scope, watch)| watch.live && covers(scope, &change.place))
                    .map(|(scope, _)| scope.clone())
                    .collect();
                for scope in scopes {
                    let lag = self.lag();
                    let Some(watch) = self.hosts[host].watches.get_mut(&scope) else {
                        continue;
                    };
                    watch.said = (watch.said + 1).max(self.now + lag);
                    let (at, connection) = (watch.said, watch.connection);
                    let event = match change.after {
                        Some(_) => WatchEvent::Applied(change.shown.clone()),
                        None => WatchEvent::Deleted(change.shown.clone()),
                    };
                    self.schedule(at, Happening::Said(host, life, connection, scope, event));
                }
            }
        }
        if self.sim.effects().len() > self.effects {
            let unix = self.unix();
            let vms = self.sim.vms(unix);
            self.effects = self.sim.effects().len();
            let instant = Instant {
                now: self.now,
                store: &self.store,
            };
            self.oracle.effects(&instant, self.sim.effects(), &vms)?;
        }
        Ok(())
    }

    fn cut_watches(&mut self, host: usize) {
        let life = self.hosts[host].life;
        let scopes: Vec<Scope> = self.hosts[host].watches.keys().cloned().collect();
        for scope in scopes {
            let soon = self.chance.between(0, 3_000);
            let later = soon + self.chance.between(1, 8_000);
            let Some(watch) = self.hosts[host].watches.get_mut(&scope) else {
                continue;
            };
            watch.connection += 1;
            watch.live = false;
            let connection = watch.connection;
            let failed = WatchEvent::Failed("the connection broke".into());
            let said = Happening::Said(host, life, connection, scope.clone(), failed);
            self.schedule(self.now + soon, said);
            self.schedule(self.now + later, Happening::List(host, life, connection, scope));
        }
    }

    /// Does what the scenario says.
    fn act(&mut self, index: usize) -> Verdict {
        use super::scenario::Action;
        let (_, action) = self.scenario.actions[index].clone();
        trace!(self, "{action:?}");
        self.edits += 1;
        let nth = self.edits;
        match action {
            Action::Create(at) => {
                let _ = self.store.create("user", new_object(&at, nth));
            }
            Action::Delete(at) => {
                let unix = self.unix();
                let _ = self.store.delete("user", &at, unix);
            }
            Action::Edit(at) => {
                let patch = match at.0.as_str() {
                    "Machine" => json!({"spec": {"network": {"devices": [device(nth)]}}}),
                    "Widget" => {
                        json!({"spec": {"source": if nth.is_multiple_of(2) { "site" } else { "other" }}})
                    }
                    _ => json!({"data": {"value": format!("v{nth}")}}),
                };
                self.user(&at, None, patch);
            }
            Action::Label(at) => {
                let label = format!("l{nth}");
                self.user(&at, None, json!({"metadata": {"labels": {label: "x"}}}));
            }
            Action::Heartbeat(at, more) => {
                self.condition(&at, nth);
                if let Some(more) = more.checked_sub(1).filter(|more| *more > 0) {
                    let when = self.now + self.chance.between(1, 400);
                    self.scenario.actions.push((when, Action::Heartbeat(at, more)));
                    let index = self.scenario.actions.len() - 1;
                    self.schedule(when, Happening::Act(index));
                }
            }
            Action::Meddle(at) => {
                let status = match at.0.as_str() {
                    "Machine" if nth.is_multiple_of(2) => json!({"addresses": [format!("192.0.2.{nth}")]}),
                    "Machine" => json!({"phase": "Cloning"}),
                    _ => json!({"seen": format!("meddled {nth}")}),
                };
                self.user(&at, Some("status"), json!({"status": status}));
            }
            Action::Request(at) => {
                let nonce = json!({"request.polity.dev/look": nth.to_string()});
                self.user(&at, None, json!({"metadata": {"annotations": nonce}}));
            }
            Action::CutWatches(host) => self.cut_watches(host),
            Action::Crash(host) => self.crash(host),
            Action::Stop(host) => {
                let life = self.hosts[host].life;
                self.feed(host, life, Input::Stop)?;
            }
            Action::Pause(host, millis) => {
                self.hosts[host].paused = self.hosts[host].machine.is_some();
                let life = self.hosts[host].life;
                self.schedule(self.now + millis, Happening::Resume(host, life));
            }
            Action::FallBehind(host, millis) => self.hosts[host].behind += millis,
            Action::JumpAhead(millis) => self.jumped += millis,
        }
        Ok(())
    }

    fn user(&mut self, at: &Place, subresource: Option<&str>, patch: Value) {
        let _ = self.store.patch("user", at, subresource, &patch);
    }

    fn condition(&mut self, at: &Place, nth: u64) {
        let Some(object) = self.store.get(at) else { return };
        let mut all = object.value()["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.retain(|c| c["type"] != "Alive");
        let time = polity_core::time::rfc3339(self.unix());
        all.push(
            json!({"type": "Alive", "status": "True", "reason": format!("Beat{nth}"),
            "message": "", "lastTransitionTime": time}),
        );
        self.user(at, Some("status"), json!({"status": {"conditions": all}}));
    }

    /// Why not everything has settled; none if it has.
    fn unsettled(&mut self) -> Option<String> {
        let unix = self.unix();
        let vms = self.sim.vms(unix);
        for (at, object) in self.store.all() {
            let status = &object.value()["status"];
            let problem = match at.0.as_str() {
                _ if object.is_deleting() => Some("is still being deleted"),
                "Machine" => {
                    let of_it: Vec<_> = vms.iter().filter(|vm| vm.owner == object.uid()).collect();
                    let spec = &object.value()["spec"]["network"]["devices"][0]["nameservers"][0];
                    let told = |vm: &polity_clouds::sim::VmView| {
                        spec.as_str()
                            .is_none_or(|name| vm.metadata.as_deref().is_some_and(|m| m.contains(name)))
                    };
                    match of_it.as_slice() {
                        _ if status["pending"].is_array() => Some("has pending entries"),
                        _ if status["taskRef"].is_string() => Some("waits for a task"),
                        _ if status["phase"] != "Running" => Some("is not running"),
                        [vm] if vm.power == polity_clouds::sim::Power::On && !vm.ips.is_empty() => {
                            (!told(vm)).then_some("has metadata of an older spec")
                        }
                        _ => Some("has no VM that runs"),
                    }
                }
                "Widget" => {
                    let source = object.value()["spec"]["source"].as_str().unwrap_or_default();
                    let map = ("ConfigMap".to_owned(), NAMESPACE.to_owned(), source.to_owned());
                    let value = self.store.get(&map).map(|o| o.value()["data"]["value"].clone());
                    let seen = status["seen"] == value.unwrap_or_else(|| json!("nothing"));
                    let observed = status["observedGeneration"].as_u64() == object.generation();
                    (!seen || !observed).then_some("has not seen what it looks at")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return Some(format!("{at:?} {problem}: {}", object.value()));
            }
        }
        None
    }
}

fn shown(oracle: &mut Oracle, now: u64, host: &str, event: &WatchEvent) {
    match event {
        WatchEvent::Listed { objects, .. } => {
            oracle.lists(now, host);
            objects.iter().for_each(|o| oracle.shows(now, host, o));
        }
        WatchEvent::Applied(object) => oracle.shows(now, host, object),
        WatchEvent::Deleted(object) => oracle.shows(now, host, object),
        WatchEvent::Failed(_) => {}
    }
}

fn covers(scope: &Scope, at: &Place) -> bool {
    scope.kind.kind == at.0 && scope.covers_place(&(Some(at.1.clone()), at.2.clone()))
}

fn device(nth: u64) -> Value {
    json!({"networkName": "lan", "dhcp4": true, "nameservers": [format!("198.51.100.{nth}")]})
}

/// An object as a person would create it.
fn new_object(at: &Place, nth: u64) -> Value {
    let (api_version, content) = match at.0.as_str() {
        "Machine" => (
            super::bindings::MACHINES,
            json!({"spec": {"template": "ubuntu", "network": {"devices": [device(nth)]}}}),
        ),
        "Widget" => (super::bindings::WIDGETS, json!({"spec": {"source": "site"}})),
        _ => ("v1", json!({"data": {"value": format!("v{nth}")}})),
    };
    let mut value =
        json!({"apiVersion": api_version, "kind": at.0, "metadata": {"namespace": at.1, "name": at.2}});
    super::store::merge(&mut value, &content);
    debug_assert_eq!(place(&value), *at);
    value
}

fn describe(call: &Call) -> String {
    match call {
        Call::Cloud(request) => format!(
            "{} {} for {}",
            request.operation, request.arguments, request.session.owner
        ),
        Call::Settle { session, entry } => format!("settle {} of {}", entry.intent, session.owner),
        Call::Write(Write::Patch { object, patch, .. }) => format!("patch {}: {patch}", object.name),
        Call::Lease(Some(write)) => format!("lease of {:?} on {:?}", write.holder, write.version),
        Call::Lease(None) => "read the lease".to_owned(),
        Call::Read(Question::Object(query)) => format!("read {}", query.object.name),
        other => format!("{other:?}"),
    }
}

fn told(reply: &Option<Reply>) -> String {
    match reply {
        None => "no answer".to_owned(),
        Some(Reply::Answer(Ok(value))) if value["metadata"].is_object() => {
            format!("version {}", value["metadata"]["resourceVersion"])
        }
        Some(Reply::Answer(Ok(value))) => value.to_string(),
        Some(Reply::Answer(Err(failure))) => failure.to_string(),
        Some(Reply::Lease(Err(failure))) => failure.to_string(),
        Some(other) => format!("{other:?}"),
    }
}

/// What a write left, as its reply says.
fn written(reply: &Reply) -> Option<Object> {
    match reply {
        Reply::Answer(Ok(value)) if value["metadata"].is_object() => Some(Object::new(value.clone())),
        _ => None,
    }
}
