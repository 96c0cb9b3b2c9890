//! One pass: its roles, their steps, and what each step's reply leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::pending::Pending;
use super::publish::Publication;
use super::{Dependency, Known, Machine, Target};
use crate::binding::Binding;
use crate::cache::{Place, Sight};
use crate::call::{Call, PendingEntry, Reply, Scope, Session};
use crate::contract::{
    ActInDoubt, Answer, Ask, Cause, Conclusion, Document, Doubt, Entry, Json, Next, Pass, Question, Request,
    Role, Step, Trial, Verdict,
};
use crate::fault::{Fault, FaultKind, Stepped};
use crate::grants;
use crate::key::{Key, Now, PassId};
use crate::object::Object;
use crate::plan;
use crate::record::{Outcome, RetryRecord, RoleRecord, WriteRecord};

/// Bytes of a note: it is an edge's id, or a word like it.
const NOTE: usize = 1_024;

/// A pass in flight.
pub(super) struct PassState {
    pub(super) id: PassId,
    pub(super) key: Key,
    pub(super) tenant: Arc<str>,
    /// Among whose passes it counts.
    pub(super) line: Arc<str>,
    pub(super) binding: Arc<Binding>,
    pub(super) started: Now,
    pub(super) causes: Vec<Cause>,
    pub(super) attempt: u32,
    /// The primary as it was read.
    pub(super) snapshot: Option<Object>,
    /// The primary as this pass knows it: the snapshot with its own writes.
    pub(super) current: Option<Object>,
    /// What the identity policy granted.
    pub(super) handle: Option<String>,
    /// The role whose policy is being asked.
    pub(super) run: RoleRun,
    pub(super) finished: Vec<RoleRecord>,
    /// What the identity concluded, to be published with the rest.
    pub(super) judged: Option<Concluded>,
    /// Creates that the pass found in doubt, with what the cloud says; filled while settling.
    pub(super) found: Vec<PendingEntry>,
    pub(super) doubts: Vec<Option<Doubt>>,
    /// What stands in `status.pending` that this host cannot read.
    pub(super) unreadable: Option<String>,
    /// When the cloud was asked for them; boot milliseconds.
    pub(super) looked: u64,
    /// Keys of pending entries whose outcome is known.
    pub(super) resolved: BTreeSet<String>,
    /// The requests under way and their answers.
    pub(super) batch: Vec<Request>,
    pub(super) answers: Vec<Option<Answer>>,
    /// Keys of the pending entries of creates in the batch, by index.
    pub(super) entered: BTreeMap<usize, PendingEntry>,
    /// When those entries were made; boot milliseconds.
    pub(super) entered_at: u64,
    /// Whether anything may have been changed by this pass outside its primary.
    pub(super) acted: bool,
    pub(super) deps: BTreeMap<(Role, Question), Dependency>,
    /// What it looked at, used or not.
    pub(super) asked: BTreeSet<Scope>,
    /// What was shown meanwhile of what it looked at: uids and versions, by scope.
    pub(super) shown: BTreeSet<(Scope, String, u64)>,
    pub(super) writes: Vec<WriteRecord>,
    pub(super) publication: Option<Publication>,
    pub(super) next: Option<Next>,
    /// What the retry policy is being asked.
    pub(super) trial: Option<Trial>,
    pub(super) retry: Option<RetryRecord>,
    pub(super) parked: Option<(Purpose, Call, u64)>,
    pub(super) slowed: bool,
}

/// A conclusion that keeps the contract.
pub(super) struct Concluded {
    pub(super) conclusion: Conclusion,
    /// Its patch; an empty object where it has none.
    pub(super) patch: Value,
}

/// The steps of one role.
pub(super) struct RoleRun {
    pub(super) role: Role,
    pub(super) steps: u32,
    pub(super) fuel: u64,
    pub(super) journal: Vec<Entry>,
    pub(super) journal_bytes: u64,
    pub(super) request_bytes: u64,
    pub(super) pending: Vec<ActInDoubt>,
    pub(super) handles: BTreeSet<String>,
}

/// What a pass waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Step,
    /// A verdict on the pending entry of this index.
    Settle(usize),
    /// The answer to the request of this index. `synced` is false while a watch is waited for.
    Answer {
        index: usize,
        act: bool,
        synced: bool,
    },
    AddFinalizer,
    WriteAhead,
    Publish,
    Reread,
    Decide,
}

