//! CREATE_VM and boots in doubt: RUG-13 to RUG-16, RUG-X11, RUG-X13, RUG-X15, RUG-X16.

use polity_sdk::Effect;

use super::*;

fn without_a_vm() -> Case {
    at("CREATE_VM", "C", "D")
}

fn booted() -> Value {
    json!({"instance": "vm-1", "bootAttempts": 1, "ports": [MAC]})
}

polity_sdk::cases! { $ each_booting_case of rug_router::cases::booting;

rug_13_a_vm_is_booted:
    without_a_vm().answers("router.boot", json!({"id": "vm-1"}))
        .acts([BOOT])
        .takes("13", "CHECK_BOOT").vm("B").writes(booted());

rug_13_a_rebuild_names_its_own_image:
    without_a_vm().with(json!({"rebuildImageUUID": "image-2"})).answers("router.boot", json!({"id": "vm-1"}))
        .acts([concat!(
            r#"router.boot {"name":"r-1","image":"image-2","flavor":"small","#,
            r#""ports":[{"network":"net-1","mac":"fa:16:3e:00:00:01"}]}"#
        )])
        .takes("13", "CHECK_BOOT").vm("B").writes(booted());

rug_13_a_port_that_only_the_vm_before_had_is_given_back_first:
    without_a_vm().with(json!({"ports": [MAC, SECOND_MAC]}))
        .answers("router.delete-ports", json!({})).answers("router.boot", json!({"id": "vm-1"}))
        .acts([DELETE_PORTS, BOOT])
        .takes("13", "CHECK_BOOT").vm("B").writes(booted());

rug_13_a_port_that_cannot_be_given_back_is_kept_in_mind_and_nothing_is_booted:
    without_a_vm().with(json!({"ports": [MAC, SECOND_MAC]})).fails("router.delete-ports", Code::Unavailable)
        .acts([DELETE_PORTS])
        .stumbles(Code::Unavailable);

rug_13_a_vm_is_booted_again_with_the_ports_of_the_one_before:
    without_a_vm().with(json!({"ports": [MAC]})).answers("router.boot", json!({"id": "vm-1"}))
        .acts([BOOT])
        .takes("13", "CHECK_BOOT").vm("B").writes(json!({"instance": "vm-1", "bootAttempts": 1}));

rug_13_a_vm_that_is_being_made_is_waited_for:
    without_a_vm().with(json!({"instance": "vm-1"})).answers("router.get", instance("BUILD", 5))
        .takes("13", "CHECK_BOOT").vm("B");

rug_13_a_vm_that_nobody_knew_of_is_taken_over:
    without_a_vm().there().takes("13", "CHECK_BOOT").vm("B").writes(json!({"instance": "vm-1"}));

rug_13_a_vm_that_is_believed_to_be_up_is_not_replaced:
    at("CREATE_VM", "C", "U").there().takes("13", "CHECK_BOOT");

rug_14_no_vm_is_made_for_a_router_that_is_gone:
    without_a_vm().lacks("router.resource")
        .takes("14", "STOP_VM").vm("G").says(condition("Ready", "False", "Stopping", "", NOW));

rug_15_a_vm_that_was_booted_too_often_is_given_up_without_a_call:
    without_a_vm().with(json!({"bootAttempts": 5})).fails("router", Code::Internal)
        .rests("15").vm("E").event("BootedInVain")
        .writes(json!({"lastErrorTime": NOW, "action": "P"}));

rug_15_an_event_that_waits_is_looked_at_at_once:
    without_a_vm().with(json!({"bootAttempts": 2})).config(json!({"rebootErrorThreshold": 2})).queue(["R"])
        .takes("15", "CALC_ACTION").vm("E").event("BootedInVain")
        .writes(json!({"lastErrorTime": NOW, "action": "P"}));

rug_16_a_boot_that_fails_is_tried_again:
    without_a_vm().fails("router.boot", Code::ResourceExhausted)
        .acts([BOOT])
        .takes_failed("16", "CREATE_VM", Code::ResourceExhausted, "no").writes(json!({"bootAttempts": 1}))
        .event("BootFailed").explains("BootFailed", "no");

rug_16_without_its_image_nothing_is_booted_and_it_counts_as_a_try:
    without_a_vm().lacks("image.get")
        .takes_failed("16", "CREATE_VM", Code::NotFound, "the image \"image-1\": no").writes(json!({"bootAttempts": 1}))
        .event("ImageNotFound").explains("ImageNotFound", "the image \"image-1\": no");

rug_16_an_image_that_belongs_to_others_is_none:
    without_a_vm().fails("image.get", Code::PermissionDenied)
        .takes_failed("16", "CREATE_VM", Code::PermissionDenied, "the image \"image-1\": no").writes(json!({"bootAttempts": 1}))
        .event("ImageDenied").explains("ImageDenied", "the image \"image-1\": no");

rug_16_a_vm_that_is_down_has_to_go_before_there_is_another_one:
    without_a_vm().with(json!({"instance": "vm-1", "bootAttempts": 3})).there().answers("router.delete", json!({}))
        .acts([DELETE])
        .takes_slowly("16", "CREATE_VM").writes(json!({"bootAttempts": 0}));

rug_16_a_vm_in_error_that_nobody_knew_of_is_removed_and_not_taken_over:
    without_a_vm().in_error().answers("router.delete", json!({}))
        .acts([DELETE])
        .takes_slowly("16", "CREATE_VM").writes(json!({"instance": "vm-1"}));

rug_16_a_vm_that_is_being_deleted_is_waited_for:
    without_a_vm().with(json!({"bootAttempts": 3})).answers("router.get", instance("DELETING", 900))
        .takes_slowly("16", "CREATE_VM").writes(json!({"bootAttempts": 0, "instance": "vm-1"}));

a_port_of_another_router_is_left_out_and_the_others_are_plugged_in:
    without_a_vm().edited(|object| object["spec"]["ports"] = json!([port("net-1", MAC), port("net-2", SECOND_MAC)]))
        .fails(r#"port.get {"network":"net-2""#, Code::PermissionDenied)
        .answers("router.boot", json!({"id": "vm-1"}))
        .acts([BOOT])
        .takes("13", "CHECK_BOOT").vm("B").writes(booted())
        .event("PortOfAnotherRouter")
        .writes(json!({"withheld": [SECOND_MAC], "conditions": [
            condition("Ready", "False", "Booting", "", EARLIER),
            condition(
                "PortsPlugged", "False", "PortOfAnotherRouter", "not plugged in: fa:16:3e:00:00:02", NOW,
            ),
        ]}));

a_boot_whose_answer_is_lost_does_not_count_yet:
    without_a_vm().loses("router.boot")
        .acts([BOOT])
        .says(condition("Ready", "Unknown", "LookFailed", "deadline-exceeded: no answer", NOW))
        .event("LookFailed")
        .next(Next::failed(RetryClass::Short, Failure {
            effect: Effect::Unknown,
            ..Failure::new(Code::DeadlineExceeded, "no answer")
        }));

a_boot_that_was_not_tried_does_not_count:
    without_a_vm().fails("router.boot", Code::Aborted).acts([BOOT]).stumbles(Code::Aborted)
        .fails_with(RetryClass::Conflict, Code::Aborted, "no");

rug_x11_a_vm_that_needs_other_networks_is_not_replaced:
    at("CREATE_VM", "C", "H").there().takes("X11", "CHECK_BOOT");

rug_x13_while_nobody_can_say_whether_it_boots_nothing_is_done:
    without_a_vm().in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("X13").explains("BootInDoubt", "the answer to the boot was lost, and the cloud cannot yet tell whether it runs")
        .next(Next::After(1_000));

rug_x13_not_even_a_deletion:
    without_a_vm().deleting().in_doubt(Resolution::Unknown("the cloud cannot say yet".to_owned()))
        .notes("X13").explains("BootInDoubt", "the answer to the boot was lost, and the cloud cannot yet tell whether it runs")
        .next(Next::After(1_000));

rug_x15_a_boot_in_doubt_that_was_performed_is_this_routers:
    without_a_vm().in_doubt(Resolution::Done(json!({"id": "vm-1"}).to_string()))
        .takes("X15", "CHECK_BOOT").vm("B").writes(booted());

rug_x15_of_a_router_that_is_being_deleted_too:
    without_a_vm().deleting().in_doubt(Resolution::Done(json!({"id": "vm-1"}).to_string()))
        .takes("X15", "CHECK_BOOT").vm("B").writes(booted());

rug_x15_of_a_router_that_somebody_debugs_too:
    without_a_vm().edited(|object| object["spec"]["debug"] = true.into())
        .in_doubt(Resolution::Done(json!({"id": "vm-1"}).to_string()))
        .takes("X15", "CHECK_BOOT").vm("B").writes(booted());

rug_x16_a_boot_in_doubt_that_was_not_performed_is_tried_again:
    without_a_vm().with(json!({"bootAttempts": 1})).in_doubt(Resolution::Absent)
        .takes_slowly("X16", "CREATE_VM").writes(json!({"bootAttempts": 2}))
        .event("BootFailed").explains("BootFailed", "the boot did not reach the cloud");

}
