//! What the controller does with several keys and over time. The test answers every call itself.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::call::{LeaseRead, Write};
use crate::contract::{
    Act, Ask, CloudAct, Code, Conclusion, Event, EventType, Failure, ListQuery, Next, ObjectDelete,
    Precondition, Question, Request, RetryClass, RetryRequest, Role, Step, Wait,
};
use crate::fault::{FaultKind, Stepped};
use crate::object::Object;
use crate::reconcile::fixture::pending;
use crate::reconcile::{fixture_binding, fixture_stop as stop};

/// A controller that holds the lease.
struct Desk {
    controller: Controller,
    now: u64,
    calls: VecDeque<(CallId, Call)>,
    records: Vec<PassRecord>,
    others: Vec<Output>,
}

fn machine(name: &str, version: u64, rest: Value) -> Object {
    let mut value = json!({"apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"namespace": "default",
        "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "generation": 1,
        "finalizers": ["example.com/machine"]}});
    crate::plan::apply(&rest, &mut value);
    Object::new(value)
}

fn map(name: &str, version: u64, rest: Value) -> Object {
    let mut value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "labels": {"a": "b"}}, "data": {"x": "1"}});
    crate::plan::apply(&rest, &mut value);
    Object::new(value)
}

fn maps() -> Scope {
    Scope {
        kind: crate::contract::Kind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        },
        namespace: Some("default".into()),
        name: None,
        node: None,
        fields: Vec::new(),
    }
}

/// A list of ConfigMaps by label, of which only `data` is wanted.
fn list(label: &str) -> Request {
    let query = ListQuery {
        cluster: None,
        page: None,
        kind: maps().kind,
        namespace: Some("default".into()),
        label_selector: Some(label.into()),
        field_selector: None,
        projection: vec!["data".into()],
        limit: 0,
        latest: false,
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

/// Deletes the ConfigMap of this name.
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

/// A conclusion that says this in an Event; the next pass comes after a second.
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

impl Desk {
    /// With these Machines, under a lifecycle policy.
    fn with(machines: Vec<Object>) -> Self {
        Desk::under(fixture_binding(&[Role::Lifecycle]), machines)
    }

    /// With these Machines, under this binding of them.
    fn under(binding: Binding, machines: Vec<Object>) -> Self {
        let mut desk = Desk {
            controller: Controller::new("me"),
            now: 1_000_000,
            calls: VecDeque::new(),
            records: Vec::new(),
            others: Vec::new(),
        };
        let scope = primary_scope(&binding);
        desk.feed(Input::Bound(Box::new(binding)));
        desk.answer_leases();
        desk.listed(scope, machines);
        desk
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
        let now = Now {
            boot: self.now,
            unix: 1_767_225_600_000 + self.now,
        };
        for output in self.controller.step(now, input) {
            match output {
                Output::Call { id, call } => self.calls.push_back((id, call)),
                Output::Cancel(id) => self.calls.retain(|(call, _)| *call != id),
                Output::Recorded(record) => self.records.push(*record),
                other => self.others.push(other),
            }
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
                version: self.now.to_string(),
                transitions: write.transitions,
            });
            self.reply(id, Reply::Lease(Ok(lease)));
        }
    }

    fn reply(&mut self, call: CallId, reply: Reply) {
        self.feed(Input::Returned { call, reply });
    }

    /// Time passes; the lease is renewed.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        while self.now < end {
            self.now = self.controller.deadline().clamp(self.now + 1, end);
            self.feed(Input::Tick);
            self.answer_leases();
        }
    }

    /// The next call, which is of this sort.
    fn take(&mut self, what: &str, fits: impl Fn(&Call) -> bool) -> (CallId, Call) {
        let place = self.calls.iter().position(|(_, call)| fits(call));
        let place = place.unwrap_or_else(|| panic!("no {what}: {:?}", self.calls));
        self.calls.remove(place).expect("it is there")
    }

    /// The policy returns this in the next step.
    fn step(&mut self, step: Step) {
        let (id, _) = self.take("step", |call| matches!(call, Call::Step { .. }));
        let outcome = Ok(step);
        self.reply(id, Reply::Stepped(Stepped { outcome, fuel: 1 }));
    }

    /// The policy returns this in the next step of the object of this name.
    fn step_of(&mut self, name: &str, step: Step) {
        let named = format!("\"name\":\"{name}\"");
        let is_of_it = |text: &crate::contract::Json| text.contains(&named);
        let of_it = |call: &Call| matches!(call, Call::Step { pass, .. } if pass.object.as_ref().is_some_and(is_of_it));
        let (id, _) = self.take("step", of_it);
        let outcome = Ok(step);
        self.reply(id, Reply::Stepped(Stepped { outcome, fuel: 1 }));
    }

    /// The policy faults.
    fn fault(&mut self) {
        let (id, _) = self.take("step", |call| matches!(call, Call::Step { .. }));
        let outcome = Err(crate::fault::Fault::new(FaultKind::Trap, "out of cheese"));
        self.reply(id, Reply::Stepped(Stepped { outcome, fuel: 1 }));
    }

    /// What a retry policy is asked next.
    fn asked(&mut self) -> (CallId, PolicyId, RetryRequest) {
        let (id, call) = self.take("question", |call| matches!(call, Call::Decide { .. }));
        match call {
            Call::Decide { policy, request, .. } => (id, policy, request),
            call => panic!("{call:?}"),
        }
    }

    /// A retry policy says how long the key waits.
    fn decides(&mut self, call: CallId, wait: Wait) {
        self.reply(call, Reply::Decided(Ok(wait)));
    }

    /// The binding has another retry policy from now on.
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

    /// The API server takes the next patch: the object stands so.
    fn taken(&mut self, object: &Object) {
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
        let is_event = |call: &Call| matches!(call, Call::Write(Write::Event { .. }));
        self.calls.iter().filter(|(_, call)| is_event(call)).count()
    }

    fn view(&self, name: &str) -> Option<KeyView> {
        let (_, view) = self.controller.keys().find(|(key, _)| &*key.name == name)?;
        Some(view)
    }

    /// Why the next pass runs; its policy concludes at once.
    fn causes(&mut self) -> Vec<Cause> {
        let place = self
            .calls
            .iter()
            .find(|(_, call)| matches!(call, Call::Step { .. }));
        let Some((_, Call::Step { pass, .. })) = place else {
            panic!("no step: {:?}", self.calls)
        };
        let causes = pass.causes.clone();
        self.step(conclusion(json!(null), Next::Settled(None), vec![]));
        causes
    }

    fn wait(&self, name: &str) -> Option<u64> {
        Some(self.view(name)?.due? - self.now)
    }
}

