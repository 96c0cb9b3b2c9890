//! A pass that ends without a session: what is said, and when to judge again.

use polity_sdk::Judgement;
use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup::is_transient;

/// The condition: the namespace may use the identity.
pub(crate) const ALLOWED: &str = "PrincipalUsageAllowed";
/// The condition: there are credentials for it.
pub(crate) const RETRIEVED: &str = "PrincipalCredentialRetrieved";
/// The condition: they lead to the account that is known.
pub(crate) const ACCOUNT: &str = "AccountMatches";

/// Why there is no session.
pub(crate) struct Stop {
    pub(crate) condition: &'static str,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) wait: Wait,
    /// Whether that is because an identity does not exist.
    pub(crate) gone: bool,
}

/// When to judge again. Whatever it is, a change of something that the pass looked at comes first, except for retries.
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
    /// Judged again at the resync.
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

    /// The identity may not be used.
    pub(crate) fn denied(reason: &'static str, message: impl Into<String>) -> Self {
        Stop::new(ALLOWED, ConditionStatus::False, reason, message)
    }

    /// There is no way to credentials.
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Stop::new(RETRIEVED, ConditionStatus::False, reason, message)
    }

    /// There is nothing to judge, and nothing to do until that changes.
    pub(crate) fn done(reason: &'static str, message: impl Into<String>) -> Self {
        Stop {
            wait: Wait::Change,
            ..Stop::denied(reason, message)
        }
    }

    /// Judged again soon if the failure may be over by then.
    pub(crate) fn for_the_sake_of(mut self, failure: Failure) -> Self {
        if is_transient(failure.code) {
            self.wait = Wait::Retry(failure);
        }
        self
    }

    /// Says so on the primary.
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
