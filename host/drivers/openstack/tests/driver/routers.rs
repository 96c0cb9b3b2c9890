//! `router.resource`, `router.get`, `router.delete`.

use polity_driver_sdk::Code;
use serde_json::json;

use crate::bench::{Bench, NOW, boot, by_id, port};
use crate::cloud::neutron::error;
use crate::cloud::nova::fault;
use crate::cloud::{MANAGEMENT, Reply};

fn by_name(name: &str) -> serde_json::Value {
    json!({"name": name})
}

#[test]
fn a_router_that_was_booted_is_shown_from_its_build_to_its_end() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    let id = bench.call("router.boot", boot("edge", &[1])).unwrap()["id"].clone();
    let id = id.as_str().unwrap();
    let expected = json!({
        "id": id, "status": "BUILD", "createdAt": NOW - 30_000, "managed": false, "ports": [port(1)],
    });
    assert_eq!(bench.call("router.get", by_name("edge")).unwrap(), expected);
    bench.cloud().row(id)["status"] = json!("ACTIVE");
    let found = bench
        .call("router.get", json!({"name": "edge", "id": id}))
        .unwrap();
    assert_eq!(
        (&found["status"], &found["managed"]),
        (&json!("ACTIVE"), &json!(true))
    );
    for changes in [1, 0] {
        assert_eq!(bench.call("router.delete", by_id(id)).unwrap(), json!({}));
        assert_eq!(bench.changes().len(), changes, "a second request changes nothing");
        let found = bench
            .call("router.get", json!({"name": "edge", "id": id}))
            .unwrap();
        assert_eq!(found["status"], "DELETING");
    }
    bench.cloud().gone(id);
    assert_eq!(
        bench.code("router.get", json!({"name": "edge", "id": id})),
        Code::NotFound
    );
    assert_eq!(bench.code("router.get", by_name("edge")), Code::NotFound);
    assert_eq!(bench.code("router.delete", by_id(id)), Code::NotFound);
}

#[test]
fn a_server_in_error_says_what_failed_and_can_be_removed() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    let fault = bench.cloud().fails(&id);
    let found = bench.call("router.get", by_name("edge")).unwrap();
    assert_eq!(
        (&found["status"], &found["managed"], &found["fault"]),
        (&json!("ERROR"), &json!(false), &json!(fault))
    );
    bench.call("router.delete", by_id(&id)).unwrap();
    assert_eq!(bench.changes(), [format!("DELETE servers/{id}")]);
}

#[test]
fn the_server_of_another_object_or_tenant_is_refused_by_id_and_not_found_by_name() {
    let mut bench = Bench::new();
    for (owner, tenant) in [("owner-2", "tenant-1"), ("owner-1", "tenant-2"), ("", "tenant-1")] {
        let id = bench.cloud().server_of("edge", owner, tenant, "key-1");
        let denied = json!({"name": "edge", "id": id});
        assert_eq!(
            bench.code("router.get", denied),
            Code::PermissionDenied,
            "{owner} {tenant}"
        );
        assert_eq!(bench.code("router.delete", by_id(&id)), Code::PermissionDenied);
        assert!(bench.changes().is_empty());
    }
    let bare = bench.cloud().server_with("edge", json!({}));
    assert_eq!(bench.code("router.delete", by_id(&bare)), Code::PermissionDenied);
    assert_eq!(bench.code("router.get", by_name("edge")), Code::NotFound);
}

#[test]
fn of_several_servers_of_a_router_the_one_that_works_is_shown_and_then_the_oldest() {
    let mut bench = Bench::new();
    let [leaving, failed, young, old] = [(); 4].map(|()| bench.cloud().server("edge"));
    bench.cloud().row(&leaving)["OS-EXT-STS:task_state"] = json!("deleting");
    bench.cloud().row(&failed)["status"] = json!("ERROR");
    bench.cloud().row(&old)["created"] = json!("2026-09-20T00:00:00Z");
    for expected in [&old, &young, &failed, &leaving] {
        let found = bench.call("router.get", by_name("edge")).unwrap();
        assert_eq!(found["id"], **expected);
        bench.cloud().gone(expected);
    }
}