/// A binding with a retry policy, of whose keys each has one pass in a burst.
fn retrying() -> Binding {
    let mut binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
    binding.spec.limits.burst = 1;
    binding.spec.limits.refill = 60_000;
    binding
}

fn primary() -> Scope {
    primary_scope(&fixture_binding(&[]))
}

#[test]
fn a_list_wakes_by_what_was_wanted_of_the_items_that_it_holds() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![list("a=b")]));
    desk.listed(
        maps(),
        vec![
            map("one", 2, json!({})),
            map("two", 3, json!({"metadata": {"labels": {"a": "c"}}})),
        ],
    );
    desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(desk.records.len(), 1);
    let unwanted = json!({"metadata": {"annotations": {"other": "x"}}});
    desk.shown(maps(), map("one", 4, unwanted.clone()));
    let unselected = json!({"metadata": {"labels": {"a": "c"}}, "data": {"x": "2"}});
    desk.shown(maps(), map("two", 5, unselected));
    assert_eq!(desk.steps(), 0, "nothing of the answer has changed");
    let wanted = json!({"metadata": {"annotations": {"other": "x"}}, "data": {"x": "2"}});
    desk.shown(maps(), map("one", 6, wanted));
    assert_eq!(desk.steps(), 1);
}

#[test]
fn an_item_that_comes_into_a_list_and_leaves_it_again_during_a_pass_is_no_news() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![list("a=b")]));
    desk.listed(maps(), vec![map("one", 2, json!({}))]);
    desk.shown(maps(), map("two", 3, json!({})));
    desk.shown(maps(), map("two", 4, json!({"metadata": {"labels": {"a": "c"}}})));
    desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(desk.steps(), 0);
    desk.shown(maps(), map("two", 5, json!({})));
    assert_eq!(desk.steps(), 1);
}

#[test]
fn what_changes_while_a_pass_is_under_way_wakes_its_key_when_it_has_ended() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![list("a=b")]));
    desk.listed(maps(), vec![map("one", 2, json!({}))]);
    desk.shown(maps(), map("two", 3, json!({})));
    desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(desk.steps(), 1);
}

#[test]
fn after_a_conflict_the_object_is_read_before_the_next_pass() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    desk.step(pending(vec![stop()]));
    desk.refused(Failure::new(Code::Aborted, "the object has another version"));
    desk.pass(1_000);
    let (id, _) = desk.take("read", |call| matches!(call, Call::Read(_)));
    assert_eq!(desk.steps(), 0);
    assert_eq!(desk.view("m").map(|view| view.waiting), Some(WaitsFor::Refresh));
    desk.reply(id, Reply::Objects(Ok(vec![machine("m", 7, json!({}))])));
    let (_, call) = desk.take("step", |call| matches!(call, Call::Step { .. }));
    let Call::Step { pass, .. } = call else { return };
    assert!(
        pass.object
            .as_deref()
            .is_some_and(|text| text.contains("\"resourceVersion\":\"7\""))
    );
}

#[test]
fn a_stale_object_that_cannot_be_read_waits_longer_each_time_and_one_that_the_watch_shows_need_not_be_read() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    desk.step(pending(vec![stop()]));
    desk.refused(Failure::new(Code::Unavailable, "cut").effect_unknown());
    desk.pass(1_000);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let (id, _) = desk.take("read", |call| matches!(call, Call::Read(_)));
        desk.reply(
            id,
            Reply::Objects(Err(Failure::new(Code::Unavailable, "not now"))),
        );
        let wait = desk.wait("m").expect("it is tried again");
        waits.push(wait);
        desk.pass(wait);
    }
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
    let (late, _) = desk.take("read", |call| matches!(call, Call::Read(_)));
    desk.shown(primary(), machine("m", 9, json!({})));
    assert_eq!(desk.steps(), 1, "the watch has caught up");
    desk.reply(late, Reply::Objects(Ok(vec![machine("m", 9, json!({}))])));
    assert_eq!(desk.steps(), 1, "and no pass runs twice");
}

#[test]
fn a_retry_is_ended_early_by_what_is_wanted_and_not_by_what_is_said_of_it() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(conclusion(json!(null), retry(), vec![]));
    desk.shown(
        primary(),
        machine(
            "m",
            2,
            json!({"status": {"heartbeat": 1}, "metadata": {"labels": {"x": "y"}}}),
        ),
    );
    assert_eq!(desk.steps(), 0);
    desk.shown(
        primary(),
        machine("m", 3, json!({"metadata": {"generation": 2}, "spec": {"x": 1}})),
    );
    assert_eq!(desk.steps(), 1);
}

#[test]
fn a_request_and_a_deletion_end_a_retry_early() {
    for rest in [
        json!({"metadata": {"annotations": {"request.polity.dev/now": "1"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"uid": "of a successor"}}),
    ] {
        let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
        desk.step(conclusion(json!(null), retry(), vec![]));
        desk.shown(primary(), machine("m", 2, rest));
        assert_eq!(desk.steps(), 1);
    }
}

#[test]
fn faults_back_off_and_a_changed_policy_begins_anew() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.fault();
    let (id, patch) = desk.patch();
    let quarantined = machine("m", 2, json!({"status": patch["status"]}));
    desk.reply(id, Reply::Objects(Ok(vec![quarantined])));
    let mut waits = vec![desk.wait("m").expect("it is tried again")];
    for _ in 0..2 {
        desk.pass(waits[waits.len() - 1]);
        desk.fault();
        waits.push(desk.wait("m").expect("it is tried again"));
    }
    assert!(waits[0] <= 1_000 && waits[2] > 2 * waits[0], "{waits:?}");
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.policies.get_mut(&Role::Lifecycle).expect("a policy").id = PolicyId("another".into());
    desk.feed(Input::Bound(Box::new(binding)));
    desk.pass(60_000);
    desk.fault();
    assert!(
        desk.wait("m").is_some_and(|wait| wait <= 1_000),
        "{:?}",
        desk.wait("m")
    );
}

