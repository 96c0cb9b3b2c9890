//! Logins at OpenStack's Keystone, version 3: a token for a project, with the catalogue of services.
//!
//! The Secret has `applicationCredentialID` and `applicationCredentialSecret`; or `username`, `password`,
//! `projectName` or `projectID`, and `userDomainName`, `projectDomainName` (both `Default` if missing).

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use polity_core::contract::{Code, Failure};
use serde_json::{Value, json};

use super::{At, Proof, Session, Values, endpoint, secret, value};
use crate::address::Address;
use crate::transport::Outgoing;

/// The endpoint that a connection must give.
const IDENTITY: &str = "identity";
/// The domain of a user or project if the Secret names none.
const DOMAIN: &str = "Default";

/// The version of Keystone's API.
const VERSION: &str = "v3";
/// The interfaces of endpoints, in the order in which they are tried. `public` is what OpenStack's clients take (keystoneauth).
const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

/// A token.
#[derive(Clone)]
pub(super) struct Token {
    token: String,
    project: String,
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

    pub(super) fn root(&self, address: Address) -> Address {
        root(address, &self.project)
    }

    pub(super) fn secrets(&self) -> Vec<&str> {
        vec![&self.token]
    }
}

pub(super) async fn log_in(at: &At<'_>, values: &Values) -> Result<Session, Failure> {
    let identity = root(endpoint(at, IDENTITY)?.clone(), "");
    let request = Outgoing {
        address: identity.clone(),
        method: Method::POST,
        path: [VERSION, "auth", "tokens"].map(str::to_owned).into(),
        query: Vec::new(),
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
        ],
        body: Bytes::from(credentials(values)?.to_string()),
    };
    let sent = at.transport.send(&request, at.until).await;
    let answer = sent.map_err(|lost| lost.failure)?;
    if ![200, 201].contains(&answer.status) {
        return Err(refused(answer.status, &answer.body));
    }
    let token = answer.header("x-subject-token").unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    session(at.region, &identity, token, &body["token"])
}

/// The failure of a login that was not answered with a token. Only Keystone itself can say that it refuses the credentials, or a
/// server in front of it that takes them in its place (401).
fn refused(status: u16, body: &[u8]) -> Failure {
    let body = polity_body::read(body, &["error.message"]);
    let said = body.kept["error"]["message"].as_str();
    let code = match status {
        401 => Code::Unauthenticated,
        403 | 404 if said.is_some() => Code::Unauthenticated,
        400 if said.is_some() => Code::InvalidArgument,
        _ => Code::Unavailable,
    };
    let said: String = said.unwrap_or("").chars().take(300).collect();
    Failure::new(code, format!("Keystone answers {status}: {said}"))
}

/// The body of the request for a token.
fn credentials(values: &Values) -> Result<Value, Failure> {
    if values.contains_key("applicationCredentialID") {
        let id = value(values, "applicationCredentialID")?;
        let proof = secret(values, "applicationCredentialSecret")?;
        let credential = json!({"id": id, "secret": proof});
        return Ok(json!({"auth": {"identity": {
            "methods": ["application_credential"], "application_credential": credential,
        }}}));
    }
    let domain = |key: &str| values.get(key).map_or(DOMAIN, String::as_str);
    let user = json!({
        "name": value(values, "username")?, "password": secret(values, "password")?,
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
fn session(region: &str, identity: &Address, token: String, said: &Value) -> Result<Session, Failure> {
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
            project: project.to_owned(),
            services: services(region, identity, &said["catalog"]),
        }),
    })
}

/// The addresses of services in this region, or in all regions if `region` is empty.
fn services(region: &str, identity: &Address, catalogue: &Value) -> BTreeMap<String, Address> {
    let mut services = BTreeMap::new();
    let interface = interface(region, identity, catalogue);
    for service in catalogue.as_array().into_iter().flatten() {
        let address = addresses(region, interface, service).next();
        if let (Some(kind), Some(address)) = (service["type"].as_str(), address) {
            services.entry(kind.to_owned()).or_insert(address);
        }
    }
    services
}

/// The interface as which the catalogue lists the address of Keystone that the connection gives, so that a host which is given
/// an address inside of the cloud finds those of the other services too; `public` if it lists no such address.
fn interface(region: &str, identity: &Address, catalogue: &Value) -> &'static str {
    let is_keystone = |service: &&Value| service["type"] == IDENTITY;
    let keystone = catalogue.as_array().into_iter().flatten().find(is_keystone);
    let lists = |interface: &&str| {
        let mut known = keystone
            .into_iter()
            .flat_map(|service| addresses(region, interface, service));
        known.any(|address| root(address, "") == *identity)
    };
    INTERFACES.into_iter().find(lists).unwrap_or(INTERFACES[0])
}

fn addresses<'a>(
    region: &'a str,
    interface: &'a str,
    service: &'a Value,
) -> impl Iterator<Item = Address> + 'a {
    let endpoints = service["endpoints"].as_array().into_iter().flatten();
    let fits = move |endpoint: &&Value| {
        endpoint["interface"] == interface && (region.is_empty() || endpoint["region_id"] == region)
    };
    endpoints
        .filter(fits)
        .filter_map(|endpoint| Address::read(endpoint["url"].as_str()?).ok())
}

