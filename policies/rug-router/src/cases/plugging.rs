//! REPLUG_VM: RUG-24, RUG-25, RUG-X14.

use super::*;

const ATTACH: &str = r#"port.attach {"id":"vm-1","network":"net-2","mac":"fa:16:3e:00:00:02"}"#;
const DETACH: &str = r#"port.detach {"id":"vm-1","network":"net-1","mac":"fa:16:3e:00:00:01"}"#;

/// A router that needs a second network. Plugging began this many seconds ago.
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
    replugging(0)
        .takes_slowly("X14", "REPLUG_VM").writes(json!({"plugging": true, "ports": [MAC, MAC, SECOND_MAC]}));

rug_x14_a_missing_network_is_plugged_in:
    plugging(1).answers("port.attach", json!({}))
        .acts([ATTACH])
        .takes_slowly("X14", "REPLUG_VM");

rug_x14_a_network_too_many_is_plugged_out:
    plugging(1).edited(|object| object["spec"]["ports"] = json!([port("net-2", SECOND_MAC)]))
        .answers("port.attach", json!({})).answers("port.detach", json!({}))
        .acts([ATTACH, DETACH])
        .takes_slowly("X14", "REPLUG_VM");

rug_x14_what_was_plugged_in_is_waited_for:
    plugging(9).answers("router.get", both()).takes_slowly("X14", "REPLUG_VM");

rug_x14_a_vm_that_does_not_answer_meanwhile_is_waited_for:
    replugging(9).fails("router.interfaces", Code::Unavailable).takes_slowly("X14", "REPLUG_VM");

rug_x14_what_may_be_plugged_in_all_the_same_is_waited_for:
    plugging(9).loses("port.attach").acts([ATTACH]).takes_slowly("X14", "REPLUG_VM");

rug_25_what_may_be_plugged_in_and_does_not_show_in_time_is_made_anew:
    plugging(10).loses("port.attach").acts([ATTACH])
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
