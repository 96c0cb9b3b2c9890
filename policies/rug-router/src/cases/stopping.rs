//! STOP_VM, REBUILD_VM and EXIT: RUG-28 to RUG-31, RUG-X09, RUG-X10, RUG-X12.

use super::*;

/// A router whose VM is being stopped.
fn stopping(state: &str, action: &str, vm: &str) -> Case {
    at(state, action, vm).with(json!({"conditions": [condition("Ready", "False", "Stopping", "", EARLIER)]}))
}

/// The VM is removed at once.
fn goes(case: Case) -> Case {
    case.there()
        .answers("router.delete ", json!({}))
        .answers("router.delete-ports", json!({}))
        .lacks(r#"router.get {"name":"r-1","id":"vm-1"} (round 1)"#)
}

/// The VM is removed only after a while.
fn lingers(case: Case) -> Case {
    case.there()
        .answers("router.delete ", json!({}))
        .answers("router.delete-ports", json!({}))
        .answers(
            r#"router.get {"name":"r-1","id":"vm-1"} (round 1)"#,
            instance("DELETING", 3_600),
        )
}

fn rebuilding() -> Case {
    stopping("REBUILD_VM", "E", "C").with(json!({"ports": [MAC], "bootAttempts": 2}))
}

polity_sdk::cases! { $ each_stopping_case of rug_router::cases::stopping;

rug_28_a_vm_that_is_to_be_rebuilt_is_told_to_go:
    lingers(rebuilding()).acts([DELETE_PORTS, DELETE])
        .takes_slowly("28", "REBUILD_VM").writes(json!({"ports": [], "bootAttempts": 0}));

rug_28_and_waited_for:
    stopping("REBUILD_VM", "E", "C").answers("router.get", instance("DELETING", 60))
        .takes_slowly("28", "REBUILD_VM");

rug_29_then_another_one_is_made:
    goes(rebuilding()).acts([DELETE_PORTS, DELETE])
        .takes("29", "CREATE_VM").vm("D")
        .writes(json!({"ports": [], "bootAttempts": 0, "instance": null, "action": "C"}));

rug_30_a_vm_that_had_to_be_stopped_is_made_anew:
    goes(stopping("STOP_VM", "U", "R")).acts([DELETE])
        .takes("30", "CREATE_VM").vm("D").writes(json!({"instance": null}));

rug_30_its_ports_are_given_back_even_if_it_is_gone:
    stopping("STOP_VM", "U", "D").with(json!({"ports": [MAC]})).answers("router.delete-ports", json!({}))
        .acts([DELETE_PORTS])
        .takes("30", "CREATE_VM").vm("D").writes(json!({"ports": []}));

rug_31_a_router_that_is_deleted_ends_with_its_vm:
    goes(stopping("STOP_VM", "D", "C").queue(["D"]).deleting()).acts([DELETE])
        .takes("31", "EXIT").vm("D").writes(json!({"instance": null}));

rug_31_a_router_that_is_gone_ends_although_nobody_deleted_it:
    goes(stopping("STOP_VM", "P", "G")).acts([DELETE])
        .takes("31", "EXIT").vm("G").writes(json!({"instance": null, "action": "D"}));

rug_x09_a_rebuild_of_a_router_that_is_gone_ends_it:
    goes(rebuilding().lacks("router.resource")).lacks("router.resource").acts([DELETE_PORTS, DELETE])
        .takes("X09", "EXIT").vm("G")
        .writes(json!({"ports": [], "bootAttempts": 0, "instance": null, "action": "D"}));

rug_28_but_not_before_its_vm_is_gone:
    lingers(stopping("REBUILD_VM", "E", "G")).lacks("router.resource").acts([DELETE])
        .takes_slowly("28", "REBUILD_VM");

rug_x10_a_vm_takes_its_time_to_go:
    lingers(stopping("STOP_VM", "D", "C").queue(["D"]).deleting()).acts([DELETE])
        .takes_slowly("X10", "STOP_VM");

rug_x10_a_vm_that_goes_is_not_told_again:
    stopping("STOP_VM", "D", "C").queue(["D"]).with(json!({"ports": [MAC]})).deleting()
        .answers("router.get", instance("DELETING", 60))
        .takes_slowly("X10", "STOP_VM");

rug_x10_a_cloud_that_cannot_delete_is_asked_again:
    stopping("STOP_VM", "D", "C").queue(["D"]).deleting().there().fails("router.delete ", Code::Internal)
        .acts([DELETE])
        .takes_failed("X10", "STOP_VM", Code::Internal, "no").event("DeleteFailed").explains("DeleteFailed", "no");

rug_x10_a_vm_that_is_believed_to_be_down_and_is_not_is_never_let_go_of:
    lingers(stopping("STOP_VM", "D", "D").with(json!({"instance": "vm-1"})).queue(["D"]).deleting()).acts([DELETE])
        .takes_slowly("X10", "STOP_VM");

rug_x10_nor_is_that_of_a_router_that_is_gone:
    lingers(stopping("STOP_VM", "P", "G")).acts([DELETE])
        .takes_slowly("X10", "STOP_VM");

rug_x12_the_router_is_let_go_of:
    at("EXIT", "D", "D").queue(["D"]).deleting().released().notes("X12");

rug_x12_what_comes_later_changes_nothing:
    at("EXIT", "D", "G").edited(|object| {
        object["metadata"]["finalizers"] = json!([]);
        object["metadata"]["generation"] = 7.into();
        object["metadata"]["annotations"] = json!({"request.polity.dev/read": "1", "request.polity.dev/rebuild": "2"});
    })
        .notes("X12");

}
