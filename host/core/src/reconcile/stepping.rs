//! Stepping: calls a policy, again and again until it concludes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::{Command, Context, Report};
use super::flow::{Flow, NextPhase, PhaseEvent};
use super::frame::{Dependency, Frame};
use super::object_questions::{is_of_cluster, remembered};
use super::pass_end::PassEnd;
use super::role::RoleRun;
use super::work::{CheckedConclusion, Work};
use crate::call::{Call, Reply};
use crate::contract::{Ask, Conclusion, Pass, Question, Requests, Role, Step, Verdict};
use crate::fault::{Fault, FaultKind, raised_by};
use crate::merge::Edits;
use crate::record::{Discard, Outcome};
use crate::render::RoleQuestion;
use crate::shared::guards::Guard;
use crate::worker::{PatchCheck, StepInput, StepReply};

/// One call into the policy of a role.
#[derive(Debug)]
pub(crate) struct Stepping {
    run: RoleRun,
}

impl Stepping {
    /// The next step of a role.
    pub(super) fn of(run: RoleRun) -> Self {
        Stepping { run }
    }

    /// Records the role when the pass ends during a step.
    pub(super) fn leave(self, frame: &Frame, work: &mut Work) {
        self.run.leave(frame, work);
    }

    pub(super) fn on_event(self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        match event {
            PhaseEvent::Entered | PhaseEvent::Grown => self.begin_step(context),
            PhaseEvent::Reply(_, Reply::Stepped(reply)) => self.on_stepped(reply, context),
            event => Flow::unexpected("Stepping", &event),
        }
    }

    /// Calls a worker, with the questions that the last pass used if this is the first step. A pass that holds much already waits
    /// until it may.
    fn begin_step(mut self, context: &mut Context<'_>) -> Flow<Self> {
        if context.frame.binding.policy(self.run.role).is_none() {
            return without_lifecycle(context);
        }
        if context.may_hold(&self.run) == 0 {
            return self.grow(context);
        }
        if self.run.prefetched.is_none() {
            self.prefetch(context);
        }
        self.call(context)
    }

    fn grow(self, context: &mut Context<'_>) -> Flow<Self> {
        context.command(Command::Grow);
        Flow::Wait(self)
    }

    /// Enters the questions that the last pass used into the journal, where a watch has the answers, so that most passes
    /// take one step.
    fn prefetch(&mut self, context: &mut Context<'_>) {
        if self.run.role == Role::Lifecycle {
            self.run.pending = RoleRun::in_doubt(context.work);
        }
        if context.is_guarded(Guard::Prefetch) {
            let (used, role) = (context.frame.last.used.clone(), self.run.role);
            let limits = &context.frame.binding.spec.limits;
            let of_role = |(asked, _): &&(RoleQuestion, Dependency)| asked.0 == role && !is_latest(&asked.1);
            // The limits may be lower than they were when these were asked.
            let most = limits.entries.min(limits.dependencies) as usize;
            for (asked, dependency) in used.iter().filter(of_role).take(most) {
                if let Some(render) = remembered(asked, &dependency.selection, context) {
                    let question = asked.1.clone();
                    self.run.name(Ask { round: 0, question }, render.into());
                }
            }
        }
        self.run.prefetched = Some(self.run.journal.len());
    }

    /// Makes room for the requests of a step: what the last pass used counts for this one only while nothing else
    /// needs the room. The policy asks again for what it used of it.
    fn make_room(&mut self, requests: &Requests, context: &mut Context<'_>) {
        let limits = &context.frame.binding.spec.limits;
        let looks = match requests {
            Requests::Asks(asks) => asks.iter().filter(|ask| is_of_cluster(&ask.question)).count(),
            Requests::Acts(_) => 0,
        };
        let fits = self.run.journal.len() + requests.len() <= limits.entries as usize
            && context.work.dependencies.len() + looks <= limits.dependencies as usize;
        if fits {
            return;
        }
        for question in self.run.forget_unasked() {
            context.work.dependencies.remove(&(self.run.role, question));
        }
    }

