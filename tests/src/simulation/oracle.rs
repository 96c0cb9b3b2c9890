//! The rules of the simulation: what must hold at every instant. The oracle sees all objects, clouds and passes, unlike
//! any host.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::contract::{Act, CloudAct, Code, Json, Next, Pass, Question, Request, RetryRequest, Wait};
use polity_core::key::Key;
use polity_core::object::Object;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::{Boot, Unix, millis};
use polity_sim::{Effect, Happened, VmView};
use serde::Deserialize;
use serde_json::Value;

use super::store::{Change, Place, Store};

mod bound;
mod elements;
mod enqueued;
mod others;
mod reached;
mod rooms;

use bound::denied_acts_not;
use elements::{changed_elements, elements, host_owned};
pub use others::KEPT;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// At most one VM for a primary and intent.
    OneVm,
    /// Every VM has a live object.
    NoLeak,
    /// No act without the finalizer.
    Finalizer,
    /// A pending entry stands before each create.
    WriteAhead,
    /// Only the lease holder acts and publishes.
    Fencing,
    /// Own writes enqueue nothing.
    OwnWrite,
    /// During `retry` only something new enqueues a key.
    Heartbeat,
    /// A key never runs twice at once.
    Twice,
    /// A pass never sees the primary older than its host's own write.
    Stale,
    /// Nobody's newer write is overwritten.
    Overwritten,
    /// `not-found` is never a failure to look.
    NotFound,
    /// An act of a pass is performed once.
    ActOnce,
    /// No first act on an object that changed, as far as the host could know.
    Looked,
    /// Everything settles once faults stop.
    Settles,
    /// The phases of a pass foresee every event, whatever a policy says.
    Defect,
    /// A policy that breaks no contract does not fault.
    Fault,
    /// The controller does not ask for a next tick again and again at one instant.
    Progress,
    /// What is the host's, or somebody else's, does not change because a policy says so.
    HostOwned,
    /// A pass that a change enqueued is one whose last pass used what changed.
    Enqueued,
    /// A key passes when its time has come, not before.
    Early,
    /// A key passes when its time has come, not long after.
    Late,
    /// An object that faults again and again is tried less and less often.
    Quarantine,
    /// A key whose tenant has room does not wait for those of another.
    Starved,
    /// A pass uses the policies that its binding named when it started.
    OneBinding,
    /// No act and no question in a cloud as anybody whom the identity policy did not name in this very pass.
    Identity,
    /// What is locked is done by one at a time.
    Lock,
    /// What was not granted does not happen.
    Ungranted,
    /// What an act does to another object it does to the one that the policy saw.
    Others,
    /// A recording replays to what it says.
    Replay,
    /// No more is under way at once than a room holds.
    Rooms,
    /// What met a conflict is not tried again on the same version.
    Hopeless,
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: Rule,
    /// What was seen.
    pub message: String,
}

/// What the oracle says.
pub type Verdict = Result<(), Violation>;

/// A broken rule, unless this holds.
pub fn ensure(holds: bool, rule: Rule, message: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Violation {
            rule,
            message: message(),
        })
    }
}

/// Whether an object has the entry with this key.
fn has_entry(object: &Object, key: &str) -> bool {
    let pending = object.at("status.pending");
    let all = pending.as_ref().and_then(Value::as_array);
    all.is_some_and(|all| all.iter().any(|entry| entry["key"] == *key))
}

/// Whether somebody who is no host took the entry of this effect away while its act was under way. No host can help that,
/// and none knows any more that there is something to keep its object for.
fn taken_by_another(instant: &Instant<'_>, effect: &Effect) -> bool {
    let Some(key) = &effect.key else { return false };
    let had = |object: &Option<Object>| object.as_ref().is_some_and(|object| has_entry(object, key));
    let mut changes = instant.store.log().iter().rev();
    let taken = changes
        .find(|change| change.shown.uid() == effect.owner && had(&change.before) && !had(&change.after));
    taken.is_some_and(|change| !change.author.starts_with("host-"))
}

