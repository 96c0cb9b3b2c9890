//! Logins at OpenStack's Keystone, version 3: a token for a project, with the catalogue of services.
//!
//! The Secret has `applicationCredentialID` and `applicationCredentialSecret`; or `username`, `password`,
//! `projectName` or `projectID`, and `userDomainName`, `projectDomainName` (both `Default` if missing).

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use polity_core::contract::{Code, Failure};
use serde_json::{Value, json};

use super::{At, Proof, Session, Values, endpoint, value};
use crate::address::Address;
use crate::transport::Outgoing;

/// The endpoint that a connection must give.
const IDENTITY: &str = "identity";
/// The domain of a user or project if the Secret names none.
const DOMAIN: &str = "Default";

/// A token.
#[derive(Clone)]
pub(super) struct Token {
    token: String,
    /// The addresses of services in the region, by type.
    services: BTreeMap<String, Address>,
}

impl Token {
    pub(super) fn sign(&self, request: &mut Outgoing) {
        request
            .headers
            .push(("x-auth-token".to_owned(), self.token.clone()));
    }

    pub(super) fn address(&self, service: &str) -> Option<Address> {
        self.services.get(service).cloned()
    }

    pub(super) fn secrets(&self) -> Vec<&str> {
        vec![&self.token]
    }
}

pub(super) async fn log_in(at: &At<'_>, values: &Values) -> Result<Session, Failure> {
    let request = Outgoing {
        address: endpoint(at, IDENTITY)?.clone(),
        method: Method::POST,
        path: vec!["auth".to_owned(), "tokens".to_owned()],
        query: Vec::new(),
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
        ],
        body: Bytes::from(credentials(values)?.to_string()),
    };
    let sent = at.transport.send(&request, at.until).await;
    let answer = sent.map_err(|lost| lost.failure)?;
    let code = match answer.status {
        201 | 200 => None,
        401 | 403 | 404 => Some(Code::Unauthenticated),
        400 => Some(Code::InvalidArgument),
        _ => Some(Code::Unavailable),
    };
    if let Some(code) = code {
        let body = polity_body::read(&answer.body, &["error.message"]);
        let said = body.kept["error"]["message"]
            .as_str()
            .unwrap_or("")
            .chars()
            .take(300);
        let message = format!("Keystone answers {}: {}", answer.status, said.collect::<String>());
        return Err(Failure::new(code, message));
    }
    let token = answer.header("x-subject-token").unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    session(at.region, token, &body["token"])
}

/// The body of the request for a token.
fn credentials(values: &Values) -> Result<Value, Failure> {
    if values.contains_key("applicationCredentialID") {
        let id = value(values, "applicationCredentialID")?;
        let secret = value(values, "applicationCredentialSecret")?;
        let credential = json!({"id": id, "secret": secret});
        return Ok(json!({"auth": {"identity": {
            "methods": ["application_credential"], "application_credential": credential,
        }}}));
    }
    let domain = |key: &str| values.get(key).map_or(DOMAIN, String::as_str);
    let user = json!({
        "name": value(values, "username")?, "password": value(values, "password")?,
        "domain": {"name": domain("userDomainName")},
    });
    let project = match values.get("projectID") {
        Some(id) => json!({"id": id}),
        None => {
            json!({"name": value(values, "projectName")?, "domain": {"name": domain("projectDomainName")}})
        }
    };
    Ok(json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": project},
    }}))
}

/// The session of a token, from Keystone's answer.
fn session(region: &str, token: String, said: &Value) -> Result<Session, Failure> {
    let incomplete = |what: &str| Failure::new(Code::Unavailable, format!("Keystone's token {what}"));
    let project = said["project"]["id"]
        .as_str()
        .ok_or_else(|| incomplete("has no project"))?;
    let user = said["user"]["id"]
        .as_str()
        .ok_or_else(|| incomplete("has no user"))?;
    if token.is_empty() {
        return Err(incomplete("is empty"));
    }
    let expires = said["expires_at"]
        .as_str()
        .and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let expires = expires.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    let attributes = json!({
        "principal": user, "project": project, "region": region,
        "projectName": said["project"]["name"], "userName": said["user"]["name"],
    });
    Ok(Session {
        region: region.to_owned(),
        place: vec![project.to_owned(), region.to_owned()],
        principal: user.to_owned(),
        attributes,
        expires,
        proof: Proof::Keystone(Token {
            token,
            services: services(region, &said["catalog"]),
        }),
    })
}

/// The public addresses of services in this region, or in all regions if `region` is empty.
fn services(region: &str, catalogue: &Value) -> BTreeMap<String, Address> {
    let mut services = BTreeMap::new();
    for service in catalogue.as_array().into_iter().flatten() {
        let endpoints = service["endpoints"].as_array().into_iter().flatten();
        let fits = |endpoint: &&Value| {
            endpoint["interface"] == "public" && (region.is_empty() || endpoint["region_id"] == region)
        };
        let address = endpoints
            .filter(fits)
            .find_map(|endpoint| Address::read(endpoint["url"].as_str()?).ok());
        if let (Some(kind), Some(address)) = (service["type"].as_str(), address) {
            services.entry(kind.to_owned()).or_insert(address);
        }
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn a_login_is_by_application_credential_or_by_password() {
        let by_credential = values(&[
            ("applicationCredentialID", "i"),
            ("applicationCredentialSecret", "s"),
        ]);
        let auth = credentials(&by_credential).expect("complete");
        assert_eq!(
            auth["auth"]["identity"]["application_credential"],
            json!({"id": "i", "secret": "s"})
        );
        let by_password = values(&[("username", "u"), ("password", "p"), ("projectName", "x")]);
        let auth = credentials(&by_password).expect("complete");
        assert_eq!(
            auth["auth"]["scope"]["project"],
            json!({"name": "x", "domain": {"name": "Default"}})
        );
        let lacking = credentials(&values(&[("username", "u")])).expect_err("no password");
        assert!(lacking.message.contains("\"password\""), "{lacking}");
    }

    #[test]
    fn a_token_names_its_project_and_the_services_of_its_region() {
        let endpoint = |region: &str, interface: &str, url: &str| json!({"region_id": region, "interface": interface, "url": url});
        let said = json!({
            "project": {"id": "p"}, "user": {"id": "u"}, "expires_at": "2026-11-23T06:00:00.000000Z",
            "catalog": [{"type": "compute", "endpoints": [
                endpoint("a", "internal", "http://inside"), endpoint("b", "public", "http://b"), endpoint("a", "public", "http://a/v2.1"),
            ]}],
        });
        let session = session("a", "t".into(), &said).expect("complete");
        assert_eq!(
            (session.place.join("/"), session.expires),
            ("p/a".into(), Some(1_795_413_600_000))
        );
        let address = session.address("compute").map(|address| address.as_text());
        assert_eq!(address.as_deref(), Some("http://a/v2.1"));
        assert_eq!(session.address("image"), None);
    }
}
