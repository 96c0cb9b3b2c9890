//! A row of a policy's table of cases: an object, what is true of everything else, and all that one pass does.
//!
//! A table is data. Two drivers run it and must find the same: the tests of the policy's crate run its functions
//! natively, those of the host run it as a component in the sandbox.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::contract::{IdentityStep, Origin, Pass, Request, RetryRequest, Step, Wait};
use crate::{
    ActInDoubt, Code, Effect, Failure, Manifest, Need, Next, RECONCILE_FAILED, RECONCILED, Resolution,
    RetryClass, Verdict,
};

use super::{Ended, World, describe};

/// 2026-01-01T00:00:00Z, when the passes of the test kit run; milliseconds.
pub const NOW_MS: u64 = 1_767_225_600_000;
/// The same, as objects say it.
pub const NOW: &str = "2026-01-01T00:00:00Z";
/// How long what is in doubt has been.
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
    // A nested macro can hold a path as one tree only.
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

/// One pass of a lifecycle or an identity policy. Unless its row says otherwise it does nothing and is settled.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the ids of edges begin with.
    prefix: &'static str,
    /// None while it is absent.
    object: Option<Value>,
    config: Value,
    /// The `create` that may be in doubt: operation and intent.
    creates: (&'static str, &'static str),
    in_doubt: Option<Resolution>,
    manifest: Option<Manifest>,
    grants: Vec<Need>,
    /// The other objects of the cluster.
    others: Vec<Value>,
    /// How requests begin, and what they are answered with: the first that fits.
    answers: Vec<(String, Result<Value, Failure>)>,
    /// Answers that few cases are about.
    usual: fn(&Request) -> Option<Result<Value, Failure>>,
    requests: Requests,
    notes: Vec<String>,
    patch: Value,
    events: Vec<&'static str>,
    verdict: Verdict,
    next: Next,
}

/// What a case says of the pass's requests, each as [`describe`] tells it.
#[derive(Clone, Debug)]
enum Requests {
    /// Its acts, in order.
    Acts(Vec<String>),
    /// Everything, step by step.
    Steps(Vec<Vec<String>>),
}

impl Case {
    /// A pass of this object. The ids of the policy's edges begin with `prefix`, which [`Case::notes`] leaves out.
    pub fn new(prefix: &'static str, object: Value) -> Self {
        Case {
            object: Some(object),
            ..Case::absent(prefix)
        }
    }

    /// A pass while there is no object.
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

    /// Runs the pass with a lifecycle policy that is given as its steps.
    pub fn run(&self, step: impl FnMut(Pass) -> Step) -> Ended {
        self.world().pass_with(step)
    }

    /// Runs the pass with an identity policy that is given as its steps.
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

    /// Requires that the pass did what the table says, and nothing else.
    ///
    /// # Panics
    /// If it did not.
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

    /// The patch and the reasons of the events without what the SDK itself says of a pass that failed, of which a row
    /// that does not mention it says nothing.
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

    /// Requires of an identity policy's pass that it did and judged what the table says, and nothing else.
    ///
    /// # Panics
    /// If it did not.
    pub fn check_judged(&self, (verdict, ended): &(Verdict, Ended)) {
        self.check(ended);
        assert_eq!(*verdict, self.verdict, "verdict");
    }

    /// The edges that the case says are taken.
    pub fn edges(&self) -> &[String] {
        &self.notes
    }

    /// The object of the pass; null while there is none.
    pub fn object(&self) -> &Value {
        self.object.as_ref().unwrap_or(&Value::Null)
    }

