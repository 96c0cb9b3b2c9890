//! The scenarios of the specification, (g) 1 to 16: passes one after the other against a small cloud.

#[allow(unreachable_pub, dead_code, reason = "a module of the tests")]
mod neutron;

use std::time::Duration;

use neutron::{Story, edges, failure, lost, port};
use polity_sdk::{Code, Next, Resolution, RetryClass, Time};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn scenario_01_create() {
    let mut story = Story::new();
    for edges in ["01", "03", "13", "18", "04", "18", "04"] {
        assert_eq!(story.step(), edges);
    }
    assert_eq!(story.rest(), "17 21");
    let status = story.world.status();
    assert_eq!(
        (
            &status["machineState"],
            &status["action"],
            &status["vm"],
            &status["bootAttempts"]
        ),
        (&json!("CALC_ACTION"), &json!("P"), &json!("C"), &json!(1))
    );
    assert_eq!(status["neutronStatus"], "ACTIVE");
    assert_eq!(story.condition("Ready")["status"], "True");
    assert_eq!(story.neutron.vm().config, Some(json!({"ports": [port(1)]})));
    assert_eq!(story.neutron.state().changes, ["router.boot", "config.push"]);
    story.poll();
    assert_eq!(story.rest(), "02 11");
    assert_eq!(story.world.status()["bootAttempts"], 0, "reset at the next ALIVE");
}

#[test]
fn scenario_02_a_healthy_poll_has_no_effect() {
    let mut story = Story::configured();
    let changes = story.neutron.state().changes.len();
    for _ in 0..3 {
        story.poll();
        assert_eq!(story.step(), "02");
        let ended = story.pass();
        assert_eq!(
            (edges(&ended).as_str(), &ended.next),
            ("11", &Next::Settled(Some(60_000)))
        );
    }
    assert_eq!(story.neutron.state().changes.len(), changes);
}

#[test]
fn scenario_03_a_vm_that_was_killed_comes_back() {
    let mut story = Story::configured();
    story.neutron.state().vms.clear();
    story.poll();
    assert_eq!(story.rest(), "02 08 13 17 21");
    assert_eq!((story.vm().as_str(), story.neutron.state().boots), ("C", 2));
}

#[test]
fn scenario_04_a_storm_of_updates_is_one_configuration() {
    let mut story = Story::configured();
    story
        .world
        .edit(json!({"status": {"queue": ["U", "U", "C", "P", "U", "R"]}}));
    let pushed = story.neutron.count("config.push");
    assert_eq!(story.rest(), "02 09 21 02 10 26");
    assert_eq!(story.neutron.count("config.push"), pushed + 1);
    let mut fresh = Story::configured();
    fresh.world.edit(json!({"status": {"queue": ["R"], "vm": "U"}}));
    assert_eq!(fresh.rest(), "02 X04 20 26");
    assert_eq!(fresh.world.status()["traffic"][0]["rxBytes"], 10);
}

#[test]
fn scenario_05_when_nothing_can_be_booted_there_are_five_tries() {
    let mut story = Story::new();
    story.neutron.state().instead = vec![("router.boot", u32::MAX, failure(Code::Internal))];
    assert_eq!(story.rest(), "01 03 16 16 16 16 16 15");
    assert_eq!(story.neutron.count("router.boot"), 5);
    assert_eq!(story.world.status()["neutronStatus"], "ERROR");
    assert_eq!(story.condition("Ready")["reason"], "BootFailed");
}

/// A router whose VM was given up.
fn given_up() -> Story {
    let mut story = Story::new();
    story.neutron.state().instead = vec![("router.boot", 5, failure(Code::Internal))];
    story.rest();
    assert_eq!(story.vm(), "E");
    story
}

#[test]
fn scenario_06_a_poll_of_a_vm_that_was_given_up_is_dropped() {
    let mut story = given_up();
    let asked = story.requests();
    for _ in 0..10 {
        story.poll();
        assert_eq!(story.rest(), "");
    }
    story.world.edit(json!({"status": {"queue": ["P"]}}));
    assert_eq!(story.rest(), "X01");
    assert_eq!((story.requests(), story.vm().as_str()), (asked, "E"));
}

#[test]
fn scenario_07_an_update_waits_for_the_end_of_the_cooldown() {
    let mut story = given_up();
    let since: Time = story.world.now();
    story.world.advance(10 * SECOND);
    story.update(json!({"flavor": "large"}));
    assert_eq!(story.step(), "X02");
    assert_eq!(story.world.now().since(since), 30 * SECOND);
    for edges in ["07", "27", "03"] {
        let before = story.world.now();
        assert_eq!(story.step(), edges);
        assert_eq!(story.world.now(), before, "without a pause");
    }
    assert_eq!(story.rest(), "13 17 21");
    assert_eq!(story.vm(), "C");
}

