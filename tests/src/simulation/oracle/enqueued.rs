//! Rules about when a key is enqueued: its pass comes when it is due, or when something changed that its last pass used,
//! and at no other time.

use std::time::Duration;

use polity_core::binding::PolicyId;
use polity_core::call::Reply;
use polity_core::contract::{Cause, Json, Question, Request, Role};
use polity_core::key::Key;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::{Boot, millis};

use super::{Instant, Last, Meta, Oracle, Rule, Seen, Verdict, ensure};
use crate::simulation::kinds;
use crate::simulation::store::{Change, selects};

/// So late a pass may come: a key that passes too often waits a second for each pass.
const SLACK: Duration = Duration::from_secs(5);
/// Milliseconds that a key may wait for its turn while nobody of its tenant has one.
const FAIR: u64 = 5_000;

/// Something that a watch showed to a process, or that it wrote itself.
#[derive(Clone, Debug)]
pub(super) struct News {
    /// World time.
    now: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// This version of some object.
    Version(u64),
    /// All objects of a kind.
    List(String),
    /// That something is not there, as an answer said.
    Gone,
}

impl News {
    pub(super) fn version(now: u64, version: u64) -> Self {
        News {
            now,
            what: What::Version(version),
        }
    }
}

/// What the last pass of a key that concluded asked of watches.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    uid: String,
    /// World time.
    started: u64,
    questions: Vec<Question>,
}

/// When a key that waits is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    from: Boot,
    until: Boot,
}

impl Oracle {
    /// A watch lists a kind for a process: what it does not name is gone.
    pub fn lists(&mut self, now: u64, host: &str, kind: &str) {
        let what = What::List(kind.to_owned());
        let seen = self.hosts.entry(host.to_owned()).or_default();
        seen.news.push(News { now, what });
    }

    /// A process learns the state of objects from an answer. What enters its cache in this way is news for all keys that used
    /// these objects.
    pub fn reads(&mut self, now: u64, host: &str, reply: &Reply) {
        let Reply::Objects(Ok(found)) = reply else { return };
        let versions = found.iter().map(|object| object.version().0);
        let seen = self.hosts.entry(host.to_owned()).or_default();
        seen.news
            .extend(versions.map(|version| News::version(now, version)));
    }

    /// A process is told by an answer that something is gone.
    pub fn misses(&mut self, now: u64, host: &str) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        seen.news.push(News {
            now,
            what: What::Gone,
        });
    }

    /// A process was held up until now: by its clock.
    pub fn disturbs(&mut self, host: &str, boot: Boot) {
        self.hosts.entry(host.to_owned()).or_default().disturbed = boot;
    }

    /// A process says whether it holds the lease.
    pub fn holds(&mut self, host: &str, boot: Boot, holds: bool) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        if holds != seen.holds && !seen.stops {
            (seen.holds, seen.disturbed) = (holds, boot);
            seen.waiting.clear();
        }
    }

    /// A process was told to stop: no key of it gets another turn.
    pub fn stops(&mut self, host: &str) {
        let seen = self.hosts.entry(host.to_owned()).or_default();
        (seen.stops, seen.holds) = (true, false);
    }

    /// A process forgets a key.
    pub fn forgets(&mut self, host: &str, key: &Key) {
        if let Some(seen) = self.hosts.get_mut(host) {
            seen.last.remove(key);
            seen.asked.remove(key);
            seen.faults.remove(key);
            seen.waiting.remove(key);
        }
    }

    /// The keys of a process: whether each has a turn coming, and whether a pass of it is in flight.
    pub fn keys<'k>(
        &mut self,
        now: u64,
        host: &str,
        keys: impl Iterator<Item = (&'k Key, bool, bool)>,
    ) -> Verdict {
        /// Milliseconds between looks.
        const LOOK_EVERY: u64 = 200;
        let seen = self.hosts.entry(host.to_owned()).or_default();
        if !seen.holds || now < seen.looked + LOOK_EVERY {
            return Ok(());
        }
        seen.looked = now;
        let keys: Vec<_> = keys.collect();
        for (key, queued, running) in &keys {
            let busy = keys.iter().any(|(other, _, runs)| {
                *runs && (&other.binding, &other.namespace) == (&key.binding, &key.namespace)
            });
            if !queued || *running || busy {
                seen.waiting.remove(*key);
                continue;
            }
            let since = *seen.waiting.entry((*key).clone()).or_insert(now);
            ensure(now <= since + FAIR, Rule::Starved, || {
                format!("{key} of {host} waits since {since}, and no pass of its tenant is under way")
            })?;
        }
        Ok(())
    }

    /// A pass began: checks what enqueued it, and whether it began at its time.
    pub(super) fn enqueued(&mut self, instant: &Instant<'_>, host: &str, record: &PassRecord) -> Verdict {
        let Some(seen) = self.hosts.get_mut(host) else {
            return Ok(());
        };
        if matches!(record.causes[..], [Cause::Dependency(_)]) && !self.wild {
            seen.used(instant.store.log(), host, record)?;
        }
        if let Some(last) = seen.last.get(&record.key).filter(|last| last.uid == record.uid) {
            seen.in_time(host, last, record)?;
        }
        seen.remember(instant.now, record);
        Ok(())
    }
}

