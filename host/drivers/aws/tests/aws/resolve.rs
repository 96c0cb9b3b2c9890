//! Tests of creates whose answer was lost.

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Code, Failure, Finding};
use serde_json::{Value, json};

use crate::ec2::{Object, error, error_without_code, named, object, server};

fn found(finding: Finding) -> Value {
    match finding {
        Finding::Found(answer) => serde_json::from_str(&answer).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn cannot_tell(finding: Finding) -> Failure {
    match finding {
        Finding::CannotTell(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_create_whose_answer_was_lost_is_found_with_what_it_would_have_answered() {
    let server = server();
    let mut owner = object(&server);
    let lost = Failure {
        code: Code::DeadlineExceeded,
        message: "cut".to_owned(),
        retry_after: None,
        doubtful: true,
    };
    server
        .borrow_mut()
        .afterwards
        .insert("RunInstances".into(), Reply::lost(lost));
    assert!(owner.perform("machine.create", named("web-1")).is_err());
    server.borrow_mut().instances[0].state = "running";
    let finding = found(owner.resolve("web-1"));
    // The same steps on another server show the answer that was lost.
    let answer = object(&crate::ec2::server()).create("web-1");
    assert_eq!(finding, answer);
}

#[test]
fn a_create_that_made_nothing_is_none() {
    let server = server();
    server.borrow_mut().machine("owner-1", "web-1");
    let mut owner = object(&server);
    assert_eq!(
        owner.resolve("web-1"),
        Finding::None,
        "the name is the same, the key is not"
    );
    let sent = owner.sent();
    assert_eq!(sent[0]["Filter.1.Name"], "client-token");
    assert_eq!(sent[0]["Filter.1.Value.1"], "key-1");
}

#[test]
fn rows_of_other_creates_are_none_when_the_server_ignores_the_filter() {
    let server = server();
    for nth in 0..30 {
        server.borrow_mut().machine("owner-1", &format!("web-{nth}"));
    }
    server.borrow_mut().filters = false;
    server.borrow_mut().page = 10;
    let mut owner = object(&server);
    assert_eq!(owner.resolve("web-1"), Finding::None);
    assert_eq!(owner.play.sent.len(), 3);
    server.borrow_mut().machine("owner-1", "web-1").token = "key-1".to_owned();
    assert!(
        matches!(owner.resolve("web-1"), Finding::Found(_)),
        "it stands on the last page"
    );
}

#[test]
fn an_instance_that_is_terminated_is_none() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    for state in ["shutting-down", "terminated"] {
        server.borrow_mut().instances[0].state = state;
        assert_eq!(owner.resolve("web-1"), Finding::None, "{state}");
    }
    server.borrow_mut().instances[0].tags.clear();
    assert_eq!(owner.resolve("web-1"), Finding::None, "it loses its tags");
}

#[test]
fn an_instance_with_the_token_and_other_marks_cannot_be_told() {
    let server = server();
    object(&server).create("web-1");
    let mut other = object(&server);
    other.play.owner = "owner-2".to_owned();
    assert_eq!(cannot_tell(other.resolve("web-1")).code, Code::PermissionDenied);
    let mut other = object(&server);
    other.play.tenant = "tenant-2".to_owned();
    assert_eq!(cannot_tell(other.resolve("web-1")).code, Code::PermissionDenied);
    server.borrow_mut().instances[0].tags.clear();
    assert_eq!(
        cannot_tell(object(&server).resolve("web-1")).code,
        Code::PermissionDenied
    );
}

#[test]
fn two_instances_with_one_token_cannot_be_told() {
    let server = server();
    (0..2).for_each(|_| server.borrow_mut().machine("owner-1", "web-1").token = "key-1".to_owned());
    assert_eq!(
        cannot_tell(object(&server).resolve("web-1")).code,
        Code::OutOfRange
    );
}

#[test]
fn a_look_that_was_not_complete_cannot_tell() {
    let server = server();
    let mut owner = object(&server);
    let describe = |inside: &str| {
        Reply::new(
            200,
            format!("<DescribeInstancesResponse>{inside}</DescribeInstancesResponse>"),
        )
    };
    let row = |of: &str| {
        format!(
            "<reservationSet><item><instancesSet><item>{of}</item></instancesSet></item></reservationSet>"
        )
    };
    for (reply, code) in [
        (error(503, "RequestLimitExceeded", "slow down"), Code::Unavailable),
        (error(400, "ExpiredToken", "over"), Code::Unauthenticated),
        (error(403, "UnauthorizedOperation", "no"), Code::PermissionDenied),
        (error_without_code(400), Code::Internal),
        (Reply::new(200, ""), Code::Internal),
        (
            Reply::new(200, "<html><body>Sign in</body></html>"),
            Code::Internal,
        ),
        (
            Reply::new(404, "<html><body>Not Found</body></html>"),
            Code::Internal,
        ),
        (
            Reply::json(200, json!({"DescribeInstancesResponse": "x"})),
            Code::Internal,
        ),
        (describe(""), Code::Internal),
        (
            describe("<reservationSet/><nextToken>a</nextToken>"),
            Code::Internal,
        ),
        (
            describe(&row("<instanceId>i-01234567</instanceId>")),
            Code::Internal,
        ),
        (describe(&row("<clientToken>key-1</clientToken>")), Code::Internal),
        (
            describe("<reservationSet/><Errors><Error><Code>X</Code></Error></Errors>"),
            Code::Internal,
        ),
    ] {
        let said = format!("{reply:?}");
        server
            .borrow_mut()
            .instead
            .insert("DescribeInstances".into(), reply);
        let failure = cannot_tell(owner.resolve("web-1"));
        assert_eq!(failure.code, code, "{said}: {}", failure.message);
    }
}

#[test]
fn an_entry_of_other_marks_or_without_a_key_cannot_be_told() {
    let server = server();
    let resolve = |change: &dyn Fn(&mut polity_driver_sdk::Entry), owner: &mut Object| {
        let mut entry = owner.play.entry("web-1");
        change(&mut entry);
        cannot_tell(
            owner
                .play
                .resolve::<polity_driver_aws::Aws>("machine.create", entry),
        )
        .code
    };
    let mut owner = object(&server);
    assert_eq!(
        resolve(&|entry| entry.stamp = 2, &mut owner),
        Code::FailedPrecondition
    );
    assert_eq!(
        resolve(&|entry| entry.key.clear(), &mut owner),
        Code::FailedPrecondition
    );
    let entry = owner.play.entry("web-1");
    let other = owner.play.resolve::<polity_driver_aws::Aws>("vm.clone", entry);
    assert_eq!(cannot_tell(other).code, Code::Unimplemented);
    assert_eq!(owner.play.sent, []);
}
