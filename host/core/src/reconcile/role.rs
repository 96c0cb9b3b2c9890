//! The steps of one role: its journal, and its use of limits so far.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::Context;
use super::frame::Frame;
use super::work::{Fate, Work};
use crate::binding::PolicyId;
use crate::contract::{
    ActInDoubt, Ask, Conclusion, Entry, Failure, Json, Question, Request, Resolution, Role, Verdict,
};
use crate::fault::{Fault, FaultKind, raised_by};
use crate::object::Object;
use crate::record::RoleRecord;
use crate::render::Render;
use crate::shared::guards::Guard;
use crate::worker::{Item, RenderedAnswer, entry, size_of};

/// The largest size of a note in bytes. A note is the id of an edge, or a short word.
const NOTE: usize = 1_024;
/// The most acts that a fault names.
const ACTS: usize = 8;

/// The steps of one role.
#[derive(Debug)]
pub(crate) struct RoleRun {
    pub(super) role: Role,
    pub(super) steps: u32,
    pub(super) fuel: u64,
    pub(super) journal: Vec<Item>,
    /// How many entries of the journal each step had.
    pub(super) had: Vec<u32>,
    /// The bytes of the answers that are known.
    pub(super) journal_bytes: u64,
    pub(super) request_bytes: u64,
    /// The creates in doubt that the policy is told of.
    pub(super) pending: Vec<ActInDoubt>,
    /// The handles that the cloud returned for the role's credential questions.
    pub(super) handles: BTreeSet<String>,
    /// How many entries at the beginning of the journal this pass has not asked for: answers that the last pass used.
    /// `None` until they are entered.
    pub(super) prefetched: Option<usize>,
    /// Whether a list did not fit into what is left of the journal.
    pub(super) is_full: bool,
}

impl RoleRun {
    pub(super) fn new(role: Role) -> Self {
        RoleRun {
            role,
            steps: 0,
            fuel: 0,
            journal: Vec::new(),
            had: Vec::new(),
            journal_bytes: 0,
            request_bytes: 0,
            pending: Vec::new(),
            handles: BTreeSet::new(),
            prefetched: None,
            is_full: false,
        }
    }

    /// The creates in doubt, in the form in which the lifecycle policy gets them.
    pub(super) fn in_doubt(work: &Work) -> Vec<ActInDoubt> {
        let told = |found: &super::work::KnownEntry| ActInDoubt {
            operation: found.entry.operation.clone(),
            intent: found.entry.intent.clone(),
            since: found.entry.since.0,
            resolution: match &found.fate {
                Fate::Resolved(resolution) => resolution.clone(),
                Fate::NeverSent => Resolution::Absent,
                Fate::Open | Fate::Refused => Resolution::Unknown("the cloud was not asked".into()),
            },
        };
        work.found.iter().map(told).collect()
    }