#[test]
fn scenario_08_a_rebuild_with_another_image() {
    let mut story = Story::configured();
    story.neutron.state().stop = 3_000;
    story
        .world
        .edit(json!({"metadata": {"annotations": {"rug.polity.dev/rebuild-image": "image-2"}}}));
    story.request("rebuild", "1");
    for edges in ["05", "28", "28", "28", "29", "13"] {
        assert_eq!(story.step(), edges);
    }
    assert_eq!(story.neutron.vm().image, "image-2");
    assert_eq!(story.rest(), "17 21");
    // An image that was asked for stays until the next rebuild.
    story.neutron.state().vms.clear();
    story.poll();
    story.rest();
    assert_eq!(story.neutron.vm().image, "image-2");
    story
        .world
        .edit(json!({"metadata": {"annotations": {"rug.polity.dev/rebuild-image": null}}}));
    story.request("rebuild", "2");
    assert_eq!(story.rest(), "05 29 13 17 21");
    assert_eq!(story.neutron.vm().image, "image-1");
}

#[test]
fn scenario_09_a_deletion_ends_everything() {
    let mut story = Story::configured();
    story.update(json!({"flavor": "large"}));
    story.world.delete();
    assert_eq!(story.step(), "06");
    assert_eq!(story.world.status()["queue"], json!(["U", "D"]));
    assert_eq!(story.rest(), "31 X12");
    assert!(story.world.object().is_none());
    assert!(story.neutron.state().vms.is_empty());
    assert!(story.neutron.state().ports.is_empty(), "no port has leaked");
}

#[test]
fn scenario_10_a_router_that_was_removed_from_the_network_service_ends() {
    let mut story = Story::configured();
    story.neutron.state().removed = true;
    story.poll();
    assert_eq!(story.rest(), "02 12 31 X12");
    let status = story.world.status().clone();
    assert_eq!(
        (&status["machineState"], &status["action"], &status["vm"]),
        (&json!("EXIT"), &json!("D"), &json!("G"))
    );
    assert!(story.neutron.state().vms.is_empty());
    // Whatever comes now: the machine has ended.
    story.update(json!({"flavor": "large"}));
    story.request("rebuild", "1");
    story.poll();
    let asked = story.requests();
    assert_eq!(story.rest(), "X12");
    assert_eq!((story.requests(), story.world.status()), (asked, &status));
    story.world.delete();
    assert!(story.world.object().is_none(), "nothing holds it");
}

#[test]
fn scenario_11_a_network_that_was_added_is_plugged_in_while_the_vm_runs() {
    let mut story = Story::configured();
    story.update(json!({"ports": [port(1), port(2)]}));
    assert_eq!(story.rest(), "02 09 22 24 21");
    assert_eq!(story.neutron.vm().ports, [port(1), port(2)]);
    assert_eq!(
        story.neutron.vm().config,
        Some(json!({"ports": [port(1), port(2)]}))
    );
    story.update(json!({"ports": [port(2)]}));
    assert_eq!(story.rest(), "02 09 22 24 21");
    assert_eq!(story.neutron.vm().ports, [port(2)]);
    assert_eq!(story.neutron.state().boots, 1);
}

#[test]
fn scenario_12_a_vm_that_cannot_be_plugged_is_made_anew() {
    let mut story = Story::configured();
    story.neutron.state().instead = vec![("port.attach", 1, failure(Code::Internal))];
    story.update(json!({"ports": [port(1), port(2)]}));
    assert_eq!(story.rest(), "02 09 22 25 30 13 17 21");
    // Nor one that takes the ports and does not show them.
    story.neutron.state().plug = None;
    story.update(json!({"ports": [port(1), port(2), port(3)]}));
    let begin = story.world.now();
    assert_eq!(story.rest(), "02 09 22 25 30 13 17 21");
    assert!(story.world.now().since(begin) < 30 * SECOND);
    assert_eq!((story.vm().as_str(), story.neutron.state().boots), ("C", 3));
}

#[test]
fn scenario_13_a_vm_that_refuses_its_configuration_three_times_is_made_anew() {
    let mut story = Story::configured();
    story.neutron.state().refusals = 3;
    story.update(json!({"flavor": "large"}));
    assert_eq!(story.rest(), "02 09 23 30 13 17 21");
    assert_eq!(story.vm(), "C");
    story.neutron.state().refusals = u32::MAX;
    story.update(json!({"flavor": "small"}));
    let boots = story.neutron.state().boots;
    let told = story.rest();
    assert!(told.ends_with("23 30 15"), "{told}");
    assert_eq!(
        (story.vm().as_str(), story.neutron.state().boots - boots),
        ("E", 5)
    );
    assert_eq!(story.condition("Ready")["reason"], "ConfigRefused");
    assert!(story.neutron.state().vms.is_empty());
}