impl Purpose {
    /// Whether what is waited for changes something outside.
    pub(super) fn changes_something(self) -> bool {
        match self {
            Purpose::Answer { act, .. } => act,
            Purpose::AddFinalizer | Purpose::WriteAhead | Purpose::Publish => true,
            Purpose::Step | Purpose::Settle(_) | Purpose::Reread | Purpose::Decide => false,
        }
    }
}

impl PassState {
    pub(super) fn place(&self) -> Place {
        (
            self.key.namespace.as_deref().map(str::to_owned),
            self.key.name.to_string(),
        )
    }

    pub(super) fn uid(&self) -> &str {
        self.snapshot.as_ref().map_or("", Object::uid)
    }

    pub(super) fn session(&self) -> Session {
        Session {
            cloud: self
                .binding
                .spec
                .cloud
                .as_ref()
                .map_or_else(String::new, |cloud| cloud.name.clone()),
            handle: self.handle.clone(),
            owner: self.uid().to_owned(),
            tenant: self.tenant.to_string(),
            namespace: self
                .snapshot
                .as_ref()
                .and_then(Object::namespace)
                .map(str::to_owned),
        }
    }

    /// The finalizer that the lifecycle's manifest names.
    pub(super) fn finalizer(&self) -> Option<&str> {
        self.binding
            .policy(Role::Lifecycle)?
            .manifest
            .finalizer
            .as_deref()
    }

    /// Whether it was handed a create that happened or may have happened.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.unreadable.is_some() || self.doubts.iter().flatten().any(|doubt| *doubt != Doubt::Absent)
    }
}

/// What a binding watches of its own kind.
pub(super) fn primary_scope(binding: &Binding) -> Scope {
    Scope {
        kind: binding.spec.governs.kind(),
        namespace: binding.spec.governs.namespace.clone(),
        name: binding.spec.governs.name.clone(),
        node: None,
        fields: Vec::new(),
    }
}

impl Machine {
    /// Bindings whose own objects are not all known yet: their watch has not listed, or failed since.
    pub fn unsynced(&self) -> impl Iterator<Item = &str> {
        let unsynced = |binding: &&Arc<Binding>| !self.cache.is_synced(&primary_scope(binding));
        self.bindings
            .values()
            .filter(unsynced)
            .map(|binding| binding.name.as_str())
    }

    /// Starts a pass of a key from a fresh read.
    pub(super) fn start(&mut self, key: &Key) {
        let Some(binding) = self.bindings.get(&key.binding).cloned() else {
            return;
        };
        let place = (key.namespace.as_deref().map(str::to_owned), key.name.to_string());
        let snapshot = match self.cache.get(&primary_scope(&binding), &place) {
            Sight::Known(object) => object,
            // The watch lists again and wakes the key then.
            Sight::Unsynced | Sight::Unwatched => return,
        };
        if snapshot.is_none() && binding.spec.governs.name.is_none() {
            return self.forget(key);
        }
        let limits = &binding.spec.limits;
        let Some(state) = self.keys.get_mut(key) else {
            return;
        };
        if let Err(wait) = state.bucket.take(limits.burst, limits.refill, self.now.boot) {
            state.slowed = true;
            return self
                .queue
                .push_at(self.now.boot.saturating_add(wait), key.clone());
        }
        self.last_pass += 1;
        let id = PassId(self.last_pass);
        state.running = Some(id);
        state.trial = None;
        let pass = PassState {
            id,
            key: key.clone(),
            tenant: state.tenant.clone(),
            line: state.line.clone(),
            started: self.now,
            causes: std::mem::take(&mut state.causes).into_iter().collect(),
            attempt: state.attempt,
            current: snapshot.clone(),
            snapshot,
            handle: None,
            run: RoleRun::new(Role::Lifecycle),
            finished: Vec::new(),
            judged: None,
            found: Vec::new(),
            doubts: Vec::new(),
            unreadable: None,
            looked: 0,
            resolved: BTreeSet::new(),
            batch: Vec::new(),
            answers: Vec::new(),
            entered: BTreeMap::new(),
            entered_at: 0,
            acted: false,
            deps: BTreeMap::new(),
            asked: BTreeSet::new(),
            shown: BTreeSet::new(),
            writes: Vec::new(),
            publication: None,
            next: None,
            trial: None,
            retry: None,
            parked: None,
            slowed: std::mem::take(&mut state.slowed),
            binding,
        };
        *self.in_flight.entry(pass.line.clone()).or_default() += 1;
        let first = if pass.binding.policy(Role::Identity).is_some() {
            Role::Identity
        } else {
            Role::Lifecycle
        };
        match first {
            Role::Lifecycle => self.settle(Box::new(pass)),
            role => self.begin(Box::new(pass), role),
        }
    }

