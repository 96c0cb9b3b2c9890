//! Tests of refusals, and of servers that fail.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::test::Reply;

use crate::bench::{Bench, clone_arguments, own};
use crate::vcenter::{OWN_VM, xml};

/// Lets a method give this answer.
fn instead(method: &str, reply: Reply) -> Bench {
    let bench = Bench::new();
    bench.vcenter().instead.insert(method.to_owned(), reply);
    bench
}

#[test]
fn a_change_that_something_else_answers_is_doubtful() {
    let page = "<!DOCTYPE html><html><body><h1>503 Service Unavailable</h1></body></html>";
    let replies = [
        (Reply::new(503, page), Code::Unavailable),
        (Reply::new(502, "<html><br></html>"), Code::Unavailable),
        (Reply::new(500, ""), Code::Unavailable),
        (
            Reply::new(504, "upstream request timeout"),
            Code::DeadlineExceeded,
        ),
        (Reply::new(401, ""), Code::Unauthenticated),
        (Reply::new(403, page), Code::PermissionDenied),
        (Reply::new(200, page), Code::Internal),
        (Reply::new(200, "\u{0}\u{1}garbage"), Code::Internal),
        (Reply::new(200, r#"{"task": "task-1"}"#), Code::Internal),
        (
            Reply::new(200, xml::response("PowerOffVM_Task", "")),
            Code::Internal,
        ),
        (
            Reply::new(200, xml::response("PowerOnVM_Task", "")),
            Code::Internal,
        ),
        (
            Reply::new(
                200,
                xml::response("PowerOnVM_Task", "<returnval type=\"Task\">a b</returnval>"),
            ),
            Code::Internal,
        ),
        (
            Reply::new(
                500,
                xml::response("PowerOnVM_Task", "<returnval>task-1</returnval>"),
            ),
            Code::Unavailable,
        ),
        (Reply::new(500, xml::fault("SystemError", "")), Code::Internal),
    ];
    for (reply, code) in replies {
        let mut bench = instead("PowerOnVM_Task", reply.clone());
        let failure = bench.call("vm.power-on", own()).unwrap_err();
        assert_eq!((failure.code, failure.doubtful), (code, true), "{reply:?}");
    }
}

#[test]
fn a_clone_that_something_else_answers_is_doubtful_and_its_lost_answer_is_the_hosts() {
    let mut bench = instead("CloneVM_Task", Reply::new(502, "bad gateway"));
    assert!(bench.call("vm.clone", clone_arguments()).unwrap_err().doubtful);
    let lost = failure(Code::DeadlineExceeded, "cut");
    let mut bench = instead("CloneVM_Task", Reply::lost(lost.clone()));
    assert_eq!(bench.call("vm.clone", clone_arguments()).unwrap_err(), lost);
}

#[test]
fn a_read_that_something_else_answers_is_never_absence() {
    for reply in [
        Reply::new(404, "<html>not found</html>"),
        Reply::new(200, "<html>sign in</html>"),
        Reply::new(200, ""),
        Reply::new(503, "busy").header("retry-after", "7"),
        Reply::new(200, xml::response("RetrievePropertiesEx", "")),
        Reply::new(
            200,
            xml::response("RetrievePropertiesEx", "<returnval><objects/></returnval>"),
        ),
        Reply::lost(failure(Code::Unavailable, "no route")),
    ] {
        for operation in ["vm.get", "vm.nics", "vm.power", "vm.destroy"] {
            let mut bench = instead("RetrievePropertiesEx", reply.clone());
            let failure = bench.call(operation, own()).unwrap_err();
            let is_told = ![Code::NotFound, Code::PermissionDenied].contains(&failure.code);
            assert!(is_told, "{operation} {reply:?}: {failure:?}");
            assert!(!failure.doubtful);
            assert_eq!(bench.changes(), 0);
        }
    }
    let mut bench = instead(
        "RetrievePropertiesEx",
        Reply::new(503, "busy").header("retry-after", "7"),
    );
    assert_eq!(bench.call("vm.get", own()).unwrap_err().retry_after, Some(7_000));
}

#[test]
fn a_search_that_something_else_answers_is_never_absence() {
    for reply in [
        Reply::new(404, ""),
        Reply::new(200, "<html/>"),
        Reply::new(500, ""),
    ] {
        let mut bench = instead("FindAllByUuid", reply);
        assert_ne!(
            bench.code("vm.find", json!({"instanceUuid": "owner-1"})),
            Code::NotFound
        );
    }
}

#[test]
fn a_message_of_a_server_is_one_bounded_line() {
    let mut bench = instead(
        "PowerOnVM_Task",
        Reply::new(500, format!("a\n\t{}", "x".repeat(5_000))),
    );
    let message = bench.call("vm.power-on", own()).unwrap_err().message;
    assert!(message.len() < 600 && !message.contains('\n'), "{message}");
}

#[test]
fn a_server_that_never_ends_a_result_is_given_up() {
    let endless = "<returnval><token>t</token></returnval>";
    let mut bench = Bench::new();
    for method in ["RetrievePropertiesEx", "ContinueRetrievePropertiesEx"] {
        let reply = Reply::new(200, xml::response(method, endless));
        bench.vcenter().instead.insert(method.to_owned(), reply);
    }
    assert_eq!(bench.code("vm.get", json!({"id": OWN_VM})), Code::Unavailable);
}

#[test]
fn a_service_that_is_not_there_makes_nothing_absent() {
    let gone = |id: &str| {
        Reply::new(
            500,
            xml::fault("ManagedObjectNotFound", &format!("<obj>{id}</obj>")),
        )
    };
    for (method, service, operation, arguments) in [
        ("RetrievePropertiesEx", "pc-1", "vm.get", own()),
        (
            "RetrievePropertiesEx",
            "pc-1",
            "task.get",
            json!({"id": "task-7"}),
        ),
        (
            "FindAllByUuid",
            "si-1",
            "vm.find",
            json!({"instanceUuid": "owner-1"}),
        ),
        ("FindByInventoryPath", "si-1", "vm.clone", clone_arguments()),
    ] {
        let mut bench = instead(method, gone(service));
        assert_eq!(bench.code(operation, arguments), Code::Internal, "{operation}");
    }
    let mut bench = instead("RetrievePropertiesEx", gone(OWN_VM));
    assert_eq!(bench.code("vm.get", own()), Code::NotFound);
    let mut bench = instead("PowerOnVM_Task", gone(OWN_VM));
    assert_eq!(bench.code("vm.power-on", own()), Code::NotFound);
}

#[test]
fn a_vm_whose_devices_are_not_there_now_is_not_without_devices() {
    let unset = || [("config.hardware.device".to_owned(), String::new())].into();
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).withheld = unset();
    assert_eq!(bench.code("vm.nics", own()), Code::Unavailable);
    let mut arguments = clone_arguments();
    arguments["networks"] = json!(["prod"]);
    bench.vcenter().vm("vm-20").withheld = unset();
    assert_eq!(bench.code("vm.clone", arguments), Code::Unavailable);
    assert_eq!(bench.changes(), 0);
}
