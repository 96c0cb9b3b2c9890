//! A harness for the controller of core: every call is answered at once, from a store, by native policies and by closures,
//! unless the test holds it back. Time passes only when the test says so.

use std::collections::BTreeMap;
use std::time::Duration;

use polity_core::call::{
    Call, CallId, CloudRequest, PendingEntry, Preparation, Reply, Scope, Site, WatchEvent, Write,
};
use polity_core::contract::{Answer, Code, Failure, Pass, Question, Resolution, Wait};
use polity_core::controller::{Controller, Input, Output};
use polity_core::fault::StepOutput;
use polity_core::key::{Key, ObjectKey};
use polity_core::object::Object;
use polity_core::record::PassRecord;
use polity_core::time::{Boot, Now, Unix};
use serde_json::{Value, json};

use super::store::{Place, Store};

/// A policy by name.
type Policy = Box<dyn Fn(&Pass) -> StepOutput>;

/// A controller, and everything that answers its calls.
pub struct CoreHarness {
    /// The controller.
    pub controller: Controller,
    /// Its clocks.
    pub now: Now,
    /// What stands in the API server.
    pub store: Store,
    /// Answers clouds.
    pub cloud: Box<dyn FnMut(&CloudRequest) -> Answer>,
    /// Says what came of creates in doubt.
    pub doubt: Box<dyn FnMut(&PendingEntry) -> Resolution>,
    /// Milliseconds that the retry policy decides on, by its digest.
    pub waits: BTreeMap<String, u64>,
    /// Which calls are kept back.
    pub hold: Box<dyn Fn(&Call) -> bool>,
    /// Calls kept back.
    pub held: Vec<(CallId, Call)>,
    /// Every pass that ended.
    pub records: Vec<PassRecord>,
    /// Keys that were forgotten.
    pub forgotten: Vec<Key>,
    /// Every cloud request that was performed.
    pub performed: Vec<CloudRequest>,
    /// Whether the lease can be renewed.
    pub leased: bool,
    /// Whether the controller has stopped.
    pub stopped: bool,
    /// Whether the watches say nothing of what others do.
    pub blind: bool,
    policies: BTreeMap<String, Policy>,
    shown: usize,
    watches: Vec<Scope>,
}

impl CoreHarness {
    /// A controller that has just taken the lease.
    pub fn new() -> Self {
        let mut harness = CoreHarness {
            controller: Controller::new("me"),
            now: Now {
                boot: Boot(1_000_000),
                unix: Unix(1_767_225_600_000),
            },
            store: Store::default(),
            cloud: Box::new(|request| {
                let message = format!("nobody answers {}", request.operation);
                Err(Failure::new(Code::Unimplemented, message))
            }),
            doubt: Box::new(|_| Resolution::unknown("nobody looked")),
            waits: BTreeMap::new(),
            hold: Box::new(|_| false),
            held: Vec::new(),
            stopped: false,
            records: Vec::new(),
            forgotten: Vec::new(),
            performed: Vec::new(),
            leased: true,
            blind: false,
            policies: BTreeMap::new(),
            shown: 0,
            watches: Vec::new(),
        };
        harness.feed(Input::Tick);
        harness
    }

    /// A policy by its name.
    pub fn policy(&mut self, name: &str, step: impl Fn(&Pass) -> StepOutput + 'static) {
        self.policies.insert(name.to_owned(), Box::new(step));
    }

    /// Creates an object.
    pub fn create(&mut self, value: Value) -> Object {
        let object = self.store.create("user", value).expect("it does not exist yet");
        self.show();
        object
    }

    /// Patches an object as somebody else.
    pub fn patch(&mut self, place: &Place, subresource: Option<&str>, patch: Value) {
        self.store
            .patch("user", place, subresource, None, &patch)
            .expect("it exists");
        self.show();
    }

    /// Deletes an object as somebody else.
    pub fn delete(&mut self, place: &Place) {
        self.store
            .delete("user", place, self.now.unix.0)
            .expect("it exists");
        self.show();
    }

    /// Lets so much time pass, a second at a time.
    pub fn sleep(&mut self, millis: u64) {
        let until = self.now.boot + Duration::from_millis(millis);
        while self.now.boot < until {
            let step = Duration::from_secs(1).min(until - self.now.boot);
            self.now = self.now + step;
            self.feed(Input::Tick);
        }
    }

    /// Answers a call that was held back: the only one of which this is true.
    pub fn release(&mut self, which: impl Fn(&Call) -> bool) {
        let index = self
            .held
            .iter()
            .position(|(_, call)| which(call))
            .expect("such a call is held back");
        let (call, what) = self.held.remove(index);
        if let Some(reply) = self.answer(&what) {
            self.feed(Input::Returned { call, reply });
        }
    }

