//! The start, ALIVE and CHECK_BOOT: RUG-01, RUG-08 to RUG-12, RUG-17 to RUG-19, RUG-X04 to RUG-X07.

use super::*;

polity_sdk::cases! { $ each_living_case of rug_router::cases::living;

rug_01_nothing_is_known_of_a_new_router:
    router(json!({}))
        .takes("01", "CALC_ACTION").writes(json!({"queue": ["C"], "observedGeneration": 1}))
        .writes(json!({"neutronStatus": "DOWN", "conditions": [ready("D")]}));

rug_01_a_vm_that_is_there_is_taken_over:
    router(json!({})).there()
        .takes("01", "CALC_ACTION").writes(json!({"queue": ["C"], "observedGeneration": 1}))
        .writes(json!({"vm": "U", "instance": "vm-1", "neutronStatus": "BUILD", "conditions": [ready("U")]}));

rug_01_a_start_that_cannot_look_starts_again:
    router(json!({})).fails("router.get", Code::Unavailable)
        .writes(json!({"conditions": [condition("Ready", "Unknown", "LookFailed", "unavailable: no", NOW)]}))
        .event("LookFailed").failed(Code::Unavailable, "no");

rug_08_a_vm_that_is_gone_is_made_anew:
    at("ALIVE", "P", "C").takes("08", "CREATE_VM").vm("D").writes(json!({"instance": null}));

rug_08_a_configured_vm_that_falls_silent_is_made_anew_however_young:
    at("ALIVE", "P", "C").silent(10)
        .takes("08", "CREATE_VM").vm("D").explains("NotAlive", "the VM does not answer any more");

rug_08_a_configured_vm_in_error_is_made_anew:
    at("ALIVE", "P", "C").in_error()
        .takes("08", "CREATE_VM").vm("D").event("InstanceFailed").explains("InstanceFailed", NO_HOST);

rug_09_an_update_configures_a_configured_vm:
    at("ALIVE", "U", "C").there().takes("09", "CONFIG");

rug_09_a_creation_configures_a_vm_that_is_up:
    at("ALIVE", "C", "U").there().takes("09", "CONFIG");

rug_10_the_traffic_of_a_configured_vm_is_read:
    at("ALIVE", "R", "C").there().takes("10", "STATS");

rug_11_a_healthy_poll_does_nothing_and_forgets_the_attempts:
    at("ALIVE", "P", "C").with(json!({"bootAttempts": 3})).there()
        .rests("11").writes(json!({"bootAttempts": 0}));

rug_11_literally_a_poll_leaves_a_vm_unconfigured:
    at("ALIVE", "P", "U").config(json!({"pollConfiguresUp": false})).there().rests("11");

rug_12_a_router_that_is_gone_from_the_network_service_is_stopped:
    at("ALIVE", "P", "C").there().lacks("router.resource")
        .takes("12", "STOP_VM").vm("G").says(condition("Ready", "False", "Stopping", "", NOW));

rug_17_a_new_vm_that_answers_is_configured:
    at("CHECK_BOOT", "C", "B").there().takes("17", "CONFIG").vm("U");

rug_18_a_vm_that_still_boots_is_asked_again_with_the_action_at_the_front:
    at("CHECK_BOOT", "C", "B").queue(["R"]).silent(599)
        .takes_slowly("18", "CALC_ACTION").writes(json!({"queue": ["C", "R"]}));

rug_18_an_action_that_is_at_the_front_already_is_there_once:
    at("CHECK_BOOT", "C", "B").queue(["C"]).silent(10).takes_slowly("18", "CALC_ACTION");

rug_18_a_vm_that_nobody_can_reach_yet_boots:
    at("CHECK_BOOT", "C", "B")
        .answers("router.get", {
            let mut instance = instance("BUILD", 5);
            instance["managed"] = false.into();
            instance
        })
        .takes_slowly("18", "CALC_ACTION").writes(json!({"queue": ["C"]}));

rug_18_a_vm_that_is_configured_already_is_left_to_calc_action:
    at("CHECK_BOOT", "C", "C").there().takes_slowly("18", "CALC_ACTION").writes(json!({"queue": ["C"]}));

rug_19_a_vm_that_does_not_boot_in_time_is_taken_down:
    at("CHECK_BOOT", "C", "B").silent(600)
        .takes("19", "STOP_VM").vm("D").explains("BootTimeout", "the VM does not answer after 10m");

rug_19_a_vm_that_cannot_be_built_is_taken_down_at_once:
    at("CHECK_BOOT", "C", "B").in_error()
        .takes("19", "STOP_VM").vm("D").event("InstanceFailed").explains("InstanceFailed", NO_HOST);

rug_19_a_vm_that_vanished_while_it_booted_is_made_anew_by_way_of_stop:
    at("CHECK_BOOT", "C", "B")
        .takes("19", "STOP_VM").vm("D").writes(json!({"instance": null}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_19_a_router_that_vanished_while_its_vm_booted_is_stopped:
    at("CHECK_BOOT", "C", "B").there().lacks("router.resource")
        .takes("19", "STOP_VM").vm("G").says(condition("Ready", "False", "Stopping", "", NOW));

rug_x04_a_vm_is_configured_before_its_traffic_is_read:
    at("ALIVE", "R", "U").there().takes("X04", "CONFIG");

rug_x05_a_vm_that_boots_again_is_waited_for:
    at("ALIVE", "U", "U").silent(100)
        .takes("X05", "CALC_ACTION").vm("B").writes(json!({"queue": ["U"]}));

rug_x05_a_vm_that_needs_other_networks_goes_to_config_which_finds_that_out:
    at("ALIVE", "U", "H").there().takes("X05", "CONFIG");

rug_x06_a_poll_configures_a_vm_that_is_only_up:
    at("ALIVE", "P", "U").there().takes("X06", "CONFIG");

rug_x07_a_new_vm_that_needs_other_networks_is_replugged:
    at("CHECK_BOOT", "C", "H").there().takes("X07", "REPLUG_VM");

a_failure_to_look_changes_nothing_and_looks_again:
    at("ALIVE", "P", "C").there().fails("router.alive", Code::Unavailable).stumbles(Code::Unavailable);

a_failure_that_goes_on_is_written_once:
    at("ALIVE", "P", "C").there().fails("router.alive", Code::Unavailable)
        .with(json!({"conditions": [condition("Ready", "Unknown", "LookFailed", "unavailable: request 1", EARLIER)]}))
        .failed(Code::Unavailable, "no");

a_network_service_that_cannot_be_asked_has_not_lost_the_router:
    at("ALIVE", "P", "C").there().fails("router.resource", Code::Unavailable).stumbles(Code::Unavailable);

}
