//! Whether a request that a driver marks as a read only reads, by the table of the catalogue.
//!
//! The host reads a body as its server would. Where servers read differently, such as a body of another type, a second action or an
//! entity of XML, the request is refused: a driver that means a read has no use for it.

use polity_clouds::catalogue::{ReadRequest, Reads, reads};
use polity_core::contract::driver::{Endpoint, Login};
use polity_sandbox::driver::{HttpRequest, Piece};

use crate::places::fields;

/// The declaration with which a document may begin.
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// Checks that a request only reads.
///
/// # Errors
/// The rule that the driver broke.
pub(crate) fn check(
    request: &HttpRequest,
    operation: &str,
    login: Login,
    endpoint: &Endpoint,
) -> Result<(), String> {
    let is_get = matches!(request.method.as_str(), "GET" | "HEAD");
    let body = text(&request.body).ok_or("it sends a sealed value with a read")?;
    if is_get && !body.is_empty() {
        return Err(format!("it sends a body with a {}", request.method));
    }
    let is_read = match reads(login, operation) {
        Reads::Resources => is_get,
        Reads::Listed(reads) => reads
            .iter()
            .any(|read| is_like(*read, request, is_get, &body, endpoint)),
    };
    if is_read {
        return Ok(());
    }
    let what = format!("{} /{}", request.method, request.path.join("/"));
    Err(format!(
        "it marks {what:.200} as a read, but {operation} has no such read with this login"
    ))
}

/// The whole body; `None` if a part of it is sealed.
fn text(body: &[Piece]) -> Option<String> {
    let texts = body.iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        Piece::Sealed(_) => None,
    });
    texts.collect()
}

fn is_like(read: ReadRequest, request: &HttpRequest, is_get: bool, body: &str, endpoint: &Endpoint) -> bool {
    let is_dynamic = endpoint.dynamic.is_some();
    let is_post = request.method == "POST" && request.query.is_empty() && !is_dynamic;
    match read {
        ReadRequest::Resource { service, path } => {
            is_get && !is_dynamic && endpoint.service == service && is_at(&request.path, path)
        }
        ReadRequest::Appliance(path) => is_get && is_dynamic && is_at(&request.path, path),
        ReadRequest::Action { service, action } => {
            let is_there = is_post && endpoint.service == service && request.path.is_empty();
            is_there
                && is_of_type(request, &["application/x-www-form-urlencoded"])
                && has_action(body, action)
        }
        ReadRequest::Method { path, method } => {
            let is_there = is_post && is_at(&request.path, path);
            is_there && is_of_type(request, &["text/xml"]) && calls(body, method)
        }
    }
}

fn is_at(segments: &[String], path: &[&str]) -> bool {
    let is_same = |(segment, known): (&String, &&str)| match *known {
        // A server may resolve dots and an encoded slash.
        "*" => !matches!(segment.as_str(), "" | "." | "..") && !segment.contains(['/', '\\']),
        known => segment == known,
    };
    segments.len() == path.len() && segments.iter().zip(path).all(is_same)
}

/// Whether the request has one content type, which is one of these, in UTF-8.
fn is_of_type(request: &HttpRequest, types: &[&str]) -> bool {
    let mut all = request.headers.iter().filter(|(name, _)| name == "content-type");
    let (Some((_, kind)), None) = (all.next(), all.next()) else {
        return false;
    };
    let kind = kind.strip_suffix("; charset=utf-8").unwrap_or(kind);
    types.contains(&kind)
}

/// Whether a form has this action, and no other.
fn has_action(form: &str, action: &str) -> bool {
    // Nothing that a server could take for the end of a field.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%+=&*".contains(&byte);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    let fields = fields(form);
    let mut actions = fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("action"));
    form.bytes().all(is_plain)
        && fields.iter().all(|(name, _)| name.bytes().all(is_name))
        && actions
            .next()
            .is_some_and(|(name, value)| name == "Action" && value == action)
        && actions.next().is_none()
}

