//! Scenarios (g) 1 to 7, 13 and 14: VMs that boot, run, die, and are given up.

use std::time::Duration;

use polity_core::time::millis;
use polity_tests::host_harness::backend::Backend;
use polity_tests::specified::rug;
use serde_json::json;

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_01_create,
    scenario_02_a_healthy_poll_has_no_effect,
    scenario_03_a_vm_that_was_killed_comes_back,
    scenario_04_a_storm_of_updates_is_one_configuration,
    scenario_04_a_read_that_finds_no_vm_waits_for_another_one,
    scenario_04_a_read_of_a_vm_that_is_not_configured_configures_it_first,
    rug_x17_traffic_that_the_vm_does_not_tell_is_not_written,
    scenario_05_when_nothing_can_be_booted_there_are_five_tries,
    scenario_06_a_poll_of_a_vm_that_was_given_up_is_dropped,
    scenario_07_an_update_waits_for_the_end_of_the_cooldown,
    scenario_13_a_vm_that_refuses_its_configuration_three_times_is_made_anew,
    scenario_13_after_five_vms_that_refuse_there_is_no_sixth,
    scenario_14_a_vm_that_never_boots_is_made_anew_after_ten_minutes,
    a_vm_that_cannot_be_built_is_made_anew_at_once,
    a_vm_that_hangs_before_it_is_configured_is_waited_for,
    a_probe_that_fails_is_no_healthy_poll,
    rug_x08_a_vm_that_gives_no_verdict_is_asked_once_a_second,
}

const MINUTE: Duration = Duration::from_secs(60);

async fn scenario_01_create(on: &dyn Backend) {
    let story = planted(on, json!({})).await;
    let router = until_active(&story).await;
    story.settles().await;
    let begins = ["01 at once", "03 at once"];
    assert_eq!(told(&story, 0), [&begins[..], &COMES_UP].concat());
    assert_eq!(story.acts(), ["router.boot", "config.push"]);
    let status = &router["status"];
    assert_eq!(
        (&status["action"], &status["vm"], &status["bootAttempts"]),
        (&json!("P"), &json!("C"), &json!(1))
    );
    assert_eq!(said(&router, "Ready"), json!(["True", "Configured", ""]));
    let vm = vm(&story, "r-1");
    assert_eq!(status["instance"], *vm.id);
    assert_eq!(
        (vm.macs, vm.config),
        (vec![mac(1)], Some(json!({"ports": [port(1)]})))
    );
    let done = story.passes().len();
    until_second(&story, 100).await;
    assert_eq!(told(&story, done), FINE);
    assert_eq!(
        story.object().await["status"]["bootAttempts"],
        0,
        "reset at the next ALIVE"
    );
}

async fn scenario_02_a_healthy_poll_has_no_effect(on: &dyn Backend) {
    let story = active(on, json!({})).await;
    let (done, acts, effects) = (story.passes().len(), story.acts(), story.site.effects());
    story.sleep(10 * MINUTE).await;
    assert_eq!(told(&story, done), FINE);
    assert_eq!(story.passes().len(), done + 2 * 9);
    assert_eq!((story.acts(), story.site.effects()), (acts, effects));
}