impl Seen {
    /// When the key of a pass is due, as it ended.
    pub(super) fn due(&self, record: &PassRecord) -> Option<Due> {
        let mut wait = record.wait?;
        let current = self.form(&record.key.binding, record.ended.boot);
        if let (Some(retry), Some(form)) = (&record.retry, current)
            && let Some((policy, config)) = form.policies.get(&Role::Retry)
            && (policy, config) != (&retry.policy, &retry.request.config)
        {
            // It was swapped while the pass was under way: the new one is asked again.
            let mut request = retry.request.clone();
            request.config = config.clone();
            wait = kinds::at_latest(kinds::decide(policy, &request));
        }
        let due = record.ended.boot + wait;
        let faulty = record.outcome == Outcome::Faulted;
        let until = if faulty { Boot::MAX } else { due };
        Some(Due { from: due, until })
    }

    /// A retry policy was swapped: it is asked again about each key that waits.
    pub(super) fn swapped(&mut self, binding: &str, policy: &PolicyId, config: &Json, boot: Boot) {
        let of_binding = |(key, _): &(&Key, &mut Last)| *key.binding == *binding;
        for (_, last) in self.last.iter_mut().filter(of_binding) {
            if let Some((due, request)) = last.due.as_mut().zip(last.retry.as_mut()) {
                request.config = config.clone();
                let new = last.ended + kinds::at_latest(kinds::decide(policy, request));
                due.from = due.from.min(new);
                due.until = if last.faulted { Boot::MAX } else { new.max(boot) };
            }
        }
    }

    /// A pass that began because its object changed saw more than its host's own writes; while its key waited to retry,
    /// something new.
    pub(super) fn enqueued_by_changes(
        &self,
        log: &[Change],
        host: &str,
        (last, meta, news): (&Last, Meta, bool),
        record: &PassRecord,
    ) -> Verdict {
        let by_change = |cause: &Cause| matches!(cause, Cause::Changed | Cause::Created);
        if !record.causes.iter().all(by_change) {
            return Ok(());
        }
        ensure(!last.waits || news, Rule::Heartbeat, || {
            format!("{} waited to retry and was enqueued by nothing new", record.key)
        })?;
        let own = log
            .iter()
            .rev()
            .take_while(|change| change.version > last.version)
            .filter(|change| change.version <= meta.version && change.shown.uid() == record.uid)
            .all(|change| change.author == host && self.acknowledged_all.contains(&change.version));
        ensure(!own, Rule::OwnWrite, || {
            format!(
                "{} of {host} was enqueued by its own writes: {:?}, it saw versions {} and then {}",
                record.key, record.causes, last.version, meta.version
            )
        })
    }

    /// What enqueued a pass is something that its key's last pass used, and not its own doing.
    fn used(&self, log: &[Change], host: &str, record: &PassRecord) -> Verdict {
        let Some(asked) = self
            .asked
            .get(&record.key)
            .filter(|asked| asked.uid == record.uid)
        else {
            return Ok(());
        };
        let (mut concerned, mut foreign) = (false, false);
        for news in self
            .news
            .iter()
            .rev()
            .take_while(|news| news.now >= asked.started)
        {
            match &news.what {
                What::Gone => (concerned, foreign) = (true, true),
                What::List(kind) => {
                    let of_kind = asked
                        .questions
                        .iter()
                        .any(|question| kind_of(question) == Some(kind));
                    (concerned, foreign) = (concerned || of_kind, foreign || of_kind);
                }
                What::Version(version) => {
                    for change in told(log, *version) {
                        if asked.questions.iter().any(|question| concerns(question, change)) {
                            concerned = true;
                            foreign |= !self.is_own(host, record, change);
                        }
                    }
                }
            }
        }
        ensure(concerned, Rule::Enqueued, || {
            format!(
                "{} of {host} was enqueued by nothing that its last pass used",
                record.key
            )
        })?;
        ensure(foreign, Rule::OwnWrite, || {
            format!(
                "{} of {host} was enqueued by nothing but what it wrote itself",
                record.key
            )
        })
    }