    fn call(self, context: &mut Context<'_>) -> Flow<Self> {
        let frame = context.frame;
        let limits = &frame.binding.spec.limits;
        if self.run.steps >= limits.steps {
            let raised = raised_by("steps");
            let message = format!("the pass took more than {} steps{raised}", limits.steps);
            return self.fault(Fault::new(FaultKind::TooLong, message), context);
        }
        let Some(policy) = frame.binding.policy(self.run.role) else {
            return without_lifecycle(context);
        };
        let call = Call::Step {
            policy: policy.id.clone(),
            role: self.run.role,
            input: Arc::new(StepInput {
                pass: Pass {
                    object: frame.snapshot.as_ref().map(|object| object.json().clone()),
                    now: frame.started.unix.0,
                    causes: frame.causes.clone(),
                    attempt: frame.attempt,
                    config: policy.config.clone(),
                    pending: self.run.pending.clone(),
                    journal: Vec::new(),
                },
                journal: self.run.journal.clone(),
                unasked: self.run.prefetched.unwrap_or(0),
                may_hold: context.may_hold(&self.run),
                is_full: self.run.is_full,
                check: PatchCheck {
                    binding: frame.binding.clone(),
                    role: self.run.role,
                    snapshot: frame.snapshot.clone(),
                    judged: context
                        .work
                        .judged
                        .as_ref()
                        .and_then(|judged| judged.edits.clone()),
                },
            }),
            limits: limits.clone(),
        };
        context.work(call);
        Flow::Wait(self)
    }

    fn on_stepped(mut self, reply: StepReply, context: &mut Context<'_>) -> Flow<Self> {
        self.run.rendered(reply.rendered, context.work);
        self.run.is_full = reply.is_full;
        let Some(stepped) = reply.stepped else {
            return self.grow(context);
        };
        self.run.steps += 1;
        self.run.had.push(self.run.journal.len() as u32);
        self.run.fuel = self.run.fuel.saturating_add(stepped.fuel);
        let limit = context.frame.binding.spec.limits.pass_fuel;
        let before = context.work.roles.iter().map(|role| role.fuel);
        if before.fold(self.run.fuel, u64::saturating_add) > limit {
            let message = format!(
                "the pass used more than {limit} units of fuel{}",
                raised_by("passFuel")
            );
            return self.fault(Fault::new(FaultKind::OutOfFuel, message), context);
        }
        match stepped.outcome {
            Err(fault) => self.fault(fault, context),
            Ok(Step::Pending(requests)) => self.on_requests(requests, context),
            Ok(Step::Concluded { verdict, conclusion }) => {
                self.on_concluded(verdict, conclusion, reply.checked, context)
            }
        }
    }

    fn on_requests(mut self, requests: Requests, context: &mut Context<'_>) -> Flow<Self> {
        self.make_room(&requests, context);
        if let Err(fault) = self.acceptable(&requests, context) {
            return self.fault(fault, context);
        }
        Flow::Enter(match requests {
            Requests::Asks(asks) => NextPhase::Asking(self.run, asks),
            Requests::Acts(acts) => NextPhase::Acting(self.run, acts),
        })
    }

    /// Whether the requests of a step keep the contract.
    fn acceptable(&self, requests: &Requests, context: &Context<'_>) -> Result<(), Fault> {
        let limits = &context.frame.binding.spec.limits;
        if requests.is_empty() {
            let message = "the policy returned no requests and no conclusion (`pending([])`)";
            return Err(Fault::new(FaultKind::Stalled, message));
        }
        let room = (limits.entries as usize).saturating_sub(self.run.journal.len());
        if requests.len() > room {
            let message = format!(
                "{} requests in one step; the journal has room for {room}{}",
                requests.len(),
                raised_by("entries")
            );
            return Err(Fault::new(FaultKind::TooLong, message));
        }
        if self.run.request_bytes.saturating_add(requests.bytes()) > limits.journal {
            let most = limits.journal;
            let message = format!(
                "requests of more than {most} bytes in one pass{}",
                raised_by("journal")
            );
            return Err(Fault::new(FaultKind::TooLong, message));
        }
        let known: BTreeSet<&Ask> = self.run.asked().collect();
        if let Requests::Asks(asks) = requests
            && asks.iter().all(|ask| known.contains(ask))
        {
            let message = "the policy asks only for answers that its journal already holds";
            return Err(Fault::new(FaultKind::Stalled, message));
        }
        Ok(())
    }

