//! A test kit: a test plays the server, and the kit checks the rules of the host.
//!
//! ```
//! # use polity_driver_sdk::prelude::*;
//! # struct Shelf;
//! # impl Driver for Shelf {
//! #     fn manifest() -> Manifest { Manifest::new("shelf", "0.1.0", Login::None).endpoint("api", Endpoint::default()) }
//! #     async fn perform(cx: &Context) -> Result<Value, Failure> {
//! #         let seen = cx.send(Request::get("api").path(["images", cx.argument("image")]).keep(["status"])).await?;
//! #         Ok(json!({"status": seen.body["status"]}))
//! #     }
//! #     async fn resolve(_: &Context, _: &Entry) -> Finding { Finding::None }
//! # }
//! use polity_driver_sdk::test::{Play, Reply};
//!
//! let mut play = Play::new(|request| match request.path.join("/").as_str() {
//!     "images/ubuntu" => Reply::json(200, json!({"status": "active", "size": 5})),
//!     _ => Reply::json(404, json!({})),
//! });
//! let answer = play.perform::<Shelf>("image.get", json!({"image": "ubuntu"}));
//! assert_eq!(answer.unwrap(), json!({"status": "active"}));
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::bindings::polity::driver::types::{Exchange, HttpResponse};
use crate::{
    Call, Code, Driver, Effect, Entry, Failure, Finding, HttpRequest, Outcome, Part, Piece, Sealed, Task,
    Transform, step,
};

/// The most steps of an operation. The host has the same limit.
const STEPS: usize = 32;

/// The response of a server.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Why there is no response.
    lost: Option<Failure>,
}

impl Reply {
    /// A body of any kind.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Reply {
            status,
            headers: Vec::new(),
            body: body.into(),
            lost: None,
        }
    }

    /// A JSON body.
    pub fn json(status: u16, body: Value) -> Self {
        Reply::new(status, body.to_string())
    }

    /// No response. If the request is a change, the operation ends with this failure.
    pub fn lost(failure: Failure) -> Self {
        Reply {
            lost: Some(failure),
            ..Reply::new(0, "")
        }
    }

    /// With a header, in small letters.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The name of a code, as policies and the pages about errors have it: `not-found`.
