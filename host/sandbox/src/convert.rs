//! Converts between the types generated from `wit/` and core's own. Arguments are borrowed, results are
//! owned.

use polity_core::contract as core;

use crate::wit::identity::exports::polity::policy::identity as wit_identity;
use crate::wit::lifecycle::polity::policy::types as wit;
use crate::wit::retry::exports::polity::policy::retry as wit_retry;
use crate::wit::retry::polity::policy::types as wit_retry_types;

/// Converts a pass for a guest.
pub(crate) fn pass(pass: &core::Pass) -> PassParts<'_> {
    PassParts {
        pending: pass.pending.iter().map(act_in_doubt).collect(),
        causes: pass.causes.iter().map(cause).collect(),
        projections: Projections::of(pass),
        pass,
    }
}

/// The parts of a converted pass that core holds in another shape.
pub(crate) struct PassParts<'a> {
    pass: &'a core::Pass,
    pending: Vec<wit::ActInDoubt<'a>>,
    causes: Vec<wit::Cause<'a>>,
    projections: Projections<'a>,
}

/// The projections of the journal's queries as slices of `&str`, one for each entry.
struct Projections<'a>(Vec<Vec<&'a str>>);

impl<'a> Projections<'a> {
    fn of(pass: &'a core::Pass) -> Self {
        let projection = |entry: &'a core::Entry| match &entry.request {
            core::Request::Ask(ask) => match &ask.question {
                core::Question::Object(query) => query.projection.iter().map(String::as_str).collect(),
                core::Question::Objects(query) => query.projection.iter().map(String::as_str).collect(),
                _ => Vec::new(),
            },
            core::Request::Act(_) => Vec::new(),
        };
        Projections(pass.journal.iter().map(projection).collect())
    }
}

impl PassParts<'_> {
    /// Calls a function with the converted pass. Its journal lives as long as the call.
    pub(crate) fn with<T>(&self, call: impl FnOnce(wit::Pass<'_>) -> T) -> T {
        let entries: Vec<wit::Entry<'_>> = self
            .pass
            .journal
            .iter()
            .zip(&self.projections.0)
            .map(|(entry, projection)| wit::Entry {
                request: request(&entry.request, projection),
                answer: match &entry.answer {
                    Ok(json) => Ok(json),
                    Err(failure) => Err(failure_param(failure)),
                },
            })
            .collect();
        call(wit::Pass {
            object: self.pass.object.as_deref(),
            now: self.pass.now,
            causes: &self.causes,
            attempt: self.pass.attempt,
            config: &self.pass.config,
            pending: &self.pending,
            journal: &entries,
        })
    }
}

fn cause(cause: &core::Cause) -> wit::Cause<'_> {
    match cause {
        core::Cause::Created => wit::Cause::Created,
        core::Cause::Changed => wit::Cause::Changed,
        core::Cause::Deleted => wit::Cause::Deleted,
        core::Cause::Due => wit::Cause::Due,
        core::Cause::Dependency(object) => wit::Cause::Dependency(object.as_ref().map(object_ref)),
        core::Cause::Lock(name) => wit::Cause::Lock(name),
        core::Cause::Resync => wit::Cause::Resync,
        core::Cause::Requested => wit::Cause::Requested,
        core::Cause::Binding => wit::Cause::Binding,
    }
}

fn act_in_doubt(act: &core::ActInDoubt) -> wit::ActInDoubt<'_> {
    wit::ActInDoubt {
        operation: &act.operation,
        intent: &act.intent,
        since: act.since,
        resolution: match &act.resolution {
            core::Resolution::Done(answer) => wit::Resolution::Done(answer),
            core::Resolution::Absent => wit::Resolution::Absent,
            core::Resolution::Unknown(why) => wit::Resolution::Unknown(why),
        },
    }
}

fn object_ref(object: &core::ObjectRef) -> wit::ObjectRefParam<'_> {
    wit::ObjectRefParam {
        cluster: object.cluster.as_deref(),
        api_version: &object.kind.api_version,
        kind: &object.kind.kind,
        namespace: object.namespace.as_deref(),
        name: &object.name,
    }
}

fn precondition(precondition: &core::Precondition) -> wit::PreconditionParam<'_> {
    wit::PreconditionParam {
        uid: &precondition.uid,
        resource_version: precondition.resource_version.as_deref(),
    }
}

