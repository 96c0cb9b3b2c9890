//! A pass that fails is seen on its object, until one does not.

use polity_sdk::cloud::vm;
use polity_sdk::prelude::*;
use polity_sdk::test::World;
use polity_sdk::{ConditionStatus, RECONCILE_FAILED, RECONCILED};
use serde_json::{Value, json};

/// A lamp whose conditions tell of its passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Lamp {
    metadata: Metadata,
    #[serde(default)]
    status: LampStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct LampStatus {
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    conditions: Conditions,
}

impl Kind for Lamp {
    const API_VERSION: &'static str = "example.com/v1";
    const KIND: &'static str = "Lamp";
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        Some(&mut self.status.conditions)
    }
}

type Cx = Context<Lamp>;

fn world() -> World {
    World::new(json!({
        "apiVersion": "example.com/v1", "kind": "Lamp",
        "metadata": {"name": "l", "namespace": "home", "uid": "u-1"},
    }))
}

/// A policy whose every failure to look ends its pass.
async fn look(cx: Cx) -> Result<Next, Failure> {
    cx.ask(vm::power("vm-1")).await?;
    Ok(Next::settled())
}

fn reported(patch: &Option<Value>) -> Value {
    patch
        .as_ref()
        .map_or(Value::Null, |patch| patch["status"]["conditions"][0].clone())
}

#[test]
fn a_look_that_fails_is_written_once_and_healed_by_the_first_that_does_not() {
    let mut world = world();
    world.fails(
        vm::power("vm-1"),
        Failure::new(Code::Unavailable, "vCenter is away"),
    );
    let first = world.pass(look);
    assert_eq!(
        reported(&first.patch),
        json!({
            "type": RECONCILED, "status": "False", "reason": "Unavailable", "message": "vCenter is away",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    );
    assert_eq!(first.events.len(), 1);
    assert_eq!(first.events[0].reason, RECONCILE_FAILED);
    assert_eq!(first.events[0].message, "unavailable: vCenter is away");

    world.fails(
        vm::power("vm-1"),
        Failure::new(Code::Unavailable, "vCenter is away, request 2"),
    );
    let second = world.pass(look);
    assert_eq!((second.patch, second.events), (None, Vec::new()));

    world.answers(vm::power("vm-1"), json!({"state": "on"}));
    let healed = world.pass(look);
    assert_eq!(reported(&healed.patch)["status"], json!("True"));
    let quiet = world.pass(look);
    assert_eq!(quiet.patch, None);
}

#[test]
fn a_failure_that_the_policy_returns_is_one_as_well_and_its_own_words_come_first() {
    async fn refuse(cx: Cx) -> Result<Next, Failure> {
        cx.event(EventType::Warning, "NotAccepted", "no");
        let mut lamp = cx.object_mut();
        lamp.status
            .conditions
            .set(cx.now(), "Lit", ConditionStatus::False, "NotAccepted", "no");
        Ok(Next::failed(
            RetryClass::Long,
            Failure::new(Code::PermissionDenied, "no"),
        ))
    }
    let end = world().pass(refuse);
    let reasons: Vec<&str> = end.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["NotAccepted"]);
    let conditions = &end.patch.unwrap()["status"]["conditions"];
    assert_eq!(conditions[1]["type"], RECONCILED);
    assert_eq!(conditions[1]["reason"], "PermissionDenied");
}

#[test]
fn a_wait_without_a_failure_is_none() {
    async fn wait(_: Cx) -> Result<Next, Failure> {
        Ok(Next::retry(RetryClass::Short))
    }
    let end = world().pass(wait);
    assert_eq!((end.patch, end.events), (None, Vec::new()));
}