#[test]
fn an_event_is_written_when_it_is_news_and_not_with_every_pass() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    for (reason, events) in [("Started", 1), ("Started", 1), ("Stopped", 2), ("Started", 3)] {
        desk.step(says(reason));
        assert_eq!(desk.events(), events, "{reason}");
        desk.pass(1_000);
    }
}

#[test]
fn writes_of_one_tenant_leave_room_for_those_of_others() {
    let machines = (0..40).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut desk = Desk::with(machines.collect());
    while desk.steps() > 0 {
        desk.step(conclusion(
            json!({"status": {"phase": "x"}}),
            Next::Settled(None),
            vec![],
        ));
    }
    let patches = desk
        .calls
        .iter()
        .filter(|(_, call)| matches!(call, Call::Write(_)))
        .count();
    assert_eq!(patches, 12);
    let waits = |view: &KeyView| view.waiting == WaitsFor::Room(Room::Writes);
    assert_eq!(desk.controller.keys().filter(|(_, view)| waits(view)).count(), 28);
    for n in 0..12 {
        desk.taken(&machine(
            &format!("m-{n}"),
            100 + n,
            json!({"status": {"phase": "x"}}),
        ));
    }
    assert_eq!(desk.records.len(), 12);
    let patches = desk
        .calls
        .iter()
        .filter(|(_, call)| matches!(call, Call::Write(_)))
        .count();
    assert_eq!(patches, 12, "the next ones have their turn");
}

#[test]
fn a_binding_says_which_watch_it_waits_for() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let unsynced = |desk: &Desk| {
        desk.controller
            .health("machines")
            .map(|health| health.unsynced.len())
    };
    assert_eq!(unsynced(&desk), Some(0));
    desk.step(pending(vec![list("a=b")]));
    assert_eq!(unsynced(&desk), Some(1));
    desk.listed(maps(), vec![]);
    assert_eq!(unsynced(&desk), Some(0));
    let event = WatchEvent::Failed("forbidden".into());
    desk.step(conclusion(json!(null), Next::Settled(None), vec![]));
    assert_eq!(desk.view("m").map(|view| view.waiting), Some(WaitsFor::Change));
    desk.feed(Input::Watched {
        scope: primary(),
        event,
    });
    let watch = WaitsFor::Watch(primary(), Some("forbidden".into()));
    assert_eq!(desk.view("m").map(|view| view.waiting), Some(watch));
    let health = desk.controller.health("machines").expect("it is bound");
    assert!(
        health
            .unsynced
            .iter()
            .any(|watch| watch.contains("Machine") && watch.contains("forbidden")),
        "{health:?}"
    );
}

/// Three objects want a lock: `a` holds it, `b` and `c` were told that it is busy.
fn three_who_want_a_lock() -> (Desk, Step, Step) {
    let objects = ["a", "b", "c"].map(|name| machine(name, 1, json!({})));
    let mut desk = Desk::with(objects.to_vec());
    let question = Question::Lock("one".into());
    let asks = pending(vec![Request::Ask(Ask { round: 0, question })]);
    for name in ["a", "b", "c"] {
        desk.step_of(name, asks.clone());
    }
    let waits = conclusion(json!(null), Next::Settled(None), vec![0]);
    (desk, asks, waits)
}

#[test]
fn who_is_next_in_line_for_a_lock_is_looked_at_when_its_holder_has_ended() {
    let (mut desk, asks, waits) = three_who_want_a_lock();
    desk.step_of("b", waits.clone());
    desk.step_of("c", waits.clone());
    desk.step_of("a", waits.clone());
    assert_eq!(desk.steps(), 1);
    desk.step_of("b", asks.clone());
    assert_eq!(desk.steps(), 1, "and nobody else before it has ended");
    desk.step_of("b", waits);
    desk.step_of("c", asks);
}

#[test]
fn an_object_that_goes_while_it_stands_in_line_for_a_lock_holds_up_nobody_behind_it() {
    for ends_before_it_goes in [true, false] {
        let (mut desk, asks, waits) = three_who_want_a_lock();
        if ends_before_it_goes {
            desk.step_of("b", waits.clone());
        }
        desk.feed(Input::Watched {
            scope: primary(),
            event: WatchEvent::Deleted(machine("b", 9, json!({}))),
        });
        if !ends_before_it_goes {
            desk.step_of("b", waits.clone());
        }
        desk.step_of("c", waits.clone());
        desk.step_of("a", waits);
        desk.step_of("c", asks);
    }
}

#[test]
fn a_host_that_stops_begins_nothing_more_and_keeps_the_lease_until_what_it_writes_is_answered() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(says("Started"));
    desk.feed(Input::Stop);
    desk.pass(2_000);
    assert_eq!(desk.steps(), 0);
    assert!(!desk.others.contains(&Output::Stopped));
    let (id, _) = desk.take("Event", |call| matches!(call, Call::Write(Write::Event { .. })));
    desk.reply(id, Reply::Objects(Ok(vec![])));
    desk.answer_leases();
    assert!(desk.others.contains(&Output::Stopped));
}

#[test]
fn a_tenant_has_so_many_passes_under_way_and_no_more() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.limits.passes_per_tenant = 2;
    let mut machines = ["a", "b", "c"].map(|name| machine(name, 1, json!({}))).to_vec();
    machines.push(machine("d", 1, json!({"metadata": {"namespace": "another"}})));
    let mut desk = Desk::under(binding, machines);
    assert_eq!((desk.steps(), desk.controller.passes_in_flight()), (3, 3));
    assert_eq!(desk.view("c").map(|view| view.waiting), Some(WaitsFor::Turn));
    desk.step_of("a", conclusion(json!(null), Next::Settled(None), vec![]));
    assert_eq!(desk.steps(), 3);
    let waiting = |desk: &Desk| desk.view("c").map(|view| view.waiting);
    assert_eq!(waiting(&desk), Some(WaitsFor::Call));
    let id = desk.controller.last_pass;
    let line = "machines default".into();
    desk.controller.journals.hold(&line, PassId(id), 0, true);
    assert_eq!(waiting(&desk), Some(WaitsFor::Memory));
}

