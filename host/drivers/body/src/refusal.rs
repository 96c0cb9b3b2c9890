//! Whether a response says that nothing was done.

use polity_contract::driver::Endpoint;
use serde_json::Value;

use crate::whole;

/// Whether the API itself refused a change, so that nothing was done.
///
/// - A status 4xx other than 408 and 429 is a refusal. After 408 and 429 the server was too slow or too busy, and may have
///   begun the change nevertheless.
/// - So is a SOAP fault, at an endpoint that answers SOAP.
/// - So is an error whose code the endpoint lists for the class of the status: see [`polity_contract::driver::Refusals`]. The
///   whole body must be one complete document, and each code in it must be listed.
pub fn is_refusal(status: u16, body: &[u8], endpoint: &Endpoint) -> bool {
    match status {
        408 => false,
        400..=499 if status != 429 => true,
        500 if endpoint.soap => {
            let body = whole(body).unwrap_or_default();
            let fault = &body["Envelope"][0]["Body"][0]["Fault"];
            fault[0].get("faultstring").is_some()
        }
        _ => {
            let Some(refusals) = &endpoint.refusals else {
                return false;
            };
            let Some(body) = whole(body) else {
                return false;
            };
            let mut codes = Vec::new();
            let is_plain = collect(&body, refusals.code_at.split('.'), &mut codes);
            let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
            is_plain && refusals.refuse(status, &codes)
        }
    }
}

/// Adds the codes at a path. Returns false if an element on the way has no code, or something else in its place.
fn collect<'a>(value: &Value, path: impl Iterator<Item = &'a str> + Clone, codes: &mut Vec<String>) -> bool {
    if let Value::Array(elements) = value {
        return elements
            .iter()
            .all(|element| collect(element, path.clone(), codes));
    }
    let mut rest = path;
    if let Some(field) = rest.next() {
        return value.get(field).is_some_and(|below| collect(below, rest, codes));
    }
    // The text of an element of XML without attributes; in JSON a text or a number.
    let code = match value {
        Value::Object(fields) if fields.len() == 1 => fields.get("$text"),
        other => Some(other),
    };
    match code {
        Some(Value::String(code)) => codes.push(code.clone()),
        Some(Value::Number(code)) => codes.push(code.to_string()),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use polity_contract::driver::{Refusals, StatusClass};

    use super::*;

    const FAULT: &str = "<s:Envelope xmlns:s=\"s\"><s:Body><s:Fault><faultstring>no</faultstring></s:Fault></s:Body></s:Envelope>";
    /// As EC2 sends it: <https://github.com/galaxyproject/cloudman/issues/64>.
    const FULL: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code>\
         <Message>InternalError</Message></Error></Errors><RequestID>r</RequestID></Response>";

    fn plain() -> Endpoint {
        Endpoint::default()
    }

    fn soap() -> Endpoint {
        Endpoint {
            soap: true,
            ..plain()
        }
    }

    fn listing(path: &str) -> Endpoint {
        let refusals = Refusals::at(path)
            .codes(
                StatusClass::ServerError,
                ["InsufficientInstanceCapacity", "MacAddressGenerationFailure"],
            )
            .codes(StatusClass::ClientError, ["429"]);
        Endpoint {
            refusals: Some(refusals),
            ..plain()
        }
    }

    #[test]
    fn only_the_apis_own_refusal_is_one() {
        for (status, body, endpoint, refuses) in [
            (400, "", plain(), true),
            (404, "<html>", plain(), true),
            (408, "", plain(), false),
            (429, "", plain(), false),
            (500, FAULT, soap(), true),
            (500, FAULT, plain(), false),
            (500, "<html></html>", soap(), false),
            (502, "", soap(), false),
            (504, "", plain(), false),
            (200, "", plain(), false),
        ] {
            assert_eq!(
                is_refusal(status, body.as_bytes(), &endpoint),
                refuses,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn a_listed_code_refuses_with_its_class_of_status_and_never_with_what_a_server_in_between_answers() {
        let ec2 = listing("Response.Errors.Error.Code");
        for (status, refuses) in [
            (500, true),
            (503, true),
            (200, false),
            (302, false),
            (502, false),
            (504, false),
        ] {
            assert_eq!(is_refusal(status, FULL.as_bytes(), &ec2), refuses, "{status}");
            assert!(
                !is_refusal(status, FULL.as_bytes(), &plain()),
                "{status}: nothing is listed"
            );
        }
        let other = FULL.replace("InsufficientInstanceCapacity", "InternalError");
        let half = &FULL[..FULL.len() - "</Response>".len()];
        let two = FULL.replace("</Errors>", "<Error><Code>InternalError</Code></Error></Errors>");
        let no_code = FULL.replace("<Code>InsufficientInstanceCapacity</Code>", "");
        let not_plain = FULL.replace("<Code>", "<Code a=\"b\"><x/>");
        let page = format!(
            "<html><body>{}</body></html>",
            &FULL[FULL.find("<Response>").expect("its root")..]
        );
        let quoted = "503: InsufficientInstanceCapacity";
        let and_none = FULL.replace("</Errors>", "<Error/></Errors>");
        for body in [
            &*other,
            &*and_none,
            half,
            &*two,
            &*no_code,
            &*not_plain,
            &*page,
            quoted,
            "",
        ] {
            assert!(!is_refusal(500, body.as_bytes(), &ec2), "{body}");
        }
    }

    #[test]
    fn a_code_of_json_is_a_text_or_a_number() {
        let neutron = listing("NeutronError.type");
        let body =
            br#"{"NeutronError": {"type": "MacAddressGenerationFailure", "message": "", "detail": ""}}"#;
        assert!(is_refusal(503, body, &neutron));
        assert!(!is_refusal(429, body, &neutron), "it comes with 5xx");
        let nova = listing("overLimit.code");
        let body = br#"{"overLimit": {"code": 429, "message": "This request was rate-limited."}}"#;
        assert!(is_refusal(429, body, &nova));
        assert!(!is_refusal(429, br#"{"overLimit": {"code": [429, {}]}}"#, &nova));
        assert!(
            !is_refusal(429, br#"{"overLimit": {"code": 429"#, &nova),
            "cut off"
        );
    }
}
