//! One operation: the host calls the driver with the exchanges so far, again and again, until the driver has an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use polity_clouds::Redactor;
use polity_core::contract::{Code, Failure};
use polity_http::login::Session;
use polity_http::{Incoming, Lost, Outgoing};
use polity_sandbox::driver::{
    Call, DriverLimits, Effect as Does, Exchange, Finding, HttpRequest, HttpResponse, Outcome,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::check::{self, Checked};
use crate::effect::{self, Sent};
use crate::exchanged::{Part, STEPS};
use crate::reached::{Reached, pause};
use crate::seal::{self, Values};

/// The most requests of one operation.
const REQUESTS: usize = 64;
/// The most bytes of all responses of an operation together.
const ANSWERED: usize = 16 << 20;
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
pub(crate) struct Operation<'a> {
    pub(crate) reached: &'a Reached,
    pub(crate) session: Arc<Session>,
    pub(crate) tenant: String,
    /// The tenant queue in which its requests wait.
    pub(crate) queue: Arc<str>,
    pub(crate) part: Part,
    /// No change is sent from then on.
    pub(crate) change_by: Instant,
    pub(crate) until: Instant,
    /// The values of sealed arguments.
    pub(crate) values: Values,
    pub(crate) redactor: Redactor,
    pub(crate) sent: Sent,
    /// Whether every read got a complete response.
    pub(crate) is_complete: bool,
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
    /// The last request, if it has no response: it creates and is ready to be sent, or its response was lost.
    pub(crate) last: Option<HttpRequest>,
    /// Whether the driver broke its contract.
    pub(crate) has_broken: AtomicBool,
}

