//! `polity explain`: the timeline of an object's passes, and what it waits for.

mod debug;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use polity_core::contract::{Act, Conclusion, Entry, Kind, Manifest, Question, Request, Resolution, Wait};
use polity_core::key::Key;
use polity_core::record::{PassRecord, RoleRecord, WritePurpose};
use polity_core::time::Unix;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use debug::Debug;

use super::recorded::{KindName, RecordedPasses};
use crate::display::{duration, printable, shortened, then};
use crate::edges;
use crate::progress::{Format, print, print_json, say};
use crate::waiting::{Waiting, WaitingObject};

/// What each step of a role said to the author of the policy.
type Said = Vec<Vec<String>>;

/// The most characters of an answer or patch that are shown without --full.
const SHOWN: usize = 160;
/// The most characters of what was asked, of a failure, and of a whole line, without --full.
const WORDS: usize = 1_024;
const LINE: usize = 4_096;

/// Show the passes of an object, the reason for each step, and what the object waits for.
///
/// A host writes about once a second what its objects wait for: a watch that has not listed, the lease, a lock, a place, an
/// answer, or the next try. For an object that only waits for a change or for its next pass, the last pass says so.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// The kind, with its group if several groups have the kind: `Machine` or `machine.capv.polity.dev`.
    #[arg(value_name = "KIND[.GROUP]")]
    kind: String,
    /// The object's name, after its namespace if it has one: `team-a/machine-03`.
    #[arg(value_name = "[NS/]NAME")]
    name: String,
    #[command(flatten)]
    recorded: RecordedPasses,
    /// Show only this many of the newest passes.
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Show answers, patches and all other texts in full.
    #[arg(long)]
    full: bool,
    /// Show the ids of edges, too, and the edges that the host derives.
    #[arg(long)]
    ids: bool,
    /// Show each step: what the policy knew, what it wanted, and what it said to its author (`cx.debug`). For the last, the
    /// recorded version makes the step again. Answers on which nothing rests are shown, too.
    #[arg(long)]
    step: bool,
}

impl Explain {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let kind = KindName::new(&self.kind);
        let fits = |of: &Kind, key: &Key| {
            kind.fits(&of.kind, group_of(&of.api_version)) && key.to_string() == self.name
        };
        let (folder, recording) = self.recorded.open()?;
        let waiting = Waiting::read(&recording).unwrap_or_else(|e| {
            say(format, &format!("{e:#}"));
            Waiting::default()
        });
        let debug = self.step.then(|| Debug::of(&folder, recording, format));
        let debug = debug.transpose()?;
        // A pass is shown when it is read: all passes of an object may be more than there is memory.
        let (mut is_found, mut last, mut shown) = (false, VecDeque::new(), Ok(()));
        let manifests = self.recorded.passes(format, |record, manifests| {
            if !fits(&record.kind, &record.key) {
                return;
            }
            is_found = true;
            match self.last {
                None if shown.is_ok() => shown = self.show_pass(&record, manifests, debug.as_ref(), format),
                None => {}
                Some(most) => {
                    last.push_back(record);
                    last.drain(..last.len().saturating_sub(most));
                }
            }
        })?;
        shown?;
        for record in &last {
            self.show_pass(record, &manifests, debug.as_ref(), format)?;
        }
        let mut waits = waiting
            .objects
            .iter()
            .filter(|object| fits(&object.kind, &object.key))
            .peekable();
        if !is_found && waits.peek().is_none() {
            let (folder, more) = (folder.display(), no_room(waiting.left_out));
            bail!(
                "the recording {folder} holds no pass of {} {}{}{more}",
                self.kind,
                self.name,
                self.recorded.hint()
            );
        }
        for object in waits {
            show_waiting(object, waiting.at, format);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show_pass(
        &self,
        record: &PassRecord,
        manifests: &BTreeMap<String, Manifest>,
        debug: Option<&Debug>,
        format: Format,
    ) -> Result<()> {
        let mut said = Vec::new();
        if let Some(debug) = debug {
            let said_by = |role| debug.said(record, role);
            said = record.roles.iter().map(said_by).collect::<Result<_>>()?;
        }
        match format {
            Format::Json => print_json(&as_json(record, manifests, &said)?),
            Format::Text => self.show(record, manifests, &said),
        }
        Ok(())
    }

    /// Shows a pass. `said` is what each step of each role said to the author of the policy.
    fn show(&self, record: &PassRecord, manifests: &BTreeMap<String, Manifest>, said: &[Said]) {
        let causes: Vec<String> = record.causes.iter().map(ToString::to_string).collect();
        let attempt = if record.attempt > 0 {
            format!(", attempt {}", record.attempt)
        } else {
            String::new()
        };
        self.line(&format!(
            "{}  pass {}  because: {}{attempt}",
            rfc3339(record.started.unix.0),
            record.pass.0,
            if causes.is_empty() {
                "-".into()
            } else {
                causes.join(", ")
            },
        ));
        let mut noted = Vec::new();
        for (index, role) in record.roles.iter().enumerate() {
            let notes = role.conclusion.iter().flat_map(|conclusion| &conclusion.notes);
            noted.extend(notes.map(String::as_str));
            let said = said.get(index).map_or(&[][..], Vec::as_slice);
            self.show_role(role, manifests.get(&*role.policy.0), said);
        }
        for write in &record.writes {
            let what = match write.purpose {
                WritePurpose::AddFinalizer => "finalizer".to_owned(),
                WritePurpose::WriteAhead => "pending entries".to_owned(),
                WritePurpose::Publish(part) => format!("{part:?}").to_lowercase(),
            };
            match (&write.version, &write.failure) {
                (Some(version), _) => self.line(&format!("    wrote   {what}, version {version}")),
                (None, Some(failure)) => self.line(&format!("    write   {what} failed: {failure}")),
                (None, None) => {}
            }
        }
        if self.ids {
            let taken = edges::taken(record, manifests);
            let derived = taken.iter().filter(|id| !noted.contains(&id.as_str()));
            let derived = derived.map(|id| (id.as_str(), sentence_of(id, record, manifests)));
            self.show_edges("derived", derived);
        }
        if let Some(retry) = &record.retry {
            let digest = &*retry.policy.0;
            let name = manifests
                .get(digest)
                .map_or_else(|| format!("{digest:.12}"), |policy| policy.name.clone());
            let said = match (retry.answer, &retry.fault) {
                (Some(Wait::After(wait)), _) if wait.cast_signed() < 0 => {
                    format!("{}ms", wait.cast_signed())
                }
                (Some(Wait::After(wait)), _) => duration(Duration::from_millis(wait)),
                (Some(Wait::OnChange(None)), _) => "a change".into(),
                (Some(Wait::OnChange(Some(wait))), _) => {
                    format!(
                        "a change, at the latest in {}",
                        duration(Duration::from_millis(wait))
                    )
                }
                (None, Some(fault)) => format!("fault: {fault}"),
                (None, None) => "-".into(),
            };
            self.line(&format!("    retry   {name} → {said}"));
        }
        if record.shortened {
            self.line("    lacks   long texts: more was said than could be recorded");
        }
        self.line(&format!("    then    {}", then(record)));
    }

    /// Shows a sentence in each line, after its id if ids are wanted.
    fn show_edges<'a>(&self, label: &str, edges: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut label = label;
        for (id, sentence) in edges {
            if self.ids && id != sentence {
                self.line(&format!("    {label:<7} {id}  {sentence}"));
            } else {
                self.line(&format!("    {label:<7} {sentence}"));
            }
            label = "";
        }
    }

