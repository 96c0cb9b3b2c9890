//! Checks whether a pass did what its notes mean.
//!
//! `tests/evidence.tsv` lists, for each id that a policy notes, what the recording of that pass must show: in
//! the journal of the role that noted it, in its patch, or in the object after the patch. The file explains
//! its words. A pass that was not published has written nothing, so only its requests are checked.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use polity_core::contract::{
    Act, Code, Conclusion, Effect, Entry, Next, Question, Request, Resolution, RetryClass, Verdict,
};
use polity_core::merge::Part;
use polity_core::record::{PassRecord, RoleRecord, WritePurpose, WriteRecord};
use serde_json::Value;

use crate::simulation::store::merge;

/// The prefixes of the ids of the shipped policies.
const PREFIXES: [&str; 5] = ["CAPV-", "MCM-", "CAPA-", "ORB-", "RUG-"];

/// The evidence of each id. It is read while the tests run, so a change needs no build.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/evidence.tsv");
    Table::read(&std::fs::read_to_string(path).expect("the table is readable"))
});

/// The notes of a pass without evidence, in one sentence each.
pub fn wrong_notes(record: &PassRecord) -> Vec<String> {
    TABLE.wrong_notes(record)
}

/// The notes without evidence in the passes of a test. In the end there must be none.
#[derive(Default)]
pub struct Notes(Checker);

/// Checks passes as they end.
#[derive(Clone, Default)]
pub struct Checker(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// A checker of passes for this test.
    pub fn checker(&self) -> Checker {
        self.0.clone()
    }
}

impl Checker {
    /// Checks a pass.
    pub fn passed(&self, record: &PassRecord) {
        self.wrong().extend(wrong_notes(record));
    }

