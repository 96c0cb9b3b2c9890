//! REPLUG_VM: RUG-24, RUG-25, RUG-X14.

use super::*;

const ATTACH: &str = r#"port.attach {"id":"vm-1","network":"net-2","mac":"fa:16:3e:00:00:02"}"#;
const REFUSED: &str = r#"port.attach {"id":"vm-1","network":"net-3","mac":"fa:16:3e:00:00:03"}"#;
const DETACH: &str = r#"port.detach {"id":"vm-1","network":"net-1","mac":"fa:16:3e:00:00:01"}"#;

/// A router that needs a second network. The VM has had this many seconds to show it.
fn replugging(ago: u64) -> Case {
    at("REPLUG_VM", "U", "H")
        .there()
        .edited(|object| object["spec"]["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]))
        .with(json!({"plugSince": Time::from_unix_ms(NOW_MS - ago * 1_000), "ports": [MAC]}))
}

/// The same router after its first pass of plugging.
fn plugging(ago: u64) -> Case {
    replugging(ago).with(json!({"plugging": true}))
}

/// The same router, if no request was answered yet. Until then the cloud may go on with one.
fn in_doubt(until: &str) -> Case {
    plugging(0).with(json!({"plugSince": until}))
}

fn both() -> Value {
    let mut instance = instance("ACTIVE", 3_600);
    instance["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]);
    instance
}

fn left() -> Value {
    json!({"plugSince": null, "plugging": false})
}

polity_sdk::cases! { $ each_plugging_case of rug_router::cases::plugging;

rug_x14_it_begins_by_writing_down_what_will_be_plugged:
    replugging(0).with(json!({"plugSince": null}))
        .takes_slowly("X14", "REPLUG_VM")
        .writes(json!({"plugging": true, "plugSince": IN_A_MINUTE, "ports": [MAC, MAC, SECOND_MAC]}));

rug_x14_a_missing_network_is_plugged_in:
    in_doubt(IN_A_MINUTE).answers("port.attach", json!({}))
        .acts([ATTACH])
        .takes_slowly("X14", "REPLUG_VM").writes(json!({"plugSince": null}));

rug_x14_a_network_too_many_is_plugged_out:
    in_doubt(IN_A_MINUTE).edited(|object| object["spec"]["ports"] = json!([port("net-2", SECOND_MAC)]))
        .answers("port.attach", json!({})).answers("port.detach", json!({}))
        .acts([ATTACH, DETACH])
        .takes_slowly("X14", "REPLUG_VM").writes(json!({"plugSince": null}));

rug_x14_the_time_of_the_vm_begins_with_the_answer:
    plugging(0).with(json!({"plugSince": null})).answers("router.get", both())
        .takes_slowly("X14", "REPLUG_VM").writes(json!({"plugSince": NOW}));

rug_x14_the_time_of_the_vm_begins_once:
    plugging(9).answers("port.attach", json!({}))
        .acts([ATTACH])
        .takes_slowly("X14", "REPLUG_VM");

rug_x14_what_was_plugged_in_is_waited_for:
    plugging(9).answers("router.get", both()).takes_slowly("X14", "REPLUG_VM");

rug_x14_a_vm_that_does_not_answer_meanwhile_is_waited_for:
    replugging(9).fails("router.interfaces", Code::Unavailable).takes_slowly("X14", "REPLUG_VM");

rug_x14_what_may_be_plugged_in_all_the_same_is_waited_for:
    in_doubt(SOON).loses("port.attach").acts([ATTACH]).takes_slowly("X14", "REPLUG_VM");

rug_x14_what_may_be_plugged_in_is_looked_for_although_another_attach_is_refused:
    in_doubt(SOON)
        .edited(|object| object["spec"]["ports"] = json!([
            port("net-1", MAC), port("net-2", SECOND_MAC), port("net-3", "fa:16:3e:00:00:03"),
        ]))
        .loses("port.attach").fails(REFUSED, Code::Internal)
        .acts([ATTACH, REFUSED])
        .takes_slowly("X14", "REPLUG_VM");

rug_x14_an_attach_for_which_no_time_was_left_is_begun_again:
    plugging(9).fails("port.attach", Code::Aborted).acts([ATTACH]).takes_slowly("X14", "REPLUG_VM");

rug_25_what_may_be_plugged_in_is_looked_for_and_not_sent_again_before_the_vm_is_made_anew:
    plugging(10).loses("port.attach")
        .takes("25", "STOP_VM").vm("R").writes(left()).event("ReplugFailed")
        .explains("ReplugFailed", "the VM does not show its networks after 10s");

rug_24_the_vm_shows_its_networks:
    plugging(5).answers("router.get", both()).answers("router.interfaces", interfaces(&[SECOND_MAC, MAC]))
        .takes("24", "CONFIG").writes(left()).writes(json!({"ports": [MAC, SECOND_MAC]}));

rug_25_a_vm_that_is_not_as_the_cloud_knows_it_is_made_anew:
    replugging(0).answers("router.interfaces", interfaces(&[MAC, SECOND_MAC]))
        .takes("25", "STOP_VM").vm("R").writes(json!({"plugSince": null})).event("ReplugFailed")
        .explains("ReplugFailed", "the cloud and the VM show different ports");

rug_25_a_vm_that_cannot_be_plugged_is_made_anew:
    plugging(1).fails("port.attach", Code::Internal)
        .acts([ATTACH])
        .takes("25", "STOP_VM").vm("R").writes(left()).event("ReplugFailed").explains("ReplugFailed", "no");

rug_25_a_vm_that_does_not_show_its_networks_in_time_is_made_anew:
    plugging(10).answers("router.get", both())
        .takes("25", "STOP_VM").vm("R").writes(left()).event("ReplugFailed")
        .explains("ReplugFailed", "the VM does not show its networks after 10s");

rug_25_a_vm_that_is_gone_is_made_anew:
    plugging(1).lacks("router.get")
        .takes("25", "STOP_VM").vm("R").writes(left()).event("ReplugFailed")
        .explains("ReplugFailed", "the VM is gone");

a_port_that_another_router_got_first_is_no_reason_to_take_the_vm_down:
    plugging(1).fails("port.attach", Code::PermissionDenied)
        .acts([ATTACH])
        .takes("24", "CONFIG").writes(left()).event("PortOfAnotherRouter")
        .writes(json!({"withheld": [SECOND_MAC], "conditions": [
            condition("Ready", "False", "HotplugNeeded", "", EARLIER),
            condition(
                "PortsPlugged", "False", "PortOfAnotherRouter", "not plugged in: fa:16:3e:00:00:02", NOW,
            ),
        ]}));

a_port_that_is_plugged_in_already_is_no_failure:
    plugging(1).fails("port.attach", Code::AlreadyExists).acts([ATTACH]).takes_slowly("X14", "REPLUG_VM");

}
