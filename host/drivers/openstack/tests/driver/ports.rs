//! `port.get`, `port.attach`, `port.detach`, `router.delete-ports`.

use polity_driver_sdk::Code;
use serde_json::{Value, json};

use crate::bench::{Bench, by_id, plug, port};
use crate::cloud::neutron::{error, mac};
use crate::cloud::nova::fault;
use crate::cloud::{MANAGEMENT, Reply, body};

fn named() -> Value {
    json!({"name": "edge"})
}

#[test]
fn a_port_is_of_the_router_that_it_is_made_for_or_that_has_it() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    let id = bench.cloud().server("other");
    bench.cloud().port_in("net-2", 2, "edge", &id);
    let known = |number: u32, router: &str| {
        let mut known = port(number);
        known["router"] = router.into();
        known
    };
    assert_eq!(bench.call("port.get", port(1)).unwrap(), known(1, "edge"));
    assert_eq!(bench.call("port.get", port(2)).unwrap(), known(2, "other"));
    let upper = json!({"network": "net-1", "mac": mac(1).to_uppercase()});
    assert_eq!(bench.call("port.get", upper).unwrap(), known(1, "edge"));
    assert_eq!(bench.code("port.get", port(3)), Code::NotFound);
    assert_eq!(
        bench.code("port.get", json!({"network": "net-1", "mac": mac(2)})),
        Code::NotFound
    );
}

#[test]
fn of_a_port_of_another_nothing_is_told() {
    let mut bench = Bench::new();
    let theirs = bench.cloud().server_of("secret-name", "owner-2", "tenant-2", "k");
    bench.cloud().port_in("net-1", 1, "edge", &theirs);
    let tag = |tenant: &str| {
        vec![
            format!("polity-tenant:{tenant}"),
            "polity-router:secret-name".to_owned(),
        ]
    };
    bench.cloud().port("net-2", 2, &tag("tenant-2"));
    bench.cloud().port("net-3", 3, &[]);
    bench
        .cloud()
        .port_in("net-4", 4, "edge", "00000000-0000-4000-8000-999999999999");
    for number in 1..=4 {
        let denied = bench.failure("port.get", port(number));
        assert_eq!(denied.code, Code::PermissionDenied, "{number}");
        let told = denied.message.contains("secret-name") || denied.message.contains("tenant-2");
        assert!(!told, "{}", denied.message);
    }
}

#[test]
fn a_filter_that_neutron_drops_does_not_change_which_port_it_is() {
    let mut bench = Bench::new();
    bench.cloud().ignores_filters = true;
    bench.cloud().port_for("net-2", 1, "other");
    bench.cloud().port_for("net-1", 2, "other");
    assert_eq!(bench.code("port.get", port(1)), Code::NotFound);
    bench.cloud().port_for("net-1", 1, "edge");
    assert_eq!(bench.call("port.get", port(1)).unwrap()["router"], "edge");
    bench.cloud().port_for("net-1", 1, "edge");
    assert_eq!(bench.code("port.get", port(1)), Code::FailedPrecondition);
}

#[test]
fn a_port_is_plugged_in_and_out() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    let made = bench.cloud().port_for("net-1", 1, "edge");
    assert_eq!(bench.call("port.attach", plug(&id, 1)).unwrap(), json!({}));
    assert_eq!(bench.changes(), [format!("POST servers/{id}/os-interface")]);
    let sent = bench.play.changes().next().map(body).unwrap();
    assert_eq!(sent, json!({"interfaceAttachment": {"port_id": made}}));
    assert_eq!(bench.code("port.attach", plug(&id, 1)), Code::AlreadyExists);
    assert!(bench.changes().is_empty());
    assert_eq!(bench.call("port.detach", plug(&id, 1)).unwrap(), json!({}));
    assert_eq!(
        bench.changes(),
        [format!("DELETE servers/{id}/os-interface/{made}")]
    );
    assert_eq!(bench.code("port.detach", plug(&id, 1)), Code::NotFound);
    assert_eq!(bench.code("port.detach", plug(&id, 9)), Code::NotFound);
    assert_eq!(bench.code("port.attach", plug(&id, 9)), Code::NotFound);
}

#[test]
fn a_port_of_another_is_neither_plugged_in_nor_out() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    let second = bench.cloud().server("second");
    let theirs = bench.cloud().server_of("edge", "owner-2", "tenant-2", "k");
    bench.cloud().port_for("net-1", 1, "second");
    bench.cloud().port_in("net-2", 2, "edge", &second);
    bench.cloud().port_in("net-3", 3, "edge", &theirs);
    bench.cloud().port("net-4", 4, &[]);
    bench.cloud().port(
        "net-5",
        5,
        &[
            "polity-tenant:tenant-2".to_owned(),
            "polity-router:edge".to_owned(),
        ],
    );
    for number in 1..=5 {
        assert_eq!(
            bench.code("port.attach", plug(&id, number)),
            Code::PermissionDenied,
            "{number}"
        );
        assert!(bench.changes().is_empty());
        assert_eq!(
            bench.code("port.detach", plug(&id, number)),
            Code::NotFound,
            "{number}"
        );
        assert!(bench.changes().is_empty());
    }
}

#[test]
fn nothing_is_plugged_into_or_out_of_the_server_of_another() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    for (owner, tenant) in [("owner-2", "tenant-1"), ("owner-1", "tenant-2")] {
        let id = bench.cloud().server_of("edge", owner, tenant, "k");
        bench.cloud().port_in("net-2", 2, "edge", &id);
        assert_eq!(bench.code("port.attach", plug(&id, 1)), Code::PermissionDenied);
        assert_eq!(bench.code("port.detach", plug(&id, 2)), Code::PermissionDenied);
        assert!(bench.changes().is_empty());
        bench.cloud().ports.pop();
    }
    assert_eq!(bench.code("port.attach", plug("../servers", 1)), Code::NotFound);
}

