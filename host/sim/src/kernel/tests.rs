//! Tests of the kernel by itself. It simulates things with names, and a quirk that nothing reads.

use std::collections::BTreeSet;

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::Code;
use serde_json::{Value, json};

use super::between::Between;
use super::call::TaskError;
use super::call::{Call, Caller, Plan};
use super::cues::Cue;
use super::due::Due;
use super::envelope::{Admission, Delivery};
use super::faults::{Fault, Outage, Rule, Unreachable};
use super::tasks::Work;
use super::{Kernel, Settings};
use polity_clouds::Millis;

const START: u64 = 1_000;

type Toy = Kernel<String, &'static str>;

fn settings() -> Settings<&'static str> {
    Settings {
        answers: Between::exactly(10),
        queue: Between::exactly(5),
        lag: 0,
        retention: 100,
        client_tokens: false,
        outages: Vec::new(),
        rules: Vec::new(),
        cues: Vec::new(),
        sealed: BTreeSet::from(["secret".to_owned()]),
    }
}

fn rule(then: Fault<&'static str>) -> Rule<&'static str> {
    Rule {
        operations: BTreeSet::from(["thing.make".to_owned()]),
        about: "*".to_owned(),
        owner: None,
        tenant: None,
        from: 0,
        until: None,
        nth: None,
        count: None,
        each: false,
        probability: None,
        then,
    }
}

fn request(arguments: Value) -> CloudRequest {
    CloudRequest {
        session: Session {
            cloud: "toy".to_owned(),
            handle: Some("handle".to_owned()),
            owner: "u".to_owned(),
            tenant: "t".to_owned(),
            tenant_queue: "".into(),
            namespace: None,
        },
        operation: "thing.make".to_owned(),
        arguments,
        key: None,
    }
}

fn kernel(settings: Settings<&'static str>) -> Toy {
    Kernel::new(settings, 7, START)
}

/// The things that are due by `now`, with their times.
fn due(kernel: &mut Toy, now: u64) -> Vec<(u64, Due<String>)> {
    kernel.set_now(now);
    std::iter::from_fn(|| kernel.take_due()).collect()
}

fn call() -> Call<&'static str> {
    let request = request(json!({"name": "a"}));
    let caller = Caller::new(&request.session, None);
    Call::new(&request, caller, Plan::default())
}

fn submit(kernel: &mut Toy) -> u64 {
    let work = Work {
        about: 1,
        name: "a".to_owned(),
        takes: Between::exactly(50),
        told: json!({}),
    };
    kernel.submit(START, &call(), work).number
}

#[test]
fn events_come_back_at_their_time_and_in_the_order_in_which_they_were_scheduled() {
    let mut kernel = kernel(settings());
    for (at, name) in [(30, "c"), (10, "a"), (10, "b")] {
        kernel.schedule(START + at, name.to_owned());
    }
    assert_eq!(kernel.next_due(), Some(START + 10));
    assert!(due(&mut kernel, START + 9).is_empty());
    let event = |name: &str| Due::Event(name.to_owned());
    let both = [(START + 10, event("a")), (START + 10, event("b"))];
    assert_eq!(due(&mut kernel, START + 29), both);
    assert_eq!(kernel.set_now(START), START + 29, "time never goes back");
    assert_eq!(due(&mut kernel, START + 30), [(START + 30, event("c"))]);
}

#[test]
fn what_is_announced_is_carried_in_order_and_stored_by_nobody() {
    let mut kernel = kernel(settings());
    kernel.announce("first".to_owned());
    kernel.announce("second".to_owned());
    assert!(kernel.tables().iter().all(|(_, table)| table.is_empty()));
    assert_eq!(kernel.next_announced().as_deref(), Some("first"));
    assert_eq!(kernel.next_announced().as_deref(), Some("second"));
    assert_eq!(kernel.next_announced(), None);
}

#[test]
fn a_task_is_queued_runs_ends_and_is_forgotten() {
    let mut kernel = kernel(settings());
    let number = submit(&mut kernel);
    let state = |kernel: &Toy, now| kernel.task(number).map(|task| task.state(now));
    assert_eq!(state(&kernel, START + 4), Some("queued"));
    assert_eq!(state(&kernel, START + 5), Some("running"));
    assert_eq!(due(&mut kernel, START + 55), [(START + 55, Due::End(number))]);
    kernel.end_task(START + 55, number, Err(TaskError::new("Broken", "broken")));
    assert_eq!(state(&kernel, START + 55), Some("error"));
    assert_eq!(kernel.tasks_of("u").count(), 1);
    assert_eq!(
        due(&mut kernel, START + 155),
        [(START + 155, Due::Expire(number))]
    );
    kernel.forget_task(number);
    assert_eq!(
        (state(&kernel, START + 155), kernel.tasks_of("u").count()),
        (None, 0)
    );
}

