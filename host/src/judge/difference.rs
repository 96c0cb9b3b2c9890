//! What is different between two decisions on the same pass.

use std::collections::BTreeSet;
use std::time::Duration;

use polity_core::contract::merge::{leaves, onto};
use polity_core::contract::{
    Act, Ask, Conclusion, Entry, Event, Failure, Next, Origin, Question, RetryClass, RetryRequest, Role,
    Verdict, Wait,
};
use polity_core::fault::Fault;
use polity_core::merge::diff;
use polity_core::record::PassRecord;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::shape::{Names, cut};
use crate::display::{SHOWN, duration, shortened};

/// A kind of difference, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// A create of the same kind has another intent. In mid-flight that is a second machine.
    Intent,
    /// It breaks its contract.
    Fault,
    /// The recorded version broke its contract, and this one does not.
    NoFault,
    /// It acts before it looks, where the recorded version looked first.
    Earlier,
    /// It makes the acts in another order.
    Order,
    /// The same operation, with other arguments.
    ChangedAct,
    /// It makes an act that was not made. What came of it is not known, so nothing else is.
    WouldAct,
    /// It does not make an act that was made.
    NoLonger,
    /// The verdict of an identity policy.
    Verdict,
    /// What it changes of the object.
    Patch,
    /// When the next pass comes.
    Next,
    /// How long a retry waits.
    Wait,
    /// The edges that it notes.
    Note,
    /// The Events that it writes.
    Event,
    /// The same, but for the bytes: the recorded version itself did not decide the same again.
    Bytes,
    /// It needs an answer that was not recorded.
    WouldAsk,
    /// The answers on which the conclusion rests. It is no difference in what is decided.
    Reads,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    pub(crate) role: Role,
    pub(crate) what: What,
    /// The path, operation or reason, without what differs from object to object.
    pub(crate) of: String,
    pub(crate) was: Option<Seen>,
    pub(crate) now: Option<Seen>,
}

/// A value as it was, and its shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) shape: String,
    pub(crate) text: String,
}

impl Seen {
    /// A text that is its own shape.
    fn plain(text: impl Into<String>) -> Option<Self> {
        let text = shortened(&text.into(), SHOWN);
        Some(Seen {
            shape: text.clone(),
            text,
        })
    }
}

/// Compares decisions on a pass.
pub(super) struct Compared<'a> {
    pass: &'a PassRecord,
    role: Role,
    names: Names,
}

impl<'a> Compared<'a> {
    pub(super) fn new(pass: &'a PassRecord, role: Role) -> Self {
        Compared {
            pass,
            role,
            names: Names::of(pass),
        }
    }

    fn difference(
        &self,
        what: What,
        of: impl Into<String>,
        was: Option<Seen>,
        now: Option<Seen>,
    ) -> Difference {
        Difference {
            role: self.role,
            what,
            of: shortened(&of.into(), SHOWN),
            was,
            now,
        }
    }

    fn seen(&self, value: &Value) -> Option<Seen> {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(Seen {
            shape: self.names.shape(value),
            text: cut(text),
        })
    }

    /// The differences of two conclusions, each resting on its journal. The second one goes on where the first ends.
    pub(super) fn conclusions(
        &self,
        (verdict_was, was): (&Option<Verdict>, &Conclusion),
        (verdict_now, now): (&Option<Verdict>, &Conclusion),
        (journal_was, journal_now): (&[Entry], &[Entry]),
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        let [verdict_was, verdict_now] =
            [verdict_was, verdict_now].map(|verdict| verdict.as_ref().map(verdict_text));
        if verdict_was != verdict_now {
            let [was, now] = [verdict_was, verdict_now].map(|verdict| verdict.and_then(Seen::plain));
            found.push(self.difference(What::Verdict, "", was, now));
        }
        for entry in unused_acts(now, journal_was) {
            let act = self.seen(&document(entry));
            found.push(self.difference(What::NoLonger, entry.operation(), act, None));
        }
        self.patches(was, now, &mut found);
        let [was_next, now_next] = [was, now].map(|conclusion| next_text(&conclusion.next));
        if was_next != now_next {
            found.push(self.difference(What::Next, "", Seen::plain(was_next), Seen::plain(now_next)));
        }
        let noted = |conclusion: &Conclusion| conclusion.notes.clone();
        self.multisets(What::Note, noted(was), noted(now), &mut found);
        let told =
            |conclusion: &Conclusion| conclusion.events.iter().map(|event| self.event(event)).collect();
        self.multisets(What::Event, told(was), told(now), &mut found);
        let read = |conclusion: &Conclusion, journal: &[Entry]| -> BTreeSet<String> {
            let indices = conclusion.used.iter();
            let entries = indices.filter_map(|index| journal.get(*index as usize));
            entries
                .filter_map(super::ask_of)
                .map(|ask| self.question(&ask.question))
                .collect()
        };
        let (was, now) = (read(was, journal_was), read(now, journal_now));
        for gone in was.difference(&now) {
            found.push(self.difference(What::Reads, gone, Seen::plain("read"), None));
        }
        for new in now.difference(&was) {
            found.push(self.difference(What::Reads, new, None, Seen::plain("read")));
        }
        found
    }

