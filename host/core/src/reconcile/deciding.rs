//! Deciding: asks the retry policy how long the key waits.

use std::time::Duration;

use super::context::{Context, Report};
use super::flow::{Flow, PhaseEvent};
use super::frame::LastPass;
use super::pass_end::{PassEnd, PassResult};
use crate::binding::{Binding, Limits};
use crate::call::{Call, Reply};
use crate::contract::{Code, Failure, Next, Origin, RetryClass, RetryRequest, Role, Wait};
use crate::fault::Fault;
use crate::key::Key;
use crate::record::{Outcome, RetryRecord};
use crate::retry::{Delay, default_wait, seed};
use crate::shared::guards::Guard;
use crate::time::{Boot, millis};

/// The bytes of a failure's message that are kept while the key waits and handed to its retry policy.
const MESSAGE: usize = 512;

/// Why a key is tried again: the origin, the class of the wait, and the failure if there was one.
type Why = (Origin, RetryClass, Option<Failure>);

/// A call of the retry policy, for a pass that has ended.
#[derive(Debug)]
pub(crate) struct Deciding {
    ended: PassEnd,
    request: RetryRequest,
}

impl PassEnd {
    /// Asks the retry policy, if the pass is retried and the binding names a retry policy.
    pub(super) fn decide(self, context: &mut Context<'_>) -> Flow<Deciding> {
        let Some(why) = self.to_retry(context) else {
            return Flow::Finish(PassResult {
                ended: self,
                waited: None,
                retry: None,
            });
        };
        let frame = context.frame;
        let row = match self.outcome {
            Outcome::Faulted => frame.faults,
            _ => frame.attempt,
        };
        let of = (&frame.key, frame.uid(), &frame.last);
        let request = request(why, row, of, &frame.binding, context.view.now.boot);
        let phase = Deciding { ended: self, request };
        // A policy cannot judge a defect of the host. A host that has no time to stop waits for no policy.
        let is_bug = matches!(phase.ended.outcome, Outcome::Bug(_));
        match context.frame.binding.policy(Role::Retry) {
            Some(_) if !context.view.cutting && !is_bug => Flow::Again(phase),
            _ => Flow::Finish(phase.interrupt()),
        }
    }

    /// Why the pass is retried; `None` if it is not.
    fn to_retry(&self, context: &Context<'_>) -> Option<Why> {
        let of_role = || match (&self.outcome, context.frame.binding.policy(Role::Lifecycle)) {
            (Outcome::Published, Some(_)) => Origin::Lifecycle,
            // The identity policy ended the pass, or the binding has no other policy to conclude one.
            _ => Origin::Identity,
        };
        match (&self.outcome, &self.next) {
            (
                Outcome::Published | Outcome::Denied | Outcome::Released,
                Some(Next::Retry { class, failure }),
            ) => Some((of_role(), *class, failure.clone())),
            (Outcome::Discarded(_), _) => Some((Origin::Conflict, RetryClass::Conflict, None)),
            (Outcome::Failed(failure), _) => {
                Some((Origin::Publication, RetryClass::Short, Some(failure.clone())))
            }
            (Outcome::Faulted, _) => Some(quarantine(context)),
            (Outcome::Bug(what), _) => {
                let failure = Failure::new(Code::Internal, what.clone());
                Some((Origin::Publication, RetryClass::Short, Some(failure)))
            }
            _ => None,
        }
    }
}

impl Deciding {
    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        match event {
            PhaseEvent::Entered => {
                let Some(policy) = context.frame.binding.policy(Role::Retry) else {
                    return Flow::Finish(self.interrupt());
                };
                let call = Call::Decide {
                    policy: policy.id.clone(),
                    request: self.request.clone(),
                    limits: context.frame.binding.spec.limits.clone(),
                };
                context.work(call);
                Flow::Wait(self)
            }
            PhaseEvent::Reply(_, Reply::Decided(answer)) => self.on_decided(answer, context),
            event => Flow::unexpected("Deciding", &event),
        }
    }

    /// Ends the pass with the host's own wait, without the retry policy.
    pub(super) fn interrupt(self) -> PassResult {
        let delay = Delay::After(default_wait(&self.request));
        PassResult {
            ended: self.ended,
            waited: Some((delay, self.request)),
            retry: None,
        }
    }

    fn on_decided(self, answer: Result<Wait, Fault>, context: &mut Context<'_>) -> Flow<Self> {
        let Deciding { ended, request } = self;
        let binding = &context.frame.binding;
        let retry = binding.policy(Role::Retry).map(|policy| RetryRecord {
            policy: policy.id.clone(),
            request: request.clone(),
            answer: answer.as_ref().ok().copied(),
            fault: answer.as_ref().err().cloned(),
        });
        let (mut delay, wrong) = delay_of(answer, &binding.spec.limits, &request);
        if !context.is_guarded(Guard::RetryPoliciesDecide) {
            delay = Delay::After(default_wait(&request));
        }
        if let Some(wrong) = wrong {
            context.report(wrong);
        }
        let waited = Some((delay, request));
        Flow::Finish(PassResult { ended, waited, retry })
    }
}

