//! What a policy decides on a recorded pass, compared with what was decided then.
//!
//! A step is a function of its pass and the journal, and answers are matched by content. So one step with the whole journal
//! judges a pass, and the recorded version gives the recorded bytes again. A pass that acted is stepped with the journal as it
//! stood before each act and before each round of questions, too: otherwise nobody would see that a policy acts before it looks, or
//! makes two acts the other way round.
//!
//! # Caveats
//!
//! Each pass is judged one step deep on what was recorded. A state that only the other policy would bring about never arises.

mod difference;
mod groups;
mod shape;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polity_core::binding::{Binding, BindingSpec, Limits, LoadedPolicy};
use polity_core::contract::{
    Act, Ask, Conclusion, Entry, Json, ObjectQuery, Pass, Question, Request, Requests, RetryRequest, Role,
    Step, Verdict, Wait,
};
use polity_core::fault::{Fault, FaultKind, StepOutput};
use polity_core::grants::Grants;
use polity_core::object::Object;
use polity_core::projection::project;
use polity_core::record::{PassRecord, RetryRecord, RoleRecord};
use polity_core::worker::{Item, PatchCheck, StepInput};
use serde_json::Value;

use difference::Compared;
pub(crate) use difference::{Difference, What};
pub(crate) use groups::{Example, Group, Groups, Shared};

/// A version of a policy.
pub(crate) trait Decides: Send + Sync {
    /// Makes one step of a pass.
    fn step(&self, pass: &Pass, limits: &Limits) -> StepOutput;
    /// Says how long a retry waits.
    fn wait(&self, request: &RetryRequest, limits: &Limits) -> Result<Wait, Fault>;
}

impl Decides for polity_sandbox::Policy {
    fn step(&self, pass: &Pass, limits: &Limits) -> StepOutput {
        polity_sandbox::Policy::step(self, pass, limits)
    }

    fn wait(&self, request: &RetryRequest, limits: &Limits) -> Result<Wait, Fault> {
        self.decide(request, limits).0
    }
}

/// A version of a policy that is judged, under the binding of a pass.
pub(crate) struct Candidate {
    policy: Arc<dyn Decides>,
    binding: Arc<Binding>,
    /// The configuration, with the defaults of this version.
    config: Json,
    /// Whether the limits of the binding are lower than the recorded ones.
    is_cut: bool,
}

/// Why passes are not judged to the end.
const CUT: &str =
    "it needs more than ten times the default limits (--limits recorded takes them as they are recorded)";
const TOO_LONG: &str = "to judge it takes more steps or fuel than its binding allows for a pass";

/// What a policy decides on a recorded pass.
#[derive(Debug, PartialEq)]
pub(crate) enum Judged {
    /// The same. The questions that it reads otherwise are no difference in what it decides.
    Same(Vec<Difference>),
    /// Something else.
    Differs(Vec<Difference>),
    /// It needs answers that were not recorded, so it is not known what it would decide.
    WouldAsk(Vec<Difference>),
    /// It breaks its contract, which the recorded version did not.
    Fault(Vec<Difference>),
    /// The record has no conclusion of this role, for this reason.
    Unfinished(&'static str),
}

impl Candidate {
    /// This version under a binding as it was recorded, or with lower limits.
    pub(crate) fn new(
        policy: Arc<dyn Decides>,
        loaded: LoadedPolicy,
        spec: &BindingSpec,
        is_cut: bool,
    ) -> Self {
        let config = loaded.config.clone();
        let binding = Binding {
            name: String::new(),
            digest: "".into(),
            created: 0,
            grants: Grants::compile(&spec.grants).into(),
            spec: spec.clone(),
            policies: BTreeMap::from([(loaded.manifest.role, loaded)]),
            catalogue: Arc::default(),
            connection: "".into(),
            namespaces: None,
        };
        Candidate {
            policy,
            binding: binding.into(),
            config,
            is_cut,
        }
    }

    /// Whether a fault may be one of lower limits than the recorded ones.
    fn is_of_cut(&self, fault: &Fault) -> bool {
        let is_of_limit = matches!(
            fault.kind,
            FaultKind::OutOfFuel | FaultKind::OutOfMemory | FaultKind::WallTime | FaultKind::BadOutput
        );
        self.is_cut && is_of_limit
    }