    /// Finds out what came of each create that the pass found in doubt: the cloud is asked, unless this process wrote
    /// the entry and never sent what it announces.
    pub(super) fn settle(&mut self, mut pass: Box<PassState>) {
        let pending = pass.current.as_ref().map(|object| Pending::of(object.value()));
        pass.found = pending.iter().flat_map(Pending::entries).cloned().collect();
        pass.unreadable = pending.as_ref().and_then(Pending::unreadable);
        pass.doubts = vec![None; pass.found.len()];
        pass.looked = self.now.boot;
        self.know(&pass.key, &pass.found);
        for index in 0..pass.found.len() {
            let entry = pass.found[index].clone();
            if self.never_sent(&pass.key, &entry) {
                pass.resolved.insert(entry.key);
                pass.doubts[index] = Some(Doubt::Absent);
                continue;
            }
            let session = pass.session();
            let call = Call::Settle { session, entry };
            self.ask_cloud(&pass, Purpose::Settle(index), call, super::call::CLUSTER_LONGEST);
        }
        match pass.doubts.iter().all(Option::is_some) {
            true => self.begin(pass, Role::Lifecycle),
            false => self.suspend(pass),
        }
    }

    /// Notes since when this host knows of each pending entry of a key.
    fn know(&mut self, key: &Key, entries: &[PendingEntry]) {
        if let Some(state) = self.keys.get_mut(key) {
            let known = std::mem::take(&mut state.known);
            let seen = |entry: &PendingEntry| {
                known
                    .get(&entry.key)
                    .copied()
                    .unwrap_or(Known::seen(self.now.boot))
            };
            state.known = entries.iter().map(|e| (e.key.clone(), seen(e))).collect();
        }
    }

    fn known(&self, key: &Key, entry: &PendingEntry) -> Option<&Known> {
        self.keys.get(key)?.known.get(&entry.key)
    }

    /// Whether an entry announces what nobody ever sent: another process, or this one before it crashed, may have.
    fn never_sent(&self, key: &Key, entry: &PendingEntry) -> bool {
        let asked = self.guards.entries_of_others_are_asked_for;
        self.known(key, entry)
            .is_some_and(|known| (known.written_here || !asked) && !known.sent)
    }

    /// Whether this host has known of an entry for so long that what it announced would be seen by now. The adapter
    /// counts by unix time, which jumps; a clock that does not is asked as well.
    fn would_be_visible(&self, pass: &PassState, entry: &PendingEntry) -> bool {
        let known = self.known(&pass.key, entry);
        let operation = pass.binding.catalogue.operations.get(&entry.operation);
        match (known, operation) {
            (Some(known), Some(operation)) => {
                pass.looked >= known.since.saturating_add(operation.visible_within)
            }
            _ => false,
        }
    }

    fn settled(&mut self, mut pass: Box<PassState>, index: usize, doubt: Doubt) {
        let doubt = match doubt {
            Doubt::Absent
                if self.guards.absent_takes_time && !self.would_be_visible(&pass, &pass.found[index]) =>
            {
                Doubt::Unknown
            }
            doubt => doubt,
        };
        if doubt != Doubt::Unknown {
            pass.resolved.insert(pass.found[index].key.clone());
        }
        pass.doubts[index] = Some(doubt);
        match pass.doubts.iter().all(Option::is_some) {
            true => self.begin(pass, Role::Lifecycle),
            false => self.suspend(pass),
        }
    }

    /// Begins the steps of a role, with what its last pass used already in the journal where a watch knows it.
    pub(super) fn begin(&mut self, mut pass: Box<PassState>, role: Role) {
        if pass.binding.policy(role).is_none() {
            return self.conclude_without_lifecycle(pass);
        }
        if !self.guards.passes_keep_their_binding
            && let Some(binding) = self.bindings.get(&pass.key.binding)
        {
            pass.binding = binding.clone();
        }
        pass.run = RoleRun::new(role);
        if role == Role::Lifecycle {
            pass.run.pending = pass
                .found
                .iter()
                .zip(&pass.doubts)
                .map(|(entry, doubt)| ActInDoubt {
                    operation: entry.operation.clone(),
                    intent: entry.intent.clone(),
                    since: entry.since,
                    state: doubt.clone().unwrap_or(Doubt::Unknown),
                })
                .collect();
        }
        if self.guards.prefetch {
            self.prefetch(&mut pass);
        }
        self.call_policy(pass);
    }

