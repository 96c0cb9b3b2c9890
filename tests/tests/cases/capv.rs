//! The cases of `capv-machine`.

use capv_machine::cases::Case;
use polity_core::binding::Limits;
use polity_core::contract as core;
use polity_tests::guests;

fn in_the_sandbox(case: Case) {
    let ended = case.run(crate::cases::lifecycle("capv-machine"));
    case.check(&ended);
    let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, capv_machine::reconcile));
    assert_eq!(ended, natively);
}

capv_machine::each_case!(in_the_sandbox);

pub(crate) fn run_all(recorded: &crate::cases::Recorded) {
    for (_, case) in capv_machine::cases::all() {
        case.run(recorded.lifecycle("capv-machine"));
    }
}

#[test]
fn the_manifest_is_the_same_natively_and_as_a_component() {
    crate::cases::same_manifest("capv-machine", capv_machine::manifest());
}

#[test]
fn an_object_that_does_not_decode_is_no_fault() {
    let pass = core::Pass {
        object: Some(r#"{"metadata":{"name":"m"},"spec":{"template":5}}"#.into()),
        now: 0,
        causes: Vec::new(),
        attempt: 0,
        config: "{}".into(),
        pending: Vec::new(),
        journal: Vec::new(),
    };
    let step = guests::load("capv-machine")
        .step(&pass, &Limits::default())
        .outcome
        .expect("no fault");
    let core::Step::Concluded { conclusion, .. } = step else {
        panic!("pending")
    };
    let core::Next::Retry {
        class: core::RetryClass::Long,
        failure: Some(failure),
    } = conclusion.next
    else {
        panic!("not retry(long): {:?}", conclusion.next)
    };
    assert_eq!(failure.code, core::Code::InvalidArgument);
    assert!(failure.message.contains("spec.template"), "{}", failure.message);
}
