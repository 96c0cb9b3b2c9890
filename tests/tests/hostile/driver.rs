//! Drivers and servers whose work is large: bodies, paths, transformations, values of Secrets. While one tenant asks for such work
//! again and again, the operations of another tenant are counted, and no thread of the runtime computes for long.
//!
//! Time is real here, because requests go to real servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polity::polls::{Measured, take_longest};
use polity_clouds::Cloud as _;
use polity_core::contract::{Answer, Code, Effect};
use polity_tests::hostile_driver::{self, Server, come_to, fine, look, ok, request, say, unpaced};
use serde_json::{Value, json};

use crate::hostile::POLL;

/// How long each row is played.
const PLAYED: Duration = Duration::from_millis(1_500);
/// The operations of the offender at the same time.
const AT_A_TIME: usize = 4;
/// Between two operations of an offender. To make a connection for each takes time of this thread, too.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two operations of the neighbour.
const EVERY: Duration = Duration::from_millis(25);

/// Large work.
struct Work {
    name: &'static str,
    operation: &'static str,
    steps: Value,
    /// The value of the sealed argument.
    value: String,
    /// What its server answers.
    says: String,
    /// The code of its failure; `None` if it goes well.
    fails: Option<Code>,
}

fn rows() -> Vec<Work> {
    let reads = |name, wish: Value, says: String, fails| Work {
        name,
        operation: "machine.status",
        steps: json!([{"send": wish}, fine()]),
        value: String::new(),
        says,
        fails,
    };
    let creates = |name, wish: Value, value: String, fails| {
        let mut wish = wish;
        (wish["effect"], wish["seals"]) = (json!("create"), json!("userData"));
        let says = ok(&json!({"text": "x".repeat(1 << 20), "alike": "a".repeat(1 << 20)}).to_string());
        let steps = json!([{"send": [wish]}, fine()]);
        Work {
            name,
            operation: "machine.create",
            steps,
            value,
            says,
            fails,
        }
    };
    let fields = ok(&hostile_driver::fields());
    let broken = Some(Code::Internal);
    vec![
        reads(
            "paths-by-the-thousand",
            json!([{"paths": [60_000, 20]}]),
            fields.clone(),
            broken,
        ),
        reads(
            "fields-by-the-thousand",
            json!([{"paths": [255, 200]}]),
            fields,
            None,
        ),
        reads(
            "a-change-that-is-called-a-read",
            json!([{"method": "DELETE"}]),
            String::new(),
            broken,
        ),
        reads(
            "a-post-that-is-called-a-read",
            json!([{"method": "POST"}]),
            String::new(),
            broken,
        ),
        reads(
            "a-body-with-a-get",
            json!([{"text": ["Action=TerminateInstances"]}]),
            String::new(),
            broken,
        ),
        reads(
            "a-post-to-an-appliance-that-is-called-a-read",
            json!([{"method": "POST", "endpoint": "appliance", "address": "10.0.0.9"}]),
            String::new(),
            broken,
        ),
        reads("a-deep-body", json!([{}]), ok(&"[".repeat(4 << 20)), None),
        reads(
            "a-body-of-small-values",
            json!([{}]),
            ok(&format!("[{}0]", "0,".repeat(2_000_000))),
            None,
        ),
        reads(
            "a-body-of-small-elements",
            json!([{}]),
            ok(&format!("<a>{}</a>", "<b/>".repeat(1_000_000))),
            None,
        ),
        reads(
            "sixty-four-large-responses",
            vec![json!({}); 64].into(),
            ok(&"x".repeat((4 << 20) - 1)),
            Some(Code::ResourceExhausted),
        ),
        creates(
            "transformations",
            json!({"then": [["json", 40]]}),
            "\\".repeat(16),
            broken,
        ),
        creates(
            "growth",
            json!({"then": [["json", 3]]}),
            "\\".repeat(65_000),
            broken,
        ),
        creates("copies", json!({"copies": 4_000}), "x".repeat(60_000), broken),
        creates("pieces", json!({"pieces": 4_000}), "x".repeat(60_000), broken),
        creates(
            "a-secret-in-a-label",
            json!({"field": "label"}),
            "x".repeat(60_000),
            broken,
        ),
        creates(
            "a-large-secret",
            json!({}),
            "12345678\n".repeat(100_000),
            Some(Code::InvalidArgument),
        ),
        creates(
            "a-secret-of-many-lines",
            json!({"then": [["base64", 1]]}),
            hostile_driver::lines(),
            None,
        ),
        creates(
            "a-secret-of-a-few-bytes",
            json!({}),
            "instance".to_owned(),
            Some(Code::InvalidArgument),
        ),
        creates("a-secret-like-the-answer", json!({}), "a".repeat(65_000), None),
    ]
}