#[test]
fn an_act_that_would_outlast_the_lease_waits_for_its_renewal_and_then_for_its_answer() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.now += lease::DURATION - 1;
    desk.step(pending(vec![stop()]));
    let waiting = |desk: &Desk| desk.view("m").map(|view| view.waiting);
    assert_eq!(waiting(&desk), Some(WaitsFor::Renewal));
    desk.answer_leases();
    assert_eq!(waiting(&desk), Some(WaitsFor::Call));
    desk.take("act", |call| matches!(call, Call::Cloud(_)));
}

#[test]
fn a_pass_that_is_cut_waits_for_nothing_any_more() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    assert_eq!(desk.steps(), 1);
    desk.feed(Input::Cut);
    assert_eq!(desk.steps(), 0);
    assert_eq!(desk.records[0].outcome, Outcome::Stopped);
}

#[test]
fn health_counts_what_passes_came_to() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![stop()]));
    let (id, _) = desk.take("act", |call| matches!(call, Call::Cloud(_)));
    desk.reply(id, Reply::Answer(Ok(json!({}))));
    desk.step(conclusion(json!(null), Next::After(1_000), vec![0]));
    desk.pass(1_000);
    desk.fault();
    let health = desk.controller.health("machines").expect("it is bound");
    assert_eq!((health.passes, health.acts, health.faults), (1, 1, 1));
    let (id, _) = desk.patch();
    desk.reply(id, Reply::Objects(Ok(vec![machine("m", 2, json!({}))])));
    desk.pass(1_000);
    desk.step(conclusion(
        json!({"status": {"phase": "x"}}),
        Next::Settled(None),
        vec![],
    ));
    assert_eq!(desk.view("m").map(|view| view.waiting), Some(WaitsFor::Call));
    desk.refused(Failure::new(Code::NotFound, "gone"));
    let health = desk.controller.health("machines").expect("it is bound");
    assert_eq!((health.passes, health.discarded), (3, 1));
}

#[test]
fn what_a_pass_deletes_is_no_news_to_it_and_what_changes_beside_it_is() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let held = map("one", 5, deleting);
    let other = map("two", 4, json!({"data": {"x": "2"}}));
    for (shown, left, is_news) in [
        (vec![], vec![], false),
        (vec![other.clone()], vec![], true),
        (vec![], vec![held.clone()], false),
        (vec![held.clone()], vec![held.clone()], false),
        (vec![other], vec![held], true),
    ] {
        let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
        desk.step(pending(vec![list("a=b")]));
        desk.listed(maps(), vec![map("one", 2, json!({})), map("two", 3, json!({}))]);
        desk.step(pending(vec![delete("one")]));
        for shown in &shown {
            desk.shown(maps(), shown.clone());
        }
        let (id, _) = desk.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
        desk.reply(id, Reply::Objects(Ok(left.clone())));
        desk.step(conclusion(json!(null), Next::Settled(None), vec![0, 1]));
        assert_eq!(desk.steps(), usize::from(is_news), "{shown:?} {left:?}");
    }
}

#[test]
fn a_binding_is_told_what_it_does_not_grant_and_no_more_than_so_much_of_it() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let lock = |n| {
        Request::Ask(Ask {
            round: 0,
            question: Question::Lock(format!("other-{n}")),
        })
    };
    let ungranted = |desk: &Desk| desk.controller.health("machines").map(|health| health.ungranted);
    desk.step(pending(vec![lock(1), list("no selector")]));
    let one = BTreeSet::from(["not granted: lock other-1".to_owned()]);
    assert_eq!(
        ungranted(&desk),
        Some(one),
        "a selector that is none is another mistake"
    );
    desk.step(pending((2..100).map(lock).collect()));
    assert_eq!(ungranted(&desk).map(|all| all.len()), Some(16));
}

/// A key that waits for 10 s, as its retry policy says, and has done so for 4 s.
fn waiting() -> Desk {
    let mut desk = Desk::under(retrying(), vec![machine("m", 1, json!({}))]);
    desk.step(conclusion(json!(null), retry(), vec![]));
    let (id, ..) = desk.asked();
    desk.decides(id, Wait::After(10_000));
    desk.pass(4_000);
    assert_eq!(desk.wait("m"), Some(6_000));
    desk
}

#[test]
fn a_changed_retry_policy_says_anew_how_long_a_key_waits_that_waits_already() {
    let mut desk = waiting();
    desk.swaps_retry("second");
    let (second, policy, request) = desk.asked();
    assert_eq!(
        (policy, &*request.config),
        (PolicyId("second".into()), "\"second\"")
    );
    desk.swaps_retry("third");
    let (third, ..) = desk.asked();
    desk.decides(second, Wait::After(1_000_000));
    assert_eq!(desk.wait("m"), Some(6_000), "it is not the policy any more");
    desk.decides(third, Wait::After(30_000));
    assert_eq!(desk.wait("m"), Some(26_000), "what it has waited counts");
    desk.swaps_retry("fourth");
    let (fourth, ..) = desk.asked();
    desk.decides(fourth, Wait::OnChange(Some(40_000)));
    assert_eq!(desk.wait("m"), Some(36_000), "nothing has changed meanwhile");
    desk.swaps_retry("third");
    let (third, ..) = desk.asked();
    desk.decides(third, Wait::After(30_000));
    desk.swaps_retry("third");
    assert!(
        !desk
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. })),
        "it is the same"
    );
    let without = fixture_binding(&[Role::Lifecycle]);
    desk.feed(Input::Bound(Box::new(without)));
    desk.pass(1);
    assert_eq!(desk.steps(), 1, "the ladder's first rung is over");
}

