//! Logins, the cloud-specific part of the host. A login takes values of Secrets and returns a [`Session`], which adds a token
//! or a signature to each request.

mod aws;
mod keystone;
mod vsphere;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use polity_core::contract::driver::Login;
use polity_core::contract::{Code, Failure};
use serde_json::{Value, json};
use tokio::time::Instant;

pub use aws::Credentials;

use crate::address::Address;
use crate::transport::{Outgoing, Transport};

/// The parts of a connection that a login needs.
pub struct At<'a> {
    /// The transport to the servers.
    pub transport: &'a Transport,
    /// The endpoints that the connection gives, by name.
    pub endpoints: &'a BTreeMap<String, Address>,
    /// The region of the connection; empty if it has none.
    pub region: &'a str,
    /// The time by the server's clock, in Unix milliseconds.
    pub now: u64,
    /// When the login must have ended.
    pub until: Instant,
    /// The environment variables of the host, which may contain its own credentials.
    pub environment: &'a (dyn Fn(&str) -> Option<String> + Send + Sync),
}

/// The result of a login. It contains a secret and is never printed.
#[derive(Clone)]
pub struct Session {
    /// The place of the cloud, as the server names it: account and region, project and region, or the identity of a vCenter.
    pub place: Vec<String>,
    /// The principal of the session, as the server names it.
    pub principal: String,
    /// The facts about the session that drivers and policies see.
    pub attributes: Value,
    /// The region of the session; empty if the cloud has none.
    pub region: String,
    /// When it ends, in Unix milliseconds.
    pub expires: Option<u64>,
    proof: Proof,
}

/// What a session adds to each request, so that the server knows the principal.
#[derive(Clone)]
enum Proof {
    None,
    /// The header `authorization`, and the password or token in it.
    Header(String, String),
    Keystone(keystone::Token),
    /// With the ways of the host's own identity, if it is that.
    Aws(Credentials, Option<Arc<aws::own::Route>>),
    Vsphere(vsphere::Cookie),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} by {})", self.place.join("/"), self.principal)
    }
}

/// The values of one Secret.
pub type Values = BTreeMap<String, String>;

/// A credential plan of an identity policy, with the values that it names.
pub struct Plan<'a> {
    /// The plan, which matches the catalogue's schema.
    pub plan: &'a Value,
    /// The values of the Secrets that it names, in its order.
    pub secrets: &'a [Values],
    /// The tokens of service accounts that it names, in its order.
    pub tokens: &'a [String],
    /// The connection's own credentials; `None` if it has none. A chain without a source begins with them.
    pub own: Option<&'a Values>,
}

impl<'a> Plan<'a> {
    fn chain(&self) -> Result<&'a [Value], Failure> {
        let chain = self.plan["chain"].as_array().map(Vec::as_slice);
        chain.ok_or_else(|| invalid("the credential plan has no chain; a connection needs plan.chain"))
    }

    fn secret(&self) -> Result<&'a Values, Failure> {
        self.secrets
            .first()
            .ok_or_else(|| invalid("the credential plan names no Secret"))
    }
}

fn invalid(message: &str) -> Failure {
    Failure::new(Code::InvalidArgument, message)
}

/// The path that a login and its drivers add to the address of a server, if there is one. An address that already ends in this
/// path is a mistake.
pub fn added_path(how: Login) -> Option<&'static str> {
    (how == Login::VsphereSession).then_some(vsphere::PATH)
}

/// The most bytes of the name of a principal or a place. An ARN has no more ("IAM and AWS STS quotas").
const LONGEST_NAME: usize = 2_048;
/// The most bytes of the facts about a session, which each step of a driver gets.
const LARGEST_ATTRIBUTES: usize = 16 << 10;

