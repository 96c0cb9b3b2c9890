//! Turns refusals of OpenStack into failures.

use polity_driver_sdk::prelude::*;

use crate::api::Service;

/// How many characters of a server's text a message repeats at most.
const WORDS: usize = 400;
/// The most characters of a request's id.
const REQUEST_ID: usize = 80;

/// What a request does. Its failure depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// The request reads.
    Read,
    /// The request changes or creates.
    Change,
}

/// The text of a refusal.
struct Words {
    text: String,
    /// Whether the text comes from the API itself, and not from a server in front of it.
    by_api: bool,
}

/// The failure of a request whose response is not a success.
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

/// The failure of a successful response that lacks a part which the API promises.
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
        // Glance answers 404 with an HTML page. A page in place of nova or neutron comes from another server, which does not
        // know what exists.
        404 if words.by_api || service == Service::Image => Code::NotFound,
        404 => Code::Unavailable,
        406 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::FailedPrecondition,
        413 | 429 | 502 | 503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// Whether a quota is exhausted. Nova answers 403 then, neutron 409.
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

/// The text of an HTML page, or of the JSON in its place.
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

/// The text in one line, cut to at most so many characters.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").chars().take(most).collect()
}
