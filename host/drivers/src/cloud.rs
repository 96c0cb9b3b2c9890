//! A connection as a [`Cloud`].

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_clouds::catalogue::{largest_sealed, sealed_places};
use polity_clouds::{BoxFuture, Clock, Cloud, Opened, Redactor, SessionRequest, offload};
use polity_core::call::{CloudRequest, Commit, PendingEntry, Preparation, Session as Caller, Site};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_core::contract::driver::Manifest;
use polity_core::contract::{Answer, Code, Effect, Failure, Resolution};
use polity_core::time::millis;
use polity_http::login::{At, Plan, Session, Values as Secret, added_path, log_in, log_in_by_plan};
use polity_http::{Address, Budget, Pace, Transport};
use polity_kube_rules::schema::{Dialect, Schema, compile};
use polity_sandbox::driver::{Call, Driver, Entry, Exchange, Finding, Piece, Task};
use serde_json::Value;
use tokio::time::Instant;

use crate::catalogue::{self, ManifestError};
use crate::connection::Connection;
use crate::effect::{MESSAGE, Sent};
use crate::exchanged::{Ended, Exchanged, Part};
use crate::logouts::{self, Logouts};
use crate::operation::{ANSWERED, End, Operation};
use crate::reached::{Reached, Spent};
use crate::renewal::Renewal;
use crate::seal::{self, Values};
use crate::traffic::{Calls, Throttled};
use crate::waits::Waits;

/// An operation ends by itself this long before core cuts its call.
const SPARE: Duration = Duration::from_millis(500);
/// The key of a create while it is prepared. The real key is known when the create is committed.
const STAND_IN: &str = "00000000-0000-0000-0000-000000000000";

/// The session of the connection's own credentials.
struct Own {
    /// The digest of their Secret.
    digest: String,
    session: Arc<Session>,
    renewal: Renewal,
}

/// A cloud that is reached through a driver. When it is dropped, its sessions are ended at the servers.
pub struct DriverCloud {
    reached: Arc<Reached>,
    catalogue: Arc<Catalogue>,
    /// The clock of `since` and `now`.
    clock: Arc<dyn Clock>,
    own: tokio::sync::Mutex<Option<Own>>,
    refusals: Mutex<Waits>,
    /// The operations in which the driver broke its contract, by operation and tenant queue.
    quarantined: Mutex<Waits>,
    /// The sessions of plans, by the token that the gateway passes with each call.
    planned: Mutex<BTreeMap<String, Arc<Session>>>,
    next: AtomicU64,
    logouts: Logouts,
}

impl DriverCloud {
    /// Reads the driver's manifest, and checks the connection against it.
    pub fn new(
        driver: Arc<Driver>,
        connection: Connection,
        pace: Arc<Pace>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ManifestError> {
        let manifest = catalogue::manifest(driver.manifest())?;
        let catalogue = catalogue::catalogue(&manifest, connection.longest)?;
        check_addresses(&manifest, &connection)?;
        Ok(DriverCloud {
            reached: Arc::new(Reached::new(
                driver,
                manifest,
                connection,
                answers(&catalogue)?,
                pace,
                clock.clone(),
            )),
            catalogue: Arc::new(catalogue),
            clock,
            own: tokio::sync::Mutex::default(),
            refusals: Mutex::default(),
            quarantined: Mutex::default(),
            planned: Mutex::default(),
            next: AtomicU64::new(1),
            logouts: Logouts::default(),
        })
    }

    /// Checks this value against the driver's schema of the configuration.
    ///
    /// # Errors
    /// The errors in it, with their paths.
    pub fn check(driver: &Driver, configuration: &Value) -> Result<(), ManifestError> {
        let manifest = catalogue::manifest(driver.manifest())?;
        let schema = compile(Dialect::Json, "configSchema", &manifest.config_schema);
        let schema = schema.map_err(ManifestError::Schema)?;
        schema.check(configuration).map_err(ManifestError::Configuration)
    }

    /// The driver's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.reached.manifest
    }

    /// The costs of the driver, by operation.
    pub fn spent(&self) -> BTreeMap<String, Spent> {
        self.reached.spent()
    }

