//! One operation: the host calls the driver with the exchanges so far, again and again, until the driver has an answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use polity_body::is_refusal;
use polity_clouds::catalogue::SealedPlace;
use polity_clouds::{AT_ONCE, REDACTED, REPEATS, Redactor, compute, offload};
use polity_core::contract::{Code, Failure};
use polity_core::time::millis;
use polity_http::login::Session;
use polity_http::{Budget, Incoming, Lost, Outgoing, Rate, Throttle, Transport};
use polity_kube_rules::time::rfc3339;
use polity_sandbox::driver::{
    Call, DriverLimits, Effect as Does, Exchange, Finding, HttpRequest, HttpResponse, Outcome, Piece, Task,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::check::{self, Checked};
use crate::effect::{self, Sent};
use crate::exchanged::{Part, STEPS};
use crate::places;
use crate::reached::{Reached, pause};
use crate::seal::{self, Given, Stage, Values, Wrong};

/// The most requests of one operation.
const REQUESTS: usize = 64;
/// The most bytes of all responses of an operation together.
pub(crate) const ANSWERED: usize = 16 << 20;
/// The most reads of an operation that are on their way at the same time.
const AT_A_TIME: usize = 8;
/// The most bytes of a rule that a driver broke. A rule may name what a driver chose.
const RULE: usize = 2_000;
/// How often a read is sent at most. A change is sent once.
const READS: u32 = 3;
/// The pause before a read is sent again.
const PAUSE: Duration = Duration::from_millis(200);
/// The headers of a response that a driver sees.
const SEEN: [&str; 10] = [
    "retry-after",
    "etag",
    "location",
    "content-type",
    "date",
    "x-openstack-request-id",
    "x-compute-request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "operationid",
];

/// The end of an operation.
#[derive(Debug)]
pub(crate) enum End {
    /// The answer.
    Answered(Value),
    /// The request that creates is next. The exchanges are the reads before it.
    Ready(Vec<Exchange>),
    /// A finding about an earlier create, and whether every read got a complete response.
    Found(Finding, bool),
}

/// An operation under way.
pub(crate) struct Operation {
    pub(crate) reached: Arc<Reached>,
    pub(crate) session: Arc<Session>,
    pub(crate) tenant: String,
    /// The tenant queue in which its requests wait, and that pays for the work.
    pub(crate) queue: Arc<str>,
    pub(crate) part: Part,
    /// Whether the operation changes something, by the catalogue.
    pub(crate) changes: bool,
    /// No change is sent from then on.
    pub(crate) change_by: Instant,
    pub(crate) until: Instant,
    /// The values of sealed arguments.
    pub(crate) values: Arc<Values>,
    /// The most bytes of a sealed text, and the fields in which it may be sent.
    pub(crate) largest: usize,
    pub(crate) places: &'static [SealedPlace],
    /// Scrubs the secrets of the session, and everything that is sent for a sealed value.
    pub(crate) redactor: Redactor,
    /// Scrubs everything that is sent for a sealed value.
    pub(crate) sealed: Redactor,
    pub(crate) sent: Sent,
    /// Whether every read got a complete response.
    pub(crate) is_complete: bool,
    /// Whether a secret was taken out of what the driver keeps of a response: what is not there may be hidden.
    pub(crate) has_hidden: bool,
    pub(crate) requests: usize,
    pub(crate) budget: Budget,
    /// The last request, if it has no response: it creates and is ready to be sent, or its response was lost.
    pub(crate) last: Option<HttpRequest>,
    /// Whether a server has asked for fewer requests.
    pub(crate) is_throttled: AtomicBool,
    /// Whether the driver broke its contract.
    pub(crate) has_broken: AtomicBool,
}

/// A request that is ready to be sent, and with sealed texts the redactors that have learned them.
struct Ready {
    outgoing: Outgoing,
    checked: Checked,
    learned: Option<(Redactor, Redactor)>,
}

/// Why a request is not sent.
enum Unsendable {
    /// The driver broke this rule.
    Rule(String),
    Failed(Failure),
}

impl From<Wrong> for Unsendable {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Rule(rule) => Unsendable::Rule(rule),
            Wrong::TooLarge(message) => Unsendable::Failed(Failure::new(Code::InvalidArgument, message)),
        }
    }
}