    fn show_role(&self, role: &RoleRecord, manifest: Option<&Manifest>, said: &[Vec<String>]) {
        for doubt in &role.pending {
            let state = match &doubt.resolution {
                Resolution::Done(answer) => format!("done: {answer}"),
                Resolution::Absent => "absent".into(),
                Resolution::Unknown(why) => format!("unknown: {why}"),
            };
            let what = self.cut(&format!("{} of {}", doubt.operation, doubt.intent), WORDS);
            self.line(&format!("    doubt   {what}: {}", self.short(&state)));
        }
        if self.step {
            self.show_steps(role, said);
        } else {
            self.show_entries(role, 0..role.journal.len());
        }
        if let Some(verdict) = &role.verdict {
            self.line(&format!("    verdict {verdict:?}"));
        }
        if let Some(fault) = &role.fault {
            self.line(&format!("    fault   {fault}"));
        }
        let Some(conclusion) = &role.conclusion else {
            return;
        };
        let notes = conclusion.notes.iter();
        self.show_edges(
            "edges",
            notes.map(|id| (id.as_str(), edges::sentence(id, manifest))),
        );
        if let Some(patch) = conclusion.patch.as_deref().filter(|patch| *patch != "{}") {
            self.line(&format!("    patch   {}", self.short(patch)));
        }
        for event in &conclusion.events {
            self.line(&format!(
                "    event   {:?} {}: {}",
                event.kind, event.reason, event.message
            ));
        }
    }

    /// Shows each step with what it wanted, behind the answers of the last pass, which the first step knew.
    fn show_steps(&self, role: &RoleRecord, said: &[Vec<String>]) {
        let RoleRecord { journal, had, .. } = role;
        let Some(known) = had.first() else {
            self.line("    steps   were not recorded: the recording is of an older version of polity");
            return self.show_entries(role, 0..journal.len());
        };
        let end = journal.len();
        self.show_entries(role, 0..(*known as usize).min(end));
        for (number, from) in had.iter().enumerate() {
            let from = (*from as usize).min(end);
            let to = had.get(number + 1).map_or(end, |to| (*to as usize).min(end));
            let ends = match (from < to, &role.fault) {
                (true, _) => "wanted:",
                (false, None) => "decided",
                (false, Some(_)) => "broke its contract",
            };
            let name = role.role.as_str();
            self.line(&format!(
                "    step    {} of {name} knew {from} answers and {ends}",
                number + 1
            ));
            for message in said.get(number).into_iter().flatten() {
                self.line(&format!("    debug   {}", self.short(message)));
            }
            self.show_entries(role, from..to);
        }
    }

