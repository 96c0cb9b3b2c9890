//! Tests of boots whose answer was lost.

use polity_driver_openstack::OpenStack;
use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Code, Finding, failure};
use serde_json::{Value, json};

use crate::bench::{Bench, NOW, boot, untold};

fn found(id: &str) -> Finding {
    Finding::Found(json!({"id": id}).to_string())
}

#[test]
fn a_boot_that_arrived_is_found_by_its_name_owner_and_key() {
    let mut bench = Bench::new();
    bench.cloud().lost.push("POST servers".to_owned());
    let lost = bench.failure("router.boot", boot("edge", &[]));
    assert_eq!(lost.code, Code::Unavailable);
    let id = bench.cloud().servers[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(bench.resolve("edge"), found(&id));
    assert_eq!(bench.play.sent.len(), 1, "what is found needs no second look");
    for (status, task_state) in [("ERROR", Value::Null), ("ACTIVE", json!("deleting"))] {
        bench.cloud().row(&id)["status"] = json!(status);
        bench.cloud().row(&id)["OS-EXT-STS:task_state"] = task_state;
        assert_eq!(
            bench.resolve("edge"),
            found(&id),
            "it was created, whatever it is now"
        );
    }
}

#[test]
fn a_boot_that_did_not_arrive_is_none_after_a_look_at_everything() {
    let mut bench = Bench::new();
    assert_eq!(bench.resolve("edge"), Finding::None);
    let paths: Vec<String> = bench
        .play
        .sent
        .iter()
        .map(|request| request.path.join("/"))
        .collect();
    assert_eq!(paths, ["v2.1/servers/detail", "v2.1/servers"]);
    assert!(
        bench.play.sent[1].query.is_empty(),
        "no filter, and no limit, which is one too"
    );
}

#[test]
fn servers_of_another_name_or_with_another_key_are_not_what_was_booted() {
    let mut bench = Bench::new();
    bench.cloud().server("edge-2");
    bench.cloud().server("EDGE");
    bench.cloud().server_of("edge", "owner-1", "tenant-1", "key-0");
    bench.cloud().server_of("edge", "owner-2", "tenant-1", "key-2");
    assert_eq!(bench.resolve("edge"), Finding::None);
}

#[test]
fn a_server_with_the_key_and_other_marks_leaves_the_boot_in_doubt() {
    for (owner, tenant) in [("owner-2", "tenant-1"), ("owner-1", "tenant-2"), ("", "")] {
        let mut bench = Bench::new();
        bench.cloud().server_of("edge", owner, tenant, "key-1");
        assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
    }
}

#[test]
fn a_server_without_marks_is_nobodys_only_if_it_is_too_old_or_had_time_for_them() {
    let mut bench = Bench::new();
    let id = bench.cloud().server_with("edge", json!({}));
    assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
    // The server is older than the boot by more than clocks may differ.
    for (created, is_told) in [("14:11:49Z", true), ("14:11:50Z", false), ("14:13:20Z", false)] {
        bench.cloud().row(&id)["created"] = json!(format!("2026-09-21T{created}"));
        let finding = bench.resolve("edge");
        assert_eq!(finding == Finding::None, is_told, "{created}: {finding:?}");
    }
    bench.cloud().row(&id)["created"] = json!("2026-09-21T14:12:50Z");
    for (later, is_told) in [(104_000, false), (106_000, true)] {
        bench.play.now = NOW + later;
        let finding = bench.resolve("edge");
        assert_eq!(finding == Finding::None, is_told, "{later}: {finding:?}");
    }
    // The server has only some marks of this object: the others were removed.
    bench.cloud().row(&id)["metadata"] = json!({"polity-owner": "owner-1", "polity-tenant": "tenant-1"});
    assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
}

#[test]
fn a_server_with_all_marks_that_is_older_than_the_boot_is_not_taken_for_it() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().row(&id)["created"] = json!("2026-09-21T14:11:49Z");
    assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
    bench.cloud().row(&id)["created"] = json!("2026-09-21T14:11:51Z");
    assert_eq!(bench.resolve("edge"), found(&id), "clocks differ");
    bench.play.config["clockSkewSeconds"] = json!(10);
    assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
}