    fn on_concluded(
        self,
        verdict: Option<Verdict>,
        conclusion: Conclusion,
        checked: Option<Result<Option<Edits>, String>>,
        context: &mut Context<'_>,
    ) -> Flow<Self> {
        if let Err(fault) = self.run.check(context.frame, verdict.as_ref(), &conclusion) {
            return self.fault(fault, context);
        }
        match checked {
            Some(Ok(edits)) => {
                let concluded = CheckedConclusion { conclusion, edits };
                self.on_checked(verdict, concluded, context)
            }
            Some(Err(wrong)) => self.fault(Fault::new(FaultKind::BadOutput, wrong), context),
            None => Flow::Bug("Stepping got a conclusion that was not checked".into()),
        }
    }

    fn on_checked(
        self,
        verdict: Option<Verdict>,
        concluded: CheckedConclusion,
        context: &mut Context<'_>,
    ) -> Flow<Self> {
        let conclusion = &concluded.conclusion;
        let role = self.run.role;
        let used: BTreeSet<&Question> = conclusion
            .used
            .iter()
            .filter_map(|index| self.run.asked_at(*index))
            .collect();
        // A change of an answer that the conclusion leaves out would lead to the same conclusion, so it must not enqueue
        // the key. The answers of the other role were sorted out when that role concluded.
        let dependencies = &mut context.work.dependencies;
        dependencies.retain(|asked, _| asked.0 != role || used.contains(&asked.1));
        let conclusion = Some(conclusion.clone());
        context.work.held = context.held_with(&self.run);
        let record = self.run.record(context.frame, verdict.clone(), conclusion, None);
        context.work.roles.push(record);
        let publish = |outcome, concluded| Flow::Enter(NextPhase::Publishing(concluded, outcome));
        match verdict {
            None => publish(Outcome::Published, concluded),
            Some(Verdict::Released) => publish(Outcome::Released, concluded),
            Some(Verdict::Denied) if context.is_guarded(Guard::ADenialEndsThePass) => {
                publish(Outcome::Denied, concluded)
            }
            verdict => {
                if let Some(Verdict::Granted(handle)) = verdict {
                    context.work.handle = context.is_guarded(Guard::ActsAsGranted).then_some(handle);
                }
                context.work.judged = Some(concluded);
                Flow::Enter(NextPhase::Resolving)
            }
        }
    }

    /// Ends the role of a policy that broke its contract.
    fn fault(self, mut fault: Fault, context: &mut Context<'_>) -> Flow<Self> {
        if let Some(acts) = self.run.acts() {
            fault
                .message
                .push_str(&format!(" (this pass made the acts {acts} before)"));
        }
        let record = self.run.record(context.frame, None, None, Some(fault.clone()));
        context.work.roles.push(record);
        let message = fault.to_string();
        context.report(Report::Faulted(fault));
        Flow::Enter(NextPhase::PublishingFault(message))
    }
}

fn is_latest(question: &Question) -> bool {
    match question {
        Question::Object(query) => query.latest,
        Question::Objects(query) => query.latest,
        _ => true,
    }
}