    /// Shows requests with their answers: those on which the conclusion rests, and with `--step` all.
    fn show_entries(&self, role: &RoleRecord, of: Range<usize>) {
        for (index, entry) in role.journal.iter().enumerate().take(of.end).skip(of.start) {
            let rests = |conclusion: &Conclusion| conclusion.used.contains(&(index as u32));
            let is_used = role.conclusion.as_ref().is_none_or(rests);
            if !is_used && !self.step {
                continue;
            }
            let (verb, what) = self.request(entry);
            let what = self.cut(&what, WORDS);
            let answer = match &entry.answer {
                Ok(json) => self.short(json),
                Err(failure) => self.cut(&failure.to_string(), WORDS),
            };
            let unused = if is_used { "" } else { " (not used)" };
            self.line(&format!("    {verb}     {what} → {answer}{unused}"));
        }
    }

    fn request(&self, entry: &Entry) -> (&'static str, String) {
        match &entry.request {
            Request::Ask(ask) => {
                let round = if ask.round > 0 {
                    format!(" (round {})", ask.round)
                } else {
                    String::new()
                };
                let what = match &ask.question {
                    Question::Object(q) => format!("{} {}", q.object.kind.kind, q.object.name),
                    Question::Objects(q) => format!("list of {}", q.kind.kind),
                    Question::Secret(object) => format!("Secret {}", object.name),
                    Question::Cloud(call) => format!("{} {}", call.operation, self.short(&call.arguments)),
                    Question::Lock(name) => format!("lock {name}"),
                    Question::Credential(_) => "credential".into(),
                    Question::Reachable(cluster) => {
                        format!("reachable {}", cluster.as_deref().unwrap_or("home"))
                    }
                };
                ("ask", what + &round)
            }
            Request::Act(act) => {
                let what = match act {
                    Act::Cloud(act) => format!("{} {}", act.operation, self.short(&act.arguments)),
                    Act::Create(act) => format!("create {}", self.short(&act.object)),
                    Act::Patch(act) => format!("patch {} {}", act.object.kind.kind, act.object.name),
                    Act::Delete(act) => format!("delete {} {}", act.object.kind.kind, act.object.name),
                    Act::Evict(act) => format!("evict {}", act.object.name),
                    Act::Mint(act) => format!(
                        "mint {} for {}",
                        act.kind,
                        duration(Duration::from_millis(act.ttl))
                    ),
                    Act::Revoke(token) => format!("revoke {}", self.short(token)),
                };
                ("act", what)
            }
        }
    }

    /// An answer, a patch or arguments.
    fn short(&self, text: &str) -> String {
        self.cut(text, SHOWN)
    }

    /// Prints one line.
    fn line(&self, text: &str) {
        line(&self.cut(text, LINE));
    }

    fn cut(&self, text: &str, most: usize) -> String {
        shortened(text, if self.full { usize::MAX } else { most })
    }
}

/// What the tables of a pass's policies say of an edge.
fn sentence_of<'a>(id: &'a str, record: &PassRecord, manifests: &'a BTreeMap<String, Manifest>) -> &'a str {
    let policies = record
        .roles
        .iter()
        .filter_map(|role| manifests.get(&*role.policy.0));
    let mut sentences = policies.map(|policy| edges::sentence(id, Some(policy)));
    sentences.find(|sentence| *sentence != id).unwrap_or(id)
}

/// A recorded pass, and beside it the edges that it took, with their sentences, and what its steps said.
fn as_json(record: &PassRecord, manifests: &BTreeMap<String, Manifest>, said: &[Said]) -> Result<Value> {
    let mut document = serde_json::to_value(record)?;
    let taken = edges::taken(record, manifests);
    let taken = taken
        .iter()
        .map(|id| json!({"id": id, "meaning": sentence_of(id, record, manifests)}));
    document["edges"] = taken.collect();
    for (index, said) in said.iter().enumerate().filter(|(_, said)| !said.is_empty()) {
        document["roles"][index]["debug"] = json!(said);
    }
    Ok(document)
}

/// Shows what an object waited for when the host looked last.
fn show_waiting(object: &WaitingObject, at: Unix, format: Format) {
    let WaitingObject { waits_for, since, .. } = object;
    match format {
        Format::Json => print_json(&json!({"at": at, "waiting": object})),
        Format::Text => {
            let waits_for = shortened(waits_for, LINE);
            line(&format!("{}  waits for {waits_for}", rfc3339(at.0)));
            line(&format!("    since   {}", rfc3339(since.0)));
            if let Some(due) = object.due {
                line(&format!("    due     {}", rfc3339(due.0)));
            }
        }
    }
}

/// What to know if an object is not found.
fn no_room(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        _ => format!("; there was no room for what {left_out} objects wait for"),
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Prints one line. Texts of objects may contain line breaks and control characters; they are escaped.
fn line(text: &str) {
    print(&printable(text));
}