/// What the oracle remembers.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Policies may say anything: their faults are no news, nor is what they leave in the cloud.
    wild: bool,
    /// What the seeds are meant to reach and did.
    pub reached: BTreeSet<&'static str>,
    /// Uids of objects that their identity let go of.
    let_go: BTreeSet<String>,
    /// When the last pass of an object that has ended had started; world time, by uid.
    started: BTreeMap<String, u64>,

    effects: usize,
    /// By identity of the host.
    hosts: BTreeMap<String, Seen>,
    /// The version of the last write by anybody but a host, by uid and element.
    foreign: BTreeMap<(String, String), u64>,
    /// When a place was empty last; world time.
    absent: BTreeMap<Place, u64>,
    /// Passes that ended.
    pub passes: u64,
    /// Hosts, uids and versions whose writes met a conflict.
    conflicts: BTreeSet<(String, String, String)>,
}

/// What one host process knows.
#[derive(Debug, Default)]
struct Seen {
    /// By uid: own writes.
    acknowledged: BTreeMap<String, Vec<Own>>,
    acknowledged_all: BTreeSet<u64>,
    /// By uid: what a watch or an own write showed last.
    shown: BTreeMap<String, Meta>,
    /// What its watches showed, in the order of world time.
    news: Vec<enqueued::News>,
    /// By uid.
    open: BTreeMap<String, Open>,
    /// By key: the last record, without its journal.
    last: BTreeMap<Key, Last>,
    /// By key: what its last pass that concluded asked.
    asked: BTreeMap<Key, enqueued::Asked>,
    /// By key: faults in a row.
    faults: BTreeMap<Key, u32>,
    /// By binding.
    bound: BTreeMap<String, Vec<bound::Form>>,
    /// When it was held up last: it stood still, had no lease, or a watch of it broke; boot milliseconds.
    disturbed: Boot,
    /// Since when keys wait for a turn that nobody of their tenant takes; world time.
    waiting: BTreeMap<Key, u64>,
    holds: bool,
    stops: bool,
    /// When keys were looked at last; world time.
    looked: u64,
}

/// A write of a host that it knows to stand.
#[derive(Clone, Copy, Debug)]
struct Own {
    version: u64,
    /// By the host's clock; unix milliseconds.
    unix: Unix,
    /// World time.
    now: u64,
}

#[derive(Debug)]
struct Last {
    ended: Boot,
    version: u64,
    uid: String,
    waits: bool,
    requests: Vec<(String, Value)>,
    meta: Meta,
    faulted: bool,
    due: Option<enqueued::Due>,
    /// A write of it met a conflict or was cut: its object is read before its next pass, which takes as long as it takes.
    reads_first: bool,
    /// What its retry policy was asked.
    retry: Option<RetryRequest>,
}

/// A pass in flight.
#[derive(Debug)]
struct Open {
    started: u64,
    /// World time.
    began: u64,
    snapshot: Meta,
    acts: Vec<(String, String)>,
    /// Its first act on a cloud came after a version that it had not looked at.
    overlooked: Option<String>,
    /// Handles of credentials that it was answered.
    handles: BTreeSet<String>,
}

/// What identifies a version of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meta {
    version: u64,
    generation: u64,
    deleting: bool,
}

impl Meta {
    fn of(object: &Object) -> Self {
        Meta {
            version: object.version().0,
            generation: object.generation().unwrap_or(0),
            deleting: object.is_deleting(),
        }
    }
}

#[derive(Deserialize)]
struct Snapshot {
    metadata: SnapshotMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotMetadata {
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

/// The world at this instant, as far as a rule needs it.
pub struct Instant<'a> {
    /// World time.
    pub now: u64,
    /// What stands in the API server.
    pub store: &'a Store,
}

impl Oracle {
    /// An oracle of a world whose policies may say anything, or do as they should.
    pub fn new(wild: bool) -> Self {
        Oracle {
            wild,
            ..Oracle::default()
        }
    }

