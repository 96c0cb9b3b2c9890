//! Turns faults of vCenter into failures.

use polity_driver_sdk::prelude::*;

use crate::moid::plain;

/// How many characters of a server's text a message repeats at most.
const WORDS: usize = 400;

/// What a request does. Its failure depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// The request reads.
    Read,
    /// The request changes or creates.
    Change,
}

/// The codes of faults. The source of the names and their meanings is "Fault Types" of the vSphere Web Services API. The
/// simulation answers the same codes in the same situations.
const CODES: [(Code, &[&str]); 13] = [
    (Code::Unauthenticated, &["NotAuthenticated", "InvalidLogin"]),
    (
        Code::PermissionDenied,
        &[
            "NoPermission",
            "SecurityError",
            "RestrictedByAdministrator",
            "RestrictedVersion",
        ],
    ),
    (Code::NotFound, &["ManagedObjectNotFound", "NotFound"]),
    (
        Code::AlreadyExists,
        &["AlreadyExists", "DuplicateName", "FileAlreadyExists"],
    ),
    (
        Code::FailedPrecondition,
        &[
            "CannotAccessFile",
            "CpuHotPlugNotSupported",
            "CustomizationFault",
            "DisallowedOperationOnFailoverHost",
            "FileFault",
            "FileLocked",
            "FileNotFound",
            "FileNotWritable",
            "InvalidPowerState",
            "InvalidState",
            "MemoryHotPlugNotSupported",
            "MigrationFault",
            "NoCompatibleHost",
            "NotSupported",
            "QuestionPending",
            "ResourceInUse",
            "TaskInProgress",
            "VAppTaskInProgress",
        ],
    ),
    (Code::Aborted, &["ConcurrentAccess"]),
    (
        Code::InvalidArgument,
        &[
            "InvalidArgument",
            "InvalidDatastore",
            "InvalidDatastorePath",
            "InvalidDeviceBacking",
            "InvalidDeviceSpec",
            "InvalidFolder",
            "InvalidName",
            "InvalidProperty",
            "InvalidRequest",
            "InvalidType",
            "InvalidVmConfig",
            "MemorySizeNotSupported",
            "NumVirtualCpusExceedsLimit",
            "VmConfigFault",
        ],
    ),
    (
        Code::ResourceExhausted,
        &[
            // Its subtypes begin with `Insufficient` too: see `code`.
            "InsufficientResourcesFault",
            "LicenseRestricted",
            "NoDiskSpace",
            "NotEnoughLicenses",
            "NotEnoughLogicalCpus",
            "OutOfBounds",
        ],
    ),
    (Code::Unimplemented, &["MethodNotFound", "NotImplemented"]),
    (Code::Cancelled, &["RequestCanceled"]),
    (Code::DeadlineExceeded, &["Timedout"]),
    (
        Code::Unavailable,
        &[
            "HostCommunication",
            "HostConnectFault",
            "HostNotConnected",
            "HostNotReachable",
        ],
    ),
    (Code::Internal, &["SystemError"]),
];

/// Faults with which a server breaks off a request that it has begun, so that a change may have happened. A fault without a
/// name counts as one. Any other fault is a refusal.
const BROKEN_OFF: [&str; 6] = [
    "",
    "HostCommunication",
    "HostNotReachable",
    "RequestCanceled",
    "SystemError",
    "Timedout",
];

/// The code of a fault by its name.
pub(crate) fn code(name: &str) -> Code {
    let found = CODES.iter().find(|(_, names)| names.contains(&name));
    match found {
        Some((code, _)) => *code,
        None if name.starts_with("Insufficient") => Code::ResourceExhausted,
        None => Code::Internal,
    }
}

/// The name of a fault from the element that holds it.
pub(crate) fn name(fault: &Value) -> &str {
    plain(fault.get("@type").and_then(Value::as_str).unwrap_or(""))
}

