//! Tests of the controller with several keys and over time. The test answers every call itself.

mod bindings;
mod capacities;
mod leases;
mod passes;
mod retries;
mod wake_index;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::call::{LeaseRead, Write};
use crate::contract::{
    Act, Ask, CloudAct, Code, Conclusion, Event, EventType, Failure, ListQuery, Next, ObjectDelete,
    Precondition, Question, Request, RetryClass, RetryRequest, Role, Step, Wait,
};
use crate::fault::{FaultKind, StepOutput};
use crate::object::Object;
use crate::reconcile::fixture::{at, clone_of, config_maps, get, ms, pending, ready};
use crate::reconcile::{fixture_binding, fixture_stop as stop};
use crate::time::millis;

/// A controller that holds the lease.
struct Harness {
    controller: Controller,
    now: Now,
    calls: VecDeque<(CallId, Call)>,
    records: Vec<PassRecord>,
    others: Vec<Output>,
}

fn machine(name: &str, version: u64, rest: Value) -> Object {
    let mut value = json!({"apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"namespace": "default",
        "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "generation": 1,
        "finalizers": ["example.com/machine"]}});
    crate::merge::apply(&rest, &mut value);
    Object::new(value)
}

fn map(name: &str, version: u64, rest: Value) -> Object {
    let mut value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "labels": {"a": "b"}}, "data": {"x": "1"}});
    crate::merge::apply(&rest, &mut value);
    Object::new(value)
}

/// A question for ConfigMaps by label, of which only `data` is wanted.
fn list(label: &str) -> Request {
    let query = ListQuery {
        namespace: Some("default".into()),
        label_selector: Some(label.into()),
        projection: vec!["data".into()],
        ..ListQuery::all(config_maps().kind)
    };
    let question = Question::Objects(query);
    Request::Ask(Ask { round: 0, question })
}

fn conclusion(patch: Value, next: Next, used: Vec<u32>) -> Step {
    Step::Concluded {
        verdict: None,
        conclusion: Conclusion {
            patch: (!patch.is_null()).then(|| patch.to_string().as_str().into()),
            events: Vec::new(),
            notes: Vec::new(),
            next,
            used,
        },
    }
}

/// A conclusion that changes nothing and uses no journal entry.
fn settled() -> Step {
    conclusion(json!(null), Next::Settled(None), vec![])
}

/// An act that deletes the ConfigMap of this name.
fn delete(name: &str) -> Request {
    let object = map(name, 1, json!({}));
    Request::Act(Act::Delete(ObjectDelete {
        object: object.reference(),
        precondition: Precondition {
            uid: object.uid().to_owned(),
            resource_version: None,
        },
        grace_period_seconds: None,
        propagation_policy: None,
    }))
}

/// A conclusion with this Event. The next pass follows after a second.
fn says(reason: &str) -> Step {
    let event = Event {
        kind: EventType::Normal,
        reason: reason.into(),
        message: "said".into(),
    };
    let mut said = conclusion(json!(null), Next::After(1_000), vec![]);
    if let Step::Concluded { conclusion, .. } = &mut said {
        conclusion.events.push(event);
    }
    said
}

fn retry() -> Next {
    Next::Retry {
        class: RetryClass::Short,
        failure: Some(Failure::new(Code::Unavailable, "nobody is there")),
    }
}

impl Harness {
    /// A harness with these Machines and a lifecycle policy.
    fn with(machines: Vec<Object>) -> Self {
        Harness::under(fixture_binding(&[Role::Lifecycle]), machines)
    }

    /// A harness with these Machines and this binding.
    fn under(binding: Binding, machines: Vec<Object>) -> Self {
        let mut harness = Harness {
            controller: Controller::new("me"),
            now: at(1_000_000),
            calls: VecDeque::new(),
            records: Vec::new(),
            others: Vec::new(),
        };
        let scope = primary_scopes(&binding).remove(0);
        harness.feed(Input::Bound(Box::new(binding)));
        harness.answer_leases();
        harness.listed(scope, machines);
        harness
    }

    fn listed(&mut self, scope: Scope, objects: Vec<Object>) {
        let version = objects.iter().map(Object::version).max().unwrap_or_default();
        let event = WatchEvent::Listed { objects, version };
        self.feed(Input::Watched { scope, event });
    }