    /// When the last pass of an object that has ended had started; world time.
    pub fn started_last(&self, uid: &str) -> Option<u64> {
        self.started.get(uid).copied()
    }

    /// A process of a host calls a policy.
    pub fn steps(&mut self, now: u64, host: &str, pass: &Pass) -> Verdict {
        let Some(Ok(Snapshot { metadata })) = pass.object.as_deref().map(serde_json::from_str) else {
            return Ok(());
        };
        let snapshot = Meta {
            version: metadata.resource_version.parse().unwrap_or(0),
            generation: metadata.generation,
            deleting: metadata.deletion_timestamp.is_some(),
        };
        let seen = self.hosts.entry(host.to_owned()).or_default();
        // A condition of the host after a fault may be acknowledged while the next pass is under way.
        let wild = self.wild;
        let before = |own: &&Own| !wild || own.unix < Unix(pass.now);
        let own = seen.acknowledged.get(&metadata.uid).into_iter().flatten();
        let own = own.filter(before).map(|own| own.version).max().unwrap_or(0);
        if !seen.open.contains_key(&metadata.uid) {
            ensure(snapshot.version >= own, Rule::Stale, || {
                format!(
                    "{host} passes {} at version {}, and wrote version {own}",
                    metadata.uid, snapshot.version
                )
            })?;
        }
        let open = seen.open.entry(metadata.uid.clone()).or_insert(Open {
            started: pass.now,
            began: now,
            snapshot,
            acts: Vec::new(),
            overlooked: None,
            handles: BTreeSet::new(),
        });
        let began = open.began;
        ensure(
            open.started == pass.now && open.snapshot == snapshot,
            Rule::Twice,
            || {
                format!(
                    "{host} runs {} again while a pass is under way: {open:?}, {snapshot:?}",
                    metadata.uid
                )
            },
        )?;
        self.sees_own_writes(host, &metadata.uid, began, pass)
    }

    /// A process of a host emits an act on a cloud.
    pub fn acts(&mut self, host: &str, uid: &str, operation: &str, arguments: &Value) -> Verdict {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        let shown = seen.shown.get(uid).copied();
        let Some(open) = seen.open.get_mut(uid) else {
            return ensure(false, Rule::ActOnce, || {
                format!("{host}: {operation} for {uid} outside of any pass")
            });
        };
        if let Some(shown) =
            shown.filter(|shown| open.acts.is_empty() && shown.version > open.snapshot.version)
        {
            let same =
                shown.generation == open.snapshot.generation && shown.deleting == open.snapshot.deleting;
            // Unless it acted on something else before, which only its record says.
            open.overlooked = (!same).then(|| {
                format!(
                    "{host}: {operation} for {uid} as of {:?}, and it had been shown {shown:?}",
                    open.snapshot
                )
            });
        }
        open.acts.push((operation.to_owned(), arguments.to_string()));
        Ok(())
    }

    /// A watch showed an object to a process, or its own write was acknowledged.
    pub fn shows(&mut self, now: u64, host: &str, object: &Object) {
        let meta = Meta::of(object);
        let seen = self.hosts.entry(host.to_owned()).or_default();
        let shown = seen.shown.entry(object.uid().to_owned()).or_default();
        if shown.version < meta.version {
            *shown = meta;
        }
        seen.news.push(enqueued::News::version(now, meta.version));
    }

    /// A process learns that its write of this object stands: when, by the world and by its own clock, and whether a policy
    /// asked for it.
    pub fn acknowledges(&mut self, (now, unix): (u64, Unix), host: &str, object: &Object, by_act: bool) {
        self.shows(now, host, object);
        let seen = self.hosts.entry(host.to_owned()).or_default();
        let own = seen.acknowledged.entry(object.uid().to_owned()).or_default();
        own.push(Own {
            version: object.version().0,
            unix,
            now,
        });
        // In a wild world a policy changes objects of other keys, too, and enqueues those.
        if !(by_act && self.wild) {
            seen.acknowledged_all.insert(object.version().0);
        }
    }

