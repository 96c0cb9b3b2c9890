//! Tests of the failures that refusals become.

use polity_driver_sdk::{Code, Failure};
use serde_json::json;

use crate::bench::{Bench, by_id, port};
use crate::cloud::Reply;
use crate::cloud::neutron::error;
use crate::cloud::nova::fault;

/// The failure of a read that nova answers with this reply.
fn read(reply: Reply) -> Failure {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().answer("GET servers/", reply);
    bench.failure("router.alive", by_id(&id))
}

/// The failure of a change that nova answers with this reply.
fn change(reply: Reply) -> Failure {
    let mut bench = Bench::new();
    let id = bench.cloud().server("edge");
    bench.cloud().answer("DELETE servers/", reply);
    bench.failure("router.delete", by_id(&id))
}

#[test]
fn a_refusal_of_nova_has_the_code_of_its_status() {
    for (status, name, code) in [
        (400, "badRequest", Code::InvalidArgument),
        (401, "unauthorized", Code::Unauthenticated),
        (403, "forbidden", Code::PermissionDenied),
        (404, "itemNotFound", Code::NotFound),
        (405, "badMethod", Code::Internal),
        (406, "computeFault", Code::Unimplemented),
        (409, "conflictingRequest", Code::FailedPrecondition),
        (413, "overLimit", Code::Unavailable),
        (429, "overLimit", Code::Unavailable),
        (500, "computeFault", Code::Internal),
        (501, "notImplemented", Code::Unimplemented),
        (503, "serviceUnavailable", Code::Unavailable),
    ] {
        for (failure, is_change) in [
            (read(fault(status, name, "why")), false),
            (change(fault(status, name, "why")), true),
        ] {
            assert_eq!(failure.code, code, "{status}");
            assert_eq!(failure.message, format!("nova answers {status}: why (req-77)"));
            assert_eq!(failure.doubtful, is_change && status >= 500, "{status}");
        }
    }
}

#[test]
fn an_answer_of_something_in_front_leaves_a_change_in_doubt() {
    for (status, code) in [
        (302, Code::Internal),
        (400, Code::InvalidArgument),
        (403, Code::PermissionDenied),
        (404, Code::Unavailable),
        (408, Code::DeadlineExceeded),
        (429, Code::Unavailable),
        (500, Code::Internal),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::DeadlineExceeded),
        (599, Code::Internal),
    ] {
        for page in [
            "<html><head><title>Oops</title></head><body>proxy</body></html>",
            "Oops <b>proxy",
            "",
        ] {
            let failure = change(Reply::new(status, page));
            assert_eq!((failure.code, failure.doubtful), (code, true), "{status} {page}");
            assert_eq!(
                failure.message.contains("Oops"),
                !page.is_empty(),
                "{}",
                failure.message
            );
            assert!(!read(Reply::new(status, page)).doubtful);
        }
    }
    // Nova checks the token before it does anything.
    let expired = change(Reply::new(401, "Authentication required"));
    assert_eq!((expired.code, expired.doubtful), (Code::Unauthenticated, false));
}

#[test]
fn a_token_that_has_ended_is_unauthenticated_everywhere() {
    let expired = || {
        Reply::json(
            401,
            json!({"error": {"code": 401, "title": "Unauthorized", "message": "no"}}),
        )
    };
    let mut bench = Bench::new();
    for begin in ["GET v2.0", "GET v2/", "GET servers"] {
        bench.cloud().answer(begin, expired());
    }
    for (operation, arguments) in [
        ("port.get", port(1)),
        ("image.get", json!({"image": "image-1"})),
        ("router.get", json!({"name": "edge"})),
        ("router.resource", json!({"name": "edge"})),
    ] {
        assert_eq!(
            bench.code(operation, arguments),
            Code::Unauthenticated,
            "{operation}"
        );
    }
}

#[test]
fn a_quota_is_exhausted_whichever_service_says_so() {
    assert_eq!(
        read(fault(403, "forbidden", "Quota exceeded for cores")).code,
        Code::ResourceExhausted
    );
    let mut bench = Bench::new();
    for kind in ["OverQuota", "IpAddressGenerationFailure"] {
        bench.cloud().answer("GET v2.0", error(409, kind, "No more."));
        assert_eq!(bench.code("port.get", port(1)), Code::ResourceExhausted);
    }
    bench
        .cloud()
        .answer("GET v2.0", error(409, "PortInUse", "quota of words"));
    assert_eq!(bench.code("port.get", port(1)), Code::FailedPrecondition);
}

#[test]
fn a_server_says_how_long_to_wait() {
    for (header, wait) in [
        ("7", Some(7_000)),
        (" 0 ", Some(0)),
        ("99999999", Some(3_600_000)),
        ("-1", None),
        ("99999999999999999999999", None),
        ("Mon, 21 Sep 2026 14:13:20 GMT", None),
        ("", None),
    ] {
        for status in [413, 429, 503] {
            let reply = fault(status, "overLimit", "slower").header("retry-after", header);
            assert_eq!(read(reply).retry_after, wait, "{header}");
        }
    }
    assert_eq!(read(fault(503, "serviceUnavailable", "")).retry_after, None);
}

#[test]
fn messages_are_one_line_and_bounded() {
    let long = format!("first\n\tsecond\u{0}\u{7} {}", "ä".repeat(100_000));
    let reply = fault(500, "computeFault", &long).header("x-openstack-request-id", &"r".repeat(5_000));
    let message = read(reply).message;
    assert!(
        message.starts_with("nova answers 500: first second ä"),
        "{message}"
    );
    assert!(message.len() < 1_024 && !message.contains(char::is_control));
    let compute = Reply::json(500, json!({})).header("x-compute-request-id", "req-8");
    assert_eq!(read(compute).message, "nova answers 500 (req-8)");
}

#[test]
fn a_message_of_the_wrong_type_is_no_message() {
    for wrong in [
        json!({"computeFault": "text"}),
        json!({"computeFault": {"message": {"adminPass": "x"}}}),
        json!({"computeFault": [{"message": "x"}]}),
        json!([1]),
        json!(null),
        json!("x"),
    ] {
        let failure = change(Reply::json(409, wrong.clone()));
        assert_eq!(
            (failure.code, failure.doubtful),
            (Code::FailedPrecondition, true),
            "{wrong}"
        );
        assert_eq!(failure.message, "nova answers 409");
    }
}

#[test]
fn a_read_without_a_response_has_the_failure_of_the_host() {
    let lost = polity_driver_sdk::Failure {
        retry_after: Some(3),
        ..polity_driver_sdk::failure(Code::Cancelled, "shutting down")
    };
    assert_eq!(read(Reply::lost(lost.clone())), lost);
}
