//! Cases: rows of a table. A case has an object, the facts about everything else, and all that one pass does.
//!
//! A table is data. Two drivers run it and must get the same results: the tests of the policy's crate run its
//! functions natively, and those of the host run it as a component in the sandbox.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::contract::{IdentityStep, Origin, Pass, Request, RetryRequest, Step, Wait};
use crate::{
    ActInDoubt, Code, Effect, Failure, Manifest, Need, Next, RECONCILE_FAILED, RECONCILED, Resolution,
    RetryClass, Verdict,
};

use super::{Ended, World, describe};

/// The time of the passes of the test kit, 2026-01-01T00:00:00Z, in milliseconds.
pub const NOW_MS: u64 = 1_767_225_600_000;
/// The same time as objects write it.
pub const NOW: &str = "2026-01-01T00:00:00Z";
/// How long ago a create in doubt was entered.
const IN_DOUBT_MS: u64 = 90_000;

/// Declares the cases of a table, and the macro that makes a test of each.
///
/// ```ignore
/// polity_sdk::cases! { $ each_case of my_policy::cases;
///
/// what_it_does_then:
///     object().notes("01").next(Next::settled());
/// }
/// ```
///
/// makes a function of each case, `all()`, which has them by name, and `each_case!(driver)`, which makes a test of each
/// that calls `driver` with it. A table of several parts says of each where it stands: `of my_policy::cases::part`.
#[macro_export]
macro_rules! cases {
    // A nested macro can hold a path only as one tree.
    (@each $dollar:tt $each:ident $module:tt $($name:ident)+) => {
        /// Makes a test of each case, which calls this function with it.
        #[macro_export]
        macro_rules! $each {
            ($dollar driver:path) => {
                $(
                    #[test]
                    fn $name() {
                        $dollar driver($crate::cases!(@case $module $name));
                    }
                )+
            };
        }
    };
    (@case [$($module:ident)::+] $name:ident) => {
        $(:: $module)+ :: $name()
    };
    ($dollar:tt $each:ident of $($module:ident)::+; $($name:ident: $case:expr;)+) => {
        $(
            #[doc = concat!("Case `", stringify!($name), "`.")]
            pub fn $name() -> Case {
                $case
            }
        )+

        /// Every case by name.
        pub fn all() -> Vec<(&'static str, Case)> {
            vec![$((stringify!($name), $name())),+]
        }

        $crate::cases! { @each $dollar $each [$($module)::+] $($name)+ }
    };
}

/// One pass of a lifecycle or an identity policy. Unless its row says otherwise, the pass does nothing and is
/// settled.
#[derive(Clone, Debug)]
pub struct Case {
    /// The prefix of the ids of edges.
    prefix: &'static str,
    /// `None` if the object is absent.
    object: Option<Value>,
    config: Value,
    /// The operation and intent of the create that may be in doubt.
    creates: (&'static str, &'static str),
    in_doubt: Option<Resolution>,
    manifest: Option<Manifest>,
    grants: Vec<Need>,
    /// The other objects of the cluster.
    others: Vec<Value>,
    /// Beginnings of requests with their answers. The first that fits is used.
    answers: Vec<(String, Result<Value, Failure>)>,
    /// Answers that most cases share.
    usual: fn(&Request) -> Option<Result<Value, Failure>>,
    requests: Requests,
    notes: Vec<String>,
    patch: Value,
    events: Vec<&'static str>,
    verdict: Verdict,
    next: Next,
}

/// The expected requests of the pass, each as [`describe`] writes it.
#[derive(Clone, Debug)]
enum Requests {
    /// The acts in their order.
    Acts(Vec<String>),
    /// All requests, step by step.
    Steps(Vec<Vec<String>>),
}

impl Case {
    /// A pass of this object. `prefix` is the prefix of the policy's edge ids, which [`Case::notes`] omits.
    pub fn new(prefix: &'static str, object: Value) -> Self {
        Case {
            object: Some(object),
            ..Case::absent(prefix)
        }
    }

    /// A pass without an object.
    pub fn absent(prefix: &'static str) -> Self {
        Case {
            prefix,
            object: None,
            config: json!({}),
            creates: ("", ""),
            in_doubt: None,
            manifest: None,
            grants: Vec::new(),
            others: Vec::new(),
            answers: Vec::new(),
            usual: |_| None,
            requests: Requests::Acts(Vec::new()),
            notes: Vec::new(),
            patch: json!({}),
            events: Vec::new(),
            verdict: Verdict::Denied,
            next: Next::settled(),
        }
    }

    /// Runs the pass of a lifecycle policy, given as a function of steps.
    pub fn run(&self, step: impl FnMut(Pass) -> Step) -> Ended {
        self.world().pass_with(step)
    }

