//! Cases of events: what happened to a router, as letters in its queue.

use super::*;

fn resting() -> Case {
    at("CALC_ACTION", "P", "C")
}

fn annotated(annotations: Value) -> Case {
    resting().edited(|object| object["metadata"]["annotations"] = annotations)
}

/// A working router with its condition, and another condition.
fn with_condition(case: Case, other: Value) -> Case {
    case.writes(json!({"conditions": [condition("Ready", "True", "Configured", "", EARLIER), other]}))
}

polity_sdk::cases! { $ each_events_case of rug_router::cases::events;

a_changed_spec_is_an_update:
    resting().edited(|object| object["metadata"]["generation"] = 2.into())
        .takes("02", "ALIVE").writes(json!({"action": "U", "observedGeneration": 2}));

a_time_that_has_come_is_a_poll:
    resting().with(json!({"nextPoll": NOW})).takes("02", "ALIVE");

a_clock_that_was_set_back_delays_no_poll_for_more_than_a_period:
    resting().with(json!({"nextPoll": "2026-06-01T00:00:00Z"})).next(Next::Settled(Some(60_000)));

a_nonce_that_is_new_is_a_read:
    annotated(json!({"request.polity.dev/read": "1"}))
        .takes("02", "ALIVE").writes(json!({"action": "R", "readRequest": "1"}));

a_nonce_that_was_taken_is_none:
    annotated(json!({"request.polity.dev/read": "1", "request.polity.dev/rebuild": "2"}))
        .with(json!({"readRequest": "1", "rebuildRequest": "2"}))
        .next(Next::Settled(Some(40_000)));

a_request_for_a_rebuild_may_name_an_image:
    annotated(json!({"request.polity.dev/rebuild": "1", "rug.polity.dev/rebuild-image": "image-2"}))
        .takes("05", "REBUILD_VM")
        .writes(json!({"action": "E", "rebuildRequest": "1", "rebuildImageUUID": "image-2"}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

the_next_rebuild_without_one_is_from_the_image_of_the_spec_again:
    annotated(json!({"request.polity.dev/rebuild": "2"}))
        .with(json!({"rebuildRequest": "1", "rebuildImageUUID": "image-2"}))
        .takes("05", "REBUILD_VM")
        .writes(json!({"action": "E", "rebuildRequest": "2", "rebuildImageUUID": null}))
        .says(condition("Ready", "False", "Stopping", "", NOW));

a_rebuild_from_an_image_that_is_missing_takes_nothing_down:
    with_condition(
        annotated(json!({"request.polity.dev/rebuild": "1", "rug.polity.dev/rebuild-image": "image-2"}))
            .lacks(r#"image.get {"image":"image-2"}"#).event("ImageNotFound").next(Next::Settled(Some(40_000))),
        condition("RebuildTaken", "False", "ImageNotFound", "the image \"image-2\": no", NOW),
    );

nor_does_one_from_an_image_that_belongs_to_others:
    with_condition(
        annotated(json!({"request.polity.dev/rebuild": "1"}))
            .fails("image.get", Code::PermissionDenied).event("ImageDenied").next(Next::Settled(Some(40_000))),
        condition("RebuildTaken", "False", "ImageDenied", "the image \"image-1\": no", NOW),
    );

nor_does_one_from_an_image_that_nobody_can_look_for:
    with_condition(
        annotated(json!({"request.polity.dev/rebuild": "1"}))
            .fails("image.get", Code::Unavailable).event("LookFailed").next(Next::Settled(Some(40_000))),
        condition("RebuildTaken", "False", "LookFailed", "the image \"image-1\": no", NOW),
    );

all_events_of_a_pass_come_in_their_order:
    at("CONFIG", "P", "U")
        .with(json!({"push": {"task": "task-1", "since": NOW}})).there().answers("task.get", task("running"))
        .deleting()
        .edited(|object| {
            object["metadata"]["generation"] = 2.into();
            object["metadata"]["annotations"] =
                json!({"request.polity.dev/read": "1", "request.polity.dev/rebuild": "2"});
        })
        .writes(json!({
            "observedGeneration": 2, "readRequest": "1", "rebuildRequest": "2", "queue": ["U", "E", "R", "D"],
        }))
        .next(Next::After(1_000));

an_event_behind_an_equal_one_is_left_out:
    at("CHECK_BOOT", "C", "B").queue(["U"]).silent(10)
        .edited(|object| object["metadata"]["generation"] = 2.into())
        .takes_slowly("18", "CALC_ACTION").writes(json!({"queue": ["C", "U"], "observedGeneration": 2}));

a_long_queue_is_reported:
    at("CALC_ACTION", "P", "C").config(json!({"queueWarningThreshold": 2})).queue(["R", "U", "R"])
        .takes("02", "ALIVE").writes(json!({"action": "R", "queue": ["U", "R"]}))
        .event("QueueTooLong");

a_port_that_has_become_free_is_plugged_in_as_a_change_would_be:
    resting().with(json!({"nextPoll": NOW, "withheld": [MAC]}))
        .takes("02", "ALIVE").writes(json!({"action": "U"}));

a_port_that_is_still_another_routers_is_not:
    resting().with(json!({"nextPoll": NOW, "withheld": [MAC]})).fails("port.get", Code::PermissionDenied)
        .takes("02", "ALIVE");

while_somebody_debugs_the_router_nothing_is_asked_or_done:
    with_condition(
        resting().with(json!({"nextPoll": EARLIER}))
            .edited(|object| {
                object["spec"]["debug"] = true.into();
                object["spec"]["debugReason"] = "tcpdump".into();
                object["metadata"]["generation"] = 2.into();
            })
            .fails("", Code::Internal),
        condition("Debugging", "True", "Debug", "tcpdump", NOW),
    );

what_is_requested_meanwhile_is_dropped:
    with_condition(
        annotated(json!({"request.polity.dev/read": "1", "request.polity.dev/rebuild": "2"}))
            .config(json!({"debugTenants": ["team"]}))
            .writes(json!({"readRequest": "1", "rebuildRequest": "2"})),
        condition("Debugging", "True", "Debug", "", NOW),
    );

all_routers_can_be_debugged_at_once:
    with_condition(
        resting().config(json!({"debug": true, "debugReason": "upgrade"})),
        condition("Debugging", "True", "Debug", "upgrade", NOW),
    );

after_debugging_a_changed_spec_is_found:
    resting().config(json!({"debugTenants": ["other"]}))
        .edited(|object| {
            object["metadata"]["generation"] = 2.into();
            let debugging = condition("Debugging", "True", "Debug", "", EARLIER);
            object["status"]["conditions"].as_array_mut().expect("a list").push(debugging);
        })
        .takes("02", "ALIVE").writes(json!({"action": "U", "observedGeneration": 2}))
        .writes(json!({"conditions": [condition("Ready", "True", "Configured", "", EARLIER)]}));

}
