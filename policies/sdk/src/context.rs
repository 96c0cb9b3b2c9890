//! The pass as its policy sees it.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};

use crate::contract::{self, ActInDoubt, Event, EventType, Failure, Question, Request};
use crate::{Act, Ask, Kind, Lock, Time};

/// One pass as its policy sees it: the object, the time, the configuration, and the requests that it can
/// make.
///
/// `T` is the type of the primary, `C` the type of the configuration. A clone is cheap and is the same pass.
pub struct Context<T, C = serde_json::Value> {
    pub(crate) pass: Rc<PassState<T, C>>,
}

impl<T, C> Clone for Context<T, C> {
    fn clone(&self) -> Self {
        Context {
            pass: Rc::clone(&self.pass),
        }
    }
}

pub(crate) struct PassState<T, C> {
    /// The object as the pass got it.
    pub(crate) object: Option<T>,
    /// The object as the policy has edited it; `None` if it has not.
    pub(crate) edited: RefCell<Option<T>>,
    pub(crate) config: C,
    pub(crate) journal: Rc<Journal>,
}

/// The part that does not depend on the policy's types. So it is compiled once.
pub(crate) struct Journal {
    pub(crate) now: Time,
    pub(crate) attempt: u32,
    pub(crate) pending: Vec<ActInDoubt>,
    /// The primary's namespace.
    pub(crate) home: Option<String>,
    pub(crate) entries: Vec<contract::Entry>,
    /// The places of the entries that answer asks, in the order of these asks: a step may look for a thousand of them.
    pub(crate) answered: Vec<usize>,
    /// For each entry, whether this run used it.
    pub(crate) used: Vec<Cell<bool>>,
    /// The asks that the journal does not answer, and how many were registered before each.
    pub(crate) asks: RefCell<BTreeMap<contract::Ask, usize>>,
    /// The acts that the journal does not answer, in the order in which they were registered.
    pub(crate) acts: RefCell<Vec<contract::Act>>,
    pub(crate) notes: RefCell<Vec<String>>,
    pub(crate) events: RefCell<Vec<Event>>,
    /// The observations of the test kit.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) watch: crate::test::Watch,
}

impl Journal {
    /// The answer to an ask, if the journal has it. Otherwise the ask is registered once.
    fn answer_ask(&self, ask: &contract::Ask) -> Option<&Result<String, Failure>> {
        let ask_at = |at: &usize| ask_of(&self.entries[*at]);
        let before = self.answered.partition_point(|at| ask_at(at) < Some(ask));
        let found = self.answered.get(before).copied();
        let found = found.filter(|at| ask_at(at) == Some(ask));
        #[cfg(not(target_arch = "wasm32"))]
        self.watch.asked(ask, found);
        let Some(index) = found else {
            let mut asks = self.asks.borrow_mut();
            if !asks.contains_key(ask) {
                let before = asks.len();
                asks.insert(ask.clone(), before);
            }
            return None;
        };
        self.used[index].set(true);
        Some(&self.entries[index].answer)
    }

    /// The answer to the nth act with this content, if the journal has it. Otherwise the act is registered.
    /// An answer that this run has used belongs to an earlier equal act, so the first unused one belongs to
    /// this act.
    fn answer_act(&self, act: &contract::Act) -> Option<&Result<String, Failure>> {
        let found =
            self.entries.iter().zip(&self.used).position(
                |(entry, used)| matches!(&entry.request, Request::Act(a) if !used.get() && a == act),
            );
        #[cfg(not(target_arch = "wasm32"))]
        self.watch.acted(act, found);
        let Some(index) = found else {
            self.acts.borrow_mut().push(act.clone());
            return None;
        };
        self.used[index].set(true);
        Some(&self.entries[index].answer)
    }
}

/// The places of the entries that answer asks, in the order of these asks. Of equal ones the first comes first.
pub(crate) fn by_ask(entries: &[contract::Entry]) -> Vec<usize> {
    let is_ask = |at: &usize| ask_of(&entries[*at]).is_some();
    let mut places: Vec<usize> = (0..entries.len()).filter(is_ask).collect();
    places.sort_by_key(|at| ask_of(&entries[*at]));
    places
}

/// The ask that an entry answers; `None` for an act.
fn ask_of(entry: &contract::Entry) -> Option<&contract::Ask> {
    match &entry.request {
        Request::Ask(ask) => Some(ask),
        Request::Act(_) => None,
    }
}

impl<T: Kind, C> Context<T, C> {
    /// The primary object as the pass found it.
    ///
    /// # Panics
    /// The object does not exist. That can only happen for a kind with
    /// [`RUNS_WHILE_ABSENT`](Kind::RUNS_WHILE_ABSENT).
    pub fn object(&self) -> &T {
        self.object_if_present()
            .expect("the object is absent: look with object_if_present()")
    }

    /// The primary object as the pass found it; `None` if the binding names one object and that object does
    /// not exist.
    pub fn object_if_present(&self) -> Option<&T> {
        self.pass.object.as_ref()
    }