#[test]
fn a_quirk_is_handed_on_unread() {
    let mut kernel = kernel(Settings {
        rules: vec![rule(Fault::Quirk("odd"))],
        ..settings()
    });
    match kernel.admit(START, &request(json!({})), None) {
        Admission::Performed(plan, Delivery::Plain) => assert_eq!(plan.quirk, Some("odd")),
        _ => panic!("it is performed"),
    }
}

#[test]
fn a_rule_meets_its_own_operations_and_things_only() {
    let named = Rule {
        about: "a*".to_owned(),
        ..rule(Fault::LoseRequest)
    };
    let mut kernel = kernel(Settings {
        rules: vec![named],
        ..settings()
    });
    let other = CloudRequest {
        operation: "thing.end".to_owned(),
        ..request(json!({}))
    };
    let mut is_lost = |request: &CloudRequest, about: Option<&str>| match kernel.admit(START, request, about)
    {
        Admission::Answered(reply) => reply.answer.is_none(),
        Admission::Performed(..) => false,
    };
    assert!(is_lost(&request(json!({})), Some("ab")));
    assert!(!is_lost(&request(json!({})), Some("b")));
    assert!(!is_lost(&request(json!({})), None));
    assert!(!is_lost(&other, Some("ab")));
}

#[test]
fn a_late_call_is_stored_without_what_is_sealed() {
    let mut kernel = kernel(Settings {
        rules: vec![rule(Fault::HappenLate(20))],
        ..settings()
    });
    let told = request(json!({"name": "a", "secret": "hunter22"}));
    assert!(matches!(
        kernel.admit(START, &told, None),
        Admission::Answered(reply) if reply.answer.is_none()
    ));
    let stored = serde_json::to_string(&kernel.due.values().collect::<Vec<_>>()).unwrap();
    assert!(!stored.contains("hunter22"), "{stored}");
    let digest = kernel.digest(&json!("hunter22"));
    let Some((_, Due::Arrive(late))) = due(&mut kernel, START + 20).pop() else {
        panic!("it arrives");
    };
    let late: CloudRequest = (*late).into();
    assert_eq!(late.arguments["name"], "a");
    assert_eq!(
        kernel.digest(&late.arguments["secret"]),
        digest,
        "it is known again"
    );
}

#[test]
fn a_careless_service_quotes_what_it_was_given() {
    let then = Fault::Fail {
        code: Code::Internal,
        message: Some("{secret} of {session}".to_owned()),
        retry_after: Some(3),
    };
    let mut kernel = kernel(Settings {
        rules: vec![rule(then)],
        ..settings()
    });
    let told = request(json!({"secret": "hunter22"}));
    let Admission::Answered(reply) = kernel.admit(START, &told, None) else {
        panic!("it is refused");
    };
    let failure = reply.answer.unwrap().unwrap_err();
    assert_eq!(
        (failure.message.as_str(), failure.retry_after),
        ("hunter22 of handle", Some(3))
    );
}

#[test]
fn in_an_outage_nothing_is_performed() {
    for (calls, code) in [
        (Unreachable::Refused, Some(Code::Unavailable)),
        (Unreachable::Silent, None),
    ] {
        let outage = Outage {
            from: Millis(10),
            until: Millis(20),
            calls,
        };
        let mut kernel = kernel(Settings {
            outages: vec![outage],
            ..settings()
        });
        let mut said = |at| match kernel.admit(START + at, &request(json!({})), None) {
            Admission::Answered(reply) => Some(reply.answer.map(|answer| answer.unwrap_err().code)),
            Admission::Performed(..) => None,
        };
        assert_eq!(
            [said(9), said(10), said(19), said(20)],
            [None, Some(code), Some(code), None]
        );
    }
}

#[test]
fn a_cue_waits_for_its_thing_and_happens_once() {
    let cue = |after_start, until| Cue {
        about: "a".to_owned(),
        at: 10,
        after_start,
        until,
    };
    let mut kernel = kernel(Settings {
        cues: vec![cue(None, None), cue(Some(30), None), cue(None, Some(15))],
        ..settings()
    });
    assert!(
        kernel.is_fresh(),
        "timed cues alone are nothing that has happened"
    );
    let timed = [(START + 10, Due::Cue(0)), (START + 10, Due::Cue(2))];
    assert_eq!(due(&mut kernel, START + 10), timed);
    kernel.cue_missed(0);
    assert!(kernel.cue(START + 14, 2).is_some() && kernel.cue(START + 15, 2).is_none());

    kernel.on_created(START + 40, "b");
    kernel.on_created(START + 40, "a");
    assert_eq!(due(&mut kernel, START + 40), [(START + 40, Due::Cue(0))]);
    kernel.cue_done(0);
    kernel.on_created(START + 50, "a");
    kernel.on_started(START + 50, "a");
    assert_eq!(due(&mut kernel, START + 90), [(START + 80, Due::Cue(1))]);
    kernel.stop_faults();
    assert!(kernel.cue(START + 80, 1).is_none(), "nothing goes wrong any more");
}