    /// The questions that the journal answers.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Ask> {
        self.journal.iter().filter_map(Item::ask)
    }

    /// The operations of the acts in the journal, a few of them; `None` if there are none.
    pub(super) fn acts(&self) -> Option<String> {
        let is_act = |entry: &&Entry| matches!(entry.request, Request::Act(_));
        let acts = self.known().filter(is_act).take(ACTS);
        let acts: Vec<&str> = acts.map(|entry| entry.request.operation()).collect();
        (!acts.is_empty()).then(|| acts.join(", "))
    }

    /// Removes the answers that this pass has not asked for, and returns their questions.
    pub(super) fn forget_unasked(&mut self) -> Vec<Question> {
        let unasked = self.prefetched.replace(0).unwrap_or(0);
        let mut questions = Vec::with_capacity(unasked);
        for had in &mut self.had {
            *had = had.saturating_sub(unasked as u32);
        }
        for item in self.journal.drain(..unasked) {
            if let Item::Known(entry) = &item {
                self.journal_bytes -= size_of(&entry.answer);
            }
            if let Some(ask) = item.ask() {
                questions.push(ask.question.clone());
                self.request_bytes -= ask.bytes();
            }
        }
        questions
    }

    /// The entries whose answers are known: all, when the policy was called.
    fn known(&self) -> impl Iterator<Item = &Entry> {
        self.journal.iter().filter_map(|item| match item {
            Item::Known(entry) => Some(&**entry),
            Item::Named(..) => None,
        })
    }

    /// The question of an item that this conclusion uses, if it is one.
    pub(super) fn asked_at(&self, index: u32) -> Option<&Question> {
        Some(&self.journal.get(index as usize)?.ask()?.question)
    }

    /// The bytes that the journal holds.
    pub(super) fn bytes(&self) -> u64 {
        self.journal_bytes.saturating_add(self.request_bytes)
    }

    /// Appends an answer.
    pub(super) fn append(&mut self, request: Request, answer: Result<Json, Failure>) {
        self.request_bytes = self.request_bytes.saturating_add(request.bytes());
        let entry = entry(request, answer);
        self.journal_bytes += size_of(&entry.answer);
        self.journal.push(Item::Known(entry.into()));
    }

    /// Appends an answer that the next step renders.
    pub(super) fn name(&mut self, ask: Ask, render: Arc<Render>) {
        self.request_bytes = self.request_bytes.saturating_add(ask.bytes());
        self.journal.push(Item::Named(ask.into(), render));
    }

    /// Enters answers that a worker rendered, in the order of the journal.
    pub(super) fn rendered(&mut self, answers: Vec<Option<RenderedAnswer>>, work: &mut Work) {
        let mut answers = answers.into_iter();
        let mut journal = Vec::with_capacity(self.journal.len());
        let unasked = self.prefetched.unwrap_or(0);
        for (index, item) in std::mem::take(&mut self.journal).into_iter().enumerate() {
            let Item::Named(ask, render) = item else {
                journal.push(item);
                continue;
            };
            // It may not be rendered yet.
            let Some(answer) = answers.next() else {
                journal.push(Item::Named(ask, render));
                continue;
            };
            match answer {
                Some(RenderedAnswer { answer, count }) => {
                    if let Some(dependency) = work.dependencies.get_mut(render.asked()) {
                        dependency.count = count;
                    }
                    self.journal_bytes += size_of(&answer);
                    let request = Request::Ask(Arc::unwrap_or_clone(ask));
                    journal.push(Item::Known(Entry { request, answer }.into()));
                }
                None => {
                    work.dependencies.remove(render.asked());
                    self.request_bytes -= ask.bytes();
                    self.prefetched = self.prefetched.map(|count| count - usize::from(index < unasked));
                }
            }
        }
        self.journal = journal;
    }

    /// Checks a conclusion, except its patch. An error is a fault of this role, before another role runs.
    pub(super) fn check(
        &self,
        frame: &Frame,
        verdict: Option<&Verdict>,
        conclusion: &Conclusion,
    ) -> Result<(), Fault> {
        let broken = |message: String| Fault::new(FaultKind::BadOutput, message);
        if let Some(message) = self.unused_act(&conclusion.used) {
            return Err(Fault::new(FaultKind::JournalMismatch, message));
        }
        if let Some(message) = self.misjudged(frame, verdict) {
            return Err(broken(message.into()));
        }
        let most = frame.binding.spec.limits.notes as usize;
        if conclusion.notes.len() > most {
            return Err(broken(format!(
                "the conclusion has more than {most} notes{}",
                raised_by("notes")
            )));
        }
        if let Some(note) = conclusion.notes.iter().find(|note| note.len() > NOTE) {
            let message = format!("a note has {} bytes; the limit is {NOTE}", note.len());
            return Err(broken(message));
        }
        Ok(())
    }

    /// Why a verdict, or a missing verdict, is wrong.
    fn misjudged(&self, frame: &Frame, verdict: Option<&Verdict>) -> Option<&'static str> {
        let is_deleting = frame.snapshot.as_ref().is_some_and(Object::is_deleting);
        match (self.role, verdict) {
            (Role::Lifecycle, None) | (Role::Identity, Some(Verdict::Denied)) => None,
            (Role::Identity, Some(Verdict::Granted(handle))) if self.handles.contains(handle) => None,
            (Role::Identity, Some(Verdict::Granted(_))) => {
                Some("the policy granted a handle that no ask of this pass returned")
            }
            (Role::Identity, Some(Verdict::Released)) if is_deleting => None,
            (Role::Identity, Some(Verdict::Released)) => {
                Some("the policy released an object that is not being deleted")
            }
            _ => Some("the conclusion does not fit the role of the policy"),
        }
    }

    /// Why the conclusion is wrong if it leaves out an act of its journal: an act must be among the entries that a
    /// conclusion uses.
    fn unused_act(&self, used: &[u32]) -> Option<String> {
        let used: BTreeSet<usize> = used.iter().map(|index| *index as usize).collect();
        if let Some(index) = used.iter().find(|index| **index >= self.journal.len()) {
            return Some(format!(
                "the conclusion uses entry {index} of a journal with {} entries",
                self.journal.len()
            ));
        }
        let is_unused = |(index, entry): &(usize, &Entry)| {
            matches!(entry.request, Request::Act(_)) && !used.contains(index)
        };
        let (index, entry) = self.known().enumerate().find(is_unused)?;
        let request = &entry.request;
        Some(format!(
            "the conclusion does not use an act that the policy made: entry {index}, {request:?}"
        ))
    }

    /// Records what the role did so far when the pass ends early.
    pub(super) fn leave(self, frame: &Frame, work: &mut Work) {
        let record = self.record(frame, None, None, None);
        work.roles.push(record);
    }

    /// The recording of the role.
    pub(super) fn record(
        self,
        frame: &Frame,
        verdict: Option<Verdict>,
        conclusion: Option<Conclusion>,
        fault: Option<Fault>,
    ) -> RoleRecord {
        let policy = frame.binding.policy(self.role);
        RoleRecord {
            role: self.role,
            policy: policy.map_or(PolicyId("".into()), |p| p.id.clone()),
            config: policy.map_or("null".into(), |p| p.config.clone()),
            pending: self.pending,
            steps: self.steps,
            fuel: self.fuel,
            // What was never rendered, no policy has seen.
            journal: self.journal.into_iter().filter_map(Item::known).collect(),
            had: self.had,
            verdict,
            conclusion,
            fault,
        }
    }
}