fn request<'a>(request: &'a core::Request, projection: &'a [&'a str]) -> wit::Request<'a> {
    match request {
        core::Request::Ask(ask) => wit::Request::Ask(wit::AskParam {
            round: ask.round,
            question: question(&ask.question, projection),
        }),
        core::Request::Act(act) => wit::Request::Act(self::act(act)),
    }
}

fn question<'a>(question: &'a core::Question, projection: &'a [&'a str]) -> wit::QuestionParam<'a> {
    match question {
        core::Question::Object(query) => wit::QuestionParam::Object(wit::ObjectQueryParam {
            object: object_ref(&query.object),
            projection,
            latest: query.latest,
        }),
        core::Question::Objects(query) => wit::QuestionParam::Objects(wit::ListQueryParam {
            cluster: query.cluster.as_deref(),
            api_version: &query.kind.api_version,
            kind: &query.kind.kind,
            namespace: query.namespace.as_deref(),
            label_selector: query.label_selector.as_deref(),
            field_selector: query.field_selector.as_deref(),
            projection,
            limit: query.limit,
            page: query.page.as_ref().map(page),
            latest: query.latest,
        }),
        core::Question::Secret(object) => wit::QuestionParam::Secret(object_ref(object)),
        core::Question::Cloud(call) => wit::QuestionParam::Cloud(wit::CloudCallParam {
            operation: &call.operation,
            arguments: &call.arguments,
        }),
        core::Question::Lock(name) => wit::QuestionParam::Lock(name),
        core::Question::Credential(plan) => wit::QuestionParam::Credential(plan),
        core::Question::Reachable(cluster) => wit::QuestionParam::Reachable(cluster.as_deref()),
    }
}

fn page(page: &core::Page) -> wit::PageParam<'_> {
    wit::PageParam {
        after: page.after.as_ref().map(|after| wit::ObjectNameParam {
            namespace: after.namespace.as_deref(),
            name: &after.name,
        }),
        size: page.size,
    }
}

fn act(act: &core::Act) -> wit::ActParam<'_> {
    match act {
        core::Act::Cloud(act) => wit::ActParam::Cloud(wit::CloudActParam {
            operation: &act.operation,
            arguments: &act.arguments,
            intent: act.intent.as_deref(),
        }),
        core::Act::Create(act) => wit::ActParam::Create(wit::ObjectCreateParam {
            cluster: act.cluster.as_deref(),
            object: &act.object,
        }),
        core::Act::Patch(act) => wit::ActParam::Patch(wit::ObjectPatchParam {
            object: object_ref(&act.object),
            precondition: precondition(&act.precondition),
            subresource: act.subresource.as_deref(),
            patch: &act.patch,
        }),
        core::Act::Delete(act) => wit::ActParam::Delete(wit::ObjectDeleteParam {
            object: object_ref(&act.object),
            precondition: precondition(&act.precondition),
            grace_period_seconds: act.grace_period_seconds,
            propagation_policy: act.propagation_policy.as_deref(),
        }),
        core::Act::Evict(act) => wit::ActParam::Evict(wit::EvictionParam {
            object: object_ref(&act.object),
            precondition: precondition(&act.precondition),
            grace_period_seconds: act.grace_period_seconds,
        }),
        core::Act::Mint(act) => wit::ActParam::Mint(wit::MintParam {
            cluster: act.cluster.as_deref(),
            kind: &act.kind,
            ttl: act.ttl,
        }),
        core::Act::Revoke(token) => wit::ActParam::Revoke(token),
    }
}

/// Defines a function from one enum to another with the same variants.
macro_rules! same_variants {
    ($to:ident: $from:ty => $into:ty { $($variant:ident),* $(,)? }) => {
        fn $to(value: $from) -> $into {
            match value { $(<$from>::$variant => <$into>::$variant,)* }
        }
    };
}

/// Defines such a function between two types of codes.
macro_rules! with_codes {
    ($to:ident: $from:ty => $into:ty) => {
        same_variants!($to: $from => $into {
            Cancelled, Unknown, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied,
            ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal, Unavailable, DataLoss,
            Unauthenticated,
        });
    };
}