    /// How many requests were sent to its servers, and the class of requests of which a server has asked for fewer.
    pub fn traffic(&self) -> (Calls, Option<Throttled>) {
        self.reached.traffic()
    }

    /// Ends its sessions at the servers.
    pub async fn close(&self) {
        let mut sessions: Vec<Arc<Session>> = std::mem::take(&mut *self.planned()).into_values().collect();
        sessions.extend(self.own.lock().await.take().map(|own| own.session));
        let until = Instant::now() + self.reached.connection.longest;
        let Ok(transport) = self.reached.connection.transport.get() else {
            return;
        };
        for session in sessions {
            session.close(&at(&self.reached, &transport, until)).await;
        }
    }

    /// Begins to end a session at its server.
    fn end(&self, session: Arc<Session>) {
        let reached = self.reached.clone();
        self.logouts.begin(async move {
            if let Ok(transport) = reached.connection.transport.get() {
                let until = Instant::now() + logouts::LONGEST;
                session.close(&at(&reached, &transport, until)).await;
            }
        });
    }

    /// The times of a call that arrives now.
    fn times(&self) -> Times {
        self.times_after(Duration::ZERO)
    }

    /// The times of a call that the host has had for this long.
    fn times_after(&self, waited: Duration) -> Times {
        Times::after(waited, self.reached.connection.longest)
    }