/// The failure of a request that was answered with a SOAP fault. `to` is the object of the request.
pub(crate) fn of_soap(fault: &Value, to: &str, does: Does) -> Failure {
    let (kind, detail) = soap_detail(fault);
    let words = bounded(tree::text(fault, "faultstring"));
    if does == Does::Read && code(kind) == Code::NotFound && tree::text(detail, "obj") == to {
        // A service object is missing. That does not mean that the requested object is missing.
        return failure(
            Code::Internal,
            format!("the vCenter has no service object {to}: {words}"),
        );
    }
    Failure {
        doubtful: does == Does::Change && BROKEN_OFF.contains(&kind),
        ..named(kind, &words)
    }
}

/// The failure of a property that is missing, from its `LocalizedMethodFault`.
pub(crate) fn of_missing(fault: &Value, path: &str) -> Failure {
    let kind = tree::first(fault, "fault").map_or("", name);
    named(kind, &format!("vCenter withholds the property {path}"))
}

fn named(kind: &str, words: &str) -> Failure {
    let shown = if kind.is_empty() { "an unnamed fault" } else { kind };
    let message = match words {
        "" => shown.to_owned(),
        words => format!("{shown}: {words}"),
    };
    failure(code(kind), message)
}

/// The name of a SOAP fault, and the element of its detail: the name is the type of that element, or its own name
/// without `Fault`.
fn soap_detail(fault: &Value) -> (&str, &Value) {
    let detail = tree::first(fault, "detail").and_then(Value::as_object);
    let mut elements = detail
        .into_iter()
        .flatten()
        .filter(|(_, element)| element.is_array());
    let Some((element, faults)) = elements.next() else {
        return ("", &Value::Null);
    };
    let detail = faults.get(0).unwrap_or(&Value::Null);
    match name(detail) {
        "" => (element.strip_suffix("Fault").unwrap_or(element), detail),
        name => (name, detail),
    }
}

/// The text in one line, cut to at most [`WORDS`] characters.
pub(crate) fn bounded(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").chars().take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soap(detail: Value) -> Value {
        json!({"faultstring": [{"$text": "it\n  broke"}], "detail": [detail]})
    }

    #[test]
    fn the_name_of_a_fault_is_the_type_of_its_detail_or_its_element() {
        for (detail, name) in [
            (
                json!({"DuplicateNameFault": [{"@type": "vim25:DuplicateName"}]}),
                "DuplicateName",
            ),
            (json!({"DuplicateNameFault": [{}]}), "DuplicateName"),
            (json!({"Fault": [{"@type": "NoPermission"}]}), "NoPermission"),
            (json!({}), ""),
            (json!({"$text": "x", "@type": "y"}), ""),
        ] {
            assert_eq!(soap_detail(&soap(detail.clone())).0, name, "{detail}");
        }
        assert_eq!(soap_detail(&json!({})).0, "");
    }

    #[test]
    fn only_a_fault_that_breaks_off_a_change_is_doubtful() {
        let refused = soap(json!({"F": [{"@type": "NoDiskSpace"}]}));
        let seen = of_soap(&refused, "vm-1", Does::Change);
        assert_eq!(
            (seen.code, seen.doubtful, &*seen.message),
            (Code::ResourceExhausted, false, "NoDiskSpace: it broke")
        );
        for detail in [json!({"SystemErrorFault": [{}]}), json!({})] {
            let fault = soap(detail);
            assert!(of_soap(&fault, "vm-1", Does::Change).doubtful);
            assert!(!of_soap(&fault, "vm-1", Does::Read).doubtful);
        }
    }

    #[test]
    fn no_fault_has_two_codes() {
        let mut names: Vec<&str> = CODES.iter().flat_map(|(_, names)| *names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(code("InsufficientMemoryResourcesFault"), Code::ResourceExhausted);
        assert_eq!(code("SomethingNew"), Code::Internal);
    }
}
