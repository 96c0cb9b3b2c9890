//! What a worker does for a pass: it renders what is new in the journal, calls the policy, and checks what it concludes. It is
//! pure, so the host, the simulation and the tests of policies run the same.

mod conditions;
mod draft;
mod patch_check;

use std::sync::Arc;

use crate::binding::Limits;
use crate::contract::{Ask, Entry, Failure, Json, Pass, Question, Request, Step};
use crate::fault::{Fault, StepOutput};
use crate::merge::Edits;
use crate::render::{Render, too_large};

/// The bytes of text that one part of a step reads. Before the next part others have their turn, so the work of one pass holds them up
/// for some milliseconds at most, but for a single object or list that is larger.
const AT_ONCE: u64 = 2 << 20;
/// The fuel charged for a byte that is copied out of a policy.
const PER_BYTE: u64 = 2;
/// The bytes that a failure counts in a journal, beside its texts.
const FAILURE: u64 = 64;
/// The most bytes of a failure's message in a journal: a condition on the object has room for as many.
const MESSAGE: usize = 32_768;

pub use conditions::HostCondition;
pub(crate) use conditions::RECONCILED;
pub use draft::{Draft, DraftInput};
pub(crate) use draft::{Drops, Entries, LastWrite};
pub use patch_check::PatchCheck;

/// An entry of a journal that is being made. A copy costs nothing: a pass with a long journal is handed to workers many times.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A request and its answer.
    Known(Arc<Entry>),
    /// A question about objects, whose answer the next step renders.
    Named(Arc<Ask>, Arc<Render>),
}

/// The input of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInput {
    /// The snapshot, without a journal.
    pub pass: Pass,
    /// The journal so far.
    pub journal: Vec<Item>,
    /// How many items at the beginning of the journal this pass has not asked for. Half of the journal is for them at most,
    /// and what does not fit is left out: if the policy asks for it, it is told.
    pub unasked: usize,
    /// The bytes of answers, requests or patches that the pass may take in beside those that it holds.
    pub may_hold: u64,
    /// Whether a list did not fit into what is left of the journal. Later lists are refused without being rendered.
    pub is_full: bool,
    /// What the patch of a conclusion is checked against.
    pub check: PatchCheck,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReply {
    /// The answers that were rendered, in the order of the journal. `None` for one that was left out.
    pub rendered: Vec<Option<RenderedAnswer>>,
    /// What the step took, in fuel: that of the policy, and a unit for each byte of text that was read.
    pub cost: u64,
    /// Whether a list did not fit.
    pub is_full: bool,
    /// What the policy returned; `None` if that, or what it was to see, is more than the pass may hold. The step is made again
    /// once it may.
    pub stepped: Option<StepOutput>,
    /// For a conclusion: what it changes of the object, `None` if the object is absent; or what is wrong with its patch.
    pub checked: Option<Result<Option<Edits>, String>>,
}

/// A rendered answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedAnswer {
    /// The answer, as the journal holds it.
    pub answer: Result<Json, Failure>,
    /// The number of objects that it counted.
    pub count: u64,
}

impl Item {
    /// The request.
    pub(crate) fn ask(&self) -> Option<&Ask> {
        match self {
            Item::Known(entry) => match &entry.request {
                Request::Ask(ask) => Some(ask),
                Request::Act(_) => None,
            },
            Item::Named(ask, _) => Some(ask),
        }
    }

    /// The entry, if its answer is known.
    pub(crate) fn known(self) -> Option<Entry> {
        match self {
            Item::Known(entry) => Some(Arc::unwrap_or_clone(entry)),
            Item::Named(..) => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Item::Known(entry) => size_of(&entry.answer),
            Item::Named(..) => 0,
        }
    }
}

impl StepInput {
    /// Makes the whole step.
    pub fn step(&self, limits: &Limits, policy: impl FnOnce(&Pass) -> StepOutput) -> StepReply {
        let mut work = StepWork::new(self.clone().into());
        loop {
            match work.render(limits) {
                StepProgress::More => {}
                StepProgress::TooLarge(reply) => return *reply,
                StepProgress::Ready(pass) => return work.end(policy(&pass)),
            }
        }
    }
}

/// What comes after a part of a step.
#[derive(Debug)]
pub enum StepProgress {
    /// More is to be rendered.
    More,
    /// The pass may not hold what was rendered. This is the result.
    TooLarge(Box<StepReply>),
    /// The policy is to be called with this.
    Ready(Pass),
}

