//! The checks that the host makes for every adapter.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_core::call::{CloudRequest, Commit, PendingEntry, Preparation, Session, Site};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Answer, Code, Document, Effect, Failure, Resolution};
use serde_json::json;

use crate::catalogue::is_secret;
use crate::clock::Clock;
use crate::cloud::{BoxFuture, Cloud};
use crate::offload::{offload, weight, weight_of_answer};
use crate::redact::{REPEATS, Redactor};
use crate::sealed::{SecretResolver, unseal};
use crate::session::{Opened, PlanSecret, SessionPlan, SessionRequest};
use crate::sessions::Sessions;
use crate::single_flight::SingleFlight;
use crate::validate::{CatalogueError, CatalogueValidator, Way};

/// A cloud, with the checks in front of it that are the same for every cloud.
///
/// # Flow
///
/// Look up the operation, check the arguments against its schema, unseal, exchange the session's handle,
/// perform, scrub. A request that fails a check never reaches the cloud: its failure has `effect: none`.
///
/// A create is first prepared and then committed. It is committed only in the place in which it was prepared,
/// and as the same principal. Otherwise a later look could miss the created object and report it as absent.
///
/// A credential plan is answered from [`Sessions`]. For a new plan, the Secrets that it names are resolved.
/// Each must still have the digest by which the plan names it.
pub struct Gateway<C> {
    cloud: C,
    validator: Arc<CatalogueValidator>,
    secrets: Arc<dyn SecretResolver>,
    clock: Arc<dyn Clock>,
    sessions: Mutex<Sessions>,
    opening: SingleFlight,
}

/// What the answer to a request needs, while the request is at its cloud.
struct Asked {
    /// The session's handle, as the caller knows it.
    handle: Option<String>,
    /// Scrubs the values that were unsealed.
    redactor: Redactor,
    /// The tenant queue that pays for the work.
    queue: Arc<str>,
}

impl<C: Cloud> Gateway<C> {
    /// Compiles the schemas of the catalogue.
    pub fn new(
        cloud: C,
        secrets: Arc<dyn SecretResolver>,
        clock: Arc<dyn Clock>,
        sessions: Sessions,
    ) -> Result<Self, CatalogueError> {
        let validator = Arc::new(CatalogueValidator::new(cloud.catalogue().clone())?);
        Ok(Gateway {
            cloud,
            validator,
            secrets,
            clock,
            sessions: Mutex::new(sessions),
            opening: SingleFlight::default(),
        })
    }