    fn shown(&mut self, scope: Scope, object: Object) {
        let event = WatchEvent::Applied(object);
        self.feed(Input::Watched { scope, event });
    }

    fn feed(&mut self, input: Input) {
        let mut drafts = Vec::new();
        for output in self.controller.step(self.now, input) {
            match output {
                Output::Call {
                    id,
                    call: Call::Draft(draft),
                    ..
                } => drafts.push((id, draft)),
                Output::Call { id, call, .. } => self.calls.push_back((id, call)),
                Output::Cancel(id) => self.calls.retain(|(call, _)| *call != id),
                Output::Recorded(record) => self.records.push(*record),
                other => self.others.push(other),
            }
        }
        for (id, draft) in drafts {
            self.reply(id, Reply::Drafted(Ok(draft.run())));
        }
    }

    fn answer_leases(&mut self) {
        let is_lease = |(_, call): &(CallId, Call)| matches!(call, Call::Lease(_));
        while let Some(place) = self.calls.iter().position(is_lease) {
            let Some((id, Call::Lease(write))) = self.calls.remove(place) else {
                return;
            };
            let lease = write.map(|write| LeaseRead {
                holder: write.holder,
                duration: write.duration,
                version: self.now.boot.0.to_string(),
                transitions: write.transitions,
            });
            self.reply(id, Reply::Lease(Ok(lease)));
        }
    }

    fn reply(&mut self, call: CallId, reply: Reply) {
        self.feed(Input::Returned { call, reply });
    }

