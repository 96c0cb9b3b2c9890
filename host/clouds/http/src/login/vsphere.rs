//! Sessions of vCenter: a login by SOAP returns a cookie.
//!
//! The Secret has `username` and `password`.

use bytes::Bytes;
use http::Method;
use polity_core::contract::{Code, Failure};
use serde_json::{Value, json};

use super::{At, Proof, Session, Values, endpoint, secret, value};
use crate::address::Address;
use crate::transport::{Incoming, Outgoing};

/// The endpoint that a connection must give. Its address has no path: the login and the drivers add [`PATH`].
const SDK: &str = "sdk";
/// The path of the API on every vCenter.
pub(super) const PATH: &str = "sdk";
/// The first request to a server, which needs no session: it returns the server's identity and the names of its managers.
const CONTENT: &str = "<RetrieveServiceContent xmlns=\"urn:vim25\"><_this type=\"ServiceInstance\">ServiceInstance</_this></RetrieveServiceContent>";

/// The cookie of a session.
#[derive(Clone)]
pub(super) struct Cookie {
    cookie: String,
    manager: String,
}

impl Cookie {
    pub(super) fn sign(&self, request: &mut Outgoing) {
        request.headers.push(("cookie".to_owned(), self.cookie.clone()));
    }

    pub(super) fn secrets(&self) -> Vec<&str> {
        let value = self
            .cookie
            .split_once('=')
            .map_or(self.cookie.as_str(), |(_, value)| value);
        vec![value.trim_matches('"')]
    }

    /// Ends the session at the server. Sessions that stay open make a vCenter fail in the end.
    pub(super) async fn close(&self, at: &At<'_>) {
        let Ok(address) = endpoint(at, SDK) else {
            return;
        };
        let manager = escaped(&self.manager);
        let body =
            format!("<Logout xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{manager}</_this></Logout>");
        let mut request = soap(address, &body);
        self.sign(&mut request);
        // If this request is lost, the server ends the session itself after half an hour.
        let _ = at.transport.send(&request, at.until).await;
    }
}