/// Logs in by the credential plan of an identity policy.
///
/// # Errors
/// `invalid-argument` if this login does not support a link of the plan, `permission-denied` or `unauthenticated` if a server
/// refuses a link.
pub async fn log_in_by_plan(how: Login, at: &At<'_>, plan: &Plan<'_>) -> Result<Session, Failure> {
    if how == Login::AwsSigv4 {
        return aws::log_in_by_plan(at, plan).await.and_then(Session::bounded);
    }
    match plan.chain()? {
        [] => log_in(how, at, plan.own).await,
        [link] if link.get("secret").is_some() && how != Login::None => {
            let mut session = log_in(how, at, Some(plan.secret()?)).await?;
            if how == Login::Bearer {
                // A token does not name its user. Another token may see other objects, so each Secret is a principal of its own.
                let secret = |field: &str| link["secret"][field].as_str().unwrap_or_default();
                session.principal = format!("token of {}/{}", secret("namespace"), secret("name"));
            }
            Ok(session)
        }
        _ => Err(invalid(
            "this cloud has no roles: plan.chain must have one link with a Secret, or none; without a login it must be empty",
        )),
    }
}

/// Logs in with the values of a Secret. On AWS, without a Secret, logs in with the host's own credentials.
///
/// # Errors
/// `invalid-argument` if the Secret lacks a value, `unauthenticated` if the server refuses it, `unavailable` if the server's names
/// are too long.
pub async fn log_in(how: Login, at: &At<'_>, values: Option<&Values>) -> Result<Session, Failure> {
    let none = Values::new();
    let given = values;
    let values = given.unwrap_or(&none);
    let session = match how {
        Login::None => Session::plain(at, "nobody", Proof::None),
        Login::Basic => {
            let (user, password) = (value(values, "username")?, secret(values, "password")?);
            let proof = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
            Session::plain(at, user, Proof::Header(proof, password.to_owned()))
        }
        Login::Bearer => {
            let token = secret(values, "token")?;
            Session::plain(
                at,
                "token",
                Proof::Header(format!("Bearer {token}"), token.to_owned()),
            )
        }
        Login::Keystone => keystone::log_in(at, values).await?,
        Login::AwsSigv4 => aws::log_in(at, given).await?,
        Login::VsphereSession => vsphere::log_in(at, values).await?,
    };
    session.bounded()
}

impl Session {
    /// A session without a login at a server.
    fn plain(at: &At<'_>, principal: &str, proof: Proof) -> Self {
        let place = at.endpoints.values().map(|address| address.host().to_owned());
        Session {
            place: place.collect(),
            principal: principal.to_owned(),
            region: at.region.to_owned(),
            attributes: json!({"principal": principal}),
            expires: None,
            proof,
        }
    }

    /// Checks the names that the server chose: they stand in statuses, in entries and in recordings.
    fn bounded(self) -> Result<Self, Failure> {
        let is_long = |name: &String| name.len() > LONGEST_NAME;
        if self.place.iter().any(is_long)
            || is_long(&self.principal)
            || self.attributes.to_string().len() > LARGEST_ATTRIBUTES
        {
            let message = format!(
                "the login answers with the name of a principal or a place of more than {LONGEST_NAME} bytes, or with more than {} KiB \
                 about the session: check the endpoint",
                LARGEST_ATTRIBUTES >> 10
            );
            return Err(Failure::new(Code::Unavailable, message));
        }
        Ok(self)
    }

    /// The address of a service and the transport to it, for the host's own identity. It goes nowhere else, whatever endpoints, proxy
    /// or CA the connection names. `None` for another principal.
    ///
    /// # Errors
    /// The host's own identity has no way to this service.
    pub fn own_way(&self, service: &str) -> Option<Result<(&Address, &Transport), Failure>> {
        let Proof::Aws(_, Some(route)) = &self.proof else {
            return None;
        };
        let way = route.to(service).map(|way| (&way.address, &way.transport));
        Some(way.ok_or_else(|| invalid(&format!("the host's own identity goes to no service {service:?}"))))
    }

    /// The address of a service from the login, for an endpoint that the connection does not give.
    pub fn address(&self, service: &str) -> Option<Address> {
        match &self.proof {
            Proof::Keystone(token) => token.address(service),
            Proof::Aws(..) => aws::address(service, &self.region),
            _ => None,
        }
    }

    /// The address below which a driver finds each version of the API of a service. On OpenStack it is the root of the service,
    /// whether or not the given address has a version and a project.
    pub fn root(&self, address: Address) -> Address {
        match &self.proof {
            Proof::Keystone(token) => token.root(address),
            _ => address,
        }
    }