    /// What it decides in a role of a pass. With `exact` the conclusion must be the recorded one to the byte: so it is for the
    /// recorded version itself.
    pub(crate) fn judge(&self, pass: &PassRecord, role: &RoleRecord, exact: bool) -> Judged {
        if pass.shortened {
            return Judged::Unfinished("its long texts were not recorded");
        }
        let recorded = match (&role.conclusion, &role.fault) {
            (Some(conclusion), _) => Ok(conclusion),
            (None, Some(fault)) if fault.deterministic => Err(fault),
            (None, Some(_)) => return Judged::Unfinished("it ended with a fault that need not happen again"),
            (None, None) => return Judged::Unfinished("it ended before the policy concluded"),
        };
        let limits = &self.binding.spec.limits;
        let judging = Judging {
            // The steps that were recorded once more, and as many as a pass may take.
            steps: Cell::new(role.had.len().saturating_add(limits.steps as usize)),
            fuel: Cell::new(
                limits
                    .pass_fuel
                    .saturating_add(limits.step_fuel)
                    .saturating_mul(2),
            ),
            candidate: self,
            pass,
            role,
            snapshot: pass.object.as_ref().map(|object| {
                let tree: Value = serde_json::from_str(object).unwrap_or_default();
                Object::new(tree)
            }),
            compared: Compared::new(pass, role.role),
        };
        judging.run(recorded, exact)
    }

    /// How long it waits where the recorded version was asked, before the limits of the binding.
    pub(crate) fn judge_retry(&self, pass: &PassRecord, retry: &RetryRecord) -> Judged {
        let Some(was) = retry.answer else {
            return Judged::Unfinished("the retry policy broke its contract");
        };
        let mut request = retry.request.clone();
        request.config = self.config.clone();
        let compared = Compared::new(pass, Role::Retry);
        match self.policy.wait(&request, &self.binding.spec.limits) {
            Ok(now) if now == was => Judged::Same(Vec::new()),
            Ok(now) => Judged::Differs(vec![compared.wait(&request, was, now)]),
            Err(fault) if self.is_of_cut(&fault) => Judged::Unfinished(CUT),
            Err(fault) => Judged::Fault(vec![compared.fault(&fault)]),
        }
    }
}

/// One role of one pass that is judged.
struct Judging<'a> {
    /// What it may still take. Whoever wrote the recording chose how many steps there are, and what the policy asks for.
    steps: Cell<usize>,
    fuel: Cell<u64>,
    candidate: &'a Candidate,
    pass: &'a PassRecord,
    role: &'a RoleRecord,
    snapshot: Option<Object>,
    compared: Compared<'a>,
}

/// The end of the steps with the whole journal.
enum Ended {
    /// With the journal on which the conclusion rests.
    Concluded(Option<Verdict>, Box<Conclusion>, Vec<Entry>),
    Acts(Vec<Act>),
    Asks(Vec<Ask>),
    Fault(Fault),
    Unfinished(&'static str),
}

impl Judging<'_> {
    fn run(&self, recorded: Result<&Conclusion, &Fault>, exact: bool) -> Judged {
        let journal = &self.role.journal;
        if let Some(judged) = self.before_acts() {
            return judged;
        }
        match (self.step(journal.clone()), recorded) {
            (Ended::Concluded(verdict, now, rests), Ok(was)) => {
                let was = (&self.role.verdict, was);
                let mut differences = self
                    .compared
                    .conclusions(was, (&verdict, &now), (journal, &rests));
                let is_exact = !exact || (verdict == self.role.verdict && *now == *was.1);
                if !is_exact && differences.is_empty() {
                    differences.push(self.compared.bytes());
                }
                let decides_alike = differences
                    .iter()
                    .all(|difference| difference.what == What::Reads);
                if is_exact && decides_alike {
                    Judged::Same(differences)
                } else {
                    Judged::Differs(differences)
                }
            }
            (Ended::Unfinished(why), _) => Judged::Unfinished(why),
            (Ended::Concluded(..), Err(fault)) => Judged::Differs(vec![self.compared.no_fault(fault)]),
            (Ended::Fault(now), Err(was)) if now.kind == was.kind => Judged::Same(Vec::new()),
            // The host stopped it for its requests, which it may want again.
            (Ended::Acts(_) | Ended::Asks(_), Err(was)) if was.kind == FaultKind::TooLong => {
                Judged::Same(Vec::new())
            }
            (Ended::Acts(acts), _) => Judged::Differs(self.compared.would_act(&acts)),
            (Ended::Asks(asks), _) => Judged::WouldAsk(self.compared.would_ask(&asks)),
            (Ended::Fault(fault), _) => Judged::Fault(vec![self.compared.fault(&fault)]),
        }
    }