with_codes!(code_in: core::Code => wit::Code);
with_codes!(code_out: wit::Code => core::Code);
with_codes!(retry_code: core::Code => wit_retry_types::Code);
same_variants!(effect_in: core::Effect => wit::Effect { None, Unknown });
same_variants!(effect_out: wit::Effect => core::Effect { None, Unknown });
same_variants!(retry_effect: core::Effect => wit_retry_types::Effect { None, Unknown });
same_variants!(class_out: wit::RetryClass => core::RetryClass { Conflict, Short, Medium, Long });
same_variants!(retry_class: core::RetryClass => wit_retry_types::RetryClass { Conflict, Short, Medium, Long });

fn failure_param(failure: &core::Failure) -> wit::FailureParam<'_> {
    wit::FailureParam {
        code: code_in(failure.code),
        message: &failure.message,
        effect: effect_in(failure.effect),
        retry_after: failure.retry_after,
        operation: failure.operation.as_deref(),
        detail: failure.detail.as_deref(),
    }
}

/// Converts a request to a retry policy.
pub(crate) fn retry_request(request: &core::RetryRequest) -> wit_retry::RetryRequest {
    let failure = |failure: &core::Failure| wit_retry_types::Failure {
        code: retry_code(failure.code),
        message: failure.message.clone(),
        effect: retry_effect(failure.effect),
        retry_after: failure.retry_after,
        operation: failure.operation.clone(),
        detail: failure.detail.as_deref().map(str::to_owned),
    };
    wit_retry::RetryRequest {
        api_version: request.kind.api_version.clone(),
        kind: request.kind.kind.clone(),
        namespace: request.namespace.clone(),
        origin: match request.origin {
            core::Origin::Identity => wit_retry::Origin::Identity,
            core::Origin::Lifecycle => wit_retry::Origin::Lifecycle,
            core::Origin::Conflict => wit_retry::Origin::Conflict,
            core::Origin::Publication => wit_retry::Origin::Publication,
        },
        class: retry_class(request.class),
        failure: request.failure.as_ref().map(failure),
        attempt: request.attempt,
        failing_for: request.failing_for,
        previous_wait: request.previous_wait,
        seed: request.seed,
        config: request.config.to_string(),
    }
}

/// Converts the answer of a retry policy.
pub(crate) fn wait(wait: wit_retry::Wait) -> core::Wait {
    match wait {
        wit_retry::Wait::After(wait) => core::Wait::After(wait),
        wit_retry::Wait::OnChange(at_latest) => core::Wait::OnChange(at_latest),
    }
}

/// Converts the result of a lifecycle step.
pub(crate) fn step(step: wit::Step) -> core::Step {
    match step {
        wit::Step::Pending(requests) => core::Step::Pending(requests_out(requests)),
        wit::Step::Concluded(conclusion) => core::Step::Concluded {
            verdict: None,
            conclusion: conclusion_out(conclusion),
        },
    }
}

/// Converts the result of an identity step.
pub(crate) fn identity_step(step: wit_identity::StepOutcome) -> core::Step {
    match step {
        wit_identity::StepOutcome::Pending(requests) => core::Step::Pending(requests_out(requests)),
        wit_identity::StepOutcome::Concluded(judgement) => core::Step::Concluded {
            verdict: Some(match judgement.verdict {
                wit_identity::Verdict::Granted(handle) => core::Verdict::Granted(handle),
                wit_identity::Verdict::Denied => core::Verdict::Denied,
                wit_identity::Verdict::Released => core::Verdict::Released,
            }),
            conclusion: conclusion_out(judgement.conclusion),
        },
    }
}

fn conclusion_out(conclusion: wit::Conclusion) -> core::Conclusion {
    core::Conclusion {
        patch: conclusion.patch.map(Into::into),
        events: conclusion
            .events
            .into_iter()
            .map(|event| core::Event {
                kind: match event.kind {
                    wit::EventType::Normal => core::EventType::Normal,
                    wit::EventType::Warning => core::EventType::Warning,
                },
                reason: event.reason,
                message: event.message,
            })
            .collect(),
        notes: conclusion.notes,
        next: match conclusion.next {
            wit::Next::Settled(recheck) => core::Next::Settled(recheck),
            wit::Next::After(wait) => core::Next::After(wait),
            wit::Next::Retry(retry) => core::Next::Retry {
                class: class_out(retry.class),
                failure: retry.failure.map(failure_out),
            },
        },
        used: conclusion.used,
    }
}

