//! Deletions.

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Code, Failure};
use serde_json::json;

use crate::ec2::{error, object, server};

#[test]
fn a_machine_is_terminated_after_a_look_at_its_owner() {
    for by_id in [true, false] {
        let server = server();
        let mut owner = object(&server);
        let made = owner.create("web-1");
        let mut arguments = json!({"name": "web-1", "providerSpec": {"no": "longer valid"}});
        if by_id {
            arguments["providerID"] = made["providerID"].clone();
        }
        assert_eq!(
            owner.perform("machine.delete", arguments.clone()).unwrap(),
            json!({})
        );
        assert_eq!(owner.actions()[2..], ["DescribeInstances", "TerminateInstances"]);
        assert_eq!(owner.sent()[3]["InstanceId.1"], server.borrow().instances[0].id);
        assert_eq!(server.borrow().instances[0].state, "shutting-down");
        let again = owner.perform("machine.delete", arguments);
        // Its id is known, so EC2 shows that it is terminated.
        match again {
            Ok(answer) => assert!(by_id && answer == json!({})),
            Err(failure) => assert!(!by_id && failure.code == Code::NotFound),
        }
        assert_eq!(owner.changes(), 2, "it is not terminated twice");
    }
}

#[test]
fn of_two_machines_of_one_name_none_is_terminated() {
    let server = server();
    let mut owner = object(&server);
    for _ in 0..2 {
        server.borrow_mut().machine("owner-1", "web-1");
    }
    let failure = owner
        .perform("machine.delete", json!({"name": "web-1"}))
        .unwrap_err();
    assert_eq!((failure.code, owner.changes()), (Code::OutOfRange, 0));
}

#[test]
fn a_machine_that_goes_between_look_and_request_is_not_found() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    let gone = error(
        400,
        "InvalidInstanceID.NotFound",
        "The instance ID does not exist",
    );
    server
        .borrow_mut()
        .instead
        .insert("TerminateInstances".into(), gone);
    let failure = owner
        .perform("machine.delete", json!({"name": "web-1"}))
        .unwrap_err();
    assert_eq!((failure.code, failure.doubtful), (Code::NotFound, false));
}

#[test]
fn a_deletion_fails_with_what_ec2_says() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    let other = "<TerminateInstancesResponse><instancesSet><item><instanceId>i-99999999</instanceId></item></instancesSet></TerminateInstancesResponse>";
    for (reply, code, doubtful) in [
        (
            error(400, "OperationNotPermitted", "termination protection"),
            Code::FailedPrecondition,
            false,
        ),
        (
            error(400, "IncorrectInstanceState", "no"),
            Code::FailedPrecondition,
            false,
        ),
        (
            error(403, "UnauthorizedOperation", "no"),
            Code::PermissionDenied,
            false,
        ),
        (error(503, "Unavailable", "rest"), Code::Unavailable, true),
        (Reply::new(200, other), Code::Internal, true),
        (Reply::new(200, "{}"), Code::Internal, true),
        (Reply::new(404, "not here"), Code::Internal, true),
    ] {
        server
            .borrow_mut()
            .instead
            .insert("TerminateInstances".into(), reply);
        let failure = owner
            .perform("machine.delete", json!({"name": "web-1"}))
            .unwrap_err();
        assert_eq!(
            (failure.code, !owner.play.changed_nothing(&failure)),
            (code, doubtful),
            "{}",
            failure.message
        );
    }
}

#[test]
fn a_deletion_ends_when_the_look_fails() {
    let server = server();
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let cut = Failure {
        code: Code::DeadlineExceeded,
        message: "cut".to_owned(),
        retry_after: None,
        doubtful: false,
    };
    server
        .borrow_mut()
        .instead
        .insert("DescribeInstances".into(), Reply::lost(cut.clone()));
    let failure = owner.perform(
        "machine.delete",
        json!({"name": "web-1", "providerID": made["providerID"]}),
    );
    assert_eq!(failure.unwrap_err(), cut);
    assert_eq!(owner.changes(), 1, "the create alone");
}

/// The arguments for the machine `web-1` of `owner-1`.
fn orphan(made: &serde_json::Value, owner: &str) -> serde_json::Value {
    json!({"providerID": made["providerID"], "owner": owner})
}

#[test]
fn an_orphan_is_terminated_by_another_object_of_its_tenant() {
    let server = server();
    let mut gone = object(&server);
    let made = gone.create("web-1");
    let mut sweeper = object(&server);
    sweeper.play.owner = "uid-of-a-safety".to_owned();
    let deleted = sweeper.perform("orphan.delete", orphan(&made, "owner-1"));
    assert_eq!(deleted.unwrap(), json!({}));
    assert_eq!(sweeper.actions(), ["DescribeInstances", "TerminateInstances"]);
    let again = sweeper.perform("orphan.delete", orphan(&made, "owner-1"));
    assert_eq!(again.unwrap_err().code, Code::NotFound);
    assert_eq!(sweeper.changes(), 1);
}

#[test]
fn what_the_marks_of_an_orphan_do_not_say_is_not_believed() {
    let server = server();
    let mut gone = object(&server);
    let made = gone.create("web-1");
    let mut sweeper = object(&server);
    sweeper.play.owner = "uid-of-a-safety".to_owned();
    // Another owner, and the right one in another tenant.
    let other = sweeper.perform("orphan.delete", orphan(&made, "owner-2"));
    assert_eq!(other.unwrap_err().code, Code::PermissionDenied);
    sweeper.play.tenant = "tenant-2".to_owned();
    let elsewhere = sweeper.perform("orphan.delete", orphan(&made, "owner-1"));
    assert_eq!(elsewhere.unwrap_err().code, Code::PermissionDenied);
    assert_eq!(sweeper.changes(), 0);
}
