//! The host's own credentials, for a connection that names no Secret. The sources are tried in the order of AWS's SDKs:
//! environment variables, the token of a service account with a role (IRSA), the endpoint of a container (EKS Pod Identity,
//! ECS), and the machine's metadata service, version 2.
//!
//! Who writes a connection must not get this identity for a server of their own. So it goes to the addresses that AWS documents, or
//! that the host's environment names, and never to an endpoint, through a proxy or by a CA of the connection ([`Route`]).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use hyper_util::client::proxy::matcher::Matcher;
use polity_core::contract::{Code, Failure};
use serde_json::Value;

use super::{Credentials, Keys, sts, unix_ms};
use crate::address::Address;
use crate::login::{At, invalid};
use crate::transport::{Incoming, Outgoing, Tls, Transport};

/// The metadata service, at which a machine of EC2 finds its own credentials.
const METADATA: &str = "http://169.254.169.254";
/// The lifetime of a token of the metadata service, in seconds. The token is used at once.
const TOKEN_SECONDS: &str = "60";
/// How long the host waits for the metadata service. Outside of EC2 nothing answers at its address.
const METADATA_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// The addresses, besides loopback, at which the endpoint of a container may be used without TLS.
const OF_CONTAINERS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// The ways to the services that the host's own identity may use, by service.
pub(in crate::login) struct Route(BTreeMap<&'static str, Way>);

/// The way to one service.
pub(in crate::login) struct Way {
    pub(in crate::login) address: Address,
    pub(in crate::login) transport: Transport,
}

impl Route {
    /// The ways in this region. As AWS's SDKs do, it takes the addresses from `AWS_ENDPOINT_URL_STS` and `AWS_ENDPOINT_URL_EC2`, and
    /// proxies from `HTTPS_PROXY` and `NO_PROXY`.
    pub(super) fn of(at: &At<'_>) -> Result<Self, Failure> {
        let set = |name: &str| (at.environment)(name).filter(|value| !value.is_empty());
        let either = |name: &str| {
            set(name)
                .or_else(|| set(&name.to_lowercase()))
                .unwrap_or_default()
        };
        let proxies = Matcher::builder()
            .https(either("HTTPS_PROXY"))
            .no(either("NO_PROXY"))
            .build();
        let mut ways = BTreeMap::new();
        for service in super::SERVICES {
            let variable = format!("AWS_ENDPOINT_URL_{}", service.to_uppercase());
            let address = match set(&variable) {
                Some(url) => Address::read(&url).map_err(|e| invalid(&format!("{variable}: {e}")))?,
                None => super::address(service, at.region).ok_or_else(|| {
                    invalid(&format!(
                        "the host's own identity goes to AWS's address of {service} in a region: set spec.region, or {variable} in \
                         the environment of the host"
                    ))
                })?,
            };
            let uri = address.uri("/", "").map_err(|e| invalid(&e.to_string()))?;
            let proxy = proxies.intercept(&uri).map(|proxy| proxy.uri().to_string());
            let transport = Transport::new(&Tls::default(), proxy.as_deref(), None);
            let transport = transport.map_err(|e| invalid(&format!("HTTPS_PROXY: {e}")))?;
            ways.insert(service, Way { address, transport });
        }
        Ok(Route(ways))
    }

    /// The way to a service.
    pub(in crate::login) fn to(&self, service: &str) -> Option<&Way> {
        self.0.get(service)
    }
}

/// The credentials of the first source that has any.
pub(super) async fn find(at: &At<'_>) -> Result<Keys, Failure> {
    let set = |name: &str| (at.environment)(name).filter(|value| !value.is_empty());
    if let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
        let token = set("AWS_SESSION_TOKEN");
        return Ok(Keys {
            credentials: Credentials::new(&id, &secret, token.as_deref()),
            expires: None,
        });
    }
    if let (Some(file), Some(arn)) = (set("AWS_WEB_IDENTITY_TOKEN_FILE"), set("AWS_ROLE_ARN")) {
        // The file is read at each login, because its writer, such as the kubelet, replaces the token before it expires.
        let token = read(&file)?;
        let name = set("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "polity".to_owned());
        return sts::assume_by_token(at, &token, &arn, &name).await;
    }
    if let Some(url) = set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        let token = match set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => Some(read(&file)?),
            None => set("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        };
        return of_container(at, &url, token).await;
    }
    if set("AWS_EC2_METADATA_DISABLED").is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
        return Err(none("the metadata service is turned off"));
    }
    let metadata = set("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| METADATA.to_owned());
    of_machine(at, &metadata).await
}

fn none(why: &str) -> Failure {
    let message = format!(
        "the connection has no spec.credentials, and the host has no credentials of its own: no AWS_ACCESS_KEY_ID, no \
         AWS_WEB_IDENTITY_TOKEN_FILE, no AWS_CONTAINER_CREDENTIALS_FULL_URI, and {why}"
    );
    Failure::new(Code::Unauthenticated, message)
}

fn read(file: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|e| Failure::new(Code::Unauthenticated, format!("{file}: {e}")))?;
    Ok(text.trim().to_owned())
}