impl Context<'_> {
    /// The bytes that the journals of the pass hold: those of the roles that have ended, and this one.
    pub(super) fn held_with(&self, run: &RoleRun) -> u64 {
        self.work.held.saturating_add(run.bytes())
    }

    /// The bytes of texts that the pass may take in beside those that it holds.
    pub(super) fn may_hold(&self, run: &RoleRun) -> u64 {
        if self.is_large() {
            u64::MAX
        } else {
            self.view.capacities.small.saturating_sub(self.held_with(run))
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.view.calls.is_large(self.frame.id) || !self.is_guarded(Guard::LargePassesAreFew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::KindGrant;
    use crate::contract::{Code, ListQuery};
    use crate::reconcile::fixture::{config_maps, entry, get};
    use crate::reconcile::work::KnownEntry;
    use crate::render::Render;
    use crate::selection::Selection;
    use serde_json::json;

    #[test]
    fn a_failure_counts_its_message_and_its_detail_in_the_journal() {
        let mut run = RoleRun::new(Role::Lifecycle);
        let mut failure = Failure::new(Code::Internal, "m".repeat(1_000));
        failure.detail = Some(format!("{:?}", "d".repeat(4_000)).into());
        run.append(get(), Err(failure));
        assert_eq!(run.journal_bytes, 64 + 1_000 + 4_002);
    }

    #[test]
    fn prefetched_answers_that_are_forgotten_hold_no_bytes_any_more() {
        let mut run = RoleRun::new(Role::Lifecycle);
        run.append(get(), Ok("[1, 2, 3]".into()));
        let asked = run.bytes();
        run.append(get(), Ok("[4]".into()));
        assert!(run.bytes() > asked);
        run.prefetched = Some(1);
        assert_eq!(run.forget_unasked().len(), 1);
        run.append(get(), Ok("[1, 2, 3]".into()));
        run.prefetched = Some(1);
        assert_eq!(run.forget_unasked().len(), 1);
        assert_eq!(run.bytes(), asked);
    }

    #[test]
    fn prefetched_answers_that_do_not_fit_are_not_among_those_that_are_forgotten() {
        let named = |run: &mut RoleRun| {
            let question = Question::Objects(ListQuery::all(config_maps().kind));
            let selection = (Arc::new((run.role, question.clone())), Selection::default());
            let grant = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["*"]});
            let grant: KindGrant = serde_json::from_value(grant).expect("a grant");
            let render = Render::new(Vec::new(), None, grant.into(), selection);
            run.name(Ask { round: 0, question }, render.into());
        };
        let fits = || {
            let answer = Ok("[]".into());
            Some(RenderedAnswer { answer, count: 0 })
        };
        for left_out in 0..=3 {
            let mut run = RoleRun::new(Role::Lifecycle);
            (0..4).for_each(|_| named(&mut run));
            run.prefetched = Some(3);
            let answers = (0..4).map(|index| (index >= left_out).then(fits).flatten());
            run.rendered(answers.collect(), &mut Work::default());
            assert_eq!(run.forget_unasked().len(), 3 - left_out);
            assert_eq!(run.journal.len(), 1);
        }
    }

    #[test]
    fn a_long_message_of_a_failure_is_cut_in_the_journal() {
        let mut run = RoleRun::new(Role::Lifecycle);
        run.append(get(), Err(Failure::new(Code::Internal, "ä".repeat(1 << 20))));
        let kept = run.known().next().expect("an entry").answer.as_ref();
        assert_eq!(kept.map_err(|failure| failure.message.len()), Err(32_768));
    }

    #[test]
    fn a_lifecycle_is_told_what_came_of_each_create_in_doubt() {
        let done = Resolution::Done("{}".into());
        let unknown = |why: &str| Resolution::Unknown(why.into());
        let fates = [
            (Fate::Resolved(done.clone()), done),
            (Fate::Resolved(unknown("why")), unknown("why")),
            (Fate::NeverSent, Resolution::Absent),
            (Fate::Open, unknown("the cloud was not asked")),
        ];
        let found = fates.iter().map(|(fate, _)| KnownEntry {
            entry: serde_json::from_value(entry("a")).expect("an entry"),
            fate: fate.clone(),
        });
        let work = Work {
            found: found.collect(),
            ..Work::default()
        };
        let told = RoleRun::in_doubt(&work);
        assert_eq!(
            (told[0].operation.as_str(), told[0].intent.as_str()),
            ("vm.clone", "m")
        );
        let told: Vec<Resolution> = told.into_iter().map(|told| told.resolution).collect();
        assert_eq!(told, fates.map(|(_, resolution)| resolution));
    }
}