/// A step that is being made. What the journal only names is rendered, a part at a time, and the policy is called when all is
/// rendered. Between two parts, others have their turn.
#[derive(Debug)]
pub struct StepWork {
    input: Arc<StepInput>,
    reply: StepReply,
    /// What is rendered, in the order of the journal. `None` for what was left out.
    rendered: Vec<Option<Entry>>,
    /// The place in the journal from which on there is more to render.
    next: usize,
    /// The bytes of the answers that are known.
    bytes: u64,
    may_hold: u64,
}

impl StepWork {
    /// Nothing is done yet.
    pub fn new(input: Arc<StepInput>) -> Self {
        StepWork {
            reply: StepReply {
                is_full: input.is_full,
                ..StepReply::default()
            },
            rendered: Vec::new(),
            next: 0,
            bytes: input.journal.iter().map(Item::bytes).fold(0, u64::saturating_add),
            may_hold: input.may_hold,
            input,
        }
    }

    /// What it has cost so far, in fuel.
    pub fn cost(&self) -> u64 {
        self.reply.cost
    }

    /// Renders the next part.
    pub fn render(&mut self, limits: &Limits) -> StepProgress {
        let input = self.input.clone();
        let began = self.reply.cost;
        for (index, item) in input.journal.iter().enumerate().skip(self.next) {
            let Item::Named(ask, render) = item else {
                continue;
            };
            if self.reply.cost - began >= AT_ONCE {
                self.next = index;
                return StepProgress::More;
            }
            let is_asked = index >= input.unasked;
            let most = if is_asked {
                limits.journal
            } else {
                limits.journal / 2
            };
            let room = limits.answer.min(most.saturating_sub(self.bytes));
            let entry = self.reply.render(ask, render, (room, limits.answer), is_asked);
            let size = entry.as_ref().map_or(0, |entry| size_of(&entry.answer));
            if size > self.may_hold {
                self.reply.rendered.pop();
                return StepProgress::TooLarge(self.reply().into());
            }
            self.may_hold -= size;
            self.bytes = self.bytes.saturating_add(size);
            self.rendered.push(entry);
        }
        let mut rendered = std::mem::take(&mut self.rendered).into_iter();
        let journal = input.journal.iter().filter_map(|item| match item {
            Item::Known(entry) => Some(Entry::clone(entry)),
            Item::Named(..) => rendered.next().flatten(),
        });
        StepProgress::Ready(Pass {
            journal: journal.collect(),
            ..input.pass.clone()
        })
    }

    /// Ends the step with what the policy returned.
    pub fn end(&mut self, stepped: StepOutput) -> StepReply {
        let check = &self.input.check;
        let returned = bytes_of(&stepped);
        let copied = returned.saturating_mul(PER_BYTE);
        self.reply.cost = self
            .reply
            .cost
            .saturating_add(stepped.fuel)
            .saturating_add(copied);
        if returned > self.may_hold {
            return self.reply();
        }
        if let Ok(Step::Concluded { conclusion, .. }) = &stepped.outcome {
            let patch = conclusion.patch.as_ref();
            self.reply.cost = self.reply.cost.saturating_add(check.cost(patch));
            let edits = check.run(patch);
            self.reply.checked = Some(edits.map(|edits| edits.map(Edits::without_tree)));
        }
        self.reply.stepped = Some(stepped);
        self.reply()
    }

    fn reply(&mut self) -> StepReply {
        std::mem::take(&mut self.reply)
    }
}

impl StepReply {
    /// A step that the host could not do.
    pub fn failed(fault: Fault) -> Self {
        let outcome = Err(fault);
        StepReply {
            stepped: Some(StepOutput { outcome, fuel: 0 }),
            ..StepReply::default()
        }
    }

    /// Renders an answer into so much room. A list that is too long for any answer says nothing about the next one. One that
    /// is too long for the rest of the journal shows that the rest is small: rendering more lists for it would be in vain.
    fn render(
        &mut self,
        ask: &Ask,
        render: &Render,
        (room, most): (u64, u64),
        is_asked: bool,
    ) -> Option<Entry> {
        let is_list = matches!(ask.question, Question::Objects(_));
        let rendered = if is_list && (self.is_full || room == 0) {
            Err(too_large(room))
        } else {
            Ok(render.run(room))
        };
        let (answer, count, read) = match rendered {
            Ok(rendered) => (rendered.answer, rendered.count, rendered.read),
            Err(failure) => (Err(failure), 0, 0),
        };
        self.cost = self.cost.saturating_add(read);
        let does_not_fit = answer.as_ref().is_err_and(|failure| *failure == too_large(room));
        if does_not_fit && !is_asked {
            self.rendered.push(None);
            return None;
        }
        self.is_full |= is_list && does_not_fit && room < most;
        let entry = entry(Request::Ask(ask.clone()), answer);
        self.rendered.push(Some(RenderedAnswer {
            answer: entry.answer.clone(),
            count,
        }));
        Some(entry)
    }
}

