//! Tests of the failures that EC2's errors become.

use polity_driver_sdk::Code;
use polity_driver_sdk::test::Reply;
use serde_json::json;

use crate::ec2::{error, object, server};

fn status_of(reply: Reply) -> polity_driver_sdk::Failure {
    let server = server();
    server
        .borrow_mut()
        .instead
        .insert("DescribeInstances".into(), reply);
    object(&server)
        .perform("machine.status", json!({"name": "web-1"}))
        .unwrap_err()
}

#[test]
fn without_a_code_the_status_counts_and_404_means_no_machine_is_gone() {
    for (status, code) in [
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Internal),
        (302, Code::Internal),
        (408, Code::Unavailable),
        (429, Code::Unavailable),
        (500, Code::Unavailable),
        (502, Code::Unavailable),
        (504, Code::Unavailable),
        (501, Code::Internal),
        (200, Code::Internal),
    ] {
        let page = "<!DOCTYPE html><html><head><title>proxy</title></head><body><br></body></html>";
        assert_eq!(status_of(Reply::new(status, page)).code, code, "{status}");
    }
}

#[test]
fn an_answer_with_errors_is_an_error_whatever_its_status_is() {
    let failure = status_of(error(200, "InvalidInstanceID.NotFound", "gone"));
    assert_eq!(failure.code, Code::NotFound);
    let inside = "<DescribeInstancesResponse><Errors><Error><Code>InternalError</Code></Error></Errors><reservationSet/></DescribeInstancesResponse>";
    assert_eq!(status_of(Reply::new(200, inside)).code, Code::Unavailable);
    let empty = "<DescribeInstancesResponse><Errors/><reservationSet/></DescribeInstancesResponse>";
    assert_eq!(status_of(Reply::new(200, empty)).code, Code::Internal);
}

#[test]
fn a_message_has_the_code_the_words_and_the_request() {
    let message = status_of(error(403, "UnauthorizedOperation", "You are <not> authorized")).message;
    assert_eq!(
        message,
        "EC2 DescribeInstances: UnauthorizedOperation: You are <not> authorized \
         (request 59dbff89-35bd-4eac-99ed-be587EXAMPLE)"
    );
    let by_header = Reply::new(502, "bad gateway").header("x-amzn-requestid", "r-7");
    assert_eq!(
        status_of(by_header).message,
        "EC2 DescribeInstances: HTTP 502, and the body is not an answer of EC2: check the endpoint and the proxy (request r-7)"
    );
}

#[test]
fn a_message_is_bounded_at_a_character() {
    let long = "ä".repeat(50_000);
    let message = status_of(error(403, "UnauthorizedOperation", &long)).message;
    assert!((1_000..1_200).contains(&message.len()), "{}", message.len());
    let message = status_of(error(403, &long, &long)).message;
    assert!(message.len() < 1_400, "{}", message.len());
}

#[test]
fn a_throttled_request_says_when_to_try_again() {
    let throttled = || error(503, "RequestLimitExceeded", "Request limit exceeded.");
    assert_eq!(status_of(throttled()).retry_after, Some(5_000));
    assert_eq!(
        status_of(throttled().header("retry-after", "17")).retry_after,
        Some(17_000)
    );
    let date = throttled().header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT");
    assert_eq!(status_of(date).retry_after, Some(5_000));
    assert_eq!(
        status_of(throttled().header("retry-after", "99999999999999999999")).retry_after,
        Some(5_000)
    );
    assert_eq!(
        status_of(error(400, "InvalidParameterValue", "no")).retry_after,
        None
    );
}
