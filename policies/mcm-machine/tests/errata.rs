//! One test for each mistake of the drawing, (f) 1 to 14 of the specification: what the literal reading would do, and
//! that the policy does not.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod garden;

use garden::{Garden, Story, failure};
use polity_sdk::{Code, Next, RetryClass};
use serde_json::json;

fn deleting(garden: &Garden) -> Story {
    let mut story = garden.plant("m").running();
    story.world.delete();
    story.pass();
    story
}

/// Literally, a machine that has its finalizer waits at the short period and nothing else: it is never made.
#[test]
fn erratum_01_a_machine_with_its_finalizer_is_made() {
    let garden = Garden::new();
    let mut story = garden.plant("m");
    story
        .world
        .edit(json!({"metadata": {"finalizers": ["mcm.polity.dev/machine"]}}));
    assert_eq!(story.step(), "R14 C04 C06 C10 Short");
    // And literally, one without goes on in the same pass: a crash would leave a VM that nothing holds.
    let mut bare = garden.plant("n");
    assert_eq!(bare.step(), "R10 R12 Short");
    assert_eq!(garden.driver().changes, ["machine.create m"]);
}

/// Literally, there is a step named `Ok` between the machine and its class.
#[test]
fn erratum_02_a_valid_machine_leads_to_its_class_at_once() {
    let garden = Garden::new();
    let ended = garden.plant("m").pass();
    assert_eq!(ended.notes[..3], ["MCM-R02", "MCM-R03", "MCM-R06"]);
}

/// Literally, nothing leads to the deletion of the VM, of the node and of the finalizer: the machine stays for ever.
#[test]
fn erratum_03_the_steps_without_an_arrow_are_taken() {
    let garden = Garden::new();
    let mut story = deleting(&garden);
    let told = story.settle().join(" ");
    for id in ["X20", "X30", "X40"] {
        assert!(told.contains(id), "{id}");
    }
    assert!(story.world.object().is_none());
}

/// Literally, an unknown step and any other code lead nowhere.
#[test]
fn erratum_04_what_the_drawing_has_no_arrow_for_has_a_default() {
    let garden = Garden::new();
    let mut story = deleting(&garden);
    garden
        .driver()
        .instead
        .push(("machine.status", failure(Code::PermissionDenied)));
    assert_eq!(story.step(), "D09 D12 D13 D15 D16 D17 X01 Medium");
    story
        .world
        .edit(json!({"status": {"lastOperation": {"nextOp": null}}}));
    assert_eq!(story.step(), "X50 Short");
    story.settle();
    assert!(story.world.object().is_none());
}

/// The drawing says Processing, the code Failed; and the drawing's op is one that no step knows.
#[test]
fn erratum_05_a_failed_decoding_is_processing_and_starts_again() {
    for (config, state) in [
        (json!({}), "Processing"),
        (json!({"decodeFailureIsFailed": true}), "Failed"),
    ] {
        let garden = Garden::new();
        let mut story = garden.plant_with("m", config).running();
        story.world.delete();
        story.pass();
        garden
            .driver()
            .instead
            .push(("machine.status", Ok("[]".to_owned())));
        story.pass();
        assert_eq!(story.world.status()["lastOperation"]["state"], state);
        assert_eq!(story.step(), "X50 Short");
        assert_eq!(story.world.status()["lastOperation"]["nextOp"], "GetVMStatus");
    }
}

/// The drawing goes past a VM that is gone; whoever wants leftovers cleaned up says so.
#[test]
fn erratum_06_a_vm_that_is_gone_is_deleted_only_where_the_binding_says_so() {
    for (config, deleted) in [(json!({}), 0), (json!({"notFoundStillDeletes": true}), 1)] {
        let garden = Garden::new();
        let mut story = garden.plant_with("m", config).running();
        garden.driver().vms.clear();
        story.world.delete();
        story.settle();
        let changes = &garden.driver().changes;
        let deletions = changes.iter().filter(|change| *change == "machine.delete m");
        assert_eq!(deletions.count(), deleted);
    }
}

