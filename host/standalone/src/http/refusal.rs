//! Refusals, as the `Status` object that Kubernetes clients understand.

pub(crate) use polity_kube_rules::schema::Cause;
use serde_json::{Value, json};

/// A refused request. It becomes an HTTP error with a `Status` as its body.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    /// The HTTP status, also `code` in the `Status`.
    pub(crate) code: u16,
    /// Machine-readable: one of the `StatusReason`s of meta/v1; empty where a real API server gives none.
    pub(crate) reason: &'static str,
    /// The message for people: what was refused, and why.
    pub(crate) message: String,
    details: Option<Value>,
}

/// The object of a refusal. `kind` is the plural of the resource; for `Invalid` it is the kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self) -> Value {
        let mut details = json!({ "kind": self.kind });
        if !self.name.is_empty() {
            details["name"] = json!(self.name);
        }
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    fn about(code: u16, reason: &'static str, subject: Subject<'_>, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: Some(subject.details()),
        }
    }

    /// 400: the request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the bearer token is missing or wrong.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            401,
            "Unauthorized",
            "Unauthorized: this server wants its bearer token",
        )
    }

    /// 403: the request is understood and not allowed.
    pub(crate) fn forbidden(subject: Subject<'_>, why: &str) -> Self {
        let message = format!("{} \"{}\" is forbidden: {why}", subject.qualified(), subject.name);
        Self::about(403, "Forbidden", subject, message)
    }

    /// 403: a namespace that is being deleted takes no new objects.
    pub(crate) fn namespace_terminating(subject: Subject<'_>, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Self::forbidden(subject, &why);
        let cause = json!({
            "reason": "NamespaceTerminating",
            "field": "metadata.namespace",
            "message": format!("namespace {namespace} is being terminated"),
        });
        if let Some(details) = &mut refusal.details {
            details["causes"] = json!([cause]);
        }
        refusal
    }

    /// 404: no such object.
    pub(crate) fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::about(404, "NotFound", subject, message)
    }

    /// 404: no such path.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 405: the path exists but does not support the verb.
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(405, "MethodNotAllowed", message)
    }

    /// 406: the client accepts none of this server's representations.
    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only application/json is served, also as Table and PartialObjectMetadata",
        )
    }

    /// 408: the body did not arrive in time.
    pub(crate) fn too_slow(limit: std::time::Duration) -> Self {
        let message = format!("the body was not there after {} s", limit.as_secs());
        Self::new(408, "Timeout", message)
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::about(409, "AlreadyExists", subject, message)
    }

    /// 409: a precondition failed.
    pub(crate) fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{}\": {why}",
            subject.qualified(),
            subject.name
        );
        Self::about(409, "Conflict", subject, message)
    }

    /// 410: the resourceVersion or continue token is older than the history kept.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is larger than the limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit} bytes"),
        )
    }

    /// 413: a patch with too many operations.
    pub(crate) fn too_large_patch(message: String) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 413: an object became larger, by patches, than can be stored.
    pub(crate) fn object_too_large(name: &str, limit: usize) -> Self {
        let message = format!("object {name:?} is too large: an object has at most {limit} bytes of JSON");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415: a body of a type that this server does not read.
    pub(crate) fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422: the object is not valid for its kind.
    pub(crate) fn invalid(subject: Subject<'_>, causes: &[Cause]) -> Self {
        let lines: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let what = if let [one] = &lines[..] {
            one.clone()
        } else {
            format!("[{}]", lines.join(", "))
        };
        let message = format!("{} \"{}\" is invalid: {what}", subject.qualified(), subject.name);
        let mut refusal = Self::about(422, "Invalid", subject, message);
        if let Some(details) = &mut refusal.details {
            details["causes"] = causes
                .iter()
                .map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field }))
                .collect();
        }
        refusal
    }

    /// 422: parameters of a list or watch that contradict each other.
    pub(crate) fn list_option(field: &str, why: &str) -> Self {
        let subject = Subject {
            group: "meta.k8s.io",
            kind: "ListOptions",
            name: "",
        };
        Self::invalid(subject, &[Cause::forbidden(field, why)])
    }

    /// 422: options of a deletion that contradict each other.
    pub(crate) fn delete_option(cause: Cause) -> Self {
        let subject = Subject {
            group: "meta.k8s.io",
            kind: "DeleteOptions",
            name: "",
        };
        Self::invalid(subject, &[cause])
    }

    /// 422: a patch that cannot be applied to the present object.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// 429: a disruption budget does not allow the eviction. `retry` is when to try again, in seconds.
    pub(crate) fn disruption(why: &str, retry: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
        if let Some(seconds) = retry {
            details["retryAfterSeconds"] = json!(seconds);
        }
        Self {
            details: Some(details),
            ..Self::new(429, "TooManyRequests", message)
        }
    }

    /// 500, without a reason: a pod with two disruption budgets.
    pub(crate) fn several_budgets() -> Self {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        Self::new(500, "", message)
    }

    /// 500: an object without a wanted number has no scale.
    pub(crate) fn no_scale(path: &str) -> Self {
        let why = format!("the spec replicas field {path:?} does not exist");
        Self {
            details: Some(json!({ "causes": [{ "message": why }] })),
            ..Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
        }
    }

    /// 500, without a reason: an object's numbers cannot be read or written by their paths.
    pub(crate) fn broken_scale(why: String) -> Self {
        Self::new(500, "", why)
    }

    /// 500: a bug of Polity, or a failure of the disk.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// 501: a feature of a real API server that this one does not have.
    pub(crate) fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "NotImplemented",
            format!("{what} is not implemented by the standalone API server"),
        )
    }

    /// 504: a resourceVersion that does not exist yet.
    pub(crate) fn too_new(asked: u64, current: u64) -> Self {
        let mut refusal = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        refusal.details = Some(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }));
        refusal
    }

    /// When to try again, in seconds, if the refusal says so.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?["retryAfterSeconds"].as_u64()
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
