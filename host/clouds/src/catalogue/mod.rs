//! What clouds can do: their services and the operations of each, defined once.
//!
//! A simulation and a driver of a real cloud publish the same operations, so that one policy runs on both. Where an
//! operation creates something, the cloud says how long it may take until everybody sees what was created
//! (`visible_within`).

pub mod cluster;
mod credential;
pub mod machine;
pub mod node;
pub mod pool;
pub mod router;
pub mod task;
pub mod vm;

use polity_core::catalogue::{Operation, OperationEffect};
use serde_json::{Value, json};

pub use credential::plan as credential_plan;

/// Milliseconds after which a call is cut: what the design allows at most.
pub const LONGEST: u64 = 5_000;

/// An operation and its name.
pub type Named = (&'static str, Operation);

fn read(name: &'static str, description: &str, arguments: Value, answer: Value) -> Named {
    (
        name,
        operation(description, OperationEffect::Read, arguments, answer, 0),
    )
}

/// A change that answers nothing.
fn change(name: &'static str, description: &str, arguments: Value, sealed: &[&str]) -> Named {
    let operation = operation(
        description,
        OperationEffect::Change,
        arguments,
        fields(json!({}), &[]),
        0,
    );
    let operation = Operation {
        sealed: owned(sealed),
        ..operation
    };
    (name, operation)
}

/// A change that answers a task.
fn task(name: &'static str, description: &str, arguments: Value) -> Named {
    let operation = operation(description, OperationEffect::Change, arguments, started(), 0);
    (name, operation)
}

/// What answers who begins a task.
fn started() -> Value {
    fields(json!({"task": text()}), &["task"])
}

/// Makes something, whose name is the intent.
fn create(
    name: &'static str,
    description: &str,
    arguments: Value,
    answer: Value,
    visible_within: u64,
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

/// The operations of a service, which say whose they are. Its name ends in its major version: an operation of another one
/// may mean something else.
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
    visible_within: u64,
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

/// A reference to a value that policies do not see.
fn sealed() -> Value {
    let place = fields(json!({"name": name(), "key": name()}), &["name", "key"]);
    fields(json!({"$secret": place}), &["$secret"])
}

fn id() -> Value {
    fields(json!({"id": name()}), &["id"])
}

/// What a machine of a pool is for.
fn tier() -> Value {
    json!({"enum": ["control-plane", "worker"]})
}

/// A power state.
fn power() -> Value {
    json!({"enum": ["on", "off", "suspended"]})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1})
}
