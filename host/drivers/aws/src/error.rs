//! Turns EC2's errors into failures.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

/// The most bytes of AWS's own words in a message. An authorization failure may have several thousand.
const WORDS: usize = 1_024;
/// The most bytes of a code or of the id of a request. Real ones have less than 50.
const NAME: usize = 128;
/// How long to wait after a request was throttled or could not be served, in milliseconds, if EC2 names no time. Its
/// buckets fill up again each second ("Request throttling for the Amazon EC2 API"); a few seconds leave room for the
/// other users of the account.
const REST: u64 = 5_000;

/// The beginning of the message of an `AuthFailure` about an image, not about the credentials: "Not authorized for images:
/// [ami-…]".
const NOT_FOR: &str = "Not authorized for";
/// The meaning of such an `AuthFailure`.
const MAY_NOT: Meaning = means("AuthFailure", Code::PermissionDenied);

/// The codes with which EC2 refuses although the status is 5xx: it has no capacity, or it got too many requests. All other
/// codes of its "Server error codes" may come after a change that happened: `InternalError` and `InternalFailure` with 500,
/// `Unavailable` and `ServiceUnavailable` with 503. Sources: the list of that name, as for [`MEANINGS`]; of
/// `EC2ThrottledException`, with 503, `_retry.json` of botocore.
pub(crate) const REFUSED: [&str; 8] = [
    "EC2ThrottledException",
    "InsufficientAddressCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientVolumeCapacity",
    "RequestLimitExceeded",
];
/// Where EC2 writes the code of an error.
pub(crate) const CODE: &str = "Response.Errors.Error.Code";

/// The meaning of a code of AWS.
struct Meaning {
    /// The code of AWS. A star matches any beginning or any end.
    pattern: &'static str,
    code: Code,
    /// The code says that the client token is known: an earlier request with it arrived.
    is_known_token: bool,
}

/// A code that says nothing about the client token.
const fn means(pattern: &'static str, code: Code) -> Meaning {
    Meaning {
        pattern,
        code,
        is_known_token: false,
    }
}

/// A code that says that the client token is known.
const fn known_token(pattern: &'static str, code: Code) -> Meaning {
    Meaning {
        pattern,
        code,
        is_known_token: true,
    }
}

/// The codes of AWS; the first match wins. Sources: "Error codes for the Amazon EC2 API" and "Common errors" of
/// the EC2 API reference, <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>; for the codes
/// of exhausted capacity also `pkg/aws/errors` of machine-controller-manager-provider-aws.
const MEANINGS: [Meaning; 48] = [
    // An expired session, a wrong key, or a wrong clock.
    means("ExpiredToken*", Code::Unauthenticated),
    means("RequestExpired", Code::Unauthenticated),
    means("InvalidClientTokenId", Code::Unauthenticated),
    means("AuthFailure", Code::Unauthenticated),
    means("SignatureDoesNotMatch", Code::Unauthenticated),
    means("UnrecognizedClientException", Code::Unauthenticated),
    means("IncompleteSignature", Code::Unauthenticated),
    means("MissingAuthenticationToken", Code::Unauthenticated),
    // The principal or the account may not do this.
    means("AccessDenied*", Code::PermissionDenied),
    means("UnauthorizedOperation", Code::PermissionDenied),
    means("OptInRequired", Code::PermissionDenied),
    means("PendingVerification", Code::PermissionDenied),
    means("Blocked", Code::PermissionDenied),
    // The client token is known: with other arguments, or from an instance that is gone.
    known_token("IdempotentParameterMismatch", Code::Unknown),
    known_token("IdempotentInstanceTerminated", Code::FailedPrecondition),
    // The state of the resource does not allow the request.
    means("IncorrectState", Code::FailedPrecondition),
    means("IncorrectInstanceState", Code::FailedPrecondition),
    means("InvalidState*", Code::FailedPrecondition),
    means("InvalidAMIID.Unavailable", Code::FailedPrecondition),
    means("DependencyViolation", Code::FailedPrecondition),
    means("OperationNotPermitted", Code::FailedPrecondition),
    // Too many requests, or a service that is unavailable. These come before the codes that end in LimitExceeded.
    means("RequestLimitExceeded", Code::Unavailable),
    means("BandwidthLimitExceeded", Code::Unavailable),
    means("Throttl*", Code::Unavailable),
    means("EC2ThrottledException", Code::Unavailable),
    means("ServiceUnavailable*", Code::Unavailable),
    means("Unavailable", Code::Unavailable),
    means("InternalError", Code::Unavailable),
    means("InternalFailure", Code::Unavailable),
    // Too little capacity, or a quota.
    means("Insufficient*", Code::ResourceExhausted),
    means("*LimitExceeded", Code::ResourceExhausted),
    means("*LimitExceededException", Code::ResourceExhausted),
    means("VolumeIOPSLimit", Code::ResourceExhausted),
    means("MaxSpot*", Code::ResourceExhausted),
    means("SpotMaxPriceTooLow", Code::ResourceExhausted),
    means("UnfulfillableCapacity", Code::ResourceExhausted),
    means("ReservationCapacityExceeded", Code::ResourceExhausted),
    // EC2 says so, too, if the zone does not have this type of instance at present.
    means("Unsupported", Code::ResourceExhausted),
    // The machine does not exist. Policies then treat the machine as gone, so no other code means `not-found`.
    means("InvalidInstanceID.NotFound", Code::NotFound),
    // Wrong arguments, for example a class that names an image, a subnet or a key pair that does not exist.
    means("*NotFoundException", Code::InvalidArgument),
    means("Invalid*", Code::InvalidArgument),
    means("Missing*", Code::InvalidArgument),
    means("Malformed*", Code::InvalidArgument),
    means("*.Malformed", Code::InvalidArgument),
    means("Unknown*", Code::InvalidArgument),
    means("Unsupported*", Code::InvalidArgument),
    means("ValidationError", Code::InvalidArgument),
    means("VPC*NotSpecified", Code::InvalidArgument),
];

