//! `router.alive`, `router.interfaces`, `router.stats`, `config.push` and `task.get`.

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Code, failure};
use serde_json::{Value, json};

use crate::bench::{Bench, by_id};
use crate::cloud::MANAGEMENT;
use crate::cloud::neutron::{error, mac};
use crate::cloud::nova::fault;

/// The address of the port that nova created.
const ADDRESS: &str = "10.0.0.90";

/// A router with port 1 and a port of nova for its management. Nothing answers on that port yet.
fn router() -> (Bench, String) {
    let bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().port_in("net-1", 1, "edge", &id);
    let novas = bench.cloud().port(MANAGEMENT, 90, &[]);
    bench.cloud().occupy(&json!(novas), &id);
    (bench, id)
}

/// The same router, with an appliance that shows these interfaces.
fn answering(interfaces: Value) -> (Bench, String) {
    let (bench, id) = router();
    bench.cloud().appliance_at(ADDRESS, interfaces);
    (bench, id)
}

fn shown() -> Value {
    json!([
        {"ifname": "lo", "lladdr": "00:00:00:00:00:00"},
        {"ifname": "ge0", "lladdr": mac(90)},
        {"ifname": "ge1", "lladdr": mac(1).to_uppercase(), "rx_bytes": 12, "tx_bytes": 5},
        {"ifname": "tun0"},
        {"ifname": "tun1", "lladdr": 7},
    ])
}

#[test]
fn an_appliance_is_alive_when_it_shows_its_interfaces() {
    let (mut bench, id) = answering(shown());
    assert_eq!(
        bench.call("router.alive", by_id(&id)).unwrap(),
        json!({"alive": true})
    );
    assert_eq!(bench.play.sent.last().unwrap().address.as_deref(), Some(ADDRESS));
}

#[test]
fn an_appliance_that_does_not_answer_as_one_is_not_alive() {
    for reply in [
        Reply::lost(failure(Code::Unavailable, "connection refused")),
        Reply::lost(failure(Code::DeadlineExceeded, "no answer in 3 s")),
        Reply::lost(failure(Code::Internal, "not HTTP")),
        Reply::json(500, json!({})),
        Reply::json(401, json!({})),
        Reply::json(204, json!({"interfaces": []})),
        Reply::new(200, "<html><body>hello</body></html>"),
        Reply::new(200, "{"),
        Reply::json(200, json!({"interfaces": "none"})),
    ] {
        let (mut bench, id) = router();
        bench.cloud().appliances.insert(ADDRESS.to_owned(), reply.clone());
        assert_eq!(
            bench.call("router.alive", by_id(&id)).unwrap(),
            json!({"alive": false}),
            "{reply:?}"
        );
        for operation in ["router.interfaces", "router.stats"] {
            assert_eq!(
                bench.code(operation, by_id(&id)),
                Code::FailedPrecondition,
                "{reply:?}"
            );
        }
    }
}

#[test]
fn a_request_that_the_host_does_not_send_says_nothing_of_the_appliance() {
    let (mut bench, id) = router();
    let refused = failure(
        Code::PermissionDenied,
        "10.0.0.90 is outside of the networks of this connection",
    );
    bench
        .cloud()
        .appliances
        .insert(ADDRESS.to_owned(), Reply::lost(refused));
    assert_eq!(bench.code("router.alive", by_id(&id)), Code::PermissionDenied);
}

#[test]
fn a_cloud_that_does_not_answer_says_nothing_of_the_appliance() {
    let (mut bench, id) = answering(shown());
    bench
        .cloud()
        .answer("GET v2.0/ports", error(503, "ServiceUnavailable", "later"));
    assert_eq!(bench.code("router.alive", by_id(&id)), Code::Unavailable);
    bench
        .cloud()
        .answer("GET servers", fault(500, "computeFault", "oops"));
    assert_eq!(bench.code("router.alive", by_id(&id)), Code::Internal);
}

#[test]
fn a_router_without_a_management_address_is_not_alive() {
    let (mut bench, id) = answering(shown());
    let wrong = [
        json!([]),
        json!([{"ip_address": "appliance.example"}]),
        json!([{"ip_address": 7}]),
        json!([{}]),
    ];
    for addresses in wrong {
        bench.cloud().ports[1]["fixed_ips"] = addresses;
        assert_eq!(
            bench.call("router.alive", by_id(&id)).unwrap(),
            json!({"alive": false})
        );
        assert_eq!(
            bench.code("router.interfaces", by_id(&id)),
            Code::FailedPrecondition
        );
        assert_eq!(
            bench.code("config.push", json!({"id": id, "config": {}})),
            Code::FailedPrecondition
        );
    }
    // The other ports are in networks of the tenant, so their addresses are not used.
    assert!(bench.play.sent.iter().all(|request| request.address.is_none()));
}

#[test]
fn a_router_that_is_being_removed_is_not_asked() {
    let (mut bench, id) = answering(shown());
    bench.call("router.delete", by_id(&id)).unwrap();
    assert_eq!(
        bench.call("router.alive", by_id(&id)).unwrap(),
        json!({"alive": false})
    );
    assert_eq!(bench.code("router.stats", by_id(&id)), Code::FailedPrecondition);
}

#[test]
fn the_interfaces_are_those_of_the_router_in_lower_case() {
    let (mut bench, id) = answering(shown());
    assert_eq!(
        bench.call("router.interfaces", by_id(&id)).unwrap(),
        json!({"macs": [mac(1)]})
    );
    bench.cloud().port_in(MANAGEMENT, 2, "edge", &id);
    bench
        .cloud()
        .appliance_at(ADDRESS, json!([{"lladdr": mac(2)}, {"lladdr": mac(90)}]));
    let found = bench.call("router.interfaces", by_id(&id)).unwrap();
    assert_eq!(
        found,
        json!({"macs": [mac(2)]}),
        "a port that was given to the boot is the router's"
    );
}