#[test]
fn scenario_14_a_vm_that_never_boots_is_made_anew_after_ten_minutes() {
    let mut story = Story::new();
    story.neutron.state().boot = None;
    for edges in ["01", "03", "13"] {
        assert_eq!(story.step(), edges);
    }
    let begin = story.world.now();
    let mut told = Vec::new();
    while told.last().map(String::as_str) != Some("19") {
        told.push(story.step());
    }
    assert_eq!(story.world.now().since(begin), 600 * SECOND);
    assert!(
        told[..told.len() - 1]
            .iter()
            .all(|edge| edge == "18" || edge == "04")
    );
    assert_eq!((story.step().as_str(), story.step().as_str()), ("30", "13"));
    assert_eq!(story.world.status()["bootAttempts"], 2);
    story.neutron.vm().silent = false;
    assert_eq!(story.neutron.state().boots, 2);
}

#[test]
fn scenario_15_a_deletion_while_the_vm_boots_does_not_wait_for_it() {
    let mut story = Story::new();
    story.neutron.state().boot = None;
    for edges in ["01", "03", "13", "18"] {
        assert_eq!(story.step(), edges);
    }
    story.world.delete();
    assert_eq!(story.step(), "06");
    assert_eq!(story.rest(), "31 X12");
    assert!(story.world.object().is_none() && story.neutron.state().vms.is_empty());
}

#[test]
fn scenario_16_a_cloud_that_cannot_delete_is_asked_when_the_retry_policy_says() {
    let mut story = Story::configured();
    story.neutron.state().instead = vec![("router.delete", 20, failure(Code::Internal))];
    story.world.delete();
    assert_eq!(story.step(), "06");
    story.pass();
    let changes = story.neutron.state().changes.len();
    for _ in 0..19 {
        let ended = story.pass();
        let failed = Next::failed(RetryClass::Short, failure(Code::Internal));
        assert_eq!((edges(&ended).as_str(), &ended.next), ("X10", &failed));
    }
    assert_eq!(story.condition("Ready")["reason"], "DeleteFailed");
    let told = story.neutron.state().changes[changes..].to_vec();
    assert!(
        told.iter().all(|change| change == "router.delete") && told.len() == 19,
        "{told:?}"
    );
    assert_eq!(story.rest(), "31 X12");
    assert!(story.world.object().is_none());
}

#[test]
fn a_boot_whose_answer_is_lost_makes_one_vm() {
    for made in [true, false] {
        let mut story = Story::new();
        story.step();
        story.step();
        let mut state = story.neutron.state();
        state.instead = vec![("router.boot", 1, lost())];
        drop(state);
        assert_eq!(story.step(), "");
        assert_eq!(story.world.status()["bootAttempts"], json!(null));
        story.doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()));
        assert_eq!(story.step(), "X13");
        if made {
            story.doubt(Resolution::Done(json!({"id": "vm-7"}).to_string()));
            assert_eq!(story.step(), "X15");
            assert_eq!(story.world.status()["instance"], "vm-7");
        } else {
            story.doubt(Resolution::Absent);
            assert_eq!(story.step(), "X16");
            assert_eq!(story.rest(), "13 17 21");
            assert_eq!(story.neutron.state().boots, 1);
        }
        let attempts = if made { 1 } else { 2 };
        assert_eq!(story.world.status()["bootAttempts"], attempts);
    }
}

/// The whole life of a router: made, changed, plugged, rebuilt, deleted. Returns the requests that it took.
fn live(story: &mut Story) -> usize {
    let mut settled = 0;
    for _ in 0..2_000 {
        let Some(ended) = story.pass_or_crash() else {
            continue;
        };
        assert!(story.neutron.state().vms.len() <= 1);
        if matches!(ended.next, Next::Settled(_)) && story.world.object().is_some() {
            settled += 1;
            match settled {
                1 => story.update(json!({"ports": [port(1), port(2)]})),
                2 => story.request("read", "1"),
                3 => story.request("rebuild", "1"),
                4 => story.neutron.vm().silent = true,
                5 => story.world.delete(),
                _ => {}
            }
        }
        if story.world.object().is_none() {
            return story.requests();
        }
    }
    panic!("it never ends: {}", story.object());
}

