//! One test for each mistake of the drawing, (f) 1 to 13 of the specification, and for what else is not taken
//! literally: what the literal reading would do, and that the policy does not.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod neutron;

use std::time::Duration;

use neutron::{Story, edges, failure};
use polity_sdk::{Code, Next, RetryClass};
use rug_router::{Action, State};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// A router in this state, which does this with a VM like that; its VM is there and configured.
fn at(state: &str, action: &str, vm: &str) -> Story {
    let mut story = Story::configured();
    story
        .world
        .edit(json!({"status": {"machineState": state, "action": action, "vm": vm}}));
    story
}

/// A router whose VM was given up just now.
fn given_up() -> Story {
    let mut story = Story::new();
    story.neutron.state().instead = vec![("router.boot", 5, failure(Code::Internal))];
    story.rest();
    assert_eq!(story.vm(), "E");
    story
}

/// Literally, both RUG-13 and RUG-16 leave with vm:D, and CHECK_BOOT would look for a VM that was never made.
#[test]
fn erratum_01_a_boot_that_failed_is_not_looked_for() {
    let mut story = Story::new();
    story.neutron.state().instead = vec![("router.boot", 1, failure(Code::Internal))];
    for edges in ["01", "03", "16", "13"] {
        assert_eq!(story.step(), edges);
    }
}

/// Literally, RUG-13 knows the action D, which never gets there, and not E, with which RUG-29 arrives.
#[test]
fn erratum_02_a_boot_does_not_depend_on_the_action() {
    for action in ["C", "R", "U", "D", "P", "E"] {
        let mut story = at("CREATE_VM", action, "D");
        story.neutron.state().vms.clear();
        assert_eq!(story.step(), "13", "{action}");
    }
}

/// Literally, a poll does nothing about a VM that answers and is not configured: it stays so for ever.
#[test]
fn erratum_03_a_poll_configures_a_vm_unless_the_binding_says_otherwise() {
    for (config, told, vm) in [
        (json!({}), "02 X06 21", "C"),
        (json!({"pollConfiguresUp": false}), "02 11", "U"),
    ] {
        let mut story = Story::configured_with(config);
        story.world.edit(json!({"status": {"vm": "U"}}));
        story.poll();
        assert_eq!((story.rest().as_str(), story.vm().as_str()), (told, vm));
    }
}

/// The code goes on where it was when the error is cleared; the drawing looks at the queue once more.
#[test]
fn erratum_04_what_comes_while_an_error_is_cleared_counts() {
    let mut story = given_up();
    story.world.advance(30 * SECOND);
    story.update(json!({"flavor": "large"}));
    assert_eq!(story.step(), "07");
    story.request("rebuild", "1");
    for edges in ["27", "05", "29", "13"] {
        assert_eq!(story.step(), edges);
    }
}

/// Literally, the action stays E: put back by CHECK_BOOT, it would take the new VM down again, for ever.
#[test]
fn erratum_05_a_rebuild_is_over_once_a_vm_is_to_be_made() {
    let mut story = Story::configured();
    story.request("rebuild", "1");
    assert_eq!(story.rest(), "05 29 13 17 21");
    assert_eq!(story.neutron.state().boots, 2);
    assert_eq!(story.world.status()["action"], "P");
}

/// Literally, `vm>D` of RUG-30 fits a deletion as well: a VM would be made for a router that is being deleted.
#[test]
fn erratum_06_a_deletion_makes_no_vm() {
    let mut story = Story::configured();
    story.world.delete();
    assert_eq!(story.rest(), "06 31 X12");
    assert_eq!(story.neutron.state().boots, 1);
}

/// Literally, nothing leads out of REBUILD_VM when the router is gone.
#[test]
fn erratum_07_a_rebuild_of_a_router_that_is_gone_ends() {
    let mut story = Story::configured();
    story.request("rebuild", "1");
    assert_eq!(story.step(), "05");
    story.neutron.state().removed = true;
    assert_eq!(story.rest(), "X09 X12");
    assert!(story.neutron.state().vms.is_empty());
}

/// Literally, a VM that needs a restart or other networks leads nowhere from three of the states.
#[test]
fn erratum_08_no_letter_is_without_an_edge() {
    for (state, vm, expected) in [
        ("CALC_ACTION", "R", "X03"),
        ("CALC_ACTION", "H", "X03"),
        ("CHECK_BOOT", "H", "X07"),
        ("CREATE_VM", "H", "X11"),
    ] {
        let mut story = at(state, "U", vm);
        story.world.edit(json!({"status": {"queue": ["U"]}}));
        assert_eq!(story.step(), expected);
    }
}

/// In the original the worker spins in STOP_VM, for ten minutes at a time.
#[test]
fn erratum_09_a_vm_that_does_not_go_is_one_try_in_a_pass() {
    let mut story = at("STOP_VM", "U", "R");
    story.neutron.state().instead = vec![("router.delete", 3, failure(Code::Internal))];
    for _ in 0..3 {
        let ended = story.pass();
        let failed = Next::failed(RetryClass::Short, failure(Code::Internal));
        assert_eq!((edges(&ended).as_str(), &ended.next), ("X10", &failed));
        assert!(ended.acts().len() <= 2);
    }
    assert_eq!(story.step(), "30");
}