    /// Lets time pass, and renews the lease.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now.boot + ms(milliseconds);
        while self.now.boot < end {
            let next = self.controller.deadline().clamp(self.now.boot + ms(1), end);
            self.now = self.now + (next - self.now.boot);
            self.feed(Input::Tick);
            self.answer_leases();
        }
    }

    /// Takes the next call, which must be of this kind.
    fn take(&mut self, what: &str, fits: impl Fn(&Call) -> bool) -> (CallId, Call) {
        let place = self.calls.iter().position(|(_, call)| fits(call));
        let place = place.unwrap_or_else(|| panic!("no {what}: {:?}", self.calls));
        self.calls.remove(place).expect("it is there")
    }

    /// The policy returns this in the next step.
    fn step(&mut self, step: Step) {
        self.returns(|call| matches!(call, Call::Step { .. }), Ok(step));
    }

    /// The policy returns this in the next step that fits, after a worker has rendered what is new.
    fn returns(&mut self, fits: impl Fn(&Call) -> bool, outcome: Result<Step, crate::fault::Fault>) {
        loop {
            let (id, call) = self.take("step", &fits);
            let Call::Step { input, limits, .. } = call else {
                panic!("{call:?}")
            };
            let outcome = outcome.clone();
            let reply = input.step(&limits, |_| StepOutput { outcome, fuel: 1 });
            let is_called = reply.stepped.is_some();
            self.reply(id, Reply::Stepped(reply));
            if is_called {
                return;
            }
        }
    }

    /// The policy returns this in the next step for the object of this name.
    fn step_of(&mut self, name: &str, step: Step) {
        let named = format!("\"name\":\"{name}\"");
        let is_of_it = |text: &crate::contract::Json| text.contains(&named);
        let of_it = |call: &Call| matches!(call, Call::Step { input, .. } if input.pass.object.as_ref().is_some_and(is_of_it));
        self.returns(of_it, Ok(step));
    }

    /// The policies return these steps in order in every pass, until no policy is called any more.
    fn steps_on(&mut self, steps: &[Step]) {
        while self.steps() > 0 {
            let (id, call) = self.take("step", |call| matches!(call, Call::Step { .. }));
            let Call::Step { input, limits, .. } = call else {
                return;
            };
            let reply = input.step(&limits, |pass| StepOutput {
                outcome: Ok(steps[pass.journal.len()].clone()),
                fuel: 1,
            });
            self.reply(id, Reply::Stepped(reply));
        }
    }

    /// The number of cloud calls in flight.
    fn cloud_calls(&self) -> usize {
        let is_cloud = |call: &Call| matches!(call, Call::Cloud(_) | Call::Commit(_));
        self.calls.iter().filter(|(_, call)| is_cloud(call)).count()
    }

    /// The cloud answers its oldest call.
    fn cloud_answers(&mut self) {
        let (id, _) = self.take("call of a cloud", |call| matches!(call, Call::Cloud(_)));
        self.reply(id, Reply::Answer(Ok(json!({}))));
    }

    /// The policy faults.
    fn fault(&mut self) {
        let outcome = Err(crate::fault::Fault::new(FaultKind::Trap, "out of cheese"));
        self.returns(|call| matches!(call, Call::Step { .. }), outcome);
    }

    /// Takes the next request for a retry policy.
    fn asked(&mut self) -> (CallId, PolicyId, RetryRequest) {
        let (id, call) = self.take("question", |call| matches!(call, Call::Decide { .. }));
        match call {
            Call::Decide { policy, request, .. } => (id, policy, request),
            call => panic!("{call:?}"),
        }
    }

    /// The retry policy answers with this wait.
    fn decides(&mut self, call: CallId, wait: Wait) {
        self.reply(call, Reply::Decided(Ok(wait)));
    }

    /// Replaces the retry policy of the binding.
    fn swaps_retry(&mut self, id: &str) {
        let mut binding = retrying();
        let policy = binding.policies.get_mut(&Role::Retry).expect("a policy");
        (policy.id, policy.config) = (PolicyId(id.into()), json!(id).to_string().into());
        self.feed(Input::Bound(Box::new(binding)));
    }

    fn patch(&mut self) -> (CallId, Value) {
        let (id, call) = self.take("patch", |call| matches!(call, Call::Write(Write::Patch { .. })));
        match call {
            Call::Write(Write::Patch { patch, .. }) => (id, patch),
            call => panic!("{call:?}"),
        }
    }

    /// The API server accepts the next patch and answers with this object.
    fn accepted(&mut self, object: &Object) {
        let (id, _) = self.patch();
        self.reply(id, Reply::Objects(Ok(vec![object.clone()])));
    }

    /// The API server refuses the next patch.
    fn refused(&mut self, failure: Failure) {
        let (id, _) = self.patch();
        self.reply(id, Reply::Objects(Err(failure)));
    }

    fn steps(&self) -> usize {
        self.calls
            .iter()
            .filter(|(_, call)| matches!(call, Call::Step { .. }))
            .count()
    }

    fn events(&self) -> usize {
        let is_event = |output: &&Output| matches!(output, Output::Event(_));
        self.others.iter().filter(is_event).count()
    }

    /// The number of [`Output::Forgotten`] so far.
    fn forgotten(&self) -> usize {
        let is_forgotten = |output: &&Output| matches!(output, Output::Forgotten(_));
        self.others.iter().filter(is_forgotten).count()
    }

    fn view(&self, name: &str) -> Option<KeyView> {
        let (_, view) = self.controller.keys().find(|(key, _)| &*key.name == name)?;
        Some(view)
    }

    /// The causes of the next pass. Its policy concludes at once.
    fn causes(&mut self) -> Vec<Cause> {
        let place = self
            .calls
            .iter()
            .find(|(_, call)| matches!(call, Call::Step { .. }));
        let Some((_, Call::Step { input, .. })) = place else {
            panic!("no step: {:?}", self.calls)
        };
        let causes = input.pass.causes.clone();
        self.step(conclusion(json!(null), Next::Settled(None), vec![]));
        causes
    }

    /// The milliseconds until the timer of this key is due.
    fn wait(&self, name: &str) -> Option<u64> {
        Some(millis(self.view(name)?.due? - self.now.boot))
    }
}

/// A binding with a retry policy that allows each key a burst of one pass.
fn retrying() -> Binding {
    let mut binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
    binding.spec.limits.burst = 1;
    binding.spec.limits.refill = Duration::from_mins(1);
    binding
}

fn primary() -> Scope {
    primary_scopes(&fixture_binding(&[])).remove(0)
}