    /// Compares what two patches make of the object.
    fn patches(&self, was: &Conclusion, now: &Conclusion, found: &mut Vec<Difference>) {
        let tree = |conclusion: &Conclusion| {
            let patch = conclusion.patch.as_ref()?;
            patch.tree("the patch").ok().cloned()
        };
        let (was, now) = (tree(was), tree(now));
        if was == now {
            return;
        }
        let object = self.pass.object.as_ref();
        let object: Value = object
            .and_then(|object| serde_json::from_str(object).ok())
            .unwrap_or_default();
        let [was, now] = [was, now].map(|patch| match patch {
            Some(patch) => onto(&object, &patch, &object),
            None => object.clone(),
        });
        let mut patches = Vec::new();
        self.trees(What::Patch, "", &was, &now, &mut patches);
        // The time at which a condition got its status follows from the status.
        let changes: BTreeSet<String> = patches
            .iter()
            .filter_map(|patch| patch.of.strip_suffix("].status").map(str::to_owned))
            .collect();
        let follows = |patch: &Difference| {
            let condition = patch.of.strip_suffix("].lastTransitionTime");
            condition.is_some_and(|condition| changes.contains(condition))
        };
        found.extend(patches.into_iter().filter(|patch| !follows(patch)));
    }

    /// The values that differ in two trees, each with its path.
    fn trees(&self, what: What, at: &str, was: &Value, now: &Value, found: &mut Vec<Difference>) {
        let Some(patch) = diff(was, now) else { return };
        if !patch.is_object() {
            found.push(self.difference(what, at, self.seen(was), self.seen(now)));
            return;
        }
        leaves("", &patch, Some(was), &mut |leaf| {
            let path = joined(at, &leaf.path);
            match (leaf.base, leaf.wanted.as_deref()) {
                (Some(was @ Value::Object(_)), Some(now @ Value::Object(_))) => {
                    self.trees(what, &path, was, now, found);
                }
                (Some(Value::Array(was)), Some(Value::Array(now))) => {
                    self.lists(what, &path, was, now, found)
                }
                (was, now) => {
                    let (was, now) = (
                        was.and_then(|was| self.seen(was)),
                        now.and_then(|now| self.seen(now)),
                    );
                    found.push(self.difference(what, self.path(&path), was, now));
                }
            }
        });
    }

    /// Two lists, element by element. What one has more than the other is new or gone.
    fn lists(&self, what: What, at: &str, was: &[Value], now: &[Value], found: &mut Vec<Difference>) {
        let at = format!("{at}[]");
        for index in 0..was.len().max(now.len()) {
            match (was.get(index), now.get(index)) {
                (Some(was @ Value::Object(_)), Some(now @ Value::Object(_))) => {
                    self.trees(what, &at, was, now, found)
                }
                (was, now) if was != now => {
                    let (was, now) = (
                        was.and_then(|was| self.seen(was)),
                        now.and_then(|now| self.seen(now)),
                    );
                    found.push(self.difference(what, self.path(&at), was, now));
                }
                _ => {}
            }
        }
    }

