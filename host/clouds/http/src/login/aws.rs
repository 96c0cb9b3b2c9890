//! AWS: signatures of version 4, and who signs.
//!
//! The Secret has `accessKeyID` and `secretAccessKey`, and `sessionToken` if the keys are temporary.
//!
//! Signing is as AWS describes it in "Create a signed AWS API request": a canonical request, a text to sign, a key
//! for day, region and service.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use polity_core::contract::{Code, Failure};
use ring::hmac;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{At, Proof, Session, Values, value};
use crate::address::Address;
use crate::transport::Outgoing;

/// The version of the API of STS.
const STS: &str = "2011-06-15";

/// Keys of AWS.
#[derive(Clone)]
pub struct Credentials {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Credentials {
    /// Keys, with the token of temporary ones.
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

/// The time as AWS writes it: `20261123T060000Z`.
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

/// The public address of a service in a region.
pub(super) fn address(service: &str, region: &str) -> Option<Address> {
    let suffix = match region {
        region if region.starts_with("cn-") => "amazonaws.com.cn",
        _ => "amazonaws.com",
    };
    let known = !region.is_empty() && !service.is_empty();
    known.then(|| Address::read(&format!("https://{service}.{region}.{suffix}")).ok())?
}

pub(super) async fn log_in(at: &At<'_>, values: &Values) -> Result<Session, Failure> {
    let token = values.get("sessionToken").map(|token| token.trim());
    let credentials = Credentials::new(
        value(values, "accessKeyID")?,
        value(values, "secretAccessKey")?,
        token,
    );
    identify(at, credentials).await
}

/// Asks STS who these keys are.
async fn identify(at: &At<'_>, credentials: Credentials) -> Result<Session, Failure> {
    let address = at
        .endpoints
        .get("sts")
        .cloned()
        .or_else(|| address("sts", at.region));
    let address = address.ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            "the connection has no region, and no endpoint \"sts\"",
        )
    })?;
    let mut request = Outgoing {
        address,
        method: Method::POST,
        path: Vec::new(),
        query: Vec::new(),
        headers: vec![(
            "content-type".to_owned(),
            "application/x-www-form-urlencoded; charset=utf-8".to_owned(),
        )],
        body: Bytes::from(format!("Action=GetCallerIdentity&Version={STS}")),
    };
    credentials.sign(&mut request, "sts", at.region, at.now);
    let sent = at.transport.send(&request, at.until).await;
    let answer = sent.map_err(|lost| lost.failure)?;
    let body = polity_body::read(&answer.body, &["*"]).kept;
    let text = |path: &[&str]| {
        let found = path
            .iter()
            .try_fold(&body, |element, name| element.get(*name)?.get(0));
        found
            .and_then(|element| element["$text"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    if answer.status != 200 {
        let code = match answer.status {
            400..=403 => Code::Unauthenticated,
            _ => Code::Unavailable,
        };
        let error = |field: &str| {
            text(&["ErrorResponse", "Error", field])
                .chars()
                .take(300)
                .collect::<String>()
        };
        let message = format!(
            "STS answers {}: {} {}",
            answer.status,
            error("Code"),
            error("Message")
        );
        return Err(Failure::new(code, message));
    }
    let result = |field: &str| text(&["GetCallerIdentityResponse", "GetCallerIdentityResult", field]);
    let (account, arn, user) = (result("Account"), result("Arn"), result("UserId"));
    if account.is_empty() || arn.is_empty() {
        return Err(Failure::new(Code::Unavailable, "STS does not say who asks"));
    }
    let partition = arn.split(':').nth(1).unwrap_or("aws").to_owned();
    Ok(Session {
        attributes: json!({
            "principal": arn, "account": account, "userId": user, "region": at.region, "partition": partition,
        }),
        place: vec![partition, account, at.region.to_owned()],
        principal: arn,
        expires: None,
        proof: Proof::Aws(credentials),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &[(&str, &str)], body: &'static str) -> Outgoing {
        Outgoing {
            address: Address::read("https://example.amazonaws.com").expect("an address"),
            method: Method::GET,
            path: Vec::new(),
            query: query
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    /// The case `get-vanilla-query-order-key-case` of AWS's test suite for signatures of version 4.
    #[test]
    fn a_signature_is_that_of_the_suite_of_aws() {
        let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
        let mut request = request(&[("Param2", "value2"), ("Param1", "value1")], "");
        credentials.sign(&mut request, "service", "us-east-1", 1_440_938_160_000);
        let authorization = &request.headers.last().expect("a header").1;
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, \
             Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }

    #[test]
    fn a_service_has_an_address_in_a_region() {
        let text = |service, region| address(service, region).map(|address| address.as_text());
        assert_eq!(
            text("ec2", "eu-west-1").as_deref(),
            Some("https://ec2.eu-west-1.amazonaws.com")
        );
        assert_eq!(
            text("sts", "cn-north-1").as_deref(),
            Some("https://sts.cn-north-1.amazonaws.com.cn")
        );
        assert_eq!(text("ec2", ""), None);
    }
}