    /// Runs the pass of an identity policy, given as a function of steps.
    pub fn judge(&self, step: impl FnMut(Pass) -> IdentityStep) -> (Verdict, Ended) {
        self.world().judge_with(step)
    }

    fn world(&self) -> World {
        let world = self.object.as_ref().map_or_else(World::absent, World::new);
        let mut world = world.config(self.config.clone()).grants(self.grants.clone());
        if let Some(manifest) = &self.manifest {
            world = world.manifest(manifest);
        }
        if let Some(state) = &self.in_doubt {
            let (operation, intent) = self.creates;
            world.set_pending(vec![ActInDoubt {
                operation: operation.to_owned(),
                intent: intent.to_owned(),
                since: NOW_MS - IN_DOUBT_MS,
                resolution: state.clone(),
            }]);
        }
        for other in &self.others {
            world.exists(other);
        }
        let (answers, usual) = (self.answers.clone(), self.usual);
        world.responds(move |request| {
            let line = describe(request);
            let given = answers.iter().find(|(begin, _)| begins_with(&line, begin));
            let given = given.map(|(_, answer)| answer.clone());
            let answer = given.or_else(|| usual(request))?;
            Some(answer.map(|json| json.to_string()))
        });
        world
    }

    /// Checks that the pass did what the row says and nothing else.
    ///
    /// # Panics
    /// The pass did something else.
    pub fn check(&self, ended: &Ended) {
        let brief = |ids: &[String]| ids.join(" ").replace(self.prefix, "");
        assert_eq!(brief(&ended.notes), brief(&self.notes), "notes");
        match &self.requests {
            Requests::Acts(acts) => assert_eq!(ended.acts(), *acts, "acts"),
            Requests::Steps(steps) => assert_eq!(ended.requests(), *steps, "requests of each step"),
        }
        let (ended_patch, ended_events) = self.without_report(ended);
        let patch = (self.patch != json!({})).then(|| self.patch.clone());
        assert_eq!(ended_patch, patch, "patch");
        let events: Vec<&str> = ended_events.iter().map(String::as_str).collect();
        assert_eq!(events, self.events, "events");
        assert_eq!(ended.next, self.next, "next");
    }

    /// The patch and the reasons of events without the SDK's own report of a failed pass, which a row need
    /// not mention.
    fn without_report(&self, ended: &Ended) -> (Option<Value>, Vec<String>) {
        let mut events: Vec<String> = ended.events.iter().map(|event| event.reason.clone()).collect();
        let mut patch = ended.patch.clone();
        let is_report = |condition: &Value| condition["type"] == RECONCILED;
        let mentioned = [&self.patch, self.object()]
            .iter()
            .filter_map(|object| object.pointer("/status/conditions")?.as_array())
            .any(|conditions| conditions.iter().any(is_report));
        let written = patch
            .as_mut()
            .and_then(|patch| patch.pointer_mut("/status/conditions"));
        let (false, Some(Value::Array(conditions))) = (mentioned, written) else {
            return (patch, events);
        };
        let Some(at) = conditions.iter().position(is_report) else {
            return (patch, events);
        };
        let report = conditions.remove(at);
        assert!(
            matches!(&ended.next, Next::Retry(retry) if retry.failure.as_ref().is_some_and(|failure| {
                (&report["status"], &report["message"]) == (&json!("False"), &json!(failure.message))
            })),
            "{report} is not how the pass ended: {}",
            ended.next
        );
        let stored = self
            .object()
            .pointer("/status/conditions")
            .cloned()
            .unwrap_or(json!([]));
        let nothing_else = stored == Value::Array(conditions.clone());
        if nothing_else && let Some(Value::Object(status)) = patch.as_mut().map(|patch| &mut patch["status"])
        {
            status.remove("conditions");
        }
        if let Some(Value::Object(fields)) = &mut patch
            && fields.get("status") == Some(&json!({}))
        {
            fields.remove("status");
        }
        events.retain(|reason| reason != RECONCILE_FAILED || self.events.contains(&RECONCILE_FAILED));
        (patch.filter(|patch| *patch != json!({})), events)
    }

    /// Checks that a pass of an identity policy did and decided what the row says and nothing else.
    ///
    /// # Panics
    /// The pass did something else.
    pub fn check_judged(&self, (verdict, ended): &(Verdict, Ended)) {
        self.check(ended);
        assert_eq!(*verdict, self.verdict, "verdict");
    }

    /// The edges that the pass takes.
    pub fn edges(&self) -> &[String] {
        &self.notes
    }

    /// The object of the pass; null if there is none.
    pub fn object(&self) -> &Value {
        self.object.as_ref().unwrap_or(&Value::Null)
    }

