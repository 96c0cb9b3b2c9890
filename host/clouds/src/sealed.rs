//! Sealed arguments. A recording contains only the reference; the value exists only between this code and the cloud.

use polity_core::call::Session;
use polity_core::catalogue::{Operation, SecretRef};
use polity_core::contract::{Code, Failure};
use serde_json::Value;

use crate::cloud::BoxFuture;
use crate::offload::offload;
use crate::redact::{Redactor, SHORTEST_SEALED};
use crate::session::{PlanSecret, PlanToken, SecretContent};

/// Resolves the values that sealed references name. The host implements it.
pub trait SecretResolver: Send + Sync {
    /// The value, or the reason why there is none. The failure must not contain a value.
    fn resolve<'a>(
        &'a self,
        session: &'a Session,
        secret: &'a SecretRef,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>>;

    /// The content of a Secret that a credential plan names. Its digest must be the same as in the answers to `secret`
    /// questions, so that only a policy that got such an answer can make a plan with the Secret.
    fn credentials<'a>(&'a self, secret: &'a PlanSecret) -> BoxFuture<'a, Result<SecretContent, Failure>> {
        let failure = Failure::new(Code::NotFound, format!("no Secret {:?} here", secret.name));
        Box::pin(std::future::ready(Err(failure)))
    }

    /// A new token of a service account that a credential plan names.
    fn token<'a>(&'a self, token: &'a PlanToken) -> BoxFuture<'a, Result<String, Failure>> {
        let message = format!("no token of ServiceAccount {:?} here", token.name);
        Box::pin(std::future::ready(Err(Failure::new(Code::NotFound, message))))
    }
}

/// A resolver for hosts and tests without Secrets: every reference is `not-found`.
pub struct NoSecrets;

impl SecretResolver for NoSecrets {
    fn resolve<'a>(
        &'a self,
        _: &'a Session,
        secret: &'a SecretRef,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        let failure = Failure::new(Code::NotFound, format!("no Secret {:?} here", secret.name));
        Box::pin(std::future::ready(Err(failure)))
    }
}

/// Replaces the sealed arguments by their values, each of [`SHORTEST_SEALED`] bytes to so many. Returns the redactor that scrubs these values.
pub(crate) async fn unseal(
    operation: &Operation,
    arguments: &mut Value,
    session: &Session,
    resolver: &dyn SecretResolver,
    largest: usize,
) -> Result<Redactor, Failure> {
    let mut values = Vec::new();
    for (path, secret) in operation.sealed_references(arguments)? {
        let value = resolver.resolve(session, &secret).await.map_err(no_value)?;
        if value.len() > largest {
            let message = format!(
                "{path}: {:?} of Secret {:?} is larger than {largest} bytes, the most that this cloud takes: make it smaller",
                secret.key, secret.name
            );
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        if value.len() < SHORTEST_SEALED {
            let message = format!(
                "{path}: {:?} of Secret {:?} is shorter than {SHORTEST_SEALED} bytes; the host hides a sealed value wherever the cloud \
                 repeats it, and a short one is in other texts by chance: make it longer",
                secret.key, secret.name
            );
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let text = String::from_utf8(value).map_err(|_| {
            Failure::new(
                Code::InvalidArgument,
                format!("{path}: the Secret's value is not UTF-8"),
            )
        })?;
        values.push((path.to_owned(), text));
    }
    let work = values.iter().map(|(_, text)| Redactor::work(text.len())).sum();
    let learn = move || {
        let mut redactor = Redactor::default();
        values.iter().for_each(|(_, text)| redactor.learn(text));
        (values, redactor)
    };
    let (values, redactor) = offload(&session.tenant_queue, work, learn).await;
    for (path, text) in values {
        if let Some(place) = at_path(arguments, &path) {
            *place = Value::String(text);
        }
    }
    Ok(redactor)
}

/// Turns `not-found` into `failed-precondition`: only the Secret does not exist. With `not-found`, a policy would believe that
/// the subject of the operation is gone, for example its machine.
fn no_value(failure: Failure) -> Failure {
    match failure.code {
        Code::NotFound => Failure {
            code: Code::FailedPrecondition,
            ..failure
        },
        _ => failure,
    }
}

fn at_path<'a>(document: &'a mut Value, dotted: &str) -> Option<&'a mut Value> {
    dotted
        .split('.')
        .try_fold(document, |value, field| value.get_mut(field))
}
