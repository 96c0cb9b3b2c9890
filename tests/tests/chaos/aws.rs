//! EC2 and STS by moto.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use polity_core::contract::Kind;
use polity_tests::moto::{ACCOUNT, Moto};
use polity_tests::skip::Skip;
use serde_json::Value;

use super::Stage;
use super::proxy::{Answer, Dialect, Does, Proxy, refusal, server_time};
use crate::ec2;
use crate::process::Process;

/// How far the time of a signature may be from the server's, in seconds.
const VALID: i64 = 300;

/// Another account.
const OTHER: &str = "444444444444";

pub(super) struct Ec2 {
    moto: Moto,
    proxy: Proxy,
}

impl Ec2 {
    pub(super) fn start() -> Result<Self, Skip> {
        let moto = Moto::start()?;
        // Somebody else's, of the same name.
        let form = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&TagSpecification.1.ResourceType=instance\
                    &TagSpecification.1.Tag.1.Key=Name&TagSpecification.1.Tag.1.Value=web-1\
                    &TagSpecification.1.Tag.2.Key=polity.dev/owner&TagSpecification.1.Tag.2.Value=somebody";
        moto.ec2(ACCOUNT, form);
        let proxy = Proxy::start(Query, &[moto.address()]);
        Ok(Ec2 { moto, proxy })
    }

    /// How many instances there are whose source/destination check is on.
    pub(super) fn checked(&self) -> usize {
        let filter = "Action=DescribeInstances&Filter.1.Name=instance-state-name&Filter.1.Value.1=running";
        let running = self.moto.ec2(ACCOUNT, filter);
        // The interfaces have a check of their own, which moto does not change.
        let own = running.split("<networkInterfaceSet>").map(|part| {
            let end = part.split_once("</networkInterfaceSet>");
            end.map_or(part, |(_, rest)| rest)
        });
        let own: String = own.collect();
        // Each was launched alone.
        let instances = own.split("<instancesSet>").skip(1);
        instances
            .filter(|one| one.contains("<sourceDestCheck>true"))
            .count()
    }
}

impl Stage for Ec2 {
    const EXAMPLE: &'static str = "aws-machines";
    const SECRETS: &'static [&'static str] = &ec2::SECRETS;

    fn kind() -> Kind {
        ec2::kind(ec2::MCM, "Machine")
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replaced(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "127.0.0.1:5555",
                self.proxy.address(self.moto.address()).to_owned(),
            ),
            (
                "{short: 5s, medium: 1m, long: 5m}",
                "{short: 200ms, medium: 500ms, long: 1s}".to_owned(),
            ),
        ]
    }

    fn count(&self) -> usize {
        let in_state = |state| self.moto.instances(ACCOUNT, state).len();
        in_state("running") + in_state("pending")
    }

    fn count_elsewhere(&self) -> usize {
        let in_state = |state| self.moto.instances(OTHER, state).len();
        in_state("running") + in_state("pending")
    }

    fn is_ready(machine: &Value) -> bool {
        machine["status"]["currentStatus"]["phase"] == "Running"
    }

    async fn boot(&self, host: &Process, machines: &[Value]) {
        for machine in machines {
            if machine["status"]["providerID"].is_string()
                && machine["metadata"]["deletionTimestamp"].is_null()
            {
                ec2::register(host, machine).await;
            }
        }
    }
}

/// The query API of EC2 and STS.
struct Query;

impl Dialect for Query {
    fn kind(&self, _: &Parts, body: &str) -> (String, Does) {
        let action = body.split('&').find_map(|pair| pair.strip_prefix("Action="));
        let action = action.unwrap_or("?").to_owned();
        let does = match action.as_str() {
            "GetCallerIdentity" => Does::LogIn,
            "RunInstances" => Does::Create,
            read if read.starts_with("Describe") => Does::Read,
            _ => Does::Change,
        };
        (action, does)
    }

    fn move_away(&self, request: &mut Parts, _: &mut Bytes) -> Option<String> {
        // moto takes this as the account of the caller.
        let account = HeaderValue::from_static(OTHER);
        request.headers.insert("x-moto-account-id", account);
        None
    }

    fn end_session(&self, _: &mut Parts) -> Option<Answer> {
        Some(error(StatusCode::UNAUTHORIZED, "AuthFailure"))
    }

    fn throttled(&self) -> Answer {
        error(StatusCode::SERVICE_UNAVAILABLE, "RequestLimitExceeded")
    }

    fn refuses_when_throttled(&self) -> bool {
        true
    }

    fn no_capacity(&self) -> Option<Answer> {
        // As EC2's other server errors it has the status 500: see `host/drivers/ERRORS.md`.
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Some(error(status, "InsufficientInstanceCapacity"))
    }

    fn created(&self, answer: &str) -> Vec<String> {
        ids(answer)
    }

    fn unseeing(&self, request: &str, answer: &str, ids: &[String], nth: usize) -> Option<Answer> {
        let is_named = |id: &String| request.contains(id);
        if ids.iter().any(is_named) {
            return Some(if nth % 3 == 2 {
                error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            } else {
                error(StatusCode::BAD_REQUEST, "InvalidInstanceID.NotFound")
            });
        }
        let seen = without(answer, ids);
        (seen != answer).then(|| refusal(StatusCode::OK, &seen))
    }

    fn refuse_time(&self, request: &Parts) -> Option<Answer> {
        let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let signed = text("x-amz-date").and_then(|date| date.parse::<Timestamp>().ok());
        let is_far = signed.is_none_or(|signed| server_time().duration_since(signed).abs().as_secs() > VALID);
        let is_sts = text("authorization").is_some_and(|proof| proof.contains("/sts/"));
        let why = if is_sts {
            "SignatureDoesNotMatch"
        } else {
            "RequestExpired"
        };
        is_far.then(|| error(StatusCode::BAD_REQUEST, why))
    }
}

/// The ids of the instances in an answer.
pub(super) fn ids(answer: &str) -> Vec<String> {
    let named = answer.split("<instanceId>").skip(1);
    named
        .filter_map(|rest| Some(rest.split_once('<')?.0.to_owned()))
        .collect()
}

/// A list of reservations without those of these instances.
fn without(answer: &str, hidden: &[String]) -> String {
    const BEGINNING: &str = "<reservationId>";
    let Some((list, end)) = answer.split_once("</reservationSet>") else {
        return answer.to_owned();
    };
    // Each begins with the tag before its id.
    let begins: Vec<usize> = list
        .match_indices(BEGINNING)
        .filter_map(|(at, _)| list[..at].rfind("<item>"))
        .collect();
    let ends = begins.iter().skip(1).copied().chain([list.len()]);
    let mut seen = list[..begins.first().copied().unwrap_or(list.len())].to_owned();
    for (begin, end) in begins.iter().zip(ends) {
        let reservation = &list[*begin..end];
        if !ids(reservation).iter().any(|id| hidden.contains(id)) {
            seen.push_str(reservation);
        }
    }
    seen + "</reservationSet>" + end
}

/// An error as EC2 writes it.
fn error(status: StatusCode, code: &str) -> Answer {
    let error = format!("<Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors>");
    refusal(
        status,
        &format!("<Response>{error}<RequestID>r</RequestID></Response>"),
    )
}
