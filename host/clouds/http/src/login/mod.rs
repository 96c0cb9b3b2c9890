//! Logins: what is cloud-specific in the host. A login takes values of Secrets and gives a [`Session`], which adds
//! to each request what shows who asks.

mod aws;
mod keystone;
mod vsphere;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use polity_core::contract::driver::Login;
use polity_core::contract::{Code, Failure};
use serde_json::{Value, json};
use tokio::time::Instant;

pub use aws::Credentials;

use crate::address::Address;
use crate::transport::{Outgoing, Transport};

/// What a login needs to know of its connection.
pub struct At<'a> {
    /// The connections to the servers.
    pub transport: &'a Transport,
    /// The endpoints that the connection gives, by name.
    pub endpoints: &'a BTreeMap<String, Address>,
    /// The region of the connection; empty if it has none.
    pub region: &'a str,
    /// Unix milliseconds.
    pub now: u64,
    /// When the login must have come back.
    pub until: Instant,
    /// The variables of the host, among which its own credentials may be.
    pub environment: &'a (dyn Fn(&str) -> Option<String> + Send + Sync),
}

/// What a login gave. It holds a secret: it is never printed.
#[derive(Clone)]
pub struct Session {
    /// Where the server says it is: account and region, project and region, the identity of a vCenter.
    pub place: Vec<String>,
    /// Who the server says asks.
    pub principal: String,
    /// What drivers and policies are told.
    pub attributes: Value,
    /// The region that it is for; empty if the cloud has none.
    pub region: String,
    /// When it ends, in Unix milliseconds.
    pub expires: Option<u64>,
    proof: Proof,
}

/// What shows who asks.
#[derive(Clone)]
enum Proof {
    None,
    /// The header `authorization`.
    Header(String),
    Keystone(keystone::Token),
    Aws(Credentials),
    Vsphere(vsphere::Cookie),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} by {})", self.place.join("/"), self.principal)
    }
}

/// The values of one Secret.
pub type Values = BTreeMap<String, String>;

/// Who an identity policy says is to act.
pub struct Plan<'a> {
    /// The plan, by the catalogue's schema.
    pub plan: &'a Value,
    /// The values of the Secrets that it names, in its order.
    pub secrets: &'a [Values],
    /// The tokens of service accounts that it names, in its order.
    pub tokens: &'a [String],
    /// The connection's own credentials, with which a chain without a source begins; `None` if it has none.
    pub own: Option<&'a Values>,
}

impl<'a> Plan<'a> {
    fn chain(&self) -> Result<&'a [Value], Failure> {
        let chain = self.plan["chain"].as_array().map(Vec::as_slice);
        chain.ok_or_else(|| {
            invalid("the plan names an account of the simulated cloud: it needs a chain of credentials")
        })
    }

    fn secret(&self) -> Result<&'a Values, Failure> {
        self.secrets
            .first()
            .ok_or_else(|| invalid("the plan names no Secret"))
    }
}

fn invalid(message: &str) -> Failure {
    Failure::new(Code::InvalidArgument, message)
}

/// The path that a login and the drivers with it add to the address of a server, if there is one: an address that ends in it
/// is a mistake.
pub fn added_path(how: Login) -> Option<&'static str> {
    (how == Login::VsphereSession).then_some(vsphere::PATH)
}

/// Logs in as an identity policy says.
///
/// # Errors
/// `invalid-argument` if the login has no such links, `permission-denied` or `unauthenticated` if a server refuses one.
pub async fn log_in_by_plan(how: Login, at: &At<'_>, plan: &Plan<'_>) -> Result<Session, Failure> {
    if how == Login::AwsSigv4 {
        return aws::log_in_by_plan(at, plan).await;
    }
    match plan.chain()? {
        [] => log_in(how, at, plan.own).await,
        [link] if link.get("secret").is_some() && how != Login::None => {
            let mut session = log_in(how, at, Some(plan.secret()?)).await?;
            if how == Login::Bearer {
                // A token does not say whose it is. What one does not find, another may.
                let secret = |field: &str| link["secret"][field].as_str().unwrap_or_default();
                session.principal = format!("token of {}/{}", secret("namespace"), secret("name"));
            }
            Ok(session)
        }
        _ => Err(invalid(
            "this cloud has no roles: a plan is one Secret, or nothing; without a login it is nothing",
        )),
    }
}

/// Logs in with the values of a Secret, or, where the cloud lets a machine do so, as the machine itself.
///
/// # Errors
/// `invalid-argument` if the Secret lacks a value, `unauthenticated` if the server refuses it.
pub async fn log_in(how: Login, at: &At<'_>, values: Option<&Values>) -> Result<Session, Failure> {
    let none = Values::new();
    let given = values;
    let values = given.unwrap_or(&none);
    match how {
        Login::None => Ok(Session::plain(at, "nobody", Proof::None)),
        Login::Basic => {
            let (user, password) = (value(values, "username")?, value(values, "password")?);
            let proof = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
            Ok(Session::plain(at, user, Proof::Header(proof)))
        }
        Login::Bearer => {
            let proof = format!("Bearer {}", value(values, "token")?);
            Ok(Session::plain(at, "token", Proof::Header(proof)))
        }
        Login::Keystone => keystone::log_in(at, values).await,
        Login::AwsSigv4 => aws::log_in(at, given).await,
        Login::VsphereSession => vsphere::log_in(at, values).await,
    }
}

impl Session {
    /// A session that no server gave.
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

    /// The address of an endpoint that the connection does not give: from what the login said of this service.
    pub fn address(&self, service: &str) -> Option<Address> {
        match &self.proof {
            Proof::Keystone(token) => token.address(service),
            Proof::Aws(_) => aws::address(service, &self.region),
            _ => None,
        }
    }

    /// Adds to a request what shows who asks. `now` is Unix milliseconds by the server's clock; `service` is that
    /// of the endpoint.
    pub fn sign(&self, request: &mut Outgoing, service: &str, now: u64) {
        match &self.proof {
            Proof::None => {}
            Proof::Header(value) => request.headers.push(("authorization".to_owned(), value.clone())),
            Proof::Keystone(token) => token.sign(request),
            Proof::Aws(credentials) => credentials.sign(request, service, &self.region, now),
            Proof::Vsphere(cookie) => cookie.sign(request),
        }
    }

    /// The texts that must be in no message and no recording.
    pub fn secrets(&self) -> Vec<&str> {
        match &self.proof {
            Proof::None => Vec::new(),
            Proof::Header(value) => value.split(' ').skip(1).collect(),
            Proof::Keystone(token) => token.secrets(),
            Proof::Aws(credentials) => credentials.secrets(),
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
            format!("the Secret with the credentials has no value {key:?}"),
        )
    })
}

/// An endpoint that the connection must give.
fn endpoint<'a>(at: &At<'a>, name: &str) -> Result<&'a Address, Failure> {
    at.endpoints.get(name).ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            format!("the connection has no endpoint {name:?}, which its login needs"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tls;
    use std::time::Duration;

    async fn by(how: Login, chain: Value) -> Result<Session, Failure> {
        let own = Values::from([("token".to_owned(), "own".to_owned())]);
        let given = Values::from([("token".to_owned(), "theirs".to_owned())]);
        let transport = Transport::new(&Tls::default(), None).expect("a transport");
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
