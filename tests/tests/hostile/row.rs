//! A row of the table: one hostile behaviour, and the expected result.

use std::ops::RangeInclusive;

use polity_core::contract::Code;
use polity_core::fault::FaultKind;
use serde_json::{Value, json};

/// One behaviour of a lifecycle or identity policy with one object.
pub(crate) struct Row {
    /// A sentence of what it does; the name of its object is made of it.
    pub(crate) name: String,
    /// How the object stands when the policy does it.
    pub(crate) before: Before,
    /// What the policy says: a step, or several one after another; see `tests/hostile/verbatim/said.rs`.
    pub(crate) says: Value,
    /// What must come of it.
    pub(crate) expect: Expect,
}

/// How an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// New.
    New,
    /// With a pending entry of a create that nobody can tell anything of yet.
    Pending,
    /// With a condition of the host, because its policy panicked before.
    Quarantined,
    /// Being deleted.
    Deleting,
}

/// What must come of a behaviour, beside that nobody else notices and that nothing of the host's is changed.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// The pass ends in a fault of one of these kinds, and its object is quarantined.
    Faulted(&'static [FaultKind]),
    /// The last request is answered with a failure of one of these codes.
    Refused(&'static [Code]),
    /// The last request is answered, and not with a failure.
    Answered,
    /// The conclusion is published.
    Published,
    /// Nothing of the conclusion is published: a fault, or the API server refuses.
    NotTaken,
    /// The pass ends, however.
    Ends,
    /// The identity is denied, and the lifecycle is not asked.
    Denied,
    /// The conclusion is published, and so many passes are as many as it gets while the table is played.
    Paced(usize),
}

/// A failure that says what is wrong with a request.
pub(crate) const WRONG: Expect =
    Expect::Refused(&[Code::InvalidArgument, Code::OutOfRange, Code::ResourceExhausted]);
/// A failure that says that it is not granted.
pub(crate) const UNGRANTED: Expect = Expect::Refused(&[Code::PermissionDenied]);
/// A failure of either sort.
pub(crate) const WRONG_OR_UNGRANTED: Expect = Expect::Refused(&[
    Code::InvalidArgument,
    Code::OutOfRange,
    Code::ResourceExhausted,
    Code::PermissionDenied,
    Code::FailedPrecondition,
]);
/// Any failure.
pub(crate) const REFUSED: Expect = Expect::Refused(&[]);
/// A fault for what it returned.
pub(crate) const BAD_OUTPUT: Expect = Expect::Faulted(&[FaultKind::BadOutput]);

/// A row of a new object.
pub(crate) fn row(name: impl Into<String>, says: Value, expect: Expect) -> Row {
    Row {
        name: name.into(),
        before: Before::New,
        says,
        expect,
    }
}

impl Row {
    /// The same behaviour with an object that stands otherwise.
    pub(crate) fn with(self, before: Before) -> Row {
        Row { before, ..self }
    }

    /// The name of its object.
    pub(crate) fn object(&self) -> String {
        let words = self.name.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let mut name = words.join("-").to_ascii_lowercase();
        name.truncate(48);
        // Rows differ in what no name may hold.
        let mix = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
        format!("{name}-{:x}", self.name.bytes().fold(7, mix))
    }
}

/// One behaviour of a retry policy.
pub(crate) struct Wait {
    /// A word for it: also the namespace and name of its object.
    pub(crate) name: &'static str,
    /// What the policy says.
    pub(crate) says: Value,
    /// How long the object waits, in milliseconds.
    pub(crate) waits: RangeInclusive<u64>,
    /// How the retry policy broke its contract, if it did.
    pub(crate) fault: Option<FaultKind>,
}

/// A conclusion with this patch, as text.
pub(crate) fn patch(text: impl Into<String>) -> Value {
    json!({"Concluded": {"patch": text.into()}})
}

/// A conclusion that is the usual one but for these fields.
pub(crate) fn concludes(fields: Value) -> Value {
    json!({"Concluded": fields})
}

/// These requests in one step, then a usual conclusion.
pub(crate) fn requests(requests: Value) -> Value {
    json!([{"Pending": requests}, {"Concluded": {}}])
}

/// One act, then a usual conclusion.
pub(crate) fn act(act: Value) -> Value {
    requests(json!([{"Act": act}]))
}

/// One ask, then a usual conclusion.
pub(crate) fn ask(question: Value) -> Value {
    requests(json!([asking(question)]))
}

/// A request that asks in the first round.
pub(crate) fn asking(question: Value) -> Value {
    json!({"Ask": {"round": 0, "question": question}})
}

/// Names an object.
pub(crate) fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    json!({"api_version": api_version, "kind": kind, "namespace": namespace, "name": name})
}

/// A question about an object.
pub(crate) fn looks_at(object: &Value) -> Value {
    json!({"Object": {"object": object, "projection": [], "latest": true}})
}

/// A look at an object, then a patch of it as it stands, then a usual conclusion.
pub(crate) fn patches(object: &Value, subresource: Option<&str>, patch: &str) -> Value {
    let precondition = json!({"uid": {"$answer": [0, "metadata.uid"]}, "resource_version": null});
    let act = json!({"Act": {"Patch": {"object": object, "precondition": precondition, "subresource": subresource,
        "patch": patch}}});
    json!([{"Pending": [asking(looks_at(object))]}, {"Pending": [act]}, {"Concluded": {}}])
}
