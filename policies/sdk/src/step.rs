//! One call of a policy: from a pass to requests or a conclusion.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bindings::exports::polity::policy::identity;
use crate::context::{Journal, PassState, by_ask};
use crate::contract::{
    self, Code, Conclusion, Failure, IdentityStep, Next, Pass, Requests, RetryClass, Step, Wait,
};
use crate::{Context, Judgement, Kind, RetryRequest, Time, Verdict, patch, path, report};

/// One step of a lifecycle policy.
pub fn lifecycle<T, C, F>(pass: Pass, policy: impl FnOnce(Context<T, C>) -> F) -> Step
where
    T: Kind,
    C: DeserializeOwned,
    F: Future<Output = Result<Next, Failure>>,
{
    let report = |state: &PassState<T, C>, end: Result<&Next, &Failure>| {
        report::end_of_pass(state, end.map_or_else(Some, failure_of));
    };
    match run(pass, policy, report) {
        Outcome::Pending(requests) => Step::Pending(requests),
        Outcome::Absent => Step::Concluded(empty(Next::settled())),
        Outcome::Undecodable(failure) => Step::Concluded(empty(Next::failed(RetryClass::Long, failure))),
        Outcome::Ready(end, mut conclusion) => {
            conclusion.next = end.unwrap_or_else(|failure| Next::failed(RetryClass::Short, failure));
            Step::Concluded(conclusion)
        }
    }
}

/// One step of an identity policy. Any failure is a denial.
pub fn identity<T, C, F>(pass: Pass, policy: impl FnOnce(Context<T, C>) -> F) -> IdentityStep
where
    T: Kind,
    C: DeserializeOwned,
    F: Future<Output = Result<Judgement, Failure>>,
{
    // The object's condition belongs to its lifecycle policy.
    let unreported = |_: &PassState<T, C>, _: Result<&Judgement, &Failure>| ();
    let (judgement, mut conclusion) = match run(pass, policy, unreported) {
        Outcome::Pending(requests) => return IdentityStep::Pending(requests),
        Outcome::Absent => (Judgement::denied(Next::settled()), empty(Next::settled())),
        Outcome::Undecodable(failure) => (
            Judgement::denied(Next::failed(RetryClass::Long, failure)),
            empty(Next::settled()),
        ),
        Outcome::Ready(end, conclusion) => {
            let denied = |failure| Judgement::denied(Next::failed(RetryClass::Short, failure));
            (end.unwrap_or_else(denied), conclusion)
        }
    };
    conclusion.next = judgement.next;
    let verdict = match judgement.verdict {
        Verdict::Granted(handle) => identity::Verdict::Granted(handle),
        Verdict::Denied => identity::Verdict::Denied,
        Verdict::Released => identity::Verdict::Released,
    };
    IdentityStep::Concluded(identity::Judgement { verdict, conclusion })
}

/// The call of a retry policy. If its configuration cannot be decoded, the object waits a minute. The host
/// has checked the configuration against the schema, so this is a mistake of the policy, which must not cause
/// a busy loop.
pub fn retry<C: DeserializeOwned, W: Into<Wait>>(
    request: contract::RetryRequest,
    policy: impl FnOnce(RetryRequest<C>) -> W,
) -> Wait {
    let Ok(config) = serde_json::from_str(&request.config) else {
        return Wait::After(60_000);
    };
    policy(RetryRequest {
        api_version: request.api_version,
        kind: request.kind,
        namespace: request.namespace,
        origin: request.origin,
        class: request.class,
        failure: request.failure,
        attempt: request.attempt,
        failing_for: Duration::from_millis(request.failing_for),
        previous_wait: request.previous_wait.map(Duration::from_millis),
        seed: request.seed,
        config,
    })
    .into()
}

enum Outcome<R> {
    Pending(Requests),
    /// The object does not exist, and the kind is not called without it.
    Absent,
    /// The object or the configuration does not match the policy's types.
    Undecodable(Failure),
    /// The end of the policy, and the conclusion without its `next`.
    Ready(Result<R, Failure>, Conclusion),
}

