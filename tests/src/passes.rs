//! Functions that read a recorded pass: its edges, its calls of clouds, and its session.

use polity_core::contract::{Act, Entry, Question, Request, Role};
use polity_core::record::PassRecord;
use serde_json::Value;

/// The edges of one specification that a pass took, without its prefix: `01 02 N2` of `CAPA-`.
pub fn edges_of(pass: &PassRecord, prefix: &str) -> String {
    let own = pass.notes().filter_map(|id| id.strip_prefix(prefix));
    own.collect::<Vec<_>>().join(" ")
}

/// The passes that `explain -o json` shows.
///
/// # Panics
/// If a line is neither a pass nor what the object waits for.
pub fn explained(json: &str) -> Vec<PassRecord> {
    let lines = json.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    // What the object waits for has a line, too, and is no pass.
    let passes = lines.filter(|line: &Value| line.get("waiting").is_none());
    passes
        .map(|pass| serde_json::from_value(pass).expect("a pass"))
        .collect()
}

/// What it asked of the cloud or did to it; a question for credentials is `credential`.
pub fn calls(pass: &PassRecord) -> Vec<String> {
    let call = |entry: &Entry| match &entry.request {
        Request::Ask(ask) => match &ask.question {
            Question::Cloud(call) => Some(call.operation.clone()),
            Question::Credential(_) => Some("credential".to_owned()),
            Question::Reachable(_) => None,
            _ => None,
        },
        Request::Act(Act::Cloud(act)) => Some(act.operation.clone()),
        Request::Act(_) => None,
    };
    entries(pass).filter_map(call).collect()
}

/// The session that it was answered: `{handle, reused, attributes}`; null if none.
///
/// # Panics
/// If the answer is not JSON.
pub fn session(pass: &PassRecord) -> Value {
    let answer = entries(pass).find_map(|entry| match &entry.request {
        Request::Ask(ask) if matches!(ask.question, Question::Credential(_)) => entry.answer.as_ref().ok(),
        _ => None,
    });
    answer.map_or(Value::Null, |json| serde_json::from_str(json).expect("JSON"))
}

/// Whether its lifecycle policy was asked at all.
pub fn lifecycle_ran(pass: &PassRecord) -> bool {
    pass.roles.iter().any(|role| role.role == Role::Lifecycle)
}

fn entries(pass: &PassRecord) -> impl Iterator<Item = &Entry> {
    pass.roles.iter().flat_map(|role| &role.journal)
}
