//! Tests of names and ids with a special meaning in a path, a query or a regular expression.

use polity_driver_sdk::{Code, Finding};
use serde_json::{Value, json};

use crate::bench::{Bench, NOW, boot, by_id, plug, port, untold};
use crate::cloud::{MANAGEMENT, Reply, body};

const NAMES: [&str; 9] = [
    ".*",
    "a|b",
    "^edge$",
    "edge.1(x)[y]{2}+?\\d",
    "../../admin",
    "x?all_tenants=1&name=y",
    "'; DROP TABLE instances; --",
    "\"}],\"adminPass\":\"x",
    "zażółć ☃",
];

#[test]
fn a_name_is_only_ever_a_name() {
    for name in NAMES {
        let mut bench = Bench::new();
        bench.cloud().server("edge");
        bench.cloud().server("a");
        let answer = bench.call("router.boot", boot(name, &[])).unwrap();
        assert_eq!(body(bench.created())["server"]["name"], name);
        let found = bench.call("router.get", json!({"name": name})).unwrap();
        assert_eq!(found["id"], answer["id"], "{name}");
        assert_eq!(bench.resolve(name), Finding::Found(answer.to_string()));
        assert_eq!(bench.code("router.boot", boot(name, &[])), Code::AlreadyExists);
        assert_eq!(
            bench.code("router.resource", json!({"name": name})),
            Code::NotFound
        );
        assert_eq!(
            bench.call("router.delete-ports", json!({"name": name})).unwrap(),
            json!({})
        );
    }
}

#[test]
fn a_name_that_is_an_expression_finds_no_other_server() {
    for name in [".*", "edg.", "^edge$", "edge|", "(edge)", "EDGE"] {
        let mut bench = Bench::new();
        bench.cloud().server("edge");
        assert_eq!(
            bench.code("router.get", json!({"name": name})),
            Code::NotFound,
            "{name}"
        );
        assert_eq!(bench.resolve(name), Finding::None, "{name}");
    }
}

#[test]
fn an_id_that_is_more_than_one_segment_is_of_nothing() {
    let long = "a".repeat(10_000);
    for id in [
        "..",
        ".",
        "a/b",
        "../images/x",
        "x?y=z",
        "x#y",
        "x%2f..",
        "x y",
        "x\n",
        "ä",
        &long,
    ] {
        let mut bench = Bench::new();
        for (operation, arguments) in [
            ("router.get", json!({"name": "edge", "id": id})),
            ("router.alive", by_id(id)),
            ("router.interfaces", by_id(id)),
            ("router.stats", by_id(id)),
            ("router.delete", by_id(id)),
            ("config.push", json!({"id": id, "config": {}})),
            ("port.attach", plug(id, 1)),
            ("port.detach", plug(id, 1)),
            ("image.get", json!({"image": id})),
        ] {
            let failure = bench.failure(operation, arguments);
            assert_eq!(failure.code, Code::NotFound, "{operation} {id}");
            assert!(failure.message.len() < 1_024);
            assert!(bench.play.sent.is_empty(), "{operation} {id}");
        }
    }
}

#[test]
fn a_network_that_is_a_query_finds_no_port() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    for network in ["net-1&device_id=", "*", "", "net-1 ", "NET-1"] {
        let arguments = json!({"network": network, "mac": port(1)["mac"]});
        let answer = bench
            .perform("port.get", arguments)
            .map_err(|failure| failure.code);
        assert_eq!(answer, Err(Code::NotFound), "{network}");
    }
    for mac in ["", "x", "fa:16:3e:00:00:01&x=y", "00:00:00:00:00:00"] {
        let answer = bench.perform("port.get", json!({"network": "net-1", "mac": mac}));
        assert_eq!(
            answer.map_err(|failure| failure.code),
            Err(Code::NotFound),
            "{mac}"
        );
        assert!(bench.play.sent.is_empty());
    }
}

