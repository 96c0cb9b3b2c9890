//! The operation as its driver sees it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Call, Code, Effect, Failure, HttpRequest, Owned, Part, Request, Sealed, Task, Text, failure, owned,
};

/// The longest wait that a server can ask for, in seconds.
const LONGEST_WAIT: u64 = 3_600;

/// The operation as its driver sees it: its arguments, and the requests that it can send.
pub struct Context {
    call: Call,
    arguments: Value,
    config: Value,
    session: Value,
    /// For each exchange, whether this step has used it already. A second change needs a response of its own.
    used: Vec<Cell<bool>>,
    /// The reads without a response, each once, and the changes without a response, in the order in which they were awaited.
    pub(crate) reads: RefCell<Vec<HttpRequest>>,
    pub(crate) changes: RefCell<Vec<HttpRequest>>,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The kept parts of the body: see [`Request::keep`].
    pub body: Value,
    /// The beginning of a body that is neither JSON nor XML.
    pub text: Option<String>,
    headers: Vec<(String, String)>,
}

impl Response {
    /// A header, by its name in small letters. Only some headers reach a driver.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// How long the server asks to wait, in milliseconds: the seconds of `Retry-After`, at most an hour. A date in
    /// `Retry-After` is not read.
    pub fn retry_after(&self) -> Option<u64> {
        let seconds: u64 = self.header("retry-after")?.trim().parse().ok()?;
        Some(seconds.min(LONGEST_WAIT) * 1_000)
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Context {
    pub(crate) fn new(call: Call) -> Result<Self, Failure> {
        let read = |text: &str, what: &str| {
            serde_json::from_str(text).map_err(|e| failure(Code::Internal, format!("the {what}: {e}")))
        };
        let arguments = match &call.task {
            Task::Perform(arguments) => read(arguments, "arguments are no JSON")?,
            Task::Resolve(_) => Value::Null,
        };
        Ok(Context {
            arguments,
            config: read(&call.config, "configuration is no JSON")?,
            session: read(&call.session, "session is no JSON")?,
            used: call.exchanges.iter().map(|_| Cell::new(false)).collect(),
            reads: RefCell::default(),
            changes: RefCell::default(),
            call,
        })
    }

    pub(crate) fn task(&self) -> &Task {
        &self.call.task
    }

    /// The name of the operation: `vm.get`.
    pub fn operation(&self) -> &str {
        &self.call.operation
    }

    /// The arguments, checked against the catalogue's schema. An object stands in the place of each sealed argument.
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// The arguments as a type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.arguments).map_err(|e| failure(Code::InvalidArgument, e.to_string()))
    }

    /// A text among the arguments, by its dotted path; empty if the argument is missing.
    pub fn argument(&self, path: &str) -> &str {
        tree_at(&self.arguments, path)
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// Whether an argument is present and not null.
    pub fn has(&self, path: &str) -> bool {
        tree_at(&self.arguments, path).is_some_and(|value| !value.is_null())
    }

    /// The value of a sealed argument, which the host puts into the request; `None` if the argument is missing.
    pub fn sealed(&self, path: &str) -> Option<Text> {
        self.has(path).then(|| {
            Text::Sealed(Sealed {
                parts: vec![Part::Argument(path.to_owned())],
                then: Vec::new(),
            })
        })
    }

    /// The uid of the owner: the object for which the operation is performed.
    pub fn owner(&self) -> &str {
        &self.call.owner
    }

    /// The tenant of the owner.
    pub fn tenant(&self) -> &str {
        &self.call.tenant
    }

    /// The key of a create, with which the driver marks the created object.
    pub fn key(&self) -> &str {
        &self.call.key
    }

    /// The present time: milliseconds since 1970-01-01T00:00:00Z.
    pub fn now(&self) -> u64 {
        self.call.now
    }

    /// The configuration of the connection.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.config)
            .map_err(|e| failure(Code::InvalidArgument, format!("configuration: {e}")))
    }

    /// The attributes of the login: principal, account, project, region.
    pub fn session(&self) -> &Value {
        &self.session
    }

    /// The id of a resource that may be changed. `stamp` is the owner in the marks of the resource, as read from the cloud.
    /// Fails if the owner of the operation is another.
    pub fn owned<'a>(&self, id: &'a str, stamp: Option<&str>) -> Result<Owned<'a>, Failure> {
        owned::check(id, stamp, self.owner())
    }

    /// The id of an orphan that may be changed: a resource of another owner, which the argument `owner` names. `stamp` is the
    /// owner in the marks of the resource, if these name the tenant of the operation. Only operations on orphans have that
    /// argument; the caller has made sure that the owner is gone.
    pub fn orphan<'a>(&self, id: &'a str, stamp: Option<&str>) -> Result<Owned<'a>, Failure> {
        owned::check(id, stamp, self.argument("owner"))
    }

    /// Sends a request when the returned future is awaited. Equal reads share one response. A response of any
    /// status is `Ok`; a failure means that there is no response.
    pub fn send(&self, request: Request) -> Sending<'_> {
        Sending {
            cx: self,
            request: request.done(),
            registered: false,
        }
    }

    /// The response to a request, if there is one already. Otherwise registers the request.
    fn response(&self, request: &HttpRequest, register: bool) -> Option<Result<Response, Failure>> {
        let is_read = request.effect == Effect::Read;
        let found = self
            .call
            .exchanges
            .iter()
            .zip(&self.used)
            .find(|(exchange, used)| (is_read || !used.get()) && exchange.request == *request);
        let Some((exchange, used)) = found else {
            if register {
                let mut waiting = if is_read { &self.reads } else { &self.changes }.borrow_mut();
                if !(is_read && waiting.contains(request)) {
                    waiting.push(request.clone());
                }
            }
            return None;
        };
        used.set(true);
        Some(match &exchange.response {
            Err(failure) => Err(failure.clone()),
            Ok(response) => serde_json::from_str(&response.body)
                .map(|body| Response {
                    status: response.status,
                    body,
                    text: response.text.clone(),
                    headers: response.headers.clone(),
                })
                .map_err(|e| failure(Code::Internal, format!("the response is no JSON: {e}"))),
        })
    }
}

fn tree_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, field| value.get(field))
}

/// A request on its way.
#[must_use = "nothing is sent until this is awaited"]
pub struct Sending<'a> {
    cx: &'a Context,
    request: HttpRequest,
    registered: bool,
}

impl Future for Sending<'_> {
    type Output = Result<Response, Failure>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
        let register = !std::mem::replace(&mut self.registered, true);
        match self.cx.response(&self.request, register) {
            Some(response) => Poll::Ready(response),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_for_seconds_and_for_at_most_an_hour() {
        for (said, expected) in [
            (Some(" 7 "), Some(7_000)),
            (Some("99999999999"), Some(3_600_000)),
            (Some("Mon, 23 Nov 2026 12:00:30 GMT"), None),
            (Some("-1"), None),
            (None, None),
        ] {
            let headers = said.map(|said| ("retry-after".to_owned(), said.to_owned()));
            let response = Response {
                status: 503,
                body: Value::Null,
                text: None,
                headers: headers.into_iter().collect(),
            };
            assert_eq!(response.retry_after(), expected, "{said:?}");
        }
    }
}