/// Literally, the short period stands whatever became of a write. The status is the host's to write, which says
/// `conflict` itself; of a write to the node the policy says it.
#[test]
fn erratum_07_a_conflict_is_tried_again_at_once() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    story
        .world
        .edit(json!({"spec": {"nodeTemplate": {"metadata": {"labels": {"new": "x"}}}}}));
    let meanwhile = garden.cluster.clone();
    // Somebody else writes between the look and the act.
    story.world.responds(move |request| {
        if polity_sdk::test::describe(request).starts_with("patch Node") {
            meanwhile.edit("Node", "node-m", json!({"metadata": {"labels": {"theirs": "y"}}}));
        }
        None
    });
    let ended = story.pass();
    let Next::Retry(retry) = &ended.next else {
        panic!("{}", ended.next)
    };
    assert_eq!(retry.class, RetryClass::Conflict);
}

/// Literally, the first constant that occurs in the description is the next step: a failure's text could name one.
#[test]
fn erratum_08_the_description_is_for_people() {
    let garden = Garden::new();
    let mut story = deleting(&garden);
    let text = "InitiateFinalizerRemoval, said the cloud";
    story
        .world
        .edit(json!({"status": {"lastOperation": {"description": text}}}));
    assert_eq!(story.step(), "D09 D12 D13 D14 D24 D26 Short");
}

/// Literally, `status.node` is the link. It is a mirror: a label that was lost or changed is put right.
#[test]
fn erratum_09_the_label_is_the_link_and_the_status_mirrors_it() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    assert_eq!(story.world.status()["node"], "node-m");
    for other in [json!(null), json!("node-of-somebody-else")] {
        story.world.edit(json!({"metadata": {"labels": {"node": other}}}));
        assert_eq!(story.step(), "R14 C02 C10 Short");
        assert_eq!(story.object()["metadata"]["labels"]["node"], "node-m");
    }
    assert_eq!(story.settle().last().unwrap(), "R13 H13 R15 S08 R16 settled");
}

/// Literally, a machine with a node never comes back to its creation.
#[test]
fn erratum_10_a_creation_that_is_not_finished_is_finished() {
    let garden = Garden::new();
    let mut story = garden.plant("m").running();
    story.world.edit(json!({"status": {"providerID": null}}));
    assert_eq!(story.step(), "R14 C02 C10 Short");
    assert_eq!(story.world.status()["providerID"], "sim:///vm-1");
}

/// The drawing says Long for every problem of a class, the code Short for two of them: one of them is only a race.
#[test]
fn erratum_11_only_a_class_that_lacks_its_finalizer_is_looked_at_soon() {
    let garden = Garden::new();
    let mut story = garden.plant_with("m", json!({"classFinalizer": "example.com/class"}));
    assert_eq!(story.step(), "R05 Short");
    garden.cluster.edit(
        "MachineClass",
        "small",
        json!({
            "metadata": {"finalizers": ["example.com/class"]}, "spec": {"nodeTemplate": {"region": "eu"}},
        }),
    );
    assert_eq!(story.step(), "R05 Long");
}

/// Literally, a node without a Ready condition is healthy.
#[test]
fn erratum_12_a_node_that_does_not_say_that_it_is_ready_is_not_healthy() {
    let garden = Garden::new();
    let mut story = garden.plant("m").pending();
    garden.node("m", "True");
    garden.cluster.edit(
        "Node",
        "node-m",
        json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}),
    );
    assert_eq!(story.step(), "R13 H03 H12 Short");
    assert_eq!(story.phase(), "Pending");
}

/// The FAQ says that a forced deletion skips the drain; the code forces it.
#[test]
fn erratum_13_a_forced_deletion_drains_by_force() {
    let garden = Garden::new();
    let mut story = deleting(&garden);
    garden.cluster.put(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"nodeName": "node-m"},
    }));
    story
        .world
        .edit(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    story.pass();
    assert_eq!(story.step(), "D10 X12 X17 Short");
    assert!(garden.cluster.get("Pod", "web").is_none());
}

/// The drawing validates the class before it looks at the deletion; a missing class stops it for ever.
#[test]
fn erratum_14_a_missing_class_stops_a_deletion_unless_the_binding_says_otherwise() {
    for (config, gone) in [(json!({}), false), (json!({"deleteWithoutClass": true}), true)] {
        let garden = Garden::new();
        let mut story = garden.plant_with("m", config).running();
        garden.cluster.remove("MachineClass", "small");
        story.world.delete();
        for _ in 0..10 {
            if story.world.object().is_some() {
                story.pass();
            }
        }
        assert_eq!(story.world.object().is_none(), gone);
        assert_eq!(garden.driver().vms.is_empty(), gone);
    }
}
