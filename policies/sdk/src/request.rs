//! Typed requests.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::{self, Code, Failure};

/// A typed question. It is asked by [`Context::ask`](crate::Context::ask).
pub trait Ask {
    /// The type of the answer.
    type Answer;

    /// The question in the contract's form. `home` is the primary's namespace, in which a namespaced kind is
    /// looked for unless the question names another one.
    fn question(self, home: Option<&str>) -> contract::Question;

    /// Reads the answer's JSON.
    fn read(json: &str) -> Result<Self::Answer, Failure>;
}

/// A typed act. It is performed by [`Context::act`](crate::Context::act).
pub trait Act {
    /// The type of the answer.
    type Answer;

    /// The act in the contract's form; `home` as in [`Ask::question`].
    fn act(self, home: Option<&str>) -> contract::Act;

    /// Reads the answer's JSON.
    fn read(json: &str) -> Result<Self::Answer, Failure>;
}

/// A question in the contract's form, answered as JSON.
impl Ask for contract::Question {
    type Answer = Value;

    fn question(self, _: Option<&str>) -> contract::Question {
        self
    }

    fn read(json: &str) -> Result<Value, Failure> {
        read(json)
    }
}

/// An act in the contract's form, answered as JSON.
impl Act for contract::Act {
    type Answer = Value;

    fn act(self, _: Option<&str>) -> contract::Act {
        self
    }

    fn read(json: &str) -> Result<Value, Failure> {
        read(json)
    }
}

/// Reads an answer. An answer of an unexpected form is a mistake of the other side: `internal`.
pub(crate) fn read<A: DeserializeOwned>(json: &str) -> Result<A, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::new(
            Code::Internal,
            format!("the answer is not what this policy expects: {error}"),
        )
    })
}

/// Writes arguments as JSON. Types of requests always have a JSON form; if one has none, that is a mistake in
/// the policy.
pub(crate) fn write<A: serde::Serialize + ?Sized>(arguments: &A) -> String {
    serde_json::to_string(arguments).expect("the arguments of a request have a JSON form")
}