async fn scenario_03_a_vm_that_was_killed_comes_back(on: &dyn Backend) {
    let vanishes = json!({"vm": "r-1", "at": "100s", "does": "vanish"});
    let story = active_at(on, json!({"events": [vanishes]}), 99).await;
    let done = story.passes().len();
    let killed = vm(&story, "r-1").id;
    let router = active_again(&story, done, "08").await;
    story.settles().await;
    let finds = ["02 at once", "08 at once"];
    assert_eq!(told(&story, done), [&finds[..], &COMES_UP].concat());
    let vm = vm(&story, "r-1");
    assert_ne!(vm.id, killed);
    assert_eq!(router["status"]["instance"], *vm.id);
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn scenario_04_a_storm_of_updates_is_one_configuration(on: &dyn Backend) {
    let story = active(on, json!({})).await;
    story.settles().await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    let storm = json!(["U", "U", "C", "P", "U", "R"]);
    story.edit_status(json!({"queue": storm})).await;
    let router = active_again(&story, done, "26").await;
    assert_eq!(
        told(&story, done),
        [
            "02 at once",
            "09 at once",
            "after 1 s",
            "21 at once",
            "02 at once",
            "10 at once",
            "26 settled",
        ]
    );
    assert_eq!(story.acts()[acted..], ["config.push"]);
    assert_eq!(router["status"]["traffic"][0]["mac"], mac(1));
    assert!(router["status"]["traffic"][0]["rxBytes"].as_u64() > Some(0));
}

async fn scenario_04_a_read_that_finds_no_vm_waits_for_another_one(on: &dyn Backend) {
    let vanishes = json!({"vm": "r-1", "at": "30s", "does": "vanish"});
    let story = active_at(on, json!({"events": [vanishes]}), 31).await;
    let done = story.passes().len();
    request(&story, "read", "1").await;
    active_again(&story, done, "26").await;
    assert_eq!(
        told(&story, done),
        [
            "02 at once",
            "08 at once",
            "13 at once",
            "18 after 1 s",
            "04 at once",
            "17 at once",
            "after 1 s",
            "20 at once",
            "26 settled",
        ]
    );
    assert_eq!(made(&story), 2);
}

async fn scenario_04_a_read_of_a_vm_that_is_not_configured_configures_it_first(on: &dyn Backend) {
    // The second VM does not say at first what is plugged in: it neither takes its configuration nor refuses it.
    let silent = json!({
        "operation": "router.interfaces", "nth": 2, "then": {"fail": {"code": "unavailable"}},
    });
    let vanishes = json!({"vm": "r-1", "at": "30s", "does": "vanish"});
    let story = active_at(on, json!({"events": [vanishes], "faults": [silent]}), 31).await;
    let done = story.passes().len();
    request(&story, "read", "1").await;
    let router = active_again(&story, done, "21").await;
    assert_eq!(
        told(&story, done)[5..],
        [
            "17 at once",
            "X08 retry",
            "02 at once",
            "X04 at once",
            "after 1 s",
            "20 at once",
            "26 at once",
            "02 at once",
            "09 at once",
            "after 1 s",
            "21 settled",
        ]
    );
    assert_eq!(router["status"]["traffic"][0]["mac"], mac(1));
    assert_eq!(made(&story), 2);
}

async fn rug_x17_traffic_that_the_vm_does_not_tell_is_not_written(on: &dyn Backend) {
    let fails = json!({"operation": "router.stats", "nth": 1, "then": {"fail": {"code": "internal"}}});
    let story = active_at(on, json!({"faults": [fails]}), 31).await;
    let done = story.passes().len();
    request(&story, "read", "1").await;
    let router = active_again(&story, done, "X17").await;
    assert_eq!(told(&story, done), ["02 at once", "10 at once", "X17 settled"]);
    assert!(router["status"]["trafficTime"].is_null(), "{router}");
    request(&story, "read", "2").await;
    let router = active_again(&story, done, "26").await;
    assert!(router["status"]["trafficTime"].is_string(), "{router}");
}

async fn scenario_05_when_nothing_can_be_booted_there_are_five_tries(on: &dyn Backend) {
    let story = given_up(on).await;
    story.settles().await;
    assert_eq!(story.edges(), ["01", "03", "16", "16", "16", "16", "16", "15"]);
    let told = told(&story, 2);
    assert_eq!(told, ["16 retry", "15 settled"]);
    let pauses = pauses(&story.passes()[2..]);
    assert!(
        pauses
            .iter()
            .all(|pause| (rug::RETRY..rug::RETRY + 200).contains(pause)),
        "{pauses:?}"
    );
    assert_eq!(story.acts(), ["router.boot"; 5]);
    let router = story.object().await;
    assert_eq!(router["status"]["neutronStatus"], "ERROR");
    assert_eq!(reason(&router), "BootFailed");
    assert!(story.site.vms().is_empty());
}

async fn scenario_06_a_poll_of_a_vm_that_was_given_up_is_dropped(on: &dyn Backend) {
    let story = given_up(on).await;
    let done = story.passes().len();
    story.sleep(10 * MINUTE).await;
    assert_eq!(told(&story, done), ["settled"]);
    // One that stands in the queue all the same.
    story.edit_status(json!({"queue": ["P"]})).await;
    story.until_is("status.queue", json!([])).await;
    assert_eq!(told(&story, done), ["settled", "X01 settled"]);
    assert_eq!(calls(&story.passes()[done..]), Vec::<String>::new());
    assert_eq!(story.object().await["status"]["vm"], "E");
}

async fn scenario_07_an_update_waits_for_the_end_of_the_cooldown(on: &dyn Backend) {
    let story = given_up(on).await;
    let done = story.passes().len();
    story.sleep(Duration::from_secs(10)).await;
    update(&story, "large").await;
    active_again(&story, done, "21").await;
    let told = told(&story, done);
    assert_eq!(told[0], "X02 after 19 s");
    let goes_on = ["07 at once", "27 at once", "03 at once"];
    assert_eq!(told[1..], [&goes_on[..], &COMES_UP].concat());
    let passes = story.passes();
    let cooldown = millis(passes[done + 1].started.boot - passes[done - 1].started.boot);
    assert!(
        (rug::COOLDOWN..rug::COOLDOWN + 200).contains(&cooldown),
        "{cooldown}"
    );
    let pauses = pauses(&passes[done + 1..done + 4]);
    assert!(
        pauses.iter().all(|pause| *pause < 200),
        "without a pause: {pauses:?}"
    );
    assert_eq!(made(&story), 1);
}

async fn scenario_13_a_vm_that_refuses_its_configuration_three_times_is_made_anew(on: &dyn Backend) {
    let refuses = json!({
        "operation": "config.push", "from": "30s", "count": 3, "then": {"failTask": {"fault": "InvalidConfig"}},
    });
    let story = active_at(on, json!({"faults": [refuses]}), 31).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    update(&story, "large").await;
    let refused = story.until_is("status.vm", "R").await;
    assert_eq!(
        said(&refused, "Ready"),
        json!([
            "False",
            "ConfigRefused",
            "InvalidConfig: InvalidConfig (by the scenario)"
        ])
    );
    active_again(&story, done, "21").await;
    let goes = [
        "02 at once",
        "09 at once",
        "after 1 s",
        "retry",
        "after 1 s",
        "23 at once",
        "X10 after 1 s",
        "30 at once",
    ];
    assert_eq!(told(&story, done), [&goes[..], &COMES_UP].concat());
    assert_eq!(
        story.acts()[acted..],
        [
            "config.push",
            "config.push",
            "config.push",
            "router.delete-ports",
            "router.delete",
            "router.boot",
            "config.push",
        ]
    );
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn scenario_13_after_five_vms_that_refuse_there_is_no_sixth(on: &dyn Backend) {
    let refuses = json!({"operation": "config.push", "then": {"failTask": {"fault": "InvalidConfig"}}});
    let story = planted(on, json!({"faults": [refuses]})).await;
    let router = story.until_is("status.vm", "E").await;
    story.settles().await;
    assert_eq!(
        (times(&story, "13"), times(&story, "23"), times(&story, "30")),
        (5, 5, 5)
    );
    let told = told(&story, 0);
    assert_eq!(told[told.len() - 2..], ["30 at once", "15 settled"]);
    assert_eq!((acts(&story, "config.push"), made(&story)), (15, 5));
    assert_eq!(router["status"]["neutronStatus"], "ERROR");
    assert_eq!(reason(&router), "ConfigRefused");
    assert!(story.site.vms().is_empty() && taken(&story).is_empty());
}

async fn scenario_14_a_vm_that_never_boots_is_made_anew_after_ten_minutes(on: &dyn Backend) {
    let never = json!({"operation": "router.boot", "nth": 1, "then": "neverBoots"});
    let story = planted(on, json!({"faults": [never]})).await;
    let given_up = story.until_is("status.machineState", "STOP_VM").await;
    assert_eq!(
        said(&given_up, "Ready"),
        json!(["False", "BootTimeout", "the VM does not answer after 10m"])
    );
    let router = until_active(&story).await;
    let waits = [
        "01 at once",
        "03 at once",
        "13 at once",
        "18 after 1 s",
        "04 at once",
        "19 at once",
        "X10 after 1 s",
        "30 at once",
    ];
    assert_eq!(told(&story, 0), [&waits[..], &COMES_UP].concat());
    let (passes, edges) = (story.passes(), story.edges());
    let at = |edge: &str| edges.iter().position(|took| took == edge).expect("it was taken");
    let waited = millis(passes[at("19")].started.boot - passes[at("13")].started.boot);
    assert!((rug::BOOT..rug::BOOT + 2_000).contains(&waited), "{waited}");
    assert_eq!(router["status"]["bootAttempts"], 2);
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn a_vm_that_cannot_be_built_is_made_anew_at_once(on: &dyn Backend) {
    let fault = "No valid host was found.";
    let cannot = json!({"operation": "router.boot", "nth": 1, "then": {"cannotBuild": fault}});
    let story = planted(on, json!({"faults": [cannot]})).await;
    let given_up = story.until_is("status.machineState", "STOP_VM").await;
    assert_eq!(
        said(&given_up, "Ready"),
        json!(["False", "InstanceFailed", fault])
    );
    let router = until_active(&story).await;
    let (passes, edges) = (story.passes(), story.edges());
    let at = |edge: &str| edges.iter().position(|took| took == edge).expect("it was taken");
    let waited = millis(passes[at("30")].started.boot - passes[at("13")].started.boot);
    assert!(waited < rug::BOOT / 10, "{waited}");
    assert_eq!(router["status"]["bootAttempts"], 2);
    assert_eq!((made(&story), story.site.vms().len()), (2, 1));
}

async fn a_vm_that_hangs_before_it_is_configured_is_waited_for(on: &dyn Backend) {
    // It answers after five seconds, and then not any more.
    let overrides = json!({
        "faults": [{"operation": "router.interfaces", "nth": 1, "then": {"fail": {"code": "unavailable"}}}],
        "events": [
            {"vm": "r-1", "afterPowerOn": "5500ms", "does": "hang"},
            {"vm": "r-1", "at": "3m", "does": "recover"},
        ],
    });
    let story = planted(on, overrides).await;
    let router = story.until_is("status.queue", json!(["U"])).await;
    assert_eq!(reason(&router), "NoVerdict");
    until_active(&story).await;
    assert_eq!(
        told(&story, 5),
        [
            "18 after 1 s",
            "04 at once",
            "17 at once",
            "X08 retry",
            "02 at once",
            "X05 at once",
            "04 at once",
            "18 after 1 s",
            "04 at once",
            "17 at once",
            "after 1 s",
            "21 settled",
        ]
    );
    assert_eq!(made(&story), 1);
}

/// In the original a state that fails is left all the same, with what was believed before: a probe that fails is a
/// healthy poll.
async fn a_probe_that_fails_is_no_healthy_poll(on: &dyn Backend) {
    let fails = json!({
        "operation": "router.alive", "from": "60s", "count": 2, "then": {"fail": {"code": "unavailable"}},
    });
    let story = active(on, json!({"faults": [fails]})).await;
    let done = story.passes().len();
    let router = story
        .until("nobody can tell", |router| reason(router) == "LookFailed")
        .await;
    assert_eq!(said(&router, "Ready")[0], "Unknown");
    assert_eq!(router["status"]["vm"], "C", "it is believed as before");
    until_active(&story).await;
    assert_eq!(told(&story, done), ["02 at once", "retry", "11 settled"]);
    assert_eq!(
        said(&story.object().await, "Ready"),
        json!(["True", "Configured", ""])
    );
    assert_eq!(made(&story), 1);
}

/// In the original, a VM that does not say what is plugged in is updated anew without a pause.
async fn rug_x08_a_vm_that_gives_no_verdict_is_asked_once_a_second(on: &dyn Backend) {
    let silent = json!({
        "operation": "router.interfaces", "from": "30s", "until": "60s", "then": {"fail": {"code": "unavailable"}},
    });
    let story = active_at(on, json!({"faults": [silent]}), 31).await;
    let done = story.passes().len();
    update(&story, "large").await;
    until_second(&story, 59).await;
    let passes = story.passes().split_off(done);
    let tries: Vec<_> = passes
        .into_iter()
        .filter(|pass| tell(pass) == "X08 retry")
        .collect();
    assert!(tries.len() > 10, "{:?}", story.edges());
    let pauses = pauses(&tries);
    assert!(pauses.iter().all(|pause| *pause >= rug::RETRY), "{pauses:?}");
    active_again(&story, done, "21").await;
    assert_eq!(made(&story), 1);
}
