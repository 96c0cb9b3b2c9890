//! Calls of STS: whose keys a request is signed with, and the keys of roles. The version of the API is 2011-06-15.

use bytes::Bytes;
use http::Method;
use polity_core::contract::{Code, Failure};
use polity_core::time::millis;
use serde_json::Value;

use super::{Credentials, Keys, unix_ms};
use crate::address::{Address, query};
use crate::login::At;
use crate::pace::LONGEST_PAUSE;
use crate::transport::{Incoming, Outgoing};

/// The version of the API.
const VERSION: &str = "2011-06-15";
/// How many characters of an error a message repeats at most.
const LONGEST_ERROR: usize = 300;

/// How far the time of a signature may differ from the server's time, in milliseconds ("Elements of an AWS API request
/// signature").
const VALID: u64 = 5 * 60 * 1_000;

/// The longest session of a role that is assumed by the keys of a role, in seconds. STS refuses a longer one ("AssumeRole").
const LONGEST_CHAINED: u64 = 3_600;
/// How long to wait after STS was too busy, in milliseconds, if it names no time.
const REST: u64 = 5_000;

/// The principal that keys belong to.
pub(super) struct Who {
    pub(super) arn: String,
    pub(super) account: String,
    pub(super) user: String,
}

/// Asks which principal these keys belong to.
pub(super) async fn whose(at: &At<'_>, keys: &Credentials) -> Result<Who, Failure> {
    let result = call(at, Some(keys), "GetCallerIdentity", Vec::new(), &[]).await?;
    let who = Who {
        arn: text(&result, &["Arn"]),
        account: text(&result, &["Account"]),
        user: text(&result, &["UserId"]),
    };
    if who.account.is_empty() || who.arn.is_empty() {
        Err(Failure::new(
            Code::Unavailable,
            "STS answered GetCallerIdentity without an account or an ARN",
        ))
    } else {
        Ok(who)
    }
}

/// Assumes the role of a link with these keys. With temporary keys the session is an hour at most: the host's own mostly
/// come from a role, and so does what a Secret with a session token holds.
pub(super) async fn assume(at: &At<'_>, by: &Credentials, link: &Value) -> Result<Keys, Failure> {
    let said = |field: &str| link[field].as_str().unwrap_or_default().to_owned();
    let longest = by.token.as_ref().map_or(u64::MAX, |_| LONGEST_CHAINED);
    let seconds = link["durationSeconds"].as_u64().unwrap_or_default();
    let mut form = vec![
        ("RoleArn", said("arn")),
        ("RoleSessionName", session_name(link)),
        ("DurationSeconds", seconds.min(longest).to_string()),
    ];
    let optional = [("ExternalId", "externalId"), ("Policy", "inlinePolicy")];
    form.extend(optional.map(|(name, field)| (name, said(field))));
    let mut form = owned(form);
    let policies = link["policyARNs"].as_array().into_iter().flatten();
    for (index, arn) in policies.filter_map(Value::as_str).enumerate() {
        form.push((format!("PolicyArns.member.{}.arn", index + 1), arn.to_owned()));
    }
    keys(&call(at, Some(by), "AssumeRole", form, &[]).await?)
}

/// Assumes a role with the token of a service account.
pub(super) async fn assume_by_token(
    at: &At<'_>,
    token: &str,
    arn: &str,
    name: &str,
) -> Result<Keys, Failure> {
    let form = [
        ("RoleArn", arn),
        ("RoleSessionName", name),
        ("WebIdentityToken", token),
    ];
    let form = form
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    keys(&call(at, None, "AssumeRoleWithWebIdentity", form, &[token]).await?)
}

/// Assumes the role of a link with the token that the link names.
pub(super) async fn assume_by_link(at: &At<'_>, token: &str, link: &Value) -> Result<Keys, Failure> {
    let arn = link["arn"].as_str().unwrap_or_default();
    assume_by_token(at, token, arn, &session_name(link)).await
}

/// The name of the session in AWS's logs: the name in the link, or else the uid of the identity object that the link comes from,
/// so that a log entry leads back to that object.
fn session_name(link: &Value) -> String {
    let said = link["sessionName"].as_str().filter(|name| !name.is_empty());
    let uid = link["identity"]["uid"].as_str().unwrap_or_default();
    said.map_or_else(|| format!("polity-{uid}"), str::to_owned)
}