#[test]
fn what_a_retry_policy_says_of_a_wait_that_has_ended_is_dropped() {
    let mut desk = waiting();
    desk.swaps_retry("second");
    let (late, ..) = desk.asked();
    desk.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    desk.pass(60_000);
    desk.decides(late, Wait::After(1));
    desk.step(conclusion(json!(null), Next::Settled(None), vec![]));
    desk.decides(late, Wait::After(1));
    assert_eq!(desk.wait("m"), None);
}

#[test]
fn a_key_whose_turn_is_coming_anyway_is_no_business_of_a_changed_retry_policy() {
    let mut desk = waiting();
    desk.shown(primary(), machine("m", 2, json!({"metadata": {"generation": 2}})));
    let turn = desk.wait("m");
    assert!(turn > Some(50_000), "its bucket is empty: {turn:?}");
    desk.swaps_retry("second");
    assert!(
        !desk
            .calls
            .iter()
            .any(|(_, call)| matches!(call, Call::Decide { .. }))
    );
    assert_eq!(desk.wait("m"), turn);
}

#[test]
fn a_pass_is_told_why_it_runs() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.governs.name = Some("m".into());
    binding.spec.governs.namespace = Some("default".into());
    let scope = primary_scope(&binding);
    let mut desk = Desk::under(binding, vec![]);
    assert_eq!(desk.causes(), [Cause::Resync], "it is absent");
    let request = json!({"metadata": {"annotations": {"request.polity.dev/now": "1"}}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (version, rest, cause) in [
        (1, json!({}), Cause::Created),
        (2, json!({"spec": {"x": 1}}), Cause::Changed),
        (3, request, Cause::Requested),
        (4, deleting, Cause::Deleted),
        (
            5,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {}}}),
            Cause::Changed,
        ),
    ] {
        desk.shown(scope.clone(), machine("m", version, rest));
        assert_eq!(desk.causes(), [cause], "version {version}");
    }
    let event = WatchEvent::Deleted(machine("m", 6, json!({})));
    desk.feed(Input::Watched { scope, event });
    assert_eq!(desk.causes(), [Cause::Deleted], "it is gone");
}

#[test]
fn several_changes_of_what_a_pass_used_are_one_cause() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![list("a=b")]));
    desk.listed(maps(), vec![map("one", 2, json!({}))]);
    for version in [3, 4] {
        desk.shown(
            maps(),
            map("one", version, json!({"data": {"x": version.to_string()}})),
        );
    }
    desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    let one = map("one", 4, json!({})).reference();
    assert_eq!(desk.causes(), [Cause::Dependency(Some(one))]);
}

#[test]
fn of_bindings_that_meet_the_oldest_governs_and_the_others_are_told() {
    let older = fixture_binding(&[Role::Lifecycle]);
    let younger = |change: fn(&mut Binding)| {
        let mut binding = fixture_binding(&[Role::Lifecycle]);
        (binding.name, binding.created) = ("younger".into(), 1);
        change(&mut binding);
        binding
    };
    for (binding, is_overlapped) in [
        (younger(|_| {}), true),
        (younger(|b| b.created = 0), true),
        (
            younger(|b| b.spec.governs.namespace = Some("default".into())),
            true,
        ),
        (younger(|b| b.spec.governs.kind = "Disk".into()), false),
        (younger(|b| b.policies.clear()), false),
    ] {
        let mut desk = Desk::under(older.clone(), vec![machine("m", 1, json!({}))]);
        desk.feed(Input::Bound(Box::new(binding.clone())));
        let told = |name: &str| {
            desk.controller
                .health(name)
                .and_then(|health| health.overlapped_by)
        };
        let expected = is_overlapped.then(|| "machines".to_owned());
        assert_eq!(
            (told("machines"), told("younger")),
            (None, expected),
            "{:?}",
            binding.spec.governs
        );
    }
    for (a, b, meets) in [
        ((None, Some("x")), (None, Some("y")), false),
        ((None, Some("x")), (Some("t"), Some("x")), true),
        ((Some("t"), None), (Some("u"), None), false),
        ((Some("t"), None), (Some("t"), Some("x")), true),
    ] {
        let governing = |mut binding: Binding, (namespace, name): (Option<&str>, Option<&str>)| {
            let governs = &mut binding.spec.governs;
            (governs.namespace, governs.name) = (namespace.map(str::to_owned), name.map(str::to_owned));
            binding
        };
        let mut desk = Desk::under(governing(younger(|_| {}), b), vec![]);
        desk.feed(Input::Bound(Box::new(governing(older.clone(), a))));
        let told = desk
            .controller
            .health("younger")
            .and_then(|health| health.overlapped_by);
        assert_eq!(told.is_some(), meets, "{a:?} {b:?}");
    }
}

#[test]
fn a_watch_is_open_for_as_long_as_a_conclusion_rests_on_it() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![list("a=b")]));
    desk.listed(maps(), vec![]);
    desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
    desk.pass(700_000);
    let closed = |desk: &Desk| desk.others.contains(&Output::Unwatch(maps()));
    assert!(!closed(&desk));
    desk.shown(primary(), machine("m", 2, json!({"spec": {"x": 1}})));
    desk.step(conclusion(json!(null), Next::Settled(None), vec![]));
    desk.pass(700_000);
    assert!(closed(&desk));
    assert!(!desk.others.contains(&Output::Unwatch(primary())));
}

#[test]
fn time_is_wanted_when_the_first_of_all_that_waits_is_due() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let after = |desk: &Desk| desk.controller.deadline() - desk.now;
    assert_eq!(after(&desk), lease::RENEW_EVERY);
    desk.step(conclusion(json!(null), Next::After(1_000), vec![]));
    assert_eq!(after(&desk), 1_000);
    desk.pass(1_000);
    desk.step(pending(vec![list("a=b")]));
    desk.feed(Input::Cut);
    assert_eq!(after(&desk), 5_000, "the lease is being given up");
}

