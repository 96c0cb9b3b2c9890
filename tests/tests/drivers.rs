//! Drivers and servers that break their contract. The operation gets a failure with the right code and effect, and the
//! driver gets nothing that it should not have.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_clouds::{Cloud as _, Gateway};
use polity_core::contract::{Answer, Code, Effect};
use polity_drivers::{Connection, Difference, DriverCloud, Ended, Exchanged, Keeps, Part, Throttled};
use polity_http::{Address, Rate};
use polity_tests::guests;
use polity_tests::hostile_driver::{
    self, SEALED, Server, TOKEN, come_to, connection, driver, fine, look, ok, read, request, say, status,
};
use serde_json::{Value, json};

/// Keeps what is exchanged.
#[derive(Default)]
struct Kept(Mutex<Vec<Exchanged>>);

impl Keeps for Kept {
    fn keep(&self, exchanged: &Exchanged) {
        self.0.lock().expect("unpoisoned").push(exchanged.clone());
    }
}

/// A connection of the driver to this server, which does these steps.
fn cloud(address: &str, steps: Value, proxy: Option<&str>) -> Gateway<DriverCloud> {
    kept_cloud(address, steps, proxy, None)
}

/// The same, of which is kept what is exchanged.
fn kept_cloud(
    address: &str,
    steps: Value,
    proxy: Option<&str>,
    kept: Option<Arc<Kept>>,
) -> Gateway<DriverCloud> {
    let keeps = kept.map(|kept| kept as Arc<dyn Keeps>);
    let connection = connection(address, &steps, proxy);
    hostile_driver::cloud(Connection { keeps, ..connection }, SEALED)
}

/// What these steps come to, the failure and the requests that the server saw.
async fn steps(server: &Server, operation: &str, steps: Value) -> (Answer, usize) {
    let before = server.seen().len();
    let answer = come_to(&cloud(&server.address, steps, None), operation).await;
    (answer, server.seen().len() - before)
}

#[test]
fn connections_of_the_same_driver_share_its_machine_code() {
    let again = guests::sandbox().load_driver(guests::hostile_driver());
    assert!(Arc::ptr_eq(&driver(), &again.expect("it loads")));
}

#[tokio::test]
async fn a_driver_that_asks_for_what_it_may_not_gets_a_failure_and_nothing_is_sent() {
    let server = Server::saying(ok("{}"));
    let status = "machine.status";
    let change = "machine.delete";
    for (operation, wish, said) in [
        (
            status,
            json!([{"endpoint": "elsewhere"}]),
            "an endpoint \"elsewhere\"",
        ),
        (status, json!([{"method": "TRACE"}]), "the method \"TRACE\""),
        (status, json!([{"method": "DELETE"}]), "marks DELETE / as a read"),
        (
            change,
            json!([{"effect": "change", "method": "GET"}]),
            "marks a GET as a change or a create",
        ),
        (
            status,
            json!([{"header": ["authorization", "me"]}]),
            "the header \"authorization\"",
        ),
        (
            status,
            json!([{"header": ["host", "elsewhere"]}]),
            "the header \"host\"",
        ),
        (
            status,
            json!([{"header": ["cookie", "c"]}]),
            "the header \"cookie\"",
        ),
        (
            status,
            json!([{"method": "POST", "bytes": 1_048_577}]),
            "the limit is",
        ),
        (status, json!([{"address": "10.1.1.1"}]), "names an address"),
        (status, json!([{"endpoint": "appliance"}]), "names no address"),
        (
            status,
            json!([{"endpoint": "appliance", "address": "10.1.1.1"}]),
            "no response of this operation",
        ),
        (
            status,
            json!([{"endpoint": "appliance", "address": "localhost"}]),
            "no IP address",
        ),
        (
            status,
            json!([{"method": "POST", "seals": "userData"}]),
            "sends a sealed value with a read",
        ),
        (
            change,
            json!([{"effect": "change", "seals": "userData"}]),
            "sends sealed values to no field of this cloud",
        ),
        (
            status,
            json!([{"effect": "change", "method": "DELETE"}]),
            "sends a change in a call that must not change anything",
        ),
        (status, json!([{"paths": [256, 1]}]), "keeps more than 256 paths"),
        (
            status,
            json!([{"paths": [60_000, 20]}]),
            "keeps more than 256 paths",
        ),
        (
            status,
            json!([{"paths": [1, 257]}]),
            "a path of more than 256 bytes",
        ),
        (
            status,
            json!([{"effect": "create"}]),
            "sends a create in a call that must not create, or a second create",
        ),
        (
            change,
            json!([{"effect": "change"}, {"effect": "change"}]),
            "together with another request",
        ),
        (
            change,
            json!([{"effect": "change"}, {}]),
            "together with another request",
        ),
        (status, json!([]), "returned neither a request nor an answer"),
        (status, Value::Array(vec![json!({}); 65]), "more than 64 requests"),
    ] {
        let (answer, count) = steps(&server, operation, json!([{"send": wish.clone()}, fine()])).await;
        let failure = answer.expect_err(said);
        assert!(failure.message.contains(said), "{wish}: {failure}");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Internal, Effect::None),
            "{failure}"
        );
        assert_eq!(count, 0, "{wish}");
    }
}