fn failure_out(failure: wit::FailureResult) -> core::Failure {
    core::Failure {
        code: code_out(failure.code),
        message: failure.message,
        effect: effect_out(failure.effect),
        retry_after: failure.retry_after,
        operation: failure.operation,
        detail: failure.detail.map(Into::into),
    }
}

fn requests_out(requests: wit::Requests) -> core::Requests {
    let ask = |ask: wit::AskResult| core::Ask {
        round: ask.round,
        question: question_out(ask.question),
    };
    match requests {
        wit::Requests::Asks(asks) => core::Requests::Asks(asks.into_iter().map(ask).collect()),
        wit::Requests::Acts(acts) => core::Requests::Acts(acts.into_iter().map(act_out).collect()),
    }
}

fn kind(api_version: String, kind: String) -> core::Kind {
    core::Kind { api_version, kind }
}

fn object_out(object: wit::ObjectRefResult) -> core::ObjectRef {
    core::ObjectRef {
        cluster: object.cluster,
        kind: kind(object.api_version, object.kind),
        namespace: object.namespace,
        name: object.name,
    }
}

fn precondition_out(precondition: wit::PreconditionResult) -> core::Precondition {
    core::Precondition {
        uid: precondition.uid,
        resource_version: precondition.resource_version,
    }
}

fn question_out(question: wit::QuestionResult) -> core::Question {
    match question {
        wit::QuestionResult::Object(query) => core::Question::Object(core::ObjectQuery {
            object: object_out(query.object),
            projection: query.projection,
            latest: query.latest,
        }),
        wit::QuestionResult::Objects(query) => core::Question::Objects(core::ListQuery {
            cluster: query.cluster,
            page: query.page.map(page_out),
            kind: kind(query.api_version, query.kind),
            namespace: query.namespace,
            label_selector: query.label_selector,
            field_selector: query.field_selector,
            projection: query.projection,
            limit: query.limit,
            latest: query.latest,
        }),
        wit::QuestionResult::Secret(object) => core::Question::Secret(object_out(object)),
        wit::QuestionResult::Cloud(call) => core::Question::Cloud(core::CloudCall {
            operation: call.operation,
            arguments: call.arguments.into(),
        }),
        wit::QuestionResult::Lock(name) => core::Question::Lock(name),
        wit::QuestionResult::Credential(plan) => core::Question::Credential(plan.into()),
        wit::QuestionResult::Reachable(cluster) => core::Question::Reachable(cluster),
    }
}

fn page_out(page: wit::PageResult) -> core::Page {
    core::Page {
        after: page.after.map(|after| core::ObjectName {
            namespace: after.namespace,
            name: after.name,
        }),
        size: page.size,
    }
}

fn act_out(act: wit::ActResult) -> core::Act {
    match act {
        wit::ActResult::Cloud(act) => core::Act::Cloud(core::CloudAct {
            operation: act.operation,
            arguments: act.arguments.into(),
            intent: act.intent,
        }),
        wit::ActResult::Create(act) => core::Act::Create(core::ObjectCreate {
            cluster: act.cluster,
            object: act.object.into(),
        }),
        wit::ActResult::Patch(act) => core::Act::Patch(core::ObjectPatch {
            object: object_out(act.object),
            precondition: precondition_out(act.precondition),
            subresource: act.subresource,
            patch: act.patch.into(),
        }),
        wit::ActResult::Delete(act) => core::Act::Delete(core::ObjectDelete {
            object: object_out(act.object),
            precondition: precondition_out(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
            propagation_policy: act.propagation_policy,
        }),
        wit::ActResult::Evict(act) => core::Act::Evict(core::Eviction {
            object: object_out(act.object),
            precondition: precondition_out(act.precondition),
            grace_period_seconds: act.grace_period_seconds,
        }),
        wit::ActResult::Revoke(token) => core::Act::Revoke(token.into()),
        wit::ActResult::Mint(act) => core::Act::Mint(core::Mint {
            cluster: act.cluster,
            kind: act.kind,
            ttl: act.ttl,
        }),
    }
}