impl<'a> Operation<'a> {
    /// Calls the driver until the operation ends. `call` has the exchanges so far; each new exchange is added to it.
    pub(crate) async fn run(&mut self, call: &mut Arc<Call>) -> Result<End, Failure> {
        for _ in 0..STEPS {
            match self.step(call).await? {
                Outcome::Answered(answer) => return self.answered(&call.operation, answer),
                Outcome::Resolved(finding) if self.part == Part::Resolve => {
                    if let Finding::Found(found) = &finding {
                        self.allowed(&call.operation, found)?;
                    }
                    return Ok(End::Found(finding, self.is_complete));
                }
                Outcome::Resolved(_) => {
                    return Err(self.broken("it returned a finding, but the call performs an operation"));
                }
                Outcome::Send(requests) => {
                    if let Some(end) = self.send(Arc::make_mut(call), requests).await? {
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
        let stepped = tokio::task::spawn_blocking(move || {
            let began = std::time::Instant::now();
            let stepped = driver.step(&asked, &DriverLimits::default());
            (stepped, began.elapsed())
        });
        let (stepped, took) = stepped.await.map_err(|e| self.broken(&e.to_string()))?;
        self.reached.spends(&call.operation, stepped.fuel, took);
        stepped.outcome.map_err(|fault| self.broken(&fault.to_string()))
    }

    fn answered(
        &self,
        operation: &str,
        answer: Result<String, polity_sandbox::driver::Failure>,
    ) -> Result<End, Failure> {
        if self.part == Part::Resolve {
            return Err(self.broken("it returned an answer, but the call resolves an entry"));
        }
        match answer {
            Ok(answer) => self.allowed(operation, &answer).map(End::Answered),
            Err(said) => Err(effect::failure(said, self.sent)),
        }
    }

    /// Checks an answer against the catalogue's schema, on which policies rely.
    fn allowed(&self, operation: &str, answer: &str) -> Result<Value, Failure> {
        let answer: Value =
            serde_json::from_str(answer).map_err(|e| self.broken(&format!("its answer is no JSON: {e}")))?;
        let schema = self.reached.answers.get(operation);
        match schema.and_then(|schema| schema.first_error(&answer)) {
            None => Ok(answer),
            Some(cause) => {
                let rule = format!("its answer to {operation} does not match the catalogue: {cause}");
                Err(self.broken(&rule))
            }
        }
    }

    /// Sends the requests of a step. Returns the end of the operation if the request that creates is next.
    async fn send(&mut self, call: &mut Call, requests: Vec<HttpRequest>) -> Result<Option<End>, Failure> {
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
                ready.push(self.outgoing(request, &call.exchanges)?);
            }
            let reads = ready
                .iter()
                .map(|(outgoing, checked)| self.read(outgoing, checked));
            let sent = join_all(reads).await;
            for (request, response) in requests.into_iter().zip(sent) {
                let response = self.take_in(&request, response)?;
                call.exchanges.push(Exchange { request, response });
            }
            return Ok(None);
        }
        let Ok([request]) = <[HttpRequest; 1]>::try_from(requests) else {
            return Err(self.broken("it sends a change together with another request"));
        };
        match (request.effect, self.part) {
            (Does::Create, Part::Prepare) => {
                check::check(
                    &request,
                    &self.reached.manifest,
                    &self.reached.connection,
                    &call.exchanges,
                )
                .map_err(|rule| self.broken(&rule))?;
                self.last = Some(request);
                return Ok(Some(End::Ready(call.exchanges.clone())));
            }
            (Does::Create, Part::Commit) if self.sent == Sent::Nothing => {}
            (Does::Change, Part::Perform) => {}
            (Does::Create, _) => {
                return Err(
                    self.broken("it sends a create in a call that must not create, or a second create")
                );
            }
            _ => return Err(self.broken("it sends a change in a call that must not change anything")),
        }
        let response = match self.change(&request, &call.exchanges).await {
            Ok(response) => response,
            Err(failure) => {
                self.last = Some(request);
                return Err(failure);
            }
        };
        let response = self.take_in(&request, Ok(response))?;
        call.exchanges.push(Exchange { request, response });
        Ok(None)
    }

    /// Sends a read, more than once if necessary. The driver decides what a lost response means.
    async fn read(&self, outgoing: &Outgoing, checked: &Checked<'_>) -> Result<Incoming, Lost> {
        let mut tries = 0;
        loop {
            tries += 1;
            let sent = self.paced(outgoing, checked, self.until).await;
            let is_late = Instant::now() + PAUSE >= self.until;
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
    async fn change(&mut self, request: &HttpRequest, exchanges: &[Exchange]) -> Result<Incoming, Failure> {
        let (outgoing, checked) = self.outgoing(request, exchanges)?;
        let is_soap = checked.endpoint.soap;
        let sent = self.paced(&outgoing, &checked, self.change_by).await;
        match sent {
            Ok(response) => {
                self.sent = self.sent.and(Some(&response), is_soap);
                Ok(response)
            }
            Err(lost) => {
                if lost.sent {
                    self.sent = self.sent.and(None, is_soap);
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
    fn outgoing(
        &mut self,
        request: &HttpRequest,
        exchanges: &[Exchange],
    ) -> Result<(Outgoing, Checked<'a>), Failure> {
        let reached: &'a Reached = self.reached;
        let Reached {
            manifest, connection, ..
        } = reached;
        let checked =
            check::check(request, manifest, connection, exchanges).map_err(|rule| self.broken(&rule))?;
        let (address, is_own) = match &checked.dynamic {
            Some(address) => (address.clone(), false),
            None => (self.address(&request.endpoint, &checked.endpoint.service)?, true),
        };
        let mut outgoing = check::outgoing(request, &checked, address);
        let (unsealed, tenant) = (&reached.unsealed, &self.tenant);
        let body = seal::body(&request.body, &self.values, &mut |text| {
            unsealed.note(tenant, text);
            self.redactor.learn(text);
        });
        outgoing.body = body.map_err(|rule| self.broken(&rule))?.into();
        // The credentials of the cloud go only to the cloud itself, not to an appliance that runs in it.
        if is_own {
            let now = reached.server_time();
            self.session.sign(&mut outgoing, &checked.endpoint.service, now);
        }
        Ok((outgoing, checked))
    }

    fn address(&self, name: &str, service: &str) -> Result<polity_http::Address, Failure> {
        let Reached { connection, .. } = self.reached;
        let known = connection.endpoints.get(name).cloned();
        let known = known.or_else(|| self.session.address(service));
        known.ok_or_else(|| {
            let message = format!(
                "connection {} has no endpoint {name:?}, and its login names none: add it to spec.endpoints",
                connection.name
            );
            Failure::new(Code::FailedPrecondition, message)
        })
    }

    /// Waits for the turn of this tenant queue and then sends the request, unless it is too late to begin.
    async fn paced(
        &self,
        outgoing: &Outgoing,
        checked: &Checked<'_>,
        begin_by: Instant,
    ) -> Result<Incoming, Lost> {
        let Reached { connection, pace, .. } = self.reached;
        let is_read = matches!(checked.effect, Does::Read);
        let unsent = |failure| Lost { failure, sent: false };
        let class = self.turn(outgoing, is_read, begin_by).await.map_err(unsent)?;
        let transport = connection.transport.get().map_err(unsent)?;
        let sent = transport.send(outgoing, self.until).await;
        self.reached.traffic.sent(is_read, sent.is_ok());
        if let Ok(response) = &sent {
            // The clock of an appliance that runs in the cloud is not the cloud's clock.
            if checked.dynamic.is_none() {
                self.reached.learn_time(response);
            }
            if matches!(response.status, 429 | 503) {
                let now = self.reached.server_time();
                let pause = response.header("retry-after").and_then(|said| pause(said, now));
                pace.slow_down(&class, pause);
                self.reached.traffic.throttled(&class);
            }
        }
        if !is_read {
            let status = sent.as_ref().map_or(0, |response| response.status);
            let (method, host, path) = (&outgoing.method, outgoing.address.host(), outgoing.encoded_path());
            tracing::info!(target: "polity::audit", connection = connection.name, principal = self.session.principal, %method, host, path, status, "change");
        }
        sent
    }

    /// Waits for the turn of this tenant queue, and returns the class of requests among which this one counts.
    async fn turn(&self, outgoing: &Outgoing, is_read: bool, begin_by: Instant) -> Result<String, Failure> {
        let Reached { connection, pace, .. } = self.reached;
        let host = outgoing.address.host();
        let what = match is_read {
            true => "reads",
            false => "changes",
        };
        // Clouds count the requests of an account in a region, whichever user of the account sends them.
        let class = format!("{host} {} {what}", self.session.place.join("/"));
        begins(begin_by, is_read)?;
        let now = Instant::now();
        let longest = begin_by
            .saturating_duration_since(now)
            .min(self.until.saturating_duration_since(now) / 2);
        let rate = connection.rate(is_read);
        if !pace.acquire(&class, rate, &self.queue, longest).await {
            let message = no_turn(host, &connection.name, pace.asked_pause(&class));
            return Err(Failure::new(Code::Unavailable, message));
        }
        begins(begin_by, is_read)?;
        Ok(class)
    }

    /// The response as the driver sees it.
    fn take_in(
        &mut self,
        request: &HttpRequest,
        sent: Result<Incoming, Lost>,
    ) -> Result<Result<HttpResponse, polity_sandbox::driver::Failure>, Failure> {
        let response = match sent {
            Ok(response) => response,
            Err(lost) => {
                self.is_complete = false;
                let message = self.redactor.scrub(&lost.failure.message);
                return Ok(Err(effect::of_read(lost.failure.code, message)));
            }
        };
        self.bytes += response.body.len();
        if self.bytes > ANSWERED {
            let message = format!(
                "the responses to one operation have more than {} MiB, the limit of an operation",
                ANSWERED >> 20
            );
            return Err(Failure {
                effect: self.sent.effect(),
                ..Failure::new(Code::ResourceExhausted, message)
            });
        }
        if !(200..300).contains(&response.status) && response.status != 404 {
            self.is_complete = false;
        }
        let body = polity_body::read(&response.body, &request.keep);
        let kept = self.redactor.answer(Ok(body.kept)).unwrap_or(Value::Null);
        let unsealed = &self.reached.unsealed;
        let kept = unsealed.hidden(&self.tenant, kept);
        let seen = response
            .headers
            .iter()
            .filter(|(name, _)| SEEN.contains(&name.as_str()));
        Ok(Ok(HttpResponse {
            status: response.status,
            headers: seen
                .map(|(name, value)| (name.clone(), self.redactor.scrub(value)))
                .collect(),
            body: kept.to_string(),
            text: body
                .text
                .map(|text| unsealed.hidden_text(&self.tenant, self.redactor.scrub(&text))),
        }))
    }

    /// The failure of an operation in which the driver broke this rule.
    fn broken(&self, rule: &str) -> Failure {
        self.has_broken.store(true, Ordering::Relaxed);
        let Reached {
            manifest, connection, ..
        } = self.reached;
        let message = format!(
            "driver {} of connection {}: {rule}",
            manifest.name, connection.name
        );
        Failure {
            effect: self.sent.effect(),
            ..Failure::new(Code::Internal, self.redactor.scrub(&message))
        }
    }
}

/// # Errors
/// It is too late to begin a request. Nothing was sent.
fn begins(by: Instant, is_read: bool) -> Result<(), Failure> {
    if Instant::now() < by {
        return Ok(());
    }
    let code = match is_read {
        true => Code::DeadlineExceeded,
        false => Code::Aborted,
    };
    let message = "the request was not sent, because too little time was left to begin";
    Err(Failure::new(code, message))
}

/// Why the turn of a request did not come in time. `pause` is the rest of a pause that the server asked for.
fn no_turn(host: &str, connection: &str, pause: Option<Duration>) -> String {
    match pause {
        Some(pause) => format!(
            "{host} has asked for no more requests for a while: the host sends none for another {} s, and then tries again",
            pause.as_secs().max(1)
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
    fn a_pause_that_the_server_asked_for_is_not_blamed_on_the_rates() {
        let paused = no_turn("vcenter", "prod", Some(Duration::from_secs(90)));
        assert!(
            paused.contains("vcenter has asked") && paused.contains("90 s"),
            "{paused}"
        );
        assert!(!paused.contains("spec.rates"), "{paused}");
        assert!(no_turn("vcenter", "prod", None).contains("spec.rates of connection prod"));
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