    /// A path without the keys of elements, unless they are types of conditions.
    fn path(&self, path: &str) -> String {
        let (mut shape, mut rest) = (String::new(), path);
        while let Some((before, behind)) = rest.split_once('[') {
            let (key, behind) = behind.split_once(']').unwrap_or((behind, ""));
            let key = if before.ends_with("conditions") { key } else { "" };
            shape.push_str(&format!("{}[{key}]", self.names.of_path(before)));
            rest = behind;
        }
        shape.push_str(&self.names.of_path(rest));
        shape
    }

    /// What is in one and not in the other, as often as it is.
    fn multisets(&self, what: What, was: Vec<String>, now: Vec<String>, found: &mut Vec<Difference>) {
        let less = |from: &[String], by: &[String]| {
            let mut left = from.to_vec();
            for one in by {
                if let Some(at) = left.iter().position(|other| other == one) {
                    left.remove(at);
                }
            }
            left
        };
        for gone in less(&was, &now) {
            found.push(self.difference(what, gone, Seen::plain("said"), None));
        }
        for new in less(&now, &was) {
            found.push(self.difference(what, new, None, Seen::plain("said")));
        }
    }

    fn event(&self, event: &Event) -> String {
        format!(
            "{:?} {}: {}",
            event.kind,
            event.reason,
            self.names.of_text(&event.message)
        )
    }

    /// A question in words, without what differs from object to object.
    fn question(&self, question: &Question) -> String {
        match question {
            Question::Object(query) => {
                let name = self.names.of_text(&query.object.name);
                format!("{} {name}", query.object.kind.kind)
            }
            Question::Objects(query) => format!("all {}", query.kind.kind),
            Question::Secret(secret) => format!("Secret {}", self.names.of_text(&secret.name)),
            Question::Cloud(call) => call.operation.clone(),
            Question::Lock(name) => format!("the lock {}", self.names.of_text(name)),
            Question::Credential(_) => "a credential".into(),
            Question::Reachable(_) => "whether an API server answers".into(),
        }
    }

    /// It wants these answers, which were not recorded.
    pub(super) fn would_ask(&self, asks: &[Ask]) -> Vec<Difference> {
        let asked = asks.iter().map(|ask| self.question(&ask.question));
        let asked: BTreeSet<String> = asked.collect();
        let difference = |asked| self.difference(What::WouldAsk, asked, None, Seen::plain("asked"));
        asked.into_iter().map(difference).collect()
    }

    /// It wants these acts, which were not made.
    pub(super) fn would_act(&self, acts: &[Act]) -> Vec<Difference> {
        let difference =
            |act: &Act| self.difference(What::WouldAct, act.operation(), None, self.seen(&document(act)));
        acts.iter().map(difference).collect()
    }

    /// The acts that were made in a step and those that were made later, and those that are wanted in place of that step. To
    /// make some of them later is no difference: the conclusion shows whether they are made at all.
    pub(super) fn acts(&self, made: &[&Act], later: &[&Act], wanted: &[Act]) -> Vec<Difference> {
        let mut left = made.to_vec();
        let (mut at, mut new) = (0, Vec::new());
        for act in wanted {
            match left.iter().position(|made| *made == act) {
                Some(found) if found >= at => {
                    left.remove(found);
                    at = found;
                }
                None if !later.contains(&act) => new.push(act.clone()),
                _ => {
                    let before = left.first().or(made.first()).map_or("", |made| made.operation());
                    return vec![self.difference(What::Order, before, None, Seen::plain(act.operation()))];
                }
            }
        }
        let changed = new.iter().find_map(|act| {
            let was = left.iter().find(|made| made.operation() == act.operation())?;
            Some((*was, act))
        });
        match changed {
            Some((was, now)) => self.changed_act(was, now),
            None => self.would_act(&new),
        }
    }

    fn changed_act(&self, was: &Act, alike: &Act) -> Vec<Difference> {
        let intent = |act: &Act| match act {
            Act::Cloud(act) => act.intent.clone(),
            _ => None,
        };
        let [intent_was, intent_now] = [was, alike].map(intent);
        if intent_was != intent_now {
            let seen = |intent: Option<String>| intent.and_then(|intent| self.seen(&intent.into()));
            let (was, now) = (seen(intent_was), seen(intent_now));
            return vec![self.difference(What::Intent, alike.operation(), was, now)];
        }
        let mut found = Vec::new();
        let (was, now) = (document(was), document(alike));
        self.trees(What::ChangedAct, alike.operation(), &was, &now, &mut found);
        found
    }