impl Operation {
    /// Calls the driver until the operation ends. `call` has the exchanges so far; each new exchange is added to it.
    pub(crate) async fn run(&mut self, call: &mut Arc<Call>) -> Result<End, Failure> {
        for _ in 0..STEPS {
            match self.step(call).await? {
                Outcome::Answered(answer) => return self.answered(&call.operation, answer).await,
                Outcome::Resolved(finding) if self.part == Part::Resolve => {
                    if let Finding::Found(found) = &finding {
                        self.allowed(&call.operation, found.clone()).await?;
                    }
                    return Ok(End::Found(finding, self.is_complete && !self.has_hidden));
                }
                Outcome::Resolved(_) => {
                    return Err(self.broken("it returned a finding, but the call performs an operation"));
                }
                Outcome::Send(requests) => {
                    if let Some(end) = self.send(call, requests).await? {
                        return Ok(end);
                    }
                }
            }
        }
        Err(self.broken(&format!("it has no answer after {STEPS} steps")))
    }

    /// One call of the driver, on a thread that may compute.
    async fn step(&self, call: &Arc<Call>) -> Result<Outcome, Failure> {
        let (driver, asked) = (self.reached.driver.clone(), call.clone());
        let step = move || {
            let began = std::time::Instant::now();
            let stepped = driver.step(&asked, &DriverLimits::default());
            (stepped, began.elapsed())
        };
        let (stepped, took) = compute(&self.queue, step).await;
        self.reached.spends(&call.operation, stepped.fuel, took);
        stepped.outcome.map_err(|fault| self.broken(&fault.to_string()))
    }

    async fn answered(
        &self,
        operation: &str,
        answer: Result<String, polity_sandbox::driver::Failure>,
    ) -> Result<End, Failure> {
        if self.part == Part::Resolve {
            return Err(self.broken("it returned an answer, but the call resolves an entry"));
        }
        match answer {
            Ok(answer) => {
                let answer = self.allowed(operation, answer).await?;
                let is_for_nothing = self.changes && self.sent == Sent::Nothing;
                if self.has_hidden && (is_for_nothing || says_that_nothing_is_there(&answer)) {
                    return Err(self.hidden());
                }
                Ok(End::Answered(answer))
            }
            Err(said) => {
                let failure = effect::failure(said, self.sent);
                if self.has_hidden && failure.code == Code::NotFound {
                    return Err(self.hidden());
                }
                let is_throttled = self.is_throttled.load(Ordering::Relaxed);
                let until = self.reached.throttled_until().filter(|_| is_throttled);
                Err(match until {
                    Some(until) => Failure {
                        message: format!("{} (Throttled until {})", failure.message, rfc3339(until)),
                        ..failure
                    },
                    None => failure,
                })
            }
        }
    }

    /// The failure of a conclusion from a response with holes.
    fn hidden(&self) -> Failure {
        Failure {
            effect: self.sent.effect(),
            ..Failure::new(Code::Unavailable, REPEATS)
        }
    }

    /// Checks an answer against the catalogue's schema, on which policies rely.
    async fn allowed(&self, operation: &str, answer: String) -> Result<Value, Failure> {
        if answer.contains(REDACTED) {
            return Err(self.hidden());
        }
        let (reached, operation) = (self.reached.clone(), operation.to_owned());
        let bytes = answer.len();
        let check = move || {
            let answer: Value =
                serde_json::from_str(&answer).map_err(|e| format!("its answer is no JSON: {e}"))?;
            let schema = reached.answers.get(&operation);
            match schema.and_then(|schema| schema.first_error(&answer)) {
                None => Ok(answer),
                Some(cause) => Err(format!(
                    "its answer to {operation} does not match the catalogue: {cause}"
                )),
            }
        };
        let checked: Result<Value, String> = offload(&self.queue, bytes, check).await;
        checked.map_err(|rule| self.broken(&rule))
    }