/// Runs a step: decodes, polls the future once, reports the end of the pass, and collects.
fn run<T, C, F, R>(
    pass: Pass,
    policy: impl FnOnce(Context<T, C>) -> F,
    report: impl FnOnce(&PassState<T, C>, Result<&R, &Failure>),
) -> Outcome<R>
where
    T: Kind,
    C: DeserializeOwned,
    F: Future<Output = Result<R, Failure>>,
{
    let object: Option<T> = match pass
        .object
        .as_deref()
        .map(|json| decode(json, "the object"))
        .transpose()
    {
        Ok(object) => object,
        Err(failure) => return Outcome::Undecodable(failure),
    };
    if object.is_none() && !T::RUNS_WHILE_ABSENT {
        return Outcome::Absent;
    }
    let config: C = match decode(&pass.config, "the configuration") {
        Ok(config) => config,
        Err(failure) => return Outcome::Undecodable(failure),
    };
    let journal = Rc::new(Journal {
        now: Time::from_unix_ms(pass.now),
        attempt: pass.attempt,
        pending: pass.pending,
        home: object
            .as_ref()
            .and_then(|object| object.metadata().namespace.clone()),
        used: vec![Cell::new(false); pass.journal.len()],
        answered: by_ask(&pass.journal),
        entries: pass.journal,
        asks: RefCell::default(),
        acts: RefCell::default(),
        notes: RefCell::default(),
        events: RefCell::default(),
        #[cfg(not(target_arch = "wasm32"))]
        watch: crate::test::Watch::default(),
    });
    let state = Rc::new(PassState {
        object,
        edited: RefCell::new(None),
        config,
        journal: Rc::clone(&journal),
    });

    let polled = {
        let future = pin!(policy(Context {
            pass: Rc::clone(&state)
        }));
        let polled = future.poll(&mut task::Context::from_waker(Waker::noop()));
        #[cfg(not(target_arch = "wasm32"))]
        journal.watch.polled(polled.is_ready());
        polled
    };
    let patch = || match (&state.object, &*state.edited.borrow(), &pass.object) {
        (Some(before), Some(after), Some(stored)) => patch::between(before, after, stored),
        _ => None,
    };
    let outcome = match polled {
        Poll::Pending => {
            let requests = journal.requests();
            #[cfg(not(target_arch = "wasm32"))]
            crate::test::Watch::edited(match &requests {
                Requests::Acts(_) => patch(),
                Requests::Asks(_) => None,
            });
            Outcome::Pending(requests)
        }
        Poll::Ready(end) => {
            report(&state, end.as_ref());
            let patch = patch();
            Outcome::Ready(end, journal.conclusion(patch))
        }
    };
    leave((state, journal, pass.object, pass.config));
    outcome
}

/// The failure with which a pass ended, if there is one.
fn failure_of(next: &Next) -> Option<&Failure> {
    match next {
        Next::Retry(retry) => retry.failure.as_ref(),
        Next::Settled(_) | Next::After(_) => None,
    }
}

/// Leaks a value. The instance ends with its step, so freeing its values one by one would be wasted work.
fn leave<T>(held: T) {
    if cfg!(target_arch = "wasm32") {
        std::mem::forget(held);
    }
}

impl Journal {
    /// The open asks if there are any, otherwise the acts.
    fn requests(&self) -> Requests {
        let mut asks: Vec<_> = self.asks.take().into_iter().collect();
        asks.sort_by_key(|(_, before)| *before);
        if asks.is_empty() {
            Requests::Acts(self.acts.take())
        } else {
            Requests::Asks(asks.into_iter().map(|(ask, _)| ask).collect())
        }
    }

    /// The conclusion without its `next`.
    fn conclusion(&self, patch: Option<String>) -> Conclusion {
        let used = (0u32..)
            .zip(&self.used)
            .filter(|(_, used)| used.get())
            .map(|(index, _)| index)
            .collect();
        Conclusion {
            patch,
            events: self.events.take(),
            notes: self.notes.take(),
            next: Next::settled(),
            used,
        }
    }
}

fn empty(next: Next) -> Conclusion {
    Conclusion {
        patch: None,
        events: Vec::new(),
        notes: Vec::new(),
        next,
        used: Vec::new(),
    }
}

/// Decodes JSON. `what` names it in the failure, which also names the field.
///
/// # Errors
/// `InvalidArgument` if the text is not JSON of this type.
pub fn decode<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| undecodable(json, what, &error))
}

#[cold]
fn undecodable(json: &str, what: &str, error: &serde_json::Error) -> Failure {
    let message = match path::of(json, error.line(), error.column()) {
        path if path.is_empty() => format!("{what} does not decode: {error}"),
        path => format!("{what} does not decode at {path}: {error}"),
    };
    Failure::new(Code::InvalidArgument, message)
}
