//! Patching an object: RFC 6902 (JSON patch) and RFC 7386 (merge patch).

use json_patch::PatchOperation;
use polity_kube_rules::merge_patch;
use serde_json::Value;

use super::{
    Call, Written,
    update::{Replacement, replace},
};
use crate::{
    http::refusal::Refusal,
    verbs::{
        admission::{DEPTH, Shape, check_place, too_deep},
        fields::FieldCheck,
    },
};

/// How many operations a JSON patch may have (apiserver `maxJSONPatchOperations`).
const OPERATIONS: usize = 10_000;

/// The most bytes that the `copy` operations of one patch may copy (apiserver `MaxJSONPatchCopyBytes`). A
/// sequence of them can double the object each time.
const COPIED: usize = 3 << 20;

/// The most values that the `move` operations of one patch may move, because each value is visited.
const MOVED: usize = 1 << 20;

/// The kind of a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
}

impl PatchKind {
    /// The kind of a content type; 415 for kinds of patches that this server does not apply.
    pub(crate) fn of(content_type: Option<&str>) -> Result<Self, Refusal> {
        let media = content_type
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let supported = "application/json-patch+json and application/merge-patch+json are";
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(Refusal::unsupported_media(format!(
                    "server-side apply is not supported by the standalone API server, {supported}"
                )))
            }
            "application/strategic-merge-patch+json" => Err(Refusal::unsupported_media(format!(
                "strategic merge patch is not supported by the standalone API server, {supported}"
            ))),
            other => Err(Refusal::unsupported_media(format!(
                "patches of type {other:?} are not supported, {supported}"
            ))),
        }
    }
}

/// Patches an object, or its status.
pub(crate) fn patch(call: &Call<'_>, kind: PatchKind) -> Result<Written, Refusal> {
    let target = call.target;
    let (key, _) = target.named()?;
    let (patch, fields) = Patch::begin(call, kind)?;
    replace(call, &key, |stored, now| {
        let tree = stored.tree();
        let served = target.kind.in_version(target.version(), stored);
        let mut object = served.unwrap_or_else(|| tree.clone());
        patch.apply(&mut object)?;
        check_place(target, &mut object)?;
        Replacement::new(target, &key, &tree, object, fields.clone(), now)
    })
}

pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
}

impl Patch {
    /// Reads and checks the patch of a request.
    pub(super) fn begin(call: &Call<'_>, kind: PatchKind) -> Result<(Self, FieldCheck), Refusal> {
        let (body, fields) = call.begin_write()?;
        let fields = match kind {
            PatchKind::Json => fields.of_json_patch(&body),
            PatchKind::Merge => fields.of_merge_patch(),
        };
        Ok((Self::parse(body, kind)?, fields))
    }

    fn parse(body: Value, kind: PatchKind) -> Result<Self, Refusal> {
        match kind {
            PatchKind::Merge if body.is_object() => Ok(Self::Merge(body)),
            PatchKind::Merge => Err(Refusal::bad_request("a merge patch is a JSON object")),
            PatchKind::Json => {
                let patch: json_patch::Patch = serde_json::from_value(body)
                    .map_err(|error| Refusal::bad_request(format!("the body is no JSON patch: {error}")))?;
                if patch.len() > OPERATIONS {
                    let message = format!("a JSON patch has at most {OPERATIONS} operations");
                    return Err(Refusal::too_large_patch(message));
                }
                Ok(Self::Json(patch))
            }
        }
    }

    pub(super) fn apply(&self, object: &mut Value) -> Result<(), Refusal> {
        match self {
            Self::Merge(patch) => merge_patch::apply(patch, object),
            Self::Json(patch) => {
                let (mut copied, mut moved) = (0, 0);
                for operation in &patch.0 {
                    copied += size_of_copy(object, operation);
                    if copied > COPIED {
                        return Err(Refusal::too_large_patch(format!(
                            "a JSON patch copies at most {COPIED} bytes"
                        )));
                    }
                    moved += check_depth(object, operation)?;
                    if moved > MOVED {
                        return Err(Refusal::too_large_patch(format!(
                            "a JSON patch moves at most {MOVED} values"
                        )));
                    }
                    // If an operation fails, the changed copy is dropped with the operations before it.
                    json_patch::patch(object, std::slice::from_ref(operation)).map_err(refused)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses an operation that would nest an object too deep: a sequence of operations can put it into itself
/// again and again. Returns how many values are moved.
fn check_depth(object: &Value, operation: &PatchOperation) -> Result<usize, Refusal> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Copy(copy) => (&copy.path, object.pointer(copy.from.as_str())),
        PatchOperation::Move(moved) => (&moved.path, object.pointer(moved.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(0),
    };
    let shape = value.map(Shape::of).unwrap_or_default();
    if path.as_str().matches('/').count() + shape.depth > DEPTH {
        return Err(too_deep());
    }
    Ok(match operation {
        PatchOperation::Move(_) => shape.count,
        _ => 0,
    })
}

fn size_of_copy(object: &Value, operation: &PatchOperation) -> usize {
    let PatchOperation::Copy(copy) = operation else {
        return 0;
    };
    object
        .pointer(copy.from.as_str())
        .map_or(0, |value| value.to_string().len())
}

fn refused(error: json_patch::PatchError) -> Refusal {
    Refusal::unprocessable(format!(
        "the server rejected our request due to an error in our request: {error}"
    ))
}