    /// Looks at what it wants where the recorded version asked before it acted, and before each act. `None` if it is the same.
    fn before_acts(&self) -> Option<Judged> {
        let RoleRecord { journal, had, .. } = self.role;
        let last = journal.iter().rposition(|entry| act_of(entry).is_some())?;
        let ends = had.iter().skip(1).map(|had| *had as usize);
        let steps = had
            .iter()
            .map(|had| *had as usize)
            .zip(ends.chain([journal.len()]));
        // What a step returned stands between what it had and what the next one had.
        let mut steps = steps.filter(|(from, to)| from < to && *from <= last && *to <= journal.len());
        steps.find_map(|(from, to)| {
            let acts: Vec<&Act> = journal[from..to].iter().filter_map(act_of).collect();
            if acts.is_empty() {
                self.before_questions(from)
            } else {
                self.before_these(from, &acts)
            }
        })
    }

    /// Before a round of questions it must not act. Which questions share a round is no difference.
    fn before_questions(&self, at: usize) -> Option<Judged> {
        let (before, after) = self.role.journal.split_at(at);
        match self.step(before.to_vec()) {
            Ended::Acts(acts) => {
                let is_recorded = |act: &&Act| after.iter().any(|entry| act_of(entry) == Some(act));
                let early: Vec<Difference> = acts
                    .iter()
                    .filter(is_recorded)
                    .map(|act| self.compared.earlier(act))
                    .collect();
                Some(Judged::Differs(if early.is_empty() {
                    self.compared.would_act(&acts)
                } else {
                    early
                }))
            }
            Ended::Fault(fault) => Some(Judged::Fault(vec![self.compared.fault(&fault)])),
            Ended::Unfinished(why) => Some(Judged::Unfinished(why)),
            Ended::Concluded(..) | Ended::Asks(_) => None,
        }
    }

    /// Before acts it must want these, or some of them first.
    fn before_these(&self, at: usize, acts: &[&Act]) -> Option<Judged> {
        let (before, after) = self.role.journal.split_at(at);
        let mut known = before.to_vec();
        // What the recorded version asked after the act, this one may ask before it. It gets each answer once.
        for _ in after {
            match self.step(known.clone()) {
                Ended::Acts(wanted) => {
                    let later: Vec<&Act> = after.iter().skip(acts.len()).filter_map(act_of).collect();
                    let differences = self.compared.acts(acts, &later, &wanted);
                    return (!differences.is_empty()).then_some(Judged::Differs(differences));
                }
                // What it concludes without them is compared with the whole journal.
                Ended::Concluded(..) => return None,
                Ended::Fault(fault) => return Some(Judged::Fault(vec![self.compared.fault(&fault)])),
                Ended::Unfinished(why) => return Some(Judged::Unfinished(why)),
                Ended::Asks(asks) => {
                    let later = after
                        .iter()
                        .filter(|entry| asks.iter().any(|ask| answers(entry, ask)));
                    let later: Vec<Entry> = later.cloned().collect();
                    if later.len() < asks.len() {
                        return Some(Judged::WouldAsk(self.compared.would_ask(&asks)));
                    }
                    known.extend(later);
                }
            }
        }
        None
    }

