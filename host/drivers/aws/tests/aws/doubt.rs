//! Tests of creates that fail: whether the failure says that something may have been created.

use polity_driver_sdk::Code;
use polity_driver_sdk::test::Reply;

use crate::ec2::{error, named, object, server};

#[test]
fn a_refused_create_is_certain_and_every_other_failure_of_it_is_doubtful() {
    let server = server();
    let mut owner = object(&server);
    let garbage = "<RunInstancesResponse><instancesSet/></RunInstancesResponse>";
    let two = garbage.replace("<instancesSet/>", &format!("<instancesSet>{0}{0}</instancesSet>", "<item><instanceId>i-01234567</instanceId><instanceState><name>pending</name></instanceState><placement><availabilityZone>z</availabilityZone></placement></item>"));
    for (reply, code, doubtful) in [
        (
            error(500, "InsufficientInstanceCapacity", "none"),
            Code::ResourceExhausted,
            false,
        ),
        (
            error(400, "InvalidParameterValue", "no"),
            Code::InvalidArgument,
            false,
        ),
        (
            error(403, "UnauthorizedOperation", "no"),
            Code::PermissionDenied,
            false,
        ),
        (
            error(400, "IdempotentParameterMismatch", "known"),
            Code::Unknown,
            true,
        ),
        (
            error(400, "IdempotentInstanceTerminated", "known"),
            Code::FailedPrecondition,
            true,
        ),
        (
            error(503, "RequestLimitExceeded", "slow down"),
            Code::Unavailable,
            false,
        ),
        (error(503, "Unavailable", "rest"), Code::Unavailable, true),
        (error(503, "ServiceUnavailable", "rest"), Code::Unavailable, true),
        (
            error(504, "RequestLimitExceeded", "from a proxy"),
            Code::Unavailable,
            true,
        ),
        (
            Reply::new(503, "<html><p>RequestLimitExceeded</p></html>"),
            Code::Unavailable,
            true,
        ),
        (error(500, "InternalError", "oh"), Code::Unavailable, true),
        (error(429, "Throttling", "slow down"), Code::Unavailable, true),
        (error(408, "RequestTimeout", "late"), Code::Unavailable, true),
        (
            error(200, "InsufficientInstanceCapacity", "none"),
            Code::ResourceExhausted,
            true,
        ),
        (Reply::new(400, "<html>proxy</html>"), Code::Internal, true),
        (Reply::new(502, "<html>proxy</html>"), Code::Unavailable, true),
        (Reply::new(200, "<html>welcome</html>"), Code::Internal, true),
        (Reply::new(200, ""), Code::Internal, true),
        (Reply::new(200, garbage), Code::Internal, true),
        (Reply::new(200, two), Code::Internal, true),
    ] {
        let said = format!("{reply:?}");
        server.borrow_mut().instead.insert("RunInstances".into(), reply);
        let failure = owner.perform("machine.create", named("web-1")).unwrap_err();
        assert_eq!(
            (failure.code, !owner.play.changed_nothing(&failure)),
            (code, doubtful),
            "{said}: {}",
            failure.message
        );
    }
}

#[test]
fn a_look_that_fails_before_a_create_leaves_nothing_in_doubt() {
    let server = server();
    let mut owner = object(&server);
    server
        .borrow_mut()
        .instead
        .insert("DescribeInstances".into(), error(503, "Unavailable", "rest"));
    let failure = owner.perform("machine.create", named("web-1")).unwrap_err();
    assert_eq!((failure.code, failure.doubtful), (Code::Unavailable, false));
    assert_eq!(owner.changes(), 0);
}