/// How many operations a neighbour gets while somebody offends, or nobody; what comes of the offences, and whether anything was
/// sent for them.
async fn played(work: Option<&Work>) -> (usize, Vec<Option<(Code, Effect)>>, bool) {
    let benign = Server::saying(ok("{}"));
    let neighbour = unpaced(&benign.address, &json!([look(), fine()]), "");
    let (end, count) = (Instant::now() + PLAYED, AtomicUsize::new(0));
    let passes = async {
        while Instant::now() < end {
            let mut asked = request("machine.status");
            asked.session.tenant_queue = "neighbour".into();
            neighbour.perform(asked).await.expect("it is answered");
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(EVERY).await;
        }
    };
    let offences = async {
        let Some(work) = work else {
            return (Vec::new(), false);
        };
        let server = Server::saying(work.says.clone());
        let offend = async || {
            let mut ends = Vec::new();
            while Instant::now() < end {
                // Each time another one, because an operation whose driver broke its contract waits.
                let offended = unpaced(&server.address, &work.steps, &work.value);
                let ended = Measured::new(work.name, come_to(&offended, work.operation)).await;
                tokio::time::sleep(PAUSE).await;
                ends.push(ended.err().map(|failure| (failure.code, failure.effect)));
            }
            ends
        };
        let all = (0..AT_A_TIME).map(|_| offend());
        let ends = futures::future::join_all(all).await.concat();
        (ends, !server.seen().is_empty())
    };
    let (_, (ends, is_sent)) = tokio::join!(Measured::new("neighbour", passes), offences);
    (count.into_inner(), ends, is_sent)
}

#[tokio::test]
async fn large_work_of_one_tenant_is_done_beside_the_operations_of_others() {
    // The driver is compiled, and all that is made once.
    let _ = come_to(
        &unpaced(&Server::saying(ok("{}")).address, &json!([look(), fine()]), ""),
        "machine.status",
    )
    .await;
    take_longest();
    let (quiet, ..) = played(None).await;
    let mut wrong = Vec::new();
    for work in rows().iter().filter(|work| crate::hostile::is_chosen(work.name)) {
        let (count, ends, is_sent) = played(Some(work)).await;
        let mut say = |why: String| wrong.push(format!("{}: {why}", work.name));
        // Two processors are shared with three servers, and with other tests; on a thread that somebody blocks it has none.
        if count < quiet / 8 {
            say(format!(
                "the neighbour had {count} operations, and {quiet} without"
            ));
        }
        let (longest, what) = take_longest();
        if longest > POLL {
            say(format!("a poll of {what} took {longest:?}"));
        }
        let expected = work.fails.map(|code| (code, Effect::None));
        // An operation may run out of time beside three others; nothing else may come of it.
        let is_other = |end: &&Option<(Code, Effect)>| {
            **end != expected && !matches!(end, Some((Code::DeadlineExceeded | Code::Aborted, _)))
        };
        if let Some(other) = ends.iter().find(is_other) {
            say(format!("{other:?} of {}", ends.len()));
        }
        if is_sent && work.fails == Some(Code::Internal) {
            say("something was sent".to_owned());
        }
        if ends.is_empty() {
            say("nothing came of it".to_owned());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How many operations of the slow tenant wait.
const SLOW: usize = 60;

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_for_one_tenant_is_reached_by_the_others() {
    let server = Server::start(|request, stream| {
        if request.contains("/slow") {
            // Until the other side closes it.
            let mut kept = stream.try_clone().expect("a socket");
            std::thread::spawn(move || std::io::copy(&mut kept, &mut std::io::sink()));
        } else {
            say(stream, &ok("{}"));
        }
    });
    let slow = json!({"send": [{"path": ["slow"]}]});
    let steps = json!([
        {"of": {"machine.status": look(), "machine.delete": slow}},
        {"of": {"machine.status": fine(), "machine.delete": "fail"}},
    ]);
    // Both tenants come by the same connection.
    let cloud = unpaced(&server.address, &steps, "");
    let of = |tenant: &str, operation: &str| {
        let mut request = request(operation);
        request.session.tenant = tenant.to_owned();
        request.session.tenant_queue = tenant.into();
        request
    };
    let slow = (0..SLOW).map(|_| cloud.perform(of("slow", "machine.delete")));
    let late = futures::future::join_all(slow).await;
    let is_late = |end: &Answer| {
        end.as_ref()
            .is_err_and(|failure| failure.message.contains("no response in time"))
    };
    assert!(late.iter().all(is_late), "{late:?}");
    // Their time is over; from here on time is real, because the server answers.
    tokio::time::resume();
    for _ in 0..15 {
        let end = cloud.perform(of("other", "machine.status")).await;
        assert!(end.is_ok(), "{end:?}");
    }
}
