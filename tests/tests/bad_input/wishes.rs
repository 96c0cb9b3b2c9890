//! A policy that makes the requests of a test, and the answers that it gets.

use polity_core::contract::{Answer, Code};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_fixture::{HostFixture, thing, things};
use serde_json::{Value, json};

/// Governs Things by a policy that makes their wishes, with these grants and the simulated cloud.
pub(crate) fn granting(grants: Value) -> Value {
    let mut binding = things();
    binding["spec"]["grants"] = grants;
    binding["spec"]["cloud"] = json!({"name": "sim"});
    binding
}

/// A namespace.
pub(crate) async fn namespace(fixture: &HostFixture, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    fixture.apply(&namespace).await;
}

/// A Thing with these wishes.
pub(crate) fn wishing(name: &str, wishes: &Value) -> Value {
    let mut thing = thing(name, "wish");
    thing["metadata"]["annotations"]["wishes"] = wishes.to_string().into();
    thing
}

/// What a new Thing of this name was answered to its wishes, in their order.
pub(crate) async fn wish(fixture: &HostFixture, name: &str, wishes: Value) -> Vec<Answer> {
    fixture.apply(&wishing(name, &wishes)).await;
    let pass = fixture.until_passed(name, 0, &Outcome::Published).await;
    let answers = answers(&pass);
    assert_eq!(
        answers.len(),
        wishes.as_array().map_or(0, Vec::len),
        "each wish has its own answer: {answers:?}"
    );
    answers
}

/// What the first role of a pass was answered.
pub(crate) fn answers(pass: &PassRecord) -> Vec<Answer> {
    let read = |json: &str| serde_json::from_str(json).expect("an answer is JSON");
    let journal = pass.roles[0].journal.iter();
    journal
        .map(|entry| entry.answer.clone().map(|json| read(&json)))
        .collect()
}

/// The code of each answer; none where it is no failure.
pub(crate) fn codes(answers: &[Answer]) -> Vec<Option<Code>> {
    answers
        .iter()
        .map(|answer| answer.as_ref().err().map(|failure| failure.code))
        .collect()
}

/// All of them were refused, with these words.
pub(crate) fn all_refused(answers: &[Answer], words: &str) {
    for answer in answers {
        match answer {
            Err(failure) => assert!(
                failure.code == Code::PermissionDenied && failure.message.contains(words),
                "{failure}"
            ),
            Ok(answer) => panic!("answered: {answer}"),
        }
    }
}