#[test]
fn a_list_enqueues_by_what_was_wanted_of_the_items_that_it_holds() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(
        config_maps(),
        vec![
            map("one", 2, json!({})),
            map("two", 3, json!({"metadata": {"labels": {"a": "c"}}})),
        ],
    );
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(harness.records.len(), 1);
    let unwanted = json!({"metadata": {"annotations": {"other": "x"}}});
    harness.shown(config_maps(), map("one", 4, unwanted.clone()));
    let unselected = json!({"metadata": {"labels": {"a": "c"}}, "data": {"x": "2"}});
    harness.shown(config_maps(), map("two", 5, unselected));
    assert_eq!(harness.steps(), 0, "nothing of the answer has changed");
    let wanted = json!({"metadata": {"annotations": {"other": "x"}}, "data": {"x": "2"}});
    harness.shown(config_maps(), map("one", 6, wanted));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn an_item_that_comes_into_a_list_and_leaves_it_again_during_a_pass_is_no_news() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.shown(config_maps(), map("two", 3, json!({})));
    harness.shown(
        config_maps(),
        map("two", 4, json!({"metadata": {"labels": {"a": "c"}}})),
    );
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(harness.steps(), 0);
    harness.shown(config_maps(), map("two", 5, json!({})));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn what_changes_while_a_pass_is_under_way_enqueues_its_key_when_it_has_ended() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(pending(vec![list("a=b")]));
    harness.listed(config_maps(), vec![map("one", 2, json!({}))]);
    harness.shown(config_maps(), map("two", 3, json!({})));
    harness.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(harness.steps(), 1);
}

#[test]
fn after_a_conflict_the_object_is_read_before_the_next_pass() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Aborted, "the object has another version"));
    harness.pass(1_000);
    let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    assert_eq!(harness.steps(), 0);
    assert_eq!(
        harness.view("m").map(|view| view.waiting),
        Some(WaitReason::Refresh)
    );
    harness.reply(id, Reply::Objects(Ok(vec![machine("m", 7, json!({}))])));
    let (_, call) = harness.take("step", |call| matches!(call, Call::Step { .. }));
    let Call::Step { input, .. } = call else { return };
    assert!(
        input
            .pass
            .object
            .as_deref()
            .is_some_and(|text| text.contains("\"resourceVersion\":\"7\""))
    );
}

#[test]
fn a_stale_object_that_cannot_be_read_waits_longer_each_time_and_one_that_the_watch_shows_need_not_be_read() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    harness.step(pending(vec![stop()]));
    harness.refused(Failure::new(Code::Unavailable, "cut").effect_unknown());
    harness.pass(1_000);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let (id, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
        harness.reply(
            id,
            Reply::Objects(Err(Failure::new(Code::Unavailable, "not now"))),
        );
        let wait = harness.wait("m").expect("it is tried again");
        waits.push(wait);
        harness.pass(wait);
    }
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
    let (late, _) = harness.take("read", |call| matches!(call, Call::Read(_)));
    harness.shown(primary(), machine("m", 9, json!({})));
    assert_eq!(harness.steps(), 1, "the watch has caught up");
    harness.reply(late, Reply::Objects(Ok(vec![machine("m", 9, json!({}))])));
    assert_eq!(harness.steps(), 1, "and no pass runs twice");
}

#[test]
fn a_retry_is_ended_early_by_what_is_wanted_and_not_by_what_is_said_of_it() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.step(conclusion(json!(null), retry(), vec![]));
    harness.shown(
        primary(),
        machine(
            "m",
            2,
            json!({"status": {"heartbeat": 1}, "metadata": {"labels": {"x": "y"}}}),
        ),
    );
    assert_eq!(harness.steps(), 0);
    harness.shown(
        primary(),
        machine("m", 3, json!({"metadata": {"generation": 2}, "spec": {"x": 1}})),
    );
    assert_eq!(harness.steps(), 1);
}

