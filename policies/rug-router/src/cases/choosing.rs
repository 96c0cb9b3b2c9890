//! CALC_ACTION and CLEAR_ERROR: RUG-02 to RUG-07, RUG-27, RUG-X01 to RUG-X03.

use super::*;

/// The machine rests, and this event arrives.
fn resting(event: &str, vm: &str) -> Case {
    at("CALC_ACTION", "P", vm).queue([event])
}

/// The VM was given up this many seconds ago.
fn given_up(event: &str, ago: u64) -> Case {
    let then = Time::from_unix_ms(NOW_MS - ago * 1_000);
    resting(event, "E").with(json!({"bootAttempts": 5, "lastErrorTime": then}))
}

polity_sdk::cases! { $ each_choosing_case of rug_router::cases::choosing;

rug_02_an_update_of_a_configured_vm_looks_whether_it_is_alive:
    resting("U", "C").takes("02", "ALIVE").writes(json!({"queue": [], "action": "U"}));

rug_02_a_read_of_a_vm_that_is_up_as_well:
    resting("R", "U").takes("02", "ALIVE").writes(json!({"queue": [], "action": "R"}));

rug_02_many_events_are_one_action_and_what_it_does_not_deal_with_waits:
    at("CALC_ACTION", "P", "C").queue(["U", "U", "C", "P", "U", "R"])
        .takes("02", "ALIVE").writes(json!({"queue": ["R"], "action": "C"}));

rug_03_a_new_router_without_a_vm_gets_one:
    resting("C", "D").takes("03", "CREATE_VM").writes(json!({"queue": [], "action": "C"}));

rug_03_a_poll_finds_no_vm_either:
    resting("P", "D").takes("03", "CREATE_VM").writes(json!({"queue": []}));

rug_04_a_vm_that_boots_is_waited_for:
    resting("C", "B").takes("04", "CHECK_BOOT").writes(json!({"queue": [], "action": "C"}));

rug_05_a_rebuild_takes_the_vm_down_first:
    resting("E", "C").takes("05", "REBUILD_VM").writes(json!({"queue": [], "action": "E"}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_05_a_rebuild_wins_over_an_update_that_waited:
    at("CALC_ACTION", "P", "C").queue(["U", "E", "R"])
        .takes("05", "REBUILD_VM").writes(json!({"queue": ["R"], "action": "E"}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_06_a_deletion_wins_over_everything_and_stays_in_the_queue:
    at("CALC_ACTION", "P", "C").queue(["U", "E", "D"])
        .takes("06", "STOP_VM").writes(json!({"action": "D"}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_06_a_router_that_is_gone_is_stopped_whatever_is_asked:
    resting("E", "G").takes("06", "STOP_VM").writes(json!({"queue": [], "action": "E"}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_07_after_the_cooldown_an_update_clears_the_error:
    given_up("U", 30).takes("07", "CLEAR_ERROR").writes(json!({"queue": [], "action": "U"}));

rug_07_a_deletion_does_not_wait_for_the_cooldown:
    given_up("D", 1).takes("07", "CLEAR_ERROR").writes(json!({"action": "D"}));

rug_27_the_error_is_forgotten_and_the_action_goes_on_at_once:
    at("CLEAR_ERROR", "U", "E").with(json!({"bootAttempts": 5}))
        .takes("27", "CALC_ACTION").vm("D")
        .writes(json!({"bootAttempts": 0, "queue": ["U"]}));

rug_27_a_deletion_is_in_the_queue_already:
    at("CLEAR_ERROR", "D", "E").queue(["U", "D"]).with(json!({"bootAttempts": 5}))
        .takes("27", "CALC_ACTION").vm("D")
        .writes(json!({"bootAttempts": 0}));

rug_x01_a_poll_of_a_vm_that_was_given_up_is_dropped:
    given_up("P", 3_600).rests("X01").writes(json!({"queue": []}));

rug_x02_an_update_during_the_cooldown_waits_for_its_end:
    given_up("U", 10).takes("X02", "CALC_ACTION").writes(json!({"action": "U"}))
        .next(Next::After(20_000));

rug_x02_a_clock_that_was_set_back_does_not_prolong_the_cooldown:
    given_up("U", 0).with(json!({"lastErrorTime": "2026-06-01T00:00:00Z"}))
        .takes("X02", "CALC_ACTION").writes(json!({"action": "U"}))
        .next(Next::After(30_000));

rug_x03_a_vm_that_needs_a_restart_is_looked_at:
    resting("U", "R").takes("X03", "ALIVE").writes(json!({"queue": [], "action": "U"}));

rug_x03_so_is_one_that_needs_other_networks:
    resting("P", "H").takes("X03", "ALIVE").writes(json!({"queue": []}));

with_nothing_in_the_queue_nothing_is_done:
    at("CALC_ACTION", "U", "C").next(Next::Settled(Some(40_000)));

with_nothing_in_the_queue_a_vm_that_was_given_up_is_left_alone:
    at("CALC_ACTION", "P", "E").with(json!({"nextPoll": EARLIER})).next(Next::Settled(Some(60_000)));

}