    /// A process learns that what it has done ended an object, at this version.
    pub fn knows_ended(&mut self, host: &str, version: u64) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        seen.acknowledged_all.insert(version);
    }

    /// Something that changes the world is about to be done for a process.
    pub fn changes(&self, instant: &Instant<'_>, host: &str, what: impl FnOnce() -> String) -> Verdict {
        let holder = instant.store.holder();
        ensure(holder == host, Rule::Fencing, || {
            format!("{host} does not hold the lease, {holder:?} does: {}", what())
        })
    }

    /// An object changed; `log` is everything that changed so far.
    pub fn changed(&mut self, now: u64, change: &Change, by_host: bool, log: &[Change]) -> Verdict {
        if change.after.is_none() || (change.before.is_none() && now > 0) {
            self.absent.insert(change.place.clone(), now);
        }
        let uid = change.shown.uid();
        self.turns(change, log)?;
        if by_host && !self.wild {
            self.done_to_another(change)?;
        }
        if !by_host {
            for element in changed_elements(change) {
                self.foreign.insert((uid.to_owned(), element), change.version);
            }
            return Ok(());
        }
        if self.wild {
            host_owned(change)?;
        }
        let seen = self.hosts.get(&change.author);
        let Some(open) = seen.and_then(|seen| seen.open.get(uid)) else {
            return Ok(());
        };
        self.not_overwritten(change, open.snapshot.version, log)
    }

    /// What a host changed is as its pass read it, or was never written by anybody else since.
    fn not_overwritten(&self, change: &Change, read: u64, log: &[Change]) -> Verdict {
        let uid = change.shown.uid();
        let newer = |element: &String| {
            let foreign = self.foreign.get(&(uid.to_owned(), element.clone()));
            // A condition of the host belongs to the host, even if another writer has removed it.
            let is_hosts = element.starts_with("condition polity.dev/");
            !is_hosts && foreign.is_some_and(|version| *version > read)
        };
        let changed: Vec<String> = changed_elements(change).into_iter().filter(newer).collect();
        if changed.is_empty() {
            return Ok(());
        }
        // Somebody may have put back what the pass read: nobody can tell that from nothing having happened.
        let snapshot = log
            .iter()
            .rev()
            .find(|c| c.version == read && c.shown.uid() == uid);
        let (read_as, stood) = (
            snapshot.map(|c| elements(&c.shown.tree())).unwrap_or_default(),
            change
                .before
                .as_ref()
                .map(|o| elements(&o.tree()))
                .unwrap_or_default(),
        );
        let overwritten = changed
            .iter()
            .find(|element| read_as.get(*element) != stood.get(*element));
        ensure(overwritten.is_none(), Rule::Overwritten, || {
            format!(
                "{} read {:?} at version {read} and overwrote {overwritten:?}, which somebody wrote since",
                change.author, change.place
            )
        })
    }

    /// New effects in the cloud.
    pub fn effects(&mut self, instant: &Instant<'_>, effects: &[Effect], vms: &[VmView]) -> Verdict {
        let new = &effects[self.effects..];
        self.effects = effects.len();
        for effect in new.iter().filter(|effect| effect.what == Happened::Submitted) {
            self.submitted(instant, effect)?;
        }
        if self.wild {
            return Ok(());
        }
        let mut intents = BTreeSet::new();
        for vm in vms {
            ensure(intents.insert((&vm.owner, &vm.name)), Rule::OneVm, || {
                format!("two VMs of {} named {}: {vms:?}", vm.owner, vm.name)
            })?;
        }
        self.no_leak(instant, vms)
    }

    /// Every VM has a live object.
    pub fn no_leak(&self, instant: &Instant<'_>, vms: &[VmView]) -> Verdict {
        if self.wild {
            return Ok(());
        }
        vms.iter().try_for_each(|vm| {
            let excused = self.let_go.contains(&vm.owner);
            ensure(
                excused || instant.store.by_uid(&vm.owner).is_some(),
                Rule::NoLeak,
                || format!("the object of {vm:?} is gone"),
            )
        })
    }