#[test]
fn who_loses_the_lease_ends_its_passes_and_who_gets_it_again_looks_at_everything() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    desk.step_of("n", conclusion(json!(null), Next::After(1_000), vec![]));
    desk.now += 2 * lease::DURATION;
    desk.feed(Input::Tick);
    assert_eq!(desk.records[1].outcome, Outcome::LeaseLost);
    assert!(!desk.controller.is_holder());
    assert_eq!(desk.steps(), 0, "nothing begins, although its time has come");
    assert_eq!(desk.view("n").map(|view| view.waiting), Some(WaitsFor::Lease));
    desk.answer_leases();
    assert_eq!(desk.steps(), 2);
    assert!(desk.causes().contains(&Cause::Resync));
}

#[test]
fn a_recording_tells_what_its_policies_noted() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let mut step = conclusion(json!(null), Next::Settled(None), vec![]);
    if let Step::Concluded { conclusion, .. } = &mut step {
        conclusion.notes = vec!["A-01".into(), "A-02".into()];
    }
    desk.step(step);
    assert_eq!(desk.records[0].notes().collect::<Vec<_>>(), ["A-01", "A-02"]);
}

#[test]
fn what_the_api_server_did_not_keep_is_not_written_again_by_the_next_pass() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let wanted = json!({"status": {"phase": "x", "pruned": 1}});
    desk.step(conclusion(wanted.clone(), Next::After(1_000), vec![]));
    desk.taken(&machine("m", 2, json!({"status": {"phase": "x"}})));
    desk.pass(1_000);
    desk.step(conclusion(wanted, Next::Settled(None), vec![]));
    assert_eq!(desk.records.len(), 2, "{:?}", desk.calls);
    let health = desk.controller.health("machines").expect("it is bound");
    assert!(health.not_kept.contains_key("status.pruned"));
}

#[test]
fn a_create_that_never_left_the_host_is_not_asked_for_by_the_next_pass() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(pending(vec![Request::Act(Act::Cloud(CloudAct {
        operation: "vm.clone".into(),
        arguments: "{}".into(),
        intent: Some("m".into()),
    }))]));
    let (id, _) = desk.take("read", |call| matches!(call, Call::Prepare(_)));
    desk.reply(id, Reply::Prepared(Ok(crate::reconcile::fixture::ready())));
    let (_, patch) = desk.patch();
    // Nobody answers whether the entry stands. It does, as the watch shows.
    desk.pass(5_000);
    assert!(matches!(desk.records[0].outcome, Outcome::Discarded(_)));
    desk.shown(primary(), machine("m", 2, json!({"status": patch["status"]})));
    desk.pass(1_000);
    let (_, call) = desk.take("step", |call| !matches!(call, Call::Lease(_)));
    let Call::Step { pass, .. } = call else {
        panic!("{call:?}")
    };
    assert_eq!(pass.pending[0].resolution, crate::contract::Resolution::Absent);
}

#[test]
fn an_event_that_would_outlast_the_lease_is_dropped_when_its_turn_comes() {
    let machines = (0..20).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut desk = Desk::with(machines.collect());
    while desk.steps() > 0 {
        desk.step(says("Started"));
    }
    let waiting = desk.events();
    assert!(waiting < 20, "{waiting}");
    let reply = |desk: &mut Desk| {
        let (id, _) = desk.take("Event", |call| matches!(call, Call::Write(Write::Event { .. })));
        desk.reply(id, Reply::Objects(Ok(vec![])));
    };
    reply(&mut desk);
    assert_eq!(desk.events(), waiting, "the next one has its turn");
    desk.now += lease::DURATION - 4_000;
    desk.calls
        .retain(|(_, call)| matches!(call, Call::Write(Write::Event { .. }) | Call::Lease(_)));
    desk.feed(Input::Tick);
    assert_eq!(desk.events(), 0, "those under way are cut, and no other begins");
}

#[test]
fn of_two_who_asked_the_same_one_is_woken_when_the_other_asks_no_more() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    let rests = conclusion(json!(null), Next::Settled(None), vec![0]);
    desk.step_of("m", pending(vec![list("a=b")]));
    desk.step_of("n", pending(vec![list("a=b")]));
    desk.listed(maps(), vec![map("one", 2, json!({}))]);
    desk.step_of("m", rests.clone());
    desk.step_of("n", rests.clone());
    desk.shown(primary(), machine("n", 2, json!({"spec": {"x": 1}})));
    desk.step_of("n", conclusion(json!(null), Next::Settled(None), vec![]));
    desk.shown(maps(), map("one", 3, json!({"data": {"x": "2"}})));
    desk.step_of("m", rests);
    assert_eq!(desk.steps(), 0, "the other one is left alone");
}

#[test]
fn what_a_pass_writes_of_its_object_may_relate_it_to_what_it_asked_for() {
    let object = Request::Ask(Ask {
        round: 0,
        question: Question::Object(crate::contract::ObjectQuery {
            object: map("one", 1, json!({})).reference(),
            projection: vec![],
            latest: false,
        }),
    });
    for ask in [object, list("a=b")] {
        for (site, is_related) in [("b", true), ("c", false)] {
            let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap",
                "relation": {"ours": "status.site", "theirs": "metadata.labels.a"}}}]);
            let grants = serde_json::from_value(grants).expect("grants");
            let binding = fixture_binding(&[Role::Lifecycle]).with_grants(grants);
            let mut desk = Desk::under(binding, vec![machine("m", 1, json!({}))]);
            desk.step(pending(vec![ask.clone()]));
            desk.listed(maps(), vec![map("one", 2, json!({}))]);
            let status = json!({"status": {"site": site}});
            desk.step(conclusion(status.clone(), Next::Settled(None), vec![0]));
            desk.taken(&machine("m", 3, status));
            assert_eq!(desk.steps(), usize::from(is_related), "{site} {ask:?}");
        }
    }
}

#[test]
fn a_retry_after_a_time_is_not_ended_early_by_what_the_pass_used() {
    for (wait, steps) in [(Wait::After(50_000), 0), (Wait::OnChange(None), 1)] {
        let binding = fixture_binding(&[Role::Lifecycle, Role::Retry]);
        let mut desk = Desk::under(binding, vec![machine("m", 1, json!({}))]);
        desk.step(pending(vec![list("a=b")]));
        desk.listed(maps(), vec![map("one", 2, json!({}))]);
        desk.step(conclusion(json!(null), retry(), vec![0]));
        let (id, ..) = desk.asked();
        desk.decides(id, wait);
        let changed = map("one", 3, json!({"data": {"x": "2"}}));
        desk.shown(maps(), changed.clone());
        desk.listed(maps(), vec![changed]);
        assert_eq!(desk.steps(), steps, "{wait:?}");
    }
}