    /// Sends the requests of a step. Returns the end of the operation if the request that creates is next.
    async fn send(
        &mut self,
        call: &mut Arc<Call>,
        requests: Vec<HttpRequest>,
    ) -> Result<Option<End>, Failure> {
        self.requests += requests.len();
        if requests.is_empty() {
            return Err(self.broken("it returned neither a request nor an answer"));
        }
        if self.requests > REQUESTS {
            return Err(self.broken(&format!("it sends more than {REQUESTS} requests")));
        }
        let changes = requests.iter().any(|request| request.effect != Does::Read);
        if !changes {
            let mut ready = Vec::new();
            for request in &requests {
                ready.push(self.outgoing(request, call).await?);
            }
            let reads: Vec<_> = ready
                .iter()
                .map(|(outgoing, checked)| self.read(outgoing, checked))
                .collect();
            let sent: Vec<_> = futures::stream::iter(reads).buffered(AT_A_TIME).collect().await;
            for (request, response) in requests.into_iter().zip(sent) {
                let response = self.take_in(&request, response).await?;
                Arc::make_mut(call).exchanges.push(Exchange { request, response });
            }
            return Ok(None);
        }
        let Ok([request]) = <[HttpRequest; 1]>::try_from(requests) else {
            return Err(self.broken("it sends a change together with another request"));
        };
        match (request.effect, self.part) {
            (Does::Create, Part::Prepare) => {
                // Everything that could be wrong with the create is found while nothing is in doubt, and nothing is written.
                let (outgoing, checked) = self.outgoing(&request, call).await?;
                if self.has_hidden {
                    return Err(self.hidden());
                }
                let (class, rate) = self.class(&outgoing, checked.effect);
                let (pace, longest) = (&self.reached.pace, self.longest(self.change_by));
                if !pace.would_come(&class, rate, &self.queue, longest) {
                    return Err(self.no_turn(&outgoing, &class));
                }
                self.last = Some(request);
                return Ok(Some(End::Ready(call.exchanges.clone())));
            }
            (Does::Create, Part::Commit) if self.sent == Sent::Nothing => {}
            (Does::Change, Part::Perform) if self.changes => {}
            (Does::Create, _) => {
                return Err(
                    self.broken("it sends a create in a call that must not create, or a second create")
                );
            }
            _ => return Err(self.broken("it sends a change in a call that must not change anything")),
        }
        let response = match self.change(&request, call).await {
            Ok(response) => response,
            Err(failure) => {
                self.last = Some(request);
                return Err(failure);
            }
        };
        let response = self.take_in(&request, Ok(response)).await?;
        Arc::make_mut(call).exchanges.push(Exchange { request, response });
        Ok(None)
    }

    /// Sends a read, more than once if necessary. The driver decides what a lost response means.
    async fn read(&self, outgoing: &Outgoing, checked: &Checked) -> Result<Incoming, Lost> {
        let (mut tries, mut was_throttled) = (0, false);
        loop {
            tries += 1;
            let sent = self.paced(outgoing, checked, self.until, was_throttled).await;
            let is_late = Instant::now() + PAUSE >= self.until;
            was_throttled |= matches!(&sent, Ok(response) if matches!(response.status, 429 | 503));
            let again = match &sent {
                Err(lost) => lost.failure.code == Code::Unavailable,
                Ok(response) => matches!(response.status, 429 | 502..=504),
            };
            if !again || tries >= READS || is_late {
                return sent;
            }
            tokio::time::sleep(PAUSE * tries).await;
        }
    }

    /// Sends a change once, unless it is too late to begin.
    async fn change(&mut self, request: &HttpRequest, call: &Arc<Call>) -> Result<Incoming, Failure> {
        let (outgoing, checked) = self.outgoing(request, call).await?;
        let sent = self.paced(&outgoing, &checked, self.change_by, false).await;
        match sent {
            Ok(response) => {
                // The body of a success is not read for it.
                let bytes = match response.status {
                    200..=299 => 0,
                    _ => response.body.len(),
                };
                let endpoint = checked.endpoint;
                let refused = move || (is_refusal(response.status, &response.body, &endpoint), response);
                let (is_refused, response) = offload(&self.queue, bytes, refused).await;
                self.sent = self.sent.and(is_refused);
                Ok(response)
            }
            Err(lost) => {
                if lost.sent {
                    self.sent = self.sent.and(false);
                }
                Err(Failure {
                    effect: self.sent.effect(),
                    message: self.redactor.scrub(&lost.failure.message),
                    ..lost.failure
                })
            }
        }
    }

