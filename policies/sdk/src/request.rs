//! What a typed request is.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::{self, Code, Failure};

/// A typed question. Making one asks nothing; [`Context::ask`](crate::Context::ask) does.
pub trait Ask {
    /// What the answer is read as.
    type Answer;

    /// The question on the wire. `home` is the primary's namespace: what a namespaced kind is asked for in
    /// when nothing else was said.
    fn question(self, home: Option<&str>) -> contract::Question;

    /// Reads the answer's JSON.
    fn read(json: &str) -> Result<Self::Answer, Failure>;
}

/// A typed thing to do. Making one does nothing; [`Context::act`](crate::Context::act) does.
pub trait Act {
    /// What the answer is read as.
    type Answer;

    /// The act on the wire; `home` as in [`Ask::question`].
    fn act(self, home: Option<&str>) -> contract::Act;

    /// Reads the answer's JSON.
    fn read(json: &str) -> Result<Self::Answer, Failure>;
}

/// A question in the contract's own words, answered as JSON.
impl Ask for contract::Question {
    type Answer = Value;

    fn question(self, _: Option<&str>) -> contract::Question {
        self
    }

    fn read(json: &str) -> Result<Value, Failure> {
        read(json)
    }
}

/// An act in the contract's own words, answered as JSON.
impl Act for contract::Act {
    type Answer = Value;

    fn act(self, _: Option<&str>) -> contract::Act {
        self
    }

    fn read(json: &str) -> Result<Value, Failure> {
        read(json)
    }
}

/// Reads an answer. One that is not what the policy expects is the other side's mistake: `internal`.
pub(crate) fn read<A: DeserializeOwned>(json: &str) -> Result<A, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::new(
            Code::Internal,
            format!("the answer is not what this policy expects: {error}"),
        )
    })
}

/// Writes arguments. Types of requests always have a JSON form; one that has none is a mistake in the policy.
pub(crate) fn write<A: serde::Serialize + ?Sized>(arguments: &A) -> String {
    serde_json::to_string(arguments).expect("the arguments of a request have a JSON form")
}
