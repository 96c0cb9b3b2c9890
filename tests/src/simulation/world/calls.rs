//! Calls: on their way, at the API server or the cloud, and back.

use polity_core::call::{Call, CallId, CloudRequest, Reply, Session, Write};
use polity_core::catalogue::OperationEffect;
use polity_core::contract::{Act, Answer, Code, Failure, ObjectRef, Question, Resolution};
use polity_core::controller::Input;
use polity_core::controller::lease::{CALL_LONGEST, DURATION};
use polity_core::object::Object;
use polity_core::time::{Boot, millis};
use serde_json::{Value, json};

use super::{Event, World};
use crate::simulation::host::Sort;
use crate::simulation::oracle::{Instant, Verdict, Violation};
use crate::simulation::store::selects;

/// A call on its way.
pub(super) struct Arrival {
    host: usize,
    life: u32,
    identity: String,
    id: CallId,
    call: Call,
    fate: Fate,
    longest: u64,
    begin_by: Boot,
    /// How long it still stands still before it leaves.
    held: u64,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    LostRequest,
    LostAnswer,
    Refused,
}

impl World<'_> {
    /// A call leaves a process.
    pub(super) fn call(
        &mut self,
        host: usize,
        identity: &str,
        (id, begin_by): (CallId, Boot),
        call: Call,
    ) -> Verdict {
        let life = self.hosts[host].life;
        self.hosts[host].calls.insert(id, Sort::of(&call));
        self.oracle.fills(self.hosts[host].overfills(), identity)?;
        let limits = polity_core::binding::Limits::default();
        let reply = match &call {
            Call::Step { policy, input, .. } => {
                let relist = self.scenario.views.relist;
                if relist > 0 && self.happens(|_| relist) {
                    self.relist(host);
                }
                let (oracle, now) = (&mut self.oracle, self.now);
                let mut seen = Ok(());
                let reply = input.step(&limits, |pass| {
                    seen = oracle.steps(now, identity, pass);
                    self.options.stepper.step(policy, pass, &limits)
                });
                seen?;
                Reply::Stepped(reply)
            }
            Call::Draft(draft) => Reply::Drafted(Ok(draft.run())),
            Call::Decide { policy, request, .. } => {
                Reply::Decided(self.options.stepper.decide(policy, request, &limits))
            }
            _ => return self.send(host, identity, (id, begin_by), call),
        };
        let at = self.now + self.chance.between(0, 5);
        self.schedule(
            at,
            Event::Deliver(host, life, Input::Returned { call: id, reply }),
        );
        Ok(())
    }

    fn send(&mut self, host: usize, identity: &str, (id, begin_by): (CallId, Boot), call: Call) -> Verdict {
        let mut longest = match &call {
            Call::Lease(_) => millis(CALL_LONGEST),
            _ => 5_000,
        };
        let request = match &call {
            Call::Cloud(request) | Call::Prepare(request) => Some(request),
            Call::Commit(commit) => Some(&commit.request),
            _ => None,
        };
        if let Some(request) = request
            && let Some(operation) = self.sim.catalogue().operations.get(&request.operation)
        {
            longest = millis(operation.longest);
            let reads = operation.effect == OperationEffect::Read || matches!(call, Call::Prepare(_));
            if !reads {
                let (owner, what) = (&request.session.owner, &request.operation);
                self.oracle.acts(identity, owner, what, &request.arguments)?;
            }
            if self.is_guest(&request.session) {
                self.oracle.calls_as(identity, &request.session)?;
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
        let held = if self.changes(&call) && self.happens(|r| r.held) {
            self.chance.between(1, 2 * millis(DURATION))
        } else {
            0
        };
        // A call is cut at its longest duration: it does not arrive later, but for one that stood still.
        let at = self.now + if held > 0 { held } else { self.way(longest - 1) };
        let arrival = Arrival {
            host,
            life: self.hosts[host].life,
            identity: identity.to_owned(),
            id,
            call,
            fate,
            longest,
            begin_by,
            held,
        };
        self.schedule(at, Event::Arrive(Box::new(arrival)));
        Ok(())
    }

    /// Whether a call changes something outside.
    fn changes(&self, call: &Call) -> bool {
        match call {
            Call::Cloud(request) => {
                let operation = self.sim.catalogue().operations.get(&request.operation);
                operation.is_some_and(|operation| operation.effect != OperationEffect::Read)
            }
            Call::Commit(_) | Call::Write(_) | Call::Mint(_) | Call::Revoke { .. } => true,
            _ => false,
        }
    }

    /// A call that stood still leaves, unless it is too late.
    fn leave(&mut self, arrival: Arrival, held: u64) -> Verdict {
        let process = &self.hosts[arrival.host];
        if process.life != arrival.life {
            // It ended before it sent anything.
            return Ok(());
        }
        if process.clocks(self.now, self.unix()).boot >= arrival.begin_by {
            self.oracle.holds_back();
            trace!(
                self,
                "{} {}: held back",
                arrival.identity,
                describe(&arrival.call)
            );
            let failure = Failure::new(Code::Aborted, "it came too late");
            let reply = match arrival.call {
                Call::Write(_) => Reply::Objects(Err(failure)),
                _ => Reply::Answer(Err(failure)),
            };
            self.answer(arrival.host, arrival.life, arrival.id, reply, 1);
            return Ok(());
        }
        // It is cut as if it had not stood still.
        let left = arrival.longest.saturating_sub(held).max(2);
        let at = self.now + self.way(left - 1).min(left - 1);
        self.schedule(at, Event::Arrive(Box::new(arrival)));
        Ok(())
    }

    /// A call reaches the other side, if it was not cut before: half of those whose sender is gone arrive all the same.
    pub(super) fn arrive(&mut self, mut arrival: Arrival) -> Verdict {
        let held = std::mem::take(&mut arrival.held);
        if held > 0 {
            return self.leave(arrival, held);
        }
        let Arrival {
            host,
            life,
            identity,
            id,
            call,
            fate,
            longest,
            ..
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
                Call::Resolve { .. } => Reply::Resolved(Resolution::unknown("lost")),
                Call::Prepare(_) => Reply::Prepared(Err(failure)),
                Call::Write(_) | Call::Read(_) => Reply::Objects(Err(failure)),
                _ => Reply::Answer(Err(failure)),
            };
            self.answer(host, life, id, reply, 1);
            return Ok(());
        }
        let (holder, before) = (self.store.holder().to_owned(), self.store.log().len());
        let (reply, after) = self.perform(&identity, &call)?;
        let ended = self.store.log().get(before..).and_then(<[_]>::last);
        let ended = ended
            .filter(|change| change.after.is_none())
            .map(|change| change.version);
        self.ended.extend(ended.map(|version| ((host, id), version)));
        if fate == Fate::LostAnswer && self.store.log().len() > before {
            self.oracle.loses(&identity, self.store.log());
        }
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

    pub(super) fn answer(&mut self, host: usize, life: u32, id: CallId, reply: Reply, after: u64) {
        let input = Input::Returned { call: id, reply };
        self.schedule(self.now + after, Event::Deliver(host, life, input));
    }

    /// Does what a call asks for: the reply, if there is one, and how long it takes.
    pub(super) fn perform(&mut self, identity: &str, call: &Call) -> Result<(Option<Reply>, u64), Violation> {
        let unix = self.unix();
        let instant = Instant {
            now: self.now,
            store: &self.store,
        };
        Ok(match call {
            Call::Cloud(request) => {
                let operation = self.sim.catalogue().operations.get(&request.operation);
                match operation.map(|operation| operation.effect) {
                    Some(OperationEffect::Create) => panic!("{request:?} was not prepared"),
                    Some(OperationEffect::Change) => {
                        self.oracle.changes(&instant, identity, || describe(call))?;
                    }
                    _ => {}
                }
                self.ask_cloud(request)
            }
            Call::Prepare(request) => {
                let session = self.session(&request.session);
                let prepared = self.sim.prepare(unix, &session);
                (prepared.map(Reply::Prepared), 20)
            }
            Call::Commit(commit) => {
                self.oracle.changes(&instant, identity, || describe(call))?;
                self.ask_cloud(&commit.request)
            }
            Call::Resolve { session, entry } => {
                let session = self.session(session);
                (Some(Reply::Resolved(self.sim.resolve(unix, &session, entry))), 20)
            }
            Call::Read(Question::Object(query)) => {
                let namespace = query.object.namespace.clone().unwrap_or_default();
                let at = (
                    query.object.kind.kind.clone(),
                    namespace,
                    query.object.name.clone(),
                );
                let found = self.store.get(&at).map(|object| vec![object.clone()]);
                let missing = || Failure::new(Code::NotFound, format!("{at:?} not found"));
                (Some(Reply::Objects(found.ok_or_else(missing))), 0)
            }
            Call::Write(write) => {
                self.oracle.changes(&instant, identity, || describe(call))?;
                self.oracle.tries(identity, write, || describe(call))?;
                let answer = self.write(identity, write);
                self.oracle.tried(identity, write, &answer);
                (Some(Reply::objects(answer)), 0)
            }
            Call::Read(Question::Objects(query)) => {
                let of_it = |object: &&Object| selects(query, object);
                let objects = self.store.all().map(|(_, object)| object).filter(of_it);
                (Some(Reply::Objects(Ok(objects.cloned().collect()))), 0)
            }
            Call::Credential { owner, .. } => (Some(self.issue(identity, owner)), 20),
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

    fn ask_cloud(&mut self, request: &CloudRequest) -> (Option<Reply>, u64) {
        let session = self.session(&request.session);
        let request = CloudRequest {
            session,
            ..request.clone()
        };
        let reply = self.sim.perform(self.unix(), &request);
        (reply.answer.map(Reply::Answer), reply.after_ms)
    }

    pub(super) fn write(&mut self, identity: &str, write: &Write) -> Answer {
        match write {
            Write::Patch {
                object,
                subresource,
                precondition,
                patch,
            } => {
                let at = (
                    object.kind.kind.clone(),
                    object.namespace.clone().unwrap_or_default(),
                    object.name.clone(),
                );
                let held = precondition.as_ref();
                let written = self
                    .store
                    .patch(identity, &at, subresource.as_deref(), held, patch)?;
                Ok(written.tree())
            }
            Write::Event { .. } => Ok(Value::Null),
            Write::Act(act) => self.act_on_another(identity, act),
        }
    }
}

impl World<'_> {
    /// Whether this is the session of an object whose identity a policy decides on.
    fn is_guest(&self, session: &Session) -> bool {
        let owner = self.store.by_uid(&session.owner);
        owner.is_some_and(|owner| owner.kind().kind == "Guest")
    }

    /// Answers a credential, under a handle of its own.
    fn issue(&mut self, host: &str, owner: &str) -> Reply {
        let handle = match self.options.wild {
            Some(_) => format!("session of {owner}"),
            None => format!("session {} of {owner}", self.handles.len()),
        };
        self.oracle.issues(host, owner, &handle);
        self.handles.insert(handle.clone(), owner.to_owned());
        Reply::Answer(Ok(json!({"handle": handle})))
    }

    /// The session as the cloud knows it: those that this world has issued are its default one.
    fn session(&self, session: &Session) -> Session {
        let issued = session
            .handle
            .as_ref()
            .and_then(|handle| self.handles.get(handle));
        if issued.is_some_and(|owner| *owner == session.owner) && self.options.wild.is_none() {
            Session {
                handle: None,
                ..session.clone()
            }
        } else {
            session.clone()
        }
    }

    /// Does what a policy wants done with another object.
    fn act_on_another(&mut self, identity: &str, act: &Act) -> Answer {
        let place = |object: &ObjectRef| {
            let namespace = object.namespace.clone().unwrap_or_default();
            (object.kind.kind.clone(), namespace, object.name.clone())
        };
        match act {
            Act::Create(act) => {
                let object = serde_json::from_str(&act.object).map_err(no_json)?;
                Ok(self.store.create(identity, object)?.tree())
            }
            Act::Patch(act) => {
                let patch = serde_json::from_str(&act.patch).map_err(no_json)?;
                let (at, held) = (place(&act.object), Some(&act.precondition));
                let written = self
                    .store
                    .patch(identity, &at, act.subresource.as_deref(), held, &patch)?;
                Ok(written.tree())
            }
            Act::Delete(act) => {
                let (unix, at) = (self.unix(), place(&act.object));
                self.store.delete_if(identity, &at, &act.precondition, unix)
            }
            Act::Evict(_) if self.happens(|_| 200) => {
                let budget = Failure::new(Code::Unavailable, "no Pod of its budget can be spared");
                Err(Failure {
                    retry_after: Some(2_000),
                    ..budget
                })
            }
            Act::Evict(act) => {
                let (unix, at) = (self.unix(), place(&act.object));
                self.store.delete_if(identity, &at, &act.precondition, unix)?;
                Ok(Value::Null)
            }
            _ => Err(Failure::new(Code::Unimplemented, "no policy here does that")),
        }
    }
}

fn no_json(e: serde_json::Error) -> Failure {
    Failure::new(Code::InvalidArgument, e.to_string())
}

pub(super) fn describe(call: &Call) -> String {
    match call {
        Call::Cloud(request) => format!(
            "{} {} for {}",
            request.operation, request.arguments, request.session.owner
        ),
        Call::Prepare(request) => format!("prepare {} for {}", request.operation, request.session.owner),
        Call::Commit(commit) => {
            let request = &commit.request;
            format!(
                "{} {} for {}",
                request.operation, request.arguments, request.session.owner
            )
        }
        Call::Resolve { session, entry } => format!("resolve {} of {}", entry.intent, session.owner),
        Call::Write(Write::Patch {
            object,
            precondition,
            patch,
            ..
        }) => {
            let held = precondition
                .as_ref()
                .and_then(|held| held.resource_version.as_deref());
            format!(
                "patch {} at {}: {patch}",
                object.name,
                held.unwrap_or("any version")
            )
        }
        Call::Lease(Some(write)) => format!("lease of {:?} on {:?}", write.holder, write.version),
        Call::Lease(None) => "read the lease".to_owned(),
        Call::Read(Question::Object(query)) => format!("read {}", query.object.name),
        other => format!("{other:?}"),
    }
}

pub(super) fn told(reply: &Option<Reply>) -> String {
    match reply {
        None => "no answer".to_owned(),
        Some(Reply::Objects(Ok(found))) => format!("{found:?}"),
        Some(Reply::Objects(Err(failure))) => failure.to_string(),
        Some(Reply::Answer(Ok(value))) => value.to_string(),
        Some(Reply::Answer(Err(failure))) => failure.to_string(),
        Some(Reply::Lease(Err(failure))) => failure.to_string(),
        Some(other) => format!("{other:?}"),
    }
}

/// What a write left, as its reply says.
pub(super) fn written(reply: &Reply) -> Option<Object> {
    match reply {
        Reply::Objects(Ok(found)) => found.first().cloned(),
        _ => None,
    }
}
