//! The situations that the seeds are meant to reach. A simulation finds no error in a situation that it never reaches.

use polity_core::contract::{Act, Code, Question, Request, Verdict};
use polity_core::object::Object;
use polity_core::record::{Outcome, PassRecord};
use serde_json::Value;

use crate::simulation::store::Change;

/// What a pass reached.
pub(super) fn by(record: &PassRecord) -> Vec<&'static str> {
    let mut reached = vec![match &record.outcome {
        Outcome::Published => "a pass was published",
        Outcome::Denied => "a pass was denied",
        Outcome::Released => "an object was released",
        Outcome::Discarded(_) => "a pass was discarded",
        Outcome::Faulted => "a pass faulted",
        Outcome::Failed(_) => "a publication failed",
        Outcome::LeaseLost => "the lease was lost in a pass",
        Outcome::Stopped => "a host stopped in a pass",
        Outcome::Bug(_) => "the host met a defect of its own",
    }];
    reached.extend(record.retry.iter().map(|_| "a retry policy decided"));
    for role in &record.roles {
        if matches!(role.verdict, Some(Verdict::Granted(_))) {
            reached.push("an identity was granted");
        }
        let answers = role
            .journal
            .iter()
            .map(|entry| (&entry.request, entry.answer.as_ref()));
        reached.extend(answers.filter_map(|(request, answer)| match (request, answer) {
            (Request::Ask(ask), answer) => asked(&ask.question, answer.map_err(|failure| failure.code)),
            (Request::Act(act), Ok(_)) => Some(done(act)),
            (Request::Act(_), Err(failure)) => refused(failure.code),
        }));
    }
    reached
}

fn asked(question: &Question, answer: Result<&polity_core::contract::Json, Code>) -> Option<&'static str> {
    Some(match (question, answer) {
        (Question::Lock(_), Ok(answer)) if **answer == *"\"busy\"" => "a lock was busy",
        (Question::Objects(query), Ok(_)) if query.latest => "a list was read through",
        (Question::Objects(query), Ok(_)) if query.label_selector.is_some() => "a list was selected by label",
        (Question::Objects(query), Ok(_)) if query.field_selector.is_some() => "a list was selected by field",
        (Question::Objects(_), Err(Code::ResourceExhausted)) => "a list was longer than its limit",
        (_, Err(Code::Unavailable)) => "a watch could not say",
        _ => return None,
    })
}

fn done(act: &Act) -> &'static str {
    match act {
        Act::Cloud(_) => "an act in a cloud was done",
        Act::Create(_) => "an object was made",
        Act::Patch(_) => "an object was patched",
        Act::Delete(_) => "an object was deleted",
        Act::Evict(_) => "a Pod was evicted",
        Act::Mint(_) => "a token was minted",
        Act::Revoke(_) => "a token was revoked",
    }
}

fn refused(code: Code) -> Option<&'static str> {
    match code {
        Code::PermissionDenied => Some("an act was refused that is not granted"),
        Code::Aborted => Some("an act came too late"),
        _ => None,
    }
}

/// What a write did whose answer is lost.
pub(super) fn lost(change: &Change) -> &'static str {
    let length = |object: &Option<Object>, path: &str| {
        let stands = object.as_ref().and_then(|object| object.at(path));
        stands.as_ref().and_then(Value::as_array).map_or(0, Vec::len)
    };
    let grows = |path: &str| length(&change.after, path).cmp(&length(&change.before, path));
    let status = |object: &Option<Object>| object.as_ref().and_then(|object| object.at("status"));
    let (finalizers, pending) = ("metadata.finalizers", "status.pending");
    if change.before.is_none() {
        "the answer to a creation was lost"
    } else if change.after.is_none() || grows(finalizers).is_lt() {
        "the answer to the end of a finalizer was lost"
    } else if grows(finalizers).is_gt() {
        "the answer to a finalizer was lost"
    } else if grows(pending).is_gt() {
        "the answer to an entry was lost"
    } else if status(&change.before) != status(&change.after) {
        "the answer to a publication of a status was lost"
    } else if change.place.0 == "ConfigMap" {
        "the answer to a patch of another object was lost"
    } else {
        "the answer to a publication of metadata was lost"
    }
}
