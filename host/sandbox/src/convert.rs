//! Between the generated types of `wit/` and core's mirror of them. What goes in is borrowed, what comes out is owned.

use polity_core::contract as core;

use crate::wit::identity::exports::polity::policy::identity as wit_identity;
use crate::wit::lifecycle::polity::policy::types as wit;
use crate::wit::retry::exports::polity::policy::retry as wit_retry;

/// A pass as a guest gets it.
pub(crate) fn pass(pass: &core::Pass) -> PassParts<'_> {
    PassParts {
        pending: pass.pending.iter().map(act_in_doubt).collect(),
        causes: pass.causes.iter().map(|cause| self::cause(*cause)).collect(),
        projections: Projections::of(pass),
        pass,
    }
}

/// What a lowered pass borrows from: lists that core holds in another shape.
pub(crate) struct PassParts<'a> {
    pass: &'a core::Pass,
    pending: Vec<wit::ActInDoubt<'a>>,
    causes: Vec<wit::Cause>,
    projections: Projections<'a>,
}

/// The projections of the journal's queries as slices of `&str`, in the order of the entries that have one.
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
    /// Calls with the journal lowered; the entries live as long as the call.
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

fn cause(cause: core::Cause) -> wit::Cause {
    match cause {
        core::Cause::Created => wit::Cause::Created,
        core::Cause::Changed => wit::Cause::Changed,
        core::Cause::Deleted => wit::Cause::Deleted,
        core::Cause::Due => wit::Cause::Due,
        core::Cause::Dependency => wit::Cause::Dependency,
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
        state: match &act.state {
            core::Doubt::Done(answer) => wit::Doubt::Done(answer),
            core::Doubt::Absent => wit::Doubt::Absent,
            core::Doubt::Unknown => wit::Doubt::Unknown,
        },
    }
}

fn object_ref(object: &core::ObjectRef) -> wit::ObjectRefParam<'_> {
    wit::ObjectRefParam {
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

fn request<'a>(request: &'a core::Request, projection: &'a [&'a str]) -> wit::RequestParam<'a> {
    match request {
        core::Request::Ask(ask) => wit::RequestParam::Ask(wit::AskParam {
            round: ask.round,
            question: question(&ask.question, projection),
        }),
        core::Request::Act(act) => wit::RequestParam::Act(self::act(act)),
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
            api_version: &query.kind.api_version,
            kind: &query.kind.kind,
            namespace: query.namespace.as_deref(),
            label_selector: query.label_selector.as_deref(),
            field_selector: query.field_selector.as_deref(),
            projection,
            limit: query.limit,
            latest: query.latest,
        }),
        core::Question::Secret(object) => wit::QuestionParam::Secret(object_ref(object)),
        core::Question::Cloud(call) => wit::QuestionParam::Cloud(wit::CloudCallParam {
            operation: &call.operation,
            arguments: &call.arguments,
        }),
        core::Question::Permit(name) => wit::QuestionParam::Permit(name),
        core::Question::Credential(plan) => {
            wit::QuestionParam::Credential(wit::CredentialPlanParam { plan: &plan.plan })
        }
    }
}

fn act(act: &core::Act) -> wit::ActParam<'_> {
    match act {
        core::Act::Cloud(act) => wit::ActParam::Cloud(wit::CloudActParam {
            operation: &act.operation,
            arguments: &act.arguments,
            intent: act.intent.as_deref(),
        }),
        core::Act::Create(object) => wit::ActParam::Create(object),
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
            kind: &act.kind,
            ttl: act.ttl,
        }),
    }
}

/// Both directions between two enums of the same variants.
macro_rules! same_variants {
    ($name:ident { $($variant:ident),* $(,)? }, $to:ident, $back:ident) => {
        fn $to(value: core::$name) -> wit::$name {
            match value { $(core::$name::$variant => wit::$name::$variant,)* }
        }

        fn $back(value: wit::$name) -> core::$name {
            match value { $(wit::$name::$variant => core::$name::$variant,)* }
        }
    };
}

same_variants!(
    Code {
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    },
    code_in,
    code_out
);
same_variants!(Effect { None, Unknown }, effect_in, effect_out);
same_variants!(
    RetryClass {
        Conflict,
        Short,
        Medium,
        Long
    },
    class_in,
    class_out
);

fn failure_param(failure: &core::Failure) -> wit::FailureParam<'_> {
    wit::FailureParam {
        code: code_in(failure.code),
        message: &failure.message,
        effect: effect_in(failure.effect),
        retry_after: failure.retry_after,
    }
}

/// A trial as a retry policy gets it.
pub(crate) fn trial(trial: &core::Trial) -> wit_retry::Trial<'_> {
    wit_retry::Trial {
        class: class_in(trial.class),
        code: trial.code.map(code_in),
        attempt: trial.attempt,
        since: trial.since,
        retry_after: trial.retry_after,
        seed: trial.seed,
        config: &trial.config,
    }
}

/// What a lifecycle step returned.
pub(crate) fn step(step: wit::Step) -> core::Step {
    match step {
        wit::Step::Pending(requests) => core::Step::Pending(requests.into_iter().map(request_out).collect()),
        wit::Step::Concluded(conclusion) => core::Step::Concluded {
            verdict: None,
            conclusion: conclusion_out(conclusion),
        },
    }
}