    /// The primary object for editing. The fields that differ at the end become a merge patch.
    ///
    /// # Panics
    /// The object does not exist, or another `Edit` is alive. Pass that one on as `&mut T`.
    pub fn object_mut(&self) -> Edit<'_, T> {
        let Ok(mut edited) = self.pass.edited.try_borrow_mut() else {
            panic!("object_mut() while an earlier one is alive: pass that one down as &mut");
        };
        if edited.is_none() {
            *edited = Some(self.object().clone());
        }
        Edit(RefMut::map(edited, |edited| {
            edited.as_mut().expect("filled above")
        }))
    }

    /// The time of the pass; the same in each of its steps.
    pub fn now(&self) -> Time {
        self.pass.journal.now
    }

    /// The binding's configuration.
    pub fn config(&self) -> &C {
        &self.pass.config
    }

    /// How many passes in a row ended in `retry` with a failure before this one.
    pub fn attempt(&self) -> u32 {
        self.pass.journal.attempt
    }

    /// The creates whose outcome was unknown when the pass began.
    pub fn pending(&self) -> &[ActInDoubt] {
        &self.pass.journal.pending
    }

    /// Asks a question. Equal questions share one answer: the state when the pass first asked.
    pub fn ask<A: Ask>(&self, ask: A) -> Asking<A> {
        self.ask_again(0, ask)
    }

    /// Asks a question again, once for each round. Rounds begin at 1. Use it to look again after an act.
    pub fn ask_again<A: Ask>(&self, round: u32, ask: A) -> Asking<A> {
        let journal = Rc::clone(&self.pass.journal);
        let question = ask.question(journal.home.as_deref());
        Asking {
            journal,
            ask: contract::Ask { round, question },
            polled: false,
            answer: PhantomData,
        }
    }

    /// Acts. Each act is performed once, in the order in which the acts are awaited, as soon as no question
    /// is open.
    pub fn act<A: Act>(&self, act: A) -> Acting<A> {
        let journal = Rc::clone(&self.pass.journal);
        let act = act.act(journal.home.as_deref());
        Acting {
            journal,
            act,
            polled: false,
            answer: PhantomData,
        }
    }

    /// Asks for a lock, which excludes other passes of the same binding and tenant until this pass is
    /// published. `None` if another pass holds the lock: as soon as it is free, this object gets its next
    /// pass.
    pub async fn lock(&self, name: &str) -> Result<Option<Lock<T, C>>, Failure> {
        let held = self.ask(LockAsk(name)).await?;
        Ok(held.then(|| Lock::of(self.clone())))
    }

    /// Leaves a short remark for programs: the id of an edge of the workflow that this pass has taken.
    pub fn note(&self, id: impl Into<String>) {
        self.pass.journal.notes.borrow_mut().push(id.into());
    }

    /// Says what you want to see of a step: `polity explain --step` shows it, and a test prints it. It decides nothing and is
    /// no edge.
    pub fn debug(&self, message: impl std::fmt::Display) {
        #[cfg(target_arch = "wasm32")]
        crate::bindings::polity::policy::debug::say(&message.to_string());
        #[cfg(not(target_arch = "wasm32"))]
        eprintln!("debug: {message}");
    }

    /// Reports a Kubernetes Event on the primary. The host writes it only when something changes from pass to pass.
    pub fn event(&self, kind: EventType, reason: &str, message: impl Into<String>) {
        let event = Event {
            kind,
            reason: reason.to_owned(),
            message: message.into(),
        };
        self.pass.journal.events.borrow_mut().push(event);
    }

    /// The notes so far, for policies that derive one note from another.
    pub fn notes(&self) -> Ref<'_, [String]> {
        Ref::map(self.pass.journal.notes.borrow(), Vec::as_slice)
    }
}

/// The primary object during an edit. See [`Context::object_mut`].
pub struct Edit<'a, T>(RefMut<'a, T>);

impl<T> Deref for Edit<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Edit<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A question on its way. It is asked when it is awaited.
#[must_use = "nothing is asked until this is awaited"]
pub struct Asking<A> {
    journal: Rc<Journal>,
    ask: contract::Ask,
    polled: bool,
    answer: PhantomData<fn() -> A>,
}

impl<A: Ask> Future for Asking<A> {
    type Output = Result<A::Answer, Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.polled = true;
        match self.journal.answer_ask(&self.ask) {
            None => Poll::Pending,
            Some(answer) => Poll::Ready(read(answer, A::read)),
        }
    }
}

/// An act on its way. It is performed when it is awaited.
#[must_use = "nothing is done until this is awaited"]
pub struct Acting<A> {
    journal: Rc<Journal>,
    act: contract::Act,
    polled: bool,
    answer: PhantomData<fn() -> A>,
}

impl<A: Act> Future for Acting<A> {
    type Output = Result<A::Answer, Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
        if self.polled {
            // This step has registered the request. A second poll must not register it again.
            return Poll::Pending;
        }
        self.polled = true;
        match self.journal.answer_act(&self.act) {
            None => Poll::Pending,
            Some(answer) => Poll::Ready(read(answer, A::read)),
        }
    }
}

fn read<A>(answer: &Result<String, Failure>, read: fn(&str) -> Result<A, Failure>) -> Result<A, Failure> {
    match answer {
        Ok(json) => read(json),
        Err(failure) => Err(failure.clone()),
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl<A> Drop for Asking<A> {
    fn drop(&mut self) {
        if !self.polled {
            self.journal
                .watch
                .dropped(crate::test::describe(&Request::Ask(self.ask.clone())));
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl<A> Drop for Acting<A> {
    fn drop(&mut self) {
        if !self.polled {
            self.journal
                .watch
                .dropped(crate::test::describe(&Request::Act(self.act.clone())));
        }
    }
}

/// Whether a lock is held.
struct LockAsk<'a>(&'a str);

impl Ask for LockAsk<'_> {
    type Answer = bool;

    fn question(self, _: Option<&str>) -> Question {
        Question::Lock(self.0.to_owned())
    }

    fn read(json: &str) -> Result<bool, Failure> {
        crate::request::read::<Answer>(json).map(|answer| answer == Answer::Held)
    }
}

#[derive(PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Held,
    Busy,
}