    /// A request as it is sent, with its signature. The redactor learns all sealed texts in it.
    async fn outgoing(
        &mut self,
        request: &HttpRequest,
        call: &Arc<Call>,
    ) -> Result<(Outgoing, Checked), Failure> {
        let is_sealed = seal::sealed(&request.body).next().is_some();
        let texts = request.body.iter().map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Sealed(_) => 0,
        });
        let bytes: usize = texts.sum();
        // Values are spelled in many ways. For an address, the responses before it are read.
        let is_large = is_sealed && !self.values.is_empty() || request.address.is_some();
        let bytes = if is_large { AT_ONCE + 1 } else { bytes };
        let ready = self.readying(request.clone(), call.clone(), is_sealed);
        let ready = offload(&self.queue, bytes, ready).await;
        let ready = ready.map_err(|why| match why {
            Unsendable::Rule(rule) => self.broken(&rule),
            Unsendable::Failed(failure) => Failure {
                effect: self.sent.effect(),
                ..failure
            },
        })?;
        if let Some((redactor, sealed)) = ready.learned {
            (self.redactor, self.sealed) = (redactor, sealed);
        }
        Ok((ready.outgoing, ready.checked))
    }

    /// The work of [`Operation::outgoing`]. With sealed texts it also returns the redactors that have learned them.
    fn readying(
        &self,
        request: HttpRequest,
        call: Arc<Call>,
        is_sealed: bool,
    ) -> impl FnOnce() -> Result<Ready, Unsendable> + Send + 'static {
        let (reached, session, values) = (self.reached.clone(), self.session.clone(), self.values.clone());
        let (largest, places, tenant) = (self.largest, self.places, self.tenant.clone());
        let (mut redactor, mut sealed) = (self.redactor.clone(), self.sealed.clone());
        move || {
            let Reached {
                manifest, connection, ..
            } = &*reached;
            let checked = check::check(&request, manifest, connection, &call)
                .and_then(|checked| places::check(&request, &call.operation, places).map(|()| checked))
                .map_err(Unsendable::Rule)?;
            let (address, is_own) = match &checked.dynamic {
                Some(address) => (address.clone(), false),
                None => {
                    let address = address(&reached, &session, &request.endpoint, &checked.endpoint.service);
                    (address.map_err(Unsendable::Failed)?, true)
                }
            };
            if is_sealed {
                no_value_is_a_name(&values, &request, &call).map_err(Unsendable::Failed)?;
            }
            let mut outgoing = check::outgoing(&request, &checked, address);
            let mut sent = Redactor::default();
            let arguments = arguments(&call, is_sealed);
            let given = Given {
                values: &values,
                arguments: &arguments,
            };
            let body = seal::body(&request.body, &given, largest, &mut |text, stage| match stage {
                Stage::Whole => sent.learn(text),
                Stage::Transformed => sent.learn_text(text),
            });
            outgoing.body = body?.into();
            // The credentials of the cloud go only to the cloud itself, not to an appliance that runs in it.
            if is_own {
                session.sign(&mut outgoing, &checked.endpoint.service, reached.server_time());
            }
            let learned = is_sealed.then(|| {
                redactor.join(&sent);
                sealed.join(&sent);
                reached.unsealed.note(&tenant, &sealed);
                (redactor, sealed)
            });
            Ok(Ready {
                outgoing,
                checked,
                learned,
            })
        }
    }

    /// Waits for the turn of this tenant queue and then sends the request, unless it is too late to begin. A repeated request does not
    /// halve the rate a second time.
    async fn paced(
        &self,
        outgoing: &Outgoing,
        checked: &Checked,
        begin_by: Instant,
        is_repeated: bool,
    ) -> Result<Incoming, Lost> {
        let Reached { connection, pace, .. } = &*self.reached;
        let is_read = matches!(checked.effect, Does::Read);
        let unsent = |failure| Lost { failure, sent: false };
        let (class, rate) = self.class(outgoing, checked.effect);
        let turn = self.turn(outgoing, &class, rate, is_read, begin_by);
        turn.await.map_err(unsent)?;
        let transport = self.transport(checked).map_err(unsent)?;
        let fence = polity_http::fence::current().filter(|_| !is_read);
        let sent = transport.send_within(outgoing, self.until, &self.budget, fence);
        let sent = sent.await;
        self.reached.traffic.sent(is_read, sent.is_ok());
        if let Ok(response) = &sent {
            // The clock of an appliance that runs in the cloud is not the cloud's clock.
            if checked.dynamic.is_none() {
                self.reached.learn_time(response);
            }
            if matches!(response.status, 429 | 503) {
                let now = self.reached.server_time();
                let is_of_api = response.status == 429 || is_of_api(response);
                let throttle = Throttle {
                    request: self.reached.digest(outgoing),
                    pause: response.header("retry-after").and_then(|said| pause(said, now)),
                    halves: is_of_api && !is_repeated,
                };
                let slower_for = pace.slow_down(&class, rate, &self.queue, &throttle);
                if is_of_api {
                    self.reached.throttled(class, slower_for);
                    self.is_throttled.store(true, Ordering::Relaxed);
                }
            }
        }
        if !is_read {
            let status = sent.as_ref().map_or(0, |response| response.status);
            let (method, host, path) = (&outgoing.method, outgoing.address.host(), outgoing.encoded_path());
            tracing::info!(target: "polity::audit", connection = connection.name, principal = self.session.principal, %method, host, path, status, "change");
        }
        sent
    }

    /// The transport of a request: of the connection, or of the host's own identity.
    fn transport(&self, checked: &Checked) -> Result<Transport, Failure> {
        let own = self.session.own_way(&checked.endpoint.service);
        match own.filter(|_| checked.dynamic.is_none()) {
            Some(way) => way.map(|(_, transport)| transport.clone()),
            None => self.reached.connection.transport.get(),
        }
    }

    /// The class of requests among which this one counts, and its rate.
    fn class(&self, outgoing: &Outgoing, effect: Does) -> (String, Rate) {
        let what = match effect {
            Does::Read => "reads",
            Does::Change => "changes",
            Does::Create => "creates",
        };
        // Clouds count the requests of an account in a region, whichever user of the account sends them.
        let (host, place) = (outgoing.address.host(), self.session.place.join("/"));
        let Reached {
            connection, manifest, ..
        } = &*self.reached;
        (
            format!("{host} {place} {what}"),
            connection.rate(effect, manifest.login),
        )
    }

    /// How long a request that begins by this moment waits for its turn at most.
    fn longest(&self, begin_by: Instant) -> Duration {
        let now = Instant::now();
        let rest = begin_by.saturating_duration_since(now);
        rest.min(self.until.saturating_duration_since(now) / 2)
    }

    /// Waits for the turn of this tenant queue.
    async fn turn(
        &self,
        outgoing: &Outgoing,
        class: &str,
        rate: Rate,
        is_read: bool,
        begin_by: Instant,
    ) -> Result<(), Failure> {
        begins(begin_by, is_read)?;
        let (pace, longest) = (&self.reached.pace, self.longest(begin_by));
        if !pace.acquire(class, rate, &self.queue, longest).await {
            return Err(self.no_turn(outgoing, class));
        }
        begins(begin_by, is_read)
    }

    /// The failure of a request whose turn does not come in time. Nothing was sent.
    fn no_turn(&self, outgoing: &Outgoing, class: &str) -> Failure {
        let Reached { connection, pace, .. } = &*self.reached;
        let pause = pace.asked_pause(class, &self.queue);
        let until = pace
            .throttled(class)
            .max(pause)
            .map(|rest| self.reached.after(rest));
        let message = no_turn(outgoing.address.host(), &connection.name, until);
        Failure {
            retry_after: pause.map(millis),
            ..Failure::new(Code::Unavailable, message)
        }
    }

    /// The response as the driver sees it.
    async fn take_in(
        &mut self,
        request: &HttpRequest,
        sent: Result<Incoming, Lost>,
    ) -> Result<Result<HttpResponse, polity_sandbox::driver::Failure>, Failure> {
        let response = match sent {
            Ok(response) => response,
            Err(_) if self.budget.is_spent() => {
                let message = format!(
                    "the responses to one operation have more than {} MiB, the limit of an operation",
                    ANSWERED >> 20
                );
                return Err(Failure {
                    effect: self.sent.effect(),
                    ..Failure::new(Code::ResourceExhausted, message)
                });
            }
            Err(lost) => {
                self.is_complete = false;
                let message = self.redactor.scrub(&lost.failure.message);
                return Ok(Err(effect::of_read(lost.failure.code, message)));
            }
        };
        if !(200..300).contains(&response.status) && response.status != 404 {
            self.is_complete = false;
        }
        let (keep, redactor) = (request.keep.clone(), self.redactor.clone());
        let lately = self.reached.unsealed.of(&self.tenant);
        let paths: usize = keep.iter().map(String::len).sum();
        let headers: usize = response.headers.iter().map(|(_, value)| value.len()).sum();
        let bytes = response.body.len() + paths + headers;
        let read = move || read(response, &keep, &redactor, &lately);
        let (response, has_hidden) = offload(&self.queue, bytes, read).await;
        self.has_hidden |= has_hidden;
        Ok(Ok(response))
    }

    /// The failure of an operation in which the driver broke this rule.
    fn broken(&self, rule: &str) -> Failure {
        self.has_broken.store(true, Ordering::Relaxed);
        let Reached {
            manifest, connection, ..
        } = &*self.reached;
        let message = format!(
            "driver {} of connection {}: {}",
            manifest.name,
            connection.name,
            &rule[..rule.floor_char_boundary(RULE)]
        );
        Failure {
            effect: self.sent.effect(),
            ..Failure::new(Code::Internal, self.redactor.scrub(&message))
        }
    }
}