#[test]
fn a_tenant_or_router_with_a_colon_is_not_taken_for_another() {
    let mut bench = Bench::new();
    bench.cloud().port(
        "net-1",
        1,
        &["polity-tenant:a:b".to_owned(), "polity-router:c".to_owned()],
    );
    bench.play.tenant = "a".to_owned();
    for name in ["b:c", "c"] {
        assert_eq!(
            bench.code("router.boot", boot(name, &[1])),
            Code::PermissionDenied
        );
    }
    bench.play.tenant = "a:b".to_owned();
    bench.call("router.boot", boot("c", &[1])).unwrap();
}

#[test]
fn an_owner_without_a_name_owns_nothing() {
    let mut bench = Bench::new();
    bench.play.owner = String::new();
    let id = bench.cloud().server_of("edge", "", "tenant-1", "key-1");
    assert_eq!(bench.code("router.delete", by_id(&id)), Code::PermissionDenied);
}

#[test]
fn marks_of_the_wrong_type_are_none() {
    for metadata in [
        json!(null),
        json!("polity-owner"),
        json!([]),
        json!({"polity-owner": ["owner-1"], "polity-tenant": 1}),
    ] {
        let mut bench = Bench::new();
        let id = bench.cloud().server_with("edge", metadata.clone());
        assert_eq!(
            bench.code("router.delete", by_id(&id)),
            Code::PermissionDenied,
            "{metadata}"
        );
        assert_eq!(
            bench.code("router.get", json!({"name": "edge"})),
            Code::NotFound,
            "{metadata}"
        );
        assert_eq!(
            untold(bench.resolve("edge")),
            Code::FailedPrecondition,
            "{metadata}"
        );
    }
}

#[test]
fn a_server_that_is_another_than_the_one_asked_for_is_not_believed() {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    let other = bench.cloud().server("edge");
    let row = bench.cloud().row(&other).clone();
    for wrong in [
        json!({"server": row}),
        json!({"server": [row]}),
        json!({"server": null}),
        json!({}),
        json!([]),
    ] {
        bench
            .cloud()
            .answer(&format!("GET servers/{id}"), Reply::json(200, wrong.clone()));
        assert_eq!(bench.code("router.delete", by_id(&id)), Code::Internal, "{wrong}");
        assert!(bench.changes().is_empty());
    }
    bench.cloud().answer(
        "GET v2/images",
        Reply::json(200, json!({"id": "image-2", "status": "active"})),
    );
    assert_eq!(
        bench.code("image.get", json!({"image": "image-1"})),
        Code::Internal
    );
    for status in [json!(null), json!(7), json!({"x": "active"})] {
        bench.cloud().answer(
            "GET v2/images",
            Reply::json(200, json!({"id": "image-1", "status": status})),
        );
        assert_eq!(
            bench.code("image.get", json!({"image": "image-1"})),
            Code::Internal
        );
    }
}

#[test]
fn a_device_that_is_no_server_is_somebody_elses() {
    let mut bench = Bench::new();
    let id = bench.cloud().port_for("net-1", 1, "edge");
    for device in ["dhcp3/../x", "..", "a b"] {
        bench.cloud().port_row(&id)["device_id"] = json!(device);
        assert_eq!(
            bench.code("port.get", port(1)),
            Code::PermissionDenied,
            "{device}"
        );
    }
    (
        bench.cloud().port_row(&id)["device_id"],
        bench.cloud().port_row(&id)["device_owner"],
    ) = (Value::Null, Value::Null);
    assert_eq!(
        bench.call("port.get", port(1)).unwrap()["router"],
        "edge",
        "null is nothing"
    );
}

#[test]
fn a_wrong_configuration_is_said_before_anything_is_sent() {
    let mut bench = Bench::new();
    bench.play.config = json!({"managementNetwork": MANAGEMENT, "password": "x"});
    for (operation, arguments) in [
        ("port.get", port(1)),
        ("router.boot", boot("edge", &[1])),
        ("router.get", json!({"name": "edge"})),
        ("router.resource", json!({"name": "edge"})),
    ] {
        assert_eq!(
            bench.code(operation, arguments),
            Code::InvalidArgument,
            "{operation}"
        );
        assert!(bench.play.sent.is_empty());
    }
    assert_eq!(untold(bench.resolve("edge")), Code::InvalidArgument);
    assert_eq!(bench.play.now, NOW);
}