    fn planned(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, Waits> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values of the connection's own credentials, with the digest of their Secret; `None` if it names none.
    async fn own_values(&self) -> Result<Option<(String, Secret)>, Failure> {
        match &self.reached.connection.credentials {
            Some(credentials) => credentials.values().await.map(Some),
            None => Ok(None),
        }
    }

    /// The session of a caller: the session of its plan, or else the session of the connection's own credentials.
    async fn session(&self, caller: &Caller, until: Instant) -> Result<Arc<Session>, Failure> {
        if let Some(token) = &caller.handle {
            let session = self.planned().get(token).cloned();
            let gone = || Failure::new(Code::Unauthenticated, "the session has ended");
            return session.ok_or_else(gone);
        }
        let (digest, values) = self.own_values().await?.unzip();
        let digest = digest.unwrap_or_default();
        // Callers that wait here use the login of the first caller.
        let mut own = self.own.lock().await;
        let now = self.clock.now_ms();
        let usable = own
            .as_mut()
            .filter(|own| own.digest == digest && own.renewal.lasts(now));
        if let Some(own) = &usable
            && !own.renewal.is_due(now)
        {
            return Ok(own.session.clone());
        }
        match (self.log_in(&digest, values.as_ref(), until).await, usable) {
            (Ok(session), _) => {
                let renewal = Renewal::of(session.expires, now);
                let session = Arc::new(session);
                let next = Own {
                    digest,
                    session: session.clone(),
                    renewal,
                };
                if let Some(before) = own.replace(next) {
                    self.end(before.session);
                }
                Ok(session)
            }
            (Err(_), Some(usable)) => {
                usable.renewal = usable.renewal.put_off(now);
                Ok(usable.session.clone())
            }
            (Err(failure), None) => {
                if let Some(before) = own.take() {
                    self.end(before.session);
                }
                Err(failure)
            }
        }
    }

    /// Logs in with the connection's own credentials, unless a server has just refused them.
    async fn log_in(
        &self,
        digest: &str,
        values: Option<&Secret>,
        until: Instant,
    ) -> Result<Session, Failure> {
        self.refusals().check(digest, Instant::now())?;
        let transport = self.reached.connection.transport.get()?;
        let at = at(&self.reached, &transport, until);
        let session = log_in(self.reached.manifest.login, &at, values).await;
        self.refusals().login_ended(digest, &session, Instant::now());
        session
    }

    /// Forgets a session that the server no longer accepts.
    async fn drop_session(&self, caller: &Caller, session: &Arc<Session>) {
        match &caller.handle {
            Some(token) => {
                self.planned().remove(token);
            }
            None => {
                let mut own = self.own.lock().await;
                if own.as_ref().is_some_and(|own| Arc::ptr_eq(&own.session, session)) {
                    *own = None;
                }
            }
        }
    }

    async fn operation(
        &self,
        caller: &Caller,
        session: Arc<Session>,
        name: &str,
        part: Part,
        times: Times,
        values: Arc<Values>,
    ) -> Operation {
        let secrets: Vec<String> = session.secrets().into_iter().map(str::to_owned).collect();
        let texts = secrets.iter().chain(values.values());
        let work = texts.map(|text| Redactor::work(text.len())).sum();
        let sealed = values.clone();
        let learn = move || {
            let (mut redactor, mut of_values) = (Redactor::default(), Redactor::default());
            secrets.iter().for_each(|secret| redactor.learn(secret));
            sealed.values().for_each(|value| of_values.learn(value));
            redactor.join(&of_values);
            (redactor, of_values)
        };
        let (redactor, sealed) = offload(&caller.tenant_queue, work, learn).await;
        let login = self.reached.manifest.login;
        let known = self.catalogue.operations.get(name);
        Operation {
            reached: self.reached.clone(),
            session,
            tenant: caller.tenant.clone(),
            queue: caller.tenant_queue.clone(),
            part,
            changes: known.is_some_and(|known| known.effect == OperationEffect::Change),
            change_by: times.change_by,
            until: times.until,
            values,
            largest: largest_sealed(login),
            places: sealed_places(login, name),
            redactor,
            sealed,
            sent: Sent::default(),
            is_complete: true,
            has_hidden: false,
            requests: 0,
            budget: Budget::new(ANSWERED),
            last: None,
            is_throttled: AtomicBool::new(false),
            has_broken: AtomicBool::new(false),
        }
    }

    fn call(&self, operation: &str, task: Task, caller: &Caller, session: &Session) -> Call {
        Call {
            operation: operation.to_owned(),
            task,
            owner: caller.owner.clone(),
            tenant: caller.tenant.clone(),
            key: String::new(),
            now: self.reached.server_time(),
            config: self.reached.connection.configuration.to_string(),
            session: session.attributes.to_string(),
            exchanges: Vec::new(),
        }
    }

    /// Performs a part of an operation in the caller's session. If the server no longer accepts the session, and no change
    /// was sent, performs it once more in a new session.
    async fn run(
        &self,
        request: &mut CloudRequest,
        part: Part,
        key: &str,
        exchanges: Vec<Exchange>,
        times: Times,
    ) -> Result<(End, Arc<Session>), Failure> {
        let values = match self.catalogue.operations.get(&request.operation) {
            Some(operation) => seal::take(operation, &mut request.arguments),
            None => Values::new(),
        };
        let values = Arc::new(values);
        let task = Task::Perform(request.arguments.to_string());
        let mut has_failed = false;
        loop {
            let session = self.session(&request.session, times.until).await?;
            let call = Call {
                key: key.to_owned(),
                exchanges: exchanges.clone(),
                ..self.call(&request.operation, task.clone(), &request.session, &session)
            };
            let operation = self.operation(
                &request.session,
                session.clone(),
                &request.operation,
                part,
                times,
                values.clone(),
            );
            let mut operation = operation.await;
            let ended = self.kept(&mut operation, call).await;
            let refused = matches!(&ended, Err(failure) if failure.code == Code::Unauthenticated);
            if refused {
                self.drop_session(&request.session, &session).await;
                let may_begin_again = !has_failed
                    && operation.sent == Sent::Nothing
                    && part != Part::Commit
                    && request.session.handle.is_none();
                if may_begin_again {
                    has_failed = true;
                    continue;
                }
            }
            return ended.map(|end| (end, session));
        }
    }

    /// Runs an operation, unless the driver broke its contract in it a short time ago, and stores its exchanges.
    async fn kept(&self, operation: &mut Operation, call: Call) -> Result<End, Failure> {
        let looks = operation.part == Part::Resolve;
        let name = format!("{} {looks} {}", call.operation, operation.queue);
        let quarantined = || self.quarantined.lock().unwrap_or_else(PoisonError::into_inner);
        quarantined()
            .check(&name, Instant::now())
            .map_err(|failure| Failure {
                effect: Effect::None,
                message: format!(
                    "{} is not tried again yet, because the driver broke its contract: {}",
                    call.operation, failure.message
                ),
                ..failure
            })?;
        let mut call = Arc::new(call);
        let ended = operation.run(&mut call).await;
        match &ended {
            Err(failure) if operation.has_broken.load(Ordering::Relaxed) => {
                quarantined().failed(&name, failure.clone(), Instant::now());
            }
            _ => quarantined().went_well(&name),
        }
        let Reached {
            connection, driver, ..
        } = &*self.reached;
        // Successful reads and changes are not stored: there are many of them, and they help little.
        let is_kept = operation.part != Part::Perform || ended.is_err();
        if let Some(keeps) = connection.keeps.as_ref().filter(|_| is_kept) {
            let exchanged = Exchanged {
                at: self.clock.now_ms(),
                connection: connection.name.clone(),
                driver: driver.digest().to_string(),
                part: operation.part,
                call: Arc::unwrap_or_clone(call),
                last: operation.last.take(),
                ended: match &ended {
                    Ok(End::Answered(answer)) => Ended::Answered(answer.clone()),
                    Ok(End::Ready(_)) => Ended::Ready,
                    Ok(End::Found(finding, _)) => Ended::Found(finding.clone()),
                    Err(failure) => Ended::Failed(failure.clone()),
                },
            };
            let (keeps, bytes) = (keeps.clone(), bytes_of(&exchanged.call.exchanges));
            offload(&operation.queue, bytes, move || keeps.keep(&exchanged)).await;
        }
        ended
    }

    async fn performed(&self, mut request: CloudRequest, times: Times) -> Answer {
        let ended = self.run(&mut request, Part::Perform, "", Vec::new(), times);
        match ended.await?.0 {
            End::Answered(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    async fn prepared(&self, mut request: CloudRequest) -> Result<Preparation, Failure> {
        let (end, session) = self
            .run(&mut request, Part::Prepare, STAND_IN, Vec::new(), self.times())
            .await?;
        let End::Ready(exchanges) = end else {
            let message = "the driver answered a create without a request that creates";
            return Err(Failure::new(Code::Internal, message));
        };
        let bytes = bytes_of(&exchanges);
        let write = move || serde_json::to_string(&exchanges);
        let ready = offload(&request.session.tenant_queue, bytes, write).await;
        let ready = ready.map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
        Ok(Preparation {
            site: Site {
                place: self.place(&session, &request),
                principal: session.principal.clone(),
            },
            ready: ready.into(),
        })
    }

    /// The place of a create: the place of the server, and within it the place that the arguments name.
    fn place(&self, session: &Session, request: &CloudRequest) -> Vec<String> {
        let paths = self
            .reached
            .manifest
            .implements
            .iter()
            .find_map(|service| service.places.get(&request.operation));
        let within = paths.into_iter().flatten().map(|path| {
            let at = path
                .split('.')
                .try_fold(&request.arguments, |value, field| value.get(field));
            at.and_then(Value::as_str).unwrap_or_default().to_owned()
        });
        session.place.iter().cloned().chain(within).collect()
    }

    async fn committed(&self, commit: Commit, times: Times) -> Answer {
        let Commit {
            mut request,
            prepared,
        } = commit;
        let key = request.key.clone().unwrap_or_default();
        let ready = prepared.ready;
        let (queue, bytes) = (&request.session.tenant_queue, ready.len());
        let exchanges = offload(queue, bytes, move || serde_json::from_str(&ready)).await;
        let exchanges = exchanges.map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
        let ended = self.run(&mut request, Part::Commit, &key, exchanges, times);
        match ended.await?.0 {
            End::Answered(answer) => Ok(answer),
            _ => Err(Failure {
                effect: Effect::Unknown,
                ..unexpected()
            }),
        }
    }

    async fn looked(&self, caller: &Caller, entry: &PendingEntry) -> Result<Resolution, Failure> {
        let times = self.times();
        let session = self.session(caller, times.until).await?;
        let task = Task::Resolve(Entry {
            intent: entry.intent.clone(),
            key: entry.key.clone(),
            stamp: entry.stamp,
            place: entry.place.iter().skip(session.place.len()).cloned().collect(),
            since: entry.since.0,
            waited: millis(entry.waited),
        });
        let call = Call {
            key: entry.key.clone(),
            ..self.call(&entry.operation, task, caller, &session)
        };
        let (part, values) = (Part::Resolve, Arc::default());
        let operation = self.operation(caller, session.clone(), &entry.operation, part, times, values);
        let mut operation = operation.await;
        let ended = self.kept(&mut operation, call).await;
        if matches!(&ended, Err(failure) if failure.code == Code::Unauthenticated) {
            self.drop_session(caller, &session).await;
        }
        Ok(match ended? {
            End::Found(Finding::Found(answer), _) => Resolution::Done(answer.into()),
            End::Found(Finding::None, true) => Resolution::Absent,
            End::Found(Finding::None, false) => {
                Resolution::unknown("not every read of the look got a complete response")
            }
            End::Found(Finding::CannotTell(failure), _) => {
                let end = failure.message.floor_char_boundary(MESSAGE);
                Resolution::unknown(&failure.message[..end])
            }
            _ => return Err(unexpected()),
        })
    }

    async fn opened(&self, request: &SessionRequest) -> Result<Opened, Failure> {
        let times = self.times();
        let own = self.own_values().await?;
        let plan = Plan {
            plan: &request.plan,
            secrets: &request.secrets,
            tokens: &request.tokens,
            own: own.as_ref().map(|(_, values)| values),
        };
        let transport = self.reached.connection.transport.get()?;
        let at = at(&self.reached, &transport, times.until);
        let region = request.plan["region"]
            .as_str()
            .filter(|region| !region.is_empty());
        let at = At {
            region: region.unwrap_or(at.region),
            ..at
        };
        // The plan contains a digest of each Secret, so it stands for the credentials too.
        let made_of = request.plan.to_string();
        self.refusals().check(&made_of, Instant::now())?;
        let session = log_in_by_plan(self.reached.manifest.login, &at, &plan).await;
        self.refusals().login_ended(&made_of, &session, Instant::now());
        let session = session?;
        // The token is long enough for the redactor, which hides it in answers.
        let token = format!("session-of-plan-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let opened = Opened {
            token: token.clone(),
            attributes: session.attributes.clone(),
            expires: session.expires,
        };
        self.planned().insert(token, Arc::new(session));
        Ok(opened)
    }
}

impl Drop for DriverCloud {
    /// Nobody uses the cloud any more: another opening of its connection has replaced it, or the connection is gone.
    fn drop(&mut self) {
        let planned = std::mem::take(&mut *self.planned()).into_values();
        let own = self.own.get_mut().take().map(|own| own.session);
        planned.chain(own).for_each(|session| self.end(session));
    }
}

/// The times of one call.
#[derive(Clone, Copy)]
struct Times {
    /// No change is sent from then on, so that the answer to one that was sent has time to arrive.
    change_by: Instant,
    /// When the call ends.
    until: Instant,
}

impl Times {
    /// The times of a call that takes at most `longest` and that the host has had for this long. Whatever comes before a change
    /// (to unseal, to log in, to wait for a turn) takes from its time: otherwise a change could be sent just before core cuts
    /// the call, and be in doubt.
    fn after(waited: Duration, longest: Duration) -> Self {
        let longest = longest - SPARE;
        let now = Instant::now();
        Times {
            change_by: now + (longest / 2).saturating_sub(waited),
            until: now + longest.saturating_sub(waited),
        }
    }
}

/// What logins and logouts need of a connection.
fn at<'a>(reached: &'a Reached, transport: &'a Transport, until: Instant) -> At<'a> {
    let connection = &reached.connection;
    At {
        transport,
        endpoints: &connection.endpoints,
        region: &connection.region,
        now: reached.server_time(),
        until,
        environment: &|name| std::env::var(name).ok(),
    }
}

/// Checks that no address ends in the path that the login adds.
fn check_addresses(manifest: &Manifest, connection: &Connection) -> Result<(), ManifestError> {
    let Some(path) = added_path(manifest.login) else {
        return Ok(());
    };
    let added = format!("/{path}");
    let ends_so = |address: &Address| address.path(&[]).trim_end_matches('/').ends_with(&added);
    let mut endpoints = connection.endpoints.iter();
    match endpoints.find(|(_, address)| ends_so(address)) {
        None => Ok(()),
        Some((endpoint, address)) => Err(ManifestError::Address {
            endpoint: endpoint.clone(),
            address: address.as_text(),
            path,
        }),
    }
}

fn answers(catalogue: &Catalogue) -> Result<BTreeMap<String, Schema>, ManifestError> {
    let operations = catalogue.operations.iter();
    let compiled = operations.map(|(name, operation)| {
        let schema = compile(Dialect::Json, "", &operation.answer);
        let schema = schema.map_err(|causes| ManifestError::Catalogue {
            operation: name.clone(),
            causes,
        })?;
        Ok((name.clone(), schema))
    });
    compiled.collect()
}

/// About how many bytes exchanges have as JSON.
fn bytes_of(exchanges: &[Exchange]) -> usize {
    let responses = exchanges.iter().map(|exchange| match &exchange.response {
        Ok(response) => response.body.len(),
        Err(failure) => failure.message.len(),
    });
    let requests = exchanges.iter().flat_map(|exchange| &exchange.request.body);
    let texts = requests.map(|piece| match piece {
        Piece::Text(text) => text.len(),
        Piece::Sealed(_) => 0,
    });
    responses.chain(texts).sum()
}

fn unexpected() -> Failure {
    Failure::new(
        Code::Internal,
        "the driver ended the operation in a way that does not fit the operation",
    )
}

impl Cloud for DriverCloud {
    fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn largest_sealed(&self) -> usize {
        largest_sealed(self.reached.manifest.login)
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.performed(request, self.times()))
    }

    fn perform_after(&self, request: CloudRequest, waited: Duration) -> BoxFuture<'_, Answer> {
        Box::pin(self.performed(request, self.times_after(waited)))
    }

    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Preparation, Failure>> {
        Box::pin(self.prepared(request))
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        Box::pin(self.committed(commit, self.times()))
    }

    fn commit_after(&self, commit: Commit, waited: Duration) -> BoxFuture<'_, Answer> {
        Box::pin(self.committed(commit, self.times_after(waited)))
    }

    fn site<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Site, Failure>> {
        Box::pin(async move {
            let session = self.session(caller, self.times().until).await?;
            Ok(Site {
                place: session.place.clone(),
                principal: session.principal.clone(),
            })
        })
    }

    fn resolve<'a>(&'a self, caller: &'a Caller, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        Box::pin(async move {
            let looked = self.looked(caller, entry).await;
            looked.unwrap_or_else(|failure| Resolution::Unknown(failure.message))
        })
    }

    fn open_session<'a>(&'a self, request: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        Box::pin(self.opened(request))
    }

    fn takes_tokens(&self) -> bool {
        true
    }

    fn close_session(&self, token: &str) {
        let session = self.planned().remove(token);
        session.into_iter().for_each(|session| self.end(session));
    }

    fn adapter(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_clouds::catalogue::LONGEST;
    use polity_core::controller::lease::OPERATION_AT_MOST;

    #[tokio::test(start_paused = true)]
    async fn whatever_comes_before_a_change_takes_from_the_time_in_which_it_may_be_sent() {
        let fresh = Times::after(Duration::ZERO, LONGEST);
        for waited in [1, 2].map(Duration::from_secs) {
            let times = Times::after(waited, LONGEST);
            assert_eq!(times.change_by, fresh.change_by - waited);
            assert_eq!(times.until, fresh.until - waited);
        }
        let late = Times::after(LONGEST, LONGEST);
        assert_eq!((late.change_by, late.until), (Instant::now(), Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_allows_more_time_lets_a_change_begin_later() {
        let begins = |longest| Times::after(Duration::ZERO, longest).change_by - Instant::now();
        assert_eq!(begins(LONGEST), Duration::from_millis(2_250));
        assert_eq!(begins(OPERATION_AT_MOST), Duration::from_millis(3_250));
    }
}