/// The root of the answer to an action, or the failure that the response describes. A response with errors in it is a
/// failure, whatever its status is.
pub(crate) fn root(response: Response, action: &str, effect: Effect) -> Result<Value, Failure> {
    let found = tree::first(&response.body, &format!("{action}Response"));
    match found {
        Some(root) if response.is_success() && errors(&response.body, action).is_none() => Ok(root.clone()),
        _ => Err(failed(&response, action, effect)),
    }
}

/// The failure of an answer that lacks a required part. If the request was a change, the change may have happened.
pub(crate) fn unreadable(action: &str, what: &str, effect: Effect) -> Failure {
    let message = format!("EC2 {action}: the answer cannot be read: {what}");
    Failure {
        doubtful: effect != Effect::Read,
        ..failure(Code::Internal, message)
    }
}

/// The element with the errors. The root of a refusal has it; the root of an answer must not have it.
fn errors<'a>(body: &'a Value, action: &str) -> Option<&'a Value> {
    let inside = || tree::first(body, &format!("{action}Response/Errors"));
    tree::first(body, "Response/Errors").or_else(inside)
}

/// The failure of a response that is not a success. Whether something has changed the host finds out by the status and by
/// [`REFUSED`]. It cannot know two things: that a refusal does not come from EC2, and that the client token is known.
fn failed(response: &Response, action: &str, effect: Effect) -> Failure {
    let errors = errors(&response.body, action);
    let code = errors.map_or("", |errors| tree::text(errors, "Error/Code"));
    let meaning = MEANINGS.iter().find(|meaning| matches(meaning.pattern, code));
    let words = errors.map_or("", |errors| tree::text(errors, "Error/Message"));
    // This `AuthFailure` refuses the image, not the credentials: a new session would not help.
    let meaning = match code {
        "AuthFailure" if words.starts_with(NOT_FOR) => Some(&MAY_NOT),
        _ => meaning,
    };
    let canonical = meaning.map_or_else(|| by_status(response.status), |meaning| meaning.code);
    let is_known_token = meaning.is_some_and(|meaning| meaning.is_known_token);
    Failure {
        code: canonical,
        message: message(response, action, errors),
        retry_after: retry_after(response, canonical),
        doubtful: effect != Effect::Read && (is_known_token || errors.is_none()),
    }
}

/// The code for a status without a known code of AWS. A 404 does not mean that a machine is gone: EC2 has a code for that,
/// so a 404 without a code comes from a server in between.
fn by_status(status: u16) -> Code {
    match status {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        408 | 429 | 500 | 502..=504 => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// The time until the next try: the seconds that the server names, or [`REST`]. A date is not read.
fn retry_after(response: &Response, code: Code) -> Option<u64> {
    let seconds = response
        .header("retry-after")
        .and_then(|value| value.trim().parse::<u64>().ok());
    let given = seconds.map(|seconds| seconds.saturating_mul(1_000));
    given.or_else(|| (code == Code::Unavailable).then_some(REST))
}

/// The action, AWS's code and words, and the id of the request, by which AWS's support finds it.
fn message(response: &Response, action: &str, errors: Option<&Value>) -> String {
    let error = |name| errors.map_or("", |errors| tree::text(errors, name));
    let status = response.status;
    let mut message = match bounded(error("Error/Code"), NAME) {
        "" if errors.is_some() => format!("EC2 {action}: HTTP {status} with an error that has no code"),
        "" => format!(
            "EC2 {action}: HTTP {status}, and the body is not an answer of EC2: check the endpoint and the proxy"
        ),
        code => format!("EC2 {action}: {code}"),
    };
    let words = bounded(error("Error/Message"), WORDS);
    if !words.is_empty() {
        message = format!("{message}: {words}");
    }
    match bounded(request_id(response), NAME) {
        "" => message,
        id => format!("{message} (request {id})"),
    }
}

/// The id of the request, from the body or from a header.
fn request_id(response: &Response) -> &str {
    let headers = ["x-amzn-requestid", "x-amz-request-id"];
    let sent = || headers.iter().find_map(|name| response.header(name));
    match tree::text(&response.body, "Response/RequestID") {
        "" => sent().unwrap_or_default(),
        said => said,
    }
}

/// The beginning of a text. It ends between two characters.
fn bounded(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Whether a code matches a pattern with at most one star.
fn matches(pattern: &str, code: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == code,
        Some((begin, end)) => {
            code.len() >= begin.len() + end.len() && code.starts_with(begin) && code.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_errors_has_a_row_for_each_meaning() {
        let page = include_str!("../../ERRORS.md");
        let section = page.split("\n## ").find(|section| section.starts_with("EC2\n"));
        let codes = section.expect("a section").lines().filter_map(|line| {
            let (code, _) = line.strip_prefix("| `")?.split_once('`')?;
            MEANINGS.iter().find(|meaning| matches(meaning.pattern, code))
        });
        let shown: Vec<&str> = codes.map(|meaning| meaning.pattern).collect();
        for meaning in &MEANINGS {
            assert!(shown.contains(&meaning.pattern), "{}", meaning.pattern);
        }
    }
}
