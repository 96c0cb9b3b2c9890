//! Sessions that end while an operation runs.

use polity_driver_sdk::prelude::*;

use crate::bench::{Bench, by_id, clone_arguments};
use crate::vcenter::{Ended, OWN_VM, clone_task, options};

/// Every operation that succeeds on a fresh bench, with its arguments.
fn operations() -> Vec<(&'static str, Value)> {
    let mut clone = clone_arguments();
    clone["networks"] = json!(["prod", "VM Network"]);
    clone["resourcePool"] = json!("C0");
    clone["diskGiB"] = json!(20);
    let more = [
        ("vm.clone", clone),
        ("vm.find", json!({"instanceUuid": "owner-1"})),
        ("task.get", json!({"id": "task-7"})),
        ("task.get", json!({"id": "cloned:vm-42"})),
    ];
    by_id().into_iter().chain(more).collect()
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.vcenter().tasks.push(clone_task("success"));
    bench
}

#[test]
fn a_session_that_ends_at_any_request_is_unauthenticated_and_nothing_is_gone() {
    for (operation, arguments) in operations() {
        let mut whole = bench();
        whole.call(operation, arguments.clone()).unwrap();
        let requests = whole.play.sent.len();
        assert!(requests >= 2, "{operation}");
        // The first request reads the service objects, which needs no session.
        for nth in 2..=requests {
            for ended in [Ended::Missing, Ended::Fault] {
                let mut bench = bench();
                (bench.vcenter().ends_at, bench.vcenter().ended) = (Some(nth), ended);
                let failure = bench.call(operation, arguments.clone()).unwrap_err();
                assert_eq!(failure.code, Code::Unauthenticated, "{operation} {nth} {ended:?}");
                assert!(!failure.doubtful, "a fault is a refusal");
            }
        }
    }
}

#[test]
fn resolving_in_a_session_that_has_ended_cannot_tell() {
    for has_task in [true, false] {
        let fresh = || {
            let bench = Bench::new();
            if has_task {
                bench.vcenter().tasks.push(clone_task("running"));
            }
            bench
        };
        let mut whole = fresh();
        whole.resolve(|_| ());
        for nth in 2..=whole.play.sent.len() {
            for ended in [Ended::Missing, Ended::Fault] {
                let mut bench = fresh();
                (bench.vcenter().ends_at, bench.vcenter().ended) = (Some(nth), ended);
                match bench.resolve(|_| ()) {
                    Finding::CannotTell(failure) => assert_eq!(failure.code, Code::Unauthenticated),
                    // The task was seen before the session ended.
                    Finding::Found(_) if has_task => {}
                    other => panic!("{nth} {ended:?}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_response_in_which_a_session_ends_does_not_count_in_part() {
    let mut bench = Bench::new();
    {
        let mut vcenter = bench.vcenter();
        let vm = vcenter.vm(OWN_VM);
        vm.options = options(&[("polity.owner", "owner-2")]);
        vm.withheld = [("name".to_owned(), "NotAuthenticated".to_owned())].into();
    }
    let find = json!({"instanceUuid": "owner-1"});
    assert_eq!(
        bench.code("vm.find", find),
        Code::Unauthenticated,
        "and not absent"
    );
}