    /// Uses the sessions. Then lets the cloud end those that were dropped.
    fn with_sessions<T>(&self, work: impl FnOnce(&mut Sessions, u64) -> T) -> T {
        let now = self.clock.now_ms();
        let (done, dropped) = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            (work(&mut sessions, now), sessions.take_dropped())
        };
        dropped.iter().for_each(|token| self.cloud.close_session(token));
        done
    }

    /// How long ago a call arrived.
    fn since(&self, arrived: u64) -> Duration {
        Duration::from_millis(self.clock.now_ms().saturating_sub(arrived))
    }

    async fn checked_perform(&self, request: CloudRequest) -> Answer {
        let arrived = self.clock.now_ms();
        let (request, asked) = self.enter(request, Way::Perform).await?;
        let answer = self.cloud.perform_after(request, self.since(arrived)).await;
        self.leave(asked, answer).await
    }

    /// The sealed values are there too, although they are sent later, with the request that creates. So a request that they
    /// make too large fails while nothing is in doubt.
    async fn checked_prepare(&self, request: CloudRequest) -> Result<Preparation, Failure> {
        let (request, asked) = self.enter(request, Way::Prepare).await?;
        let prepared = self.cloud.prepare(request).await;
        let prepared = prepared.map(|prepared| json!(prepared));
        // Nothing was sent.
        let prepared = self.leave(asked, prepared).await.map_err(|failure| Failure {
            effect: Effect::None,
            ..failure
        })?;
        serde_json::from_value(prepared).map_err(|e| Failure::new(Code::Internal, e.to_string()))
    }

    async fn checked_commit(&self, commit: Commit) -> Answer {
        let Commit { request, prepared } = commit;
        let arrived = self.clock.now_ms();
        let (request, asked) = self.enter(request, Way::Commit).await?;
        let there = self.cloud.site(&request.session).await;
        let answer = match there {
            Ok(there) if prepared.site.is_at(&there) => {
                let commit = Commit { request, prepared };
                self.cloud.commit_after(commit, self.since(arrived)).await
            }
            Ok(there) => {
                let message = format!(
                    "the create was prepared {}, but would be sent {there}: nothing was sent, prepare it again",
                    prepared.site
                );
                Err(Failure::new(Code::Aborted, message))
            }
            // Nothing was sent, so the effect is none.
            Err(failure) => Err(Failure {
                effect: Effect::None,
                ..failure
            }),
        };
        self.leave(asked, answer).await
    }

    /// Checks and unseals a request, and puts it into the session behind its handle.
    async fn enter(&self, request: CloudRequest, way: Way) -> Result<(CloudRequest, Asked), Failure> {
        let queue = request.session.tenant_queue.clone();
        let (validator, bytes) = (self.validator.clone(), weight(&request.arguments));
        let validate = move || {
            let operation = validator.validate(&request, way).cloned();
            operation.map(|operation| (operation, request))
        };
        let (operation, mut request) = offload(&queue, bytes, validate).await?;
        let redactor = unseal(
            &operation,
            &mut request.arguments,
            &request.session,
            &*self.secrets,
            self.cloud.largest_sealed(),
        )
        .await?;
        let handle = request.session.handle.clone();
        request.session = self.with_sessions(|sessions, now| sessions.enter(now, &request.session))?;
        let asked = Asked {
            handle,
            redactor,
            queue,
        };
        Ok((request, asked))
    }

    /// The answer to a request, scrubbed of the values of the request and of its session.
    async fn leave(&self, asked: Asked, answer: Answer) -> Answer {
        let Asked {
            handle,
            mut redactor,
            queue,
        } = asked;
        let of_session = self.with_sessions(|sessions, _| sessions.redactor(handle.as_deref()));
        let bytes = weight_of_answer(&answer);
        let scrub = move || {
            redactor.join(&of_session);
            redactor.answer(answer)
        };
        let answer = offload(&queue, bytes, scrub).await;
        self.with_sessions(|sessions, _| sessions.on_answer(handle.as_deref(), &answer));
        answer
    }

    async fn session(&self, plan: &Document, owner: &str) -> Answer {
        let (credential, plan) = self.validator.validate_plan(plan)?;
        let plan = SessionPlan::new(credential, plan.clone());
        let known = || self.with_sessions(|sessions, now| sessions.get(now, &plan, owner));
        if let Some(there) = known() {
            return Ok(there);
        }
        // Only one call opens a session of a plan: a thousand machines of one identity share one session.
        let _permit = self.opening.acquire(plan.digest()).await;
        if let Some(there) = known() {
            return Ok(there);
        }
        let mut secrets = Vec::new();
        for (secret, digest) in plan.secrets() {
            secrets.push(self.resolve(secret, digest).await?);
        }
        let mut tokens = Vec::new();
        if self.cloud.takes_tokens() {
            for token in plan.tokens() {
                tokens.push(self.secrets.token(token).await?);
            }
        }
        let entries = secrets.iter().flatten().filter(|(entry, _)| is_secret(entry));
        let values = entries.map(|(_, value)| value).chain(&tokens);
        let values: Vec<String> = values.cloned().collect();
        let work = values.iter().map(|value| Redactor::work(value.len())).sum();
        let learn = move || {
            let mut redactor = Redactor::default();
            values.iter().for_each(|value| redactor.learn(value));
            redactor
        };
        // Who owns the Secret chose its size.
        let namespace = plan.secrets().first().map(|(secret, _)| &*secret.namespace);
        let queue = format!("credentials of {}", namespace.unwrap_or_default());
        let redactor = offload(&queue, work, learn).await;
        let request = SessionRequest {
            plan: plan.value().clone(),
            secrets,
            tokens,
            owner: owner.to_owned(),
        };
        let opened = self.cloud.open_session(&request).await;
        let opened = opened.map_err(|failure| Failure {
            message: redactor.scrub(&failure.message),
            ..failure
        })?;
        let (attributes, is_missing) = redactor.value(opened.attributes);
        if is_missing {
            return Err(Failure::new(Code::Unavailable, REPEATS));
        }
        let opened = Opened { attributes, ..opened };
        Ok(self.with_sessions(|sessions, now| sessions.put(now, &plan, owner, opened, redactor)))
    }

    /// The values of a Secret that a plan names.
    async fn resolve(&self, secret: &PlanSecret, digest: &str) -> Result<BTreeMap<String, String>, Failure> {
        let content = self.secrets.credentials(secret).await?;
        let PlanSecret { namespace, name } = secret;
        if content.digest != digest {
            let message = format!(
                "Secret {namespace}/{name} has changed since the credential plan was made: ask for the Secret and make the plan again"
            );
            return Err(Failure::new(Code::Aborted, message));
        }
        let mut values = BTreeMap::new();
        for (key, value) in content.values {
            let value = String::from_utf8(value).map_err(|_| {
                let message = format!("Secret {namespace}/{name}: {key} is not UTF-8");
                Failure::new(Code::InvalidArgument, message)
            })?;
            values.insert(key, value);
        }
        Ok(values)
    }

    async fn look(&self, session: &Session, entry: &PendingEntry) -> Result<Resolution, Failure> {
        let session = self.with_sessions(|sessions, now| sessions.enter(now, session))?;
        let there = self.cloud.site(&session).await?;
        Ok(match self.cloud.resolve(&session, entry).await {
            Resolution::Absent if !entry.site().is_at(&there) => Resolution::Unknown(format!(
                "the create was sent {}, but the host now looks {there}: only a look in the same place by the same principal counts",
                entry.site()
            )),
            said => said,
        })
    }
}

impl<C: Cloud> Cloud for Gateway<C> {
    fn catalogue(&self) -> &Arc<Catalogue> {
        self.validator.catalogue()
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.checked_perform(request))
    }

    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Preparation, Failure>> {
        Box::pin(self.checked_prepare(request))
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        Box::pin(self.checked_commit(commit))
    }

    fn site<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        Box::pin(async move {
            let entered = self.with_sessions(|sessions, now| sessions.enter(now, session))?;
            self.cloud.site(&entered).await
        })
    }

    fn resolve<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        Box::pin(async move {
            let looked = self.look(session, entry).await;
            looked.unwrap_or_else(|failure| Resolution::Unknown(failure.to_string()))
        })
    }

    fn credential<'a>(&'a self, plan: &'a Document, owner: &'a str) -> BoxFuture<'a, Answer> {
        Box::pin(self.session(plan, owner))
    }

    fn adapter(&self) -> Option<&dyn Any> {
        self.cloud.adapter()
    }
}