#[test]
fn a_server_that_is_being_built_takes_no_port_yet() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().port_for("net-1", 1, "edge");
    bench.cloud().row(&id)["status"] = json!("BUILD");
    let refusal = bench.failure("port.attach", plug(&id, 1));
    assert_eq!(
        (refusal.code, refusal.doubtful),
        (Code::FailedPrecondition, false)
    );
    bench.cloud().row(&id)["status"] = json!("ACTIVE");
    bench.cloud().answer(
        "POST servers",
        fault(409, "conflictingRequest", "Port 7 is still in use."),
    );
    assert_eq!(bench.code("port.attach", plug(&id, 1)), Code::AlreadyExists);
}

#[test]
fn the_ports_of_a_router_are_given_back_whatever_its_server_does() {
    for status in ["ACTIVE", "BUILD", "ERROR"] {
        let mut bench = Bench::new();
        let id = bench.cloud().server("edge");
        bench.cloud().row(&id)["status"] = json!(status);
        let [first, second] = [1, 2].map(|number| bench.cloud().port_in("net-1", number, "edge", &id));
        assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
        assert_eq!(
            bench.changes(),
            [
                format!("PUT v2.0/ports/{first}"),
                format!("PUT v2.0/ports/{second}")
            ]
        );
        for port in [&first, &second] {
            let row = bench.cloud().port_row(port).clone();
            assert_eq!(
                (&row["device_id"], &row["device_owner"]),
                (&json!(""), &json!(""))
            );
        }
        assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
        assert!(bench.changes().is_empty());
    }
}

#[test]
fn only_ports_of_the_own_router_are_given_back() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    let second = bench.cloud().server("second");
    let theirs = bench.cloud().server_of("edge", "owner-2", "tenant-1", "k");
    let foreign = bench.cloud().server_of("edge", "owner-1", "tenant-2", "k");
    let novas = bench.cloud().port(MANAGEMENT, 90, &[]);
    bench.cloud().occupy(&json!(novas), &id);
    bench.cloud().port_in("net-1", 1, "second", &id);
    bench.cloud().port_in("net-2", 2, "edge", &second);
    bench.cloud().port_in("net-3", 3, "edge", &theirs);
    bench.cloud().port_in("net-4", 4, "edge", &foreign);
    bench
        .cloud()
        .port_in("net-5", 5, "edge", "00000000-0000-4000-8000-999999999999");
    for ignores_filters in [false, true] {
        bench.cloud().ignores_filters = ignores_filters;
        assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
        assert!(bench.changes().is_empty(), "{:?}", bench.changes());
    }
}

#[test]
fn ports_of_a_router_without_a_server_are_free_already() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
    let id = bench.cloud().server("edge");
    bench.cloud().down.push(id);
    assert_eq!(
        bench.code("router.delete-ports", named()),
        Code::Unavailable,
        "its ports may be there"
    );
}

#[test]
fn more_ports_than_an_operation_can_give_back_take_two() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    for number in 1..=26 {
        bench.cloud().port_in("net-1", number, "edge", &id);
    }
    assert_eq!(bench.code("router.delete-ports", named()), Code::Unavailable);
    assert_eq!(bench.changes().len(), 20);
    assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
    assert_eq!(bench.changes().len(), 6);
}

#[test]
fn a_port_that_is_gone_needs_not_be_given_back() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().port_in("net-1", 1, "edge", &id);
    bench.cloud().answer(
        "PUT v2.0/ports",
        error(404, "PortNotFound", "Port could not be found."),
    );
    assert_eq!(bench.call("router.delete-ports", named()).unwrap(), json!({}));
    bench
        .cloud()
        .answer("PUT v2.0/ports", error(409, "Conflict", "no"));
    assert_eq!(
        bench.code("router.delete-ports", named()),
        Code::FailedPrecondition
    );
}

#[test]
fn a_removed_server_leaves_its_ports_to_its_router() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().port_in("net-1", 1, "edge", &id);
    bench.call("router.delete", by_id(&id)).unwrap();
    bench.cloud().gone(&id);
    assert_eq!(bench.call("port.get", port(1)).unwrap()["router"], "edge");
}

#[test]
fn a_port_that_cannot_be_read_is_no_port_that_is_absent() {
    for wrong in [
        json!({"ports": null}),
        json!({"ports": [{}]}),
        json!({"ports": [{"id": "p", "network_id": "net-1", "mac_address": "x", "device_id": "", "device_owner": "", "fixed_ips": []}]}),
        json!({"ports": [{"id": "../p", "network_id": "net-1", "mac_address": mac(1), "device_id": "", "device_owner": "", "fixed_ips": []}]}),
        json!({"ports": [{"id": "p", "network_id": "net-1", "mac_address": mac(1), "device_id": 7, "device_owner": "", "fixed_ips": []}]}),
        json!({"ports": [{"id": "p", "network_id": "net-1", "mac_address": mac(1), "device_owner": "", "fixed_ips": []}]}),
        json!({"ports": [{"id": "p", "network_id": "net-1", "mac_address": mac(1), "device_id": "", "device_owner": "", "fixed_ips": {}}]}),
        json!({"ports": [{"id": "p", "network_id": "net-1", "mac_address": mac(1), "device_id": "", "device_owner": "", "fixed_ips": [], "tags": "all"}]}),
    ] {
        let mut bench = Bench::new();
        bench
            .cloud()
            .answer("GET v2.0/ports", Reply::json(200, wrong.clone()));
        assert_eq!(bench.code("port.get", port(1)), Code::Internal, "{wrong}");
    }
}
