//! Lists are read to their end.

use polity_driver_sdk::test::{Play, Reply};
use polity_driver_sdk::{Code, Finding, HttpRequest};
use serde_json::{Value, json};

use crate::bench::{Bench, port, untold};

#[test]
fn a_server_on_the_last_page_is_found() {
    let mut bench = Bench::new();
    bench.cloud().page = 10;
    // The database ignores case, so the list has three pages of servers with other names.
    for _ in 0..30 {
        bench.cloud().server("EDGE");
    }
    let id = bench.cloud().server("edge");
    assert_eq!(
        bench.call("router.get", json!({"name": "edge"})).unwrap()["id"],
        *id
    );
    assert_eq!(
        bench.resolve("edge"),
        Finding::Found(json!({"id": id}).to_string())
    );
    assert_eq!(bench.play.sent.len(), 4);
}

#[test]
fn the_whole_list_of_servers_is_never_read() {
    let mut bench = Bench::new();
    for number in 0..95 {
        bench.cloud().server(&format!("vm-{number}"));
    }
    bench.cloud().page = 10;
    // The stand-in panics if the list without a filter is read on.
    assert_eq!(bench.resolve("edge"), Finding::None);
    let sent = bench.play.sent.iter();
    let lists = sent.filter(|request| {
        request.path.last().is_some_and(|last| last == "servers") && request.query.is_empty()
    });
    assert_eq!((lists.count(), bench.play.sent.len()), (1, 2));
}

#[test]
fn a_cell_that_is_down_is_seen_on_the_first_page() {
    let mut bench = Bench::new();
    bench.cloud().page = 10;
    for number in 0..9 {
        bench.cloud().server(&format!("vm-{number}"));
    }
    let id = bench.cloud().server("other");
    bench.cloud().down.push(id);
    assert_eq!(untold(bench.resolve("edge")), Code::Unavailable);
}

#[test]
fn a_port_on_the_last_page_is_found() {
    let mut bench = Bench::new();
    bench.cloud().ignores_filters = true;
    bench.cloud().page = 5;
    for number in 2..=20 {
        bench.cloud().port_for("net-9", number, "edge");
    }
    bench.cloud().port_for("net-1", 1, "edge");
    assert_eq!(bench.call("port.get", port(1)).unwrap()["router"], "edge");
}

#[test]
fn a_router_of_neutron_on_the_last_page_is_found() {
    let mut bench = Bench::new();
    bench.cloud().page = 2;
    for _ in 0..5 {
        bench.cloud().router("edge", &["polity-tenant:tenant-2"]);
    }
    bench.cloud().router("edge", &["polity-tenant:tenant-1"]);
    assert_eq!(
        bench.call("router.resource", json!({"name": "edge"})).unwrap(),
        json!({})
    );
}

#[test]
fn a_list_that_does_not_end_is_a_failure() {
    let row = |id: &str| json!({"id": id, "name": "x", "status": "ACTIVE"});
    let page = |rows: Vec<Value>| json!({"servers": rows, "servers_links": [{"rel": "next", "href": "h"}]});
    for rows in [
        vec![row("a")],
        vec![],
        vec![json!({"id": 7, "name": "x", "status": "ACTIVE"})],
    ] {
        let mut bench = Bench::new();
        bench
            .cloud()
            .answer("GET servers/detail", Reply::json(200, page(rows)));
        assert_eq!(untold(bench.resolve("edge")), Code::Internal);
        assert!(bench.play.sent.len() <= 2);
    }
}

#[test]
fn a_link_to_something_else_is_no_further_page() {
    let mut bench = Bench::new();
    let page = json!({"servers": [], "servers_links": [{"rel": "previous"}, {"href": "h"}, null]});
    bench.cloud().answer("GET servers", Reply::json(200, page));
    assert_eq!(bench.resolve("edge"), Finding::None);
}

#[test]
fn a_list_that_is_too_long_is_a_failure() {
    let mut bench = Bench::new();
    bench.cloud().page = 1;
    for number in 0..25 {
        bench
            .cloud()
            .server(if number % 2 == 0 { "EDGE" } else { "Edge" });
    }
    assert_eq!(untold(bench.resolve("edge")), Code::ResourceExhausted);
}

#[test]
fn a_page_that_fails_is_not_the_end_of_a_list() {
    let mut bench = Bench::new();
    let first = json!({
        "servers": [{"id": "a", "name": "x", "status": "ACTIVE"}],
        "servers_links": [{"rel": "previous"}, {"rel": "next"}],
    });
    let server: Box<dyn FnMut(&HttpRequest) -> Reply> =
        Box::new(
            move |request| match request.query.iter().find(|(name, _)| name == "marker") {
                Some((_, marker)) if marker == "a" => Reply::new(503, ""),
                Some((_, marker)) => panic!("the marker {marker}"),
                None => Reply::json(200, first.clone()),
            },
        );
    let config = bench.play.config.clone();
    bench.play = Play::new(server);
    bench.play.config = config;
    assert_eq!(untold(bench.resolve("edge")), Code::Unavailable);
}