    /// Whether a change is one that a pass of this very object made, and knows to stand. A write that named no version may
    /// stand on what somebody else wrote, so it is none.
    fn is_own(&self, host: &str, record: &PassRecord, change: &Change) -> bool {
        let shown = change.shown.tree();
        let of_it = shown["metadata"]["labels"]["owner"] == record.uid || change.shown.uid() == record.uid;
        let acknowledged = self.acknowledged_all.contains(&change.version);
        change.author == host && of_it && acknowledged && !kinds::site::is_mark(change)
    }

    /// A key passes at its time.
    fn in_time(&self, host: &str, last: &Last, record: &PassRecord) -> Verdict {
        let Some(due) = last.due else { return Ok(()) };
        let started = record.started.boot;
        let on_time = record.causes == [Cause::Due];
        // Where a retry policy decides, its word counts.
        if last.faulted && last.retry.is_none() && on_time {
            let row = self.faults.get(&record.key).copied().unwrap_or(1).max(1);
            let least = Duration::from_millis((1_000u64 << (row - 1).min(10)).min(600_000) * 3 / 4);
            ensure(started >= last.ended + least, Rule::Quarantine, || {
                format!(
                    "{} of {host} faulted {row} times and is tried again after {:?}",
                    record.key,
                    started - last.ended
                )
            })?;
        }
        ensure(!on_time || started >= due.from, Rule::Early, || {
            format!(
                "{} of {host} waited until {:?} and began at {started:?}",
                record.key, due.from
            )
        })?;
        // Passes of Guests wait for one another.
        let latest = due.until.max(self.disturbed) + SLACK;
        let waits_for_others = *record.key.binding == *"guests";
        let may_wait = waits_for_others || last.reads_first;
        ensure(may_wait || started <= latest, Rule::Late, || {
            format!(
                "{} of {host} was due at {:?} and began at {started:?}: {:?}",
                record.key, due.until, record.causes
            )
        })
    }

    fn remember(&mut self, now: u64, record: &PassRecord) {
        let row = self.faults.entry(record.key.clone()).or_default();
        match record.outcome {
            Outcome::Faulted => *row += 1,
            Outcome::Published | Outcome::Denied | Outcome::Released => *row = 0,
            _ => {}
        }
        // What was concluded counts, although it could not be written.
        if !record.outcome.is_concluded() && !matches!(record.outcome, Outcome::Failed(_)) {
            return;
        }
        // Of a role that a refused write ended before it concluded, all counts that it asked.
        let used = |role: &polity_core::record::RoleRecord| {
            let conclusion = role.conclusion.as_ref().map(|conclusion| conclusion.used.clone());
            let all = || (0..).take(role.journal.len()).collect();
            let entries = conclusion.unwrap_or_else(all).into_iter();
            let requests = entries.filter_map(|index| role.journal.get(index as usize));
            requests.map(|entry| entry.request.clone()).collect::<Vec<_>>()
        };
        let asked = Asked {
            uid: record.uid.clone(),
            // It may have overslept: then it began later than this.
            started: now.saturating_sub(millis(record.ended.boot - record.started.boot)),
            questions: record
                .roles
                .iter()
                .flat_map(used)
                .filter_map(|request| match request {
                    Request::Ask(ask) => Some(ask.question),
                    Request::Act(_) => None,
                })
                .collect(),
        };
        self.asked.insert(record.key.clone(), asked);
    }
}

fn kind_of(question: &Question) -> Option<&String> {
    match question {
        Question::Object(query) => Some(&query.object.kind.kind),
        Question::Objects(query) => Some(&query.kind.kind),
        _ => None,
    }
}

/// The changes that a version tells of: the one that made it, and below a write onto any version also what others wrote.
fn told(log: &[Change], version: u64) -> impl Iterator<Item = &Change> {
    let index = log.binary_search_by_key(&version, |change| change.version).ok();
    let made = index.and_then(|index| log.get(index));
    let marked = made.filter(|made| kinds::site::is_mark(made));
    let below = &log[..index.unwrap_or(0)];
    let of_place = move |other: &&Change| marked.is_some_and(|marked| other.place == marked.place);
    made.into_iter().chain(below.iter().filter(of_place))
}

/// Whether a change can concern the answer to a question.
fn concerns(question: &Question, change: &Change) -> bool {
    let (kind, namespace, name) = &change.place;
    match question {
        Question::Object(query) => {
            let object = &query.object;
            object.kind.kind == *kind
                && object.name == *name
                && object.namespace.as_deref() == Some(namespace)
        }
        Question::Objects(query) => [&change.before, &change.after]
            .into_iter()
            .flatten()
            .any(|object| selects(query, object)),
        _ => false,
    }
}
