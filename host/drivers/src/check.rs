//! Which requests a driver may make.

use std::net::IpAddr;

use http::Method;
use polity_core::contract::driver::{Endpoint, Manifest};
use polity_http::{Address, Outgoing};
use polity_sandbox::driver::{Call, Effect, Exchange, HttpRequest, Piece};
use serde_json::Value;

use crate::connection::Connection;
use crate::reads;
use crate::seal::LARGEST;

/// The headers that a driver may set.
const HEADERS: [&str; 5] = [
    "accept",
    "content-type",
    "soapaction",
    "if-match",
    "if-none-match",
];
/// The prefixes of further headers that a driver may set.
const HEADERS_OF: [&str; 2] = ["x-openstack-", "openstack-"];
/// The most paths that a request keeps, and the most bytes of each.
const KEPT: usize = 256;

/// A request that the host may send, with what the check found out about it.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) endpoint: Endpoint,
    pub(crate) method: Method,
    pub(crate) effect: Effect,
    /// For a dynamic endpoint: the address, which a response contained.
    pub(crate) dynamic: Option<Address>,
}

/// Checks a request of a call. The error says which rule the driver broke.
pub(crate) fn check(
    request: &HttpRequest,
    manifest: &Manifest,
    connection: &Connection,
    call: &Call,
) -> Result<Checked, String> {
    let HttpRequest { endpoint: name, .. } = request;
    let endpoint = manifest
        .endpoints
        .get(name)
        .ok_or_else(|| format!("it names an endpoint {name:?} that its manifest does not have"))?;
    let method = match request.method.as_str() {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        other => return Err(format!("it uses the method {other:?}, which is not allowed")),
    };
    let changes = !matches!(request.effect, Effect::Read);
    if changes && matches!(method, Method::GET | Method::HEAD) {
        return Err(format!("it marks a {method} as a change or a create"));
    }
    for (header, _) in &request.headers {
        let is_known =
            HEADERS.contains(&header.as_str()) || HEADERS_OF.iter().any(|known| header.starts_with(known));
        if !is_known {
            return Err(format!(
                "it sets the header {header:?}, which a driver may not set"
            ));
        }
    }
    let size: usize = request
        .body
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Sealed(_) => 0,
        })
        .sum();
    if size > LARGEST {
        return Err(format!("a body has {size} bytes; the limit is {LARGEST}"));
    }
    if !changes {
        reads::check(request, &call.operation, manifest.login, endpoint)?;
    }
    if request.keep.len() > KEPT || request.keep.iter().any(|path| path.len() > KEPT) {
        return Err(format!(
            "it keeps more than {KEPT} paths of a response, or a path of more than {KEPT} bytes"
        ));
    }
    let dynamic = match (&request.address, endpoint.dynamic) {
        (None, None) => None,
        (Some(text), Some(port)) => Some(dynamic(text, port, connection, &call.exchanges)?),
        (Some(_), None) => {
            return Err(format!(
                "it names an address for the endpoint {name}, which is not dynamic"
            ));
        }
        (None, Some(_)) => {
            return Err(format!(
                "it names no address for the endpoint {name}, which is dynamic"
            ));
        }
    };
    Ok(Checked {
        endpoint: endpoint.clone(),
        method,
        effect: request.effect,
        dynamic,
    })
}

/// The address of a request to a dynamic endpoint. A response of this operation must contain the address, and a network of
/// the connection too.
fn dynamic(
    text: &str,
    port: u16,
    connection: &Connection,
    exchanges: &[Exchange],
) -> Result<Address, String> {
    let ip: IpAddr = text
        .parse()
        .map_err(|_| format!("it names {text:?}, which is no IP address"))?;
    let quoted = format!("\"{text}\"");
    let stands_in = |exchange: &Exchange| {
        let body = exchange.response.as_ref().ok().map(|response| &response.body);
        // The host wrote the body, so an address is in it as it is. Few bodies have to be read.
        let body = body.filter(|body| body.contains(&quoted));
        let body = body.and_then(|body| serde_json::from_str::<Value>(body).ok());
        body.is_some_and(|body| has(&body, text))
    };
    if !exchanges.iter().any(stands_in) {
        return Err(format!(
            "it names {text}, which no response of this operation contains"
        ));
    }
    if !connection.reach.allows_of_response(ip) {
        return Err(format!(
            "{text} is in none of the networks of connection {}: see spec.networks",
            connection.name
        ));
    }
    Address::of_ip(ip, port).map_err(|e| e.to_string())
}

fn has(value: &Value, text: &str) -> bool {
    match value {
        Value::String(known) => known == text,
        Value::Array(elements) => elements.iter().any(|element| has(element, text)),
        Value::Object(fields) => fields.values().any(|field| has(field, text)),
        _ => false,
    }
}

/// The request that is sent, still without its body and without its token or signature.
pub(crate) fn outgoing(request: &HttpRequest, checked: &Checked, address: Address) -> Outgoing {
    Outgoing {
        address,
        method: checked.method.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.clone(),
        body: bytes::Bytes::new(),
    }
}
