//! Calls of methods over SOAP.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::fault::{self, Does, bounded};
use crate::moid::Moid;

/// The endpoint of all requests. Its address has no path: the driver adds [`PATH`].
pub(crate) const ENDPOINT: &str = "sdk";

/// The path of the API on every vCenter.
const PATH: &str = "sdk";

/// The version of the API in requests. vCenter 6.5 to 9 accept it.
pub(crate) const VERSION: &str = "6.5";

/// A call of a method.
pub(crate) struct Call<'a> {
    /// The name of the method: `FindByInventoryPath`.
    pub(crate) method: &'static str,
    /// The object of the method.
    pub(crate) this: &'a Moid,
    /// The parameters besides the object. They must be in the order of the API's schema, because vCenter accepts no other.
    pub(crate) parameters: Vec<Element>,
    /// The paths below the element of the response that are kept.
    pub(crate) keep: Vec<String>,
    /// The version of the API.
    pub(crate) version: &'static str,
}

impl<'a> Call<'a> {
    /// A call without parameters.
    pub(crate) fn new(method: &'static str, this: &'a Moid) -> Self {
        Call {
            method,
            this,
            parameters: Vec::new(),
            keep: Vec::new(),
            version: VERSION,
        }
    }

    /// With these parameters.
    pub(crate) fn with(mut self, parameters: impl IntoIterator<Item = Element>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Keeps these paths of the response.
    pub(crate) fn keep<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.keep.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Calls a method that only reads.
    pub(crate) async fn read(self, cx: &Context) -> Result<Value, Failure> {
        self.send(cx, Request::search(ENDPOINT), None, Does::Read).await
    }

    /// Calls a method that changes a resource of the owner.
    pub(crate) async fn change(self, cx: &Context, what: &Owned<'_>) -> Result<Value, Failure> {
        let request = Request::change("POST", ENDPOINT, what);
        self.send(cx, request, None, Does::Change).await
    }

    /// Calls the method that creates. The key of the create is sent as `operationID`, which vCenter stores in the task as
    /// `activationId`.
    pub(crate) async fn create(self, cx: &Context) -> Result<Value, Failure> {
        let request = Request::create("POST", ENDPOINT);
        self.send(cx, request, Some(cx.key()), Does::Change).await
    }

    async fn send(
        self,
        cx: &Context,
        request: Request,
        operation_id: Option<&str>,
        does: Does,
    ) -> Result<Value, Failure> {
        let response = format!("Envelope.Body.{}Response", self.method);
        let kept = self.keep.iter().map(|path| format!("{response}.{path}"));
        let kept: Vec<String> = kept.chain(["Envelope.Body.Fault".to_owned()]).collect();
        let (method, this) = (self.method, self.this);
        let request = request
            .path([PATH])
            .header("soapaction", format!("urn:vim25/{}", self.version))
            .keep(kept)
            .xml("text/xml; charset=utf-8", &self.envelope(operation_id));
        let seen = cx.send(request).await?;
        answer(&seen, method, this, does)
    }

    fn envelope(self, operation_id: Option<&str>) -> Element {
        let method = Element::new(self.method)
            .attribute("xmlns", "urn:vim25")
            .with(self.this.element("_this"))
            .with_all(self.parameters);
        let header =
            operation_id.map(|id| Element::new("soapenv:Header").with(Element::text("operationID", id)));
        Element::new("soapenv:Envelope")
            .attribute("xmlns:soapenv", "http://schemas.xmlsoap.org/soap/envelope/")
            .attribute("xmlns:xsd", "http://www.w3.org/2001/XMLSchema")
            .attribute("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance")
            .with_all(header)
            .with(Element::new("soapenv:Body").with(method))
    }
}

/// The element of the response. A fault is accepted with any status, the response of a method only with a 2xx status.
fn answer(seen: &Response, method: &str, this: &Moid, does: Does) -> Result<Value, Failure> {
    if let Some(fault) = tree::first(&seen.body, "Envelope/Body/Fault") {
        return Err(fault::of_soap(fault, &this.id, does));
    }
    let response = tree::first(&seen.body, &format!("Envelope/Body/{method}Response"));
    match response.filter(|_| seen.is_success()) {
        Some(response) => Ok(response.clone()),
        None => Err(no_soap(seen, method, does)),
    }
}

/// The failure of a response that does not come from the API, but from a server in front of it. After such a response a
/// change is always doubtful.
fn no_soap(seen: &Response, method: &str, does: Does) -> Failure {
    let code = match seen.status {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        408 | 504 => Code::DeadlineExceeded,
        404 | 429 | 500..=599 => Code::Unavailable,
        _ => Code::Internal,
    };
    let text = bounded(seen.text.as_deref().unwrap_or(""));
    let words = if text.is_empty() {
        "the body is not SOAP"
    } else {
        &text
    };
    Failure {
        retry_after: seen.retry_after(),
        doubtful: does == Does::Change,
        ..failure(
            code,
            format!(
                "the answer to {method} is not from vCenter: status {}: {words}",
                seen.status
            ),
        )
    }
}

/// The failure of a response that lacks a part which the API promises.
pub(crate) fn lacking(method: &str, what: &str, does: Does) -> Failure {
    Failure {
        doubtful: does == Does::Change,
        ..failure(Code::Internal, format!("the response to {method} has no {what}"))
    }
}

/// An element with a value of a named type.
pub(crate) fn typed(name: &'static str, kind: impl Into<String>) -> Element {
    Element::new(name).attribute("xsi:type", kind)
}

/// An element with a truth value.
pub(crate) fn flag(name: &'static str, value: bool) -> Element {
    Element::text(name, if value { "true" } else { "false" })
}