#[test]
fn two_servers_with_the_key_leave_the_boot_in_doubt() {
    let mut bench = Bench::new();
    bench.cloud().server("edge");
    bench.cloud().server("edge");
    assert_eq!(untold(bench.resolve("edge")), Code::FailedPrecondition);
}

#[test]
fn a_filter_that_nova_drops_does_no_harm() {
    let mut bench = Bench::new();
    bench.cloud().ignores_filters = true;
    bench.cloud().server_of("other", "owner-1", "tenant-1", "key-1");
    assert_eq!(bench.resolve("edge"), Finding::None);
    let id = bench.cloud().server("edge");
    assert_eq!(bench.resolve("edge"), found(&id));
}

#[test]
fn any_server_of_a_cell_that_is_down_leaves_the_boot_in_doubt() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("other");
    bench.cloud().down.push(id);
    assert_eq!(untold(bench.resolve("edge")), Code::Unavailable);
    bench.cloud().ignores_filters = true;
    assert_eq!(untold(bench.resolve("edge")), Code::Unavailable);
    bench.cloud().down.clear();
    assert_eq!(bench.resolve("edge"), Finding::None);
}

#[test]
fn a_look_that_is_not_complete_leaves_the_boot_in_doubt() {
    let replies = [
        (
            Reply::lost(failure(Code::DeadlineExceeded, "too slow")),
            Code::DeadlineExceeded,
        ),
        (Reply::new(500, "<html><h1>oops</h1></html>"), Code::Internal),
        (Reply::new(503, "").header("retry-after", "7"), Code::Unavailable),
        (
            Reply::json(401, json!({"error": {"message": "no", "code": 401}})),
            Code::Unauthenticated,
        ),
        (
            Reply::json(404, json!({"itemNotFound": {"message": "no", "code": 404}})),
            Code::Unimplemented,
        ),
        (
            Reply::new(404, "<html><body>no such host</body></html>"),
            Code::Unavailable,
        ),
        (Reply::json(200, json!({})), Code::Internal),
        (Reply::json(200, json!({"servers": null})), Code::Internal),
        (Reply::json(200, json!({"servers": {}})), Code::Internal),
        (Reply::json(200, json!({"servers": "none"})), Code::Internal),
        (Reply::json(200, json!([])), Code::Internal),
        (Reply::new(200, "<servers/>"), Code::Internal),
        (Reply::new(200, ""), Code::Internal),
        (Reply::json(200, json!({"servers": [null]})), Code::Internal),
        (
            Reply::json(200, json!({"servers": [{"name": "a", "status": "ACTIVE"}]})),
            Code::Internal,
        ),
        (
            Reply::json(
                200,
                json!({"servers": [{"id": "../a", "name": "a", "status": "ACTIVE"}]}),
            ),
            Code::Internal,
        ),
        (
            Reply::json(200, json!({"servers": [{"id": "a", "status": "UNKNOWN"}]})),
            Code::Unavailable,
        ),
        (
            Reply::json(200, json!({"servers": [], "servers_links": "next"})),
            Code::Internal,
        ),
        (
            Reply::json(200, json!({"servers": [], "servers_links": [{"rel": "next"}]})),
            Code::Internal,
        ),
    ];
    for (reply, code) in replies {
        for list in ["GET servers/detail", "GET servers"] {
            let mut bench = Bench::new();
            bench.cloud().answer(list, reply.clone());
            if list == "GET servers" {
                // Only the second list is broken.
                bench
                    .cloud()
                    .answer("GET servers/detail", Reply::json(200, json!({"servers": []})));
            }
            assert_eq!(untold(bench.resolve("edge")), code, "{list}: {reply:?}");
        }
    }
    // Only the first list shows names.
    for row in [
        json!({"id": "a", "status": "ACTIVE"}),
        json!({"id": "a", "name": 7, "status": "ACTIVE"}),
    ] {
        let mut bench = Bench::new();
        let reply = Reply::json(200, json!({"servers": [row]}));
        bench.cloud().answer("GET servers/detail", reply);
        assert_eq!(untold(bench.resolve("edge")), Code::Internal);
    }
}

#[test]
fn only_a_boot_can_be_resolved() {
    let mut bench = Bench::new();
    let entry = bench.play.entry("edge");
    let finding = bench.play.resolve::<OpenStack>("port.attach", entry);
    assert_eq!(untold(finding), Code::Unimplemented);
}