    fn wrong(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The check is not in the last checker's drop: that is dropped with its host's task, where a panic is
/// swallowed.
impl Drop for Notes {
    fn drop(&mut self) {
        let wrong = self.0.wrong();
        // A test that has failed already gives its reason.
        let silent = wrong.is_empty() || std::thread::panicking();
        assert!(silent, "notes of what was not done:\n{}", wrong.join("\n"));
    }
}

/// For each id the words that must all hold. Each word is a list of alternatives.
struct Table(BTreeMap<String, Vec<Vec<Word>>>);

/// One piece of evidence.
struct Word {
    text: String,
    negated: bool,
    what: What,
}

enum What {
    /// A request with this name, its end, and a value in its arguments or answer.
    Request {
        name: String,
        end: Option<End>,
        holds: Option<(String, String)>,
    },
    /// The patch writes this path.
    Writes(String),
    /// The object after the patch has this value: `-` for none, `*` for any.
    Has(String, String),
    /// The patch adds a finalizer, or removes one.
    Finalizer { added: bool },
    /// The pass was given an act in doubt with this resolution.
    Resolution(String),
    /// The verdict of an identity policy.
    Verdict(String),
    /// The `next` of the pass.
    Next(String),
    /// An Event with this reason.
    Event(String),
    /// The object is of this kind.
    Kind(String),
    /// The object is being deleted.
    Deleting,
    /// The same pass notes this id.
    Noted(String),
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// An answer that is not null.
    Ok,
    /// The thing does not exist.
    None,
    /// The request is not allowed.
    Denied,
    /// It is unknown whether it was done.
    Lost,
    /// Another failure.
    Failed,
}

impl End {
    /// Whether this end matches a word.
    fn is(self, wanted: End) -> bool {
        self == wanted || (wanted == End::Failed && matches!(self, End::Denied | End::Lost))
    }
}

impl Table {
    /// # Panics
    /// If a line cannot be read.
    fn read(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = |line: &str| {
            let (id, words) = line.split_once('\t').unwrap_or_else(|| panic!("no tab: {line}"));
            let words = words.split(' ').filter(|word| !word.is_empty() && *word != "-");
            let words = words.map(|word| word.split('|').map(Word::read).collect());
            (id.to_owned(), words.collect())
        };
        let mut table = BTreeMap::new();
        for (id, words) in lines.map(line) {
            assert!(table.insert(id.clone(), words).is_none(), "{id} has two lines");
        }
        Table(table)
    }

    fn wrong_notes(&self, record: &PassRecord) -> Vec<String> {
        let roles = record.roles.iter();
        let concluded = roles.filter_map(|role| Some((role, role.conclusion.as_ref()?)));
        concluded
            .flat_map(|(role, conclusion)| {
                let seen = Seen::of(record, role, conclusion);
                let mut ids: Vec<&String> = conclusion.notes.iter().collect();
                ids.sort();
                ids.dedup();
                ids.into_iter()
                    .filter_map(|id| self.wrong(id, &seen))
                    .map(|wrong| {
                        let (object, pass) = (&record.key.name, record.pass.0);
                        format!("pass {pass} of {object}, {:?}: {wrong}", record.outcome)
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn wrong(&self, id: &str, seen: &Seen<'_>) -> Option<String> {
        let Some(words) = self.0.get(id) else {
            // Policies of tests may note anything.
            let ours = PREFIXES.iter().any(|prefix| id.starts_with(prefix));
            return ours.then(|| format!("{id} has no line in tests/evidence.tsv"));
        };
        let missing = words
            .iter()
            .find(|any| !any.iter().any(|word| seen.shows(word, id)))?;
        let missing: Vec<&str> = missing.iter().map(|word| word.text.as_str()).collect();
        Some(format!(
            "it notes {id} and does not show {}: its requests were {:?}, its patch {}",
            missing.join("|"),
            seen.requests(),
            seen.patch
        ))
    }
}

impl Word {
    /// # Panics
    /// If it is no word.
    fn read(word: &str) -> Self {
        let (negated, text) = match word.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        let is_path = ["metadata.", "spec.", "status."]
            .iter()
            .any(|part| text.starts_with(part));
        let (name, value) = match text.rsplit_once('=') {
            Some((name, value)) if !value.ends_with('}') => (name, Some(value)),
            _ => (text, None),
        };
        let owned = |value: Option<&str>| value.map(str::to_owned).unwrap_or_default();
        let what = match (name, value) {
            ("+finalizer", None) => What::Finalizer { added: true },
            ("-finalizer", None) => What::Finalizer { added: false },
            ("deleting", None) => What::Deleting,
            ("doubt", _) => What::Resolution(owned(value)),
            ("verdict", _) => What::Verdict(owned(value)),
            ("next", _) => What::Next(owned(value)),
            ("event", _) => What::Event(owned(value)),
            ("kind", _) => What::Kind(owned(value)),
            ("noted", _) => What::Noted(owned(value)),
            (path, Some(value)) if is_path => What::Has(path.to_owned(), value.to_owned()),
            (path, None) if is_path => What::Writes(path.to_owned()),
            (request, end) => request_word(request, end),
        };
        Word {
            text: word.to_owned(),
            negated,
            what,
        }
    }
}

fn request_word(text: &str, end: Option<&str>) -> What {
    let end = end.map(|end| match end {
        "ok" => End::Ok,
        "none" => End::None,
        "denied" => End::Denied,
        "lost" => End::Lost,
        "failed" => End::Failed,
        other => panic!("{text} cannot end with {other}"),
    });
    let (name, holds) = match text.split_once('{') {
        Some((name, holds)) => (name, Some(holds.trim_end_matches('}'))),
        None => (text, None),
    };
    let holds = holds.map(|holds| {
        let (path, value) = holds
            .rsplit_once('=')
            .unwrap_or_else(|| panic!("no value: {text}"));
        (path.to_owned(), value.to_owned())
    });
    What::Request {
        name: name.to_owned(),
        end,
        holds,
    }
}

/// The evidence of one role in the recording of a pass.
struct Seen<'a> {
    record: &'a PassRecord,
    role: &'a RoleRecord,
    conclusion: &'a Conclusion,
    /// The object before the pass.
    before: Value,
    patch: Value,
    /// The object after the patch.
    after: Value,
}

impl<'a> Seen<'a> {
    fn of(record: &'a PassRecord, role: &'a RoleRecord, conclusion: &'a Conclusion) -> Self {
        let before = record.object.as_deref().map(json).unwrap_or_default();
        let patch = conclusion
            .patch
            .as_ref()
            .map(|patch| json(patch))
            .unwrap_or_default();
        let mut after = before.clone();
        if patch.is_object() {
            merge(&mut after, &patch);
        }
        Seen {
            record,
            role,
            conclusion,
            before,
            patch,
            after,
        }
    }

    /// Whether there is this evidence. What an unpublished pass would have written cannot be seen.
    fn shows(&self, word: &Word, id: &str) -> bool {
        let is_written = matches!(
            word.what,
            What::Writes(_) | What::Has(..) | What::Finalizer { .. }
        );
        (is_written && !self.publishes()) || self.holds(&word.what, id) != word.negated
    }

    fn holds(&self, what: &What, id: &str) -> bool {
        match what {
            What::Request { name, end, holds } => {
                let fitting = self.role.journal.iter().filter(|entry| {
                    name_of(&entry.request) == *name
                        && end.is_none_or(|end| end_of(entry).is(end))
                        && holds
                            .as_ref()
                            .is_none_or(|(path, value)| has_value(entry, path, value))
                });
                let (acts, asks): (Vec<&Entry>, Vec<&Entry>) =
                    fitting.partition(|entry| matches!(entry.request, Request::Act(_)));
                // If an id is noted several times, the act must have been done as often. Equal asks share one
                // answer.
                let noted = self.conclusion.notes.iter().filter(|note| *note == id).count();
                !asks.is_empty() || acts.len() >= noted
            }
            What::Writes(path) => get(&self.patch, path).is_some() && self.has_written(),
            What::Has(path, value) => is(get(&self.after, path), value),
            What::Finalizer { added } => {
                let (before, after) = (finalizers(&self.before), finalizers(&self.after));
                self.has_written() && if *added { after > before } else { after < before }
            }
            What::Resolution(state) => self
                .role
                .pending
                .iter()
                .any(|act| resolution(&act.resolution) == state),
            What::Verdict(wanted) => verdict(self.role.verdict.as_ref()) == wanted,
            What::Next(wanted) => next(&self.conclusion.next).contains(&wanted.as_str()),
            What::Event(reason) => self.conclusion.events.iter().any(|event| event.reason == *reason),
            What::Kind(kind) => {
                let of_object = self.before["kind"].as_str();
                of_object.unwrap_or(&self.record.kind.kind) == kind
            }
            What::Deleting => get(&self.before, "metadata.deletionTimestamp").is_some_and(Value::is_string),
            What::Noted(other) => self.conclusion.notes.contains(other),
        }
    }

    /// Whether the pass was to be published.
    fn publishes(&self) -> bool {
        self.record.outcome.is_concluded()
    }

    /// Whether the host wrote the conclusion. A pass without a host has no writes. A write whose answer was
    /// lost counts once the host has found its result. An object that is gone needs no removal of its
    /// finalizer.
    fn has_written(&self) -> bool {
        let writes = &self.record.writes;
        let stands = |write: &&WriteRecord| match (&write.failure, write.purpose) {
            (None, _) => true,
            (Some(failure), WritePurpose::Publish(Part::Finalizer)) if failure.code == Code::NotFound => true,
            (Some(failure), _) => failure.effect == Effect::Unknown,
        };
        let is_published = |write: &&WriteRecord| matches!(write.purpose, WritePurpose::Publish(_));
        writes.is_empty() || writes.iter().filter(is_published).any(|write| stands(&write))
    }

    fn requests(&self) -> Vec<String> {
        let journal = self.role.journal.iter();
        journal
            .map(|entry| format!("{} {:?}", name_of(&entry.request), end_of(entry)))
            .collect()
    }
}

/// The name of a request in the table.
fn name_of(request: &Request) -> String {
    match request {
        Request::Ask(ask) => match &ask.question {
            Question::Object(query) => format!("get:{}", query.object.kind.kind),
            Question::Objects(query) => format!("list:{}", query.kind.kind),
            Question::Secret(_) => "secret".to_owned(),
            Question::Cloud(call) => call.operation.clone(),
            Question::Lock(_) => "lock".to_owned(),
            Question::Credential(_) => "credential".to_owned(),
            Question::Reachable(_) => "reachable".to_owned(),
        },
        Request::Act(act) => match act {
            Act::Cloud(act) => act.operation.clone(),
            Act::Create(act) => {
                let object = json(&act.object);
                format!("create:{}", object["kind"].as_str().unwrap_or_default())
            }
            Act::Patch(patch) => format!("patch:{}", patch.object.kind.kind),
            Act::Delete(delete) => format!("delete:{}", delete.object.kind.kind),
            Act::Evict(_) => "evict".to_owned(),
            Act::Mint(mint) => format!("mint:{}", mint.kind),
            Act::Revoke(_) => "revoke".to_owned(),
        },
    }
}

fn end_of(entry: &Entry) -> End {
    match &entry.answer {
        Ok(answer) if answer.trim() == "null" => End::None,
        Ok(_) => End::Ok,
        Err(failure) if failure.code == Code::NotFound => End::None,
        Err(failure) if failure.code == Code::PermissionDenied => End::Denied,
        Err(failure) if failure.effect == Effect::Unknown => End::Lost,
        Err(_) => End::Failed,
    }
}

/// Whether a request or its answer has this value.
fn has_value(entry: &Entry, path: &str, value: &str) -> bool {
    let sent = match &entry.request {
        Request::Act(Act::Patch(patch)) => Some(patch.patch.to_string()),
        Request::Act(Act::Cloud(act)) => Some(act.arguments.to_string()),
        Request::Act(Act::Create(act)) => Some(act.object.to_string()),
        _ => None,
    };
    let answered = entry.answer.as_deref().ok().map(str::to_owned);
    [sent, answered]
        .into_iter()
        .flatten()
        .any(|text| is(get(&json(&text), path), value))
}

/// The value at a path: parts between dots, or between brackets where a part has dots itself; an element of a list by its type.
fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (part, after) = match rest.strip_prefix('[') {
            Some(verbatim) => verbatim.split_once(']').unwrap_or((verbatim, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        parts.push(part);
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    parts.into_iter().try_fold(value, |value, part| match value {
        Value::Array(list) => list.iter().find(|element| element["type"] == part),
        _ => value.get(part),
    })
}

fn is(found: Option<&Value>, wanted: &str) -> bool {
    let found = found.filter(|found| match found {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    });
    match (wanted, found) {
        ("-", found) => found.is_none(),
        (_, None) => false,
        ("*", Some(_)) => true,
        (wanted, Some(Value::String(text))) => text == wanted,
        (wanted, Some(other)) => json(wanted) == *other,
    }
}

fn finalizers(object: &Value) -> usize {
    let list = get(object, "metadata.finalizers").and_then(Value::as_array);
    list.map_or(0, Vec::len)
}

fn resolution(state: &Resolution) -> &'static str {
    match state {
        Resolution::Done(_) => "done",
        Resolution::Absent => "absent",
        Resolution::Unknown(_) => "unknown",
    }
}

fn verdict(verdict: Option<&Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Granted(_)) => "granted",
        Some(Verdict::Denied) => "denied",
        Some(Verdict::Released) => "released",
        None => "",
    }
}

fn next(next: &Next) -> &'static [&'static str] {
    match next {
        Next::Settled(_) => &["settled"],
        Next::After(_) => &["after"],
        Next::Retry { class, .. } => match class {
            RetryClass::Conflict => &["retry", "conflict"],
            RetryClass::Short => &["retry", "short"],
            RetryClass::Medium => &["retry", "medium"],
            RetryClass::Long => &["retry", "long"],
        },
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use polity_core::contract::{CloudAct, Failure};
    use polity_core::key::{Key, PassId};
    use polity_core::record::{Discard, Outcome};
    use polity_core::time::Now;
    use serde_json::json;

    use super::*;

    /// A published pass of a machine with these notes, acts and patch.
    fn pass(notes: &[&str], acts: &[(&str, Result<Value, Failure>)], patch: Value) -> PassRecord {
        let now = Now::default();
        let entry = |(operation, answer): &(&str, Result<Value, Failure>)| Entry {
            request: Request::Act(Act::Cloud(CloudAct {
                operation: (*operation).to_owned(),
                arguments: "{}".into(),
                intent: None,
            })),
            answer: answer.clone().map(|answer| answer.to_string().into()),
        };
        let role = json!({
            "role": "lifecycle", "policy": "", "config": "{}", "pending": [], "steps": 1, "fuel": 0, "journal": [],
            "verdict": null, "conclusion": null, "fault": null,
        });
        let mut role: RoleRecord = serde_json::from_value(role).expect("a role");
        role.journal = acts.iter().map(entry).collect();
        role.conclusion = Some(Conclusion {
            patch: (!patch.is_null()).then(|| patch.to_string().into()),
            events: Vec::new(),
            notes: notes.iter().map(|id| (*id).to_owned()).collect(),
            next: Next::After(20_000),
            used: Vec::new(),
        });
        let object =
            json!({"metadata": {"finalizers": ["a", "b"]}, "status": {"phase": "Cloning", "taskRef": "t"}});
        PassRecord {
            binding: "".into(),
            pass: PassId(1),
            key: Key {
                binding: "b".into(),
                namespace: None,
                name: "m-1".into(),
            },
            kind: polity_core::contract::Kind {
                api_version: "v1".into(),
                kind: "Machine".into(),
            },
            uid: String::new(),
            started: now,
            queued: std::time::Duration::ZERO,
            ended: now,
            causes: Vec::new(),
            attempt: 0,
            object: Some(object.to_string().into()),
            roles: vec![role],
            outcome: Outcome::Published,
            writes: Vec::new(),
            next: None,
            retry: None,
            wait: None,
            shortened: false,
        }
    }

    /// The evidence that is missing by this table.
    fn missing(table: &str, record: &PassRecord) -> Vec<String> {
        let wrong = Table::read(table).wrong_notes(record).into_iter();
        let word = |wrong: String| {
            let (_, rest) = wrong.split_once(" does not show ").expect("a word");
            rest.split_once(':').expect("what it did").0.to_owned()
        };
        wrong.map(word).collect()
    }

    fn ok() -> Result<Value, Failure> {
        Ok(json!({"id": "task-1"}))
    }

    #[test]
    fn an_act_that_was_not_performed_must_not_be_noted() {
        let table = "CAPV-23\tvm.clone=ok";
        let failure = Failure::new(Code::Unavailable, "no");
        for (acts, wanted) in [
            (vec![], "vm.clone=ok"),
            (vec![("vm.destroy", ok())], "vm.clone=ok"),
            (vec![("vm.clone", Err(failure))], "vm.clone=ok"),
            (vec![("vm.clone", ok())], ""),
        ] {
            let found = missing(table, &pass(&["CAPV-23"], &acts, Value::Null));
            assert_eq!(found.join(" "), wanted, "{acts:?}");
        }
    }

    #[test]
    fn what_is_noted_of_each_was_done_as_often() {
        let (table, twice) = ("ORB-05\tagent.install=ok", ["ORB-05", "ORB-05"]);
        let once = [("agent.install", ok())];
        assert_eq!(
            missing(table, &pass(&twice, &once, Value::Null)),
            ["agent.install=ok"]
        );
        let both = [("agent.install", ok()), ("agent.install", ok())];
        assert_eq!(missing(table, &pass(&twice, &both, Value::Null)), [""; 0]);
    }

    #[test]
    fn a_failure_of_unknown_effect_is_no_definite_one() {
        let table = "MCM-C07\tmachine.create=failed !machine.create=lost";
        let lost = Failure::new(Code::Unavailable, "no").effect_unknown();
        let acts = [("machine.create", Err(lost))];
        assert_eq!(
            missing(table, &pass(&["MCM-C07"], &acts, Value::Null)),
            ["!machine.create=lost"]
        );
    }

    #[test]
    fn what_is_noted_as_written_is_in_the_patch() {
        let table = "MCM-D26\tstatus.lastOperation";
        let note = |patch| missing(table, &pass(&["MCM-D26"], &[], patch));
        assert_eq!(note(Value::Null), ["status.lastOperation"]);
        assert_eq!(
            note(json!({"status": {"phase": "Running"}})),
            ["status.lastOperation"]
        );
        assert_eq!(note(json!({"status": {"lastOperation": null}})), [""; 0]);
    }

    #[test]
    fn a_value_is_that_of_the_object_as_the_patch_leaves_it() {
        let table = "CAPV-29\tstatus.phase=Running status.taskRef=-";
        let note = |patch| missing(table, &pass(&["CAPV-29"], &[], patch));
        assert_eq!(note(Value::Null), ["status.phase=Running"]);
        assert_eq!(
            note(json!({"status": {"phase": "Running"}})),
            ["status.taskRef=-"]
        );
        assert_eq!(
            note(json!({"status": {"phase": "Running", "taskRef": null}})),
            [""; 0]
        );
    }

    #[test]
    fn a_finalizer_that_stays_must_not_be_noted_as_removed() {
        let note = |patch| missing("CAPV-21\t-finalizer", &pass(&["CAPV-21"], &[], patch));
        assert_eq!(note(Value::Null), ["-finalizer"]);
        assert_eq!(note(json!({"metadata": {"finalizers": ["b"]}})), [""; 0]);
        let mut gone = pass(&["CAPV-21"], &[], json!({"metadata": {"finalizers": ["b"]}}));
        let write = |purpose, code| WriteRecord {
            purpose,
            version: None,
            failure: Some(Failure::new(code, "x")),
        };
        gone.writes = vec![write(WritePurpose::Publish(Part::Finalizer), Code::NotFound)];
        assert_eq!(missing("CAPV-21\t-finalizer", &gone), [""; 0]);
        gone.writes = vec![write(WritePurpose::Publish(Part::Main), Code::NotFound)];
        assert_eq!(missing("CAPV-21\t-finalizer", &gone), ["-finalizer"]);
    }

    #[test]
    fn what_the_host_did_not_write_is_not_written() {
        let mut record = pass(&["RUG-26"], &[], json!({"status": {"traffic": [1]}}));
        let table = "RUG-26\tstatus.traffic";
        let write = |failure| WriteRecord {
            purpose: WritePurpose::Publish(Part::Status),
            version: Some(2),
            failure,
        };
        record.writes = vec![write(Some(Failure::new(Code::Unavailable, "no")))];
        assert_eq!(missing(table, &record), ["status.traffic"]);
        record.writes = vec![write(None)];
        assert_eq!(missing(table, &record), [""; 0]);
    }

    #[test]
    fn a_pass_that_was_given_up_has_written_nothing_and_done_what_it_did() {
        let mut record = pass(&["CAPV-23"], &[], json!({"status": {"taskRef": "t"}}));
        record.outcome = Outcome::Discarded(Discard::Changed);
        assert_eq!(
            missing("CAPV-23\tstatus.phase=Running !status.taskRef", &record),
            [""; 0]
        );
        assert_eq!(missing("CAPV-23\tvm.clone=ok", &record), ["vm.clone=ok"]);
    }

    /// The ids of the policies' tables that are noted, with their meanings.
    fn noted() -> BTreeMap<String, String> {
        let policies = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../policies"));
        let tables = policies.expect("a folder").filter_map(|entry| {
            std::fs::read_to_string(entry.expect("an entry").path().join("src/edges.tsv")).ok()
        });
        let tables: Vec<String> = tables.collect();
        let lines = tables.iter().flat_map(|table| table.lines());
        let fields = lines
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect());
        let noted = fields.filter(|fields: &Vec<&str>| fields.len() == 2);
        noted
            .map(|fields| (fields[0].to_owned(), fields[1].to_owned()))
            .collect()
    }

    #[test]
    fn each_id_that_a_policy_notes_has_its_evidence() {
        let ours: Vec<String> = TABLE.0.keys().cloned().collect();
        assert_eq!(ours, noted().into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn an_id_whose_meaning_says_that_something_was_done_has_something_to_be_seen() {
        const DONE: [&str; 16] = [
            "written",
            "made",
            "removed",
            "answered",
            "deleted",
            "cloned",
            "destroyed",
            "stopped",
            "started",
            "adopted",
            "told",
            "installed",
            "cordoned",
            "added",
            "forgotten",
            "granted",
        ];
        for (id, meaning) in noted() {
            let says = meaning.to_lowercase();
            let mut words = says.split(|c: char| !c.is_alphabetic());
            let unseen = TABLE.0.get(&id).is_some_and(Vec::is_empty);
            if let Some(word) = words.find(|word| DONE.contains(word)).filter(|_| unseen) {
                panic!("{id} says {word:?} and has nothing to be seen: {meaning}");
            }
        }
    }
}
