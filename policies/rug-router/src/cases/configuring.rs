//! CONFIG and STATS: RUG-20 to RUG-23, RUG-26, RUG-X08.

use super::*;

fn configuring(action: &str) -> Case {
    at("CONFIG", action, "U").there()
}

/// A configuration that was submitted this many seconds ago, after this many refusals of the VM.
fn pushed(action: &str, ago: u64, failures: u32, task: Value) -> Case {
    let mut push = json!({"task": "task-1", "since": Time::from_unix_ms(NOW_MS - ago * 1_000)});
    if failures > 0 {
        push["failures"] = failures.into();
    }
    configuring(action)
        .with(json!({"push": push}))
        .answers("task.get", task)
}

fn failed_task() -> Value {
    json!({"id": "task-1", "state": "error", "kind": "push", "error": {"fault": "Refused", "message": "bad"}})
}

polity_sdk::cases! { $ each_configuring_case of rug_router::cases::configuring;

the_configuration_is_a_task:
    configuring("U").answers("config.push", json!({"task": "task-1"}))
        .acts([PUSH])
        .writes(json!({"push": {"task": "task-1", "since": NOW, "failures": 0}}))
        .next(Next::After(1_000));

a_configuration_that_is_under_way_is_waited_for:
    pushed("U", 89, 0, task("running")).next(Next::After(1_000));

rug_20_a_read_goes_on_once_the_vm_is_configured:
    pushed("R", 5, 0, task("success")).takes("20", "STATS").vm("C").writes(json!({"push": null}));

rug_21_anything_else_is_done:
    pushed("U", 5, 0, task("success")).rests("21").vm("C").writes(json!({"push": null, "action": "P"}));

rug_21_what_waits_goes_on_at_once:
    pushed("C", 5, 0, task("success")).queue(["R"])
        .takes("21", "CALC_ACTION").vm("C").writes(json!({"push": null, "action": "P"}));

rug_22_a_vm_with_too_few_networks_is_replugged:
    configuring("U").edited(|object| object["spec"]["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]))
        .takes("22", "REPLUG_VM").vm("H");

rug_22_a_vm_with_too_many_networks_as_well:
    configuring("U").edited(|object| object["spec"]["ports"] = json!([]))
        .takes("22", "REPLUG_VM").vm("H");

a_port_of_another_router_does_not_lead_to_a_replug:
    configuring("U").edited(|object| object["spec"]["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]))
        .answers(r#"port.get {"network":"net-2""#, json!({"router": "r-2"}))
        .answers("config.push", json!({"task": "task-1"}))
        .acts([PUSH])
        .event("PortOfAnotherRouter")
        .writes(json!({"push": {"task": "task-1", "since": NOW, "failures": 0}, "withheld": [SECOND_MAC], "conditions": [
            condition("Ready", "False", "Up", "", EARLIER),
            condition(
                "PortsPlugged", "False", "PortOfAnotherRouter", "not plugged in: fa:16:3e:00:00:02", NOW,
            ),
        ]}))
        .next(Next::After(1_000));

a_port_that_does_not_exist_does_not_either:
    configuring("U").edited(|object| object["spec"]["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]))
        .lacks(r#"port.get {"network":"net-2""#)
        .answers("config.push", json!({"task": "task-1"}))
        .acts([PUSH])
        .event("PortNotFound")
        .writes(json!({"push": {"task": "task-1", "since": NOW, "failures": 0}, "withheld": [SECOND_MAC], "conditions": [
            condition("Ready", "False", "Up", "", EARLIER),
            condition("PortsPlugged", "False", "PortNotFound", "not plugged in: fa:16:3e:00:00:02", NOW),
        ]}))
        .next(Next::After(1_000));

rug_23_a_vm_that_is_gone_is_made_anew_by_way_of_stop:
    at("CONFIG", "U", "U")
        .takes("23", "STOP_VM").vm("D").writes(json!({"instance": null}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

rug_23_a_router_that_is_gone_is_stopped:
    configuring("U").lacks("router.resource")
        .takes("23", "STOP_VM").vm("G").says(condition("Ready", "False", "Stopping", "", NOW));

a_configuration_that_is_refused_is_tried_again:
    pushed("U", 5, 1, failed_task())
        .writes(json!({"push": {"task": null, "since": null, "failures": 2}}))
        .event("ConfigRefused").explains("ConfigRefused", "Refused: bad")
        .failed(Code::FailedPrecondition, "Refused: bad");

rug_23_a_vm_that_refuses_its_configuration_three_times_is_made_anew:
    pushed("U", 5, 2, failed_task())
        .takes("23", "STOP_VM").vm("R").writes(json!({"push": null}))
        .event("ConfigRefused").explains("ConfigRefused", "Refused: bad");

a_configuration_that_takes_too_long_counts_as_refused:
    pushed("U", 90, 0, task("running"))
        .writes(json!({"push": {"task": null, "since": null, "failures": 1}}))
        .event("ConfigRefused")
        .explains("ConfigRefused", "the VM did not accept its configuration within 1m30s")
        .failed(Code::DeadlineExceeded, "the VM did not accept its configuration within 1m30s");

a_configuration_that_is_refused_at_once_counts_too:
    configuring("U").fails("config.push", Code::InvalidArgument)
        .acts([PUSH])
        .writes(json!({"push": {"task": null, "since": null, "failures": 1}}))
        .event("ConfigRefused").explains("ConfigRefused", "no")
        .failed(Code::InvalidArgument, "no");

a_cloud_that_cannot_be_told_has_refused_nothing:
    configuring("U").fails("config.push", Code::Unavailable).acts([PUSH]).stumbles(Code::Unavailable);

rug_x08_a_configuration_of_which_nothing_is_known_is_an_update_anew:
    pushed("R", 5, 0, task("running")).lacks("task.get")
        .takes_failed(
            "X08", "CALC_ACTION", Code::NotFound, "the task of the configuration has expired, so its result is not known",
        )
        .writes(json!({"push": null, "queue": ["U"]})).event("NoVerdict")
        .explains("NoVerdict", "the task of the configuration has expired, so its result is not known");

rug_x08_a_task_in_an_unknown_state_is_no_verdict:
    pushed("U", 5, 0, task("paused"))
        .takes_failed(
            "X08", "CALC_ACTION", Code::Internal, "the configuration is in the unknown state \"paused\"",
        )
        .writes(json!({"push": null, "queue": ["U"]})).event("NoVerdict")
        .explains("NoVerdict", "the configuration is in the unknown state \"paused\"");

rug_x08_a_vm_that_does_not_say_what_is_plugged_in_is_looked_at_first:
    at("CONFIG", "U", "C").silent(100).queue(["R"])
        .takes_failed("X08", "CALC_ACTION", Code::FailedPrecondition, "no")
        .vm("U").writes(json!({"queue": ["U", "R"]})).event("NoVerdict")
        .explains("NoVerdict", "no");

rug_26_the_traffic_is_written_down:
    at("STATS", "R", "C").answers("router.stats", json!({"traffic": [{"mac": MAC, "rxBytes": 1, "txBytes": 2}]}))
        .rests("26")
        .writes(json!({
            "action": "P", "trafficTime": NOW, "traffic": [{"mac": MAC, "rxBytes": 1, "txBytes": 2}],
        }));

rug_x17_a_vm_that_cannot_say_is_not_asked_for_ever:
    at("STATS", "R", "C").lacks("router.stats").rests("X17").writes(json!({"action": "P"})).event("StatsFailed");

traffic_that_cannot_be_asked_for_now_is_asked_for_again:
    at("STATS", "R", "C").fails("router.stats", Code::Unavailable).stumbles(Code::Unavailable);

}