    fn prefetch(&mut self, pass: &mut PassState) {
        let Some(state) = self.keys.get(&pass.key) else {
            return;
        };
        let questions: Vec<Question> = state
            .deps
            .iter()
            .filter(|((role, _), _)| *role == pass.run.role)
            .map(|((_, question), _)| question.clone())
            .filter(|question| match question {
                Question::Object(query) => !query.latest,
                Question::Objects(query) => !query.latest,
                _ => false,
            })
            .collect();
        for question in questions {
            if let Some(answer) = self.watched_answer(pass, &question) {
                let request = Request::Ask(Ask { round: 0, question });
                pass.run.append(request, answer, pass.binding.spec.limits.answer);
            }
        }
    }

    pub(super) fn call_policy(&mut self, mut pass: Box<PassState>) {
        let limits = &pass.binding.spec.limits;
        pass.run.steps += 1;
        if pass.run.steps > limits.steps || pass.run.journal.len() > limits.entries as usize {
            let message = format!(
                "more than {} steps or {} journal entries",
                limits.steps, limits.entries
            );
            return self.fault(pass, Fault::new(FaultKind::TooLong, message));
        }
        let Some(policy) = pass.binding.policy(pass.run.role) else {
            return self.suspend(pass);
        };
        let call = Call::Step {
            policy: policy.id.clone(),
            role: pass.run.role,
            pass: Arc::new(Pass {
                object: pass.snapshot.as_ref().map(Object::json),
                now: pass.started.unix,
                causes: pass.causes.clone(),
                attempt: pass.attempt,
                config: policy.config.clone(),
                pending: pass.run.pending.clone(),
                journal: pass.run.journal.clone(),
            }),
            limits: limits.clone(),
        };
        self.emit(
            Target::Pass(pass.id, Purpose::Step),
            call,
            super::call::STEP_LONGEST,
        );
        self.suspend(pass);
    }

    /// Puts a pass back to wait for a reply.
    pub(super) fn suspend(&mut self, pass: Box<PassState>) {
        self.passes.insert(pass.id, pass);
    }

    /// Goes on with a pass after a reply.
    pub(super) fn resume(&mut self, pass: Box<PassState>, purpose: Purpose, reply: Reply) {
        match (purpose, reply) {
            (Purpose::Step, Reply::Stepped(stepped)) => self.stepped(pass, stepped),
            (Purpose::Step, _) => {
                let fault = Fault {
                    kind: FaultKind::WallTime,
                    message: "the step did not return".into(),
                    deterministic: false,
                };
                self.fault(pass, fault);
            }
            (Purpose::Settle(index), Reply::Settled(doubt)) => self.settled(pass, index, doubt),
            (Purpose::Settle(index), _) => self.settled(pass, index, Doubt::Unknown),
            (
                Purpose::Answer {
                    index, act: false, ..
                },
                Reply::Answer(answer),
            ) => {
                self.asked(pass, index, answer);
            }
            (Purpose::Answer { index, act: true, .. }, Reply::Answer(answer)) => {
                self.performed(pass, index, answer);
            }
            (Purpose::AddFinalizer, Reply::Answer(answer)) => self.finalizer_added(pass, answer),
            (Purpose::WriteAhead, Reply::Answer(answer)) => self.written_ahead(pass, answer),
            (Purpose::Publish, Reply::Answer(answer)) => self.published(pass, answer),
            (Purpose::Reread, Reply::Answer(answer)) => self.reread(pass, answer),
            (Purpose::Decide, reply) => self.decided(pass, reply),
            (_, _) => self.suspend(pass),
        }
    }

    fn stepped(&mut self, mut pass: Box<PassState>, stepped: Stepped) {
        pass.run.fuel = pass.run.fuel.saturating_add(stepped.fuel);
        let limit = pass.binding.spec.limits.pass_fuel;
        let before = pass.finished.iter().map(|role| role.fuel);
        if before.fold(pass.run.fuel, u64::saturating_add) > limit {
            let message = format!("the pass used more than {limit} units of fuel");
            return self.fault(pass, Fault::new(FaultKind::OutOfFuel, message));
        }
        match stepped.outcome {
            Err(fault) => self.fault(pass, fault),
            Ok(Step::Pending(requests)) => self.pending(pass, requests),
            Ok(Step::Concluded { verdict, conclusion }) => self.concluded(pass, verdict, conclusion),
        }
    }