/// The keys from the endpoint of a container.
async fn of_container(at: &At<'_>, url: &str, token: Option<String>) -> Result<Keys, Failure> {
    let bad = |why: &str| {
        let message = format!("AWS_CONTAINER_CREDENTIALS_FULL_URI: {why}");
        Failure::new(Code::InvalidArgument, message)
    };
    let address = Address::read(url).map_err(|e| bad(&e.to_string()))?;
    if !is_near(&address) {
        return Err(bad("an address without TLS must be an address of this machine"));
    }
    let headers = token.map(|token| ("authorization".to_owned(), token));
    let answer = ask(at, address, &[], Method::GET, headers, at.until).await?;
    keys(&answer)
}

/// Whether no other machine can read the traffic: with TLS, or at an address of this machine.
fn is_near(address: &Address) -> bool {
    let text = address.as_text();
    let host = address.host();
    let name = match host.strip_prefix('[') {
        Some(_) => host.split_inclusive(']').next().unwrap_or(host),
        None => host.split(':').next().unwrap_or(host),
    };
    let loopback = name == "localhost"
        || name == "[::1]"
        || name.parse().is_ok_and(|ip: std::net::Ipv4Addr| ip.is_loopback());
    text.starts_with("https://") || loopback || OF_CONTAINERS.contains(&name)
}

/// The keys of the role of the machine that the host runs on.
async fn of_machine(at: &At<'_>, metadata: &str) -> Result<Keys, Failure> {
    let address = Address::read(metadata).map_err(|e| Failure::new(Code::InvalidArgument, e.to_string()))?;
    let soon = at
        .until
        .min(tokio::time::Instant::now() + METADATA_ANSWERS_WITHIN);
    let lives = (
        "x-aws-ec2-metadata-token-ttl-seconds".to_owned(),
        TOKEN_SECONDS.to_owned(),
    );
    let token = ask(
        at,
        address.clone(),
        &["latest", "api", "token"],
        Method::PUT,
        Some(lives),
        soon,
    )
    .await;
    let token = token.map_err(|failure| match failure.code {
        Code::Unavailable => failure,
        _ => none(&format!("no metadata service: {}", failure.message)),
    })?;
    let token = text(&token);
    let shown = || Some(("x-aws-ec2-metadata-token".to_owned(), token.clone()));
    // With a slash at its end: without it, some metadata services answer with a redirect ("Retrieve security credentials").
    let path = ["latest", "meta-data", "iam", "security-credentials"];
    let list = [&path[..], &[""]].concat();
    let role = ask(at, address.clone(), &list, Method::GET, shown(), at.until).await;
    let role = text(&role.map_err(|failure| match failure.code {
        Code::NotFound => none("the machine has no role"),
        _ => failure,
    })?);
    let role = role.lines().next().unwrap_or_default().to_owned();
    let path = [&path[..], &[&role]].concat();
    keys(&ask(at, address, &path, Method::GET, shown(), at.until).await?)
}

/// Sends a request to a service of this machine, directly and never through a proxy.
async fn ask(
    at: &At<'_>,
    address: Address,
    path: &[&str],
    method: Method,
    header: Option<(String, String)>,
    until: tokio::time::Instant,
) -> Result<Incoming, Failure> {
    let transport = Transport::new(&Tls::default(), None, None);
    let transport = transport.map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
    let request = Outgoing {
        address,
        method,
        path: path.iter().map(|segment| (*segment).to_owned()).collect(),
        query: Vec::new(),
        headers: header.into_iter().collect(),
        body: Bytes::new(),
    };
    let answer = transport
        .send(&request, until.min(at.until))
        .await
        .map_err(|lost| match lost.failure.code {
            // Outside of EC2 nothing answers there.
            Code::Unavailable => Failure::new(Code::Unauthenticated, lost.failure.message),
            _ => lost.failure,
        })?;
    let code = match answer.status {
        200 if !text(&answer).is_empty() => return Ok(answer),
        404 => Code::NotFound,
        // What says nothing about credentials is asked again soon.
        200 | 300..=399 | 429 | 500.. => Code::Unavailable,
        _ => Code::Unauthenticated,
    };
    let message = match answer.status {
        200 => format!("{} answers without a body", request.address.host()),
        status => format!("{} answers {status}", request.address.host()),
    };
    Err(Failure::new(code, message))
}

fn text(answer: &Incoming) -> String {
    String::from_utf8_lossy(&answer.body).trim().to_owned()
}

fn keys(answer: &Incoming) -> Result<Keys, Failure> {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let of = |field: &str| said[field].as_str().unwrap_or_default();
    if of("AccessKeyId").is_empty() || of("SecretAccessKey").is_empty() {
        return Err(Failure::new(
            Code::Unavailable,
            "the host's own credentials: the answer contains no AccessKeyId and SecretAccessKey",
        ));
    }
    let token = Some(of("Token")).filter(|token| !token.is_empty());
    Ok(Keys {
        credentials: Credentials::new(of("AccessKeyId"), of("SecretAccessKey"), token),
        expires: unix_ms(of("Expiration")),
    })
}