/// Whether an envelope calls this method, and nothing else.
fn calls(envelope: &str, method: &str) -> bool {
    let document = envelope.strip_prefix(DECLARATION).unwrap_or(envelope);
    // No document type, comment, CDATA or instruction: the drivers write none, and servers differ about them.
    if document.contains("<!") || document.contains("<?") {
        return false;
    }
    let Some(tree) = polity_body::whole(document.as_bytes()) else {
        return false;
    };
    let mut inside = &tree;
    for name in ["Envelope", "Body", method] {
        let mut elements = inside.as_object().into_iter().flatten();
        let mut elements = elements.by_ref().filter(|(field, _)| !field.starts_with('@'));
        let (Some((field, all)), None) = (elements.next(), elements.next()) else {
            return false;
        };
        match all.as_array().map(Vec::as_slice) {
            Some([only]) if field == name => inside = only,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_sandbox::driver::Effect;

    const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
    const XML: &str = "text/xml; charset=utf-8";

    fn request(method: &str, path: &[&str], kind: &str, body: &[&str]) -> HttpRequest {
        let header = |kind: &str| ("content-type".to_owned(), kind.to_owned());
        HttpRequest {
            effect: Effect::Read,
            endpoint: "api".to_owned(),
            address: None,
            method: method.to_owned(),
            path: path.iter().map(|segment| (*segment).to_owned()).collect(),
            query: Vec::new(),
            headers: (!kind.is_empty()).then(|| header(kind)).into_iter().collect(),
            body: body.iter().map(|text| Piece::Text((*text).to_owned())).collect(),
            keep: Vec::new(),
        }
    }

    fn endpoint(read: ReadRequest) -> Endpoint {
        match read {
            ReadRequest::Resource { service, .. } | ReadRequest::Action { service, .. } => Endpoint {
                service: service.to_owned(),
                ..Endpoint::default()
            },
            ReadRequest::Appliance(_) => Endpoint {
                dynamic: Some(5_000),
                ..Endpoint::default()
            },
            ReadRequest::Method { .. } => Endpoint {
                soap: true,
                ..Endpoint::default()
            },
        }
    }

    /// The request of a row, as a driver sends it.
    fn like(read: ReadRequest) -> HttpRequest {
        let path = |path: &[&'static str]| -> Vec<&str> {
            path.iter()
                .map(|name| if *name == "*" { "id-1" } else { name })
                .collect()
        };
        match read {
            ReadRequest::Resource { path: at, .. } | ReadRequest::Appliance(at) => {
                request("GET", &path(at), "", &[])
            }
            ReadRequest::Action { action, .. } => {
                let form = format!("Action={action}&Version=2016-11-15&Filter.1.Name=tag%3Apolity");
                request("POST", &[], FORM, &[&form])
            }
            ReadRequest::Method { path: at, method } => {
                let body = format!(
                    "{DECLARATION}{}",
                    envelope(&format!("<{method} xmlns=\"urn:vim25\"/>"))
                );
                request("POST", &path(at), XML, &[&body])
            }
        }
    }

    fn envelope(inside: &str) -> String {
        format!(
            "<e:Envelope xmlns:e=\"http://schemas.xmlsoap.org/soap/envelope/\"><e:Body>{inside}</e:Body></e:Envelope>"
        )
    }

    /// The operations of the shipped drivers, with their logins.
    fn operations() -> Vec<(Login, &'static str)> {
        use polity_clouds::catalogue::{machine, router, task, vm};
        let none = std::time::Duration::ZERO;
        let of = |login, operations: Vec<polity_clouds::catalogue::Named>| {
            operations.into_iter().map(move |(name, _)| (login, name))
        };
        of(Login::AwsSigv4, machine::operations(none))
            .chain(of(Login::Keystone, router::operations(none)))
            .chain(of(Login::Keystone, task::operations()))
            .chain(of(Login::VsphereSession, vm::operations(none)))
            .chain(of(Login::VsphereSession, task::operations()))
            .collect()
    }

    fn listed(login: Login, operation: &str) -> &'static [ReadRequest] {
        match reads(login, operation) {
            Reads::Listed(reads) => reads,
            Reads::Resources => panic!("{login:?} lists nothing"),
        }
    }

    #[test]
    fn each_operation_sends_the_reads_of_its_row_and_nothing_else_leaves_the_host_as_a_read() {
        let all = operations();
        let every: Vec<ReadRequest> = all
            .iter()
            .flat_map(|(login, name)| listed(*login, name))
            .copied()
            .collect();
        assert!(every.len() > 40, "{}", every.len());
        for (login, operation) in all {
            let own = listed(login, operation);
            for read in &every {
                let sent = check(&like(*read), operation, login, &endpoint(*read));
                // A server named `detail` is the list of servers with their details.
                let is_own = own.contains(read) || own.iter().any(|own| is_more(*own, *read));
                assert_eq!(sent.is_ok(), is_own, "{login:?} {operation} {read:?}: {sent:?}");
            }
            for read in own {
                for (why, endpoint, request) in changed(*read) {
                    let sent = check(&request, operation, login, &endpoint);
                    assert!(sent.is_err(), "{operation} {read:?}: {why}");
                }
            }
        }
    }

    fn is_more(own: ReadRequest, read: ReadRequest) -> bool {
        match (own, read) {
            (
                ReadRequest::Resource {
                    service,
                    path: ["v2.1", "servers", "*"],
                },
                ReadRequest::Resource {
                    service: other,
                    path: ["v2.1", "servers", "detail"],
                },
            ) => service == other,
            _ => false,
        }
    }

    /// Requests that are nearly a read: each changes something at some server, or could.
    fn changed(read: ReadRequest) -> Vec<(&'static str, Endpoint, HttpRequest)> {
        let (at, good) = (endpoint(read), like(read));
        let with = |change: fn(&mut HttpRequest)| {
            let mut request = good.clone();
            change(&mut request);
            request
        };
        let with_body = |body: &[&str]| HttpRequest {
            body: body.iter().map(|text| Piece::Text((*text).to_owned())).collect(),
            ..good.clone()
        };
        let other = Endpoint {
            service: "sts".to_owned(),
            ..at.clone()
        };
        let dynamic = Endpoint {
            dynamic: Some(1),
            ..at.clone()
        };
        let mut all = vec![
            (
                "a path above",
                at.clone(),
                with(|request| request.path.push("..".to_owned())),
            ),
            (
                "another path",
                at.clone(),
                with(|request| request.path.extend(["os-interface".to_owned(), "1".to_owned()])),
            ),
            (
                "a PUT",
                at.clone(),
                with(|request| request.method = "PUT".to_owned()),
            ),
        ];
        let query = (
            "a query",
            at.clone(),
            with(|request| request.query.push(("Action".into(), "TerminateInstances".into()))),
        );
        let typed = (
            "another type",
            at.clone(),
            with(|request| {
                request
                    .headers
                    .iter_mut()
                    .for_each(|(_, kind)| *kind = "multipart/form-data".into())
            }),
        );
        let charset = (
            "another charset",
            at.clone(),
            with(|request| {
                request
                    .headers
                    .iter_mut()
                    .for_each(|(_, kind)| kind.push_str("; charset=utf-7"))
            }),
        );
        let untyped = ("no type", at.clone(), with(|request| request.headers.clear()));
        let get = (
            "a GET with a body",
            at.clone(),
            with(|request| request.method = "GET".to_owned()),
        );
        match read {
            ReadRequest::Resource { .. } | ReadRequest::Appliance(_) => {
                all.push((
                    "a POST",
                    at.clone(),
                    with(|request| request.method = "POST".to_owned()),
                ));
                all.push(("a body", at.clone(), with_body(&["Action=TerminateInstances"])));
                let (far, near) = (
                    Endpoint {
                        dynamic: None,
                        ..other
                    },
                    dynamic,
                );
                all.push((
                    "at another kind of endpoint",
                    if at.dynamic.is_some() { far } else { near },
                    good.clone(),
                ));
            }
            ReadRequest::Action { action, .. } => {
                all.extend([
                    query,
                    typed,
                    charset,
                    untyped,
                    get,
                    ("at sts", other, good.clone()),
                    ("at an appliance", dynamic, good.clone()),
                ]);
                let own = format!("Action={action}");
                for (why, body) in [
                    ("another action", "Action=TerminateInstances".to_owned()),
                    ("two actions", format!("{own}&Action=TerminateInstances")),
                    (
                        "two actions, one in small letters",
                        format!("{own}&action=TerminateInstances"),
                    ),
                    (
                        "two actions, one encoded",
                        format!("{own}&%41ction=TerminateInstances"),
                    ),
                    (
                        "a second separator",
                        format!("{own}&Version=1;Action=TerminateInstances"),
                    ),
                    ("a line", format!("{own}&Version=1\r\nAction=TerminateInstances")),
                    ("a name with a blank", format!("{own}&Action+=TerminateInstances")),
                    ("none", "Version=2016-11-15".to_owned()),
                    ("nothing", String::new()),
                ] {
                    all.push((why, at.clone(), with_body(&[&body])));
                }
                all.push((
                    "two pieces",
                    at.clone(),
                    with_body(&[&own, "&Action=TerminateInstances"]),
                ));
                all.push((
                    "a value in two pieces",
                    at.clone(),
                    with_body(&["Action=Terminate", "Instances"]),
                ));
            }
            ReadRequest::Method { method, .. } => {
                all.extend([
                    query,
                    typed,
                    charset,
                    untyped,
                    get,
                    ("at an appliance", dynamic, good.clone()),
                ]);
                let (own, off) = (format!("<{method}/>"), "<PowerOffVM_Task/>");
                let other_type = format!("<!DOCTYPE a [<!ENTITY b \"{off}\">]>{}", envelope(&own));
                for (why, body) in [
                    ("another method", envelope(off)),
                    ("two methods", envelope(&format!("{own}{off}"))),
                    ("a method twice", envelope(&format!("{own}{own}"))),
                    (
                        "two bodies",
                        format!("<Envelope><Body>{own}</Body><Body>{off}</Body></Envelope>"),
                    ),
                    (
                        "a header",
                        format!("<Envelope><Header>{off}</Header><Body>{own}</Body></Envelope>"),
                    ),
                    ("two envelopes", format!("{}{}", envelope(&own), envelope(off))),
                    ("a document type", other_type),
                    ("a comment", envelope(&format!("<!-- -->{own}"))),
                    ("an instruction", envelope(&format!("<?php ?>{own}"))),
                    (
                        "another encoding",
                        format!("<?xml version=\"1.0\" encoding=\"UTF-7\"?>{}", envelope(&own)),
                    ),
                    ("a text", envelope(&format!("{own}+ADw-PowerOffVM_Task/+AD4-"))),
                    ("no envelope", own.clone()),
                    ("nothing", String::new()),
                ] {
                    all.push((why, at.clone(), with_body(&[&body])));
                }
            }
        }
        all
    }

    #[test]
    fn where_no_service_lists_reads_a_get_and_a_head_are_reads_and_a_post_is_none() {
        let plain = Endpoint::default();
        for login in [Login::None, Login::Basic, Login::Bearer] {
            for (method, is_read) in [("GET", true), ("HEAD", true), ("POST", false), ("DELETE", false)] {
                for endpoint in [
                    &plain,
                    &Endpoint {
                        dynamic: Some(1),
                        ..plain.clone()
                    },
                ] {
                    let sent = check(
                        &request(method, &["any"], "", &[]),
                        "machine.status",
                        login,
                        endpoint,
                    );
                    assert_eq!(sent.is_ok(), is_read, "{login:?} {method}");
                }
            }
            assert!(check(&request("GET", &[], "", &["x"]), "machine.status", login, &plain).is_err());
        }
    }
}