    fn pending(&mut self, pass: Box<PassState>, requests: Vec<Request>) {
        let asks = requests.iter().filter(|r| matches!(r, Request::Ask(_))).count();
        if requests.is_empty() {
            let message = "it waits, and for nothing";
            return self.fault(pass, Fault::new(FaultKind::Stalled, message));
        }
        if asks != 0 && asks != requests.len() {
            let message = "asks and acts in one step: acts may be returned only when no ask is missing";
            return self.fault(pass, Fault::new(FaultKind::BadOutput, message));
        }
        let room = (pass.binding.spec.limits.entries as usize).saturating_sub(pass.run.journal.len());
        if requests.len() > room {
            let message = format!(
                "{} requests in one step, and room for {room} in the journal",
                requests.len()
            );
            return self.fault(pass, Fault::new(FaultKind::TooLong, message));
        }
        let bytes: u64 = requests.iter().map(Request::bytes).sum();
        let limit = pass.binding.spec.limits.journal;
        if pass.run.request_bytes.saturating_add(bytes) > limit {
            let message = format!("requests of more than {limit} bytes in one pass");
            return self.fault(pass, Fault::new(FaultKind::TooLong, message));
        }
        match asks {
            0 => self.act(pass, requests),
            _ => self.ask(pass, requests),
        }
    }

    fn concluded(&mut self, mut pass: Box<PassState>, verdict: Option<Verdict>, conclusion: Conclusion) {
        let concluded = match pass.checked(verdict.as_ref(), conclusion) {
            Ok(concluded) => concluded,
            Err(fault) => return self.fault(pass, fault),
        };
        let conclusion = &concluded.conclusion;
        let record = pass.role_record(verdict.clone(), Some(conclusion.clone()), None);
        let (role, used) = (pass.run.role, &conclusion.used);
        let asked: BTreeSet<&Question> = used
            .iter()
            .filter_map(|index| match &pass.run.journal.get(*index as usize)?.request {
                Request::Ask(ask) => Some(&ask.question),
                Request::Act(_) => None,
            })
            .collect();
        pass.deps
            .retain(|(of, question), _| *of != role || asked.contains(question));
        pass.finished.push(record);
        match verdict {
            None => self.publish(pass, concluded, Outcome::Published),
            Some(Verdict::Released) => self.publish(pass, concluded, Outcome::Released),
            Some(Verdict::Denied) if self.guards.a_denial_ends_the_pass => {
                self.publish(pass, concluded, Outcome::Denied);
            }
            Some(Verdict::Denied) => {
                pass.judged = Some(concluded);
                self.settle(pass);
            }
            Some(Verdict::Granted(handle)) => {
                pass.handle = self.guards.acts_as_granted.then_some(handle);
                pass.judged = Some(concluded);
                self.settle(pass);
            }
        }
    }

    /// A binding that has only an identity policy: its conclusion is the pass's.
    fn conclude_without_lifecycle(&mut self, mut pass: Box<PassState>) {
        match pass.judged.take() {
            Some(concluded) => self.publish(pass, concluded, Outcome::Published),
            None => self.end(
                pass,
                Outcome::Discarded("the binding names no policy to ask".into()),
            ),
        }
    }

    /// Ends a pass whose policy broke its contract.
    pub(super) fn fault(&mut self, mut pass: Box<PassState>, fault: Fault) {
        let record = pass.role_record(None, None, Some(fault.clone()));
        pass.finished.push(record);
        let health = self.health.entry(pass.key.binding.clone()).or_default();
        health.faults += 1;
        health.last_fault = Some((pass.key.clone(), fault));
        self.end(pass, Outcome::Faulted);
    }
}

impl PassState {
    /// A conclusion, or how it breaks the contract. Whatever its role does afterwards, it is this role's fault.
    fn checked(&self, verdict: Option<&Verdict>, conclusion: Conclusion) -> Result<Concluded, Fault> {
        let broken = |message: String| Fault::new(FaultKind::BadOutput, message);
        if let Some(message) = self.run.unused_act(&conclusion.used) {
            return Err(Fault::new(FaultKind::JournalMismatch, message));
        }
        if let Some(message) = self.misjudged(verdict) {
            return Err(broken(message.into()));
        }
        let most = self.binding.spec.limits.notes as usize;
        if conclusion.notes.len() > most {
            return Err(broken(format!("more than {most} notes")));
        }
        if let Some(note) = conclusion.notes.iter().find(|note| note.len() > NOTE) {
            return Err(broken(format!(
                "a note of {} bytes, at most {NOTE} are taken",
                note.len()
            )));
        }
        let patch = match &conclusion.patch {
            None => Value::Object(serde_json::Map::new()),
            Some(patch) => self.checked_patch(patch).map_err(broken)?,
        };
        Ok(Concluded { conclusion, patch })
    }

