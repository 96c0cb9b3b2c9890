//! `router.boot` and `image.get`.

use polity_driver_sdk::Code;
use serde_json::{Value, json};

use crate::bench::{Bench, boot};
use crate::cloud::neutron::tags;
use crate::cloud::nova::fault;
use crate::cloud::{MANAGEMENT, Reply, body};

/// A bench with ports 1 and 2 for the router `edge`. Returns their ids too.
fn with_ports() -> (Bench, [String; 2]) {
    let bench = Bench::new();
    let ports = [1, 2].map(|number| bench.cloud().port_for(&format!("net-{number}"), number, "edge"));
    (bench, ports)
}

#[test]
fn a_boot_carries_its_marks_its_ports_and_a_port_for_the_management() {
    let (mut bench, [first, second]) = with_ports();
    bench.play.key = "key-7".to_owned();
    let answer = bench.call("router.boot", boot("edge", &[2, 1])).unwrap();
    let cloud = bench.cloud();
    assert_eq!(answer, json!({"id": cloud.servers[0]["id"]}));
    assert_eq!(
        cloud.servers[0]["metadata"],
        json!({"polity-owner": "owner-1", "polity-tenant": "tenant-1", "polity-key": "key-7"})
    );
    assert_eq!(
        (&cloud.servers[0]["imageRef"], &cloud.servers[0]["flavorRef"]),
        (&json!("image-1"), &json!("m1.small"))
    );
    drop(cloud);
    assert_eq!(
        body(bench.created())["server"]["networks"],
        json!([{"uuid": MANAGEMENT}, {"port": second}, {"port": first}])
    );
    assert_eq!(bench.changes(), ["POST servers"]);
    let expected: Vec<&String> = bench
        .created()
        .keep
        .iter()
        .filter(|path| path.starts_with("server."))
        .collect();
    assert_eq!(expected, ["server.id"], "what else nova answers is not kept");
}

#[test]
fn a_boot_with_a_port_on_the_management_network_gets_no_second_one() {
    let mut bench = Bench::new();
    let id = bench.cloud().port_for(MANAGEMENT, 3, "edge");
    let mut arguments = boot("edge", &[]);
    arguments["ports"] = json!([{"network": MANAGEMENT, "mac": "FA:16:3E:00:00:03"}]);
    bench.call("router.boot", arguments).unwrap();
    assert_eq!(body(bench.created())["server"]["networks"], json!([{"port": id}]));
}

#[test]
fn an_image_boots_only_if_it_is_there_and_active() {
    let (mut bench, _) = with_ports();
    assert_eq!(
        bench.call("image.get", json!({"image": "image-1"})).unwrap(),
        json!({})
    );
    bench
        .cloud()
        .images
        .insert("image-2".to_owned(), "queued".to_owned());
    for (image, code) in [
        ("image-2", Code::FailedPrecondition),
        ("image-3", Code::NotFound),
        ("../images", Code::NotFound),
        ("..", Code::NotFound),
    ] {
        assert_eq!(bench.code("image.get", json!({"image": image})), code, "{image}");
        let mut arguments = boot("edge", &[1]);
        arguments["image"] = image.into();
        assert_eq!(bench.code("router.boot", arguments), code, "{image}");
        assert_eq!(bench.changes().len(), 0, "{image}");
    }
    let page = bench.failure("image.get", json!({"image": "image-3"}));
    assert!(
        page.message.contains("No image found with ID image-3"),
        "{}",
        page.message
    );
    bench.cloud().answer(
        "GET v2/images",
        Reply::json(
            403,
            json!({"message": "You are not authorized", "title": "Forbidden"}),
        ),
    );
    let denied = bench.failure("image.get", json!({"image": "image-1"}));
    assert_eq!(denied.code, Code::PermissionDenied);
    assert!(
        denied.message.contains("You are not authorized"),
        "{}",
        denied.message
    );
}

#[test]
fn nothing_boots_with_a_port_that_is_not_for_this_router() {
    let mut bench = Bench::new();
    let tenants = |tenant: &str, router: &str| {
        [
            format!("polity-tenant:{tenant}"),
            format!("polity-router:{router}"),
        ]
    };
    for (number, tags) in [
        (1, tags("other").to_vec()),
        (2, tenants("tenant-2", "edge").to_vec()),
        (3, vec![]),
        (4, tenants("tenant-1", "edge")[..1].to_vec()),
        (5, tenants("tenant-1", "edge")[1..].to_vec()),
        (
            6,
            [tenants("tenant-1", "edge"), tenants("tenant-2", "edge")].concat(),
        ),
        (7, [tags("edge"), tags("other")].concat()),
    ] {
        bench.cloud().port(&format!("net-{number}"), number, &tags);
        assert_eq!(
            bench.code("router.boot", boot("edge", &[number])),
            Code::PermissionDenied,
            "{tags:?}"
        );
    }
    assert_eq!(bench.code("router.boot", boot("edge", &[8])), Code::NotFound);
    assert!(bench.cloud().servers.is_empty());
}