/// The end of a quarantine is asked about with the fault, as that of the role whose policy broke its contract.
fn quarantine(context: &Context<'_>) -> Why {
    let last = context.work.roles.last();
    let origin = match last.map(|role| role.role) {
        Some(Role::Identity) => Origin::Identity,
        _ => Origin::Lifecycle,
    };
    let fault = last.and_then(|role| role.fault.as_ref());
    let message = fault.map_or_else(String::new, Fault::to_string);
    let failure = Failure::new(Code::Internal, message).of("quarantine");
    (origin, RetryClass::Short, Some(failure))
}

/// The request about a read of the primary that failed before a pass, as it failed this often in a row before.
pub(crate) fn of_read(
    failure: Failure,
    row: u32,
    of: (&Key, &str, &LastPass),
    binding: &Binding,
    now: Boot,
) -> RetryRequest {
    let why = (Origin::Publication, RetryClass::Short, Some(failure.of("read")));
    request(why, row, of, binding, now)
}

/// The request about a key of this uid that is tried again. `row` says how often it failed so in a row before.
fn request(
    (origin, class, failure): Why,
    row: u32,
    (key, uid, last): (&Key, &str, &LastPass),
    binding: &Binding,
    now: Boot,
) -> RetryRequest {
    // A wait without a failure is always the first of its class, however many failed passes were before.
    let attempt = failure.as_ref().map_or(0, |_| row);
    let since = last.failing_since.filter(|_| failure.is_some());
    let policy = binding.policy(Role::Retry);
    RetryRequest {
        kind: binding.spec.governs.kind(),
        namespace: key.namespace.as_deref().map(str::to_owned),
        origin,
        class,
        failure: failure.map(shortened),
        attempt,
        failing_for: since.map_or(0, |since| millis(now - since)),
        previous_wait: last.waited.map(millis),
        seed: seed(uid, attempt),
        config: policy.map_or_else(|| "null".into(), |p| p.config.clone()),
    }
}

/// Shortens a failure to the part that is kept while its key waits.
fn shortened(mut failure: Failure) -> Failure {
    failure
        .message
        .truncate(failure.message.floor_char_boundary(MESSAGE));
    failure.detail = None;
    failure
}

/// The wait of a key, after the answer of its retry policy, and a report for the binding if the host changed the wait
/// or the policy failed. What the other side asks for is a hint to the policy: the floor is the binding's.
pub(crate) fn delay_of(
    said: Result<Wait, Fault>,
    limits: &Limits,
    request: &RetryRequest,
) -> (Delay, Option<Report>) {
    match said {
        Ok(Wait::OnChange(at_latest)) => {
            let (shortest, longest) = (limits.shortest_wait, limits.longest_wait);
            let at_latest = at_latest.map_or(longest, |said| {
                Duration::from_millis(said).min(longest).max(shortest)
            });
            (Delay::OnChange(at_latest), None)
        }
        Ok(Wait::After(said)) => {
            let (wait, wrong) = bounded(said, limits, request);
            (Delay::After(wait), wrong.map(Report::Clamped))
        }
        Err(fault) => (Delay::After(default_wait(request)), Some(Report::Faulted(fault))),
    }
}