/// Ends the pass of a binding that has only an identity policy: the conclusion of that policy is published.
fn without_lifecycle(context: &mut Context<'_>) -> Flow<Stepping> {
    match context.work.judged.take() {
        Some(concluded) => Flow::Enter(NextPhase::Publishing(concluded, Outcome::Published)),
        None => Flow::End(PassEnd::plain(Outcome::Discarded(Discard::NoPolicy))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Code, Next};
    use crate::reconcile::fixture::{
        Fixture, concluded, conclusion, config_map, failure, get, journal, machine, outcome, patches,
        pending, stepped, stop,
    };
    use crate::reconcile::{Phase, fixture::stepping};
    use serde_json::json;

    fn fault(commands: &[Command]) -> Option<FaultKind> {
        commands.iter().find_map(|command| match command {
            Command::Report(Report::Faulted(fault)) => Some(fault.kind),
            _ => None,
        })
    }

    /// The fault of a lifecycle policy that returns this first step.
    fn first(step: Step) -> Option<FaultKind> {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.enter(stepping(Role::Lifecycle));
        fault(&fixture.go_on(flow, stepped(step)).1)
    }

    #[test]
    fn a_step_that_asks_for_nothing_or_for_what_it_knows_stalls() {
        assert_eq!(first(pending(vec![])), Some(FaultKind::Stalled));
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![get()]);
        let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
        let (_, commands) = fixture.go_on(flow, stepped(pending(vec![get()])));
        assert_eq!(fault(&commands), Some(FaultKind::Stalled));
    }

    #[test]
    fn more_requests_than_there_is_room_for_are_too_long_before_any_is_answered() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.entries = 1);
        let (_, commands) = fixture.requests(vec![get(), config_map(false)]);
        assert_eq!(fault(&commands), Some(FaultKind::TooLong));
        let requests = || vec![get(), config_map(false)];
        let bytes: u64 = requests().iter().map(crate::contract::Request::bytes).sum();
        for (journal, expected) in [(bytes, None), (bytes - 1, Some(FaultKind::TooLong))] {
            let mut fixture = Fixture::new();
            fixture.bind(|binding| (binding.spec.limits.journal, binding.spec.limits.entries) = (journal, 2));
            assert_eq!(fault(&fixture.requests(requests()).1), expected, "{journal}");
        }
    }

    #[test]
    fn a_patch_that_names_more_values_than_any_object_has_is_a_fault_before_it_is_compared() {
        let most = crate::merge::VALUES;
        for (count, expected) in [(most, None), (most + 1, Some(FaultKind::BadOutput))] {
            let fields = (0..count).map(|n| (format!("f{n}"), json!(1)));
            let status: serde_json::Map<_, _> = fields.collect();
            let mut fixture = Fixture::new();
            fixture.grow();
            let (_, commands) = fixture.concludes(json!({"status": status}));
            assert_eq!(fault(&commands), expected, "{count}");
        }
    }

    /// The bytes of texts that any pass may hold.
    const SMALL: u64 = 1 << 20;

    #[test]
    fn a_pass_that_would_hold_much_waits_until_it_may_and_its_step_is_done_again() {
        let grows = |commands: &[Command]| commands.iter().any(|command| matches!(command, Command::Grow));
        let may_hold = |commands: &[Command]| {
            commands.iter().find_map(|command| match command {
                Command::Call {
                    call: Call::Step { input, .. },
                    ..
                } => Some(input.may_hold),
                _ => None,
            })
        };
        let mut fixture = Fixture::new();
        let (flow, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert_eq!(may_hold(&commands), Some(SMALL));
        let too_large = StepReply::default();
        let (flow, commands) = fixture.go_on(flow, PhaseEvent::Reply(0, Reply::Stepped(too_large)));
        assert!(grows(&commands) && may_hold(&commands).is_none(), "{commands:?}");
        fixture.grow();
        let (_, commands) = fixture.go_on(flow, PhaseEvent::Grown);
        assert_eq!((grows(&commands), may_hold(&commands)), (false, Some(u64::MAX)));
        // What it holds already counts.
        let mut fixture = Fixture::new();
        fixture.work.held = SMALL - 7;
        let (_, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert_eq!(may_hold(&commands), Some(7));
        fixture.work.held = SMALL;
        let (_, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert!(grows(&commands) && may_hold(&commands).is_none(), "{commands:?}");
    }

    #[test]
    fn what_a_pass_holds_is_what_it_asked_and_what_it_was_answered() {
        let mut fixture = Fixture::new();
        let act = stop();
        let bytes = act.bytes();
        let (flow, _) = fixture.requests(vec![act]);
        let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
        let concludes = Conclusion {
            used: vec![0],
            ..conclusion(json!({"status": {"phase": "x"}}))
        };
        fixture.go_on(flow, concluded(None, concludes));
        assert_eq!(fixture.work.held, bytes + 2);
    }

    #[test]
    fn a_pass_has_so_many_steps_and_so_much_fuel() {
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.steps = 0);
        let (_, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert_eq!(fault(&commands), Some(FaultKind::TooLong));
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.pass_fuel = 0);
        let (_, commands) = fixture.concludes(json!(null));
        assert_eq!(fault(&commands), Some(FaultKind::OutOfFuel));
        // The single step needs one unit of fuel.
        fixture.bind(|binding| (binding.spec.limits.pass_fuel, binding.spec.limits.steps) = (1, 1));
        fixture.work.roles.clear();
        let (_, commands) = fixture.concludes(json!(null));
        assert_eq!(fault(&commands), None);
        // A journal may hold exactly as many entries as its limit.
        let mut fixture = Fixture::new();
        fixture.bind(|binding| binding.spec.limits.entries = 1);
        let (flow, _) = fixture.requests(vec![get()]);
        let (_, commands) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
        assert_eq!(fault(&commands), None);
    }

    #[test]
    fn what_a_conclusion_must_not_say_is_a_fault_of_its_own_role() {
        let with = |patch| Step::Concluded {
            verdict: None,
            conclusion: conclusion(patch),
        };
        for patch in [
            json!({"status": {"pending": []}}),
            json!({"status": "x"}),
            json!({"status": {"conditions": [{"type": "polity.dev/Forged", "status": "True"}]}}),
            json!({"spec": {"replicas": 1}}),
            json!({"metadata": {"finalizers": ["somebody.else/s"]}}),
            json!({"metadata": {"resourceVersion": "9"}}),
        ] {
            assert_eq!(first(with(patch.clone())), Some(FaultKind::BadOutput), "{patch}");
        }
        assert_eq!(
            first(with(
                json!({"status": {"phase": "x"}, "metadata": {"labels": {"a": "b"}}})
            )),
            None
        );
        let judged = Step::Concluded {
            verdict: Some(Verdict::Denied),
            conclusion: conclusion(json!(null)),
        };
        assert_eq!(first(judged), Some(FaultKind::BadOutput));
    }

    #[test]
    fn notes_are_few_and_short() {
        let with = |notes: Vec<String>| {
            let conclusion = Conclusion {
                notes,
                ..conclusion(json!(null))
            };
            first(Step::Concluded {
                verdict: None,
                conclusion,
            })
        };
        assert_eq!(with(vec!["x".repeat(1_024); 256]), None);
        assert_eq!(with(vec!["x".repeat(1_025)]), Some(FaultKind::BadOutput));
        assert_eq!(with(vec!["x".into(); 257]), Some(FaultKind::BadOutput));
    }

    #[test]
    fn a_conclusion_rests_on_entries_that_are_there_and_on_every_act() {
        let resting_on = |used: Vec<u32>| {
            let mut fixture = Fixture::new();
            let (flow, _) = fixture.requests(vec![stop()]);
            let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
            let conclusion = Conclusion {
                used,
                ..conclusion(json!(null))
            };
            fault(&fixture.go_on(flow, concluded(None, conclusion)).1)
        };
        assert_eq!(resting_on(vec![0]), None);
        assert_eq!(resting_on(vec![]), Some(FaultKind::JournalMismatch));
        assert_eq!(resting_on(vec![0, 1]), Some(FaultKind::JournalMismatch));
    }

    #[test]
    fn a_fault_is_published_as_a_condition_and_nothing_else() {
        let mut fixture = Fixture::of(
            machine(
                1,
                json!({"status": {"pending": [crate::reconcile::fixture::entry("a")]}}),
            ),
            &[Role::Lifecycle],
        );
        let (flow, commands) = fixture.requests(vec![]);
        let status = &patches(&commands)[0]["status"];
        assert_eq!(status["conditions"][0]["type"], "polity.dev/Quarantined");
        assert_eq!(status.get("pending"), None);
        let written = crate::reconcile::fixture::found(Ok(machine(2, json!({"status": status}))));
        let (flow, _) = fixture.go_on(flow, written);
        assert_eq!(outcome(&flow), Some(&Outcome::Faulted));
    }

    /// The identity policy of a Machine asks for a credential and then returns this verdict. Returns what follows.
    fn identity_says(
        verdict: Verdict,
        conclusion: Conclusion,
        rest: serde_json::Value,
    ) -> (Fixture, Flow<Phase>, Vec<Command>) {
        let fixture = Fixture::of(machine(1, rest), &[Role::Identity, Role::Lifecycle]);
        identity_of(fixture, verdict, conclusion)
    }

    fn identity_of(
        mut fixture: Fixture,
        verdict: Verdict,
        conclusion: Conclusion,
    ) -> (Fixture, Flow<Phase>, Vec<Command>) {
        let phase = fixture.started();
        let (flow, _) = fixture.enter(phase);
        let plan = Question::Credential("{}".into());
        let asks = pending(vec![crate::reconcile::fixture::ask(plan)]);
        let (flow, _) = fixture.go_on(flow, stepped(asks));
        let handle = crate::reconcile::fixture::answer(Ok(json!({"handle": "h"})));
        let (flow, _) = fixture.go_on(flow, handle);
        let (flow, commands) = fixture.go_on(flow, concluded(Some(verdict), conclusion));
        (fixture, flow, commands)
    }

    fn judged(verdict: Verdict, rest: serde_json::Value) -> (Fixture, Flow<Phase>, Vec<Command>) {
        identity_says(verdict, conclusion(json!(null)), rest)
    }

    /// The identity policy sets `status.identity` to `x` and asks for a pass in a minute.
    fn identified(verdict: Verdict) -> (Fixture, Flow<Phase>, Vec<Command>) {
        let says = Conclusion {
            next: Next::After(60_000),
            ..conclusion(json!({"status": {"identity": "x"}}))
        };
        identity_says(verdict, says, json!({}))
    }

    #[test]
    fn the_lifecycle_runs_after_a_grant_and_after_nothing_else() {
        let (fixture, flow, _) = judged(Verdict::Granted("h".into()), json!({}));
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert_eq!(fixture.work.handle.as_deref(), Some("h"));
        let (_, flow, _) = judged(Verdict::Denied, json!({}));
        assert_eq!(outcome(&flow), Some(&Outcome::Denied));
        let (_, _, commands) = judged(Verdict::Granted("of somebody else".into()), json!({}));
        assert_eq!(fault(&commands), Some(FaultKind::BadOutput));
    }

    #[test]
    fn an_identity_grants_without_a_cloud_by_the_plan_that_opens_no_session() {
        let mut fixture = Fixture::of(machine(1, json!({})), &[Role::Identity, Role::Lifecycle]);
        fixture.bind(|binding| {
            binding.spec.cloud = None;
            binding.grants = Arc::default();
        });
        let phase = fixture.started();
        let (flow, _) = fixture.enter(phase);
        let plan = crate::reconcile::fixture::ask(Question::Credential("null".into()));
        let (flow, commands) = fixture.go_on(flow, stepped(pending(vec![plan])));
        let journal = journal(&commands).expect("the answer came at once");
        let answer = journal[0].answer.clone().map(|json| json.to_string());
        assert_eq!(
            answer,
            Ok(r#"{"attributes":null,"handle":"none","reused":false}"#.into())
        );
        let granted = Some(Verdict::Granted("none".into()));
        let (flow, commands) = fixture.go_on(flow, concluded(granted, conclusion(json!(null))));
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{commands:?}");
        assert_eq!(fixture.work.handle.as_deref(), Some("none"));
        let (_, _, commands) = judged(Verdict::Granted("none".into()), json!({}));
        assert_eq!(
            fault(&commands),
            Some(FaultKind::BadOutput),
            "it did not ask for it"
        );
    }

    #[test]
    fn a_fault_names_the_limit_that_it_met_and_the_acts_that_were_made() {
        let mut fixture = Fixture::new();
        let (flow, _) = fixture.requests(vec![stop()]);
        fixture.bind(|binding| binding.spec.limits.steps = 1);
        let (_, commands) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
        let message = commands.iter().find_map(|command| match command {
            Command::Report(Report::Faulted(fault)) => Some(fault.message.as_str()),
            _ => None,
        });
        assert_eq!(
            message,
            Some(
                "the pass took more than 1 steps; spec.limits.steps of the binding raises the limit (this pass made the \
                 acts vm.stop before)"
            )
        );
    }

    #[test]
    fn the_fuel_of_a_pass_is_that_of_all_its_roles() {
        // Two steps of the identity policy and one of the lifecycle policy need one unit each.
        for (fuel, expected) in [(3, None), (2, Some(FaultKind::OutOfFuel))] {
            let (mut fixture, flow, _) = judged(Verdict::Granted("h".into()), json!({}));
            fixture.bind(|binding| binding.spec.limits.pass_fuel = fuel);
            let (_, commands) = fixture.go_on(flow, concluded(None, conclusion(json!(null))));
            assert_eq!(fault(&commands), expected, "{fuel}");
        }
    }

    #[test]
    fn a_denial_is_published_and_the_lifecycle_is_not_asked() {
        let (mut fixture, flow, commands) = identified(Verdict::Denied);
        assert_eq!(patches(&commands)[0]["status"], json!({"identity": "x"}));
        let stands = machine(2, json!({"status": {"identity": "x"}}));
        let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::found(Ok(stands)));
        let Flow::End(ended) = flow else {
            panic!("{flow:?}")
        };
        assert_eq!(
            (ended.outcome, ended.next),
            (Outcome::Denied, Some(Next::After(60_000)))
        );
        assert_eq!(fixture.work.roles.len(), 1);
    }

    #[test]
    fn a_granted_handle_reaches_the_cloud_and_what_both_roles_concluded_is_published() {
        let (mut fixture, flow, _) = identified(Verdict::Granted("h".into()));
        let (flow, commands) = fixture.go_on(flow, stepped(pending(vec![get()])));
        let handles: Vec<Option<&str>> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Call {
                    call: Call::Cloud(request),
                    ..
                } => Some(request.session.handle.as_deref()),
                _ => None,
            })
            .collect();
        assert_eq!(handles, [Some("h")]);
        let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::answer(Ok(json!({}))));
        let wants = conclusion(json!({"status": {"phase": "up"}}));
        let (_, commands) = fixture.go_on(flow, concluded(None, wants));
        assert_eq!(
            patches(&commands)[0]["status"],
            json!({"identity": "x", "phase": "up"})
        );
    }

    #[test]
    fn only_an_object_that_is_being_deleted_is_released_and_its_finalizer_goes() {
        let (_, _, commands) = judged(Verdict::Released, json!({}));
        assert_eq!(fault(&commands), Some(FaultKind::BadOutput));
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let (_, _, commands) = judged(Verdict::Released, deleting);
        assert_eq!(patches(&commands)[0]["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn a_binding_without_a_lifecycle_publishes_what_its_identity_concluded() {
        let fixture = Fixture::of(machine(1, json!({})), &[Role::Identity]);
        let says = Conclusion {
            next: Next::After(60_000),
            ..conclusion(json!({"status": {"identity": "x"}}))
        };
        let (mut fixture, flow, commands) = identity_of(fixture, Verdict::Granted("h".into()), says);
        assert_eq!(patches(&commands)[0]["status"], json!({"identity": "x"}));
        let stands = machine(2, json!({"status": {"identity": "x"}}));
        let (flow, _) = fixture.go_on(flow, crate::reconcile::fixture::found(Ok(stands)));
        let Flow::End(ended) = flow else {
            panic!("{flow:?}")
        };
        assert_eq!(
            (ended.outcome, ended.next),
            (Outcome::Published, Some(Next::After(60_000)))
        );
        assert_eq!(fixture.work.roles.len(), 1);
    }

    #[test]
    fn a_pass_without_any_policy_concludes_nothing() {
        let mut fixture = Fixture::of(machine(1, json!({})), &[]);
        let (flow, commands) = fixture.enter(stepping(Role::Lifecycle));
        assert_eq!(outcome(&flow), Some(&Outcome::Discarded(Discard::NoPolicy)));
        assert!(commands.is_empty(), "{commands:?}");
    }

    #[test]
    fn an_event_that_fits_no_row_is_a_defect() {
        for event in [
            PhaseEvent::Cut(0),
            PhaseEvent::Listed(0),
            crate::reconcile::fixture::answer(Ok(json!({}))),
            PhaseEvent::Reply(0, Reply::Drafted(Err(failure(Code::Internal)))),
        ] {
            let mut fixture = Fixture::new();
            let (flow, _) = fixture.enter(stepping(Role::Lifecycle));
            let (flow, _) = fixture.go_on(flow, event);
            assert!(
                matches!(&flow, Flow::Bug(what) if what.starts_with("Stepping got ")),
                "{flow:?}"
            );
        }
    }
}