    /// Edits the object.
    ///
    /// # Panics
    /// There is no object.
    #[must_use]
    pub fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(self.object.as_mut().expect("there is an object"));
        self
    }

    /// Adds these fields to the configuration.
    #[must_use]
    pub fn config(mut self, fields: Value) -> Self {
        for (field, value) in fields.as_object().into_iter().flatten() {
            self.config[field] = value.clone();
        }
        self
    }

    /// Sets the policy's manifest: see [`World::manifest`].
    #[must_use]
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Grants these requests beyond the policy's needs: see [`World::grants`].
    #[must_use]
    pub fn grants(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.grants.extend(needs);
        self
    }

    /// Sets the create that is in doubt for [`Case::in_doubt`].
    #[must_use]
    pub fn creates(mut self, operation: &'static str, intent: &'static str) -> Self {
        self.creates = (operation, intent);
        self
    }

    /// An earlier pass created something and did not get the answer.
    #[must_use]
    pub fn in_doubt(mut self, state: Resolution) -> Self {
        self.in_doubt = Some(state);
        self
    }

    /// Adds an object to the cluster.
    #[must_use]
    pub fn exists(mut self, other: Value) -> Self {
        self.others.push(other);
        self
    }

    /// Removes all objects of this kind from the cluster.
    #[must_use]
    pub fn without(mut self, kind: &str) -> Self {
        self.others.retain(|other| other["kind"] != kind);
        self
    }

    /// Sets the answers to requests that the row does not mention.
    #[must_use]
    pub fn usually(mut self, usual: fn(&Request) -> Option<Result<Value, Failure>>) -> Self {
        self.usual = usual;
        self
    }

    /// Answers requests that begin with these words, for example `vm.get` or `Node node-m`. The answer that
    /// is set last counts.
    #[must_use]
    pub fn answers(self, request: &str, answer: Value) -> Self {
        self.responds(request, Ok(answer))
    }

    /// The answer that the row sets for requests with this beginning.
    pub fn answer_to(&self, request: &str) -> Option<&Value> {
        let mut answers = self.answers.iter();
        let (_, answer) = answers.find(|(begin, _)| begin == request)?;
        answer.as_ref().ok()
    }

    /// Lets requests that begin with these words fail.
    #[must_use]
    pub fn fails(self, request: &str, code: Code) -> Self {
        self.responds(request, Err(Failure::new(code, "no")))
    }

    /// Lets requests that begin with these words be answered `not-found`.
    #[must_use]
    pub fn lacks(self, request: &str) -> Self {
        self.fails(request, Code::NotFound)
    }

    /// Lets the answer to requests that begin with these words be lost.
    #[must_use]
    pub fn loses(self, request: &str) -> Self {
        let failure = Failure {
            effect: Effect::Unknown,
            ..Failure::new(Code::DeadlineExceeded, "no answer")
        };
        self.responds(request, Err(failure))
    }

    /// Answers requests that begin with these words with an answer or a failure.
    #[must_use]
    pub fn responds(mut self, request: &str, answer: Result<Value, Failure>) -> Self {
        self.answers.insert(0, (request.to_owned(), answer));
        self
    }

    /// Expects these acts, for example `vm.power-on {"id":"vm-1"}`.
    #[must_use]
    pub fn acts<const N: usize>(mut self, acts: [&str; N]) -> Self {
        self.requests = Requests::Acts(acts.map(str::to_owned).to_vec());
        self
    }

    /// Expects the requests of every step, asks included.
    #[must_use]
    pub fn step_by_step(mut self) -> Self {
        self.requests = Requests::Steps(Vec::new());
        self
    }

    /// Expects these requests in the next step, for example `vm.get {"id":"vm-1"}`.
    ///
    /// # Panics
    /// The row does not say [step by step](Case::step_by_step).
    #[must_use]
    pub fn step<const N: usize>(mut self, requests: [&str; N]) -> Self {
        let Requests::Steps(steps) = &mut self.requests else {
            panic!("not step by step");
        };
        steps.push(requests.map(str::to_owned).to_vec());
        self
    }

    /// Expects these edges, without the prefix of their ids: `"02 04"`.
    #[must_use]
    pub fn notes(mut self, ids: &str) -> Self {
        let ids = ids.split_whitespace();
        self.notes = ids.map(|id| format!("{}{id}", self.prefix)).collect();
        self
    }

    /// Expects this patch.
    #[must_use]
    pub fn patch(mut self, patch: Value) -> Self {
        self.patch = patch;
        self
    }

    /// The expected patch so far.
    pub fn patched(&mut self) -> &mut Value {
        &mut self.patch
    }

    /// Expects an event with this reason.
    #[must_use]
    pub fn event(mut self, reason: &'static str) -> Self {
        self.events.push(reason);
        self
    }

    /// Expects this verdict of an identity policy. The default is a denial.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// Expects this `next`.
    #[must_use]
    pub fn next(mut self, next: Next) -> Self {
        self.next = next;
        self
    }

    /// Expects the pass to fail in this way.
    #[must_use]
    pub fn fails_with(self, class: RetryClass, code: Code, message: &str) -> Self {
        self.next(Next::failed(class, Failure::new(code, message)))
    }
}