    fn checked_patch(&self, patch: &Document) -> Result<Value, String> {
        let tree = patch.tree("its patch").map_err(|failure| failure.message)?;
        if let Some(wrong) = plan::misshapen(tree, true) {
            return Err(format!("its patch: {wrong}"));
        }
        let Some(snapshot) = &self.snapshot else {
            return Err("it patches an object that is absent".into());
        };
        match grants::check_writes(&self.binding, self.run.role, snapshot, tree) {
            Some(wrong) => Err(wrong),
            None => Ok(tree.clone()),
        }
    }

    /// What is wrong with a verdict, or with none.
    fn misjudged(&self, verdict: Option<&Verdict>) -> Option<&'static str> {
        let is_deleting = self.snapshot.as_ref().is_some_and(Object::is_deleting);
        match (self.run.role, verdict) {
            (Role::Lifecycle, None) | (Role::Identity, Some(Verdict::Denied)) => None,
            (Role::Identity, Some(Verdict::Granted(handle))) if self.run.handles.contains(handle) => None,
            (Role::Identity, Some(Verdict::Granted(_))) => {
                Some("it granted a handle that no ask of this pass answered")
            }
            (Role::Identity, Some(Verdict::Released)) if is_deleting => None,
            (Role::Identity, Some(Verdict::Released)) => {
                Some("it released an object that is not being deleted")
            }
            _ => Some("its conclusion does not fit its role"),
        }
    }

    fn role_record(
        &mut self,
        verdict: Option<Verdict>,
        conclusion: Option<Conclusion>,
        fault: Option<Fault>,
    ) -> RoleRecord {
        let policy = self.binding.policy(self.run.role);
        RoleRecord {
            role: self.run.role,
            policy: policy
                .map(|p| p.id.clone())
                .unwrap_or(crate::binding::PolicyId("".into())),
            config: policy.map(|p| p.config.clone()).unwrap_or("null".into()),
            pending: self.run.pending.clone(),
            steps: self.run.steps,
            fuel: self.run.fuel,
            journal: self.run.journal.clone(),
            verdict,
            conclusion,
            fault,
        }
    }
}

impl RoleRun {
    fn new(role: Role) -> Self {
        RoleRun {
            role,
            steps: 0,
            fuel: 0,
            journal: Vec::new(),
            journal_bytes: 0,
            request_bytes: 0,
            pending: Vec::new(),
            handles: BTreeSet::new(),
        }
    }

    /// Appends an answer; one that is too large for a pass becomes `resource-exhausted`.
    pub(super) fn append(
        &mut self,
        request: Request,
        answer: Result<Json, crate::contract::Failure>,
        limit: u64,
    ) {
        let answer = answer.and_then(|json| match json.len() as u64 > limit {
            true => Err(crate::contract::Failure::new(
                crate::contract::Code::ResourceExhausted,
                format!("the answer has {} bytes, a pass takes {limit}", json.len()),
            )),
            false => Ok(json),
        });
        self.request_bytes = self.request_bytes.saturating_add(request.bytes());
        self.journal_bytes += answer.as_ref().map_or(64, |json| json.len() as u64);
        self.journal.push(Entry { request, answer });
    }

    /// Whether an act was made and is not among what the conclusion rests on.
    fn unused_act(&self, used: &[u32]) -> Option<String> {
        let used: BTreeSet<usize> = used.iter().map(|index| *index as usize).collect();
        if let Some(index) = used.iter().find(|index| **index >= self.journal.len()) {
            return Some(format!(
                "it used entry {index} of a journal of {}",
                self.journal.len()
            ));
        }
        self.journal
            .iter()
            .enumerate()
            .find(|(index, entry)| matches!(entry.request, Request::Act(_)) && !used.contains(index))
            .map(|(index, entry)| {
                format!(
                    "it made an act and then concluded without it: entry {index}, {:?}",
                    entry.request
                )
            })
    }
}