    /// Steps with this journal, as often as questions are left that a recorded answer tells with more fields than were asked for.
    fn step(&self, mut journal: Vec<Entry>) -> Ended {
        loop {
            let known: BTreeSet<&Ask> = journal.iter().filter_map(ask_of).collect();
            let Some(left) = self.steps.get().checked_sub(1).filter(|_| self.fuel.get() > 0) else {
                return Ended::Unfinished(TOO_LONG);
            };
            self.steps.set(left);
            let asks = match self.call(&journal) {
                Err(fault) if self.candidate.is_of_cut(&fault) => return Ended::Unfinished(CUT),
                Err(fault) => return Ended::Fault(fault),
                Ok(Step::Concluded { verdict, conclusion }) => {
                    return Ended::Concluded(verdict, conclusion.into(), journal);
                }
                Ok(Step::Pending(Requests::Acts(acts))) if !acts.is_empty() => return Ended::Acts(acts),
                Ok(Step::Pending(Requests::Asks(asks))) => asks,
                Ok(Step::Pending(Requests::Acts(_))) => Vec::new(),
            };
            let open: Vec<&Ask> = asks.iter().filter(|ask| !known.contains(ask)).collect();
            if open.is_empty() {
                let message = "the policy asks only for answers that its journal already holds";
                return Ended::Fault(Fault::new(FaultKind::Stalled, message));
            }
            let narrowed = open.iter().map(|ask| narrowed(ask, &journal));
            match narrowed.collect::<Option<Vec<Entry>>>() {
                Some(narrowed) => journal.extend(narrowed),
                None => return Ended::Asks(open.into_iter().cloned().collect()),
            }
        }
    }

    /// One step. The patch of a conclusion is checked as the host does it.
    fn call(&self, journal: &[Entry]) -> Result<Step, Fault> {
        let Candidate {
            policy,
            binding,
            config,
            ..
        } = self.candidate;
        let limits = &binding.spec.limits;
        let input = StepInput {
            pass: Pass {
                object: self.pass.object.clone(),
                now: self.pass.started.unix.0,
                causes: self.pass.causes.clone(),
                attempt: self.pass.attempt,
                config: config.clone(),
                pending: self.role.pending.clone(),
                journal: Vec::new(),
            },
            journal: journal
                .iter()
                .cloned()
                .map(|entry| Item::Known(entry.into()))
                .collect(),
            unasked: 0,
            may_hold: u64::MAX,
            is_full: false,
            check: PatchCheck {
                binding: binding.clone(),
                role: self.role.role,
                snapshot: self.snapshot.clone(),
                judged: None,
            },
        };
        let reply = input.step(limits, |pass| policy.step(pass, limits));
        let checked = reply.checked.and_then(Result::err);
        let Some(StepOutput { outcome, fuel }) = reply.stepped else {
            return Err(Fault::new(FaultKind::TooLong, "the step was not made"));
        };
        self.fuel.set(self.fuel.get().saturating_sub(fuel));
        match checked {
            Some(wrong) => Err(Fault::new(FaultKind::BadOutput, wrong)),
            None => outcome,
        }
    }
}

/// The answer to a question, made of a recorded one about the same object that tells more of it.
fn narrowed(ask: &Ask, journal: &[Entry]) -> Option<Entry> {
    let Question::Object(wanted) = &ask.question else {
        return None;
    };
    let tells_more = |query: &ObjectQuery| {
        let has = |path: &String| query.projection.contains(path);
        let is_wider =
            query.projection.is_empty() || !wanted.projection.is_empty() && wanted.projection.iter().all(has);
        query.object == wanted.object && query.latest == wanted.latest && is_wider
    };
    let recorded = journal.iter().find(|entry| {
        ask_of(entry).is_some_and(|known| match &known.question {
            Question::Object(query) => known.round == ask.round && tells_more(query),
            _ => false,
        })
    })?;
    let narrow = |object: &Json| project(object, wanted.projection.iter().map(String::as_str)).into();
    Some(Entry {
        request: Request::Ask(ask.clone()),
        answer: recorded.answer.as_ref().map(narrow).map_err(Clone::clone),
    })
}

fn act_of(entry: &Entry) -> Option<&Act> {
    match &entry.request {
        Request::Act(act) => Some(act),
        Request::Ask(_) => None,
    }
}

fn ask_of(entry: &Entry) -> Option<&Ask> {
    match &entry.request {
        Request::Ask(ask) => Some(ask),
        Request::Act(_) => None,
    }
}

fn answers(entry: &Entry, ask: &Ask) -> bool {
    ask_of(entry) == Some(ask)
}

#[cfg(test)]
mod tests;
