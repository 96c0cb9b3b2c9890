//! The services of clouds and their operations, each defined once.
//!
//! A simulation and a driver of a real cloud publish the same operations, so one policy runs on both. For an
//! operation that creates something, the cloud also states how long it may take until every look sees the
//! created object (`visible_within`).

pub mod cluster;
mod credential;
pub mod machine;
pub mod node;
pub mod pool;
mod reads;
mod refusals;
pub mod router;
mod sealed;
pub mod task;
pub mod vm;

use std::time::Duration;

use polity_core::catalogue::{Operation, OperationEffect};
use serde_json::{Value, json};

pub(crate) use credential::is_secret;
pub use credential::plan as credential_plan;
pub use reads::{ReadRequest, Reads, check_service, reads};
pub use refusals::check_refusals;
pub use sealed::{LARGEST_SEALED, SealedPlace, largest_sealed, sealed_places};

/// The time after which a call is cut. The design allows no more.
pub const LONGEST: Duration = Duration::from_secs(5);

/// The `visible_within` of an operation that creates nothing.
const SEEN_AT_ONCE: Duration = Duration::ZERO;

/// An operation and its name.
pub type Named = (&'static str, Operation);

fn read(name: &'static str, description: &str, arguments: Value, answer: Value) -> Named {
    (
        name,
        operation(
            description,
            OperationEffect::Read,
            arguments,
            answer,
            SEEN_AT_ONCE,
        ),
    )
}

/// A change without an answer.
fn change(name: &'static str, description: &str, arguments: Value, sealed: &[&str]) -> Named {
    let operation = operation(
        description,
        OperationEffect::Change,
        arguments,
        fields(json!({}), &[]),
        SEEN_AT_ONCE,
    );
    let operation = Operation {
        sealed: owned(sealed),
        ..operation
    };
    (name, operation)
}

/// A change that answers a task.
fn task(name: &'static str, description: &str, arguments: Value) -> Named {
    let operation = operation(
        description,
        OperationEffect::Change,
        arguments,
        started(),
        SEEN_AT_ONCE,
    );
    (name, operation)
}

/// The schema of the answer that names a task.
fn started() -> Value {
    fields(json!({"task": text()}), &["task"])
}

/// An operation that creates something. The intent is its name.
fn create(
    name: &'static str,
    description: &str,
    arguments: Value,
    answer: Value,
    visible_within: Duration,
    sealed: &[&str],
) -> Named {
    let operation = operation(
        description,
        OperationEffect::Create,
        arguments,
        answer,
        visible_within,
    );
    let operation = Operation {
        intent: Some("name".to_owned()),
        sealed: owned(sealed),
        ..operation
    };
    (name, operation)
}

/// The operations of a service, each marked with the service. The name of a service ends in its major version,
/// because an operation of another version may mean something else.
fn of(service: &str, operations: impl IntoIterator<Item = Named>) -> Vec<Named> {
    let own = |(name, operation): Named| {
        let service = service.to_owned();
        (name, Operation { service, ..operation })
    };
    operations.into_iter().map(own).collect()
}

fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// A change of a machine that answers a task.
fn on_machine(name_of_it: &'static str, description: &str, mut arguments: Value, required: &[&str]) -> Named {
    arguments["machine"] = name();
    let required: Vec<&str> = required.iter().copied().chain(["machine"]).collect();
    let arguments = fields(arguments, &required);
    task(name_of_it, description, arguments)
}

fn operation(
    description: &str,
    effect: OperationEffect,
    arguments: Value,
    answer: Value,
    visible_within: Duration,
) -> Operation {
    let description = description.to_owned();
    Operation {
        description,
        service: String::new(),
        effect,
        arguments,
        answer,
        longest: LONGEST,
        visible_within,
        intent: None,
        sealed: Vec::new(),
    }
}

fn fields(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The schema of a reference to a value that policies do not see.
fn sealed() -> Value {
    let place = fields(json!({"name": name(), "key": name()}), &["name", "key"]);
    fields(json!({"$secret": place}), &["$secret"])
}

fn id() -> Value {
    fields(json!({"id": name()}), &["id"])
}

/// The schema of the tier of a pool's machine.
fn tier() -> Value {
    json!({"enum": ["control-plane", "worker"]})
}

/// The schema of a power state.
fn power() -> Value {
    json!({"enum": ["on", "off", "suspended"]})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1})
}