#[test]
fn a_crash_at_any_request_neither_makes_a_second_vm_nor_loses_one() {
    let story = || {
        let story = Story::new();
        story.neutron.state().stop = 1_500;
        story.neutron.state().boot = Some(1_500);
        story
    };
    let mut unbroken = story();
    let requests = live(&mut unbroken);
    let boots = unbroken.neutron.state().boots;
    assert_eq!(boots, 3);
    for nth in 1..=requests {
        for after in [false, true] {
            let mut story = story();
            story.neutron.state().crash = Some((nth, after));
            live(&mut story);
            let state = story.neutron.state();
            assert!(state.crash.is_none(), "request {nth} was made");
            assert_eq!(
                state.boots, boots,
                "a crash at request {nth}, effect first: {after}"
            );
            assert!(state.vms.is_empty() && state.ports.is_empty(), "nothing is left");
        }
    }
}

#[test]
fn a_restart_goes_on_from_the_status() {
    let mut story = Story::configured();
    story.update(json!({"ports": [port(1), port(2)]}));
    for edges in ["02", "09", "22", "X14", "X14"] {
        assert_eq!(story.step(), edges);
    }
    assert_eq!(story.restarted().rest(), "24 21");
}

#[test]
fn a_router_whose_status_was_lost_takes_its_vm_over() {
    let mut story = Story::configured();
    story.world.edit(json!({"status": null}));
    assert_eq!(story.rest(), "01 02 09 21");
    assert_eq!(story.neutron.state().boots, 1);
}

#[test]
fn without_its_image_nothing_is_booted_and_nothing_is_deleted() {
    let mut story = Story::new();
    story.neutron.state().images = Some(["image-9".to_owned()].into());
    assert_eq!(story.rest(), "01 03 16 16 16 16 16 15");
    assert_eq!(story.neutron.state().changes, Vec::<String>::new());
    let ready = story.condition("Ready");
    assert_eq!(
        (&ready["reason"], &ready["message"]),
        (&json!("ImageNotFound"), &json!("the image \"image-1\": no image"))
    );
    story.world.advance(30 * SECOND);
    story.update(json!({"imageUUID": "image-9"}));
    assert_eq!(story.rest(), "07 27 03 13 17 21");
}

#[test]
fn a_rebuild_from_an_image_that_comes_later_waits_for_it() {
    let mut story = Story::configured();
    story.neutron.state().images = Some(["image-9".to_owned()].into());
    story.request("rebuild", "1");
    for _ in 0..3 {
        assert_eq!(story.rest().trim_start_matches("02 11"), "");
        assert_eq!(story.condition("RebuildTaken")["reason"], "ImageNotFound");
        story.poll();
    }
    assert_eq!(story.neutron.count("router.delete"), 0);
    story.neutron.state().images = None;
    assert_eq!(story.rest(), "05 29 13 17 21");
    assert_eq!(story.condition("RebuildTaken"), json!(null));
}

#[test]
fn a_port_of_another_router_is_left_alone_until_it_is_free() {
    let mut story = Story::configured();
    story
        .neutron
        .state()
        .ports
        .insert("fa:16:3e:00:00:02".into(), "r-2".into());
    story.update(json!({"ports": [port(1), port(2), port(3)]}));
    assert_eq!(story.rest(), "02 09 22 24 21");
    assert_eq!(story.neutron.vm().ports, [port(1), port(3)]);
    let plugged = story.condition("PortsPlugged");
    assert_eq!(
        (&plugged["reason"], &plugged["message"]),
        (
            &json!("PortOfAnotherRouter"),
            &json!("not plugged in: fa:16:3e:00:00:02")
        )
    );
    assert_eq!(story.vm(), "C");
    story.poll();
    assert_eq!(story.rest(), "02 11");
    story.neutron.state().ports.remove("fa:16:3e:00:00:02");
    story.poll();
    assert_eq!(story.rest(), "02 09 22 24 21");
    assert_eq!(story.neutron.vm().ports, [port(1), port(3), port(2)]);
    assert_eq!(story.condition("PortsPlugged"), json!(null));
    assert_eq!(
        story.neutron.state().boots,
        1,
        "nothing was taken down because of it"
    );
}

#[test]
fn requests_that_come_while_somebody_debugs_are_dropped_and_changes_are_not() {
    let mut story = Story::configured();
    story.update(json!({"debug": true, "debugReason": "tcpdump"}));
    story.request("rebuild", "1");
    let asked = story.requests();
    assert_eq!(story.rest(), "");
    story.poll();
    assert_eq!((story.rest().as_str(), story.requests()), ("", asked));
    assert_eq!(story.condition("Debugging")["message"], "tcpdump");
    story.update(json!({"debug": false}));
    assert_eq!(story.rest(), "02 09 21");
    assert_eq!(story.condition("Debugging"), json!(null));
    assert_eq!(story.neutron.state().boots, 1);
}