#[tokio::test]
async fn an_address_of_a_response_leads_into_the_networks_of_the_connection_and_to_no_service_of_the_host() {
    for (address, said) in [
        ("192.168.1.1", "in none of the networks"),
        ("127.0.0.1", "in none of the networks"),
        ("169.254.169.254", "in none of the networks"),
        ("10.0.0.1", "in none of the networks"),
        ("10.0.3.7", "in none of the networks"),
        ("168.63.129.16", "in none of the networks"),
        ("100.100.100.200", "in none of the networks"),
        ("fd00:ec2::254", "in none of the networks"),
    ] {
        let server = Server::saying(ok(&json!({"address": address}).to_string()));
        let to = json!({"send": [{"endpoint": "appliance", "address": address}]});
        let (answer, count) = steps(&server, "machine.status", json!([look(), to])).await;
        let failure = answer.expect_err(address);
        assert!(failure.message.contains(said), "{failure}");
        assert_eq!(count, 1, "the look alone");
    }
}

#[tokio::test]
async fn a_driver_that_ends_as_it_may_not_gets_a_failure() {
    let server = Server::saying(ok("{}"));
    for (does, said) in [
        (
            json!("nothing"),
            "returned a finding, but the call performs an operation",
        ),
        (json!({"say": "no JSON"}), "no JSON"),
        (json!({"answer": {"nonsense": 1}}), "providerID: is missing"),
        (json!({"answer": ["p"]}), ""),
        (json!("panic"), ""),
        (json!("spin"), ""),
        (json!("fill"), ""),
        (json!("sendOn"), "32 steps"),
    ] {
        let (answer, _) = steps(&server, "machine.status", json!([does.clone()])).await;
        let failure = answer.expect_err("it breaks its contract");
        assert!(failure.message.contains(said), "{does}: {failure}");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Internal, Effect::None),
            "{does}: {failure}"
        );
    }
}

#[tokio::test]
async fn an_operation_with_which_a_driver_breaks_its_contract_waits_and_nothing_else_does() {
    let server = Server::saying(ok("{}"));
    let cloud = cloud(&server.address, json!([{"say": "no JSON"}]), None);
    let ask = async |operation: &str, queue: &str| {
        let mut request = request(operation);
        request.session.tenant_queue = queue.into();
        let failure = cloud.perform(request).await.expect_err("it breaks its contract");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Internal, Effect::None),
            "{failure}"
        );
        assert!(failure.message.contains("no JSON"), "{failure}");
        failure.message.contains("machine.status is not tried again yet")
    };
    assert!(!ask("machine.status", "a").await);
    assert!(ask("machine.status", "a").await, "it is not called again at once");
    assert!(
        !ask("machine.status", "b").await,
        "what one tenant asks for keeps no other waiting"
    );
    assert!(!ask("machine.delete", "a").await);
}