/// Whether a request begins with these words.
fn begins_with(line: &str, begin: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || ['-', '_', '.'].contains(&c);
    line.strip_prefix(begin)
        .is_some_and(|rest| !(begin.ends_with(is_word) && rest.starts_with(is_word)))
}

/// The sources from which edges derive, beside other edges.
const HAPPENINGS: [&str; 6] = [
    "started",
    "published",
    "requeued",
    "failed",
    "succeeded",
    "concluded",
];

/// Checks the table against the policy's edges: all noted edges exist, every edge that is noted has a case,
/// every derived edge has a known source, and no edge occurs twice.
///
/// # Panics
/// One of these does not hold.
pub fn check_edges(manifest: &Manifest, cases: &[(&str, Case)]) {
    let edges = &manifest.as_contract().edges;
    let ids: BTreeSet<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    assert_eq!(ids.len(), edges.len(), "an edge is there twice");
    let noted = cases.iter().flat_map(|(_, case)| case.edges());
    let noted: BTreeSet<&str> = noted.map(String::as_str).collect();
    let unknown: Vec<_> = noted.difference(&ids).collect();
    assert!(unknown.is_empty(), "no edges: {unknown:?}");
    for edge in edges {
        let id = edge.id.as_str();
        match &edge.derived_from {
            None => assert!(noted.contains(id), "{id} has no case"),
            Some(from) => {
                let known = |from: &str| HAPPENINGS.contains(&from) || ids.contains(from);
                assert!(from.split(' ').all(known), "{id} derives from {from}");
            }
        }
    }
}

/// One decision of a retry policy.
#[derive(Clone, Debug)]
pub struct RetryCase {
    request: RetryRequest,
    wait: Wait,
}

/// A request to a retry policy: the first try of this class, without a failure.
pub fn retry_request(class: RetryClass) -> RetryRequest {
    RetryRequest {
        api_version: "example.com/v1".to_owned(),
        kind: "Thing".to_owned(),
        namespace: Some("default".to_owned()),
        origin: Origin::Lifecycle,
        class,
        failure: None,
        attempt: 0,
        failing_for: 0,
        previous_wait: None,
        seed: 0,
        config: json!({}).to_string(),
    }
}

impl RetryCase {
    /// The first try of this class, without a failure.
    pub fn new(class: RetryClass) -> Self {
        RetryCase {
            request: retry_request(class),
            wait: Wait::After(0),
        }
    }

    /// The request to the policy.
    pub fn request(&self) -> RetryRequest {
        self.request.clone()
    }

    /// Checks that the policy decides as the row says.
    ///
    /// # Panics
    /// It decides otherwise.
    pub fn check(&self, wait: Wait) {
        assert_eq!(
            wait, self.wait,
            "the wait, in milliseconds, for {:?}",
            self.request
        );
    }

    /// The code of the failure.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.failure().code = code;
        self
    }

    /// The operation that failed: `vm.clone`.
    #[must_use]
    pub fn operation(mut self, operation: &str) -> Self {
        self.failure().operation = Some(operation.to_owned());
        self
    }

    /// The pause that the other side asks for, in milliseconds.
    #[must_use]
    pub fn retry_after(mut self, ms: u64) -> Self {
        self.failure().retry_after = Some(ms);
        self
    }

    fn failure(&mut self) -> &mut Failure {
        let unknown = || Failure::new(Code::Unknown, "said the other side");
        self.request.failure.get_or_insert_with(unknown)
    }

    /// Sets the configuration.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.request.config = config.to_string();
        self
    }

    /// The number of failed tries before this one.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.request.attempt = attempt;
        self
    }

    /// The host's random number.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.request.seed = seed;
        self
    }

    /// Expects this wait in milliseconds.
    #[must_use]
    pub fn waits(mut self, ms: u64) -> Self {
        self.wait = Wait::After(ms);
        self
    }

    /// Expects this answer: `Wait::on_change()`.
    #[must_use]
    pub fn decides(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::begins_with;

    #[test]
    fn a_request_is_known_by_whole_words() {
        assert!(begins_with(r#"vm.power {"id":"vm-1"}"#, "vm.power"));
        assert!(!begins_with(r#"vm.power-on {"id":"vm-1"}"#, "vm.power"));
        assert!(begins_with("Node node-m", "Node"));
        assert!(!begins_with("list MachineClass", "list Machine"));
        assert!(begins_with(
            r#"patch Node n {"status":{}}"#,
            r#"patch Node n {"status""#
        ));
    }
}
