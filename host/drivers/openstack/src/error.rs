//! Refusals of OpenStack as failures.

use polity_driver_sdk::prelude::*;

use crate::api::Service;

/// The most characters of a server's words that a message has.
const WORDS: usize = 400;
/// The most characters of a request's id.
const REQUEST_ID: usize = 80;

/// What a request does, as far as its failure is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// It reads.
    Read,
    /// It changes or creates.
    Change,
}

/// What a server says of a refusal.
struct Words {
    text: String,
    /// Whether the API itself said it, and not something in front of it.
    by_api: bool,
}

/// The failure of a request that was answered with something else than success.
pub(crate) fn refused(service: Service, does: Does, seen: &Response) -> Failure {
    let words = words(service, seen);
    let code = code(service, seen, &words);
    let change_may_be_done =
        seen.status >= 500 || seen.status == 408 || !(words.by_api || seen.status == 401);
    Failure {
        code,
        message: message(service, seen, &words.text),
        retry_after: seen.retry_after(),
        doubtful: does == Does::Change && change_may_be_done,
    }
}

/// The failure of a response of success that is not what the API promises.
pub(crate) fn unreadable(service: Service, does: Does, seen: &Response, what: &str) -> Failure {
    let problem = match &seen.text {
        Some(text) => format!("{what}: {}", bounded(text, WORDS)),
        None => what.to_owned(),
    };
    Failure {
        doubtful: does == Does::Change,
        ..failure(Code::Internal, message(service, seen, &problem))
    }
}

fn code(service: Service, seen: &Response, words: &Words) -> Code {
    match seen.status {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 | 409 if is_out_of_quota(seen, words) => Code::ResourceExhausted,
        403 => Code::PermissionDenied,
        // Glance says it with a page. Of nova and neutron, a page comes from something else, which does not know.
        404 if words.by_api || service == Service::Image => Code::NotFound,
        404 => Code::Unavailable,
        406 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::FailedPrecondition,
        413 | 429 | 502 | 503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// Nova says it with 403, neutron with 409.
fn is_out_of_quota(seen: &Response, words: &Words) -> bool {
    let kind = seen.body["NeutronError"]["type"].as_str().unwrap_or("");
    let text = words.text.to_ascii_lowercase();
    let says_so = seen.status == 403 && (text.contains("quota") || text.contains("exceeded"));
    says_so || ["OverQuota", "IpAddressGenerationFailure"].contains(&kind)
}

fn words(service: Service, seen: &Response) -> Words {
    let by_api = service
        .faults()
        .iter()
        .find_map(|fault| seen.body.get(fault)?.get("message")?.as_str());
    let text = match by_api {
        Some(text) => bounded(text, WORDS),
        None => bounded(&page(seen), WORDS),
    };
    Words {
        text,
        by_api: by_api.is_some(),
    }
}

/// What a page says, or the JSON in its place.
fn page(seen: &Response) -> String {
    if let Some(text) = &seen.text {
        return text.clone();
    }
    let message = seen.body.get("message").and_then(Value::as_str);
    let title = tree::text(&seen.body, "html/head/title");
    let text = message.unwrap_or_else(|| tree::text(&seen.body, "html/body"));
    format!("{title} {text}")
}

fn message(service: Service, seen: &Response, text: &str) -> String {
    let mut message = format!("{} answers {}", service.name(), seen.status);
    if !text.is_empty() {
        message.push_str(": ");
        message.push_str(text);
    }
    let ids = ["x-openstack-request-id", "x-compute-request-id"];
    if let Some(id) = ids.iter().find_map(|name| seen.header(name)) {
        message.push_str(&format!(" ({})", bounded(id, REQUEST_ID)));
    }
    message
}

/// A text of one line and at most so many characters.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").chars().take(most).collect()
}