/// Fits the wait of a retry policy into the limits of the binding, and returns why it was changed. A number that is
/// negative when read as signed is replaced by the host's own wait.
fn bounded(said: u64, limits: &Limits, request: &RetryRequest) -> (Duration, Option<String>) {
    let (shortest, longest) = (limits.shortest_wait, limits.longest_wait);
    let signed = said.cast_signed();
    if signed < 0 {
        // Such a number has no meaning.
        let wait = default_wait(request);
        let waits = millis(wait);
        let why =
            format!("the retry policy said {signed} ms; the host waits {waits} ms as it does without one");
        return (wait, Some(why));
    }
    let (wait, limit) = match Duration::from_millis(said) {
        wait if wait < shortest => (shortest, "shortestWait"),
        wait if wait > longest => (longest, "longestWait"),
        wait => return (wait, None),
    };
    let why = format!(
        "the retry policy said {said} ms; spec.limits.{limit} is {} ms",
        millis(wait)
    );
    (wait, Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::PolicyId;
    use crate::fault::FaultKind;
    use crate::reconcile::Command;
    use crate::reconcile::fixture::{Fixture, at, failure, machine, ms};
    use crate::reconcile::{Phase, end};
    use crate::record::{Discard, RoleRecord};
    use serde_json::json;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::of(machine(1, json!({})), &[Role::Lifecycle, Role::Retry]);
        fixture.frame.attempt = 3;
        fixture.frame.last.failing_since = Some(Boot(1_000));
        fixture.now = at(9_000);
        fixture
    }

    fn retries(class: RetryClass, failure: Option<Failure>) -> PassEnd {
        PassEnd {
            next: Some(Next::Retry { class, failure }),
            ..PassEnd::plain(Outcome::Published)
        }
    }

    /// The request that the retry policy gets.
    fn asked(fixture: &mut Fixture, ended: PassEnd) -> Option<RetryRequest> {
        let (flow, _) = fixture.with(|context| end(ended, context));
        let Flow::Again(phase) = flow else { return None };
        let (_, commands) = fixture.enter(phase);
        commands.into_iter().find_map(|command| match command {
            Command::Call {
                call: Call::Decide { request, .. },
                ..
            } => Some(request),
            _ => None,
        })
    }

    #[test]
    fn a_conflict_a_failure_and_a_retry_ask_the_retry_policy_and_nothing_else_does() {
        let mut fixture = fixture();
        let unavailable = failure(Code::Unavailable);
        let of = |fixture: &mut Fixture, ended| {
            asked(fixture, ended).map(|request| {
                (
                    request.origin,
                    request.class,
                    request.failure.map(|failure| failure.code),
                )
            })
        };
        let discarded = PassEnd::plain(Outcome::Discarded(Discard::Changed));
        assert_eq!(
            of(&mut fixture, discarded),
            Some((Origin::Conflict, RetryClass::Conflict, None))
        );
        let failed = PassEnd::plain(Outcome::Failed(unavailable.clone()));
        assert_eq!(
            of(&mut fixture, failed),
            Some((Origin::Publication, RetryClass::Short, Some(Code::Unavailable)))
        );
        let retry = retries(RetryClass::Long, Some(unavailable));
        assert_eq!(
            of(&mut fixture, retry),
            Some((Origin::Lifecycle, RetryClass::Long, Some(Code::Unavailable)))
        );
        for outcome in [
            Outcome::Published,
            Outcome::LeaseLost,
            Outcome::Stopped,
            Outcome::Bug("x".into()),
        ] {
            assert_eq!(
                of(&mut fixture, PassEnd::plain(outcome.clone())),
                None,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn only_a_failure_counts_attempts_and_how_long_they_have_gone_on() {
        let mut fixture = fixture();
        let failed = asked(
            &mut fixture,
            retries(RetryClass::Short, Some(failure(Code::Internal))),
        );
        let failed = failed.expect("it is asked");
        assert_eq!((failed.attempt, failed.failing_for), (3, 8_000));
        let waits = asked(&mut fixture, retries(RetryClass::Short, None)).expect("it is asked");
        assert_eq!((waits.attempt, waits.failing_for), (0, 0));
    }

    #[test]
    fn without_a_retry_policy_or_time_to_ask_it_the_ladder_decides() {
        let mut without = Fixture::new();
        let ended = retries(RetryClass::Conflict, None);
        let (flow, _) = without.with(|context| end(ended, context));
        let waited = |flow: Flow<Phase>| match flow {
            Flow::Finish(finished) => finished.waited.map(|(wait, _)| wait),
            flow => panic!("{flow:?}"),
        };
        let is_first_rung =
            |wait| matches!(wait, Some(Delay::After(wait)) if wait > ms(150) && wait <= ms(200));
        assert!(is_first_rung(waited(flow)));
        let mut cutting = fixture();
        cutting.cutting = true;
        let (flow, _) = cutting.with(|context| end(retries(RetryClass::Conflict, None), context));
        assert!(is_first_rung(waited(flow)));
    }

    #[test]
    fn a_defect_of_the_host_waits_by_the_ladder() {
        let mut fixture = fixture();
        let ended = PassEnd::plain(Outcome::Bug("x".into()));
        let (flow, _) = fixture.with(|context| end(ended, context));
        let Flow::Finish(finished) = flow else {
            panic!("{flow:?}")
        };
        let (wait, request) = finished.waited.expect("it is tried again");
        let code = request.failure.map(|failure| failure.code);
        assert_eq!((code, request.attempt), (Some(Code::Internal), 3));
        assert!(
            matches!(wait, Delay::After(wait) if (ms(6_000)..=ms(8_000)).contains(&wait)),
            "{wait:?}"
        );
    }

    fn deciding(fixture: &mut Fixture) -> Flow<Phase> {
        let ended = retries(RetryClass::Short, Some(failure(Code::Internal)));
        let (flow, _) = fixture.with(|context| end(ended, context));
        let Flow::Again(phase) = flow else {
            panic!("{flow:?}")
        };
        fixture.enter(phase).0
    }

    #[test]
    fn what_the_retry_policy_says_is_held_within_the_limits_of_the_binding() {
        let day = 24 * 3_600_000;
        for (said, waited) in [
            (7_000, 7_000),
            (1, 100),
            (100, 100),
            (day, day),
            (u64::MAX / 2, day),
        ] {
            let mut fixture = fixture();
            let flow = deciding(&mut fixture);
            let (flow, commands) =
                fixture.go_on(flow, PhaseEvent::Reply(0, Reply::Decided(Ok(Wait::After(said)))));
            let Flow::Finish(finished) = flow else {
                panic!("{flow:?}")
            };
            assert_eq!(
                finished.waited.map(|(wait, _)| wait),
                Some(Delay::After(ms(waited)))
            );
            let answer = finished.retry.and_then(|retry| retry.answer);
            assert_eq!(answer, Some(Wait::After(said)));
            let clamped = commands.iter().find_map(|command| match command {
                Command::Report(Report::Clamped(what)) => Some(what.clone()),
                _ => None,
            });
            let limit = match said {
                1 => "spec.limits.shortestWait is 100 ms",
                _ => "spec.limits.longestWait is 86400000 ms",
            };
            let told = (said != waited).then(|| format!("the retry policy said {said} ms; {limit}"));
            assert_eq!(clamped, told);
        }
    }

    #[test]
    fn a_number_that_was_negative_where_it_was_made_says_nothing() {
        let mut fixture = fixture();
        let flow = deciding(&mut fixture);
        let negative = Reply::Decided(Ok(Wait::After((-5_000_i64).cast_unsigned())));
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(0, negative));
        let Flow::Finish(finished) = flow else {
            panic!("{flow:?}")
        };
        let (delay, request) = finished.waited.expect("it is tried again");
        let wait = default_wait(&request);
        assert_eq!(delay, Delay::After(wait));
        let waits = millis(wait);
        let said =
            format!("the retry policy said -5000 ms; the host waits {waits} ms as it does without one");
        let told =
            |command: &Command| matches!(command, Command::Report(Report::Clamped(what)) if *what == said);
        assert!(commands.iter().any(told), "{commands:?}");
    }

    #[test]
    fn a_retry_policy_that_faults_is_as_none() {
        let fault = |kind| PhaseEvent::Reply(0, Reply::Decided(Err(Fault::new(kind, "a panic"))));
        for event in [FaultKind::Trap, FaultKind::WallTime].map(fault) {
            let mut fixture = fixture();
            let flow = deciding(&mut fixture);
            let (flow, commands) = fixture.go_on(flow, event);
            let Flow::Finish(finished) = flow else {
                panic!("{flow:?}")
            };
            let (wait, request) = finished.waited.expect("it is tried again");
            assert_eq!(wait, Delay::After(default_wait(&request)));
            assert!(
                commands
                    .iter()
                    .any(|c| matches!(c, Command::Report(Report::Faulted(_))))
            );
        }
    }

    #[test]
    fn a_wish_of_the_other_side_is_a_hint_and_the_floor_is_the_bindings() {
        let trap = || Err(Fault::new(FaultKind::Trap, "a panic"));
        let minute = Delay::After(ms(60_000));
        for (said, waited) in [
            (Ok(Wait::After(1_000)), Delay::After(ms(1_000))),
            (Ok(Wait::After(1)), Delay::After(ms(100))),
            (Ok(Wait::OnChange(Some(1))), Delay::OnChange(ms(100))),
            (Ok(Wait::After(u64::MAX)), minute),
            (trap(), minute),
        ] {
            let mut fixture = fixture();
            let wished = Failure {
                retry_after: Some(60_000),
                ..failure(Code::ResourceExhausted)
            };
            let ended = retries(RetryClass::Short, Some(wished));
            let (flow, _) = fixture.with(|context| end(ended, context));
            let Flow::Again(phase) = flow else {
                panic!("{flow:?}")
            };
            let (flow, _) = fixture.enter(phase);
            let (flow, _) = fixture.go_on(flow, PhaseEvent::Reply(0, Reply::Decided(said)));
            let Flow::Finish(finished) = flow else {
                panic!("{flow:?}")
            };
            assert_eq!(finished.waited.map(|(wait, _)| wait), Some(waited));
        }
    }

    #[test]
    fn the_end_of_a_quarantine_is_asked_about_as_the_role_whose_policy_broke_its_contract() {
        for (role, origin) in [
            (Role::Identity, Origin::Identity),
            (Role::Lifecycle, Origin::Lifecycle),
        ] {
            let mut fixture = fixture();
            fixture.frame.faults = 2;
            fixture.work.roles.push(RoleRecord {
                role,
                policy: PolicyId("p".into()),
                config: "null".into(),
                pending: Vec::new(),
                steps: 1,
                fuel: 1,
                journal: Vec::new(),
                had: Vec::new(),
                verdict: None,
                conclusion: None,
                fault: Some(Fault::new(FaultKind::Trap, "out of cheese")),
            });
            let request = asked(&mut fixture, PassEnd::plain(Outcome::Faulted)).expect("it is asked");
            assert_eq!((request.origin, request.class), (origin, RetryClass::Short));
            assert_eq!((request.attempt, request.failing_for), (2, 8_000));
            let failure = request.failure.expect("a failure");
            let said = (failure.operation.as_deref(), failure.code, &*failure.message);
            assert_eq!(said, (Some("quarantine"), Code::Internal, "Trap: out of cheese"));
        }
    }

    #[test]
    fn a_wait_for_a_change_ends_at_the_latest_after_the_longest_wait() {
        let hour = 3_600_000;
        for (said, at_latest) in [
            (None, 24 * hour),
            (Some(hour), hour),
            (Some(u64::MAX), 24 * hour),
            (Some(0), 100),
        ] {
            let mut fixture = fixture();
            let flow = deciding(&mut fixture);
            let decided = Reply::Decided(Ok(Wait::OnChange(said)));
            let (flow, _) = fixture.go_on(flow, PhaseEvent::Reply(0, decided));
            let Flow::Finish(finished) = flow else {
                panic!("{flow:?}")
            };
            let waited = finished.waited.map(|(wait, _)| wait);
            assert_eq!(waited, Some(Delay::OnChange(ms(at_latest))), "{said:?}");
        }
    }

    #[test]
    fn a_failure_is_handed_over_cut_and_says_what_failed_and_for_how_long() {
        let mut fixture = fixture();
        fixture.frame.last.waited = Some(ms(4_000));
        let long = Failure {
            message: "ö".repeat(MESSAGE),
            detail: Some("{}".into()),
            ..failure(Code::Internal).of("vm.clone")
        };
        let request = asked(&mut fixture, retries(RetryClass::Short, Some(long))).expect("it is asked");
        assert_eq!((request.failing_for, request.previous_wait), (8_000, Some(4_000)));
        assert_eq!(
            (&*request.kind.kind, request.namespace.as_deref()),
            ("Machine", Some("default"))
        );
        let failure = request.failure.expect("a failure");
        assert_eq!(failure.message, "ö".repeat(MESSAGE / 2));
        assert_eq!(
            (failure.operation.as_deref(), failure.detail),
            (Some("vm.clone"), None)
        );
    }

    #[test]
    fn an_identity_that_denies_is_asked_about_as_itself() {
        let mut fixture = fixture();
        let denied = PassEnd {
            outcome: Outcome::Denied,
            ..retries(RetryClass::Long, None)
        };
        let request = asked(&mut fixture, denied).expect("it is asked");
        assert_eq!(request.origin, Origin::Identity);
    }

    #[test]
    fn a_lost_lease_takes_nothing_away_from_a_pass_that_has_ended() {
        let mut fixture = fixture();
        let Flow::Wait(phase) = deciding(&mut fixture) else {
            panic!("it waits")
        };
        let finished = phase.interrupt(Outcome::LeaseLost, false, &fixture.frame, &mut fixture.work);
        assert_eq!(finished.ended.outcome, Outcome::Published);
        assert!(finished.waited.is_some());
        let other = fixture.started();
        assert_eq!(
            other
                .interrupt(Outcome::LeaseLost, false, &fixture.frame, &mut fixture.work)
                .ended
                .outcome,
            Outcome::LeaseLost
        );
    }

    #[test]
    fn an_event_that_fits_no_row_is_a_defect() {
        let mut fixture = fixture();
        let flow = deciding(&mut fixture);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Grown);
        assert!(matches!(flow, Flow::Bug(_)), "{flow:?}");
    }
}