#[test]
fn nothing_boots_with_a_port_that_is_plugged_in() {
    let mut bench = Bench::new();
    let own = bench.cloud().server("old-edge");
    let others = bench.cloud().server_of("edge", "owner-2", "tenant-2", "key-2");
    bench.cloud().port_in("net-1", 1, "edge", &own);
    bench.cloud().port_in("net-2", 2, "edge", &others);
    bench
        .cloud()
        .port_in("net-3", 3, "edge", "00000000-0000-4000-8000-999999999999");
    let dhcp = bench.cloud().port_in("net-4", 4, "edge", &own);
    bench.cloud().port_row(&dhcp)["device_owner"] = json!("network:dhcp");
    for number in 1..=4 {
        assert_eq!(
            bench.code("router.boot", boot("edge", &[number])),
            Code::PermissionDenied,
            "{number}"
        );
    }
    // The port is checked before the name.
    bench.cloud().row(&own)["name"] = json!("edge");
    assert_eq!(
        bench.code("router.boot", boot("edge", &[4])),
        Code::PermissionDenied,
        "not by a server"
    );
    assert_eq!(bench.code("router.boot", boot("edge", &[1])), Code::AlreadyExists);
    assert_eq!(bench.changes().len(), 0);
}

#[test]
fn a_name_is_taken_in_its_tenant_until_the_server_is_gone() {
    let (mut bench, _) = with_ports();
    bench.cloud().server_of("edge", "owner-9", "tenant-2", "key-9");
    let first = bench.call("router.boot", boot("edge", &[1])).unwrap();
    assert_eq!(bench.code("router.boot", boot("edge", &[2])), Code::AlreadyExists);
    bench.play.owner = "owner-2".to_owned();
    assert_eq!(bench.code("router.boot", boot("edge", &[2])), Code::AlreadyExists);
    bench.play.owner = "owner-1".to_owned();
    let id = first["id"].as_str().unwrap().to_owned();
    bench.call("router.delete", json!({"id": id})).unwrap();
    assert_eq!(bench.code("router.boot", boot("edge", &[1])), Code::AlreadyExists);
    bench.cloud().gone(&id);
    bench.call("router.boot", boot("edge", &[1])).unwrap();
}

/// A change must begin within half of the time of its operation, so what is read before it is read at once.
#[test]
fn the_reads_before_a_boot_are_made_together() {
    let (mut bench, _) = with_ports();
    bench.call("router.boot", boot("edge", &[1])).unwrap();
    // The image, the port, the servers of the name, the cells. Then the boot.
    assert_eq!(bench.play.together, [4, 1]);
}

#[test]
fn nothing_boots_while_a_cell_that_may_have_the_server_is_down() {
    let (mut bench, _) = with_ports();
    let id = bench.cloud().server("edge");
    bench.cloud().down.push(id);
    assert_eq!(bench.code("router.boot", boot("edge", &[1])), Code::Unavailable);
    assert_eq!(bench.changes().len(), 0);
}

#[test]
fn a_port_that_is_named_twice_is_refused_before_anything_is_sent() {
    let mut bench = Bench::new();
    let mut arguments = boot("edge", &[1, 1]);
    assert_eq!(
        bench.code("router.boot", arguments.clone()),
        Code::InvalidArgument
    );
    arguments["ports"][1]["mac"] = "FA:16:3E:00:00:01".into();
    assert_eq!(bench.code("router.boot", arguments), Code::InvalidArgument);
    assert!(bench.play.sent.is_empty());
}

#[test]
fn a_boot_that_nova_refuses_has_the_code_of_the_reason() {
    for (reply, code) in [
        (
            fault(400, "badRequest", "Flavor m1.small could not be found."),
            Code::InvalidArgument,
        ),
        (
            fault(403, "forbidden", "Quota exceeded for instances: Requested 1"),
            Code::ResourceExhausted,
        ),
        (
            fault(403, "forbidden", "Maximum number of ports exceeded"),
            Code::ResourceExhausted,
        ),
        (
            fault(
                403,
                "forbidden",
                "Policy doesn't allow os_compute_api:servers:create",
            ),
            Code::PermissionDenied,
        ),
        (
            fault(409, "conflictingRequest", "Port p is still in use."),
            Code::FailedPrecondition,
        ),
    ] {
        let (mut bench, _) = with_ports();
        bench.cloud().answer("POST servers", reply);
        let refusal = bench.failure("router.boot", boot("edge", &[1]));
        assert_eq!(
            (refusal.code, refusal.doubtful),
            (code, false),
            "{}",
            refusal.message
        );
        assert!(refusal.message.contains("(req-77)"), "{}", refusal.message);
    }
}

#[test]
fn a_boot_whose_answer_has_no_id_is_in_doubt() {
    let garbage = [
        Reply::json(202, json!({})),
        Reply::json(202, json!({"server": {"id": 7}})),
        Reply::json(202, json!({"server": {"id": "../x"}})),
        Reply::json(202, Value::Null),
        Reply::new(200, "<html><body>Welcome</body></html>"),
        Reply::new(200, "Welcome"),
    ];
    for reply in garbage {
        let (mut bench, _) = with_ports();
        bench.cloud().answer("POST servers", reply.clone());
        let failure = bench.failure("router.boot", boot("edge", &[1]));
        assert_eq!(
            (failure.code, failure.doubtful),
            (Code::Internal, true),
            "{reply:?}"
        );
    }
}

#[test]
fn all_looks_before_a_boot_are_made_together() {
    let (mut bench, _) = with_ports();
    bench.call("router.boot", boot("edge", &[1, 2])).unwrap();
    let paths: Vec<String> = bench
        .play
        .sent
        .iter()
        .map(|request| request.path.join("/"))
        .collect();
    let expected = [
        "v2/images/image-1",
        "v2.0/ports",
        "v2.0/ports",
        "v2.1/servers/detail",
        "v2.1/servers",
        "v2.1/servers",
    ];
    assert_eq!(paths, expected);
}
