//! Converts between the SDK's types and core's. They are the same contract, generated for both sides of the
//! sandbox.

use polity_core::contract as core;
use polity_sdk::contract as sdk;

/// A pass as the host passes it in.
pub fn pass(pass: sdk::Pass) -> core::Pass {
    core::Pass {
        object: pass.object.map(Into::into),
        now: pass.now,
        causes: Vec::new(),
        attempt: pass.attempt,
        config: pass.config.into(),
        pending: pass.pending.into_iter().map(in_doubt).collect(),
        journal: pass.journal.into_iter().map(entry).collect(),
    }
}

fn in_doubt(act: sdk::ActInDoubt) -> core::ActInDoubt {
    let resolution = match act.resolution {
        sdk::Resolution::Done(answer) => core::Resolution::Done(answer.into()),
        sdk::Resolution::Absent => core::Resolution::Absent,
        sdk::Resolution::Unknown(why) => core::Resolution::Unknown(why),
    };
    core::ActInDoubt {
        operation: act.operation,
        intent: act.intent,
        since: act.since,
        resolution,
    }
}

fn entry(entry: sdk::Entry) -> core::Entry {
    core::Entry {
        request: request(entry.request),
        answer: entry.answer.map(Into::into).map_err(failure),
    }
}

fn request(request: sdk::Request) -> core::Request {
    match request {
        sdk::Request::Ask(ask) => core::Request::Ask(core::Ask {
            round: ask.round,
            question: question(ask.question),
        }),
        sdk::Request::Act(act) => core::Request::Act(self::act(act)),
    }
}

fn question(question: sdk::Question) -> core::Question {
    match question {
        sdk::Question::Object(query) => core::Question::Object(core::ObjectQuery {
            object: reference(query.object),
            projection: query.projection,
            latest: query.latest,
        }),
        sdk::Question::Objects(query) => core::Question::Objects(core::ListQuery {
            cluster: query.cluster,
            page: query.page.map(|page| core::Page {
                after: page.after.map(|after| core::ObjectName {
                    namespace: after.namespace,
                    name: after.name,
                }),
                size: page.size,
            }),
            kind: kind(query.api_version, query.kind),
            namespace: query.namespace,
            label_selector: query.label_selector,
            field_selector: query.field_selector,
            projection: query.projection,
            limit: query.limit,
            latest: query.latest,
        }),
        sdk::Question::Secret(object) => core::Question::Secret(reference(object)),
        sdk::Question::Cloud(call) => core::Question::Cloud(core::CloudCall {
            operation: call.operation,
            arguments: call.arguments.into(),
        }),
        sdk::Question::Lock(name) => core::Question::Lock(name),
        sdk::Question::Credential(plan) => core::Question::Credential(plan.into()),
        sdk::Question::Reachable(cluster) => core::Question::Reachable(cluster),
    }
}

