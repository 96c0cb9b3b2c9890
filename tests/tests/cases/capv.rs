//! The table of cases of `capv-machine`, edge by edge, through the sandbox: what the component does must be what the
//! same function does natively.

use std::sync::{Arc, OnceLock};

use capv_machine::cases::Case;
use polity_core::binding::Limits;
use polity_core::contract as core;
use polity_sandbox::{Policy, Sandbox, SandboxConfig};
use polity_sdk::contract as sdk;

fn in_the_sandbox(case: Case) {
    let limits = Limits::default();
    let ended = case.run(|pass| {
        let stepped = policy().step(&pass_in(pass), &limits);
        step_out(stepped.outcome.expect("no fault"))
    });
    case.check(&ended);
    let natively = case.run(|pass| polity_sdk::step::lifecycle(pass, capv_machine::reconcile));
    assert_eq!(ended, natively);
}

capv_machine::each_case!(in_the_sandbox);

#[test]
fn the_manifest_is_the_same_natively_and_as_a_component() {
    let native = capv_machine::manifest().into_contract();
    let component = policy().manifest();
    assert_eq!(component.name, native.name);
    assert_eq!(component.finalizer, native.finalizer);
    assert_eq!(component.writes, native.writes);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(component.crd, native.crd.as_deref().map(json));
    assert_eq!(component.config_schema, json(&native.config_schema));
    let edges = |id: &str, from: &Option<String>| (id.to_owned(), from.clone());
    assert_eq!(
        component
            .edges
            .iter()
            .map(|edge| edges(&edge.id, &edge.derived_from))
            .collect::<Vec<_>>(),
        native
            .edges
            .iter()
            .map(|edge| edges(&edge.id, &edge.derived_from))
            .collect::<Vec<_>>()
    );
    assert_eq!(component.needs.len(), native.needs.len());
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
    let step = policy()
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

/// Loaded once for all tests of this file.
fn policy() -> &'static Policy {
    static POLICY: OnceLock<(Sandbox, Arc<Policy>)> = OnceLock::new();
    let load = || {
        let sandbox = Sandbox::new(SandboxConfig::default()).expect("a sandbox");
        let policy = sandbox
            .load(polity_tests::guests::capv_machine())
            .expect("capv-machine loads");
        (sandbox, policy)
    };
    &POLICY.get_or_init(load).1
}

// Between the SDK's types and core's. The cases ask only clouds.

fn pass_in(pass: sdk::Pass) -> core::Pass {
    core::Pass {
        object: pass.object.map(Into::into),
        now: pass.now,
        causes: Vec::new(),
        attempt: pass.attempt,
        config: pass.config.into(),
        pending: pass.pending.into_iter().map(doubt_in).collect(),
        journal: pass.journal.into_iter().map(entry_in).collect(),
    }
}

fn doubt_in(act: sdk::ActInDoubt) -> core::ActInDoubt {
    let state = match act.state {
        sdk::Doubt::Done(answer) => core::Doubt::Done(answer.into()),
        sdk::Doubt::Absent => core::Doubt::Absent,
        sdk::Doubt::Unknown => core::Doubt::Unknown,
    };
    core::ActInDoubt {
        operation: act.operation,
        intent: act.intent,
        since: act.since,
        state,
    }
}

fn entry_in(entry: sdk::Entry) -> core::Entry {
    let request = match entry.request {
        sdk::Request::Ask(sdk::Ask {
            round,
            question: sdk::Question::Cloud(call),
        }) => {
            let question = core::Question::Cloud(core::CloudCall {
                operation: call.operation,
                arguments: call.arguments.into(),
            });
            core::Request::Ask(core::Ask { round, question })
        }
        sdk::Request::Act(sdk::Act::Cloud(act)) => core::Request::Act(core::Act::Cloud(core::CloudAct {
            operation: act.operation,
            arguments: act.arguments.into(),
            intent: act.intent,
        })),
        other => panic!("not of a cloud: {other:?}"),
    };
    core::Entry {
        request,
        answer: entry.answer.map(Into::into).map_err(failure_in),
    }
}

fn failure_in(failure: sdk::Failure) -> core::Failure {
    let code = serde_json::from_value(failure.code.as_str().into()).expect("the same codes");
    let effect = match failure.effect {
        sdk::Effect::None => core::Effect::None,
        sdk::Effect::Unknown => core::Effect::Unknown,
    };
    core::Failure {
        code,
        message: failure.message,
        effect,
        retry_after: failure.retry_after,
    }
}

fn step_out(step: core::Step) -> sdk::Step {
    match step {
        core::Step::Pending(requests) => sdk::Step::Pending(requests.into_iter().map(request_out).collect()),
        core::Step::Concluded { verdict, conclusion } => {
            assert_eq!(verdict, None);
            sdk::Step::Concluded(sdk::Conclusion {
                patch: conclusion.patch.map(|patch| patch.to_string()),
                events: conclusion.events.into_iter().map(event_out).collect(),
                notes: conclusion.notes,
                next: next_out(conclusion.next),
                used: conclusion.used,
            })
        }
    }
}

fn request_out(request: core::Request) -> sdk::Request {
    match request {
        core::Request::Ask(core::Ask {
            round,
            question: core::Question::Cloud(call),
        }) => {
            let (operation, arguments) = (call.operation, call.arguments.to_string());
            let question = sdk::Question::Cloud(sdk::CloudCall { operation, arguments });
            sdk::Request::Ask(sdk::Ask { round, question })
        }
        core::Request::Act(core::Act::Cloud(act)) => {
            let (operation, arguments) = (act.operation, act.arguments.to_string());
            sdk::Request::Act(sdk::Act::Cloud(sdk::CloudAct {
                operation,
                arguments,
                intent: act.intent,
            }))
        }
        other => panic!("not of a cloud: {other:?}"),
    }
}

fn event_out(event: core::Event) -> sdk::Event {
    let kind = match event.kind {
        core::EventType::Normal => sdk::EventType::Normal,
        core::EventType::Warning => sdk::EventType::Warning,
    };
    sdk::Event {
        kind,
        reason: event.reason,
        message: event.message,
    }
}

fn next_out(next: core::Next) -> sdk::Next {
    match next {
        core::Next::Settled(recheck) => sdk::Next::Settled(recheck),
        core::Next::After(ms) => sdk::Next::After(ms),
        core::Next::Retry { class, failure } => sdk::Next::Retry(sdk::Retry {
            class: match class {
                core::RetryClass::Conflict => sdk::RetryClass::Conflict,
                core::RetryClass::Short => sdk::RetryClass::Short,
                core::RetryClass::Medium => sdk::RetryClass::Medium,
                core::RetryClass::Long => sdk::RetryClass::Long,
            },
            failure: failure.map(failure_out),
        }),
    }
}

fn failure_out(failure: core::Failure) -> sdk::Failure {
    use sdk::Code;
    let all = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];
    let code = all
        .into_iter()
        .find(|code| code.as_str() == failure.code.as_str())
        .expect("the same codes");
    let effect = match failure.effect {
        core::Effect::None => sdk::Effect::None,
        core::Effect::Unknown => sdk::Effect::Unknown,
    };
    sdk::Failure {
        code,
        message: failure.message,
        effect,
        retry_after: failure.retry_after,
    }
}
