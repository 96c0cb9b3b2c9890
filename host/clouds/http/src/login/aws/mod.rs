//! AWS: signatures of version 4, and the keys that sign.
//!
//! A Secret has `accessKeyID` and `secretAccessKey`, and `sessionToken` if the keys are temporary.
//!
//! Signatures follow AWS's "Create a signed AWS API request": a canonical request, a text to sign, and a key for the day, the
//! region and the service.

pub(super) mod own;
mod sts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use polity_core::contract::{Code, Failure};
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{At, Plan, Proof, Session, Values, invalid, secret, value};
use crate::address::Address;
use crate::transport::Outgoing;

/// Keys of AWS.
#[derive(Clone)]
pub struct Credentials {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Credentials {
    /// Keys. `token` is the session token of temporary keys.
    pub fn new(id: &str, secret: &str, token: Option<&str>) -> Self {
        Credentials {
            id: id.to_owned(),
            secret: secret.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    pub(super) fn secrets(&self) -> Vec<&str> {
        let mut secrets = vec![self.secret.as_str()];
        secrets.extend(self.token.as_deref());
        secrets
    }

    /// Signs a request for this service and region, at this time in Unix milliseconds.
    pub(super) fn sign(&self, request: &mut Outgoing, service: &str, region: &str, now: u64) {
        let time = written(now);
        let day = &time[..8];
        let mut signed = vec![
            ("host".to_owned(), request.address.host().to_owned()),
            ("x-amz-date".to_owned(), time.clone()),
        ];
        if let Some(token) = &self.token {
            signed.push(("x-amz-security-token".to_owned(), token.clone()));
        }
        signed.extend(
            request
                .headers
                .iter()
                .filter(|(name, _)| name == "content-type")
                .cloned(),
        );
        signed.sort();
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let mut canonical = format!("{}\n{}\n", request.method, request.encoded_path());
        let mut pairs: Vec<String> = request.encoded_query().split('&').map(str::to_owned).collect();
        pairs.sort();
        canonical.push_str(&pairs.join("&"));
        canonical.push('\n');
        for (name, value) in &signed {
            // Writing to a String cannot fail.
            let _ = writeln!(canonical, "{name}:{}", value.trim());
        }
        let _ = write!(canonical, "\n{names}\n{}", hex(&Sha256::digest(&request.body)));
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let digest = hex(&Sha256::digest(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let first = format!("AWS4{}", self.secret);
        let key = [day, region, service, "aws4_request"]
            .iter()
            .fold(first.into_bytes(), |key, part| hmac_of(&key, part));
        let signature = hex(&hmac_of(&key, &text));
        let id = &self.id;
        let proof =
            format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        let added = signed.into_iter().filter(|(name, _)| name.starts_with("x-amz-"));
        request.headers.extend(added);
        request.headers.push(("authorization".to_owned(), proof));
    }
}

fn hmac_of(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

/// The time in AWS's format: `20261123T060000Z`.
fn written(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The services of which the login knows the address. A driver's manifest names the service, and a request to it carries the
/// session's token: another service must be an endpoint of the connection.
const SERVICES: [&str; 2] = ["ec2", "sts"];

/// The domains of the partitions, by the beginning of their regions' names ("AWS service endpoints", and `partitions.json` of the SDKs).
const DOMAINS: [(&str, &str); 6] = [
    ("cn-", "amazonaws.com.cn"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("eusc-", "amazonaws.eu"),
];

/// The public address of a service in a region. What is no name of a region could be the name of another server.
pub(super) fn address(service: &str, region: &str) -> Option<Address> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_region = (1..=40).contains(&region.len()) && region.bytes().all(is_part);
    let domain = DOMAINS.iter().find(|(start, _)| region.starts_with(start));
    let domain = domain.map_or("amazonaws.com", |(_, domain)| domain);
    let known = is_region && SERVICES.contains(&service);
    known.then(|| Address::read(&format!("https://{service}.{region}.{domain}")).ok())?
}

/// Keys, and when they end.
struct Keys {
    credentials: Credentials,
    /// In Unix milliseconds.
    expires: Option<u64>,
}

impl Keys {
    /// The keys in a Secret.
    fn fixed(values: &Values) -> Result<Self, Failure> {
        let token = spelled(values, "sessionToken");
        let has_token = values.get(token).is_some_and(|token| !token.trim().is_empty());
        let token = has_token.then(|| secret(values, token));
        let id = value(values, spelled(values, "accessKeyID"))?;
        let key = secret(values, spelled(values, "secretAccessKey"))?;
        Ok(Keys {
            credentials: Credentials::new(id, key, token.transpose()?),
            expires: None,
        })
    }
}

/// The name of a key as the Secret spells it. The Secrets of Cluster API begin it with a capital letter.
fn spelled<'a>(values: &'a Values, key: &'a str) -> &'a str {
    let found = values.keys().find(|known| known.eq_ignore_ascii_case(key));
    found.map_or(key, String::as_str)
}

/// The Unix milliseconds of a time in a response, such as `2026-11-23T06:00:00Z`.
fn unix_ms(text: &str) -> Option<u64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Keys, and where they may go.
struct Source {
    keys: Keys,
    /// The ways of the host's own identity; `None` for other keys, which go where the connection says.
    route: Option<Arc<own::Route>>,
}

/// Logs in with the keys of the connection's Secret. If there is no Secret, logs in with the host's own keys.
pub(super) async fn log_in(at: &At<'_>, values: Option<&Values>) -> Result<Session, Failure> {
    log_in_by(at, values, &[]).await
}

/// Logs in with these keys, or the host's own, and assumes roles with them.
async fn log_in_by(at: &At<'_>, values: Option<&Values>, roles: &[Value]) -> Result<Session, Failure> {
    if let Some(values) = values {
        let keys = Keys::fixed(values)?;
        return session(at, Source { keys, route: None }, roles).await;
    }
    let route = Arc::new(own::Route::of(at)?);
    let sts = route.to("sts").ok_or_else(|| invalid("no address of sts"))?;
    let endpoints = BTreeMap::from([("sts".to_owned(), sts.address.clone())]);
    let own_way = At {
        transport: &sts.transport,
        endpoints: &endpoints,
        ..*at
    };
    let logged_in = async {
        let keys = own::find(&own_way).await?;
        let route = Some(route.clone());
        session(&own_way, Source { keys, route }, roles).await
    };
    logged_in.await.map_err(|failure| Failure {
        code: match failure.code {
            Code::NotFound => Code::Unauthenticated,
            code => code,
        },
        message: format!(
            "{} (as the host itself, which goes to AWS's own addresses, AWS_ENDPOINT_URL_STS and AWS_ENDPOINT_URL_EC2, and by HTTPS_PROXY, \
             not to endpoints, the proxy or the CA of the connection)",
            failure.message
        ),
        ..failure
    })
}

/// Logs in by a chain: each link is assumed with the keys of the link before it, and the last link is the session.
pub(super) async fn log_in_by_plan(at: &At<'_>, plan: &Plan<'_>) -> Result<Session, Failure> {
    let chain = plan.chain()?;
    match chain.split_first() {
        Some((link, roles)) if link.get("secret").is_some() => {
            log_in_by(at, Some(plan.secret()?), roles).await
        }
        Some((link, roles)) if link.get("webIdentity").is_some() => {
            let token = plan.tokens.first();
            let token = token.ok_or_else(|| {
                invalid("the credential plan begins with webIdentity, but names no service account token")
            })?;
            let keys = sts::assume_by_link(at, token, &link["webIdentity"]).await?;
            session(at, Source { keys, route: None }, roles).await
        }
        _ => log_in_by(at, plan.own, chain).await,
    }
}

/// Assumes the roles one after another, and asks STS which principal the last keys belong to.
async fn session(at: &At<'_>, source: Source, roles: &[Value]) -> Result<Session, Failure> {
    let Source { mut keys, route } = source;
    for link in roles {
        let role = link.get("role").ok_or_else(|| {
            let message = "plan.chain: every link after the first must be a role";
            Failure::new(Code::InvalidArgument, message)
        })?;
        let assumed = sts::assume(at, &keys.credentials, role).await?;
        let ends = [keys.expires, assumed.expires].into_iter().flatten().min();
        keys = Keys {
            expires: ends,
            ..assumed
        };
    }
    let who = sts::whose(at, &keys.credentials).await?;
    let partition = who.arn.split(':').nth(1).unwrap_or("aws").to_owned();
    Ok(Session {
        attributes: json!({
            "principal": who.arn, "account": who.account, "userId": who.user, "region": at.region,
            "partition": partition,
        }),
        place: vec![partition, who.account, at.region.to_owned()],
        principal: who.arn,
        region: at.region.to_owned(),
        expires: keys.expires,
        proof: Proof::Aws(keys.credentials, route),
    })
}

#[cfg(test)]
mod tests;