#[tokio::test]
async fn a_driver_creates_once_and_what_it_does_after_that_leaves_the_create_in_doubt() {
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    for second in [
        create.clone(),
        json!({"send": [{"effect": "create", "path": ["again"]}]}),
        json!({"send": [{"effect": "change", "path": ["also"]}]}),
        json!("panic"),
        json!("nothing"),
        json!({"say": "no JSON"}),
        json!({"answer": {"nonsense": 1}}),
        json!("fail"),
    ] {
        let server = Server::saying(ok("{}"));
        let (answer, count) = steps(&server, "machine.create", json!([create, second])).await;
        let failure = answer.expect_err("it breaks its contract");
        assert_eq!(
            (failure.effect, count),
            (Effect::Unknown, 1),
            "{second}: {failure}"
        );
    }
    // What the server refused is not there.
    let server = Server::saying(status(403, "", "{}"));
    let (answer, count) = steps(&server, "machine.create", json!([create, create])).await;
    assert_eq!((answer.expect_err("refused").effect, count), (Effect::None, 1));
}

#[tokio::test]
async fn a_create_is_refused_by_a_code_of_the_manifest_and_by_no_other_word() {
    let full = r#"{"error": {"code": "full"}}"#;
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    for (code, body, effect) in [
        (500, full, Effect::None),
        (503, full, Effect::None),
        (200, full, Effect::Unknown),
        (502, full, Effect::Unknown),
        (504, full, Effect::Unknown),
        (429, full, Effect::Unknown),
        (500, r#"{"error": {"code": "oh"}}"#, Effect::Unknown),
        (500, r#"{"error": {"code": "full""#, Effect::Unknown),
        (500, "<html>full</html>", Effect::Unknown),
    ] {
        let server = Server::saying(status(code, "", body));
        let (answer, count) = steps(&server, "machine.create", json!([create, "fail"])).await;
        let failure = answer.expect_err("it is refused");
        assert_eq!((failure.effect, count), (effect, 1), "{code} {body}");
    }
}

/// A connection to a server for which this is the sealed value.
/// With the largest value that the cloud takes, each of these took gigabytes of memory, or a thread of the runtime for minutes.
#[tokio::test]
async fn a_create_whose_body_would_grow_without_bound_fails_while_it_is_prepared() {
    let server = Server::saying(ok("{}"));
    for (value, wish, said) in [
        (
            "\\".repeat(16),
            json!({"then": [["json", 40]]}),
            "more than 4 times",
        ),
        (
            "x".repeat(16),
            json!({"then": [["base64", 90]]}),
            "more than 4 times",
        ),
        (
            "\\".repeat(60_000),
            json!({"then": [["json", 3]]}),
            "more than 1048576 bytes",
        ),
        (
            "x".repeat(60_000),
            json!({"copies": 4_000}),
            "more than 1048576 bytes",
        ),
        (
            "x".repeat(60_000),
            json!({"copies": 1}),
            "is larger than 65536 bytes, the most that this cloud takes",
        ),
        ("x".repeat(60_000), json!({"pieces": 4_000}), "more than 16 texts"),
        (
            "x".repeat(60_000),
            json!({"pieces": 15}),
            "more than 1048576 bytes",
        ),
        (
            "x".repeat(16),
            json!({"field": "label"}),
            "from which it could come back",
        ),
        (
            "x".repeat(65_537),
            json!({}),
            "is larger than 65536 bytes, the most that this cloud takes",
        ),
        (
            "12345678\n".repeat(100_000),
            json!({}),
            "is larger than 65536 bytes, the most that this cloud takes",
        ),
    ] {
        let mut create = wish.clone();
        create["effect"] = json!("create");
        create["seals"] = json!("userData");
        let steps = json!([{"send": [create]}, fine()]);
        let kept = hostile_driver::cloud(connection(&server.address, &steps, None), &value);
        let failure = kept.prepare(request("machine.create")).await.expect_err(said);
        assert!(failure.message.contains(said), "{wish}: {failure}");
        assert_eq!(failure.effect, Effect::None, "{failure}");
    }
    assert_eq!(server.seen().len(), 0);
    let create =
        json!([{"send": [{"effect": "create", "seals": "userData", "then": [["base64", 1]]}]}, fine()]);
    let cloud = hostile_driver::cloud(
        connection(&server.address, &create, None),
        &"12345678\n".repeat(7_000),
    );
    assert!(
        come_to(&cloud, "machine.create").await.is_ok(),
        "what fits is sent"
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_value_that_was_sent_comes_back_to_no_later_operation_of_its_tenant() {
    let label = format!("label {SEALED}, {}", STANDARD.encode(format!("<{SEALED}>")));
    let server = Server::saying(ok(&json!({"label": label}).to_string()));
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    let steps = json!([
        {"of": {"machine.create": create, "machine.status": look()}},
        {"of": {"machine.create": fine(), "machine.status": "echo"}},
    ]);
    let cloud = cloud(&server.address, steps, None);
    let look = async |tenant: &str| {
        let mut request = request("machine.status");
        request.session.tenant = tenant.to_owned();
        cloud.perform(request).await
    };
    let before = look("team-a").await.expect("the driver sees it").to_string();
    assert!(before.contains(SEALED), "nothing was sent yet");
    come_to(&cloud, "machine.create").await.expect("it is created");
    let (own, others) = (look("team-a").await, look("team-b").await);
    let refused = own.expect_err("its answer has a hole");
    assert!(
        refused.code == Code::Unavailable && !refused.message.contains(SEALED),
        "{refused}"
    );
    let others = others.expect("the driver sees it").to_string();
    assert!(
        others.contains(SEALED),
        "what one tenant sends hides nothing from others"
    );
}

/// A value that the cloud repeats is hidden. Then what a driver does not find may be what is hidden.
#[tokio::test]
async fn what_is_hidden_is_not_taken_for_what_is_absent() {
    let said = json!({"instancesSet": [], "label": SEALED, SEALED: 1, "list": "of machines"});
    let server = Server::saying(ok(&said.to_string()));
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    for (answer, is_conclusion) in [
        (json!({"answer": {"providerID": "p"}}), true),
        (json!("notFound"), false),
        (
            json!({"answer": {"providerID": "p", "initialized": false}}),
            false,
        ),
    ] {
        let steps = json!([
            {"of": {"machine.create": create, "machine.status": look()}},
            {"of": {"machine.create": fine(), "machine.status": answer}},
        ]);
        let cloud = cloud(&server.address, steps, None);
        let before = cloud.perform(request("machine.status")).await;
        let is_so = |end: &Answer| match end {
            Ok(_) => true,
            Err(failure) => failure.code == Code::NotFound,
        };
        assert!(is_so(&before), "nothing is hidden yet: {before:?}");
        come_to(&cloud, "machine.create").await.expect("it is created");
        let after = cloud.perform(request("machine.status")).await;
        assert_eq!(is_so(&after), is_conclusion, "{answer}: {after:?}");
        if !is_conclusion {
            assert_eq!(after.expect_err("no conclusion").code, Code::Unavailable);
        }
    }
}

/// The name of a field is never changed, so that a driver finds what it looks for.
#[tokio::test]
async fn a_value_that_is_the_name_of_a_field_is_refused_and_names_are_as_the_cloud_wrote_them() {
    let server = Server::saying(ok("{}"));
    let create = json!({"effect": "create", "seals": "userData", "paths": [3, 20]});
    let steps = json!([{"send": [create]}, fine()]);
    let named = hostile_driver::cloud(
        connection(&server.address, &steps, None),
        "00000000000000000002\n",
    );
    let refused = come_to(&named, "machine.create")
        .await
        .expect_err("it is the name of a field");
    assert!(
        refused.code == Code::InvalidArgument && refused.message.contains("name of a field"),
        "{refused}"
    );
    assert_eq!((refused.effect, server.seen().len()), (Effect::None, 0));
}

/// A login to AWS: STS says who it is, and everything else is EC2's.
fn aws() -> Server {
    Server::start(|request, stream| {
        let who = "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::2:user/x</Arn><Account>2</Account>\
                   <UserId>u</UserId></GetCallerIdentityResult></GetCallerIdentityResponse>";
        hostile_driver::say(
            stream,
            &ok(if request.contains("Action=GetCallerIdentity") {
                who
            } else {
                "<a/>"
            }),
        );
    })
}

#[tokio::test]
async fn on_aws_nothing_that_changes_or_hands_out_keys_leaves_the_host_as_a_read() {
    let fields =
        json!({"login": "aws-sigv4", "endpoints": {"api": {"service": "ec2"}, "appliance": {"dynamic": 9}}});
    let driver = hostile_driver::driver_with(&fields);
    let form = ["content-type", "application/x-www-form-urlencoded; charset=utf-8"];
    let post = |text: &[&str]| json!({"method": "POST", "header": form, "text": text});
    for (wish, is_sent) in [
        (post(&["Action=DescribeInstances&Version=2016-11-15"]), true),
        (post(&["Action=Describe", "Instances&Version=2016-11-15"]), true),
        (json!({"query": [["Action", "TerminateInstances"]]}), false),
        (json!({"query": [["Action", "DescribeInstances"]]}), false),
        (json!({"query": [["Action", "AssumeRole"]]}), false),
        (
            json!({"method": "POST", "header": form, "text": ["Action=DescribeInstances"], "query": [["Action", "TerminateInstances"]]}),
            false,
        ),
        (
            post(&["Action=DescribeInstances", "&Action=TerminateInstances"]),
            false,
        ),
        (post(&["Action=GetSessionToken"]), false),
        (post(&["Action=GetPasswordData"]), false),
        (
            post(&["Action=DescribeInstanceAttribute&Attribute=userData"]),
            false,
        ),
    ] {
        let server = aws();
        let address = format!("http://{}", server.address);
        let mut connection = connection(&server.address, &json!([{"send": [wish]}, fine()]), None);
        connection.region = "eu-west-1".to_owned();
        connection
            .endpoints
            .insert("sts".to_owned(), Address::read(&address).expect("an address"));
        let cloud = hostile_driver::cloud_by(driver.clone(), connection, SEALED);
        let ended = cloud.perform(request("machine.status")).await;
        let sent = server
            .seen()
            .into_iter()
            .filter(|request| !request.contains("GetCallerIdentity"))
            .count();
        assert_eq!(
            (ended.is_ok(), sent),
            (is_sent, usize::from(is_sent)),
            "{wish}: {ended:?}"
        );
        if let Err(failure) = ended {
            assert!(
                failure.code == Code::Internal && failure.message.contains("as a read"),
                "{failure}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_prepared_changes_nothing() {
    let server = Server::saying(ok("{}"));
    let change = json!([{"send": [{"effect": "change"}]}]);
    let (answer, count) = steps(&server, "machine.create", change).await;
    assert_eq!((answer.expect_err("it may not").effect, count), (Effect::None, 0));
}

#[tokio::test]
async fn a_server_that_repeats_secrets_and_a_driver_that_passes_them_on_tell_nobody() {
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    for (operation, first) in [("machine.status", look()), ("machine.create", create)] {
        for last in ["echo", "fail"] {
            let server = Server::echo();
            let (answer, _) = steps(&server, operation, json!([first, last])).await;
            let sent = server.seen().concat();
            assert!(sent.contains(TOKEN), "it logs in: {sent}");
            assert_eq!(sent.contains(SEALED), operation == "machine.create");
            let told = answer.expect_err("an answer with a hole is none").message;
            assert!(last == "echo" || told.contains("echo"), "{told}");
            for secret in [TOKEN, SEALED] {
                assert!(!told.contains(secret), "{operation} {last}: {told}");
            }
        }
    }
}

#[tokio::test]
async fn a_path_stays_below_its_endpoint() {
    let server = Server::saying(ok("{}"));
    let path = json!(["..", "a/b", "c?d=e", "f#g", "h\r\nx-a: b", "%2e%2e"]);
    let script = json!([{"send": [{"path": path}]}, fine()]);
    let (answer, count) = steps(&server, "machine.status", script).await;
    assert_eq!(
        (answer.is_ok(), count),
        (true, 1),
        "each segment is sent, encoded"
    );
    for request in server.seen() {
        let line = request.lines().next().unwrap_or_default();
        assert!(
            !line.contains("/../") && !line.contains('?') && !line.contains('#'),
            "{line}"
        );
        assert!(!line.contains("/%2e%2e") && !line.contains("a/b"), "{line}");
        assert!(!request.contains("\r\nx-a"), "{request}");
    }
}

#[tokio::test]
async fn nobody_is_followed_elsewhere() {
    let elsewhere = Server::saying(ok("{}"));
    let location = format!("location: http://{}/\r\n", elsewhere.address);
    for code in [301, 302, 303, 307, 308] {
        let server = Server::saying(status(code, &location, "{}"));
        let (answer, count) = steps(&server, "machine.status", json!([look(), "echo"])).await;
        let told = answer.expect("the driver sees it").to_string();
        assert!(told.contains(&code.to_string()), "{told}");
        assert_eq!((count, elsewhere.seen().len()), (1, 0));
    }
}

#[tokio::test]
async fn a_response_is_bounded_and_garbage_is_no_harm() {
    let endless = Server::start(|_, stream| {
        say(stream, "HTTP/1.1 200 X\r\nconnection: close\r\n\r\n");
        // Until the host has had enough.
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    let (answer, _) = steps(&endless, "machine.status", json!([look(), "fail"])).await;
    let failure = answer.expect_err("it is too long");
    assert!(failure.message.contains("more than 4 MiB"), "{failure}");

    for garbage in [
        "nonsense\r\n\r\n".to_owned(),
        String::new(),
        "HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf".to_owned(),
        status(200, "", "\u{1}\u{2}"),
        status(200, "", &"[".repeat(100_000)),
        status(200, "", &"<a>".repeat(100_000)),
    ] {
        let server = Server::saying(garbage.clone());
        let (answer, _) = steps(&server, "machine.status", json!([look(), "echo"])).await;
        let told = answer.expect("the driver sees it").to_string();
        assert!(told.len() < 20_000, "{} bytes of {garbage:.20}", told.len());

        let server = Server::saying(garbage);
        let create = json!({"send": [{"effect": "create"}]});
        let (answer, _) = steps(&server, "machine.create", json!([create, "fail"])).await;
        assert_eq!(answer.expect_err("no answer").effect, Effect::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_costs_the_operation_its_time_and_no_more() {
    let server = Server::start(|_, stream| {
        let kept = stream.try_clone().expect("a socket");
        std::thread::spawn(move || read(&kept));
    });
    let (answer, count) = steps(&server, "machine.status", json!([look(), "fail"])).await;
    assert!(
        answer
            .expect_err("it never answers")
            .message
            .contains("no response in time")
    );
    // On a clock that jumps the time may be over before the server has read it.
    assert!(count <= 1, "there is no time left for another try: {count}");
    let create = json!({"send": [{"effect": "create"}]});
    let (answer, _) = steps(&server, "machine.create", json!([create, "fail"])).await;
    let failure = answer.expect_err("it never answers");
    assert_eq!(
        (failure.code, failure.effect),
        (Code::DeadlineExceeded, Effect::Unknown)
    );
}

#[tokio::test]
async fn one_tenant_of_many_hosts_leaves_the_others_their_part_of_a_burst() {
    let server = Server::saying(ok("{}"));
    let change = json!({"send": [{"effect": "change", "method": "DELETE"}]});
    let mut connection = connection(&server.address, &json!([change, "fail"]), None);
    let hours_apart = Rate {
        per_second: 1e-4,
        burst: 8.0,
    };
    connection.rates.changes = hours_apart;
    let hosts = connection.hosts.clone();
    let cloud = hostile_driver::cloud(connection, SEALED);
    let change = async |queue: &str| {
        let mut request = request("machine.delete");
        request.session.tenant_queue = queue.into();
        let before = server.seen().len();
        let failure = cloud
            .perform(request)
            .await
            .expect_err("the driver fails in the end");
        let is_refused = failure.message.contains("left no request in time");
        assert_eq!(is_refused, failure.effect == Effect::None, "{failure:?}");
        server.seen().len() > before
    };
    hosts.store(2, Ordering::Relaxed);
    let greedy = [change("a").await, change("a").await, change("a").await];
    assert_eq!(
        greedy,
        [true, true, false],
        "of 8 two hosts have 4 each, and a tenant half of that"
    );
    assert_eq!(
        [change("b").await, change("b").await, change("c").await],
        [true, true, false]
    );
}

/// The class of requests of which the server has asked for fewer.
fn throttled(cloud: &Gateway<DriverCloud>) -> Option<Throttled> {
    let driver = cloud
        .adapter()
        .and_then(|cloud| cloud.downcast_ref::<DriverCloud>());
    driver.expect("a driver").traffic().1
}

#[tokio::test]
async fn a_throttled_read_that_is_repeated_halves_the_rate_once_and_a_page_of_a_proxy_does_not() {
    let full = Server::saying(status(503, "", "{\"error\": {\"code\": \"too-many\"}}"));
    let page = Server::saying(status(503, "", "<html><body>503</body></html>"));
    let until = async |server: &Server| {
        let cloud = cloud(&server.address, json!([look(), "fail"]), None);
        let failed = come_to(&cloud, "machine.status").await;
        failed.expect_err("it is unavailable");
        assert!(server.seen().len() > 1, "it is repeated");
        throttled(&cloud).map(|throttled| throttled.until)
    };
    let half = until(&full).await.expect("it is throttled");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    // Half of a rate is back after 25 s, three quarters after 37.5 s.
    assert!(u128::from(half) < now.as_millis() + 26_000, "{half}");
    assert_eq!(until(&page).await, None);
}

#[tokio::test]
async fn what_a_server_throttles_has_a_rate_of_its_own_and_says_until_when() {
    let full = |code| status(code, "", "{\"error\": {\"code\": \"too-many\"}}");
    let server = Server::saying(full(503));
    let create = json!({"send": [{"effect": "create", "seals": "userData"}]});
    let change = json!({"send": [{"effect": "change", "method": "DELETE"}]});
    let steps = json!([{"of": {"machine.create": create, "machine.delete": change}}, "fail"]);
    let cloud = cloud(&server.address, steps, None);
    assert_eq!(throttled(&cloud), None);
    let failure = come_to(&cloud, "machine.create")
        .await
        .expect_err("it is throttled");
    let creates = throttled(&cloud).expect("it is throttled");
    assert!(creates.class.ends_with(" creates"), "{creates:?}");
    let until = polity_kube_rules::time::rfc3339(creates.until);
    assert!(
        failure.message.ends_with(&format!(" (Throttled until {until})")),
        "{failure}"
    );
    come_to(&cloud, "machine.delete")
        .await
        .expect_err("it is throttled");
    assert!(
        throttled(&cloud)
            .expect("it is throttled")
            .class
            .ends_with(" changes"),
        "each by itself"
    );
}

#[tokio::test]
async fn a_login_that_is_not_known_is_tried_once_more_and_a_create_never() {
    let server = Server::saying(status(401, "", "{}"));
    let (answer, count) = steps(&server, "machine.status", json!([look(), "unauthenticated"])).await;
    assert_eq!(answer.expect_err("refused").code, Code::Unauthenticated);
    assert_eq!(count, 2);
    let create = json!({"send": [{"effect": "create"}]});
    let (answer, count) = steps(&server, "machine.create", json!([create, "unauthenticated"])).await;
    let failure = answer.expect_err("refused");
    assert_eq!(
        (failure.code, failure.effect),
        (Code::Unauthenticated, Effect::None)
    );
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_away_leaves_nothing_in_doubt() {
    let server = Server::saying(ok("{}"));
    let refusing = Server::saying(status(403, "", "no"));
    let closed = {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        port.local_addr().expect("an address").to_string()
    };
    for proxy in [refusing.address.clone(), closed] {
        let create = json!([{"send": [{"effect": "create"}]}, "fail"]);
        let cloud = cloud(&server.address, create, Some(&format!("http://{proxy}")));
        let failure = come_to(&cloud, "machine.create").await.expect_err("no way");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Unavailable, Effect::None),
            "{failure}"
        );
        assert!(!failure.message.contains(TOKEN));
    }
    assert_eq!(server.seen(), Vec::<String>::new());
}

/// What these steps leave behind, of an operation and of a look for what it created.
async fn left_by(server: &Server, operation: &str, steps: Value) -> Vec<Exchanged> {
    let kept = Arc::<Kept>::default();
    let cloud = kept_cloud(&server.address, steps, None, Some(kept.clone()));
    let _ = come_to(&cloud, operation).await;
    std::mem::take(&mut *kept.0.lock().expect("unpoisoned"))
}

#[tokio::test]
async fn what_fails_or_creates_is_kept_and_a_driver_that_does_the_same_replays_it() {
    let server = Server::saying(ok(r#"{"id": 7}"#));
    let create = json!({"send": [{"effect": "create", "method": "POST", "seals": "userData"}]});
    for (operation, steps, parts) in [
        ("machine.status", json!([look(), fine()]), vec![]),
        (
            "machine.status",
            json!([look(), "fail"]),
            vec![(Part::Perform, false)],
        ),
        (
            "machine.delete",
            json!([{"send": [{"effect": "change", "method": "POST"}]}, {"say": "{"}]),
            vec![(Part::Perform, false)],
        ),
        (
            "machine.create",
            json!([look(), create, fine()]),
            vec![(Part::Prepare, true), (Part::Commit, true)],
        ),
    ] {
        let left = left_by(&server, operation, steps.clone()).await;
        let ended = |kept: &Exchanged| (kept.part, !matches!(kept.ended, Ended::Failed(_)));
        assert_eq!(left.iter().map(ended).collect::<Vec<_>>(), parts, "{steps}");
        for kept in left {
            let text = serde_json::to_string(&kept).expect("JSON");
            assert!(!text.contains(SEALED) && !text.contains(TOKEN), "{text}");
            let read: Exchanged = serde_json::from_str(&text).expect("JSON");
            assert_eq!(read, kept);
            let replayed = read.replay(&driver());
            match &kept.ended {
                // What the host itself found wrong is no end of the driver's.
                Ended::Failed(failure) if failure.code == Code::Internal => assert!(replayed.is_err()),
                _ => assert_eq!(replayed, Ok(()), "{text}"),
            }
        }
    }
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_replayed_up_to_the_same_request() {
    // It reads the request and says nothing.
    let server = Server::start(|_, _| ());
    let create = json!({"send": [{"effect": "create", "method": "POST"}]});
    let left = left_by(&server, "machine.create", json!([create, fine()])).await;
    let [prepared, committed] = &left[..] else {
        panic!("{left:?}");
    };
    assert_eq!((prepared.part, &prepared.ended), (Part::Prepare, &Ended::Ready));
    assert!(matches!(&committed.ended, Ended::Failed(failure) if failure.effect == Effect::Unknown));
    assert!(committed.last.is_some() && committed.call.exchanges.is_empty());
    assert_eq!(committed.replay(&driver()), Ok(()));
}

#[tokio::test]
async fn a_driver_that_does_otherwise_is_told_from_the_one_that_was_recorded() {
    let server = Server::saying(status(404, "", "{}"));
    let left = left_by(&server, "machine.status", json!([look(), "fail"])).await;
    let [kept] = &left[..] else {
        panic!("{left:?}");
    };
    let otherwise = |steps: Value| {
        let mut other = kept.clone();
        other.call.config = json!({"steps": steps}).to_string();
        other.replay(&driver()).expect_err("it differs")
    };
    let sends = otherwise(json!([{"send": [{"path": ["v2"]}]}, "fail"]));
    assert_eq!(
        sends.to_string(),
        "sends a request that was not sent: GET /v2 at api (read)"
    );
    let sends = otherwise(json!([{"send": [{}, {}]}, "fail"]));
    assert!(
        matches!(sends, Difference::Sends(_)),
        "{sends:?}: its response was one"
    );
    let ends = otherwise(json!([look(), {"answer": {"providerID": "p"}}]));
    assert!(
        ends.to_string()
            .starts_with(r#"answers {"providerID":"p"} instead of fails with "#),
        "{ends}"
    );
    for steps in [
        json!(["panic"]),
        json!([{"send": []}]),
        json!([look(), {"say": "{"}]),
    ] {
        let breaks = otherwise(steps);
        assert!(matches!(breaks, Difference::Breaks(_)), "{breaks:?}");
    }
}