/// The arguments of an operation, as its driver sees them; null if no sealed text needs them.
fn arguments(call: &Call, is_sealed: bool) -> Value {
    match &call.task {
        Task::Perform(arguments) if is_sealed => serde_json::from_str(arguments).unwrap_or_default(),
        _ => Value::Null,
    }
}

/// Checks that no sealed value is the name of a field that the driver keeps of a response.
fn no_value_is_a_name(values: &Values, request: &HttpRequest, call: &Call) -> Result<(), Failure> {
    let earlier = call.exchanges.iter().map(|exchange| &exchange.request);
    let paths = earlier.chain([request]).flat_map(|request| &request.keep);
    let names: BTreeSet<&str> = paths.flat_map(|path| path.split('.')).collect();
    match values.iter().find(|(_, value)| names.contains(value.trim())) {
        None => Ok(()),
        Some((path, _)) => {
            let message = format!(
                "{path}: the value of the Secret is the name of a field in the cloud's answers, and the host would hide it there: make \
                 it another one"
            );
            Err(Failure::new(Code::InvalidArgument, message))
        }
    }
}

/// The address of an endpoint: from the connection, or from the login. The host's own identity has its own addresses.
fn address(
    reached: &Reached,
    session: &Session,
    name: &str,
    service: &str,
) -> Result<polity_http::Address, Failure> {
    if let Some(way) = session.own_way(service) {
        return way.map(|(address, _)| address.clone());
    }
    let connection = &reached.connection;
    let known = connection.endpoints.get(name).cloned();
    let known = known.or_else(|| session.address(service));
    let known = known.map(|address| session.root(address));
    known.ok_or_else(|| {
        let message = format!(
            "connection {} has no endpoint {name:?}, and its login names none: add it to spec.endpoints",
            connection.name
        );
        Failure::new(Code::FailedPrecondition, message)
    })
}