    /// The object is another one.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(self.object.as_mut().expect("there is an object"));
        self
    }

    /// The policy is configured so: fields beside those that it is configured with.
    #[must_use]
    pub fn config(mut self, fields: Value) -> Self {
        for (field, value) in fields.as_object().into_iter().flatten() {
            self.config[field] = value.clone();
        }
        self
    }

    /// What the policy declares: see [`World::manifest`].
    #[must_use]
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// What the binding grants beyond what the policy needs: see [`World::grants`].
    #[must_use]
    pub fn grants(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.grants.extend(needs);
        self
    }

    /// Which `create` is in doubt where [`Case::in_doubt`] says so.
    #[must_use]
    pub fn creates(mut self, operation: &'static str, intent: &'static str) -> Self {
        self.creates = (operation, intent);
        self
    }

    /// An earlier pass created, and did not hear the answer.
    #[must_use]
    pub fn in_doubt(mut self, state: Resolution) -> Self {
        self.in_doubt = Some(state);
        self
    }

    /// This object is in the cluster.
    #[must_use]
    pub fn exists(mut self, other: Value) -> Self {
        self.others.push(other);
        self
    }

    /// No object of this kind is in the cluster.
    #[must_use]
    pub fn without(mut self, kind: &str) -> Self {
        self.others.retain(|other| other["kind"] != kind);
        self
    }

    /// What requests are answered with of which the row says nothing.
    #[must_use]
    pub fn usually(mut self, usual: fn(&Request) -> Option<Result<Value, Failure>>) -> Self {
        self.usual = usual;
        self
    }

    /// The beginning of a request, in whole words, and what it is answered with: `vm.get`, `Node node-m`. What is said
    /// last counts.
    #[must_use]
    pub fn answers(self, request: &str, answer: Value) -> Self {
        self.responds(request, Ok(answer))
    }

    /// What a request with this beginning is answered with, if the row says so.
    pub fn answer_to(&self, request: &str) -> Option<&Value> {
        let mut answers = self.answers.iter();
        let (_, answer) = answers.find(|(begin, _)| begin == request)?;
        answer.as_ref().ok()
    }

    /// The beginning of a request and how it fails.
    #[must_use]
    pub fn fails(self, request: &str, code: Code) -> Self {
        self.responds(request, Err(Failure::new(code, "no")))
    }

    /// The beginning of a request for what is not there.
    #[must_use]
    pub fn lacks(self, request: &str) -> Self {
        self.fails(request, Code::NotFound)
    }

    /// The beginning of a request whose answer is lost.
    #[must_use]
    pub fn loses(self, request: &str) -> Self {
        let failure = Failure {
            effect: Effect::Unknown,
            ..Failure::new(Code::DeadlineExceeded, "no answer")
        };
        self.responds(request, Err(failure))
    }

    /// The beginning of a request and what it is answered with.
    #[must_use]
    pub fn responds(mut self, request: &str, answer: Result<Value, Failure>) -> Self {
        self.answers.insert(0, (request.to_owned(), answer));
        self
    }

    /// The acts that the pass makes: `vm.power-on {"id":"vm-1"}`.
    #[must_use]
    pub fn acts<const N: usize>(mut self, acts: [&str; N]) -> Self {
        self.requests = Requests::Acts(acts.map(str::to_owned).to_vec());
        self
    }

    /// The row says of every step what it requests, asks too.
    #[must_use]
    pub fn step_by_step(mut self) -> Self {
        self.requests = Requests::Steps(Vec::new());
        self
    }

    /// What the next step requests: `vm.get {"id":"vm-1"}`.
    ///
    /// # Panics
    /// If the row is not one that says so [step by step](Case::step_by_step).
    #[must_use]
    pub fn step<const N: usize>(mut self, requests: [&str; N]) -> Self {
        let Requests::Steps(steps) = &mut self.requests else {
            panic!("not step by step");
        };
        steps.push(requests.map(str::to_owned).to_vec());
        self
    }

    /// The edges that are taken, without what all ids begin with: `"02 04"`.
    #[must_use]
    pub fn notes(mut self, ids: &str) -> Self {
        let ids = ids.split_whitespace();
        self.notes = ids.map(|id| format!("{}{id}", self.prefix)).collect();
        self
    }

    /// The whole patch of the pass.
    #[must_use]
    pub fn patch(mut self, patch: Value) -> Self {
        self.patch = patch;
        self
    }

    /// The patch so far.
    pub fn patched(&mut self) -> &mut Value {
        &mut self.patch
    }

    /// The reason of an event.
    #[must_use]
    pub fn event(mut self, reason: &'static str) -> Self {
        self.events.push(reason);
        self
    }

    /// What an identity policy judges. The default is that it denies.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// When the policy wants to be called again.
    #[must_use]
    pub fn next(mut self, next: Next) -> Self {
        self.next = next;
        self
    }

    /// The pass fails.
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

/// What an edge that is no note derives from, where that is not another edge.
const HAPPENINGS: [&str; 6] = [
    "started",
    "published",
    "requeued",
    "failed",
    "succeeded",
    "concluded",
];

/// Requires that the table notes nothing but edges of the policy, and every edge that is a note; that others derive from
/// what there is; and that no edge is there twice.
///
/// # Panics
/// If it is not so.
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

/// The first try of this class, without a failure: what a retry policy is asked.
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

    /// What the policy is asked.
    pub fn request(&self) -> RetryRequest {
        self.request.clone()
    }

    /// Requires that the policy waits as long as the table says.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, wait: Wait) {
        assert_eq!(wait, self.wait, "milliseconds for {:?}", self.request);
    }

    /// The failure of the pass.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.request.failure = Some(Failure::new(code, "said the other side"));
        self
    }

    /// The policy is configured so.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.request.config = config.to_string();
        self
    }

    /// Tries before this one.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.request.attempt = attempt;
        self
    }

    /// The host's draw.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.request.seed = seed;
        self
    }

    /// How long the policy waits; milliseconds.
    #[must_use]
    pub fn waits(mut self, ms: u64) -> Self {
        self.wait = Wait::After(ms);
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