fn act(act: sdk::Act) -> core::Act {
    match act {
        sdk::Act::Cloud(act) => core::Act::Cloud(core::CloudAct {
            operation: act.operation,
            arguments: act.arguments.into(),
            intent: act.intent,
        }),
        sdk::Act::Create(act) => core::Act::Create(core::ObjectCreate {
            cluster: act.cluster,
            object: act.object.into(),
        }),
        sdk::Act::Patch(act) => core::Act::Patch(core::ObjectPatch {
            object: reference(act.object),
            precondition: precondition(act.precondition),
            subresource: act.subresource,
            patch: act.patch.into(),
        }),
        sdk::Act::Delete(act) => core::Act::Delete(core::ObjectDelete {
            object: reference(act.object),
            precondition: precondition(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
            propagation_policy: act.propagation_policy,
        }),
        sdk::Act::Evict(act) => core::Act::Evict(core::Eviction {
            object: reference(act.object),
            precondition: precondition(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
        }),
        sdk::Act::Mint(act) => core::Act::Mint(core::Mint {
            cluster: act.cluster,
            kind: act.kind,
            ttl: act.ttl,
        }),
        sdk::Act::Revoke(token) => core::Act::Revoke(token.into()),
    }
}

fn kind(api_version: String, kind: String) -> core::Kind {
    core::Kind { api_version, kind }
}

fn reference(object: sdk::ObjectRef) -> core::ObjectRef {
    core::ObjectRef {
        cluster: object.cluster,
        kind: kind(object.api_version, object.kind),
        namespace: object.namespace,
        name: object.name,
    }
}

fn precondition(precondition: sdk::Precondition) -> core::Precondition {
    core::Precondition {
        uid: precondition.uid,
        resource_version: precondition.resource_version,
    }
}

fn failure(failure: sdk::Failure) -> core::Failure {
    let code = code(failure.code);
    let effect = match failure.effect {
        sdk::Effect::None => core::Effect::None,
        sdk::Effect::Unknown => core::Effect::Unknown,
    };
    core::Failure {
        code,
        message: failure.message,
        effect,
        retry_after: failure.retry_after,
        operation: failure.operation,
        detail: failure.detail.map(Into::into),
    }
}

/// The request to a retry policy.
pub fn retry_request(request: sdk::RetryRequest) -> core::RetryRequest {
    core::RetryRequest {
        kind: kind(request.api_version, request.kind),
        namespace: request.namespace,
        origin: match request.origin {
            sdk::Origin::Identity => core::Origin::Identity,
            sdk::Origin::Lifecycle => core::Origin::Lifecycle,
            sdk::Origin::Conflict => core::Origin::Conflict,
            sdk::Origin::Publication => core::Origin::Publication,
        },
        class: match request.class {
            sdk::RetryClass::Conflict => core::RetryClass::Conflict,
            sdk::RetryClass::Short => core::RetryClass::Short,
            sdk::RetryClass::Medium => core::RetryClass::Medium,
            sdk::RetryClass::Long => core::RetryClass::Long,
        },
        failure: request.failure.map(failure),
        attempt: request.attempt,
        failing_for: request.failing_for,
        previous_wait: request.previous_wait,
        seed: request.seed,
        config: request.config.into(),
    }
}

/// The answer of a retry policy.
pub fn wait_out(wait: core::Wait) -> sdk::Wait {
    match wait {
        core::Wait::After(wait) => sdk::Wait::After(wait),
        core::Wait::OnChange(at_latest) => sdk::Wait::OnChange(at_latest),
    }
}

fn code(code: sdk::Code) -> core::Code {
    serde_json::from_value(code.as_str().into()).expect("the same codes")
}

/// The result of a step of a lifecycle policy.
///
/// # Panics
/// It has a verdict.
pub fn lifecycle_step(step: core::Step) -> sdk::Step {
    match step {
        core::Step::Pending(requests) => sdk::Step::Pending(requests_out(requests)),
        core::Step::Concluded { verdict, conclusion } => {
            assert_eq!(verdict, None);
            sdk::Step::Concluded(conclusion_out(conclusion))
        }
    }
}

/// The result of a step of an identity policy.
///
/// # Panics
/// It concludes without a verdict.
pub fn identity_step(step: core::Step) -> sdk::IdentityStep {
    match step {
        core::Step::Pending(requests) => sdk::IdentityStep::Pending(requests_out(requests)),
        core::Step::Concluded { verdict, conclusion } => sdk::IdentityStep::Concluded(sdk::Judgement {
            verdict: match verdict.expect("an identity policy says who may act") {
                core::Verdict::Granted(handle) => sdk::IdentityVerdict::Granted(handle),
                core::Verdict::Denied => sdk::IdentityVerdict::Denied,
                core::Verdict::Released => sdk::IdentityVerdict::Released,
            },
            conclusion: conclusion_out(conclusion),
        }),
    }
}

fn requests_out(requests: core::Requests) -> sdk::Requests {
    match requests {
        core::Requests::Asks(asks) => sdk::Requests::Asks(asks.into_iter().map(ask_out).collect()),
        core::Requests::Acts(acts) => sdk::Requests::Acts(acts.into_iter().map(act_out).collect()),
    }
}

fn conclusion_out(conclusion: core::Conclusion) -> sdk::Conclusion {
    sdk::Conclusion {
        patch: conclusion.patch.map(|patch| patch.to_string()),
        events: conclusion.events.into_iter().map(event_out).collect(),
        notes: conclusion.notes,
        next: next_out(conclusion.next),
        used: conclusion.used,
    }
}

fn ask_out(ask: core::Ask) -> sdk::Ask {
    sdk::Ask {
        round: ask.round,
        question: question_out(ask.question),
    }
}

fn question_out(question: core::Question) -> sdk::Question {
    match question {
        core::Question::Object(query) => sdk::Question::Object(sdk::ObjectQuery {
            object: reference_out(query.object),
            projection: query.projection,
            latest: query.latest,
        }),
        core::Question::Objects(query) => sdk::Question::Objects(sdk::ListQuery {
            cluster: query.cluster,
            page: query.page.map(|page| sdk::Page {
                after: page.after.map(|after| sdk::ObjectName {
                    namespace: after.namespace,
                    name: after.name,
                }),
                size: page.size,
            }),
            api_version: query.kind.api_version,
            kind: query.kind.kind,
            namespace: query.namespace,
            label_selector: query.label_selector,
            field_selector: query.field_selector,
            projection: query.projection,
            limit: query.limit,
            latest: query.latest,
        }),
        core::Question::Secret(object) => sdk::Question::Secret(reference_out(object)),
        core::Question::Cloud(call) => sdk::Question::Cloud(sdk::CloudCall {
            operation: call.operation,
            arguments: call.arguments.to_string(),
        }),
        core::Question::Lock(name) => sdk::Question::Lock(name),
        core::Question::Credential(plan) => sdk::Question::Credential(plan.to_string()),
        core::Question::Reachable(cluster) => sdk::Question::Reachable(cluster),
    }
}

fn act_out(act: core::Act) -> sdk::Act {
    match act {
        core::Act::Cloud(act) => sdk::Act::Cloud(sdk::CloudAct {
            operation: act.operation,
            arguments: act.arguments.to_string(),
            intent: act.intent,
        }),
        core::Act::Create(act) => sdk::Act::Create(sdk::ObjectCreate {
            cluster: act.cluster,
            object: act.object.to_string(),
        }),
        core::Act::Patch(act) => sdk::Act::Patch(sdk::ObjectPatch {
            object: reference_out(act.object),
            precondition: precondition_out(act.precondition),
            subresource: act.subresource,
            patch: act.patch.to_string(),
        }),
        core::Act::Delete(act) => sdk::Act::Delete(sdk::ObjectDelete {
            object: reference_out(act.object),
            precondition: precondition_out(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
            propagation_policy: act.propagation_policy,
        }),
        core::Act::Evict(act) => sdk::Act::Evict(sdk::Eviction {
            object: reference_out(act.object),
            precondition: precondition_out(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
        }),
        core::Act::Mint(act) => sdk::Act::Mint(sdk::Mint {
            cluster: act.cluster,
            kind: act.kind,
            ttl: act.ttl,
        }),
        core::Act::Revoke(token) => sdk::Act::Revoke(token.to_string()),
    }
}

fn reference_out(object: core::ObjectRef) -> sdk::ObjectRef {
    sdk::ObjectRef {
        cluster: object.cluster,
        api_version: object.kind.api_version,
        kind: object.kind.kind,
        namespace: object.namespace,
        name: object.name,
    }
}

fn precondition_out(precondition: core::Precondition) -> sdk::Precondition {
    sdk::Precondition {
        uid: precondition.uid,
        resource_version: precondition.resource_version,
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
    let code = sdk::Code::ALL
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
        operation: failure.operation,
        detail: failure.detail.map(|detail| detail.to_string()),
    }
}