/// Whether an answer may say that something is not there: by a list, by null, or by false.
fn says_that_nothing_is_there(answer: &Value) -> bool {
    let fields = answer.as_object().into_iter().flatten();
    fields
        .into_iter()
        .any(|(_, value)| matches!(value, Value::Array(_) | Value::Null | Value::Bool(false)))
}

/// A response as the driver sees it: what it keeps, without secrets and without the values that were sent lately. Also whether
/// anything was hidden in what it keeps.
fn read(
    response: Incoming,
    keep: &[String],
    redactor: &Redactor,
    lately: &[Redactor; 2],
) -> (HttpResponse, bool) {
    let body = polity_body::read(&response.body, keep);
    let (mut kept, mut has_hidden) = redactor.value(body.kept);
    for known in lately {
        let (scrubbed, hides) = known.value(kept);
        (kept, has_hidden) = (scrubbed, has_hidden | hides);
    }
    let scrub = |text: &str| {
        let text = redactor.scrub(text);
        lately.iter().fold(text, |text, known| known.scrub(&text))
    };
    let seen = response
        .headers
        .iter()
        .filter(|(name, _)| SEEN.contains(&name.as_str()));
    let response = HttpResponse {
        status: response.status,
        headers: seen.map(|(name, value)| (name.clone(), scrub(value))).collect(),
        body: kept.to_string(),
        text: body.text.map(|text| scrub(&text)),
    };
    (response, has_hidden)
}