    fn submitted(&self, instant: &Instant<'_>, effect: &Effect) -> Verdict {
        let owner = instant.store.by_uid(&effect.owner);
        let finalizer = |o: &Object| match o.kind().kind.as_str() {
            "Guest" => super::kinds::guest::FINALIZER,
            _ => super::bindings::FINALIZER,
        };
        let let_go = self.let_go.contains(&effect.owner);
        let held = let_go || owner.is_some_and(|o| o.has_finalizer(finalizer(o)));
        ensure(held || taken_by_another(instant, effect), Rule::Finalizer, || {
            format!("{effect:?}: its object has no finalizer, {owner:?}")
        })?;
        // What its identity lets go of loses its entries, and what they announced may come all the same.
        let kept = owner.filter(|owner| !super::kinds::guest::may_leave_machines(&owner.tree()));
        let (Some(key), Some(owner)) = (&effect.key, kept) else {
            return Ok(());
        };
        let stands = has_entry(owner, key) || taken_by_another(instant, effect);
        ensure(stands, Rule::WriteAhead, || {
            format!("{effect:?}: pending is {}", owner.tree()["status"]["pending"])
        })
    }

    /// A pass of a process ended.
    pub fn recorded(&mut self, instant: &Instant<'_>, host: &str, record: &PassRecord) -> Verdict {
        self.passes += 1;
        let took = millis(record.ended.boot - record.started.boot);
        self.started
            .insert(record.uid.clone(), instant.now.saturating_sub(took));
        ensure(!matches!(record.outcome, Outcome::Bug(_)), Rule::Defect, || {
            format!("{}: {:?}", record.key, record.outcome)
        })?;
        let wanted = |object: &Json| {
            serde_json::from_str(object).is_ok_and(|object: Value| super::kinds::is_faulty(&object))
        };
        if record.outcome == Outcome::Faulted && !self.wild && !record.object.as_ref().is_some_and(wanted) {
            let fault = record.roles.iter().find_map(|role| role.fault.as_ref());
            return ensure(false, Rule::Fault, || format!("{}: {fault:?}", record.key));
        }
        self.reaches(record);
        self.not_found(instant, record)?;
        self.is_of_one_binding(host, record)?;
        let seen = self.hosts.entry(host.to_owned()).or_default();
        let open = seen.open.remove(&record.uid);
        if let Some(open) = &open {
            acts_once(record, &open.acts)?;
            denied_acts_not(record, &open.acts)?;
            let first = open.acts.first().is_some_and(|first| begins_with(record, first));
            let overlooked = open.overlooked.as_ref().filter(|_| first);
            ensure(overlooked.is_none(), Rule::Looked, || {
                overlooked.cloned().unwrap_or_default()
            })?;
        }
        self.enqueued(instant, host, record)?;
        let seen = self.hosts.entry(host.to_owned()).or_default();
        let Some(object) = &record.object else {
            return Ok(());
        };
        let value: Value = serde_json::from_str(object).unwrap_or_default();
        let snapshot = Object::new(value);
        let meta = Meta::of(&snapshot);
        let requests = requests(&snapshot);
        if let Some(last) = seen.last.get(&record.key).filter(|last| last.uid == record.uid) {
            ensure(record.started.boot >= last.ended, Rule::Twice, || {
                format!(
                    "{} of {host} began at {:?} before the pass before ended",
                    record.key, record.started.boot
                )
            })?;
            let news = requests != last.requests
                || (meta.generation, meta.deleting) != (last.meta.generation, last.meta.deleting);
            seen.enqueued_by_changes(instant.store.log(), host, (last, meta, news), record)?;
        }
        let answer = record.retry.as_ref().and_then(|retry| retry.answer);
        let any_change = matches!(answer, Some(Wait::OnChange(_)));
        let retries = record.outcome == Outcome::Published && matches!(record.next, Some(Next::Retry { .. }));
        let waits = retries && !any_change;
        let last = Last {
            ended: record.ended.boot,
            version: meta.version,
            uid: record.uid.clone(),
            waits,
            requests,
            meta,
            faulted: record.outcome == Outcome::Faulted,
            due: seen.due(record),
            reads_first: record.writes.last().is_some_and(|write| write.failure.is_some()),
            retry: record.retry.as_ref().map(|retry| retry.request.clone()),
        };
        seen.last.insert(record.key.clone(), last);
        Ok(())
    }