    /// Adds the token or signature to a request. `now` is the time by the server's clock, in Unix milliseconds; `service` is
    /// the service of the endpoint.
    pub fn sign(&self, request: &mut Outgoing, service: &str, now: u64) {
        match &self.proof {
            Proof::None => {}
            Proof::Header(value, _) => request.headers.push(("authorization".to_owned(), value.clone())),
            Proof::Keystone(token) => token.sign(request),
            Proof::Aws(credentials, _) => credentials.sign(request, service, &self.region, now),
            Proof::Vsphere(cookie) => cookie.sign(request),
        }
    }

    /// The texts that must not appear in any message or recording.
    pub fn secrets(&self) -> Vec<&str> {
        match &self.proof {
            Proof::None => Vec::new(),
            Proof::Header(value, secret) => value.split(' ').skip(1).chain([secret.as_str()]).collect(),
            Proof::Keystone(token) => token.secrets(),
            Proof::Aws(credentials, _) => credentials.secrets(),
            Proof::Vsphere(cookie) => cookie.secrets(),
        }
    }

    /// Ends the session at the server, if it has one there.
    pub async fn close(&self, at: &At<'_>) {
        if let Proof::Vsphere(cookie) = &self.proof {
            cookie.close(at).await;
        }
    }
}

/// A value of a Secret.
fn value<'a>(values: &'a Values, key: &str) -> Result<&'a str, Failure> {
    let found = values
        .get(key)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty());
    found.ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            format!("the Secret with the credentials has no value {key:?}: add it"),
        )
    })
}

/// The fewest bytes of a password or a token. A shorter one is in other texts by chance, and hiding it would hide those texts.
const SHORTEST_SECRET: usize = 8;

/// A password or a token of a Secret.
fn secret<'a>(values: &'a Values, key: &str) -> Result<&'a str, Failure> {
    let found = value(values, key)?;
    if found.len() < SHORTEST_SECRET {
        return Err(invalid(&format!(
            "the value {key:?} of the Secret with the credentials is shorter than {SHORTEST_SECRET} bytes; the host hides it wherever a \
             cloud repeats it, and a short one is in other texts by chance: make it longer"
        )));
    }
    Ok(found)
}

/// An endpoint that the connection must give.
fn endpoint<'a>(at: &At<'a>, name: &str) -> Result<&'a Address, Failure> {
    at.endpoints.get(name).ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            format!(
                "the connection has no endpoint {name:?}, which its login needs: add it to spec.endpoints"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tls;
    use std::time::Duration;

    async fn by(how: Login, chain: Value) -> Result<Session, Failure> {
        let own = Values::from([("token".to_owned(), "own-token".to_owned())]);
        let given = Values::from([("token".to_owned(), "their-token".to_owned())]);
        let transport = Transport::new(&Tls::default(), None, None).expect("a transport");
        let at = At {
            transport: &transport,
            endpoints: &BTreeMap::new(),
            region: "",
            now: 0,
            until: Instant::now() + Duration::from_secs(1),
            environment: &|_| None,
        };
        let plan = Plan {
            plan: &json!({"chain": chain}),
            secrets: &[given],
            tokens: &[],
            own: Some(&own),
        };
        log_in_by_plan(how, &at, &plan).await
    }

    #[tokio::test]
    async fn whoever_has_a_token_of_their_own_is_somebody_else() {
        let secret = json!([{"secret": {"namespace": "team-a", "name": "t"}}]);
        let who = async |how, chain: &Value| by(how, chain.clone()).await.map(|session| session.principal);
        assert_eq!(who(Login::Bearer, &json!([])).await.as_deref(), Ok("token"));
        assert_eq!(
            who(Login::Bearer, &secret).await.as_deref(),
            Ok("token of team-a/t")
        );
        assert_eq!(who(Login::None, &json!([])).await.as_deref(), Ok("nobody"));
        for (how, chain) in [
            (Login::None, secret.clone()),
            (Login::Bearer, json!([{"role": {}}])),
        ] {
            let refused = who(how, &chain).await.expect_err("it has no such link");
            assert_eq!(refused.code, Code::InvalidArgument);
        }
    }
}