/// Whether a response is the API's own: a proxy in front of it answers with a page, a text or nothing, and says nothing about rates.
fn is_of_api(response: &Incoming) -> bool {
    let beginning = &response.body[..response.body.len().min(1_024)];
    let beginning = String::from_utf8_lossy(beginning)
        .trim_start()
        .to_ascii_lowercase();
    beginning.starts_with(['{', '<']) && !beginning.contains("<html")
}

/// # Errors
/// It is too late to begin a request. Nothing was sent.
fn begins(by: Instant, is_read: bool) -> Result<(), Failure> {
    if Instant::now() < by {
        return Ok(());
    }
    let code = if is_read {
        Code::DeadlineExceeded
    } else {
        Code::Aborted
    };
    let message = "the request was not sent, because too little time was left to begin";
    Err(Failure::new(code, message))
}

/// Why the turn of a request did not come in time. `throttled` is when the requests have their whole rate again, in Unix
/// milliseconds, if the server has asked for fewer.
fn no_turn(host: &str, connection: &str, throttled: Option<u64>) -> String {
    match throttled {
        Some(until) => format!(
            "Throttled until {}: {host} has asked for fewer requests, and the host sends fewer until then",
            rfc3339(until)
        ),
        None => format!(
            "the rate limit for {host} left no request in time: the host tries again, or raise spec.rates of connection {connection}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_asked_for_is_not_blamed_on_the_rates() {
        let throttled = no_turn("ec2", "prod", Some(1_795_435_200_000));
        assert!(
            throttled.starts_with("Throttled until 2026-11-23T12:00:00Z: ec2 has asked"),
            "{throttled}"
        );
        assert!(!throttled.contains("spec.rates"), "{throttled}");
        assert!(no_turn("ec2", "prod", None).contains("spec.rates of connection prod"));
    }

    #[test]
    fn a_page_of_a_proxy_says_nothing_about_rates() {
        for (body, is_so) in [
            ("{\"overLimit\": {}}", true),
            ("<?xml version=\"1.0\"?><Response><Errors/></Response>", true),
            ("", false),
            ("upstream connect error", false),
            ("<html><body>503</body></html>", false),
            ("\n<!DOCTYPE html><HTML>", false),
        ] {
            let response = Incoming {
                status: 503,
                headers: Vec::new(),
                body: bytes::Bytes::from_static(body.as_bytes()),
            };
            assert_eq!(is_of_api(&response), is_so, "{body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_late_is_not_sent_and_has_no_effect() {
        let now = Instant::now();
        assert_eq!(begins(now + Duration::from_millis(1), false), Ok(()));
        for (is_read, code) in [(false, Code::Aborted), (true, Code::DeadlineExceeded)] {
            let late = begins(now, is_read).expect_err("it is late");
            assert_eq!(
                (late.code, late.effect),
                (code, polity_core::contract::Effect::None)
            );
        }
    }
}