    /// A change stood still until it was too late, and was not sent.
    pub fn holds_back(&mut self) {
        self.reached.insert("a change was held back");
    }

    /// The answer to what a host just wrote is lost.
    pub fn loses(&mut self, author: &str, log: &[Change]) {
        let written = log.last().filter(|change| change.author == author);
        self.reached.extend(written.map(reached::lost));
    }

    /// Notes what of the seeds' aims a pass reached.
    fn reaches(&mut self, record: &PassRecord) {
        let reached = reached::by(record);
        self.reached.extend(reached);
    }

    /// What was there all along is never said to be missing.
    fn not_found(&self, instant: &Instant<'_>, record: &PassRecord) -> Verdict {
        /// The longest that a host may stand still, a watch lag and a list take.
        const LONG_AGO: u64 = 120_000;
        for entry in record.roles.iter().flat_map(|role| &role.journal) {
            let (Request::Ask(ask), Err(failure)) = (&entry.request, &entry.answer) else {
                continue;
            };
            let (Question::Object(query), Code::NotFound) = (&ask.question, failure.code) else {
                continue;
            };
            let namespace = query.object.namespace.clone().unwrap_or_default();
            let place = (
                query.object.kind.kind.clone(),
                namespace,
                query.object.name.clone(),
            );
            let missing = self
                .absent
                .get(&place)
                .is_some_and(|at| at + LONG_AGO > instant.now);
            let there = instant.store.get(&place).is_some() && !missing;
            ensure(!there, Rule::NotFound, || {
                format!(
                    "{} was told that {place:?} is not there, and it was all along",
                    record.key
                )
            })?;
        }
        Ok(())
    }
}

/// No act was emitted more often than the journal says, however the pass ended.
fn acts_once(record: &PassRecord, emitted: &[(String, String)]) -> Verdict {
    let mut asked: BTreeMap<(String, String), i64> = BTreeMap::new();
    let journal = record.roles.iter().flat_map(|role| &role.journal);
    for entry in journal {
        if let Request::Act(Act::Cloud(act)) = &entry.request {
            *asked.entry((act.operation.clone(), arguments(act))).or_default() += 1;
        }
    }
    for act in emitted {
        let left = asked.entry(act.clone()).or_default();
        *left -= 1;
        ensure(*left >= 0, Rule::ActOnce, || {
            format!("{}: {act:?} was performed once too often", record.key)
        })?;
    }
    Ok(())
}

/// Whether the first act of a pass was this one, on a cloud. What was refused never left the host.
fn begins_with(record: &PassRecord, emitted: &(String, String)) -> bool {
    let journal = record.roles.iter().flat_map(|role| &role.journal);
    let mut acts = journal.filter_map(|entry| match &entry.request {
        Request::Act(act) => Some(act),
        Request::Ask(_) => None,
    });
    let is_it = |act: &&Act| match act {
        Act::Cloud(act) => act.operation == emitted.0 && arguments(act) == emitted.1,
        // On another object, or a token: that counts, too.
        _ => true,
    };
    acts.find(is_it).is_none_or(|act| matches!(act, Act::Cloud(_)))
}

/// The arguments of an act as they are sent.
fn arguments(act: &CloudAct) -> String {
    let arguments: Value = serde_json::from_str(&act.arguments).unwrap_or_default();
    arguments.to_string()
}

/// The request annotations of an object.
fn requests(object: &Object) -> Vec<(String, Value)> {
    object.tree()["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("request.polity.dev/"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