pub(super) async fn log_in(at: &At<'_>, values: &Values) -> Result<Session, Failure> {
    let (user, password) = (value(values, "username")?, secret(values, "password")?);
    let address = endpoint(at, SDK)?;
    let sent = at.transport.send(&soap(address, CONTENT), at.until).await;
    let (content, _) = returned(
        &sent.map_err(|lost| lost.failure)?,
        "RetrieveServiceContentResponse",
    )?;
    let text = |path: &[&str]| {
        let found = path
            .iter()
            .try_fold(&content, |element, name| element.get(*name)?.get(0));
        found
            .and_then(|element| element["$text"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let manager = text(&["sessionManager"]);
    let identity = text(&["about", "instanceUuid"]);
    if manager.is_empty() || identity.is_empty() {
        return Err(Failure::new(
            Code::Unavailable,
            "the server does not say which vCenter it is: check that the endpoint sdk is a vCenter",
        ));
    }
    let body = format!(
        "<Login xmlns=\"urn:vim25\"><_this type=\"SessionManager\">{}</_this><userName>{}</userName><password>{}</password></Login>",
        escaped(&manager),
        escaped(user),
        escaped(password)
    );
    let sent = at.transport.send(&soap(address, &body), at.until).await;
    let (session, cookie) = returned(&sent.map_err(|lost| lost.failure)?, "LoginResponse")?;
    let cookie = cookie.ok_or_else(|| {
        Failure::new(
            Code::Unavailable,
            "vCenter accepted the login, but returned no cookie",
        )
    })?;
    let principal = session["userName"][0]["$text"]
        .as_str()
        .unwrap_or(user)
        .to_owned();
    let attributes = json!({
        "principal": principal, "vcenter": identity, "apiVersion": text(&["about", "apiVersion"]),
        "content": {
            "propertyCollector": text(&["propertyCollector"]), "searchIndex": text(&["searchIndex"]),
            "rootFolder": text(&["rootFolder"]), "taskManager": text(&["taskManager"]),
            "sessionManager": manager,
        },
    });
    Ok(Session {
        region: at.region.to_owned(),
        place: vec![identity],
        principal,
        attributes,
        expires: None,
        proof: Proof::Vsphere(Cookie { cookie, manager }),
    })
}

/// A SOAP request.
fn soap(address: &Address, body: &str) -> Outgoing {
    let envelope = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"
    );
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Outgoing {
        address: address.clone(),
        method: Method::POST,
        path: vec![PATH.to_owned()],
        query: Vec::new(),
        headers: vec![
            header("content-type", "text/xml; charset=utf-8"),
            header("soapaction", "\"urn:vim25/6.5\""),
        ],
        body: Bytes::from(envelope),
    }
}

/// The result of a SOAP call, and the cookie of its response.
fn returned(answer: &Incoming, call: &str) -> Result<(Value, Option<String>), Failure> {
    let body = polity_body::read(&answer.body, &["*"]).kept;
    let inside = &body["Envelope"][0]["Body"][0];
    let fault = &inside["Fault"][0];
    if !fault.is_null() {
        let said = fault["faultstring"][0]["$text"].as_str().unwrap_or("no reason");
        let code = match fault["detail"][0].get("InvalidLoginFault") {
            Some(_) => Code::Unauthenticated,
            None => Code::Unavailable,
        };
        return Err(Failure::new(
            code,
            format!("vCenter refuses: {}", said.chars().take(300).collect::<String>()),
        ));
    }
    let found = &inside[call][0]["returnval"][0];
    if answer.status != 200 || found.is_null() {
        let message = format!("vCenter answers with status {} and without {call}", answer.status);
        return Err(Failure::new(Code::Unavailable, message));
    }
    let cookie = answer
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next());
    Ok((found.clone(), cookie.map(str::to_owned)))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, inside: &str) -> Incoming {
        Incoming {
            status,
            headers: vec![(
                "set-cookie".into(),
                "vmware_soap_session=\"abc\"; Path=/; HttpOnly".into(),
            )],
            body: Bytes::from(format!(
                "<s:Envelope xmlns:s=\"x\"><s:Body>{inside}</s:Body></s:Envelope>"
            )),
        }
    }

    #[test]
    fn a_request_goes_to_the_path_of_the_api_like_those_of_drivers() {
        let address = Address::read("https://vcenter.example").expect("an address");
        let request = soap(&address, CONTENT);
        assert_eq!(request.address.path(&request.path), "/sdk");
    }

    #[test]
    fn a_login_gives_a_cookie_and_a_refusal_says_why() {
        let good = answer(
            200,
            "<LoginResponse><returnval><userName>VSPHERE\\u</userName></returnval></LoginResponse>",
        );
        let (session, cookie) = returned(&good, "LoginResponse").expect("a session");
        assert_eq!(session["userName"][0]["$text"], "VSPHERE\\u");
        let cookie = Cookie {
            cookie: cookie.expect("a cookie"),
            manager: String::new(),
        };
        assert_eq!(
            (cookie.cookie.as_str(), cookie.secrets()),
            ("vmware_soap_session=\"abc\"", vec!["abc"])
        );
        let bad = answer(
            500,
            "<s:Fault><faultstring>Cannot log in</faultstring><detail><InvalidLoginFault/></detail></s:Fault>",
        );
        let refused = returned(&bad, "LoginResponse").expect_err("a fault");
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (Code::Unauthenticated, "vCenter refuses: Cannot log in")
        );
        let page = Incoming {
            body: Bytes::from("<html></html>"),
            ..answer(200, "")
        };
        assert_eq!(
            returned(&page, "LoginResponse").expect_err("no SOAP").code,
            Code::Unavailable
        );
    }
}
