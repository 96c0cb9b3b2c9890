//! A tenant with thousands of machines.

use std::time::Duration;

use polity_core::call::{CloudRequest, Session};
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::fixture::*;
use crate::scenarios::scenarios;

scenarios! {
    of_five_thousand_instances_of_a_tenant_five_hundred_machines_are_released,
}

/// The instances of the tenant, and those whose machines are deleted.
const ALL: usize = 5_000;
const DELETED: usize = 500;
/// About so many instances fit into an answer of 16 MiB of EC2, which a list may have.
const LONGEST: usize = 1_600;

/// Another machine of the tenant, in the cloud alone.
fn instance(number: usize) -> CloudRequest {
    let name = format!("other-{number}");
    CloudRequest {
        session: Session {
            cloud: "sim".to_owned(),
            handle: None,
            owner: format!("uid-{name}"),
            tenant: "default".to_owned(),
            tenant_queue: "".into(),
            namespace: Some("default".to_owned()),
        },
        operation: "machine.create".to_owned(),
        arguments: json!({"name": name}),
        key: Some(format!("key-{name}")),
    }
}

/// Waits until this holds of the machines.
async fn until_all(story: &Story, holds: impl Fn(&[Value]) -> bool) -> std::sync::Arc<Vec<Value>> {
    for _ in 0..3_600 {
        let machines = story.site.list(mcm::MCM, "Machine").await;
        if holds(&machines) {
            return machines;
        }
        story.sleep(Duration::from_secs(1)).await;
    }
    panic!("it never holds of the machines");
}

async fn of_five_thousand_instances_of_a_tenant_five_hundred_machines_are_released(on: &dyn Backend) {
    let never = json!({"operation": "machine.create", "then": "neverJoins"});
    let overrides = json!({"faults": [never], "machines": {"longestList": LONGEST}});
    let story = begin(on, overrides, json!({})).await;
    for number in 0..ALL - DELETED {
        let made = story
            .site
            .inspect(|sim, now| sim.perform(now, &instance(number)).answer);
        assert!(matches!(made, Some(Ok(_))), "{made:?}");
    }
    for number in 0..DELETED {
        story.create(&mcm::machine(&format!("m-{number}"))).await;
    }
    until_all(&story, |machines| {
        machines.len() == DELETED && machines.iter().all(has_vm)
    })
    .await;
    assert_eq!(story.site.vms().len(), ALL);
    for number in 0..DELETED {
        let machine = reference(mcm::MCM, "Machine", Some("default"), &format!("m-{number}"));
        story.site.delete(&machine, None).await.expect("it is there");
    }
    until_all(&story, <[Value]>::is_empty).await;
    assert_eq!(story.site.vms().len(), ALL - DELETED);
}