/// Literally, a deletion is never taken from the queue and waits for the cool-down: thirty seconds of passes that
/// do nothing.
#[test]
fn erratum_10_a_deletion_does_not_wait_for_the_cooldown() {
    let mut story = given_up();
    story.world.delete();
    let begin = story.world.now();
    assert_eq!(story.rest(), "07 27 06 31 X12");
    assert!(story.world.now().since(begin) < SECOND);
    assert!(story.world.object().is_none());
}

/// Literally, an update during the cool-down is lost until something else happens.
#[test]
fn erratum_11_an_update_during_the_cooldown_is_kept() {
    let mut story = given_up();
    story.update(json!({"flavor": "large"}));
    assert_eq!(story.step(), "X02");
    assert_eq!(story.world.status()["queue"], json!(["U"]));
    assert_eq!(story.rest(), "07 27 03 13 17 21");
}

/// The original learned further letters later. They are none here.
#[test]
fn erratum_12_the_letters_are_those_of_the_legend() {
    for (field, letter) in [("vm", "DEGRADED"), ("action", "CLUSTER_REBUILD"), ("vm", "X")] {
        let mut story = Story::configured();
        story.world.edit(json!({"status": {field: letter}}));
        let ended = story.pass();
        let Next::Retry(retry) = ended.next else {
            panic!("{}", ended.next)
        };
        assert_eq!(retry.class, RetryClass::Long, "it does not decode");
    }
}

/// The legend calls CHECK_BOOT by another name than the drawing.
#[test]
fn erratum_13_a_state_is_called_as_it_is_drawn() {
    let spelled = |state: State| serde_json::to_value(state).unwrap();
    assert_eq!(spelled(State::CheckBoot), "CHECK_BOOT");
    assert!(serde_json::from_value::<State>(json!("CHECKBOOT")).is_err());
    assert_eq!(serde_json::to_value(Action::Rebuild).unwrap(), "E");
}

/// In the original a state that fails is left all the same, with what was believed before: a probe that fails is a
/// healthy poll.
#[test]
fn a_probe_that_fails_is_no_healthy_poll() {
    let mut story = Story::configured();
    story.neutron.state().instead = vec![("router.alive", 2, failure(Code::Unavailable))];
    story.poll();
    assert_eq!(story.step(), "02");
    for _ in 0..2 {
        let ended = story.pass();
        let failed = Next::failed(RetryClass::Short, failure(Code::Unavailable));
        assert_eq!((edges(&ended).as_str(), &ended.next), ("", &failed));
        let ready = story.condition("Ready");
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("Unknown"), &json!("LookFailed"))
        );
    }
    assert_eq!(story.rest(), "11");
    assert_eq!(story.condition("Ready")["status"], "True");
}

/// Literally, `vm:G` and `vm>D` lead to EXIT although the VM is there: nobody would ever find it again.
#[test]
fn a_router_does_not_end_before_its_vm_is_gone() {
    for vm in ["G", "D"] {
        let mut story = at("STOP_VM", "D", vm);
        story.neutron.state().stop = 5_000;
        for _ in 0..5 {
            assert_eq!(story.step(), "X10", "{vm}");
        }
        assert_eq!(story.rest(), "31 X12");
        assert!(story.neutron.state().vms.is_empty());
    }
}

/// Literally, the action stays as it was when a VM is given up: a poll that waits in the queue would be taken for
/// that action after the cool-down, and the boots would begin anew, for ever.
#[test]
fn a_vm_that_was_given_up_stays_so_until_somebody_asks() {
    let mut story = Story::new();
    story.neutron.state().instead = vec![("router.boot", u32::MAX, failure(Code::Internal))];
    story
        .world
        .edit(json!({"status": {"machineState": "CREATE_VM", "action": "C", "queue": ["P"]}}));
    story.update(json!({}));
    story.world.edit(json!({"status": {"observedGeneration": 2}}));
    assert_eq!(story.rest(), "16 16 16 16 16 15 X01");
    story.world.advance(3_600 * SECOND);
    assert_eq!(story.rest(), "");
    assert_eq!(story.neutron.count("router.boot"), 5);
}

/// Literally, CHECK_BOOT puts the action back even where it goes on to CONFIG: it would be carried out twice.
#[test]
fn a_new_vm_is_configured_once() {
    let mut story = Story::new();
    assert_eq!(story.rest(), "01 03 13 17 21");
    assert_eq!(story.neutron.count("config.push"), 1);
}

/// Literally, a VM without a management address boots for ever.
#[test]
fn a_vm_that_nobody_can_reach_is_given_ten_minutes() {
    let mut story = Story::new();
    for edges in ["01", "03", "13"] {
        assert_eq!(story.step(), edges);
    }
    story.neutron.vm().unreachable = true;
    let begin = story.world.now();
    while story.step() != "19" {}
    assert_eq!(story.world.now().since(begin), 600 * SECOND);
    assert_eq!(story.condition("Ready")["reason"], "BootTimeout");
}

/// In the original, a VM that does not say what is plugged in is updated anew without a pause.
#[test]
fn a_vm_that_gives_no_verdict_is_asked_once_a_second() {
    let mut story = at("CONFIG", "U", "C");
    story.neutron.state().forgetful = true;
    let begin = story.world.now();
    let mut tries = 0;
    for _ in 0..40 {
        tries += u32::from(story.step() == "X08");
    }
    assert!(tries > 2 && story.world.now().since(begin) >= tries * SECOND);
    story.neutron.state().forgetful = false;
    story.rest();
    assert_eq!(story.vm(), "C");
}