/// How long `n` waits, which was to wait for 10 s when `m` faulted.
fn wait_beside_a_fault(guards: Guards) -> Option<u64> {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    desk.controller.guards = guards;
    desk.step_of("n", conclusion(json!(null), Next::After(10_000), vec![]));
    desk.fault();
    desk.refused(Failure::new(Code::PermissionDenied, "forbidden"));
    assert_eq!(desk.records[1].outcome, Outcome::Faulted);
    desk.wait("n")
}

#[test]
fn a_fault_delays_no_other_object() {
    assert_eq!(wait_beside_a_fault(Guards::default()), Some(10_000));
}

#[cfg(feature = "simulation")]
#[test]
fn a_guard_that_is_taken_away_guards_nothing() {
    let delayed = wait_beside_a_fault(Guards::without(Guard::FaultsDelayNoOther));
    assert_eq!(delayed, Some(70_000));
    let machines = (0..40).map(|n| machine(&format!("m-{n}"), n + 1, json!({})));
    let mut desk = Desk::with(machines.collect());
    desk.controller
        .set_guards(Guards::without(Guard::RoomsAreBounded));
    while desk.steps() > 0 {
        desk.step(says("Started"));
    }
    assert_eq!(desk.events(), 40);
}

fn settled() -> Step {
    conclusion(json!(null), Next::Settled(None), vec![])
}

fn forgotten(desk: &Desk) -> usize {
    let is_forgotten = |output: &&Output| matches!(output, Output::Forgotten(_));
    desk.others.iter().filter(is_forgotten).count()
}

#[test]
fn a_binding_that_governs_something_else_or_is_gone_forgets_its_keys_when_their_passes_have_ended() {
    let mut other = fixture_binding(&[Role::Lifecycle]);
    other.spec.governs.kind = "Disk".into();
    let disks = primary_scope(&other);
    for (input, passes) in [
        (Input::Bound(Box::new(other)), Some(2)),
        (Input::Unbound("machines".into()), Some(1)),
    ] {
        let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
        desk.step_of("n", settled());
        let is_unbound = matches!(input, Input::Unbound(_));
        desk.feed(input);
        assert_eq!((forgotten(&desk), desk.controller.keys().count()), (1, 0));
        assert_eq!(desk.controller.health("machines").is_none(), is_unbound);
        assert_eq!(desk.others.contains(&Output::Watch(disks.clone())), !is_unbound);
        desk.step_of("m", settled());
        assert_eq!(forgotten(&desk), 2);
        assert_eq!(
            desk.controller.health("machines").map(|health| health.passes),
            passes
        );
    }
}

#[test]
fn a_key_whose_time_comes_while_its_watch_cannot_say_passes_when_it_can() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    desk.step(conclusion(json!(null), Next::After(1_000), vec![]));
    let event = WatchEvent::Failed("cut".into());
    let scope = primary();
    desk.feed(Input::Watched { scope, event });
    desk.pass(2_000);
    assert_eq!(desk.steps(), 0);
    desk.listed(primary(), vec![machine("m", 1, json!({}))]);
    assert!(desk.causes().contains(&Cause::Due));
}

#[test]
fn a_tenant_is_what_stands_at_the_path_that_the_binding_names() {
    let mut binding = fixture_binding(&[Role::Lifecycle]);
    binding.spec.tenant = crate::binding::Tenant::Path("spec.team".into());
    binding.spec.limits.passes_per_tenant = 1;
    let of = |name: &str, team: &str| machine(name, 1, json!({"spec": {"team": team}}));
    let desk = Desk::under(binding, vec![of("a", "x"), of("b", "x"), of("c", "y")]);
    assert_eq!(desk.steps(), 2);
    assert_eq!(desk.view("b").map(|view| view.waiting), Some(WaitsFor::Turn));
}

#[test]
fn what_changes_of_an_object_during_its_pass_is_looked_at_afterwards_and_what_the_pass_wrote_is_not() {
    let status = json!({"status": {"phase": "x"}});
    for theirs in [None, Some(json!({"status": {"phase": "x"}, "spec": {"x": 1}}))] {
        let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
        desk.step(conclusion(status.clone(), Next::Settled(None), vec![]));
        // The watch shows the write before it is answered.
        desk.shown(primary(), machine("m", 2, status.clone()));
        if let Some(theirs) = &theirs {
            desk.shown(primary(), machine("m", 3, theirs.clone()));
        }
        assert_eq!(desk.steps(), 0, "one pass at a time");
        desk.taken(&machine("m", 2, status.clone()));
        assert_eq!(desk.steps(), usize::from(theirs.is_some()));
    }
}

#[test]
fn an_object_that_is_made_anew_while_a_pass_of_the_old_one_is_under_way_waits_for_its_end() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({}))]);
    let event = WatchEvent::Deleted(machine("m", 2, json!({})));
    let scope = primary();
    desk.feed(Input::Watched { scope, event });
    desk.shown(
        primary(),
        machine("m", 3, json!({"metadata": {"uid": "another"}})),
    );
    assert_eq!((desk.steps(), desk.controller.keys().count()), (1, 1));
    desk.step(settled());
    assert_eq!(desk.steps(), 1);
    assert_eq!(
        desk.causes(),
        [Cause::Changed],
        "there is another one of this name"
    );
    assert_eq!(forgotten(&desk), 0);
}

#[test]
fn a_stale_object_that_is_gone_is_forgotten() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({"metadata": {"finalizers": []}}))]);
    desk.step(pending(vec![stop()]));
    desk.refused(Failure::new(Code::Aborted, "the object has another version"));
    desk.pass(1_000);
    let (id, _) = desk.take("read", |call| matches!(call, Call::Read(_)));
    desk.reply(id, Reply::Objects(Err(Failure::new(Code::NotFound, "gone"))));
    assert_eq!((desk.steps(), forgotten(&desk)), (0, 1));
}