/// The root of a service. Catalogues list services with or without a version, and older ones with the project behind it
/// (`https://nova.example/compute/v2.1/PROJECT`). keystoneauth cuts them off in the same way (`discover.py`).
fn root(address: Address, project: &str) -> Address {
    let without = |address: Address, is: &dyn Fn(&str) -> bool| match address.parent() {
        Some((parent, last)) if is(last) => parent,
        _ => address,
    };
    let is_project = |last: &str| {
        let last = last.strip_prefix("AUTH_").unwrap_or(last);
        !project.is_empty() && last == project
    };
    let is_version = |last: &str| {
        let number = last.strip_prefix('v').unwrap_or("");
        let mut digits = number.bytes();
        digits.next().is_some_and(|first| first.is_ascii_digit())
            && digits.all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    without(without(address, &is_project), &is_version)
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
            ("applicationCredentialSecret", "s-of-eight"),
        ]);
        let auth = credentials(&by_credential).expect("complete");
        assert_eq!(
            auth["auth"]["identity"]["application_credential"],
            json!({"id": "i", "secret": "s-of-eight"})
        );
        let by_password = values(&[
            ("username", "u"),
            ("password", "p-of-eight"),
            ("projectName", "x"),
        ]);
        let auth = credentials(&by_password).expect("complete");
        assert_eq!(
            auth["auth"]["scope"]["project"],
            json!({"name": "x", "domain": {"name": "Default"}})
        );
        let lacking = credentials(&values(&[("username", "u")])).expect_err("no password");
        assert!(lacking.message.contains("\"password\""), "{lacking}");
        let short = credentials(&values(&[("username", "u"), ("password", "1234567")])).expect_err("short");
        assert!(
            short.message.contains("8 bytes") && !short.message.contains("1234567"),
            "{short}"
        );
    }

    fn address(url: &str) -> Address {
        Address::read(url).expect("an address")
    }

    fn endpoint(region: &str, interface: &str, url: &str) -> Value {
        json!({"region_id": region, "interface": interface, "url": url})
    }

    fn session_at(identity: &str) -> Session {
        let said = json!({
            "project": {"id": "p"}, "user": {"id": "u"}, "expires_at": "2026-11-23T06:00:00.000000Z",
            "catalog": [
                {"type": "compute", "endpoints": [
                    endpoint("a", "internal", "http://inside"), endpoint("b", "public", "http://b"),
                    endpoint("a", "public", "http://a/v2.1"),
                ]},
                {"type": "identity", "endpoints": [
                    endpoint("a", "public", "https://id.example/v3"), endpoint("a", "internal", "http://10.0.0.1:5000"),
                ]},
            ],
        });
        session("a", &root(address(identity), ""), "t".into(), &said).expect("complete")
    }

    /// The table of Keystone in `host/drivers/ERRORS.md`.
    #[test]
    fn an_error_of_keystone_is_what_the_page_says() {
        let page = include_str!("../../../../drivers/ERRORS.md");
        let section = page
            .split("\n## ")
            .find(|section| section.starts_with("Keystone\n"));
        let lines = section.expect("a section").lines();
        let rows = lines.filter(|line| line.starts_with("| `") || line.starts_with("| (none)"));
        let mut count = 0;
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [title, status, becomes, "none", "", _] = cells[..] else {
                panic!("{row}")
            };
            let status: u16 = status.parse().expect("a status");
            let body = match title {
                "(none)" => "<html><body>no backend</body></html>".to_owned(),
                title => {
                    let title = title.trim_matches('`');
                    json!({"error": {"code": status, "message": "why", "title": title}}).to_string()
                }
            };
            let failure = refused(status, body.as_bytes());
            assert_eq!(
                (json!(failure.code).as_str(), failure.retry_after),
                (Some(becomes.trim_matches('`')), None),
                "{row}"
            );
            count += 1;
        }
        assert!(count > 12, "{count}");
    }

    #[test]
    fn a_token_names_its_project_and_the_services_of_its_region() {
        let session = session_at("https://elsewhere.example/v3");
        assert_eq!(
            (session.place.join("/"), session.expires),
            ("p/a".into(), Some(1_795_413_600_000))
        );
        assert_eq!(session.address("compute"), Some(address("http://a/v2.1")));
        assert_eq!(session.address("image"), None);
    }

    #[test]
    fn a_host_that_is_given_an_address_inside_of_the_cloud_finds_the_others_there() {
        let compute = |identity| {
            session_at(identity)
                .address("compute")
                .map(|address| address.as_text())
        };
        assert_eq!(
            compute("http://10.0.0.1:5000/v3").as_deref(),
            Some("http://inside")
        );
        assert_eq!(compute("https://id.example/v3").as_deref(), Some("http://a/v2.1"));
    }

    #[test]
    fn the_root_of_a_service_has_neither_a_version_nor_a_project() {
        for (listed, expected) in [
            ("https://x/compute/v2.1", "https://x/compute"),
            ("https://x:8774/v2.1/p", "https://x:8774"),
            ("https://x/v1/AUTH_p", "https://x"),
            ("https://x:9696", "https://x:9696"),
            ("https://x/image/v2/", "https://x/image"),
            ("https://x/volume", "https://x/volume"),
            ("https://x/v2/other", "https://x/v2/other"),
        ] {
            assert_eq!(
                session_at("https://y").root(address(listed)),
                address(expected),
                "{listed}"
            );
        }
    }
}