/// An entry with an answer. A failure names its request, so that the failure stays clear when a policy passes it on.
pub(crate) fn entry(request: Request, answer: Result<Json, Failure>) -> Entry {
    let answer = answer.map_err(|failure| shortened(failure.of(request.operation())));
    Entry { request, answer }
}

/// The bytes that a policy returned and that its pass holds from then on. A patch is held once more, as the write that it
/// becomes.
fn bytes_of(stepped: &StepOutput) -> u64 {
    match &stepped.outcome {
        Ok(Step::Pending(requests)) => requests.bytes(),
        Ok(Step::Concluded { conclusion, .. }) => conclusion
            .patch
            .as_ref()
            .map_or(0, |patch| 2 * patch.bytes() as u64),
        Err(_) => 0,
    }
}

/// The bytes that an answer counts in a journal.
pub(crate) fn size_of(answer: &Result<Json, Failure>) -> u64 {
    match answer {
        Ok(json) => json.len() as u64,
        // The other side writes the texts: an API server's detail alone may have 4 KiB.
        Err(failure) => {
            FAILURE + (failure.message.len() + failure.detail.as_ref().map_or(0, |json| json.len())) as u64
        }
    }
}

/// A failure whose message a journal can hold many of. Clouds and API servers write as much as they like.
fn shortened(mut failure: Failure) -> Failure {
    let end = failure.message.floor_char_boundary(MESSAGE);
    failure.message.truncate(end);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Code, ListQuery, Role, Step};
    use crate::object::Object;
    use crate::reconcile::fixture::{config_maps, pending};
    use crate::selection::Selection;
    use serde_json::{Value, json};

    const SIZE: usize = 1_000;

    fn map(name: &str, size: usize) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x".repeat(size)},
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}}),
        )
    }

    /// A list of this many ConfigMaps of so many bytes.
    fn list(count: usize, size: usize) -> Item {
        let question = Question::Objects(ListQuery::all(config_maps().kind));
        let grant = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["*"]});
        let objects: Vec<Object> = (0..count).map(|n| map(&format!("m-{n:04}"), size)).collect();
        let asked = (
            Arc::new((Role::Lifecycle, question.clone())),
            Selection::default(),
        );
        let grant: crate::binding::KindGrant = serde_json::from_value(grant).expect("a grant");
        let render = Render::new(objects, None, grant.into(), asked);
        Item::Named(Ask { round: 0, question }.into(), render.into())
    }

    fn input(journal: Vec<Item>) -> StepInput {
        let pass = Pass {
            object: None,
            now: 0,
            causes: Vec::new(),
            attempt: 0,
            config: "null".into(),
            pending: Vec::new(),
            journal: Vec::new(),
        };
        StepInput {
            pass,
            journal,
            unasked: 0,
            may_hold: u64::MAX,
            is_full: false,
            check: PatchCheck {
                binding: crate::reconcile::fixture_binding(&[]).into(),
                role: crate::contract::Role::Lifecycle,
                snapshot: None,
                judged: None,
            },
        }
    }

    fn stepped() -> StepOutput {
        let outcome: Result<Step, _> = Ok(pending(Vec::new()));
        StepOutput { outcome, fuel: 7 }
    }

    fn limits(journal: u64, answer: u64) -> Limits {
        Limits {
            journal,
            answer,
            ..Limits::default()
        }
    }

    /// What became of each answer: its items, or its failure; `None` if it was left out.
    fn told(reply: &StepReply) -> Vec<Option<Result<usize, Code>>> {
        let items = |json: &Json| serde_json::from_str::<Vec<Value>>(json).expect("a list").len();
        let told = |answered: &RenderedAnswer| {
            answered
                .answer
                .as_ref()
                .map(items)
                .map_err(|failure| failure.code)
        };
        reply.rendered.iter().map(|one| one.as_ref().map(told)).collect()
    }

    #[test]
    fn the_policy_sees_what_is_rendered_and_what_is_known_in_the_order_of_its_requests() {
        let known = entry(crate::reconcile::fixture::get(), Ok("[1]".into()));
        let input = input(vec![list(1, SIZE), Item::Known(known.into()), list(2, SIZE)]);
        let mut seen = Vec::new();
        let reply = input.step(&Limits::default(), |pass| {
            seen = pass.journal.iter().map(|entry| entry.answer.clone()).collect();
            stepped()
        });
        assert_eq!(told(&reply), [Some(Ok(1)), Some(Ok(2))]);
        let counts: Vec<u64> = reply.rendered.iter().flatten().map(|one| one.count).collect();
        assert_eq!(counts, [1, 2]);
        let rendered: Vec<_> = reply
            .rendered
            .iter()
            .flatten()
            .map(|one| one.answer.clone())
            .collect();
        assert_eq!(seen, [rendered[0].clone(), Ok("[1]".into()), rendered[1].clone()]);
        assert_eq!(reply.stepped, Some(stepped()));
    }

    #[test]
    fn a_part_reads_so_much_and_the_next_one_goes_on_before_the_policy_is_called() {
        let most = usize::try_from(AT_ONCE).expect("some MiB");
        let input = input(vec![list(1, most / 2), list(1, most / 2), list(1, SIZE)]);
        let mut work = StepWork::new(input.into());
        assert!(matches!(work.render(&Limits::default()), StepProgress::More));
        assert_eq!(work.rendered.len(), 2);
        assert!(work.cost() >= AT_ONCE);
        let StepProgress::Ready(pass) = work.render(&Limits::default()) else {
            panic!("it is all rendered");
        };
        assert_eq!(pass.journal.len(), 3);
        let reply = work.end(stepped());
        assert_eq!((reply.rendered.len(), reply.stepped), (3, Some(stepped())));
    }

    #[test]
    fn what_a_pass_may_not_hold_yet_is_handed_back_to_nobody_and_paid() {
        let limits = Limits::default();
        let one = input(vec![list(1, SIZE)]).step(&limits, |_| stepped());
        let size = size_of(&one.rendered[0].as_ref().expect("an answer").answer);
        let may_hold = |may_hold| StepInput {
            may_hold,
            ..input(vec![list(1, SIZE), list(1, SIZE)])
        };
        let too_large = may_hold(2 * size - 1).step(&limits, |_| panic!("it is not all rendered"));
        assert_eq!((told(&too_large), too_large.stepped), (vec![Some(Ok(1))], None));
        let fits = may_hold(2 * size).step(&limits, |_| stepped());
        assert_eq!(fits.stepped, Some(stepped()));
        // What the policy returns counts, too.
        let requests = || StepOutput {
            outcome: Ok(pending(vec![crate::reconcile::fixture::get()])),
            fuel: 7,
        };
        let returned = crate::reconcile::fixture::get().bytes();
        let too_large = may_hold(2 * size + returned - 1).step(&limits, |_| requests());
        assert_eq!(too_large.stepped, None);
        assert!(too_large.cost > fits.cost, "{} {}", too_large.cost, fits.cost);
        let fits = may_hold(2 * size + returned).step(&limits, |_| requests());
        assert_eq!(fits.stepped, Some(requests()));
    }

    #[test]
    fn the_next_answer_has_the_room_that_is_left_and_a_list_after_one_that_does_not_fit_is_not_read() {
        let one = input(vec![list(2, SIZE)]).step(&Limits::default(), |_| stepped());
        let bytes = size_of(&one.rendered[0].as_ref().expect("an answer").answer);
        let lists = || input(vec![list(2, SIZE), list(2, SIZE), list(1, SIZE)]);
        let too_large = Some(Err(Code::ResourceExhausted));
        for (journal, second) in [(2 * bytes, Some(Ok(2))), (2 * bytes - 1, too_large)] {
            let reply = lists().step(&limits(journal, 1 << 20), |_| stepped());
            assert_eq!(told(&reply), [Some(Ok(2)), second, too_large], "{journal}");
            let again = StepInput {
                is_full: reply.is_full,
                ..input(vec![list(1, SIZE)])
            };
            let again = again.step(&Limits::default(), |_| stepped());
            assert_eq!((told(&again), again.cost), (vec![too_large], 7));
        }
        // Too long for any answer: that says nothing of the next.
        let reply = lists().step(&limits(1 << 20, bytes - 1), |_| stepped());
        assert_eq!(told(&reply), [too_large, too_large, Some(Ok(1))]);
    }

    #[test]
    fn what_nobody_asked_for_in_this_pass_takes_half_of_the_journal_and_is_left_out_if_it_does_not_fit() {
        let one = input(vec![list(2, SIZE)]).step(&Limits::default(), |_| stepped());
        let bytes = size_of(&one.rendered[0].as_ref().expect("an answer").answer);
        for (journal, expected) in [(2 * bytes, Some(Ok(2))), (2 * bytes - 2, None)] {
            let input = StepInput {
                unasked: 1,
                ..input(vec![list(2, SIZE), list(1, SIZE)])
            };
            let mut seen = 0;
            let reply = input.step(&limits(journal, 1 << 20), |pass| {
                seen = pass.journal.len();
                stepped()
            });
            assert_eq!(told(&reply), [expected, Some(Ok(1))], "{journal}");
            assert_eq!(seen, told(&reply).iter().flatten().count());
        }
    }
}