#[test]
fn what_this_host_wrote_while_a_watch_could_not_say_wakes_when_it_lists_again() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    desk.step_of("m", pending(vec![list("a=b")]));
    desk.listed(maps(), vec![map("one", 2, json!({}))]);
    desk.step_of("m", conclusion(json!(null), Next::Settled(None), vec![0]));
    desk.step_of("n", pending(vec![delete("one")]));
    let event = WatchEvent::Failed("cut".into());
    let scope = maps();
    desk.feed(Input::Watched { scope, event });
    let (id, _) = desk.take("act", |call| matches!(call, Call::Write(Write::Act(_))));
    desk.reply(id, Reply::Objects(Ok(vec![])));
    desk.step_of("n", conclusion(json!(null), Next::Settled(None), vec![0]));
    assert_eq!(desk.steps(), 0, "nobody can say what the list is now");
    desk.listed(maps(), vec![]);
    desk.step_of("m", settled());
}

#[test]
fn a_binding_with_another_lifecycle_identity_or_other_grants_wakes_its_keys_within_a_minute() {
    let policy = |binding: &mut Binding, role| {
        binding.policies.get_mut(&role).expect("a policy").id = PolicyId("another".into());
    };
    for (change, wakes) in [
        (
            &(|binding: &mut Binding| policy(binding, Role::Lifecycle)) as &dyn Fn(&mut Binding),
            true,
        ),
        (&|binding| policy(binding, Role::Identity), true),
        (&|binding| binding.spec.grants.clear(), true),
        (&|binding| policy(binding, Role::Retry), false),
        (&|binding| binding.spec.limits.burst = 7, false),
        (&|_| {}, false),
    ] {
        let binding = fixture_binding(&[Role::Identity, Role::Lifecycle, Role::Retry]);
        let machines = ["m", "n", "o"].map(|name| machine(name, 1, json!({})));
        let mut desk = Desk::under(binding.clone(), machines.to_vec());
        let denied = || {
            let Step::Concluded { conclusion, .. } = settled() else {
                panic!("a conclusion")
            };
            let verdict = Some(crate::contract::Verdict::Denied);
            Step::Concluded { verdict, conclusion }
        };
        desk.step_of("m", denied());
        desk.step_of("n", denied());
        let mut changed = binding;
        change(&mut changed);
        desk.feed(Input::Bound(Box::new(changed)));
        let waits = ["m", "n", "o"].map(|name| desk.wait(name));
        assert_eq!(waits[0].is_some_and(|wait| wait < 60_000), wakes);
        assert_eq!(waits[0] != waits[1], wakes, "not all at once: {waits:?}");
        assert_eq!(waits[2], None, "its pass is under way");
        desk.step_of("o", denied());
        assert_eq!(desk.steps(), usize::from(wakes), "it passes again");
        if wakes {
            desk.step_of("o", denied());
        }
        desk.pass(60_000);
        assert_eq!(desk.steps(), 2 * usize::from(wakes));
    }
}

#[test]
fn a_question_that_is_cut_leaves_others_to_the_list_that_they_wait_for() {
    let mut desk = Desk::with(vec![machine("m", 1, json!({})), machine("n", 1, json!({}))]);
    desk.step_of("m", pending(vec![list("a=b")]));
    desk.pass(3_000);
    desk.step_of("n", pending(vec![list("a=b")]));
    assert!(matches!(
        desk.view("n").map(|view| view.waiting),
        Some(WaitsFor::Watch(..))
    ));
    desk.pass(2_000);
    desk.step_of("m", settled());
    assert_eq!(desk.steps(), 0);
    desk.listed(maps(), vec![]);
    desk.step_of("n", settled());
}

#[test]
fn a_pass_that_ends_after_its_retry_policy_was_swapped_waits_as_the_new_one_says() {
    let mut desk = Desk::under(retrying(), vec![machine("m", 1, json!({}))]);
    desk.swaps_retry("second");
    desk.step(conclusion(json!(null), retry(), vec![]));
    let (first, policy, _) = desk.asked();
    assert_eq!(policy, PolicyId("retry".into()), "with which it began");
    desk.decides(first, Wait::After(10_000));
    let (second, policy, _) = desk.asked();
    assert_eq!(policy, PolicyId("second".into()));
    desk.decides(second, Wait::After(20_000));
    assert_eq!(desk.wait("m"), Some(20_000));
}

#[test]
fn an_answer_changes_by_what_its_grant_relates_and_by_a_refusal_that_ends() {
    let object = Request::Ask(Ask {
        round: 0,
        question: Question::Object(crate::contract::ObjectQuery {
            object: map("one", 1, json!({})).reference(),
            projection: vec![],
            latest: false,
        }),
    });
    let mut all = list("x");
    if let Request::Ask(Ask {
        question: Question::Objects(query),
        ..
    }) = &mut all
    {
        query.label_selector = None;
    }
    let shows = |rest: Value| WatchEvent::Applied(map("one", 3, rest));
    for (event, of_object, of_list) in [
        (shows(json!({"data": {"x": "2"}})), 0, 0),
        (shows(json!({"metadata": {"labels": {"a": "m"}}})), 1, 1),
        (WatchEvent::Deleted(map("one", 3, json!({}))), 1, 0),
    ] {
        for (ask, steps) in [(&object, of_object), (&all, of_list)] {
            let grants = json!([{"ask": {"apiVersion": "v1", "kind": "ConfigMap",
                "relation": {"ours": "metadata.name", "theirs": "metadata.labels.a"}}}]);
            let grants = serde_json::from_value(grants).expect("grants");
            let binding = fixture_binding(&[Role::Lifecycle]).with_grants(grants);
            let mut desk = Desk::under(binding, vec![machine("m", 1, json!({}))]);
            desk.step(pending(vec![ask.clone()]));
            desk.listed(maps(), vec![map("one", 2, json!({}))]);
            desk.step(conclusion(json!(null), Next::Settled(None), vec![0]));
            let (scope, event) = (maps(), event.clone());
            desk.feed(Input::Watched { scope, event });
            assert_eq!(desk.steps(), steps, "{ask:?}");
        }
    }
}