#[test]
fn a_request_and_a_deletion_end_a_retry_early() {
    for rest in [
        json!({"metadata": {"annotations": {"request.polity.dev/now": "1"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"uid": "of a successor"}}),
    ] {
        let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
        harness.step(conclusion(json!(null), retry(), vec![]));
        harness.shown(primary(), machine("m", 2, rest));
        assert_eq!(harness.steps(), 1);
    }
}

#[test]
fn faults_back_off_and_a_changed_policy_begins_anew() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    harness.fault();
    let (id, patch) = harness.patch();
    let quarantined = machine("m", 2, json!({"status": patch["status"]}));
    harness.reply(id, Reply::Objects(Ok(vec![quarantined])));
    let mut waits = vec![harness.wait("m").expect("it is tried again")];
    for _ in 0..2 {
        harness.pass(waits[waits.len() - 1]);
        harness.fault();
        waits.push(harness.wait("m").expect("it is tried again"));
    }
    assert!(waits[0] <= 1_000 && waits[2] > 2 * waits[0], "{waits:?}");
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.policies.get_mut(&Role::Lifecycle).expect("a policy").id = PolicyId("another".into());
    harness.feed(Input::Bound(Box::new(binding)));
    harness.pass(60_000);
    harness.fault();
    assert!(
        harness.wait("m").is_some_and(|wait| wait <= 1_000),
        "{:?}",
        harness.wait("m")
    );
}

#[test]
fn an_event_is_written_when_it_is_news_and_not_with_every_pass() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    for (reason, events) in [("Started", 1), ("Started", 1), ("Stopped", 2), ("Started", 3)] {
        harness.step(says(reason));
        assert_eq!(harness.events(), events, "{reason}");
        harness.pass(1_000);
    }
}

#[test]
fn writes_of_one_tenant_leave_room_for_those_of_others() {
    let machines = (0..40).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut harness = Harness::with(machines.collect());
    while harness.steps() > 0 {
        harness.step(conclusion(
            json!({"status": {"phase": "x"}}),
            Next::Settled(None),
            vec![],
        ));
    }
    let patches = harness
        .calls
        .iter()
        .filter(|(_, call)| matches!(call, Call::Write(_)))
        .count();
    assert_eq!(patches, 12);
    let waits = |view: &KeyView| view.waiting == WaitReason::Capacity(Capacity::Writes);
    assert_eq!(
        harness.controller.keys().filter(|(_, view)| waits(view)).count(),
        28
    );
    for n in 0..12 {
        harness.accepted(&machine(
            &format!("m-{n}"),
            100 + n,
            json!({"status": {"phase": "x"}}),
        ));
    }
    assert_eq!(harness.records.len(), 12);
    let patches = harness
        .calls
        .iter()
        .filter(|(_, call)| matches!(call, Call::Write(_)))
        .count();
    assert_eq!(patches, 12, "the next ones are served");
}

#[test]
fn a_binding_says_which_watch_it_waits_for() {
    let mut harness = Harness::with(vec![machine("m", 1, json!({}))]);
    let unsynced = |harness: &Harness| {
        harness
            .controller
            .health("machines")
            .map(|health| health.unsynced.len())
    };
    assert_eq!(unsynced(&harness), Some(0));
    harness.step(pending(vec![list("a=b")]));
    assert_eq!(unsynced(&harness), Some(1));
    harness.listed(config_maps(), vec![]);
    assert_eq!(unsynced(&harness), Some(0));
    let event = WatchEvent::Failed("forbidden".into());
    harness.step(conclusion(json!(null), Next::Settled(None), vec![]));
    assert_eq!(
        harness.view("m").map(|view| view.waiting),
        Some(WaitReason::Change)
    );
    harness.feed(Input::Watched {
        scope: primary(),
        event,
    });
    let watch = WaitReason::Watch(primary(), Some("forbidden".into()));
    assert_eq!(harness.view("m").map(|view| view.waiting), Some(watch));
    let health = harness.controller.health("machines").expect("it is bound");
    assert!(
        health
            .unsynced
            .iter()
            .any(|watch| watch.contains("Machine") && watch.contains("forbidden")),
        "{health:?}"
    );
}

/// Three objects want the same lock: `a` holds it, `b` and `c` got the answer that it is busy.
fn three_who_want_a_lock() -> (Harness, Step, Step) {
    let objects = ["a", "b", "c"].map(|name| machine(name, 1, json!({})));
    let mut harness = Harness::with(objects.to_vec());
    let question = Question::Lock("one".into());
    let asks = pending(vec![Request::Ask(Ask { round: 0, question })]);
    for name in ["a", "b", "c"] {
        harness.step_of(name, asks.clone());
    }
    let waits = conclusion(json!(null), Next::Settled(None), vec![0]);
    (harness, asks, waits)
}