/// What an identity step returned.
pub(crate) fn identity_step(step: wit_identity::StepOutcome) -> core::Step {
    match step {
        wit_identity::StepOutcome::Pending(requests) => {
            core::Step::Pending(requests.into_iter().map(request_out).collect())
        }
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
    }
}

fn request_out(request: wit::RequestResult) -> core::Request {
    match request {
        wit::RequestResult::Ask(ask) => core::Request::Ask(core::Ask {
            round: ask.round,
            question: question_out(ask.question),
        }),
        wit::RequestResult::Act(act) => core::Request::Act(act_out(act)),
    }
}

fn kind(api_version: String, kind: String) -> core::Kind {
    core::Kind { api_version, kind }
}

fn object_out(object: wit::ObjectRefResult) -> core::ObjectRef {
    core::ObjectRef {
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
        wit::QuestionResult::Permit(name) => core::Question::Permit(name),
        wit::QuestionResult::Credential(plan) => core::Question::Credential(core::CredentialPlan {
            plan: plan.plan.into(),
        }),
    }
}

fn act_out(act: wit::ActResult) -> core::Act {
    match act {
        wit::ActResult::Cloud(act) => core::Act::Cloud(core::CloudAct {
            operation: act.operation,
            arguments: act.arguments.into(),
            intent: act.intent,
        }),
        wit::ActResult::Create(object) => core::Act::Create(object.into()),
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
        wit::ActResult::Mint(act) => core::Act::Mint(core::Mint {
            kind: act.kind,
            ttl: act.ttl,
        }),
    }
}

/// Objects and lists in one of a manifest's JSON texts. An empty one takes a few bytes of text and some hundred of the
/// host; the largest definitions in the field have some ten thousand.
const COMPOUNDS: usize = 50_000;

/// A manifest whose JSON is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("its manifest's {field} is not JSON")]
    NotJson {
        field: &'static str,
        source: serde_json::Error,
    },
    #[error("its manifest's {field} has more than {COMPOUNDS} objects and lists")]
    TooLarge { field: &'static str },
}

fn json(field: &'static str, text: &str) -> Result<serde_json::Value, ManifestError> {
    // Those in texts count too, which errs on the safe side.
    let compounds = text.bytes().filter(|byte| matches!(byte, b'{' | b'['));
    if compounds.count() > COMPOUNDS {
        return Err(ManifestError::TooLarge { field });
    }
    serde_json::from_str(text).map_err(|source| ManifestError::NotJson { field, source })
}

/// Turns a world's manifest into core's: each world generates one of its own, of the same shape.
macro_rules! manifest_of {
    ($name:ident, $world:ident) => {
        pub(crate) fn $name(
            manifest: crate::wit::$world::exports::polity::policy::policy_info::Manifest,
        ) -> Result<core::Manifest, ManifestError> {
            use crate::wit::$world::exports::polity::policy::policy_info::{Kind, Need, Role};
            let of = |k: Kind| kind(k.api_version, k.kind);
            Ok(core::Manifest {
                name: manifest.name,
                version: manifest.version,
                role: match manifest.role {
                    Role::Identity => core::Role::Identity,
                    Role::Lifecycle => core::Role::Lifecycle,
                    Role::Retry => core::Role::Retry,
                },
                governs: manifest.governs.into_iter().map(of).collect(),
                needs: manifest
                    .needs
                    .into_iter()
                    .map(|need| match need {
                        Need::Objects(k) => core::Need::Objects(of(k)),
                        Need::Secrets => core::Need::Secrets,
                        Need::Cloud(name) => core::Need::Cloud(name),
                        Need::Permit(name) => core::Need::Permit(name),
                        Need::Credential => core::Need::Credential,
                        Need::Create(k) => core::Need::Create(of(k)),
                        Need::Patch(k) => core::Need::Patch(of(k)),
                        Need::Delete(k) => core::Need::Delete(of(k)),
                        Need::Evict => core::Need::Evict,
                        Need::Mint(kind) => core::Need::Mint(kind),
                    })
                    .collect(),
                writes: manifest.writes,
                config_schema: json("config-schema", &manifest.config_schema)?,
                finalizer: manifest.finalizer,
                crd: manifest.crd.map(|text| json("crd", &text)).transpose()?,
                edges: manifest
                    .edges
                    .into_iter()
                    .map(|e| core::Edge {
                        id: e.id,
                        meaning: e.meaning,
                        derived_from: e.derived_from,
                    })
                    .collect(),
            })
        }
    };
}

manifest_of!(lifecycle_manifest, lifecycle);
manifest_of!(identity_manifest, identity);
manifest_of!(retry_manifest, retry);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_takes_the_host_hundred_times_its_size_is_refused() {
        let text = format!("[{}0]", r#"{"":0},"#.repeat(COMPOUNDS));
        let refused = json("crd", &text).expect_err("too many objects");
        assert_eq!(
            refused.to_string(),
            "its manifest's crd has more than 50000 objects and lists"
        );
        json("crd", &format!("[{}0]", r#"{"":0},"#.repeat(COMPOUNDS / 2)))
            .expect("as many as large ones have");
    }
}