    /// Feeds an input, and everything that follows from it at this moment.
    pub fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while !inputs.is_empty() {
            let mut next = Vec::new();
            for input in inputs {
                for output in self.controller.step(self.now, input) {
                    next.extend(self.output(output));
                }
            }
            next.extend(self.news());
            inputs = next;
        }
    }

    /// What is watched.
    pub fn watches(&self) -> &[Scope] {
        &self.watches
    }

    /// The records of an object, by name.
    pub fn records_of(&self, name: &str) -> Vec<&PassRecord> {
        self.records.iter().filter(|r| &*r.key.name == name).collect()
    }

    fn output(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Call { id, call, .. } if (self.hold)(&call) => {
                self.held.push((id, call));
                None
            }
            Output::Call { id, call, .. } => self
                .answer(&call)
                .map(|reply| Input::Returned { call: id, reply }),
            Output::Cancel(id) => {
                self.held.retain(|(held, _)| *held != id);
                None
            }
            Output::Watch(scope) => {
                self.watches.push(scope.clone());
                let objects = self
                    .store
                    .all()
                    .filter(|(place, _)| covers(&scope, place))
                    .map(|(_, object)| object.clone())
                    .collect();
                let version = self.store.version();
                let event = WatchEvent::Listed { objects, version };
                Some(Input::Watched { scope, event })
            }
            Output::Unwatch(scope) => {
                self.watches.retain(|watch| *watch != scope);
                None
            }
            Output::Event(_) => None,
            Output::Recorded(record) => {
                self.records.push(*record);
                None
            }
            Output::Forgotten(key) => {
                self.forgotten.push(key);
                None
            }
            Output::Stopped => {
                self.stopped = true;
                None
            }
        }
    }

    fn answer(&mut self, call: &Call) -> Option<Reply> {
        Some(match call {
            Call::Step {
                policy,
                input,
                limits,
                ..
            } => {
                let policy = self.policies.get(&*policy.0).expect("the test has this policy");
                Reply::Stepped(input.step(limits, policy))
            }
            Call::Draft(draft) => Reply::Drafted(Ok(draft.run())),
            Call::Decide { policy, .. } => Reply::Decided(Ok(Wait::After(self.waits[&*policy.0]))),
            Call::Cloud(request) => {
                self.performed.push(request.clone());
                Reply::Answer((self.cloud)(request))
            }
            Call::Prepare(_) => Reply::Prepared(Ok(Preparation {
                site: Site {
                    place: vec!["sim".into()],
                    principal: "host".into(),
                },
                ready: "{}".into(),
            })),
            Call::Commit(commit) => {
                self.performed.push(commit.request.clone());
                Reply::Answer((self.cloud)(&commit.request))
            }
            Call::Resolve { entry, .. } => Reply::Resolved((self.doubt)(entry)),
            Call::Credential { plan, .. } => {
                Reply::Answer(Ok(json!({"handle": format!("handle of {}", &**plan)})))
            }
            Call::Read(Question::Object(query)) => {
                let namespace = query.object.namespace.clone().unwrap_or_default();
                let place = (
                    query.object.kind.kind.clone(),
                    namespace,
                    query.object.name.clone(),
                );
                let missing = || Failure::new(Code::NotFound, "not found");
                let found = self.store.get(&place).map(|object| vec![object.clone()]);
                Reply::Objects(found.ok_or_else(missing))
            }
            Call::Write(Write::Patch {
                object,
                subresource,
                precondition,
                patch,
            }) => {
                let namespace = object.namespace.clone().unwrap_or_default();
                let place = (object.kind.kind.clone(), namespace, object.name.clone());
                let written =
                    self.store
                        .patch("me", &place, subresource.as_deref(), precondition.as_ref(), patch);
                Reply::Objects(written.map(|object| vec![object]))
            }
            Call::Write(_) => Reply::Objects(Ok(Vec::new())),
            Call::Lease(write) if self.leased => Reply::Lease(self.store.lease(write.as_ref())),
            Call::Lease(_) => Reply::Lease(Err(Failure::new(Code::Unavailable, "no lease"))),
            Call::Read(_) | Call::Mint(_) | Call::Revoke { .. } => return None,
        })
    }

    fn show(&mut self) {
        for input in self.news() {
            self.feed(input);
        }
    }

    /// What the watches have to say.
    fn news(&mut self) -> Vec<Input> {
        let mut news = Vec::new();
        if self.blind {
            return news;
        }
        for change in &self.store.log()[self.shown..] {
            for scope in self.watches.iter().filter(|scope| covers(scope, &change.place)) {
                let event = match change.after {
                    Some(_) => WatchEvent::Applied(change.shown.clone()),
                    None => WatchEvent::Deleted(change.shown.clone()),
                };
                news.push(Input::Watched {
                    scope: scope.clone(),
                    event,
                });
            }
        }
        self.shown = self.store.log().len();
        news
    }
}

impl Default for CoreHarness {
    fn default() -> Self {
        Self::new()
    }
}

fn covers(scope: &Scope, place: &Place) -> bool {
    scope.kind.kind == place.0 && scope.covers_place(&ObjectKey::new(Some(&place.1), &place.2))
}