#[test]
fn the_next_waiter_of_a_lock_is_enqueued_when_its_holder_has_ended() {
    let (mut harness, asks, waits) = three_who_want_a_lock();
    harness.step_of("b", waits.clone());
    harness.step_of("c", waits.clone());
    harness.step_of("a", waits.clone());
    assert_eq!(harness.steps(), 1);
    harness.step_of("b", asks.clone());
    assert_eq!(harness.steps(), 1, "and nobody else before it has ended");
    harness.step_of("b", waits);
    harness.step_of("c", asks);
}

#[test]
fn an_object_that_is_deleted_while_it_waits_for_a_lock_does_not_block_the_next_one() {
    for ends_before_it_goes in [true, false] {
        let (mut harness, asks, waits) = three_who_want_a_lock();
        if ends_before_it_goes {
            harness.step_of("b", waits.clone());
        }
        harness.feed(Input::Watched {
            scope: primary(),
            event: WatchEvent::Deleted(machine("b", 9, json!({}))),
        });
        if !ends_before_it_goes {
            harness.step_of("b", waits.clone());
        }
        harness.step_of("c", waits.clone());
        harness.step_of("a", waits);
        harness.step_of("c", asks);
    }
}

#[test]
fn nobody_outside_knows_with_what_a_host_makes_digests() {
    assert_ne!(digest_key("one"), digest_key("another"));
}

#[test]
fn a_binding_says_how_many_objects_it_governs_and_how_many_of_them_failed_last() {
    let mut harness = Harness::with(vec![machine("a", 1, json!({})), machine("b", 2, json!({}))]);
    let counts = |harness: &Harness| {
        let health = harness.controller.health("machines").expect("the binding");
        let last = health.last_fault.map(|last| (last.key.name.to_string(), last.at));
        (health.objects, health.retrying, last)
    };
    assert_eq!(counts(&harness), (2, 0, None));
    harness.step_of("b", settled());
    harness.fault();
    let at = harness.now.unix;
    let (id, patch) = harness.patch();
    let quarantined = machine("a", 3, json!({"status": patch["status"]}));
    harness.reply(id, Reply::Objects(Ok(vec![quarantined])));
    assert_eq!(counts(&harness), (2, 1, Some(("a".to_owned(), at))));
    let named = |harness: &Harness| {
        let retries = harness
            .controller
            .health("machines")
            .expect("the binding")
            .retries;
        let retries = retries.into_iter().map(|(key, why)| (key.name.to_string(), why));
        retries.collect::<Vec<_>>()
    };
    let quarantined = "quarantined: a policy broke its contract".to_owned();
    assert_eq!(named(&harness), [("a".to_owned(), quarantined)]);
    let wait = harness.wait("a").expect("it is tried again");
    harness.pass(wait);
    harness.step_of("a", settled());
    harness.accepted(&machine("a", 4, json!({})));
    assert_eq!(counts(&harness), (2, 0, Some(("a".to_owned(), at))));
    assert_eq!(named(&harness), []);
    harness.shown(primary(), machine("b", 5, json!({"metadata": {"generation": 2}})));
    let failure = Failure::new(Code::Unavailable, "away").of("vm.get");
    let next = Next::Retry {
        class: RetryClass::Short,
        failure: Some(failure),
    };
    harness.step_of("b", conclusion(json!(null), next, vec![]));
    let why = "lifecycle at vm.get: unavailable: away".to_owned();
    assert_eq!(named(&harness), [("b".to_owned(), why)]);
    assert_eq!(harness.controller.health("no such binding"), None);
}

#[test]
fn a_recording_says_how_long_its_key_was_queued() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.passes_per_tenant = 1;
    let machines = vec![machine("a", 1, json!({})), machine("b", 2, json!({}))];
    let mut harness = Harness::under(binding, machines);
    assert_eq!(harness.steps(), 1);
    harness.pass(5_000);
    harness.step(settled());
    harness.step(settled());
    let queued: Vec<u64> = harness
        .records
        .iter()
        .map(|record| millis(record.queued))
        .collect();
    assert_eq!(queued, [0, 5_000]);
    harness.shown(primary(), machine("a", 3, json!({"spec": {"changed": true}})));
    harness.step(settled());
    assert_eq!(
        harness.records[2].queued,
        Duration::ZERO,
        "it had its turn at once"
    );
}