/// A form without its empty fields.
fn owned(form: Vec<(&str, String)>) -> Vec<(String, String)> {
    let said = form.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The keys of a role.
fn keys(result: &Value) -> Result<Keys, Failure> {
    let of = |field: &str| text(result, &["Credentials", field]);
    let (id, secret, token) = (of("AccessKeyId"), of("SecretAccessKey"), of("SessionToken"));
    let expires = unix_ms(&of("Expiration"));
    if id.is_empty() || secret.is_empty() || token.is_empty() || expires.is_none() {
        return Err(Failure::new(
            Code::Unavailable,
            "STS answered without complete keys for the role",
        ));
    }
    Ok(Keys {
        credentials: Credentials::new(&id, &secret, Some(&token)),
        expires,
    })
}

/// One call of STS. `hidden` has the secrets in the form, which no message repeats.
async fn call(
    at: &At<'_>,
    by: Option<&Credentials>,
    action: &str,
    form: Vec<(String, String)>,
    hidden: &[&str],
) -> Result<Value, Failure> {
    let mut pairs = owned(vec![
        ("Action", action.to_owned()),
        ("Version", VERSION.to_owned()),
    ]);
    pairs.extend(form);
    let request = Outgoing {
        address: address(at)?,
        method: Method::POST,
        path: Vec::new(),
        query: Vec::new(),
        headers: vec![(
            "content-type".to_owned(),
            "application/x-www-form-urlencoded; charset=utf-8".to_owned(),
        )],
        body: Bytes::from(query(&pairs)),
    };
    let answer = send(at, by, &request).await?;
    let body = polity_body::whole(&answer.body).unwrap_or_default();
    if answer.status == 200 {
        let (response, result) = (format!("{action}Response"), format!("{action}Result"));
        return Ok(body[&response][0][&result][0].clone());
    }
    let error = |field: &str| text(&body, &["ErrorResponse", "Error", field]);
    let (code, said) = (error("Code"), error("Message"));
    let mut hidden = hidden.to_vec();
    hidden.extend(by.into_iter().flat_map(Credentials::secrets));
    let said: String = hide(said, &hidden).chars().take(LONGEST_ERROR).collect();
    let message = format!("STS answers {action} with {}: {code:.100} {said}", answer.status);
    Err(refusal(&answer, &code, message))
}

/// The failure of a call that STS has answered with this code.
fn refusal(answer: &Incoming, code: &str, message: String) -> Failure {
    let code = meaning(answer.status, code);
    let seconds: Option<u64> = answer
        .header("retry-after")
        .and_then(|said| said.trim().parse().ok());
    let asked = seconds.map(|seconds| seconds.saturating_mul(1_000).min(millis(LONGEST_PAUSE)));
    Failure {
        retry_after: asked.or_else(|| (code == Code::Unavailable).then_some(REST)),
        ..Failure::new(code, message)
    }
}

/// Sends a request, signed.
async fn send(at: &At<'_>, by: Option<&Credentials>, request: &Outgoing) -> Result<Incoming, Failure> {
    let signed_at = async |now| {
        let mut request = request.clone();
        if let Some(by) = by {
            by.sign(&mut request, "sts", at.region, now);
        }
        let sent = at.transport.send(&request, at.until).await;
        sent.map_err(|lost| lost.failure)
    };
    let answer = signed_at(at.now).await?;
    match answer.date() {
        // STS refuses a signature with a wrong time, and its response has the right time: the request is signed once more.
        Some(date) if (400..=403).contains(&answer.status) && date.abs_diff(at.now) > VALID => {
            signed_at(date).await
        }
        _ => Ok(answer),
    }
}

fn hide(text: String, secrets: &[&str]) -> String {
    let hidden = secrets.iter().filter(|secret| !secret.is_empty());
    hidden.fold(text, |text, secret| text.replace(secret, "***"))
}

/// The code for an error of STS. `host/drivers/ERRORS.md` has them all, with their sources.
fn meaning(status: u16, code: &str) -> Code {
    match code {
        "AccessDenied" | "AccessDeniedException" | "IDPRejectedClaim" | "OptInRequired" => {
            Code::PermissionDenied
        }
        "MalformedPolicyDocument" | "PackedPolicyTooLarge" | "ValidationError" => Code::InvalidArgument,
        "RegionDisabledException" => Code::FailedPrecondition,
        "Throttling" | "ThrottlingException" | "RequestLimitExceeded" | "IDPCommunicationError" => {
            Code::Unavailable
        }
        _ if (400..=403).contains(&status) => Code::Unauthenticated,
        _ => Code::Unavailable,
    }
}

fn address(at: &At<'_>) -> Result<Address, Failure> {
    let given = at.endpoints.get("sts").cloned();
    let address = given.or_else(|| super::address("sts", at.region));
    address.ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            "the connection has neither spec.region nor the endpoint \"sts\": add one of them",
        )
    })
}

/// The text at this path of a response.
fn text(body: &Value, path: &[&str]) -> String {
    let found = path
        .iter()
        .try_fold(body, |element, name| element.get(*name)?.get(0));
    let text = found.and_then(|element| element["$text"].as_str());
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_has_a_name_that_leads_back() {
        let link = json!({"sessionName": "", "identity": {"uid": "u-1"}});
        assert_eq!(session_name(&link), "polity-u-1");
        assert_eq!(session_name(&json!({"sessionName": "mine"})), "mine");
    }

    #[test]
    fn what_an_error_repeats_is_hidden() {
        assert_eq!(
            hide("bad token abc.def!".to_owned(), &["abc.def", ""]),
            "bad token ***!"
        );
    }
}