    pub(super) fn earlier(&self, act: &Act) -> Difference {
        self.difference(What::Earlier, act.operation(), None, self.seen(&document(act)))
    }

    pub(super) fn fault(&self, fault: &Fault) -> Difference {
        let now = self.seen(&fault.message.clone().into());
        self.difference(What::Fault, format!("{:?}", fault.kind), None, now)
    }

    pub(super) fn no_fault(&self, fault: &Fault) -> Difference {
        let was = self.seen(&fault.message.clone().into());
        self.difference(What::NoFault, format!("{:?}", fault.kind), was, None)
    }

    pub(super) fn bytes(&self) -> Difference {
        self.difference(What::Bytes, "", None, None)
    }

    /// How long a retry waits.
    pub(super) fn wait(&self, request: &RetryRequest, was: Wait, now: Wait) -> Difference {
        let origin = match request.origin {
            Origin::Identity => "identity",
            Origin::Lifecycle => "lifecycle",
            Origin::Conflict => "conflict",
            Origin::Publication => "publication",
        };
        let failure = request.failure.as_ref().map_or_else(String::new, failure_text);
        let of = format!(
            "{origin} {}{failure}, attempt {}",
            class_text(request.class),
            request.attempt
        );
        self.difference(
            What::Wait,
            of,
            Seen::plain(wait_text(was)),
            Seen::plain(wait_text(now)),
        )
    }
}

/// The acts on which a conclusion does not rest, of those in its journal.
fn unused_acts<'a>(conclusion: &Conclusion, journal: &'a [Entry]) -> Vec<&'a Act> {
    let used: BTreeSet<usize> = conclusion.used.iter().map(|index| *index as usize).collect();
    let entries = journal.iter().enumerate();
    let unused = entries.filter(|(index, _)| !used.contains(index));
    unused.filter_map(|(_, entry)| super::act_of(entry)).collect()
}

/// An act as a tree, with its documents as trees.
fn document(act: &Act) -> Value {
    let tree = |document: &polity_core::contract::Document| document.tree("").cloned().unwrap_or_default();
    match act {
        Act::Cloud(act) => tree(&act.arguments),
        Act::Create(act) => tree(&act.object),
        Act::Patch(act) => {
            json!({"object": act.object, "precondition": act.precondition, "subresource": act.subresource,
            "patch": tree(&act.patch)})
        }
        Act::Delete(act) => json!(act),
        Act::Evict(act) => json!(act),
        Act::Mint(act) => json!(act),
        Act::Revoke(_) => Map::new().into(),
    }
}

fn joined(at: &str, path: &str) -> String {
    if at.is_empty() {
        path.to_owned()
    } else {
        format!("{at}.{path}")
    }
}

/// A handle differs from run to run.
fn verdict_text(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Granted(_) => "granted",
        Verdict::Denied => "denied",
        Verdict::Released => "released",
    }
}

fn length(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

fn class_text(class: RetryClass) -> &'static str {
    match class {
        RetryClass::Conflict => "conflict",
        RetryClass::Short => "short",
        RetryClass::Medium => "medium",
        RetryClass::Long => "long",
    }
}

/// Texts of messages are for people, and not compared.
fn failure_text(failure: &Failure) -> String {
    let operation = failure
        .operation
        .as_deref()
        .map_or_else(String::new, |operation| format!(" of {operation}"));
    format!(" ({}{operation})", failure.code.as_str())
}

fn next_text(next: &Next) -> String {
    match next {
        Next::Settled(None) => "settled".into(),
        Next::Settled(Some(ms)) => format!("settled, again after {}", length(*ms)),
        Next::After(ms) => format!("after {}", length(*ms)),
        Next::Retry { class, failure } => {
            let failure = failure.as_ref().map_or_else(String::new, failure_text);
            format!("retry, {}{failure}", class_text(*class))
        }
    }
}

fn wait_text(wait: Wait) -> String {
    match wait {
        Wait::After(ms) => length(ms),
        Wait::OnChange(None) => "on a change".into(),
        Wait::OnChange(Some(ms)) => format!("on a change, at the latest {}", length(ms)),
    }
}