pub fn name_of(code: Code) -> String {
    let mut name = String::new();
    for character in format!("{code:?}").trim_start_matches("Code::").chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

/// An object whose operations a test performs, and the server that answers them.
pub struct Play<S> {
    server: S,
    /// The owner of the operations. The default is `owner-1`.
    pub owner: String,
    /// The tenant. The default is `tenant-1`.
    pub tenant: String,
    /// The key of creates. The default is `key-1`.
    pub key: String,
    /// The present time, in milliseconds since 1970-01-01T00:00:00Z.
    pub now: u64,
    /// The configuration of the connection.
    pub config: Value,
    /// The attributes of the login.
    pub session: Value,
    /// The values of sealed arguments, by dotted path.
    pub secrets: BTreeMap<String, String>,
    /// The requests that were sent, in order.
    pub sent: Vec<HttpRequest>,
    /// How many requests each step of the last operation sent together.
    pub together: Vec<usize>,
    /// For each change of the last operation, whether the server refused it.
    refused: Vec<bool>,
}

impl<S: FnMut(&HttpRequest) -> Reply> Play<S> {
    /// A new object in front of this server.
    pub fn new(server: S) -> Self {
        Play {
            server,
            owner: "owner-1".to_owned(),
            tenant: "tenant-1".to_owned(),
            key: "key-1".to_owned(),
            now: 1_790_000_000_000,
            config: serde_json::json!({}),
            session: serde_json::json!({}),
            secrets: BTreeMap::new(),
            sent: Vec::new(),
            together: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Performs an operation. As in the host, a create is first prepared with another key.
    ///
    /// # Panics
    /// The driver breaks a rule of the host.
    pub fn perform<D: Driver>(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        match self.run::<D>(operation, Task::Perform(arguments.to_string())) {
            Outcome::Answered(answer) => {
                answer.map(|answer| serde_json::from_str(&answer).expect("an answer is JSON"))
            }
            other => panic!("{operation} ended as {other:?}"),
        }
    }

    /// Resolves a create.
    ///
    /// # Panics
    /// The driver breaks a rule of the host: it sends a request that is not a read.
    pub fn resolve<D: Driver>(&mut self, operation: &str, entry: Entry) -> Finding {
        match self.run::<D>(operation, Task::Resolve(entry)) {
            Outcome::Resolved(finding) => finding,
            other => panic!("{operation} was resolved as {other:?}"),
        }
    }

    /// The entry of a create with this intent and the key of this play. It is a minute old.
    pub fn entry(&self, intent: &str) -> Entry {
        Entry {
            intent: intent.to_owned(),
            key: self.key.clone(),
            stamp: 1,
            place: Vec::new(),
            since: self.now - 60_000,
            waited: 60_000,
        }
    }

    /// The changes and creates among the requests that were sent so far.
    pub fn changes(&self) -> impl Iterator<Item = &HttpRequest> {
        self.sent.iter().filter(|request| request.effect != Effect::Read)
    }

    /// Whether the host would know that the last operation, which ended with this failure, changed nothing: it sent no change, or
    /// only one, which the server refused, and the driver does not doubt that.
    pub fn changed_nothing(&self, failure: &Failure) -> bool {
        match self.refused[..] {
            [] => true,
            [is_refused] => is_refused && !failure.doubtful,
            _ => false,
        }
    }

    /// Checks that other owners cannot change what belongs to this object. Performs the operations in `names`, whose arguments
    /// name resources of this object, as another owner: of the same tenant, and of another tenant. Operations that cannot name
    /// such a resource are in `others`. Every operation of the driver must be in one of the two lists.
    ///
    /// # Panics
    /// An operation sends a request that changes or creates something, or an operation of the driver is in neither list.
    pub fn is_left_alone_by_others<D: Driver>(&mut self, names: &[(&str, Value)], others: &[&str]) {
        let implements = D::manifest().implements;
        let implemented: BTreeSet<&str> = implements
            .iter()
            .flat_map(|service| &service.operations)
            .map(String::as_str)
            .collect();
        let named = names.iter().map(|(operation, _)| *operation);
        let given: BTreeSet<&str> = named.chain(others.iter().copied()).collect();
        assert_eq!(given, implemented, "the operations of the driver");
        let (owner, tenant) = (self.owner.clone(), self.tenant.clone());
        for tenant in [tenant.clone(), format!("another-{tenant}")] {
            for (operation, arguments) in names {
                (self.owner, self.tenant) = (format!("another-{owner}"), tenant.clone());
                let before = self.sent.len();
                let ended = self.perform::<D>(operation, arguments.clone());
                let is_change = |request: &&HttpRequest| request.effect != Effect::Read;
                let change = self.sent[before..].iter().find(is_change);
                assert!(
                    change.is_none(),
                    "{operation} by another owner in {tenant} sends {change:?} and ends with {ended:?}"
                );
            }
        }
        (self.owner, self.tenant) = (owner, tenant);
    }

    fn run<D: Driver>(&mut self, operation: &str, task: Task) -> Outcome {
        let endpoints = D::manifest().endpoints;
        self.refused.clear();
        self.together.clear();
        let mut exchanges: Vec<Exchange> = Vec::new();
        let mut created = false;
        for _ in 0..STEPS {
            let so_far = exchanges.clone();
            let call = |key: &str| Call {
                operation: operation.to_owned(),
                task: task.clone(),
                owner: self.owner.clone(),
                tenant: self.tenant.clone(),
                key: key.to_owned(),
                now: self.now,
                config: self.config.to_string(),
                session: self.session.to_string(),
                exchanges: so_far.clone(),
            };
            let outcome = step::<D>(call(&self.key));
            assert_eq!(outcome, step::<D>(call(&self.key)), "a step is a pure function");
            let Outcome::Send(requests) = outcome else {
                return outcome;
            };
            assert!(
                !requests.is_empty(),
                "{operation} returned neither a request nor an answer: the driver awaits something other than a request"
            );
            if requests.iter().any(|request| request.effect != Effect::Read) {
                assert_eq!(requests.len(), 1, "a change or create must be sent alone");
                assert!(matches!(task, Task::Perform(_)), "resolve may send only reads");
            }
            self.together.push(requests.len());
            for request in requests {
                if request.effect == Effect::Create {
                    assert!(!created, "an operation may send only one create");
                    created = true;
                    let prepared = step::<D>(call("00000000-0000-0000-0000-000000000000"));
                    let ready = matches!(&prepared, Outcome::Send(ready) if ready.len() == 1 && ready[0].effect == Effect::Create);
                    assert!(
                        ready,
                        "with the key of a prepared create, the driver must send the create too: {prepared:?}"
                    );
                }
                let endpoint = endpoints.get(&request.endpoint);
                let endpoint =
                    endpoint.unwrap_or_else(|| panic!("the manifest has no endpoint {}", request.endpoint));
                assert_eq!(
                    endpoint.dynamic.is_some(),
                    request.address.is_some(),
                    "{request:?}"
                );
                self.sent.push(request.clone());
                let reply = (self.server)(&request);
                if request.effect != Effect::Read {
                    let is_refused = polity_body::is_refusal(reply.status, &reply.body, endpoint);
                    self.refused.push(is_refused && reply.lost.is_none());
                }
                let response = match reply.lost {
                    Some(failure) if request.effect != Effect::Read => {
                        return Outcome::Answered(Err(failure));
                    }
                    Some(failure) => Err(failure),
                    None => {
                        let body = polity_body::read(&reply.body, &request.keep);
                        Ok(HttpResponse {
                            status: reply.status,
                            headers: reply.headers,
                            body: body.kept.to_string(),
                            text: body.text,
                        })
                    }
                };
                exchanges.push(Exchange { request, response });
            }
        }
        panic!("{operation} takes more than {STEPS} steps");
    }

    /// The body of a request as the server gets it, with the values of [`secrets`](Play::secrets) in it. For an argument that is not
    /// sealed and replaces a placeholder it has `argument(NAME)`.
    ///
    /// # Panics
    /// The body names a sealed argument that is not in `secrets`.
    pub fn body(&self, request: &HttpRequest) -> String {
        let value = |path: &str| {
            let value = self.secrets.get(path);
            value
                .unwrap_or_else(|| panic!("no value for the sealed argument {path}: add it to secrets"))
                .clone()
        };
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Argument(path) => value(path),
            Part::Replaced(replaced) => {
                let pairs = replaced.needle.split(' ').zip(replaced.by.split(' '));
                pairs.fold(value(&replaced.argument), |text, (placeholder, by)| {
                    let plain = || format!("argument({by})");
                    text.replace(placeholder, &self.secrets.get(by).cloned().unwrap_or_else(plain))
                })
            }
        };
        let sealed = |sealed: &Sealed| {
            let text: String = sealed.parts.iter().map(part).collect();
            sealed.then.iter().fold(text, |text, transform| match transform {
                // Not encoded, so that a test can read the text.
                Transform::Base64 => format!("base64({text})"),
                Transform::Json | Transform::Xml | Transform::Form => text,
            })
        };
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Sealed(of) => sealed(of),
        };
        request.body.iter().map(piece).collect()
    }
}