#[test]
fn the_traffic_is_that_of_the_interfaces_that_are_counted() {
    let (mut bench, id) = answering(shown());
    let traffic = json!({"traffic": [{"mac": mac(1), "rxBytes": 12, "txBytes": 5}]});
    assert_eq!(bench.call("router.stats", by_id(&id)).unwrap(), traffic);
    for wrong in [json!(-1), json!("12"), json!(1.5), json!(null)] {
        let interface = json!({"lladdr": mac(1), "rx_bytes": wrong, "tx_bytes": 5});
        bench.cloud().appliance_at(ADDRESS, json!([interface]));
        assert_eq!(
            bench.code("router.stats", by_id(&id)),
            Code::Unimplemented,
            "{interface}"
        );
    }
    bench.cloud().appliance_at(ADDRESS, json!([]));
    assert_eq!(
        bench.call("router.stats", by_id(&id)).unwrap(),
        json!({"traffic": []})
    );
}

#[test]
fn nothing_is_asked_of_or_sent_to_the_router_of_another() {
    let (mut bench, id) = answering(shown());
    bench.cloud().row(&id)["metadata"]["polity-owner"] = json!("owner-2");
    for operation in ["router.alive", "router.interfaces", "router.stats"] {
        assert_eq!(bench.code(operation, by_id(&id)), Code::PermissionDenied);
        assert_eq!(bench.code(operation, by_id("..")), Code::NotFound);
    }
    assert_eq!(
        bench.code("config.push", json!({"id": id, "config": {}})),
        Code::PermissionDenied
    );
    assert!(bench.cloud().pushed.is_empty());
}

#[test]
fn the_address_is_not_taken_from_a_port_of_another_server() {
    let (mut bench, id) = answering(shown());
    bench.cloud().ignores_filters = true;
    bench.cloud().ports[1]["device_id"] = json!("00000000-0000-4000-8000-999999999999");
    assert_eq!(
        bench.call("router.alive", by_id(&id)).unwrap(),
        json!({"alive": false})
    );
}

#[test]
fn a_configuration_that_the_appliance_takes_is_a_task_that_has_ended() {
    let (mut bench, id) = answering(shown());
    let config = json!({"ports": [{"network": "net-1", "mac": mac(1)}], "text": "\"}\n"});
    let answer = bench
        .call("config.push", json!({"id": id, "config": config}))
        .unwrap();
    assert_eq!(bench.cloud().pushed, [config]);
    let task = answer["task"].clone();
    let told = bench.call("task.get", json!({"id": task})).unwrap();
    assert_eq!(
        told,
        json!({"id": task, "state": "success", "kind": "push", "vm": id})
    );
    assert!(bench.play.sent.is_empty(), "the id says all of it");
    bench.play.owner = "owner-2".to_owned();
    assert_eq!(
        bench.code("task.get", json!({"id": task})),
        Code::PermissionDenied
    );
}

#[test]
fn a_configuration_that_the_appliance_refuses_is_a_failure_with_its_words() {
    for (reply, doubtful) in [
        (Reply::new(422, "no such network"), false),
        (Reply::json(400, json!({"message": "no such network"})), false),
        (Reply::new(500, "no such network"), true),
        (Reply::new(503, "no such network"), true),
    ] {
        let (mut bench, id) = answering(shown());
        bench.cloud().answer("PUT v1/system/config", reply);
        let refusal = bench.failure("config.push", json!({"id": id, "config": {}}));
        assert_eq!(
            (refusal.code, refusal.doubtful),
            (Code::FailedPrecondition, doubtful)
        );
        assert!(refusal.message.contains("no such network"), "{}", refusal.message);
    }
    let (mut bench, id) = router();
    bench.cloud().appliance_at(ADDRESS, json!([]));
    bench.cloud().lost.push("PUT v1/system/config".to_owned());
    assert_eq!(
        bench.code("config.push", json!({"id": id, "config": {}})),
        Code::Unavailable
    );
}

#[test]
fn a_configuration_that_stands_is_not_pushed_again() {
    let (mut bench, id) = answering(shown());
    for (config, pushes) in [("a", 1), ("a", 1), ("b", 2), ("a", 3)] {
        bench
            .call("config.push", json!({"id": id, "config": {"text": config}}))
            .unwrap();
        assert_eq!(bench.cloud().pushed.len(), pushes);
    }
    // An appliance that does not show its configuration gets the configuration each time.
    bench.cloud().answer("GET v1/system/config", Reply::new(404, ""));
    bench
        .call("config.push", json!({"id": id, "config": {"text": "a"}}))
        .unwrap();
    assert_eq!(bench.cloud().pushed.len(), 4);
}

#[test]
fn an_id_of_no_task_is_of_no_task() {
    let mut bench = Bench::new();
    let long = "a".repeat(256);
    for id in [
        "x",
        "pushed",
        "pushed:",
        "pushed:s",
        "pushed::owner-1",
        "pushed:s:",
        "Pushed:s:owner-1",
        "pushed:../s:owner-1",
        "pushed:s:owner-1:x",
        " pushed:s:owner-1",
        "pushed:s:owner-1\n",
        &format!("pushed:{long}:owner-1"),
    ] {
        assert_eq!(
            bench.code("task.get", json!({"id": id})),
            Code::NotFound,
            "{id:?}"
        );
    }
    assert_eq!(
        bench.code("task.get", json!({"id": "pushed:s:owner-2"})),
        Code::PermissionDenied
    );
}