#[test]
fn a_server_of_a_cell_that_is_down_is_neither_absent_nor_anothers() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().down.push(id.clone());
    assert_eq!(bench.code("router.get", by_name("edge")), Code::Unavailable);
    assert_eq!(
        bench.code("router.get", json!({"name": "edge", "id": id})),
        Code::Unavailable
    );
    assert_eq!(bench.code("router.delete", by_id(&id)), Code::Unavailable);
}

#[test]
fn only_nova_itself_can_say_that_a_server_is_gone() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().answer(
        "GET servers/",
        Reply::new(404, "<html><body>no backend</body></html>"),
    );
    assert_eq!(
        bench.code("router.get", json!({"name": "edge", "id": id})),
        Code::Unavailable
    );
    bench.cloud().answer(
        "GET servers/",
        fault(404, "itemNotFound", "Instance could not be found."),
    );
    assert_eq!(
        bench.code("router.get", json!({"name": "edge", "id": id})),
        Code::NotFound
    );
}

#[test]
fn a_router_is_known_if_neutron_has_it_for_this_tenant() {
    let mut bench = Bench::new();
    bench.cloud().router("edge-2", &["polity-tenant:tenant-1"]);
    assert_eq!(bench.code("router.resource", by_name("edge")), Code::NotFound);
    bench.cloud().router("edge", &["polity-tenant:tenant-2"]);
    assert_eq!(bench.code("router.resource", by_name("edge")), Code::NotFound);
    bench.cloud().router("edge", &["color:red"]);
    let unmarked = bench.failure("router.resource", by_name("edge"));
    assert_eq!(unmarked.code, Code::FailedPrecondition);
    assert!(
        unmarked.message.contains("polity-tenant:tenant-1"),
        "{}",
        unmarked.message
    );
    bench
        .cloud()
        .router("edge", &["color:red", "polity-tenant:tenant-1"]);
    assert_eq!(bench.call("router.resource", by_name("edge")).unwrap(), json!({}));
    bench.cloud().ignores_filters = true;
    assert_eq!(bench.code("router.resource", by_name("core")), Code::NotFound);
    assert_eq!(bench.call("router.resource", by_name("edge")).unwrap(), json!({}));
    bench.play.config["tagPrefix"] = json!("team");
    assert_eq!(
        bench.code("router.resource", by_name("edge")),
        Code::FailedPrecondition
    );
}

#[test]
fn a_neutron_without_routers_does_not_end_them() {
    let mut bench = Bench::new();
    for reply in [
        Reply::new(404, "<html><body>The resource could not be found.</body></html>"),
        error(404, "HTTPNotFound", "The resource could not be found."),
        Reply::json(200, json!({"routers": null})),
        Reply::json(200, json!({"routers": [{"name": "edge"}]})),
        Reply::json(200, json!({"routers": [{"tags": []}]})),
        Reply::new(200, "{"),
        error(503, "ServiceUnavailable", "try later"),
    ] {
        bench.cloud().answer("GET v2.0/routers", reply.clone());
        assert_ne!(
            bench.code("router.resource", by_name("edge")),
            Code::NotFound,
            "{reply:?}"
        );
    }
    bench.play.config["routers"] = json!("objects");
    assert_eq!(bench.call("router.resource", by_name("edge")).unwrap(), json!({}));
    assert!(bench.play.sent.is_empty());
}

#[test]
fn a_port_that_nova_made_for_the_management_is_not_one_of_the_routers() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().port_in("net-1", 1, "edge", &id);
    let novas = bench.cloud().port(MANAGEMENT, 90, &[]);
    bench.cloud().occupy(&json!(novas), &id);
    let found = bench.call("router.get", by_name("edge")).unwrap();
    assert_eq!(
        (&found["ports"], &found["managed"]),
        (&json!([port(1)]), &json!(true))
    );
    // A port that the boot was given is shown.
    bench.cloud().port_in(MANAGEMENT, 2, "edge", &id);
    let found = bench.call("router.get", by_name("edge")).unwrap();
    assert_eq!(found["ports"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_server_without_a_legible_creation_is_a_failure() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    for created in [json!(null), json!("yesterday"), json!(7)] {
        bench.cloud().row(&id)["created"] = created;
        assert_eq!(bench.code("router.get", by_name("edge")), Code::Internal);
    }
}
