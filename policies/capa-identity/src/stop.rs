//! Stops: passes that end without a session, with the reports to write and the time of the next pass.

use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup::is_transient;

/// The condition: the namespace may use the identity.
pub(crate) const ALLOWED: &str = "PrincipalUsageAllowed";
/// The condition: there are credentials for the identity.
pub(crate) const RETRIEVED: &str = "PrincipalCredentialRetrieved";
/// The condition: the credentials belong to the known account.
pub(crate) const ACCOUNT: &str = "AccountMatches";

/// Why there is no session.
pub(crate) struct Stop {
    pub(crate) condition: &'static str,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) wait: Wait,
    /// Whether the cause is an identity that does not exist.
    pub(crate) gone: bool,
}

/// The time of the next pass. Except for retries, a change of something that the pass read comes first.
pub(crate) enum Wait {
    /// At the resync.
    Resync,
    /// Only when something changes.
    Change,
    /// After this long.
    After(Period),
    /// Soon: when the retry policy says.
    Retry(Failure),
}

impl Stop {
    /// A stop that waits for the resync.
    pub(crate) fn new(
        condition: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Stop {
            condition,
            status,
            reason,
            message: message.into(),
            wait: Wait::Resync,
            gone: false,
        }
    }

    /// A stop because the identity may not be used.
    pub(crate) fn denied(reason: &'static str, message: impl Into<String>) -> Self {
        Stop::new(ALLOWED, ConditionStatus::False, reason, message)
    }

    /// A stop because there are no credentials.
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Stop::new(RETRIEVED, ConditionStatus::False, reason, message)
    }

    /// A stop because nothing is to be judged until something changes.
    pub(crate) fn done(reason: &'static str, message: impl Into<String>) -> Self {
        Stop {
            wait: Wait::Change,
            ..Stop::denied(reason, message)
        }
    }

    /// Retries soon, because the failure may be over by then.
    pub(crate) fn for_the_sake_of(mut self, failure: Failure) -> Self {
        if is_transient(failure.code) {
            self.wait = Wait::Retry(failure);
        }
        self
    }

    /// Reports the stop on the primary.
    pub(crate) fn conclude(self, cx: &Cx) -> Judgement {
        let mut primary = cx.object_mut();
        if self.gone && primary.metadata.deleting() && cx.config().orphan_on_missing_identity {
            cx.note("CAPA-22");
            return Judgement::released();
        }
        cx.event(EventType::Warning, self.reason, self.message.as_str());
        let conditions = &mut primary.status.conditions;
        conditions.set(cx.now(), self.condition, self.status, self.reason, self.message);
        Judgement::denied(match self.wait {
            Wait::Resync => Next::settled_for(cx.config().resync),
            Wait::Change => Next::settled(),
            Wait::After(period) => Next::after(period),
            Wait::Retry(failure) => Next::failed(RetryClass::Short, failure),
        })
    }
}
